from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icl25_pn_gail.classifier import ConfidenceClassifier
from icl25_pn_gail.confidence import calibration_report
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.held_out import held_out_confidence
from icl25_pn_gail.labelled_tables import write_confidence_column
from icl25_pn_gail.recording import make_demonstrations

STEPS = 400


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    """Half of the rows are rated."""
    return make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.1").mask_labels(0.5)


@pytest.fixture(scope="module")
def classifier() -> ConfidenceClassifier:
    return ConfidenceClassifier(steps=STEPS, random_state=0)


def test_missing_confidences_are_those_of_the_classifier(cli, demos, classifier):
    demos.to_npz("d.npz")
    ran = cli("label", "d.npz", "--steps", STEPS, "--picture", "p.png", "--json")
    assert ran.status == 0, ran.err
    found = Demonstrations.from_parquet("labelled.parquet")
    filled = classifier.fit(demos.inputs(), demos.confidence).fill(demos.inputs(), demos.confidence)
    np.testing.assert_array_equal(found.confidence, filled)
    np.testing.assert_array_equal(found.confidence[demos.labelled], demos.confidence[demos.labelled])
    np.testing.assert_array_equal(found.obs, demos.obs)
    assert found.meta["levels"] == demos.meta["levels"]
    spread = ran.json["confidence"]
    assert (spread["given"]["rows"], spread["filled in"]["rows"], spread["all"]["rows"]) == (90, 90, 180)
    assert spread["filled in"]["mean"] == pytest.approx(filled[~demos.labelled].mean())
    assert spread["all"]["quantiles"][2] == pytest.approx(np.median(filled))
    held = held_out_confidence(classifier, demos)
    report = calibration_report(demos.confidence, np.nan_to_num(held.predicted))
    measured = ran.json["held_out"]
    assert (measured["unit"], measured["folds"], measured["rows"]) == ("row", 5, 90)
    assert measured["mean_absolute_error"] == pytest.approx(report.mean_absolute_error)
    assert measured["bias"] == pytest.approx(report.bias)
    assert sum(row["n"] for row in measured["reliability"]) == 90
    with Image.open("p.png") as image:
        assert min(image.size) > 300


def test_a_table_keeps_its_other_columns(cli, demos):
    confidence = ["" if np.isnan(r) else f"{5 * r:g}" for r in demos.confidence]
    columns = {
        "note": [f'run "{i}", 007' for i in range(180)],
        "code": ["007", "NA"] * 90,
        "x1": demos.obs[:, 0],
        "x2": demos.obs[:, 1],
    }
    table = pd.DataFrame(columns | {"u1": demos.acts[:, 0], "u2": demos.acts[:, 1], "stars": confidence}).astype(str)
    table.to_csv("log.csv", index=False)
    names = ("--obs-cols", "x1,x2", "--act-cols", "u", "--confidence-column", "stars", "--confidence-range", "0,5")
    flags = ("--steps", STEPS, "--folds", 0, *names)
    ran = cli("label", "log.csv", *flags, "-o", "out.csv")
    assert ran.status == 0, ran.err
    assert "errors are not measured: --folds is 0" in ran.out
    found = pd.read_csv("out.csv", dtype=str, keep_default_na=False)
    pd.testing.assert_frame_equal(found.drop(columns="stars"), table.drop(columns="stars"))
    assert cli("label", "log.csv", *flags, "-o", "out.npz").status == 0
    expected = Demonstrations.from_npz("out.npz").confidence
    np.testing.assert_array_equal(found["stars"].astype(float), expected)
    np.testing.assert_allclose(expected[demos.labelled], demos.confidence[demos.labelled])
    unnamed = table.rename(columns={"x1": "obs_0", "x2": "obs_1", "u1": "act_0", "u2": "act_1", "stars": "confidence"})
    unnamed["confidence"] = pd.to_numeric(unnamed["confidence"]) / 5
    kinds = dict.fromkeys(["obs_0", "obs_1", "act_0", "act_1"], float)
    unnamed.astype(kinds).to_parquet("log.parquet")
    assert cli("label", "log.parquet", "--steps", STEPS, "--folds", 0, "-o", "out.pq").status == 0
    kept = pd.read_parquet("out.pq")
    np.testing.assert_allclose(kept["confidence"], expected, atol=1e-6)
    pd.testing.assert_series_equal(kept["note"], table["note"], check_dtype=False)


