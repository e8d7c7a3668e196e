import torch

from icl25_lp_conv.sudoku_task import SudokuSizes, sudoku_scores

TINY = SudokuSizes(n_train=60, n_test=20, depth=1, width=4, epochs=1)


def test_scores_depend_on_the_seed_alone():
    torch.rand(5)
    scores = sudoku_scores(["3x3", "Lp p=2"], [0, 1], TINY)
    assert {name: len(found) for name, found in scores.items()} == {"3x3": 2, "Lp p=2": 2}
    assert sudoku_scores(["Lp p=2", "3x3"], [1], TINY)["Lp p=2"] == scores["Lp p=2"][1:]
    assert all(0 <= score.blank <= 1 and score.n_puzzles == 20 for found in scores.values() for score in found)
