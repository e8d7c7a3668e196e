"""Rows and confidences as they come from users: checked, and turned into arrays of double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["check_confidence", "check_rows", "column_names"]


def check_rows(X: Any, n_features: int | None = None) -> Float[np.ndarray, "n d"]:
    """Turn rows of features into an array.

    Args:
        X: Rows, shape (n, d), n >= 1, d >= 1: array, list of lists or data frame of finite numbers.
        n_features: The d that is expected; None for any.

    Returns:
        The same numbers.

    Raises:
        TypeError: If X is a sparse matrix.
        ValueError: If X is no table of finite numbers of that width.
    """
    if hasattr(X, "toarray"):
        raise TypeError(f"X must be dense, found {type(X).__name__}; X.toarray() makes it so")
    if np.iscomplexobj(X):
        raise ValueError("X must be real; Complex data not supported")
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must be a table of numbers: {error}") from error
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"X must have shape (n, d) with n >= 1 and d >= 1, found {rows.shape}")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} features, as in fit, found {rows.shape[1]}")
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        row, column = (int(index) for index in wrong[0])
        names = column_names(X)
        raise ValueError(
            f"X has {len(wrong)} values that are NaN or infinite, first in row {row}, column "
            f"{column if names is None else repr(names[column])}"
        )
    return rows


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame, None of anything else or if they are no strings.

    Args:
        X: Rows, of shape (n, d).

    Returns:
        d names.
    """
    names = [name for name in getattr(X, "columns", ()) if isinstance(name, str)]
    return names if names and len(names) == len(X.columns) else None


def check_confidence(
    values: Any, name: str, n: int | None = None, *, unlabelled: bool = False
) -> Float[np.ndarray, " n"]:
    """Turn confidences into an array.

    Args:
        values: Confidences, shape (n,), from 0 to 1.
        name: What to call them in errors.
        n: Their number that is expected; None for any.
        unlabelled: Whether NaN (or None) may stand for a row without a label.

    Returns:
        The same numbers.

    Raises:
        ValueError: If they are not n numbers from 0 to 1.
    """
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers: {error}") from error
    if found.ndim != 1 or len(found) == 0:
        raise ValueError(f"{name} must have shape (n,) with n >= 1, found {found.shape}")
    if n is not None and len(found) != n:
        raise ValueError(f"{name} must have {n} values, one for each row, found {len(found)}")
    missing = np.flatnonzero(np.isnan(found))
    if len(missing) and not unlabelled:
        raise ValueError(
            f"{name} must be known in each row, found {len(missing)} NaN, first in row {missing[0]}; "
            "ConfidenceClassifier.fill puts its predictions there"
        )
    wrong = np.flatnonzero((found < 0) | (found > 1))
    if len(wrong):
        raise ValueError(
            f"{name} must lie in [0, 1], found {len(wrong)} other values, first {found[wrong[0]]:g} in row {wrong[0]}; "
            f"scores of another scale are rescaled by confidence_from_returns({name}, mode='minmax')"
        )
    return found
