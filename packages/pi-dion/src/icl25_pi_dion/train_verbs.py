"""The verb that trains an inverse operator on measurements."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icl25_pi_dion.checks import problem_for
from icl25_pi_dion.estimator import InverseOperator
from icl25_pi_dion.history_plots import plot_history
from icl25_pi_dion.named_problems import find_problem, parse_settings
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.output_verbs import CHECKPOINT, computing_on, make_table, open_training
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.readers import MeasurementFile, read_measurements
from icl25_pi_dion.readings import SensorReadings
from icl25_pi_dion.training import Diverged
from icl25_shared import InputError, Output, atomic_path, get_logger

if TYPE_CHECKING:
    from icl25_pi_dion import cli

LOG = get_logger(__name__)
TERMS = ("total", "physics", "data", "h1", "label", "boundary", "val_residual", "val_misfit")
COLUMNS = ("step", *TERMS, "rate", "seconds")
SHOWN = 3  # samples in the picture


def run_train(flags: cli.Train) -> Output:
    """Train."""
    _check(flags)
    problem = find_problem(flags.problem, parse_settings(flags.settings))
    use_devices(flags.n_devices)
    file = read_measurements(flags.data, problem, allow_missing=flags.missing == "mask")
    labels = _labels(flags, file)
    run = open_training(flags)
    try:
        with run, computing_on(flags.device):
            operator = _operator(flags, problem, file)
            operator.fit(
                file.measurements,
                labels,
                callbacks=[_reporter(flags)],
                checkpoint=run.path(CHECKPOINT),
                resume=flags.resume,
                checkpoint_every=flags.checkpoint_every,
            )
            operator.save(run.folder, force=True)
            _write_history(run.path("history.csv"), operator.history_)
            _draw(run, operator, file)
    except Diverged as error:
        return Output({"out": str(run.folder), "error": str(error)}, [f"training failed: {error}"], ok=False)
    last = operator.history_[-1]
    data = {
        "out": str(run.folder),
        "problem": type(problem).__name__,
        "measurements": len(file),
        "labels": flags.labels,
        "steps": operator.n_steps_,
        "stopped": operator.stopped_,
        "weights": operator.weights_,
        "last": last,
        "seconds": sum(row["seconds"] for row in operator.history_),
    }
    title = (
        f"{type(problem).__name__}: {operator.n_steps_:,} steps on {len(file):,} measurements, {flags.labels} labels"
    )
    shown = [(name, f"{last[name]:.4g}") for name in TERMS if name in last]
    view: list[Any] = [make_table(title, ["what", "at the end"], shown)]
    if operator.stopped_:
        view.append(f"training ended early: {operator.stopped_}")
    view.append(f"operator in {run.folder}")
    return Output(data, view)


def _check(flags: cli.Train) -> None:
    for name in ("steps", "batch_size", "points", "p", "n_devices", "checkpoint_every"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} must be >= 1, found {value}")
    if flags.learning_rate is not None and not 0 < flags.learning_rate < float("inf"):
        raise InputError(f"--learning-rate must be > 0, found {flags.learning_rate}")
    if flags.labels < 0:
        raise InputError(f"--labels must be >= 0, found {flags.labels}")
    if flags.missing == "mask" and flags.branch != "set":
        raise InputError("--missing mask needs a network of sets: --branch set")


def use_devices(n: int) -> None:
    """Split the CPU into as many devices, unless jax has started already; other devices are as many as they are."""
    if n > 1:
        import jax

        try:
            jax.config.update("jax_num_cpu_devices", n)
        except RuntimeError:
            LOG.debug("jax has started, its devices stay as they are")


def _labels(flags: cli.Train, file: MeasurementFile) -> tuple[np.ndarray, np.ndarray] | None:
    if flags.labels == 0:
        return None
    if file.s is None:
        raise InputError(f"{flags.data} holds no unknowns s for --labels {flags.labels}")
    if flags.labels > len(file):
        raise InputError(f"--labels {flags.labels}, but {flags.data} holds {len(file)} samples")
    return np.arange(flags.labels), file.s[: flags.labels]


def _operator(flags: cli.Train, problem: InverseProblem, file: MeasurementFile) -> InverseOperator:
    known = problem_for(problem, file.measurements)
    if isinstance(file.measurements, SensorReadings) and flags.branch != "set":
        raise InputError(f"{flags.data}: sensors differ from sample to sample, which needs --branch set")
    options: dict[str, Any] = {} if flags.p is None else {"p": flags.p}
    terms = ("physics", "data", "h1", "label")
    weights = {name: value for name in terms if (value := getattr(flags, f"weight_{name}")) is not None}
    return InverseOperator(
        known,
        PIDION(known, branch=flags.branch, rngs=flags.seed, **options),
        flags.optimizer,
        flags.steps,
        flags.batch_size,
        flags.points,
        weights,
        flags.noise_std,
        flags.seed,
        learning_rate=flags.learning_rate,
        missing=flags.missing,
        n_devices=flags.n_devices,
    )


def _reporter(flags: cli.Train) -> Callable[[Mapping[str, float]], None]:
    """Say a line about every tenth of the steps, or about all with --verbose."""
    every = max(flags.steps // 10, 1)
    said = 0

    def report(row: Mapping[str, float]) -> None:
        nonlocal said
        step = int(row["step"])
        if flags.verbose or step // every > said // every or step == flags.steps:
            said = step
            terms = ", ".join(f"{name} {row[name]:.3g}" for name in TERMS if name in row)
            LOG.info("step %d of %d: %s", step, flags.steps, terms)

    return report


def _write_history(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    table = pd.DataFrame(rows)
    with atomic_path(path, force=True) as temporary:
        table[[name for name in COLUMNS if name in table]].to_csv(temporary, index=False)


def _draw(run: Any, operator: InverseOperator, file: MeasurementFile) -> None:
    run.save_figure(plot_history(operator.history_), "loss.png")
    if len(operator.problem_.target_coords) > 2:
        return
    readings = file.measurements
    first = (
        SensorReadings(*(part[:SHOWN] for part in readings))
        if isinstance(readings, SensorReadings)
        else readings[:SHOWN]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the training data, of which fit has spoken
        result = operator.predict(first)
    run.save_figure(result.plot(None if file.s is None else file.s[: len(result)]), "inversions.png")
