from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl25_pn_gail import losses, training
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.networks import Layer, Policy, mlp
from icl25_pn_gail.rollout import ActionMap, Batch, Scaler
from icl25_pn_gail.running import JaxRunner
from icl25_pn_gail.training import DemoSet, Metrics, Stream, Trainer, TrainState

NOTHING = Scaler(np.zeros(3), np.ones(3))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(0, x)


def start(config, policy, value, disc, n_demos):
    value_opt, disc_opt = optax.adam(config.value_lr).init(value), optax.adam(config.disc_lr).init(disc)
    return TrainState(policy, value, disc, (), value_opt, disc_opt, jnp.ones(n_demos))


def demo_set(obs, actions, confidence, positive, negative, fake_weight=1.0):
    stream = Stream(np.arange(len(obs)), len(obs), positive, negative)
    return DemoSet(obs, actions, confidence, stream, stream, fake_weight, False, NOTHING)


def test_an_iteration_is_that_of_the_reference(reference, x64, monkeypatch):
    """Returns, the policy's step, the fit of the value and three steps of the discriminator, in one go."""
    g = reference.arrays
    config = TrainConfig.official(hidden=(8, 8), value_minibatches=4, disc_steps=3)
    trainer = Trainer(Policy(2), ActionMap(clip=False), 3, "trpo", config)
    # The reference takes each of its 30 rows once, and we draw 32 of them: two are a row of no weight.
    rows = np.concatenate([np.arange(30), [30, 30]])
    halves = itertools.cycle([rows[:16], rows[16:]])
    monkeypatch.setattr(jax.random, "randint", lambda *_: jnp.asarray(next(halves)))
    monkeypatch.setattr(jax.random, "permutation", lambda *_: jnp.asarray(g["vf_perm"]))
    padded = np.concatenate([g["demo"], np.full((1, 5), 1e3)])
    r = np.append(g["demo_conf"][:, 0], 0)
    positive, negative = (np.append(w, 0) * 32 / 30 for w in (r[:30], 1 - r[:30]))
    demos = demo_set(padded[:, :3], padded[:, 3:], r, positive, negative)
    # Both episodes were cut, which counts as an end there: what comes after must not matter.
    ended = g["mask"][:, None] == 0
    batch = Batch(
        g["states"][:, None], g["actions"][:, None], 1e3 * np.ones((32, 1, 3)), np.zeros((32, 1)), ended & False, ended
    )
    state = start(config, *jax.tree.map(jnp.asarray, (reference.policy, reference.value, reference.disc)), 31)
    after, metrics = jax.jit(trainer.update)(state, demos, batch, 0, jax.random.key(0))

    fake = np.concatenate([g["states"], g["actions"]], axis=1)
    np.testing.assert_allclose(reference.flat_policy(after.policy), g["theta1"], atol=1e-6, rtol=0)
    found = {
        "value_out_after4": mlp(after.value, g["states"], np),
        "disc_fake_after3": mlp(after.disc, fake, np),
        "disc_real_after3": mlp(after.disc, g["demo"], np),
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, g[name], atol=1e-8, rtol=0, err_msg=name)
    np.testing.assert_allclose(metrics.kl, g["kl_after"], atol=1e-7, rtol=0)
    np.testing.assert_allclose(metrics.surrogate_gain, g["surr_before"] - g["surr_after"], atol=1e-7, rtol=0)
    np.testing.assert_allclose(metrics.reward, g["reward"].mean(), atol=1e-10, rtol=0)
    log_std = reference.policy_of(g["theta1"])["log_std"]
    np.testing.assert_allclose(metrics.entropy, np.sum(log_std + 0.5 * (1 + np.log(2 * np.pi))), atol=1e-5)
    assert metrics.ended_early == 0
    # The loss and the shares are those before the last of the three steps: after two.
    assert abs(metrics.disc_loss - g["dloss_pn"]) < 0.05
    assert metrics.disc_loss < g["dloss_pn"]


