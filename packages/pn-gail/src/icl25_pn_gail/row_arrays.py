"""Arrays that hold one row per recorded step, checked at the door."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer, Shaped

__all__ = [
    "action_rows",
    "confidence_rows",
    "episode_labels",
    "follow_each_other",
    "matrix_rows",
    "nonfinite",
    "read_only",
    "reward_rows",
    "row_numbers",
]


def matrix_rows(name: str, values: Any, n: int | None = None, *, allow_nan: bool = False) -> Float[np.ndarray, "n d"]:
    """Bring values to a matrix of finite floats; single and double precision stay what they are.

    Args:
        name: What they are, for the message.
        values: Numbers of shape (n, d).
        n: How many rows there must be; None for any number but 0.
        allow_nan: Let NaN pass, for what is not known.

    Returns:
        The matrix, shape (n, d).

    Raises:
        ValueError: If they are no numbers, have another shape, or hold NaN or infinities.

    Source:
        This package's.
    """
    array = _numbers(name, values)
    if array.ndim != 2:
        hint = "; for one column pass values[:, None]" if array.ndim == 1 else ""
        raise ValueError(f"{name} must have shape (rows, columns), found {array.shape}{hint}")
    if array.shape[1] == 0:
        raise ValueError(f"{name} has no columns, shape {array.shape}")
    _check_length(name, array, n)
    array = _floats(array)
    problem = nonfinite(name, array, allow_nan=allow_nan)
    if problem:
        raise ValueError(problem)
    return array


def action_rows(values: Any, n: int) -> Float[np.ndarray, "n a"] | Integer[np.ndarray, " n"]:
    """Bring actions to a matrix of floats, or, where they are whole numbers in one column, to a vector of ids.

    Args:
        values: Floats of shape (n, a) or (n,), or whole numbers of shape (n,) or (n, 1): ids from 0.
        n: How many rows there must be.

    Returns:
        Continuous actions, shape (n, a); or ids of discrete actions, int64, shape (n,).

    Raises:
        ValueError: If the shape does not fit, a value is not finite, or an id is negative.

    Source:
        This package's.
    """
    array = _numbers("acts", values)
    if array.dtype.kind in "iub" and (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)):
        ids = array.reshape(-1).astype(np.int64)
        _check_length("acts", ids, n)
        if ids.min() < 0:
            raise ValueError(
                f"acts are whole numbers and so ids of discrete actions, which must be >= 0, found {ids.min()} in row "
                f"{int(np.argmax(ids < 0))}; continuous actions must be floats, or read with discrete=False"
            )
        return ids
    return matrix_rows("acts", array[:, None] if array.ndim == 1 else array, n)


def confidence_rows(values: Any, n: int) -> Float[np.ndarray, " n"]:
    """Bring confidences to a vector.

    Args:
        values: Numbers in [0, 1] of shape (n,) or (n, 1), NaN or None where a row is not labelled; None for no labels.
        n: How many rows there must be.

    Returns:
        The confidences, double precision, shape (n,).

    Raises:
        ValueError: If there are not n, or one is outside [0, 1].

    Source:
        This package's.
    """
    if values is None:
        return np.full(n, np.nan)
    r = _vector("confidence", values, n)
    outside = ~np.isnan(r) & ~((r >= 0) & (r <= 1))
    if outside.any():
        known = r[~np.isnan(r)]
        raise ValueError(
            f"confidence has {int(outside.sum())} values outside [0, 1], first {r[outside.argmax()]:g} in row "
            f"{int(outside.argmax())}; the labels span {known.min():g} to {known.max():g}: rescale them, "
            f"(r - low) / (high - low), or read them with confidence_range=(low, high)"
        )
    return r


def reward_rows(values: Any, n: int) -> Float[np.ndarray, " n"]:
    """Bring rewards to a vector.

    Args:
        values: Numbers of shape (n,) or (n, 1), NaN where the reward is not known.
        n: How many rows there must be.

    Returns:
        The rewards, double precision, shape (n,).

    Raises:
        ValueError: If there are not n, or one is infinite.

    Source:
        This package's.
    """
    rewards = _vector("reward", values, n)
    problem = nonfinite("reward", rewards, allow_nan=True)
    if problem:
        raise ValueError(problem)
    return rewards


def episode_labels(values: Any, n: int) -> Shaped[np.ndarray, " n"]:
    """Bring the labels of episodes to a vector: text and whole numbers as such, other labels as objects.

    Args:
        values: Hashable labels, n of them.
        n: How many rows there must be.

    Returns:
        The labels, shape (n,).

    Raises:
        ValueError: If there are not n, or one is missing.
        TypeError: If a label is not hashable.

    Source:
        This package's.
    """
    plain = hasattr(values, "dtype") and getattr(values.dtype, "kind", "O") in "iubUfM"
    if plain:
        labels = np.asarray(values)
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.ndim != 1:
            raise ValueError(f"episode must have one label for each row, found shape {labels.shape}")
    else:
        labels = _labels_of_objects(list(values))
    if len(labels) != n:
        raise ValueError(f"episode has {len(labels)} labels for {n} rows of obs")
    missing = np.asarray(pd.isna(labels)) if labels.dtype.kind in "fOM" else np.zeros(n, bool)
    if missing.any():
        raise ValueError(f"episode has {int(missing.sum())} missing labels, first in row {int(missing.argmax())}")
    if labels.dtype.kind == "b":
        return labels.astype(np.int64)
    if labels.dtype.kind == "f" and (labels == np.floor(labels)).all() and np.abs(labels).max() < 2**53:
        return labels.astype(np.int64)
    return labels


def nonfinite(name: str, array: Float[np.ndarray, "..."], *, allow_nan: bool = False) -> str:
    """Say how many values are NaN or infinite, and where the first is.

    Args:
        name: What the values are.
        array: The values, shape (n,) or (n, d).
        allow_nan: Whether NaN may be there.

    Returns:
        A sentence; empty where all is well.

    Source:
        This package's.
    """
    bad = np.isinf(array) if allow_nan else ~np.isfinite(array)
    if not bad.any():
        return ""
    infinite = int(np.isinf(array).sum())
    kind = "NaN" if not infinite else "infinite" if infinite == bad.sum() else "NaN or infinite"
    where = np.unravel_index(int(bad.argmax()), array.shape)
    column = f", column {int(where[1])}" if array.ndim == 2 else ""
    return f"{name} has {int(bad.sum())} {kind} values, first in row {int(where[0])}{column}"


def read_only(array: Shaped[np.ndarray, "..."] | None) -> Shaped[np.ndarray, "..."] | None:
    """View an array so that it cannot be written through this view.

    Args:
        array: The array, of any shape, or None.

    Returns:
        The view.

    Source:
        This package's.
    """
    if array is not None:
        array = array.view()
        array.flags.writeable = False
    return array


def row_numbers(rows: Any, n: int) -> Integer[np.ndarray, " k"]:
    """Bring a choice of rows to their numbers.

    Args:
        rows: A mask of shape (n,), numbers of rows (from the end where negative), or a slice.
        n: How many rows there are.

    Returns:
        The numbers, at least one, shape (k,).

    Raises:
        ValueError: If there is none, one is out of range, or a mask has another length.

    Source:
        This package's.
    """
    if isinstance(rows, slice):
        index = np.arange(n)[rows]
    else:
        index = np.asarray(rows)
        if index.dtype.kind == "b":
            if index.shape != (n,):
                raise ValueError(f"the mask must have shape ({n},), found {index.shape}")
            index = np.flatnonzero(index)
    if index.size == 0:
        raise ValueError("no row is selected")
    if index.ndim != 1 or index.dtype.kind not in "iu":
        raise ValueError(f"rows must be a mask, a slice or a list of numbers, found {index.dtype} {index.shape}")
    if index.min() < -n or index.max() >= n:
        raise ValueError(f"rows must be from 0 to {n - 1}, found {index.min()} to {index.max()}")
    return index % n


def follow_each_other(codes: Integer[np.ndarray, " n"], index: Integer[np.ndarray, " k"]) -> bool:
    """Tell whether the chosen rows of each episode are a run of its rows, in their order.

    Args:
        codes: Number of the episode of each row, shape (n,).
        index: Numbers of the chosen rows, shape (k,).

    Returns:
        Whether they are.

    Source:
        This package's.
    """
    place = pd.Series(codes).groupby(codes).cumcount().to_numpy()[index]
    return bool((pd.Series(place).groupby(codes[index]).diff().dropna() == 1).all())


def _labels_of_objects(labels: list[Any]) -> np.ndarray:
    kinds = {type(label) for label in labels}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return np.array(labels, dtype=np.str_)
    if kinds and all(issubclass(kind, int | np.integer) for kind in kinds):
        return np.array(labels)
    array = np.empty(len(labels), dtype=object)
    for row, label in enumerate(labels):
        try:
            hash(label)
        except TypeError:
            raise TypeError(f"episode labels must be hashable, found {type(label).__name__} in row {row}") from None
        array[row] = label
    return array


def _numbers(name: str, values: Any) -> np.ndarray:
    if values is None:
        raise ValueError(f"{name} is missing")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be a rectangular array of numbers: {error}") from None
    if array.dtype.kind == "O" and array.size:
        kinds = {type(value) for value in array.reshape(-1)}
        if not any(issubclass(kind, str | bytes) for kind in kinds):
            try:
                return array.astype(np.float64)  # None becomes NaN
            except (TypeError, ValueError):
                pass
        raise ValueError(f"{name} must hold numbers, found {', '.join(sorted(kind.__name__ for kind in kinds))}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold real numbers, found dtype {array.dtype}")
    return array


def _floats(array: np.ndarray) -> np.ndarray:
    if array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def _vector(name: str, values: Any, n: int) -> np.ndarray:
    array = _numbers(name, values)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1:
        raise ValueError(f"{name} must have one value for each row, found shape {array.shape}")
    _check_length(name, array, n)
    return array.astype(np.float64)


def _check_length(name: str, array: np.ndarray, n: int | None) -> None:
    if n is not None and len(array) != n:
        raise ValueError(f"{name} has {len(array)} rows, obs has {n}")
    if len(array) == 0:
        raise ValueError(f"{name} has no rows, shape {array.shape}")
