"""The demonstration: 5 good and 50 bad ways through a plane, and what three methods make of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from rich.table import Table

from icl25_shared import Claim, Estimate, InputError, Output, Rule, RunFolder, claims_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pn_gail.cli import Demo
    from icl25_pn_gail.comparison import FinishedRun
    from icl25_pn_gail.demonstrations import Demonstrations
    from icl25_pn_gail.policies import ImitationPolicy

__all__ = ["demo_claims", "demo_figure", "run_demo", "traces_of"]

LEVELS = "to-a:5:1.0,to-b:50:0.1"
ITERATIONS, EPISODES = 400, 50
PN, IWIL, GAIL = METHODS = ("pn-gail", "2iwil", "gail")
TITLES = {PN: "PN-GAIL", IWIL: "2IWIL", GAIL: "GAIL"}
COLUMNS = {PN: "pn_gail", IWIL: "iwil", GAIL: "gail"}  # of expected_mixture


class Outcome(NamedTuple):
    """What one run gives.

    Attributes:
        mean_return: Mean return of 50 episodes.
        distance: Mean distance from the good goal at the end of 20 other episodes.
        traces: Their positions, (20, 31, 2).
        history: A row for each iteration.
    """

    mean_return: float
    distance: float
    traces: Float[np.ndarray, "episodes steps 2"]
    history: pd.DataFrame


def demo_claims(outcomes: Mapping[str, Sequence[Outcome]], demonstrated: float) -> list[Claim]:
    """What the demonstration shows, decided by rules that were fixed before it was run.

    Args:
        outcomes: Runs by method, one for each seed.
        demonstrated: Mean return of the demonstrations.

    Returns:
        The claims.
    """
    returns = {name: np.array([one.mean_return for one in runs]) for name, runs in outcomes.items()}
    distance = {name: np.array([one.distance for one in runs]) for name, runs in outcomes.items()}
    nearest = distance[PN] < np.minimum(distance[IWIL], distance[GAIL])
    return [
        Claim(
            id="beats-gail",
            statement="PN-GAIL earns more than GAIL from 5 good and 50 bad demonstrations (difference of returns)",
            paper="better in all six tasks (no number was available)",
            source="abstract",
            measured=Estimate.from_samples(returns[PN] - returns[GAIL]),
            rule=Rule(">=", 10.0),
            headline=True,
        ),
        Claim(
            id="beats-2iwil",
            statement="PN-GAIL earns more than 2IWIL, which has the same confidences (difference of returns)",
            paper="better or equal in all six tasks (no number was available)",
            source="abstract",
            measured=Estimate.from_samples(returns[PN] - returns[IWIL]),
            rule=Rule(">", 0.0),
        ),
        Claim(
            id="beats-demonstrations",
            statement="PN-GAIL earns more than the average demonstration (difference of returns)",
            paper="not in the paper",
            source="what the method is for",
            measured=Estimate.from_samples(returns[PN] - demonstrated),
            rule=Rule(">=", 10.0),
        ),
        Claim(
            id="nearest-to-good-goal",
            statement="PN-GAIL ends nearer to the good goal than 2IWIL and GAIL (share of seeds)",
            paper="not in the paper",
            source="follows from its optimal generator",
            measured=Estimate.from_samples(nearest.astype(float)),
            rule=Rule(">=", 0.75),
        ),
    ]


def run_demo(flags: Demo) -> Output:
    """Run the demonstration.

    Args:
        flags: Seeds and output folder.

    Returns:
        Tables of returns and of claims; ``ok`` where all claims hold.

    Raises:
        InputError: If there are no seeds.
    """
    if flags.n_seeds < 1:
        raise InputError(f"--n-seeds must be >= 1, found {flags.n_seeds}")
    from icl25_pn_gail.comparison import compare
    from icl25_pn_gail.config import TrainConfig
    from icl25_pn_gail.envs import TwoGoals
    from icl25_pn_gail.optima import expected_mixture
    from icl25_pn_gail.recording import make_demonstrations

    # For a small task: small networks, short batches, larger steps.
    config = TrainConfig(
        hidden=(32, 32), steps_per_iteration=1200, n_envs=40, gamma=0.97, gae_lambda=0.97, max_kl=0.03,
        log_std_init=-0.5, value_lr=1e-3, value_minibatches=10, disc_steps=4, eval_every=50, eval_episodes=20,
    )  # fmt: skip
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    env, outcomes = TwoGoals(), defaultdict(list)

    def keep(run: FinishedRun) -> None:
        traces = traces_of(run.policy, env, n=20)
        distance = float(np.linalg.norm(traces[:, -1] - np.array(env.goal_a), axis=1).mean())
        outcomes[run.method].append(Outcome(run.result.mean, distance, traces, run.history))

    with RunFolder.create(flags.out, program="icl25-pn-gail", verb="demo", config=flags, force=flags.force) as run:
        demos = make_demonstrations(env, LEVELS, seed=flags.seed)
        demonstrated = demos.summary()["return"]
        mixture = expected_mixture(demos.confidence)
        with run.timed("training"):
            compare(
                env, demos, METHODS, seeds, total_iterations=ITERATIONS, config=config, n_episodes=EPISODES, on_run=keep
            )
        good = demonstrated[demos.summary()["mean_confidence"] > 0.5].mean()
        claims = demo_claims(outcomes, float(demonstrated.mean()))
        result: dict[str, Any] = {
            "seeds": list(seeds),
            "returns": {name: [one.mean_return for one in runs] for name, runs in outcomes.items()},
            "distances": {name: [one.distance for one in runs] for name, runs in outcomes.items()},
            "demonstrations": {"good": good, "all": demonstrated.mean()},
            "expected_share_of_good": {name: mixture.loc[1.0, COLUMNS[name]] for name in METHODS},
        }
        run.save_figure(demo_figure(outcomes, demos, mixture), "demo.png")
        run.write_json("result.json", result)
        run.write_claims(claims)
    view = [
        _table(result),
        claims_table(claims, "icl25-pn-gail demo"),
        f"Pictures, result.json and claims.json are in {run.folder}",
    ]
    data = {**result, "claims": [claim.to_dict() for claim in claims]}
    return Output(data, view, ok=all(claim.holds for claim in claims))


def traces_of(policy: ImitationPolicy, env: Any, n: int, seed: int = 0) -> Float[np.ndarray, "n steps d"]:
    """Roll out the most likely actions of a policy in a pure-jax environment.

    Args:
        policy: The policy.
        env: The environment, whose episodes all last to the time limit.
        n: Number of episodes.
        seed: Seed of their beginnings.

    Returns:
        Observations of each episode, the first one included.
    """
    import jax

    obs, state = jax.vmap(env.reset)(jax.random.split(jax.random.key(seed), n))
    keys = jax.random.split(jax.random.key(seed + 1), n)
    step, seen = jax.jit(jax.vmap(env.step)), [np.asarray(obs)]
    for _ in range(env.max_episode_steps):
        obs, state, *_ = step(keys, state, policy.predict(obs)[0])
        seen.append(np.asarray(obs))
    return np.stack(seen, axis=1)


def _table(result: dict[str, Any]) -> Table:
    table = Table("method", "share of good rows at the optimum", "mean return", "distance from the good goal")
    table.title, table.title_justify = "5 demonstrations to the good goal, 50 to the bad one", "left"
    for name in METHODS:
        table.add_row(
            TITLES[name],
            f"{result['expected_share_of_good'][name]:.1%}",
            ", ".join(f"{value:.1f}" for value in result["returns"][name]),
            ", ".join(f"{value:.2f}" for value in result["distances"][name]),
        )
    table.add_section()
    table.add_row("good demonstrations", "", f"{result['demonstrations']['good']:.1f}")
    table.add_row("all demonstrations", "", f"{result['demonstrations']['all']:.1f}")
    return table


def demo_figure(outcomes: Mapping[str, Sequence[Outcome]], demos: Demonstrations, mixture: pd.DataFrame) -> Figure:
    """Where each method goes, what the theory expects of it, and how it learns.

    Args:
        outcomes: Runs by method, one for each seed.
        demos: The demonstrations.
        mixture: Shares of demonstrated rows by confidence that each method imitates at its optimum.

    Returns:
        The figure.
    """
    from icl25_pn_gail.plotting import COLOURS, INK, make_figure, title_axes

    figure, grid = make_figure(9.6, 6.0, nrows=2, ncols=3)
    colours = dict(zip(METHODS, COLOURS, strict=False))
    for axes, name in zip(grid[0], METHODS, strict=True):
        for code in range(demos.n_episodes):
            rows = demos.obs[demos.episode_codes == code]
            axes.plot(*rows.T, color=INK, lw=0.5, alpha=0.15)
        for one in outcomes[name]:
            for trace in one.traces[:8]:
                axes.plot(*trace.T, color=colours[name], lw=1.2, alpha=0.7)
        for goal, (x, y), marker in (("good goal", (1, 0.6), "*"), ("bad goal", (-1, 0.6), "X")):
            axes.plot(x, y, marker, ms=12, mfc="white", mec=INK, zorder=5)
            axes.annotate(goal, (x, y), (0, 10), textcoords="offset points", ha="center", color=INK)
        axes.set(
            xlim=(-2.2, 2.2), ylim=(-1.3, 2.0), aspect="equal", xlabel="x", ylabel="y" if axes is grid[0, 0] else ""
        )
        mean = np.mean([one.mean_return for one in outcomes[name]])
        title_axes(axes, f"{TITLES[name]}: mean return {mean:.1f}")
    grid[0, 0].set_ylabel("y")
    axes, width = grid[1, 0], 0.38
    at = np.arange(len(METHODS) + 1)
    shares = {r: [row["demonstrations"], *(row[COLUMNS[name]] for name in METHODS)] for r, row in mixture.iterrows()}
    for k, (r, heights) in enumerate(sorted(shares.items(), reverse=True)):
        kind = "good" if r == mixture.index.max() else "bad"
        bars = axes.bar(at + (k - 0.5) * width, heights, width, color=(COLOURS[2], COLOURS[3])[k], label=kind)
        axes.bar_label(bars, [f"{height:.0%}" for height in heights], fontsize=7, padding=1)
    axes.set_xticks(at, ["demon-\nstrations", *TITLES.values()])
    axes.set(ylim=(0, 1.15), ylabel="share of rows")
    axes.legend(frameon=False, loc="upper center", ncols=2)
    title_axes(axes, "Expected at the optimum")
    for axes, column, title in (
        (grid[1, 1], "eval_return", "Mean return"),
        (grid[1, 2], "taken_bad", "Bad rows taken for the agent's"),
    ):
        for name in METHODS:
            for one in outcomes[name]:
                shown = one.history[["iteration", column]].dropna()
                smooth = shown[column] if column == "eval_return" else shown[column].rolling(20, min_periods=1).mean()
                axes.plot(shown["iteration"], smooth, color=colours[name], lw=1.3)
        axes.set(xlabel="iteration")
        title_axes(axes, title)
    for name in METHODS:
        grid[1, 1].plot([], [], color=colours[name], label=TITLES[name])
    grid[1, 1].legend(frameon=False)
    grid[1, 2].set(ylim=(0, 1))
    return figure
