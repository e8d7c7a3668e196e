from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.readers import read_demonstrations

RNG = np.random.default_rng(0)
OBS, ACTS = RNG.standard_normal((6, 2)) / 3, RNG.uniform(-2, 2, (6, 1))
R = np.array([0.9, np.nan, 0.1, np.nan, 1 / 3, 0.3])
FULL = Demonstrations(
    OBS, ACTS, R, ["b", "b", "b", "a", "a", "007"], OBS + 0.1, [1, 2, np.nan, 4, 5, 1 / 7], {"env_id": "X", "k": [1, 2]}
)
ENDINGS = (".npz", ".csv", ".parquet")


def write(demos, path, **options):
    {".npz": demos.to_npz, ".csv": demos.to_csv, ".parquet": demos.to_parquet}[path.suffix](path, **options)
    return path


def same(one, other, *, meta=True, dtypes=True):
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if field.name == "meta":
            assert left == right or not meta
        elif left is None or right is None:
            assert left is right, field.name
        else:
            np.testing.assert_array_equal(left, right, err_msg=field.name)
            assert left.dtype == right.dtype or not dtypes or field.name == "episode"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "demos",
    [
        FULL,
        Demonstrations(OBS, ACTS),
        Demonstrations(OBS, np.array([0, 2, 1, 0, 1, 2]), R, [3, 3, 3, 1, 1, 2], meta={"n_actions": 5}),
        FULL.select([2]),
        FULL.select([4, 0, 2]),
    ],
)
def test_round_trips_are_exact(tmp_path, ending, demos):
    same(read_demonstrations(write(demos, tmp_path / f"d{ending}")), demos, meta=ending != ".csv")


@pytest.mark.parametrize("ending", ENDINGS)
def test_single_precision_comes_back_to_the_last_bit(tmp_path, ending):
    demos = Demonstrations(OBS.astype(np.float32), ACTS.astype(np.float32), R)
    same(read_demonstrations(write(demos, tmp_path / f"d{ending}")), demos, dtypes=ending != ".csv")


