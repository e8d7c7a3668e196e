"""Pictures and tables of the paper's CIFAR-10 and Clothing1M experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.table import Table

from icl25_sava.paper_claims import FRACTIONS
from icl25_sava.plots import plot_detection, plot_methods, plot_pruning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["accuracy_table", "auc_table", "paper_pictures"]

_SHARES = (0.0, *FRACTIONS)


def paper_pictures(
    auc: dict[str, pd.DataFrame],
    accuracy: dict[str, list[dict[str, list[float]]]],
    curves: dict[str, dict[str, pd.DataFrame]],
) -> dict[str, Figure]:
    """Detection and pruning curves of every panel, and bars of the AUC.

    Args:
        auc: per panel a table of AUC, a line per seed and a column per method; without panels of unknown truth.
        accuracy: per panel and seed the test accuracy by method, nothing pruned first, then per share.
        curves: per panel of known truth the detection curve of each method at the first seed.

    Returns:
        Figures by file name.

    Source: detection and pruning figures of Kessler et al. (ICLR 2025).
    """
    figures = {}
    for panel, found in accuracy.items():
        mean = {name: np.mean([line[name] for line in found], axis=0) for name in found[0]}
        pruned = {
            name: pd.DataFrame({"fraction": _SHARES, "accuracy": line, "random": mean["random"]})
            for name, line in mean.items()
            if name != "random"
        }
        slug, title = panel.replace(" ", "-"), panel.capitalize()
        figures[f"pruning-{slug}.png"] = plot_pruning(pruned, f"{title}: accuracy after pruning")
        if panel in curves:
            figures[f"detection-{slug}.png"] = plot_detection(curves[panel], title)
    if auc:
        means = pd.DataFrame({panel: table.mean() for panel, table in auc.items()}).T
        figures["methods.png"] = plot_methods(means, "Bad images found")
    return figures


def auc_table(auc: dict[str, pd.DataFrame]) -> Table:
    """The AUC, mean over seeds, for the screen.

    Args:
        auc: as in ``paper_pictures``, at least one panel.

    Returns:
        The table.
    """
    view = Table("corruption", title="AUC of finding corrupted images, mean over seeds", title_justify="left")
    columns = next(iter(auc.values())).columns
    for name in columns:
        view.add_column(name, justify="right")
    for panel, table in auc.items():
        view.add_row(panel, *(f"{table[name].mean():.3f}" for name in columns))
    return view


def accuracy_table(accuracy: dict[str, list[dict[str, list[float]]]]) -> Table:
    """The test accuracy, mean over seeds, for the screen.

    Args:
        accuracy: as in ``paper_pictures``.

    Returns:
        The table.
    """
    view = Table("rows", "pruned by", title="Test accuracy, mean over seeds", title_justify="left")
    for share in _SHARES:
        view.add_column(f"{share:.0%} pruned", justify="right")
    for panel, found in accuracy.items():
        for name in found[0]:
            mean = np.mean([line[name] for line in found], axis=0)
            view.add_row(panel, name, *(f"{value:.3f}" for value in mean))
    return view
