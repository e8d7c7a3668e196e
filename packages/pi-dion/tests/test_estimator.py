import dataclasses
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from icl25_pi_dion import InverseOperator, InverseProblem, SensorReadings, data
from icl25_pi_dion.calibration import ErrorBound, Novelty, relative_errors
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.problems import HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.refinement import freeze, refine

RD = ReactionDiffusionSource()
QUICK = {"calibration": 0, "check_identifiable": False}


def small(problem=RD):
    """A network that is compiled in little time."""
    return PIDION(problem, 12, (24,), fourier=6, branch_hidden=(24,))


@pytest.fixture(scope="module")
def pairs():
    s = data.sample_prior(RD, 460, seed=100)
    return s, data.simulate(RD, s)


@pytest.fixture(scope="module")
def operator(pairs):
    return InverseOperator(RD, steps=450, seed=1).fit(pairs[1][:400])


def errors(result, pairs):
    return relative_errors(result.s, pairs[0][400:])


def test_sources_are_found_without_labels(operator, pairs):
    result = operator.predict(pairs[1][400:], return_u=True)
    error = errors(result, pairs)
    assert error.mean() < 0.09
    assert relative_errors(result.u, pairs[1][400:]).mean() < 0.01
    assert operator.score(pairs[1][400:], pairs[0][400:]) == pytest.approx(
        1 - np.sum((result.s - pairs[0][400:]) ** 2) / np.sum((pairs[0][400:] - pairs[0][400:].mean(0)) ** 2)
    )
    assert 0.75 <= np.mean(error <= result.error_estimate) <= 1
    assert result.error_estimate.mean() < 3 * error.mean()
    assert 0.5 < result.ood_score.mean() < 2
    assert result.ood_score.max() < 6


def test_refinement_lowers_errors_and_never_a_loss(operator, pairs):
    before = errors(operator.predict(pairs[1][400:]), pairs)
    refined = operator.predict(pairs[1][400:], refine=1)
    assert refined.refined
    assert errors(refined, pairs).mean() < 0.75 * before.mean()
    with jax.enable_x64(True):
        graph, state = nnx.split(operator.net_)
        net = nnx.merge(graph, jax.tree.map(lambda part: jnp.asarray(np.asarray(part), jnp.float64), state))
        points = jnp.asarray(np.random.default_rng(0).uniform(size=(200, 2)))
        frozen = freeze(operator.objective_, net, points, jnp.asarray(RD.sensors()))
        values = jnp.asarray(pairs[1][400:410])
        for noise in (0.0, 0.05):
            start = net.coefficients(values)
            found, loss = refine(operator.objective_, net, frozen, start, values, steps=2, noise_std=noise)
            assert (loss[:, 1] < loss[:, 0]).all()
            assert (np.abs(found.recon - start.recon) > 0).any()
        exact, loss = refine(operator.objective_, net, frozen, net.coefficients(values), values, steps=1, damping=0.0)
        _, again = refine(operator.objective_, net, frozen, exact, values, steps=1, damping=0.0)
        np.testing.assert_allclose(again[:, 1], loss[:, 1], rtol=1e-3)  # one step solves a linear problem


def test_one_call_equals_many_and_points_are_free(operator, pairs):
    test = pairs[1][400:407]
    together = operator.predict(test)
    np.testing.assert_allclose(operator.predict(test[3:4]).s[0], together.s[3], rtol=1e-4, atol=1e-5)
    nodes = np.array([0.2, 0.5])
    found = operator.predict(test, points=nodes, return_u=True, points_u=[[0.5, 0.0], [0.5, 1.0]])
    np.testing.assert_allclose(found.s, together.s[:, [10, 25]], rtol=1e-4, atol=1e-5)
    assert not found.u[:, 0].any()
    np.testing.assert_allclose(found.u[:, 1], test[:, 25], atol=0.05)
    np.testing.assert_allclose(found.error_estimate, together.error_estimate, rtol=1e-5)
    with pytest.raises(ValueError, match="points must be finite, a row of x"):
        operator.predict(test, points=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="refine must be >= 0"):
        operator.predict(test, refine=-1)