@settings(max_examples=15, deadline=None)
@given(arrays.arrays(np.float64, (3, 2), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_any_number_survives_text(tmp_path_factory, obs):
    path = tmp_path_factory.mktemp("csv") / "d.csv"
    same(read_demonstrations(write(Demonstrations(obs, [0.1, 0.2, 0.3]), path)), Demonstrations(obs, [0.1, 0.2, 0.3]))


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_are_not_replaced_unless_asked(tmp_path, ending):
    path = write(FULL, tmp_path / f"d{ending}")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="exists already"):
        write(FULL.select([0]), path)
    assert path.read_bytes() == before
    write(FULL.select([0]), path, force=True)
    assert len(read_demonstrations(path)) == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_the_same_demonstrations_give_the_same_bytes(tmp_path):
    assert write(FULL, tmp_path / "a.npz").read_bytes() == write(FULL, tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("ending", ENDINGS)
def test_labels_of_other_kinds_cannot_be_written(tmp_path, ending):
    demos = Demonstrations(OBS, ACTS, episode=[("x", 1)] * 3 + [2] * 3)
    with pytest.raises(
        ValueError, match="labels of episodes must be text or whole numbers to be written, found int, tuple"
    ):
        write(demos, tmp_path / f"d{ending}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "names",
    [
        {"obs": "observations", "acts": "actions", "confidence": "rating", "episode": "episodes"},
        {"obs": "States", "acts": "action", "confidence": "conf", "episode": "traj_id"},
    ],
)
def test_usual_names_of_arrays_are_found(tmp_path, names):
    given: dict[str, Any] = {"obs": OBS, "acts": ACTS, "confidence": R, "episode": np.array([5, 5, 5, 4, 4, 1])}
    np.savez(
        tmp_path / "d.npz", **{names[key]: value for key, value in given.items()}, notes=np.zeros(3), meta=np.ones(2)
    )
    same(Demonstrations.from_npz(tmp_path / "d.npz"), Demonstrations(**given))


def test_arrays_may_be_named(tmp_path):
    np.savez(tmp_path / "d.npz", a_x=OBS[:, :1], b_x=OBS[:, 1], u=ACTS, w=R, run=np.arange(6), obs=np.zeros(1))
    read = Demonstrations.from_npz(tmp_path / "d.npz", ["a_x", "b_x"], "u", "w", "run")
    same(read, Demonstrations(OBS, ACTS, R, np.arange(6)))


@pytest.mark.parametrize(
    ("flags", "codes"),
    [
        ({"dones": np.array([0, 1, 0, 0, 1, 0], np.float32)}, [0, 0, 1, 1, 1, 2]),
        (
            {"terminals": np.array([0, 1, 0, 0, 0, 0], bool), "timeouts": np.array([0, 0, 0, 1, 0, 1])},
            [0, 0, 1, 1, 2, 2],
        ),
        ({"episode_starts": np.array([1, 0, 0, 1, 1, 0], bool)[:, None]}, [0, 0, 0, 1, 2, 2]),
        ({"episode": np.array([9, 9, 9, 9, 9, 9]), "dones": np.ones(6)}, [0] * 6),
    ],
)
def test_flags_of_ends_or_starts_become_episodes(tmp_path, flags, codes):
    np.savez(tmp_path / "d.npz", obs=OBS, acts=ACTS, **flags)
    assert read_demonstrations(tmp_path / "d.npz").episode_codes.tolist() == codes


TABLE = {"obs_0": OBS[:, 0], "obs_1": OBS[:, 1], "act_0": ACTS[:, 0], "confidence": R}


def table(path, columns):
    frame = pd.DataFrame(columns)
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "names",
    [
        ["obs_0", "obs_1", "act_0", "confidence", "episode"],
        ["obs[0]", "obs[1]", "act[0]", "rating", "episode_id"],
        ["o0", "o1", "a0", "conf", "trajectory"],
        ["State 1", "State 2", "action", "ratings", "traj"],
        ["observation.0", "observation.1", "actions", "confidences", "episode_index"],
    ],
)
def test_usual_names_of_columns_are_found_in_any_order(tmp_path, ending, names):
    columns = dict(zip(names, [OBS[:, 0], OBS[:, 1], ACTS[:, 0], R, [1, 1, 2, 2, 3, 3]], strict=True))
    shuffled = {"time": range(6), **{name: columns[name] for name in reversed(columns)}, "operator": ["x"] * 6}
    read = read_demonstrations(table(tmp_path / f"d{ending}", shuffled))
    same(read, Demonstrations(OBS, ACTS, R, [1, 1, 2, 2, 3, 3]))


def test_columns_are_sorted_by_their_numbers(tmp_path):
    wide = RNG.standard_normal((3, 12))
    columns = {f"obs_{i}": wide[:, i] for i in (10, 2, 0, 1, 11, 3, 4, 5, 9, 8, 7, 6)} | {"act_0": [0.1, 0.2, 0.3]}
    np.testing.assert_array_equal(read_demonstrations(table(tmp_path / "d.csv", columns)).obs, wide)


@pytest.mark.parametrize(
    ("obs_cols", "act_cols"),
    [("joint", "torque"), ("joint_0,joint_1", "torque_1"), (["joint_0", "joint_1"], ["torque_1"])],
)
def test_columns_may_be_named(tmp_path, obs_cols, act_cols):
    columns = {
        "torque_1": ACTS[:, 0],
        "joint_1": OBS[:, 1],
        "joint_0": OBS[:, 0],
        "stars": R * 4 + 1,
        "run": list("xxyyzz"),
    }
    path = table(tmp_path / "d.csv", columns)
    read = read_demonstrations(path, obs_cols, act_cols, "stars", "run", confidence_range=(1, 5))
    np.testing.assert_allclose(read.confidence, R, rtol=1e-15)
    same(read.with_confidence(R), Demonstrations(OBS, ACTS, R, list("xxyyzz")))


def test_lists_in_columns_are_matrices(tmp_path):
    columns = {
        "observation.state": pa.array(OBS.astype(np.float32).tolist(), pa.list_(pa.float32())),
        "action": pa.array(ACTS.tolist(), pa.list_(pa.float64(), 1)),
        "episode_index": [0, 0, 0, 1, 1, 1],
        "next.reward": [1.0] * 6,
    }
    pq.write_table(pa.table(columns), tmp_path / "d.parquet")
    expected = Demonstrations(OBS.astype(np.float32), ACTS, episode=[0, 0, 0, 1, 1, 1], reward=np.ones(6))
    same(read_demonstrations(tmp_path / "d.parquet"), expected)
    ragged = columns | {"observation.state": [[1.0, 2.0]] * 5 + [[1.0]]}
    pq.write_table(pa.table(ragged), tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match=r"column 'observation\.state': its lists have from 1 to 2 entries"):
        read_demonstrations(tmp_path / "ragged.parquet")


def test_labels_of_episodes_in_text_stay_what_they_are(tmp_path):
    for labels in (["007", "007", "7", "7", "NA", "nan"], ["1", "1", "1", "-2", "-2", "0"]):
        read = read_demonstrations(table(tmp_path / "d.csv", {"episode": labels, **TABLE}))
        assert read.episode is not None
        assert [str(label) for label in read.episode] == labels
        (tmp_path / "d.csv").unlink()
    assert read.episode.dtype == np.int64


@pytest.mark.parametrize(("discrete", "expected"), [(None, True), (False, False), (True, True)])
def test_whole_numbers_are_ids_unless_said_otherwise(tmp_path, discrete, expected):
    path = table(tmp_path / "d.csv", {**TABLE, "act_0": [1, 2, 0, 1, 1, 2]})
    read = read_demonstrations(path, discrete=discrete)
    assert read.discrete is expected
    assert read.acts.ravel().tolist() == [1, 2, 0, 1, 1, 2]
    floats = table(tmp_path / "f.csv", {**TABLE, "act_0": [1.0, 2.0, 0.0, 1.0, 1.0, 2.0]})
    assert read_demonstrations(floats, discrete=discrete).discrete is (discrete is True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs_1": [1, "abc", 3, 4, 5, 6]}, "column 'obs_1', row 1: expected a number, found 'abc'"),
        ({"obs_1": [1, None, 3, 4, None, 6]}, "column 'obs_1' has 2 NaN values, first in row 1"),
        ({"act_0": [1, 2, 3, np.inf, 5, 6]}, "column 'act_0' has 1 infinite values, first in row 3"),
        (
            {"confidence": [1, 0, 3, 4, 5, 1]},
            r"confidence has 3 values outside \[0, 1\], first 3 in row 2.*confidence_range",
        ),
        ({"confidence": ["good", *R[1:]]}, "column 'confidence', row 0: expected a number, found 'good'"),
        (
            {"confidence": [None, "", 0.5, None, "good", 1]},
            "column 'confidence', row 4: expected a number, found 'good'",
        ),
        ({"episode": ["x", None, "y", "y", "y", "y"]}, "episode has 1 missing labels, first in row 1"),
        ({"obs_3": R}, "obs 'obs_0' to 'obs_3' lack number 2"),
        ({"state_0": R}, "it is not clear which holds obs: 'obs_0' or 'state_0'; say which with obs_cols"),
        (
            {"rating": R},
            "it is not clear which holds confidence: 'confidence' or 'rating'; say which with confidence_col",
        ),
        ({"reward": R, "rews": R}, "it is not clear which holds reward: 'reward' or 'rews'; rename one of them"),
        ({"obs[1]": R}, r"it is not clear which is number 1 of obs: 'obs_1' or 'obs\[1\]'"),
        ({"done": [0, 1, 2, 0, 0, 1]}, "done must be a flag for each row, 0 or 1"),
    ],
)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_bad_columns_are_named(tmp_path, ending, changes, message):
    frame = pd.DataFrame({**TABLE, **changes})
    if ending == ".parquet":
        frame = frame.astype({name: str for name in frame if frame[name].dtype == object})
    path = table(tmp_path / f"d{ending}", frame)
    with pytest.raises(ValueError, match=message) as caught:
        read_demonstrations(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"obs_cols": "joint"}, "there is no 'joint' for obs; there are obs_0, obs_1, act_0, confidence"),
        ({"obs_cols": ["obs_0", "obs_0"]}, "obs_cols must name each column once"),
        ({"obs_cols": "obs_0,act_0"}, "'act_0' is given both as an observation and as an action"),
        ({"confidence_col": "stars"}, "there is no 'stars' for confidence"),
        ({"confidence_range": (1, 1)}, "confidence_range must be two numbers, the lower one first"),
        ({"confidence_range": (0.2, 0.5)}, "2 ratings are outside confidence_range 0.2 to 0.5, first 0.9 in row 0"),
        (
            {"obs_cols": "obs_0", "act_cols": "obs_1,act_0", "discrete": True},
            "discrete actions are one column of ids, found 2",
        ),
        ({"discrete": True}, "discrete actions must be whole numbers, found"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        read_demonstrations(table(tmp_path / "d.csv", TABLE), **options)
    if "confidence_range" in options:
        with pytest.raises(ValueError, match="there are no confidences"):
            read_demonstrations(table(tmp_path / "e.csv", {"o0": OBS[:, 0], "a0": OBS[:, 0]}), confidence_range=(0, 5))


def test_what_lacks_observations_or_actions_says_what_there_is(tmp_path):
    with pytest.raises(ValueError, match=r"nothing is named as acts .* act_cols; there are obs_0, torque"):
        read_demonstrations(table(tmp_path / "d.csv", {"obs_0": R, "torque": R}))
    np.savez(tmp_path / "d.npz", x=OBS, acts=ACTS)
    with pytest.raises(ValueError, match=r"nothing is named as obs .* obs_cols; there are x, acts"):
        read_demonstrations(tmp_path / "d.npz")
    np.savez(tmp_path / "both.npz", obs=OBS, states=OBS, acts=ACTS)
    with pytest.raises(ValueError, match="not clear which holds obs: 'obs' or 'states'"):
        read_demonstrations(tmp_path / "both.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", b"", "is empty"),
        ("d.npz", b"", "is empty"),
        ("d.parquet", b"", "is empty"),
        ("d.csv", b"obs_0,act_0\n", "the table has no rows"),
        ("d.csv", b"obs_0,act_0\n1,2\n3,4,5\n", "not a readable CSV file"),
        ("d.csv", b"obs_0,act_0\n1\n", "not a readable CSV file .*Expected 2 columns, got 1"),
        ("d.csv", b"1.5,2.5\n1,2\n", "the first line must name the columns, found numbers"),
        ("d.csv", b"obs_0,obs_0,act_0\n1,2,3\n", "column 'obs_0' stands twice in the heading"),
        ("d.csv", b"obs_0,act_0\n\xff\xfe,2\n", "not a readable CSV file .byte .* is not UTF-8"),
        ("d.csv", b'obs_0,act_0\n"1,2\n', "not a readable CSV file"),
        ("d.npz", b"PK no archive", "not a readable NPZ file"),
        ("d.parquet", b"PAR1 nothing of the kind PAR1", "not a readable Parquet file"),
        ("d.npy", b"x", "one array is not enough"),
        ("d.pkl", b"x", "never opened here; load it in your own Python"),
        ("d.zip", b"x", "never opened here"),
        ("d.txt", b"x", "unknown kind of file '.txt', expected .npz, .csv, .parquet"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_demonstrations(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_files_folders_and_damage(tmp_path, ending):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_demonstrations(tmp_path / f"none{ending}")
    (tmp_path / f"folder{ending}").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder, expected a file of demonstrations"):
        read_demonstrations(tmp_path / f"folder{ending}")
    if ending != ".csv":
        path = write(FULL, tmp_path / f"d{ending}")
        content = path.read_bytes()
        for part in (content[: len(content) // 2], content[:90] + bytes(8) + content[98:]):
            path.write_bytes(part)
            with pytest.raises(ValueError, match=r"not a readable|damaged|not JSON|NaN"):
                read_demonstrations(path)


def test_nothing_is_unpickled(tmp_path):
    np.savez(tmp_path / "d.npz", obs=np.array([{"a": 1}] * 3, object), acts=np.zeros(3))
    with pytest.raises(ValueError, match="array 'obs': holds Python objects, which are never unpickled"):
        read_demonstrations(tmp_path / "d.npz")
    np.save(tmp_path / "m.npy", np.array([[1, {}]] * 3, object), allow_pickle=True)
    np.save(tmp_path / "c.npy", np.ones(3))
    with pytest.raises(ValueError, match="holds Python objects, which are never unpickled"):
        Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", 1)


def test_meta_of_a_file_must_be_json(tmp_path):
    np.savez(tmp_path / "d.npz", obs=OBS, acts=ACTS, meta=np.array("{"))
    with pytest.raises(ValueError, match="array 'meta' is not JSON"):
        read_demonstrations(tmp_path / "d.npz")
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        dataclasses.replace(FULL, meta={"x": object()}).to_npz(tmp_path / "e.npz")


def test_the_two_files_of_the_official_code(tmp_path):
    np.save(tmp_path / "m.npy", np.hstack([OBS, ACTS]))
    for confidence in (np.linspace(0, 1, 6), np.linspace(0, 1, 6)[:, None]):
        np.save(tmp_path / "c.npy", confidence)
        read = Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", 2)
        same(read, Demonstrations(OBS, ACTS, np.linspace(0, 1, 6)))
    for obs_dim in (0, 3):
        with pytest.raises(ValueError, match=r"obs_dim must be from 1 to 2, since .*m\.npy has 3 columns"):
            Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", obs_dim)
    np.save(tmp_path / "c.npy", np.ones(5))
    with pytest.raises(ValueError, match="confidence has 5 rows, obs has 6"):
        Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", 2)
    np.save(tmp_path / "m.npy", np.arange(18).reshape(6, 3))
    np.save(tmp_path / "c.npy", np.ones(6))
    assert not Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", 2).discrete
    np.save(tmp_path / "m.npy", np.ones(6))
    with pytest.raises(ValueError, match=r"expected shape \(N, d \+ a\), found \(6,\)"):
        Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", 2)
    (tmp_path / "m.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"m\.npy: not a readable array"):
        Demonstrations.from_official(tmp_path / "m.npy", tmp_path / "c.npy", 2)
