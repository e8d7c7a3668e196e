"""Files of results: arrays (NPZ, HDF5, NetCDF) and tables (CSV, Parquet), each whole or absent."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from icl25_shared import atomic_path

if TYPE_CHECKING:
    import xarray

    from icl25_pi_dion.results import InversionResult

__all__ = ["RESULT_ENDINGS", "result_dataset", "result_table", "write_arrays", "write_result", "write_result_table"]

RESULT_ENDINGS = (".npz", ".csv", ".parquet", ".nc", ".h5", ".hdf5")
_DIAGNOSTICS = ("residual_rms", "misfit_rms", "error_estimate", "ood_score")


def write_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, Shaped[np.ndarray, "*_"]], force: bool = False
) -> None:
    """Write arrays to an NPZ file; the same arrays give the same bytes.

    Args:
        path: The file.
        arrays: Arrays by name.
        force: Replace a file that exists.

    Raises:
        FileExistsError: If the file exists and ``force`` is false.
        ValueError: If an array holds Python objects, which would have to be pickled.
    """
    with atomic_path(path, force=force) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            # An entry made from its name alone may carry the time of writing.
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def result_table(result: InversionResult, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return inversions as a table.

    Args:
        result: The inversions.
        names: Names of the samples. Default: their numbers.

    Returns:
        A row for each sample: its name, its diagnostics, s at each point, in columns such as ``s(x=0.1,y=0.2)``, and u
        likewise where the result has it.
    """
    n = len(result)
    columns: dict[str, Any] = {"sample": np.arange(n) if names is None else list(names)}
    columns |= {name: getattr(result, name) for name in _DIAGNOSTICS}
    target, coords = _letters(result)
    columns |= dict(zip(_places("s", target, result.points_s), result.s.reshape(n, -1).T, strict=True))
    if result.u is not None and result.points_u is not None:
        columns |= dict(zip(_places("u", coords, result.points_u), result.u.T, strict=True))
    return pd.DataFrame(columns)


def write_result_table(
    path: str | os.PathLike[str], result: InversionResult, force: bool = False, names: Sequence[str] | None = None
) -> None:
    """Write inversions as CSV; see ``result_table``.

    Args:
        path: The file.
        result: The inversions.
        force: Replace a file that exists.
        names: Names of the samples. Default: their numbers.

    Raises:
        FileExistsError: If the file exists and ``force`` is false.
    """
    with atomic_path(path, force=force) as temporary:
        result_table(result, names).to_csv(temporary, index=False)


