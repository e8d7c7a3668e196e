from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from icl25_pn_gail.controllers import (
    Noisy,
    TowardsGoal,
    UniformActions,
    UniformChoice,
    cart_pole_expert,
    controllers_of,
    find_controller,
    pendulum_expert,
    pendulum_hang,
    pendulum_spin,
)
from icl25_pn_gail.envs import CartPoleJax, PendulumJax, TwoGoals, make_env
from icl25_pn_gail.recording import record

KEY = jax.random.key(0)
PENDULUM, PLANE, POLE = PendulumJax(), TwoGoals(), CartPoleJax()


def at(angle, speed):
    return jnp.array([np.cos(angle), np.sin(angle), speed])


def many(controller):
    """The controller for several keys and one observation."""
    return jax.jit(jax.vmap(controller, (0, None)))


@pytest.mark.parametrize(
    ("angle", "speed", "torque"),
    [
        (2.0, 0.3, -1.2 * (0.09 / 6 + 5 * (np.cos(2.0) - 1))),  # pumps energy
        (2.0, -0.3, 1.2 * (0.09 / 6 + 5 * (np.cos(2.0) - 1))),
        (2.0, 1.0, 2.0),
        (0.5, 6.0, -2.0),  # too much energy
        (2.0, 0.04, -2.0),  # almost at rest: away from the side it hangs on
        (-2.0, 0.04, 2.0),
        (0.05, 0.1, -(18 * 0.05 + 4.5 * 0.1)),  # balances
        (0.05, 0.04, -(18 * 0.05 + 4.5 * 0.04)),
        (0.34, 0.0, -2.0),
        (0.3, 3.1, -12.4 * (9.61 / 6 + 5 * (np.cos(0.3) - 1))),  # too fast to catch
        (0.36, 0.1, -0.4 * (0.01 / 6 + 5 * (np.cos(0.36) - 1))),  # too far to catch
    ],
)
def test_pendulum_expert_follows_its_law(angle, speed, torque):
    found = pendulum_expert(KEY, at(angle, speed))
    np.testing.assert_allclose(found, [np.clip(torque, -2, 2)], atol=1e-5)


def test_bad_pendulum_controllers_follow_their_laws():
    for speed, spin, hang in ((0.4, 2, -0.8), (-3.0, -2, 2), (-0.5, -2, 1)):
        np.testing.assert_allclose(pendulum_spin(KEY, at(1.0, speed)), [spin])
        np.testing.assert_allclose(pendulum_hang(KEY, at(1.0, speed)), [hang], rtol=1e-6)


@pytest.mark.parametrize(
    ("env", "level", "mean", "margin"),
    [
        (PENDULUM, "expert", -144, 40),  # standard error 12
        (PENDULUM, "spin", -1618, 30),  # 6
        (PENDULUM, "hang", -1874, 60),  # 16
        (PENDULUM, "random", -1206, 150),  # 39
        (PLANE, "expert", -17.5, 0.6),  # 0.14
        (POLE, "expert", 500, 0),
    ],
)
def test_mean_returns_over_fifty_starts(env, level, mean, margin):
    returns = record(env, find_controller(env, level), 50, seed=0).returns()
    assert len(returns) == 50
    assert np.mean(returns) == pytest.approx(mean, abs=margin)


def test_the_way_to_a_goal_is_straight_and_noisy():
    obs = jnp.array([0.5, -0.4])
    way = np.array([0.5, 1.0]) / np.hypot(0.5, 1.0)
    np.testing.assert_allclose(TowardsGoal((1.0, 0.6), noise=0)(KEY, obs), way, rtol=1e-6)
    found = many(TowardsGoal((1.0, 0.6)))(jax.random.split(KEY, 4000), obs)
    assert np.abs(found).max() <= 1
    assert np.std(found[:, 0]) == pytest.approx(0.1, rel=0.05)
    assert np.isfinite(TowardsGoal((1.0, 0.6))(KEY, jnp.array([1.0, 0.6]))).all()


