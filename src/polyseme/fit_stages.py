"""The stages of a fit: parameters, a former model to go on from, validation, verdicts, training.

In: a tagger with its parameters, and a `TrainingSet`. Out: what `ZeroShotTagger.fit` takes over.

Terms: the *template* is a `ConceptSpace` that holds the parameters of the fit and is not trained
itself. The *pool* is items without tags. A *former* tagger was fitted before; where it suits the
new data, the fit is a *warm start* from its members. *Folds* are parts of the documents that some
members of the ensemble never see. Labels are *seen* where training items carry them, *unseen*
where only label sets do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import copy_of
from polyseme.base.extractors import FeatureExtractor, name_columns
from polyseme.base.progress import FileProgress, working
from polyseme.base.validation import (
    IntArray,
    PolysemeWarning,
    check_device,
    check_fitted,
    check_kind,
    check_number,
    check_path,
    draw_seed,
)
from polyseme.documents.label_names import encode_names, extractor_names, is_comparable
from polyseme.documents.word_vectors import WordVectors, as_word_vectors, name_likeness
from polyseme.feedback.verdict_log import Verdict, VerdictLog
from polyseme.fitting.cost import cost_of_fit, warn_about_cost
from polyseme.fitting.holdout_validation import MOST_TRAINED, Validation, validate
from polyseme.fitting.training_set import Features, TrainingSet
from polyseme.fitting.warm_start import (
    ColdStartError,
    DocumentKeys,
    check_known,
    check_sizes,
    extractor_parameters,
    placed_groups,
)
from polyseme.scoring.name_evidence import NameEvidence
from polyseme.space.concept_space import ConceptSpace
from polyseme.space.members import WarmStart
from polyseme.space.space_fit import Trainer
from polyseme.space.training import VALIDATION_STEPS
from polyseme.storage.checkpoints import check_room_for
from polyseme.tagger import ZeroShotTagger

Matrix = NDArray[np.float64]

# Shares that `measure` tries: how much the names of labels count in the readouts of unseen labels.
NAME_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
# By how much a share must improve unseen labels, the mean of E-MAP and C-MAP: with GloVe's vectors
# smaller gains on held-out items did not last. The best share, without this, lost 0.4 to 1.1 points
# of E-MAP on five label splits of HSUN and Corel5K.
_LEAST_NAME_GAIN = 0.01
# A warm start keeps what was measured until items or labels are more or fewer by this share.
_KEPT_CHANGE = 0.1


class Measured(NamedTuple):
    """What held-out items say of a fit."""

    validation: Validation | None  # None where there were too few items or labels
    name_share: float  # one of `NAME_SHARES`
    pooled: bool  # whether items without tags are learned from
    sizes: tuple[int, int]  # how many items and labels it was measured on


def check_parameters(tagger: ZeroShotTagger) -> ConceptSpace:
    """Check the parameters of a tagger and return its space's parameters, as a template.

    Without a `device` the template is `tagger.space` itself, which nobody may change.
    """
    owner = type(tagger).__name__
    check_kind("space", tagger.space, tagger.components["space"], owner=owner)
    check_kind("features", tagger.features, FeatureExtractor, owner=owner)
    if tagger.checkpoint is not None:
        check_path(tagger.checkpoint, subject=f"`checkpoint` of `{owner}`")
    template = ConceptSpace() if tagger.space is None else tagger.space
    if tagger.device is not None:
        template = copy_of(template)
        template.set_params(device=tagger.device)
    template.check_parameters()
    check_number("n_validations", tagger.n_validations, owner=owner, low=0, whole=True)
    return template


# ---------------------------------------------------------------------- a former model


def check_former(tagger: ZeroShotTagger, former: ZeroShotTagger) -> None:
    """Raise unless the former tagger is fitted and reads labels and items as the new one does."""
    check_kind("warm_start_from", former, ZeroShotTagger, owner="fit")
    check_fitted(former, "store_")
    if tagger.normalize_labels != former.normalize_labels_:
        raise ColdStartError("only one of the two normalizes labels")
    if extractor_parameters(tagger.features) != extractor_parameters(former.features_):
        raise ColdStartError("its feature extractor has other parameters")


def warm_start(
    former: ZeroShotTagger, data: TrainingSet, keys: DocumentKeys, template: ConceptSpace
) -> WarmStart:
    """Return what a new fit takes over from a former one; raise `ColdStartError` where it cannot.

    Parameters
    ----------
    former : ZeroShotTagger
    data : TrainingSet
    keys : DocumentKeys
        Of the documents of the training set, in the order of its tables.
    template : ConceptSpace
        With the parameters of the new fit.

    Returns
    -------
    WarmStart
        With the former column of each label and the former fold of each document; -1 for new ones.
    """
    documents = data.tables.documents
    n_items = 0 if data.features is None else len(data.items)
    former_names: Any = getattr(former, "feature_names_in_", None)
    have_names = former_names is not None and data.feature_names is not None
    if have_names and tuple(former_names) != data.feature_names:
        raise ColdStartError("features have other names, or another order")
    pooled = data.pool is not None and former.pooled_
    plan = template.planned(documents.shape[0], n_items, pool=pooled)
    check_sizes(former.space_, plan, data.features)

    # Labels are found by their names, documents by their keys.
    store = former.store_
    column_by_key: dict[str, int] = {}
    for column, label in enumerate(store.labels[: store.n_learned]):
        key = former._key(label)
        column_by_key[key] = column
    former_columns = []
    for label in data.labels:
        key = former._key(label)
        former_columns.append(column_by_key.get(key, -1))
    columns = np.array(former_columns)
    all_keys = keys.with_pool(data.pool)
    share_of_items = all_keys.found_among(former.document_keys_)
    check_known(columns, share_of_items)

    # Members keep the documents that they have never seen.
    document_folds = former_folds(former, keys)
    folds = placed_groups(document_folds, data.tables.groups)
    warm = WarmStart(former.space_, columns, folds)
    filled_folds = np.unique(folds[folds >= 0])
    if len(filled_folds) < warm.n_folds:
        raise ColdStartError("one of its folds has no document any more")
    return warm


def former_folds(former: ZeroShotTagger, keys: DocumentKeys) -> IntArray:
    """Return the folds that documents had in a former fit, -1 for new ones, (n_keys,)."""
    return keys.folds_among(former.document_keys_, former.space_.folds_)


# ---------------------------------------------------------------------- the space


def space_to_train(
    tagger: ZeroShotTagger,
    template: ConceptSpace,
    data: TrainingSet,
    seed: int,
    generator: np.random.Generator,
) -> ConceptSpace:
    """Return a copy of the template that is to be trained, with its seed and checkpoint.

    A checkpoint that has no room, or belongs to another training, is refused before any work.

    Parameters
    ----------
    tagger : ZeroShotTagger
    template : ConceptSpace
        Its own seed and checkpoint take precedence over those of the tagger.
    data : TrainingSet
    seed : int
        Drawn from the generator; used where the tagger is seeded by a number.
    generator : numpy Generator
        Of the tagger; used where the tagger was given a generator.
    """
    space = copy_of(template)
    # Without a seed the space draws its own, which its checkpoint remembers.
    if space.random_state is None and tagger.random_state is not None:
        random_state = seed if is_seeded(tagger) else generator
        space.set_params(random_state=random_state)
    if space.checkpoint is None:
        space.set_params(checkpoint=tagger.checkpoint)
    documents = data.tables.documents
    n_items = len(data.items)
    n_weights = space.n_weights(documents.shape, n_items, data.n_features)
    check_room_for(space.checkpoint, n_weights)
    has_seed = isinstance(space.random_state, (int, np.integer))
    if has_seed:
        space.training_seed()  # raises where the checkpoint was begun with another seed
    return space


def is_seeded(tagger: ZeroShotTagger) -> bool:
    """Whether a whole number seeds a tagger, so that its fit draws the same again."""
    return isinstance(tagger.random_state, (int, np.integer))


def warn_of_cost(tagger: ZeroShotTagger, space: ConceptSpace, data: TrainingSet) -> None:
    """Warn before a fit that will take long or much memory on the processor."""
    if space.device != "cpu" and check_device(space.device, owner="fit") != "cpu":
        return  # the forecast is of processors
    n_documents, n_labels = data.tables.documents.shape
    n_items = 0 if data.features is None else len(data.items)
    n_rows = n_items + data.n_pool
    has_pool = data.pool is not None
    plan = space.planned(n_documents, n_items, pool=has_pool)
    plan = plan.within(n_documents, n_items)
    n_validations = tagger.n_validations
    if has_pool:
        n_validations *= 2  # each with and without the pool
    cost = cost_of_fit(plan, n_documents, n_labels, n_rows, data.n_features, n_validations)
    warn_about_cost(cost, plan, n_labels, stacklevel=4)  # names the line that calls `fit`


def train(
    space: ConceptSpace,
    data: TrainingSet,
    pool: Features | None,
    verdicts: sp.csr_matrix | None,
    warm: WarmStart | None,
    trainer: Trainer | None,
    progress: Callable[[int, int], None] | None,
    *,
    verbose: bool,
) -> None:
    """Train a space in place, on a training set, the pool and verdicts.

    Parameters
    ----------
    space : ConceptSpace
        As `space_to_train` returns it; fitted afterwards.
    data : TrainingSet
    pool : array or csr matrix, shape (n_pool, n_features), or None
        Items without tags that are learned from: all of `data.pool`, some of it, or none.
    verdicts : csr matrix, shape (n_items + n_pool, n_labels), or None
        Answers, as `TrainingSet.answered` returns them.
    warm : WarmStart or None
    trainer : callable or None
        See `ZeroShotTagger.fit`.
    progress : callable or None
        Takes rounds that are done, and rounds in all; called beside the progress bar.
    verbose : bool
    """
    tables = data.tables
    with FileProgress("training the concept space, rounds", verbose=verbose) as bar:

        def report_round(n_done: int, n_rounds: int, losses: Mapping[str, float]) -> None:
            bar.tell(n_done, n_rounds, 0)
            if progress is not None:
                progress(n_done, n_rounds)

        space.fit(
            tables.documents,
            data.features,
            None if data.features is None else tables.item_documents,
            tables.groups,
            tables.n_label_sets,
            progress=report_round,
            trainer=trainer,
            pool=pool,
            verdicts=verdicts,
            warm=warm,
        )


# ---------------------------------------------------------------------- names


def read_label_names(
    label_names: object,
    data: TrainingSet,
    former_names: NameEvidence | None,
    *,
    has_columns: bool,
) -> tuple[WordVectors | None, NameEvidence | None]:
    """Return names of labels as word vectors, and as evidence where they are comparable with items.

    Parameters
    ----------
    label_names : object
        See `ZeroShotTagger.fit`. Where None, an extractor that reads words is the encoder.
    data : TrainingSet
    former_names : NameEvidence or None
        Of the model that a warm start goes on from; they stay where no others are given.
    has_columns : bool
        Whether labels were given as columns, whose order the rows of an array follow.
    """
    names = None
    if label_names is None and data.extractor is not None:
        names = extractor_names(data.extractor, data.labels)
    elif label_names is not None:
        ordered_labels = data.column_labels if has_columns else None
        names = encode_names(label_names, data.labels, ordered_labels, key=data.corpus.key)
    if names is None:
        return None, former_names
    evidence = None
    if data.all_features is not None and is_comparable(names, data.n_all_features):
        columns = name_columns(data.extractor)
        evidence = NameEvidence.fit(data.all_features, names.labels, names.vectors, columns)
    if isinstance(label_names, (WordVectors, Mapping)):
        return as_word_vectors(label_names), evidence
    # Sparse vectors are many numbers, and say little of one another.
    words = None if sp.issparse(names.vectors) else names.as_words()
    return words, evidence


def weighted_names(
    names: NameEvidence | None, validation: Validation | None, *, were_given: bool
) -> NameEvidence | None:
    """Return names with the weights that held-out items gave them; None where they do not help.

    Where nothing was held out, nobody knows; a warning says so if the user has given names.
    """
    if names is None:
        return None
    if validation is None or validation.name_weights is None:
        if not were_given:
            return None
        warnings.warn(
            "The names of labels are not used: by how much they count is learned on held-out "
            "items, and there were too few items or labels, or `n_validations` is 0.",
            PolysemeWarning,
            stacklevel=3,
        )
        return None
    if not validation.name_weights.are_used:
        return None
    return names.with_weights(validation.name_weights)


# ---------------------------------------------------------------------- validation


def measured_before(
    former: ZeroShotTagger, data: TrainingSet, names: NameEvidence | None
) -> Measured | None:
    """Return what a former fit measured; None where nothing was, or the data has changed much."""
    if former.validation_ is None:
        return None
    if names is not None and former.validation_.name_weights is None:
        return None  # names are new
    n_former_items, n_former_labels = former.measured_on_
    item_change = abs(len(data.items) - n_former_items)
    label_change = abs(len(data.labels) - n_former_labels)
    if item_change > _KEPT_CHANGE * n_former_items:
        return None
    if label_change > _KEPT_CHANGE * n_former_labels:
        return None
    return Measured(
        former.validation_, former.name_share_, former.pooled_, sizes=former.measured_on_
    )


def measure(
    tagger: ZeroShotTagger,
    data: TrainingSet,
    template: ConceptSpace,
    words: WordVectors | None,
    names: NameEvidence | None,
    generator: np.random.Generator,
    checkpoint: str | Path | None,
    *,
    label_sets_only: bool,
) -> Measured:
    """Measure what small spaces promise, which share names get, and whether the pool helps.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Whose `n_validations` says how often items are held out; 0 measures nothing.
    data : TrainingSet
    template : ConceptSpace
        Small spaces have its parameters, but fewer steps, 2 folds and a member for each.
    words : WordVectors or None
        Where there are some, each of `NAME_SHARES` is tried.
    names : NameEvidence or None
        Where there is some, by how much names count is learned.
    generator : numpy Generator
        Draws the seeds of the small taggers and of what is held out.
    checkpoint : str, Path or None
        Small spaces have their checkpoints beside it.
    label_sets_only : bool
        See `ZeroShotTagger.fit`.
    """
    sizes = (len(data.items), len(data.labels))
    pooled = data.pool is not None
    unmeasured = Measured(None, 0.0, pooled, sizes)
    if data.features is None or not tagger.n_validations:
        return unmeasured

    # Small taggers, fitted to what is not held out.
    n_documents = min(data.tables.documents.shape[0], MOST_TRAINED)
    n_items = min(len(data.items), MOST_TRAINED)
    plan = template.planned(n_documents, n_items).shortened(VALIDATION_STEPS)
    small_space = copy_of(template)
    small_space.set_params(
        plan=plan,
        n_folds=2,
        members_per_fold=1,
        checkpoint=None,
        random_state=None,
    )
    small_tagger = ZeroShotTagger(
        space=small_space, n_validations=0, random_state=draw_seed(generator)
    )
    with working("validating on held-out items", verbose=tagger.verbose):
        validations = validate(
            small_tagger,
            data.features,
            data.documents,
            data.sets,
            tagger.n_validations,
            draw_seed(generator),
            variants=lambda fitted: with_name_shares(fitted, words),
            pool=data.pool,
            checkpoint=checkpoint,
            label_sets_only=label_sets_only,
            names=names,
            name_features=data.all_features,
        )
    if not validations:
        return unmeasured

    # `validate` returns one for each variant, and a last one for the first variant with the pool.
    with_pool = validations.pop() if pooled else None
    best = _best_name_share(validations)
    validation = validations[best]
    pool_helps = False
    if with_pool is not None:
        pool_gain = with_pool.gain_over(validations[0])
        pool_helps = pool_gain > 0
        validation = replace(with_pool if pool_helps else validation, pool_gain=pool_gain)
    return Measured(validation, NAME_SHARES[best], pool_helps, sizes)


def _best_name_share(validations: Sequence[Validation]) -> int:
    """Return which of `NAME_SHARES` does best on unseen labels; 0 unless one is clearly better.

    Parameters
    ----------
    validations : sequence of Validation
        Of each share, the first without names.
    """
    plain = validations[0].unseen
    best = 0
    best_gain = _LEAST_NAME_GAIN
    for place, validation in enumerate(validations):
        example_gain = validation.unseen.example_map - plain.example_map
        concept_gain = validation.unseen.concept_map - plain.concept_map
        gain = (example_gain + concept_gain) / 2
        if gain > best_gain and example_gain >= 0 and concept_gain >= 0:
            best = place
            best_gain = gain
    return best


def with_name_shares(tagger: ZeroShotTagger, words: WordVectors | None) -> list[ZeroShotTagger]:
    """Return the variants of a fitted tagger that are validated: one for each of `NAME_SHARES`.

    Without word vectors it is the tagger alone. The variants share its space.
    """
    if words is None:
        return [tagger]
    likeness = unseen_likeness(tagger.space_, tagger.store_.labels, words)
    variants = []
    for share in NAME_SHARES:
        variant = copy(tagger)
        # It sets attributes of the copy and computes its scores anew; what the copies share stays.
        variant._update(name_share_=share, _likeness=likeness)
        variants.append(variant)
    return variants


def unseen_likeness(space: ConceptSpace, labels: Sequence[str], words: WordVectors) -> Matrix:
    """Compute how like seen labels each unseen one is by its name.

    Parameters
    ----------
    space : ConceptSpace
        Fitted.
    labels : sequence of str
        All labels, in the order of the columns that the space was fitted to.
    words : WordVectors

    Returns
    -------
    float64 array, shape (n_unseen, n_seen)
        In the order of the space's `unseen_columns` and `seen_columns`; rows of labels without
        any word among the vectors are 0.
    """
    seen_labels = [labels[column] for column in space.seen_columns]
    unseen_labels = [labels[column] for column in space.unseen_columns]
    shape = (len(unseen_labels), len(seen_labels))
    likeness = np.zeros(shape)
    _, unseen_have_vectors = words.label_vectors(unseen_labels)
    _, seen_have_vectors = words.label_vectors(seen_labels)
    if unseen_have_vectors.any() and seen_have_vectors.any():
        rows = np.flatnonzero(unseen_have_vectors)
        labels_with_vectors = [unseen_labels[row] for row in rows]
        likeness[rows] = name_likeness(labels_with_vectors, seen_labels, words)
    return likeness


# ---------------------------------------------------------------------- verdicts


def verdict_log(
    former: ZeroShotTagger, verdicts: VerdictLog | str | Path | Iterable[Verdict] | None
) -> VerdictLog:
    """Return the log of verdicts to learn from; by default that of a former fit."""
    if verdicts is None:
        return getattr(former, "verdicts_", VerdictLog())
    if isinstance(verdicts, VerdictLog):
        return verdicts
    if isinstance(verdicts, (str, Path)):
        return VerdictLog(verdicts)
    log = VerdictLog()
    log.append(verdicts)
    return log


def without_changed_rows(
    former: ZeroShotTagger, row_by_item: dict[str, int], data: TrainingSet
) -> dict[str, int]:
    """Return the rows by item, without row numbers that stand for another item than before.

    Items without ids are named by their rows' numbers. A verdict on item "7" must not be learned
    where row 7 has other features than when the verdict was given; its item's vector in the log
    tells. An item without such a vector counts as changed.

    Parameters
    ----------
    former : ZeroShotTagger
        Fitted or not; its verdicts name the items.
    row_by_item : dict of str to int
        As `TrainingSet.row_by_name` returns it; it stays as it is.
    data : TrainingSet
    """
    if not hasattr(former, "verdicts_") or data.features is None:
        return row_by_item
    feedback = former._corrections.feedback
    numbered_items = set()
    for item in feedback.items():
        if item in row_by_item and item.isdecimal():
            numbered_items.add(item)
    same_items: set[str] = set()
    if data.n_all_features == former.n_features_in_:
        same_items = set(feedback.vectors(numbered_items))
    for table, first_row in data.feature_tables():
        n_rows = table.shape[0]
        table_rows: dict[str, int] = {}
        for item in same_items:
            row = row_by_item[item] - first_row
            if 0 <= row < n_rows:
                table_rows[item] = row
        project_rows = partial(former._project, table)
        same_items -= feedback.changed_items(table_rows, project_rows)
    changed_items = numbered_items - same_items
    return {item: row for item, row in row_by_item.items() if item not in changed_items}
