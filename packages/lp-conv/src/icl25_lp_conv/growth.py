"""How a kernel grows: its new size, the padding that keeps the output as it was, and where the old taps lie in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

_LARGEST_GROWTH = 100

__all__ = ["centre", "grown_kernel_size", "grown_padding"]


def grown_kernel_size(kernel_size: Sequence[int], growth: float) -> tuple[int, ...]:
    """Sizes of a kernel after growth by a factor: 3 becomes 7, 5 becomes 11, 1 becomes 3 at growth 2.

    A size grows to int(k * growth) + int(k mod growth), as in the authors' code, and by one more where that would add
    an odd number of taps, which no padding could make up for on both sides alike.

    Args:
        kernel_size: The sizes, each >= 1.
        growth: The factor, from 1, which keeps the size, to 100.

    Returns:
        The new sizes.

    Raises:
        ValueError: If ``growth`` is out of range.

    Source: the large-kernel transform of Kwon et al. (ICLR 2025), k' = 2 k + (k mod 2) at growth 2.
    """
    if not (math.isfinite(growth) and growth >= 1):
        raise ValueError(f"growth must be a finite factor >= 1, found {growth}")
    if growth > _LARGEST_GROWTH:
        raise ValueError(f"growth must be <= {_LARGEST_GROWTH}, found {growth}")
    sizes = [int(k * growth) + int(k % growth) for k in kernel_size]
    return tuple(new + (new - old) % 2 for old, new in zip(kernel_size, sizes, strict=True))


def grown_padding(
    padding: str | Sequence[int], old: Sequence[int], new: Sequence[int], dilation: Sequence[int]
) -> str | tuple[int, ...]:
    """The padding with which the grown kernel gives an output of the old size.

    Args:
        padding: ``"same"``, ``"valid"`` or the padding of each axis.
        old: Sizes of the kernel before.
        new: Sizes after; each may differ by an even number of taps, in either direction.
        dilation: Distance of two taps in pixels, for each axis.

    Returns:
        ``"same"`` where that was asked for, else the padding of each axis.

    Source: the large-kernel transform of Kwon et al. (ICLR 2025), with the dilation that the authors' code leaves out.
    """
    if padding == "same":
        return "same"
    before = [0] * len(old) if isinstance(padding, str) else padding
    return tuple(pad + d * (k_new - k) // 2 for pad, k, k_new, d in zip(before, old, new, dilation, strict=True))


def centre(kernel: Float[Tensor, "..."], size: Sequence[int]) -> Float[Tensor, "..."]:
    """The central block of a kernel, as a view.

    Args:
        kernel: (..., k_1, ..., k_n) kernels.
        size: The n sizes of the block, each smaller by an even number of taps.

    Returns:
        (..., size_1, ..., size_n).

    Source: parameter transfer of the authors' conversion.
    """
    for axis, k in zip(range(-len(size), 0), size, strict=True):
        kernel = kernel.narrow(axis, (kernel.shape[axis] - k) // 2, k)
    return kernel
