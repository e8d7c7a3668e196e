"""Images in files: decoded when they are read, and brought to one size and number of channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from icl25_shared import track

__all__ = ["SUFFIXES", "ImageFiles", "fit_to_square", "open_files"]

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
"""Endings of the files that count as images, in small letters."""

# Other modes hold more than a byte for each channel, which a conversion would clip.
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
_UNREADABLE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError)


@dataclass(frozen=True)
class ImageFiles:
    """Images that stay in their files until they are asked for.

    Attributes:
        paths: The files.
        height: Height of every image.
        width: Width of every image.
        channels: 1 or 3.
        size: Length that shorter sides are brought to before the middle square is cut out; None for images that must be
            of the right size already.

    Source: ours.
    """

    paths: tuple[Path, ...]
    height: int
    width: int
    channels: int
    size: int | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, height, width, channels), as of the array of all images."""
        return len(self.paths), self.height, self.width, self.channels

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of what is read: bytes."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, rows: Any) -> UInt8[np.ndarray, "b h w c"]:
        """Decode some images.

        Args:
            rows: (b,) which, as numbers or a slice.

        Returns:
            (b, height, width, channels).

        Raises:
            ValueError: If a file is no readable image, or one of another size; the message names it.
        """
        chosen = np.arange(len(self.paths))[rows]
        return (
            np.stack([self._read(self.paths[row]) for row in chosen])
            if len(chosen)
            else np.empty((0, *self.shape[1:]), np.uint8)
        )

    def _read(self, path: Path) -> np.ndarray:
        try:
            with Image.open(path) as image:
                _check_mode(path, image)
                converted = image.convert("L" if self.channels == 1 else "RGB")
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error
        if self.size is not None:
            converted = fit_to_square(converted, self.size)
        _check_size(path, converted.size, (self.width, self.height), self.paths[0])
        return np.asarray(converted).reshape(self.height, self.width, self.channels)


def open_files(paths: Sequence[Path], *, size: int | None, channels: int, memory_limit: int) -> Any:
    """Open image files: an array of all images if that fits into memory, else files that are decoded as they are read.

    Args:
        paths: The files, one at least.
        size: Side of the squares that images are brought to; None if all are of one size.
        channels: 1 or 3.
        memory_limit: Bytes that the array may take.

    Returns:
        (n, h, w, channels) images, uint8, or ``ImageFiles``.

    Raises:
        ValueError: If a file is no readable image, or images differ in size and ``size`` is None.

    Source: ours.
    """
    width, height = _header(paths[0]) if size is None else (size, size)
    files = ImageFiles(tuple(paths), height, width, channels, size)
    if len(paths) * height * width * channels > memory_limit:
        if size is None:
            for path in track(files.paths, "reading sizes of images"):
                _check_size(path, _header(path), (width, height), files.paths[0])
        return files
    images = np.empty(files.shape, np.uint8)
    for row in track(range(len(files)), "reading images"):
        images[row] = files[row : row + 1][0]
    return images


def fit_to_square(image: Image.Image, size: int) -> Image.Image:
    """Scale an image so that its shorter side has a length, and cut the square out of its middle.

    Args:
        image: The image.
        size: Side of the square, >= 1.

    Returns:
        The square; the image itself if it is one of that size.

    Source: the usual preparation for evaluation.
    """
    if image.size == (size, size):
        return image
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    scaled = image.resize((width, height), Image.Resampling.BICUBIC)
    return scaled.crop((left, top, left + size, top + size))


def _header(path: Path) -> tuple[int, int]:
    try:
        with Image.open(path) as image:
            _check_mode(path, image)
            return image.size
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error


def _check_mode(path: Path, image: Image.Image) -> None:
    if image.mode not in _MODES:
        raise ValueError(f"{path} has pixels of kind {image.mode}, expected a byte for each channel")


def _check_size(path: Path, found: tuple[int, int], expected: tuple[int, int], first: Path) -> None:
    if found != expected:
        raise ValueError(
            f"{path} has {found[0]} x {found[1]} pixels, {first.name} {expected[0]} x {expected[1]}: "
            "pass a size to bring all images to"
        )


def _unreadable(path: Path, error: Exception) -> ValueError:
    if str(path) in str(error) and isinstance(error, ValueError):
        return error
    reason = "unknown format" if isinstance(error, UnidentifiedImageError) else str(error).splitlines()[0]
    return ValueError(f"{path} is no readable image ({reason})")
