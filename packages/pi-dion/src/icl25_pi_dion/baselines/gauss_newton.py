"""Regularised least squares for one measurement at a time, with derivatives of the solver."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from icl25_pi_dion.baselines.base import Baseline, check_counts
from icl25_pi_dion.baselines.norms import GridNorm
from icl25_pi_dion.checks import check_measurements
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.problems.arguments import check_positive

__all__ = ["GaussNewton", "GaussNewtonResult"]

NOISELESS = 1e-4  # sigma over the size of a measurement, where none is given
COOLING = 0.5  # factor of lam after each step, where it is not given
HALVINGS = 10
CG_ITERATIONS, CG_TOLERANCE = 200, 1e-2
POWER_ITERATIONS = 5


class GaussNewtonResult(NamedTuple):
    """The inversion of one measurement.

    Attributes:
        s: The unknown on the target grid.
        n_iterations: Steps that were taken.
        misfit: Root mean square misfit over sigma.
        lam: The regularisation at the end.
        converged: Whether no step promises to decrease the objective any more; where lam was not given, whether the
            misfit reached sigma.
        history: Misfit before the first step and after each.
    """

    s: Float[np.ndarray, "*shape"]
    n_iterations: int
    misfit: float
    lam: float
    converged: bool
    history: tuple[float, ...]


class GaussNewton(Baseline):
    """Minimise norm(F(s) - m)^2 / (sigma^2 m) + lam * integral of abs(grad s)^2 by Gauss-Newton steps.

    Positive unknowns are written as s = exp(theta), and the gradient is that of theta. A step solves the normal
    equations by conjugate gradients, in which the forward map and its adjoint are applied and no matrix is formed, with
    the regularisation as preconditioner. Steps are halved until the objective decreases. All is in double precision.

    Args:
        problem: An inverse problem with a forward map.
        lam: The regularisation, > 0. None: it starts where the regularisation dominates and falls by the factor 0.5 in
            every step, until the misfit is no larger than the noise (discrepancy principle).
        sigma: Standard deviation of the noise of a reading, in the unit of the measurements. Default: 0.0001 of the
            root mean square of the measurement.
        n_iterations: Most steps.
        start: The unknown at the start, shape (*target_shape). Default: what ``problem.target_scale`` says.
        tolerance: Relative decrease of the objective, as the next step promises it, below which the steps end, where
            ``lam`` is given.
        prior: ``"h1_0"``: s is 0 on the edge of the grid, where u = 0 often hides it; ``"h1"``: it is free there.
            Default: ``"h1"`` for positive unknowns, else ``"h1_0"``.

    Raises:
        ValueError: If an argument is out of range, or the problem refuses ``start``.

    Source:
        Textbook (Bakushinsky 1992; Hanke 1997): the classical baseline, with the adjoint by jax.

    Example:
        >>> from icl25_pi_dion import data, problems
        >>> problem = problems.ReactionDiffusionSource(n_sensors=31)
        >>> s = data.sample_prior(problem, 1)
        >>> GaussNewton(problem).solve(data.simulate(problem, s)[0]).converged
        True
    """

    def __init__(
        self,
        problem: InverseProblem,
        lam: float | None = None,
        sigma: float | None = None,
        n_iterations: int = 60,
        start: Float[np.ndarray, "*shape"] | None = None,
        tolerance: float = 1e-6,
        prior: Literal["h1_0", "h1"] | None = None,
    ) -> None:
        given = {"lam": lam, "sigma": sigma, "tolerance": tolerance}
        check_positive(**{name: value for name, value in given.items() if value is not None})
        check_counts(n_iterations=n_iterations)
        if prior not in (None, "h1_0", "h1") or (prior == "h1_0" and problem.positive):
            raise ValueError(f"prior must be h1, or h1_0 for an unknown that is not positive, found {prior!r}")
        self.problem, self.lam, self.sigma = problem, lam, sigma
        self.n_iterations, self.start, self.tolerance = n_iterations, start, tolerance
        self.prior = prior
        self._norm = GridNorm(problem)
        fixed = prior == "h1_0" or (prior is None and not problem.positive)
        self._free = self._norm.inside if fixed else np.ones(len(self._norm.inside), bool)
        if start is not None:
            self._check_start(np.asarray(start, float))
        self._misfit, self._objective = jax.jit(self._misfit_of), jax.jit(self._objective_of)
        self._step, self._curvature = jax.jit(self._step_of), jax.jit(self._curvature_of)

    def predict(self, M: Any) -> Float[np.ndarray, "n *shape"]:
        """Invert measurements, one after the other.

        Args:
            M: Measurements, shape (n, *sensor_shape).

        Returns:
            The unknowns on the target grid. A warning says where the iteration did not converge.

        Raises:
            ValueError: If the measurements do not fit.
        """
        found = [self._solve(values) for values in check_measurements(M, self.problem).values]
        lost = [i for i, result in enumerate(found) if not result.converged]
        if lost:
            warnings.warn(
                f"{len(lost)} of {len(found)} inversions did not converge, the first of sample {lost[0]}: misfit "
                f"{found[lost[0]].misfit:.3g} sigma after {found[lost[0]].n_iterations} steps",
                stacklevel=2,
            )
        return np.stack([result.s for result in found])

    def solve(self, m: Any) -> GaussNewtonResult:
        """Invert one measurement.

        Args:
            m: The measurement, shape (*sensor_shape).

        Returns:
            The unknown, and how the iteration went. A warning says if it did not converge.

        Raises:
            ValueError: If the measurement does not fit, is zero where ``sigma`` must be guessed from it, or the forward
                map is not defined at the start.
        """
        result = self._solve(check_measurements(np.asarray(m)[None], self.problem).values[0])
        if not result.converged:
            warnings.warn(
                f"Gauss-Newton did not converge: misfit {result.misfit:.3g} sigma after {result.n_iterations} steps",
                stacklevel=2,
            )
        return result

    def _solve(self, m: Float[np.ndarray, " m"]) -> GaussNewtonResult:
        sigma = NOISELESS * float(np.sqrt(np.mean(m**2))) if self.sigma is None else self.sigma
        if not sigma > 0:
            raise ValueError("the measurement is zero: pass sigma, the noise of a reading")
        with jax.enable_x64(True):
            data = (jnp.asarray(m), jnp.asarray(sigma, float))
            theta = jnp.asarray(self._first(m))
            history = [float(self._misfit(theta, *data))]
            if not math.isfinite(history[0]):
                raise ValueError("the forward map has no finite value at the start: pass another start")
            lam = self.lam or float(self._curvature(theta, *data))
            converged = self.lam is None and history[0] <= 1
            while not converged and len(history) <= self.n_iterations:
                before = float(self._objective(theta, lam, *data))
                move, promised = self._step(theta, lam, *data)
                if self.lam is not None and float(promised) <= self.tolerance * before:
                    converged = True
                    break
                found = self._searched(theta, move, lam, before, data)
                if found is None and self.lam is not None:
                    break
                theta = theta if found is None else found
                history.append(float(self._misfit(theta, *data)))
                if self.lam is None:
                    converged = history[-1] <= 1
                    lam *= 1.0 if converged else COOLING
            s = np.asarray(self._unknown(theta)).reshape(self.problem.target_grid)
        return GaussNewtonResult(s, len(history) - 1, history[-1], lam, converged, tuple(history))

    def _searched(
        self,
        theta: Float[Array, " n_s"],
        move: Float[Array, " n_s"],
        lam: float,
        before: float,
        data: tuple[Array, Array],
    ) -> Float[Array, " n_s"] | None:
        """Take the step, halved until the objective decreases; None if it never does."""
        for halvings in range(HALVINGS):
            trial = theta + move / 2**halvings
            if float(self._objective(trial, lam, *data)) < before and self._allowed(trial):
                return trial
        return None

    def _allowed(self, theta: Float[Array, " n_s"]) -> bool:
        s = np.asarray(self._unknown(theta))
        low, high = self.problem.target_range
        low = max(low, 0.0) if self.problem.positive else low
        return bool(np.isfinite(s).all() and s.min() > low and s.max() < high)

    def _first(self, m: Float[np.ndarray, " m"]) -> Float[np.ndarray, " n_s"]:
        if self.start is None:
            s = np.full(math.prod(self._norm.shape), float(self.problem.target_scale(m[None]).offset))
        else:
            s = np.asarray(self.start, float).ravel()
        return np.log(s) if self.problem.positive else np.where(self._free, s, 0.0)

    def _check_start(self, start: Float[np.ndarray, "*shape"]) -> None:
        if start.shape != self._norm.shape or not np.isfinite(start).all():
            raise ValueError(f"start must be finite, of shape {self._norm.shape}, found shape {start.shape}")
        self.problem.check_target(start.reshape(1, -1))
        if self.problem.positive and start.min() <= 0:
            raise ValueError(f"start must be > 0, as the unknown is, found {start.min():g}")

    def _unknown(self, theta: Float[Array, " n_s"]) -> Float[Array, " n_s"]:
        return jnp.exp(theta) if self.problem.positive else theta

    def _rows(self, theta: Float[Array, " n_s"], m: Float[Array, " m"], sigma: Float[Array, ""]) -> Float[Array, " m"]:
        """Misfits whose squares sum to norm(F(s) - m)^2 / (sigma^2 m)."""
        return (self.problem.forward(self._unknown(theta)) - m) / (sigma * math.sqrt(len(m)))

    def _misfit_of(self, theta: Array, m: Array, sigma: Array) -> Float[Array, ""]:
        return jnp.linalg.norm(self._rows(theta, m, sigma))

    def _objective_of(self, theta: Array, lam: float | Array, m: Array, sigma: Array) -> Float[Array, ""]:
        return jnp.sum(self._rows(theta, m, sigma) ** 2) + lam * theta @ self._norm.stiff(theta)

    def _step_of(
        self, theta: Array, lam: float | Array, m: Array, sigma: Array
    ) -> tuple[Float[Array, " n_s"], Float[Array, ""]]:
        """The step, and the decrease of the objective that it promises."""
        rows, push = jax.linearize(lambda t: self._rows(t, m, sigma), theta)
        pull = jax.linear_transpose(push, theta)

        def normal(v: Float[Array, " n_s"]) -> Float[Array, " n_s"]:
            return self._free * (pull(push(v))[0] + lam * self._norm.stiff(v))

        slope = self._free * (pull(rows)[0] + lam * self._norm.stiff(theta))
        move, _ = jax.scipy.sparse.linalg.cg(
            normal, -slope, tol=CG_TOLERANCE, maxiter=CG_ITERATIONS, M=lambda g: self._smoothed(g) / lam
        )
        return move, -slope @ move

    def _smoothed(self, g: Float[Array, " n_s"]) -> Float[Array, " n_s"]:
        return jnp.asarray(self._free) * self._norm.inverse(jnp.asarray(self._free) * g)

    def _curvature_of(self, theta: Array, m: Array, sigma: Array) -> Float[Array, ""]:
        """Largest curvature of the misfit in units of the regularisation, by power iterations."""
        _, push = jax.linearize(lambda t: self._rows(t, m, sigma), theta)
        pull = jax.linear_transpose(push, theta)

        def once(v: Float[Array, " n_s"], _: None) -> tuple[Float[Array, " n_s"], Float[Array, ""]]:
            image = self._smoothed(pull(push(v))[0])
            size = jnp.linalg.norm(image)
            return image / size, size

        first = jnp.ones_like(theta) / math.sqrt(len(theta))
        return jax.lax.scan(once, first, None, POWER_ITERATIONS)[1][-1]
