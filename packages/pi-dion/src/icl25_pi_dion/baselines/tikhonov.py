"""Regularised inversion of linear problems by one singular value decomposition."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy import linalg

from icl25_pi_dion.baselines.base import Baseline
from icl25_pi_dion.baselines.norms import GridNorm
from icl25_pi_dion.checks import check_measurements
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.problems.arguments import check_choice, check_positive

__all__ = ["Tikhonov", "TikhonovResult"]

LINEAR = 1e-9  # relative deviation from linearity that counts as rounding
SMALLEST, GRID = 1e-14, 200  # smallest alpha that is tried, over the largest squared singular value, and how many
BISECTIONS = 60
ROBUST = 0.1


class TikhonovResult(NamedTuple):
    """Regularised inversions.

    Attributes:
        s: The unknowns on the target grid.
        alpha: The regularisation of each, infinite where the reading is no more than noise and s = 0.
        misfit: Root mean square misfit of each, in the unit of the measurements.
    """

    s: Float[np.ndarray, "n *shape"]
    alpha: Float[np.ndarray, " n"]
    misfit: Float[np.ndarray, " n"]


class Tikhonov(Baseline):
    """Invert a linear problem m = F s by the minimum of norm(F s - m)^2 + alpha norm(s)^2, or by truncation.

    F is the matrix of ``problem.forward``, computed once. With the singular values sigma_i of F between the norm of the
    prior and the Euclidean norm of readings, the coefficients of m are multiplied by sigma_i / (sigma_i^2 + alpha)
    (Tikhonov), or by 1 / sigma_i where sigma_i^2 >= alpha and else by 0 (truncated singular value decomposition).

    Args:
        problem: An inverse problem whose forward map is linear.
        alpha: The regularisation, >= 0; 0 is the pseudoinverse. None: chosen for each measurement, by the discrepancy
            principle where ``sigma`` is given, else by robust generalised cross-validation.
        method: ``"tikhonov"`` or ``"tsvd"``.
        prior: Norm of s: ``"h1_0"``: root of the integral of abs(grad s)^2, for s that vanish on the edge of the grid,
            where u = 0 often hides them; ``"h1"``: of s^2 + abs(grad s)^2; ``"l2"``: of s^2.
        sigma: Standard deviation of the noise of a reading, in the unit of the measurements, > 0.

    Raises:
        ValueError: If the forward map is not linear, or an argument is out of range.
        NotImplementedError: If the problem does not define ``forward``.

    Source:
        Textbook (Hansen, Discrete Inverse Problems, 2010): the classical baseline of linear problems.

    Example:
        >>> from icl25_pi_dion import data, problems
        >>> problem = problems.ReactionDiffusionSource(n_sensors=31)
        >>> s = data.sample_prior(problem, 2)
        >>> bool(np.allclose(Tikhonov(problem, alpha=0.0).predict(data.simulate(problem, s)), s, atol=1e-8))
        True
    """

    def __init__(
        self,
        problem: InverseProblem,
        alpha: float | None = None,
        method: Literal["tikhonov", "tsvd"] = "tikhonov",
        prior: Literal["h1_0", "h1", "l2"] = "h1_0",
        sigma: float | None = None,
    ) -> None:
        check_choice("method", method, ("tikhonov", "tsvd"))
        check_choice("prior", prior, ("h1_0", "h1", "l2"))
        if alpha is not None and not (math.isfinite(alpha) and alpha >= 0):
            raise ValueError(f"alpha must be >= 0, found {alpha}")
        if sigma is not None:
            check_positive(sigma=sigma)
        self.problem, self.alpha, self.method, self.prior, self.sigma = problem, alpha, method, prior, sigma
        self.matrix_ = linear_map(problem)
        factor = _prior_factor(problem, prior)
        left, values, right = np.linalg.svd(self.matrix_ @ factor, full_matrices=False)
        kept = values > values[0] * len(values) * np.finfo(float).eps
        self.singular_values_ = values[kept]
        self._left, self._right = left[:, kept], factor @ right[kept].T

    def predict(self, M: Any) -> Float[np.ndarray, "n *shape"]:
        """Invert measurements.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns on the target grid.

        Raises:
            ValueError: If the measurements do not fit.
        """
        return self.solve(M).s

    def solve(self, M: Any) -> TikhonovResult:
        """Invert measurements, and say how.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns, and the regularisation and misfit of each.

        Raises:
            ValueError: If the measurements do not fit.
        """
        values = check_measurements(M, self.problem).values
        along = values @ self._left
        outside = np.maximum(np.sum(values**2, axis=1) - np.sum(along**2, axis=1), 0)
        alpha = self._alphas(along, outside, values.shape[1])
        filters = self._filters(alpha)
        s = (along * filters / self.singular_values_) @ self._right.T
        misfit = np.sqrt((np.sum(((1 - filters) * along) ** 2, axis=1) + outside) / values.shape[1])
        return TikhonovResult(s.reshape(len(s), *self.problem.target_grid), alpha, misfit)

    def _filters(self, alpha: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        squares, alpha = self.singular_values_**2, alpha[:, None]
        if self.method == "tsvd":
            return (squares >= alpha).astype(float)
        return squares / (squares + alpha)

    def _alphas(
        self, along: Float[np.ndarray, "n k"], outside: Float[np.ndarray, " n"], m: int
    ) -> Float[np.ndarray, " n"]:
        if self.alpha is not None:
            return np.full(len(along), float(self.alpha))
        if self.sigma is None:
            return self._cross_validated(along, outside, m)
        return self._discrepant(along, outside, m * self.sigma**2)

    def _cross_validated(
        self, along: Float[np.ndarray, "n k"], outside: Float[np.ndarray, " n"], m: int
    ) -> Float[np.ndarray, " n"]:
        """Minimise the robust cross-validation score over a grid, or over all truncations.

        The plain score norm(F s - m)^2 / (m - trace)^2 now and then takes noise for signal, where few dimensions are
        left; Lukas (2006) multiplies it by r + (1 - r) mean squared filter.
        """
        largest = self.singular_values_[0] ** 2
        grid = largest * np.logspace(math.log10(SMALLEST), 2, GRID)
        if self.method == "tsvd":
            # With all m values the fit is perfect and says nothing of the error.
            grid = self.singular_values_[: m - 1] ** 2
        filters = self._filters(grid)
        residual = outside[:, None] + along**2 @ ((1 - filters) ** 2).T
        robust = ROBUST + (1 - ROBUST) * np.sum(filters**2, axis=1) / m
        return grid[np.argmin(robust * residual / (m - filters.sum(axis=1)) ** 2, axis=1)]

    def _discrepant(
        self, along: Float[np.ndarray, "n k"], outside: Float[np.ndarray, " n"], noise: float
    ) -> Float[np.ndarray, " n"]:
        """Find the alpha whose squared misfit is that of the noise: 0 if all exceed it, infinite if none does."""
        if self.method == "tsvd":
            # What the truncation after k = 0, 1, ... values leaves of the squared misfit.
            left = (np.sum(along**2, axis=1) + outside)[:, None] - np.cumsum(np.pad(along**2, ((0, 0), (1, 0))), axis=1)
            k = np.where((left <= noise).any(axis=1), np.argmax(left <= noise, axis=1), along.shape[1])
            return np.concatenate([[np.inf], self.singular_values_**2])[k]
        squares = self.singular_values_**2
        low = np.full(len(along), math.log(squares[0] * SMALLEST))
        high = np.full(len(along), math.log(squares[0]) + 30)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            fits = self._square(along, outside, np.exp(middle)) <= noise
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        found = np.exp(low)
        found = np.where(self._square(along, outside, np.zeros(len(along))) > noise, 0.0, found)
        return np.where(np.sum(along**2, axis=1) + outside <= noise, np.inf, found)

    def _square(
        self, along: Float[np.ndarray, "n k"], outside: Float[np.ndarray, " n"], alpha: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, " n"]:
        return np.sum(((1 - self._filters(alpha)) * along) ** 2, axis=1) + outside


def linear_map(problem: InverseProblem) -> Float[np.ndarray, "m n_s"]:
    """Return the matrix of a forward map that is linear.

    Args:
        problem: The inverse problem.

    Returns:
        The matrix from the unknown on the target grid to the measurement, in double precision.

    Raises:
        ValueError: If F(a + b) is not F(a) + F(b) for random a and b, which finds F(0) other than 0 too.
    """
    n_s = len(problem.target_points())
    with jax.enable_x64(True):
        forward = jax.jit(problem.forward)
        a, b = np.random.default_rng(0).standard_normal((2, n_s))
        of_a, of_b, of_sum = (np.asarray(forward(s)) for s in (a, b, a + b))
        size = np.abs(of_a).max() + np.abs(of_b).max()
        deviation = np.abs(of_sum - of_a - of_b).max()
        # Written so that NaN, outside of where the map is defined, is refused too.
        if not (deviation <= LINEAR * size and size > 0):
            raise ValueError(
                f"the forward map of {type(problem).__name__} is not linear, or zero: F(a + b) differs from F(a) + "
                f"F(b) by {deviation:.3g} of {size:.3g}; use GaussNewton"
            )
        return np.asarray(jax.jit(jax.jacfwd(problem.forward))(np.zeros(n_s)))


def _prior_factor(problem: InverseProblem, prior: str) -> Float[np.ndarray, "n_s k"]:
    """Return the matrix from coordinates whose Euclidean norm is the norm of the prior to functions on the grid."""
    norm = GridNorm(problem)
    if prior == "l2":
        return np.diag(1 / np.sqrt(norm.weights))
    inside = norm.inside if prior == "h1_0" else np.ones(len(norm.weights), bool)
    square = norm.stiffness + (np.diag(norm.weights) if prior == "h1" else 0)
    upper = linalg.cholesky(square[np.ix_(inside, inside)])
    factor = np.zeros((len(inside), int(inside.sum())))
    factor[inside] = linalg.solve_triangular(upper, np.eye(len(upper)))
    return factor
