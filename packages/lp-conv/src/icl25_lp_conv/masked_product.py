"""Multiply large kernels by their masks with little memory traffic in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["masked_product"]

_LARGE = 1 << 18  # entries of a kernel from which on the backward pass is worth cutting into chunks
_CHUNK = 1 << 17  # entries of a chunk, which stays in the cache


def masked_product(
    weight: Float[Tensor, "c_out c_in *k"], mask: Float[Tensor, "c_out_or_1 *k"]
) -> Float[Tensor, "c_out c_in *k"]:
    """Multiply each kernel by the mask of its output channel.

    On the CPU the gradient of a large kernel is computed in chunks: the product of kernel and gradient, which only its
    sum over input channels is needed of, is never held as a whole.

    Args:
        weight: (c_out, c_in, k_1, ..., k_n) kernels.
        mask: (c_out, k_1, ..., k_n) masks, or (1, k_1, ..., k_n) for one that all share.

    Returns:
        (c_out, c_in, k_1, ..., k_n) masked kernels.

    Source: Lp-convolution (Kwon et al., ICLR 2025).
    """
    chunked = weight.device.type == "cpu" and weight.numel() >= _LARGE and len(mask) == len(weight)
    if chunked and not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
        return _MaskedProduct.apply(weight, mask)
    return weight * mask.unsqueeze(1)


def _has_storage(tensor: Tensor) -> bool:
    try:
        tensor.data_ptr()
    except RuntimeError:  # a batch of tensors under vmap, which cannot be written to
        return False
    return True


class _MaskedProduct(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, mask: Tensor) -> Tensor:
        return weight * mask.unsqueeze(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        weight, mask = ctx.saved_tensors
        # In chunks unless a graph of the gradient is asked for, or many gradients at once.
        if torch.is_grad_enabled() or not _has_storage(gradient):
            return gradient * mask.unsqueeze(1), (gradient * weight).sum(1)
        grad_weight, grad_mask = torch.empty_like(weight), torch.empty_like(mask)
        n_channels = max(1, _CHUNK // weight[0].numel())
        for start in range(0, len(weight), n_channels):
            part = slice(start, start + n_channels)
            torch.sum(gradient[part] * weight[part], 1, out=grad_mask[part])
            torch.mul(gradient[part], mask[part].unsqueeze(1), out=grad_weight[part])
        return grad_weight, grad_mask

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        weight, mask = ctx.saved_tensors
        d_weight, d_mask = tangents
        parts = [] if d_weight is None else [d_weight * mask.unsqueeze(1)]
        parts += [] if d_mask is None else [weight * d_mask.unsqueeze(1)]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]
