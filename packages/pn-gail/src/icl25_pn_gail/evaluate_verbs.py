"""The verb that rolls out a trained policy."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from icl25_pn_gail.behaviour_cloning import BC
from icl25_pn_gail.envs import GymnasiumSource, env_name, make_env
from icl25_pn_gail.imitation import LEARNERS
from icl25_pn_gail.input_verbs import given_env, naming_flags
from icl25_pn_gail.output_verbs import computing_on, evaluation_rows, make_table, open_results, save_picture
from icl25_pn_gail.picture_verbs import draw_paths, write_gif
from icl25_pn_gail.policies import ImitationPolicy
from icl25_pn_gail.policy_recording import draw_episode, record_policy
from icl25_shared import InputError, Output, atomic_path, read_json

if TYPE_CHECKING:
    from icl25_pn_gail import cli

TRACES = 10  # episodes in a picture of paths


def run_evaluate(flags: cli.Evaluate) -> Output:
    """Roll out a policy."""
    video = _video_file(flags)
    with computing_on(flags.device), naming_flags():
        policy = ImitationPolicy.load(flags.folder)
        about = read_json(flags.folder / "config.json")
        env = make_env(_env(flags, about), flags.backend)
        kind = LEARNERS.get(about.get("method"), BC)
        learner = kind.load(flags.folder, env)
        opened = contextlib.nullcontext() if flags.out is None else open_results(flags, "evaluate")
        with opened as run:
            drawn = None if video is None else _show(flags, video, env, policy, about["method"])
            result = learner.evaluate(flags.episodes, deterministic=not flags.stochastic, seed=flags.seed)
            data = {
                "env": env_name(env),
                "method": about["method"],
                "deterministic": not flags.stochastic,
                "mean_return": result.mean,
                "interval": list(result.interval),
                "std_return": result.std,
                "iqm_return": result.iqm,
                "returns": result.returns,
                "lengths": result.lengths,
            }
            if run is not None:
                run.write_json("evaluation.json", data)
                table = pd.DataFrame({"return": result.returns, "length": result.lengths})
                with atomic_path(run.path("episodes.csv"), force=flags.force) as path:
                    table.to_csv(path, index_label="episode")
    title = f"{about['method']} in {env_name(env)}, {'drawn' if flags.stochastic else 'most likely'} actions"
    view: list[Any] = [make_table(title, ["what", f"{flags.episodes:,} episodes"], evaluation_rows(result))]
    if flags.out is not None:
        view.append(f"results in {flags.out}")
    if drawn is not None:
        view.append(f"picture in {drawn}")
    return Output(data, view)


def _env(flags: cli.Evaluate, about: Any) -> Any:
    """The environment that was named, else that of the training; code is executed only where it was named."""
    if flags.env is not None or flags.env_module is not None:
        return given_env(flags)
    name = str(about.get("env", ""))
    path = flags.folder / "run.json"
    config = read_json(path).get("config", {}) if path.is_file() else {}
    module = config.get("env_module") if isinstance(config, dict) else None
    if module or not name or ":" in name:
        named = f"--env-module {module}" if module else f"--env {name}" if name else "--env"
        raise InputError(f"{flags.folder} was trained in an environment of your own: name it with {named}")
    return name


def _video_file(flags: cli.Evaluate) -> Path | None:
    """Where the picture goes, without its ending; files that are in the way are refused before the work begins."""
    path = (flags.folder if flags.out is None else flags.out) / "rollout"
    pictures = [path.with_suffix(ending) for ending in (".gif", ".png")] if flags.video else []
    results = [] if flags.out is None else [flags.out / name for name in ("evaluation.json", "episodes.csv")]
    for file in (*pictures, *results):
        if file.exists() and not flags.force:
            raise InputError(f"{file} exists: --force replaces it")
    return path if flags.video else None


def _show(flags: cli.Evaluate, path: Path, env: Any, policy: ImitationPolicy, method: str) -> Path:
    if isinstance(env, GymnasiumSource):
        frames, rate = draw_episode(env, policy, flags.seed, deterministic=not flags.stochastic)
        path = path.with_suffix(".gif")
        with atomic_path(path, force=flags.force) as temporary:
            write_gif(temporary, frames, rate)
        return path
    n = min(TRACES, flags.episodes)
    recording = record_policy(env, policy, n, flags.seed, deterministic=not flags.stochastic)
    path = path.with_suffix(".png")
    save_picture(path, draw_paths(env, method, recording), force=flags.force)
    return path
