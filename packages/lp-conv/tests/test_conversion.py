from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from icl25_lp_conv import (
    ConversionReport,
    LpConv1d,
    LpConv2d,
    LpConv3d,
    LpConvTranspose1d,
    LpConvTranspose2d,
    LpLayer,
    convert,
    lp_mask,
)

GOLDEN = {
    "k3s1p1": ((7, 7), (3, 3)),
    "k7s2p3": ((15, 15), (7, 7)),
    "k1": ((3, 3), (1, 1)),
    "k5p2": ((11, 11), (5, 5)),
    "k4s4p0": ((8, 8), (2, 2)),
}
OLD = {"k3s1p1": (1, 1), "k7s2p3": (2, 3), "k1": (1, 0), "k5p2": (1, 2), "k4s4p0": (4, 0)}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return x + self.conv2(self.conv1(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(Block(), Block())
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.depthwise(self.layer1(self.norm(self.stem(x)))).mean((2, 3)))


def net(seed=0):
    torch.manual_seed(seed)
    return Net()


def converted(model):
    return {name for name, module in model.named_modules() if isinstance(module, LpLayer)}


ALL = {"stem", "depthwise"} | {f"layer1.{i}.conv{j}" for i in (0, 1) for j in (1, 2)}
X = torch.linspace(-1, 1, 2 * 2 * 16 * 16).mul(7).sin().view(2, 2, 16, 16)


@pytest.mark.parametrize("case", GOLDEN)
def test_conversion_equals_that_of_the_authors(golden, case):
    arrays = {k.split("/")[1]: torch.from_numpy(v) for k, v in golden("convert").items() if k.startswith(f"{case}/")}
    out, into, *kernel_size = arrays["conv_weight"].shape
    conv = nn.Conv2d(into, out, kernel_size, *OLD[case])
    conv.load_state_dict({"weight": arrays["conv_weight"], "bias": arrays["conv_bias"]})
    x = arrays["x"]
    assert torch.allclose(conv(x), arrays["conv_y"], rtol=2e-5, atol=1e-6)
    layer = convert(conv)
    assert (layer.kernel_size, layer.padding) == GOLDEN[case]
    assert layer.stride == conv.stride
    for name in ("weight", "C", "log2p"):
        assert torch.allclose(getattr(layer, name), arrays[f"lp_{name}"], rtol=2e-5, atol=1e-6), name
    assert torch.equal(layer.weight, arrays["lp_weight"])
    assert torch.equal(layer.bias, arrays["conv_bias"])
    assert torch.allclose(layer(x), arrays["lp_y"], rtol=2e-5, atol=1e-6)


def test_every_convolution_is_converted():
    model = net()
    large = convert(model)
    assert converted(large) == ALL
    assert (large.stem.kernel_size, large.stem.padding, large.stem.stride) == ((11, 11), (5, 5), (2, 2))
    assert (large.layer1[0].conv2.kernel_size, large.layer1[0].conv2.padding) == ((3, 3), (1, 1))
    assert large.depthwise.groups == 4
    assert large(X).shape == model(X).shape
    assert converted(model) == set()
    assert not hasattr(model, "conversion_report")
    assert isinstance(large.norm, nn.BatchNorm2d)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"include": "stem"}, {"stem"}),
        ({"include": "layer1.*"}, {name for name in ALL if name.startswith("layer1")}),
        ({"include": "*.conv1"}, {"layer1.0.conv1", "layer1.1.conv1"}),
        ({"include": ["stem", "layer1.0.*"]}, {"stem", "layer1.0.conv1", "layer1.0.conv2"}),
        ({"include": nn.Conv2d}, ALL),
        ({"include": nn.Conv2d, "exclude": "stem"}, ALL - {"stem"}),
        ({"exclude": ("stem", lambda name, module: module.groups > 1)}, ALL - {"stem", "depthwise"}),
        ({"exclude": lambda name, module: module.kernel_size == (1, 1)}, {n for n in ALL if not n.endswith("conv2")}),
        ({"include": lambda name, module: name.endswith("conv2"), "exclude": "*0*"}, {"layer1.1.conv2"}),
        ({"min_kernel": 3}, {n for n in ALL if not n.endswith("conv2")}),
        ({"max_kernel": 3}, ALL - {"stem"}),
        ({"min_kernel": 2, "max_kernel": 4}, {"depthwise", "layer1.0.conv1", "layer1.1.conv1"}),
        ({"depthwise": "skip"}, ALL - {"depthwise"}),
    ],
)
def test_layers_are_selected(given, expected):
    model = convert(net(), **given)
    assert converted(model) == expected
    report = model.conversion_report
    assert {layer.name for layer in report.layers} == expected
    assert set(report.skipped) == ALL - expected


