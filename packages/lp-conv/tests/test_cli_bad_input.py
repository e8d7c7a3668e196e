from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from icl25_lp_conv.cli import VERBS, main
from icl25_lp_conv.conversion import convert
from icl25_lp_conv.datasets.sudoku import generate, save_csv
from icl25_lp_conv.model_files import save_model
from icl25_lp_conv.models import ModelSource, digits_resnet, sudoku_cnn

SMALL = "digits-resnet(widths=(4, 6, 8))"
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
RSA = ("rsa", "--model", "net.pt", "--images", "stimuli.npz", "--brain", "brain.npz", "--out", "run")


@pytest.fixture
def files(tmp_path):
    """Files that are in order, and a folder."""
    save_model(tmp_path / "net.pt", convert(digits_resnet(widths=(4, 6, 8))), ModelSource(SMALL))
    save_model(tmp_path / "plain.pt", digits_resnet(widths=(4, 6, 8)), ModelSource(SMALL))
    save_model(tmp_path / "sudoku.pt", sudoku_cnn(1, 4), ModelSource("sudoku-cnn(depth=1, width=4)"))
    torch.save(digits_resnet(widths=(4, 6, 8)).state_dict(), tmp_path / "weights.pt")
    save_csv(tmp_path / "puzzles.csv", generate(6, clues=60))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "images.npz", x=rng.integers(0, 256, (20, 8, 8), np.uint8), y=np.arange(20) % 2)
    np.savez(tmp_path / "stimuli.npz", x=rng.integers(0, 256, (6, 9, 9), np.uint8))
    recordings = np.stack([np.corrcoef(rng.normal(size=(6, 30))) for _ in range(2)], axis=-1)
    np.savez(tmp_path / "brain.npz", allow_pickle=False, V1=recordings)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "exists.pt").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "nowhere.pt"),
        ("convert", "./nowhere"),
        ("merge", "nowhere.pt"),
        ("inspect", "nowhere.pt"),
        ("train", "nowhere"),
        ("rsa", "--model", "nowhere.pt", "--images", "nowhere", "--brain", "nowhere.npz"),
        ("sudoku", "train", "nowhere.csv"),
        ("sudoku", "eval", "nowhere.pt", "nowhere.csv"),
        ("sudoku", "solve", "nowhere.csv"),
        ("sudoku", "solve", PUZZLE, "--model", "nowhere.pt"),
        ("reproduce", "--data", "nowhere"),
    ],
)
def test_missing_files_are_refused_before_anything_slow_is_imported(refused, monkeypatch, arguments):
    for name in [name for name in sys.modules if name.startswith("icl25_lp_conv.") and name.endswith("verbs")]:
        monkeypatch.setitem(sys.modules, name, None)  # importing it would fail
    assert "no such file or folder" in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "folder"), "folder is a folder, expected a file"),
        (("merge", "folder"), "folder is a folder, expected a file"),
        (("inspect", "folder"), "folder is a folder, expected a file"),
        (("sudoku", "train", "folder"), "folder is a folder, expected a file"),
        (("sudoku", "solve", "folder"), "folder is a folder, expected a file"),
        (("convert", "net.pt", "--p", 0), "--p must be a positive number or none, found '0'"),
        (("convert", "net.pt", "--p", -2), "--p must be a positive number or none, found '-2'"),
        (("convert", "net.pt", "--p", "nan"), "--p must be a positive number or none, found 'nan'"),
        (("convert", "net.pt", "--p", "box"), "--p must be a positive number or none, found 'box'"),
        (("convert", "net.pt", "--growth", 0.5), "growth must be a finite factor >= 1, found 0.5"),
        (("convert", "net.pt", "--transfer", "all"), "all"),
        (("convert", "net.pt", "--out", "net.pt"), "--out net.pt exists: --force replaces it"),
        (("convert", "net.pt", "--out", "folder"), "--out folder is a folder, expected a file such as folder/model.pt"),
        (("convert", "net.pt", "--out", "net.onnx"), "expected a name that ends in .pt or .safetensors"),
        (("convert", "net.pt", "--pretrained"), "--pretrained is for names of models, but net.pt is a file"),
        (("convert", "net.pt", "--num-classes", 3), "--num-classes and --small-images belong to --architecture"),
        (("convert", "digits-resnet", "--model", "alexnet"), "--architecture is for files, but there is no file"),
        (("convert", "digits-resnt"), "did you mean digits-resnet"),
        (("convert", "digits-resnet(widht=3)"), "digits-resnet has no option widht; it has num_classes, widths"),
        (("convert", "digits-resnet(widths=(4, 0, 8))"), "widths must be >= 1, found 0"),
        (("convert", "sudoku-cnn", "--num-classes", 3), "sudoku-cnn has no classes"),
        (("convert", "weights.pt"), "weights.pt holds weights alone: name the network that they are of with --arch"),
        (("convert", "weights.pt", "--model", "sudoku-cnn(depth=1, width=4)"), "weights.pt does not fit sudoku-cnn"),
        (("convert", "net.pt", "--model", "digits-resnet"), "net.pt holds ModelSource"),
        (("merge", "net.pt", "--crop", 1), "--crop must lie in [0, 1), found 1.0"),
        (("merge", "net.pt", "--crop", -0.1), "--crop must lie in [0, 1), found -0.1"),
        (("merge", "net.pt", "--input-size", "1,a"), "--input-size must be whole numbers such as 3,224,224"),
        (("merge", "net.pt", "--input-size", "3,20,20"), "no input of size 3,20,20, say it with --input-size"),
        (("merge", "net.pt", "--onnx", "net.pt"), "--onnx net.pt: expected a name that ends in .onnx"),
        (("merge", "net.pt", "--out", "exists.pt"), "--out exists.pt exists"),
        (("merge", "net.pt", "--device", "cuda:9"), "there is no device 'cuda:9'"),
        (("inspect", "plain.pt"), "plain.pt has no layer with masks"),
        (("inspect", "net.pt", "--channels", 0), "--channels must be >= 1, found 0"),
        (("inspect", "net.pt", "--out", "exists.pt"), "--out exists.pt is a file, expected a folder"),
        (("train", "images.npz", "--model", "digits-resnet", "--preset", "lp3"), "there is no preset 'lp3'; did you"),
        (("train", "images.npz", "--model", "digits-resnet", "--preset", "none"), "choose one of base, large, lp2,"),
        (("train", "images.npz", "--model", "digits-resnet", "--lr", 0), "lr must be > 0, found 0"),
        (("train", "images.npz", "--model", "digits-resnet", "--size", 0), "size"),
        (("train", "images.npz", "--model", "digits-resnet", "--resume"), "name it with --out"),
        (("train", "images.npz", "--model", "digits-resnet", "--resume", "--out", "run"), "no run to resume in run"),
        (("train", "images.npz", "--model", "digits-resnet", "--out", "exists.pt"), "exists.pt is a file"),
        (("train", "stimuli.npz", "--model", "digits-resnet"), "there is no array y; it holds x"),
        (("train", "folder", "--model", "digits-resnet"), "folder has 0 folders, expected one for each"),
        (("train", "images.npz", "--model", "digits-resnt"), "did you mean digits-resnet"),
        ((*RSA, "--permutations", -1), "--permutations must be >= 0, found -1"),
        ((*RSA, "--batch-size", 0), "--batch-size must be >= 1, found 0"),
        ((*RSA, "--layers", "conv9"), "no layer 'conv9'"),
        ((*RSA, "--images", "folder"), "folder holds no image"),
        ((*RSA, "--images", "puzzles.csv"), "puzzles.csv: expected a folder of images or an NPZ file"),
        ((*RSA, "--brain", "puzzles.csv"), "puzzles.csv: line 1, column 1 holds 'quizzes'"),
        ((*RSA, "--brain", "net.pt"), "net.pt: unknown kind of file '.pt'"),
        ((*RSA, "--ceiling", "stimuli.npz"), "stimuli.npz: area 'x' has shape"),
        (("sudoku", "gen", "--n", 0, "--out", "new.csv"), "n must be >= 1, found 0"),
        (("sudoku", "gen", "--clues", 12, "--out", "new.csv"), "clues must be 17 .. 81, found 12"),
        (("sudoku", "gen"), "--out puzzles.csv exists: --force replaces it"),
        (("sudoku", "gen", "--out", "puzzles.txt"), "expected a name that ends in .csv"),
        (("sudoku", "train", "puzzles.csv", "--depth", 0), "depth must be >= 1, found 0"),
        (("sudoku", "train", "puzzles.csv", "--train-share", 1), "--train-share must lie between 0 and 1, found 1"),
        (("sudoku", "train", "puzzles.csv", "--preset", "gauss-frozn"), "did you mean gauss-frozen?"),
        (("sudoku", "train", "puzzles.csv", "--resume", "--force"), "--resume and --force exclude each other"),
        (("sudoku", "eval", "net.pt", "puzzles.csv"), "net.pt holds digits-resnet(widths=(4, 6, 8)), expected a net"),
        (("sudoku", "eval", "sudoku.pt", "stimuli.npz"), "stimuli.npz is not"),
        (("sudoku", "solve", PUZZLE[:-1]), "expected 81 digits, found 80 characters"),
        (("sudoku", "solve", f"55{PUZZLE[2:]}"), "digit 5 stands twice in row 1"),
        (("sudoku", "solve", PUZZLE, "--out", "puzzles.csv"), "--out puzzles.csv exists"),
    ],
)
def test_wrong_input_is_refused_in_one_line(refused, files, arguments, message):
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file()}
    assert message in refused(*arguments)
    after = {path: path.read_bytes() for path in files.rglob("*") if path.is_file() and path.parent.name != "run"}
    assert after == before


