"""How far to trust an inversion: an error estimate from known pairs, and the distance from the training data."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["ErrorBound", "Novelty", "relative_errors"]

KEPT_VARIANCE = 0.999
MOST_COMPONENTS = 50
QUANTILE = 0.9


class ErrorBound(NamedTuple):
    """A bound of the error by the loss, error <= constant * max(indicator, floor), that a share of samples keeps.

    Stability estimates bound the error of s by misfit and residual; the constant is taken from pairs of which the error
    is known. Below the median of the indicators of those pairs the bound falls no further: a network fits the
    measurements of its training better than new ones and is not as much closer to their unknowns.

    Attributes:
        constant: C; infinite where there were too few pairs to say.
        floor: The least indicator that is believed.

    Source:
        Cho and Son (ICLR 2025), stability estimates on compact sets; the calibration is this package's.
    """

    constant: float
    floor: float

    @classmethod
    def fit(
        cls, error: Float[np.ndarray, " n"], indicator: Float[np.ndarray, " n"], quantile: float = QUANTILE
    ) -> ErrorBound:
        """Find the bound that a share of new samples like these keeps.

        The rank ceil(quantile (n + 1)) makes the share hold for finite n.

        Args:
            error: Errors of the unknown.
            indicator: Square root of the loss of each, over the size of its unknown.
            quantile: The share.

        Returns:
            The bound.
        """
        floor = max(float(np.median(indicator)), 1e-12)
        rank = math.ceil(quantile * (len(error) + 1))
        if rank > len(error):
            return cls(math.inf, floor)
        return cls(float(np.sort(error / np.maximum(indicator, floor))[rank - 1]), floor)

    def __call__(self, indicator: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return the bound of each error.

        Args:
            indicator: As for ``fit``.

        Returns:
            The bounds.
        """
        return self.constant * np.maximum(indicator, self.floor)


def relative_errors(s_hat: Float[np.ndarray, "n *k"], s: Float[np.ndarray, "n *k"]) -> Float[np.ndarray, " n"]:
    """Relative L2 error of each sample, norm(s_hat - s) / norm(s).

    Args:
        s_hat: Predicted unknowns.
        s: True ones.

    Returns:
        The errors.
    """
    axes = tuple(range(1, s.ndim))
    size = np.sqrt(np.sum(np.square(s), axis=axes))
    return np.sqrt(np.sum(np.square(s_hat - s), axis=axes)) / np.maximum(size, np.finfo(float).tiny)


class Novelty(NamedTuple):
    """Principal components of the training measurements, against which new ones are held.

    Attributes:
        mean: Mean of the features.
        components: Directions with 99.9 % of the variance, one a row.
        deviations: Standard deviation along each.
        rest: Root mean square of what is outside their span.
    """

    mean: Float[np.ndarray, " m"]
    components: Float[np.ndarray, "c m"]
    deviations: Float[np.ndarray, " c"]
    rest: float

    @classmethod
    def fit(cls, features: Float[np.ndarray, "n m"], noise: float = 0.0) -> Novelty:
        """Learn what measurements look like.

        Args:
            features: Measurements, or what stands for them, flattened.
            noise: Standard deviation that new measurements may have on top.

        Returns:
            The description.
        """
        mean = features.mean(axis=0)
        _, sizes, directions = np.linalg.svd(features - mean, full_matrices=False)
        variance = sizes**2 / max(len(features) - 1, 1)
        total = variance.sum()
        if not total > 0:  # one sample: its own size is the scale
            return cls(mean, np.zeros((0, len(mean))), np.zeros(0), float(np.sqrt(np.mean(mean**2))) or 1.0)
        n_kept = min(int(np.searchsorted(np.cumsum(variance), KEPT_VARIANCE * total)) + 1, MOST_COMPONENTS)
        m = features.shape[1]
        rest = math.sqrt(max(variance[n_kept:].sum(), (1 - KEPT_VARIANCE) * total) / m)
        return cls(mean, directions[:n_kept], np.sqrt(variance[:n_kept]), max(rest, noise))

    def score(self, features: Float[np.ndarray, "n m"]) -> Float[np.ndarray, " n"]:
        """Root mean square distance in standard deviations, the larger of inside and outside the span.

        Args:
            features: As for ``fit``.

        Returns:
            About 1 for features like those of the training.
        """
        centred = features - self.mean
        along = centred @ self.components.T
        outside = np.sqrt(np.mean(np.square(centred - along @ self.components), axis=1)) / self.rest
        if not len(self.deviations):
            return outside
        return np.maximum(np.sqrt(np.mean(np.square(along / self.deviations), axis=1)), outside)
