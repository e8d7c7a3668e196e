"""The Python batches of CIFAR-10 and CIFAR-100, read without running what a pickle may hold."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8

__all__ = ["Cifar", "find_cifar", "read_cifar"]

_SIDE = 32
_FOLDERS = ("cifar-100-python", "cifar-10-batches-py")
# What numpy, old and new, calls on reading an array; anything else is refused.
_ALLOWED = {
    (module, name)
    for module, name in (
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
    )
}


class Cifar(NamedTuple):
    """Images (n, 32, 32, 3) and class numbers (n,) for training and testing, and the names of the classes."""

    x_train: UInt8[np.ndarray, "n 32 32 3"]
    y_train: Int64[np.ndarray, " n"]
    x_test: UInt8[np.ndarray, "m 32 32 3"]
    y_test: Int64[np.ndarray, " m"]
    classes: tuple[str, ...]


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles containers, text, numbers and arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}; only arrays, lists and text are read")
        return super().find_class(module, name)


def find_cifar(folder: Path) -> Path | None:
    """The folder with the batches, if it is this one or a folder of the usual name in it.

    Args:
        folder: Where to look.

    Returns:
        The folder, or None.

    Source: names of the files as they are distributed.
    """
    for candidate in (folder, *(folder / name for name in _FOLDERS)):
        if (candidate / "data_batch_1").is_file() or all((candidate / name).is_file() for name in ("train", "test")):
            return candidate
    return None


def read_cifar(folder: Path) -> Cifar:
    """Read a folder of batches of CIFAR-10 (``data_batch_1`` .. ``test_batch``) or CIFAR-100 (``train``, ``test``).

    Args:
        folder: The folder.

    Returns:
        The images with the fine labels, and class names from ``batches.meta`` or ``meta`` where that file is there.

    Raises:
        ValueError: If a file is broken, holds other objects than arrays, or arrays that do not fit each other.
        FileNotFoundError: If ``test_batch`` is missing.

    Source: Krizhevsky (2009), the format of the data set.
    """
    ten = (folder / "data_batch_1").is_file()
    label_key, names_key = ("labels", "label_names") if ten else ("fine_labels", "fine_label_names")
    train = sorted(folder.glob("data_batch_*")) if ten else [folder / "train"]
    parts = [_batch(path, label_key) for path in train]
    x_test, y_test = _batch(folder / ("test_batch" if ten else "test"), label_key)
    x_train, y_train = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    classes = _names(folder / ("batches.meta" if ten else "meta"), names_key, 1 + int(max(y_train.max(), y_test.max())))
    return Cifar(x_train, y_train, x_test, y_test, classes)


def _batch(path: Path, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    content = _read(path)
    data, labels = content.get("data"), content.get(label_key)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * _SIDE**2:
        raise ValueError(f"{path}: data must be an array of bytes of shape (n, {3 * _SIDE**2})")
    if not isinstance(labels, list) or len(labels) != len(data) or len(data) == 0:
        n = len(labels) if isinstance(labels, list) else "no"
        raise ValueError(f"{path} holds {len(data)} images and {n} {label_key}, expected as many, at least 1")
    if not all(isinstance(label, int) and label >= 0 for label in labels):
        raise ValueError(f"{path}: {label_key} must be whole numbers from 0")
    return np.ascontiguousarray(data.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)), np.array(labels, np.int64)


def _names(path: Path, key: str, at_least: int) -> tuple[str, ...]:
    if not path.is_file():
        return tuple(str(label) for label in range(at_least))
    names = _read(path).get(key)
    if not isinstance(names, list) or len(names) < at_least:
        raise ValueError(f"{path}: {key} must name {at_least} classes")
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a broken pickle may fail in any way
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} is no batch of CIFAR ({reason})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no batch of CIFAR: it holds a {type(content).__name__}")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}
