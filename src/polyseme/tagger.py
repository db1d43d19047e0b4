"""The tagger: tag sets and features in, ranked labels out, all by way of one concept space.

In: tag sets and features. Out: a `ZeroShotTagger` that ranks, completes, explains, grows without
re-training, and is kept on disk.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme._estimator import Estimator, TransformerMixin, copy_of
from polyseme._progress import FileProgress, working
from polyseme._text import shown
from polyseme._threads import one_blas_thread
from polyseme._validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    as_names,
    check_device,
    check_features,
    check_fitted,
    check_iterable,
    check_kind,
    check_number,
    check_option,
    check_path,
    draw_seed,
    first_few,
    in_order,
    warn_dropped,
)
from polyseme.active_learning import Block, Question, check_strategy, choose
from polyseme.answers import Corrections
from polyseme.calibration import sigmoid
from polyseme.checkpoints import check_room_for, unless_refused
from polyseme.concepts import Concepts
from polyseme.corpus import (
    Documents,
    LabelCorpus,
    as_corpus,
    in_order_of,
    is_indicator,
    normalize_label,
)
from polyseme.documents import label_column
from polyseme.encoded import EncodedItems
from polyseme.evidence import Evidence, evidence_of
from polyseme.features import EXTRACTORS, extractor_of
from polyseme.features.base import MediaFeatures, one_item
from polyseme.feedback import Feedback, answer_table, as_verdict
from polyseme.growth import cost_of_fit, warn_about_cost
from polyseme.holdout import MOST_TRAINED, Validation, validate
from polyseme.io.join import without_ids
from polyseme.metrics import evaluate, example_map
from polyseme.persistence import (
    ModelFileError,
    SavedEstimator,
    State,
    joined,
    model_file,
    read_file,
    within,
)
from polyseme.reading import METHODS, Features, Items, NamedLabels, Reading, coded_blocks
from polyseme.schema import (
    Anything,
    Array,
    Choice,
    Fields,
    Flag,
    Maybe,
    Number,
    Several,
    Table,
    Text,
    Whole,
    check_arrays,
    check_parts,
    part,
    reading,
    require,
)
from polyseme.senses import SenseMap, label_senses
from polyseme.space import ConceptSpace, Trainer, WarmStart
from polyseme.store import ConceptStore
from polyseme.tags import (
    check_tags,
    complete_each,
    label_kinds,
    label_preference,
    rank_labels,
    tag_columns,
    tag_sets,
    tag_table,
)
from polyseme.training import VALIDATION_STEPS
from polyseme.training_set import (
    TrainingSet,
    gather,
    item_names,
    item_vectors,
    warn_of_lost_features,
)
from polyseme.verdicts import Verdict, VerdictLog
from polyseme.vocabulary import Vocabulary, as_vocabulary, similar_labels
from polyseme.warm_start import (
    ColdStartError,
    DocumentKeys,
    check_known,
    check_sizes,
    extractor_parameters,
    feature_digests,
    name_digests,
    placed_groups,
)
from polyseme.word_vectors import WordVectors, as_word_vectors, name_likeness

if TYPE_CHECKING:
    from polyseme.published.tagger import PublishedTagger

Matrix = NDArray[np.float64]
# Labels, of any length each: an array of fixed width would have the longest one's everywhere.
StrArray = NDArray[np.object_]
KINDS = ("seen", "unseen", "oov")
# Shares of names in reading unseen labels that are tried.
NAME_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
# By which share items or labels may differ before what was measured on them is measured anew.
_GROWN = 0.1
Tagger: TypeAlias = "ZeroShotTagger | PublishedTagger"


class ZeroShotTagger(TransformerMixin, SavedEstimator, Estimator):  # type: ignore[misc]
    """Rank every label for an item: seen, unseen and oov.

    Documents and items are coded in one `ConceptSpace`, and every label is read from a code. Tags
    that an item has or probably has are part of its code, so that labels which no training item
    carries are found by the tags they go with.

    Parameters
    ----------
    space : ConceptSpace, optional
        By default `ConceptSpace()`.
    features : MediaFeatures, optional
        A feature extractor such as `ImageFeatures()`: X is then whatever it takes (files, pictures,
        sounds), here and in all other methods, and what it learns is learned by `fit`.
    normalize_labels : bool
        Whether labels that differ only in case or white space are one.
    checkpoint : str, Path or None
        A folder for the state of the training; a fit that was interrupted goes on from there. With
        a whole number as `random_state` the small spaces of `n_validations` have folders of their
        own beside it (`NAME.draw-0` and so on).
    device : str, optional
        Where the space is trained, as torch names it ("cpu", "cuda"); by default a GPU where there
        is one. Trained models are used on the processor.
    vocabulary : Vocabulary, str, Path or None
        Labels never to be suggested, other names of labels and what implies what, or the TOML file
        that says so.
    n_validations : int
        How often `fit` holds out some of its items and makes some of their labels unseen, to
        measure what can be promised of both; see `validation_`. Every time a small space is
        trained; 0 leaves it out, and no precision can be asked of unseen labels then.
    verbose : bool
        Whether progress is shown on standard error.
    random_state : int, numpy Generator or None
        Seeds every part that has no seed of its own.

    Attributes
    ----------
    classes_ : array of str, shape (n_classes,)
        Every label it can rank: those it was fitted with, then new ones. Of an indicator matrix
        the columns come first, in their order.
    kinds_ : array of str, shape (n_labels,)
        "seen" (on training items), "unseen" (only in the label sets) or "oov" (never in the label
        sets: on items or in later documents only, or known by name or by answers alone).
    space_ : ConceptSpace
    store_ : ConceptStore
        The documents that are known.
    features_ : MediaFeatures or None
    named_ : NamedLabels or None
        See `add_labels`.
    validation_ : Validation or None
        How well seen and unseen labels did on training items that were held out, by smaller
        spaces; None without features, and where there are too few items or labels.
    name_share_ : float
        The share that `label_vectors` have in reading unseen labels; 0 where they did not help.
    seen_ : frozenset of str
        The labels of the label sets that training items carry.
    dropped_ : tuple of str
        Names of documents left out, because they hold no label that the space has learned.
    n_features_in_ : int
        Columns of X, or of what the feature extractor makes of it; 0 without features.
    feature_names_in_ : array of str, shape (n_features_in_,)
        Names of the columns, where X was a frame that has them. Frames are put in this order from
        then on, and refused where columns are missing or unknown.
    normalize_labels_ : bool
    vocabulary_ : Vocabulary
        Changed by `block`, `rename` and `merge`.
    measured_on_ : (int, int)
        How many items and labels there were when `validation_` was measured; a warm start keeps it.
    pooled_ : bool
        Whether items without tags were learned from; see `validation_` for what they bring.
    verdicts_ : VerdictLog
        What people said about its tags: in the folder of a tagger that was loaded or saved, else in
        memory. A further `fit` keeps it.
    """

    components: ClassVar[dict[str, type[Estimator]]] = {"space": ConceptSpace}
    features_: MediaFeatures | None
    validation_: Validation | None
    name_share_: float
    pooled_: bool
    measured_on_: tuple[int, int]

    def __init__(
        self,
        space: ConceptSpace | None = None,
        features: MediaFeatures | None = None,
        normalize_labels: bool = True,
        checkpoint: str | Path | None = None,
        device: str | None = None,
        vocabulary: Vocabulary | str | Path | None = None,
        n_validations: int = 2,
        verbose: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.space = space
        self.features = features
        self.normalize_labels = normalize_labels
        self.checkpoint = checkpoint
        self.device = device
        self.vocabulary = vocabulary
        self.n_validations = n_validations
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------------ learning

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: what it takes."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(
        self,
        X: object,
        y: Documents,
        label_sets: Documents | None = None,
        label_vectors: WordVectors | Mapping[str, ArrayLike] | None = None,
        trainer: Trainer | None = None,
        unlabelled: object = None,
        verdicts: VerdictLog | str | Path | Iterable[Verdict] | None = None,
        *,
        label_sets_only: bool = False,
        warm_start_from: ZeroShotTagger | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Self:
        """Learn the concept space from tag sets and items.

        Parameters
        ----------
        X : array-like, scipy sparse, pandas or polars frame, shape (n, n_features), or None
            One row per item, or what `features` takes. None learns from the documents alone: such
            a tagger completes tag sets but cannot rank items.
        y : list of tag sets, indicator matrix or frame, LabelCorpus, or path
            The labels of each item; what comes in comes out of `predict`. To make a label unseen,
            leave out the items that carry it and name it in `label_sets` only.
        label_sets : the same forms, optional
            Further tag sets, without items, that teach what labels mean; those of `y` do so too.
        label_vectors : WordVectors, or mapping of str to sequence of float, optional
            Vectors of labels, or of their words, from any text model. They join in reading unseen
            labels by the share that does best on labels made unseen, which may be none: see
            `name_share_`. They are not kept.
        trainer : callable, optional
            Who trains the space; by default this process. `polyseme.cluster.RayTraining(workers=2)`
            has it trained by a Ray cluster, with the same outcome.
        unlabelled : as X, optional
            Items without tags, the pool. They are learned from where labels that are made unseen
            say that this helps: see `pooled_`. Their probable tags are brought to the frequency
            that documents have, so that they should be such items as will be ranked.
        verdicts : VerdictLog, its path, or iterable of Verdict, optional
            What people said of single labels of these items, by their ids, files or row numbers;
            where there is a pool without ids, numbers are those of its rows. By default what the
            tagger has been told so far, but for rows that are other items now.
        label_sets_only : bool
            Whether `label_sets` alone teach what labels mean, as where they come from another
            source, which uses tags otherwise. Tags of items that they lack are "oov" then.
        warm_start_from : ZeroShotTagger, optional
            A fitted tagger, it may be this one, whose members are gone on from, in a tenth of the
            steps: give all items, old and new. Labels are matched by name, features are
            standardised as they were, and a feature extractor with the same parameters stays as it
            was learned. Its verdicts are learned from where none are given.
        progress : callable, optional
            Takes rounds of the training that are done, and rounds in all.

        Notes
        -----
        A warm start keeps every known document in its fold, so that probable tags and calibration
        still rest on members that never saw an item: items are found again by their features, else
        by their names or files, and label sets by names or labels. Rows without names whose
        features have changed count as new. What `validation_` says, the share of names and whether
        the pool is learned from are the former fit's, until items or labels are a tenth more or
        fewer than when that was measured; then it is measured anew, which takes longer than the
        fit. Where the former tagger does not fit (other features, another plan, most labels or
        items not known, documents of one group in several folds), a warning says why and the fit
        starts from nothing.
        """
        if y is None:
            owner = type(self).__name__
            raise InputError(f"`{owner}` requires y to be passed, but the target y is None.")
        template = self._template()
        vocabulary = as_vocabulary(self.vocabulary)
        generator = as_generator(self.random_state)
        space_seed = draw_seed(generator)
        feature_seed = draw_seed(generator)

        gathered = partial(  # no frame of its own: warnings name the line that calls `fit`
            gather,
            X,
            y,
            label_sets,
            unlabelled,
            label_sets_only=label_sets_only,
            vocabulary=vocabulary,
            normalize=self.normalize_labels,
            seed=feature_seed,
            verbose=self.verbose,
            owner=type(self).__name__,
        )
        warm = None
        source = self if warm_start_from is None else warm_start_from
        if warm_start_from is not None:
            try:
                self._check_former(warm_start_from)
                data = gathered(extractor=warm_start_from.features_, is_learned=True)
                keys = DocumentKeys.of(data)
                warm = warm_start_from._warm_start(data, keys, template)
            except ColdStartError as error:
                warnings.warn(
                    f"This fit starts from nothing and not from the former model: {error}.",
                    PolysemeWarning,
                    stacklevel=2,
                )
        if warm is None:
            data = gathered(extractor=self.features)
            keys = DocumentKeys.of(data)
        log = source._log_of(verdicts)
        tables = data.tables
        features = data.features
        words = None if label_vectors is None else as_word_vectors(label_vectors)
        space = copy_of(template)
        seeded = isinstance(self.random_state, (int, np.integer))
        # Without a seed the space draws its own, which its checkpoint remembers.
        if space.random_state is None and self.random_state is not None:
            space.set_params(random_state=space_seed if seeded else generator)
        if space.checkpoint is None:
            space.set_params(checkpoint=self.checkpoint)
        shape = tables.documents.shape
        check_room_for(space.checkpoint, space.n_weights(shape, len(data.items), data.n_features))
        if isinstance(space.random_state, (int, np.integer)):
            space.training_seed()  # refuses another training's checkpoint before any work
        measured_on = (len(data.items), len(data.labels))
        if warm is not None and source._is_measured(measured_on):
            validation = source.validation_
            share = source.name_share_
            pooled = source.pooled_
            measured_on = source.measured_on_
        else:
            if warm is None:
                self._warn_about_cost(template, data)
            # Without a seed other items would be held out when it goes on.
            checkpoint = space.checkpoint if seeded else None
            validation, share, pooled = self._validated(
                data, template, words, generator, checkpoint, label_sets_only=label_sets_only
            )
        rows = data.rows()
        if verdicts is None:
            rows = source._without_changed_items(rows, data)
        column_by_key = {self._key_of(label): column for column, label in enumerate(data.labels)}
        answers, pool = data.answered(
            log.standing(),
            rows,
            lambda label: column_by_key.get(self._key_of(vocabulary.resolve(label))),
            pooled=pooled,
        )
        keys = keys.with_pool(pool)
        if warm is not None:
            pool_folds = source._folds_of(keys)[len(warm.folds) :]
            warm = replace(warm, pool_folds=pool_folds)
        with unless_refused(space.checkpoint):
            with FileProgress("training the concept space, rounds", shown=self.verbose) as bar:

                def report_round(n_done: int, n_rounds: int, losses: Mapping[str, float]) -> None:
                    bar.tell(n_done, n_rounds, 0)
                    if progress is not None:
                        progress(n_done, n_rounds)

                space.fit(
                    tables.documents,
                    features,
                    None if features is None else tables.item_documents,
                    tables.groups,
                    tables.n_label_sets,
                    progress=report_round,
                    trainer=trainer,
                    pool=pool,
                    verdicts=answers,
                    warm=warm,
                )
            # Dropped are those without a label, of which `check_corpus` has told.
            store, dropped = ConceptStore.of(space, data.labels, data.sets, data.taught)
            feedback = data.place_answered(Feedback(log, space.digest_), space, rows)
        # Nothing is set before everything is learned: a fit that fails leaves the tagger as it was.
        self.space_ = space
        self.features_ = data.extractor
        self.n_vocabulary_ = len(data.sets.labels)
        self.n_fitted_ = len(store.ids)
        self.seen_ = data.seen
        self.dropped_ = dropped
        self.validation_ = validation
        self._keys = keys
        self.measured_on_ = measured_on
        self.name_share_ = 0.0
        self._likeness = np.zeros((0, 0))
        if words is not None and share:
            self.name_share_ = share
            self._likeness = self._unseen_likeness(words, data.labels)
        self.n_features_in_ = data.n_features
        self._set_feature_names(data.columns)
        self.normalize_labels_ = self.normalize_labels
        self.vocabulary_ = vocabulary
        self.pooled_ = pooled
        self._corrections = Corrections(feedback)
        self.indicator_ = data.corpus.labels if is_indicator(y) else None
        self.set_store(store)
        self._update_corrections(())
        if features is not None:
            warn_of_lost_features(features, space)
        return self

    def _template(self) -> ConceptSpace:
        """Check the parameters and return the space that is to be fitted."""
        owner = type(self).__name__
        check_kind("space", self.space, self.components["space"], owner=owner)
        check_kind("features", self.features, MediaFeatures, owner=owner)
        if self.checkpoint is not None:
            check_path(self.checkpoint, what=f"`checkpoint` of `{owner}`")
        template = ConceptSpace() if self.space is None else self.space
        if self.device is not None:
            template = copy_of(template).set_params(device=self.device)
        template.check_parameters()
        check_number("n_validations", self.n_validations, owner=owner, low=0, whole=True)
        return template

    def _warn_about_cost(self, space: ConceptSpace, data: TrainingSet) -> None:
        """Warn before a fit that will take long or much memory."""
        if space.device != "cpu" and check_device(space.device, owner="fit") != "cpu":
            return
        n_documents, n_labels = data.tables.documents.shape
        n_items = 0 if data.features is None else len(data.items)
        pooled = data.pool is not None
        plan = space.planned(n_documents, n_items, pool=pooled).within(n_documents, n_items)
        n_validations = self.n_validations * (1 + pooled)
        n_all = n_items + data.n_pool
        cost = cost_of_fit(plan, n_documents, n_labels, n_all, data.n_features, n_validations)
        warn_about_cost(cost, plan, n_labels, stacklevel=4)

    def _check_former(self, former: ZeroShotTagger) -> None:
        """Raise unless a tagger is fitted, and reads labels and items as this one is to do."""
        check_kind("warm_start_from", former, ZeroShotTagger, owner="fit")
        check_fitted(former, "store_")
        if self.normalize_labels != former.normalize_labels_:
            raise ColdStartError("labels are normalized in one of the two alone")
        if extractor_parameters(self.features) != extractor_parameters(former.features_):
            raise ColdStartError("the features of items are made in another way")

    def _warm_start(
        self, data: TrainingSet, keys: DocumentKeys, template: ConceptSpace
    ) -> WarmStart:
        """Return what a new fit takes over from this tagger; raise where it does not fit."""
        tables = data.tables
        store = self.store_
        n_items = 0 if data.features is None else len(data.items)
        feature_names = getattr(self, "feature_names_in_", None)
        former_columns = None if feature_names is None else tuple(feature_names)
        if None not in (former_columns, data.columns) and former_columns != data.columns:
            raise ColdStartError("features have other names, or another order")
        pooled = data.pool is not None and self.pooled_
        plan = template.planned(tables.documents.shape[0], n_items, pool=pooled)
        check_sizes(self.space_, plan, data.features)
        learned_labels = store.labels[: store.n_learned]
        column_by_key = {self._key(label): column for column, label in enumerate(learned_labels)}
        columns = np.array([column_by_key.get(self._key(label), -1) for label in data.labels])
        share_of_items = keys.with_pool(data.pool).found_among(self._keys)
        check_known(columns, share_of_items)
        folds = placed_groups(self._folds_of(keys), tables.groups)
        warm = WarmStart(self.space_, columns, folds)
        if len(np.unique(warm.folds[warm.folds >= 0])) < warm.n_folds:
            raise ColdStartError("one of its folds has no document any more")
        return warm

    def _folds_of(self, keys: DocumentKeys) -> IntArray:
        """Return the folds that documents had in this tagger's fit, -1 for new ones, (n,)."""
        return keys.folds_among(self._keys, self.space_.folds_)

    def missing_items(self, X: object) -> tuple[int, int]:
        """Count the items of the last fit that are not among some, and all that it had.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
            Items, which are found by their features, names or files.
        """
        check_fitted(self, "store_")
        features = self._features_of(X)
        table: Any = features.features if isinstance(features, EncodedItems) else features
        new_features = feature_digests(table)
        new_names = name_digests(item_names(X) or ())
        are_items = self._keys.of_items
        are_present = np.isin(self._keys.items[are_items], new_features)
        are_present |= np.isin(self._keys.names[are_items], new_names)
        n_missing = int((~are_present).sum())
        return n_missing, int(are_items.sum())

    def label_sets(self) -> LabelCorpus | None:
        """Return the known tag sets that are no item's own; None where that is not known.

        Those of the last fit without the ones of its items, and all that were added since.
        """
        check_fitted(self, "store_")
        rows = self._keys.documents
        are_items = self._keys.of_items[rows]
        taught_alone = self.space_.order_[: self.space_.n_seen_] >= self.n_vocabulary_
        if int(rows.sum()) != self.n_fitted_ or taught_alone.any():
            return None
        n_added = len(self.store_.ids) - len(are_items)
        are_sets = np.append(~are_items, np.ones(n_added, bool))
        set_rows = np.flatnonzero(are_sets).tolist()
        return LabelCorpus.from_documents(
            [self.store_.document(row) for row in set_rows],
            ids=[self.store_.ids[row] for row in set_rows],
            normalize=self.normalize_labels_,
        )

    def _is_measured(self, sizes: tuple[int, int]) -> bool:
        """Return whether `validation_` is there and stands for so many items and labels."""
        changes = []
        for size, former_size in zip(sizes, self.measured_on_, strict=True):
            change = abs(size - former_size) / former_size
            changes.append(change)
        return self.validation_ is not None and max(changes) <= _GROWN

    def _validated(
        self,
        data: TrainingSet,
        template: ConceptSpace,
        words: WordVectors | None,
        generator: np.random.Generator,
        checkpoint: str | Path | None,
        *,
        label_sets_only: bool,
    ) -> tuple[Validation | None, float, bool]:
        """Measure what small spaces promise, what share names get, and whether the pool helps."""
        pooled = data.pool is not None
        if data.features is None or not self.n_validations:
            return None, 0.0, pooled
        n_documents = min(data.tables.documents.shape[0], MOST_TRAINED)
        n_items = min(len(data.items), MOST_TRAINED)
        plan = template.planned(n_documents, n_items).shortened(VALIDATION_STEPS)
        small = copy_of(template).set_params(
            plan=plan,
            n_folds=2,
            members_per_fold=1,
            checkpoint=None,
            random_state=None,
        )
        model = ZeroShotTagger(space=small, n_validations=0, random_state=draw_seed(generator))
        with working("validating on held-out items", shown=self.verbose):
            validations = validate(
                model,
                data.features,
                data.documents,
                data.sets,
                self.n_validations,
                draw_seed(generator),
                variants=lambda fitted: fitted._with_names(words),
                pool=data.pool,
                checkpoint=checkpoint,
                label_sets_only=label_sets_only,
            )
        if not validations:
            return None, 0.0, pooled
        with_pool = validations.pop() if pooled else None
        unseen_measures = [validation.unseen for validation in validations]
        qualities = [measures.example_map + measures.concept_map for measures in unseen_measures]
        best = int(np.argmax(np.nan_to_num(qualities)))
        if with_pool is None:
            return validations[best], NAME_SHARES[best], False
        pool_gain = with_pool.gain_over(validations[0])
        chosen = with_pool if pool_gain > 0 else validations[best]
        return replace(chosen, pool_gain=pool_gain), NAME_SHARES[best], pool_gain > 0

    def _log_of(self, verdicts: VerdictLog | str | Path | Iterable[Verdict] | None) -> VerdictLog:
        """Return the log of verdicts to learn from."""
        if verdicts is None:
            return getattr(self, "verdicts_", VerdictLog())
        if isinstance(verdicts, VerdictLog):
            return verdicts
        if isinstance(verdicts, (str, Path)):
            return VerdictLog(verdicts)
        log = VerdictLog()
        log.append(verdicts)
        return log

    def _without_changed_items(self, rows: dict[str, int], data: TrainingSet) -> dict[str, int]:
        """Return the rows by item, without numbers of rows that are other items now."""
        if not hasattr(self, "_corrections") or data.features is None:
            return rows
        feedback = self._corrections.feedback
        numbered = {item for item in feedback.items() if item in rows and item.isdecimal()}
        same_items: set[str] = set()
        if data.n_features == self.n_features_in_:
            same_items = set(feedback.vectors(numbered))
        for table, first_row in data.parts():
            table_rows: dict[str, int] = {}
            for item in same_items:
                row = rows[item] - first_row
                if 0 <= row < table.shape[0]:
                    table_rows[item] = row
            same_items -= feedback.changed_items(table_rows, partial(self._project, table))
        changed_items = numbered - same_items
        return {item: row for item, row in rows.items() if item not in changed_items}

    def _project(self, features: Items, rows: Sequence[int]) -> NDArray[np.float32]:
        """Return the projections of some rows, (n, n_sketch)."""
        return self.space_.sketch(_rows(features, rows))

    def _key_of(self, label: str) -> str:
        """Return what labels are compared by in a fit."""
        return normalize_label(label) if self.normalize_labels else label

    def set_store(self, store: ConceptStore, named: NamedLabels | None = None) -> Self:
        """Take over known documents, and labels by name, with all readouts that follow.

        Parameters
        ----------
        store : ConceptStore
        named : NamedLabels, optional
            Those that documents hold by now are dropped: their names are not asked any more.
        """
        if named is not None:
            named = self._without_documented(named, store)
        with one_blas_thread():
            reading = Reading.learn(
                self.space_, store, named, self.n_fitted_, self.name_share_, self._likeness
            )
        # Nothing is set before everything is made: what is refused leaves the tagger as it was.
        self.store_ = store
        self.named_ = named
        self._reading = reading
        # A label whose documents were all taken away is not suggested any more.
        self._in_use = np.ones(len(self._labels), dtype=bool)
        self._in_use[: len(store.labels)] = store.counts > 0
        blocked = {self._key(label) for label in self.vocabulary_.blocked}
        self._in_use &= [self._key(label) not in blocked for label in self._labels]
        self._raised = self.vocabulary_.raised(self._labels)
        self._places = {self._key(label): column for column, label in enumerate(self._labels)}
        self._set_classes()
        # Of equal scores the commoner label is first.
        counts = np.zeros(len(self._labels))
        counts[: len(store.labels)] = store.counts
        self._preference = label_preference(self._show(counts, 0))
        self._corrections = self._corrections.with_scorer(reading, self._place)
        return self

    def _without_documented(self, named: NamedLabels, store: ConceptStore) -> NamedLabels | None:
        """Return the labels by name that no document holds; those without a hint come last.

        Without a hint they are in the order of their names, whichever was answered for first.
        """
        documented = {self._key(label) for label in store.labels}
        have_hints = np.atleast_1d(named.likeness.any(axis=1))
        hinted = []
        unhinted = []
        for row, label in enumerate(named.labels):
            if self._key(label) in documented:
                continue
            if have_hints[row]:
                hinted.append(row)
            else:
                unhinted.append(row)
        unhinted.sort(key=lambda row: named.labels[row])
        rows = hinted + unhinted
        if not rows:
            return None
        labels = tuple(named.labels[row] for row in rows)
        return NamedLabels(labels, named.likeness[rows])

    @property
    def _labels(self) -> tuple[str, ...]:
        """Every label, those of documents first; `classes_` may have them in another order."""
        return self._reading.labels

    def _with_names(self, words: WordVectors | None) -> list[Self]:
        """Return this tagger as it is and, with vectors, as it is with each of `NAME_SHARES`."""
        if words is None:
            return [self]
        variants = [copy(self) for _ in NAME_SHARES]
        for variant, share in zip(variants, NAME_SHARES, strict=True):
            variant.name_share_ = share
            variant._likeness = self._unseen_likeness(words, self.store_.labels)
            variant.set_store(self.store_)
        return variants

    def _unseen_likeness(self, words: WordVectors, labels: Sequence[str]) -> Matrix:
        """Return how like seen labels each unseen one is by name, (n_unseen, n_seen)."""
        ordered = np.asarray(labels, dtype=object)[self.space_.order_]
        seen, unseen = np.split(ordered, [self.space_.n_seen_])
        likeness = np.zeros((len(unseen), len(seen)))
        have_vectors = words.label_vectors(unseen.tolist())[1]
        if have_vectors.any() and words.label_vectors(seen.tolist())[1].any():
            named = unseen[have_vectors].tolist()
            likeness[have_vectors] = name_likeness(named, seen.tolist(), words)
        return likeness

    def _set_classes(self) -> None:
        """Order labels as they are shown: the columns of an indicator matrix first."""
        labels = np.array(self._labels, dtype=object)
        kinds = label_kinds(self._labels, self.seen_, self.n_vocabulary_)
        self._shown: IntArray | None = None
        if self.indicator_ is not None:
            column_by_key = {self._key(label): column for column, label in enumerate(self._labels)}
            first_columns = [column_by_key.pop(self._key(label), -1) for label in self.indicator_]
            further_columns = list(column_by_key.values())
            self._shown = np.array([*first_columns, *further_columns], dtype=np.int64)
            labels = np.array([*self.indicator_, *labels[further_columns]], dtype=object)
            kinds = np.where(self._shown < 0, "oov", kinds[self._shown])
        self.classes_: NDArray[np.object_] = labels
        self.kinds_: NDArray[np.str_] = kinds

    def _show(self, values: Matrix, missing: float) -> Matrix:
        """Return values of labels (..., n_labels) in the order of `classes_`."""
        if self._shown is None:
            return values
        return np.where(self._shown < 0, missing, values[..., self._shown])

    def _key(self, label: str) -> str:
        """Return what labels are compared by."""
        return normalize_label(label) if self.normalize_labels_ else label

    # ------------------------------------------------------------------ asking

    def transform(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float32]:
        """Return the codes of items in the concept space.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
            None codes the tags alone.
        tags : iterable of collections of str, optional
            Labels that each item is known to have, n collections.

        Returns
        -------
        float32 array, shape (n, n_dimensions)
        """
        features, tag_matrix = self._check_query(X, tags)
        n = _n_rows(features, tag_matrix)
        codes = np.empty((n, self.space_.n_dimensions), dtype=np.float32)
        for rows in coded_blocks(n):
            block_features = None if features is None else features[rows]
            block_tags = None if tag_matrix is None else tag_matrix[rows]
            codes[rows] = self._reading.codes(block_features, block_tags)
        return codes

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Name the dimensions that `transform` gives, (n_dimensions,)."""
        check_fitted(self, "space_")
        names = [f"code{number}" for number in range(self.space_.n_dimensions)]
        return np.array(names, dtype=object)

    def points(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float32]:
        """Return the codes of items as directions on the principal axes of known documents.

        Parameters
        ----------
        X, tags : as for `transform`

        Returns
        -------
        float32 array, shape (n, n_axes)
            Of length 1; the first two axes make a map.
        """
        codes = self.transform(X, tags)
        return self.space_.points(codes)

    def concepts(self) -> Concepts:
        """Return every label in every known document as a point; see `polyseme.senses`."""
        check_fitted(self, "store_")
        return self.store_.concepts()

    def senses(self, label: str, random_state: RandomState = 0) -> SenseMap | None:
        """Split the known tag sets that hold a label by where they lie: its senses.

        Parameters
        ----------
        label : str
            One that known documents hold.
        random_state : int, numpy Generator or None

        Returns
        -------
        SenseMap or None
            Its words name each sense by the labels that set it apart, its documents are rows of
            `store_`. None where the tag sets do not fall apart.
        """
        check_fitted(self, "store_")
        column = label_column(self.store_.labels, label, normalize=self.normalize_labels_)
        return label_senses(self.concepts(), column, random_state=random_state)

    def _check_query(
        self, X: object, tags: Iterable[Collection[str]] | None
    ) -> tuple[Items | None, sp.csr_matrix | None]:
        """Check items and tags that are asked about: features, and tags over all labels."""
        check_fitted(self, "space_")
        features = None if X is None else self._features_of(X)
        if tags is None:
            if features is None:
                raise InputError("Give features, tags, or both.")
            return features, None
        completed = [self._own_names(item_tags) for item_tags in check_tags(tags)]
        n = len(completed) if features is None else features.shape[0]
        return features, tag_table(completed, self._labels, n, normalize=self.normalize_labels_)

    def _own_names(self, tags: Collection[str]) -> Collection[str]:
        """Return tags under their labels' own names, with what they imply; else as they are."""
        if not self.vocabulary_ or isinstance(tags, (str, bytes, Mapping)):
            return tags
        if not isinstance(tags, Iterable):
            return tags
        tags = list(tags)
        if not all(isinstance(tag, str) for tag in tags):
            return tags  # which is refused where documents are made of them
        return self.vocabulary_.complete(tags)

    def _check_featured(self) -> None:
        """Raise where nothing is known of features."""
        if not self.n_features_in_:
            raise InputError(
                "This ZeroShotTagger was fitted without features, so it cannot rank items; use "
                "`complete`, or fit it with X."
            )

    def _features_of(self, X: object, *, keep_single: bool = False) -> Items:
        """Check items, after the feature extractor where there is one, (n, n_features)."""
        self._check_featured()
        owner = type(self).__name__
        if isinstance(X, EncodedItems):
            if X.space != self.space_.digest_:
                raise InputError("These items were coded in another space; `encode` them again.")
            return X
        names = getattr(self, "feature_names_in_", None)
        table = in_order(without_ids(X)[0], names, owner=owner)
        if self.features_ is not None:
            table = self.features_.transform(X)
        n_features = self.n_features_in_
        return check_features(table, owner=owner, n_features=n_features, keep_single=keep_single)

    def encode(
        self, X: object, ids: Sequence[str] | None = None, most_bytes: int = 2**30
    ) -> EncodedItems:
        """Code items once, to ask about them again and again.

        What it gives stands for X in every method that asks about items, and answers to the last
        bit as X does, as long as the space is the same: also when documents and labels come and go
        and verdicts are given. Logits are kept as well, so that what was answered for one label
        costs no more than that label.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        ids : sequence of str, optional
            Names of the items, by which verdicts know them; by default those that X has.
        most_bytes : int
            What may be kept in memory beside X. Where codes are too large, they are made again
            whenever documents or labels come or go; where all is, whenever items are asked about.

        Returns
        -------
        EncodedItems
        """
        check_fitted(self, "store_")
        check_number("most_bytes", most_bytes, owner="encode", low=0, whole=True)
        features: Any = self._features_of(X, keep_single=True)
        if isinstance(features, EncodedItems):
            features = features.features
        space = self.space_
        n = features.shape[0]
        # Room is left for logits first, then for sketches, then for codes.
        logit_bytes = 8 * n * len(self._labels)
        free_bytes = int(most_bytes) - 4 * n * space.n_sketch
        keep_sketches = free_bytes >= logit_bytes
        keep_codes = free_bytes - 4 * n * space.n_dimensions >= logit_bytes
        sketches = np.empty((n if keep_sketches else 0, space.n_sketch), dtype=np.float32)
        codes = np.empty((n if keep_codes else 0, space.n_dimensions), dtype=np.float32)

        names = item_names(X) if ids is None else as_names(ids, "`ids` of `encode`")
        if names is not None and len(names) != n:
            raise InputError(f"`ids` of `encode` names {len(names)} items; X has {n}.")
        items = EncodedItems(features, names, space.digest_, free_bytes - codes.nbytes)
        for rows in coded_blocks(n) if keep_sketches else ():
            table = items[rows].table()
            sketches[rows] = space.sketch(table)
            if keep_codes:
                codes[rows] = space.item_codes(table)
        items.sketches = sketches if keep_sketches else None
        items.codes = codes if keep_codes else None
        return items

    def _scored(
        self,
        features: Items | None,
        tags: sp.csr_matrix | None,
        method: str = "space",
        kinds: Collection[str] | None = None,
        columns: Sequence[int] | None = None,
    ) -> Iterator[tuple[slice, Matrix]]:
        """Yield scores of checked items, some rows at a time: logits, or shares of votes.

        They are in the order of `classes_`, or those of some columns of `_labels`, by which no
        other column's score is raised then.
        """
        in_use = self._in_use
        if kinds is not None:
            in_use = in_use & self._of_kinds(kinds)
        check_option("method", method, METHODS, owner="rank")
        lowest, highest = (0.0, 1.0) if method == "priming" else (-np.inf, np.inf)
        raised = self._raised
        if columns is not None:
            raised = _pairs_within(raised, columns)
            in_use = in_use[np.array(columns)]
        unused = np.flatnonzero(~in_use)
        blocks = self._reading.blocks(features, tags, self._corrections.table, method, columns)
        for rows, scores, block_tags in blocks:
            plain_scores = scores.copy() if raised else scores
            for source, target in raised:
                np.maximum(scores[:, target], plain_scores[:, source], out=scores[:, target])
            scores[:, unused] = lowest
            if block_tags is not None:
                has_tag = block_tags.toarray() > 0
                if columns is not None:
                    has_tag = has_tag[:, columns]
                scores[has_tag] = highest
            yield rows, self._show(scores, lowest) if columns is None else scores

    def _of_kinds(self, kinds: Collection[str]) -> NDArray[np.bool_]:
        """Return which of `_labels` are of some kinds, (n_labels,)."""
        names = as_names(kinds, "kinds of labels")
        for kind in names:
            check_option("kinds", kind, KINDS, owner="rank")
        label_kind = label_kinds(self._labels, self.seen_, self.n_vocabulary_)
        are_wanted = np.isin(label_kind, names)
        if "seen" in names:
            # Also those on training items that no label set holds: they are as well known.
            are_wanted[self.space_.order_[: self.space_.n_seen_]] = True
        return are_wanted

    def predict_proba(
        self, X: object, tags: Iterable[Collection[str]] | None = None, method: str = "space"
    ) -> Matrix:
        """Return the probability of every label for each item.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
            None scores the tags alone, as `complete` does.
        tags : iterable of collections of str, optional
            Labels that each item is known to have, n collections. They get the probability 1 and
            move the others; labels that are newer than the space do not move any.
        method : {"space", "priming"}
            Calibrated probabilities, or the share of known documents near the item's code that
            hold a label.

        Returns
        -------
        float64 array, shape (n, n_classes)
        """
        features, tag_matrix = self._check_query(X, tags)
        scores = self._collect(self._scored(features, tag_matrix, method))
        return scores if method == "priming" else sigmoid(scores)

    def decision_function(self, X: object, tags: Iterable[Collection[str]] | None = None) -> Matrix:
        """Return the logit of every label for each item, (n, n_classes); see `predict_proba`."""
        features, tag_matrix = self._check_query(X, tags)
        return self._collect(self._scored(features, tag_matrix))

    def _collect(self, blocks: Iterator[tuple[slice, Matrix]]) -> Matrix:
        """Return blocks of scores as one table, (n, n_classes)."""
        tables = [np.empty((0, len(self.classes_)))]
        for _, scores in blocks:
            tables.append(scores)
        return np.concatenate(tables)

    def score(self, X: object, y: Documents, sample_weight: object = None) -> float:
        """Return the mean average precision of the items' rankings (E-MAP), between 0 and 1.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        y : as for `fit`
            The true labels of each item. Labels that it cannot rank are passed over.
        sample_weight : None
            scikit-learn passes it on; weights are not taken.
        """
        if sample_weight is not None:
            raise InputError("`score` of `ZeroShotTagger` takes no weights.")
        scores = self.predict_proba(X)
        return example_map(self._truth(X, y), scores)

    def _truth(self, X: object, y: Documents) -> NDArray[np.bool_]:
        """Return which of `classes_` each item carries, (n, n_classes)."""
        return np.asarray(self._carried(X, y).toarray(), dtype=bool)

    def _carried(self, X: object, y: Documents) -> sp.csr_matrix:
        """Return the labels that items carry, (n, n_classes)."""
        corpus = self.vocabulary_.apply(as_corpus(y, normalize=self.normalize_labels_))
        _, corpus = in_order_of(X, y, corpus)
        matrix, unknown = corpus.align(self.classes_.tolist())
        if unknown:
            warnings.warn(
                f"{len(unknown)} true labels are not known and are left out: {first_few(unknown)}.",
                PolysemeWarning,
                stacklevel=4,
            )
        return sp.csr_matrix(matrix[:, : len(self.classes_)])

    def evaluate(self, X: object, y: Documents, k: int = 5) -> dict[str, float]:
        """Return all metrics of the items' rankings; labels are brought together by name.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        y : as for `fit`
            The true labels of each item. Labels that it cannot rank are passed over.
        k : int
            Labels that are predicted for `f1_at_k`.

        Returns
        -------
        dict of str to float
            See `polyseme.metrics.evaluate`.
        """
        scores = self.predict_proba(X)
        return evaluate(self._truth(X, y), scores, k=k)

    def thresholds(self, precision: float) -> Matrix:
        """Return how likely labels must be for a share of those that are given to be true.

        Parameters
        ----------
        precision : float
            The share, between 0.01 and 0.99.

        Returns
        -------
        float64 array, shape (n_labels,)
            Learned on training items that members had not seen and, for labels that are not seen,
            on labels that were made unseen (`validation_`): infinity where these say that such a
            precision cannot be promised.
        """
        check_fitted(self, "space_")
        check_number("precision", precision, owner="predict", low=0.01, high=0.99)
        if not self.n_features_in_:
            raise InputError("A precision needs features to learn it from; this tagger has none.")
        seen = self.space_.threshold(precision)
        unseen = np.inf if self.validation_ is None else self.validation_.threshold(precision)
        least = np.full(len(self._labels), unseen)
        least[self.space_.order_[: self.space_.n_seen_]] = seen
        if np.isinf(unseen) and self.space_.n_seen_ < len(self._labels):
            warnings.warn(
                f"A precision of {precision:g} cannot be promised of labels that no training item "
                f"carries, so none of them is given; {self._best_promise()}. `rank` gives the best "
                "of them (--top 10), `kinds` those of one kind (--kind unseen).",
                PolysemeWarning,
                stacklevel=3,
            )
        return self._show(least, 1.0)

    def _best_promise(self) -> str:
        """Return what precision can be asked of unseen labels."""
        if self.validation_ is None:
            return "there were too few items or labels to try it on, or `n_validations` is 0"
        best = self.validation_.highest_precision
        return f"held-out items promise {best:g} at the most" if best else "held-out items say so"

    def predict(
        self,
        X: object,
        threshold: float = 0.5,
        precision: float | None = None,
        tags: Iterable[Collection[str]] | None = None,
        kinds: Collection[str] | None = None,
    ) -> list[tuple[str, ...]] | NDArray[np.int64]:
        """Return a tag set for each item: the labels that are likely enough, best first.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        threshold : float
            How likely a label must be.
        precision : float, optional
            The share of given labels that should be true, in place of `threshold`; see
            `thresholds`.
        tags : iterable of collections of str, optional
            Labels that each item is known to have; see `predict_proba`.
        kinds : collection of {"seen", "unseen", "oov"}, optional
            Give only labels of these kinds, and those in `tags`.

        Returns
        -------
        list of tuples of str, length n; or int64 array, shape (n, n_columns)
            As y was in `fit`: tag sets, or a 0/1 matrix with the same columns.
        """
        check_number("threshold", threshold, owner="predict", low=0, high=1)
        features, tag_matrix = self._check_query(X, tags)
        least = np.full(len(self.classes_), threshold)
        if precision is not None:
            if features is None:
                raise InputError(
                    "A precision is learned on items with features; for tags alone give a "
                    "`threshold`."
                )
            with warnings.catch_warnings():
                if kinds is not None and set(as_names(kinds, "kinds of labels")) == {"seen"}:
                    warnings.simplefilter("ignore", PolysemeWarning)
                least = self.thresholds(precision)
        blocks = self._scored(features, tag_matrix, kinds=kinds)
        if self.indicator_ is not None:
            table = sigmoid(self._collect(blocks)) >= least
            return table[:, : len(self.indicator_)].astype(np.int64)
        predicted: list[tuple[str, ...]] = []
        for _, logits in blocks:
            predicted.extend(tag_sets(sigmoid(logits), least, self.classes_))
        return predicted

    def rank(
        self,
        X: object,
        k: int = 10,
        tags: Iterable[Collection[str]] | None = None,
        method: str = "space",
        kinds: Collection[str] | None = None,
    ) -> tuple[StrArray, Matrix]:
        """Return the k best labels for each item.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        k : int
            How many labels; all of them if there are fewer.
        tags : iterable of collections of str, optional
            Labels that each item is known to have; see `predict_proba`.
        method : {"space", "priming"}
            See `predict_proba`.
        kinds : collection of {"seen", "unseen", "oov"}, optional
            Labels of other kinds get the score 0.

        Returns
        -------
        labels : array of str, shape (n, k)
        scores : float64 array, shape (n, k)
            Falling from left to right.
        """
        check_number("k", k, owner="rank", low=1, whole=True)
        features, tag_matrix = self._check_query(X, tags)
        shape = (_n_rows(features, tag_matrix), min(k, len(self.classes_)))
        columns = np.empty(shape, dtype=np.int64)
        best_scores = np.empty(shape)
        for rows, scores in self._scored(features, tag_matrix, method, kinds):
            shares = scores if method == "priming" else sigmoid(scores)
            columns[rows], best_scores[rows] = rank_labels(shares, self._preference, k)
        return self.classes_[columns], best_scores

    def complete(
        self, tags: Collection[str] | Iterable[Collection[str]], k: int = 10
    ) -> tuple[StrArray, Matrix]:
        """Suggest labels that go with a partial tag set; no features are needed.

        Parameters
        ----------
        tags : collection of str, or several such collections
            One partial tag set (or several). Unknown tags are named in a warning and passed over.
        k : int
            How many labels to suggest; the given ones are not among them.

        Returns
        -------
        labels : array of str, shape (k,), or (n, k) for several tag sets
        scores : float64 array, of the same shape
            Probabilities, as `rank(None, tags=…)` gives them.
        """
        check_fitted(self, "space_")
        check_number("k", k, owner="complete", low=1, whole=True)
        return complete_each(tags, lambda tag_set: self._complete_one(tag_set, k))

    def _complete_one(self, tags: Collection[str], k: int) -> tuple[StrArray, Matrix]:
        """Complete one tag set."""
        names = self._own_names(tags)
        columns = tag_columns(names, self._labels, normalize=self.normalize_labels_)
        self._reading.refuse_new(columns)
        # Unknown tags have been named by now.
        known_tags = [self._labels[column] for column in columns]
        labels, scores = self.rank(None, len(self.classes_), [known_tags])
        are_new = np.array([label not in known_tags for label in labels[0]], dtype=bool)
        n_suggested = min(k, len(self.classes_) - len(columns))
        return labels[0][are_new][:n_suggested], scores[0][are_new][:n_suggested]

    def explain(
        self,
        x: object,
        label: str,
        k: int = 5,
        tags: Collection[str] | None = None,
    ) -> Evidence:
        """Return where a label's score comes from, in parts that add up to its logit.

        Parameters
        ----------
        x : array-like, shape (n_features,) or (1, n_features), or None
            One item, which may be one of those that were encoded; None explains what `complete`
            says about the tags alone.
        label : str
            One of `classes_`.
        k : int
            How many tags and how many known tag sets to name.
        tags : collection of str, optional
            Labels that the item is known to have.

        Returns
        -------
        Evidence
        """
        check_fitted(self, "space_")
        check_number("k", k, owner="explain", low=1, whole=True)
        target = self._column(label)
        if x is not None and not isinstance(x, EncodedItems):
            x = one_item(x, self.features_)
        items, tag_matrix = self._check_query(x, None if tags is None else [tags])
        features = items.table() if isinstance(items, EncodedItems) else items
        n = _n_rows(features, tag_matrix)
        if n != 1:
            raise InputError(f"`explain` takes one item; got {n}.")
        column = self._raiser(features, tag_matrix, target)
        tag_indices = () if tag_matrix is None else tag_matrix.indices.tolist()
        if target in tag_indices or column in tag_indices:
            raise InputError(
                f"'{self._labels[column]}' is among the tags that are given, so there is nothing "
                "to explain; leave it out of them to ask where its score would come from."
            )
        evidence = evidence_of(
            self._reading,
            self._corrections.table,
            features,
            tag_matrix,
            column,
            k,
            kind=self._kind(column),
            in_use=bool(self._in_use[column]),
        )
        if column == target:
            return evidence
        probability = 0.0
        if self._in_use[target]:
            probability = float(sigmoid(np.array(evidence.logit)))
        return replace(
            evidence,
            label=self._labels[target],
            kind=self._kind(target),
            probability=probability,
            implied_by=evidence.label,
        )

    def _raiser(self, features: Features | None, tags: sp.csr_matrix | None, column: int) -> int:
        """Return the column whose score a label has: its own, or one that raises it."""
        sources = [source for source, target in self._raised if target == column]
        if not sources:
            return column
        codes = self._reading.codes(features, tags)
        logits = self._reading.logits(codes, features, self._corrections.table)[0]
        return max([column, *sources], key=lambda candidate: logits[candidate])

    def _kind(self, column: int) -> str:
        """Return the kind of one of `_labels`."""
        place = column if self._shown is None else int(np.flatnonzero(self._shown == column)[0])
        return str(self.kinds_[place])

    def _column(self, label: str) -> int:
        """Find a label's column, also of a label by name or by another name."""
        check_fitted(self, "store_")
        if isinstance(label, str):
            label = self.vocabulary_.resolve(label)
            column = self._places.get(self._key(label))
            if column is not None:
                return column
        return label_column(self.store_.labels, label, normalize=self.normalize_labels_)

    # ------------------------------------------------------------------ growing

    def add_documents(self, documents: Documents) -> tuple[str, ...]:
        """Know more documents, without re-training; new labels become oov labels.

        Parameters
        ----------
        documents : LabelCorpus, iterable of label collections, indicator frame, or path

        Returns
        -------
        tuple of str
            The names of the documents taken in, for `remove_documents`.
        """
        check_fitted(self, "store_")
        corpus = as_corpus(documents, normalize=self.normalize_labels_)
        corpus = self.vocabulary_.apply(corpus)
        store, ids, dropped = self.store_.add(self.space_, corpus)
        self.set_store(store, self.named_)
        self.dropped_ += dropped
        warn_dropped(dropped, len(corpus))
        return ids

    def remove_documents(self, ids: Collection[str]) -> Self:
        """Forget known documents, without re-training.

        A label the space has learned stays, with score 0 where no document holds it any more; a
        label that came later disappears with its documents.

        Parameters
        ----------
        ids : collection of str
            Names of known documents.
        """
        check_fitted(self, "store_")
        store = self.store_.remove(ids)
        left = set(store.ids)
        self.n_fitted_ = sum(name in left for name in self.store_.ids[: self.n_fitted_])
        # A label that is known by answers as well stays for as long as these do.
        self.set_store(store, self.named_)._update_corrections(())
        return self

    def add_labels(
        self, labels: Collection[str], vectors: WordVectors | Mapping[str, ArrayLike]
    ) -> tuple[str, ...]:
        """Rank labels that no document holds, by what their names mean elsewhere.

        A hint is all that names give: documents say more, and as soon as some hold the label, they
        alone count. Labels that are known already are passed over.

        Parameters
        ----------
        labels : collection of str
        vectors : WordVectors, or mapping of str to sequence of float
            Vectors of words; every label must have a word among them. They are not kept.

        Returns
        -------
        tuple of str
            The labels taken in, of the kind "oov".
        """
        check_fitted(self, "store_")
        words = as_word_vectors(vectors)
        known_keys = {self._key(label) for label in self._labels}
        names = self._names(labels)
        new_labels = tuple(name for name in names if self._key(name) not in known_keys)
        if new_labels:
            seen_columns = self.space_.order_[: self.space_.n_seen_]
            seen_labels = [self._labels[column] for column in seen_columns]
            likeness = name_likeness(new_labels, seen_labels, words)
            named = NamedLabels(new_labels, likeness)
            if self.named_ is not None:
                all_likeness = np.concatenate([self.named_.likeness, likeness])
                named = NamedLabels(self.named_.labels + new_labels, all_likeness)
            self.set_store(self.store_, named)
        return new_labels

    def remove_labels(self, labels: Collection[str]) -> Self:
        """Forget labels for good: they are taken out of all known documents.

        A label that the space has learned stays among `classes_`, with score 0; another fit has to
        leave it out of its documents. To keep a label but never suggest it, `block` it.

        Parameters
        ----------
        labels : collection of str
        """
        self.refresh()
        columns = {self._column(label) for label in self._names(labels)}
        removed = {self._labels[column] for column in columns}
        named = _without(self.named_, removed)
        store = self.store_
        if removed & set(store.labels):
            store = store.without_labels(self.space_, removed)
        # Answers about them stay in the log, but count no more; behind one there may be another.
        answered = self._answered_at(columns)
        while answered:
            self.verdicts_.undo(self._corrections.feedback.numbers(answered))
            self._corrections, _ = self._corrections.refreshed()
            answered = self._answered_at(columns)
        self.set_store(store, named)._update_corrections(())
        return self

    def _answered_at(self, columns: Collection[int]) -> list[str]:
        """Return the labels with standing verdicts that have one of some columns."""
        labels = self._corrections.feedback.labels
        return [label for label in labels if self._place(label) in columns]

    def block(self, labels: Collection[str], undo: bool = False) -> Self:
        """Never suggest some labels, or suggest them again; given tags may still be among them.

        Parameters
        ----------
        labels : collection of str
        undo : bool
            Whether they may be suggested from now on.
        """
        names = [self._labels[self._column(label)] for label in self._names(labels)]
        self.vocabulary_ = self.vocabulary_.blocking(names, undo=undo)
        return self.set_store(self.store_, self.named_)

    def rename(self, label: str, name: str) -> Self:
        """Rename a label; its former name is still understood.

        Parameters
        ----------
        label, name : str
            A known label, and a name that no other label has or had; `merge` brings two together.
        """
        column = self._column(label)
        if not isinstance(name, str):
            raise InputError(f"A label is renamed to one text; got {shown(name)}.")
        old = self._labels[column]
        (new,) = self._names(name)
        taken_keys = {self._key(known_label) for known_label in self._labels}
        taken_keys.discard(self._key(old))
        if self._key(new) in taken_keys:
            raise InputError(f"There is a label '{new}' already; merge '{old}' into it instead.")
        resolved = self.vocabulary_.resolve(new)
        if self._key(resolved) in taken_keys:
            raise InputError(f"'{new}' is a name of '{resolved}' already; merge '{old}' into it.")
        return self._rename(old, new, self.named_, self.vocabulary_.renaming(old, new))

    def _rename(
        self, old: str, new: str, named: NamedLabels | None, vocabulary: Vocabulary
    ) -> Self:
        """Rename a label of documents, or one known by name or by answers."""

        def new_name(label: str) -> str:
            return new if label == old else label

        store = self.store_
        if named is not None and old in named.labels:
            named = named._replace(labels=tuple(map(new_name, named.labels)))
        else:
            store = store.renamed(old, new)
        self.vocabulary_ = vocabulary
        self.seen_ = frozenset(map(new_name, self.seen_))
        if self.validation_ is not None:
            precisions = self.validation_.labels.items()
            renamed = {new_name(label): pair for label, pair in precisions}
            self.validation_ = replace(self.validation_, labels=renamed)
        if self.indicator_ is not None:
            self.indicator_ = tuple(map(new_name, self.indicator_))
        return self.set_store(store, named)

    def similar_labels(self, most: int = 20) -> list[tuple[str, str, float]]:
        """Suggest labels to `merge`, such as cards into card, by the known tag sets.

        Parameters
        ----------
        most : int
            How many pairs to give.

        Returns
        -------
        list of (str, str, float)
            The rarer label, the commoner one, and how alike the labels are that go with them.
        """
        check_fitted(self, "store_")
        check_number("most", most, owner="similar_labels", low=1, whole=True)
        return similar_labels(self.store_.matrix, self.store_.labels, most)

    def merge(self, label: str, into: str) -> Self:
        """Let one label stand for another, too: in known documents, given tags and scores.

        Parameters
        ----------
        label, into : str
            Two known labels; the first is not suggested any more, and the second whenever either
            would be.
        """
        source = self._labels[self._column(label)]
        target = self._labels[self._column(into)]
        if source == target:
            raise InputError(f"'{label}' and '{into}' are one label already.")
        vocabulary = self.vocabulary_.naming(source, target)
        store = self.store_
        named = self.named_
        document_labels = set(store.labels)
        if source in document_labels and target not in document_labels:
            # The documents take the other name, and with it the answers that were given on it.
            return self._rename(source, target, _without(named, {target}), vocabulary)

        if source in document_labels:
            store = store.merged(self.space_, source, target)
        else:
            named = _without(named, {source})
        self.vocabulary_ = vocabulary
        return self.set_store(store, named)

    def _names(self, labels: Collection[str]) -> tuple[str, ...]:
        """Check labels that are given by name, and tidy them as those of documents are."""
        check_fitted(self, "store_")
        names = as_names(labels, "labels")
        corpus = LabelCorpus.from_documents([names], normalize=self.normalize_labels_)
        return corpus.labels

    # ------------------------------------------------------------------ clicks

    @property
    def verdicts_(self) -> VerdictLog:
        """What people said about its tags, as events."""
        return self._corrections.feedback.log

    def learn(
        self,
        verdicts: Iterable[Verdict | tuple[Any, ...]],
        X: object = None,
        seen: int | None = None,
    ) -> tuple[int, ...]:
        """Take yes or no to single labels of items, at once and without training.

        A label's logits are corrected in closed form (`polyseme.corrections`); others stay as they
        are. Labels may be seen, unseen, blocked or not known at all: then they are new, and known
        by these answers alone. Verdicts are events in `verdicts_`, which the next fit learns from.

        Parameters
        ----------
        verdicts : iterable of Verdict, or of tuples that begin with item, label and answer
            Items are ids of X, its files, or numbers of its rows. Without X they are items that
            verdicts were given on before; an item's name is never opened as a file.
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        seen : int, optional
            The number of the last event of `verdicts_` that whoever answers has seen: where others
            have since said otherwise, a `ConflictError` is raised and nothing is taken.

        Returns
        -------
        tuple of int
            The verdicts' numbers, for `undo`.
        """
        check_fitted(self, "store_")
        self._check_featured()
        check_iterable(verdicts, "verdicts")
        digest = self.space_.digest_
        checked = self._with_resolved_labels([as_verdict(verdict, digest) for verdict in verdicts])
        self.refresh()  # others may have told of these items
        items = list(dict.fromkeys(verdict.item for verdict in checked))
        vectors = self._new_vectors(items, X)
        numbers = self.verdicts_.append(checked, vectors, digest, seen, self._key_of_name)
        self.refresh()
        return tuple(numbers)

    def _with_resolved_labels(self, verdicts: list[Verdict]) -> list[Verdict]:
        """Return verdicts under their labels' own names, tidied as those of documents are."""
        if not verdicts:
            return []
        labels = list(dict.fromkeys(verdict.label for verdict in verdicts))
        name_by_key = {self._key(name): name for name in self._names(labels)}
        resolved = {}
        for label in labels:
            name = name_by_key[self._key(label)]
            resolved[label] = self.vocabulary_.resolve(name)
        return [verdict._replace(label=resolved[verdict.label]) for verdict in verdicts]

    def _new_vectors(self, names: list[str], X: object) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of items that verdicts are about and that have none yet."""
        vectors = self._corrections.feedback.vectors(names)
        new = [name for name in names if name not in vectors]
        if X is None:
            if new:
                raise InputError(
                    f"Nothing is known of the item '{first_few(new[:1])}'; give `X` with its "
                    "features, or its file."
                )
            return {}
        features = self._features_of(X)
        ids = item_names(X)
        all_names = map(str, range(features.shape[0])) if ids is None else ids
        rows = {name: row for row, name in enumerate(all_names)}
        missing = [name for name in new if name not in rows]
        if missing:
            naming = "the numbers of their rows, from 0" if ids is None else "their ids"
            raise InputError(
                f"X has no item '{first_few(missing[:1])}'; verdicts name items by {naming}."
            )
        if ids is None:
            repeated = {name: rows[name] for name in vectors if name in rows}
            self._corrections.feedback.check_rows(repeated, partial(self._project, features))
        if not new:
            return {}
        new_features = _rows(features, [rows[name] for name in new])
        return dict(zip(new, item_vectors(self.space_, new_features), strict=True))

    def undo(self, numbers: Iterable[int]) -> Self:
        """Take verdicts back; every score is then as if they had never been given.

        Parameters
        ----------
        numbers : iterable of int
            As `learn` gave them.
        """
        check_fitted(self, "store_")
        self.verdicts_.undo(numbers)
        self.refresh()
        return self

    def use_log(self, log: VerdictLog, X: object = None) -> Self:
        """Learn from the verdicts of another log, in place of those it has.

        Parameters
        ----------
        log : VerdictLog
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
            Items with ids: those of them that verdicts are about and that the space has not coded
            yet are coded. By default verdicts on such items do not count.
        """
        check_fitted(self, "store_")
        feedback = Feedback(log, self.space_.digest_)
        names = None if X is None else item_names(X)
        if names is not None:
            items = feedback.items()
            coded_items = log.vector_keys(self.space_.digest_, items)
            to_code = items.keys() - coded_items.keys()
            rows = [row for row, name in enumerate(names) if name in to_code]
            if rows:
                vectors = item_vectors(self.space_, _rows(self._features_of(X), rows))
                row_names = [names[row] for row in rows]
                log.append([], dict(zip(row_names, vectors, strict=True)), self.space_.digest_)
                feedback, _ = feedback.refreshed()
        labels = {*self._corrections.feedback.labels, *feedback.labels}
        self._use_corrections(self._corrections.with_feedback(feedback), labels)
        return self

    def refresh(self) -> bool:
        """Learn from verdicts that others have added to `verdicts_` or taken back since.

        Every score is then as if the tagger were loaded anew. `learn` and `undo` do this as well;
        where nothing is new it costs next to nothing.

        Returns
        -------
        bool
            Whether anything has changed.

        Notes
        -----
        This method, `learn`, `undo` and all that change labels or documents replace what they
        change: a shallow copy of a tagger can learn while other threads rank and ask with the
        original, and then take its place.
        """
        check_fitted(self, "store_")
        corrections, labels = self._corrections.refreshed()
        if corrections is not self._corrections:
            self._use_corrections(corrections, labels)
        return bool(labels)

    def _use_corrections(self, corrections: Corrections, labels: Collection[str]) -> None:
        """Correct labels by the verdicts that stand now; if that fails, nothing changes."""
        tagger = copy(self)
        tagger._corrections = corrections
        tagger._update_corrections(labels)
        tagger._corrections = tagger._corrections.stored()
        self.__dict__.update(tagger.__dict__)

    def _update_corrections(self, labels: Collection[str]) -> None:
        """Correct labels that verdicts are about; verdicts alone make some of them known."""
        if not self.n_features_in_:
            return
        named = self.named_ or NamedLabels((), np.zeros((0, self.space_.n_seen_)))
        hinted = np.flatnonzero(named.likeness.any(axis=1))
        names = tuple(named.labels[row] for row in hinted)
        known_keys = {self._key(label) for label in (*self.store_.labels, *names)}
        resolved = map(self.vocabulary_.resolve, self._corrections.feedback.labels)
        # Of several spellings of a label the first in the alphabet counts.
        answered = {self._key(label): label for label in sorted(resolved, reverse=True)}
        unknown = [label for key, label in answered.items() if key not in known_keys]
        names += tuple(sorted(unknown))
        if names == named.labels:
            self._corrections = self._corrections.update(self._reading, labels, self._place)
            return
        # Labels that are known by answers alone have no hint by their names.
        likeness = np.pad(named.likeness[hinted], ((0, len(names) - len(hinted)), (0, 0)))
        self.set_store(self.store_, NamedLabels(names, likeness))

    def _place(self, label: str) -> int | None:
        """Return the column of a label that was answered for; None where it is not known."""
        return self._places.get(self._key_of_name(label))

    def _key_of_name(self, name: str) -> str:
        """Return what a label is compared by, given any of its names."""
        return self._key(self.vocabulary_.resolve(name))

    def ask(
        self,
        X: object,
        label: str | None = None,
        k: int = 30,
        strategy: str = "active",
        tags: Documents | None = None,
        random_state: RandomState = 0,
    ) -> list[Question]:
        """Return what to look at next: which label of which item is worth a yes or no.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        label : str, optional
            Ask about this label alone; by default about any.
        k : int
            How many questions.
        strategy : {"active", "likeliest", "random", "errors"}
            Half of the items the likeliest, half those it is least certain of; the likeliest; any;
            or tags that are perhaps missing or doubtful, for which `tags` must be given.
        tags : as y of `fit`, optional
            The tags that items have: they are not asked about, but where errors are looked for.
        random_state : int, numpy Generator or None

        Returns
        -------
        list of Question
            What was answered before is not asked again.

        Notes
        -----
        Errors are only what the model really disagrees with, which may be nothing. A tag that an
        item has is doubtful where its probability is below one half and its logit two standard
        deviations below the mean of the other items that have it. A tag is perhaps missing where
        its probability is at least one half and its logit five standard deviations above the mean
        of the other items without it. Items without any tag are left out: nobody has tagged them.
        Items of the training are scored by all members of the ensemble, most of which have seen
        their tags. On tags with errors made on purpose such lists are as precise as those of a
        model that has not seen the items, or more so; see `Spread` in `polyseme.active_learning`.
        """
        check_number("k", k, owner="ask", low=1, whole=True)
        check_strategy(strategy, tagged=tags is not None)
        check_fitted(self, "store_")
        features = self._features_of(X)
        ids = item_names(X)
        n = features.shape[0]
        names = [str(row) for row in range(n)] if ids is None else ids
        # Classes are places in `classes_`, columns are places in `_labels`.
        class_columns = np.arange(len(self._labels)) if self._shown is None else self._shown
        classes = np.arange(len(class_columns))
        columns = None
        if label is not None:
            column = self._column(label)
            if not self._in_use[column]:
                raise InputError(
                    f"'{label}' is blocked or was removed, so that nothing is asked about it."
                )
            classes = np.flatnonzero(class_columns == column)
            raising = [source for source, target in self._raised if target == column]
            columns = list(dict.fromkeys([column, *raising]))
        n_classes = len(classes)

        carried = None if tags is None else self._carried(X, tags)
        if carried is not None and carried.shape[0] != n:
            raise InputError(f"`tags` has {carried.shape[0]} collections for {n} instances.")
        eligible = np.ones(n, dtype=bool)
        if strategy == "errors":
            assert carried is not None
            # Items without any tag were never tagged.
            eligible = np.asarray(carried.getnnz(axis=1) > 0)
        if carried is not None:
            carried = carried[:, classes]

        place_by_column = {
            column: place for place, column in enumerate(class_columns[classes].tolist())
        }
        answers = answer_table(
            self._corrections.feedback.triples(),
            {name: row for row, name in enumerate(names)},
            lambda answered_label: place_by_column.get(self._place(answered_label)),
            (n, n_classes),
        )

        def blocks() -> Iterator[Block]:
            for rows, logits in self._scored(features, None, columns=columns):
                is_answered = np.zeros((len(logits), n_classes), dtype=bool)
                if answers is not None:
                    is_answered = answers[rows].toarray() != 0
                has_tag = np.zeros((len(logits), n_classes), dtype=bool)
                if carried is not None:
                    has_tag = carried[rows].toarray()
                may_ask = eligible[rows][:, None]
                class_logits = np.where(may_ask, logits[:, :n_classes], -np.inf)
                yield Block(rows.start, class_logits, is_answered, has_tag)

        questions = []
        for row, place, probability, reason in choose(
            blocks, k, strategy, as_generator(random_state)
        ):
            class_name = str(self.classes_[classes[place]])
            questions.append(Question(names[row], row, class_name, probability, reason))
        return questions

    # ------------------------------------------------------------------ persistence

    def save(self, path: str | Path) -> None:
        """Write the tagger to a folder, as `model.safetensors`, atomically and without pickle.

        Verdicts that it has are copied along, and those that the folder has stay there; verdicts
        that were in memory are kept in the folder from then on. A model that was loaded from the
        folder, and was changed there by somebody else since, is not overwritten.

        Parameters
        ----------
        path : str or Path
            A new folder, an empty one, or one that holds a polyseme model to replace.
        """
        check_fitted(self, "store_")
        path = check_path(path, what="The folder of a model")
        # Verdicts come first: no model is there without what it learned from.
        corrections = self._corrections.saved_to(Path(path))
        self._write(path)
        has_moved = corrections.feedback.log is not self.verdicts_
        self._corrections = corrections
        if has_moved:
            self.refresh()

    def get_state(self) -> State:
        """Return the fitted tagger as JSON values and arrays; see `from_state`."""
        states = {"space": self.space_.get_state(), "store": self.store_.get_state()}
        if self.features_ is not None:
            states["features"] = self.features_.get_state()
        config, arrays = joined(states)
        config |= {
            "method": "space",
            "media": None if self.features_ is None else self.features_.kind,
            "n_vocabulary": self.n_vocabulary_,
            "n_fitted": self.n_fitted_,
            "n_features_in": self.n_features_in_,
            "feature_names": list(getattr(self, "feature_names_in_", ())) or None,
            "normalize_labels": self.normalize_labels_,
            "validation": None if self.validation_ is None else self.validation_.get_state(),
            "vocabulary": self.vocabulary_.get_state(),
            "seen": sorted(self.seen_),
            "dropped": list(self.dropped_),
            "indicator": None if self.indicator_ is None else list(self.indicator_),
            "named": None if self.named_ is None else list(self.named_.labels),
            "name_share": self.name_share_,
            "pooled": self.pooled_,
            "measured_on": list(self.measured_on_),
        }
        arrays["likeness"] = self._likeness
        arrays |= {f"keys.{name}": array for name, array in self._keys._asdict().items()}
        if self.named_ is not None:
            arrays["named"] = self.named_.likeness
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted tagger from `get_state`."""
        _VALUES.check(config)
        array_names = ("likeness", "named", *_KEYS)
        check_parts(arrays, config, ("space", "store", "features"), array_names)
        tagger = cls(normalize_labels=config["normalize_labels"])
        with part("space"):
            space = ConceptSpace.from_state(config["space"], within(arrays, "space"))
        tagger.space_ = tagger.space = space
        with part("store"):
            store = ConceptStore.from_state(config["store"], within(arrays, "store"))
        tagger.features_ = tagger.features = extractor_of(config, arrays)
        _check_parts_fit(config, arrays, space, store)
        tagger.n_vocabulary_ = config["n_vocabulary"]
        tagger.n_fitted_ = config["n_fitted"]
        tagger.seen_ = frozenset(config["seen"])
        tagger.dropped_ = tuple(config["dropped"])
        tagger.n_features_in_ = config["n_features_in"]
        tagger._set_feature_names(config["feature_names"])
        tagger.name_share_ = config["name_share"]
        tagger._likeness = arrays["likeness"]
        tagger.validation_ = None
        if config["validation"] is not None:
            with part("validation"):
                tagger.validation_ = Validation.from_state(config["validation"])
        tagger.normalize_labels_ = config["normalize_labels"]
        tagger.vocabulary_ = tagger.vocabulary = Vocabulary.from_state(config["vocabulary"])
        tagger.pooled_ = config["pooled"]
        n_items, n_labels = config["measured_on"]
        tagger.measured_on_ = (n_items, n_labels)
        tagger._keys = DocumentKeys(**within(arrays, "keys"))
        tagger._corrections = Corrections(Feedback(VerdictLog(), space.digest_))
        tagger.indicator_ = None
        if config["indicator"] is not None:
            tagger.indicator_ = tuple(config["indicator"])
        named = None
        if config["named"] is not None:
            named = NamedLabels(tuple(config["named"]), arrays["named"])
        return tagger.set_store(store, named)


