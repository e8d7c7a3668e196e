from __future__ import annotations

import inspect
import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, prune

from icl25_lp_conv import (
    LpConv1d,
    LpConv2d,
    LpConv3d,
    LpConvTranspose1d,
    LpConvTranspose2d,
    LpConvTranspose3d,
    LpLayer,
    lp_mask,
)
from icl25_lp_conv.layers import LP_CLASSES

CASES = {
    "p2": {"padding": 3},
    "p16": {"padding": 3},
    "rot": {"padding": 3},
    "rect_stride": {"stride": (2, 1), "padding": (1, 3), "groups": 2},
    "dilated": {"padding": 4, "dilation": 2},
    "even": {"padding": 2},
    "depthwise": {"padding": 3, "groups": 4},
}
ORDINARY = (LpConv1d, LpConv2d, LpConv3d)
TRANSPOSED = (LpConvTranspose1d, LpConvTranspose2d, LpConvTranspose3d)


@st.composite
def arguments(draw):
    """Arguments of an ordinary convolution, of every kind that torch takes, and the input for it."""
    n = draw(st.integers(1, 3))
    axes = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * n))  # noqa: E731
    groups = draw(st.integers(1, 3))
    kernel_size, dilation, stride = axes(1, 5 - n), axes(1, 2), axes(1, 2)
    padding = draw(st.sampled_from(["same", "valid", "numbers"]))
    if padding == "same":
        stride = (1,) * n
    elif padding == "numbers":
        padding = axes(0, 2)
    given = {
        "in_channels": groups * draw(st.integers(1, 2)),
        "out_channels": groups * draw(st.integers(1, 3)),
        "kernel_size": kernel_size,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "bias": draw(st.booleans()),
        "padding_mode": draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"])),
        "dtype": torch.float64,
    }
    if given["padding_mode"] == "reflect" and n == 3:
        given["padding_mode"] = "zeros"
    return n, given


@st.composite
def transposed_arguments(draw):
    n = draw(st.integers(1, 3))
    axes = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * n))  # noqa: E731
    groups, stride = draw(st.integers(1, 3)), axes(1, 3)
    given = {
        "in_channels": groups * draw(st.integers(1, 2)),
        "out_channels": groups * draw(st.integers(1, 3)),
        "kernel_size": axes(1, 5 - n),
        "stride": stride,
        "padding": axes(0, 1),
        "output_padding": tuple(min(s - 1, draw(st.integers(0, 1))) for s in stride),
        "dilation": axes(1, 2),
        "groups": groups,
        "bias": draw(st.booleans()),
        "dtype": torch.float64,
    }
    return n, given


