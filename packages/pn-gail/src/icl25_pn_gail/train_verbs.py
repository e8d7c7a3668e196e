"""The verb that trains a policy on demonstrations."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_pn_gail.behaviour_cloning import BC
from icl25_pn_gail.comparison import CLONING
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import env_name
from icl25_pn_gail.evaluation import EvalResult
from icl25_pn_gail.imitation import LEARNERS
from icl25_pn_gail.input_verbs import as_flags, check_before_training, given_env, naming_flags, read_demos
from icl25_pn_gail.learners import Learner
from icl25_pn_gail.output_verbs import check_training_folder, computing_on, evaluation_rows, make_table, open_training
from icl25_pn_gail.picture_verbs import draw_training
from icl25_pn_gail.reports import BELIEVING, training_report
from icl25_shared import InputError, Output, atomic_path, get_logger

if TYPE_CHECKING:
    from icl25_pn_gail import cli
    from icl25_shared import RunFolder

LOG = get_logger(__name__)


def run_train(flags: cli.Train) -> Output:
    """Train."""
    if flags.classifier is not None and flags.method not in BELIEVING:
        raise InputError(f"--classifier {flags.classifier} fills in confidences, of which {flags.method} needs none")
    check_training_folder(flags)
    demos = read_demos(flags)
    with computing_on(flags.device), naming_flags():
        env = given_env(flags)
        findings = check_before_training(flags.demos, demos, env, [flags.method])
        learner = _learner(flags, env, demos)
        try:
            with _kept_record(flags, learner), open_training(flags) as run:
                learner.learn(flags.iterations, _reporter(flags), checkpoint=run.folder, resume=flags.resume)
                result = learner.evaluate(flags.episodes)
                learner.save(run.folder, force=True)
                draw_training(run, learner, demos, believed=flags.method in BELIEVING)
                report = training_report(learner, demos, findings, result, flags.demos.name, flags.method)
                with atomic_path(run.path("report.md"), force=True) as path:
                    path.write_text(report, encoding="utf-8")
        except FloatingPointError as error:
            why = as_flags(str(error))
            return Output({"out": str(run.folder), "error": why}, [f"training failed: {why}"], ok=False)
    return _output(flags, run, learner, demos, result)


def _learner(flags: cli.Train, env: Any, demos: Demonstrations) -> Learner:
    options: dict[str, Any] = {
        "learner": flags.learner,
        "classifier": flags.classifier,
        "config": flags.train_config(),
        "seed": flags.seed,
        "backend": flags.backend,
    }
    if flags.method in CLONING:
        return BC(env, demos, weights=CLONING[flags.method], **options)  # ty: ignore[invalid-argument-type]
    return LEARNERS[flags.method](env, demos, **options)


@contextlib.contextmanager
def _kept_record(flags: cli.Train, learner: Learner) -> Generator[None]:
    """Where a checkpoint is refused, keep the record of the run that it is of; say how to go on after a break."""
    path = Path(flags.out or "") / "run.json"
    before = path.read_bytes() if flags.resume and path.is_file() else None
    try:
        yield
    except ValueError:
        if before is not None and learner.history.empty:
            path.write_bytes(before)
        raise
    except KeyboardInterrupt:
        if not learner.history.empty:
            LOG.warning("%d iterations are kept: the same command with --resume goes on", len(learner.history))
        raise


def _reporter(flags: cli.Train) -> Callable[[Learner], None]:
    """Say a line about every tenth of the iterations, or about all evaluations with --verbose."""
    every = max(flags.iterations // 10, 1)
    said = -1

    def report(learner: Learner) -> None:
        nonlocal said
        done = len(learner.history)
        if flags.verbose or done // every > said or done == flags.iterations:
            said = done // every
            last = learner.history.iloc[-1]
            LOG.info("iteration %d of %d: return %.4g", done, flags.iterations, last["eval_return"])

    return report


def _output(flags: cli.Train, run: RunFolder, learner: Learner, demos: Demonstrations, result: EvalResult) -> Output:
    low, high = result.interval
    data = {
        "out": str(run.folder),
        "method": flags.method,
        "env": env_name(learner.env),
        "rows": len(demos),
        "labelled": demos.n_labelled,
        "iterations": len(learner.history),
        "mean_return": result.mean,
        "interval": [low, high],
        "iqm_return": result.iqm,
        "returns": np.asarray(result.returns).tolist(),
        "last": learner.history.drop(columns="seconds").iloc[-1].to_dict(),
    }
    title = (
        f"{flags.method} in {env_name(learner.env)}: {len(learner.history):,} iterations on {len(demos):,} rows, "
        f"{demos.n_labelled:,} with a confidence"
    )
    view = [
        make_table(title, ["what", f"last {flags.episodes} episodes"], evaluation_rows(result)),
        f"policy, report.md and pictures in {run.folder}",
    ]
    return Output(data, view)
