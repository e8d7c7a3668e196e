"""The helpers behind the sessions."""

import ast
import json
import os
import subprocess
import sys

import pytest

from tools import docstrings, imports, lock, scoreboard, site
from tools.help_pages import entries
from tools.packages import ROOT, Package, dependency_name, discover, select
from tools.shell import CommandError, Job, Shell, run_jobs, summary
from tools.testing import Counts, read_counts


def test_every_folder_with_a_pyproject_is_a_package():
    assert [package.root for package in discover()] == sorted(p.parent for p in ROOT.glob("packages/*/pyproject.toml"))


def test_packages_are_chosen_by_any_of_their_names(tmp_path):
    for slug in ("a-b", "c"):
        (tmp_path / "packages" / slug).mkdir(parents=True)
        (tmp_path / "packages" / slug / "pyproject.toml").write_text("")
    assert [package.slug for package in select([], root=tmp_path)] == ["a-b", "c", "shared"]
    assert [package.slug for package in select(["icl25-c", "packages/a-b/", "c"], root=tmp_path)] == ["c", "a-b"]
    assert select(["a-b"], root=tmp_path)[0].module == "icl25_a_b"
    with pytest.raises(ValueError, match="no package 'd'; there are: a-b, c, shared"):
        select(["d"], root=tmp_path)


@pytest.mark.parametrize(
    "line", ["POT>=0.9", "pot", "pot[torch] >= 1", "pot ; python_version < '3'", "pot~=1", "pot @ x"]
)
def test_dependency_name(line):
    assert dependency_name(line) == "pot"


def test_jobs_run_beside_each_other_and_failures_are_kept(capsys):
    def works(shell):
        shell.run(sys.executable, "-c", "print('good' + ' output')")
        return "3 passed"

    def fails(shell):
        shell.run(sys.executable, "-c", "print('bad' + ' output'); raise SystemExit(3)")

    outcomes = run_jobs([Job("one", works), Job("two", fails)], workers=2)
    assert [(outcome.name, outcome.ok) for outcome in outcomes] == [("one", True), ("two", False)]
    assert "exit status 3" in outcomes[1].note
    printed = capsys.readouterr().out
    assert "[two] $ " in printed
    assert "good output" in printed
    assert "bad output" in printed
    assert "FAILED" in summary(outcomes)


def test_accepted_status_is_returned_and_others_are_not():
    shell = Shell("x", live=False)
    assert shell.run(sys.executable, "-c", "raise SystemExit(5)", accept=(0, 5)) == 5
    with pytest.raises(CommandError, match="exit status 4"):
        shell.run(sys.executable, "-c", "raise SystemExit(4)")


def test_counts_of_a_report(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="2" errors="1" skipped="1"/></testsuites>')
    assert read_counts(report) == Counts(5, 3)
    assert str(read_counts(report) + Counts(1, 0)) == "6 passed, 3 failed"
    assert read_counts(tmp_path / "none.xml") == Counts(0, 1)


def test_pins_keep_markers_only_where_versions_differ():
    compiled = "\n".join(
        [
            "-e ./shared",
            'jax==1.0 ; python_full_version < "3.12"',
            'jax==2.0 ; python_full_version >= "3.12"',
            'colorama==0.4 ; sys_platform == "win32"',
            "icl25-sava==0.1.0",
            "torch==2.0.0+cpu",
        ]
    )
    assert lock.parse_pins(compiled) == [
        "jax==1.0 ; python_full_version < '3.12'",
        "jax==2.0 ; python_full_version >= '3.12'",
        "colorama==0.4",
        "torch==2.0.0",
    ]


@pytest.fixture
def small(tmp_path):
    """A package of two files."""
    package = Package("small", tmp_path)
    (package.source / "nested").mkdir(parents=True)
    (package.source / "__init__.py").write_text('"""Small."""\n__all__ = ["f"]\n')
    return package


def test_imports_say_whether_they_run_at_import(small):
    (small.source / "nested/a.py").write_text(
        "import numpy.linalg\nfrom typing import TYPE_CHECKING\nfrom ..b import c\nfrom .. import cli\n"
        "if TYPE_CHECKING:\n    import torch\nelse:\n    import json\n"
        "class A:\n    import csv\n    def f(self):\n        import jax\n"
    )
    found = {(line.module, line.at_import) for line in imports.imports(small)}
    assert found == {
        ("numpy.linalg", True),
        ("typing", True),
        ("icl25_small.b", True),
        ("icl25_small", True),
        ("icl25_small.cli", True),
        ("torch", False),
        ("json", True),
        ("csv", True),
        ("jax", False),
    }


COMPLETE = '''"""Sum.

    Args:
        x: Numbers, of shape (n,).

    Raises:
        ValueError: If one is NaN.

    Source:
        Equation 1.
    """'''


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (COMPLETE, None),
        ('"""Sum."""', "does not describe its array argument `x`"),
        ('"""Sum.\n\n    Args:\n        x: Numbers.\n    """', "does not state the shape of `x`"),
        ('"""Sum.\n\n    Args:\n        x: Shape (n,).\n    """', "does not say what it raises (`Raises:`)"),
        ('"""Sum, see :func:`g`."""', "has the Sphinx role :func:`g`"),
        ("pass", "has no docstring"),
    ],
)
def test_docstring_complaints(body, complaint):
    node = ast.parse(f"def f(x: Float[np.ndarray, 'n']):\n    {body}\n").body[0]
    found = list(docstrings.complaints(docstrings.Definition("f", node, "f.py")))
    assert any(complaint in line for line in found) if complaint else not found


