from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import FunctionTransformer

from icl25_sava.embedders import make_embedder


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    # The file is in order of writers: shuffled, both parts have all of them.
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    return X[:400] / 16, y[:400], X[400:700] / 16, y[400:700]


def test_none_gives_back_the_rows_themselves(digits):
    X_val, y_val, X, _ = digits
    embedder = make_embedder(None)
    assert embedder.transform(X) is X
    assert embedder.fit(X_val, y_val).is_identity


@pytest.mark.parametrize(
    ("spec", "width"), [("standardize", 64), ("pca:7", 7), ("lda", 9), ("logits", 10), ("mlp", 64), ("mlp:12", 12)]
)
def test_names_are_deterministic_the_same_in_parts_and_survive_pickle(digits, spec, width):
    X_val, y_val, X, _ = digits
    embedder = make_embedder(spec, random_state=3).fit(X_val, y_val)
    embedded = embedder.transform(X)
    assert embedded.shape == (len(X), width)
    again = make_embedder(spec, random_state=3, batch_rows=37).fit(X_val, y_val)
    np.testing.assert_allclose(again.transform(X), embedded, rtol=1e-9, atol=1e-9)
    assert np.array_equal(pickle.loads(pickle.dumps(embedder)).transform(X), embedded)


def test_networks_differ_by_seed(digits):
    X_val, y_val, X, _ = digits
    first, second = (make_embedder("mlp:8", random_state=s).fit(X_val, y_val).transform(X) for s in (0, 1))
    assert not np.allclose(first, second)


@pytest.mark.parametrize("spec", ["lda", "logits", "mlp"])
def test_supervised_embedders_keep_the_classes_apart(digits, spec):
    X_val, y_val, X, y = digits
    embedder = make_embedder(spec, random_state=0).fit(X_val, y_val)
    model = KNeighborsClassifier(5).fit(embedder.transform(X_val), y_val)
    assert model.score(embedder.transform(X), y) > 0.8


def test_hidden_activations_are_those_of_the_network(digits):
    X_val, y_val, X, _ = digits
    embedded = make_embedder("mlp:16", random_state=0).fit(X_val, y_val).transform(X)
    assert (embedded >= 0).all()
    assert (embedded == 0).any()


def test_two_classes_have_one_logit(digits):
    X_val, y_val, X, _ = digits
    embedded = make_embedder("logits").fit(X_val, y_val > 4).transform(X)
    assert embedded.shape == (len(X), 1)


def test_an_unfitted_transformer_is_cloned_and_a_fitted_one_is_used_as_it_is(digits):
    X_val, y_val, X, _ = digits
    fresh = PCA(3)
    embedded = make_embedder(fresh).fit(X_val, y_val).transform(X)
    assert not hasattr(fresh, "components_")
    np.testing.assert_allclose(embedded, PCA(3).fit(X_val).transform(X))
    fitted = PCA(3).fit(X)
    kept = make_embedder(fitted).fit(X_val, y_val).transform(X)
    assert np.array_equal(kept, fitted.transform(X))
    stateless = make_embedder(FunctionTransformer(np.square)).fit(X_val, y_val)
    assert np.array_equal(stateless.transform(X), X**2)


def test_a_callable_sees_bounded_parts(digits):
    X_val, y_val, X, _ = digits
    seen = []

    def halve(rows):
        seen.append(len(rows))
        return rows[:, :5] / 2

    embedder = make_embedder(halve, batch_rows=128).fit(X_val, y_val)
    assert np.array_equal(embedder.transform(X), X[:, :5] / 2)
    assert seen == [128, 128, 44]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("pca", r"unknown embedder 'pca', expected one of standardize, pca:N"),
        ("pca:0", "number of 1 or more after the colon, found '0'"),
        ("mlp:x", "found 'x'"),
        ("lda:3", "unknown embedder"),
        ("resnet", "unknown embedder"),
    ],
)
def test_unknown_names_list_the_known(spec, message):
    with pytest.raises(ValueError, match=message):
        make_embedder(spec)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="embedder is int"):
        make_embedder(3)


