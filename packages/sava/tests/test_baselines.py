from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from icl25_sava import LAVA, BatchwiseLAVA, KNNShapley, NearestCost, RandomValues, detection_auc
from icl25_sava.baselines import knn_shapley


def test_lava_and_batchwise_lava_of_the_authors_code(golden):
    arrays = golden("pipeline")
    data = arrays["X_train"], arrays["y_train"], arrays["X_val"], arrays["y_val"]
    lava = LAVA(compat="official").fit(*data)
    assert np.abs(lava.label_distances_ - arrays["lava_label_distances"][:3, 3:]).max() <= 1e-3
    assert np.abs(lava.scores_ - arrays["lava_scores"]).max() <= 1e-4
    batchwise = BatchwiseLAVA(batch_size=32, compat="official").fit(*data)
    assert np.abs(batchwise.scores_ - arrays["batchwise_scores"]).max() <= 1e-5


def test_knn_shapley_equals_enumeration(golden):
    arrays = golden("knn_shapley")
    model = KNNShapley(k=int(arrays["k"])).fit(arrays["X"], arrays["y"], arrays["X_val"], arrays["y_val"])
    assert np.abs(model.values_ - arrays["values"]).max() <= 1e-12


@pytest.mark.parametrize("k", [1, 3, 5, 9])
def test_knn_shapley_by_its_definition_also_for_few_rows(k):
    rng = np.random.default_rng(k)
    X, y, X_val, y_val = (
        rng.normal(size=(5, 2)),
        rng.integers(2, size=5),
        rng.normal(size=(3, 2)),
        rng.integers(2, size=3),
    )

    def utility(rows) -> float:
        rows = list(rows)
        total = 0.0
        for x, label in zip(X_val, y_val, strict=True):
            nearest = sorted(rows, key=lambda r: np.sum((X[r] - x) ** 2))[:k]
            total += sum(y[r] == label for r in nearest) / k
        return total / len(X_val)

    expected = np.zeros(5)
    for i in range(5):
        others = [j for j in range(5) if j != i]
        for size in range(5):
            for subset in combinations(others, size):
                expected[i] += (utility([*subset, i]) - utility(subset)) / (5 * comb(4, size))
    values = knn_shapley(X, y, X_val, y_val, k)
    assert values == pytest.approx(expected, abs=1e-12)
    assert values.sum() == pytest.approx(utility(range(5)), abs=1e-12)


def test_knn_shapley_refuses_no_neighbours(sets):
    with pytest.raises(ValueError, match="k must be at least 1"):
        KNNShapley(k=0).fit(*sets.data)


@pytest.mark.parametrize(
    "model", [LAVA(random_state=0), BatchwiseLAVA(60, random_state=0), NearestCost(60, random_state=0), KNNShapley()]
)
def test_every_method_finds_wrong_labels(sets, model):
    assert detection_auc(model.fit(*sets.data).values_, sets.wrong) > 0.97


def test_batchwise_scores_are_shares_of_each_batch(sets):
    model = BatchwiseLAVA(batch_size=60, random_state=0).fit(*sets.data)
    for i in range(4):
        assert model.scores_[model.batch_index_ == i].sum() == pytest.approx(1)


def test_random_values_depend_on_the_seed_alone(sets):
    first, second = (RandomValues(random_state=4).fit(*sets.data).values_ for _ in range(2))
    assert np.array_equal(first, second)
    assert abs(detection_auc(first, sets.wrong) - 0.5) < 0.15


def test_lava_refuses_what_does_not_fit(sets):
    with pytest.raises(ValueError, match=r"240 x 90 rows, over max_memory_mb = 0.*use SAVA"):
        LAVA(max_memory_mb=0.1).fit(*sets.data)
    with pytest.raises(NotImplementedError, match="use SAVA"):
        LAVA().fit(*sets.data).partial_fit(sets.X, sets.y)
