"""The verb that holds methods against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from icl25_pn_gail.cli_flags import check_methods
from icl25_pn_gail.comparison import FinishedRun, compare, summarize
from icl25_pn_gail.envs import env_name, make_env
from icl25_pn_gail.evaluation import interval_text
from icl25_pn_gail.input_verbs import check_before_training, given_env, naming_flags, read_demos
from icl25_pn_gail.output_verbs import computing_on, make_table, open_results
from icl25_pn_gail.plotting import plot_learning_curves
from icl25_shared import Output, atomic_path

if TYPE_CHECKING:
    from icl25_pn_gail import cli
    from icl25_pn_gail.demonstrations import Demonstrations

FILES = ("results.csv", "histories.csv", "comparison.png", "result.json")


def run_compare(flags: cli.Compare) -> Output:
    """Train methods from several seeds."""
    methods = list(dict.fromkeys(check_methods(flags.methods)))
    demos = read_demos(flags)
    oracle = None if flags.oracle is None else read_demos(flags, flags.oracle)
    if oracle is not None:
        _check_oracle(flags, demos, oracle)
    histories: list[pd.DataFrame] = []

    def keep(run: FinishedRun) -> None:
        table = run.history.copy()
        table.insert(0, "method", run.method)
        table.insert(1, "seed", run.seed)
        histories.append(table)

    with computing_on(flags.device), naming_flags():
        given = given_env(flags)
        check_before_training(flags.demos, demos, given, methods)
        env = make_env(given, flags.backend)
        with open_results(flags, "compare", *FILES) as run:
            results = compare(
                env,
                demos,
                methods,
                range(flags.seed, flags.seed + flags.n_seeds),
                total_iterations=flags.iterations,
                learner=flags.learner,
                config=flags.train_config(),
                n_episodes=flags.episodes,
                oracle=oracle,
                on_run=keep,
            )
            together = pd.concat(histories, ignore_index=True)
            summary = summarize(results, flags.failed_below)
            for name, table in (("results.csv", results), ("histories.csv", together)):
                with atomic_path(run.path(name), force=flags.force) as path:
                    table.to_csv(path, index=False)
            run.save_figure(plot_learning_curves(together, _levels(demos)), "comparison.png")
            found = {
                "env": env_name(env),
                "rows": len(demos),
                "labelled": demos.n_labelled,
                "iterations": flags.iterations,
                "summary": summary.reset_index().to_dict("records"),
                "runs": results.to_dict("records"),
            }
            run.write_json("result.json", found)
    title = f"{env_name(env)}: {flags.n_seeds} seeds, {flags.iterations:,} iterations on {len(demos):,} rows"
    view = [_table(title, summary), f"results, histories and picture in {run.folder}"]
    return Output({"out": str(run.folder), **found}, view)


def _check_oracle(flags: cli.Compare, demos: Demonstrations, oracle: Demonstrations) -> None:
    if oracle.obs.shape != demos.obs.shape or oracle.acts.shape != demos.acts.shape:
        raise ValueError(
            f"--oracle {flags.oracle} holds {oracle!r}, expected the same rows as {flags.demos}, {demos!r}"
        )
    if oracle.n_labelled < len(oracle):
        raise ValueError(f"--oracle {flags.oracle}: {len(oracle) - oracle.n_labelled} rows have no confidence")


def _levels(demos: Demonstrations) -> dict[str, float] | None:
    """Mean returns of the behaviours that were recorded, where they are known."""
    returns = demos.meta.get("level_returns")
    return returns if isinstance(returns, dict) and demos.consecutive else None


def _table(title: str, summary: pd.DataFrame) -> Any:
    columns = ["method", "runs", "median", "95 % interval", "mean", "middle half", "worst", "best"]
    failed = "failed" in summary
    rows = [
        (
            str(method),
            f"{row['runs']:.0f}",
            f"{row['median']:.1f}",
            interval_text(row["median_low"], row["median_high"]),
            *(f"{row[name]:.1f}" for name in ("mean", "iqm", "worst", "best")),
            *([f"{100 * row['failed']:.0f} %"] if failed else []),
        )
        for method, row in summary.iterrows()
    ]
    return make_table(title, [*columns, *(["failed"] if failed else [])], rows)
