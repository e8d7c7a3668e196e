"""A README holds what a reader looks for, in the order in which they look for it."""

import re
from urllib.parse import urlparse

SECTIONS = [
    "Install",
    "Quick start",
    "Input and output",
    "Options that matter",
    "What was reproduced",
    "Speed",
    "Limits",
    "Citation",
]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def text(package):
    return (package.root / "README.md").read_text()


def prose(package):
    return FENCED.sub("", text(package))


def sections(package):
    parts = re.split(r"^## +(.+?) *$", text(package), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_sections_stand_in_order(package):
    headings = re.findall(r"^## +(.+?) *$", prose(package), flags=re.MULTILINE)
    missing = [name for name in SECTIONS if name not in headings]
    assert not missing, f"README.md lacks the sections {missing}"
    assert [name for name in headings if name in SECTIONS] == SECTIONS, f"the order must be {SECTIONS}"


def test_it_opens_with_a_sentence_and_a_picture(package):
    lines = [line for line in text(package).partition("\n## ")[0].splitlines() if line.strip()]
    assert lines[0] == f"# {package.distribution}"
    assert len(lines) > 1, "README.md has no opening sentence"
    assert not lines[1].startswith(("!", "#", "-", "`", "<")), "the first line below the title must be a sentence"
    assert any(line.startswith("![") for line in lines), "a picture must stand above '## Install'"


def test_pictures_and_links_lead_somewhere(package):
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(package))
    broken = [target for target in targets if not urlparse(target).scheme and not (package.root / target).exists()]
    assert not broken, f"README.md points to files that do not exist: {broken}"


def test_install_line_names_the_package(package):
    line = f"pip install {package.distribution}"
    assert line in sections(package).get("Install", ""), f"'Install' lacks `{line}`"


def test_quick_start_has_a_command_and_python(package):
    quick = sections(package).get("Quick start", "")
    console = re.findall(r"^```console\n(.*?)^```", quick, re.MULTILINE | re.DOTALL)
    python = re.findall(r"^```python\n(.*?)^```", quick, re.MULTILINE | re.DOTALL)
    assert any(f"$ {package.distribution} " in block for block in console), "no ```console example of the command"
    assert any(package.module in block for block in python), "no ```python example that imports the package"


def test_sections_say_something(package):
    empty = [name for name in SECTIONS if len(sections(package).get(name, "").split()) < 3]
    assert not empty, f"README.md has empty sections {empty}"


def test_numbers_stand_where_they_are_promised(package):
    for name in ("What was reproduced", "Speed"):
        assert re.search(r"\d", sections(package).get(name, "")), f"'{name}' has no number"


def test_citation_names_the_paper(package):
    assert package.paper_link in text(package), "README.md does not link the paper"
    assert "@" in sections(package).get("Citation", ""), "no BibTeX entry"
