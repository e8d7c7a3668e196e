"""Command lines over tyro: verbs as frozen dataclasses, flags that mean the same everywhere, one line for an error."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import functools
import inspect
import io
import json
import os
import re
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from icl25_shared.files import to_jsonable
from icl25_shared.logs import configure_logging

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["CommonFlags", "InputError", "Output", "run_cli"]

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# Width of a table that goes to a file or a pipe, where no terminal says how wide it may be.
_PIPE_WIDTH = 120


class InputError(ValueError):
    """What the user passed in is wrong: one line that says what was expected and what was found; exit status 2."""


_INPUT_ERRORS = (
    ValueError,
    TypeError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    FileExistsError,
)


@dataclass(frozen=True, kw_only=True)
class CommonFlags:
    """The flags of every verb; a verb is a frozen, keyword-only dataclass that inherits them and has ``run``."""

    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Seed of every random draw; the same seed gives the same result."""

    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""

    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="DIR", help_behavior_hint="")] = None
    """Where the result goes; without it, where the verb says."""

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
        data: What ``--json`` prints; anything that :func:`icl25_shared.files.to_jsonable` takes.
        view: What is printed otherwise: strings, rich tables and the like, one below the other.
        ok: False where the run came to its end and failed (a claim does not hold, a solver did not converge): exit
            status 1.
    """

    data: Mapping[str, Any]
    view: Sequence[RenderableType] = ()
    ok: bool = True


def run_cli(
    prog: str,
    description: str,
    verbs: Mapping[str, type[CommonFlags]],
    argv: Sequence[str] | None = None,
    version: str | None = None,
) -> int:
    """Parse a command line, run its verb, print the result, and return the exit status.

    Whatever the verb itself prints goes to standard error, so that standard output holds the result alone. Expected
    errors are one line on standard error (``icl25-sava value: error: ...``); ``--debug`` shows their traceback.

    Args:
        prog: Name of the command, which is that of the distribution too.
        description: What it does, in a sentence or two.
        verbs: The dataclass of each verb. Its docstring, and the docstrings below its fields, are the help.
        argv: The arguments; by default those of the process.
        version: What ``--version`` prints; by default the version of the distribution ``prog``.

    Returns:
        0: done. 1: ``Output.ok`` is false, or an unexpected error. 2: the command line or the input is wrong
        (``InputError``, any ``ValueError`` or ``TypeError``, a file that is missing, exists, is a folder or is not
        permitted). 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    first = arguments[0] if arguments else ""
    if first == "--version":
        sys.stdout.write(f"{prog} {version or _installed_version(prog)}\n")
        return OK
    if first not in verbs:
        return _without_verb(prog, description, verbs, arguments)
    name = f"{prog} {first}"
    try:
        command = _parse_verb(name, verbs[first], arguments[1:])
    except SystemExit as stop:  # tyro has printed the help
        return stop.code if isinstance(stop.code, int) else OK
    except ValueError as error:
        return _fail(name, _one_line(error), BAD_INPUT, debug="--debug" in arguments)
    with _logging_for(command):
        return _run(name, command)


def _run(name: str, command: CommonFlags) -> int:
    """Run a verb and turn every outcome into an exit status."""
    fail = functools.partial(_fail, name, debug=command.debug)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            output = command.run()
        _print_output(output, as_json=command.json)
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain once more when it flushes at exit.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except _INPUT_ERRORS as error:
        return fail(_one_line(error), BAD_INPUT)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" while writing {error.filename}" if error.filename else ""
            return fail(f"the disk is full{where}: free some space or choose another --out", FAILED)
        return fail(_internal(error), FAILED)
    except MemoryError:
        return fail("there is not enough memory for this", FAILED)
    except Exception as error:
        return fail(_internal(error), FAILED)
    return OK if output.ok else FAILED


