from __future__ import annotations

import gzip
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icl25_lp_conv.datasets import sudoku, sudoku_files, sudoku_solver

GOLDEN = Path(__file__).parent / "golden" / "sudoku_metrics.npz"
CANONICAL = np.add.outer([0, 3, 6, 1, 4, 7, 2, 5, 8], np.arange(9)) % 9 + 1
SEVENTEEN = "000000010400000000020000000000050407008000300001090000300400200050100000000806000"
SEVENTEEN_SOLVED = "693784512487512936125963874932651487568247391741398625319475268856129743274836159"
HARD = "4.....8.5.3..........7......2.....6.....8.4......1.......6.3.7.5..2.....1.4......"
seeds = st.integers(0, 10**6)


def units(board):
    """The 27 units of a board, written out anew: nine rows, nine columns, nine boxes."""
    boxes = [board[r : r + 3, c : c + 3].ravel() for r in (0, 3, 6) for c in (0, 3, 6)]
    return [*board, *board.T, *boxes]


def complete(cells):
    return sorted(cells) == list(range(1, 10))


def plain_count(cells, limit):
    """Count solutions the slow way: the blanks in reading order, every digit that does not clash."""
    if 0 not in cells:
        return 1
    place = cells.index(0)
    row, column = divmod(place, 9)
    seen = {
        cells[i]
        for i in range(81)
        if i // 9 == row or i % 9 == column or (i // 27 == row // 3 and i % 9 // 3 == column // 3)
    }
    total = 0
    for digit in sorted(set(range(1, 10)) - seen):
        total += plain_count([*cells[:place], digit, *cells[place + 1 :]], limit - total)
        if total >= limit:
            break
    return total


def symmetry_class(board):
    """Cycles between lines of a band: relabelling and permuting lines and bands leave them, transposing swaps them."""

    def cycles(first, second):
        step, left, lengths = dict(zip(first.tolist(), second.tolist(), strict=True)), set(range(1, 10)), []
        while left:
            digit, length = min(left), 0
            while digit in left:
                left.remove(digit)
                digit, length = step[digit], length + 1
            lengths.append(length)
        return tuple(sorted(lengths))

    def of_rows(lines):
        bands = (lines[start : start + 3] for start in (0, 3, 6))
        return tuple(sorted(tuple(sorted(cycles(a, b) for a, b in combinations(band, 2))) for band in bands))

    return of_rows(board), of_rows(board.T)


def test_metrics_agree_with_the_golden_file():
    with np.load(GOLDEN, allow_pickle=False) as golden:
        scores = sudoku.metrics(golden["boards"] + 1, golden["solution"] + 1)
        for name in ("row", "col", "box", "number"):
            np.testing.assert_array_equal(getattr(scores, name).astype(np.float32), golden[name])
        np.testing.assert_array_equal(scores.solved, golden["solved"].astype(bool))


def test_metrics_of_the_canonical_board_and_two_changes():
    swapped, raised = CANONICAL.copy(), CANONICAL.copy()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    raised[4, 4] = raised[4, 4] % 9 + 1
    scores = sudoku.metrics(np.stack([CANONICAL, swapped, raised]), CANONICAL)
    assert scores.row.tolist() == [1, 1, 8 / 9]
    assert scores.col.tolist() == [1, 7 / 9, 8 / 9]
    assert scores.box.tolist() == [1, 1, 8 / 9]
    assert scores.solved.tolist() == [True, False, False]
    assert np.asarray(scores.number).tolist() == [1, 79 / 81, 80 / 81]


def test_a_valid_board_is_solved_though_it_is_not_the_solution():
    scores = sudoku.metrics(CANONICAL, CANONICAL % 9 + 1)
    assert scores.solved.shape == scores.row.shape == np.asarray(scores.number).shape == ()
    assert bool(scores.solved)
    assert scores.number == 0
    assert sudoku.metrics(CANONICAL).number is None


