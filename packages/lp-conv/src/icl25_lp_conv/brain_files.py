"""Recordings as users have them: RSMs and noise ceilings of brain areas in NPZ, NPY, MATLAB and CSV files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.io import loadmat

from icl25_lp_conv.rsa_matrices import check_recordings

__all__ = ["read_brain", "read_ceilings"]

_KINDS = "expected .npz, .npy, .mat or .csv"


def read_brain(
    path: str | Path, key: str | Sequence[str] | None = None
) -> dict[str, Float[np.ndarray, "n n sessions"]]:
    """Read the RSMs of brain areas.

    Args:
        path: An NPZ or MATLAB file (version 5 to 7.2) with an array for each area, of shape (n, n, sessions) or (n, n);
            an NPY file with one such array; or a CSV file with one (n, n) RSM, with or without labels of its rows and
            columns. What is pickled in a file is never unpickled.
        key: In NPZ and MATLAB files the area or areas to read, all by default; for NPY and CSV files the name of the
            area, by default that of the file.

    Returns:
        For each area (n, n, sessions) RSMs in double precision.

    Raises:
        OSError: If the file is missing, a folder or not readable.
        ValueError: If it has another ending, is damaged, holds Python or MATLAB objects, lacks the key, or an array is
            no RSM (see ``check_recordings``) or has another number of stimuli than the others; the message names file
            and area.

    Source: ours; the paper's recordings came as (118, 118, sessions) arrays for each area.
    """
    path = Path(path)
    if path.suffix.lower() == ".csv":
        arrays = {_single_name(path, key): _read_square_csv(path)}
    else:
        arrays = _read_arrays(path, key)
    checked = {area: check_recordings(array, f"{path}: area {area!r}") for area, array in arrays.items()}
    first, n = next((area, len(array)) for area, array in checked.items())
    for area, array in checked.items():
        if len(array) != n:
            raise ValueError(f"{path}: area {area!r} has {len(array)} stimuli, but area {first!r} has {n}")
    return checked


def read_ceilings(path: str | Path, key: str | Sequence[str] | None = None) -> dict[str, Float[np.ndarray, " _"]]:
    """Read the noise ceilings of brain areas.

    Args:
        path: An NPZ or MATLAB file with a 1-D array (in MATLAB a row or column) for each area, an NPY file with one, or
            a CSV file with a column for each area under its name; columns may differ in length.
        key: As in ``read_brain``; in a CSV file the column or columns to read.

    Returns:
        For each area (k,) ceilings in double precision.

    Raises:
        OSError: If the file is missing, a folder or not readable.
        ValueError: As for ``read_brain``, or if ceilings are not 1-D, finite numbers.

    Source: ours.
    """
    path = Path(path)
    arrays = _read_csv_columns(path, key) if path.suffix.lower() == ".csv" else _read_arrays(path, key)
    found = {}
    for area, array in arrays.items():
        where = f"{path}: area {area!r}"
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{where} holds {array.dtype}, expected real numbers")
        if path.suffix.lower() == ".mat" and array.ndim == 2 and 1 in array.shape:
            array = array.ravel()
        if array.ndim != 1 or not array.size:
            raise ValueError(f"{where} has shape {array.shape}, expected a list of noise ceilings")
        if not np.isfinite(array).all():
            raise ValueError(f"{where}: noise ceiling {int(np.argmin(np.isfinite(array)))} is NaN or infinite")
        found[area] = array.astype(np.float64)
    return found


def _read_arrays(path: Path, key: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    """The arrays of an NPZ, NPY or MATLAB file."""
    match path.suffix.lower():
        case ".npy":
            with path.open("rb") as file:
                return {_single_name(path, key): _read_array(file, str(path))}
        case ".npz":
            return _read_npz(path, key)
        case ".mat":
            return _read_mat(path, key)
        case suffix:
            raise ValueError(f"{path}: unknown kind of file {suffix!r}, {_KINDS}")


def _read_npz(path: Path, key: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise ValueError(f"{path}: not a readable NPZ file ({error})") from error
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        found = {}
        for name in _chosen(path, list(members), key):
            where = f"{path}: area {name!r}"
            try:
                member = archive.open(members[name])
            except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
                raise ValueError(f"{where}: not readable ({error})") from error
            with member:
                found[name] = _read_array(member, where)
    return found


def _read_array(file: Any, where: str) -> np.ndarray:
    """One array in NPY format, never unpickled."""
    try:
        return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # a damaged header makes the parser raise almost anything
        message = str(error).partition("\n")[0] or type(error).__name__
        if "allow_pickle" in message:
            raise ValueError(f"{where}: holds Python objects, which are never unpickled; save plain arrays") from error
        raise ValueError(f"{where}: not a readable array ({message})") from error


def _read_mat(path: Path, key: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    with path.open("rb") as file:
        try:
            contents = loadmat(file)
        except NotImplementedError as error:
            raise ValueError(f"{path}: MATLAB files of version 7.3 are not read; save it with '-v7'") from error
        except Exception as error:  # a damaged file makes the parser raise almost anything
            raise ValueError(f"{path}: not a readable MATLAB file ({error or type(error).__name__})") from error
    names = [name for name in contents if not name.startswith("__")]
    found = {name: contents[name] for name in _chosen(path, names, key)}
    for name, array in found.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind in "OV":
            raise ValueError(
                f"{path}: area {name!r} is a cell, structure, object or sparse matrix, expected a plain array"
            )
    return found


def _read_square_csv(path: Path) -> np.ndarray:
    """The numbers of a table that may have a header, and labels before its rows."""
    cells = _read_cells(path)
    numbers = cells.apply(pd.to_numeric, errors="coerce")
    n_rows, n_columns = cells.shape
    if n_rows == n_columns + 1:
        cells, numbers = cells.iloc[1:], numbers.iloc[1:]
    elif n_rows == n_columns and np.isnan(numbers.iloc[0, 0]) and cells.iloc[0, 0].lower() != "nan":
        cells, numbers = cells.iloc[1:, 1:], numbers.iloc[1:, 1:]
    _refuse_text(path, cells, numbers)
    return numbers.to_numpy(np.float64)


def _read_csv_columns(path: Path, key: str | Sequence[str] | None) -> dict[str, np.ndarray]:
    """The columns of a table whose first line names them; a column ends where its cells are empty."""
    cells = _read_cells(path)
    names = [name.strip() for name in cells.iloc[0]]
    if len(set(names)) < len(names):
        raise ValueError(f"{path}: two columns have the same name, found {', '.join(names)}")
    cells = cells.iloc[1:]
    found = {}
    for name in _chosen(path, names, key):
        column = cells.iloc[:, [names.index(name)]]
        filled = np.flatnonzero(column.iloc[:, 0].str.strip() != "")
        column = column.iloc[: filled[-1] + 1 if len(filled) else 0]
        numbers = column.apply(pd.to_numeric, errors="coerce")
        _refuse_text(path, column, numbers)
        found[name] = numbers.to_numpy(np.float64).ravel()
    return found


def _read_cells(path: Path) -> pd.DataFrame:
    """The cells of a CSV file as text."""
    try:
        return pd.read_csv(path, header=None, dtype=str, keep_default_na=False, skip_blank_lines=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a readable CSV file ({error})") from error


def _refuse_text(path: Path, cells: pd.DataFrame, numbers: pd.DataFrame) -> None:
    """Refuse cells that are no numbers; NaN is one, and whoever uses the numbers names what they stand for."""
    text = numbers.isna().to_numpy() & (cells.apply(lambda column: column.str.strip().str.lower()) != "nan").to_numpy()
    if text.any():
        row, column = (int(index) for index in np.argwhere(text)[0])
        line, place = int(cells.index[row]) + 1, int(cells.columns[column]) + 1
        raise ValueError(f"{path}: line {line}, column {place} holds {cells.iloc[row, column]!r}, expected a number")


def _chosen(path: Path, names: list[str], key: str | Sequence[str] | None) -> list[str]:
    """The areas that are asked for, which must be there."""
    if not names:
        raise ValueError(f"{path}: holds no area")
    chosen = names if key is None else [key] if isinstance(key, str) else list(key)
    for name in chosen:
        if name not in names:
            raise ValueError(f"{path}: has no area {name!r}; it has {', '.join(names)}")
    if not chosen:
        raise ValueError(f"{path}: no area was asked for; it has {', '.join(names)}")
    return chosen


def _single_name(path: Path, key: str | Sequence[str] | None) -> str:
    """The name of the one area of a file that holds no names."""
    names = [path.stem] if key is None else [key] if isinstance(key, str) else list(key)
    if len(names) != 1:
        raise ValueError(f"{path}: holds one area, but {len(names)} names were given")
    return names[0]
