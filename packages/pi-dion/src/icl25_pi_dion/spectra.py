"""What a measurement can tell of the unknown: singular functions, and the error of the best inversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from icl25_pi_dion.problem import InverseProblem

__all__ = ["PriorInformation", "Spectrum", "identifiability"]

MOST_ERROR, LEAST_DIRECTIONS = 0.25, 5
_DENSE = 200  # maps with at most so many columns or rows are written out
_CHUNK = 100
_OVERSAMPLING, _POWER_ITERATIONS = 20, 3


@dataclass(frozen=True)
class PriorInformation:
    """What draws from the prior say of unknowns, and of how the linearised measurement sees them.

    Attributes:
        deviation: Standard deviation of the coefficient of each right singular function, shape (k,).
        measurement_deviation: Standard deviation of the measurements, which noise is relative to.
        power: Mean squared L2 norm of an unknown.
        components: Independent parts of the unknown, which add up to it with standard normal factors, shape (d, n_s).
        information: Squared ratio of each part's signal to the measurement deviation, all sensors together, shape (d,).
    """

    deviation: Float[np.ndarray, " k"]
    measurement_deviation: float
    power: float
    components: Float[np.ndarray, "d n_s"]
    information: Float[np.ndarray, " d"]


@dataclass(frozen=True)
class Spectrum:
    """Singular values and functions of the map from a small change of the unknown to that of the measurement.

    The map is that of functions: both sides carry their L2 norms by the trapezoidal rule, or with equal weights where
    points form no grid, so that values do not depend on the number of nodes.

    Attributes:
        singular_values: Descending, shape (k,).
        right: Singular functions of the unknown, of L2 norm 1, shape (k, *target_grid).
        left: Singular functions of the measurement, of L2 norm 1, shape (k, *sensor_shape).
        points: The target grid, shape (n_s, d_s).
        weights: Its weights of integration, shape (n_s,).
        noise_factor: Standard deviation of the coefficient of each left function when every sensor has noise 1, (k,).
        prior: What the prior says; None for a problem without one.
        coords: Letters of the target's coordinates.
    """

    singular_values: Float[np.ndarray, " k"]
    right: Float[np.ndarray, "k ..."]
    left: Float[np.ndarray, "k ..."]
    points: Float[np.ndarray, "n_s d_s"] = field(repr=False)
    weights: Float[np.ndarray, " n_s"] = field(repr=False)
    noise_factor: Float[np.ndarray, " k"] = field(repr=False)
    prior: PriorInformation | None = field(repr=False)
    coords: tuple[str, ...] = ("x",)

    def signal_to_noise(self, noise: float = 0.01) -> Float[np.ndarray, " k"]:
        """Return how much stronger each direction of the unknown is in a measurement than the noise.

        That is the singular value times the standard deviation of the direction's coefficient in the prior, divided by
        the standard deviation of the noise in the coefficient of the left singular function.

        Args:
            noise: Standard deviation of the noise at each sensor, relative to that of the measurements, > 0.

        Returns:
            The ratios, shape (k,).

        Raises:
            ValueError: If ``noise`` is not positive, or the problem has no prior.
        """
        prior = self._prior(noise)
        return self.singular_values * prior.deviation / (noise * prior.measurement_deviation * self.noise_factor)

    def visible(self, noise: float = 0.01) -> Bool[np.ndarray, " k"]:
        """Return which directions are stronger in a measurement than the noise.

        Args:
            noise: Relative noise, > 0.

        Returns:
            A mask, shape (k,).
        """
        return self.signal_to_noise(noise) > 1

    def n_identifiable(self, noise: float = 0.01) -> int:
        """Count the directions, of the k that were computed, that are stronger in a measurement than the noise.

        Args:
            noise: Relative noise, > 0.

        Returns:
            The number.
        """
        return int(self.visible(noise).sum())

    def expected_error(self, noise: float = 0.01) -> float:
        """Return the relative L2 error that no linear inversion gets below on average over the prior.

        It is the root of the trace of the posterior covariance over the mean square of the unknown, for the linearised
        measurement and an unknown with the mean and the covariance of the prior. All directions count, not only the k.

        Args:
            noise: Relative noise, > 0.

        Returns:
            The error; that of the prior's mean if the measurement says nothing.

        Raises:
            ValueError: If ``noise`` is not positive, or the problem has no prior.
        """
        prior = self._prior(noise)
        return float(np.sqrt(np.sum(np.square(self._left_over(noise))) / prior.power))

    def unseen(self, noise: float = 0.01, n: int = 3) -> Float[np.ndarray, "n ..."]:
        """Return the largest independent patterns of the unknown that remain uncertain after a measurement.

        They are the eigenfunctions of the posterior covariance, each as large as its standard deviation.

        Args:
            noise: Relative noise, > 0.
            n: How many, at most the number of prior draws and of nodes.

        Returns:
            The patterns, shape (n, *target_grid).

        Raises:
            ValueError: If ``noise`` is not positive, or the problem has no prior.
        """
        _, deviations, patterns = np.linalg.svd(self._left_over(noise), full_matrices=False)
        values = deviations[:n, None] * patterns[:n] / np.sqrt(self.weights)
        return _with_positive_peak(values).reshape(-1, *self.right.shape[1:])

    def shortcoming(
        self, noise: float = 0.01, most_error: float = MOST_ERROR, least_directions: int = LEAST_DIRECTIONS
    ) -> str:
        """Say why a measurement does not determine the unknown; nothing where it does.

        Args:
            noise: Relative noise, > 0.
            most_error: Expected relative error that is still taken as determined.
            least_directions: Number of directions that must be visible, if so many were computed and the prior varies
                along so many.

        Returns:
            One sentence, or an empty string.
        """
        error, seen = self.expected_error(noise), self.n_identifiable(noise)
        prior = self._prior(noise)
        varied = np.linalg.matrix_rank(prior.components * np.sqrt(self.weights), rtol=1e-6)
        if error <= most_error and seen >= min(least_directions, len(self.singular_values), int(varied)):
            return ""
        return (
            f"the measurement does not determine the unknown: with {noise:.3g} noise {seen} of the "
            f"{len(self.singular_values)} strongest directions are visible, and the best linear inversion has an "
            f"expected relative error of {error:.0%}; measure more, for longer, or elsewhere"
        )

    def plot(self, noise: float = 0.01) -> Any:
        """Draw the spectrum, the functions that the measurement sees best and those that it hardly sees.

        Args:
            noise: Relative noise, > 0.

        Returns:
            A matplotlib figure.
        """
        from icl25_pi_dion.spectra_plots import plot_spectrum

        return plot_spectrum(self, noise)

    def _left_over(self, noise: float) -> Float[np.ndarray, "d n_s"]:
        """A root of the posterior covariance, between spaces with the plain norm."""
        prior = self._prior(noise)
        return prior.components * np.sqrt(self.weights / (1 + prior.information[:, None] / noise**2))

    def _prior(self, noise: float) -> PriorInformation:
        if not (np.isfinite(noise) and noise > 0):
            raise ValueError(f"noise must be > 0, found {noise}")
        if self.prior is None:
            raise ValueError("the problem has no prior (sample_target), so nothing is known of the unknown's size")
        return self.prior


def identifiability(
    problem: InverseProblem,
    s: Float[np.ndarray, "..."] | None = None,
    k: int = 20,
    seed: int = 0,
    n_prior: int = 400,
) -> Spectrum:
    """Compute the singular values of the measurement, linearised at an unknown, and what the prior makes of them.

    Small maps are written out, large ones go through randomised subspace iteration, with one linearised and one adjoint
    solve for each column.

    Args:
        problem: The problem; it defines ``forward``. Its ``sample_target``, if any, is the prior.
        s: Where to linearise, shape (*target_grid), or flattened. Default: the mean of the prior; without one, zero,
            or one for a positive unknown.
        k: Number of singular values; at most the number of sensors and of target nodes.
        seed: Seed of the draws.
        n_prior: Number of draws from the prior, >= 2.

    Returns:
        The spectrum.

    Raises:
        ValueError: If ``k`` or ``n_prior`` is too small, ``s`` does not fit, or there is no solution at ``s``.
        NotImplementedError: If the problem does not define ``forward``.

    Source:
        Cho and Son (ICLR 2025) rest on stability estimates, of which this is the computable form; Halko, Martinsson and
        Tropp (2011) for large maps.

    Example:
        >>> from icl25_pi_dion.problems import ReactionDiffusionSource
        >>> identifiability(ReactionDiffusionSource(), k=3).singular_values.round(4)
        array([0.9069, 0.7888, 0.6352])
    """
    if k < 1 or n_prior < 2:
        raise ValueError(f"expected k >= 1 and n_prior >= 2, found {k} and {n_prior}")
    rng = np.random.default_rng(seed)
    points, sensors = problem.target_points(), problem.sensors()
    draws = _draws(problem, n_prior, rng)
    at = _linearisation_point(problem, s, draws, len(points))
    w_s, w_m = _weights(points), _weights(sensors)
    with jax.enable_x64(True):
        linear = _linearised(problem, at, w_s, w_m)
        left, values, right = _svd(linear, min(k, len(points), len(sensors)), len(points), len(sensors), rng)
        prior = None if draws is None else _prior_information(linear, draws, right, w_s, w_m)
    signs = _peak_signs(right)
    return Spectrum(
        singular_values=values,
        right=(signs * right / np.sqrt(w_s)).reshape(-1, *problem.target_grid),
        left=(signs * left / np.sqrt(w_m)).reshape(-1, *(problem.sensor_shape or (len(sensors),))),
        points=points,
        weights=w_s,
        # Of sum_j w_j noise_j left_j, with left divided by the root of the weights once already.
        noise_factor=np.sqrt(np.square(left) @ w_m),
        prior=prior,
        coords=tuple(problem.target_coords),
    )


class _Linear(NamedTuple):
    """The linearised measurement between spaces with the plain norm, and its adjoint, for many rows at once."""

    push: Callable[[Float[np.ndarray, "b n_s"]], Float[np.ndarray, "b m"]]
    pull: Callable[[Float[np.ndarray, "b m"]], Float[np.ndarray, "b n_s"]]


def _linearised(
    problem: InverseProblem, at: Float[np.ndarray, " n_s"], w_s: Float[np.ndarray, " n_s"], w_m: Float[np.ndarray, " m"]
) -> _Linear:
    value, push = jax.linearize(problem.forward, jnp.asarray(at))
    if not np.isfinite(np.asarray(value)).all():
        raise ValueError("the equation has no solution where it is linearised; pass another s")
    if value.shape != w_m.shape:
        raise ValueError(f"forward(s) returns shape {value.shape}, but there are {len(w_m)} sensors")
    root_s, root_m = jnp.asarray(np.sqrt(w_s)), jnp.asarray(np.sqrt(w_m))

    def weighted(v: Float[Array, " n_s"]) -> Float[Array, " m"]:
        return root_m * push(v / root_s)

    adjoint = jax.linear_transpose(weighted, jnp.asarray(at))
    return _Linear(_rowwise(weighted), _rowwise(lambda v: adjoint(v)[0]))


def _rowwise(function: Callable[[Array], Array]) -> Callable[[Float[np.ndarray, "b ..."]], Float[np.ndarray, "b ..."]]:
    batched = jax.jit(jax.vmap(function))

    def apply(rows: Float[np.ndarray, "b ..."]) -> Float[np.ndarray, "b ..."]:
        return np.concatenate([np.asarray(batched(rows[i : i + _CHUNK])) for i in range(0, len(rows), _CHUNK)])

    return apply


def _svd(
    linear: _Linear, k: int, n_s: int, m: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, " k"], Float[np.ndarray, "k n_s"]]:
    """The k largest singular values with their vectors, a row each."""
    if n_s <= _DENSE:
        left, values, right = np.linalg.svd(linear.push(np.eye(n_s)).T, full_matrices=False)
    elif m <= _DENSE:
        left, values, right = np.linalg.svd(linear.pull(np.eye(m)), full_matrices=False)
    else:
        rank = min(k + _OVERSAMPLING, n_s, m)
        basis = np.linalg.qr(linear.push(rng.standard_normal((rank, n_s))).T)[0]
        for _ in range(_POWER_ITERATIONS):
            start = np.linalg.qr(linear.pull(basis.T).T)[0]
            basis = np.linalg.qr(linear.push(start.T).T)[0]
        small, values, right = np.linalg.svd(linear.pull(basis.T), full_matrices=False)
        left = basis @ small
    return left.T[:k], values[:k], right[:k]


def _prior_information(
    linear: _Linear,
    draws: Float[np.ndarray, "n n_s"],
    right: Float[np.ndarray, "k n_s"],
    w_s: Float[np.ndarray, " n_s"],
    w_m: Float[np.ndarray, " m"],
) -> PriorInformation:
    """Diagonalise what the measurement says of centred draws."""
    centred = (draws - draws.mean(axis=0)) * np.sqrt(w_s / (len(draws) - 1))
    if len(centred) > centred.shape[1]:  # a smaller root of the same covariance
        centred = np.asarray(np.linalg.qr(centred, mode="r"))
    # Noise is the same at each sensor, whatever part of the domain it stands for.
    signals = linear.push(centred) / np.sqrt(w_m)
    deviation = float(np.sqrt(np.sum(np.square(signals)) / len(w_m)))
    information, directions = np.linalg.eigh(signals @ signals.T)
    return PriorInformation(
        deviation=np.sqrt(np.sum(np.square(centred @ right.T), axis=0)),
        measurement_deviation=deviation,
        power=float(np.mean(np.square(draws) @ w_s)),
        components=directions.T @ centred / np.sqrt(w_s),
        information=np.maximum(information, 0) / (deviation**2 if deviation > 0 else 1.0),
    )


def _peak_signs(functions: Float[np.ndarray, "k n_s"]) -> Float[np.ndarray, "k 1"]:
    """Signs that make the largest value of each function positive: decompositions leave them open."""
    return np.sign(np.take_along_axis(functions, np.abs(functions).argmax(axis=1)[:, None], axis=1))


def _with_positive_peak(functions: Float[np.ndarray, "k n_s"]) -> Float[np.ndarray, "k n_s"]:
    return functions * _peak_signs(functions)


def _draws(problem: InverseProblem, n: int, rng: np.random.Generator) -> Float[np.ndarray, "n n_s"] | None:
    try:
        return np.asarray(problem.sample_target(n, rng), float).reshape(n, -1)
    except NotImplementedError:
        return None


def _linearisation_point(
    problem: InverseProblem, s: Float[np.ndarray, "..."] | None, draws: Float[np.ndarray, "n n_s"] | None, n_s: int
) -> Float[np.ndarray, " n_s"]:
    if s is None:
        return draws.mean(axis=0) if draws is not None else np.full(n_s, 1.0 if problem.positive else 0.0)
    point = np.asarray(s, float).ravel()
    if point.size != n_s or not np.isfinite(point).all():
        raise ValueError(f"s must have {n_s} finite values, one for each node of the target grid, found {point.size}")
    problem.check_target(point[None])
    return point


def _weights(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """Weights of integration: trapezoidal where points form a grid, else shares of the box around them."""
    axes = [np.unique(column) for column in points.T]
    axes_weights = [_trapezoid(axis) for axis in axes]
    grid = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=-1)
    if grid.shape == points.shape and np.array_equal(grid, points):
        weights = np.ones(1)
        for part in axes_weights:
            weights = np.outer(weights, part).ravel()
        return weights
    return np.full(len(points), float(np.prod([part.sum() for part in axes_weights])) / len(points))


def _trapezoid(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    if len(x) == 1:  # nothing to integrate over, such as the final time
        return np.ones(1)
    steps = np.diff(x)
    return (np.append(steps, 0) + np.insert(steps, 0, 0)) / 2
