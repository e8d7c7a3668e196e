"""The network of the confidence classifier, its first weights, steps and draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from icl25_pn_gail import classifier_training
from icl25_pn_gail.classifier_training import Layer, Risk, Sampling, initial_layers, logits, train


def test_initial_layers():
    layers = initial_layers([4, 400, 300, 1], np.random.default_rng(0))
    for layer, inputs in zip(layers[:-1], (4, 400), strict=True):
        for array in layer:
            assert np.abs(array).max() <= inputs**-0.5
            assert array.std() == pytest.approx(inputs**-0.5 / np.sqrt(3), rel=0.1)
    assert np.abs(layers[-1].weight).max() <= 0.1 * 300**-0.5
    assert layers[-1].weight.std() == pytest.approx(0.1 * 300**-0.5 / np.sqrt(3), rel=0.15)
    np.testing.assert_array_equal(layers[-1].bias, [0])


def test_first_step_follows_the_gradient():
    # Without dropout, and with one labelled row, a step of Adam moves each weight by lr against its gradient.
    X = np.array([[0.5, -1.0]], np.float32)
    layers = [Layer(np.full((2, 1), 0.3, np.float32), np.zeros(1, np.float32))]
    g = float(logits(layers, X)[0])
    gradient = (1 / (1 + np.exp(-g)) - 0.9) * X[0]
    numbers = Risk(0.5, 0.5, np.inf, 0.9)
    (moved,) = train(
        layers,
        X,
        np.array([0.9]),
        numbers,
        Sampling(1, 0),
        np.random.default_rng(0),
        method="bsc",
        steps=1,
        lr=0.01,
        dropout=0.0,
    )
    np.testing.assert_allclose(moved.weight[:, 0], 0.3 - 0.01 * np.sign(gradient), atol=1e-6)


@pytest.mark.parametrize("method", ["bsc", "sc"])
def test_steps_are_those_of_a_plain_loop(method):
    # The risks written out, with the draws of the same generator: dropout, rows, order of labelled and unlabelled.
    X = np.random.default_rng(1).normal(size=(30, 3)).astype(np.float32)
    r = np.where(np.arange(30) % 3 == 0, np.linspace(0, 1, 30), np.nan)
    numbers, sampling, rate = Risk(0.7, 0.4, 0.05, 0.9), Sampling(4, 6), 0.25
    layers = initial_layers([3, 8, 5, 1], np.random.default_rng(2))
    arguments = {"steps": 12, "lr": 0.02, "dropout": rate}
    found = train(layers, X, r, numbers, sampling, np.random.default_rng(3), method=method, **arguments)
    ((_, draws),) = classifier_training._draw(r, sampling, [8, 5], np.random.default_rng(3), 12, rate)

    def loss(layers, rows, given, first, second):
        hidden = jnp.tanh(rows @ layers[0][0] + layers[0][1]) * first / (1 - rate)
        hidden = jnp.tanh(hidden @ layers[1][0] + layers[1][1]) * second / (1 - rate)
        g = jnp.ravel(hidden @ layers[2][0] + layers[2][1])
        positive, negative = jnp.log1p(jnp.exp(-g)), jnp.log1p(jnp.exp(g))
        if method == "sc":
            good = jnp.mean((given - 0.4) * positive[:4]) + 0.4 * jnp.mean(positive[4:])
            return jnp.maximum(good, 0) + jnp.mean((1 - given) * negative[:4])
        balance = 0.7 * positive + 0.4 * negative
        correction = jnp.clip(balance[4:].mean() - balance[:4].mean(), -0.05, 0.05)
        return jnp.mean(given * positive[:4] + (1 - given) * negative[:4]) + correction

    optimizer = optax.amsgrad(0.02)
    state = optimizer.init(layers)
    gradient = jax.jit(jax.grad(loss))
    for chosen, first, second in zip(draws.rows, *draws.kept, strict=True):
        updates, state = optimizer.update(gradient(layers, X[chosen], r[chosen[:4]], first, second), state)
        layers = optax.apply_updates(layers, updates)
    for ours, expected in zip(jax.tree.leaves(found), jax.tree.leaves(layers), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "batch_size", "expected"),
    [
        (400, 1600, 1, (1, 4)),
        (100, 1900, 8, (8, 152)),
        (300, 200, 8, (8, 8)),
        (10, 0, 8, (8, 0)),
        (10, 10_000, 8, (8, 1016)),
        (10, 10_000, 800, (800, 800)),
    ],
)
def test_sampling(labelled, unlabelled, batch_size, expected):
    found = Sampling.of(labelled, unlabelled, batch_size)
    assert (found.n_labelled, found.n_unlabelled) == expected


def test_draws_take_labelled_rows_first_and_leave_out_units():
    r = np.array([np.nan, 0.2, np.nan, 0.9, np.nan])
    draw = classifier_training._draw
    ((count, draws),) = draw(r, Sampling(2, 3), [50, 60], np.random.default_rng(0), 40, 0.25)
    assert count == 40
    assert set(draws.rows[:, :2].ravel()) == {1, 3}
    assert set(draws.rows[:, 2:].ravel()) == {0, 2, 4}
    assert [kept.shape for kept in draws.kept] == [(40, 5, 50), (40, 5, 60)]
    assert np.mean(draws.kept[0]) == pytest.approx(0.75, abs=0.02)
