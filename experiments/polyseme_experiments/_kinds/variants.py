"""The fitted default with a part changed, without training again.

In: a tagger that a trial has fitted. Out: taggers over the same members, or fewer of them, whose
levels are learned anew on the same held-out items.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np

from polyseme._threads import one_blas_thread
from polyseme._validation import check_instances
from polyseme.documents import training_tables
from polyseme.space import ConceptSpace
from polyseme.store import ConceptStore
from polyseme.tagger import ZeroShotTagger
from polyseme.training import TrainingData
from polyseme_experiments.trials import Trial


def changed(
    trial: Trial,
    tagger: ZeroShotTagger,
    *,
    context: float | None = None,
    priming: float | None = None,
    n_members: int | None = None,
    levels: bool = True,
) -> ZeroShotTagger:
    """Give a tagger like another, but for what is named.

    Parameters
    ----------
    trial : Trial
    tagger : ZeroShotTagger
        Fitted in this trial; stays as it is.
    context, priming : float, optional
        As in `ConceptSpace`.
    n_members : int, optional
        Ask only so many members, at most one for each fold.
    levels : bool
        Whether labels keep slopes and intercepts.

    Returns
    -------
    ZeroShotTagger
    """
    space, data = copy(tagger.space_), training_data(trial, tagger)
    told = {"context": context, "priming": priming}
    space.set_params(**{name: value for name, value in told.items() if value is not None})
    with one_blas_thread():
        if n_members is None:
            space.finish(data, space.members_, space.history_)
        else:
            space = with_members(space, data, n_members)
    if not levels:
        n_labels = len(space.order_)
        space.calibration_ = space.calibration_._replace(
            slopes=np.ones(n_labels), intercepts=np.zeros(n_labels)
        )
    return _over(trial, tagger, space)


def training_data(trial: Trial, tagger: ZeroShotTagger) -> TrainingData:
    """Give what a trial's tagger was fitted with; its seed makes the folds the same."""
    told = training_tables(trial.train_documents, trial.known_documents, tagger.classes_)
    X = check_instances(trial.train_features, len(trial.train_documents), owner="ZeroShotTagger")
    space = copy(tagger.space_)
    return space.prepare(told.documents, X, told.own, told.groups, told.n_semantics)[0]


def with_members(space: ConceptSpace, data: TrainingData, n_members: int) -> ConceptSpace:
    """Give a space of which only some members are asked, the first of each fold.

    Levels are those of single members that had not seen an item.

    Parameters
    ----------
    space : ConceptSpace
        Fitted.
    data : TrainingData
    n_members : int
    """
    one_each = space.members_.select(slice(None, None, space.plan_.members_per_fold))
    made = copy(space)
    made.plan_ = replace(space.plan_, members_per_fold=1)
    made.finish(data, one_each, space.history_)
    if n_members >= len(one_each):
        return made
    size = n_members * made.plan_.code
    made.members_ = made.members_.select(slice(0, n_members))
    made.document_mean_ = made.document_mean_[:n_members]
    made.document_scatter_ = made.document_scatter_[:n_members]
    made.axes_, made.mean_code_ = made.axes_[:size], made.mean_code_[:size]
    return made


def _over(trial: Trial, tagger: ZeroShotTagger, space: ConceptSpace) -> ZeroShotTagger:
    """Give a tagger over another space of the same labels."""
    semantics = trial.known_documents.without_unused()
    store, _ = ConceptStore.of(space, tagger.store_.labels, semantics, trial.train_documents)
    made = copy(tagger)
    made.space_ = space
    return made.set_store(store)