@pytest.mark.parametrize("spec", ["lda", "logits", "mlp"])
def test_label_embedders_need_two_classes(digits, spec):
    X_val, y_val, _, _ = digits
    with pytest.raises(ValueError, match="hold only"):
        make_embedder(spec).fit(X_val, np.zeros_like(y_val))
    with pytest.raises(ValueError, match="needs the validation labels"):
        make_embedder(spec).fit(X_val)


def test_too_many_components_are_counted(digits):
    X_val, y_val, _, _ = digits
    with pytest.raises(ValueError, match="asks for 65 components, but 400 validation rows of 64 features"):
        make_embedder("pca:65").fit(X_val, y_val)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda rows: rows[:-1], r"shape \(127, 64\) for 128 rows"),
        (lambda rows: rows[:, 0], r"shape \(128,\) for 128 rows"),
        (lambda rows: np.log(rows - 1), "non-finite numbers for 128 rows, first at row 0"),
        (lambda rows: rows.astype(str), "expected numbers"),
        (lambda rows: rows[:, : 1 + len(rows) % 5], "returned 5 features at row 256, 4 before"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_faulty_outputs_are_named(digits, function, message):
    X_val, y_val, X, _ = digits
    with pytest.raises(ValueError, match=message):
        make_embedder(function, batch_rows=128).fit(X_val, y_val).transform(X)


def test_transform_needs_fit(digits):
    with pytest.raises(NotFittedError, match="is not fitted"):
        make_embedder("pca:2").transform(digits[2])


def test_logits_match_a_model_fitted_by_hand(digits):
    X_val, y_val, X, _ = digits
    expected = LogisticRegression(max_iter=1000).fit(X_val, y_val).decision_function(X)
    np.testing.assert_allclose(make_embedder("logits").fit(X_val, y_val).transform(X), expected, atol=1e-6)


NETWORK = """
import torch

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.conv(x)).mean(dim=(2, 3))

ready = Small()
not_a_module = dict

class Pair(Small):
    def forward(self, x):
        return x, x
"""


@pytest.fixture
def network(tmp_path, monkeypatch):
    (tmp_path / "own_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("own_network", None)
    import own_network  # ty: ignore[import-not-found]

    return own_network


@pytest.fixture
def photos():
    return np.random.default_rng(0).uniform(size=(10, 6 * 5 * 3)).astype(np.float32)


@pytest.mark.extra
def test_torch_weights_are_loaded_and_images_have_channels_first(network, photos, tmp_path):
    import torch

    weights = tmp_path / "small.pt"
    torch.save(network.ready.state_dict(), weights)
    embedder = make_embedder(f"torch:own_network.Small:{weights}", image_shape=(6, 5, 3), batch_rows=4)
    embedded = embedder.fit(photos).transform(photos)
    images = torch.from_numpy(photos.reshape(-1, 6, 5, 3).transpose(0, 3, 1, 2))
    expected = network.ready.eval()(images).detach().numpy()
    np.testing.assert_allclose(embedded, expected, rtol=1e-5, atol=1e-6)
    instance = make_embedder("torch:own_network.ready", image_shape=(6, 5, 3)).fit(photos)
    np.testing.assert_allclose(instance.transform(photos), embedded, rtol=1e-5, atol=1e-6)


@pytest.mark.extra
def test_torchscript_needs_no_code_beside_it(network, photos, tmp_path):
    import torch

    path = tmp_path / "small.pt"
    images = torch.from_numpy(photos.reshape(-1, 6, 5, 3).transpose(0, 3, 1, 2).copy())
    torch.jit.trace(network.ready.eval(), images).save(str(path))
    embedded = make_embedder(f"torch:{path}", image_shape=(6, 5, 3)).fit(photos).transform(photos)
    np.testing.assert_allclose(embedded, network.ready(images).detach().numpy(), rtol=1e-5, atol=1e-6)


class Explosive:
    def __reduce__(self):
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.extra
def test_weights_are_never_unpickled(network, tmp_path):
    import torch

    weights = tmp_path / "evil.pt"
    torch.save({"conv.weight": Explosive()}, weights)
    with pytest.raises(ValueError, match="does not hold plain tensors"):
        make_embedder(f"torch:own_network.Small:{weights}")
    with pytest.raises(ValueError, match="is no TorchScript"):
        make_embedder(f"torch:{weights}")
    with pytest.raises(ValueError, match="exported programs are not read"):
        make_embedder(f"torch:{tmp_path}/model.pt2")


@pytest.mark.extra
@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("torch:own_network.Small:absent.pt", FileNotFoundError, "no file of weights at absent.pt"),
        ("torch:absent.pt", FileNotFoundError, "no file of weights at absent.pt"),
        ("torch:own_network.Small:weights.bin", ValueError, r"end in '.bin', expected one of .safetensors"),
        ("torch:own_network.Absent", ValueError, "cannot import own_network.Absent"),
        ("torch:no_such_module.Net", ValueError, "cannot import no_such_module.Net"),
        ("torch:Small", ValueError, "expected module.attribute"),
        ("torch:own_network.not_a_module", ValueError, "gives dict, expected a torch.nn.Module"),
        ("timm:resnet18", ValueError, "nothing is downloaded"),
    ],
)
def test_wrong_networks_are_named(network, spec, error, message):
    with pytest.raises(error, match=message):
        make_embedder(spec)


