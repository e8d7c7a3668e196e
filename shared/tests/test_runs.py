"""Run folders: the record of a run, and files that are never overwritten by accident."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from icl25_shared.claims import Claim, Estimate, Rule, read_claims
from icl25_shared.files import read_json
from icl25_shared.runs import RunFolder


@dataclass(frozen=True)
class Config:
    seed: int = 3
    table: Path = Path("rows.csv")


class Drawing:
    """Saves the way a matplotlib figure does."""

    def savefig(self, fname, **kwargs):
        Path(fname).write_text(json.dumps(kwargs))


def make(out, **options):
    return RunFolder.create(out, program="icl25-shared", verb="demo", config=Config(), **options)


def test_the_record_of_a_run_that_finished(tmp_path):
    with make(tmp_path / "run") as run:
        assert read_json(run.path("run.json"))["status"] == "running"
        for _ in range(2):
            with run.timed("solve"):
                time.sleep(0.02)
        run.write_json("result.json", {"value": 1.5})
    record = read_json(tmp_path / "run" / "run.json")
    assert (record["program"], record["verb"], record["status"]) == ("icl25-shared", "demo", "finished")
    assert (record["seed"], record["config"]) == (3, {"seed": 3, "table": "rows.csv"})
    assert record["duration"] >= record["timings"]["solve"] >= 0.04
    assert {"python", "platform", "icl25-shared", "numpy", "rich", "tyro"} <= set(record["versions"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["result.json", "run.json"]


@pytest.mark.parametrize(("error", "status"), [(RuntimeError("boom"), "failed"), (KeyboardInterrupt(), "interrupted")])
def test_the_record_of_a_run_that_did_not_finish(tmp_path, error, status):
    def stop():
        with make(tmp_path):
            raise error

    with pytest.raises(type(error)):
        stop()
    record = read_json(tmp_path / "run.json")
    assert record["status"] == status
    assert record.get("error") == ("RuntimeError: boom" if status == "failed" else None)


def test_results_repeat_to_the_byte(tmp_path):
    measured = Claim("a", "It works.", "1", "Table 1", Estimate.from_samples([1.0, 1.1]), Rule(">", 0.5))
    for name in ("a", "b"):
        with make(tmp_path / name) as run:
            run.write_json("result.json", {"value": 0.1})
            run.write_claims([measured])
    for name in ("result.json", "claims.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert read_claims(tmp_path / "a" / "claims.json") == [measured]
    assert read_json(tmp_path / "a" / "claims.json")["package"] == "shared"


def test_an_earlier_run_is_kept_without_force(tmp_path):
    with make(tmp_path) as run:
        run.write_json("result.json", 1)
    with pytest.raises(FileExistsError, match="holds an earlier run; pass --force"):
        make(tmp_path)
    with make(tmp_path, force=True) as run:
        run.write_json("result.json", 2)
    assert read_json(tmp_path / "result.json") == 2


def test_files_that_stood_there_before_are_kept_without_force(tmp_path):
    (tmp_path / "result.json").write_text("mine")
    with make(tmp_path) as run, pytest.raises(FileExistsError):
        run.write_json("result.json", 1)
    assert (tmp_path / "result.json").read_text() == "mine"


def test_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file, expected a folder"):
        make(tmp_path / "file", force=True)


def test_without_a_folder_each_run_gets_a_new_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [make(None).folder for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(folder.parts[0] == "runs" and folder.name.startswith("icl25-shared-demo-") for folder in folders)


def test_pictures_are_saved_without_a_date(tmp_path):
    with make(tmp_path) as run:
        assert run.save_figure(Drawing(), "a.svg", dpi=50) == tmp_path / "a.svg"
        run.save_figure(Drawing(), "a.png")
    assert read_json(tmp_path / "a.svg") == {"dpi": 50, "metadata": {"Date": None}}
    assert read_json(tmp_path / "a.png") == {"metadata": None}


def test_a_killed_run_says_running_and_is_not_overwritten(tmp_path):
    code = (
        "import os, sys; from icl25_shared.runs import RunFolder\n"
        "with RunFolder.create(sys.argv[1], program='p', verb='v', config={'seed': 1}): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    assert read_json(tmp_path / "run.json")["status"] == "running"
    with pytest.raises(FileExistsError):
        make(tmp_path)


def fail(run):
    with pytest.raises(ValueError, match="wrong"), run:
        raise ValueError("wrong")


def test_a_run_that_failed_at_once_is_in_nobodys_way(tmp_path):
    fail(make(tmp_path))
    with make(tmp_path) as run:
        run.write_json("result.json", {})
    with pytest.raises(FileExistsError, match="earlier run"):
        make(tmp_path)


def test_a_run_that_failed_late_is_kept(tmp_path):
    run = make(tmp_path)
    run.write_json("result.json", {})
    fail(run)
    with pytest.raises(FileExistsError, match="earlier run"):
        make(tmp_path)


@pytest.mark.parametrize("record", ["", "[]", '{"status": "running"}'])
def test_a_record_that_says_no_failure_is_kept(tmp_path, record):
    (tmp_path / "run.json").write_text(record)
    with pytest.raises(FileExistsError, match="earlier run"):
        make(tmp_path)
