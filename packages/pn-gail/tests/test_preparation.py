from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import CartPoleJax, TwoGoals
from icl25_pn_gail.methods import METHODS
from icl25_pn_gail.preparation import Spaces, fill_confidence, make_trainer, observation_scaler, prepare

PLANE = Spaces(2, Box(-1, 1, (2,)))


class Stub:
    """A classifier that believes each row as much as its first observation says."""

    def fit(self, x, r):
        self.seen = np.array(x), np.array(r)
        return self

    def fill(self, x, r):
        return np.where(np.isnan(r), x[:, 0], r)


def rows(n=6, obs=2, act=2, confidence=None, discrete=False):
    rng = np.random.default_rng(0)
    acts = np.arange(n) % 3 if discrete else rng.uniform(-1, 1, (n, act))
    return Demonstrations(obs=rng.uniform(0, 1, (n, obs)), acts=acts, confidence=confidence)


def test_spaces_are_those_of_the_environment():
    spaces = Spaces.of(TwoGoals())
    assert (spaces.obs_dim, spaces.n_outputs, spaces.discrete) == (2, 2, False)
    spaces = Spaces.of(CartPoleJax())
    assert (spaces.obs_dim, spaces.n_outputs, spaces.discrete) == (4, 2, True)


@pytest.mark.parametrize(
    ("demos", "spaces", "message"),
    [
        (rows(obs=111), Spaces(105, Box(-1, 1, (2,))), "of 111 dimensions, the environment of 105.*Ant-v2 has 111"),
        (rows(act=3), PLANE, "actions of 3 dimensions, the environment of 2"),
        (rows(), Spaces(2, Discrete(2)), "have continuous actions, the environment discrete ones"),
        (rows(discrete=True), PLANE, "have discrete actions, the environment continuous ones"),
        (rows(discrete=True), Spaces(2, Discrete(2)), "have action 2, expected 0 to 1"),
    ],
)
def test_demonstrations_that_do_not_fit_are_refused(demos, spaces, message):
    with pytest.raises(ValueError, match=message):
        spaces.check(demos)
    PLANE.check(rows())
    Spaces(2, Discrete(3)).check(rows(discrete=True))


def test_the_trainer_has_the_policy_of_the_spaces(unchecked):
    config = TrainConfig(clip_actions=False)
    trainer = make_trainer(PLANE, "ppo", config)
    assert (trainer.policy.n_outputs, trainer.policy.discrete, trainer.obs_dim) == (2, False, 2)
    assert (trainer.learner, trainer.config, trainer.actions.clip) == ("ppo", config, False)
    trainer = make_trainer(Spaces(4, Discrete(3)), "trpo", TrainConfig())
    assert (trainer.policy.n_outputs, trainer.policy.discrete, trainer.actions.n_actions) == (3, True, 3)
    with pytest.raises(ValueError, match="learner must be trpo or ppo, found 'sac'"):
        make_trainer(PLANE, "sac", TrainConfig())


