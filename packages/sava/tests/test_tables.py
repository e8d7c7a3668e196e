from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from icl25_sava.tables import COLUMNS, read_values, write_kept, write_values


def table(n: int = 6) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    values = rng.normal(size=n) / 3
    return pd.DataFrame(
        {
            "id": [f"{i:03d}" for i in range(n)],
            "label": np.arange(n) % 3,
            "value": values,
            "score": -values,
            "rank": np.argsort(np.argsort(values)),
            "batch": np.arange(n) // 4,
            "nearest_id": rng.integers(9, size=n),
            "nearest_cost": rng.uniform(size=n).astype(np.float32),
        }
    )


@pytest.mark.parametrize("name", ["values.csv", "values.parquet"])
def test_a_table_comes_back_to_the_last_bit_and_ids_keep_their_zeros(tmp_path, name):
    written = table()
    write_values(tmp_path / name, written)
    back = read_values(tmp_path / name)
    assert tuple(back.columns) == COLUMNS
    assert back["id"].tolist() == ["000", "001", "002", "003", "004", "005"]
    assert np.array_equal(back["value"], written["value"])
    assert back["label"].dtype == np.int64
    assert np.array_equal(back["label"], written["label"])
    assert np.array_equal(back["nearest_id"], written["nearest_id"])
    np.testing.assert_array_equal(back["nearest_cost"].astype(np.float32), written["nearest_cost"])


def test_labels_that_look_like_nothing_stay_text(tmp_path):
    written = table(3).assign(label=["NA", "None", "null"])
    write_values(tmp_path / "v.csv", written)
    assert read_values(tmp_path / "v.csv")["label"].tolist() == ["NA", "None", "null"]


@pytest.mark.parametrize("name", ["values.csv", "values.parquet"])
def test_columns_of_the_nearest_row_may_be_absent(tmp_path, name):
    write_values(tmp_path / name, table().drop(columns=["nearest_id", "nearest_cost"]))
    assert tuple(read_values(tmp_path / name).columns) == COLUMNS[:6]


def test_nothing_is_overwritten_unless_forced_and_nothing_is_left_behind(tmp_path):
    path = tmp_path / "values.csv"
    write_values(path, table(3))
    with pytest.raises(FileExistsError):
        write_values(path, table(4))
    assert len(read_values(path)) == 3
    write_values(path, table(4), force=True)
    assert len(read_values(path)) == 4
    assert [p.name for p in tmp_path.iterdir()] == ["values.csv"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "not a readable table"),
        ("a.csv", "id,value\n", "holds no rows"),
        ("a.csv", "id,valeu\n1,2\n", "no column 'value', did you mean 'valeu'"),
        ("a.csv", "id,value\n1,0.5\n2,big\n", "column \"value\", row 1: expected a number, found 'big'"),
        ("a.csv", "id,value\n1,0.5\n2,\n", "1 non-finite entries, first at row 1"),
        ("a.csv", "id,value\n1,0.5\n,1\n", "missing ids, first at row 1"),
        ("a.csv", "id,value\n1,0.5\n7,1\n7,2\n", "1 duplicate ids, first 7 at rows 1 and 2"),
        ("a.csv", "id,value\n1,0.5,3\n2,3,4,5\n", "not a readable table"),
        ("a.parquet", "PAR1 no", "not a readable table"),
        ("a.json", "{}", "unknown kind of file '.json', expected one of .parquet"),
    ],
)
def test_faulty_tables_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_values(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv: no such file"):
        read_values(tmp_path / "absent.csv")


def test_wrong_columns_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="lacks the columns batch"):
        write_values(tmp_path / "v.csv", table().drop(columns="batch"))
    with pytest.raises(ValueError, match="unknown columns extra"):
        write_values(tmp_path / "v.csv", table().assign(extra=1))
    with pytest.raises(ValueError, match="unknown kind of file"):
        write_values(tmp_path / "v.xlsx", table())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ids", [np.array([3, 1, 2]), np.array(["b/2.png", "a"]), np.array(["x", "yy"], dtype=object)])
def test_kept_ids_in_every_format(tmp_path, ids):
    for suffix in ("csv", "parquet", "npy", "txt"):
        write_kept(tmp_path / f"kept.{suffix}", ids)
    text = [str(i) for i in ids]
    assert (tmp_path / "kept.txt").read_text().split() == text
    assert pd.read_csv(tmp_path / "kept.csv", dtype=str)["id"].tolist() == text
    assert pd.read_parquet(tmp_path / "kept.parquet")["id"].tolist() == ids.tolist()
    assert np.load(tmp_path / "kept.npy", allow_pickle=False).tolist() == ids.tolist()
    with pytest.raises(FileExistsError):
        write_kept(tmp_path / "kept.txt", ids)
