"""Behaviours written by hand, good and bad, from which demonstrations are made without learning."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Array, Float, Int, PRNGKeyArray

from icl25_pn_gail.envs import CartPoleJax, PendulumJax, TwoGoals, env_name

__all__ = [
    "Controller",
    "Noisy",
    "TowardsGoal",
    "UniformActions",
    "UniformChoice",
    "cart_pole_expert",
    "controllers_of",
    "find_controller",
    "pendulum_expert",
    "pendulum_hang",
    "pendulum_spin",
]

MAX_TORQUE = 2.0
Controller = Callable[[PRNGKeyArray, Float[Array, " d"]], Array]


def pendulum_expert(key: PRNGKeyArray, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """Swing the pendulum up by its energy, and balance it near the top; mean return about -144.

    Args:
        key: Not used, a scalar.
        obs: Cosine and sine of the angle from upright, and the speed, shape (3,).

    Returns:
        The torque, shape (1,).

    Raises:
        ValueError: If the observation has not three entries.

    Source:
        Energy control of Astrom and Furuta (2000) with a linear law near the top.
    """
    cos, sin, speed = obs
    angle = jnp.arctan2(sin, cos)
    energy = speed**2 / 6 + 5 * (cos - 1)
    torque = jnp.where(jnp.abs(speed) < 0.05, -MAX_TORQUE * jnp.sign(sin), -4 * speed * energy)
    near = (jnp.abs(angle) < 0.35) & (jnp.abs(speed) < 3)
    torque = jnp.where(near, -(18 * angle + 4.5 * speed), torque)
    return jnp.clip(torque, -MAX_TORQUE, MAX_TORQUE)[None]


def pendulum_spin(key: PRNGKeyArray, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """Spin the pendulum ever faster; mean return about -1618.

    Args:
        key: Not used, a scalar.
        obs: Cosine and sine of the angle from upright, and the speed, shape (3,).

    Returns:
        The torque, shape (1,).

    Raises:
        ValueError: If the observation has not three entries.

    Source:
        Bad behaviour for mixtures as in Liu et al. (ICLR 2025), experiments; the law is our own.
    """
    _, _, speed = obs
    return MAX_TORQUE * jnp.sign(speed)[None]


def pendulum_hang(key: PRNGKeyArray, obs: Float[Array, "3"]) -> Float[Array, "1"]:
    """Brake the pendulum until it hangs still; mean return about -1874.

    Args:
        key: Not used, a scalar.
        obs: Cosine and sine of the angle from upright, and the speed, shape (3,).

    Returns:
        The torque, shape (1,).

    Raises:
        ValueError: If the observation has not three entries.

    Source:
        Bad behaviour for mixtures as in Liu et al. (ICLR 2025), experiments; the law is our own.
    """
    _, _, speed = obs
    return jnp.clip(-2 * speed, -MAX_TORQUE, MAX_TORQUE)[None]


def cart_pole_expert(key: PRNGKeyArray, obs: Float[Array, "4"]) -> Int[Array, ""]:
    """Push the cart under its pole; every episode reaches the limit of 500 steps.

    Args:
        key: Not used, a scalar.
        obs: Position and speed of the cart, angle and angular velocity of the pole, shape (4,).

    Returns:
        0 for a push to the left, 1 to the right.

    Raises:
        TypeError: If the observation has not four entries.

    Source:
        A linear law of our own; the task is Gymnasium's, not one of Liu et al. (ICLR 2025).
    """
    return (obs @ jnp.array([0.1, 0.2, 2.0, 0.6]) > 0).astype(int)


@dataclass(frozen=True)
class TowardsGoal:
    """Go straight to a place at full speed, with some noise.

    Attributes:
        goal: The place.
        noise: Standard deviation of the noise on each entry of the action.
    """

    goal: tuple[float, float]
    noise: float = 0.1

    def __call__(self, key: PRNGKeyArray, obs: Float[Array, "2"]) -> Float[Array, "2"]:
        """Choose a velocity.

        Args:
            key: Key of the noise, a scalar.
            obs: The position, shape (2,).

        Returns:
            The velocity, shape (2,).
        """
        way = jnp.array(self.goal) - obs
        unit = way / jnp.maximum(jnp.linalg.norm(way), 1e-9)
        return jnp.clip(unit + self.noise * jax.random.normal(key, (2,)), -1.0, 1.0)


@dataclass(frozen=True)
class UniformActions:
    """Draw each entry of the action evenly between its bounds.

    Attributes:
        low: Lower bounds.
        high: Upper bounds.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __call__(self, key: PRNGKeyArray, obs: Float[Array, " d"]) -> Float[Array, " a"]:
        """Draw an action.

        Args:
            key: Key of the draw, a scalar.
            obs: Not used, shape (d,).

        Returns:
            The action, shape (a,).
        """
        return jax.random.uniform(key, (len(self.low),), minval=jnp.array(self.low), maxval=jnp.array(self.high))


