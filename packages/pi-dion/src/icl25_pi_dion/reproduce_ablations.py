"""What each part of the method contributes: linear reaction-diffusion without labels, one choice changed at a time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from icl25_pi_dion.experiments import make_problem, side_by_side
from icl25_shared import Estimate, Output, RunFolder

if TYPE_CHECKING:
    from icl25_pi_dion.cli import Reproduce
    from icl25_pi_dion.problem import InverseProblem

__all__ = ["VARIANTS", "Variant", "run_ablations"]

STEPS, N_TRAIN, N_TEST = 1500, 1000, 200


@dataclass(frozen=True)
class Variant:
    """What differs from the defaults.

    Attributes:
        options: Arguments of the estimator, by name.
        n_train: Measurements to train on.
        linear_part: Whether branches have a linear map beside the network.
        hard: Whether boundary values are built into the network; else they are a term of the loss.
        noise: Noise of all measurements, over their standard deviation.
        told: Whether the estimator is told of the noise.
    """

    options: tuple[tuple[str, Any], ...] = ()
    n_train: int = N_TRAIN
    linear_part: bool = True
    hard: bool = True
    noise: float = 0.0
    told: bool = True


VARIANTS = {
    "as by default": Variant(),
    "collocation points stay": Variant((("fresh_points", False),)),
    "collocation points independent, not stratified": Variant((("stratified", False),)),
    "Adam at 0.003 for muon": Variant((("optimizer", "adam"), ("learning_rate", 3e-3))),
    "branches without the linear map": Variant(linear_part=False),
    "boundary values as a term of the loss": Variant(hard=False),
    "no differences of readings (h1 = 0)": Variant((("weights", {"h1": 0.0}),)),
    "data weight 1": Variant((("weights", {"data": 1.0}),)),
    "data weight 100": Variant((("weights", {"data": 100.0}),)),
    "300 measurements": Variant(n_train=300),
    "100 measurements": Variant(n_train=100),
    "1 % noise, told": Variant(noise=0.01),
    "1 % noise, not told": Variant(noise=0.01, told=False),
    "5 % noise, told": Variant(noise=0.05),
    "5 % noise, not told": Variant(noise=0.05, told=False),
}


def run_variant(title: str, seed: int, steps: int = STEPS, n_test: int = N_TEST) -> dict[str, float]:
    """Train one variant and test it.

    Args:
        title: Its name.
        seed: Seed of data, weights and draws.
        steps: Steps of training.
        n_test: Measurements to test on.

    Returns:
        Mean relative L2 error of s, the same refined, and the steps that were taken.
    """
    from icl25_pi_dion import PIDION, InverseOperator, data
    from icl25_pi_dion.branches import MLP
    from icl25_pi_dion.calibration import relative_errors

    variant = VARIANTS[title]
    problem = make_problem("rd-linear")
    # The same test measurements for every number of measurements to train on.
    unknowns = data.sample_prior(problem, n_test + variant.n_train, seed=seed)
    measured = data.simulate(problem, unknowns, noise=variant.noise, seed=seed)
    trained = problem if variant.hard else _softened(problem)
    net = PIDION(trained, rngs=seed)
    if not variant.linear_part:
        import jax
        from flax import nnx

        sizes = (len(problem.sensors()), *net.architecture.branch_hidden, net.p)
        net = PIDION(trained, branch=MLP(sizes, jax.nn.gelu, rngs=nnx.Rngs(seed)), rngs=seed)
    told = variant.noise if variant.told else 0.0
    options: dict[str, Any] = {"calibration": 0, "check_identifiable": False, "early_stop": False}
    options |= dict(variant.options)
    operator = InverseOperator(trained, net, steps=steps, noise_std=told, seed=seed, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*between the collocation points")  # the table says the steps
        operator.fit(measured[n_test:])
    errors = [
        float(relative_errors(operator.predict(measured[:n_test], refine=k).s, unknowns[:n_test]).mean())
        for k in (0, 1)
    ]
    return {"s": errors[0], "refined": errors[1], "steps": float(operator.n_steps_)}


def run_ablations(
    flags: Reproduce, *, titles: tuple[str, ...] = tuple(VARIANTS), steps: int = STEPS, n_test: int = N_TEST
) -> Output:
    """Run all variants over the seeds.

    Args:
        flags: Seeds and output folder.
        titles: Which variants.
        steps: Steps of training.
        n_test: Measurements to test on.

    Returns:
        A table of errors. There are no claims: the paper's ablations were not available.
    """
    seeds = range(flags.seed, flags.seed + flags.n_seeds)
    jobs = [(title, seed, steps, n_test) for title in titles for seed in seeds]
    with RunFolder.create(flags.out, program="icl25-pi-dion", verb="reproduce", config=flags, force=flags.force) as run:
        with run.timed("ablations"):
            found = side_by_side(run_variant, jobs)
        result = {
            title: {
                name: [row[name] for job, row in zip(jobs, found, strict=True) if job[0] == title]
                for name in ("s", "refined", "steps")
            }
            for title in titles
        }
        run.write_json("result.json", {"seeds": list(seeds), "ablations": result})
    table = Table("changed", "error of s", "refined", "steps")
    table.title, table.title_justify = "linear reaction-diffusion: relative L2 error, mean over seeds", "left"
    for title, numbers in result.items():
        s, refined = (_percent(numbers[name]) for name in ("s", "refined"))
        table.add_row(title, s, refined, f"{np.mean(numbers['steps']):.0f}")
    return Output(result, [table, f"result.json is in {run.folder}"])


def _softened(problem: InverseProblem) -> InverseProblem:
    """The same problem, its boundary values not built into networks."""
    from icl25_pi_dion import Dirichlet

    problem.boundary = lambda: Dirichlet(0.0, hard=False)
    return problem


def _percent(samples: list[float]) -> str:
    found = Estimate.from_samples(samples)
    interval = "" if found.n == 1 else f" [{100 * max(found.low, 0):.2f}, {100 * found.high:.2f}]"
    return f"{100 * found.mean:.2f} %{interval}"
