"""NPZ files and pairs of NPY files."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from icl25_sava.readers.common import Dataset, RowSpool, as_float_rows, check_unique_ids, clean_labels, unknown_name

__all__ = ["read_npy", "read_npz"]


def read_npz(path: Path, label: str | None, features: str | None, id_column: str | None) -> Dataset:
    """Read arrays of an NPZ file: features, labels if there are any, ids if there are any.

    Args:
        path: The file.
        label: Name of the labels; None takes ``y`` where it exists.
        features: Name of the features, of shape (n, d) or (n, height, width[, channels]); None is ``X``.
        id_column: Name of the ids; None takes ``ids`` where it exists.

    Returns:
        The rows.

    Raises:
        ValueError: If the file is corrupt, an array is missing, pickled or of a wrong shape or kind.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not a readable NPZ file (it is no zip archive)")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = file.files
            X = _member(file, path, features or "X", names)
            y = _member(file, path, label or "y", names) if label or "y" in names else None
            ids = _member(file, path, id_column or "ids", names) if id_column or "ids" in names else None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise ValueError(f"{path}: not a readable NPZ file ({_first_line(error)})") from error
    return _dataset(path, X, y, ids, features or "X", label or "y", id_column or "ids")


def _member(file: Any, path: Path, name: str, names: list[str]) -> np.ndarray:
    """One array of an open NPZ file."""
    if name not in names:
        raise unknown_name(str(path), "array", name, names)
    try:
        return file[name]
    except ValueError as error:
        raise _unreadable(f"{path}: array {name!r}", error) from error


def read_npy(path: Path, need_labels: bool, mmap: bool, chunk_rows: int, memory_limit_mb: float | int) -> Dataset:
    """Read features from an NPY file and labels from ``<name>_y.npy`` or ``<name>.labels.npy`` beside it.

    Args:
        path: File of the features, of shape (n, d) or (n, height, width[, channels]).
        need_labels: Whether a missing file of labels is an error.
        mmap: Open the features as a memory map.
        chunk_rows: Rows converted at a time where the features are not floating point.
        memory_limit_mb: Converted features beyond this size go to a temporary file.

    Returns:
        The rows.

    Raises:
        ValueError: If a file is corrupt, pickled or of a wrong shape or kind, or labels are needed and missing, or both
            files of labels exist.
    """
    X = _load(path, mmap)
    candidates = [path.with_name(f"{path.stem}_y.npy"), path.with_name(f"{path.stem}.labels.npy")]
    found = [candidate for candidate in candidates if candidate.exists()]
    if len(found) == 2:
        raise ValueError(f"{path}: its labels stand in both {found[0].name} and {found[1].name}: remove one")
    if need_labels and not found:
        raise ValueError(f"{path}: no labels beside it, expected {candidates[0].name} or {candidates[1].name}")
    y = _load(found[0], mmap=False) if found else None
    if X.ndim >= 2 and X.dtype.kind in "biu":
        with RowSpool(memory_limit_mb) as spool:
            for start in range(0, len(X), chunk_rows):
                spool.append(as_float_rows(X[start : start + chunk_rows], str(path)))
            converted = spool.finish()
        X = X if converted is None else converted.reshape(X.shape)
    return _dataset(path, X, y, None, "X", found[0].name if found else "y", "ids")


def _load(path: Path, mmap: bool) -> np.ndarray:
    """One NPY file."""
    try:
        return np.lib.format.open_memmap(path, mode="r") if mmap else _read(path)
    except (ValueError, EOFError, OSError) as error:
        raise _unreadable(str(path), error) from error


def _read(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _unreadable(where: str, error: Exception) -> ValueError:
    """The error for an array that NumPy refuses, in one line."""
    message = _first_line(error)
    if "allow_pickle" in message or "Python objects" in message:
        return ValueError(f"{where}: holds Python objects, which are never unpickled; save plain arrays")
    return ValueError(f"{where}: not a readable NPY array ({message})")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _dataset(
    path: Path, X: np.ndarray, y: np.ndarray | None, ids: np.ndarray | None, X_name: str, y_name: str, ids_name: str
) -> Dataset:
    """Check the arrays against each other."""
    rows = as_float_rows(X, f"{path}: array {X_name!r}")
    if rows.size == 0:
        raise ValueError(f"{path}: array {X_name!r} has shape {X.shape}, expected at least one row and one feature")
    if y is not None:
        y = clean_labels(y, len(rows), f"{path}: array {y_name!r}")
    if ids is None:
        ids = np.arange(len(rows))
    elif ids.shape != (len(rows),):
        raise ValueError(f"{path}: array {ids_name!r} has shape {ids.shape}, expected ({len(rows)},)")
    else:
        check_unique_ids(ids, f"{path}: array {ids_name!r}")
    image_shape = X.shape[1:] if X.ndim in (3, 4) else None
    return Dataset(rows, y, ids, tuple(f"x{j}" for j in range(rows.shape[1])), str(path), image_shape)
