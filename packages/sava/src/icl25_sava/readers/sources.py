"""Tables of any file format as one thing: a schema, and batches of some columns in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

__all__ = ["TableSource", "open_table"]

_BLOCK_BYTES = 16 << 20
# What counts as nothing in a text table. A label spelled "None" or "null" stays a label only if it is quoted.
_NULL_SPELLINGS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "#N/A"]


@dataclass(frozen=True)
class TableSource:
    """A table on disk.

    Attributes:
        path: File or folder, for errors.
        schema: Names and types of the columns.
        batches: Opens the table anew and gives the columns asked for, in order, a bounded number of rows at a time.
        is_text: Whether types were guessed from text; label and id columns are then read as text.
        class_names: For columns of class numbers, the names they stand for.
        index_columns: Columns that hold row numbers of the program that wrote the file.
    """

    path: Path
    schema: pa.Schema
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]
    is_text: bool = False
    class_names: dict[str, list[str]] = field(default_factory=dict)
    index_columns: tuple[str, ...] = ()


def open_table(path: Path, chunk_rows: int, text_columns: Sequence[str]) -> TableSource:
    """Open a CSV, TSV, Parquet, Arrow or Feather file, a folder of Parquet files or a Hugging Face dataset folder.

    Args:
        path: File or folder.
        chunk_rows: Rows per batch, where the format leaves the choice.
        text_columns: Columns of a text table whose type must not be guessed.

    Returns:
        The table; nothing but its schema is read yet.

    Raises:
        ValueError: If it cannot be read.
    """
    try:
        if path.is_dir() and any(path.glob("*.parquet")) and not (path / "state.json").exists():
            return _parquet(path, sorted(path.glob("*.parquet")), chunk_rows)
        if path.is_dir():
            return _hugging_face(path, chunk_rows)
        suffixes = [suffix.lower() for suffix in path.suffixes]
        if ".csv" in suffixes[-2:] or ".tsv" in suffixes[-2:]:
            return _text(path, "\t" if ".tsv" in suffixes[-2:] else ",", text_columns)
        if suffixes[-1] in (".parquet", ".pq"):
            return _parquet(path, [path], chunk_rows)
        return _arrow(path, [path], chunk_rows)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise reworded(path, error) from error


def reworded(path: Path, error: Exception) -> ValueError:
    """A reader's error in one line that names the file."""
    message = (str(error).splitlines() or [type(error).__name__])[0]
    return ValueError(f"{path}: cannot be read, it is corrupt or no such table ({message})")


def _text(path: Path, delimiter: str, text_columns: Sequence[str]) -> TableSource:
    """A CSV or TSV file with a header line."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: the file is empty")

    def open_reader(columns: Sequence[str] | None, types: dict[str, pa.DataType]) -> pacsv.CSVStreamingReader:
        return pacsv.open_csv(
            path,
            # One thread, so that errors can tell the row.
            read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(columns or []),
                column_types=types,
                null_values=_NULL_SPELLINGS,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    with open_reader(None, {}) as reader:
        guessed = reader.schema
        if next(iter(reader), None) is None:
            raise ValueError(f"{path}: the table holds no rows")
    # An integer column may hold fractions further down than the guess looked, so numbers are read as float64.
    types = {f.name: pa.float64() if _is_number(f.type) else f.type for f in guessed}
    types |= {name: pa.string() for name in text_columns}
    schema = pa.schema([(name, types[name]) for name in guessed.names]) if _unique(guessed) else guessed

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with open_reader(columns, {name: types[name] for name in columns}) as reader:
            yield from reader

    return TableSource(path, schema, batches, is_text=True, index_columns=("",) if "" in guessed.names else ())


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _unique(schema: pa.Schema) -> bool:
    return len(set(schema.names)) == len(schema.names)


def _parquet(path: Path, files: list[Path], chunk_rows: int) -> TableSource:
    """One Parquet file, or several of one schema in order of their names."""
    schema = pq.read_schema(files[0])
    for file in files[1:]:
        other = pq.read_schema(file)
        if other.names != schema.names or other.types != schema.types:
            raise ValueError(f"{file}: its columns or their types differ from those of {files[0].name}")

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in files:
            with pq.ParquetFile(file, pre_buffer=False) as reader:
                yield from reader.iter_batches(batch_size=chunk_rows, columns=list(columns))

    return TableSource(path, schema, batches, index_columns=_pandas_index(schema))


def _pandas_index(schema: pa.Schema) -> tuple[str, ...]:
    """Columns in which pandas stored an index without a name."""
    described = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    return tuple(name for name in described if isinstance(name, str) and name.startswith("__index_level_"))


def _arrow(
    path: Path, files: list[Path], chunk_rows: int, class_names: dict[str, list[str]] | None = None
) -> TableSource:
    """Arrow files in stream or file format, one after the other."""
    with pa.memory_map(str(files[0])) as mapped, _ipc_reader(mapped) as reader:
        schema = reader.schema

    def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in files:
            with pa.memory_map(str(file)) as mapped, _ipc_reader(mapped) as reader:
                if isinstance(reader, pa.RecordBatchFileReader):
                    stored = (reader.get_batch(k) for k in range(reader.num_record_batches))
                else:
                    stored = iter(reader)
                for batch in stored:
                    part = batch.select(list(columns))
                    yield from (part.slice(start, chunk_rows) for start in range(0, part.num_rows, chunk_rows))

    return TableSource(path, schema, batches, class_names=class_names or {}, index_columns=_pandas_index(schema))


def _ipc_reader(mapped: pa.MemoryMappedFile) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    magic = mapped.read(6)
    mapped.seek(0)
    return pa.ipc.open_file(mapped) if magic == b"ARROW1" else pa.ipc.open_stream(mapped)


def _hugging_face(path: Path, chunk_rows: int) -> TableSource:
    """A folder that ``datasets.Dataset.save_to_disk`` wrote."""
    state = _json(path / "state.json")
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise ValueError(f"{path}: its rows are re-ordered by an index file; save it again after flatten_indices()")
    names = [entry["filename"] for entry in state.get("_data_files", [])]
    files = [path / name for name in names] if names else sorted(path.glob("*.arrow"))
    missing = [file.name for file in files if not file.exists()]
    if missing or not files:
        what = f"state.json names {missing[0]}, which does not exist" if missing else "it holds no .arrow file"
        raise ValueError(f"{path}: {what}")
    columns = _json(path / "dataset_info.json").get("features") or {}
    class_names = {
        name: kind["names"] for name, kind in columns.items() if isinstance(kind, dict) and kind.get("names")
    }
    return _arrow(path, files, chunk_rows, class_names)


def _json(path: Path) -> dict:
    """A JSON object, or an empty one where the file does not exist."""
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
