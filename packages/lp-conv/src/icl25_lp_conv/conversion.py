"""Convert the convolutions of a whole network to Lp layers, and merge them back to plain ones."""

from __future__ import annotations

import copy
import fnmatch
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from icl25_lp_conv.growth import grown_kernel_size
from icl25_lp_conv.layers import LP_CLASSES
from icl25_lp_conv.lp_layer import LpLayer, Transfer

__all__ = ["ConversionReport", "Replaced", "Selector", "convert", "merge"]

Selector = str | type | Callable[[str, nn.Module], bool]
"""A glob over module names, a class of modules, or a function of name and module."""

_OPTIONS = {"sigma", "learn_p", "learn_C", "mask_sharing", "log2p_min"}
_ORDINARY = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Replaced:
    """One layer that was replaced.

    Attributes:
        name: Its name in the network; empty where the network itself is the layer.
        old_kernel: Kernel size before.
        new_kernel: Kernel size after.
        old_padding: Padding before.
        new_padding: Padding after.
        old_parameters: Number of parameters before.
        new_parameters: Number of parameters after.
    """

    name: str
    old_kernel: tuple[int, ...]
    new_kernel: tuple[int, ...]
    old_padding: str | tuple[int, ...]
    new_padding: str | tuple[int, ...]
    old_parameters: int
    new_parameters: int


@dataclass(frozen=True)
class ConversionReport:
    """What became of the convolutions of a network; ``print`` shows it as a table.

    Attributes:
        layers: The layers that were replaced, in the order of the network.
        skipped: Names of convolutions that were left as they are, with the reason.
    """

    layers: tuple[Replaced, ...]
    skipped: dict[str, str]

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        # Pickled as its text: who loads a merged network needs nothing of this package.
        return str, (str(self),)

    def __copy__(self) -> ConversionReport:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> ConversionReport:
        return self

    def rows(self) -> list[dict[str, Any]]:
        """The replaced layers as records with the keys name, old_kernel, new_kernel, parameters and padding."""
        return [
            {
                "name": layer.name or "(the network)",
                "old_kernel": _times(layer.old_kernel),
                "new_kernel": _times(layer.new_kernel),
                "parameters": f"{layer.old_parameters} -> {layer.new_parameters}",
                "padding": f"{_times(layer.old_padding)} -> {_times(layer.new_padding)}",
            }
            for layer in self.layers
        ]

    def __str__(self) -> str:
        table = [
            ["name", "old kernel", "new kernel", "parameters", "padding"],
            *(list(r.values()) for r in self.rows()),
        ]
        widths = [max(len(row[i]) for row in table) for i in range(5)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        lines += [f"left as it is: {name or '(the network)'} ({reason})" for name, reason in self.skipped.items()]
        return "\n".join(line.rstrip() for line in lines)


def convert(
    model: nn.Module,
    p: float | None = 2.0,
    growth: float = 2,
    transfer: Transfer = "copy",
    include: Selector | Sequence[Selector] | None = None,
    exclude: Selector | Sequence[Selector] | None = None,
    min_kernel: int = 1,
    max_kernel: int | None = None,
    depthwise: Literal["keep", "skip"] = "keep",
    inplace: bool = False,
    **options: Any,
) -> nn.Module:
    """Give the convolutions of a network large kernels with trainable Lp masks, its shapes unchanged.

    Every ``Conv1d``, ``Conv2d`` and ``Conv3d`` is replaced unless it is left out; Lp layers are left alone, so that a
    second conversion changes nothing. Transposed convolutions are replaced only where ``include`` names them. Layers
    used in several places, and kernels shared between layers, stay shared. For pretrained weights take
    ``transfer="exact"``: the network then computes what it did before.

    Args:
        model: The network; a single convolution counts.
        p: Initial exponent of the masks, > 0; None makes large kernels without masks.
        growth: Factor by which kernels grow, >= 1: 2 takes 3 to 7; 1 adds masks to the kernels as they are.
        transfer: ``"copy"``, ``"exact"`` or ``"none"``, see ``LpConv2d.from_conv``.
        include: Which layers to replace: a glob over names (``"layer1.*"``), a class, a function of name and layer, or
            several of these.
        exclude: Which of them to leave out, likewise.
        min_kernel: Leave out kernels that are smaller than this along some axis.
        max_kernel: Leave out kernels that are larger than this along some axis.
        depthwise: Whether depthwise layers (as many groups as input channels, more than one) are kept among those to
            be replaced, or skipped.
        inplace: Change ``model`` itself rather than a copy.
        **options: Of the layers: ``sigma``, ``learn_p``, ``learn_C``, ``mask_sharing``, ``log2p_min``.

    Returns:
        The network. Its attribute ``conversion_report``, a ``ConversionReport``, says what was replaced.

    Raises:
        TypeError: If the network holds a quantised, lazy or TorchScript module, which cannot be converted; the message
            names it. If an option or a selector is none.
        ValueError: If an argument is out of range.

    Warns:
        UserWarning: If nothing was replaced, or a convolution had to be left as it is; the message names it.

    Source: the large-kernel transform of Kwon et al. (ICLR 2025).
    """
    if depthwise not in ("keep", "skip"):
        raise ValueError(f"depthwise must be keep or skip, found {depthwise!r}")
    grown_kernel_size([1], growth)  # refuses a wrong factor whatever the network
    if max_kernel is not None and min_kernel > max_kernel:
        raise ValueError(f"min_kernel must be <= max_kernel, found {min_kernel} and {max_kernel}")
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"convert has no option {min(unknown)}; those of the layers are {', '.join(sorted(_OPTIONS))}")
    _refuse_unconvertible(model)
    included, excluded = _selectors(include), _selectors(exclude)

    def reason_to_skip(name: str, module: Any) -> str | None:
        if isinstance(module, LpLayer):
            return "an Lp layer already"
        if included and not _matches(included, name, module):
            return "not included"
        if _matches(excluded, name, module):
            return "excluded"
        if isinstance(module, _TRANSPOSED) and not included:
            return "a transposed convolution; name it in `include` to convert it"
        size = module.kernel_size
        if min(size) < min_kernel or (max_kernel is not None and max(size) > max_kernel):
            return f"kernel size {_times(size)}"
        if depthwise == "skip" and module.groups == module.in_channels > 1:
            return "depthwise"
        return _obstacle(module)

    def replace(name: str, module: nn.Module) -> nn.Module:
        return _lp_class(module).from_conv(module, p=p, growth=growth, transfer=transfer, **options)

    return _replace_all(model, reason_to_skip, replace, inplace=inplace, verb="converted")


