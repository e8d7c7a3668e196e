"""Train, validation and test images of a folder of NPZ files, memory-mapped where the files allow it."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icl25_shared import InputError

__all__ = ["ImageSet", "ImageSplits", "load_splits"]

_CHUNK = 4096
_LOCAL_HEADER = 30


class ImageSet(NamedTuple):
    """Images X, shape (n, h, w, 3), bytes or floating point in [0, 1], and their classes y, shape (n,), from 0."""

    X: Any
    y: np.ndarray


class ImageSplits(NamedTuple):
    """The three parts; ``classes`` are the labels of the files, in the order of the class numbers."""

    train: ImageSet
    val: ImageSet
    test: ImageSet
    classes: np.ndarray


def load_splits(folder: Path | None) -> ImageSplits:
    """Open train.npz, val.npz and test.npz of a folder.

    Files written by ``np.savez`` are memory-mapped, so that they may exceed memory; those of
    ``np.savez_compressed`` are read. Nothing is ever unpickled.

    Args:
        folder: the folder; each file holds X, shape (n, h, w, 3), bytes or floating point in [0, 1], and y, shape
            (n,), integers.

    Returns:
        The images, and the labels as class numbers.

    Raises:
        InputError: the folder, a file or an array is missing, unreadable, or of a wrong shape, kind or range.
    """
    if folder is None:
        raise InputError("this configuration needs --data: a folder with train.npz, val.npz and test.npz (X and y)")
    if not folder.is_dir():
        raise InputError(f"--data: there is no folder {folder}")
    sets = [_read(folder / f"{name}.npz") for name in ("train", "val", "test")]
    shapes = [part.X.shape[1:] for part in sets]
    if len(set(shapes)) > 1:
        raise InputError(f"{folder}: images of train, val and test have different shapes: {shapes}")
    classes = np.unique(np.concatenate([np.unique(part.y) for part in sets]))
    if len(classes) < 2:
        raise InputError(f"{folder}: y holds the single class {classes[0]}, expected two or more")
    train, val, test = (ImageSet(part.X, np.searchsorted(classes, part.y)) for part in sets)
    return ImageSplits(train, val, test, classes)


def _read(path: Path) -> ImageSet:
    if not path.is_file():
        raise InputError(f"--data: there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            X, y = (_member(path, archive, name) for name in ("X", "y"))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise InputError(f"{path}: not a readable NPZ file ({error})") from error
    if X.ndim != 4 or X.shape[3] != 3 or X.size == 0:
        raise InputError(f"{path}: X has shape {X.shape}, expected (n, height, width, 3)")
    if X.dtype != np.uint8 and X.dtype.kind != "f":
        raise InputError(f"{path}: X holds {X.dtype}, expected bytes (uint8) or floating point in [0, 1]")
    if y.shape != (len(X),):
        raise InputError(f"{path}: y has shape {y.shape}, expected ({len(X)},), a label for each image")
    if y.dtype.kind not in "iu":
        raise InputError(f"{path}: y holds {y.dtype}, expected integers")
    if X.dtype.kind == "f":
        _check_range(path, X)
    return ImageSet(X, y)


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of the archive: a memory map of its bytes in the file where they are not compressed."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError:
        found = ", ".join(member.removesuffix(".npy") for member in archive.namelist()) or "nothing"
        raise InputError(f"{path}: there is no array {name}; it holds {found}") from None
    try:
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            if info.compress_type == zipfile.ZIP_STORED and version in ((1, 0), (2, 0)):
                header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, fortran, dtype = header(member)
                if not dtype.hasobject and 0 not in shape:
                    offset = _start(path, info) + member.tell()
                    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
        with archive.open(info) as member:
            return np.lib.format.read_array(member, allow_pickle=False)
    except ValueError as error:
        reason = "it holds Python objects" if "allow_pickle" in str(error) else str(error).splitlines()[0]
        raise InputError(f"{path}: array {name} cannot be read: {reason}") from error


def _start(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: behind its local header, whose last two fields have lengths of their own."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name_length, extra_length = struct.unpack("<HH", file.read(_LOCAL_HEADER)[26:])
    return info.header_offset + _LOCAL_HEADER + name_length + extra_length


def _check_range(path: Path, X: np.ndarray) -> None:
    for start in range(0, len(X), _CHUNK):
        chunk = X[start : start + _CHUNK]
        bad = ~((chunk >= 0) & (chunk <= 1)).reshape(len(chunk), -1).all(axis=1)
        if bad.any():
            raise InputError(
                f"{path}: X must lie in [0, 1], image {start + int(bad.argmax())} does not (NaN counts as outside); "
                "save bytes as uint8"
            )