def test_cart_is_pushed_under_its_pole():
    assert cart_pole_expert(KEY, jnp.array([0, 0, 0.1, 0.0])) == 1
    assert cart_pole_expert(KEY, jnp.array([0, 0, -0.1, 0.0])) == 0
    assert cart_pole_expert(KEY, jnp.array([0, 0, 0.1, -1.0])) == 0


def test_random_actions_fill_their_bounds():
    keys, obs = jax.random.split(KEY, 4000), jnp.zeros(3)
    drawn = many(UniformActions((-2.0, 0.0), (2.0, 1.0)))(keys, obs)
    np.testing.assert_allclose(drawn.min(axis=0), [-2, 0], atol=0.01)
    np.testing.assert_allclose(drawn.max(axis=0), [2, 1], atol=0.01)
    np.testing.assert_allclose(drawn.mean(axis=0), [0, 0.5], atol=0.06)
    counts = np.bincount(many(UniformChoice(3))(keys, obs), minlength=3)
    np.testing.assert_allclose(counts / 4000, [1 / 3] * 3, atol=0.03)


def test_noise_strikes_as_often_as_it_should():
    keys = jax.random.split(KEY, 4000)
    level = Noisy(pendulum_spin, 0.3, UniformActions((-2.0,), (2.0,)))
    found = np.ravel(many(level)(keys, at(0.0, 1.0)))
    usual = found == 2
    assert np.mean(usual) == pytest.approx(0.7, abs=0.03)
    assert np.mean(found[~usual]) == pytest.approx(0, abs=0.15)  # what is drawn does not depend on the choice
    assert find_controller(PENDULUM, "eps0.3") == Noisy(pendulum_expert, 0.3, UniformActions((-2.0,), (2.0,)))
    assert find_controller(PENDULUM, "eps1") == Noisy(pendulum_expert, 1, UniformActions((-2.0,), (2.0,)))
    assert find_controller(POLE, "eps.05") == Noisy(cart_pole_expert, 0.05, UniformChoice(2))


def test_levels_are_those_of_the_environment():
    assert list(controllers_of(PENDULUM)) == ["expert", "spin", "hang", "random"]
    assert list(controllers_of(PLANE)) == ["expert", "to-a", "to-b", "random"]
    assert controllers_of(TwoGoals(goal_b=(0.0, 2.0)))["to-b"] == TowardsGoal((0.0, 2.0))
    theirs = make_env("Pendulum-v1", "gymnasium")
    assert controllers_of(theirs) == controllers_of(PENDULUM)
    assert controllers_of(make_env("CartPole-v1", "gymnasium")) == controllers_of(POLE)
    assert list(controllers_of(make_env("MountainCarContinuous-v0"))) == ["random"]
    assert find_controller(PLANE, "spin", {"spin": pendulum_spin}) is pendulum_spin
    assert find_controller(PENDULUM, "spin", {"spin": pendulum_hang}) is pendulum_hang


def test_unknown_levels_are_refused():
    with pytest.raises(
        ValueError, match=r"PendulumJax has no level 'swing'; it has expert, spin, hang, random, eps0.3"
    ):
        find_controller(PENDULUM, "swing")
    for level in ("eps1.5", "eps", "eps-0.1", "eps0.3.1", "epsilon"):
        with pytest.raises(ValueError, match=f"no level '{level}'; .*between 0 and 1"):
            find_controller(PENDULUM, level)
    with pytest.raises(ValueError, match=r"MountainCarContinuous-v0 has no level 'eps0.3'; it has random$"):
        find_controller(make_env("MountainCarContinuous-v0"), "eps0.3")


def test_random_needs_bounds():
    class Unbounded(TwoGoals):
        act_space = spaces.Box(-np.inf, np.inf, (2,))

    assert "random" not in controllers_of(Unbounded())
