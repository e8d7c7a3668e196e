"""Where the adversarial game ends: the optimal discriminator, and the mixture that each method then imitates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from icl25_pn_gail.label_checks import check_confidence

__all__ = ["expected_mixture", "optimal_discriminator", "optimal_generator", "water_level"]

TOLERANCE = 1e-6  # of a sum of probabilities


def optimal_discriminator(p_gen: Any, p: Any, r: Any) -> Float[np.ndarray, " n"]:
    """Best response of PN-GAIL's discriminator, the probability that a row comes from the agent.

    Args:
        p_gen: Density of the agent at each place, shape (n,), >= 0.
        p: Density of the demonstrations, shape (n,), >= 0.
        r: Confidence, shape (n,), from 0 to 1.

    Returns:
        (p_gen + (1 - r) p) / (p_gen + p); NaN where both densities are 0.

    Raises:
        ValueError: If a density is negative or not finite, a confidence outside [0, 1], or lengths differ.

    Source: PN-GAIL (ICLR 2025), theorem on the optimal discriminator.
    """
    r = check_confidence(r, "r")
    p, p_gen = _check_density(p, "p", len(r)), _check_density(p_gen, "p_gen", len(r))
    total = p_gen + p
    return np.divide(p_gen + (1 - r) * p, total, out=np.full_like(total, np.nan), where=total > 0)


def water_level(p: Any, r: Any) -> float:
    """The number k for which max(0, k r p - (1 - r) p) sums to one, exactly.

    The sum is the largest over sets S of rows of k A_S - B_S, with A_S the sum of r p and B_S that of (1 - r) p over S.
    So k is the smallest (1 + B_S) / A_S, and the sets to try are those of the rows with the highest r.

    Args:
        p: Probability of each row under the demonstrations, shape (n,), sums to 1.
        r: Confidence, shape (n,), from 0 to 1.

    Returns:
        k >= 1. Rows whose odds r / (1 - r) are below 1 / k are not imitated; on the others the discriminator is
        k / (1 + k).

    Raises:
        ValueError: If p is no distribution, a confidence lies outside [0, 1], lengths differ, or no row with
            probability has a confidence above 0.

    Source: Solution of the game of PN-GAIL (ICLR 2025) for a generator without constraints.
    """
    p, r = _check_game(p, r)
    order = np.argsort(-r, kind="stable")
    good, bad = np.cumsum((r * p)[order]), np.cumsum(((1 - r) * p)[order])
    reached = good > 0
    return float(np.min((1 + bad[reached]) / good[reached]))


def optimal_generator(p: Any, r: Any) -> Float[np.ndarray, " n"]:
    """Distribution of the agent at the end of PN-GAIL's game, if it can take any.

    Args:
        p: Probability of each row under the demonstrations, shape (n,), sums to 1.
        r: Confidence, shape (n,), from 0 to 1.

    Returns:
        max(0, k r p - (1 - r) p), with k of ``water_level``; it sums to 1. GAIL ends at p and 2IWIL at r p / sum(r p).

    Raises:
        ValueError: As ``water_level``.

    Source: Solution of the game of PN-GAIL (ICLR 2025) for a generator without constraints.
    """
    k = water_level(p, r)
    p, r = _check_game(p, r)
    return np.maximum(0, k * r * p - (1 - r) * p)


def expected_mixture(r: Any, p: Any = None, groups: Any = None) -> pd.DataFrame:
    """What each method would imitate, before any training: shares of the demonstrated behaviours.

    Each row is taken as a place of its own, which the discriminator can tell from others.

    Args:
        r: Confidence of each row, shape (n,), from 0 to 1, all known.
        p: Weight of each row, shape (n,), >= 0, of any sum. Default: equal weights.
        groups: Behaviour that each row shows, n names or numbers. Default: the confidence itself, one group for each
            value.

    Returns:
        One row for each group, indexed by ``group`` in ascending order: ``demonstrations``, its share of the
        demonstrations; ``confidence``, its mean confidence; ``gail``, ``iwil`` and ``pn_gail``, its share under each
        method. All columns but ``confidence`` sum to 1.

    Raises:
        ValueError: If weights or confidences are out of range or unknown, lengths differ, all confidences are 0, or a
            group has no name.

    Source: PN-GAIL (ICLR 2025) and 2IWIL (Wu et al., 2019), optimal generators.

    Example:
        >>> table = expected_mixture([1.0] * 5 + [0.1] * 50)
        >>> table[["gail", "iwil", "pn_gail"]].round(3).loc[1.0].tolist()
        [0.091, 0.5, 0.909]
    """
    r = check_confidence(r, "r")
    weight = np.ones(len(r)) if p is None else _check_density(p, "p", len(r))
    if not weight.sum() > 0:
        raise ValueError("p must hold a weight above 0, found none")
    p = weight / weight.sum()
    groups = pd.Series(r if groups is None else np.asarray(groups), name="group")
    if len(groups) != len(r):
        raise ValueError(f"groups must have {len(r)} entries, one for each of r, found {len(groups)}")
    if groups.isna().any():
        raise ValueError(f"groups must name every row, found none in row {int(np.flatnonzero(groups.isna())[0])}")
    pn_gail = optimal_generator(p, r)
    shares = {"demonstrations": p, "confidence": r * p, "gail": p, "iwil": r * p / np.sum(r * p), "pn_gail": pn_gail}
    table = pd.DataFrame(shares).groupby(groups).sum()
    rows = pd.Series(r).groupby(groups)
    # A group of no weight has no weighted mean.
    seen = table["demonstrations"] > 0
    table["confidence"] = (table["confidence"] / table["demonstrations"]).where(seen, rows.mean())
    return table


def _check_game(p: Any, r: Any) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Distribution and confidence, of which some of the first is good."""
    r = check_confidence(r, "r")
    p = _check_density(p, "p", len(r))
    if abs(p.sum() - 1) > TOLERANCE:
        raise ValueError(f"p must sum to 1, found {p.sum():.6g}")
    if not np.any(r * p > 0):
        raise ValueError("every confidence is 0, so that there is nothing to imitate")
    return p, r


def _check_density(values: Any, name: str, n: int) -> Float[np.ndarray, " n"]:
    """Non-negative numbers of the right count."""
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one value for each of r, found {found.shape}")
    wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(wrong):
        raise ValueError(
            f"{name} must be finite and >= 0, found {len(wrong)} other values, first {found[wrong[0]]:g} in row "
            f"{wrong[0]}"
        )
    return found
