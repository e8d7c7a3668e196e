"""The command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icl25_lp_conv.cli_flags import check_files, check_model, check_paths, value
from icl25_lp_conv.cli_sudoku import SudokuEval, SudokuGen, SudokuSolve, SudokuTrain
from icl25_shared import CommonFlags, Output, run_cli


@dataclass(frozen=True, kw_only=True)
class ArchitectureFlags(CommonFlags):
    """Which network a name means."""

    architecture: Annotated[str | None, value("NAME", "--model")] = None
    """Architecture of a checkpoint that holds weights alone, such as one of the authors."""
    num_classes: Annotated[int | None, value("N")] = None
    """Number of classes. Default: that of the architecture."""
    small_images: bool = False
    """The variant of the architecture for images of 32 x 32 pixels (CIFAR)."""


@dataclass(frozen=True, kw_only=True)
class Convert(ArchitectureFlags):
    """Give the convolutions of a network large kernels with trainable masks.

    MODEL is a model file of this command, a checkpoint (.pt, .safetensors) whose --architecture is given, or the name
    of a model: digits-resnet or sudoku-cnn of this package, one of torchvision or of timm, or module:function. The
    network goes to --out (model.pt without it). Take --transfer exact for a trained network: it then computes what it
    did, whereas the masks dampen kernels that are copied, as by the authors.
    """

    model: tyro.conf.Positional[str]
    """Model file, checkpoint, or name of a model."""
    p: Annotated[str, tyro.conf.arg(metavar="P|none")] = "2"
    """Initial exponent of the masks: 2 is a Gaussian, 16 nearly a box; none makes large kernels without masks."""
    growth: float = 2.0
    """Factor by which kernels grow: 2 takes 3 to 7; 1 keeps the size and adds masks."""
    transfer: Literal["copy", "exact", "none"] = "copy"
    """Old kernels: copied into the centre of the new ones, copied so that the function stays exact, or drawn afresh."""
    include: Annotated[str | None, value("GLOBS")] = None
    """Layers to convert, comma-separated, with globs: "layer1.*,conv1". Default: every convolution."""
    exclude: Annotated[str | None, value("GLOBS")] = None
    """Layers to leave as they are, likewise."""
    min_kernel: int = 1
    """Leave out kernels that are smaller than this."""
    max_kernel: Annotated[int | None, value("N")] = None
    """Leave out kernels that are larger than this."""
    depthwise: Literal["keep", "skip"] = "keep"
    """Whether depthwise convolutions are converted too."""
    mask_sharing: Literal["channel", "group", "layer"] = "channel"
    """One mask for each output channel, for each group of the convolution, or for the layer."""
    pretrained: bool = False
    """Start from the weights that torchvision or timm offer for a name; they may be downloaded."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """Model file to write, .pt or .safetensors."""

    def run(self) -> Output:
        """Convert."""
        check_model(self.model)
        from icl25_lp_conv.verbs import run_convert

        return run_convert(self)


@dataclass(frozen=True, kw_only=True)
class Merge(ArchitectureFlags):
    """Turn masked kernels into plain ones: the same function, with no trace of this package in the network.

    The merged network is compared with the one before on random input. It goes to --out (merged.pt without it).
    """

    model: tyro.conf.Positional[Path]
    """Model file written by `convert` or `train`."""
    crop: float = 0.0
    """Cut outer rows and columns of kernels on which every mask is below this, in [0, 1). Try 0.05."""
    onnx: Annotated[Path | None, value("FILE")] = None
    """Write the merged network in ONNX as well."""
    input_size: Annotated[str | None, value("C,H,W")] = None
    """Size of an input. Default: that of the model."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """Model file to write, .pt or .safetensors."""

    def run(self) -> Output:
        """Merge."""
        check_files(self.model)
        from icl25_lp_conv.verbs import run_merge

        return run_merge(self)


@dataclass(frozen=True, kw_only=True)
class Inspect(ArchitectureFlags):
    """Describe the masks of a network: their size, elongation, angle and exponent, as a table and as pictures.

    The folder --out (masks without it) gets masks.csv with a row for each mask, masks.png and shapes.png.
    """

    model: tyro.conf.Positional[Path]
    """Model file written by `convert` or `train`."""
    channels: int = 8
    """Most masks of a layer in the picture."""

    def run(self) -> Output:
        """Inspect."""
        check_files(self.model)
        from icl25_lp_conv.verbs import run_inspect

        return run_inspect(self)


@dataclass(frozen=True, kw_only=True)
class Train(CommonFlags):
    """Train a network on labelled images, with or without masks.

    A preset says what becomes of its convolutions. Those not listed below: lp2-frozen-p to lp16-frozen-p have masks
    whose exponents are fixed, gauss-frozen and box256-frozen masks that are not trained.

    DATA is a folder of image folders, one for each class (or folders train and val of such), the folder of the CIFAR
    batches, or an NPZ file with x and y (or x_train, y_train, x_test, y_test). The run folder --out gets
    model.safetensors, metrics.jsonl and a checkpoint. With several GPUs: torchrun -m icl25_lp_conv train ...
    """

    data: tyro.conf.Positional[Path]
    """Images: folder or NPZ file."""
    model: Annotated[str, tyro.conf.arg(metavar="NAME")] = "resnet18"
    """Name of a model, as for `convert`."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "lp2"
    """base (as it is), large (no masks), lp2, lp4, lp8, lp16 (masks of this exponent), or lp2-frozen-p and more."""
    recipe: Literal["small", "paper"] = "small"
    """How to train: small is for thousands of images on a CPU, paper the recipe of the paper."""
    epochs: Annotated[int | None, value("N")] = None
    """Passes over the images. Default: that of the recipe."""
    batch_size: Annotated[int | None, value("N")] = None
    """Images in a step. Default: that of the recipe."""
    lr: Annotated[float | None, value("X")] = None
    """Learning rate. Default: that of the recipe."""
    size: Annotated[int | None, value("PIXELS")] = None
    """Side of the squares to which images are scaled and cut. Default: as they are, all of one size."""
    small_images: bool = False
    """The variant of the architecture for images of 32 x 32 pixels (CIFAR)."""
    workers: int = 0
    """Processes that prepare images beside the one that trains."""
    resume: bool = False
    """Go on with the run in --out that broke off; the result is that of an uninterrupted run."""

    def run(self) -> Output:
        """Train."""
        check_paths(self.data)
        from icl25_lp_conv.train_verbs import run_train

        return run_train(self)


