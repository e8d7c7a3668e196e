from __future__ import annotations

import pytest
import torch
from torch import nn

from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.lp_layer import LpLayer
from icl25_lp_conv.models import Preset, digits_resnet, presets
from icl25_lp_conv.models.presets import random_mask


def network():
    torch.manual_seed(0)
    return digits_resnet(widths=(2, 3, 4))


def masks(model):
    return [layer for layer in model.modules() if isinstance(layer, LpLayer)]


def test_presets_are_those_of_the_experiments():
    trained = [f"lp{p}" for p in (2, 4, 8, 16)]
    frozen = [f"{name}-frozen-p" for name in trained]
    assert list(presets) == ["base", "large", *trained, *frozen, "gauss-frozen", "box256-frozen"]


@pytest.mark.parametrize(
    ("name", "p", "learn_p", "learn_C"),
    [
        ("lp2", 2, True, True),
        ("lp16", 16, True, True),
        ("lp4-frozen-p", 4, False, True),
        ("gauss-frozen", 2, False, False),
        ("box256-frozen", 256, False, False),
    ],
)
def test_presets_make_large_kernels_with_masks(name, p, learn_p, learn_C):
    model = network()
    variant = presets[name](model)
    assert not masks(model)
    assert len(masks(variant)) == 13
    for layer in masks(variant):
        assert layer.kernel_size in ((7, 7), (3, 3))
        torch.testing.assert_close(layer.p, torch.full((layer.out_channels,), float(p)))
        assert (layer.log2p.requires_grad, layer.C.requires_grad) == (learn_p, learn_C)


def test_base_is_an_unchanged_copy_and_large_has_no_masks():
    model = network()
    base = presets["base"](model)
    assert base is not model
    assert not masks(base)
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(base.eval()(x), model.eval()(x))
    assert presets["base"](model, inplace=True) is model
    large = presets["large"](model)
    assert [layer.C for layer in masks(large)] == [None] * 13
    assert {layer.kernel_size for layer in masks(large)} == {(7, 7), (3, 3)}
    torch.testing.assert_close(large.eval()(x), model(x))  # the old kernels stand in the centre, undamped


def test_options_go_before_the_preset():
    variant = presets["lp2"](network(), include="blocks.1.*", growth=1, transfer="exact")
    (first, *_) = masks(variant)
    assert first.kernel_size == (3, 3)
    assert len(masks(variant)) == 3
    with pytest.raises(ValueError, match="p must be positive"):
        Preset(-1)(network())


def test_a_frozen_box_is_the_old_kernel():
    model = network().eval()
    x = torch.rand(2, 1, 9, 9)
    torch.testing.assert_close(presets["box256-frozen"](model)(x), model(x), rtol=1e-4, atol=1e-5)


def effective(conv):
    return (conv.weight != 0).any(1).flatten(1)


def test_random_masks_have_the_share_of_open_taps_at_other_places():
    layer = LpConv2d(3, 6, 7, padding=3, p=4, sigma=[1.0, 2.5])
    with torch.no_grad():
        layer.C[1] *= 3
    model = nn.Sequential(layer, nn.ReLU(), nn.Conv2d(6, 2, 1))
    control = random_mask(model, seed=0)
    opened = (layer.mask() >= 0.01).flatten(1)
    assert opened[0].sum() > opened[1].sum()
    assert torch.equal(effective(control[0]).sum(1), opened.sum(1))
    assert not torch.equal(effective(control[0]), opened)
    assert len({tuple(row.tolist()) for row in effective(control[0])}) == 6
    kept = control[0].weight != 0
    assert torch.equal(control[0].weight[kept], layer.weight[kept])
    assert torch.equal(effective(random_mask(model, seed=0)[0]), effective(control[0]))
    assert not torch.equal(effective(random_mask(model, seed=1)[0]), effective(control[0]))
    assert isinstance(model[0], LpConv2d)


def test_random_masks_stay_as_they_are_in_training():
    control = random_mask(presets["lp2"](network()), seed=1)
    assert not masks(control)
    opened = [effective(module) for module in control.modules() if isinstance(module, nn.Conv2d)]
    optimizer = torch.optim.SGD(control.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        control(torch.rand(2, 1, 28, 28)).square().sum().backward()
        optimizer.step()
    after = [effective(module) for module in control.modules() if isinstance(module, nn.Conv2d)]
    # Transferred kernels are zero around the centre; every open tap of theirs, and no other, is trained.
    assert all(bool((new | ~old).all()) for old, new in zip(opened, after, strict=True))
    totals = [new.float().mean() for new in after]
    wanted = [(layer.mask() >= 0.01).float().mean() for layer in masks(presets["lp2"](network()))]
    torch.testing.assert_close(totals, wanted)


def test_random_masks_of_a_lone_layer_and_of_transposed_ones():
    assert isinstance(random_mask(LpConv2d(1, 2, 3), seed=0), nn.Conv2d)
    model = presets["lp2"](nn.Sequential(nn.ConvTranspose1d(4, 6, 3, groups=2)), include="*")
    layer = model[0]
    with torch.no_grad():
        layer.weight.fill_(1)
        layer.C *= torch.linspace(1, 4, 6).view(6, 1, 1)
    control = random_mask(model, seed=0)[0]
    opened = control.weight.detach().unflatten(0, (2, 2))  # group, input, output, tap
    assert 1 < opened.sum() < 0.9 * opened.numel()
    assert torch.equal(opened[:, 0], opened[:, 1])
    assert torch.equal(opened[:, 0].flatten(0, 1).sum(-1), (layer.mask() >= 0.01).flatten(1).sum(1).float())
    with pytest.raises(ValueError, match="no Lp layer with masks"):
        random_mask(presets["large"](network()), seed=0)
