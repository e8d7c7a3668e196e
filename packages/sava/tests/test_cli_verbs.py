from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icl25_sava import LAVA, SAVA, KNNShapley, dataset_distance, detection_auc, prune_mask

READING = ("--label", "kind", "--id-column", "key")
VALUE = ("value", "train.csv", "val.csv", *READING, "--batch-size", 50, "--quiet")


@pytest.fixture
def values(cli, tables):
    """The table of values, in values.parquet too."""
    assert cli(*VALUE).status == 0
    return pd.read_parquet("values.parquet")


@pytest.mark.parametrize(
    "flags", [("--fraction", 0.3), ("--threshold", -0.5), ("--keep", 100), ("--fraction", 0.25, "--per-class")]
)
def test_prune_writes_the_ids_that_are_kept(cli, values, flags):
    ran = cli("prune", "values.parquet", *flags, "--json")
    assert ran.status == 0
    options = {"keep": "n"}.get(flags[0][2:], flags[0][2:])
    labels = values["label"].to_numpy() if "--per-class" in flags else None
    mask = prune_mask(values["value"].to_numpy(), **{options: flags[1]}, labels=labels)
    assert 0 < mask.sum() < len(mask)
    assert pd.read_csv("kept.csv", dtype=str)["id"].tolist() == values["id"][~mask].tolist()
    assert (ran.json["kept"], ran.json["pruned"]) == ((~mask).sum(), mask.sum())
    pruned = values.assign(mask=mask).groupby("label")["mask"].sum()
    assert {name: line["pruned"] for name, line in ran.json["per_class"].items()} == {
        str(name): count for name, count in pruned.items()
    }
    assert "kept.csv exists" in cli("prune", "values.parquet", *flags).err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give exactly one of --fraction, --threshold and --keep, found none"),
        (("--fraction", 0.1, "--keep", 3), "found --fraction, --keep"),
        (("--fraction", 1), "fraction must lie in [0, 1), got 1"),
        (("--keep", 241), "n must lie in 1..240, got 241"),
        (("--threshold", 0, "--per-class"), "a threshold is the same for all classes"),
        (("--keep", 3, "-o", "kept.json"), "expected a name that ends in one of"),
    ],
)
def test_prune_refuses_unclear_requests(refused, values, flags, message):
    assert message in refused("prune", "values.parquet", *flags)
    assert not Path("kept.csv").exists()


def test_prune_refuses_tables_without_values_or_classes(refused, tables):
    assert "no column 'value'" in refused("prune", "audit.csv", "--keep", 3)
    assert "nowhere.csv: no such file" in refused("prune", "nowhere.csv", "--keep", 3)
    Path("bare.csv").write_text("id,value\na,1\nb,2\n")
    assert 'no column "label", which --per-class needs' in refused("prune", "bare.csv", "--keep", 1, "--per-class")


@pytest.mark.parametrize("words", [("True", "False"), ("yes", "no"), ("1", "0"), ("1.0", "0.0"), ("BAD", "good")])
def test_evaluate_joins_an_audit_of_some_rows_by_id(cli, values, sets, words):
    rows = np.random.default_rng(0).permutation(240)[:60]
    flags = [words[0] if sets.wrong[row] else words[1] for row in rows]
    audit = pd.DataFrame({"id": values["id"][rows], "wrong": flags})
    audit.loc[len(values)] = ["unheard of", words[0]]
    audit.to_csv("some.csv", index=False)
    ran = cli("evaluate", "values.parquet", "--truth", "wrong", "--audit", "some.csv", "--json", "--out", "pictures")
    assert ran.status == 0
    expected = detection_auc(values["value"].to_numpy()[rows], sets.wrong[rows])
    assert ran.json["auc"] == pytest.approx(expected)
    assert (ran.json["n"], ran.json["n_bad"]) == (60, sets.wrong[rows].sum())
    assert_drawn("pictures/detection.png")


