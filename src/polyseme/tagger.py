"""The tagger: tag sets and features in, ranked labels out, all by way of one concept space.

In: tag sets and features. Out: a `ZeroShotTagger` that ranks, completes, explains, grows without
re-training, and is kept on disk.

Terms: an *item* has features, one row of X; a *document* is the labels that occur together on one
item, and a *tag* a label of it. A *code* is the vector of an item or of a document in the concept
space. A *column* is a label's place in `_scorer.labels` (those of the documents, then those known
by name alone), a *class* its place in `classes_`; they differ where y was an indicator matrix. A
label's *logit* is the logarithm of the odds of its probability.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.estimator import ClassNamePrefixFeaturesOutMixin, Estimator, TransformerMixin
from polyseme.base.text import shown
from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    as_names,
    as_row,
    check_fitted,
    check_number,
    check_option,
    check_path,
    draw_seed,
)
from polyseme.documents.corpus import Documents, is_indicator, normalize_label
from polyseme.documents.tags import (
    check_tags,
    complete_each,
    rank_labels,
    tag_columns,
    tag_sets,
    tag_table,
)
from polyseme.documents.vocabulary import Vocabulary, as_vocabulary
from polyseme.fitted_tagger import StrArray
from polyseme.label_changes import LabelChanges
from polyseme.scoring.encoded import EncodedItems, item_names
from polyseme.scoring.scorer import METHODS, Items, n_rows
from polyseme.space.calibration import sigmoid
from polyseme.space.concept_space import ConceptSpace
from polyseme.storage.model_file import ModelFileError, SavedEstimator, find_model_file, read_file
from polyseme.verdict_learning import VerdictLearning

if TYPE_CHECKING:
    from polyseme.feedback.verdict_log import Verdict, VerdictLog
    from polyseme.media.base import MediaFeatures
    from polyseme.published.tagger import PublishedTagger
    from polyseme.scoring.evidence import Evidence
    from polyseme.space.space_fit import Trainer

Matrix = NDArray[np.float64]
KINDS = ("seen", "unseen", "oov")
Tagger: TypeAlias = "ZeroShotTagger | PublishedTagger"


class ZeroShotTagger(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn ships no types
    TransformerMixin,  # type: ignore[misc]  # nor here
    SavedEstimator,
    LabelChanges,
    VerdictLearning,
):
    """Rank every label for an item: seen, unseen and oov.

    Documents and items are encoded in one `ConceptSpace`, and every label is scored from a code.
    Tags that an item has or probably has are part of its code, so that labels which no training
    item carries are found by the tags they go with.

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
        A folder for the state of the training; an interrupted fit is resumed from there. With a
        whole number as `random_state` the small spaces of `n_validations` have folders of their
        own beside it (`NAME.draw-0` and so on).
    device : str, optional
        Where the space is trained, as torch names it ("cpu", "cuda"); by default a GPU where there
        is one. Trained models are used on the processor.
    vocabulary : Vocabulary, str, Path or None
        Labels never to be suggested, other names of labels, and which labels imply which; or a
        TOML file with these.
    n_validations : int
        How often `fit` holds out some of its items and makes some of their labels unseen, to
        measure how well both kinds are ranked; see `validation_`. Each time it trains a small
        space. With 0 nothing is measured, and `predict` can promise no precision of unseen labels.
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
        How well smaller spaces ranked seen and unseen labels for training items that were held
        out; None without features, and where there are too few items or labels.
    name_share_ : float
        The share of `label_names` in the readouts of unseen labels; 0 where they did not help.
    names_ : NameEvidence or None
        How items and labels' names are compared, and by how much that counts; None where names are
        from another encoder than items, and where they do not help.
    seen_ : frozenset of str
        The labels of the label sets that training items carry.
    dropped_ : tuple of str
        Names of documents left out, because they hold no label that the space has learned.
    n_features_in_ : int
        Columns of X, or of what the feature extractor makes of it; 0 without features.
    feature_names_in_ : array of str, shape (n_features_in_,)
        Names of the columns, if X was a frame that has them. Later frames are put in this order,
        and refused if columns are missing or unknown.
    normalize_labels_ : bool
    vocabulary_ : Vocabulary
        Changed by `block`, `rename` and `merge`.
    measured_on_ : (int, int)
        How many items and labels there were when `validation_` was measured; a warm start keeps it.
    pooled_ : bool
        Whether the fit learned from items without tags; `validation_` has their gain.
    verdicts_ : VerdictLog
        What people said about its tags: in the folder of a tagger that was loaded or saved, else in
        memory. Another `fit` keeps it.
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
        label_names: object = None,
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
            More tag sets, without items, that teach what labels mean, as those of `y` do.
        label_names : WordVectors, mapping, array, csr matrix, callable or encoder, optional
            Vectors of labels' names: by label or by the words of labels, a row for each column of
            an indicator matrix, or an encoder, which takes a list of texts and returns a row for
            each (a callable, or an object with `encode`). Where they have as many numbers as items
            have features, they are taken to come from the same encoder, and how like an item and a
            name are is evidence: by how much it counts is learned on held-out items, once for seen
            labels and once for labels made unseen, and may be nothing; see `names_`. Dense vectors
            of any origin join in the readouts of unseen labels as well, by the share that does best
            on labels made unseen if it brings more than a point; see `name_share_`. Without names,
            a feature extractor that has `encode_names` reads them.
        trainer : callable, optional
            Trains the space; by default this process does. `polyseme.batch.RayTraining(workers=2)`
            trains it on a Ray cluster, with the same outcome.
        unlabelled : as X, optional
            Items without tags, the pool. The fit learns from them if that improves the ranking of
            labels made unseen: see `pooled_`. Their probable tags are brought to the frequency
            that documents have, so they should be such items as will be ranked.
        verdicts : VerdictLog, its path, or iterable of Verdict, optional
            What people said of single labels of these items, by their ids, files or row numbers; if
            there is a pool without ids, numbers are those of its rows. By default the tagger's own
            verdicts so far, except those on row numbers that are other items now.
        label_sets_only : bool
            Whether `label_sets` alone teach what labels mean, for example because they come from
            another source, which uses tags differently. Tags that only items carry are "oov" then.
        warm_start_from : ZeroShotTagger, optional
            A fitted tagger, perhaps this one. Training goes on from its members, in a tenth of the
            steps; give all items, old and new. Labels are matched by name, features are
            standardised as they were, and a feature extractor with the same parameters is not
            fitted again. Without `verdicts`, the fit learns from those of the former tagger;
            without `label_names`, names that are evidence stay.
        progress : callable, optional
            Takes the number of rounds of training that are done, and of all rounds.

        Notes
        -----
        A warm start keeps every known document in its fold, so that probable tags and calibration
        still rest on members that never saw an item. Items are found again by their features, else
        by their names or files, and label sets by names or labels. Rows without names whose
        features have changed count as new. `validation_`, `name_share_` and `pooled_` are taken
        from the former fit, unless the number of items or labels has changed by more than a tenth
        since they were measured; then they are measured anew, which takes longer than the fit.
        Where the former tagger cannot be used (other features, another plan, most labels or items
        not known, documents of one group in several folds), a warning says why and the fit starts
        from nothing.
        """
        from polyseme import fit_stages
        from polyseme.feedback.corrections import Corrections
        from polyseme.feedback.standing_verdicts import Feedback
        from polyseme.fitting.training_set import gather, warn_of_lost_features
        from polyseme.fitting.warm_start import ColdStartError, DocumentKeys
        from polyseme.scoring.known_documents import KnownDocuments
        from polyseme.storage.checkpoints import unless_refused

        if y is None:
            owner = type(self).__name__
            raise InputError(f"`{owner}` requires y to be passed, but the target y is None.")
        # Check the parameters, and draw the seeds of parts that have none of their own.
        space_template = fit_stages.check_parameters(self)
        vocabulary = as_vocabulary(self.vocabulary)
        generator = as_generator(self.random_state)
        space_seed = draw_seed(generator)
        feature_seed = draw_seed(generator)

        # Gather items and tag sets; go on from a former model where it fits.
        gather_data = partial(  # no frame of its own: warnings name the line that calls `fit`
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
        warm_start = None
        if warm_start_from is not None:
            try:
                fit_stages.check_former(self, former)
                data = gather_data(extractor=former.features_, is_learned=True)
                document_keys = DocumentKeys.of(data)
                warm_start = fit_stages.warm_start(former, data, document_keys, space_template)
            except ColdStartError as error:
                lost_names = ""
                if label_names is None and getattr(former, "names_", None) is not None:
                    lost_names = " It has no names of labels; give `label_names` anew."
                warnings.warn(
                    f"This fit starts from nothing and not from the former model: {error}."
                    f"{lost_names}",
                    PolysemeWarning,
                    stacklevel=2,
                )
        if warm_start is None:
            data = gather_data(extractor=self.features)
            document_keys = DocumentKeys.of(data)
        verdict_log = fit_stages.verdict_log(former, verdicts)
        word_vectors, names = fit_stages.read_label_names(
            label_names,
            data,
            former_names=None if warm_start is None else former.names_,
            has_columns=is_indicator(y),
        )
        space = fit_stages.space_to_train(self, space_template, data, space_seed, generator)

        # Measure on held-out items what can be promised; a warm start keeps what was measured.
        measured = None
        if warm_start is not None:
            measured = fit_stages.measured_before(former, data, names)
        if measured is None:
            if warm_start is None:
                fit_stages.warn_of_cost(self, space_template, data)
            # Without a seed, a fit that is resumed would hold out other items.
            checkpoint = space.checkpoint if fit_stages.is_seeded(self) else None
            measured = fit_stages.measure(
                self,
                data,
                space_template,
                word_vectors,
                names,
                generator,
                checkpoint,
                label_sets_only=label_sets_only,
            )

        # Add what people said of single labels of items.
        row_by_item = data.row_by_name()
        if verdicts is None:
            row_by_item = fit_stages.without_changed_rows(former, row_by_item, data)
        column_by_key = {self._fit_key(label): column for column, label in enumerate(data.labels)}

        column_by_leaf: dict[str, int] = {}
        if vocabulary.has_paths(data.labels):
            from polyseme.base.paths import columns_by_leaf

            column_by_leaf = columns_by_leaf(data.labels, self._fit_key, vocabulary.separator)

        def column_of(label: str) -> int | None:
            key = self._fit_key(vocabulary.resolve(label))
            return column_by_key.get(key, column_by_leaf.get(key))

        verdict_table, pool = data.answered(
            verdict_log.standing(), row_by_item, column_of, pooled=measured.pooled
        )
        document_keys = document_keys.with_pool(pool)
        if warm_start is not None:
            former_folds = fit_stages.former_folds(former, document_keys)
            n_documents = len(warm_start.folds)
            warm_start = replace(warm_start, pool_folds=former_folds[n_documents:])

        # Train the space; encode the known documents, and items that verdicts are about.
        with unless_refused(space.checkpoint):
            fit_stages.train(
                space,
                data,
                pool,
                verdict_table,
                warm_start,
                trainer,
                progress,
                verbose=self.verbose,
            )
            # Documents without a label are dropped; `check_corpus` has warned of them.
            store, dropped = KnownDocuments.of(space, data.labels, data.sets, data.row_documents)
            feedback = Feedback(verdict_log, space.digest_)
            feedback = data.store_answered_vectors(feedback, space, row_by_item)
        name_share = 0.0 if word_vectors is None else measured.name_share
        likeness = np.zeros((0, 0))
        if word_vectors is not None and name_share:
            likeness = fit_stages.unseen_likeness(space, data.labels, word_vectors)

        # Take everything over at once: a fit that fails leaves the tagger as it was.
        self._update(
            space_=space,
            features_=data.extractor,
            n_features_in_=data.n_all_features,
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
            names_=fit_stages.weighted_names(
                names, measured.validation, were_given=label_names is not None
            ),
            _likeness=likeness,
            document_keys_=document_keys,
            store_=store,
            named_=None,
            _corrections=Corrections(feedback),
        )
        self._set_feature_names(data.feature_names)
        if data.features is not None:
            warn_of_lost_features(data.features, space)
        return self

    def _fit_key(self, label: str) -> str:
        """Return what labels are compared by in a fit, whose parameter may differ from a former's.

        Once fitted, `_key` compares labels by `normalize_labels_`.
        """
        return normalize_label(label) if self.normalize_labels else label

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
        """Return how many dimensions `transform` returns; scikit-learn makes names for them."""
        return self.space_.n_dimensions

    def _check_query(
        self, X: object, tags: Iterable[Collection[str]] | None
    ) -> tuple[Items | None, sp.csr_matrix | None]:
        """Check the items and tags of a query, and return them as the scorer takes them.

        Returns
        -------
        features : array, csr matrix or EncodedItems, shape (n, n_features), or None
        tag_matrix : 0/1 csr matrix, shape (n, n_labels), or None
            Columns in the order of `_scorer.labels`. At least one of the two is there.
        """
        check_fitted(self, "space_")
        features = None
        if X is not None:
            features = self._features_of(X)
        if tags is None:
            if features is None:
                raise InputError("Give features, tags, or both.")
            return features, None
        tag_lists = [self._own_names(item_tags) for item_tags in check_tags(tags)]
        n_items = len(tag_lists) if features is None else features.shape[0]
        labels = self._scorer.labels
        tag_matrix = tag_table(tag_lists, labels, n_items, normalize=self.normalize_labels_)
        return features, tag_matrix

    def _own_names(self, tags: Collection[str]) -> Collection[str]:
        """Return the tags of an item under their labels' own names, with the tags they imply.

        What is no collection of texts comes back as it is: the check of documents, which follows,
        refuses it with a message of its own.
        """
        if isinstance(tags, (str, bytes, Mapping)) or not isinstance(tags, Iterable):
            return tags
        names = list(tags)
        for name in names:
            if not isinstance(name, str):
                return names
        if not self.vocabulary_ and not self.vocabulary_.has_paths(names):
            return tags
        return self.vocabulary_.complete(names)

    def encode(
        self, X: object, ids: Sequence[str] | None = None, most_bytes: int = 2**30
    ) -> EncodedItems:
        """Encode items once, to rank them or ask about them again and again.

        The result can take the place of X in every method that asks about items, until the tagger
        is fitted again: also after documents, labels and verdicts have come or gone. Logits are
        cached as well, so that after a verdict on one label only that label is scored again.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        ids : sequence of str, optional
            Names of the items, by which verdicts know them; by default those that X has.
        most_bytes : int
            The most memory for caches beside X. If codes do not fit, they are computed again
            whenever documents or labels come or go; if logits do not fit, at every query.

        Returns
        -------
        EncodedItems
        """
        check_fitted(self, "store_")
        check_number("most_bytes", most_bytes, owner="encode", low=0, high=2**63 - 1, whole=True)
        features: Any = self._features_of(X, keep_single=True)
        if isinstance(features, EncodedItems):
            features = features.features
        names = item_names(X, self.features_)
        if ids is not None:
            names = as_names(ids, "`ids` of `encode`")
        if names is not None:
            n_names = len(names)
            n_items = features.shape[0]
            if n_names != n_items:
                raise InputError(f"`ids` of `encode` names {n_names} items; X has {n_items}.")
        return self._scorer.encode(features, names, int(most_bytes))

    def _score(
        self,
        X: object,
        tags: Iterable[Collection[str]] | None,
        method: str = "space",
        kinds: Collection[str] | None = None,
    ) -> Iterator[tuple[slice, Matrix]]:
        """Check a query and yield the scores of blocks of its items.

        Yields
        ------
        rows : slice
            The block's items; blocks follow each other.
        scores : float64 array, shape (n_rows, n_classes)
            Logits or, by the method "priming", shares of votes between 0 and 1. Labels that may
            not be suggested have the lowest score (-inf or 0), given tags the highest (inf or 1).
        """
        features, tag_matrix = self._check_query(X, tags)
        check_option("method", method, METHODS, owner="rank")
        if kinds is not None:
            kinds = as_names(kinds, "kinds of labels")
            for kind in kinds:
                check_option("kinds", kind, KINDS, owner="rank")
        scorer = self._scorer
        return scorer.score(features, tag_matrix, method, kinds)

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
        """Return the blocks of `_score` as one table, (n, n_classes), also of no item."""
        n_classes = len(self.classes_)
        tables = [np.empty((0, n_classes))]
        for _, scores in blocks:
            tables.append(scores)
        return np.concatenate(tables)

    def score(self, X: object, y: Documents, sample_weight: object = None) -> float:
        """Return the mean average precision of the items' rankings (E-MAP), between 0 and 1.

        Parameters
        ----------
        X : array-like, scipy sparse or frame, shape (n, n_features), or what `features` takes
        y : as for `fit`
            The true labels of each item. Labels that the tagger does not know are left out.
        sample_weight : None
            scikit-learn passes it on; weights are not taken.
        """
        if sample_weight is not None:
            raise InputError("`score` of `ZeroShotTagger` takes no weights.")
        from polyseme.metrics import example_map, true_labels

        scores = self.predict_proba(X)
        truth = true_labels(self, X, y)
        return example_map(truth, scores)

    def thresholds(self, precision: float) -> Matrix:
        """Return the least probability at which `predict` suggests each label, for a precision.

        Parameters
        ----------
        precision : float
            The share of suggested labels that should be true, between 0.01 and 0.99.

        Returns
        -------
        float64 array, shape (n_classes,)
            Probabilities, in the order of `classes_`. Learned on training items that members had
            not seen and, for labels that are not seen, on labels that were made unseen
            (`validation_`): infinity where these say that such a precision cannot be promised.
        """
        check_fitted(self, "space_")
        check_number("precision", precision, owner="predict", low=0.01, high=0.99)
        if not self.n_features_in_:
            raise InputError("A precision needs features to learn it from; this tagger has none.")
        seen_threshold = self.space_.threshold(precision)
        unseen_threshold = np.inf
        if self.validation_ is not None:
            unseen_threshold = self.validation_.threshold(precision)
        has_other_labels = self.space_.n_seen_ < len(self._scorer.labels)
        if np.isinf(unseen_threshold) and has_other_labels:
            warnings.warn(
                f"A precision of {precision:g} cannot be promised of labels that no training item "
                f"carries, so none of them is given; {self._best_promise()}. `rank` gives the best "
                "of them (--top 10), `kinds` those of one kind (--kind unseen).",
                PolysemeWarning,
                stacklevel=3,
            )
        return self._scorer.thresholds(seen_threshold, unseen_threshold)

    def _best_promise(self) -> str:
        """Return a clause on the precision that can be asked of unseen labels, for a warning."""
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
            The share of suggested labels that should be true, in place of `threshold`; see
            `thresholds`.
        tags : iterable of collections of str, optional
            Labels that each item is known to have; see `predict_proba`.
        kinds : collection of {"seen", "unseen", "oov"}, optional
            Suggest only labels of these kinds, and those in `tags`.

        Returns
        -------
        list of tuples of str, length n; or int64 array, shape (n, n_columns)
            As y was in `fit`: tag sets, or a 0/1 matrix with the same columns.
        """
        check_number("threshold", threshold, owner="predict", low=0, high=1)
        blocks = self._score(X, tags, kinds=kinds)
        n_classes = len(self.classes_)
        thresholds = np.full(n_classes, threshold)
        if precision is not None:
            if X is None:
                raise InputError(
                    "A precision is learned on items with features; for tags alone give a "
                    "`threshold`."
                )
            only_seen = kinds is not None and set(as_names(kinds, "kinds of labels")) == {"seen"}
            with warnings.catch_warnings():
                if only_seen:  # then nobody cares what unseen labels promise
                    warnings.simplefilter("ignore", PolysemeWarning)
                thresholds = self.thresholds(precision)
        if self.indicator_ is not None:
            logits = self._concatenate(blocks)
            is_likely = sigmoid(logits) >= thresholds
            # The columns of the indicator matrix are the first classes; the others are newer.
            n_columns = len(self.indicator_)
            return is_likely[:, :n_columns].astype(np.int64)
        predicted_tags: list[tuple[str, ...]] = []
        for _, logits in blocks:
            probabilities = sigmoid(logits)
            predicted_tags += tag_sets(probabilities, thresholds, self.classes_)
        return predicted_tags

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
            Falling from left to right; of equal scores the commoner label is first.
        """
        check_number("k", k, owner="rank", low=1, whole=True)
        blocks = self._score(X, tags, method, kinds)
        preference = self._scorer.preference
        n_ranked = min(k, len(self.classes_))
        no_rows = (0, n_ranked)  # without any item the tables have this shape
        label_blocks = [np.empty(no_rows, dtype=object)]
        score_blocks = [np.empty(no_rows)]
        for _, block_scores in blocks:
            shares = block_scores
            if method != "priming":
                shares = sigmoid(block_scores)
            best_classes, best_shares = rank_labels(shares, preference, k)
            label_blocks.append(self.classes_[best_classes])
            score_blocks.append(best_shares)
        labels = np.concatenate(label_blocks)
        scores = np.concatenate(score_blocks)
        return labels, scores

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
        """Complete one tag set: return labels and probabilities, (at most k,), best first."""
        labels = self._scorer.labels
        n_classes = len(self.classes_)
        tag_names = self._own_names(tags)
        given_columns = tag_columns(tag_names, labels, normalize=self.normalize_labels_)
        self._scorer.check_learned(given_columns)
        # `tag_columns` has warned of unknown tags; without them `rank` does not warn again.
        known_tags = [labels[column] for column in given_columns]
        (ranked_labels,), (ranked_scores,) = self.rank(None, n_classes, [known_tags])
        is_new = ~np.isin(ranked_labels, known_tags)
        n_suggested = min(k, n_classes - len(known_tags))
        new_ranks = np.flatnonzero(is_new)
        suggested_ranks = new_ranks[:n_suggested]
        return ranked_labels[suggested_ranks], ranked_scores[suggested_ranks]

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
        from polyseme.scoring.evidence import explain_label

        check_fitted(self, "space_")
        check_number("k", k, owner="explain", low=1, whole=True)
        label_column = self._column(label)
        if x is not None and not isinstance(x, EncodedItems):
            x = as_row(x) if self.features_ is None else self.features_.single(x)
        tag_lists = None if tags is None else [tags]
        items, tag_matrix = self._check_query(x, tag_lists)
        features = items.float64_features() if isinstance(items, EncodedItems) else items
        n_items = n_rows(features, tag_matrix)
        if n_items != 1:
            raise InputError(f"`explain` takes one item; got {n_items}.")

        # The label's score may be that of a label that implies it.
        scorer = self._scorer
        source_column = scorer.highest_source(features, tag_matrix, label_column)
        given_columns = () if tag_matrix is None else tag_matrix.indices.tolist()
        if label_column in given_columns or source_column in given_columns:
            raise InputError(
                f"'{scorer.labels[source_column]}' is among the tags that are given, so there is "
                "nothing to explain; leave it out of them to ask where its score would come from."
            )
        evidence = explain_label(scorer, features, tag_matrix, source_column, k)
        if source_column == label_column:
            return evidence
        probability = 0.0
        if scorer.in_use[label_column]:
            probability = float(sigmoid(np.array(evidence.logit)))
        return replace(
            evidence,
            label=scorer.labels[label_column],
            kind=str(scorer.kinds[label_column]),
            probability=probability,
            implied_by=evidence.label,
        )

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
        from polyseme.model_state import tagger_state

        check_fitted(self, "store_")
        path = check_path(path, subject="The folder of a model")
        # Verdicts come first: if the process is killed, no model lacks what it learned from.
        corrections = self._corrections.saved_to(Path(path))
        self._write(path, tagger_state(self))
        verdict_log = corrections.feedback.log
        has_moved = verdict_log is not self.verdicts_
        self._corrections = corrections
        self.verdicts_ = verdict_log
        if has_moved:
            self.refresh()  # the folder may have had verdicts of its own


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
    from polyseme.feedback.corrections import Corrections
    from polyseme.feedback.verdict_log import VerdictLog
    from polyseme.model_state import tagger_from_state
    from polyseme.storage.array_checks import name_folder_in_errors

    path = check_path(path, subject="The folder of a model")
    saved = read_file(find_model_file(path), "tagger")
    # By these `save` notices a model that somebody else has changed in the meantime.
    digests = {os.path.realpath(path): saved.digest}
    method = saved.config.get("method")
    with name_folder_in_errors(path):
        if method == "space":
            tagger = tagger_from_state(saved.config, saved.arrays)
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
