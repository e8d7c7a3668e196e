from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from icl25_lp_conv import LpConv2d, LpLayer, conversion, convert


class Doubled(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


class Standardised(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight - weight.mean(), bias)


class Named(nn.Conv2d):
    """Only its constructor differs."""

    def __init__(self, channels):
        super().__init__(channels, channels, 3, padding=1)


def converted(model):
    return {name for name, module in model.named_modules() if isinstance(module, LpLayer)}


@pytest.mark.parametrize("cls", [Doubled, Standardised])
def test_subclasses_that_compute_something_else_are_left(cls):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Sequential(cls(2, 2, 3)))
    with pytest.warns(UserWarning, match=f"1.0 was left as it is: its class {cls.__name__} computes something other"):
        large = convert(model)
    assert converted(large) == {"0"}
    assert type(large[1][0]) is cls
    assert cls.__name__ in large.conversion_report.skipped["1.0"]


def test_subclasses_that_compute_the_same_are_converted():
    named = Named(2)
    layer = convert(named, transfer="exact")
    x = torch.randn(1, 2, 9, 9)
    assert type(layer) is LpConv2d
    assert torch.allclose(layer(x), named(x), atol=1e-5)


@pytest.mark.parametrize(
    "alter",
    [
        lambda conv: prune.l1_unstructured(conv, "weight", amount=0.5),
        lambda conv: nn.utils.weight_norm(conv),
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_kernels_that_are_computed_are_left(alter):
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1)).eval()
    alter(model[1])
    x = torch.randn(1, 1, 6, 6)
    expected = model(x)
    with pytest.warns(UserWarning, match="1 was left as it is: its weight is pruned, normalised or otherwise param"):
        large = convert(model, transfer="exact")
    assert converted(large) == {"0"}
    assert torch.allclose(large(x), expected, atol=1e-5)
    large(x).sum().backward()
    assert all(parameter.grad is not None for parameter in large.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


def quantised():
    return torch.ao.nn.qat.Conv2d(1, 1, 3, qconfig=torch.ao.quantization.get_default_qat_qconfig())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.LazyConv2d(2, 3), r"0.inner is a lazy module \(LazyConv2d\)"),
        (lambda: torch.jit.script(nn.Conv2d(1, 1, 3)), "0.inner is a TorchScript module"),
        (lambda: torch.jit.trace(nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 5, 5)), "0.inner is a TorchScript module"),
        (quantised, r"0.inner is a quantised module \(Conv2d\)"),
        (lambda: torch.ao.nn.quantized.Conv2d(1, 1, 3), r"0.inner is a quantised module \(Conv2d\)"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_what_cannot_be_converted_is_named(make, message):
    model = nn.Sequential(nn.ModuleDict({"inner": make()}), nn.Conv2d(1, 1, 3))
    with pytest.raises(TypeError, match=message):
        convert(model)
    assert not isinstance(model[1], LpLayer)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"p": 0}, "p must be positive and finite"),
        ({"p": math.nan}, "p must be positive and finite"),
        ({"sigma": -1.0}, "sigma must be positive and finite"),
        ({"sigma": (1.0, 1.0, 1.0)}, "sigma must be one number or 2, found 3"),
        ({"growth": 1e9}, "growth must be <= 100, found 1000000000.0"),
        ({"min_kernel": 5, "max_kernel": 3}, "min_kernel must be <= max_kernel, found 5 and 3"),
        ({"growth": 0.5}, "growth must be a finite factor >= 1, found 0.5"),
        ({"transfer": "move"}, "transfer must be copy, exact or none, found 'move'"),
        ({"depthwise": "drop"}, "depthwise must be keep or skip, found 'drop'"),
        ({"transfer": "exact", "sigma": 0.3}, "choose a larger sigma, or transfer='copy'"),
    ],
)
def test_bad_arguments_are_refused(given, message, monkeypatch):
    # Without run-time type checks, which would come before.
    monkeypatch.setattr(LpLayer, "from_conv", classmethod(inspect.unwrap(LpLayer.from_conv.__func__)))
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 1))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        inspect.unwrap(convert)(model, inplace=True, **given)
    assert converted(model) == set()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


def test_lazy_layers_are_converted_once_they_know_their_size():
    model = nn.Sequential(nn.LazyConv2d(2, 3, padding=1))
    model(torch.zeros(1, 3, 6, 6))
    assert converted(convert(model)) == {"0"}


def test_networks_without_convolutions_are_left_with_a_warning():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.warns(UserWarning, match="no convolution was converted"):
        same = convert(model)
    assert repr(same) == repr(model)
    assert torch.equal(same[0].weight, model[0].weight)
    assert same.conversion_report.layers == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learn_q": False}, "convert has no option learn_q; those of the layers are learn_C, learn_p, log2p_min"),
        ({"include": 3}, "a selector must be a glob, a class or a function, found 3"),
        ({"exclude": ["a", None]}, "a selector must be a glob, a class or a function, found None"),
        ({"p": "2"}, "p must be a number or None, found '2'"),
    ],
)
def test_arguments_of_a_wrong_kind_are_named(given, message, monkeypatch):
    # Without run-time type checks, which would come before.
    monkeypatch.setattr(LpLayer, "from_conv", classmethod(inspect.unwrap(LpLayer.from_conv.__func__)))
    monkeypatch.setattr(LpLayer, "__init__", inspect.unwrap(LpLayer.__init__))
    monkeypatch.setattr(conversion, "_selectors", inspect.unwrap(conversion._selectors))
    with pytest.raises(TypeError, match=message):
        inspect.unwrap(convert)(nn.Sequential(nn.Conv2d(2, 4, 3)), **given)


def test_tied_biases_stay_tied():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 5))
    model[1].bias = model[0].bias
    large = convert(model)
    assert large[1].bias is large[0].bias
    assert large[1].weight is not large[0].weight
    untied = convert(nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)))
    assert untied[1].bias is not untied[0].bias
