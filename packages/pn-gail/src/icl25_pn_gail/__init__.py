"""Imitation from demonstrations of mixed quality: PN-GAIL, its confidence classifier and its peers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl25_pn_gail import envs, interop, losses
    from icl25_pn_gail.advantages import Advantages, gae
    from icl25_pn_gail.behaviour_cloning import BC
    from icl25_pn_gail.classifier import ConfidenceClassifier
    from icl25_pn_gail.comparison import compare, summarize
    from icl25_pn_gail.confidence import calibration_report, confidence_from_returns, sharpen
    from icl25_pn_gail.config import TrainConfig
    from icl25_pn_gail.demonstrations import Demonstrations
    from icl25_pn_gail.evaluation import EvalResult
    from icl25_pn_gail.imitation import GAIL, GAILC, ICGAIL, IWIL, PNGAIL, WGAIL, GAILReweight
    from icl25_pn_gail.losses import weights
    from icl25_pn_gail.optima import expected_mixture, optimal_discriminator, optimal_generator
    from icl25_pn_gail.policies import ImitationPolicy
    from icl25_pn_gail.readers import read_demonstrations
    from icl25_pn_gail.recording import make_demonstrations
    from icl25_pn_gail.trpo import trpo_step

_HOMES = {
    "advantages": ("Advantages", "gae"),
    "behaviour_cloning": ("BC",),
    "classifier": ("ConfidenceClassifier",),
    "comparison": ("compare", "summarize"),
    "confidence": ("calibration_report", "confidence_from_returns", "sharpen"),
    "config": ("TrainConfig",),
    "demonstrations": ("Demonstrations",),
    "evaluation": ("EvalResult",),
    "imitation": ("GAIL", "GAILC", "ICGAIL", "IWIL", "PNGAIL", "WGAIL", "GAILReweight"),
    "losses": ("weights",),
    "optima": ("expected_mixture", "optimal_discriminator", "optimal_generator"),
    "policies": ("ImitationPolicy",),
    "readers": ("read_demonstrations",),
    "recording": ("make_demonstrations",),
    "trpo": ("trpo_step",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("envs", "interop", "losses")

__all__ = [
    "BC",
    "GAIL",
    "GAILC",
    "ICGAIL",
    "IWIL",
    "PNGAIL",
    "WGAIL",
    "Advantages",
    "ConfidenceClassifier",
    "Demonstrations",
    "EvalResult",
    "GAILReweight",
    "ImitationPolicy",
    "TrainConfig",
    "calibration_report",
    "compare",
    "confidence_from_returns",
    "envs",
    "expected_mixture",
    "gae",
    "interop",
    "losses",
    "make_demonstrations",
    "optimal_discriminator",
    "optimal_generator",
    "read_demonstrations",
    "sharpen",
    "summarize",
    "trpo_step",
    "weights",
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
