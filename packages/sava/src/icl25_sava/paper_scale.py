"""The paper's CIFAR-10 and Clothing1M experiments, on the user's copy of the data and preferably a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from icl25_sava.base import ValueEstimator
from icl25_sava.baselines import LAVA, BatchwiseLAVA, KNNShapley, RandomValues
from icl25_sava.corruption import corrupt
from icl25_sava.embedders import Embedder, make_embedder
from icl25_sava.evaluation import detection_auc, detection_curve
from icl25_sava.image_splits import ImageSet, ImageSplits, load_splits
from icl25_sava.paper_claims import FRACTIONS, paper_claims
from icl25_sava.paper_plots import accuracy_table, auc_table, paper_pictures
from icl25_sava.recipes import EXPERIMENTS, Experiment, Recipe
from icl25_sava.sava import SAVA
from icl25_sava.selection import prune_mask
from icl25_shared import InputError, Output, RunFolder, claims_table, get_logger, progress, select_device
from icl25_shared.runs import read_json, write_json

if TYPE_CHECKING:
    from icl25_sava.cli import Reproduce

__all__ = ["Trial", "run_paper_scale"]

_log = get_logger(__name__)

_LAVA_MEGABYTES = 4096
_KNN_ROWS = 60_000
_FITTED_MEGABYTES = 4096
_CHUNK = 256
_TRAININGS = "trainings"


class Trial(NamedTuple):
    """One panel at one seed."""

    auc: dict[str, float]
    """AUC of finding the corrupted rows per method; empty where the truth is not known."""
    curves: dict[str, pd.DataFrame]
    """Detection curves, likewise."""
    accuracy: dict[str, list[float]]
    """Test accuracy per method, nothing pruned first and then per share of ``FRACTIONS``."""
    n_corrupted: int
    """Number of corrupted rows."""


def run_paper_scale(flags: Reproduce) -> Output:
    """Value the training images, mark the values where the truth is known, prune and train on what is kept.

    A run that broke off goes on when it is called with the same ``out`` and ``force``: finished trainings are not
    repeated, and the one that was cut off goes on at its last checkpoint.

    Args:
        flags: configuration, scale, folder of the images, embedder, seeds, device and output folder.

    Returns:
        Tables and claims; ``ok`` where all claims hold, and always at the small scale, which is a rehearsal.

    Raises:
        InputError: torch is missing, or the images are missing, unreadable or do not fit the configuration.
        ValueError: the embedder or the device is unknown, or its weights do not fit.
        FileExistsError: the output folder holds another run and ``force`` is false.

    Source: CIFAR-10 and Clothing1M experiments of Kessler et al. (ICLR 2025).
    """
    try:
        device = str(select_device(flags.device, "torch"))
    except ImportError as error:
        raise InputError(f"--config {flags.config} trains networks: install icl25-sava[torch]") from error
    experiment = EXPERIMENTS[flags.config, flags.scale]
    splits = load_splits(flags.data)
    _check_poison(experiment, splits)
    # A wrong embedder is found before hours of work.
    make_embedder(flags.embedder, image_shape=splits.train.X.shape[1:], device=device)
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    _log.info("%s images to value, %s to train on %s", len(splits.train.y), flags.config, device)
    with RunFolder.create(flags.out, program="icl25-sava", verb="reproduce", config=flags, force=flags.force) as run:
        run.path(_TRAININGS).mkdir(exist_ok=True)
        trials: dict[str, list[Trial]] = {panel: [] for panel in experiment.corruptions}
        n_trainings = len(trials) * len(seeds) * (1 + len(FRACTIONS) * (1 + len(experiment.pruned_by)))
        with progress("trainings", total=n_trainings) as bar:
            for panel, found in trials.items():
                with run.timed(panel):
                    for seed in seeds:
                        trial = _trial(splits, experiment, panel, seed, flags.embedder, device, run, bar.advance)
                        found.append(trial)
        auc = {panel: pd.DataFrame([t.auc for t in found]) for panel, found in trials.items() if found[0].auc}
        accuracy = {panel: [trial.accuracy for trial in found] for panel, found in trials.items()}
        curves = {panel: found[0].curves for panel, found in trials.items() if found[0].curves}
        claims = paper_claims(auc, accuracy)
        result = {
            "config": flags.config,
            "scale": flags.scale,
            "embedder": flags.embedder,
            "seeds": list(seeds),
            "experiment": asdict(experiment),
            "fractions": [0.0, *FRACTIONS],
            "n_corrupted": {panel: [trial.n_corrupted for trial in found] for panel, found in trials.items()},
            "auc": {panel: table.to_dict("list") for panel, table in auc.items()},
            "accuracy": accuracy,
        }
        run.write_json("result.json", result)
        run.write_claims(claims)
        for name, figure in paper_pictures(auc, accuracy, curves).items():
            run.save_figure(figure, name)
    view: list[Any] = [auc_table(auc)] if auc else []
    view += [
        accuracy_table(accuracy),
        claims_table(claims, "Claims"),
        *(["A rehearsal: at this size the claims decide nothing."] if flags.scale == "small" else []),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    return Output(data, view, ok=flags.scale == "small" or all(claim.holds for claim in claims))


def _check_poison(experiment: Experiment, splits: ImageSplits) -> None:
    if any(kind is not None and kind[0] == "blend" for kind in experiment.corruptions.values()):
        missing = [c for c in experiment.poison if c >= len(splits.classes)]
        if missing:
            raise InputError(f"the poison needs class number {max(missing)}, y holds {len(splits.classes)} classes")


def _trial(
    splits: ImageSplits,
    experiment: Experiment,
    panel: str,
    seed: int,
    embedder: str,
    device: str,
    run: RunFolder,
    advance: Callable[[], None],
) -> Trial:
    """Corrupt, value by every method, prune, train."""
    rng = np.random.default_rng([seed, list(experiment.corruptions).index(panel)])
    train, val = _draw_rows(splits.train, experiment.n_train, rng), _draw_rows(splits.val, experiment.n_val, rng)
    # The same test images for every seed and panel.
    test = _draw_rows(splits.test, experiment.n_test, np.random.default_rng(0))
    corruption, mask = experiment.corruptions[panel], None
    if corruption is not None:
        train, mask = _corrupted(train, *corruption, experiment.poison, splits.classes, embedder, device, rng)
    phi = _fitted(embedder, val, experiment.recipe, device, seed)
    X, X_val = (_embedded(part.X, phi, experiment.recipe, device) for part in (train, val))
    values = {}
    for name, model in _methods(len(train.y), len(val.y), experiment.batch_size, seed, device).items():
        _log.info("%s, seed %s: values by %s", panel, seed, name)
        values[name] = model.fit(X, train.y, X_val, val.y).values_
    n_classes, folder = len(splits.classes), run.path(_TRAININGS)

    def trained(kept: np.ndarray) -> float:
        result = _accuracy(train, kept, test, experiment.recipe, n_classes, device, seed, folder)
        advance()
        return result

    whole = trained(np.arange(len(train.y)))
    accuracy = {}
    for name in (*experiment.pruned_by, "random"):
        kept = [np.flatnonzero(~prune_mask(values[name], fraction=fraction)) for fraction in FRACTIONS]
        accuracy[name] = [whole, *map(trained, kept)]
    n_corrupted, auc, curves = 0, {}, {}
    if mask is not None:
        n_corrupted = int(mask.sum())
        auc = {name: detection_auc(found, mask) for name, found in values.items()}
        curves = {name: detection_curve(found, mask) for name, found in values.items() if name != "random"}
    return Trial(auc, curves, accuracy, n_corrupted)


def _draw_rows(part: ImageSet, n: int | None, rng: np.random.Generator) -> ImageSet:
    """Some rows, in memory, or all of them as they are."""
    if n is None or n >= len(part.y):
        return part
    rows = np.sort(rng.choice(len(part.y), n, replace=False))
    return ImageSet(part.X[rows], part.y[rows])


def _corrupted(
    train: ImageSet,
    kind: str,
    fraction: float,
    poison: tuple[int, int],
    classes: np.ndarray,
    embedder: str,
    device: str,
    rng: np.random.Generator,
) -> tuple[ImageSet, np.ndarray]:
    """A corrupted copy in floating point, and which rows are corrupted."""
    shape = train.X.shape
    X = train.X.astype(np.float32) / np.float32(255) if train.X.dtype == np.uint8 else train.X.astype(np.float32)
    options: dict[str, Any] = {}
    if kind == "blend":
        base, target = (np.flatnonzero(train.y == c) for c in poison)
        if min(len(base), len(target)) == 0:
            raise InputError(f"poison: the drawn rows hold no image of class {classes[list(poison)].tolist()}")
        n = min(round(fraction * len(train.y)), len(base))  # one class has no more rows than it has
        if embedder.startswith("torch:"):
            return _collided(train.y, X, rng.choice(base, n, replace=False), rng.choice(target, n), embedder, device)
        fraction = n / len(train.y)
        options = {"base": poison[0], "target": poison[1]}
    X, y, mask = corrupt(X.reshape(len(X), -1), train.y, kind, fraction, rng, image_shape=shape[1:], **options)
    return ImageSet(X.reshape(shape), y), mask


def _collided(
    y: np.ndarray, X: np.ndarray, rows: np.ndarray, targets: np.ndarray, embedder: str, device: str
) -> tuple[ImageSet, np.ndarray]:
    """The paper's poison, through the network of the embedder: labels stay, outputs move to those of the targets."""
    from icl25_sava.poisoning import feature_collision
    from icl25_sava.torch_embedders import load_network

    network = load_network("torch", embedder.partition(":")[2], image_shape=X.shape[1:], device=device)
    X[rows] = feature_collision(X[rows], X[targets], network.module, device=device)
    mask = np.zeros(len(y), bool)
    mask[rows] = True
    return ImageSet(X, y), mask


