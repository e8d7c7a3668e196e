"""Minari datasets that are on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["read_minari"]

_INSTALL = 'pip install "icl25-pn-gail[minari]"'


def read_minari(dataset_or_id: Any) -> Demonstrations:
    """Take the episodes of a Minari dataset; see ``Demonstrations.from_minari``.

    Args:
        dataset_or_id: A ``MinariDataset``, its folder, or the id of a dataset that was downloaded before.

    Returns:
        The demonstrations, without labels. Observations in a Dict or Tuple stand side by side, in the order in which
        Gymnasium's ``FlattenObservation`` puts them.

    Raises:
        ValueError: If it is no such dataset, or its spaces are no vectors.
        FileNotFoundError: If it is not on this machine; nothing is ever downloaded.
        ImportError: If minari, or the library that its files need, is not installed.

    Source:
        Minari, the format of offline data of the Farama Foundation.
    """
    named = isinstance(dataset_or_id, str | os.PathLike)
    dataset = _opened(dataset_or_id) if named else dataset_or_id
    if not hasattr(dataset, "iterate_episodes"):
        raise TypeError(f"expected a MinariDataset, its folder or its id, found {type(dataset).__name__}")
    spec = getattr(dataset, "spec", None)
    name = str(getattr(spec, "dataset_id", "the dataset"))
    discrete = _checked_spaces(name, dataset.observation_space, dataset.action_space)
    parts: dict[str, list[np.ndarray]] = {"obs": [], "next_obs": [], "acts": [], "reward": [], "episode": []}
    for episode in dataset.iterate_episodes():
        obs = _flat(dataset.observation_space, episode.observations)
        steps = len(episode.rewards)
        if len(obs) != steps + 1 or len(episode.actions) != steps:
            raise ValueError(
                f"{name}: episode {episode.id} has {len(obs)} observations and {len(episode.actions)} actions for "
                f"{steps} rewards; expected one observation more than actions"
            )
        if not steps:
            continue
        parts["obs"].append(obs[:-1])
        parts["next_obs"].append(obs[1:])
        parts["acts"].append(np.asarray(episode.actions).reshape(steps, *(() if discrete else (-1,))))
        parts["reward"].append(np.asarray(episode.rewards, np.float64))
        parts["episode"].append(np.full(steps, int(episode.id)))
    if not parts["obs"]:
        raise ValueError(f"{name} has no steps")
    meta: dict[str, Any] = {"dataset_id": name}
    env_spec = getattr(spec, "env_spec", None)
    if env_spec is not None:
        meta["env_id"] = env_spec.id
    if discrete:
        meta["n_actions"] = int(dataset.action_space.n)
    try:
        return Demonstrations(**{key: np.concatenate(value) for key, value in parts.items()}, meta=meta)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _opened(name: str | os.PathLike[str]) -> Any:
    try:
        import minari
        from minari import MinariDataset
    except ImportError as error:
        raise ImportError(f"{os.fspath(name)}: Minari datasets need minari: {_INSTALL}") from error
    path = Path(name)
    folder = next((one for one in (path / "data", path) if (one / "metadata.json").exists()), None)
    try:
        if folder is not None:
            return MinariDataset(folder)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder, but no Minari dataset")
        return minari.load_dataset(os.fspath(name), download=False)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no Minari dataset {os.fspath(name)!r} on this machine; fetch it with: minari download "
            f"{os.fspath(name)}"
        ) from error
    except ImportError as error:  # of the library for the files
        raise ImportError(f"{os.fspath(name)}: {error}") from error
    except IsADirectoryError:
        raise
    except Exception as error:  # minari raises what the libraries below it do
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{os.fspath(name)}: not a readable Minari dataset ({reason})") from error


def _checked_spaces(name: str, obs_space: Any, act_space: Any) -> bool:
    """Whether actions are discrete; an error where spaces are no vectors."""
    if not _is_flat(obs_space):
        raise ValueError(f"{name}: observations must be Box spaces, or a Dict or Tuple of them, found {obs_space}")
    if isinstance(act_space, Discrete):
        if act_space.start != 0:
            raise ValueError(f"{name}: discrete actions must count from 0, found {act_space}")
        return True
    if not (isinstance(act_space, Box) and len(act_space.shape) == 1):
        raise ValueError(f"{name}: actions must be Discrete or a one-dimensional Box, found {act_space}")
    return False


def _is_flat(space: Any) -> bool:
    if isinstance(space, Dict):
        return all(_is_flat(part) for part in space.spaces.values())
    if isinstance(space, Tuple):
        return all(_is_flat(part) for part in space.spaces)
    return isinstance(space, Box)


def _flat(space: Any, observations: Any) -> np.ndarray:
    if isinstance(space, Dict):
        return np.concatenate([_flat(part, observations[key]) for key, part in space.spaces.items()], axis=1)
    if isinstance(space, Tuple):
        return np.concatenate([_flat(*pair) for pair in zip(space.spaces, observations, strict=True)], axis=1)
    observations = np.asarray(observations)
    return observations.reshape(len(observations), -1)
