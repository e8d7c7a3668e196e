from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from icl25_pi_dion.estimator import InverseOperator
from icl25_pi_dion.train_verbs import use_devices


def parameters(folder):
    from flax import nnx

    return jax.tree.leaves(nnx.to_pure_dict(nnx.state(InverseOperator.load(folder).net_)))


def losses(folder):
    return pd.read_csv(Path(folder) / "history.csv").drop(columns="seconds")


def short(case):
    """Flags of a training of five steps."""
    return (*case.flags, "--optimizer", "adam", "--steps", "5")


def test_as_a_process_standard_output_holds_the_result_alone(rd_case, tmp_path):
    command = [sys.executable, "-m", "icl25_pi_dion", "invert", str(rd_case.run), str(rd_case.data), "--device", "cpu"]
    done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["n"] == 40
    with np.load(tmp_path / "result.npz") as result:
        error = np.linalg.norm(result["s"] - rd_case.s, axis=1) / np.linalg.norm(rd_case.s, axis=1)
    assert np.median(error) < 0.3  # that of zero is 1


def test_the_cpu_is_split_into_devices_before_jax_starts(monkeypatch):
    asked = []
    monkeypatch.setattr(jax.config, "update", lambda *arguments: asked.append(arguments))
    use_devices(1)
    use_devices(3)
    assert asked == [("jax_num_cpu_devices", 3)]
    monkeypatch.undo()
    use_devices(jax.device_count() + 1)  # jax has started: that is then refused with what there is


def test_a_training_killed_at_any_moment_goes_on_to_the_same_parameters(cli, rd_case, tmp_path):
    flags = ("train", "rd", rd_case.data, "--out", "parts", "--checkpoint-every", 50, *rd_case.flags)
    child = subprocess.Popen(
        [sys.executable, "-m", "icl25_pi_dion", *map(str, flags), "--quiet"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(path.name.isdigit() for path in Path("parts/checkpoint").glob("*")):
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert json.loads(Path("parts/run.json").read_text())["status"] == "running"
    assert not Path("parts/config.json").exists()
    resumed = cli(*flags, "--resume")
    assert resumed.status == 0, resumed.err
    assert "resumed at step" in resumed.err
    for one, other in zip(parameters(rd_case.run), parameters("parts"), strict=True):
        np.testing.assert_array_equal(one, other)
    pd.testing.assert_frame_equal(losses(rd_case.run), losses("parts"), check_exact=True)
    assert (rd_case.run / "calibration.json").read_bytes() == Path("parts/calibration.json").read_bytes()


def test_a_run_is_begun_anew_on_demand_only(cli, rd_case):
    shutil.copytree(rd_case.run, "run")
    before = parameters("run")
    refused = cli("train", "rd", rd_case.data, "--out", "run", *short(rd_case))
    assert refused.status == 2
    assert "--resume goes on with a run that broke off, --force begins anew" in refused.err
    other = cli("train", "rd", rd_case.data, "--out", "run", *rd_case.flags, "--seed", 1, "--resume")
    assert other.status == 2
    assert "is the checkpoint of another training: other data or options" in other.err
    for one, two in zip(before, parameters("run"), strict=True):
        np.testing.assert_array_equal(one, two)
    assert cli("train", "rd", rd_case.data, "--out", "run", *short(rd_case), "--force").status == 0
    assert pd.read_csv("run/history.csv")["step"].tolist() == [5]
    assert any((one != two).any() for one, two in zip(before, parameters("run"), strict=True))


def test_force_leaves_the_folders_of_other_programs_alone(cli, rd_case):
    Path("mine/checkpoint").mkdir(parents=True)
    Path("mine/checkpoint/weights").write_text("mine")
    ran = cli("train", "rd", rd_case.data, "--out", "mine", *short(rd_case), "--force")
    assert ran.status == 2
    assert "is no run folder of icl25-pi-dion train" in ran.err
    assert Path("mine/checkpoint/weights").read_text() == "mine"


def test_resuming_without_a_checkpoint_says_that_it_begins_anew(cli, rd_case):
    Path("run").mkdir()
    Path("run/run.json").write_text(json.dumps({"program": "icl25-pi-dion", "verb": "train", "status": "running"}))
    ran = cli("train", "rd", rd_case.data, "--out", "run", *short(rd_case), "--resume")
    assert ran.status == 0
    assert "run holds no checkpoint: the training begins anew" in ran.err