@given(seeds, st.integers(0, 30))
def test_metrics_and_conflicts_agree_with_sets(seed, n_changes):
    rng = np.random.default_rng(seed)
    board = sudoku_solver.random_solutions(1, rng)[0]
    board.ravel()[rng.integers(81, size=n_changes)] = rng.integers(1, 10, n_changes)
    scores = sudoku.metrics(board)
    right = [complete(unit) for unit in units(board)]
    assert [scores.row, scores.col, scores.box] == [sum(right[part : part + 9]) / 9 for part in (0, 9, 18)]
    assert scores.solved == all(right)
    board.ravel()[rng.random(81) < 0.6] = 0
    twice = [len(set(unit[unit > 0])) < (unit > 0).sum() for unit in units(board)]
    np.testing.assert_array_equal(sudoku_solver.find_conflicts(board[None])[0], twice)
    assert (sudoku_solver.describe_conflict(board) is not None) == any(twice)


def test_metrics_refuse_what_is_no_board():
    with pytest.raises(ValueError, match=r"pred must hold digits 1 \.\. 9, found 0 in row 1, column 9"):
        sudoku.metrics(CANONICAL % 9)
    with pytest.raises(ValueError, match="found 10 in row 2, column 3 of board 1"):
        sudoku.metrics(np.stack([CANONICAL, np.where(np.arange(81).reshape(9, 9) == 11, 10, CANONICAL)]))
    with pytest.raises(ValueError, match=r"shape \(2, 9, 9\) of pred or \(9, 9\), found \(3, 9, 9\)"):
        sudoku.metrics(np.stack([CANONICAL] * 2), np.stack([CANONICAL] * 3))
    with pytest.raises(ValueError, match=r"X must have the shape .* found \(9, 8\)"):
        sudoku_solver.as_boards(CANONICAL[:, :8], "X", lowest=1)
    with pytest.raises(TypeError, match="X must hold whole numbers, found float64"):
        sudoku_solver.as_boards(CANONICAL / 2, "X", lowest=1)


@settings(max_examples=20)
@given(seeds, st.integers(17, 81))
def test_generated_puzzles_are_boards_with_blanks(seed, clues):
    puzzles, solutions = sudoku.generate(3, seed=seed, clues=clues)
    assert all(complete(unit) for board in solutions for unit in units(board))
    assert (puzzles > 0).sum(axis=(1, 2)).tolist() == [clues] * 3
    assert ((puzzles == solutions) | (puzzles == 0)).all()


def test_the_first_puzzles_do_not_depend_on_how_many_follow():
    many = sudoku.generate(2100, seed=5)
    few = sudoku.generate(7, seed=5)
    assert few.puzzles.tobytes() == many.puzzles[:7].tobytes()
    assert few.solutions.tobytes() == many.solutions[:7].tobytes()
    assert not np.array_equal(few.puzzles, sudoku.generate(7, seed=6).puzzles)
    assert len(np.unique(many.solutions.reshape(-1, 81), axis=0)) == 2100


def test_solutions_are_not_images_of_one_board():
    solutions = sudoku.generate(60).solutions
    image = CANONICAL[np.ix_([1, 0, 2, 8, 7, 6, 3, 4, 5], [3, 5, 4, 0, 1, 2, 6, 8, 7])].T % 9 + 1
    assert symmetry_class(image)[::-1] == symmetry_class(CANONICAL)  # what is counted here is blind to symmetries
    assert len({frozenset(symmetry_class(board)) for board in solutions}) >= 50


def test_each_tenth_board_is_new_and_the_others_are_its_images():
    images = sudoku.generate(2000).solutions[3::200]
    by_orientation = {symmetry_class(board) for board in images}
    assert len(by_orientation) == 2
    assert len({frozenset(classes) for classes in by_orientation}) == 1


def test_random_boards_are_not_the_first_that_a_search_finds():
    boards = sudoku_solver.random_solutions(20, np.random.default_rng(0))
    diagonal = np.kron(np.eye(3, dtype=int), np.ones((3, 3), int))
    first = [sudoku.solve(board * diagonal) for board in boards]
    assert sum(np.array_equal(a, b) for a, b in zip(boards, first, strict=True)) <= 2


