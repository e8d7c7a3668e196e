"""The variants of a network that the experiments compare: small kernels, large ones, and large ones with masks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.lp_layer import LpLayer

__all__ = ["FixedMask", "Preset", "mask_kernel", "presets", "random_mask"]

# A tap counts as open from this value of its mask on.
_OPEN = 0.01


@dataclass(frozen=True)
class Preset:
    """A way to convert a network; call it with one.

    Attributes:
        p: Initial exponent of the masks; None for kernels without masks.
        growth: Factor by which kernels grow. A preset that neither grows nor masks them leaves networks as they are.
        learn_p: Whether exponents are trained.
        learn_C: Whether shape matrices are trained.

    Source: the variants of the paper's experiments.

    Example:
        >>> presets["lp2"](nn.Sequential(nn.Conv2d(1, 4, 3)))
        Sequential(
          (0): LpConv2d(1, 4, kernel_size=(7, 7), stride=(1, 1), padding=(2, 2), p=2)
        )
    """

    p: float | None
    growth: float = 2
    learn_p: bool = True
    learn_C: bool = True

    def __call__(self, model: nn.Module, **convert_options: Any) -> nn.Module:
        """Convert a network, which stays as it is unless ``inplace=True``.

        Args:
            model: The network.
            **convert_options: Options of ``convert``; they go before the values of the preset.

        Returns:
            The variant.

        Raises:
            TypeError: As ``convert`` does.
            ValueError: As ``convert`` does.
        """
        options: dict[str, Any] = {"p": self.p, "growth": self.growth, "learn_p": self.learn_p, "learn_C": self.learn_C}
        options |= convert_options
        if options["p"] is None and options["growth"] == 1:
            return model if options.get("inplace") else copy.deepcopy(model)
        return convert(model, **options)


def _all_presets() -> dict[str, Preset]:
    found = {"base": Preset(None, growth=1), "large": Preset(None)}
    for p in (2, 4, 8, 16):
        found[f"lp{p}"] = Preset(p)
    for p in (2, 4, 8, 16):
        found[f"lp{p}-frozen-p"] = Preset(p, learn_p=False)
    found["gauss-frozen"] = Preset(2, learn_p=False, learn_C=False)
    found["box256-frozen"] = Preset(256, learn_p=False, learn_C=False)
    return found


presets: Mapping[str, Preset] = MappingProxyType(_all_presets())
"""The presets by name: ``base`` (as it is), ``large`` (no masks), ``lp2`` .. ``lp16`` (trained masks), the same with
``-frozen-p`` (their exponents fixed), ``gauss-frozen`` and ``box256-frozen`` (masks fixed altogether)."""


class FixedMask(nn.Module):
    """A parametrisation of torch that multiplies a kernel by a mask of zeros and ones.

    Args:
        mask: A mask that broadcasts against the kernel.

    Source: ours, the control with random masks.
    """

    mask: Tensor

    def __init__(self, mask: Float[Tensor, "..."]) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Multiply the kernel, of any shape that the mask broadcasts to."""
        return weight * self.mask.to(weight.dtype)


def random_mask(model: nn.Module, seed: int) -> nn.Module:
    """The control for the shape of masks: as many open taps in each channel, but at random places, and never trained.

    Every Lp layer becomes a convolution of torch with the same kernel before masking, multiplied by zeros and ones
    (a parametrisation of its weight). A tap of a learned mask counts as open from 0.01 on.

    Args:
        model: A converted network; it stays as it is.
        seed: Seed of the places, >= 0.

    Returns:
        The control.

    Raises:
        ValueError: If no layer has masks.

    Source: ours; the paper has no such control.
    """
    model = copy.deepcopy(model)
    rng = np.random.default_rng(seed)
    layers: list[LpLayer] = [m for m in model.modules() if isinstance(m, LpLayer) and m.C is not None]
    if not layers:
        raise ValueError("the network has no Lp layer with masks")
    controls = {id(layer): _control(layer, rng) for layer in layers}
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if id(child) in controls:
                parent._modules[name] = controls[id(child)]
    return controls.get(id(model), model)


def _control(layer: Any, rng: np.random.Generator) -> nn.Module:
    with torch.no_grad():
        opened = (layer.mask() >= _OPEN).flatten(1).cpu().numpy()
    shuffled = torch.from_numpy(rng.permuted(opened, axis=1)).view(layer.out_channels, 1, *layer.kernel_size)
    conv = layer.to_conv()
    with torch.no_grad():
        conv.weight.copy_(layer.weight)
    mask_kernel(conv, shuffled.to(layer.weight.device))
    return conv


def mask_kernel(conv: Any, mask: Bool[Tensor, "c_out 1 *k"]) -> None:
    """Multiply the kernel of a convolution by a fixed mask from now on.

    Args:
        conv: A convolution of torch, ordinary or transposed.
        mask: (out_channels, 1, k_1, ..., k_n), which taps stay.

    Source: ours.
    """
    if conv.transposed:  # its kernel is (in, out / groups, ...), the input channels ordered by group
        by_group = mask.view(conv.groups, 1, -1, *conv.kernel_size)
        mask = by_group.expand(-1, conv.in_channels // conv.groups, *by_group.shape[2:]).flatten(0, 1)
    parametrize.register_parametrization(conv, "weight", FixedMask(mask.to(conv.weight.dtype)))
