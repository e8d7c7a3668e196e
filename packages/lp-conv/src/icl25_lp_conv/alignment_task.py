"""Compare the layers of trained networks with a simulated visual cortex."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch
from torch import nn

from icl25_lp_conv import rsa
from icl25_lp_conv.datasets.simulated_cortex import photo_crops, simulate_cortex
from icl25_lp_conv.digits_task import DigitsSizes, train_on_digits
from icl25_lp_conv.models import digits_resnet
from icl25_lp_conv.reproducibility import run_all, seeded

__all__ = ["alignment_tables", "identified_layers", "network_scores"]


def alignment_tables(
    variants: Sequence[str], seeds: Sequence[int], sizes: DigitsSizes, *, n_stimuli: int = 118, n_jobs: int = 1
) -> dict[str, list[pd.DataFrame]]:
    """Similarity of every layer of networks trained on digits to every area of a simulated cortex.

    Args:
        variants: Kinds of kernel, see ``digits_task``.
        seeds: Seeds of the networks and of the cortex; the same for every variant.
        sizes: How large the digits task is.
        n_stimuli: Number of photographs shown.
        n_jobs: Worker processes.

    Returns:
        Tables as of ``rsa.summarize``, by variant, one for each seed.

    Source: the paper's comparison with the visual cortex, with simulated recordings in place of those of mice.
    """
    return run_all(partial(_table, sizes=sizes, n_stimuli=n_stimuli), variants, seeds, n_jobs=n_jobs)


def network_scores(tables: Sequence[pd.DataFrame]) -> list[float]:
    """Score of each network: the corrected similarity of its best layer, averaged over areas.

    Args:
        tables: Tables of ``alignment_tables`` for one variant.

    Returns:
        A score for each table.

    Source: the authors' aggregation; the best layer as the score of a network is our reading.
    """
    return [float(rsa.best_layers(table)["corrected"].mean()) for table in tables]


def identified_layers(seeds: Sequence[int], *, n_stimuli: int = 118, n_sessions: int = 5) -> list[float]:
    """How often the analysis finds the layer from which recordings were made.

    Every layer of an untrained network serves as an area once: its features, with as much normal noise as signal, are
    what the sessions record.

    Args:
        seeds: Seeds of the network, the stimuli and the noise.
        n_stimuli: Number of photographs shown.
        n_sessions: Sessions in each area.

    Returns:
        For each seed the share of layers that were found.

    Source: ours, a check of the whole analysis.
    """
    shares = []
    for seed in seeds:
        with seeded(seed):
            model: nn.Module = digits_resnet()
            stimuli = photo_crops(n_stimuli, seed=seed)
            rng = np.random.default_rng(seed)
            brain = {}
            for layer, features in rsa.extract_features(model, torch.from_numpy(stimuli)).items():
                noise = features.std() * rng.standard_normal((n_sessions, *features.shape))
                brain[layer] = np.stack([rsa.rsm(features + part) for part in noise], -1)
            best = rsa.best_layers(rsa.summarize(rsa.rsa(model, torch.from_numpy(stimuli), brain)))
            shares.append(float((best["layer"] == best["area"]).mean()))
    return shares


def _table(variant: str, seed: int, sizes: DigitsSizes, n_stimuli: int) -> pd.DataFrame:
    model, _ = train_on_digits(variant, seed, sizes)
    stimuli = photo_crops(n_stimuli, seed=seed)
    brain = simulate_cortex(stimuli, seed=seed)
    with seeded(seed):
        table = rsa.rsa(model, torch.from_numpy(stimuli), brain)
    return rsa.summarize(table, {area: rsa.noise_ceiling(sessions) for area, sessions in brain.items()})