@dataclass(frozen=True, kw_only=True)
class Rsa(ArchitectureFlags):
    """Compare the layers of a network with recordings of brain areas, by representational similarity.

    Bytes in an NPZ file are scaled as images are in `train`; floating point (n, c, h, w) is taken as it is. The run
    folder --out gets similarities.csv (a row for each layer, area and session), summary.csv (medians over sessions) and
    two pictures.
    """

    model: Annotated[str, tyro.conf.arg(metavar="MODEL")]
    """Model file, checkpoint, or name of a model, as for `convert`."""
    architecture: Annotated[str | None, value("NAME")] = None
    """Architecture of a checkpoint that holds weights alone."""
    images: Annotated[Path, tyro.conf.arg(metavar="DIR|NPZ")]
    """Stimuli in the order of the recordings: a folder of images (2.png before 10.png), or an NPZ file with x."""
    brain: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """Similarity matrices (stimuli, stimuli, sessions) of areas: NPZ or MATLAB, or NPY or CSV with that of one area."""
    ceiling: Annotated[Path | None, value("FILE")] = None
    """Noise ceilings for each area, in such a file. Default: agreement of each session with the others."""
    layers: Annotated[str | None, value("GLOBS")] = None
    """Layers of any kind, comma-separated, with globs. Default: every convolution."""
    method: Literal["kendall", "spearman", "pearson", "kendall_a"] = "kendall"
    """How two similarity matrices are compared; the paper's is kendall (tau-b)."""
    permutations: int = 0
    """Shuffles of the stimuli for p-values; 0 for none."""
    size: Annotated[int | None, value("PIXELS")] = None
    """Side of the squares to which images are scaled and cut. Default: as they are, all of one size."""
    pretrained: bool = False
    """Start from the weights that torchvision or timm offer for a name; they may be downloaded."""
    batch_size: int = 32
    """Stimuli in one forward pass."""
    jobs: int = 1
    """Worker processes; -1 for one per core."""

    def run(self) -> Output:
        """Compare."""
        check_model(self.model)
        check_paths(self.images)
        check_files(self.brain, self.ceiling)
        from icl25_lp_conv.rsa_verbs import run_rsa

        return run_rsa(self)


@dataclass(frozen=True, kw_only=True)
class Demo(CommonFlags):
    """Recover hidden receptive fields, and show on real digits that masks make large kernels pay (under a minute)."""

    n_seeds: int = 3
    """Number of seeds."""
    part: Literal["all", "masks", "digits"] = "all"
    """Run one of its two parts only."""

    def run(self) -> Output:
        """Run the demonstration."""
        from icl25_lp_conv.demo import run_demo

        return run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce(CommonFlags):
    """Run the paper's experiments over several seeds: digits, Sudoku, and layers against a simulated cortex."""

    scale: Literal["tiny", "paper"] = "tiny"
    """tiny ends within 15 minutes on two cores; paper trains on CIFAR-100 as the paper does and needs a GPU."""
    n_seeds: int = 3
    """Number of seeds."""
    data: Annotated[Path | None, value("DIR")] = None
    """Folder of the CIFAR-100 batches, for --scale paper."""
    part: Literal["all", "digits", "sudoku", "rsa"] = "all"
    """Run one of the experiments only."""

    def run(self) -> Output:
        """Run the experiments."""
        check_paths(self.data)
        from icl25_lp_conv.reproduce import run_reproduce

        return run_reproduce(self)


VERBS: dict[str, type[CommonFlags]] = {
    "convert": Convert,
    "merge": Merge,
    "inspect": Inspect,
    "train": Train,
    "rsa": Rsa,
    "sudoku gen": SudokuGen,
    "sudoku train": SudokuTrain,
    "sudoku eval": SudokuEval,
    "sudoku solve": SudokuSolve,
    "demo": Demo,
    "reproduce": Reproduce,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments; those of the process when None.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong input, 130 interrupted.
    """
    return run_cli(
        "icl25-lp-conv",
        "Give convolutions large kernels with trainable receptive fields, and merge them back to plain ones "
        "(Lp-convolution, ICLR 2025).",
        VERBS,
        argv,
    )
