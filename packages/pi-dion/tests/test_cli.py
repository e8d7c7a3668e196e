from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icl25_pi_dion import cli as command_line
from icl25_pi_dion.cli import VERBS
from icl25_pi_dion.compile_cache import cache_folder, use_compile_cache
from icl25_pi_dion.data import sample_prior, simulate
from icl25_pi_dion.estimator import InverseOperator
from icl25_pi_dion.problems import HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.readers import read_measurements
from icl25_pi_dion.scores import score_inversions
from icl25_pi_dion.spectra import identifiability
from icl25_shared import Output


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_without_importing_jax(cli, monkeypatch, verb):
    for name in [name for name in sys.modules if name.startswith("icl25_pi_dion.") and name.endswith("_verbs")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it would fail
    ran = cli(verb, "--help")
    assert ran.status == 0
    assert "common options" in ran.out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from icl25_pi_dion.cli import main; main(['train', '--help']);"
        "print([name for name in ('jax', 'numpy', 'matplotlib', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_simulated_data_are_those_of_the_library(cli):
    flags = ("--set", "n_sensors=11,n_modes=4", "--noise", 0.05, "--seed", 3, "--fields")
    ran = cli("simulate", "rd", "-n", 6, *flags, "-o", "d.npz", "--json")
    assert ran.status == 0
    problem = ReactionDiffusionSource(n_sensors=11, n_modes=4)
    file = read_measurements("d.npz", problem)
    s = sample_prior(problem, 6, seed=3)
    np.testing.assert_array_equal(file.s, s)
    np.testing.assert_array_equal(file.measurements, simulate(problem, s, noise=0.05, seed=3))
    at_end = file.points_u[:, 1] == 1
    np.testing.assert_allclose(file.u[:, at_end], simulate(problem, s), atol=1e-8)
    assert ran.json["arrays"]["measurements"] == [6, 11]
    before = Path("d.npz").read_bytes()
    assert cli("simulate", "rd", "-n", 6, *flags, "-o", "d.npz").status == 2
    assert cli("simulate", "rd", "-n", 6, *flags, "-o", "d.npz", "--force").status == 0
    assert Path("d.npz").read_bytes() == before
    assert cli("simulate", "rd", "-n", 6, *flags[:4], "--seed", 4, "-o", "e.npz").status == 0
    assert Path("e.npz").read_bytes() != before


def test_a_run_folder_holds_the_operator_its_history_and_pictures(rd_case):
    names = {path.name for path in rd_case.run.iterdir()}
    assert {"config.json", "history.csv", "loss.png", "inversions.png", "checkpoint", "run.json"} <= names
    history = pd.read_csv(rd_case.run / "history.csv")
    terms = ["total", "physics", "data", "h1"]
    assert list(history) == ["step", *terms, "val_residual", "val_misfit", "rate", "seconds"]
    assert history["step"].tolist() == [50, 100, 150, 200, 250, 300]
    assert history["total"].is_monotonic_decreasing
    weighted = history["physics"] + 10 * history["data"] + 0.1 * history["h1"]
    np.testing.assert_allclose(history["total"], weighted, rtol=1e-4)
    for name in ("loss.png", "inversions.png"):
        with Image.open(rd_case.run / name) as image:
            assert min(image.size) > 300
    record = json.loads((rd_case.run / "run.json").read_text())
    assert (record["status"], record["config"]["steps"]) == ("finished", 300)


def test_inversions_are_those_of_the_library(cli, rd_case):
    ran = cli("invert", rd_case.run, rd_case.data, "--refine", 1, "--return-u", "-o", "r.npz", "--json")
    assert ran.status == 0
    expected = InverseOperator.load(rd_case.run).predict(rd_case.measurements, refine=1, return_u=True)
    with np.load("r.npz") as found:
        for name, array in expected.arrays().items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-9)
    assert ran.json["n"] == 40
    assert len(ran.json["samples"]) == 10
    assert ran.json["samples"][3]["residual_rms"] == pytest.approx(expected.residual_rms[3])
    assert ran.json["medians"]["ood_score"] == pytest.approx(np.median(expected.ood_score))


