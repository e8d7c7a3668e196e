from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_sava.corruption import corrupt

SHAPE = (32, 32, 3)


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.2, 0.8, size=(200, int(np.prod(SHAPE)))).astype(np.float32)
    return X, rng.integers(4, size=200)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(4, 60),
    fraction=st.floats(0.2, 0.95),
    kind=st.sampled_from(["labels", "features"]),
    labels=st.sampled_from([np.array(["cat", "dog", "eel"]), np.array([7, 42, -1]), np.array([True, False])]),
)
def test_corrupts_the_exact_number_of_rows_and_only_what_it_names(n, fraction, kind, labels):
    X = np.random.default_rng(1).normal(size=(n, 5))
    y = labels[np.arange(n) % len(labels)]
    before = X.copy(), y.copy()
    new = corrupt(X, y, kind, fraction, 0)
    assert np.array_equal(X, before[0])
    assert np.array_equal(y, before[1])
    assert new.mask.sum() == round(fraction * n)
    assert new.y.dtype == y.dtype
    changed = new.y != y if kind == "labels" else (new.X != X).all(axis=1)
    assert np.array_equal(changed, new.mask)
    assert np.array_equal(new.y, y) if kind == "features" else np.array_equal(new.X, X)


def test_wrong_labels_are_uniform_over_the_other_classes():
    y = np.repeat(np.arange(4), 5000)
    new = corrupt(np.zeros((20000, 1)), y, "labels", 0.5, 3)
    moves = np.zeros((4, 4))
    np.add.at(moves, (y[new.mask], new.y[new.mask]), 1)
    assert np.diag(moves).sum() == 0
    # 2 500 rows of each class spread over 3 others: five standard deviations are 118.
    others = moves[~np.eye(4, dtype=bool)]
    assert np.abs(others - 10000 / 12).max() < 130


def test_feature_noise_has_the_papers_deviation_and_is_clipped_only_on_demand(images):
    X, y = images
    new = corrupt(X, y, "features", 0.5, 0)
    noise = (new.X - X)[new.mask]
    assert noise.std() == pytest.approx(0.1**0.7, rel=0.01)
    assert abs(noise.mean()) < 0.002
    assert new.X.dtype == np.float32
    assert new.X.max() > 1
    clipped = corrupt(X, y, "features", 0.5, 0, clip=True)
    assert np.array_equal(clipped.X, np.clip(new.X, 0, 1))
    wide = corrupt(255 * X, y, "features", 0.5, 0, value_range=(0, 255))
    np.testing.assert_allclose(wide.X, 255 * new.X, atol=1e-3)


def test_trojan_puts_fresh_noise_on_the_square_and_relabels_rows_of_any_class(images):
    X, y = images
    new = corrupt(X, y, "trojan", 0.1, 0, image_shape=SHAPE, target=2)
    moved = (new.X != X).reshape(-1, *SHAPE)
    assert moved[new.mask, 18:28, 18:28].all()
    moved[new.mask, 18:28, 18:28] = False
    assert not moved.any()
    assert set(np.unique(y[new.mask])) == set(np.unique(y))
    assert (new.y[new.mask] == 2).all()
    squares = (new.X - X).reshape(-1, *SHAPE)[new.mask, 18:28, 18:28]
    assert not np.allclose(squares[0], squares[1])
    assert squares.std() == pytest.approx(0.1**0.7, rel=0.05)


def test_patch_is_the_same_in_every_row(images):
    X, y = images
    new = corrupt(X, y, "patch", 0.1, 0, image_shape=SHAPE)
    squares = new.X.reshape(-1, *SHAPE)[new.mask, 18:28, 18:28]
    assert np.array_equal(squares, np.broadcast_to(squares[0], squares.shape))
    assert set(np.unique(squares)) == {0, 1}
    assert (new.y[new.mask] == 0).all()


def test_patch_of_a_small_grey_image_stays_inside():
    y = np.arange(100) % 2
    new = corrupt(np.full((100, 64), 0.5), y, "patch", 0.2, 0, image_shape=(8, 8))
    moved = (new.X != 0.5).reshape(-1, 8, 8)[new.mask]
    assert moved[:, 4:7, 4:7].all()
    assert moved.sum() == 20 * 9


def test_blend_moves_rows_of_the_base_class_towards_the_target_class():
    y = np.repeat(["frog", "cat", "owl"], 50)
    X = np.repeat([0.0, 1.0, 5.0], 50)[:, None] * np.ones((150, 3))
    new = corrupt(X, y, "blend", 0.1, 0, base="frog", target="cat", strength=0.3)
    assert (y[new.mask] == "frog").all()
    assert new.mask.sum() == 15
    np.testing.assert_allclose(new.X[new.mask], 0.3)
    assert np.array_equal(new.y, y)
    default = corrupt(X, y, "blend", 0.1, 0, target="cat")
    assert (y[default.mask] == "frog").all()


def test_the_seed_decides(images):
    X, y = images
    first, second, other = (corrupt(X, y, "trojan", 0.1, seed, image_shape=SHAPE) for seed in (5, 5, 6))
    assert first.X.tobytes() == second.X.tobytes()
    assert np.array_equal(first.mask, second.mask)
    assert not np.array_equal(first.mask, other.mask)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "fog"}, "kind is 'fog', expected one of labels"),
        ({"fraction": 1.0}, "fraction is 1.0"),
        ({"fraction": 0.001}, "no row at all"),
        ({"y": np.arange(7)}, "X has 200 rows, y has 7"),
        ({"y": np.zeros(200, int)}, "y holds only"),
        ({"kind": "trojan"}, "image_shape is missing"),
        ({"kind": "trojan", "image_shape": (8, 9)}, "does not describe rows of 64"),
        ({"kind": "trojan", "image_shape": (1, 64)}, "4 pixels a side"),
        ({"kind": "patch", "image_shape": (8, 8), "target": "x"}, "target is 'x', y holds the classes 0, 1, 2, 3"),
        ({"kind": "blend", "fraction": 0.9}, "should corrupt 180 rows, only 50 qualify"),
        ({"kind": "blend", "base": 1, "target": 1}, "expected two classes"),
        ({"kind": "blend", "strength": 0.0}, "strength is 0.0"),
        ({"value_range": (1, 0)}, "value_range"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = {"X": np.zeros((200, 64)), "y": np.arange(200) % 4, "random_state": 0} | change
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        corrupt(**arguments)


def test_integer_pixels_are_refused():
    with pytest.raises(TypeError, match="uint8, expected floating point"):
        corrupt(np.zeros((10, 4), np.uint8), np.arange(10), "features")
