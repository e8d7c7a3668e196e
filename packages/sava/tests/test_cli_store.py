from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from icl25_sava import SAVA

READING = ("--label", "kind", "--id-column", "key")
VALUE = ("value", "train.csv", "val.csv", *READING, "--batch-size", 50, "--quiet")


def undo(store: str, *numbers: int) -> None:
    """Take back batches, as if the run had broken off before them."""
    for number in numbers:
        Path(store, "done", f"{number:06d}").unlink()


@pytest.fixture
def halves(tables):
    """The training rows in two files: old.csv, new.csv."""
    tables[0].head(150).to_csv("old.csv", index=False)
    tables[0].tail(90).to_csv("new.csv", index=False)
    return tables[0]["key"].tolist()


@pytest.fixture
def stored(cli, halves):
    """A store `s` of the old rows."""
    assert cli("value", "old.csv", *VALUE[2:], "--store", "s", "-o", "old.parquet").status == 0
    return halves


@pytest.fixture
def grown(sets):
    """The estimator that saw the old rows, then the new ones."""
    model = SAVA(50, random_state=0).fit(sets.X[:150], sets.y[:150], sets.X_val, sets.y_val)
    return model.partial_fit(sets.X[150:], sets.y[150:])


def test_a_run_that_broke_off_goes_on_to_the_same_file(cli, tables):
    assert cli(*VALUE, "-o", "plain.parquet").status == 0
    assert cli(*VALUE, "--store", "s", "-o", "stored.parquet").status == 0
    assert cli("info", "s", "--json").json | {"config": None, "package": None} == {
        "store": "s",
        "complete": True,
        "rows": 240,
        "calls": 1,
        "batches": 5,
        "batches_done": 5,
        "validation_rows": 90,
        "features": 5,
        "classes": [0, 1, 2],
        "seed": 0,
        "config": None,
        "package": None,
    }
    undo("s", 1, 3)
    shutil.rmtree("s/nearest")
    for number in (0, 2, 4):
        undo("s", number)
    assert "0 of 5 batches done; go on with --resume" in cli("info", "s").out
    assert cli(*VALUE, "--store", "s", "--resume", "-o", "resumed.parquet").status == 0
    plain = Path("plain.parquet").read_bytes()
    assert Path("stored.parquet").read_bytes() == plain
    assert Path("resumed.parquet").read_bytes() == plain


def test_a_store_is_replaced_on_demand_only_and_never_by_a_run_that_fails(cli, refused, stored):
    again = ("value", "old.csv", *VALUE[2:], "--store", "s")
    assert "the store s exists: --resume goes on with it, --force begins anew" in refused(*again)
    assert "was made with other settings: batch_size 50 -> 60" in refused(*again, "--resume", "--batch-size", 60)
    assert "was made with other training data" in refused("value", "new.csv", *again[2:], "--resume")
    assert "no column 'colour'" in refused(*again, "--force", "--label", "colour")
    assert cli("info", "s", "--json").json["complete"]
    assert cli("value", "new.csv", *again[2:], "--force", "--seed", 5).status == 0
    info = cli("info", "s", "--json").json
    assert (info["rows"], info["seed"], info["complete"]) == (90, 5, True)
    assert pd.read_parquet("values.parquet")["id"].tolist() == stored[150:]


def test_added_rows_stand_beside_the_old_ones(cli, refused, stored, grown):
    ran = cli("add", "s", "new.csv", "--json", "--quiet")
    assert ran.status == 0
    assert ran.json["rows"] == 240
    table = pd.read_parquet("values.parquet")
    assert table["id"].tolist() == stored
    assert np.array_equal(table["value"], grown.values_)
    assert cli("info", "s", "--json").json["calls"] == 2
    assert "90 ids of new.csv are in the store already, first 0150" in refused("add", "s", "new.csv", "--force")
    assert "has been added to" in refused("value", "old.csv", *VALUE[2:], "--store", "s", "--resume", "--force")
    assert np.array_equal(pd.read_parquet("values.parquet")["value"], grown.values_)


