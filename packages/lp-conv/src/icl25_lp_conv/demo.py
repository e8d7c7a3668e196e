"""The demonstration: masks find the direction of hidden receptive fields, and make large kernels pay on real digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

    from icl25_lp_conv.cli import Demo, Reproduce

__all__ = ["accuracy_figure", "accuracy_table", "kernel_claims", "mask_claims", "run_demo", "run_parts"]

REDRAWN, FIXED = DigitsSizes(), DigitsSizes(redrawn=False)
_NO_NUMBER = "masks stretch, scale and rotate (not stated as a number)"
_NO_TABLES, _LARGE = "better (tables were not available)", "CIFAR-100 and Tiny-ImageNet"


Part = Callable[[RunFolder, range], tuple[Any, list[Claim], list[Any]]]
"""A part of a story: from its folder and seeds to results, claims, and tables for the terminal."""


def mask_claims(known: Sequence[Recovery], joint: Sequence[Recovery]) -> list[Claim]:
    """What recovered masks show, decided by rules fixed before they were run.

    Args:
        known: Recovered masks with known kernels, one result for each seed.
        joint: Recovered together with the kernels.

    Returns:
        The claims.
    """
    return [
        Claim(
            id="known-kernels-recover-masks",
            statement="Training finds hidden receptive fields when the kernels are known (largest error of a mask)",
            paper=_NO_NUMBER,
            source="Lp-masks",
            measured=Estimate.from_samples([found.rmse.max() for found in known]),
            rule=Rule("<=", 0.02, on="every"),
            unit="RMSE",
        ),
        Claim(
            id="joint-training-recovers-angles",
            statement="Training kernels and masks together finds the direction of hidden receptive fields (mean error)",
            paper=_NO_NUMBER,
            source="Lp-masks",
            measured=Estimate.from_samples([found.error.mean() for found in joint]),
            rule=Rule("<=", 12.0, on="every"),
            unit="degrees",
        ),
    ]


def kernel_claims(redrawn: Mapping[str, Sequence[float]], fixed: Mapping[str, Sequence[float]]) -> list[Claim]:
    """What the digits show, decided by rules fixed before they were run.

    Args:
        redrawn: Test accuracies by kind of kernel, one for each seed, with places and noise redrawn in every epoch.
        fixed: Likewise with 500 images that stay as they are.

    Returns:
        The claims.
    """
    return [
        Claim(
            id="masks-beat-plain-large-kernels",
            statement="Lp masks (p = 4) make large kernels pay: accuracy above plain 7x7 kernels",
            note="places and noise redrawn in each epoch; on fixed images see reproduce",
            paper=_NO_TABLES,
            source=_LARGE,
            measured=Estimate.from_samples(np.subtract(redrawn["Lp p=4"], redrawn["7x7"])),
            rule=Rule(">=", 0.04),
            headline=True,
        ),
        Claim(
            id="masks-beat-small-kernels",
            statement="Large kernels with Lp masks (p = 4) beat 3x3 kernels (difference of accuracy)",
            note="on 500 fixed images",
            paper=_NO_TABLES,
            source=_LARGE,
            measured=Estimate.from_samples(np.subtract(fixed["Lp p=4"], fixed["3x3"])),
            rule=Rule(">=", 0.15),
        ),
    ]


def run_demo(flags: Demo) -> Output:
    """Run the demonstration.

    Args:
        flags: Parts, seeds and output folder.

    Returns:
        Tables of recovered masks, of accuracies and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    return run_parts(flags, "demo", {"masks": _recover_masks, "digits": _compare_kernels})


def run_parts(flags: Demo | Reproduce, verb: str, parts: Mapping[str, Part]) -> Output:
    """Run the parts of a story that were asked for, and write its results and claims.

    Args:
        flags: The part, or all; number of seeds; output folder.
        verb: The verb that runs.
        parts: The parts by name.

    Returns:
        The tables of the parts and of all claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    result: dict[str, Any] = {"seeds": list(seeds)}
    claims: list[Claim] = []
    view: list[Any] = []
    with RunFolder.create(flags.out, program="icl25-lp-conv", verb=verb, config=flags, force=flags.force) as run:
        for name, part in parts.items():
            if flags.part in ("all", name):
                with run.timed(name):
                    result[name], found, tables = part(run, seeds)
                claims += found
                view += tables
        run.write_json("result.json", result)
        run.write_claims(claims)
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    view += [
        claims_table(claims, f"icl25-lp-conv {verb}"),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    return Output(data, view, ok=all(claim.holds for claim in claims))


def _recover_masks(run: RunFolder, seeds: range) -> tuple[Any, list[Claim], list[Any]]:
    jobs = [delayed(recover)(seed, joint=joint) for joint in (False, True) for seed in seeds]
    found = list(Parallel(n_jobs=cpu_count())(jobs))
    known, joint = found[: len(seeds)], found[len(seeds) :]
    run.save_figure(plot_recovery(known[0], joint[0]), "recovered-masks.png")
    result = {
        name: {
            "angular_error_degrees": [part.error.mean() for part in parts],
            "largest_mask_rmse": [part.rmse.max() for part in parts],
            "mean_gamma": [part.found_gamma.mean() for part in parts],
            "mean_p": [part.found_p.mean() for part in parts],
        }
        for name, parts in (("known_kernels", known), ("joint", joint))
    }
    return result, mask_claims(known, joint), [_recovery_table(known, joint)]


def _compare_kernels(run: RunFolder, seeds: range) -> tuple[Any, list[Claim], list[Any]]:
    redrawn = digits_accuracies(("3x3", "7x7", "Lp p=4"), seeds, REDRAWN, n_jobs=cpu_count())
    fixed = digits_accuracies(("3x3", "Lp p=4"), seeds, FIXED, n_jobs=cpu_count())
    run.save_figure(accuracy_figure(redrawn, "Digits at random places"), "accuracy.png")
    tables = [
        accuracy_table(redrawn, "Digits, places and noise redrawn in each epoch: test accuracy"),
        accuracy_table(fixed, "Digits, 500 fixed images: test accuracy"),
    ]
    return {"redrawn": redrawn, "fixed": fixed}, kernel_claims(redrawn, fixed), tables


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
