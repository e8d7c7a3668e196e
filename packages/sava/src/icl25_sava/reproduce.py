"""The paper's experiments: detection on augmented digits, growth with the number of rows, incremental pruning."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icl25_sava.base import ValueEstimator
from icl25_sava.baselines import LAVA, BatchwiseLAVA, KNNShapley, NearestCost
from icl25_sava.corruption import corrupt
from icl25_sava.datasets import DIGIT_SHAPE, augmented_digits, make_gaussians
from icl25_sava.embedders import make_embedder
from icl25_sava.evaluation import detection_auc
from icl25_sava.growth_plots import plot_incremental, plot_scaling
from icl25_sava.plots import plot_methods
from icl25_sava.sava import SAVA
from icl25_sava.selection import prune_mask
from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, claims_table, get_logger, progress

if TYPE_CHECKING:
    from icl25_sava.cli import Reproduce

__all__ = ["ROWS", "Sizes", "detection_aucs", "growth", "incremental", "reproduce_claims", "run_reproduce"]

_log = get_logger(__name__)

ROWS = {
    "wrong labels": ("labels", 0.3, None),
    "wrong labels, mlp": ("labels", 0.3, "mlp"),
    "noisy pixels": ("features", 0.3, None),
    "noisy pixels, mlp": ("features", 0.3, "mlp"),
    "noise patch + relabel": ("trojan", 0.1, None),
    "fixed patch + relabel": ("patch", 0.1, None),
    "blend towards a class": ("blend", 0.03, None),
}
"""Corruption, share of the rows, embedder (fitted on the validation rows)."""


class Sizes(NamedTuple):
    """How large the experiments are."""

    n_train: int = 8192
    n_val: int = 2048
    batch_size: int = 1024
    growth: tuple[int, ...] = (2000, 4000, 8000, 16000, 32000, 64000)
    step: int = 2000
    n_steps: int = 5


PARITY_ROWS = tuple(row for row, (kind, _, _) in ROWS.items() if kind != "blend")


def detection_aucs(row: str, seed: int, sizes: Sizes) -> dict[str, float]:
    """AUC of finding corrupted digits, per method.

    Args:
        row: a key of ``ROWS``.
        seed: seed of data, corruption and methods.
        sizes: number of rows and batch size.

    Returns:
        AUC by method.
    """
    kind, fraction, embedder = ROWS[row]
    split = augmented_digits(sizes.n_train, sizes.n_val, seed)
    X, y, mask = corrupt(split.train.X, split.train.y, kind, fraction, seed, image_shape=DIGIT_SHAPE)
    # One fit of the embedder serves all methods.
    phi = make_embedder(embedder, random_state=seed).fit(split.val.X, split.val.y)
    X, X_val = np.asarray(phi.transform(X)), np.asarray(phi.transform(split.val.X))
    options: dict[str, Any] = {"random_state": seed}
    batched: dict[str, Any] = {"batch_size": sizes.batch_size, **options}
    methods: dict[str, ValueEstimator] = {
        "SAVA": SAVA(**batched),
        "uniform outer": SAVA(outer="uniform", **batched),
        "batch-wise LAVA": BatchwiseLAVA(**batched),
        "NearestCost": NearestCost(**batched),
        "LAVA": LAVA(**options),
        "KNN-Shapley": KNNShapley(**options),
    }
    return {name: detection_auc(model.fit(X, y, X_val, split.val.y).values_, mask) for name, model in methods.items()}


def growth(sizes: Sizes, seed: int) -> pd.DataFrame:
    """Time and memory of SAVA and of LAVA as the training set grows, on Gaussian classes.

    Args:
        sizes: the numbers of training rows.
        seed: seed of the data.

    Returns:
        A line per method and size: method, n, seconds (of processor time), peak_mb (largest memory during ``fit``
        beyond the input), working_mb (of that, what is not part of the result).
    """
    lines = []
    for n in sizes.growth:
        data = make_gaussians(n, sizes.n_val, seed=seed)
        for name, model in (
            ("SAVA", SAVA(sizes.batch_size, random_state=seed)),
            ("LAVA", LAVA(max_memory_mb=4096, random_state=seed)),
        ):
            tracemalloc.start()
            started = time.process_time()
            model.fit(*data.train, *data.val)
            seconds = time.process_time() - started
            kept, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            lines.append(
                {
                    "method": name,
                    "n": n,
                    "seconds": seconds,
                    "peak_mb": peak / 1e6,
                    "working_mb": (peak - kept) / 1e6,
                }
            )
    return pd.DataFrame(lines)


def incremental(sizes: Sizes, seed: int) -> tuple[pd.DataFrame, float]:
    """Digits with wrong labels that arrive in steps: each time all rows are valued, 30 % pruned, a model trained.

    Args:
        sizes: rows per step and number of steps.
        seed: seed.

    Returns:
        A line per step (n, accuracy, random: after as many rows were pruned at random, everything: without pruning),
        and the largest difference between values grown step by step and values from scratch with the same batches.
    """
    n = sizes.step * sizes.n_steps
    split = augmented_digits(n, sizes.n_val, seed)
    X, y, _ = corrupt(split.train.X, split.train.y, "labels", 0.3, seed)
    model = SAVA(min(sizes.batch_size, sizes.step // 2), batching="shuffle", random_state=seed)
    rng = np.random.default_rng([seed, 7])
    lines = []
    for step in range(sizes.n_steps):
        rows = slice(step * sizes.step, (step + 1) * sizes.step)
        if step == 0:
            model.fit(X[rows], y[rows], split.val.X, split.val.y)
        else:
            model.partial_fit(X[rows], y[rows])
        seen = rows.stop
        kept = np.flatnonzero(~prune_mask(model.values_, fraction=0.3))
        chance = rng.choice(seen, len(kept), replace=False)
        scores = [
            _accuracy(X[index], y[index], split.test.X, split.test.y) for index in (kept, chance, np.arange(seen))
        ]
        lines.append(dict(zip(("n", "accuracy", "random", "everything"), (seen, *scores), strict=True)))
    return pd.DataFrame(lines), _difference_from_scratch(X, y, split.val, model.label_distances_, sizes)


def _difference_from_scratch(X: np.ndarray, y: np.ndarray, val: Any, W: np.ndarray, sizes: Sizes) -> float:
    fixed: dict[str, Any] = {
        "batch_size": sizes.step // 2,
        "batching": "sequential",
        "label_distance": W,
        "random_state": 0,
    }
    scratch = SAVA(**fixed).fit(X, y, *val)
    grown = SAVA(**fixed).fit(X[: sizes.step], y[: sizes.step], *val)
    for start in range(sizes.step, len(X), sizes.step):
        grown.partial_fit(X[start : start + sizes.step], y[start : start + sizes.step])
    return float(np.abs(grown.values_ - scratch.values_).max())


def _accuracy(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged after 300 steps is as good a model for this comparison
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(X, y)
    return float(model.score(X_test, y_test))


def reproduce_claims(
    auc: dict[str, pd.DataFrame], curve: pd.DataFrame, steps: list[pd.DataFrame], differences: list[float]
) -> list[Claim]:
    """The paper's claims and ours, decided by rules fixed beforehand.

    Args:
        auc: per row of the table a frame of AUC, a line per seed and a column per method.
        curve: the result of ``growth``.
        steps: per seed the first result of ``incremental``.
        differences: per seed the second.

    Returns:
        The claims.
    """
    gaps = {row: (table["SAVA"] - table["LAVA"]).abs() for row, table in auc.items()}
    blend = auc["blend towards a class"]
    noise, patch = auc["noisy pixels"], auc["noise patch + relabel"]
    memory = {name: part.set_index("n")["working_mb"] for name, part in curve.groupby("method")}
    sava, lava = memory["SAVA"], memory["LAVA"]
    growth_of_sava = float((sava / sava.iloc[0]).max())
    growth_of_lava = (lava.iloc[-1] / lava.iloc[0]) / (lava.index[-1] / lava.index[0])
    last = [float(frame["accuracy"].iloc[-1] - frame["random"].iloc[-1]) for frame in steps]
    not_stated = "figure without numbers"
    return [
        Claim(
            id="as-good-as-lava",
            statement="SAVA finds wrong labels, noise and patches as well as LAVA (largest difference of AUC)",
            paper=f"about equal ({not_stated})",
            source="CIFAR-10, labels, features, trojan",
            measured=Estimate.from_samples(np.max([gaps[row] for row in PARITY_ROWS], axis=0)),
            rule=Rule("<=", 0.06, on="every"),
            headline=True,
        ),
        Claim(
            id="noisy-pixels-above-knn-shapley",
            statement="SAVA finds noisy features better than KNN-Shapley (difference of AUC)",
            paper=f"better ({not_stated})",
            source="CIFAR-10, noisy features",
            measured=Estimate.from_samples(noise["SAVA"] - noise["KNN-Shapley"]),
            rule=Rule(">=", 0.10),
        ),
        Claim(
            id="noise-patch-above-knn-shapley",
            statement="SAVA finds noise patches with a changed label better than KNN-Shapley (difference of AUC)",
            paper=f"better ({not_stated})",
            source="CIFAR-10, trojan square",
            measured=Estimate.from_samples(patch["SAVA"] - patch["KNN-Shapley"]),
            rule=Rule(">=", 0.02),
            note="On 8 x 8 digits the patch covers 9 of 64 pixels, and nine in ten of these rows carry a wrong label, "
            "which KNN-Shapley finds best: the advantage needs a larger or stronger patch.",
        ),
        Claim(
            id="poison-found",
            statement="SAVA finds rows that were blended towards another class (AUC)",
            paper=f"found ({not_stated})",
            source="CIFAR-10, feature-collision poison",
            measured=Estimate.from_samples(blend["SAVA"]),
            rule=Rule(">=", 0.5, on="low"),
            note="A blended row moves towards the middle of the data and so lies closer to the validation rows than "
            "many clean rows do: its mass makes the transport cheaper, not dearer.",
        ),
        Claim(
            id="poison-as-good-as-lava",
            statement="SAVA finds blended rows as well as LAVA (difference of AUC)",
            paper=f"about equal ({not_stated})",
            source="CIFAR-10, feature-collision poison",
            measured=Estimate.from_samples(gaps["blend towards a class"]),
            rule=Rule("<=", 0.06, on="every"),
            note="Fewer rows a batch mean a coarser plan, and blended rows differ from clean ones by little.",
        ),
        Claim(
            id="memory-flat",
            statement="Memory of SAVA beyond input and result does not grow with N (largest over first)",
            paper="stated without numbers",
            source="abstract; CIFAR-10 scaling",
            measured=Estimate.exact(growth_of_sava),
            rule=Rule("<=", 1.2),
        ),
        Claim(
            id="lava-memory-grows",
            statement="Memory of LAVA grows as N x M (growth relative to that of N)",
            paper="LAVA runs out of memory as N grows",
            source="CIFAR-10 scaling",
            measured=Estimate.exact(float(growth_of_lava)),
            rule=Rule(">=", 0.8),
        ),
        Claim(
            id="incremental-equals-scratch",
            statement="Values grown step by step equal those from scratch (largest difference)",
            paper="not in the paper",
            source="ours",
            measured=Estimate.from_samples(differences),
            rule=Rule("<=", 1e-6, on="every"),
        ),
        Claim(
            id="incremental-pruning-helps",
            statement="After five steps, pruning 30 % by SAVA trains a better model than pruning at random (accuracy)",
            paper=f"better ({not_stated})",
            source="incremental experiment",
            measured=Estimate.from_samples(last),
            rule=Rule(">=", 0.0, on="low"),
        ),
    ]


def run_reproduce(flags: Reproduce) -> Output:
    """Run the experiment that the flags name.

    Args:
        flags: configuration, seeds and output folder.

    Returns:
        Tables and claims; ``ok`` where all claims hold.

    Raises:
        InputError: the configuration needs data that are not given.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be at least 1, found {flags.n_seeds}")
    if flags.config != "digits":
        from icl25_sava.paper_scale import run_paper_scale

        return run_paper_scale(flags)
    if flags.scale == "paper":
        raise InputError("--scale paper is for --config cifar10 and clothing1m: digits has one size")
    sizes, seeds = Sizes(), range(flags.seed, flags.seed + flags.n_seeds)
    with RunFolder.create(flags.out, program="icl25-sava", verb="reproduce", config=flags, force=flags.force) as run:
        found: dict[str, list[dict[str, float]]] = {row: [] for row in ROWS}
        with run.timed("detection"), progress("detection", total=len(ROWS) * len(seeds)) as bar:
            for row, lines in found.items():
                for seed in seeds:
                    lines.append(detection_aucs(row, seed, sizes))
                    bar.advance()
        auc = {row: pd.DataFrame(lines) for row, lines in found.items()}
        with run.timed("growth"):
            _log.info("time and memory for up to %s rows", f"{max(sizes.growth):,}")
            curve = growth(sizes, flags.seed)
        with run.timed("incremental"), progress("incremental", total=len(seeds)) as bar:
            pairs = []
            for seed in seeds:
                pairs.append(incremental(sizes, seed))
                bar.advance()
        steps, differences = [frame for frame, _ in pairs], [difference for _, difference in pairs]
        claims = reproduce_claims(auc, curve, steps, differences)
        mean_steps = pd.concat(steps).groupby("n").mean().reset_index()
        result: dict[str, Any] = {
            "seeds": list(seeds),
            "sizes": sizes._asdict(),
            "auc": {row: table.to_dict("list") for row, table in auc.items()},
            "growth": curve.to_dict("list"),
            "incremental": [frame.to_dict("list") for frame in steps],
        }
        run.write_json("result.json", result)
        run.write_claims(claims)
        means = pd.DataFrame({row: table.mean() for row, table in auc.items()}).T
        run.save_figure(plot_methods(means, f"Bad rows found in {sizes.n_train:,} digits"), "methods.png")
        run.save_figure(plot_scaling(curve), "scaling.png")
        run.save_figure(plot_incremental(mean_steps), "incremental.png")
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    view = [
        _auc_table(auc),
        _frame_table("Growth with the number of training rows", curve),
        _frame_table("Incremental pruning, mean over seeds (accuracy)", mean_steps),
        claims_table(claims, "Claims"),
        *(f"{claim.id}: {claim.note}" for claim in claims if claim.note),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    return Output(data, view, ok=all(claim.holds for claim in claims))


def _auc_table(auc: dict[str, pd.DataFrame]) -> Table:
    columns = next(iter(auc.values())).columns
    view = Table(title="AUC of finding corrupted rows: mean and smallest to largest of the seeds", title_justify="left")
    view.add_column("corruption")
    for name in columns:
        view.add_column(name, justify="right")
    for row, table in auc.items():
        cells = [f"{table[name].mean():.3f} ({table[name].min():.3f}-{table[name].max():.3f})" for name in columns]
        view.add_row(row, *cells)
    return view


def _frame_table(title: str, frame: pd.DataFrame) -> Table:
    view = Table(title=title, title_justify="left")
    for name in frame.columns:
        view.add_column(str(name), justify="right")
    for line in frame.itertuples(index=False):
        view.add_row(
            *(f"{x:.4g}" if isinstance(x, float) else f"{x:,}" if isinstance(x, int) else str(x) for x in line)
        )
    return view