def test_evaluate_takes_the_truth_from_the_table_itself(cli, values, sets):
    values.assign(wrong=sets.wrong).to_parquet("known.parquet")
    ran = cli("evaluate", "known.parquet", "--truth", "wrong")
    assert ran.status == 0
    assert f"{sets.wrong.sum()} bad rows among 240 known ones" in ran.out
    assert f"AUC {detection_auc(values['value'].to_numpy(), sets.wrong):.4f}" in ran.out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,wrong\n0001,yes\n0002,maybe\n", "column \"wrong\", row 1: expected true or false, found 'maybe'"),
        ("id,wrong\n0001,yes\n0002,\n", "row 1: expected true or false, found nan"),
        ("id,wrong\n0001,yes\n0002,yes\n", 'column "wrong" marks all of the known rows as bad'),
        ("id,wrong\n0001,no\n", "marks none of the known rows as bad"),
        ("id,wrong\n0001,no\n0001,yes\n", "names the id 0001 twice"),
        ("id,wrong\n1,no\n2,yes\n", "no id in common"),
        ("id,bad\n0001,no\n", 'audit.csv has no column "wrong"; it has id, bad'),
        ("row,wrong\n0001,no\n", 'audit.csv has no column "id" to join on'),
        ("", "No columns to parse"),
    ],
)
def test_evaluate_refuses_an_unclear_audit(refused, values, content, message):
    Path("audit.csv").write_text(content)
    assert message in refused("evaluate", "values.parquet", "--truth", "wrong", "--audit", "audit.csv")


def test_evaluate_refuses_missing_truth(refused, values):
    assert 'the table of values has no column "wrong"' in refused("evaluate", "values.parquet", "--truth", "wrong")
    assert "nowhere.csv" in refused("evaluate", "values.parquet", "--truth", "wrong", "--audit", "nowhere.csv")


def test_compare_runs_each_method_on_the_same_rows(cli, tables, sets):
    known = pd.read_csv("audit.csv", dtype={"id": str}).sample(frac=0.5, random_state=0)
    known.to_csv("some.csv", index=False)
    flags = ("--batch-size", 50, "--truth", "wrong", "--audit", "some.csv", "-o", "all.csv", "--quiet")
    compare = ("compare", "train.csv", "val.csv", *READING, "--methods", "sava, lava,knn-shapley", *flags)
    ran = cli(*compare, "--json")
    assert ran.status == 0
    lines = {line["method"]: line for line in ran.json["methods"]}
    written = pd.read_csv("all.csv")
    models = {"sava": SAVA(50, random_state=0), "lava": LAVA(random_state=0), "knn-shapley": KNNShapley(random_state=0)}
    assert list(lines) == list(models) == list(written)[1:]
    for name, model in models.items():
        expected = model.fit(*sets.data).values_
        assert written[name].to_numpy() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert lines[name]["auc"] == pytest.approx(detection_auc(expected[known.index], sets.wrong[known.index]))
    assert lines["sava"]["rank_correlation"] == pytest.approx(1)
    assert 0.5 < lines["lava"]["rank_correlation"] < 1
    table = cli(*compare, "--force")
    assert f"{lines['lava']['auc']:.4f}" in next(line for line in table.out.splitlines() if " lava " in line)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--methods", "sava,shap"), "--methods: expected some of sava, lava, batchwise-lava"),
        (("--methods", ","), "--methods: expected some of"),
        (("--truth", "wrong"), "--truth and --audit belong together"),
        (("--audit", "audit.csv"), "--truth and --audit belong together"),
        (("--out", "."), "is a folder, expected a file such as values.parquet"),
        (("--out", "train.csv"), "--out train.csv exists"),
    ],
)
def test_compare_refuses_unclear_requests(refused, tables, flags, message):
    assert message in refused("compare", "train.csv", "val.csv", *READING, *flags)


