"""The tagger: tag sets and features in, ranked labels out, all by way of one concept space.

In: tag sets and features. Out: a `ZeroShotTagger` that ranks, completes, explains, grows without
re-training, and is kept on disk.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

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
    check_instances,
    check_iterable,
    check_kind,
    check_number,
    check_option,
    check_path,
    column_names,
    draw_seed,
    first_few,
    in_order,
    warn_dropped,
    without_ids,
)
from polyseme.calibration import logit, new_label_frequencies, sigmoid
from polyseme.checkpoints import check_room_for, unless_refused
from polyseme.concepts import Concepts
from polyseme.corpus import (
    Documents,
    LabelCorpus,
    as_corpus,
    check_corpus,
    in_order_of,
    is_indicator,
    normalize_label,
)
from polyseme.corrections import (
    SKETCH,
    Correction,
    correct,
    corrected,
    keep_corrections,
    kept_corrections,
    learned_by,
)
from polyseme.documents import label_column, training_tables
from polyseme.encoded import EncodedItems
from polyseme.evidence import Evidence, TagEvidence, tag_parts
from polyseme.features import EXTRACTORS, extractor_of
from polyseme.features.base import MediaFeatures, learned_copy, one_item
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
from polyseme.holdout import Validation, validate
from polyseme.metrics import evaluate, example_map
from polyseme.persistence import (
    CORRECTIONS,
    ModelFileError,
    State,
    joined,
    read_model,
    within,
    write_model,
)
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
from polyseme.space import ConceptSpace, Readout, Trainer
from polyseme.store import ConceptStore
from polyseme.tags import (
    check_tags,
    complete_each,
    label_kinds,
    rank_blocks,
    rank_labels,
    tag_columns,
    tag_sets,
    tag_table,
)
from polyseme.verdicts import Verdict, VerdictLog
from polyseme.vocabulary import Vocabulary, as_vocabulary, similar_labels
from polyseme.word_vectors import WordVectors, as_word_vectors, name_likeness

if TYPE_CHECKING:
    from polyseme.published.tagger import PublishedTagger

Features = NDArray[np.float64] | sp.csr_matrix
Items = Features | EncodedItems
Matrix = NDArray[np.float64]
# Labels, of any length each: an array of fixed width would have the longest one's everywhere.
StrArray = NDArray[np.object_]
METHODS = ("space", "priming")
KINDS = ("seen", "unseen", "oov")
# Shares of names in reading unseen labels that are tried.
NAME_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
# Of the small spaces that a fit is validated by; more of them say the same.
_VALIDATION_STEPS = 300
# Rows are coded by blocks that a table of so many numbers a row leaves, however many labels are
# read from them: codes depend on the rows beside them in their last bits.
_CODED = 4096
Tagger: TypeAlias = "ZeroShotTagger | PublishedTagger"


class NamedLabels(NamedTuple):
    """Labels that are known by name alone."""

    labels: tuple[str, ...]
    likeness: Matrix  # (n_named, n_seen): how like each label of items they are, by their names

    def __repr__(self) -> str:
        """Tell the first of them, in a line."""
        return f"NamedLabels({first_few(self.labels)})"


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
    pooled_ : bool
        Whether items without tags were learned from; see `validation_` for what they bring.
    verdicts_ : VerdictLog
        What people said about its tags: in the folder of a tagger that was loaded or saved, else in
        memory. A further `fit` keeps it.
    """

    components: ClassVar[dict[str, type[Estimator]]] = {"space": ConceptSpace}

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
        """Say to scikit-learn what it takes."""
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
            Documents without items that teach what labels mean; by default `y`.
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
        """
        owner = type(self).__name__
        if y is None:
            raise InputError(f"`{owner}` requires y to be passed, but the target y is None.")
        check_kind("space", self.space, self.components["space"], owner=owner)
        check_kind("features", self.features, MediaFeatures, owner=owner)
        if self.checkpoint is not None:
            check_path(self.checkpoint, what=f"`checkpoint` of `{owner}`")
        template = ConceptSpace() if self.space is None else self.space
        if self.device is not None:
            template = copy_of(template).set_params(device=self.device)
        template.check_parameters()
        check_number("n_validations", self.n_validations, owner=owner, low=0, whole=True)
        vocabulary = as_vocabulary(self.vocabulary)
        corpus = vocabulary.apply(as_corpus(y, normalize=self.normalize_labels))
        X, corpus = in_order_of(X, y, corpus)
        sets = corpus
        if label_sets is not None:
            sets = vocabulary.apply(as_corpus(label_sets, normalize=self.normalize_labels))
        check_corpus(sets, owner=owner)
        if X is not None and label_sets is not None:
            check_corpus(corpus, owner=owner, n_labels=1)
        generator = as_generator(self.random_state)
        space_seed, feature_seed = draw_seed(generator), draw_seed(generator)
        extractor, table = None, X
        if self.features is not None and X is not None:
            with working(f"learning {self.features.kind} features", shown=self.verbose):
                extractor, table = learned_copy(self.features, X, feature_seed)
        features = None if table is None else check_instances(table, len(corpus), owner=owner)
        pool: Features | None = None
        pool_names: list[str] | None = None
        if unlabelled is not None:
            if features is None:
                raise InputError("Items without tags are learned from beside others; give X, too.")
            with working("reading items without tags", shown=self.verbose):
                pool = self._pool(unlabelled, extractor, column_names(X), features)
            pool_names = _item_names(unlabelled)
        log = self._told(verdicts)
        sets = sets.without_unused()
        items = sets if X is None else corpus
        labels = sets.labels + items.without_unused().align(sets.labels)[1]
        shared = frozenset() if X is None else corpus.used(sets.labels)
        if X is not None and not shared:
            raise InputError(
                "No item carries a label of the label sets, so nothing can be learned of "
                "how they go together; check that both use the same labels."
            )
        space = copy_of(template)
        seeded = isinstance(self.random_state, (int, np.integer))
        # Without a seed the space draws its own, which its checkpoint remembers.
        if space.random_state is None and self.random_state is not None:
            space.set_params(random_state=space_seed if seeded else generator)
        if space.checkpoint is None:
            space.set_params(checkpoint=self.checkpoint)
        tables = training_tables(items, sets, labels)
        n_features = 0 if features is None else features.shape[1]
        n_weights = space.n_weights(tables.documents.shape, len(items), n_features)
        check_room_for(space.checkpoint, n_weights)
        if isinstance(space.random_state, (int, np.integer)):
            space.training_seed()  # refuses another training's checkpoint before any work
        self._tell_cost(template, tables.documents.shape, features, pool)
        validation, share, pooled = None, 0.0, pool is not None
        words = None if label_vectors is None else as_word_vectors(label_vectors)
        if features is not None and self.n_validations:
            n_steps = template.planned(tables.documents.shape[0]).n_steps
            small = copy_of(template).set_params(
                n_folds=2,
                members_per_fold=1,
                n_steps=min(n_steps, _VALIDATION_STEPS),
                checkpoint=None,
                random_state=None,
            )
            model = ZeroShotTagger(space=small, n_validations=0, random_state=draw_seed(generator))
            with working("validating on held-out items", shown=self.verbose):
                validations = validate(
                    model,
                    features,
                    corpus,
                    sets,
                    self.n_validations,
                    draw_seed(generator),
                    variants=lambda fitted: fitted._with_names(words),
                    pool=pool,
                    # Without a seed other items would be held out when it goes on.
                    checkpoint=space.checkpoint if seeded else None,
                )
            if validations:
                with_pool = validations.pop() if pool is not None else None
                quality = [one.unseen.example_map + one.unseen.concept_map for one in validations]
                best = int(np.argmax(np.nan_to_num(quality)))
                validation, share = validations[best], NAME_SHARES[best]
                if with_pool is not None:
                    gain = with_pool.gain_over(validations[0])
                    pooled = gain > 0
                    validation = replace(with_pool if pooled else validation, pool_gain=gain)
        answers, named_rows = None, self._rows_of(items, X, pool_names, pool)
        if verdicts is None and features is not None:
            named_rows = self._unchanged(named_rows, features, pool)
        if log.count:
            by_key = {self._key_of(label): column for column, label in enumerate(labels)}
            answers = answer_table(
                log.standing(),
                named_rows,
                lambda label: by_key.get(self._key_of(vocabulary.resolve(label))),
                (len(items) + (0 if pool is None else pool.shape[0]), len(labels)),
            )
        if pool is not None and not pooled:
            # Only what people have answered for.
            told = np.zeros(0, dtype=np.int64)
            if answers is not None:
                told = np.flatnonzero(np.diff(answers.indptr)[len(items) :])
                kept = np.concatenate([np.arange(len(items)), len(items) + told])
                answers = sp.csr_matrix(answers[kept])
            trained_pool = pool[told] if len(told) else None
        else:
            trained_pool = pool
        with unless_refused(space.checkpoint):
            with FileProgress("training the concept space, rounds", shown=self.verbose) as bar:
                space.fit(
                    tables.documents,
                    features,
                    None if features is None else tables.item_documents,
                    tables.groups,
                    tables.n_label_sets,
                    progress=lambda done, total, losses: bar.tell(done, total, 0),
                    trainer=trainer,
                    pool=trained_pool,
                    verdicts=answers,
                )
            # Dropped are those without a label, of which `check_corpus` has told.
            store, dropped = ConceptStore.of(space, labels, sets, items)
            feedback = Feedback(log, space.digest_)
            feedback = _place_answered(feedback, space, features, pool, named_rows)
        # Nothing is set before everything is learned: a fit that fails leaves the tagger as it was.
        self.space_, self.features_ = space, extractor
        self.n_vocabulary_, self.n_fitted_ = len(sets.labels), len(store.ids)
        self.seen_, self.dropped_, self.validation_ = shared, dropped, validation
        self.name_share_, self._likeness = 0.0, np.zeros((0, 0))
        if words is not None and share:
            self.name_share_, self._likeness = share, self._unseen_likeness(words, labels)
        self.n_features_in_ = 0 if features is None else features.shape[1]
        self._set_feature_names(None if self.features is not None else column_names(X))
        self.normalize_labels_, self.vocabulary_ = self.normalize_labels, vocabulary
        self.verdicts_, self.pooled_, self._feedback = log, pooled, feedback
        self._forget_learned()
        self.indicator_ = corpus.labels if is_indicator(y) else None
        self.set_store(store)
        self._take_answers(())
        return self

    def _tell_cost(
        self,
        space: ConceptSpace,
        shape: tuple[int, int],
        features: Features | None,
        pool: Features | None,
    ) -> None:
        """Say what a fit to documents (m, n_labels) will take, before it begins, if it is much."""
        n_documents, n_labels = shape
        n_items, n_features = (0, 0) if features is None else features.shape
        plan = space.planned(n_documents, n_items, pool=pool is not None)
        plan = plan.within(n_documents, n_items)
        if space.device == "cpu" or check_device(space.device, owner="fit") == "cpu":
            validations = self.n_validations * (1 if pool is None else 2)
            n_all = n_items + (0 if pool is None else pool.shape[0])
            cost = cost_of_fit(plan, n_documents, n_labels, n_all, n_features, validations)
            tell_cost(cost, plan, n_labels, stacklevel=4)

    def _pool(
        self,
        unlabelled: Any,
        extractor: MediaFeatures | None,
        columns: tuple[str, ...] | None,
        features: Features,
    ) -> Features:
        """Check items without tags against those with tags; give features of the same form."""
        owner = type(self).__name__
        if extractor is not None:
            table = extractor.transform(unlabelled)
        else:
            table = in_order(without_ids(unlabelled)[0], columns, owner=owner)
        pool = check_features(table, owner=owner, n_features=features.shape[1])
        if sp.issparse(features) and not sp.issparse(pool):
            pool = sp.csr_matrix(pool)
        elif sp.issparse(pool) and not sp.issparse(features):
            pool = np.asarray(pool.toarray())
        return pool

    def _told(self, verdicts: VerdictLog | str | Path | Iterable[Verdict] | None) -> VerdictLog:
        """Give the log of verdicts to learn from."""
        if verdicts is None:
            return getattr(self, "verdicts_", VerdictLog())
        if isinstance(verdicts, VerdictLog):
            return verdicts
        if isinstance(verdicts, (str, Path)):
            return VerdictLog(verdicts)
        log = VerdictLog()
        log.append(verdicts)
        return log

    @staticmethod
    def _rows_of(
        items: LabelCorpus, X: object, pool_names: list[str] | None, pool: Features | None
    ) -> dict[str, int]:
        """Say which rows names stand for: those of items, then those of the pool.

        Where items have no names, numbers are those of the pool, if it has none either.
        """
        names = _item_names(X) if items.numbered else list(items.ids)
        if names is None and (pool is None or pool_names is not None):
            names = list(items.ids)
        rows = {name: row for row, name in enumerate(names or ())}
        if pool is not None:
            of_pool = map(str, range(pool.shape[0])) if pool_names is None else pool_names
            rows |= {name: len(items) + row for row, name in enumerate(of_pool)}
        return rows

    def _unchanged(
        self, rows: dict[str, int], features: Features, pool: Features | None
    ) -> dict[str, int]:
        """Leave out numbers of rows that are not the items which verdicts were given on."""
        told = getattr(self, "_feedback", None)
        if told is None or not len(told):
            return rows
        numbers = [item for item in told.items() if item in rows and item.isdecimal()]
        same = features.shape[1] == self.n_features_in_
        kept = told.vectors(numbers) if same else {}
        for table, first in ((features, 0), (pool, features.shape[0])):
            if table is None:
                continue
            here = [item for item in kept if 0 <= rows[item] - first < table.shape[0]]
            found = self._sketches(table, [rows[item] - first for item in here])
            for item, sketch in zip(here, found, strict=True):
                if not _alike(sketch, kept[item]):
                    del kept[item]
        others = set(numbers) - set(kept)
        return {item: row for item, row in rows.items() if item not in others}

    def _sketches(self, features: Items, rows: Sequence[int]) -> NDArray[np.float32]:
        """Give the sketches of some rows, (n, n_sketch)."""
        return self.space_.sketch(_rows(features, rows))

    def _key_of(self, label: str) -> str:
        """Give what labels are compared by in a fit."""
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
            of_items, of_tags = self._readouts(store, named)
        # Nothing is set before everything is made: what is refused leaves the tagger as it was.
        self.store_, self.named_ = store, named
        self._of_items, self._of_tags = of_items, of_tags
        self._labels: tuple[str, ...] = store.labels + (() if named is None else named.labels)
        # A label whose documents were all taken away is not suggested any more.
        self._in_use = np.ones(len(self._labels), dtype=bool)
        self._in_use[: len(store.labels)] = store.counts > 0
        blocked = {self._key(label) for label in self.vocabulary_.blocked}
        self._in_use &= [self._key(label) not in blocked for label in self._labels]
        self._raised = self.vocabulary_.raised(self._labels)
        self._places = {self._key(label): column for column, label in enumerate(self._labels)}
        self._set_classes()
        self._corrections: dict[int, Correction] = {}
        self._usual: Matrix | None = None
        self._correct(self._feedback.labels)
        return self

    def _with_names(self, words: WordVectors | None) -> list[Self]:
        """Give this tagger as it is and, with vectors, as it is with each of `NAME_SHARES`."""
        if words is None:
            return [self]
        variants = [copy(self) for _ in NAME_SHARES]
        for variant, share in zip(variants, NAME_SHARES, strict=True):
            variant.name_share_ = share
            variant._likeness = self._unseen_likeness(words, self.store_.labels)
            variant.set_store(self.store_)
        return variants

    def _unseen_likeness(self, words: WordVectors, labels: Sequence[str]) -> Matrix:
        """Say how like seen labels each unseen one is by name, (n_unseen, n_seen)."""
        space = self.space_
        seen, unseen = np.split(np.asarray(labels, dtype=object)[space.order_], [space.n_seen_])
        likeness = np.zeros((len(unseen), len(seen)))
        known = words.label_vectors(unseen.tolist())[1]
        if known.any() and words.label_vectors(seen.tolist())[1].any():
            likeness[known] = name_likeness(unseen[known].tolist(), seen.tolist(), words)
        return likeness

    def _readouts(self, store: ConceptStore, named: NamedLabels | None) -> tuple[Readout, Readout]:
        """Learn how labels are read from codes of items and of tag sets."""
        space = self.space_
        learned = (space.readout(), space.readout(of_items=False))
        if self.name_share_:
            learned = space.mixed_with_names(*learned, self._likeness, self.name_share_)
        readouts = [learned]
        new = store.matrix[:, store.n_learned :]
        if new.shape[1]:
            rows = np.flatnonzero(np.diff(new.indptr))
            codes = space.document_codes(store.matrix[rows][:, : store.n_learned])
            counts = store.counts[store.n_learned :].astype(np.float64)
            frequencies = new_label_frequencies(
                counts, len(rows), len(store.ids) - self.n_fitted_, space.typical_frequency
            )
            readouts.append(space.readout_of_documents(codes, new[rows], frequencies))
        if named is not None:
            readouts.append(space.readout_of_names(named.likeness))
        of_items, of_tags = (
            Readout(
                np.concatenate([part.weights for part in parts], axis=1),
                np.concatenate([part.intercepts for part in parts]),
            )
            for parts in zip(*readouts, strict=True)
        )
        return of_items, of_tags

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
        """Give values of labels (..., n_labels) in the order of `classes_`."""
        if self._shown is None:
            return values
        return np.where(self._shown < 0, missing, values[..., self._shown])

    def _key(self, label: str) -> str:
        """Give what labels are compared by."""
        return normalize_label(label) if self.normalize_labels_ else label

    # ------------------------------------------------------------------ asking

    def transform(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float32]:
        """Give the codes of items in the concept space.

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
        return self._codes(*self._asked(X, tags))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Name the dimensions that `transform` gives, (n_dimensions,)."""
        check_fitted(self, "space_")
        names = [f"code{number}" for number in range(self.space_.n_dimensions)]
        return np.array(names, dtype=object)

    def points(
        self, X: object, tags: Iterable[Collection[str]] | None = None
    ) -> NDArray[np.float32]:
        """Give the codes of items as directions on the principal axes of known documents.

        Parameters
        ----------
        X, tags : as for `transform`

        Returns
        -------
        float32 array, shape (n, n_axes)
            Of length 1; the first two axes make a map.
        """
        codes = self._codes(*self._asked(X, tags))
        return self.space_.points(codes)

    def concepts(self) -> Concepts:
        """Give every label in every known document as a point; see `polyseme.senses`."""
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
        """Give tags under their labels' own names, with what they imply; else as they are."""
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
        n_sketch = min(self.n_features_in_, SKETCH)
        left, logits = int(most_bytes) - 4 * n * n_sketch, 8 * n * len(self._labels)
        kept, codes_kept = left >= logits, left - 4 * n * space.n_dimensions >= logits
        sketches = np.empty((n if kept else 0, n_sketch), dtype=np.float32)
        codes = np.empty((n if codes_kept else 0, space.n_dimensions), dtype=np.float32)
        names = _item_names(X) if ids is None else as_names(ids, "`ids` of `encode`")
        if names is not None and len(names) != n:
            raise InputError(f"`ids` of `encode` names {len(names)} items; X has {n}.")
        items = EncodedItems(features, names, space.digest_, left - codes.nbytes)
        for rows in rank_blocks(n, _CODED) if kept else ():
            table = items[rows].table()
            sketches[rows] = space.sketch(table)
            if codes_kept:
                codes[rows] = space.item_codes(table)
        items.sketches, items.codes = sketches if kept else None, codes if codes_kept else None
        return items

    def _codes(self, features: Items | None, tags: sp.csr_matrix | None) -> NDArray[np.float32]:
        """Code checked items; new labels have no place in codes."""
        learned = None if tags is None else sp.csr_matrix(tags[:, : self.store_.n_learned])
        if features is None:
            assert learned is not None and tags is not None
            lost = np.flatnonzero((np.diff(learned.indptr) == 0) & (np.diff(tags.indptr) > 0))
            if len(lost):
                self._refuse_new(tags[lost[0]].indices)
            return self.space_.document_codes(learned)
        if isinstance(features, EncodedItems):
            if features.codes is not None and learned is None:
                return features.codes
            features = features.table()
        return self.space_.item_codes(features, learned)

    def _logits(self, codes: NDArray[np.float32], features: Features | None) -> Matrix:
        """Read every label from codes, (n, n_labels), as verdicts correct them."""
        if features is None:
            return np.asarray(codes @ self._of_tags.weights + self._of_tags.intercepts)
        logits, corrections = self._plain_logits(codes), self._corrections
        if corrections:
            logits[:, [*corrections]] += corrected(self.space_.sketch(features), corrections)
        return logits

    def _plain_logits(self, codes: NDArray[np.float32], column: int | None = None) -> Matrix:
        """Read every label from codes of items, (n, n_labels), or one, without corrections."""
        first, last = (0, len(self._labels)) if column is None else (column, column + 1)
        readout, voted = self._of_items, min(last, self.store_.n_learned)
        weights = readout.weights[:, first:last]
        if column is not None:  # to the bit the same wherever among others it stands
            weights = np.ascontiguousarray(weights)
        logits = codes @ weights + readout.intercepts[first:last]
        if self.space_.priming and first < voted:
            votes = self.store_.votes(self.space_.points(codes))[:, first:voted]
            logits[:, : voted - first] += self.space_.priming * logit(votes)
        return np.asarray(logits)

    def _scored(
        self,
        features: Items | None,
        tags: sp.csr_matrix | None,
        method: str = "space",
        kinds: Collection[str] | None = None,
        columns: Sequence[int] | None = None,
    ) -> Iterator[tuple[slice, Matrix]]:
        """Give scores of checked items, some rows at a time: logits, or shares of votes.

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
        some = np.arange(len(self._labels)) if columns is None else np.array(columns)
        place = {column: at for at, column in enumerate(some.tolist())}
        raised = [(place[a], place[b]) for a, b in self._raised if a in place and b in place]
        for rows, scores, known in self._read(features, tags, method, columns):
            own = scores.copy() if raised else scores
            for source, target in raised:
                np.maximum(scores[:, target], own[:, source], out=scores[:, target])
            scores = np.where(in_use[some], scores, lowest)
            if known is not None:
                scores = np.where(known.toarray()[:, some] > 0, highest, scores)
            yield rows, self._show(scores, lowest) if columns is None else scores

    def _read(
        self,
        features: Items | None,
        tags: sp.csr_matrix | None,
        method: str = "space",
        columns: Sequence[int] | None = None,
        *,
        plain: bool = False,
    ) -> Iterator[tuple[slice, Matrix, sp.csr_matrix | None]]:
        """Read labels, or some columns, from checked items, some rows at a time; see `_scored`.

        What is given may be changed. `plain` leaves corrections out, and what is kept of logits.
        """
        n = (features if features is not None else tags).shape[0]  # type: ignore[union-attr]
        of_items = features is not None and method == "space"
        corrections = self._corrections if of_items and not plain else {}
        if columns is not None:
            places = enumerate(columns)
            corrections = {at: corrections[one] for at, one in places if one in corrections}
        kept = None
        if isinstance(features, EncodedItems) and of_items and tags is None and not plain:
            kept = self._kept_logits(features)
        for block in rank_blocks(n, _CODED):
            part = None if features is None else features[block]
            known = None if tags is None else tags[block]
            codes = self._codes(part, known) if kept is None else None
            sketches = self._sketched(part) if part is not None and corrections else None
            # A block is also a table over known documents.
            for own in rank_blocks(block.stop - block.start, max(len(self._labels), 4096)):
                rows = slice(block.start + own.start, block.start + own.stop)
                if codes is None:
                    assert kept is not None
                    scores = kept[rows].copy() if columns is None else kept[rows]
                elif method == "priming":
                    scores = np.zeros((own.stop - own.start, len(self._labels)))
                    points = self.space_.points(codes[own])
                    scores[:, : len(self.store_.labels)] = self.store_.votes(points)
                elif part is None:
                    scores = np.asarray(
                        codes[own] @ self._of_tags.weights + self._of_tags.intercepts
                    )
                else:
                    scores = self._plain_logits(codes[own])
                scores = scores if columns is None else scores[:, columns]
                if sketches is not None:
                    with one_blas_thread():  # too small a product for several
                        scores[:, [*corrections]] += corrected(sketches[own], corrections)
                yield rows, scores, None if known is None else known[own]

    def _kept_logits(self, items: EncodedItems) -> Matrix | None:
        """Give the logits of encoded items without corrections, (n, n_labels), as they are kept."""
        matrix, space = self.store_.matrix, self.space_
        state: list[NDArray[Any]] = [self.store_.points, self.store_.sets]
        state += [matrix.indices, matrix.indptr, *self._of_items]
        state.append(np.array([space.priming, space.context]))

        def read(whole: EncodedItems) -> Matrix:
            table = np.empty((len(whole), len(self._labels)))
            for rows, logits, _ in self._read(whole, None, plain=True):
                table[rows] = logits
            return table

        return items.logits(state, len(self._labels), read)

    def _sketched(self, features: Items) -> NDArray[np.float32]:
        """Give the sketches of checked items, (n, n_sketch)."""
        if not isinstance(features, EncodedItems):
            return self.space_.sketch(features)
        kept = features.sketches
        return self.space_.sketch(features.table()) if kept is None else kept

    def _probable(
        self,
        features: Items | None,
        tags: sp.csr_matrix | None,
        method: str = "space",
        kinds: Collection[str] | None = None,
    ) -> Iterator[tuple[slice, Matrix]]:
        """Give probabilities of checked items, or shares of votes, some rows at a time."""
        for rows, scores in self._scored(features, tags, method, kinds):
            yield rows, scores if method == "priming" else sigmoid(scores)

    def predict_proba(
        self, X: object, tags: Iterable[Collection[str]] | None = None, method: str = "space"
    ) -> Matrix:
        """Give the probability of every label for each item.

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
        return self._collect(self._probable(*self._asked(X, tags), method))

    def decision_function(self, X: object, tags: Iterable[Collection[str]] | None = None) -> Matrix:
        """Give the logit of every label for each item, (n, n_classes); see `predict_proba`."""
        return self._collect(self._scored(*self._asked(X, tags)))

    def _collect(self, blocks: Iterator[tuple[slice, Matrix]]) -> Matrix:
        """Put blocks of scores together, (n, n_classes)."""
        return np.concatenate([np.empty((0, len(self.classes_))), *(part for _, part in blocks)])

    def score(self, X: object, y: Documents, sample_weight: object = None) -> float:
        """Give the mean average precision of the items' rankings (E-MAP), between 0 and 1.

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
        """Say which of `classes_` each item carries, (n, n_classes)."""
        return np.asarray(self._carried(X, y).toarray(), dtype=bool)

    def _carried(self, X: object, y: Documents) -> sp.csr_matrix:
        """Give the labels that items carry, (n, n_classes)."""
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
        """Give all metrics of the items' rankings; labels are brought together by name.

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
        """Say how likely labels must be for a share of those that are given to be true.

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
        """Say what precision can be asked of unseen labels."""
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
        """Give a tag set for each item: the labels that are likely enough, best first.

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
        blocks = self._probable(features, given, kinds=kinds)
        if self.indicator_ is not None:
            table = self._collect(blocks) >= least
            return table[:, : len(self.indicator_)].astype(np.int64)
        return [tags for _, part in blocks for tags in tag_sets(part, least, self.classes_)]

    def rank(
        self,
        X: object,
        k: int = 10,
        tags: Iterable[Collection[str]] | None = None,
        method: str = "space",
        kinds: Collection[str] | None = None,
    ) -> tuple[StrArray, Matrix]:
        """Give the k best labels for each item.

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
        for rows, scores in self._probable(features, given, method, kinds):
            label_ids[rows], best[rows] = rank_labels(scores, self._occurrences, k)
        return self.classes_[label_ids], best

    @property
    def _occurrences(self) -> IntArray:
        """How many documents hold each label: of equal scores the commoner label is first."""
        counts = np.zeros(len(self._labels))
        counts[: len(self.store_.labels)] = self.store_.counts
        return self._show(counts, 0).astype(np.int64)

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
        self._refuse_new(given)
        n_others = len(self.classes_) - len(given)
        # Unknown tags have been named by now.
        known = [self._labels[column] for column in given]
        labels, scores = self.rank(None, len(self.classes_), [known])
        others = np.array([label not in known for label in labels[0]], dtype=bool)
        return labels[0][others][: min(k, n_others)], scores[0][others][: min(k, n_others)]

    def _refuse_new(self, given: IntArray) -> None:
        """Raise where all given tags are newer than the space, which cannot code them."""
        if len(given) and (given >= self.store_.n_learned).all():
            raise InputError(
                f"'{self._labels[given[0]]}' came after the concept space was learned, so nothing "
                "can be concluded from it alone; give further tags, or fit anew."
            )

    def explain(
        self,
        x: object,
        label: str,
        k: int = 5,
        tags: Collection[str] | None = None,
    ) -> Evidence:
        """Say where a label's score comes from, in parts that add up to its logit.

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
        evidence = self._evidence(features, given, column, k)
        if shown == column:
            return evidence
        name, kind, used = self._labels[shown], self._kind(shown), self._in_use[shown]
        share = float(sigmoid(np.array(evidence.logit))) if used else 0.0
        return replace(
            evidence, label=name, kind=kind, probability=share, implied_by=evidence.label
        )

    def _raiser(self, features: Features | None, tags: sp.csr_matrix | None, column: int) -> int:
        """Give the column whose score a label has: its own, or one that raises it."""
        sources = [source for source, target in self._raised if target == column]
        if not sources:
            return column
        codes = self._codes(features, tags)
        logits = self._logits(codes, features)[0]
        return max([column, *sources], key=lambda one: logits[one])

    def _evidence(
        self, features: Features | None, tags: sp.csr_matrix | None, column: int, k: int
    ) -> Evidence:
        """Take a label's logit of one item apart."""
        space, of_items = self.space_, features is not None
        readout = self._of_items if of_items else self._of_tags
        weights = readout.weights[:, column]
        learned = None if tags is None else sp.csr_matrix(tags[:, : self.store_.n_learned])
        average = np.zeros(len(space.order_), dtype=np.float32)
        direct, share, features_part = np.zeros((1, space.n_dimensions)), 1.0, 0.0
        if features is None:
            assert learned is not None
            probable = np.asarray(learned[:, space.order_].toarray(), dtype=np.float32)[0]
        else:
            halves = space.views(features, learned)
            direct, probable, share = halves[0].astype(np.float64), halves[1][0], space.context
            average[: space.n_seen_] = space.mean_tags_
            features_part = float((1 - share) * (direct[0] - space.mean_code_) @ weights)

        def code_of(probable_tags: NDArray[np.float32]) -> NDArray[np.float32]:
            context = space.encode_tags(probable_tags[None])
            return np.asarray((1 - share) * direct + share * context, dtype=np.float32)

        # As it was coded when it was scored, to the last bit.
        code = self._codes(features, tags)
        logits = self._logits(code, features)[0]
        parts = share * tag_parts(space.members_, weights, average, probable)
        known = 0.0
        if of_items and space.priming and column < self.store_.n_learned:
            prior = self.store_.counts[column] / max(len(self.store_.ids), 1)
            usual = space.priming * float(logit(np.array(prior)))
            votes = self.store_.votes(space.points(code))[0, column]
            known = space.priming * float(logit(np.array(votes))) - usual
        answers = 0.0
        if features is not None and column in self._corrections:
            own = {column: self._corrections[column]}
            answers = float(corrected(space.sketch(features), own)[0, 0])
        first = np.argsort(-np.abs(parts), kind="stable")[:k]
        named = []
        for place in first[parts[first] != 0].tolist():
            changed = probable.copy()
            changed[place] = average[place]
            less = self._logits(code_of(changed), features)[0, column] - logits[column]
            named.append(
                TagEvidence(
                    self._labels[space.order_[place]],
                    float(probable[place]),
                    float(parts[place]),
                    float(less),
                )
            )
        value = float(logits[column])
        return Evidence(
            self._labels[column],
            self._kind(column),
            # A label that no known document holds any more is not suggested.
            float(sigmoid(np.array(value))) if self._in_use[column] else 0.0,
            value,
            # The rest: what is left where features and tags are average and documents vote alike.
            value - features_part - float(parts.sum()) - known - answers,
            features_part,
            tuple(named),
            float(parts.sum()) - sum(one.part for one in named),
            known,
            self.store_.nearest(space.points(code)[0], column, k),
            answers,
        )

    def _kind(self, column: int) -> str:
        """Say the kind of one of `_labels`."""
        place = column if self._shown is None else int(np.flatnonzero(self._shown == column)[0])
        return str(self.kinds_[place])

    def _column(self, label: str) -> int:
        """Find a label's column, also of a label by name or by another name."""
        check_fitted(self, "store_")
        label = self.vocabulary_.resolve(label) if isinstance(label, str) else label
        if self.named_ is not None and isinstance(label, str):
            names = [self._key(name) for name in self.named_.labels]
            if self._key(label) in names:
                return len(self.store_.labels) + names.index(self._key(label))
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
        columns = [self._column(label) for label in self._names(labels)]
        gone = {self._labels[column] for column in columns}
        named = self.named_
        if named is not None:
            kept = [row for row, label in enumerate(named.labels) if label not in gone]
            named = NamedLabels(tuple(named.labels[row] for row in kept), named.likeness[kept])
        store = self.store_
        if gone & set(store.labels):
            store = store.without_labels(self.space_, gone)
        # Answers about them stay in the log, but count no more.
        told = [one for one in self._feedback.labels if self._place(one) in columns]
        self._feedback.log.undo(self._feedback.numbers(told))
        self._feedback = self._feedback.caught_up()[0]
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
        """Give a label another name; the former one is still understood.

        Parameters
        ----------
        label, name : str
            A known label, and a name that no other label has (`merge` brings two labels together).
        """
        column = self._column(label)
        if not isinstance(name, str):
            raise InputError(f"A label is renamed to one text; got {shown(name)}.")
        old, (new,) = self._labels[column], self._names(name)
        if self._key(new) in {self._key(one) for one in self._labels} - {self._key(old)}:
            raise InputError(f"There is a label '{new}' already; merge '{old}' into it instead.")
        if column >= len(self.store_.labels):
            raise InputError(f"'{old}' is known by name alone; remove it and add '{new}'.")
        self.vocabulary_ = self.vocabulary_.renaming(old, new)
        self.seen_ = frozenset(new if one == old else one for one in self.seen_)
        if self.validation_ is not None:
            quality = self.validation_.labels.items()
            labels = {new if one == old else one: pair for one, pair in quality}
            self.validation_ = replace(self.validation_, labels=labels)
        if self.indicator_ is not None:
            self.indicator_ = tuple(new if one == old else one for one in self.indicator_)
        return self.set_store(self.store_.renamed(old, new), self.named_)

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
        if not {source, target} <= set(self.store_.labels):
            raise InputError("Labels that are known by name alone cannot be merged; remove one.")
        self.vocabulary_ = self.vocabulary_.naming(source, target)
        return self.set_store(self.store_.merged(self.space_, source, target), self.named_)

    def _names(self, labels: Collection[str]) -> tuple[str, ...]:
        """Check labels that are given by name, and tidy them as those of documents are."""
        check_fitted(self, "store_")
        given = as_names(labels, "labels")
        return LabelCorpus.from_documents([given], normalize=self.normalize_labels_).labels

    # ------------------------------------------------------------------ clicks

    def learn(
        self, verdicts: Iterable[Verdict | tuple[Any, ...]], X: object = None
    ) -> tuple[int, ...]:
        """Take yes or no to single labels of items, at once and without training.

        A label's logits are corrected in closed form (`polyseme.corrections`); others stay as they
        are. Labels may be seen, unseen, blocked or not known at all: then they are new, and known
        by these answers alone. Verdicts are events in `verdicts_`, which the next fit learns from.

        Parameters
        ----------
        verdicts : iterable of Verdict, or of tuples that begin with item, label and answer
            Items are ids of X, its files, or numbers of its rows. Without X they are items that
            verdicts were given on before, or what `features` takes, such as files.
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes

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
        numbers = self._feedback.log.append(said, vectors, self._feedback.space)
        self.catch_up()
        return tuple(numbers)

    def _asked_vectors(self, names: list[str], X: object) -> dict[str, NDArray[np.float32]]:
        """Give the vectors of items that verdicts are about and that have none yet."""
        known = self._feedback.vectors(names)
        new = [name for name in names if name not in known]
        if X is None:
            if new and self.features_ is None:
                one = first_few(new[:1])
                raise InputError(
                    f"Nothing is known of the item '{one}'; give `X` with its features."
                )
            features = self._features_of(new) if new else None
            rows = {name: row for row, name in enumerate(new)}
        else:
            features, given = self._features_of(X), _item_names(X)
            of_X = map(str, range(features.shape[0])) if given is None else given
            rows = {name: row for row, name in enumerate(of_X)}
            by = "the numbers of their rows, from 0" if given is None else "their ids"
            lost = [name for name in new if name not in rows]
            if lost:
                raise InputError(
                    f"X has no item '{first_few(lost[:1])}'; verdicts name items by {by}."
                )
            # A number may have been another table's.
            again = [name for name in known if given is None and name in rows]
            found = self._sketches(features, [rows[name] for name in again])
            for name, sketch in zip(again, found, strict=True):
                if not _alike(sketch, known[name]):
                    raise InputError(
                        f"Row {name} of X is not the item '{name}' that verdicts were given on "
                        "before; give items names of their own, by a column `id`."
                    )
        if features is None or not new:
            return {}
        asked = _rows(features, [rows[name] for name in new])
        return dict(zip(new, _vectors(self.space_, asked), strict=True))

    def undo(self, numbers: Iterable[int]) -> Self:
        """Take verdicts back; every score is then as if they had never been given.

        Parameters
        ----------
        numbers : iterable of int
            As `learn` gave them.
        """
        check_fitted(self, "store_")
        self._feedback.log.undo(numbers)
        self.catch_up()
        return self

    def take_up(self, log: VerdictLog) -> Self:
        """Learn from verdicts that are kept elsewhere, in place of those it has.

        Parameters
        ----------
        log : VerdictLog
        """
        check_fitted(self, "store_")
        feedback = Feedback(log, self.space_.digest_)
        self._take_over(feedback, {*self._feedback.labels, *feedback.labels}, None)
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
        feedback, labels = self._feedback.caught_up()
        if feedback is not self._feedback:
            self._take_over(feedback, labels, self._cache)
        return bool(labels)

    def _forget_learned(self) -> None:
        """Know no correction that was learned before, nor a file that would keep them."""
        self._learned: dict[bytes, Correction] = {}
        self._cache: Path | None = None
        self._cached: frozenset[bytes] = frozenset()

    def _take_up_kept(self, folder: Path) -> None:
        """Learn from the verdicts in a model's folder, but for what was learned before."""
        cache = folder / CORRECTIONS
        self._learned = kept_corrections(cache, min(self.n_features_in_, SKETCH))
        self._cached = frozenset(self._learned)
        feedback = Feedback(VerdictLog(folder), self.space_.digest_)
        self._take_over(feedback, feedback.labels, cache)

    def _keep_learned(self) -> None:
        """Keep corrections beside the log, where some are not there yet, but not for every one."""
        sources = {one.source for one in self._corrections.values()}
        if self._cache is not None and 8 * len(sources - self._cached) > len(sources):
            keep_corrections(self._cache, self._corrections.values())
            self._cached = frozenset(sources)

    def _take_over(self, feedback: Feedback, labels: Collection[str], cache: Path | None) -> None:
        """Correct labels by what stands now; where that fails, all is as it was."""
        made = copy(self)
        made.verdicts_, made._feedback, made._cache = feedback.log, feedback, cache
        made._take_answers(labels)
        made._keep_learned()
        self.__dict__.update(made.__dict__)

    def _take_answers(self, labels: Collection[str]) -> None:
        """Correct labels that were answered for; some are known for as long as answers stand."""
        if not self.n_features_in_:
            return
        named = self.named_ or NamedLabels((), np.zeros((0, self.space_.n_seen_)))
        hinted = np.flatnonzero(named.likeness.any(axis=1))
        names = tuple(named.labels[row] for row in hinted)
        known = {self._key(label) for label in (*self.store_.labels, *names)}
        spelled = sorted(map(self.vocabulary_.resolve, self._feedback.labels), reverse=True)
        answered = {self._key(label): label for label in spelled}
        names += tuple(sorted(label for key, label in answered.items() if key not in known))
        if names == named.labels:
            self._correct(labels)
            return
        # Labels that are known by answers alone have no hint by their names.
        likeness = np.pad(named.likeness[hinted], ((0, len(names) - len(hinted)), (0, 0)))
        self.set_store(self.store_, NamedLabels(names, likeness))

    def _correct(self, labels: Collection[str]) -> None:
        """Learn the corrections of some labels from the verdicts that stand."""
        if not self.n_features_in_ or not labels:
            return
        names: dict[int | None, list[str]] = {}
        for label in self._feedback.labels:
            names.setdefault(self._place(label), []).append(label)
        corrections, learned = dict(self._corrections), dict(self._learned)
        with one_blas_thread():
            if self._usual is None:
                self._set_usual()
            for column in {self._place(label) for label in labels} - {None}:
                assert column is not None
                corrections.pop(column, None)
                told = self._feedback.digest(names.get(column, ()))
                if not told:
                    continue
                source = self._source(column, told)
                if source not in learned:
                    learned[source] = self._learned_anew(column, names[column], source)
                corrections[column] = learned[source]
        # Ranking may go on in other threads; and the same answers give the same bits in any order.
        self._corrections = dict(sorted(corrections.items()))
        # Some more than are in use: what was undone may be said again.
        if len(learned) > 2 * len(corrections) + 100:
            learned = {one.source: one for one in corrections.values()}
        self._learned = learned

    def _set_usual(self) -> None:
        """Say what labels are on items that stand for all, and digest what all labels share."""
        space, background = self.space_, self.space_.background_
        usual = np.zeros((0, len(self._labels)))
        if len(background.codes):
            usual = self._plain_logits(background.codes)
        digest = hashlib.sha256(f"{learned_by()} {space.digest_} {space.priming}".encode())
        for one in (background.sketches, background.weights, space.document_mean_, space.axes_):
            digest.update(f"{one.dtype.str} {one.shape}".encode() + one.tobytes())
        self._shared, self._usual = digest.digest(), usual

    def _source(self, column: int, told: bytes) -> bytes:
        """Digest all that decides the correction of a column; answers and items are one already.

        Whatever changes a label's logits without corrections has a part: its readout, the items
        that stand for all, and known documents where they vote.
        """
        assert self._usual is not None
        digest = hashlib.sha256(self._shared + told)
        readout = self._of_items
        for one in (readout.weights, readout.intercepts[None], self._usual):
            digest.update(one[:, column].tobytes())
        if self.space_.priming and column < self.store_.n_learned:
            digest.update(self.store_.digest + str(column).encode())
        return digest.digest()

    def _learned_anew(self, column: int, names: Collection[str], source: bytes) -> Correction:
        """Learn the correction of a column from answers to labels of some names."""
        background, n_sketch = self.space_.background_, min(self.n_features_in_, SKETCH)
        vectors, answers = self._feedback.placed(names)
        assert self._usual is not None
        found = correct(
            vectors[:, :n_sketch],
            self._plain_logits(vectors[:, n_sketch:], column)[:, 0],
            answers,
            background.sketches,
            self._usual[:, column],
            background.weights,
        )
        return found._replace(source=source)

    def _place(self, label: str) -> int | None:
        """Give the column of a label that was answered for; None where it is not known."""
        return self._places.get(self._key(self.vocabulary_.resolve(label)))

    def ask(
        self,
        X: object,
        label: str | None = None,
        k: int = 30,
        strategy: str = "active",
        tags: Documents | None = None,
        random_state: RandomState = 0,
    ) -> list[Question]:
        """Say what to look at next: which label of which item is worth a yes or no.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        label : str, optional
            Ask about this label alone; by default about any.
        k : int
            How many questions.
        strategy : {"active", "likeliest", "random", "errors"}
            Half of the items the likeliest, half those it is least certain of; the likeliest; any;
            or tags that items lack or have by mistake, for which `tags` must be given.
        tags : as y of `fit`, optional
            The tags that items have: they are not asked about, but where errors are looked for.
        random_state : int, numpy Generator or None

        Returns
        -------
        list of Question
            What was answered before is not asked again.
        """
        check_number("k", k, owner="ask", low=1, whole=True)
        check_strategy(strategy, tagged=tags is not None)
        check_fitted(self, "store_")
        features, given = self._features_of(X), _item_names(X)
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
        carried = None if tags is None else self._carried(X, tags)[:, chosen]
        if carried is not None and carried.shape[0] != n:
            raise InputError(f"`tags` has {carried.shape[0]} collections for {n} instances.")
        places = {column: place for place, column in enumerate(shown[chosen].tolist())}
        answered = answer_table(
            self._feedback.triples(),
            {name: row for row, name in enumerate(names)},
            lambda one: places.get(self._place(one)),
            (n, len(chosen)),
        )

        def blocks() -> Iterator[Block]:
            for rows, logits in self._scored(features, None, columns=columns):
                there = np.zeros((len(logits), len(chosen)), dtype=bool)
                told = there if answered is None else answered[rows].toarray() != 0
                has = there if carried is None else carried[rows].toarray()
                yield Block(rows.start, logits[:, : len(chosen)], told, has)

        found = choose(blocks(), k, strategy, as_generator(random_state))
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
        if self.verdicts_.file is None:
            self.verdicts_ = VerdictLog(path)
            self._feedback = self._feedback.kept_in(self.verdicts_)
            self._cache = Path(path) / CORRECTIONS
        if self._corrections:
            keep_corrections(Path(path) / CORRECTIONS, self._corrections.values())

    def get_state(self) -> State:
        """Give the fitted tagger as JSON values and arrays; see `from_state`."""
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
        }
        arrays["likeness"] = self._likeness
        if self.named_ is not None:
            arrays["named"] = self.named_.likeness
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted tagger from `get_state`."""
        _VALUES.check(config)
        check_parts(arrays, config, ("space", "store", "features"), ("likeness", "named"))
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
        made.verdicts_, made.pooled_ = VerdictLog(), config["pooled"]
        made._feedback = Feedback(made.verdicts_, made.space_.digest_)
        made._forget_learned()
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
    },
    optional=("features",),
)
_DECLARED = {
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
    own = {name: arrays[name] for name in ("likeness", "named") if name in arrays}
    declared = {name: _DECLARED[name] for name in ("likeness", "named")[: 1 + ("named" in own)]}
    check_arrays(own, declared, n_seen=space.n_seen_, n_named=len(config["named"] or ()))
    # Where names have no share, nothing is kept of them.
    like = own["likeness"].shape
    unused = like == (0, 0) and not config["name_share"]
    every = like == (n_labels - space.n_seen_, space.n_seen_)
    require(unused or every, "likeness", "that of all unseen labels to seen ones")
    require((config["named"] is None) == ("named" not in own), "named", "there for labels by name")


def _item_names(X: Any) -> list[str] | None:
    """Give the ids of items, or their files; None where only their numbers tell them apart."""
    _, ids = without_ids(X)
    if ids is None and isinstance(X, (list, tuple)) and X:
        files = [str(one) for one in X if isinstance(one, (str, Path))]
        ids = files if len(files) == len(X) else None
    return ids


def _rows(features: Items, rows: Sequence[int]) -> Features:
    """Give the features of some rows."""
    part = features[np.array(rows, dtype=np.int64)]
    return part.table() if isinstance(part, EncodedItems) else part


def _vectors(space: ConceptSpace, features: Features) -> NDArray[np.float32]:
    """Give what is kept of items that verdicts are about: sketches, then codes."""
    return np.hstack([space.sketch(features), space.item_codes(features)])


def _alike(sketch: NDArray[np.float32], vector: NDArray[np.float32]) -> bool:
    """Say whether an item is the one that a vector is kept of."""
    return bool(np.abs(sketch - vector[: len(sketch)]).max() < 1e-3)


def _place_answered(
    feedback: Feedback,
    space: ConceptSpace,
    features: Features | None,
    pool: Features | None,
    rows: Mapping[str, int],
) -> Feedback:
    """Keep the vectors of items that verdicts are about, in a space; give what is then known."""
    if features is None or not len(feedback):
        return feedback
    asked = feedback.items()
    places = {item: rows[item] for item in asked if item in rows}
    known = feedback.vectors([item for item in asked if item not in rows])
    if n_lost := len(asked) - len(places) - len(known):
        warnings.warn(
            f"Verdicts on {n_lost} items are kept but not learned from: these items are among "
            "neither X nor `unlabelled`.",
            PolysemeWarning,
            stacklevel=4,
        )
    for table, first in ((features, 0), (pool, features.shape[0])):
        if table is None:
            continue
        here = [item for item, row in places.items() if 0 <= row - first < table.shape[0]]
        for start in range(0, len(here), 4096):
            some = here[start : start + 4096]
            numbers = np.array([places[item] - first for item in some])
            vectors = dict(zip(some, _vectors(space, table[numbers]), strict=True))
            feedback.log.append([], vectors, feedback.space)
    return feedback.caught_up()[0]


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
            tagger._take_up_kept(Path(path))
            return tagger
        from polyseme.published.tagger import PublishedTagger

        if config.get("method") == "published":
            return PublishedTagger.from_state(config, arrays)
    raise ModelFileError(
        f"The model at '{path}' has the method {shown(config.get('method'))}, which this version "
        "of polyseme does not know; fit it anew."
    )
