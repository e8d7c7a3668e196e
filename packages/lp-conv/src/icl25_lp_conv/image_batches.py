"""Batches of images for training, whose order and augmentation depend on a seed and the number of the batch alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Num
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from icl25_lp_conv.datasets.images import ImageSet
from icl25_lp_conv.recipe import Recipe

__all__ = ["EpochSampler", "TrainingBatches", "ValidationBatches", "isolated_randomness", "make_loader", "normalised"]

_INSTALL = 'pip install "icl25-lp-conv[vision]"'
# Streams of random numbers that start from the same seed.
_ORDER, _AUGMENTATION = 0, 1


class TrainingBatches(Dataset):
    """The batches of a training, numbered through all of its epochs; each item is a whole batch.

    Args:
        data: The images.
        recipe: How they are augmented.
        n_classes: Number of classes.
        seed: Seed of order and augmentation.
        rank: Number of this process, which sees each ``n_processes``-th image of a batch.
        n_processes: Number of processes.

    Raises:
        ValueError: If batches cannot be divided among the processes, there are too few images, or the images are not of
            a kind that the augmentation takes.
        ImportError: If the augmentation needs timm and it cannot be imported.

    Source: the paper's training settings.
    """

    def __init__(
        self, data: ImageSet, recipe: Recipe, n_classes: int, seed: int, rank: int = 0, n_processes: int = 1
    ) -> None:
        self.data, self.recipe, self.seed, self.rank, self.n_processes = data, recipe, seed, rank, n_processes
        unit = n_processes * (2 if recipe.mixes else 1)
        if recipe.batch_size % unit:
            raise ValueError(f"batch_size must be a multiple of {unit}, found {recipe.batch_size}")
        self.batch_size = min(recipe.batch_size, len(data) // unit * unit)
        if self.batch_size < max(2, unit):
            raise ValueError(f"there are {len(data)} images to train on, expected {max(2, unit)} or more")
        self.n_steps = len(data) // self.batch_size
        self._transform = _transform(data, recipe) if recipe.needs_transforms else None
        self._mix = _mixer(recipe, n_classes) if recipe.mixes else None
        self._epoch, self._order = -1, np.empty(0, np.int64)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.n_steps

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Make a batch.

        Args:
            index: Number of the batch, counted through the epochs.

        Returns:
            (b, c, h, w) images, normalised, and (b,) classes or, where images are mixed, (b, n_classes) shares.

        Raises:
            ValueError: If an image is broken.
        """
        epoch, step = divmod(index, self.n_steps)
        rows = self.rows(epoch)[step * self.batch_size : (step + 1) * self.batch_size][self.rank :: self.n_processes]
        images, labels = self.data.read(rows), torch.from_numpy(self.data.labels[rows])
        stream = (self.seed, _AUGMENTATION, index, self.rank)
        if self._transform is None:
            moved = _move(images, self.recipe, np.random.default_rng(stream))
            batch = normalised(moved, self.recipe)
        else:
            with isolated_randomness(stream):
                batch = torch.stack([self._transform(image) for image in images])
        if self._mix is None:
            return batch, labels
        with isolated_randomness((*stream, 1)):
            return self._mix(batch, labels)

    def rows(self, epoch: int) -> Int64[np.ndarray, " n"]:
        """The (n,) images of an epoch in their order, of which all processes take their share."""
        if epoch != self._epoch:
            n, repeats = len(self.data), self.recipe.repeated_augmentation
            order = np.random.default_rng((self.seed, _ORDER, epoch)).permutation(n)
            self._epoch, self._order = epoch, np.repeat(order, repeats)[:n]
        return self._order


class ValidationBatches(Dataset):
    """Batches of images as they are, in order; each item is a whole batch.

    Args:
        data: The images.
        recipe: How they are normalised.
        batch_size: Images of a batch.
        rank: Number of this process, which sees each ``n_processes``-th image.
        n_processes: Number of processes.

    Source: ours.
    """

    def __init__(self, data: ImageSet, recipe: Recipe, batch_size: int, rank: int = 0, n_processes: int = 1) -> None:
        self.data, self.recipe, self.batch_size = data, recipe, batch_size
        self._rows = np.arange(len(data))[rank::n_processes]

    def __len__(self) -> int:
        return -(-len(self._rows) // self.batch_size)

    def __getitem__(self, index: int) -> tuple[Float[Tensor, "b c h w"], Int64[Tensor, " b"]]:
        """Read batch ``index``: (b, c, h, w) images, normalised, and (b,) classes."""
        rows = self._rows[index * self.batch_size : (index + 1) * self.batch_size]
        return normalised(self.data.read(rows), self.recipe), torch.from_numpy(self.data.labels[rows])


class EpochSampler(Sampler[int]):
    """Numbers of the batches of one epoch after the other; ``epoch`` says which is next.

    Args:
        n_steps: Batches of an epoch.

    Source: ours.
    """

    def __init__(self, n_steps: int) -> None:
        self.n_steps, self.epoch = n_steps, 0

    def __len__(self) -> int:
        return self.n_steps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.epoch * self.n_steps, (self.epoch + 1) * self.n_steps))