# What the state of a tagger holds beside that of its parts; those check their own.
_VALUES = Fields(
    {
        "space": Table(Anything()),
        "store": Table(Anything()),
        "features": Table(Anything()),
        "method": Choice(("space",)),
        "media": Maybe(Choice(tuple(EXTRACTORS))),
        "n_vocabulary": Whole(0),
        "n_fitted": Whole(0),
        "n_features_in": Whole(0),
        "feature_names": Maybe(Several(Text())),
        "normalize_labels": Flag(),
        "validation": Maybe(Table(Anything())),
        "vocabulary": Table(Anything()),
        "seen": Several(Text()),
        "dropped": Several(Text()),
        "indicator": Maybe(Several(Text(), distinct=True)),
        "named": Maybe(Several(Text(), distinct=True)),
        "name_share": Number(0, 1),
        "pooled": Flag(),
        "measured_on": Several(Whole(1), 2),
    },
    optional=("features",),
)
_KEYS = tuple(f"keys.{name}" for name in DocumentKeys._fields)
_DECLARED = {
    **{name: Array("uint64", ("n_in_folds",), 0, 2.0**64) for name in _KEYS},
    "likeness": Array("float64", ("n_rows", "n_columns")),
    "named": Array("float64", ("n_named", "n_seen")),
}


