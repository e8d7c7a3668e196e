"""What verbs work on: demonstrations, environments, and what is wrong with them, told in the words of the flags."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from icl25_pn_gail.checking import Report, check
from icl25_pn_gail.confidence import sharpen
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import env_from_module
from icl25_pn_gail.methods import METHODS
from icl25_pn_gail.readers import read_demonstrations
from icl25_shared import InputError, get_logger

if TYPE_CHECKING:
    from icl25_pn_gail.cli_flags import DemoFlags, EnvFlags

LOG = get_logger(__name__)
_RENAMED = {"confidence_col": "confidence-column", "episode_col": "episode-column", "discrete": "actions"}
_SAME = (
    "obs_cols",
    "act_cols",
    "confidence_range",
    "normalize_actions",
    "disc_lr",
    "disc_grad_penalty",
    "max_kl",
    "max_episode_steps",
)
_FLAGS = {**_RENAMED, **{name: name.replace("_", "-") for name in (*_SAME, "reward", "backend")}}
_OPTION = re.compile(rf"(?<![\w./-])({'|'.join(_FLAGS)})(?:=(\([^)]*\)|'[^']*'|\w+))?(?![\w/.-]*\w)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of Gymnasium's warnings
_VALUES = {("discrete", "True"): "discrete", ("discrete", "False"): "continuous"}


def as_flags(message: str) -> str:
    """Name the options of Python in a message as the command line does.

    Args:
        message: Such as ``read them with discrete=True``.

    Returns:
        Such as ``read them with --actions discrete``.
    """

    def flag(match: re.Match[str]) -> str:
        name, given = match.groups()
        if given is None and "_" not in name:
            return match[0]  # an ordinary word
        if given is None or (given == "True" and name not in _RENAMED):
            return f"--{_FLAGS[name]}"
        return f"--{_FLAGS[name]} {_VALUES.get((name, given), given.strip('()').replace(', ', ',').strip(chr(39)))}"

    return _OPTION.sub(flag, message)


@contextlib.contextmanager
def naming_flags() -> Generator[None]:
    """Have errors in the input, and warnings, speak of flags."""
    show = warnings.showwarning

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        show(as_flags(_COLOUR.sub("", str(message))), category, filename, lineno, file, line)

    warnings.showwarning = shown  # ty: ignore[invalid-assignment]
    try:
        yield
    except ValueError as error:
        raise InputError(as_flags(str(error))) from error
    except ImportError as error:
        if "pip install" not in str(error):
            raise
        raise InputError(str(error)) from error
    finally:
        warnings.showwarning = show


def read_demos(flags: DemoFlags, path: Path | None = None) -> Demonstrations:
    """Read the demonstrations of a command line.

    Args:
        flags: The flags.
        path: Another file than theirs, read in the same way.

    Returns:
        The demonstrations.
    """
    with naming_flags():
        demos = read_demonstrations(
            flags.demos if path is None else path,
            flags.obs_cols,
            flags.act_cols,
            flags.confidence_column,
            flags.episode_column,
            confidence_range=flags.rating_range(),
            discrete=None if flags.actions == "auto" else flags.actions == "discrete",
        )
    if flags.sharpen is None:
        return demos
    return demos.with_confidence(sharpen(demos.confidence, power=flags.sharpen))


def given_env(flags: EnvFlags) -> Any:
    """The environment that a command line names, as ``make_env`` takes it; None where it names none."""
    return flags.env if flags.env_module is None else env_from_module(flags.env_module)


def check_before_training(path: Path, demos: Demonstrations, env: Any, methods: list[str]) -> Report:
    """Look at demonstrations, refuse them where there are errors, and tell of warnings.

    Args:
        path: Their file, for the message.
        demos: The demonstrations.
        env: The environment, as ``make_env`` takes it.
        methods: What is to be trained; some methods need no confidences.

    Returns:
        The findings.
    """
    report = check(demos, env)
    needing = [name for name in methods if needs_labels(name)]
    errors = [found for found in report.errors if found.code != "labels" or needing]
    if errors:
        more = f" ({len(errors) - 1} more: `check` lists them)" if len(errors) > 1 else ""
        raise InputError(f"{path}: {as_flags(errors[0].message)}{more}")
    labels = {"labels", "few-labels", "constant-labels", "high-labels", "label-floor"}
    for found in report.warnings:
        if needing or found.code not in labels:
            LOG.warning("%s", as_flags(found.message))
    return report


def needs_labels(method: str) -> bool:
    """Whether a method, such as ``2iwil+bsc``, needs confidences."""
    name = method.partition("+")[0]
    return METHODS[name].needs_labels if name in METHODS else name == "bc-weighted"
