"""The verbs around demonstrations: make them, check them, and say what each method would imitate of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from icl25_pn_gail.checking import check
from icl25_pn_gail.cli_flags import DEMO_ENDINGS, output_file
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import make_env
from icl25_pn_gail.input_verbs import as_flags, given_env, naming_flags, read_demos
from icl25_pn_gail.optima import expected_mixture
from icl25_pn_gail.output_verbs import computing_on, described, make_table, open_results, shown, write_demos
from icl25_pn_gail.recording import make_demonstrations
from icl25_shared import InputError, Output, atomic_path, get_logger

if TYPE_CHECKING:
    from icl25_pn_gail import cli

LOG = get_logger(__name__)
MOST_GROUPS = 20  # in a table
BIN = 0.1  # width of the ranges of many different confidences


def run_make_demos(flags: cli.MakeDemos) -> Output:
    """Make demonstrations."""
    out = output_file(flags.out, "demos.npz", DEMO_ENDINGS, force=flags.force)
    with computing_on(flags.device), naming_flags():
        demos = _trained(flags) if flags.sb3 else _recorded(flags)
        full = demos
        if flags.label_share < 1:
            demos = demos.mask_labels(flags.label_share, flags.seed, flags.label_by)
    write_demos(out, demos, force=flags.force)
    meta, per_episode = demos.meta, full.summary()
    levels = []
    for name, mean in meta["level_returns"].items():
        own = per_episode[np.array(meta["levels"]) == name]
        level: dict[str, Any] = {
            "level": name,
            "episodes": len(own),
            "rows": int(own["rows"].sum()),
            "mean_return": mean,
        }
        if "level_steps" in meta:
            level["steps"] = meta["level_steps"][name]
        levels.append(level | {"confidence": meta["level_confidence"][name]})
    columns = ["level", "episodes", "rows", "mean return", *(["steps"] if "level_steps" in meta else []), "confidence"]
    rows = [
        (
            level["level"],
            f"{level['episodes']:,}",
            f"{level['rows']:,}",
            f"{level['mean_return']:.1f}",
            *([f"{level['steps']:,}"] if "steps" in level else []),
            f"{level['confidence']:.3g}",
        )
        for level in levels
    ]
    data = {"out": str(out), "env": meta["env"], "rows": len(demos), "labelled": demos.n_labelled, "levels": levels}
    title = f"{meta['env']}: {demos.n_episodes:,} episodes, {len(demos):,} rows, {demos.n_labelled:,} with a confidence"
    return Output(data, [make_table(title, columns, rows), f"demonstrations in {out}"])


def _recorded(flags: cli.MakeDemos) -> Demonstrations:
    env = given_env(flags)
    # By its name where that will do, which is then noted in the file.
    named = env if flags.backend == "auto" else make_env(env, flags.backend)
    return make_demonstrations(named, flags.levels or "", seed=flags.seed)


def _trained(flags: cli.MakeDemos) -> Demonstrations:
    from icl25_pn_gail.sb3_recording import train_and_record

    try:
        counts = [int(count) for count in flags.episodes_per_level.split(",")]
    except ValueError:
        raise InputError(
            f"--episodes-per-level must be whole numbers such as 5 or 5,10,10,10, found {flags.episodes_per_level!r}"
        ) from None
    if len(counts) not in (1, flags.checkpoints):
        raise InputError(f"--episodes-per-level must be 1 or {flags.checkpoints} numbers, found {len(counts)}")
    return train_and_record(
        given_env(flags),
        flags.sb3 or "",
        flags.total_steps,
        flags.checkpoints,
        counts * flags.checkpoints if len(counts) == 1 else counts,
        flags.seed,
        callback=lambda steps, mean: LOG.info("%d of %d steps: mean return %.4g", steps, flags.total_steps, mean),
    )


def run_check(flags: cli.Check) -> Output:
    """Look for what makes learning fail."""
    demos = read_demos(flags)
    with computing_on(flags.device), naming_flags():
        report = check(demos, given_env(flags))
    findings: list[dict[str, Any]] = [
        {"level": one.level, "code": one.code, "message": as_flags(one.message), "numbers": dict(one.numbers)}
        for one in report.findings
    ]
    data = {"ok": report.ok, "findings": findings}
    if flags.out is not None:
        with open_results(flags, "check", "check.json") as run:
            run.write_json("check.json", data)
    counts = [_counted(len(report.errors), "error"), _counted(len(report.warnings), "warning")]
    rows = [(one["level"], one["code"], one["message"]) for one in findings]
    view = [make_table(f"{flags.demos}: {described(demos)}", ["level", "looked at", "found"], rows), ", ".join(counts)]
    return Output(data, view, ok=report.ok)


def _counted(n: int, noun: str) -> str:
    return f"{n or 'no'} {noun}{'s' if n != 1 else ''}"


def run_diagnose(flags: cli.Diagnose) -> Output:
    """Say what each method would imitate."""
    demos = read_demos(flags)
    if not demos.n_labelled:
        raise InputError(f"{flags.demos}: no row has a confidence; rate some rows, or see whether a column holds them")
    if demos.n_labelled < len(demos):
        LOG.warning(
            "%d of %d rows have no confidence and are left out; `label` fills them in",
            len(demos) - demos.n_labelled,
            len(demos),
        )
    kept = demos.select(demos.labelled)
    groups = _groups(flags, demos)[demos.labelled]
    with naming_flags():
        frame = expected_mixture(kept.confidence, groups=groups)
    table = frame.reset_index()
    data: dict[str, Any] = {"rows": len(kept), "by": flags.by, "groups": table.to_dict("records")}
    if flags.out is not None:
        from icl25_pn_gail.confidence_plots import plot_mixture

        with open_results(flags, "diagnose", "mixture.csv", "mixture.png", "result.json") as run:
            with atomic_path(run.path("mixture.csv"), force=flags.force) as path:
                table.to_csv(path, index=False)
            run.save_figure(plot_mixture(frame), "mixture.png")
            run.write_json("result.json", data)
    listed = table if len(table) <= MOST_GROUPS else table.nlargest(MOST_GROUPS, "pn_gail", keep="first")
    shares = ["demonstrations", "gail", "iwil", "pn_gail"]
    rows = [
        (
            f"{row['group']:.3g}" if isinstance(row["group"], float) else str(row["group"]),
            shown(row["confidence"], ".3g"),
            *(f"{100 * row[share]:.1f} %" for share in shares),
        )
        for row in listed.to_dict("records")
    ]
    more = f", the {MOST_GROUPS} most imitated of {len(table)} groups" if len(listed) < len(table) else ""
    columns = ["group", "confidence", "demonstrated", "GAIL", "2IWIL", "PN-GAIL"]
    view: list[Any] = [make_table(f"What each method imitates in the end, by {flags.by}{more}", columns, rows)]
    if flags.out is not None:
        view.append(f"table and picture in {flags.out}")
    return Output(data, view)


def _groups(flags: cli.Diagnose, demos: Demonstrations) -> np.ndarray:
    """Group of each row."""
    if flags.by == "episode":
        if demos.episode is None:
            raise InputError(f"{flags.demos}: no episodes are known; name their column with --episode-column")
        return np.array([str(name) for name in demos.episode_names])[demos.episode_codes]
    if flags.by == "level":
        levels = demos.meta.get("levels")
        numbers = demos.episode if demos.episode is not None and demos.episode.dtype.kind in "iu" else None
        if not isinstance(levels, list) or numbers is None or not 0 <= numbers.min() <= numbers.max() < len(levels):
            raise InputError(
                f"{flags.demos} does not say which behaviours it holds; .npz and .parquet of make-demos do"
            )
        return np.array(levels)[numbers]
    values = pd.unique(demos.confidence[demos.labelled])
    if len(values) <= MOST_GROUPS:
        return demos.confidence
    place = np.clip(np.floor(demos.confidence / BIN + 1e-9), 0, round(1 / BIN) - 1)
    return np.array(["" if np.isnan(bin_) else f"{bin_ * BIN:.1f} to {(bin_ + 1) * BIN:.1f}" for bin_ in place])
