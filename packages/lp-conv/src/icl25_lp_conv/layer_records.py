"""Describe the convolutions of a network in plain data, and build them from it: what a model file says of them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from icl25_lp_conv.growth import grown_padding
from icl25_lp_conv.layers import LP_CLASSES
from icl25_lp_conv.lp_layer import LpLayer
from icl25_lp_conv.models.presets import FixedMask, mask_kernel
from icl25_lp_conv.replacement import conv_arguments

__all__ = ["changed_layers", "install_layers", "layers_of_state"]

_CLASSES: dict[str, type[nn.Module]] = {cls.__name__: cls for cls in (*LP_CLASSES, *LP_CLASSES.values())}


def changed_layers(model: nn.Module, built: nn.Module) -> dict[str, dict[str, Any]]:
    """Describe the convolutions of a network that are not as they were built.

    Args:
        model: The network.
        built: The network before it was converted, merged or otherwise changed.

    Returns:
        For each such layer, by name, its ``class``, its ``arguments``, and ``random_mask`` where that is so; JSON can
        express all of it.

    Raises:
        ValueError: If a convolution is of a class that cannot be described.

    Source: ours.
    """
    before = dict(built.named_modules())
    changed = {}
    for name, module in model.named_modules():
        if isinstance(module, tuple(LP_CLASSES)):
            old = before.get(name)
            if _is_opaque(module) and old is not None and _is_opaque(old):
                continue  # as it was built
            described = _describe(name, module)
            if not isinstance(old, tuple(LP_CLASSES)) or _is_opaque(old) or described != _describe(name, old):
                changed[name] = described
    return changed


def install_layers(model: nn.Module, layers: Mapping[str, Any]) -> nn.Module:
    """Put layers in the place of others; modules and kernels that were shared stay shared.

    Args:
        model: The network, which is changed.
        layers: What ``changed_layers`` or ``layers_of_state`` returned.

    Returns:
        The network, a new one where it is itself replaced.

    Raises:
        ValueError: If a record is none, or the network has no such module.

    Source: ours.
    """
    modules = dict(model.named_modules())
    new_modules: dict[int, nn.Module] = {}
    new_weights: dict[int, Any] = {}
    for name, record in layers.items():
        if name not in modules:
            raise ValueError(f"there is no layer {name}")
        old: Any = modules[name]
        new: Any = _build(name, record)
        if isinstance(old, tuple(LP_CLASSES)) and "weight" in new._parameters:
            shared = new_weights.setdefault(id(old.weight), new.weight)
            if shared.shape == new.weight.shape:
                new.weight = shared
        new_modules[id(old)] = new.train(old.training)
    for parent in list(model.modules()):
        for child, module in parent._modules.items():
            if id(module) in new_modules:
                parent._modules[child] = new_modules[id(module)]
    return new_modules.get(id(model), model)


def layers_of_state(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Infer from the weights alone which convolutions were given masks, or kernels of another size.

    Args:
        model: The network before it was converted.
        state: Weights, by name; layers with masks have the entries ``C`` and ``log2p``, as in the authors' checkpoints.

    Returns:
        As ``changed_layers``.

    Raises:
        ValueError: If a kernel differs in size from the network's by an odd number of taps.

    Source: names and shapes of the authors' checkpoints.
    """
    found = {}
    for name, module in model.named_modules():
        kernel = state.get(f"{name}.weight".removeprefix("."))
        if not isinstance(module, tuple(LP_CLASSES)) or kernel is None or "weight" not in module._parameters:
            continue
        conv: Any = module
        C, log2p = (state.get(f"{name}.{part}".removeprefix(".")) for part in ("C", "log2p"))
        has_masks = C is not None and log2p is not None and kernel.ndim == conv.weight.ndim
        size = tuple(kernel.shape[2:])
        if not has_masks and (kernel.ndim != conv.weight.ndim or size == conv.kernel_size):
            continue
        if any((new - old) % 2 for new, old in zip(size, conv.kernel_size, strict=True)):
            raise ValueError(f"{name} has a kernel of size {size}, which {conv.kernel_size} cannot have become")
        record = _describe(name, copy.deepcopy(conv))
        padding = grown_padding(conv.padding, conv.kernel_size, size, conv.dilation)
        if not isinstance(padding, str) and min(padding) < 0:
            raise ValueError(f"{name} has a kernel of size {size}, too small for the padding of {conv.kernel_size}")
        record["arguments"] |= {"kernel_size": list(size), "padding": padding if padding == "same" else list(padding)}
        if C is not None and log2p is not None:
            record["class"] = next(lp.__name__ for plain, lp in LP_CLASSES.items() if isinstance(conv, plain))
            record["arguments"] |= {
                "p": float(torch.exp2(log2p.detach().double().mean())),
                "sigma": [k / 2 for k in conv.kernel_size],
                "mask_sharing": _sharing(len(C), conv),
            }
        found[name] = record
    return found


def _describe(name: str, module: Any) -> dict[str, Any]:
    """The class and the constructor arguments of a convolution; subclasses that compute the same count as torch's."""
    candidates = LP_CLASSES.values() if isinstance(module, LpLayer) else LP_CLASSES
    cls = next((known for known in candidates if isinstance(module, known)), None)
    if cls is None or _is_opaque(module):
        how = "parametrised" if cls else f"a {type(module).__name__}"
        raise ValueError(f"{name or 'the network'} is {how}, which a model file cannot describe")
    arguments = conv_arguments(module)
    del arguments["device"], arguments["dtype"]
    record: dict[str, Any] = {"class": cls.__name__}
    if isinstance(module, LpLayer):
        arguments |= {"p": module.init_p, "sigma": module.init_sigma, "mask_sharing": module.mask_sharing}
        arguments |= {"log2p_min": module.log2p_min}
        for argument, parameter in (("learn_p", module.log2p), ("learn_C", module.C)):
            arguments[argument] = parameter is None or parameter.requires_grad
    elif parametrize.is_parametrized(module):
        record["random_mask"] = True
    return record | {"arguments": {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items()}}


def _is_opaque(module: nn.Module) -> bool:
    """Whether a module is parametrised in another way than by a fixed mask."""
    if not parametrize.is_parametrized(module):
        return False
    steps: Any = module.parametrizations
    return list(steps) != ["weight"] or [type(step) for step in steps["weight"]] != [FixedMask]


def _build(name: str, record: Any) -> nn.Module:
    try:
        cls = _CLASSES[record["class"]]
        layer = cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in record["arguments"].items()})
        if record.get("random_mask"):
            size = record["arguments"]["kernel_size"]
            mask_kernel(layer, torch.ones(record["arguments"]["out_channels"], 1, *size, dtype=torch.bool))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ValueError(f"the record of layer {name or 'the network'} cannot be read ({error!r})") from error
    return layer


def _sharing(n_masks: int, conv: Any) -> str:
    sizes: list[tuple[str, int]] = [("channel", conv.out_channels), ("group", conv.groups), ("layer", 1)]
    return next((sharing for sharing, n in sizes if n == n_masks), "channel")