def _check_parts_fit(
    config: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    space: ConceptSpace,
    store: ConceptStore,
) -> None:
    """Refuse parts that are sound by themselves but not made for each other."""
    n_labels = len(space.order_)
    n_features = space.members_.shape.n_features
    labels = [*store.labels, *(config["named"] or ())]
    feature_names = config["feature_names"]
    extractor = config.get("features")
    keys = store.labels
    if config["normalize_labels"]:
        keys = tuple(map(normalize_label, store.labels))
    fits = {
        "store.n_learned": store.n_learned == n_labels,
        "store.labels": len(set(keys)) == len(keys),
        "store.points": store.points.shape[1] == space.axes_.shape[1],
        "n_vocabulary": config["n_vocabulary"] <= len(store.labels),
        "n_fitted": config["n_fitted"] <= len(store.ids),
        "n_features_in": config["n_features_in"] == n_features,
        "feature_names": feature_names is None or len(feature_names) == n_features,
        "media": extractor is None or extractor["n_features_out"] == n_features,
        "seen": set(config["seen"]) <= set(labels),
    }
    for name, is_sound in fits.items():
        require(is_sound, name, "what its other parts ask for")
    tagger_arrays = {name: arrays[name] for name in _DECLARED if name in arrays}
    has_named = "named" in tagger_arrays
    declared = {name: _DECLARED[name] for name in _DECLARED if name != "named" or has_named}
    sizes = {"n_seen": space.n_seen_, "n_named": len(config["named"] or ())}
    check_arrays(tagger_arrays, declared, **sizes, n_in_folds=len(space.folds_))
    # Where names have no share, nothing is kept of them.
    shape = tagger_arrays["likeness"].shape
    is_unused = shape == (0, 0) and not config["name_share"]
    is_complete = shape == (n_labels - space.n_seen_, space.n_seen_)
    require(is_unused or is_complete, "likeness", "that of all unseen labels to seen ones")
    require((config["named"] is not None) == has_named, "named", "there for labels by name")


