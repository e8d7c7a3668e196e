"""Claims of a paper as data: what it says, what was measured, and the rule that decides whether it holds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

from icl25_shared.files import read_json, to_jsonable, write_json

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Claim", "Estimate", "Rule", "claims_markdown", "claims_table", "read_claims", "write_claims"]

SCHEMA = 1

# The 97.5 % quantile of Student's t for 1 ... 30 degrees of freedom.
_T_QUANTILES = (
    *(12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139),
    *(2.200985, 2.178813, 2.160369, 2.144787, 2.131450, 2.119905, 2.109816, 2.100922, 2.093024, 2.085963),
    *(2.079614, 2.073873, 2.068658, 2.063899, 2.059539, 2.055529, 2.051831, 2.048407, 2.045230, 2.042272),
)
_NORMAL_QUANTILE = 1.959963984540054

_COMPARISONS = {
    ">=": lambda value, threshold: value >= threshold,
    "<=": lambda value, threshold: value <= threshold,
    ">": lambda value, threshold: value > threshold,
    "<": lambda value, threshold: value < threshold,
}


@dataclass(frozen=True)
class Estimate:
    """A measured quantity: its mean over ``n`` repetitions and the 95 % interval of that mean.

    ``low`` and ``high`` are NaN where one sample says nothing of the spread.
    """

    mean: float
    low: float
    high: float
    n: int
    samples: tuple[float, ...]

    @classmethod
    def from_samples(cls, samples: Iterable[float]) -> Self:
        """Estimate a mean from independent samples, with the Student-t interval mean +- t(n - 1) s / sqrt(n).

        Args:
            samples: The samples, for instance one for each seed; at least one.

        Returns:
            The estimate; for n = 1 its bounds are NaN.

        Raises:
            ValueError: If there is no sample, or one is NaN or infinite (the message says which).

        Example:
            >>> print(Estimate.from_samples([0.90, 0.92, 0.94]))
            0.92 [0.8703, 0.9697], n = 3
        """
        values = tuple(float(sample) for sample in samples)
        if not values:
            raise ValueError("an estimate needs at least one sample, found none")
        for position, value in enumerate(values):
            if not math.isfinite(value):
                raise ValueError(f"samples must be finite, found {value} at position {position}")
        n = len(values)
        mean = math.fsum(values) / n
        if n == 1:
            return cls(mean, math.nan, math.nan, 1, values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
        half_width = t_quantile(n - 1) * math.sqrt(variance / n)
        return cls(mean, mean - half_width, mean + half_width, n, values)

    @classmethod
    def exact(cls, value: float) -> Self:
        """Hold a quantity that has no sampling error (a count, a closed form): both bounds are the value itself.

        Raises:
            ValueError: If the value is NaN or infinite.
        """
        value = float(value)
        if not math.isfinite(value):
            raise ValueError(f"an exact value must be finite, found {value}")
        return cls(value, value, value, 1, (value,))

    def __str__(self) -> str:
        if self.n == 1:
            return f"{self.mean:.4g}" if self.low == self.mean else f"{self.mean:.4g} (n = 1)"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}], n = {self.n}"


@dataclass(frozen=True)
class Rule:
    """The rule that decides a claim, fixed before the measurement: ``str(Rule(">=", 0.1))`` is ``mean >= 0.1``.

    Attributes:
        comparison: How the measured value is compared with the threshold.
        threshold: The value to compare with.
        on: What is compared: the mean, a bound of the 95 % interval, or every single sample.
    """

    comparison: Literal[">=", "<=", "<", ">"]
    threshold: float
    on: Literal["mean", "low", "high", "every"] = "mean"

    def __post_init__(self) -> None:
        if self.comparison not in _COMPARISONS:
            raise ValueError(f"comparison must be one of {', '.join(_COMPARISONS)}, found {self.comparison!r}")
        if self.on not in ("mean", "low", "high", "every"):
            raise ValueError(f"on must be mean, low, high or every, found {self.on!r}")
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite, found {self.threshold}")

    def holds(self, estimate: Estimate) -> bool:
        """Say whether an estimate meets the rule; a bound that is NaN meets none."""
        values = estimate.samples if self.on == "every" else (getattr(estimate, self.on),)
        return bool(values) and all(_COMPARISONS[self.comparison](value, self.threshold) for value in values)

    def __str__(self) -> str:
        subject = {"mean": "mean", "low": "lower bound", "high": "upper bound", "every": "every sample"}[self.on]
        return f"{subject} {self.comparison} {self.threshold:g}"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper and what became of it.

    Attributes:
        id: Short and stable, in lower case with dashes, for instance ``"noisy-labels-auc"``.
        statement: The paper's sentence in our own words.
        paper: The paper's number, or ``"not stated"``.
        source: Where it stands: a section, table, figure or equation.
        measured: What was measured.
        rule: What decides.
        unit: Unit of the measured value, if any.
        note: What a reader must know besides, for instance a smaller scale.
        headline: Whether the claim stands on the front page for its paper.
    """

    id: str
    statement: str
    paper: str
    source: str
    measured: Estimate
    rule: Rule
    unit: str = ""
    note: str = ""
    headline: bool = False

    @property
    def holds(self) -> bool:
        """Whether the measurement meets the rule."""
        return self.rule.holds(self.measured)

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as JSON holds it, with ``holds`` added for readers that know no rules."""
        return {**to_jsonable(self), "holds": self.holds}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make a claim from ``to_dict``.

        Raises:
            ValueError: If a key is missing or unknown, or ``holds`` contradicts the numbers.
        """
        given = dict(data)
        stated = given.pop("holds", None)
        name = f"claim {data.get('id', '(without id)')!r}"
        parts = _keyword_arguments(cls, given, name)
        measured = _keyword_arguments(Estimate, parts["measured"], f"{name}, measured")
        for bound in ("low", "high"):
            measured[bound] = math.nan if measured[bound] is None else measured[bound]
        measured["samples"] = tuple(measured["samples"])
        parts["measured"] = Estimate(**measured)
        parts["rule"] = Rule(**_keyword_arguments(Rule, parts["rule"], f"{name}, rule"))
        claim = cls(**parts)
        if stated is not None and stated != claim.holds:
            raise ValueError(f"{name} says holds = {stated}, but its numbers say {claim.holds}")
        return claim


