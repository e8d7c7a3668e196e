"""The outer transport problem, between batches, and the scores it weighs together."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

__all__ = ["harm_scores", "outer_plan"]


def outer_plan(batch_costs: Float[np.ndarray, "kt kv"], reg: float = 1e-2) -> Float[np.ndarray, "kt kv"]:
    """Entropic transport plan between training and validation batches.

    Args:
        batch_costs: transport cost of each pair of batches, shape (K_t, K_v), finite.
        reg: entropic regularisation on the costs divided by their largest, > 0.

    Returns:
        The plan, shape (K_t, K_v): rows sum to 1 / K_t, columns to 1 / K_v. Uniform when all costs are zero.

    Raises:
        ValueError: ``reg`` is not positive or a cost is not finite.

    Source: SAVA (arXiv 2406.01130), hierarchical OT between batches.
    """
    if not reg > 0:
        raise ValueError(f"outer_reg must be positive, got {reg}")
    if not np.isfinite(batch_costs).all():
        raise ValueError("a batch cost is not finite")
    import ot  # brings every array library that is installed: only where it is needed

    n, m = batch_costs.shape
    scale = np.abs(batch_costs).max()
    if scale == 0 or n == 1 or m == 1:  # with one batch on a side the marginals leave one plan only
        return np.full((n, m), 1 / (n * m))
    a, b = np.full(n, 1 / n), np.full(m, 1 / m)
    cost = batch_costs / scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a failure of the plain iteration is answered by the stable one
        plan = ot.sinkhorn(a, b, cost, reg, method="sinkhorn")
        if not (np.isfinite(plan).all() and np.abs(plan.sum(axis=1) - a).max() < 1e-6 / n):
            plan = ot.sinkhorn(a, b, cost, reg, method="sinkhorn_log", numItermax=10_000)
    return plan


def harm_scores(
    gradients: Float[np.ndarray, "b kv"],
    plan_row: Float[np.ndarray, " kv"],
    n_batches: int,
    offset: float = 0.0,
) -> Float[np.ndarray, " b"]:
    """Harm of each row of one training batch: s_k = K_t sum_j Pi_ij cg_k^(ij) + offset. High means harmful.

    Args:
        gradients: calibrated gradients against each validation batch, shape (b, K_v).
        plan_row: the batch's row of the outer plan, shape (K_v,).
        n_batches: number of training batches K_t.
        offset: what is added to every row of the batch, see ``between`` of ``icl25_sava.SAVA``.

    Returns:
        Scores, shape (b,), float64, in units of the cost.

    Source: SAVA (arXiv 2406.01130), valuation from the hierarchical plan.
    """
    return gradients.astype(np.float64) @ (n_batches * plan_row) + offset
