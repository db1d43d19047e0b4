"""Plots of the page of benchmarks, in the looks of the results page.

In: tables, curves and ratios of reports. Out: SVG elements, the same for the same input.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from _reporting import Curve, Ratio, Table, exponent, is_ours, shown

from polyseme_experiments.report.svg import (
    HALO,
    MARKERS,
    SOFT,
    add_axes,
    colour_of,
    draw,
    words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

WIDTH = 4.6  # inches of 72 pixels: letters stay readable on a phone
MOST_LETTERS = 60  # of what stands over a bar
MOST_BARS = 2  # columns of one table that are drawn unasked
CLOSE = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)  # ticks of less than a decade
LOG_FROM = 20.0  # ratio of largest to smallest from which bars are drawn in logarithms
_TIME = re.compile(r"\b(seconds?|minutes?|hours?|s|ms|µs|us|ns)\b(?!/)")
_SIZE = re.compile(r"[\d.,\s]+")
_RATE = re.compile(r"(per|an?|each|/)\s*(second|s|ms)\b|/s\b")


# ---------------------------------------------------------------------- bars


def bar_columns(table: Table) -> list[str]:
    """Choose the columns of a table that are drawn as bars."""
    if table.bars is not None:
        return [name for name in table.bars if _bars_of(table, name)]
    # Sizes are no ways; curves show what depends on them.
    for row in table.rows:
        first_cell = row[0]
        if not isinstance(first_cell, str) or _SIZE.fullmatch(first_cell):
            return []
    names = []
    for name in table.columns:
        is_time = _TIME.search(name) and not _RATE.search(name)
        if is_time and len(_bars_of(table, name)) > 1:
            names.append(name)
    return names[:MOST_BARS]


def bars(name: str, table: Table, column: str) -> str:
    """Draw one column of a table, row by row from top to bottom, ours in colour.

    Parameters
    ----------
    name : str
        Unique in the page.
    table : Table
    column : str
        Its name; rows without a number above zero in it are left out.
    """
    lines = _bars_of(table, column)
    values = [value for _, value, _ in lines]
    is_log = max(values) >= LOG_FROM * min(values)
    start = 10.0 ** math.floor(math.log10(min(values)) - 0.15) if is_log else 0.0

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, column, x="logarithmic scale" if is_log else "", grid="x")
        # Room for the number behind the longest bar.
        if is_log:
            axes.set_xscale("log")
            axes.set_xlim(start, max(values) * (max(values) / start) ** 0.16)
        else:
            axes.set_xlim(0, max(values) * 1.16)
        for place, (label, value, ours) in enumerate(lines):
            colour = colour_of(0) if ours or not any(line[2] for line in lines) else colour_of(7)
            axes.barh([place + 0.2], [value - start], 0.42, left=[start], color=colour, linewidth=0)
            _over(axes, label, place).set_fontweight("bold" if ours else "normal")
            axes.annotate(
                shown(value), (value, place + 0.2), (4, 0), textcoords="offset points", va="center"
            )
        axes.set_ylim(len(lines) - 0.45, -0.6)
        axes.set_yticks([])
        _name_ticks(axes, "x", is_log)

    label = "; ".join(f"{label}: {shown(value)}" for label, value, _ in lines)
    height = 0.7 + 0.2 * is_log + 0.4 * len(lines)
    return draw(paint, name=name, label=f"{table.title}, {column}: {label}", size=(WIDTH, height))


def _bars_of(table: Table, column: str) -> list[tuple[str, float, bool]]:
    """Return for each row what it is, its number, and whether it is ours."""
    names = table.columns
    value_column = names.index(column)
    first_column = value_column
    for place, name in enumerate(names):
        if _TIME.search(name):
            first_column = min(first_column, place)
    n_names = first_column or 1
    lines = []
    for row in table.rows:
        value = row[value_column]
        if not isinstance(value, int | float):
            continue
        if not 0 < value < math.inf:
            continue
        cells = row[:n_names]
        titles = [shown(cell) for cell in cells if cell not in (None, "")]
        label = ", ".join(titles)
        line = (label, float(value), is_ours(row))
        lines.append(line)
    return lines


# ---------------------------------------------------------------------- curves


def growth(points: Sequence[Sequence[float]], x: str) -> str:
    """Return how a figure grows with a size, in words; empty where that cannot be said."""
    positive = _positive(points)
    sizes = {point[0] for point in positive}
    if len(sizes) < 2:
        return ""
    power = exponent(positive)
    return f"grows with {x} to the power {power:.2f}"


def curve_plot(name: str, curve: Curve) -> str:
    """Draw curves in logarithms, with the line that was fitted to each dashed.

    Parameters
    ----------
    name : str
        Unique in the page.
    curve : Curve
        Points that are not above zero are left out; without any there is no picture.
    """
    series = {}
    for series_name, points in curve.series.items():
        positive = _positive(points)
        if positive:
            series[series_name] = positive
    if not series:
        return ""

    def paint(figure: Figure) -> None:
        lines = textwrap.wrap(curve.title, 52)
        title = "\n".join(lines)
        axes = add_axes(figure, title, x=curve.x, y=curve.y, grid="y")
        axes.set_xscale("log")
        axes.set_yscale("log")
        for place, (series_name, points) in enumerate(series.items()):
            _add_curve(axes, series_name, points, place)
        axes.margins(x=0.06, y=0.1)
        _name_ticks(axes, "x", True)
        _name_ticks(axes, "y", True)
        figure.legend(loc="outside lower left", handlelength=1.4)

    growths = []
    for series_name, points in series.items():
        growths.append(f"{series_name} {growth(points, curve.x)}")
    listed = "; ".join(growths)
    label = f"{curve.title}: {curve.y} against {curve.x}. {listed}"
    height = 2.8 + 0.19 * len(series)
    return draw(paint, name=name, label=label, size=(WIDTH, height))


def _positive(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Keep what has logarithms, by size."""
    return sorted([x, y] for x, y in points if 0 < x < math.inf and 0 < y < math.inf)


