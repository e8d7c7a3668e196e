from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from icl25_lp_conv import rsa

N = 12


class Net(nn.Module):
    """Convolutions of every kind of use: nested, before an in-place layer, called twice, never called."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.block = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4))
        self.twice = nn.Conv2d(4, 4, 1)
        self.up = nn.ConvTranspose2d(4, 2, 2)
        self.auxiliary = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.twice(self.twice(self.block(self.stem(x))))
        return self.head(self.up(x).mean((2, 3)))


def make_net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net()


@pytest.fixture
def net() -> Net:
    return make_net()


@pytest.fixture(scope="module")
def stimuli() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(N, 3, 6, 7)).astype(np.float32)


def test_features_are_the_outputs_of_the_convolutions(net, stimuli):
    net.eval()
    with torch.no_grad():
        stem = net.stem(torch.from_numpy(stimuli))
        second = net.block(stem.clone())
        once = net.twice(second)
        twice = net.twice(once)
        expected = {"stem": stem, "block.1": net.block[1](stem.relu()), "twice#1": once, "twice#2": twice}
        expected["up"] = net.up(twice)
    net.train()
    found = rsa.extract_features(net, stimuli, batch_size=5)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], tensor.flatten(1).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv1d(2, 3, 3), (4, 2, 9)),
        (lambda: nn.Sequential(nn.Conv3d(2, 3, 2)), (4, 2, 4, 5, 6)),
        (lambda: nn.Sequential(nn.ConvTranspose1d(2, 3, 3), nn.Flatten()), (4, 2, 9)),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3)), (4, 2, 5, 5)),
    ],
)
def test_convolutions_of_any_kind_are_found(make, shape):
    model = make()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    [found] = rsa.extract_features(model, x).values()
    np.testing.assert_allclose(found, model(x).detach().flatten(1).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        ("head", ["head"]),
        (["up", "stem"], ["stem", "up"]),
        ("block.*", ["block.0", "block.1", "block.2"]),
        (["block.[12]", "auxiliary", "up"], None),
    ],
)
def test_layers_go_by_names_and_patterns(net, stimuli, layers, names):
    if names is None:
        with pytest.raises(ValueError, match="Net calls no layer 'auxiliary' in a forward pass"):
            rsa.extract_features(net, stimuli, layers)
    else:
        assert list(rsa.extract_features(net, stimuli, layers)) == names


def test_the_network_is_left_as_it_was(net, stimuli):
    net.train()
    net.block[2].eval()
    modes = {name: module.training for name, module in net.named_modules()}
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    rsa.extract_features(net, stimuli)
    net.head = nn.Linear(3, 2)  # a network that fails after its convolutions
    with pytest.raises(RuntimeError):
        rsa.extract_features(net, stimuli)
    assert {name: module.training for name, module in net.named_modules()} == modes
    assert not any(module._forward_hooks for module in net.modules())
    del state["head.weight"], state["head.bias"]
    assert all(torch.equal(net.state_dict()[name], tensor) for name, tensor in state.items())
    assert torch.is_grad_enabled()


def test_stimuli_take_the_type_of_the_model(net, stimuli):
    single = rsa.extract_features(net, stimuli.astype(np.float64), "stem")["stem"]
    assert single.dtype == np.float32
    for same in (stimuli.astype(">f4"), np.asfortranarray(stimuli), torch.from_numpy(stimuli)):
        np.testing.assert_array_equal(rsa.extract_features(net, same, "stem")["stem"], single)
    double = rsa.extract_features(net.double(), stimuli, "stem")["stem"]
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, single, atol=1e-5)
    half = rsa.extract_features(net.to(torch.bfloat16), stimuli, "stem")["stem"]
    assert half.dtype == np.float32
    np.testing.assert_allclose(half, single, atol=0.05)


class Odd(nn.Module):
    """A layer whose output is not one row for each stimulus."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.n_passes = kind, 0
        self.layer = nn.Conv2d(3, 2, 1) if kind in ("folded", "uneven") else nn.LSTM(3, 2)

    def forward(self, x: torch.Tensor) -> object:
        self.n_passes += 1
        if self.kind == "uneven":
            x = x if self.n_passes == 1 else self.layer(x).sum(1, keepdim=True) + x
            return self.layer(x)
        return self.layer(x.repeat(2, 1, 1, 1)) if self.kind == "folded" else self.layer(x.mean(3).transpose(1, 2))


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("folded", ValueError, r"layer 'layer' returns the shape \(4, 2, 6, 7\) for 2 stimuli"),
        ("tuple", TypeError, "layer 'layer' returns tuple, expected a tensor"),
        ("uneven", ValueError, "not called equally often"),
    ],
)
def test_layers_with_odd_outputs_are_named(stimuli, kind, error, message):
    with pytest.raises(error, match=message):
        rsa.extract_features(Odd(kind), stimuli, "layer")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": "stam"}, ValueError, "Net has no layer 'stam'; it has 'stem', 'block', 'block.0'"),
        ({"layers": []}, ValueError, "layers is empty"),
        ({"layers": ["stem", "block.9*"]}, ValueError, "no layer 'block.9[*]'"),
        ({"batch_size": 0}, ValueError, "batch_size must be >= 1, found 0"),
        ({"stimuli": np.zeros((4, 3, 6, 7), np.uint8)}, TypeError, "stimuli hold uint8, expected floating point"),
        ({"stimuli": torch.zeros(4, 3, 6, 7, dtype=torch.int64)}, TypeError, "stimuli hold torch.int64"),
        ({"stimuli": np.zeros((0, 3, 6, 7))}, ValueError, "at least one stimulus"),
        ({"stimuli": np.zeros(4)}, ValueError, r"stimuli has shape \(4,\)"),
        ({"stimuli": np.full((4, 3, 6, 7), np.nan)}, ValueError, "stimulus 0 holds NaN"),
        ({"model": nn.Linear(7, 2)}, ValueError, "Linear has no convolution; name other layers, it has 'Linear'"),
    ],
)
def test_faulty_requests_are_refused(net, stimuli, options, error, message):
    with pytest.raises(error, match=message):
        rsa.extract_features(**{"model": net, "stimuli": stimuli, **options})


def test_a_faulty_stimulus_of_a_later_batch_is_numbered(net, stimuli):
    faulty = stimuli.copy()
    faulty[9, 1, 2, 3] = np.inf
    with pytest.raises(ValueError, match="stimulus 9 holds NaN"):
        rsa.extract_features(net, faulty, batch_size=4)
