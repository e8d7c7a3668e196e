from __future__ import annotations

import math
import subprocess
import sys
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, prune

from icl25_lp_conv import LpConv1d, LpConv2d, LpConv3d, LpConvTranspose1d, LpConvTranspose2d, LpLayer, convert, merge

NARROW = 0.3  # masks of this radius are 1.5e-5 at one tap, 5e-20 at two


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 4, 5, groups=2)), nn.ReLU()
    )
    large = convert(model)
    with torch.no_grad():
        for parameter in large.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return large.eval()


X = torch.linspace(-1, 1, 2 * 2 * 12 * 12).mul(9).sin().view(2, 2, 12, 12)


def narrow(cls, *arguments, sigma=NARROW, **given):
    torch.manual_seed(1)
    return cls(*arguments, sigma=sigma, **given)


def difference(layer, merged, x):
    y = layer(x)
    assert merged(x).shape == y.shape
    return float((merged(x) - y).abs().max() / y.abs().max())


def test_merged_networks_are_plain_and_compute_the_same():
    model = network()
    plain = merge(model)
    assert {type(module) for module in plain.modules()} == {nn.Sequential, nn.Conv2d, nn.BatchNorm2d, nn.ReLU}
    assert not any(type(module).__module__.startswith("icl25") for module in plain.modules())
    assert set(plain.state_dict()) == {name for name in model.state_dict() if not name.endswith(("C", "log2p"))}
    assert difference(model, plain, X) <= 1e-5
    assert any(isinstance(module, LpLayer) for module in model.modules())
    assert [replaced.name for replaced in plain.conversion_report.layers] == ["0", "2.0"]
    assert plain.conversion_report.layers[0].new_parameters == 4 * 2 * 49 + 4
    assert not any(module.training for module in plain.modules())


def test_merged_weights_are_leaves_of_their_own():
    model = network()
    model[0].weight.requires_grad_(False)
    plain = merge(model)
    assert (plain[0].weight.requires_grad, plain[0].bias.requires_grad) == (False, True)
    with torch.no_grad():
        expected = model(X)
        for parameter in plain.parameters():
            parameter.zero_()
        assert torch.equal(model(X), expected)
    plain(X).sum().backward()
    assert plain[0].weight.grad is None
    assert plain[0].bias.grad is not None


def test_merging_in_place():
    model = network()
    expected = model(X)
    assert merge(model, inplace=True) is model
    assert type(model[2][0]) is nn.Conv2d
    assert torch.allclose(model(X), expected, atol=1e-6)
    layer = LpConv2d(1, 1, 3)
    assert type(merge(layer)) is nn.Conv2d
    assert type(merge(layer, inplace=True)) is nn.Conv2d
    assert isinstance(layer, LpConv2d)


def test_nothing_to_merge_is_warned_of():
    model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU())
    with pytest.warns(UserWarning, match="no convolution was merged"):
        same = merge(model)
    assert type(same[0]) is nn.Conv2d


def test_shared_layers_stay_shared():
    layer = LpConv2d(2, 2, 5, padding=2)
    plain = merge(nn.Sequential(layer, nn.ReLU(), layer))
    assert plain[0] is plain[2]


def test_tied_kernels_with_masks_of_their_own_part():
    first, second = LpConv2d(2, 2, 5, padding=2), LpConv2d(2, 2, 5, padding=2, p=16)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    plain = merge(model)
    assert difference(model, plain, X) <= 1e-5
    second.C, second.log2p = first.C, first.log2p
    assert difference(model, merge(model), X) <= 1e-5
    plain = merge(model)
    assert plain[0].weight is plain[1].weight


