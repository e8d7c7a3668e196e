"""What holds for every file: small, short, and without a trace of the machine that wrote it."""

import os
import re

import pytest

from tools.packages import ROOT

IGNORED = {
    ".git",
    ".nox",
    ".venv",
    "dist",
    "site",
    "runs",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
}
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".cff", ".sh", ".cfg", ".txt", ".csv", ""}
# The brackets keep this list from finding itself.
FORBIDDEN = {
    "a path of one machine": r"/tm[p]/[\w.]|/roo[t]/|/hom[e]/\w|/User[s]/\w|C:\\User[s]",
    "the address of a package index": r"pypi[.]org/simple|pythonhosted[.]org|download[.]pytorch[.]org",
}
UNFINISHED = r"\b(TOD[O]|FIXM[E]|XX[X])\b"


@pytest.fixture(scope="session")
def files():
    """Every file that belongs to the checkout."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if name not in IGNORED and not name.endswith(".egg-info"))
        found += [ROOT.joinpath(folder, name) for name in sorted(names) if name not in {"uv.lock", ".coverage"}]
    return found


def lines(path):
    return enumerate(path.read_text(errors="replace").splitlines(), start=1)


def matches(files, pattern):
    return [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in lines(path)
        if re.search(pattern, line)
    ]


def test_no_file_is_over_a_megabyte(files):
    big = [str(path.relative_to(ROOT)) for path in files if path.stat().st_size > 1_000_000]
    assert not big


def test_no_python_file_is_over_400_lines(files):
    long = [str(path.relative_to(ROOT)) for path in files if path.suffix == ".py" and len(list(lines(path))) > 400]
    assert not long, f"files of more than 400 lines hold two ideas; split them: {long}"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_trace_of_one_machine(files, what):
    found = matches([path for path in files if path.suffix in TEXT], FORBIDDEN[what])
    assert not found, f"{what} stands in {found}"


def test_nothing_is_left_unfinished(files):
    found = matches([path for path in files if path.suffix == ".py"], UNFINISHED)
    assert not found, f"unfinished: {found}"


def test_no_test_is_skipped_or_expected_to_fail(files):
    tests = [path for path in files if path.suffix == ".py" and "tests" in path.parts]
    found = matches(tests, r"pytes[t]\.(mark\.)?(skip|xfail|importorskip)")
    assert not found, f"a test is skipped or expected to fail in {found}"
