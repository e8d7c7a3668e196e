from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.problems import HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.readers import read_measurements
from icl25_pi_dion.readings import SensorReadings
from icl25_pi_dion.tables import write_arrays

PROBLEM = ReactionDiffusionSource(n_sensors=5, n_modes=3)
VALUES = np.arange(15, dtype=float).reshape(3, 5) / 7
SENSORS = PROBLEM.sensors()


class Free(InverseProblem):
    """A problem that takes its sensors from the measurements."""


def wide(path, **columns):
    pd.DataFrame({**columns, **{f"u{j}": VALUES[:, j] for j in range(5)}}).to_csv(path, index=False)
    return path


def long(rows, path, columns=("sample", "x", "t", "value")):
    pd.DataFrame(rows, columns=list(columns)).to_csv(path, index=False)
    return path


def rows_at_sensors():
    return [(f"p{i}", SENSORS[j, 0], SENSORS[j, 1], VALUES[i, j]) for i in range(3) for j in range(5)]


def test_npz_gives_every_array_that_it_holds(tmp_path):
    s, u, where = VALUES + 1, np.ones((3, 2, 2)), np.zeros((4, 2))
    arrays = {"measurements": VALUES, "s": s, "u": u, "points_u": where, "sensors": SENSORS}
    write_arrays(tmp_path / "d.npz", {**arrays, "sample": np.array(["a", "b", "c"]), "notes": np.zeros(1)})
    file = read_measurements(tmp_path / "d.npz", PROBLEM)
    np.testing.assert_array_equal(file.measurements, VALUES)
    np.testing.assert_array_equal(file.s, s)
    np.testing.assert_array_equal(file.u, u.reshape(3, 4))
    np.testing.assert_array_equal(file.points_u, where)
    np.testing.assert_array_equal(file.sensors, SENSORS)
    assert file.names == ("a", "b", "c")


def test_integers_and_single_precision_become_double(tmp_path):
    for kind in (np.int32, np.float32, np.uint8):
        np.save(tmp_path / "m.npy", np.arange(6).reshape(2, 3).astype(kind))
        file = read_measurements(tmp_path / "m.npy")
        assert file.measurements.dtype == np.float64
        assert file.names == ("0", "1")


def test_samples_with_sensors_of_their_own(tmp_path):
    rng = np.random.default_rng(0)
    where, mask = rng.uniform(size=(3, 5, 2)), rng.uniform(size=(3, 5)) < 0.7
    mask[:, 0] = True
    write_arrays(tmp_path / "d.npz", {"measurements": np.where(mask, VALUES, np.nan), "sensors": where, "mask": mask})
    readings = read_measurements(tmp_path / "d.npz", PROBLEM).measurements
    assert isinstance(readings, SensorReadings)
    np.testing.assert_array_equal(readings.mask, mask)
    np.testing.assert_array_equal(readings.values, np.where(mask, VALUES, 0))
    np.testing.assert_array_equal(readings.locations, where)


def test_wide_tables_are_read_to_the_last_bit(tmp_path):
    file = read_measurements(wide(tmp_path / "m.csv", sample=["007", "7", "b"]), PROBLEM)
    np.testing.assert_array_equal(file.measurements, VALUES)
    assert file.names == ("007", "7", "b")
    assert read_measurements(wide(tmp_path / "n.csv")).names == ("0", "1", "2")


@pytest.mark.parametrize("heading", ["0,1,2,3,4", "1,2,3,4,5", "0.0,0.25,0.5,0.75,1.0"])
def test_headings_of_numbers_that_name_sensors_are_no_sample(tmp_path, heading):
    (tmp_path / "m.csv").write_text(heading + "\n1,2,3,4,5.5\n")
    np.testing.assert_array_equal(read_measurements(tmp_path / "m.csv", PROBLEM).measurements, [[1, 2, 3, 4, 5.5]])


def test_long_tables_on_the_sensors_become_arrays_in_any_order(tmp_path):
    rows = rows_at_sensors()
    order = np.random.default_rng(0).permutation(len(rows))
    path = long([rows[i] for i in order], tmp_path / "m.csv")
    file = read_measurements(path, PROBLEM)
    by_name = dict(zip(file.names, file.measurements, strict=True))
    for i in range(3):
        np.testing.assert_array_equal(by_name[f"p{i}"], VALUES[i])


def test_long_tables_may_leave_out_the_time_of_all_sensors(tmp_path):
    rows = [(name, x, value) for name, x, _, value in rows_at_sensors()]
    file = read_measurements(long(rows, tmp_path / "m.csv", ("sample", "x", "value")), PROBLEM)
    np.testing.assert_array_equal(file.measurements, VALUES)


