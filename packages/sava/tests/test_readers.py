from __future__ import annotations

import gc
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl25_sava.readers import read_dataset
from icl25_sava.readers.common import RowSpool, parse_text


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(50, 3)), columns=["f1", "f2", "g"])
    return frame.assign(
        n=np.arange(50), kind=[f"class {i % 3}" for i in range(50)], key=[f"{i:03d}" for i in range(50)]
    )


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False, row_group_size=7)
    else:
        pa.feather.write_feather(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


TABLES = ["t.csv", "t.tsv", "t.parquet", "t.feather", "t.arrow"]


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("chunk_rows", [3, 65536])
@pytest.mark.parametrize("memory_limit_mb", [512, 0])
def test_tables_of_every_format_read_the_same(tmp_path, frame, name, chunk_rows, memory_limit_mb):
    path = write(frame, tmp_path / name)
    data = read_dataset(path, label="kind", id_column="key", chunk_rows=chunk_rows, memory_limit_mb=memory_limit_mb)
    assert data.feature_names == ("f1", "f2", "g", "n")
    np.testing.assert_array_equal(data.X, frame[["f1", "f2", "g", "n"]].to_numpy(dtype=float))
    assert data.y is not None
    assert data.y.tolist() == frame["kind"].tolist()
    assert data.ids.tolist() == frame["key"].tolist()
    assert isinstance(data.X, np.memmap) == (memory_limit_mb == 0)
    assert data.source == str(path)
    assert len(data) == 50


@pytest.mark.parametrize("name", TABLES)
def test_features_by_name_and_glob_in_the_order_asked_for(tmp_path, frame, name):
    path = write(frame, tmp_path / name)
    data = read_dataset(path, features="g, f*", label="n")
    assert data.feature_names == ("g", "f1", "f2")
    np.testing.assert_array_equal(data.X, frame[["g", "f1", "f2"]])
    assert data.y is not None
    assert data.y.tolist() == list(range(50))
    assert data.ids.tolist() == list(range(50))
    assert read_dataset(path, features=["f2"]).feature_names == ("f2",)


def test_compressed_text_and_byte_order_marks(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfa,b\n1,2\n"))
    assert read_dataset(path).feature_names == ("a", "b")


def test_integers_may_turn_into_fractions_after_the_first_block(tmp_path):
    path = tmp_path / "t.csv"
    n = 600_000
    path.write_text("a,b,label\n" + "1,22222222222222,3\n" * n + "1.5,2,x\n")
    data = read_dataset(path, label="label")
    assert data.X[-1].tolist() == [1.5, 2]
    assert data.y is not None
    assert data.y[0] == "3"
    assert data.y[-1] == "x"


def test_missing_numbers_become_nan_and_wide_text_may_hold_line_breaks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b,text\n1,,"two\nlines"\nNA,4,x\n')
    np.testing.assert_array_equal(read_dataset(path).X, [[1, np.nan], [np.nan, 4]])
    table = pa.table({"i": pa.array([1, None, 3]), "b": pa.array([True, None, False])})
    pq.write_table(table, tmp_path / "t.parquet")
    np.testing.assert_array_equal(read_dataset(tmp_path / "t.parquet").X, [[1, 1], [np.nan, np.nan], [3, 0]])


def test_the_narrowest_exact_type_is_kept(tmp_path):
    for kinds, expected in (
        ({"a": pa.float32(), "b": pa.int16(), "c": pa.bool_()}, np.float32),
        ({"a": pa.float32(), "b": pa.int64()}, np.float64),
        ({"a": pa.float16()}, np.float32),
        ({"a": pa.decimal128(21, 2)}, np.float64),
    ):
        table = pa.table({name: pa.array([1, 0]).cast(kind) for name, kind in kinds.items()})
        pq.write_table(table, tmp_path / "t.parquet")
        X = read_dataset(tmp_path / "t.parquet").X
        assert X.dtype == expected
        assert X[0].tolist() == [1] * len(kinds)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 4), pa.large_list(pa.float64())])
