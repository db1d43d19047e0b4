"""Plots of a fitted tagger: its space, the senses of a label, and its calibration.

In: a `ZeroShotTagger`. Out: axes of matplotlib, which comes with the extra `plots`.

A known tag set lies at its direction, of which the first two axes are drawn. `store_.points` has a
row for each different tag set; `store_.sets` has the row of each known document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyseme.base.text import counted
from polyseme.base.validation import InputError, IntArray
from polyseme.scoring.senses import label_senses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polyseme.tagger import ZeroShotTagger

_MOST_CAPTIONS = 25  # more labels than these hide the dots
# Captions nearer than these shares of the plot's width and height would cover each other.
_CAPTION_SIZE = (0.12, 0.06)
_COLOURS = {"seen": "tab:blue", "unseen": "tab:orange"}


def plot_space(
    tagger: ZeroShotTagger, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the known tag sets as dots, on the two axes along which they differ most.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Fitted.
    labels : sequence of str, optional
        Labels to name, each where the tag sets that hold it lie on average; by default the
        commonest, as far as their names do not cover each other.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
    """
    axes = _axes(ax)
    store = tagger.store_
    points = store.points[store.sets, :2]
    axes.scatter(points[:, 0], points[:, 1], s=6, alpha=0.3, linewidths=0)
    if labels is None:
        columns = np.argsort(-store.counts, kind="stable")
        candidates = [store.labels[column] for column in columns]
    else:
        candidates = list(labels)
    captions = np.full((0, 2), np.nan)  # where labels have been written
    extent = np.ptp(points, axis=0)
    caption_size = extent * _CAPTION_SIZE
    for label in candidates:
        rows = _rows_with(tagger, label)
        if len(rows) == 0:
            continue
        centre = points[rows].mean(axis=0)
        offsets = np.abs(captions - centre)
        is_beside = (offsets > caption_size).any(axis=1)
        is_free = is_beside.all()
        if labels is not None or (is_free and len(captions) < _MOST_CAPTIONS):
            captions = np.vstack([captions, centre])
            axes.annotate(label, centre, ha="center", fontsize=8)
    title = counted(len(points), "known document")
    if len(store.points) < len(points):
        title += f", {counted(len(store.points), 'different tag set')}"
    axes.set(title=title, xticks=[], yticks=[])
    return axes


def plot_label(tagger: ZeroShotTagger, label: str, ax: Axes | None = None) -> Axes:
    """Draw the known tag sets that hold a label, in a colour for each of its senses.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Fitted.
    label : str
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        With a legend that names each sense by the labels that set it apart.
    """
    axes = _axes(ax)
    rows = _rows_with(tagger, label)
    sense_map = label_senses(tagger.store_, label, normalize=tagger.normalize_labels_)
    if sense_map is None:
        store = tagger.store_
        points = store.points[store.sets, :2]
        x, y = points.T
        axes.scatter(x, y, s=6, color="0.8", linewidths=0)
        x, y = points[rows].T
        axes.scatter(x, y, s=14, label="one sense")
    else:
        x, y = sense_map.background.T
        axes.scatter(x, y, s=6, color="0.8", linewidths=0)
        for number, words in enumerate(sense_map.words):
            is_in_sense = sense_map.senses == number
            x, y = sense_map.points[is_in_sense].T
            caption = ", ".join(words) or f"sense {number + 1}"
            axes.scatter(x, y, s=14, label=caption)
    axes.legend(fontsize=8)
    axes.set(title=label, xticks=[], yticks=[])
    return axes


def plot_reliability(tagger: ZeroShotTagger, ax: Axes | None = None) -> Axes:
    """Draw how often labels of each probability are true, on items that were held out.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Fitted, with a `validation_`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Seen labels, and labels that were made unseen; on the diagonal probabilities are right.
    """
    validation = tagger.validation_
    if validation is None:
        raise InputError("This tagger was not validated: too few items, or `n_validations` is 0.")
    axes = _axes(ax)
    axes.plot([0, 1], [0, 1], color="0.7", linestyle="--")
    for kind, curve in validation.curves.items():
        if curve:
            colour = _COLOURS[kind]
            # For each step of probabilities: how many, their mean, and the share that is true.
            _, predicted, observed = zip(*curve, strict=True)
            axes.plot(predicted, observed, marker=".", color=colour, label=kind)
    axes.legend()
    axes.set(xlabel="probability", ylabel="share that is true", title="Held-out items")
    return axes


def _rows_with(tagger: ZeroShotTagger, label: str) -> IntArray:
    """Return the rows of the known documents that hold a label, given any of its names."""
    store = tagger.store_
    column = tagger._column(label)
    # Labels that no document holds have columns beyond those of documents.
    if column >= len(store.labels):
        raise InputError(f"No known tag set holds '{label}', so there is nothing to draw.")
    label_entries = store.matrix[:, [column]]
    rows, _ = label_entries.nonzero()
    return rows.astype(np.int64)


def _axes(ax: Axes | None) -> Axes:
    """Return the axes to draw on: those that were given, or new ones."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise InputError(
            "Plots need matplotlib, which comes with the extra `plots`; run pip install "
            "'.[plots]' in a checkout."
        ) from error
    if ax is not None:
        return ax
    _, axes = plt.subplots()
    return axes
