"""Build the documentation site: a page and an API page for each package, and a gallery of their pictures.

MkDocs reads the sources through griffe, so that no package is imported. Its configuration is written anew each time
from the packages that are found.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlparse

from tools.docstrings import public_definitions
from tools.environments import workspace_environment
from tools.packages import ROOT, Package, discover
from tools.shell import Shell

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_EXTENSIONS = [
    "admonition",
    "attr_list",
    "md_in_html",
    "tables",
    {"toc": {"permalink": True}},
    "pymdownx.superfences",
    {"pymdownx.highlight": {"anchor_linenums": False}},
]


def build(shell: Shell) -> str:
    """Write pages and configuration under .nox/site and build them into site/; a warning fails.

    Returns:
        A note on where it lies.
    """
    work = ROOT / ".nox" / "site"
    shutil.rmtree(work, ignore_errors=True)
    papers, shared = discover(), Package("shared", ROOT / "shared")
    write_pages(work / "docs", papers, shared)
    (work / "mkdocs.yml").write_text(json.dumps(configuration(work, papers, shared), indent=2))
    # ruff breaks long signatures into lines.
    python = workspace_environment(shell, "docs", "lint")
    # The theme announces its successor's plans in a banner of many lines.
    quiet = {"NO_MKDOCS_2_WARNING": "true"}
    shell.run(python, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", work / "mkdocs.yml", env=quiet)
    return "site/index.html"


def configuration(work: Path, papers: Sequence[Package], shared: Package) -> dict:
    """The configuration of MkDocs; JSON is YAML."""
    handler = {
        "paths": [str(package.root / "src") for package in [*papers, shared]],
        "options": {
            "docstring_style": "google",
            "docstring_section_style": "list",
            "heading_level": 2,
            "merge_init_into_class": True,
            "separate_signature": True,
            "show_root_heading": True,
            "show_root_full_path": False,
            "show_signature_annotations": True,
            "show_source": True,
            "line_length": 100,
        },
    }
    pages = [_navigation(package) for package in papers]
    return {
        "site_name": "icl25",
        "docs_dir": str(work / "docs"),
        "site_dir": str(ROOT / "site"),
        "use_directory_urls": False,
        # Without fonts from elsewhere, a page asks nobody for anything.
        "theme": {"name": "material", "font": False, "features": ["navigation.indexes", "navigation.top"]},
        "nav": [{"Home": "index.md"}, {"Gallery": "gallery.md"}, *pages, _navigation(shared)],
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": handler}}}],
        "markdown_extensions": _EXTENSIONS,
    }


def write_pages(docs: Path, papers: Sequence[Package], shared: Package) -> None:
    """Write the Markdown sources of the site."""
    docs.mkdir(parents=True)
    homes = {f"packages/{package.slug}/README.md": f"{package.slug}/index.md" for package in papers}
    homes["shared/README.md"] = "shared/index.md"
    (docs / "index.md").write_text(relink((ROOT / "README.md").read_text(), ROOT, docs, homes))
    for package in [*papers, shared]:
        folder = docs / package.slug
        folder.mkdir()
        (folder / "index.md").write_text(relink((package.root / "README.md").read_text(), package.root, folder, {}))
        (folder / "api.md").write_text(api_page(package))
    (docs / "gallery.md").write_text(gallery(docs, papers))


def api_page(package: Package) -> str:
    """One heading for each public name, where it is defined."""
    lines = [f"# {package.module}\n"]
    for definition in public_definitions(package):
        path = Path(definition.file).relative_to("src").with_suffix("")
        lines.append(f"::: {'.'.join(path.parts).removesuffix('.__init__')}.{definition.name}\n")
    return "\n".join(lines)


def gallery(docs: Path, papers: Sequence[Package]) -> str:
    """The pictures of all packages, under what each package does."""
    parts = ["# Gallery\n"]
    for package in papers:
        parts.append(f"## [{package.distribution}]({package.slug}/index.md)\n\n{package.settings.get('summary', '')}\n")
        for picture in sorted((package.root / "docs").glob("*.*")):
            if picture.suffix in {".png", ".svg", ".jpg", ".webp"}:
                target = docs / package.slug / "docs" / picture.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(picture, target)
                parts.append(f"![{picture.stem.replace('_', ' ')}]({package.slug}/docs/{picture.name})\n")
    return "\n".join(parts)


def relink(text: str, root: Path, folder: Path, homes: dict[str, str]) -> str:
    """Make the relative links of a README lead somewhere on the site.

    Args:
        text: The README.
        root: The folder in which it lies.
        folder: The folder in which its page lies; files that it links are copied there.
        homes: The pages of READMEs that it links.

    Returns:
        The text; a link to what has no place on the site becomes plain text.
    """

    def replace(match: re.Match[str]) -> str:
        mark, label, target, anchor = match[1], match[2], match[3], match[4] or ""
        if urlparse(target).scheme:
            return match[0]
        if target in homes:
            return f"{mark}[{label}]({homes[target]}{anchor})"
        source = (root / target).resolve()
        if not source.is_file() or not source.is_relative_to(root) or source.suffix == ".md":
            return label
        copy = folder / source.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        return match[0]

    return _LINK.sub(replace, text)


def _navigation(package: Package) -> dict:
    """The entry of one package in the site's menu."""
    return {package.distribution: [f"{package.slug}/index.md", {"API": f"{package.slug}/api.md"}]}
