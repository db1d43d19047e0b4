"""Plots of the report: inline SVG made with matplotlib, without its global state.

In: plain records and arrays. Out: SVG elements; `report` makes the page of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from polyseme._validation import InputError
from polyseme_experiments.rendering._plot_parts import (
    add_axes,
    add_bar,
    add_curve,
    add_difference,
    add_legend,
    arrange,
    dots_handle,
    frame_of,
    line_handle,
    listed,
    name_differences,
    name_senses,
    nothing_to_show,
    patch_handle,
    published_handle,
)
from polyseme_experiments.rendering._svg import CARD, HALO, MARKERS, SOFT, colour_of, draw, words
from polyseme_experiments.rendering.cells import Cell, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 5.6  # inches of 72 pixels
MAX_OTHERS = 1200


@dataclass(frozen=True)
class Point:
    """One value of `bars` or `curves`.

    Attributes
    ----------
    series : str
        A method (`bars`) or a set of labels (`curves`).
    x : str or float
        A set of labels (`bars`) or a number of dimensions (`curves`).
    mean, error : float or None
        Ours, and its standard error.
    published, published_error : float or None
        What the paper prints.
    """

    series: str
    x: str | float
    mean: float | None
    error: float | None = None
    published: float | None = None
    published_error: float | None = None


@dataclass(frozen=True)
class Difference:
    """One line of `differences`: a paired difference with its 95 % interval.

    Attributes
    ----------
    group : str
        Lines of one group stand together: a corpus.
    label : str
        What is compared: a set of labels, or a baseline.
    mean : float or None
        Ours less theirs; a line without it is left out.
    low, high : float or None
        The interval; None where there are too few trials for one.
    """

    group: str
    label: str
    mean: float | None
    low: float | None = None
    high: float | None = None


def points_of(
    table: Table,
    series: str,
    columns: Sequence[str] | None = None,
    where: Mapping[str, object] | None = None,
) -> list[Point]:
    """Take the points of `bars` from a table.

    Parameters
    ----------
    table : Table
    series : str
        The column that names the series, such as "method".
    columns : sequence of str, optional
        The measured columns to show; all of them by default.
    where : mapping of str to object, optional
        Only rows with these values in these columns.

    Returns
    -------
    list of Point
    """
    names = [table.split_note(name)[0] for name in table.header]
    shown = names if columns is None else list(columns)
    for name in (series, *(where or {}), *(columns or ())):
        if name not in names:
            raise InputError(f"Table '{table.name}' has no column '{name}'; it has {names}.")
    points = []
    for row in table.rows:
        about = dict(zip(names, row, strict=True))
        if any(about[key] != value for key, value in (where or {}).items()):
            continue
        method = table.split_note(str(about[series]))[0]
        for column in shown:
            cell = about[column]
            if isinstance(cell, Cell):
                published = cell.published, cell.published_error
                points.append(Point(method, column, cell.mean, cell.error, *published))
    return points


def bars(name: str, points: Sequence[Point], *, measure: str, title: str = "") -> str:
    """Draw groups of bars: one group per set of labels, one bar per method.

    Parameters
    ----------
    name : str
        Unique in the page; letters, digits and hyphens, a small letter first.
    points : sequence of Point
        Series and groups appear in the order of their first point; published values as hollow
        diamonds.
    measure : str
        Names the vertical axis.
    title : str
        Stands above.

    Returns
    -------
    str
        An SVG element.
    """
    table, series, groups = arrange(points, name)
    width = 0.84 / len(series)

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, title, y=measure)
        axes.set_ylim(bottom=0)
        for place, method in enumerate(series):
            for at, group in enumerate(groups):
                point = table.get((method, group))
                if point is not None:
                    x = at + (place - (len(series) - 1) / 2) * width
                    add_bar(axes, point, x, width * 0.9, place)
        axes.set_xticks(range(len(groups)), [words(str(group)) for group in groups])
        axes.tick_params(axis="x", length=0)
        axes.margins(x=0.01)
        axes.autoscale(axis="y")
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        patches = [patch_handle(place) for place in range(len(series))]
        handles, labels = patches, [words(one) for one in series]
        if any(point.published is not None for point in points):
            handles, labels = [*patches, published_handle()], [*labels, "published"]
        add_legend(figure, handles, labels)

    label = f"{title or 'Bars'}: {measure} of {', '.join(series)} for {listed(groups)}"
    return draw(paint, name=name, label=label, size=(WIDTH, 3.1))


def curves(
    name: str,
    points: Sequence[Point],
    *,
    measure: str,
    x: str = "dimensions of the concept space",
    title: str = "",
) -> str:
    """Draw a measure against a number, one curve per series, the published ones dashed.

    Parameters
    ----------
    name : str
        Unique in the page; letters, digits and hyphens, a small letter first.
    points : sequence of Point
        With numbers as `x`, all above zero.
    measure, x : str
        Name the axes.
    title : str
        Stands above.

    Returns
    -------
    str
        An SVG element.
    """
    table, series, groups = arrange(points, name)
    numbers = sorted(float(one) for one in groups)

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, title, y=measure, x=x)
        is_log = numbers[0] > 0 and numbers[-1] >= 8 * numbers[0]
        axes.set_xscale("log" if is_log else "linear")
        for place, one in enumerate(series):
            mine = sorted((p for p in table.values() if p.series == one), key=lambda p: float(p.x))
            # Error bars side by side: a little to the left or right of the number.
            aside = 0.035 * (place - (len(series) - 1) / 2)
            step = (numbers[-1] - numbers[0]) / 10
            xs = [float(p.x) * (1 + aside) if is_log else float(p.x) + aside * step for p in mine]
            add_curve(axes, mine, xs, place)
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.minorticks_off()
        axes.margins(x=0.06)
        handles = [line_handle(place) for place in range(len(series))]
        labels = [words(one) for one in series]
        if any(point.published is not None for point in points):
            handles, labels = [*handles, line_handle(None)], [*labels, "published"]
        add_legend(figure, handles, labels)

    label = f"{title or 'Curves'}: {measure} against {x} for {', '.join(series)}"
    return draw(paint, name=name, label=label, size=(WIDTH, 3.1))


def differences(
    name: str, lines: Sequence[Difference], *, measure: str, versus: str, title: str = ""
) -> str:
    """Draw paired differences with their 95 % intervals, line by line.

    A filled mark to the right of zero: ours is better, and the interval says so; to the left:
    worse; hollow and grey: the interval holds zero, or there is none.

    Parameters
    ----------
    name : str
        Unique in the page; letters, digits and hyphens, a small letter first.
    lines : sequence of Difference
        From top to bottom.
    measure : str
        What the difference is in.
    versus : str
        The baseline, or what the baselines are called together.
    title : str
        Stands above.

    Returns
    -------
    str
        An SVG element.
    """
    shown = [line for line in lines if line.mean is not None]
    if not shown:
        raise nothing_to_show(name)
    groups = list(dict.fromkeys(line.group for line in shown))

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, title, x=f"{measure}, ours less {versus}", grid="x")
        axes.axvline(0, color=SOFT, linewidth=1)
        ticks: list[tuple[float, str, str]] = []
        y = 0.0
        for group in groups:
            ticks.append((y, words(group), ""))
            for line in (one for one in shown if one.group == group):
                y += 1
                ticks.append((y, words(line.label), add_difference(axes, line, y)))
            y += 1.3
        axes.set_ylim(y - 0.7, -0.7)
        name_differences(axes, ticks, {words(group) for group in groups})

    told = "; ".join(f"{line.group}, {line.label}: {line.mean:+.2f}" for line in shown)
    label = f"{title or 'Differences'}: {measure}, ours less {versus}: {told}"
    height = 0.9 + 0.23 * (len(shown) + 1.3 * len(groups))
    return draw(paint, name=name, label=label, size=(WIDTH, height))


def usage(
    name: str,
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    names: tuple[str, str],
    title: str = "",
    measure: str = "share of documents (%)",
) -> str:
    """Draw how often two corpora use the labels of the first, sorted by the first.

    Parameters
    ----------
    name : str
        Unique in the page; letters, digits and hyphens, a small letter first.
    first, second : mapping of label to float
        How often each corpus uses a label; one that the second lacks counts as 0.
    names : (str, str)
        The corpora.
    title : str
        Stands above.
    measure : str
        Names the vertical axis.

    Returns
    -------
    str
        An SVG element.
    """
    if not first:
        raise nothing_to_show(name)
    labels = sorted(first, key=lambda label: (-first[label], label))
    ours = np.array([first[label] for label in labels], dtype=np.float64)
    theirs = np.array([second.get(label, 0.0) for label in labels], dtype=np.float64)
    correlation = usage_correlation(first, second)
    told = "no correlation defined" if correlation is None else f"r = {correlation:.2f}"
    told += f" over {len(labels)} labels"

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, title, y=measure, x=f"labels of {words(names[0])}, commonest first")
        ranks = np.arange(1, len(labels) + 1)
        axes.fill_between(ranks, ours, step="mid", color=colour_of(0), alpha=0.45, linewidth=0)
        axes.plot(ranks, theirs, ".", markersize=4, color=colour_of(1))
        axes.set_xlim(0.3, len(labels) + 0.7)
        axes.set_ylim(bottom=0)
        axes.text(0.98, 0.94, told, transform=axes.transAxes, ha="right", va="top", gid=HALO)
        dots = dots_handle(".", colour_of(1))
        add_legend(figure, [patch_handle(0, alpha=0.45), dots], [words(one) for one in names])

    label = f"{title or 'Label usage'}: {names[0]} and {names[1]}, {told}"
    return draw(paint, name=name, label=label, size=(WIDTH, 2.9))


def usage_correlation(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Give Pearson's correlation of two corpora's usage over the labels of the first.

    Parameters
    ----------
    first, second : mapping of label to float
        As in `usage`.

    Returns
    -------
    float or None
        None where either is the same for all labels.
    """
    pairs = np.array([(first[label], second.get(label, 0.0)) for label in first], dtype=np.float64)
    if len(pairs) < 2 or (pairs == pairs[0]).all(axis=0).any():
        return None
    gaps = pairs - pairs.mean(axis=0)
    return float((gaps[:, 0] @ gaps[:, 1]) / np.prod(np.linalg.norm(gaps, axis=0)))


