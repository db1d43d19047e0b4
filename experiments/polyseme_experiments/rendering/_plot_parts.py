"""Parts of the report's plots: axes, marks, legends and words.

In: axes or a figure and records of `plots`. Out: artists on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme_experiments.rendering._svg import (
    CARD,
    HALO,
    INK,
    MARKERS,
    SOFT,
    TIP,
    colour_of,
    words,
)
from polyseme_experiments.rendering.cells import Cell, cell_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from polyseme_experiments.rendering.plots import Difference, Point


def add_axes(figure: Figure, title: str, *, x: str = "", y: str = "", grid: str = "y") -> Axes:
    """Give the figure its axes with their names."""
    axes = figure.add_subplot()
    axes.set_title(words(title))
    axes.set_xlabel(words(x))
    axes.set_ylabel(words(y))
    if grid:
        axes.grid(axis="x" if grid == "x" else "y")
    return axes


def arrange(
    points: Sequence[Point], name: str
) -> tuple[dict[tuple[str, str | float], Point], list[str], list[str | float]]:
    """Arrange points by series and group, both in the order they come."""
    kept = [point for point in points if point.mean is not None or point.published is not None]
    if not kept:
        raise nothing_to_show(name)
    table = {(point.series, point.x): point for point in kept}
    if len(table) < len(kept):
        raise InputError(f"Plot '{name}' has two values for one place; give one.")
    series = list(dict.fromkeys(point.series for point in kept))
    return table, series, list(dict.fromkeys(point.x for point in kept))


def nothing_to_show(name: str) -> InputError:
    """Build the error for a plot without a value."""
    return InputError(f"Plot '{name}' has no values to show; leave it out.")


def listed(groups: Sequence[object]) -> str:
    """List the groups in words."""
    return ", ".join(str(group) for group in groups)


def tip_of(point: Point) -> str:
    """Say a point's values, for who points at it."""
    cell = Cell(point.mean, point.error, 0, point.published, point.published_error)
    return TIP + words(f"{point.series}, {point.x}: {cell_text(cell)}")


def add_error_bar(axes: Axes, x: float, y: float, error: float | None, **look: Any) -> None:
    """Draw an error bar, if there is an error."""
    if error is not None:
        axes.errorbar([x], [y], yerr=[error], fmt="none", color=look["ecolor"], **look)


def add_bar(axes: Axes, point: Point, x: float, width: float, place: int) -> None:
    """Draw one bar with its error, and the published value as a hollow diamond."""
    if point.mean is not None:
        hatch = "////" if place >= 8 else None
        axes.bar(
            [x],
            [point.mean],
            width,
            color=colour_of(place),
            hatch=hatch,
            gid=tip_of(point),
            linewidth=0,
        )
        add_error_bar(axes, x, point.mean, point.error, ecolor=INK, elinewidth=1, capsize=2)
    if point.published is not None:
        look = {"ecolor": INK, "elinewidth": 0.6, "capsize": 0}
        add_error_bar(axes, x, point.published, point.published_error, **look)
        axes.plot(
            [x],
            [point.published],
            "D",
            markersize=4.5,
            markerfacecolor=CARD,
            markeredgecolor=INK,
            markeredgewidth=1.1,
            zorder=5,
        )


def add_curve(axes: Axes, mine: Sequence[Point], xs: Sequence[float], place: int) -> None:
    """Draw one series at the given places with its errors, and its published one dashed."""
    colour = colour_of(place)
    marker = MARKERS[place % len(MARKERS)]
    at = list(zip(xs, mine, strict=True))
    ours = [(x, p.mean, p.error) for x, p in at if p.mean is not None]
    theirs = [(x, p.published, p.published_error) for x, p in at if p.published is not None]
    for values, line, face in ((theirs, "--", CARD), (ours, "-", colour)):
        axes.plot(
            [one[0] for one in values],
            [one[1] for one in values],
            linestyle=line,
            linewidth=1.1 if line == "--" else 1.8,
            color=colour,
            marker=marker,
            markersize=5,
            markerfacecolor=face,
        )
        for x, mean, error in values:
            add_error_bar(axes, x, mean, error, ecolor=colour, elinewidth=1, capsize=2.5)


