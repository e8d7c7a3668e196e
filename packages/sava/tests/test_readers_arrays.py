from __future__ import annotations

import pickle

import numpy as np
import pytest

from icl25_sava.readers import read_dataset


def test_npz_arrays_by_their_names(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(6, 4)), np.array(list("ababab"))
    np.savez(tmp_path / "t.npz", X=X, y=y, other=X[:, :2].astype(np.int8), group=np.arange(6) % 2, key=np.arange(6) + 9)
    data = read_dataset(tmp_path / "t.npz")
    assert data.y is not None
    assert np.array_equal(data.X, X)
    assert np.array_equal(data.y, y)
    data = read_dataset(tmp_path / "t.npz", label="group", features="other", id_column="key")
    assert data.X.dtype == np.float32
    assert data.y is not None
    assert data.y.tolist() == [0, 1] * 3
    assert data.ids.tolist() == list(range(9, 15))
    np.savez_compressed(tmp_path / "i.npz", X=np.zeros((3, 4, 5, 3)))
    images = read_dataset(tmp_path / "i.npz")
    assert images.y is None
    assert images.X.shape == (3, 60)
    assert images.image_shape == (4, 5, 3)


class Explosive:
    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"y": np.zeros(3)}, {}, "no array 'X'; it has y"),
        ({"X": np.zeros((3, 2))}, {"label": "y"}, "no array 'y'"),
        ({"X": np.array([[Explosive()]], dtype=object)}, {}, "holds Python objects"),
        (
            {"X": np.zeros((3, 2)), "y": np.array([Explosive()] * 3, dtype=object)},
            {},
            "array 'y': holds Python objects",
        ),
        ({"X": np.zeros(3)}, {}, r"has shape \(3,\), expected rows and features"),
        ({"X": np.zeros((0, 3))}, {}, "at least one row"),
        ({"X": np.zeros((3, 0))}, {}, "one feature"),
        ({"X": np.array([["a", "b"]])}, {}, "holds <U1, expected numbers"),
        ({"X": np.zeros((2, 2), complex)}, {}, "expected numbers"),
        ({"X": np.zeros((3, 2)), "y": np.zeros(2)}, {}, "has 2 labels, expected one for each of 3 rows"),
        ({"X": np.zeros((3, 2)), "y": np.eye(3)}, {}, "argmax"),
        ({"X": np.zeros((3, 2)), "y": np.array([0, np.nan, np.nan])}, {}, "2 missing labels, first at row 1"),
        ({"X": np.zeros((3, 2)), "ids": np.array([1, 2, 1])}, {}, "first 1 at rows 0 and 2"),
        ({"X": np.zeros((3, 2)), "ids": np.arange(2)}, {}, "array 'ids' has shape"),
    ],
)
def test_faulty_npz_files_are_named(tmp_path, arrays, options, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_dataset(tmp_path / "t.npz", **options)


def test_npy_pairs_are_mapped_not_read(tmp_path):
    X = np.random.default_rng(0).normal(size=(9, 2, 3)).astype(np.float32)
    np.save(tmp_path / "train.npy", X)
    assert read_dataset(tmp_path / "train.npy").y is None
    with pytest.raises(ValueError, match=r"expected train_y\.npy or train\.labels\.npy"):
        read_dataset(tmp_path / "train.npy", label="y")
    for name in ("train_y.npy", "train.labels.npy"):
        np.save(tmp_path / name, np.arange(9))
        data = read_dataset(tmp_path / "train.npy", label="y")
        assert isinstance(data.X, np.memmap)
        assert not data.X.flags.writeable
        assert np.array_equal(data.X, X.reshape(9, 6))
        assert data.image_shape == (2, 3)
        assert data.y is not None
        assert data.y.tolist() == list(range(9))
        (tmp_path / name).rename(tmp_path / f"{name}.bak")
    assert not isinstance(read_dataset(tmp_path / "train.npy", mmap=False).X, np.memmap)
    for name in ("train_y.npy", "train.labels.npy"):
        np.save(tmp_path / name, np.arange(9))
    with pytest.raises(ValueError, match="stand in both"):
        read_dataset(tmp_path / "train.npy")
    with pytest.raises(ValueError, match="an NPY file has no columns"):
        read_dataset(tmp_path / "train.npy", features="a")


def test_npy_integers_are_converted_in_parts(tmp_path):
    pixels = np.arange(70, dtype=np.uint8).reshape(10, 7)
    np.save(tmp_path / "p.npy", pixels)
    for limit in (0, 512):
        X = read_dataset(tmp_path / "p.npy", chunk_rows=3, memory_limit_mb=limit).X
        assert X.dtype == np.float32
        assert np.array_equal(X, pixels)
    np.save(tmp_path / "o.npy", np.array([[Explosive()]], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="holds Python objects"):
        read_dataset(tmp_path / "o.npy")
    (tmp_path / "q.npy").write_bytes(pickle.dumps(Explosive()))
    with pytest.raises(ValueError, match=r"q\.npy"):
        read_dataset(tmp_path / "q.npy", mmap=False)
