"""Read the help page of a verb: which flags and arguments it lists, and what it says of each."""

import re
from dataclasses import dataclass

# What tyro adds of its own.
_DEFAULTS = re.compile(r"\((default|required|optional|repeatable|fixed)[^)]*\)")


@dataclass(frozen=True)
class Entry:
    """A flag or an argument of a help page."""

    name: str
    positional: bool
    explanation: str

    @property
    def explained(self) -> bool:
        """Whether something stands beside it besides a default and its own name."""
        said = _DEFAULTS.sub("", self.explanation).strip()
        own = re.sub(r"\W", "", self.name.lower())
        return bool(re.search(r"\w{2}", said)) and re.sub(r"\W", "", said.lower()) != own


def entries(page: str) -> list[Entry]:
    """The flags and arguments of a page as tyro prints it, in boxes."""
    found: list[Entry] = []
    title = ""
    for line in page.splitlines():
        if line.startswith("╭"):
            title = line.strip("╭╮─ ")
        elif line.startswith("│"):
            content = line[1:].rstrip("│ ")
            name, _, explanation = content.strip().partition("  ")
            if re.match(r" \S", content):
                found.append(Entry(name, title.startswith("positional"), explanation.strip()))
            elif found:
                last = found.pop()
                found.append(Entry(last.name, last.positional, f"{last.explanation} {content.strip()}".strip()))
    return found
