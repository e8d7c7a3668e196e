"""How good inversions are where the truth is known: errors, their interior part, and what the estimate covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Bool, Float

from icl25_pi_dion.calibration import relative_errors
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.results import InversionResult

__all__ = ["Scores", "Spread", "interior", "score_inversions"]

INTERIOR = 0.8


@dataclass(frozen=True)
class Spread:
    """Mean, median and 90 % quantile over samples."""

    mean: float
    median: float
    p90: float

    @classmethod
    def of(cls, values: Float[np.ndarray, " n"]) -> Self:
        """Summarise.

        Args:
            values: One for each sample.

        Returns:
            The summary.
        """
        return cls(float(np.mean(values)), float(np.median(values)), float(np.quantile(values, 0.9)))


@dataclass(frozen=True)
class Scores:
    """Scores of inversions.

    Attributes:
        error_s: Relative L2 error of s for each sample.
        error_s_interior: The same on the central 80 % of every coordinate.
        error_u: Relative L2 error of u, where u was given.
        residual: Root mean square residual of the equation.
        misfit: Root mean square misfit to the readings.
        coverage: Share of samples whose error is at most its estimate; None without estimates.
    """

    error_s: Float[np.ndarray, " n"]
    error_s_interior: Float[np.ndarray, " n"] | None
    error_u: Float[np.ndarray, " n"] | None
    residual: Float[np.ndarray, " n"]
    misfit: Float[np.ndarray, " n"]
    coverage: float | None

    def summary(self) -> dict[str, Spread]:
        """Return mean, median and 90 % quantile of each score that there is."""
        names = ("error_s", "error_s_interior", "error_u", "residual", "misfit")
        return {name: Spread.of(value) for name in names if (value := getattr(self, name)) is not None}


def interior(
    points: Float[np.ndarray, "n d"], domain: Sequence[tuple[float, float]], share: float = INTERIOR
) -> Bool[np.ndarray, " n"]:
    """Say which points lie in the central part of every coordinate.

    Args:
        points: The points, shape (n, d).
        domain: Ends of each coordinate.
        share: Share of each coordinate that counts.

    Returns:
        Whether each point does.
    """
    low, high = np.array(domain, float).T
    margin = (1 - share) / 2 * (high - low)
    return np.all((points >= low + margin - 1e-9) & (points <= high - margin + 1e-9), axis=1)


def score_inversions(
    result: InversionResult,
    problem: InverseProblem,
    s: Float[np.ndarray, "n *shape"],
    u: Float[np.ndarray, "n n_u"] | None = None,
) -> Scores:
    """Hold inversions against the truth.

    Args:
        result: The inversions, on the target grid of the problem.
        problem: The inverse problem.
        s: True unknowns, shape (n, *target_shape), or flattened.
        u: True solutions at ``result.points_u``, shape (n, n_u).

    Returns:
        The scores.

    Raises:
        ValueError: If shapes do not fit.
    """
    n = len(result)
    s_hat, s = result.s.reshape(n, -1), s.reshape(len(s), -1)
    if s.shape != s_hat.shape:
        raise ValueError(f"s must have {n} rows of {s_hat.shape[1]} values, found shape {s.shape}")
    error = relative_errors(s_hat, s)
    inside = interior(result.points_s, [problem.domain[axis] for axis in problem.target_axes])
    error_u = None
    if u is not None:
        if result.u is None or u.shape != result.u.shape:
            expected = "none" if result.u is None else str(result.u.shape)
            raise ValueError(f"u must have shape {expected}, found {u.shape}")
        error_u = relative_errors(result.u, u)
    known = np.isfinite(result.error_estimate)
    return Scores(
        error,
        relative_errors(s_hat[:, inside], s[:, inside]) if inside.any() else None,
        error_u,
        result.residual_rms,
        result.misfit_rms,
        float(np.mean(error[known] <= result.error_estimate[known])) if known.any() else None,
    )