def claims_table(claims: Sequence[Claim], title: str) -> Table:
    """Lay out claims for the terminal.

    Args:
        claims: The claims, in the order of the rows.
        title: Heading of the table.

    Returns:
        A ``rich.table.Table``.
    """
    from rich.table import Table
    from rich.text import Text

    held = sum(claim.holds for claim in claims)
    table = Table(title=Text(title), title_justify="left", caption=f"{held} of {len(claims)} claims hold")
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for claim in claims:
        # Texts, not markup: a console may have markup switched off, and a statement may hold brackets.
        verdict = Text("yes", style="green") if claim.holds else Text("no", style="bold red")
        table.add_row(*(Text(cell) for cell in _cells(claim)), verdict)
    return table


def claims_markdown(claims: Sequence[Claim]) -> str:
    """Lay out claims as a Markdown table.

    Args:
        claims: The claims, in the order of the rows.

    Returns:
        The table, ending in a line break.
    """
    rows = [_HEADINGS, ("---",) * len(_HEADINGS)]
    for claim in claims:
        cells = [" ".join(cell.replace("|", "\\|").split()) for cell in _cells(claim)]
        rows.append((*cells, "yes" if claim.holds else "**no**"))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write_claims(path: str | os.PathLike[str], claims: Sequence[Claim], *, package: str, force: bool = False) -> None:
    """Write ``claims.json``; the same claims give the same bytes.

    Args:
        path: The file to write.
        claims: The claims, with distinct ids.
        package: Short name of the package, for instance ``"sava"``.
        force: Replace a file that exists.

    Raises:
        ValueError: If two claims have the same id.
        FileExistsError: If the file exists and ``force`` is false.
    """
    ids = [claim.id for claim in claims]
    doubles = sorted({identifier for identifier in ids if ids.count(identifier) > 1})
    if doubles:
        raise ValueError(f"claim ids must be distinct, found more than once: {', '.join(doubles)}")
    document = {"schema": SCHEMA, "package": package, "claims": [claim.to_dict() for claim in claims]}
    write_json(path, document, force=force)


def read_claims(path: str | os.PathLike[str]) -> list[Claim]:
    """Read what ``write_claims`` wrote.

    Args:
        path: The ``claims.json``.

    Returns:
        The claims.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no JSON, of another schema, or contradicts itself; the message names it.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or "claims" not in document:
        raise ValueError(f"{path} is no claims file of schema {SCHEMA}")
    try:
        return [Claim.from_dict(entry) for entry in document["claims"]]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def t_quantile(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t, to six digits.

    Up to 30 degrees of freedom from a table, beyond by the Cornish-Fisher expansion about the normal quantile
    (Abramowitz and Stegun, 26.7.5), whose error there is below 1e-7.

    Args:
        degrees: Degrees of freedom, >= 1.

    Returns:
        The quantile.

    Raises:
        ValueError: If ``degrees`` is less than 1.
    """
    if degrees < 1:
        raise ValueError(f"degrees of freedom must be >= 1, found {degrees}")
    if degrees <= len(_T_QUANTILES):
        return _T_QUANTILES[degrees - 1]
    z = _NORMAL_QUANTILE
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * degrees**4)
    )


_HEADINGS = ("Claim", "Paper", "Measured (mean, 95 % interval)", "Holds if", "Holds")


def _cells(claim: Claim) -> tuple[str, str, str, str]:
    statement = f"{claim.statement} ({claim.note})" if claim.note else claim.statement
    unit = f" {claim.unit}" if claim.unit else ""
    return statement, f"{claim.paper} ({claim.source})", f"{claim.measured}{unit}", f"{claim.rule}{unit}"


def _keyword_arguments(kind: Any, data: Any, name: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{name} must be an object, found {type(data).__name__}")
    names = {field.name for field in fields(kind)}
    optional = {field.name for field in fields(kind) if field.default is not MISSING}
    unknown = sorted(set(data) - names)
    missing = sorted(names - optional - set(data))
    if unknown or missing:
        raise ValueError(f"{name} has unknown keys {unknown} and lacks {missing}")
    return dict(data)
