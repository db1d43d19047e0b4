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
from polyseme.reading import CodedItems, Reading
from polyseme.space import ConceptSpace
from polyseme.verdicts import VerdictLog

# Gives the column of a label that was answered for; None where it is not known.
Place = Callable[[str], int | None]


class _Usual(NamedTuple):
    """What all corrections share."""

    items: CodedItems  # that stand for all
    digest: bytes  # of these items, and of who learns from them


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
        self.feedback, self.cache = feedback, cache
        self.corrections: dict[int, Correction] = {}
        self.table = CorrectionTable.of({})
        self._learned: dict[bytes, Correction] = {}  # by what they were learned from
        self._cached: frozenset[bytes] = frozenset()
        self._usual: _Usual | None = None
        self._total_votes: dict[bytes, float] = {}  # for items, by the digests of their vectors

    @classmethod
    def of_folder(cls, folder: Path, space: ConceptSpace) -> Self:
        """Take up verdicts in a model's folder, with corrections that were learned before."""
        made = cls(Feedback(VerdictLog(folder), space.digest_), folder / CORRECTIONS)
        made._learned = kept_corrections(folder / CORRECTIONS, space.n_sketch)
        made._cached = frozenset(made._learned)
        return made

    def of(self, feedback: Feedback, cache: Path | None) -> Self:
        """Return the same with other verdicts; labels that they differ in must be corrected."""
        made = copy(self)
        made.feedback, made.cache = feedback, cache
        return made

    def caught_up(self) -> tuple[Self, set[str]]:
        """Return them with what stands by now, and the labels that differ."""
        feedback, labels = self.feedback.caught_up()
        return (self if feedback is self.feedback else self.of(feedback, self.cache)), labels

    def read_anew(self, reading: Reading, place: Place) -> Self:
        """Recompute the corrections for another reading; cached ones are reused."""
        made = copy(self)
        made.corrections, made.table = {}, CorrectionTable.of({})
        made._usual, made._total_votes = None, {}
        return made.corrected(reading, made.feedback.labels, place)

    def corrected(self, reading: Reading, labels: Collection[str], place: Place) -> Self:
        """Return it with the corrections of some labels, learned from the verdicts that stand.

        Parameters
        ----------
        reading : Reading
            The same as before, or `read_anew` is to be asked.
        labels : collection of str
        place : callable
        """
        if not reading.space.n_sketch or not labels:
            return self
        names: dict[int | None, list[str]] = {}
        for label in self.feedback.labels:
            names.setdefault(place(label), []).append(label)
        corrections, learned = dict(self.corrections), dict(self._learned)
        total_votes = dict(self._total_votes)
        with one_blas_thread():
            usual = _usual(reading) if self._usual is None else self._usual
            for column in {place(label) for label in labels} - {None}:
                assert column is not None
                corrections.pop(column, None)
                told = self.feedback.digest(names.get(column, ()))
                if not told:
                    continue
                source = _source(reading, usual, column, told)
                if source not in learned:
                    found = self._learned_anew(reading, usual, column, names[column], total_votes)
                    learned[source] = found._replace(source=source)
                corrections[column] = learned[source]
        # Some more than are in use: what was undone may be said again.
        if len(learned) > 2 * len(corrections) + 100:
            learned = {one.source: one for one in corrections.values()}
        made = copy(self)
        # The same answers give the same bits in any order.
        made.corrections, made._learned = dict(sorted(corrections.items())), learned
        made.table = CorrectionTable.of(made.corrections)
        made._usual, made._total_votes = usual, total_votes
        return made

    def _learned_anew(
        self,
        reading: Reading,
        usual: _Usual,
        column: int,
        names: Collection[str],
        total_votes: dict[bytes, float],
    ) -> Correction:
        """Learn the correction of a column from answers to labels of some names.

        What is not known yet of `total_votes` is added to them.
        """
        background, n_sketch = reading.space.background_, reading.space.n_sketch
        vectors, answers = self.feedback.placed(names)
        codes = vectors[:, n_sketch:]
        totals = np.zeros(len(codes))
        for row, vector in enumerate(vectors if reading.is_voted_for(column) else ()):
            item = hashlib.sha256(vector.tobytes()).digest()
            if item not in total_votes:
                # Every item alone: its bits are the same beside any others.
                total_votes[item] = float(reading.total_votes(codes[row : row + 1])[0])
            totals[row] = total_votes[item]
        return correct(
            vectors[:, :n_sketch],
            reading.label_logits(reading.coded(codes, totals), column),
            answers,
            background.sketches,
            reading.label_logits(usual.items, column),
            background.weights,
        )

    def keep(self) -> None:
        """Keep corrections beside the log, where some are not there yet, but not for every one."""
        sources = {one.source for one in self.corrections.values()}
        if self.cache is not None and 8 * len(sources - self._cached) > len(sources):
            keep_corrections(self.cache, self.corrections.values())
            self._cached = frozenset(sources)

    def saved_to(self, folder: Path) -> Self:
        """Keep corrections in a model's folder, where the log may have come from memory."""
        if self.corrections:
            keep_corrections(folder / CORRECTIONS, self.corrections.values())
        if self.feedback.log.file is not None:
            return self
        return self.of(self.feedback.kept_in(VerdictLog(folder)), folder / CORRECTIONS)


def _usual(reading: Reading) -> _Usual:
    """Return the items that stand for all, and digest what all labels share."""
    space, background = reading.space, reading.space.background_
    codes = background.codes.reshape(-1, space.n_dimensions)
    items = reading.coded(codes, reading.total_votes(codes))
    digest = hashlib.sha256(f"{learned_by()} {space.digest_} {space.priming}".encode())
    for one in (*background, space.document_mean_, space.axes_):
        digest.update(f"{one.dtype.str} {one.shape}".encode() + one.tobytes())
    return _Usual(items, digest.digest())


def _source(reading: Reading, usual: _Usual, column: int, told: bytes) -> bytes:
    """Digest all that decides the correction of a column; answers and items are one already.

    Whatever changes a label's logits without corrections has a part: its readout, the items that
    stand for all, and known documents where they vote.
    """
    digest = hashlib.sha256(usual.digest + told)
    readout, store = reading.of_items, reading.store
    for one in (readout.weights, readout.intercepts[None]):
        digest.update(one[:, column].tobytes())
    if reading.space.priming and column < store.n_learned:
        digest.update(store.digest + str(column).encode())
    return digest.digest()
