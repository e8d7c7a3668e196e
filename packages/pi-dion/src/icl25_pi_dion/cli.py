"""The command line: parse, call, print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icl25_pi_dion.cli_flags import (
    DATA_ENDINGS,
    PICTURE_ENDINGS,
    RESULT_ENDINGS,
    check_files,
    check_problem,
    check_run,
    output_file,
    settings_flag,
    value,
)
from icl25_shared import CommonFlags, InputError, Output, run_cli

PARTS = ("rd", "helmholtz", "darcy", "all", "ablations")  # of reproduce


@dataclass(frozen=True, kw_only=True)
class ProblemFlags(CommonFlags):
    """Settings of the inverse problem."""

    settings: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], settings_flag()] = ()
    """Set an argument of the problem, such as D=0.02 or measurement=window,window=0,0.5; may be repeated."""


@dataclass(frozen=True, kw_only=True)
class Simulate(ProblemFlags):
    """Draw unknown functions from the prior of a problem, solve its equation, and measure.

    The file --out (data.npz without it) gets the arrays measurements, s and sensors.
    """

    problem: tyro.conf.Positional[str]
    """rd, rd-quadratic, helmholtz or darcy; or my_pde.py, or my_pde.py:Class, which is executed."""
    n_samples: Annotated[int, tyro.conf.arg(aliases=["-n"], metavar="N")] = 1000
    """Number of samples."""
    noise: float = 0.0
    """Standard deviation of the noise over that of the measurements."""
    fields: bool = False
    """Write the whole solutions as u, and where they are given as points_u."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """File to write, .npz."""

    def run(self) -> Output:
        """Simulate."""
        check_problem(self.problem)
        if self.n_samples < 1:
            raise InputError(f"--n-samples must be >= 1, found {self.n_samples}")
        output_file(self.out, "data.npz", (".npz",), force=self.force)
        from icl25_pi_dion.problem_verbs import run_simulate

        return run_simulate(self)


@dataclass(frozen=True, kw_only=True)
class Train(ProblemFlags):
    """Train an inverse operator on measurements alone.

    DATA is an NPZ, HDF5 or NetCDF file with measurements (and s, for --labels), an NPY file, or a table, CSV or
    Parquet, with a row for each sample and a column for each sensor; or, for --branch set, a row for each reading
    with the columns sample, x, t (or x, y) and value. The run folder --out gets the operator (config.json, parameters),
    history.csv, loss.png, inversions.png and a checkpoint.
    """

    problem: tyro.conf.Positional[str]
    """rd, rd-quadratic, helmholtz or darcy; or my_pde.py, or my_pde.py:Class, which is executed."""
    data: tyro.conf.Positional[Path]
    """Measurements: .npz, .npy, .csv, .parquet, .h5 or .nc."""
    steps: int = 1500
    """Number of steps."""
    optimizer: Literal["muon", "adam", "lbfgs"] = "muon"
    """Optimiser; adam is slower to learn, by far."""
    learning_rate: Annotated[float | None, value("X")] = None
    """Learning rate at the start. Default: 0.02 for muon, 0.001 for adam."""
    batch_size: Annotated[int | None, value("N")] = None
    """Samples a step. Default: 100 for one dimension of space, 64 for more."""
    points: Annotated[int | None, value("N")] = None
    """Collocation points a step. Default: 300 for one dimension of space, 400 for more."""
    branch: Literal["mlp", "cnn", "set"] = "mlp"
    """Networks of the measurement: mlp, cnn for sensors on a grid, set for sensors that vary from sample to sample."""
    p: Annotated[int | None, value("N")] = None
    """Number of trunk functions. Default: 48 for one dimension of space, 96 for more."""
    noise_std: float = 0.0
    """Standard deviation of the noise in the data over that of the measurements."""
    weight_physics: Annotated[float | None, value("X")] = None
    """Weight of the residual. Default: 1."""
    weight_data: Annotated[float | None, value("X")] = None
    """Weight of the misfit to the readings. Default: 10."""
    weight_h1: Annotated[float | None, value("X")] = None
    """Weight of the misfit of differences between neighbours. Default: 0.1 without noise on a line, else 0."""
    weight_label: Annotated[float | None, value("X")] = None
    """Weight of the error on labelled samples. Default: 1."""
    labels: int = 0
    """Use the unknowns s of the first N samples of the file."""
    missing: Literal["error", "mask"] = "error"
    """What NaN means: an error, or, with --branch set, a sensor that was not read."""
    n_devices: int = 1
    """Devices over which a batch is spread."""
    checkpoint_every: int = 500
    """Steps between two checkpoints."""
    resume: bool = False
    """Go on with the run in --out that broke off; the result is that of an uninterrupted run."""

    def run(self) -> Output:
        """Train."""
        check_problem(self.problem)
        check_files(self.data, endings=DATA_ENDINGS)
        from icl25_pi_dion.train_verbs import run_train

        return run_train(self)


@dataclass(frozen=True, kw_only=True)
class RunFlags(ProblemFlags):
    """Which trained operator, and on which data."""

    folder: tyro.conf.Positional[Path]
    """Run folder that `train` wrote."""
    data: tyro.conf.Positional[Path]
    """Measurements, as for `train`."""
    problem: Annotated[str | None, value("FILE")] = None
    """Your my_pde.py, where it was trained on that; code in a run folder is never executed."""
    refine: int = 0
    """Most Gauss-Newton steps that refine each inversion; 1 solves linear problems, 3 to 5 others."""

    def check(self) -> None:
        """Refuse what needs no slow import to be seen."""
        check_run(self.folder)
        check_problem(self.problem)
        check_files(self.data, endings=DATA_ENDINGS)
        if self.refine < 0:
            raise InputError(f"--refine must be >= 0, found {self.refine}")


@dataclass(frozen=True, kw_only=True)
class Invert(RunFlags):
    """Find the unknown functions behind new measurements, and say how far to trust them.

    The file --out (result.npz without it) gets s with its points, residual, misfit, error estimate and score of
    novelty of each sample, as arrays (.npz, .h5, .nc) or as a table (.csv, .parquet).
    """

    return_u: bool = False
    """Write the solution u at the sensors as well."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """File to write, .npz, .csv, .parquet, .nc or .h5."""

    def run(self) -> Output:
        """Invert."""
        self.check()
        output_file(self.out, "result.npz", RESULT_ENDINGS, force=self.force)
        from icl25_pi_dion.inversion_verbs import run_invert

        return run_invert(self)


@dataclass(frozen=True, kw_only=True)
class Evaluate(RunFlags):
    """Hold inversions against true unknowns, which the file must hold as s.

    With --out, a run folder gets scores.json, inversions.png and reliability.png.
    """

    def run(self) -> Output:
        """Evaluate."""
        self.check()
        from icl25_pi_dion.inversion_verbs import run_evaluate

        return run_evaluate(self)


@dataclass(frozen=True, kw_only=True)
class Identify(ProblemFlags):
    """Say whether the measurement of a problem determines its unknown, and how much of it, before any training."""

    problem: tyro.conf.Positional[str]
    """rd, rd-quadratic, helmholtz or darcy; or my_pde.py, or my_pde.py:Class, which is executed."""
    k: int = 20
    """Number of singular values."""
    noise: float = 0.01
    """Standard deviation of the noise over that of the measurements; what is smaller than that cannot be seen."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """Picture to write: .png, .pdf or .svg. Default: none."""

    def run(self) -> Output:
        """Identify."""
        check_problem(self.problem)
        if self.out is not None:
            output_file(self.out, "spectrum.png", PICTURE_ENDINGS, force=self.force)
        from icl25_pi_dion.problem_verbs import run_identify

        return run_identify(self)


@dataclass(frozen=True, kw_only=True)
class Bench(CommonFlags):
    """Time the physics loss against a Hessian for each sample and point, and the inversion of 1,000 measurements."""

    n_points: int = 512
    """Collocation points."""
    p: int = 64
    """Number of trunk functions."""
    repeats: int = 5
    """Repetitions, of which the fastest counts."""

    def run(self) -> Output:
        """Time."""
        for name in ("n_points", "p", "repeats"):
            if getattr(self, name) < 1:
                raise InputError(f"--{name.replace('_', '-')} must be >= 1, found {getattr(self, name)}")
        from icl25_pi_dion.speed_verbs import run_bench

        return run_bench(self)


@dataclass(frozen=True, kw_only=True)
class Demo(CommonFlags):
    """Find hidden sources from measurements alone, against a network that was given labels (under a minute)."""

    n_seeds: int = 1
    """Number of seeds."""

    def run(self) -> Output:
        """Run the demonstration."""
        from icl25_pi_dion.compile_cache import use_compile_cache
        from icl25_pi_dion.demo import run_demo

        use_compile_cache()
        return run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce(CommonFlags):
    """Run the paper's experiments over several seeds, with labels and without, noiseless and noisy."""

    part: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=f"{{{','.join(PARTS)}}}")] = "all"
    """Which problem: reaction-diffusion, Helmholtz, Darcy, or all three. Not among them: what each part of the method
    contributes (ablations)."""
    n_seeds: int = 3
    """Number of seeds."""
    scale: Literal["laptop", "paper"] = "laptop"
    """laptop takes about 20 minutes for all on two cores; paper is the full configuration and needs a GPU."""
    full: bool = False
    """Another name of --scale paper."""

    def __post_init__(self) -> None:
        """Check the part; let --full choose the scale."""
        super().__post_init__()
        if self.part not in PARTS:
            raise InputError(f"the part must be {', '.join(PARTS[:-1])} or {PARTS[-1]}, found {self.part}")
        if self.full:
            object.__setattr__(self, "scale", "paper")
        if self.scale == "paper" and self.part == "ablations":
            raise InputError("--scale paper is for rd, helmholtz, darcy and all, found ablations")

    def run(self) -> Output:
        """Run the experiments."""
        from icl25_pi_dion.compile_cache import use_compile_cache
        from icl25_pi_dion.reproduce import run_reproduce

        use_compile_cache()
        return run_reproduce(self)


VERBS: dict[str, type[CommonFlags]] = {
    "simulate": Simulate,
    "train": Train,
    "invert": Invert,
    "evaluate": Evaluate,
    "identify": Identify,
    "bench": Bench,
    "demo": Demo,
    "reproduce": Reproduce,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments; those of the process when None.

    Returns:
        The exit status: 0 done, 1 failed, 2 wrong input, 130 interrupted.
    """
    return run_cli(
        "icl25-pi-dion",
        "Find the unknown source or coefficient of a differential equation behind sensor readings, with a network that "
        "learns from readings alone (PI-DION, ICLR 2025).",
        VERBS,
        argv,
    )
