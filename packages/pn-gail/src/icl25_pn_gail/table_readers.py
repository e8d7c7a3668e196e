"""Tables of demonstrations, CSV or Parquet: a row for each step, a column for each observation and action."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from icl25_pn_gail.columns import Columns, find_columns
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.file_parts import assemble, existing_file, first_line
from icl25_pn_gail.row_arrays import nonfinite
from icl25_pn_gail.writers import META_KEY

__all__ = ["read_csv", "read_parquet"]

_EMPTY_CELLS = ["", "NA", "N/A", "na", "n/a", "nan", "NaN", "null", "NULL", "None", "<NA>"]
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")


def read_csv(
    path: str | os.PathLike[str],
    obs_cols: str | Sequence[str] | None = None,
    act_cols: str | Sequence[str] | None = None,
    confidence_col: str | None = None,
    episode_col: str | None = None,
    *,
    confidence_range: tuple[float, float] | None = None,
    discrete: bool | None = None,
) -> Demonstrations:
    """Read a CSV file; see ``Demonstrations.from_csv``.

    Args:
        path: The file.
        obs_cols: Names of the columns of observations.
        act_cols: Names of the columns of actions.
        confidence_col: Name of the column of confidences.
        episode_col: Name of the column of labels of episodes.
        confidence_range: Lowest and highest possible rating, which become 0 and 1.
        discrete: Whether actions are ids.

    Returns:
        The demonstrations.

    Raises:
        ValueError: If the file is corrupt, or what it holds does not fit; the message names file, column and row.
        OSError: If there is no such file, or it is a folder.

    Source:
        This package's.
    """
    path = existing_file(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            heading = next(csv.reader(file), [])
        columns = _columns(path, heading, obs_cols, act_cols, confidence_col, episode_col)
        table = _csv_table(path, columns).to_pandas()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a readable CSV file (byte {error.start} is not UTF-8)") from error
    except (pa.ArrowException, csv.Error) as error:
        raise ValueError(f"{path}: not a readable CSV file ({first_line(error)})") from error
    if columns.episode:
        labels = table[columns.episode].replace("", None)
        whole = not labels.isna().any() and all(_WHOLE.fullmatch(label) for label in labels.unique())
        table[columns.episode] = labels.astype(np.int64) if whole else labels
    return _assemble(path, table, columns, {}, confidence_range, discrete)


def read_parquet(
    path: str | os.PathLike[str],
    obs_cols: str | Sequence[str] | None = None,
    act_cols: str | Sequence[str] | None = None,
    confidence_col: str | None = None,
    episode_col: str | None = None,
    *,
    confidence_range: tuple[float, float] | None = None,
    discrete: bool | None = None,
) -> Demonstrations:
    """Read a Parquet file; see ``Demonstrations.from_parquet``.

    Args:
        path: The file.
        obs_cols: Names of the columns of observations.
        act_cols: Names of the columns of actions.
        confidence_col: Name of the column of confidences.
        episode_col: Name of the column of labels of episodes.
        confidence_range: Lowest and highest possible rating, which become 0 and 1.
        discrete: Whether actions are ids.

    Returns:
        The demonstrations.

    Raises:
        ValueError: If the file is corrupt, or what it holds does not fit; the message names file, column and row.
        OSError: If there is no such file, or it is a folder.

    Source:
        This package's.
    """
    path = existing_file(path)
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = _columns(path, schema.names, obs_cols, act_cols, confidence_col, episode_col)
            table = file.read(columns=columns.names()).to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({first_line(error)})") from error
    try:
        meta = json.loads((schema.metadata or {}).get(META_KEY, b"{}"))
    except ValueError as error:
        raise ValueError(f"{path}: its {META_KEY.decode()} metadata is not JSON") from error
    return _assemble(path, table, columns, meta, confidence_range, discrete)


def _csv_table(path: Path, columns: Columns) -> pa.Table:
    """Read a CSV file to the last bit; as one block, since the first decides the types of all."""
    text = {columns.episode: pa.string()} if columns.episode else {}  # names such as 007 keep their zeros
    wanted = {"column_types": text, "null_values": _EMPTY_CELLS, "include_columns": columns.names()}
    return pacsv.read_csv(
        path,
        read_options=pacsv.ReadOptions(block_size=min(path.stat().st_size + 1, 2**31 - 1)),
        parse_options=pacsv.ParseOptions(newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(**wanted),
    )


def _columns(path: Path, heading: list[str], *given: Any) -> Columns:
    doubled = sorted({name for name in heading if heading.count(name) > 1})
    if doubled:
        raise ValueError(f"{path}: column {doubled[0]!r} stands twice in the heading")
    if heading and all(_is_number(name) for name in heading):
        raise ValueError(f"{path}: the first line must name the columns, found numbers ({', '.join(heading[:3])}, ...)")
    try:
        return find_columns(heading, *given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _assemble(
    path: Path,
    table: pd.DataFrame,
    columns: Columns,
    meta: dict[str, Any],
    confidence_range: tuple[float, float] | None,
    discrete: bool | None,
) -> Demonstrations:
    if not len(table):
        raise ValueError(f"{path}: the table has no rows")
    arrays = {}
    for name in columns.names():
        if name == columns.episode:
            arrays[name] = table[name].to_numpy(dtype=None if table[name].dtype.kind in "iu" else object)
            continue
        may_lack = name in columns.next_obs or name in (columns.confidence, columns.reward)
        arrays[name] = _numbers(path, table[name], may_lack=may_lack)
    return assemble(path, columns, arrays, meta, confidence_range=confidence_range, discrete=discrete)


def _numbers(path: Path, column: pd.Series, *, may_lack: bool) -> np.ndarray:
    """A column as finite numbers, or as a matrix where its cells are lists; no name is lost in messages."""
    if column.dtype.kind in "biu":
        return column.to_numpy()
    where = f"{path}: column {column.name!r}"
    entries = column.to_numpy(dtype=object)
    if column.dtype.kind == "O" and isinstance(entries[0], np.ndarray | list):
        return _lists(where, entries)
    try:
        array = column.to_numpy(dtype=np.float64, na_value=np.nan) if column.dtype.kind != "f" else column.to_numpy()
    except (TypeError, ValueError):
        legal = ("", *_EMPTY_CELLS) if may_lack else ()
        wrong = (
            row for row, entry in enumerate(entries) if not (pd.isna(entry) or entry in legal or _is_number(entry))
        )
        row = next(wrong)
        raise ValueError(f"{where}, row {row}: expected a number, found {str(entries[row])[:40]!r}") from None
    problem = nonfinite(where, array, allow_nan=may_lack)
    if problem:
        raise ValueError(problem)
    return array


def _lists(where: str, entries: np.ndarray) -> np.ndarray:
    try:
        lengths = {len(entry) for entry in entries}
    except TypeError:
        raise ValueError(f"{where}: a cell holds no list, others do") from None
    if len(lengths) > 1:
        raise ValueError(f"{where}: its lists have from {min(lengths)} to {max(lengths)} entries")
    try:
        return np.stack([np.asarray(entry) for entry in entries])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _is_number(entry: Any) -> bool:
    try:
        float(entry)
    except (TypeError, ValueError):
        return False
    return True
