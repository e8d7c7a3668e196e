"""Images with classes, for training and validation, from the formats that people have."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64, Num
from PIL import Image

from icl25_lp_conv.datasets.cifar import find_cifar, read_cifar
from icl25_lp_conv.datasets.image_files import SUFFIXES, ImageFiles, fit_to_square, open_files
from icl25_shared import get_logger

__all__ = ["ImageSet", "ImageSplits", "read_image_dataset"]

_log = get_logger(__name__)

_VAL_SHARE = 0.2
_VAL_FOLDERS = ("val", "test")
_TINY_IMAGENET = "val_annotations.txt"


@dataclass(frozen=True)
class ImageSet:
    """Images and their classes.

    Attributes:
        images: (n, h, w, c) images with c = 1 or 3: an array of bytes, or of single precision in [0, 1]; or
            ``ImageFiles``, which decode what is asked for.
        labels: (n,) classes from 0.

    Source: ours.
    """

    images: np.ndarray | ImageFiles
    labels: Int64[np.ndarray, " n"]

    def __post_init__(self) -> None:
        if len(self.images.shape) != 4 or len(self.images) != len(self.labels) or len(self.labels) == 0:
            raise ValueError(
                f"there are images of shape {self.images.shape} and {len(self.labels)} labels, "
                "expected (n, h, w, c) and n, at least 1"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, rows: Any) -> Num[np.ndarray, "b h w c"]:
        """Some images.

        Args:
            rows: (b,) which, as numbers or a slice.

        Returns:
            (b, h, w, c) bytes, or single precision in [0, 1].

        Raises:
            ValueError: If a file is broken; the message names it.
        """
        return self.images[rows]


@dataclass(frozen=True)
class ImageSplits:
    """Images for training and for validation.

    Attributes:
        train: The images to train on.
        val: The images to validate on, of the same size.
        classes: Names of the classes, in the order of their numbers.

    Source: ours.
    """

    train: ImageSet
    val: ImageSet
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.train.images.shape[1:] != self.val.images.shape[1:]:
            shapes = self.train.images.shape[1:], self.val.images.shape[1:]
            raise ValueError(
                f"images for training have shape {shapes[0]}, those for validation {shapes[1]}: "
                "pass a size to bring all images to"
            )
        if len(self.classes) < 2:
            raise ValueError(f"there is the single class {', '.join(self.classes)}, expected two or more")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.train.images.shape[1:]
        return height, width, channels


def read_image_dataset(
    path: str | Path,
    size: int | None = None,
    *,
    channels: int | None = None,
    seed: int = 0,
    memory_limit: int = 2**30,
) -> ImageSplits:
    """Read images with classes for training and validation.

    The formats are:

    - a folder ``train/CLASS/*.png`` (or jpg, tif, bmp, webp) beside ``val/`` or ``test/`` with folders of the same
      classes; without these, or with folders of classes alone, a fifth of each class is drawn for validation;
    - the folders of CIFAR-10 and CIFAR-100 for Python;
    - an NPZ file with ``x`` and ``y``, of which a fifth is drawn, or ``x_train``, ``y_train``, ``x_test`` and
      ``y_test`` (or ``x_val``, ``y_val``): images (n, h, w), (n, h, w, c) or (n, c, h, w) of bytes or of floating
      point in [0, 1], and classes as whole numbers or text.

    Args:
        path: The folder or file.
        size: Bring images to squares of that side, by scaling and cutting out the middle; None for images that are all
            of one size.
        channels: 1 or 3; None takes 3 for files, and arrays as they are.
        seed: Seed of the split, where there is one to draw.
        memory_limit: Bytes up to which image files are decoded at once; beyond, they are decoded as they are read.

    Returns:
        The images, and the names of the classes.

    Raises:
        ValueError: If a file is broken or of another kind, images differ in size, an array has a wrong shape, type or
            range, lengths differ, or there is but one class.
        FileNotFoundError: If there is nothing at ``path``.

    Source: ours.
    """
    path = Path(path)
    if size is not None and size < 1:
        raise ValueError(f"size must be >= 1, found {size}")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 or 3, found {channels}")
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if path.is_file():
        if path.suffix != ".npz":
            raise ValueError(f"{path}: expected a folder or an NPZ file")
        return _from_npz(path, size, channels, seed)
    cifar = find_cifar(path)
    if cifar is not None:
        found = read_cifar(cifar)
        train, val = (_resized(cifar, x, size, channels) for x in (found.x_train, found.x_test))
        return ImageSplits(ImageSet(train, found.y_train), ImageSet(val, found.y_test), found.classes)
    return _from_folders(path, seed, size=size, channels=channels or 3, memory_limit=memory_limit)


def _from_folders(path: Path, seed: int, **options: Any) -> ImageSplits:
    root = path / "train" if (path / "train").is_dir() else path
    files, labels, classes = _class_folders(root)
    val_root = next((path / name for name in _VAL_FOLDERS if (path / name).is_dir()), None) if root != path else None
    if val_root is None:
        is_val = _draw_validation(root, labels, classes, seed)
        parts = [([files[row] for row in np.flatnonzero(chosen)], labels[chosen]) for chosen in (~is_val, is_val)]
    else:
        parts = [(files, labels), _validation_folder(val_root, classes)]
    train, val = (ImageSet(open_files(found, **options), numbers) for found, numbers in parts)
    return ImageSplits(train, val, classes)


def _class_folders(root: Path, at_least: int = 2) -> tuple[list[Path], np.ndarray, tuple[str, ...]]:
    folders = sorted(child for child in root.iterdir() if child.is_dir() and not child.name.startswith("."))
    if len(folders) < at_least:
        raise ValueError(f"{root} has {len(folders)} folders, expected one for each of {at_least} classes or more")
    files: list[Path] = []
    labels: list[int] = []
    n_others = 0
    for label, folder in enumerate(folders):
        entries = sorted(e for e in folder.rglob("*") if e.is_file() and not e.name.startswith("."))
        found = [entry for entry in entries if entry.suffix.lower() in SUFFIXES]
        if not found:
            raise ValueError(f"{folder} holds no image ({', '.join(SUFFIXES)})")
        n_others += len(entries) - len(found)
        files += found
        labels += [label] * len(found)
    if n_others:
        _log.warning("%s: %d files are no images by their names and are left out", root, n_others)
    return files, np.array(labels, np.int64), tuple(folder.name for folder in folders)


def _validation_folder(root: Path, classes: tuple[str, ...]) -> tuple[list[Path], np.ndarray]:
    """Files and labels of a validation folder, whose classes must be among those of training."""
    table = root / _TINY_IMAGENET
    if table.is_file():
        rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines() if line]
        if any(len(row) < 2 for row in rows) or not rows:
            raise ValueError(f"{table}: expected a file and a class in each line")
        files, names = [root / "images" / row[0] for row in rows], [row[1] for row in rows]
    else:
        files, labels, found = _class_folders(root, at_least=1)
        names = [found[label] for label in labels]
    return files, _numbered(root, np.array(names), classes)


def _numbered(where: Path, names: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    number = {name: label for label, name in enumerate(classes)}
    unknown = sorted(set(names.tolist()) - set(number))
    if unknown:
        raise ValueError(f"{where}: class {unknown[0]} does not occur in training")
    return np.array([number[name] for name in names.tolist()], np.int64)


def _draw_validation(
    where: Path, labels: Int64[np.ndarray, " n"], classes: Sequence[str], seed: int
) -> Bool[np.ndarray, " n"]:
    """Draw a fifth of each class, one at least."""
    rng = np.random.default_rng(seed)
    is_val = np.zeros(len(labels), bool)
    for label, name in enumerate(classes):
        rows = np.flatnonzero(labels == label)
        if len(rows) < 2:
            raise ValueError(f"{where}: class {name} has a single image, a split into two parts needs two")
        is_val[rng.permutation(rows)[: max(1, round(_VAL_SHARE * len(rows)))]] = True
    return is_val


def _from_npz(path: Path, size: int | None, channels: int | None, seed: int) -> ImageSplits:
    arrays = _load(path)
    if "x_train" in arrays:
        held_out = next((name for name in ("val", "test") if f"x_{name}" in arrays), "test")
        pairs = [_pair(path, arrays, f"x_{part}", f"y_{part}", size, channels) for part in ("train", held_out)]
        classes = _class_names(path, "y_train", pairs[0][1])
        (x, y), (x_val, y_val) = pairs
        numbers = [_numbered(path, values.astype(str), classes) for values in (y, y_val)]
        return ImageSplits(ImageSet(x, numbers[0]), ImageSet(x_val, numbers[1]), classes)
    x, y = _pair(path, arrays, "x", "y", size, channels)
    classes = _class_names(path, "y", y)
    labels = _numbered(path, y.astype(str), classes)
    is_val = _draw_validation(path, labels, classes, seed)
    return ImageSplits(ImageSet(x[~is_val], labels[~is_val]), ImageSet(x[is_val], labels[is_val]), classes)


def _class_names(path: Path, name: str, y: np.ndarray) -> tuple[str, ...]:
    classes = tuple(str(value) for value in np.unique(y))
    if len(classes) < 2:
        raise ValueError(f"{path}: {name} holds the single class {classes[0]}, expected two or more")
    return classes


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name.lower(): archive[name] for name in archive.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
        reason = "it holds Python objects" if "allow_pickle" in str(error) else str(error).splitlines()[0]
        raise ValueError(f"{path} is no readable NPZ file ({reason})") from error


def _pair(
    path: Path, arrays: dict[str, np.ndarray], x_name: str, y_name: str, size: int | None, channels: int | None
) -> tuple[np.ndarray, np.ndarray]:
    for name in (x_name, y_name):
        if name not in arrays:
            found = ", ".join(arrays) or "nothing"
            raise ValueError(f"{path}: there is no array {name}; it holds {found}")
    x, y = arrays[x_name], arrays[y_name]
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1 or len(x) != len(y) or len(y) == 0:
        raise ValueError(
            f"{path}: {x_name} has shape {x.shape} and {y_name} {y.shape}, expected n images and n classes"
        )
    if y.dtype.kind not in "iuU":
        raise ValueError(f"{path}: {y_name} holds {y.dtype}, expected whole numbers or text")
    return _resized(path, _as_images(path, x_name, x), size, channels), y


def _as_images(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    """An array of images as (n, h, w, c), bytes or single precision."""
    if x.ndim == 3:
        x = x[..., None]
    if x.ndim == 4 and x.shape[3] not in (1, 3) and x.shape[1] in (1, 3):
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    if x.ndim != 4 or x.shape[3] not in (1, 3) or x.size == 0:
        raise ValueError(
            f"{path}: {name} has shape {x.shape}, expected (n, h, w), (n, h, w, c) or (n, c, h, w), c 1 or 3"
        )
    if x.dtype == np.uint8:
        return x
    if x.dtype.kind != "f":
        raise ValueError(f"{path}: {name} holds {x.dtype}, expected bytes (uint8) or floating point in [0, 1]")
    wrong = ~((x >= 0) & (x <= 1)).all(axis=(1, 2, 3))
    if wrong.any():
        row = int(wrong.argmax())
        what = "has NaN values" if np.isnan(x[row]).any() else f"has values in {x[row].min():.3g} .. {x[row].max():.3g}"
        raise ValueError(f"{path}: image {row} of {name} {what}, expected floating point in [0, 1]")
    return x.astype(np.float32)


def _resized(path: Path, x: np.ndarray, size: int | None, channels: int | None) -> np.ndarray:
    """Bring an array of images to a size and number of channels."""
    if size is not None and x.shape[1:3] != (size, size):
        if x.dtype != np.uint8:
            raise ValueError(f"{path}: images of floating point are not resized, found {x.shape[1]} x {x.shape[2]}")
        squares = [
            np.asarray(fit_to_square(Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image), size))
            for image in x
        ]
        x = np.stack(squares).reshape(len(x), size, size, x.shape[3])
    if channels == 1 and x.shape[3] == 3:
        raise ValueError(f"{path} holds colour images, found channels=1")
    return np.repeat(x, 3, axis=3) if channels == 3 and x.shape[3] == 1 else x
