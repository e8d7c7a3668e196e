from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_pn_gail.demonstrations import Demonstrations

OBS = np.arange(12, dtype=float).reshape(6, 2)
ACTS = np.array([[0.5], [-1.0], [2.0], [0.0], [1.5], [-0.25]])
R = [0.9, None, 0.1, np.nan, 0.5, 0.3]
EPISODE = ["b", "b", "b", "a", "a", "c"]


def demos(**changes):
    given: dict[str, Any] = {"obs": OBS, "acts": ACTS, "confidence": R, "episode": EPISODE, **changes}
    return Demonstrations(**given)


def test_arrays_are_brought_to_their_shapes():
    made = Demonstrations(
        OBS.tolist(), ACTS[:, 0], np.array(R, dtype=float)[:, None], EPISODE, OBS + 1, [1, 2, 3, 4, 5, 6]
    )
    np.testing.assert_array_equal(made.obs, OBS)
    np.testing.assert_array_equal(made.acts, ACTS)
    np.testing.assert_array_equal(made.confidence, [0.9, np.nan, 0.1, np.nan, 0.5, 0.3])
    np.testing.assert_array_equal(made.next_obs, OBS + 1)
    np.testing.assert_array_equal(made.reward, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert (made.n_rows, len(made), made.n_labelled, made.n_episodes) == (6, 6, 4, 3)
    assert (made.obs_dim, made.act_dim, made.discrete) == (2, 1, False)
    assert made.labelled.tolist() == [True, False, True, False, True, True]
    assert made.episode_codes.tolist() == [0, 0, 0, 1, 1, 2]
    assert made.episode_names == ["b", "a", "c"]


def test_what_is_not_given_is_unknown():
    made = Demonstrations(OBS, ACTS)
    assert made.n_labelled == 0
    assert np.isnan(made.confidence).all()
    assert (made.episode, made.next_obs, made.reward, made.meta) == (None, None, None, {})
    assert made.n_episodes == 1
    assert made.episode_codes.tolist() == [0] * 6
    assert repr(made) == "Demonstrations(6 rows, 1 episode, obs_dim=2, act_dim=1, 0 labelled)"


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_precision_stays(kind):
    made = Demonstrations(OBS.astype(kind), ACTS.astype(kind))
    assert (made.obs.dtype, made.acts.dtype, made.inputs().dtype) == (kind, kind, kind)


def test_other_kinds_of_numbers_become_floats():
    assert Demonstrations(OBS.astype(np.int16), ACTS).obs.dtype == np.float64
    assert Demonstrations(OBS.astype(np.float16), ACTS).obs.dtype == np.float32
    made = Demonstrations(pd.DataFrame(OBS), jnp.asarray(ACTS), pd.Series(R, dtype=object))
    np.testing.assert_array_equal(made.acts, ACTS)
    np.testing.assert_array_equal(made.confidence, np.array(R, dtype=float))
    assert Demonstrations(OBS, np.ones((6, 2), int)).acts.dtype == np.float64


def test_the_arrays_cannot_be_written_and_those_passed_in_can():
    obs = OBS.copy()
    made = demos(obs=obs)
    with pytest.raises(ValueError, match="read-only"):
        made.obs[0, 0] = 5.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.obs = OBS  # type: ignore[misc]
    obs[0, 0] = 5.0


@pytest.mark.parametrize("acts", [np.array([0, 2, 1, 0, 2, 2]), np.array([[0], [2], [1], [0], [2], [2]], np.uint8)])
def test_whole_numbers_in_one_column_are_ids(acts):
    made = Demonstrations(OBS, acts, meta={"n_actions": 4})
    assert made.discrete
    assert made.acts.tolist() == [0, 2, 1, 0, 2, 2]
    assert (made.n_actions, made.act_dim) == (4, 4)
    expected = np.zeros((6, 6))
    expected[:, :2] = OBS
    expected[np.arange(6), 2 + np.array([0, 2, 1, 0, 2, 2])] = 1
    np.testing.assert_array_equal(made.inputs(), expected)
    assert Demonstrations(OBS, acts).n_actions == 3
    assert Demonstrations(OBS, acts).select([0, 3]).n_actions == 3
    assert repr(made).endswith("obs_dim=2, n_actions=4, 0 labelled)")


def test_inputs_are_observations_and_actions_side_by_side():
    np.testing.assert_array_equal(demos().inputs(), np.hstack([OBS, ACTS]))
    with pytest.raises(ValueError, match="actions are continuous"):
        demos().n_actions  # noqa: B018


@pytest.mark.parametrize(
    "labels", [[7, 7, 7, 3, 3, 9], np.array([7.0, 7, 7, 3, 3, 9]), [(0, "x")] * 3 + [(1, "y")] * 2 + [None is None]]
)
def test_any_hashable_labels_of_episodes(labels):
    made = demos(episode=labels)
    assert made.episode_codes.tolist() == [0, 0, 0, 1, 1, 2]
    assert made.episode_names[0] == (7 if not isinstance(labels[0], tuple) else (0, "x"))
    assert made.summary().index.tolist() == made.episode_names


def test_summary_has_a_row_for_each_episode():
    table = demos(reward=[1, 2, 3, 4, np.nan, 6]).summary()
    assert table.index.tolist() == ["b", "a", "c"]
    assert table["rows"].tolist() == [3, 2, 1]
    assert table["labelled"].tolist() == [2, 1, 1]
    np.testing.assert_allclose(table["mean_confidence"], [0.5, 0.5, 0.3])
    np.testing.assert_array_equal(table["return"], [6.0, np.nan, 6.0])
    assert list(demos().summary()) == ["rows", "labelled", "mean_confidence"]


def bad(row, column, value, array=OBS):
    array = np.array(array)
    array[row, column] = value
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"obs": bad(4, 1, np.nan)}, "obs has 1 NaN values, first in row 4, column 1"),
        ({"obs": bad([2, 3], [0, 1], np.inf)}, "obs has 2 infinite values, first in row 2, column 0"),
        ({"obs": bad([2, 3], [0, 1], [np.nan, -np.inf])}, "obs has 2 NaN or infinite values, first in row 2, column 0"),
        ({"acts": bad(5, 0, np.nan, ACTS)}, "acts has 1 NaN values, first in row 5, column 0"),
        ({"next_obs": bad(1, 1, np.inf)}, "next_obs has 1 infinite values, first in row 1, column 1"),
        ({"reward": [1, 2, np.inf, 4, 5, 6]}, "reward has 1 infinite values, first in row 2"),
        ({"confidence": [0.5, 1.5, 5, 0, 0, 1]}, r"confidence has 2 values outside \[0, 1\], first 1.5 in row 1"),
        ({"confidence": [0.5, 1, 5, 0, 0, 1]}, r"span 0 to 5: rescale them.*confidence_range=\(low, high\)"),
        ({"confidence": [0.5, -0.1, 1, 0, 0, 1]}, "first -0.1 in row 1"),
        ({"confidence": [0.5, np.inf, 1, 0, 0, 1]}, "first inf in row 1"),
        ({"confidence": [0.5]}, "confidence has 1 rows, obs has 6"),
        ({"confidence": np.ones((6, 2))}, r"confidence must have one value for each row, found shape \(6, 2\)"),
        ({"confidence": ["high"] * 6}, "confidence must hold real numbers, found dtype <U4"),
        ({"acts": ACTS[:4]}, "acts has 4 rows, obs has 6"),
        ({"acts": np.arange(4)}, "acts has 4 rows, obs has 6"),
        ({"acts": [0, 1, -1, 0, 1, 1]}, "must be >= 0, found -1 in row 2; continuous actions must be floats"),
        ({"acts": [0, 1, 3, 0, 1, 1], "meta": {"n_actions": 3}}, "acts has the id 3, but meta says n_actions=3"),
        ({"acts": None}, "acts is missing"),
        ({"next_obs": OBS[:5]}, "next_obs has 5 rows, obs has 6"),
        ({"next_obs": OBS[:, :1]}, "next_obs has 1 columns, obs has 2"),
        ({"reward": np.ones(3)}, "reward has 3 rows, obs has 6"),
        ({"episode": ["a"] * 5}, "episode has 5 labels for 6 rows"),
        ({"episode": ["a", None, "b", "c", None, "d"]}, "episode has 2 missing labels, first in row 1"),
        ({"episode": np.array([1, 1, np.nan, 2, 2, 2])}, "episode has 1 missing labels, first in row 2"),
        ({"episode": np.ones((6, 2), int)}, r"episode must have one label for each row, found shape \(6, 2\)"),
        ({"obs": OBS[:0]}, r"obs has no rows, shape \(0, 2\)"),
        ({"obs": OBS[:, :0]}, r"obs has no columns, shape \(6, 0\)"),
        (
            {"obs": OBS[:, 0]},
            r"obs must have shape \(rows, columns\), found \(6,\); for one column pass values\[:, None\]",
        ),
        ({"obs": OBS[None]}, r"obs must have shape \(rows, columns\), found \(1, 6, 2\)"),
        ({"obs": [[1.0, 2.0], [3.0]]}, "obs must be a rectangular array of numbers"),
        ({"obs": [["1", "2"]] * 6}, "obs must hold real numbers, found dtype <U1"),
        ({"obs": np.array([[1.0, "x"]] * 6, object)}, "obs must hold numbers, found float, str"),
        ({"obs": OBS * 1j}, "obs must hold real numbers, found dtype complex128"),
    ],
)
def test_bad_arrays_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        demos(**changes)


