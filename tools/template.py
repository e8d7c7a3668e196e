"""Write the skeleton of a new package from `templates/package`."""

import keyword
import re
import shutil
from pathlib import Path

from tools.packages import ROOT, Package

TEMPLATE = ROOT / "templates" / "package"


def instantiate(slug: str, *, root: Path = ROOT) -> Path:
    """Write `packages/<slug>`.

    Placeholders in file names and contents: `__slug__`, `__module__` and `__Title__`.

    Args:
        slug: Lower-case words joined by dashes, such as `my-paper`.
        root: The checkout.

    Returns:
        The new folder.

    Raises:
        ValueError: If the slug is not of that form, or the package exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug) or keyword.iskeyword(slug) or slug == "shared":
        raise ValueError(f"{slug!r} is no package name: lower-case words joined by dashes, such as my-paper")
    package = Package(slug, root / "packages" / slug)
    if package.root.exists():
        raise ValueError(f"packages/{slug} exists")
    values = {"__slug__": slug, "__module__": package.module, "__Title__": slug.replace("-", " ").capitalize()}
    for path in sorted(TEMPLATE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            target = package.root / _fill(str(path.relative_to(TEMPLATE)), values)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_fill(path.read_text(), values))
    shutil.copy(root / "LICENSE", package.root / "LICENSE")
    return package.root


def _fill(text: str, values: dict[str, str]) -> str:
    """Put the values in the place of their names."""
    for name, value in values.items():
        text = text.replace(name, value)
    return text