def test_embeddings_in_one_column(tmp_path, kind):
    numbers = np.arange(40, dtype=np.float32).reshape(10, 4)
    table = pa.table({"emb": pa.array(list(numbers), type=kind), "y": np.arange(10) % 2, "age": np.ones(10)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=3)
    data = read_dataset(path, embedding="emb", label="y", chunk_rows=2)
    np.testing.assert_array_equal(data.X, numbers)
    assert data.feature_names == ("emb[0]", "emb[1]", "emb[2]", "emb[3]")
    np.testing.assert_array_equal(read_dataset(path, features="emb").X, numbers)
    with pytest.raises(ValueError, match="choose with features or embedding"):
        read_dataset(path, label="y")
    pq.write_table(table.drop_columns("age"), path)
    np.testing.assert_array_equal(read_dataset(path, label="y").X, numbers)


def test_nested_lists_are_flattened(tmp_path):
    images = np.arange(24.0).reshape(4, 2, 3)
    pq.write_table(pa.table({"image": images.tolist()}), tmp_path / "t.parquet")
    np.testing.assert_array_equal(read_dataset(tmp_path / "t.parquet").X, images.reshape(4, 6))


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1.0, 2], [3, 4], [5, 6], [7]], 'column "emb" has 1 numbers at row 3, 2 in the rows before'),
        ([[1.0, 2], [3, 4], [5], [7]], 'column "emb" has 1 numbers at row 2, 2 in the rows before'),
        ([[1.0, 2], [3, 4], [5, 6], None], 'column "emb" has no list at row 3'),
        ([[], []], "empty lists"),
        ([[[1.0], [2]], [[3], [4, 5]]], "has 2 numbers at row 1"),
    ],
)
def test_ragged_and_missing_embeddings_name_the_row(tmp_path, lists, message):
    kind = None if lists[0] else pa.list_(pa.float64())
    pq.write_table(pa.table({"emb": pa.array(lists, type=kind)}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=message):
        read_dataset(tmp_path / "t.parquet", embedding="emb", chunk_rows=2)


def test_spooled_rows_live_as_long_as_a_view_of_them(tmp_path, frame):
    path = write(frame, tmp_path / "t.csv")
    X = read_dataset(path, label="kind", id_column="key", memory_limit_mb=0).X
    assert isinstance(X, np.memmap)
    spool = Path(str(X.filename))
    view = np.asarray(X)[3:]
    assert spool.suffix == ".npy"
    del X
    gc.collect()
    assert spool.exists()
    np.testing.assert_array_equal(np.load(spool)[3:], view)
    del view
    gc.collect()
    assert not spool.parent.exists()


def test_a_failed_read_leaves_no_spool(tmp_path, monkeypatch, frame):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spools"))
    (tmp_path / "spools").mkdir()
    path = write(frame.assign(kind=[*frame["kind"][:-1], None]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="1 missing labels, first at row 49"):
        read_dataset(path, label="kind", memory_limit_mb=0, chunk_rows=5)
    gc.collect()
    assert not list((tmp_path / "spools").iterdir())


@given(st.lists(st.integers(0, 7), max_size=8), st.sampled_from([0, 1e-4, 1]))
def test_blocks_of_any_sizes_come_back_in_order(sizes, limit):
    rows = np.arange(3.0 * sum(sizes)).reshape(-1, 3)
    with RowSpool(limit) as spool:
        for block in np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []:
            spool.append(block)
        whole = spool.finish()
    if len(rows) == 0:
        assert whole is None
    else:
        np.testing.assert_array_equal(whole, rows)


@pytest.mark.parametrize(
    ("texts", "expected", "kind"),
    [
        (["1", "-2", "30"], [1, -2, 30], "i"),
        (["007", "1"], ["007", "1"], "U"),
        (["1.5", "2"], [1.5, 2.0], "f"),
        (["1.5", "07"], ["1.5", "07"], "U"),
        (["nan", "1"], ["nan", "1"], "U"),
        (["a", ""], ["a", ""], "U"),
        (["-", "1"], ["-", "1"], "U"),
        (["99999999999999999999", "1"], [1e20, 1.0], "U"),
        (["True", "False"], ["True", "False"], "U"),
    ],
)
def test_text_becomes_numbers_only_in_plain_spelling(texts, expected, kind):
    parsed = parse_text(np.array(texts))
    assert parsed.dtype.kind == kind
    assert parsed.tolist() == (texts if kind == "U" else expected)


def test_columns_that_programs_add_are_no_features(tmp_path, caplog):
    frame = pd.DataFrame({"a": [1.0, 2], "name": ["x", "y"]}, index=[5, 9])
    frame.to_csv(tmp_path / "t.csv")
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        caplog.clear()
        assert read_dataset(tmp_path / name).feature_names == ("a",)
        assert "not used as features" in caplog.text
        assert "name" in caplog.text


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "the file is empty"),
        ("a,b\n", {}, "holds no rows"),
        ("a,b\n1,2\n", {"label": "lable"}, "no column 'lable'; it has a, b"),
        ("age,b\n1,2\n", {"features": "aeg"}, "no column 'aeg', did you mean 'age'"),
        ("a,b\n1,2\n", {"features": "x*"}, r"no column 'x\*'"),
        ("a,b\n1,2\n", {"id_column": "id"}, "no column 'id'"),
        ("a,b\n1,2\n", {"label": "a", "features": "a,b"}, "is the label or the id"),
        ("a,b\n1,x\n2,y\n", {"features": "a,b"}, "column \"b\", row 0: expected a number, found 'x'"),
        ("a,b\n1,2\n2,\n3,red\n", {"features": "b"}, "column \"b\", row 2: expected a number, found 'red'"),
        ("a,b\n1,2\n2\n", {}, "Expected 2 columns, got 1"),
        ("a,b,a\n1,2,3\n", {}, "column name 'a' occurs more than once"),
        ("a,b\nx,y\n", {}, "no column of numbers"),
        ("a,b\n1,x\n2,\n3,\n", {"label": "b"}, 'column "b" has 2 missing labels, first at row 1'),
        ("a,b\n1,x\n2,\n", {"id_column": "b"}, "has 1 missing ids, first at row 1"),
        ("a,b\n1,x\n2,y\n3,x\n", {"id_column": "b"}, "1 duplicate ids, first 'x' at rows 0 and 2"),
        ("a,b\n1,2\n", {"embedding": "a"}, "expected lists of numbers"),
        ("a,b\n1,2\n", {"embedding": "a", "features": "b"}, "exclude each other"),
        ("a,b\n1,2\n", {"chunk_rows": 0}, "chunk_rows is 0"),
    ],
)
def test_faulty_text_tables_are_named(tmp_path, content, options, message):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_dataset(path, **options)
    assert "\n" not in str(caught.value)


