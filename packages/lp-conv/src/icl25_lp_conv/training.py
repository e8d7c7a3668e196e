"""What training needs beside the layers: parameter groups, the floor of the exponents, a penalty on open masks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from icl25_lp_conv.lp_layer import LpLayer

__all__ = ["clamp_masks_", "mask_regularizer", "param_groups"]


def param_groups(
    model: nn.Module,
    weight_decay: float,
    mask_weight_decay: float = 0.0,
    mask_lr_scale: float = 1.0,
    lr: float | None = None,
) -> list[dict[str, Any]]:
    """Group the parameters of a network for an optimizer of torch.

    Kernels and matrices get ``weight_decay``; biases, norms and exponents (everything with at most one axis) get none.
    Decay of ``C`` pushes masks to be wider; the authors' code applies it, as a side effect of its grouping, which
    ``mask_weight_decay=weight_decay`` reproduces.

    Args:
        model: The network.
        weight_decay: Decay of kernels and matrices.
        mask_weight_decay: Decay of the shape matrices ``C``.
        mask_lr_scale: Factor for the learning rate of ``C`` and ``log2p``, > 0.
        lr: Learning rate of everything else. Needed for ``mask_lr_scale`` to act in optimizers of torch; schedulers
            that read ``lr_scale`` (as timm's do) need none.

    Returns:
        Groups with the keys ``name`` (weights, no decay, mask shapes, mask exponents), ``params``, ``weight_decay``,
        ``lr_scale`` and, if given, ``lr``; groups without parameters are left out, as are parameters that are frozen.

    Raises:
        ValueError: If a number is negative or not finite, or ``mask_lr_scale`` zero.

    Warns:
        UserWarning: If ``mask_lr_scale`` is not 1 and ``lr`` is not given.

    Source: the paper's training recipe (DeiT settings) and the authors' code; mask decay of zero is ours.
    """
    for name, value in (("weight_decay", weight_decay), ("mask_weight_decay", mask_weight_decay), ("lr", lr or 0)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} must be finite and >= 0, found {value}")
    if not (math.isfinite(mask_lr_scale) and mask_lr_scale > 0):
        raise ValueError(f"mask_lr_scale must be finite and > 0, found {mask_lr_scale}")
    if mask_lr_scale != 1 and lr is None:
        warnings.warn("optimizers of torch ignore mask_lr_scale unless lr is given too", stacklevel=2)
    shapes = {id(layer.C) for layer in _lp_layers(model)}
    exponents = {id(layer.log2p) for layer in _lp_layers(model)}
    groups: dict[str, dict[str, Any]] = {
        "weights": {"weight_decay": weight_decay, "lr_scale": 1.0},
        "no decay": {"weight_decay": 0.0, "lr_scale": 1.0},
        "mask shapes": {"weight_decay": mask_weight_decay, "lr_scale": mask_lr_scale},
        "mask exponents": {"weight_decay": 0.0, "lr_scale": mask_lr_scale},
    }
    members: dict[str, list[nn.Parameter]] = {name: [] for name in groups}
    for parameter in model.parameters():
        if parameter.requires_grad:
            if id(parameter) in shapes:
                members["mask shapes"].append(parameter)
            elif id(parameter) in exponents:
                members["mask exponents"].append(parameter)
            else:
                members["weights" if parameter.ndim > 1 else "no decay"].append(parameter)
    return [
        {"name": name, "params": members[name], **group, **({} if lr is None else {"lr": lr * group["lr_scale"]})}
        for name, group in groups.items()
        if members[name]
    ]


@torch.no_grad()
def clamp_masks_(model: nn.Module, log2p_min: float = 1.0) -> None:
    """Lift every exponent to a floor, in place; call it after the optimizer's step.

    Args:
        model: The network.
        log2p_min: Floor of ``log2p``: 1 keeps p >= 2. A layer's own ``log2p_min`` goes before it.

    Raises:
        ValueError: If ``log2p_min`` is not finite.

    Source: the authors' Sudoku training, which holds log2 p >= 1.
    """
    if not math.isfinite(log2p_min):
        raise ValueError(f"log2p_min must be finite, found {log2p_min}")
    for layer in _lp_layers(model):
        if layer.log2p is not None:
            layer.log2p.clamp_(min=log2p_min if layer.log2p_min is None else layer.log2p_min)


def mask_regularizer(model: nn.Module, kind: Literal["area", "l1"] = "area") -> Float[Tensor, ""]:
    """Penalty on the kernels that masks leave open, to be added to the loss with a weight of the user's choice.

    Args:
        model: The network, with at least one Lp layer that has masks.
        kind: ``"area"``: the mean mask value over taps, averaged over layers, in [0, 1]; gradients reach the masks.
            ``"l1"``: the mean absolute value of masked kernels, averaged over layers; gradients reach both.

    Returns:
        The penalty, a scalar.

    Raises:
        ValueError: If ``kind`` is unknown, or no layer has masks.

    Source: ours.
    """
    if kind not in ("area", "l1"):
        raise ValueError(f"kind must be area or l1, found {kind!r}")
    layers = [layer for layer in _lp_layers(model) if layer.C is not None]
    if not layers:
        raise ValueError("the network has no Lp layer with masks")
    values = [layer.mask().mean() if kind == "area" else layer.masked_weight().abs().mean() for layer in layers]
    return torch.stack(values).mean()


def _lp_layers(model: nn.Module) -> Iterator[LpLayer]:
    return (module for module in model.modules() if isinstance(module, LpLayer))