@dataclass(frozen=True)
class UniformChoice:
    """Draw one of the discrete actions, each as likely.

    Attributes:
        n: How many there are.
    """

    n: int

    def __call__(self, key: PRNGKeyArray, obs: Float[Array, " d"]) -> Int[Array, ""]:
        """Draw an action.

        Args:
            key: Key of the draw, a scalar.
            obs: Not used, shape (d,).

        Returns:
            The action.
        """
        return jax.random.randint(key, (), 0, self.n, int)


@dataclass(frozen=True)
class Noisy:
    """Follow one behaviour, and at each step with some probability another.

    Attributes:
        usual: What is followed.
        epsilon: Probability of the other at each step, in [0, 1].
        other: The other.
    """

    usual: Controller
    epsilon: float
    other: Controller

    def __call__(self, key: PRNGKeyArray, obs: Float[Array, " d"]) -> Array:
        """Choose an action.

        Args:
            key: Key of the choice between both, and of theirs; a scalar.
            obs: The observation, shape (d,).

        Returns:
            The action.
        """
        which, usual, other = jax.random.split(key, 3)
        astray = jax.random.uniform(which) < self.epsilon
        return jnp.where(astray, self.other(other, obs), self.usual(usual, obs))


def controllers_of(env: Any) -> dict[str, Controller]:
    """Return the behaviours that an environment has, by level.

    Args:
        env: An environment as ``make_env`` returns it; Gymnasium's ``Pendulum-v1`` and ``CartPole-v1`` have those of
            their twins in jax.

    Returns:
        ``expert`` and what else there is; ``random`` for every environment whose actions have bounds. An environment
        with both also has the levels ``eps0.3`` and the like, see ``find_controller``.

    Source:
        Mixtures as in Liu et al. (ICLR 2025), experiments; the laws are our own.
    """
    found: dict[str, Controller] = {}
    name = env_name(env)
    if isinstance(env, PendulumJax) or name == "Pendulum-v1":
        found = {"expert": pendulum_expert, "spin": pendulum_spin, "hang": pendulum_hang}
    elif isinstance(env, CartPoleJax) or name == "CartPole-v1":
        found = {"expert": cart_pole_expert}
    elif isinstance(env, TwoGoals):
        to_a, to_b = TowardsGoal(env.goal_a), TowardsGoal(env.goal_b)
        found = {"expert": to_a, "to-a": to_a, "to-b": to_b}
    space = env.act_space
    if isinstance(space, Discrete):
        found["random"] = UniformChoice(int(space.n))
    elif isinstance(space, Box) and np.isfinite([space.low, space.high]).all():
        found["random"] = UniformActions(tuple(space.low.tolist()), tuple(space.high.tolist()))
    return found


def find_controller(env: Any, level: str, own: Mapping[str, Controller] | None = None) -> Controller:
    """Find the behaviour that a level names.

    Args:
        env: An environment as ``make_env`` returns it.
        level: A name from ``controllers_of`` or ``own``, or ``eps0.3``: the expert, but a random action at each step
            with probability 0.3.
        own: Behaviours of the caller's by name; they come first.

    Returns:
        The behaviour.

    Raises:
        ValueError: If the environment has no such level; the message names those it has.

    Source:
        Mixtures as in Liu et al. (ICLR 2025), experiments.
    """
    known = {**controllers_of(env), **(own or {})}
    if level in known:
        return known[level]
    names = list(known)
    if {"expert", "random"} <= known.keys():
        if (match := re.fullmatch(r"eps(\d*\.?\d+)", level)) and float(match[1]) <= 1:
            return Noisy(known["expert"], float(match[1]), known["random"])
        names.append("eps0.3 and the like, between 0 and 1")
    raise ValueError(f"{env_name(env)} has no level {level!r}; it has {', '.join(names) or 'none'}")
