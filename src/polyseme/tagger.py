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

from polyseme._estimator import ClassNamePrefixFeaturesOutMixin, Estimator, TransformerMixin
from polyseme._text import shown
from polyseme._validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    as_names,
    as_row,
    check_features,
    check_fitted,
    check_iterable,
    check_number,
    check_option,
    check_path,
    draw_seed,
    first_few,
    in_order,
    warn_dropped,
    without_ids,
)
from polyseme.answers import Corrections
from polyseme.calibration import sigmoid
from polyseme.checkpoints import unless_refused
from polyseme.corpus import (
    Documents,
    LabelCorpus,
    as_corpus,
    is_indicator,
    normalize_label,
)
from polyseme.documents import label_column
from polyseme.encoded import EncodedItems, item_names, item_vectors
from polyseme.extractors import MEDIA
from polyseme.feedback import Feedback, Question, as_verdict, check_strategy
from polyseme.persistence import (
    ModelFileError,
    State,
    joined,
    read_model,
    within,
    write_model,
)
from polyseme.reading import METHODS, Features, Items, LabelScorer, NamedLabels, n_rows
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
from polyseme.space import ConceptSpace, Trainer
from polyseme.store import KnownDocuments
from polyseme.tags import (
    carried_labels,
    check_tags,
    complete_each,
    label_kinds,
    rank_labels,
    tag_columns,
    tag_sets,
    tag_table,
)
from polyseme.verdicts import Verdict, VerdictLog
from polyseme.vocabulary import Vocabulary, as_vocabulary

if TYPE_CHECKING:
    from polyseme.evidence import Evidence
    from polyseme.features.base import MediaFeatures
    from polyseme.holdout import Validation
    from polyseme.published.tagger import PublishedTagger
    from polyseme.warm_start import DocumentKeys
    from polyseme.word_vectors import WordVectors

Matrix = NDArray[np.float64]
# Labels, of any length each: an array of fixed width would have the longest one's everywhere.
StrArray = NDArray[np.object_]
KINDS = ("seen", "unseen", "oov")
Tagger: TypeAlias = "ZeroShotTagger | PublishedTagger"