def test_an_iteration_with_all_our_own_options(reference, x64):
    """Cuts are bootstrapped, the spread has a bound, the reward is AIRL's, the gradient of D is held at 1."""
    g = reference.arrays
    config = TrainConfig(
        hidden=(8, 8), value_minibatches=1, disc_grad_penalty=2.0, min_log_std=0.7, reward="airl", gamma=0.9,
    )  # fmt: skip
    trainer = Trainer(Policy(2), ActionMap(np.full(2, -0.5), np.full(2, 0.5)), 3, "trpo", config)
    w, b = np.array([0.5, -1.0, 2.0, 0.3, 0.1]), 0.2
    disc = (Layer(jnp.asarray(w[:, None]), jnp.asarray([b])),)
    # Two environments of three steps: the first is cut after two, the second ends for good after two.
    obs, actions, after = (
        np.reshape(part, (3, 2, -1)) for part in (g["states"][:6], g["actions"][:6], g["states"][6:12])
    )
    ended, terminated = np.array([[0, 0], [1, 1], [0, 0]], bool), np.array([[0, 0], [0, 1], [0, 0]], bool)
    true = np.array([[1.0, 10], [2, 20], [4, 40]])
    row, r = np.append(g["demo"][0, :3], [3.0, 0.25]), 0.3  # its action is out of bounds
    demos = demo_set(
        np.tile(row[:3], (4, 1)), np.tile(row[3:], (4, 1)), np.full(4, r), np.full(4, r), np.full(4, 1 - r), 0.6
    )
    state = start(config, *jax.tree.map(jnp.asarray, (reference.policy, reference.value)), disc, 4)
    batch = Batch(obs, actions, after, true, terminated, ended)
    new, metrics = jax.jit(trainer.update)(state, demos, batch, 0, jax.random.key(0))

    fake = np.concatenate([obs, np.clip(actions, -0.5, 0.5)], axis=-1) @ w + b
    demo = np.append(row[:3], [0.5, 0.25]) @ w + b
    loss = 0.6 * softplus(-fake).mean() + r * softplus(demo) + (1 - r) * softplus(-demo)
    np.testing.assert_allclose(metrics.disc_loss, loss + 2 * (np.linalg.norm(w) - 1) ** 2, rtol=1e-9)
    np.testing.assert_allclose(metrics.reward, -fake.mean(), rtol=1e-12)
    np.testing.assert_allclose(metrics.taken_agent, np.mean(fake > 0))
    assert np.isnan(metrics.taken_good)
    assert metrics.taken_bad == (demo > 0)
    later = mlp(reference.value, after, np)[..., 0]
    rewards, returns = -fake, np.zeros((3, 2))
    returns[2] = rewards[2] + 0.9 * later[2]  # the batch ends, and not the episode
    returns[1] = rewards[1] + 0.9 * later[1] * [1, 0]
    returns[0] = rewards[0] + 0.9 * returns[1]
    error = (mlp(reference.value, obs, np)[..., 0] - returns) ** 2
    np.testing.assert_allclose(metrics.value_loss, error.mean(), rtol=1e-10)
    np.testing.assert_allclose(metrics.train_return, (3 + 30) / 2)
    np.testing.assert_allclose(metrics.ended_early, 0.5)
    np.testing.assert_array_equal(new.policy["log_std"], [0.7, 0.7])
    np.testing.assert_allclose(metrics.entropy, 2 * (0.7 + 0.5 * (1 + np.log(2 * np.pi))))
    # The penalty pulls the weights of D, which are too large, whatever the loss wants of them.
    moved = np.asarray(new.disc[0].kernel)[:, 0] - w
    np.testing.assert_allclose(np.abs(moved), 1e-3, rtol=1e-4)  # Adam's first step
    assert moved[2] < 0


def test_the_gradient_is_held_at_1_between_demonstrations_and_the_agent():
    trainer = Trainer(Policy(1), ActionMap(clip=False), 0, "trpo", TrainConfig(hidden=(1,)))
    disc = (Layer(jnp.eye(1), jnp.zeros(1)), Layer(jnp.full((1, 1), 3.0), jnp.zeros(1)))  # 3 tanh(x)
    fake, real = jnp.full((4000, 1), 1.5), jnp.full((4000, 1), -0.5)
    between = np.linspace(-0.5, 1.5, 10_001)
    expected = np.mean((3 / np.cosh(between) ** 2 - 1) ** 2)
    assert jax.jit(trainer._penalty)(disc, fake, real, jax.random.key(0)) == pytest.approx(expected, rel=0.05)


