"""The verbs that need a problem alone: simulate data of it, and see what its measurement determines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from icl25_pi_dion.cli_flags import PICTURE_ENDINGS, output_file
from icl25_pi_dion.data import sample_prior, simulate, simulate_fields
from icl25_pi_dion.named_problems import find_problem, parse_settings
from icl25_pi_dion.output_verbs import computing_on, make_table, save_picture
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.tables import write_arrays
from icl25_shared import InputError, Output

if TYPE_CHECKING:
    from icl25_pi_dion import cli

ENOUGH = 5  # singular values above the noise, below which next to nothing is determined


def run_simulate(flags: cli.Simulate) -> Output:
    """Draw, solve and measure."""
    out = output_file(flags.out, "data.npz", (".npz",), force=flags.force)
    problem = find_problem(flags.problem, parse_settings(flags.settings))
    try:
        with computing_on(flags.device):
            s = sample_prior(problem, flags.n_samples, seed=flags.seed)
            measurements = simulate(problem, s, noise=flags.noise, seed=flags.seed)
            arrays = {"measurements": measurements, "s": s, "sensors": np.asarray(problem.sensors(), float)}
            if flags.fields:
                arrays["u"] = simulate_fields(problem, s).reshape(len(s), -1)
                arrays["points_u"] = np.asarray(_solution_points(problem), float)
    except NotImplementedError as error:
        raise InputError(f"problem {flags.problem}: {error}") from error
    write_arrays(out, arrays, force=flags.force)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    rows = [(name, " x ".join(map(str, shape)), *_range(arrays[name])) for name, shape in shapes.items()]
    table = make_table(f"{type(problem).__name__}: {len(s):,} samples", ["", "shape", "smallest", "largest"], rows)
    return Output({"out": str(out), "arrays": shapes, "noise": flags.noise}, [table, f"data in {out}"])


def _solution_points(problem: Any) -> Any:
    return problem.solution_points()


def _range(array: np.ndarray) -> tuple[str, str]:
    return f"{array.min():.4g}", f"{array.max():.4g}"


def run_identify(flags: cli.Identify) -> Output:
    """Compute the singular values of the linearised measurement, and say what they mean."""
    from icl25_pi_dion.spectra import identifiability

    if flags.k < 1:
        raise InputError(f"--k must be >= 1, found {flags.k}")
    if not (math.isfinite(flags.noise) and 0 < flags.noise < 1):
        raise InputError(f"--noise must lie between 0 and 1, found {flags.noise}")
    problem: InverseProblem = find_problem(flags.problem, parse_settings(flags.settings))
    try:
        with computing_on(flags.device):
            spectrum = identifiability(problem, k=flags.k)
    except NotImplementedError as error:
        raise InputError(f"problem {flags.problem}: {error}") from error
    noise, values = flags.noise, spectrum.singular_values
    data: dict[str, Any] = {"singular_values": values, "noise": noise}
    if spectrum.prior is None:
        ratio = values / (noise * values[0]) if values[0] > 0 else np.zeros_like(values)
        determined, verdict = _without_prior(int(np.sum(ratio > 1)), len(values), noise)
        data |= {"visible": int(np.sum(ratio > 1)), "expected_error": None}
    else:
        ratio, error, seen = (
            spectrum.signal_to_noise(noise),
            spectrum.expected_error(noise),
            spectrum.n_identifiable(noise),
        )
        shortcoming = spectrum.shortcoming(noise)
        determined = not shortcoming
        verdict = shortcoming or (
            f"the measurement determines the unknown: with {noise:.3g} noise {seen} of the {len(values)} strongest "
            f"directions are visible, and the best linear inversion has an expected relative error of {error:.1%}"
        )
        data |= {"visible": seen, "expected_error": error}
    data |= {"signal_to_noise": ratio, "determined": determined, "verdict": verdict}
    rows = [
        (str(i + 1), f"{value:.4g}", f"{above:.3g}", "yes" if above > 1 else "no")
        for i, (value, above) in enumerate(zip(values, ratio, strict=True))
    ]
    title = f"{type(problem).__name__}: what the measurement sees at {100 * noise:g} % noise"
    columns = ["number", "singular value", "signal to noise", "visible"]
    view: list[Any] = [make_table(title, columns, rows), verdict]
    if flags.out is not None:
        out = output_file(flags.out, "spectrum.png", PICTURE_ENDINGS, force=flags.force)
        save_picture(out, spectrum.plot(noise), force=flags.force)
        view.append(f"picture in {out}")
        data["out"] = str(out)
    return Output(data, view)


def _without_prior(seen: int, n: int, noise: float) -> tuple[bool, str]:
    """What singular values alone say, of a problem that does not say how large its unknown is."""
    what = f"{seen} of {n} singular values are above {noise:.3g} of the largest"
    if seen < min(ENOUGH, n):
        return False, f"the measurement does not determine the unknown: {what}; measure more, for longer, or elsewhere"
    return True, f"the measurement determines {seen} directions of the unknown: {what} (the problem has no prior)"
