"""Logging and progress, as a program's standard error shows them; on a terminal too."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

PROGRAM = """
import logging, sys, time, warnings
from icl25_shared import logs

early = logs.get_logger("icl25_early.module")
logs.configure_logging(**eval(sys.argv[1]))
late = logs.get_logger("icl25_late.module")
logs.PLAIN_INTERVAL = 0.05

early.debug("detail")
late.info("two\\nlines with [brackets]")
logging.getLogger("somebody.else").info("chatter")
logging.getLogger("somebody.else").warning("careful")
warnings.warn("odd\\n value")
with logs.progress("outer", total=2) as outer:
    for item in logs.track([1, 2, 3, 4], "inner"):
        time.sleep(0.06)
        if item == 4:
            sys.stdin.read()
    outer.advance(2)
"""


def run(options="{}"):
    command = [sys.executable, "-c", PROGRAM, options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_lines_are_plain_where_there_is_no_terminal():
    lines = run()
    assert lines[:3] == ["two lines with [brackets]", "warning: careful", "warning: odd value"]
    assert any(line.startswith("inner: 2/4, ") and line.endswith(" left") for line in lines)
    assert lines[-1].startswith("outer: 2 done in 0:0")
    assert "chatter" not in "".join(lines)


def test_quiet_leaves_the_warnings_alone():
    assert run("{'quiet': True}") == ["warning: careful", "warning: odd value"]


def test_verbose_adds_details_and_names():
    lines = run("{'verbose': True}")
    assert lines[0] == "debug: icl25_early.module: detail"
    assert lines[1] == "icl25_late.module: two lines with [brackets]"
    assert any(line.startswith("debug: icl25.warnings: UserWarning raised at") for line in lines)
    assert "chatter" not in "".join(lines)


def test_json_lines_are_json():
    entries = [json.loads(line) for line in run("{'json_lines': True}")]
    assert all({"time", "level", "logger", "message"} == set(entry) for entry in entries)
    assert (entries[0]["level"], entries[0]["logger"]) == ("info", "icl25_late.module")
    assert entries[2]["message"] == "odd value"
    assert any(entry["message"].startswith("inner: 2/4") for entry in entries)


def test_quiet_and_verbose_exclude_each_other():
    from icl25_shared.logs import configure_logging

    with pytest.raises(ValueError, match="exclude each other"):
        configure_logging(quiet=True, verbose=True)


def test_progress_of_a_library_is_silent_and_goes_forward_only(capfd):
    from icl25_shared.logs import progress, track

    assert list(track(iter("abc"), "letters")) == ["a", "b", "c"]
    with progress("steps") as bar:
        bar.advance(3)
        with pytest.raises(ValueError, match=r"n must be >= 0, found -1"):
            bar.advance(-1)
    assert bar.completed == 3
    assert capfd.readouterr() == ("", "")


def on_a_terminal(options="{}", until=()):
    """What the program shows. Its last step waits, half a minute at most, until all of the given texts were shown."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", PROGRAM, options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=follower, env=environment) as child:
        os.close(follower)
        assert child.stdin is not None
        shown, deadline = b"", time.monotonic() + 30
        try:
            while not all(text.encode() in shown for text in until) and time.monotonic() < deadline:
                if select.select([leader], [], [], 0.1)[0]:
                    shown += os.read(leader, 4096)
            child.stdin.close()
            while chunk := os.read(leader, 4096):
                shown += chunk
        except OSError:  # how Linux says that the other end has closed
            pass
        os.close(leader)
        assert child.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


def test_a_terminal_shows_bars_with_rate_and_nested_rows():
    expected = ("outer", "inner", "━", "/s")
    shown = on_a_terminal(until=expected)
    assert [text for text in expected if text not in shown] == []
    assert "lines with [brackets]" in shown
    assert "inner: 2/4, " not in shown


def test_a_quiet_terminal_shows_no_bar():
    shown = on_a_terminal("{'quiet': True}")
    assert "careful" in shown
    assert "━" not in shown
