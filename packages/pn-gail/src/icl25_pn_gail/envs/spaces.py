"""Which observations and actions the methods can deal with."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Tuple

__all__ = ["checked_spaces"]

_FLATTEN = "wrap the environment in gymnasium.wrappers.FlattenObservation"
_TRANSFORM = "wrap the environment in gymnasium.wrappers.TransformAction"


def checked_spaces(obs_space: Any, act_space: Any, name: str) -> tuple[Box, Box | Discrete]:
    """Check that observations are vectors, and actions vectors or choices.

    Args:
        obs_space: Space of observations of one environment.
        act_space: Space of its actions.
        name: Name of the environment, for messages.

    Returns:
        Both spaces.

    Raises:
        ValueError: If either is of another kind; the message says which wrapper helps.

    Source:
        Limits of this package; Liu et al. (ICLR 2025) have continuous actions only.
    """
    if not isinstance(obs_space, Box) or len(obs_space.shape) != 1:
        raise ValueError(f"{name}: observations must be a one-dimensional Box, found {_said(obs_space)}; {_FLATTEN}")
    if not obs_space.shape[0]:
        raise ValueError(f"{name}: observations have no entries")
    if isinstance(act_space, Discrete):
        if act_space.start != 0:
            raise ValueError(
                f"{name}: discrete actions must count from 0, found Discrete with start={act_space.start}; {_TRANSFORM}"
            )
    elif not isinstance(act_space, Box) or len(act_space.shape) != 1 or not np.issubdtype(act_space.dtype, np.floating):
        raise ValueError(
            f"{name}: actions must be a one-dimensional Box of floats or Discrete, found {_said(act_space)}; "
            f"{_TRANSFORM}, which maps such actions to those of the environment"
        )
    elif not act_space.shape[0]:
        raise ValueError(f"{name}: actions have no entries")
    return obs_space, act_space


def _said(space: Any) -> str:
    """Describe a space in few words, however large its bounds."""
    if isinstance(space, Box):
        return f"Box of shape {space.shape} and type {space.dtype}"
    if isinstance(space, Dict):
        return f"Dict of {', '.join(space.spaces)}"
    if isinstance(space, Tuple):
        return f"Tuple of {len(space.spaces)} spaces"
    return str(space)
