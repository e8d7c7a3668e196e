"""Environments: three in pure jax, any of Gymnasium's, and those of gymnax."""

from icl25_pn_gail.envs.cart_pole import CartPoleJax
from icl25_pn_gail.envs.choosing import env_from_module, env_name, make_env
from icl25_pn_gail.envs.gymnasium_adapter import GymnasiumAdapter, VectorStep
from icl25_pn_gail.envs.gymnasium_source import GymnasiumSource
from icl25_pn_gail.envs.gymnax_envs import from_gymnax
from icl25_pn_gail.envs.pendulum import PendulumJax
from icl25_pn_gail.envs.protocol import JaxEnv
from icl25_pn_gail.envs.two_goals import TwoGoals

__all__ = [
    "CartPoleJax",
    "GymnasiumAdapter",
    "GymnasiumSource",
    "JaxEnv",
    "PendulumJax",
    "TwoGoals",
    "VectorStep",
    "env_from_module",
    "env_name",
    "from_gymnax",
    "make_env",
]
