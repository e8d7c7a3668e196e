import numpy as np
import pytest

from icl25_lp_conv.datasets.sudoku import generate, load_csv, load_puzzles


@pytest.fixture
def lines():
    data = generate(3, seed=2, clues=40)
    texts = [["".join(map(str, board.ravel())) for board in boards] for boards in data]
    return data, texts


def test_blanks_may_be_dots_and_names_of_columns_may_have_spaces(tmp_path, lines):
    data, (puzzles, solutions) = lines
    rows = [f"{puzzle.replace('0', '.')},{solution}" for puzzle, solution in zip(puzzles, solutions, strict=True)]
    (tmp_path / "dots.csv").write_text("\n".join(["quizzes, solutions", *rows]))
    found = load_csv(tmp_path / "dots.csv")
    np.testing.assert_array_equal(found.puzzles, data.puzzles)
    np.testing.assert_array_equal(found.solutions, data.solutions)
    np.testing.assert_array_equal(load_puzzles(tmp_path / "dots.csv"), data.puzzles)


def test_a_dot_in_a_solution_is_a_fault(tmp_path, lines):
    _, (puzzles, solutions) = lines
    (tmp_path / "bad.csv").write_text(f"quizzes,solutions\n{puzzles[0]},.{solutions[0][1:]}\n")
    with pytest.raises(ValueError, match=r"row 1, column 'solutions': expected 81 digits, found '\.' at character 1"):
        load_csv(tmp_path / "bad.csv")