def test_hooks_and_modes_go_along():
    calls = []
    layer = LpConv2d(1, 1, 3).eval()
    layer.register_forward_hook(lambda module, inputs, output: calls.append(type(module)))
    layer.to_conv()(torch.zeros(1, 1, 5, 5))
    assert calls == [nn.Conv2d]
    assert not layer.to_conv().training
    assert layer.train().to_conv().training


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_types_are_kept(dtype):
    layer = LpConv2d(2, 3, 5, dtype=dtype)
    plain = layer.to_conv()
    assert {value.dtype for value in plain.state_dict().values()} == {dtype}
    assert torch.equal(plain(X.to(dtype)), layer(X.to(dtype)))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_computed_kernels_are_merged_as_they_are(inplace):
    layers = [LpConv2d(2, 2, 3, padding=1) for _ in range(4)]
    prune.random_unstructured(layers[0], "weight", amount=0.5)
    nn.utils.weight_norm(layers[1])
    parametrizations.weight_norm(layers[2])
    parametrizations.weight_norm(layers[3])
    model = nn.Sequential(*layers)
    calls = []
    layers[0].register_forward_pre_hook(lambda module, inputs: calls.append(type(module)))
    expected = model(X)
    plain = merge(model, inplace=inplace)
    calls.clear()
    assert torch.allclose(plain(X), expected, atol=1e-5)
    assert calls == [nn.Conv2d]
    assert [type(module) for module in plain] == [nn.Conv2d] * 4
    assert set(plain.state_dict()) == {f"{i}.{name}" for i, name in product(range(4), ("weight", "bias"))}


@pytest.mark.parametrize(
    ("cls", "given", "size", "padding"),
    [
        (LpConv2d, {"padding": 4}, (5, 5), (2, 2)),
        (LpConv2d, {"padding": (4, 1)}, (5, 7), (2, 0)),
        (LpConv2d, {"padding": 0}, (9, 9), (0, 0)),
        (LpConv2d, {"padding": "same"}, (5, 5), "same"),
        (LpConv2d, {"padding": "valid"}, (9, 9), (0, 0)),
        (LpConv2d, {"padding": 4, "dilation": 2}, (5, 5), (0, 0)),
        (LpConv2d, {"padding": 3, "dilation": 2}, (7, 7), (1, 1)),
        (LpConv2d, {"padding": 4, "stride": 2, "groups": 2}, (5, 5), (2, 2)),
        (LpConv2d, {"padding": 4, "padding_mode": "reflect"}, (5, 5), (2, 2)),
        (LpConv2d, {"padding": 4, "padding_mode": "circular"}, (5, 5), (2, 2)),
        (LpConv2d, {"padding": "same", "padding_mode": "replicate"}, (5, 5), "same"),
        (LpConv1d, {"padding": 4}, (5,), (2,)),
        (LpConv3d, {"padding": (4, 3, 0)}, (5, 5, 9), (2, 1, 0)),
        (LpConvTranspose1d, {"padding": 3, "stride": 2}, (5,), (1,)),
        (LpConvTranspose2d, {"padding": (4, 2), "stride": (1, 2), "groups": 2}, (5, 5), (2, 0)),
    ],
)
def test_cropping_cuts_what_masks_close(cls, given, size, padding):
    layer = narrow(cls, 2, 4, 9, sigma=0.6, **given)  # 0.06 at one tap, 1.5e-5 at two, 1e-11 at three
    x = torch.randn(2, 2, *[13] * len(size))
    plain = layer.to_conv(crop=1e-7)
    assert (plain.kernel_size, plain.padding) == (size, padding)
    assert plain.weight.shape[2:] == size
    assert difference(layer, plain, x) < 1e-6
    untouched = layer.to_conv()
    assert untouched.kernel_size == layer.kernel_size


def test_cropping_follows_the_widest_mask_and_each_axis():
    layer = narrow(LpConv2d, 1, 3, (9, 8), padding=4)
    with torch.no_grad():
        layer.C.zero_()
        layer.C[:, 0, 0], layer.C[:, 1, 1] = 3.0, 2.0
        layer.C[1, 0, 0] = 1.2  # rows: 3e-3 at 2 taps, 2e-6 at 3, 1e-10 at 4
    assert layer.to_conv(crop=1e-3).kernel_size == (5, 2)  # columns: exp(-9) = 1.2e-4 at 1.5 taps, 1.4e-11 at 2.5
    assert layer.to_conv(crop=1e-7).kernel_size == (7, 4)
    assert layer.to_conv(crop=1e-12).kernel_size == (9, 6)
    assert layer.to_conv(crop=0.5).kernel_size == (1, 2)
    assert layer.to_conv(crop=0.99).kernel_size == (1, 2)