def test_measurements_of_the_training_are_not_answered_with_too_much_confidence():
    s = data.sample_prior(RD, 60, seed=7)
    measured = data.simulate(RD, s)
    operator = InverseOperator(RD, small(), steps=600, calibration=100, early_stop=False, check_identifiable=False)
    result = operator.fit(measured).predict(measured)
    assert np.mean(relative_errors(result.s, s) <= result.error_estimate) > 0.8


def test_foreign_measurements_are_warned_of(operator, pairs):
    with pytest.warns(UserWarning, match="3 of 3 measurements are unlike those of the training"):
        assert operator.predict(1000 * pairs[1][:3]).ood_score.min() > 6


def test_saved_operators_say_the_same(operator, pairs, tmp_path):
    operator.save(tmp_path / "run")
    loaded = InverseOperator.load(tmp_path / "run")
    first, second = operator.predict(pairs[1][400:]), loaded.predict(pairs[1][400:])
    for name, value in first.arrays().items():
        np.testing.assert_array_equal(value, second.arrays()[name], err_msg=name)
    with pytest.raises(FileExistsError):
        operator.save(tmp_path / "run")
    other = InverseOperator(RD, small(), steps=1, **QUICK).fit(pairs[1][:50])
    other.save(tmp_path / "run", force=True)
    again = InverseOperator.load(tmp_path / "run").predict(pairs[1][400:403])
    np.testing.assert_array_equal(again.s, other.predict(pairs[1][400:403]).s)
    with pytest.raises(FileNotFoundError, match="holds no estimator"):
        InverseOperator.load(tmp_path)
    with pytest.raises(ValueError, match="was trained on ReactionDiffusionSource, found HelmholtzCoefficient"):
        InverseOperator.load(tmp_path / "run", problem=HelmholtzCoefficient())
    (tmp_path / "run" / "config.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        InverseOperator.load(tmp_path / "run")


def test_parameters_follow_scikit_learn():
    operator = InverseOperator(RD, steps=7)
    copy = type(operator)(**operator.get_params()).set_params(steps=9)
    assert copy.get_params() == {**operator.get_params(), "steps": 9}
    with pytest.raises(ValueError, match="unknown parameters stepz"):
        operator.set_params(stepz=1)
    with pytest.raises(RuntimeError, match="not fitted"):
        operator.predict(np.zeros((1, 51)))


def test_divergence_is_said_clearly(pairs):
    with pytest.raises(RuntimeError, match="at a quarter of the learning rate too"):
        InverseOperator(RD, small(), optimizer="adam", learning_rate=1e30, steps=100, **QUICK).fit(pairs[1][:50])


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_other_optimisers_lower_the_loss(pairs, optimizer):
    history = InverseOperator(RD, small(), optimizer=optimizer, steps=100, **QUICK).fit(pairs[1][:100]).history_
    assert history[-1]["total"] < 0.7 * history[0]["total"]


def test_labels_help(pairs):
    s, m = pairs
    options = {"steps": 100, "seed": 0, **QUICK}
    without = errors(InverseOperator(RD, small(), **options).fit(m[:400]).predict(m[400:]), pairs).mean()
    some = InverseOperator(RD, small(), **options).fit(m[:400], (np.arange(100), s[:100]))
    assert errors(some.predict(m[400:]), pairs).mean() < 0.9 * without
    assert "label" in some.history_[0]


def test_noise_sets_weights_and_ends_training(pairs):
    noisy = data.simulate(RD, pairs[0], noise=0.05, seed=0)
    operator = InverseOperator(RD, steps=600, noise_std=0.05, **QUICK).fit(noisy[:40])
    assert operator.weights_.h1 == 0
    assert operator.weights_.data == pytest.approx(10 * 0.4**2)
    assert operator.history_[-1]["data"] ** 0.5 > 0.5 * 0.05
    assert errors(operator.predict(noisy[400:]), pairs).mean() < 0.4


def test_sets_of_sensors_are_learned(pairs):
    net = PIDION(RD, branch="set", rngs=0)
    operator = InverseOperator(RD, net, steps=500, sensor_dropout=0.5, calibration=0, check_identifiable=False)
    operator.fit(pairs[1][:400])
    test, sensors = pairs[1][400:420], RD.sensors()
    full = operator.predict(test)
    assert relative_errors(full.s, pairs[0][400:420]).mean() < 0.45
    half = SensorReadings(test[:, ::2], np.broadcast_to(sensors[::2], (20, 26, 2)), np.ones((20, 26), bool))
    found = operator.predict(half)
    assert relative_errors(found.s, pairs[0][400:420]).mean() < 0.55
    listed = operator.predict([(sensors[::2], row) for row in test[:, ::2]], refine=1)
    assert relative_errors(listed.s, pairs[0][400:420]).mean() < relative_errors(found.s, pairs[0][400:420]).mean()


def test_what_cannot_be_seen_is_warned_of():
    half = ReactionDiffusionSource(n_sensors=31, n_modes=8, measurement="window")
    measurements = data.simulate(half, data.sample_prior(half, 40, seed=0))
    with pytest.warns(UserWarning, match="cannot|does not|error"):
        InverseOperator(half, small(half), steps=1, calibration=0).fit(measurements)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InverseOperator(RD, small(), steps=1, calibration=0).fit(data.simulate(RD, data.sample_prior(RD, 40, seed=0)))


class Sine(InverseProblem):
    derivatives = ("u", "u_t", "u_xx")

    def residual(self, d, s, y):
        return d.u_t - 0.01 * d.u_xx - jnp.sin(d.u) - s.value


def test_an_equation_of_ones_own_needs_a_residual_alone(pairs):
    operator = InverseOperator(Sine(), steps=300).fit(pairs[1][:100])
    result = operator.predict(pairs[1][100:103])
    assert np.isnan(result.error_estimate).all()
    assert result.s.shape == (3, 51)
    assert result.residual_rms.max() < 0.2 * np.abs(result.s).max()
    labelled = InverseOperator(Sine(), steps=50).fit(pairs[1][:100], (np.arange(30), np.ones((30, 51))))
    assert np.isfinite(labelled.predict(pairs[1][100:103]).error_estimate).all()


def test_two_devices_give_what_one_gives():
    code = """
import numpy as np
from icl25_pi_dion import PIDION, InverseOperator, data
from icl25_pi_dion.problems import ReactionDiffusionSource
problem = ReactionDiffusionSource(n_sensors=31, n_modes=8)
m = data.simulate(problem, data.sample_prior(problem, 60, seed=0))
options = dict(optimizer="adam", steps=60, calibration=0, check_identifiable=False)
net = PIDION(problem, 12, (24,), fourier=6, branch_hidden=(24,))
one, two = (InverseOperator(problem, net, n_devices=n, **options).fit(m).predict(m).s for n in (1, 2))
assert len(__import__("jax").devices()) == 2
print(np.abs(one - two).max() / np.abs(one).max())
"""
    environment = {**__import__("os").environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-3


def test_error_bounds_and_novelty():
    rng = np.random.default_rng(0)
    indicator = rng.uniform(1, 2, 400)
    error = indicator * rng.uniform(0, 3, 400)
    bound = ErrorBound.fit(error, indicator)
    assert np.mean(error <= bound(indicator)) == pytest.approx(0.9, abs=0.005)
    assert bound(np.array([2.0])) == pytest.approx(2 * bound.constant)
    assert bound(np.array([1e-3])) == pytest.approx(bound.constant * np.median(indicator))
    assert ErrorBound.fit(error[:5], indicator[:5]).constant == np.inf
    steep = np.concatenate([np.zeros(200), np.full(200, 9.0)])  # errors of the least indicators are zero
    assert ErrorBound.fit(steep * np.sort(indicator), np.sort(indicator)).constant == pytest.approx(9)
    features = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 20))
    known = Novelty.fit(features)
    assert known.score(features).mean() == pytest.approx(1, abs=0.15)
    assert known.score(features + rng.normal(size=features.shape)).min() > 3
    assert dataclasses.replace(InverseOperator(RD), steps=3).steps == 3