def test_inversions_of_tables_keep_the_names_of_samples(cli, rd_case):
    table = pd.DataFrame(rd_case.measurements[:3], columns=[f"u{j}" for j in range(21)])
    table.insert(0, "sample", ["001", "b", "c"])
    table.to_csv("m.csv", index=False)
    ran = cli("invert", rd_case.run, "m.csv", "-o", "r.csv")
    assert ran.status == 0
    assert "001" in ran.out
    assert "result in r.csv" in ran.out
    result = pd.read_csv("r.csv", dtype={"sample": str})
    assert result["sample"].tolist() == ["001", "b", "c"]
    expected = InverseOperator.load(rd_case.run).predict(rd_case.measurements[:3]).s
    np.testing.assert_allclose(result.filter(like="s(x=").to_numpy(), expected, rtol=1e-5, atol=1e-6)


def test_measurements_in_other_units_are_warned_of(cli, rd_case):
    np.save("m.npy", 100 * rd_case.measurements)
    ran = cli("invert", rd_case.run, "m.npy", "-o", "r.npz")
    assert ran.status == 0
    assert "unlike those of the training" in ran.err


def test_evaluation_holds_inversions_against_the_truth(cli, rd_case):
    ran = cli("evaluate", rd_case.run, rd_case.data, "--refine", 1, "--out", "scores", "--json")
    assert ran.status == 0
    operator = InverseOperator.load(rd_case.run)
    result = operator.predict(rd_case.measurements, refine=1, return_u=True)
    expected = score_inversions(result, rd_case.problem, rd_case.s, rd_case.measurements)
    assert ran.json["coverage"] == expected.coverage
    for name, spread in expected.summary().items():
        assert ran.json[name]["mean"] == pytest.approx(spread.mean, rel=1e-5)
        assert ran.json[name]["p90"] == pytest.approx(spread.p90, rel=1e-5)
    assert set(expected.summary()) == {"error_s", "error_s_interior", "error_u", "residual", "misfit"}
    assert json.loads(Path("scores/scores.json").read_text()) == ran.json
    assert {path.name for path in Path("scores").glob("*.png")} == {"inversions.png", "reliability.png"}
    shown = cli("evaluate", rd_case.run, rd_case.data, "--refine", 1)
    assert f"{100 * expected.summary()['error_s'].mean:.3g} %" in shown.out
    assert f"for {100 * expected.coverage:.3g} % of the samples" in shown.out


def test_a_problem_of_the_user_s_own_is_trained_and_inverted(cli, rd_case, user_problem):
    flags = ("--set", "rate=0.2", "--optimizer", "adam", "--steps", 10, "--p", 8, "--points", 20)
    np.save("m.npy", rd_case.measurements)
    trained = cli("train", "my_pde.py", "m.npy", "--out", "run", *flags)
    assert trained.status == 0, trained.err
    assert "cannot be simulated" in trained.err
    refused = cli("invert", "run", "m.npy")
    assert refused.status == 2
    assert "name its file with --problem" in refused.err
    marker = Path("marker")
    Path("run/my_pde.py").write_text(f"open({str(marker)!r}, 'w')")
    ran = cli("invert", "run", "m.npy", "--problem", "my_pde.py", "--json")
    assert ran.status == 0, ran.err
    assert not marker.exists()  # what lies in a run folder is not executed
    assert ran.json["samples"][0]["error_estimate"] is None
    with np.load("result.npz") as found:
        assert found["s"].shape == (40, 51)
    # The residual depends on the rate, which is that of the training unless it is said.
    other = cli("invert", "run", "m.npy", "--problem", "my_pde.py", "--set", "rate=5", "--json", "-o", "o.npz")
    same = cli("invert", "run", "m.npy", "--problem", "my_pde.py", "--set", "rate=0.2", "--json", "-o", "s.npz")
    assert same.json["medians"] == ran.json["medians"] != other.json["medians"]


