"""The verbs that use a trained operator: invert new measurements, and hold inversions against the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_pi_dion.cli_flags import PROBLEMS, RESULT_ENDINGS, output_file
from icl25_pi_dion.error_plots import plot_reliability
from icl25_pi_dion.estimator import InverseOperator
from icl25_pi_dion.named_problems import find_problem, parse_settings
from icl25_pi_dion.output_verbs import PROGRAM, computing_on, make_table, percent
from icl25_pi_dion.readers import MeasurementFile, read_measurements
from icl25_pi_dion.readings import SensorReadings
from icl25_pi_dion.results import InversionResult
from icl25_pi_dion.scores import Scores, score_inversions
from icl25_pi_dion.tables import write_result
from icl25_shared import InputError, Output, RunFolder, read_json

if TYPE_CHECKING:
    from icl25_pi_dion import cli

LISTED = 10
_DIAGNOSTICS = ("residual_rms", "misfit_rms", "error_estimate", "ood_score")


def run_invert(flags: cli.Invert) -> Output:
    """Invert measurements."""
    out = output_file(flags.out, "result.npz", RESULT_ENDINGS, force=flags.force)
    with computing_on(flags.device):
        operator = _load(flags)
        file = _read(flags, operator)
        result = operator.predict(file.measurements, return_u=flags.return_u, refine=flags.refine)
    write_result(out, result, force=flags.force, names=file.names)
    samples: list[dict[str, Any]] = [
        {"sample": name, **{key: float(getattr(result, key)[i]) for key in _DIAGNOSTICS}}
        for i, name in enumerate(file.names[:LISTED])
    ]
    rows = [
        (
            sample["sample"],
            f"{sample['residual_rms']:.3g}",
            f"{sample['misfit_rms']:.3g}",
            percent(sample["error_estimate"]),
            f"{sample['ood_score']:.3g}",
        )
        for sample in samples
    ]
    more = f", the first {LISTED}" if len(result) > LISTED else ""
    title = f"{len(result):,} inversions{f', refined by up to {flags.refine} steps' if flags.refine else ''}{more}"
    medians = {key: float(np.median(getattr(result, key))) for key in _DIAGNOSTICS}
    columns = ["sample", "residual", "misfit", "error estimate", "novelty"]
    data = {"out": str(out), "n": len(result), "refined": result.refined, "medians": medians, "samples": samples}
    return Output(data, [make_table(title, columns, rows), f"result in {out}"])


def run_evaluate(flags: cli.Evaluate) -> Output:
    """Hold inversions against true unknowns."""
    with computing_on(flags.device):
        operator = _load(flags)
        file = _read(flags, operator)
        if file.s is None:
            raise InputError(f"{flags.data} holds no true unknowns s to evaluate against")
        with_u = file.u is not None
        if with_u and file.points_u is None and isinstance(file.measurements, SensorReadings):
            raise InputError(
                f"{flags.data}: where u is given must stand in points_u, as sensors differ from sample to sample"
            )
        result = operator.predict(file.measurements, return_u=with_u, refine=flags.refine, points_u=file.points_u)
    scores = score_inversions(result, operator.problem_, file.s, file.u)
    summary = scores.summary()
    data: dict[str, Any] = {"n": len(result), "refine": flags.refine, **summary, "coverage": scores.coverage}
    view: list[Any] = [_score_table(scores, len(result)), _coverage_line(scores)]
    if flags.out is not None:
        with RunFolder.create(flags.out, program=PROGRAM, verb="evaluate", config=flags, force=flags.force) as run:
            run.write_json("scores.json", data)
            _draw(run, result, scores, file.s)
        view.append(f"scores and pictures in {flags.out}")
    return Output(data, view)


def _load(flags: cli.Invert | cli.Evaluate) -> InverseOperator:
    """The operator of a run folder; a problem of the user's comes from the file that the command line names."""
    settings = parse_settings(flags.settings)
    if flags.problem is None:
        if settings:
            raise InputError("--set belongs to --problem; the settings of other problems stand in the run folder")
        try:
            return InverseOperator.load(flags.folder)
        except ValueError as error:
            if "pass problem=" in str(error):
                raise InputError(
                    f"{str(error).partition(': pass problem=')[0]}: name its file with --problem"
                ) from error
            raise
    if not settings and flags.problem not in PROBLEMS:
        settings = parse_settings(_settings_of(flags))
    return InverseOperator.load(flags.folder, find_problem(flags.problem, settings))


def _settings_of(flags: cli.Invert | cli.Evaluate) -> list[str]:
    """What --set said when the operator was trained."""
    path = flags.folder / "run.json"
    config = read_json(path).get("config", {}) if path.is_file() else {}
    return [str(text) for text in config.get("settings", [])]


def _read(flags: cli.Invert | cli.Evaluate, operator: InverseOperator) -> MeasurementFile:
    file = read_measurements(flags.data, operator.problem_, allow_missing=operator.get_params()["missing"] == "mask")
    if isinstance(file.measurements, SensorReadings) and not operator.net_.takes_sets:
        raise InputError(
            f"{flags.data}: its sensors are not those of the training: that takes an operator trained with --branch set"
        )
    return file


def _score_table(scores: Scores, n: int) -> Any:
    names = {
        "error_s": "relative error of s",
        "error_s_interior": "  on the central 80 %",
        "error_u": "relative error of u",
        "residual": "residual",
        "misfit": "misfit",
    }
    rows = []
    for key, spread in scores.summary().items():
        show = percent if key.startswith("error") else "{:.3g}".format
        rows.append((names[key], show(spread.mean), show(spread.median), show(spread.p90)))
    return make_table(f"{n:,} inversions against the truth", ["score", "mean", "median", "90 % below"], rows)


def _coverage_line(scores: Scores) -> str:
    if scores.coverage is None:
        return "there are no error estimates: the problem cannot be simulated, and there were no labels"
    return f"the error is at most its estimate for {percent(scores.coverage)} of the samples (90 % expected)"


def _draw(run: RunFolder, result: InversionResult, scores: Scores, s: np.ndarray) -> None:
    if result.points_s.shape[1] <= 2:
        run.save_figure(result.plot(s), "inversions.png")
    if scores.coverage is not None and np.isfinite(result.error_estimate).any():
        run.save_figure(plot_reliability(result.error_estimate, scores.error_s), "reliability.png")
