"""Build a network from its name: one of this package, of torchvision, of timm, or of a function of the user's."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from icl25_lp_conv.models.digits_net import digits_resnet
from icl25_lp_conv.models.sudoku_net import sudoku_cnn

__all__ = ["ModelSource", "build_model"]

_OWN: dict[str, Callable[..., nn.Module]] = {"digits-resnet": digits_resnet, "sudoku-cnn": sudoku_cnn}
_LIBRARIES = ("torchvision", "timm")
# Prefixes by which timm looks outside of itself.
_REMOTE = ("hf-hub:", "hf_hub:", "local-dir:")
_INSTALL = 'pip install "icl25-lp-conv[vision]"'


@dataclass(frozen=True)
class ModelSource:
    """What it takes to build a network again, apart from its weights.

    Attributes:
        name: As ``build_model`` takes it.
        num_classes: Number of classes; None for the default of the network.
        small_images: Whether the network is the variant for small images.

    Source: ours.
    """

    name: str
    num_classes: int | None = None
    small_images: bool = False

    @property
    def is_function(self) -> bool:
        """Whether the name is that of a function outside this package, which building the network would call."""
        library, colon, _ = _split(self.name)[0].partition(":")
        return bool(colon) and library not in _LIBRARIES

    def build(self, pretrained: bool = False) -> nn.Module:
        """Build the network; see ``build_model``."""
        return build_model(self.name, self.num_classes, self.small_images, pretrained)


def build_model(
    name: str, num_classes: int | None = None, small_images: bool = False, pretrained: bool = False
) -> nn.Module:
    """Build a network from its name.

    Args:
        name: ``"digits-resnet"`` or ``"sudoku-cnn"``, with options in parentheses if need be, for instance
            ``"sudoku-cnn(depth=6, width=32)"``; ``"torchvision:resnet18"``; ``"timm:convnext_tiny"``; a bare name,
            which is looked up in that order; or ``"package.module:function"``, a function that returns a network and
            takes ``num_classes`` if that is given (as training does).
        num_classes: Number of classes; None for the default of the network.
        small_images: Take the paper's variant for small images (CIFAR): the first convolution of AlexNet and of
            ResNets has 3x3 kernels and stride 1. VGG and ConvNeXt have none, and stay as they are.
        pretrained: Load weights that torchvision or timm fetch from the network; nothing else goes there. Layers that
            ``num_classes`` or ``small_images`` change start at random.

    Returns:
        The network, in training mode.

    Raises:
        ValueError: If there is no such network, with those whose names are close; if the name cannot be read; or if
            the network has no classes, variant or weights as asked for.
        TypeError: If the function returns no network.
        ImportError: If torchvision or timm is needed and cannot be imported.

    Source: the networks of the paper's experiments.
    """
    if num_classes is not None and num_classes < 1:
        raise ValueError(f"num_classes must be >= 1, found {num_classes}")
    bare, options = _split(name)
    library, colon, rest = bare.partition(":")
    if bare in _OWN:
        if pretrained:
            raise ValueError(f"{bare} has no pretrained weights")
        return _build_own(bare, options, num_classes)
    if options:
        raise ValueError(f"{name}: only {_listed(list(_OWN))} take options in parentheses")
    if colon and library not in _LIBRARIES:
        if pretrained or small_images:
            raise ValueError(f"{name} is a function: it alone decides about weights and variants for small images")
        return _call(library, rest, num_classes)
    if library == "torchvision" and colon:
        return _from_torchvision(rest, num_classes, small_images, pretrained)
    if library == "timm" and colon:
        return _from_timm(rest, num_classes, small_images, pretrained)
    own_and_close = difflib.get_close_matches(bare, _OWN, 1)
    try:
        if bare in _torchvision_names():
            return _from_torchvision(bare, num_classes, small_images, pretrained)
        if _import("timm").is_model(bare):
            return _from_timm(bare, num_classes, small_images, pretrained)
    except ImportError:
        if own_and_close:
            raise _unknown(bare, own_and_close) from None
        raise
    raise _unknown(bare, [*_OWN, *_torchvision_names(), *_import("timm").list_models()])


def _split(name: str) -> tuple[str, dict[str, Any]]:
    """A name and the options in parentheses behind it, which are literals."""
    bare, parenthesis, _ = name.partition("(")
    if not parenthesis:
        return name, {}
    try:
        call = ast.parse(name.replace(bare, "f", 1), mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError
        return bare, {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(f"{name!r} cannot be read; options look like name(depth=6, width=32)") from None


def _build_own(name: str, options: dict[str, Any], num_classes: int | None) -> nn.Module:
    function = _OWN[name]
    known = list(inspect.signature(function).parameters)
    if num_classes is not None:
        if "num_classes" not in known:
            raise ValueError(f"{name} has no classes, found num_classes={num_classes}")
        if options.get("num_classes", num_classes) != num_classes:
            raise ValueError(f"{name} is asked for {options['num_classes']} classes and for {num_classes}")
        options = {**options, "num_classes": num_classes}
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(f"{name} has no option {unknown[0]}; it has {_listed(known)}")
    try:
        return function(**options)
    except TypeError as error:
        raise ValueError(f"{name}: an option has a wrong type ({error})") from error


def _call(module_name: str, function_name: str, num_classes: int | None) -> nn.Module:
    where = f"{module_name}:{function_name}"
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there, but not what it imports
        close = difflib.get_close_matches(module_name, _LIBRARIES, 1)
        hint = f"did you mean {close[0]}:{function_name}?" if close else "it must be installed or on PYTHONPATH"
        raise ValueError(f"{where}: there is no module {error.name}; {hint}") from None
    except (TypeError, ValueError):
        raise ValueError(f"{where!r} is no name of a function, expected package.module:function") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        close = difflib.get_close_matches(function_name, [n for n in dir(module) if callable(getattr(module, n))])
        raise ValueError(f"{where}: there is no function {function_name}{_close(close)}")
    options = {} if num_classes is None else {"num_classes": num_classes}
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        raise ValueError(f"{where} cannot be called with {options or 'no arguments'}: {error}") from error
    except ValueError:  # a function in C, which does not say what it takes
        pass
    model = function(**options)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{where} returned {type(model).__name__}, expected a torch.nn.Module")
    return model


def _import(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ImportError(f"networks of {library} need it installed: {_INSTALL} ({error})") from error
    except RuntimeError as error:  # torchvision's, when its compiled part was built for another torch
        raise ImportError(
            f"{library} cannot be imported beside this torch ({str(error).splitlines()[0]}): install torch and "
            "torchvision from the same index, in versions that belong together"
        ) from error


def _torchvision_names() -> list[str]:
    return _import("torchvision").models.list_models()


def _from_torchvision(name: str, num_classes: int | None, small_images: bool, pretrained: bool) -> nn.Module:
    models = _import("torchvision").models
    if name not in models.list_models():
        raise _unknown(name, models.list_models(), "torchvision:")
    parameters = inspect.signature(models.get_model_builder(name)).parameters
    options: dict[str, Any] = {"weights": None}
    # Segmentation and detection networks would fetch weights of their backbone without being asked.
    options |= {"weights_backbone": None} if "weights_backbone" in parameters else {}
    # GoogLeNet and Inception warn that their slow initialisation is to change.
    options |= {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    options |= {} if num_classes is None else {"num_classes": num_classes}
    model = models.get_model(name, **options)
    if small_images:
        _adapt_to_small_images(model, name)
    if pretrained:
        _copy_what_fits(models.get_model(name, weights="DEFAULT"), model)
    return model


def _from_timm(name: str, num_classes: int | None, small_images: bool, pretrained: bool) -> nn.Module:
    timm = _import("timm")
    if name.startswith(_REMOTE):
        if not pretrained:
            raise ValueError(f"timm:{name} lies outside of timm and is fetched only with pretrained weights")
    elif not timm.is_model(name):
        raise _unknown(name, timm.list_models(), "timm:")
    options = {} if num_classes is None else {"num_classes": num_classes}
    model = timm.create_model(name, pretrained=pretrained, **options)
    if small_images:
        _adapt_to_small_images(model, name)
    return model


def _adapt_to_small_images(model: Any, name: str) -> None:
    """Give AlexNet and ResNets a first convolution with 3x3 kernels and stride 1."""
    stem = getattr(model, "conv1", None)
    if name == "alexnet":
        model.features[0] = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1)
    elif isinstance(stem, nn.Conv2d) and stem.kernel_size == (7, 7) and hasattr(model, "layer4"):
        model.conv1 = nn.Conv2d(stem.in_channels, stem.out_channels, kernel_size=3, stride=1, padding=1, bias=False)
    elif not name.startswith(("vgg", "convnext")):
        raise ValueError(f"{name} has no variant for small images; AlexNet, ResNets, VGG and ConvNeXt do")


def _copy_what_fits(source: nn.Module, target: nn.Module) -> None:
    state = target.state_dict()
    fitting = {k: v for k, v in source.state_dict().items() if k in state and state[k].shape == v.shape}
    target.load_state_dict(state | fitting)


def _unknown(name: str, known: Sequence[str], prefix: str = "") -> ValueError:
    close = difflib.get_close_matches(name, known, 3)
    return ValueError(f"there is no network {prefix}{name}{_close([prefix + found for found in close])}")


def _close(names: Sequence[str]) -> str:
    return f"; did you mean {_listed(names, 'or')}?" if names else ""


def _listed(names: Sequence[str], word: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
