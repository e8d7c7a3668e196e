from __future__ import annotations

import jaxtyping
import pytest
import torch
from torch import nn

from icl25_lp_conv import (
    LpConv1d,
    LpConv2d,
    LpConv3d,
    LpConvTranspose1d,
    LpConvTranspose2d,
    LpConvTranspose3d,
    convert,
    merge,
)
from icl25_lp_conv import masked_product as product_module

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")

KINDS = {
    "1d": (LpConv1d, {"kernel_size": 5, "stride": 2, "padding": 2}),
    "2d": (LpConv2d, {"kernel_size": (3, 5), "padding": 2, "groups": 2}),
    "2d shared": (LpConv2d, {"kernel_size": 3, "groups": 2, "mask_sharing": "group"}),
    "2d circular": (LpConv2d, {"kernel_size": 4, "padding": 2, "padding_mode": "circular", "mask_sharing": "layer"}),
    "2d without masks": (LpConv2d, {"kernel_size": 3, "padding": "same", "p": None}),
    "3d": (LpConv3d, {"kernel_size": 3, "dilation": 2, "padding": "same"}),
    "transposed 1d": (LpConvTranspose1d, {"kernel_size": 4, "stride": 2}),
    "transposed 2d": (LpConvTranspose2d, {"kernel_size": 3, "stride": 2, "groups": 2, "output_padding": 1}),
    "transposed 3d": (LpConvTranspose3d, {"kernel_size": 2, "mask_sharing": "layer"}),
}


@pytest.fixture(autouse=True)
def _compilation():
    """Nothing compiled before; no run-time type checks, which a compiler cannot follow."""
    checks = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    torch.compiler.reset()
    yield
    torch.compiler.reset()
    jaxtyping.config.update("jaxtyping_disable", checks)


def make(kind):
    torch.manual_seed(0)
    cls, given = KINDS[kind]
    layer = cls(2, 4, **given)
    if layer.C is not None:
        with torch.no_grad():
            layer.C.add_(0.2 * torch.randn_like(layer.C))
    return layer, torch.randn(2, 2, *[7] * len(layer.kernel_size))


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1))
    return convert(model, p=4).eval(), torch.randn(2, 2, 8, 8)


def gradients(layer, run, x):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = run(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *[parameter.grad.clone() for parameter in layer.parameters()]]


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_layers_equal_eager_ones(kind):
    layer, x = make(kind)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for expected, found in zip(gradients(layer, layer, x), gradients(layer, compiled, x), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert expected.abs().max() > 0


def test_compiled_layers_in_evaluation_see_new_parameters():
    layer, x = make("2d")
    compiled = torch.compile(layer.eval(), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        layer(x)
        before = compiled(x)
        assert torch.allclose(before, layer(x), atol=1e-6)
        layer.C.mul_(1.5)
        assert torch.allclose(compiled(x), layer(x), atol=1e-6)
        assert not torch.allclose(compiled(x), before, atol=1e-3)


def test_compiled_large_kernels_equal_eager_ones(monkeypatch):
    monkeypatch.setattr(product_module, "_LARGE", 1)
    layer, x = make("2d")
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for expected, found in zip(gradients(layer, layer, x), gradients(layer, compiled, x), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_compiled_networks_train():
    model, x = network()
    compiled = torch.compile(model.train(), fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert sorted(losses, reverse=True) == losses


@pytest.mark.parametrize("merged", [False, True])
def test_networks_are_exported(merged):
    model, x = network()
    expected = model(x)
    program = torch.export.export(merge(model) if merged else model, (x,))
    assert torch.allclose(program.module()(x), expected, atol=1e-5)
    assert any(name.endswith(".C") for name in program.state_dict) is not merged
    with torch.no_grad():
        model(x)  # a kernel that is kept must not end in the program
        again = torch.export.export(merge(model) if merged else model, (x,))
    assert set(again.state_dict) == set(program.state_dict)
    assert torch.allclose(again.module()(x), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_exported(kind):
    layer, x = make(kind)
    program = torch.export.export(layer.eval(), (x,))
    assert torch.allclose(program.module()(x), layer(x), atol=1e-5)


def test_networks_are_traced(tmp_path):
    model, x = network()
    expected = model(x)
    for traced in (torch.jit.trace(merge(model), x), torch.jit.trace(model, x)):
        traced.save(tmp_path / "traced.pt")
        again = torch.jit.load(tmp_path / "traced.pt")
        assert torch.allclose(again(x), expected, atol=1e-5)
        larger = torch.randn(1, 2, 11, 9)
        assert torch.allclose(again(larger), model(larger), atol=1e-5)


def test_merged_networks_are_scripted():
    model, x = network()
    assert torch.allclose(torch.jit.script(merge(model))(x), model(x), atol=1e-5)


def test_merged_networks_are_traced_symbolically():
    model, x = network()
    assert torch.allclose(torch.fx.symbolic_trace(merge(model))(x), model(x), atol=1e-5)
