from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from icl25_lp_conv import rsa, rsa_features

GOLDEN = Path(__file__).parent / "golden" / "rsa.npz"
N = 12


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN, allow_pickle=False) as arrays:
        return dict(arrays)


def random_rsm(n: int = N, seed: int = 0, like: np.ndarray | None = None, noise: float = 1.0) -> np.ndarray:
    """A symmetric matrix of noise, added to another."""
    draw = noise * np.random.default_rng(seed).normal(size=(n, n))
    return draw + draw.T + (0 if like is None else like)


def entries(matrix: np.ndarray) -> np.ndarray:
    return matrix[np.tril_indices(len(matrix), -1)]


class Net(nn.Module):
    """Convolutions before and after an in-place layer; one is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.block = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, groups=2), nn.BatchNorm2d(4))
        self.twice = nn.Conv2d(4, 4, 1)
        self.up = nn.ConvTranspose2d(4, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.twice(self.twice(self.block(self.stem(x)))))


def make_net() -> Net:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net()


@pytest.fixture
def net() -> Net:
    return make_net()


@pytest.fixture(scope="module")
def stimuli() -> np.ndarray:
    return np.random.default_rng(5).normal(size=(N, 3, 6, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def brain(stimuli) -> dict[str, np.ndarray]:
    near = rsa.rsm(rsa.extract_features(make_net(), stimuli)["stem"])
    return {
        "V1": np.stack([random_rsm(seed=k, like=near, noise=0.1) for k in range(4)], axis=2),
        "V2": np.stack([random_rsm(seed=k, like=random_rsm(seed=77), noise=0.3) for k in range(9, 12)], axis=2),
    }


# --- golden arrays


@pytest.mark.parametrize("name", ["a", "b"])
def test_rsm_equals_the_reference(golden, name):
    np.testing.assert_allclose(rsa.rsm(golden[f"feat_{name}"]), golden[f"rsm_{name}"], rtol=0, atol=1e-10)


def test_similarities_equal_the_reference(golden):
    for layer, area, session, ssm in zip(
        golden["layer"], golden["struct"], golden["session"], golden["ssm"], strict=True
    ):
        recording = golden[f"brain_{area}"][:, :, session]
        assert rsa.compare_rsm(golden[f"rsm_{layer}"], recording) == pytest.approx(ssm, abs=1e-10)


def test_table_of_a_network_equals_the_reference(golden):
    """A convolution that copies its input has the reference's features, so the whole way is compared."""
    features = golden["feat_a"]
    copy = nn.Conv2d(5, 5, 1, bias=False).double()
    copy.weight.data = torch.eye(5, dtype=torch.float64)[:, :, None, None]
    table = rsa.rsa(copy, features, {area: golden[f"brain_{area}"] for area in ("VISp", "VISl")}, batch_size=7)
    mine = golden["layer"] == "a"
    assert list(table.columns) == ["layer", "area", "session", "ssm", "corrected"]
    assert table["layer"].tolist() == ["Conv2d"] * 7
    assert table["area"].tolist() == golden["struct"][mine].tolist()
    assert table["session"].tolist() == golden["session"][mine].tolist()
    np.testing.assert_allclose(table["ssm"], golden["ssm"][mine], rtol=0, atol=1e-9)


# --- the table


def test_table_holds_each_comparison_and_its_share_of_the_ceiling(net, stimuli, brain):
    table = rsa.rsa(net, stimuli, brain, batch_size=5)
    features = rsa.extract_features(net, stimuli)
    assert len(table) == len(features) * 7
    for layer, area, session, ssm, corrected in table.to_numpy():
        expected = rsa.compare_rsm(rsa.rsm(features[layer]), brain[area][:, :, session])
        assert ssm == pytest.approx(expected, abs=1e-12)
        ceiling = np.median(rsa.noise_ceiling(brain[area]))
        assert corrected == pytest.approx(expected / ceiling, abs=1e-12)
    given = rsa.rsa(net, stimuli, brain, {"V1": np.array([0.2, 0.5, 0.9]), "V2": np.array([0.25])}, method="spearman")
    scale = given["area"].map({"V1": 0.5, "V2": 0.25})
    np.testing.assert_allclose(given["corrected"], given["ssm"] / scale)
    assert given["ssm"][0] == pytest.approx(
        rsa.compare_rsm(rsa.rsm(features["stem"]), brain["V1"][:, :, 0], "spearman"), abs=1e-12
    )


@pytest.mark.parametrize("max_bytes", [4 * N, 4 * N * 100, 4 * N * 250])
def test_memory_bound_changes_nothing_but_the_passes(net, stimuli, brain, max_bytes, monkeypatch):
    passes, sizes = [], []
    collect = rsa_features._Network.collect

    def counted(self, slices, bar):
        passes.append(1)
        found = collect(self, slices, bar)
        sizes.append(sum(array.nbytes for array in found.values()))
        return found

    # Only a layer of few features is read one feature at a time, which is slow.
    model = nn.Sequential(nn.AdaptiveAvgPool2d(2), net.stem) if max_bytes == 4 * N else net
    expected = rsa.rsa(model, stimuli, brain)
    monkeypatch.setattr(rsa_features._Network, "collect", counted)
    found = rsa.rsa(model, stimuli, brain, max_bytes=max_bytes)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-9)
    assert len(passes) > 1
    assert max(sizes) <= max_bytes


