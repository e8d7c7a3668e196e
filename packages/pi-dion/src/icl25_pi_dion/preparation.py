"""What a training needs beside the network: weights, scales, and measurements split and on the device."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from icl25_pi_dion.checks import Measurements
from icl25_pi_dion.objective import Objective, TrainingData, Weights
from icl25_pi_dion.problem import InverseProblem, TargetScale

__all__ = ["check_meaning", "chosen_weights", "device_mesh", "make_objective", "on_device", "split", "standardisation"]

NOISE_MATTERS = 0.005  # noise above which differences of neighbouring readings are not fitted
NOISE_FOR_WEIGHT = 0.02
VALIDATION_SHARE, MOST_VALIDATION = 10, 100


def chosen_weights(
    problem: InverseProblem, given: Mapping[str, float] | None, noise_std: float, *, all_read: bool = True
) -> Weights:
    """Fill in the weights that are not given, and adapt them to noise.

    Args:
        problem: The inverse problem.
        given: Weights by name.
        noise_std: Noise of the measurements over sigma_m.
        all_read: Whether every sample has the readings of all sensors of the problem.

    Returns:
        The weights.

    Raises:
        ValueError: If a name is unknown or a weight is negative.
    """
    given = dict(given or {})
    known = [field.name for field in fields(Weights)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"unknown weights {', '.join(unknown)}; there are {', '.join(known)}")
    for name, value in given.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"weight {name} must be >= 0, found {value}")
    at_one_time = "t" in problem.coords and np.ptp(np.asarray(problem.sensors())[:, problem.coords.index("t")]) == 0
    on_line = len(grid_spacing(problem)) == 1 and at_one_time
    weights = replace(Weights(h1=0.1 if on_line and all_read else 0.0), **given)
    if noise_std > NOISE_MATTERS:
        weights = replace(weights, h1=0.0, data=weights.data * min(1.0, (NOISE_FOR_WEIGHT / noise_std) ** 2))
    if weights.h1 > 0 and not (grid_spacing(problem) and all_read):
        raise ValueError("weight h1 needs the readings of all sensors on a regular grid")
    return weights


def check_meaning(readings: Measurements, weights: Weights, *, n_labelled: int) -> None:
    """Refuse what u = 0, s = 0 would solve.

    Args:
        readings: Checked measurements.
        weights: Weights of the loss.
        n_labelled: Number of samples with labels.

    Raises:
        ValueError: If all measurements are zero, or neither they nor labels have a weight.
    """
    if not readings.values.any():
        raise ValueError("all measurements are zero: there is nothing to learn from")
    if n_labelled == 0 and weights.data == 0:
        raise ValueError("weight data is 0 and there are no labels: u = 0, s = 0 would solve the problem")


def grid_spacing(problem: InverseProblem) -> tuple[float, ...]:
    """Return the distance of neighbouring sensors along each axis of their grid; nothing where they form none.

    Args:
        problem: The inverse problem.

    Returns:
        The distances, one for each axis of ``sensor_shape``.
    """
    shape, sensors = problem.sensor_shape, np.asarray(problem.sensors(), float)
    if shape is None or math.prod(shape) != len(sensors) or min(shape) < 2:
        return ()
    grid = sensors.reshape(*shape, -1)
    found = []
    for axis in range(len(shape)):
        steps = np.diff(grid, axis=axis).reshape(-1, sensors.shape[1])
        if not np.allclose(steps, steps[0], rtol=1e-6, atol=1e-9):
            return ()
        found.append(float(np.linalg.norm(steps[0])))
    return tuple(found) if all(found) else ()


def make_objective(
    problem: InverseProblem, weights: Weights, target: TargetScale, unknowns: Float[np.ndarray, "l n_s"]
) -> Objective:
    """Make the loss.

    Args:
        problem: The inverse problem.
        weights: Weights of its terms.
        target: Sizes of the unknown and of the residual.
        unknowns: Labels, shape (l, n_s), whose spread is the unit of their errors.

    Returns:
        The loss.
    """
    spread = float(np.std(unknowns)) if len(unknowns) else 1.0
    return Objective(
        problem,
        weights,
        residual_scale=target.residual,
        label_scale=spread or 1.0,
        h1_shape=tuple(problem.sensor_shape or ()) if weights.h1 > 0 else (),
        h1_spacing=grid_spacing(problem) if weights.h1 > 0 else (),
    )


def split(n: int, labelled: Int[np.ndarray, " l"], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Set samples without labels aside for validation.

    Args:
        n: Number of samples.
        labelled: Numbers of the labelled ones, shape (l,), which stay in training.
        rng: Source of the choice.

    Returns:
        Numbers of the samples to train on and of those to validate on, each in ascending order; with fewer than
        ``VALIDATION_SHARE`` candidates all samples serve both.
    """
    free = np.setdiff1d(np.arange(n), labelled)
    n_held_out = min(len(free) // VALIDATION_SHARE, MOST_VALIDATION)
    if n_held_out == 0:
        return np.arange(n), np.arange(n)[:MOST_VALIDATION]
    held_out = np.sort(rng.permutation(free)[:n_held_out])
    return np.setdiff1d(np.arange(n), held_out), held_out


def standardisation(readings: Measurements, *, shared: bool) -> tuple[Float[np.ndarray, "*m"], float]:
    """Return the mean field and the one standard deviation of measurements.

    Args:
        readings: Checked measurements.
        shared: Whether sensors are the same for all samples; else the mean is one number.

    Returns:
        Mean and standard deviation. Where all samples are equal, the mean is 0 and the scale their root mean square.
    """
    values = readings.values if readings.mask is None else np.where(readings.mask, readings.values, np.nan)
    mean = np.nanmean(values, axis=0) if shared else np.asarray(np.nanmean(values))
    scale = float(np.sqrt(np.nanmean(np.square(values - mean))))
    if scale <= 1e-9 * float(np.sqrt(np.nanmean(np.square(values)))):
        warnings.warn("all measurements are equal: a network trained on a single one only knows that one", stacklevel=4)
        return np.zeros_like(mean), float(np.sqrt(np.nanmean(np.square(values))))
    return mean, scale


def rows_of(readings: Measurements, rows: Int[np.ndarray, " k"]) -> Measurements:
    """Select samples.

    Args:
        readings: Checked measurements.
        rows: Their numbers, shape (k,).

    Returns:
        The selection.
    """
    own = readings.locations.ndim == 3
    mask = None if readings.mask is None else readings.mask[rows]
    return Measurements(readings.values[rows], readings.locations[rows] if own else readings.locations, mask)


def on_device(
    readings: Measurements, labelled: Int[np.ndarray, " l"], unknowns: Float[np.ndarray, "l n_s"]
) -> TrainingData:
    """Bring training data to the device, in single precision.

    Args:
        readings: Checked measurements.
        labelled: Numbers of the labelled samples, shape (l,).
        unknowns: Their labels, shape (l, n_s).

    Returns:
        The arrays.
    """
    return TrainingData(
        jnp.asarray(readings.values, jnp.float32),
        jnp.asarray(readings.locations, jnp.float32),
        None if readings.mask is None else jnp.asarray(readings.mask),
        jnp.asarray(labelled),
        jnp.asarray(unknowns, jnp.float32),
    )


def device_mesh(n_devices: int, batch_size: int) -> Mesh | None:
    """Return a mesh of devices over which samples are spread, None for one device.

    Args:
        n_devices: How many.
        batch_size: Samples a step, a multiple of it.

    Returns:
        The mesh.

    Raises:
        ValueError: If there are not as many devices, or the batch cannot be spread evenly.
    """
    if n_devices == 1:
        return None
    if not 1 <= n_devices <= jax.device_count():
        raise ValueError(f"n_devices must be from 1 to {jax.device_count()}, found {n_devices}")
    if batch_size % n_devices:
        raise ValueError(f"batch_size {batch_size} is no multiple of n_devices {n_devices}")
    return jax.make_mesh((n_devices,), ("samples",), axis_types=(jax.sharding.AxisType.Auto,))
