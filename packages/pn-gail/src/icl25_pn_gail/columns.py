"""Which arrays of a file, or columns of a table, are observations, actions, confidences, episodes, rewards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["ENDS", "STARTS", "Columns", "find_columns"]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "obs": ("obs", "observation", "observations", "observation.state", "state", "states", "o", "s"),
    "acts": ("act", "acts", "action", "actions", "a"),
    "next_obs": ("next_obs", "next_observation", "next_observations", "next_state", "next_states"),
    "confidence": ("confidence", "confidences", "conf", "rating", "ratings"),
    "episode": ("episode", "episodes", "episode_id", "episode_ids", "episode_index", "traj", "traj_id", "trajectory"),
    "reward": ("reward", "rewards", "rews", "next.reward"),
}
ENDS = (
    *("done", "dones", "next.done", "is_last", "terminal", "terminals", "terminated", "termination", "terminations"),
    *("truncated", "truncation", "truncations", "timeout", "timeouts"),
)
"""Names of flags of the last step of an episode."""
STARTS = ("episode_start", "episode_starts", "is_first")
"""Names of flags of the first step of an episode."""
_OPTIONS = {"obs": "obs_cols", "acts": "act_cols", "confidence": "confidence_col", "episode": "episode_col"}
_NUMBERED = re.compile(r"(?P<stem>.*?[^\W_])[_.\- ]?\[?(?P<number>\d+)\]?", re.DOTALL)


class Columns(NamedTuple):
    """Names in a file, by what they hold.

    Attributes:
        obs: Of the observations, in their order.
        acts: Of the actions, in their order.
        next_obs: Of the observations after the steps; may be empty.
        confidence: Of the confidences, or None.
        episode: Of the labels of episodes, or None.
        reward: Of the rewards, or None.
        ends: Of flags that are set at the last step of an episode.
        starts: Of a flag that is set at the first step of an episode, or None.
    """

    obs: tuple[str, ...]
    acts: tuple[str, ...]
    next_obs: tuple[str, ...]
    confidence: str | None
    episode: str | None
    reward: str | None
    ends: tuple[str, ...]
    starts: str | None

    def names(self) -> list[str]:
        """Return all names, each once."""
        single = (self.confidence, self.episode, self.reward, self.starts)
        several = (*self.obs, *self.acts, *self.next_obs, *self.ends)
        return list(dict.fromkeys([*several, *(name for name in single if name)]))


def find_columns(
    available: Sequence[str],
    obs_cols: str | Sequence[str] | None = None,
    act_cols: str | Sequence[str] | None = None,
    confidence_col: str | None = None,
    episode_col: str | None = None,
) -> Columns:
    """Find out what a file holds from the names in it.

    Args:
        available: The names.
        obs_cols: Those of the observations: a list, one name, names with commas between them, or what numbered names
            begin with ("obs" for obs_0, obs_1, ...). Default: any usual name, which must be the only one.
        act_cols: Those of the actions, likewise.
        confidence_col: That of the confidences. Default: a usual name, if there is one.
        episode_col: That of the labels of episodes. Default: a usual name, else flags of first or last steps.

    Returns:
        The names.

    Raises:
        ValueError: If a name is not there, or none or several could be meant; the message lists what there is.

    Source:
        This package's.
    """
    obs = _find("obs", available, obs_cols, required=True)
    acts = _find("acts", available, act_cols, required=True)
    doubled = set(obs) & set(acts)
    if doubled:
        raise ValueError(f"{sorted(doubled)[0]!r} is given both as an observation and as an action")
    flags = [name for name in available if name.lower() in ENDS]
    starts = [name for name in available if name.lower() in STARTS]
    return Columns(
        obs,
        acts,
        _find("next_obs", available, None),
        _one("confidence", available, confidence_col),
        _one("episode", available, episode_col),
        _one("reward", available, None),
        tuple(flags),
        starts[0] if starts else None,
    )


def _one(role: str, available: Sequence[str], given: str | None) -> str | None:
    found = _find(role, available, None if given is None else [given], numbered=False)
    return found[0] if found else None


def _find(
    role: str,
    available: Sequence[str],
    given: str | Sequence[str] | None,
    *,
    required: bool = False,
    numbered: bool = True,
) -> tuple[str, ...]:
    if given is not None:
        return _named(role, available, given)
    candidates: list[tuple[str, ...]] = [(name,) for name in available if name.lower() in _NAMES[role]]
    if numbered:
        candidates += [names for stem, names in _families(role, available).items() if stem.lower() in _NAMES[role]]
    hint = f"; say which with {_OPTIONS[role]}" if role in _OPTIONS else ""
    if len(candidates) > 1:
        several = " or ".join(repr(names[0]) for names in candidates)
        raise ValueError(f"it is not clear which holds {role}: {several}{hint or '; rename one of them'}")
    if candidates:
        return candidates[0]
    if required:
        raise ValueError(f"nothing is named as {role} usually are ({_NAMES[role][0]}, ...){hint}; {_listed(available)}")
    return ()


def _named(role: str, available: Sequence[str], given: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        if given in available:
            return (given,)
        families = _families(role, available)
        if given in families:
            return families[given]
        given = [name.strip() for name in given.split(",")]
    names = tuple(given)
    for name in names:
        if name not in available:
            raise ValueError(f"there is no {name!r} for {role}; {_listed(available)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{_OPTIONS[role]} must name each column once and at least one, found {list(names)}")
    return names


def _families(role: str, available: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Group names such as obs_0, obs_1 by what they begin with, in the order of their numbers."""
    groups: dict[str, dict[int, str]] = {}
    for name in available:
        match = _NUMBERED.fullmatch(name)
        if match:
            group = groups.setdefault(match["stem"], {})
            number = int(match["number"])
            if number in group and match["stem"].lower() in _NAMES[role]:
                raise ValueError(f"it is not clear which is number {number} of {role}: {group[number]!r} or {name!r}")
            group[number] = name
    families = {}
    for stem, group in groups.items():
        numbers = sorted(group)
        whole = numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] in (0, 1)
        if not whole and stem.lower() in _NAMES[role]:
            expected = range(min(1, numbers[0]), numbers[-1] + 1)
            lost = next(number for number in expected if number not in group)
            raise ValueError(f"{role} {group[numbers[0]]!r} to {group[numbers[-1]]!r} lack number {lost}")
        if whole:
            families[stem] = tuple(group[number] for number in numbers)
    return families


def _listed(available: Sequence[str]) -> str:
    names = list(available)
    return "there are " + (", ".join(names[:20]) + (", ..." if len(names) > 20 else "") or "no columns")
