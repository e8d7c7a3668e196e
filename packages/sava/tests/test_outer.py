from __future__ import annotations

import numpy as np
import pytest

from icl25_sava import outer_plan
from icl25_sava.outer import harm_scores


def test_plan_of_the_authors_code(golden):
    arrays = golden("pipeline")
    plan = outer_plan(arrays["C_bar"].astype(float))
    assert np.abs(3 * plan - arrays["plan_bar"]).max() <= 1e-6


def test_marginals_are_uniform():
    plan = outer_plan(np.random.default_rng(0).random((7, 4)) + 1)
    assert 7 * plan.sum(axis=1) == pytest.approx(np.ones(7), abs=1e-6)
    assert 7 * plan.sum(axis=0) == pytest.approx(np.full(4, 7 / 4), abs=1e-6)


def test_zero_costs_and_single_batches_give_the_uniform_plan():
    assert outer_plan(np.zeros((3, 2))) == pytest.approx(np.full((3, 2), 1 / 6))
    assert outer_plan(np.array([[3.0], [8.0]])) == pytest.approx(np.full((2, 1), 0.5))


def test_costs_that_break_the_plain_iteration_still_give_a_plan():
    costs = np.random.default_rng(0).random((6, 5)) ** 4
    plan = outer_plan(costs, reg=1e-4)
    assert np.isfinite(plan).all()
    assert plan.sum(axis=0) == pytest.approx(np.full(5, 0.2), abs=1e-3)
    assert plan.sum() == pytest.approx(1, abs=1e-6)


def test_cheap_pairs_get_the_weight():
    plan = outer_plan(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert plan == pytest.approx(np.eye(2) / 2, abs=1e-6)


def test_scores_are_the_weighted_gradients():
    cg = np.array([[1.0, -2.0], [3.0, 4.0]], np.float32)
    assert harm_scores(cg, np.array([0.1, 0.4]), 2, offset=1.0) == pytest.approx([-0.4, 4.8])


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        outer_plan(np.array([[np.nan, 1.0]]))
    with pytest.raises(ValueError, match="outer_reg"):
        outer_plan(np.ones((2, 2)), reg=0)
