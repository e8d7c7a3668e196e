"""Other ways to let a large kernel find its support, on the digits task: accuracy and time of a training."""

import logging
import time

import torch
from torch import nn

from icl25_lp_conv import convert
from icl25_lp_conv.digits_task import DigitsSizes, train_network, train_on_digits
from icl25_lp_conv.models import digits_resnet
from icl25_lp_conv.models.presets import random_mask

SEEDS = (0, 1, 2)


def replace(model, make):
    """The network with every 3x3 convolution replaced."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Conv2d) and child.kernel_size == (3, 3):
                setattr(module, name, make(child))
    return model


def with_random_taps(seed):
    """As many taps of each 7x7 kernel as a mask of p = 4 opens, but drawn at random and fixed."""
    model = convert(digits_resnet(), p=4.0, transfer="none", min_kernel=2, sigma=1.5)
    return random_mask(model, seed)


def with_dcls():
    """Nine taps at trained places of a 7x7 kernel (dilated convolution with learnable spacings)."""
    from DCLS.construct.modules import Dcls2d

    return replace(
        digits_resnet(),
        lambda old: Dcls2d(
            old.in_channels, old.out_channels, 9, old.stride, padding=3, bias=False, dilated_kernel_size=7
        ),
    )


class Deformable(nn.Module):
    """A 3x3 convolution whose taps move by offsets that another one computes for every pixel."""

    def __init__(self, old):
        super().__init__()
        from torchvision.ops import DeformConv2d

        self.offsets = nn.Conv2d(old.in_channels, 18, 3, old.stride, 1)
        nn.init.zeros_(self.offsets.weight)
        self.conv = DeformConv2d(old.in_channels, old.out_channels, 3, old.stride, 1, bias=False)

    def forward(self, x):
        return self.conv(x, self.offsets(x))


def with_deformable():
    """Deformable convolutions of torchvision."""
    return replace(digits_resnet(), Deformable)


logging.disable(logging.WARNING)  # DCLS says at every layer that it computes without CUDA
sizes = DigitsSizes()
ways = {name: lambda seed, name=name: train_on_digits(name, seed, sizes) for name in ("3x3", "7x7", "Lp p=2", "Lp p=4")}
ways["random taps, as p=4"] = lambda seed: train_network(lambda: with_random_taps(seed), seed, sizes)
ways["DCLS, 9 taps in 7x7"] = lambda seed: train_network(with_dcls, seed, sizes)
try:
    import torchvision  # noqa: F401

    ways["deformable 3x3"] = lambda seed: train_network(with_deformable, seed, sizes)
except (ImportError, RuntimeError) as error:
    print(f"deformable convolutions are left out: torchvision cannot be imported ({str(error).splitlines()[0]})")
torch.set_num_threads(1)
for name, train in ways.items():
    start = time.perf_counter()
    accuracies = [train(seed)[1] for seed in SEEDS]
    seconds = (time.perf_counter() - start) / len(SEEDS)
    print(
        f"{name:20s} accuracy {sum(accuracies) / len(SEEDS):.3f} {accuracies}, {seconds:.1f} s a training", flush=True
    )
