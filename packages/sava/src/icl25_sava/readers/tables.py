"""Features, labels and ids out of tables, a bounded number of rows at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from icl25_sava.readers.common import (
    Dataset,
    RowSpool,
    check_present,
    check_unique_ids,
    clean_labels,
    parse_text,
    shorten,
    unknown_name,
)
from icl25_sava.readers.sources import TableSource, open_table, reworded

__all__ = ["read_table"]

_log = logging.getLogger(__name__)


def read_table(
    path: Path,
    label: str | None,
    features: str | Sequence[str] | None,
    embedding: str | None,
    id_column: str | None,
    chunk_rows: int,
    memory_limit_mb: float | int,
) -> Dataset:
    """Read a table; `read_dataset` describes the arguments.

    Returns:
        The rows.

    Raises:
        ValueError: If the table or a column of it cannot be used.
    """
    keys = [name for name in (label, id_column) if name is not None]
    source = open_table(path, chunk_rows, keys)
    _check_names(source, keys)
    columns, as_lists = _choose_columns(source, features, embedding, keys)
    dtype = np.result_type(np.float32, *(_number_type(source, name) for name in columns)) if not as_lists else None
    wanted = list(dict.fromkeys([*columns, *keys]))
    labels: list[pa.Array] = []
    ids: list[pa.Array] = []
    n_rows = width = 0
    with RowSpool(memory_limit_mb) as spool:
        try:
            for batch in source.batches(wanted):
                if dtype is None:
                    block = _lists(batch.column(columns[0]), path, columns[0], n_rows)
                    if batch.num_rows and block.shape[1] != (width := width or block.shape[1]):
                        _raise_ragged(path, columns[0], n_rows, block.shape[1], width)
                else:
                    block = np.empty((batch.num_rows, len(columns)), dtype)
                    for j, name in enumerate(columns):
                        block[:, j] = _numbers(batch.column(name))
                spool.append(block)
                if label is not None:
                    labels.append(batch.column(label))
                if id_column is not None:
                    ids.append(batch.column(id_column))
                n_rows += batch.num_rows
        except (pa.ArrowException, OSError, EOFError) as error:
            for name in columns if source.is_text else []:
                _raise_if_text(source, name)
            raise reworded(path, error) from error
        X = spool.finish()
    if X is None:
        raise ValueError(f"{path}: the table holds no rows")
    y = None if label is None else _labels(source, label, labels, n_rows)
    names = tuple(f"{columns[0]}[{j}]" for j in range(X.shape[1])) if as_lists else tuple(columns)
    row_ids = np.arange(n_rows) if id_column is None else _ids(source, id_column, ids)
    return Dataset(X, y, row_ids, names, str(path))


def _check_names(source: TableSource, names: Sequence[str]) -> None:
    """Refuse columns that do not exist, or of which there are two."""
    existing = source.schema.names
    for name in names:
        if name not in existing:
            raise unknown_name(str(source.path), "column", name, existing)
    twice = sorted({name for name in existing if existing.count(name) > 1})
    if twice:
        raise ValueError(f"{source.path}: column name {twice[0]!r} occurs more than once")


def _choose_columns(
    source: TableSource, features: str | Sequence[str] | None, embedding: str | None, keys: Sequence[str]
) -> tuple[list[str], bool]:
    """The feature columns, and whether it is one column of lists."""
    path, kinds = source.path, {field.name: field.type for field in source.schema}
    if embedding is not None:
        _check_names(source, [embedding])
        if _list_depth(kinds[embedding]) == 0:
            raise ValueError(f'{path}: column "{embedding}" holds {kinds[embedding]}, expected lists of numbers')
        return [embedding], True
    if features is None:
        return _default_columns(source, kinds, keys)
    patterns = [part.strip() for part in features.split(",")] if isinstance(features, str) else list(features)
    chosen: list[str] = []
    for pattern in patterns:
        if pattern in keys:
            raise ValueError(f"{path}: column {pattern!r} is the label or the id, it cannot be a feature too")
        matches = [pattern] if pattern in kinds else [n for n in kinds if fnmatchcase(n, pattern) and n not in keys]
        if not matches:
            raise unknown_name(str(path), "column", pattern, kinds)
        chosen += matches
    chosen = list(dict.fromkeys(chosen))
    if len(chosen) == 1 and _list_depth(kinds[chosen[0]]):
        return chosen, True
    for name in chosen:
        if not _is_numeric(kinds[name]) and not (source.is_text and pa.types.is_null(kinds[name])):
            _raise_if_text(source, name)
            raise ValueError(f'{path}: column "{name}" holds {kinds[name]}, expected numbers')
    return chosen, False


def _default_columns(source: TableSource, kinds: dict[str, pa.DataType], keys: Sequence[str]) -> tuple[list[str], bool]:
    """Every column of numbers, or the only column of lists."""
    others = [name for name in kinds if name not in keys]
    numeric = [name for name in others if _is_numeric(kinds[name]) and name not in source.index_columns]
    lists = [name for name in others if _list_depth(kinds[name])]
    if numeric and lists:
        raise ValueError(
            f"{source.path}: both columns of numbers ({shorten(numeric)}) and columns of lists ({shorten(lists)}) "
            "could be the features: choose with features or embedding"
        )
    if len(lists) == 1:
        return lists, True
    if not numeric:
        found = f"columns of lists {shorten(lists)}: choose one with embedding" if lists else shorten(list(kinds))
        raise ValueError(f"{source.path}: no column of numbers to use as features; it has {found}")
    unused = [name for name in others if name not in numeric]
    if unused:
        _log.warning("%s: not used as features, as they hold no numbers: %s", source.path, shorten(unused))
    return numeric, False


def _is_numeric(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)


def _list_depth(kind: pa.DataType) -> int:
    """How many levels of lists lie over numbers; 0 where it is no such list."""
    depth = 0
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind, depth = kind.value_type, depth + 1
    return depth if _is_numeric(kind) else 0


def _number_type(source: TableSource, name: str) -> np.dtype:
    """The type in which NumPy holds a column exactly, as far as float64 can."""
    kind = source.schema.field(name).type
    if pa.types.is_boolean(kind):
        return np.dtype(np.bool_)
    exact = not pa.types.is_decimal(kind) and not pa.types.is_null(kind)
    return np.dtype(kind.to_pandas_dtype() if exact else np.float64)


def _numbers(column: pa.Array) -> np.ndarray:
    """A column as numbers, NaN where one is missing."""
    if pa.types.is_decimal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    if column.null_count and not pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    return column.to_numpy(zero_copy_only=False)


def _lists(column: pa.Array, path: Path, name: str, first_row: int) -> np.ndarray:
    """A column of equally long lists, nested or not, as rows of numbers."""
    n_rows = len(column)
    values = column.storage if isinstance(column, pa.ExtensionArray) else column
    entries = 1
    while _list_depth(values.type):
        if values.null_count:
            row = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0] // entries
            raise ValueError(f'{path}: column "{name}" has no list at row {first_row + row}')
        if pa.types.is_fixed_size_list(values.type):
            length = values.type.list_size
        else:
            lengths = pc.call_function("list_value_length", [values]).to_numpy(zero_copy_only=False)
            length = int(lengths[0]) if n_rows else 0
            odd = np.flatnonzero(lengths != length)
            if len(odd):
                _raise_ragged(path, name, first_row + int(odd[0]) // entries, int(lengths[odd[0]]), length)
        values, entries = values.flatten(), entries * length
    if n_rows and entries == 0:
        raise ValueError(f'{path}: column "{name}" holds empty lists')
    numbers = _numbers(values)
    return numbers.astype(np.result_type(numbers.dtype, np.float32), copy=False).reshape(n_rows, entries)


def _raise_ragged(path: Path, name: str, row: int, length: int, expected: int) -> None:
    raise ValueError(f'{path}: column "{name}" has {length} numbers at row {row}, {expected} in the rows before')


def _raise_if_text(source: TableSource, name: str) -> None:
    """Look for the first entry of a column that is no number, and raise an error that quotes it."""
    table = open_table(source.path, 65536, [name]) if source.is_text else source
    batches = table.batches([name])
    row = 0
    try:
        for batch in batches:
            column = batch.column(0)
            if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                return
            # Python looks only at the block in which Arrow finds that something is no number.
            for offset, entry in enumerate([] if _is_castable(column) else column.to_pylist()):
                if entry is not None and not _reads_as_number(entry):
                    where = f'{source.path}: column "{name}", row {row + offset}'
                    raise ValueError(f"{where}: expected a number, found {entry[:40]!r}")
            row += batch.num_rows
    except (pa.ArrowException, OSError):
        return


def _is_castable(column: pa.Array) -> bool:
    try:
        column.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text_or_numbers(source: TableSource, name: str, column: pa.Array) -> np.ndarray:
    """A key column without nulls as an array of integers, floats, booleans or strings."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        texts = np.asarray(column.to_pylist(), dtype=np.str_)
        return parse_text(texts) if source.is_text else texts
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column.to_numpy(zero_copy_only=False)
    raise ValueError(f'{source.path}: column "{name}" holds {kind}, expected integers, booleans, floats or strings')