def test_labels_that_cannot_be_compared_are_refused():
    with pytest.raises(TypeError, match="episode labels must be hashable, found list in row 2"):
        demos(episode=["a", "b", [], "c", "d", "e"])


def test_one_row_is_enough():
    one = demos().select([2])
    assert len(one) == 1
    assert one.inputs().tolist() == [[4.0, 5.0, 2.0]]
    assert one.summary()["rows"].tolist() == [1]


@pytest.mark.parametrize(
    "rows", [[4, 0, 5], np.array([-2, 0, -1]), slice(5, None, -2), np.array([1, 0, 0, 1, 0, 1], bool)]
)
def test_select_keeps_everything_of_the_rows(rows):
    full = demos(next_obs=OBS + 0.5, reward=np.arange(6.0))
    some = full.select(rows)
    index = np.arange(6)[rows]
    np.testing.assert_array_equal(some.obs, OBS[index])
    np.testing.assert_array_equal(some.acts, ACTS[index])
    np.testing.assert_array_equal(some.confidence, full.confidence[index])
    np.testing.assert_array_equal(some.next_obs, OBS[index] + 0.5)
    np.testing.assert_array_equal(some.reward, index.astype(float))
    assert some.episode is not None
    assert some.episode.tolist() == [EPISODE[i] for i in index]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no row is selected"),
        (np.zeros(6, bool), "no row is selected"),
        (np.ones(5, bool), r"the mask must have shape \(6,\), found \(5,\)"),
        ([6], "rows must be from 0 to 5, found 6 to 6"),
        ([-7], "rows must be from 0 to 5"),
        ([0.5], "rows must be a mask, a slice or a list of numbers"),
    ],
)
def test_select_refuses_what_is_no_choice_of_rows(rows, message):
    with pytest.raises(ValueError, match=message):
        demos().select(rows)