class ZeroShotTagger(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Estimator):  # type: ignore[misc]
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
    store_ : KnownDocuments
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
    # What `fit` learns and later changes replace; see `_update`.
    space_: ConceptSpace
    store_: KnownDocuments
    features_: MediaFeatures | None
    named_: NamedLabels | None
    vocabulary_: Vocabulary
    validation_: Validation | None
    document_keys_: DocumentKeys
    indicator_: tuple[str, ...] | None
    seen_: frozenset[str]
    dropped_: tuple[str, ...]
    name_share_: float
    pooled_: bool
    measured_on_: tuple[int, int]
    normalize_labels_: bool
    n_features_in_: int
    n_fitted_: int
    n_vocabulary_: int
    _likeness: Matrix
    _corrections: Corrections
    _scorer: LabelScorer

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
        from polyseme import fitting
        from polyseme.training_set import gather, warn_of_lost_features
        from polyseme.warm_start import ColdStartError, DocumentKeys
        from polyseme.word_vectors import as_word_vectors

        if y is None:
            owner = type(self).__name__
            raise InputError(f"`{owner}` requires y to be passed, but the target y is None.")
        # Check the parameters, and draw the seeds of parts that have none of their own.
        template = fitting.check_parameters(self)
        vocabulary = as_vocabulary(self.vocabulary)
        generator = as_generator(self.random_state)
        space_seed = draw_seed(generator)
        feature_seed = draw_seed(generator)

        # Gather items and tag sets; go on from a former model where it fits.
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
        former = self if warm_start_from is None else warm_start_from
        warm = None
        if warm_start_from is not None:
            try:
                fitting.check_former(self, former)
                data = gathered(extractor=former.features_, is_learned=True)
                keys = DocumentKeys.of(data)
                warm = fitting.warm_start(former, data, keys, template)
            except ColdStartError as error:
                warnings.warn(
                    f"This fit starts from nothing and not from the former model: {error}.",
                    PolysemeWarning,
                    stacklevel=2,
                )
        if warm is None:
            data = gathered(extractor=self.features)
            keys = DocumentKeys.of(data)
        log = fitting.verdict_log(former, verdicts)
        words = None if label_vectors is None else as_word_vectors(label_vectors)
        space = fitting.space_to_train(self, template, data, space_seed, generator)

        # Measure on held-out items what can be promised; a warm start keeps what was measured.
        measured = None if warm is None else fitting.measured_before(former, data)
        if measured is None:
            if warm is None:
                fitting.warn_of_cost(self, template, data)
            # Without a seed other items would be held out when it goes on.
            checkpoint = space.checkpoint if fitting.is_seeded(self) else None
            measured = fitting.measure(
                self, data, template, words, generator, checkpoint, label_sets_only=label_sets_only
            )

        # Add what people said of single labels of items.
        rows = data.rows()
        if verdicts is None:
            rows = fitting.without_changed_rows(former, rows, data)
        column_by_key = {self._fit_key(label): place for place, label in enumerate(data.labels)}
        verdict_table, pool = data.answered(
            log.standing(),
            rows,
            lambda label: column_by_key.get(self._fit_key(vocabulary.resolve(label))),
            pooled=measured.pooled,
        )
        keys = keys.with_pool(pool)
        if warm is not None:
            pool_folds = fitting.former_folds(former, keys)[len(warm.folds) :]
            warm = replace(warm, pool_folds=pool_folds)

        # Train the space; encode the known documents, and items that verdicts are about.
        with unless_refused(space.checkpoint):
            fitting.train(
                space, data, pool, verdict_table, warm, trainer, progress, verbose=self.verbose
            )
            # Dropped are those without a label, of which `check_corpus` has told.
            store, dropped = KnownDocuments.of(space, data.labels, data.sets, data.taught)
            feedback = data.place_answered(Feedback(log, space.digest_), space, rows)
        name_share = 0.0 if words is None else measured.name_share
        likeness = np.zeros((0, 0))
        if words is not None and name_share:
            likeness = fitting.unseen_likeness(space, data.labels, words)

        # Take everything over at once: a fit that fails leaves the tagger as it was.
        self._update(
            space_=space,
            features_=data.extractor,
            n_features_in_=data.n_features,
            n_vocabulary_=len(data.sets.labels),
            n_fitted_=len(store.ids),
            seen_=data.seen,
            dropped_=dropped,
            normalize_labels_=self.normalize_labels,
            vocabulary_=vocabulary,
            indicator_=data.corpus.labels if is_indicator(y) else None,
            validation_=measured.validation,
            measured_on_=measured.sizes,
            pooled_=measured.pooled,
            name_share_=name_share,
            _likeness=likeness,
            document_keys_=keys,
            store_=store,
            named_=None,
            _corrections=Corrections(feedback),
        )
        self._set_feature_names(data.columns)
        if data.features is not None:
            warn_of_lost_features(data.features, space)
        return self

    def _fit_key(self, label: str) -> str:
        """Return what labels are compared by in a fit."""
        return normalize_label(label) if self.normalize_labels else label

    # ------------------------------------------------------------------ changes

    def _update(self, answered: Collection[str] | None = None, **attributes: Any) -> Self:
        """Take over changes, with every score that follows; where that fails, nothing has changed.

        Every change of documents, labels, names and verdicts goes this way.

        Parameters
        ----------
        answered : collection of str, optional
            Where verdicts alone have changed: the labels that these are about.
        attributes
            What has changed: fitted attributes by name.
        """
        tagger = copy(self)
        tagger.__dict__.update(attributes)
        named = tagger._labels_by_name()
        known_names = () if tagger.named_ is None else tagger.named_.labels
        corrections = tagger._corrections
        if answered is not None and named.labels == known_names:
            corrections = corrections.update(tagger._scorer, answered, tagger._answered_column)
        else:
            tagger._fit_scorer(named)
            corrections = corrections.with_scorer(tagger._scorer, tagger._answered_column)
        tagger._corrections = corrections
        tagger._scorer = replace(tagger._scorer, corrections=corrections.table)
        self.__dict__.update(tagger.__dict__)
        return self

    def _labels_by_name(self) -> NamedLabels:
        """Return labels that no document holds: those with a hint, then those by answers alone.

        The latter are in the order of their names, whichever was answered for first.
        """
        named = self.named_ or NamedLabels((), np.zeros((0, self.space_.n_seen_)))
        known_keys = {self._key(label) for label in self.store_.labels}
        have_hints = np.asarray(named.likeness.any(axis=1))
        rows = []
        for row, label in enumerate(named.labels):
            if have_hints[row] and self._key(label) not in known_keys:
                rows.append(row)
        hinted = [named.labels[row] for row in rows]
        known_keys.update(map(self._key, hinted))

        answered_labels = self._corrections.feedback.labels if self.n_features_in_ else ()
        resolved = map(self.vocabulary_.resolve, answered_labels)
        # Of several spellings of a label the first in the alphabet counts, or the one it has.
        label_by_key = {self._key(label): label for label in sorted(resolved, reverse=True)}
        own_spellings = {self._key(label): label for label in named.labels}
        for key in label_by_key.keys() & own_spellings.keys():
            label_by_key[key] = own_spellings[key]
        unknown = [label for key, label in label_by_key.items() if key not in known_keys]
        likeness = np.pad(named.likeness[rows], ((0, len(unknown)), (0, 0)))
        return NamedLabels((*hinted, *sorted(unknown)), likeness)

    def _fit_scorer(self, named: NamedLabels) -> None:
        """Fit how every label is scored, and the order of classes."""
        store = self.store_
        scorer = LabelScorer.fit(
            self.space_, store, named, self.n_fitted_, self.name_share_, self._likeness
        )
        labels = scorer.labels
        keys = [self._key(label) for label in labels]
        blocked = {self._key(label) for label in self.vocabulary_.blocked}
        in_use = np.array([key not in blocked for key in keys], dtype=bool)
        # A label whose documents were all taken away is not suggested any more.
        in_use[: len(store.labels)] &= store.counts > 0
        kinds = label_kinds(labels, self.seen_, self.n_vocabulary_)
        self.named_ = named if named.labels else None
        self._column_by_key = {key: column for column, key in enumerate(keys)}
        self._set_classes(labels, kinds)
        self._scorer = replace(
            scorer,
            kinds=kinds,
            in_use=in_use,
            implications=self.vocabulary_.raised(labels),
            class_columns=self._class_columns,
        )

    def _set_classes(self, labels: tuple[str, ...], kinds: NDArray[np.str_]) -> None:
        """Order labels as classes: the columns of an indicator matrix first."""
        self._class_columns: IntArray | None = None
        self.classes_: StrArray = np.array(labels, dtype=object)
        self.kinds_: NDArray[np.str_] = kinds
        if self.indicator_ is None:
            return
        column_by_key = dict(self._column_by_key)
        first_columns = [column_by_key.pop(self._key(label), -1) for label in self.indicator_]
        further_columns = list(column_by_key.values())
        columns = np.array([*first_columns, *further_columns], dtype=np.int64)
        further_labels = [labels[column] for column in further_columns]
        self._class_columns = columns
        self.classes_ = np.array([*self.indicator_, *further_labels], dtype=object)
        self.kinds_ = np.where(columns < 0, "oov", kinds[columns])

    def _key(self, label: str) -> str:
        """Return what labels are compared by."""
        return normalize_label(label) if self.normalize_labels_ else label

    def _answered_column(self, label: str) -> int | None:
        """Return the column of a label that was answered for; None where it is not known."""
        return self._column_by_key.get(self._key_of_name(label))

    def _key_of_name(self, name: str) -> str:
        """Return what a label is compared by, given any of its names."""
        return self._key(self.vocabulary_.resolve(name))

    def _column(self, label: str) -> int:
        """Find a label's column, also of a label by name or by another name."""
        check_fitted(self, "store_")
        if isinstance(label, str):
            column = self._answered_column(label)
            if column is not None:
                return column
            label = self.vocabulary_.resolve(label)
        return label_column(self.store_.labels, label, normalize=self.normalize_labels_)

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
        return self._scorer.all_codes(features, tag_matrix)

    @property
    def _n_features_out(self) -> int:
        """How many dimensions `transform` returns; scikit-learn names them."""
        return self.space_.n_dimensions

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
        labels = self._scorer.labels
        return features, tag_table(completed, labels, n, normalize=self.normalize_labels_)

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
        """Encode items once, to ask about them again and again.

        The result stands for X in every method that asks about items, as long as the space is the
        same: also when documents and labels come and go and verdicts are given. Logits are cached
        as well, so that a verdict on one label costs no more than that label.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        ids : sequence of str, optional
            Names of the items, by which verdicts know them; by default those that X has.
        most_bytes : int
            What may be cached in memory beside X. Where codes are too large, they are computed
            again whenever documents or labels come or go; where logits are as well, whenever items
            are asked about.

        Returns
        -------
        EncodedItems
        """
        check_fitted(self, "store_")
        check_number("most_bytes", most_bytes, owner="encode", low=0, whole=True)
        features: Any = self._features_of(X, keep_single=True)
        if isinstance(features, EncodedItems):
            features = features.features
        names = item_names(X) if ids is None else as_names(ids, "`ids` of `encode`")
        if names is not None and len(names) != features.shape[0]:
            raise InputError(
                f"`ids` of `encode` names {len(names)} items; X has {features.shape[0]}."
            )
        return self._scorer.encode(features, names, int(most_bytes))

    def _score(
        self,
        X: object,
        tags: Iterable[Collection[str]] | None,
        method: str = "space",
        kinds: Collection[str] | None = None,
    ) -> Iterator[tuple[slice, Matrix]]:
        """Check what is asked about and return its scores by blocks: logits, or shares of votes."""
        features, tag_matrix = self._check_query(X, tags)
        check_option("method", method, METHODS, owner="rank")
        if kinds is not None:
            kinds = as_names(kinds, "kinds of labels")
            for kind in kinds:
                check_option("kinds", kind, KINDS, owner="rank")
        return self._scorer.score(features, tag_matrix, method, kinds)

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
        scores = self._concatenate(self._score(X, tags, method))
        return scores if method == "priming" else sigmoid(scores)

    def decision_function(self, X: object, tags: Iterable[Collection[str]] | None = None) -> Matrix:
        """Return the logit of every label for each item, (n, n_classes); see `predict_proba`."""
        return self._concatenate(self._score(X, tags))

    def _concatenate(self, blocks: Iterator[tuple[slice, Matrix]]) -> Matrix:
        """Return blocks of scores as one table, (n, n_classes)."""
        tables = [np.empty((0, len(self.classes_)))]
        tables += [scores for _, scores in blocks]
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
        from polyseme.metrics import example_map, true_labels

        scores = self.predict_proba(X)
        return example_map(true_labels(self, X, y), scores)

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
        others = np.inf if self.validation_ is None else self.validation_.threshold(precision)
        if np.isinf(others) and self.space_.n_seen_ < len(self._scorer.labels):
            warnings.warn(
                f"A precision of {precision:g} cannot be promised of labels that no training item "
                f"carries, so none of them is given; {self._best_promise()}. `rank` gives the best "
                "of them (--top 10), `kinds` those of one kind (--kind unseen).",
                PolysemeWarning,
                stacklevel=3,
            )
        return self._scorer.thresholds(seen, others)

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
        blocks = self._score(X, tags, kinds=kinds)
        least = np.full(len(self.classes_), threshold)
        if precision is not None:
            if X is None:
                raise InputError(
                    "A precision is learned on items with features; for tags alone give a "
                    "`threshold`."
                )
            with warnings.catch_warnings():
                if kinds is not None and set(as_names(kinds, "kinds of labels")) == {"seen"}:
                    warnings.simplefilter("ignore", PolysemeWarning)
                least = self.thresholds(precision)
        if self.indicator_ is not None:
            is_likely = sigmoid(self._concatenate(blocks)) >= least
            return is_likely[:, : len(self.indicator_)].astype(np.int64)
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
        blocks = self._score(X, tags, method, kinds)
        label_blocks = [np.empty((0, min(k, len(self.classes_))), dtype=object)]
        score_blocks = [np.empty(label_blocks[0].shape)]
        for _, scores in blocks:
            shares = scores if method == "priming" else sigmoid(scores)
            places, best_scores = rank_labels(shares, self._scorer.preference, k)
            label_blocks.append(self.classes_[places])
            score_blocks.append(best_scores)
        return np.concatenate(label_blocks), np.concatenate(score_blocks)

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
        labels = self._scorer.labels
        columns = tag_columns(self._own_names(tags), labels, normalize=self.normalize_labels_)
        self._scorer.check_learned(columns)
        # Unknown tags have been named by now.
        known_tags = [labels[column] for column in columns]
        ranked_labels, scores = self.rank(None, len(self.classes_), [known_tags])
        is_new = np.array([label not in known_tags for label in ranked_labels[0]], dtype=bool)
        n_suggested = min(k, len(self.classes_) - len(columns))
        return ranked_labels[0][is_new][:n_suggested], scores[0][is_new][:n_suggested]

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
        from polyseme.evidence import explain_label

        check_fitted(self, "space_")
        check_number("k", k, owner="explain", low=1, whole=True)
        target = self._column(label)
        if x is not None and not isinstance(x, EncodedItems):
            x = as_row(x) if self.features_ is None else self.features_.single(x)
        items, tag_matrix = self._check_query(x, None if tags is None else [tags])
        features = items.table() if isinstance(items, EncodedItems) else items
        n = n_rows(features, tag_matrix)
        if n != 1:
            raise InputError(f"`explain` takes one item; got {n}.")

        # Its score may be that of a label that implies it.
        scorer = self._scorer
        column = scorer.highest_source(features, tag_matrix, target)
        given = () if tag_matrix is None else tag_matrix.indices.tolist()
        if target in given or column in given:
            raise InputError(
                f"'{scorer.labels[column]}' is among the tags that are given, so there is nothing "
                "to explain; leave it out of them to ask where its score would come from."
            )
        evidence = explain_label(scorer, features, tag_matrix, column, k)
        if column == target:
            return evidence
        probability = 0.0
        if scorer.in_use[target]:
            probability = float(sigmoid(np.array(evidence.logit)))
        return replace(
            evidence,
            label=scorer.labels[target],
            kind=str(scorer.kinds[target]),
            probability=probability,
            implied_by=evidence.label,
        )

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
        self._update(store_=store, dropped_=self.dropped_ + dropped)
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
        n_fitted = sum(name in left for name in self.store_.ids[: self.n_fitted_])
        return self._update(store_=store, n_fitted_=n_fitted)

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
        from polyseme.word_vectors import as_word_vectors, name_likeness

        check_fitted(self, "store_")
        words = as_word_vectors(vectors)
        names = self._names(labels)
        new_labels = tuple(name for name in names if self._key(name) not in self._column_by_key)
        if new_labels:
            seen_labels = [self._scorer.labels[column] for column in self.space_.seen_columns]
            likeness = name_likeness(new_labels, seen_labels, words)
            named = NamedLabels(new_labels, likeness)
            if self.named_ is not None:
                all_likeness = np.concatenate([self.named_.likeness, likeness])
                named = NamedLabels(self.named_.labels + new_labels, all_likeness)
            self._update(named_=named)
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
        removed = {self._scorer.labels[column] for column in columns}
        store = self.store_
        if removed & set(store.labels):
            store = store.without_labels(self.space_, removed)

        # Answers about them stay in the log, but count no more; behind one there may be another.
        corrections = self._corrections
        while True:
            standing = corrections.feedback.labels
            answered = [label for label in standing if self._answered_column(label) in columns]
            if not answered:
                break
            self.verdicts_.undo(corrections.feedback.numbers(answered))
            corrections, _ = corrections.refreshed()
        named = _without(self.named_, removed)
        return self._update(store_=store, named_=named, _corrections=corrections)

    def block(self, labels: Collection[str], undo: bool = False) -> Self:
        """Never suggest some labels, or suggest them again; given tags may still be among them.

        Parameters
        ----------
        labels : collection of str
        undo : bool
            Whether they may be suggested from now on.
        """
        names = [self._scorer.labels[self._column(label)] for label in self._names(labels)]
        return self._update(vocabulary_=self.vocabulary_.blocking(names, undo=undo))

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
        old = self._scorer.labels[column]
        (new,) = self._names(name)
        taken_keys = self._column_by_key.keys() - {self._key(old)}
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
        validation = self.validation_
        if validation is not None:
            precisions = {new_name(label): pair for label, pair in validation.labels.items()}
            validation = replace(validation, labels=precisions)
        indicator = self.indicator_
        if indicator is not None:
            indicator = tuple(map(new_name, indicator))
        return self._update(
            store_=store,
            named_=named,
            vocabulary_=vocabulary,
            seen_=frozenset(map(new_name, self.seen_)),
            validation_=validation,
            indicator_=indicator,
        )

    def merge(self, label: str, into: str) -> Self:
        """Let one label stand for another, too: in known documents, given tags and scores.

        Parameters
        ----------
        label, into : str
            Two known labels; the first is not suggested any more, and the second whenever either
            would be.
        """
        source = self._scorer.labels[self._column(label)]
        target = self._scorer.labels[self._column(into)]
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
        return self._update(store_=store, named_=named, vocabulary_=vocabulary)

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
        self._update(labels, _corrections=corrections)
        self._corrections = self._corrections.stored()

    def _project(self, features: Items, rows: Sequence[int]) -> NDArray[np.float32]:
        """Return the projections of some rows, (n, n_sketch)."""
        return self.space_.sketch(_rows(features, rows))

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
        from polyseme.active_learning import select_questions

        check_number("k", k, owner="ask", low=1, whole=True)
        check_strategy(strategy, tagged=tags is not None)
        check_fitted(self, "store_")
        features = self._features_of(X)
        n = features.shape[0]
        ids = item_names(X)
        names = [str(row) for row in range(n)] if ids is None else ids
        column = None
        if label is not None:
            column = self._column(label)
            if not self._scorer.in_use[column]:
                raise InputError(
                    f"'{label}' is blocked or was removed, so that nothing is asked about it."
                )
        carried = None
        if tags is not None:
            carried = carried_labels(
                X, tags, self.classes_.tolist(), self.vocabulary_, normalize=self.normalize_labels_
            )
            if carried.shape[0] != n:
                raise InputError(f"`tags` has {carried.shape[0]} collections for {n} instances.")
        return select_questions(
            self._scorer,
            features,
            names,
            self.classes_,
            column,
            carried,
            self._corrections.feedback.triples(),
            self._answered_column,
            k,
            strategy,
            as_generator(random_state),
        )

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
        # Verdicts come first: no model is there without what it learned from.
        corrections = self._corrections.saved_to(Path(path))
        write_model(path, "tagger", *self.get_state())
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
        keys = self.document_keys_._asdict()
        arrays |= {f"keys.{name}": array for name, array in keys.items()}
        if self.named_ is not None:
            arrays["named"] = self.named_.likeness
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted tagger from `get_state`."""
        from polyseme.features import extractor_of
        from polyseme.holdout import Validation
        from polyseme.warm_start import DocumentKeys

        _VALUES.check(config)
        array_names = ("likeness", "named", *_KEYS)
        check_parts(arrays, config, ("space", "store", "features"), array_names)
        tagger = cls(normalize_labels=config["normalize_labels"])
        with part("space"):
            space = ConceptSpace.from_state(config["space"], within(arrays, "space"))
        tagger.space_ = tagger.space = space
        with part("store"):
            store = KnownDocuments.from_state(config["store"], within(arrays, "store"))
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
        tagger.document_keys_ = DocumentKeys(**within(arrays, "keys"))
        tagger._corrections = Corrections(Feedback(VerdictLog(), space.digest_))
        tagger.indicator_ = None
        if config["indicator"] is not None:
            tagger.indicator_ = tuple(config["indicator"])
        named = None
        if config["named"] is not None:
            named = NamedLabels(tuple(config["named"]), arrays["named"])
        return tagger._update(store_=store, named_=named)


# What the state of a tagger holds beside that of its parts; those check their own.
_VALUES = Fields(
    {
        "space": Table(Anything()),
        "store": Table(Anything()),
        "features": Table(Anything()),
        "method": Choice(("space",)),
        "media": Maybe(Choice(MEDIA)),
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
_KEYS = ("keys.names", "keys.items", "keys.tags")
_DECLARED = {
    **{name: Array("uint64", ("n_in_folds",), 0, 2.0**64) for name in _KEYS},
    "likeness": Array("float64", ("n_rows", "n_columns")),
    "named": Array("float64", ("n_named", "n_seen")),
}


def _check_parts_fit(
    config: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    space: ConceptSpace,
    store: KnownDocuments,
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
    config, arrays = read_model(path, "tagger")
    with reading(path):
        if config.get("method") == "space":
            tagger = ZeroShotTagger.from_state(config, arrays)
            corrections = Corrections.load(VerdictLog(path), tagger.space_)
            tagger._use_corrections(corrections, corrections.feedback.labels)
            return tagger
        from polyseme.published.tagger import PublishedTagger

        if config.get("method") == "published":
            return PublishedTagger.from_state(config, arrays)
    raise ModelFileError(
        f"The model at '{path}' has the method {shown(config.get('method'))}, which this version "
        "of polyseme does not know; fit it anew."
    )