@pytest.mark.parametrize(("bound", "odd"), [(0.1, True), (0.25, False), (4.0, False), (100.0, True)])
def test_unusual_units_of_actions_are_pointed_out(bound, odd):
    spaces = Spaces(1, Box(np.array([-1, -bound], np.float32), np.array([1, bound], np.float32)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_trainer(spaces, "trpo", TrainConfig(log_std_init=0.5))
        make_trainer(spaces, "trpo", TrainConfig(normalize_actions=True))
        make_trainer(spaces, "trpo", TrainConfig(), warn=False)
        make_trainer(Spaces(1, Box(-np.inf, np.inf, (1,))), "trpo", TrainConfig())
    expected = f"action 1 has half a range of {bound:g}, and the policy starts with a standard deviation of 1.65; "
    assert [str(w.message) for w in caught] == [expected + "consider normalize_actions=True"] * odd


def test_observations_are_normalised_by_their_spread():
    obs = np.random.default_rng(0).normal([5, -3, 0], [2, 1e-3, 1e3], (50, 3))
    scaler = observation_scaler(obs)
    np.testing.assert_allclose(scaler(obs).mean(0), np.zeros(3), atol=1e-3)
    np.testing.assert_allclose(scaler(obs).std(0), np.ones(3), rtol=1e-5)
    # What does not vary is centred only, also where it varies by rounding.
    constant = np.array([[7.0, 1e4], [7.0, 1e4 + 1e-4], [7.0, 1e4], [7.0, 1e4 - 1e-4]])
    np.testing.assert_allclose(observation_scaler(constant)(constant), np.zeros((4, 2)), atol=1e-3)
    np.testing.assert_array_equal(observation_scaler(obs, normalize=False)(obs), obs)


def test_missing_confidences_are_filled_in_and_given_ones_kept():
    demos = rows(confidence=[1.0, np.nan, 0.0, np.nan, 0.5, np.nan])
    filled, stub = fill_confidence(demos, "pn-gail", Stub(), 0)
    np.testing.assert_array_equal(filled[[0, 2, 4]], [1, 0, 0.5])
    np.testing.assert_array_equal(filled[[1, 3, 5]], demos.obs[[1, 3, 5], 0])
    np.testing.assert_array_equal(stub.seen[0], demos.inputs())
    # Methods without need of confidences take all rows, and those that are all rated need nothing.
    filled, fitted = fill_confidence(demos, "gail", None, 0)
    np.testing.assert_array_equal(filled, [1, 1, 0, 1, 0.5, 1])
    assert fitted is None
    rated = demos.with_confidence(np.linspace(0, 1, 6))
    filled, fitted = fill_confidence(rated, "pn-gail", None, 0)
    np.testing.assert_array_equal(filled, np.linspace(0, 1, 6))
    assert fitted is None


def test_each_method_has_its_classifier(monkeypatch):
    made = []

    class Recorder(Stub):
        def __init__(self, method, random_state):
            made.append((method, random_state))

    monkeypatch.setattr("icl25_pn_gail.classifier.ConfidenceClassifier", Recorder)
    demos = rows(confidence=[1.0, np.nan, 0.0, np.nan, 0.5, np.nan])
    for method in METHODS:
        fill_confidence(demos, method, None, 7)
    assert made == [("bsc", 7), ("sc", 7)]
    made.clear()
    for method, name in (("pn-gail", "sc"), ("2iwil", "supervised"), ("gail", "bsc")):
        fill_confidence(demos, method, name, 1)
    assert made == [("sc", 1), ("supervised", 1), ("bsc", 1)]


@pytest.mark.parametrize("method", [key for key, method in METHODS.items() if method.needs_labels])
def test_without_any_label_gail_is_named(method):
    with pytest.raises(ValueError, match=r"no demonstration has a confidence, and .* needs .*or use GAIL, which needs"):
        fill_confidence(rows(), method, None, 0)
    np.testing.assert_array_equal(fill_confidence(rows(), "gail", None, 0)[0], np.ones(6))


@pytest.mark.parametrize("confidence", [None, np.linspace(0, 1, 6)])
def test_an_unknown_classifier_is_refused_even_where_none_is_needed(confidence):
    with pytest.raises(ValueError, match="classifier must be bsc, sc, supervised or a classifier, found 'svm'"):
        fill_confidence(rows(confidence=confidence), "gail", "svm", 0)


def test_a_run_is_prepared_in_the_units_of_the_policy():
    config = TrainConfig(hidden=(3,), normalize_actions=True, icgail_min_prior=0.9)
    trainer = make_trainer(Spaces(2, Box(-2, 2, (2,))), "trpo", config)
    demos = rows(confidence=[1.0, np.nan, 0.0, np.nan, 0.5, np.nan])
    prepared = prepare(trainer, demos, "ic-gail", Stub(), seed=3)
    np.testing.assert_allclose(prepared.demos.actions, demos.acts / 2, rtol=1e-6)
    np.testing.assert_allclose(np.mean(prepared.demos.obs, axis=0), [0, 0], atol=1e-6)
    np.testing.assert_allclose(prepared.demos.fake_weight, 0.9)
    np.testing.assert_array_equal(prepared.confidence[[0, 2, 4]], [1, 0, 0.5])
    assert isinstance(prepared.classifier, Stub)
    assert int(prepared.keys.seed) == 3
    np.testing.assert_array_equal(prepared.state.weights, np.ones(6))
    assert [layer.kernel.shape for layer in prepared.state.disc] == [(4, 3), (3, 1)]
    assert [layer.kernel.shape for layer in prepared.state.value] == [(2, 3), (3, 1)]
    raw = make_trainer(PLANE, "trpo", TrainConfig(hidden=(3,), normalize_obs=False))
    np.testing.assert_allclose(prepare(raw, demos, "gail").demos.obs, demos.obs, rtol=1e-6)
