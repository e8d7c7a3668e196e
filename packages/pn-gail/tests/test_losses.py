"""Losses against numbers worked out by hand, arrays of the reference implementation, and identities."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_pn_gail import losses
from icl25_pn_gail.advantages import gae
from icl25_pn_gail.losses import (
    bsc_risk,
    gail_loss,
    icgail_loss,
    imitation_reward,
    iwil_loss,
    pn_loss,
    sc_risk,
    supervised_risk,
    weighted_loss,
    weights,
    wgail_weights,
)
from icl25_pn_gail.optima import optimal_discriminator, optimal_generator
from icl25_pn_gail.trpo import trpo_step

FAKE, DEMO, R = np.array([0.5, -0.5]), np.array([1.0, -1.0]), np.array([0.9, 0.2])
pytestmark = pytest.mark.usefixtures("x64")


def sigmoid(g):
    return 1 / (1 + np.exp(-g))


def draws(seed, *sizes):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=size) for size in sizes]


class TestDiscriminator:
    def test_values(self):
        assert float(pn_loss(FAKE, DEMO, R)) == pytest.approx(1.8873386717, abs=1e-10)
        assert float(gail_loss(FAKE, DEMO)) == pytest.approx(1.5373386717, abs=1e-10)
        assert float(iwil_loss(FAKE, DEMO, R)) == pytest.approx(1.8555204899, abs=1e-10)

    @pytest.mark.parametrize("name", ["gail", "2iwil", "pn", "ic"])
    def test_reference(self, golden, name):
        arrays = golden("core")
        fake, demo, r = (arrays[key][:, 0] for key in ("disc_fake", "disc_real", "demo_conf"))
        found = {
            "gail": lambda: gail_loss(fake, demo),
            "2iwil": lambda: iwil_loss(fake, demo, r),
            "pn": lambda: pn_loss(fake, demo, r),
            "ic": lambda: icgail_loss(fake, demo[:6], demo[6:], r[:6]),
        }[name]()
        assert float(found) == pytest.approx(float(arrays[f"dloss_{name}"]), abs=1e-9)

    def test_pn_differs_from_gail_by_the_mean_bad_logit(self):
        fake, demo = draws(0, 5, 9)
        r = sigmoid(draws(1, 9)[0])
        difference = float(pn_loss(fake, demo, r) - gail_loss(fake, demo))
        assert difference == pytest.approx(-np.mean((1 - r) * demo), abs=1e-14)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_all_methods_agree_bit_for_bit_on_optimal_rows(self, dtype):
        fake, demo = (values.astype(dtype) for values in draws(2, 7, 11))
        ones = np.ones_like(demo)
        found = [gail_loss(fake, demo), iwil_loss(fake, demo, ones), pn_loss(fake, demo, ones)]
        assert all(value.dtype == dtype for value in found)
        assert len({np.asarray(value).tobytes() for value in found}) == 1

    def test_order_of_the_demonstrations_does_not_matter(self):
        fake, demo = draws(3, 4, 12)
        r, order = sigmoid(draws(4, 12)[0]), np.random.default_rng(5).permutation(12)
        for loss in (pn_loss, iwil_loss, lambda fake, g, r: gail_loss(fake, g)):
            assert float(loss(fake, demo, r)) == pytest.approx(float(loss(fake, demo[order], r[order])), abs=1e-14)
        known, unknown = order[:8], order[8:]
        found = [icgail_loss(fake, demo[k], demo[u], r[k]) for k, u in ((known, unknown), (known[::-1], unknown[::-1]))]
        assert float(found[0]) == pytest.approx(float(found[1]), abs=1e-14)

    def test_gradients_are_the_residuals_of_the_discriminator(self):
        fake, demo = draws(6, 5, 8)
        r = sigmoid(draws(7, 8)[0])
        of_fake, of_demo = jax.grad(pn_loss, argnums=(0, 1))(fake, demo, r)
        np.testing.assert_allclose(of_demo, (sigmoid(demo) - (1 - r)) / 8, atol=1e-15)
        np.testing.assert_allclose(of_fake, (sigmoid(fake) - 1) / 5, atol=1e-15)

    def test_best_logit_of_each_place_is_the_optimal_discriminator(self):
        # One place, demonstrated and visited alike: D* = (p_gen + (1 - r) p) / (p_gen + p), with p_gen = p.
        r = np.array([0.3])
        best = np.log((2 - r) / r)
        slope = jax.grad(lambda g: pn_loss(g, g, r))(best)
        assert float(slope[0]) == pytest.approx(0, abs=1e-15)

    def test_weights(self):
        for method, expected in (("gail", ([1, 1], [0, 0])), ("iwil", (R / 0.55, [0, 0])), ("pn", (R, [0.1, 0.8]))):
            np.testing.assert_allclose(np.stack(weights(method, R)), np.array(expected), atol=1e-15)
        np.testing.assert_allclose(weights("iwil", R, alpha=0.5).positive, [1.8, 0.4])
        assert float(iwil_loss(FAKE, DEMO, R, alpha=0.5)) == pytest.approx(
            np.mean(np.logaddexp(0, -FAKE)) + np.mean(R / 0.5 * np.logaddexp(0, DEMO))
        )
        with pytest.raises(ValueError, match="found 'airl'"):
            weights("airl", R)

    def test_weight_of_the_agent(self):
        only_demo = float(weighted_loss(FAKE, DEMO, R, 1 - R, 0.0))
        assert float(weighted_loss(FAKE, DEMO, R, 1 - R, 3.0)) == pytest.approx(
            only_demo + 3 * np.mean(np.logaddexp(0, -FAKE))
        )

    def test_traced_over_methods(self):
        methods = [weights(method, R) for method in ("gail", "iwil", "pn")]
        stacked = [jnp.stack(part) for part in zip(*methods, strict=True)]
        found = jax.jit(jax.vmap(weighted_loss, in_axes=(None, None, 0, 0)))(FAKE, DEMO, *stacked)
        expected = [gail_loss(FAKE, DEMO), iwil_loss(FAKE, DEMO, R), pn_loss(FAKE, DEMO, R)]
        np.testing.assert_allclose(found, expected, atol=1e-15)


class TestIcGail:
    def test_all_optimal_labels_drop_the_middle_term(self):
        fake, labelled, unlabelled = draws(8, 4, 3, 5)
        expected = np.mean(np.logaddexp(0, -fake)) + np.mean(np.logaddexp(0, unlabelled))
        ones = np.ones(3)
        assert float(icgail_loss(fake, labelled, unlabelled, ones)) == pytest.approx(expected)
        slopes = jax.grad(icgail_loss, argnums=(0, 1, 2))(fake, labelled, unlabelled, ones)
        assert all(np.isfinite(slope).all() for slope in slopes)
        np.testing.assert_array_equal(slopes[1], 0)

    def test_prior_is_bounded_below(self):
        fake, labelled, unlabelled = draws(9, 4, 2, 5)
        r = np.array([0.2, 0.4])
        for min_prior in (0.7, 0.1):
            prior = max(0.3, min_prior)
            expected = (
                prior * np.mean(np.logaddexp(0, -fake))
                + (1 - prior) / 0.7 * np.mean((1 - r) * np.logaddexp(0, -labelled))
                + np.mean(np.logaddexp(0, unlabelled))
            )
            assert float(icgail_loss(fake, labelled, unlabelled, r, min_prior)) == pytest.approx(expected)

    def test_no_unlabelled_rows(self):
        fake, labelled = draws(10, 4, 2)
        assert np.isfinite(float(icgail_loss(fake, labelled, np.zeros(0), np.array([0.5, 0.9]))))


class TestReward:
    def test_reference(self, golden):
        arrays = golden("core")
        np.testing.assert_allclose(imitation_reward(arrays["disc_fake"]), arrays["reward"], atol=1e-10)

    def test_values_and_kinds(self):
        g = np.linspace(-8, 8, 41)
        for kind, expected in (("nonsaturating", -np.log(sigmoid(g))), ("airl", -g), ("gail", np.log(1 - sigmoid(g)))):
            found = np.asarray(imitation_reward(g, kind))
            np.testing.assert_allclose(found, expected, atol=1e-12)
            assert (np.diff(found) < 0).all()
        assert (np.asarray(imitation_reward(g)) >= 0).all()
        assert float(imitation_reward(np.zeros(()))) == pytest.approx(np.log(2))
        with pytest.raises(ValueError, match="found 'sqil'"):
            imitation_reward(g, "sqil")

    def test_extreme_logits_stay_finite(self):
        np.testing.assert_allclose(imitation_reward(np.array([-1e4, 1e4])), [1e4, 0])


class TestWgail:
    def test_reference(self, golden):
        arrays = golden("core")
        policy = {name: arrays[f"policy/{name}"] for name in ("affine1.weight", "affine1.bias", "affine2.weight")}
        hidden = np.tanh(arrays["demo"][:, :3] @ policy["affine1.weight"].T + policy["affine1.bias"])
        hidden = np.tanh(hidden @ policy["affine2.weight"].T + arrays["policy/affine2.bias"])
        mean = hidden @ arrays["policy/action_mean.weight"].T + arrays["policy/action_mean.bias"]
        log_std = arrays["policy/action_log_std"][0]
        z = (arrays["demo"][:, 3:] - mean) / np.exp(log_std)
        log_prob = np.sum(-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi), axis=1)
        found = wgail_weights(arrays["disc_real"][:, 0], log_prob)
        np.testing.assert_allclose(found, arrays["wgail_w"][:, 0], rtol=1e-9)

    def test_formula(self):
        g, log_prob = np.array([0.3, -2.0]), np.array([-1.0, 0.5])
        for beta in (1.0, 0.5):
            expected = ((1 / sigmoid(g) - 1) * np.exp(log_prob)) ** (1 / (beta + 1))
            np.testing.assert_allclose(wgail_weights(g, log_prob, beta), expected, rtol=1e-12)


class TestBalancedRisk:
    one, r, two = np.array([1.0]), np.array([0.7]), np.zeros(2)

    def test_values(self):
        half = {"alpha": 0.5, "beta": 0.5}
        assert float(supervised_risk(self.one, self.r)) == pytest.approx(0.6132616875, abs=1e-10)
        assert float(bsc_risk(self.one, self.r, self.two, **half)) == pytest.approx(0.6032616875, abs=1e-10)
        assert float(bsc_risk(self.one, self.r, self.two, **half, clip=None)) == pytest.approx(0.4931471806, abs=1e-10)
        wide = float(bsc_risk(self.one, self.r, self.two, **half, clip=0.2))
        assert wide - 0.6132616875 == pytest.approx(-0.1201145070, abs=1e-10)

    @pytest.mark.parametrize("beta", [0.2, 0.5, 0.8])
    def test_reference_beyond_the_bound(self, golden, beta):
        arrays = golden("core")
        r, labelled, unlabelled = (arrays[f"clf_{key}"][:, 0] for key in ("conf", "logit_labeled", "logit_unlabeled"))
        loss, slopes = jax.value_and_grad(bsc_risk, argnums=(0, 2))(labelled, r, unlabelled, beta, beta)
        assert float(loss) == pytest.approx(float(arrays[f"bsc_clip_b{beta}"]), abs=1e-12)
        np.testing.assert_allclose(slopes[0], arrays[f"bsc_clip_b{beta}_dgl"][:, 0], atol=1e-12)
        np.testing.assert_array_equal(slopes[1], 0)
        plain = float(supervised_risk(labelled, r))
        assert plain == pytest.approx(float(arrays[f"bsc_nonfalse_b{beta}"]), abs=1e-12)

    @pytest.mark.parametrize("beta", [0.5, 0.8])
    def test_reference_within_the_bound(self, golden, beta):
        arrays = golden("classifier_and_tabular")
        r, labelled, unlabelled = (arrays[f"unsat_{key}"][:, 0] for key in ("conf", "gl", "gu"))
        loss, slopes = jax.value_and_grad(bsc_risk, argnums=(0, 2))(labelled, r, unlabelled, beta, beta)
        assert float(loss) == pytest.approx(float(arrays[f"unsat_b{beta}"]), abs=1e-12)
        np.testing.assert_allclose(slopes[0], arrays[f"unsat_b{beta}_dgl"][:, 0], atol=1e-12)
        np.testing.assert_allclose(slopes[1], arrays[f"unsat_b{beta}_dgu"][:, 0], atol=1e-12)

    @pytest.mark.parametrize("beta", [0.3, 0.8])
    def test_batches_average_products(self, golden, beta):
        arrays = golden("classifier_and_tabular")
        labelled, unlabelled, r = (arrays[f"batch_{key}"][:, 0] for key in ("gl", "gu", "conf"))
        for name, found in (
            (f"bsc_noclip_b{beta}", bsc_risk(labelled, r, unlabelled, beta, beta, None)),
            (f"bsc_clip_b{beta}", bsc_risk(labelled, r, unlabelled, beta, beta)),
            (f"bsc_alpha{beta}_beta{beta / 2}", bsc_risk(labelled, r, unlabelled, beta, beta / 2, None)),
            (f"sc_up_b{beta}", sc_risk(labelled, r, unlabelled, beta, mean_confidence=0.9)),
            (f"sc_down_b{beta}", sc_risk(labelled, r, unlabelled, beta, mean_confidence=0.1)),
        ):
            assert float(found) == pytest.approx(float(arrays[f"batch_correct_{name}"]), abs=1e-12), name

    def test_weights_default_to_the_share_of_unlabelled_rows(self):
        labelled, unlabelled, r = *draws(11, 3, 9), np.array([0.2, 0.9, 0.5])
        expected = bsc_risk(labelled, r, unlabelled, 0.75, 0.75, None)
        assert float(bsc_risk(labelled, r, unlabelled, clip=None)) == pytest.approx(float(expected), abs=1e-15)

    @settings(max_examples=20, deadline=None)
    @given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32 - 1))
    def test_unbiased_for_all_weights(self, alpha, beta, seed):
        rng = np.random.default_rng(seed)
        g, r, p = rng.normal(size=3), rng.random(3), rng.dirichlet(np.ones(3))
        expected = np.sum(p * (r * np.logaddexp(0, -g) + (1 - r) * np.logaddexp(0, g)))
        # Every possible draw of two labelled rows and one unlabelled row.
        chosen = np.array([*itertools.product(range(3), repeat=3)])
        probability = p[chosen].prod(axis=1)
        with jax.enable_x64(True):
            risks = jax.vmap(bsc_risk, in_axes=(0, 0, 0, None, None, None))(
                g[chosen[:, :2]], r[chosen[:, :2]], g[chosen[:, 2:]], alpha, beta, None
            )
            semi = jax.vmap(sc_risk, in_axes=(0, 0, 0, None, None, None))(
                g[chosen[:, :2]], r[chosen[:, :2]], g[chosen[:, 2:]], beta, False, alpha
            )
        assert np.sum(probability * risks) == pytest.approx(expected, abs=1e-12)
        assert np.sum(probability * semi) == pytest.approx(expected, abs=1e-12)

    def test_exchanging_the_classes_changes_nothing(self):
        labelled, unlabelled = draws(12, 6, 8)
        r = sigmoid(draws(13, 6)[0])
        for clip in (0.01, None):
            swapped = float(bsc_risk(-labelled, 1 - r, -unlabelled, 0.6, 0.6, clip))
            assert swapped == pytest.approx(float(bsc_risk(labelled, r, unlabelled, 0.6, 0.6, clip)), abs=1e-14)

    def test_empty_batches(self):
        labelled, r, none = np.array([0.4, -1.0]), np.array([0.3, 0.8]), np.zeros(0)
        expected = float(supervised_risk(labelled, r))
        assert float(bsc_risk(labelled, r, none, 0.8, 0.8)) == pytest.approx(expected)
        assert float(sc_risk(labelled, r, none, 0.8)) == pytest.approx(expected)
        for risk in (bsc_risk, sc_risk):
            value, slope = jax.value_and_grad(risk, argnums=2)(none, none, np.array([0.5, 2.0]), 0.8)
            assert (float(value), np.abs(slope).max()) == (0, 0)


class TestSemiConfRisk:
    def test_values(self):
        one, r, two = np.array([1.0]), np.array([0.7]), np.zeros(2)
        assert float(sc_risk(one, r, two, 0.5)) == pytest.approx(0.8032044340, abs=1e-10)
        assert float(sc_risk(one, r, two, 0.5, mean_confidence=0.4)) == pytest.approx(0.3032044340, abs=1e-10)
        # The branch is that of the labelled rows alone, one half belongs to the lower one.
        expected = float(sc_risk(one, np.array([0.5]), two, 0.5, mean_confidence=0.1))
        assert float(sc_risk(one, np.array([0.5]), two, 0.5)) == pytest.approx(expected, abs=1e-15)

    @pytest.mark.parametrize("nonnegative", [True, False])
    @pytest.mark.parametrize("branch", ["up", "down"])
    @pytest.mark.parametrize("beta", [0.2, 0.5, 0.8])
    def test_reference(self, golden, beta, branch, nonnegative):
        arrays = golden("core")
        r, labelled, unlabelled = (arrays[f"clf_{key}"][:, 0] for key in ("conf", "logit_labeled", "logit_unlabeled"))
        mean = {"up": 0.9, "down": 0.1}[branch]
        loss, slopes = jax.value_and_grad(sc_risk, argnums=(0, 2))(labelled, r, unlabelled, beta, nonnegative, mean)
        name = f"sc_{branch}_non{int(nonnegative)}_b{beta}"
        assert float(loss) == pytest.approx(float(arrays[name]), abs=1e-12)
        np.testing.assert_allclose(slopes[0], arrays[f"{name}_dgl"][:, 0], atol=1e-12)
        np.testing.assert_allclose(slopes[1], arrays[f"{name}_dgu"][:, 0], atol=1e-12)


def test_columns_and_lists_are_vectors(unchecked):
    fake, demo, other = draws(8, 4, 6, 5)
    r = sigmoid(draws(9, 6)[0])
    calls = [
        (gail_loss, fake, demo),
        (pn_loss, fake, demo, r),
        (iwil_loss, fake, demo, r),
        (icgail_loss, fake, demo, other, r),
        (supervised_risk, demo, r),
        (bsc_risk, demo, r, other),
        (sc_risk, demo, r, other),
    ]
    for loss, *vectors in calls:
        expected = float(loss(*vectors))
        for other_form in ([v[:, None] for v in vectors], [*(v[:, None] for v in vectors[:-1]), vectors[-1]]):
            assert float(loss(*other_form)) == expected, loss
        assert float(loss(*map(list, vectors))) == pytest.approx(expected, rel=1e-6)


def test_what_belongs_to_the_losses_is_with_them():
    assert losses.gae is gae
    assert losses.trpo_step is trpo_step
    assert (losses.optimal_discriminator, losses.optimal_generator) == (optimal_discriminator, optimal_generator)
    for name, same in (("2iwil", "iwil"), ("pn-gail", "pn")):
        np.testing.assert_array_equal(weights(name, R), weights(same, R))


def test_semi_confidence_takes_the_share_of_unlabelled_rows_by_default():
    labelled, unlabelled = draws(10, 3, 9)
    r = np.array([0.9, 0.7, 0.8])
    assert float(sc_risk(labelled, r, unlabelled)) == float(sc_risk(labelled, r, unlabelled, 0.75))


def test_shapes_that_do_not_fit():
    for call in (
        lambda: pn_loss(FAKE, DEMO, np.ones(3)),
        lambda: pn_loss(FAKE, DEMO, np.ones(1)),
        lambda: pn_loss(FAKE, np.ones((2, 2)), np.ones((2, 2))),
        lambda: bsc_risk(DEMO, np.ones(3), FAKE),
        lambda: sc_risk(DEMO, np.ones(3), FAKE, 0.5),
    ):
        with pytest.raises(TypeError):
            call()
