"""Record whole episodes of given behaviours, and make demonstrations of mixed quality of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from icl25_pn_gail.controllers import Controller, find_controller
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import GymnasiumAdapter, GymnasiumSource, JaxEnv, env_name, make_env
from icl25_pn_gail.levels import Level, checked_levels

__all__ = ["Recording", "as_demonstrations", "make_demonstrations", "record", "record_gymnasium"]

MOST_ENVS = 8


class Recording(NamedTuple):
    """The steps of whole episodes, one after the other.

    Attributes:
        obs: Observations, (N, d).
        acts: Actions as the environment took them, (N, a), or whole numbers (N,) where they are discrete.
        reward: Rewards, (N,).
        next_obs: Observations after the steps, (N, d).
        terminated: Whether the episode ended for good with the step, (N,).
        episode: Number of the episode, from 0, (N,).
    """

    obs: Float[np.ndarray, "N d"]
    acts: Shaped[np.ndarray, "N *a"]
    reward: Float[np.ndarray, " N"]
    next_obs: Float[np.ndarray, "N d"]
    terminated: Bool[np.ndarray, " N"]
    episode: Int[np.ndarray, " N"]

    def returns(self) -> Float[np.ndarray, " episodes"]:
        """Sum up the rewards of each episode.

        Returns:
            The sums, one for each episode.
        """
        return np.bincount(self.episode, weights=self.reward)


def record(env: JaxEnv | GymnasiumSource | str, controller: Controller, episodes: int, seed: int = 0) -> Recording:
    """Record whole episodes of a behaviour.

    Args:
        env: An environment as ``make_env`` takes it. Those in jax run all episodes at once, in one compiled function.
        controller: The behaviour, a function in jax of a key and an observation (d,) to an action. It should be
            hashable, as functions are.
        episodes: How many, at least 1.
        seed: Seed of the first states and of the behaviour.

    Returns:
        The steps, by episode and in order.

    Raises:
        TypeError: If ``env`` is no environment.
        ValueError: If ``episodes`` is less than 1, or the environment is not to be had.

    Source:
        Liu et al. (ICLR 2025), experiments: demonstrations are whole episodes of given policies.
    """
    found = make_env(env)
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    if isinstance(found, GymnasiumSource):
        choose = jax.jit(jax.vmap(controller))
        key, number = jax.random.key(seed), itertools.count()

        def act(obs: np.ndarray) -> np.ndarray:
            return np.asarray(choose(jax.random.split(jax.random.fold_in(key, next(number)), len(obs)), obs))

        return record_gymnasium(found, act, episodes, seed)
    rows = _rolled_out(found, controller, episodes, jax.random.key(seed))
    obs, acts, reward, next_obs, terminated, alive = map(np.asarray, rows)
    episode = np.broadcast_to(np.arange(episodes)[:, None], alive.shape)
    return Recording(*(part[alive] for part in (obs, acts, reward, next_obs, terminated, episode)))


def record_gymnasium(
    source: GymnasiumSource, act: Callable[[np.ndarray], np.ndarray], episodes: int, seed: int = 0
) -> Recording:
    """Record whole episodes of a policy in environments of Gymnasium.

    Args:
        source: Where the environments come from.
        act: From observations (E, d) to actions (E, a), or whole numbers (E,).
        episodes: How many, at least 1; each of up to eight environments does its share of them, however long they are.
        seed: Seed of the environments.

    Returns:
        The steps, by episode and in order.

    Raises:
        ValueError: If ``episodes`` is less than 1.

    Source:
        Liu et al. (ICLR 2025), experiments: demonstrations are whole episodes of given policies.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    done: list[list[tuple]] = [[] for _ in range(episodes)]
    space = source.act_space
    n_envs = None if source.is_example else min(episodes, MOST_ENVS)
    with GymnasiumAdapter.make(source, n_envs) as envs:
        # Environment i records the episodes i, i + E, ...
        current = np.arange(envs.num_envs)
        obs = envs.reset(seed)
        while (current < episodes).any():
            actions = np.asarray(act(obs))
            if isinstance(space, Box):
                actions = np.clip(actions, space.low, space.high)
            after = envs.step(actions)
            for i in np.flatnonzero(current < episodes):
                row = obs[i], actions[i], after.reward[i], after.final_obs[i], after.terminated[i]
                done[current[i]].append(row)
            current = current + envs.num_envs * (after.terminated | after.truncated)
            obs = after.obs
    columns = [np.stack(column) for column in zip(*(row for rows in done for row in rows), strict=True)]
    return Recording(*columns, np.repeat(np.arange(episodes), [len(rows) for rows in done]))