@pytest.mark.parametrize(
    ("rows", "consecutive"),
    [
        (slice(None), True),
        ([1, 2, 3, 5], True),  # the tail of one episode, the head of another
        ([3, 4, 0, 1, 2], True),
        ([0, 3, 1, 4], True),  # in turn
        ([0, 2], False),
        ([1, 0], False),
        ([0, 0], False),
    ],
)
def test_select_says_whether_rows_still_follow_each_other(rows, consecutive):
    assert demos().select(rows).consecutive is consecutive
    assert not demos(meta={"consecutive": False}).select(rows).consecutive


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10))
def test_a_subsample_is_a_sorted_choice_of_different_rows(n, seed):
    full = Demonstrations(np.arange(40.0)[:, None], np.zeros(40))
    rows = full.subsample(n, seed).obs[:, 0]
    assert len(rows) == n
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(rows, full.subsample(n, seed).obs[:, 0])


def test_subsamples_are_drawn_alike_from_everywhere():
    full = Demonstrations(np.arange(40.0)[:, None], np.zeros(40))
    mean = np.mean([full.subsample(5, seed).obs.mean() for seed in range(200)])
    assert abs(mean - 19.5) < 4 * 11.5 / np.sqrt(1000)
    assert full.subsample(40).consecutive
    assert not full.subsample(5).consecutive


@pytest.mark.parametrize("n", [0, -1, 7])
def test_a_subsample_larger_than_the_data_is_refused(n):
    with pytest.raises(ValueError, match=f"n must be from 1 to 6, the number of rows there are, found {n}"):
        demos().subsample(n)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.001, 1.0), st.integers(0, 5))
def test_a_share_of_the_labels_is_kept(fraction, seed):
    r = np.where(np.arange(50) % 5 < 4, np.linspace(0, 1, 50), np.nan)
    full = Demonstrations(np.zeros((50, 1)), np.zeros(50), r)
    masked = full.mask_labels(fraction, seed)
    assert masked.n_labelled == max(1, round(40 * fraction))
    kept = masked.labelled
    np.testing.assert_array_equal(masked.confidence[kept], r[kept])
    smaller = full.mask_labels(fraction / 2, seed).labelled
    assert kept[smaller].all()


