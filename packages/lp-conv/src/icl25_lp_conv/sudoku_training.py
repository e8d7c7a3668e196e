"""Training a network to fill Sudoku boards, scoring it, and completing puzzles with it cell by cell."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional

from icl25_lp_conv.datasets.sudoku import metrics
from icl25_lp_conv.datasets.sudoku_solver import as_boards
from icl25_lp_conv.sudoku_checkpoint import TrainingState, fingerprint
from icl25_lp_conv.training import clamp_masks_
from icl25_shared import get_logger, progress

__all__ = ["SudokuScores", "complete", "encode", "evaluate", "predict", "train_sudoku"]

_log = get_logger(__name__)


@dataclass(frozen=True)
class SudokuScores:
    """How well a network fills boards.

    Attributes:
        n_puzzles: Number of boards.
        number: Share of all cells that equal the solution, the givens among them.
        blank: The same over the cells that the puzzles leave blank; NaN if there are none.
        row: Share of rows that hold each digit once.
        col: The same for columns.
        box: The same for boxes.
        solved: Share of boards of which all rows, columns and boxes do.
    """

    n_puzzles: int
    number: float
    blank: float
    row: float
    col: float
    box: float
    solved: float


def encode(puzzles: Integer[np.ndarray, "n 9 9"]) -> Float[Tensor, "n 1 9 9"]:
    """Scale puzzles as the network takes them: digit / 9 - 0.5, so that a blank is -0.5 and a nine 0.5.

    Args:
        puzzles: (n, 9, 9) digits, 0 for a blank.

    Returns:
        (n, 1, 9, 9) in single precision.

    Raises:
        ValueError: If the shape or a digit is wrong.
        TypeError: If the array holds no whole numbers.

    Source: the paper's Sudoku experiment.
    """
    return _scale(_boards(puzzles, "puzzles", lowest=0))


def train_sudoku(
    model: nn.Module,
    puzzles: Integer[np.ndarray, "n 9 9"],
    solutions: Integer[np.ndarray, "m 9 9"],
    *,
    epochs: int,
    seed: int,
    batch_size: int = 100,
    lr: float = 1e-4,
    device: str | torch.device = "cpu",
    clamp_log2p: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    save_every: int | None = None,
    on_epoch: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Train a network in place with Adam on the cross entropy over all cells, and leave it in evaluation mode.

    Each epoch goes through the puzzles in an order that the seed and its number alone decide, so that a training that
    goes on from a checkpoint ends with the weights of an uninterrupted one, on the CPU bit for bit.

    Args:
        model: From (b, 1, 9, 9) boards to (b, 9, 9, 9) logits, for instance ``sudoku_cnn()``, converted or not. It is
            moved to the device.
        puzzles: (n, 9, 9) digits, 0 for a blank.
        solutions: (n, 9, 9) digits 1 .. 9.
        epochs: Passes over the puzzles, >= 1.
        seed: Seed of the orders, >= 0.
        batch_size: Puzzles in a step, >= 1; the last batch of an epoch may be smaller.
        lr: Step size of Adam, > 0.
        device: Where to train.
        clamp_log2p: Lift every log2 p of the masks to 1 at least in each step, between the backward pass and that of
            the optimizer, as the authors do.
        checkpoint: A safetensors file for the state of the training. If it exists, training goes on from there, up to
            ``epochs`` in all, which may be more than before.
        save_every: Steps between two writings of the checkpoint; None writes after each epoch alone.
        on_epoch: Called after each epoch, once its checkpoint is written, with its number, from 1, and its loss.

    Returns:
        The mean loss of each epoch, those before a checkpoint included.

    Raises:
        ValueError: If an array, a number or the shape of the network's output is wrong, if the loss is no longer
            finite, or if the checkpoint is no safetensors file, of another training or beyond ``epochs``.
        TypeError: If an array holds no whole numbers.
        OSError: If the checkpoint cannot be written.

    Source: the paper's Sudoku experiment (20 epochs, batches of 100, lr 1e-4).
    """
    boards, targets = _boards(puzzles, "puzzles", lowest=0), _boards(solutions, "solutions", lowest=1)
    _check(boards, targets, epochs=epochs, batch_size=batch_size, lr=lr, seed=seed, save_every=save_every)
    model.to(device).train()
    optimizer = torch.optim.Adam([parameter for parameter in model.parameters() if parameter.requires_grad], lr=lr)
    state = TrainingState(model, optimizer)
    per_epoch = -(-len(boards) // batch_size)
    if checkpoint is not None:
        state.path = Path(checkpoint)
        state.identity = fingerprint(model, boards, targets, (batch_size, lr, seed, clamp_log2p))
        if state.path.exists():
            state.load()
            if state.step > epochs * per_epoch:
                raise ValueError(f"{state.path} is beyond epochs = {epochs}: it holds {state.step / per_epoch:.3g}")
            _log.info("training goes on at step %s", f"{state.step:,}")
    boards, targets = boards.to(device), targets.to(device)
    start, order = state.step, torch.empty(0)
    with progress("training", total=epochs * per_epoch) as bar:
        bar.advance(start)
        for step in range(start, epochs * per_epoch):
            epoch, batch = divmod(step, per_epoch)
            if batch == 0 or step == start:
                order = _order(len(boards), seed, epoch).to(device)
            rows = order[batch * batch_size : (batch + 1) * batch_size]
            loss = _loss(model, boards[rows], targets[rows], step)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if clamp_log2p:
                clamp_masks_(model, log2p_min=1.0)
            optimizer.step()
            bar.advance()
            state.step += 1
            state.loss_sum += loss.item() * len(rows)
            epoch_ends = state.step % per_epoch == 0
            if epoch_ends:
                state.losses.append(state.loss_sum / len(boards))
                state.loss_sum = 0.0
            if epoch_ends or (save_every is not None and state.step % save_every == 0):
                state.save()
            if epoch_ends and on_epoch is not None:
                on_epoch(epoch + 1, state.losses[-1])
    model.eval()
    return state.losses


def predict(
    model: nn.Module, puzzles: Integer[np.ndarray, "n 9 9"], batch_size: int = 500
) -> Integer[np.ndarray, "n 9 9"]:
    """Fill boards in one pass: the digit of the largest logit in each cell, the cells of givens among them.

    Args:
        model: A trained network; it is used in evaluation mode, on the device where it lies, and left as it was.
        puzzles: (n, 9, 9) digits, 0 for a blank.
        batch_size: Puzzles at a time, >= 1.

    Returns:
        (n, 9, 9) digits 1 .. 9, int8.

    Raises:
        ValueError: If an array, the batch size or the shape of the network's output is wrong.
        TypeError: If the array holds no whole numbers.

    Source: the paper's Sudoku experiment.
    """
    boards = _boards(puzzles, "puzzles", lowest=0)
    with _evaluating(model) as device:
        filled = [_logits(model, batch.to(device)).argmax(dim=1).cpu() for batch in _batches(boards, batch_size)]
    return (torch.cat(filled) + 1).numpy().astype(np.int8)


def evaluate(
    model: nn.Module,
    puzzles: Integer[np.ndarray, "n 9 9"],
    solutions: Integer[np.ndarray, "m 9 9"],
    batch_size: int = 500,
) -> SudokuScores:
    """Score the boards that ``predict`` fills.

    Args:
        model: A trained network.
        puzzles: (n, 9, 9) digits, 0 for a blank.
        solutions: (n, 9, 9) digits 1 .. 9.
        batch_size: Puzzles at a time, >= 1.

    Returns:
        The scores, averaged over the boards.

    Raises:
        ValueError: If an array, the batch size or the shape of the network's output is wrong.
        TypeError: If an array holds no whole numbers.

    Source: the paper's Sudoku metrics; ``blank`` is ours, since the share of all cells flatters easy puzzles.
    """
    _check(_boards(puzzles, "puzzles", lowest=0), _boards(solutions, "solutions", lowest=1))
    filled = predict(model, puzzles, batch_size)
    scores = metrics(filled, solutions)
    assert scores.number is not None  # noqa: S101 - solutions were given
    blank = puzzles == 0
    return SudokuScores(
        n_puzzles=len(filled),
        number=float(scores.number.mean()),
        blank=float((filled == solutions)[blank].mean()) if blank.any() else math.nan,
        row=float(scores.row.mean()),
        col=float(scores.col.mean()),
        box=float(scores.box.mean()),
        solved=float(scores.solved.mean()),
    )


def complete(
    model: nn.Module, puzzles: Integer[np.ndarray, "n 9 9"], *, per_round: int = 1, batch_size: int = 500
) -> Integer[np.ndarray, "n 9 9"]:
    """Fill puzzles step by step: write the cells of which the network is surest, and ask it again.

    Givens stay, and so does what was written once. With fewer cells in a round it takes longer and errs less.

    Args:
        model: A trained network; it is used in evaluation mode, on the device where it lies, and left as it was.
        puzzles: (n, 9, 9) digits, 0 for a blank.
        per_round: Cells to write in each board before the network is asked again, >= 1; 81 writes all at once.
        batch_size: Puzzles at a time, >= 1.

    Returns:
        (n, 9, 9) digits 1 .. 9, int8; they need not obey the rules.

    Raises:
        ValueError: If an array, a number or the shape of the network's output is wrong.
        TypeError: If the array holds no whole numbers.

    Source: ours; the paper fills boards in one pass.
    """
    if per_round < 1:
        raise ValueError(f"per_round must be >= 1, found {per_round}")
    boards = _boards(puzzles, "puzzles", lowest=0)
    with _evaluating(model) as device:
        filled = [_complete(model, batch.to(device), per_round).cpu() for batch in _batches(boards, batch_size)]
    return torch.cat(filled).numpy()


def _complete(model: nn.Module, boards: Tensor, per_round: int) -> Tensor:
    boards = boards.clone()
    cells = boards.view(-1, 81)
    while (n_blank := int((cells == 0).sum(dim=1).max())) > 0:
        surest, digits = _logits(model, boards).softmax(dim=1).flatten(2).max(dim=1)
        chosen = surest.masked_fill(cells != 0, -1).topk(min(per_round, n_blank), dim=1).indices
        # A board with fewer blanks than that gets cells that are written already, which keep their digits.
        before = cells.gather(1, chosen)
        cells.scatter_(1, chosen, torch.where(before == 0, digits.gather(1, chosen).to(cells.dtype) + 1, before))
    return boards


def _boards(array: np.ndarray, name: str, *, lowest: int) -> Tensor:
    boards = as_boards(array, name, lowest=lowest)
    if boards.ndim != 3 or len(boards) == 0:
        raise ValueError(f"{name} must have the shape (n, 9, 9) with n >= 1, found {boards.shape}")
    return torch.from_numpy(np.ascontiguousarray(boards))


def _scale(boards: Tensor) -> Tensor:
    return boards.unsqueeze(1).float() / 9 - 0.5


def _logits(model: nn.Module, boards: Tensor) -> Tensor:
    logits = model(_scale(boards))
    if logits.shape != (len(boards), 9, 9, 9):
        raise ValueError(
            f"the network must map boards {(len(boards), 1, 9, 9)} to logits {(len(boards), 9, 9, 9)}, "
            f"found {tuple(logits.shape)}"
        )
    return logits


def _loss(model: nn.Module, boards: Tensor, solutions: Tensor, step: int) -> Tensor:
    loss = functional.cross_entropy(_logits(model, boards), solutions.long() - 1)
    if not torch.isfinite(loss):
        raise ValueError(f"the loss is {loss.item()} at step {step + 1:,}: choose a smaller lr")
    return loss


def _order(n: int, seed: int, epoch: int) -> Tensor:
    state = int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)  # torch takes 63 bits
    return torch.randperm(n, generator=torch.Generator().manual_seed(state))


def _batches(boards: Tensor, batch_size: int) -> Iterator[Tensor]:
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, found {batch_size}")
    with progress("filling boards", total=len(boards)) as bar:
        for batch in boards.split(batch_size):
            yield batch
            bar.advance(len(batch))


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Generator[torch.device]:
    """Evaluation mode without gradients; gives the device where the network lies."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.inference_mode():
            yield next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    finally:
        for module in training:
            module.training = True


def _check(
    puzzles: Tensor,
    solutions: Tensor,
    *,
    epochs: int = 1,
    batch_size: int = 1,
    lr: float = 1.0,
    seed: int = 0,
    save_every: int | None = None,
) -> None:
    if len(puzzles) != len(solutions):
        raise ValueError(f"there are {len(puzzles)} puzzles and {len(solutions)} solutions, expected as many")
    for name, value, lowest in (
        ("epochs", epochs, 1),
        ("batch_size", batch_size, 1),
        ("save_every", 1 if save_every is None else save_every, 1),
        ("seed", seed, 0),
    ):
        if value < lowest:
            raise ValueError(f"{name} must be >= {lowest}, found {value}")
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"lr must be positive and finite, found {lr}")
