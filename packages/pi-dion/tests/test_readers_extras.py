from __future__ import annotations

import builtins

import numpy as np
import pandas as pd
import pytest

from icl25_pi_dion.problems import ReactionDiffusionSource
from icl25_pi_dion.readers import read_measurements

pytestmark = pytest.mark.extra

PROBLEM = ReactionDiffusionSource(n_sensors=5, n_modes=3)
VALUES = np.arange(15, dtype=float).reshape(3, 5) / 7
SENSORS = PROBLEM.sensors()


def test_parquet_files_are_read(tmp_path):
    table = pd.DataFrame(VALUES, columns=range(5)).assign(id=["a", "b", "c"])
    table.set_axis([str(name) for name in table.columns], axis=1).to_parquet(tmp_path / "m.parquet")
    file = read_measurements(tmp_path / "m.parquet", PROBLEM)
    np.testing.assert_array_equal(file.measurements, VALUES)
    assert file.names == ("a", "b", "c")
    rows = [(i, *SENSORS[j], VALUES[i, j]) for i in range(3) for j in range(5)]
    pd.DataFrame(rows, columns=["sample", "x", "t", "value"]).to_parquet(tmp_path / "long.parquet")
    np.testing.assert_array_equal(read_measurements(tmp_path / "long.parquet", PROBLEM).measurements, VALUES)


def test_parquet_files_with_text_or_gaps_are_refused(tmp_path):
    path = tmp_path / "m.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "b": ["1", "low"]}).to_parquet(path)
    with pytest.raises(ValueError, match="column 'b', row 1: expected a number, found 'low'"):
        read_measurements(path)
    pd.DataFrame({"a": [1.0, 2.0], "b": pd.array([1, None], "Int64")}).to_parquet(path)
    with pytest.raises(ValueError, match="column 'b', row 1: expected a finite number"):
        read_measurements(path)


@pytest.mark.parametrize("name", ["d.h5", "d.hdf5"])
def test_hdf5_files_are_read(tmp_path, name):
    import h5py

    with h5py.File(tmp_path / name, "w") as file:
        file["measurements"], file["s"], file["sensors"] = VALUES, VALUES + 1, SENSORS
        file["sample"] = ["a", "b", "c"]
        file.create_group("notes")
    found = read_measurements(tmp_path / name, PROBLEM)
    np.testing.assert_array_equal(found.measurements, VALUES)
    np.testing.assert_array_equal(found.s, VALUES + 1)
    assert found.names == ("a", "b", "c")
    with h5py.File(tmp_path / name, "a") as file:
        del file["measurements"]
    with pytest.raises(ValueError, match="there is no array 'measurements'; it holds s, sample, sensors"):
        read_measurements(tmp_path / name)


def test_netcdf_files_are_read(tmp_path):
    import xarray

    arrays = {"measurements": (("sample", "sensor"), VALUES), "sensors": (("sensor", "coordinate"), SENSORS)}
    dataset = xarray.Dataset(arrays, {"sample": ["a", "b", "c"]})
    dataset.to_netcdf(tmp_path / "d.nc", engine="h5netcdf")
    file = read_measurements(tmp_path / "d.nc", PROBLEM)
    np.testing.assert_array_equal(file.measurements, VALUES)
    assert file.names == ("a", "b", "c")


@pytest.mark.parametrize("name", ["d.h5", "d.nc", "d.parquet"])
def test_damaged_files_are_refused_in_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1 \x89HDF nothing of the kind" * 9)
    with pytest.raises(ValueError, match=r"^[^\n]*: not a readable [^\n]*$"):
        read_measurements(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [("d.h5", "h5py", "hdf5"), ("d.nc", "xarray", "xarray"), ("d.parquet", "pyarrow", "parquet")],
)
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, name, library, extra):
    (tmp_path / name).write_bytes(b"anything")
    real = builtins.__import__

    def without(module, *arguments, **options):
        if module.partition(".")[0] == library:
            raise ImportError(name=library)
        return real(module, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=rf"pip install 'icl25-pi-dion\[{extra}\]'"):
        read_measurements(tmp_path / name)
