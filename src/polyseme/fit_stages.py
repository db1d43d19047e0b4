"""The stages of a fit: parameters, a former model to go on from, validation, verdicts, training.

In: a tagger with its parameters, and a `TrainingSet`. Out: what `ZeroShotTagger.fit` takes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import copy_of
from polyseme.base.extractors import FeatureExtractor
from polyseme.base.progress import FileProgress, working
from polyseme.base.validation import (
    IntArray,
    check_device,
    check_fitted,
    check_kind,
    check_number,
    check_path,
    draw_seed,
)
from polyseme.documents.word_vectors import WordVectors, name_likeness
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
from polyseme.space.concept_space import ConceptSpace
from polyseme.space.members import WarmStart
from polyseme.space.space_fit import Trainer
from polyseme.space.training import VALIDATION_STEPS
from polyseme.storage.checkpoints import check_room_for
from polyseme.tagger import ZeroShotTagger

Matrix = NDArray[np.float64]

# Shares of names in reading unseen labels that are tried.
NAME_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
# By which share items or labels may differ before what was measured on them is measured anew.
_GROWN = 0.1


class Measured(NamedTuple):
    """What held-out items say of a fit."""

    validation: Validation | None
    name_share: float  # of names in reading unseen labels
    pooled: bool  # whether items without tags are learned from
    sizes: tuple[int, int]  # items and labels that it was measured on


def check_parameters(tagger: ZeroShotTagger) -> ConceptSpace:
    """Check the parameters of a tagger and return the space that is to be fitted, as a template."""
    owner = type(tagger).__name__
    check_kind("space", tagger.space, tagger.components["space"], owner=owner)
    check_kind("features", tagger.features, FeatureExtractor, owner=owner)
    if tagger.checkpoint is not None:
        check_path(tagger.checkpoint, subject=f"`checkpoint` of `{owner}`")
    template = ConceptSpace() if tagger.space is None else tagger.space
    if tagger.device is not None:
        template = copy_of(template).set_params(device=tagger.device)
    template.check_parameters()
    check_number("n_validations", tagger.n_validations, owner=owner, low=0, whole=True)
    return template


# ---------------------------------------------------------------------- a former model


def check_former(tagger: ZeroShotTagger, former: ZeroShotTagger) -> None:
    """Raise unless a tagger is fitted, and reads labels and items as another one is to do."""
    check_kind("warm_start_from", former, ZeroShotTagger, owner="fit")
    check_fitted(former, "store_")
    if tagger.normalize_labels != former.normalize_labels_:
        raise ColdStartError("labels are normalized in one of the two alone")
    if extractor_parameters(tagger.features) != extractor_parameters(former.features_):
        raise ColdStartError("the features of items are made in another way")


def warm_start(
    former: ZeroShotTagger, data: TrainingSet, keys: DocumentKeys, template: ConceptSpace
) -> WarmStart:
    """Return what a new fit takes over from a former one; raise where it does not fit.

    Parameters
    ----------
    former : ZeroShotTagger
    data : TrainingSet
    keys : DocumentKeys
        Of the documents of the training set.
    template : ConceptSpace
        With the parameters of the new fit.
    """
    tables = data.tables
    store = former.store_
    n_items = 0 if data.features is None else len(data.items)
    feature_names = getattr(former, "feature_names_in_", None)
    former_names = None if feature_names is None else tuple(feature_names)
    if None not in (former_names, data.columns) and former_names != data.columns:
        raise ColdStartError("features have other names, or another order")
    pooled = data.pool is not None and former.pooled_
    plan = template.planned(tables.documents.shape[0], n_items, pool=pooled)
    check_sizes(former.space_, plan, data.features)

    # Labels are found by their names, documents by their keys.
    learned_labels = store.labels[: store.n_learned]
    column_by_key = {former._key(label): column for column, label in enumerate(learned_labels)}
    columns = np.array([column_by_key.get(former._key(label), -1) for label in data.labels])
    share_of_items = keys.with_pool(data.pool).found_among(former.document_keys_)
    check_known(columns, share_of_items)
    folds = placed_groups(former_folds(former, keys), tables.groups)
    warm = WarmStart(former.space_, columns, folds)
    if len(np.unique(folds[folds >= 0])) < warm.n_folds:
        raise ColdStartError("one of its folds has no document any more")
    return warm


def former_folds(former: ZeroShotTagger, keys: DocumentKeys) -> IntArray:
    """Return the folds that documents had in a former fit, -1 for new ones, (n,)."""
    return keys.folds_among(former.document_keys_, former.space_.folds_)


# ---------------------------------------------------------------------- the space


def space_to_train(
    tagger: ZeroShotTagger,
    template: ConceptSpace,
    data: TrainingSet,
    seed: int,
    generator: np.random.Generator,
) -> ConceptSpace:
    """Return the space that is to be trained, with its seed and checkpoint.

    A checkpoint that has no room, or belongs to another training, is refused before any work.
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
        space.training_seed()
    return space


def is_seeded(tagger: ZeroShotTagger) -> bool:
    """Whether a whole number seeds a tagger, so that its fit draws the same again."""
    return isinstance(tagger.random_state, (int, np.integer))