def randomise(layer, seed=0):
    """Masks that differ between channels, are skewed, and are nowhere negligible."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter, scale in ((layer.C, 0.3), (layer.log2p, 0.7)):
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator).to(parameter))
    return layer


def input_for(n, given, size=7):
    return torch.randn(2, given["in_channels"], *[size + i for i in range(n)], dtype=given["dtype"])


def mask_by_hand(layer):
    """The factor of each entry of the weight, entry by entry."""
    masks = lp_mask(layer.C, layer.log2p, layer.kernel_size)
    factor = torch.empty_like(layer.weight)
    out, groups = layer.out_channels, layer.groups
    for i, j in product(range(layer.weight.shape[0]), range(layer.weight.shape[1])):
        group = i // (layer.in_channels // groups)
        channel = group * (out // groups) + j if layer.transposed else i
        which = {"channel": channel, "group": channel // (out // groups), "layer": 0}[layer.mask_sharing]
        factor[i, j] = masks[which]
    return factor


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_equal_those_of_the_authors(golden, case):
    arrays = {key.split("/")[1]: value for key, value in golden("lpconv2d").items() if key.startswith(f"{case}/")}
    out, _, *kernel_size = arrays["weight"].shape
    layer = LpConv2d(arrays["x"].shape[1], out, kernel_size, bias="bias" in arrays, **CASES[case])
    names = [name for name in ("weight", "bias", "C", "log2p") if name in arrays]
    layer.load_state_dict({name: torch.from_numpy(arrays[name]) for name in names})
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    y = layer(x)
    assert y.detach().numpy() == pytest.approx(arrays["y"], rel=2e-5, abs=1e-6)
    assert layer.mask().detach()[:, 0].numpy() == pytest.approx(arrays["mask"], rel=2e-5, abs=1e-6)
    y.backward(torch.from_numpy(arrays["dy"]))
    assert x.grad.numpy() == pytest.approx(arrays["grad_x"], rel=2e-5, abs=2e-6)
    for name in names:
        tolerance = {"rel": 1e-4, "abs": 1e-4} if name in ("C", "log2p") else {"rel": 2e-5, "abs": 5e-6}
        assert getattr(layer, name).grad.numpy() == pytest.approx(arrays[f"grad_{name}"], **tolerance), name


@settings(max_examples=80, deadline=None)
@given(arguments())
def test_open_masks_give_the_layer_of_torch_bit_by_bit(drawn):
    n, given = drawn
    layer = ORDINARY[n - 1](**given)
    plain = layer.plain(**given)
    plain.load_state_dict({key: value for key, value in layer.state_dict().items() if key in ("weight", "bias")})
    nn.init.zeros_(layer.C)
    x = input_for(n, given)
    assert torch.equal(layer(x), plain(x))
    assert (layer.mask() == 1).all()


@settings(max_examples=60, deadline=None)
@given(transposed_arguments())
def test_open_masks_give_the_transposed_layer_of_torch_bit_by_bit(drawn):
    n, given = drawn
    layer = TRANSPOSED[n - 1](**given)
    plain = layer.plain(**given)
    plain.load_state_dict({key: value for key, value in layer.state_dict().items() if key in ("weight", "bias")})
    nn.init.zeros_(layer.C)
    x = input_for(n, given, 4)
    y = layer(x)
    assert torch.equal(y, plain(x))
    largest = [
        size - extra + s - 1 for size, extra, s in zip(y.shape[2:], layer.output_padding, layer.stride, strict=True)
    ]
    assert torch.equal(layer(x, output_size=largest), plain(x, output_size=largest))
    assert layer(x, output_size=largest).shape[2:] == tuple(largest)


@settings(max_examples=60, deadline=None)
@given(st.one_of(arguments(), transposed_arguments()), st.sampled_from(["channel", "group", "layer"]))
def test_kernels_are_multiplied_by_their_masks(drawn, mask_sharing):
    n, given = drawn
    classes = TRANSPOSED if "output_padding" in given else ORDINARY
    layer = randomise(classes[n - 1](**given, mask_sharing=mask_sharing))
    assert torch.equal(layer.masked_weight(), layer.weight * mask_by_hand(layer))
    factor = mask_by_hand(layer)
    count = {"channel": layer.out_channels, "group": layer.groups, "layer": 1}[mask_sharing]
    assert (len(layer.C), len(layer.log2p)) == (count, count)
    mask = layer.mask()
    assert mask.shape == (layer.out_channels, 1, *layer.kernel_size)
    if not layer.transposed:
        assert torch.equal(mask.expand_as(factor), factor)
    else:
        assert torch.equal(mask[: factor.shape[1], 0], factor[0])
    plain = layer.plain(**given)
    with torch.no_grad():
        plain.weight.copy_(layer.weight * factor)
        if layer.bias is not None:
            plain.bias.copy_(layer.bias)
    x = input_for(n, given)
    assert torch.allclose(layer(x), plain(x), rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.one_of(arguments(), transposed_arguments()), st.sampled_from(["channel", "group", "layer"]))
def test_merged_layers_compute_the_same(drawn, mask_sharing):
    n, given = drawn
    given = {**given, "dtype": torch.float32}
    classes = TRANSPOSED if "output_padding" in given else ORDINARY
    layer = randomise(classes[n - 1](**given, mask_sharing=mask_sharing))
    merged = layer.to_conv()
    assert type(merged) is layer.plain
    x = input_for(n, given)
    y = layer(x)
    assert (merged(x) - y).abs().max() <= 1e-5 * y.abs().max()
    if "output_padding" in given:
        size = [k + s - 1 - p for k, s, p in zip(y.shape[2:], layer.stride, layer.output_padding, strict=True)]
        assert merged(x, size).shape == layer(x, size).shape


def test_layers_are_layers_of_torch():
    assert len(LP_CLASSES) == 6
    for plain, cls in LP_CLASSES.items():
        layer = cls(2, 4, 3)
        assert isinstance(layer, plain)
        assert isinstance(layer, LpLayer)
        assert cls.plain is plain
        assert [name for name, _ in layer.named_parameters()] == ["weight", "bias", "C", "log2p"]
        assert set(layer.state_dict()) == {"weight", "bias", "C", "log2p"}
        n = len(layer.kernel_size)
        assert (layer.C.shape, layer.log2p.shape) == ((4, n, n), (4,))


def test_masks_start_as_asked():
    layer = LpConv2d(1, 2, (7, 3), p=16, dtype=torch.float64)
    assert layer.log2p.tolist() == [4, 4]
    assert layer.p.tolist() == [16, 16]
    assert layer.C[1].detach().numpy() == pytest.approx(np.diag([1 / 1.7501, 1 / 0.7501]))
    assert LpConv2d(1, 2, 7, sigma=1.5).C[0, 1, 1].item() == pytest.approx(1 / 1.5001)
    assert torch.diagonal(LpConv2d(1, 1, 7, sigma=(1.5, 2)).C[0]).tolist() == pytest.approx([1 / 1.5001, 1 / 2.0001])
    assert (layer.C.requires_grad, layer.log2p.requires_grad) == (True, True)
    frozen = LpConv2d(1, 2, 7, learn_p=False, learn_C=False)
    assert (frozen.C.requires_grad, frozen.log2p.requires_grad) == (False, False)


def test_weights_start_as_in_torch():
    torch.manual_seed(3)
    expected = nn.Conv2d(2, 4, 5)
    torch.manual_seed(3)
    layer = LpConv2d(2, 4, 5)
    assert torch.equal(layer.weight, expected.weight)
    assert torch.equal(layer.bias, expected.bias)


def test_resetting_parameters_resets_masks():
    layer = randomise(LpConv2d(2, 4, 5, p=4, sigma=(1.0, 2.0)))
    before = layer.weight.detach().clone()
    layer.reset_parameters()
    fresh = LpConv2d(2, 4, 5, p=4, sigma=(1.0, 2.0))
    assert torch.equal(layer.C, fresh.C)
    assert torch.equal(layer.log2p, fresh.log2p)
    assert not torch.equal(layer.weight, before)


def test_layers_without_masks_are_plain():
    layer = LpConv2d(2, 4, 5, p=None)
    assert set(layer.state_dict()) == {"weight", "bias"}
    assert (layer.C, layer.log2p, layer.p) == (None, None, None)
    x = torch.randn(1, 2, 8, 8)
    assert torch.equal(layer(x), nn.functional.conv2d(x, layer.weight, layer.bias))
    assert torch.equal(layer.eval()(x), layer.to_conv()(x))
    assert torch.equal(layer.mask(), torch.ones(4, 1, 5, 5))
    layer.reset_parameters()
    with pytest.raises(ValueError, match="no masks"):
        layer.shape_summary()


def test_shapes_are_summarised_by_mask():
    summary = LpConv2d(2, 4, 7, p=4, sigma=(1.0, 2.0)).shape_summary()
    assert {len(column) for column in summary.values()} == {4}
    assert summary["gamma"] == pytest.approx(np.full(4, 2.0001 / 1.0001), rel=1e-5)
    assert summary["p"] == pytest.approx(np.full(4, 4.0))
    assert len(LpConv2d(2, 4, 7, groups=2, mask_sharing="group").shape_summary()["p"]) == 2


def test_layers_say_what_they_are():
    text = repr(LpConv2d(2, 4, 7, p=4, mask_sharing="layer", learn_p=False))
    assert text == "LpConv2d(2, 4, kernel_size=(7, 7), stride=(1, 1), p=4, mask_sharing=layer, frozen=log2p)"
    assert "frozen=C+log2p" in repr(LpConv2d(2, 4, 7, learn_p=False, learn_C=False))
    assert repr(LpConv1d(2, 4, 7)).endswith("p=2)")
    assert repr(LpConv1d(2, 4, 7, p=None)).endswith("p=None)")


@pytest.mark.parametrize("bad", [0, -2.0, math.nan, math.inf])
def test_bad_exponents_are_refused(bad):
    with pytest.raises(ValueError, match="p must be positive and finite, or None for no mask, found"):
        LpConv2d(1, 1, 3, p=bad)


@pytest.mark.parametrize("bad", [0, -2.0, math.nan, math.inf, (1.0, 0.0)])
def test_bad_radii_are_refused(bad):
    with pytest.raises(ValueError, match="sigma must be positive and finite, found"):
        LpConv2d(1, 1, 3, sigma=bad)


def test_other_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="sigma must be one number or 2, found 3"):
        LpConv2d(1, 1, 3, sigma=(1, 1, 1))
    with pytest.raises(ValueError, match="log2p_min must be finite, found nan"):
        LpConv2d(1, 1, 3, log2p_min=math.nan)
    with pytest.raises(ValueError, match="divisible by groups"):
        LpConv2d(3, 4, 3, groups=2)
    with pytest.raises(ValueError, match="strided"):
        LpConv2d(1, 1, 3, padding="same", stride=2)
    with pytest.raises(ValueError, match="zeros"):
        LpConvTranspose2d(1, 1, 3, padding_mode="reflect")


def test_unknown_sharing_is_refused():
    init = inspect.unwrap(LpLayer.__init__)  # without run-time type checks
    with pytest.raises(ValueError, match="mask_sharing must be one of channel, group, layer, found 'row'"):
        init(LpConv2d.__new__(LpConv2d), 1, 1, 3, mask_sharing="row")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("cls", [LpConv1d, LpConv2d, LpConv3d, LpConvTranspose2d])
def test_other_precisions_work(cls, dtype):
    layer = randomise(cls(2, 4, 3, padding=1))
    x = torch.randn(2, 2, *[6] * len(layer.kernel_size))
    expected = layer(x)
    cast = cls(2, 4, 3, padding=1, dtype=dtype)
    cast.load_state_dict(layer.state_dict())
    y = cast(x.to(dtype))
    assert y.dtype == dtype
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 5e-2, torch.float64: 1e-5}[dtype]
    assert (y.float() - expected).abs().max() < tolerance * max(1, expected.abs().max())
    y.float().square().mean().backward()
    assert all(parameter.grad.dtype == dtype and parameter.grad.isfinite().all() for parameter in cast.parameters())
    assert torch.equal(layer.to(dtype)(x.to(dtype)), y)


def test_half_precision_masks_are_rounded_only_once():
    layer = randomise(LpConv2d(2, 4, 7)).bfloat16()
    mask = lp_mask(layer.C.float(), layer.log2p.float(), (7, 7)).bfloat16().unsqueeze(1)
    assert torch.equal(layer.masked_weight(), layer.weight * mask)
    assert layer.mask().dtype == torch.float32


def test_autocast_rounds_the_convolution_alone():
    layer = randomise(LpConv2d(2, 4, 5, padding=2))
    x = torch.randn(2, 2, 8, 8)
    expected = layer.masked_weight()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, y = layer.masked_weight(), layer(x)
        assert torch.equal(y, nn.functional.conv2d(x, expected, layer.bias, padding=2))
    assert torch.equal(found, expected)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.C.grad.dtype == torch.float32
    assert layer.C.grad.abs().max() > 0


def test_inputs_without_batch_work():
    layer = randomise(LpConv2d(2, 4, 3))
    x = torch.randn(2, 6, 6)
    assert torch.allclose(layer(x), layer(x[None])[0], atol=1e-6)


def test_nan_is_named_in_anomaly_detection():
    layer = LpConv2d(2, 4, 3)
    with torch.no_grad():
        layer.C[2, 0, 1] = math.nan
    x = torch.randn(1, 2, 5, 5)
    assert layer(x)[0, 2].isnan().all()
    for mode in (True, False):
        with torch.autograd.detect_anomaly(check_nan=False), pytest.raises(ValueError, match="channel 2 of LpConv2d"):
            layer.train(mode)(x)
    with torch.autograd.detect_anomaly(check_nan=False):
        LpConv2d(2, 4, 3)(x)


@pytest.mark.parametrize("cls", [LpConv2d, LpConvTranspose2d])
def test_weight_norm_works_on_top(cls):
    layer = parametrizations.weight_norm(randomise(cls(2, 4, 3)))
    x = torch.randn(1, 2, 6, 6)
    plain = cls.plain(2, 4, 3)
    with torch.no_grad():
        plain.weight.copy_(layer.weight * mask_by_hand(layer))
        plain.bias.copy_(layer.bias)
    assert torch.allclose(layer(x), plain(x), atol=1e-6)
    layer(x).square().sum().backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in layer.parameters())
    assert torch.allclose(layer.to_conv()(x), plain(x), atol=1e-6)


def test_pruning_works_on_top():
    layer = randomise(LpConv2d(2, 4, 3))
    prune.l1_unstructured(layer, "weight", amount=0.5)
    x = torch.randn(1, 2, 6, 6)
    assert (layer.masked_weight() == 0).sum() == layer.weight.numel() // 2
    layer(x).sum().backward()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    optimizer.step()  # layer.weight, which a hook computes, is stale now
    merged = layer.to_conv()
    assert torch.allclose(merged(x), layer(x), atol=1e-6)
    assert not any(type(hook).__module__.startswith("torch") for hook in merged._forward_pre_hooks.values())
    prune.remove(layer, "weight")
    assert torch.allclose(merged(x), layer.eval()(x), atol=1e-6)
