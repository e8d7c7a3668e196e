from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jaxtyping
import numpy as np
import pytest

from icl25_pn_gail.compile_cache import use_compile_cache
from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.envs import TwoGoals
from icl25_pn_gail.imitation import LEARNERS, AdversarialImitation
from icl25_pn_gail.networks import Layer
from icl25_pn_gail.recording import make_demonstrations

GOLDEN = Path(__file__).parent / "golden"

# Most of the time of these tests goes into compiling what then runs for milliseconds.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for processes that the tests start
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def golden():
    """Arrays computed with the reference implementation, by file name."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as arrays:
            return dict(arrays)

    return load


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def unchecked() -> Iterator[None]:
    """No run-time checks of types, for what our own errors are to be about."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="session", autouse=True)
def cache_home(tmp_path_factory) -> Iterator[Path]:
    """Keep compiled programs out of the home of whoever runs the tests, and share them with processes of the tests."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    use_compile_cache()
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


class Reference(NamedTuple):
    """Networks of the reference implementation in our layout: kernels (in, out) where torch has (out, in)."""

    arrays: dict[str, np.ndarray]
    policy: dict[str, Any]
    value: tuple[Layer, ...]
    disc: tuple[Layer, ...]
    clf: tuple[Layer, ...]

    @staticmethod
    def flat(layers: Any) -> np.ndarray:
        """Parameters of layers in torch's order: the transposed kernel of each, and its bias."""
        return np.concatenate([np.ravel(part) for layer in layers for part in (np.transpose(layer.kernel), layer.bias)])

    def flat_policy(self, params: dict[str, Any]) -> np.ndarray:
        """Parameters of the policy in the order of ``param_order``."""
        return np.concatenate([np.ravel(params["log_std"]), self.flat(params["layers"])])

    def policy_of(self, vector: np.ndarray) -> dict[str, Any]:
        """The parameters of the policy of which ``flat_policy`` makes ``vector``."""
        parts = iter(np.split(vector, np.cumsum([2, 24, 8, 64, 8, 16])))
        log_std = next(parts)
        layers = tuple(Layer(next(parts).reshape(out, -1).T, next(parts)) for out in (8, 8, 2))
        return {"layers": layers, "log_std": log_std}


@pytest.fixture(scope="session")
def reference(golden) -> Reference:
    """Everything in core.npz."""
    arrays = golden("core")

    def layers(*names: str) -> tuple[Layer, ...]:
        return tuple(Layer(arrays[f"{name}.weight"].T, arrays[f"{name}.bias"]) for name in names)

    policy = layers("policy/affine1", "policy/affine2", "policy/action_mean")
    return Reference(
        arrays,
        {"layers": policy, "log_std": arrays["policy/action_log_std"][0]},
        layers("value/affine1", "value/affine2", "value/value_head"),
        layers("disc/linear1", "disc/linear2", "disc/linear3"),
        layers("clf/fc1", "clf/fc2", "clf/fc3"),
    )


@pytest.fixture(scope="session")
def mixture() -> Any:
    """Two good episodes and eight bad ones, all rated."""
    return make_demonstrations("TwoGoals", "to-a:2:1.0,to-b:8:0.1")


@pytest.fixture(scope="session")
def tiny() -> TrainConfig:
    """Settings that are compiled once for all tests: change them, or the number of rows, and it takes seconds."""
    return TrainConfig(
        hidden=(8,), n_envs=24, n_steps=30, max_kl=0.03, log_std_init=-0.5, gamma=0.97, value_lr=3e-3, eval_every=1,
        value_minibatches=5, disc_steps=3, disc_lr=1e-2, wgail_every=2, wgail_until=3, eval_episodes=4,
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_learner(mixture, tiny) -> Callable[..., AdversarialImitation]:
    """Make a learner of a method in the smallest environment."""

    def make(method: str = "pn-gail", demos: Any = None, env: Any = None, **options: Any) -> AdversarialImitation:
        options = {"config": tiny} | options
        return LEARNERS[method](TwoGoals() if env is None else env, mixture if demos is None else demos, **options)

    return make


@pytest.fixture(scope="session")
def trained(mixture, tiny) -> AdversarialImitation:
    """PN-GAIL after two iterations; not to be trained further."""
    return LEARNERS["pn-gail"](TwoGoals(), mixture, config=tiny).learn(2, progress_bar=False)


class Line(gymnasium.Env):
    """A point on a line that starts near 0, moves by a tenth of the action, and is paid for being near 1.

    It ends for good beyond ``wall`` on the left.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, wall: float = 10.0) -> None:
        self.wall = wall

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x = self.np_random.normal(0, 0.05)
        return np.array([self.x], np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.x += 0.1 * float(action[0])
        return np.array([self.x], np.float32), -abs(self.x - 1), self.x < -self.wall, False, {}


@pytest.fixture(scope="session")
def make_line() -> Callable[..., Any]:
    """Make a function that makes an environment of Gymnasium."""

    def make(steps: int = 10, wall: float = 10.0) -> Callable[[], gymnasium.Env]:
        return lambda: gymnasium.wrappers.TimeLimit(Line(wall), steps)

    return make


class Ran(NamedTuple):
    """What a command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one JSON document that it must be."""
        return json.loads(self.out)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Run the command line in this process, in an empty folder."""
    from icl25_pn_gail.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        status = main([*map(str, arguments)])
        return Ran(status, *capsys.readouterr())

    yield run
    root = logging.getLogger()  # its handler writes to a captured stream, which ends with the test
    for handler in [handler for handler in root.handlers if handler.get_name() == "icl25"]:
        root.removeHandler(handler)


@pytest.fixture
def refused(cli):
    """Run a command that must fail on its input in one line, and give back its message."""

    def run(*arguments) -> str:
        ran = cli(*arguments)
        messages = [line for line in ran.err.splitlines() if not line.startswith("warning: ")]
        assert (ran.status, ran.out, len(messages)) == (2, "", 1), ran
        assert messages[0].startswith(f"icl25-pn-gail {arguments[0]}: error: ")
        return messages[0].partition("error: ")[2]

    return run
