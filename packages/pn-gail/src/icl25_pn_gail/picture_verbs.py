"""The pictures that verbs write."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_pn_gail.confidence_plots import plot_confidence
from icl25_pn_gail.envs import TwoGoals, env_name
from icl25_pn_gail.envs.two_goals import START
from icl25_pn_gail.policy_plots import plot_discriminator, plot_rollouts
from icl25_pn_gail.training_plots import plot_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icl25_pn_gail.demonstrations import Demonstrations
    from icl25_pn_gail.learners import Learner
    from icl25_pn_gail.recording import Recording
    from icl25_shared import RunFolder

MOST_FRAMES_A_SECOND = 12.5  # of a GIF, which grows with every one
WIDEST = 320  # pixels
# Two observations that show what happens, and their names.
_TELLING = {
    "TwoGoals": ((0, 1), ("x", "y")),
    "PendulumJax": ((0, 2), ("cosine of the angle (1 is upright)", "speed")),
    "CartPoleJax": ((0, 2), ("position of the cart", "angle of the pole")),
}


def draw_training(run: RunFolder, learner: Learner, demos: Demonstrations, *, believed: bool) -> None:
    """Write the pictures of a training.

    Args:
        run: The run folder.
        learner: What was trained.
        demos: Its demonstrations.
        believed: Whether the method looks at confidences, filled in; else those that were given are shown.
    """
    confidence = learner.confidence if believed else demos.confidence
    run.save_figure(plot_training(learner.history), "learning.png")
    if believed:
        run.save_figure(plot_confidence(demos.confidence, confidence), "confidence.png")
    n_inputs = demos.obs_dim if demos.discrete else demos.obs_dim + demos.act_dim
    if learner.policy.disc is not None and n_inputs > 1:
        run.save_figure(plot_discriminator(learner.policy, demos, confidence), "discriminator.png")


def draw_paths(env: Any, method: str, recording: Recording) -> Figure:
    """Draw episodes as paths through two observations, or through time where there is but one.

    Args:
        env: The environment.
        method: Name of the method, for the title.
        recording: The episodes.

    Returns:
        The figure.
    """
    n, d = recording.episode.max() + 1, recording.obs.shape[1]
    lengths = np.bincount(recording.episode)
    paths = np.full((n, lengths.max() + 1, max(d, 2)), np.nan)
    for i in range(n):
        rows = recording.episode == i
        whole = np.concatenate([recording.obs[rows], recording.next_obs[rows][-1:]])
        time = np.arange(len(whole))[:, None]
        paths[i, : len(whole)] = np.concatenate([time, whole], axis=1) if d == 1 else whole
    usual = ((0, 1), ("step", "observation 0") if d == 1 else ("observation 0", "observation 1"))
    columns, names = _TELLING.get(env_name(env), usual)
    goals = {"A": env.goal_a, "B": env.goal_b, "start": START} if isinstance(env, TwoGoals) else None
    return plot_rollouts({method: paths[:, :, list(columns)]}, goals=goals, names=names)


def write_gif(path: Path, frames: Sequence[np.ndarray], rate: float) -> None:
    """Write an animation at the speed of its environment.

    Args:
        path: The file.
        frames: Pictures, each (height, width, 3) of whole numbers to 255.
        rate: How many of them happen in a second; where these are too many, some are left out.
    """
    from PIL import Image

    every = max(1, math.ceil(rate / MOST_FRAMES_A_SECOND))
    images = [Image.fromarray(np.asarray(frame, np.uint8)) for frame in frames[::every]]
    if images[0].width > WIDEST:
        size = (WIDEST, round(images[0].height * WIDEST / images[0].width))
        images = [image.resize(size) for image in images]
    images[0].save(path, save_all=True, append_images=images[1:], duration=round(1000 * every / rate), loop=0)