def _fitted(embedder: str, val: ImageSet, recipe: Recipe, device: str, seed: int) -> Embedder:
    """The embedder, fitted on the pixels of the validation images where it is one that is fitted."""
    from icl25_sava.training import read_images

    first = read_images(val.X, np.arange(1), recipe).numpy()
    phi = make_embedder(embedder, random_state=seed, image_shape=first.shape[1:], device=device)
    if embedder.startswith(("torch:", "timm:")):
        return phi.fit(first.reshape(1, -1), val.y[:1])
    megabytes = len(val.y) * first.nbytes / 1e6
    if megabytes > _FITTED_MEGABYTES:
        raise InputError(
            f"--embedder {embedder} is fitted on all validation pixels, {megabytes:,.0f} MB here: give a trained "
            "network, torch:module.attribute:weights or timm:NAME:weights"
        )
    pixels = [part for _, part in _chunks(val.X, recipe, "cpu")]
    return phi.fit(np.concatenate(pixels), val.y)


def _embedded(X: np.ndarray, phi: Embedder, recipe: Recipe, device: str) -> np.ndarray:
    """Features of all images; pixels are held some hundred images at a time."""
    out: np.ndarray | None = None
    for start, pixels in _chunks(X, recipe, device):
        part = np.asarray(phi.transform(pixels), np.float32)
        out = np.empty((len(X), part.shape[1]), np.float32) if out is None else out
        out[start : start + len(part)] = part
    assert out is not None  # noqa: S101  an image set has a row
    return out


