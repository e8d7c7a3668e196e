"""Scoring an image classifier, and what it takes to run one on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from icl25_lp_conv.datasets.images import ImageSet
from icl25_lp_conv.image_batches import ValidationBatches, make_loader
from icl25_lp_conv.processes import Process, sum_over_processes
from icl25_lp_conv.recipe import Recipe
from icl25_shared import select_device

__all__ = [
    "VALIDATION_BATCH",
    "ClassifierScores",
    "autocast",
    "evaluate_batches",
    "evaluate_classifier",
    "place",
    "to_device",
]

VALIDATION_BATCH = 256
"""Images at a time, unless told otherwise."""

_AMP_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class ClassifierScores:
    """How well a network classifies.

    Attributes:
        loss: Mean cross entropy.
        top1: Share of images whose class has the largest logit.
        top5: Share of images whose class is among the five largest.
    """

    loss: float
    top1: float
    top5: float


def evaluate_classifier(
    model: nn.Module,
    images: ImageSet,
    recipe: Recipe,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = VALIDATION_BATCH,
    workers: int = 0,
) -> ClassifierScores:
    """Score a network on images as they are.

    Args:
        model: From (b, c, h, w) images to (b, n_classes) logits. It is moved to the device, used in evaluation mode,
            and left in the mode in which it was.
        images: The images.
        recipe: How they are normalised, and in which precision the network runs.
        device: As for ``train_classifier``.
        batch_size: Images at a time, >= 1.
        workers: Processes that prepare images.

    Returns:
        The scores.

    Raises:
        ValueError: If ``batch_size`` is below 1, or an image is broken.

    Source: the usual measures.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, found {batch_size}")
    process = Process(0, 1, select_device(str(device)))
    place(model, process)
    loader = make_loader(ValidationBatches(images, recipe, batch_size), workers=workers, pin=process.on_cuda)
    return evaluate_batches(model, loader, recipe, process)


@torch.no_grad()
def evaluate_batches(model: nn.Module, loader: Any, recipe: Recipe, process: Process) -> ClassifierScores:
    """Score a network on the batches of all processes together.

    Args:
        model: From (b, c, h, w) images to (b, n_classes) logits, where ``place`` has put it.
        loader: Batches of (b, c, h, w) images and (b,) classes; this process's share of them.
        recipe: Holds the precision.
        process: This process.

    Returns:
        The scores over the images of all processes.

    Raises:
        ValueError: If an image is broken.

    Source: the usual measures.
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64, device="cpu" if process.device.type == "mps" else process.device)
    n = 0
    for images, labels in loader:
        with autocast(recipe, process):
            logits = model(to_device(images, process))
        logits, labels = logits.float(), to_device(labels, process)
        ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        parts = (functional.cross_entropy(logits, labels, reduction="sum"), ranked[:, 0].sum(), ranked.sum())
        sums += torch.stack([part.float() for part in parts]).to(sums)
        n += len(labels)
    for module in training:
        module.training = True
    loss, top1, top5, count = sum_over_processes([*sums.tolist(), n], process)
    return ClassifierScores(loss / count, top1 / count, top5 / count)


def place(model: nn.Module, process: Process) -> None:
    """Move a network to the device of a process, on CUDA with the memory layout that is faster there.

    Args:
        model: The network, which is changed.
        process: Holds the device.

    Source: ours.
    """
    model.to(process.device)
    if process.on_cuda:
        model.to(memory_format=torch.channels_last)  # ty: ignore[no-matching-overload]


def to_device(tensor: Tensor, process: Process) -> Tensor:
    """Move (b, c, h, w) images, or a tensor of another shape, to where ``place`` has put the network.

    Args:
        tensor: The tensor.
        process: Holds the device.

    Returns:
        The tensor there.

    Source: ours.
    """
    if not process.on_cuda:
        return tensor.to(process.device)
    layout = torch.channels_last if tensor.ndim == 4 else torch.preserve_format
    return tensor.to(process.device, non_blocking=True, memory_format=layout)


def autocast(recipe: Recipe, process: Process) -> Any:
    """The context in which a network runs in the precision of a recipe.

    Args:
        recipe: Says which.
        process: Holds the device.

    Returns:
        A context manager.

    Source: ours.
    """
    return torch.autocast(process.device.type, _AMP_TYPES.get(recipe.amp), enabled=bool(recipe.amp))
