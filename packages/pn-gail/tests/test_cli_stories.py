from __future__ import annotations

import sys

import pytest

from icl25_pn_gail import cli as command_line
from icl25_shared import Output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("demo", "--seed", 5), {"n_seeds": 4, "seed": 5}),
        (("reproduce",), {"part": "all", "n_seeds": 5, "scale": "laptop"}),
        (("reproduce", "labels", "--scale", "paper"), {"part": "labels", "scale": "paper"}),
        (("reproduce", "all", "--full", "--n-seeds", 1), {"part": "all", "scale": "paper", "n_seeds": 1}),
    ],
)
def test_demo_and_reproduce_pass_their_flags_on(cli, monkeypatch, arguments, expected):
    seen = []

    class Story:
        @staticmethod
        def run(flags):
            seen.append(flags)
            return Output({"done": True}, ["done"])

        run_demo = run_reproduce = run

    for name in ("demo", "reproduce"):
        monkeypatch.setitem(sys.modules, f"icl25_pn_gail.{name}", Story)
    ran = cli(*arguments)
    assert (ran.status, ran.out) == (0, "done\n")
    assert {name: getattr(seen[0], name) for name in expected} == expected


def test_the_story_verbs_are_there():
    assert {"demo", "reproduce"} <= set(command_line.VERBS)
