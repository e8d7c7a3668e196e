import math

import numpy as np
import pytest
import torch

from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.masks import lp_mask
from icl25_lp_conv.recovery import ANGLES, angular_error, recover, rotated_C
from icl25_lp_conv.recovery_plots import plot_recovery
from icl25_lp_conv.shapes import describe_shapes


@pytest.mark.parametrize("theta", [0.0, 0.4, 1.2, 2.0, 3.0])
def test_rotated_shape_has_the_axes_it_was_made_of(theta):
    C = rotated_C(theta, 5.0, 1.2)
    found = describe_shapes(torch.tensor(C)[None], torch.tensor([1.0]).double(), (13, 13))
    assert float(angular_error(found["theta"], np.array([theta]))[0]) < 1e-6
    assert found["gamma"][0] == pytest.approx(5 / 1.2)
    assert found["alpha"][0] == pytest.approx(math.sqrt(5 * 1.2))


def test_long_axis_along_columns_opens_a_row_of_the_mask():
    mask = lp_mask(torch.tensor(rotated_C(0.0, 5.0, 1.2))[None], torch.tensor([1.0]).double(), (13, 13))[0]
    assert mask[6, 11] == pytest.approx(math.exp(-1))
    assert mask[11, 6] < 1e-7


def test_angular_error_forgets_direction():
    a, b = np.array([0.0, 0.1, math.pi - 0.1, 4.0]), np.array([math.pi, math.pi / 2, 0.1, 0.5])
    expected = [0, 90 - math.degrees(0.1), math.degrees(0.2), math.degrees(3.5 - math.pi)]
    np.testing.assert_allclose(angular_error(a, b), expected, atol=1e-9)


def test_true_masks_point_in_six_directions_channel_by_channel():
    found = recover(0, joint=False, channels=2, n_steps=1)
    degrees = np.repeat([0, 30, 60, 90, 120, 150], 2)
    np.testing.assert_allclose(found.angle, np.radians(degrees))
    for mask, theta in zip(found.true_masks, found.angle, strict=True):
        expected = lp_mask(torch.tensor(rotated_C(theta, 5.0, 1.2))[None], torch.tensor([1.0]).double(), (13, 13))[0]
        np.testing.assert_allclose(mask, expected, atol=1e-5)
    rmse = [np.sqrt(np.square(a - b).mean()) for a, b in zip(found.found_masks, found.true_masks, strict=True)]
    np.testing.assert_allclose(found.rmse, rmse, rtol=1e-5)
    np.testing.assert_allclose(found.error, angular_error(found.found_angle, found.angle))


@pytest.mark.parametrize("joint", [True, False])
def test_training_is_that_of_its_description(joint):
    n_steps = 12
    rng = torch.Generator().manual_seed(3)
    teacher = LpConv2d(1, 6, 13, bias=False).eval()
    student = LpConv2d(1, 6, 13, bias=False, sigma=2.5)
    with torch.no_grad():
        teacher.weight.copy_(torch.randn(6, 1, 13, 13, generator=rng))
        drawn = 0.1 * torch.randn(6, 1, 13, 13, generator=rng)
        student.weight.copy_(drawn if joint else teacher.weight)
        teacher.C.copy_(torch.tensor(np.stack([rotated_C(a, 5.0, 1.2) for a in ANGLES])))
    optimizer = torch.optim.Adam([student.C, student.log2p, *([student.weight] if joint else [])], lr=0.05)
    for _ in range(n_steps):
        x = torch.randn(4, 1, 24, 24, generator=rng)
        difference = student(x) - teacher(x).detach()
        loss = sum(difference[:, channel].square().mean() for channel in range(6))
        optimizer.zero_grad()
        (loss + 1e-3 * student.weight.square().sum()).backward()
        optimizer.step()
    found = recover(3, joint=joint, channels=1, n_steps=n_steps)
    np.testing.assert_allclose(found.found_masks, student.mask()[:, 0].detach(), rtol=0, atol=1e-5)


def test_known_kernels_give_back_the_masks():
    found = recover(7, joint=False, channels=1, n_steps=150)
    assert found.rmse.max() < 0.02
    assert found.error.max() < 0.5
    np.testing.assert_allclose(found.found_gamma, 5 / 1.2, rtol=0.02)
    np.testing.assert_allclose(found.found_p, 2, rtol=0.02)


def test_joint_training_gives_back_the_angles_and_the_same_for_the_same_seed():
    found, again = recover(7, joint=True, channels=1), recover(7, joint=True, channels=1, n_steps=400)
    assert found.error.mean() < 6
    for key in ("found_angle", "found_masks", "rmse"):
        np.testing.assert_array_equal(getattr(found, key), getattr(again, key))


def test_too_little_training_does_not_find_the_angles():
    found = recover(7, joint=True, channels=1, n_steps=2)
    assert found.error.mean() > 12


def test_the_picture_shows_a_column_for_each_direction():
    found = recover(0, joint=False, channels=1, n_steps=1)
    figure = plot_recovery(found, found)
    assert len(figure.axes) == 3 * len(ANGLES)
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), found.true_masks[1])
    np.testing.assert_array_equal(figure.axes[len(ANGLES) + 1].images[0].get_array(), found.found_masks[1])
