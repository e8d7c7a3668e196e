"""Checks of demonstrations that need no dynamics: spaces, labels, returns, lengths of episodes, columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.findings import Finding

__all__ = [
    "check_actions",
    "check_columns",
    "check_labels",
    "check_lengths",
    "check_observations",
    "check_returns",
    "compare_spaces",
]

SMALLEST_RANGE = 0.6
FEW_LABELS = 10
HIGH_MEAN = 0.9
HIGH_FLOOR = 0.3
MANY_DUPLICATES = 0.01
ABSURD = 1e6  # times the width of what 90 % of the rows have
_KNOWN_SIZES = (
    ("Ant-v2 and Ant-v3 (or Ant-v4 with contact forces)", 111, 8),
    ("Ant-v4", 27, 8),
    ("Ant-v5", 105, 8),
    ("HalfCheetah", 17, 6),
    ("Walker2d", 17, 6),
    ("Hopper", 11, 3),
    ("Swimmer", 8, 2),
    ("Humanoid-v2 to Humanoid-v4", 376, 17),
    ("Humanoid-v5", 348, 17),
    ("InvertedDoublePendulum-v2 to -v4", 11, 1),
    ("InvertedDoublePendulum-v5", 9, 1),
    ("InvertedPendulum", 4, 1),
    ("Reacher-v2 to Reacher-v4", 11, 2),
    ("Reacher-v5", 10, 2),
    ("Pusher", 23, 7),
    ("Pendulum", 3, 1),
)


def compare_spaces(demos: Demonstrations, env: Any) -> Finding:
    """Compare numbers and kinds of observations and actions.

    Args:
        demos: The demonstrations.
        env: Any object with ``obs_space`` and ``act_space``.

    Returns:
        An error where they differ, with the environments of Gymnasium that have the numbers of the demonstrations.

    Source:
        This package's.
    """
    name = getattr(env, "name", type(env).__name__)
    obs_dim, discrete = env.obs_space.shape[0], isinstance(env.act_space, Discrete)
    sizes = {"obs_dim": demos.obs_dim, "env_obs_dim": obs_dim}
    if demos.discrete != discrete:
        there = f"choices of {env.act_space.n}" if discrete else f"vectors of {env.act_space.shape[0]} floats"
        here = "ids, as whole numbers are read" if demos.discrete else f"vectors of {demos.act_dim} floats"
        hint = "; read them with discrete=False" if demos.discrete else "; read them with discrete=True"
        return Finding("error", "dimensions", f"{name} takes {there}, the demonstrations have {here}{hint}", sizes)
    there_dim = int(env.act_space.n) if discrete else env.act_space.shape[0]
    sizes |= {"act_dim": demos.act_dim, "env_act_dim": there_dim}
    unit = ("choice" if discrete else "action") + "s" * (demos.act_dim != 1)
    here = f"the demonstrations have {demos.obs_dim} observation{'s' * (demos.obs_dim != 1)} and {demos.act_dim} {unit}"
    there = f"{name} {obs_dim} and {there_dim}"
    same = demos.act_dim <= there_dim if discrete else demos.act_dim == there_dim
    if demos.obs_dim == obs_dim and same:
        return Finding("ok", "dimensions", f"{here}, as {name}" if not discrete else f"{here}, {there}", sizes)
    owners = [owner for owner, obs, act in _KNOWN_SIZES if (obs, act) == (demos.obs_dim, demos.act_dim)]
    hint = f"; those of {', '.join(owners)}" if owners and not discrete else ""
    versions = ": versions of an environment differ in what they observe" if any("-v" in one for one in owners) else ""
    return Finding("error", "dimensions", f"{here}, {there}{hint}{versions}", sizes)


def check_actions(demos: Demonstrations, space: Box | Discrete) -> Iterator[Finding]:
    """Look whether actions lie in the space, and use it.

    Args:
        demos: The demonstrations, whose actions fit the space in kind and number.
        space: The space of actions.

    Yields:
        Findings ``action-bounds`` and ``action-range``.

    Source:
        This package's.
    """
    if isinstance(space, Discrete):
        return  # ids out of range are more choices than there are
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    slack = 1e-6 * np.maximum(1.0, np.minimum(np.abs(low), np.abs(high)))
    outside = (demos.acts < low - slack) | (demos.acts > high + slack)
    if outside.any():
        rows = outside.any(axis=1)
        row = int(rows.argmax())
        column = int(outside[row].argmax())
        yield Finding(
            "warning",
            "action-bounds",
            f"{rows.mean():.1%} of the rows have actions outside the bounds, first {demos.acts[row, column]:g} in row "
            f"{row}, column {column}, where [{low[column]:g}, {high[column]:g}] is allowed: the discriminator tells "
            "them from any action of the agent; clip them, or scale them if they are of another unit",
            {"rows": int(rows.sum()), "first_row": row, "column": column},
        )
    else:
        yield Finding("ok", "action-bounds", "all actions lie within the bounds")
    bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
    if bounded.any():
        span = np.ptp(demos.acts, axis=0)[bounded] / (high - low)[bounded]
        numbers = {"least": float(span.min()), "most": float(span.max())}
        used = f"{span.max():.0%}" if len(span) == 1 else f"{span.min():.0%} to {span.max():.0%}"
        if span.max() < SMALLEST_RANGE:
            yield Finding(
                "warning",
                "action-range",
                f"actions use {used} of the range that the environment allows: they may be of another scale",
                numbers,
            )
        else:
            yield Finding("ok", "action-range", f"actions use {used} of the range that is allowed", numbers)


def check_observations(demos: Demonstrations, space: Box) -> Iterator[Finding]:
    """Look whether observations lie in the space.

    Args:
        demos: The demonstrations, whose observations fit the space in number.
        space: The space of observations.

    Yields:
        A finding ``obs-bounds`` where the space has bounds.

    Source:
        This package's.
    """
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    if not bounded.any():
        return
    slack = np.where(bounded, 1e-3 * (np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0)), 0.0)
    outside = (demos.obs < low - slack) | (demos.obs > high + slack)
    if not outside.any():
        yield Finding("ok", "obs-bounds", "all observations lie within the bounds")
        return
    rows = outside.any(axis=1)
    row = int(rows.argmax())
    column = int(outside[row].argmax())
    yield Finding(
        "warning",
        "obs-bounds",
        f"{rows.mean():.1%} of the rows have observations that the environment cannot give, first "
        f"{demos.obs[row, column]:g} in row {row}, column {column}, where [{low[column]:g}, {high[column]:g}] is "
        "possible: they may be standardised, or in another order",
        {"rows": int(rows.sum()), "first_row": row, "column": column},
    )


def check_labels(demos: Demonstrations) -> Iterator[Finding]:
    """Look at the confidences.

    Args:
        demos: The demonstrations.

    Yields:
        Findings ``labels``, ``few-labels``, ``constant-labels``, ``high-labels`` and ``label-floor``.

    Source:
        PN-GAIL, ICLR 2025; its optimal generator leaves out a row only where r / (1 - r) < 1/k, so that bad rows with
        confidences near 1/2 are imitated.
    """
    r = demos.confidence[demos.labelled]
    if not len(r):
        yield Finding(
            "error",
            "labels",
            "no row has a confidence: PN-GAIL needs some, from ratings or confidence_from_returns; without them there "
            "are GAIL and behaviour cloning",
        )
        return
    numbers = {"labelled": len(r), "mean": float(r.mean()), "min": float(r.min()), "max": float(r.max())}
    said = f"{len(r)} of {len(demos)} rows have a confidence, mean {r.mean():.2f}, from {r.min():.2f} to {r.max():.2f}"
    yield Finding("ok", "labels", said, numbers)
    if len(r) < FEW_LABELS:
        yield Finding("warning", "few-labels", f"{len(r)} labelled rows teach a classifier little", numbers)
    if r.min() == r.max():
        message = f"all labels are {r[0]:g}: they tell no row from another, and a classifier has nothing to learn"
        yield Finding("warning", "constant-labels", message, numbers)
    if r.mean() > HIGH_MEAN:
        message = f"confidences are {r.mean():.2f} in the mean: hardly any row is bad, and PN-GAIL comes close to GAIL"
        yield Finding("warning", "high-labels", message, numbers)
    elif r.min() > HIGH_FLOOR and r.min() < r.max():
        yield Finding(
            "warning",
            "label-floor",
            f"no confidence is below {r.min():.2f}: where bad rows are many they are imitated all the same unless "
            "theirs are low, 0.2 or less; sharpen them",
            numbers,
        )


def check_returns(demos: Demonstrations) -> Iterator[Finding]:
    """Compare returns of episodes with their confidences, where rewards are known.

    Args:
        demos: The demonstrations.

    Yields:
        A finding ``returns``.

    Source:
        This package's.
    """
    if demos.reward is None or not demos.consecutive:
        return
    table = demos.summary().dropna(subset=["return", "mean_confidence"])
    if len(table) < 3 or table["return"].nunique() < 2 or table["mean_confidence"].nunique() < 2:
        return
    correlation = float(table["return"].rank().corr(table["mean_confidence"].rank()))
    numbers = {"rank_correlation": correlation, "episodes": len(table)}
    said = f"rank correlation of returns and confidences over {len(table)} episodes is {correlation:.2f}"
    if correlation < 0:
        message = f"{said}: episodes of lower return have the higher confidences"
        yield Finding("warning", "returns", message, numbers)
    else:
        yield Finding("ok", "returns", said, numbers)


def check_lengths(demos: Demonstrations, limit: int | None) -> Iterator[Finding]:
    """Look at the lengths of episodes.

    Args:
        demos: The demonstrations.
        limit: Steps after which the environment cuts episodes, where that is known.

    Yields:
        A finding ``episode-lengths``.

    Source:
        This package's; the bias of a reward that is never negative is known of adversarial imitation.
    """
    if not demos.consecutive:
        yield Finding("ok", "episode-lengths", "steps were left out, so that lengths of episodes are not known")
        return
    lengths = np.bincount(demos.episode_codes)
    shortest, longest = int(lengths.min()), int(lengths.max())
    numbers = {"episodes": len(lengths), "shortest": shortest, "longest": longest, "limit": limit}
    if limit is not None and longest > limit:
        lost = "no episodes are given" if demos.episode is None else "cuts are missing"
        message = f"an episode has {longest} rows, but the environment ends episodes after {limit} steps: {lost}"
        yield Finding("warning", "episode-lengths", message, numbers)
    elif shortest < longest:
        yield Finding(
            "warning",
            "episode-lengths",
            f"episodes have from {shortest} to {longest} steps: where an environment ends some early, the reward "
            "-log D > 0 pays for staying alive, whatever is done (survival bias)",
            numbers,
        )
    elif len(lengths) > 1:
        yield Finding("ok", "episode-lengths", f"all {len(lengths)} episodes have {longest} steps", numbers)


def check_columns(demos: Demonstrations) -> Iterator[Finding]:
    """Look for absurd numbers, for duplicated rows and for observations that never change.

    Args:
        demos: The demonstrations.

    Yields:
        Findings ``outliers``, ``duplicates`` and ``constant-columns``.

    Source:
        This package's.
    """
    yield from _outliers(demos)
    yield _duplicates(demos)
    constant = np.flatnonzero(np.ptp(demos.obs, axis=0) == 0)
    if len(constant) and len(demos) > 1:
        listed = ", ".join(map(str, constant[:10])) + (", ..." if len(constant) > 10 else "")
        yield Finding(
            "warning",
            "constant-columns",
            f"{len(constant)} of {demos.obs_dim} observations never change ({listed}): an agent in whose episodes they "
            "do is told from the demonstrations by that alone",
            {"columns": constant.tolist()},
        )


def _outliers(demos: Demonstrations) -> Iterator[Finding]:
    """Look for numbers beside which all others become one, once they are standardised."""
    low, middle, high = np.quantile(demos.obs.astype(float), [0.05, 0.5, 0.95], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(demos.obs - middle) / (high - low)
    far = np.where(high > low, far, 0)
    row, column = np.unravel_index(int(far.argmax()), far.shape)
    if far[row, column] > ABSURD:
        yield Finding(
            "error",
            "outliers",
            f"observation {column} is {demos.obs[row, column]:g} in row {row}, and from {low[column]:g} to "
            f"{high[column]:g} in 90% of the rows: standardised, all of these are the same number",
            {"row": int(row), "column": int(column), "rows": int((far > ABSURD).any(axis=1).sum())},
        )


def _duplicates(demos: Demonstrations) -> Finding:
    """Look for episodes that stand there before, or, where none are known, for rows that do.

    Rows that repeat say little by themselves: a pendulum at rest repeats one until the end.
    """
    rows = pd.DataFrame(np.column_stack([demos.obs, demos.acts]))
    kinds = rows.groupby(list(rows), sort=False).ngroup().to_numpy()
    first = np.unique(kinds, return_index=True)[1][kinds]
    again = first != np.arange(len(demos))
    numbers: dict[str, Any] = {"duplicates": int(again.sum()), "share": float(again.mean())}
    codes = demos.episode_codes
    if demos.episode is not None:
        once = np.unique(codes * len(demos) + kinds, return_index=True)[1]  # each kind of row of an episode
        copied = np.bincount(codes[once], weights=(codes[first] != codes)[once]) > 0.5 * np.bincount(codes[once])
        numbers["episodes"] = int(copied.sum())
        if copied.any() and not demos.discrete:
            name = demos.episode_names[int(copied.argmax())]
            message = (
                f"most rows of {int(copied.sum())} of {len(copied)} episodes stand in earlier ones (first {name!r})"
            )
            return Finding("warning", "duplicates", f"{message}: they count twice", numbers)
    else:
        moved = again & np.concatenate([[True], kinds[1:] != kinds[:-1]])
        if moved.mean() >= MANY_DUPLICATES and not demos.discrete:
            message = f"{moved.mean():.1%} of the rows stand there before, first row {int(moved.argmax())}"
            return Finding("warning", "duplicates", f"{message}: they count twice", numbers)
    return Finding("ok", "duplicates", f"{int(again.sum())} rows stand there before", numbers)
