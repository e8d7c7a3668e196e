from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from icl25_pn_gail.behaviour_cloning import BC
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.input_verbs import as_flags, naming_flags
from icl25_pn_gail.recording import make_demonstrations


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Files that are in order and such as are not, and folders."""
    folder = tmp_path_factory.mktemp("made")
    demos = make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.1")
    demos.to_npz(folder / "d.npz")
    demos.to_csv(folder / "d.csv")
    demos.with_confidence(None).to_npz(folder / "unlabelled.npz")
    demos.mask_labels(0.5).to_npz(folder / "half.npz")
    demos.with_confidence(np.zeros(180)).to_npz(folder / "worthless.npz")
    table = pd.read_csv(folder / "d.csv")
    table.assign(confidence=5 * table["confidence"]).to_csv(folder / "stars.csv", index=False)
    table.rename(columns={"obs_0": "left", "obs_1": "right"}).to_csv(folder / "names.csv", index=False)
    table.astype({"obs_1": object}).assign(obs_1=["far", *table["obs_1"][1:]]).to_csv(folder / "text.csv", index=False)
    table.assign(obs_0=[np.nan, *table["obs_0"][1:]]).to_csv(folder / "gaps.csv", index=False)
    table[:0].to_csv(folder / "heading.csv", index=False)
    np.savez(folder / "objects.npz", obs=np.array([{"a": 1}] * 3, object), acts=np.ones((3, 1)))
    Demonstrations(demos.obs[:, :1], demos.acts, demos.confidence).to_npz(folder / "narrow.npz")
    Demonstrations(demos.obs, demos.acts, demos.confidence).to_npz(folder / "endless.npz")
    Demonstrations(demos.obs, np.arange(180) % 2, demos.confidence).to_npz(folder / "choices.npz")
    (folder / "empty.csv").write_text("")
    (folder / "torn.npz").write_bytes((folder / "d.npz").read_bytes()[:300])
    (folder / "torn.parquet").write_text("PAR1")
    (folder / "d.pkl").write_text("mine")
    (folder / "d.txt").write_text("mine")
    (folder / "exists.parquet").write_text("mine")
    (folder / "folder").mkdir()
    (folder / "folder" / "notes.txt").write_text("mine")
    (folder / "crooked.py").write_text("import nothing_of_the_kind\n")
    (folder / "plain.py").write_text("make = 3\n")
    BC(TwoGoals(), demos, config=TrainConfig(hidden=(8,))).save(folder / "run")
    return folder


@pytest.fixture
def files(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


TRAIN = ("train", "d.npz", "--env", "TwoGoals")
MAKE = ("make-demos", "--env", "TwoGoals")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "nothing.npz"), "nothing.npz: no such file"),
        (("label", "nothing.npz"), "nothing.npz: no such file"),
        (("check", "nothing.csv"), "nothing.csv: no such file"),
        (("diagnose", "nothing.parquet"), "nothing.parquet: no such file"),
        (("compare", "nothing.npz"), "nothing.npz: no such file"),
        (("evaluate", "nothing"), "nothing: no such folder"),
        (("train", "folder"), "folder is a folder, expected a file of demonstrations or a Minari dataset"),
        (("label", "empty.csv"), "empty.csv is empty"),
        (("train", "d.npz"), "name the environment with --env, such as --env Pendulum-v1, or with --env-module"),
        ((*TRAIN, "--env-module", "my_env:make"), "--env and --env-module exclude each other"),
        ((*TRAIN, "--iterations", 0), "--iterations must be >= 1, found 0"),
        ((*TRAIN, "--episodes", 0), "--episodes must be >= 1, found 0"),
        ((*TRAIN, "--hidden", "wide"), "--hidden must be whole numbers such as 100,100, found 'wide'"),
        ((*TRAIN, "--hidden", "0"), "--hidden must be widths of layers >= 1, found (0,)"),
        ((*TRAIN, "--gamma", 2), "--gamma must be in [0, 1], found 2.0"),
        ((*TRAIN, "--disc-lr", 0), "--disc-lr must be > 0, found 0.0"),
        ((*TRAIN, "--max-kl", "nan"), "--max-kl must be finite, found nan"),
        ((*TRAIN, "--eval-every", 0), "--eval-every must be > 0, found 0"),
        ((*TRAIN, "--confidence-range", "5"), "--confidence-range must be two numbers such as 1,5, found '5'"),
        ((*TRAIN, "--confidence-range", "5,1"), "--confidence-range must have the lower number first, found '5,1'"),
        (("compare", *TRAIN[1:], "--methods", "pn-gall"), "there is no method 'pn-gall'; did you mean pn-gail?"),
        (("compare", *TRAIN[1:], "--methods", "sac"), "there is no method 'sac'; choose among pn-gail, 2iwil,"),
        (("compare", *TRAIN[1:], "--methods", "gail+svm"), "after + comes bsc, sc, supervised or oracle, found 'svm'"),
        (("compare", *TRAIN[1:], "--methods", "gail,"), "there is no method ''"),
        (("compare", *TRAIN[1:], "--methods", "pn-gail+oracle"), "a method with +oracle needs --oracle"),
        (("compare", *TRAIN[1:], "--oracle", "nothing.npz"), "--oracle nothing.npz: no such file"),
        (("compare", *TRAIN[1:], "--n-seeds", 0), "--n-seeds must be >= 1, found 0"),
        ((*TRAIN, "--sharpen", 0), "--sharpen must be a number above 0, found 0"),
        (MAKE, "say what to record: --levels, such as --levels expert:5,spin:50, or --sb3"),
        ((*MAKE, "--levels", "to-a:1", "--sb3", "sac"), "say what to record"),
        ((*MAKE, "--levels", "to-a:1", "--out", "d.txt"), "--out d.txt: unknown kind of file '.txt', expected one of"),
        ((*MAKE, "--levels", "to-a:1", "--out", "d.csv"), "--out d.csv exists: --force replaces it"),
        ((*MAKE, "--levels", "to-a:1", "--out", "folder"), "--out folder is a folder, expected a file such as"),
        ((*MAKE, "--levels", "to-a:1", "--out", "d.txt/e.csv"), "d.txt is a file, expected a folder"),
        ((*MAKE, "--levels", "to-a:1", "--label-share", 0), "--label-share must be in (0, 1], found 0.0"),
        (("make-demos", "--levels", "to-a:1"), "name the environment with --env"),
        (("label", "d.npz", "--folds", 1), "--folds must be 0, or >= 2, found 1"),
        (("label", "d.npz", "--steps", 0), "--steps must be >= 1, found 0"),
        (
            ("label", "d.npz", "--picture", "p.gif"),
            "--picture p.gif: unknown kind of file '.gif', expected one of .png",
        ),
        (("label", "d.npz", "--out", "exists.parquet"), "--out exists.parquet exists: --force replaces it"),
        (("evaluate", "d.npz"), "d.npz is a file, expected the folder of a training"),
        (("evaluate", "folder"), "folder holds no policy (no config.json in it)"),
        (("evaluate", "run", "--episodes", 0), "--episodes must be >= 1, found 0"),
        (("reproduce", "walker"), "the part must be pendulum, ratio, labels, ablation or all, found walker"),
        (("reproduce", "--n-seeds", 0), "--n-seeds must be >= 1, found 0"),
        (("demo", "--n-seeds", 0), "--n-seeds must be >= 1, found 0"),
    ],
)
def test_what_needs_no_jax_to_be_seen_is_refused_before_it_is_imported(refused, files, monkeypatch, arguments, message):
    for name in [name for name in sys.modules if name.startswith("icl25_pn_gail.") and name.endswith("verbs")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it would fail
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "torn.npz", *TRAIN[2:]), "torn.npz: not a readable NPZ file"),
        (("diagnose", "torn.parquet"), "torn.parquet: not a readable Parquet file"),
        (("label", "objects.npz"), "holds Python objects, which are never unpickled"),
        (("label", "d.pkl"), "d.pkl: may hold pickled objects"),
        (("label", "d.txt"), "d.txt: unknown kind of file '.txt', expected .npz, .csv, .parquet"),
        (("label", "minari:nobody/nothing-v0"), "nobody/nothing-v0"),
        (
            ("train", "names.csv", *TRAIN[2:]),
            "nothing is named as obs usually are (obs, ...); say which with --obs",
        ),
        (
            ("train", "d.csv", *TRAIN[2:], "--act-cols", "u"),
            "there is no 'u' for acts; there are episode, obs_0",
        ),
        (("train", "text.csv", *TRAIN[2:]), "column 'obs_1', row 0: expected a number, found 'far'"),
        (("train", "gaps.csv", *TRAIN[2:]), "column 'obs_0' has 1 NaN"),
        (("train", "heading.csv", *TRAIN[2:]), "heading.csv: the table has no rows"),
        (("train", "stars.csv", *TRAIN[2:]), "outside [0, 1], first 5 in row 0"),
        (("train", "stars.csv", *TRAIN[2:]), "or read them with --confidence-range low,high"),
        (("train", "stars.csv", *TRAIN[2:], "--confidence-range", "0,4"), "outside --confidence-range 0 to 4, first 5"),
        (("train", "unlabelled.npz", *TRAIN[2:]), "unlabelled.npz: no row has a confidence: PN-GAIL needs some"),
        (("compare", "unlabelled.npz", *TRAIN[2:]), "unlabelled.npz: no row has a confidence: PN-GAIL needs some"),
        (("train", "worthless.npz", *TRAIN[2:]), "every confidence is 0, so there is nothing to imitate"),
        (("train", "narrow.npz", *TRAIN[2:]), "the demonstrations have 1 observation and 2 actions, TwoGoals 2 and 2"),
        (("train", "d.npz", "--env", "Pendulum-v1"), "2 observations and 2 actions, PendulumJax 3 and 1"),
        (("train", "choices.npz", *TRAIN[2:]), "TwoGoals takes vectors of 2 floats, the demonstrations have ids"),
        (("compare", "narrow.npz", *TRAIN[2:]), "the demonstrations have 1 observation"),
        (("train", "d.npz", "--env", "Pendulam-v1"), "Pendulam"),
        (("train", "d.npz", "--env", "TwoGoal"), "TwoGoals"),
        (("train", "d.npz", "--env-module", "nowhere:make"), "there is no module nowhere, here or installed"),
        (("train", "d.npz", "--env-module", "nowhere"), "expected module:attribute, such as my_env:make"),
        (("train", "d.npz", "--env-module", "crooked:make"), "needs nothing_of_the_kind, which is not installed"),
        (("train", "d.npz", "--env-module", "plain:made"), "module plain has no made; it has make"),
        (("train", "d.npz", "--env-module", "plain:make"), "env must be an id"),
        ((*TRAIN, "--backend", "gymnasium"), "TwoGoals is not to be had with --backend gymnasium"),
        ((*TRAIN, "--method", "sac"), "sac"),
        ((*TRAIN, "--method", "gail", "--classifier", "bsc"), "--classifier bsc fills in confidences, of which gail"),
        ((*TRAIN, "--iterations", "many"), "expected a whole number, found 'many'"),
        ((*TRAIN, "--resume"), "--resume goes on with the run of a folder: name it with --out"),
        ((*TRAIN, "--resume", "--out", "folder"), "there is no training to resume in folder"),
        ((*TRAIN, "--resume", "--force", "--out", "run"), "--resume and --force exclude each other"),
        ((*TRAIN, "--out", "run"), "run/policy.msgpack exists: --resume goes on"),
        ((*TRAIN, "--out", "d.txt"), "d.txt is a file, expected a folder for the run"),
        ((*TRAIN, "--device", "cuda:9"), "there is no device 'cuda:9' for jax"),
        ((*MAKE, "--levels", "to-c:1"), "TwoGoals has no level 'to-c'; it has expert, to-a, to-b, random"),
        ((*MAKE, "--levels", "to-a"), "levels must read like expert:5,spin:50"),
        ((*MAKE, "--levels", "to-a:0"), "level to-a: expected at least 1 episode, found 0"),
        ((*MAKE, "--levels", "to-a:1:2"), "expected a confidence in [0, 1], found 2"),
        ((*MAKE, "--sb3", "sac", "--episodes-per-level", "few"), "--episodes-per-level must be whole numbers such as"),
        (
            (*MAKE, "--sb3", "sac", "--episodes-per-level", "1,2"),
            "--episodes-per-level must be 1 or 4 numbers, found",
        ),
        (("label", "unlabelled.npz"), "unlabelled.npz: no row has a confidence, and at least one is needed"),
        (("diagnose", "unlabelled.npz"), "unlabelled.npz: no row has a confidence; rate some rows"),
        (("diagnose", "worthless.npz"), "every confidence is 0, so that there is nothing to imitate"),
        (("diagnose", "d.csv", "--by", "level"), "d.csv does not say which behaviours it holds"),
        (("diagnose", "endless.npz", "--by", "episode"), "endless.npz: no episodes are known"),
        (("diagnose", "d.npz", "--by", "colour"), "colour"),
        (("evaluate", "run", "--env", "Pendulum-v1"), "from 2 observations to 2 outputs, the environment has 3 and 1"),
        (("compare", *TRAIN[1:], "--methods", "pn-gail+oracle", "--oracle", "half.npz"), "90 rows have no confidence"),
        (("compare", *TRAIN[1:], "--methods", "pn-gail+oracle", "--oracle", "narrow.npz"), "expected the same rows as"),
        (("reproduce", "--scale", "desk"), "desk"),
        (("demo", "--n-seed", 1), "unrecognized option --n-seed (did you mean --n-seeds?)"),
        (("train", "nothing.npz", "--no-such-flag"), "unrecognized option --no-such-flag"),
    ],
)
def test_wrong_input_is_refused_in_one_line(refused, files, arguments, message):
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    assert message in refused(*arguments)
    after = {path: path.read_bytes() for path in files.rglob("*") if path.is_file() and "runs" not in path.parts}
    assert {path: content for path, content in after.items() if "__pycache__" not in path.parts} == before


@pytest.mark.parametrize("name", ["results.csv", "histories.csv", "comparison.png", "result.json"])
def test_files_in_the_way_are_seen_before_the_work(refused, files, monkeypatch, name):
    monkeypatch.setattr("icl25_pn_gail.compare_verbs.compare", None)  # calling it would fail
    (files / "folder" / name).write_text("mine")
    message = refused("compare", *TRAIN[1:], "--out", "folder")
    assert message == f"folder/{name} exists: --force replaces it"


def test_a_missing_policy_is_missed(refused, files):
    (files / "run" / "policy.msgpack").unlink()
    assert "run holds no policy (no policy.msgpack in it)" in refused("evaluate", "run")


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("policy.msgpack", "garbage", "run/policy.msgpack is damaged"),
        ("config.json", "{", "run/config.json is not JSON"),
        ("config.json", "{}", "run/config.json is no configuration of a policy"),
        ("config.json", '{"format": 99}', "format 99, expected 1"),
    ],
)
def test_damaged_runs_are_refused(refused, files, name, damage, message):
    (files / "run" / name).write_text(damage)
    assert message in refused("evaluate", "run")


def test_a_folder_of_unknown_origin_names_no_code_to_import(refused, files):
    config = (files / "run" / "config.json").read_text()
    (files / "run" / "config.json").write_text(config.replace('"TwoGoals"', '"crooked:Env-v0"'))
    assert "name it with --env crooked:Env-v0" in refused("evaluate", "run")


def test_what_is_not_installed_is_said_in_one_line(refused, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    message = refused("make-demos", "--env", "Pendulum-v1", "--sb3", "sac")
    assert message == 'training experts needs stable-baselines3: pip install "icl25-pn-gail[sb3]"'


@pytest.mark.parametrize(
    ("python", "command_line"),
    [
        ("read them with discrete=True", "read them with --actions discrete"),
        ("read them with discrete=False; or", "read them with --actions continuous; or"),
        ("discrete actions stay a word", "discrete actions stay a word"),
        ("confidence_range=(low, high)", "--confidence-range low,high"),
        ("lower disc_lr or max_kl", "lower --disc-lr or --max-kl"),
        ("compare with reward='airl'", "compare with --reward airl"),
        ("the reward -log D > 0 pays", "the reward -log D > 0 pays"),
        ("a smaller disc_lr or disc_grad_penalty=1, or", "a smaller --disc-lr or --disc-grad-penalty 1, or"),
        ("consider normalize_actions=True", "consider --normalize-actions"),
        ("say which with confidence_col", "say which with --confidence-column"),
        ("disc_lr.csv: no such file", "disc_lr.csv: no such file"),
        ("the folder a/max_kl is", "the folder a/max_kl is"),
    ],
)
def test_messages_speak_of_flags(python, command_line):
    assert as_flags(python) == command_line


def test_warnings_speak_of_flags_in_plain_text(monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    with warnings.catch_warnings(action="always"):
        with naming_flags():
            warnings.warn("\x1b[33mWARN: lower disc_lr\x1b[0m", stacklevel=1)
        warnings.warn("disc_lr", stacklevel=1)
    assert shown == ["WARN: lower --disc-lr", "disc_lr"]