def _chunks(X: np.ndarray, recipe: Recipe, device: str) -> Any:
    """First row and (b, d) pixels in [0, 1] of chunk after chunk, cropped as in testing."""
    from icl25_sava.training import read_images

    for start in range(0, len(X), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(X)))
        yield start, read_images(X, rows, recipe, device=device).cpu().numpy().reshape(len(rows), -1)


def _methods(n: int, m: int, batch_size: int, seed: int, device: str) -> dict[str, ValueEstimator]:
    """What values the rows; LAVA and KNN-Shapley only where they are feasible."""
    batched: Any = {"batch_size": batch_size, "device": device, "random_state": seed}
    methods: dict[str, ValueEstimator] = {"SAVA": SAVA(**batched), "batch-wise LAVA": BatchwiseLAVA(**batched)}
    if 2.2 * n * m * np.dtype(np.float32).itemsize / 1e6 <= _LAVA_MEGABYTES:
        methods["LAVA"] = LAVA(_LAVA_MEGABYTES, device=device, random_state=seed)
    if n <= _KNN_ROWS:
        methods["KNN-Shapley"] = KNNShapley(random_state=seed)
    return {**methods, "random": RandomValues(random_state=seed)}


def _accuracy(
    train: ImageSet,
    kept: np.ndarray,
    test: ImageSet,
    recipe: Recipe,
    n_classes: int,
    device: str,
    seed: int,
    folder: Path,
) -> float:
    """Test accuracy of a network trained on the kept rows, from the folder where it stands there already."""
    from icl25_sava.training import accuracy, fingerprint, train_classifier

    tested = fingerprint(test.X, test.y)
    name = fingerprint(train.X, train.y, kept, tested, recipe, n_classes, seed)[:24]
    record, checkpoint = folder / f"{name}.json", folder / f"{name}.safetensors"
    if record.exists():
        return float(read_json(record)["accuracy"])
    network = train_classifier(
        train.X, train.y, recipe, n_classes=n_classes, device=device, seed=seed, rows=kept, checkpoint=checkpoint
    )
    measured = accuracy(network, test.X, test.y, recipe, device=device)
    write_json(record, {"accuracy": measured})
    checkpoint.unlink()
    return measured
