"""The command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from icl25_shared import CommonFlags, InputError, Output, run_cli

Method = Literal["sava", "lava", "batchwise-lava", "nearest", "knn-shapley", "random"]


def _check_paths(*paths: Path | None) -> None:
    """Refuse inputs that do not exist, before the import of the libraries that read them takes seconds."""
    for path in paths:
        if path is not None and not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")


@dataclass(frozen=True, kw_only=True)
class ReadingFlags(CommonFlags):
    """Which columns of the files are what."""

    label: str | None = None
    """Column of the class labels (tables), or array of an NPZ file."""
    features: str | None = None
    """Feature columns, comma-separated, with globs: "age,f*". Default: every numeric column but label and id."""
    embedding: str | None = None
    """One column of lists of numbers, in place of --features."""
    id_column: str | None = None
    """Column of unique row ids. Default: row numbers from 0; for image folders, the paths."""

    def reading(self) -> Any:
        """The columns as the readers take them."""
        from icl25_sava.workflows import Reading

        return Reading(self.label, self.features, self.embedding, self.id_column)


@dataclass(frozen=True, kw_only=True)
class MethodFlags(ReadingFlags):
    """How rows are valued; the defaults are those of the paper where it has them."""

    batch_size: int = 1024
    """Most rows of a batch. Larger is closer to LAVA and costs memory quadratically."""
    embedder: str | None = None
    """Embedding of the features: pca:N, mlp, mlp:N, logits, lda, standardize (fitted on the validation rows alone), or
    torch:module.attribute:weights, timm:NAME:weights. Default: the features as they are."""
    eps: str = "0.1"
    """Entropic regularisation in units of the cost, or "auto" for a thousandth of the median cost."""
    lambda_x: float = 1.0
    """Weight of the distance between features."""
    lambda_y: float = 1.0
    """Weight of the distance between classes; 0 leaves labels out."""
    p: Literal[1, 2] = 2
    """Power of the distance: 2 for half the squared distance."""
    label_distance: Literal["auto", "sample", "gaussian", "means", "none", "first_batch", "per_pair"] = "auto"
    """How the distance between classes is computed."""
    batching: Literal["stratified", "shuffle", "sequential"] = "stratified"
    """How rows are cut into batches. Values compare rows within a batch: keep stratified unless you know why."""
    solver: Literal["annealed", "sinkhorn", "emd"] = "annealed"
    """Solver of each transport problem. The converged ones find wrong labels less well."""
    outer: Literal["ot", "uniform"] = "ot"
    """Weights of the pairs of batches: by a second transport problem, or equal."""
    between: float = 0.0
    """Weight of the difference between batches in the values."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision."""
    jobs: int = 0
    """Worker processes; -1 for one per core, 0 for as many as the work is worth."""

    def options(self) -> dict[str, Any]:
        """The parameters as the estimators take them."""
        try:
            eps = self.eps if self.eps == "auto" else float(self.eps)
        except ValueError:
            raise InputError(f'--eps must be a number or "auto", found {self.eps!r}') from None
        names = (
            "batch_size",
            "embedder",
            "lambda_x",
            "lambda_y",
            "p",
            "label_distance",
            "batching",
            "solver",
            "outer",
            "between",
            "dtype",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "eps": eps,
            "device": self.device,
            "random_state": self.seed,
            "verbose": 0 if self.quiet else 1,
        }


@dataclass(frozen=True, kw_only=True)
class Value(MethodFlags):
    """Give every training row a value: the lowest values mark the rows to look at, relabel or drop.

    TRAIN and VAL are CSV, TSV, Parquet, NPZ (X, y), NPY with its labels beside it (train.npy, train_y.npy), a saved
    Hugging Face dataset, or a folder of image folders. VAL holds clean rows. The values go to --out
    (.parquet or .csv; values.parquet without it).
    """

    train: tyro.conf.Positional[Path]
    """Training rows: the large, noisy set."""
    val: tyro.conf.Positional[Path]
    """Validation rows: the small, clean set."""
    method: Method = "sava"
    """Which method values the rows."""
    store: Path | None = None
    """Folder that keeps solved batches, for --resume and for `add`."""
    resume: bool = False
    """Go on with the run in --store that broke off; the values are those of an uninterrupted run."""

    def run(self) -> Output:
        """Value the rows of a file."""
        _check_paths(self.train, self.val)
        from icl25_sava.verbs import run_value

        return run_value(self)


