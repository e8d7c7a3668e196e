from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from icl25_lp_conv.conversion import convert, merge
from icl25_lp_conv.datasets.sudoku import Sudokus, format_board, generate, load_csv, metrics, save_csv
from icl25_lp_conv.model_files import load_model, save_model
from icl25_lp_conv.models import ModelSource, digits_resnet, sudoku_cnn
from icl25_lp_conv.sudoku_training import complete

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
SOLUTION = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
SMALL = "digits-resnet(widths=(4, 6, 8))"


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_convert_writes_the_network_and_says_what_it_changed(cli, lp_layers):
    ran = cli("convert", SMALL, "--exclude", "*shortcut*, stem.*", "--p", 4, "--quiet")
    assert ran.status == 0
    assert ran.err == ""
    assert "10 convolutions converted" in ran.out
    assert "left as it is: stem.0, blocks.1.shortcut.0, blocks.3.shortcut.0 (excluded)" in ran.out
    loaded = load_model("model.pt")
    assert loaded.source == ModelSource(SMALL)
    layers = lp_layers(loaded.model)
    assert len(layers) == 10
    assert not any("shortcut" in name or "stem" in name for name in layers)
    for name, layer in layers.items():
        assert layer.kernel_size == (7, 7)
        assert layer.p is not None
        assert layer.p.eq(4).all()
        [line] = [line for line in ran.out.splitlines() if f" {name} " in line]
        assert "3x3 -> 7x7" in line


def test_every_option_of_convert_reaches_the_layers(cli, lp_layers):
    flags = ("--growth", 3, "--mask-sharing", "layer", "--include", "blocks.*", "--min-kernel", 2, "--seed", 5)
    ran = cli("convert", SMALL, *flags, "--transfer", "none", "-o", "net.safetensors", "--json")
    assert ran.status == 0
    layers = lp_layers(load_model("net.safetensors").model)
    assert len(layers) == len(ran.json["layers"]) == 10
    assert set(ran.json["skipped"]) == {"stem.0", "blocks.1.shortcut.0", "blocks.3.shortcut.0"}
    for layer in layers.values():
        assert layer.kernel_size == (9, 9)
        assert layer.C is not None
        assert len(layer.C) == 1
        assert layer.weight[:, :, 0, 0].abs().min() > 0
    assert ran.json["parameters"] > ran.json["parameters_before"]


def test_large_kernels_without_masks(cli, lp_layers):
    assert cli("convert", SMALL, "--p", "none").status == 0
    assert all(layer.C is None for layer in lp_layers(load_model("model.pt").model).values())


def test_the_seed_decides_the_weights(cli):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert cli("convert", SMALL, "--seed", seed, "-o", f"{name}.safetensors").status == 0
    contents = [Path(f"{name}.safetensors").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]


def test_convert_takes_checkpoints_of_weights_alone(cli):
    plain = digits_resnet(widths=(4, 6, 8)).eval()
    torch.save({"model": plain.state_dict()}, "checkpoint.pth")
    flags = ("--model", SMALL, "--transfer", "exact")
    assert cli("convert", "checkpoint.pth", *flags, "-o", "exact.pt").status == 0
    x = torch.randn(2, 1, 20, 20)
    torch.testing.assert_close(load_model("exact.pt").model(x), plain(x), rtol=1e-4, atol=1e-5)


def test_converting_again_changes_nothing_and_warns(cli, masked):
    ran = cli("convert", "model.pt", "--min-kernel", 2, "-o", "again.pt")
    assert ran.status == 0
    assert "no convolution was converted" in ran.err
    assert same_weights(load_model("again.pt").model, masked)


def test_merge_leaves_plain_convolutions_that_compute_the_same(cli, masked, lp_layers):
    ran = cli("merge", "model.pt", "--json")
    assert ran.status == 0
    assert ran.json["agrees"] is True
    assert ran.json["input_size"] == [1, 20, 20]
    assert ran.json["largest_difference"] <= 1e-4 * ran.json["largest_output"]
    merged = load_model("merged.pt").model
    assert not lp_layers(merged)
    x = torch.randn(3, 1, 15, 18)
    torch.testing.assert_close(merged(x), masked(x), rtol=1e-4, atol=1e-5)


def test_merge_crops_and_says_by_how_much_the_output_changes(cli, masked):
    ran = cli("merge", "model.pt", "--crop", 0.3, "--input-size", "1x16x16", "--seed", 3)
    assert ran.status == 0
    assert "changed by what was cropped" in ran.out
    cropped = load_model("merged.pt").model
    assert same_weights(cropped, merge(masked, crop=0.3))
    rng = np.random.default_rng(3)
    x = torch.as_tensor(rng.standard_normal((2, 1, 16, 16)), dtype=torch.float32)
    difference = float((cropped(x) - masked(x)).detach().abs().max())
    assert difference > 0
    assert f"largest difference on random input: {difference:.2g}" in ran.out


def test_a_merge_that_changes_the_function_fails(cli, masked, monkeypatch):
    def broken(model, crop):
        wrong = merge(model, crop=crop)
        with torch.no_grad():
            next(wrong.parameters()).mul_(1.5)
        return wrong

    monkeypatch.setattr("icl25_lp_conv.verbs.merge", broken)
    ran = cli("merge", "model.pt")
    assert ran.status == 1
    assert "NOT the same" in ran.out


