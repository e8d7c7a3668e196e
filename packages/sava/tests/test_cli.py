from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from icl25_sava import LAVA, SAVA, BatchwiseLAVA, KNNShapley, NearestCost, RandomValues
from icl25_sava.tables import read_values

READING = ("--label", "kind", "--id-column", "key")
VALUE = ("value", "train.csv", "val.csv", *READING, "--batch-size", "50")


@pytest.fixture
def model(sets):
    return SAVA(batch_size=50, random_state=0).fit(*sets.data)


def test_the_table_holds_what_the_estimator_found(cli, tables, model):
    ran = cli(*VALUE, "--quiet")
    assert ran.status == 0
    assert ran.err == ""
    assert "values of all rows in values.parquet" in ran.out
    table = pd.read_parquet("values.parquet")
    assert list(table) == ["id", "label", "value", "score", "rank", "batch", "nearest_id", "nearest_cost"]
    train, val = tables
    assert table["id"].tolist() == train["key"].tolist()
    assert table["label"].tolist() == model.labels_.tolist()
    assert np.array_equal(table["value"], model.values_)
    assert np.array_equal(table["score"], -model.values_)
    assert np.array_equal(table["batch"], model.batch_index_)
    assert table["nearest_id"].tolist() == val["key"].to_numpy()[model.nearest_].tolist()
    assert np.array_equal(table["nearest_cost"], model.nearest_cost_)
    assert table.sort_values("rank").index.tolist() == model.ranking_.tolist()
    assert sorted(table["rank"]) == list(range(1, len(table) + 1))
    shown = [line for line in ran.out.splitlines() if table["id"].iloc[model.ranking_[0]] in line]
    assert val["key"].iloc[model.nearest_[model.ranking_[0]]] in shown[0]


def test_json_is_one_document_and_nothing_else(cli, tables, model):
    ran = cli(*VALUE, "--json", "--verbose", "-o", "values.csv")
    assert ran.status == 0
    assert ran.json["rows"] == 240
    assert ran.json["validation_rows"] == 90
    assert ran.json["batches"] == [5, 2]
    assert ran.json["distance"] == model.distance_
    assert [row["id"] for row in ran.json["worst"]] == tables[0]["key"].iloc[model.ranking_[:10]].tolist()
    assert np.array_equal(read_values("values.csv")["value"], model.values_)


def write_parquet(train: pd.DataFrame, path: Path) -> tuple[str, ...]:
    train.to_parquet(path.with_suffix(".parquet"), index=False)
    return (*READING, "--features", "f*")


def write_embedding(train: pd.DataFrame, path: Path) -> tuple[str, ...]:
    rows = train.filter(like="f").to_numpy()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    pq.write_table(pa.table({"emb": lists, "kind": train["kind"], "key": train["key"]}), path.with_suffix(".parquet"))
    return (*READING, "--embedding", "emb")


def write_npz(train: pd.DataFrame, path: Path) -> tuple[str, ...]:
    ids = train["key"].to_numpy(dtype=np.str_)
    np.savez(path.with_suffix(".npz"), X=train.filter(like="f"), y=train["kind"], ids=ids)
    return ()


def write_npy(train: pd.DataFrame, path: Path) -> tuple[str, ...]:
    np.save(path.with_suffix(".npy"), train.filter(like="f"))
    np.save(path.with_name(f"{path.name}_y.npy"), train["kind"])
    return ()


def write_tsv(train: pd.DataFrame, path: Path) -> tuple[str, ...]:
    train.to_csv(path.with_suffix(".tsv"), index=False, sep="\t")
    return READING


