"""What the verbs share: groups of flags, and what is checked before anything slow is imported."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from icl25_shared import CommonFlags, InputError

if TYPE_CHECKING:
    from icl25_pn_gail.config import TrainConfig

MethodName = Literal["pn-gail", "2iwil", "ic-gail", "wgail", "gail", "gail-c", "gail-reweight", "bc", "bc-weighted"]
METHOD_NAMES = MethodName.__args__
CLASSIFIER_NAMES = ("bsc", "sc", "supervised")
DEMO_ENDINGS = (".npz", ".parquet", ".pq", ".csv")
PICTURE_ENDINGS = (".png", ".pdf", ".svg")
MINARI = "minari:"


def value(metavar: str, *aliases: str) -> Any:
    """How a flag without a default value shows in the help, where its own text says what happens without it."""
    return tyro.conf.arg(metavar=metavar, aliases=aliases or None, help_behavior_hint="")


def number(metavar: str = "N") -> Any:
    """How a flag with a number shows in the help."""
    return tyro.conf.arg(metavar=metavar)


@dataclass(frozen=True, kw_only=True)
class DemoFlags(CommonFlags):
    """Which demonstrations, and how to read them."""

    demos: tyro.conf.Positional[Path]
    """Demonstrations: .npz, .csv, .parquet, the folder of a Minari dataset, or minari:ID. Also as --demos FILE."""
    obs_cols: Annotated[str | None, value("NAMES")] = None
    """Observations: names with commas between, or what numbered names begin with. Default: the usual, as obs_0."""
    act_cols: Annotated[str | None, value("NAMES")] = None
    """Actions, likewise. Default: the usual names, such as act_0."""
    confidence_column: Annotated[str | None, value("NAME")] = None
    """Column of confidences. Default: confidence or rating, if there is one."""
    episode_column: Annotated[str | None, value("NAME")] = None
    """Column of the labels of episodes. Default: episode and the like, else flags such as done."""
    confidence_range: Annotated[str | None, value("LOW,HIGH")] = None
    """Lowest and highest possible rating, such as 1,5, which become confidences 0 and 1. Default: 0,1."""
    sharpen: Annotated[float | None, value("POWER")] = None
    """Raise the odds of the given confidences to this power; 2 makes 0.8 to 0.94 and 0.2 to 0.06. Default: as given."""
    actions: Literal["auto", "continuous", "discrete"] = "auto"
    """Whether actions are numbers or choices; auto takes one column of whole numbers for choices."""

    def check_demos(self) -> None:
        """Refuse what needs no slow import to be seen."""
        check_demo_file(self.demos)
        self.rating_range()
        if self.sharpen is not None and not 0 < self.sharpen < math.inf:
            raise InputError(f"--sharpen must be a number above 0, found {self.sharpen}")

    def rating_range(self) -> tuple[float, float] | None:
        """The bounds of --confidence-range."""
        if self.confidence_range is None:
            return None
        try:
            low, high = (float(part) for part in self.confidence_range.split(","))
        except ValueError:
            raise InputError(
                f"--confidence-range must be two numbers such as 1,5, found {self.confidence_range!r}"
            ) from None
        if not low < high:
            raise InputError(f"--confidence-range must have the lower number first, found {self.confidence_range!r}")
        return low, high


@dataclass(frozen=True, kw_only=True)
class EnvFlags(CommonFlags):
    """Which environment."""

    env: Annotated[str | None, value("ENV")] = None
    """Environment: TwoGoals, PendulumJax, CartPoleJax, or an id of Gymnasium such as Swimmer-v5."""
    env_module: Annotated[str | None, value("MODULE:NAME")] = None
    """Your own environment, such as my_env:make for the function make in my_env.py, which is executed."""
    backend: Literal["auto", "jax", "gymnasium"] = "auto"
    """auto computes Pendulum-v1 and CartPole-v1 in jax, which is far faster; gymnasium takes Gymnasium's own."""

    def check_env(self, *, needed: bool = True) -> None:
        """Refuse two environments, or none."""
        if self.env is not None and self.env_module is not None:
            raise InputError("--env and --env-module exclude each other")
        if needed and self.env is None and self.env_module is None:
            raise InputError("name the environment with --env, such as --env Pendulum-v1, or with --env-module")


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(DemoFlags, EnvFlags):
    """How to train."""

    iterations: Annotated[int, number()] = 500
    """Iterations, each of which acts, and updates policy and discriminator; passes over the data for bc."""
    learner: Literal["trpo", "ppo"] = "trpo"
    """How the policy is improved: trpo as in the paper, or ppo."""
    episodes: Annotated[int, number()] = 20
    """Episodes of the last evaluation."""
    hidden: Annotated[str, tyro.conf.arg(metavar="N,N")] = "100,100"
    """Widths of the hidden layers."""
    steps_per_iteration: Annotated[int, number()] = 5000
    """Steps of the environment in an iteration, rounded up to whole episodes."""
    n_envs: Annotated[int | None, value("N")] = None
    """Environments side by side. Default: as many as make the steps of an iteration with one episode each."""
    max_episode_steps: Annotated[int | None, value("N")] = None
    """Where an environment has no time limit: steps after which episodes are cut. Default: the longest demonstrated."""
    gamma: Annotated[float, number("X")] = 0.995
    """Discount."""
    gae_lambda: Annotated[float | None, value("X")] = None
    """Weight of later steps in the advantages. Default: 0.97 for trpo, 0.95 for ppo."""
    max_kl: Annotated[float, number("X")] = 0.01
    """Trust region of trpo, in nats; larger is faster and less safe."""
    fisher_every: Annotated[int, number()] = 1
    """trpo uses every so-many-th row for the Fisher information; 4 halves the time of an iteration."""
    disc_lr: Annotated[float, number("X")] = 1e-3
    """Learning rate of the discriminator."""
    disc_steps: Annotated[int, number()] = 1
    """Steps of the discriminator in an iteration."""
    disc_grad_penalty: Annotated[float, number("X")] = 0.0
    """Weight of a penalty on steep discriminators, such as 1."""
    reward: Literal["nonsaturating", "airl", "gail"] = "nonsaturating"
    """How D pays: nonsaturating -log D >= 0; airl its negative logit, for episodes that end early; gail log(1 - D)."""
    log_std_init: Annotated[float, number("X")] = 0.0
    """First logarithm of the standard deviation of actions."""
    value_lr: Annotated[float, number("X")] = 3e-4
    """Learning rate of the value function."""
    normalize_actions: bool = False
    """Act in units of half the range of the actions, for ranges far from [-1, 1]."""
    eval_every: Annotated[int, number()] = 25
    """Iterations between two evaluations and checkpoints."""
    async_envs: bool = False
    """Run each Gymnasium environment in a process of its own, which pays for slow simulators."""
    official: bool = False
    """Compute as the authors' code: raw actions and observations, time limits as ends, steps of any divergence."""

    def check_training(self) -> None:
        """Refuse what needs no slow import to be seen."""
        self.check_demos()
        self.check_env()
        for name in ("iterations", "episodes"):
            at_least_one(name, getattr(self, name))
        self.train_config()

    def train_config(self) -> TrainConfig:
        """The settings of these flags.

        Raises:
            InputError: If they cannot work.
        """
        from icl25_pn_gail.config import TrainConfig

        try:
            widths = tuple(int(width) for width in self.hidden.split(","))
        except ValueError:
            raise InputError(f"--hidden must be whole numbers such as 100,100, found {self.hidden!r}") from None
        known = {field.name for field in fields(TrainConfig)}
        settings = {field.name: getattr(self, field.name) for field in fields(self) if field.name in known}
        settings["hidden"] = widths
        try:
            return TrainConfig.official(**settings) if self.official else TrainConfig(**settings)
        except ValueError as error:
            name, _, rest = str(error).partition(" ")
            raise InputError(f"--{name.replace('_', '-')} {rest}") from error