def add_difference(axes: Axes, line: Difference, y: float) -> str:
    """Draw one difference and write its numbers."""
    assert line.mean is not None
    told = f"{line.mean:+.2f}"
    colour, face = SOFT, CARD
    if line.low is not None and line.high is not None:
        told += f" [{line.low:+.2f}, {line.high:+.2f}]"
        if line.low > 0 or line.high < 0:
            colour = face = colour_of(0 if line.low > 0 else 1)
        axes.plot([line.low, line.high], [y, y], color=colour, linewidth=1.8)
    axes.plot(
        [line.mean],
        [y],
        "o",
        markersize=6,
        color=colour,
        markerfacecolor=face,
        markeredgewidth=1.3,
        zorder=4,
        gid=TIP + words(f"{line.group}, {line.label}: {told}"),
    )
    return told.replace("-", "\u2212")


def name_differences(axes: Axes, ticks: Sequence[tuple[float, str, str]], heads: set[str]) -> None:
    """Write what each line is on the left, and its numbers on the right."""
    places = [y for y, _, _ in ticks]
    axes.set_yticks(places, [text for _, text, _ in ticks])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for text, (_, word, numbers) in zip(axes.get_yticklabels(), ticks, strict=True):
        if word in heads and not numbers:
            text.set_fontweight("bold")
    right = axes.secondary_yaxis("right")
    right.set_yticks(places, [numbers for _, _, numbers in ticks])
    right.tick_params(axis="y", length=0, labelsize=8)
    right.spines["right"].set_visible(False)


def frame_of(places: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give the lower and upper corner of what is shown, with room for words."""
    low, high = places.min(axis=0), places.max(axis=0)
    room = np.where(high > low, high - low, 1.0) * np.array([0.14, 0.18])
    return low - room, high + room


def name_senses(
    axes: Axes,
    places: NDArray[np.float64],
    kinds: NDArray[np.int64],
    texts: Sequence[str],
    frame: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    """Write each sense's company above its concepts, and further up where words stand already."""
    low, high = frame
    # In the units of the axes, and rather too large than too small.
    letter, line = np.array([0.0125, 0.055]) * (high - low)
    taken: list[tuple[float, float, float]] = []
    for kind in np.unique(kinds).tolist():
        mine = places[kinds == kind]
        text = texts[kind]
        half = len(text) * letter / 2
        x = float(np.clip(mine[:, 0].mean(), low[0] + half, max(high[0] - half, low[0] + half)))
        y = float(mine[:, 1].max()) + 0.6 * line
        while any(abs(y - b) < line and abs(x - a) < half + c for a, b, c in taken):
            y -= line
        taken.append((x, y, half))
        axes.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            weight="bold",
            fontsize=9,
            color=colour_of(kind),
            gid=HALO,
        )


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put the legend below the plot."""
    figure.legend(
        handles,
        labels,
        loc="outside lower left",
        ncols=min(len(labels), 4),
        handlelength=1.4,
        columnspacing=1.4,
    )


def patch_handle(place: int, alpha: float = 1.0) -> Any:
    """Give the legend's sign for bars."""
    from matplotlib.patches import Patch

    hatch = "////" if place >= 8 else None
    return Patch(facecolor=colour_of(place), alpha=alpha, hatch=hatch, linewidth=0)


def dots_handle(marker: str, colour: str) -> Any:
    """Give the legend's sign for dots."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", marker=marker, color=colour)


def published_handle() -> Any:
    """Give the legend's sign for published values."""
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        linestyle="",
        marker="D",
        markersize=4.5,
        markerfacecolor=CARD,
        markeredgecolor=INK,
        markeredgewidth=1.1,
    )


def line_handle(place: int | None) -> Any:
    """Give the legend's sign for a curve; None: for the published ones."""
    from matplotlib.lines import Line2D

    if place is None:
        return Line2D([], [], linestyle="--", linewidth=1.1, color=SOFT)
    return Line2D(
        [],
        [],
        linewidth=1.8,
        color=colour_of(place),
        marker=MARKERS[place % len(MARKERS)],
        markersize=5,
    )
