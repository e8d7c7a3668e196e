"""The estimator: fit on measurements alone, then invert new ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import optax
from flax import nnx
from jaxtyping import Float

from icl25_pi_dion.calibration import ErrorBound, Novelty, relative_errors
from icl25_pi_dion.checkpoints import CheckpointFolder
from icl25_pi_dion.checks import Measurements, check_labels, check_measurements, check_points, problem_for
from icl25_pi_dion.fitting import run_training
from icl25_pi_dion.inference import Inference
from icl25_pi_dion.network import PIDION
from icl25_pi_dion.optimizers import make_optimizer
from icl25_pi_dion.preparation import (
    NOISE_MATTERS,
    check_meaning,
    chosen_weights,
    device_mesh,
    make_objective,
    on_device,
    rows_of,
    split,
    standardisation,
)
from icl25_pi_dion.problem import InverseProblem
from icl25_pi_dion.results import InversionResult
from icl25_pi_dion.simulation_checks import simulated_pairs, warn_if_not_identifiable
from icl25_pi_dion.training import Schedule, Trainer

__all__ = ["InverseOperator"]

FOREIGN_SCORE = 6.0


@dataclass(eq=False)
class InverseOperator:
    """Learns from measurements alone to find the unknown of a differential equation.

    Args:
        problem: The inverse problem.
        net: The network, whose weights training starts from. Default: ``PIDION(problem)`` initialised from ``seed``.
        optimizer: ``"muon"``, ``"adam"``, ``"lbfgs"`` or an optax transformation.
        steps: Number of steps.
        batch_size: Samples a step. Default: 100 for one dimension of space, 64 for more.
        n_collocation: Collocation points a step, drawn anew in each. Default: 300, or 400.
        weights: Weights of the terms of the loss, of physics, data, h1, label, boundary; those not named keep their
            defaults 1, 10, 0.1 (h1: only for noiseless measurements on a line at one time, else 0), 1 and 1.
        noise_std: Standard deviation of the noise over that of the measurements. Above 0.005 it sets h1 to 0,
            lowers the weight of the data by (0.02 / noise_std)^2 and ends training at a misfit of 0.7 of the noise.
        seed: Seed of weights and draws, a whole number >= 0.
        learning_rate: At the start; it falls to 1 % along a cosine. Default: 2e-2 for muon, 1e-3 for Adam.
        missing: What NaN in measurements means: ``"error"``, or ``"mask"``: a sensor that was not read, for
            networks of sets.
        fresh_points: Draw new collocation points in each step. Without it networks fit the residual there alone.
        stratified: Draw them as Latin hypercubes.
        sensor_dropout: Largest share of sensors hidden from a network of sets in training, so that it learns to do with
            fewer.
        early_stop: Stop after 1,000 steps in which the validation loss fell by less than 1 %.
        calibration: Number of pairs that are simulated after training to fit the error estimate; 0 for none.
        check_identifiable: Warn if the measurement cannot determine the unknown.
        n_devices: Devices over which a batch is spread.

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Cho and Son (ICLR 2025).

    Example:
        >>> from icl25_pi_dion import data, problems
        >>> problem = problems.ReactionDiffusionSource(n_sensors=31)
        >>> measurements = data.simulate(problem, data.sample_prior(problem, 50, seed=0))
        >>> operator = InverseOperator(problem, steps=2, calibration=0, check_identifiable=False).fit(measurements)
        >>> operator.predict(measurements[:3]).s.shape
        (3, 31)
    """

    problem: InverseProblem
    net: PIDION | None = None
    optimizer: str | optax.GradientTransformation = "muon"
    steps: int = 1500
    batch_size: int | None = None
    n_collocation: int | None = None
    weights: Mapping[str, float] | None = None
    noise_std: float = 0.0
    seed: int = 0
    _: KW_ONLY
    learning_rate: float | None = None
    missing: Literal["error", "mask"] = "error"
    fresh_points: bool = True
    stratified: bool = True
    sensor_dropout: float = 0.0
    early_stop: bool = True
    calibration: int = 100
    check_identifiable: bool = True
    n_devices: int = 1

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor, as scikit-learn does.

        Args:
            deep: Without effect; there are no nested estimators.

        Returns:
            Values by name.
        """
        return {name: getattr(self, name) for name in _names(self)}

    def set_params(self, **params: Any) -> Self:
        """Change arguments of the constructor.

        Args:
            **params: Values by name.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If there is no such argument.
        """
        unknown = sorted(set(params) - set(_names(self)))
        if unknown:
            raise ValueError(f"unknown parameters {', '.join(unknown)}; there are {', '.join(_names(self))}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def fit(
        self,
        M: Any,
        labels: Any = None,
        val: Any = None,
        callbacks: Iterable[Callable[[Mapping[str, float]], object]] = (),
        *,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        checkpoint_every: int = 500,
    ) -> Self:
        """Train on measurements.

        Args:
            M: Measurements: array (n, *sensor_shape), axes in the order of the coordinates; for networks of sets also
                ``SensorReadings`` or a list of pairs (locations, values).
            labels: Optional unknowns: of all samples (n, *target_shape), or a pair (numbers of samples, unknowns).
            val: Measurements to validate on. Default: a tenth of ``M``, at most 100, which then is not trained on.
            callbacks: Called with each row of the history; training ends where one returns True.
            checkpoint: Folder for states of training.
            resume: Go on from the newest state in it, with the same result as without the interruption.
            checkpoint_every: Steps between two states.

        Returns:
            The estimator itself.

        Raises:
            ValueError: If measurements, labels or arguments do not fit; the message says which.
            TypeError: If measurements are no numbers.
            Diverged: If the loss does not stay finite at a quarter of the learning rate.
        """
        problem = problem_for(self.problem, M)
        self._check_arguments()
        net = PIDION(problem, rngs=self.seed) if self.net is None else nnx.clone(self.net)
        if net.problem is not self.problem and net.problem is not problem:
            raise ValueError("net was made for another problem than the estimator's")
        readings = check_measurements(M, problem, takes_sets=net.takes_sets, missing=self.missing)
        labelled, unknowns = check_labels(labels, len(readings.values), problem)
        all_read = readings.mask is None and not net.takes_sets
        weights = chosen_weights(problem, self.weights, self.noise_std, all_read=all_read)
        check_meaning(readings, weights, n_labelled=len(labelled))
        train = np.arange(len(readings.values))
        if val is None:
            train, rows = split(len(train), labelled, np.random.default_rng(self.seed))
            held_out = rows_of(readings, rows)
        else:
            held_out = check_measurements(val, problem, takes_sets=net.takes_sets, missing=self.missing)
        visible = readings.values if readings.mask is None else np.where(readings.mask, readings.values, np.nan)
        target = problem.target_scale(visible)
        net.standardise(*standardisation(readings, shared=not net.takes_sets), target)
        self.problem_, self.weights_ = problem, weights
        self.objective_ = make_objective(problem, weights, target, unknowns)
        trainer = Trainer(
            net,
            self.objective_,
            make_optimizer(self.optimizer, self.steps, self.learning_rate),
            self._schedule(problem),
            on_device(rows_of(readings, train), np.searchsorted(train, labelled), unknowns),
            on_device(held_out, labelled[:0], unknowns[:0]),
            self.seed,
            device_mesh(self.n_devices, self._schedule(problem).batch_size),
        )
        folder = None if checkpoint is None else CheckpointFolder(checkpoint)
        state, self.history_ = run_training(trainer, callbacks, folder, resume=resume, every=checkpoint_every)
        self.net_ = trainer.finished(state)
        self.n_steps_, self.stopped_ = state.step, state.stopped
        if state.stopped == "overfitting":
            warnings.warn(
                "training was stopped: the squared residual between the collocation points is more than 10 times "
                "that at the points; use fresh_points=True, more collocation points or a smaller network",
                stacklevel=2,
            )
        self._start_inference()
        features = self._features(readings, self._inference.features(readings))
        noise = self.noise_std * float(net.field_scale[...])
        self.novelty_ = Novelty.fit(features, 0.0 if net.takes_sets else noise)
        self.calibration_: dict[int, ErrorBound] = {}
        self._labelled = (rows_of(readings, labelled), unknowns) if len(labelled) else None
        if self.calibration > 0:
            self._bound(0)
        if self.check_identifiable:
            warn_if_not_identifiable(problem, self.noise_std)
        return self

    def predict(
        self,
        M: Any,
        points: Any = None,
        return_u: bool = False,
        refine: int = 0,
        points_u: Any = None,
    ) -> InversionResult:
        """Invert measurements.

        Args:
            M: Measurements, as for ``fit``.
            points: Where to evaluate the unknown, in its coordinates, shape (n_s, d_s). Default: the grid of the
                problem.
            return_u: Return the solution too.
            refine: Most steps of Gauss-Newton that each inversion is refined by; 0 for none, 1 solves linear problems.
            points_u: Where to evaluate the solution, shape (n_u, d). Default: the sensors.

        Returns:
            The inversions with their diagnostics.

        Raises:
            ValueError: If the measurements or points do not fit; the message says which.
            RuntimeError: If the estimator is not fitted.
        """
        self._check_fitted()
        if refine < 0:
            raise ValueError(f"refine must be >= 0, found {refine}")
        problem = self.problem_
        readings = check_measurements(M, problem, takes_sets=self.net_.takes_sets, missing=self.missing)
        grid = np.asarray(problem.target_points(), float)
        where = grid if points is None else check_points("points", points, problem, problem.target_axes)
        at = np.asarray(problem.sensors(), float) if points_u is None else points_u
        at = check_points("points_u", at, problem, range(len(problem.coords)))
        found = self._inference(readings, where, at if return_u else at[:0], refine)
        on_grid = found.s if points is None else self._inference(readings, grid, at[:0], refine).s
        score = self.novelty_.score(self._features(readings, found.features))
        if score.max() > FOREIGN_SCORE:
            warnings.warn(
                f"{int((score > FOREIGN_SCORE).sum())} of {len(score)} measurements are unlike those of the training "
                f"(score up to {score.max():.3g}, 1 is usual): other units, other sensors, or another process?",
                stacklevel=2,
            )
        bound = self._bound(refine)
        estimate = np.full(len(score), np.nan) if bound is None else bound(_relative(found.indicator, on_grid))
        shape = problem.target_grid if points is None else (len(where),)
        return InversionResult(
            s=found.s.reshape(len(found.s), *shape),
            points_s=where,
            u=found.u if return_u else None,
            points_u=at if return_u else None,
            residual_rms=found.residual,
            misfit_rms=found.misfit,
            error_estimate=estimate,
            ood_score=score,
            refined=refine > 0,
            n_refine=refine,
            meta={"coords": tuple(problem.coords), "target_coords": tuple(problem.target_coords)},
        )

    def score(self, M: Any, S: Float[np.ndarray, "n *shape"]) -> float:
        """Coefficient of determination of the predicted unknowns, 1 for perfect ones.

        Args:
            M: Measurements, as for ``fit``.
            S: True unknowns, shape (n, *target_shape).

        Returns:
            1 - sum (s_hat - s)^2 / sum (s - mean s)^2, over all samples and nodes.
        """
        s_hat = self.predict(M).s.reshape(len(S), -1)
        s = np.asarray(S, float).reshape(len(S), -1)
        return float(1 - np.sum((s_hat - s) ** 2) / np.sum((s - s.mean(axis=0)) ** 2))

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the fitted estimator to a folder: config.json, standardisation.json, calibration.json, parameters.

        Args:
            folder: The folder.
            force: Replace an estimator that it holds.

        Raises:
            FileExistsError: If the folder holds an estimator and ``force`` is false.
            RuntimeError: If the estimator is not fitted.
        """
        from icl25_pi_dion.saved import save_operator

        self._check_fitted()
        save_operator(self, Path(folder), force=force)

    @classmethod
    def load(
        cls, folder: str | Path, problem: InverseProblem | None = None, net: PIDION | None = None
    ) -> InverseOperator:
        """Read an estimator that ``save`` wrote.

        Args:
            folder: The folder.
            problem: The inverse problem; needed where it is not one of the package's, or its load is a function.
            net: A network of the same architecture; needed where its branch was a module.

        Returns:
            The estimator.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If files are damaged, or problem or network do not fit.
        """
        from icl25_pi_dion.saved import load_operator

        return load_operator(cls, Path(folder), problem, net)

    def _check_arguments(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 1), ("n_collocation", 1), ("calibration", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be >= {least}, found {value}")
        if not (np.isfinite(self.noise_std) and self.noise_std >= 0):
            raise ValueError(f"noise_std must be >= 0, found {self.noise_std}")
        if not 0 <= self.sensor_dropout < 1:
            raise ValueError(f"sensor_dropout must be in [0, 1), found {self.sensor_dropout}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise ValueError(f"seed must be a whole number >= 0, found {self.seed!r}")

    def _check_fitted(self) -> None:
        if not hasattr(self, "net_"):
            raise RuntimeError("this InverseOperator is not fitted: call fit(measurements) first")

    def _schedule(self, problem: InverseProblem) -> Schedule:
        in_line = sum(letter != "t" for letter in problem.coords) < 2
        return Schedule(
            steps=self.steps,
            batch_size=(100 if in_line else 64) if self.batch_size is None else self.batch_size,
            n_collocation=(300 if in_line else 400) if self.n_collocation is None else self.n_collocation,
            fresh_points=self.fresh_points,
            stratified=self.stratified,
            sensor_dropout=self.sensor_dropout,
            noise_std=self.noise_std if self.noise_std > NOISE_MATTERS else 0.0,
            early_stop=self.early_stop,
            fixed_batch=self.optimizer == "lbfgs",
        )

    def _start_inference(self) -> None:
        noise = self.noise_std if self.noise_std > NOISE_MATTERS else 0.0
        self._inference = Inference(self.net_, self.objective_, noise)

    def _features(self, readings: Measurements, coefficients: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n k"]:
        """What tells measurements apart: they themselves, or their coefficients where sensors differ."""
        return np.asarray(coefficients, float) if self.net_.takes_sets else readings.values

    def _bound(self, refine: int) -> ErrorBound | None:
        """The bound of errors, from simulated pairs, else from labels; None where there are neither."""
        if refine not in self.calibration_:
            simulated = simulated_pairs(
                self.problem_, self.calibration, self.noise_std, takes_sets=self.net_.takes_sets
            )
            pairs = simulated or self._labelled
            if pairs is None:
                return None
            readings, unknowns = pairs
            grid = np.asarray(self.problem_.target_points(), float)
            found = self._inference(readings, grid, np.asarray(self.problem_.sensors(), float)[:0], refine)
            error = relative_errors(found.s, unknowns)
            self.calibration_[refine] = ErrorBound.fit(error, _relative(found.indicator, found.s))
        return self.calibration_[refine]


def _relative(indicator: Float[np.ndarray, " n"], s: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """The indicator over the size of the unknown that was found."""
    return indicator / np.maximum(np.sqrt(np.mean(np.square(s), axis=1)), np.finfo(float).tiny)


def _names(operator: InverseOperator) -> list[str]:
    return [field.name for field in fields(operator)]
