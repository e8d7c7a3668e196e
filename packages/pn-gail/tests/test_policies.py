from __future__ import annotations

import itertools
import json
import shutil

import numpy as np
import pytest
from flax import serialization
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.config import TrainConfig
from icl25_pn_gail.networks import Layer
from icl25_pn_gail.policies import ImitationPolicy
from icl25_pn_gail.preparation import Spaces, make_trainer
from icl25_pn_gail.rollout import Scaler

SCALER = Scaler(np.array([1.0, -1.0], np.float32), np.array([2.0, 0.5], np.float32))
CONTINUOUS = Box(np.array([-1, 0, -np.inf], np.float32), np.array([1, 2, np.inf], np.float32))


def layers(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(
        Layer(rng.normal(size=(i, o)).astype(np.float32), rng.normal(size=o).astype(np.float32))
        for i, o in itertools.pairwise(sizes)
    )


def made(space=CONTINUOUS, disc=True, **settings):
    spaces = Spaces(2, space)
    trainer = make_trainer(spaces, "ppo", TrainConfig(hidden=(4,), **settings), warn=False)
    n = spaces.n_outputs
    params = {"layers": layers(2, 4, n)} | ({} if spaces.discrete else {"log_std": np.linspace(-1, 0.5, n, dtype="f4")})
    return ImitationPolicy(spaces, trainer, params, SCALER, layers(2 + n, 4, 1, seed=1) if disc else None)


def forward(layers, x):
    hidden = np.tanh(x @ layers[0].kernel + layers[0].bias)
    return hidden @ layers[1].kernel + layers[1].bias


OBS = np.random.default_rng(2).normal(0, 3, (50, 2)).astype(np.float32)
NORMAL = (OBS - [1, -1]) / [2, 0.5]


def test_the_most_likely_action_is_the_output_within_the_bounds():
    policy = made()
    action, state = policy.predict(OBS)
    output = forward(policy.params["layers"], NORMAL)
    np.testing.assert_allclose(action, np.clip(output, CONTINUOUS.low, CONTINUOUS.high), rtol=1e-5)
    assert state is None
    assert (action.shape, action.dtype) == ((50, 3), np.float32)
    assert (output != action).any()
    np.testing.assert_allclose(action[:, 2], output[:, 2], rtol=1e-5)  # a dimension without bounds
    one, _ = policy.predict(OBS[3].tolist(), None, None, True)
    assert one.shape == (3,)
    np.testing.assert_allclose(one, action[3], rtol=1e-5)
    half = made(Box(-2, 4, (3,)), normalize_actions=True)
    np.testing.assert_allclose(half.predict(OBS)[0], np.clip(1 + 3 * output, -2, 4), rtol=1e-4)


def test_drawn_actions_have_the_spread_of_the_policy():
    policy = made()
    rng = np.random.default_rng(0)
    many = np.tile(OBS[:1], (20_000, 1))
    drawn, _ = policy.predict(many, deterministic=False, rng=rng)
    mean = forward(policy.params["layers"], NORMAL[:1])[0]
    np.testing.assert_allclose(drawn[:, 2].mean(), mean[2], atol=0.05)
    np.testing.assert_allclose(drawn[:, 2].std(), np.exp(0.5), rtol=0.03)
    assert drawn[:, :2].min(axis=0).tolist() == [-1, 0]
    again, _ = policy.predict(many, deterministic=False, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(drawn, again)
    fresh = [policy.predict(OBS, deterministic=False)[0] for _ in range(2)]
    assert not np.array_equal(*fresh)


def test_choices():
    policy = made(Discrete(3))
    output = forward(policy.params["layers"], NORMAL)
    action, _ = policy.predict(OBS)
    np.testing.assert_array_equal(action, output.argmax(1))
    one, _ = policy.predict(OBS[0])
    assert isinstance(one, np.ndarray)
    assert (one.shape, int(one)) == ((), action[0])
    many, _ = policy.predict(np.tile(OBS[:1], (20_000, 1)), deterministic=False, rng=np.random.default_rng(0))
    p = np.exp(output[0]) / np.exp(output[0]).sum()
    np.testing.assert_allclose(np.bincount(many, minlength=3) / 20_000, p, atol=0.02)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"observation must be \(2,\) or \(n, 2\), found \(3,\)"),
        (np.zeros((5, 1)), r"found \(5, 1\)"),
        (np.zeros((5, 2, 2)), r"found \(5, 2, 2\)"),
        (0.0, r"found \(\)"),
        ([np.nan, 0.0], "observation has values that are not finite"),
        ([[0.0, 0.0], [np.inf, 0.0]], "observation has values that are not finite"),
    ],
)
def test_observations_of_another_kind_are_refused(observation, message):
    with pytest.raises(ValueError, match=message):
        made().predict(observation)


@pytest.mark.parametrize(
    ("reward", "of_logit"),
    [("nonsaturating", lambda g: np.logaddexp(0, -g)), ("airl", lambda g: -g), ("gail", lambda g: -np.logaddexp(0, g))],
)
def test_rewards_are_those_of_the_discriminator(reward, of_logit):
    acts = np.random.default_rng(3).normal(0, 2, (50, 3))
    policy = made(reward=reward)
    logits = forward(policy.disc, np.concatenate([NORMAL, np.clip(acts, CONTINUOUS.low, CONTINUOUS.high)], axis=1))[
        :, 0
    ]
    np.testing.assert_allclose(policy.logits(OBS, acts), logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.reward(OBS, acts), of_logit(logits), rtol=1e-4, atol=1e-5)
    chosen = made(Discrete(3), reward=reward)
    ids = np.arange(50) % 3
    logits = forward(chosen.disc, np.concatenate([NORMAL, np.eye(3)[ids]], axis=1))[:, 0]
    np.testing.assert_allclose(chosen.reward(OBS, ids), of_logit(logits), rtol=1e-4, atol=1e-5)
    half = made(Box(-2, 4, (3,)), normalize_actions=True, clip_actions=False, reward=reward)
    logits = forward(half.disc, np.concatenate([NORMAL, (acts - 1) / 3], axis=1))[:, 0]
    np.testing.assert_allclose(half.reward(OBS, acts), of_logit(logits), rtol=1e-4, atol=1e-5)