@pytest.mark.parametrize(
    ("write", "suffix"),
    [
        (write_parquet, "parquet"),
        (write_embedding, "parquet"),
        (write_npz, "npz"),
        (write_npy, "npy"),
        (write_tsv, "tsv"),
    ],
)
def test_every_kind_of_file_gives_the_same_values(cli, tables, model, tmp_path, write, suffix):
    for name, table in zip(("a", "b"), tables, strict=True):
        flags = write(table, tmp_path / name)
    ran = cli("value", f"a.{suffix}", f"b.{suffix}", *flags, "--batch-size", 50)
    assert ran.status == 0
    table = pd.read_parquet("values.parquet")
    assert np.array_equal(table["value"], model.values_)
    ids = range(240) if suffix == "npy" else tables[0]["key"]
    assert table["id"].tolist() == list(ids)


def test_image_folders_are_valued_by_pixels_and_their_paths_are_the_ids(cli, sets, tmp_path):
    rng = np.random.default_rng(0)
    parts = {}
    for part, n in (("train", 12), ("val", 6)):
        pixels, labels = rng.integers(0, 256, (n, 4, 3), np.uint8), np.arange(n) % 2
        for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            path = tmp_path / part / "ab"[label] / f"{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
        order = np.argsort(labels, kind="stable")
        parts[part] = pixels[order].reshape(n, -1).astype(np.float32) / 255, labels[order]
    assert cli("value", "train", "val").status == 0
    table = pd.read_parquet("values.parquet")
    expected = SAVA(random_state=0).fit(*parts["train"], *parts["val"])
    assert np.array_equal(table["value"], expected.values_)
    assert table["id"].tolist() == [f"{c}/{number:02d}.png" for c in "ab" for number in range("ab".index(c), 12, 2)]
    assert table["label"].tolist() == ["a"] * 6 + ["b"] * 6


@pytest.mark.parametrize(
    ("method", "estimator"),
    [
        ("sava", SAVA(50, random_state=3)),
        ("lava", LAVA(random_state=3)),
        ("batchwise-lava", BatchwiseLAVA(50, random_state=3)),
        ("nearest", NearestCost(50, random_state=3)),
        ("knn-shapley", KNNShapley(random_state=3)),
        ("random", RandomValues(random_state=3)),
    ],
)
def test_every_method_values_every_row(cli, tables, sets, method, estimator):
    ran = cli(*VALUE, "--method", method, "--seed", 3, "--json", "--quiet")
    assert ran.status == 0
    assert ran.json["method"] == method
    table = pd.read_parquet("values.parquet")
    assert np.array_equal(table["value"], estimator.fit(*sets.data).values_)
    assert ("nearest_id" in table) == (method not in ("knn-shapley", "random"))


def test_parameters_reach_the_estimator(cli, tables, sets):
    flags = ("--eps", "auto", "--lambda-x", 2, "--lambda-y", 0.5, "--p", 1, "--label-distance", "means")
    flags += ("--batching", "shuffle", "--outer", "uniform", "--between", 0.3, "--dtype", "float64", "--jobs", 1)
    assert cli(*VALUE, *flags, "--embedder", "pca:3", "--seed", 9).status == 0
    expected = SAVA(
        batch_size=50,
        eps="auto",
        lambda_x=2,
        lambda_y=0.5,
        p=1,
        label_distance="means",
        batching="shuffle",
        outer="uniform",
        between=0.3,
        dtype="float64",
        embedder="pca:3",
        random_state=9,
    ).fit(*sets.data)
    assert np.array_equal(pd.read_parquet("values.parquet")["value"], expected.values_)


def test_labels_may_be_missing_where_they_carry_no_weight(cli, tables, sets):
    assert cli("value", "train.csv", "val.csv", "--features", "f*", "--lambda-y", 0).status == 0
    expected = SAVA(lambda_y=0, random_state=0).fit(sets.X, None, sets.X_val, None)
    assert np.array_equal(pd.read_parquet("values.parquet")["value"], expected.values_)


