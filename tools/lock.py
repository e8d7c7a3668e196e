"""Write uv.toml: one exact version of every third-party package, for all supported Pythons."""

import tomllib
from collections import Counter
from pathlib import Path

from tools.environments import uv
from tools.packages import ROOT, Package, dependency_name, discover
from tools.shell import Shell

_HEADER = "# Written by `nox -s lock`: the exact version of every third-party package.\n"


def write_pins(shell: Shell, *, upgrade: bool) -> str:
    """Resolve all packages with all their extras and groups together, and keep the result in uv.toml.

    Args:
        shell: Runs the commands.
        upgrade: Take the newest versions; otherwise what is pinned stays where it still fits.

    Returns:
        A note on how many pins there are.
    """
    work = ROOT / ".nox" / "lock"
    work.mkdir(parents=True, exist_ok=True)
    pins = ROOT / "uv.toml"
    resolved, holds = work / "resolved.txt", work / "holds.txt"
    root = Package("workspace", ROOT)
    holds.write_text("".join(f"{line}\n" for line in root.settings.get("holds", [])))
    # uv takes the versions in its output file as preferences, which keeps the change small.
    previous = tomllib.loads(pins.read_text()).get("constraint-dependencies", []) if pins.exists() else []
    resolved.write_text("" if upgrade else "".join(f"{line}\n" for line in previous))
    shell.run(
        *(uv(), "pip", "compile", "--no-config", "--universal", "--python-version", "3.11"),
        *("--all-extras", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
        *("--constraint", holds, "--output-file", resolved),
        *_declarations(root),
        # Wheels of a local folder carry local versions, which nobody else could install.
        env={"UV_FIND_LINKS": ""},
        quiet=True,
    )
    lines = sorted(parse_pins(resolved.read_text()), key=str.lower)
    pins.write_text(_HEADER + "constraint-dependencies = [\n" + "".join(f'  "{line}",\n' for line in lines) + "]\n")
    return f"{len(lines)} pins"


def parse_pins(compiled: str) -> list[str]:
    r"""The pins in the output of `uv pip compile`, without the workspace's own packages.

    A marker stays only where a distribution has several versions: elsewhere the pin may hold everywhere.

    >>> parse_pins("jax==1 ; python_version < '3.12'")
    ['jax==1']
    >>> parse_pins("-e ./shared\ntorch==2.0.0+cpu\n    # via timm")
    ['torch==2.0.0']
    """
    lines = [line for line in compiled.splitlines() if "==" in line and not line.startswith(("-", "#", " "))]
    names = Counter(dependency_name(line) for line in lines)
    pins = []
    for line in lines:
        name = dependency_name(line)
        requirement, separator, marker = line.partition(" ; ")
        pin = requirement.split("+", 1)[0].strip()
        if not name.startswith("icl25-"):
            pins.append(pin + separator + marker.replace('"', "'").strip() if names[name] > 1 else pin)
    return pins


def _declarations(root: Package) -> list[str | Path]:
    """Every file and dependency group that something is installed from."""
    shared = Package("shared", ROOT / "shared")
    arguments: list[str | Path] = []
    for package in [root, shared, *discover()]:
        path = package.root / "pyproject.toml"
        if package is not root:
            arguments.append(path)
        for group in package.pyproject.get("dependency-groups", {}):
            arguments += ["--group", f"{path}:{group}"]
    return arguments
