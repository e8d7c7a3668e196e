from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FLAGS = ("--label", "kind", "--id-column", "key", "--batch-size", 50)


@pytest.fixture
def value_refused(refused, tables):
    """Value a changed training table, which must be refused."""

    def run(change, *flags) -> str:
        change(tables[0].copy()).to_csv("changed.csv", index=False)
        message = refused("value", "changed.csv", "val.csv", *FLAGS, *flags)
        assert not Path("values.parquet").exists()
        return message

    return run


def put(column: str, entry: object):
    def change(table: pd.DataFrame) -> pd.DataFrame:
        table[column] = table[column].astype(object)
        table.loc[7, column] = entry
        return table

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("f2", None), "1 values that are NaN or infinite"),
        (put("f2", None), 'at row 7, column "f2"'),
        (put("f2", "inf"), 'infinite at row 7, column "f2"'),
        (put("f2", "red"), "changed.csv has 4 features"),
        (put("kind", None), 'changed.csv: column "kind" has 1 missing labels, first at row 7'),
        (put("kind", 0.25), "y holds continuous"),
        (put("key", "0003"), "1 duplicate ids, first '0003' at rows 3 and 7"),
        (lambda table: table.head(1), "X must have at least 2 rows, got 1"),
        (lambda table: table.head(0), "changed.csv: the table holds no rows"),
        (lambda table: table.drop(columns="f4"), "changed.csv has 4 features, val.csv has 5"),
        (lambda table: table.rename(columns={"f3": "g"}), 'feature 3 is "g" in changed.csv but "f3" in val.csv'),
        (lambda table: table.rename(columns={"kind": "kimd"}), "no column 'kind', did you mean 'kimd'?"),
        (lambda table: table.rename(columns={"key": "id"}), "no column 'key'; it has"),
        (lambda table: table.assign(kind="a"), "use one kind on both sides"),
    ],
)
def test_faulty_tables_are_refused_in_one_line(value_refused, change, message):
    assert message in value_refused(change)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--batch-size", 1), "batch_size must be at least 2, got 1"),
        (("--eps", "small"), "--eps must be a number or \"auto\", found 'small'"),
        (("--eps", 0), "eps must be positive"),
        (("--lambda-x", -1), "lambda_x must be finite and not negative"),
        (("--label", "colour"), "no column 'colour'"),
        (("--features", "g*"), "no column 'g*'"),
        (("--embedding", "f0"), "expected lists of numbers"),
        (("--features", "f*", "--embedding", "f0"), "exclude each other"),
        (("--embedder", "word2vec"), "unknown embedder 'word2vec'"),
        (("--embedder", "pca:6"), "asks for 6 components"),
        (("--method", "shapley"), "shapley"),
        (("--device", "gpu"), "device must be auto, cpu, cuda, cuda:N or mps, found 'gpu'"),
        (("--resume",), "--resume goes on with the run of a store: name it with --store"),
        (("--store", "s", "--method", "lava"), "--store is for --method sava, found lava"),
        (("--store", "val.csv"), "the store val.csv is a file"),
        (("--store", "full"), "the folder full is not empty and holds no store"),
        (("--out", "full"), "--out full is a folder, expected a file such as full/values.parquet"),
        (("--out", "values.txt"), "expected a name that ends in one of .parquet, .pq, .csv"),
        (("--bach-size", 3), "--batch-size"),
    ],
)
def test_faulty_flags_are_refused_in_one_line(value_refused, flags, message):
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    assert message in value_refused(lambda table: table, *flags)
    assert Path("full/notes.txt").read_text() == "mine"


def test_labels_must_be_named_unless_they_carry_no_weight(refused, tables):
    message = refused("value", "train.csv", "val.csv", "--features", "f*")
    assert message == "train.csv: no labels: name their column with --label, or set --lambda-y 0"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"", "bad.csv: the file is empty"),
        ("bad.csv", b"f0,kind,key\n1,a\n", "bad.csv"),
        ("bad.parquet", b"PAR1 and nothing more", "bad.parquet: cannot be read, it is corrupt"),
        ("bad.npz", b"PK\x03\x04", "bad.npz: not a readable NPZ file"),
        ("bad.xlsx", b"PK\x03\x04", "bad.xlsx: unknown kind of file '.xlsx'"),
        ("bad/notes.txt", b"text", "bad: not a known kind of folder"),
        ("bad/cat/1.png", b"no picture", "1.png: not a readable image"),
    ],
)
def test_files_that_cannot_be_read_are_named(refused, tables, name, content, message):
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content)
    flags = () if "/" in name else ("--label", "kind", "--id-column", "key")
    assert message in refused("value", name.partition("/")[0], "val.csv", *flags)


