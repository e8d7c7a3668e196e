"""Virtual environments under `.nox/envs`, made by uv under the pins of uv.toml and kept until a declaration changes."""

import hashlib
import os
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tools.packages import ROOT, Package
from tools.shell import Shell

_LOCKS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def uv() -> str:
    """The uv program: the one on PATH, else the one beside this interpreter."""
    found = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if found is None:
        raise RuntimeError("uv is neither on PATH nor beside this Python; install it with `pip install uv`")
    return found


def wanted_python() -> str:
    """The Python that environments are made with: `ICL25_PYTHON`, else the running one."""
    return os.environ.get("ICL25_PYTHON") or sys.executable


def ensure(shell: Shell, name: str, arguments: Sequence[str], declared_in: Sequence[Path]) -> Path:
    """Make an environment, unless it stands already with the same declarations.

    Args:
        shell: Runs the commands.
        name: The environment's name.
        arguments: The requirements for `uv pip install`.
        declared_in: The files whose content decides whether the environment is still right.

    Returns:
        The environment's Python.
    """
    folder = ROOT / ".nox" / "envs" / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "icl25-stamp"
    digest = hashlib.sha256(repr([wanted_python(), sys.version_info[:2], *arguments]).encode())
    for path in [ROOT / "uv.toml", *declared_in]:
        digest.update(path.read_bytes())
    with _LOCKS[name]:
        if not (python.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest()):
            shell.run(uv(), "venv", "--clear", "--python", wanted_python(), folder, quiet=True)
            shell.run(uv(), "pip", "install", "--python", python, *arguments, quiet=True)
            stamp.write_text(digest.hexdigest())
    return python


def package_environment(shell: Shell, package: Package, kind: str) -> Path:
    """The environment of one package.

    Args:
        shell: Runs the commands.
        package: Which one.
        kind: `core` holds the declared dependencies alone, `tests` the test tools as well, `extras` the
            optional dependencies of the tests on top, `bench` the group of that name too, where there is one.

    Returns:
        The environment's Python.
    """
    extras = f"[{','.join(package.test_extras)}]" if kind in {"extras", "bench"} and package.test_extras else ""
    arguments = ["-e", f"./{package.root.relative_to(ROOT)}{extras}"]
    if package.slug != "shared":
        arguments += ["-e", "./shared"]
    if kind != "core":
        arguments += ["--group", "pyproject.toml:test"]
        for group in ("test", "bench") if kind == "bench" else ("test",):
            if group in package.pyproject.get("dependency-groups", {}):
                arguments += ["--group", f"{package.root.relative_to(ROOT)}/pyproject.toml:{group}"]
    declared_in = [ROOT / "pyproject.toml", ROOT / "shared/pyproject.toml", package.root / "pyproject.toml"]
    return ensure(shell, f"{kind}-{package.slug}", arguments, declared_in)


def workspace_environment(shell: Shell, *groups: str) -> Path:
    """The environment of the workspace's own tools: `shared` and dependency groups of the root project."""
    arguments = ["-e", "./shared"]
    for group in groups:
        arguments += ["--group", f"pyproject.toml:{group}"]
    declared_in = [ROOT / "pyproject.toml", ROOT / "shared/pyproject.toml"]
    return ensure(shell, "-".join(["workspace", *groups]), arguments, declared_in)
