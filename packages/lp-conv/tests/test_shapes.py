from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_lp_conv import LpConv2d
from icl25_lp_conv.shapes import describe_shapes


def shape_matrix(long, short, theta):
    """Precision of an ellipse whose long axis lies at angle theta from the columns towards the rows."""
    along = np.array([math.sin(theta), math.cos(theta)])  # (row, column)
    across = np.array([math.cos(theta), -math.sin(theta)])
    return np.stack([across / short, along / long])


@settings(max_examples=60, deadline=None)
@given(st.floats(1, 5), st.floats(1.05, 6), st.floats(0, 3.1), st.integers(0, 10**6))
def test_ellipses_are_recovered(short, gamma, theta, seed):
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(2, 2)))
    C = torch.from_numpy(Q @ shape_matrix(short * gamma, short, theta))[None]
    found = describe_shapes(C, torch.tensor([2.0], dtype=torch.float64), (7, 7))
    assert found["alpha"][0] == pytest.approx(short * math.sqrt(gamma), rel=1e-9)
    assert found["gamma"][0] == pytest.approx(gamma, rel=1e-9)
    difference = (found["theta"][0] - theta) % math.pi
    assert min(difference, math.pi - difference) < 1e-6
    assert found["p"][0] == 4


def test_the_long_axis_is_where_the_mask_is_long():
    for theta, (row, column) in ((0, (0, 1)), (math.pi / 4, (1, 1)), (math.pi / 2, (1, 0)), (3 * math.pi / 4, (1, -1))):
        layer = LpConv2d(1, 1, 9, dtype=torch.float64)
        with torch.no_grad():
            layer.C[0] = torch.from_numpy(shape_matrix(4, 1, theta))
        mask = layer.mask()[0, 0].detach()
        assert float(mask[4 + 2 * row, 4 + 2 * column]) > 0.3 > float(mask[4 + 2 * column, 4 - 2 * row])
        assert layer.shape_summary()["theta"][0] == pytest.approx(theta, abs=1e-9)


@pytest.mark.parametrize("row", [0.0, -0.0, 1e-18, -1e-18])
@pytest.mark.parametrize("column", [1.0, -1.0])
def test_angles_lie_below_pi(monkeypatch, row, column):
    longest = np.array([[[column, -row], [row, column]]])
    monkeypatch.setattr(np.linalg, "svd", lambda C: (None, np.array([[2.0, 1.0]]), longest))
    theta = describe_shapes(torch.eye(2)[None], torch.ones(1), (5, 5))["theta"][0]
    assert 0 <= theta < math.pi
    assert theta == pytest.approx(0, abs=1e-12)


def test_areas_and_sparsity_are_those_of_the_mask():
    C, log2p = torch.eye(2, dtype=torch.float64).repeat(2, 1, 1), torch.ones(2, dtype=torch.float64)
    C[0] /= 1.5001
    C[1] = 0
    found = describe_shapes(C, log2p, (7, 7))
    assert found["area"] == pytest.approx([7.06068175, 49], rel=1e-8)
    # Below 0.01 are the taps at squared distance 13 and 18; (3, 1) is at 0.0118.
    assert found["sparsity"] == pytest.approx([12 / 49, 0])
    assert found["alpha"].tolist() == [pytest.approx(1.5001), math.inf]
    assert found["gamma"].tolist() == [pytest.approx(1), math.inf]
    frame = pd.DataFrame(found)
    assert list(frame.columns) == ["channel", "p", "alpha", "gamma", "theta", "area", "sparsity"]
    assert frame["channel"].tolist() == [0, 1]


def test_other_numbers_of_axes_are_described():
    line = describe_shapes(torch.tensor([[[0.5]]]), torch.ones(1), (5,))
    assert "theta" not in line
    assert (line["alpha"][0], line["gamma"][0]) == (pytest.approx(2), pytest.approx(1))
    solid = describe_shapes(torch.diag(torch.tensor([1.0, 0.25, 0.5]))[None], torch.ones(1), (3, 3, 3))
    assert [float(solid[f"axis_{i}"][0]) for i in range(3)] == pytest.approx([0, 1, 0], abs=1e-6)
    assert solid["alpha"][0] == pytest.approx(2)
    assert solid["gamma"][0] == pytest.approx(4)
    turned = describe_shapes(-torch.diag(torch.tensor([1.0, 0.25, 0.5]))[None], torch.ones(1), (3, 3, 3))
    assert turned["axis_1"][0] == pytest.approx(1)
