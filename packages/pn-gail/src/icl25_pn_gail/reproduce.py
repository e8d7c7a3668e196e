"""The reproduction: a pendulum, 5 good and 50 bad demonstrations, all methods, several seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.table import Table

from icl25_pn_gail.experiments import ENV, PARTS, Budget, Recipe, Runs, Setting, run_setting
from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, atomic_path, claims_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pn_gail.cli import Reproduce

__all__ = ["median_estimate", "part_claims", "run_reproduce"]

FAILED = -800.0  # a mean return below it is that of a pendulum that spins
_SOURCE = "section on experiments, as reviews describe it"
_BEST = "best or equal in all six tasks (no number was available)"
ALL, FEW = (setting.title for setting in PARTS["pendulum"])

Found = dict[str, pd.DataFrame]  # results of ``compare`` by title of the setting


def median_estimate(*samples: np.ndarray) -> Estimate:
    """The median of samples, or the difference of two medians, with its 95 % percentile bootstrap interval.

    Args:
        *samples: Samples of one group, or of two of the same size.

    Returns:
        The estimate; its samples are the samples, or the differences.
    """
    first, *others = (np.asarray(part, float) for part in samples)
    values = first - others[0] if others else first
    if len(values) == 1:
        return Estimate.from_samples(values)
    rng = np.random.default_rng(0)

    def medians(part: np.ndarray) -> np.ndarray:
        return np.median(rng.choice(part, (2000, len(part))), axis=1)

    value = float(np.median(first)) - sum(float(np.median(part)) for part in others)
    low, high = np.quantile(medians(first) - sum(medians(part) for part in others), [0.025, 0.975])
    return Estimate(value, float(low), float(high), len(values), tuple(map(float, values)))


def part_claims(part: str, found: Found) -> list[Claim]:
    """What one part shows, decided by rules that were fixed before it was run.

    Args:
        part: The part.
        found: Results by title of the setting.

    Returns:
        The claims.
    """

    def returns(title: str, method: str) -> np.ndarray:
        rows = found[title]
        return rows.loc[rows["method"] == method, "mean_return"].to_numpy(float)

    def gain(title: str, method: str, other: str) -> Estimate:
        return median_estimate(returns(title, method), returns(title, other))

    def claim(name: str, statement: str, measured: Estimate, rule: Rule, paper: str = _BEST, **more: Any) -> Claim:
        return Claim(name, statement, paper, _SOURCE, measured, rule, **more)

    if part == "pendulum":
        claims = []
        for title, suffix in ((ALL, ""), (FEW, "-20")):
            claims += [
                claim(
                    f"beats-2iwil{suffix}",
                    f"{title}: median return of PN-GAIL over that of 2IWIL",
                    gain(title, "pn-gail", "2iwil"),
                    Rule(">=", 300),
                    headline=not suffix,
                ),
                claim(
                    f"near-expert{suffix}",
                    f"{title}: median return of PN-GAIL",
                    median_estimate(returns(title, "pn-gail")),
                    Rule(">=", -450),
                ),
            ]
        claims.insert(
            1,
            claim(
                "beats-gail",
                f"{ALL}: median return of PN-GAIL over that of GAIL",
                gain(ALL, "pn-gail", "gail"),
                Rule(">=", 800),
            ),
        )
        others = [name for name in PARTS["pendulum"][0].methods if name != "pn-gail"]
        best = max(others, key=lambda name: np.median(returns(ALL, name)))
        claims.append(
            claim(
                "best-of-all",
                f"{ALL}: median return of PN-GAIL over that of the best other method",
                gain(ALL, "pn-gail", best),
                Rule(">=", 0),
            )
        )
        return claims
    if part == "ratio":
        few, many = (setting.title for setting in PARTS["ratio"])
        return [
            claim(
                "few-bad",
                f"{few}: median return of PN-GAIL over that of GAIL",
                gain(few, "pn-gail", "gail"),
                Rule(">=", 0),
                "clearest where bad demonstrations dominate (no number was available)",
            ),
            claim(
                "more-bad",
                f"{many}: median return of PN-GAIL over that of GAIL",
                gain(many, "pn-gail", "gail"),
                Rule(">=", 300),
                "clearest where bad demonstrations dominate (no number was available)",
            ),
        ]
    if part == "labels":
        return [
            claim(
                f"{name}-beats-2iwil",
                f"{setting.title}: median return of PN-GAIL over that of 2IWIL",
                gain(setting.title, "pn-gail", "2iwil"),
                Rule(">=", 0),
                "robust to fewer labels and to noise (no number was available)",
            )
            for name, setting in zip(("few-labels", "noisy"), PARTS["labels"], strict=True)
        ]
    return [
        claim(
            "objective",
            f"{FEW}, both with BSC: median return with the PN objective over that with importance weights",
            gain(FEW, "pn-gail+bsc", "2iwil+bsc"),
            Rule(">", 0),
            "a grid asked for in the reviews (no number was available)",
        ),
        claim(
            "classifier",
            f"{FEW}, both with the PN objective: median return with BSC over that with SC",
            gain(FEW, "pn-gail+bsc", "pn-gail+sc"),
            Rule(">=", 0),
            "BSC helps in three of six tasks (no number was available)",
        ),
    ]


def run_reproduce(flags: Reproduce, budget: Budget | None = None) -> Output:
    """Run the experiments.

    Args:
        flags: The part, or all; seeds, scale and output folder.
        budget: How much is spent on each run.

    Returns:
        Tables of returns and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    if flags.scale == "paper":
        from icl25_pn_gail.reproduce_paper import run_paper

        return run_paper(flags)
    budget = budget or Budget()
    seeds = list(range(flags.seed, flags.seed + flags.n_seeds))
    parts = list(PARTS) if flags.part == "all" else [flags.part]
    claims: list[Claim] = []
    view: list[Any] = []
    results: list[pd.DataFrame] = []
    known: dict[Recipe, Runs] = {}
    with RunFolder.create(flags.out, program="icl25-pn-gail", verb="reproduce", config=flags, force=flags.force) as run:
        for part in parts:
            found: Found = {}
            for setting in PARTS[part]:
                with run.timed(f"{part}: {setting.title}"):
                    runs = run_setting(setting, seeds, budget, known)
                found[setting.title] = runs.results
                view.append(return_table(setting, runs.results))
                results.append(runs.results.assign(part=part, setting=setting.title))
                run.save_figure(return_figure(runs, setting), f"{_slug(part, setting)}.png")
            claims += part_claims(part, found)
        table = pd.concat(results, ignore_index=True)
        with atomic_path(run.path("returns.csv"), force=flags.force) as path:
            table.to_csv(path, index=False)
        result = {"seeds": seeds, "runs": table.to_dict("records")}
        run.write_json("result.json", result)
        run.write_claims(claims)
    view += [
        claims_table(claims, "icl25-pn-gail reproduce"),
        f"Pictures, returns.csv, result.json and claims.json are in {run.folder}",
    ]
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    return Output(data, view, ok=all(claim.holds for claim in claims))