@dataclass(frozen=True, kw_only=True)
class Add(ReadingFlags):
    """Add new training rows to a store: only their batches are solved, all values stay comparable.

    Columns are read as in the first run unless named here. The values of all rows, old and new, go to
    --out (values.parquet without it).
    """

    store: tyro.conf.Positional[Path]
    """Store written by `value --store`."""
    new: tyro.conf.Positional[Path]
    """New training rows, in any format that `value` reads."""
    resume: bool = False
    """Go on with an `add` of the same rows that broke off."""
    jobs: int = 0
    """Worker processes; -1 for one per core, 0 for as many as the work is worth."""

    def run(self) -> Output:
        """Value new rows beside the old ones."""
        _check_paths(self.new)
        from icl25_sava.verbs import run_add

        return run_add(self)


@dataclass(frozen=True, kw_only=True)
class Prune(CommonFlags):
    """Write the ids of the rows to keep: give one of --fraction, --threshold and --keep.

    The ids go to --out (.csv, .parquet, .npy or .txt; kept.csv without it).
    """

    values: tyro.conf.Positional[Path]
    """Table of values written by `value`."""
    fraction: float | None = None
    """Share of the rows to drop, worst first: 0.3 drops 30 %."""
    threshold: float | None = None
    """Drop rows whose value is below this."""
    keep: int | None = None
    """Number of rows to keep: a budget."""
    per_class: bool = False
    """Drop the same share of every class."""

    def run(self) -> Output:
        """Choose the rows to keep."""
        _check_paths(self.values)
        from icl25_sava.verbs import run_prune

        return run_prune(self)


@dataclass(frozen=True, kw_only=True)
class Evaluate(CommonFlags):
    """Compare values with rows that are known to be bad: AUC, detection curve, picture (with --out)."""

    values: tyro.conf.Positional[Path]
    """Table of values written by `value`."""
    truth: str
    """Column that says which rows are bad (true/false, 1/0, bad/good)."""
    audit: Path | None = None
    """CSV or Parquet with that column and a column id, for some or all rows. Default: the table of values itself."""

    def run(self) -> Output:
        """Measure detection."""
        _check_paths(self.values, self.audit)
        from icl25_sava.verbs import run_evaluate

        return run_evaluate(self)


@dataclass(frozen=True, kw_only=True)
class Distance(MethodFlags):
    """Distance between two labelled data sets, of any label sets."""

    first: tyro.conf.Positional[Path]
    """First data set."""
    second: tyro.conf.Positional[Path]
    """Second data set."""
    debias: bool = False
    """Subtract half of each set's distance to itself, so that equal sets are at distance 0."""

    def run(self) -> Output:
        """Measure the distance."""
        _check_paths(self.first, self.second)
        from icl25_sava.verbs import run_distance

        return run_distance(self)


@dataclass(frozen=True, kw_only=True)
class Compare(MethodFlags):
    """Value the same rows by several methods: time, agreement, and AUC where bad rows are known."""

    train: tyro.conf.Positional[Path]
    """Training rows."""
    val: tyro.conf.Positional[Path]
    """Validation rows."""
    methods: str = "sava,lava,knn-shapley,nearest"
    """Methods, comma-separated: sava, lava, batchwise-lava, nearest, knn-shapley, random."""
    truth: str | None = None
    """Column that says which training rows are bad; needs --audit."""
    audit: Path | None = None
    """CSV or Parquet with that column and a column id, for some or all rows."""

    def run(self) -> Output:
        """Run the methods."""
        _check_paths(self.train, self.val, self.audit)
        from icl25_sava.verbs import run_compare

        return run_compare(self)


