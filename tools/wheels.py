"""Build the distributions and try each wheel as a person would who has nothing else."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.environments import uv, wanted_python, workspace_environment
from tools.packages import ROOT, Package, select
from tools.shell import Job, Shell

DIST = ROOT / "dist"


def build(shell: Shell, packages: Sequence[Package]) -> str:
    """Build the sdist and the wheel of each package, and of `shared`, which they need; check them with twine.

    Returns:
        A note on what was built.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    chosen = {package.slug: package for package in [*select(["shared"]), *packages]}
    for package in chosen.values():
        shell.run(uv(), "build", "--package", package.distribution, "--out-dir", DIST, quiet=True)
    files = sorted([*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")])
    twine = workspace_environment(shell, "release").with_name("twine")
    shell.run(twine, "check", "--strict", *files, quiet=True)
    return f"{len(files)} files in dist/"


def trial(package: Package, scratch: Path) -> Job:
    """Install one wheel into an empty environment outside the checkout and run what it brings."""

    def work(shell: Shell) -> None:
        folder = scratch / package.slug
        folder.mkdir()
        environment = folder / "env"
        python = environment / "bin/python"
        pins = ["--config-file", ROOT / "uv.toml", "--find-links", DIST]
        shell.run(uv(), "venv", "--python", wanted_python(), environment, cwd=folder, quiet=True)
        shell.run(
            *(uv(), "pip", "install", "--python", python, *pins, package.distribution),
            # A wheel of the same version from an earlier build must not come out of the cache.
            *("--refresh-package", package.distribution, "--refresh-package", "icl25-shared"),
            cwd=folder,
            quiet=True,
        )
        shell.run(python, "-c", f"import {package.module}", cwd=folder)
        for command in _commands(package):
            program = environment / "bin" / command[0]
            shell.run(program, *command[1:], cwd=folder, quiet=True)

    return Job(f"{package.slug} wheel", work)


def _commands(package: Package) -> list[list[str]]:
    """The command lines that a wheel must carry out: help, the demo's help and the package's own tiny run."""
    if "scripts" not in package.project:
        return []
    program = package.distribution
    tiny = package.settings.get("tiny-run", [[program, "--version"]])
    return [[program, "--help"], [program, "demo", "--help"], *tiny]
