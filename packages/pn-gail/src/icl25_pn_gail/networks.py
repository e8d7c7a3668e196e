"""Multilayer perceptrons as pytrees of parameters, and the policies made of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from icl25_pn_gail.distributions import Arrays, Categorical, Gaussian

__all__ = ["Layer", "Policy", "init_mlp", "mlp"]

HEAD_SCALE = 0.1  # of the last layer's first weights: a discriminator that starts sure of itself teaches nothing


class Layer(NamedTuple):
    """One affine layer.

    Attributes:
        kernel: Weights, (inputs, outputs).
        bias: Biases, (outputs,).
    """

    kernel: Any
    bias: Any


def init_mlp(key: PRNGKeyArray, sizes: Sequence[int]) -> tuple[Layer, ...]:
    """Draw the parameters of a multilayer perceptron.

    Weights and biases are uniform within 1/sqrt(inputs); the weights of the last layer are a tenth of that, and its
    biases zero.

    Args:
        key: Key of the draw.
        sizes: Width of the input, of each hidden layer, and of the output.

    Returns:
        The layers.
    """
    layers = []
    for i, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        weight_key, bias_key = jax.random.split(jax.random.fold_in(key, i))
        bound = 1 / np.sqrt(n_in)
        kernel = jax.random.uniform(weight_key, (n_in, n_out), minval=-bound, maxval=bound)
        bias = jax.random.uniform(bias_key, (n_out,), minval=-bound, maxval=bound)
        last = i == len(sizes) - 2
        layers.append(Layer(HEAD_SCALE * kernel, jnp.zeros_like(bias)) if last else Layer(kernel, bias))
    return tuple(layers)


def mlp(layers: Sequence[Layer], x: Any, xp: ModuleType = jnp) -> Any:
    """Apply a perceptron with tanh between its layers.

    Args:
        layers: Its parameters.
        x: Inputs, (..., inputs).
        xp: ``jax.numpy``, or ``numpy`` for a few rows at a time, where a call of compiled code costs more than the
            arithmetic.

    Returns:
        Outputs, (..., outputs).
    """
    for layer in layers[:-1]:
        x = xp.tanh(x @ layer.kernel + layer.bias)
    return x @ layers[-1].kernel + layers[-1].bias


@dataclass(frozen=True)
class Policy:
    """A stochastic policy: a Gaussian whose spread does not depend on the state, or a categorical distribution.

    Attributes:
        n_outputs: Dimensions of the action, or number of discrete actions.
        discrete: Which of the two.
    """

    n_outputs: int
    discrete: bool = False

    def init(self, key: PRNGKeyArray, n_inputs: int, hidden: Sequence[int], log_std: float = 0.0) -> dict[str, Any]:
        """Draw parameters.

        Args:
            key: Key of the draw.
            n_inputs: Dimensions of the observation.
            hidden: Widths of the hidden layers.
            log_std: First logarithm of the standard deviation, for continuous actions.

        Returns:
            ``layers``, and ``log_std`` (n_outputs,) for continuous actions.
        """
        layers = init_mlp(key, (n_inputs, *hidden, self.n_outputs))
        if self.discrete:
            return {"layers": layers}
        # With its type said: a weak one would have every training compiled twice, and that of an int would be int.
        return {"layers": layers, "log_std": jnp.full(self.n_outputs, log_std, jnp.result_type(float))}

    def __call__(self, params: dict[str, Any], obs: Float[Arrays, "*n d"]) -> Gaussian | Categorical:
        """Return the distributions of the action.

        Args:
            params: Parameters.
            obs: Observations, normalised.

        Returns:
            The distributions, one for each row.
        """
        output = mlp(params["layers"], obs)
        return Categorical(output) if self.discrete else Gaussian(output, params["log_std"])
