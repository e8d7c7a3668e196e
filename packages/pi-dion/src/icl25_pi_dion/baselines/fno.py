"""A small Fourier neural operator from a grid of measurements to the unknown on a grid."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Key
from scipy.interpolate import RegularGridInterpolator

from icl25_pi_dion.baselines.base import Baseline, check_counts, check_seed
from icl25_pi_dion.baselines.loop import Loop
from icl25_pi_dion.checks import check_labels, check_measurements
from icl25_pi_dion.optimizers import make_optimizer
from icl25_pi_dion.problem import InverseProblem, grid

__all__ = ["FNO2d", "FourierLayer", "FourierNetwork"]

PADDING = 8  # the grid is continued by one eighth, as functions are not periodic


class FourierLayer(nnx.Module):
    """Multiply the lowest Fourier coefficients of all channels by matrices, on a periodic grid.

    Args:
        width: Number of channels.
        modes: Number of frequencies along each axis: -modes < k < modes, where the grid has as many.
        rngs: Source of the initial weights.

    Source:
        Li et al., Fourier neural operator (ICLR 2021).
    """

    def __init__(self, width: int, modes: int, *, rngs: nnx.Rngs) -> None:
        self.modes = modes
        shape = (2 * modes - 1, modes, width, width)
        self.real = nnx.Param(jax.random.normal(rngs.params(), shape) / width)
        self.imaginary = nnx.Param(jax.random.normal(rngs.params(), shape) / width)

    def __call__(self, x: Float[Array, "B n_x n_y w"]) -> Float[Array, "B n_x n_y w"]:
        """Apply the layer.

        Args:
            x: Values on a grid, shape (B, n_x, n_y, width).

        Returns:
            Values on the same grid.
        """
        n_x, n_y = x.shape[1:3]
        # Frequencies at half the sampling rate are left out: they stand for both signs at once.
        k_x, k_y = min(self.modes, (n_x + 1) // 2), min(self.modes, (n_y + 1) // 2)
        frequencies = np.arange(1 - k_x, k_x)
        # Divided by the number of nodes, coefficients are those of the function, whatever the grid.
        coefficients = jnp.fft.rfft2(x, axes=(1, 2), norm="forward")
        weights = jax.lax.complex(self.real[...], self.imaginary[...])[frequencies + self.modes - 1, :k_y]
        mixed = jnp.einsum("bxyi,xyio->bxyo", coefficients[:, frequencies, :k_y], weights)
        filled = jnp.zeros_like(coefficients).at[:, frequencies, :k_y].set(mixed)
        return jnp.fft.irfft2(filled, s=(n_x, n_y), axes=(1, 2), norm="forward")


class FourierNetwork(nnx.Module):
    """Fourier layers beside pointwise linear maps, between a lifting and a projection.

    Args:
        modes: Frequencies along each axis.
        width: Channels.
        n_layers: Number of layers.
        rngs: Source of the initial weights.

    Source:
        Li et al., Fourier neural operator (ICLR 2021).
    """

    def __init__(self, modes: int, width: int, n_layers: int, *, rngs: nnx.Rngs) -> None:
        self.lift = nnx.Linear(3, width, rngs=rngs)
        self.layers = nnx.List([FourierLayer(width, modes, rngs=rngs) for _ in range(n_layers)])
        self.pointwise = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(n_layers)])
        self.project = nnx.List([nnx.Linear(width, 2 * width, rngs=rngs), nnx.Linear(2 * width, 1, rngs=rngs)])

    def __call__(self, z: Float[Array, "B n_x n_y"]) -> Float[Array, "B n_x n_y"]:
        """Map fields to fields.

        Args:
            z: Standardised measurements on a grid, shape (B, n_x, n_y).

        Returns:
            The output on the same grid.
        """
        n_x, n_y = z.shape[1:]
        places = jnp.stack(jnp.meshgrid(jnp.linspace(0, 1, n_x), jnp.linspace(0, 1, n_y), indexing="ij"), axis=-1)
        places = jnp.broadcast_to(places.astype(z.dtype), (*z.shape, 2))
        x = self.lift(jnp.concatenate([z[..., None], places], axis=-1))
        x = jnp.pad(x, ((0, 0), (0, -(-n_x // PADDING)), (0, -(-n_y // PADDING)), (0, 0)))
        for number, (layer, pointwise) in enumerate(zip(self.layers, self.pointwise, strict=True)):
            x = layer(x) + pointwise(x)
            x = jax.nn.gelu(x) if number < len(self.layers) - 1 else x
        hidden, last = self.project
        return last(jax.nn.gelu(hidden(x[:, :n_x, :n_y])))[..., 0]


class _Scales(NamedTuple):
    """Mean and standard deviation of the measurements, and of the unknowns or of their logarithms."""

    field: Float[np.ndarray, ""]
    field_scale: Float[np.ndarray, ""]
    target: Float[np.ndarray, ""]
    target_scale: Float[np.ndarray, ""]


class FNO2d(Baseline):
    """Supervised Fourier neural operator for measurements and unknowns on two-dimensional grids.

    Measurements on another grid than that of the unknown are interpolated linearly to it. Positive unknowns are
    exponentials of the output. The loss is the mean square error of s over its variance.

    Args:
        problem: The inverse problem; its sensors form a grid over the whole domain of the unknown.
        modes: Frequencies along each axis.
        width: Channels.
        n_layers: Number of layers.
        optimizer: ``"adam"``, ``"muon"``, ``"lbfgs"`` or an optax transformation.
        steps: Number of steps.
        batch_size: Samples a step.
        seed: Seed of weights and draws, a whole number >= 0.
        learning_rate: At the start; it falls to 1 % along a cosine. Default: 3e-3 for Adam, else that of
            ``InverseOperator``.

    Raises:
        ValueError: If the sensors form no grid over the domain, or an argument is out of range.

    Source:
        Li et al., Fourier neural operator (ICLR 2021), as the supervised baseline of Cho and Son (ICLR 2025).
    """

    def __init__(
        self,
        problem: InverseProblem,
        modes: int = 8,
        width: int = 16,
        n_layers: int = 3,
        optimizer: str | optax.GradientTransformation = "adam",
        steps: int = 1000,
        batch_size: int = 16,
        seed: int = 0,
        learning_rate: float | None = None,
    ) -> None:
        check_counts(modes=modes, width=width, n_layers=n_layers, steps=steps, batch_size=batch_size)
        check_seed(seed)
        self.problem, self.modes, self.width, self.n_layers = problem, modes, width, n_layers
        self.optimizer, self.steps, self.batch_size = optimizer, steps, batch_size
        self.seed, self.learning_rate = seed, learning_rate
        self._sensor_axes, self._target_axes = _grids(problem)

    def fit(self, M: Any, S: Any) -> Self:
        """Train on labelled measurements.

        Args:
            M: Measurements, shape (n, *sensor_shape).
            S: Their unknowns, shape (n, *target_shape).

        Returns:
            The baseline itself.

        Raises:
            ValueError: If measurements or labels do not fit; the message says which.
            TypeError: If they are no numbers.
            Diverged: If the loss does not stay finite.
        """
        if S is None:
            raise ValueError("S is None: a supervised operator needs the unknown of each measurement")
        fields = self._on_target_grid(M)
        rows, labels = check_labels(S, len(fields), self.problem)
        fields, labels = fields[rows], labels.reshape(-1, *self.problem.target_grid)
        raw = np.log(labels) if self.problem.positive else labels
        self.scales_ = _Scales(*map(np.asarray, (fields.mean(), fields.std() or 1.0, raw.mean(), raw.std() or 1.0)))
        net = FourierNetwork(self.modes, self.width, self.n_layers, rngs=nnx.Rngs(self.seed))
        self._graph, params = nnx.split(net)
        rate = 3e-3 if self.learning_rate is None and self.optimizer == "adam" else self.learning_rate
        spread, batch_size = float(labels.std()) or 1.0, min(self.batch_size, len(labels))

        def loss(params: Any, key: Key[Array, ""], data: tuple[Array, Array]) -> Float[Array, ""]:
            drawn = jax.random.randint(key, (batch_size,), 0, len(data[0]))
            error = self._apply(params, data[0][drawn]) - data[1][drawn]
            return jnp.mean(jnp.square(error / spread))

        loop = Loop(loss, make_optimizer(self.optimizer, self.steps, rate), self.steps, "training the FNO")
        data = jnp.asarray(fields, jnp.float32), jnp.asarray(labels, jnp.float32)
        self.params_, self.history_ = loop.run(params, data, self.seed)
        self._predict = jax.jit(self._apply)
        return self

    def predict(self, M: Any) -> Float[np.ndarray, "n *shape"]:
        """Invert measurements.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns on the target grid.

        Raises:
            ValueError: If the measurements do not fit.
            RuntimeError: If it is not fitted.
        """
        if not hasattr(self, "params_"):
            raise RuntimeError("this FNO2d is not fitted: call fit(measurements, unknowns) first")
        fields = jnp.asarray(self._on_target_grid(M), jnp.float32)
        parts = [np.asarray(self._predict(self.params_, fields[i : i + 256])) for i in range(0, len(fields), 256)]
        return np.concatenate(parts)

    def _apply(self, params: Any, fields: Float[Array, "B n_x n_y"]) -> Float[Array, "B n_x n_y"]:
        field, field_scale, target, target_scale = (part.astype(np.float32) for part in self.scales_)
        raw = target + target_scale * nnx.merge(self._graph, params)((fields - field) / field_scale)
        return jnp.exp(raw) if self.problem.positive else jnp.asarray(raw)

    def _on_target_grid(self, M: Any) -> Float[np.ndarray, "n n_x n_y"]:
        sizes = [len(axis) for axis in self._sensor_axes]
        fields = check_measurements(M, self.problem).values.reshape(-1, *sizes)
        if sizes == [len(axis) for axis in self._target_axes]:
            return fields
        between = RegularGridInterpolator(self._sensor_axes, np.moveaxis(fields, 0, -1))
        return np.moveaxis(between(grid(self._target_axes)).reshape(*self.problem.target_grid, len(fields)), -1, 0)


def _grids(problem: InverseProblem) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Coordinates of the sensors' grid and of the target grid along the axes of the unknown."""
    shape = problem.sensor_shape
    columns = list(problem.target_axes)
    if len(columns) != 2:
        raise ValueError(f"FNO2d needs an unknown of two coordinates, found {tuple(problem.target_coords)}")
    sensors = np.asarray(problem.sensors(), float)
    ends = [problem.domain[column] for column in columns]
    targets = [np.linspace(*end, n) for end, n in zip(ends, problem.target_grid, strict=True)]
    if shape is not None and len(shape) == 2 and math.prod(shape) == len(sensors) and min(shape) > 1:
        axes = [np.linspace(*end, n) for end, n in zip(ends, shape, strict=True)]
        # Readings of u at one time are on a grid of space.
        if np.allclose(sensors[:, columns], grid(axes), atol=1e-9) and _constant_elsewhere(sensors, columns):
            return axes, targets
    raise ValueError(
        f"FNO2d needs sensors on a uniform grid over the domain of the unknown; those of {type(problem).__name__} "
        "form none"
    )


def _constant_elsewhere(sensors: Float[np.ndarray, "m d"], columns: list[int]) -> bool:
    rest = np.delete(sensors, columns, axis=1)
    return bool(np.ptp(rest, axis=0).max(initial=0.0) == 0)
