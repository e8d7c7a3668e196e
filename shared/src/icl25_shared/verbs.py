"""What a verb of a command line is made of: its flags, its result, and the error that blames the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from icl25_shared.devices import check_device_name

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CommonFlags", "InputError", "Output"]


class InputError(ValueError):
    """What the user passed in is wrong: one line that says what was expected and what was found; exit status 2."""


@dataclass(frozen=True, kw_only=True)
class CommonFlags:
    """The flags of every verb; a verb is a frozen, keyword-only dataclass that inherits them and has ``run``.

    A verb with a ``__post_init__`` of its own calls the inherited one too, which refuses what no verb can take.
    """

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of every random draw; the same seed gives the same result."""

    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""

    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR", help_behavior_hint="")] = None
    """Where the result goes. Default: a new folder in runs/, unless the verb says otherwise."""

    quiet: bool = False
    """Show warnings and errors only."""

    verbose: bool = False
    """Show what happens inside as well."""

    json: bool = False
    """Print the result as JSON, and nothing else, on standard output."""

    force: bool = False
    """Replace results that exist."""

    debug: bool = False
    """Show the traceback of an error instead of one line."""

    log_json: bool = False
    """Write messages and progress as JSON lines to standard error."""

    def __post_init__(self) -> None:
        """Refuse flags that are wrong whatever the verb."""
        if self.quiet and self.verbose:
            raise InputError("--quiet and --verbose exclude each other")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"--seed must be a whole number from 0 to 2**63 - 1, found {self.seed}")
        try:
            check_device_name(self.device)
        except ValueError as error:
            raise InputError(f"--{error}") from None

    def run(self) -> Output:
        """Do the work of the verb.

        Returns:
            What is to be printed, and whether the run counts as a success.

        Raises:
            NotImplementedError: If the verb does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define run()")


@dataclass(frozen=True)
class Output:
    """The result of a verb.

    Attributes:
        data: What ``--json`` prints; anything that ``icl25_shared.files.to_jsonable`` takes.
        view: What is printed otherwise: strings, rich tables and the like, one below the other.
        ok: False where the run came to its end and failed (a claim does not hold, a solver did not converge): exit
            status 1.
    """

    data: Mapping[str, Any]
    view: Sequence[RenderableType] = ()
    ok: bool = True