def test_sets_of_sensors_are_trained_and_inverted(cli, rd_case):
    rng = np.random.default_rng(0)
    sensors = rd_case.problem.sensors()
    rows = [
        (f"p{i}", *sensors[j], rd_case.measurements[i, j]) for i in range(40) for j in range(21) if rng.uniform() < 0.8
    ]
    pd.DataFrame(rows, columns=["sample", "x", "t", "value"]).to_csv("m.csv", index=False)
    flags = ("--set", "n_sensors=21,n_modes=6", "--steps", 5, "--p", 8, "--points", 20, "--weight-h1", 0)
    flags = (*flags, "--optimizer", "adam")
    assert "needs --branch set" in cli("train", "rd", "m.csv", "--out", "no", *flags).err
    ran = cli("train", "rd", "m.csv", "--branch", "set", "--out", "run", *flags)
    assert ran.status == 0, ran.err
    assert cli("invert", "run", "m.csv", "-o", "r.npz").status == 0
    with np.load("r.npz") as found:
        assert found["sample"].tolist() == [f"p{i}" for i in range(40)]
        assert found["s"].shape == (40, 21)
    assert "--branch set" in cli("invert", rd_case.run, "m.csv", "-o", "q.npz").err


def test_two_dimensions_labels_weights_and_a_convolutional_branch(cli):
    problem = HelmholtzCoefficient(n_grid=9)
    s = sample_prior(problem, 12, seed=0)
    np.savez("d.npz", measurements=simulate(problem, s), s=s, sensors=problem.sensors())
    flags = ("--set", "n_grid=9", "--branch", "cnn", "--steps", 5, "--p", 8, "--points", 20, "--batch-size", 4)
    weights = ("--weight-physics", 2, "--weight-data", 3, "--weight-label", 4, "--labels", 3, "--optimizer", "adam")
    ran = cli("train", "helmholtz", "d.npz", *flags, *weights, "--out", "run", "--json")
    assert ran.status == 0, ran.err
    last = ran.json["last"]
    assert last["total"] == pytest.approx(2 * last["physics"] + 3 * last["data"] + 4 * last["label"], rel=1e-4)
    config = json.loads(Path("run/config.json").read_text())
    assert (config["optimizer"], config["options"]["batch_size"], config["options"]["n_collocation"]) == ("adam", 4, 20)
    assert (config["architecture"]["p"], config["architecture"]["branch"]) == (8, "cnn")
    assert Path("run/inversions.png").stat().st_size > 10_000
    evaluated = cli("evaluate", "run", "d.npz", "--json")
    assert evaluated.status == 0
    assert 0 < evaluated.json["error_s_interior"]["mean"] < 1


def test_labels_are_those_of_the_first_samples_and_others_stay_unseen(cli, rd_case, monkeypatch):
    seen = []

    def fit(self, measurements, labels, **options):
        seen.append(labels)
        raise ValueError("that is enough")

    monkeypatch.setattr(InverseOperator, "fit", fit)
    for n in (0, 7):
        flags = ("--set", "n_sensors=21,n_modes=6", "--labels", n, "--out", f"run{n}")
        assert "that is enough" in cli("train", "rd", rd_case.data, *flags).err
    none, (rows, unknowns) = seen
    assert none is None
    assert rows.tolist() == list(range(7))
    np.testing.assert_array_equal(unknowns, rd_case.s[:7])


def test_a_training_that_diverges_fails(cli, rd_case):
    flags = ("--set", "n_sensors=21,n_modes=6", "--steps", 50, "--p", 8, "--points", 20, "--optimizer", "adam")
    ran = cli("train", "rd", rd_case.data, *flags, "--learning-rate", "1e30", "--out", "run")
    assert ran.status == 1
    assert ran.out.startswith("training failed: the loss is not finite")
    assert json.loads(Path("run/run.json").read_text())["status"] == "failed"
    assert "its training has not ended" in cli("invert", "run", rd_case.data).err


