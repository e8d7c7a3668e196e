"""Which behaviours a mixture is made of, how many episodes of each, and how much they are believed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Level", "checked_levels", "parse_levels"]


@dataclass(frozen=True)
class Level:
    """One of the behaviours of a mixture.

    Attributes:
        name: Its name.
        episodes: How many episodes of it are recorded.
        confidence: Confidence of all its rows, in [0, 1]; None where it is to be derived.
    """

    name: str
    episodes: int
    confidence: float | None = None


def parse_levels(text: str) -> list[Level]:
    """Read levels such as ``expert:5,spin:50`` or ``expert:5:1.0,spin:50:0.1``.

    Args:
        text: Names, numbers of episodes and, where wanted, confidences.

    Returns:
        The levels in their order.

    Raises:
        ValueError: If a part has another form; the message says which.

    Source:
        A notation of our own for the mixtures of Liu et al. (ICLR 2025).
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([^:\s]+)\s*:\s*([^:\s]+)\s*(?::\s*([^:\s]+)\s*)?", part)
        if not match:
            raise ValueError(
                f"levels must read like expert:5,spin:50 or expert:5:1.0,spin:50:0.1, found {part.strip()!r}"
            )
        name, count, confidence = match.groups()
        if not re.fullmatch(r"[+-]?\d+", count):
            raise ValueError(f"level {name}: expected a whole number of episodes, found {count!r}")
        try:
            found.append(Level(name, int(count), None if confidence is None else float(confidence)))
        except ValueError as error:
            raise ValueError(f"level {name}: expected a confidence in [0, 1], found {confidence!r}") from error
    return found


def checked_levels(
    levels: Mapping[str, int] | Sequence[Level] | str, confidence: Mapping[str, float] | None = None
) -> list[Level]:
    """Bring levels to one form and check them.

    Args:
        levels: The levels: text for ``parse_levels``, numbers of episodes by name, or levels.
        confidence: Confidence of each level, where ``levels`` has none.

    Returns:
        The levels in their order; either all have a confidence or none has.

    Raises:
        ValueError: If a level is given twice or without episodes, or confidences are outside [0, 1] or given for some
            levels only.

    Source:
        A notation of our own for the mixtures of Liu et al. (ICLR 2025).
    """
    if isinstance(levels, str):
        found = parse_levels(levels)
    elif isinstance(levels, Mapping):
        found = [Level(name, count) for name, count in levels.items()]
    else:
        found = list(levels)
    names = [level.name for level in found]
    if not found:
        raise ValueError("levels is empty, expected for instance expert:5,spin:50")
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"level {min(twice)} is given twice")
    if confidence is not None:
        if any(level.confidence is not None for level in found):
            raise ValueError("confidences are given twice, by levels and by confidence")
        if unknown := [name for name in confidence if name not in names]:
            raise ValueError(f"confidence has {unknown[0]!r}, which is not among the levels {', '.join(names)}")
        found = [Level(level.name, level.episodes, confidence.get(level.name)) for level in found]
    without = [level.name for level in found if level.confidence is None]
    if 0 < len(without) < len(found):
        raise ValueError(f"level {without[0]} has no confidence, but others have; give one for all or for none")
    for level in found:
        if level.episodes < 1:
            raise ValueError(f"level {level.name}: expected at least 1 episode, found {level.episodes}")
        if level.confidence is not None and not 0 <= level.confidence <= 1:
            raise ValueError(f"level {level.name}: expected a confidence in [0, 1], found {level.confidence}")
    return found
