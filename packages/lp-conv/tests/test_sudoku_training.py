from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.datasets import sudoku
from icl25_lp_conv.models.sudoku_net import sudoku_cnn
from icl25_lp_conv.sudoku_training import complete, encode, evaluate, predict, train_sudoku

DATA = sudoku.generate(10, seed=1, clues=50)


def small(seed=0):
    return sudoku_cnn(depth=2, width=8, seed=seed)


def masked(seed=0, p=4.0):
    return convert(sudoku_cnn(depth=1, width=6, seed=seed), p=p)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def digits_of(x):
    return ((x[:, 0] + 0.5) * 9).round().long()


class Repeat(nn.Module):
    """Gives each given back, and a one for each blank."""

    def forward(self, x):
        return functional.one_hot(digits_of(x).clamp(min=1) - 1, 9).permute(0, 3, 1, 2).float()


class Singles(nn.Module):
    """Knows the rules but looks no step ahead: equal logits for the digits that no peer of a cell has.

    Givens get those of a wrong digit, so that it shows if they are overwritten.
    """

    def forward(self, x):
        digits = digits_of(x)
        held = functional.one_hot(digits, 10)[..., 1:].bool()  # (b, 9, 9, 9), the digit last
        rows = held.any(dim=2, keepdim=True).expand_as(held)
        columns = held.any(dim=1, keepdim=True).expand_as(held)
        boxes = held.view(-1, 3, 3, 3, 3, 9).any(dim=4, keepdim=True).any(dim=2, keepdim=True)
        boxes = boxes.expand(-1, 3, 3, 3, 3, 9).reshape_as(held)
        free = torch.where(digits[..., None] == 0, ~(rows | columns | boxes), held.roll(1, dims=3))
        return 50.0 * free.permute(0, 3, 1, 2).float()


