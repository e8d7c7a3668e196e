"""What the method is compared with: supervised operators, a network for each measurement, and classical inversion."""

from icl25_pi_dion.baselines.deeponet import DeepONet
from icl25_pi_dion.baselines.fno import FNO2d
from icl25_pi_dion.baselines.gauss_newton import GaussNewton, GaussNewtonResult
from icl25_pi_dion.baselines.pinn import PINN, PINNResult
from icl25_pi_dion.baselines.tikhonov import Tikhonov, TikhonovResult

__all__ = [
    "PINN",
    "DeepONet",
    "FNO2d",
    "GaussNewton",
    "GaussNewtonResult",
    "PINNResult",
    "Tikhonov",
    "TikhonovResult",
]
