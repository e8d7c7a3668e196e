from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from icl25_lp_conv import clamp_masks_, convert, param_groups

BATCHES = [(torch.linspace(-1, 1, 4 * 2 * 81) * (i + 3)).sin().view(4, 2, 9, 9) for i in range(3)]
LIMIT = timedelta(seconds=60)


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2, stride=2))
    return convert(model, p=4, include=lambda name, module: True)


def train(model, batches):
    optimizer = torch.optim.SGD(param_groups(model, 0.01, lr=0.1), momentum=0.9)
    for x in batches:
        optimizer.zero_grad()
        (model(x) - 1).square().mean().backward()
        optimizer.step()
        clamp_masks_(model)
    return model


def work(rank, folder, done):
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=LIMIT
    )
    model = train(DistributedDataParallel(network()), [x[2 * rank : 2 * rank + 2] for x in BATCHES])
    torch.save(model.module.state_dict(), f"{folder}/state-{rank}.pt")
    done.wait(60)
    os._exit(0)  # the end of a process group may wait for ever for its own threads


def test_two_processes_train_as_one_does(tmp_path):
    start = network().state_dict()
    expected = train(network(), BATCHES).state_dict()
    context = multiprocessing.get_context("spawn")
    done = context.Barrier(2)
    processes = [context.Process(target=work, args=(rank, str(tmp_path), done)) for rank in range(2)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(60)
    finally:
        for process in processes:
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    for rank in range(2):
        found = torch.load(tmp_path / f"state-{rank}.pt", weights_only=True)
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-6), name
            assert not torch.allclose(value, start[name], atol=1e-5), name
