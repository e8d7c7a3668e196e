from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from icl25_pn_gail.demonstrations import Demonstrations
from icl25_pn_gail.readers import read_demonstrations

pytestmark = pytest.mark.extra
RNG = np.random.default_rng(0)


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Write a Minari dataset into an empty store; returns a function that does, and gives back the dataset."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    import minari
    from minari.data_collector import EpisodeBuffer

    def write(obs_space, act_space, lengths=(3, 2), name="robot/arm-v0"):
        def sample(space, n):
            if isinstance(space, Dict):
                return {key: sample(part, n) for key, part in space.spaces.items()}
            return np.array([space.sample() for _ in range(n)])

        episodes = [
            EpisodeBuffer(
                observations=sample(obs_space, n + 1),
                actions=sample(act_space, n),
                rewards=list(RNG.standard_normal(n)),
                terminations=[False] * n,
                truncations=[False] * (n - 1) + [True],
            )
            for n in lengths
        ]
        return minari.create_dataset_from_buffers(
            name, episodes, observation_space=obs_space, action_space=act_space, data_format="arrow"
        )

    return write


def compare(read, dataset):
    episodes = list(dataset.iterate_episodes())
    np.testing.assert_array_equal(read.obs, np.concatenate([one.observations[:-1] for one in episodes]))
    np.testing.assert_array_equal(read.next_obs, np.concatenate([one.observations[1:] for one in episodes]))
    np.testing.assert_array_equal(read.acts, np.concatenate([one.actions for one in episodes]))
    np.testing.assert_array_equal(read.reward, np.concatenate([one.rewards for one in episodes]))
    assert read.episode.tolist() == [one.id for one in episodes for _ in one.rewards]
    assert read.meta["dataset_id"] == "robot/arm-v0"


def test_minari_datasets_by_object_folder_and_id(stored, tmp_path):
    dataset = stored(Box(-1, 1, (3,)), Box(-2, 2, (2,)))
    for given in (dataset, tmp_path / "robot/arm-v0", str(tmp_path / "robot/arm-v0/data"), "robot/arm-v0"):
        compare(Demonstrations.from_minari(given), dataset)
    for given in ("minari:robot/arm-v0", tmp_path / "robot/arm-v0", f"{tmp_path}/robot/arm-v0/data"):
        compare(read_demonstrations(given), dataset)
    some = Demonstrations.from_minari(dataset.filter_episodes(lambda episode: len(episode) == 2))
    assert (some.n_rows, some.episode_names) == (2, [1])


def test_minari_choices_and_dictionaries(stored):
    space = Dict({"goal": Box(-1, 1, (2,)), "arm": Box(-1, 1, (2, 2))})
    dataset = stored(space, Discrete(5))
    read = Demonstrations.from_minari(dataset)
    assert (read.discrete, read.n_actions) == (True, 5)
    first = dataset[0]
    for row in range(3):
        one = {key: values[row] for key, values in first.observations.items()}
        np.testing.assert_array_equal(read.obs[row], gymnasium.spaces.flatten(space, one))


def test_minari_refusals(stored, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no Minari dataset 'robot/leg-v0' on this .*minari download"):
        read_demonstrations("minari:robot/leg-v0")
    (tmp_path / "empty").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder, but no Minari dataset"):
        Demonstrations.from_minari(tmp_path / "empty")
    with pytest.raises(IsADirectoryError, match="is a folder, expected a file"):
        read_demonstrations(tmp_path / "empty")
    stored(Box(-1, 1, (3,)), Box(-2, 2, (2,)))
    with pytest.raises(ValueError, match="a Minari dataset says what is what; obs_cols cannot be given"):
        read_demonstrations("minari:robot/arm-v0", "x")
    with pytest.raises(
        ValueError, match=r"observations must be Box spaces, or a Dict or Tuple of them, found Discrete\(3\)"
    ):
        Demonstrations.from_minari(stored(Discrete(3), Box(-2, 2, (2,)), name="a-v0"))
    with pytest.raises(ValueError, match="actions must be Discrete or a one-dimensional Box, found Box"):
        Demonstrations.from_minari(stored(Box(-1, 1, (3,)), Box(-2, 2, (2, 2)), name="b-v0"))
    with pytest.raises(TypeError, match="expected a MinariDataset, its folder or its id, found int"):
        Demonstrations.from_minari(3)
    metadata = tmp_path / "robot/arm-v0/data/metadata.json"
    metadata.write_text("{")
    with pytest.raises(ValueError, match="not a readable Minari dataset"):
        read_demonstrations(tmp_path / "robot/arm-v0")
    metadata.write_text(json.dumps({"data_format": "hdf5"}))
    with pytest.raises(ValueError, match="not a readable Minari dataset"):
        read_demonstrations(tmp_path / "robot/arm-v0")


def test_a_replay_buffer_that_a_learner_filled():
    from stable_baselines3 import SAC

    model = SAC(
        "MlpPolicy", "Pendulum-v1", buffer_size=260, learning_starts=1000, seed=0, policy_kwargs={"net_arch": [4]}
    )
    model.learn(300)
    read = Demonstrations.from_sb3(model.replay_buffer)
    assert len(read) == 260
    assert read.summary()["rows"].tolist() == [160, 100]  # 40 of 300 steps were overwritten
    assert np.abs(read.acts).max() > 1.9
    cuts = [
        finding for finding in read.check("Pendulum-v1").findings if finding.code in ("action-scale", "episode-cuts")
    ]
    assert [finding.level for finding in cuts] == ["ok", "ok"]
    scaled = Demonstrations.from_sb3(model.replay_buffer, scaled_actions=False)
    assert scaled.check("Pendulum-v1").of("action-scale")[0].numbers["best"] == 2


def test_a_replay_buffer_filled_by_hand_in_its_variant_that_saves_memory():
    from stable_baselines3.common.buffers import ReplayBuffer

    spaces = Box(-np.inf, np.inf, (1,)), Box(-1.0, 1.0, (1,))
    kept = {"optimize_memory_usage": True, "handle_timeout_termination": False}
    buffer = ReplayBuffer(4, *spaces, device="cpu", **kept)
    for t in range(6):
        step = np.array([[float(t)]])
        buffer.add(step, step + 1, step / 10, np.array([t]), np.array([False]), [{}])
    read = Demonstrations.from_sb3(buffer)
    np.testing.assert_allclose(np.hstack([read.obs, read.acts]), [[3, 0.3], [4, 0.4], [5, 0.5]], rtol=1e-6)
