"""Does training find the true receptive field? A layer with known, elongated and rotated masks generates the data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.reproducibility import seeded

__all__ = ["Recovery", "angular_error", "recover", "rotated_C"]

SEMI_AXES = (5.0, 1.2)
ANGLES = tuple(np.arange(6) * math.pi / 6)
KERNEL_SIZE = 13

_SIDE, _BATCH, _LEARNING_RATE, _PENALTY, _FIRST_SIGMA = 24, 4, 0.05, 1e-3, 2.5


@dataclass(frozen=True)
class Recovery:
    """What was found of the masks of a layer.

    Attributes:
        angle: (m,) true angles of the long axis in radians, one for each mask.
        found_angle: (m,) angles that training found.
        found_gamma: (m,) elongations that training found; the true one is 5 / 1.2.
        found_p: (m,) exponents that training found; the true one is 2.
        error: (m,) angular errors in degrees.
        rmse: (m,) root of the mean squared difference of found and true mask over the taps.
        true_masks: (m, 13, 13) true masks.
        found_masks: (m, 13, 13) masks that training found.
    """

    angle: np.ndarray
    found_angle: np.ndarray
    found_gamma: np.ndarray
    found_p: np.ndarray
    error: np.ndarray
    rmse: np.ndarray
    true_masks: np.ndarray
    found_masks: np.ndarray


def recover(seed: int, *, joint: bool, channels: int = 4, n_steps: int | None = None) -> Recovery:
    """Train a layer on the outputs of another one whose masks point in six directions.

    Input is white noise; both layers have kernels of 13 x 13 taps. A small penalty on the squared kernel tells masks
    and kernels apart where both are trained: it favours the widest mask that the data allow, so that angles are found
    well, elongations too large and exponents too.

    Args:
        seed: Seed of kernels and inputs.
        joint: Train kernels as well as masks; otherwise the kernels are known.
        channels: Output channels for each of the six directions.
        n_steps: Steps of Adam; 400 jointly, 250 otherwise.

    Returns:
        True and found masks, channel by channel.

    Source: ours, after the account of masks that stretch, scale and rotate in Kwon et al. (ICLR 2025).
    """
    with seeded(seed):
        return _recover(seed, joint=joint, angle=np.repeat(ANGLES, channels), n_steps=n_steps)


def _recover(seed: int, *, joint: bool, angle: np.ndarray, n_steps: int | None) -> Recovery:
    rng = torch.Generator().manual_seed(seed)
    teacher = LpConv2d(1, len(angle), KERNEL_SIZE, bias=False)
    student = LpConv2d(1, len(angle), KERNEL_SIZE, bias=False, sigma=_FIRST_SIGMA)
    with torch.no_grad():
        teacher.weight.copy_(torch.randn(teacher.weight.shape, generator=rng))
        teacher.get_parameter("C").copy_(torch.tensor(np.stack([rotated_C(a, *SEMI_AXES) for a in angle])))
        drawn = 0.1 * torch.randn(student.weight.shape, generator=rng)
        student.weight.copy_(drawn if joint else teacher.weight)
    student.weight.requires_grad_(joint)
    teacher.eval()
    trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=_LEARNING_RATE)
    for _ in range(n_steps or (400 if joint else 250)):
        x = torch.randn(_BATCH, 1, _SIDE, _SIDE, generator=rng)
        with torch.no_grad():
            target = teacher(x)
        loss = (student(x) - target).square().mean((0, 2, 3)).sum()
        if joint:
            loss = loss + _PENALTY * student.weight.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = student.shape_summary()
    with torch.no_grad():
        true_masks, found_masks = (layer.mask()[:, 0].numpy() for layer in (teacher, student))
    return Recovery(
        angle=angle,
        found_angle=found["theta"],
        found_gamma=found["gamma"],
        found_p=found["p"],
        error=angular_error(found["theta"], angle),
        rmse=np.sqrt(np.mean((found_masks - true_masks) ** 2, axis=(1, 2))),
        true_masks=true_masks,
        found_masks=found_masks,
    )


def rotated_C(theta: float, long: float, short: float) -> Float[np.ndarray, "2 2"]:
    """The shape matrix of an ellipse: C = diag(1 / short, 1 / long) R, R turning offsets into the axes of the ellipse.

    Args:
        theta: Angle of the long axis in radians, from growing columns towards growing rows.
        long: Semi-axis along it, in taps.
        short: Semi-axis across it.

    Returns:
        (2, 2) matrix that acts on offsets (row, column).

    Source: the level sets |C s| = 1 of the mask.
    """
    along = np.array([math.sin(theta), math.cos(theta)])
    across = np.array([math.cos(theta), -math.sin(theta)])
    return np.stack([across / short, along / long])


def angular_error(a: Float[np.ndarray, " m"], b: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Angle between two undirected axes, in degrees.

    Args:
        a: (m,) angles of the first axes in radians.
        b: (m,) angles of the second.

    Returns:
        (m,) angles in [0, 90].

    Source: ours.
    """
    difference = np.abs(a - b) % math.pi
    return np.degrees(np.minimum(difference, math.pi - difference))
