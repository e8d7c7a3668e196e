from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import gymnasium
import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageSequence

from icl25_pn_gail import train_verbs
from icl25_pn_gail.checkpoints import Checkpoint
from icl25_pn_gail.cli import main
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import CartPoleJax, GymnasiumSource, TwoGoals
from icl25_pn_gail.imitation import PNGAIL
from icl25_pn_gail.learners import Learner
from icl25_pn_gail.policy_recording import draw_episode, record_policy
from icl25_pn_gail.recording import make_demonstrations

TINY = ("--hidden", "8", "--steps-per-iteration", "60", "--eval-every", "2", "--episodes", "5", "--device", "cpu")
# Deaf to signals where its parent is, otherwise.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from icl25_pn_gail.cli import main
sys.exit(main(sys.argv[1:]))
"""
OWN_ENV = '''
import gymnasium
import numpy as np


class Line(gymnasium.Env):
    """A point in the plane; the time is drawn as a bright column."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.array([0, -1]) + 0.05 * self.np_random.normal(size=2)
        return self.place.astype(np.float32), {}

    def step(self, action):
        self.place, self.steps = self.place + 0.1 * action, self.steps + 1
        return self.place.astype(np.float32), -float(np.hypot(*(self.place - [1, 0.6]))), False, False, {}

    def render(self):
        picture = np.zeros((40, 60, 3), np.uint8)
        picture[:, self.steps] = 255
        return picture


def make(render_mode=None):
    return gymnasium.wrappers.TimeLimit(Line(render_mode), 10)


def deaf():
    return gymnasium.wrappers.TimeLimit(Line(), 10)
