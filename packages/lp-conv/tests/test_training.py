from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import distributed, nn

from icl25_lp_conv import LpConv2d, clamp_masks_, convert, mask_regularizer, param_groups
from icl25_lp_conv.processes import Process, join_processes, share_buffers


def network():
    torch.manual_seed(0)
    return nn.Sequential(LpConv2d(1, 4, 5, padding=2), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3))


def by_name(groups):
    return {group["name"]: group for group in groups}


def test_parameters_are_grouped():
    model = network()
    groups = by_name(param_groups(model, 0.05, lr=0.1, mask_lr_scale=0.5))
    conv, norm, _, linear = model
    members = {name: {id(parameter) for parameter in group["params"]} for name, group in groups.items()}
    assert members == {
        "weights": {id(conv.weight), id(linear.weight)},
        "no decay": {id(conv.bias), id(norm.weight), id(norm.bias), id(linear.bias)},
        "mask shapes": {id(conv.C)},
        "mask exponents": {id(conv.log2p)},
    }
    assert {name: group["weight_decay"] for name, group in groups.items()} == {
        "weights": 0.05,
        "no decay": 0.0,
        "mask shapes": 0.0,
        "mask exponents": 0.0,
    }
    assert [group["lr"] for group in groups.values()] == [0.1, 0.1, 0.05, 0.05]
    assert [group["lr_scale"] for group in groups.values()] == [1, 1, 0.5, 0.5]


def test_masks_may_decay_as_in_the_code_of_the_authors():
    groups = by_name(param_groups(network(), 0.05, mask_weight_decay=0.05))
    assert (groups["mask shapes"]["weight_decay"], groups["mask exponents"]["weight_decay"]) == (0.05, 0.0)
    assert not any("lr" in group for group in groups.values())


def test_frozen_and_missing_parameters_are_left_out():
    model = network()
    model[0].C.requires_grad_(False)
    model[3].weight.requires_grad_(False)
    groups = by_name(param_groups(model, 0.1))
    assert "mask shapes" not in groups
    assert [id(parameter) for parameter in groups["weights"]["params"]] == [id(model[0].weight)]
    assert set(by_name(param_groups(nn.Linear(2, 2), 0.1))) == {"weights", "no decay"}
    tied = nn.Sequential(model[0], model[0])
    assert sum(len(group["params"]) for group in param_groups(tied, 0.1)) == 3


def test_groups_act_in_an_optimizer():
    model = network()
    model(torch.randn(8, 1, 6, 6)).square().sum().backward()
    for parameter in model.parameters():
        parameter.grad.fill_(1.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.optim.SGD(param_groups(model, 0.5, 0.25, mask_lr_scale=0.1, lr=0.1)).step()
    conv = model[0]
    assert torch.allclose(conv.weight, before["0.weight"] - 0.1 * (1 + 0.5 * before["0.weight"]))
    assert torch.allclose(conv.bias, before["0.bias"] - 0.1)
    assert torch.allclose(conv.C, before["0.C"] - 0.01 * (1 + 0.25 * before["0.C"]))
    assert torch.allclose(conv.log2p, before["0.log2p"] - 0.01)


def test_a_scale_without_a_rate_is_warned_of():
    with pytest.warns(UserWarning, match="ignore mask_lr_scale unless lr"):
        param_groups(network(), 0.1, mask_lr_scale=0.5)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["weight_decay", "mask_weight_decay", "lr", "mask_lr_scale"])
def test_bad_numbers_are_refused(name, bad):
    with pytest.raises(ValueError, match=f"^{name} must be finite and >=? 0, found"):
        param_groups(network(), **{"weight_decay": 0.1, "lr": 0.1, name: bad})


def test_a_scale_of_zero_is_refused():
    with pytest.raises(ValueError, match="mask_lr_scale must be finite and > 0, found 0"):
        param_groups(network(), 0.1, mask_lr_scale=0.0)


