from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from icl25_sava import LAVA, SAVA, augmented_cost, calibrated_gradient, dataset_distance, detection_auc
from icl25_sava.potentials import annealed_potentials


def test_the_whole_pipeline_of_the_authors_code(golden):
    arrays = golden("pipeline")
    data = arrays["X_train"], arrays["y_train"], arrays["X_val"], arrays["y_val"]
    for diameter in (None, arrays["diameters"]):
        model = SAVA(batch_size=32, compat="official", diameter=diameter).fit(*data)
        assert np.abs(model.label_distances_ - arrays["label_distances"][:3, 3:]).max() <= 1e-3
        assert model.batch_costs_ == pytest.approx(arrays["C_bar"], rel=1e-5)
        assert np.abs(3 * model.outer_plan_ - arrays["plan_bar"]).max() <= 1e-6
        assert np.abs(model.scores_ - arrays["sava_scores"]).max() <= 2e-4
    assert detection_auc(model.values_, np.isin(np.arange(96), arrays["corrupted"])) > 0.95


def test_official_diameters_and_potentials(golden):
    arrays = golden("pipeline")
    W = arrays["label_distances"][:3, 3:].astype(np.float64)
    for i in range(3):
        for j, columns in enumerate((slice(0, 32), slice(32, 60))):
            rows = slice(32 * i, 32 * i + 32)
            X, Xv = arrays["X_train"][rows], arrays["X_val"][columns]
            y, yv = arrays["y_train"][rows].astype(int), arrays["y_val"][columns].astype(int)
            both = np.vstack([np.column_stack([X, y]), np.column_stack([Xv, yv + 3])])
            diameter = np.linalg.norm(both.max(0) - both.min(0))
            assert diameter == pytest.approx(arrays["diameters"][i, j], rel=1e-5)
            f, g = annealed_potentials(augmented_cost(X, y, Xv, yv, W), diameter=float(diameter))
            assert np.abs(f - arrays["f"][rows, j]).max() <= 5e-4
            assert np.abs(g - arrays[f"g_{i}_{j}"]).max() <= 5e-4


def test_scores_follow_from_the_definition(sets):
    """Everything once more by hand, in double precision, for a fitted model's own batches."""
    model = SAVA(batch_size=50, dtype="float64", random_state=3, between=0.3).fit(*sets.data)
    W = model.label_distances_
    n_train, n_val = model.batch_costs_.shape
    assert (n_train, n_val) == (5, 2)
    val_batches = [batch.rows for batch in model.valuation_.side.batches]
    gradients = [np.empty((0, 0))] * n_train
    costs = np.empty((n_train, n_val))
    for i in range(n_train):
        rows = np.flatnonzero(model.batch_index_ == i)
        columns = []
        for j, val_rows in enumerate(val_batches):
            X, Xv = sets.X[rows], sets.X_val[val_rows]
            both = np.vstack([X, Xv])
            C = augmented_cost(X, sets.y[rows], Xv, sets.y_val[val_rows], W)
            f, g = annealed_potentials(C, diameter=float(np.linalg.norm(both.max(0) - both.min(0))))
            costs[i, j] = f.mean() + g.mean()
            columns.append(calibrated_gradient(f))
        gradients[i] = np.column_stack(columns)
    assert model.batch_costs_ == pytest.approx(costs, rel=1e-9)
    level = n_train * (model.outer_plan_ * costs).sum(axis=1)
    for i in range(n_train):
        rows = np.flatnonzero(model.batch_index_ == i)
        expected = n_train * gradients[i] @ model.outer_plan_[i] + 0.3 * (level[i] - level.mean())
        assert model.scores_[rows] == pytest.approx(expected, abs=1e-8)
    assert model.distance_ == pytest.approx((model.outer_plan_ * costs).sum())
    everything = augmented_cost(sets.X, sets.y, sets.X_val, sets.y_val, W)
    assert model.nearest_cost_ == pytest.approx(everything.min(axis=1), abs=1e-9)
    assert np.array_equal(model.nearest_, everything.argmin(axis=1))


