"""Where recorded rows stop following each other, against where episodes are said to be cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.findings import Finding

__all__ = ["Steps", "check_cuts"]

FEWEST_STEPS = 20
"""Steps from which on their typical length is compared with that between any two rows."""
LARGEST_SHIFT = 3
"""Rows by which a cut may be off and still be recognised as that."""
SHUFFLED = 0.7
"""From this share of the distance between any two rows of an episode on, rows do not follow each other."""
FEWEST_CUTS, MOST, LONGER = 4, 0.6, 3.0
"""Where sizes of steps alone tell: of so many cuts, this share has a step at one place, so much longer than around."""


@dataclass(frozen=True)
class Steps:
    """Which rows follow the row before them; episode after episode, so that n rows make n - 1 steps.

    Attributes:
        source: What tells that.
        order: Number of each row in the file, shape (n,).
        edges: Steps from one episode to another, shape (n - 1,).
        jumps: Steps that no step of the environment explains, shape (n - 1,).
        unknown: Steps of which that is not known, shape (n - 1,). Default: none.
        sizes: Lengths of steps, shape (n - 1,), where these alone tell jumps, so that others need not follow. Default:
            steps that are no jumps are known to follow.
        apart: Median length from a row to another of its episode drawn at random, where ``sizes`` are given.
    """

    source: str
    order: Int[np.ndarray, " n"]
    edges: Bool[np.ndarray, " m"]
    jumps: Bool[np.ndarray, " m"]
    unknown: Bool[np.ndarray, " m"] = field(default_factory=lambda: np.zeros(0, bool))
    sizes: Float[np.ndarray, " m"] | None = None
    apart: float | None = None


def check_cuts(demos: Demonstrations, steps: Steps) -> Iterator[Finding]:
    """Compare jumps with the cuts between episodes.

    Args:
        demos: The demonstrations.
        steps: Which of their rows follow each other.

    Yields:
        Findings ``episode-cuts``: cuts that are a few rows off, jumps inside episodes, cuts through running episodes.

    Source:
        This package's. In the published demonstrations of the pendulum (PN-GAIL, ICLR 2025) the first row of each block
        of 200 belongs to the block before.
    """
    if steps.apart is not None and steps.sizes is not None and (~steps.edges).sum() >= FEWEST_STEPS:
        typical = float(np.median(steps.sizes[~steps.edges]))
        if typical > SHUFFLED * steps.apart > 0:
            yield Finding(
                "warning",
                "episode-cuts",
                "rows do not seem to follow each other: steps are as long as from any row of an episode to any other "
                f"({typical:.2g} against {steps.apart:.2g}); rows must stand in the order of time",
                {"source": steps.source, "step": typical, "apart": steps.apart},
            )
            return
    inside = steps.jumps & ~steps.edges
    follows = steps.edges & ~steps.jumps
    if len(steps.unknown):
        follows &= ~steps.unknown
    if steps.sizes is None:
        shift, shifted = _shift(inside, follows, steps.edges)
    else:
        shift, shifted = _shift_by_size(steps.sizes, steps.edges)
    found = False
    if len(shifted):
        found = True
        inside, follows = inside.copy(), follows.copy()
        inside[shifted + shift] = False
        follows[shifted] = False
        # The first episode of all has no cut before it, the last none after it.
        end = shift - 1 if shift > 0 else len(inside) + shift
        also = bool(inside[end])
        inside[end] = False
        yield _shifted(demos, steps, shift, shifted, also)
    if inside.any() and _believable(demos, steps, inside):
        found = True
        yield _jumps(demos, steps, np.flatnonzero(inside))
    if steps.sizes is None and follows.any():
        found = True
        yield _running(steps, np.flatnonzero(follows))
    if not found:
        n = int(steps.edges.sum())
        message = f"by {steps.source}, rows follow each other inside episodes" + (
            f", and do not at the {n} cuts between them" if steps.sizes is None and n else ""
        )
        yield Finding("ok", "episode-cuts", message, {"source": steps.source, "cuts": n})


def _shift(
    inside: Bool[np.ndarray, " m"], follows: Bool[np.ndarray, " m"], edges: Bool[np.ndarray, " m"]
) -> tuple[int, Int[np.ndarray, " k"]]:
    """By how many rows most cuts are off that do not fall on a jump, and which those are."""
    votes: dict[int, list[int]] = {}
    for cut in np.flatnonzero(follows):
        for shift in sorted(range(-LARGEST_SHIFT, LARGEST_SHIFT + 1), key=abs):
            jump = cut + shift
            if 0 <= jump < len(inside) and inside[jump] and not edges[min(cut, jump) : max(cut, jump) + 1].sum() > 1:
                votes.setdefault(shift, []).append(cut)
                break
    if not votes:
        return 0, np.zeros(0, np.int64)
    shift, _ = Counter({shift: len(cuts) for shift, cuts in votes.items()}).most_common(1)[0]
    return shift, np.array(votes[shift])


def _shift_by_size(sizes: Float[np.ndarray, " m"], edges: Bool[np.ndarray, " m"]) -> tuple[int, Int[np.ndarray, " k"]]:
    """Where, about most cuts, the step is that is much longer than those around it, and which cuts those are."""
    window = np.arange(-LARGEST_SHIFT, LARGEST_SHIFT + 1)
    none = 0, np.zeros(0, np.int64)
    cuts = np.flatnonzero(edges)
    cuts = cuts[(cuts >= LARGEST_SHIFT) & (cuts < len(sizes) - LARGEST_SHIFT)]
    cuts = cuts[[edges[cut + window].sum() == 1 for cut in cuts]] if len(cuts) else cuts
    if len(cuts) < FEWEST_CUTS:
        return none
    around = sizes[cuts[:, None] + window]
    places = around.argmax(axis=1)
    place = int(np.bincount(places).argmax())
    there = np.median(around[:, place])
    elsewhere = np.median(np.delete(around, place, axis=1))
    agree = cuts[places == place]
    if window[place] == 0 or len(agree) < MOST * len(cuts) or there < LONGER * elsewhere:
        return none
    return int(window[place]), agree


def _shifted(demos: Demonstrations, steps: Steps, shift: int, cuts: Int[np.ndarray, " k"], also: bool) -> Finding:
    size = abs(shift)
    rows = "row" if size == 1 else f"{size} rows"
    if shift > 0:
        remedy = f"demos.select(slice({size}, None)), episode=demos.episode[:-{size}]"
    else:
        remedy = f"demos.select(slice(None, -{size})), episode=demos.episode[{size}:]"
    in_order = bool((np.diff(steps.order) == 1).all())
    n = len(cuts) + also
    # The first of the rows that stand in the wrong episode.
    first = int(steps.order[0 if also and shift > 0 else cuts[0] + 1 - (shift < 0) * size])
    which = f"the first {rows} of {n} episodes belong{'s' * (size == 1)} to the episode before"
    if shift < 0:
        which = f"the last {rows} of {n} episodes belong{'s' * (size == 1)} to the episode after"
    return Finding(
        "warning",
        "episode-cuts",
        f"by {steps.source}, {which}, the first of them row {first}: episodes are cut {_count(size, 'row')} too "
        f"{'early' if shift > 0 else 'late'}" + f"; dataclasses.replace({remedy}) corrects that" * in_order,
        {"source": steps.source, "shift": shift, "episodes": n, "of": demos.n_episodes, "first_row": first},
    )


def _believable(demos: Demonstrations, steps: Steps, inside: Bool[np.ndarray, " m"]) -> bool:
    """Sizes of steps alone tell jumps only where no cut is known and jumps are rare."""
    return steps.sizes is None or (demos.episode is None and float(inside.mean()) < 0.02)


def _jumps(demos: Demonstrations, steps: Steps, jumps: Int[np.ndarray, " k"]) -> Finding:
    starts = steps.order[jumps + 1]
    numbers = {"source": steps.source, "jumps": len(starts), "rows": starts[:1000].tolist()}
    listed = ", ".join(map(str, starts[:5])) + (", ..." if len(starts) > 5 else "")
    if demos.episode is not None:
        message = f"rows jump at {_count(len(starts), 'place')} inside episodes (row {listed})"
        return Finding("warning", "episode-cuts", f"by {steps.source}, {message}: steps or cuts are missing", numbers)
    message = f"no episodes are given, but rows jump at {_count(len(starts), 'place')}: episodes start at {listed}"
    between = np.diff(starts)
    if len(between) and (between == between[0]).all():
        length = int(between[0])
        off = int(starts[0]) % length
        numbers |= {"length": length, "offset": off}
        message += f", every {length} rows"
        if off:
            message += (
                f"; blocks of {length} rows from row 0 on would be cut {_count(min(off, length - off), 'row')} off"
            )
    return Finding("warning", "episode-cuts", f"by {steps.source}, {message}", numbers)


def _running(steps: Steps, cuts: Int[np.ndarray, " k"]) -> Finding:
    total = int(steps.edges.sum())
    row = int(steps.order[cuts[0] + 1])
    also = ", or next_obs of last rows is the observation after the reset" if steps.source == "next_obs" else ""
    return Finding(
        "warning",
        "episode-cuts",
        f"by {steps.source}, {len(cuts)} of {total} cuts go through an episode that runs on, first at row {row}{also}",
        {"source": steps.source, "running": len(cuts), "of": total, "first_row": row},
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"
