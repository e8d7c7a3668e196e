"""Logging and progress, all on standard error: rich on a terminal, plain lines elsewhere, JSON lines on demand."""

from __future__ import annotations

import json
import logging
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sized
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["configure_logging", "get_logger", "progress", "track"]

T = TypeVar("T")

PLAIN_INTERVAL = 5.0  # seconds between two progress lines where there is no terminal

_OWN_PREFIX = "icl25"
_level: int | None = None  # of the icl25 loggers; None until a program has configured logging
_mode: Literal["silent", "bars", "lines"] = "silent"
_console: Console | None = None
_display: Progress | None = None  # the one live display; nested progress adds rows to it


def configure_logging(*, quiet: bool = False, verbose: bool = False, json_lines: bool = False) -> None:
    """Send the messages of the icl25 packages, and the warnings of all others, to standard error.

    On a terminal rich formats them; elsewhere each is one plain line. Python warnings go the same way, as one line
    without source code. It is for programs: a library only calls ``get_logger``, and its progress stays silent
    until a program has called this function. Calling it again replaces what the previous call set up.

    Args:
        quiet: Only warnings and errors, and no progress.
        verbose: Debug messages too, with the name of their logger.
        json_lines: One JSON object a line: ``time``, ``level``, ``logger``, ``message`` and, if any, ``exception``.

    Raises:
        ValueError: If both ``quiet`` and ``verbose`` are set.
    """
    global _level, _mode, _console
    if quiet and verbose:
        raise ValueError("quiet and verbose exclude each other")
    _level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    on_terminal = sys.stderr.isatty() and not json_lines

    handler: logging.Handler
    if on_terminal:
        from rich.console import Console
        from rich.logging import RichHandler

        _console = Console(stderr=True)
        handler = RichHandler(console=_console, show_time=False, show_path=False, markup=False, rich_tracebacks=True)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s" if verbose else "%(message)s"))
    else:
        _console = None
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_JsonFormatter() if json_lines else _LineFormatter(with_names=verbose))
    handler.set_name(_OWN_PREFIX)

    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _OWN_PREFIX]:
        root.removeHandler(old)
    root.addHandler(handler)
    # The root keeps its level (WARNING), so that verbose does not open the flood gates of numba or matplotlib.
    for name in list(logging.root.manager.loggerDict):
        get_logger(name)
    warnings.showwarning = _log_warning  # ty: ignore[invalid-assignment]
    _mode = "silent" if quiet else "bars" if on_terminal else "lines"


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module; its level follows ``configure_logging``, whichever comes first.

    Args:
        name: ``__name__`` of the calling module, which starts with ``icl25``.

    Returns:
        The logger of the standard library.
    """
    top = name.partition(".")[0]
    if _level is not None and top.startswith(_OWN_PREFIX):
        logging.getLogger(top).setLevel(_level)
    return logging.getLogger(name)


class progress:
    """Progress of one piece of work, as a context manager.

    A bar with rate and time left on a terminal, a plain log line every few seconds elsewhere, nothing when quiet or
    when no program has called ``configure_logging``. Blocks may be nested.

    Args:
        description: What is being done, for instance ``"solving batches"``.
        total: How many steps there are; None if that is not known.
    """

    def __init__(self, description: str, total: float | None = None) -> None:
        self.description = description
        self.total = total
        self.completed = 0.0
        self._started = self._last_line = time.monotonic()
        self._task: TaskID | None = None
        self._owns_display = False

    def __enter__(self) -> Self:
        global _display
        self._started = self._last_line = time.monotonic()
        if _mode == "bars":
            if _display is None:
                _display = _make_display()
                _display.start()
                self._owns_display = True
            self._task = _display.add_task(self.description, total=self.total)
        return self

    def advance(self, n: float = 1) -> None:
        """Record that ``n`` more steps are done.

        Args:
            n: The number of steps, >= 0.

        Raises:
            ValueError: If ``n`` is negative.
        """
        if n < 0:
            raise ValueError(f"n must be >= 0, found {n}")
        self.completed += n
        if self._task is not None and _display is not None:
            _display.advance(self._task, n)
        elif _mode == "lines" and time.monotonic() - self._last_line >= PLAIN_INTERVAL:
            self._last_line = time.monotonic()
            get_logger(__name__).info("%s", self.summary())

    def summary(self) -> str:
        """Return one line: how much is done, at what rate, and the time left where the total is known."""
        elapsed = max(time.monotonic() - self._started, 1e-9)
        rate = self.completed / elapsed
        done = f"{self.completed:g}" if self.total is None else f"{self.completed:g}/{self.total:g}"
        line = f"{self.description}: {done}, {rate:.3g}/s"
        if self.total is not None and rate > 0:
            line += f", {_duration(max(self.total - self.completed, 0) / rate)} left"
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _display
        if self._task is not None and _display is not None:
            if self._owns_display:
                _display.stop()
                _display = None
            else:
                _display.remove_task(self._task)
        elif _mode == "lines" and self._last_line > self._started:
            get_logger(__name__).info(
                "%s: %g done in %s", self.description, self.completed, _duration(time.monotonic() - self._started)
            )


def track(iterable: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
    """Iterate while showing ``progress``.

    Args:
        iterable: What to go through.
        description: What is being done.
        total: How many items there are; by default ``len(iterable)`` where it has one.

    Yields:
        The items, unchanged.
    """
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with progress(description, total) as bar:
        for item in iterable:
            yield item
            bar.advance()


class _LineFormatter(logging.Formatter):
    """One line for a message; the level stands before it unless it is information."""

    def __init__(self, *, with_names: bool) -> None:
        super().__init__()
        self._with_names = with_names

    def formatMessage(self, record: logging.LogRecord) -> str:
        prefix = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        name = f"{record.name}: " if self._with_names else ""
        return f"{prefix}{name}{' '.join(record.getMessage().split())}"


class _JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Take the place of ``warnings.showwarning``: the message alone, which is what a user can act on."""
    text = " ".join(str(message).split())
    logging.getLogger("py.warnings").warning("%s", text)
    get_logger(f"{_OWN_PREFIX}.warnings").debug("%s raised at %s:%d", category.__name__, filename, lineno)


def _make_display() -> Progress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:.3g}/s", style="progress.data.speed")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(compact=True),
    )
    return Progress(*columns, console=_console, transient=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