def _whole(chunks: list[pa.Array]) -> pa.Array:
    """Chunks of a column in one array, dictionaries decoded."""
    decoded = [chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks]
    whole = pa.chunked_array(decoded).combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _labels(source: TableSource, name: str, chunks: list[pa.Array], n_rows: int) -> np.ndarray:
    """The labels; class numbers of a Hugging Face dataset by the names they stand for."""
    column, where = _whole(chunks), f'{source.path}: column "{name}"'
    missing = column.is_null().to_numpy(zero_copy_only=False)
    check_present(missing, where)
    labels = _text_or_numbers(source, name, column)
    names = source.class_names.get(name)
    if names and labels.dtype.kind in "iu":
        # The Hugging Face convention: -1 stands for no label.
        check_present(labels == -1, where)
        if not ((labels >= 0) & (labels < len(names))).all():
            raise ValueError(f"{where} has class numbers beyond its {len(names)} class names")
        return parse_text(np.asarray(names, dtype=np.str_)[labels])
    return clean_labels(labels, n_rows, where)


def _ids(source: TableSource, name: str, chunks: list[pa.Array]) -> np.ndarray:
    """The ids, each once."""
    column, where = _whole(chunks), f'{source.path}: column "{name}"'
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if missing.any():
        raise ValueError(f"{where} has {missing.sum()} missing ids, first at row {missing.argmax()}")
    ids = _text_or_numbers(source, name, column)
    check_unique_ids(ids, where)
    return ids
