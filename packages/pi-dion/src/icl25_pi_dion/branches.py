"""Branch networks: from one measurement to the coefficients of the trunk's functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

__all__ = ["MLP", "CNNBranch", "MLPBranch", "SetBranch"]


class MLP(nnx.Module):
    """Dense layers with an activation between them and none after the last.

    Args:
        sizes: Width of the input, of each layer, and of the output.
        activation: The activation.
        rngs: Source of the initial weights: Glorot normal, biases zero.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        activation: Callable[[Array], Array] = jnp.tanh,
        *,
        rngs: nnx.Rngs,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        glorot = nnx.initializers.glorot_normal()
        pairs = itertools.pairwise(sizes)
        self.layers = nnx.List([nnx.Linear(*pair, kernel_init=glorot, param_dtype=dtype, rngs=rngs) for pair in pairs])
        self.activation = activation

    def __call__(self, x: Float[Array, "*n d"]) -> Float[Array, "*n p"]:
        """Apply the layers to the last axis.

        Args:
            x: Input, shape (..., d).

        Returns:
            Output, shape (..., p).
        """
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class MLPBranch(nnx.Module):
    """An MLP plus a linear map: inverse problems are close to linear, and the map has most of the answer at once.

    Args:
        m: Number of sensors.
        p: Number of coefficients.
        hidden: Widths of the hidden layers.
        rngs: Source of the initial weights.
        dtype: Of the parameters.
    """

    def __init__(
        self, m: int, p: int, hidden: Sequence[int] = (96,), *, rngs: nnx.Rngs, dtype: DTypeLike = jnp.float32
    ) -> None:
        self.mlp = MLP((m, *hidden, p), jax.nn.gelu, rngs=rngs, dtype=dtype)
        self.skip = _linear(m, p, rngs, dtype)

    def __call__(self, z: Float[Array, "B m"]) -> Float[Array, "B p"]:
        """Map standardised measurements to coefficients.

        Args:
            z: Measurements, shape (B, m).

        Returns:
            Coefficients, shape (B, p).
        """
        return self.mlp(z) + self.skip(z)


class CNNBranch(nnx.Module):
    """Three convolutions of stride 2 and two dense layers, plus a linear map of the image pooled to 8 nodes a side.

    Args:
        shape: Shape of a measurement, one or more axes.
        p: Number of coefficients.
        hidden: Width of the dense layer.
        channels: Channels of the convolutions.
        rngs: Source of the initial weights.
        dtype: Of the parameters.
    """

    def __init__(
        self,
        shape: Sequence[int],
        p: int,
        hidden: int = 128,
        channels: Sequence[int] = (16, 32, 64),
        *,
        rngs: nnx.Rngs,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        self.shape = tuple(shape)
        size, strides = (3,) * len(self.shape), (2,) * len(self.shape)
        pairs = zip((1, *channels[:-1]), channels, strict=True)
        self.convolutions = nnx.List(
            [nnx.Conv(a, b, size, strides=strides, param_dtype=dtype, rngs=rngs) for a, b in pairs]
        )
        left = math.prod(-(-n // 2 ** len(channels)) for n in self.shape)
        self.head = MLP((left * channels[-1], hidden, p), jax.nn.gelu, rngs=rngs, dtype=dtype)
        self.skip = _linear(math.prod(min(n, 8) for n in self.shape), p, rngs, dtype)

    def __call__(self, z: Float[Array, "B m"]) -> Float[Array, "B p"]:
        """Map standardised measurements to coefficients.

        Args:
            z: Measurements, flattened, shape (B, m).

        Returns:
            Coefficients, shape (B, p).
        """
        image = z.reshape(len(z), *self.shape, 1)
        x = image
        for convolution in self.convolutions:
            x = jax.nn.gelu(convolution(x))
        pooled = image[..., 0]
        for axis, n in enumerate(self.shape):
            pooled = jnp.moveaxis(
                jnp.tensordot(pooled, _pooling(n, min(n, 8)).astype(z.dtype), (axis + 1, 0)), -1, axis + 1
            )
        return self.head(x.reshape(len(x), -1)) + self.skip(pooled.reshape(len(z), -1))


class SetBranch(nnx.Module):
    """A network of a set of readings, whatever their number and order (deep sets).

    Each reading becomes a token of its location and value; the masked mean of the tokens goes through an MLP. A second
    path is linear in the values, as a learned integral kernel: sum_j psi(y_j) m_j / n.

    Args:
        features: Map of locations (..., d) to input features (..., n_features).
        n_features: Number of those.
        p: Number of coefficients.
        token: Widths of the token network.
        hidden: Width of the network after pooling.
        attention: Pool with learned weights of the tokens (softmax) in place of the mean.
        rngs: Source of the initial weights.
        dtype: Of the parameters.
    """

    takes_sets = True

    def __init__(
        self,
        features: Callable[[Array], Array],
        n_features: int,
        p: int,
        token: Sequence[int] = (64, 64),
        hidden: int = 128,
        *,
        attention: bool = False,
        rngs: nnx.Rngs,
        dtype: DTypeLike = jnp.float32,
    ) -> None:
        self.features = features
        self.token = MLP((n_features + 1, *token), jax.nn.gelu, rngs=rngs, dtype=dtype)
        self.kernel = MLP((n_features, *token, p), jax.nn.gelu, rngs=rngs, dtype=dtype)
        self.head = MLP((token[-1], hidden, p), jax.nn.gelu, rngs=rngs, dtype=dtype)
        self.score = MLP((token[-1], 1), rngs=rngs, dtype=dtype) if attention else None

    def __call__(
        self, z: Float[Array, "B m"], locations: Float[Array, "*B m d"], mask: Bool[Array, "B m"]
    ) -> Float[Array, "B p"]:
        """Map standardised readings to coefficients.

        Args:
            z: Values, shape (B, m).
            locations: Where they were read, shape (B, m, d), or (m, d) for all samples.
            mask: Which of them count, shape (B, m).

        Returns:
            Coefficients, shape (B, p).
        """
        z = jnp.where(mask, z, 0)
        features = self.features(locations)
        kernel = jnp.broadcast_to(self.kernel(features), (*z.shape, self.kernel.layers[-1].out_features))
        features = jnp.broadcast_to(features, (*z.shape, features.shape[-1]))
        tokens = jax.nn.gelu(self.token(jnp.concatenate([features, z[..., None]], axis=-1)))
        uniform = mask / jnp.maximum(mask.sum(axis=-1, keepdims=True), 1)
        if self.score is None:
            share = uniform
        else:
            scores = jnp.where(mask, self.score(tokens)[..., 0], -jnp.inf)
            share = jnp.where(mask, jax.nn.softmax(scores, axis=-1), 0)
        pooled = jnp.einsum("bm,bmk->bk", share.astype(z.dtype), tokens)
        return self.head(pooled) + jnp.einsum("bm,bmp->bp", (uniform * z).astype(z.dtype), kernel)


def _linear(m: int, p: int, rngs: nnx.Rngs, dtype: DTypeLike) -> nnx.Linear:
    scale = nnx.initializers.normal(1 / math.sqrt(m))
    return nnx.Linear(m, p, use_bias=False, kernel_init=scale, param_dtype=dtype, rngs=rngs)


def _pooling(n: int, bins: int) -> np.ndarray:
    """The matrix that averages n nodes to bins of nearly equal sizes."""
    matrix = np.zeros((n, bins), np.float32)
    for b, members in enumerate(np.array_split(np.arange(n), bins)):
        matrix[members, b] = 1 / len(members)
    return matrix
