"""One training batch against every validation batch: costs, potentials, calibrated gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer
from threadpoolctl import ThreadpoolController

from icl25_sava.class_distances import class_rows, pairwise_label_distances
from icl25_sava.costs import Box, augmented_cost, bounding_box, diameter
from icl25_sava.gradients import calibrated_gradient
from icl25_sava.inputs import MappedRows
from icl25_sava.potentials import Potentials, annealed_potentials, emd_potentials, sinkhorn_potentials

__all__ = ["Batch", "BatchSolution", "Recipe", "blas_on_one_thread", "make_batch", "pair_cost", "solve_batch"]


@dataclass(frozen=True)
class Recipe:
    """How the transport problem of one pair of batches is posed and solved; see ``icl25_sava.SAVA``."""

    eps: float = 0.1
    scaling: float = 0.5
    lambda_x: float = 1.0
    lambda_y: float = 1.0
    p: int = 2
    solver: str = "annealed"
    batch_cost: str = "dual"
    plan_on_raw: bool = False
    """Compute the plan of ``batch_cost="plan"`` from raw inputs, not embedded ones (a fault of the authors' code)."""
    plan_over_rows: bool = False
    """Divide the cost of ``batch_cost="plan"`` by the number of rows of both batches (likewise)."""
    diameter_of_raw_and_label: bool = False
    """Start the annealing at the box diagonal of the raw inputs and the label (likewise)."""
    per_pair_labels: bool = False
    dtype: str = "float32"
    device: str = "cpu"
    potentials: bool = True
    """Whether potentials are computed at all, or only costs and nearest rows."""


@dataclass(frozen=True)
class Batch:
    """Rows of one batch, ready for the cost: embedded, centred, cast."""

    X: Float[np.ndarray, "b d"]
    y: Integer[np.ndarray, " b"]
    rows: Integer[np.ndarray, " b"]
    """Row numbers in the user's data."""
    box: Box
    raw: Float[np.ndarray, "b r"] | None = None
    """Inputs before embedding, where the recipe asks for them."""


class BatchSolution(NamedTuple):
    """What one training batch contributes: everything later steps need, and nothing of size b x m."""

    gradients: Float[np.ndarray, "b k"]
    """Calibrated gradients against each of the k validation batches, in units of the cost."""
    costs: Float[np.ndarray, " k"]
    """Transport cost to each validation batch."""
    nearest: Integer[np.ndarray, " b"]
    """Number of the nearest validation row under the label-augmented cost."""
    nearest_cost: Float[np.ndarray, " b"]
    """Its cost."""


def make_batch(
    X: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    *,
    embed: Any,
    centre: np.ndarray,
    dtype: str,
    keep_raw: bool = False,
) -> Batch:
    """Embed, centre and cast the rows of one batch.

    Args:
        X: raw rows, shape (b, r).
        y: class ids, shape (b,).
        rows: row numbers, shape (b,).
        embed: fitted transformer with ``transform``, or None for the identity.
        centre: point of the embedding that becomes the origin, shape (d,): keeps precision at large offsets.
        dtype: ``"float32"`` or ``"float64"``.
        keep_raw: keep the raw rows too.

    Returns:
        The batch.

    Raises:
        ValueError: the embedding is not finite in ``dtype``.
    """
    features = np.asarray(X if embed is None else embed.transform(X))
    if features.ndim != 2 or len(features) != len(X) or features.shape[1] != len(centre):
        raise ValueError(f"the embedder gave shape {features.shape} for {len(X)} rows, expected {len(centre)} columns")
    features = (features - centre).astype(dtype)
    if not np.isfinite(features.sum(dtype=np.float64)) and not np.isfinite(features).all():
        row = int(rows[int(np.argmax(~np.isfinite(features).all(axis=1)))])
        raise ValueError(f"the features are not finite in {dtype} at row {row}")
    raw = np.asarray(X, np.float64).astype(dtype) if keep_raw else None
    return Batch(features, y, rows, bounding_box(features), raw)


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def blas_on_one_thread() -> Any:
    """Context in which linear algebra uses one thread: the same bytes for any number of workers."""
    return _threads().limit(limits=1, user_api="blas")


def pair_cost(train: Batch, val: Batch, W: np.ndarray, recipe: Recipe, *, raw: bool = False) -> np.ndarray:
    """Label-augmented cost of one pair of batches, shape (b, m).

    Args:
        train: training batch.
        val: validation batch.
        W: class distances, shape (K, K), indexed by class id.
        recipe: weights and power of the cost.
        raw: from the raw inputs instead of the embedded ones.

    Returns:
        The cost matrix.

    Source: SAVA (arXiv 2406.01130), ground cost between labelled rows.
    """
    X, Xv = (train.raw, val.raw) if raw else (train.X, val.X)
    if X is None or Xv is None:
        raise ValueError("the batches were made without their raw inputs")
    return augmented_cost(X, train.y, Xv, val.y, W, lambda_x=recipe.lambda_x, lambda_y=recipe.lambda_y, p=recipe.p)


def solve_batch(
    train: Batch | tuple[MappedRows, dict[str, Any]],
    val: list[Batch],
    W: Float[np.ndarray, "c c"],
    recipe: Recipe,
    diameters: Float[np.ndarray, " k"] | None = None,
) -> BatchSolution:
    """Solve the k problems of one training batch; the unit of parallel work.

    Args:
        train: the batch, or where its rows lie on disk with the remaining arguments of ``make_batch``.
        val: the k validation batches.
        W: class distances, shape (c, c), indexed by class id.
        recipe: how each problem is posed and solved.
        diameters: length scale at which the annealing of each problem starts, shape (k,); from the data when None.

    Returns:
        The solution.

    Raises:
        ValueError: a batch has fewer than two training rows or a class pair without a distance.

    Source: SAVA (arXiv 2406.01130), inner problems between batches.
    """
    if isinstance(train, tuple):
        where, arguments = train
        train = make_batch(where.load(), rows=where.index, embed=None, **arguments)
    if recipe.device != "cpu" and recipe.potentials:
        from icl25_sava.accelerated import solve_batch_on_device

        return solve_batch_on_device(train, val, W, recipe, diameters)
    n, k = len(train.X), len(val)
    gradients, costs = np.zeros((n, k), recipe.dtype), np.zeros(k)
    nearest, nearest_cost = np.zeros(n, np.int64), np.full(n, np.inf, recipe.dtype)
    with blas_on_one_thread():
        for j, other in enumerate(val):
            W_pair = _pair_label_distances(train, other, W, recipe) if recipe.per_pair_labels else W
            C = pair_cost(train, other, W_pair, recipe)
            _update_nearest(C, other.rows, nearest, nearest_cost)
            if not recipe.potentials:
                continue
            start = None if diameters is None else float(diameters[j])
            f, g = _potentials(C, pair_diameter(train, other, W, recipe) if start is None else start, recipe)
            gradients[:, j] = calibrated_gradient(f)
            if recipe.batch_cost == "dual":
                costs[j] = f.mean(dtype=np.float64) + g.mean(dtype=np.float64)
            else:
                costs[j] = _plan_cost(C, pair_cost(train, other, W_pair, recipe, raw=True) if recipe.plan_on_raw else C)
                if recipe.plan_over_rows:
                    costs[j] /= sum(C.shape)
    return BatchSolution(gradients, costs, nearest, nearest_cost)


def _update_nearest(C: np.ndarray, rows: np.ndarray, nearest: np.ndarray, nearest_cost: np.ndarray) -> None:
    """Let each training row forget its nearest validation row for a nearer one of ``rows``, in place."""
    best = C.argmin(axis=1)
    cost = C[np.arange(len(C)), best]
    closer = cost < nearest_cost
    nearest[closer], nearest_cost[closer] = rows[best[closer]], cost[closer]


def pair_diameter(train: Batch, val: Batch, W: np.ndarray, recipe: Recipe) -> float:
    """Length scale of a pair of batches: the diagonal of the box around both.

    Args:
        train: training batch.
        val: validation batch.
        W: class distances, shape (K, K), of which only K is used.
        recipe: whether the box is that of the raw inputs and the label.

    Returns:
        The diagonal; 0 when all rows are equal.

    Source: our choice; the authors' code takes the raw inputs with the label as one more coordinate (training labels
    0..K-1, validation labels K..2K-1).
    """
    if not recipe.diameter_of_raw_and_label:
        return diameter(train.box, val.box)
    if train.raw is None or val.raw is None:
        raise ValueError("the batches were made without their raw inputs")
    return diameter(
        bounding_box(np.column_stack([train.raw, train.y])),
        bounding_box(np.column_stack([val.raw, val.y + len(W)])),
    )


def _potentials(C: np.ndarray, start: float, recipe: Recipe) -> Potentials:
    if recipe.solver == "annealed":
        return annealed_potentials(C, eps=recipe.eps, scaling=recipe.scaling, diameter=start, p=recipe.p)
    if recipe.solver == "sinkhorn":
        return sinkhorn_potentials(C, eps=recipe.eps)
    return emd_potentials(C)


def _plan_cost(C: np.ndarray, C_plan: np.ndarray) -> float:
    """<P, C> with P the Sinkhorn plan of C_plan / max C_plan at regularisation 0.1."""
    import ot  # brings every array library that is installed: only where it is needed

    top = float(C_plan.max())
    if top == 0:
        return float(C.mean(dtype=np.float64))
    n, m = C.shape
    P = ot.sinkhorn(np.full(n, 1 / n), np.full(m, 1 / m), C_plan.astype(np.float64) / top, 0.1)
    return float(np.sum(P * C))


def _pair_label_distances(train: Batch, val: Batch, W: np.ndarray, recipe: Recipe) -> np.ndarray:
    n_classes = len(W)
    return pairwise_label_distances(
        [train.X[rows] for rows in class_rows(train.y, n_classes)],
        [val.X[rows] for rows in class_rows(val.y, n_classes)],
        "sample",
        eps=recipe.eps,
        scaling=recipe.scaling,
        p=recipe.p,
    )