def test_givens_fall_on_every_cell_alike():
    puzzles = sudoku.generate(2000, clues=27).puzzles
    share = (puzzles > 0).mean(axis=0)
    assert np.abs(share - 1 / 3).max() < 0.06  # 5.7 standard errors
    np.testing.assert_allclose([(puzzles == digit).mean() for digit in range(1, 10)], 1 / 27, rtol=0.05)


@pytest.mark.parametrize("clues", [26, 34])
def test_unique_puzzles_have_one_solution(clues):
    sudokus = sudoku.generate(12, seed=3, clues=clues, unique=True)
    assert (sudokus.puzzles > 0).sum(axis=(1, 2)).tolist() == [clues] * 12
    for puzzle, solution in zip(*sudokus, strict=True):
        assert sudoku.count_solutions(puzzle) == 1
        np.testing.assert_array_equal(sudoku.solve(puzzle), solution)
    free = sudoku.generate(12, seed=3, clues=clues)
    assert any(sudoku.count_solutions(puzzle) == 2 for puzzle in free.puzzles)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be >= 1, found 0"),
        ({"n": 1, "clues": 16}, "clues must be 17 .. 81, found 16"),
        ({"n": 1, "clues": 82}, "clues must be 17 .. 81, found 82"),
        ({"n": 1, "seed": -1}, "seed must be >= 0, found -1"),
        ({"n": 1, "clues": 17, "unique": True}, "17 clues was found for a board in 3 tries; ask for 24 clues or more"),
    ],
)
def test_generate_refuses_what_it_cannot_do(monkeypatch, arguments, message):
    monkeypatch.setattr(sudoku, "_TRIES", 3)
    with pytest.raises(ValueError, match=message):
        sudoku.generate(**arguments)


def test_solve_known_puzzles():
    assert sudoku.format_board(sudoku.solve(sudoku.parse_board(SEVENTEEN))) == SEVENTEEN_SOLVED
    hard = sudoku.parse_board(HARD)
    solution = sudoku.solve(hard)
    assert all(complete(unit) for unit in units(solution))
    assert (solution[hard > 0] == hard[hard > 0]).all()


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(38, 60))
def test_count_solutions_agrees_with_plain_search(seed, clues):
    puzzle = sudoku.generate(1, seed=seed, clues=clues).puzzles[0]
    assert sudoku.count_solutions(puzzle, limit=20) == plain_count(puzzle.ravel().tolist(), 20)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(4, 30))
def test_a_wrong_given_that_does_not_clash_leaves_as_many_solutions_as_plain_search_finds(seed, n_blanks):
    rng = np.random.default_rng(seed)
    board = sudoku_solver.random_solutions(1, rng)[0]
    board.ravel()[rng.permutation(81)[:n_blanks]] = 0
    changes = np.repeat(board[None], 9, axis=0)
    changes[(..., *np.argwhere(board == 0)[0])] = range(1, 10)
    for changed in changes[~sudoku_solver.find_conflicts(changes).any(axis=1)]:
        assert sudoku.count_solutions(changed, limit=5) == plain_count(changed.ravel().tolist(), 5)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({(0, 1): 5, (0, 7): 5}, "digit 5 stands twice in row 1"),
        ({(1, 4): 7, (8, 4): 7}, "digit 7 stands twice in column 5"),
        ({(3, 6): 2, (5, 8): 2}, "digit 2 stands twice in box 6"),
        ({(0, 0): 3, (0, 4): 3, (0, 8): 3}, "digit 3 stands 3 times in row 1"),
        ({(0, c): c + 1 for c in range(8)} | {(4, 8): 9}, "no two of its givens conflict"),
    ],
)
def test_unsolvable_puzzles_say_why(cells, message):
    puzzle = np.zeros((9, 9), int)
    for cell, digit in cells.items():
        puzzle[cell] = digit
    assert sudoku.count_solutions(puzzle) == 0
    with pytest.raises(ValueError, match=message):
        sudoku.solve(puzzle)


