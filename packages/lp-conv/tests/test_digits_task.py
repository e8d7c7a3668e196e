import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.datasets.digit_canvas import digit_canvases, place_digits, split_digits
from icl25_lp_conv.digits_task import DigitsSizes, digits_accuracies, train_on_digits
from icl25_lp_conv.layers import LpConv2d
from icl25_lp_conv.models import digits_resnet
from icl25_lp_conv.reproducibility import seeded

TINY = DigitsSizes(n_train=100, n_test=50, epochs=1, widths=(2, 3, 4))


def test_digits_lie_whole_on_the_canvas():
    digits = np.ones((50, 1, 12, 12), np.float32)
    x = place_digits(digits, np.random.default_rng(0))
    assert x.shape == (50, 1, 20, 20)
    np.testing.assert_allclose(x.sum((1, 2, 3)), 144, atol=5 * 0.25 * 20)
    lit = x[:, 0] > 0.75
    tops, lefts = lit.any(2).argmax(1), lit.any(1).argmax(1)
    assert {tops.min(), lefts.min()} == {0}
    assert {tops.max(), lefts.max()} == {8}


def test_noise_has_the_stated_spread():
    x = place_digits(np.zeros((200, 1, 12, 12), np.float32), np.random.default_rng(0))
    assert x.std() == pytest.approx(0.25, rel=0.02)


def test_training_and_test_digits_differ_and_follow_the_seed():
    train, test = split_digits(500, 1000, np.random.default_rng(3))
    assert not {image.tobytes() for image in train.x} & {image.tobytes() for image in test.x}
    again, _ = digit_canvases(500, 1000, 3)
    np.testing.assert_array_equal(again.y, train.y)
    np.testing.assert_array_equal(again.x, digit_canvases(500, 1000, 3)[0].x)
    assert not np.array_equal(again.x, digit_canvases(500, 1000, 4)[0].x)


def test_digits_are_enlarged_and_keep_their_classes():
    images, labels = load_digits(return_X_y=True)
    known = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    train, test = split_digits(40, 30, np.random.default_rng(5))
    assert len({*train.y[:20]}) > 5
    for part, n in ((train, 40), (test, 30)):
        assert part.x.shape == (n, 1, 12, 12)
        assert part.x.dtype == np.float32
        for large, label in zip(part.x[:, 0], part.y, strict=True):
            # The corners of both lie on each other; between them values are interpolated.
            candidates = [key for key, number in known.items() if number == label]
            grids = np.stack([np.frombuffer(key).reshape(8, 8) / 16 for key in candidates])
            axis = np.linspace(0, 7, 12)
            low = np.minimum(axis.astype(int), 6)
            part_of = axis - low
            rows = grids[:, low] * (1 - part_of)[:, None] + grids[:, low + 1] * part_of[:, None]
            bilinear = rows[:, :, low] * (1 - part_of) + rows[:, :, low + 1] * part_of
            assert np.abs(bilinear - large).max(axis=(1, 2)).min() < 1e-6


def test_digits_are_drawn_at_random():
    first, other = (split_digits(50, 50, np.random.default_rng(seed))[0].y for seed in (0, 1))
    assert not np.array_equal(first, other)


def test_canvases_show_the_digits_of_their_classes():
    rng = np.random.default_rng(2)
    parts = split_digits(30, 20, rng)
    for found, digits in zip(digit_canvases(30, 20, 2), parts, strict=True):
        np.testing.assert_array_equal(found.y, digits.y)
        np.testing.assert_array_equal(found.x, place_digits(digits.x, rng))


def test_noise_lies_under_digits_too():
    digits = np.full((40, 1, 20, 20), 0.5, np.float32)
    x = place_digits(digits, np.random.default_rng(0))
    assert x.mean() == pytest.approx(0.5, abs=0.01)
    assert x.std() == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize(("n_train", "n_test"), [(0, 5), (5, 0), (1000, 798)])