def test_records_need_no_source_and_other_classes_do():
    record, other = ast.parse('@dataclass(frozen=True)\nclass R:\n    """R."""\nclass C:\n    """C."""\n').body
    assert not list(docstrings.complaints(docstrings.Definition("R", record, "f.py")))
    assert any("source" in line for line in docstrings.complaints(docstrings.Definition("C", other, "f.py")))


VERB = '''
import sys
from dataclasses import dataclass
from pathlib import Path
import tyro
from icl25_shared.cli import CommonFlags, run_cli

@dataclass(frozen=True, kw_only=True)
class Verb(CommonFlags):
    """Do it."""
    table: tyro.conf.Positional[Path]
    a_flag_with_a_rather_long_name_and_no_help: int = 3
    short: int = 3
    told: int = 3
    """What it is for."""

sys.exit(run_cli("x", "Does it.", {"verb": Verb}, ["verb", "--help"]))
'''


@pytest.mark.parametrize("columns", ["60", "200"])
def test_help_page_of_the_house_is_understood(tmp_path, columns):
    (tmp_path / "verb.py").write_text(VERB)
    env = {**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": "utf-8"}
    page = subprocess.check_output([sys.executable, tmp_path / "verb.py"], env=env, encoding="utf-8")
    found = entries(page)
    assert [entry.name for entry in found if entry.positional] == ["TABLE"]
    bare = {entry.name for entry in found if not entry.explained}
    assert bare == {"TABLE", "--a-flag-with-a-rather-long-name-and-no-help INT", "--short INT"}
    assert {"--quiet", "--json", "--told INT"} <= {entry.name for entry in found}


def test_front_page_is_fresh():
    text = (ROOT / "README.md").read_text()
    assert scoreboard.update_readme(text, discover()) == text, "README.md is stale; run `uv run nox -s scoreboard`"


def test_scoreboard_shows_a_claim_that_does_not_hold(small):
    claim = {
        "id": "x",
        "statement": "It | helps",
        "paper": "0.9",
        "source": "Table 1",
        "measured": {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 3, "samples": [0.4, 0.5, 0.6]},
        "rule": {"comparison": ">=", "threshold": 0.8, "on": "mean"},
        "unit": "",
        "note": "",
        "headline": True,
    }
    target = small.root / "results/demo/claims.json"
    target.parent.mkdir(parents=True)
    target.write_text(json.dumps({"schema": 1, "package": "small", "claims": [claim]}))
    (small.root / "pyproject.toml").write_text(
        '[project.urls]\nPaper = "https://p"\n[tool.icl25]\npaper = "P"\nauthors = "A"\nsummary = "S"\n'
    )
    page = "<!-- papers:start --><!-- papers:end --><!-- scoreboard:start --><!-- scoreboard:end -->"
    page = scoreboard.update_readme(page, [small])
    assert "0 of 1 claims hold" in page
    assert "| [P](https://p) (A) |" in page
    assert "It \\| helps: 0.5 [0.4, 0.6], n = 3 (**does not hold**)" in page
    assert scoreboard.update_readme(page, [small]) == page
    with pytest.raises(ValueError, match="no block"):
        scoreboard.update_readme("", [small])


def test_links_of_a_readme_lead_somewhere_on_the_site(tmp_path):
    root, folder = tmp_path / "package", tmp_path / "page"
    (root / "docs").mkdir(parents=True)
    (root / "docs/a.png").write_bytes(b"x")
    text = "![a](docs/a.png) [b](docs/none.png) [c](https://c.org/d) [e](packages/e/README.md#f) [g](#h)"
    homes = {"packages/e/README.md": "e/index.md"}
    assert site.relink(text, root, folder, homes) == "![a](docs/a.png) b [c](https://c.org/d) [e](e/index.md#f) [g](#h)"
    assert (folder / "docs/a.png").read_bytes() == b"x"


SELF = """
from __future__ import annotations
from typing import Self
from typechecking import check

class Model:
    @check
    def fit(self, n: int) -> Self:
        return self

Model().fit(3)
try:
    Model().fit("three")
except Exception as error:
    print(type(error).__name__)
"""


def test_methods_that_return_self_are_checked_too():
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tools/plugins")}
    assert "Violation" in subprocess.check_output([sys.executable, "-c", SELF], env=env, text=True)