def test_pickled_arrays_are_refused(refused, sets):
    np.savez("train.npz", X=sets.X, y=np.array([f"class {k}" for k in sets.y], object))
    np.savez("val.npz", X=sets.X_val, y=sets.y_val)
    assert "train.npz: array 'y'" in refused("value", "train.npz", "val.npz")
    np.save("train.npy", sets.X.astype(object))
    np.save("train_y.npy", sets.y)
    assert "train.npy" in refused("value", "train.npy", "val.npz")


def test_one_hot_labels_are_told_to_become_integers(refused, sets):
    np.savez("train.npz", X=sets.X, y=np.eye(3)[sets.y])
    np.savez("val.npz", X=sets.X_val, y=sets.y_val)
    assert "one-hot labels become integers by argmax(axis=1)" in refused("value", "train.npz", "val.npz")


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (lambda train, val: (train, val.assign(kind=1)), "y_val has the single class '1'"),
        (lambda train, val: (train, val[val["kind"] > 0]), "1 training classes do not occur in y_val: 0 ("),
        (lambda train, val: (pd.concat([train, val]), val), "90 training rows are equal to validation rows"),
        (lambda train, val: (shrunk(train), shrunk(val)), 'rescale the features or use eps="auto"'),
    ],
)
def test_legal_but_odd_data_are_valued_with_a_warning(cli, tables, change, warning):
    for name, table in zip(("train", "val"), change(*tables), strict=True):
        table.to_csv(f"{name}.csv", index=False)
    ran = cli("value", "train.csv", "val.csv", *FLAGS, "--quiet")
    assert ran.status == 0
    assert ran.messages == []
    assert warning in ran.err
    assert np.isfinite(pd.read_parquet("values.parquet")["value"]).all()


def shrunk(table: pd.DataFrame) -> pd.DataFrame:
    names = [name for name in table if name.startswith("f")]
    return table.assign(**{name: table[name] * 1e-3 for name in names})


@pytest.mark.parametrize(
    ("change", "flags"),
    [
        (lambda train, val: (train[val["kind"].max() > train["kind"]], val), ()),  # a class that training lacks
        (lambda train, val: (train.head(201), val), ()),  # a last batch of one row
        (lambda train, val: (train, val.head(1)), ()),
        (lambda train, val: (train, val), ("--batch-size", 10_000)),
        (lambda train, val: (train.assign(f0=1.0), val.assign(f0=1.0)), ()),
        (lambda train, val: (train.assign(f0=train["f0"] + 1e6), val.assign(f0=val["f0"] + 1e6)), ()),
        (lambda train, val: (train.assign(kind=list("ab") * 120), val.assign(kind=list("ab") * 45)), ()),
        (lambda train, val: (train.assign(kind=train["kind"] > 0), val.assign(kind=val["kind"] > 0)), ()),
    ],
)
def test_legal_data_are_valued(cli, tables, change, flags):
    train, val = change(*tables)
    train.to_csv("train.csv", index=False)
    val.to_csv("val.csv", index=False)
    assert cli("value", "train.csv", "val.csv", *FLAGS, *flags, "--quiet").status == 0
    table = pd.read_parquet("values.parquet")
    assert table["id"].tolist() == train["key"].tolist()
    assert table["label"].astype(str).tolist() == train["kind"].astype(str).tolist()
    assert np.isfinite(table["value"]).all()


def test_a_traceback_is_shown_on_demand_only(cli, tables):
    ran = cli("value", "train.csv", "nowhere.csv", *FLAGS, "--debug")
    assert ran.status == 2
    assert "Traceback (most recent call last)" in ran.err