def test_more_digits_than_there_are(n_train, n_test):
    with pytest.raises(ValueError, match=f"found {n_train} and {n_test}"):
        digit_canvases(n_train, n_test, 0)


@pytest.mark.parametrize(("variant", "kernel", "masked"), [("3x3", 3, False), ("7x7", 7, False), ("Lp p=4", 7, True)])
def test_kernels_are_of_the_kind_asked_for(variant, kernel, masked):
    model, accuracy = train_on_digits(variant, 0, TINY)
    convs = [module for module in model.modules() if isinstance(module, torch.nn.Conv2d)]
    assert {conv.kernel_size[0] for conv in convs} == {1, kernel}
    assert all(isinstance(conv, LpConv2d) == (variant != "3x3") for conv in convs if conv.kernel_size[0] > 1)
    assert {name for name, _ in model.named_parameters() if name.endswith(".C")} != set() or not masked
    assert 0 <= accuracy <= 1


@pytest.mark.parametrize(("variant", "p"), [("3x3", None), ("7x7", None), ("Lp p=16", 16.0)])
def test_training_is_that_of_its_description(variant, p):
    sizes = DigitsSizes(n_train=230, n_test=60, epochs=12, widths=(4, 6, 8), redrawn=False)
    model, accuracy = train_on_digits(variant, 5, sizes)
    assert not model.training
    rng = np.random.default_rng(5)
    train, test = split_digits(230, 60, rng)
    x_test, x = (torch.from_numpy(place_digits(part.x, rng)) for part in (test, train))
    with seeded(5):
        expected = digits_resnet(widths=(4, 6, 8))
        if variant != "3x3":
            expected = convert(expected, p=p, transfer="none", min_kernel=2, sigma=1.5)
        groups = [
            {"params": [value], "weight_decay": 0.05 if value.ndim > 1 and not name.endswith(".C") else 0.0}
            for name, value in expected.named_parameters()
        ]
        optimizer = torch.optim.AdamW(groups, lr=4e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=48)
        for _ in range(12):
            order = torch.randperm(230)
            for rows in order[:200].view(4, 50):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(expected(x[rows]), torch.from_numpy(train.y)[rows]).backward()
                optimizer.step()
                schedule.step()
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=1e-4, atol=1e-5)
    predicted = expected.eval()(x_test).argmax(1).numpy()
    assert len({*predicted}) > 1
    assert accuracy == np.mean(predicted == test.y)


def test_masks_are_trained():
    model, _ = train_on_digits("Lp p=2", 0, TINY)
    layer = next(module for module in model.modules() if isinstance(module, LpConv2d))
    start = torch.eye(2) / 1.5001
    assert (layer.C - start).abs().max() > 1e-3
    assert (layer.log2p - 1).abs().max() > 1e-3


def test_result_depends_on_neither_workers_nor_the_generator_of_the_caller():
    state = torch.random.get_rng_state()
    one = digits_accuracies(["3x3", "Lp p=4"], [0, 1], TINY)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(3)
    assert digits_accuracies(["3x3", "Lp p=4"], [0, 1], TINY, n_jobs=2) == one
    assert digits_accuracies(["Lp p=4"], [1], TINY)["Lp p=4"] == one["Lp p=4"][1:]


def test_redrawn_images_change_the_training():
    fixed = DigitsSizes(n_train=100, n_test=50, epochs=2, widths=(2, 3, 4), redrawn=False)
    redrawn = DigitsSizes(n_train=100, n_test=50, epochs=2, widths=(2, 3, 4), redrawn=True)
    weights = [next(train_on_digits("3x3", 0, sizes)[0].parameters()) for sizes in (fixed, redrawn)]
    assert not torch.equal(*weights)


def test_unknown_variant_is_refused():
    with pytest.raises(ValueError, match=r"one of 3x3, 7x7, Lp p=2.*found '5x5'"):
        train_on_digits("5x5", 0, TINY)
