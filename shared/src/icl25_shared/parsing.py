"""Parse a verb with tyro: the common flags in a group of their own at the end, every error in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import io
import os
import re
import typing
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Annotated, Any, Union

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from icl25_shared.verbs import CommonFlags, InputError

__all__ = ["parse_verb", "show_overview"]

_MARKERS = (
    tyro.conf.DisallowNone,  # `--label STR` rather than `--label {None}|STR`
    tyro.conf.PositionalMetavarFromFieldName,
    tyro.conf.HelptextFromCommentsOff,
)


def parse_verb(name: str, verb: type[CommonFlags], arguments: Sequence[str]) -> CommonFlags:
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


def show_overview(prog: str, text: str, verbs: Mapping[str, type[CommonFlags]], arguments: Sequence[str]) -> None:
    """Have tyro print the help of a command as a whole, or its shell completion.

    Args:
        prog: Name of the command.
        text: What stands above the list of verbs.
        verbs: The dataclass of each verb; the first paragraph of its docstring stands in the list.
        arguments: ``["--help"]``, or the completion flags of tyro.
    """
    listed = [
        _annotated(verb, tyro.conf.subcommand(name, description=_help_of(verb).partition("\n\n")[0]))
        for name, verb in verbs.items()
    ]
    registry = _registry(verbs.values())
    union: Any = Union[tuple(listed)]  # noqa: UP007 - made of a mapping
    with contextlib.suppress(SystemExit):
        tyro.cli(union, prog=prog, description=text, args=list(arguments), config=_MARKERS, registry=registry)


def _help_of(verb: type) -> str:
    return inspect.cleandoc(verb.__doc__ or "")


def _registry(verbs: Iterable[type[CommonFlags]]) -> ConstructorRegistry:
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
        common = StructFieldSpec("common", _annotated(group, tyro.conf.OmitArgPrefixes), tyro.MISSING_NONPROP, "")

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
    if field.default is False:
        extra = (tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint=""))
    elif field.default is None:
        extra = (tyro.conf.arg(help_behavior_hint="(optional)"),)
    else:
        return field.type
    # What the field says of itself comes last and wins.
    inner, *said = typing.get_args(field.type) if typing.get_origin(field.type) is Annotated else (field.type,)
    return _annotated(inner, *extra, *said)


def _annotated(kind: Any, *notes: Any) -> Any:
    """Build ``Annotated[kind, *notes]`` at run time, which type checkers cannot follow."""
    annotated: Any = Annotated
    return annotated[(kind, *notes)]


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
        return f"missing {', '.join(missing)}"
    upto_rule = lines[: next((i for i, line in enumerate(lines) if line.strip() and not line.strip("─ ")), len(lines))]
    message = " ".join(" ".join(upto_rule).split()).removeprefix("Error parsing ")
    # An optional value is a choice of types to tyro, which lists why each failed; there is one that counts.
    message = re.sub(r"no type matching .*Got errors: - <[^>]*>: ", "", message)
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


def _flags_of(verb: type[CommonFlags]) -> list[str]:
    return ["--" + field.name.replace("_", "-") for field in dataclasses.fields(verb)]
