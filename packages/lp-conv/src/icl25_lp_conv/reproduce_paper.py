"""The paper's comparison of kernels on CIFAR-100 at its own size, for a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_lp_conv.classifier_training import train_classifier
from icl25_lp_conv.datasets.images import read_image_dataset
from icl25_lp_conv.demo import accuracy_figure, accuracy_table
from icl25_lp_conv.model_files import save_model
from icl25_lp_conv.models import ModelSource, build_model, presets
from icl25_lp_conv.recipe import Recipe
from icl25_lp_conv.reproducibility import seeded
from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, claims_table, get_logger

if TYPE_CHECKING:
    from icl25_lp_conv.cli import Reproduce

__all__ = ["PAPER_PRESETS", "paper_claims", "run_paper_scale"]

PAPER_PRESETS = ("base", "large", "lp2", "lp4", "lp16")

_log = get_logger(__name__)


def paper_claims(accuracy: Mapping[str, Sequence[float]]) -> list[Claim]:
    """What the paper says of CIFAR-100, decided by rules fixed before it is run.

    Args:
        accuracy: Accuracies of the moving average of the weights, by preset, one for each seed.

    Returns:
        The claims.
    """
    return [
        Claim(
            id=f"cifar100-lp2-above-{other}",
            statement=f"ResNet-18 with Lp masks (p = 2) is better on CIFAR-100 than {words} (accuracy)",
            paper="better (tables were not available)",
            source="CIFAR-100",
            measured=Estimate.from_samples(np.subtract(accuracy["lp2"], accuracy[other])),
            rule=Rule(">=", 0.0, on="low"),
        )
        for other, words in (("base", "with its own 3x3 kernels"), ("large", "with plain 7x7 kernels"))
    ]


def run_paper_scale(flags: Reproduce, *, model_name: str = "resnet18", recipe: Recipe | None = None) -> Output:
    """Train the variants on the images of ``--data`` for each seed.

    Every training keeps a checkpoint; with ``--force`` an ``--out`` that broke off goes on where it was.

    Args:
        flags: Data, seeds, device and output folder.
        model_name: The network; one with options in parentheses is one of this package.
        recipe: How to train; the paper's recipe if None.

    Returns:
        Tables of accuracies and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there is no ``--data``, or there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    if flags.data is None:
        raise InputError("--scale paper needs --data: the folder of the CIFAR-100 batches (cifar-100-python)")
    recipe = Recipe.paper() if recipe is None else recipe
    data = read_image_dataset(flags.data)
    source = ModelSource(model_name, len(data.classes), small_images="(" not in model_name)
    accuracy: dict[str, list[float]] = {name: [] for name in PAPER_PRESETS}
    with RunFolder.create(flags.out, program="icl25-lp-conv", verb="reproduce", config=flags, force=flags.force) as run:
        for seed in range(flags.seed, flags.seed + flags.n_seeds):
            for name in PAPER_PRESETS:
                _log.info("%s, seed %d", name, seed)
                folder = run.path(f"{name}-{seed}")
                with seeded(seed):
                    small = build_model(source.name, source.num_classes, source.small_images)
                    model = presets[name](small, transfer="none")
                with run.timed(name):
                    trained = train_classifier(
                        model, data, recipe, out=folder, seed=seed, device=flags.device, resume=flags.force
                    )
                save_model(folder / "model.safetensors", trained.model.cpu(), source, force=True)
                last = trained.history[-1]
                accuracy[name].append(last["val_top1" if trained.ema is None else "ema_val_top1"])
        claims = paper_claims(accuracy)
        run.write_json("result.json", {"accuracy": accuracy})
        run.write_claims(claims)
        run.save_figure(accuracy_figure(accuracy, f"{model_name}, {flags.data.name}"), "accuracy.png")
    result: dict[str, Any] = {"accuracy": accuracy, "claims": [claim.to_dict() for claim in claims]}
    view = [accuracy_table(accuracy, f"{model_name}, {flags.data.name}: accuracy"), claims_table(claims, "Claims")]
    return Output(result, view, ok=all(claim.holds for claim in claims))
