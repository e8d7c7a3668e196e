"""The run-time type checker of the tests: beartype, beside jaxtyping's import hook."""

from collections.abc import Callable
from typing import Any, Self

from beartype import BeartypeConf, beartype

# PEP 484: where a float is asked for an int will do.
_CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and the result of a function by its annotations.

    The hook decorates methods one by one, where beartype cannot say which class `Self` is: that annotation alone is
    left unchecked, so that estimators may say `-> Self`.
    """
    hints = getattr(function, "__annotations__", {})
    if any(hint is Self or hint in ("Self", "typing.Self") for hint in hints.values()):
        function.__annotations__ = {
            name: hint for name, hint in hints.items() if hint is not Self and hint not in ("Self", "typing.Self")
        }
    return _CHECK(function)