def test_ragged_long_tables_become_sets(tmp_path):
    rows = rows_at_sensors()
    path = long([*rows[:5], *rows[5:7], *rows[10:14]], tmp_path / "m.csv")
    readings = read_measurements(path, PROBLEM).measurements
    assert isinstance(readings, SensorReadings)
    assert readings.mask.sum(axis=1).tolist() == [5, 2, 4]
    np.testing.assert_array_equal(readings.values[1, :2], VALUES[1, :2])
    np.testing.assert_array_equal(readings.locations[2, :4], SENSORS[:4])


def test_empty_cells_are_readings_that_are_missing_only_where_that_is_allowed(tmp_path):
    rows = rows_at_sensors()
    rows[6] = (*rows[6][:3], np.nan)
    path = long([*rows, ("p0", 0.1, 0.5, 1.0)], tmp_path / "m.csv")
    with pytest.raises(ValueError, match="column 'value', row 6"):
        read_measurements(path, PROBLEM)
    readings = read_measurements(path, PROBLEM, allow_missing=True).measurements
    assert isinstance(readings, SensorReadings)
    assert readings.mask.sum(axis=1).tolist() == [6, 4, 5]
    np.save(tmp_path / "m.npy", np.where(VALUES[1, 2] == VALUES, np.nan, VALUES))
    with pytest.raises(ValueError, match="NaN, sample 1, sensor 2"):
        read_measurements(tmp_path / "m.npy")
    assert np.isnan(read_measurements(tmp_path / "m.npy", allow_missing=True).measurements[1, 2])


def test_sensors_are_compared_with_those_of_the_problem(tmp_path):
    path = tmp_path / "d.npz"

    def write(sensors):
        write_arrays(path, {"measurements": VALUES, "sensors": sensors}, force=True)

    for sensors in (SENSORS, SENSORS + 9e-7, SENSORS[:, 0]):
        write(sensors)
        read_measurements(path, PROBLEM)
    write(SENSORS + np.array([[0, 0], [0, 0], [2e-6, 0], [0, 0], [0, 0]]))
    with pytest.raises(ValueError, match=r"sensor 2 is at \(0.500002, 1\), but at \(0.5, 1\) in the problem$"):
        read_measurements(path, PROBLEM)
    write(SENSORS[::-1])
    with pytest.raises(ValueError, match="they are the same in another order"):
        read_measurements(path, PROBLEM)
    write(SENSORS[:4])
    with pytest.raises(ValueError, match=r"'sensors' has shape \(4, 2\), expected a row for each of the 5 sensors"):
        read_measurements(path, PROBLEM)
    write(SENSORS)
    read_measurements(path, Free())  # whose sensors are a grid of the shape of the measurements


