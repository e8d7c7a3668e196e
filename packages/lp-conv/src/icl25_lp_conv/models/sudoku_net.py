"""The fully convolutional network that fills Sudoku boards."""

from __future__ import annotations

import contextlib
from collections import OrderedDict

import torch
from torch import nn

__all__ = ["sudoku_cnn"]


def sudoku_cnn(depth: int = 15, width: int = 512, *, seed: int | None = None) -> nn.Sequential:
    """Build the network that maps a board to nine logits for each cell.

    It is ``depth`` blocks of reflection padding by 1, a 3x3 convolution, batch normalisation and ReLU, and a 1x1
    convolution. Every block looks one cell further, so that a cell sees the whole board from eight blocks on; larger
    kernels reach it sooner.

    Args:
        depth: Number of blocks, >= 1; the paper has 15 and 10.
        width: Channels of each block, >= 1; the paper has 512 and 256.
        seed: Seed of the weights, which then depend on nothing else; None draws them from torch's global generator,
            as torch's own layers do.

    Returns:
        A network from (b, 1, 9, 9) boards, scaled as by ``icl25_lp_conv.sudoku_training.encode``, to (b, 9, 9, 9)
        logits, axis 1 being the digits 1 .. 9: a sequence of ``blocks`` and ``head``.

    Raises:
        ValueError: If depth or width is below 1.

    Source: the paper's Sudoku experiment.

    Example:
        >>> sudoku_cnn(depth=2, width=8)(torch.zeros(3, 1, 9, 9)).shape
        torch.Size([3, 9, 9, 9])
    """
    for name, value in (("depth", depth), ("width", width)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1, found {value}")
    with contextlib.nullcontext() if seed is None else torch.random.fork_rng(devices=[]):
        if seed is not None:
            torch.random.default_generator.manual_seed(seed)
        blocks = [_block(1 if number == 0 else width, width) for number in range(depth)]
        return nn.Sequential(OrderedDict(blocks=nn.Sequential(*blocks), head=nn.Conv2d(width, 9, 1)))


def _block(n_in: int, n_out: int) -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            pad=nn.ReflectionPad2d(1), conv=nn.Conv2d(n_in, n_out, 3), norm=nn.BatchNorm2d(n_out), relu=nn.ReLU()
        )
    )
