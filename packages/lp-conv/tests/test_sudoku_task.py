import pytest
import torch

from icl25_lp_conv.conversion import convert
from icl25_lp_conv.datasets import sudoku
from icl25_lp_conv.models import sudoku_cnn
from icl25_lp_conv.sudoku_task import SudokuSizes, sudoku_scores
from icl25_lp_conv.sudoku_training import evaluate, train_sudoku

TINY = SudokuSizes(n_train=60, n_test=20, depth=1, width=4, epochs=1)


def test_scores_depend_on_the_seed_alone():
    torch.rand(5)
    scores = sudoku_scores(["3x3", "Lp p=2"], [0, 1], TINY)
    assert {name: len(found) for name, found in scores.items()} == {"3x3": 2, "Lp p=2": 2}
    assert sudoku_scores(["Lp p=2", "3x3"], [1], TINY)["Lp p=2"] == scores["Lp p=2"][1:]
    assert all(0 <= score.blank <= 1 and score.n_puzzles == 20 for found in scores.values() for score in found)


@pytest.mark.parametrize("variant", ["3x3", "7x7", "Lp p=2"])
def test_training_is_that_of_its_description(variant):
    sizes = SudokuSizes(n_train=100, n_test=40, blanks=30, depth=2, width=5, epochs=4, lr=0.02)
    (scores,) = sudoku_scores([variant], [3], sizes)[variant]
    data = sudoku.generate(140, seed=3, clues=51)
    torch.manual_seed(3)
    model = sudoku_cnn(depth=2, width=5)
    if variant != "3x3":
        model = convert(model, p=None if variant == "7x7" else 2, transfer="none")
    train_sudoku(model, data.puzzles[:100], data.solutions[:100], epochs=4, lr=0.02, seed=3)
    assert scores == evaluate(model, data.puzzles[100:], data.solutions[100:])
