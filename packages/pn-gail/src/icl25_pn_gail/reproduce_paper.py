"""The full configuration: five MuJoCo tasks, experts from soft actor-critic, thousands of iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.table import Table

from icl25_shared import Output, RunFolder, atomic_path

if TYPE_CHECKING:
    from icl25_pn_gail.cli import Reproduce

__all__ = ["ENVS", "FullScale", "run_paper"]

ENVS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Swimmer-v5", "Ant-v5")
FEWER_ROWS = {"Ant-v5": 600}  # as in the authors' code
METHODS = ("pn-gail", "2iwil", "ic-gail", "wgail", "gail", "bc")


@dataclass(frozen=True)
class FullScale:
    """How much is spent on each task.

    Attributes:
        expert_steps: Steps of training of soft actor-critic.
        episodes: Episodes of the policies at about 100 %, 67 % and 33 % of the way to the final return.
        rows: Rows that are kept; 600 at most of Ant-v5.
        labelled: Share of them that keep their confidence.
        iterations: Iterations of each run.
        algorithm: What makes the experts.
        evaluated: Episodes of the last evaluation.
        config: Settings that differ from ``TrainConfig()``.
    """

    expert_steps: int = 1_000_000
    episodes: tuple[int, int, int] = (5, 25, 25)
    rows: int = 2000
    labelled: float = 0.2
    iterations: int = 3000
    algorithm: str = "sac"
    evaluated: int = 20
    config: Mapping[str, Any] | None = None


def run_paper(flags: Reproduce, envs: tuple[str, ...] = ENVS, scale: FullScale | None = None) -> Output:
    """Make experts and worse policies, record both, and train all methods.

    Args:
        flags: Seeds and output folder.
        envs: Tasks.
        scale: How much is spent on each.

    Returns:
        Returns of each task. There are no claims: the paper's tables were not available.

    Raises:
        ImportError: If stable-baselines3 or MuJoCo is not installed.
    """
    from icl25_pn_gail.comparison import compare, summarize
    from icl25_pn_gail.config import TrainConfig
    from icl25_pn_gail.sb3_recording import train_and_record

    scale = scale or FullScale()
    config = TrainConfig(**dict(scale.config or {}))
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    found: list[pd.DataFrame] = []
    view: list[Any] = []
    with RunFolder.create(flags.out, program="icl25-pn-gail", verb="reproduce", config=flags, force=flags.force) as run:
        for env in envs:
            with run.timed(f"{env}: experts"):
                demos = train_and_record(
                    env, scale.algorithm, scale.expert_steps, len(scale.episodes), scale.episodes, flags.seed
                )
            demos.to_npz(run.path(f"{env}.npz"), force=flags.force)
            demonstrated = float(np.mean(demos.summary()["return"]))
            rows = min(scale.rows, FEWER_ROWS.get(env, scale.rows), demos.n_rows)
            kept = demos.subsample(rows, flags.seed).mask_labels(scale.labelled, flags.seed)
            with run.timed(env):
                results = compare(
                    env, kept, METHODS, seeds,
                    total_iterations=scale.iterations, config=config, n_episodes=scale.evaluated,
                )  # fmt: skip
            found.append(results.assign(env=env, demonstrations=demonstrated))
            table = Table("method", "median return", "mean return", title=f"{env}: demonstrations {demonstrated:.0f}")
            table.title_justify = "left"
            for name, row in summarize(results).iterrows():
                low, high = row["median_low"], row["median_high"]
                table.add_row(str(name), f"{row['median']:.0f} [{low:.0f}, {high:.0f}]", f"{row['mean']:.0f}")
            view.append(table)
        runs = pd.concat(found, ignore_index=True)
        with atomic_path(run.path("returns.csv"), force=flags.force) as path:
            runs.to_csv(path, index=False)
        run.write_json("result.json", {"seeds": list(seeds), "runs": runs.to_dict("records")})
    return Output({"seeds": list(seeds), "runs": runs.to_dict("records")}, view)