def test_cropping_stops_where_a_mask_reaches_the_bound():
    layer = narrow(LpConv2d, 1, 1, 5, padding=2)
    with torch.no_grad():
        layer.C.copy_(torch.eye(2) * math.sqrt(math.log(100) / 4))  # 0.01 two taps away
    edge = float(layer.mask()[0, 0, 2, 0])
    assert edge == pytest.approx(0.01, rel=1e-5)
    assert layer.to_conv(crop=edge).kernel_size == (5, 5)
    assert layer.to_conv(crop=edge * 1.001).kernel_size == (3, 3)


def test_skewed_masks_are_cropped_on_both_sides_alike():
    layer = narrow(LpConv2d, 1, 1, 7, padding=3)
    with torch.no_grad():
        layer.C.copy_(torch.tensor([[[1.5, 1.5], [0.3, -0.3]]]))  # long along the diagonal where rows = -columns
    assert layer.to_conv(crop=1e-2).kernel_size == (7, 7)
    with torch.no_grad():
        layer.C.copy_(torch.tensor([[[1.0, 0.5], [0.0, 2.0]]]))
    assert layer.to_conv(crop=1e-3).kernel_size == (5, 3)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3),
    st.data(),
    st.sampled_from(["same", "valid", 0, 1, 3, 5]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.sampled_from(["zeros", "reflect", "circular", "replicate"]),
    st.booleans(),
)
def test_cropping_negligible_taps_changes_nothing(n, data, padding, dilation, stride, padding_mode, transposed):
    if n == 3 and padding_mode == "reflect":
        padding_mode = "zeros"
    kernel_size = data.draw(st.tuples(*[st.integers(1, 6)] * n))
    given = {"padding": padding, "dilation": dilation, "stride": 1 if padding == "same" else stride}
    if transposed and n < 3 and not isinstance(padding, str):
        cls = (LpConvTranspose1d, LpConvTranspose2d)[n - 1]
        given["output_padding"] = min(stride, 2) - 1
    else:
        cls, given["padding_mode"] = (LpConv1d, LpConv2d, LpConv3d)[n - 1], padding_mode
    layer = narrow(cls, 2, 3, kernel_size, **given)
    x = torch.randn(1, 2, *[16] * n) if n < 3 else torch.randn(1, 2, 11, 11, 11)
    assert difference(layer, layer.to_conv(crop=1e-6), x) < 1e-4


def test_networks_are_cropped():
    model = nn.Sequential(narrow(LpConv2d, 2, 4, 7, padding=3), nn.ReLU(), narrow(LpConv2d, 4, 2, 5, padding=2)).eval()
    plain = merge(model, crop=1e-3)
    assert [plain[0].kernel_size, plain[2].kernel_size] == [(1, 1), (1, 1)]
    assert plain.conversion_report.rows()[0]["padding"] == "3x3 -> 0x0"
    assert difference(model, plain, X) < 1e-3


def test_layers_without_masks_are_not_cropped():
    layer = LpConv2d(2, 3, 5, padding=2, p=None)
    assert layer.to_conv(crop=0.5).kernel_size == (5, 5)
    assert torch.equal(layer.to_conv(crop=0.5)(X), layer(X))


@pytest.mark.parametrize("bad", [-0.1, 1.0, 2.0, math.nan])
def test_bad_bounds_are_refused(bad):
    with pytest.raises(ValueError, match=r"crop must lie in \[0, 1\), found"):
        merge(nn.Sequential(LpConv2d(1, 1, 3)), crop=bad)
    with pytest.raises(ValueError, match=r"crop must lie in \[0, 1\), found"):
        LpConv2d(1, 1, 3).to_conv(crop=bad)
    with pytest.raises(ValueError, match=r"crop must lie in \[0, 1\), found"):
        merge(nn.Linear(1, 1), crop=bad)


def test_merged_networks_load_where_the_package_is_not_installed(tmp_path):
    torch.save(merge(convert(nn.Sequential(nn.Conv2d(1, 2, 3)))), tmp_path / "merged.pt")
    code = (
        "import sys, torch; sys.modules['icl25_lp_conv'] = None; "
        "print(torch.load(sys.argv[1], weights_only=False).conversion_report)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "merged.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "7x7" in done.stdout
