"""The command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from icl25_shared import CommonFlags, InputError, Output, run_cli

# Endings of files, which names of models do not have; those of timm may end in a tag such as ".a1_in1k".
_FILE_ENDINGS = (
    ".pt",
    ".pth",
    ".bin",
    ".ckpt",
    ".safetensors",
    ".onnx",
    ".csv",
    ".npz",
    ".npy",
    ".json",
    ".h5",
    ".zip",
)


def _value(metavar: str, *aliases: str) -> Any:
    """How a flag without a default value shows in the help, where its own text says what happens without it."""
    return tyro.conf.arg(metavar=metavar, aliases=aliases or None, help_behavior_hint="")


def _check_files(*paths: Path | None) -> None:
    """Refuse files that do not exist, before the import of the libraries that read them takes seconds."""
    for path in paths:
        _check_paths(path)
        if path is not None and path.is_dir():
            raise InputError(f"{path} is a folder, expected a file")


def _check_paths(*paths: Path | None) -> None:
    """Refuse files or folders that do not exist."""
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")


def _check_model(model: str) -> None:
    """Refuse what looks like a file and is none; the name of a model is looked up later."""
    path = Path(model)
    if path.suffix.lower() in _FILE_ENDINGS or path.exists() or model.startswith((".", "/")):
        _check_files(path)


@dataclass(frozen=True, kw_only=True)
class ArchitectureFlags(CommonFlags):
    """Which network a name means."""

    architecture: Annotated[str | None, _value("NAME", "--model")] = None
    """Architecture of a checkpoint that holds weights alone, such as one of the authors."""
    num_classes: Annotated[int | None, _value("N")] = None
    """Number of classes. Default: that of the architecture."""
    small_images: bool = False
    """The variant of the architecture for images of 32 x 32 pixels (CIFAR)."""


@dataclass(frozen=True, kw_only=True)
class Convert(ArchitectureFlags):
    """Give the convolutions of a network large kernels with trainable masks.

    MODEL is a model file of this command, a checkpoint (.pt, .safetensors) whose --architecture is given, or the name
    of a model: digits-resnet or sudoku-cnn of this package, one of torchvision or of timm, or module:function. The
    network goes to --out (model.pt without it).
    """

    model: tyro.conf.Positional[str]
    """Model file, checkpoint, or name of a model."""
    p: Annotated[str, tyro.conf.arg(metavar="P|none")] = "2"
    """Initial exponent of the masks: 2 is a Gaussian, 16 nearly a box; none makes large kernels without masks."""
    growth: float = 2.0
    """Factor by which kernels grow: 2 takes 3 to 7; 1 keeps the size and adds masks."""
    transfer: Literal["copy", "exact", "none"] = "copy"
    """What becomes of the old kernels: copied into the centre, where masks dampen them, as the authors do; the same
    divided by the masks, so that the network computes what it did (take this for trained networks); or drawn afresh."""
    include: Annotated[str | None, _value("GLOBS")] = None
    """Layers to convert, comma-separated, with globs: "layer1.*,conv1". Default: every convolution."""
    exclude: Annotated[str | None, _value("GLOBS")] = None
    """Layers to leave as they are, likewise."""
    min_kernel: int = 1
    """Leave out kernels that are smaller than this."""
    max_kernel: Annotated[int | None, _value("N")] = None
    """Leave out kernels that are larger than this."""
    depthwise: Literal["keep", "skip"] = "keep"
    """Whether depthwise convolutions are converted too."""
    mask_sharing: Literal["channel", "group", "layer"] = "channel"
    """One mask for each output channel, for each group of the convolution, or for the layer."""
    pretrained: bool = False
    """Start from the weights that torchvision or timm offer for a name; they may be downloaded."""
    out: Annotated[Path | None, _value("FILE", "-o")] = None
    """Model file to write, .pt or .safetensors."""

    def run(self) -> Output:
        """Convert."""
        _check_model(self.model)
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
    """Cut outer rows and columns of kernels on which every mask is below this, in [0, 1). Try 0.01."""
    onnx: Annotated[Path | None, _value("FILE")] = None
    """Write the merged network in ONNX as well."""
    input_size: Annotated[str | None, _value("C,H,W")] = None
    """Size of an input. Default: that of the model."""
    out: Annotated[Path | None, _value("FILE", "-o")] = None
    """Model file to write, .pt or .safetensors."""

    def run(self) -> Output:
        """Merge."""
        _check_files(self.model)
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
        _check_files(self.model)
        from icl25_lp_conv.verbs import run_inspect

        return run_inspect(self)


@dataclass(frozen=True, kw_only=True)
class Train(CommonFlags):
    """Train a network on labelled images, with or without masks.

    DATA is a folder of image folders, one for each class (or folders train and val of such), the folder of the CIFAR
    batches, or an NPZ file with x and y (or x_train, y_train, x_test, y_test). The run folder --out gets
    model.safetensors, metrics.jsonl and a checkpoint. With several GPUs: torchrun -m icl25_lp_conv train ...
    """

    data: tyro.conf.Positional[Path]
    """Images: folder or NPZ file."""
    model: Annotated[str, tyro.conf.arg(metavar="NAME")] = "resnet18"
    """Name of a model, as for `convert`."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "lp2"
    """What becomes of its convolutions: base (nothing), large (large kernels without masks), lp2, lp4, lp8, lp16 (large
    kernels with masks of this exponent), and variants with frozen masks, such as lp2-frozen-p."""
    recipe: Literal["small", "paper"] = "small"
    """How to train: small is for thousands of images on a CPU, paper the recipe of the paper."""
    epochs: Annotated[int | None, _value("N")] = None
    """Passes over the images. Default: that of the recipe."""
    batch_size: Annotated[int | None, _value("N")] = None
    """Images in a step. Default: that of the recipe."""
    lr: Annotated[float | None, _value("X")] = None
    """Learning rate. Default: that of the recipe."""
    size: Annotated[int | None, _value("PIXELS")] = None
    """Side of the squares to which images are scaled and cut. Default: as they are, all of one size."""
    small_images: bool = False
    """The variant of the architecture for images of 32 x 32 pixels (CIFAR)."""
    workers: int = 0
    """Processes that prepare images beside the one that trains."""
    resume: bool = False
    """Go on with the run in --out that broke off; the result is that of an uninterrupted run."""

    def run(self) -> Output:
        """Train."""
        _check_paths(self.data)
        from icl25_lp_conv.train_verbs import run_train

        return run_train(self)


