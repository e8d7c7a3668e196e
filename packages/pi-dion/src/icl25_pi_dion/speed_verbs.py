"""The verb that times the method on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_pi_dion.estimator import InverseOperator
from icl25_pi_dion.output_verbs import PROGRAM, computing_on, make_table
from icl25_pi_dion.problems import ReactionDiffusionSource
from icl25_pi_dion.speed import fastest, loss_case, physics_by_hessians
from icl25_shared import Output, RunFolder, get_logger

if TYPE_CHECKING:
    from icl25_pi_dion import cli

LOG = get_logger(__name__)
BATCHES = (50, 100, 200)
COMPARED = 100
INVERTED = 1000


def run_bench(flags: cli.Bench) -> Output:
    """Time the physics loss, the same by Hessians, and inversions."""
    with computing_on(flags.device):
        LOG.info("timing the physics loss")
        size = (flags.n_points, flags.p, flags.seed)
        ours = {}
        for batch in BATCHES:
            function, arguments = loss_case(batch, *size)
            ours[batch] = fastest(function, *arguments, repeats=flags.repeats)
        LOG.info("timing it by Hessians of each sample")
        function, arguments = loss_case(COMPARED, *size, loss=physics_by_hessians)
        theirs = fastest(function, *arguments, repeats=min(flags.repeats, 2))
        LOG.info("timing inversions")
        inversion = _time_inversions(flags)
    ratio = theirs.seconds / ours[COMPARED].seconds
    value, other = float(ours[COMPARED].value[0]), float(theirs.value[0])
    data = {
        "physics_loss_ms": {str(batch): 1e3 * timing.seconds for batch, timing in ours.items()},
        "hessians_ms": {str(COMPARED): 1e3 * theirs.seconds},
        "ratio": ratio,
        "loss": value,
        "loss_by_hessians": other,
        "inversion_ms": {str(INVERTED): 1e3 * inversion},
    }
    rows = [(f"physics loss, {batch} samples", _ms(timing.seconds)) for batch, timing in ours.items()]
    rows += [
        (f"by Hessians, {COMPARED} samples", _ms(theirs.seconds)),
        (f"inversion of {INVERTED:,} measurements", _ms(inversion)),
    ]
    title = f"value and gradient at {flags.n_points} points, {flags.p} trunk functions"
    view = [
        make_table(title, ["what", "milliseconds"], rows),
        f"shared derivatives are {ratio:.0f} times as fast; the losses are {value:.6g} and {other:.6g}",
    ]
    # Sums of many terms in single precision agree to about five digits.
    agree = bool(np.isclose(value, other, rtol=1e-3))
    if flags.out is not None:
        with RunFolder.create(flags.out, program=PROGRAM, verb="bench", config=flags, force=flags.force) as run:
            run.write_json("result.json", data)
        view.append(f"result in {flags.out}")
    return Output(data, view, ok=agree)


def _time_inversions(flags: cli.Bench) -> float:
    problem = ReactionDiffusionSource()
    x = problem.sensors()[:, 0]
    modes = np.random.default_rng(flags.seed).standard_normal((INVERTED, 8))
    measurements = modes @ np.sin(np.pi * np.outer(np.arange(1, 9), x))
    # One step: what is timed is the same for a network that knows nothing.
    options: dict[str, Any] = {
        "optimizer": "adam",
        "steps": 1,
        "calibration": 0,
        "check_identifiable": False,
        "seed": flags.seed,
    }
    operator = InverseOperator(problem, **options).fit(measurements)
    return fastest(lambda: operator.predict(measurements).s, repeats=flags.repeats).seconds


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"
