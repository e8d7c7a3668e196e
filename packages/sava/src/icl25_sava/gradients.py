"""Calibrated gradients: how the transport cost answers to the mass of one training row."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Real

__all__ = ["batchwise_weights", "calibrated_gradient", "entropic_gap"]


def calibrated_gradient(f: Real[np.ndarray, "n *k"]) -> Float[np.ndarray, "n *k"]:
    """Gradient of the transport cost with respect to each row's mass, the total mass held fixed.

    cg_k = f_k - mean of the other rows' f = n / (n - 1) * (f_k - mean f). It sums to zero and does not see the additive
    constant of the dual. High means harmful: more mass on the row raises the distance to the validation set.

    Args:
        f: dual potentials of the training rows, shape (n,) or (n, k) for k problems over the same rows.

    Returns:
        Calibrated gradients, shape of ``f``, in units of the cost.

    Raises:
        ValueError: there are fewer than two rows, for which it is undefined.

    Example:
        >>> calibrated_gradient(np.array([1.0, 4.0, 7.0, 2.0])).round(3)
        array([-3.333,  0.667,  4.667, -2.   ])

    Source: LAVA (Just et al., ICLR 2023), calibrated gradient; used batch by batch in SAVA (arXiv 2406.01130).
    """
    n = len(f)
    if n < 2:
        raise ValueError(f"a calibrated gradient needs at least 2 rows, got {n}")
    return (f - f.mean(axis=0)) * (n / (n - 1))


def batchwise_weights(gradients: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Gradients squashed to (0, 1) and normalised over the batch: the scores of batch-wise LAVA.

    Args:
        gradients: calibrated gradients of one training batch against k validation batches, shape (n, k).

    Returns:
        ``u / sum(u)`` per column with ``u = (tanh(gradients) + 1) / 2``, shape (n, k); equal shares 1 / n for a column
        in which every u is zero to machine precision.

    Raises:
        ValueError: there are no rows.

    Source: SAVA (arXiv 2406.01130), batch-wise LAVA baseline of its reference implementation.
    """
    if len(gradients) == 0:
        raise ValueError("weights need at least 1 row, got 0")
    u = (np.tanh(gradients.astype(np.float64)) + 1) / 2
    total = u.sum(axis=0)
    return np.divide(u, total, out=np.full_like(u, 1 / len(u)), where=total > 0)


def entropic_gap(plan: Real[np.ndarray, "n m"], eps: float) -> Float[np.ndarray, "n m"]:
    """What entropic regularisation adds to differences of calibrated gradients.

    For converged duals and any validation row j, with G the array returned here,
    cg_i - cg_k = n / (n - 1) * (C_ij - C_kj) + G_ij - G_kj; and where the exact plan is positive at (i, j) and (k, j),
    the difference of the *exact* gradients is the entropic one minus (G_ij - G_kj).

    Args:
        plan: converged transport plan for uniform training weights, shape (n, m), positive, n >= 2.
        eps: the regularisation with which it was computed, > 0, in units of the cost.

    Returns:
        ``eps * n / (n - 1) * log(plan)``, shape (n, m), in units of the cost; -inf where the plan underflowed to zero.

    Raises:
        ValueError: the plan has one row, a negative entry, or eps is not positive.

    Source: derived for the KL regulariser of SAVA (arXiv 2406.01130); LAVA's Theorem 2 has reciprocals in place of
    logarithms, which does not hold for this regulariser.
    """
    n = len(plan)
    if n < 2:
        raise ValueError(f"the plan must have at least 2 rows, got {n}")
    if not eps > 0:
        raise ValueError(f"eps must be positive, got {eps}")
    if (plan < 0).any():
        raise ValueError("the plan has negative entries")
    with np.errstate(divide="ignore"):
        return eps * n / (n - 1) * np.log(plan)
