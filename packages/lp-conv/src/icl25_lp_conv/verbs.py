"""The verbs that change or describe a network: read it, convert, merge or inspect it, and say what came out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from icl25_lp_conv.conversion import ConversionReport, convert, merge
from icl25_lp_conv.lp_layer import LpLayer
from icl25_lp_conv.mask_plots import plot_masks, plot_shape_statistics
from icl25_lp_conv.model_files import save_model
from icl25_lp_conv.models import ModelSource
from icl25_lp_conv.network_verbs import count_parameters, read_file, read_or_build, split_globs
from icl25_lp_conv.output_verbs import make_table, output_file, output_files
from icl25_shared import InputError, Output, atomic_path, select_device

if TYPE_CHECKING:
    from icl25_lp_conv import cli

_ENDINGS = (".pt", ".safetensors")
_TOLERANCE = 1e-4  # of the largest output, in single precision
_BATCH = 2


def run_convert(flags: cli.Convert) -> Output:
    """Convert a network."""
    p = _exponent(flags.p)
    device = select_device(flags.device)
    out = output_file(flags.out, "model.pt", flags.force, _ENDINGS)
    loaded = read_or_build(flags.model, flags.pretrained, flags)
    before = count_parameters(loaded.model)
    with torch.random.fork_rng(devices=[]):  # for kernels that are drawn afresh
        torch.random.default_generator.manual_seed(flags.seed)
        model: Any = convert(
            loaded.model.to(device),
            p=p,
            growth=flags.growth,
            transfer=flags.transfer,
            include=split_globs(flags.include),
            exclude=split_globs(flags.exclude),
            min_kernel=flags.min_kernel,
            max_kernel=flags.max_kernel,
            depthwise=flags.depthwise,
            mask_sharing=flags.mask_sharing,
        )
    report: ConversionReport = model.conversion_report
    if not report.layers and report.skipped and "an Lp layer already" not in report.skipped.values():
        name, reason = next(iter(report.skipped.items()))
        raise InputError(f"no convolution was converted: {name or 'the network'} ({reason}) and all others were left")
    save_model(out, model.cpu(), loaded.source, force=flags.force)
    data = {
        "out": str(out),
        "network": loaded.source,
        "layers": report.rows(),
        "skipped": report.skipped,
        "parameters_before": before,
        "parameters": count_parameters(model),
    }
    view = [
        _report_table(f"{loaded.source.name}: {len(report.layers)} convolutions converted", report),
        *_skipped_lines(report.skipped),
        f"parameters: {before:,} -> {data['parameters']:,}",
        f"network in {out}",
    ]
    return Output(data, view)


def run_merge(flags: cli.Merge) -> Output:
    """Merge a network, and compare it with the one before on random input."""
    if not 0 <= flags.crop < 1:
        raise InputError(f"--crop must lie in [0, 1), found {flags.crop}")
    size = None if flags.input_size is None else _size(flags.input_size)
    out = output_file(flags.out, "merged.pt", flags.force, _ENDINGS)
    onnx = None if flags.onnx is None else output_file(flags.onnx, "merged.onnx", flags.force, (".onnx",), "--onnx")
    if onnx is not None:
        _check_onnx()
    loaded = read_file(flags.model, flags)
    model = loaded.model.to(select_device(flags.device)).eval()
    merged: Any = merge(model, crop=flags.crop)
    report: ConversionReport = merged.conversion_report
    x = _random_input(model, size or _default_size(loaded.source, model), flags.seed)
    before, after = _outputs(model, x), _outputs(merged, x)
    scale = max((float(part.abs().max()) for part in before), default=0.0)
    difference = max((float((a - b).abs().max()) for a, b in zip(before, after, strict=True)), default=0.0)
    agrees = difference <= _TOLERANCE * scale
    merged = merged.cpu()
    save_model(out, merged, loaded.source, force=flags.force)
    data: dict[str, Any] = {
        "out": str(out),
        "layers": report.rows(),
        "parameters_before": count_parameters(model),
        "parameters": count_parameters(merged),
        "crop": flags.crop,
        "input_size": list(x.shape[1:]),
        "largest_output": scale,
        "largest_difference": difference,
        "agrees": agrees,
    }
    verdict = "the same" if agrees else "changed by what was cropped" if flags.crop > 0 else "NOT the same"
    view: list[Any] = [
        _report_table(f"{loaded.source.name}: {len(report.layers)} layers merged", report),
        f"parameters: {data['parameters_before']:,} -> {data['parameters']:,}",
        f"largest difference on random input: {difference:.2g}, largest output {scale:.2g} ({verdict})",
        f"network in {out}",
    ]
    if onnx is not None:
        data |= {"onnx": str(onnx), "onnx_difference": _write_onnx(onnx, merged, x.cpu(), flags.force)}
        view.append(f"ONNX in {onnx}: differs from it by {data['onnx_difference']:.2g}")
    return Output(data, view, ok=agrees or flags.crop > 0)


def run_inspect(flags: cli.Inspect) -> Output:
    """Describe the masks of a network."""
    if flags.channels < 1:
        raise InputError(f"--channels must be >= 1, found {flags.channels}")
    names = ["masks.csv", "masks.png", "shapes.png"]
    table_path, masks_path, shapes_path = paths = output_files(flags.out, "masks", names, flags.force)
    loaded = read_file(flags.model, flags)
    layers = {
        name or "(the network)": module
        for name, module in loaded.model.named_modules()
        if isinstance(module, LpLayer) and module.C is not None
    }
    if not layers:
        raise InputError(f"{flags.model} has no layer with masks: `convert` gives a network masks")
    table = pd.concat(
        [pd.DataFrame({"layer": name, **layer.shape_summary()}) for name, layer in layers.items()], ignore_index=True
    )
    for path, figure in (
        (masks_path, plot_masks(layers, flags.channels)),
        (shapes_path, plot_shape_statistics(loaded.model)),
    ):
        with atomic_path(path, force=flags.force) as temporary:
            figure.savefig(temporary)
    with atomic_path(table_path, force=flags.force) as temporary:
        table.to_csv(temporary, index=False)
    summary = [_summarise(name, layer, table[table["layer"] == name]) for name, layer in layers.items()]
    rows = [
        (
            line["layer"],
            line["kernel"],
            str(line["masks"]),
            f"{line['p']:.3g}",
            f"{line['alpha']:.3g}",
            f"{line['gamma']:.3g}",
            f"{line['area']:.3g}",
            f"{line['sparsity']:.0%}",
        )
        for line in summary
    ]
    columns = ["layer", "kernel", "masks", "p", "radius", "gamma", "area", "closed"]
    view = [
        make_table(f"{len(table):,} masks, medians of each layer", columns, rows),
        *(f"wrote {path}" for path in paths),
    ]
    return Output({"layers": summary, "files": [str(path) for path in paths]}, view)


def _exponent(text: str) -> float | None:
    """The value of --p."""
    if text == "none":
        return None
    try:
        p = float(text)
    except ValueError:
        p = math.nan
    if not (math.isfinite(p) and p > 0):
        raise InputError(f"--p must be a positive number or none, found {text!r}")
    return p


def _size(text: str) -> list[int]:
    """The value of --input-size."""
    try:
        size = [int(part) for part in text.lower().replace("x", ",").split(",")]
    except ValueError:
        size = []
    if not size or min(size) < 1:
        raise InputError(f"--input-size must be whole numbers such as 3,224,224, found {text!r}")
    return size


def _default_size(source: ModelSource, model: nn.Module) -> list[int]:
    """Size of an input of a network, as far as its name tells it."""
    first: Any = next((module for module in model.modules() if hasattr(module, "in_channels")), None)
    pixels = 9 if source.name.startswith("sudoku-cnn") else 20 if source.name.startswith("digits-resnet") else 224
    return [3 if first is None else first.in_channels, *[32 if source.small_images else pixels] * 2]


def _random_input(model: nn.Module, size: Sequence[int], seed: int) -> Tensor:
    parameter = next(model.parameters())
    x = np.random.default_rng(seed).standard_normal((_BATCH, *size))
    return torch.as_tensor(x, dtype=parameter.dtype, device=parameter.device)


@torch.no_grad()
def _outputs(model: nn.Module, x: Tensor) -> list[Tensor]:
    try:
        return list(_tensors(model(x)))
    except (RuntimeError, ValueError, IndexError) as error:
        size, why = ",".join(map(str, x.shape[1:])), str(error).strip().partition("\n")[0]
        raise InputError(
            f"the network takes no input of size {size}, say it with --input-size C,H,W ({why})"
        ) from error


def _tensors(output: Any) -> Iterator[Tensor]:
    """Tensors of an output, which may be several by name or number."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping | list | tuple):
        for part in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(part)


