"""Find the packages of the workspace and read what their metadata says."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """One installable project of the workspace: a paper under `packages/`, or `shared`.

    Args:
        slug: The folder's name, which also names the distribution, the module and the command.
        root: The folder.
    """

    slug: str
    root: Path

    @property
    def distribution(self) -> str:
        """The name under which pip knows it."""
        return f"icl25-{self.slug}"

    @property
    def module(self) -> str:
        """The name under which Python imports it."""
        return f"icl25_{self.slug.replace('-', '_')}"

    @property
    def source(self) -> Path:
        """The folder of the import package."""
        return self.root / "src" / self.module

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """The parsed `pyproject.toml`."""
        return tomllib.loads((self.root / "pyproject.toml").read_text())

    @property
    def project(self) -> dict[str, Any]:
        """The `[project]` table."""
        return self.pyproject.get("project", {})

    @property
    def settings(self) -> dict[str, Any]:
        """The `[tool.icl25]` table."""
        return self.pyproject.get("tool", {}).get("icl25", {})

    @property
    def paper_link(self) -> str:
        """Where the paper is read."""
        return self.project.get("urls", {}).get("Paper", "")

    @property
    def test_extras(self) -> list[str]:
        """The extras whose tests run in the second pass."""
        return list(self.settings.get("test-extras", []))

    def depends_on(self, distribution: str) -> bool:
        """Whether a distribution is among the core dependencies."""
        names = (dependency_name(line) for line in self.project.get("dependencies", []))
        return distribution in names


def dependency_name(requirement: str) -> str:
    """The normalised distribution name of a requirement line (`POT>=0.9.5` gives `pot`)."""
    name = requirement
    for mark in "[<>=!~;@ (":
        name = name.split(mark, 1)[0]
    return name.strip().lower().replace("_", "-").replace(".", "-")


def discover(root: Path = ROOT) -> list[Package]:
    """All papers under `packages/`, by name."""
    return [Package(path.parent.name, path.parent) for path in sorted(root.glob("packages/*/pyproject.toml"))]


def select(names: Sequence[str], *, root: Path = ROOT, with_shared: bool = True) -> list[Package]:
    """The packages of those names, or all when no name is given.

    Args:
        names: Slugs; `icl25-<slug>` and `packages/<slug>` are understood too.
        root: The checkout.
        with_shared: Whether `shared` counts as one of them.

    Raises:
        ValueError: If there is no package of that name.
    """
    found = {package.slug: package for package in discover(root)}
    if with_shared:
        found["shared"] = Package("shared", root / "shared")
    if not names:
        return list(found.values())
    wanted = [Path(name.rstrip("/")).name.removeprefix("icl25-") for name in names]
    for name in wanted:
        if name not in found:
            raise ValueError(f"no package {name!r}; there are: {', '.join(found)}")
    return [found[name] for name in dict.fromkeys(wanted)]
