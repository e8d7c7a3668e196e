"""What a package says of itself is complete and agrees with itself."""

import re
import tomllib

import pytest

from tools.packages import ROOT, dependency_name

CLASSIFIERS = [
    "Intended Audience :: Science/Research",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Typing :: Typed",
]
SETTINGS = {
    "paper": str,
    "authors": str,
    "summary": str,
    "status": str,
    "heavy-imports": list,
    "demo-seconds": int,
    "demo-memory-mb": int,
    "picture": str,
    "test-extras": list,
}
PAPER_LINK = r"https://(arxiv\.org/abs/\d{4}\.\d{4,5}|openreview\.net/forum\?id=\w+)"
OPTIONAL_SETTINGS = {"tiny-run": list, "repeat-run": list}
FILES = ["README.md", "LICENSE", "src/{module}/py.typed", "src/{module}/__init__.py", "src/{module}/__main__.py"]
FILES += [f"src/{{module}}/{name}.py" for name in ("cli", "demo", "reproduce")]


def test_names_follow_the_folder(package):
    assert package.project["name"] == package.distribution
    assert package.project.get("scripts") == {package.distribution: f"{package.module}.cli:main"}
    wheel = package.pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == [f"src/{package.module}"]


def test_project_table_is_complete(package):
    project = package.project
    assert re.fullmatch(r"\d+\.\d+\.\d+", project.get("version", "")), "version must read like 0.1.0"
    assert project.get("readme") == "README.md"
    assert project.get("requires-python") == ">=3.11,<3.14"
    assert project.get("license") == "Apache-2.0"
    assert project.get("license-files") == ["LICENSE"]
    assert project.get("authors") == [{"name": "The icl25 authors"}]
    assert "ICLR 2025" in project.get("keywords", [])
    missing = [line for line in CLASSIFIERS if line not in project.get("classifiers", [])]
    assert not missing, f"classifiers lack {missing}"
    assert re.fullmatch(PAPER_LINK, package.paper_link), "urls.Paper must lead to the paper on arXiv or OpenReview"


def test_settings_of_the_workspace_are_complete(package):
    settings = package.settings
    for key, kind in SETTINGS.items():
        assert isinstance(settings.get(key), kind), f"[tool.icl25] needs {key!r}, {kind.__name__}"
    unknown = set(settings) - set(SETTINGS) - set(OPTIONAL_SETTINGS)
    assert not unknown, f"[tool.icl25] has unknown keys {sorted(unknown)}"
    assert settings["status"] in {"ready", "preview", "skeleton"}
    assert set(settings["heavy-imports"]) <= {"torch", "jax", "matplotlib"}
    assert settings["demo-seconds"] <= 60, "a demo ends within 60 s on two cores"
    assert set(settings["test-extras"]) <= set(package.project.get("optional-dependencies", {}))


def test_package_is_no_skeleton(package):
    assert package.settings.get("status") in {"ready", "preview"}, "status is still 'skeleton'"


def test_nothing_of_the_template_is_left(package):
    left = [
        f"{path.relative_to(package.root)}:{number}"
        for path in package.root.rglob("*")
        if path.suffix in {".py", ".md", ".toml"}
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if "FILL IN" in line or "FILL-IN" in line
    ]
    assert not left, f"still to be filled in: {', '.join(left)}"


@pytest.mark.parametrize("name", FILES)
def test_file_is_there(package, name):
    path = package.root / name.format(module=package.module)
    assert path.is_file(), f"{path.relative_to(ROOT)} is missing"


def test_licence_is_the_workspace_one(package):
    assert (package.root / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_tests_benchmarks_and_evidence_are_there(package):
    names = {path.name for path in package.root.glob("tests/test_*.py")}
    assert {"test_cli.py", "test_claims.py"} <= names, "tests/test_cli.py and tests/test_claims.py are needed"
    assert len(names) > 2, "no tests of the method"
    assert list(package.root.glob("benchmarks/bench_*.py")), "no benchmarks/bench_*.py"
    assert (package.root / package.settings["picture"]).is_file(), (
        f"the picture {package.settings['picture']} is missing"
    )
    missing = [verb for verb in ("demo", "reproduce") if not (package.root / f"results/{verb}/claims.json").is_file()]
    assert not missing, f"no results/{{{','.join(missing)}}}/claims.json; run those sessions, then `nox -s scoreboard`"


def test_requirements_have_lower_bounds_and_pins(package):
    extras = package.project.get("optional-dependencies", {}).values()
    lines = [*package.project["dependencies"], *(line for extra in extras for line in extra)]
    unbounded = [line for line in lines if ">=" not in line or "==" in line]
    assert not unbounded, f"give a lower bound, and no exact version (uv.toml pins): {unbounded}"
    constraints = tomllib.loads((ROOT / "uv.toml").read_text())["constraint-dependencies"]
    pinned = {dependency_name(line) for line in constraints}
    unpinned = {dependency_name(line) for line in lines} - pinned - {"icl25-shared"}
    assert not unpinned, f"uv.toml has no pins for {sorted(unpinned)}; run `nox -s lock`"
