"""A copy of the workspace with one package from the template, to change at will."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from tools.environments import uv
from tools.packages import ROOT
from tools.shell import base_environment

COPIED = ["noxfile.py", "pyproject.toml", "uv.toml", "README.md", "LICENSE", "shared", "templates", "tests", "tools"]
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*_cache", ".hypothesis", "workspace")


class Workspace:
    """A checkout in a temporary folder."""

    def __init__(self, root):
        self.root = root
        for name in COPIED:
            source, target = ROOT / name, root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=NOT_COPIED)
            else:
                shutil.copy(source, target)

    def nox(self, *arguments):
        return self.run(uv(), "run", "--quiet", "--python", sys.executable, "nox", *arguments)

    def pytest(self, *arguments):
        """Run the contract of the copy."""
        options = ["-q", "--tb=short", "-p", "no:cacheprovider"]
        # It runs dozens of times here: pytest starts faster without plugins.
        return self.run(sys.executable, "-m", "pytest", *options, *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")

    def run(self, *command, **variables):
        env = {**base_environment(), "NO_COLOR": "1", **variables}
        return subprocess.run(
            [str(part) for part in command], cwd=self.root, env=env, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="session")
def skeleton(workspace):
    """The folder of a package that was just made from the template."""
    done = workspace.nox("-s", "new", "--", "my-paper")
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace.root / "packages/my-paper"


@pytest.fixture(scope="session")
def python(workspace, skeleton):
    """The Python of an environment with the package and its declared dependencies."""
    folder = workspace.root / "env"
    python = folder / "bin/python"
    for command in (
        [uv(), "venv", "--python", sys.executable, folder],
        [uv(), "pip", "install", "--python", python, "-e", "./packages/my-paper", "-e", "./shared"],
    ):
        done = workspace.run(*command)
        assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="session")
def finished(workspace, skeleton, python, tmp_path_factory):
    """A second copy of the workspace, in which an author filled in everything that the template leaves open."""
    other = Workspace(tmp_path_factory.mktemp("finished"))
    package = other.root / "packages/my-paper"
    shutil.copytree(skeleton, package, ignore=NOT_COPIED)
    for path in package.rglob("*"):
        if path.suffix in {".py", ".md", ".toml"}:
            text = path.read_text().replace("FILL-IN", "2501.00001")
            text = text.replace("FILL IN\n```", "@misc{x, note = {https://arxiv.org/abs/2501.00001}}\n```").replace(
                '"skeleton"', '"preview"'
            )
            text = re.sub(r"## (What was reproduced|Speed)\n", r"## \1\n\nOf 2 things 2.\n", text)
            path.write_text(text.replace("FILL IN: ", "Of ").replace("FILL IN", "Of it"))
    picture = Image.new("RGB", (200, 200), "white")
    ImageDraw.Draw(picture).line((0, 0, 200, 200), fill="black", width=5)
    (package / "docs").mkdir()
    picture.save(package / "docs/overview.png")
    for verb in ("demo", "reproduce"):
        done = other.run(python.with_name("icl25-my-paper"), verb, "--out", package / "results" / verb)
        assert done.returncode == 0, done.stderr
        for path in (package / "results" / verb).iterdir():
            if path.name != "claims.json":
                path.unlink()
    return other


@pytest.fixture
def folder(finished):
    """The finished package; whatever a test changes in it is put back."""
    folder = finished.root / "packages/my-paper"
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    yield folder
    for path in folder.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, content in kept.items():
        Path(path).write_bytes(content)
