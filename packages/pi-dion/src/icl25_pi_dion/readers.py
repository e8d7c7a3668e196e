"""Measurement files as users have them: arrays (NPZ, NPY, HDF5, NetCDF) and tables (CSV, Parquet)."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from icl25_pi_dion.checks import problem_for
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.readings import SensorReadings
from icl25_pi_dion.table_readers import read_table

__all__ = ["MeasurementFile", "read_measurements"]

SENSOR_TOLERANCE = 1e-6
_REQUIRED = "measurements"
_NAMES = (_REQUIRED, "s", "u", "sensors", "points_u", "mask", "sample")


@dataclass(frozen=True)
class MeasurementFile:
    """What a file of measurements holds.

    Attributes:
        measurements: One row a sample; or readings with sensors that differ from sample to sample.
        s: True unknowns, if the file holds them.
        u: True solutions, if the file holds them, flattened.
        points_u: Where ``u`` is given; None where that is at the sensors.
        sensors: Where the measurements were taken, if the file says so, one point a row.
        names: Name of each sample: that of the file, else its number.
    """

    measurements: Float[np.ndarray, "n *shape"] | SensorReadings
    s: Float[np.ndarray, "n *target"] | None = None
    u: Float[np.ndarray, "n n_u"] | None = None
    points_u: Float[np.ndarray, "n_u d"] | None = None
    sensors: Float[np.ndarray, "m d"] | None = None
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.names)


def read_measurements(
    path: str | os.PathLike[str], problem: InverseProblem | None = None, *, allow_missing: bool = False
) -> MeasurementFile:
    """Read a file of measurements; what kind it is, its ending says.

    NPZ, HDF5 and NetCDF files hold arrays: ``measurements`` (n, ...), and optionally ``s``, ``u``, ``sensors`` (m, d),
    ``points_u`` and ``sample``. With ``sensors`` of shape (n, m, d), and optionally ``mask`` (n, m), each sample has
    sensors of its own. NPY files hold the measurements alone. CSV and Parquet files are tables, wide (a row for each
    sample, a column for each sensor, optionally a column ``sample`` or ``id``) or long (a row for each reading with
    ``sample``, the coordinates of the problem, and ``value``).

    Args:
        path: The file: .npz, .npy, .csv, .parquet, .pq, .h5, .hdf5 or .nc.
        problem: The inverse problem, whose coordinates long tables name and with whose sensors those of the file are
            compared.
        allow_missing: Let NaN pass, which then stands for a sensor that was not read.

    Returns:
        The arrays.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        ValueError: If the file is corrupt, empty, lacks an array or a column, holds something else than finite numbers,
            or was measured by other sensors than those of the problem. The message is one line.
        ImportError: If the file needs a library that is not installed; the message says which extra to install.

    Source:
        This package's.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, expected a file of measurements")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    readers: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
        ".npz": _read_npz,
        ".npy": _read_npy,
        ".h5": _read_hdf5,
        ".hdf5": _read_hdf5,
        ".nc": _read_netcdf,
    }
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet", ".pq"):
        measurements, names = read_table(path, problem, allow_missing=allow_missing)
        return MeasurementFile(measurements, names=names)
    if suffix not in readers:
        known = ", ".join([*readers, ".csv", ".parquet", ".pq"])
        raise ValueError(f"{path}: unknown kind of file {suffix!r}, expected one of {known}")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty")
    return _checked(path, readers[suffix](path), problem, allow_missing=allow_missing)


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not a readable NPZ file (it is no zip archive)")
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # NumPy would read an array of a damaged shape
        if broken is not None:
            raise ValueError(f"{path}: not a readable NPZ file ({broken} is damaged)")
        with np.load(path, allow_pickle=False) as file:
            return {name: _member(file, path, name) for name in _present(path, file.files)}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{path}: not a readable NPZ file ({first_line(error)})") from error


