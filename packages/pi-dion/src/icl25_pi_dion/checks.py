"""Measurements and labels as users have them, checked and brought to arrays."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.readings import SensorReadings

__all__ = ["Measurements", "check_labels", "check_measurements", "check_points", "problem_for"]

LARGEST_BOUNDARY = 0.05  # of the largest measurement


class Measurements(NamedTuple):
    """Checked readings.

    Attributes:
        values: What was read, 0 where nothing was.
        locations: Where, shared by all samples or each sample its own.
        mask: Which entries are readings; None for all.
    """

    values: Float[np.ndarray, "n m"]
    locations: Float[np.ndarray, "*n m d"]
    mask: Bool[np.ndarray, "n m"] | None


def problem_for(problem: InverseProblem, measurements: Any) -> InverseProblem:
    """Return the problem with its sensors known: a problem without ``sensor_shape`` takes that of the measurements.

    Args:
        problem: The inverse problem.
        measurements: Measurements as passed by the user.

    Returns:
        The problem, or a copy of it that knows the shape.

    Raises:
        ValueError: If coordinates, domain and derivatives of the problem do not fit each other.
    """
    problem.check()
    overridden = type(problem).sensors is not InverseProblem.sensors
    if problem.sensor_shape is None and not overridden and not _is_set(measurements):
        shape = np.shape(measurements)[1:]
        if not shape:
            raise ValueError(f"measurements must have a row for each sample, found shape {np.shape(measurements)}")
        problem = copy.copy(problem)
        problem.sensor_shape = shape
        problem.sensors()
    return problem


def check_measurements(
    measurements: Any,
    problem: InverseProblem,
    *,
    takes_sets: bool = False,
    missing: Literal["error", "mask"] = "error",
) -> Measurements:
    """Check measurements and flatten them.

    Args:
        measurements: Array (n, *sensor_shape) or (n, m); or ``SensorReadings``, or a list of pairs (locations, values),
            for networks that take sets of sensors.
        problem: The inverse problem.
        takes_sets: Whether the network takes sets.
        missing: What NaN means: an error, or a sensor that was not read (only with sets).

    Returns:
        Values (n, m), locations (m, d) or (n, m, d), and the mask, None where all is there.

    Raises:
        ValueError: If shapes do not fit, or a value is not finite; the message says which.
        TypeError: If the measurements are no numbers.
    """
    if missing not in ("error", "mask"):
        raise ValueError(f"missing must be error or mask, found {missing!r}")
    if missing == "mask" and not takes_sets:
        raise ValueError('missing="mask" needs a network that takes sets of sensors: PIDION(problem, branch="set")')
    if _is_set(measurements):
        if not takes_sets:
            raise ValueError('readings with sensors of their own need a network of sets: PIDION(problem, branch="set")')
        return _check_set(measurements, problem)
    values = _numbers("measurements", measurements)
    sensors = np.asarray(problem.sensors(), float)
    shape = problem.sensor_shape or (len(sensors),)
    if values.shape[1:] not in (shape, (len(sensors),)) or values.ndim < 2:
        raise ValueError(
            f"measurements must have shape (n, {', '.join(map(str, shape))}), found {values.shape}"
            + _hint(values, shape)
        )
    if not len(values):
        raise ValueError("there are no measurements")
    _check_orientation(values, problem)
    flat = values.reshape(len(values), -1)
    mask = None
    if missing == "mask" and np.isnan(flat).any():
        mask = ~np.isnan(flat)
        if not mask.any(axis=1).all():
            raise ValueError(f"sample {int(np.argmin(mask.any(axis=1)))} has no reading at all")
        flat = np.where(mask, flat, 0.0)
    _check_finite(flat)
    _check_boundary(flat, sensors, problem, mask)
    return Measurements(flat, sensors, mask)


def check_labels(
    labels: Any, n_samples: int, problem: InverseProblem
) -> tuple[Int[np.ndarray, " l"], Float[np.ndarray, "l n_s"]]:
    """Check labels, which are optional.

    Args:
        labels: None; or the unknowns of all samples, (n, *target_shape); or a pair of the numbers of the labelled
            samples and their unknowns.
        n_samples: Number of measurements.
        problem: The inverse problem.

    Returns:
        The numbers of the labelled samples, and their unknowns, flattened.

    Raises:
        ValueError: If shapes do not fit, numbers are out of range or doubled, or the problem refuses a value.
        TypeError: If the labels are no numbers.
    """
    n_points = len(problem.target_points())
    if labels is None:
        return np.zeros(0, int), np.zeros((0, n_points))
    if isinstance(labels, tuple) and len(labels) == 2:
        rows, values = np.asarray(labels[0]), _numbers("labels", labels[1])
        if rows.ndim != 1 or not (np.issubdtype(rows.dtype, np.integer) or not rows.size):
            raise ValueError(f"numbers of labelled samples must be a list of whole numbers, found {labels[0]!r}")
        rows = rows.astype(int)
    else:
        values = _numbers("labels", labels)
        rows = np.arange(n_samples)
    if values.ndim < 2 or len(values) != len(rows) or values[:1].size != n_points:
        raise ValueError(f"labels must have {len(rows)} rows of {n_points} values, found shape {values.shape}")
    if len(rows) and (rows.min() < 0 or rows.max() >= n_samples):
        raise ValueError(f"labelled samples must be from 0 to {n_samples - 1}, found {rows.min()} to {rows.max()}")
    if len(np.unique(rows)) != len(rows):
        raise ValueError("a sample is labelled twice")
    values = values.reshape(len(values), -1)
    _check_finite(values, "label", "value")
    if len(rows):
        problem.check_target(values)
    bad = np.argwhere(values <= 0) if problem.positive else []
    if len(bad):  # an equation may have solutions there, but a positive network has no such output
        i, j = bad[0]
        raise ValueError(f"the label of sample {rows[i]} must be positive, found {values[i, j]:g} at value {j}")
    return rows, values


def check_points(name: str, points: Any, problem: InverseProblem, axes: Iterable[int]) -> Float[np.ndarray, "n d"]:
    """Check points at which to evaluate.

    Args:
        name: Name of the argument, for the message.
        points: The points, shape (n, d), or (n,) for one coordinate.
        problem: The inverse problem.
        axes: Its coordinates that a point has.

    Returns:
        The points, shape (n, d).

    Raises:
        ValueError: If shape or values do not fit.
    """
    where = np.asarray(points, float)
    letters = [problem.coords[axis] for axis in axes]
    where = where[:, None] if where.ndim == 1 and len(letters) == 1 else where
    if where.ndim != 2 or where.shape[1] != len(letters) or not np.isfinite(where).all():
        raise ValueError(f"{name} must be finite, a row of {', '.join(letters)} for each point, found {where.shape}")
    return where


def _is_set(measurements: Any) -> bool:
    if isinstance(measurements, SensorReadings):
        return True
    listed = isinstance(measurements, list) and len(measurements) > 0
    return listed and all(isinstance(pair, tuple) and len(pair) == 2 for pair in measurements)


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must form a rectangular array: {error}") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers, found dtype {array.dtype}")
    return array.astype(float)


def _hint(values: np.ndarray, shape: tuple[int, ...]) -> str:
    if values.shape == shape:
        return "; for a single sample pass measurements[None]"
    if values.ndim == len(shape) + 1 and values.shape[:0:-1] == shape:
        return "; axes follow the coordinates of the problem (x first), these look transposed"
    return ""


def _check_finite(values: np.ndarray, row: str = "sample", column: str = "sensor") -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        what = "NaN" if np.isnan(values[tuple(bad[0])]) else "infinite"
        raise ValueError(
            f"{len(bad)} values are not finite, the first ({what}) in {row} {bad[0][0]}, {column} {bad[0][1]}"
        )


def _check_set(measurements: Any, problem: InverseProblem) -> Measurements:
    given: Sequence[Any] = measurements
    readings = measurements if isinstance(measurements, SensorReadings) else SensorReadings.from_list(given)
    values, locations = _numbers("values", readings.values), _numbers("locations", readings.locations)
    mask = np.asarray(readings.mask, bool)
    d = len(problem.coords)
    if values.ndim != 2 or mask.shape != values.shape or locations.shape != (*values.shape, d):
        raise ValueError(
            f"readings must have values (n, m), locations (n, m, {d}) and a mask (n, m), "
            f"found {values.shape}, {locations.shape} and {mask.shape}"
        )
    if not mask.any(axis=1).all():
        raise ValueError(f"sample {int(np.argmin(mask.any(axis=1)))} has no reading at all")
    _check_finite(np.where(mask, values, 0))
    for axis, (letter, (low, high)) in enumerate(zip(problem.coords, problem.domain, strict=True)):
        column = np.where(mask, locations[..., axis], low)
        outside = np.argwhere(~((column >= low - 1e-9) & (column <= high + 1e-9)))
        if len(outside):
            i, j = outside[0]
            raise ValueError(f"sample {i}, reading {j}: {letter} = {column[i, j]:g} is outside [{low:g}, {high:g}]")
    inside = np.array([low for low, _ in problem.domain])
    return Measurements(np.where(mask, values, 0.0), np.where(mask[..., None], locations, inside), mask)


def _on_boundary(sensors: np.ndarray, problem: InverseProblem) -> np.ndarray:
    """Which sensors lie where the boundary condition says what they read."""
    condition = problem.boundary()
    found = np.zeros(len(sensors), bool)
    if condition is None:
        return found
    for axis, (letter, (low, high)) in enumerate(zip(problem.coords, problem.domain, strict=True)):
        ends = (low, high) if letter != "t" else (low,) if condition.initial else ()
        for end in ends:
            found |= np.isclose(sensors[:, axis], end, rtol=0, atol=1e-9 * (high - low))
    return found


def _violation(values: np.ndarray, sensors: np.ndarray, problem: InverseProblem) -> float:
    """Distance from the boundary values at the worst sensor, mean over samples, over the largest measurement."""
    edge = _on_boundary(sensors, problem)
    condition = problem.boundary()
    if condition is None or not edge.any():
        return 0.0
    expected = np.asarray(condition.lifting(sensors[edge]), float)
    largest = np.nanmax(np.abs(values), initial=0.0)
    if not largest > 0:
        return 0.0
    distance = np.abs(values[:, edge] - expected)
    read = np.isfinite(distance)
    return float(np.max(np.sum(distance, axis=0, where=read) / np.maximum(read.sum(axis=0), 1)) / largest)


def _check_boundary(values: np.ndarray, sensors: np.ndarray, problem: InverseProblem, mask: np.ndarray | None) -> None:
    found = _violation(values if mask is None else np.where(mask, values, np.nan), sensors, problem)
    if found > LARGEST_BOUNDARY:
        warnings.warn(
            f"measurements on the boundary differ from the boundary condition by {found:.0%} of the largest "
            "measurement: give the values there as the lifting, boundary() -> Dirichlet(g), or pass hard=False",
            stacklevel=4,
        )


def _check_orientation(values: np.ndarray, problem: InverseProblem) -> None:
    """Refuse square grids whose axes are swapped, where the boundary gives them away."""
    shape = problem.sensor_shape
    if shape is None or len(shape) != 2 or shape[0] != shape[1] or values.shape[1:] != shape:
        return
    sensors = np.asarray(problem.sensors(), float)
    as_given = _violation(values.reshape(len(values), -1), sensors, problem)
    swapped = _violation(np.swapaxes(values, 1, 2).reshape(len(values), -1), sensors, problem)
    if as_given > LARGEST_BOUNDARY and swapped < LARGEST_BOUNDARY / 10:
        raise ValueError(
            "the axes of the measurements look swapped: the first is "
            f"{problem.coords[0]}, the second {problem.coords[1]}, and only the other way the boundary values fit"
        )