def test_count_solutions_stops_at_the_limit():
    empty = np.zeros((9, 9), int)
    assert [sudoku.count_solutions(empty, limit) for limit in (1, 2, 30)] == [1, 2, 30]
    with pytest.raises(ValueError, match="limit must be >= 1, found 0"):
        sudoku.count_solutions(empty, 0)


@pytest.fixture
def data():
    return sudoku.generate(5, seed=1, clues=30)


@pytest.fixture
def lines(data, tmp_path):
    """The file of five sudokus, header and rows."""
    sudoku.save_csv(tmp_path / "good.csv", data)
    return (tmp_path / "good.csv").read_text().splitlines()


def same(a, b):
    return np.array_equal(a.puzzles, b.puzzles) and np.array_equal(a.solutions, b.solutions)


@pytest.mark.parametrize("chunk", [2, 100_000])
def test_csv_files_come_back_as_they_were(tmp_path, monkeypatch, data, chunk):
    monkeypatch.setattr(sudoku_files, "_CHUNK", chunk)
    data.puzzles[0, 0] = 0  # leading zeros, which a number would lose
    path = tmp_path / "puzzles.csv"
    sudoku.save_csv(path, data)
    assert path.read_text().splitlines()[1].startswith("0" * 9)
    assert same(sudoku.load_csv(path), data)
    with pytest.raises(FileExistsError, match="force"):
        sudoku.save_csv(path, data)
    other = sudoku.generate(3, seed=2)
    sudoku.save_csv(path, other, force=True)
    assert same(sudoku.load_csv(path), other)


def test_csv_dialects(tmp_path, data, lines):
    path = tmp_path / "other.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert same(sudoku.load_csv(path), data)
    path.write_text("".join(f"{number},{line}\n" for number, line in enumerate(lines)).replace("0,", "id,", 1))
    assert same(sudoku.load_csv(path), data)
    path.write_text("".join(line.partition(",")[0] + "\n" for line in lines))
    np.testing.assert_array_equal(sudoku.load_puzzles(path), data.puzzles)
    with gzip.open(tmp_path / "puzzles.csv.gz", "wt") as file:
        file.write("\n".join(lines))
    assert same(sudoku.load_csv(tmp_path / "puzzles.csv.gz"), data)


def swapped(solution):
    """A board with the first two cells of a row exchanged."""
    return solution[1] + solution[0] + solution[2:]


BAD_ROWS = {
    "short": (lambda q, s: (q[:-1], s), "column 'quizzes': expected 81 digits, found 80 characters"),
    "long": (lambda q, s: (q, s + "1"), "column 'solutions': expected 81 digits, found 82 characters"),
    "empty": (lambda q, s: (q, ""), "column 'solutions': expected 81 digits, found 0 characters"),
    "letter": (lambda q, s: (q[:4] + "x" + q[5:], s), "column 'quizzes': expected 81 digits, found 'x' at character 5"),
    "accent": (lambda q, s: (q, s[:-1] + "é"), "column 'solutions': expected 81 digits, found 'é' at character 81"),
    "conflict": (lambda q, s: ("7" + "0" * 7 + "7" + q[9:], s), "column 'quizzes': illegal givens, digit 7 stands "),
    "invalid": (lambda q, s: (q, swapped(s)), "column 'solutions': not a completed board, digit . stands twice in col"),
    "blank": (lambda q, s: (q, s[:-1] + "0"), "column 'solutions': not a completed board, it has a blank"),
    "other": (lambda q, s: (q, s.translate(str.maketrans("123456789", "234567891"))), "where the puzzle has "),
}