@pytest.mark.parametrize("verb", [("merge",), ("inspect",), ("convert",)])
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.pt", b"", "bad.pt is not a readable file of torch"),
        ("bad.pt", b"PK\x03\x04 and nothing more", "bad.pt"),
        ("bad.safetensors", b"\x10\x00\x00\x00\x00\x00\x00\x00 no header", "bad.safetensors is not a safetensors file"),
        ("bad.csv", b"a,b\n1,2\n", "bad.csv: a model file must end in"),
    ],
)
def test_model_files_that_cannot_be_read_are_named(refused, verb, name, content, message):
    Path(name).write_bytes(content)
    assert message in refused(*verb, name)


def test_objects_in_model_files_are_not_unpickled(refused):
    torch.save({"model": digits_resnet()}, "objects.pt")
    assert "that is not read: only tensors, strings and numbers are" in refused("inspect", "objects.pt")


def test_a_file_may_not_choose_the_function_that_is_called(refused, files):
    content = torch.load("net.pt", weights_only=True)
    record = json.loads(content["icl25-lp-conv"])
    record["source"]["name"] = "os:getcwd"
    torch.save({**content, "icl25-lp-conv": json.dumps(record)}, "hostile.pt")
    assert "which a file may not call by itself" in refused("merge", "hostile.pt")


