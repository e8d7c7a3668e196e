"""The claims: shown at small scale, and decided rightly by their rules."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from icl25_sava import demo, reproduce
from icl25_sava.cli import Demo

TINY = reproduce.Sizes(n_train=600, n_val=200, batch_size=100, growth=(400, 1600), step=200, n_steps=3)


@pytest.fixture(scope="module")
def trials():
    return {panel: demo.run_trial(panel, 0) for panel in demo.PANELS}


def test_noisy_pixels_are_found_where_knn_shapley_fails(trials):
    auc = trials["noisy pixels"].auc
    assert auc["SAVA"] > 0.94
    assert auc["SAVA"] - auc["KNN-Shapley"] > 0.08


@pytest.mark.parametrize("panel", list(demo.PANELS))
def test_batches_cost_little_against_lava(trials, panel):
    auc = trials[panel].auc
    assert abs(auc["SAVA"] - auc["LAVA"]) <= 0.06
    assert auc["SAVA"] > 0.88
    assert abs(auc["random"] - 0.5) < 0.1


def test_pruning_wrong_labels_trains_a_better_model_than_chance(trials):
    accuracy = trials["wrong labels, embedded"].accuracy
    assert accuracy["SAVA"] > accuracy["random"] + 0.03
    assert accuracy["oracle"] > 0.93


def tables(noise_gap: float, parity_gap: float, pruning_gap: float):
    auc = {panel: pd.DataFrame({"SAVA": [0.9] * 3, "LAVA": [0.9 + parity_gap] * 3}) for panel in demo.PANELS}
    auc["noisy pixels"]["KNN-Shapley"] = 0.9 - noise_gap
    accuracy = {panel: pd.DataFrame({"SAVA": [0.8] * 3, "random": [0.8 - pruning_gap] * 3}) for panel in demo.PANELS}
    return auc, accuracy


@pytest.mark.parametrize(
    ("gaps", "holds"),
    [
        ((0.2, 0.01, 0.05), [True, True, True]),
        ((0.05, 0.01, 0.05), [False, True, True]),
        ((0.2, 0.07, 0.05), [True, False, True]),
        ((0.2, -0.07, 0.01), [True, False, False]),
    ],
)
def test_the_rules_of_the_demonstration_decide(gaps, holds):
    assert [claim.holds for claim in demo.demo_claims(*tables(*gaps))] == holds


def test_the_same_seed_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "N_SEEDS", 1)
    monkeypatch.setattr(demo, "PANELS", {name: demo.PANELS[name] for name in ("noisy pixels", "wrong labels")})
    for name in ("a", "b"):
        monkeypatch.setattr(demo, "demo_claims", lambda auc, accuracy: [])
        demo.run_demo(Demo(out=tmp_path / name, seed=3))
    results = [(tmp_path / name / "result.json").read_bytes() for name in ("a", "b")]
    assert results[0] == results[1]
    assert json.loads(results[0])["seeds"] == [3]


@pytest.mark.parametrize("row", list(reproduce.ROWS))
def test_every_row_of_the_table_runs(row):
    auc = reproduce.detection_aucs(row, 0, TINY)
    assert set(auc) == {"SAVA", "uniform outer", "batch-wise LAVA", "NearestCost", "LAVA", "KNN-Shapley"}
    if "mlp" not in row and "blend" not in row:
        assert auc["SAVA"] > 0.65


def test_memory_of_sava_stays_while_that_of_lava_grows():
    sizes = TINY._replace(n_val=400, growth=(400, 6400))
    reproduce.growth(sizes, 0)  # what is imported late counts for no row
    curve = reproduce.growth(sizes, 0).set_index(["method", "n"])["working_mb"]
    assert curve["LAVA", 6400] > 8 * curve["LAVA", 400]
    assert curve["SAVA", 6400] < curve["LAVA", 6400] / 4


def test_incremental_values_equal_those_from_scratch():
    steps, difference = reproduce.incremental(TINY, 0)
    assert steps["n"].tolist() == [200, 400, 600]
    assert difference <= 1e-6


def test_the_rules_of_the_experiments_decide():
    def frames(sava: float, lava: float, knn: float):
        columns = {"SAVA": [sava] * 3, "LAVA": [lava] * 3, "KNN-Shapley": [knn] * 3}
        return {row: pd.DataFrame(columns) for row in reproduce.ROWS}

    def curve(sava_growth: float, lava_growth: float):
        return pd.DataFrame(
            {
                "method": ["SAVA", "SAVA", "LAVA", "LAVA"],
                "n": [1000, 10_000] * 2,
                "working_mb": [10, 10 * sava_growth, 10, 10 * lava_growth],
            }
        )

    def steps(gain: float):
        return [pd.DataFrame({"accuracy": [0.8, 0.8 + gain + s], "random": [0.8, 0.8]}) for s in (0, 1e-3, 2e-3)]

    good = reproduce.reproduce_claims(frames(0.9, 0.91, 0.7), curve(1.1, 10), steps(0.05), [0.0, 1e-8, 0.0])
    assert all(claim.holds for claim in good)
    bad = reproduce.reproduce_claims(frames(0.4, 0.6, 0.4), curve(2, 1), steps(-0.05), [0.0, 1e-3, 0.0])
    assert not any(claim.holds for claim in bad)
    assert len({claim.id for claim in good}) == len(good) == 9
    assert sum(claim.headline for claim in good) == 1
    assert np.isfinite([claim.measured.mean for claim in bad]).all()
