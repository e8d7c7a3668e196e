"""Demonstrations of several sources, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from icl25_pn_gail.demonstrations import Demonstrations

__all__ = ["join"]


def join(parts: Sequence[Demonstrations]) -> Demonstrations:
    """Put demonstrations one after the other; see ``Demonstrations.concatenate``.

    Args:
        parts: The demonstrations, at least one.

    Returns:
        All rows.

    Raises:
        ValueError: If there is no part, or observations or actions differ in kind or number.

    Source:
        This package's.
    """
    if not parts:
        raise ValueError("there is nothing to concatenate")
    first = parts[0]
    for number, part in enumerate(parts):
        if part.discrete != first.discrete:
            kinds = ["discrete" if one.discrete else "continuous" for one in (first, part)]
            raise ValueError(f"part 0 has {kinds[0]} actions, part {number} {kinds[1]} ones")
        widths = [(one.obs_dim, None if one.discrete else one.act_dim) for one in (first, part)]
        if widths[0] != widths[1]:
            raise ValueError(
                f"part 0 has {first.obs_dim} observations and {first.act_dim} actions, "
                f"part {number} {part.obs_dim} and {part.act_dim}"
            )
    meta = {
        name: value
        for name, value in first.meta.items()
        if all(name in part.meta and part.meta[name] == value for part in parts)
    }
    if first.discrete:
        meta["n_actions"] = max(part.n_actions for part in parts)
    if not all(part.consecutive for part in parts):
        meta["consecutive"] = False
    return Demonstrations(
        np.concatenate([part.obs for part in parts]),
        np.concatenate([part.acts for part in parts]),
        np.concatenate([part.confidence for part in parts]),
        _labels(parts),
        _where_known([part.next_obs for part in parts], [part.obs for part in parts]),
        _where_known([part.reward for part in parts], [part.confidence for part in parts]),
        meta,
    )


def _labels(parts: Sequence[Demonstrations]) -> list[object] | np.ndarray | None:
    if len(parts) == 1:
        return parts[0].episode
    names = [name for part in parts for name in part.episode_names]
    if len(set(names)) == len(names):
        return [name for part in parts for name in _names_of_rows(part)]
    return [f"{number}:{name}" for number, part in enumerate(parts) for name in _names_of_rows(part)]


def _names_of_rows(part: Demonstrations) -> list[object]:
    names = part.episode_names
    return [names[code] for code in part.episode_codes]


def _where_known(values: list[np.ndarray | None], like: list[np.ndarray]) -> np.ndarray | None:
    if all(value is None for value in values):
        return None
    return np.concatenate(
        [np.full(rows.shape, np.nan) if value is None else value for value, rows in zip(values, like, strict=True)]
    )
