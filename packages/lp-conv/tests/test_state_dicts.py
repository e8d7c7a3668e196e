from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import nn

from icl25_lp_conv import LpConv2d, convert, load_conv_state_dict


def network():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Sequential(nn.Conv2d(4, 4, (1, 5), groups=2)),
        nn.Conv1d(4, 2, 4),
    )


def perturbed(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model[1].running_mean.fill_(7)
    return model


def test_plain_weights_go_to_the_centre():
    plain, model = perturbed(network()), perturbed(convert(network()))
    masks = {name: value.clone() for name, value in model.state_dict().items() if name.endswith(("C", "log2p"))}
    assert len(masks) == 6
    load_conv_state_dict(model, plain.state_dict())
    expected = convert(plain).state_dict()
    found = model.state_dict()
    for name, value in found.items():
        assert torch.equal(value, masks.get(name, expected[name])), name
    assert torch.equal(found["0.weight"][:, :, 2:5, 2:5], plain[0].weight)
    assert int((found["0.weight"] != 0).sum()) == plain[0].weight.numel()
    assert float(found["1.running_mean"][0]) == 7


def test_the_network_itself_may_be_a_layer():
    plain, model = nn.Conv2d(2, 3, 3), convert(nn.Conv2d(2, 3, 3))
    load_conv_state_dict(model, plain.state_dict())
    assert torch.equal(model.weight[:, :, 2:5, 2:5], plain.weight)
    assert torch.equal(model.bias, plain.bias)


def test_states_of_converted_networks_are_taken_whole():
    source, model = perturbed(convert(network(), p=4)), convert(network())
    load_conv_state_dict(model, source.state_dict())
    for name, value in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)


def test_masks_need_no_entry_but_may_have_one():
    model = convert(network())
    state = {**network().state_dict(), "0.log2p": torch.full((4,), 3.0)}
    load_conv_state_dict(model, state)
    assert torch.equal(model[0].log2p, torch.full((4,), 3.0))
    assert torch.equal(model[3].log2p, torch.ones(2))


def test_layers_without_masks_load_too():
    plain, model = network(), convert(network(), p=None)
    load_conv_state_dict(model, plain.state_dict())
    x = torch.randn(1, 2, 6, 9)
    assert torch.allclose(model[:3](x), plain[:3](x), atol=1e-5)


def test_the_state_given_and_the_type_of_the_network_stay():
    plain, model = network().double(), convert(network())
    state = plain.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    load_conv_state_dict(model, state)
    assert all(torch.equal(state[name], value) for name, value in before.items())
    assert model[0].weight.dtype == torch.float32
    load_conv_state_dict(model, {**state, "0.weight": state["0.weight"] * 0})
    assert model[0].weight.abs().sum() == 0


def without(state, name):
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: without(state, "0.bias"), r"missing \['0.bias'\]"),
        (lambda state: without(state, "2.0.weight"), r"missing \['2.0.weight'\]"),
        (lambda state: {**state, "4.weight": torch.zeros(1)}, r"unknown \['4.weight'\]"),
        (lambda state: {**state, "0.weight": torch.zeros(4, 2, 4, 3)}, r"0.weight has shape \(4, 2, 4, 3\)"),
        (lambda state: {**state, "0.weight": torch.zeros(4, 2, 9, 9)}, r"needs \(4, 2, 7, 7\)"),
        (lambda state: {**state, "0.weight": torch.zeros(4, 1, 3, 3)}, "0.weight has shape"),
        (lambda state: {**state, "0.weight": torch.zeros(2, 2, 3, 3)}, "0.weight has shape"),
        (lambda state: {**state, "0.weight": torch.zeros(4, 2, 3)}, "0.weight has shape"),
        (lambda state: {**state, "0.bias": torch.zeros(2)}, "0.bias has shape"),
        (lambda state: {**state, "0.C": torch.zeros(4, 3, 3)}, "0.C has shape"),
        (lambda state: {**state, "1.weight": torch.zeros(2)}, "1.weight has shape"),
    ],
)
def test_states_that_do_not_fit_are_refused(change, message):
    model = convert(network())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=message):
        load_conv_state_dict(model, change(network().state_dict()))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_checkpoints_of_the_authors_load(tmp_path):
    """Their layer has the parameters weight, bias, C (out, 2, 2) and log2p (out,), and no buffers."""
    checkpoint = {
        "weight": torch.randn(3, 2, 7, 7),
        "bias": torch.randn(3),
        "C": torch.eye(2).repeat(3, 1, 1) / 1.5001,
        "log2p": torch.full((3,), 4.0),
    }
    torch.save(checkpoint, tmp_path / "layer.pt")
    layer = LpConv2d(2, 3, 7)
    layer.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert layer.p.tolist() == [16, 16, 16]
    assert float(layer.mask()[0, 0, 3, 4]) == pytest.approx(0.99848034, rel=1e-6)
    assert float(layer.mask()[0, 0, 4, 4]) == pytest.approx(math.exp(-2 * (1 / 1.5001) ** 16), rel=1e-5)


def test_exact_transfer_keeps_the_function_of_the_plain_network():
    plain = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)).eval()
    model = convert(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))).eval()
    x = torch.randn(2, 2, 8, 8)
    load_conv_state_dict(model, plain.state_dict(), transfer="exact")
    assert torch.allclose(model(x), plain(x), atol=1e-5)
    load_conv_state_dict(model, plain.state_dict())
    assert not torch.allclose(model(x), plain(x), atol=1e-3)
    with pytest.raises(ValueError, match="transfer must be copy or exact, found 'none'"):
        inspect.unwrap(load_conv_state_dict)(model, plain.state_dict(), "none")
