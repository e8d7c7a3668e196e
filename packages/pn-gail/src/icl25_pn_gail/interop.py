"""Learned policies and rewards in other libraries: Gymnasium, Stable-Baselines3 and ONNX."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import gymnasium
import jax
import numpy as np
from gymnasium.spaces import Box, Discrete

from icl25_pn_gail.learners import Learner
from icl25_pn_gail.losses import imitation_reward
from icl25_pn_gail.networks import Layer
from icl25_pn_gail.policies import ImitationPolicy
from icl25_shared import atomic_path

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy

__all__ = ["DiscriminatorReward", "export_onnx", "to_sb3_policy"]

OPSET, IR_VERSION = 17, 8  # of ONNX; old enough for any runtime since 2022


class DiscriminatorReward(gymnasium.Wrapper):
    """An environment of Gymnasium that pays what a discriminator pays, for any learner of any library.

    The reward of a step is ``policy.reward(obs, action)``, of the observation before the step and the action as the
    learner chose it. ``info["true_reward"]`` keeps what the environment paid, and ``info["true_return"]`` its sum since
    the last reset, which ``stable_baselines3.common.monitor.Monitor(env, info_keywords=("true_return",))`` logs.

    Args:
        env: The environment.
        policy: A learned policy, or a learner, of which the policy that it has now counts: what it learns later does
            not change the rewards.

    Raises:
        ValueError: If there is no discriminator, or the environment has other spaces.
        TypeError: If ``policy`` is neither.

    Example:
        >>> import gymnasium
        >>> from icl25_pn_gail import PNGAIL, make_demonstrations
        >>> learner = PNGAIL("Pendulum-v1", make_demonstrations("Pendulum-v1", "expert:1:1.0,spin:2:0.1"))
        >>> env = DiscriminatorReward(gymnasium.make("Pendulum-v1"), learner)
        >>> obs, _ = env.reset(seed=0)
        >>> _, reward, _, _, info = env.step(env.action_space.low)
        >>> bool(reward > 0 > info["true_reward"])
        True

    Source:
        PN-GAIL, algorithm 1: the policy is paid -log D, whatever learns it.
    """

    def __init__(self, env: gymnasium.Env, policy: ImitationPolicy | Learner) -> None:
        super().__init__(env)
        self.policy = _policy_of(policy)
        if self.policy.disc is None:
            raise ValueError("behaviour cloning has no discriminator, so it gives no rewards")
        _check_spaces(env, self.policy)
        disc, scaler, trainer = self.policy.disc, self.policy.scaler, self.policy.trainer

        def pay(obs: Any, action: Any) -> Any:
            inputs = trainer.disc_inputs(scaler(obs), trainer.actions.from_env(action))
            return imitation_reward(trainer.logits(disc, inputs), trainer.config.reward)

        # Compiled, because a row at a time costs more calls than arithmetic.
        self._pay = jax.jit(pay)
        self._obs: np.ndarray | None = None
        self._true_return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seed of the environment.
            options: Options of the environment.

        Returns:
            Observation and info.
        """
        obs, info = self.env.reset(seed=seed, options=options)
        # A copy, since a learner may change the array that it gets.
        self._obs, self._true_return = np.array(obs, np.float32), 0.0
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step.

        Args:
            action: The action, (a,), or a whole number.

        Returns:
            Observation, reward of the discriminator, whether the episode ended or was cut, and info with
            ``true_reward`` and ``true_return``.

        Raises:
            gymnasium.error.ResetNeeded: If there was no reset before.
        """
        if self._obs is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        reward = float(self._pay(self._obs, np.asarray(action)))
        obs, true_reward, terminated, truncated, info = self.env.step(action)
        self._obs = np.array(obs, np.float32)
        self._true_return += float(true_reward)
        info = {**info, "true_reward": float(true_reward), "true_return": self._true_return}
        return obs, reward, bool(terminated), bool(truncated), info


def to_sb3_policy(policy: ImitationPolicy | Learner) -> ActorCriticPolicy:
    """Make a policy of Stable-Baselines3 that acts the same, to evaluate, save or train further there.

    Its ``predict`` draws actions unless told ``deterministic=True``, as is usual there; that of the learner does not.
    ``policy.predict`` has the shape that ``evaluate_policy`` asks for also without this. The value function of the new
    policy is untrained: the one that imitation learned is of the discriminator's rewards.

    Args:
        policy: A learned policy, or a learner.

    Returns:
        The policy: the same hidden layers, with the normalisation of observations in the weights of the first and the
        units of actions in those of the last. Its value function has the same sizes, as ``net_arch`` of a list means,
        so that ``PPO("MlpPolicy", env, policy_kwargs={"net_arch": [*config.hidden]})`` can take its ``state_dict()``.

    Raises:
        ImportError: If Stable-Baselines3 is not installed.
        TypeError: If ``policy`` is neither.
    """
    try:
        import torch
        from stable_baselines3.common.policies import ActorCriticPolicy
    except ImportError as error:
        raise ImportError('to_sb3_policy needs Stable-Baselines3: pip install "icl25-pn-gail[sb3]"') from error
    source = _policy_of(policy)
    spaces, actions = source.spaces, source.trainer.actions
    layers = [Layer(*(np.asarray(part, float) for part in layer)) for layer in source.params["layers"]]
    mean, scale = (np.asarray(part, float) for part in source.scaler)
    kernel, bias = layers[0]
    layers[0] = Layer(kernel / scale[:, None], bias - (mean / scale) @ kernel)
    half_range, centre = np.asarray(actions.half_range, float), np.asarray(actions.centre, float)
    if not spaces.discrete:
        kernel, bias = layers[-1]
        layers[-1] = Layer(kernel * half_range, bias * half_range + centre)
    widths = [len(layer.bias) for layer in layers[:-1]]
    with torch.random.fork_rng(devices=[]):  # the value function is drawn from the global generator
        torch.manual_seed(0)
        made = ActorCriticPolicy(
            Box(-np.inf, np.inf, (spaces.obs_dim,), np.float32),
            spaces.act_space,
            lr_schedule=lambda _: 3e-4,
            net_arch={"pi": widths, "vf": widths},
        )
    hidden = [part for part in made.mlp_extractor.policy_net if isinstance(part, torch.nn.Linear)]
    linears: list[Any] = [*hidden, made.action_net]
    with torch.no_grad():
        for linear, layer in zip(linears, layers, strict=True):
            linear.weight.copy_(torch.tensor(layer.kernel.T))
            linear.bias.copy_(torch.tensor(layer.bias))
        if not spaces.discrete:
            made.log_std.copy_(torch.tensor(np.asarray(source.params["log_std"], float) + np.log(half_range)))
    made.set_training_mode(False)
    return made


def export_onnx(policy: ImitationPolicy | Learner, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write the deterministic policy as a model of ONNX, which needs neither Python nor jax to act.

    Its input ``observation`` is (batch, d), not normalised; its output ``action`` is what ``predict`` gives: actions
    within their bounds (batch, a), or numbers of actions (batch,).

    Args:
        policy: A learned policy, or a learner.
        path: The file, such as ``policy.onnx``.
        force: Replace it if it exists.

    Raises:
        ImportError: If the package onnx is not installed.
        FileExistsError: If the file exists and ``force`` is false.
        TypeError: If ``policy`` is neither.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError('export_onnx needs the package onnx: pip install "icl25-pn-gail[onnx]"') from error
    source = _policy_of(policy)
    spaces, actions = source.spaces, source.trainer.actions
    nodes, constants = [], []
    value = "observation"

    def then(operator: str, *arrays: Any, output: str | None = None, **attributes: Any) -> None:
        """Apply an operator to the value so far and to constants."""
        nonlocal value
        names = [f"constant_{len(constants) + i}" for i in range(len(arrays))]
        constants.extend(
            numpy_helper.from_array(np.asarray(array, np.float32), name)
            for array, name in zip(arrays, names, strict=True)
        )
        result = output or f"value_{len(nodes)}"
        nodes.append(helper.make_node(operator, [value, *names], [result], **attributes))
        value = result

    then("Sub", source.scaler.mean)
    then("Div", source.scaler.scale)
    for i, layer in enumerate(source.params["layers"]):
        if i:
            then("Tanh")
        then("Gemm", layer.kernel, layer.bias)
    if spaces.discrete:
        then("ArgMax", output="action", axis=1, keepdims=0)
        kind, shape = TensorProto.INT64, ["batch"]
    else:
        then("Mul", np.broadcast_to(np.asarray(actions.half_range, np.float32), spaces.n_outputs))
        then("Add", np.broadcast_to(np.asarray(actions.centre, np.float32), spaces.n_outputs))
        then("Max", actions.low)
        then("Min", actions.high, output="action")
        kind, shape = TensorProto.FLOAT, ["batch", spaces.n_outputs]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", spaces.obs_dim])],
        [helper.make_tensor_value_info("action", kind, shape)],
        constants,
    )
    model = helper.make_model(
        graph, producer_name="icl25-pn-gail", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
    )
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(path, force=force) as part:
        part.write_bytes(model.SerializeToString())


def _policy_of(policy: Any) -> ImitationPolicy:
    found = policy.policy if isinstance(policy, Learner) else policy
    if not isinstance(found, ImitationPolicy):
        raise TypeError(f"expected a learned policy or a learner, found {type(policy).__name__}")
    return found


def _check_spaces(env: gymnasium.Env, policy: ImitationPolicy) -> None:
    obs, act, spaces = env.observation_space, env.action_space, policy.spaces
    if obs.shape != (spaces.obs_dim,):
        raise ValueError(f"the policy has observations of shape ({spaces.obs_dim},), the environment {obs}")
    expected = spaces.act_space
    same = act.n == expected.n if isinstance(act, Discrete) and isinstance(expected, Discrete) else (
        isinstance(act, Box) and isinstance(expected, Box) and act.shape == expected.shape
    )  # fmt: skip
    if not same:
        raise ValueError(f"the policy has actions {expected}, the environment {act}")
