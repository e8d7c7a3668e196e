"""The command line: parse, call, print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icl25_pn_gail.cli_flags import (
    DEMO_ENDINGS,
    PICTURE_ENDINGS,
    DemoFlags,
    EnvFlags,
    MethodName,
    TrainingFlags,
    at_least_one,
    check_demo_file,
    check_methods,
    check_run,
    number,
    output_file,
    value,
)
from icl25_shared import CommonFlags, InputError, Output, run_cli

PARTS = ("pendulum", "ratio", "labels", "ablation", "all")  # of reproduce


@dataclass(frozen=True, kw_only=True)
class MakeDemos(EnvFlags):
    """Make demonstrations of mixed quality, from behaviours written by hand or from a learner at several stages.

    The file --out (demos.npz without it) gets whole episodes with rewards; all rows have a confidence, unless with
    a --label-share. Behaviours are to-a and to-b of TwoGoals; expert, spin and hang of Pendulum-v1; expert of
    CartPole-v1; random everywhere; and with an expert eps0.3, which acts at random three times in ten.
    """

    levels: Annotated[str | None, value("LEVELS")] = None
    """Episodes of each behaviour, such as expert:5,spin:50, or with confidences, expert:5:1.0,spin:50:0.1."""
    sb3: Annotated[Literal["sac", "td3", "ppo"] | None, value("{sac,td3,ppo}")] = None
    """Train this learner of Stable-Baselines3 instead, and record it at several stages of its training."""
    checkpoints: Annotated[int, number()] = 4
    """With --sb3: number of stages, of which the best is the expert."""
    total_steps: Annotated[int, number()] = 1_000_000
    """With --sb3: steps of training."""
    episodes_per_level: Annotated[str, tyro.conf.arg(metavar="N[,N...]")] = "5"
    """With --sb3: episodes of every stage, or of each, best first."""
    label_share: Annotated[float, number("X")] = 1.0
    """Share of the confidences that is kept, in (0, 1]."""
    label_by: Literal["row", "episode"] = "row"
    """Whether confidences of rows or of whole episodes are kept."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """File to write: .npz, .parquet or .csv."""

    def run(self) -> Output:
        """Make demonstrations."""
        self.check_env()
        if (self.levels is None) == (self.sb3 is None):
            raise InputError("say what to record: --levels, such as --levels expert:5,spin:50, or --sb3")
        if not 0 < self.label_share <= 1:
            raise InputError(f"--label-share must be in (0, 1], found {self.label_share}")
        for name in ("checkpoints", "total_steps"):
            at_least_one(name, getattr(self, name))
        output_file(self.out, "demos.npz", DEMO_ENDINGS, force=self.force)
        from icl25_pn_gail.data_verbs import run_make_demos

        return run_make_demos(self)


@dataclass(frozen=True, kw_only=True)
class Label(DemoFlags):
    """Fill in missing confidences, and measure how far to trust them.

    The file --out (labelled.parquet without it) gets all rows in their order. A CSV or Parquet file that is labelled
    into a file of the same kind keeps all its columns.
    """

    method: Literal["bsc", "sc", "supervised"] = "bsc"
    """How to use unlabelled rows: bsc as in the paper, sc as in 2IWIL, or supervised, which leaves them out."""
    steps: Annotated[int, number()] = 20_000
    """Steps of training; fewer leave the confidence of good rows too low where they are rare."""
    batch_size: Annotated[int, number()] = 8
    """Rows with confidence in a step."""
    folds: Annotated[int, number()] = 5
    """Parts of the labelled rows that are held out in turn to measure errors; 0 measures none."""
    picture: Annotated[Path | None, value("FILE")] = None
    """Picture of the confidences to write: .png, .pdf or .svg. Default: none."""
    out: Annotated[Path | None, value("FILE", "-o")] = None
    """File to write: .parquet, .npz or .csv."""

    def run(self) -> Output:
        """Label."""
        self.check_demos()
        for name in ("steps", "batch_size"):
            at_least_one(name, getattr(self, name))
        if self.folds < 0 or self.folds == 1:
            raise InputError(f"--folds must be 0, or >= 2, found {self.folds}")
        output_file(self.out, "labelled.parquet", DEMO_ENDINGS, force=self.force)
        if self.picture is not None:
            output_file(self.picture, "confidence.png", PICTURE_ENDINGS, force=self.force, flag="--picture")
        from icl25_pn_gail.label_verbs import run_label

        return run_label(self)


@dataclass(frozen=True, kw_only=True)
class Check(DemoFlags, EnvFlags):
    """Look for what makes learning from demonstrations fail, such as actions of another scale or wrong cuts.

    Ends with status 1 where there are errors. With --out, a folder gets check.json.
    """

    def run(self) -> Output:
        """Check."""
        self.check_demos()
        self.check_env(needed=False)
        from icl25_pn_gail.data_verbs import run_check

        return run_check(self)


@dataclass(frozen=True, kw_only=True)
class Diagnose(DemoFlags):
    """Say, before any training, what each method would imitate of these demonstrations.

    With --out, a folder gets mixture.csv, mixture.png and result.json.
    """

    by: Literal["confidence", "level", "episode"] = "confidence"
    """How rows are grouped: by their confidence, by the behaviour that make-demos recorded, or by episode."""

    def run(self) -> Output:
        """Diagnose."""
        self.check_demos()
        from icl25_pn_gail.data_verbs import run_diagnose

        return run_diagnose(self)


@dataclass(frozen=True, kw_only=True)
class Train(TrainingFlags):
    """Learn a policy from demonstrations of mixed quality, a few of them with a confidence.

    The run folder --out gets policy.msgpack, config.json, history.csv, confidence.parquet, report.md, pictures, and a
    checkpoint with which --resume goes on.
    """

    method: MethodName = "pn-gail"
    """What to do with the demonstrations; gail, wgail and bc need no confidences."""
    classifier: Annotated[Literal["bsc", "sc", "supervised"] | None, value("{bsc,sc,supervised}")] = None
    """How missing confidences are filled in. Default: as the method does, bsc for pn-gail, sc for 2iwil."""
    resume: bool = False
    """Go on with the run in --out that broke off, or make it longer; the result is that of a run without break."""

    def run(self) -> Output:
        """Train."""
        self.check_training()
        from icl25_pn_gail.train_verbs import run_train

        return run_train(self)


@dataclass(frozen=True, kw_only=True)
class Evaluate(EnvFlags):
    """Roll out a trained policy.

    With --out, a folder gets evaluation.json and episodes.csv, and the picture of --video, which goes to the run folder
    without it.
    """

    folder: tyro.conf.Positional[Path]
    """Run folder that `train` wrote."""
    episodes: Annotated[int, number()] = 20
    """Number of episodes."""
    stochastic: bool = False
    """Draw actions as in training, rather than the most likely one."""
    video: bool = False
    """Draw an episode, rollout.gif; or of an environment in jax the paths of several, rollout.png."""

    def run(self) -> Output:
        """Evaluate."""
        check_run(self.folder)
        self.check_env(needed=False)
        at_least_one("episodes", self.episodes)
        from icl25_pn_gail.evaluate_verbs import run_evaluate

        return run_evaluate(self)


@dataclass(frozen=True, kw_only=True)
class Compare(TrainingFlags):
    """Train several methods on the same demonstrations from several seeds, and hold them against each other.

    Methods are pn-gail, 2iwil, ic-gail, wgail, gail, gail-c, gail-reweight, bc and bc-weighted. In an environment in
    jax runs are side by side, one on each core. The run folder --out gets results.csv, histories.csv,
    comparison.png and result.json.
    """

    methods: Annotated[str, tyro.conf.arg(metavar="NAMES")] = "pn-gail,2iwil,gail,bc"
    """Methods with commas between; +bsc, +sc, +supervised or +oracle says what fills in missing confidences."""
    n_seeds: Annotated[int, number()] = 5
    """Number of seeds, from --seed on."""
    failed_below: Annotated[float | None, value("X")] = None
    """Mean return below which a run counts as failed. Default: failures are not counted."""
    oracle: Annotated[Path | None, value("FILE")] = None
    """For +oracle: the same demonstrations with all confidences. Default: none."""

    def run(self) -> Output:
        """Compare."""
        self.check_training()
        at_least_one("n_seeds", self.n_seeds)
        names = check_methods(self.methods)
        if self.oracle is not None:
            check_demo_file(self.oracle, "--oracle")
        elif any(name.endswith("+oracle") for name in names):
            raise InputError("a method with +oracle needs --oracle, the demonstrations with all confidences")
        from icl25_pn_gail.compare_verbs import run_compare

        return run_compare(self)


@dataclass(frozen=True, kw_only=True)
class Demo(CommonFlags):
    """Learn to reach the right one of two goals from demonstrations that mostly go to the wrong one (a minute)."""

    n_seeds: Annotated[int, number()] = 4
    """Number of seeds."""

    def run(self) -> Output:
        """Run the demonstration."""
        at_least_one("n_seeds", self.n_seeds)
        from icl25_pn_gail.demo import run_demo
        from icl25_pn_gail.output_verbs import computing_on

        with computing_on(self.device):
            return run_demo(self)


@dataclass(frozen=True, kw_only=True)
class Reproduce(CommonFlags):
    """Run the paper's experiments over several seeds, against the methods it compares with."""

    part: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=f"{{{','.join(PARTS)}}}")] = "all"
    """Which: methods on the pendulum, ratios of good to bad, shares of labels, parts of the method, or all of these."""
    n_seeds: Annotated[int, number()] = 5
    """Number of seeds."""
    scale: Literal["laptop", "paper"] = "laptop"
    """laptop takes about 15 minutes for all on two cores; paper is the full configuration, of days."""
    full: bool = False
    """Another name of --scale paper."""

    def __post_init__(self) -> None:
        """Check the part; let --full choose the scale."""
        super().__post_init__()
        if self.part not in PARTS:
            raise InputError(f"the part must be {', '.join(PARTS[:-1])} or {PARTS[-1]}, found {self.part}")
        if self.full:
            object.__setattr__(self, "scale", "paper")

    def run(self) -> Output:
        """Run the experiments."""
        at_least_one("n_seeds", self.n_seeds)
        from icl25_pn_gail.output_verbs import computing_on
        from icl25_pn_gail.reproduce import run_reproduce

        with computing_on(self.device):
            return run_reproduce(self)


VERBS: dict[str, type[CommonFlags]] = {
    "make-demos": MakeDemos,
    "label": Label,
    "check": Check,
    "diagnose": Diagnose,
    "train": Train,
    "evaluate": Evaluate,
    "compare": Compare,
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
    given = sys.argv[1:] if argv is None else argv
    return run_cli(
        "icl25-pn-gail",
        "Learn a policy from demonstrations of mixed quality, a few of them rated, that is better than the average "
        "demonstrator (PN-GAIL, ICLR 2025).",
        VERBS,
        [part for argument in given for part in _named(argument)],
    )


def _named(argument: str) -> list[str]:
    """Take the demonstrations with the name of their argument, too: ``--demos FILE`` for ``FILE``."""
    name, equals, file = argument.partition("=")
    return [argument] if name != "--demos" else [file] * bool(equals)
