"""Corrupting part of a data set on purpose, so that a valuation can be marked against the truth."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped

__all__ = ["Corrupted", "Kind", "corrupt"]

Kind = Literal["labels", "features", "trojan", "patch", "blend"]

# Rows and columns 18..27 of 32, as fractions of a side: the square of the official trojan.
_PATCH_START, _PATCH_STOP = 18 / 32, 28 / 32


class Corrupted(NamedTuple):
    """A corrupted copy of a data set.

    Attributes:
        X: (n, d) the features, a copy.
        y: (n,) the labels, a copy of the same dtype.
        mask: (n,) True where the row was corrupted.
    """

    X: Float[np.ndarray, "n d"]
    y: Shaped[np.ndarray, " n"]
    mask: Bool[np.ndarray, " n"]


def corrupt(
    X: Num[np.ndarray, "n d"],
    y: Shaped[np.ndarray, " m"],
    kind: str = "labels",
    fraction: float = 0.3,
    random_state: int | np.random.Generator | None = None,
    *,
    image_shape: tuple[int, ...] | None = None,
    value_range: tuple[float | int, float | int] = (0.0, 1.0),
    target: Any = None,
    base: Any = None,
    strength: float = 0.5,
    noise_std: float = 0.1**0.7,
    clip: bool = False,
) -> Corrupted:
    """Corrupt exactly ``round(fraction * n)`` rows of a copy of the data.

    Args:
        X: (n, d) features, floating point.
        y: (n,) labels of any dtype.
        kind: What is done to the chosen rows, one of `Kind`:
            ``"labels"``: the label becomes one of the *other* classes, each as likely;
            ``"features"``: Gaussian noise on every feature, the label stays;
            ``"trojan"``: fresh Gaussian noise on a square in the lower right of the image (rows and columns 18 to 27
            of 32, scaled to the image), and the label becomes ``target``, in rows of any class;
            ``"patch"``: as trojan, but the square is replaced by one fixed chequerboard, the same in every row;
            ``"blend"``: rows of class ``base`` move towards rows of class ``target``, ``x + strength * (x_target - x)``
            with x_target drawn anew for each row, and keep their label (like a feature collision).
        fraction: Share of all n rows to corrupt, in (0, 1).
        random_state: Seed or generator.
        image_shape: (height, width) or (height, width, channels) of a row, for trojan and patch.
        value_range: Lowest and highest legal feature: the noise scales with the width, the chequerboard takes the ends.
        target: The class that trojan and patch relabel to (default: the first class in sorted order), or that blend
            moves towards (default: the first class that is not ``base``).
        base: The class whose rows blend moves (default: the first class that is not ``target``).
        strength: How far blend moves a row, in (0, 1].
        noise_std: Standard deviation of the noise for a value range of width 1. The default is the paper's code's.
        clip: Clip noisy features to ``value_range``. The paper's code does not.

    Returns:
        The corrupted copies and the mask of the corrupted rows.

    Raises:
        TypeError: If X is not floating point.
        ValueError: If an argument is out of range, the rows of X and y differ, there is one class only, a class is
            unknown, ``image_shape`` is missing or does not match, or too few rows are left to choose from.

    Source: Kessler et al. (ICLR 2025), CIFAR-10 experiments, and their code.
    """
    _check(X, y, kind, fraction, value_range, strength)
    rng = np.random.default_rng(random_state)
    classes, codes = np.unique(y, return_inverse=True)
    codes = codes.reshape(-1)
    if len(classes) < 2 and kind != "features":
        raise ValueError(f"{kind!r} needs two classes or more, y holds only {classes[0]!r}")
    n_rows = round(fraction * len(y))
    low, high = value_range
    std = noise_std * (high - low)
    X_new, y_new = np.array(X, order="C"), np.array(y)

    if kind == "labels":
        rows = _choose(rng, np.arange(len(y)), n_rows, kind)
        shift = rng.integers(1, len(classes), size=n_rows)
        y_new[rows] = classes[(codes[rows] + shift) % len(classes)]
    elif kind == "features":
        rows = _choose(rng, np.arange(len(y)), n_rows, kind)
        X_new[rows] += rng.normal(0.0, std, size=(n_rows, X.shape[1])).astype(X.dtype)
    elif kind in ("trojan", "patch"):
        target_code = 0 if target is None else _code(classes, target, "target")
        rows = _choose(rng, np.arange(len(y)), n_rows, kind)
        height, width, channels = _image_axes(image_shape, X.shape[1])
        top, bottom = int(_PATCH_START * height), int(_PATCH_STOP * height)
        left, right = int(_PATCH_START * width), int(_PATCH_STOP * width)
        images = X_new.reshape(-1, height, width, channels)
        size = (bottom - top, right - left)
        if kind == "trojan":
            noise = rng.normal(0.0, std, size=(n_rows, *size, channels))
            images[rows, top:bottom, left:right] += noise.astype(X.dtype)
        else:
            board = np.indices(size).sum(axis=0) % 2
            images[rows, top:bottom, left:right] = np.where(board, high, low)[None, :, :, None]
        y_new[rows] = classes[target_code]
    else:
        base_code, target_code = _pair(classes, base, target)
        rows = _choose(rng, np.flatnonzero(codes == base_code), n_rows, kind)
        sources = rng.choice(np.flatnonzero(codes == target_code), size=n_rows)
        X_new[rows] += X.dtype.type(strength) * (X[sources] - X[rows])
    if clip and kind in ("features", "trojan"):
        X_new[rows] = np.clip(X_new[rows], low, high)

    mask = np.zeros(len(y), dtype=bool)
    mask[rows] = True
    return Corrupted(X_new, y_new, mask)


def _check(
    X: np.ndarray, y: np.ndarray, kind: str, fraction: float, value_range: tuple[float | int, ...], strength: float
) -> None:
    """Refuse what no kind of corruption can use."""
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}, expected one of {', '.join(get_args(Kind))}")
    if not np.issubdtype(X.dtype, np.floating):
        raise TypeError(f"X holds {X.dtype}, expected floating point: convert it first")
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} rows, y has {len(y)}")
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}, expected a number between 0 and 1")
    if round(fraction * len(y)) == 0:
        raise ValueError(f"fraction {fraction} of {len(y)} rows is no row at all")
    if not value_range[0] < value_range[1]:
        raise ValueError(f"value_range is {value_range}, expected (low, high) with low < high")
    if not 0 < strength <= 1:
        raise ValueError(f"strength is {strength}, expected a number in (0, 1]")


def _choose(rng: np.random.Generator, candidates: np.ndarray, n_rows: int, kind: str) -> Int[np.ndarray, " k"]:
    """Draw ``n_rows`` distinct rows out of ``candidates``."""
    if n_rows > len(candidates):
        raise ValueError(f"{kind!r} should corrupt {n_rows} rows, only {len(candidates)} qualify: lower fraction")
    return rng.choice(candidates, size=n_rows, replace=False)


def _code(classes: np.ndarray, wanted: Any, name: str) -> int:
    """Position of a class in the sorted classes."""
    found = np.flatnonzero(classes == wanted)
    if len(found) == 0:
        raise ValueError(f"{name} is {wanted!r}, y holds the classes {', '.join(map(str, classes[:20]))}")
    return int(found[0])


def _pair(classes: np.ndarray, base: Any, target: Any) -> tuple[int, int]:
    """Positions of the class that moves and of the class it moves towards."""
    base_code = None if base is None else _code(classes, base, "base")
    target_code = None if target is None else _code(classes, target, "target")
    if base_code is None:
        base_code = 1 if target_code == 0 else 0
    if target_code is None:
        target_code = 1 if base_code == 0 else 0
    if base_code == target_code:
        raise ValueError(f"base and target are both {base!r}, expected two classes")
    return base_code, target_code


def _image_axes(image_shape: tuple[int, ...] | None, n_features: int) -> tuple[int, int, int]:
    """Height, width and channels of a row."""
    if image_shape is None:
        raise ValueError("image_shape is missing: give (height, width) or (height, width, channels)")
    if len(image_shape) not in (2, 3) or int(np.prod(image_shape)) != n_features:
        raise ValueError(f"image_shape is {image_shape}, which does not describe rows of {n_features} features")
    height, width, *channels = image_shape
    if min(height, width) < 4:
        raise ValueError(f"image_shape is {image_shape}: the patch needs 4 pixels a side or more")
    return height, width, channels[0] if channels else 1
