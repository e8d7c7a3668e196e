"""The report of a training, in Markdown: what was trained on what, which episodes were believed, how good it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.envs import env_name
from icl25_pn_gail.evaluation import EvalResult, interval_text
from icl25_pn_gail.findings import Report
from icl25_pn_gail.learners import Learner
from icl25_pn_gail.methods import METHODS
from icl25_pn_gail.optima import expected_mixture

__all__ = ["BELIEVING", "believed_episodes", "training_report"]

MOST_EPISODES = 60
BELIEVING = {"pn-gail": "pn_gail", "2iwil": "iwil", "bc-weighted": "iwil"}
"""Methods that fill in confidences, and the column of ``expected_mixture`` that says what they imitate."""
_RATED_ONLY = ("ic-gail", "gail-c", "gail-reweight")


def believed_episodes(demos: Demonstrations, confidence: Any, method: str) -> pd.DataFrame:
    """Say how far each episode was believed, and what part of it a method imitates in the end.

    Args:
        demos: The demonstrations.
        confidence: Confidence of each row, filled in, (N,).
        method: Name of the method, one of ``BELIEVING``.

    Returns:
        A row for each episode, those most believed first, by name: ``rows``, ``labelled``, ``given``, the mean of the
        given confidences, ``confidence``, the mean of all, ``imitated``, the share of the episode in what the method
        imitates at its optimum, and ``return`` where rewards are known.

    Raises:
        ValueError: If there is not a confidence for each row.

    Source:
        PN-GAIL and 2IWIL, optimal generators.
    """
    frame = expected_mixture(confidence, groups=demos.episode_codes)
    summary = demos.summary()
    table = summary[["rows", "labelled"]].copy()
    table["given"] = summary["mean_confidence"]
    table["confidence"] = frame["confidence"].to_numpy()
    table["imitated"] = frame[BELIEVING[method]].to_numpy()
    if "return" in summary:
        table["return"] = summary["return"]
    return table.sort_values("confidence", ascending=False, kind="stable")


def training_report(
    learner: Learner, demos: Demonstrations, findings: Report, result: EvalResult, file_name: str, method: str
) -> str:
    """Write the report of a training.

    Args:
        learner: What was trained.
        demos: Demonstrations that it was trained on.
        findings: What a check of these found.
        result: The last evaluation.
        file_name: Name of their file.
        method: Name of the method, as the command line has it.

    Returns:
        The report; it holds neither times nor paths.

    Raises:
        ValueError: If the confidences of the learner are not those of the demonstrations.

    Source:
        This package's.
    """
    title = METHODS[method].title if method in METHODS else "Behaviour cloning"
    name = env_name(learner.env)
    parts = [
        f"# {title} in {name}",
        _trained(learner, title),
        "## Result",
        _result(learner, demos, result),
        "## Demonstrations",
        _demonstrations(demos, file_name),
        "## What was believed",
        _believed(learner, demos, method, title),
        "## Checks",
        _checks(findings),
        "## Use",
        _use(learner, name),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _trained(learner: Learner, title: str) -> str:
    config, usual = learner.config, TrainConfig()
    changed = {
        field.name: getattr(config, field.name)
        for field in fields(TrainConfig)
        if getattr(config, field.name) != getattr(usual, field.name)
    }
    classifier = getattr(learner, "classifier", None)
    rows = [
        ("method", title),
        ("learner", learner.learner.upper() if learner.method != "bc" else "maximum likelihood"),
        ("iterations", f"{len(learner.history):,}"),
        *(
            [("steps in the environment", f"{int(learner.history['env_steps'].iloc[-1]):,}")]
            if "env_steps" in learner.history
            else []
        ),
        (
            "missing confidences",
            "filled in by " + classifier.method if classifier is not None else "none were filled in",
        ),
        ("seed", str(learner.seed)),
        (
            "settings other than the default",
            ", ".join(f"{key}={_plain(value)}" for key, value in changed.items()) or "none",
        ),
    ]
    return _table(("", ""), rows)


def _result(learner: Learner, demos: Demonstrations, result: EvalResult) -> str:
    lines = [
        f"Mean return of {len(result.returns)} episodes: **{result.mean:.1f}**, 95 % interval "
        f"{interval_text(*result.interval)}; "
        f"median {np.median(result.returns):.1f}, from {result.returns.min():.1f} to {result.returns.max():.1f}."
    ]
    known = demos.summary()
    if "return" in known and demos.consecutive and known["return"].notna().any():
        returns = known["return"].dropna()
        lines.append(
            f"The demonstrated episodes have a mean return of {returns.mean():.1f}, from {returns.min():.1f} to "
            f"{returns.max():.1f}."
        )
    evaluated = learner.history.dropna(subset=["eval_return"])
    if len(evaluated) > 1:
        best = evaluated.loc[evaluated["eval_return"].idxmax()]
        lines.append(
            f"In training the best evaluation was {best['eval_return']:.1f}, after iteration {int(best['iteration'])}."
        )
    lines.append("`learning.png` shows the course of training, `history.csv` holds it.")
    return " ".join(lines)


def _demonstrations(demos: Demonstrations, file_name: str) -> str:
    kinds = [(len(demos), "row"), *([(demos.n_episodes, "episode")] if demos.episode is not None else [])]
    kinds += [(demos.obs_dim, "observation"), (demos.act_dim, "choice" if demos.discrete else "action")]
    counts = ", ".join(f"{n:,} {noun}{'s' if n != 1 else ''}" for n, noun in kinds)
    labels = demos.confidence[demos.labelled]
    rated = f"{len(labels):,} have a confidence"
    if len(labels):
        rated += f", {labels.mean():.3f} in the mean, from {labels.min():.3g} to {labels.max():.3g}"
    return f"`{file_name}`: {counts}. Of the rows {rated}."


def _believed(learner: Learner, demos: Demonstrations, method: str, title: str) -> str:
    if method in _RATED_ONLY:
        return f"{title} takes the {demos.n_labelled:,} given confidences as they are, and fills in none."
    if method not in BELIEVING:
        return (
            f"{title} uses no confidences: every row was imitated alike."
            if method != "wgail"
            else ("WGAIL uses no confidences: it weights rows by discriminator and policy while it learns.")
        )
    table = believed_episodes(demos, learner.confidence, method)
    columns = ["rows", "labelled", "given", "confidence", "imitated", *(["return"] if "return" in table else [])]
    heads = [
        "rows",
        "rated",
        "mean rating",
        "mean confidence",
        "share imitated",
        *(["return"] if "return" in table else []),
    ]
    forms = {"given": ".3f", "confidence": ".3f", "return": ".1f", "rows": ",d", "labelled": ",d", "imitated": ".1%"}
    listed = (
        table
        if len(table) <= MOST_EPISODES
        else pd.concat([table.head(MOST_EPISODES // 2), table.tail(MOST_EPISODES // 2)])
    )
    rows: list[Sequence[str]] = [
        (str(name), *(_number(value, forms[column]) for column, value in zip(columns, row, strict=True)))
        for name, row in zip(listed.index, listed[columns].itertuples(index=False), strict=True)
    ]
    text = (
        "Episodes by the mean confidence of their rows, given or filled in; those at the top were believed. The share "
        f"is what {title} would imitate of each at its optimum."
    )
    if len(listed) < len(table):
        rows.insert(MOST_EPISODES // 2, ("...", *[""] * len(columns)))
        text += f" Of {len(table):,} episodes, {MOST_EPISODES} are shown; `confidence.parquet` holds all rows."
    return f"{text}\n\n{_table(('episode', *heads), rows)}"


def _checks(findings: Report) -> str:
    lines = [f"- **{one.level}**, {one.code}: {one.message}" for one in (*findings.errors, *findings.warnings)]
    well = [one.code for one in findings.findings if one.level == "ok"]
    if well:
        lines.append(f"- in order: {', '.join(dict.fromkeys(well))}")
    return "\n".join(lines)


def _use(learner: Learner, name: str) -> str:
    kind = type(learner).__name__
    lines = [
        "```python",
        "from icl25_pn_gail import ImitationPolicy",
        "",
        'policy = ImitationPolicy.load("this-folder")',
        "action, _ = policy.predict(observation)  # one observation, or several, one a row",
        "```",
        "",
        f'`icl25_pn_gail.{kind}.load("this-folder", env)` also evaluates it in an environment, such as `{name}`.',
    ]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return (
        ",".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _number(value: Any, form: str) -> str:
    return "-" if value != value else format(int(value) if form == ",d" else value, form).replace("%", " %")


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    heads = list(heads)
    cells = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
