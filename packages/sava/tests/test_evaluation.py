from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from icl25_sava.evaluation import detection_auc, detection_curve, most_suspicious, pruning_curve


def test_curve_of_a_small_case_by_hand():
    curve = detection_curve(np.array([0.5, -1.0, 2.0, 0.0]), np.array([False, True, False, True]))
    assert curve["inspected"].tolist() == [0, 1, 2, 3, 4]
    assert curve["found"].tolist() == [0, 1, 2, 2, 2]
    assert curve["rate"].tolist() == [0, 0.5, 1, 1, 1]
    assert curve["random"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert curve["oracle"].tolist() == [0, 0.5, 1, 1, 1]


def test_equal_values_give_the_random_line_whatever_the_order_of_rows():
    mask = np.arange(10) < 4
    for order in (mask, mask[::-1]):
        curve = detection_curve(np.zeros(10), order)
        np.testing.assert_allclose(curve["rate"], curve["random"])
        assert detection_auc(np.zeros(10), order) == 0.5


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_auc_is_the_chance_that_a_bad_row_ranks_lower_and_the_area_of_the_curve(rows):
    values, mask = np.array([v for v, _ in rows]), np.array([b for _, b in rows])
    if mask.all() or not mask.any():
        with pytest.raises(ValueError, match="rows of both kinds"):
            detection_auc(values, mask)
        return
    bad, good = values[mask][:, None], values[~mask]
    chance = (bad < good).mean() + 0.5 * (bad == good).mean()
    assert detection_auc(values, mask) == pytest.approx(chance)
    curve = detection_curve(values, mask)
    # The area under the rate over inspected rows relates to the ROC area by the share of bad rows.
    area = np.trapezoid(curve["rate"], curve["inspected"]) / len(mask)
    share = mask.mean()
    assert area == pytest.approx(share / 2 + (1 - share) * chance)
    assert (curve["rate"] <= curve["oracle"] + 1e-12).all()


def test_values_rank_from_the_lowest():
    mask = np.array([1, 1, 0, 0, 0])
    assert detection_auc(np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), mask) == 1
    assert detection_auc(-np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), mask) == 0


@pytest.mark.parametrize(
    ("values", "mask", "message"),
    [
        ([0.0, np.nan, np.inf], [0, 1, 0], "2 non-finite entries, first at row 1"),
        ([0.0, 1.0], [0, 1, 0], "equally long"),
        ([0.0, 1.0], [0, 2], "only True and False"),
        ([0.0, 1.0], [1, 1], "marks 2 of 2 rows"),
    ],
)
def test_bad_input_is_named(values, mask, message):
    for function in (detection_auc, detection_curve):
        with pytest.raises(ValueError, match=message):
            function(np.array(values), np.array(mask))


@pytest.fixture
def noisy():
    rng = np.random.default_rng(0)
    centres = np.array([[-1.5, 0.0], [1.5, 0.0]])
    y_true = rng.integers(2, size=400)
    X = centres[y_true] + rng.normal(size=(400, 2))
    wrong = rng.random(400) < 0.4 * (y_true == 0)
    y_test = rng.integers(2, size=2000)
    return X, np.where(wrong, 1, y_true), wrong, centres[y_test] + rng.normal(size=(2000, 2)), y_test


def test_pruning_wrong_labels_helps_and_pruning_at_random_does_not(noisy):
    X, y, wrong, X_test, y_test = noisy
    share = wrong.mean()
    curve = pruning_curve(LogisticRegression(), X, y, -wrong.astype(float), X_test, y_test, (0, share), 0)
    assert curve["n_kept"].tolist() == [400, 400 - wrong.sum()]
    assert curve["accuracy"][0] == curve["random"][0]
    assert curve["accuracy"][1] > curve["accuracy"][0] + 0.02
    assert abs(curve["random"][1] - curve["random"][0]) < 0.02
    again = pruning_curve(LogisticRegression(), X, y, -wrong.astype(float), X_test, y_test, (0, share), 0)
    assert again.equals(curve)


def test_pruning_refuses_what_it_cannot_do(noisy):
    X, y, wrong, X_test, y_test = noisy
    with pytest.raises(ValueError, match=r"fractions holds 1.0"):
        pruning_curve(LogisticRegression(), X, y, wrong, X_test, y_test, [1.0])
    with pytest.raises(ValueError, match="only one class is left"):
        pruning_curve(LogisticRegression(), X, y, y, X_test, y_test, [(y == 0).mean()])
    with pytest.raises(ValueError, match="400, 400 and 3 rows"):
        pruning_curve(LogisticRegression(), X, y, wrong[:3], X_test, y_test)


def test_most_suspicious_lists_the_lowest_of_each_class():
    values = np.array([3.0, 1.0, 2.0, 0.0, 1.0])
    table = most_suspicious(values, np.array(["b", "a", "b", "b", "a"]), per_class=2)
    assert table.to_dict("list") == {"label": ["a", "a", "b", "b"], "row": [1, 4, 3, 2], "value": [1, 1, 0, 2]}
    with pytest.raises(ValueError, match="per_class is 0"):
        most_suspicious(values, np.arange(5), per_class=0)
