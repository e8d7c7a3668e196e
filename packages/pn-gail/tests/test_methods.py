from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.nn import softplus

from icl25_pn_gail import losses
from icl25_pn_gail.methods import METHODS, demo_set
from icl25_pn_gail.rollout import Scaler

RNG = np.random.default_rng(0)
N = 10
OBS, ACTIONS = RNG.normal(size=(N, 2)), RNG.normal(size=(N, 1))
GIVEN = np.array([0.9, np.nan, 0.2, 0.6, np.nan, np.nan, 0.0, 1.0, np.nan, 0.3])
FILLED = np.where(np.isnan(GIVEN), RNG.uniform(size=N), GIVEN)
LABELLED, UNLABELLED = np.flatnonzero(~np.isnan(GIVEN)), np.flatnonzero(np.isnan(GIVEN))
FAKE, LOGITS = RNG.normal(0, 2, 7), RNG.normal(0, 2, N)
SCALER = Scaler(np.array([1.0, -1.0]), np.array([2.0, 0.5]))


@pytest.fixture(autouse=True)
def double(x64):
    """All in double precision."""


def made(method, given=GIVEN, filled=FILLED, **options):
    return demo_set(method, OBS, ACTIONS, given, filled, SCALER, **options)


def expected_loss(demos):
    """The loss of the discriminator over all batches: half a batch is from each stream, drawn evenly from its rows."""
    total = float(demos.fake_weight) * np.mean(softplus(-FAKE))
    for stream in (demos.first, demos.second):
        rows = np.asarray(stream.rows)[: int(stream.count)]
        each = stream.positive[rows] * softplus(LOGITS[rows]) + stream.negative[rows] * softplus(-LOGITS[rows])
        total += 0.5 * float(np.mean(each))
    return total


EXPECTED = {
    "pn-gail": lambda: losses.pn_loss(FAKE, LOGITS, FILLED),
    "2iwil": lambda: losses.iwil_loss(FAKE, LOGITS, FILLED),
    "ic-gail": lambda: losses.icgail_loss(FAKE, LOGITS[LABELLED], LOGITS[UNLABELLED], GIVEN[LABELLED]),
    "wgail": lambda: losses.gail_loss(FAKE, LOGITS),  # before any weights are computed
    "gail": lambda: losses.gail_loss(FAKE, LOGITS),
    "gail-c": lambda: losses.gail_loss(FAKE, LOGITS[LABELLED]),
    "gail-reweight": lambda: losses.iwil_loss(FAKE, LOGITS[LABELLED], GIVEN[LABELLED]),
}


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_drawn_so_that_their_mean_loss_is_that_of_the_method(method):
    demos = made(method)
    np.testing.assert_allclose(expected_loss(demos), EXPECTED[method](), rtol=1e-12)
    assert bool(demos.reweight) == (method == "wgail")
    rows = {"gail-c": LABELLED, "gail-reweight": LABELLED}.get(method, np.arange(N))
    drawn = [np.asarray(stream.rows)[: int(stream.count)] for stream in (demos.first, demos.second)]
    if method == "ic-gail":
        np.testing.assert_array_equal(drawn[0], LABELLED)
        np.testing.assert_array_equal(drawn[1], UNLABELLED)
    else:
        np.testing.assert_array_equal(drawn, [rows, rows])
    # Every method is the same program: arrays have the same shapes.
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), demos)
    assert shapes == jax.tree.map(lambda x: (x.shape, x.dtype), made("gail"))


@pytest.mark.parametrize("min_prior", [0.0, 0.3, 1.0])
def test_the_least_prior_of_icgail_is_a_setting(min_prior):
    expected = losses.icgail_loss(FAKE, LOGITS[LABELLED], LOGITS[UNLABELLED], GIVEN[LABELLED], min_prior)
    demos = made("ic-gail", min_prior=min_prior)
    np.testing.assert_allclose(expected_loss(demos), expected, rtol=1e-12)
    np.testing.assert_allclose(demos.fake_weight, max(np.nanmean(GIVEN), min_prior))


def test_icgail_with_good_labels_only_and_with_no_unlabelled_rows():
    good = np.where(np.isnan(GIVEN), np.nan, 1.0)
    demos = made("ic-gail", good, np.ones(N))
    expected = np.mean(softplus(-FAKE)) + np.mean(softplus(LOGITS[UNLABELLED]))
    np.testing.assert_allclose(expected_loss(demos), expected, rtol=1e-12)
    rated = made("ic-gail", FILLED, FILLED)
    np.testing.assert_allclose(expected_loss(rated), losses.icgail_loss(FAKE, LOGITS, LOGITS, FILLED), rtol=1e-12)


def test_rows_are_normalised_and_keep_their_confidence():
    demos = made("pn-gail")
    np.testing.assert_allclose(demos.obs, (OBS - [1, -1]) / [2, 0.5])
    np.testing.assert_array_equal(demos.actions, ACTIONS)
    np.testing.assert_array_equal(demos.confidence, FILLED)
    np.testing.assert_array_equal(demos.scaler.mean, SCALER.mean)
    chosen = demo_set("gail", OBS, np.arange(N) % 3, GIVEN, FILLED, SCALER)
    assert jnp.issubdtype(chosen.actions.dtype, jnp.integer)
    np.testing.assert_array_equal(chosen.actions, np.arange(N) % 3)


@pytest.mark.parametrize("method", ["pn-gail", "2iwil", "gail-reweight"])
def test_nothing_to_imitate_is_refused(method):
    with pytest.raises(ValueError, match="every confidence is 0, so there is nothing to imitate"):
        made(method, np.where(np.isnan(GIVEN), np.nan, 0.0), np.zeros(N))