def test_text_far_down_a_column_of_numbers_is_quoted_with_its_row(tmp_path):
    path = tmp_path / "t.csv"
    n = 1_200_000
    path.write_text("a,b\n" + "1,22222222222222\n" * n + "1,oops\n")
    with pytest.raises(ValueError, match=f"column \"b\", row {n}: expected a number, found 'oops'"):
        read_dataset(path)


def test_text_columns_of_parquet_files_are_quoted_too(tmp_path):
    table = pa.table({"a": ["1", "2", "x"], "d": pa.array([1, 2, 3], pa.timestamp("ms"))})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="column \"a\", row 2: expected a number, found 'x'"):
        read_dataset(tmp_path / "t.parquet", features="a")
    with pytest.raises(ValueError, match=r'column "d" holds timestamp\[ms\], expected'):
        read_dataset(tmp_path / "t.parquet", features="d")


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather", "t.csv.gz", "t.npz", "t.npy"])
@pytest.mark.parametrize("content", [b"", b"not what the name says", b"PK\x03\x04 nor this"])
def test_corrupt_files_are_one_line_with_the_name(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=name) as caught:
        read_dataset(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.npz", "t.npy"])
def test_truncated_files_are_refused(tmp_path, frame, name):
    path = tmp_path / name
    if name == "t.npz":
        np.savez(path, X=np.ones((50, 4)))
    elif name == "t.npy":
        np.save(path, np.ones((50, 4)))
    else:
        write(frame, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(ValueError, match=name):
        read_dataset(path)


def test_what_is_no_data_is_told_apart(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv: no such file"):
        read_dataset(tmp_path / "absent.csv")
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(ValueError, match=r"unknown kind of file '.xlsx', expected one of .csv"):
        read_dataset(tmp_path / "a.xlsx")
    with pytest.raises(ValueError, match=r"not a known kind of folder.*it holds a.xlsx"):
        read_dataset(tmp_path)


def test_several_parquet_files_are_one_table(tmp_path, frame):
    folder = tmp_path / "shards"
    folder.mkdir()
    write(frame[20:], folder / "b.parquet")
    write(frame[:20], folder / "a.parquet")
    data = read_dataset(folder, label="kind", id_column="key")
    assert data.ids.tolist() == frame["key"].tolist()
    write(frame[["f1"]], folder / "c.parquet")
    with pytest.raises(ValueError, match=r"c\.parquet: its columns or their types differ"):
        read_dataset(folder)


def hugging_face(folder: Path, parts: list[pa.Table], features: dict) -> Path:
    """A folder as ``datasets.Dataset.save_to_disk`` lays it out."""
    folder.mkdir()
    # Names that sort in another order than the rows have.
    names = [f"data-{len(parts) - k:05d}-of-{len(parts):05d}.arrow" for k in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part, max_chunksize=4)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


def test_a_hugging_face_folder_in_the_order_of_its_state(tmp_path):
    emb = np.arange(60, dtype=np.float32).reshape(20, 3)
    table = pa.table({"emb": list(emb), "label": np.arange(20) % 2})
    folder = hugging_face(
        tmp_path / "d", [table[:9], table[9:]], {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    )
    data = read_dataset(folder, label="label", chunk_rows=3)
    np.testing.assert_array_equal(data.X, emb)
    assert data.y is not None
    assert data.y.tolist() == ["cat", "dog"] * 10
    unlabelled = pa.table({"emb": list(emb), "label": [*[0] * 19, -1]})
    folder = hugging_face(tmp_path / "u", [unlabelled], {"label": {"names": ["cat", "dog"]}})
    with pytest.raises(ValueError, match="1 missing labels, first at row 19"):
        read_dataset(folder, label="label")


def test_faulty_hugging_face_folders_are_named(tmp_path):
    table = pa.table({"emb": [[1.0], [2.0]]})
    folder = hugging_face(tmp_path / "d", [table], {})
    (folder / "data-00001-of-00001.arrow").rename(folder / "elsewhere.arrow")
    with pytest.raises(ValueError, match=r"state.json names data-00001-of-00001.arrow, which does not exist"):
        read_dataset(folder)
    (folder / "state.json").write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        read_dataset(folder)
    (folder / "state.json").write_text(json.dumps({"_indices_data_files": [{"filename": "i.arrow"}]}))
    with pytest.raises(ValueError, match="flatten_indices"):
        read_dataset(folder)
    splits = tmp_path / "splits"
    (splits / "train").mkdir(parents=True)
    (splits / "dataset_dict.json").write_text("{}")
    with pytest.raises(ValueError, match="holds the splits train: give the folder of one"):
        read_dataset(splits)
