from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call

from icl25_lp_conv import LpConv2d, LpConvTranspose2d, lp_layer


@pytest.fixture
def evaluations(monkeypatch):
    """A list that grows with each evaluation of a mask."""
    calls = []
    evaluate = lp_layer.lp_mask

    def counting(*arguments):
        calls.append(arguments)
        return evaluate(*arguments)

    monkeypatch.setattr(lp_layer, "lp_mask", counting)
    return calls


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return LpConv2d(2, 3, 5).eval()


X = torch.linspace(-1, 1, 2 * 8 * 8).sin().view(1, 2, 8, 8)


def fresh(layer, x=X):
    """The output with nothing kept from before."""
    again = type(layer)(layer.in_channels, layer.out_channels, layer.kernel_size, p=2, dtype=layer.weight.dtype)
    again.load_state_dict(layer.state_dict())
    return again(x)


@pytest.mark.parametrize("cls", [LpConv2d, LpConvTranspose2d])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_masks_are_evaluated_once(cls, context, evaluations):
    layer = cls(2, 3, 5).eval()
    with context():
        first = layer(X)
        assert len(evaluations) == 1
        for _ in range(3):
            assert torch.equal(layer(X), first)
    assert len(evaluations) == 1
    assert torch.equal(first, fresh(layer))


def test_frozen_layers_keep_the_kernel_with_gradients_on(layer, evaluations):
    layer.requires_grad_(False)
    x = X.clone().requires_grad_()
    layer(x)
    layer(x).sum().backward()
    assert len(evaluations) == 1
    layer.train()(x)
    layer(x)
    assert len(evaluations) == 3


def test_nothing_is_kept_in_training_or_with_gradients(layer, evaluations):
    for _ in range(2):
        layer(X).sum().backward()
    with torch.no_grad():
        layer.train()
        layer(X)
        layer(X)
    assert len(evaluations) == 4
    assert layer.C.grad.abs().max() > 0


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
        lambda parameters: torch.optim.Adam(parameters, lr=0.1, foreach=True),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, fused=True),
    ],
)
@pytest.mark.parametrize("name", ["weight", "C", "log2p"])
def test_an_optimizer_step_is_seen(layer, optimizer, name):
    step = optimizer([getattr(layer, name)])
    with torch.no_grad():
        before = layer(X)
    layer(X).square().sum().backward()
    step.step()
    with torch.no_grad():
        after = layer(X)
    assert not torch.equal(before, after)
    assert torch.equal(after, fresh(layer))


@pytest.mark.parametrize("assign", [False, True])
def test_a_loaded_state_is_seen(layer, assign):
    other = LpConv2d(2, 3, 5, p=4).state_dict()
    with torch.no_grad():
        layer(X)
        layer.load_state_dict(other, assign=assign)
        assert torch.equal(layer(X), fresh(layer))


def test_changes_in_place_are_seen(layer):
    for context in (torch.no_grad, torch.inference_mode):
        for name in ("weight", "C", "log2p"):
            with context():
                before = layer(X)
                getattr(layer, name).mul_(1.1)
                after = layer(X)
                assert not torch.equal(before, after)
            assert torch.equal(after, fresh(layer))


@pytest.mark.parametrize("name", ["weight", "C", "log2p"])
def test_replaced_parameters_are_seen(layer, name):
    with torch.no_grad():
        layer(X)
        getattr(layer, name).data = getattr(layer, name).data * 1.2
        assert torch.equal(layer(X), fresh(layer))
        setattr(layer, name, nn.Parameter(getattr(layer, name) * 1.2))
        assert torch.equal(layer(X), fresh(layer))


