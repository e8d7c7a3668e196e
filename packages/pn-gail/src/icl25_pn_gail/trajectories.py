"""Recordings that other libraries hold in memory: trajectories of imitation, replay buffers of Stable-Baselines3."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["from_replay_buffer", "from_trajectories"]


def from_trajectories(trajectories: Iterable[Any]) -> Demonstrations:
    """Take trajectories of the library imitation; see ``Demonstrations.from_imitation``.

    Args:
        trajectories: Objects with ``obs`` (T + 1, d) and ``acts`` (T, a) or (T,), and perhaps ``rews`` (T,).

    Returns:
        The demonstrations, an episode for each trajectory.

    Raises:
        ValueError: If there is none, or shapes do not fit; the message says which.
        TypeError: If an object is no trajectory.

    Source:
        The data type ``Trajectory`` of the library imitation.
    """
    if isinstance(trajectories, str | os.PathLike):
        raise TypeError(
            "expected trajectories, found a path; load them in your own Python (imitation.data.serialize.load) and "
            "pass the objects"
        )
    parts: dict[str, list[np.ndarray]] = {"obs": [], "next_obs": [], "acts": [], "reward": [], "episode": []}
    rewarded = []
    for number, trajectory in enumerate(trajectories):
        if not (hasattr(trajectory, "obs") and hasattr(trajectory, "acts")):
            raise TypeError(f"trajectory {number} has no obs and acts: it is a {type(trajectory).__name__}")
        obs, acts = np.asarray(trajectory.obs), np.asarray(trajectory.acts)
        if obs.dtype == object:
            raise ValueError(f"trajectory {number}: obs must be an array of shape (T + 1, d); flatten dictionaries")
        if len(obs) != len(acts) + 1:
            raise ValueError(
                f"trajectory {number} has {len(obs)} observations for {len(acts)} actions; expected one more, the last"
            )
        rewards = getattr(trajectory, "rews", None)
        rewarded.append(rewards is not None)
        rewards = np.full(len(acts), np.nan) if rewards is None else np.asarray(rewards, np.float64)
        if len(rewards) != len(acts):
            raise ValueError(f"trajectory {number} has {len(rewards)} rewards for {len(acts)} actions")
        if not len(acts):
            continue
        for name, part in [("obs", obs[:-1]), ("next_obs", obs[1:]), ("acts", acts), ("reward", rewards)]:
            if parts[name] and parts[name][0].shape[1:] != part.shape[1:]:
                raise ValueError(
                    f"trajectory {number}: {name} has rows of shape {part.shape[1:]}, those before had "
                    f"{parts[name][0].shape[1:]}"
                )
            parts[name].append(part)
        parts["episode"].append(np.full(len(acts), number))
    if not parts["obs"]:
        raise ValueError("there are no trajectories with a step in them")
    arrays: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
    if not any(rewarded):
        arrays["reward"] = None
    return Demonstrations(**arrays)


def from_replay_buffer(replay_buffer: Any, *, scaled_actions: bool = True) -> Demonstrations:
    """Take the steps in a replay buffer of Stable-Baselines3; see ``Demonstrations.from_sb3``.

    Args:
        replay_buffer: The ``ReplayBuffer`` object.
        scaled_actions: Whether actions of a Box are scaled to [-1, 1], as learners store them.

    Returns:
        The demonstrations: environment by environment, in order of time.

    Raises:
        ValueError: If the buffer is empty, holds other than vectors, or actions outside [-1, 1] to scale back.
        TypeError: If it is no replay buffer.

    Source:
        ``ReplayBuffer`` of Stable-Baselines3, whose oldest step is at ``pos`` once the buffer is full.
    """
    if isinstance(replay_buffer, str | os.PathLike):
        raise TypeError(
            f"{os.fspath(replay_buffer)}: replay buffers on disk are pickles, which can run any code and are never "
            "opened here; load it in your own Python, model.load_replay_buffer(path), and pass model.replay_buffer"
        )
    needed = ("observations", "actions", "rewards", "dones", "pos", "full")
    lacking = [name for name in needed if not hasattr(replay_buffer, name)]
    if lacking:
        raise TypeError(f"expected a ReplayBuffer, found {type(replay_buffer).__name__} without {', '.join(lacking)}")
    if not isinstance(replay_buffer.observations, np.ndarray) or replay_buffer.observations.ndim != 3:
        raise ValueError("the replay buffer must hold observations (size, n_envs, d); flatten images and Dict")
    size = len(replay_buffer.observations)
    order = np.arange(replay_buffer.pos)
    if replay_buffer.full:
        order = (np.arange(size) + replay_buffer.pos) % size
    # The variant that saves memory keeps no next observations; it has lost the step that the next write replaces.
    shared = getattr(replay_buffer, "next_observations", None) is None
    if shared and replay_buffer.full:
        order = order[1:]
    if not len(order):
        raise ValueError("the replay buffer is empty")

    def in_time(array: np.ndarray) -> np.ndarray:
        return np.swapaxes(array[order], 0, 1).reshape(-1, *array.shape[2:])

    space = getattr(replay_buffer, "action_space", None)
    dones = replay_buffer.dones[order] > 0
    before = np.cumsum(dones, axis=0) - dones  # episodes that ended before each step
    first = np.concatenate([[0], np.cumsum(before[-1] + 1)[:-1]])
    return Demonstrations(
        in_time(replay_buffer.observations),
        _actions(in_time(replay_buffer.actions), space, scaled_actions),
        episode=(before + first).T.reshape(-1),
        next_obs=None if shared else in_time(replay_buffer.next_observations),
        reward=in_time(replay_buffer.rewards),
        meta={"n_actions": int(space.n)} if isinstance(space, Discrete) else None,
    )


def _actions(acts: np.ndarray, space: Any, scaled: bool) -> np.ndarray:
    if not (scaled and isinstance(space, Box)):
        return acts
    largest = float(np.abs(acts).max())
    if largest > 1 + 1e-6:
        raise ValueError(
            f"the replay buffer holds actions up to {largest:g}, which are not scaled to [-1, 1]; "
            "pass scaled_actions=False"
        )
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"actions without bounds cannot be scaled back, found {space}; pass scaled_actions=False")
    return (low + 0.5 * (acts.astype(np.float64) + 1.0) * (high.astype(np.float64) - low)).astype(acts.dtype)
