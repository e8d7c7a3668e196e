"""A folder with a sub-folder of images per class."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image

from icl25_sava.readers.common import Dataset, RowSpool

__all__ = ["read_images"]

_log = logging.getLogger(__name__)

_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff")
_GREY = ("1", "L", "I;16", "I;16B", "I;16L")
_COLOUR = ("RGB", "RGBA", "P", "CMYK", "YCbCr", "LA", "PA")
_BLOCK_BYTES = 16 << 20


def read_images(path: Path, memory_limit_mb: float | int) -> Dataset:
    """Read images of one common size as rows of pixels in [0, 1]; their labels are the names of the sub-folders.

    Images are grey, of shape (height, width), if all of them are, and (height, width, 3) else. Sub-folders are searched
    to any depth; other files in them are left out with a warning.

    Args:
        path: The folder.
        memory_limit_mb: Pixels beyond this size go to a temporary file.

    Returns:
        float32 rows in the order of the sorted paths, which are the ids.

    Raises:
        ValueError: If a class has no image, or an image is unreadable, of another size, animated, transparent or of
            more than 16 bits.
    """
    classes = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    files: list[Path] = []
    labels: list[str] = []
    for folder in classes:
        inside = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
        images = [p for p in inside if p.suffix.lower() in _SUFFIXES]
        if not images:
            raise ValueError(f"{folder}: no image in this class folder, expected PNG, JPEG or TIFF files")
        if len(images) < len(inside):
            _log.warning("%s: %d files that are no images are left out", folder, len(inside) - len(images))
        files += images
        labels += [folder.name] * len(images)

    shape = _common_shape(files)
    width = int(np.prod(shape))
    block_rows = max(1, _BLOCK_BYTES // (4 * width))
    with RowSpool(memory_limit_mb) as spool:
        for start in range(0, len(files), block_rows):
            spool.append(np.stack([_pixels(file, len(shape) == 3) for file in files[start : start + block_rows]]))
        X = spool.finish()
    assert X is not None  # noqa: S101  every class has an image
    ids = np.asarray([file.relative_to(path).as_posix() for file in files])
    names = tuple(f"pixel{j}" for j in range(width))
    return Dataset(X, np.asarray(labels), ids, names, str(path), shape)


def _common_shape(files: list[Path]) -> tuple[int, ...]:
    """Height and width of all images, and 3 if any has colour, from their headers alone."""
    size, colour = None, False
    for file in files:
        try:
            with Image.open(file) as image:
                found, mode, frames = image.size, image.mode, getattr(image, "n_frames", 1)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise _unreadable(file, error) from error
        size = size or found
        if found != size:
            raise ValueError(
                f"{file}: {found[0]} x {found[1]} pixels, but {files[0].name} has {size[0]} x {size[1]}: "
                "resize all images to one size"
            )
        if frames > 1:
            raise ValueError(f"{file}: holds {frames} pictures, expected one")
        if mode not in (*_GREY, *_COLOUR):
            raise ValueError(f"{file}: mode {mode} is not supported, expected grey or colour of 8 bits, or grey of 16")
        colour |= mode in _COLOUR
    assert size is not None  # noqa: S101  every class has an image
    return (size[1], size[0], 3) if colour else (size[1], size[0])


def _pixels(file: Path, colour: bool) -> Float[np.ndarray, " d"]:
    """One image as flat float32 pixels in [0, 1]."""
    try:
        with Image.open(file) as image:
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                opaque = image.convert("RGBA").getchannel("A").getextrema() == (255, 255)
                if not opaque:
                    raise ValueError("it has transparent pixels: flatten it onto a background")
            if image.mode.startswith("I;16"):
                grey = np.asarray(image, dtype=np.float32) / 65535
                return (np.repeat(grey[..., None], 3, axis=2) if colour else grey).reshape(-1)
            return np.asarray(image.convert("RGB" if colour else "L"), dtype=np.float32).reshape(-1) / 255
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> ValueError:
    message = (str(error).splitlines() or [type(error).__name__])[0]
    return ValueError(f"{file}: not a readable image ({message})")