'''


class Case(NamedTuple):
    """Demonstrations in a file, all rated, and a run folder of four iterations."""

    demos: Demonstrations
    path: Path
    run: Path


@pytest.fixture(scope="module")
def case(tmp_path_factory) -> Case:
    folder = tmp_path_factory.mktemp("case")
    demos = make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.1")
    path, run = folder / "demos.npz", folder / "run"
    demos.to_npz(path)
    assert main(["train", str(path), *FLAGS, "--iterations", "4", "--out", str(run), "--quiet"]) == 0
    return Case(demos, path, run)


FLAGS = ("--env", "TwoGoals", *TINY)


def start(*arguments, **options):
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def policy(folder) -> bytes:
    return (Path(folder) / "policy.msgpack").read_bytes()


def history(folder) -> pd.DataFrame:
    return pd.read_csv(Path(folder) / "history.csv").drop(columns="seconds")


def test_an_interrupted_training_goes_on_to_the_same_bytes(cli, case, tmp_path):
    flags = ("train", case.path, *FLAGS, "--out", "parts")
    child = start(*flags, "--iterations", 100_000, cwd=tmp_path)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not Path("parts/checkpoint.msgpack").exists():
        time.sleep(0.005)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "icl25-pn-gail train: interrupted"
    assert "iterations are kept: the same command with --resume goes on" in err
    assert json.loads(Path("parts/run.json").read_text())["status"] == "interrupted"
    assert not Path("parts/config.json").exists()
    assert "its training has not ended: `train --resume` goes on with it" in cli("evaluate", "parts").err
    learner = PNGAIL(TwoGoals(), case.demos, config=PNGAIL.load(case.run, TwoGoals()).config)
    kept = Checkpoint("parts", learner._identity()).read(learner._state)
    assert kept is not None
    n = len(kept.history) + 2
    resumed = cli(*flags, "--iterations", n, "--resume")
    assert resumed.status == 0, resumed.err
    learner.learn(n, progress_bar=False)
    learner.save("whole")
    assert policy("parts") == policy("whole")
    pd.testing.assert_frame_equal(history("parts"), history("whole"), check_exact=True)


def test_a_run_is_made_longer(cli, case):
    flags = ("train", case.path, *FLAGS, "--out", "run")
    assert cli(*flags, "--iterations", 2).status == 0
    assert history("run")["iteration"].tolist() == [1, 2]
    assert cli(*flags, "--iterations", 4, "--resume").status == 0
    assert policy("run") == policy(case.run)
    pd.testing.assert_frame_equal(history("run"), history(case.run), check_exact=True)
    assert json.loads(Path("run/run.json").read_text())["config"]["iterations"] == 4


@pytest.mark.parametrize("other", [("--seed", 1), ("--max-kl", 0.02), ("--method", "gail"), ("--reward", "airl")])
def test_other_settings_are_not_resumed(cli, case, other):
    shutil.copytree(case.run, "run")
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    ran = cli("train", case.path, *FLAGS, "--out", "run", "--iterations", 6, "--resume", *other)
    assert ran.status == 2
    assert "is of another training: the environment, demonstrations, method, settings or seed differ" in ran.err
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before


def test_a_damaged_checkpoint_is_refused(cli, case):
    shutil.copytree(case.run, "run")
    Path("run/checkpoint.msgpack").write_bytes(b"\x93")
    ran = cli("train", case.path, *FLAGS, "--out", "run", "--iterations", 6, "--resume")
    assert ran.status == 2
    assert "run/checkpoint.msgpack is damaged" in ran.err


def test_resuming_without_a_checkpoint_says_that_it_begins_anew(cli, case):
    shutil.copytree(case.run, "run")
    Path("run/checkpoint.msgpack").unlink()
    ran = cli("train", case.path, *FLAGS, "--out", "run", "--iterations", 4, "--resume")
    assert ran.status == 0, ran.err
    assert "run holds no checkpoint: the training begins anew" in ran.err
    assert policy("run") == policy(case.run)


def test_a_run_is_begun_anew_on_demand_only(cli, case):
    shutil.copytree(case.run, "run")
    flags = ("train", case.path, *FLAGS, "--out", "run", "--iterations", 2)
    refused = cli(*flags)
    assert refused.status == 2
    assert "--resume goes on with a run that broke off, --force begins anew" in refused.err
    assert policy("run") == policy(case.run)
    assert cli("train", "nothing.npz", *FLAGS, "--out", "run", "--force").status == 2
    assert cli("train", case.path, "--env", "Pendulum-v1", "--out", "run", "--force").status == 2
    assert policy("run") == policy(case.run)  # what cannot begin removes nothing
    assert cli(*flags, "--method", "gail", "--force").status == 0
    assert history("run")["iteration"].tolist() == [1, 2]
    assert not Path("run/confidence.png").exists()  # that of the earlier run


def test_force_leaves_the_files_of_other_programs_alone(cli, case):
    Path("mine").mkdir()
    Path("mine/config.json").write_text("mine")
    ran = cli("train", case.path, *FLAGS, "--out", "mine", "--iterations", 2, "--force")
    assert ran.status == 2
    assert "is no run folder of icl25-pn-gail train" in ran.err
    assert Path("mine/config.json").read_text() == "mine"


def test_a_training_that_diverges_fails(cli, case, monkeypatch):
    def learn(self, *arguments, **options):
        raise FloatingPointError("training diverged before iteration 2: a loss is not finite; lower disc_lr or max_kl")

    monkeypatch.setattr(PNGAIL, "learn", learn)
    ran = cli("train", case.path, *FLAGS, "--out", "run", "--iterations", 2)
    assert ran.status == 1
    assert ran.out == (
        "training failed: training diverged before iteration 2: a loss is not finite; lower --disc-lr or --max-kl\n"
    )
    assert json.loads(Path("run/run.json").read_text())["status"] == "failed"


def test_an_environment_of_the_user_s_own_is_evaluated_and_drawn(cli, case, monkeypatch):
    Path("own_line.py").write_text(OWN_ENV)
    monkeypatch.delitem(sys.modules, "own_line", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copytree(case.run, "run")
    flags = ("--env-module", "own_line:make", "--episodes", 2, "--device", "cpu")
    ran = cli("evaluate", "run", *flags, "--video", "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["env"], ran.json["lengths"]) == ("Line", [10, 10])
    with Image.open("run/rollout.gif") as image:
        assert len(list(ImageSequence.Iterator(image))) == 3  # 11 pictures at 50 a second, every fourth one shown
        assert image.size == (60, 40)
        assert image.info["duration"] == 80
    again = cli("evaluate", "run", *flags, "--video")
    assert again.status == 2
    assert "run/rollout.gif exists: --force replaces it" in again.err
    assert cli("evaluate", "run", *flags, "--video", "--force").status == 0
    deaf = cli("evaluate", "run", "--env-module", "own_line:deaf", "--episodes", 2, "--video", "--force")
    assert deaf.status == 2
    assert "it must take render_mode='rgb_array'" in deaf.err
    # What a run folder names is not executed before the user names it.
    record = json.loads(Path("run/run.json").read_text())
    record["config"]["env_module"] = "own_line:make"
    Path("run/run.json").write_text(json.dumps(record))
    refused = cli("evaluate", "run")
    assert refused.status == 2
    assert "was trained in an environment of your own: name it with --env-module own_line:make" in refused.err


def test_frames_tell_the_episode():
    class Counting(gymnasium.Env):
        metadata = {"render_fps": 4}  # noqa: RUF012
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        render_mode = "rgb_array"

        def __init__(self, render_mode="rgb_array"):
            self.n = 0

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.n += 1
            return np.full(2, self.n, np.float32), 0.0, self.n == 3, False, {}

        def render(self):
            return np.full((2, 2, 3), self.n, np.uint8)

    class Blind(Counting):
        def render(self):
            raise RuntimeError("no display\nat all")

    class Policy:
        @staticmethod
        def predict(obs, deterministic, rng):
            return np.zeros(2, np.float32), None

    frames, rate = draw_episode(GymnasiumSource(Counting), Policy())
    assert ([int(frame.max()) for frame in frames], rate) == ([0, 1, 2, 3], 4)
    with pytest.raises(ValueError, match="Blind cannot be drawn here: no display at all"):
        draw_episode(GymnasiumSource(Blind), Policy())


class Push:
    """A policy that always pushes the cart to the right."""

    @staticmethod
    def predict(obs, deterministic, rng):
        return np.ones(len(obs), int), None


def test_recorded_episodes_end_where_they_end():
    env = CartPoleJax()
    found = record_policy(env, Push(), 3)
    lengths = np.bincount(found.episode)
    assert len(lengths) == 3
    assert lengths.max() < 15  # the pole falls
    last = np.cumsum(lengths) - 1
    assert found.terminated.nonzero()[0].tolist() == last.tolist()
    inner = np.setdiff1d(np.arange(len(found.obs)), last)
    np.testing.assert_array_equal(found.next_obs[inner], found.obs[inner + 1])
    assert (found.acts == 1).all()
    with pytest.raises(ValueError, match="episodes must be at least 1, found 0"):
        record_policy(env, Push(), 0)


def test_recorded_episodes_are_those_of_the_policy(case):
    learner = PNGAIL.load(case.run, TwoGoals())
    found = record_policy(TwoGoals(), learner.policy, 2, seed=1)
    np.testing.assert_allclose(found.acts, learner.predict(found.obs)[0], atol=1e-6)
    np.testing.assert_allclose(found.next_obs, found.obs + 0.1 * found.acts, atol=1e-6)
    drawn = record_policy(TwoGoals(), learner.policy, 2, seed=1, deterministic=False)
    np.testing.assert_array_equal(drawn.obs[[0, 30]], found.obs[[0, 30]])
    assert not np.allclose(drawn.acts, found.acts)


def test_lines_tell_of_a_tenth_of_the_iterations(caplog):
    class Flags:
        iterations, verbose = 100, False

    class Fake(Learner):
        history = pd.DataFrame({"eval_return": []})

        def __init__(self):
            """Nothing is learned."""

    report = train_verbs._reporter(Flags())  # ty: ignore[invalid-argument-type]
    with caplog.at_level("INFO", "icl25_pn_gail"):
        for done in (2, 4, 10, 12, 30, 100):
            Fake.history = pd.DataFrame({"eval_return": np.arange(float(done))})
            report(Fake())
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(" of ")[0] for line in said] == [f"iteration {n}" for n in (2, 10, 30, 100)]
    assert said[-1].endswith("return 99")
