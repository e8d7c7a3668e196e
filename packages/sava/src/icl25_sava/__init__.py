"""SAVA: find the training rows that harm a model, without training it, by optimal transport in batches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icl25_sava.baselines import LAVA, BatchwiseLAVA, KNNShapley, NearestCost, RandomValues, knn_shapley
    from icl25_sava.class_distances import label_distances
    from icl25_sava.corruption import Corrupted, corrupt
    from icl25_sava.costs import augmented_cost
    from icl25_sava.embedders import make_embedder
    from icl25_sava.evaluation import detection_auc, detection_curve, most_suspicious, pruning_curve
    from icl25_sava.gradients import batchwise_weights, calibrated_gradient, entropic_gap
    from icl25_sava.outer import outer_plan
    from icl25_sava.potentials import (
        Potentials,
        annealed_potentials,
        annealing_schedule,
        emd_potentials,
        sinkhorn_potentials,
    )
    from icl25_sava.sava import SAVA, dataset_distance
    from icl25_sava.selection import prune_mask, ranking

_HOMES = {
    "baselines": ("LAVA", "BatchwiseLAVA", "KNNShapley", "NearestCost", "RandomValues", "knn_shapley"),
    "corruption": ("Corrupted", "corrupt"),
    "costs": ("augmented_cost",),
    "embedders": ("make_embedder",),
    "evaluation": ("detection_auc", "detection_curve", "most_suspicious", "pruning_curve"),
    "gradients": ("batchwise_weights", "calibrated_gradient", "entropic_gap"),
    "class_distances": ("label_distances",),
    "outer": ("outer_plan",),
    "potentials": (
        "Potentials",
        "annealed_potentials",
        "annealing_schedule",
        "emd_potentials",
        "sinkhorn_potentials",
    ),
    "sava": ("SAVA", "dataset_distance"),
    "selection": ("prune_mask", "ranking"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "LAVA",
    "SAVA",
    "BatchwiseLAVA",
    "Corrupted",
    "KNNShapley",
    "NearestCost",
    "Potentials",
    "RandomValues",
    "annealed_potentials",
    "annealing_schedule",
    "augmented_cost",
    "batchwise_weights",
    "calibrated_gradient",
    "corrupt",
    "dataset_distance",
    "detection_auc",
    "detection_curve",
    "emd_potentials",
    "entropic_gap",
    "knn_shapley",
    "label_distances",
    "make_embedder",
    "most_suspicious",
    "outer_plan",
    "prune_mask",
    "pruning_curve",
    "ranking",
    "sinkhorn_potentials",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOME[name]}")
    # The module of a function may bear its name: bind every public name, or the module would shadow the function.
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
