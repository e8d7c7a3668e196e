from __future__ import annotations

import dataclasses

import pytest

from icl25_pn_gail.config import RolloutShape, TrainConfig, rollout_shape

# What the authors' code computes with.
OFFICIAL = {
    "hidden": (100, 100), "steps_per_iteration": 5000, "gamma": 0.995, "max_kl": 0.01, "damping": 0.1,
    "cg_iterations": 10, "value_lr": 3e-4, "value_minibatches": 30, "disc_lr": 1e-3, "disc_steps": 1,
    "disc_grad_penalty": 0, "reward": "nonsaturating", "log_std_init": 0, "icgail_min_prior": 0.7, "wgail_beta": 1,
    "wgail_every": 50, "wgail_until": 400, "eval_episodes": 5,
}  # fmt: skip


def test_defaults_are_those_of_the_authors_but_for_five(unchecked):
    ours, theirs = TrainConfig(), TrainConfig.official()
    for name, value in OFFICIAL.items():
        assert getattr(ours, name) == getattr(theirs, name) == value, name
    assert (ours.ppo_clip, ours.ppo_epochs, ours.ppo_lr, ours.min_log_std) == (0.2, 10, 3e-4, -3)
    differing = {f.name for f in dataclasses.fields(ours) if getattr(ours, f.name) != getattr(theirs, f.name)}
    assert differing == {"clip_actions", "bootstrap_on_truncation", "normalize_obs", "min_log_std", "kl_slack"}
    assert (ours.kl_slack, theirs.kl_slack) == (1.5, None)
    assert [ours.clip_actions, ours.bootstrap_on_truncation, ours.normalize_obs] == [True] * 3
    assert TrainConfig.official(clip_actions=True, hidden=[5]) == dataclasses.replace(
        theirs, clip_actions=True, hidden=(5,)
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"hidden": ()}, r"hidden must be widths of layers >= 1, found \(\)"),
        ({"hidden": (8, 0)}, r"found \(8, 0\)"),
        ({"hidden": 32}, r"hidden must be widths of layers such as \(100, 100\), found 32"),
        ({"max_episode_steps": 0}, "max_episode_steps must be > 0, found 0"),
        ({"steps_per_iteration": 0}, "steps_per_iteration must be > 0, found 0"),
        ({"n_envs": -1}, "n_envs must be > 0, found -1"),
        ({"n_steps": 0}, "n_steps must be > 0"),
        ({"max_kl": 0.0}, "max_kl must be > 0"),
        ({"kl_slack": 0.0}, "kl_slack must be > 0"),
        ({"disc_lr": float("nan")}, "disc_lr must be finite, found nan"),
        ({"value_lr": float("inf")}, "value_lr must be finite, found inf"),
        ({"log_std_init": float("-inf")}, "log_std_init must be finite"),
        ({"gamma": 1.1}, r"gamma must be in \[0, 1\], found 1.1"),
        ({"gae_lambda": -0.1}, r"gae_lambda must be in \[0, 1\]"),
        ({"icgail_min_prior": 2.0}, r"icgail_min_prior must be in \[0, 1\]"),
        ({"damping": -1.0}, "damping must be >= 0"),
        ({"disc_grad_penalty": -1.0}, "disc_grad_penalty must be >= 0"),
        ({"wgail_beta": -0.5}, "wgail_beta must be >= 0"),
        ({"reward": "log"}, "reward must be nonsaturating, airl or gail, found 'log'"),
        ({"eval_every": 0}, "eval_every must be > 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(setting, message, unchecked):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**setting)
    TrainConfig(gamma=1.0, gae_lambda=0.0, damping=0, n_envs=None)


@pytest.mark.parametrize(
    ("settings", "limit", "available", "shape"),
    [
        ({}, 200, None, (200, 25, 200)),  # whole episodes, side by side
        ({}, 1000, None, (1000, 5, 1000)),
        ({}, None, None, (1000, 5, 1000)),  # no limit is known
        ({"steps_per_iteration": 5001}, 200, None, (200, 26, 200)),  # at least as many
        ({"n_envs": 8}, 200, None, (800, 8, 200)),
        ({"n_envs": 2, "steps_per_iteration": 10}, 200, None, (200, 2, 200)),
        ({"n_steps": 50}, 200, None, (50, 100, 200)),
        ({"n_steps": 50, "n_envs": 3}, 200, None, (50, 3, 200)),
        ({}, 200, 1, (5000, 1, 200)),  # what there is must do
        ({}, 300, 4, (1500, 4, 300)),
    ],
)
def test_the_steps_of_an_iteration_are_whole_episodes(settings, limit, available, shape):
    assert rollout_shape(TrainConfig(**settings), limit, available) == RolloutShape(*shape)