@pytest.mark.parametrize("solver", ["annealed", "emd"])
def test_one_batch_on_each_side_is_lava(sets, solver):
    sava = SAVA(batch_size=1000, batching="sequential", solver=solver, random_state=0).fit(*sets.data)
    lava = LAVA(solver=solver, random_state=0).fit(*sets.data)
    assert np.array_equal(sava.values_, lava.values_)
    assert sava.distance_ == lava.distance_


def test_wrong_labels_get_the_lowest_values(sets):
    model = SAVA(batch_size=80, random_state=0).fit(*sets.data)
    assert detection_auc(model.values_, sets.wrong) > 0.98


def test_values_sum_to_zero_in_each_batch(sets):
    model = SAVA(batch_size=50, random_state=0).fit(*sets.data)
    for i in range(len(model.batch_costs_)):
        values = model.values_[model.batch_index_ == i]
        assert abs(values.sum()) < 1e-5 * np.abs(values).sum()


def test_equal_rows_of_a_batch_get_equal_values(sets):
    X, y = np.vstack([sets.X, sets.X[:1]]), np.append(sets.y, sets.y[0])
    model = SAVA(batch_size=1000, random_state=0).fit(X, y, sets.X_val, sets.y_val)
    assert model.values_[0] == pytest.approx(model.values_[-1], abs=1e-5)


def test_order_of_rows_does_not_matter_in_one_batch(sets):
    order, other = np.random.default_rng(0).permutation(240), np.random.default_rng(1).permutation(90)
    model = SAVA(batch_size=1000, dtype="float64", random_state=0).fit(*sets.data)
    moved = clone(model).fit(sets.X[order], sets.y[order], sets.X_val[other], sets.y_val[other])
    assert moved.values_ == pytest.approx(model.values_[order], abs=1e-9)


def test_translation_and_rotation_do_not_matter(sets):
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))
    W = SAVA(dtype="float64", random_state=0).fit(*sets.data).label_distances_
    model = SAVA(batch_size=60, dtype="float64", diameter=20.0, label_distance=W, random_state=0).fit(*sets.data)
    moved = clone(model).fit(sets.X @ Q + 1e3, sets.y, sets.X_val @ Q + 1e3, sets.y_val)
    assert moved.values_ == pytest.approx(model.values_, abs=1e-7)


def test_labels_of_any_kind_and_any_name(sets):
    model = SAVA(batch_size=60, random_state=0).fit(*sets.data)
    for names in (np.array(["ant", "bee", "cow"]), np.array([-1, 7, 42]), np.array([-3.0, 0.0, 2.0])):
        other = clone(model).fit(sets.X, names[sets.y], sets.X_val, names[sets.y_val])
        assert np.array_equal(other.values_, model.values_)
        assert np.array_equal(other.classes_, names)
    reversed_ = np.array([2, 1, 0])
    lava = LAVA(dtype="float64", random_state=0).fit(*sets.data)
    other = clone(lava).fit(sets.X, reversed_[sets.y], sets.X_val, reversed_[sets.y_val])
    assert other.values_ == pytest.approx(lava.values_, abs=1e-9)


def test_without_label_weight_labels_do_not_matter(sets):
    options: dict[str, Any] = {"batch_size": 60, "lambda_y": 0, "batching": "shuffle", "random_state": 0}
    model = SAVA(**options).fit(sets.X, sets.y, sets.X_val, sets.y_val)
    assert np.array_equal(SAVA(**options).fit(sets.X, None, sets.X_val, None).values_, model.values_)
    continuous = np.random.default_rng(0).normal(size=240)
    assert np.array_equal(SAVA(**options).fit(sets.X, continuous, sets.X_val, None).values_, model.values_)


def test_uniform_outer_weights_are_the_mean_over_validation_batches(sets):
    model = SAVA(batch_size=50, outer="uniform", random_state=0).fit(*sets.data)
    for i, rows, solution in model.valuation_.solutions():
        assert model.scores_[rows] == pytest.approx(solution.gradients.mean(axis=1), abs=1e-6), i


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), step=st.floats(0.01, 20))
def test_moving_a_row_away_from_all_validation_rows_does_not_raise_its_value(seed, step):
    rng = np.random.default_rng(seed)
    X, X_val = rng.normal(size=(12, 2)), rng.normal(size=(9, 2))
    direction = rng.normal(size=2)
    direction /= np.linalg.norm(direction)
    X[0] = direction * (np.abs(X_val).max() * 3)  # beyond all validation rows along the ray
    values = []
    for distance in (0.0, step):
        moved = X.copy()
        moved[0] += distance * direction
        values.append(LAVA(lambda_y=0, diameter=30.0, dtype="float64").fit(moved, None, X_val, None).values_[0])
    assert values[1] <= values[0] + 1e-9