def test_distance_of_a_set_to_itself_is_zero_once_debiased(cli, tables, sets):
    flags = (*READING, "--batch-size", 50, "--quiet")
    same = cli("distance", "train.csv", "train.csv", *flags, "--debias", "--json")
    assert same.status == 0
    assert same.json["distance"] == pytest.approx(0, abs=1e-9)
    biased = cli("distance", "train.csv", "val.csv", *flags, "--json").json
    model = SAVA(50, random_state=0)
    assert biased == {"distance": dataset_distance(*sets.data, model=model), "debiased": False, "rows": [240, 90]}
    ran = cli("distance", "train.csv", "val.csv", *flags, "--debias")
    expected = dataset_distance(*sets.data, debias=True, model=model)
    assert ran.out == f"debiased distance between train.csv and val.csv: {expected:.6g}\n"


def assert_drawn(path: str) -> None:
    """The picture is there and shows something."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 100
    assert len(np.unique(pixels)) > 10
    assert 0.005 < (pixels < 200).mean() < 0.95


def test_plot_draws_every_picture_that_the_files_allow(cli, tables):
    assert cli(*VALUE, "--store", "s").status == 0
    worst = ("--train", "train.csv", "--val", "val.csv", "--image-shape", "1x5", *READING)
    truth = ("--truth", "wrong", "--audit", "audit.csv")
    ran = cli("plot", "values.parquet", "--store", "s", *worst, *truth, "--json")
    assert ran.status == 0
    names = ["detection.png", "histogram.png", "batches.png", "worst.png"]
    assert ran.json["pictures"] == [f"plots/{name}" for name in names]
    for name in names:
        assert_drawn(f"plots/{name}")
    assert cli("plot", "values.parquet", "-o", "by-class").status == 0
    assert_drawn("by-class/histogram.png")
    assert Path("by-class/histogram.png").read_bytes() != Path("plots/histogram.png").read_bytes()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--train", "train.csv"), "--train and --val belong together"),
        (("--train", "train.csv", "--val", "val.csv"), "the rows are no images: give --image-shape"),
        (("--train", "train.csv", "--val", "val.csv", "--image-shape", "wide"), "expected HxW or HxWxC, found 'wide'"),
        (("--train", "train.csv", "--val", "val.csv", "--image-shape", "2x5"), "image_shape is (2, 5)"),
        (
            ("--train", "val.csv", "--val", "val.csv", "--image-shape", "1x5"),
            "val.csv lacks ids of values.parquet",
        ),
        (("--train", "train.csv", "--val", "train.csv", "--image-shape", "1x5"), "train.csv lacks validation ids"),
        (("--store", "nowhere"), "nowhere is not a store"),
        (("--truth", "wrong"), 'no column "wrong"'),
        (("--out", "train.csv"), "--out train.csv is a file, expected a folder"),
    ],
)
def test_plot_says_what_is_missing(refused, values, flags, message):
    assert message in refused("plot", "values.parquet", *flags, *READING)
    assert not Path("plots").exists()


def test_plot_needs_something_to_draw(cli, refused, values):
    values[["id", "value"]].to_csv("bare.csv", index=False)
    assert "nothing to draw" in refused("plot", "bare.csv")
    worst = ("--train", "train.csv", "--val", "val.csv", "--image-shape", "1x5", *READING)
    assert 'bare.csv has no column "nearest_id"' in refused("plot", "bare.csv", *worst)
    assert cli("plot", "values.parquet").status == 0
    truth = ("--truth", "wrong", "--audit", "audit.csv")
    assert "plots/histogram.png exists: --force replaces it" in refused("plot", "values.parquet", *truth)
    assert not Path("plots/detection.png").exists()
    assert cli("plot", "values.parquet", *truth, "--force").status == 0


def test_the_worst_rows_are_those_of_the_table_in_any_order(cli, values):
    worst = ("--train", "train.csv", "--val", "val.csv", "--image-shape", "1x5", *READING)
    assert cli("plot", "values.parquet", *worst, "-o", "a").status == 0
    values.sample(frac=1, random_state=0).to_parquet("shuffled.parquet", index=False)
    assert cli("plot", "shuffled.parquet", *worst, "-o", "b").status == 0
    assert Path("a/worst.png").read_bytes() == Path("b/worst.png").read_bytes()
