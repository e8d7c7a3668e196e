from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from icl25_pi_dion import InverseOperator, InverseProblem, data
from icl25_pi_dion.calibration import relative_errors
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.preparation import chosen_weights, split
from icl25_pi_dion.problems import HelmholtzCoefficient, ReactionDiffusionSource
from icl25_pi_dion.training import Diverged

RD = ReactionDiffusionSource(n_sensors=11, n_modes=4)
SMALL = {"p": 8, "trunk": (16,), "branch_hidden": (8,), "fourier": 3}


@pytest.fixture(scope="module")
def measured():
    s = data.sample_prior(RD, 60, seed=0)
    return s, data.simulate(RD, s)


def operator(problem=RD, net=None, **options):
    options = {"batch_size": 8, "n_collocation": 20, "calibration": 0, "check_identifiable": False} | options
    return InverseOperator(problem, PIDION(problem, **SMALL) if net is None else net, **options)


def parameters(fitted):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(nnx.state(fitted.net_, nnx.Param))]


def test_resumed_parameters_are_those_of_one_go_bit_for_bit(measured, tmp_path):
    m = measured[1]
    whole, broken, resumed = (operator(steps=250) for _ in range(3))
    broken.fit(m, callbacks=[lambda row: row["step"] == 150], checkpoint=tmp_path / "c", checkpoint_every=50)
    assert broken.n_steps_ == 150
    with pytest.raises(FileExistsError, match="resume it"):
        operator(steps=250).fit(m, checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="checkpoint of another training"):
        operator(steps=250).fit(m[::-1], checkpoint=tmp_path / "c", resume=True)
    resumed.fit(m, checkpoint=tmp_path / "c", resume=True)
    for first, second in zip(parameters(whole.fit(m)), parameters(resumed), strict=True):
        np.testing.assert_array_equal(first, second)
    assert any((a != b).any() for a, b in zip(parameters(whole), parameters(broken), strict=True))
    assert [row["total"] for row in whole.history_] == [row["total"] for row in resumed.history_]
    other = operator(steps=250, seed=1).fit(m)
    assert any((a != b).any() for a, b in zip(parameters(whole), parameters(other), strict=True))


class Breaking(InverseProblem):
    """A problem whose residual is not a number where the unknown exceeds a limit."""

    derivatives = ("u", "u_t")

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def residual(self, d, s, y):
        return jnp.where(jnp.max(jnp.abs(s.value)) > self.limit, jnp.nan, d.u_t - s.value)


def climbing():
    """An optimiser that adds 1 to the bias of the unknown in each step and leaves all else."""

    def update(gradient, state, params=None):
        def move(path, part):
            return jnp.ones_like(part) if "inverse_bias" in jax.tree_util.keystr(path) else jnp.zeros_like(part)

        return jax.tree_util.tree_map_with_path(move, gradient), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@pytest.mark.parametrize(("limit", "rate"), [(1000.0, 1.0), (37.0, 0.5), (19.0, 0.25)])
def test_the_rate_is_halved_until_training_stays_finite(measured, limit, rate):
    problem = Breaking(limit)
    problem.sensor_shape = (11,)
    fitted = operator(problem, optimizer=climbing(), steps=50).fit(measured[1])
    assert [row["rate"] for row in fitted.history_] == [rate]
    assert float(fitted.net_.inverse_bias[...]) == pytest.approx(50 * rate)


def test_training_fails_where_two_halvings_do_not_help(measured):
    problem = Breaking(6.0)
    problem.sensor_shape = (11,)
    with pytest.raises(Diverged, match="not finite after step 0, at a quarter of the learning rate too"):
        operator(problem, optimizer=climbing(), steps=50).fit(measured[1])


def test_training_stops_where_there_is_no_progress(measured):
    stopped = operator(optimizer=optax.set_to_zero(), steps=1300).fit(measured[1])
    assert (stopped.n_steps_, stopped.stopped_) == (1100, "no progress")
    going = operator(optimizer=optax.set_to_zero(), steps=1300, early_stop=False).fit(measured[1])
    assert (going.n_steps_, going.stopped_) == (1300, "")


def test_every_callback_sees_every_row_until_one_stops(measured):
    seen = []
    fitted = operator(steps=300).fit(measured[1], callbacks=[lambda row: row["step"] >= 100, seen.append])
    assert [row["step"] for row in seen] == [50, 100]
    assert fitted.n_steps_ == 100
    assert {"total", "physics", "data", "h1", "rate", "seconds"} <= set(seen[0])
    assert {"val_residual", "val_misfit"} <= set(seen[1])


def test_fixed_points_leave_larger_errors_than_fresh_ones(measured):
    s, m = measured
    options = {"steps": 1000, "n_collocation": 6, "batch_size": 50, "early_stop": False}
    net = PIDION(RD, 24, (48, 48), fourier=12)
    with pytest.warns(UserWarning, match="more than 10 times that at the points; use fresh_points=True"):
        fixed = operator(net=net, fresh_points=False, **options).fit(m[:50])
    assert fixed.stopped_ == "overfitting"
    fresh = operator(net=net, **options | {"steps": fixed.n_steps_}).fit(m[:50])
    with_fixed, with_fresh = (relative_errors(found.predict(m[50:]).s, s[50:]).mean() for found in (fixed, fresh))
    assert with_fixed > 1.5 * with_fresh


@pytest.mark.parametrize("n_labelled", [0, 1, 30, 95, 100])
def test_labelled_samples_are_not_held_out(n_labelled):
    labelled = np.random.default_rng(1).permutation(100)[:n_labelled]
    train, held_out = split(100, labelled, np.random.default_rng(0))
    assert set(labelled) <= set(train)
    if n_labelled > 90:
        assert len(train) == len(held_out) == 100
    else:
        assert len(held_out) == (100 - n_labelled) // 10
        assert not set(held_out) & set(labelled)
        assert sorted([*train, *held_out]) == list(range(100))


def test_at_most_a_hundred_samples_are_held_out():
    assert [len(part) for part in split(5000, np.zeros(0, int), np.random.default_rng(0))] == [4900, 100]


def test_noise_takes_weight_from_the_data_and_from_slopes():
    assert chosen_weights(RD, None, 0.0).h1 == 0.1
    assert chosen_weights(RD, None, 0.0, all_read=False).h1 == 0
    assert chosen_weights(HelmholtzCoefficient(n_grid=5), None, 0.0).h1 == 0
    small, larger = (chosen_weights(RD, {"data": 4.0, "h1": 0.3}, noise) for noise in (0.004, 0.1))
    assert (small.data, small.h1) == (4.0, 0.3)
    assert (larger.data, larger.h1) == (pytest.approx(4 * 0.2**2), 0)
    assert chosen_weights(RD, None, 0.01).data == 10
    with pytest.raises(ValueError, match="h1 needs the readings of all sensors"):
        chosen_weights(RD, {"h1": 0.1}, 0.0, all_read=False)
