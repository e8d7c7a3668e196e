"""What a check of demonstrations found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

__all__ = ["Finding", "Report"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: ``"error"``: learning from this fails or means something else; ``"warning"``: it may; ``"ok"``.
        code: What was looked at, such as ``"action-scale"``.
        message: What was found and what to do about it.
        numbers: What was measured.
    """

    level: Literal["error", "warning", "ok"]
    code: str
    message: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All findings of a check.

    Attributes:
        findings: The findings, those that matter most first.
    """

    findings: tuple[Finding, ...]

    def __str__(self) -> str:
        width = max((len(finding.code) for finding in self.findings), default=0)
        return "\n".join(f"{found.level:<7}  {found.code:<{width}}  {found.message}" for found in self.findings)

    @property
    def ok(self) -> bool:
        """Whether there is no error; there may be warnings."""
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are errors."""
        return tuple(finding for finding in self.findings if finding.level == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that are warnings."""
        return tuple(finding for finding in self.findings if finding.level == "warning")

    def of(self, code: str) -> tuple[Finding, ...]:
        """Return the findings of one code.

        Args:
            code: Such as ``"action-scale"``.

        Returns:
            The findings; empty where that was not looked at.
        """
        return tuple(finding for finding in self.findings if finding.code == code)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each finding: ``level``, ``code``, ``message`` and ``numbers``."""
        rows = [(found.level, found.code, found.message, dict(found.numbers)) for found in self.findings]
        return pd.DataFrame(rows, columns=["level", "code", "message", "numbers"])