def make_loader(batches: Dataset, *, workers: int, pin: bool, sampler: Sampler[int] | None = None) -> DataLoader:
    """A loader of torch for a data set whose items are batches.

    Args:
        batches: The data set.
        workers: Processes that prepare batches; with 0 it happens in this one. The batches are the same.
        pin: Whether to put batches where a GPU fetches them faster.
        sampler: Order of the batches; as they are numbered if None.

    Returns:
        The loader.

    Source: ours.
    """
    # A generator of its own keeps the loader from drawing from the global one.
    return DataLoader(
        batches,
        batch_size=None,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pin,
        generator=torch.Generator().manual_seed(0),
    )


def normalised(images: Num[np.ndarray, "b h w c"], recipe: Recipe) -> Float[Tensor, "b c h w"]:
    """Images as a network takes them: channels first, minus the mean, divided by the standard deviation.

    Args:
        images: (b, h, w, c) bytes, or floating point in [0, 1].
        recipe: Holds the two.

    Returns:
        (b, c, h, w) in single precision.

    Source: the usual preparation.
    """
    unit = images.astype(np.float32) / 255 if images.dtype == np.uint8 else images
    mean, std = (_for_channels(values, images.shape[3]) for values in (recipe.mean, recipe.std))
    return torch.from_numpy(np.ascontiguousarray(((unit - mean) / std).transpose(0, 3, 1, 2)))


@contextlib.contextmanager
def isolated_randomness(seed: Sequence[int]) -> Generator[None]:
    """Seed the global generators of Python, numpy and torch (on the CPU) for a block, and put them back after it.

    It is for libraries that draw from nothing else.

    Args:
        seed: Numbers >= 0 that the block's randomness is to depend on.

    Source: ours.
    """
    states = np.random.SeedSequence(tuple(seed)).generate_state(3)
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global state is what is kept
    with torch.random.fork_rng(devices=[]):
        random.seed(int(states[0]))
        np.random.seed(int(states[1]))  # noqa: NPY002
        torch.random.default_generator.manual_seed(int(states[2]))
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


def _for_channels(values: tuple[float, ...], channels: int) -> np.ndarray:
    per_channel = values if len(values) == channels else (sum(values) / len(values),) * channels
    return np.array(per_channel, np.float32)


def _move(images: np.ndarray, recipe: Recipe, rng: np.random.Generator) -> np.ndarray:
    """Crop at random from the images with a black margin, and mirror half of them."""
    b, height, width, _ = images.shape
    pad = recipe.crop_padding or 0
    down, across = (rng.integers(2 * pad + 1, size=(b, 1)) + np.arange(side) for side in (height, width))
    mirrored = (rng.random(b) < 0.5) & recipe.flip
    across[mirrored] = across[mirrored, ::-1]
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    return padded[np.arange(b)[:, None, None], down[:, :, None], across[:, None, :]]


def _transform(data: ImageSet, recipe: Recipe) -> Callable[[np.ndarray], Tensor]:
    """The transform of one image, (h, w, 3) bytes, by timm."""
    height, width, channels = data.images.shape[1:]
    if channels != 3 or data.images.dtype != np.uint8:
        raise ValueError(
            "RandAugment, random erasing and crops of random size take images of bytes with 3 channels, "
            f"found {data.images.dtype} with {channels}"
        )
    try:
        from timm.data import create_transform
        from torchvision.transforms import RandomCrop
    except (ImportError, RuntimeError) as error:
        raise _missing("RandAugment, random erasing and crops of random size", error) from error
    transform: Any = create_transform(
        (height, width),
        is_training=True,
        hflip=0.5 if recipe.flip else 0.0,
        color_jitter=0.0,
        auto_augment=recipe.randaugment or None,
        interpolation="bicubic",
        mean=tuple(map(float, _for_channels(recipe.mean, 3))),
        std=tuple(map(float, _for_channels(recipe.std, 3))),
        re_prob=recipe.random_erasing,
        re_mode="pixel",
    )
    if recipe.crop_padding is not None:
        transform.transforms[0] = RandomCrop((height, width), padding=recipe.crop_padding)
    for step in transform.transforms:
        for operation in getattr(step, "ops", ()):
            if operation.name.startswith("Posterize"):
                operation.level_fn = _AtLeastOneBit(operation.level_fn)
    return _PillowTransform(transform)


class _AtLeastOneBit:
    """The strength of timm's posterising, which may keep no bit at all; Pillow refuses that, being a black image."""

    def __init__(self, level_fn: Callable[..., tuple[int]]) -> None:
        self._level_fn = level_fn

    def __call__(self, level: float, hparams: Any) -> tuple[int]:
        return (max(1, self._level_fn(level, hparams)[0]),)


class _PillowTransform:
    """A transform of Pillow images, for arrays."""

    def __init__(self, transform: Any) -> None:
        self._transform = transform

    def __call__(self, image: np.ndarray) -> Tensor:
        return self._transform(Image.fromarray(image))


def _mixer(recipe: Recipe, n_classes: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    try:
        from timm.data import Mixup
    except (ImportError, RuntimeError) as error:
        raise _missing("Mixup and CutMix", error) from error
    return Mixup(
        mixup_alpha=recipe.mixup,
        cutmix_alpha=recipe.cutmix,
        label_smoothing=recipe.label_smoothing,
        num_classes=n_classes,
    )


def _missing(what: str, error: Exception) -> ImportError:
    if isinstance(error, ImportError):
        return ImportError(f"{what} need timm and torchvision: {_INSTALL} ({error})")
    return ImportError(
        f"{what} need torchvision, which cannot be imported beside this torch ({str(error).splitlines()[0]}): "
        "install torch and torchvision from the same index"
    )
