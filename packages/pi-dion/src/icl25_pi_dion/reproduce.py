"""The reproduction: three inverse problems, with labels and without, noiseless and noisy, over several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table

from icl25_pi_dion.error_plots import plot_error_curve
from icl25_pi_dion.experiments import METHODS, PROBLEMS, Errors, as_record, run_all
from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, claims_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pi_dion.cli import Reproduce

__all__ = ["problem_claims", "run_reproduce"]

NAMES = {"rd": "reaction-diffusion", "helmholtz": "Helmholtz", "darcy": "Darcy"}
ALONE, SEMI, FEW, MANY, NOISE_1, NOISE_5 = METHODS
_NEAR, _SOURCE = "near the supervised models (no number was available)", "Table 1, as reviews describe it"
_SMALL = "smaller nets and data than the paper's; coefficients and priors are ours"

Results = Mapping[str, Sequence[Errors]]


def problem_claims(name: str, found: Results) -> list[Claim]:
    """What one problem shows, decided by rules that were fixed before it was run.

    Args:
        name: The problem.
        found: Errors by method, one for each seed.

    Returns:
        The claims.
    """
    title = NAMES[name]
    alone = found[ALONE]
    better = [min(a.s, b.s) for a, b in zip(alone, found[FEW], strict=True)]

    def claim(suffix: str, statement: str, samples: Sequence[float], threshold: float, unit: str = "") -> Claim:
        return Claim(
            id=f"{name}-{suffix}",
            statement=f"{title}: {statement}",
            paper=_NEAR,
            source=_SOURCE,
            measured=Estimate.from_samples(samples),
            rule=Rule("<=", threshold),
            unit=unit,
            note=_SMALL if suffix == "mean-predictor" else "",
        )

    claims = [
        claim(
            "mean-predictor", "error without labels over that of the mean", [e.s / e.mean_predictor for e in alone], 0.4
        ),
        claim(
            "semi-supervised",
            "error with 50 labels and the equation over the better of no labels and 50 labels alone",
            [e.s / b for e, b in zip(found[SEMI], better, strict=True)],
            1.0,
        ),
    ]
    if name == "rd":
        few = [e.s for e in found[FEW]]
        claims += [
            claim(
                "without-labels",
                "error without labels over that of a DeepONet with 50",
                [e.s / f for e, f in zip(alone, few, strict=True)],
                1.0,
            ),
            claim(
                "refined",
                "the same after refinement",
                [(e.refined or np.nan) / f for e, f in zip(alone, few, strict=True)],
                0.6,
            ),
            claim("interior", "error without labels on the central 80 %", [e.interior for e in alone], 0.03),
        ]
    elif name == "helmholtz":
        claims += [
            claim("error", "error without labels", [e.s for e in alone], 0.16),
            claim("interior", "error without labels on the central 80 %", [e.interior for e in alone], 0.09),
        ]
    else:
        claims.append(claim("error", "error without labels", [e.s for e in alone], 0.13))
    return claims


def run_reproduce(flags: Reproduce) -> Output:
    """Run the experiments.

    Args:
        flags: The problem, or all; seeds, scale and output folder.

    Returns:
        Tables of errors and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    if flags.part == "ablations":
        from icl25_pi_dion.reproduce_ablations import run_ablations

        return run_ablations(flags)
    if flags.scale == "paper":
        from icl25_pi_dion.reproduce_paper import run_paper

        return run_paper(flags)
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    names = list(PROBLEMS) if flags.part == "all" else [flags.part]
    result: dict = {"seeds": list(seeds)}
    claims: list[Claim] = []
    view: list = []
    with RunFolder.create(flags.out, program="icl25-pi-dion", verb="reproduce", config=flags, force=flags.force) as run:
        for name in names:
            with run.timed(name):
                errors = run_all([(name, method) for method in METHODS.values()], seeds, PROBLEMS)
            found = {title: errors[name, method] for title, method in METHODS.items()}
            result[name] = {title: as_record(part) for title, part in found.items()}
            claims += problem_claims(name, found)
            view.append(error_table(NAMES[name], found))
            run.save_figure(label_figure(name, found), f"{name}-labels.png")
            run.save_figure(noise_figure(name, found), f"{name}-noise.png")
        run.write_json("result.json", result)
        run.write_claims(claims)
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    view += [
        claims_table(claims, "icl25-pi-dion reproduce"),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    return Output(data, view, ok=all(claim.holds for claim in claims))


def error_table(title: str, found: Results) -> Table:
    """Errors of all methods, for the terminal.

    Args:
        title: The problem.
        found: Errors by method.

    Returns:
        The table.
    """
    table = Table("method", "error of s", "central 80 %", "refined", "refined, 80 %", "error of u", "estimate covers")
    table.title, table.title_justify = f"{title}: relative L2 error, mean over seeds", "left"
    for method, errors in found.items():
        record = as_record(errors)
        cells = [record[name] for name in ("s", "interior", "refined", "refined_interior", "u", "coverage")]
        table.add_row(method, *("" if cell is None else f"{100 * np.mean(cell):.2f} %" for cell in cells))
    nothing = np.mean([errors.mean_predictor for errors in found[ALONE]])
    table.add_row("mean of the training unknowns", f"{100 * nothing:.1f} %")
    return table


def label_figure(name: str, found: Results) -> Figure:
    """Errors against the number of labels.

    Args:
        name: The problem.
        found: Errors by method.

    Returns:
        The figure.
    """
    curves = {
        "PI-DION, no labels": [_row(0, [e.s for e in found[ALONE]])],
        "refined": [_row(0, [e.refined or np.nan for e in found[ALONE]])],
        "DeepONet": [_row(n, [e.s for e in found[title]]) for n, title in ((50, FEW), (500, MANY))],
    }
    return plot_error_curve(curves, "labels", log_x=True, title=NAMES[name])


def noise_figure(name: str, found: Results) -> Figure:
    """Errors against the noise.

    Args:
        name: The problem.
        found: Errors by method.

    Returns:
        The figure.
    """
    levels = ((0, ALONE), (1, NOISE_1), (5, NOISE_5))
    curves = {
        "PI-DION, no labels": [_row(noise, [e.s for e in found[title]]) for noise, title in levels],
        "refined": [_row(noise, [e.refined or np.nan for e in found[title]]) for noise, title in levels],
    }
    return plot_error_curve(curves, "noise of the measurements (%)", title=NAMES[name])


def _row(x: float, samples: Sequence[float]) -> tuple[float, float, float, float]:
    found = Estimate.from_samples(samples)
    if found.n == 1:
        return x, found.mean, found.mean, found.mean
    return x, found.mean, max(found.low, 0.2 * found.mean), found.high
