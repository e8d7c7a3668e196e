"""The demonstration: hidden sources of a reaction-diffusion equation, found without a label, against 50 labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich.table import Table

from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, claims_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pi_dion.cli import Demo
    from icl25_pi_dion.results import InversionResult
    from icl25_pi_dion.spectra import Spectrum

__all__ = ["demo_claims", "run_demo"]

N_TRAIN, N_TEST, N_LABELS, STEPS = 1000, 200, 50, 1500
ALONE, REFINED, FEW, CLASSICAL = "PI-DION", "PI-DION, refined", "DeepONet", "Tikhonov (knows the equation's solution)"


class Outcome(NamedTuple):
    """What one seed gives.

    Attributes:
        errors: Relative L2 errors of the test sources, by method.
        seconds: Seconds of training, by method.
        milliseconds: Milliseconds of one inversion of many at once, by method.
        truth: The test sources.
        found: Their inversions.
        refined: The refined ones.
        by_labels: What the DeepONet says of them.
        spectrum: What the measurement tells of a source.
        coverage: Share of test sources whose error is at most its estimate.
    """

    errors: dict[str, Float[np.ndarray, " n"]]
    seconds: dict[str, float]
    milliseconds: dict[str, float]
    truth: Float[np.ndarray, "n n_s"]
    found: InversionResult
    refined: InversionResult
    by_labels: Float[np.ndarray, "n n_s"]
    spectrum: Spectrum
    coverage: float


def demo_claims(errors: Sequence[dict[str, Float[np.ndarray, " n"]]], coverage: Sequence[float]) -> list[Claim]:
    """What the demonstration shows, decided by rules that were fixed before it was run.

    Args:
        errors: Relative errors of the test sources by method, one for each seed.
        coverage: Share of them that the error estimates cover, one for each seed.

    Returns:
        The claims.
    """
    mean = {name: np.array([part[name].mean() for part in errors]) for name in errors[0]}
    return [
        Claim(
            id="no-labels-error",
            statement="Hidden sources are found from measurements and the equation alone (relative error on new ones)",
            paper="close to supervised networks (no number was available)",
            source="Table 1, as reviews describe it",
            measured=Estimate.from_samples(mean[ALONE]),
            rule=Rule("<=", 0.05),
            headline=True,
        ),
        Claim(
            id="no-labels-beat-few-labels",
            statement="No labels do better than a DeepONet with 50 labels (ratio of errors)",
            paper="labels are not needed",
            source="abstract",
            measured=Estimate.from_samples(mean[ALONE] / mean[FEW]),
            rule=Rule("<", 1.0),
        ),
        Claim(
            id="refinement-helps",
            statement="Solving for the coefficients of one measurement lowers the error (ratio of errors)",
            paper="not in the paper",
            source="follows from its stability estimates",
            measured=Estimate.from_samples(mean[REFINED] / mean[ALONE]),
            rule=Rule("<=", 0.8),
        ),
        Claim(
            id="estimates-cover",
            statement="The error estimate of a measurement is an upper bound for nine of ten (share)",
            paper="not in the paper",
            source="follows from its stability estimates",
            measured=Estimate.from_samples(coverage),
            rule=Rule(">=", 0.8),
        ),
    ]


def run_demo(flags: Demo) -> Output:
    """Run the demonstration.

    Args:
        flags: Seeds and output folder.

    Returns:
        Tables of errors and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    with RunFolder.create(flags.out, program="icl25-pi-dion", verb="demo", config=flags, force=flags.force) as run:
        with run.timed("training and inversion"):
            outcomes = [_one_seed(seed) for seed in seeds]
        claims = demo_claims([part.errors for part in outcomes], [part.coverage for part in outcomes])
        result: dict[str, Any] = {
            "seeds": list(seeds),
            "errors": {name: [part.errors[name].mean() for part in outcomes] for name in outcomes[0].errors},
            "coverage": [part.coverage for part in outcomes],
            "identifiable_directions": [part.spectrum.n_identifiable() for part in outcomes],
        }
        run.save_figure(demo_figure(outcomes[0]), "demo.png")
        run.write_json("result.json", result)
        run.write_claims(claims)
    view = [
        _table(outcomes),
        claims_table(claims, "icl25-pi-dion demo"),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    return Output(data, view, ok=all(claim.holds for claim in claims))


def _one_seed(seed: int) -> Outcome:
    from icl25_pi_dion import InverseOperator, data, identifiability, problems
    from icl25_pi_dion.baselines import DeepONet, Tikhonov
    from icl25_pi_dion.calibration import relative_errors

    problem = problems.ReactionDiffusionSource()
    unknowns = data.sample_prior(problem, N_TRAIN + N_TEST, seed=seed)
    measured = data.simulate(problem, unknowns)
    truth, test = unknowns[N_TRAIN:], measured[N_TRAIN:]
    seconds: dict[str, float] = {}
    milliseconds: dict[str, float] = {}

    def timed(name: str, record: dict[str, float], scale: float, function: Any) -> Any:
        started = time.perf_counter()
        value = function()
        record[name] = scale * (time.perf_counter() - started)
        return value

    operator = InverseOperator(problem, steps=STEPS, seed=seed)
    timed(ALONE, seconds, 1, lambda: operator.fit(measured[:N_TRAIN]))
    deeponet = DeepONet(problem, steps=STEPS, seed=seed)
    timed(FEW, seconds, 1, lambda: deeponet.fit(measured[:N_LABELS], unknowns[:N_LABELS]))
    inversions = {
        ALONE: lambda: operator.predict(test),
        REFINED: lambda: operator.predict(test, refine=1),
        FEW: lambda: deeponet.predict(test),
        CLASSICAL: lambda: Tikhonov(problem).predict(test),
    }
    found = {}
    for name, function in inversions.items():
        if name != CLASSICAL:
            function()  # compiles
        found[name] = timed(name, milliseconds, 1e3 / N_TEST, function)
    sources = {name: part.s if name in (ALONE, REFINED) else part for name, part in found.items()}
    errors = {name: relative_errors(part, truth) for name, part in sources.items()}
    coverage = float(np.mean(errors[ALONE] <= found[ALONE].error_estimate))
    spectrum = identifiability(problem)
    return Outcome(errors, seconds, milliseconds, truth, found[ALONE], found[REFINED], sources[FEW], spectrum, coverage)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("method", "labels", "unlabelled", "mean error", "median", "90 %", "training", "one inversion")
    table.title, table.title_justify = "Sources found from 51 readings at one time", "left"
    used = {ALONE: (0, N_TRAIN), REFINED: (0, N_TRAIN), FEW: (N_LABELS, 0), CLASSICAL: (0, 0)}
    for name, (labels, unlabelled) in used.items():
        errors = np.concatenate([part.errors[name] for part in outcomes])
        seconds = [part.seconds[name] for part in outcomes if name in part.seconds]
        table.add_row(
            name,
            str(labels),
            str(unlabelled),
            *(f"{value:.2%}" for value in (errors.mean(), np.median(errors), np.quantile(errors, 0.9))),
            f"{np.mean(seconds):.0f} s" if seconds else "",
            f"{np.mean([part.milliseconds[name] for part in outcomes]):.2g} ms",
        )
    return table


def demo_figure(outcome: Outcome) -> Figure:
    """Three test sources as they are and as they were found, errors by method, and the spectrum.

    Args:
        outcome: What one seed gave.

    Returns:
        The figure.
    """
    from icl25_pi_dion.plotting import COLOURS, INK, make_figure, title_axes

    figure, grid = make_figure(9.6, 5.6, nrows=2, ncols=3)
    x = outcome.found.points_s[:, 0]
    order = np.argsort(outcome.errors[ALONE])
    shown = {"10 %": order[len(order) // 10], "median": order[len(order) // 2], "90 %": order[9 * len(order) // 10]}
    for axes, (name, i) in zip(grid[0], shown.items(), strict=True):
        axes.plot(x, outcome.truth[i], color=INK, lw=3.5, alpha=0.35, label="true source")
        for label, part, colour in zip(
            ("PI-DION, no labels", "refined", "DeepONet, 50 labels"),
            (outcome.found.s[i], outcome.refined.s[i], outcome.by_labels[i]),
            COLOURS,
            strict=False,
        ):
            axes.plot(x, part, color=colour, lw=1.5, ls="--" if label == "refined" else "-", label=label)
        title_axes(axes, f"error {outcome.errors[ALONE][i]:.1%} ({name})")
        axes.set(xlabel="x", ylabel="s(x)" if axes is grid[0, 0] else "")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    names = {ALONE: "PI-DION,\nno labels", REFINED: "refined", FEW: "DeepONet,\n50 labels"}
    boxes = grid[1, 0].boxplot([100 * outcome.errors[name] for name in names], showfliers=False, patch_artist=True)
    for patch, colour in zip(boxes["boxes"], COLOURS, strict=False):
        patch.set(facecolor=colour, alpha=0.5)
    grid[1, 0].set_xticks([1, 2, 3], names.values())
    grid[1, 0].set(ylabel="relative error (%)", yscale="log")
    title_axes(grid[1, 0], "200 new measurements")
    estimate = outcome.found.error_estimate
    grid[1, 1].scatter(100 * estimate, 100 * outcome.errors[ALONE], s=8, color=COLOURS[0], alpha=0.6, lw=0)
    ends = [
        50 * min(estimate.min(), outcome.errors[ALONE].min()),
        200 * max(estimate.max(), outcome.errors[ALONE].max()),
    ]
    grid[1, 1].plot(ends, ends, color=INK, lw=1)
    grid[1, 1].set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="estimate (%)", ylabel="error (%)")
    title_axes(grid[1, 1], f"{outcome.coverage:.0%} of errors below the estimate")
    values = outcome.spectrum.singular_values
    grid[1, 2].semilogy(np.arange(1, len(values) + 1), values, "o-", color=COLOURS[0], ms=4)
    grid[1, 2].set(xlabel="direction of the source", ylabel="singular value")
    title_axes(grid[1, 2], f"{outcome.spectrum.n_identifiable()} of {len(values)} seen at 1 % noise")
    return figure
