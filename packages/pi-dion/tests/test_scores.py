from __future__ import annotations

import numpy as np
import pytest

from icl25_pi_dion.problems import DarcyPermeability, ReactionDiffusionSource
from icl25_pi_dion.results import InversionResult
from icl25_pi_dion.scores import interior, score_inversions

PROBLEM = ReactionDiffusionSource(n_sensors=11, n_modes=3)


def inversions(s, estimate, u=None, problem=PROBLEM):
    n = len(s)
    points_u = None if u is None else problem.sensors()
    rest = [np.arange(n) / 10, np.arange(n) / 5, np.asarray(estimate, float), np.ones(n)]
    return InversionResult(s, problem.target_points(), u, points_u, *rest)


def test_errors_are_relative_and_counted_in_the_interior_too():
    s = np.ones((2, 11))
    s_hat = s.copy()
    s_hat[0, 0] = 3  # on the boundary alone
    s_hat[1, 5] = 0
    scores = score_inversions(inversions(s_hat, [0.5, 0.5]), PROBLEM, s)
    np.testing.assert_allclose(scores.error_s, [np.sqrt(4 / 11), np.sqrt(1 / 11)])
    np.testing.assert_allclose(scores.error_s_interior, [0, 1 / 3])
    assert scores.coverage == 0.5
    assert scores.error_u is None
    found = scores.summary()["misfit"]
    assert (found.mean, found.median, found.p90) == pytest.approx((0.1, 0.1, 0.18))


def test_errors_of_u_and_unknown_estimates():
    s, u = np.ones((2, 11)), np.ones((2, 11))
    scores = score_inversions(inversions(s, [np.nan, np.nan], 1.5 * u), PROBLEM, s, u)
    np.testing.assert_allclose(scores.error_u, 0.5)
    assert scores.coverage is None


def test_the_interior_is_the_central_part_of_every_coordinate():
    points = np.array([[0.1, 1.0], [0.09, 1.0], [0.5, 0.19], [0.9, 1.8]])
    assert interior(points, [(0, 1), (0, 2)]).tolist() == [True, False, False, True]
    problem = DarcyPermeability(n_grid=11)
    assert interior(problem.target_points(), problem.domain).sum() == 81


def test_truths_of_another_size_are_refused():
    result = inversions(np.ones((2, 11)), [1, 1])
    with pytest.raises(ValueError, match="s must have 2 rows of 11 values"):
        score_inversions(result, PROBLEM, np.ones((2, 12)))
    with pytest.raises(ValueError, match="u must have shape none"):
        score_inversions(result, PROBLEM, np.ones((2, 11)), np.ones((2, 11)))
