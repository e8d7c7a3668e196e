"""Checks of the arguments of problems."""

from __future__ import annotations

import math

__all__ = ["check_choice", "check_positive"]


def check_positive(**values: float) -> None:
    """Refuse numbers that are not finite and positive.

    Args:
        **values: The arguments by name.

    Raises:
        ValueError: If one is not.
    """
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be > 0, found {value}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse what is not among the choices.

    Args:
        name: Name of the argument.
        value: What was given.
        choices: What may be given.

    Raises:
        ValueError: If it is something else.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, found {value!r}")