def test_dense_layers_of_one_channel_are_not_depthwise():
    assert isinstance(convert(nn.Conv2d(1, 4, 3), depthwise="skip"), LpConv2d)
    assert isinstance(convert(nn.Conv2d(4, 4, 3, groups=2), depthwise="skip"), LpConv2d)


def test_long_kernels_are_measured_along_each_axis():
    model = nn.Sequential(nn.Conv2d(1, 1, (1, 7)), nn.Conv2d(1, 1, 3))
    assert converted(convert(model, min_kernel=3)) == {"1"}
    assert converted(convert(model, max_kernel=5)) == {"1"}


def test_a_second_conversion_changes_nothing():
    once = convert(net())
    with pytest.warns(UserWarning, match="no convolution was converted"):
        twice = convert(once)
    assert {type(module) for module in twice.modules()} == {type(module) for module in once.modules()}
    for name, value in once.state_dict().items():
        assert torch.equal(twice.state_dict()[name], value)
    assert set(twice.conversion_report.skipped.values()) == {"an Lp layer already"}
    later = convert(convert(net(), include="stem"))
    assert converted(later) == ALL
    assert later.stem.kernel_size == (11, 11)


def test_the_network_may_be_a_single_layer():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    for inplace in (False, True):
        layer = convert(conv, inplace=inplace)
        assert type(layer) is LpConv2d
        assert [replaced.name for replaced in layer.conversion_report.layers] == [""]
        assert "(the network)" in str(layer.conversion_report)
    assert type(convert(nn.Conv1d(2, 3, 3))) is LpConv1d
    assert type(convert(nn.Conv3d(2, 3, 3))) is LpConv3d


def test_in_place_means_the_same_network():
    model = net()
    stem = model.stem
    assert convert(model, inplace=True) is model
    assert converted(model) == ALL
    assert isinstance(stem, nn.Conv2d)
    assert not isinstance(stem, LpLayer)


def test_the_original_is_left_alone():
    model = net()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    large = convert(model)
    with torch.no_grad():
        for parameter in large.parameters():
            parameter.add_(1)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert list(model.state_dict()) == list(state)


def test_a_layer_in_two_places_stays_one():
    conv = nn.Conv2d(2, 2, 3, padding=1)
    model = convert(nn.Sequential(conv, nn.ReLU(), nn.ModuleDict({"again": conv}), nn.Conv2d(2, 2, 3, padding=1)))
    assert model[0] is model[2]["again"]
    assert model[0] is not model[3]
    assert model[0].weight is not model[3].weight
    assert len(model.conversion_report.layers) == 2


@pytest.mark.parametrize("transfer", ["copy", "exact", "none"])
def test_tied_kernels_stay_tied(transfer):
    first, second, third = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(3))
    second.weight = first.weight
    model = convert(nn.Sequential(first, second, third), transfer=transfer)
    assert model[0].weight is model[1].weight
    assert model[0].weight is not model[2].weight
    assert model[0].C is not model[1].C


def test_hooks_fire_after_conversion():
    calls = []
    conv = nn.Conv2d(1, 1, 3)
    conv.register_forward_hook(lambda module, inputs, output: calls.append(("forward", type(module).__name__)))
    conv.register_forward_pre_hook(lambda module, inputs: calls.append(("before", type(module).__name__)))
    conv.register_forward_hook(
        lambda module, inputs, options, output: calls.append(("options", type(module).__name__)), with_kwargs=True
    )
    conv.register_full_backward_hook(lambda module, before, after: calls.append(("backward", type(module).__name__)))
    layer = convert(conv, inplace=True)
    layer(torch.randn(1, 1, 9, 9, requires_grad=True)).sum().backward()
    assert calls == [(kind, "LpConv2d") for kind in ("before", "forward", "options", "backward")]