def warn_of_cost(tagger: ZeroShotTagger, space: ConceptSpace, data: TrainingSet) -> None:
    """Warn before a fit that will take long or much memory."""
    if space.device != "cpu" and check_device(space.device, owner="fit") != "cpu":
        return
    n_documents, n_labels = data.tables.documents.shape
    n_items = 0 if data.features is None else len(data.items)
    n_all = n_items + data.n_pool
    pooled = data.pool is not None
    plan = space.planned(n_documents, n_items, pool=pooled)
    plan = plan.within(n_documents, n_items)
    n_validations = tagger.n_validations
    if pooled:
        n_validations *= 2
    cost = cost_of_fit(plan, n_documents, n_labels, n_all, data.n_features, n_validations)
    warn_about_cost(cost, plan, n_labels, stacklevel=4)


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
    """Train a space on a training set, with what is learned of the pool and of verdicts."""
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


# ---------------------------------------------------------------------- validation


def measured_before(former: ZeroShotTagger, data: TrainingSet) -> Measured | None:
    """Return what a former fit measured, where it stands for as many items and labels."""
    n_items = len(data.items)
    n_labels = len(data.labels)
    former_items, former_labels = former.measured_on_
    if abs(n_items - former_items) > _GROWN * former_items:
        return None
    if abs(n_labels - former_labels) > _GROWN * former_labels:
        return None
    if former.validation_ is None:
        return None
    return Measured(
        former.validation_, former.name_share_, former.pooled_, sizes=former.measured_on_
    )


def measure(
    tagger: ZeroShotTagger,
    data: TrainingSet,
    template: ConceptSpace,
    words: WordVectors | None,
    generator: np.random.Generator,
    checkpoint: str | Path | None,
    *,
    label_sets_only: bool,
) -> Measured:
    """Measure what small spaces promise, which share names get, and whether the pool helps."""
    sizes = (len(data.items), len(data.labels))
    pooled = data.pool is not None
    unmeasured = Measured(None, 0.0, pooled, sizes)
    if data.features is None or not tagger.n_validations:
        return unmeasured

    # Small taggers, fitted to what is not held out.
    n_documents = min(data.tables.documents.shape[0], MOST_TRAINED)
    n_items = min(len(data.items), MOST_TRAINED)
    plan = template.planned(n_documents, n_items).shortened(VALIDATION_STEPS)
    small_space = copy_of(template).set_params(
        plan=plan,
        n_folds=2,
        members_per_fold=1,
        checkpoint=None,
        random_state=None,
    )
    small = ZeroShotTagger(space=small_space, n_validations=0, random_state=draw_seed(generator))
    with working("validating on held-out items", verbose=tagger.verbose):
        validations = validate(
            small,
            data.features,
            data.documents,
            data.sets,
            tagger.n_validations,
            draw_seed(generator),
            variants=lambda fitted: with_name_shares(fitted, words),
            pool=data.pool,
            checkpoint=checkpoint,
            label_sets_only=label_sets_only,
        )
    if not validations:
        return unmeasured

    # The share of names that does best on unseen labels; the pool where it helps on these.
    with_pool = validations.pop() if pooled else None
    unseen_measures = [validation.unseen for validation in validations]
    qualities = [measures.example_map + measures.concept_map for measures in unseen_measures]
    best = int(np.argmax(np.nan_to_num(qualities)))
    validation = validations[best]
    pool_helps = False
    if with_pool is not None:
        pool_gain = with_pool.gain_over(validations[0])
        pool_helps = pool_gain > 0
        validation = replace(with_pool if pool_helps else validation, pool_gain=pool_gain)
    return Measured(validation, NAME_SHARES[best], pool_helps, sizes)


def with_name_shares(tagger: ZeroShotTagger, words: WordVectors | None) -> list[ZeroShotTagger]:
    """Return a tagger as it is or, with word vectors, as it is with each of `NAME_SHARES`."""
    if words is None:
        return [tagger]
    likeness = unseen_likeness(tagger.space_, tagger.store_.labels, words)
    variants = []
    for share in NAME_SHARES:
        variant = copy(tagger)
        variants.append(variant._update(name_share_=share, _likeness=likeness))
    return variants


def unseen_likeness(space: ConceptSpace, labels: Sequence[str], words: WordVectors) -> Matrix:
    """Compute how like seen labels each unseen one is by its name, (n_unseen, n_seen)."""
    seen = [labels[column] for column in space.seen_columns]
    unseen = [labels[column] for column in space.unseen_columns]
    shape = (len(unseen), len(seen))
    likeness = np.zeros(shape)
    _, unseen_vectors = words.label_vectors(unseen)
    _, seen_vectors = words.label_vectors(seen)
    if unseen_vectors.any() and seen_vectors.any():
        rows = np.flatnonzero(unseen_vectors)
        named = [unseen[row] for row in rows]
        likeness[rows] = name_likeness(named, seen, words)
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
    former: ZeroShotTagger, rows: dict[str, int], data: TrainingSet
) -> dict[str, int]:
    """Return the rows by item, without numbers of rows that are other items now.

    Those are the numbers that verdicts were given on when another item had that row.
    """
    if not hasattr(former, "verdicts_") or data.features is None:
        return rows
    feedback = former._corrections.feedback
    numbered = {item for item in feedback.items() if item in rows and item.isdecimal()}
    same_items: set[str] = set()
    if data.n_features == former.n_features_in_:
        same_items = set(feedback.vectors(numbered))
    for table, first_row in data.parts():
        table_rows: dict[str, int] = {}
        for item in same_items:
            row = rows[item] - first_row
            if 0 <= row < table.shape[0]:
                table_rows[item] = row
        same_items -= feedback.changed_items(table_rows, partial(former._project, table))
    changed_items = numbered - same_items
    return {item: row for item, row in rows.items() if item not in changed_items}
