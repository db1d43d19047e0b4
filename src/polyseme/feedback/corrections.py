"""The corrections of labels that verdicts are about: fitted once, and cached in the log.

In: the verdicts that stand, and a scorer that reads labels without them. Out: a correction of each
label that verdicts are about (`polyseme.scoring.correction_fit`).

Terms: a *column* is that of a label in the scorer. Verdicts may call a label by several *names*
(spellings, former names), all of one column. The *vector* of an item is its projection, then its
code; the log stores it. The *reference sample* are the items on which a label stays as frequent as
it was.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from polyseme.base.machine import one_blas_thread
from polyseme.feedback.standing_verdicts import Feedback
from polyseme.feedback.verdict_log import VerdictLog
from polyseme.scoring.correction_fit import Correction, CorrectionTable, fit_correction
from polyseme.scoring.scorer import CodedItems, LabelScorer
from polyseme.space.concept_space import ConceptSpace
from polyseme.storage.model_file import ModelFileError

# Returns the column of a label that verdicts are about; None where the label is not known.
ColumnOf = Callable[[str], int | None]

# To be raised whenever corrections are fitted in another way: cached ones are then fitted again.
_FITTING = 3
# The cache may hold as many corrections that are not in use as are, and so many more: what was
# undone may be said again.
_MOST_UNUSED = 100
# Corrections are written to the log once one in so many of them is not there yet.
_WRITTEN_SHARE = 8
# How weights are cached in a log, least significant byte first.
_WEIGHT_TYPE = np.dtype("<f8")


class EncodedSample(NamedTuple):
    """The reference sample as a scorer encodes it, which all corrections share."""

    items: CodedItems
    digest: bytes  # of the items, their weights and the way in which corrections are fitted


@dataclass(frozen=True, eq=False)
class Corrections:
    """The corrections that follow from the verdicts that stand; replaced, never changed.

    Attributes
    ----------
    feedback : Feedback
        The verdicts.
    by_column : mapping of int to Correction
        By the column of the label, in this order.
    table : CorrectionTable
        The same side by side.
    """

    feedback: Feedback
    by_column: Mapping[int, Correction] = field(default_factory=dict)
    table: CorrectionTable = field(default_factory=lambda: CorrectionTable.of({}))
    # By their keys, those that are not in use any more among them.
    _cache: Mapping[bytes, Correction] = field(default_factory=dict)
    _stored_keys: frozenset[bytes] = frozenset()  # of corrections that are cached in the log
    _reference: EncodedSample | None = None
    _total_votes: Mapping[bytes, float] = field(default_factory=dict)  # by digests of vectors

    @classmethod
    def load(cls, log: VerdictLog, space: ConceptSpace) -> Self:
        """Load the verdicts of a log, and the corrections that are cached there.

        No label is corrected until `with_scorer` has chosen among them and fitted what is missing.
        """
        cache: dict[bytes, Correction] = {}
        n_projections = space.projection_size
        for key, weights, intercept in log.cached_corrections():
            if type(key) is not bytes:
                continue
            correction = _cached_correction(key, weights, intercept, n_projections)
            if correction is not None:
                cache[key] = correction
        feedback = Feedback(log, space.digest_)
        stored_keys = frozenset(cache)
        return cls(feedback, _cache=cache, _stored_keys=stored_keys)

    def refreshed(self) -> tuple[Self, set[str]]:
        """Return them with the verdicts that stand by now, and the labels to call `update` with."""
        feedback, labels = self.feedback.refreshed()
        if feedback is self.feedback:
            return self, labels
        return replace(self, feedback=feedback), labels

    def with_feedback(self, feedback: Feedback) -> Self:
        """Return them for other verdicts; callers `update` the labels on which these differ."""
        return replace(self, feedback=feedback, _stored_keys=frozenset())

    def with_scorer(self, scorer: LabelScorer, column_of: ColumnOf) -> Self:
        """Fit all corrections for another scorer; cached ones are reused."""
        corrections = replace(
            self,
            by_column={},
            table=CorrectionTable.of({}),
            _reference=None,
            _total_votes={},
        )
        return corrections.update(scorer, self.feedback.labels, column_of)

    def update(self, scorer: LabelScorer, labels: Collection[str], column_of: ColumnOf) -> Self:
        """Refit the corrections of some labels from the verdicts that stand.

        Corrections whose verdicts, items and readout have not changed come from the cache.

        Parameters
        ----------
        scorer : LabelScorer
            Whose plain logits are corrected; the same as before, or all labels are to be updated.
        labels : collection of str
            As verdicts name them.
        column_of : callable
            Returns the column of a label in the scorer, None where it is not known.
        """
        if not scorer.space.projection_size or not labels:
            return self
        by_column = dict(self.by_column)
        cache = dict(self._cache)
        total_votes = dict(self._total_votes)
        names_by_column: dict[int | None, list[str]] = {}
        for label in self.feedback.labels:
            column = column_of(label)
            names = names_by_column.setdefault(column, [])
            names.append(label)

        with one_blas_thread():
            reference = self._reference or _reference_sample(scorer)
            columns = set(map(column_of, labels))
            for column in columns:
                if column is None:
                    continue  # the scorer does not know this label
                by_column.pop(column, None)
                names = names_by_column.get(column, [])
                verdict_digest = self.feedback.digest(names)
                if not verdict_digest:
                    continue  # every verdict on this label was undone
                key = _cache_key(scorer, reference, column, verdict_digest)
                if key not in cache:
                    correction = self._fit(scorer, reference, column, names, total_votes)
                    cache[key] = correction._replace(key=key)
                by_column[column] = cache[key]

        by_column = dict(sorted(by_column.items()))
        n_used = len(by_column)
        n_unused = len(cache) - n_used
        if n_unused > n_used + _MOST_UNUSED:
            cache = {correction.key: correction for correction in by_column.values()}
        table = CorrectionTable.of(by_column)
        return replace(
            self,
            by_column=by_column,
            table=table,
            _cache=cache,
            _reference=reference,
            _total_votes=total_votes,
        )

    def _fit(
        self,
        scorer: LabelScorer,
        reference: EncodedSample,
        column: int,
        names: Collection[str],
        total_votes: dict[bytes, float],
    ) -> Correction:
        """Fit the correction of a column from the verdicts on its label.

        Parameters
        ----------
        scorer : LabelScorer
        reference : EncodedSample
            Its reference sample.
        column : int
        names : collection of str
            All names under which verdicts are about the label; at least one has an example.
        total_votes : dict of bytes to float
            The votes of all known documents by the digest of an item's vector. Those that are
            missing are computed and added, so that votes for an item are counted once for all
            labels.
        """
        sample = scorer.space.reference_sample_
        n_projections = scorer.space.projection_size
        examples = self.feedback.examples(names)
        projections = examples.vectors[:, :n_projections]
        codes = examples.vectors[:, n_projections:]
        n_examples = len(codes)
        votes = np.zeros(n_examples)
        if scorer.is_voted_for(column):
            missing_rows = []
            for row, digest in enumerate(examples.digests):
                if digest not in total_votes:
                    missing_rows.append(row)
            new_votes = scorer.total_votes(codes[missing_rows])
            for row, item_votes in zip(missing_rows, new_votes.tolist(), strict=True):
                digest = examples.digests[row]
                total_votes[digest] = item_votes
            votes = np.array([total_votes[digest] for digest in examples.digests])
        items = scorer.coded(codes, votes)
        return fit_correction(
            projections,
            scorer.label_logits(items, column),
            examples.answers,
            sample.projections,
            scorer.label_logits(reference.items, column),
            sample.weights,
        )

    def stored(self, *, all_of_them: bool = False) -> Self:
        """Cache the corrections in the log, by default once an eighth of them are not there yet.

        A log that cannot be written stays as it is: the cache only saves time.
        """
        corrections = self.by_column.values()
        keys = frozenset(correction.key for correction in corrections)
        new_keys = keys - self._stored_keys
        if not new_keys:
            return self
        are_few = _WRITTEN_SHARE * len(new_keys) <= len(keys)
        if are_few and not all_of_them:
            return self
        rows: list[tuple[bytes, bytes, float]] = []  # key, weights and intercept
        for correction in corrections:
            weights = correction.weights.astype(_WEIGHT_TYPE)
            content = weights.tobytes()
            row = (correction.key, content, correction.intercept)
            rows.append(row)
        log = self.feedback.log
        try:
            log.cache_corrections(rows)
        except ModelFileError:
            return self  # they are fitted again when the model is loaded
        return replace(self, _stored_keys=keys)

    def saved_to(self, folder: Path) -> Self:
        """Copy verdicts and cache to a model's folder; verdicts in memory move there.

        Verdicts that the folder has and the log has not are a `ModelFileError`. Where the log is
        another one afterwards, `refreshed` is to be called.
        """
        corrections = self.stored(all_of_them=True)
        log = self.feedback.log
        log.copy_to(folder)
        if log.file is None:
            feedback = self.feedback.with_log(VerdictLog(folder))
            corrections = replace(corrections, feedback=feedback)
        return corrections


def _reference_sample(scorer: LabelScorer) -> EncodedSample:
    """Return the reference sample of a scorer, with a digest of what all labels share."""
    space = scorer.space
    sample = space.reference_sample_
    codes = sample.codes.reshape(-1, space.n_dimensions)
    votes = scorer.total_votes(codes)
    items = scorer.coded(codes, votes)
    arrays = (*sample, space.document_mean_, space.axes_)
    digest = _digest(_FITTING, space.digest_, space.priming, *arrays)
    return EncodedSample(items, digest)


def _cache_key(
    scorer: LabelScorer, reference: EncodedSample, column: int, verdict_digest: bytes
) -> bytes:
    """Return a digest of all that decides the correction of a column.

    Corrections are fitted to logits without names: a log has no features to compare names with.
    Whatever changes such a logit of the label has a part: its readout, the reference
    sample, and known documents where they vote. Logs hold such keys: in another order, or with
    other parts, no cached correction is found.
    """
    readout = scorer.item_readout
    label_weights = readout.weights[:, column]
    label_intercept = readout.intercepts[column]
    voters = b""
    if scorer.is_voted_for(column):
        column_text = str(column)
        voters = scorer.store.digest + column_text.encode()
    return _digest(
        reference.digest,
        verdict_digest,
        label_weights,
        label_intercept,
        voters,
    )


def _digest(*values: Any) -> bytes:
    """Return the SHA-256 digest of arrays and other values."""
    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, np.ndarray | np.generic):
            header = f"{value.dtype.str} {value.shape} "
            digest.update(header.encode())
            digest.update(value.tobytes())
        else:
            text = repr(value)
            digest.update(text.encode())
    return digest.digest()


def _cached_correction(
    key: bytes, weights: object, intercept: object, n_projections: int
) -> Correction | None:
    """Return a correction from the cache of a log, which may be a stranger's; None if damaged.

    `weights` should be bytes of `n_projections` numbers and `intercept` a finite float, as `stored`
    writes them. The weights of the correction are read-only.
    """
    n_bytes = _WEIGHT_TYPE.itemsize * n_projections
    if type(weights) is not bytes or len(weights) != n_bytes:
        return None
    if type(intercept) is not float or not math.isfinite(intercept):
        return None
    label_weights = np.frombuffer(weights, dtype=_WEIGHT_TYPE)
    is_finite = np.isfinite(label_weights)
    if not is_finite.all():
        return None
    return Correction(label_weights, intercept, key)