def test_flags_and_types_are_kept():
    model = net().double()
    model.layer1[0].eval()
    model.stem.weight.requires_grad_(False)
    model.depthwise.bias.requires_grad_(False)
    large = convert(model)
    assert {value.dtype for value in large.state_dict().values() if value.is_floating_point()} == {torch.float64}
    flags = {name: module.training for name, module in model.named_modules()}
    assert {name: module.training for name, module in large.named_modules()} == flags
    frozen = {name for name, parameter in large.named_parameters() if not parameter.requires_grad}
    assert frozen == {"stem.weight", "depthwise.bias"}
    half = convert(nn.Conv2d(1, 1, 3).bfloat16(), transfer="exact")
    assert {value.dtype for value in half.state_dict().values()} == {torch.bfloat16}
    meta = convert(nn.Conv2d(1, 1, 3, device="meta"))
    assert {value.device.type for value in meta.state_dict().values()} == {"meta"}


def test_options_reach_the_layers():
    model = convert(net(), p=8, sigma=2.0, learn_p=False, learn_C=False, mask_sharing="layer", log2p_min=2.0)
    for layer in (model.stem, model.depthwise):
        assert layer.p.tolist() == [8]
        assert float(layer.C[0, 0, 0]) == pytest.approx(1 / 2.0001)
        assert (layer.C.requires_grad, layer.log2p.requires_grad) == (False, False)
        assert layer.log2p_min == 2
    with pytest.raises(TypeError, match="colour"):
        convert(net(), colour="red")


def test_masks_take_their_radius_from_the_old_kernel():
    layer = convert(nn.Conv2d(1, 1, (3, 5)))
    assert torch.diagonal(layer.C[0]).tolist() == pytest.approx([1 / 1.5001, 1 / 2.5001])
    layer.reset_parameters()
    assert torch.diagonal(layer.C[0]).tolist() == pytest.approx([1 / 1.5001, 1 / 2.5001])


def test_no_masks_make_a_large_plain_network():
    model = net().eval()
    large = convert(model, p=None)
    assert converted(large) == ALL
    assert not any(name.endswith((".C", ".log2p")) for name in large.state_dict())
    assert torch.allclose(large(X), model(X), atol=1e-5)


@pytest.mark.parametrize("transfer", ["copy", "exact"])
def test_transfer_draws_nothing_at_random(transfer):
    model = net()
    state = torch.get_rng_state()
    first = convert(model, transfer=transfer)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    second = convert(model, transfer=transfer)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


def test_no_transfer_draws_new_kernels():
    conv = nn.Conv2d(2, 4, 3)
    torch.manual_seed(5)
    layer = convert(conv, transfer="none")
    torch.manual_seed(5)
    expected = nn.Conv2d(2, 4, 7)
    assert torch.equal(layer.weight, expected.weight)
    assert torch.equal(layer.bias, expected.bias)
    assert torch.equal(layer.C, convert(conv).C)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.data(),
    st.sampled_from(["same", "valid", 0, 1, 2]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from([1, 1.5, 2]),
    st.sampled_from(["zeros", "reflect", "circular", "replicate"]),
    st.sampled_from([2.0, 4.0, None]),
)
def test_exact_transfer_keeps_the_function(n, data, padding, dilation, stride, growth, padding_mode, p):
    """Zero padding may differ from the rest: old taps see what they saw, whatever lies around."""
    if n == 3 and padding_mode == "reflect":
        padding_mode = "zeros"
    kernel_size = data.draw(st.tuples(*[st.integers(1, 4 if n < 3 else 3)] * n))
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1](
        2,
        4,
        kernel_size,
        1 if padding == "same" else stride,
        padding,
        dilation,
        groups=2,
        padding_mode=padding_mode,
    )
    x = torch.randn(1, 2, *[13 + i for i in range(n)][:n]) if n < 3 else torch.randn(1, 2, 11, 11, 12)
    expected = conv(x)
    assert convert(conv, growth=growth, p=p)(x).shape == expected.shape
    if padding_mode == "zeros" or padding == "same":
        found = convert(conv, transfer="exact", growth=growth, p=p)(x)
        assert torch.allclose(found, expected, atol=1e-5 * float(expected.abs().max()) + 1e-5)


