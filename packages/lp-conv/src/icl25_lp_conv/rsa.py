"""Representational similarity: which layers of a network see stimuli as areas of the brain do."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from jaxtyping import Num, Shaped
from joblib import Parallel, delayed
from torch import Tensor, nn

from icl25_lp_conv.brain_files import read_brain, read_ceilings
from icl25_lp_conv.rsa_features import extract_features, feature_sums
from icl25_lp_conv.rsa_matrices import (
    METRICS,
    ConstantFeaturesError,
    check_metric,
    check_n_stimuli,
    check_recordings,
    check_rsm,
    rsm,
)
from icl25_lp_conv.rsa_statistics import (
    METHODS,
    Bootstrap,
    PermutationTest,
    bootstrap,
    check_method,
    compare_rsm,
    draw_orders,
    noise_ceiling,
    permutation_test,
    prepare,
    score_sessions,
)
from icl25_lp_conv.rsa_tables import best_layers, median_ceilings, summarize
from icl25_shared import track

if TYPE_CHECKING:
    from rsatoolbox.rdm import RDMs

__all__ = [
    "METHODS",
    "METRICS",
    "Bootstrap",
    "ConstantFeaturesError",
    "PermutationTest",
    "best_layers",
    "bootstrap",
    "compare_rsm",
    "extract_features",
    "noise_ceiling",
    "permutation_test",
    "read_brain",
    "read_ceilings",
    "rsa",
    "rsm",
    "summarize",
    "to_rsatoolbox",
]


def rsa(
    model: nn.Module,
    stimuli: Shaped[Tensor, "n ..."] | Shaped[np.ndarray, "n ..."],
    brain: Mapping[str, Num[np.ndarray, "..."]],
    ceilings: Mapping[str, Num[np.ndarray, "..."]] | None = None,
    layers: str | Sequence[str] | None = None,
    method: str = "kendall",
    batch_size: int = 32,
    n_permutations: int = 0,
    seed: int | np.random.Generator = 0,
    n_jobs: int | None = 1,
    max_bytes: int = 2**30,
    metric: str = "pearson",
) -> pd.DataFrame:
    """Compare the layers of a network with recordings of brain areas, for the same stimuli.

    Args:
        model: Any network that takes a batch of stimuli.
        stimuli: (n, ...) floating-point stimuli, n >= 3, scaled as in training; images (n, channels, height, width).
        brain: For each area the (n, n, sessions) RSMs of its recordings, or (n, n) of a single one.
        ceilings: For each area (k,) noise ceilings. By default each session is compared with the mean of the others,
            in the areas that have two or more.
        layers: Names of modules or patterns; None takes every convolution. See ``extract_features``.
        method: Correlation of RSMs, as in ``compare_rsm``; the paper's is ``kendall``.
        batch_size: Stimuli in one forward pass.
        n_permutations: Shuffles of the stimuli for a p-value of each row, as in ``permutation_test``; 0 for none.
        seed: Seed of the shuffles, which are the same for all rows; the result does not depend on ``n_jobs``.
        n_jobs: Workers of joblib, over layers and areas.
        max_bytes: Most bytes of features held at a time, outputs of a batch aside. Where the layers need more, the
            stimuli go through the network several times.
        metric: Similarity of two stimuli, as in ``rsm``; the paper's is ``pearson``.

    Returns:
        A row for each layer, area and session: ``layer``, ``area``, ``session`` (from 0), ``ssm`` (the similarity),
        ``corrected`` (``ssm`` divided by the median ceiling of the area; NaN where there is none) and, if asked for,
        ``p_value``. A layer whose features do not vary has NaN, and a warning names it.

    Raises:
        TypeError: If stimuli are whole numbers, or a layer returns no tensor.
        ValueError: If there are fewer than 3 stimuli, the model has no such layers, an area has another number of
            stimuli, a session is not symmetric or holds NaN, infinities or equal entries only, or an option is unknown.

    Source: the paper's comparison of networks with the mouse visual cortex, in which ``summarize`` is the next step.
    """
    check_method(method)
    check_metric(metric)
    check_n_stimuli(len(stimuli), "stimuli")
    recordings = _check_brain(brain, len(stimuli))
    rows = np.tril_indices(len(stimuli), -1)
    sessions = {
        area: [prepare(x, method, f"area {area!r}, session {k}") for k, x in enumerate(array[rows].T)]
        for area, array in recordings.items()
    }
    scale = _default_ceilings(recordings, method) if ceilings is None else median_ceilings(ceilings, list(brain))
    orders = draw_orders(len(stimuli), n_permutations, seed) if n_permutations else None

    parts = []
    with Parallel(n_jobs=n_jobs, return_as="generator") as parallel:
        for group in feature_sums(model, stimuli, layers, batch_size, max_bytes):
            entries: dict[str, Any] = dict.fromkeys(group)
            for label, sums in group.items():
                try:
                    entries[label] = prepare(sums.similarity(metric)[rows], method, f"layer {label!r}")
                except ConstantFeaturesError as error:
                    warnings.warn(f"layer {label!r}: {error}; its similarities are NaN", stacklevel=2)
            pairs = [(label, area) for label in group for area in sessions]
            tasks = (delayed(score_sessions)(entries[label], sessions[area], method, orders) for label, area in pairs)
            scores = track(parallel(tasks), "comparing layers with areas", len(pairs))
            for (label, area), found in zip(pairs, scores, strict=True):
                part = pd.DataFrame(found, columns=["ssm", "p_value"])
                part.insert(1, "corrected", part["ssm"] / scale[area])
                parts.append(part.assign(layer=label, area=area, session=np.arange(len(found))))
    columns = ["layer", "area", "session", "ssm", "corrected", *(["p_value"] if n_permutations else [])]
    return pd.concat(parts, ignore_index=True)[columns]


def to_rsatoolbox(rsms: Mapping[str, Num[np.ndarray, "..."]]) -> RDMs:
    """Hand RSMs to rsatoolbox, which has models, inference and pictures beyond those here.

    Args:
        rsms: For each name an (n, n) RSM of correlations, all of the same n stimuli.

    Returns:
        Dissimilarities 1 - r in the order of ``rsms``, with the names as the descriptor ``name``.

    Raises:
        ImportError: If rsatoolbox is not installed.
        ValueError: If there is no RSM, one is faulty, or sizes differ.

    Source: ours.
    """
    try:
        from rsatoolbox.rdm import RDMs
    except ImportError as error:
        raise ImportError("to_rsatoolbox needs rsatoolbox: pip install 'icl25-lp-conv[rsatoolbox]'") from error
    if not rsms:
        raise ValueError("rsms is empty, expected an RSM for each name")
    checked = {name: check_rsm(matrix, f"RSM {name!r}") for name, matrix in rsms.items()}
    sizes = {name: len(matrix) for name, matrix in checked.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"RSMs must be of the same stimuli, found these numbers of them: {sizes}")
    above = np.triu_indices(next(iter(sizes.values())), 1)
    return RDMs(
        np.stack([1 - matrix[above] for matrix in checked.values()]),
        dissimilarity_measure="1 - correlation",
        rdm_descriptors={"name": list(checked)},
    )


def _check_brain(brain: Mapping[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """The recordings as (n, n, sessions) in double precision."""
    if not brain:
        raise ValueError("brain is empty, expected recordings for each area")
    for area, array in brain.items():
        if array.ndim >= 2 and array.shape[0] == array.shape[1] != n:
            raise ValueError(f"area {area!r} has {len(array)} stimuli, but stimuli has {n}")
    return {area: check_recordings(array, f"area {area!r}") for area, array in brain.items()}


def _default_ceilings(recordings: Mapping[str, np.ndarray], method: str) -> dict[str, float]:
    """Median ceiling of each area by leaving one session out; NaN where that gives none."""
    found: dict[str, float] = {}
    for area, array in recordings.items():
        found[area] = float(np.median(noise_ceiling(array, compare=method))) if array.shape[2] > 1 else np.nan
        if found[area] <= 0:
            warnings.warn(
                f"sessions of area {area!r} do not agree with each other (noise ceiling {found[area]:.3g}): "
                "its corrected similarities are NaN",
                stacklevel=3,
            )
            found[area] = np.nan
    return found
