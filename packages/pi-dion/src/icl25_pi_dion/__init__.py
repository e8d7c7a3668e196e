"""Inverse problems of partial differential equations, solved by operator networks that see no labels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl25_pi_dion import autodiff, baselines, data, losses, problems, solvers
    from icl25_pi_dion.autodiff import trunk_jet
    from icl25_pi_dion.estimator import InverseOperator
    from icl25_pi_dion.network import PIDION
    from icl25_pi_dion.problem import Dirichlet, InverseProblem
    from icl25_pi_dion.readers import read_measurements
    from icl25_pi_dion.readings import SensorReadings
    from icl25_pi_dion.results import InversionResult
    from icl25_pi_dion.spectra import Spectrum, identifiability

_HOMES = {
    "autodiff": ("trunk_jet",),
    "estimator": ("InverseOperator",),
    "network": ("PIDION",),
    "problem": ("Dirichlet", "InverseProblem"),
    "readers": ("read_measurements",),
    "readings": ("SensorReadings",),
    "results": ("InversionResult",),
    "spectra": ("Spectrum", "identifiability"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("autodiff", "baselines", "data", "losses", "problems", "solvers")

__all__ = [
    "PIDION",
    "Dirichlet",
    "InverseOperator",
    "InverseProblem",
    "InversionResult",
    "SensorReadings",
    "Spectrum",
    "autodiff",
    "baselines",
    "data",
    "identifiability",
    "losses",
    "problems",
    "read_measurements",
    "solvers",
    "trunk_jet",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
