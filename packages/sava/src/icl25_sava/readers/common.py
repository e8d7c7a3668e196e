"""What all readers share: the result, rows that spill to disk, labels and ids made uniform, wording of errors."""

from __future__ import annotations

import difflib
import math
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from jaxtyping import Float, Shaped

__all__ = [
    "Dataset",
    "RowSpool",
    "as_float_rows",
    "check_present",
    "check_unique_ids",
    "clean_labels",
    "parse_text",
    "shorten",
    "unknown_name",
]

_MOST_NAMES = 20


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows read from a file or folder.

    Attributes:
        X: (n, d) floating-point features: an array, or a read-only memory map where they exceed the memory limit or
            lie in an NPY file. A missing number is NaN.
        y: (n,) labels (integers, floats, booleans or strings), or None.
        ids: (n,) the id column, the paths of images, or the row numbers from 0.
        feature_names: d names.
        source: Path that was read.
        image_shape: (height, width) or (height, width, channels) of a row where rows are images, else None.
    """

    X: Float[np.ndarray, "n d"]
    y: Shaped[np.ndarray, " n"] | None
    ids: Shaped[np.ndarray, " n"]
    feature_names: tuple[str, ...]
    source: str
    image_shape: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.X)


class RowSpool:
    """Collects blocks of rows, in memory at first and in a temporary NPY file once they exceed a limit.

    Args:
        memory_limit_mb: Megabytes of rows to hold in memory.
    """

    def __init__(self, memory_limit_mb: float | int) -> None:
        self._limit = memory_limit_mb * 2**20
        self._blocks: list[np.ndarray] = []
        self._n_rows = 0
        self._n_bytes = 0
        self._folder: Path | None = None
        self._file: BinaryIO | None = None
        self._like = np.empty((0, 0))

    def __enter__(self) -> RowSpool:
        return self

    def __exit__(self, *exc: object) -> None:
        # A folder that is still ours was never handed over by `finish`: reading failed.
        if self._file is not None:
            self._file.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def append(self, rows: Float[np.ndarray, "b d"]) -> None:
        """Add rows; all blocks have one dtype and width."""
        if len(rows) == 0:
            return
        self._blocks.append(rows)
        self._n_rows += len(rows)
        self._n_bytes += rows.nbytes
        if self._file is not None or self._n_bytes > self._limit:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._folder = Path(tempfile.mkdtemp(prefix="icl25-sava-rows-"))
            self._file = (self._folder / "rows.npy").open("w+b")
            self._like = np.empty_like(self._blocks[0][:0])
            self._write_header()
        for block in self._blocks:
            self._file.write(np.ascontiguousarray(block).data)
        self._blocks.clear()

    def _write_header(self) -> None:
        # NumPy pads the header so that the first axis may grow in place: it is written anew at the end.
        file = cast("BinaryIO", self._file)
        file.seek(0)
        shape = (self._n_rows, self._like.shape[1])
        header = {"descr": np.lib.format.dtype_to_descr(self._like.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)

    def finish(self) -> Float[np.ndarray, "n d"] | None:
        """All rows, in memory or as a memory map whose file is removed with its last view; None if there are none."""
        if self._file is None:
            return np.concatenate(self._blocks) if self._blocks else None
        self._write_header()
        self._file.close()
        folder = cast("Path", self._folder)
        rows = np.load(folder / "rows.npy", mmap_mode="r", allow_pickle=False)
        weakref.finalize(rows._mmap, shutil.rmtree, folder, ignore_errors=True)
        self._file = self._folder = None
        return rows


def as_float_rows(array: np.ndarray, where: str) -> Float[np.ndarray, "n d"]:
    """Numbers of any kind as floating-point rows of one axis; floating-point rows pass without a copy.

    Small integers and booleans become float32, which holds them exactly, others float64.

    Args:
        array: (n, ...) numbers.
        where: Name for errors.

    Returns:
        (n, d) rows.

    Raises:
        ValueError: If the array has fewer than two axes or does not hold real numbers.
    """
    if array.ndim < 2:
        raise ValueError(f"{where} has shape {array.shape}, expected rows and features, (n, d)")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{where} holds {array.dtype}, expected numbers")
    rows = array.reshape(len(array), math.prod(array.shape[1:]))
    if array.dtype.kind != "f":
        return rows.astype(np.result_type(array.dtype, np.float32))
    return rows


def clean_labels(labels: np.ndarray, n_rows: int, where: str) -> Shaped[np.ndarray, " n"]:
    """Labels with nothing missing, as an array of integers, floats, booleans or strings.

    Args:
        labels: The labels.
        n_rows: How many there must be.
        where: Name for errors.

    Returns:
        (n,) labels.

    Raises:
        ValueError: If the shape is wrong, the kind is not one of the four, or a label is missing (None or NaN).
    """
    if labels.ndim != 1:
        hint = ": one-hot labels become integers by argmax(axis=1)" if labels.ndim == 2 else ""
        raise ValueError(f"{where} has shape {labels.shape}, expected one label per row, ({n_rows},){hint}")
    if len(labels) != n_rows:
        raise ValueError(f"{where} has {len(labels)} labels, expected one for each of {n_rows} rows")
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind not in "biufU":
        raise ValueError(f"{where} holds {labels.dtype}, expected integers, booleans, floats or strings")
    if labels.dtype.kind == "f":
        check_present(np.isnan(labels), where)
    return labels


def check_present(missing: np.ndarray, where: str) -> None:
    """Raise when labels are missing, with their count and first row."""
    if missing.any():
        raise ValueError(f"{where} has {missing.sum()} missing labels, first at row {missing.argmax()}")


def parse_text(texts: np.ndarray) -> Shaped[np.ndarray, " n"]:
    """Text as int64 where all entries are integers in plain spelling, as float64 where all are numbers, else as text.

    "007" is not the plain spelling of 7: such a column stays text, so that no id or label changes its identity.
    """
    texts = np.asarray(texts, dtype=np.str_)
    known, inverse = np.unique(texts, return_inverse=True)
    digits = np.char.lstrip(known, "-")
    whole, lengths = np.char.isdecimal(digits), np.char.str_len(digits)
    if whole.all() and (lengths < 19).all():
        numbers = known.astype(np.int64)
        return numbers[inverse] if (numbers.astype(np.str_) == known).all() else texts
    try:
        floats = known.astype(np.float64)
    except ValueError:
        return texts
    # A float holds an integer of 15 digits.
    plain = ~whole | ((lengths < 16) & ((lengths == 1) | ~np.char.startswith(digits, "0")))
    return floats[inverse] if np.isfinite(floats).all() and plain.all() else texts


def check_unique_ids(ids: np.ndarray, where: str) -> None:
    """Raise when an id occurs twice, naming it and its rows."""
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(again):
        first = again[np.argmin(order[again + 1])]
        rows = f"rows {order[first]} and {order[first + 1]}"
        raise ValueError(f"{where} has {len(again)} duplicate ids, first {ids[order[first]].item()!r} at {rows}")


def unknown_name(where: str, kind: str, name: str, existing: Iterable[str]) -> ValueError:
    """The error for a name that does not exist: the nearest one, and a list of what there is."""
    names = list(existing)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f", did you mean {close[0]!r}?" if close else ";"
    return ValueError(f"{where} has no {kind} {name!r}{hint} it has {shorten(names)}")


def shorten(names: Sequence[Any]) -> str:
    """The first names of a list, joined, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(str, names[:_MOST_NAMES])) + more
