from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.envs import GymnasiumSource
from icl25_pn_gail.evaluation import EvalResult
from icl25_pn_gail.networks import Layer
from icl25_pn_gail.preparation import Spaces, make_trainer
from icl25_pn_gail.rollout import Batch, Scaler
from icl25_pn_gail.running import GymnasiumRunner, JaxRunner, Keys, history_rows, stack
from icl25_pn_gail.training import Metrics

# Three runs over two devices; the leaves of what they come to go to a file.
SHARDED = """
import json, sys
import jax
import numpy as np
from icl25_pn_gail.compile_cache import use_compile_cache
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.preparation import Spaces, make_trainer, prepare
from icl25_pn_gail.running import JaxRunner

use_compile_cache()
source, settings, target = sys.argv[1:]
env, demos = TwoGoals(), Demonstrations.from_npz(source)
trainer = make_trainer(Spaces.of(env), "trpo", TrainConfig(**json.loads(settings)))
runs = [prepare(trainer, demos, *run) for run in (("pn-gail", None, 0), ("pn-gail", None, 1), ("gail", None, 0))]
runner = JaxRunner(env, trainer, n_runs=3)
parts = runner.place([(run.state, run.demos, run.keys) for run in runs])
state, metrics = runner.advance(*parts, range(2))
used = state.policy["log_std"].sharding.device_set
assert len(used) == 2 == len(jax.devices()), used
np.savez(target, *map(np.asarray, jax.tree.leaves((state, metrics))))
"""


def test_several_runs_over_two_devices_are_the_same_as_one_by_one(make_learner, mixture, tiny, tmp_path):
    source, target = tmp_path / "demos.npz", tmp_path / "found.npz"
    mixture.to_npz(source)
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SHARDED, source, json.dumps(dataclasses.asdict(tiny)), target]
    done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with np.load(target) as arrays:
        together = list(arrays.values())
    kernels = []
    for i, (method, seed) in enumerate([("pn-gail", 0), ("pn-gail", 1), ("gail", 0)]):
        learner = make_learner(method, seed=seed).learn(2, progress_bar=False)
        alone = [*jax.tree.leaves(learner._state), *(learner.history[name] for name in Metrics._fields)]
        for many, one in zip(together, alone, strict=True):
            np.testing.assert_allclose(many[i], one, atol=1e-4, rtol=1e-4)
        kernels.append(np.ravel(learner._state.disc[0].kernel))
    assert len(np.unique(kernels, axis=0)) == 3


def test_several_policies_are_evaluated_as_one_by_one(make_learner):
    learners = [make_learner(seed=seed) for seed in (0, 1)]
    runner = JaxRunner(learners[0].env, learners[0].trainer, n_runs=2)
    states, demos, keys = runner.place([(one._state, one._demos, one._keys) for one in learners])
    found = runner.evaluate(states.policy, demos.scaler, keys, 3, 4)
    assert found.returns.shape == (2, 4)
    for i, one in enumerate(learners):
        alone = one._runner.evaluate(one._state.policy, one._demos.scaler, one._keys, 3, 4)
        np.testing.assert_allclose(found.returns[i], alone.returns, rtol=1e-4)
        np.testing.assert_array_equal(found.lengths[i], alone.lengths)
        later = one._runner.evaluate(one._state.policy, one._demos.scaler, one._keys, 4, 4)
        assert not np.isin(later.returns, alone.returns).any()  # each evaluation has episodes of its own
    assert not np.isin(*found.returns).any()


def test_all_randomness_is_from_one_seed():
    keys = [Keys.of(seed) for seed in (0, 0, 1, 2**32 - 1)]
    data = [np.concatenate([jax.random.key_data(k.init), jax.random.key_data(k.train)]) for k in keys]
    np.testing.assert_array_equal(data[0], data[1])
    assert len(np.unique(np.stack(data), axis=0)) == 3
    assert [int(k.seed) for k in keys] == [0, 0, 1, 2**32 - 1]
    assert not np.array_equal(jax.random.key_data(keys[0].init), jax.random.key_data(keys[0].train))
    stacked = stack(keys)
    np.testing.assert_array_equal(stacked.seed, [0, 0, 1, 2**32 - 1])
    np.testing.assert_array_equal(jax.random.key_data(stacked.init)[3], jax.random.key_data(keys[3].init))
    large = [Keys.of(seed) for seed in (2**32, 2**32 + 1, 2**63 - 1)]
    assert len({*map(int, (k.seed for k in (*keys, *large)))}) == 6
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match=f"seed must be from 0 to 2.63 - 1, found {seed}"):
            Keys.of(seed)


