"""What simulation adds to a training: pairs to calibrate errors on, and a warning where a measurement cannot do."""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

from icl25_pi_dion.checks import Measurements, check_measurements
from icl25_pi_dion.data import sample_prior, simulate
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.spectra import identifiability
from icl25_shared import get_logger

__all__ = ["simulated_pairs", "warn_if_not_identifiable"]

CALIBRATION_SEED = 2**31 - 1  # apart from the seeds that people use for their own data
LEAST_NOISE = 0.01  # at which the measurement must determine the unknown, though the noise be smaller
LOG = get_logger(__name__)


def simulated_pairs(
    problem: InverseProblem, n: int, noise: float, *, takes_sets: bool
) -> tuple[Measurements, Float[np.ndarray, "n n_s"]] | None:
    """Draw unknowns from the prior and measure them.

    Args:
        problem: The inverse problem.
        n: How many.
        noise: Noise of the measurements over their standard deviation.
        takes_sets: Whether the network takes sets of sensors.

    Returns:
        Measurements and unknowns; None where none are asked for, or the problem cannot be simulated.
    """
    if n == 0:
        return None
    try:
        unknowns = sample_prior(problem, n, seed=CALIBRATION_SEED)
        measured = simulate(problem, unknowns, noise=noise, seed=CALIBRATION_SEED)
    except NotImplementedError:
        LOG.info("%s cannot be simulated: errors are calibrated on labels, if any", type(problem).__name__)
        return None
    return check_measurements(measured, problem, takes_sets=takes_sets), unknowns.reshape(n, -1)


def warn_if_not_identifiable(problem: InverseProblem, noise: float) -> None:
    """Warn where even the best inversion of the linearised problem would be far off.

    Args:
        problem: The inverse problem; nothing is said of one that cannot be simulated.
        noise: Noise of the measurements over their standard deviation; at least 1 % is assumed.
    """
    try:
        spectrum = identifiability(problem)
    except NotImplementedError:
        LOG.info("%s cannot be simulated: what it determines is not checked", type(problem).__name__)
        return
    found = "" if spectrum.prior is None else spectrum.shortcoming(max(noise, LEAST_NOISE))
    if found:
        warnings.warn(found, stacklevel=3)