def return_table(setting: Setting, results: pd.DataFrame) -> Table:
    """Returns of all methods of a setting, for the terminal.

    Args:
        setting: The setting.
        results: What ``compare`` returned.

    Returns:
        The table.
    """
    from icl25_pn_gail.comparison import summarize

    table = Table("method", "median return", "mean", "worst", "best", "failed")
    table.title, table.title_justify = f"{ENV}, {setting.heading}", "left"
    for name, row in summarize(results, FAILED).iterrows():
        table.add_row(
            str(name),
            f"{row['median']:.0f} [{row['median_low']:.0f}, {row['median_high']:.0f}]",
            f"{row['mean']:.0f}",
            f"{row['worst']:.0f}",
            f"{row['best']:.0f}",
            f"{row['failed'] * row['runs']:.0f} of {row['runs']:.0f}",
        )
    table.caption = f"one run a seed; failed: mean return below {FAILED:.0f}"
    return table


def return_figure(runs: Runs, setting: Setting) -> Figure:
    """Returns over the training and at its end.

    Args:
        runs: All runs of the setting.
        setting: The setting.

    Returns:
        The figure.
    """
    from icl25_pn_gail.plotting import INK, line_looks, make_figure, title_axes

    figure, (curves, ends) = make_figure(9.6, 3.6, ncols=2)
    looks = line_looks(setting.methods)
    for i, name in enumerate(setting.methods):
        shown = [h.loc[h["method"] == name, ["iteration", "eval_return"]].dropna() for h in runs.histories]
        shown = [part.set_index("iteration")["eval_return"] for part in shown if len(part)]
        color = looks[name].color
        if shown:
            together = pd.concat(shown, axis=1)
            curves.plot(together.index, together.median(axis=1), lw=1.8, **looks[name]._asdict())
            curves.fill_between(
                together.index, together.min(axis=1), together.max(axis=1), color=color, alpha=0.1, lw=0
            )
            ends.plot(
                [-0.13, -0.02],
                [i, i],
                lw=1.8,
                transform=ends.get_yaxis_transform(),
                clip_on=False,
                **looks[name]._asdict(),
            )
        values = runs.results.loc[runs.results["method"] == name, "mean_return"].to_numpy(float)
        ends.plot(values, np.full(len(values), i), "o", color=color, alpha=0.7, ms=6, mew=0)
        ends.plot(np.median(values), i, "|", color=INK, ms=16, mew=2)
    curves.set(xlabel="iteration", ylabel="return")
    title_axes(curves, "Median over seeds; shade: worst to best")
    ends.set_yticks(range(len(setting.methods)), setting.methods)
    ends.tick_params(axis="y", length=0, pad=36)
    ends.locator_params(axis="x", nbins=5)
    ends.set(xlabel="mean return of 50 episodes", ylim=(len(setting.methods) - 0.5, -0.5))
    title_axes(ends, "Each seed, and their median")
    figure.suptitle(setting.heading, x=0.01, ha="left")
    return figure


def _slug(part: str, setting: Setting) -> str:
    place = [one.title for one in PARTS[part]].index(setting.title) + 1
    return part if len(PARTS[part]) == 1 else f"{part}-{place}"
