"""Checks that repeat recorded steps: actions of another scale, and rows that stand in the wrong episode."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from icl25_pn_gail.cut_checks import Steps, check_cuts
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.findings import Finding

__all__ = ["check_dynamics"]

FACTORS = (1.0, 2.0, 0.5)
"""What recorded actions are multiplied by; the first is that of demonstrations without fault."""
REPRODUCED = 0.2
"""Largest error, relative to the length of steps, of steps that count as reproduced."""
_ROWS_AT_ONCE = 4096
_KEPT = 0.9  # of the rows, those with the smallest errors: a few stand in the wrong episode
_SAME = 1e-3  # below any difference that matters, above rounding in single precision


def check_dynamics(demos: Demonstrations, env: Any) -> Iterator[Finding]:
    """Repeat recorded steps in the environment, and look whether rows follow each other.

    Args:
        demos: The demonstrations.
        env: A ``JaxEnv`` with ``state_from_obs`` whose spaces fit; None where there is none.

    Yields:
        Findings ``action-scale`` (with ``env``) and ``episode-cuts``.

    Source:
        This package's. The published demonstrations of the pendulum (PN-GAIL, ICLR 2025) hold half the torque.
    """
    factor = None
    if env is not None:
        measured = _errors(demos, env)
        if measured is None:
            yield Finding("ok", "action-scale", "no row is known to follow another, so that no step can be repeated")
        else:
            finding, factor = _judge_scale(measured)
            yield finding
    if not demos.consecutive:
        yield Finding("ok", "episode-cuts", "steps were left out, so that rows need not follow each other")
    elif len(demos) > 2:
        yield from check_cuts(demos, _following(demos, env, factor))


class _Pairs(NamedTuple):
    """Rows and what followed them."""

    rows: Int[np.ndarray, " k"]
    after: Float[np.ndarray, "k d"]


def _pairs(demos: Demonstrations) -> _Pairs | None:
    """Rows whose next observation is recorded: beside them, or in the next row of their episode."""
    if demos.next_obs is not None:
        rows = np.flatnonzero(np.isfinite(demos.next_obs).all(axis=1))
        return _Pairs(rows, demos.next_obs[rows]) if len(rows) else None
    if not demos.consecutive:
        return None
    order = np.argsort(demos.episode_codes, kind="stable")
    together = demos.episode_codes[order[:-1]] == demos.episode_codes[order[1:]]
    rows = order[:-1][together]
    return _Pairs(rows, demos.obs[order[1:][together]]) if len(rows) else None


def _errors(demos: Demonstrations, env: Any) -> dict[float, float] | None:
    """Mean error of repeated steps by what actions are multiplied by, relative to the length of steps."""
    pairs = _pairs(demos)
    if pairs is None:
        return None
    obs, acts = demos.obs[pairs.rows], demos.acts[pairs.rows]
    scale = _scale(pairs.after - obs)
    errors = {}
    for factor in FACTORS[:1] if demos.discrete else FACTORS:
        differences = predict(env, obs, acts if demos.discrete else factor * acts) - pairs.after
        lengths = np.sort(_length(differences / scale))
        errors[factor] = float(lengths[: max(1, round(_KEPT * len(lengths)))].mean())
    return errors


def _judge_scale(errors: dict[float, float]) -> tuple[Finding, float | None]:
    """What the errors say, and by what actions must be multiplied to reproduce steps; None where nothing does."""
    best = min(errors, key=lambda factor: errors[factor])
    listed = ", ".join(f"{error:.2g} with actions times {factor:g}" for factor, error in errors.items())
    numbers = {"best": best, **{f"error_{factor:g}": error for factor, error in errors.items()}}
    as_recorded = errors[1.0]
    if best != 1 and errors[best] < 0.5 * as_recorded and as_recorded - errors[best] > _SAME:
        finding = Finding(
            "error",
            "action-scale",
            f"recorded actions are of another scale: steps are reproduced with {best:g} times the action (errors "
            f"{listed}); dataclasses.replace(demos, acts={best:g} * demos.acts) corrects that",
            numbers,
        )
        return finding, best if errors[best] <= REPRODUCED else None
    if as_recorded > REPRODUCED:
        finding = Finding(
            "warning",
            "action-scale",
            f"the environment does not reproduce recorded steps (errors {listed}, relative to their length): another "
            "version or other parameters, standardised observations, or steps of another duration",
            numbers,
        )
        return finding, None
    if len(errors) > 1 and max(errors.values()) - as_recorded <= _SAME:
        message = f"recorded steps are reproduced whatever actions are multiplied by ({listed}): they tell no scale"
        return Finding("ok", "action-scale", message, numbers), 1.0
    return Finding("ok", "action-scale", f"recorded steps are reproduced (errors {listed})", numbers), 1.0


def _following(demos: Demonstrations, env: Any, factor: float | None) -> Steps:
    """How far each row is from what must follow the row before it, episode after episode."""
    order = np.argsort(demos.episode_codes, kind="stable")
    obs, codes = demos.obs[order], demos.episode_codes[order]
    edges = codes[:-1] != codes[1:]
    moved = obs[1:] - obs[:-1]
    scale = _scale(moved[~edges])
    if factor is not None:
        acts = demos.acts[order] if demos.discrete else factor * demos.acts[order]
        distances = _length((predict(env, obs[:-1], acts[:-1]) - obs[1:]) / scale)
        limit = max(0.1, 20 * float(np.median(distances[~edges])) if (~edges).any() else 0.1)
        return Steps("the dynamics of the environment", order, edges, distances > limit)
    if demos.next_obs is not None:
        distances = _length((demos.next_obs[order][:-1] - obs[1:]) / scale)
        known = np.isfinite(distances)
        return Steps("next_obs", order, edges, known & (distances > 0.01), ~known)
    distances = _length(moved / scale)
    usual = np.median(distances)
    spread = 1.4826 * np.median(np.abs(distances - usual))
    others = np.lexsort((np.random.default_rng(0).random(len(obs)), codes))  # of the same episode
    apart = float(np.median(_length((obs[others] - obs) / scale)))
    limit = max(usual + 10 * spread, 3 * usual)
    return Steps("the sizes of steps", order, edges, distances > limit, sizes=distances, apart=apart)


def predict(env: Any, obs: Float[np.ndarray, "n d"], acts: Shaped[np.ndarray, "n *a"]) -> Float[np.ndarray, "n d"]:
    """Take one step from each observation.

    Args:
        env: A ``JaxEnv`` with ``state_from_obs``.
        obs: Observations, shape (n, d).
        acts: Actions, shape (n, a) or (n,).

    Returns:
        The observations after the steps, shape (n, d).

    Source:
        This package's.
    """
    n = len(obs)
    size = min(n, _ROWS_AT_ONCE)
    parts = []
    for start in range(0, n, size):
        # The last rows once more where rows run out, so that one shape is compiled.
        rows = np.minimum(np.arange(start, start + size), n - 1)
        parts.append(np.asarray(_step(env, jnp.asarray(obs[rows]), jnp.asarray(acts[rows])), np.float64))
    return np.concatenate(parts)[:n]


@partial(jax.jit, static_argnums=0)
def _step(env: Any, obs: Float[Array, "n d"], acts: Shaped[Array, "n *a"]) -> Float[Array, "n d"]:
    def one(row: Float[Array, " d"], action: Array) -> Float[Array, " d"]:
        return env.step(jax.random.key(0), env.state_from_obs(row), action)[0]

    return jax.vmap(one)(obs, acts)


def _scale(moved: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " d"]:
    """How far each observation moves in a step; of those that never move, as far as the others."""
    scale = np.sqrt(np.mean(np.square(moved, dtype=np.float64), axis=0)) if len(moved) else np.ones(moved.shape[1])
    still = scale <= 1e-9 * max(scale.max(), 1e-30)
    return np.where(still, scale.max() or 1.0, scale)


def _length(differences: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    return np.sqrt(np.mean(np.square(differences, dtype=np.float64), axis=1))
