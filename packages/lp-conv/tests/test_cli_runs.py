from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icl25_lp_conv.datasets.sudoku import Sudokus, generate, save_csv
from icl25_lp_conv.model_files import load_model
from icl25_lp_conv.models import ModelSource
from icl25_lp_conv.rsa import best_layers, rsa
from icl25_lp_conv.sudoku_training import evaluate


@pytest.fixture
def puzzles(tmp_path) -> Sudokus:
    """Puzzles, which lie in puzzles.csv too."""
    data = generate(30, seed=1, clues=60)
    save_csv(tmp_path / "puzzles.csv", data)
    return data


TRAIN = ("sudoku", "train", "puzzles.csv", "--depth", 1, "--width", 6, "--batch-size", 5, "--lr", 1e-2)


def test_a_trained_network_is_scored_on_what_was_held_out(cli, puzzles, lp_layers):
    ran = cli(*TRAIN, "--epochs", 2, "--preset", "lp4", "--out", "run", "--json")
    assert ran.status == 0
    assert ran.json["puzzles"] == {"train": 24, "held_out": 6}
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert lines == [{"epoch": k, "loss": loss} for k, loss in enumerate(ran.json["losses"], start=1)]
    assert ran.json["losses"][1] < ran.json["losses"][0]
    loaded = load_model("run/model.safetensors")
    assert loaded.source == ModelSource("sudoku-cnn(depth=1, width=6)")
    assert {layer.kernel_size for layer in lp_layers(loaded.model).values()} == {(7, 7), (3, 3)}
    assert json.loads(Path("run/run.json").read_text())["status"] == "finished"
    assert json.loads(Path("run/scores.json").read_text()) == ran.json["scores"]
    scored = cli("sudoku", "eval", "run/model.safetensors", "puzzles.csv", "--json", "-o", "all.json")
    assert scored.status == 0
    scores = evaluate(loaded.model, *puzzles)
    assert scored.json["number"] == scores.number
    assert scored.json["row"] == scores.row
    assert json.loads(Path("all.json").read_text()) == scored.json