def test_copied_kernels_are_dampened_by_the_mask():
    conv = nn.Conv2d(1, 2, 3, padding=1)
    layer = convert(conv)
    mask = lp_mask(layer.C, layer.log2p, (3, 3)).unsqueeze(1)
    x = torch.randn(1, 1, 8, 8)
    expected = nn.functional.conv2d(x, conv.weight * mask, conv.bias, padding=1)
    assert torch.allclose(layer(x), expected, atol=1e-6)
    assert float(mask[0, 0, 0, 0]) == pytest.approx(0.411161013, rel=1e-6)


def test_transposed_layers_are_converted_if_named():
    up = nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, dilation=2, groups=2)
    model = nn.Sequential(nn.Conv2d(2, 2, 3), up)
    with pytest.warns(UserWarning, match="1 was left as it is: a transposed convolution; name it in `include`"):
        default = convert(model)
    assert converted(default) == {"0"}
    x = torch.randn(1, 2, 7, 8)
    for include in ("1", nn.ConvTranspose2d, ["1"]):
        large = convert(model, include=include, transfer="exact")
        assert converted(large) == {"1"}
        assert type(large[1]) is LpConvTranspose2d
        assert large[1].kernel_size == (7, 7)
        assert torch.allclose(large[1](x), up(x), atol=1e-5)
        assert large[1](x, (16, 18)).shape == up(x, (16, 18)).shape
    assert type(convert(nn.ConvTranspose1d(2, 2, 3), include="")) is LpConvTranspose1d


def test_conversion_is_quiet_where_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(net(), exclude="stem", min_kernel=2, depthwise="skip")


def test_from_conv_takes_its_own_kind():
    with pytest.raises(TypeError, match=r"LpConv2d\.from_conv takes a Conv2d, found Conv1d"):
        LpConv2d.from_conv(nn.Conv1d(1, 1, 3))
    with pytest.raises(TypeError, match=r"LpConv2d\.from_conv takes a Conv2d, found LpConv2d"):
        LpConv2d.from_conv(LpConv2d(1, 1, 3))
    layer = LpConv2d.from_conv(nn.Conv2d(1, 2, 3, bias=False), p=4, growth=3, sigma=1.0, transfer="exact")
    assert (layer.kernel_size, layer.bias, layer.p.tolist()) == ((9, 9), None, [4, 4])


def test_the_report_says_what_happened():
    model = convert(net(), depthwise="skip", exclude="layer1.*")
    report = model.conversion_report
    assert isinstance(report, ConversionReport)
    assert report.rows() == [
        {
            "name": "stem",
            "old_kernel": "5x5",
            "new_kernel": "11x11",
            "parameters": f"{4 * 2 * 25 + 4} -> {4 * 2 * 121 + 4 + 5 * 4}",
            "padding": "2x2 -> 5x5",
        }
    ]
    text = str(report).splitlines()
    assert text[0].split("  ")[0] == "name"
    assert text[1].split() == ["stem", "5x5", "11x11", "204", "->", "992", "2x2", "->", "5x5"]
    assert text[2] == "left as it is: layer1.0.conv1 (excluded)"
    assert text[-1] == "left as it is: depthwise (depthwise)"


def test_converted_networks_can_be_copied_and_pickled():
    model = convert(net()).eval()
    expected = model(X)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(X), expected)
        assert str(again.conversion_report) == str(model.conversion_report)


def test_converted_networks_learn():
    torch.manual_seed(0)
    model = convert(net(), p=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(24, 2, 12, 12), torch.arange(24) % 3
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    assert model.stem.C.grad.abs().max() > 0
