"""Convolution layers with trainable Lp masks, in one to three dimensions and transposed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from icl25_lp_conv.lp_layer import LpLayer

__all__ = [
    "LP_CLASSES",
    "LpConv1d",
    "LpConv2d",
    "LpConv3d",
    "LpConvTranspose1d",
    "LpConvTranspose2d",
    "LpConvTranspose3d",
]


class _Convolution(LpLayer):
    """The forward pass of an ordinary convolution."""

    def forward(self, input: Tensor) -> Tensor:
        """Convolve with the masked kernels; shapes as in the torch layer."""
        return self._conv_forward(input, self.masked_weight(), self.bias)  # ty: ignore[not-callable]


class _Transposed(LpLayer):
    """The forward pass of a transposed convolution."""

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Convolve with the masked kernels; shapes and ``output_size`` as in the torch layer."""
        n = len(self.kernel_size)
        output_padding = self._output_padding(  # ty: ignore[not-callable]
            input, output_size, self.stride, self.padding, self.kernel_size, n, self.dilation
        )
        convolve = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[n - 1]
        weight = self.masked_weight()
        return convolve(input, weight, self.bias, self.stride, self.padding, output_padding, self.groups, self.dilation)  # ty: ignore[invalid-argument-type]


class LpConv1d(_Convolution, nn.Conv1d):
    """``torch.nn.Conv1d`` with Lp masks; see ``LpLayer`` for the arguments that come with them.

    Source: Lp-convolution (Kwon et al., ICLR 2025), in one dimension.
    """

    plain = nn.Conv1d


class LpConv2d(_Convolution, nn.Conv2d):
    """``torch.nn.Conv2d`` with Lp masks; see ``LpLayer`` for the arguments that come with them.

    Source: Lp-convolution (Kwon et al., ICLR 2025).

    Example:
        >>> import torch
        >>> layer = LpConv2d(3, 8, kernel_size=7, padding=3, p=2, sigma=1.5)
        >>> layer(torch.zeros(1, 3, 32, 32)).shape, layer.mask().shape
        (torch.Size([1, 8, 32, 32]), torch.Size([8, 1, 7, 7]))
    """

    plain = nn.Conv2d


class LpConv3d(_Convolution, nn.Conv3d):
    """``torch.nn.Conv3d`` with Lp masks; see ``LpLayer`` for the arguments that come with them.

    Source: Lp-convolution (Kwon et al., ICLR 2025), in three dimensions.
    """

    plain = nn.Conv3d


class LpConvTranspose1d(_Transposed, nn.ConvTranspose1d):
    """``torch.nn.ConvTranspose1d`` with Lp masks; see ``LpLayer`` for the arguments that come with them.

    Source: Lp-convolution (Kwon et al., ICLR 2025), transposed.
    """

    plain = nn.ConvTranspose1d


class LpConvTranspose2d(_Transposed, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d`` with Lp masks; see ``LpLayer`` for the arguments that come with them.

    Source: Lp-convolution (Kwon et al., ICLR 2025), transposed.
    """

    plain = nn.ConvTranspose2d


class LpConvTranspose3d(_Transposed, nn.ConvTranspose3d):
    """``torch.nn.ConvTranspose3d`` with Lp masks; see ``LpLayer`` for the arguments that come with them.

    Source: Lp-convolution (Kwon et al., ICLR 2025), transposed.
    """

    plain = nn.ConvTranspose3d


LP_CLASSES: dict[type[nn.Module], type[LpLayer]] = {
    cls.plain: cls for cls in (LpConv1d, LpConv2d, LpConv3d, LpConvTranspose1d, LpConvTranspose2d, LpConvTranspose3d)
}
"""The Lp layer of each convolution layer of torch."""
