"""Look at demonstrations, and at the environment that they are said to come from, before learning from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from icl25_pn_gail import data_checks, dynamics_checks
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import make_env
from icl25_pn_gail.envs.choosing import SAME_AS
from icl25_pn_gail.findings import Finding, Report

__all__ = ["Finding", "Report", "check"]

_ORDER = ("error", "warning", "ok")


def check(demos: Demonstrations, env: Any = None) -> Report:
    """Look for what makes learning from demonstrations fail.

    It compares numbers of observations and actions, and their ranges, with the spaces of the environment. Where states
    of the environment can be set from observations (``state_from_obs``), it repeats the recorded steps with the actions
    times 1, 2 and 1/2, which tells actions of another scale, and finds rows that stand in the wrong episode; else cuts
    between episodes are judged by ``next_obs`` or by the sizes of steps. It looks at confidences, returns, lengths of
    episodes, duplicates and constant columns.

    Args:
        demos: The demonstrations.
        env: The environment, or its id, as ``make_env`` takes it. Default: only what needs none is checked.

    Returns:
        The findings, errors first.

    Raises:
        ValueError: If there is no such environment, or its spaces are not vectors or choices.
        TypeError: If it is no environment.
        ImportError: If it needs a library that is not installed.

    Source:
        This package's; the published demonstrations of PN-GAIL, ICLR 2025, have two of these faults.

    Example:
        >>> import numpy as np
        >>> demos = Demonstrations(np.zeros((3, 17)), np.zeros((3, 6)), [1.0, 0.0, 0.1])
        >>> report = check(demos, "Pendulum-v1")
        >>> report.ok, report.errors[0].code
        (False, 'dimensions')
    """
    found = sorted(_findings(demos, env), key=lambda finding: _ORDER.index(finding.level))
    return Report(tuple(found))


def _findings(demos: Demonstrations, env: Any) -> Iterator[Finding]:
    known = None if env is None else make_env(env)
    fits = True
    if known is not None:
        differing = data_checks.compare_spaces(demos, known)
        fits = differing.level == "ok"
        yield differing
        if fits:
            yield from data_checks.check_actions(demos, known.act_space)
            yield from data_checks.check_observations(demos, known.obs_space)
    yield from dynamics_checks.check_dynamics(demos, _simulator(env, known) if fits else None)
    yield from data_checks.check_labels(demos)
    yield from data_checks.check_returns(demos)
    yield from data_checks.check_lengths(demos, None if known is None else known.max_episode_steps)
    yield from data_checks.check_columns(demos)


def _simulator(env: Any, known: Any) -> Any:
    """An environment whose states can be set from observations, or None."""
    if hasattr(known, "state_from_obs"):
        return known
    spec = getattr(env, "spec", None)
    if spec is None or getattr(spec, "id", None) not in SAME_AS or spec.additional_wrappers:
        return None
    changed = set(spec.kwargs) - {"render_mode"}
    return None if changed else SAME_AS[spec.id]()
