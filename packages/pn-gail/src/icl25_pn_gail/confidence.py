"""Confidences: from returns, sharpened, with noise, and compared with the truth."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from sklearn.metrics import roc_auc_score

from icl25_pn_gail.label_checks import check_confidence

__all__ = ["CalibrationReport", "add_noise", "calibration_report", "confidence_from_returns", "sharpen"]


def confidence_from_returns(returns: Any, mode: str = "exp") -> Float[np.ndarray, " n"]:
    """Turn returns, ratings or other scores, of which more is better, into confidences.

    Args:
        returns: Scores, shape (n,), of any scale; NaN where there is none.
        mode: ``"exp"``: exp((R - max) / (max - min)), from 0.37 to 1, so that ``sharpen`` is advised for PN-GAIL.
            ``"minmax"``: (R - min) / (max - min). ``"rank"``: the rank, from 0 for the lowest to 1; equal scores share
            the mean of their ranks.

    Returns:
        Confidences from 0 to 1, NaN where the score is. Equal scores alone have confidence 1, with a warning.

    Raises:
        ValueError: If scores are infinite, none is known, or there is no such mode.

    Source: PN-GAIL (ICLR 2025), scores of the authors' Pendulum demonstrations, which ``"exp"`` comes close to.

    Example:
        >>> confidence_from_returns([-100, -600, -1600]).round(6).tolist()
        [1.0, 0.716531, 0.367879]
    """
    if mode not in ("exp", "minmax", "rank"):
        raise ValueError(f"mode must be 'exp', 'minmax' or 'rank', found {mode!r}")
    scores = np.asarray(returns, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(f"returns must have shape (n,), found {scores.shape}")
    infinite = np.flatnonzero(np.isinf(scores))
    if len(infinite):
        raise ValueError(f"returns must be finite, found {len(infinite)} infinite, first in row {infinite[0]}")
    known = scores[~np.isnan(scores)]
    if len(known) == 0:
        raise ValueError(f"returns must hold at least one score, found none in {len(scores)} rows")
    lowest, highest = known.min(), known.max()
    if lowest == highest:
        warnings.warn(f"all returns are {highest:g}: every confidence is 1", stacklevel=2)
        return np.where(np.isnan(scores), np.nan, 1.0)
    if mode == "rank":
        return (pd.Series(scores).rank().to_numpy(np.float64) - 1) / (len(known) - 1)
    # Halved, because the range of finite numbers may be infinite.
    span = highest / 2 - lowest / 2
    if mode == "minmax":
        return (scores / 2 - lowest / 2) / span
    return np.exp((scores / 2 - highest / 2) / span)


def sharpen(r: Any, power: float | None = None, threshold: float | None = None) -> Float[np.ndarray, " n"]:
    """Move confidences away from one half, or to 0 and 1.

    PN-GAIL imitates bad rows whose confidence is not low: theirs should be 0.2 or less.

    Args:
        r: Confidences, shape (n,), from 0 to 1; NaN where unknown.
        power: Exponent k > 0 of the odds: r^k / (r^k + (1 - r)^k). Above 1 it sharpens, below 1 it flattens.
        threshold: From 0 to 1: confidences of at least this become 1, others 0. Give this or ``power``.

    Returns:
        The new confidences, NaN where they were.

    Raises:
        ValueError: If not exactly one of both is given, or one or a confidence is out of range.

    Source: Remedy for the limit of PN-GAIL (ICLR 2025) that unvisited places have reward 0 and bad rows up to
        -log(1 - r).

    Example:
        >>> sharpen([0.2, 0.5, 0.8], power=2).round(4).tolist()
        [0.0588, 0.5, 0.9412]
    """
    if (power is None) == (threshold is None):
        raise ValueError(f"give either power or threshold, found power={power} and threshold={threshold}")
    r = check_confidence(r, "r", unlabelled=True)
    if threshold is not None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], found {threshold}")
        return np.where(np.isnan(r), np.nan, (r >= threshold).astype(np.float64))
    if power is None or not 0 < power < np.inf:
        raise ValueError(f"power must be above 0, found {power}")
    larger = np.maximum(r, 1 - r)
    odds = ((1 - larger) / larger) ** power  # of the smaller part, so that no power underflows in both
    return np.where(r >= 0.5, 1, odds) / (1 + odds)


def add_noise(r: Any, sigma: float, seed: int | np.random.Generator) -> Float[np.ndarray, " n"]:
    """Add Gaussian noise to confidences and clip them to [0, 1], to see how a method bears wrong ratings.

    Args:
        r: Confidences, shape (n,), from 0 to 1; NaN where unknown.
        sigma: Standard deviation of the noise, >= 0.
        seed: Seed or generator.

    Returns:
        clip(r + N(0, sigma^2), 0, 1), NaN where r is.

    Raises:
        ValueError: If sigma is negative or a confidence out of range.

    Source: PN-GAIL (ICLR 2025), robustness to noise in the confidence.
    """
    r = check_confidence(r, "r", unlabelled=True)
    if not 0 <= sigma < np.inf:
        raise ValueError(f"sigma must be >= 0, found {sigma}")
    return np.clip(r + sigma * np.random.default_rng(seed).standard_normal(len(r)), 0, 1)


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """How close predicted confidences are to true ones."""

    n_rows: int
    """Rows with a true confidence."""
    mean_absolute_error: float
    """Mean of |predicted - true|."""
    bias: float
    """Mean of predicted - true."""
    rmse: float
    """Root of the mean of (predicted - true)^2."""
    spearman: float | None
    """Correlation of the ranks; None where either side has one value alone."""
    auc: float | None
    """Probability that a row of true confidence >= 0.5 is ranked above one below; None if there is but one kind."""
    reliability: pd.DataFrame
    """Bins of predicted confidence: bounds ``low`` and ``high``, number of rows ``n``, mean ``predicted`` and mean
    ``true`` confidence, both NaN in an empty bin."""


def calibration_report(r_true: Any, r_hat: Any, bins: int = 10) -> CalibrationReport:
    """Compare predicted with true confidences.

    Args:
        r_true: True confidences, shape (n,), from 0 to 1; rows where they are NaN do not count.
        r_hat: Predictions, shape (n,), from 0 to 1.
        bins: Number of bins of equal width, >= 1.

    Returns:
        Errors, rank statistics and bins.

    Raises:
        ValueError: If a confidence is out of range, a prediction or all of the truth unknown, or lengths differ.

    Source: Errors of the classifiers as compared in PN-GAIL (ICLR 2025); reliability diagram of DeGroot and Fienberg
        (1983).
    """
    if bins < 1:
        raise ValueError(f"bins must be >= 1, found {bins}")
    r_hat = check_confidence(r_hat, "r_hat")
    r_true = check_confidence(r_true, "r_true", len(r_hat), unlabelled=True)
    known = ~np.isnan(r_true)
    if not known.any():
        raise ValueError(f"r_true must hold at least one true confidence, found none in {len(r_true)} rows")
    true, predicted = r_true[known], r_hat[known]
    error = predicted - true
    good = true >= 0.5
    return CalibrationReport(
        n_rows=len(true),
        mean_absolute_error=float(np.mean(np.abs(error))),
        bias=float(np.mean(error)),
        rmse=float(np.sqrt(np.mean(error**2))),
        spearman=_spearman(true, predicted),
        auc=float(roc_auc_score(good, predicted)) if good.any() and not good.all() else None,
        reliability=_reliability(true, predicted, bins),
    )


def _spearman(true: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"]) -> float | None:
    """Correlation of the ranks, ties at the mean of theirs."""
    if np.ptp(true) == 0 or np.ptp(predicted) == 0:
        return None
    return float(np.corrcoef(pd.Series(true).rank(), pd.Series(predicted).rank())[0, 1])


def _reliability(true: Float[np.ndarray, " n"], predicted: Float[np.ndarray, " n"], bins: int) -> pd.DataFrame:
    """Rows and means in each bin of the prediction; a value on an inner bound is of the upper bin."""
    edges = np.linspace(0, 1, bins + 1)
    inside = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, bins - 1)
    n = np.bincount(inside, minlength=bins)
    sums = {name: np.bincount(inside, values, bins) for name, values in (("predicted", predicted), ("true", true))}
    means = {name: np.divide(total, n, out=np.full(bins, np.nan), where=n > 0) for name, total in sums.items()}
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "n": n, **means})
