"""Rows that somebody has looked at: which are bad, and how well values find them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from icl25_sava.evaluation import detection_auc, detection_curve

__all__ = ["detection_summary", "known_rows", "read_flags"]


def read_flags(data: pd.DataFrame | Path, column: str, ids: np.ndarray) -> pd.Series:
    """Which rows are known to be bad (True) or good (False), by id.

    Args:
        data: table with the column, or a CSV or Parquet file with it and a column ``id``.
        column: name of the column: booleans, 0/1, or the words true/false, yes/no, bad/good.
        ids: ids of the valued rows.

    Returns:
        Flags indexed by id, for those of the ids that the table knows.

    Raises:
        ValueError: no such column, another content, or no id in common.
    """
    if isinstance(data, Path):
        path, table = data, _read_audit(data)
        if "id" not in table:
            raise ValueError(f'{path} has no column "id" to join on; it has {", ".join(map(str, table.columns))}')
    else:
        path, table = Path("the table of values"), data
    if column not in table:
        raise ValueError(f'{path} has no column "{column}"; it has {", ".join(map(str, table.columns))}')
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False, "bad": True, "good": False}
    words |= {"1.0": True, "0.0": False}
    flags = table[column].astype(str).str.strip().str.lower().map(words)
    if flags.isna().any():
        row = int(flags.isna().to_numpy().argmax())
        raise ValueError(
            f'{path}, column "{column}", row {row}: expected true or false, found {table[column].iloc[row]!r}'
        )
    joined = pd.Series(flags.astype(bool).to_numpy(), index=table["id"].astype(str))
    known = joined[joined.index.isin(pd.Index(ids).astype(str))]
    if known.empty:
        raise ValueError(f"{path} has no id in common with the values")
    if known.index.has_duplicates:
        raise ValueError(f"{path} names the id {known.index[known.index.duplicated()][0]} twice")
    return known


def known_rows(table: pd.DataFrame, truth: str, audit: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Values of the rows that are known to be bad or good, and which of them are bad.

    Args:
        table: table of values.
        truth: column that says which rows are bad.
        audit: file with that column; the table itself when None.

    Returns:
        Values and flags, shape (k,) each.

    Raises:
        ValueError: no such column, another content, no id in common, or all known rows of one kind.
        FileNotFoundError: no such file.
    """
    source = table if audit is None else audit
    flags = read_flags(source, truth, table["id"].to_numpy())
    values = pd.Series(table["value"].to_numpy(np.float64), index=table["id"].astype(str))
    mask = flags.to_numpy()
    if mask.all() or not mask.any():
        raise ValueError(f'column "{truth}" marks {"all" if mask.all() else "none"} of the known rows as bad')
    return values[flags.index].to_numpy(), mask


def detection_summary(values: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
    """How well low values find bad rows.

    Args:
        values: values, shape (n,).
        mask: which rows are bad, shape (n,).

    Returns:
        ``auc``, ``n``, ``n_bad``, and ``curve``: for some shares of rows inspected, the share of bad rows found and the
        share of bad rows among those inspected.

    Raises:
        ValueError: all rows are bad, or none is.
    """
    curve = detection_curve(values, mask)
    points = []
    for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5):
        inspected = max(1, round(share * len(values)))
        line = curve.iloc[int(np.searchsorted(curve["inspected"].to_numpy(), inspected))]
        found = float(line["found"])
        points.append(
            {
                "inspected": int(inspected),
                "share": share,
                "found": found / int(mask.sum()),
                "precision": found / inspected,
            }
        )
    return {"auc": detection_auc(values, mask), "n": len(values), "n_bad": int(mask.sum()), "curve": points}


def _read_audit(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        if path.suffix in (".parquet", ".pq"):
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype={"id": str})  # as text, or ids such as "007" would lose their zeros
    except (pa.ArrowException, pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path}: not a readable table ({message})") from error
