"""Put one convolution layer in the place of another: its arguments, mode, hooks and gradient flags."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["carry_over", "conv_arguments", "make_undrawn", "weight_hooks"]

_HOOKS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
    "_non_full_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


def carry_over(old: nn.Module, new: nn.Module) -> None:
    """Give a replacement the mode and hooks of the module it replaces, and the ``requires_grad`` of its parameters.

    Hooks that compute the weight (pruning, weight norm) stay behind: the replacement holds what they computed.

    Args:
        old: The module that is replaced.
        new: The module that takes its place.

    Source: ours.
    """
    for name in _HOOKS:
        if name in old.__dict__:
            setattr(new, name, old.__dict__[name])
    stale = weight_hooks(old)
    if stale:
        hooks: Any = old._forward_pre_hooks
        new._forward_pre_hooks = type(hooks)((key, hook) for key, hook in hooks.items() if hook not in stale)
    for name, parameter in old.named_parameters(recurse=False):
        if hasattr(new, name):
            getattr(new, name).requires_grad_(parameter.requires_grad)
    new.train(old.training)


def weight_hooks(module: nn.Module) -> list[Any]:
    """The hooks by which ``torch.nn.utils`` computes a weight anew before each call: pruning, weight norm and the like.

    Args:
        module: The module.

    Returns:
        The hooks, to be called with the module and its inputs.

    Source: ours.
    """
    return [hook for hook in module._forward_pre_hooks.values() if type(hook).__module__.startswith("torch.nn.utils")]


def make_undrawn(cls: type[nn.Module], arguments: dict[str, Any]) -> Any:
    """Make a layer whose parameters are to be overwritten, and leave the generators of torch as they were.

    Args:
        cls: Class of the layer.
        arguments: Arguments of its constructor, ``device`` among them.

    Returns:
        The layer.

    Source: ours.
    """
    device = torch.device(arguments["device"])
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return cls(**arguments)


def conv_arguments(conv: Any, **changed: Any) -> dict[str, Any]:
    """The constructor arguments of a convolution layer, some of them changed.

    Args:
        conv: A convolution layer of torch, or one that extends it.
        **changed: Arguments that are to differ.

    Returns:
        Keyword arguments for the constructor of such a layer of torch.

    Source: ours.
    """
    names = ["in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]
    names += ["output_padding"] if conv.transposed else []
    given = {name: getattr(conv, name) for name in names}
    given |= {"bias": conv.bias is not None, "device": conv.weight.device, "dtype": conv.weight.dtype}
    return given | changed
