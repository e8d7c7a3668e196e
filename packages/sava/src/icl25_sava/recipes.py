"""The settings of the paper's large experiments: training of the networks, sizes, corruptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = ["CIFAR10", "CLOTHING1M", "EXPERIMENTS", "Experiment", "Recipe"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training of a ResNet-18 by stochastic gradient descent with piecewise constant learning rates.

    Attributes:
        batch_size: images of a step, >= 2.
        learning_rates: (end, rate) in order: the rate holds before ``end``, counted in ``unit`` from 0. The last end is
            the length of the training.
        unit: what ``learning_rates`` counts in.
        weight_decay: weight of the squared norm of all parameters.
        momentum: momentum, without Nesterov's correction.
        mean: what is subtracted from each channel of images in [0, 1].
        std: what each channel is then divided by.
        pad: black pixels added on each side before the random crop of training.
        resize: length that the shorter side is brought to before crops; None leaves images as they are.
        crop: side of the square crops, at random in training and from the middle else; None is the size of the image.
        width: channels of the first stage; 64 is ResNet-18.
    """

    batch_size: int
    learning_rates: tuple[tuple[int, float], ...]
    unit: Literal["epoch", "step"]
    weight_decay: float
    momentum: float = 0.9
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    pad: int = 0
    resize: int | None = None
    crop: int | None = None
    width: int = 64

    def steps_per_epoch(self, n_rows: int) -> int:
        """Steps that visit every row once; a last batch of one row, which cannot be normalised, is left out.

        Args:
            n_rows: number of training rows, >= 2.

        Returns:
            Number of steps, >= 1.

        Raises:
            ValueError: fewer than two rows.
        """
        if n_rows < 2:
            raise ValueError(f"training needs two rows or more, got {n_rows}")
        full, rest = divmod(n_rows, self.batch_size)
        return full + (rest > 1)

    def n_steps(self, n_rows: int) -> int:
        """Length of the training in steps.

        Args:
            n_rows: number of training rows, >= 2.

        Returns:
            Number of steps.

        Raises:
            ValueError: fewer than two rows.
        """
        length = self.learning_rates[-1][0]
        return length * self.steps_per_epoch(n_rows) if self.unit == "epoch" else length

    def learning_rate(self, step: int, n_rows: int) -> float:
        """Learning rate of a step.

        Args:
            step: number of the step, from 0.
            n_rows: number of training rows, >= 2.

        Returns:
            The rate.

        Raises:
            ValueError: the step lies outside the training, or fewer than two rows.
        """
        place = step // self.steps_per_epoch(n_rows) if self.unit == "epoch" else step
        for end, rate in self.learning_rates:
            if 0 <= place < end:
                return rate
        raise ValueError(f"step {step} lies outside the training of {self.n_steps(n_rows)} steps")


CIFAR10 = Recipe(
    batch_size=128,
    learning_rates=((100, 0.1), (150, 0.01), (200, 0.001)),
    unit="epoch",
    weight_decay=5e-4,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    pad=4,
)
"""ResNet-18 on CIFAR-10. Source: the authors' code; normalisation and padding, which it leaves to a library, are the
usual ones of this data set."""

CLOTHING1M = Recipe(
    batch_size=512,
    learning_rates=((30_000, 0.1), (60_000, 0.05), (80_000, 0.01), (90_000, 1e-3), (95_000, 1e-4), (100_000, 1e-5)),
    unit="step",
    weight_decay=2e-3,
    mean=(0.6959, 0.6537, 0.6371),
    std=(0.3113, 0.3192, 0.3214),
    resize=256,
    crop=224,
)
"""ResNet-18 on Clothing1M, from random weights. Source: the authors' code. That training crops are drawn at random and
flipped, and test crops taken from the middle, is assumed."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Sizes and settings of one configuration.

    Attributes:
        recipe: how the networks are trained.
        batch_size: batch size of SAVA.
        corruptions: per panel the kind of corruption and its share of the rows; None leaves the rows as they are.
        n_train: rows that are valued, drawn at random; None for all.
        n_val: validation rows; None for all.
        n_test: test images; None for all.
        pruned_by: methods whose pruning is followed by a training, beside chance.
        poison: class numbers (base, target) of the poison: frog and cat of CIFAR-10.
    """

    recipe: Recipe
    batch_size: int
    corruptions: Mapping[str, tuple[str, float] | None]
    n_train: int | None = None
    n_val: int | None = None
    n_test: int | None = None
    pruned_by: tuple[str, ...] = ("SAVA",)
    poison: tuple[int, int] = (6, 3)


_CIFAR10 = Experiment(
    recipe=CIFAR10,
    batch_size=1024,
    corruptions={
        "wrong labels": ("labels", 0.3),
        "noisy features": ("features", 0.3),
        "trojan square": ("trojan", 0.1),
        "poison": ("blend", 0.1),
    },
    n_train=10_000,
    n_val=2_000,
)
_CLOTHING1M = Experiment(
    recipe=CLOTHING1M, batch_size=2048, corruptions={"as given": None}, pruned_by=("SAVA", "batch-wise LAVA")
)
# A rehearsal keeps every part and shrinks rows, steps and the width of the network.
_REHEARSAL: Any = {"batch_size": 256, "n_train": 1000, "n_val": 400, "n_test": 400}
EXPERIMENTS = {
    ("cifar10", "paper"): _CIFAR10,
    ("clothing1m", "paper"): _CLOTHING1M,
    ("cifar10", "small"): replace(
        _CIFAR10, recipe=replace(CIFAR10, learning_rates=((2, 0.1), (3, 0.01)), width=8), **_REHEARSAL
    ),
    ("clothing1m", "small"): replace(
        _CLOTHING1M,
        recipe=replace(
            CLOTHING1M,
            batch_size=64,
            learning_rates=((30, 0.1), (40, 0.01)),
            unit="step",
            resize=128,
            crop=112,
            width=8,
        ),
        **_REHEARSAL,
    ),
}
"""Experiment by configuration and scale."""