def test_exponents_are_lifted_to_the_floor():
    model = nn.Sequential(
        LpConv2d(1, 3, 3), LpConv2d(3, 3, 3, log2p_min=2.5), LpConv2d(3, 3, 3, p=None), nn.Conv2d(3, 1, 1)
    )
    start = torch.tensor([0.2, 1.5, 4.0])
    for layer in model[:2]:
        layer.load_state_dict({**layer.state_dict(), "log2p": start})
    shapes = model[0].C.detach().clone()
    clamp_masks_(model)
    assert torch.equal(model[0].log2p, torch.tensor([1.0, 1.5, 4.0]))
    assert torch.equal(model[1].log2p, torch.tensor([2.5, 2.5, 4.0]))
    assert torch.equal(model[0].C, shapes)
    clamp_masks_(model, 2.0)
    assert torch.equal(model[0].log2p, torch.tensor([2.0, 2.0, 4.0]))
    assert torch.equal(model[1].log2p, torch.tensor([2.5, 2.5, 4.0]))
    assert model[0].log2p.requires_grad
    with pytest.raises(ValueError, match="log2p_min must be finite, found nan"):
        clamp_masks_(model, math.nan)


def test_the_open_area_is_penalised():
    model = nn.Sequential(LpConv2d(1, 2, 5, p=2), nn.ReLU(), LpConv2d(2, 3, 3, p=4), nn.Conv2d(3, 1, 1))
    penalty = mask_regularizer(model)
    expected = (model[0].mask().mean() + model[2].mask().mean()) / 2
    assert float(penalty) == pytest.approx(float(expected))
    assert mask_regularizer(model, "area").shape == ()
    penalty.backward()
    assert model[0].weight.grad is None
    assert (model[0].C.grad.diagonal(dim1=1, dim2=2) < 0).all()  # descent closes the mask
    nn.init.zeros_(model[0].C)
    nn.init.zeros_(model[2].C)
    assert float(mask_regularizer(model)) == 1


def test_masked_kernels_are_penalised():
    model = nn.Sequential(LpConv2d(1, 2, 5), LpConv2d(2, 3, 3, p=None))
    penalty = mask_regularizer(model, "l1")
    assert float(penalty) == pytest.approx(float((model[0].weight * model[0].mask()).abs().mean()))
    penalty.backward()
    assert model[0].weight.grad.abs().max() > 0
    assert model[0].C.grad.abs().max() > 0


def test_penalties_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="no Lp layer with masks"):
        mask_regularizer(nn.Sequential(nn.Conv2d(1, 1, 1), LpConv2d(1, 1, 3, p=None)))
    with pytest.raises(ValueError, match="kind must be area or l1, found 'l2'"):
        inspect.unwrap(mask_regularizer)(network(), "l2")  # without run-time type checks


def test_a_penalty_shrinks_masks_in_training():
    model = convert(nn.Conv2d(1, 2, 3, padding=1))
    area = float(mask_regularizer(model))
    optimizer = torch.optim.Adam(param_groups(model, 0.0, lr=0.05))
    for _ in range(10):
        optimizer.zero_grad()
        mask_regularizer(model).backward()
        optimizer.step()
    assert float(mask_regularizer(model)) < 0.9 * area


@pytest.mark.parametrize("joined", [False, True])
def test_a_group_of_processes_is_left_by_whom_it_was_joined(monkeypatch, joined):
    calls = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(distributed, "is_initialized", lambda: joined)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "init_process_group", lambda backend: calls.append(backend))
    monkeypatch.setattr(distributed, "destroy_process_group", lambda: calls.append("left"))
    with join_processes("cpu") as process:
        assert (process.rank, process.n) == (1, 2)
        assert calls == ([] if joined else ["gloo"])
    assert calls == ([] if joined else ["gloo", "left"])


def test_buffers_are_those_of_the_first_process(monkeypatch):
    shared = []
    monkeypatch.setattr(distributed, "broadcast", lambda tensor, source: shared.append((id(tensor), source)))
    model = network()
    share_buffers(model, Process(0, 1, torch.device("cpu")))
    assert shared == []
    share_buffers(model, Process(1, 2, torch.device("cpu")))
    assert shared == [(id(buffer), 0) for buffer in model.buffers()]
    assert len(shared) == 3
