"""The scoreboard: collect claims, show them, and write the tables of README.md.

Run as `python -m tools.scoreboard show demo|show reproduce|update|check`, where `icl25_shared` is installed.
"""

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from icl25_shared.claims import Claim, claims_markdown, claims_table, read_claims
from tools.packages import ROOT, Package, discover

VERBS = ("demo", "reproduce")


def kept_claims(package: Package) -> dict[str, list[Claim]]:
    """The claims that are kept as evidence in a package, by the verb that measured them."""
    paths = {verb: package.root / "results" / verb / "claims.json" for verb in VERBS}
    return {verb: read_claims(path) for verb, path in paths.items() if path.exists()}


def headline(package: Package) -> str:
    """The claim that stands for a paper on the front page, with its number, in one line of Markdown."""
    kept = kept_claims(package)
    claims = [claim for verb in reversed(VERBS) for claim in kept.get(verb, [])]
    chosen = next((claim for claim in claims if claim.headline), claims[0] if claims else None)
    if chosen is None:
        return "not measured yet"
    unit = f" {chosen.unit}" if chosen.unit else ""
    verdict = "" if chosen.holds else " (**does not hold**)"
    return _cell(f"{chosen.statement}: {chosen.measured}{unit}{verdict}")


def papers_table(packages: Sequence[Package]) -> str:
    """The front page's table of papers, from the packages' metadata and evidence."""
    rows = [
        "| Paper | What it does for you | Install | Status | Headline claim, measured |",
        "| --- | --- | --- | --- | --- |",
    ]
    for package in packages:
        settings = package.settings
        title = f"[{settings.get('paper')}]({package.paper_link}) ({settings.get('authors')})"
        name = f"[{settings.get('summary')}](packages/{package.slug}/README.md)"
        install = f"`pip install {package.distribution}`"
        rows.append(f"| {title} | {name} | {install} | {settings.get('status')} | {headline(package)} |")
    return "\n".join(rows) + "\n"


def scoreboard(packages: Sequence[Package]) -> str:
    """Every claim that is kept as evidence, package by package, in Markdown."""
    parts = []
    held, total = 0, 0
    for package in packages:
        for verb, claims in kept_claims(package).items():
            parts.append(f"**{package.distribution} {verb}**\n\n{claims_markdown(claims)}")
            held, total = held + sum(claim.holds for claim in claims), total + len(claims)
    return "\n".join([f"{held} of {total} claims hold.\n", *parts])


def update_readme(text: str, packages: Sequence[Package]) -> str:
    """The front page with both tables renewed.

    Raises:
        ValueError: If the marks around a table are missing.
    """
    for name, table in (("papers", papers_table(packages)), ("scoreboard", scoreboard(packages))):
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"README.md has no block between {start} and {end}")
        text = pattern.sub(lambda _, block=f"{start}\n\n{table}\n{end}": block, text)
    return text


def collect(packages: Sequence[Package], runs: Path) -> list[Path]:
    """Copy the claims that lie in `runs/{demo,reproduce}/<slug>` into the packages, as evidence."""
    copied = []
    for package in packages:
        for verb in VERBS:
            source = runs / verb / package.slug / "claims.json"
            if source.exists():
                target = package.root / "results" / verb / "claims.json"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
                copied.append(target)
    return copied


def show(verb: str, packages: Sequence[Package], runs: Path) -> None:
    """Print the claims of the latest runs as tables, and how many hold."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    held, total = 0, 0
    for package in packages:
        path = runs / verb / package.slug / "claims.json"
        if path.exists():
            claims = read_claims(path)
            console.print(claims_table(claims, f"{package.distribution} {verb}"), "")
            held, total = held + sum(claim.holds for claim in claims), total + len(claims)
        else:
            console.print(f"{package.distribution} {verb}: no claims.json in {path.parent.relative_to(runs.parent)}\n")
    console.print(f"Scoreboard: {held} of {total} claims hold.")


def main(arguments: Sequence[str]) -> int:
    """Carry out one command; 1 says that README.md is stale."""
    packages, readme, runs = discover(), ROOT / "README.md", ROOT / "runs"
    command, *rest = arguments
    if command == "show":
        show(rest[0], packages, runs)
        return 0
    if command == "update":
        for path in collect(packages, runs):
            sys.stdout.write(f"kept {path.relative_to(ROOT)}\n")
    text = readme.read_text()
    renewed = update_readme(text, packages)
    if command == "check" and renewed != text:
        sys.stderr.write("README.md is stale; run `uv run nox -s scoreboard`\n")
        return 1
    if command == "update":
        readme.write_text(renewed)
    return 0


def _cell(text: str) -> str:
    """Text that a Markdown table cell can hold."""
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
