"""The verb that fills in missing confidences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_pn_gail.classifier import ConfidenceClassifier
from icl25_pn_gail.cli_flags import DEMO_ENDINGS, output_file
from icl25_pn_gail.columns import find_columns
from icl25_pn_gail.confidence import CalibrationReport, calibration_report
from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.held_out import HeldOut, held_out_confidence
from icl25_pn_gail.input_verbs import naming_flags, read_demos
from icl25_pn_gail.labelled_tables import keeps_columns, write_confidence_column
from icl25_pn_gail.output_verbs import computing_on, make_table, save_picture, shown, write_demos
from icl25_pn_gail.running import short_seed
from icl25_shared import InputError, Output, get_logger

if TYPE_CHECKING:
    from icl25_pn_gail import cli

LOG = get_logger(__name__)
FEWEST = 20  # labels of which some are held out
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def run_label(flags: cli.Label) -> Output:
    """Fill in missing confidences."""
    out = output_file(flags.out, "labelled.parquet", DEMO_ENDINGS, force=flags.force)
    demos = read_demos(flags)
    if not demos.n_labelled:
        raise InputError(
            f"{flags.demos}: no row has a confidence, and at least one is needed to learn the others from; "
            "--confidence-column names their column"
        )
    missing = ~demos.labelled
    if not missing.any():
        LOG.warning("every row of %s has a confidence: there is nothing to fill in", flags.demos)
    with computing_on(flags.device), naming_flags():
        classifier = ConfidenceClassifier(
            flags.method, steps=flags.steps, batch_size=flags.batch_size, random_state=short_seed(flags.seed)
        )
        filled = demos.confidence
        if missing.any():
            filled = classifier.fit(demos.inputs(), demos.confidence).fill(demos.inputs(), demos.confidence)
        held = held_out_confidence(classifier, demos, flags.folds, flags.seed) if _holds_out(flags, demos) else None
    _write(flags, out, demos, filled)
    if flags.picture is not None:
        from icl25_pn_gail.confidence_plots import plot_confidence

        save_picture(
            flags.picture,
            plot_confidence(demos.confidence, filled, held_out=held and held.predicted),
            force=flags.force,
        )
    report = None if held is None else calibration_report(demos.confidence, np.nan_to_num(held.predicted))
    return _output(flags, out, demos, filled, held, report)


def _holds_out(flags: cli.Label, demos: Demonstrations) -> bool:
    several = len(np.unique(demos.confidence[demos.labelled])) > 1
    return flags.folds > 0 and demos.n_labelled >= FEWEST and several


def _write(flags: cli.Label, out: Path, demos: Demonstrations, filled: np.ndarray) -> None:
    if keeps_columns(flags.demos, out):
        names = _names(flags.demos)
        columns = find_columns(names, flags.obs_cols, flags.act_cols, flags.confidence_column, flags.episode_column)
        write_confidence_column(flags.demos, out, filled, columns.confidence or "confidence", force=flags.force)
        return
    write_demos(out, demos.with_confidence(filled), force=flags.force)


def _names(path: Path) -> list[str]:
    if path.suffix.lower() == ".csv":
        import pandas as pd

        return list(pd.read_csv(path, nrows=0, encoding="utf-8-sig", index_col=False))
    from pyarrow import parquet

    return parquet.read_schema(path).names


def _output(
    flags: cli.Label,
    out: Path,
    demos: Demonstrations,
    filled: np.ndarray,
    held: HeldOut | None,
    report: CalibrationReport | None,
) -> Output:
    kinds = {"given": filled[demos.labelled], "filled in": filled[~demos.labelled], "all": filled}
    spread: dict[str, dict[str, Any]] = {
        name: {"rows": len(r), "mean": float(r.mean()), "quantiles": np.quantile(r, QUANTILES).tolist()}
        for name, r in kinds.items()
        if len(r)
    }
    columns = ["", "rows", "mean", *(f"{100 * q:.0f} %" for q in QUANTILES)]
    rows = [
        (name, f"{one['rows']:,}", f"{one['mean']:.3f}", *(f"{value:.3f}" for value in one["quantiles"]))
        for name, one in spread.items()
    ]
    data: dict[str, Any] = {"out": str(out), "method": flags.method, "confidence": spread, "held_out": None}
    view: list[Any] = [make_table(f"{flags.demos}: confidences, their mean and quantiles", columns, rows)]
    if held is None or report is None:
        why = (
            f"fewer than {FEWEST} rows are labelled"
            if demos.n_labelled < FEWEST
            else "--folds is 0"
            if flags.folds == 0
            else "all labels are equal"
        )
        view.append(f"errors are not measured: {why}")
    else:
        measured = {
            "mean_absolute_error": report.mean_absolute_error,
            "bias": report.bias,
            "rmse": report.rmse,
            "spearman": report.spearman,
            "auc": report.auc,
        }
        about = {"unit": held.unit, "folds": held.folds, "rows": report.n_rows}
        data["held_out"] = {**about, **measured, "reliability": report.reliability.to_dict("records")}
        names = ("mean error", "bias (predicted - given)", "root mean square error", "rank correlation")
        names = (*names, "good ranked above bad (AUC)")
        lines = [(name, shown(number, ".3f")) for name, number in zip(names, measured.values(), strict=True)]
        whole = "whole episodes" if held.unit == "episode" else "rows"
        title = f"Errors on {report.n_rows:,} labelled rows, held out as {whole} in {held.folds} parts"
        view.append(make_table(title, ["what", "held out"], lines))
    view.append(f"confidences in {out}")
    return Output(data, view)
