"""The tagger: tag sets and features in, ranked labels out, all by way of one concept space.

In: tag sets and features. Out: a `ZeroShotTagger` that ranks, completes, explains, grows without
re-training, and is kept on disk.
"""

from __future__ import annotations

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
    without_ids,
)
from polyseme.answers import Answers
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
from polyseme.feedback import (
    Block,
    Feedback,
    Question,
    answer_table,
    as_verdict,
    check_strategy,
    choose,
)
from polyseme.growth import cost_of_fit, tell_cost
from polyseme.holdout import MOST_TRAINED, Validation, validate
from polyseme.metrics import evaluate, example_map
from polyseme.persistence import (
    ModelFileError,
    State,
    joined,
    read_model,
    within,
    write_model,
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
    is_kept,
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


class ZeroShotTagger(TransformerMixin, Estimator):  # type: ignore[misc]  # no types there
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
        template, vocabulary = self._template(), as_vocabulary(self.vocabulary)
        generator = as_generator(self.random_state)
        space_seed, feature_seed = draw_seed(generator), draw_seed(generator)

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
        warm, source = None, self if warm_start_from is None else warm_start_from
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
        log, tables, features = source._told(verdicts), data.tables, data.features
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
            validation, share = source.validation_, source.name_share_
            pooled, measured_on = source.pooled_, source.measured_on_
        else:
            if warm is None:
                self._tell_cost(template, data)
            # Without a seed other items would be held out when it goes on.
            checkpoint = space.checkpoint if seeded else None
            validation, share, pooled = self._validated(
                data, template, words, generator, checkpoint, label_sets_only=label_sets_only
            )
        rows = data.rows()
        if verdicts is None:
            rows = source._unchanged(rows, data)
        by_key = {self._key_of(label): column for column, label in enumerate(data.labels)}
        answers, pool = data.answered(
            log.standing(),
            rows,
            lambda label: by_key.get(self._key_of(vocabulary.resolve(label))),
            pooled=pooled,
        )
        keys = keys.with_pool(pool)
        if warm is not None:
            warm = replace(warm, pool_folds=source._folds_of(keys)[len(warm.folds) :])
        with unless_refused(space.checkpoint):
            with FileProgress("training the concept space, rounds", shown=self.verbose) as bar:

                def tell(done: int, total: int, losses: Mapping[str, float]) -> None:
                    bar.tell(done, total, 0)
                    if progress is not None:
                        progress(done, total)

                space.fit(
                    tables.documents,
                    features,
                    None if features is None else tables.item_documents,
                    tables.groups,
                    tables.n_label_sets,
                    progress=tell,
                    trainer=trainer,
                    pool=pool,
                    verdicts=answers,
                    warm=warm,
                )
            # Dropped are those without a label, of which `check_corpus` has told.
            store, dropped = ConceptStore.of(space, data.labels, data.sets, data.taught)
            feedback = data.place_answered(Feedback(log, space.digest_), space, rows)
        # Nothing is set before everything is learned: a fit that fails leaves the tagger as it was.
        self.space_, self.features_ = space, data.extractor
        self.n_vocabulary_, self.n_fitted_ = len(data.sets.labels), len(store.ids)
        self.seen_, self.dropped_, self.validation_ = data.seen, dropped, validation
        self._keys, self.measured_on_ = keys, measured_on
        self.name_share_, self._likeness = 0.0, np.zeros((0, 0))
        if words is not None and share:
            self.name_share_, self._likeness = share, self._unseen_likeness(words, data.labels)
        self.n_features_in_ = data.n_features
        self._set_feature_names(data.columns)
        self.normalize_labels_, self.vocabulary_ = self.normalize_labels, vocabulary
        self.pooled_, self._answers = pooled, Answers(feedback)
        self.indicator_ = data.corpus.labels if is_indicator(y) else None
        self.set_store(store)
        self._take_answers(())
        if features is not None:
            warn_of_lost_features(features, space)
        return self

    def _template(self) -> ConceptSpace:
        """Check the parameters; give the space that is to be fitted."""
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

    def _tell_cost(self, space: ConceptSpace, data: TrainingSet) -> None:
        """Warn before a fit that will take long or much memory."""
        if space.device != "cpu" and check_device(space.device, owner="fit") != "cpu":
            return
        n_documents, n_labels = data.tables.documents.shape
        n_items = 0 if data.features is None else len(data.items)
        pooled = data.pool is not None
        plan = space.planned(n_documents, n_items, pool=pooled).within(n_documents, n_items)
        validations, n_all = self.n_validations * (1 + pooled), n_items + data.n_pool
        cost = cost_of_fit(plan, n_documents, n_labels, n_all, data.n_features, validations)
        tell_cost(cost, plan, n_labels, stacklevel=4)

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
        tables, store = data.tables, self.store_
        n_items = 0 if data.features is None else len(data.items)
        names = getattr(self, "feature_names_in_", None)
        if names is not None and data.columns is not None and tuple(names) != data.columns:
            raise ColdStartError("features have other names, or another order")
        pooled = data.pool is not None and self.pooled_
        plan = template.planned(tables.documents.shape[0], n_items, pool=pooled)
        check_sizes(self.space_, plan, data.features)
        column_of = {
            self._key(label): column for column, label in enumerate(store.labels[: store.n_learned])
        }
        columns = np.array([column_of.get(self._key(label), -1) for label in data.labels])
        found = keys.with_pool(data.pool).found_among(self._keys)
        check_known(columns, found)
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
        features, own = self._features_of(X), self._keys.of_items
        table: Any = features.features if isinstance(features, EncodedItems) else features
        found = np.isin(self._keys.items[own], feature_digests(table))
        found |= np.isin(self._keys.names[own], name_digests(item_names(X) or ()))
        return int((~found).sum()), int(own.sum())

    def label_sets(self) -> LabelCorpus | None:
        """Return the known tag sets that are no item's own; None where that is not known.

        Those of the last fit without the ones of its items, and all that were added since.
        """
        check_fitted(self, "store_")
        rows = self._keys.documents
        own = self._keys.of_items[rows]
        taught_alone = self.space_.order_[: self.space_.n_seen_] >= self.n_vocabulary_
        if int(rows.sum()) != self.n_fitted_ or taught_alone.any():
            return None
        further = np.flatnonzero(np.append(~own, np.ones(len(self.store_.ids) - len(own), bool)))
        return LabelCorpus.from_documents(
            [self.store_.document(row) for row in further.tolist()],
            ids=[self.store_.ids[row] for row in further.tolist()],
            normalize=self.normalize_labels_,
        )

    def _is_measured(self, sizes: tuple[int, int]) -> bool:
        """Return whether `validation_` is there and stands for so many items and labels."""
        then = self.measured_on_
        grown = [abs(size - former) / former for size, former in zip(sizes, then, strict=True)]
        return self.validation_ is not None and max(grown) <= _GROWN

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
            n_steps=plan.n_steps,
            checkpoint=None,
            random_state=None,
        )
        model = ZeroShotTagger(space=small, n_validations=0, random_state=draw_seed(generator))
        with working("validating on held-out items", shown=self.verbose):
            found = validate(
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
        if not found:
            return None, 0.0, pooled
        with_pool = found.pop() if pooled else None
        quality = [one.unseen.example_map + one.unseen.concept_map for one in found]
        best = int(np.argmax(np.nan_to_num(quality)))
        if with_pool is None:
            return found[best], NAME_SHARES[best], False
        gain = with_pool.gain_over(found[0])
        chosen = with_pool if gain > 0 else found[best]
        return replace(chosen, pool_gain=gain), NAME_SHARES[best], gain > 0

    def _told(self, verdicts: VerdictLog | str | Path | Iterable[Verdict] | None) -> VerdictLog:
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

    def _unchanged(self, rows: dict[str, int], data: TrainingSet) -> dict[str, int]:
        """Leave out numbers of rows that are not the items which verdicts were given on."""
        if not hasattr(self, "_answers") or data.features is None:
            return rows
        told = self._answers.feedback
        numbers = [item for item in told.items() if item in rows and item.isdecimal()]
        kept = told.vectors(numbers) if data.n_features == self.n_features_in_ else {}
        for table, first in data.parts():
            here = [item for item in kept if 0 <= rows[item] - first < table.shape[0]]
            found = self._sketches(table, [rows[item] - first for item in here])
            for item, sketch in zip(here, found, strict=True):
                if not is_kept(sketch, kept[item]):
                    del kept[item]
        others = set(numbers) - set(kept)
        return {item: row for item, row in rows.items() if item not in others}

    def _sketches(self, features: Items, rows: Sequence[int]) -> NDArray[np.float32]:
        """Return the sketches of some rows, (n, n_sketch)."""
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
            held = {self._key(label) for label in store.labels}
            kept = [row for row, label in enumerate(named.labels) if self._key(label) not in held]
            # Those without a hint come last, by their names, whoever was answered for first.
            hints, names = np.atleast_1d(named.likeness.any(axis=1)), named.labels
            kept.sort(key=lambda row: (0, "") if hints[row] else (1, names[row]))
            names = tuple(names[row] for row in kept)
            named = NamedLabels(names, named.likeness[kept]) if kept else None
        with one_blas_thread():
            reading = Reading.learn(
                self.space_, store, named, self.n_fitted_, self.name_share_, self._likeness
            )
        # Nothing is set before everything is made: what is refused leaves the tagger as it was.
        self.store_, self.named_, self._reading = store, named, reading
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
        self._answers = self._answers.read_anew(reading, self._place)
        return self

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
        space = self.space_
        seen, unseen = np.split(np.asarray(labels, dtype=object)[space.order_], [space.n_seen_])
        likeness = np.zeros((len(unseen), len(seen)))
        known = words.label_vectors(unseen.tolist())[1]
        if known.any() and words.label_vectors(seen.tolist())[1].any():
            likeness[known] = name_likeness(unseen[known].tolist(), seen.tolist(), words)
        return likeness

    def _set_classes(self) -> None:
        """Order labels as they are shown: the columns of an indicator matrix first."""
        labels = np.array(self._labels, dtype=object)
        kinds = label_kinds(self._labels, self.seen_, self.n_vocabulary_)
        self._shown: IntArray | None = None
        if self.indicator_ is not None:
            place = {self._key(label): column for column, label in enumerate(self._labels)}
            first = [place.pop(self._key(label), -1) for label in self.indicator_]
            self._shown = np.array([*first, *place.values()], dtype=np.int64)
            labels = np.array([*self.indicator_, *labels[list(place.values())]], dtype=object)
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
        features, given = self._asked(X, tags)
        n = (features if features is not None else given).shape[0]  # type: ignore[union-attr]
        codes = np.empty((n, self.space_.n_dimensions), dtype=np.float32)
        for rows in coded_blocks(n):
            items = None if features is None else features[rows]
            codes[rows] = self._reading.codes(items, None if given is None else given[rows])
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

    def _asked(
        self, X: object, tags: Iterable[Collection[str]] | None
    ) -> tuple[Items | None, sp.csr_matrix | None]:
        """Check items and tags that are asked about: features, and tags over all labels."""
        check_fitted(self, "space_")
        features = None if X is None else self._features_of(X)
        if tags is None:
            if features is None:
                raise InputError("Give features, tags, or both.")
            return features, None
        given = [self._own_names(one) for one in check_tags(tags)]
        n = len(given) if features is None else features.shape[0]
        return features, tag_table(given, self._labels, n, normalize=self.normalize_labels_)

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
        n, space = features.shape[0], self.space_
        n_sketch = space.n_sketch
        left, logits = int(most_bytes) - 4 * n * n_sketch, 8 * n * len(self._labels)
        kept, codes_kept = left >= logits, left - 4 * n * space.n_dimensions >= logits
        sketches = np.empty((n if kept else 0, n_sketch), dtype=np.float32)
        codes = np.empty((n if codes_kept else 0, space.n_dimensions), dtype=np.float32)
        names = item_names(X) if ids is None else as_names(ids, "`ids` of `encode`")
        if names is not None and len(names) != n:
            raise InputError(f"`ids` of `encode` names {len(names)} items; X has {n}.")
        items = EncodedItems(features, names, space.digest_, left - codes.nbytes)
        for rows in coded_blocks(n) if kept else ():
            table = items[rows].table()
            sketches[rows] = space.sketch(table)
            if codes_kept:
                codes[rows] = space.item_codes(table)
        items.sketches, items.codes = sketches if kept else None, codes if codes_kept else None
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
        for kind in () if kinds is None else as_names(kinds, "kinds of labels"):
            check_option("kinds", kind, KINDS, owner="rank")
        if kinds is not None:
            of_labels = label_kinds(self._labels, self.seen_, self.n_vocabulary_)
            kinds = as_names(kinds, "kinds of labels")
            asked = np.isin(of_labels, kinds)
            if "seen" in kinds:
                # Also those on training items that no label set holds: they are as well known.
                asked[self.space_.order_[: self.space_.n_seen_]] = True
            in_use = in_use & asked
        check_option("method", method, METHODS, owner="rank")
        lowest, highest = (0.0, 1.0) if method == "priming" else (-np.inf, np.inf)
        raised = self._raised
        if columns is not None:
            place = {column: at for at, column in enumerate(columns)}
            raised = [(place[a], place[b]) for a, b in raised if a in place and b in place]
            in_use = in_use[np.array(columns)]
        unused = np.flatnonzero(~in_use)
        read = self._reading.blocks(features, tags, self._answers.table, method, columns)
        for rows, scores, known in read:
            own = scores.copy() if raised else scores
            for source, target in raised:
                np.maximum(scores[:, target], own[:, source], out=scores[:, target])
            scores[:, unused] = lowest
            if known is not None:
                given = known.toarray() > 0
                scores[given if columns is None else given[:, columns]] = highest
            yield rows, self._show(scores, lowest) if columns is None else scores

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
        scores = self._collect(self._scored(*self._asked(X, tags), method))
        return scores if method == "priming" else sigmoid(scores)

    def decision_function(self, X: object, tags: Iterable[Collection[str]] | None = None) -> Matrix:
        """Return the logit of every label for each item, (n, n_classes); see `predict_proba`."""
        return self._collect(self._scored(*self._asked(X, tags)))

    def _collect(self, blocks: Iterator[tuple[slice, Matrix]]) -> Matrix:
        """Put blocks of scores together, (n, n_classes)."""
        return np.concatenate([np.empty((0, len(self.classes_))), *(part for _, part in blocks)])

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
        features, given = self._asked(X, tags)
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
        blocks = self._scored(features, given, kinds=kinds)
        if self.indicator_ is not None:
            table = sigmoid(self._collect(blocks)) >= least
            return table[:, : len(self.indicator_)].astype(np.int64)
        return [
            tags for _, part in blocks for tags in tag_sets(sigmoid(part), least, self.classes_)
        ]

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
        features, given = self._asked(X, tags)
        n = (features if features is not None else given).shape[0]  # type: ignore[union-attr]
        shape = (n, min(k, len(self.classes_)))
        label_ids, best = np.empty(shape, dtype=np.int64), np.empty(shape)
        for rows, scores in self._scored(features, given, method, kinds):
            shares = scores if method == "priming" else sigmoid(scores)
            label_ids[rows], best[rows] = rank_labels(shares, self._preference, k)
        return self.classes_[label_ids], best

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
        return complete_each(tags, lambda one: self._complete_one(one, k))

    def _complete_one(self, tags: Collection[str], k: int) -> tuple[StrArray, Matrix]:
        """Complete one tag set."""
        names = self._own_names(tags)
        given = tag_columns(names, self._labels, normalize=self.normalize_labels_)
        self._reading.refuse_new(given)
        n_others = len(self.classes_) - len(given)
        # Unknown tags have been named by now.
        known = [self._labels[column] for column in given]
        labels, scores = self.rank(None, len(self.classes_), [known])
        others = np.array([label not in known for label in labels[0]], dtype=bool)
        return labels[0][others][: min(k, n_others)], scores[0][others][: min(k, n_others)]

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
        column = self._column(label)
        one = x if x is None or isinstance(x, EncodedItems) else one_item(x, self.features_)
        items, given = self._asked(one, None if tags is None else [tags])
        features = items.table() if isinstance(items, EncodedItems) else items
        n = (features if features is not None else given).shape[0]  # type: ignore[union-attr]
        if n != 1:
            raise InputError(f"`explain` takes one item; got {n}.")
        shown, column = column, self._raiser(features, given, column)
        if given is not None and {shown, column} & set(given.indices.tolist()):
            raise InputError(
                f"'{self._labels[column]}' is among the tags that are given, so there is nothing "
                "to explain; leave it out of them to ask where its score would come from."
            )
        evidence = evidence_of(
            self._reading,
            self._answers.table,
            features,
            given,
            column,
            k,
            kind=self._kind(column),
            in_use=bool(self._in_use[column]),
        )
        if shown == column:
            return evidence
        name, kind, used = self._labels[shown], self._kind(shown), self._in_use[shown]
        share = float(sigmoid(np.array(evidence.logit))) if used else 0.0
        return replace(
            evidence, label=name, kind=kind, probability=share, implied_by=evidence.label
        )

    def _raiser(self, features: Features | None, tags: sp.csr_matrix | None, column: int) -> int:
        """Return the column whose score a label has: its own, or one that raises it."""
        sources = [source for source, target in self._raised if target == column]
        if not sources:
            return column
        codes = self._reading.codes(features, tags)
        logits = self._reading.logits(codes, features, self._answers.table)[0]
        return max([column, *sources], key=lambda one: logits[one])

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
        self.set_store(store, self.named_)._take_answers(())
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
        known = {self._key(label) for label in self._labels}
        fresh = tuple(label for label in self._names(labels) if self._key(label) not in known)
        if fresh:
            space = self.space_
            seen = [self._labels[column] for column in space.order_[: space.n_seen_]]
            likeness = name_likeness(fresh, seen, words)
            named = NamedLabels(fresh, likeness)
            if self.named_ is not None:
                both = np.concatenate([self.named_.likeness, likeness])
                named = NamedLabels(self.named_.labels + fresh, both)
            self.set_store(self.store_, named)
        return fresh

    def remove_labels(self, labels: Collection[str]) -> Self:
        """Forget labels for good: they are taken out of all known documents.

        A label that the space has learned stays among `classes_`, with score 0; another fit has to
        leave it out of its documents. To keep a label but never suggest it, `block` it.

        Parameters
        ----------
        labels : collection of str
        """
        self.catch_up()
        columns = {self._column(label) for label in self._names(labels)}
        gone = {self._labels[column] for column in columns}
        named = _without(self.named_, gone)
        store = self.store_
        if gone & set(store.labels):
            store = store.without_labels(self.space_, gone)
        # Answers about them stay in the log, but count no more; behind one there may be another.
        while told := [one for one in self._answers.feedback.labels if self._place(one) in columns]:
            self.verdicts_.undo(self._answers.feedback.numbers(told))
            self._answers = self._answers.caught_up()[0]
        self.set_store(store, named)._take_answers(())
        return self

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
        """Return a label another name; the former one is still understood.

        Parameters
        ----------
        label, name : str
            A known label, and a name that no other label has or had; `merge` brings two together.
        """
        column = self._column(label)
        if not isinstance(name, str):
            raise InputError(f"A label is renamed to one text; got {shown(name)}.")
        old, (new,) = self._labels[column], self._names(name)
        others = {self._key(other) for other in self._labels} - {self._key(old)}
        if self._key(new) in others:
            raise InputError(f"There is a label '{new}' already; merge '{old}' into it instead.")
        meant = self.vocabulary_.resolve(new)
        if self._key(meant) in others:
            raise InputError(f"'{new}' is a name of '{meant}' already; merge '{old}' into it.")
        return self._rename(old, new, self.named_, self.vocabulary_.renaming(old, new))

    def _rename(
        self, old: str, new: str, named: NamedLabels | None, vocabulary: Vocabulary
    ) -> Self:
        """Return a label of documents, or one known by name or by answers, another name."""
        store = self.store_
        if named is not None and old in named.labels:
            names = tuple(new if label == old else label for label in named.labels)
            named = named._replace(labels=names)
        else:
            store = store.renamed(old, new)
        self.vocabulary_ = vocabulary
        self.seen_ = frozenset(new if label == old else label for label in self.seen_)
        if self.validation_ is not None:
            quality = self.validation_.labels.items()
            labels = {new if label == old else label: pair for label, pair in quality}
            self.validation_ = replace(self.validation_, labels=labels)
        if self.indicator_ is not None:
            self.indicator_ = tuple(new if label == old else label for label in self.indicator_)
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
        source, target = (self._labels[self._column(one)] for one in (label, into))
        if source == target:
            raise InputError(f"'{label}' and '{into}' are one label already.")
        vocabulary = self.vocabulary_.naming(source, target)
        held = set(self.store_.labels)
        if source in held and target not in held:
            # The documents take the other name, and with it the answers that were given on it.
            return self._rename(source, target, _without(self.named_, {target}), vocabulary)

        store, named = self.store_, self.named_
        if source in held:
            store = store.merged(self.space_, source, target)
        else:
            named = _without(named, {source})
        self.vocabulary_ = vocabulary
        return self.set_store(store, named)

    def _names(self, labels: Collection[str]) -> tuple[str, ...]:
        """Check labels that are given by name, and tidy them as those of documents are."""
        check_fitted(self, "store_")
        given = as_names(labels, "labels")
        return LabelCorpus.from_documents([given], normalize=self.normalize_labels_).labels

    # ------------------------------------------------------------------ clicks

    @property
    def verdicts_(self) -> VerdictLog:
        """What people said about its tags, as events."""
        return self._answers.feedback.log

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
        said = [as_verdict(one, self.space_.digest_) for one in verdicts]
        given = dict.fromkeys(one.label for one in said)
        tidied = {self._key(name): name for name in self._names(list(given))} if said else {}
        own = {label: self.vocabulary_.resolve(tidied[self._key(label)]) for label in given}
        said = [one._replace(label=own[one.label]) for one in said]
        self.catch_up()  # others may have told of these items
        vectors = self._asked_vectors(list(dict.fromkeys(one.item for one in said)), X)
        digest = self.space_.digest_
        numbers = self.verdicts_.append(said, vectors, digest, seen, self._key_of_name)
        self.catch_up()
        return tuple(numbers)

    def _asked_vectors(self, names: list[str], X: object) -> dict[str, NDArray[np.float32]]:
        """Return the vectors of items that verdicts are about and that have none yet."""
        known = self._answers.feedback.vectors(names)
        new = [name for name in names if name not in known]
        if X is None:
            if new:
                raise InputError(
                    f"Nothing is known of the item '{first_few(new[:1])}'; give `X` with its "
                    "features, or its file."
                )
            return {}
        features, given = self._features_of(X), item_names(X)
        of_X = map(str, range(features.shape[0])) if given is None else given
        rows = {name: row for row, name in enumerate(of_X)}
        by = "the numbers of their rows, from 0" if given is None else "their ids"
        lost = [name for name in new if name not in rows]
        if lost:
            raise InputError(f"X has no item '{first_few(lost[:1])}'; verdicts name items by {by}.")
        # A number may have been another table's.
        again = [name for name in known if given is None and name in rows]
        found = self._sketches(features, [rows[name] for name in again])
        for name, sketch in zip(again, found, strict=True):
            if not is_kept(sketch, known[name]):
                raise InputError(
                    f"Row {name} of X is not the item '{name}' that verdicts were given on "
                    "before; give items names of their own, by a column `id`."
                )
        if not new:
            return {}
        asked = _rows(features, [rows[name] for name in new])
        return dict(zip(new, item_vectors(self.space_, asked), strict=True))

    def undo(self, numbers: Iterable[int]) -> Self:
        """Take verdicts back; every score is then as if they had never been given.

        Parameters
        ----------
        numbers : iterable of int
            As `learn` gave them.
        """
        check_fitted(self, "store_")
        self.verdicts_.undo(numbers)
        self.catch_up()
        return self

    def take_up(self, log: VerdictLog, X: object = None) -> Self:
        """Learn from verdicts that are kept elsewhere, in place of those it has.

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
            asked = feedback.items()
            known = log.coded(self.space_.digest_, list(asked))
            rows = [row for row, name in enumerate(names) if name in asked and name not in known]
            if rows:
                vectors = item_vectors(self.space_, _rows(self._features_of(X), rows))
                coded = dict(zip([names[row] for row in rows], vectors, strict=True))
                log.append([], coded, self.space_.digest_)
                feedback = feedback.caught_up()[0]
        labels = {*self._answers.feedback.labels, *feedback.labels}
        self._take_over(self._answers.of(feedback, None), labels)
        return self

    def catch_up(self) -> bool:
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
        answers, labels = self._answers.caught_up()
        if answers is not self._answers:
            self._take_over(answers, labels)
        return bool(labels)

    def _take_over(self, answers: Answers, labels: Collection[str]) -> None:
        """Correct labels by what stands now; where that fails, all is as it was."""
        made = copy(self)
        made._answers = answers
        made._take_answers(labels)
        made._answers.keep()
        self.__dict__.update(made.__dict__)

    def _take_answers(self, labels: Collection[str]) -> None:
        """Correct labels that were answered for; some are known for as long as answers stand."""
        if not self.n_features_in_:
            return
        named = self.named_ or NamedLabels((), np.zeros((0, self.space_.n_seen_)))
        hinted = np.flatnonzero(named.likeness.any(axis=1))
        names = tuple(named.labels[row] for row in hinted)
        known = {self._key(label) for label in (*self.store_.labels, *names)}
        spelled = sorted(map(self.vocabulary_.resolve, self._answers.feedback.labels), reverse=True)
        answered = {self._key(label): label for label in spelled}
        names += tuple(sorted(label for key, label in answered.items() if key not in known))
        if names == named.labels:
            self._answers = self._answers.corrected(self._reading, labels, self._place)
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
        model that has not seen the items, or more so; see `Spread` in `polyseme.feedback`.
        """
        check_number("k", k, owner="ask", low=1, whole=True)
        check_strategy(strategy, tagged=tags is not None)
        check_fitted(self, "store_")
        features, given = self._features_of(X), item_names(X)
        n = features.shape[0]
        names = [str(row) for row in range(n)] if given is None else given
        shown = np.arange(len(self._labels)) if self._shown is None else self._shown
        chosen, columns = np.arange(len(shown)), None
        if label is not None:
            column = self._column(label)
            if not self._in_use[column]:
                raise InputError(
                    f"'{label}' is blocked or was removed, so that nothing is asked about it."
                )
            chosen = np.flatnonzero(shown == column)
            raising = [source for source, target in self._raised if target == column]
            columns = list(dict.fromkeys([column, *raising]))
        all_carried = None if tags is None else self._carried(X, tags)
        if all_carried is not None and all_carried.shape[0] != n:
            raise InputError(f"`tags` has {all_carried.shape[0]} collections for {n} instances.")
        carried = None if all_carried is None else all_carried[:, chosen]
        eligible = np.ones(n, dtype=bool)
        if strategy == "errors":
            assert all_carried is not None
            eligible = np.asarray(all_carried.getnnz(axis=1) > 0)  # others were never tagged
        places = {column: place for place, column in enumerate(shown[chosen].tolist())}
        answered = answer_table(
            self._answers.feedback.triples(),
            {name: row for row, name in enumerate(names)},
            lambda one: places.get(self._place(one)),
            (n, len(chosen)),
        )

        def blocks() -> Iterator[Block]:
            for rows, logits in self._scored(features, None, columns=columns):
                there = np.zeros((len(logits), len(chosen)), dtype=bool)
                told = there if answered is None else answered[rows].toarray() != 0
                has = there if carried is None else carried[rows].toarray()
                asked = np.where(eligible[rows][:, None], logits[:, : len(chosen)], -np.inf)
                yield Block(rows.start, asked, told, has)

        found = choose(blocks, k, strategy, as_generator(random_state))
        return [
            Question(names[row], row, str(self.classes_[chosen[at]]), probability, why)
            for row, at, probability, why in found
        ]

    # ------------------------------------------------------------------ persistence

    def save(self, path: str | Path) -> None:
        """Write the tagger to a folder of JSON and arrays, atomically and without pickle.

        Verdicts that it has are copied along, and those that the folder has stay there; verdicts
        that were in memory are kept in the folder from then on.

        Parameters
        ----------
        path : str or Path
            A new folder, an empty one, or one that holds a polyseme model to replace.
        """
        check_fitted(self, "store_")
        path = check_path(path, what="The folder of a model")
        self.verdicts_.copy_to(path)  # first: no model is there without what it learned from
        write_model(path, "tagger", *self.get_state())
        self._answers = self._answers.saved_to(Path(path))

    def get_state(self) -> State:
        """Return the fitted tagger as JSON values and arrays; see `from_state`."""
        parts = {"space": self.space_.get_state(), "store": self.store_.get_state()}
        if self.features_ is not None:
            parts["features"] = self.features_.get_state()
        config, arrays = joined(parts)
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
        own = ("likeness", "named", *_KEYS)
        check_parts(arrays, config, ("space", "store", "features"), own)
        made = cls(normalize_labels=config["normalize_labels"])
        with part("space"):
            space = ConceptSpace.from_state(config["space"], within(arrays, "space"))
        made.space_ = made.space = space
        with part("store"):
            store = ConceptStore.from_state(config["store"], within(arrays, "store"))
        made.features_ = made.features = extractor_of(config, arrays)
        _check_parts_fit(config, arrays, space, store)
        made.n_vocabulary_, made.n_fitted_ = config["n_vocabulary"], config["n_fitted"]
        made.seen_, made.dropped_ = frozenset(config["seen"]), tuple(config["dropped"])
        made.n_features_in_ = config["n_features_in"]
        made._set_feature_names(config["feature_names"])
        made.name_share_, made._likeness = config["name_share"], arrays["likeness"]
        measured = config["validation"]
        with part("validation"):
            made.validation_ = None if measured is None else Validation.from_state(measured)
        made.normalize_labels_ = config["normalize_labels"]
        made.vocabulary_ = made.vocabulary = Vocabulary.from_state(config["vocabulary"])
        made.pooled_ = config["pooled"]
        n_items, n_labels = config["measured_on"]
        made.measured_on_ = (n_items, n_labels)
        made._keys = DocumentKeys(**within(arrays, "keys"))
        made._answers = Answers(Feedback(VerdictLog(), space.digest_))
        made.indicator_ = None if config["indicator"] is None else tuple(config["indicator"])
        named = None
        if config["named"] is not None:
            named = NamedLabels(tuple(config["named"]), arrays["named"])
        return made.set_store(store, named)


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
    n_labels, n_features = len(space.order_), space.members_.shape.n_features
    labels = [*store.labels, *(config["named"] or ())]
    names, extractor = config["feature_names"], config.get("features")
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
        "feature_names": names is None or len(names) == n_features,
        "media": extractor is None or extractor["n_features_out"] == n_features,
        "seen": set(config["seen"]) <= set(labels),
    }
    for name, sound in fits.items():
        require(sound, name, "what its other parts ask for")
    own = {name: arrays[name] for name in _DECLARED if name in arrays}
    declared = {name: _DECLARED[name] for name in _DECLARED if name != "named" or name in own}
    sizes = {"n_seen": space.n_seen_, "n_named": len(config["named"] or ())}
    check_arrays(own, declared, **sizes, n_in_folds=len(space.folds_))
    # Where names have no share, nothing is kept of them.
    like = own["likeness"].shape
    unused = like == (0, 0) and not config["name_share"]
    every = like == (n_labels - space.n_seen_, space.n_seen_)
    require(unused or every, "likeness", "that of all unseen labels to seen ones")
    require((config["named"] is None) == ("named" not in own), "named", "there for labels by name")


def _without(named: NamedLabels | None, labels: Collection[str]) -> NamedLabels | None:
    """Return labels known by name without some of them; None where none is left."""
    if named is None:
        return None
    rows = [row for row, name in enumerate(named.labels) if name not in labels]
    if not rows:
        return None
    return NamedLabels(tuple(named.labels[row] for row in rows), named.likeness[rows])


def _rows(features: Items, rows: Sequence[int]) -> Features:
    """Return the features of some rows."""
    part = features[np.array(rows, dtype=np.int64)]
    return part.table() if isinstance(part, EncodedItems) else part


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
    config, arrays = read_model(path, "tagger")
    with reading(path):
        if config.get("method") == "space":
            tagger = ZeroShotTagger.from_state(config, arrays)
            answers = Answers.of_folder(Path(path), tagger.space_)
            tagger._take_over(answers, answers.feedback.labels)
            return tagger
        from polyseme.published.tagger import PublishedTagger

        if config.get("method") == "published":
            return PublishedTagger.from_state(config, arrays)
    raise ModelFileError(
        f"The model at '{path}' has the method {shown(config.get('method'))}, which this version "
        "of polyseme does not know; fit it anew."
    )
