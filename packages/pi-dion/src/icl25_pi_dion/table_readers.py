"""Tables of measurements, CSV or Parquet: wide with a column for each sensor, or long with a row for each reading."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.readings import SensorReadings

__all__ = ["read_table"]

SAME_PLACE = 1e-6
_KEYS = ("sample", "id")


def read_table(
    path: Path, problem: InverseProblem | None, *, allow_missing: bool
) -> tuple[Float[np.ndarray, "n m"] | SensorReadings, tuple[str, ...]]:
    """Read a table of measurements.

    Args:
        path: The file.
        problem: The inverse problem, whose coordinates are columns of long tables.
        allow_missing: Let empty cells pass.

    Returns:
        The measurements, with sensors that differ from sample to sample only where they do; and the names of samples.

    Raises:
        ValueError: If the file cannot be read or holds something else than measurements; the message names file, row
            (from 0, below the heading) and column.
        ImportError: If pyarrow is needed and not installed.
    """
    sensors = _sensors(problem)
    table = _open_csv(path, sensors) if path.suffix.lower() == ".csv" else _open_parquet(path)
    if not len(table):
        raise ValueError(f"{path}: the table has no rows")
    coords = () if problem is None else tuple(problem.coords)
    if "value" in table and ("sample" in table or any(letter in table for letter in coords)):
        return _long(path, table, coords, sensors, allow_missing=allow_missing)
    return _wide(path, table, allow_missing=allow_missing)


def _sensors(problem: InverseProblem | None) -> np.ndarray | None:
    try:
        return None if problem is None else np.asarray(problem.sensors(), float)
    except ValueError:  # it takes them from the measurements
        return None


def _open_csv(path: Path, sensors: np.ndarray | None) -> pd.DataFrame:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            heading = next(csv.reader(file), [])
        _check_heading(path, heading, sensors)
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # As text: names such as 007 keep their zeros, and numbers are then parsed to the last bit.
            return pd.read_csv(path, encoding="utf-8-sig", index_col=False, dtype=str)
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a readable CSV file (byte {error.start} is not UTF-8)") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        reason = str(error).replace("Error tokenizing data. C error: ", "").strip().partition("\n")[0]
        raise ValueError(f"{path}: not a readable CSV file ({reason})") from error


def _check_heading(path: Path, heading: list[str], sensors: np.ndarray | None) -> None:
    """Refuse a first line of readings, which would be taken for the names of columns and be lost."""
    doubled = sorted({name for name in heading if heading.count(name) > 1})
    numbers = _floats([name for name in heading if name.strip() not in _KEYS])
    if numbers is None or not len(numbers):
        if doubled:
            raise ValueError(f"{path}: column {doubled[0]!r} stands twice in the heading")
        return
    counted = any(np.array_equal(numbers, np.arange(len(numbers)) + first) for first in (0, 1))
    places = sensors is not None and len(sensors) == len(numbers)
    if counted or (places and (np.abs(sensors - numbers[:, None]).max(axis=0) <= SAME_PLACE).any()):  # type: ignore[operator]
        return
    raise ValueError(f"{path}: the first line must name the columns, found numbers ({', '.join(heading[:3])}, ...)")


def _floats(texts: list[str]) -> np.ndarray | None:
    try:
        return np.array([float(text) for text in texts])
    except ValueError:
        return None


def _open_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(f"{path}: Parquet files need pyarrow: pip install 'icl25-pi-dion[parquet]'") from error
    try:
        table = parquet.read_table(path).to_pandas()
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path}: not a readable Parquet file ({reason})") from error
    return table.set_axis([str(name) for name in table.columns], axis=1)


def _wide(path: Path, table: pd.DataFrame, *, allow_missing: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    key = next((name for name in _KEYS if name in table), None)
    columns = [name for name in table.columns if name != key]
    if not columns:
        raise ValueError(f"{path}: there is no column of readings beside {key!r}")
    values = np.stack([_numbers(path, table[name], allow_missing=allow_missing) for name in columns], axis=1)
    names = tuple(map(str, range(len(table)))) if key is None else _keys(path, table[key])
    repeated = pd.Series(names).duplicated()
    if repeated.any():
        row = int(repeated.to_numpy().argmax())
        raise ValueError(f"{path}: column {key!r}, row {row}: sample {names[row]!r} stands there a second time")
    return values, names


def _long(
    path: Path, table: pd.DataFrame, coords: tuple[str, ...], sensors: np.ndarray | None, *, allow_missing: bool
) -> tuple[np.ndarray | SensorReadings, tuple[str, ...]]:
    fixed = {
        letter: float(sensors[0, axis])
        for axis, letter in enumerate(coords)
        if sensors is not None and letter not in table and np.ptp(sensors[:, axis]) == 0
    }
    expected = ["sample", *(letter for letter in coords if letter not in fixed), "value"]
    for name in expected:
        if name not in table:
            raise ValueError(f"{path}: there is no column {name!r}; a long table has {', '.join(expected)}")
    unknown = [name for name in table.columns if name not in expected]
    if unknown:
        raise ValueError(f"{path}: unexpected column {unknown[0]!r}; a long table has {', '.join(expected)}")
    keys = np.array(_keys(path, table["sample"]), dtype=object)
    where = np.stack(
        [np.full(len(table), fixed[letter]) if letter in fixed else _numbers(path, table[letter]) for letter in coords],
        axis=1,
    )
    what = _numbers(path, table["value"], allow_missing=allow_missing)
    codes, names = pd.factorize(keys)
    repeated = pd.DataFrame(np.column_stack([codes, np.round(where, 9)])).duplicated()
    if repeated.any():
        row = int(repeated.to_numpy().argmax())
        place = ", ".join(f"{letter} = {value:g}" for letter, value in zip(coords, where[row], strict=True))
        raise ValueError(f"{path}: row {row}: sample {keys[row]!r} has a second reading at {place}")
    names = tuple(map(str, names))
    at_sensors = None if sensors is None else _on_sensors(codes, where, what, sensors, len(names))
    if at_sensors is not None:
        return at_sensors, names
    read = np.isfinite(what)
    counts = np.bincount(codes[read], minlength=len(names))
    if not counts.all():
        raise ValueError(f"{path}: sample {names[int(counts.argmin())]!r} has no reading at all")
    return _padded(codes[read], where[read], what[read], counts), names


def _padded(codes: np.ndarray, where: np.ndarray, what: np.ndarray, counts: np.ndarray) -> SensorReadings:
    """Readings of samples by their numbers, in the order of the table; without a loop over samples."""
    n, longest = len(counts), int(counts.max())
    column = pd.Series(codes).groupby(codes).cumcount().to_numpy()
    values, locations = np.zeros((n, longest)), np.zeros((n, longest, where.shape[1]))
    mask = np.zeros((n, longest), bool)
    values[codes, column], locations[codes, column], mask[codes, column] = what, where, True
    return SensorReadings(values, locations, mask)


def _on_sensors(
    codes: np.ndarray, where: np.ndarray, what: np.ndarray, sensors: np.ndarray, n: int
) -> np.ndarray | None:
    """The readings as an array, where every sample was read at each sensor of the problem and nowhere else."""
    from scipy.spatial import KDTree

    distance, column = KDTree(sensors).query(where)
    counts = np.zeros((n, len(sensors)), int)
    np.add.at(counts, (codes, column), 1)
    if distance.max() > SAME_PLACE or (counts != 1).any():
        return None
    values = np.empty((n, len(sensors)))
    values[codes, column] = what
    return values


def _numbers(path: Path, column: pd.Series, *, allow_missing: bool = False) -> np.ndarray:
    """A column as finite numbers."""
    missing = column.isna().to_numpy()
    entries = column.to_numpy(dtype=object)
    if pd.api.types.is_bool_dtype(column.dtype):
        raise ValueError(f"{path}: column {column.name!r} holds {column.dtype}, expected numbers")
    try:
        array = np.full(len(column), np.nan)
        array[~missing] = np.array(entries[~missing], dtype=float)
    except (ValueError, TypeError) as error:
        row = next(row for row in np.flatnonzero(~missing) if not _is_number(entries[row]))
        found = f"expected a number, found {str(entries[row])[:40]!r}"
        raise ValueError(f"{path}: column {column.name!r}, row {row}: {found}") from error
    bad = np.isinf(array) if allow_missing else ~np.isfinite(array)
    if bad.any():
        row = int(bad.argmax())
        found = "NaN or an empty cell" if np.isnan(array[row]) else "an infinite value"
        raise ValueError(f"{path}: column {column.name!r}, row {row}: expected a finite number, found {found}")
    return array


def _is_number(entry: Any) -> bool:
    try:
        float(entry)
    except (ValueError, TypeError):
        return False
    return True


def _keys(path: Path, column: pd.Series) -> tuple[str, ...]:
    missing = column.isna().to_numpy()
    if missing.any():
        raise ValueError(f"{path}: column {column.name!r}, row {int(missing.argmax())}: there is no name of the sample")
    return tuple(map(str, column.tolist()))
