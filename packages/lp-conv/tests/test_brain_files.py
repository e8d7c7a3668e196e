from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from scipy.sparse import csr_matrix

from icl25_lp_conv.rsa import read_brain, read_ceilings

GOLDEN = Path(__file__).parent / "golden" / "rsa.npz"


def draw(n: int = 5, sessions: int = 3, seed: int = 0) -> np.ndarray:
    matrix = np.random.default_rng(seed).normal(size=(n, n, sessions))
    return matrix + matrix.transpose(1, 0, 2)


def save(path: Path, **arrays: object) -> Path:
    """Write arrays as the ending says."""
    if path.suffix == ".mat":
        savemat(path, arrays)
    elif path.suffix == ".npz":
        np.savez_compressed(path, **arrays)  # ty: ignore[invalid-argument-type]
    else:
        [array] = arrays.values()
        np.save(path, np.asarray(array))
    return path


def with_entries(value: float, *places: tuple[int, int]) -> np.ndarray:
    matrix = draw()
    for i, j in places:
        matrix[i, j, 1] = value
    return matrix


class Explosive:
    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


def message_of(read: Callable[[Path], object], path: Path, content: bytes) -> str:
    """The error of reading such a file, or nothing."""
    path.write_bytes(content)
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return ""


def test_golden_areas_are_read_by_their_names():
    brain = read_brain(GOLDEN, ["brain_VISl", "brain_VISp"])
    assert {area: array.shape for area, array in brain.items()} == {
        "brain_VISl": (24, 24, 3),
        "brain_VISp": (24, 24, 4),
    }
    with pytest.raises(ValueError, match=r"rsa.npz: area 'feat_a' has shape \(24, 5, 3, 3\)"):
        read_brain(GOLDEN)


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".NPZ"])
def test_files_of_several_areas(tmp_path, suffix):
    many, one = draw(), draw(sessions=1, seed=1)[:, :, 0].astype(np.float32)
    path = save(tmp_path / f"brain{suffix.lower()}", V1=many, V2=one).rename(tmp_path / f"brain{suffix}")
    brain = read_brain(str(path))
    assert list(brain) == ["V1", "V2"]
    np.testing.assert_array_equal(brain["V1"], many)
    np.testing.assert_array_equal(brain["V2"], one[:, :, None])
    assert brain["V2"].dtype == np.float64
    assert list(read_brain(path, "V2")) == ["V2"]
    assert list(read_brain(path, ["V2", "V1"])) == ["V2", "V1"]
    for key in ("V3", ["V1", "V3"]):
        with pytest.raises(ValueError, match="has no area 'V3'; it has V1, V2"):
            read_brain(path, key)
    with pytest.raises(ValueError, match="no area was asked for; it has V1, V2"):
        read_brain(path, [])


def test_npy_files_go_by_their_name(tmp_path):
    path = save(tmp_path / "VISp.npy", x=draw())
    np.testing.assert_array_equal(read_brain(path)["VISp"], draw())
    assert list(read_brain(path, "V1")) == ["V1"]
    with pytest.raises(ValueError, match="holds one area, but 2 names were given"):
        read_brain(path, ["V1", "V2"])


@pytest.mark.parametrize(
    "options",
    [
        {"header": False, "index": False},
        {"header": True, "index": False},
        {"header": True, "index": True},
        {"header": True, "index": True, "index_label": "image"},
    ],
)
@pytest.mark.parametrize("labels", [None, list("abcde")])
def test_csv_tables_with_and_without_labels(tmp_path, options, labels):
    matrix = draw()[:, :, 0]
    pd.DataFrame(matrix, index=labels, columns=labels).to_csv(tmp_path / "VISl.csv", **options)
    brain = read_brain(tmp_path / "VISl.csv")
    assert list(brain) == ["VISl"]
    np.testing.assert_allclose(brain["VISl"][:, :, 0], matrix, rtol=1e-14)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n2,1,x\n3,4,1\n", "VISl.csv: line 2, column 3 holds 'x', expected a number"),
        ("a,b,c\n1,2,3\n2,1,\n3,4,1\n", "VISl.csv: line 3, column 3 holds '', expected a number"),
        ("1,2,3\n2,1,4\n", r"VISl.csv: area 'VISl' has shape \(2, 3\)"),
        ("1,2\n2,1\n", "VISl.csv: area 'VISl' has 2 stimuli"),
        ("1,2,3\n2,1,nan\n3,nan,1\n", "VISl.csv: area 'VISl': 1 pairs .* stimuli 2 and 1"),
        ("nan,2,3\n2,1,5\n3,4,1\n", r"VISl.csv: area 'VISl' is not symmetric: 4 at \(2, 1\), but 5"),
        ("1,2,3\n2,1\n3,4,1,6\n", "VISl.csv: not a readable CSV file"),
        ("", "VISl.csv: not a readable CSV file"),
    ],
)
def test_faulty_csv_tables_are_named(tmp_path, text, message):
    (tmp_path / "VISl.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_brain(tmp_path / "VISl.csv")


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
@pytest.mark.parametrize(
    ("array", "message"),
    [
        (with_entries(np.nan, (3, 1), (1, 3)), "session 1: 1 pairs of stimuli have NaN .* stimuli 3 and 1"),
        (with_entries(50, (3, 1)), r"session 1 is not symmetric: 50 at \(3, 1\)"),
        (draw().transpose(2, 0, 1), r"has shape \(3, 5, 5\), .*; sessions come last"),
        (draw(2), "has 2 stimuli, expected at least 3"),
        (draw(6), "has 6 stimuli, but area 'V1' has 5"),
        (draw() * 1j, "holds complex128, expected real numbers"),
        (np.array(["text", "more"]), "holds <U4"),
        (np.zeros((5, 5, 0)), "has no session"),
        (np.zeros((5, 5, 2, 2)), r"has shape \(5, 5, 2, 2\)"),
    ],
)
def test_faulty_areas_are_named(tmp_path, suffix, array, message):
    path = save(tmp_path / f"brain{suffix}", V1=draw(), V2=array)
    with pytest.raises(ValueError, match=rf"brain{suffix}: area 'V2',? ?.*{message}"):
        read_brain(path)


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_nothing_is_unpickled(tmp_path, suffix):
    path = save(tmp_path / f"V1{suffix}", V1=np.array([[Explosive()] * 4] * 4, dtype=object))
    for read in (read_brain, read_ceilings):
        with pytest.raises(ValueError, match=r"V1.*: holds Python objects, which are never unpickled"):
            read(path)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[np.eye(3)], ["text"]], dtype=object),
        {"field": np.eye(3)},
        csr_matrix(np.eye(4)),
    ],
)
def test_objects_of_matlab_are_refused(tmp_path, array):
    path = save(tmp_path / "brain.mat", V1=draw(), V2=array)
    assert list(read_brain(path, "V1")) == ["V1"]
    with pytest.raises(ValueError, match=r"brain.mat: area 'V2' is a cell, structure, object or sparse matrix"):
        read_brain(path)


