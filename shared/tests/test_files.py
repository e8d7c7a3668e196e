"""Atomic files and JSON: whole or absent, never half."""

import dataclasses
import enum
import json
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icl25_shared.files import atomic_path, read_json, to_jsonable, write_json

KILLED_IN_THE_MIDDLE = """
import sys, time
from icl25_shared.files import atomic_path

with atomic_path(sys.argv[1], force=True) as path, open(path, "w") as file:
    file.write("half of the new cont")
    file.flush()
    print(path, flush=True)
    time.sleep(60)
"""


def test_the_file_appears_when_the_block_has_ended(tmp_path):
    target = tmp_path / "new" / "table.csv"
    with atomic_path(target) as temporary:
        assert temporary.parent == target.parent
        assert temporary.suffix == ".csv"
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_and_no_other(tmp_path, error):
    target = tmp_path / "result.json"
    target.write_text("old")

    def fail_halfway():
        with atomic_path(target, force=True) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail_halfway()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_killed_process_leaves_the_old_file(tmp_path):
    target = tmp_path / "result.json"
    target.write_text("old")
    command = [sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        half = Path(child.stdout.readline().strip())
        assert half.read_text() == "half of the new cont"
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert target.read_text() == "old"


def test_an_existing_file_is_kept_without_force(tmp_path):
    target = tmp_path / "result.json"
    write_json(target, {"a": 1})
    with pytest.raises(FileExistsError, match=r"result\.json exists already; pass --force"):
        write_json(target, {"a": 2})
    assert read_json(target) == {"a": 1}
    write_json(target, {"a": 2}, force=True)
    assert read_json(target) == {"a": 2}


def test_a_file_made_by_another_process_meanwhile_is_kept(tmp_path):
    target = tmp_path / "result.json"

    def be_overtaken():
        with atomic_path(target) as temporary:
            temporary.write_text("mine")
            target.write_text("theirs")

    with pytest.raises(FileExistsError):
        be_overtaken()
    assert target.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder, expected a file"):
        write_json(tmp_path, {}, force=True)


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_json_cannot_express_leaves_no_file(tmp_path):
    with pytest.raises(TypeError, match=r"type builtins\.object cannot be written as JSON"):
        write_json(tmp_path / "x.json", {"a": object()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(b'{"a": 1,}', "is not JSON: .* line 1, column 9"), (b"", "is not JSON"), (b'"\xff"', "byte 1 is not UTF-8")],
)
def test_broken_json_is_refused_with_the_name_of_the_file(tmp_path, content, message):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"broken.json {message}|broken.json is not JSON: {message}"):
        read_json(path)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Config:
    path: Path
    shape: tuple[int, ...]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, np.nan]]), [[1.0, None]]),
        ({1: "a", None: "b", "c": {3, 1, 2}}, {"1": "a", "null": "b", "c": [1, 2, 3]}),
        (Config(Path("a") / "b", (1, 2)), {"path": "a/b", "shape": [1, 2]}),
        (Colour.RED, "red"),
        (date(2025, 1, 2), "2025-01-02"),
    ],
)
def test_objects_become_json(obj, expected):
    found = to_jsonable(obj)
    assert found == expected
    assert type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_bytes_are_refused():
    with pytest.raises(TypeError, match="bytes"):
        to_jsonable(b"abc")


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
documents = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(documents)
def test_what_is_json_already_is_left_alone(document):
    assert json.loads(json.dumps(to_jsonable(document), allow_nan=False)) == document
