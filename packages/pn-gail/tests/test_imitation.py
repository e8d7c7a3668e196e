from __future__ import annotations

import json
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from icl25_pn_gail import BC, GAIL, ICGAIL, IWIL, PNGAIL, TrainConfig
from icl25_pn_gail.classifier import ConfidenceClassifier
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import CartPoleJax, PendulumJax, TwoGoals
from icl25_shared import progress


def history(learner):
    return learner.history.drop(columns="seconds")


# How much is learned


def test_pngail_learns_the_good_behaviour_of_a_bad_mixture(make_learner, mixture):
    recorded = mixture.summary()["return"]
    assert recorded.mean() < -45  # of the mixture, most of which goes astray
    for seed in range(2):
        # First the discriminator tells good rows from bad ones; in the end, what the policy does looks like the good.
        learner = make_learner(seed=seed).learn(10, progress_bar=False)
        rewards, good = learner.reward(mixture.obs, mixture.acts), mixture.confidence == 1
        assert rewards[good].mean() > 1.3 * rewards[~good].mean()
        learner.learn(110, progress_bar=False)
        evaluated = learner.history["eval_return"]
        assert evaluated.tail(10).mean() > max(evaluated.head(3).mean() + 10, -32)
        assert (learner.history["kl"] >= 0).all()
        assert (learner.history["surrogate_gain"] >= 0).all()


# History, seeds, and training in parts


def test_the_history_of_a_seed_is_always_the_same(make_learner, trained):
    same = make_learner().learn(2, progress_bar=False)
    assert history(same).to_csv() == history(trained).to_csv()
    jax.tree.map(np.testing.assert_array_equal, same._state, trained._state)
    other = make_learner(seed=1).learn(2, progress_bar=False)
    assert not np.isclose(other.history["train_return"], trained.history["train_return"]).any()
    assert trained.history["iteration"].tolist() == [1, 2]
    assert trained.history["env_steps"].tolist() == [720, 1440]
    assert trained.history["eval_length"].tolist() == [30, 30]
    assert np.isfinite(history(trained)).all(axis=None)


def test_training_in_two_parts_is_training_in_one(make_learner, trained):
    learner = make_learner().learn(1, progress_bar=False)
    first = learner.predict([0.0, -1.0])[0]
    learner.learn(2, progress_bar=False)
    assert not np.array_equal(learner.predict([0.0, -1.0])[0], first)
    pd.testing.assert_frame_equal(history(learner), history(trained))
    np.testing.assert_array_equal(learner.predict([0.0, -1.0])[0], trained.predict([0.0, -1.0])[0])
    before = learner.history
    assert learner.learn(2, progress_bar=False).history is before  # they are done already


def test_evaluations_come_every_so_many_iterations_and_at_the_end(make_learner, monkeypatch):
    learner = make_learner()
    learner.config = replace(learner.config, eval_every=3)
    chunks = []

    def advance(iterations):
        chunks.append(iterations)
        learner.history = pd.DataFrame({"iteration": range(iterations.stop)})

    monkeypatch.setattr(learner, "_advance", advance)
    learner.learn(7, progress_bar=False)
    assert chunks == [range(3), range(3, 6), range(6, 7)]
    learner.learn(8, progress_bar=False).learn(12, progress_bar=False)
    assert chunks[3:] == [range(7, 8), range(8, 9), range(9, 12)]


def test_a_callback_sees_each_evaluation_and_may_stop(make_learner, capsys, monkeypatch):
    seen, tracked = [], []

    def callback(learner):
        seen.append((len(learner.history), learner.history["eval_return"].iloc[-1]))
        return False if len(seen) == 3 else None

    class Progress(progress):
        def __init__(self, *given):
            super().__init__(*given)
            tracked.append(self)

    monkeypatch.setattr("icl25_pn_gail.learners.progress", Progress)
    learner = make_learner().learn(10, callback=callback, progress_bar=True)
    assert [n for n, _ in seen] == [1, 2, 3] == learner.history["iteration"].tolist()
    assert [value for _, value in seen] == learner.history["eval_return"].tolist()
    make_learner().learn(1, progress_bar=False)
    assert [(bar.description, bar.total, bar.completed) for bar in tracked] == [("iterations", 10, 3)]
    assert capsys.readouterr() == ("", "")