@pytest.mark.extra
def test_weights_of_another_network_and_other_outputs_are_refused(network, photos, tmp_path):
    import torch

    weights = tmp_path / "other.pt"
    torch.save({"conv.weight": torch.zeros(1)}, weights)
    with pytest.raises(ValueError, match=r"does not fit own_network.Small"):
        make_embedder(f"torch:own_network.Small:{weights}")
    with pytest.raises(ValueError, match="returned tuple, expected one tensor"):
        make_embedder("torch:own_network.Pair", image_shape=(6, 5, 3)).fit(photos).transform(photos)


def test_a_chain_fits_each_part_on_what_the_part_before_it_makes(digits):
    X_val, y_val, X, _ = digits
    chain = make_embedder("pca:2+lda", random_state=0).fit(X_val, y_val)
    # The parts share the seed of the whole.
    seed = int(np.random.default_rng(0).integers(2**31 - 1))
    pca = PCA(2, random_state=seed).fit(X_val)
    lda = make_embedder("lda").fit(pca.transform(X_val), y_val)
    np.testing.assert_allclose(chain.transform(X), lda.transform(pca.transform(X)), atol=1e-9)
    assert chain.transform(X).shape == (len(X), 2)


def test_a_chain_with_a_network_survives_pickle_and_does_not_see_the_scale(digits):
    X_val, y_val, X, _ = digits
    chain = make_embedder("standardize+mlp:8", random_state=0).fit(X_val, y_val)
    embedded = chain.transform(X)
    assert embedded.shape == (len(X), 8)
    assert np.array_equal(pickle.loads(pickle.dumps(chain)).transform(X), embedded)
    large = make_embedder("standardize+mlp:8", random_state=0).fit(64 * X_val, y_val)
    np.testing.assert_allclose(large.transform(64 * X), embedded, atol=1e-9)


@pytest.mark.parametrize(
    ("spec", "part"),
    [("standardize+resnet", "resnet"), ("pca+mlp", "pca"), ("pca:2+", ""), ("+mlp", ""), ("pca:2+torch:m", "torch:m")],
)
def test_an_unknown_part_of_a_chain_is_named(spec, part):
    with pytest.raises(ValueError, match=f"unknown embedder '{part}', expected one of"):
        make_embedder(spec)
