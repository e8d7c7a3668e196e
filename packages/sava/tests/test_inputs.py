from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

from icl25_sava.checks import duplicated_rows, warn_about_drift
from icl25_sava.inputs import MappedRows, Rows, encode_labels, fingerprint, read_labels, read_rows

X = np.arange(12, dtype=np.float64).reshape(4, 3)


@pytest.mark.parametrize(
    "container",
    [
        X,
        X.astype(np.float32),
        X.astype(np.int16),
        X.tolist(),
        pd.DataFrame(X, columns=list("abc")),
        pa.table({name: X[:, i] for i, name in enumerate("abc")}),
        pa.table({"embedding": pa.FixedSizeListArray.from_arrays(X.ravel(), 3)}),
        X.reshape(4, 3, 1),
        np.asfortranarray(X),
    ],
)
def test_any_container_gives_the_same_rows(container):
    rows, labels = read_rows(container, "X", "labels as given")
    assert rows.take(np.array([2, 0])) == pytest.approx(X[[2, 0]])
    assert len(rows) == 4
    assert rows.n_features == 3
    assert labels == "labels as given"


def test_chunks_are_read_once_and_spooled():
    chunks = ((X[i : i + 3], ["a", "b", "c"][: len(X[i : i + 3])]) for i in (0, 3))
    rows, labels = read_rows(chunks, "X")
    assert isinstance(rows.array, np.memmap)
    assert rows.take(np.arange(4)) == pytest.approx(X)
    assert labels.tolist() == ["a", "b", "c", "a"]
    assert next(chunks, None) is None


def test_a_memory_map_goes_to_workers_by_its_place(tmp_path):
    np.save(tmp_path / "x.npy", X)
    rows, _ = read_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), "X")
    handle = rows.handle(np.array([3, 1]))
    assert isinstance(handle, MappedRows)
    assert handle.load() == pytest.approx(X[[3, 1]])
    sliced, _ = read_rows(np.load(tmp_path / "x.npy", mmap_mode="r")[1:], "X")
    where = sliced.handle(np.array([0]))
    assert (where.load() if isinstance(where, MappedRows) else where) == pytest.approx(X[[1]])


def bad(row, column, value):
    broken = X.copy()
    broken[row, column] = value
    return broken


@pytest.mark.parametrize(
    ("container", "error", "message"),
    [
        (bad(2, 1, np.nan), ValueError, "1 values that are NaN or infinite.* is NaN at row 2, column 1"),
        (bad(3, 0, -np.inf), ValueError, "is infinite at row 3, column 0"),
        (pd.DataFrame(bad(1, 2, np.nan), columns=["a", "b", "age"]), ValueError, 'row 1, column "age"'),
        (pd.DataFrame({"a": ["x", "y"]}), ValueError, "not numeric: a"),
        (np.array([["a", "b"]]), ValueError, "must hold numbers"),
        (np.arange(3.0), ValueError, "two axes"),
        (np.empty((0, 3)), ValueError, "is empty"),
        (np.empty((3, 0)), ValueError, "is empty"),
        ([[1.0], [1.0, 2.0]], ValueError, "not a rectangular array"),
        (csr_array(X), TypeError, "sparse"),
        (None, TypeError, "is missing"),
        (iter([]), ValueError, "gave no chunk"),
        (iter([(X, [0, 0, 0, 0]), (X[:, :2], [0, 0, 0, 0])]), ValueError, "chunk 1 has rows of shape"),
        (iter([(X, [0, 0])]), ValueError, "chunk 0 has 4 rows but labels of shape"),
        (iter([X]), TypeError, "chunk 0 is not a pair"),
    ],
)
def test_bad_rows_are_refused(container, error, message):
    with pytest.raises(error, match=message):
        read_rows(container, "X")


def test_chunks_bring_their_labels():
    with pytest.raises(TypeError, match="pass no labels beside it"):
        read_rows(iter([(X, [0] * 4)]), "X", [0] * 4)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([7, 42, -1], [7, 42, -1]),
        ([True, False, True], [True, False, True]),
        ([1.0, 2.0, 5.0], [1, 2, 5]),
        (["b", "a", "b"], ["b", "a", "b"]),
        (pd.Series(["b", "a", "b"]), ["b", "a", "b"]),
        (pd.Categorical(["b", "a", "b"]), ["b", "a", "b"]),
        (np.array(["b", "a", "b"], object), ["b", "a", "b"]),
        (np.array([[1], [2], [3]]), [1, 2, 3]),
        (pa.array(["b", "a", "b"]), ["b", "a", "b"]),
    ],
)
def test_labels_of_any_kind(labels, expected):
    assert read_labels(labels, 3, "y").tolist() == expected


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "set lambda_y=0"),
        ([1, 2], "2 labels for 3 rows"),
        (np.eye(3), "argmax"),
        ([0.5, 1.0, 2.0], "continuous targets .0.5 at row 0.*bin them"),
        ([0.0, np.nan, 1.0], "1 labels that are NaN or infinite, first at row 1"),
        (np.array(["a", None, "b"], object), "1 missing labels, first at row 1"),
        (np.array(["a", 1, "b"], object), "mixes labels of kinds int, str"),
        ([1j, 2j, 3j], "dtype complex"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        read_labels(labels, 3, "y")


def test_labels_without_weight_may_be_anything():
    assert read_labels(None, 3, "y", ignored=True).tolist() == [0, 0, 0]
    assert read_labels([0.5, 1.5, 2.5], 3, "y", ignored=True).tolist() == [0, 0, 0]


def test_encoding_by_unsorted_classes():
    assert encode_labels(np.array(["b", "z", "a"]), np.array(["z", "a", "b"]), "y").tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match="label 'q'"):
        encode_labels(np.array(["q"]), np.array(["z", "a"]), "y")
    with pytest.raises(ValueError, match="use one kind"):
        encode_labels(np.array([1]), np.array(["1"]), "y")


def test_fingerprint_sees_rows_labels_and_shape():
    rows, y = Rows(X), np.array([0, 1, 0, 1])
    same = fingerprint(Rows(X.copy()), y.copy())
    assert fingerprint(rows, y) == same
    assert fingerprint(Rows(bad(2, 1, 99.0)), y) != same
    assert fingerprint(rows, 1 - y) != same
    assert fingerprint(Rows(X[:3]), y[:3]) != same


def test_duplicates_are_found_exactly():
    rng = np.random.default_rng(0)
    train, val = rng.integers(0, 3, (500, 4)), rng.integers(0, 3, (40, 4))
    known = {tuple(row) for row in val}
    expected = [tuple(row) in known for row in train]
    assert 0 < sum(expected) < 500
    assert duplicated_rows(Rows(train), Rows(val.astype(float))).tolist() == expected


def test_drift_is_the_relative_change_of_the_class_distances():
    means, val = np.array([[0.0], [10.0]]), np.array([[0.0], [10.0]])
    assert warn_about_drift(means, means, val) == 0
    # Against the one validation class at 0 the distances go from (0, 50) to (0, 200).
    with pytest.warns(UserWarning, match="move the class distances by 300%"):
        change = warn_about_drift(means, np.array([[0.0], [20.0]]), np.array([[0.0], [np.nan]]))
    assert change == pytest.approx(3.0)
