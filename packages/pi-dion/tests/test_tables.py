from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from icl25_pi_dion.results import InversionResult
from icl25_pi_dion.tables import result_table, write_arrays, write_result, write_result_table

X = np.linspace(0, 1, 5)
PLANE = np.stack(np.meshgrid(np.linspace(0, 1, 3), [0.1, 0.2], indexing="ij"), axis=-1).reshape(-1, 2)


def inversions(points=None, shape=(5,), n=3, u=False, target=("x",), coords=("x", "t")):
    points = X[:, None] if points is None else points
    rng = np.random.default_rng(0)
    diagnostics = [rng.uniform(size=n) for _ in range(4)]
    at = np.column_stack([X[:2], np.ones(2)])
    return InversionResult(
        rng.normal(size=(n, *shape)),
        points,
        rng.normal(size=(n, 2)) if u else None,
        at if u else None,
        *diagnostics,
        refined=True,
        n_refine=2,
        meta={"coords": coords, "target_coords": target},
    )


def read_back(path):
    """A table with its numbers to the last bit."""
    table = pd.read_csv(path, dtype=str)
    return table.astype({name: float for name in table.columns if name != "sample"})


def test_equal_arrays_give_equal_bytes(tmp_path, monkeypatch):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(["x", "yy"]), "c": np.float32(1)}
    write_arrays(tmp_path / "one.npz", arrays)
    later = time.time() + 1e8
    monkeypatch.setattr(time, "time", lambda: later)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(later))
    write_arrays(tmp_path / "two.npz", arrays)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with np.load(tmp_path / "one.npz", allow_pickle=False) as file:
        assert file.files == ["a", "b", "c"]
        for name, array in arrays.items():
            np.testing.assert_array_equal(file[name], array)


def test_files_are_whole_or_absent(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(ValueError, match="allow_pickle"):
        write_arrays(path, {"a": np.zeros(3), "b": np.array([{}], object)})
    assert list(tmp_path.iterdir()) == []
    write_arrays(path, {"a": np.zeros(3)})
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write_arrays(path, {"a": np.ones(3)})
    assert path.read_bytes() == before
    write_arrays(path, {"a": np.ones(3)}, force=True)
    assert path.read_bytes() != before
    assert list(tmp_path.iterdir()) == [path]


def test_tables_have_a_column_for_each_point(tmp_path):
    result = inversions(u=True)
    write_result_table(tmp_path / "r.csv", result, names=["a", "b", "c"])
    table = read_back(tmp_path / "r.csv")
    diagnostics = ["residual_rms", "misfit_rms", "error_estimate", "ood_score"]
    at_points = ["s(x=0)", "s(x=0.25)", "s(x=0.5)", "s(x=0.75)", "s(x=1)", "u(x=0,t=1)", "u(x=0.25,t=1)"]
    assert list(table) == ["sample", *diagnostics, *at_points]
    assert table["sample"].tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(table["s(x=0.25)"], result.s[:, 1])
    np.testing.assert_array_equal(table["u(x=0.25,t=1)"], result.u[:, 1])
    for name in diagnostics:
        np.testing.assert_array_equal(table[name], getattr(result, name))


def test_points_in_the_plane_are_named_by_both_coordinates():
    result = inversions(PLANE, (3, 2), target=("x", "y"), coords=("x", "y"))
    table = result_table(result)
    assert list(table)[5:] == [f"s(x={x:g},y={y:g})" for x, y in PLANE]
    np.testing.assert_array_equal(table["s(x=0.5,y=0.2)"], result.s[:, 1, 1])
    assert table["sample"].tolist() == [0, 1, 2]


def test_points_that_are_close_keep_names_of_their_own():
    near = np.array([[0.5], [0.5 + 1e-8], [0.5 + 1e-16], [0.5 + 3e-16], [0.5 + 3e-16]])
    names = list(result_table(inversions(near)))[5:]
    assert len(set(names)) == 5


def test_the_ending_says_how_a_result_is_written(tmp_path):
    result = inversions(u=True)
    write_result(tmp_path / "r.npz", result, names=["a", "b", "c"])
    with np.load(tmp_path / "r.npz", allow_pickle=False) as file:
        assert file["sample"].tolist() == ["a", "b", "c"]
        for name, array in result.arrays().items():
            np.testing.assert_array_equal(file[name], array)
    write_result(tmp_path / "r.csv", result)
    pd.testing.assert_frame_equal(
        read_back(tmp_path / "r.csv"), result_table(result).astype({"sample": str}), check_exact=True
    )
    with pytest.raises(ValueError, match=r"unknown kind of file '.txt', expected one of .npz, .csv"):
        write_result(tmp_path / "r.txt", result)


def test_results_write_themselves(tmp_path):
    result = inversions()
    result.to_npz(tmp_path / "r.npz")
    result.to_csv(tmp_path / "r.csv")
    with np.load(tmp_path / "r.npz") as file:
        assert "u" not in file.files
        np.testing.assert_array_equal(file["s"], result.s)
    for write in (result.to_npz, result.to_csv):
        with pytest.raises(FileExistsError):
            write(tmp_path / "r.npz")


@pytest.mark.extra
def test_datasets_have_the_coordinates_of_s():
    result = inversions(PLANE, (3, 2), target=("x", "y"), coords=("x", "y"), u=True)
    dataset = result.to_xarray()
    assert dataset["s"].dims == ("sample", "x", "y")
    np.testing.assert_array_equal(dataset["s"].sel(x=0.5, y=0.2), result.s[:, 1, 1])
    assert dataset["u"].dims == ("sample", "point_u")
    np.testing.assert_array_equal(dataset["x_u"], result.points_u[:, 0])
    np.testing.assert_array_equal(dataset["error_estimate"], result.error_estimate)
    assert dataset.attrs == {"refined": 1, "n_refine": 2}
    scattered = inversions(np.array([[0.1, 0.2], [0.3, 0.1], [0.5, 0.9]]), (3,), target=("x", "y")).to_xarray()
    assert scattered["s"].dims == ("sample", "point")
    assert scattered["y"].values.tolist() == [0.2, 0.1, 0.9]


@pytest.mark.extra
@pytest.mark.parametrize("ending", [".nc", ".h5", ".hdf5", ".parquet"])
def test_optional_formats_hold_the_same(tmp_path, ending):
    import h5py
    import xarray

    result = inversions(u=True)
    path = tmp_path / f"r{ending}"
    write_result(path, result, names=["a", "b", "c"])
    if ending == ".parquet":
        pd.testing.assert_frame_equal(pd.read_parquet(path), result_table(result, ["a", "b", "c"]), check_dtype=False)
    elif ending == ".nc":
        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
            np.testing.assert_array_equal(dataset["s"], result.s)
            assert dataset["sample"].values.tolist() == ["a", "b", "c"]
    else:
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["s"][()], result.s)
            assert file["sample"].asstr()[()].tolist() == ["a", "b", "c"]
    with pytest.raises(FileExistsError):
        write_result(path, result)