def test_a_column_is_added_where_there_was_none():
    table = pd.DataFrame({"a": [1, 2]})
    table.to_parquet("t.parquet")
    table.to_csv("t.csv", index=False)
    write_confidence_column("t.parquet", "o.parquet", np.array([0.25, 1.0]))
    write_confidence_column("t.csv", "o.csv", np.array([0.25, 1.0]))
    for found in (pd.read_parquet("o.parquet"), pd.read_csv("o.csv")):
        assert found.to_dict("list") == {"a": [1, 2], "confidence": [0.25, 1.0]}
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(ValueError, match="2 rows, expected 3"):
            write_confidence_column(name, "p" + name[1:], np.ones(3))
    with pytest.raises(FileExistsError):
        write_confidence_column("t.csv", "o.csv", np.ones(2))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Write to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)


class Memory(ConfidenceClassifier):
    """A classifier that predicts the label that it was shown for a row, and 0.5 where it saw none."""

    seen: ClassVar[list[np.ndarray]] = []

    def fit(self, X, r):
        Memory.seen.append(np.flatnonzero(~np.isnan(r)))
        self.known = np.where(np.isnan(r), 0.5, r)
        self.rows = {row.tobytes(): known for row, known in zip(X, self.known, strict=True)}
        return self

    def predict_confidence(self, X):
        return np.array([self.rows[row.tobytes()] for row in X])


def test_held_out_rows_are_not_shown(demos, monkeypatch):
    monkeypatch.setattr(Memory, "seen", [])
    found = held_out_confidence(Memory(), demos, folds=3)
    assert found.unit == "row"
    assert len(Memory.seen) == found.folds == 3
    np.testing.assert_array_equal(found.predicted[demos.labelled], 0.5)
    assert np.isnan(found.predicted[~demos.labelled]).all()
    # Each row is held out once, in parts of equal size.
    missing = [np.setdiff1d(np.flatnonzero(demos.labelled), seen) for seen in Memory.seen]
    assert [len(part) for part in missing] == [30, 30, 30]
    assert len(np.unique(np.concatenate(missing))) == 90


def test_whole_episodes_are_held_out_where_labels_are_of_episodes(monkeypatch):
    full = make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:4:0.1")
    monkeypatch.setattr(Memory, "seen", [])
    demos = full.with_confidence(np.where(full.episode_codes < 4, full.confidence, np.nan))
    found = held_out_confidence(Memory(), demos, folds=9)
    assert (found.unit, found.folds) == ("episode", 4)
    held = [set(full.episode_codes[np.setdiff1d(np.arange(120), seen)]) for seen in Memory.seen]
    assert sorted(map(tuple, held)) == [(0,), (1,), (2,), (3,)]
    # All rows are labelled: an episode is held out too, as nothing says otherwise.
    assert held_out_confidence(Memory(), full, folds=2).unit == "episode"
    alone = full.with_confidence(np.where(full.episode_codes < 1, full.confidence, np.nan))
    assert held_out_confidence(Memory(), alone, folds=2).unit == "row"


def test_too_little_to_hold_out_is_refused(demos):
    with pytest.raises(ValueError, match="folds must be >= 2, found 1"):
        held_out_confidence(ConfidenceClassifier(), demos, folds=1)
    one = demos.with_confidence(np.where(np.arange(180) == 0, 1, np.nan))
    with pytest.raises(ValueError, match="at least two rows must be labelled to hold one out, found 1"):
        held_out_confidence(ConfidenceClassifier(), one)


def test_few_or_equal_labels_are_not_judged(cli, demos):
    for name, rows, r, why in (("few", 19, 0.5, "fewer than 20 rows"), ("equal", 40, 0.5, "all labels are equal")):
        demos.with_confidence(np.where(np.arange(180) < rows, r, np.nan)).to_npz(f"{name}.npz")
        ran = cli("label", f"{name}.npz", "--steps", STEPS, "-o", f"{name}.csv")
        assert ran.status == 0, ran.err
        assert f"errors are not measured: {why}" in ran.out
        assert "all 19 labels are 0.5" in ran.err or "all 40 labels are 0.5" in ran.err
        np.testing.assert_array_equal(Demonstrations.from_csv(f"{name}.csv").confidence, 0.5)


def test_nothing_missing_is_said(cli, demos):
    full = demos.with_confidence(np.where(demos.labelled, demos.confidence, 0.3))
    full.to_npz("full.npz")
    ran = cli("label", "full.npz", "--steps", STEPS, "--folds", 2)
    assert ran.status == 0
    assert "every row of full.npz has a confidence: there is nothing to fill in" in ran.err
    assert "held out as whole episodes in 2 parts" in ran.out
    np.testing.assert_array_equal(Demonstrations.from_parquet("labelled.parquet").confidence, full.confidence)
    assert Path("labelled.parquet").exists()