def make_demonstrations(
    env: Any,
    levels: Mapping[str, int] | Sequence[Level] | str,
    *,
    confidence: Mapping[str, float] | None = None,
    controllers: Mapping[str, Controller] | None = None,
    seed: int = 0,
) -> Demonstrations:
    """Make demonstrations of mixed quality from behaviours written by hand, without learning.

    Args:
        env: An environment as ``make_env`` takes it.
        levels: How many episodes of which behaviour: ``"expert:5,spin:50"``, with confidences
            ``"expert:5:1.0,spin:50:0.1"``, or ``{"expert": 5, "spin": 50}``. Names are those of
            ``controllers.controllers_of``, or ``eps0.3`` for an expert that acts at random three times in ten.
        confidence: Confidence of the rows of each level, in [0, 1]. None: that of ``levels``, or where it has none,
            the level's mean return between the worst (0) and the best (1) of the levels.
        controllers: Behaviours of your own by name, functions in jax of a key and an observation to an action.
        seed: Seed of everything that is drawn.

    Returns:
        The rows, all of them rated, by level, episode and step. ``meta`` holds the level of each episode
        (``"levels"``, which the numbers in ``episode`` count), the mean return of each level, ``env`` and ``seed``.

    Raises:
        TypeError: If ``env`` is no environment.
        ValueError: If a level is unknown, given twice or without episodes, or confidences are outside [0, 1] or given
            for some levels only.

    Source:
        Liu et al. (ICLR 2025), experiments: mixtures of policies of different quality.

    Example:
        >>> demos = make_demonstrations("TwoGoals", "expert:1:1.0,to-b:2:0.1")
        >>> demos.n_rows, demos.meta["levels"]
        (90, ['expert', 'to-b', 'to-b'])
    """
    found = make_env(env)
    asked = checked_levels(levels, confidence)
    behaviours = [find_controller(found, level.name, controllers) for level in asked]
    seeds = np.random.SeedSequence(seed).generate_state(len(asked)) >> 1
    recordings = [
        record(found, behaviour, level.episodes, int(drawn))
        for level, behaviour, drawn in zip(asked, behaviours, seeds, strict=True)
    ]
    return as_demonstrations(
        asked, recordings, found, {"env": env if isinstance(env, str) else env_name(found), "seed": seed}
    )


def as_demonstrations(
    levels: Sequence[Level], recordings: Sequence[Recording], env: Any, meta: Mapping[str, Any] | None = None
) -> Demonstrations:
    """Put recordings of several levels together.

    Args:
        levels: The levels; without confidences, these are the mean returns between the worst (0) and the best (1).
        recordings: A recording of each.
        env: The environment.
        meta: What else is to be noted.

    Returns:
        The demonstrations, as ``make_demonstrations`` says.

    Source:
        Liu et al. (ICLR 2025), experiments: mixtures of policies of different quality.
    """
    means = np.array([recording.returns().mean() for recording in recordings])
    given = [level.confidence for level in levels]
    span = np.ptp(means)
    derived = (means - means.min()) / span if span > 0 else np.ones_like(means)
    confidence = [own if own is not None else value for own, value in zip(given, derived, strict=True)]
    counts = [level.episodes for level in levels]
    first = np.cumsum([0, *counts[:-1]])
    parts = [
        recording._replace(episode=recording.episode + start)
        for recording, start in zip(recordings, first, strict=True)
    ]
    rows = Recording(*map(np.concatenate, zip(*parts, strict=True)))
    noted = {
        **(meta or {}),
        "levels": [level.name for level in levels for _ in range(level.episodes)],
        "level_returns": {level.name: float(mean) for level, mean in zip(levels, means, strict=True)},
        "level_confidence": {level.name: float(r) for level, r in zip(levels, confidence, strict=True)},
    }
    if isinstance(env.act_space, Discrete):
        noted["n_actions"] = int(env.act_space.n)
    return Demonstrations(
        obs=rows.obs,
        acts=rows.acts,
        confidence=np.repeat(confidence, [len(part.reward) for part in parts]),
        episode=rows.episode,
        next_obs=rows.next_obs,
        reward=rows.reward,
        meta=noted,
    )


@partial(jax.jit, static_argnums=(0, 1, 2))
def _rolled_out(env: JaxEnv, controller: Controller, episodes: int, key: PRNGKeyArray) -> tuple[Array, ...]:
    """Episodes up to their limit, and which of their steps were before their end."""
    space = env.act_space

    def episode(key: PRNGKeyArray) -> tuple[Array, ...]:
        reset_key, run_key = jax.random.split(key)
        obs, state = env.reset(reset_key)

        def step(carry: tuple, key: PRNGKeyArray) -> tuple[tuple, tuple[Array, ...]]:
            obs, state, alive = carry
            act_key, step_key = jax.random.split(key)
            action = controller(act_key, obs)
            if isinstance(space, Box):
                action = jnp.clip(action, space.low, space.high)
            next_obs, state, reward, terminated, truncated = env.step(step_key, state, action)
            return (next_obs, state, alive & ~(terminated | truncated)), (
                obs,
                action,
                reward,
                next_obs,
                terminated,
                alive,
            )

        start = (obs, state, jnp.ones((), bool))
        return jax.lax.scan(step, start, jax.random.split(run_key, env.max_episode_steps))[1]

    return jax.vmap(episode)(jax.random.split(key, episodes))
