"""Returns of episodes, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

__all__ = ["EvalResult", "bootstrap_interval", "interquartile_mean", "interval_text"]


def interquartile_mean(samples: Float[np.ndarray, " n"]) -> float:
    """Compute the mean of the middle half of samples, which single failures do not move.

    Args:
        samples: The samples, at least one.

    Returns:
        The mean; a sample at the edge of the middle half counts by the part of it that lies within.

    Source:
        Agarwal et al., Deep reinforcement learning at the edge of the statistical precipice, NeurIPS 2021.
    """
    ordered = np.sort(np.asarray(samples, float))
    n = len(ordered)
    edges = np.arange(n + 1)
    weight = np.clip(np.minimum(edges[1:], 0.75 * n) - np.maximum(edges[:-1], 0.25 * n), 0, None)
    return float(np.sum(weight * ordered) / np.sum(weight))


def bootstrap_interval(
    samples: Float[np.ndarray, " n"],
    statistic: Callable[[Float[np.ndarray, " n"]], float] = np.mean,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Compute the percentile bootstrap interval of a statistic.

    Args:
        samples: The samples, at least one.
        statistic: The statistic.
        level: Coverage, in (0, 1).
        n_resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        Lower and upper end; NaN for one sample, which tells nothing of its spread.
    """
    samples = np.asarray(samples, float)
    if len(samples) == 1:
        return float("nan"), float("nan")
    draws = np.random.default_rng(seed).choice(samples, (n_resamples, len(samples)))
    found = np.apply_along_axis(statistic, 1, draws)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def interval_text(low: float, high: float) -> str:
    """Put an interval in words.

    Args:
        low: Its lower end.
        high: Its upper end.

    Returns:
        Both ends, or a dash where one sample gives no interval.
    """
    return "-" if math.isnan(low) else f"{low:.1f} to {high:.1f}"


@dataclass(frozen=True)
class EvalResult:
    """Episodes of a policy.

    Attributes:
        returns: Sum of the rewards of each episode, (n,); of several runs at once (runs, n).
        lengths: Steps of each episode, of the same shape.
    """

    returns: Float[np.ndarray, "*runs n"]
    lengths: Int[np.ndarray, "*runs n"]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns (with n - 1); NaN for one episode."""
        return float(np.std(self.returns, ddof=1)) if len(self.returns) > 1 else float("nan")

    @property
    def iqm(self) -> float:
        """Mean of the middle half of the returns."""
        return interquartile_mean(self.returns)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of the mean return."""
        return bootstrap_interval(self.returns)

    def __str__(self) -> str:
        low, high = self.interval
        n = len(self.returns)
        if n == 1:
            return f"return {self.mean:.1f} of 1 episode"
        return f"mean return {self.mean:.1f} [{low:.1f}, {high:.1f}] over {n} episodes"
