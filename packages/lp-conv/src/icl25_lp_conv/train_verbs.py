"""The verb that trains an image classifier, with or without masks."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from icl25_lp_conv.classifier_training import TrainingResult, train_classifier
from icl25_lp_conv.datasets.images import ImageSplits, read_image_dataset
from icl25_lp_conv.model_files import save_model
from icl25_lp_conv.models import ModelSource
from icl25_lp_conv.network_verbs import build, count_parameters, find_preset
from icl25_lp_conv.output_verbs import make_table, open_run
from icl25_lp_conv.recipe import Recipe
from icl25_shared import InputError, Output

if TYPE_CHECKING:
    from icl25_lp_conv import cli

_FILES = ("checkpoint.safetensors", "metrics.jsonl", "model.safetensors", "model_ema.safetensors")
_OWN = "digits-resnet"


def run_train(flags: cli.Train) -> Output:
    """Train a network."""
    preset = find_preset(flags.preset)
    recipe = _recipe(flags)
    rank = _rank(flags)
    # Networks of the libraries take colours; a function of the user's decides for itself.
    own = flags.model.startswith(_OWN) or ModelSource(flags.model).is_function
    data = read_image_dataset(flags.data, flags.size, channels=None if own else 3, seed=flags.seed)
    name = f"{_OWN}(in_channels={data.image_shape[2]})" if flags.model == _OWN else flags.model
    source = ModelSource(name, len(data.classes), flags.small_images)
    model = preset(build(source, pretrained=False, seed=flags.seed).model, inplace=True)
    if rank > 0:
        assert flags.out is not None  # noqa: S101 - several processes need --out
        _train(flags, model, data, recipe, flags.out)
        return Output({})
    run = open_run(flags, "train", _FILES)
    try:
        with run:
            result = _train(flags, model, data, recipe, run.folder)
            save_model(run.path("model.safetensors"), result.model.cpu(), source, force=True)
            if result.ema is not None:
                save_model(run.path("model_ema.safetensors"), result.ema.cpu(), source, force=True)
    except FloatingPointError as error:
        message = f"training failed: {error}"
        return Output({"out": str(run.folder), "error": str(error)}, [message], ok=False)
    last = result.history[-1]
    shown = {
        "out": str(run.folder),
        "network": source,
        "preset": flags.preset,
        "parameters": count_parameters(result.model),
        "classes": len(data.classes),
        "images": {"train": len(data.train), "validation": len(data.val)},
        "last": last,
    }
    rows = [("network", *_scores(last, ""))]
    if result.ema is not None:
        rows.append(("moving average", *_scores(last, "ema_")))
    title = f"{flags.preset} after {last['epoch']} epochs, {len(data.val):,} images for validation"
    view = [make_table(title, ["network", "loss", "top-1", "top-5"], rows), f"network in {run.path(_FILES[2])}"]
    return Output(shown, view)


def _train(flags: cli.Train, model: Any, data: ImageSplits, recipe: Recipe, out: Any) -> TrainingResult:
    options: dict[str, Any] = {"seed": flags.seed, "device": flags.device, "resume": flags.resume}
    try:
        return train_classifier(model, data, recipe, out=out, workers=flags.workers, **options)
    except ImportError as error:
        raise InputError(str(error)) from error


def _recipe(flags: cli.Train) -> Recipe:
    names = ("epochs", "batch_size", "lr")
    given = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    return Recipe.small(**given) if flags.recipe == "small" else Recipe.paper(**given)


def _rank(flags: cli.Train) -> int:
    """The number of this process among those that torchrun started, of which the first one writes."""
    n = 1
    with contextlib.suppress(ValueError):
        n = int(os.environ.get("WORLD_SIZE", "1"))
    if n < 2:
        return 0
    if flags.out is None or flags.force:
        raise InputError("several processes need the name of a new folder: --out, without --force")
    return int(os.environ["RANK"])


def _scores(record: dict[str, Any], prefix: str) -> tuple[str, str, str]:
    loss, top1, top5 = (record[f"{prefix}val_{name}"] for name in ("loss", "top1", "top5"))
    return f"{loss:.4g}", f"{top1:.2%}", f"{top5:.2%}"
