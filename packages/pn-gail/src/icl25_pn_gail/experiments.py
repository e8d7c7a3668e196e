"""The experiments on the pendulum: which demonstrations, which labels, which methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from icl25_pn_gail.comparison import FinishedRun
    from icl25_pn_gail.config import TrainConfig
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["ENV", "PARTS", "Budget", "Setting", "pendulum_config", "run_setting"]

ENV = "Pendulum-v1"
GRID = tuple(f"{method}+{classifier}" for method in ("pn-gail", "2iwil") for classifier in ("bsc", "sc", "supervised"))


@dataclass(frozen=True)
class Setting:
    """Demonstrations and what is trained on them.

    Attributes:
        title: What differs, for tables.
        methods: Names of methods.
        good: Episodes of the expert, of confidence 1.
        bad: Episodes of spinning, of confidence 0.1.
        labelled: Share of rows that keep their confidence.
        noise: Standard deviation of the noise added to confidences, which are clipped to [0, 1].
    """

    title: str
    methods: tuple[str, ...]
    good: int = 5
    bad: int = 50
    labelled: float = 1.0
    noise: float = 0.0

    def demonstrations(self, seed: int = 0) -> tuple[Demonstrations, Demonstrations]:
        """Make the demonstrations.

        Args:
            seed: Seed of the episodes, of the choice of labels and of the noise.

        Returns:
            The demonstrations, and the same with all confidences.
        """
        from icl25_pn_gail.confidence import add_noise
        from icl25_pn_gail.recording import make_demonstrations

        full = make_demonstrations(ENV, f"expert:{self.good}:1.0,spin:{self.bad}:0.1", seed=seed)
        demos = full
        if self.noise > 0:
            demos = demos.with_confidence(add_noise(demos.confidence, self.noise, seed))
        if self.labelled < 1:
            demos = demos.mask_labels(self.labelled, seed)
        return demos, full


@dataclass(frozen=True)
class Budget:
    """How much is spent on each run.

    Attributes:
        iterations: Iterations of training.
        episodes: Episodes of the last evaluation.
        steps: Steps of the environment in an iteration.
        hidden: Width of the two hidden layers.
    """

    iterations: int = 500
    episodes: int = 50
    steps: int = 3200
    hidden: int = 64


PARTS: dict[str, tuple[Setting, ...]] = {
    "pendulum": (
        Setting("all rows rated", ("pn-gail", "2iwil", "ic-gail", "wgail", "gail", "bc")),
        Setting("20 % of rows rated", ("pn-gail", "2iwil", "ic-gail"), labelled=0.2),
    ),
    "ratio": (
        Setting("5 good, 5 bad", ("pn-gail", "2iwil", "gail"), bad=5),
        Setting("5 good, 20 bad", ("pn-gail", "2iwil", "gail"), bad=20),
    ),
    "labels": (
        Setting("5 % of rows rated", ("pn-gail", "2iwil"), labelled=0.05),
        Setting("ratings with noise of 0.2", ("pn-gail", "2iwil"), noise=0.2),
    ),
    "ablation": (Setting("20 % of rows rated", (*GRID, "pn-gail+oracle", "2iwil+oracle"), labelled=0.2),),
}


def pendulum_config(budget: Budget) -> TrainConfig:
    """Return the settings of the learner.

    Args:
        budget: How much is spent.

    Returns:
        The settings.
    """
    from icl25_pn_gail.config import TrainConfig

    return TrainConfig(
        hidden=(budget.hidden, budget.hidden), steps_per_iteration=budget.steps, gamma=0.99, max_kl=0.02, fisher_every=4
    )  # fmt: skip


def run_setting(
    setting: Setting,
    seeds: Sequence[int],
    budget: Budget,
    on_run: Callable[[FinishedRun], None] | None = None,
    done: Mapping[str, pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Train all methods of a setting from all seeds.

    Args:
        setting: The setting.
        seeds: Seeds of the runs; the demonstrations are the same for all.
        budget: How much is spent.
        on_run: Called with each finished run.
        done: Results of methods that need not be run again, by name.

    Returns:
        A row for each run, as ``comparison.compare`` gives it.
    """
    from icl25_pn_gail.comparison import compare

    done = done or {}
    demos, full = setting.demonstrations()
    left = tuple(name for name in setting.methods if name not in done)
    found = [done[name] for name in setting.methods if name in done]
    if left:
        found.append(
            compare(
                ENV,
                demos,
                left,
                seeds,
                total_iterations=budget.iterations,
                config=pendulum_config(budget),
                n_episodes=budget.episodes,
                oracle=full,
                on_run=on_run,
            )
        )
    order = {name: i for i, name in enumerate(setting.methods)}
    return pd.concat(found).sort_values(["method", "seed"], key=lambda c: c.map(order) if c.name == "method" else c)
