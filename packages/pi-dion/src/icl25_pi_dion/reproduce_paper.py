"""The full configuration: 1,000 samples, 65 x 65 nodes, wide networks and 50,000 steps, for a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from icl25_pi_dion import InverseOperator, data, network, problems
from icl25_pi_dion.experiments import make_problem
from icl25_pi_dion.scores import score_inversions
from icl25_shared import Output, RunFolder

if TYPE_CHECKING:
    from icl25_pi_dion.cli import Reproduce

__all__ = ["run_paper"]

STEPS, N_TRAIN, N_TEST = 50_000, 1_000, 200
WIDTH, POINTS = 256, 4096


def run_paper(
    flags: Reproduce,
    *,
    steps: int = STEPS,
    n_train: int = N_TRAIN,
    n_test: int = N_TEST,
    width: int = WIDTH,
    points: int = POINTS,
) -> Output:
    """Train PI-DION without labels at a scale that needs a GPU.

    Args:
        flags: The problem, or all; seed and output folder.
        steps: Steps of training.
        n_train: Measurements to train on.
        n_test: Measurements to test on.
        width: Trunk functions, and width of its layers.
        points: Collocation points a step.

    Returns:
        Errors of each problem. There are no claims: the paper's tables were not available.
    """
    names = ("rd", "helmholtz", "darcy") if flags.part == "all" else (flags.part,)
    result: dict[str, dict[str, float]] = {}
    with RunFolder.create(flags.out, program="icl25-pi-dion", verb="reproduce", config=flags, force=flags.force) as run:
        for name in names:
            grids = {"helmholtz": problems.HelmholtzCoefficient, "darcy": problems.DarcyPermeability}
            problem = grids[name](n_grid=65) if name in grids else make_problem(name)
            unknowns = data.sample_prior(problem, n_train + n_test, seed=flags.seed)
            measured = data.simulate(problem, unknowns)
            branch = "cnn" if name in grids else "mlp"
            net = network.PIDION(problem, width, (width,) * 4, branch, rngs=flags.seed)
            operator = InverseOperator(problem, net, "muon", steps, 100, points, seed=flags.seed)
            with run.timed(name):
                operator.fit(measured[:n_train], checkpoint=run.folder / f"{name}-training", resume=True)
            operator.save(run.folder / name, force=flags.force)
            scores = score_inversions(operator.predict(measured[n_train:]), problem, unknowns[n_train:])
            result[name] = {part: float(np.mean(getattr(scores, part))) for part in ("error_s", "error_s_interior")}
        run.write_json("result.json", result)
    return Output(result, [f"{name}: error {part['error_s']:.2%}" for name, part in result.items()])
