"""How image classifiers are trained: the paper's recipe, and a small one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

__all__ = ["Recipe"]

_REFERENCE_BATCH = 512


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Training with AdamW and a cosine schedule; the defaults are those of the paper for images of 32 x 32 pixels.

    Attributes:
        epochs: Epochs of the cosine, warm-up included, >= 1.
        batch_size: Images of a step over all processes together, >= 2; what is left over after full batches waits for
            the next epoch.
        lr: Learning rate at the top, > 0.
        min_lr: Learning rate at the end, >= 0.
        warmup_epochs: Epochs of linear growth from ``warmup_lr``, >= 0.
        warmup_lr: Learning rate at the start of the warm-up, >= 0.
        cooldown_epochs: Epochs at ``min_lr`` after the cosine, >= 0.
        weight_decay: Decay of kernels and matrices, >= 0.
        mask_weight_decay: Decay of the shape matrices C of masks, >= 0; the authors' code decays them as kernels.
        log2p_min: Floor of log2 p, restored after each step; None for none.
        label_smoothing: Share of a target that is spread over all classes, in [0, 1).
        mixup: Parameter of the Beta distribution of Mixup, >= 0; 0 leaves it out.
        cutmix: The same of CutMix; with both, one of them is drawn for each batch.
        randaugment: RandAugment as timm writes it (``"rand-m9-mstd0.5-inc1"``); empty to leave it out.
        random_erasing: Probability that a rectangle is erased, in [0, 1].
        repeated_augmentation: How often an image comes up in an epoch, differently augmented, >= 1; the number of steps
            stays, so that each epoch sees a part of the images.
        ema_decay: Decay of the moving average of weights, in (0, 1); None for no average.
        drop_path: Largest rate of stochastic depth, in [0, 1), which grows linearly over the blocks. It acts on
            networks of timm alone.
        amp: Type of numbers in mixed precision, ``"bf16"`` or ``"fp16"`` (CUDA only); empty for single precision.
        crop_padding: Black pixels added to each side before the random crop, >= 0; None takes a part of the image at
            random size instead (ImageNet's way).
        flip: Whether images are mirrored at random.
        mean: What is subtracted from each channel of images in [0, 1]; grey images take the mean of these.
        std: What each channel is then divided by, > 0; grey images take the mean of these.

    Raises:
        ValueError: If a value is out of range.

    Source: the paper's training settings, those of DeiT; which of them were changed is not known.
    """

    epochs: int = 300
    batch_size: int = _REFERENCE_BATCH
    lr: float = 5e-4
    min_lr: float = 1e-5
    warmup_epochs: int = 5
    warmup_lr: float = 1e-6
    cooldown_epochs: int = 10
    weight_decay: float = 0.05
    mask_weight_decay: float = 0.05
    log2p_min: float | None = None
    label_smoothing: float = 0.1
    mixup: float = 0.8
    cutmix: float = 1.0
    randaugment: str = "rand-m9-mstd0.5-inc1"
    random_erasing: float = 0.25
    repeated_augmentation: int = 3
    ema_decay: float | None = 0.99996
    drop_path: float = 0.1
    amp: Literal["", "bf16", "fp16"] = "bf16"
    crop_padding: int | None = 4
    flip: bool = True
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        at_least: dict[str, float] = dict.fromkeys(("epochs", "repeated_augmentation"), 1)
        at_least |= {"batch_size": 2, "ema_decay": 0, "log2p_min": -math.inf}
        zero = ("min_lr", "warmup_epochs", "warmup_lr", "cooldown_epochs", "weight_decay", "mask_weight_decay", "lr")
        at_least |= dict.fromkeys(zero, 0)
        at_least |= dict.fromkeys(("label_smoothing", "mixup", "cutmix", "random_erasing", "drop_path"), 0)
        at_least |= {"crop_padding": 0}
        for name, lowest in at_least.items():
            value = getattr(self, name)
            if value is not None and not (lowest <= value < math.inf):
                raise ValueError(f"{name} must be >= {lowest}, found {value}")
        for name in ("lr", "ema_decay"):
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be > 0, found 0")
        for name in ("label_smoothing", "ema_decay", "drop_path"):
            if (getattr(self, name) or 0) >= 1:
                raise ValueError(f"{name} must be < 1, found {getattr(self, name)}")
        if self.random_erasing > 1:
            raise ValueError(f"random_erasing must be <= 1, found {self.random_erasing}")
        if self.amp not in ("", "bf16", "fp16"):
            raise ValueError(f"amp must be bf16, fp16 or empty, found {self.amp!r}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, 3) or min(self.std) <= 0:
            raise ValueError(f"mean and std must be one or three numbers, std > 0, found {self.mean} and {self.std}")
        if self.warmup_epochs > self.epochs:
            raise ValueError(f"warmup_epochs must be <= epochs, found {self.warmup_epochs} and {self.epochs}")

    @classmethod
    def paper(cls, batch_size: int = _REFERENCE_BATCH, **changed: Any) -> Self:
        """The paper's recipe, its learning rate in proportion to the batch; it needs the extra ``vision``.

        Args:
            batch_size: Images of a step over all processes together.
            **changed: Fields that are to differ.

        Returns:
            The recipe.

        Raises:
            ValueError: If a value is out of range.

        Source: the paper's training settings.
        """
        settings: dict[str, Any] = {"batch_size": batch_size, "lr": cls.lr * batch_size / _REFERENCE_BATCH}
        return cls(**{**settings, **changed})

    @classmethod
    def small(cls, **changed: Any) -> Self:
        """A few epochs in which images are only moved and mirrored; it needs nothing beside torch.

        Args:
            **changed: Fields that are to differ.

        Returns:
            The recipe.

        Raises:
            ValueError: If a value is out of range.

        Source: ours.
        """
        settings: dict[str, Any] = {
            "epochs": 10,
            "batch_size": 64,
            "lr": 2e-3,
            "warmup_epochs": 1,
            "cooldown_epochs": 0,
            "mask_weight_decay": 0.0,
            "label_smoothing": 0.0,
            "mixup": 0.0,
            "cutmix": 0.0,
            "randaugment": "",
            "random_erasing": 0.0,
            "repeated_augmentation": 1,
            "ema_decay": None,
            "drop_path": 0.0,
            "amp": "",
            "crop_padding": 2,
        }
        settings["warmup_epochs"] = min(settings["warmup_epochs"], changed.get("epochs", settings["epochs"]) - 1)
        return cls(**{**settings, **changed})

    @property
    def total_epochs(self) -> int:
        """Epochs of the cosine and the cool-down together."""
        return self.epochs + self.cooldown_epochs

    @property
    def mixes(self) -> bool:
        """Whether images of a batch are mixed."""
        return self.mixup > 0 or self.cutmix > 0

    @property
    def needs_transforms(self) -> bool:
        """Whether images are augmented one by one, by transforms of timm."""
        return bool(self.randaugment) or self.random_erasing > 0 or self.crop_padding is None

    def learning_rate(self, epoch: float) -> float:
        """The learning rate at a time.

        Args:
            epoch: Epochs since the start, with fractions, >= 0.

        Returns:
            The rate.

        Source: Loshchilov & Hutter (2017), with the warm-up and cool-down of timm.
        """
        if epoch < self.warmup_epochs:
            return self.warmup_lr + (self.lr - self.warmup_lr) * epoch / self.warmup_epochs
        if epoch >= self.epochs:
            return self.min_lr
        return self.min_lr + 0.5 * (self.lr - self.min_lr) * (1 + math.cos(math.pi * epoch / self.epochs))