@dataclass(frozen=True, kw_only=True)
class Plot(ReadingFlags):
    """Draw pictures of a table of values: histogram, batches, worst rows, detection.

    The pictures go to the folder --out (plots without it).
    """

    values: tyro.conf.Positional[Path]
    """Table of values written by `value`."""
    store: Path | None = None
    """Store of the run, for the maps of batch costs and of the outer plan."""
    train: Path | None = None
    """Training rows (images), for the grid of the worst rows; needs --val."""
    val: Path | None = None
    """Validation rows (images)."""
    image_shape: Annotated[str | None, tyro.conf.arg(metavar="HxW[xC]")] = None
    """Shape of a row, such as 8x8 or 32x32x3, where the file does not tell."""
    truth: str | None = None
    """Column that says which rows are bad, for the detection curve."""
    audit: Path | None = None
    """CSV or Parquet with that column and a column id."""

    def run(self) -> Output:
        """Draw."""
        _check_paths(self.values, self.train, self.val, self.audit)
        from icl25_sava.pictures import run_plot

        return run_plot(self)


@dataclass(frozen=True, kw_only=True)
class Info(CommonFlags):
    """Say what a store holds and how far its run is; with --out, write the values of all its rows."""

    store: tyro.conf.Positional[Path]
    """Store written by `value --store`."""

    def run(self) -> Output:
        """Describe the store."""
        from icl25_sava.verbs import run_info

        return run_info(self)


@dataclass(frozen=True, kw_only=True)
class Sample(CommonFlags):
    """Write files to try the other verbs on: 1 000 real digits, 300 of them with a wrong label.

    The folder --out (sample without it) gets train.csv, val.csv (clean) and audit.csv, which says which rows are wrong.
    """

    def run(self) -> Output:
        """Write the files."""
        from icl25_sava.verbs import run_sample

        return run_sample(self)


@dataclass(frozen=True, kw_only=True)
class Demo(CommonFlags):
    """Find noisy pixels and wrong labels in 1 000 real digits, against LAVA and KNN-Shapley (half a minute)."""

    def run(self) -> Output:
        """Run the demonstration."""
        from icl25_sava.demo import run_demo

        return run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce(CommonFlags):
    """Run the paper's experiment over several seeds: detection, memory and time against LAVA, incremental pruning."""

    config: Literal["digits", "cifar10", "clothing1m"] = "digits"
    """digits runs here without data; the others need --data and are meant for a GPU."""
    scale: Literal["small", "paper"] = "small"
    """small ends within 15 minutes on two cores; paper takes the sizes of the paper (cifar10, clothing1m)."""
    data: Path | None = None
    """Folder with train.npz, val.npz and test.npz (X of shape (n, h, w, 3), bytes or in [0, 1]; y integers), for
    cifar10 and clothing1m. Files of np.savez are memory-mapped. --force goes on where --out broke off."""
    embedder: str = "mlp"
    """Embedder of cifar10 and clothing1m, see `value --help`; torch:module.attribute:weights for --scale paper."""
    n_seeds: int = 3
    """Number of seeds."""

    def run(self) -> Output:
        """Run the experiment."""
        _check_paths(self.data)
        from icl25_sava.reproduce import run_reproduce

        return run_reproduce(self)


VERBS: dict[str, type[CommonFlags]] = {
    "value": Value,
    "add": Add,
    "prune": Prune,
    "evaluate": Evaluate,
    "compare": Compare,
    "distance": Distance,
    "plot": Plot,
    "info": Info,
    "sample": Sample,
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
        "icl25-sava", "Find the training rows that harm a model, without training it (SAVA, ICLR 2025).", VERBS, argv
    )