def test_rows_of_another_shape_get_no_reward():
    policy = made()
    for obs, acts, message in (
        (np.zeros((5, 3)), np.zeros((5, 3)), r"obs must be \(n, 2\), found \(5, 3\)"),
        (np.zeros(2), np.zeros((1, 3)), r"obs must be \(n, 2\), found \(2,\)"),
        (np.zeros((5, 2)), np.zeros((4, 3)), r"acts must be \(5, 3\), found \(4, 3\)"),
        (np.zeros((5, 2)), np.zeros(5), r"acts must be \(5, 3\), found \(5,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.reward(obs, acts)
    with pytest.raises(ValueError, match=r"acts must be \(5,\), found \(5, 1\)"):
        made(Discrete(3)).logits(np.zeros((5, 2)), np.zeros((5, 1)))
    with pytest.raises(ValueError, match="behaviour cloning has no discriminator"):
        made(disc=False).reward(np.zeros((5, 2)), np.zeros((5, 3)))


@pytest.mark.parametrize("space", [CONTINUOUS, Discrete(3)])
def test_a_policy_is_read_as_it_was_written(space, tmp_path):
    policy = made(space, max_kl=0.123, reward="airl")
    policy.save(tmp_path / "run" / "one", {"method": "x"})
    found = ImitationPolicy.load(tmp_path / "run" / "one")
    np.testing.assert_array_equal(found.predict(OBS)[0], policy.predict(OBS)[0])
    assert found.predict(OBS)[0].dtype == policy.predict(OBS)[0].dtype
    drawn = [p.predict(OBS, deterministic=False, rng=np.random.default_rng(0))[0] for p in (found, policy)]
    np.testing.assert_array_equal(*drawn)
    acts = policy.predict(OBS)[0]
    np.testing.assert_array_equal(found.reward(OBS, acts), policy.reward(OBS, acts))
    assert (found.spaces, found.trainer.config, found.trainer.learner) == (policy.spaces, policy.trainer.config, "ppo")
    assert json.loads((tmp_path / "run" / "one" / "config.json").read_text())["method"] == "x"
    bare = made(space, disc=False)
    bare.save(tmp_path / "bare")
    assert ImitationPolicy.load(tmp_path / "bare").disc is None


def test_a_policy_that_exists_is_replaced_only_by_force(tmp_path):
    made().save(tmp_path)
    before = (tmp_path / "policy.msgpack").read_bytes()
    with pytest.raises(FileExistsError, match="holds a policy already; pass force=True"):
        made(Discrete(3)).save(tmp_path)
    assert (tmp_path / "policy.msgpack").read_bytes() == before
    made(Discrete(3)).save(tmp_path, force=True)
    assert ImitationPolicy.load(tmp_path).spaces.discrete
    with pytest.raises(FileNotFoundError):
        ImitationPolicy.load(tmp_path / "nowhere")
    (tmp_path / "policy.msgpack").unlink()
    with pytest.raises(FileNotFoundError):
        ImitationPolicy.load(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    made().save(folder)
    return folder


def changed(tree, path, value):
    tree = dict(tree)
    tree[path[0]] = value if len(path) == 1 else changed(tree[path[0]], path[1:], value)
    return tree


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c[: len(c) // 2],
        lambda c: b"",
        lambda c: b"\x80\x04\x95pickle",
        lambda c: serialization.msgpack_serialize({"policy": 3}),
        *(
            lambda c, path=path, value=value: serialization.msgpack_serialize(
                changed(serialization.msgpack_restore(c), path, value)
            )
            for path, value in (
                (("policy", "log_std"), np.zeros(2, np.float32)),
                (("policy", "log_std"), np.full(3, np.nan, np.float32)),
                (("policy", "log_std"), "abc"),
                (("policy", "layers"), {}),
                (("policy", "layers", "0", "kernel"), np.zeros((3, 4), np.float32)),
                (("policy", "layers", "1", "bias"), np.zeros(2, np.float32)),
                (("disc", "0", "kernel"), np.zeros((4, 4), np.float32)),
                (("scaler", "scale"), np.ones(3, np.float32)),
            )
        ),
    ],
)
def test_damaged_parameters_are_refused(change, written, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "policy.msgpack"
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(ValueError, match=r"policy\.msgpack is damaged"):
        ImitationPolicy.load(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 99, "no configuration of a policy: format 99, expected 1"),
        (("learner",), "sac", "learner must be trpo or ppo"),
        (("config",), {"hidden": [4], "gamma": 7.0}, "gamma must be in"),
        (("config",), {"hidden": [4], "colour": 1}, "no configuration of a policy"),
        (("spaces",), {}, "no configuration of a policy"),
        (("spaces", "action"), {"n": 0}, "no configuration of a policy"),
        (("spaces", "action"), {"low": [0], "high": ["up"]}, "no configuration of a policy"),
        (("spaces", "obs_dim"), "two", "no configuration of a policy"),
    ],
)
def test_damaged_configurations_are_refused(path, value, message, written, tmp_path, unchecked):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(changed(json.loads(file.read_text()), path, value)))
    with pytest.raises(ValueError, match=message):
        ImitationPolicy.load(tmp_path)
    for text in ("[]", "{"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"config.json is (no configuration|not JSON)"):
            ImitationPolicy.load(tmp_path)