# Bad input


def test_bad_arguments_are_refused(unchecked, make_learner, mixture, tiny, trained):
    with pytest.raises(ValueError, match="total_iterations must be >= 1, found 0"):
        make_learner().learn(0)
    with pytest.raises(ValueError, match="learner must be trpo or ppo, found 'sac'"):
        make_learner(learner="sac")
    with pytest.raises(ValueError, match="classifier must be bsc, sc, supervised or a classifier, found 'svm'"):
        make_learner(classifier="svm")
    with pytest.raises(ValueError, match="of 2 dimensions, the environment of 3"):
        PNGAIL(PendulumJax(), mixture, config=tiny)
    with pytest.raises(ValueError, match="have continuous actions, the environment discrete ones"):
        PNGAIL(CartPoleJax(), mixture, config=tiny)
    unrated = mixture.with_confidence(None)
    for cls in (PNGAIL, IWIL, ICGAIL):
        with pytest.raises(ValueError, match="needs at least one; rate some rows, or use GAIL, which needs none"):
            cls(TwoGoals(), unrated, config=tiny)
    with pytest.raises(ValueError, match="every confidence is 0"):
        make_learner(demos=mixture.with_confidence(np.zeros(len(mixture))))
    with pytest.raises(ValueError, match="n_episodes must be >= 1, found 0"):
        trained.evaluate(0)
    with pytest.raises(ValueError, match="seed must be >= 0, found -1"):
        trained.evaluate(1, seed=-1)


def test_what_diverges_is_told_and_the_checkpoint_is_kept(make_learner, tmp_path):
    learner = make_learner().learn(1, progress_bar=False, checkpoint=tmp_path)
    kept = (tmp_path / "checkpoint.msgpack").read_bytes()
    learner._state = learner._state._replace(disc=jax.tree.map(lambda x: x * jnp.nan, learner._state.disc))
    with pytest.raises(FloatingPointError, match="training diverged before iteration 2: a loss is not finite"):
        learner.learn(3, progress_bar=False, checkpoint=tmp_path)
    assert (tmp_path / "checkpoint.msgpack").read_bytes() == kept
    resumed = make_learner().learn(2, progress_bar=False, checkpoint=tmp_path, resume=True)
    assert np.isfinite(history(resumed)).all(axis=None)


def test_a_discriminator_that_is_always_right_is_pointed_out(make_learner, mixture):
    far = Demonstrations(mixture.obs + 100, mixture.acts, mixture.confidence)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner = make_learner("gail", far).learn(30, progress_bar=False)
        learner.learn(32, progress_bar=False)
    found = [w for w in caught if "the discriminator was right on more than 99% of the rows for 20" in str(w.message)]
    assert len(found) == 1
    assert learner.history["taken_agent"].iloc[-1] == 1
    assert learner.history["taken_good"].iloc[-1] == 0
    assert not [w for w in caught if "end early" in str(w.message)]
    # One that takes good rows for the agent's, too, is not right.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = make_learner()
        for rows, taken in ((20, 0.5), (19, 0.0)):
            other.history = pd.DataFrame({"taken_agent": [1.0] * rows, "taken_good": taken, "ended_early": 0.0})
            other._look_for_trouble()
    other.history = pd.DataFrame({"taken_agent": [1.0] * 20, "taken_good": np.nan, "ended_early": 0.0})
    with pytest.warns(UserWarning, match="the discriminator was right"):
        other._look_for_trouble()


