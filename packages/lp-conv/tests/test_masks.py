from __future__ import annotations

import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_lp_conv import LpConv2d, lp_conv2d, lp_mask
from icl25_lp_conv.masks import init_C, kernel_offsets

CASES = ("p2", "p16", "rot", "rect_stride", "dilated", "even", "depthwise")
seeds = st.integers(0, 10**6)
kernels = st.lists(st.integers(1, 7), min_size=1, max_size=3)


def plain_mask(C, log2p, kernel_size):
    """The mask by its formula, tap by tap, in double precision."""
    C, p = np.asarray(C, float), 2.0 ** np.asarray(log2p, float)
    mask = np.empty((len(C), *kernel_size))
    for index in np.ndindex(*kernel_size):
        s = np.array([m - (k - 1) / 2 for m, k in zip(index, kernel_size, strict=True)])
        with np.errstate(over="ignore"):
            mask[:, *index] = np.exp(-(np.abs(C @ s) ** p[:, None]).sum(1))
    return mask


def random_shapes(seed, c, n, scale=0.6):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(c, n, n)) * scale), torch.from_numpy(rng.uniform(-1, 5, size=c))


def one_mask(C, p, kernel_size):
    return lp_mask(torch.tensor([C], dtype=torch.float64), torch.tensor([p], dtype=torch.float64).log2(), kernel_size)[
        0
    ]


@pytest.mark.parametrize("case", CASES)
def test_masks_equal_those_of_the_authors(golden, case):
    arrays = golden("lpconv2d")
    C, log2p, expected = (arrays[f"{case}/{name}"] for name in ("C", "log2p", "mask"))
    found = lp_mask(torch.from_numpy(C), torch.from_numpy(log2p), expected.shape[1:])
    assert found.numpy() == pytest.approx(expected, rel=2e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ((0, 0), 1),
        ((1, 0), 0.641218382),
        ((1, 1), 0.411161013),
        ((2, 0), 0.169053379),
        ((2, 1), 0.108400134),
        ((2, 2), 0.028579045),
        ((3, 0), 0.018325409),
        ((3, 3), 0.000335821),
    ],
)
def test_gaussian_masks_have_the_known_values(offset, expected):
    mask = lp_mask(init_C(1, (1.5, 1.5), dtype=torch.float64), torch.ones(1, dtype=torch.float64), (7, 7))[0]
    for row, column in {offset, offset[::-1]}:
        for sign in (1, -1):
            assert float(mask[3 + sign * row, 3 - column]) == pytest.approx(expected, rel=1e-8, abs=5e-10)
    assert float(mask.sum()) == pytest.approx(7.06068175, rel=1e-8)


def test_nearly_square_masks_have_the_known_values():
    mask = lp_mask(init_C(1, (1.5, 1.5), dtype=torch.float64), torch.full((1,), 4.0, dtype=torch.float64), (7, 7))[0]
    assert float(mask[4, 3]) == pytest.approx(0.99848034, rel=1e-8)
    assert float(mask[4, 4]) == pytest.approx(0.996962989, rel=1e-8)
    assert float(mask[5, 3]) == pytest.approx(5.18390252e-44, rel=1e-8, abs=0)
    assert float(mask.sum()) == pytest.approx(8.98177332, rel=1e-8)
    single = lp_mask(init_C(1, (1.5, 1.5)), torch.full((1,), 4.0), (7, 7))[0]
    assert float(single[5, 3]) == 0
    assert float(single[4, 3]) == pytest.approx(0.99848034, rel=1e-6)


def test_even_kernels_have_the_known_values():
    mask = lp_mask(init_C(1, (1.0, 1.0), dtype=torch.float64), torch.ones(1, dtype=torch.float64), (4, 4))[0]
    assert mask[1:3, 1:3].numpy() == pytest.approx(np.full((2, 2), 0.606591307), rel=1e-8)
    assert mask[::3, ::3].numpy() == pytest.approx(np.full((2, 2), 0.011118998), rel=5e-8)
    assert float(mask.max()) < 1


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (2, (0.778800783, 0.748263568, 0.506616992, 0.670320046)),
        (4, (0.966861520, 0.937911204, 0.662854347, 0.877042348)),
        (16, (0.999999566, 0.999984741, 0.972244952, 0.999717929)),
    ],
)
def test_skewed_masks_have_the_known_values(p, expected):
    mask = one_mask([[0.5, 0.3], [-0.2, 0.4]], p, (5, 5))
    found = [float(mask[2 + row, 2 + column]) for row, column in ((0, 1), (1, 0), (1, 1), (1, -1))]
    assert found == pytest.approx(expected, rel=1e-8, abs=5e-10)


