"""Command lines over tyro: verbs as frozen dataclasses, flags that mean the same everywhere, one line for an error."""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Generator, Mapping, Sequence
from importlib import metadata

from icl25_shared.files import to_jsonable
from icl25_shared.logs import configure_logging
from icl25_shared.parsing import parse_verb, show_overview
from icl25_shared.verbs import CommonFlags, InputError, Output

__all__ = ["CommonFlags", "InputError", "Output", "run_cli"]

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# Width of a table that goes to a file or a pipe, where no terminal says how wide it may be.
_PIPE_WIDTH = 120


_INPUT_ERRORS = (
    ValueError,
    TypeError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
    FileExistsError,
)


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
        verbs: The dataclass of each verb, which is one word or two. Its docstring, and the docstrings below its fields,
            are the help.
        argv: The arguments; by default those of the process.
        version: What ``--version`` prints; by default the version of the distribution ``prog``.

    Returns:
        0: done. 1: ``Output.ok`` is false, or an unexpected error. 2: the command line or the input is wrong
        (``InputError``, any ``ValueError`` or ``TypeError``, a file that is missing, exists, is a folder or is not
        permitted). 130: interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"{prog} {version or _installed_version(prog)}\n")
        return OK
    # A verb may have two words, such as "sudoku train".
    verb = next((words for n in (1, 2) if (words := " ".join(arguments[:n])) in verbs), None)
    name = f"{prog} {verb}"
    try:
        if verb is None:
            return _without_verb(prog, description, verbs, arguments)
        command = parse_verb(name, verbs[verb], arguments[len(verb.split()) :])
    except SystemExit:  # tyro has printed the help
        return OK
    except BrokenPipeError:
        return _reader_left()
    except _INPUT_ERRORS as error:
        return _fail(name, f"error: {_one_line(error)}", BAD_INPUT, debug="--debug" in arguments)
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
        return _reader_left()
    except _INPUT_ERRORS as error:
        return fail(f"error: {_one_line(error)}", BAD_INPUT)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" while writing {error.filename}" if error.filename else ""
            return fail(f"error: the disk is full{where}: free some space or choose another --out", FAILED)
        return fail(_internal(error), FAILED)
    except MemoryError:
        return fail("error: there is not enough memory for this", FAILED)
    except Exception as error:
        return fail(_internal(error), FAILED)
    return OK if output.ok else FAILED


def _reader_left() -> int:
    """The reader of a pipe (head, less) has seen enough; Python would complain once more when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OK


def _print_output(output: Output, *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(to_jsonable(output.data), indent=2, ensure_ascii=False, allow_nan=False)
        sys.stdout.write(text + "\n")
    elif output.view:
        from rich.console import Console

        width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
        console = Console(width=width, highlight=False)
        # Captured, because rich ends the process by itself when the reader of a pipe has left.
        with console.capture() as capture:
            for part in output.view:
                # A plain string is the user's text: it keeps its brackets and is not folded.
                console.print(part, markup=False, soft_wrap=isinstance(part, str))
        sys.stdout.write(capture.get())
    sys.stdout.flush()


@contextlib.contextmanager
def _logging_for(command: CommonFlags) -> Generator[None]:
    """Set up logging for one verb; put warnings back afterwards, for callers that live on."""
    with warnings.catch_warnings():
        configure_logging(quiet=command.quiet, verbose=command.verbose, json_lines=command.log_json)
        yield


def _fail(name: str, message: str, status: int, *, debug: bool) -> int:
    if debug and sys.exc_info()[0] is not None:
        traceback.print_exc(file=sys.stderr)
    else:
        sys.stderr.write(f"{name}: {message}\n")
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


def _without_verb(prog: str, description: str, verbs: Mapping[str, type[CommonFlags]], arguments: list[str]) -> int:
    """Handle a command line that does not begin with a verb: help, shell completion, or an error."""
    first, second = [*arguments, "", ""][:2]
    family = {verb: command for verb, command in verbs.items() if first and verb.startswith(f"{first} ")}
    last = second if family else first
    if last in ("", "-h", "--help") or first.startswith("--tyro-"):
        text = f"{description}\n\n'{prog} VERB --help' explains a verb, '{prog} --version' prints the version."
        with contextlib.redirect_stdout(sys.stdout if last else sys.stderr):
            show_overview(prog, text, family or verbs, arguments if first.startswith("--tyro-") else ["--help"])
        return OK if last else BAD_INPUT
    asked = f"{first} {second}" if family else first
    known = {verb.split()[-1] if family else verb: verb for verb in family or verbs}
    close = difflib.get_close_matches(last, known, n=1)
    hint = f" (did you mean {known[close[0]]}?)" if close else f"; choose one of {', '.join(family or verbs)}"
    problem = "the verb comes first, found" if first.startswith("-") else "unknown verb"
    return _fail(prog, f"error: {problem} {asked}{hint}", BAD_INPUT, debug=False)