def test_files_that_exist_are_replaced_on_demand_only(cli, refused, tables):
    Path("values.parquet").write_text("precious")
    assert "values.parquet exists: --force replaces it" in refused(*VALUE)
    assert Path("values.parquet").read_text() == "precious"
    assert cli(*VALUE, "--force").status == 0
    assert len(pd.read_parquet("values.parquet")) == 240
    assert cli(*VALUE, "-o", "new/folder/values.parquet").status == 0
    assert Path("new/folder/values.parquet").read_bytes() == Path("values.parquet").read_bytes()


def test_the_sample_files_are_found_out_by_the_other_verbs(cli):
    written = cli("sample")
    given = cli("value", "sample/train.csv", "sample/val.csv", "--label", "digit", "--id-column", "id")
    assert given.status == 0
    assert "--label digit --id-column id" in written.out
    summary = cli("evaluate", "values.parquet", "--truth", "wrong", "--audit", "sample/audit.csv", "--json").json
    assert (summary["n"], summary["n_bad"]) == (1000, 300)
    assert summary["auc"] > 0.85


def run_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "icl25_sava", *arguments, "--device", "cpu"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_process_of_its_own_gives_the_same_bytes(cli, tables, tmp_path):
    flags = (*VALUE, "--outer", "uniform")  # without a solver whose library is slow to import
    ran = run_process(tmp_path, *flags, "--json", "-o", "first.parquet")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["rows"] == 240
    assert cli(*flags, "-o", "second.parquet").status == 0
    assert Path("first.parquet").read_bytes() == Path("second.parquet").read_bytes()


def test_a_process_of_its_own_says_what_is_wrong_in_one_line(tables, tmp_path):
    ran = run_process(tmp_path, "value", "train.csv", "nowhere.csv", "--label", "kind")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == "icl25-sava value: error: nowhere.csv: no such file or folder\n"


# Each batch takes long enough for the signal to arrive in the middle of the run.
INTERRUPTED = """
import signal, sys, time
from icl25_sava import cli, store
signal.signal(signal.SIGINT, signal.default_int_handler)
put = store.DiskLedger.put
def slow(*arguments):
    put(*arguments)
    time.sleep(0.1)
store.DiskLedger.put = slow
sys.exit(cli.main(sys.argv[1:]))
"""


def test_an_interrupted_run_says_so_and_goes_on_to_the_same_file(cli, tables, tmp_path):
    flags = ("value", "train.csv", "val.csv", *READING, "--batch-size", "20")
    assert cli(*flags, "-o", "whole.parquet").status == 0
    command = [sys.executable, "-c", INTERRUPTED, *flags, "--store", "s", "--quiet", "--device", "cpu"]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(Path("s").glob("done/0*")):
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert out == ""
    assert err == "icl25-sava value: interrupted\n"
    assert not Path("values.parquet").exists()
    assert not cli("info", "s", "--json").json["complete"]
    assert cli(*flags, "--store", "s", "--resume").status == 0
    assert Path("values.parquet").read_bytes() == Path("whole.parquet").read_bytes()


def test_numbers_as_labels_meet_numbers_and_words(cli, tables):
    train, _ = tables
    train["kind"] = train["kind"].astype(str)
    train.loc[:9, "kind"] = "unknown"
    train.to_csv("mixed.csv", index=False)
    ran = cli("value", "mixed.csv", "val.csv", "--label", "kind", "--id-column", "key", "-o", "mixed.parquet")
    assert ran.status == 0
    assert set(pd.read_parquet("mixed.parquet")["label"]) == {"0", "1", "2", "unknown"}
    assert "unknown (10 rows)" in ran.err


def test_an_embedder_without_its_package_is_named(refused, tables):
    from importlib.util import find_spec

    missing = next(name for name in ("timm", "torch") if find_spec(name) is None)
    message = refused("value", "train.csv", "val.csv", *READING, "--embedder", f"{missing}:x:y.safetensors")
    assert message == f"the embedder needs {missing}: pip install 'icl25-sava[{missing}]'"
