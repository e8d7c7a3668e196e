"""Training an image classifier, on one device or on several, and going on where it stopped."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from icl25_lp_conv.classifier_checkpoint import ClassifierState, fingerprint
from icl25_lp_conv.classifier_evaluation import VALIDATION_BATCH, autocast, evaluate_batches, place, to_device
from icl25_lp_conv.datasets.images import ImageSplits
from icl25_lp_conv.image_batches import EpochSampler, TrainingBatches, ValidationBatches, make_loader
from icl25_lp_conv.processes import Process, join_processes, share_buffers, sum_over_processes
from icl25_lp_conv.recipe import Recipe
from icl25_lp_conv.training import clamp_masks_, param_groups
from icl25_shared import atomic_path, get_logger, progress, to_jsonable

__all__ = ["TrainingResult", "train_classifier"]

_log = get_logger(__name__)


@dataclass(frozen=True)
class TrainingResult:
    """What a training leaves.

    Attributes:
        model: The network, in evaluation mode.
        ema: The moving average of the network, if the recipe has one.
        history: A record for each epoch, as in ``metrics.jsonl``.
    """

    model: nn.Module
    ema: nn.Module | None
    history: list[dict[str, Any]]


def train_classifier(
    model: nn.Module,
    data: ImageSplits,
    recipe: Recipe,
    *,
    out: str | os.PathLike[str],
    seed: int = 0,
    device: str | torch.device = "cpu",
    resume: bool = False,
    workers: int = 0,
    log_every: int = 50,
) -> TrainingResult:
    """Train a network in place, and leave it in evaluation mode.

    Order and augmentation of the images depend on the seed and the epoch alone, so that a training that goes on from
    its checkpoint ends with the weights of an uninterrupted one, on the CPU bit for bit. In ``out`` stand
    ``metrics.jsonl``, a line for each epoch (``epoch``, ``lr``, ``train_loss``, ``val_loss``, ``val_top1``,
    ``val_top5``, and with a moving average ``ema_val_loss`` ...), and ``checkpoint.safetensors``.

    Launched by ``torchrun`` (``WORLD_SIZE`` above 1), the processes share each batch; the first one writes the files.

    Args:
        model: From (b, c, h, w) images to (b, n_classes) logits, converted or not.
        data: The images.
        recipe: How to train.
        out: Folder for the files; it is made if need be.
        seed: Seed of order, augmentation and dropout, >= 0. Weights start as they are.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"``, ``"mps"`` or ``"auto"``; with several processes on CUDA each takes
            the device of its local rank.
        resume: Go on from the checkpoint in ``out``, if there is one.
        workers: Processes that prepare images, beside each process that trains; the result is the same with any number.
        log_every: Steps between two looks at the loss, >= 1.

    Returns:
        The network, its moving average and the metrics.

    Raises:
        ValueError: If a number is out of range, the network does not fit the images, the checkpoint is broken or of
            another training, or an image is broken.
        FileExistsError: If there is a checkpoint and ``resume`` is false.
        FloatingPointError: If the loss is no longer finite; the message names the step.
        ImportError: If the recipe needs timm and it cannot be imported.
        OSError: If a file cannot be written.

    Source: the paper's experiments with image classifiers; the settings are those of the recipe.
    """
    for name, value, lowest in (("seed", seed, 0), ("workers", workers, 0), ("log_every", log_every, 1)):
        if value < lowest:
            raise ValueError(f"{name} must be >= {lowest}, found {value}")
    folder = Path(out)
    with join_processes(device) as process:
        if recipe.amp == "fp16" and not process.on_cuda:
            raise ValueError(f"amp='fp16' needs CUDA, found {process.device.type}; take bf16")
        path = folder / "checkpoint.safetensors"
        if path.exists() and not resume:
            raise FileExistsError(f"{path} exists already; pass --resume (resume=True) or choose another folder")
        batches = TrainingBatches(data.train, recipe, len(data.classes), seed, process.rank, process.n)
        place(model, process)
        _check_model(model, data, recipe, process)
        _set_drop_path(model, recipe.drop_path)
        state = _start(model, data, recipe, path, seed, process)
        if path.exists():
            state.load()
            _log.info("training goes on after epoch %d", state.epoch)
            if process.rank == 0:
                _write_metrics(state)
        _train(state, data, recipe, batches, process, seed=seed, workers=workers, log_every=log_every)
    model.eval()
    ema = state.ema.module.eval() if isinstance(state.ema, AveragedModel) else None
    return TrainingResult(model, ema, state.history)


def _start(
    model: nn.Module, data: ImageSplits, recipe: Recipe, path: Path, seed: int, process: Process
) -> ClassifierState:
    groups = param_groups(model, recipe.weight_decay, recipe.mask_weight_decay)
    if not groups:
        raise ValueError("the network has no parameter that is trained")
    average = None
    if recipe.ema_decay is not None:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(recipe.ema_decay), use_buffers=True)
    return ClassifierState(
        model=model,
        optimizer=torch.optim.AdamW(groups, lr=recipe.lr),
        scaler=torch.amp.GradScaler(process.device.type, enabled=recipe.amp == "fp16"),
        ema=average,
        path=path,
        identity=fingerprint(model, data, (recipe, seed)),
    )


def _train(
    state: ClassifierState,
    data: ImageSplits,
    recipe: Recipe,
    batches: TrainingBatches,
    process: Process,
    *,
    seed: int,
    workers: int,
    log_every: int,
) -> None:
    sampler = EpochSampler(len(batches))
    loader = make_loader(batches, workers=workers, pin=process.on_cuda, sampler=sampler)
    held_out = ValidationBatches(data.val, recipe, VALIDATION_BATCH, process.rank, process.n)
    validation = make_loader(held_out, workers=workers, pin=process.on_cuda)
    wrapped = state.model
    if process.n > 1:
        wrapped = DistributedDataParallel(wrapped, device_ids=[process.device] if process.on_cuda else None)
    devices = [process.device] if process.on_cuda else []
    shown = progress("training", total=recipe.total_epochs * len(batches)) if process.rank == 0 else None
    with shown or contextlib.nullcontext() as bar, torch.random.fork_rng(devices=devices):
        if bar is not None:
            bar.advance(state.epoch * len(batches))
        for epoch in range(state.epoch, recipe.total_epochs):
            sampler.epoch = epoch
            _seed_dropout((seed * recipe.total_epochs + epoch) * process.n + process.rank, process)
            loss = _train_epoch(wrapped, state, recipe, loader, process, log_every=log_every, bar=bar)
            for network in filter(None, (state.model, state.ema)):
                share_buffers(network, process)
            record: dict[str, Any] = {"epoch": epoch + 1, "lr": state.optimizer.param_groups[0]["lr"]}
            record["train_loss"] = loss
            for prefix, network in (("", state.model), ("ema_", state.ema)):
                if network is not None:
                    scores = evaluate_batches(network, validation, recipe, process)
                    record |= {f"{prefix}val_{name}": getattr(scores, name) for name in ("loss", "top1", "top5")}
            state.history.append(record)
            state.epoch += 1
            if process.rank == 0:
                state.save()
                _write_metrics(state)
                _log.info(
                    "epoch %d/%d: training loss %.4g, validation loss %.4g, top-1 %.2f %%",
                    *(state.epoch, recipe.total_epochs, loss, record["val_loss"], 100 * record["val_top1"]),
                )


def _train_epoch(
    wrapped: nn.Module,
    state: ClassifierState,
    recipe: Recipe,
    loader: Any,
    process: Process,
    *,
    log_every: int,
    bar: progress | None,
) -> float:
    """Train for an epoch and return its mean loss over all processes."""
    wrapped.train()
    n_steps = len(loader)
    total, recent = 0.0, []
    for step, (images, targets) in enumerate(loader):
        rate = recipe.learning_rate(state.epoch + step / n_steps)
        for group in state.optimizer.param_groups:
            group["lr"] = rate * group["lr_scale"]
        with autocast(recipe, process):
            logits = wrapped(to_device(images, process))
            smoothing = 0.0 if recipe.mixes else recipe.label_smoothing  # mixed targets are smooth already
            loss = functional.cross_entropy(logits, to_device(targets, process), label_smoothing=smoothing)
        state.optimizer.zero_grad(set_to_none=True)
        state.scaler.scale(loss).backward()
        state.scaler.step(state.optimizer)
        state.scaler.update()
        if recipe.log2p_min is not None:
            clamp_masks_(state.model, recipe.log2p_min)
        if isinstance(state.ema, AveragedModel):
            state.ema.update_parameters(state.model)
        recent.append(loss.detach())
        # A look at the loss makes the host wait for the device, so that it is taken but now and then.
        if len(recent) == log_every or step + 1 == n_steps:
            total += _sum_of_finite(recent, state.epoch * n_steps + step + 1)
            _log.debug("epoch %d, step %d/%d: loss %.4g", state.epoch + 1, step + 1, n_steps, float(recent[-1]))
            recent = []
        if bar is not None:
            bar.advance()
    return sum_over_processes([total, n_steps], process)[0] / (n_steps * process.n)


def _sum_of_finite(losses: list[Tensor], last_step: int) -> float:
    values = torch.stack(losses).double().tolist()
    for number, value in enumerate(values, start=last_step - len(values) + 1):
        if not math.isfinite(value):
            raise FloatingPointError(f"the loss is {value} at step {number:,}: choose a smaller learning rate (lr)")
    return math.fsum(values)


def _check_model(model: nn.Module, data: ImageSplits, recipe: Recipe, process: Process) -> None:
    """See that the network takes the images and has an output for each class."""
    images, _ = ValidationBatches(data.val, recipe, 1)[0]
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            logits = model(to_device(images, process))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the network does not take images of shape {tuple(images.shape[1:])}: {reason}") from error
    for module in training:
        module.training = True
    expected = (1, len(data.classes))
    if not isinstance(logits, Tensor) or logits.shape != expected:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the network must give logits {expected}, an output for each class, found {found}")


def _set_drop_path(model: nn.Module, rate: float) -> None:
    """Let the blocks of a network of timm be skipped at random, later ones more often."""
    blocks = [
        module
        for module in model.modules()
        if type(module).__module__.startswith("timm.") and hasattr(module, "drop_path")
    ]
    if rate == 0 or not blocks:
        return
    from timm.layers import DropPath

    for number, block in enumerate(blocks):
        block.drop_path = DropPath(rate * number / max(1, len(blocks) - 1))


def _seed_dropout(seed: int, process: Process) -> None:
    torch.random.default_generator.manual_seed(seed)
    if process.on_cuda:
        with torch.cuda.device(process.device):
            torch.cuda.manual_seed(seed)


def _write_metrics(state: ClassifierState) -> None:
    with atomic_path(state.path.with_name("metrics.jsonl"), force=True) as temporary:
        lines = [json.dumps(to_jsonable(record), allow_nan=False) for record in state.history]
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
