"""From values to the rows that are kept."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Integer

__all__ = ["prune_mask", "ranking"]


def ranking(values: Float[np.ndarray, " n"]) -> Integer[np.ndarray, " n"]:
    """Row numbers from the worst (lowest) value to the best; equal values keep their order.

    Args:
        values: value of each row, shape (n,), higher is better.

    Returns:
        Row numbers, shape (n,).

    Raises:
        ValueError: a value is NaN, which has no place in the order.

    Source: SAVA (arXiv 2406.01130), pruning by descending harm.
    """
    missing = np.isnan(values)
    if missing.any():
        raise ValueError(f"{int(missing.sum())} values are NaN, first at row {int(missing.argmax())}")
    return np.argsort(values, kind="stable")


def prune_mask(
    values: Float[np.ndarray, " n"],
    *,
    fraction: float | None = None,
    threshold: float | None = None,
    n: int | None = None,
    labels: np.ndarray | None = None,
) -> Bool[np.ndarray, " n"]:
    """Which rows to prune. Exactly one of ``fraction``, ``threshold`` and ``n`` is given.

    Args:
        values: value of each row, shape (n,), higher is better.
        fraction: share of the rows to prune, in [0, 1): the worst ``round(fraction * len(values))``.
        threshold: prune the rows whose value is below it.
        n: number of rows to keep, 1 <= n <= len(values): a budget.
        labels: class of each row, shape (n,): apply ``fraction`` or the share that ``n`` implies to each class by
            itself, so that class proportions stay; the number of rows kept is exact.

    Returns:
        Mask, shape (n,), True for rows to prune.

    Raises:
        ValueError: none or several of the three are given, one is out of range, or ``labels`` has another length or
            comes with ``threshold``.

    Example:
        >>> prune_mask(np.array([0.3, -1.0, 0.1, 0.2]), fraction=0.25)
        array([False,  True, False, False])

    Source: SAVA (arXiv 2406.01130), pruning of the rows of highest harm.
    """
    if sum(option is not None for option in (fraction, threshold, n)) != 1:
        raise ValueError("give exactly one of fraction, threshold and n")
    total = len(values)
    if threshold is not None:
        if labels is not None:
            raise ValueError("a threshold is the same for all classes: give fraction or n with per_class")
        return values < threshold
    if n is not None:
        if not 1 <= n <= total:
            raise ValueError(f"n must lie in 1..{total}, got {n}")
        dropped = total - n
    else:
        if fraction is None or not 0 <= fraction < 1:
            raise ValueError(f"fraction must lie in [0, 1), got {fraction}")
        dropped = round(fraction * total)
    mask = np.zeros(total, bool)
    if labels is None:
        mask[ranking(values)[:dropped]] = True
        return mask
    if len(labels) != total:
        raise ValueError(f"labels has {len(labels)} entries for {total} values")
    _, ids, counts = np.unique(labels, return_inverse=True, return_counts=True)
    for c, quota in enumerate(_apportion(dropped, counts)):
        rows = np.flatnonzero(ids == c)
        mask[rows[ranking(values[rows])[:quota]]] = True
    return mask


def _apportion(total: int, counts: np.ndarray) -> np.ndarray:
    """Split ``total`` in proportion to ``counts`` by largest remainders."""
    shares = total * counts / counts.sum()
    quota = np.floor(shares).astype(int)
    rest = total - quota.sum()
    quota[np.argsort(quota - shares, kind="stable")[:rest]] += 1
    return quota
