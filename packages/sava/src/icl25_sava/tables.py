"""The files that come out: a table of values with a row per training row, and lists of the rows to keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from jaxtyping import Shaped

from icl25_sava.readers.common import check_unique_ids, parse_text, unknown_name
from icl25_shared.files import atomic_path

__all__ = ["COLUMNS", "read_values", "write_kept", "write_values"]

COLUMNS = ("id", "label", "value", "score", "rank", "batch", "nearest_id", "nearest_cost")
"""Columns of a table of values, in order; the last two may be absent."""

_REQUIRED = COLUMNS[:6]
_MINIMUM = ("id", "value")
_TEXT = ("id", "label", "nearest_id")


def write_values(path: str | Path, table: pd.DataFrame, force: bool = False) -> None:
    """Write a table of values as Parquet or CSV, by the suffix; a crash leaves no half of a file.

    Args:
        path: ``.parquet``, ``.pq`` or ``.csv``.
        table: The columns of `COLUMNS`; ``nearest_id`` and ``nearest_cost`` may be absent, others are refused.
        force: Replace an existing file.

    Raises:
        ValueError: If the suffix or a column is unknown, or one is missing.
        FileExistsError: If the file exists and ``force`` is false.

    Source: ours.
    """
    path = Path(path)
    suffix = _suffix(path, (".parquet", ".pq", ".csv"))
    absent = [name for name in _REQUIRED if name not in table]
    unknown = [name for name in table if name not in COLUMNS]
    if absent or unknown:
        what = f"lacks the columns {', '.join(absent)}" if absent else f"has unknown columns {', '.join(unknown)}"
        raise ValueError(f"the table of values {what}; expected {', '.join(COLUMNS)}")
    table = table[[name for name in COLUMNS if name in table]]
    with atomic_path(path, force=force) as part:
        if suffix == ".csv":
            table.to_csv(part, index=False)
        else:
            pq.write_table(pa.Table.from_pandas(table, preserve_index=False), part)


def read_values(path: str | Path) -> pd.DataFrame:
    """Read a table of values back; numbers, and ids such as "007", come back as they were.

    Args:
        path: Parquet or CSV with at least ``id`` and ``value``.

    Returns:
        The table, all columns of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If it is corrupt or empty, lacks a column, holds a value that is no finite number, or repeats an id.

    Source: ours.
    """
    path = Path(path)
    suffix = _suffix(path, (".parquet", ".pq", ".csv"))
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        if suffix == ".csv":
            # Numbers come back to the last bit in every version, which pandas does not promise.
            options = pacsv.ConvertOptions(
                column_types=dict.fromkeys(_TEXT, pa.string()), null_values=[""], strings_can_be_null=True
            )
            parsing = pacsv.ParseOptions(newlines_in_values=True)
            table = pacsv.read_csv(path, parse_options=parsing, convert_options=options).to_pandas()
        else:
            table = pq.read_table(path).to_pandas()
    except (pa.ArrowException, OSError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path}: not a readable table of values ({message})") from error
    for name in _MINIMUM:
        if name not in table:
            raise unknown_name(str(path), "column", name, table.columns)
    if len(table) == 0:
        raise ValueError(f"{path}: the table holds no rows")
    if suffix == ".csv":
        for name in _TEXT:
            if name in table and not table[name].isna().any():
                table[name] = parse_text(table[name].to_numpy(dtype=np.str_))
    _check_values(table, path)
    return table


def _check_values(table: pd.DataFrame, path: Path) -> None:
    """Refuse what cannot be ranked or told apart."""
    if not pd.api.types.is_numeric_dtype(table["value"]):
        numbers = pd.to_numeric(table["value"], errors="coerce")
        row = int(numbers.isna().to_numpy().argmax())
        found = table["value"].iloc[row]
        raise ValueError(f'{path}: column "value", row {row}: expected a number, found {found!r}')
    bad = ~np.isfinite(table["value"].to_numpy(dtype=np.float64))
    if bad.any():
        raise ValueError(f'{path}: column "value" has {bad.sum()} non-finite entries, first at row {bad.argmax()}')
    if table["id"].isna().any():
        raise ValueError(f'{path}: column "id" has missing ids, first at row {table["id"].isna().to_numpy().argmax()}')
    ids = table["id"].to_numpy()
    check_unique_ids(ids.astype(np.str_) if ids.dtype.kind == "O" else ids, f'{path}: column "id"')


def write_kept(path: str | Path, ids: Shaped[np.ndarray, " k"], force: bool = False) -> None:
    """Write the ids of the rows to keep: CSV or Parquet with a column ``id``, NPY, or text with one id a line.

    Args:
        path: ``.csv``, ``.parquet``, ``.pq``, ``.npy`` or ``.txt``.
        ids: (k,) ids.
        force: Replace an existing file.

    Raises:
        ValueError: If the suffix is unknown, or the ids are not 1-D or hold objects that NPY would have to pickle.
        FileExistsError: If the file exists and ``force`` is false.

    Source: ours.
    """
    path, ids = Path(path), np.asarray(ids)
    suffix = _suffix(path, (".csv", ".parquet", ".pq", ".npy", ".txt"))
    if ids.ndim != 1:
        raise ValueError(f"ids has shape {ids.shape}, expected (k,)")
    if ids.dtype.kind == "O":
        ids = ids.astype(np.str_)
    with atomic_path(path, force=force) as part:
        if suffix == ".npy":
            np.save(part, ids, allow_pickle=False)
        elif suffix == ".txt":
            part.write_text("".join(f"{i}\n" for i in ids), encoding="utf-8")
        elif suffix == ".csv":
            pd.DataFrame({"id": ids}).to_csv(part, index=False)
        else:
            pq.write_table(pa.table({"id": ids}), part)


def _suffix(path: Path, known: tuple[str, ...]) -> str:
    suffix = path.suffix.lower()
    if suffix not in known:
        raise ValueError(f"{path}: unknown kind of file {suffix!r}, expected one of {', '.join(known)}")
    return suffix