@pytest.mark.parametrize(
    "verb", [("train", "objects.npz", "--model", "digits-resnet"), (*RSA, "--images", "objects.npz")]
)
def test_arrays_of_objects_are_refused(refused, files, verb):
    np.savez("objects.npz", x=np.array([{"a": 1}] * 6, object), y=np.arange(6))
    assert "it holds Python objects" in refused(*verb)


def test_recordings_of_objects_are_refused(refused, files):
    np.savez("objects.npz", V1=np.array([[1, "a"], ["b", 1]], object))
    assert "area 'V1': holds Python objects, which are never unpickled" in refused(*RSA, "--brain", "objects.npz")


def test_recordings_of_other_stimuli_are_refused(refused, files):
    np.savez("other.npz", V1=np.corrcoef(np.random.default_rng(0).normal(size=(7, 20))))
    assert "area 'V1' has 7 stimuli, but stimuli has 6" in refused(*RSA, "--brain", "other.npz")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((6, 9, 9), np.int64), "holds int64, expected bytes (uint8) or floating point"),
        (np.zeros((6, 9, 9, 3), np.uint8), "expected (n, h, w, 1), as the network takes 1 channels"),
        (np.full((6, 1, 9, 9), np.nan, np.float32), "stimulus 0 holds NaN"),
        (np.zeros((6, 3, 9, 9), np.float32), "the network takes no stimuli of shape (3, 9, 9)"),
    ],
)
def test_stimuli_that_do_not_fit_are_refused(refused, files, x, message):
    np.savez("odd.npz", x=x)
    assert message in refused(*RSA, "--images", "odd.npz")


def test_pictures_of_several_sizes_need_a_size(refused, files):
    for number, side in enumerate((8, 9, 9, 9, 9, 9)):
        Image.fromarray(np.full((side, side), 40 * number, np.uint8)).save(f"folder/{number}.png")
    assert "pass a size to bring all images to" in refused(*RSA, "--images", "folder")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "bad.csv is empty, expected the columns quizzes and solutions"),
        ("quizzes,answers\n", "bad.csv has no column 'solutions'; it has 'quizzes', 'answers'"),
        ("quizzes,solutions\n", "bad.csv holds no puzzles, only a header"),
        (f"quizzes,solutions\n{80 * '0'},{81 * '1'}\n", "row 1, column 'quizzes': expected 81 digits, found 80"),
        (f"quizzes,solutions\n{81 * '0'},{81 * '1'}\n", "row 1, column 'solutions': not a completed board"),
        (f"quizzes,solutions\n11{79 * '0'},{81 * '1'}\n", "illegal givens, digit 1 stands twice in row 1"),
    ],
)
def test_faulty_puzzles_are_named_by_row_and_column(refused, content, message):
    Path("bad.csv").write_text(content)
    assert message in refused("sudoku", "train", "bad.csv", "--depth", 1, "--width", 2)