def test_row_numbers_go_on_where_they_ended(cli, halves, grown):
    without_ids = ("--label", "kind", "--features", "f*", "--batch-size", 50)
    assert cli("value", "old.csv", "val.csv", *without_ids, "--store", "s", "-o", "old.parquet").status == 0
    assert cli("add", "s", "new.csv").status == 0
    table = pd.read_parquet("values.parquet")
    assert table["id"].tolist() == list(range(240))
    assert np.array_equal(table["value"], grown.values_)


def test_new_files_may_name_their_columns_otherwise(cli, stored, grown):
    pd.read_csv("new.csv", dtype={"key": str}).rename(columns={"kind": "class", "key": "name"}).to_csv("other.csv")
    assert cli("add", "s", "other.csv", "--label", "class", "--id-column", "name", "--features", "f*").status == 0
    table = pd.read_parquet("values.parquet")
    assert table["id"].tolist() == stored
    assert np.array_equal(table["value"], grown.values_)
    pd.read_csv("new.csv").assign(key=[f"late {k}" for k in range(90)]).to_csv("late.csv", index=False)
    assert cli("add", "s", "late.csv", "--force").status == 0


def test_an_addition_that_broke_off_goes_on(cli, refused, stored, grown):
    assert cli("add", "s", "new.csv", "-o", "whole.parquet").status == 0
    undo("s", 4)
    assert "an `add` to s broke off with 1 batches to go: repeat it with --resume" in refused("add", "s", "new.csv")
    assert "waits for the rest of other rows" in refused("add", "s", "old.csv", "--id-column", "f0", "--resume")
    assert cli("add", "s", "new.csv", "--resume", "-o", "resumed.parquet").status == 0
    assert Path("resumed.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert np.array_equal(pd.read_parquet("resumed.parquet")["value"], grown.values_)
    assert pd.read_parquet("resumed.parquet")["id"].tolist() == stored
    assert "nothing to resume in s: it is complete" in refused("add", "s", "new.csv", "--resume")


def test_an_addition_that_fails_leaves_no_trace(cli, refused, stored, grown):
    new = pd.read_csv("new.csv", dtype={"key": str})
    new.assign(f0=new["f0"].where(new.index != 4)).to_csv("holes.csv", index=False)
    assert "NaN at row 4" in refused("add", "s", "holes.csv")
    assert "no column 'colour'" in refused("add", "s", "new.csv", "--label", "colour")
    assert "X has 4 features, X_val has 5" in refused("add", "s", "new.csv", "--features", "f0,f1,f2,f3")
    assert cli("add", "s", "new.csv").status == 0
    table = pd.read_parquet("values.parquet")
    assert table["id"].tolist() == stored
    assert np.array_equal(table["value"], grown.values_)


def test_verbs_in_the_wrong_order_are_refused(refused, stored, sets):
    assert "s2 is not a store" in refused("add", "s2", "new.csv")
    assert "s2 is not a store" in refused("info", "s2")
    assert not Path("s2").exists()
    undo("s", 0)
    Path("s/ids.json").unlink()  # a first run that broke off has not kept its ids yet
    assert "finish it with `value --store ... --resume`" in refused("add", "s", "new.csv")
    assert "the store s is not complete" in refused("plot", "old.parquet", "--store", "s")
    SAVA(50, random_state=0, store="by-hand").fit(*sets.data)
    assert "was made from Python" in refused("add", "by-hand", "new.csv")


def test_a_complete_store_gives_its_values_back(cli, refused, tables):
    assert cli(*VALUE, "--store", "s", "-o", "values.parquet").status == 0
    assert cli("info", "s", "-o", "again.parquet").status == 0
    assert Path("again.parquet").read_bytes() == Path("values.parquet").read_bytes()
    undo("s", 2)
    assert "is not complete" in refused("info", "s", "-o", "third.parquet")
    assert not Path("third.parquet").exists()


def test_beginning_anew_leaves_nothing_of_the_old_store(cli, tables):
    assert cli(*VALUE, "--store", "s", "-o", "a.parquet").status == 0
    shorter = ("value", "val.csv", *VALUE[2:], "--store", "s", "-o", "b.parquet", "--force")
    assert cli(*shorter).status == 0
    assert cli("info", "s", "--json").json["rows"] == 90