def _add_curve(axes: Axes, name: str, points: list[list[float]], place: int) -> None:
    """Draw one series and the line fitted to it."""
    colour = colour_of(place)
    marker = MARKERS[place % 8]
    xs = [x for x, _ in points]
    ys = [y for _, y in points]
    (line,) = axes.plot(xs, ys, color=colour, linewidth=1.8, marker=marker)
    line.set(markersize=5, label=words(name))
    if len(set(xs)) < 2:
        return
    power = exponent(points)
    label = words(f"{name}: exponent {power:.2f}")
    line.set_label(label)
    # The line passes through the mean of the logarithms.
    logs = [math.log(y) - power * math.log(x) for x, y in points]
    mean_log = sum(logs) / len(points)
    factor = math.exp(mean_log)
    ends = [min(xs), max(xs)]
    fitted = [factor * x**power for x in ends]
    axes.plot(ends, fitted, "--", color=colour, linewidth=1, alpha=0.6)


# ---------------------------------------------------------------------- targets


def meter(ratio: Ratio, most: float) -> str:
    """Draw how far a ratio lies past its target, in logarithms; left of the line is short.

    Parameters
    ----------
    ratio : Ratio
    most : float
        How many times better than the target the right end of the picture is, above 1.
    """
    width, height, middle = 120, 14, 36
    past = margin(ratio)
    if past is None:
        return ""
    unit = (width - middle - 2) / math.log(most)
    end = min(max(middle + unit * math.log(past), 1.0), width - 1.0)
    left, colour = min(end, middle), "var(--m2)" if ratio.met else "var(--m1)"
    title = f"{past:.2f} times as good as the target"
    return (
        f'<svg class="meter" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<rect x="{left:.1f}" y="4" width="{max(abs(end - middle), 1):.1f}" height="6" rx="1" '
        f'style="fill: {colour}"/>'
        f'<path d="M{middle} 0V{height}" style="stroke: var(--ink)"/></svg>'
    )


def margin(ratio: Ratio) -> float | None:
    """Return how many times better than its target a ratio is; None where that has no meaning."""
    value = ratio.value
    target = ratio.target
    if not 0 < value < math.inf:
        return None
    if not 0 < target < math.inf:
        return None
    if ratio.at_least:
        return value / target
    return target / value


# ---------------------------------------------------------------------- axes


def _over(axes: Axes, text: str, place: int) -> Text:
    """Write what a line is, at the left and above it."""
    transform = axes.get_yaxis_transform()
    shortened = textwrap.shorten(words(text), MOST_LETTERS, placeholder=" …")
    y = place - 0.24
    return axes.text(0.006, y, shortened, transform=transform, va="center", gid=HALO)


def _name_ticks(axes: Axes, axis: Literal["x", "y"], is_log: bool) -> None:
    """Write plain numbers at the ticks, and powers of ten where they are shorter."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if axis == "x":
        ticks = axes.xaxis
        low, high = axes.get_xlim()
    else:
        ticks = axes.yaxis
        low, high = axes.get_ylim()
    if is_log:
        decades = math.log10(high / low)
        subs: Sequence[float] = CLOSE
        if decades > 2.2:
            subs = (1.0,)
        elif decades > 0.7:
            subs = (1.0, 2.0, 5.0)
        most_ticks = 9 if decades > 2.2 else 12
        ticks.set_major_locator(LogLocator(subs=subs, numticks=most_ticks))
        ticks.set_minor_locator(NullLocator())
    else:
        ticks.set_major_locator(MaxNLocator(5))
    formatter = FuncFormatter(lambda value, _: tick(value))
    ticks.set_major_formatter(formatter)
    length = 0 if axis == "y" else 3
    axes.tick_params(axis=axis, color=SOFT, length=length)


def tick(value: float) -> str:
    """Write a number at a tick: 10⁶ for a million, plain below ten thousand."""
    power = 0
    if value > 0:
        power = round(math.log10(value))
    is_power = math.isclose(value, 10.0**power)
    if abs(power) > 3 and is_power:
        superscripts = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
        exponent_text = str(power).translate(superscripts)
        return f"10{exponent_text}"
    return f"{value:,.10g}"


def names_of(reports: Mapping[str, object]) -> list[str]:
    """Return the reports' names as the page's ids: a small letter first, no other signs."""
    return [re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in reports]
