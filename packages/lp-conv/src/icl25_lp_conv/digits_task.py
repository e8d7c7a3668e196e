"""Train a residual network with different kernels on digits at random places, where a wide receptive field pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.datasets.digit_canvas import place_digits, split_digits
from icl25_lp_conv.models import digits_resnet
from icl25_lp_conv.reproducibility import run_all, seeded
from icl25_lp_conv.training import param_groups

__all__ = ["DigitsSizes", "digits_accuracies", "train_network", "train_on_digits"]

VARIANTS: dict[str, float | None] = {"3x3": 0.0, "7x7": None, "Lp p=2": 2.0, "Lp p=4": 4.0, "Lp p=16": 16.0}
"""The kernels that are compared, by name: small, large without mask (p None), large with masks of initial p."""

_SIGMA, _LEARNING_RATE, _WEIGHT_DECAY, _BATCH = 1.5, 4e-3, 0.05, 50


@dataclass(frozen=True, kw_only=True)
class DigitsSizes:
    """How large the task is.

    Attributes:
        n_train: Training images.
        n_test: Test images.
        epochs: Passes through the training images.
        widths: Channels of the three stages of the network.
        redrawn: Draw places and noise of the training digits afresh in every epoch; otherwise images stay as they are.
    """

    n_train: int = 500
    n_test: int = 1000
    epochs: int = 8
    widths: tuple[int, int, int] = (12, 24, 48)
    redrawn: bool = True


def digits_accuracies(
    variants: Sequence[str], seeds: Sequence[int], sizes: DigitsSizes, *, n_jobs: int = 1
) -> dict[str, list[float]]:
    """Test accuracy of each kind of kernel at each seed.

    Args:
        variants: Names from ``VARIANTS``.
        seeds: Seeds of data, initial weights and order; the same for every variant.
        sizes: How large the task is.
        n_jobs: Worker processes; the result does not depend on it.

    Returns:
        A list of accuracies in the order of the seeds, by variant.

    Source: ours, for the comparison of base, large and Lp networks in Kwon et al. (ICLR 2025).
    """
    return run_all(partial(_accuracy, sizes=sizes), variants, seeds, n_jobs=n_jobs)


def train_on_digits(variant: str, seed: int, sizes: DigitsSizes) -> tuple[nn.Module, float]:
    """Train a network with one kind of kernel and test it.

    All kernels but the 1 x 1 ones are of the kind asked for; large ones are drawn afresh at 7 x 7.

    Args:
        variant: A name from ``VARIANTS``.
        seed: Seed of data, initial weights and order.
        sizes: How large the task is.

    Returns:
        The trained network in evaluation mode, and its accuracy on the test images.

    Raises:
        ValueError: If the variant is unknown.

    Source: ours, for the comparison of base, large and Lp networks in Kwon et al. (ICLR 2025).
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, found {variant!r}")

    def make() -> nn.Module:
        model = digits_resnet(widths=sizes.widths)
        if variant == "3x3":
            return model
        return convert(model, p=VARIANTS[variant], transfer="none", min_kernel=2, sigma=_SIGMA)

    return train_network(make, seed, sizes)


def train_network(make: Callable[[], nn.Module], seed: int, sizes: DigitsSizes) -> tuple[nn.Module, float]:
    """Train any network on digits, with AdamW under a one-cycle schedule, and test it.

    Args:
        make: Makes the network, whose weights the seed decides: from (b, 1, 20, 20) images to (b, 10) logits.
        seed: Seed of data, initial weights and order.
        sizes: How large the task is; ``widths`` is the affair of ``make``.

    Returns:
        The trained network in evaluation mode, and its accuracy on the test images.

    Source: ours.
    """
    rng = np.random.default_rng(seed)
    train, test = split_digits(sizes.n_train, sizes.n_test, rng)
    test_x = torch.from_numpy(place_digits(test.x, rng))
    x, y = torch.from_numpy(place_digits(train.x, rng)), torch.from_numpy(train.y)
    with seeded(seed):
        model = make()
        optimizer = torch.optim.AdamW(param_groups(model, _WEIGHT_DECAY), lr=_LEARNING_RATE)
        n_batches = len(x) // _BATCH
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=sizes.epochs * n_batches)
        model.train()
        for epoch in range(sizes.epochs):
            if sizes.redrawn and epoch > 0:
                x = torch.from_numpy(place_digits(train.x, rng))
            for batch in torch.randperm(len(x))[: n_batches * _BATCH].view(n_batches, _BATCH):
                optimizer.zero_grad()
                functional.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
                schedule.step()
        model.eval()
        with torch.no_grad():
            predicted = torch.cat([model(part).argmax(1) for part in test_x.split(250)])
    return model, float(np.mean(predicted.numpy() == test.y))


def _accuracy(variant: str, seed: int, sizes: DigitsSizes) -> float:
    return train_on_digits(variant, seed, sizes)[1]