def test_a_puzzle_without_solution_is_named_by_its_row(refused, files):
    impossible = "123456780" + "000000009" + 63 * "0"
    Path("two.csv").write_text(f"quizzes\n{PUZZLE.replace('.', '0')}\n{impossible}\n")
    assert "two.csv, row 2: the puzzle has no solution" in refused("sudoku", "solve", "two.csv")


def test_a_missing_extra_is_named_with_what_installs_it(refused, files, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = refused("merge", "net.pt", "--onnx", "net.onnx")
    assert message == "--onnx needs onnx: pip install 'icl25-lp-conv[onnx]'"
    assert not Path("merged.pt").exists()
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert 'pip install "icl25-lp-conv[vision]"' in refused("convert", "resnet18")
    assert 'pip install "icl25-lp-conv[vision]"' in refused("train", "images.npz")


@pytest.mark.extra
def test_unknown_networks_are_answered_with_close_names(refused, vision):
    assert importlib.util.find_spec("timm") is not None
    assert "resnet18" in refused("convert", "resnet81")


def test_a_crash_leaves_the_old_file(refused, files, monkeypatch, capsys):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.save", full)
    before = Path("exists.pt").read_bytes()
    status = main(["convert", "plain.pt", "--out", "exists.pt", "--force", "--quiet"])
    assert status == 1
    assert "the disk is full" in capsys.readouterr().err
    assert Path("exists.pt").read_bytes() == before
    assert not list(Path().glob("*.part*"))


def test_every_verb_refuses_what_it_does_not_know(refused):
    for verb in VERBS:
        positional = {"sudoku eval": ["a", "b"], "rsa": [], "sudoku gen": [], "demo": [], "reproduce": []}
        required = ["--model", "a", "--images", "b", "--brain", "c"] if verb == "rsa" else []
        message = refused(*verb.split(), *positional.get(verb, ["a"]), *required, "--sead", 3)
        assert message == "unrecognized option --sead (did you mean --seed?)"


def test_networks_with_nan_are_refused_by_name(refused, files):
    state = digits_resnet(widths=(4, 6, 8)).state_dict()
    state["stem.0.weight"][0, 0, 1, 2] = float("nan")
    torch.save(state, "nan.pt")
    message = refused("convert", "nan.pt", "--architecture", SMALL, "--out", "out.pt")
    assert message == f"nan.pt does not fit {SMALL}: stem.0.weight has 1 values that are not finite"
    assert not Path("out.pt").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--include", "nothing.*"), "no convolution was converted: stem.0 (not included)"),
        (("--min-kernel", 9), "no convolution was converted: stem.0 (kernel size 3x3)"),
        (("--min-kernel", 9, "--max-kernel", 3), "min_kernel must be <= max_kernel, found 9 and 3"),
        (("--growth", 1e9), "growth must be <= 100, found 1000000000.0"),
    ],
)
def test_converting_nothing_is_no_success(refused, files, flags, message):
    assert message in refused("convert", "plain.pt", *flags, "--out", "out.pt")
    assert not Path("out.pt").exists()


def test_a_second_conversion_is_no_error(cli, files):
    assert cli("convert", "net.pt", "--out", "out.pt").status == 0


def test_a_device_that_is_not_there_is_refused_by_every_verb(refused, files, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no device 'cuda'" in refused("convert", "plain.pt", "--out", "out.pt", "--device", "cuda")


def test_a_function_that_takes_no_classes_is_named(refused, files, monkeypatch):
    Path("mine.py").write_text("from torch import nn\n\ndef net():\n    return nn.Conv2d(1, 1, 3)\n")
    monkeypatch.syspath_prepend(".")
    message = refused("train", "images.npz", "--model", "mine:net", "--out", "run")
    assert message.startswith("mine:net cannot be called with {'num_classes': 2}")


def test_a_folder_that_cannot_be_written_is_named(cli, files):
    ran = cli("convert", "plain.pt", "--out", "/proc/out.pt")
    assert ran.status == 2
    assert "/proc" in ran.err
    assert "internal error" not in ran.err
