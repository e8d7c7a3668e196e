"""Several methods and seeds on the same demonstrations; in a pure-jax environment side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import numpy as np
import pandas as pd

from icl25_pn_gail.behaviour_cloning import BC
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.envs import GymnasiumSource, make_env
from icl25_pn_gail.evaluation import EvalResult, bootstrap_interval, interquartile_mean
from icl25_pn_gail.imitation import LEARNERS
from icl25_pn_gail.methods import METHODS
from icl25_pn_gail.policies import ImitationPolicy
from icl25_pn_gail.preparation import CLASSIFIERS, Prepared, Spaces, make_trainer, prepare
from icl25_pn_gail.running import JaxRunner, Keys, computing_devices, default_device, history_rows
from icl25_pn_gail.training import Metrics
from icl25_shared import track

if TYPE_CHECKING:
    from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["FinishedRun", "ParsedMethod", "compare", "parse_method", "summarize"]

CLONING = {"bc": "none", "bc-weighted": "confidence"}
ORACLE = "oracle"


class FinishedRun(NamedTuple):
    """One run of a comparison.

    Attributes:
        method: Name of the method.
        seed: Its seed.
        history: A row for each iteration.
        policy: What was learned.
        result: Episodes of the last evaluation.
    """

    method: str
    seed: int
    history: pd.DataFrame
    policy: ImitationPolicy
    result: EvalResult


class ParsedMethod(NamedTuple):
    """A method and what fills in its confidences.

    Attributes:
        name: What was asked for.
        method: Key of the method.
        classifier: ``bsc``, ``sc``, ``supervised``, ``oracle``, or None for what the method does by default.
    """

    name: str
    method: str
    classifier: str | None


def parse_method(name: str) -> ParsedMethod:
    """Read the name of a method, such as ``pn-gail``, ``2iwil+bsc`` or ``bc``.

    Args:
        name: A method of ``METHODS``, ``bc`` or ``bc-weighted``; with ``+bsc``, ``+sc``, ``+supervised`` or
            ``+oracle`` for what fills in missing confidences.

    Returns:
        Its parts.

    Raises:
        ValueError: If there is no such method or classifier.
    """
    method, plus, classifier = name.partition("+")
    known = [*METHODS, *CLONING]
    if method not in known:
        raise ValueError(f"there is no method {method!r}; there are {', '.join(known)}")
    if plus and classifier not in (*CLASSIFIERS, ORACLE):
        raise ValueError(f"{name}: after + comes {', '.join(CLASSIFIERS)} or {ORACLE}, found {classifier!r}")
    return ParsedMethod(name, method, classifier or None)


def compare(
    env: Any,
    demos: Demonstrations,
    methods: Sequence[str] = ("pn-gail", "2iwil", "gail", "bc"),
    seeds: Iterable[int] = range(5),
    *,
    total_iterations: int = 500,
    learner: Literal["trpo", "ppo"] = "trpo",
    config: TrainConfig | None = None,
    n_episodes: int = 20,
    oracle: Demonstrations | None = None,
    backend: Literal["auto", "jax", "gymnasium"] = "auto",
    progress_bar: bool = True,
    on_run: Callable[[FinishedRun], None] | None = None,
) -> pd.DataFrame:
    """Train methods on the same demonstrations from the same seeds, and evaluate them on the same episodes.

    In a pure-jax environment runs are side by side. On a CPU they are threads, one for each core, that share one
    compiled program: a run is to the last bit what it is alone. On a GPU, or where jax sees several devices, all
    adversarial runs are one program, mapped over methods and seeds and spread over the devices: a run is what it is
    alone up to rounding.

    Args:
        env: The environment, as for ``PNGAIL``.
        demos: The demonstrations.
        methods: Names, as ``parse_method`` reads them.
        seeds: Seeds.
        total_iterations: Iterations of each run.
        learner: ``trpo`` or ``ppo``.
        config: The settings.
        n_episodes: Episodes of the last evaluation of each run.
        oracle: The same demonstrations with all confidences, for ``+oracle``.
        backend: As for ``PNGAIL``.
        progress_bar: Show progress on standard error.
        on_run: Called with each run when it is finished.

    Returns:
        A row for each run: method, seed, mean_return, iqm_return and mean_length of the last evaluation.

    Raises:
        ValueError: If a method is unknown, there are no seeds, or demonstrations and environment do not fit.

    Source:
        The grid of objectives and classifiers asked for in the reviews of PN-GAIL.
    """
    found, config, seeds = make_env(env, backend=backend), config or TrainConfig(), list(seeds)
    if total_iterations < 1 or n_episodes < 1:
        raise ValueError(f"total_iterations and n_episodes must be >= 1, found {total_iterations} and {n_episodes}")
    parsed = [parse_method(name) for name in dict.fromkeys(methods)]
    if not parsed or not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"expected at least one method and different seeds, found {list(methods)} and {seeds}")
    if oracle is None and any(one.classifier == ORACLE for one in parsed):
        raise ValueError("a method with +oracle needs oracle, the demonstrations with all confidences")
    Spaces.of(found).check(demos)
    keep = on_run or (lambda run: None)
    runs = [(one, seed) for one in parsed for seed in seeds]
    devices = computing_devices()
    # One processor does unequal runs better side by side than in a batch, where each waits for the slowest.
    in_batch = not isinstance(found, GymnasiumSource) and (len(devices) > 1 or devices[0].platform != "cpu")
    batch = [run for run in runs if in_batch and run[0].method in METHODS]
    results: dict[tuple[str, int], EvalResult] = {}
    if batch:
        results |= _batched(
            found, demos, oracle, batch, total_iterations, learner, config, n_episodes, progress_bar, keep
        )

    def train(one: ParsedMethod, seed: int, going_on: Callable[[Any], bool]) -> FinishedRun:
        used = oracle if one.classifier == ORACLE and oracle is not None else demos
        classifier = None if one.classifier == ORACLE else one.classifier
        options: dict[str, Any] = {"classifier": classifier, "learner": learner, "config": config, "seed": seed}
        if one.method in CLONING:
            made: Any = BC(found, used, weights=CLONING[one.method], **options)  # ty: ignore[invalid-argument-type]
        else:
            made = LEARNERS[one.method](found, used, **options)
        made.learn(total_iterations, going_on, progress_bar=False)
        return FinishedRun(one.name, seed, made.history, made.policy, made.evaluate(n_episodes))

    alone = [run for run in runs if run not in batch]
    finished = _side_by_side(train, alone, 1 if isinstance(found, GymnasiumSource) else n_cores())
    for run in track(finished, "runs", len(alone)) if progress_bar and alone else finished:
        results[run.method, run.seed] = run.result
        keep(run)
    rows = [
        {
            "method": one.name,
            "seed": seed,
            "mean_return": results[one.name, seed].mean,
            "iqm_return": results[one.name, seed].iqm,
            "mean_length": float(np.mean(results[one.name, seed].lengths)),
        }
        for one, seed in runs
    ]
    return pd.DataFrame(rows)


def summarize(results: pd.DataFrame, failed_below: float | None = None, level: float = 0.95) -> pd.DataFrame:
    """Summarise the runs of each method.

    Args:
        results: What ``compare`` returned.
        failed_below: Mean return below which a run counts as failed.
        level: Coverage of the bootstrap intervals of the median and of the mean.

    Returns:
        A row for each method, in order: runs, median, median_low, median_high, mean, mean_low, mean_high, iqm, worst,
        best, and failed, the share of failed runs, if ``failed_below`` is given.

    Source:
        Intervals over runs as in Agarwal et al., NeurIPS 2021; the paper shows means over seeds.
    """
    rows = []
    for method, part in results.groupby("method", sort=False):
        returns = part["mean_return"].to_numpy(float)
        median, mean = (bootstrap_interval(returns, statistic, level=level) for statistic in (np.median, np.mean))
        row = {
            "method": method, "runs": len(returns),
            "median": float(np.median(returns)), "median_low": median[0], "median_high": median[1],
            "mean": float(np.mean(returns)), "mean_low": mean[0], "mean_high": mean[1],
            "iqm": interquartile_mean(returns), "worst": float(returns.min()), "best": float(returns.max()),
        }  # fmt: skip
        if failed_below is not None:
            row["failed"] = float(np.mean(returns < failed_below))
        rows.append(row)
    return pd.DataFrame(rows).set_index("method")


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _side_by_side(
    train: Callable[..., FinishedRun], runs: list[tuple[ParsedMethod, int]], n_threads: int
) -> Iterator[FinishedRun]:
    """Train in threads, which compiled programs leave free to run; where one fails, all stop."""
    if n_threads == 1 or len(runs) == 1:
        yield from (train(*run, lambda _: True) for run in runs)
        return
    stopped, device = threading.Event(), default_device()
    errors: list[BaseException] = []

    def one(run: tuple[ParsedMethod, int]) -> FinishedRun | None:
        if stopped.is_set():
            return None
        try:
            with jax.default_device(device):  # what the caller chose is not known to other threads
                finished = train(*run, lambda _: not stopped.is_set())
        except BaseException as error:
            errors.append(error)
            stopped.set()
            return None
        return None if stopped.is_set() else finished

    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for finished in pool.map(one, runs):
                if finished is None:
                    raise errors[0]
                yield finished
        finally:
            stopped.set()


def _batched(
    env: Any,
    demos: Demonstrations,
    oracle: Demonstrations | None,
    runs: list[tuple[ParsedMethod, int]],
    total_iterations: int,
    learner: Literal["trpo", "ppo"],
    config: TrainConfig,
    n_episodes: int,
    progress_bar: bool,
    keep: Callable[[FinishedRun], None],
) -> dict[tuple[str, int], EvalResult]:
    spaces = Spaces.of(env)
    trainer = make_trainer(spaces, learner, config)

    def prepared(one: ParsedMethod, seed: int) -> Prepared:
        if one.classifier == ORACLE and oracle is not None:
            return prepare(trainer, oracle, one.method, None, seed)
        return prepare(trainer, demos, one.method, one.classifier, seed)

    single = [prepared(*run) for run in runs]
    runner = JaxRunner(env, trainer, n_runs=len(runs))
    data, state, keys = runner.place([(p.demos, p.state, p.keys) for p in single])
    histories: list[list[pd.DataFrame]] = [[] for _ in runs]
    chunks = [
        range(begin, min(begin + config.eval_every, total_iterations))
        for begin in range(0, total_iterations, config.eval_every)
    ]
    for iterations in track(chunks, f"training {len(runs)} runs") if progress_bar else chunks:
        started = time.perf_counter()
        state, metrics = runner.advance(state, data, keys, iterations)
        evaluated = runner.evaluate(state.policy, data.scaler, keys, iterations.stop, config.eval_episodes)
        seconds = (time.perf_counter() - started) / len(runs)
        metrics = Metrics(*map(np.asarray, metrics))
        for i, rows in enumerate(histories):
            one = jax.tree.map(lambda part, i=i: part[i], metrics)
            episodes = EvalResult(evaluated.returns[i], evaluated.lengths[i])
            rows.append(history_rows(one, iterations, runner.steps_per_iteration, episodes, seconds))
    same_episodes = runner.place([Keys.of(0)] * len(runs))
    last = runner.evaluate(state.policy, data.scaler, same_episodes, 0, n_episodes)
    learned = jax.tree.map(np.asarray, (state.policy, data.scaler, state.disc))
    results = {}
    for i, ((one, seed), rows) in enumerate(zip(runs, histories, strict=True)):
        results[one.name, seed] = EvalResult(last.returns[i], last.lengths[i])
        params, scaler, disc = jax.tree.map(lambda part, i=i: part[i], learned)
        policy = ImitationPolicy(spaces, trainer, params, scaler, disc)
        history = pd.concat(rows, ignore_index=True)
        keep(FinishedRun(one.name, seed, history, policy, results[one.name, seed]))
    return results
