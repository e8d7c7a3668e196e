"""Batches of steps: rolled out in one compiled scan where the environment is jax, step by step where it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Array, Float, PRNGKeyArray

from icl25_pn_gail.networks import Policy, mlp

if TYPE_CHECKING:
    from icl25_pn_gail.envs import GymnasiumAdapter, JaxEnv

__all__ = ["ActionMap", "Batch", "Episodes", "Scaler", "collect_gymnasium", "collect_jax", "episode_returns"]


class Scaler(NamedTuple):
    """How observations are normalised for all networks.

    Attributes:
        mean: Subtracted, (d,).
        scale: Divided by, (d,).
    """

    mean: Any
    scale: Any

    def __call__(self, obs: Any) -> Any:
        """Normalise observations (..., d)."""
        return (obs - self.mean) / self.scale


class Batch(NamedTuple):
    """Steps of all environments, time first.

    Attributes:
        obs: Observations, normalised, (T, E, d).
        actions: Actions as the policy drew them, (T, E, a) or (T, E).
        next_obs: Observations after the step and before any reset, normalised, (T, E, d).
        rewards: True rewards of the environment, which no learner sees, (T, E).
        terminated: Whether the episode truly ended with the step, (T, E).
        ended: Whether it ended or was cut, (T, E).
    """

    obs: Any
    actions: Any
    next_obs: Any
    rewards: Any
    terminated: Any
    ended: Any


class Episodes(NamedTuple):
    """The first episode of each environment.

    Attributes:
        returns: Sums of the true rewards, (E,).
        lengths: Numbers of steps, (E,).
    """

    returns: Any
    lengths: Any


class ActionMap(NamedTuple):
    """From what a policy draws to what the environment and the discriminator get.

    Attributes:
        low: Lower bounds of the environment, (a,); -inf where there is none. None for discrete actions.
        high: Upper bounds, (a,).
        centre: Action that 0 stands for, (a,).
        half_range: Action units of 1, (a,).
        clip: Whether the discriminator gets clipped actions; the environment always does.
        n_actions: Number of discrete actions, 0 for continuous ones.
    """

    low: Any = None
    high: Any = None
    centre: Any = 0.0
    half_range: Any = 1.0
    clip: bool = True
    n_actions: int = 0

    @classmethod
    def of(cls, space: Box | Discrete, *, clip: bool = True, normalize: bool = False) -> ActionMap:
        """Return the map of an action space.

        Args:
            space: The space, one-dimensional or discrete.
            clip: Whether the discriminator gets clipped actions.
            normalize: Whether the policy acts in units of half the range around its middle.

        Returns:
            The map.

        Raises:
            ValueError: If ``normalize`` is asked for an unbounded space.
        """
        if isinstance(space, Discrete):
            return cls(n_actions=int(space.n))
        low, high = (np.asarray(bound, np.float32) for bound in (space.low, space.high))
        if not normalize:
            return cls(low, high, clip=clip)
        if not np.isfinite([low, high]).all():
            raise ValueError("normalize_actions needs an action space with finite bounds")
        return cls(low, high, (low + high) / 2, (high - low) / 2, clip=clip)

    def to_env(self, actions: Any, xp: Any = jnp) -> Any:
        """Turn actions of the policy into those of the environment, (..., a) or (...)."""
        if self.n_actions:
            return actions
        return xp.clip(self.centre + self.half_range * actions, self.low, self.high)

    def features(self, actions: Any) -> Any:
        """Turn actions of the policy into inputs of the discriminator, (..., a) or (..., n_actions)."""
        if self.n_actions:
            return jax.nn.one_hot(actions, self.n_actions)
        if not self.clip:
            return actions
        low, high = ((bound - self.centre) / self.half_range for bound in (self.low, self.high))
        return jnp.clip(actions, low, high)

    def from_env(self, actions: Any) -> Any:
        """Turn actions of the environment, such as demonstrated ones, into those of the policy."""
        return actions if self.n_actions else (actions - self.centre) / self.half_range


def collect_jax(
    env: JaxEnv,
    policy: Policy,
    actions: ActionMap,
    scaler: Scaler,
    params: Any,
    key: PRNGKeyArray,
    *,
    n_envs: int,
    n_steps: int,
    deterministic: bool = False,
) -> Batch:
    """Roll a policy out in a pure-jax environment; ended episodes are followed by new ones.

    Args:
        env: The environment.
        policy: The policy.
        actions: What becomes of its actions.
        scaler: Normalisation of observations.
        params: Parameters of the policy.
        key: Key of all draws.
        n_envs: Environments side by side.
        n_steps: Steps of each.
        deterministic: Take the most likely action.

    Returns:
        The steps.
    """
    start_key, run_key = jax.random.split(key)
    obs, state = jax.vmap(env.reset)(jax.random.split(start_key, n_envs))

    def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, Batch]:
        obs, state = carry
        act_key, step_key, reset_key = jax.random.split(key, 3)
        seen = scaler(obs)
        dist = policy(params, seen)
        action = dist.mode() if deterministic else dist.sample(act_key)
        after, after_state, reward, terminated, truncated = jax.vmap(env.step)(
            jax.random.split(step_key, n_envs), state, actions.to_env(action)
        )
        ended = terminated | truncated
        fresh = jax.vmap(env.reset)(jax.random.split(reset_key, n_envs))
        carry = jax.tree.map(
            lambda new, old: jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old), fresh, (after, after_state)
        )
        return carry, Batch(seen, action, scaler(after), reward, terminated, ended)

    return jax.lax.scan(step, (obs, state), jax.random.split(run_key, n_steps))[1]


def collect_gymnasium(
    envs: GymnasiumAdapter,
    policy: Policy,
    actions: ActionMap,
    scaler: Scaler,
    params: Any,
    seed: int,
    *,
    n_steps: int,
    deterministic: bool = False,
    one_episode: bool = False,
) -> Batch:
    """Roll a policy out in the environments of Gymnasium; ended episodes are followed by new ones.

    Args:
        envs: The environments.
        policy: The policy.
        actions: What becomes of its actions.
        scaler: Normalisation of observations, of numpy arrays.
        params: Parameters of the policy, numpy arrays.
        seed: Seed of the environments and of the actions.
        n_steps: Most steps of each environment.
        deterministic: Take the most likely action.
        one_episode: Stop when every environment ended an episode.

    Returns:
        The steps, numpy arrays.
    """
    rng = np.random.default_rng(seed)
    obs = envs.reset(seed)
    rows: list[Batch] = []
    finished = np.zeros(envs.num_envs, bool)
    std = None if policy.discrete else np.exp(params["log_std"])
    for _ in range(n_steps):
        seen = scaler(obs)
        output = mlp(params["layers"], seen, np)
        if deterministic:
            action = output.argmax(axis=-1) if policy.discrete else output
        elif policy.discrete:
            action = (output + rng.gumbel(size=output.shape)).argmax(axis=-1)
        else:
            action = output + std * rng.standard_normal(output.shape, dtype=np.float32)
        after = envs.step(actions.to_env(action, np))
        ended = after.terminated | after.truncated
        rows.append(Batch(seen, action, scaler(after.final_obs), after.reward, after.terminated, ended))
        obs = after.obs
        finished |= ended
        if one_episode and finished.all():
            break
    return Batch(*map(np.stack, zip(*rows, strict=True)))


def episode_returns(batch: Batch) -> Episodes:
    """Sum up the first episode of each environment.

    Args:
        batch: Steps that hold at least that episode.

    Returns:
        Returns and lengths; an episode that did not end counts as far as it goes.
    """
    before_end = jnp.cumsum(batch.ended, axis=0) - batch.ended == 0
    return Episodes(jnp.sum(batch.rewards * before_end, axis=0), jnp.sum(before_end, axis=0))


def mean_return(rewards: Float[Array, "T e"], ended: Array) -> Float[Array, ""]:
    """Return the mean sum of rewards of the episodes that ended within a batch.

    Args:
        rewards: Rewards, time first.
        ended: Where episodes ended.

    Returns:
        The mean; NaN where none ended.
    """

    def add(running: Array, row: tuple) -> tuple:
        reward, end = row
        total = running + reward
        return jnp.where(end, 0, total), jnp.where(end, total, 0)

    totals = jax.lax.scan(add, jnp.zeros_like(rewards[0]), (rewards, ended))[1]
    count = jnp.sum(ended)
    return jnp.where(count > 0, jnp.sum(totals) / jnp.maximum(count, 1), jnp.nan)
