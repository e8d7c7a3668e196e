"""One training from its first or its last saved step to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from icl25_pi_dion.checkpoints import CheckpointFolder
from icl25_pi_dion.training import Trainer, TrainState
from icl25_shared import get_logger, progress

__all__ = ["run_training"]

LOG = get_logger(__name__)


def run_training(
    trainer: Trainer,
    callbacks: Iterable[Callable[[Mapping[str, float]], object]],
    folder: CheckpointFolder | None,
    *,
    resume: bool,
    every: int,
) -> tuple[TrainState, list[dict[str, float]]]:
    """Train, keep the history, and save states.

    Args:
        trainer: What to train.
        callbacks: Called with each row of the history; training ends where one returns True.
        folder: Where states are saved; None for nowhere.
        resume: Go on from the newest state in it.
        every: Steps between two states.

    Returns:
        The last state, and the history.

    Raises:
        FileExistsError: If the folder holds a training that is not to be resumed.
        ValueError: If it holds another training.
        Diverged: If the loss does not stay finite.
    """
    state = trainer.start()
    history: list[dict[str, float]] = []
    callbacks = tuple(callbacks)
    if folder is not None and folder.latest() is not None:
        if not resume:
            raise FileExistsError(
                f"{folder.folder} holds a training: resume it (resume=True), or choose another folder"
            )
        (params, opt_state, best), record = folder.load((state.params, state.opt_state, state.best))
        if record["identity"] != trainer.identity():
            raise ValueError(f"{folder.folder} is the checkpoint of another training: other data or options")
        history = record["history"]
        state = TrainState(params, opt_state, best, **record["state"])
        LOG.info("resumed at step %d", state.step)
    saved = state.step
    with progress("training", trainer.schedule.steps) as bar:
        bar.advance(state.step)
        for reached, row in trainer.run(state):
            state = reached
            history.append(row)
            bar.advance(row["step"] - bar.completed)
            ended = any([callback(row) is True for callback in callbacks])  # noqa: C419  each is to be called
            over = ended or bool(state.stopped) or state.step == trainer.schedule.steps
            if folder is not None and (state.step - saved >= every or over):
                folder.save(state.step, (state.params, state.opt_state, state.best), _record(state, history, trainer))
                saved = state.step
            if ended:
                break
    return state, history


def _record(state: TrainState, history: list[dict[str, float]], trainer: Trainer) -> dict[str, Any]:
    kept = ("step", "best_loss", "stale", "reference_loss", "rate", "stopped")
    return {
        "state": {name: getattr(state, name) for name in kept},
        "history": history,
        "identity": trainer.identity(),
    }
