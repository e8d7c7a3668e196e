"""Experiments by name and seed: what is trained on what, and how far off it is on measurements not seen before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from joblib import Parallel, cpu_count, delayed

if TYPE_CHECKING:
    from icl25_pi_dion.problem import InverseProblem

__all__ = ["METHODS", "PROBLEMS", "Errors", "Method", "Sizes", "run_all", "run_method", "side_by_side"]


@dataclass(frozen=True)
class Method:
    """How a network is trained.

    Attributes:
        labels: Number of labelled samples.
        physics: Whether the equation and all measurements are used too; else it is a supervised DeepONet.
        noise: Noise of all measurements, over their standard deviation.
    """

    labels: int = 0
    physics: bool = True
    noise: float = 0.0


METHODS = {
    "PI-DION, no labels": Method(),
    "PI-DION, 50 labels": Method(labels=50),
    "DeepONet, 50 labels": Method(labels=50, physics=False),
    "DeepONet, 500 labels": Method(labels=500, physics=False),
    "PI-DION, no labels, 1 % noise": Method(noise=0.01),
    "PI-DION, no labels, 5 % noise": Method(noise=0.05),
}


@dataclass(frozen=True)
class Sizes:
    """How much is trained.

    Attributes:
        n_train: Measurements to train on.
        n_test: Measurements to test on.
        steps: Steps of training.
        refine: Steps of the refinement that is reported beside the network.
    """

    n_train: int
    n_test: int
    steps: int
    refine: int


PROBLEMS = {
    "rd": Sizes(n_train=1000, n_test=200, steps=5000, refine=3),
    "helmholtz": Sizes(n_train=500, n_test=200, steps=1500, refine=3),
    "darcy": Sizes(n_train=500, n_test=200, steps=1500, refine=3),
}


@dataclass(frozen=True)
class Errors:
    """Relative L2 errors on the test measurements, averaged over them; None where a method has no such thing.

    Attributes:
        s: Of the unknown.
        interior: Of the unknown on the central 80 % of every coordinate.
        u: Of the solution at the sensors.
        refined: Of the refined unknown.
        refined_interior: Of that on the central 80 %.
        mean_predictor: Of the mean of the training unknowns.
        coverage: Share of test samples whose error is at most its estimate.
    """

    s: float
    interior: float
    u: float | None
    refined: float | None
    refined_interior: float | None
    mean_predictor: float
    coverage: float | None


def make_problem(name: str) -> InverseProblem:
    """Make the inverse problem of an experiment.

    Args:
        name: ``"rd"`` (quadratic reaction), ``"rd-linear"``, ``"helmholtz"`` or ``"darcy"``.

    Returns:
        The problem.
    """
    from icl25_pi_dion import problems

    if name == "rd":
        return problems.ReactionDiffusionSource(D=0.01, kappa=0.0, k=0.01)
    if name == "rd-linear":
        return problems.ReactionDiffusionSource()
    return problems.HelmholtzCoefficient() if name == "helmholtz" else problems.DarcyPermeability()


def run_method(name: str, method: Method, seed: int, sizes: Sizes) -> Errors:
    """Train once and test.

    Args:
        name: The problem.
        method: How.
        seed: Seed of data, weights and draws.
        sizes: How much.

    Returns:
        The errors.
    """
    from icl25_pi_dion import InverseOperator, data
    from icl25_pi_dion.baselines import DeepONet
    from icl25_pi_dion.calibration import relative_errors
    from icl25_pi_dion.scores import interior

    problem = make_problem(name)
    n = sizes.n_train
    unknowns = data.sample_prior(problem, n + sizes.n_test, seed=seed)
    clean = data.simulate(problem, unknowns)
    measured = data.simulate(problem, unknowns, noise=method.noise, seed=seed) if method.noise else clean
    truth, test = unknowns[n:], measured[n:]
    inside = interior(problem.target_points(), [problem.domain[axis] for axis in problem.target_axes])

    def error(s: Float[np.ndarray, "n *shape"]) -> tuple[float, float]:
        flat, true = s.reshape(len(s), -1), truth.reshape(len(s), -1)
        return float(relative_errors(flat, true).mean()), float(
            relative_errors(flat[:, inside], true[:, inside]).mean()
        )

    nothing = error(np.broadcast_to(unknowns[:n].mean(axis=0), truth.shape))[0]
    if not method.physics:
        baseline = DeepONet(problem, steps=min(sizes.steps, 2000), seed=seed)
        baseline.fit(measured[: method.labels], unknowns[: method.labels])
        return Errors(*error(baseline.predict(test)), None, None, None, nothing, None)
    operator = InverseOperator(
        problem, steps=sizes.steps, seed=seed, noise_std=method.noise, check_identifiable=False, early_stop=False
    )
    labels = (np.arange(method.labels), unknowns[: method.labels]) if method.labels else None
    operator.fit(measured[:n], labels)
    found = operator.predict(test, return_u=True)
    each = relative_errors(found.s.reshape(len(truth), -1), truth.reshape(len(truth), -1))
    u_error = relative_errors(np.asarray(found.u), clean[n:].reshape(len(truth), -1)).mean()
    refined = error(operator.predict(test, refine=sizes.refine).s)
    return Errors(*error(found.s), float(u_error), *refined, nothing, float((each <= found.error_estimate).mean()))


def run_all(
    jobs: Iterable[tuple[str, Method]], seeds: Sequence[int], sizes: dict[str, Sizes]
) -> dict[tuple[str, Method], list[Errors]]:
    """Run experiments side by side, a process with one thread for each processor.

    Args:
        jobs: Problems and methods.
        seeds: The seeds.
        sizes: How much, for each problem.

    Returns:
        For each problem and method the errors, one for each seed.
    """
    jobs = list(dict.fromkeys(jobs))
    found = side_by_side(run_method, [(name, method, seed, sizes[name]) for name, method in jobs for seed in seeds])
    return {job: found[i * len(seeds) : (i + 1) * len(seeds)] for i, job in enumerate(jobs)}


def side_by_side(function: Callable, jobs: Sequence[tuple]) -> list:
    """Call a function in processes of one thread, one for each processor.

    Args:
        function: The function, of a module that does not import jax.
        jobs: Its arguments, for each call.

    Returns:
        What it returned, in the order of the jobs.
    """
    return list(Parallel(n_jobs=min(cpu_count(), len(jobs)))(delayed(_alone)(function, *job) for job in jobs))


def _alone(function: Callable, *arguments: Any) -> Any:
    if "jax" not in sys.modules:  # a fresh process: one thread each, since there is a process for each processor
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    return function(*arguments)


def as_record(errors: Sequence[Errors]) -> dict[str, Any]:
    """Turn errors into lists by name.

    Args:
        errors: One for each seed.

    Returns:
        The lists; None where a method has no such error.
    """
    rows = [asdict(part) for part in errors]
    return {name: None if rows[0][name] is None else [row[name] for row in rows] for name in rows[0]}
