from __future__ import annotations

import threading

import jax
import numpy as np
import pandas as pd
import pytest

from icl25_pn_gail import comparison
from icl25_pn_gail.comparison import compare, parse_method, summarize
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.evaluation import EvalResult

METHODS = ("pn-gail", "2iwil", "bc")
SEEDS = (3, 4)


@pytest.fixture
def compared(mixture, tiny):
    """Compare in the smallest environment, and collect what is told of each run."""

    def run(methods=METHODS, seeds=SEEDS, on_run=None, **options):
        told = []
        table = compare(
            TwoGoals(), mixture, methods, seeds, total_iterations=3, config=tiny, n_episodes=4,
            progress_bar=False, on_run=on_run or told.append, **options,
        )  # fmt: skip
        return table, told

    return run


def test_a_run_beside_others_is_to_the_last_bit_what_it_is_alone(compared, make_learner):
    table, told = compared()
    runs = [(method, seed) for method in METHODS for seed in SEEDS]
    assert list(zip(table["method"], table["seed"], strict=True)) == [(one.method, one.seed) for one in told] == runs
    assert table["mean_return"].nunique() == len(runs)
    for (method, seed), row, one in zip(runs, table.itertuples(), told, strict=True):
        assert (row.mean_return, row.iqm_return) == (one.result.mean, one.result.iqm)
        assert row.mean_length == 30
        if method != "bc":
            alone = make_learner(method, seed=seed).learn(3, progress_bar=False)
            np.testing.assert_array_equal(one.result.returns, alone.evaluate(4).returns)
            columns = one.history.columns.drop("seconds")
            pd.testing.assert_frame_equal(one.history[columns], alone.history[columns])
            for many, single in zip(
                jax.tree.leaves(one.policy.params), jax.tree.leaves(alone.policy.params), strict=True
            ):
                np.testing.assert_array_equal(many, single)


def test_runs_in_a_batch_are_the_same_up_to_rounding(compared, monkeypatch):
    side_by_side, _ = compared()
    devices = jax.local_devices() * 2
    monkeypatch.setattr(comparison, "computing_devices", lambda: devices)
    asked = []
    real = comparison._batched
    monkeypatch.setattr(comparison, "_batched", lambda *given: asked.append(given[3]) or real(*given))
    table, told = compared()
    assert [(one.name, seed) for one, seed in asked[0]] == [(m, s) for m in METHODS[:2] for s in SEEDS]
    pd.testing.assert_frame_equal(table, side_by_side, rtol=1e-4)
    assert [len(one.history) for one in told] == [3] * 6
    assert [one.policy.predict([0.0, -1.0])[0].shape for one in told] == [(2,)] * 6


def test_where_one_run_fails_the_others_stop(compared, monkeypatch):
    begun, failed, seen = threading.Event(), threading.Event(), []

    class Failing:
        history, policy = pd.DataFrame(), None

        def __init__(self, env, demos, *, seed, **options):
            self.seed = seed

        def evaluate(self, n_episodes):
            return EvalResult(np.zeros(n_episodes), np.ones(n_episodes))

        def learn(self, total_iterations, callback, progress_bar):
            if self.seed == 0:
                begun.wait(20)
                failed.set()
                raise FloatingPointError("training diverged")
            begun.set()
            assert failed.wait(20)
            for _ in range(2000):  # as long as a training that nobody stops
                if callback(self) is False:
                    seen.append("stopped")
                    return
                threading.Event().wait(0.01)
            seen.append("went on")

    monkeypatch.setattr(comparison, "LEARNERS", {"gail": Failing})
    monkeypatch.setattr(comparison, "n_cores", lambda: 2)
    told = []
    with pytest.raises(FloatingPointError, match="training diverged"):
        compared(["gail"], (1, 0, 2, 3, 4), on_run=told.append)
    assert told == []  # half a training is none
    assert seen == ["stopped"]  # and what had not begun, never did


def test_threads_compute_where_the_caller_does(compared, monkeypatch):
    found = []

    def diverge(*given, **options):
        found.append(jax.config.jax_default_device)
        raise FloatingPointError("training diverged")

    monkeypatch.setattr(comparison, "LEARNERS", {"gail": diverge})
    monkeypatch.setattr(comparison, "n_cores", lambda: 2)
    for device in (jax.local_devices()[0], None):
        with jax.default_device(device), pytest.raises(FloatingPointError):
            compared(["gail"], range(2))
        assert found.pop() is device
        found.clear()


def test_what_cannot_be_compared_is_refused(compared):
    for options, message in (
        ({"methods": ()}, "at least one method and different seeds"),
        ({"seeds": ()}, "at least one method and different seeds"),
        ({"seeds": (1, 1)}, r"different seeds, found \['pn-gail', '2iwil', 'bc'\] and \[1, 1\]"),
        ({"methods": ("pn-gail+oracle",)}, "needs oracle"),
        ({"methods": ("gall",)}, "gall"),
    ):
        with pytest.raises(ValueError, match=message):
            compared(**options)


def test_names_of_methods_say_what_fills_in():
    assert parse_method("pn-gail+sc")[1:] == ("pn-gail", "sc")
    assert parse_method("bc").classifier is None
    assert parse_method("2iwil+oracle").name == "2iwil+oracle"


def test_runs_are_summarised_by_method():
    returns = {"a": [1.0, 2.0, 3.0, 4.0, 100.0], "b": [-5.0, -5.0, -5.0, -5.0, -5.0]}
    rows = [{"method": m, "seed": s, "mean_return": v} for m, part in returns.items() for s, v in enumerate(part)]
    found = summarize(pd.DataFrame(rows), failed_below=2.5)
    assert found.index.tolist() == ["a", "b"]
    row = found.loc["a"]
    assert (row["runs"], row["median"], row["mean"], row["worst"], row["best"]) == (5, 3, 22, 1, 100)
    assert row["iqm"] == pytest.approx(EvalResult(np.array(returns["a"]), np.ones(5, int)).iqm)
    assert found["failed"].tolist() == [0.4, 1.0]
    assert row["median_low"] <= 3 <= row["median_high"] <= 100
    assert row["mean_low"] < 22 < row["mean_high"]
    assert found.loc["b", ["median_low", "median_high", "mean_low", "mean_high"]].tolist() == [-5] * 4
    assert "failed" not in summarize(pd.DataFrame(rows))