def _check_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"--onnx needs {error.name}: pip install 'icl25-lp-conv[onnx]'") from error


def _write_onnx(path: Path, model: nn.Module, x: Tensor, force: bool) -> float:
    """Write a network in ONNX, for batches of any size, and say by how much onnxruntime differs from it."""
    from onnxruntime import InferenceSession

    with atomic_path(path, force=force) as temporary:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter, about its own workings
            torch.onnx.export(
                model,
                (x,),
                temporary,
                input_names=["input"],
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                external_data=False,
                verbose=False,
            )
        session = InferenceSession(temporary, providers=["CPUExecutionProvider"])
        found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    pairs = zip(found, _outputs(model, x), strict=True)
    return max((float(np.abs(a - b.numpy()).max()) for a, b in pairs), default=0.0)


def _report_table(title: str, report: ConversionReport) -> Any:
    columns = ["layer", "kernel", "padding", "parameters"]
    rows = [
        (
            layer.name or "(the network)",
            _change(_times(layer.old_kernel), _times(layer.new_kernel)),
            _change(_times(layer.old_padding), _times(layer.new_padding)),
            _change(f"{layer.old_parameters:,}", f"{layer.new_parameters:,}"),
        )
        for layer in report.layers
    ]
    return make_table(title, columns, rows)


def _change(old: str, new: str) -> str:
    return new if old == new else f"{old} -> {new}"


def _times(size: str | Sequence[int]) -> str:
    return size if isinstance(size, str) else "x".join(map(str, size))


def _skipped_lines(skipped: Mapping[str, str]) -> list[str]:
    """One line for each reason for which layers were left as they are."""
    reasons: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        reasons.setdefault(reason, []).append(name or "(the network)")
    return [f"left as it is: {', '.join(names)} ({reason})" for reason, names in reasons.items()]


def _summarise(name: str, layer: LpLayer, table: pd.DataFrame) -> dict[str, Any]:
    columns = ("p", "alpha", "gamma", "area", "sparsity")
    medians = {column: float(table[column].median()) for column in columns}
    return {"layer": name, "kernel": _times(layer.kernel_size), "masks": len(table), **medians}