def _print_output(output: Output, *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(to_jsonable(output.data), indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write(text + "\n")
    elif output.view:
        from rich.console import Console

        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
        console = Console(width=width, highlight=False)
        for part in output.view:
            # A plain string is the user's text: it keeps its brackets and is not folded.
            console.print(part, markup=False, soft_wrap=isinstance(part, str))
    sys.stdout.flush()


@contextlib.contextmanager
def _logging_for(command: CommonFlags) -> Generator[None]:
    """Set up logging for one verb; put warnings back afterwards, for callers that live on."""
    with warnings.catch_warnings():
        quiet = command.quiet and not command.verbose
        configure_logging(quiet=quiet, verbose=command.verbose, json_lines=command.log_json)
        yield


def _fail(name: str, message: str, status: int, *, debug: bool) -> int:
    if debug and sys.exc_info()[0] is not None:
        traceback.print_exc(file=sys.stderr)
    else:
        label = "" if status == INTERRUPTED else "error: " if not message.startswith("internal error: ") else ""
        sys.stderr.write(f"{name}: {label}{message}\n")
    sys.stderr.flush()
    return status


def _one_line(error: BaseException) -> str:
    """Reduce an exception to one line; an error of the system says its reason and its file."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return " ".join(str(error).split()) or type(error).__name__


def _internal(error: BaseException) -> str:
    return f"internal error: {type(error).__name__}: {_one_line(error)}; run again with --debug for the traceback"


def _installed_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(not installed)"


# ---------------------------------------------------------------- parsing


_MARKERS = (
    tyro.conf.DisallowNone,  # `--label STR` rather than `--label {None}|STR`
    tyro.conf.PositionalMetavarFromFieldName,
    tyro.conf.HelptextFromCommentsOff,
)


def _parse_verb(name: str, verb: type[CommonFlags], arguments: Sequence[str]) -> CommonFlags:
    """Parse the arguments of one verb.

    Raises:
        InputError: If tyro refuses them, in one line.
        ValueError: If the dataclass itself does.
        SystemExit: After the help was printed.
    """
    stderr = io.StringIO()
    asks_for_help = any(argument in ("-h", "--help") for argument in arguments)
    try:
        with contextlib.redirect_stderr(stderr), contextlib.nullcontext() if asks_for_help else _wide_terminal():
            make, unknown = tyro.cli(
                verb,
                prog=name,
                description=_help_of(verb),
                args=list(arguments),
                return_unknown_args=True,
                config=_MARKERS,
                registry=_registry([verb]),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_parse_error(stderr.getvalue(), _flags_of(verb))) from None
    if unknown:
        raise InputError(_unrecognized(unknown, _flags_of(verb)))
    return typing.cast("Callable[[], CommonFlags]", make)()


def _without_verb(prog: str, description: str, verbs: Mapping[str, type[CommonFlags]], arguments: list[str]) -> int:
    """Handle a command line that does not begin with a verb: help, shell completion, or an error."""
    first = arguments[0] if arguments else ""
    if first and first not in ("-h", "--help") and not first.startswith("--tyro-"):
        wanted = difflib.get_close_matches(first, verbs, n=1)
        hint = f" (did you mean {wanted[0]}?)" if wanted else f"; choose one of {', '.join(verbs)}"
        kind = "a verb must come first, found" if first.startswith("-") else "unknown verb"
        return _fail(prog, f"{kind} {first}{hint}", BAD_INPUT, debug=False)
    union = Union[  # noqa: UP007 - built from a mapping
        tuple(
            Annotated[verb, tyro.conf.subcommand(name, description=_help_of(verb).partition("\n\n")[0])]
            for name, verb in verbs.items()
        )
    ]
    text = f"{description}\n\n'{prog} VERB --help' explains a verb, '{prog} --version' prints the version."
    stream = sys.stdout if first else sys.stderr
    try:
        with contextlib.redirect_stdout(stream):
            tyro.cli(
                union,  # ty: ignore[no-matching-overload]
                prog=prog,
                description=text,
                args=arguments or ["--help"],
                config=_MARKERS,
                registry=_registry(verbs.values()),
            )
    except SystemExit as stop:
        return BAD_INPUT if not first else stop.code if isinstance(stop.code, int) else OK
    return OK


def _help_of(verb: type) -> str:
    return inspect.cleandoc(verb.__doc__ or "")


def _registry(verbs: typing.Iterable[type[CommonFlags]]) -> ConstructorRegistry:
    """Teach tyro to show a verb's own flags first and the common ones in a group at the end.

    The parsed value is a function that makes the dataclass, so that what its ``__post_init__`` raises reaches the
    caller rather than tyro's own report.
    """
    registry = ConstructorRegistry()
    verbs = set(verbs)
    in_progress: set[type] = set()
    groups: dict[type, StructConstructorSpec] = {}

    @registry.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if info.type in groups:
            return groups[info.type]
        if info.type not in verbs or info.type in in_progress:
            return None
        in_progress.add(info.type)  # the dataclass rule of tyro itself finds the fields and their docstrings
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            in_progress.discard(info.type)
        if not isinstance(spec, StructConstructorSpec):
            return None
        own = _own_fields(info.type)
        fields = [dataclasses.replace(field, type=_plain_flag(field)) for field in spec.fields]
        group = type("EveryVerb", (), {})
        groups[group] = StructConstructorSpec(dict, tuple(field for field in fields if field.name not in own))
        common = StructFieldSpec("common", Annotated[group, tyro.conf.OmitArgPrefixes], tyro.MISSING_NONPROP, "")  # ty: ignore

        def instantiate(*, common: dict[str, Any], **values: Any) -> Callable[[], CommonFlags]:
            return functools.partial(info.type, **values, **common)

        return StructConstructorSpec(instantiate, (*(field for field in fields if field.name in own), common))

    return registry


def _own_fields(verb: type) -> set[str]:
    """Names of the fields that a verb declares, or declares anew, beside the common ones."""
    return {
        name
        for base in verb.__mro__
        if base is not CommonFlags and dataclasses.is_dataclass(base)
        for name in inspect.get_annotations(base)
    }


def _plain_flag(field: StructFieldSpec) -> Any:
    """Give a switch that is off by default one name (``--json``), and an optional value no ``(default: None)``."""
    extra: tuple[Any, ...] = ()
    if field.default is False:
        extra = (tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint=""))
    elif field.default is None:
        extra = (tyro.conf.arg(help_behavior_hint="(optional)"),)
    # What the field says of itself comes last and wins.
    if typing.get_origin(field.type) is Annotated:
        inner, *said = typing.get_args(field.type)
        return Annotated[(inner, *extra, *said)] if extra else field.type
    return Annotated[(field.type, *extra)] if extra else field.type


# ---------------------------------------------------------------- tyro's error boxes


@contextlib.contextmanager
def _wide_terminal() -> Generator[None]:
    """Have tyro write its error box without folding the lines."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _parse_error(box: str, flags: Sequence[str]) -> str:
    """Reduce the box in which tyro explains an error to one line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│").rstrip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "╭╰"]
    body = [line for line in lines if line.strip("─ ")]
    unknown = _indented(body, "Unrecognized options:")
    if unknown:
        return _unrecognized(unknown, flags)
    missing = _indented(body, "Missing from ")
    if missing:
        return f"missing {' and '.join(missing)}"
    upto_rule = lines[: next((i for i, line in enumerate(lines) if line.strip() and not line.strip("─ ")), len(lines))]
    message = " ".join(" ".join(upto_rule).split()).removeprefix("Error parsing ")
    message = re.sub(r"invalid literal for int\(\) with base 10: (.*)", r"expected a whole number, found \1", message)
    message = re.sub(r"could not convert string to float: (.*)", r"expected a number, found \1", message)
    message = message[:1].lower() + message[1:].rstrip(".")
    return message or "the command line cannot be understood"


def _indented(lines: Sequence[str], heading: str) -> list[str]:
    """Return the entries below a heading, which are indented less than their own explanations."""
    starts = [i for i, line in enumerate(lines) if line.strip().startswith(heading)]
    if not starts:
        return []
    found: list[str] = []
    margin = None
    for line in lines[starts[0] + 1 :]:
        indent = len(line) - len(line.lstrip())
        margin = indent if margin is None else margin
        if indent < margin or margin <= 1:
            break
        if indent == margin:
            found.append(line.strip())
    return found


def _unrecognized(tokens: Sequence[str], flags: Sequence[str]) -> str:
    option = next((token.partition("=")[0] for token in tokens if token.startswith("-")), None)
    if option is None:
        return f"unexpected argument {tokens[0]!r}"
    close = difflib.get_close_matches(option.replace("_", "-"), flags, n=1)
    return f"unrecognized option {option}" + (f" (did you mean {close[0]}?)" if close else "")


def _flags_of(verb: type) -> list[str]:
    return ["--" + field.name.replace("_", "-") for field in dataclasses.fields(verb)]