def merge(model: nn.Module, crop: float = 0.0, inplace: bool = False) -> nn.Module:
    """Turn every Lp layer into a plain convolution of torch that computes the same.

    Args:
        model: The network.
        crop: Cut outer rows and columns of kernels on which every mask is below this; 0 cuts nothing. See
            ``LpConv2d.to_conv``.
        inplace: Change ``model`` itself rather than a copy.

    Returns:
        The network, in which no class of this package is left. Its attribute ``conversion_report`` says what was
        merged.

    Raises:
        ValueError: If ``crop`` is not in [0, 1).

    Warns:
        UserWarning: If there was nothing to merge.

    Source: ours; the authors have no such step.
    """
    if not 0 <= crop < 1:
        raise ValueError(f"crop must lie in [0, 1), found {crop}")

    def reason_to_skip(name: str, module: nn.Module) -> str | None:
        return None if isinstance(module, LpLayer) else "a plain convolution"

    def replace(name: str, module: Any) -> nn.Module:
        return module.to_conv(crop)

    return _replace_all(model, reason_to_skip, replace, inplace=inplace, verb="merged")


def _replace_all(
    model: nn.Module,
    reason_to_skip: Callable[[str, Any], str | None],
    replace: Callable[[str, Any], nn.Module],
    *,
    inplace: bool,
    verb: str,
) -> nn.Module:
    """Replace convolutions wherever they occur, each module once, each shared kernel (and mask) by one kernel."""
    if not inplace:
        # Weights that a hook computes (pruning, weight norm) are no leaves of the graph, which torch refuses to copy.
        attributes = [value for module in model.modules() for value in vars(module).values()]
        computed = [x for x in attributes if isinstance(x, Tensor) and x.grad_fn is not None]
        model = copy.deepcopy(model, {id(x): x.detach().clone() for x in computed})
    layers: list[Replaced] = []
    skipped: dict[str, str] = {}
    new_modules: dict[int, nn.Module] = {}
    new_weights: dict[tuple[int, ...], Any] = {}
    new_biases: dict[int, Any] = {}
    for name, module in list(_convolutions(model)):
        reason = reason_to_skip(name, module)
        if reason is not None:
            skipped[name] = reason
            continue
        new: Any = replace(name, module)
        kernel = tuple(id(getattr(module, part, None)) for part in ("weight", "C", "log2p"))
        shared = new_weights.setdefault(kernel, new.weight)
        if shared.shape == new.weight.shape:
            new.weight = shared
        if module.bias is not None:
            new.bias = new_biases.setdefault(id(module.bias), new.bias)
        new_modules[id(module)] = new
        layers.append(
            Replaced(
                name, module.kernel_size, new.kernel_size, module.padding, new.padding, _count(module), _count(new)
            )
        )
    report = ConversionReport(tuple(layers), skipped)
    for name, reason in skipped.items():
        if reason.startswith(("a transposed", "its ")):
            warnings.warn(f"{name or 'the network'} was left as it is: {reason}", stacklevel=3)
    if not layers:
        warnings.warn(f"no convolution was {verb}", stacklevel=3)
    for parent in list(model.modules()):
        for child, module in parent._modules.items():
            if id(module) in new_modules:
                parent._modules[child] = new_modules[id(module)]
    model = new_modules.get(id(model), model)
    model.conversion_report = report  # ty: ignore[invalid-assignment]
    return model