def test_grids_in_two_dimensions_are_read(tmp_path):
    problem = HelmholtzCoefficient(n_grid=5)
    field = np.random.default_rng(0).normal(size=(2, 5, 5))
    write_arrays(tmp_path / "d.npz", {"measurements": field, "sensors": problem.sensors()})
    np.testing.assert_array_equal(read_measurements(tmp_path / "d.npz", problem).measurements, field)
    rows = [(i, *p, v) for i in range(2) for p, v in zip(problem.sensors(), field[i].ravel(), strict=True)]
    path = long(rows, tmp_path / "m.csv", ("sample", "x", "y", "value"))
    np.testing.assert_array_equal(read_measurements(path, problem).measurements, field.reshape(2, 25))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.csv", b"", "m.csv is empty"),
        ("m.csv", b"a,b\n", "m.csv: the table has no rows"),
        ("m.csv", b"a,b\n1,2\n3\n", "column 'b', row 1: expected a finite number, found NaN or an empty cell"),
        ("m.csv", b"a,b\n1,2\n3,4,5\n", "m.csv: not a readable CSV file (Expected 2 fields in line 3, saw 3)"),
        ("m.csv", b"a,b\n1,2,3\n4,5,6\n", "m.csv: not a readable CSV file"),
        ("m.csv", b"a,b\n1,2\n3,high\n", "column 'b', row 1: expected a number, found 'high'"),
        ("m.csv", b"a,b\n1,2\n3,inf\n", "column 'b', row 1: expected a finite number, found an infinite value"),
        ("m.csv", b"a,b\n1,True\n3,True\n", "column 'b', row 0: expected a number, found 'True'"),
        ("m.csv", b"a,a\n1,2\n", "column 'a' stands twice in the heading"),
        ("m.csv", b"0.3,0.5\n1,2\n", "the first line must name the columns, found numbers (0.3, 0.5, ...)"),
        ("m.csv", b"sample,a\nx,1\nx,2\n", "column 'sample', row 1: sample 'x' stands there a second time"),
        ("m.csv", b"sample,a\nx,1\n,2\n", "column 'sample', row 1: there is no name of the sample"),
        ("m.csv", b"sample\nx\n", "there is no column of readings beside 'sample'"),
        ("m.csv", b"a,b\n\xff\xfe,2\n", "byte 4 is not UTF-8"),
        (
            "m.csv",
            b"sample,x,t,value\n1,0.5,1,2\n1,0.5,1,3\n",
            "row 1: sample '1' has a second reading at x = 0.5, t = 1",
        ),
        ("m.csv", b"sample,t,value\n1,1,2\n", "there is no column 'x'; a long table has sample, x, t, value"),
        ("m.csv", b"x,value\n1,2\n", "there is no column 'sample'"),
        ("m.csv", b"sample,x,t,value,unit\n1,0,1,2,K\n", "unexpected column 'unit'"),
        ("m.csv", b"sample,x,t,value\n1,left,1,2\n", "column 'x', row 0: expected a number, found 'left'"),
        ("m.csv", b"sample,x,t,value\n1,,1,2\n", "column 'x', row 0: expected a finite number"),
        ("m.npz", b"", "m.npz is empty"),
        ("m.npz", b"PK no archive", "m.npz: not a readable NPZ file (it is no zip archive)"),
        ("m.npy", b"", "m.npy is empty"),
        ("m.npy", b"\x93NUMPY\x01", "m.npy: not a readable array"),
        ("m.txt", b"1 2", "m.txt: unknown kind of file '.txt', expected one of .npz"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        read_measurements(tmp_path / name, PROBLEM)
    assert message in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"readings": VALUES}, "there is no array 'measurements'; it holds readings"),
        ({"measurements": VALUES.astype(str)}, "array 'measurements' holds <U"),
        ({"measurements": VALUES > 1}, "array 'measurements' holds bool, expected real numbers"),
        ({"measurements": VALUES + 1j}, "array 'measurements' holds complex128"),
        ({"measurements": VALUES[0]}, r"array 'measurements' has shape \(5,\), expected a row for each sample"),
        ({"measurements": VALUES[:0]}, r"array 'measurements' has shape \(0, 5\)"),
        ({"measurements": VALUES, "s": VALUES[:2]}, r"array 's' has shape \(2, 5\), expected 3 rows"),
        ({"measurements": VALUES, "s": np.full((3, 5), np.nan)}, r"array 's' has 15 values .* NaN, at \(0, 0\)"),
        ({"measurements": VALUES, "u": VALUES, "points_u": SENSORS[:3]}, r"'points_u' has shape \(3, 2\), expected 5"),
        (
            {"measurements": VALUES, "sample": np.array(["a", "a", "b"])},
            "must name each of the 3 samples once, found 2",
        ),
        ({"measurements": np.where(VALUES > 1.9, np.inf, VALUES)}, "1 values .* an infinite value, sample 2, sensor 4"),
        ({"measurements": VALUES, "sensors": np.zeros((3, 4, 2))}, "samples with sensors of their own need"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, arrays, message):
    write_arrays(tmp_path / "d.npz", arrays)
    with pytest.raises(ValueError, match=message):
        read_measurements(tmp_path / "d.npz", PROBLEM)


def test_objects_are_never_unpickled(tmp_path):
    objects = np.array([{"a": 1}], object)
    np.savez(tmp_path / "d.npz", measurements=objects)
    np.save(tmp_path / "d.npy", objects)
    for name in ("d.npz", "d.npy"):
        with pytest.raises(ValueError, match="holds Python objects, which are never unpickled"):
            read_measurements(tmp_path / name)


def test_an_array_whose_shape_is_damaged_is_not_read(tmp_path):
    path = tmp_path / "d.npz"
    write_arrays(path, {"measurements": VALUES})
    path.write_bytes(path.read_bytes().replace(b"(3, 5)", b"(3, 4)"))
    with pytest.raises(ValueError, match=r"measurements\.npy is damaged"):
        read_measurements(path)


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_measurements(tmp_path / "m.csv")
    with pytest.raises(IsADirectoryError, match="is a folder, expected a file"):
        read_measurements(tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_archive_is_refused_or_read_as_it_was(tmp_path, data):
    path = tmp_path / "d.npz"
    write_arrays(path, {"measurements": VALUES}, force=True)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        file = read_measurements(path)
    except ValueError:
        return
    np.testing.assert_array_equal(file.measurements, VALUES)
