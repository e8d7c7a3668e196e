"""The confidence classifier: what it learns, its sampling, scikit-learn's conventions, storage and refusals."""

from __future__ import annotations

import io
import warnings
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icl25_pn_gail import classifier_training
from icl25_pn_gail.classifier import ConfidenceClassifier

# Every test that trains does so with these shapes, which are compiled once for each method.
N, N_LABELLED = 400, 20
QUICK: dict[str, Any] = {"steps": 1500, "lr": 3e-3, "batch_size": 1}


def mixture(seed):
    """Rows of which few are good, their confidence, and labels for 5 % of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    r = 1 / (1 + np.exp(-np.where(X[:, 0] + X[:, 1] > 0.8, 3, -3) - X[:, 1]))
    labels = np.full(N, np.nan)
    chosen = rng.choice(N, N_LABELLED, replace=False)
    labels[chosen] = r[chosen]
    return X, r, labels


@pytest.fixture(scope="module")
def fitted():
    X, r, labels = mixture(0)
    return ConfidenceClassifier(**QUICK).fit(X, labels), X, r, labels


def errors(method, seeds=range(4)):
    """Mean absolute error and bias on the unlabelled rows, over mixtures."""
    found = []
    for seed in seeds:
        X, r, labels = mixture(seed)
        predicted = ConfidenceClassifier(method, random_state=seed, **QUICK).fit(X, labels).predict_confidence(X)
        error = (predicted - r)[np.isnan(labels)]
        found.append([np.abs(error).mean(), error.mean()])
    return np.mean(found, axis=0)


class TestQuality:
    def test_balanced_is_as_good_as_supervised_and_semi_conf_underestimates(self):
        (balanced, _), (supervised, _), (semi_conf, bias) = map(errors, ("bsc", "supervised", "sc"))
        assert balanced < 0.09
        assert abs(balanced - supervised) < 0.02
        assert semi_conf > balanced + 0.04
        assert bias < -0.05

    def test_unlabelled_rows_act_without_the_bound(self, fitted):
        classifier, X, _, labels = fitted
        free = clone(classifier).set_params(clip=None).fit(X, labels)
        assert np.abs(free.predict_confidence(X) - classifier.predict_confidence(X)).max() > 0.02

    def test_standardisation_makes_units_irrelevant(self, fitted):
        classifier, X, _, labels = fitted
        other = clone(classifier).fit(X * [1e3, 1e-3] + [5, -7], labels)
        np.testing.assert_allclose(
            other.predict_confidence(X * [1e3, 1e-3] + [5, -7]), classifier.predict_confidence(X), atol=0.02
        )
        raw = clone(classifier).set_params(standardize=False).fit(X, labels)
        np.testing.assert_array_equal([raw.mean_, raw.scale_], [[0, 0], [1, 1]])


class TestTraining:
    def test_steps_that_do_not_fit_in_memory_are_made_in_blocks(self, monkeypatch):
        seen = []
        run = classifier_training._run_steps

        def record(state, X, r, draws, count, *rest, **named):
            seen.append((len(draws.rows), count))
            return run(state, X, r, draws, count, *rest, **named)

        monkeypatch.setattr(classifier_training, "_run_steps", record)
        monkeypatch.setattr(classifier_training, "LARGEST_DRAW", 20 * 80 * 40)
        X, _, labels = mixture(0)
        classifier = ConfidenceClassifier(**QUICK).set_params(steps=100).fit(X, labels)
        assert seen == [(40, 40), (40, 40), (40, 20)]
        assert int(np.ptp(classifier.predict_confidence(X)) > 0)

    def test_large_predictions_are_made_in_parts(self, fitted, monkeypatch):
        classifier, X, _, _ = fitted
        whole = classifier.predict_confidence(X)
        monkeypatch.setattr(classifier_training, "ROWS_AT_ONCE", 150)
        np.testing.assert_allclose(classifier.predict_confidence(X), whole, atol=1e-6)

    def test_semi_conf_branch_is_that_of_labelled_rows(self, monkeypatch):
        given = []
        monkeypatch.setattr(
            "icl25_pn_gail.classifier.train", lambda layers, X, r, risk, *_, **__: given.append(risk) or layers
        )
        X, _, labels = mixture(0)
        ConfidenceClassifier("sc").fit(X, labels)
        ConfidenceClassifier(alpha=0.2, beta=0.3, clip=None).fit(X, labels)
        assert given[0].mean_confidence == pytest.approx(np.nanmean(labels))
        assert (given[0].alpha, given[0].beta, given[0].clip) == (0.95, 0.95, 0.01)
        assert (given[1].alpha, given[1].beta, given[1].clip) == (0.2, 0.3, np.inf)

    def test_divergence_is_an_error(self):
        X, _, labels = mixture(0)
        classifier = ConfidenceClassifier(**QUICK).fit(X, labels)
        with pytest.raises(ValueError, match="training diverged"):
            classifier.set_params(lr=1e38).fit(X, labels)
        with pytest.raises(NotFittedError):
            classifier.predict(X)

    def test_all_rows_labelled(self):
        X, r, _ = mixture(0)
        for method in ("bsc", "sc"):
            classifier = ConfidenceClassifier(method, **QUICK).fit(X, r)
            assert classifier.n_unlabelled_ == 0
            assert classifier.score(X, r) > 0.9
            np.testing.assert_array_equal(classifier.fill(X, r), r)


class TestEstimator:
    def test_predictions_agree(self, fitted):
        classifier, X, r, labels = fitted
        confidence = classifier.predict_confidence(X)
        np.testing.assert_array_equal(classifier.predict_proba(X), np.stack([1 - confidence, confidence], axis=1))
        np.testing.assert_array_equal(classifier.predict(X), confidence >= 0.5)
        assert confidence.min() >= 0
        assert confidence.max() <= 1
        known = ~np.isnan(labels)
        assert classifier.score(X, r) == pytest.approx(1 - np.abs(confidence - r).mean())
        assert classifier.score(X, labels) == pytest.approx(1 - np.abs(confidence - r)[known].mean())
        filled = classifier.fill(X, labels)
        np.testing.assert_array_equal(filled[known], labels[known])
        np.testing.assert_array_equal(filled[~known], confidence[~known])

    def test_same_seed_same_bytes(self, fitted):
        classifier, X, _, labels = fitted
        again = clone(classifier).fit(X, labels)
        assert again.predict_confidence(X).tobytes() == classifier.predict_confidence(X).tobytes()
        other = clone(classifier).set_params(random_state=1).fit(X, labels)
        assert not np.array_equal(other.predict_confidence(X), classifier.predict_confidence(X))

    def test_does_not_depend_on_the_precision_of_jax(self, fitted):
        classifier, X, _, labels = fitted
        with jax.enable_x64(True):
            again = clone(classifier).fit(X, labels)
        assert all(array.dtype == np.float32 for layer in again.layers_ for array in layer)
        np.testing.assert_allclose(again.predict_confidence(X), classifier.predict_confidence(X), atol=0.02)

    def test_kinds_of_input(self, fitted):
        classifier, X, _, labels = fitted
        expected = classifier.predict_confidence(X)
        frame = pd.DataFrame(X, columns=["x", "y"])
        as_frame = clone(classifier).fit(frame, pd.Series(labels, index=np.arange(N) + 5))
        np.testing.assert_array_equal(as_frame.predict_confidence(frame), expected)
        assert as_frame.feature_names_in_.tolist() == ["x", "y"]
        as_lists = clone(classifier).fit(X.tolist(), [None if np.isnan(label) else label for label in labels])
        np.testing.assert_array_equal(as_lists.predict_confidence(X.tolist()), expected)
        np.testing.assert_allclose(classifier.predict_confidence(X.astype(np.float32)), expected, atol=1e-6)
        with pytest.raises(ValueError, match=r"columns \['x', 'y'\].*found \['y', 'x'\]"):
            as_frame.predict(frame[["y", "x"]])
        assert not hasattr(as_frame.fit(X, labels), "feature_names_in_")

    def test_scikit_learn_conventions(self, fitted):
        classifier, X, r, labels = fitted
        assert classifier.n_features_in_ == 2
        assert (classifier.n_labelled_, classifier.n_unlabelled_) == (N_LABELLED, N - N_LABELLED)
        changed = clone(classifier).set_params(dropout=0.2)
        assert changed.get_params()["dropout"] == 0.2
        for call in (
            changed.predict,
            changed.predict_proba,
            lambda X: changed.fill(X, r),
            lambda X: changed.score(X, r),
        ):
            with pytest.raises(NotFittedError):
                call(X)
        with pytest.raises(NotFittedError):
            changed.to_arrays()
        pipeline = make_pipeline(StandardScaler(), clone(classifier)).fit(X, labels)
        np.testing.assert_allclose(pipeline.predict_proba(X), classifier.predict_proba(X), atol=0.02)

    def test_cross_validation(self):
        X, r, _ = mixture(0)
        scores = cross_val_score(ConfidenceClassifier("supervised", **QUICK), X, r, cv=2)
        assert (scores > 0.9).all()

    @pytest.mark.parametrize("seed", [np.random.RandomState(3), None, np.int64(3)])
    def test_seeds_of_scikit_learn(self, monkeypatch, seed):
        monkeypatch.setattr("icl25_pn_gail.classifier.train", lambda layers, *_, **__: layers)
        X, _, labels = mixture(0)
        classifier = ConfidenceClassifier(random_state=seed).fit(X, labels)
        restored = ConfidenceClassifier.from_arrays(classifier.to_arrays())
        np.testing.assert_array_equal(restored.predict_confidence(X), classifier.predict_confidence(X))


class TestStorage:
    def test_round_trip_through_a_file(self, fitted):
        classifier, X, _, labels = fitted
        named = clone(classifier).set_params(clip=None, beta=0.5, hidden=[40, 40])
        named.fit(pd.DataFrame(X, columns=["x", "y"]), labels)
        for saved in (classifier, named):
            file = io.BytesIO()
            np.savez(file, **saved.to_arrays())
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                restored = ConfidenceClassifier.from_arrays(arrays)
            np.testing.assert_array_equal(restored.predict_confidence(X), saved.predict_confidence(X))
            assert restored.get_params() == {**saved.get_params(), "hidden": (40, 40)}
            assert restored.n_labelled_ == N_LABELLED
        assert restored.feature_names_in_.tolist() == ["x", "y"]

    def test_constant(self):
        X, _, _ = mixture(0)
        with pytest.warns(UserWarning, match="all 20 labels are 0.7"):
            constant = ConfidenceClassifier().fit(X, [0.7] * 20 + [np.nan] * (N - 20))
        restored = ConfidenceClassifier.from_arrays(constant.to_arrays())
        for classifier in (constant, restored):
            np.testing.assert_array_equal(classifier.predict_confidence(X), np.full(N, 0.7))

    def test_network_of_the_reference(self, golden):
        arrays = golden("core")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            stored = ConfidenceClassifier(hidden=(8, 8)).fit(np.eye(5), np.full(5, 0.5)).to_arrays()
        stored |= {"constant": np.array(np.nan), "mean": np.zeros(5), "scale": np.ones(5)}
        for index, name in enumerate(("fc1", "fc2", "fc3")):
            stored |= {
                f"layer{index}/weight": arrays[f"clf/{name}.weight"].T,
                f"layer{index}/bias": arrays[f"clf/{name}.bias"],
            }
        found = ConfidenceClassifier.from_arrays(stored).predict_confidence(arrays["demo"])
        np.testing.assert_allclose(found, arrays["clf_conf_pred"][:, 0], atol=1e-10)

    def test_incomplete_arrays(self, fitted):
        arrays = fitted[0].to_arrays()
        with pytest.raises(ValueError, match="lack mean"):
            ConfidenceClassifier.from_arrays({name: arrays[name] for name in arrays if name != "mean"})
        with pytest.raises(ValueError, match=r"layer 1 .* found \(\) and \(40,\)"):
            ConfidenceClassifier.from_arrays({name: arrays[name] for name in arrays if name != "layer1/weight"})
        with pytest.raises(ValueError, match=r"layer 0 .* \(3, 40\)"):
            ConfidenceClassifier.from_arrays({**arrays, "mean": np.zeros(3), "scale": np.ones(3)})


class TestBadInput:
    @pytest.mark.parametrize(
        ("X", "r", "message"),
        [
            (
                [[0.0, np.nan], [np.inf, 1.0]],
                [0.5, 1],
                "2 values that are NaN or infinite, first in row 0, column 1",
            ),
            (pd.DataFrame({"x": [0.0], "speed": [np.inf]}), [0.5], "first in row 0, column 'speed'"),
            (
                [[0.0], [1.0]],
                [0.5, 5.0],
                r"\[0, 1\], found 1 other values, first 5 in row 1; .*from_returns",
            ),
            ([[0.0], [1.0]], [-0.1, 0.5], "first -0.1 in row 0"),
            ([[0.0], [1.0]], [np.nan, np.nan], "at least 1 labelled row, found 2 NaN.*'gail'"),
            ([[0.0], [1.0]], [0.5], "r must have 2 values, one for each row, found 1"),
            ([[0.0], [1.0]], [[0.5], [1.0]], r"r must have shape \(n,\)"),
            ([[0.0], [1.0]], ["good", "bad"], "r must hold numbers"),
            (np.zeros((0, 3)), [], r"found \(0, 3\)"),
            (np.zeros((3, 0)), [1, 0, 1], r"found \(3, 0\)"),
            ([0.0, 1.0], [0.5, 1.0], r"shape \(n, d\) .* found \(2,\)"),
            ([["a"], ["b"]], [0.5, 1.0], "X must be a table of numbers"),
        ],
    )
    def test_rows_and_labels(self, X, r, message):
        with pytest.raises(ValueError, match=message):
            ConfidenceClassifier().fit(X, r)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"method": "gail"}, "method must be"),
            ({"alpha": 1.5}, "alpha must be 'auto' or from 0 to 1, found 1.5"),
            ({"beta": "mean"}, "beta must be 'auto'"),
            ({"clip": 0.0}, "clip must be above 0, or None"),
            ({"dropout": 1.0}, "dropout must lie"),
            ({"lr": 0.0}, "lr must be above 0"),
            ({"steps": 0}, "steps must hold whole numbers above 0, found 0"),
            ({"batch_size": 2.5}, "batch_size must hold whole numbers"),
            ({"hidden": (40, 0)}, "hidden must hold whole numbers"),
        ],
    )
    def test_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            ConfidenceClassifier().set_params(**arguments).fit([[0.0], [1.0]], [0.0, 1.0])

    def test_predictions_from_other_features(self, fitted):
        classifier, X, r, _ = fitted
        for call in (classifier.predict, classifier.predict_proba, lambda X: classifier.fill(X, r)):
            with pytest.raises(ValueError, match="X must have 2 features, as in fit, found 3"):
                call(np.zeros((4, 3)))
        with pytest.raises(ValueError, match="r must have 400 values, one for each row, found 399"):
            classifier.fill(X, r[1:])
        with pytest.raises(ValueError, match="at least 1 labelled row to score on"):
            classifier.score(X, np.full(N, np.nan))

    def test_sparse_rows(self):
        class Sparse:
            def toarray(self): ...

        with pytest.raises(TypeError, match="X must be dense, found Sparse"):
            ConfidenceClassifier().fit(Sparse(), [1.0])

    def test_few_labels(self, monkeypatch):
        monkeypatch.setattr("icl25_pn_gail.classifier.train", lambda layers, *_, **__: layers)
        X, r, _ = mixture(0)
        for n_labelled, few in ((9, True), (10, False)):
            labels = np.where(np.arange(N) < n_labelled, r, np.nan)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                ConfidenceClassifier().fit(X, labels)
            assert [str(warning.message).startswith("only 9 rows are labelled") for warning in caught] == [True] * few

    def test_constant_features(self, monkeypatch):
        monkeypatch.setattr("icl25_pn_gail.classifier.train", lambda layers, *_, **__: layers)
        X, _, labels = mixture(0)
        constant = np.column_stack([X, np.full(N, 0.1)])
        classifier = ConfidenceClassifier().fit(constant, labels)
        assert classifier.scale_[2] == 1
        assert np.isfinite(classifier.predict_confidence(constant)).all()
