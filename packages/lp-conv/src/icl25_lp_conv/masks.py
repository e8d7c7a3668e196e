"""Lp masks: the trainable receptive field by which a kernel is multiplied, and masked convolution as a function."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

__all__ = ["init_C", "kernel_offsets", "lp_conv2d", "lp_mask"]

# A mask below exp(-limit) is exactly zero. In single precision the product with a weight would be subnormal, on which
# convolutions are many times slower; in double precision there is room for more.
_LIMIT = {torch.float32: 69.0, torch.float64: 690.0}
_SIGMA_OFFSET = 1e-4
_LARGEST_LOG2P = 100.0  # a box to rounding already; p itself would overflow from 128 on


def kernel_offsets(
    kernel_size: Sequence[int], *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> list[Tensor]:
    """Offsets of the taps of a kernel from its centre, in taps, one tensor for each axis.

    Args:
        kernel_size: Taps k_1, ..., k_n along each axis, each >= 1.
        dtype: Floating-point type of the result.
        device: Device of the result.

    Returns:
        n tensors; the i-th holds m - (k_i - 1) / 2 for m = 0, ..., k_i - 1 (half-integers for an even k_i) and has n
        dimensions, all of size 1 but the i-th, so that the tensors broadcast to the shape of the kernel.

    Source: the Lp-mask of Kwon et al. (ICLR 2025); the axes are those of the kernel.
    """
    n = len(kernel_size)
    return [
        (torch.arange(k, dtype=dtype, device=device) - (k - 1) / 2).view([-1 if j == i else 1 for j in range(n)])
        for i, k in enumerate(kernel_size)
    ]


def lp_mask(C: Float[Tensor, "c n n"], log2p: Float[Tensor, " c"], kernel_size: Sequence[int]) -> Float[Tensor, "..."]:
    """Evaluate the mask M(s) = exp(-sum_i |C s|_i^p) of each channel at the taps s of a kernel.

    The value is 1 at the centre of an odd kernel and falls off along an ellipse (p = 2) to a box (p large) whose shape
    is C. It is computed in single precision at least, whatever the type of the parameters and whether or not autocast
    is on. Value and gradient are finite for every finite C and log2p: far outside, where M < 1e-30 (1e-300 in double
    precision), both are exactly zero.

    Args:
        C: (c, n, n) shape matrices; C acts on offsets in taps, so that C^T C is the precision matrix at p = 2.
        log2p: (c,) logarithms to base 2 of the exponents p.
        kernel_size: The n sizes k_1, ..., k_n of the kernel.

    Returns:
        (c, k_1, ..., k_n) masks in [0, 1], in double precision where C is, else in single precision.

    Raises:
        ValueError: If the shapes of C, log2p and kernel_size do not fit together.

    Source: the multivariate p-generalised normal density of Kwon et al. (ICLR 2025), its constant dropped.

    Example:
        >>> lp_mask(torch.eye(2)[None] / 1.5001, torch.tensor([1.0]), (3, 3))[0, 1]
        tensor([0.6412, 1.0000, 0.6412])
    """
    n = len(kernel_size)
    if C.shape[1:] != (n, n) or log2p.shape != C.shape[:1]:
        raise ValueError(
            f"for a kernel of {n} axes C must be (c, {n}, {n}) and log2p (c,), "
            f"found {tuple(C.shape)} and {tuple(log2p.shape)}"
        )
    dtype = torch.float64 if C.dtype == torch.float64 else torch.float32
    limit = _LIMIT[dtype]
    C = C.to(dtype)
    p = torch.exp2(log2p.to(dtype).clamp(max=_LARGEST_LOG2P)).view(-1, *[1] * (n + 1))
    # Products by axis rather than a matrix product, which autocast and TF32 would round.
    columns = C.view(*C.shape, *[1] * n).unbind(2)
    offsets = kernel_offsets(kernel_size, dtype=dtype, device=C.device)
    z = functools.reduce(torch.add, (column * s for column, s in zip(columns, offsets, strict=True))).abs()
    inside = z != 0  # NaN counts, so that it shows
    # z^p as exp(p log z), the exponent clamped: neither overflow nor its infinite gradient, and none at all at z = 0.
    power = torch.exp(torch.clamp(p * torch.where(inside, z, 1).log(), max=math.log(2 * limit)))
    exponent = torch.where(inside, power, 0).sum(1)
    return functional.threshold(torch.exp(-exponent), math.exp(-limit), 0)


def init_C(
    n_masks: int,
    sigma: Sequence[float],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "c n n"]:
    """Initial shape matrices diag(1 / (sigma_i + 1e-4)): axis-aligned masks of radius sigma.

    Args:
        n_masks: How many.
        sigma: The radius along each of the n axes, in taps, > 0.
        dtype: Floating-point type; torch's default if None.
        device: Device.

    Returns:
        (n_masks, n, n) matrices.

    Raises:
        ValueError: If a radius is not positive and finite.

    Source: the paper's initialisation diag(1 / sigma); 1e-4 is added in the authors' code.
    """
    bad = [radius for radius in sigma if not (math.isfinite(radius) and radius > 0)]
    if bad:
        raise ValueError(f"sigma must be positive and finite, found {bad[0]}")
    diagonal = [1 / (radius + _SIGMA_OFFSET) for radius in sigma]
    return torch.diag(torch.tensor(diagonal, dtype=dtype, device=device)).repeat(n_masks, 1, 1)


def lp_conv2d(
    x: Float[Tensor, "*b c_in h w"],
    weight: Float[Tensor, "c_out c_group k1 k2"],
    C: Float[Tensor, "c_out 2 2"],
    log2p: Float[Tensor, " c_out"],
    bias: Float[Tensor, " c_out"] | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Float[Tensor, "*b c_out h_out w_out"]:
    """Convolve in two dimensions with kernels multiplied by their Lp masks.

    Args:
        x: (..., c_in, height, width) images.
        weight: (c_out, c_in / groups, k_1, k_2) kernels.
        C: (c_out, 2, 2) shape matrices, see ``lp_mask``.
        log2p: (c_out,) logarithms to base 2 of the exponents p.
        bias: (c_out,) constants to add, or None.
        stride: As in ``torch.nn.functional.conv2d``.
        padding: Likewise.
        dilation: Likewise; the mask lies on taps, whatever the dilation.
        groups: Likewise.

    Returns:
        (..., c_out, height_out, width_out).

    Raises:
        ValueError: If the shapes of C, log2p and the kernel do not fit together.

    Source: Lp-convolution (Kwon et al., ICLR 2025).
    """
    masked = weight * lp_mask(C, log2p, weight.shape[2:]).unsqueeze(1).to(weight.dtype)
    return functional.conv2d(x, masked, bias, stride, padding, dilation, groups)
