"""All validation batches of one training batch at once on an accelerator, in PyTorch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from icl25_sava.gradients import calibrated_gradient
from icl25_sava.pairs import Batch, BatchSolution, Recipe, pair_diameter, solve_batch
from icl25_sava.potentials import anneal, annealing_schedule

__all__ = ["solve_batch_on_device"]

_COPIES = 6  # arrays of the size of the cost that a sweep holds at once
_CPU_BYTES = 1 << 30


def solve_batch_on_device(
    train: Batch, val: list[Batch], W: np.ndarray, recipe: Recipe, diameters: np.ndarray | None = None
) -> BatchSolution:
    """As ``icl25_sava.pairs.solve_batch``, the annealed problems stacked on ``recipe.device``.

    Problems of one shape and one number of temperatures are solved together, as many as fit the free memory.

    Args:
        train: training batch, n rows.
        val: k validation batches.
        W: class distances, shape (K, K).
        recipe: how each problem is posed; other solvers than the annealed one run on the processor.
        diameters: length scale of each problem, shape (k,); from the data when None.

    Returns:
        The solution, as NumPy arrays.

    Raises:
        ValueError: see ``icl25_sava.pairs.solve_batch``.

    Source: SAVA (arXiv 2406.01130), inner problems between batches.
    """
    import torch

    if recipe.solver != "annealed" or recipe.batch_cost != "dual" or recipe.per_pair_labels:
        return solve_batch(train, val, W, replace(recipe, device="cpu"), diameters)
    device = torch.device(recipe.device)
    dtype = torch.float64 if recipe.dtype == "float64" and device.type != "mps" else torch.float32
    n, k = len(train.X), len(val)
    gradients, costs = np.zeros((n, k), recipe.dtype), np.zeros(k)
    nearest, nearest_cost = np.zeros(n, np.int64), np.full(n, np.inf, recipe.dtype)
    groups: dict[tuple[int, int], list[tuple[int, list[float]]]] = {}
    for j, other in enumerate(val):
        start = pair_diameter(train, other, W, recipe) if diameters is None else float(diameters[j])
        schedule = annealing_schedule(start, recipe.eps, recipe.scaling, recipe.p)
        groups.setdefault((len(other.X), len(schedule)), []).append((j, schedule))
    moved = _Mover(torch, device, dtype, train, W, recipe)
    for (m, _), members in groups.items():
        size = max(1, _free_bytes(torch, device) // (_COPIES * n * m * dtype.itemsize))
        for first in range(0, len(members), size):
            part = members[first : first + size]
            C = torch.stack([moved.cost(val[j]) for j, _ in part])
            schedule = torch.tensor(np.array([s for _, s in part]).T[..., None], dtype=dtype, device=device)
            log_a, log_b = (torch.full((x,), -math.log(x), dtype=dtype, device=device) for x in (n, m))
            f, g = anneal(C, log_a, log_b, list(schedule))
            best_cost, best = C.min(dim=2)
            f64, g64 = f.double().cpu().numpy() if device.type != "mps" else f.cpu().numpy(), g.cpu().numpy()
            for row, (j, _) in enumerate(part):
                gradients[:, j] = calibrated_gradient(f64[row])
                costs[j] = f64[row].mean() + g64[row].mean(dtype=np.float64)
                candidate = best_cost[row].cpu().numpy()
                closer = candidate < nearest_cost
                nearest[closer] = val[j].rows[best[row].cpu().numpy()[closer]]
                nearest_cost[closer] = candidate[closer]
    return BatchSolution(gradients, costs, nearest, nearest_cost)


class _Mover:
    """Costs of one training batch on the device; the validation side is moved once per process and kept there."""

    def __init__(self, torch: Any, device: Any, dtype: Any, train: Batch, W: np.ndarray, recipe: Recipe) -> None:
        self.torch, self.device, self.dtype, self.recipe = torch, device, dtype, recipe
        self.X = torch.as_tensor(train.X, dtype=dtype, device=device)
        scale = recipe.lambda_y if recipe.p == 1 else recipe.lambda_y / 2
        self.label_term = torch.as_tensor(W[train.y] * scale, dtype=dtype, device=device)

    def cost(self, other: Batch) -> Any:
        torch, recipe = self.torch, self.recipe
        Xv = torch.as_tensor(other.X, dtype=self.dtype, device=self.device)
        centre = Xv.mean(dim=0)
        A, B = self.X - centre, Xv - centre
        C = torch.addmm((A * A).sum(dim=1)[:, None] / 2 + (B * B).sum(dim=1) / 2, A, B.T, alpha=-1).clamp_(min=0)
        if recipe.p == 1:
            C = C.mul_(2).sqrt_()
        C *= recipe.lambda_x
        if recipe.lambda_y:
            ids = torch.as_tensor(other.y, device=self.device)
            C += self.label_term[:, ids]
        return C


def _free_bytes(torch: Any, device: Any) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * 0.7)
    return _CPU_BYTES
