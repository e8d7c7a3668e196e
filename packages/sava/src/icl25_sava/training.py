"""Training a ResNet-18, in PyTorch, on images that need not fit into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, Num

from icl25_sava.recipes import Recipe
from icl25_sava.resnet import make_resnet18
from icl25_shared import atomic_path, get_logger, progress

__all__ = ["accuracy", "fingerprint", "read_images", "train_classifier"]

_log = get_logger(__name__)

_SMALL_SIDE = 64
_TEST_BATCH = 256
_HASHED_ROWS = 256


def train_classifier(
    X: Num[np.ndarray, "n h w 3"],
    y: Integer[np.ndarray, " m"],
    recipe: Recipe,
    *,
    n_classes: int,
    device: str = "cpu",
    seed: int = 0,
    max_steps: int | None = None,
    rows: Integer[np.ndarray, " k"] | None = None,
    checkpoint: Path | None = None,
    save_every: int = 2000,
) -> Any:
    """Train a ResNet-18 with random crops and flips; on the CPU the same seed gives the same weights.

    On CUDA the forward pass runs in bfloat16 and memory is laid out by channels. Every step draws from a generator of
    its own, so that a training that goes on from a checkpoint ends with the weights of an uninterrupted one.

    Args:
        X: (n, h, w, 3) images, bytes or floating point in [0, 1]; a memory map is read batch by batch.
        y: (n,) classes 0 .. n_classes - 1.
        recipe: how to train.
        n_classes: number of outputs.
        device: where to train, as torch names it.
        seed: seed of weights, order and augmentation.
        max_steps: stop after so many steps.
        rows: (k,) rows of X and y to train on; all of them when None.
        checkpoint: file in which the state of the training is kept (safetensors). If it exists, training goes on there.
        save_every: steps between two writings of the checkpoint.

    Returns:
        The network, in evaluation mode.

    Raises:
        ValueError: X and y differ in length, a class is out of range, there are fewer than two rows, the crop is larger
            than the image, or the checkpoint is of another training or no safetensors file.
        ModuleNotFoundError: a checkpoint is asked for and safetensors is not installed.

    Source: experiments of Kessler et al. (ICLR 2025); the settings are those of the recipe.
    """
    import torch
    from torch.nn import functional

    _check(X, y, n_classes)
    rows = np.arange(len(y)) if rows is None else rows
    per_epoch, n_steps = recipe.steps_per_epoch(len(rows)), recipe.n_steps(len(rows))
    end = n_steps if max_steps is None else min(max_steps, n_steps)
    side = recipe.crop or max(X.shape[1:3])
    network = make_resnet18(n_classes, small_images=side <= _SMALL_SIDE, width=recipe.width, seed=seed)
    network = network.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=recipe.learning_rates[0][1], momentum=recipe.momentum, weight_decay=recipe.weight_decay
    )
    identity = fingerprint(X, y, rows, recipe, n_classes, seed)
    start = 0
    if checkpoint is not None and checkpoint.exists():
        start = _load(checkpoint, network, optimizer, identity)
        _log.info("training goes on at step %s", f"{start:,}")
    network.train()
    epoch, order = -1, rows
    on_cuda = torch.device(device).type == "cuda"
    with progress("training", total=end) as bar:
        bar.advance(start)
        for step in range(start, end):
            if step // per_epoch != epoch:
                epoch = step // per_epoch
                order = rows[np.random.default_rng([seed, 0, epoch]).permutation(len(rows))]
            place = step % per_epoch * recipe.batch_size
            batch = order[place : place + recipe.batch_size]
            images = _batch(X, batch, recipe, device, np.random.default_rng([seed, 1, step]))
            target = torch.from_numpy(y[batch].astype(np.int64)).to(device)
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate(step, len(rows))
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16, enabled=on_cuda):
                loss = functional.cross_entropy(network(images), target)
            loss.backward()
            optimizer.step()
            bar.advance()
            if checkpoint is not None and ((step + 1) % save_every == 0 or step + 1 == end):
                _save(checkpoint, network, optimizer, identity, step + 1)
    return network.eval()


def accuracy(
    network: Any,
    X: Num[np.ndarray, "n h w 3"],
    y: Integer[np.ndarray, " m"],
    recipe: Recipe,
    *,
    device: str = "cpu",
) -> float:
    """Share of images whose class has the largest logit, on crops from the middle.

    Args:
        network: a trained network, in evaluation mode.
        X: (n, h, w, 3) images, bytes or floating point in [0, 1]; read batch by batch.
        y: (n,) their classes.
        recipe: the recipe of the training, for size and normalisation.
        device: where the network is.

    Returns:
        The accuracy in [0, 1].

    Raises:
        ValueError: X and y differ in length or are empty, or the crop is larger than the image.

    Source: the measure of the paper's pruning experiments.
    """
    import torch

    if len(X) != len(y) or len(y) == 0:
        raise ValueError(f"X has {len(X)} images and y has {len(y)} classes, expected the same number, at least 1")
    right = 0
    on_cuda = torch.device(device).type == "cuda"
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=on_cuda):
        for start in range(0, len(y), _TEST_BATCH):
            batch = np.arange(start, min(start + _TEST_BATCH, len(y)))
            guess = network(_batch(X, batch, recipe, device)).argmax(dim=1).cpu().numpy()
            right += int((guess == y[batch]).sum())
    return right / len(y)


def read_images(
    X: Num[np.ndarray, "n h w 3"],
    rows: Integer[np.ndarray, " b"],
    recipe: Recipe,
    *,
    device: str = "cpu",
    rng: np.random.Generator | None = None,
) -> Any:
    """Some images in [0, 1], resized and cropped, not yet normalised.

    Args:
        X: (n, h, w, 3) images, bytes or floating point.
        rows: (b,) which.
        recipe: sizes.
        device: where the result lies.
        rng: for crops at random and flips; None takes the middle.

    Returns:
        (b, i, j, 3) images, a torch tensor.

    Raises:
        ValueError: the crop is larger than the image.
    """
    import torch
    from torch.nn import functional

    images = torch.from_numpy(np.ascontiguousarray(X[rows])).to(device)
    images = images.float() / 255 if images.dtype == torch.uint8 else images.float()
    if recipe.resize is not None and min(images.shape[1:3]) != recipe.resize:
        scale = recipe.resize / min(images.shape[1:3])
        size = [round(scale * images.shape[1]), round(scale * images.shape[2])]
        images = functional.interpolate(images.permute(0, 3, 1, 2), size, mode="bilinear", antialias=True)
        images = images.permute(0, 2, 3, 1)
    height, width = (recipe.crop or side for side in images.shape[1:3])
    if rng is not None and recipe.pad:
        images = functional.pad(images, (0, 0, recipe.pad, recipe.pad, recipe.pad, recipe.pad))
    spare = (images.shape[1] - height, images.shape[2] - width)
    if min(spare) < 0:
        raise ValueError(f"crops of {height} pixels do not fit into images of {images.shape[1]} x {images.shape[2]}")
    if rng is None:
        top, left = spare[0] // 2, spare[1] // 2
        return images[:, top : top + height, left : left + width]
    b = len(rows)
    down = rng.integers(spare[0] + 1, size=(b, 1)) + np.arange(height)
    across = rng.integers(spare[1] + 1, size=(b, 1)) + np.arange(width)
    flipped = rng.random(b) < 0.5
    across[flipped] = across[flipped, ::-1]
    down, across = torch.from_numpy(down).to(device), torch.from_numpy(across).to(device)
    return images[torch.arange(b, device=device)[:, None, None], down[:, :, None], across[:, None, :]]


def fingerprint(X: np.ndarray, *parts: Any) -> str:
    """Hash of what a training or a test depends on: some rows of X, other arrays whole, settings by their ``repr``.

    Args:
        X: images; up to 256 rows, evenly spaced, are hashed.
        *parts: arrays and settings.

    Returns:
        64 hexadecimal digits.
    """
    sample = X[np.unique(np.linspace(0, len(X) - 1, min(len(X), _HASHED_ROWS)).astype(np.int64))]
    digest = hashlib.sha256()
    for part in (X.shape, sample, *parts):
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()


def _check(X: np.ndarray, y: np.ndarray, n_classes: int) -> None:
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} images, y has {len(y)} classes")
    if len(y) and (y.min() < 0 or y.max() >= n_classes):
        raise ValueError(f"y must hold classes 0 .. {n_classes - 1}, found {y.min()} .. {y.max()}")


def _batch(X: np.ndarray, rows: np.ndarray, recipe: Recipe, device: str, rng: np.random.Generator | None = None) -> Any:
    """Normalised images, (b, 3, i, j), laid out by channels as the images are read."""
    import torch

    images = read_images(X, rows, recipe, device=device, rng=rng)
    mean, std = (torch.tensor(numbers, device=images.device) for numbers in (recipe.mean, recipe.std))
    return ((images - mean) / std).permute(0, 3, 1, 2)


def _save(path: Path, network: Any, optimizer: Any, identity: str, step: int) -> None:
    from safetensors.torch import save_file

    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        tensors[f"momentum.{name}"] = optimizer.state[parameter]["momentum_buffer"]
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path, force=True) as temporary:
        save_file(tensors, temporary, {"fingerprint": identity, "step": str(step)})


def _load(path: Path, network: Any, optimizer: Any, identity: str) -> int:
    """Bring network and optimizer to the state of the checkpoint and return its step."""
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error})") from error
    if metadata.get("fingerprint") != identity:
        raise ValueError(f"{path} is the checkpoint of another training: remove it or choose another file")
    network.load_state_dict({k.removeprefix("network."): t for k, t in tensors.items() if k.startswith("network.")})
    for name, parameter in network.named_parameters():
        buffer = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
        optimizer.state[parameter]["momentum_buffer"] = buffer
    return int(metadata["step"])