class Recorder(nn.Module):
    """Keeps the boards of each batch that it sees."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(9, 1, 1))
        self.seen = []

    def forward(self, x):
        self.seen.append(digits_of(x))
        return self.bias.expand(len(x), 9, 9, 9)


def test_encode_scales_digits_to_a_unit_interval():
    board = np.arange(81).reshape(1, 9, 9) % 10
    x = encode(board)
    assert x.shape == (1, 1, 9, 9)
    assert x.dtype == torch.float32
    np.testing.assert_allclose(x[0, 0].numpy(), board[0] / 9 - 0.5, atol=1e-7)


def test_network_has_the_layers_of_the_paper():
    model = sudoku_cnn(depth=3, width=5)
    layers = [layer for layer in model.modules() if not isinstance(layer, nn.Sequential)]
    block = [nn.ReflectionPad2d, nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert [type(layer) for layer in layers] == [*block * 3, nn.Conv2d]
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    assert [layer.kernel_size for layer in convolutions] == [(3, 3)] * 3 + [(1, 1)]
    assert all(layer.padding == (0, 0) for layer in convolutions)
    assert model(torch.zeros(2, 1, 9, 9)).shape == (2, 9, 9, 9)
    with torch.device("meta"):
        full = sudoku_cnn()
    expected = (9 * 512 + 3 * 512) + 14 * (512 * 512 * 9 + 3 * 512) + (512 * 9 + 9)
    assert sum(parameter.numel() for parameter in full.parameters()) == expected


def test_network_sees_one_cell_further_with_each_block():
    model = sudoku_cnn(depth=3, width=5, seed=1).eval()
    x = torch.zeros(1, 1, 9, 9, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x)[0, :, 4, 4].square().sum(), x)
    reach = gradient[0, 0] != 0
    assert not reach[[0, 8]].any()
    assert not reach[:, [0, 8]].any()
    assert reach[[1, 7]].any()


def test_converting_keeps_the_shape_and_takes_kernels_to_seven_and_three():
    model = convert(sudoku_cnn(depth=2, width=4), p=2.0)
    kernels = {name: (layer.kernel_size, layer.padding) for name, layer in model.named_modules() if hasattr(layer, "C")}
    assert kernels["blocks.0.conv"] == kernels["blocks.1.conv"] == ((7, 7), (2, 2))
    assert kernels["head"] == ((3, 3), (1, 1))
    assert model(encode(DATA.puzzles)).shape == (10, 9, 9, 9)


def test_seeded_weights_leave_the_global_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = weights(small(seed=1))
    assert torch.equal(torch.get_rng_state(), before)
    assert equal(first, weights(small(seed=1)))
    assert not torch.equal(first["head.weight"], weights(small(seed=2))["head.weight"])
    for arguments, message in (({"depth": 0}, "depth must be >= 1"), ({"width": 0}, "width must be >= 1")):
        with pytest.raises(ValueError, match=message):
            sudoku_cnn(**arguments)


def test_a_step_is_that_of_adam_on_the_mean_cross_entropy_of_the_cells():
    model, reference = small(), small()
    (loss,) = train_sudoku(model, *DATA, epochs=1, batch_size=10, lr=1e-3, seed=0)
    optimizer = torch.optim.Adam(reference.parameters(), lr=1e-3)
    log_probabilities = reference(torch.from_numpy(DATA.puzzles)[:, None] / 9 - 0.5).log_softmax(dim=1)
    classes = torch.from_numpy(DATA.solutions).long()[:, None] - 1
    expected = -log_probabilities.gather(1, classes).mean()
    expected.backward()
    optimizer.step()
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    for name, tensor in reference.state_dict().items():
        if name.endswith("conv.bias"):  # normalisation takes it out again: its gradient is rounding error
            continue
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_training_learns_its_puzzles_by_heart():
    sudokus = sudoku.generate(4, seed=2, clues=70)
    model = sudoku_cnn(depth=2, width=24, seed=0)
    losses = train_sudoku(model, *sudokus, epochs=100, batch_size=4, lr=0.02, seed=0)
    assert not model.training
    assert losses[-1] < losses[0] / 4
    assert evaluate(model, *sudokus).number > 0.8


def test_each_epoch_sees_every_puzzle_once_in_an_order_of_its_own():
    model = Recorder()
    train_sudoku(model, *DATA, epochs=2, batch_size=4, seed=0)
    assert [len(batch) for batch in model.seen] == [4, 4, 2] * 2
    epochs = [torch.cat(model.seen[part : part + 3]).view(10, 81) for part in (0, 3)]
    puzzles = torch.from_numpy(DATA.puzzles).long().view(10, 81)
    for seen in epochs:
        assert sorted(seen.tolist()) == sorted(puzzles.tolist())
        assert not torch.equal(seen, puzzles)
    assert not torch.equal(*epochs)


def test_the_seed_decides():
    runs = []
    for seed in (0, 0, 1):
        model = small()
        runs.append((train_sudoku(model, *DATA, epochs=2, batch_size=3, seed=seed), weights(model)))
    assert runs[0][0] == runs[1][0]
    assert equal(runs[0][1], runs[1][1])
    assert not equal(runs[0][1], runs[2][1])


@pytest.mark.parametrize(("clamp", "expected"), [(True, 1.0), (False, 0.0)])
def test_exponents_are_lifted_before_the_step(clamp, expected):
    model = masked(p=1.0)  # log2 p = 0
    train_sudoku(model, *DATA, epochs=1, batch_size=10, lr=1e-3, seed=0, clamp_log2p=clamp)
    exponents = model.state_dict()["blocks.0.conv.log2p"]
    moved = (exponents - expected).abs()
    assert moved.max() <= 1.001e-3  # a first step of Adam is of length lr at most
    assert moved.max() > 0.5e-3  # and comes after the lift, which would have undone it on one side


class Stop(Exception):
    pass


def stop_after(model, n_steps):
    calls = []

    def hook(*_):
        calls.append(None)
        if len(calls) > n_steps:
            raise Stop

    return model.register_forward_pre_hook(hook)


@pytest.mark.parametrize("stop", [3, 4, 7, 11])
@pytest.mark.parametrize("frozen", [False, True])
def test_an_interrupted_training_goes_on_bit_for_bit(tmp_path, stop, frozen):
    def make(seed):
        model = masked(seed)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not (frozen and name.endswith("log2p")))
        return model

    settings: dict[str, Any] = {"epochs": 3, "batch_size": 3, "lr": 1e-2, "seed": 5}
    whole = make(0)
    losses = train_sudoku(whole, *DATA, **settings)
    checkpoint = tmp_path / "training.safetensors"
    model = make(0)
    stop_after(model, stop)
    with pytest.raises(Stop):
        train_sudoku(model, *DATA, **settings, checkpoint=checkpoint, save_every=3)
    resumed = make(1)  # other weights, which the checkpoint replaces
    remaining = []
    resumed.register_forward_pre_hook(lambda *_: remaining.append(None))
    assert train_sudoku(resumed, *DATA, **settings, checkpoint=checkpoint, save_every=3) == losses
    assert equal(weights(resumed), weights(whole))
    saved = max(step for step in range(stop + 1) if step % 3 == 0 or step % 4 == 0)
    assert len(remaining) == 12 - saved
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]


def test_more_epochs_go_on_from_a_finished_training(tmp_path):
    checkpoint = tmp_path / "training.safetensors"
    settings: dict[str, Any] = {"batch_size": 4, "seed": 0}
    epochs = []
    model = small()
    first = train_sudoku(
        model, *DATA, epochs=1, checkpoint=checkpoint, on_epoch=lambda *report: epochs.append(report), **settings
    )
    assert epochs == [(1, first[0])]
    state = load_file(checkpoint)
    assert torch.equal(state["model.head.weight"], model.state_dict()["head.weight"])
    longer, whole = small(1), small()
    both = train_sudoku(
        longer, *DATA, epochs=2, checkpoint=checkpoint, on_epoch=lambda *report: epochs.append(report), **settings
    )
    assert train_sudoku(whole, *DATA, epochs=2, **settings) == both
    assert epochs == list(enumerate(both, start=1))
    assert equal(weights(longer), weights(whole))
    with pytest.raises(ValueError, match=r"training\.safetensors is beyond epochs = 1: it holds 2"):
        train_sudoku(small(), *DATA, epochs=1, checkpoint=checkpoint, **settings)


def test_checkpoints_of_something_else_are_refused(tmp_path):
    checkpoint = tmp_path / "training.safetensors"
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 4, "seed": 0, "checkpoint": checkpoint}
    train_sudoku(small(), *DATA, **settings)
    others = [
        (small(), DATA, {"lr": 1e-3}),
        (small(), DATA, {"seed": 1}),
        (small(), DATA, {"clamp_log2p": False}),
        (small(), sudoku.generate(10, seed=2), {}),
        (sudoku_cnn(depth=2, width=9), DATA, {}),
    ]
    for model, data, changed in others:
        with pytest.raises(ValueError, match=r"training\.safetensors is the checkpoint of another training"):
            train_sudoku(model, *data, **{**settings, **changed})
    checkpoint.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"training\.safetensors is not a safetensors file"):
        train_sudoku(small(), *DATA, **settings)


def test_predict_takes_the_largest_logit_whatever_the_batches():
    model = small().train()
    frozen = model.blocks[0].eval()
    filled = predict(model, DATA.puzzles, batch_size=4)
    assert model.training
    assert not frozen.training
    model.eval()
    with torch.no_grad():
        expected = model(encode(DATA.puzzles)).numpy().argmax(axis=1) + 1
    np.testing.assert_array_equal(filled, expected)
    np.testing.assert_array_equal(predict(model, DATA.puzzles), expected)


def test_predicting_leaves_the_network_fit_for_training():
    model = masked()
    predict(model, DATA.puzzles)
    losses = train_sudoku(model, *DATA, epochs=2, seed=0)
    fresh = masked()
    assert train_sudoku(fresh, *DATA, epochs=2, seed=0) == losses
    np.testing.assert_array_equal(predict(model, DATA.puzzles), predict(fresh, DATA.puzzles))


def test_evaluate_scores_what_the_network_fills_in_one_pass():
    scores = evaluate(Repeat(), *DATA, batch_size=3)
    blank = DATA.puzzles == 0
    assert scores.n_puzzles == 10
    assert scores.blank == pytest.approx((DATA.solutions[blank] == 1).mean())
    assert scores.number == pytest.approx((50 * 10 + (DATA.solutions[blank] == 1).sum()) / 810)
    assert scores.solved == 0
    ones = np.where(blank, 1, DATA.puzzles)
    for name in ("row", "col", "box"):
        assert getattr(scores, name) == pytest.approx(getattr(sudoku.metrics(ones), name).mean())
    full = evaluate(Repeat(), DATA.solutions, DATA.solutions)
    assert (full.number, full.row, full.col, full.box, full.solved) == (1, 1, 1, 1, 1)
    assert math.isnan(full.blank)


def test_complete_fills_the_surest_cell_first_and_asks_again():
    filled = complete(Singles(), DATA.puzzles, batch_size=3)
    np.testing.assert_array_equal(filled, DATA.solutions)
    # In one pass the same network fails: it takes the first of the digits that are left.
    assert evaluate(Singles(), *DATA).solved == 0
    at_once = complete(Singles(), DATA.puzzles, per_round=81)
    assert not np.array_equal(at_once, DATA.solutions)


def test_complete_keeps_givens_and_equals_a_pass_where_all_is_written_at_once():
    model = small(seed=4)
    uneven = DATA.puzzles.copy()
    uneven[0] = DATA.solutions[0]
    uneven[1, 1:] = 0
    for per_round in (1, 7, 81):
        filled = complete(model, uneven, per_round=per_round)
        assert (filled[uneven > 0] == uneven[uneven > 0]).all()
        assert filled.min() >= 1
    np.testing.assert_array_equal(filled, np.where(uneven > 0, uneven, predict(model, uneven)))
    assert (uneven[1, 1:] == 0).all()  # the puzzles themselves are left as they were


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1, found 0"),
        ({"batch_size": 0}, "batch_size must be >= 1, found 0"),
        ({"seed": -1}, "seed must be >= 0, found -1"),
        ({"save_every": 0}, "save_every must be >= 1, found 0"),
        ({"lr": 0.0}, "lr must be positive and finite, found 0"),
        ({"lr": math.nan}, "lr must be positive and finite, found nan"),
        ({"solutions": DATA.solutions[:4]}, "10 puzzles and 4 solutions"),
        ({"solutions": DATA.puzzles}, r"solutions must hold digits 1 \.\. 9, found 0"),
        ({"puzzles": DATA.puzzles[:0], "solutions": DATA.solutions[:0]}, r"n >= 1, found \(0, 9, 9\)"),
        ({"model": nn.Conv2d(1, 10, 1)}, r"to logits \(10, 9, 9, 9\), found \(10, 10, 9, 9\)"),
    ],
)
def test_bad_arguments_are_refused(changed, message):
    arguments: dict[str, Any] = {
        "model": small(),
        "puzzles": DATA.puzzles,
        "solutions": DATA.solutions,
        "epochs": 1,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=message):
        train_sudoku(**{**arguments, **changed})


def test_a_training_that_diverges_stops():
    model = small()
    with torch.no_grad():
        model.head.bias.fill_(math.inf)
    with pytest.raises(ValueError, match="the loss is nan at step 1: choose a smaller lr"):
        train_sudoku(model, *DATA, epochs=1, seed=0)


def test_filling_refuses_bad_arguments():
    with pytest.raises(ValueError, match="per_round must be >= 1, found 0"):
        complete(small(), DATA.puzzles, per_round=0)
    with pytest.raises(ValueError, match="batch_size must be >= 1, found 0"):
        predict(small(), DATA.puzzles, batch_size=0)
    with pytest.raises(ValueError, match="10 puzzles and 9 solutions"):
        evaluate(small(), DATA.puzzles, DATA.solutions[1:])
    with pytest.raises(ValueError, match=r"puzzles must hold digits 0 \.\. 9, found 10 in row 1, column 1 of board 0"):
        predict(small(), DATA.puzzles * 0 + 10)
