"""Plots of the report: inline SVG made with matplotlib, without its global state.

In: cells, tests and arrays. Out: SVG elements. The name of a plot begins its ids and must be
unique in a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme_experiments.report.statistics import PairedTest
from polyseme_experiments.report.svg import (
    CARD,
    HALO,
    INK,
    MARKERS,
    SOFT,
    TIP,
    add_axes,
    colour_of,
    draw,
    words,
)
from polyseme_experiments.report.tables import Cell, value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 5.6  # inches of 72 pixels
MAX_OTHERS = 1200
# Bins of reliability curves with fewer entries say little and are left out.
FEWEST = 20

Bins = Mapping[str, Sequence[float]]
Look = dict[str, Any]


def _column(cells: Sequence[Cell], field: str) -> NDArray[np.float64]:
    """Return one field of some cells, (n,), NaN where there is none."""
    return np.array([getattr(cell, field) for cell in cells], dtype=np.float64)


def _add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend of all labelled artists below the plot."""
    handles, labels = axes.get_legend_handles_labels()
    longest = max(map(len, labels))
    n_columns = 3
    if longest < 24:
        n_columns = 4
    look: Look = {
        "ncols": n_columns,
        "handlelength": 1.6,
        "columnspacing": 1.4,
    }
    figure.legend(handles, labels, loc="outside lower left", **look)


def bars(name: str, series: Mapping[str, Mapping[str, Cell]], *, measure: str) -> str:
    """Draw one group of bars for each set of labels, one bar for each method.

    Published values are hollow diamonds; `measure` names the vertical axis.
    """
    groups = list(dict.fromkeys(group for cells in series.values() for group in cells))
    width = 0.84 / len(series)
    theirs: list[tuple[float, Cell]] = []

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, y=measure)
        for place, (method, cells) in enumerate(series.items()):
            shift = (place - (len(series) - 1) / 2) * width
            xs = [groups.index(group) + shift for group in cells]
            listed = list(cells.values())
            patches = axes.bar(
                xs,
                _column(listed, "mean"),
                0.9 * width,
                yerr=_column(listed, "error"),
                color=colour_of(place),
                hatch="////" if place >= 8 else None,
                linewidth=0,
                label=words(method),
                error_kw={"ecolor": INK, "elinewidth": 1, "capsize": 2},
            )
            for patch, (group, cell) in zip(patches.patches, cells.items(), strict=True):
                patch.set_gid(TIP + words(f"{method}, {group}: {value_text(cell)}"))
            theirs.extend(pair for pair in zip(xs, listed, strict=True) if pair[1].published)
        if theirs:
            published = [cell for _, cell in theirs]
            axes.errorbar(
                [x for x, _ in theirs],
                _column(published, "published"),
                yerr=_column(published, "published_error"),
                fmt="D",
                markersize=4.5,
                color=INK,
                markerfacecolor=CARD,
                markeredgewidth=1.1,
                elinewidth=0.6,
                label="published",
            )
        axes.set_xticks(range(len(groups)), [words(group) for group in groups])
        axes.tick_params(axis="x", length=0)
        axes.margins(x=0.01)
        axes.set_ylim(bottom=0)
        _add_legend(figure, axes)

    label = f"Bars: {measure} of {', '.join(series)} for {', '.join(groups)}"
    return draw(paint, name=name, label=label, size=(WIDTH, 3.1))


def curves(
    name: str,
    series: Mapping[str, Mapping[float, Cell]],
    *,
    measure: str,
    x_name: str = "dimensions of the concept space",
) -> str:
    """Draw a measure against a number, the published values dashed."""
    numbers = sorted({number for cells in series.values() for number in cells})

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, y=measure, x=x_name)
        axes.set_xscale("log")
        has_published = False
        for place, (label, by_number) in enumerate(series.items()):
            # Error bars side by side: a little to the left or right of the number.
            aside = 1 + 0.035 * (place - (len(series) - 1) / 2)
            xs, cells = np.array(list(by_number)) * aside, list(by_number.values())
            look: Look = {"color": colour_of(place), "marker": MARKERS[place % 8]}
            look |= {"markersize": 5, "elinewidth": 1, "capsize": 2.5}
            published = _column(cells, "published")
            if np.isfinite(published).any():
                has_published = True
                errors = _column(cells, "published_error")
                dashed: Look = {"linestyle": "--", "linewidth": 1.1, "markerfacecolor": CARD}
                axes.errorbar(xs, published, yerr=errors, **look, **dashed)
            means, errors = _column(cells, "mean"), _column(cells, "error")
            axes.errorbar(xs, means, yerr=errors, linewidth=1.8, label=words(label), **look)
        if has_published:
            axes.errorbar([], [], linestyle="--", linewidth=1.1, color=SOFT, label="published")
        axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
        axes.minorticks_off()
        axes.margins(x=0.06)
        _add_legend(figure, axes)

    label = f"Curves: {measure} against {x_name} for {', '.join(series)}"
    return draw(paint, name=name, label=label, size=(WIDTH, 3.1))


