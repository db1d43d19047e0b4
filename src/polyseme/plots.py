"""Plots of a fitted tagger: its space, the senses of a label, and its calibration.

In: a `ZeroShotTagger`. Out: axes of matplotlib, which comes with the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyseme.base.validation import InputError, IntArray
from polyseme.scoring.senses import label_senses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polyseme.tagger import ZeroShotTagger

_MOST_NAMES = 25
_COLOURS = {"seen": "tab:blue", "unseen": "tab:orange"}


def plot_space(
    tagger: ZeroShotTagger, labels: Sequence[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the known tag sets as dots, on the two axes in which they differ most.

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
    points = store.points[store.sets][:, :2]
    axes.scatter(points[:, 0], points[:, 1], s=6, alpha=0.3, linewidths=0)
    order = np.argsort(-store.counts, kind="stable")
    names = [store.labels[column] for column in order]
    if labels is not None:
        names = list(labels)
    captions = np.full((0, 2), np.nan)
    distance = 0.06 * np.ptp(points, axis=0) * (2, 1)
    for label in names:
        rows = _rows_with(tagger, label)
        if len(rows) == 0:
            continue
        place = points[rows].mean(axis=0)
        is_beside = np.abs(captions - place) > distance
        is_free = is_beside.any(axis=1).all()
        if labels is not None or (is_free and len(captions) < _MOST_NAMES):
            captions = np.vstack([captions, place])
            axes.annotate(label, place, ha="center", fontsize=8)
    axes.set(title=f"{len(points)} known tag sets", xticks=[], yticks=[])
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
    senses = label_senses(tagger.store_, label, normalize=tagger.normalize_labels_)
    if senses is None:
        store = tagger.store_
        points = store.points[store.sets]
        axes.scatter(points[:, 0], points[:, 1], s=6, color="0.8", linewidths=0)
        axes.scatter(points[rows, 0], points[rows, 1], s=14, label="one sense")
    else:
        x, y = senses.background.T
        axes.scatter(x, y, s=6, color="0.8", linewidths=0)
        for number, words in enumerate(senses.words):
            in_sense = senses.senses == number
            x, y = senses.points[in_sense].T
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
    for name, curve in validation.curves.items():
        if curve:
            colour = _COLOURS[name]
            _, predicted, observed = zip(*curve, strict=True)
            axes.plot(predicted, observed, marker=".", color=colour, label=name)
    axes.legend()
    axes.set(xlabel="probability", ylabel="share that is true", title="Held-out items")
    return axes


def _rows_with(tagger: ZeroShotTagger, label: str) -> IntArray:
    """Return the known documents that hold a label, by any of its names."""
    store = tagger.store_
    n_labels = len(store.labels)
    column = tagger._column(label)
    if column >= n_labels:
        raise InputError(f"No known tag set holds '{label}', so there is nothing to draw.")
    columns = [column]
    entries = store.matrix[:, columns]
    rows, _ = entries.nonzero()
    return rows.astype(np.int64)


def _axes(ax: Axes | None) -> Axes:
    """Return axes to draw on."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise InputError(
            "Plots need matplotlib, which comes with the extra `plots`; run pip install "
            "'.[plots]' in a checkout."
        ) from error
    return plt.subplots()[1] if ax is None else ax