def test_environments_of_gymnasium_get_a_seed_of_their_own_each_time(make_line, monkeypatch, unchecked):
    seeds, sizes = [], []

    def collect(envs, policy, actions, scaler, params, seed, *, n_steps, **how):
        seeds.append(seed)
        sizes.append((envs.num_envs, n_steps, how))
        nothing, ended = np.zeros((n_steps, envs.num_envs)), np.zeros((n_steps, envs.num_envs), bool)
        return Batch(None, None, None, nothing + seed, ended, ended)

    monkeypatch.setattr("icl25_pn_gail.running.collect_gymnasium", collect)
    source = GymnasiumSource(make_line())
    trainer = make_trainer(Spaces.of(source), "trpo", TrainConfig(n_envs=2, n_steps=5))
    runner = GymnasiumRunner(source, trainer)
    assert runner.steps_per_iteration == 10
    used = []

    def update(state, demos, batch, iteration, key):
        used.append((int(iteration), *jax.random.key_data(key).tolist()))
        return state, jnp.zeros(2)

    runner._update = update
    state, demos, keys = SimpleNamespace(policy={}), SimpleNamespace(scaler=()), Keys.of(7)
    runner.advance(state, demos, keys, range(3))
    assert sizes == [(2, 5, {})] * 3
    assert [i for i, *_ in used] == [0, 1, 2]
    assert len({tuple(key) for _, *key in used}) == 3
    for iteration in (0, 1):
        found = runner.evaluate({}, (), keys, iteration, 5)
        assert found.returns.shape == found.lengths.shape == (5,)  # two by two, of which the sixth is left out
    assert sizes[3:] == [(2, 10, {"deterministic": True, "one_episode": True})] * 6
    assert runner.evaluate({}, (), keys, 2, 1, deterministic=False).lengths.tolist() == [10]
    assert sizes[-1] == (1, 10, {"deterministic": False, "one_episode": True})
    runner.advance(state, demos, Keys.of(8), range(3))
    runner.close()
    assert len(set(seeds)) == len(seeds) == 3 + 6 + 1 + 3
    runner.advance(state, demos, keys, range(1))
    assert seeds[-1] == seeds[0]
    runner.close()


def test_an_environment_that_is_one_alone_is_used_alone(make_line):
    source = GymnasiumSource(make_line()())
    trainer = make_trainer(Spaces.of(source), "trpo", TrainConfig(steps_per_iteration=25))
    runner = GymnasiumRunner(source, trainer)
    assert runner.steps_per_iteration == 30  # three episodes one after the other
    scaler = Scaler(jnp.zeros(1), jnp.ones(1))
    params = {"layers": (Layer(np.ones((1, 1)), np.zeros(1)),), "log_std": np.zeros(1)}
    assert runner.evaluate(params, scaler, Keys.of(0), 0, 3).lengths.tolist() == [10] * 3


def test_history_has_a_row_for_each_iteration_and_the_evaluation_in_the_last():
    metrics = Metrics(*(np.array([i, i + 0.5]) for i in range(len(Metrics._fields))))
    rows = history_rows(metrics, range(4, 6), 100, EvalResult(np.array([1.0, 3.0]), np.array([5, 6])), seconds=3.0)
    assert rows["iteration"].tolist() == [5, 6]
    assert rows["env_steps"].tolist() == [500, 600]
    for i, name in enumerate(Metrics._fields):
        assert rows[name].tolist() == [i, i + 0.5]
    np.testing.assert_array_equal(rows["eval_return"], [np.nan, 2])
    np.testing.assert_array_equal(rows["eval_length"], [np.nan, 5.5])
    assert rows["seconds"].tolist() == [1.5, 1.5]
    assert history_rows(metrics, range(2), 1, None, 1.0)["eval_return"].isna().all()
