"""What users pass in, checked at the door: rows in any container, labels of any kind."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer

__all__ = ["MappedRows", "Rows", "encode_labels", "fingerprint", "read_labels", "read_rows", "refuse_non_finite"]

_CHUNK_BYTES = 1 << 20


class MappedRows(NamedTuple):
    """A part of a memory-mapped array by its place on disk, cheap to send to a worker that shares the file system."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    index: Integer[np.ndarray, " b"]

    def load(self) -> np.ndarray:
        """The rows themselves, read now, shape (b, d)."""
        array = np.memmap(self.path, dtype=np.dtype(self.dtype), mode="r", offset=self.offset, shape=self.shape)
        return np.asarray(array[self.index])


class Rows:
    """Random access to the rows of an array or memory map, of which only the part asked for is ever loaded.

    Args:
        array: rows, shape (n, ...); all axes but the first are flattened to d features.
        folder: temporary folder that holds the array's file and must live as long.
    """

    def __init__(self, array: np.ndarray, folder: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self.sample_shape = array.shape[1:]
        self.array = array.reshape(len(array), -1)
        self._folder = folder

    def __len__(self) -> int:
        return len(self.array)

    @property
    def n_features(self) -> int:
        """Number of features d after flattening."""
        return self.array.shape[1]

    def take(self, index: np.ndarray) -> np.ndarray:
        """The rows ``index``, shape (len(index), d), as an ordinary array."""
        return np.asarray(self.array[index])

    def chunks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in order, in pieces of bounded size: (number of the first row, rows)."""
        step = max(1, _CHUNK_BYTES // max(1, self.array.dtype.itemsize * self.n_features))
        for start in range(0, len(self), step):
            yield start, np.asarray(self.array[start : start + step])

    def handle(self, index: np.ndarray) -> MappedRows | np.ndarray:
        """What a worker needs to get at the rows ``index``: their place on disk where there is one, else the rows."""
        array = self.array
        if not (isinstance(array, np.memmap) and array.filename is not None and array.flags.c_contiguous):
            return self.take(index)
        whole = array
        while isinstance(whole.base, np.memmap):
            whole = whole.base
        offset = whole.offset + array.ctypes.data - whole.ctypes.data  # a view's own offset is that of the whole
        return MappedRows(str(array.filename), array.dtype.str, offset, array.shape, index)


def read_rows(X: Any, name: str, labels: Any = None) -> tuple[Rows, Any]:
    """Rows and labels from any container that is supported.

    Args:
        X: NumPy array or memory map, PyTorch tensor (any device), JAX array, pandas DataFrame, pyarrow Table, list of
            lists; shape (n, d), or (n, ...) which is flattened; or an iterable of (X, y) chunks, which is read once and
            spooled to a temporary file. Numeric or boolean, finite.
        name: name of the argument, for errors.
        labels: the labels given beside X; must be None for chunks.

    Returns:
        The rows, and the labels: those given, or those of the chunks.

    Raises:
        ValueError: not two-dimensional, empty, not numeric, or NaN or infinite (count and first place are named).
        TypeError: the container is none of these, or labels come with chunks.
    """
    if _is_chunks(X):
        if labels is not None:
            raise TypeError(
                f"{name} is an iterable of (X, y) chunks, which bring their labels: pass no labels beside it"
            )
        rows, labels = _spool(X, name)
    else:
        rows = Rows(_to_array(X, name))
    for start, chunk in rows.chunks():
        refuse_non_finite(chunk, start, name, _columns(X))
    return rows, labels


def _is_chunks(X: Any) -> bool:
    if hasattr(X, "shape") or hasattr(X, "__array__") or isinstance(X, str | bytes | dict):
        return False
    if isinstance(X, list | tuple):
        return len(X) > 0 and isinstance(X[0], tuple) and len(X[0]) == 2 and np.ndim(X[0][0]) >= 2
    return isinstance(X, Iterable)


def _columns(X: Any) -> list[str] | None:
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    return None if names is None else [str(name) for name in names]


def _to_array(X: Any, name: str) -> np.ndarray:
    kind = type(X).__module__.partition(".")[0]
    if kind == "torch":
        X = X.detach().cpu().numpy()
    elif kind == "pyarrow":
        X = _from_arrow(X, name)
    elif kind == "pandas":
        texts = [str(c) for c, t in X.dtypes.items() if getattr(t, "kind", "O") not in "biuf"] if X.ndim == 2 else []
        if texts:
            raise ValueError(f"{name} has columns that are not numeric: {', '.join(texts[:5])}; encode or drop them")
        X = X.to_numpy(dtype=np.float64, na_value=np.nan) if X.ndim == 2 else X.to_numpy()
    elif kind == "scipy":
        raise TypeError(f"{name} is sparse; pass a dense array (for text, an embedding)")
    if X is None:
        raise TypeError(f"{name} is missing")
    try:
        array = X if isinstance(X, np.ndarray) else np.asarray(X)
    except ValueError as error:
        raise ValueError(f"{name} is not a rectangular array: {error}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}")
    if array.ndim < 2:
        raise ValueError(f"{name} must have two axes (rows, features), got shape {array.shape}")
    if len(array) == 0 or array.size == 0:
        raise ValueError(f"{name} is empty: its shape is {array.shape}")
    if array.dtype.kind == "b" or array.dtype == np.float16:
        array = array.astype(np.float32)
    return array


def _from_arrow(table: Any, name: str) -> np.ndarray:
    columns = table.columns
    if len(columns) == 1 and hasattr(columns[0].type, "value_type"):
        column = columns[0].combine_chunks()
        if column.null_count:
            raise ValueError(f'{name} has {column.null_count} missing embeddings in column "{table.column_names[0]}"')
        flat = column.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), -1)
    parts = []
    for column_name, column in zip(table.column_names, columns, strict=True):
        values = column.to_numpy()
        if values.dtype.kind not in "biuf":
            raise ValueError(f'{name} has a column that is not numeric: "{column_name}"')
        parts.append(values)
    return np.column_stack(parts)


def refuse_non_finite(chunk: np.ndarray, start: int, name: str, columns: list[str] | None) -> None:
    """Refuse NaN and infinity, naming how many there are and where the first is.

    Args:
        chunk: some rows, shape (b, d).
        start: number of the first of them.
        name: what they belong to, for the error.
        columns: names of the d columns, where there are some.

    Raises:
        ValueError: a value is not finite.
    """
    if chunk.dtype.kind != "f" or np.isfinite(chunk.sum(dtype=np.float64)):
        return
    bad = ~np.isfinite(chunk)
    if not bad.any():
        return
    row, column = np.argwhere(bad)[0]
    place = f'"{columns[column]}"' if columns and len(columns) == chunk.shape[1] else str(column)
    kind = "NaN" if np.isnan(chunk[row, column]) else "infinite"
    raise ValueError(
        f"{name} has {int(bad.sum())} values that are NaN or infinite (in the first {start + len(chunk)} rows), "
        f"first a value that is {kind} at row {start + row}, column {place}"
    )


def _spool(chunks: Iterable[Any], name: str) -> tuple[Rows, np.ndarray]:
    """Write chunks one after the other to a temporary file and map it."""
    folder = tempfile.TemporaryDirectory(prefix="icl25-sava-", ignore_cleanup_errors=True)
    path = Path(folder.name) / "rows.bin"
    shape: tuple[int, ...] | None = None
    dtype = np.dtype(np.float32)
    labels: list[np.ndarray] = []
    n = 0
    with path.open("wb") as file:
        for number, chunk in enumerate(chunks):
            try:
                part, part_labels = chunk
            except (TypeError, ValueError):
                raise TypeError(f"{name}: chunk {number} is not a pair (X, y)") from None
            array = _to_array(part, f"{name}, chunk {number}")
            if shape is None:
                shape, dtype = array.shape[1:], np.dtype(array.dtype)
            if array.shape[1:] != shape:
                raise ValueError(
                    f"{name}: chunk {number} has rows of shape {array.shape[1:]}, those before had {shape}"
                )
            y = np.asarray(part_labels)
            if y.shape != (len(array),):
                raise ValueError(f"{name}: chunk {number} has {len(array)} rows but labels of shape {y.shape}")
            np.ascontiguousarray(array, dtype).tofile(file)
            labels.append(y)
            n += len(array)
    if shape is None:
        raise ValueError(f"{name} is empty: the iterable gave no chunk")
    return Rows(np.memmap(path, dtype, mode="r", shape=(n, *shape)), folder), np.concatenate(labels)


def read_labels(y: Any, n_rows: int, name: str, *, ignored: bool = False) -> np.ndarray:
    """Labels as a one-dimensional array of integers, booleans or text.

    Args:
        y: labels, shape (n,): any sortable kind; floats only where they are whole numbers.
        n_rows: number of rows they belong to.
        name: name of the argument, for errors.
        ignored: the labels carry no weight (``lambda_y = 0``): None and continuous targets are let through.

    Returns:
        The labels, shape (n,).

    Raises:
        ValueError: missing, wrong length, one-hot, continuous, NaN, or of mixed kinds.
    """
    if y is None:
        if ignored:
            return np.zeros(n_rows, np.int64)
        raise ValueError(f"{name} is missing; without labels set lambda_y=0")
    if type(y).__module__.partition(".")[0] == "torch":
        y = y.detach().cpu().numpy()
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(
            f"{name} must have one label per row, got shape {labels.shape}; from one-hot rows take argmax(axis=1)"
        )
    if len(labels) != n_rows:
        raise ValueError(f"{name} has {len(labels)} labels for {n_rows} rows")
    if labels.dtype.kind == "f":
        return _whole_numbers(labels, name, ignored)
    if labels.dtype.kind == "O":
        missing = np.array([label is None or label != label for label in labels])
        if missing.any():
            raise ValueError(f"{name} has {int(missing.sum())} missing labels, first at row {int(missing.argmax())}")
        kinds = {type(label) for label in labels.tolist()}
        if not all(issubclass(kind, str) for kind in kinds) and len(kinds) > 1:
            raise ValueError(f"{name} mixes labels of kinds {', '.join(sorted(kind.__name__ for kind in kinds))}")
        labels = np.array(labels.tolist())
    if labels.dtype.kind not in "biuUST":
        raise ValueError(f"{name} must hold integers, booleans or text, got dtype {labels.dtype}")
    return labels


def _whole_numbers(labels: np.ndarray, name: str, ignored: bool) -> np.ndarray:
    bad = ~np.isfinite(labels)
    if bad.any():
        raise ValueError(f"{name} has {int(bad.sum())} labels that are NaN or infinite, first at row {bad.argmax()}")
    if (labels == np.floor(labels)).all():
        return labels.astype(np.int64)
    if ignored:
        return np.zeros(len(labels), np.int64)
    row = int((labels != np.floor(labels)).argmax())
    raise ValueError(
        f"{name} holds continuous targets ({labels[row]:.6g} at row {row}), not classes: bin them, or set lambda_y=0"
    )


def encode_labels(labels: np.ndarray, classes: np.ndarray, name: str) -> Integer[np.ndarray, " n"]:
    """Position of each label in ``classes``.

    Args:
        labels: labels, shape (n,).
        classes: the known classes, shape (k,), in any order.
        name: name of the argument, for errors.

    Returns:
        Class ids, shape (n,).

    Raises:
        ValueError: a label is not among the classes, or of another kind than they are.
    """
    kinds = {"text" if array.dtype.kind in "UST" else "numbers" for array in (labels, classes)}
    if len(kinds) > 1:
        raise ValueError(f"{name} holds {labels.dtype} labels, the other labels are {classes.dtype}: use one kind")
    order = np.argsort(classes, kind="stable")
    position = np.searchsorted(classes[order], labels).clip(max=len(classes) - 1)
    ids = order[position]
    unknown = classes[ids] != labels
    if unknown.any():
        raise ValueError(f"{name} has the label {str(labels[unknown][0])!r}, which is not among the known classes")
    return ids


def fingerprint(rows: Rows, ids: Integer[np.ndarray, " n"]) -> str:
    """Hash of the shape, of all labels and of up to 1 024 rows spread over the whole set.

    Args:
        rows: the data, n rows.
        ids: class ids, shape (n,).

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256(f"{rows.array.shape}|{rows.array.dtype.str}".encode())
    digest.update(np.ascontiguousarray(ids, np.int64).tobytes())
    index = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), 1024)).astype(np.int64))
    digest.update(np.ascontiguousarray(rows.take(index)).tobytes())
    return digest.hexdigest()