def test_what_a_measurement_determines_is_said(cli):
    flags = ("--set", "n_sensors=21,n_modes=10", "--k", 8, "--noise", 0.02)
    ran = cli("identify", "rd", *flags, "--out", "spectrum.png")
    assert ran.status == 0
    assert "the measurement determines the unknown: with 0.02 noise 8 of the 8" in ran.out
    with Image.open("spectrum.png") as image:
        assert min(image.size) > 300
    spectrum = identifiability(ReactionDiffusionSource(n_sensors=21, n_modes=10), k=8)
    for value, ratio in zip(spectrum.singular_values, spectrum.signal_to_noise(0.02), strict=True):
        assert any(f"{value:.4g}" in line and f"{ratio:.3g}" in line for line in ran.out.splitlines())
    half = cli("identify", "rd", "--set", "n_sensors=21,n_modes=10,measurement=window,window=0,0.5", "--json")
    assert half.status == 0
    assert half.json["determined"] is False
    assert "does not determine the unknown" in half.json["verdict"]
    assert half.json["expected_error"] > 0.3


def test_a_problem_without_prior_is_judged_by_its_singular_values(cli, user_problem):
    forward = "    sensor_shape = (5,)\n    target_shape = (5,)\n\n    def forward(self, s):\n        return {}\n"
    user_problem.write_text(user_problem.read_text() + forward.format("s * 0.5"))
    ran = cli("identify", "my_pde.py", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["determined"] is True
    user_problem.write_text(user_problem.read_text().replace("s * 0.5", "s * 0 + s.sum()"))
    ran = cli("identify", "my_pde.py", "--json")
    assert (ran.json["visible"], ran.json["determined"]) == (1, False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("demo", "--n-seeds", 2, "--seed", 5), {"n_seeds": 2, "seed": 5}),
        (("reproduce",), {"part": "all", "n_seeds": 3, "scale": "laptop"}),
        (("reproduce", "darcy", "--scale", "paper"), {"part": "darcy", "scale": "paper"}),
        (("reproduce", "rd", "--full"), {"part": "rd", "scale": "paper"}),
    ],
)
def test_demo_and_reproduce_pass_their_flags_on(cli, monkeypatch, arguments, expected):
    seen = []

    class Story:
        @staticmethod
        def run(flags):
            seen.append(flags)
            return Output({"done": True}, ["done"])

        run_demo = run_reproduce = run

    for name in ("demo", "reproduce"):
        monkeypatch.setitem(sys.modules, f"icl25_pi_dion.{name}", Story)
    ran = cli(*arguments)
    assert (ran.status, ran.out) == (0, "done\n")
    assert {name: getattr(seen[0], name) for name in expected} == expected


def test_the_story_verbs_are_there():
    assert {"demo", "reproduce"} <= set(command_line.VERBS)


def test_compiled_programs_are_kept_in_the_cache_of_the_user(tmp_path, monkeypatch):
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
        assert use_compile_cache() == cache_folder() == tmp_path / "mine" / "icl25-pi-dion" / "jax"
        assert jax.config.jax_compilation_cache_dir == str(cache_folder())
        jax.config.update("jax_compilation_cache_dir", None)
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert use_compile_cache() is None
        assert jax.config.jax_compilation_cache_dir is None
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        assert use_compile_cache() == tmp_path  # where jax was told of a folder, that one stays
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_times_are_measured_and_both_losses_agree(cli, monkeypatch):
    monkeypatch.setattr("icl25_pi_dion.speed_verbs.BATCHES", (100,))
    start = time.perf_counter()
    ran = cli("bench", "--n-points", 16, "--p", 8, "--repeats", 1, "--json", "--out", "bench")
    assert ran.status == 0
    assert ran.json["loss"] == pytest.approx(ran.json["loss_by_hessians"], rel=1e-4)
    assert set(ran.json["physics_loss_ms"]) == {"100"}
    seconds = time.perf_counter() - start
    assert 0 < ran.json["inversion_ms"]["1000"] < 1e3 * seconds
    assert json.loads(Path("bench/result.json").read_text()) == ran.json
