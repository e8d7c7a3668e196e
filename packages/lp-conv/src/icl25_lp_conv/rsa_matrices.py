"""Representational similarity matrices: made from features, checked where others made them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Num, Shaped

__all__ = ["METRICS", "ConstantFeaturesError", "check_recordings", "check_rsm", "rsm"]

METRICS = ("pearson", "cosine", "euclidean")
_BLOCK = 2**22  # entries of features that are converted to double precision at a time
_STD_OFFSET = 1e-7
_ASYMMETRY = 1e-5  # of the largest entry: recordings are often kept in single precision


class ConstantFeaturesError(ValueError):
    """Features that do not vary, so that their correlation is undefined."""


class FeatureSums:
    """Sums over features from which an RSM follows, so that features may come in blocks and need not be kept.

    Args:
        n: Number of stimuli.
    """

    def __init__(self, n: int) -> None:
        self.n_features = 0
        self.products = np.zeros((n, n))
        self.totals = np.zeros(n)
        self.squares = np.zeros(n)
        self.eps = 0.0

    def add(self, block: Num[np.ndarray, "n d"]) -> None:
        """Add features (n, d); only a part of them at a time is held in double precision."""
        step = max(1, _BLOCK // len(block))
        if block.dtype.kind == "f":
            self.eps = max(self.eps, float(np.finfo(block.dtype).eps))
        for start in range(0, block.shape[1], step):
            part = block[:, start : start + step].astype(np.float64)
            bad = ~np.isfinite(part).all(axis=1)
            if bad.any():
                raise ValueError(f"features hold NaN or infinities, first for stimulus {int(np.argmax(bad))}")
            self.squares += np.einsum("ij,ij->i", part, part)
            part -= part.mean(axis=0)
            self.products += part @ part.T
            self.totals += part.sum(axis=1)
            self.n_features += part.shape[1]

    def similarity(self, metric: str) -> Float[np.ndarray, "n n"]:
        """The RSM of what was added."""
        check_metric(metric)
        products, means = self.products / self.n_features, self.totals / self.n_features
        if metric == "pearson":
            products = products - np.outer(means, means)
        energy = np.maximum(np.diag(products), 0)
        # Differences of the size of rounding errors are no differences.
        constant = energy <= (4 * max(self.eps, 2.3e-16)) ** 2 * self.squares.max() / self.n_features
        if constant.all() or (metric != "euclidean" and constant.any()):
            raise ConstantFeaturesError(
                f"features do not vary: centred over the stimuli they are constant, up to rounding errors, for "
                f"{constant.sum()} of {len(constant)} stimuli, first for stimulus {int(np.argmax(constant))}"
            )
        if metric == "euclidean":
            distances = np.sqrt(np.maximum(energy[:, None] + energy - 2 * products, 0) * self.n_features)
            np.fill_diagonal(distances, 0)
            return -distances
        scale = np.sqrt(energy) + (_STD_OFFSET if metric == "pearson" else 0)
        return products / np.outer(scale, scale)


def rsm(features: Num[np.ndarray, "n *features"], metric: str = "pearson") -> Float[np.ndarray, "n n"]:
    """Representational similarity matrix: how alike the features of each two stimuli are.

    Features are first centred by their mean over the stimuli. For ``pearson`` the similarity is then the correlation
    R_ij = cov(i, j) / (sd_i sd_j) over features, with sd the population standard deviation plus 1e-7; so the diagonal
    is a little below 1, and features should not be much smaller than 1e-5. All is computed in double precision.

    Args:
        features: (n, ...) features of n >= 3 stimuli; all axes but the first are flattened.
        metric: ``pearson``, ``cosine`` (of the centred features) or ``euclidean`` (minus the distance).

    Returns:
        (n, n) similarities, larger for stimuli that are more alike.

    Raises:
        ConstantFeaturesError: If the centred features of a stimulus are constant; a ValueError.
        ValueError: If there are fewer than 3 stimuli, no features, NaN or infinities, or the metric is unknown.

    Source: the RSM of a layer in the paper (the section on the visual cortex); 1e-7 is in the authors' code.

    Example:
        >>> rsm(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [2.0, 0.0, 1.0]])).round(2)
        array([[ 1.  , -0.69, -0.04],
               [-0.69,  1.  , -0.69],
               [-0.04, -0.69,  1.  ]])
    """
    check_metric(metric)
    check_n_stimuli(len(features), "features")
    if not features.size:
        raise ValueError(f"features has shape {features.shape}, expected at least one feature")
    sums = FeatureSums(len(features))
    sums.add(features.reshape(len(features), -1))
    return sums.similarity(metric)


def check_metric(metric: str) -> None:
    """Refuse an unknown similarity of features."""
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r}, expected one of {', '.join(METRICS)}")


def check_n_stimuli(n: int, name: str) -> None:
    """Refuse fewer stimuli than define a correlation of their pairs."""
    if n < 3:
        raise ValueError(f"{name} has {n} stimuli, expected at least 3")


def check_rsm(matrix: Shaped[np.ndarray, "..."], name: str) -> Float[np.ndarray, "n n"]:
    """Check one RSM as ``check_recordings`` does.

    Args:
        matrix: (n, n) similarities.
        name: What to call it in errors.

    Returns:
        (n, n) similarities in double precision.

    Raises:
        ValueError: If it is no RSM.

    Source: ours.
    """
    if matrix.ndim != 2:
        raise ValueError(f"{name} has shape {matrix.shape}, expected (n, n)")
    return check_recordings(matrix, name)[:, :, 0]


def check_recordings(recordings: Shaped[np.ndarray, "..."], name: str) -> Float[np.ndarray, "n n sessions"]:
    """Check the RSMs of an area. Diagonals may hold anything, since nothing uses them.

    Args:
        recordings: (n, n, sessions) similarities, or (n, n) for one session.
        name: What to call it in errors.

    Returns:
        (n, n, sessions) similarities in double precision.

    Raises:
        ValueError: If the shape is another, there are fewer than 3 stimuli or no session, or a session is not symmetric
            or holds NaN or infinities off the diagonal.

    Source: ours.
    """
    if recordings.dtype.kind not in "biuf":
        raise ValueError(f"{name} holds {recordings.dtype}, expected real numbers")
    shape = recordings.shape
    if len(shape) not in (2, 3) or shape[0] != shape[1]:
        hint = "; sessions come last" if len(shape) == 3 and shape[1] == shape[2] else ""
        raise ValueError(f"{name} has shape {shape}, expected (n, n) or (n, n, sessions){hint}")
    check_n_stimuli(len(recordings), name)
    sessions = recordings.astype(np.float64).reshape(*shape[:2], -1)
    if not sessions.shape[2]:
        raise ValueError(f"{name} has no session")
    rows, columns = np.tril_indices(len(sessions), -1)
    for k in range(sessions.shape[2]):
        where = f"{name}, session {k}" if len(shape) == 3 else name
        below, above = sessions[rows, columns, k], sessions[columns, rows, k]
        bad = ~(np.isfinite(below) & np.isfinite(above))
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{where}: {bad.sum()} pairs of stimuli have NaN or infinite similarities, "
                f"first that of stimuli {rows[first]} and {columns[first]}"
            )
        gap = np.abs(below - above)
        if gap.max() > _ASYMMETRY * np.abs(below).max():
            worst = int(np.argmax(gap))
            i, j = rows[worst], columns[worst]
            raise ValueError(
                f"{where} is not symmetric: {below[worst]:g} at ({i}, {j}), but {above[worst]:g} at ({j}, {i})"
            )
    return sessions
