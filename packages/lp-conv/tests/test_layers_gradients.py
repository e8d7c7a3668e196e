from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from icl25_lp_conv import LpConv1d, LpConv2d, LpConv3d, LpConvTranspose1d, LpConvTranspose2d, LpConvTranspose3d, lp_mask
from icl25_lp_conv import masked_product as module
from icl25_lp_conv.masked_product import masked_product

LAYERS = {
    "1d": (LpConv1d, {"kernel_size": 4, "stride": 2, "padding": 1}),
    "2d": (LpConv2d, {"kernel_size": (3, 4), "stride": (1, 2), "padding": 2, "dilation": (2, 1), "groups": 2}),
    "2d reflect": (LpConv2d, {"kernel_size": 3, "padding": 1, "padding_mode": "reflect"}),
    "3d": (LpConv3d, {"kernel_size": (2, 3, 2), "padding": "same"}),
    "transposed 1d": (LpConvTranspose1d, {"kernel_size": 4, "stride": 2}),
    "transposed 2d": (LpConvTranspose2d, {"kernel_size": (3, 2), "stride": 2, "groups": 2, "output_padding": 1}),
    "transposed 3d": (LpConvTranspose3d, {"kernel_size": (2, 3, 2)}),
}
seeded = np.random.default_rng


def doubles(seed, *shape, requires_grad=True):
    return torch.from_numpy(seeded(seed).normal(size=shape)).requires_grad_(requires_grad)


@pytest.fixture
def chunks(monkeypatch):
    """Chunks of a single channel, however small the kernel."""
    monkeypatch.setattr(module, "_LARGE", 1)
    monkeypatch.setattr(module, "_CHUNK", 1)


@pytest.mark.parametrize("sharing", ["channel", "group", "layer"])
@pytest.mark.parametrize("kind", LAYERS)
def test_gradients_equal_finite_differences(kind, sharing, chunks):
    cls, given = LAYERS[kind]
    layer = cls(2, 4, mask_sharing=sharing, dtype=torch.float64, **given)
    n = len(layer.kernel_size)
    names = ("weight", "bias", "C", "log2p")
    parameters = [doubles(i, *getattr(layer, name).shape) for i, name in enumerate(names)]
    parameters[2] = (0.5 * parameters[2]).detach().requires_grad_()

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert gradcheck(run, (doubles(9, 1, 2, *[4] * n), *parameters), atol=1e-6, fast_mode=n == 3)


def test_gradients_of_masks_equal_finite_differences():
    for n, kernel_size in ((1, (5,)), (2, (4, 3)), (3, (2, 3, 3))):
        C, log2p = doubles(n, 2, n, n), doubles(n + 10, 2)
        assert gradcheck(lambda C, log2p, k=kernel_size: lp_mask(C, log2p, k), (C, log2p))
        assert gradgradcheck(lambda C, log2p, k=kernel_size: lp_mask(C, log2p, k), (C, log2p), atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 2, 4), (4, 1, 2, 3), (2, 3, 2, 1, 2)])
def test_products_in_chunks_are_differentiable_in_every_way(chunks, shape):
    weight, mask = doubles(1, *shape), doubles(2, shape[0], *shape[2:])
    assert "MaskedProduct" in type(masked_product(weight, mask).grad_fn).__name__
    assert gradcheck(masked_product, (weight, mask), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(masked_product, (weight, mask))
    frozen = mask.detach()
    assert gradcheck(lambda weight: masked_product(weight, frozen), (weight,), check_forward_ad=True)
    assert gradcheck(lambda mask: masked_product(weight.detach(), mask), (mask,), check_forward_ad=True)


@pytest.mark.parametrize("chunk", [1, 20, 10**6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_in_chunks_equal_plain_ones(monkeypatch, chunk, dtype):
    shape = (5, 3, 2, 4)
    weight, mask, gradient = (doubles(i, *s).to(dtype) for i, s in enumerate((shape, (5, 2, 4), shape)))
    plain = masked_product(weight, mask)
    assert "MaskedProduct" not in type(plain.grad_fn).__name__
    expected = torch.autograd.grad(plain, (weight, mask), gradient)
    monkeypatch.setattr(module, "_LARGE", 120)
    monkeypatch.setattr(module, "_CHUNK", chunk)
    found = masked_product(weight, mask)
    assert "MaskedProduct" in type(found.grad_fn).__name__
    assert torch.equal(found, plain)
    # A gradient that is an expanded scalar has no strides to rely on.
    for g, e in zip(torch.autograd.grad(found, (weight, mask), gradient, retain_graph=True), expected, strict=True):
        assert torch.allclose(g, e, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5)
    ones = torch.autograd.grad(found.sum(), mask)[0]
    assert torch.allclose(ones, weight.sum(1), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-2)


def test_large_kernels_go_in_chunks_unasked():
    weight, mask = torch.randn(64, 64, 8, 8, requires_grad=True), torch.rand(64, 8, 8, requires_grad=True)
    assert weight.numel() == 1 << 18
    product = masked_product(weight, mask)
    assert "MaskedProduct" in type(product.grad_fn).__name__
    gradient = torch.randn_like(product)
    product.backward(gradient)
    assert torch.allclose(weight.grad, gradient * mask.unsqueeze(1))
    assert torch.allclose(mask.grad, (gradient * weight).sum(1), atol=1e-4)


def test_gradients_of_each_sample_can_be_batched(chunks):
    weight, mask, gradients = doubles(1, 3, 2, 5), doubles(2, 3, 5), doubles(3, 4, 3, 2, 5)

    def loss(weight, mask, gradient):
        return (masked_product(weight, mask) * gradient).sum()

    found = torch.func.vmap(torch.func.grad(loss, (0, 1)), (None, None, 0))(weight, mask, gradients)
    again = torch.autograd.grad(masked_product(weight, mask), (weight, mask), gradients, is_grads_batched=True)
    for grad_weight, grad_mask in (found, again):
        assert torch.allclose(grad_weight, gradients * mask.unsqueeze(1))
        assert torch.allclose(grad_mask, (gradients * weight).sum(2))
    stacked = torch.func.vmap(masked_product)(weight.expand(2, 3, 2, 5), mask.expand(2, 3, 5))
    assert torch.equal(stacked[1], masked_product(weight, mask))
    _, tangent = torch.func.jvp(masked_product, (weight, mask), (weight, mask))
    assert torch.allclose(tangent, 2 * weight * mask.unsqueeze(1))


def test_gradients_stay_finite_at_any_exponent():
    for log2p in (-2.0, -1.0, 0.0, 1.0, 4.0, 7.0, 10.0):
        layer = LpConv2d(2, 3, 7, padding=3, p=2.0**log2p, sigma=1.5)
        layer(torch.randn(1, 2, 7, 7)).square().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in layer.parameters()), log2p


def test_training_recovers_a_mask():
    torch.manual_seed(0)
    hidden = LpConv2d(1, 2, 7, p=2, sigma=(1.0, 2.0))
    student = LpConv2d(1, 2, 7, p=4, sigma=1.5)
    student.load_state_dict({**student.state_dict(), "weight": hidden.weight, "bias": hidden.bias})
    optimizer = torch.optim.Adam([student.C, student.log2p], lr=0.03)
    x = torch.randn(16, 1, 16, 16)
    target = hidden(x).detach()
    for _ in range(120):
        optimizer.zero_grad()
        (student(x) - target).square().mean().backward()
        optimizer.step()
    assert (student.mask() - hidden.mask()).square().mean().sqrt() < 0.02
