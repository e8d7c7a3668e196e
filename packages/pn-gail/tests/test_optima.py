"""Closed forms of the adversarial game against hand-worked numbers, the reference arrays, and the game played out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_pn_gail.optima import expected_mixture, optimal_discriminator, optimal_generator, water_level

ANY = st.floats(0, 1)


@st.composite
def games(draw, confidence=ANY):
    """A distribution of demonstrations, some of whose rows may have no mass, and confidences that are not all 0."""
    n = draw(st.integers(1, 8))
    weight = np.array(draw(st.lists(st.integers(0, 10), min_size=n, max_size=n)), float)
    r = np.array(draw(st.lists(confidence, min_size=n, max_size=n)))
    best = draw(st.integers(0, n - 1))
    weight[best], r[best] = weight[best] + 1, max(r[best], 0.01)
    return weight / weight.sum(), r


class TestDiscriminator:
    def test_values(self):
        found = optimal_discriminator(np.full(4, 0.25), np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0.8, 0.2, 0]))
        np.testing.assert_allclose(found, [0.714286, 0.644444, 0.890909, 1], atol=5e-7)

    def test_nobody_there(self):
        found = optimal_discriminator([0.0, 1.0], [0.0, 1.0], [0.5, 0.5])
        assert np.isnan(found[0])
        assert found[1] == 0.75

    @pytest.mark.parametrize("case", range(3))
    def test_reference(self, golden, case):
        arrays = golden("classifier_and_tabular")
        p, r = arrays[f"tab{case}/p"], arrays[f"tab{case}/r"]
        uniform = optimal_discriminator(np.full(6, 1 / 6), p, r)
        np.testing.assert_allclose(uniform, arrays[f"tab{case}/disc_uniform_gen"], atol=1e-10)
        at_the_end = optimal_discriminator(optimal_generator(p, r), p, r)
        np.testing.assert_allclose(at_the_end, arrays[f"tab{case}/pn_disc"], atol=1e-10)


class TestGenerator:
    def test_values(self):
        p, r = np.array([0.1, 0.3, 0.6]), np.array([0.9, 0.5, 0.1])
        assert water_level(p, r) == pytest.approx(29 / 6)
        np.testing.assert_allclose(optimal_generator(p, r), [0.425, 0.575, 0], atol=1e-12)
        found = optimal_discriminator(optimal_generator(p, r), p, r)
        np.testing.assert_allclose(found, [29 / 35, 29 / 35, 0.9], atol=1e-12)

    def test_one_good_in_eleven(self):
        p, r = np.array([1, 10]) / 11, np.array([1, 0.1])
        assert water_level(p, r) == pytest.approx(10)
        np.testing.assert_allclose(optimal_generator(p, r), [10 / 11, 1 / 11], atol=1e-12)

    def test_hopeless_and_unseen_rows(self):
        # The best row has no mass, the worst no confidence.
        with np.errstate(all="raise"):
            found = optimal_generator(np.array([0.0, 0.5, 0.5]), np.array([1.0, 0.5, 0.0]))
        np.testing.assert_allclose(found, [0, 1, 0], atol=1e-15)

    def test_all_optimal(self):
        p = np.array([0.2, 0.5, 0.3])
        assert water_level(p, np.ones(3)) == pytest.approx(1)
        np.testing.assert_allclose(optimal_generator(p, np.ones(3)), p, atol=1e-15)

    @pytest.mark.parametrize("case", range(3))
    def test_reference(self, golden, case):
        arrays = golden("classifier_and_tabular")
        p, r = arrays[f"tab{case}/p"], arrays[f"tab{case}/r"]
        np.testing.assert_allclose(optimal_generator(p, r), arrays[f"tab{case}/pn_generator"], atol=1e-10)
        assert water_level(p, r) == pytest.approx(float(arrays[f"tab{case}/pn_k"]), abs=1e-10)
        table = expected_mixture(r, p, groups=np.arange(6))
        np.testing.assert_allclose(table["iwil"], arrays[f"tab{case}/iw_generator"], atol=1e-10)
        np.testing.assert_allclose(table["pn_gail"], arrays[f"tab{case}/pn_generator"], atol=1e-10)

    @pytest.mark.parametrize("case", range(3))
    def test_the_game_played_out_ends_there(self, golden, case):
        arrays = golden("classifier_and_tabular")
        p, r = arrays[f"tab{case}/p"], arrays[f"tab{case}/r"]
        q = np.full(6, 1 / 6)
        for steps, tolerance in ((500, 2e-4), (1500, 1e-9)):
            for _ in range(steps):
                q = q * optimal_discriminator(q, p, r) ** -0.2
                q /= q.sum()
            assert np.abs(q - optimal_generator(p, r)).max() < tolerance

    @settings(max_examples=200)
    @given(games())
    def test_is_a_distribution_that_equalises_the_discriminator(self, game):
        p, r = game
        found, k = optimal_generator(p, r), water_level(p, r)
        assert found.sum() == pytest.approx(1, abs=1e-9)
        assert (found >= 0).all()
        assert k >= 1 - 1e-12
        with_mass = p > 0
        density = found[with_mass] / p[with_mass]
        d = optimal_discriminator(found, p, r)[with_mass]
        # The agent stays where the discriminator is lowest: nowhere is it below its value on the support.
        np.testing.assert_allclose(d[density > 1e-9], k / (1 + k), atol=1e-9)
        assert (d >= k / (1 + k) - 1e-9).all()

    @settings(max_examples=100)
    @given(games())
    def test_share_of_a_row_grows_with_its_confidence(self, game):
        p, r = game
        found = optimal_generator(p, r)
        density = np.divide(found, p, out=np.zeros_like(p), where=p > 0)[np.argsort(r)]
        assert (np.diff(density[p[np.argsort(r)] > 0]) >= -1e-9).all()

    @settings(max_examples=100)
    @given(games(st.sampled_from([0.0, 1.0])))
    def test_certain_labels_restrict_the_demonstrations(self, game):
        p, r = game
        r = np.where(r > 0, 1.0, 0.0)
        restricted = p * r / np.sum(p * r)
        np.testing.assert_allclose(optimal_generator(p, r), restricted, atol=1e-12)
        assert water_level(p, r) == pytest.approx(1 / np.sum(p * r))

    @settings(max_examples=100)
    @given(games(), st.integers(0, 7), st.floats(0, 1))
    def test_more_confidence_never_means_less_of_a_row(self, game, index, raised):
        p, r = game
        index %= len(r)
        higher = r.copy()
        higher[index] = max(r[index], raised)
        assert optimal_generator(p, higher)[index] >= optimal_generator(p, r)[index] - 1e-9


class TestExpectedMixture:
    def test_two_behaviours(self):
        table = expected_mixture(np.array([1.0] * 5 + [0.1] * 50))
        assert table.index.name == "group"
        assert table.index.tolist() == [0.1, 1.0]
        assert table.columns.tolist() == ["demonstrations", "confidence", "gail", "iwil", "pn_gail"]
        np.testing.assert_allclose(table.loc[1.0], [1 / 11, 1, 1 / 11, 0.5, 10 / 11], atol=1e-12)
        np.testing.assert_allclose(table.loc[0.1], [10 / 11, 0.1, 10 / 11, 0.5, 1 / 11], atol=1e-12)

    def test_named_groups_and_weights(self):
        r, weight = [0.9, 0.5, 0.1, 0.7], [1, 3, 6, 0]
        table = expected_mixture(r, weight, groups=pd.Series(["a", "a", "b", "c"], index=[7, 8, 9, 10]))
        np.testing.assert_allclose(table["demonstrations"], [0.4, 0.6, 0])
        np.testing.assert_allclose(table["confidence"], [0.6, 0.1, 0.7])
        np.testing.assert_allclose(table["iwil"], [0.8, 0.2, 0])
        np.testing.assert_allclose(table["pn_gail"], [1, 0, 0], atol=1e-12)

    @settings(max_examples=50, deadline=None)
    @given(games())
    def test_shares_sum_to_one(self, game):
        p, r = game
        table = expected_mixture(r, p, np.arange(len(r)) % 3).drop(columns="confidence")
        np.testing.assert_allclose(table.sum(), 1, atol=1e-9)


class TestBadInput:
    @pytest.mark.parametrize(
        ("p", "r", "message"),
        [
            ([0.5, 0.5], [0.0, 0.0], "nothing to imitate"),
            ([0.0, 1.0], [1.0, 0.0], "nothing to imitate"),
            ([0.5, 0.6], [1.0, 0.0], r"p must sum to 1, found 1\.1"),
            ([1.5, -0.5], [1.0, 0.0], "p must be finite and >= 0, found 1 other values, first -0.5 in row 1"),
            ([np.nan, 1.0], [1.0, 0.0], "p must be finite"),
            ([1.0], [1.0, 0.0], r"p must have shape \(2,\)"),
            ([0.5, 0.5], [1.0, 1.1], r"r must lie in \[0, 1\]"),
            ([0.5, 0.5], [1.0, np.nan], "r must be known in each row"),
            ([], [], "n >= 1"),
        ],
    )
    def test_games(self, p, r, message):
        for function in (water_level, optimal_generator):
            with pytest.raises(ValueError, match=message):
                function(p, r)

    def test_mixtures(self):
        with pytest.raises(ValueError, match="nothing to imitate"):
            expected_mixture([0.0, 0.0])
        with pytest.raises(ValueError, match=r"groups must have 2 entries.*found 3"):
            expected_mixture([0.5, 1.0], groups=["a", "b", "c"])
        with pytest.raises(ValueError, match="found none in row 1"):
            expected_mixture([0.5, 1.0], groups=["a", None])
        with pytest.raises(ValueError, match="p must hold a weight above 0"):
            expected_mixture([0.5, 1.0], [0, 0])

    def test_discriminator(self):
        with pytest.raises(ValueError, match="p_gen must be finite and >= 0"):
            optimal_discriminator([-1.0], [1.0], [0.5])
