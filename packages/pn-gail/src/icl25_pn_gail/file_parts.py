"""From the columns of a file to demonstrations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from icl25_pn_gail.columns import Columns
from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["assemble", "existing_file", "first_line"]


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Refuse what is no file with something in it.

    Args:
        path: The file.

    Returns:
        The same.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        ValueError: If it is empty.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, expected a file of demonstrations")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return path


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def assemble(
    path: Path,
    columns: Columns,
    arrays: Mapping[str, Shaped[np.ndarray, "..."]],
    meta: Mapping[str, Any],
    *,
    confidence_range: tuple[float, float] | None,
    discrete: bool | None,
) -> Demonstrations:
    """Put the columns of a file together.

    Args:
        path: The file, for messages.
        columns: What they hold.
        arrays: The columns by name, shape (N,) or (N, k) each.
        meta: What else the file says.
        confidence_range: Lowest and highest possible rating, which become 0 and 1.
        discrete: Whether actions are ids. Default: where they are whole numbers in one column.

    Returns:
        The demonstrations.

    Raises:
        ValueError: If they do not fit each other; the message names file and column.
    """
    confidence = arrays[columns.confidence] if columns.confidence else None
    if confidence_range is not None:
        if confidence is None:
            raise ValueError(f"{path}: confidence_range is given, but there are no confidences")
        confidence = _rescaled(path, confidence, confidence_range)
    try:
        return Demonstrations(
            _stacked(columns.obs, arrays, matrix=True),
            _actions(columns.acts, arrays, discrete),
            confidence,
            _episodes(columns, arrays),
            _stacked(columns.next_obs, arrays, matrix=True) if columns.next_obs else None,
            arrays[columns.reward] if columns.reward else None,
            meta,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _stacked(names: Sequence[str], arrays: Mapping[str, np.ndarray], *, matrix: bool) -> np.ndarray:
    """Put columns side by side; a lone column stays a vector where no matrix is asked for."""
    parts = [arrays[name] for name in names]
    if len(parts) == 1:
        alone = parts[0]
        return alone[:, None] if matrix and alone.ndim == 1 else alone
    for name, part in zip(names, parts, strict=True):
        if part.ndim > 2 or part.ndim == 0:
            raise ValueError(f"{name} must have shape (rows,) or (rows, columns), found {part.shape}")
        if len(part) != len(parts[0]):
            raise ValueError(f"{name} has {len(part)} rows, {names[0]} has {len(parts[0])}")
    return np.column_stack(parts)


def _actions(names: Sequence[str], arrays: Mapping[str, np.ndarray], discrete: bool | None) -> np.ndarray:
    acts = _stacked(names, arrays, matrix=False)
    if discrete is None or acts.dtype.kind not in "iubf":
        return acts
    whole = acts.dtype.kind in "iub"
    if not discrete:
        return acts.astype(np.float64) if whole else acts
    if acts.size != len(acts):
        raise ValueError(f"discrete actions are one column of ids, found {acts[0].size} columns")
    broken = acts[acts != np.floor(acts)]
    if len(broken):
        raise ValueError(f"discrete actions must be whole numbers, found {broken[0]:g}")
    return acts.astype(np.int64).reshape(-1)


def _rescaled(path: Path, ratings: np.ndarray, confidence_range: tuple[float, float]) -> np.ndarray:
    low, high = confidence_range
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"confidence_range must be two numbers, the lower one first, found {confidence_range}")
    try:
        ratings = np.asarray(ratings, dtype=np.float64)
    except (TypeError, ValueError):
        return ratings  # refused with all else that is no number
    outside = (ratings < low) | (ratings > high)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(
            f"{path}: {int(outside.sum())} ratings are outside confidence_range {low:g} to {high:g}, "
            f"first {ratings.reshape(-1)[row]:g} in row {row}"
        )
    return (ratings - low) / (high - low)


def _episodes(columns: Columns, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Labels of episodes, from labels or from flags of last or first steps."""
    if columns.episode:
        return arrays[columns.episode]
    if columns.starts:
        return np.cumsum(_flags(columns.starts, arrays)) - int(_flags(columns.starts, arrays)[0])
    if columns.ends:
        ended = np.logical_or.reduce([_flags(name, arrays) for name in columns.ends])
        return np.concatenate([[0], np.cumsum(ended)[:-1]])
    return None


def _flags(name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    flags = arrays[name]
    flags = flags.reshape(-1) if flags.ndim == 2 and flags.shape[1] == 1 else flags
    if flags.ndim != 1 or flags.dtype.kind not in "biuf" or not np.isin(flags, [0, 1]).all():
        raise ValueError(f"{name} must be a flag for each row, 0 or 1, found {flags.dtype} of shape {flags.shape}")
    return flags.astype(bool)
