"""How well values find rows known to be bad, and what pruning by value does to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Num, Shaped
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

__all__ = ["detection_auc", "detection_curve", "most_suspicious", "pruning_curve"]


def _checked(
    values: Shaped[np.ndarray, " n"], mask: Shaped[np.ndarray, " m"]
) -> tuple[np.ndarray, Bool[np.ndarray, " n"]]:
    """Values as float64 and the mask as booleans, or an error that says what is wrong with them."""
    values, mask = np.asarray(values, dtype=np.float64), np.asarray(mask)
    if values.ndim != 1 or mask.shape != values.shape:
        raise ValueError(f"values and mask must be 1-D and equally long, got shapes {values.shape} and {mask.shape}")
    _check_finite(values)
    if mask.dtype != bool:
        if not np.isin(mask, (0, 1)).all():
            raise ValueError("mask must hold only True and False, or 1 and 0")
        mask = mask.astype(bool)
    if mask.all() or not mask.any():
        raise ValueError(f"mask marks {int(mask.sum())} of {len(mask)} rows as bad: detection needs rows of both kinds")
    return values, mask


def _check_finite(values: Num[np.ndarray, " n"]) -> None:
    """Refuse values that cannot be ranked."""
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(f"values has {bad.sum()} non-finite entries, first at row {bad.argmax()}")


def detection_curve(values: Shaped[np.ndarray, " n"], mask: Shaped[np.ndarray, " m"]) -> pd.DataFrame:
    """Bad rows found when rows are inspected from the lowest value up.

    Rows of equal value count in expectation over their order, so that a constant valuation gives the random line.

    Args:
        values: (n,) values, higher is better.
        mask: (n,) True (or 1) where the row is bad.

    Returns:
        A table of n + 1 rows: ``inspected`` (0 to n), ``found`` (bad rows among them), ``rate`` (found / all bad),
        ``random`` and ``oracle`` (the rate of a random and of a perfect order).

    Raises:
        ValueError: If lengths differ, a value is not finite, or all rows or none are bad.

    Source: detection-rate figures of Kessler et al. (ICLR 2025).
    """
    values, mask = _checked(values, mask)
    order = np.argsort(values, kind="stable")
    ranked, hits = values[order], np.cumsum(mask[order])
    ends = np.append(np.flatnonzero(np.diff(ranked)) + 1, len(values))
    inspected = np.arange(len(values) + 1)
    found = np.interp(inspected, np.append(0, ends), np.append(0, hits[ends - 1]))
    n_bad = int(mask.sum())
    return pd.DataFrame(
        {
            "inspected": inspected,
            "found": found,
            "rate": found / n_bad,
            "random": inspected / len(values),
            "oracle": np.minimum(inspected / n_bad, 1.0),
        }
    )


def detection_auc(values: Shaped[np.ndarray, " n"], mask: Shaped[np.ndarray, " m"]) -> float:
    """Chance that a bad row has a lower value than a good one (ROC AUC; ties count one half).

    Args:
        values: (n,) values, higher is better.
        mask: (n,) True (or 1) where the row is bad.

    Returns:
        The area: 1 for perfect detection, 0.5 for chance.

    Raises:
        ValueError: If lengths differ, a value is not finite, or all rows or none are bad.

    Source: the measure of every detection table in the documentation.
    """
    values, mask = _checked(values, mask)
    return float(roc_auc_score(mask, -values))


def pruning_curve(
    model: Any,
    X: Num[np.ndarray, "n d"],
    y: Shaped[np.ndarray, " m"],
    values: Shaped[np.ndarray, " k"],
    X_test: Num[np.ndarray, "t d"],
    y_test: Shaped[np.ndarray, " t"],
    fractions: Sequence[float | int] = (0.0, 0.1, 0.2, 0.3, 0.4),
    random_state: int | np.random.Generator | None = None,
    *,
    n_random: int = 3,
) -> pd.DataFrame:
    """Test accuracy of a model trained after the lowest-valued rows are dropped.

    Args:
        model: A scikit-learn classifier; it is cloned for every fit.
        X: (n, d) training features.
        y: (n,) training labels.
        values: (n,) values, higher is better.
        X_test: (t, d) test features.
        y_test: (t,) test labels.
        fractions: Shares of the n rows to drop, each in [0, 1).
        random_state: Seed or generator of the random comparison.
        n_random: Random prunings averaged per fraction.

    Returns:
        A table with a row per fraction: ``fraction``, ``n_kept``, ``accuracy``, ``random`` (mean accuracy after as many
        rows were dropped at random).

    Raises:
        ValueError: If lengths differ, a value is not finite, a fraction is out of range, ``n_random`` < 1, or one
            class alone is left.

    Source: pruning experiments of Kessler et al. (ICLR 2025).
    """
    values = np.asarray(values, dtype=np.float64)
    if not len(X) == len(y) == len(values):
        raise ValueError(f"X, y and values have {len(X)}, {len(y)} and {len(values)} rows, expected the same number")
    _check_finite(values)
    if n_random < 1:
        raise ValueError(f"n_random is {n_random}, expected 1 or more")
    rng = np.random.default_rng(random_state)
    order = np.argsort(values, kind="stable")

    def accuracy(kept: Int[np.ndarray, " k"]) -> float:
        if len(np.unique(y[kept])) < 2:
            raise ValueError(f"only one class is left among the {len(kept)} kept rows: prune less")
        return float(np.mean(clone(model).fit(X[kept], y[kept]).predict(X_test) == y_test))

    rows = []
    for fraction in fractions:
        if not 0 <= fraction < 1:
            raise ValueError(f"fractions holds {fraction}, expected numbers in [0, 1)")
        n_dropped = round(fraction * len(y))
        kept = np.sort(order[n_dropped:])
        valued = accuracy(kept)
        chance = valued
        if n_dropped:
            n_kept = len(kept)
            chance = np.mean([accuracy(np.sort(rng.permutation(len(y))[:n_kept])) for _ in range(n_random)])
        rows.append((fraction, len(kept), valued, float(chance)))
    return pd.DataFrame(rows, columns=["fraction", "n_kept", "accuracy", "random"])


def most_suspicious(values: Shaped[np.ndarray, " n"], y: Shaped[np.ndarray, " m"], per_class: int = 10) -> pd.DataFrame:
    """The lowest-valued rows of every class.

    Args:
        values: (n,) values, higher is better.
        y: (n,) labels.
        per_class: Rows to list per class; a smaller class is listed whole.

    Returns:
        A table ``label``, ``row`` (position in the input), ``value``, by class and then from the worst row up.

    Raises:
        ValueError: If lengths differ, a value is not finite, or ``per_class`` < 1.

    Source: ours, for a person who checks labels class by class.
    """
    values, y = np.asarray(values), np.asarray(y)
    if values.shape != y.shape or values.ndim != 1:
        raise ValueError(f"values and y must be 1-D and equally long, got shapes {values.shape} and {y.shape}")
    _check_finite(values)
    if per_class < 1:
        raise ValueError(f"per_class is {per_class}, expected 1 or more")
    table = pd.DataFrame({"label": y, "row": np.arange(len(y)), "value": values})
    table = table.sort_values(["label", "value", "row"], ignore_index=True)
    return table.groupby("label", sort=False).head(per_class).reset_index(drop=True)