def differences(
    name: str, groups: Mapping[str, Mapping[str, PairedTest]], *, measure: str, versus: str
) -> str:
    """Draw paired differences with their 95 % intervals, line by line, in groups.

    A filled mark to the right of zero: ours is better, and the interval says so; to the left:
    worse; hollow and grey: the interval holds zero, or there is none. Tests without a difference
    are left out; `versus` is what the others are called together.
    """
    lines = [
        (group, label, test)
        for group, tests in groups.items()
        for label, test in tests.items()
        if test.difference is not None
    ]

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, x=f"{measure}, ours less {versus}", grid="x")
        axes.axvline(0, color=SOFT, linewidth=1)
        ticks: list[tuple[float, str, str]] = []
        y, before = -1.3, None
        for group, label, test in lines:
            if group != before:
                y, before = y + 1.3, group
                ticks.append((y, words(group), ""))
            y += 1
            ticks.append((y, words(label), _add_difference(axes, group, label, test, y)))
        axes.set_ylim(y + 0.6, -0.7)
        places = [place for place, _, _ in ticks]
        axes.set_yticks(places, [text for _, text, _ in ticks])
        axes.spines["left"].set_visible(False)
        for text, (_, _, numbers) in zip(axes.get_yticklabels(), ticks, strict=True):
            text.set_fontweight("normal" if numbers else "bold")
        right = axes.secondary_yaxis("right")
        right.set_yticks(places, [numbers for _, _, numbers in ticks])
        right.spines["right"].set_visible(False)
        right.tick_params(axis="y", length=0, labelsize=8)
        axes.tick_params(axis="y", length=0)

    listed = "; ".join(f"{group}, {label}: {test.difference:+.2f}" for group, label, test in lines)
    height = 0.9 + 0.23 * (len(lines) + 1.3 * len(groups))
    label = f"Differences: {measure}, ours minus {versus}: {listed}"
    return draw(paint, name=name, label=label, size=(WIDTH, height))


def _add_difference(axes: Axes, group: str, label: str, test: PairedTest, y: float) -> str:
    """Draw one difference with its confidence interval at a height, and return both as text.

    One whose interval holds 0 is drawn hollow, others in the colour of the better side.
    """
    assert test.difference is not None
    text = f"{test.difference:+.2f}"
    colour = SOFT
    face = CARD
    if test.low is not None and test.high is not None:
        text += f" [{test.low:+.2f}, {test.high:+.2f}]"
        is_better = test.low > 0
        is_worse = test.high < 0
        if is_better or is_worse:
            colour = colour_of(0 if is_better else 1)
            face = colour
        axes.plot([test.low, test.high], [y, y], color=colour, linewidth=1.8)
    tip = TIP + words(f"{group}, {label}: {text}")
    look: Look = {"color": colour, "markerfacecolor": face, "markeredgewidth": 1.3, "zorder": 4}
    axes.plot([test.difference], [y], "o", markersize=6, gid=tip, **look)
    return text.replace("-", "\u2212")


def usage(
    name: str, first: Mapping[str, float], second: Mapping[str, float], *, names: tuple[str, str]
) -> str:
    """Draw which percentage of two corpora's documents hold the labels of the first, sorted by it.

    A label that the second lacks counts as 0; `names` are the corpora.
    """
    labels = sorted(first, key=lambda label: (-first[label], label))
    correlation = usage_correlation(first, second)
    text = "no correlation defined" if correlation is None else f"r = {correlation:.2f}"
    text += f" over {len(labels)} labels"

    def paint(figure: Figure) -> None:
        x_name = f"labels of {words(names[0])}, commonest first"
        axes = add_axes(figure, y="share of documents (%)", x=x_name)
        ranks = np.arange(1, len(labels) + 1)
        ours = [first[label] for label in labels]
        theirs = [second.get(label, 0.0) for label in labels]
        look: Look = {"step": "mid", "alpha": 0.45, "linewidth": 0}
        axes.fill_between(ranks, ours, color=colour_of(0), label=words(names[0]), **look)
        axes.plot(ranks, theirs, ".", markersize=4, color=colour_of(1), label=words(names[1]))
        axes.set_xlim(0.3, len(labels) + 0.7)
        axes.set_ylim(bottom=0)
        axes.text(0.98, 0.94, text, transform=axes.transAxes, ha="right", va="top", gid=HALO)
        _add_legend(figure, axes)

    label = f"Label usage: {names[0]} and {names[1]}, {text}"
    return draw(paint, name=name, label=label, size=(WIDTH, 2.9))


