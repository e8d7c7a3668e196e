"""Load the weights of plain convolutions into a converted network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from icl25_lp_conv.growth import centre
from icl25_lp_conv.lp_layer import LpLayer

__all__ = ["load_conv_state_dict"]


def load_conv_state_dict(
    model: nn.Module, state_dict: Mapping[str, Tensor], transfer: Literal["copy", "exact"] = "copy"
) -> None:
    """Load the state of a plain network into its converted form: kernels go to the centre, masks stay as they are.

    Kernels of the full size are taken whole, so that the state of a converted network may be loaded too.

    Args:
        model: The converted network.
        state_dict: State of the network before conversion, with kernels of shape (out, in / groups, k_1, ..., k_n).

        transfer: ``"copy"`` leaves the kernels to be dampened by the masks; ``"exact"`` divides those that grew by the
            masks, so that the network computes what the plain one does.

    Raises:
        ValueError: If ``transfer`` is unknown, or an entry is missing, unknown or of a shape that does not fit; the
            message names it.

    Source: parameter transfer of the authors' conversion.
    """
    if transfer not in ("copy", "exact"):
        raise ValueError(f"transfer must be copy or exact, found {transfer!r}")
    layers = {name: module for name, module in model.named_modules() if isinstance(module, LpLayer)}
    masks = {f"{name}.{part}".removeprefix(".") for name in layers for part in ("C", "log2p")}
    kernels = {f"{name}.weight".removeprefix(".") for name in layers}
    own = model.state_dict()
    unknown = sorted(set(state_dict) - set(own))
    missing = sorted(set(own) - set(state_dict) - masks)
    if unknown or missing:
        raise ValueError(f"the state does not fit the network: unknown {unknown[:3]}, missing {missing[:3]}")
    grown = dict(own)
    blocks: dict[str, tuple[int, ...]] = {}
    for name, value in state_dict.items():
        target = own[name]
        differences = [new - old for new, old in zip(target.shape, value.shape, strict=False)]
        if target.shape == value.shape:
            grown[name] = value
        elif (
            name in kernels
            and target.ndim == value.ndim
            and not any(differences[:2])
            and all(d >= 0 and d % 2 == 0 for d in differences)
        ):
            grown[name] = torch.zeros_like(target)
            centre(grown[name], value.shape[2:]).copy_(value)
            blocks[name] = tuple(value.shape[2:])
        else:
            raise ValueError(f"{name} has shape {tuple(value.shape)}, the network needs {tuple(target.shape)}")
    model.load_state_dict(grown)
    if transfer == "exact":
        for name, layer in layers.items():
            weight = f"{name}.weight".removeprefix(".")
            if weight in blocks:
                layer.undo_mask(blocks[weight])
