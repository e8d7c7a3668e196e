"""The demonstration: noisy pixels and wrong labels in real handwritten digits, found without training a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icl25_sava.base import ValueEstimator
from icl25_sava.baselines import LAVA, KNNShapley, NearestCost, RandomValues
from icl25_sava.corruption import corrupt
from icl25_sava.datasets import DIGIT_SHAPE, Split, load_digits_split
from icl25_sava.embedders import make_embedder
from icl25_sava.evaluation import detection_auc, detection_curve
from icl25_sava.plots import plot_detection, plot_methods, plot_worst
from icl25_sava.sava import SAVA
from icl25_sava.selection import prune_mask
from icl25_shared import Claim, Estimate, Output, Rule, RunFolder, claims_table, progress

if TYPE_CHECKING:
    from icl25_shared import CommonFlags

__all__ = ["PANELS", "Trial", "demo_claims", "run_demo", "run_trial"]

N_SEEDS = 5
BATCH_SIZE = 200
FRACTION = 0.3

PANELS = {
    "noisy pixels": ("features", None),
    "wrong labels": ("labels", None),
    "wrong labels, embedded": ("labels", "mlp"),
}
"""What is corrupted, and which embedder (fitted on the validation rows) the methods see the digits through."""


class Trial(NamedTuple):
    """One panel at one seed."""

    auc: dict[str, float]
    """AUC of finding the corrupted rows by low value, per method."""
    accuracy: dict[str, float]
    """Test accuracy of logistic regression after 30 % of the rows were pruned by each method; ``nothing pruned`` and
    ``oracle`` (exactly the corrupted rows pruned) beside them."""
    models: dict[str, ValueEstimator]
    """The fitted estimators."""
    split: Split
    """The digits, training rows corrupted."""
    mask: np.ndarray
    """Which training rows are corrupted."""


def methods(seed: int) -> dict[str, ValueEstimator]:
    """The estimators that the demonstration compares.

    Args:
        seed: their seed.

    Returns:
        Estimators by name.
    """
    return {
        "SAVA": SAVA(BATCH_SIZE, random_state=seed),
        "LAVA": LAVA(random_state=seed),
        "KNN-Shapley": KNNShapley(random_state=seed),
        "NearestCost": NearestCost(BATCH_SIZE, random_state=seed),
        "random": RandomValues(random_state=seed),
    }


def run_trial(panel: str, seed: int) -> Trial:
    """Corrupt 1 000 digits, value them by every method, prune, train.

    Args:
        panel: a key of ``PANELS``.
        seed: seed of the split, the corruption and the methods.

    Returns:
        The trial.
    """
    kind, embedder = PANELS[panel]
    split = load_digits_split(1000, 400, seed)
    X, y, mask = corrupt(split.train.X, split.train.y, kind, FRACTION, seed)
    phi = make_embedder(embedder, random_state=seed).fit(split.val.X, split.val.y)
    seen, val_seen = np.asarray(phi.transform(X)), np.asarray(phi.transform(split.val.X))
    split = Split(type(split.train)(X, y), split.val, split.test)
    auc, accuracy, fitted = {}, {"nothing pruned": _accuracy(split, np.ones(len(y), bool))}, {}
    for name, model in methods(seed).items():
        fitted[name] = model.fit(seen, y, val_seen, split.val.y)
        auc[name] = detection_auc(model.values_, mask)
        accuracy[name] = _accuracy(split, ~prune_mask(model.values_, fraction=FRACTION))
    accuracy["oracle"] = _accuracy(split, ~mask)
    return Trial(auc, accuracy, fitted, split, mask)


def _accuracy(split: Split, kept: np.ndarray) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(split.train.X[kept], split.train.y[kept])
    return float(model.score(split.test.X, split.test.y))


def demo_claims(auc: dict[str, pd.DataFrame], accuracy: dict[str, pd.DataFrame]) -> list[Claim]:
    """What the demonstration shows, decided by rules fixed before it was run.

    Args:
        auc: per panel a table of AUC, a line per seed and a column per method.
        accuracy: likewise of test accuracy after pruning.

    Returns:
        The claims.
    """
    noise, labels = auc["noisy pixels"], accuracy["wrong labels"]
    gap = np.max([(table["SAVA"] - table["LAVA"]).abs() for table in auc.values()], axis=0)
    return [
        Claim(
            id="noisy-pixels-above-knn-shapley",
            statement="SAVA finds corrupted features better than KNN-Shapley (difference of AUC)",
            paper="better (figure without numbers)",
            source="CIFAR-10 experiments, noisy features",
            measured=Estimate.from_samples(noise["SAVA"] - noise["KNN-Shapley"]),
            rule=Rule(">=", 0.10),
            headline=True,
        ),
        Claim(
            id="as-good-as-lava",
            statement="Batches cost little: SAVA is as good as LAVA on every panel (largest difference of AUC)",
            paper="about equal (figure without numbers)",
            source="CIFAR-10 experiments",
            measured=Estimate.from_samples(gap),
            rule=Rule("<=", 0.06, on="every"),
        ),
        Claim(
            id="pruning-helps",
            statement="Pruning 30 % by SAVA trains a better model than pruning 30 % at random (wrong labels; accuracy)",
            paper="better on Clothing1M (figure without numbers)",
            source="Clothing1M experiment",
            measured=Estimate.from_samples(labels["SAVA"] - labels["random"]),
            rule=Rule(">=", 0.03),
        ),
    ]


def run_demo(flags: CommonFlags) -> Output:
    """Run the demonstration.

    Args:
        flags: seed and output folder.

    Returns:
        Tables of detection, of accuracy and of claims; ``ok`` where all claims hold.
    """
    with RunFolder.create(flags.out, program="icl25-sava", verb="demo", config=flags, force=flags.force) as run:
        trials: dict[str, list[Trial]] = {panel: [] for panel in PANELS}
        with progress("panels", total=len(PANELS) * N_SEEDS) as bar:
            for panel, found in trials.items():
                with run.timed(panel):
                    for seed in range(flags.seed, flags.seed + N_SEEDS):
                        found.append(run_trial(panel, seed))
                        bar.advance()
        auc = {panel: pd.DataFrame([trial.auc for trial in found]) for panel, found in trials.items()}
        accuracy = {panel: pd.DataFrame([trial.accuracy for trial in found]) for panel, found in trials.items()}
        claims = demo_claims(auc, accuracy)
        result: dict[str, Any] = {
            "seeds": list(range(flags.seed, flags.seed + N_SEEDS)),
            "auc": {panel: table.to_dict("list") for panel, table in auc.items()},
            "accuracy": {panel: table.to_dict("list") for panel, table in accuracy.items()},
        }
        run.write_json("result.json", result)
        run.write_claims(claims)
        with run.timed("pictures"):
            _draw(run, {panel: found[0] for panel, found in trials.items()}, auc)
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    view = [
        _means("Finding the bad rows: AUC (1 is perfect, 0.5 is chance)", auc),
        _means("Accuracy of logistic regression after pruning 30 % of the rows", accuracy),
        claims_table(claims, "What it shows"),
        "On wrong labels alone KNN-Shapley is the better detector, and NearestCost is nearly always as good as SAVA.",
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    return Output(data, view, ok=all(claim.holds for claim in claims))


def _draw(run: RunFolder, first: dict[str, Trial], auc: dict[str, pd.DataFrame]) -> None:
    for panel in ("noisy pixels", "wrong labels"):
        trial = first[panel]
        curves = {
            name: detection_curve(trial.models[name].values_, trial.mask) for name in ("SAVA", "LAVA", "KNN-Shapley")
        }
        slug = panel.replace(" ", "-")
        title = f"{panel.capitalize()} in 1 000 digits, 30 % corrupted"
        run.save_figure(plot_detection(curves, title), f"detection-{slug}.png")
        model = trial.models["SAVA"]
        assert isinstance(model, SAVA)  # noqa: S101  for the type checker
        X, X_val = (np.clip(rows, 0, 1) for rows in (trial.split.train.X, trial.split.val.X))
        figure = plot_worst(
            X, trial.split.train.y, model.values_, model.nearest_, X_val, trial.split.val.y, DIGIT_SHAPE
        )
        run.save_figure(figure, f"worst-{slug}.png")
    table = pd.DataFrame({panel: values.mean() for panel, values in auc.items()}).T
    run.save_figure(plot_methods(table, "Bad rows found in 1 000 digits"), "methods.png")


def _means(title: str, tables: dict[str, pd.DataFrame]) -> Table:
    columns = next(iter(tables.values())).columns
    view = Table(title=title, title_justify="left")
    view.add_column("")
    for name in columns:
        view.add_column(name, justify="right")
    for panel, table in tables.items():
        view.add_row(panel, *(f"{table[name].mean():.3f}" for name in columns))
    return view