def senses(
    name: str,
    points: ArrayLike,
    sense: Sequence[int],
    company: Sequence[Sequence[str]],
    *,
    label: str,
    others: ArrayLike = (),
    title: str = "",
) -> str:
    """Draw the concepts of one label in two dimensions, coloured by sense.

    Parameters
    ----------
    name : str
        Unique in the page; letters, digits and hyphens, a small letter first.
    points : array-like, shape (n, 2)
        The label's concepts.
    sense : sequence of int, length n
        The sense of each, from 0.
    company : sequence of sequences of str
        For each sense the labels that typically stand beside it.
    label : str
        The label.
    others : array-like, shape (m, 2)
        Concepts of other labels, in grey; at most 1,200 of them are shown.
    title : str
        Stands above.

    Returns
    -------
    str
        An SVG element.
    """
    places = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    kinds = np.asarray(sense, dtype=np.int64)
    if len(places) == 0 or len(places) != len(kinds) or kinds.max() >= len(company):
        raise InputError(
            f"`senses` needs one sense per concept and one company per sense; got {len(places)} "
            f"concepts, {len(kinds)} senses of concepts and {len(company)} companies."
        )
    low, high = frame_of(places)
    around = np.asarray(others, dtype=np.float64).reshape(-1, 2)
    around = around[((around > low) & (around < high)).all(axis=1)]
    around = around[:: max(1, -(-len(around) // MAX_OTHERS))]
    texts = [", ".join(words(word) for word in one) or "other" for one in company]

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, title, grid="")
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.plot(*around.T, ".", markersize=3, color=SOFT, alpha=0.3, markeredgewidth=0)
        for kind in range(len(texts)):
            mine = places[kinds == kind]
            marker = MARKERS[kind % len(MARKERS)]
            colour = colour_of(kind)
            axes.plot(
                *mine.T,
                marker,
                markersize=5,
                color=colour,
                markeredgecolor=CARD,
                markeredgewidth=0.5,
                linestyle="",
            )
        name_senses(axes, places, kinds, texts, (low, high))

    counted = "; ".join(f"{text}: {int((kinds == kind).sum())}" for kind, text in enumerate(texts))
    told = f"{title or 'Senses'}: concepts of {label} by sense: {counted}"
    return draw(paint, name=name, label=told, size=(WIDTH, 3.9))