@dataclass(frozen=True, kw_only=True)
class Rsa(ArchitectureFlags):
    """Compare the layers of a network with recordings of brain areas, by representational similarity.

    The run folder --out gets similarities.csv (a row for each layer, area and session), summary.csv (medians over
    sessions) and two pictures.
    """

    model: Annotated[str, tyro.conf.arg(metavar="MODEL")]
    """Model file, checkpoint, or name of a model, as for `convert`."""
    architecture: Annotated[str | None, _value("NAME")] = None
    """Architecture of a checkpoint that holds weights alone."""
    images: Annotated[Path, tyro.conf.arg(metavar="DIR|NPZ")]
    """The stimuli, in the order of the recordings: a folder of images (2.png before 10.png), or an NPZ file with x:
    bytes, which are scaled as in `train`, or floating point (n, c, h, w), which is taken as it is."""
    brain: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """Similarity matrices of the recordings: NPZ or MATLAB with an array (stimuli, stimuli, sessions) for each area,
    NPY or CSV with that of one area."""
    ceiling: Annotated[Path | None, _value("FILE")] = None
    """Noise ceilings for each area, in such a file. Default: agreement of each session with the others."""
    layers: Annotated[str | None, _value("GLOBS")] = None
    """Layers of any kind, comma-separated, with globs. Default: every convolution."""
    method: Literal["kendall", "spearman", "pearson", "kendall_a"] = "kendall"
    """How two similarity matrices are compared; the paper's is kendall (tau-b)."""
    permutations: int = 0
    """Shuffles of the stimuli for p-values; 0 for none."""
    size: Annotated[int | None, _value("PIXELS")] = None
    """Side of the squares to which images are scaled and cut. Default: as they are, all of one size."""
    pretrained: bool = False
    """Start from the weights that torchvision or timm offer for a name; they may be downloaded."""
    batch_size: int = 32
    """Stimuli in one forward pass."""
    jobs: int = 1
    """Worker processes; -1 for one per core."""

    def run(self) -> Output:
        """Compare."""
        _check_model(self.model)
        _check_paths(self.images)
        _check_files(self.brain, self.ceiling)
        from icl25_lp_conv.rsa_verbs import run_rsa

        return run_rsa(self)


