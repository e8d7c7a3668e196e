"""Readers of the files and folders that users have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from icl25_sava.readers.common import Dataset

__all__ = ["Dataset", "read_dataset"]

_TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".pq", ".arrow", ".feather")


def read_dataset(
    path: str | Path,
    *,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    embedding: str | None = None,
    id_column: str | None = None,
    chunk_rows: int = 65536,
    mmap: bool = True,
    memory_limit_mb: float | int = 512.0,
) -> Dataset:
    """Read features, labels and ids from a file or folder, never holding more of it in memory than the limit.

    Formats: CSV and TSV (also .gz), Parquet, Arrow and Feather files; a folder of Parquet files; a Hugging Face dataset
    folder (``save_to_disk``); NPZ with ``X`` and perhaps ``y`` and ``ids``; ``a.npy`` with its labels in ``a_y.npy``
    or ``a.labels.npy``; a folder with a sub-folder of PNG, JPEG or TIFF images per class. Nothing is ever unpickled.

    Args:
        path: File or folder.
        label: Column (or NPZ array) of the labels. NPY files and image folders have theirs by layout; there it says
            only that labels must exist. Without it tables give no labels and NPZ files give ``y`` if they have it.
        features: Feature columns: names or globs, in one string split at commas (``"age,f*"``) or a sequence. Default:
            every column of numbers or booleans except label and id. In an NPZ file, the name of the array.
        embedding: One column of equally long lists of numbers, instead of ``features``. In an NPZ file, the array.
        id_column: Column (or NPZ array) of unique ids. Default: row numbers from 0; of images, their paths.
        chunk_rows: Rows read at a time.
        mmap: Open NPY features as a memory map instead of reading them.
        memory_limit_mb: Features of tables and images beyond this size go to a temporary file, opened as a memory map,
            which is removed when the last array that views it is gone.

    Returns:
        The rows. Numbers missing from a table are NaN.

    Raises:
        FileNotFoundError: If the path does not exist.
        ValueError: If the format is unknown, the file is corrupt or empty, a column is missing, ambiguous or not of
            numbers, lists or images differ in size, labels are missing or ids repeat. Rows count from 0.

    Source: ours.
    """
    path = Path(path)
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows is {chunk_rows}, expected 1 or more")
    if features is not None and embedding is not None:
        raise ValueError("features and embedding exclude each other: give one")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    suffix = "".join(path.suffixes[-2:]).lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if path.is_dir():
        layout = _folder_layout(path)
    elif suffix in (".npz", ".npy"):
        layout = suffix[1:]
    elif suffix in _TABLES:
        layout = "table"
    else:
        known = ", ".join([*_TABLES, ".npz", ".npy"])
        raise ValueError(f"{path}: unknown kind of file {suffix!r}, expected one of {known}, or a folder")

    if layout == "table":
        from icl25_sava.readers.tables import read_table

        return read_table(path, label, features, embedding, id_column, chunk_rows, memory_limit_mb)
    if layout == "images":
        from icl25_sava.readers.images import read_images

        _refuse_columns(path, "an image folder", features, embedding, id_column)
        return read_images(path, memory_limit_mb)
    from icl25_sava.readers.arrays import read_npy, read_npz

    if layout == "npz":
        if features is not None and not isinstance(features, str):
            raise ValueError(f"{path}: features names one array of an NPZ file, got {list(features)}")
        return read_npz(path, label, features or embedding, id_column)
    _refuse_columns(path, "an NPY file", features, embedding, id_column)
    return read_npy(path, label is not None, mmap, chunk_rows, memory_limit_mb)


def _folder_layout(path: Path) -> str:
    """What a folder holds: "table" or "images"."""
    if (path / "dataset_dict.json").exists():
        splits = sorted(child.name for child in path.iterdir() if child.is_dir())
        raise ValueError(f"{path}: holds the splits {', '.join(splits)}: give the folder of one of them")
    if (path / "state.json").exists() or (path / "dataset_info.json").exists() or any(path.glob("*.parquet")):
        return "table"
    if any(child.is_dir() and not child.name.startswith(".") for child in path.iterdir()):
        return "images"
    found = sorted(child.name for child in path.iterdir())
    what = f"it holds {', '.join(found[:5])}" if found else "it is empty"
    raise ValueError(
        f"{path}: not a known kind of folder (a Hugging Face dataset with state.json, Parquet files, or a sub-folder "
        f"of images per class); {what}"
    )


def _refuse_columns(path: Path, what: str, *choices: object) -> None:
    """Options that choose columns cannot be honoured where there are none."""
    if any(choice is not None for choice in choices):
        raise ValueError(f"{path}: {what} has no columns, so features, embedding and id_column do not apply")
