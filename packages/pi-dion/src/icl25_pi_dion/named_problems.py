"""Inverse problems by name: those of the package, and classes in the user's own files."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icl25_pi_dion.problem import InverseProblem

__all__ = ["find_problem", "parse_settings"]

_QUADRATIC = {"D": 0.01, "k": 0.01, "kappa": 0.0}


def find_problem(name: str, settings: Mapping[str, Any] | None = None) -> InverseProblem:
    """Make the inverse problem that a name stands for.

    Args:
        name: ``rd``, ``rd-quadratic``, ``helmholtz`` or ``darcy``; or a file ``my_pde.py`` with one subclass of
            ``InverseProblem``, or ``my_pde.py:Class``. The file is executed.
        settings: Arguments of the constructor.

    Returns:
        The problem.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If there is no such problem, class or argument, or a value does not fit.
    """
    from icl25_pi_dion import problems

    own: dict[str, tuple[type[InverseProblem], dict[str, Any]]] = {
        "rd": (problems.ReactionDiffusionSource, {}),
        "rd-quadratic": (problems.ReactionDiffusionSource, _QUADRATIC),
        "helmholtz": (problems.HelmholtzCoefficient, {}),
        "darcy": (problems.DarcyPermeability, {}),
    }
    if name in own:
        kind, arguments = own[name]
    else:
        kind, arguments = _class_in(name), {}
    checked = {key: _fitting(name, kind, key, value) for key, value in (settings or {}).items()}
    try:
        problem = kind(**{**arguments, **checked})
        problem.check()
    except TypeError as error:
        raise ValueError(f"problem {name}: {error}") from error
    return problem


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Parse settings such as ``D=0.02,measurement=window`` or ``window=0,0.5``.

    Args:
        texts: The settings; each may hold several, separated by commas.

    Returns:
        Whole numbers, numbers, tuples of numbers, booleans, None or strings by name.

    Raises:
        ValueError: If a part is no ``key=value``, or a key is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        last = None
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if equals and key.strip().isidentifier():
                last = key.strip()
                if last in found:
                    raise ValueError(f"{last} is set twice")
                found[last] = value.strip()
            elif last is not None:  # a further number of a tuple
                found[last] += f",{part.strip()}"
            else:
                raise ValueError(f"expected key=value, found {text!r}")
    return {key: _parsed(value) for key, value in found.items()}


def _parsed(text: str) -> Any:
    if "," in text:
        return tuple(_parsed(part) for part in text.strip("()").split(",") if part)
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return constants[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _fitting(name: str, kind: type[InverseProblem], key: str, value: Any) -> Any:
    """A value for an argument of a problem, refused where it cannot be one."""
    parameters = _settable(kind)
    if key not in parameters:
        close = difflib.get_close_matches(key, parameters, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(parameters) or 'none'}"
        raise ValueError(f"problem {name} has no setting {key!r}; {hint}")
    default = parameters[key].default
    wrong = f"setting {key} of problem {name} must be"
    if isinstance(default, str):
        return str(value)
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"{wrong} true or false, found {value!r}")
    elif isinstance(default, int):
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{wrong} a whole number, found {value!r}")
    elif isinstance(default, float):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{wrong} a number, found {value!r}")
    elif isinstance(default, tuple):
        numbers = isinstance(value, tuple) and all(type(part) in (int, float) for part in value)
        if not numbers or len(value) != len(default):
            raise ValueError(f"{wrong} {len(default)} numbers separated by commas, found {value!r}")
    return value


def _settable(kind: type[InverseProblem]) -> dict[str, inspect.Parameter]:
    """Arguments of the constructor that text can express."""
    if kind.__init__ is object.__init__:
        return {}
    return {
        name: parameter
        for name, parameter in inspect.signature(kind).parameters.items()
        if "Callable" not in str(parameter.annotation)
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _class_in(name: str) -> type[InverseProblem]:
    """The class of a problem in a file of the user's."""
    file, _, wanted = name.partition(".py:")
    path = Path(f"{file}.py" if wanted else name)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, expected a file such as my_pde.py")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    module = _executed(path)
    found = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, InverseProblem) and value.__module__ == module.__name__
    }
    if wanted:
        if wanted not in found:
            raise ValueError(
                f"{path} has no subclass {wanted!r} of InverseProblem; it has {', '.join(found) or 'none'}"
            )
        return found[wanted]
    if not found:
        raise ValueError(f"{path} defines no subclass of icl25_pi_dion.InverseProblem")
    if len(found) > 1:
        raise ValueError(f"{path} defines {', '.join(found)}: choose one, such as {path}:{next(iter(found))}")
    return next(iter(found.values()))


def _executed(path: Path) -> Any:
    """Run a file as a module; its neighbours can be imported by it, as by a script."""
    title = f"icl25_pi_dion_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(title, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file, expected one such as my_pde.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        trace, line = error.__traceback__, None
        while trace is not None:
            line = trace.tb_lineno if trace.tb_frame.f_code.co_filename == str(path) else line
            trace = trace.tb_next
        where = f"{path}, line {line}" if line else str(path)
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module
