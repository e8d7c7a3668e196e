"""What a mask looks like: its radius, elongation and angle from the singular values of C, and what it leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from icl25_lp_conv.masks import lp_mask

__all__ = ["describe_shapes"]

_CLOSED = 0.01


def describe_shapes(
    C: Float[Tensor, "c n n"], log2p: Float[Tensor, " c"], kernel_size: Sequence[int]
) -> dict[str, Any]:
    """Describe each mask by numbers.

    With C = U diag(s_1 >= ... >= s_n) V^T, the level set |C s| = 1 of a Gaussian mask (p = 2) is an ellipse whose
    semi-axes are 1 / s_i along the columns of V: the longest is 1 / s_n.

    Args:
        C: (c, n, n) shape matrices.
        log2p: (c,) logarithms to base 2 of the exponents.
        kernel_size: The n sizes of the kernel.

    Returns:
        Columns with c entries each: ``channel``; ``p``; ``alpha``, the geometric mean of the semi-axes in taps;
        ``gamma`` >= 1, longest over shortest semi-axis (1 where n = 1); ``theta`` in [0, pi), for two axes the angle in
        radians of the longest semi-axis from the direction of growing columns towards that of growing rows, and for
        three the components ``axis_0`` ... ``axis_2`` of that semi-axis as a unit vector; ``area``, the sum of the mask
        over the taps; ``sparsity``, the share of taps on which the mask is below 0.01. A singular C has infinite
        ``alpha`` and ``gamma``.

    Raises:
        ValueError: If the shapes of C, log2p and kernel_size do not fit together.

    Source: singular value decomposition of C as in the authors' analysis of learned masks; these definitions are ours.
    """
    n = len(kernel_size)
    mask = lp_mask(C, log2p, kernel_size).flatten(1).double().cpu().numpy()
    _, s, Vh = np.linalg.svd(C.double().cpu().numpy())
    longest = Vh[:, -1]
    with np.errstate(divide="ignore"):
        summary: dict[str, Any] = {
            "channel": np.arange(len(C)),
            "p": torch.exp2(log2p.double()).cpu().numpy(),
            "alpha": 1 / np.prod(s, axis=1) ** (1 / n),
            "gamma": np.divide(s[:, 0], s[:, -1], out=np.full(len(s), np.inf), where=s[:, -1] > 0),
        }
    if n == 2:
        summary["theta"] = np.arctan2(longest[:, 0], longest[:, 1]) % np.pi % np.pi  # -0.0 and rounding give pi
    elif n > 2:
        sign = np.where(longest[np.arange(len(C)), np.abs(longest).argmax(1)] < 0, -1, 1)
        summary |= {f"axis_{i}": sign * longest[:, i] for i in range(n)}
    return summary | {"area": mask.sum(1), "sparsity": (mask < _CLOSED).mean(1)}