def test_the_value_is_fitted_in_minibatches_of_which_none_is_empty():
    config = TrainConfig(hidden=(2,), value_minibatches=4, value_lr=0.1)
    trainer = Trainer(Policy(1), ActionMap(clip=False), 1, "trpo", config)
    value = (Layer(jnp.array([[0.5]]), jnp.array([0.0])),)
    state = start(config, {}, value, value, 1)
    obs, targets = jnp.ones((6, 1)), jnp.full(6, 3.0)  # two, two and two rows: there is nothing left for a fourth
    fitted, opt_state, loss = jax.jit(trainer._fit_value)(state, obs, targets, jax.random.key(0))
    assert opt_state[0].count == 3
    # The prediction, 0.5, rises by 2 x 0.1 with each step of Adam.
    assert loss == pytest.approx((2.5**2 + 2.3**2 + 2.1**2) / 3, rel=1e-3)
    assert float(mlp(fitted, obs)[0, 0]) == pytest.approx(1.1, abs=5e-3)
    # Of five rows the last minibatch has one, which counts as much as any other there.
    targets = jnp.array([0.5, 0.5, 0.5, 0.5, 0.5])
    loss = jax.jit(trainer._fit_value)(state, obs[:5], targets, jax.random.key(0))[2]
    assert loss == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("learner", "given", "used"), [("trpo", None, 0.97), ("ppo", None, 0.95), ("ppo", 0.5, 0.5), ("trpo", 0.0, 0.0)]
)
def test_later_steps_count_as_the_learner_has_it(learner, given, used, monkeypatch, unchecked):
    class Seen(Exception):
        pass

    def gae(rewards, values, masks, gamma, lam, bootstrap):
        raise Seen(gamma, lam)

    monkeypatch.setattr("icl25_pn_gail.training.gae", gae)
    config = TrainConfig(hidden=(2,), gamma=0.9, gae_lambda=given)
    trainer = Trainer(Policy(1), ActionMap(clip=False), 1, learner, config)
    layers = (Layer(jnp.ones((1, 1)), jnp.zeros(1)),)
    disc = (Layer(jnp.ones((2, 1)), jnp.zeros(1)),)
    numbers, flags = jnp.zeros((2, 1)), jnp.zeros((2, 1), bool)
    batch = Batch(numbers[..., None], numbers[..., None], numbers[..., None], numbers, flags, flags)
    state = start(config, {"layers": layers, "log_std": jnp.zeros(1)}, layers, disc, 1)
    with pytest.raises(Seen) as seen:
        trainer.update(state, None, batch, 0, jax.random.key(0))
    assert seen.value.args == (0.9, used)


# Whole iterations, in one compiled program for all methods


def one(learner, iteration=0):
    """The state and the metrics after one iteration of a learner, which stays what it is."""
    state, metrics = learner._runner.advance(
        learner._state, learner._demos, learner._keys, range(iteration, iteration + 1)
    )
    return state, Metrics(*(float(part[0]) for part in metrics))


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_where_all_rows_are_good_three_methods_are_one_bit_for_bit(make_learner, mixture):
    good = mixture.with_confidence(np.ones(len(mixture)))
    states = [one(make_learner(method, good))[0] for method in ("gail", "pn-gail", "2iwil")]
    assert_equal(states[0], states[1])
    assert_equal(states[0], states[2])
    discs = [one(make_learner(method))[0].disc for method in ("gail", "pn-gail", "2iwil")]
    for a, b in itertools.combinations(discs, 2):
        assert not np.allclose(a[0].kernel, b[0].kernel)


@pytest.mark.parametrize("method", ["gail-c", "gail-reweight", "ic-gail", "gail"])
def test_only_rows_that_a_method_allows_are_drawn(method, make_learner, mixture):
    rated = np.where(np.arange(len(mixture)) % 2, mixture.confidence, np.nan)
    learner = make_learner(method, mixture.with_confidence(rated))
    poisoned = np.where(np.isnan(rated)[:, None], np.nan, learner._demos.obs)
    learner._demos = learner._demos._replace(obs=jnp.asarray(poisoned, jnp.float32))
    drawn = np.isnan(one(learner)[1].disc_loss)
    assert drawn == (method in ("ic-gail", "gail"))


