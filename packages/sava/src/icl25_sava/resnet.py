"""ResNet-18 in its two usual forms, in PyTorch."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["make_resnet18"]


def make_resnet18(n_classes: int, *, small_images: bool, width: int = 64, seed: int = 0) -> Any:
    """A ResNet-18 with fresh weights that depend on the seed alone.

    Args:
        n_classes: number of outputs.
        small_images: a 3x3 first convolution that keeps the size, for images of at most 64 pixels a side; else the
            7x7 one of stride 2 with max-pooling.
        width: channels of the first of the four stages, doubled in each following one.
        seed: seed of the weights; the global generator of torch is neither read nor moved.

    Returns:
        A torch module from (b, 3, h, w) images to (b, n_classes) logits, on the CPU: a sequence of the parts ``stem``,
        ``blocks``, ``pool`` and ``head``.

    Raises:
        ModuleNotFoundError: torch is not installed.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, with He initialisation.
    """
    import torch

    with torch.device("meta"):
        network = _layers(n_classes, small_images, width)
    network = network.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.Conv2d):
                fan_out = module.out_channels * math.prod(module.kernel_size)
                module.weight.normal_(0.0, math.sqrt(2 / fan_out), generator=generator)
            elif isinstance(module, torch.nn.BatchNorm2d):
                module.reset_parameters()  # ones and zeros: nothing is drawn
            elif isinstance(module, torch.nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                module.weight.uniform_(-bound, bound, generator=generator)
                module.bias.uniform_(-bound, bound, generator=generator)
    return network


def _layers(n_classes: int, small_images: bool, width: int) -> Any:
    from collections import OrderedDict

    from torch import nn, relu

    class BasicBlock(nn.Module):
        """Two 3x3 convolutions and a shortcut; defined here because torch is imported here."""

        def __init__(self, n_in: int, n_out: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(n_out)
            self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(n_out)
            self.shortcut = nn.Sequential()
            if stride != 1 or n_in != n_out:
                self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

        def forward(self, x: Any) -> Any:
            """Map (b, n_in, h, w) to (b, n_out, h / stride, w / stride)."""
            out = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
            return relu(out + self.shortcut(x))

    first = nn.Conv2d(3, width, 3, 1, 1, bias=False) if small_images else nn.Conv2d(3, width, 7, 2, 3, bias=False)
    shrink = [] if small_images else [nn.MaxPool2d(3, 2, 1)]
    blocks, n_in = [], width
    for stage in range(4):
        n_out = width * 2**stage
        blocks += [BasicBlock(n_in, n_out, 1 if stage == 0 else 2), BasicBlock(n_out, n_out, 1)]
        n_in = n_out
    return nn.Sequential(
        OrderedDict(
            stem=nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(), *shrink),
            blocks=nn.Sequential(*blocks),
            pool=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            head=nn.Linear(n_in, n_classes),
        )
    )
