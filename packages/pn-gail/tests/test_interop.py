from __future__ import annotations

import dataclasses
import itertools
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail import TrainConfig
from icl25_pn_gail.interop import DiscriminatorReward, export_onnx, to_sb3_policy
from icl25_pn_gail.learners import Learner
from icl25_pn_gail.networks import Layer
from icl25_pn_gail.policies import ImitationPolicy
from icl25_pn_gail.preparation import Spaces, make_trainer
from icl25_pn_gail.rollout import Scaler

PENDULUM = Spaces(3, Box(-2.0, 2.0, (1,), np.float32))
LOPSIDED = Box(np.array([-1, -1.5, -np.inf], np.float32), np.array([3, 1.5, np.inf], np.float32))


def perceptron(rng, *sizes):
    shapes = [((n, m), (m,)) for n, m in itertools.pairwise(sizes)]
    return tuple(Layer(*(rng.normal(size=shape).astype(np.float32) for shape in pair)) for pair in shapes)


def random_policy(spaces, seed=0, hidden=(7, 5), **settings):
    """A policy of drawn weights, whose observations are far from normal."""
    rng = np.random.default_rng(seed)
    d, n = spaces.obs_dim, spaces.n_outputs
    params = {"layers": perceptron(rng, d, *hidden, n)}
    if not spaces.discrete:
        params["log_std"] = rng.normal(size=n).astype(np.float32)
    scaler = Scaler(rng.normal(size=d).astype(np.float32), rng.uniform(0.2, 3, d).astype(np.float32))
    trainer = make_trainer(spaces, "trpo", TrainConfig(hidden=hidden, **settings), warn=False)
    return ImitationPolicy(spaces, trainer, params, scaler, perceptron(rng, d + n, *hidden, 1))


def paid(policy, obs, action):
    """The reward of one row, written out."""
    space = policy.spaces.act_space
    seen = np.eye(space.n)[action] if isinstance(space, Discrete) else np.clip(action, space.low, space.high)
    g = np.concatenate([(obs - policy.scaler.mean) / policy.scaler.scale, seen])
    for layer in policy.disc[:-1]:
        g = np.tanh(g @ layer.kernel + layer.bias)
    g = (g @ policy.disc[-1].kernel + policy.disc[-1].bias).item()
    return {"nonsaturating": np.log1p(np.exp(-g)), "airl": -g, "gail": -np.log1p(np.exp(g))}[
        policy.trainer.config.reward
    ]


