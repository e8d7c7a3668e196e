"""Confidences put into the table that they were learned from, beside its other columns."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from icl25_shared import atomic_path

__all__ = ["keeps_columns", "write_confidence_column"]

_PARQUET = (".parquet", ".pq")


def keeps_columns(source: str | PathLike[str], out: str | PathLike[str]) -> bool:
    """Whether one file can hold what the other holds, because both are tables of the same kind.

    Args:
        source: The one file.
        out: The other.

    Returns:
        True for two CSV files or two Parquet files.
    """
    kinds = [Path(path).suffix.lower() for path in (source, out)]
    return kinds == [".csv", ".csv"] or all(kind in _PARQUET for kind in kinds)


def write_confidence_column(
    source: str | PathLike[str],
    out: str | PathLike[str],
    confidence: Float[np.ndarray, " n"],
    column: str = "confidence",
    *,
    force: bool = False,
) -> None:
    """Copy a table, with confidences in one of its columns, or in a new one at its end.

    Args:
        source: CSV or Parquet file with n rows.
        out: File of the same kind.
        confidence: The confidences, (n,).
        column: Name of the column.
        force: Replace a file that exists.

    Raises:
        ValueError: If the numbers of rows differ.
        FileExistsError: If the file exists and ``force`` is false.
    """
    if Path(source).suffix.lower() == ".csv":
        # As text, so that all other cells stay what they are.
        table: Any = pd.read_csv(source, dtype=str, keep_default_na=False, encoding="utf-8-sig", index_col=False)
        _check_rows(len(table), confidence)
        table[column] = [repr(float(r)) for r in confidence]
        with atomic_path(out, force=force) as path:
            table.to_csv(path, index=False)
        return
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(source)
    _check_rows(len(table), confidence)
    values = pa.array(np.asarray(confidence, np.float64))
    if column in table.column_names:
        table = table.set_column(table.column_names.index(column), column, values)
    else:
        table = table.append_column(column, values)
    with atomic_path(out, force=force) as path:
        parquet.write_table(table, path)


def _check_rows(n: int, confidence: Float[np.ndarray, " n"]) -> None:
    if n != len(confidence):
        raise ValueError(f"the table has {n} rows, expected {len(confidence)}, as many as confidences")