def test_new_tensors_at_an_old_address_are_not_mistaken(layer):
    """Memory that was freed and given out again must not look unchanged."""
    with torch.no_grad():
        first = torch.zeros(3, 2, 2)
        address = first.data_ptr()
        functional_call(layer, {"C": first}, (X,))
        del first
        others = [torch.full((3, 2, 2), 0.5) for _ in range(2000)]
        other = next((tensor for tensor in others if tensor.data_ptr() == address), others[0])
        found = functional_call(layer, {"C": other}, (X,))
        assert torch.equal(found, functional_call(layer.train(), {"C": other}, (X,)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_type_is_seen(layer, dtype):
    with torch.no_grad():
        layer(X)
        layer.to(dtype)
        y = layer(X.to(dtype))
    assert y.dtype == dtype
    assert torch.equal(y, fresh(layer, X.to(dtype)))
    with torch.no_grad():
        assert torch.equal(layer.float()(X), fresh(layer))


def test_another_memory_layout_is_harmless(layer):
    with torch.no_grad():
        expected = layer(X)
        assert torch.allclose(layer.to(memory_format=torch.channels_last)(X), expected, atol=1e-6)


def test_changes_through_data_are_seen_after_training(layer):
    with torch.no_grad():
        layer(X)
        layer.C.data.mul_(2)
        layer.train()
        layer.eval()
        assert torch.equal(layer(X), fresh(layer))


def test_copies_keep_their_own_kernel(layer, evaluations):
    with torch.no_grad():
        expected = layer(X)
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(buffer, weights_only=False)]
        for other in copies:
            assert other._cached is None
            assert torch.equal(other(X), expected)
            other.C.mul_(2)
            assert torch.equal(other(X), fresh(other))
        evaluations.clear()
        assert torch.equal(layer(X), expected)
    assert evaluations == []


def test_modes_of_gradients_do_not_mix(layer):
    """A kernel of inference mode cannot be saved for a backward pass; one without gradient has no gradient."""
    with torch.inference_mode():
        first = layer(X)
    x = X.clone().requires_grad_()
    layer.requires_grad_(False)
    layer(x).sum().backward()
    layer.requires_grad_(True)
    with torch.no_grad():
        second = layer(X)
    third = layer(X)
    third.square().sum().backward()
    assert layer.weight.grad.abs().max() > 0
    assert torch.equal(first.clone(), second)
    assert torch.equal(second, third)


def test_layers_made_in_inference_mode_work():
    with torch.inference_mode():
        layer = LpConv2d(2, 3, 5).eval()
        assert torch.equal(layer(X), layer(X))


def test_other_parameters_give_other_outputs(layer):
    state = {name: value.detach() for name, value in layer.named_parameters()}
    with torch.no_grad():
        layer(X)
        for name in ("weight", "C", "log2p"):
            changed = {**state, name: state[name] * 1.3}
            assert torch.equal(functional_call(layer, changed, (X,)), functional_call(layer.train(), changed, (X,)))
            layer.eval()
        transposed = {**state, "weight": state["weight"].mT}  # the same memory, read in another order
        functional_call(layer, state, (X,))
        found = functional_call(layer, transposed, (X,))
        assert torch.equal(found, functional_call(layer.train(), transposed, (X,)))
        layer.eval()
        assert torch.equal(layer(X), fresh(layer))


@pytest.mark.parametrize("randomness", ["no_grad", "grad"])
def test_stacked_layers_run_under_vmap(randomness):
    layers = [LpConv2d(2, 3, 5, p=p).eval() for p in (2, 4, 8)]
    parameters, buffers = torch.func.stack_module_state(layers)
    base = copy.deepcopy(layers[0])
    with torch.set_grad_enabled(randomness == "grad"):
        base(X)
        run = torch.func.vmap(lambda p, b: functional_call(base, (p, b), (X,)))
        found = run(parameters, buffers)
        for y, layer in zip(found, layers, strict=True):
            assert torch.allclose(y, layer(X), atol=1e-6)
        assert torch.equal(base(X), layers[0](X))


def test_transforms_see_through_the_kept_kernel(layer):
    layer.requires_grad_(False)
    layer(X)
    state = {name: value.detach() for name, value in layer.named_parameters()}
    tangents = {name: torch.ones_like(value) for name, value in state.items()}

    def run(state):
        return functional_call(layer, state, (X,))

    layer.train()
    _, expected = torch.func.jvp(run, (state,), (tangents,))
    gradient = torch.func.grad(lambda state: run(state).sum())(state)
    layer.eval()
    layer(X)
    assert torch.equal(torch.func.jvp(run, (state,), (tangents,))[1], expected)
    with forward_ad.dual_level():
        y = run({name: forward_ad.make_dual(value, tangents[name]) for name, value in state.items()})
        assert torch.equal(forward_ad.unpack_dual(y).tangent, expected)
    for name, value in torch.func.grad(lambda state: run(state).sum())(state).items():
        assert torch.equal(value, gradient[name])
        assert value.abs().max() > 0


def test_a_layer_in_two_places_keeps_one_kernel(evaluations):
    shared = LpConv2d(2, 2, 5, padding=2)
    net = nn.Sequential(shared, nn.ReLU(), shared).eval()
    with torch.no_grad():
        y = net(X)
        net(X)
        assert len(evaluations) == 1
        shared.C.mul_(1.5)
        assert not torch.equal(net(X), y)
    assert len(evaluations) == 2


def test_tied_kernels_have_masks_of_their_own():
    first, second = LpConv2d(2, 2, 5, padding=2).eval(), LpConv2d(2, 2, 5, padding=2, p=16).eval()
    second.weight = first.weight
    with torch.no_grad():
        assert not torch.equal(first(X), second(X))
        first.weight.mul_(2)
        for layer in (first, second):
            assert torch.equal(layer(X), layer.train()(X))
