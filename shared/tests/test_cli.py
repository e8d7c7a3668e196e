"""Command lines, end to end: a small program is run as a process, and judged by what its user sees."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = '''
"""A small program."""
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro
from icl25_shared.cli import CommonFlags, InputError, Output, run_cli
from icl25_shared.files import write_json


@dataclass(frozen=True, kw_only=True)
class Value(CommonFlags):
    """Value every row: low values harm.

    The second paragraph.
    """

    table: tyro.conf.Positional[Path]
    """Table of the rows."""

    label: str
    """Column of the labels."""

    method: Literal["sava", "lava"] = "sava"
    """Which method."""

    batch_size: int = 1024
    """Rows in a batch."""

    bandwidth: float | None = None
    """Bandwidth; by default the median distance."""

    cache: bool = True
    """Keep the distances."""

    def __post_init__(self):
        super().__post_init__()
        if self.batch_size < 1:
            raise InputError(f"--batch-size must be >= 1, found {self.batch_size}")

    def run(self):
        print("chatter of a library")
        warnings.warn("3 rows\\\\nwere dropped")
        rows = self.table.read_text().split()
        values = {"rows": len(rows), "nan": np.float32("nan"), "array": np.arange(2), "seed": self.seed}
        flags = f"{self.method} {self.batch_size} {self.bandwidth} {self.cache}"
        return Output(values, view=["values of [bold]", flags])


@dataclass(frozen=True, kw_only=True)
class Fail(CommonFlags):
    """Fail in the way that is asked for."""

    how: str = "error"
    """How to fail."""

    def run(self):
        if self.how == "claim":
            return Output({"holds": False}, view=["it does not hold"], ok=False)
        if self.how == "sleep":
            print("asleep", flush=True)
            time.sleep(30)
        if self.how == "full":
            Path("/dev/full").write_text("x")
        if self.how == "exists":
            write_json(self.out, 1)
        if self.how == "long":
            return Output({}, view=["x" * 100] * 3000)
        if self.how == "missing":
            Path("no-such-file.csv").read_text()
        raise {"value": ValueError, "type": TypeError}.get(self.how, RuntimeError)("first\\\\nsecond")


if __name__ == "__main__":
    sys.exit(run_cli("icl25-x", "It does something.", {"value": Value, "fail": Fail}, version="1.2.3"))
'''


@pytest.fixture
def program(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.replace("\\\\n", "\\n"))
    (tmp_path / "rows.txt").write_text("a b c")

    def run(*arguments, **options):
        environment = {**os.environ, "COLUMNS": "100", **options}
        command = [sys.executable, str(script), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    return run


def test_the_view_goes_to_standard_output_and_all_else_to_standard_error(program):
    done = program("value", "rows.txt", "--label", "y")
    assert done.returncode == 0
    assert done.stdout == "values of [bold]\nsava 1024 None True\n"
    assert done.stderr == "chatter of a library\nwarning: 3 rows were dropped\n"


def test_json_is_all_that_standard_output_holds(program):
    done = program("value", "rows.txt", "--label", "y", "--json", "--seed", "5")
    assert json.loads(done.stdout) == {"rows": 3, "nan": None, "array": [0, 1], "seed": 5}


def test_flags_in_every_spelling_reach_the_verb(program):
    flags = ["--label=y", "--method", "lava", "--batch_size", "8", "--bandwidth", "-0.5", "--no-cache"]
    assert program("value", *flags, "rows.txt").stdout.splitlines()[1] == "lava 8 -0.5 False"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["value", "rows.txt", "--labl", "y"],
            "icl25-x value: error: unrecognized option --labl (did you mean --label?)",
        ),
        (
            ["value", "rows.txt", "--label", "y", "--forse"],
            "icl25-x value: error: unrecognized option --forse (did you mean --force?)",
        ),
        (["value", "rows.txt", "--label", "y", "--qqqq=3"], "icl25-x value: error: unrecognized option --qqqq"),
        (["value", "rows.txt", "more.txt", "--label", "y"], "icl25-x value: error: unexpected argument 'more.txt'"),
        (["value"], "icl25-x value: error: missing TABLE, --label STR"),
        (
            ["value", "rows.txt", "--label", "y", "--batch-size", "many"],
            "icl25-x value: error: --batch-size: expected a whole number, found 'many'",
        ),
        (
            ["value", "rows.txt", "--label", "y", "--bandwidth", "wide"],
            "icl25-x value: error: --bandwidth: expected a number, found 'wide'",
        ),
        (
            ["value", "rows.txt", "--label", "y", "--method", "x"],
            "icl25-x value: error: invalid choice 'x' for argument '--method'. Expected one of ('sava', 'lava')",
        ),
        (
            ["value", "rows.txt", "--label", "y", "--batch-size", "0"],
            "icl25-x value: error: --batch-size must be >= 1, found 0",
        ),
        (
            ["value", "rows.txt", "--label"],
            "icl25-x value: error: missing value for argument '--label'. Expected 1 values",
        ),
        (["value", "no.txt", "--label", "y", "--quiet"], "icl25-x value: error: no.txt: no such file or directory"),
        (["value", ".", "--label", "y", "--quiet"], "icl25-x value: error: .: is a directory"),
        (["fail", "--quiet", "--verbose"], "icl25-x fail: error: --quiet and --verbose exclude each other"),
        (["fail", "--seed", "-1"], "icl25-x fail: error: --seed must be a whole number from 0 to 2**63 - 1, found -1"),
        (
            ["fail", "--seed", str(2**63)],
            f"icl25-x fail: error: --seed must be a whole number from 0 to 2**63 - 1, found {2**63}",
        ),
        (
            ["fail", "--device", "abacus"],
            "icl25-x fail: error: --device must be auto, cpu, cuda, cuda:N or mps, found 'abacus'",
        ),
        (["fail", "--how", "value"], "icl25-x fail: error: first second"),
        (["fail", "--how", "type"], "icl25-x fail: error: first second"),
        (["fail", "--how", "missing"], "icl25-x fail: error: no-such-file.csv: no such file or directory"),
        (["valu"], "icl25-x: error: unknown verb valu (did you mean value?)"),
        (["zzz"], "icl25-x: error: unknown verb zzz; choose one of value, fail"),
        (["--json", "value"], "icl25-x: error: the verb comes first, found --json; choose one of value, fail"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(program, arguments, line):
    done = program(*arguments)
    errors = [printed for printed in done.stderr.splitlines() if not printed.startswith(("chatter", "warning"))]
    assert (done.returncode, done.stdout, errors) == (2, "", [line])


def test_a_narrow_terminal_does_not_fold_the_error(program):
    done = program("value", "--method", "x", "--label", "y", "rows.txt", COLUMNS="30")
    assert "invalid choice 'x' for argument '--method'. Expected one of ('sava', 'lava')\n" in done.stderr


def test_existing_results_are_kept_without_force(program, tmp_path):
    (tmp_path / "result.json").write_text("old")
    done = program("fail", "--how", "exists", "-o", "result.json")
    assert done.stderr == "icl25-x fail: error: result.json exists already; pass --force (force=True) to replace it\n"
    assert done.returncode == 2


def test_a_run_that_fails_prints_its_result_and_has_status_1(program):
    done = program("fail", "--how", "claim")
    assert (done.returncode, done.stdout, done.stderr) == (1, "it does not hold\n", "")


def test_an_unexpected_error_is_one_line_and_status_1(program):
    done = program("fail")
    assert done.returncode == 1
    assert done.stderr == (
        "icl25-x fail: internal error: RuntimeError: first second; run again with --debug for the traceback\n"
    )


def test_a_full_disk_is_named(program):
    done = program("fail", "--how", "full")
    assert done.returncode == 1
    assert done.stderr.startswith("icl25-x fail: error: the disk is full")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("how", "status"), [("error", 1), ("value", 2)])
def test_debug_shows_the_traceback_and_keeps_the_status(program, how, status):
    done = program("fail", "--how", how, "--debug")
    assert done.returncode == status
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert "in run" in done.stderr


def test_an_interrupt_is_status_130(program, tmp_path):
    command = [sys.executable, "program.py", "fail", "--how", "sleep"]
    # A shell that runs the tests in the background has its children ignore interrupts.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "asleep\n"
        child.send_signal(signal.SIGINT)
        assert child.stderr.read() == "icl25-x fail: interrupted\n"
        assert child.wait() == 130


def test_a_reader_that_leaves_early_is_no_error(program, tmp_path):
    command = [sys.executable, "program.py", "fail", "--how", "long"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 0


def test_help_explains_every_flag_with_the_common_ones_last(program):
    started = time.perf_counter()
    done = program("value", "--help")
    assert time.perf_counter() - started < 1
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(done.stdout.split())
    for line in (
        "Value every row: low values harm.",
        "The second paragraph.",
        "TABLE Table of the rows. (required)",
        "--label STR Column of the labels. (required)",
        "--method {sava,lava} Which method. (default: sava)",
        "--bandwidth FLOAT Bandwidth; by default the median distance. (optional)",
        "--cache, --no-cache Keep the distances. (default: True)",
        "--seed N Seed of every random draw",
        "-o DIR, --out DIR Where the result goes",
        "--json Print the result as JSON",
    ):
        assert line in shown
    assert "{None}" not in done.stdout
    assert "--no-json" not in done.stdout
    assert done.stdout.index("--cache") < done.stdout.index("common options") < done.stdout.index("--seed")


def test_the_command_alone_prints_the_verbs_and_has_status_2(program):
    alone, asked = program(), program("--help")
    assert (alone.returncode, alone.stdout, asked.returncode) == (2, "", 0)
    assert alone.stderr == asked.stdout
    assert "value   Value every row: low values harm." in asked.stdout
    assert "The second paragraph" not in asked.stdout


def test_version(program):
    done = program("--version")
    assert (done.returncode, done.stdout) == (0, "icl25-x 1.2.3\n")


def test_the_shell_completion_of_tyro_knows_the_verbs(program):
    done = program("--tyro-print-completion", "bash")
    assert done.returncode == 0
    assert "--batch-size" in done.stdout


def test_warnings_are_put_back_for_a_caller_that_lives_on():
    import warnings
    from dataclasses import dataclass

    from icl25_shared.cli import CommonFlags, Output, run_cli

    @dataclass(frozen=True, kw_only=True)
    class Quick(CommonFlags):
        """Do nothing."""

        def run(self):
            return Output({"seed": self.seed})

    before = warnings.showwarning
    assert run_cli("icl25-shared", "Nothing.", {"quick": Quick, "again": Quick}, ["quick", "--seed", "3"]) == 0
    assert warnings.showwarning is before


@pytest.fixture
def families():
    from dataclasses import dataclass

    from icl25_shared.cli import CommonFlags, Output

    @dataclass(frozen=True, kw_only=True)
    class Train(CommonFlags):
        """Train a network."""

        n: int = 1
        """How many."""

        def run(self):
            return Output({"n": self.n})

    @dataclass(frozen=True, kw_only=True)
    class Solve(CommonFlags):
        """Solve a puzzle."""

    return {"demo": Solve, "sudoku train": Train, "sudoku solve": Solve}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["sudoku", "train", "--n", "4", "--json"], 0, '"n": 4'),
        (["sudoku", "train", "--help"], 0, "icl25-x sudoku train"),
        (["sudoku", "--help"], 0, "sudoku solve"),
        (["sudoku"], 2, "Solve a puzzle."),
        (["--help"], 0, "sudoku train"),
        (["sudoku", "trian"], 2, "error: unknown verb sudoku trian (did you mean sudoku train?)"),
        (["sudoku", "xyz"], 2, "error: unknown verb sudoku xyz; choose one of sudoku train, sudoku solve"),
        (["sudoku", "train", "--m", "4"], 2, "icl25-x sudoku train: error: unrecognized option --m"),
        (["dmo"], 2, "unknown verb dmo (did you mean demo?)"),
    ],
)
def test_verbs_of_two_words(arguments, status, words, families, capsys):
    from icl25_shared.cli import run_cli

    assert run_cli("icl25-x", "Puzzles.", families, arguments) == status
    shown = capsys.readouterr()
    assert words in shown.out + shown.err
    assert ("demo" in shown.out + shown.err) == (arguments in (["--help"], ["dmo"]))


@pytest.mark.parametrize("arguments", [["--help"], ["sudoku", "--help"], ["sudoku", "train", "--help"]])
def test_a_reader_of_the_help_that_leaves_is_no_error(arguments, families, monkeypatch, capsys):
    from icl25_shared.cli import run_cli

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stdout", Closed())
    assert run_cli("icl25-x", "Puzzles.", families, arguments) == 0
    assert capsys.readouterr().err == ""
