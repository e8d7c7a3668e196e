"""Fitted estimators as folders: what a stranger needs to invert with them again, and nothing that is executed."""

from __future__ import annotations

import copy
import inspect
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flax import nnx

from icl25_pi_dion import problems
from icl25_pi_dion.calibration import ErrorBound, Novelty
from icl25_pi_dion.checkpoints import CheckpointFolder
from icl25_pi_dion.network import PIDION, Architecture
from icl25_pi_dion.objective import Objective, Weights
from icl25_pi_dion.problem import InverseProblem
from icl25_shared import read_json, write_json

if TYPE_CHECKING:
    from icl25_pi_dion.estimator import InverseOperator

__all__ = ["load_operator", "problem_arguments", "save_operator"]

FORMAT = 1


def problem_arguments(problem: InverseProblem) -> dict[str, Any] | None:
    """Return the arguments from which a problem of this package is made again; None for any other problem.

    Args:
        problem: The inverse problem.

    Returns:
        Arguments by name.
    """
    if type(problem) not in _own_problems().values() or getattr(problem, "f", None) is not None:
        return None
    names = [name for name in inspect.signature(type(problem).__init__).parameters if name not in ("self", "f")]
    return {name: getattr(problem, name) for name in names}


def save_operator(operator: InverseOperator, folder: Path, *, force: bool) -> None:
    """Write a fitted estimator.

    Args:
        operator: The estimator.
        folder: Where to.
        force: Replace one that is there.

    Raises:
        FileExistsError: If there is one and ``force`` is false.
    """
    if (folder / "config.json").exists() and not force:
        raise FileExistsError(f"{folder} holds an estimator; pass force=True to replace it")
    problem, net, objective = operator.problem_, operator.net_, operator.objective_
    options = {
        name: value
        for name, value in operator.get_params().items()
        if name not in ("problem", "net", "optimizer", "weights")
    }
    config = {
        "format": FORMAT,
        "problem": type(problem).__name__,
        "problem_arguments": problem_arguments(problem),
        "sensor_shape": problem.sensor_shape,
        "architecture": asdict(net.architecture),
        "options": options,
        "optimizer": operator.optimizer if isinstance(operator.optimizer, str) else "own",
        "weights": asdict(operator.weights_),
        "objective": {
            name: getattr(objective, name) for name in ("residual_scale", "label_scale", "h1_shape", "h1_spacing")
        },
        "n_steps": operator.n_steps_,
        "stopped": operator.stopped_,
    }
    arrays = {"net": nnx.to_pure_dict(nnx.state(net)), "novelty": operator.novelty_._asdict()}
    config["n_components"] = len(operator.novelty_.deviations)
    config["n_features"] = len(operator.novelty_.mean)
    parameters = CheckpointFolder(folder / "parameters")
    parameters.save((parameters.latest() or 0) + 1, arrays, {})
    constants = {
        "field_mean": net.field_mean[...],
        "field_scale": net.field_scale[...],
        "target_offset": net.target_offset[...],
        "target_size": net.target_size[...],
    }
    write_json(folder / "standardisation.json", constants, force=True)
    write_json(folder / "calibration.json", {str(k): v._asdict() for k, v in operator.calibration_.items()}, force=True)
    write_json(folder / "config.json", config, force=True)


def load_operator(
    kind: type[InverseOperator], folder: Path, problem: InverseProblem | None, net: PIDION | None
) -> InverseOperator:
    """Read what ``save_operator`` wrote.

    Args:
        kind: The class of the estimator.
        folder: Where it is.
        problem: The inverse problem, where it is not one of the package's.
        net: A network of the same architecture, where its branch was a module.

    Returns:
        The estimator.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If files are damaged, or problem or network do not fit.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} holds no estimator: there is no config.json")
    config = read_json(folder / "config.json")
    try:
        return _rebuilt(kind, folder, config, problem, net)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}/config.json is damaged: {error!r}") from error


def _rebuilt(
    kind: type[InverseOperator],
    folder: Path,
    config: dict[str, Any],
    problem: InverseProblem | None,
    net: PIDION | None,
) -> InverseOperator:
    if config["format"] != FORMAT:
        raise ValueError(f"{folder}/config.json has format {config['format']}, expected {FORMAT}")
    if problem is None:
        own = _own_problems()
        if config["problem_arguments"] is None or config["problem"] not in own:
            raise ValueError(f"{folder} was trained on {config['problem']}, which is not stored: pass problem=")
        problem = own[config["problem"]](**config["problem_arguments"])
    elif type(problem).__name__ != config["problem"]:
        raise ValueError(f"{folder} was trained on {config['problem']}, found {type(problem).__name__}")
    operator = kind(problem, net, config["optimizer"], **config["options"], weights=config["weights"])
    shape = tuple(config["sensor_shape"]) if config["sensor_shape"] else None
    if problem.sensor_shape is None and shape is not None:
        problem = copy.copy(problem)
        problem.sensor_shape = shape
    architecture = config["architecture"]
    if net is None:
        if architecture["branch"] == "module":
            raise ValueError(f"{folder}: the branches were a module, which is not stored: pass net=")
        net = PIDION(problem, **architecture)
    elif net.architecture != Architecture(**{k: _tuple(v) for k, v in architecture.items()}):
        raise ValueError(f"{folder} holds a network of another architecture: {architecture}")
    n, m = config["n_components"], config["n_features"]
    novelty = Novelty(np.zeros(m), np.zeros((n, m)), np.zeros(n), 0.0)
    like = {"net": nnx.to_pure_dict(nnx.state(net)), "novelty": novelty._asdict()}
    arrays, _ = CheckpointFolder(folder / "parameters").load(like)
    net = nnx.clone(net)
    state = nnx.state(net)
    nnx.replace_by_pure_dict(state, arrays["net"])
    nnx.update(net, state)
    operator.problem_, operator.net_ = problem, net
    operator.weights_ = Weights(**config["weights"])
    objective = {name: _tuple(value) for name, value in config["objective"].items()}
    operator.objective_ = Objective(problem, operator.weights_, **objective)
    operator.n_steps_, operator.stopped_, operator.history_ = config["n_steps"], config["stopped"], []
    known = arrays["novelty"]
    operator.novelty_ = Novelty(known["mean"], known["components"], known["deviations"], float(known["rest"]))
    calibration = read_json(folder / "calibration.json")
    try:
        operator.calibration_ = {int(k): _bound(**v) for k, v in calibration.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}/calibration.json is damaged: {error}") from error
    operator._labelled = None
    operator._start_inference()
    return operator


def _bound(constant: float | None, floor: float) -> ErrorBound:
    """A bound as JSON holds it, where null is infinite."""
    return ErrorBound(float("inf") if constant is None else float(constant), float(floor))


def _own_problems() -> dict[str, type[InverseProblem]]:
    kinds = (problems.ReactionDiffusionSource, problems.HelmholtzCoefficient, problems.DarcyPermeability)
    return {kind.__name__: kind for kind in kinds}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