def test_wgail_weights_rows_now_and_then(make_learner, tiny):
    """Every second iteration up to number 3, counted from 0: in 1 and 3, not in 5."""
    learner = make_learner("wgail")
    for iteration in range(6):
        before = learner._state
        learner._state, _ = one(learner, iteration)
        if iteration not in (1, 3):
            assert_equal(learner._state.weights, before.weights)
            continue
        demos = learner._demos
        # From the discriminator before its step, and the policy after its own.
        logits = mlp(before.disc, np.concatenate([demos.obs, demos.actions], axis=1), np)[:, 0]
        mean = mlp(learner._state.policy["layers"], demos.obs, np)
        log_std = np.asarray(learner._state.policy["log_std"])
        z = (demos.actions - mean) / np.exp(log_std)
        density = np.exp(-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).prod(axis=1)
        expected = np.sqrt((1 / sigmoid(logits) - 1) * density)
        np.testing.assert_allclose(learner._state.weights, expected, rtol=1e-4)
    assert tiny.wgail_every == 2
    # They count at once: until then WGAIL is GAIL.
    discs = [[one(make_learner(method), i)[0].disc[0].kernel for method in ("wgail", "gail")] for i in (0, 1)]
    np.testing.assert_array_equal(*discs[0])
    assert not np.allclose(*discs[1])
    other = make_learner("gail")
    other._state, _ = one(other, 1)
    np.testing.assert_array_equal(other._state.weights, np.ones(len(other.demos)))


def test_the_weights_of_wgail_count_in_its_loss(make_learner):
    learner = make_learner("wgail")
    plain = one(learner)[1].disc_loss
    learner._state = learner._state._replace(weights=jnp.zeros(len(learner.demos)))
    demos, unweighted = learner._demos, one(learner)[1].disc_loss
    assert unweighted < 0.75 < 1.3 < plain  # log 2 of the agent's rows is left, without log 2 of the others
    assert demos.reweight


def test_a_perfect_discriminator_pays_nothing_and_an_undecided_one_log_2(make_learner):
    learner = make_learner()
    for logit, reward in ((0.0, np.log(2)), (30.0, 0.0)):
        disc = (*learner._state.disc[:-1], Layer(jnp.zeros((8, 1)), jnp.full(1, logit, jnp.float32)))
        learner._state = learner._state._replace(disc=disc)
        _, metrics = one(learner)
        assert metrics.reward == pytest.approx(reward, abs=1e-5)
    assert metrics.taken_agent == metrics.taken_good == metrics.taken_bad == 1
    assert losses.imitation_reward(jnp.float32(30.0)) >= 0


def test_iterations_draw_anew_and_evaluations_are_whole_episodes(make_learner, tiny):
    learner = make_learner()
    first, second = one(learner, 0)[1], one(learner, 1)[1]
    assert first.train_return != second.train_return
    found = learner._runner.evaluate(learner._state.policy, learner._demos.scaler, learner._keys, 1, 4)
    np.testing.assert_array_equal(found.lengths, np.full(4, 30))
    assert len(set(found.returns)) == 4
    other = learner._runner.evaluate(learner._state.policy, learner._demos.scaler, learner._keys, 2, 4)
    assert not set(found.returns) & set(other.returns)


def test_learners_of_a_kind_share_one_program(make_learner, tiny):
    programs = make_learner()._runner._advance
    assert make_learner("gail", seed=5)._runner._advance is programs
    learner = make_learner()
    same = JaxRunner(TwoGoals(), learner.trainer)
    assert same._advance is programs
    assert JaxRunner(TwoGoals(max_episode_steps=5), learner.trainer)._advance is not programs
    learner.learn(1, progress_bar=False)
    compiled = programs._cache_size()
    learner.learn(3, progress_bar=False)
    make_learner("ic-gail", seed=2).learn(1, progress_bar=False)
    assert programs._cache_size() == compiled


@pytest.mark.parametrize(("slack", "most"), [(0.1, 0.001), (1.5, 0.015), (None, np.inf)])
def test_steps_keep_to_the_region_that_the_settings_give(slack, most, monkeypatch):
    asked = {}
    real = training.trpo_step

    def step(*given, **options):
        asked.update(options)
        return real(*given, **options)

    monkeypatch.setattr(training, "trpo_step", step)
    trainer = Trainer(Policy(1), ActionMap(clip=False), 2, "trpo", TrainConfig(hidden=(2,), kl_slack=slack))
    obs, actions = jax.random.normal(jax.random.key(0), (50, 2)), jax.random.normal(jax.random.key(1), (50, 1))
    state = trainer.init(jax.random.key(2), 1)
    *_, learned = trainer._improve(state, jax.random.key(3), obs, actions, actions[:, 0])
    assert asked["kl_slack"] * asked["max_kl"] == pytest.approx(most)
    assert 0 < learned["kl"] <= most