def test_a_run_goes_on_where_it_broke_off_with_the_same_result(cli, puzzles):
    assert cli(*TRAIN, "--epochs", 3, "--out", "whole").status == 0
    assert cli(*TRAIN, "--epochs", 1, "--out", "parts").status == 0
    assert Path("whole/model.safetensors").read_bytes() != Path("parts/model.safetensors").read_bytes()
    assert cli(*TRAIN, "--epochs", 3, "--out", "parts", "--resume").status == 0
    for name in ("model.safetensors", "metrics.jsonl", "scores.json"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


def test_a_run_is_begun_anew_on_demand_only(cli, puzzles):
    assert cli(*TRAIN, "--epochs", 1, "--out", "run").status == 0
    before = Path("run/model.safetensors").read_bytes()
    refused = cli(*TRAIN, "--epochs", 1, "--out", "run", "--seed", 1)
    assert refused.status == 2
    assert "--resume goes on with a run that broke off, --force begins anew" in refused.err
    assert Path("run/model.safetensors").read_bytes() == before
    assert cli(*TRAIN, "--epochs", 1, "--out", "run", "--seed", 1, "--force").status == 0
    assert Path("run/model.safetensors").read_bytes() != before


@pytest.fixture
def images(tmp_path) -> np.ndarray:
    """Grey images of two classes, bright at the top or at the bottom, which lie in images.npz too."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 128, (40, 8, 8), np.uint8)
    x[:20, :4] += 120
    x[20:, 4:] += 120
    np.savez(tmp_path / "images.npz", x=x, y=np.repeat(["top", "bottom"], 20))
    return x


CLASSIFY = ("train", "images.npz", "--model", "digits-resnet", "--batch-size", 8, "--lr", 0.01)


def test_a_classifier_is_trained_and_saved(cli, images, lp_layers):
    ran = cli(*CLASSIFY, "--epochs", 3, "--preset", "lp4", "--out", "run", "--json")
    assert ran.status == 0
    assert ran.json["images"] == {"train": 32, "validation": 8}
    assert ran.json["last"]["val_top1"] > 0.8
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert lines[-1] == ran.json["last"]
    loaded = load_model("run/model.safetensors")
    assert loaded.source == ModelSource("digits-resnet(in_channels=1)", 2)
    assert len(lp_layers(loaded.model)) == 13
    assert json.loads(Path("run/run.json").read_text())["config"]["preset"] == "lp4"


def test_a_classifier_goes_on_where_its_training_broke_off(cli, images):
    flags = (*CLASSIFY, "--preset", "base", "--epochs", 2)
    assert cli(*flags, "--out", "whole").status == 0
    assert cli(*flags, "--out", "parts").status == 0
    before = Path("parts/model.safetensors").read_bytes()
    Path("parts/model.safetensors").unlink()
    assert cli(*flags, "--out", "parts", "--resume").status == 0
    assert Path("parts/model.safetensors").read_bytes() == before == Path("whole/model.safetensors").read_bytes()


def test_a_training_that_diverges_fails(cli, images):
    ran = cli(*CLASSIFY, "--epochs", 3, "--lr", "1e30", "--out", "run")
    assert ran.status == 1
    assert ran.out.startswith("training failed: the loss is nan at step")
    assert json.loads(Path("run/run.json").read_text())["status"] == "failed"


@pytest.fixture
def recordings(tmp_path) -> dict[str, np.ndarray]:
    """Recordings of two areas for ten stimuli, which lie in stimuli.npz, in a folder of pictures, and in brain.npz."""
    rng = np.random.default_rng(1)
    pictures = rng.integers(0, 256, (10, 9, 9), np.uint8)
    np.savez(tmp_path / "stimuli.npz", x=pictures)
    (tmp_path / "pictures").mkdir()
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / "pictures" / f"{number + 1}.png")  # 10.png comes last
    seen = rng.normal(size=(10, 30))
    brain = {
        area: np.stack([np.corrcoef(seen + noise * rng.normal(size=seen.shape)) for _ in range(3)], axis=-1)
        for area, noise in (("V1", 0.3), ("V2", 0.6))
    }
    np.savez(tmp_path / "brain.npz", allow_pickle=False, **brain)
    np.savez(tmp_path / "ceilings.npz", allow_pickle=False, V1=np.array([0.5, 0.4, 0.6]), V2=np.array([0.25]))
    return brain


def test_layers_are_compared_with_areas(cli, two_layers, recordings):
    flags = ("--model", "two.pt", "--brain", "brain.npz", "--ceiling", "ceilings.npz", "--permutations", 9)
    ran = cli("rsa", *flags, "--images", "stimuli.npz", "--out", "run", "--layers", "blocks.*.conv", "--json")
    assert ran.status == 0
    table = pd.read_csv("run/similarities.csv")
    x = (np.load("stimuli.npz")["x"][:, None] / 255).astype(np.float32)
    stimuli = (x - np.mean([0.485, 0.456, 0.406])) / np.mean([0.229, 0.224, 0.225])
    ceilings = {"V1": np.array([0.5]), "V2": np.array([0.25])}
    layers = ["blocks.0.conv", "blocks.1.conv"]
    expected = rsa(two_layers, stimuli.astype(np.float32), recordings, ceilings, layers, n_permutations=9)
    pd.testing.assert_frame_equal(table, expected, check_exact=False, rtol=1e-9)
    assert {line["area"]: line["layer"] for line in ran.json["best"]} == {
        row["area"]: row["layer"] for _, row in best_layers(expected).iterrows()
    }
    for name in ("layers.png", "areas.png"):
        with Image.open(f"run/{name}") as image:
            assert min(image.size) > 200


def test_pictures_are_taken_in_their_natural_order(cli, two_layers, recordings):
    for source in ("stimuli.npz", "pictures"):
        ran = cli("rsa", "--model", "two.pt", "--brain", "brain.npz", "--images", source, "--out", f"of {source}")
        assert ran.status == 0
        assert "Most similar of 3 layers" in ran.out
    tables = [Path(f"of {source}", "similarities.csv").read_bytes() for source in ("stimuli.npz", "pictures")]
    assert tables[0] == tables[1]


def test_an_area_whose_sessions_disagree_is_compared_without_ceiling(cli, two_layers, recordings):
    rng = np.random.default_rng(3)
    noise = np.corrcoef(rng.normal(size=(10, 30)))
    sessions = np.stack([noise, -noise + 2 * np.eye(10)], axis=-1)  # the one is the other's opposite
    np.savez("brain.npz", allow_pickle=False, V1=recordings["V1"], odd=sessions)
    ran = cli("rsa", "--model", "two.pt", "--brain", "brain.npz", "--images", "stimuli.npz", "--out", "run")
    assert ran.status == 0
    assert "sessions of area 'odd' do not agree" in ran.err
    assert "nan" in next(line for line in ran.out.splitlines() if " odd " in line)
    assert Path("run/layers.png").exists()


# Each step takes long enough for the signal to arrive in the middle of the run.
INTERRUPTED = """
import signal, sys, time
from icl25_lp_conv import cli, sudoku_training
signal.signal(signal.SIGINT, signal.default_int_handler)
loss = sudoku_training._loss
def slow(*arguments):
    time.sleep(0.05)
    return loss(*arguments)
sudoku_training._loss = slow
sys.exit(cli.main(sys.argv[1:]))
"""


def test_an_interrupted_training_says_so_and_goes_on_to_the_same_files(cli, puzzles, tmp_path):
    assert cli(*TRAIN, "--epochs", 3, "--out", "whole").status == 0
    flags = [*map(str, TRAIN), "--epochs", "3", "--out", "parts", "--quiet", "--device", "cpu"]
    command = [sys.executable, "-c", INTERRUPTED, *flags]
    child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not Path("parts/metrics.jsonl").exists():
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (130, "", "icl25-lp-conv sudoku train: interrupted\n")
    assert json.loads(Path("parts/run.json").read_text())["status"] == "interrupted"
    assert not Path("parts/model.safetensors").exists()
    assert cli(*TRAIN, "--epochs", 3, "--out", "parts", "--resume").status == 0
    for name in ("model.safetensors", "metrics.jsonl", "scores.json"):
        assert Path("whole", name).read_bytes() == Path("parts", name).read_bytes()


def test_resuming_without_a_checkpoint_says_that_it_begins_anew(cli, puzzles):
    assert cli(*TRAIN, "--epochs", 1, "--out", "run").status == 0
    Path("run/checkpoint.safetensors").unlink()
    ran = cli(*TRAIN, "--epochs", 1, "--out", "run", "--resume")
    assert ran.status == 0
    assert "holds no checkpoint.safetensors: the training begins anew" in ran.err
