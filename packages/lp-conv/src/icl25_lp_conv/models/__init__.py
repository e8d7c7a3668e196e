"""Networks: small ones of this package, those of torchvision and timm by name, and the presets of the experiments."""

from __future__ import annotations

from icl25_lp_conv.models.digits_net import digits_resnet
from icl25_lp_conv.models.presets import Preset, presets
from icl25_lp_conv.models.sources import ModelSource, build_model
from icl25_lp_conv.models.sudoku_net import sudoku_cnn

__all__ = ["ModelSource", "Preset", "build_model", "digits_resnet", "presets", "sudoku_cnn"]