def usage_correlation(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Return Pearson's correlation of usage over the labels of the first; None if flat."""
    usage_pairs = []
    for label, share in first.items():
        second_share = second.get(label, 0.0)
        usage_pairs.append((share, second_share))
    pairs = np.array(usage_pairs, dtype=np.float64)
    if len(pairs) < 2:
        return None
    is_flat = (pairs == pairs[0]).all(axis=0)
    if is_flat.any():
        return None
    correlations = np.asarray(np.corrcoef(pairs.T))
    return float(correlations[0, 1])


def senses(
    name: str,
    points: ArrayLike,
    sense: Sequence[int],
    company: Sequence[Sequence[str]],
    *,
    label: str,
    background: ArrayLike = (),
) -> str:
    """Draw the concepts of one label (n, 2), by sense, on a grey background (m, 2) of others.

    `sense` has the sense of each, from 0, and `company` for each sense the labels that typically
    stand beside it. At most 1,200 others are shown.
    """
    places = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    kinds = np.asarray(sense)
    low = places.min(axis=0)
    high = places.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    room = extent * np.array([0.14, 0.18])
    low = low - room
    high = high + room
    around = np.asarray(background, dtype=np.float64).reshape(-1, 2)
    is_inside = (around > low) & (around < high)
    around = around[is_inside.all(axis=1)]
    step = max(1, -(-len(around) // MAX_OTHERS))
    around = around[::step]
    texts = []
    for neighbours in company:
        text = ", ".join(words(word) for word in neighbours)
        texts.append(text or "other")

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, grid="")
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        axes.plot(*around.T, ".", markersize=3, color=SOFT, alpha=0.3, markeredgewidth=0)
        look: Look = {"markersize": 5, "markeredgecolor": CARD, "markeredgewidth": 0.5}
        for kind in range(len(texts)):
            members = places[kinds == kind]
            axes.plot(*members.T, MARKERS[kind % 8], color=colour_of(kind), **look)
        _name_senses(axes, places, kinds, texts, low, high)

    counts = "; ".join(f"{text}: {int((kinds == kind).sum())}" for kind, text in enumerate(texts))
    described = f"Senses: concepts of {label} by sense: {counts}"
    return draw(paint, name=name, label=described, size=(WIDTH, 3.9))


def _name_senses(
    axes: Axes,
    places: NDArray[np.float64],
    kinds: NDArray[np.int64],
    texts: Sequence[str],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    """Write each sense's company above its concepts, and lower where words stand already.

    `places` (n, 2) are the concepts' and `kinds` (n,) the numbers of their senses; `low` and `high`
    are the corners of the axes.
    """
    # In the units of the axes, and rather too large than too small.
    letter_width, line_height = np.array([0.0125, 0.055]) * (high - low)
    occupied: list[tuple[float, float, float]] = []  # x and y of centres, and half widths

    def is_occupied(x: float, y: float, half_width: float) -> bool:
        for other_x, other_y, other_half_width in occupied:
            same_line = abs(y - other_y) < line_height
            if same_line and abs(x - other_x) < half_width + other_half_width:
                return True
        return False

    for kind in np.unique(kinds).tolist():
        members = places[kinds == kind]
        text = texts[kind]
        half_width = len(text) * letter_width / 2
        leftmost = low[0] + half_width
        rightmost = max(high[0] - half_width, leftmost)
        centre = members[:, 0].mean()
        x = float(np.clip(centre, leftmost, rightmost))
        y = float(members[:, 1].max()) + 0.6 * line_height
        while is_occupied(x, y, half_width):
            y -= line_height
        occupied.append((x, y, half_width))
        look: Look = {"ha": "center", "va": "center", "weight": "bold", "color": colour_of(kind)}
        axes.text(x, y, text, fontsize=9, gid=HALO, **look)


def reliability(name: str, series: Mapping[str, Bins]) -> str:
    """Draw how often labels of each probability are true, one curve for each series.

    Bins have "counts", "predicted" and "observed", the latter between 0 and 1. The larger a mark,
    the more entries its bin has.
    """

    def paint(figure: Figure) -> None:
        axes = add_axes(figure, x="predicted probability (%)", y="share that is true (%)")
        axes.plot([0, 100], [0, 100], color=SOFT, linewidth=1, linestyle="--")
        for place, (label, bins) in enumerate(series.items()):
            all_counts = np.array(bins["counts"])
            is_large = all_counts >= FEWEST
            counts = all_counts[is_large]
            xs = 100 * np.array(bins["predicted"])[is_large]
            ys = 100 * np.array(bins["observed"])[is_large]
            marker = MARKERS[place]
            colour = colour_of(place)
            axes.plot(xs, ys, color=colour, linewidth=1.3)
            for count, x, y in zip(counts, xs, ys, strict=True):
                tip = f"{label}: {int(count)} labels given {x:.1f} %, {y:.1f} % true"
                size = 2 + 1.4 * np.log10(count)
                look: Look = {"color": colour, "markersize": size, "gid": TIP + words(tip)}
                axes.plot([x], [y], marker, **look)
            axes.plot([], [], marker=marker, markersize=5, color=colour, label=words(label))
        axes.set_xlim(-2, 102)
        axes.set_ylim(-2, 102)
        _add_legend(figure, axes)

    described = "; ".join(
        f"{label}: "
        + ", ".join(
            f"{100 * x:.0f} to {100 * y:.0f}"
            for count, x, y in zip(bins["counts"], bins["predicted"], bins["observed"], strict=True)
            if count >= FEWEST
        )
        for label, bins in series.items()
    )
    return draw(paint, name=name, label=f"Reliability: {described}", size=(4.2, 3.9))
