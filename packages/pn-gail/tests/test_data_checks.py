from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.checking import check
from icl25_pn_gail.demonstrations import Demonstrations


def one(report, code):
    (finding,) = report.of(code)
    return finding


def space_env(obs_dim, act_space, name="robot"):
    class Env(gymnasium.Env):
        observation_space = Box(-np.inf, np.inf, (obs_dim,))
        action_space = act_space
        spec = None

    Env.__name__ = name
    return Env()


@pytest.mark.parametrize(
    ("sizes", "env", "message"),
    [
        (
            (111, 8),
            space_env(105, Box(-1, 1, (8,))),
            r"111 observations and 8 actions, robot 105 and 8; .* Ant-v2 .* versions",
        ),
        ((17, 6), space_env(11, Box(-1, 1, (3,))), "robot 11 and 3; those of HalfCheetah, Walker2d$"),
        ((4, 2), space_env(4, Box(-1, 1, (3,))), "4 observations and 2 actions, robot 4 and 3$"),
        (
            (4, None),
            space_env(4, Box(-1, 1, (3,))),
            "takes vectors of 3 floats, the demonstrations have ids.*discrete=F",
        ),
        (
            (4, 1),
            space_env(4, Discrete(3)),
            "takes choices of 3, the demonstrations have vectors of 1 floats.*discrete=T",
        ),
        ((4, None), space_env(4, Discrete(2)), "4 observations and 3 choices, robot 4 and 2"),
    ],
)
def test_differing_numbers_are_shown(sizes, env, message):
    obs_dim, act_dim = sizes
    rng = np.random.default_rng(0)
    acts = np.arange(9) % 3 if act_dim is None else rng.standard_normal((9, act_dim))
    report = check(Demonstrations(rng.standard_normal((9, obs_dim)), acts, np.linspace(0, 1, 9)), env)
    found = one(report, "dimensions")
    assert found.level == "error"
    assert re.search(message, found.message), found.message
    assert not report.of("action-scale") + report.of("action-bounds")


def test_fewer_choices_than_the_environment_has_are_fine():
    demos = Demonstrations(np.random.default_rng(0).standard_normal((9, 4)), np.arange(9) % 2)
    assert one(check(demos, space_env(4, Discrete(3))), "dimensions").level == "ok"


@pytest.mark.parametrize(("largest", "level"), [(0.59, "warning"), (0.61, "ok")])
def test_the_range_of_actions(largest, level):
    acts = np.column_stack([np.linspace(-1, 1, 9) * largest, np.zeros(9)])
    env = space_env(1, Box(-1, 1, (2,)))
    found = one(check(Demonstrations(np.arange(9.0)[:, None], acts), env), "action-range")
    assert (found.level, found.numbers["least"]) == (level, 0.0)
    np.testing.assert_allclose(found.numbers["most"], largest)


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        (np.linspace(0, 1, 20), set()),
        (np.full(20, np.nan), {"labels"}),
        (np.where(np.arange(20) < 9, np.linspace(0, 1, 20), np.nan), {"few-labels"}),
        (np.where(np.arange(20) < 10, np.linspace(0, 1, 20), np.nan), set()),
        (np.full(20, 0.5), {"constant-labels"}),
        (np.full(20, 1.0), {"constant-labels", "high-labels"}),
        (np.linspace(0.85, 1, 20), {"high-labels"}),
        (np.linspace(0.31, 1, 20), {"label-floor"}),
        (np.linspace(0.29, 1, 20), set()),
    ],
)
def test_labels(labels, codes):
    report = check(Demonstrations(np.arange(20.0)[:, None], np.zeros(20), labels))
    raised = {finding.code for finding in report.findings if finding.level != "ok"}
    assert raised == codes
    assert report.ok is ("labels" not in codes)


def test_numbers_beside_which_all_others_are_one():
    rng = np.random.default_rng(0)
    obs, acts = rng.standard_normal((100, 3)), rng.standard_normal((100, 1))
    obs[:, 2] = 0
    obs[:3, 2] = 500  # a contact now and then
    obs[7, 1] = 1e5  # far, and told apart from the others still
    assert "outliers" not in {found.code for found in check(Demonstrations(obs, acts)).findings}
    obs[[7, 9], 1] = 1e30, -1e20
    found = one(check(Demonstrations(obs, acts)), "outliers")
    assert (found.level, found.numbers) == ("error", {"row": 7, "column": 1, "rows": 2})
    assert "observation 1 is 1e+30 in row 7" in found.message


def test_rows_in_no_order_are_pointed_out():
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(8), 40)
    obs = np.concatenate([np.cumsum(rng.standard_normal((40, 2)), axis=0) for _ in range(8)])
    acts = rng.standard_normal((320, 1))
    assert one(check(Demonstrations(obs, acts, episode=episode)), "episode-cuts").level == "ok"
    rows = rng.permutation(320)
    found = one(check(Demonstrations(obs[rows], acts[rows], episode=episode[rows])), "episode-cuts")
    assert found.level == "warning"
    assert "rows must stand in the order of time" in found.message
    assert found.numbers["step"] > 0.7 * found.numbers["apart"] > 0


def test_duplicates_and_constant_columns():
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((100, 3))
    obs[:, 1] = 4.0
    acts = rng.standard_normal((100, 1))
    report = check(Demonstrations(obs, acts))
    assert one(report, "constant-columns").numbers["columns"] == [1]
    assert one(report, "duplicates").numbers["duplicates"] == 0
    obs[60], acts[60] = obs[20], acts[20]
    found = one(check(Demonstrations(obs, acts)), "duplicates")
    assert (found.level, found.numbers["duplicates"]) == ("warning", 1)
    assert "1.0% of the rows" in found.message
    assert "first row 60" in found.message
    episode = np.repeat(np.arange(10), 10)
    assert one(check(Demonstrations(obs, acts, episode=episode)), "duplicates").level == "ok"
    obs[70:76], acts[70:76] = obs[20:26], acts[20:26]
    found = one(check(Demonstrations(obs, acts, episode=episode)), "duplicates")
    assert (found.level, found.numbers["episodes"], found.numbers["duplicates"]) == ("warning", 1, 7)
    assert "(first 7)" in found.message
    rest = np.vstack([obs[:10], np.tile(obs[10], (20, 1))])
    for labels in (None, [0] * 30):
        assert one(check(Demonstrations(rest, np.zeros((30, 1)), episode=labels)), "duplicates").level == "ok"
    # Two ways to the same rest: where they come to it they are alike, and no more.
    ways = np.vstack([rest, rng.standard_normal((10, 3)), rest[10:]])
    labels = [0] * 30 + [1] * 30
    assert one(check(Demonstrations(ways, np.zeros((60, 1)), episode=labels)), "duplicates").level == "ok"
    obs[70:76], acts[70:76] = rng.standard_normal((6, 3)), rng.standard_normal((6, 1))
    again = one(check(Demonstrations(obs, (acts[:, 0] > 0).astype(int))), "duplicates")
    assert (again.level, again.numbers["duplicates"]) == ("ok", 1)
