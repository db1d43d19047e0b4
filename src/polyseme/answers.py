"""What people's answers add to the logits of labels: learned once, and kept beside their log.

In: the verdicts that stand, and how labels are read without them. Out: for each label that was
answered for a correction (`polyseme.corrections`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from copy import copy
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from polyseme._threads import one_blas_thread
from polyseme.corrections import (
    Correction,
    CorrectionTable,
    correct,
    keep_corrections,
    kept_corrections,
    learned_by,
)
from polyseme.feedback import Feedback
from polyseme.persistence import CORRECTIONS
from polyseme.reading import CodedItems, LabelScorer
from polyseme.space import ConceptSpace
from polyseme.verdicts import VerdictLog

# Gives the column of a label that was answered for; None where it is not known.
Place = Callable[[str], int | None]


class _Reference(NamedTuple):
    """The reference sample, which all corrections share."""

    items: CodedItems  # that stand for all
    digest: bytes  # of these items, and of the way corrections are learned


class Answers:
    """The verdicts that stand and what follows from them; it is replaced, never changed.

    Parameters
    ----------
    feedback : Feedback
    cache : Path or None
        The file beside the log that keeps corrections.

    Attributes
    ----------
    corrections : dict of int to Correction
        By column, in order.
    table : CorrectionTable
        The same side by side.
    """

    def __init__(self, feedback: Feedback, cache: Path | None = None) -> None:
        self.feedback = feedback
        self.cache = cache
        self.corrections: dict[int, Correction] = {}
        self.table = CorrectionTable.of({})
        self._learned: dict[bytes, Correction] = {}  # by what they were learned from
        self._cached: frozenset[bytes] = frozenset()
        self._reference: _Reference | None = None
        self._total_votes: dict[bytes, float] = {}  # for items, by the digests of their vectors

    @classmethod
    def of_folder(cls, folder: Path, space: ConceptSpace) -> Self:
        """Load the verdicts of a model's folder, with corrections that were learned before."""
        answers = cls(Feedback(VerdictLog(folder), space.digest_), folder / CORRECTIONS)
        answers._learned = kept_corrections(folder / CORRECTIONS, space.n_sketch)
        answers._cached = frozenset(answers._learned)
        return answers

    def of(self, feedback: Feedback, cache: Path | None) -> Self:
        """Return the same with other verdicts; labels that they differ in must be corrected."""
        answers = copy(self)
        answers.feedback = feedback
        answers.cache = cache
        return answers

    def caught_up(self) -> tuple[Self, set[str]]:
        """Return them with what stands by now, and the labels that differ."""
        feedback, labels = self.feedback.caught_up()
        if feedback is self.feedback:
            return self, labels
        return self.of(feedback, self.cache), labels

    def read_anew(self, reading: LabelScorer, place: Place) -> Self:
        """Recompute the corrections for another reading; cached ones are reused."""
        answers = copy(self)
        answers.corrections = {}
        answers.table = CorrectionTable.of({})
        answers._reference = None
        answers._total_votes = {}
        return answers.corrected(reading, answers.feedback.labels, place)

    def corrected(self, reading: LabelScorer, labels: Collection[str], place: Place) -> Self:
        """Return it with the corrections of some labels, learned from the verdicts that stand.

        Corrections whose verdicts, items and readout have not changed are reused.

        Parameters
        ----------
        reading : LabelScorer
            The same as before, or `read_anew` is to be asked.
        labels : collection of str
        place : callable
        """
        if not reading.space.n_sketch or not labels:
            return self
        names_by_column: dict[int | None, list[str]] = {}
        for label in self.feedback.labels:
            names_by_column.setdefault(place(label), []).append(label)
        columns = {place(label) for label in labels}
        corrections = dict(self.corrections)
        learned = dict(self._learned)
        total_votes = dict(self._total_votes)
        with one_blas_thread():
            reference = _reference(reading) if self._reference is None else self._reference
            for column in columns:
                if column is None:
                    continue  # nothing is known of this label
                corrections.pop(column, None)
                names = names_by_column.get(column, [])
                verdict_digest = self.feedback.digest(names)
                if not verdict_digest:
                    continue  # every verdict on this label was undone
                source = _source(reading, reference, column, verdict_digest)
                if source not in learned:
                    correction = self._fit(reading, reference, column, names, total_votes)
                    learned[source] = correction._replace(source=source)
                corrections[column] = learned[source]
        # Some more than are in use: what was undone may be said again.
        if len(learned) > 2 * len(corrections) + 100:
            learned = {correction.source: correction for correction in corrections.values()}
        answers = copy(self)
        # The same answers give the same bits in any order.
        answers.corrections = dict(sorted(corrections.items()))
        answers.table = CorrectionTable.of(answers.corrections)
        answers._learned = learned
        answers._reference = reference
        answers._total_votes = total_votes
        return answers

    def _fit(
        self,
        reading: LabelScorer,
        reference: _Reference,
        column: int,
        names: Collection[str],
        total_votes: dict[bytes, float],
    ) -> Correction:
        """Fit the correction of a column to answers to labels of some names.

        Votes that are missing in `total_votes` are computed and added there.
        """
        background = reading.space.background_
        n_sketch = reading.space.n_sketch
        vectors, answers = self.feedback.placed(names)
        sketches = vectors[:, :n_sketch]
        codes = vectors[:, n_sketch:]
        item_votes = np.zeros(len(codes))
        for row, vector in enumerate(vectors if reading.is_voted_for(column) else ()):
            vector_digest = hashlib.sha256(vector.tobytes()).digest()
            if vector_digest not in total_votes:
                # Every item alone: its bits are the same beside any others.
                votes = reading.total_votes(codes[row : row + 1])
                total_votes[vector_digest] = float(votes[0])
            item_votes[row] = total_votes[vector_digest]
        items = reading.coded(codes, item_votes)
        return correct(
            sketches,
            reading.label_logits(items, column),
            answers,
            background.sketches,
            reading.label_logits(reference.items, column),
            background.weights,
        )

    def keep(self) -> None:
        """Write the corrections beside the log once an eighth of them are not there yet."""
        sources = {correction.source for correction in self.corrections.values()}
        if self.cache is not None and 8 * len(sources - self._cached) > len(sources):
            keep_corrections(self.cache, self.corrections.values())
            self._cached = frozenset(sources)

    def saved_to(self, folder: Path) -> Self:
        """Write corrections to a model's folder, where the log may have come from memory."""
        if self.corrections:
            keep_corrections(folder / CORRECTIONS, self.corrections.values())
        if self.feedback.log.file is not None:
            return self
        return self.of(self.feedback.kept_in(VerdictLog(folder)), folder / CORRECTIONS)


def _reference(reading: LabelScorer) -> _Reference:
    """Return the reference sample, with a digest of what all labels share."""
    space = reading.space
    background = space.background_
    codes = background.codes.reshape(-1, space.n_dimensions)
    items = reading.coded(codes, reading.total_votes(codes))
    digest = hashlib.sha256(f"{learned_by()} {space.digest_} {space.priming}".encode())
    for array in (*background, space.document_mean_, space.axes_):
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return _Reference(items, digest.digest())


def _source(
    reading: LabelScorer, reference: _Reference, column: int, verdict_digest: bytes
) -> bytes:
    """Return a digest of all that decides the correction of a column.

    Whatever changes a label's logits without corrections has a part: its readout, the reference
    sample, and known documents where they vote. Answers and their items have a digest already.
    """
    digest = hashlib.sha256(reference.digest + verdict_digest)
    readout = reading.of_items
    store = reading.store
    digest.update(readout.weights[:, column].tobytes())
    digest.update(readout.intercepts[column].tobytes())
    if reading.space.priming and column < store.n_learned:
        digest.update(store.digest + str(column).encode())
    return digest.digest()