def result_dataset(result: InversionResult, names: Sequence[str] | None = None) -> xarray.Dataset:
    """Return inversions as a dataset of xarray.

    Args:
        result: The inversions.
        names: Names of the samples. Default: their numbers.

    Returns:
        ``s`` over ``sample`` and its coordinates, or over ``sample`` and ``point`` where the points form no grid; ``u``
        over ``sample`` and ``point_u``; the diagnostics over ``sample``.

    Raises:
        ImportError: If xarray is not installed.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError("datasets need xarray: pip install 'icl25-pi-dion[xarray]'") from error
    n = len(result)
    target, letters = _letters(result)
    coords: dict[str, Any] = {"sample": np.arange(n) if names is None else np.asarray(names, dtype=str)}
    axes = _axes(result.points_s, result.s.shape[1:])
    variables: dict[str, Any]
    if axes is None:
        variables = {"s": (("sample", "point"), result.s.reshape(n, -1))}
        coords |= {letter: ("point", result.points_s[:, i]) for i, letter in enumerate(target)}
    else:
        variables = {"s": (("sample", *target), result.s)}
        coords |= dict(zip(target, axes, strict=True))
    if result.u is not None and result.points_u is not None:
        variables["u"] = (("sample", "point_u"), result.u)
        coords |= {f"{letter}_u": ("point_u", result.points_u[:, i]) for i, letter in enumerate(letters)}
    variables |= {name: ("sample", getattr(result, name)) for name in _DIAGNOSTICS}
    attributes = {"refined": int(result.refined), "n_refine": result.n_refine}
    return xarray.Dataset(variables, coords, attributes)


def write_result(
    path: str | os.PathLike[str], result: InversionResult, force: bool = False, names: Sequence[str] | None = None
) -> None:
    """Write inversions; the ending of the file says how.

    Args:
        path: The file: .npz, .csv, .parquet, .nc, .h5 or .hdf5.
        result: The inversions.
        force: Replace a file that exists.
        names: Names of the samples. Default: their numbers.

    Raises:
        FileExistsError: If the file exists and ``force`` is false.
        ValueError: If the ending is none of these.
        ImportError: If a library is needed that is not installed; the message says which extra to install.
    """
    path = Path(path)
    writers: dict[str, Callable[[Path], None]] = {
        ".csv": lambda file: result_table(result, names).to_csv(file, index=False),
        ".parquet": lambda file: _write_parquet(file, result_table(result, names)),
        ".nc": lambda file: _write_netcdf(file, result_dataset(result, names)),
        ".h5": lambda file: _write_hdf5(file, _named(result, names)),
        ".hdf5": lambda file: _write_hdf5(file, _named(result, names)),
    }
    suffix = path.suffix.lower()
    if suffix == ".npz":
        write_arrays(path, _named(result, names), force=force)
        return
    if suffix not in writers:
        raise ValueError(f"{path}: unknown kind of file {suffix!r}, expected one of {', '.join(RESULT_ENDINGS)}")
    with atomic_path(path, force=force) as temporary:
        writers[suffix](temporary)


def _named(result: InversionResult, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    arrays = dict(result.arrays())
    return arrays if names is None else {"sample": np.asarray(names, dtype=str), **arrays}


def _write_parquet(path: Path, table: pd.DataFrame) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError("Parquet files need pyarrow: pip install 'icl25-pi-dion[parquet]'") from error
    parquet.write_table(pa.Table.from_pandas(table, preserve_index=False), path)


def _write_netcdf(path: Path, dataset: xarray.Dataset) -> None:
    try:
        import h5netcdf  # noqa: F401 - the engine of xarray
    except ImportError as error:
        raise ImportError("NetCDF files need h5netcdf: pip install 'icl25-pi-dion[xarray]'") from error
    dataset.to_netcdf(path, engine="h5netcdf")


def _write_hdf5(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    try:
        import h5py
    except ImportError as error:
        raise ImportError("HDF5 files need h5py: pip install 'icl25-pi-dion[hdf5]'") from error
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array.tolist() if array.dtype.kind == "U" else array)


def _letters(result: InversionResult) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the coordinates of s and of u."""
    d_s, d_u = result.points_s.shape[1], 0 if result.points_u is None else result.points_u.shape[1]
    target = result.meta.get("target_coords") or [f"x{i}" for i in range(d_s)]
    coords = result.meta.get("coords") or [f"x{i}" for i in range(d_u)]
    return tuple(target), tuple(coords)


def _places(function: str, letters: Sequence[str], points: Float[np.ndarray, "n d"]) -> list[str]:
    """Names such as s(x=0.1,y=0.2), with as many digits as keep them apart."""
    for digits in (6, 9, 17):
        names = [
            f"{function}({','.join(f'{a}={v:.{digits}g}' for a, v in zip(letters, point, strict=True))})"
            for point in points
        ]
        if len(set(names)) == len(names):
            return names
    return [f"{name}#{i}" for i, name in enumerate(names)]


def _axes(points: Float[np.ndarray, "n d"], shape: tuple[int, ...]) -> list[np.ndarray] | None:
    """The coordinates along each axis, if points form a grid of this shape."""
    if len(shape) != points.shape[1]:
        return None
    grid = points.reshape(*shape, -1)
    axes = [np.moveaxis(grid[..., i], i, 0).reshape(shape[i], -1) for i in range(len(shape))]
    return [axis[:, 0] for axis in axes] if all(np.ptp(axis, axis=1).max() == 0 for axis in axes) else None
