import numpy as np
import pytest
import torch

from icl25_lp_conv.rsa_verbs import _read_stimuli

X = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
RGB = np.random.default_rng(1).random((3, 2, 4, 5)).astype(np.float32)


@pytest.mark.parametrize("array", [X, X[:, None], X[..., None]])
def test_grey_stimuli_may_have_their_channel_anywhere_or_nowhere(tmp_path, array):
    np.savez(tmp_path / "x.npz", x=array)
    assert torch.equal(_read_stimuli(tmp_path / "x.npz", None, 1), torch.from_numpy(X[:, None]))


@pytest.mark.parametrize("array", [RGB, RGB.transpose(0, 2, 3, 1)])
def test_channels_may_come_first_or_last(tmp_path, array):
    np.savez(tmp_path / "x.npz", x=array)
    assert torch.equal(_read_stimuli(tmp_path / "x.npz", None, 2), torch.from_numpy(RGB))