@pytest.mark.parametrize("method", ["sample", "gaussian", "means", "first_batch", "per_pair"])
def test_every_class_distance_finds_wrong_labels(sets, method):
    model = SAVA(batch_size=80, label_distance=method, random_state=0).fit(*sets.data)
    assert detection_auc(model.values_, sets.wrong) > 0.95


@pytest.mark.parametrize("options", [{"p": 1}, {"eps": "auto"}, {"batch_cost": "plan"}])
def test_variants_find_wrong_labels(sets, options):
    model = SAVA(batch_size=80, random_state=0, **options).fit(*sets.data)
    assert detection_auc(model.values_, sets.wrong) > 0.9


def test_converged_duals_find_wrong_labels_less_well_when_class_counts_differ():
    """Why the default stops after a dozen sweeps."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(5, 8))
    y = rng.choice(5, 400, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    y_val = np.arange(200) % 5
    X, X_val = centres[y] + rng.normal(size=(400, 8)), centres[y_val] + rng.normal(size=(200, 8))
    wrong = rng.random(400) < 0.3
    y = np.where(wrong, (y + rng.integers(1, 5, 400)) % 5, y)
    auc = {
        solver: detection_auc(LAVA(solver=solver, random_state=0).fit(X, y, X_val, y_val).values_, wrong)
        for solver in ("annealed", "emd")
    }
    assert auc["annealed"] > 0.94
    assert auc["annealed"] > auc["emd"] + 0.03


def test_first_batch_distances_take_a_missing_class_from_a_later_batch(sets):
    order = np.argsort(sets.y == 0, kind="stable")  # the first batch has no row of class 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SAVA(batch_size=40, label_distance="first_batch", batching="sequential", random_state=0).fit(
            sets.X[order], sets.y[order], sets.X_val, sets.y_val
        )
    assert np.isfinite(model.label_distances_).all()


def test_classes_that_one_side_lacks(sets):
    with pytest.warns(UserWarning, match=r"1 training classes do not occur in y_val: 2 \(\d+ rows\)"):
        model = SAVA(batch_size=50, random_state=0).fit(
            sets.X, sets.y, sets.X_val[sets.y_val < 2], sets.y_val[sets.y_val < 2]
        )
    assert np.isfinite(model.values_).all()
    only_some = SAVA(batch_size=50, random_state=0).fit(sets.X[sets.y < 2], sets.y[sets.y < 2], sets.X_val, sets.y_val)
    assert only_some.label_distances_.shape == (3, 3)


def test_a_single_validation_class_and_a_single_validation_row(sets):
    with pytest.warns(UserWarning, match="single class '0'"), pytest.warns(UserWarning, match="do not occur"):
        SAVA(batch_size=50).fit(sets.X, sets.y, sets.X_val[sets.y_val == 0], np.zeros(30, int))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = LAVA(lambda_y=0, dtype="float64").fit(sets.X, None, sets.X_val[:1], None)
    C = np.sum((sets.X - sets.X_val[0]) ** 2, axis=1) / 2
    assert model.scores_ == pytest.approx(240 / 239 * (C - C.mean()), abs=1e-9)


def test_rows_that_are_all_equal_have_no_value():
    X, y = np.ones((20, 3)), np.arange(20) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SAVA(batch_size=8, random_state=0).fit(X, y, X[:6], y[:6])
    assert np.abs(model.values_).max() < 1e-9


def test_scale_offset_and_constant_features(sets):
    model = SAVA(batch_size=80, random_state=0).fit(*sets.data)
    shifted = clone(model).fit(sets.X + 1e6, sets.y, sets.X_val + 1e6, sets.y_val)
    assert shifted.values_ == pytest.approx(model.values_, abs=1e-3)
    constant = np.hstack([sets.X, np.full((240, 1), 7.0)]), np.hstack([sets.X_val, np.full((90, 1), 7.0)])
    assert clone(model).fit(constant[0], sets.y, constant[1], sets.y_val).values_ == pytest.approx(
        model.values_, abs=1e-4
    )
    with pytest.warns(UserWarning, match='eps="auto"'):
        clone(model).fit(sets.X * 1e-3, sets.y, sets.X_val * 1e-3, sets.y_val)
    tiny = SAVA(batch_size=80, eps="auto", random_state=0).fit(sets.X * 1e-3, sets.y, sets.X_val * 1e-3, sets.y_val)
    assert detection_auc(tiny.values_, sets.wrong) > 0.98


def test_copies_of_validation_rows_are_warned_about(sets):
    X, y = np.vstack([sets.X, sets.X_val[:4]]), np.append(sets.y, sets.y_val[:4])
    with pytest.warns(UserWarning, match="4 training rows are equal to validation rows"):
        SAVA(batch_size=100, random_state=0).fit(X, y, sets.X_val, sets.y_val)


def test_any_container_gives_the_same_values(sets, tmp_path, same):
    model = SAVA(batch_size=60, random_state=0).fit(*sets.data)
    np.save(tmp_path / "x.npy", sets.X)
    mapped = clone(model).fit(np.load(tmp_path / "x.npy", mmap_mode="r"), sets.y, sets.X_val, sets.y_val)
    chunks = ((sets.X[i : i + 70], sets.y[i : i + 70]) for i in range(0, 240, 70))
    streamed = clone(model).fit(chunks, None, sets.X_val, sets.y_val)
    sets.X.flags.writeable = False
    locked = clone(model).fit(sets.X, sets.y, sets.X_val, sets.y_val)
    for other in (mapped, streamed, locked):
        assert same(other, model)


def test_same_seed_same_bytes_other_seed_other_batches(sets, same):
    first, second, other = (SAVA(batch_size=60, random_state=s).fit(*sets.data) for s in (5, 5, 6))
    assert same(first, second)
    assert not np.array_equal(first.batch_index_, other.batch_index_)


def test_float64_and_float32_agree(sets):
    single = SAVA(batch_size=60, random_state=0).fit(*sets.data)
    double = SAVA(batch_size=60, random_state=0, dtype="float64").fit(*sets.data)
    assert single.values_ == pytest.approx(double.values_, abs=1e-3)


def test_workers_do_not_change_a_bit(sets, same):
    one = SAVA(batch_size=40, random_state=0).fit(*sets.data)
    two = SAVA(batch_size=40, random_state=0, n_jobs=2).fit(*sets.data)
    assert same(one, two)


def test_odd_sizes(make_sets):
    for n, m, size in ((2, 1, 2), (3, 1, 2), (65, 7, 64), (64, 2, 1000), (9, 9, 2)):
        sets = make_sets(n, m, classes=2, noise=0.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model = SAVA(batch_size=size, random_state=0).fit(*sets.data)
        assert model.values_.shape == (n,)
        assert np.isfinite(model.values_).all()


def test_incremental_equals_from_scratch(sets, same):
    order = np.random.default_rng(0).permutation(240)
    X, y = sets.X[order], sets.y[order]
    W = SAVA(random_state=0).fit(X, y, sets.X_val, sets.y_val).label_distances_
    options: dict[str, Any] = {"batch_size": 40, "batching": "sequential", "label_distance": W, "random_state": 0}
    scratch = SAVA(**options).fit(X, y, sets.X_val, sets.y_val)
    grown = SAVA(**options).fit(X[:120], y[:120], sets.X_val, sets.y_val)
    assert grown.values_.shape == (120,)
    grown.partial_fit(X[120:200], y[120:200]).partial_fit(X[200:], y[200:])
    assert grown.values_ == pytest.approx(scratch.values_, abs=1e-6)
    assert same(grown, scratch)


def test_new_rows_may_bring_new_classes_and_drift_is_said(sets):
    rng = np.random.default_rng(0)
    model = SAVA(batch_size=60, random_state=0).fit(*sets.data)
    frozen = model.label_distances_.copy()
    model.partial_fit(rng.normal(size=(30, 5)), np.full(30, 9))
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert np.array_equal(model.label_distances_[:3, :3], frozen)
    assert np.isfinite(model.label_distances_[3, :3]).all()
    assert np.isnan(model.label_distances_[:, 3]).all()
    assert model.labels_.tolist()[-1] == 9
    with pytest.warns(UserWarning, match="move the class distances"):
        model.partial_fit(sets.X + 10, sets.y)


def test_dataset_distance_is_small_for_like_sets_and_debiasing_removes_the_floor(sets):
    near = dataset_distance(*sets.data)
    far = dataset_distance(sets.X + 5, sets.y, sets.X_val, sets.y_val)
    assert far > 2 * near > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert dataset_distance(sets.X, sets.y, sets.X, sets.y) > 0
        assert dataset_distance(sets.X, sets.y, sets.X, sets.y, debias=True) == pytest.approx(0, abs=1e-6)


def test_selection_of_a_fitted_model(sets):
    model = SAVA(batch_size=60, random_state=0).fit(*sets.data)
    kept = model.select(0.3)
    assert len(kept) == 240 - 72
    assert np.all(np.diff(kept) > 0)
    assert set(kept) == set(range(240)) - set(model.ranking_[:72])
    assert len(model.select(n=100, per_class=True)) == 100
    assert model.prune_mask(threshold=0).sum() == (model.values_ < 0).sum()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 1}, ValueError, "batch_size must be at least 2"),
        ({"batch_size": True}, TypeError, "batch_size must be an integer"),
        ({"eps": 0}, ValueError, "eps must be positive"),
        ({"eps": "small"}, ValueError, 'number or "auto"'),
        ({"scaling": 1}, ValueError, "scaling"),
        ({"lambda_x": -1}, ValueError, "lambda_x"),
        ({"lambda_y": np.nan}, ValueError, "lambda_y"),
        ({"outer_reg": 0}, ValueError, "outer_reg"),
        ({"p": 3}, ValueError, "p must be one of"),
        ({"solver": "lp"}, ValueError, "solver must be one of"),
        ({"outer": "max"}, ValueError, "outer must be one of"),
        ({"batching": "random"}, ValueError, "batching must be one of"),
        ({"dtype": "float16"}, ValueError, "dtype must be one of"),
        ({"compat": "lava"}, ValueError, "compat must be one of"),
        ({"label_distance": "cosine"}, ValueError, "label_distance must be one of"),
        ({"label_distance": np.ones((2, 2))}, ValueError, r"label_distance must have shape \(3, 3\)"),
        ({"label_distance": "precomputed"}, ValueError, "array itself"),
        ({"label_samples": 0}, ValueError, "label_samples"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"random_state": "seed"}, TypeError, "random_state"),
        ({"diameter": np.ones((3, 3))}, ValueError, "diameter must be"),
        ({"embedder": "word2vec"}, ValueError, "word2vec"),
    ],
)
def test_bad_parameters_are_refused(sets, options, error, message):
    with pytest.raises(error, match=message):
        SAVA(**({"batch_size": 100} | options)).fit(*sets.data)


def test_bad_data_are_refused(sets):
    model = SAVA(batch_size=100)
    with pytest.raises(ValueError, match="X has 5 features, X_val has 4"):
        model.fit(sets.X, sets.y, sets.X_val[:, :4], sets.y_val)
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        model.fit(sets.X[:1], sets.y[:1], sets.X_val, sets.y_val)
    with pytest.raises(ValueError, match="X_val is empty"):
        model.fit(sets.X, sets.y, sets.X_val[:0], sets.y_val[:0])
    with pytest.raises(ValueError, match="use one kind on both sides"):
        model.fit(sets.X, sets.y, sets.X_val, sets.y_val.astype(str))
    with pytest.raises(NotFittedError):
        model.partial_fit(sets.X, sets.y)
    with pytest.raises(NotFittedError):
        _ = model.scores_
    with pytest.raises(ValueError, match="X has 4 features, X_val has 5"):
        SAVA(batch_size=100).fit(*sets.data).partial_fit(sets.X[:, :4], sets.y)
