"""Reliability curves as inline SVG: predicted against observed, the diagonal is the truth.

In: counts, mean probabilities and shares of bins. Out: an SVG element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyseme_experiments.rendering._plot_parts import (
    add_axes,
    add_legend,
    line_handle,
    nothing_to_show,
)
from polyseme_experiments.rendering._svg import MARKERS, SOFT, TIP, colour_of, draw, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Bins of fewer entries say little and are left out.
FEWEST = 20
SIZE = (4.2, 3.9)  # inches of 72 pixels

Curve = Mapping[str, Sequence[float | None]]


def reliability_curves(name: str, curves: Mapping[str, Curve], *, title: str = "") -> str:
    """Draw how often labels of each probability are true, one curve for each series.

    Parameters
    ----------
    name : str
        Unique in the page; letters, digits and hyphens, a small letter first.
    curves : mapping of series to bins
        For each bin "counts", "predicted" and "observed", the latter between 0 and 1 or None.
    title : str
        Stands above.

    Returns
    -------
    str
        An SVG element.
    """
    shown = {series: kept for series, one in curves.items() if (kept := _filled(one))}
    if not shown:
        raise nothing_to_show(name)

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, title, x="predicted probability (%)", y="share that is true (%)")
        axes.plot([0, 100], [0, 100], color=SOFT, linewidth=1, linestyle="--")
        for place, (series, bins) in enumerate(shown.items()):
            _add_curve(axes, series, bins, place)
        axes.set_xlim(-2, 102)
        axes.set_ylim(-2, 102)
        handles = [line_handle(place) for place in range(len(shown))]
        add_legend(figure, handles, [words(series) for series in shown])

    told = "; ".join(
        f"{series}: " + ", ".join(f"{x:.0f} to {y:.0f}" for _, x, y in bins)
        for series, bins in shown.items()
    )
    return draw(paint, name=name, label=f"{title or 'Reliability'}: {told}", size=SIZE)


def _filled(curve: Curve) -> list[tuple[int, float, float]]:
    """Give count, predicted and observed in percent of the bins that say something."""
    rows = zip(curve["counts"], curve["predicted"], curve["observed"], strict=True)
    return [
        (int(count), 100 * predicted, 100 * observed)
        for count, predicted, observed in rows
        if count is not None and count >= FEWEST and predicted is not None and observed is not None
    ]


def _add_curve(
    axes: Axes, series: str, bins: Sequence[tuple[int, float, float]], place: int
) -> None:
    """Draw one curve; the larger a mark, the more entries its bin has."""
    counts, xs, ys = (np.array(one) for one in zip(*bins, strict=True))
    colour = colour_of(place)
    axes.plot(xs, ys, color=colour, linewidth=1.3)
    for count, x, y in zip(counts, xs, ys, strict=True):
        told = f"{series}: {count} labels given {x:.1f} %, {y:.1f} % true"
        axes.plot(
            [x],
            [y],
            MARKERS[place % len(MARKERS)],
            color=colour,
            markersize=2 + 1.4 * np.log10(count),
            gid=TIP + words(told),
        )
