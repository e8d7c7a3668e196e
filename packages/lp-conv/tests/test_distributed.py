from __future__ import annotations

import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from icl25_lp_conv import clamp_masks_, convert, param_groups

BATCHES = [(torch.linspace(-1, 1, 4 * 2 * 81) * (i + 3)).sin().view(4, 2, 9, 9) for i in range(3)]


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


def work(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    model = train(DistributedDataParallel(network()), [x[2 * rank : 2 * rank + 2] for x in BATCHES])
    torch.save(model.module.state_dict(), f"{folder}/state-{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_train_as_one_does(tmp_path):
    start = network().state_dict()
    expected = train(network(), BATCHES).state_dict()
    multiprocessing.spawn(work, (str(tmp_path),), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"state-{rank}.pt", weights_only=True)
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert torch.allclose(found[name], value, rtol=1e-4, atol=1e-6), name
            assert not torch.allclose(value, start[name], atol=1e-5), name
