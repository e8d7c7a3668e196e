from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.growth import centre, grown_kernel_size, grown_padding
from icl25_lp_conv.state_dicts import load_conv_state_dict


def test_kernels_grow_as_in_the_paper():
    sizes = {3: 7, 5: 11, 7: 15, 1: 3, 11: 23, 2: 4, 4: 8}
    assert grown_kernel_size(tuple(sizes), 2) == tuple(sizes.values())
    assert grown_kernel_size((31, 29, 4, 1), 1) == (31, 29, 4, 1)


@given(st.integers(1, 40), st.floats(1, 6))
def test_kernels_grow_by_an_even_number_of_taps(k, growth):
    (new,) = grown_kernel_size([k], growth)
    rule = int(k * growth) + int(k % growth)
    assert new >= k
    assert (new - k) % 2 == 0
    assert 0 <= new - rule <= 1


@pytest.mark.parametrize("bad", [0.5, 0, -1, math.nan, math.inf])
def test_bad_factors_are_refused(bad):
    with pytest.raises(ValueError, match="growth must be a finite factor >= 1, found"):
        grown_kernel_size([3], bad)
    assert grown_kernel_size([3], 100) == (303,)
    with pytest.raises(ValueError, match="growth must be <= 100, found 101"):
        grown_kernel_size([3], 101)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(16, 20),
    st.sampled_from([1, 1.5, 2, 3]),
)
def test_padding_keeps_the_output(k, padding, dilation, stride, size, growth):
    """A grown kernel with the old one in its centre gives the old output, not only its size."""
    (new,) = grown_kernel_size([k], growth)
    (pad,) = grown_padding((padding,), (k,), (new,), (dilation,))
    kernel = torch.arange(1.0, k + 1)
    large = torch.zeros(new)
    centre(large, (k,)).copy_(kernel)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1, size))).float()
    expected = functional.conv1d(x, kernel[None, None], None, stride, padding, dilation)
    found = functional.conv1d(x, large[None, None], None, stride, pad, dilation)
    assert torch.allclose(found, expected, atol=1e-5)


def test_padding_by_name():
    assert grown_padding("same", (3, 3), (7, 7), (1, 1)) == "same"
    assert grown_padding("valid", (3, 5), (7, 11), (1, 2)) == (2, 6)
    assert grown_padding((1, 2), (3, 5), (7, 11), (2, 1)) == (5, 5)
    assert grown_padding((5, 5), (7, 11), (3, 5), (2, 1)) == (1, 2)


def test_the_centre_is_a_view():
    kernel = torch.arange(2 * 7 * 4.0).view(2, 7, 4)
    block = centre(kernel, (3, 2))
    assert torch.equal(block, kernel[:, 2:5, 1:3])
    block.zero_()
    assert kernel[:, 2:5, 1:3].abs().sum() == 0


def test_exact_transfer_divides_the_old_taps_of_kernels_that_grew():
    plain = nn.Conv2d(2, 3, 3, padding=1)
    model = convert(nn.Conv2d(2, 3, 3, padding=1), p=16.0)  # masks are zero in the corners of the large kernel
    load_conv_state_dict(model, plain.state_dict(), transfer="exact")
    x = torch.rand(1, 2, 9, 9)
    torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
    whole = {**model.state_dict(), "weight": torch.ones(3, 2, 7, 7)}
    load_conv_state_dict(model, whole, transfer="exact")
    assert torch.equal(model.weight, whole["weight"])