def test_unusual_units_of_actions_are_pointed_out():
    class Strong(PendulumJax):
        @property
        def act_space(self):
            from gymnasium.spaces import Box

            return Box(-100, 100, (1,), np.float32)

    demos = Demonstrations(np.random.default_rng(0).normal(size=(5, 3)), np.ones((5, 1)), np.ones(5))
    config = TrainConfig(hidden=(2,))
    with pytest.warns(UserWarning, match=r"has half a range of 100.*consider normalize_actions=True"):
        PNGAIL(Strong(), demos, config=config)


# Labels


def test_few_labels_are_filled_in_by_a_classifier(make_learner, mixture):
    masked = mixture.mask_labels(0.2, seed=0)
    classifier = ConfidenceClassifier(method="supervised", steps=300, hidden=(8,), lr=1e-2, dropout=0.0)
    learner = make_learner(demos=masked, classifier=classifier)
    known = ~np.isnan(masked.confidence)
    np.testing.assert_array_equal(learner.confidence[known], masked.confidence[known])
    np.testing.assert_array_equal(learner.classifier.fill(masked.inputs(), masked.confidence), learner.confidence)
    assert not hasattr(classifier, "layers_")  # what was given stays as it is
    good = mixture.confidence == 1
    assert learner.confidence[good & ~known].mean() > learner.confidence[~good & ~known].mean() + 0.3
    np.testing.assert_allclose(learner._demos.first.positive, learner.confidence, rtol=1e-6)


# Keeping and reading


