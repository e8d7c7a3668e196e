"""Seeding: the same seed gives the same stream, different streams are independent."""

import random

import numpy as np
import pytest

from icl25_shared.seeding import seed_everything, spawn_generators


def test_seeding_fixes_the_global_generators_and_returns_the_same_generator():
    draws = []
    for _ in range(2):
        generator = seed_everything(7)
        draws.append((generator.random(), random.random(), np.random.random()))  # noqa: NPY002 - what is tested
    assert draws[0] == draws[1]
    assert draws[0][0] == np.random.default_rng(7).random()
    assert seed_everything(8).random() != draws[0][0]


def test_seeds_beyond_32_bits_are_taken():
    assert seed_everything(2**40).random() != seed_everything(0).random()


def test_children_depend_on_the_seed_and_their_position_alone():
    few = [child.random() for child in spawn_generators(3, 2)]
    many = [child.random() for child in spawn_generators(3, 5)]
    assert many[:2] == few
    assert len(set(many)) == 5
    assert [child.random() for child in spawn_generators(4, 2)] != few


def test_children_are_uncorrelated():
    samples = np.stack([child.standard_normal(20_000) for child in spawn_generators(0, 6)])
    correlations = np.corrcoef(samples)[~np.eye(6, dtype=bool)]
    assert np.abs(correlations).max() < 5 / np.sqrt(20_000)


def test_spawning_from_a_generator_gives_new_children_each_time():
    parent = np.random.default_rng(0)
    first, second = (spawn_generators(parent, 1)[0].random() for _ in range(2))
    assert first != second
    assert spawn_generators(np.random.default_rng(0), 1)[0].random() == first


@pytest.mark.parametrize(("seed", "error"), [(-1, ValueError), (1.5, TypeError), ("1", TypeError), (True, TypeError)])
def test_bad_seeds_are_refused(seed, error):
    with pytest.raises(error, match="seed must be"):
        seed_everything(seed)
    with pytest.raises(error, match="seed must be"):
        spawn_generators(seed, 1)


def test_a_negative_number_of_children_is_refused():
    with pytest.raises(ValueError, match=r"n must be >= 0, found -1"):
        spawn_generators(0, -1)


@pytest.mark.extra
def test_torch_is_seeded_when_it_is_loaded():
    import torch

    seed_everything(5)
    first = torch.rand(3)
    seed_everything(5)
    assert torch.equal(first, torch.rand(3))
