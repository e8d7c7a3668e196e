"""Demonstrations of mixed quality from a learner of stable-baselines3, caught at several stages of its training."""

from __future__ import annotations

import copy
import random
import sys
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import GymnasiumSource
from icl25_pn_gail.levels import Level, checked_levels
from icl25_pn_gail.recording import Recording, as_demonstrations, record_gymnasium

__all__ = ["train_and_record"]

ALGORITHMS = {"sac": "SAC", "ppo": "PPO", "td3": "TD3"}


class _Stage(NamedTuple):
    """A policy during training, and how well it did."""

    steps: int
    mean_return: float
    weights: Mapping[str, Any]


def train_and_record(
    env_id: Any,
    algorithm: str = "sac",
    total_steps: int = 1_000_000,
    checkpoints: int = 4,
    episodes_per_level: int | Sequence[int] = 5,
    seed: int = 0,
    *,
    evaluations: int = 20,
    eval_episodes: int = 5,
    confidence: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    callback: Callable[[int, float], None] | None = None,
) -> Demonstrations:
    """Train a learner of stable-baselines3 and record episodes of its policy at several stages.

    The policy is evaluated before training and ``evaluations`` times during it. The best is the level ``sac-100``. With
    four checkpoints, ``sac-75``, ``sac-50`` and ``sac-25`` are those whose mean return came nearest to that share of
    the way from the worst to the best. All act without exploration.

    Args:
        env_id: Id of an environment of Gymnasium, or what else ``GymnasiumSource`` takes.
        algorithm: ``"sac"``, ``"ppo"`` or ``"td3"``; with discrete actions ``"ppo"``.
        total_steps: Steps of the environment to train for.
        checkpoints: Number of levels.
        episodes_per_level: Episodes to record, of every level or of each, best first.
        seed: Seed of everything that is drawn.
        evaluations: How often the policy is looked at during training.
        eval_episodes: Episodes of each look.
        confidence: Confidence of each level, best first, in [0, 1]. None: the mean returns of the recorded episodes
            between the worst (0) and the best (1) level.
        options: Further arguments of the learner, such as ``{"learning_rate": 1e-3, "device": "cuda"}``.
        callback: Told the steps so far and the mean return at each look.

    Returns:
        The rows as ``make_demonstrations`` returns them; ``meta`` also holds the steps of training of each level
        (``"level_steps"``).

    Raises:
        TypeError: If ``env_id`` is no environment.
        ValueError: If there is no such algorithm or environment, it does not fit the actions, or a number is out of
            range.
        ImportError: If stable-baselines3 or what the environment needs is not installed.

    Source:
        Liu et al. (ICLR 2025), experiments: demonstrations of an expert and of policies with lower returns.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"algorithm must be one of {', '.join(ALGORITHMS)}, found {algorithm!r}")
    counts = [episodes_per_level] * checkpoints if isinstance(episodes_per_level, int) else list(episodes_per_level)
    levels = _named_levels(algorithm, checkpoints, counts, confidence)
    for name, value, least in (
        ("evaluations", evaluations, max(1, checkpoints - 1)),
        ("eval_episodes", eval_episodes, 1),
        ("total_steps", total_steps, evaluations),
    ):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, found {value}")
    try:
        import stable_baselines3
    except ImportError as error:
        raise ImportError('training experts needs stable-baselines3: pip install "icl25-pn-gail[sb3]"') from error
    source = GymnasiumSource(env_id)
    if algorithm != "ppo" and not isinstance(source.act_space, Box):
        raise ValueError(f"{algorithm} needs continuous actions, and {source.name} has {source.act_space}; use ppo")

    with _global_random_states_kept():
        env = source.single()
        settings = {"device": "cpu", **(options or {})}
        learner = getattr(stable_baselines3, ALGORITHMS[algorithm])("MlpPolicy", env, seed=seed, **settings)
        stages: list[_Stage] = []
        for look in range(evaluations + 1):
            if look:
                learner.learn(
                    round(total_steps * look / evaluations) - learner.num_timesteps, reset_num_timesteps=False
                )
            mean = float(_recorded(learner, source, eval_episodes, (seed, 0, look)).returns().mean())
            stages.append(_Stage(learner.num_timesteps, mean, copy.deepcopy(learner.policy.state_dict())))
            if callback is not None:
                callback(learner.num_timesteps, mean)
        chosen = _chosen(stages, checkpoints)
        recordings = []
        for number, (level, stage) in enumerate(zip(levels, chosen, strict=True)):
            learner.policy.load_state_dict(stage.weights)
            recordings.append(_recorded(learner, source, level.episodes, (seed, 1, number)))
        if not source.is_example:
            env.close()
    noted = {
        "env": source.name,
        "seed": seed,
        "algorithm": algorithm,
        "total_steps": total_steps,
        "level_steps": {level.name: stage.steps for level, stage in zip(levels, chosen, strict=True)},
    }
    return as_demonstrations(levels, recordings, source, noted)


def _named_levels(
    algorithm: str, checkpoints: int, counts: Sequence[int], confidence: Sequence[float] | None
) -> list[Level]:
    if checkpoints < 1:
        raise ValueError(f"checkpoints must be at least 1, found {checkpoints}")
    if len(counts) != checkpoints:
        raise ValueError(f"episodes_per_level must have {checkpoints} numbers, one for each level, found {len(counts)}")
    if confidence is not None and len(confidence) != checkpoints:
        raise ValueError(f"confidence must have {checkpoints} numbers, one for each level, found {len(confidence)}")
    trust = [None] * checkpoints if confidence is None else confidence
    names = [f"{algorithm}-{round(100 * share)}" for share in _shares(checkpoints)]
    return checked_levels([Level(*level) for level in zip(names, counts, trust, strict=True)])


def _shares(checkpoints: int) -> list[float]:
    """Share of the way from the worst to the best policy at each level, best first."""
    return [1 - number / checkpoints for number in range(checkpoints)]


def _chosen(stages: Sequence[_Stage], checkpoints: int) -> list[_Stage]:
    """The stages that come nearest to each share of the way from worst to best, none twice."""
    left = list(stages)
    start, worst, best = (pick(stage.mean_return for stage in stages) for pick in (next, min, max))
    if best <= start:
        warnings.warn(
            f"training did not improve the policy, whose mean return was {start:.4g} before it and never more; "
            "train for more steps",
            stacklevel=3,
        )
    found = []
    for share in _shares(checkpoints):
        wanted = worst + share * (best - worst)
        found.append(min(left, key=lambda stage: abs(stage.mean_return - wanted)))
        left.remove(found[-1])
    return found


def _recorded(learner: Any, source: GymnasiumSource, episodes: int, seeds: tuple[int, ...]) -> Recording:
    """Episodes of the learner's policy as it is."""
    seed = int(np.random.SeedSequence(seeds).generate_state(1)[0] >> 1)
    return record_gymnasium(source, lambda obs: learner.predict(obs, deterministic=True)[0], episodes, seed)


@contextmanager
def _global_random_states_kept() -> Generator[None]:
    """Give the states of the global generators back, which stable-baselines3 seeds and uses."""
    torch: Any = sys.modules["torch"]  # what stable-baselines3 computes with
    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.random.set_rng_state(states[2])
