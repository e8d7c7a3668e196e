import numpy as np
import pytest
import torch

from icl25_lp_conv.datasets.digit_canvas import digit_canvases, place_digits, split_digits
from icl25_lp_conv.digits_task import DigitsSizes, digits_accuracies, train_on_digits
from icl25_lp_conv.layers import LpConv2d

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