def test_labels_of_whole_episodes_are_kept():
    episode = np.repeat(np.arange(10), 4)
    full = Demonstrations(np.zeros((40, 1)), np.zeros(40), np.where(episode < 8, 0.5, np.nan), episode)
    masked = full.mask_labels(0.25, seed=1, by="episode")
    counts = masked.summary()["labelled"]
    assert sorted(counts.tolist()) == [0] * 8 + [4] * 2
    assert (counts.index[counts > 0] < 8).all()
    seen = {
        tuple(np.flatnonzero(full.mask_labels(0.25, seed, by="episode").summary()["labelled"])) for seed in range(9)
    }
    assert len(seen) > 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.mask_labels(0), r"fraction must be in \(0, 1\], found 0"),
        (lambda d: d.mask_labels(1.5), r"fraction must be in \(0, 1\], found 1.5"),
        (lambda d: d.with_confidence(None).mask_labels(0.5), "there are no labels"),
        (
            lambda d: dataclasses.replace(d, episode=None).mask_labels(0.5, by="episode"),
            'no episodes are known.*by="row"',
        ),
        (lambda d: d.mask_labels(0.5, by="file"), "by must be .* found 'file'"),
        (lambda d: d.split(1.0), r"fraction must be in \(0, 1\), found 1.0"),
        (lambda d: dataclasses.replace(d, episode=None).split(0.5), "no episodes are known"),
        (lambda d: d.select([0, 1]).split(0.5), "there is one episode only"),
        (lambda d: d.with_confidence([0.5]), "confidence has 1 rows, obs has 6"),
        (lambda d: d.concatenate([]), "nothing to concatenate"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(demos())


@pytest.mark.parametrize("fraction", [0.01, 0.3, 0.5, 0.99])
def test_split_parts_whole_episodes(fraction):
    episode = np.repeat(np.arange(10), 4)
    full = Demonstrations(np.arange(40.0)[:, None], np.zeros(40), episode=episode)
    first, rest = full.split(fraction, seed=3)
    assert first.n_episodes == min(max(1, round(10 * fraction)), 9)
    assert not set(first.episode_names) & set(rest.episode_names)
    assert (first.summary()["rows"] == 4).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([first.obs, rest.obs])[:, 0]), np.arange(40))
    assert (np.diff(first.obs[:, 0]) > 0).all()
    assert first.consecutive
    by_row = full.split(fraction, seed=3, by="row")
    assert len(by_row.first) == min(max(1, round(40 * fraction)), 39)


def test_with_confidence_changes_nothing_else():
    changed = demos(reward=np.arange(6), meta={"a": 1}).with_confidence(np.linspace(0, 1, 6))
    np.testing.assert_array_equal(changed.confidence, np.linspace(0, 1, 6))
    np.testing.assert_array_equal(changed.reward, np.arange(6))
    assert changed.meta == {"a": 1}
    np.testing.assert_array_equal(changed.obs, OBS)


def test_concatenate_keeps_episodes_apart():
    one = demos(meta={"env": "x", "only": 1})
    other = demos(obs=OBS + 100, reward=np.arange(6), episode=list("bbbxyz"), meta={"env": "x"})
    both = Demonstrations.concatenate([one, other])
    np.testing.assert_array_equal(both.obs, np.vstack([OBS, OBS + 100]))
    np.testing.assert_array_equal(both.confidence, np.concatenate([one.confidence] * 2))
    np.testing.assert_array_equal(both.reward, [*[np.nan] * 6, *range(6)])
    assert both.episode_names == ["0:b", "0:a", "0:c", "1:b", "1:x", "1:y", "1:z"]
    assert both.next_obs is None
    assert both.meta == {"env": "x"}
    kept = Demonstrations.concatenate([one, dataclasses.replace(other, episode=[1, 1, 1, 2, 2, 2])])
    assert kept.episode_names == ["b", "a", "c", 1, 2]


def test_concatenate_takes_each_part_without_episodes_as_one():
    part = demos(episode=None)
    both = Demonstrations.concatenate([part, part])
    assert both.episode_codes.tolist() == [0] * 6 + [1] * 6
    assert Demonstrations.concatenate([part]).episode is None
    assert not Demonstrations.concatenate([part, part.select([0, 2])]).consecutive


def test_concatenate_refuses_what_differs():
    with pytest.raises(ValueError, match="part 0 has 2 observations and 1 actions, part 1 3 and 1"):
        Demonstrations.concatenate([demos(), demos(obs=np.ones((6, 3)))])
    with pytest.raises(ValueError, match="part 0 has continuous actions, part 1 discrete ones"):
        Demonstrations.concatenate([demos(), demos(acts=np.zeros(6, int))])
    ids = [demos(acts=np.full(6, largest)) for largest in (1, 4)]
    assert Demonstrations.concatenate(ids).n_actions == 5
