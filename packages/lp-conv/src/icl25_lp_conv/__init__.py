"""Lp-convolution: convolutions with trainable receptive fields, for any network and any number of axes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl25_lp_conv import datasets, models, rsa
    from icl25_lp_conv.conversion import ConversionReport, convert, merge
    from icl25_lp_conv.layers import (
        LpConv1d,
        LpConv2d,
        LpConv3d,
        LpConvTranspose1d,
        LpConvTranspose2d,
        LpConvTranspose3d,
    )
    from icl25_lp_conv.lp_layer import LpLayer
    from icl25_lp_conv.masks import lp_conv2d, lp_mask
    from icl25_lp_conv.state_dicts import load_conv_state_dict
    from icl25_lp_conv.training import clamp_masks_, mask_regularizer, param_groups

_HOMES = {
    "conversion": ("ConversionReport", "convert", "merge"),
    "layers": ("LpConv1d", "LpConv2d", "LpConv3d", "LpConvTranspose1d", "LpConvTranspose2d", "LpConvTranspose3d"),
    "lp_layer": ("LpLayer",),
    "masks": ("lp_conv2d", "lp_mask"),
    "state_dicts": ("load_conv_state_dict",),
    "training": ("clamp_masks_", "mask_regularizer", "param_groups"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("datasets", "models", "rsa")

__all__ = [
    "ConversionReport",
    "LpConv1d",
    "LpConv2d",
    "LpConv3d",
    "LpConvTranspose1d",
    "LpConvTranspose2d",
    "LpConvTranspose3d",
    "LpLayer",
    "clamp_masks_",
    "convert",
    "datasets",
    "load_conv_state_dict",
    "lp_conv2d",
    "lp_mask",
    "mask_regularizer",
    "merge",
    "models",
    "param_groups",
    "rsa",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
