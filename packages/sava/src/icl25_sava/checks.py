"""Properties of the data that are legal but that a user should hear about."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt64

from icl25_sava.inputs import Rows

__all__ = ["duplicated_rows", "warn_about_classes", "warn_about_drift", "warn_about_duplicates", "warn_about_scale"]

_DRIFT = 0.2


def warn_about_classes(
    classes: np.ndarray, y: Integer[np.ndarray, " n"], yv: Integer[np.ndarray, " m"], stacklevel: int = 4
) -> None:
    """Warn when validation has one class, or lacks classes of the training set."""
    val_counts = np.bincount(yv, minlength=len(classes))
    counts = np.bincount(y, minlength=len(classes))
    if np.count_nonzero(val_counts) == 1 and len(classes) > 1:
        warnings.warn(
            f"y_val has the single class {str(classes[yv[0]])!r}: the label term is the same for all rows of a class",
            UserWarning,
            stacklevel=stacklevel,
        )
    absent = np.flatnonzero((val_counts == 0) & (counts > 0))
    if len(absent):
        named = ", ".join(f"{classes[c]!s} ({counts[c]} rows)" for c in absent[:5])
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        warnings.warn(
            f"{len(absent)} training classes do not occur in y_val: {named}{more}; their rows are judged by the "
            "distance to the other classes",
            UserWarning,
            stacklevel=stacklevel,
        )


def warn_about_scale(diameter: float, eps: float, p: int, stacklevel: int = 4) -> None:
    """Warn when the whole data lie closer together than the regularisation can resolve."""
    if 0 < diameter**p < eps:
        warnings.warn(
            f"the data span {diameter:.3g}, so that their costs are below eps = {eps:.3g}, which then dominates: "
            'rescale the features or use eps="auto"',
            UserWarning,
            stacklevel=stacklevel,
        )


def warn_about_duplicates(train: Rows, val: Rows, stacklevel: int = 4) -> None:
    """Warn when validation rows occur in the training set too."""
    if train.n_features != val.n_features:
        return
    n = int(duplicated_rows(train, val).sum())
    if n:
        warnings.warn(
            f"{n} training rows are equal to validation rows; such rows get the best values by construction",
            UserWarning,
            stacklevel=stacklevel,
        )


def duplicated_rows(train: Rows, val: Rows) -> Bool[np.ndarray, " n"]:
    """Which training rows have the same features as some validation row, by 64-bit hashes.

    Args:
        train: n rows.
        val: rows with as many features.

    Returns:
        Mask over the training rows, shape (n,).
    """
    known = np.unique(np.concatenate([_row_hashes(chunk) for _, chunk in val.chunks()]))
    return np.concatenate([np.isin(_row_hashes(chunk), known) for _, chunk in train.chunks()])


def _row_hashes(chunk: np.ndarray) -> UInt64[np.ndarray, " n"]:
    bits = np.ascontiguousarray(chunk, np.float64).view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    multipliers = np.random.default_rng(0).integers(1, 2**63, chunk.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    bits *= multipliers
    return bits.sum(axis=1, dtype=np.uint64)


def warn_about_drift(
    means: Float[np.ndarray, "k d"], new_means: Float[np.ndarray, "k d"], val_means: Float[np.ndarray, "k d"]
) -> float:
    """Compare the class distances that the means imply before and after, and warn when they moved by over a fifth.

    Args:
        means: class means of the first training rows, shape (K, d), NaN for classes without rows.
        new_means: class means of the new rows, likewise.
        val_means: class means of the validation rows, likewise.

    Returns:
        Relative change ||W_new - W|| / ||W|| over the class pairs that both have; 0 when there are none.
    """
    before, after = (np.square(m[:, None] - val_means[None]).sum(axis=2) / 2 for m in (means, new_means))
    both = np.isfinite(before) & np.isfinite(after)
    size = float(np.linalg.norm(before[both]))
    change = float(np.linalg.norm((after - before)[both])) / size if size > 0 else 0.0
    if change > _DRIFT:
        warnings.warn(
            f"the class means of the new rows move the class distances by {change:.0%}; these stay frozen from the "
            "first fit, so value the whole set anew if the data have changed for good",
            UserWarning,
            stacklevel=4,
        )
    return change