@settings(max_examples=60, deadline=None)
@given(seeds, kernels)
def test_masks_follow_the_formula(seed, kernel_size):
    C, log2p = random_shapes(seed, 3, len(kernel_size))
    expected = plain_mask(C, log2p, kernel_size)
    assert lp_mask(C, log2p, kernel_size).numpy() == pytest.approx(expected, rel=1e-9, abs=2e-300)
    single = lp_mask(C.float(), log2p.float(), kernel_size).numpy()
    assert single == pytest.approx(plain_mask(C.float(), log2p.float(), kernel_size), rel=3e-3, abs=1e-6)
    assert single.dtype == np.float32


@settings(max_examples=40, deadline=None)
@given(seeds, kernels)
def test_masks_have_their_symmetries(seed, kernel_size):
    n = len(kernel_size)
    C, log2p = random_shapes(seed, 3, n)
    rng = np.random.default_rng(seed)
    mask = lp_mask(C, log2p, kernel_size)
    assert torch.equal(mask, mask.flip(*range(1, n + 1)))
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=(3, n, 1)))
    assert torch.equal(lp_mask(C * signs, log2p, kernel_size), mask)
    assert lp_mask(C[:, rng.permutation(n)], log2p, kernel_size).numpy() == pytest.approx(mask.numpy(), rel=1e-12)
    assert ((mask >= 0) & (mask <= 1)).all()
    wider = lp_mask(0.8 * C, log2p, kernel_size)
    assert (wider >= mask).all()
    assert wider.sum() >= mask.sum()
    if all(k % 2 for k in kernel_size):
        assert (mask[:, *[k // 2 for k in kernel_size]] == 1).all()


def test_axes_are_those_of_the_kernel():
    C = torch.diag(torch.tensor([2.0, 0.1], dtype=torch.float64))[None]
    mask = lp_mask(C, torch.ones(1, dtype=torch.float64), (3, 5))[0]
    assert mask.shape == (3, 5)
    assert float(mask[0, 2]) == pytest.approx(math.exp(-4))
    assert float(mask[1, 0]) == pytest.approx(math.exp(-0.04))


@pytest.mark.parametrize("n", [2, 3])
def test_gaussian_masks_do_not_change_under_rotation(n):
    C, _ = random_shapes(5, 4, n)
    log2p = torch.ones(4, dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.from_numpy(np.random.default_rng(6).normal(size=(4, n, n))))
    kernel_size = (5,) * n
    assert lp_mask(Q @ C, log2p, kernel_size).numpy() == pytest.approx(
        lp_mask(C, log2p, kernel_size).numpy(), rel=1e-10
    )
    C.requires_grad_()
    weights = torch.from_numpy(np.random.default_rng(7).normal(size=(4, *kernel_size)))
    (lp_mask(C, log2p, kernel_size) * weights).sum().backward()
    generator = torch.zeros(n, n, dtype=torch.float64)
    generator[0, 1], generator[1, 0] = 1, -1
    assert float((C.grad * C.detach()).sum().abs()) > 1e-3  # along the scale there is a gradient,
    along = (C.grad * (generator @ C.detach())).sum((1, 2))  # along the rotation of the rows there is none
    assert along.numpy() == pytest.approx(np.zeros(4), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_large_exponents_make_boxes(n):
    C = torch.eye(n, dtype=torch.float64)[None] / 2
    mask = lp_mask(C, torch.full((1,), 10.0, dtype=torch.float64), (7,) * n)[0]
    for index in np.ndindex(*mask.shape):
        offsets = np.abs(np.array(index) - 3)
        expected = 0.0 if (offsets > 2).any() else math.exp(-(offsets == 2).sum())
        assert float(mask[index]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log2p", [-200.0, -2.0, -1.0, 0.0, 1.0, 4.0, 7.0, 10.0, 40.0, 127.0, 128.0, 1e4])
@pytest.mark.parametrize("sigma", [0.02, 1.0, 1.5, 200.0])
def test_values_and_gradients_are_finite_at_any_exponent(dtype, log2p, sigma):
    C = (torch.tensor([[1.0, 0.0], [0.3, -1.0]], dtype=dtype) / sigma)[None].requires_grad_()
    exponent = torch.full((1,), log2p, dtype=dtype, requires_grad=True)
    mask = lp_mask(C, exponent, (7, 7))
    mask.sum().backward()
    assert mask.isfinite().all()
    assert C.grad.isfinite().all()
    assert exponent.grad.isfinite().all()


@pytest.mark.parametrize("log2p", [-2.0, -0.5, 0.0, 1.0, 7.0, 10.0])
def test_the_centre_passes_no_gradient(log2p):
    C = torch.eye(2, dtype=torch.float64)[None].requires_grad_()
    exponent = torch.full((1,), log2p, dtype=torch.float64, requires_grad=True)
    lp_mask(C, exponent, (3, 3))[0, 1, 1].backward()
    assert C.grad.abs().max() == 0
    assert exponent.grad.abs().max() == 0


def test_masks_too_small_to_matter_are_zero():
    C = torch.tensor([[[1.0]]], dtype=torch.float64)
    scale = torch.tensor([68.0, 70.0]).sqrt().view(2, 1, 1)
    single = lp_mask(scale * C.float(), torch.ones(2), (3,))[:, 0].tolist()
    assert single == [pytest.approx(math.exp(-68), rel=1e-4), 0]
    scale = torch.tensor([689.0, 691.0], dtype=torch.float64).sqrt().view(2, 1, 1)
    double = lp_mask(scale * C, torch.ones(2, dtype=torch.float64), (3,))[:, 0].tolist()
    assert double == [pytest.approx(math.exp(-689), rel=1e-9, abs=0), 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_of_half_precision_parameters_are_single(dtype):
    C, log2p = (x.to(dtype) for x in random_shapes(1, 3, 2))
    mask = lp_mask(C, log2p, (5, 5))
    assert mask.dtype == torch.float32
    assert torch.equal(mask, lp_mask(C.float(), log2p.float(), (5, 5)))


def test_autocast_leaves_masks_alone():
    C, log2p = (x.float() for x in random_shapes(2, 3, 2))
    expected = lp_mask(C, log2p, (7, 7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = lp_mask(C, log2p, (7, 7))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@pytest.mark.parametrize("parameter", ["C", "log2p"])
def test_nan_shows(parameter):
    C, log2p = random_shapes(3, 3, 2)
    (C if parameter == "C" else log2p)[1] = math.nan
    mask = lp_mask(C, log2p, (3, 3))
    assert mask[1].isnan().any()
    assert mask[[0, 2]].isfinite().all()


def test_offsets_are_centred():
    rows, columns = kernel_offsets((3, 4), dtype=torch.float64)
    assert rows.dtype == torch.float64
    assert (rows.shape, columns.shape) == ((3, 1), (1, 4))
    assert rows.flatten().tolist() == [-1, 0, 1]
    assert columns.flatten().tolist() == [-1.5, -0.5, 0.5, 1.5]


@pytest.mark.parametrize(("C", "log2p"), [((2, 3, 3), (2,)), ((2, 2, 3), (2,)), ((2, 2, 2), (3,)), ((1, 2, 2), (2,))])
def test_parameters_that_do_not_fit_are_refused(C, log2p):
    with pytest.raises(ValueError, match=r"C must be \(c, 2, 2\) and log2p \(c,\)"):
        inspect.unwrap(lp_mask)(torch.zeros(C), torch.zeros(log2p), (3, 3))  # without run-time type checks


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_radii_are_refused(bad):
    with pytest.raises(ValueError, match="sigma must be positive and finite, found"):
        init_C(2, (1.0, bad))


def test_initial_shapes_are_diagonal():
    C = init_C(2, (1.5, 2.0), dtype=torch.float64)
    assert C.shape == (2, 2, 2)
    assert C[0].numpy() == pytest.approx(np.diag([1 / 1.5001, 1 / 2.0001]), rel=1e-12)
    assert torch.equal(C[0], C[1])


def test_the_function_equals_the_layer():
    torch.manual_seed(0)
    layer = LpConv2d(4, 6, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2, p=3).double()
    with torch.no_grad():
        layer.C.add_(0.2 * torch.randn_like(layer.C))
    x = torch.randn(2, 4, 9, 11, dtype=torch.float64)
    found = lp_conv2d(
        x,
        layer.weight,
        layer.C,
        layer.log2p,
        layer.bias,
        stride=(2, 1),
        padding=(1, 2),
        dilation=(1, 2),
        groups=2,
    )
    assert torch.allclose(found, layer(x), rtol=1e-12)
    half = lp_conv2d(x.bfloat16(), layer.weight.bfloat16(), layer.C, layer.log2p, None, groups=2)
    assert half.dtype == torch.bfloat16