def _convolutions(model: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, (*_ORDINARY, *_TRANSPOSED)))


def _lp_class(module: nn.Module) -> type[LpLayer]:
    return next(cls for plain, cls in LP_CLASSES.items() if isinstance(module, plain))


def _obstacle(module: Any) -> str | None:
    """Why a convolution cannot be replaced by one that computes the same, if so."""
    plain = _lp_class(module).plain
    if "weight" not in module._parameters or any(name.startswith("parametrizations") for name in module._modules):
        return "its weight is pruned, normalised or otherwise parametrised; remove that first"
    for method in ("forward", "_conv_forward"):
        if getattr(type(module), method, None) is not getattr(plain, method, None):
            return f"its class {type(module).__name__} computes something other than {plain.__name__}"
    return None


def _refuse_unconvertible(model: nn.Module) -> None:
    """Refuse networks that hold modules whose convolutions are out of reach."""
    from torch import jit
    from torch.nn.modules.lazy import LazyModuleMixin

    for name, module in model.named_modules():
        home = type(module).__module__
        if isinstance(module, jit.ScriptModule):
            kind, advice = "a TorchScript module", "convert the network before scripting it"
        elif isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
            kind, advice = "a lazy module", "run the network once on an input, then convert it"
        elif home.startswith(("torch.ao.nn.quantized", "torch.ao.nn.qat", "torch.ao.nn.intrinsic")):
            kind, advice = "a quantised module", "convert the network before quantising it"
        else:
            continue
        raise TypeError(f"{name or 'the network'} is {kind} ({type(module).__name__}): {advice}")


def _selectors(given: Selector | Sequence[Selector] | None) -> tuple[Selector, ...]:
    if given is None:
        return ()
    selectors = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for selector in selectors:
        if not (isinstance(selector, str) or callable(selector)):
            raise TypeError(f"a selector must be a glob, a class or a function, found {selector!r}")
    return selectors


def _matches(selectors: Iterable[Selector], name: str, module: nn.Module) -> bool:
    return any(
        fnmatch.fnmatchcase(name, selector)
        if isinstance(selector, str)
        else isinstance(module, selector)
        if inspect.isclass(selector)
        else bool(selector(name, module))
        for selector in selectors
    )


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _times(size: Any) -> str:
    return size if isinstance(size, str) else "x".join(map(str, size))
