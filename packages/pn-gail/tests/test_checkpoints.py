from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from flax import serialization

from icl25_pn_gail.behaviour_cloning import BC
from icl25_pn_gail.checkpoints import Checkpoint, identify
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.imitation import PNGAIL
from icl25_pn_gail.recording import make_demonstrations

TRAIN = """
import json, sys
from icl25_pn_gail.compile_cache import use_compile_cache
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.imitation import PNGAIL

use_compile_cache()
source, settings, folder = sys.argv[1:]
learner = PNGAIL(TwoGoals(), Demonstrations.from_npz(source), config=TrainConfig(**json.loads(settings)))
learner.learn(1000, callback=lambda _: print("evaluated", flush=True), progress_bar=False, checkpoint=folder)
"""


def assert_same(one, other):
    """Bit for bit the same parameters, and the same history but for the time it took."""
    jax.tree.map(np.testing.assert_array_equal, one._state, other._state)
    pd.testing.assert_frame_equal(one.history.drop(columns="seconds"), other.history.drop(columns="seconds"))


def test_what_decides_a_training_decides_its_identity():
    arrays = {"a": np.arange(3.0), "b": jnp.ones(2)}
    base = identify("pn-gail", 3, arrays, jax.random.key(0))
    assert base == identify("pn-gail", 3, {"a": np.arange(3.0), "b": np.ones(2, np.float32)}, jax.random.key(0))
    others = [
        identify("gail", 3, arrays, jax.random.key(0)),
        identify("pn-gail", 4, arrays, jax.random.key(0)),
        identify("pn-gail", 3, arrays | {"a": np.array([0, 1, 3.0])}, jax.random.key(0)),
        identify("pn-gail", 3, arrays, jax.random.key(1)),
    ]
    assert len({base, *others}) == 5


def test_a_state_is_read_as_it_was_written(make_learner, tmp_path):
    learner, history = make_learner(), pd.DataFrame({"a": [1, 2], "b": [0.1 + 0.2, np.nan]})
    kept = Checkpoint(tmp_path / "new", "me")
    assert kept.read(learner._state) is None
    kept.write(learner._state, history)
    state, found = kept.read(jax.tree.map(jnp.zeros_like, learner._state))
    assert jax.tree.structure(state) == jax.tree.structure(learner._state)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(learner._state), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    pd.testing.assert_frame_equal(found, history, check_exact=True)
    kept.write(learner._state, history.iloc[:1])
    assert len(kept.read(learner._state).history) == 1
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["checkpoint.msgpack"]
    with pytest.raises(ValueError, match="is of another training: the environment, demonstrations, method, settings"):
        Checkpoint(tmp_path / "new", "you").read(learner._state)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: b"\x00" * len(content),
        lambda content: serialization.msgpack_serialize({"identity": "me"}),
        lambda content: serialization.msgpack_serialize(
            {"identity": "me", "columns": ["a"], "history": [np.ones(1)], "state": {}}
        ),
        lambda content: b"{}",
    ],
)
def test_a_damaged_file_is_refused(change, make_learner, tmp_path):
    learner, kept = make_learner(), Checkpoint(tmp_path, "me")
    kept.write(learner._state, pd.DataFrame({"a": [1]}))
    kept.path.write_bytes(change(kept.path.read_bytes()))
    with pytest.raises(ValueError, match=r"checkpoint\.msgpack is damaged"):
        kept.read(learner._state)


def test_a_resumed_training_is_one_without_a_break(make_learner, tmp_path):
    whole = make_learner().learn(4, progress_bar=False)
    make_learner().learn(4, callback=lambda learner: len(learner.history) < 2, progress_bar=False, checkpoint=tmp_path)
    resumed = make_learner().learn(4, progress_bar=False, checkpoint=tmp_path, resume=True)
    assert_same(resumed, whole)
    # What is complete stays as it is; what is another training is refused.
    with pytest.warns(UserWarning, match="4 of 3 iterations are done: nothing is left to do"):
        again = make_learner().learn(3, progress_bar=False, checkpoint=tmp_path, resume=True)
    assert_same(again, whole)
    np.testing.assert_array_equal(again.predict([0.0, -1.0])[0], whole.predict([0.0, -1.0])[0])


def test_a_checkpoint_is_replaced_only_by_who_wrote_it(make_learner, tmp_path):
    first = make_learner().learn(1, progress_bar=False, checkpoint=tmp_path)
    kept = (tmp_path / "checkpoint.msgpack").read_bytes()
    for seed in (0, 1):
        with pytest.raises(FileExistsError, match=r"checkpoint\.msgpack exists; go on from it with resume=True"):
            make_learner(seed=seed).learn(2, progress_bar=False, checkpoint=tmp_path)
    assert (tmp_path / "checkpoint.msgpack").read_bytes() == kept
    first.learn(2, progress_bar=False, checkpoint=tmp_path)
    resumed = make_learner().learn(2, progress_bar=False, checkpoint=tmp_path, resume=True)
    resumed.learn(3, progress_bar=False, checkpoint=tmp_path)
    assert_same(resumed, make_learner().learn(3, progress_bar=False))
    assert_same(make_learner().learn(3, progress_bar=False, checkpoint=tmp_path, resume=True), resumed)


def test_arguments_of_an_environment_and_of_cloning_decide_a_training(mixture):
    def pendulum(**options):
        return PNGAIL(gymnasium.make("Pendulum-v1", **options), make_demonstrations("Pendulum-v1", "expert:1:1.0"))

    assert pendulum(g=9.0)._identity() == pendulum(g=9.0)._identity() != pendulum(g=8.0)._identity()
    near, far = (BC(TwoGoals(goal_a=goal), mixture)._identity() for goal in ((1.0, 0.6), (0.0, 0.0)))
    assert near == BC(TwoGoals(), mixture)._identity() != far


@pytest.mark.parametrize(
    "options",
    [
        {"method": "gail"},
        {"seed": 1},
        {"learner": "ppo"},
        {"config": {"disc_lr": 0.5}},
        {"env": TwoGoals(goal_a=(0.0, 0.0))},
        {"demos": True},
    ],
)
def test_a_checkpoint_of_another_training_is_refused(options, make_learner, mixture, tiny, tmp_path):
    if not (tmp_path / "checkpoint.msgpack").exists():
        learner = make_learner()
        Checkpoint(tmp_path, learner._identity()).write(learner._state, pd.DataFrame({"a": [1]}))
    if "config" in options:
        options = {"config": replace(tiny, **options["config"])}
    if "demos" in options:
        options = {"demos": mixture.with_confidence(1 - mixture.confidence)}
    with pytest.raises(ValueError, match="is of another training"):
        make_learner(**options).learn(2, progress_bar=False, checkpoint=tmp_path, resume=True)


def test_a_killed_training_goes_on(make_learner, mixture, tiny, tmp_path):
    source, folder = tmp_path / "demos.npz", tmp_path / "run"
    mixture.to_npz(source)
    whole = make_learner().learn(1, progress_bar=False)  # compiled for both processes
    command = [sys.executable, "-c", TRAIN, source, json.dumps(asdict(tiny)), folder]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "evaluated\n"
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read()
    assert child.wait() == -signal.SIGKILL
    resumed = make_learner()
    target = rest.count("evaluated") + 5  # it may have done some more before it died
    resumed.learn(target, progress_bar=False, checkpoint=folder, resume=True)
    assert_same(resumed, whole.learn(target, progress_bar=False))
    assert len(resumed.history) == target
