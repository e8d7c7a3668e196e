"""The picture of recovered receptive fields: true masks above those that training found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from icl25_lp_conv.plotting import INK, make_figure
from icl25_lp_conv.recovery import ANGLES, Recovery

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_recovery"]


def plot_recovery(known: Recovery, joint: Recovery) -> Figure:
    """True and found masks, one column for each of the six directions.

    Args:
        known: Found with known kernels.
        joint: Found together with the kernels; of the channels of a direction the one in the middle by error is shown.

    Returns:
        The figure.

    Source: ours.
    """
    rows = [("true", known, known.true_masks), ("found,\nkernels known", known, known.found_masks)]
    rows.append(("found with\nthe kernels", joint, joint.found_masks))
    figure, grid = make_figure(1.3 * len(ANGLES) + 1.4, 5.0, nrows=len(rows), ncols=len(ANGLES))
    for axes_row, (label, recovery, masks) in zip(grid, rows, strict=True):
        for column, (axes, angle) in enumerate(zip(axes_row, ANGLES, strict=True)):
            channels = np.flatnonzero(recovery.angle == angle)
            channel = channels[np.argsort(recovery.error[channels])[len(channels) // 2]]
            axes.imshow(masks[channel], cmap="magma", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
            if column == 0:
                axes.set_ylabel(label, rotation=0, ha="right", va="center", color=INK)
            if masks is recovery.true_masks:
                axes.set_title(f"{math.degrees(angle):.0f}°", fontsize=10, color=INK)
            else:
                axes.set_xlabel(f"{recovery.error[channel]:.1f}° off", fontsize=9)
    return figure