@pytest.mark.parametrize("chunk", [2, 100_000])
@pytest.mark.parametrize("kind", BAD_ROWS)
def test_a_bad_row_is_named(tmp_path, monkeypatch, lines, kind, chunk):
    monkeypatch.setattr(sudoku_files, "_CHUNK", chunk)
    change, message = BAD_ROWS[kind]
    lines[4] = ",".join(change(*lines[4].split(",")))
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"bad\.csv, row 4, {'.*' if kind == 'other' else ''}{message}"):
        sudoku.load_csv(path)


def test_rows_whose_lengths_make_up_for_each_other_are_named(tmp_path, lines):
    lines[2], lines[3] = "0" + lines[2], lines[3][1:]
    path = tmp_path / "bad.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match="row 2, column 'quizzes': expected 81 digits, found 82 characters"):
        sudoku.load_csv(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, expected the columns quizzes and solutions"),
        (b"quizzes,solutions\n", "holds no puzzles"),
        (b"quiz,solutions\n1,2\n", "has no column 'quizzes'; it has 'quiz', 'solutions'"),
        (b"quizzes\n1\n", "has no column 'solutions'; it has 'quizzes'"),
        (b"\xff\xfe\x00\n1,2\n", "is not UTF-8 text"),
        (b"quizzes,solutions\n1,2,3\n", "is not a CSV table"),
        (b"quizzes,solutions\n1,2\n1,2,3\n", "is not a CSV table: .* line 3"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"bad\.csv {message}"):
        sudoku.load_csv(path)


def test_paths_that_are_no_file(tmp_path, data):
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        sudoku.load_csv(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="is a folder, expected a CSV file"):
        sudoku.load_csv(tmp_path)
    with pytest.raises(ValueError, match="5 puzzles and 4 solutions"):
        sudoku.save_csv(tmp_path / "new.csv", sudoku.Sudokus(data.puzzles, data.solutions[:4]))
    with pytest.raises(ValueError, match=r"solutions must hold digits 1 \.\. 9, found 0"):
        sudoku.save_csv(tmp_path / "new.csv", sudoku.Sudokus(data.puzzles, data.puzzles))
    assert not (tmp_path / "new.csv").exists()


@given(st.integers(2, 40), st.floats(0.01, 0.99), seeds)
def test_split_shares_out_every_sudoku_once(n, train, seed):
    solutions = np.broadcast_to(np.arange(n).reshape(n, 1, 1), (n, 9, 9))
    parts = sudoku.split(sudoku.Sudokus(-solutions, solutions), seed, train)
    assert sorted(np.concatenate([part.solutions[:, 0, 0] for part in parts])) == list(range(n))
    assert all(np.array_equal(part.puzzles, -part.solutions) and len(part.puzzles) for part in parts)
    assert abs(len(parts.train.puzzles) - train * n) < 1.001


def test_split_defaults_and_refusals(data):
    many = sudoku.generate(50)
    assert len(sudoku.split(many).train.puzzles) == 40
    assert same(sudoku.split(many).test, sudoku.split(many, seed=42, train=0.8).test)
    assert not same(sudoku.split(many).test, sudoku.split(many, seed=43).test)
    with pytest.raises(ValueError, match="train must lie between 0 and 1, found 1"):
        sudoku.split(data, train=1.0)
    with pytest.raises(ValueError, match="at least 2 sudokus, found 1"):
        sudoku.split(sudoku.Sudokus(data.puzzles[:1], data.solutions[:1]))


def test_boards_as_text(data):
    for board in data.puzzles:
        text = sudoku.format_board(board)
        np.testing.assert_array_equal(sudoku.parse_board(text), board)
        np.testing.assert_array_equal(sudoku.parse_board(" \n".join(text.replace("0", "."))), board)
    with pytest.raises(ValueError, match="expected 81 digits, found 80 characters"):
        sudoku.parse_board("." * 80)
    with pytest.raises(ValueError, match="found 'x' at character 3"):
        sudoku.parse_board("12x" + "." * 78)
    with pytest.raises(ValueError, match="digit 1 stands twice in row 1"):
        sudoku.parse_board("1.1" + "." * 78)
