"""Which label columns a figure is about, and the figures themselves.

In: the test documents, scores over some labels, and the kinds of the labels. Out: every measure for
"training", "zsl", "zsl-only", "all" and "oov" columns, in percent.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import InputError, PolysemeWarning, check_option
from polyseme.corpus import LabelCorpus, Labels
from polyseme.metrics import evaluate
from polyseme.splits.documents import Rows
from polyseme.splits.labels import LabelSplit
from polyseme.splits.split import ZeroShotSplit

# The names that tables use, and what turns a value into the number they show.
MEASURES = {
    "example_map": ("E-MAP", 100.0),
    "concept_map": ("C-MAP", 100.0),
    "mean_average_precision": ("MAP", 100.0),
    "f1_at_5": ("F1@5", 100.0),
    "ranking_loss": ("ranking loss", 100.0),
    "coverage": ("coverage", 1.0),
    "label_ranking_average_precision": ("LRAP", 100.0),
    "roc_auc": ("AUC", 100.0),
}


def evaluation_columns(labels: LabelSplit) -> dict[str, tuple[str, ...]]:
    """Give the label columns that each figure is about.

    Parameters
    ----------
    labels : LabelSplit

    Returns
    -------
    dict of str to tuple of str
        "training": the seen labels; "zsl": seen and unseen ones, which is how the paper's figures
        add up; "zsl-only": the unseen ones; and where there are oov labels "all", the three kinds
        together, and "oov". A set without labels of its own is left out.
    """
    columns = {"training": labels.seen}
    if labels.unseen:
        columns |= {"zsl": labels.vocabulary, "zsl-only": labels.unseen}
    if labels.oov:
        columns |= {"all": labels.vocabulary + labels.oov, "oov": labels.oov}
    return {name: chosen for name, chosen in columns.items() if chosen}


def evaluation_sets(
    split: ZeroShotSplit, training_instances: str = "test"
) -> dict[str, tuple[Rows, tuple[str, ...]]]:
    """Give the instances and the label columns that each figure is about.

    Parameters
    ----------
    split : ZeroShotSplit
    training_instances : {"test", "validation"}
        The instances of the "training" columns: the test instances like everywhere else, or the
        validation instances, none of which carries an unseen label.

    Returns
    -------
    dict of str to (int64 array, tuple of str)
        Rows of `split.target`, and labels.
    """
    check_option(
        "training_instances", training_instances, ("test", "validation"), owner="evaluation_sets"
    )
    other = split.validation if training_instances == "validation" else split.test
    return {
        name: (other if name == "training" else split.test, columns)
        for name, columns in evaluation_columns(split.labels).items()
    }


def measure(
    documents: LabelCorpus,
    scores: ArrayLike,
    scored: Labels,
    columns: Mapping[str, Sequence[str]],
    *,
    normalise: str = "full",
) -> dict[str, dict[str, float]]:
    """Measure scores on sets of label columns.

    The candidates are a set's columns and the truth is what a document holds of them. A document
    that holds none is left out of the means over instances; where a label ranks instances, it is
    one that the label does not apply to. A label that has no score comes last.

    Parameters
    ----------
    documents : LabelCorpus
        The true labels of n instances.
    scores : array, shape (n, n_scored)
        Larger is better.
    scored : sequence of str, length n_scored
        The label of each column of `scores`.
    columns : mapping of str to sequence of str
        The sets, as `evaluation_columns` gives them.
    normalise : {"full", "columns"}
        "full" takes scores as they are, which for the tagger means shares among all labels.
        "columns" makes the scores of each row sum to one over the set's columns; it moves concept
        measures only and needs scores that are not negative.

    Returns
    -------
    dict of str to dict of str to float
        For each set with a true label: E-MAP, C-MAP, MAP, F1@5, ranking loss, LRAP and AUC in
        percent, and coverage as a rank. A measure that is not defined is left out.
    """
    check_option("normalise", normalise, ("full", "columns"), owner="measure")
    table = np.asarray(scores, dtype=np.float64)
    if table.shape != (len(documents), len(scored)):
        raise InputError(
            f"`scores` of `measure` have shape {table.shape}; expected {len(documents)} documents "
            f"and {len(scored)} scored labels."
        )
    place = {documents.key(label): column for column, label in enumerate(scored)}
    found = {}
    for name, chosen in columns.items():
        truth = documents.align(chosen)[0][:, : len(chosen)].toarray()
        if not truth.any():
            continue
        at = np.array([place.get(documents.key(label), -1) for label in chosen], dtype=np.int64)
        found[name] = _percent(truth, _columns(table, at, normalise))
    return found


def _columns(table: NDArray[np.float64], at: Rows, normalise: str) -> NDArray[np.float64]:
    """Take the scores of some columns, -inf where there are none, and normalise them if asked."""
    part = np.full((len(table), len(at)), -np.inf)
    part[:, at >= 0] = table[:, at[at >= 0]]
    if normalise == "full":
        return part
    inside = part[:, at >= 0]
    if inside.size and not (inside >= 0).all():
        raise InputError(
            "`normalise='columns'` of `measure` needs scores that are not negative; use 'full'."
        )
    totals = inside.sum(axis=1, keepdims=True)
    part[:, at >= 0] = np.divide(inside, totals, out=np.zeros_like(inside), where=totals > 0)
    return part


def _percent(truth: NDArray[np.bool_], scores: NDArray[np.float64]) -> dict[str, float]:
    """Evaluate one set of columns; leave out what is not defined there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        values = evaluate(truth, scores)
    return {
        MEASURES[name][0]: MEASURES[name][1] * value
        for name, value in values.items()
        if np.isfinite(value)
    }