def test_a_learner_is_read_as_it_was_written(trained, mixture, tmp_path):
    trained.save(tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {
        "policy.msgpack", "config.json", "history.csv", "confidence.parquet",
    }  # fmt: skip
    found = PNGAIL.load(tmp_path, TwoGoals())
    np.testing.assert_array_equal(found.predict(mixture.obs)[0], trained.predict(mixture.obs)[0])
    np.testing.assert_array_equal(found.reward(mixture.obs, mixture.acts), trained.reward(mixture.obs, mixture.acts))
    a, b = found.evaluate(4), trained.evaluate(4)
    np.testing.assert_array_equal(a.returns, b.returns)
    pd.testing.assert_frame_equal(found.history, trained.history)
    assert (found.seed, found.config, found.learner) == (trained.seed, trained.config, "trpo")
    np.testing.assert_array_equal(found.confidence, trained.confidence)
    with pytest.raises(TypeError, match=r"predict\(observation, deterministic=False\)"):
        found.predict([0.0, 1.0], False)
    table = pd.read_parquet(tmp_path / "confidence.parquet")
    np.testing.assert_array_equal(table["given"], mixture.confidence)
    np.testing.assert_array_equal(table["confidence"], trained.confidence)
    np.testing.assert_array_equal(table["episode"], mixture.episode)
    assert pd.read_csv(tmp_path / "history.csv")["iteration"].tolist() == [1, 2]
    with pytest.raises(ValueError, match="a learner that was loaded cannot be trained further"):
        found.learn(5)
    with pytest.raises(FileExistsError, match="holds a policy already"):
        trained.save(tmp_path)
    found.save(tmp_path, force=True)
    np.testing.assert_array_equal(PNGAIL.load(tmp_path, TwoGoals()).predict([0.0, 1.0])[0], trained.predict([0, 1])[0])


def test_what_is_read_must_fit(trained, tmp_path):
    trained.save(tmp_path)
    with pytest.raises(ValueError, match="holds a policy of pn-gail, and GAIL is gail"):
        GAIL.load(tmp_path, TwoGoals())
    with pytest.raises(ValueError, match="from 2 observations to 2 outputs, the environment has 3 and 1"):
        PNGAIL.load(tmp_path, PendulumJax())
    with pytest.raises(FileNotFoundError):
        PNGAIL.load(tmp_path / "nowhere", TwoGoals())
    content = (tmp_path / "policy.msgpack").read_bytes()
    (tmp_path / "policy.msgpack").write_bytes(content[:-10])
    with pytest.raises(ValueError, match=r"policy\.msgpack is damaged"):
        PNGAIL.load(tmp_path, TwoGoals())
    (tmp_path / "policy.msgpack").write_bytes(content)
    about = json.loads((tmp_path / "config.json").read_text())
    assert (about["method"], about["env"], about["seed"]) == ("pn-gail", "TwoGoals", 0)
    (tmp_path / "history.csv").unlink()
    assert PNGAIL.load(tmp_path, TwoGoals()).history.empty


def test_predictions_and_evaluations(trained):
    obs = np.random.default_rng(0).normal(size=(6, 2))
    action, state = trained.predict(obs)
    assert (action.shape, action.dtype, state) == ((6, 2), np.float32, None)
    assert np.abs(action).max() <= 1
    assert trained.predict(obs[0])[0].shape == (2,)
    assert not np.array_equal(
        trained.predict(obs, deterministic=False)[0], trained.predict(obs, deterministic=False)[0]
    )
    with pytest.raises(ValueError, match=r"observation must be \(2,\) or \(n, 2\), found \(3,\)"):
        trained.predict(np.zeros(3))
    with pytest.raises(ValueError, match="not finite"):
        trained.predict([np.nan, 0])
    found = trained.evaluate(4)
    np.testing.assert_array_equal(found.lengths, [30] * 4)
    np.testing.assert_array_equal(trained.evaluate(4).returns, found.returns)
    assert not np.isin(trained.evaluate(4, seed=1).returns, found.returns).any()
    noisy = trained.evaluate(4, deterministic=False)
    assert not np.isclose(noisy.returns, found.returns).any()
    # An episode by hand: from a start, with the policy's actions, towards the same sum.
    position, total = np.array([0.0, -1.0]), []
    for _ in range(30):
        position = position + 0.1 * trained.predict(position)[0]
        total.append(-np.linalg.norm(position - [1, 0.6]))
    assert np.sum(total) == pytest.approx(found.mean, abs=5)


# Discrete actions, and Gymnasium


def test_choices_from_end_to_end(tmp_path):
    env = CartPoleJax(max_episode_steps=60)
    obs = np.random.default_rng(0).normal(0, 0.1, (200, 4))
    right = (obs @ [0.1, 0.2, 2.0, 0.6] > 0).astype(int)  # where the pole falls; the others push it over
    good = np.arange(200) < 60
    demos = Demonstrations(obs, np.where(good, right, 1 - right), confidence=np.where(good, 1, 0.05))
    config = TrainConfig(
        hidden=(8,), n_envs=8, n_steps=60, value_minibatches=2, disc_lr=1e-2, disc_steps=2, max_kl=0.05, eval_every=1,
        eval_episodes=4,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="episodes end early .* reward -log D > 0 pays for staying alive"):
        learner = PNGAIL(env, demos, config=config).learn(15, progress_bar=False)
    returns = learner.history["train_return"]
    assert np.isfinite(history(learner)).all(axis=None)
    assert returns.iloc[0] < 28  # at first it falls as soon as one that chooses at random
    assert returns.tail(10).mean() > 38
    action, _ = learner.predict(demos.obs)
    assert set(action.tolist()) == {0, 1}
    learner.save(tmp_path)
    found = PNGAIL.load(tmp_path, env)
    np.testing.assert_array_equal(found.predict(demos.obs)[0], action)
    np.testing.assert_array_equal(found.reward(demos.obs, demos.acts), learner.reward(demos.obs, demos.acts))


@pytest.fixture(scope="module")
def line_demos():
    """On the line: two good episodes to the right, four bad ones to the left."""
    x = np.arange(10) / 10
    obs = np.concatenate([x, x, -x, -x, -x, -x])[:, None]
    acts = np.repeat([1.0, -1.0], [20, 40])[:, None]
    return Demonstrations(obs, acts, confidence=np.repeat([1.0, 0.05], [20, 40]), episode=np.repeat(np.arange(6), 10))


LINE = TrainConfig(
    hidden=(8,), n_envs=10, n_steps=10, value_minibatches=4, disc_lr=3e-2, ppo_lr=3e-2, ppo_minibatch=50, ppo_epochs=4,
    log_std_init=-0.5, eval_every=5, eval_episodes=4,
)  # fmt: skip


def test_ppo_learns_in_environments_of_gymnasium(make_line, line_demos, tmp_path):
    def learned(seed, iterations, **options):
        made = PNGAIL(make_line(), line_demos, learner="ppo", config=LINE, seed=seed)
        return made.learn(iterations, progress_bar=False, **options)

    learner = learned(0, 30)
    evaluated = learner.history["eval_return"].dropna()
    assert len(evaluated) == 6
    # To the right is -4.5, to stay -10, to the left -15.5.
    assert evaluated.iloc[-1] > -6.5
    assert (learner.history["step_size"] == 1).all()
    assert (learner.history["kl"] > 0).all()
    assert learner.history["env_steps"].iloc[-1] == 30 * 100
    assert (learner.history["ended_early"] == 0).all()
    np.testing.assert_allclose(learner.evaluate(4).returns, learner.evaluate(4).returns)
    assert learner.evaluate(3).returns.shape == (3,)
    assert learner._state.policy_opt[0].count == 30 * 4 * 2  # Adam goes on from iteration to iteration
    # The same seed is the same training, another is not, and a break does not matter.
    pd.testing.assert_frame_equal(history(learned(0, 5)), history(learner).iloc[:5])
    assert not np.isclose(learned(1, 5).history["train_return"], learner.history["train_return"].iloc[:5]).any()
    learned(0, 10, checkpoint=tmp_path, callback=lambda _: False)
    resumed = learned(0, 10, checkpoint=tmp_path, resume=True)
    pd.testing.assert_frame_equal(history(resumed), history(learner).iloc[:10])


def test_ends_of_gymnasium_are_no_cuts(make_line, line_demos):
    left = Demonstrations(line_demos.obs, -line_demos.acts, line_demos.confidence)
    with pytest.warns(UserWarning, match="episodes end early"):
        learner = PNGAIL(make_line(wall=0.2), left, learner="ppo", config=LINE).learn(5, progress_bar=False)
    assert (learner.history["ended_early"] > 0).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = PNGAIL(make_line(wall=0.2), left, learner="ppo", config=replace(LINE, reward="airl"))
        same.history = learner.history
        same._look_for_trouble()  # which is no trouble with a reward of both signs


def test_episodes_without_a_time_limit_are_cut_as_the_longest_that_was_shown(make_line, line_demos):
    def endless():
        return make_line(1)().unwrapped

    longest = "cut after 10 steps, as many as the longest demonstrated one has; max_episode_steps=N"
    with pytest.warns(UserWarning, match=longest):
        learner = PNGAIL(endless, line_demos, config=replace(LINE, n_steps=None, n_envs=2))
    assert learner.config.max_episode_steps == 10
    assert learner._runner.steps_per_iteration == 5000  # 250 episodes of 10 steps each, two at once
    assert learner.evaluate(3).lengths.tolist() == [10] * 3
    with pytest.warns(UserWarning, match="cut after 1,000 steps; max_episode_steps=N"):
        alone = PNGAIL(endless, replace(line_demos, episode=None), config=LINE)
    assert alone.config.max_episode_steps == 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = PNGAIL(endless, line_demos, config=replace(LINE, max_episode_steps=7))
        limited = BC(make_line(), line_demos, config=LINE)
    assert given.evaluate(1).lengths.tolist() == [7]
    assert limited.config.max_episode_steps is None
