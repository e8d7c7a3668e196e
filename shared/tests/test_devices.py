"""Devices: the ones that exist are found, the others are refused with a list of those that do."""

import os
import subprocess
import sys

import pytest

from icl25_shared.devices import select_device


def select(names, framework, **environment):
    """Select in a fresh process, because the frameworks read their environment once; one line for each name."""
    code = f"""
from icl25_shared.devices import select_device
for name in {names!r}:
    try:
        print(select_device(name, {framework!r}))
    except ValueError as error:
        print(error)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cpu:0", "", "CUDA", "cuda:0 "])
def test_unknown_names_are_refused_before_a_framework_is_loaded(name):
    with pytest.raises(ValueError, match="device must be auto, cpu, cuda, cuda:N or mps, found"):
        select_device(name)


def test_unknown_frameworks_are_refused():
    with pytest.raises(ValueError, match="framework must be torch or jax, found 'tensorflow'"):
        select_device("cpu", "tensorflow")  # ty: ignore[no-matching-overload]


@pytest.mark.extra
def test_torch_on_the_cpu():
    assert select_device("cpu").type == "cpu"


@pytest.mark.extra
def test_hidden_cuda_devices_are_not_there_for_torch():
    auto, *others = select(["auto", "cuda", "cuda:0"], "torch", CUDA_VISIBLE_DEVICES="")
    assert auto in ("cpu", "mps")
    for name, line in zip(["cuda", "cuda:0"], others, strict=True):
        assert line.startswith(f"there is no device '{name}' for torch; there are: cpu")
        assert line.endswith("(with CUDA_VISIBLE_DEVICES='')")


@pytest.mark.extra
def test_a_number_beyond_the_last_device_is_refused():
    with pytest.raises(ValueError, match=r"there is no device 'cuda:99' for torch; there are: cpu"):
        select_device("cuda:99")


@pytest.mark.extra
def test_torch_takes_the_cuda_device_with_the_most_free_memory(monkeypatch):
    import torch

    free = [3_000_000_000, 9_000_000_000, 5_000_000_000]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(free))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free[index], 10_000_000_000))
    assert str(select_device("cuda")) == str(select_device("auto")) == "cuda:1"
    assert str(select_device("cuda:2")) == "cuda:2"
    assert str(select_device("cpu")) == "cpu"
    with pytest.raises(ValueError, match=r"there are: .*cuda:1 \(9\.0 GB free\), cuda:2 \(5\.0 GB free\)"):
        select_device("cuda:3")


@pytest.mark.extra
def test_jax_obeys_its_platforms():
    import jax

    assert select_device("cpu", "jax") == jax.local_devices(backend="cpu")[0]
    auto, cuda = select(["auto", "cuda"], "jax", JAX_PLATFORMS="cpu")
    assert "cpu" in auto.lower()
    assert cuda.startswith("there is no device 'cuda' for jax; there are: cpu (with ")
    assert "JAX_PLATFORMS='cpu'" in cuda
