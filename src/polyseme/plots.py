"""Plots of a fitted tagger: its space, a label in its senses, how far probabilities hold.

In: a `ZeroShotTagger`. Out: axes of matplotlib, which comes with the extra `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polyseme._validation import InputError
from polyseme.senses import label_senses

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
    points = store.points[store.sets]
    axes.scatter(points[:, 0], points[:, 1], s=6, alpha=0.3, linewidths=0)
    order = np.argsort(-store.counts, kind="stable")
    names = [store.labels[column] for column in order] if labels is None else list(labels)
    taken = np.full((0, 2), np.nan)
    apart = 0.06 * np.ptp(points[:, :2], axis=0)
    for label in names:
        rows = store.matrix[:, [_column(tagger, label)]].nonzero()[0]
        if len(rows) == 0:
            continue
        place = points[rows, :2].mean(axis=0)
        free = (np.abs(taken - place) > apart * (2, 1)).any(axis=1).all()
        if labels is not None or (free and len(taken) < _MOST_NAMES):
            taken = np.vstack([taken, place])
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
    column = _column(tagger, label)
    senses = label_senses(tagger.store_, label, normalize=tagger.normalize_labels_)
    if senses is None:
        points = tagger.store_.points[tagger.store_.sets]
        rows = tagger.store_.matrix[:, [column]].nonzero()[0]
        axes.scatter(points[:, 0], points[:, 1], s=6, color="0.8", linewidths=0)
        axes.scatter(points[rows, 0], points[rows, 1], s=14, label="one sense")
    else:
        x, y = senses.background.T
        axes.scatter(x, y, s=6, color="0.8", linewidths=0)
        for sense, words in enumerate(senses.words):
            x, y = senses.points[senses.senses == sense].T
            axes.scatter(x, y, s=14, label=", ".join(words) or f"sense {sense + 1}")
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
    if tagger.validation_ is None:
        raise InputError("This tagger was not validated: too few items, or `n_validations` is 0.")
    axes = _axes(ax)
    axes.plot([0, 1], [0, 1], color="0.7", linestyle="--")
    for name, curve in tagger.validation_.curves.items():
        if curve:
            _, predicted, observed = zip(*curve, strict=True)
            axes.plot(predicted, observed, marker=".", color=_COLOURS[name], label=name)
    axes.legend()
    axes.set(xlabel="probability", ylabel="share that is true", title="Held-out items")
    return axes


def _column(tagger: ZeroShotTagger, label: str) -> int:
    """Find a label of the known documents, by any of its names."""
    column = tagger._column(label)
    if column >= len(tagger.store_.labels):
        raise InputError(f"No known tag set holds '{label}', so there is nothing to draw.")
    return column


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
