"""The experiments on the pendulum: which demonstrations, which labels, which methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

if TYPE_CHECKING:
    from icl25_pn_gail.comparison import FinishedRun
    from icl25_pn_gail.config import TrainConfig
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["ENV", "PARTS", "Budget", "Recipe", "Runs", "Setting", "pendulum_config", "run_setting"]

ENV = "Pendulum-v1"
GRID = tuple(f"{method}+{classifier}" for method in ("pn-gail", "2iwil") for classifier in ("bsc", "sc", "supervised"))


class Recipe(NamedTuple):
    """All that decides the runs of a method beside seeds and budget: those of equal recipes are the same runs.

    Attributes:
        method: Key of the method.
        classifier: What fills in missing confidences; None where none is missing or needed.
        good: Episodes of the expert.
        bad: Episodes of spinning.
        labelled: Share of rows with a confidence.
        noise: Standard deviation of the noise of confidences.
    """

    method: str
    classifier: str | None
    good: int
    bad: int
    labelled: float
    noise: float


class Runs(NamedTuple):
    """Finished runs.

    Attributes:
        results: A row for each run, as ``comparison.compare`` gives it.
        histories: A table for each run that has evaluations, with columns method and seed.
    """

    results: pd.DataFrame
    histories: list[pd.DataFrame]

    def named(self, method: str) -> Runs:
        """The same with another name of the method."""
        return Runs(self.results.assign(method=method), [part.assign(method=method) for part in self.histories])


@dataclass(frozen=True)
class Setting:
    """Demonstrations and what is trained on them.

    Attributes:
        title: What differs from other settings.
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

    @property
    def heading(self) -> str:
        """All about it, for tables and pictures."""
        share = "all" if self.labelled == 1 else f"{100 * self.labelled:g} % of"
        noise = f" with noise of {self.noise:g}" if self.noise else ""
        return f"{self.good} good and {self.bad} bad episodes, {share} rows rated{noise}"

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

    def recipe(self, name: str) -> Recipe:
        """Say what decides the runs of a method.

        Args:
            name: A name as ``comparison.compare`` takes it.

        Returns:
            The recipe.
        """
        from icl25_pn_gail.comparison import ORACLE, parse_method
        from icl25_pn_gail.methods import METHODS

        _, method, classifier = parse_method(name)
        if classifier == ORACLE:
            return Recipe(method, None, self.good, self.bad, 1.0, 0.0)
        if classifier is None and method in METHODS:
            classifier = METHODS[method].classifier
        return Recipe(method, classifier if self.labelled < 1 else None, self.good, self.bad, self.labelled, self.noise)


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
    setting: Setting, seeds: Sequence[int], budget: Budget, known: dict[Recipe, Runs] | None = None
) -> Runs:
    """Train all methods of a setting from all seeds.

    Args:
        setting: The setting.
        seeds: Seeds of the runs; the demonstrations are the same for all.
        budget: How much is spent.
        known: Runs of other settings with these seeds and this budget, which are not done again; gets the new ones.

    Returns:
        The runs, in the order of the methods.
    """
    from icl25_pn_gail.comparison import compare

    known = {} if known is None else known
    demos, full = setting.demonstrations()
    left = [name for name in setting.methods if setting.recipe(name) not in known]
    if left:
        finished: list[FinishedRun] = []
        results = compare(
            ENV,
            demos,
            left,
            seeds,
            total_iterations=budget.iterations,
            config=pendulum_config(budget),
            n_episodes=budget.episodes,
            oracle=full,
            on_run=finished.append,
        )
        for name in left:
            histories = [run.history.assign(method=name, seed=run.seed) for run in finished if run.method == name]
            known[setting.recipe(name)] = Runs(results[results["method"] == name], histories)
    parts = [known[setting.recipe(name)].named(name) for name in setting.methods]
    results = pd.concat([part.results for part in parts], ignore_index=True)
    return Runs(results, [history for part in parts for history in part.histories])