def _without(named: NamedLabels | None, labels: Collection[str]) -> NamedLabels | None:
    """Return labels known by name without some of them; None where none is left."""
    if named is None:
        return None
    rows = [row for row, name in enumerate(named.labels) if name not in labels]
    if not rows:
        return None
    names = tuple(named.labels[row] for row in rows)
    return NamedLabels(names, named.likeness[rows])


def _pairs_within(
    pairs: Iterable[tuple[int, int]], columns: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the pairs of columns that are both among some, as places among these."""
    place_by_column = {column: place for place, column in enumerate(columns)}
    places = []
    for source, target in pairs:
        if source in place_by_column and target in place_by_column:
            places.append((place_by_column[source], place_by_column[target]))
    return places


def _n_rows(features: Items | None, tags: sp.csr_matrix | None) -> int:
    """Return how many items features or tags are of; one of the two may be missing."""
    if features is not None:
        return int(features.shape[0])
    assert tags is not None
    return int(tags.shape[0])


def _rows(features: Items, rows: Sequence[int]) -> Features:
    """Return the features of some rows."""
    selected = features[np.array(rows, dtype=np.int64)]
    return selected.table() if isinstance(selected, EncodedItems) else selected


def load(path: str | Path) -> Tagger:
    """Load a tagger that its `save` wrote.

    Parameters
    ----------
    path : str or Path
        The folder. A damaged, altered or other-format model is refused with a sentence that says
        what is wrong; nothing in it is executed.

    Returns
    -------
    ZeroShotTagger or PublishedTagger
        Ranks exactly as the saved one did.
    """
    path = check_path(path, what="The folder of a model")
    saved = read_file(model_file(path), "tagger")
    digests = {os.path.realpath(path): saved.digest}
    method = saved.config.get("method")
    with reading(path):
        if method == "space":
            tagger = ZeroShotTagger.from_state(saved.config, saved.arrays)
            corrections = Corrections.load(VerdictLog(path), tagger.space_)
            tagger._use_corrections(corrections, corrections.feedback.labels)
            tagger._digests = digests
            return tagger
        from polyseme.published.tagger import PublishedTagger

        if method == "published":
            published = PublishedTagger.from_state(saved.config, saved.arrays)
            published._digests = digests
            return published
    raise ModelFileError(
        f"The model at '{path}' has the method {shown(method)}, which this version of polyseme "
        "does not know; fit it anew."
    )
