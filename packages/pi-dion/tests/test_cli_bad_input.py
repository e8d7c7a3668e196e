from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def files(tmp_path, rd_case):
    """Files that are in order, and a folder."""
    shutil.copy(rd_case.data, tmp_path / "d.npz")
    shutil.copytree(rd_case.run, tmp_path / "run")
    np.savez(tmp_path / "unlabelled.npz", measurements=rd_case.measurements)
    np.save(tmp_path / "other.npy", np.ones((4, 20)))
    np.save(tmp_path / "gaps.npy", np.where(rd_case.measurements > 1, np.nan, rd_case.measurements))
    np.save(tmp_path / "zeros.npy", np.zeros((20, 21)))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "exists.npz").write_text("mine")
    (tmp_path / "two.py").write_text(
        "from icl25_pi_dion import InverseProblem\nclass A(InverseProblem): pass\nclass B(InverseProblem): pass\n"
    )
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "nothing.py"), "nothing.py: no such file"),
        (("simulate", "nothing.py:A"), "nothing.py: no such file"),
        (
            ("simulate", "wave"),
            "no problem 'wave'; choose one of rd, rd-quadratic, helmholtz, darcy, or a file",
        ),
        (("identify", "helmoltz"), "there is no problem 'helmoltz'; did you mean helmholtz?"),
        (("train", "no-such-file.csv", "no-such-file.csv"), "there is no problem 'no-such-file.csv'"),
        (("train", "rd", "nothing.npz"), "nothing.npz: no such file"),
        (("invert", "nothing", "nothing.npz"), "nothing: no such folder"),
        (("evaluate", "nothing", "nothing.npz"), "nothing: no such folder"),
        (("simulate", "rd", "-n", 0), "--n-samples must be >= 1, found 0"),
        (("simulate", "rd", "-o", "d.csv"), "--out d.csv: unknown kind of file '.csv', expected one of .npz"),
        (("bench", "--repeats", 0), "--repeats must be >= 1, found 0"),
    ],
)
def test_what_needs_no_jax_to_be_seen_is_refused_before_it_is_imported(refused, monkeypatch, arguments, message):
    for name in [name for name in sys.modules if name.startswith("icl25_pi_dion.") and name.endswith("verbs")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it would fail
    assert message in refused(*arguments)


TRAIN = ("train", "rd", "d.npz", "--set", "n_sensors=21,n_modes=6")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("simulate", "folder"), "there is no problem 'folder'"),
        (("simulate", "two.py"), "two.py defines A, B: choose one, such as two.py:A"),
        (("simulate", "rd", "--set", "E=1"), "problem rd has no setting 'E'; it has D, kappa"),
        (("simulate", "rd", "--set", "D"), "expected key=value, found 'D'"),
        (("simulate", "rd", "--noise", -1), "noise must be >= 0, found -1"),
        (("simulate", "rd", "--out", "exists.npz"), "--out exists.npz exists: --force replaces it"),
        (("simulate", "rd", "--out", "folder"), "--out folder is a folder, expected a file such as folder/data.npz"),
        (("simulate", "rd", "--out", "exists.npz/d.npz"), "exists.npz is a file, expected a folder"),
        (("simulate", "rd", "--device", "abacus"), "--device must be auto, cpu, cuda, cuda:N or mps, found 'abacus'"),
        (("simulate", "rd", "--device", "cuda:9"), "there is no device 'cuda:9' for jax"),
        (("simulate", "rd", "--seed", -1), "--seed must be a whole number from 0"),
        (("train", "rd", "folder"), "folder is a folder, expected a file"),
        (("train", "rd", "two.py"), "two.py: unknown kind of file '.py', expected one of .npz"),
        (("train", "rd", "exists.npz"), "exists.npz: not a readable NPZ file"),
        (("train", "rd", "d.npz"), "sensors' has shape (21, 2), that of the problem (51, 2)"),
        (("train", "helmholtz", "other.npy"), "measurements must have shape (n, 33, 33), found (4, 20)"),
        ((*TRAIN, "--steps", 0), "--steps must be >= 1, found 0"),
        ((*TRAIN, "--p", 0), "--p must be >= 1, found 0"),
        ((*TRAIN, "--batch-size", 0), "--batch-size must be >= 1, found 0"),
        ((*TRAIN, "--learning-rate", 0), "--learning-rate must be > 0, found 0.0"),
        ((*TRAIN, "--learning-rate", "fast"), "expected a number, found 'fast'"),
        ((*TRAIN, "--labels", 41), "--labels 41, but d.npz holds 40 samples"),
        ((*TRAIN, "--labels", -1), "--labels must be >= 0, found -1"),
        ((*TRAIN, "--missing", "mask"), "--missing mask needs a network of sets: --branch set"),
        ((*TRAIN, "--weight-data", -1), "weight data must be >= 0, found -1"),
        ((*TRAIN, "--weight-data", 0), "weight data is 0 and there are no labels"),
        ((*TRAIN, "--noise-std", -1), "noise_std must be >= 0, found -1"),
        ((*TRAIN, "--optimizer", "sgd"), "sgd"),
        ((*TRAIN, "--n-devices", 64), "n_devices must be from 1 to"),
        ((*TRAIN, "--resume"), "--resume goes on with the run of a folder: name it with --out"),
        ((*TRAIN, "--resume", "--out", "folder"), "there is no training to resume in folder"),
        ((*TRAIN, "--resume", "--force", "--out", "run"), "--resume and --force exclude each other"),
        ((*TRAIN, "--out", "run"), "--resume goes on with a run that broke off, --force begins anew"),
        ((*TRAIN, "--out", "exists.npz"), "exists.npz is a file, expected a folder"),
        (
            ("train", "rd", "unlabelled.npz", *TRAIN[3:], "--labels", 1),
            "holds no unknowns s for --labels 1",
        ),
        (("train", "rd", "gaps.npy", *TRAIN[3:]), "values that are not finite, the first, NaN, sample"),
        (("train", "rd", "zeros.npy", *TRAIN[3:]), "all measurements are zero: there is nothing to learn from"),
        (("invert", "folder", "d.npz"), "folder holds no trained operator (there is no config.json)"),
        (("invert", "d.npz", "d.npz"), "d.npz is a file, expected the folder of a training"),
        (("invert", "broken", "d.npz"), "config.json is not JSON"),
        (("invert", "run", "other.npy"), "measurements must have shape (n, 21), found (4, 20)"),
        (("invert", "run", "gaps.npy"), "values that are not finite"),
        (("invert", "run", "d.npz", "--refine", -1), "--refine must be >= 0, found -1"),
        (("invert", "run", "d.npz", "--out", "exists.npz"), "--out exists.npz exists: --force replaces it"),
        (
            ("invert", "run", "d.npz", "--out", "r.txt"),
            "--out r.txt: unknown kind of file '.txt', expected",
        ),
        (("invert", "run", "d.npz", "--set", "D=1"), "--set belongs to --problem"),
        (
            ("invert", "run", "d.npz", "--problem", "helmholtz"),
            "run was trained on ReactionDiffusionSource, found H",
        ),
        (("evaluate", "run", "unlabelled.npz"), "unlabelled.npz holds no true unknowns s to evaluate against"),
        (("evaluate", "run", "d.npz", "--out", "run"), "run holds an earlier run; pass --force"),
        (("identify", "rd", "--k", 0), "--k must be >= 1, found 0"),
        (("identify", "rd", "--noise", 2), "--noise must lie between 0 and 1, found 2.0"),
        (
            ("identify", "rd", "--out", "s.txt"),
            "unknown kind of file '.txt', expected one of .png, .pdf, .svg",
        ),
        (("bench", "--p", "many"), "expected a whole number, found 'many'"),
        (("reproduce", "wave"), "wave"),
        (("reproduce", "--scale", "desk"), "desk"),
        (("demo", "--n-seed", 1), "unrecognized option --n-seed (did you mean --n-seeds?)"),
    ],
)
def test_wrong_input_is_refused_in_one_line(refused, files, arguments, message):
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    assert message in refused(*arguments)
    after = {path: path.read_bytes() for path in files.rglob("*") if path.is_file() and "runs" not in path.parts}
    assert after == before


def test_problems_that_cannot_be_simulated_say_so(refused, user_problem):
    assert "problem my_pde.py: Decay does not define sample_target" in refused("simulate", "my_pde.py")
    assert "Decay has no sensor_shape: set it, or override sensors()" in refused("identify", "my_pde.py")
    user_problem.write_text(user_problem.read_text() + "    sensor_shape = (5,)\n")
    assert "problem my_pde.py: Decay does not define forward" in refused("identify", "my_pde.py")


def test_objects_in_files_are_not_unpickled(refused, rd_case):
    np.savez("objects.npz", measurements=np.array([{"a": 1}] * 3, object))
    assert "holds Python objects, which are never unpickled" in refused("invert", rd_case.run, "objects.npz")


@pytest.mark.parametrize(("name", "damage"), [("config.json", ""), ("config.json", "{}"), ("calibration.json", "[")])
def test_damaged_run_folders_are_refused(refused, files, name, damage):
    (files / "run" / name).write_text(damage)
    assert f"run/{name} is" in refused("invert", "run", "d.npz")


def test_parameters_that_are_gone_are_missed(refused, files):
    shutil.rmtree(Path("run/parameters"))
    assert "no checkpoint" in refused("invert", "run", "d.npz")