class Counter(gymnasium.Env):
    """Observes (steps, action before) and pays ten times the steps."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, action_space: Any):
        self.action_space = action_space
        self.obs = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs[:] = 0
        return self.obs.copy(), {"fresh": True}

    def step(self, action):
        self.obs += [1, 0]
        self.obs[1] = np.sum(action)
        return self.obs.copy(), 10 * self.obs[0], self.obs[0] == 3, False, {"mine": 7}


@pytest.mark.parametrize("kind", ["nonsaturating", "airl", "gail"])
def test_rewards_are_those_of_the_discriminator(kind):
    policy = random_policy(PENDULUM, reward=kind)
    env, same = DiscriminatorReward(gymnasium.make("Pendulum-v1"), policy), gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(same.reset(seed=3)[0], obs)
    rng, total = np.random.default_rng(0), 0.0
    for step in range(1, 201):
        action = rng.uniform(-2, 2, 1).astype(np.float32)
        before = obs
        obs, reward, terminated, truncated, info = env.step(action)
        theirs = same.step(action)
        np.testing.assert_array_equal(obs, theirs[0])
        assert reward == pytest.approx(paid(policy, before, action), rel=1e-4, abs=1e-6)
        assert type(reward) is float
        total += theirs[1]
        assert (info["true_reward"], info["true_return"]) == pytest.approx((theirs[1], total))
        assert (terminated, truncated) == (False, step == 200)
    _, info = env.reset(seed=3)
    *_, info = env.step(action)
    assert info["true_return"] == info["true_reward"]


def test_rewards_are_those_of_the_policy():
    policy = random_policy(PENDULUM)
    env = DiscriminatorReward(gymnasium.make("Pendulum-v1"), policy)
    obs, _ = env.reset(seed=3)
    action = np.ones(1, np.float32)
    _, reward, *_ = env.step(action)
    assert reward == pytest.approx(policy.reward(obs[None], action[None])[0], rel=1e-5)


@pytest.mark.parametrize("space", [Box(-1.0, 1.0, (2,), np.float32), Discrete(3)])
def test_the_observation_before_the_step_counts_as_it_was_returned(space):
    policy = random_policy(Spaces(2, space))
    env = DiscriminatorReward(Counter(space), policy)
    obs, info = env.reset()
    assert info == {"fresh": True}
    for i in range(3):
        before = obs.copy()
        obs -= 5  # as a learner might that normalises in place
        action = np.int64(i) if isinstance(space, Discrete) else np.full(2, 3.0 * i)  # beyond the bounds
        obs, reward, terminated, _, info = env.step(action)
        assert reward == pytest.approx(paid(policy, before, action), rel=1e-4)
        assert info == {"mine": 7, "true_reward": 10 * (i + 1), "true_return": sum(range(10, 10 * i + 11, 10))}
        assert terminated == (i == 2)


def test_a_learner_pays_as_it_was_when_the_environment_was_made():
    learner, plane = Learner("TwoGoals"), Box(-1.0, 1.0, (2,), np.float32)
    learner.policy = first = random_policy(Spaces(2, plane))
    env = DiscriminatorReward(Counter(plane), learner)
    learner.policy = random_policy(Spaces(2, plane), seed=1)
    env.reset()
    _, reward, *_ = env.step(np.ones(2))
    assert reward == pytest.approx(paid(first, np.zeros(2), np.ones(2)), rel=1e-4)
    assert reward != pytest.approx(paid(learner.policy, np.zeros(2), np.ones(2)), rel=1e-2)


def test_rewards_need_a_discriminator_and_the_right_spaces():
    plane = Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(ValueError, match="no discriminator"):
        DiscriminatorReward(Counter(plane), dataclasses.replace(random_policy(Spaces(2, plane)), disc=None))
    with pytest.raises(ValueError, match=r"observations of shape \(3,\), the environment Box.*\(2,\)"):
        DiscriminatorReward(Counter(plane), random_policy(PENDULUM))
    for wrong in (Box(-1.0, 1.0, (3,), np.float32), Discrete(2)):
        with pytest.raises(ValueError, match="the policy has actions Box"):
            DiscriminatorReward(Counter(wrong), random_policy(Spaces(2, plane)))
    with pytest.raises(ValueError, match=r"actions Discrete\(2\), the environment Discrete\(3\)"):
        DiscriminatorReward(Counter(Discrete(3)), random_policy(Spaces(2, Discrete(2))))
    neither: Any = 3
    with pytest.raises(TypeError, match="policy"):
        DiscriminatorReward(Counter(plane), neither)
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset"):
        DiscriminatorReward(Counter(plane), random_policy(Spaces(2, plane))).step(np.zeros(2))


@pytest.mark.parametrize(
    ("call", "module", "extra"),
    [(to_sb3_policy, "stable_baselines3", "sb3"), (lambda policy: export_onnx(policy, "x.onnx"), "onnx", "onnx")],
)
def test_what_is_not_installed_is_named(monkeypatch, call, module, extra):
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'pip install "icl25-pn-gail\[{extra}\]"'):
        call(random_policy(PENDULUM))


CASES = [
    (Spaces(3, Box(-2.0, 2.0, (1,), np.float32)), {}),
    (Spaces(4, LOPSIDED), {}),
    (Spaces(2, Box(np.array([-1, 0], np.float32), np.array([3, 0.5], np.float32))), {"normalize_actions": True}),
    (Spaces(4, Discrete(3)), {}),
]


@pytest.mark.extra
@pytest.mark.parametrize(("spaces", "settings"), CASES)
def test_sb3_policies_act_the_same(spaces, settings):
    import torch

    policy = random_policy(spaces, **settings)
    torch.manual_seed(5)
    expected = torch.rand(())
    torch.manual_seed(5)
    theirs = to_sb3_policy(policy)
    assert torch.rand(()) == expected  # the global generator is left alone
    obs = 3 * np.random.default_rng(1).normal(size=(200, spaces.obs_dim)).astype(np.float32)
    actions, _ = theirs.predict(obs, deterministic=True)
    np.testing.assert_allclose(actions, policy.predict(obs)[0], atol=1e-5)
    np.testing.assert_allclose(theirs.predict(obs[0], deterministic=True)[0], policy.predict(obs[0])[0], atol=1e-5)
    if spaces.discrete:
        # Shares of drawn actions are the probabilities.
        rng = np.random.default_rng(0)
        drawn = policy.predict(np.repeat(obs[:1], 20_000, axis=0), deterministic=False, rng=rng)[0]
        distribution: Any = theirs.get_distribution(torch.tensor(obs[:1])).distribution
        shares = distribution.probs[0].detach().numpy()
        np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 20_000, shares, atol=0.015)
    else:
        half = policy.trainer.actions.half_range
        np.testing.assert_allclose(theirs.log_std.detach(), policy.params["log_std"] + np.log(half), atol=1e-6)


@pytest.mark.extra
def test_sb3_evaluates_saves_and_trains_what_was_imitated(tmp_path):
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.policies import ActorCriticPolicy

    policy = random_policy(PENDULUM)
    env = Monitor(DiscriminatorReward(gymnasium.make("Pendulum-v1"), policy), info_keywords=("true_return",))
    returns = []
    for acting in (policy, to_sb3_policy(policy)):  # as they are, policies here have the shape that is asked for
        env.reset(seed=0)
        found: Any = evaluate_policy(acting, env, n_eval_episodes=1, return_episode_rewards=True)
        assert found[1] == [200]
        returns += found[0]
    assert returns[0] > 0
    assert returns[0] == pytest.approx(returns[1], rel=1e-3)
    model = PPO("MlpPolicy", env, n_steps=100, batch_size=50, n_epochs=2, seed=0, policy_kwargs={"net_arch": [7, 5]})
    model.policy.load_state_dict(to_sb3_policy(policy).state_dict())
    rows = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    np.testing.assert_allclose(model.predict(rows, deterministic=True)[0], policy.predict(rows)[0], atol=1e-5)
    model.learn(400)
    assert model.num_timesteps == 400
    episodes: Any = model.ep_info_buffer
    assert [episode["l"] for episode in episodes] == [200, 200]
    for episode in episodes:
        assert episode["r"] > 0 > episode["true_return"]
    assert not np.allclose(model.predict(rows, deterministic=True)[0], policy.predict(rows)[0], atol=1e-5)
    made = to_sb3_policy(policy)
    made.save(str(tmp_path / "policy.zip"))
    again = ActorCriticPolicy.load(str(tmp_path / "policy.zip"))
    np.testing.assert_array_equal(again.predict(rows, deterministic=True)[0], made.predict(rows, deterministic=True)[0])


@pytest.mark.extra
@pytest.mark.parametrize(("spaces", "settings"), CASES)
def test_onnx_models_act_the_same(tmp_path, spaces, settings):
    import onnx
    from onnx.reference import ReferenceEvaluator

    policy = random_policy(spaces, **settings)
    export_onnx(policy, tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    obs = 3 * np.random.default_rng(1).normal(size=(200, spaces.obs_dim)).astype(np.float32)
    actions: Any
    [actions] = ReferenceEvaluator(model).run(None, {"observation": obs})
    expected, _ = policy.predict(obs)
    assert actions.shape == expected.shape
    assert actions.dtype == (np.int64 if spaces.discrete else np.float32)
    np.testing.assert_allclose(actions, expected, atol=1e-5)
    if not spaces.discrete:
        low, high = spaces.act_space.low, spaces.act_space.high
        bounded = np.isfinite(low)
        # Clipped on both sides, which a test without actions beyond the bounds would not see.
        assert (actions == low)[:, bounded].any(axis=0).all()
        assert (actions == high)[:, bounded].any(axis=0).all()


@pytest.mark.extra
def test_onnx_files_are_not_overwritten(tmp_path):
    policy = random_policy(PENDULUM)
    (tmp_path / "policy.onnx").write_text("precious")
    with pytest.raises(FileExistsError):
        export_onnx(policy, tmp_path / "policy.onnx")
    assert (tmp_path / "policy.onnx").read_text() == "precious"
    export_onnx(policy, tmp_path / "policy.onnx", force=True)
    assert (tmp_path / "policy.onnx").stat().st_size > 300
