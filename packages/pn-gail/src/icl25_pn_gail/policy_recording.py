"""Record episodes of a learned policy, as steps or as pictures."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from icl25_pn_gail.envs import GymnasiumSource, JaxEnv
from icl25_pn_gail.recording import Recording, record_gymnasium

__all__ = ["draw_episode", "record_policy"]


def record_policy(
    env: JaxEnv | GymnasiumSource,
    policy: Any,
    episodes: int,
    seed: int = 0,
    *,
    deterministic: bool = True,
) -> Recording:
    """Record whole episodes of a learned policy.

    Args:
        env: An environment as ``make_env`` returns it.
        policy: What has ``predict(obs, deterministic=, rng=)``, such as an ``ImitationPolicy``.
        episodes: How many, at least 1.
        seed: Seed of the first states and of what is drawn.
        deterministic: Take the most likely action.

    Returns:
        The steps, by episode and in order.

    Raises:
        ValueError: If ``episodes`` is less than 1.

    Source:
        For pictures of what was learned; not part of the paper (Liu et al., 2025).
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, found {episodes}")
    choose = partial(policy.predict, deterministic=deterministic, rng=np.random.default_rng(seed))
    if isinstance(env, GymnasiumSource):
        return record_gymnasium(env, lambda obs: choose(obs)[0], episodes, seed)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    first, later = jax.random.split(jax.random.key(seed))
    obs, state = reset(jax.random.split(first, episodes))
    alive = np.ones(episodes, bool)
    rows = []
    for number in range(env.max_episode_steps):
        actions = choose(np.asarray(obs))[0]
        keys = jax.random.split(jax.random.fold_in(later, number), episodes)
        after, state, reward, terminated, truncated = step(keys, state, actions)
        rows.append((obs, actions, reward, after, terminated, alive))
        alive = alive & ~np.asarray(terminated | truncated)
        obs = after
        if not alive.any():
            break
    *columns, kept = (np.stack([np.asarray(part) for part in column], axis=1) for column in zip(*rows, strict=True))
    episode = np.broadcast_to(np.arange(episodes)[:, None], kept.shape)
    return Recording(*(column[kept] for column in (*columns, episode)))


def draw_episode(
    source: GymnasiumSource, policy: Any, seed: int = 0, *, deterministic: bool = True
) -> tuple[list[np.ndarray], float]:
    """Have an environment of Gymnasium draw an episode of a learned policy.

    Args:
        source: Where the environment comes from; it is made with ``render_mode="rgb_array"``.
        policy: What has ``predict(obs, deterministic=, rng=)``, such as an ``ImitationPolicy``.
        seed: Seed of the episode.
        deterministic: Take the most likely action.

    Returns:
        Pictures, each (height, width, 3) of whole numbers to 255, one before each step and one at the end; and how many
        are shown in a second.

    Raises:
        ValueError: If the environment cannot be drawn; the message says why.

    Source:
        For a look at what was learned; not part of the paper (Liu et al., 2025).
    """
    try:
        env = source.single() if source.is_example else source.single(render_mode="rgb_array")
    except TypeError as error:
        raise ValueError(f"{source.name} cannot be drawn: it must take render_mode='rgb_array' ({error})") from error
    if env.render_mode != "rgb_array":
        raise ValueError(f"{source.name} cannot be drawn: its render_mode is {env.render_mode!r}, not 'rgb_array'")
    rng = np.random.default_rng(seed)
    frames: list[Any] = []
    try:
        obs, over = env.reset(seed=seed % 2**31)[0], False
        frames.append(env.render())
        while not over and len(frames) <= (source.max_episode_steps or 1000):
            action = policy.predict(obs, deterministic=deterministic, rng=rng)[0]
            obs, _, terminated, truncated, _ = env.step(action if np.ndim(action) else int(action))
            over = bool(terminated or truncated)
            frames.append(env.render())
    except Exception as error:  # libraries of graphics raise errors of all kinds where there is no display
        line = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{source.name} cannot be drawn here: {line}") from error
    finally:
        if not source.is_example:
            env.close()
    pictures = [np.asarray(frame) for frame in frames]
    if any(one.ndim != 3 or one.shape[2] != 3 for one in pictures):
        raise ValueError(f"{source.name} cannot be drawn: it gives no picture of shape (height, width, 3)")
    return pictures, float(env.metadata.get("render_fps") or 30)
