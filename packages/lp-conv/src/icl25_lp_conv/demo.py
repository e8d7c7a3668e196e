"""The demonstration: masks find the direction of hidden receptive fields, and make large kernels pay on real digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from joblib import Parallel, cpu_count, delayed
from rich.table import Table

from icl25_lp_conv.digits_task import DigitsSizes, digits_accuracies
from icl25_lp_conv.recovery import Recovery, recover
from icl25_lp_conv.recovery_plots import plot_recovery
from icl25_lp_conv.score_plots import plot_bars
from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, claims_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_lp_conv.cli import Demo

__all__ = ["accuracy_figure", "accuracy_table", "demo_claims", "run_demo"]

REDRAWN, FIXED = DigitsSizes(), DigitsSizes(redrawn=False)


def demo_claims(
    known: Sequence[Recovery],
    joint: Sequence[Recovery],
    redrawn: Mapping[str, Sequence[float]],
    fixed: Mapping[str, Sequence[float]],
) -> list[Claim]:
    """What the demonstration shows, decided by rules fixed before it was run.

    Args:
        known: Recovered masks with known kernels, one result for each seed.
        joint: Recovered together with the kernels.
        redrawn: Test accuracies by kind of kernel, one for each seed, with places and noise redrawn in every epoch.
        fixed: Likewise with 500 images that stay as they are.

    Returns:
        The claims.
    """
    return [
        Claim(
            id="known-kernels-recover-masks",
            statement="Training finds hidden receptive fields when the kernels are known (largest error of a mask)",
            paper="masks stretch, scale and rotate (not stated as a number)",
            source="Lp-masks",
            measured=Estimate.from_samples([found.rmse.max() for found in known]),
            rule=Rule("<=", 0.02, on="every"),
            unit="RMSE",
        ),
        Claim(
            id="joint-training-recovers-angles",
            statement="Training kernels and masks together finds the direction of hidden receptive fields (mean error)",
            paper="masks stretch, scale and rotate (not stated as a number)",
            source="Lp-masks",
            measured=Estimate.from_samples([found.error.mean() for found in joint]),
            rule=Rule("<=", 12.0, on="every"),
            unit="degrees",
        ),
        Claim(
            id="masks-beat-plain-large-kernels",
            statement="Lp masks (p = 4) make large kernels pay: accuracy above plain 7x7 kernels",
            note="places and noise redrawn in each epoch; on fixed images see reproduce",
            paper="better (tables were not available)",
            source="CIFAR-100 and Tiny-ImageNet",
            measured=Estimate.from_samples(np.subtract(redrawn["Lp p=4"], redrawn["7x7"])),
            rule=Rule(">=", 0.04),
            headline=True,
        ),
        Claim(
            id="masks-beat-small-kernels",
            statement="Large kernels with Lp masks (p = 4) beat 3x3 kernels (difference of accuracy)",
            note="on 500 fixed images",
            paper="better (tables were not available)",
            source="CIFAR-100 and Tiny-ImageNet",
            measured=Estimate.from_samples(np.subtract(fixed["Lp p=4"], fixed["3x3"])),
            rule=Rule(">=", 0.15),
        ),
    ]


def run_demo(flags: Demo) -> Output:
    """Run the demonstration.

    Args:
        flags: Seed and output folder.

    Returns:
        Tables of recovered masks, of accuracies and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    with RunFolder.create(flags.out, program="icl25-lp-conv", verb="demo", config=flags, force=flags.force) as run:
        with run.timed("recovery"):
            jobs = [delayed(recover)(seed, joint=joint) for joint in (False, True) for seed in seeds]
            found = list(Parallel(n_jobs=cpu_count())(jobs))
            known, joint = found[: len(seeds)], found[len(seeds) :]
        with run.timed("digits"):
            redrawn = digits_accuracies(("3x3", "7x7", "Lp p=4"), seeds, REDRAWN, n_jobs=cpu_count())
            fixed = digits_accuracies(("3x3", "Lp p=4"), seeds, FIXED, n_jobs=cpu_count())
        claims = demo_claims(known, joint, redrawn, fixed)
        result: dict[str, Any] = {
            "seeds": list(seeds),
            "recovery": {
                name: {
                    "angular_error_degrees": [part.error.mean() for part in parts],
                    "largest_mask_rmse": [part.rmse.max() for part in parts],
                    "mean_gamma": [part.found_gamma.mean() for part in parts],
                    "mean_p": [part.found_p.mean() for part in parts],
                }
                for name, parts in (("known_kernels", known), ("joint", joint))
            },
            "accuracy": {"redrawn": redrawn, "fixed": fixed},
        }
        run.write_json("result.json", result)
        run.write_claims(claims)
        with run.timed("pictures"):
            run.save_figure(plot_recovery(known[0], joint[0]), "recovered-masks.png")
            run.save_figure(accuracy_figure(redrawn, "Digits at random places"), "accuracy.png")
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    view = [
        _recovery_table(known, joint),
        accuracy_table(redrawn, "Digits, places and noise redrawn in each epoch: test accuracy"),
        accuracy_table(fixed, "Digits, 500 fixed images: test accuracy"),
        claims_table(claims, "What it shows"),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    return Output(data, view, ok=all(claim.holds for claim in claims))


def accuracy_table(accuracy: Mapping[str, Sequence[float]], title: str) -> Table:
    """Accuracies with their intervals, for the terminal.

    Args:
        accuracy: Accuracies by kind of kernel, one for each seed.
        title: Heading.

    Returns:
        The table.
    """
    table = Table("kernels", "mean, 95 % interval", "by seed", title=title, title_justify="left")
    for name, values in accuracy.items():
        table.add_row(name, str(Estimate.from_samples(values)), " ".join(f"{value:.3f}" for value in values))
    return table


def accuracy_figure(accuracy: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Accuracies as bars with their intervals.

    Args:
        accuracy: Accuracies by kind of kernel, one for each seed.
        title: Heading.

    Returns:
        The figure.
    """
    rows = [(name, Estimate.from_samples(values)) for name, values in accuracy.items()]
    bars = [{"name": name, "value": e.mean, "low": e.low, "high": e.high} for name, e in rows]
    return plot_bars(pd.DataFrame(bars), points=accuracy, title=title)


def _recovery_table(known: Sequence[Recovery], joint: Sequence[Recovery]) -> Table:
    table = Table("trained", "angle off by", "elongation (true 4.17)", "p (true 2)", "largest RMSE of a mask")
    table.title, table.title_justify = "Hidden receptive fields, found by training", "left"
    for name, parts in (("masks alone", known), ("masks and kernels", joint)):
        error, gamma, p = (
            np.mean([getattr(part, key) for part in parts]) for key in ("error", "found_gamma", "found_p")
        )
        rmse = max(part.rmse.max() for part in parts)
        table.add_row(name, f"{error:.2f}°", f"{gamma:.3g}", f"{p:.3g}", f"{rmse:.2g}")
    return table
