"""Activations of a network's layers, read by hooks in as little memory as asked for."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from icl25_lp_conv.rsa_matrices import FeatureSums
from icl25_shared import progress

__all__ = ["extract_features", "feature_sums"]

_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_MOST_NAMES = 20  # in a message
_PROBE = 2  # stimuli that tell how large the layers are


class _Source(NamedTuple):
    """One call of one module in a forward pass."""

    module: str
    call: int


class _Slice(NamedTuple):
    """Features start to stop of what a call returns, flattened."""

    source: _Source
    start: int
    stop: int


class _Network:
    """A model, its layers of interest, and the stimuli."""

    def __init__(
        self, model: nn.Module, stimuli: Tensor | np.ndarray, layers: str | Sequence[str] | None, batch_size: int
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be >= 1, found {batch_size}")
        _check_stimuli(stimuli)
        self.model, self.stimuli, self.batch_size = model, stimuli, batch_size
        self.modules = _select(model, layers)
        parameters = [t for t in chain(model.parameters(), model.buffers()) if t.is_floating_point()]
        self.device = parameters[0].device if parameters else torch.device("cpu")
        self.dtype = parameters[0].dtype if parameters else torch.float32
        self.float_dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
        self.feature_dtype = np.float64 if self.dtype == torch.float64 else np.float32
        self.sizes = self._measure()
        called = {source.module for source in self.sizes}
        for pattern in ["*"] if layers is None else _patterns(layers):
            if not any(_matches(name, pattern) for name in called):
                what = "no convolution" if layers is None else f"no layer {pattern!r}"
                raise ValueError(f"{type(model).__name__} calls {what} in a forward pass")

    @property
    def labels(self) -> dict[_Source, str]:
        """Names of the layers; calls of a module that is called several times are numbered."""
        calls = Counter(source.module for source in self.sizes)
        return {s: f"{s.module}#{s.call + 1}" if calls[s.module] > 1 else s.module for s in self.sizes}

    @property
    def n_batches(self) -> int:
        return -(-len(self.stimuli) // self.batch_size)

    def collect(self, slices: Iterable[_Slice], bar: progress) -> dict[_Slice, np.ndarray]:
        """Features of all stimuli, for each slice, in one pass over the stimuli."""
        n = len(self.stimuli)
        found = {part: np.empty((n, part.stop - part.start), self.feature_dtype) for part in slices}

        def keep(source: _Source, rows: slice, flat: Tensor) -> None:
            for part, array in found.items():
                if part.source == source:
                    array[rows] = flat[:, part.start : part.stop].to(device="cpu", dtype=self.float_dtype).numpy()

        with _evaluating(self.model):
            for start in range(0, n, self.batch_size):
                if self._forward(start, start + self.batch_size, keep) != set(self.sizes):
                    raise ValueError("the layers are not called equally often for all batches of stimuli")
                bar.advance()
        return found

    def _measure(self) -> dict[_Source, int]:
        """Features of each call of each layer, in the order of the calls."""
        sizes: dict[_Source, int] = {}
        with _evaluating(self.model):
            self._forward(0, _PROBE, lambda source, _rows, flat: sizes.update({source: flat.shape[1]}))
        return sizes

    def _forward(self, start: int, stop: int, keep: Callable[[_Source, slice, Tensor], None]) -> set[_Source]:
        """Run one batch and show what each call of a layer returns, flattened; later layers may work in place on it."""
        batch = self._batch(start, stop)
        calls: Counter[str] = Counter()

        def hook(name: str, output: object) -> None:
            if not isinstance(output, Tensor):
                raise TypeError(f"layer {name!r} returns {type(output).__name__}, expected a tensor")
            if output.ndim < 2 or len(output) != len(batch):
                raise ValueError(
                    f"layer {name!r} returns the shape {tuple(output.shape)} for {len(batch)} stimuli, expected "
                    "stimuli first"
                )
            keep(_Source(name, calls[name]), slice(start, start + len(batch)), output.flatten(1))
            calls[name] += 1

        handles = [
            module.register_forward_hook(lambda _module, _inputs, output, name=name: hook(name, output))
            for name, module in self.modules.items()
        ]
        try:
            self.model(batch)
        finally:
            for handle in handles:
                handle.remove()
        return {_Source(name, call) for name, n in calls.items() for call in range(n)}

    def _batch(self, start: int, stop: int) -> Tensor:
        part = self.stimuli[start:stop]
        if isinstance(part, np.ndarray):
            # Copied, and in the byte order of the machine: a memory map is read-only, and files have either order.
            part = torch.from_numpy(np.array(part, dtype=np.float64 if part.dtype.itemsize > 4 else np.float32))
        finite = part.flatten(1).isfinite().all(1)
        if not finite.all():
            raise ValueError(f"stimulus {start + int(finite.int().argmin())} holds NaN or infinities")
        return part.to(self.device, self.dtype)


def extract_features(
    model: nn.Module,
    stimuli: Shaped[Tensor, "n ..."] | Shaped[np.ndarray, "n ..."],
    layers: str | Sequence[str] | None = None,
    batch_size: int = 32,
) -> dict[str, Float[np.ndarray, "n _"]]:
    """Activations of layers of a network, for every stimulus.

    The network runs in evaluation mode and without gradients; afterwards each module has the mode that it had. All
    features are held at once: ``rsa`` needs less memory.

    Args:
        model: Any network that takes a batch of stimuli.
        stimuli: (n, ...) floating-point stimuli, for images (n, channels, height, width), scaled as in training. They
            go to the device and the type of the model batch by batch.
        layers: Names of modules as in ``model.named_modules()``, or patterns such as ``"layer4.*"``; None takes every
            convolution that is called, transposed ones too, as it leaves the convolution.
        batch_size: Stimuli in one forward pass, >= 1.

    Returns:
        (n, features) for each layer, flattened, in the order in which the network calls them. A module that is called
        several times in one forward pass appears once for each call, as ``name#1``, ``name#2`` and so on.

    Raises:
        TypeError: If stimuli are whole numbers, or a layer returns no tensor.
        ValueError: If a layer name is unknown or not called, the model has no convolution, the first axis of an output
            is not that of the stimuli, or stimuli are empty, NaN or infinite.

    Source: the paper reads every convolution of a network (the section on the visual cortex).
    """
    network = _Network(model, stimuli, layers, batch_size)
    slices = [_Slice(source, 0, size) for source, size in network.sizes.items()]
    with progress("reading layers", network.n_batches) as bar:
        found = network.collect(slices, bar)
    return {network.labels[part.source]: array for part, array in found.items()}


def feature_sums(
    model: nn.Module,
    stimuli: Shaped[Tensor, "n ..."] | Shaped[np.ndarray, "n ..."],
    layers: str | Sequence[str] | None,
    batch_size: int,
    max_bytes: int,
) -> Generator[dict[str, FeatureSums]]:
    """What the RSM of each layer follows from, read in passes whose features stay under a bound.

    Args:
        model: As for ``extract_features``.
        stimuli: (n, ...) stimuli.
        layers: As there.
        batch_size: As there.
        max_bytes: Most bytes of features held at a time, outputs of a batch aside. Layers are read together as far as
            they fit; a layer that does not fit by itself is read in pieces.

    Yields:
        After each pass over the stimuli the layers that it has completed.

    Raises:
        ValueError: As for ``extract_features``; if a layer yields NaN or infinities, naming it; or if not even one
            feature of all stimuli fits.

    Source: ours.
    """
    network = _Network(model, stimuli, layers, batch_size)
    n_features = max_bytes // (len(stimuli) * np.dtype(network.feature_dtype).itemsize)
    if n_features < 1:
        raise ValueError(f"max_bytes is {max_bytes}, too little for one feature of {len(stimuli)} stimuli")
    groups = _plan(network.sizes, n_features)
    sums: dict[_Source, FeatureSums] = {}
    with progress("reading layers", network.n_batches * len(groups)) as bar:
        for group in groups:
            found, complete = network.collect(group, bar), {}
            for part in group:
                label = network.labels[part.source]
                total = sums.setdefault(part.source, FeatureSums(len(stimuli)))
                try:
                    total.add(found.pop(part))
                except ValueError as error:
                    raise ValueError(f"layer {label!r}: {error}") from error
                if part.stop == network.sizes[part.source]:
                    complete[label] = sums.pop(part.source)
            yield complete


def _plan(sizes: dict[_Source, int], n_features: int) -> list[list[_Slice]]:
    """Slices of all layers in groups of at most so many features; only layers that are larger are cut."""
    groups: list[list[_Slice]] = []
    room = 0
    for source, size in sizes.items():
        for start in range(0, size, n_features):
            part = _Slice(source, start, min(start + n_features, size))
            if part.stop - start > room:
                groups.append([])
                room = n_features
            groups[-1].append(part)
            room -= part.stop - start
    return groups


def _select(model: nn.Module, layers: str | Sequence[str] | None) -> dict[str, nn.Module]:
    """The modules that are meant, by name. A model that is a layer itself goes by the name of its class."""
    kind = type(model).__name__
    names = {name: module for name, module in model.named_modules() if name}
    if not names or isinstance(model, _CONVOLUTIONS):
        names = {kind: model, **names}
    if layers is None:
        chosen: dict[str, nn.Module] = {
            name: module for name, module in names.items() if isinstance(module, _CONVOLUTIONS)
        }
        if not chosen:
            raise ValueError(f"{kind} has no convolution; name other layers, it has {_listed(names)}")
        return chosen
    for pattern in (patterns := _patterns(layers)):
        if not any(_matches(name, pattern) for name in names):
            raise ValueError(f"{kind} has no layer {pattern!r}; it has {_listed(names)}")
    return {name: module for name, module in names.items() if any(_matches(name, p) for p in patterns)}


def _patterns(layers: str | Sequence[str]) -> list[str]:
    patterns = [layers] if isinstance(layers, str) else list(layers)
    if not patterns:
        raise ValueError("layers is empty, expected names of modules")
    return patterns


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(repr(name) for name in names[:_MOST_NAMES]) + more


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Generator[None]:
    """Evaluation mode without gradients; afterwards each module is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        # Parents come first, so that children end in their own mode.
        for module, mode in modes:
            module.train(mode)


def _check_stimuli(stimuli: Tensor | np.ndarray) -> None:
    if stimuli.ndim < 2 or 0 in stimuli.shape:
        raise ValueError(f"stimuli has shape {tuple(stimuli.shape)}, expected (n, ...) with at least one stimulus")
    floating = stimuli.is_floating_point() if isinstance(stimuli, Tensor) else stimuli.dtype.kind == "f"
    if not floating:
        raise TypeError(f"stimuli hold {stimuli.dtype}, expected floating point, scaled as the network was trained")
