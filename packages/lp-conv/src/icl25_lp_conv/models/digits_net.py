"""The small residual network of the digits task."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["ResidualBlock", "digits_resnet"]


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation, added to their input.

    Args:
        n_in: Channels of the input.
        n_out: Channels of the output.
        stride: Stride of the first convolution; where it or the number of channels changes, the input is projected by a
            1x1 convolution.

    Source: He et al. (2016), the basic block.
    """

    def __init__(self, n_in: int, n_out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, n_in, h, w) to (b, n_out, h / stride, w / stride), rounded up."""
        inner = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def digits_resnet(num_classes: int = 10, widths: Sequence[int] = (12, 24, 48), in_channels: int = 1) -> nn.Sequential:
    """Build the residual network of the digits task: a stem, five basic blocks, global pooling, a linear layer.

    Args:
        num_classes: Number of outputs, >= 1.
        widths: Channels of the three stages, each >= 1. The blocks have widths w0, w1, w1, w2, w2 and strides 1, 2, 1,
            2, 1.
        in_channels: Channels of the images, >= 1.

    Returns:
        A network from (b, in_channels, h, w) images of any size to (b, num_classes) logits.

    Raises:
        ValueError: If there are not three widths, or a number is below 1.

    Source: ours, at the scale of a CPU.

    Example:
        >>> import torch
        >>> digits_resnet(widths=(4, 8, 8))(torch.zeros(2, 1, 20, 20)).shape
        torch.Size([2, 10])
    """
    if len(widths) != 3:
        raise ValueError(f"widths must be three numbers, found {len(widths)}")
    for name, value in (("num_classes", num_classes), ("in_channels", in_channels), ("widths", min(widths))):
        if value < 1:
            raise ValueError(f"{name} must be >= 1, found {value}")
    first, second, third = widths
    stem = nn.Sequential(nn.Conv2d(in_channels, first, 3, 1, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU())
    blocks = nn.Sequential(
        ResidualBlock(first, first),
        ResidualBlock(first, second, stride=2),
        ResidualBlock(second, second),
        ResidualBlock(second, third, stride=2),
        ResidualBlock(third, third),
    )
    network = nn.Sequential()
    network.add_module("stem", stem)
    network.add_module("blocks", blocks)
    network.add_module("pool", nn.AdaptiveAvgPool2d(1))
    network.add_module("flatten", nn.Flatten())
    network.add_module("head", nn.Linear(third, num_classes))
    return network