def _member(file: Any, path: Path, name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        raise _unreadable(f"{path}: array {name!r}", error) from error


def _read_npy(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as file:
            return {_REQUIRED: np.lib.format.read_array(file, allow_pickle=False)}
    except (ValueError, EOFError, OSError) as error:
        raise _unreadable(str(path), error) from error


def _unreadable(where: str, error: Exception) -> ValueError:
    message = first_line(error)
    if "allow_pickle" in message or "Python objects" in message:
        return ValueError(f"{where}: holds Python objects, which are never unpickled; save plain arrays")
    return ValueError(f"{where}: not a readable array ({message})")


def _read_hdf5(path: Path) -> dict[str, np.ndarray]:
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"{path}: HDF5 files need h5py: pip install 'icl25-pi-dion[hdf5]'") from error
    try:
        with h5py.File(path, "r") as file:
            names = [name for name, item in file.items() if isinstance(item, h5py.Dataset)]
            found = {}
            for name in _present(path, names):
                item: Any = file[name]
                found[name] = np.asarray(item.asstr()[()] if h5py.check_string_dtype(item.dtype) else item[()])
            return found
    except OSError as error:
        raise ValueError(f"{path}: not a readable HDF5 file ({first_line(error)})") from error


def _read_netcdf(path: Path) -> dict[str, np.ndarray]:
    try:
        import h5netcdf  # noqa: F401 - the engine of xarray
        import xarray
    except ImportError as error:
        raise ImportError(f"{path}: NetCDF files need xarray: pip install 'icl25-pi-dion[xarray]'") from error
    try:
        with xarray.open_dataset(path, engine="h5netcdf", decode_times=False) as file:
            names = [str(name) for name in file.variables]
            return {name: np.asarray(file[name].values) for name in _present(path, names)}
    except (OSError, KeyError) as error:
        raise ValueError(f"{path}: not a readable NetCDF file ({first_line(error)})") from error


def _present(path: Path, names: list[str]) -> list[str]:
    if _REQUIRED not in names:
        listed = ", ".join(sorted(names)[:10]) or "none"
        raise ValueError(f"{path}: there is no array {_REQUIRED!r}; it holds {listed}")
    return [name for name in _NAMES if name in names]


def _checked(
    path: Path, arrays: Mapping[str, np.ndarray], problem: InverseProblem | None, *, allow_missing: bool
) -> MeasurementFile:
    """Check the arrays of a file, and against each other."""
    for name, array in arrays.items():
        if name not in ("sample", "mask") and array.dtype.kind not in "fiu":
            raise ValueError(f"{path}: array {name!r} holds {array.dtype}, expected real numbers")
    values = arrays[_REQUIRED].astype(float)
    if values.ndim < 2 or values.size == 0:
        raise ValueError(f"{path}: array {_REQUIRED!r} has shape {values.shape}, expected a row for each sample")
    n = len(values)
    for name in ("s", "u"):
        if name in arrays and (arrays[name].ndim < 2 or len(arrays[name]) != n):
            raise ValueError(
                f"{path}: array {name!r} has shape {arrays[name].shape}, expected {n} rows as measurements"
            )
    own = "sensors" in arrays and arrays["sensors"].ndim == 3
    if not (own and "mask" in arrays):
        _check_finite(path, _REQUIRED, values, allow_missing=allow_missing)
    for name in ("s", "u", "points_u"):
        if name in arrays:
            _check_finite(path, name, arrays[name])
    measurements = _readings(path, values, arrays) if own else values
    sensors = None
    if "sensors" in arrays and not own:
        sensors = arrays["sensors"].astype(float)
        _check_finite(path, "sensors", sensors)
        sensors = sensors[:, None] if sensors.ndim == 1 else sensors
        if sensors.ndim != 2 or len(sensors) != values[0].size:
            raise ValueError(
                f"{path}: array 'sensors' has shape {arrays['sensors'].shape}, "
                f"expected a row for each of the {values[0].size} sensors"
            )
        if problem is not None:
            _compare_sensors(path, sensors, problem, values)
    u = arrays["u"].reshape(n, -1).astype(float) if "u" in arrays else None
    points_u = arrays["points_u"].astype(float) if "points_u" in arrays else None
    if u is not None and points_u is not None and (points_u.ndim != 2 or len(points_u) != u.shape[1]):
        raise ValueError(
            f"{path}: array 'points_u' has shape {points_u.shape}, expected {u.shape[1]} rows as u has values"
        )
    s = arrays["s"].astype(float) if "s" in arrays else None
    return MeasurementFile(measurements, s, u, points_u, sensors, _names(path, arrays, n))


def _check_finite(path: Path, name: str, array: np.ndarray, *, allow_missing: bool = False) -> None:
    bad = np.argwhere(np.isinf(array) if allow_missing else ~np.isfinite(array))
    if len(bad):
        found = "NaN" if np.isnan(array[tuple(bad[0])]) else "an infinite value"
        row, *rest = (int(index) for index in bad[0])
        where = f"sample {row}, sensor {', '.join(map(str, rest))}" if name == _REQUIRED else f"at {(row, *rest)}"
        raise ValueError(
            f"{path}: array {name!r} has {len(bad)} values that are not finite, the first, {found}, {where}"
        )


def _readings(path: Path, values: np.ndarray, arrays: Mapping[str, np.ndarray]) -> SensorReadings:
    """Samples with sensors of their own; what is missing is NaN, or marked by a mask."""
    locations = arrays["sensors"].astype(float)
    mask = arrays["mask"].astype(bool) if "mask" in arrays else ~np.isnan(values)
    if values.ndim != 2 or locations.shape[:2] != values.shape or mask.shape != values.shape:
        raise ValueError(
            f"{path}: samples with sensors of their own need measurements (n, m), sensors (n, m, d) and a mask (n, m), "
            f"found {values.shape}, {locations.shape} and {mask.shape}"
        )
    _check_finite(path, _REQUIRED, np.where(mask, values, 0.0))
    _check_finite(path, "sensors", np.where(mask[..., None], locations, 0.0))
    return SensorReadings(np.where(mask, values, 0.0), locations, mask)


def _compare_sensors(path: Path, sensors: np.ndarray, problem: InverseProblem, values: np.ndarray) -> None:
    expected = np.asarray(problem_for(problem, values).sensors(), float)
    if sensors.shape[1] == 1 and expected.shape[1] > 1:
        varying = np.flatnonzero(np.ptp(expected, axis=0) > 0)
        expected = expected[:, varying] if len(varying) == 1 else expected
    if sensors.shape != expected.shape:
        raise ValueError(f"{path}: array 'sensors' has shape {sensors.shape}, that of the problem {expected.shape}")
    apart = np.abs(sensors - expected).max(axis=1)
    if apart.max() > SENSOR_TOLERANCE:
        i = int(np.argmax(apart > SENSOR_TOLERANCE))
        in_order = [rows[np.lexsort(np.round(rows, 6).T)] for rows in (sensors, expected)]
        hint = "; they are the same in another order" if np.allclose(*in_order, rtol=0, atol=SENSOR_TOLERANCE) else ""
        raise ValueError(
            f"{path}: sensor {i} is at {_place(sensors[i])}, but at {_place(expected[i])} in the problem{hint}"
        )


def _place(point: np.ndarray) -> str:
    return f"({', '.join(f'{value:.6g}' for value in point)})"


def _names(path: Path, arrays: Mapping[str, np.ndarray], n: int) -> tuple[str, ...]:
    if "sample" not in arrays:
        return tuple(map(str, range(n)))
    names = tuple(map(str, arrays["sample"].ravel()))
    if len(names) != n or len(set(names)) != n:
        raise ValueError(
            f"{path}: array 'sample' must name each of the {n} samples once, found {len(set(names))} names"
        )
    return names


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]