def test_newer_matlab_files_say_how_to_save_them(tmp_path):
    path = tmp_path / "brain.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(ValueError, match=r"brain.mat: .*version 7.3 .* '-v7'"):
        read_brain(path)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".mat"])
def test_damaged_files_are_named(tmp_path, suffix):
    whole = save(tmp_path / f"V1{suffix}", V1=draw()).read_bytes()
    path = tmp_path / f"broken{suffix}"
    pieces = [b"", b"no such format", whole[: len(whole) // 2], whole[:-100]]
    pieces += [whole[:start] + bytes(40) + whole[start + 40 :] for start in range(0, len(whole) - 40, 40)]
    messages = [message_of(read_brain, path, piece) for piece in pieces]
    assert all(messages[:4])
    # Formats without a checksum cannot know that bytes of a number were replaced.
    assert all(message.startswith(str(path)) for message in messages if message)


@pytest.mark.parametrize("read", [read_brain, read_ceilings])
def test_missing_files_folders_and_unknown_kinds(tmp_path, read):
    for suffix in (".npz", ".npy", ".mat", ".csv"):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / f"none{suffix}")
        (tmp_path / f"folder{suffix}").mkdir()
        with pytest.raises(IsADirectoryError):
            read(tmp_path / f"folder{suffix}")
    with pytest.raises(ValueError, match=r"brain.pkl: unknown kind of file '.pkl', expected .npz, .npy, .mat or .csv"):
        read(tmp_path / "brain.pkl")
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(ValueError, match=r"empty.npz: holds no area"):
        read(tmp_path / "empty.npz")


# --- noise ceilings


@pytest.mark.parametrize("suffix", [".npz", ".mat", ".csv"])
def test_ceilings_of_several_areas(tmp_path, suffix):
    path = tmp_path / f"ceilings{suffix}"
    if suffix == ".csv":
        path.write_text("V1,V2\n0.5,0.25\n0.75,1\n1,\n")
    else:
        save(path, V1=np.array([0.5, 0.75, 1.0]), V2=np.array([0.25, 1.0], np.float32))
    found = read_ceilings(path)
    assert {area: array.tolist() for area, array in found.items()} == {"V1": [0.5, 0.75, 1.0], "V2": [0.25, 1.0]}
    assert found["V2"].dtype == np.float64
    assert list(read_ceilings(path, "V2")) == ["V2"]
    with pytest.raises(ValueError, match="has no area 'V9'; it has V1, V2"):
        read_ceilings(path, "V9")


def test_ceilings_of_one_area(tmp_path):
    path = save(tmp_path / "V1.npy", x=np.array([0.5, 1.0]))
    assert read_ceilings(path)["V1"].tolist() == [0.5, 1.0]
    path = save(tmp_path / "V2.mat", V2=np.array([[0.5], [1.0]]))
    assert read_ceilings(path)["V2"].tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 2)), r"area 'V1' has shape \(2, 2\), expected a list"),
        (np.ones(0), r"area 'V1' has shape \(0,\)"),
        (np.array([0.5, 1.0, np.nan]), "area 'V1': noise ceiling 2 is NaN"),
        (np.array(["0.5"]), "area 'V1' holds <U3"),
    ],
)
def test_faulty_ceilings_are_named(tmp_path, array, message):
    with pytest.raises(ValueError, match=f"c.npz: {message}"):
        read_ceilings(save(tmp_path / "c.npz", V1=array))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("V1,V2\n0.5,0.3\n,0.4\n0.7,0.5\n", "line 3, column 1 holds '', expected a number"),
        ("V1,V2\n0.5,high\n", "line 2, column 2 holds 'high'"),
        ("V1,V1\n0.5,0.4\n", "two columns have the same name"),
        ("V1,V2\n0.5,\n", r"area 'V2' has shape \(0,\)"),
        ("V1\nnan\n", "area 'V1': noise ceiling 0 is NaN"),
    ],
)
def test_faulty_ceilings_in_csv_are_named(tmp_path, text, message):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(ValueError, match=f"c.csv: {message}"):
        read_ceilings(tmp_path / "c.csv")
