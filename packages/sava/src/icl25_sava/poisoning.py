"""Clean-label poison: images that look like one class and that a network takes for another."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

__all__ = ["feature_collision"]


def feature_collision(
    base: Float[np.ndarray, "n h w c"],
    target: Float[np.ndarray, "m i j k"],
    network: Any,
    *,
    n_steps: int = 100,
    learning_rate: float = 0.1,
    beta: float = 0.1,
    device: str = "cpu",
    batch_size: int = 256,
) -> Float[np.ndarray, "n h w c"]:
    """Move each base image so that the network's outputs approach those of its target image.

    A step goes down the gradient of the squared error between the outputs (mean over outputs), then back towards the
    base image, x <- (x + lr beta base) / (1 + beta lr), and clips to [0, 1].

    Args:
        base: (n, h, w, c) images in [0, 1] to start from.
        target: (n, h, w, c) the image that each of them shall collide with.
        network: a torch module in evaluation mode from (b, c, h, w) to (b, k); its parameters are not changed.
        n_steps: number of steps.
        learning_rate: lr, the size of a step.
        beta: how strongly images are held at the base.
        device: where the network is.
        batch_size: images moved at a time.

    Returns:
        (n, h, w, c) the moved images.

    Raises:
        ValueError: base and target have different shapes, or a number is not positive.
        ModuleNotFoundError: torch is not installed.

    Source: feature-collision poison of the paper's code. Its number of steps, step size and beta are not in the paper;
    those here are ours.
    """
    import torch

    if base.shape != target.shape:
        raise ValueError(f"base has shape {base.shape}, target has {target.shape}, expected the same")
    if min(n_steps, learning_rate, beta, batch_size) <= 0:
        raise ValueError("n_steps, learning_rate, beta and batch_size must be positive")
    out = np.empty_like(base)
    for start in range(0, len(base), batch_size):
        part = slice(start, start + batch_size)
        held, aim = (torch.from_numpy(np.array(a[part])).to(device).movedim(-1, 1) for a in (base, target))
        with torch.no_grad():
            wanted = network(aim)
        x = held
        for _ in range(n_steps):
            x = x.detach().requires_grad_()
            # A sum over images: what one image does must not depend on the batch it is in.
            error = (network(x) - wanted).square().flatten(1).mean(dim=1).sum()
            (slope,) = torch.autograd.grad(error, x)
            x = x.detach() - learning_rate * slope
            x = ((x + learning_rate * beta * held) / (1 + beta * learning_rate)).clamp(0, 1)
        out[part] = x.movedim(1, -1).cpu().numpy()
    return out