def test_workers_and_seeds_change_nothing(net, stimuli, brain):
    def compare(seed: int, n_jobs: int = 1) -> pd.DataFrame:
        return rsa.rsa(net, stimuli, brain, layers=["stem", "up"], n_permutations=19, seed=seed, n_jobs=n_jobs)

    one, other = compare(3), compare(4)
    pd.testing.assert_frame_equal(compare(3, n_jobs=2), one)
    pd.testing.assert_frame_equal(other.iloc[:, :5], one.iloc[:, :5])
    assert not other["p_value"].equals(one["p_value"])
    near = one[(one["layer"] == "stem") & (one["area"] == "V1")]
    assert (near["p_value"] == 1 / 20).all()
    feature = rsa.rsm(rsa.extract_features(net, stimuli)["stem"])
    alone = rsa.permutation_test(feature, brain["V2"][:, :, 1], 19, seed=3)
    row = one[(one["layer"] == "stem") & (one["area"] == "V2") & (one["session"] == 1)].iloc[0]
    assert row["p_value"] == alone.p_value


def test_a_layer_without_variation_is_named_and_nan(net, stimuli, brain):
    net.block[1].weight.data.zero_()
    with pytest.warns(UserWarning, match=r"layer 'block.1': features do not vary"):
        table = rsa.rsa(net, stimuli, brain, layers=["stem", "block.1"], n_permutations=3)
    dead = table["layer"] == "block.1"
    assert table.loc[dead, ["ssm", "corrected", "p_value"]].isna().all(axis=None)
    assert table.loc[~dead].notna().all(axis=None)
    assert set(rsa.best_layers(table)["layer"]) == {"stem"}
    with pytest.raises(ValueError, match="no layer has a similarity"):
        rsa.best_layers(table[dead])


def test_single_sessions_have_no_ceiling(net, stimuli, brain):
    table = rsa.rsa(net, stimuli, {"V1": brain["V1"][:, :, 0], "V2": brain["V2"]}, layers="stem")
    assert table["area"].tolist() == ["V1", "V2", "V2", "V2"]
    assert table["corrected"].isna().tolist() == [True, False, False, False]
    summary = rsa.summarize(table)
    assert summary["error"].isna().tolist() == [True, False]


def test_sessions_that_disagree_have_no_ceiling(net, stimuli, brain):
    recording = brain["V2"][:, :, 0]
    with pytest.warns(UserWarning, match="area 'V9' do not agree"):
        table = rsa.rsa(net, stimuli, {"V9": np.stack([recording, -recording], 2)}, layers="stem")
    assert table["corrected"].isna().all()
    assert table["ssm"].notna().all()


def broken(brain: dict[str, np.ndarray], i: int, j: int, value: float) -> dict[str, np.ndarray]:
    recordings = brain["V2"].copy()
    recordings[i, j, 2] = value
    return {**brain, "V2": recordings}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: {"brain": broken(b, 5, 3, np.nan)}, "area 'V2', session 2: 1 pairs of stimuli have NaN"),
        (lambda b: {"brain": broken(b, 5, 3, 9.0)}, "area 'V2', session 2 is not symmetric"),
        (lambda b: {"brain": {**b, "V2": b["V2"][:-1, :-1]}}, "area 'V2' has 11 stimuli, but stimuli has 12"),
        (lambda b: {"brain": {**b, "V2": b["V2"][:, :-1]}}, r"area 'V2' has shape \(12, 11, 3\)"),
        (lambda b: {"brain": {**b, "V2": b["V2"].transpose(2, 0, 1)}}, r"'V2' has shape .*; sessions come last"),
        (lambda b: {"brain": {**b, "V2": b["V2"][:, :, :0]}}, "area 'V2' has no session"),
        (lambda b: {"brain": {**b, "V2": b["V2"] * 1j}}, "area 'V2' holds complex128, expected real numbers"),
        (lambda b: {"brain": {**b, "V2": np.ones((N, N, 2))}}, "area 'V2', session 0: all pairs .* equally similar"),
        (lambda b: {"brain": {}}, "brain is empty"),
        (lambda b: {"ceilings": {"V1": np.ones(3)}}, "area 'V2' has no noise ceilings; there are those of V1"),
        (lambda b: {"ceilings": {"V1": np.ones(3), "V2": np.array([np.nan])}}, "ceilings of area 'V2' must be"),
        (lambda b: {"ceilings": {"V1": np.ones(3), "V2": np.array([-1.0])}}, "area 'V2' have the median -1"),
        (lambda b: {"stimuli": np.zeros((2, 3, 6, 7))}, "stimuli has 2 stimuli, expected at least 3"),
        (lambda b: {"method": "tau"}, "unknown method 'tau'"),
        (lambda b: {"metric": "dot"}, "unknown metric 'dot'"),
        (lambda b: {"layers": "conv9"}, "no layer 'conv9'"),
        (lambda b: {"max_bytes": 40}, "max_bytes is 40, too little for one feature of 12 stimuli"),
        (lambda b: {"n_permutations": -1}, "n_permutations must be >= 1, found -1"),
        (lambda b: {"model": nn.Sequential(nn.Flatten(), nn.Linear(126, 2))}, "Sequential has no convolution"),
    ],
)
def test_faulty_recordings_and_options_are_named(net, stimuli, brain, change, message):
    with pytest.raises(ValueError, match=message):
        rsa.rsa(**{"model": net, "stimuli": stimuli, "brain": brain, **change(brain)})


def test_infinite_activations_name_the_layer(net, stimuli, brain):
    net.twice.weight.data.fill_(1e30)
    with pytest.raises(ValueError, match="layer 'twice#2': features hold NaN or infinities"):
        rsa.rsa(net, stimuli, brain)