def at_least_one(name: str, found: int | None) -> None:
    """Refuse numbers below 1."""
    if found is not None and found < 1:
        raise InputError(f"--{name.replace('_', '-')} must be >= 1, found {found}")


def check_demo_file(path: Path, flag: str = "") -> None:
    """Refuse demonstrations that do not exist, are empty, or are a folder and no Minari dataset."""
    lead = f"{flag} " if flag else ""
    if str(path).startswith(MINARI):
        return
    if not path.exists():
        raise FileNotFoundError(f"{lead}{path}: no such file")
    if path.is_dir() and not any((path / part / "metadata.json").exists() for part in ("", "data")):
        raise InputError(f"{lead}{path} is a folder, expected a file of demonstrations or a Minari dataset")
    if path.is_file() and path.stat().st_size == 0:
        raise InputError(f"{lead}{path} is empty")


def check_run(folder: Path) -> None:
    """Refuse what is no folder of a finished training."""
    if not folder.exists():
        raise FileNotFoundError(f"{folder}: no such folder")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, expected the folder of a training")
    for name in ("config.json", "policy.msgpack"):
        if not (folder / name).is_file():
            unfinished = (folder / "checkpoint.msgpack").is_file()
            hint = "its training has not ended: `train --resume` goes on with it" if unfinished else f"no {name} in it"
            raise InputError(f"{folder} holds no policy ({hint})")


def check_methods(text: str) -> list[str]:
    """Split --methods at its commas, and refuse names that are none."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        method, plus, classifier = name.partition("+")
        if method not in METHOD_NAMES:
            close = difflib.get_close_matches(method, METHOD_NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"choose among {', '.join(METHOD_NAMES)}"
            raise InputError(f"--methods: there is no method {method!r}; {hint}")
        if plus and classifier not in (*CLASSIFIER_NAMES, "oracle"):
            raise InputError(f"--methods: after + comes {', '.join(CLASSIFIER_NAMES)} or oracle, found {classifier!r}")
    return names


def output_file(out: Path | None, default: str, endings: Iterable[str], *, force: bool, flag: str = "--out") -> Path:
    """The file to write to, refused before the work begins where it cannot be written after it."""
    path = Path(default) if out is None else out
    if path.is_dir():
        raise InputError(f"{flag} {path} is a folder, expected a file such as {path / default}")
    if path.suffix.lower() not in endings:
        raise InputError(f"{flag} {path}: unknown kind of file {path.suffix!r}, expected one of {', '.join(endings)}")
    if (path.exists() or path.is_symlink()) and not force:
        raise InputError(f"{flag} {path} exists: --force replaces it")
    if path.parent.exists() and not path.parent.is_dir():
        raise InputError(f"{flag} {path}: {path.parent} is a file, expected a folder")
    return path