@dataclass(frozen=True, kw_only=True)
class SudokuGen(CommonFlags):
    """Generate Sudoku puzzles with their solutions, as CSV with the columns quizzes and solutions.

    The file is --out (puzzles.csv without it).
    """

    n: int = 10_000
    """Number of puzzles."""
    clues: int = 45
    """Givens of each puzzle, 17 to 81."""
    unique: bool = False
    """Let each puzzle have one solution alone; takes milliseconds a puzzle, and longer below 30 clues."""
    out: Annotated[Path | None, _value("FILE", "-o")] = None
    """CSV file to write."""

    def run(self) -> Output:
        """Generate."""
        from icl25_lp_conv.sudoku_verbs import run_gen

        return run_gen(self)


@dataclass(frozen=True, kw_only=True)
class SudokuTrain(CommonFlags):
    """Train a network to fill Sudoku boards, and score it on puzzles that were held out.

    The defaults are those of the paper, for a GPU; try --depth 6 --width 32 --lr 1e-3 --epochs 3 on a CPU. The run
    folder --out gets model.safetensors, metrics.jsonl, scores.json and a checkpoint.
    """

    puzzles: tyro.conf.Positional[Path]
    """CSV file with the columns quizzes and solutions, 81 digits each, 0 for a blank."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "lp2"
    """What becomes of its convolutions, as for `train`: base, large, lp2, lp4, ..."""
    depth: int = 15
    """Blocks of the network."""
    width: int = 512
    """Channels of a block."""
    epochs: int = 20
    """Passes over the puzzles."""
    batch_size: int = 100
    """Puzzles in a step."""
    lr: float = 1e-4
    """Learning rate of Adam."""
    train_share: float = 0.8
    """Share of the puzzles to train on; the rest, the same ones for every seed, is held out."""
    resume: bool = False
    """Go on with the run in --out that broke off; the result is that of an uninterrupted run."""

    def run(self) -> Output:
        """Train."""
        _check_files(self.puzzles)
        from icl25_lp_conv.sudoku_training_verbs import run_train

        return run_train(self)


@dataclass(frozen=True, kw_only=True)
class SudokuEval(CommonFlags):
    """Score a network on puzzles: cells, rows, columns, boxes and whole boards that are right."""

    model: tyro.conf.Positional[Path]
    """Model file written by `sudoku train`."""
    puzzles: tyro.conf.Positional[Path]
    """CSV file with the columns quizzes and solutions."""
    batch_size: int = 500
    """Puzzles in one forward pass."""
    out: Annotated[Path | None, _value("FILE", "-o")] = None
    """JSON file to write the scores to."""

    def run(self) -> Output:
        """Score."""
        _check_files(self.model, self.puzzles)
        from icl25_lp_conv.sudoku_training_verbs import run_eval

        return run_eval(self)


@dataclass(frozen=True, kw_only=True)
class SudokuSolve(CommonFlags):
    """Solve Sudoku puzzles: exactly, or with a trained network, which may err.

    With --model the network writes the cell of which it is surest, and looks again; exit status 1 says that a board
    breaks the rules.
    """

    puzzle: tyro.conf.Positional[str]
    """81 digits in reading order, 0 or . for a blank, or a CSV file with the column quizzes."""
    model: Annotated[Path | None, _value("FILE")] = None
    """Model file written by `sudoku train`. Default: an exact solver."""
    out: Annotated[Path | None, _value("FILE", "-o")] = None
    """CSV file to write puzzles and solutions to."""

    def run(self) -> Output:
        """Solve."""
        if not set(self.puzzle) <= set("0123456789. \n"):
            _check_files(Path(self.puzzle))
        _check_files(self.model)
        from icl25_lp_conv.sudoku_verbs import run_solve

        return run_solve(self)


@dataclass(frozen=True, kw_only=True)
class Demo(CommonFlags):
    """Recover hidden receptive fields, and show on real digits that masks make large kernels pay (under a minute)."""

    n_seeds: int = 3
    """Number of seeds."""

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
    data: Annotated[Path | None, _value("DIR")] = None
    """Folder of the CIFAR-100 batches, for --scale paper."""
    part: Literal["all", "digits", "sudoku", "rsa"] = "all"
    """Run one of the experiments only."""

    def run(self) -> Output:
        """Run the experiments."""
        _check_paths(self.data)
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