@pytest.mark.extra
def test_merge_writes_onnx_that_agrees(cli, masked):
    from onnxruntime import InferenceSession

    ran = cli("merge", "model.pt", "--onnx", "model.onnx", "--json")
    assert ran.status == 0
    assert ran.json["onnx_difference"] < 1e-5
    assert sorted(path.name for path in Path().iterdir()) == ["merged.pt", "model.onnx", "model.pt"]
    session = InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    x = torch.randn(5, 1, 20, 20)
    [found] = session.run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.as_tensor(found), masked(x).detach(), rtol=1e-3, atol=1e-5)


def test_inspect_describes_every_mask(cli, two_layers, lp_layers):
    ran = cli("inspect", "two.pt", "-o", "shapes")
    assert ran.status == 0
    table = pd.read_csv("shapes/masks.csv")
    assert list(table) == ["layer", "channel", "p", "alpha", "gamma", "theta", "area", "sparsity"]
    layers = lp_layers(two_layers)
    assert table["layer"].unique().tolist() == list(layers)
    for name, layer in layers.items():
        mine, expected = table[table["layer"] == name], layer.shape_summary()
        for column, values in expected.items():
            assert mine[column].tolist() == pytest.approx(values.tolist(), rel=1e-6)
        [line] = [line for line in ran.out.splitlines() if f" {name} " in line]
        assert f"{np.median(expected['gamma']):.3g}" in line
    for name in ("masks.png", "shapes.png"):
        with Image.open(f"shapes/{name}") as image:
            assert min(image.size) > 300


def test_inspect_gives_the_summary_as_json(cli, two_layers, lp_layers):
    ran = cli("inspect", "two.pt", "--channels", 1, "--json")
    assert ran.status == 0
    assert [line["layer"] for line in ran.json["layers"]] == list(lp_layers(two_layers))
    assert ran.json["layers"][0]["masks"] == 5
    assert ran.json["files"] == ["masks/masks.csv", "masks/masks.png", "masks/shapes.png"]


@pytest.mark.extra
def test_networks_of_torchvision_are_converted_by_name(cli, vision):
    ran = cli("convert", "resnet18", "--num-classes", 100, "--small-images", "--json")
    assert ran.status == 0
    assert (ran.json["parameters_before"], ran.json["parameters"]) == (11_220_132, 61_452_388)
    assert len(ran.json["layers"]) == 20
    merged = cli("merge", "model.pt", "--json")
    assert merged.status == 0
    assert merged.json["input_size"] == [3, 32, 32]
    assert merged.json["agrees"] is True


@pytest.fixture
def puzzles(tmp_path) -> Sudokus:
    """Puzzles, which lie in puzzles.csv too."""
    data = generate(30, seed=1, clues=60)
    save_csv(tmp_path / "puzzles.csv", data)
    return data


def test_puzzles_are_generated_as_the_seed_says(cli):
    ran = cli("sudoku", "gen", "--n", 4, "--clues", 40, "--unique", "--seed", 2)
    assert ran.status == 0
    data, expected = load_csv("puzzles.csv"), generate(4, seed=2, clues=40, unique=True)
    assert np.array_equal(data.puzzles, expected.puzzles)
    assert np.array_equal(data.solutions, expected.solutions)
    assert " ".join(map(str, expected.solutions[0, 0, :3])) in ran.out


def test_a_puzzle_is_solved_exactly_and_drawn(cli):
    ran = cli("sudoku", "solve", PUZZLE)
    assert ran.status == 0
    assert ran.out.splitlines()[0] == "5 3 . | . 7 . | . . .      5 3 4 | 6 7 8 | 9 1 2"
    assert cli("sudoku", "solve", PUZZLE, "--json").json == {
        "puzzles": [PUZZLE.replace(".", "0")],
        "solutions": [SOLUTION],
        "valid": [True],
    }


def test_puzzles_of_a_file_are_solved_line_by_line(cli, puzzles):
    ran = cli("sudoku", "solve", "puzzles.csv", "--quiet")
    assert ran.status == 0
    solutions = ran.out.splitlines()
    assert len(solutions) == 30
    assert cli("sudoku", "solve", "puzzles.csv", "-o", "solved.csv").status == 0
    solved = load_csv("solved.csv")
    assert [format_board(board) for board in solved.solutions] == solutions
    assert np.array_equal(solved.puzzles, puzzles.puzzles)
    assert metrics(solved.solutions).solved.all()


def test_a_network_completes_puzzles_and_owns_up_to_mistakes(cli, puzzles):
    model = convert(sudoku_cnn(1, 4, seed=0)).eval()
    save_model("net.pt", model, ModelSource("sudoku-cnn(depth=1, width=4)"))
    ran = cli("sudoku", "solve", "puzzles.csv", "--model", "net.pt", "--json")
    assert ran.status == 1
    assert "30 of 30 boards break the rules" in ran.err
    assert ran.json["valid"] == [False] * 30
    assert ran.json["solutions"] == [format_board(board) for board in complete(model, puzzles.puzzles)]


def run_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "icl25_lp_conv", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_process_of_its_own_gives_the_same_bytes(cli, tmp_path):
    ran = run_process(tmp_path, "sudoku", "gen", "--n", "20", "-o", "first.csv", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["n"] == 20
    assert cli("sudoku", "gen", "--n", 20, "-o", "second.csv").status == 0
    assert Path("first.csv").read_bytes() == Path("second.csv").read_bytes()


def test_a_process_of_its_own_says_what_is_wrong_in_one_line(tmp_path):
    ran = run_process(tmp_path, "sudoku", "train", "nowhere.csv")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == "icl25-lp-conv sudoku train: error: nowhere.csv: no such file or folder\n"
