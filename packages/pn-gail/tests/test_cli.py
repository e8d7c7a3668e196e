from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icl25_pn_gail import cli_flags, compare_verbs
from icl25_pn_gail.classifier import ConfidenceClassifier
from icl25_pn_gail.cli import VERBS, Label, Train, main
from icl25_pn_gail.comparison import CLONING, FinishedRun
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.evaluation import EvalResult
from icl25_pn_gail.imitation import PNGAIL
from icl25_pn_gail.methods import METHODS
from icl25_pn_gail.policies import ImitationPolicy
from icl25_pn_gail.preparation import CLASSIFIERS
from icl25_pn_gail.recording import make_demonstrations

LEVELS = "to-a:2:1.0,to-b:4:0.1"
TINY = ("--hidden", "8", "--steps-per-iteration", "60", "--eval-every", "2", "--episodes", "5", "--device", "cpu")
CONFIG = TrainConfig(hidden=(8,), steps_per_iteration=60, eval_every=2)


class Case(NamedTuple):
    """Demonstrations in a file, half of whose rows are rated, and a run folder of a training on them."""

    demos: Demonstrations
    path: Path
    run: Path


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Case:
    folder = tmp_path_factory.mktemp("case")
    demos = make_demonstrations("TwoGoals", LEVELS).mask_labels(0.5)
    path, run = folder / "demos.npz", folder / "run"
    demos.to_npz(path)
    flags = ("--env", "TwoGoals", "--iterations", "4", "--out", str(run), "--quiet", *TINY)
    assert main(["train", str(path), *flags]) == 0
    return Case(demos, path, run)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_without_importing_jax(cli, monkeypatch, verb):
    for name in [name for name in sys.modules if name.startswith("icl25_pn_gail.") and name.endswith("_verbs")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it would fail
    ran = cli(verb, "--help")
    assert ran.status == 0
    assert "common options" in ran.out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from icl25_pn_gail.cli import main; main(['train', '--help']);"
        "print([name for name in ('jax', 'numpy', 'matplotlib', 'pandas', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_flags_have_the_defaults_and_names_of_the_library():
    flags = Train(demos=Path("demos.npz"))
    assert flags.train_config() == TrainConfig()
    assert dataclasses.replace(flags, official=True, gamma=0.9).train_config() == TrainConfig.official(gamma=0.9)
    assert (*METHODS, *CLONING) == cli_flags.METHOD_NAMES
    assert cli_flags.CLASSIFIER_NAMES == CLASSIFIERS
    usual = ConfidenceClassifier()
    label = Label(demos=Path("demos.npz"))
    assert (label.method, label.steps, label.batch_size) == (usual.method, usual.steps, usual.batch_size)


def test_demonstrations_are_those_of_the_library(cli):
    ran = cli("make-demos", "--env", "TwoGoals", "--levels", "to-a:2:1.0,to-b:4:0.2", "--seed", 3, "--json")
    assert ran.status == 0, ran.err
    expected = make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.2", seed=3)
    found = Demonstrations.from_npz("demos.npz")
    for name in ("obs", "acts", "confidence", "episode", "reward"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    good, bad = ran.json["levels"]
    assert (good["level"], good["episodes"], good["rows"], good["confidence"]) == ("to-a", 2, 60, 1.0)
    assert (bad["level"], bad["episodes"], bad["rows"], bad["confidence"]) == ("to-b", 4, 120, 0.2)
    assert bad["mean_return"] == pytest.approx(expected.summary()["return"][2:].mean())
    assert (ran.json["rows"], ran.json["labelled"]) == (180, 180)


def test_demonstrations_go_to_tables_with_some_of_their_labels(cli):
    flags = ("--env", "TwoGoals", "--levels", LEVELS, "--label-share", 0.25, "--seed", 2)
    ran = cli("make-demos", *flags, "-o", "d.csv")
    assert ran.status == 0, ran.err
    assert "TwoGoals: 6 episodes, 180 rows, 45 with a confidence" in ran.out
    assert any("to-b" in line and "120" in line and "0.1" in line for line in ran.out.splitlines())
    expected = make_demonstrations("TwoGoals", LEVELS, seed=2).mask_labels(0.25, 2)
    np.testing.assert_array_equal(Demonstrations.from_csv("d.csv").confidence, expected.confidence)
    assert cli("make-demos", *flags, "--label-by", "episode", "-o", "d.parquet").status == 0
    labelled = Demonstrations.from_parquet("d.parquet").summary()["labelled"]
    assert sorted(labelled) == [0, 0, 0, 0, 30, 30]
    assert cli("make-demos", *flags[:-1], 1, "-o", "d.csv").status == 2
    assert cli("make-demos", *flags[:-1], 1, "-o", "d.csv", "--force").status == 0
    assert not np.array_equal(Demonstrations.from_csv("d.csv").obs, expected.obs)


def test_learners_at_several_stages_are_recorded(cli, monkeypatch):
    made = make_demonstrations("TwoGoals", LEVELS)
    meta = made.meta | {"level_steps": {"to-a": 700, "to-b": 200}}
    asked = []

    def train_and_record(*arguments, callback, **options):
        asked.append((arguments, options))
        callback(200, -56.0)
        return dataclasses.replace(made, meta=meta)

    monkeypatch.setattr("icl25_pn_gail.sb3_recording.train_and_record", train_and_record)
    flags = ("--sb3", "td3", "--total-steps", 700, "--checkpoints", 2, "--seed", 4)
    ran = cli("make-demos", "--env", "Pendulum-v1", *flags, "--episodes-per-level", "2,4")
    assert ran.status == 0, ran.err
    assert asked == [(("Pendulum-v1", "td3", 700, 2, [2, 4], 4), {})]
    assert "200 of 700 steps: mean return -56" in ran.err
    row = next(line for line in ran.out.splitlines() if "to-a" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["to-a", "2", "60", "-17.7", "700", "1"]
    assert cli("make-demos", "--env", "Pendulum-v1", *flags, "-o", "e.npz").status == 0
    assert asked[1][0][4] == [5, 5]


def test_a_check_ends_with_status_1_where_there_are_errors(cli, case):
    good = cli("check", case.path, "--env", "TwoGoals")
    assert good.status == 0
    assert "no errors, no warnings" in good.out
    bad = cli("check", case.path, "--env", "Pendulum-v1", "--json", "--out", "found")
    assert bad.status == 1
    assert bad.json["ok"] is False
    first = bad.json["findings"][0]
    assert (first["level"], first["code"]) == ("error", "dimensions")
    assert json.loads(Path("found/check.json").read_text()) == bad.json
    few = case.demos.with_confidence(np.where(np.arange(180) < 3, 0.5, np.nan))
    few.to_npz("few.npz")
    warned = cli("check", "few.npz")
    assert warned.status == 0
    assert "no errors, 2 warnings" in warned.out
    assert "3 labelled rows" in warned.out


def test_options_of_python_are_told_as_flags(cli):
    pd.DataFrame({"obs_0": [0.0, 1.0], "obs_1": [0.5, 1.0], "act_0": [0, 1]}).to_csv("d.csv", index=False)
    ran = cli("check", "d.csv", "--env", "PendulumJax")
    assert ran.status == 1
    assert "--actions continuous" in " ".join(ran.out.split())
    ran = cli("check", "d.csv", "--env", "PendulumJax", "--actions", "continuous", "--json")
    assert "2 observations and 1 action," in ran.json["findings"][0]["message"]


def test_what_methods_imitate_is_told_before_training(cli):
    demos = make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.3")
    demos.to_npz("d.npz")
    ran = cli("diagnose", "d.npz", "--by", "level", "--json", "--out", "diagnosis")
    assert ran.status == 0, ran.err
    good, bad = ran.json["groups"]
    assert (good["group"], bad["group"]) == ("to-a", "to-b")
    # The closed form: k = (1 + 0.7 * 2/3) / (1/3 + 0.3 * 2/3) = 2.75, of which good rows have k / 3.
    shares = [good[name] for name in ("demonstrations", "gail", "iwil", "pn_gail")]
    np.testing.assert_allclose(shares, [1 / 3, 1 / 3, 0.625, 2.75 / 3], rtol=1e-6)
    assert json.loads(Path("diagnosis/result.json").read_text()) == ran.json
    assert pd.read_csv("diagnosis/mixture.csv")["pn_gail"].tolist() == pytest.approx([good["pn_gail"], bad["pn_gail"]])
    with Image.open("diagnosis/mixture.png") as image:
        assert min(image.size) > 300
    shown = cli("diagnose", "d.npz")
    row = next(line for line in shown.out.splitlines() if "│ 1 " in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["1", "1", "33.3 %", "33.3 %", "62.5 %", "91.7 %"]


def test_a_diagnosis_of_many_confidences_goes_by_ranges_and_by_episodes(cli):
    demos = make_demonstrations("TwoGoals", LEVELS)
    confidence = np.linspace(0, 1, 180)
    confidence[:30] = np.nan
    demos.with_confidence(confidence).to_npz("d.npz")
    ran = cli("diagnose", "d.npz", "--json")
    assert "30 of 180 rows have no confidence and are left out" in ran.err
    groups = [group["group"] for group in ran.json["groups"]]
    assert groups[0] == "0.1 to 0.2"
    assert groups[-1] == "0.9 to 1.0"
    assert len(groups) == 9
    assert sum(group["pn_gail"] for group in ran.json["groups"]) == pytest.approx(1)
    by_episode = cli("diagnose", "d.npz", "--by", "episode", "--json").json["groups"]
    assert [group["group"] for group in by_episode] == ["1", "2", "3", "4", "5"]
    assert by_episode[-1]["pn_gail"] > 0.4 > 0.01 > by_episode[0]["pn_gail"]
    many = Demonstrations(np.zeros((30, 1)), np.zeros((30, 1)), np.linspace(0, 1, 30), np.arange(30))
    many.to_npz("many.npz")
    shown = cli("diagnose", "many.npz", "--by", "episode").out
    assert "by episode, the 20 most imitated of 30 groups" in shown
    listed = [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]
    assert listed == [str(episode) for episode in range(29, 9, -1)]


def test_a_run_folder_holds_what_the_library_learns(case):
    names = {path.name for path in case.run.iterdir()}
    pictures = {"learning.png", "confidence.png", "discriminator.png"}
    texts = {"config.json", "history.csv", "report.md", "run.json"}
    assert names == pictures | texts | {"policy.msgpack", "confidence.parquet", "checkpoint.msgpack"}
    expected = PNGAIL(TwoGoals(), case.demos, config=CONFIG).learn(4, progress_bar=False)
    expected.save("expected")
    assert (case.run / "policy.msgpack").read_bytes() == Path("expected/policy.msgpack").read_bytes()
    history = pd.read_csv(case.run / "history.csv")
    pd.testing.assert_frame_equal(
        history.drop(columns="seconds"), expected.history.drop(columns="seconds"), check_dtype=False
    )
    table = pd.read_parquet(case.run / "confidence.parquet")
    np.testing.assert_array_equal(table["confidence"], expected.confidence)
    for name in pictures:
        with Image.open(case.run / name) as image:
            assert min(image.size) > 300
    record = json.loads((case.run / "run.json").read_text())
    assert (record["verb"], record["status"], record["config"]["iterations"]) == ("train", "finished", 4)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Write to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


def test_the_report_says_what_was_believed_and_how_good_it_is(case):
    report = (case.run / "report.md").read_text()
    learner = PNGAIL.load(case.run, TwoGoals())
    result = learner.evaluate(5)
    low, high = result.interval
    assert f"**{result.mean:.1f}**, 95 % interval {low:.1f} to {high:.1f}" in report
    assert report.startswith("# PN-GAIL in TwoGoals\n")
    assert "`demos.npz`: 180 rows, 6 episodes, 2 observations, 2 actions. Of the rows 90 have a confidence" in report
    assert "missing confidences | filled in by bsc" in report
    assert "hidden=8, steps_per_iteration=60, eval_every=2" in report
    filled = pd.read_parquet(case.run / "confidence.parquet")
    means = filled.groupby("episode")["confidence"].mean().sort_values(ascending=False)
    rows = [
        line.split(" | ") for line in report.splitlines() if line.startswith(tuple(f"| {i} | 30 |" for i in range(6)))
    ]
    assert [row[0] for row in rows] == [f"| {episode}" for episode in means.index]
    assert [row[4] for row in rows] == [f"{mean:.3f}" for mean in means]
    assert sum(int(row[2]) for row in rows) == 90
    assert "in order: dimensions, action-bounds" in report
    code = report.partition("```python\n")[2].partition("```")[0].replace("this-folder", str(case.run))
    scope = {"observation": [0.0, -1.0]}
    exec(code, scope)  # the report's own lines
    np.testing.assert_array_equal(scope["action"], learner.predict([0.0, -1.0])[0])


def test_a_method_without_confidences_needs_none(cli, case):
    case.demos.with_confidence(None).to_parquet("d.parquet")
    flags = ("--env", "TwoGoals", "--iterations", 2, *TINY)
    ran = cli("train", "d.parquet", "--method", "gail", *flags, "--out", "run", "--json")
    assert ran.status == 0, ran.err
    assert "confidence" not in ran.err
    assert (ran.json["method"], ran.json["labelled"], ran.json["iterations"]) == ("gail", 0, 2)
    assert ran.json["mean_return"] == pytest.approx(np.mean(ran.json["returns"]))
    assert "GAIL uses no confidences: every row was imitated alike." in Path("run/report.md").read_text()
    assert not Path("run/confidence.png").exists()
    assert "needs some" in cli("train", "d.parquet", *flags, "--out", "other").err


def test_behaviour_is_cloned_with_confidences_as_weights(cli, case):
    flags = ("--env", "TwoGoals", "--iterations", 4, *TINY)
    ran = cli("train", case.path, "--method", "bc-weighted", "--classifier", "supervised", *flags, "--out", "run")
    assert ran.status == 0, ran.err
    assert "bc-weighted in TwoGoals: 4 iterations on 180 rows, 90 with a confidence" in ran.out
    report = Path("run/report.md").read_text()
    assert "# Behaviour cloning in TwoGoals" in report
    assert "filled in by supervised" in report
    assert not Path("run/discriminator.png").exists()
    evaluated = cli("evaluate", "run", "--episodes", 5, "--device", "cpu", "--json")
    assert evaluated.status == 0, evaluated.err
    assert f"**{evaluated.json['mean_return']:.1f}**" in report


def test_an_evaluation_is_that_of_the_library(cli, case):
    ran = cli("evaluate", case.run, "--episodes", 5, "--seed", 2, "--json", "--out", "scores", "--video")
    assert ran.status == 0, ran.err
    expected = PNGAIL.load(case.run, TwoGoals()).evaluate(5, seed=2)
    np.testing.assert_allclose(ran.json["returns"], expected.returns)
    assert ran.json["mean_return"] == pytest.approx(expected.mean)
    assert ran.json["interval"] == pytest.approx(list(expected.interval))
    assert json.loads(Path("scores/evaluation.json").read_text()) == ran.json
    assert pd.read_csv("scores/episodes.csv")["return"].tolist() == pytest.approx(ran.json["returns"])
    with Image.open("scores/rollout.png") as image:
        assert min(image.size) > 300
    drawn = cli("evaluate", case.run, "--episodes", 5, "--seed", 2, "--json", "--stochastic")
    assert drawn.json["deterministic"] is False
    assert drawn.json["mean_return"] != ran.json["mean_return"]
    shown = cli("evaluate", case.run, "--episodes", 5, "--seed", 2)
    low, high = expected.interval
    assert f"{low:.1f} to {high:.1f}" in shown.out


@pytest.fixture
def compared(case, monkeypatch) -> list[inspect.BoundArguments]:
    """Comparisons that were asked for; each run ends as that of ``case``, a thousand times its seed better."""
    learner = PNGAIL.load(case.run, TwoGoals())
    real, calls = compare_verbs.compare, []

    def compare(*arguments, **options):
        asked = inspect.signature(real).bind(*arguments, **options)
        calls.append(asked)
        rows = []
        for name, seed in itertools.product(asked.arguments["methods"], asked.arguments["seeds"]):
            result = EvalResult(np.array([-50.0, -30.0]) + 1000 * seed, np.array([30, 30]))
            asked.arguments["on_run"](FinishedRun(name, seed, learner.history, learner.policy, result))
            rows.append((name, seed, result.mean, result.iqm, 30.0))
        return pd.DataFrame(rows, columns=["method", "seed", "mean_return", "iqm_return", "mean_length"])

    monkeypatch.setattr(compare_verbs, "compare", compare)
    return calls


def test_given_confidences_are_sharpened_where_it_is_asked_for(cli):
    full = make_demonstrations("TwoGoals", "to-a:1:0.8,to-b:1:0.2")
    full.to_npz("d.npz")
    plain, sharp = (cli("diagnose", "d.npz", *flags, "--json").json for flags in ((), ("--sharpen", 2)))
    for found, values in ((plain, (0.2, 0.8)), (sharp, (1 / 17, 16 / 17))):
        assert sorted(row["confidence"] for row in found["groups"]) == pytest.approx(values)


def test_demonstrations_may_be_named_like_other_flags(cli, case):
    expected = cli("check", case.path, "--env", "TwoGoals", "--json")
    assert expected.status == 0, expected.err
    for named in (("--demos", case.path), (f"--demos={case.path}",)):
        ran = cli("check", "--env", "TwoGoals", *named, "--json")
        assert (ran.status, ran.json) == (0, expected.json)


def test_methods_are_compared_from_several_seeds(cli, case, compared):
    make_demonstrations("TwoGoals", LEVELS).to_npz("all.npz")
    flags = ("--env", "TwoGoals", "--iterations", 4, *TINY, "--n-seeds", 2, "--seed", 3, "--learner", "ppo")
    methods = ("--methods", "pn-gail+oracle,bc,bc", "--oracle", "all.npz", "--failed-below", 3000)
    ran = cli("compare", case.path, *methods, *flags, "--out", "out", "--json")
    assert ran.status == 0, ran.err
    (asked,) = compared
    assert asked.arguments["env"] == TwoGoals()
    assert asked.arguments["methods"] == ["pn-gail+oracle", "bc"]
    assert list(asked.arguments["seeds"]) == [3, 4]
    assert {name: asked.arguments[name] for name in ("total_iterations", "learner", "config", "n_episodes")} == {
        "total_iterations": 4, "learner": "ppo", "config": CONFIG, "n_episodes": 5
    }  # fmt: skip
    np.testing.assert_array_equal(asked.arguments["demos"].confidence, case.demos.confidence)
    assert asked.arguments["oracle"].n_labelled == 180
    assert [(row["method"], row["seed"], row["mean_return"]) for row in ran.json["runs"]] == [
        ("pn-gail+oracle", 3, 2960), ("pn-gail+oracle", 4, 3960), ("bc", 3, 2960), ("bc", 4, 3960)
    ]  # fmt: skip
    first = ran.json["summary"][0]
    assert (first["method"], first["runs"], first["median"], first["failed"]) == ("pn-gail+oracle", 2, 3460, 0.5)
    assert json.loads(Path("out/result.json").read_text()) == {k: v for k, v in ran.json.items() if k != "out"}
    assert pd.read_csv("out/results.csv")["mean_return"].tolist() == [2960, 3960, 2960, 3960]
    histories = pd.read_csv("out/histories.csv")
    assert histories.groupby(["method", "seed"])["eval_return"].count().tolist() == [2, 2, 2, 2]
    with Image.open("out/comparison.png") as image:
        assert min(image.size) > 300
    shown = cli("compare", case.path, "--methods", "gail", *flags, "--out", "again")
    row = next(line for line in shown.out.splitlines() if "gail" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "gail", "2", "3460.0", "2960.0 to 3960.0", "3460.0", "3460.0", "2960.0", "3960.0"
    ]  # fmt: skip
    assert "--force replaces it" in cli("compare", case.path, *methods, *flags, "--out", "out").err


def test_a_policy_of_a_run_acts_by_itself(case):
    policy = ImitationPolicy.load(case.run)
    assert policy.predict(case.demos.obs)[0].shape == (180, 2)
