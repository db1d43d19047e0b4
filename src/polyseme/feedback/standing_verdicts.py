"""The verdicts that stand, by label, with the vectors of the items they are about.

In: a log of verdicts, and verdicts as people give them. Out: the examples that a label's
correction is fitted to, what has changed since the log was read, and verdicts as a table.

Terms: on each label of each item the latest verdict that was not undone *stands*; its *answer* is
True for yes. *Numbers* are those of events in the log, which grow. An item is known by its name
(`Verdict.item`). Its *vector* is the random projection of its features and, beside it, its code in
the concept space; a `VectorKey` has the number of a vector in the log, and a digest of it.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.text import shown
from polyseme.base.validation import InputError
from polyseme.feedback.verdict_log import Undo, Verdict, VerdictLog

Floats = NDArray[np.float32]
# Returns the projections of some rows of features, (n, projection_size); `ConceptSpace.project`.
Project = Callable[[Sequence[int]], Floats]
# The number and the answer of the standing verdict on each item, by the item's name.
ItemAnswers = dict[str, tuple[int, bool]]

# Vectors of items are cached in memory up to this size; others are read when they are needed.
_CACHE_BYTES = 256 * 2**20
# How far any number of a projection, a vector of length 1, may be off for an item to be the same:
# other precisions and processors make less of a difference.
_SAME_ITEM_DIFFERENCE = 1e-3


class Examples(NamedTuple):
    """The items that people answered for about one label, to which its correction is fitted."""

    vectors: Floats  # (n, projection_size + n_dimensions): projections, then codes
    digests: list[bytes]  # of the vectors, (n,)
    answers: NDArray[np.bool_]  # (n,)


class Feedback:
    """The verdicts that stand, by label, and the vectors of their items in one space.

    It is what a log held at some time and does not change: `refreshed` returns another.

    Parameters
    ----------
    log : VerdictLog
    space_digest : str
        The digest of the space that vectors belong to; items without a vector there are ignored.
    """

    def __init__(self, log: VerdictLog, space_digest: str) -> None:
        self.log = log
        self.space_digest = space_digest
        # What is read after this may be newer; then it is read again, which does no harm.
        self._position = log.position
        standing = log.standing()
        self._answers = _answers_by_label(standing)
        self._vector_keys = log.vector_keys(space_digest)  # of the latest vector, by item
        self._vector_cache: dict[int, Floats] = {}  # by number; what has one never changes

    def __len__(self) -> int:
        """Count the verdicts that stand."""
        return sum(map(len, self._answers.values()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that verdicts are about."""
        return tuple(self._answers)

    def items(self) -> dict[str, None]:
        """Return the names of the items that verdicts are about, as keys: an ordered set."""
        items: dict[str, None] = {}
        for answers in self._answers.values():
            items |= dict.fromkeys(answers)
        return items

    def triples(self) -> Iterator[tuple[str, str, bool]]:
        """Yield item, label and answer of every verdict."""
        for label, answers in self._answers.items():
            for item, numbered_answer in answers.items():
                _, answer = numbered_answer
                yield item, label, answer

    def refreshed(self) -> tuple[Feedback, set[str]]:
        """Return what stands by now, and the labels that differ; itself if nothing is new.

        A label differs where an answer does, or where an item that it was answered for has another
        vector.
        """
        position = self.log.position
        before = self._position
        if position == before:
            return self, set()
        is_same_log = position.log_id == before.log_id
        has_shrunk = position.event < before.event or position.vector < before.vector
        if has_shrunk or not is_same_log:
            feedback = Feedback(self.log, self.space_digest)
            return feedback, {*self.labels, *feedback.labels}

        new_answers = self._new_answers()
        all_answers = self._answers | new_answers
        changed_labels = set()
        for label, answers in new_answers.items():
            earlier_answers = self._answers.get(label, {})
            if answers != earlier_answers:
                changed_labels.add(label)

        new_keys = self.log.vector_keys(self.space_digest, after=before.vector)
        new_items = new_keys.keys()
        for label, answers in all_answers.items():
            if not new_items.isdisjoint(answers):
                changed_labels.add(label)

        standing_answers = {}
        for label, answers in all_answers.items():
            if answers:  # else every verdict on it was undone
                standing_answers[label] = answers
        feedback = copy(self)
        feedback._position = position
        feedback._answers = standing_answers
        feedback._vector_keys = self._vector_keys | new_keys
        return feedback, changed_labels

    def _new_answers(self) -> dict[str, ItemAnswers]:
        """Return all standing answers of labels that the log has new events about, by label.

        They are empty where every verdict on a label was undone.
        """
        new_answers: dict[str, ItemAnswers] = {}
        undone_numbers: list[int] = []
        last_read = self._position.event
        for event in self.log.events(last_read):
            if isinstance(event, Undo):
                undone_numbers.append(event.undoes)
                continue
            label = event.label
            if label not in new_answers:
                earlier_answers = self._answers.get(label, {})
                new_answers[label] = dict(earlier_answers)
            number = event.number or 0  # those of a log always have one
            answers = new_answers[label]
            answers[event.item] = (number, event.answer)
        if undone_numbers:  # what stood before stands again
            labels = self.log.labels_of(undone_numbers)
            verdicts = self.log.standing(labels)
            standing = _answers_by_label(verdicts)
            for label in labels:
                new_answers[label] = standing.get(label, {})
        return new_answers

    def with_log(self, log: VerdictLog) -> Feedback:
        """Return the same for another log, to which this one's was copied.

        Others may have written to that log, so callers use what `refreshed` returns.
        """
        feedback = copy(self)
        feedback.log = log
        return feedback

    def numbers(self, labels: Collection[str]) -> list[int]:
        """Return the numbers of the standing verdicts on labels, all of which have some."""
        numbers: list[int] = []
        for label in labels:
            answers = self._answers[label]
            for number, _ in answers.values():
                numbers.append(number)
        return numbers

    def vectors(self, items: Collection[str]) -> dict[str, Floats]:
        """Return the latest vectors of items that have one in this space, by the items' names.

        Vectors are projection and code, (projection_size + n_dimensions,). They are cached and must
        not be changed.
        """
        number_by_item: dict[str, int] = {}
        for item in items:
            key = self._vector_keys.get(item)
            if key is not None:
                number_by_item[item] = key.number
        cache = self._vector_cache  # read once: other threads may replace it
        numbers = number_by_item.values()
        missing_numbers = [number for number in numbers if number not in cache]
        new_vectors: dict[int, Floats] = {}
        if missing_numbers:
            table = self.log.vectors(missing_numbers)
            new_vectors = dict(zip(missing_numbers, table, strict=True))
            vector_bytes = table[0].nbytes
            self._vector_cache = _grown_cache(cache, new_vectors, vector_bytes)
        vector_by_number = ChainMap(new_vectors, cache)
        vector_by_item = {}
        for item, number in number_by_item.items():
            vector_by_item[item] = vector_by_number[number]
        return vector_by_item

    def answers(self, labels: Collection[str]) -> dict[str, bool]:
        """Return items and answers of one label, which may have been given under several names.

        Items are in the order of their names, and the latest answer counts.
        """
        numbered_answers: list[tuple[str, tuple[int, bool]]] = []
        for label in labels:
            answers = self._answers.get(label, {})
            numbered_answers.extend(answers.items())
        numbered_answers.sort()  # by item, then by number
        latest_answers: dict[str, bool] = {}
        for item, (_, answer) in numbered_answers:
            latest_answers[item] = answer
        return latest_answers

    def digest(self, labels: Collection[str]) -> bytes:
        """Return a digest of `examples`, without reading vectors; empty if there are none.

        It is part of the keys of cached corrections, so its content is fixed.
        """
        sha256 = hashlib.sha256()
        n_examples = 0
        for item, answer in self.answers(labels).items():
            key = self._vector_keys.get(item)
            if key is None:
                continue
            word = b"yes" if answer else b"no"
            sha256.update(key.digest + word)
            n_examples += 1
        if not n_examples:
            return b""
        return sha256.digest()

    def examples(self, labels: Collection[str]) -> Examples:
        """Return the items of `answers` that have a vector, in the same order."""
        answers = self.answers(labels)
        vector_by_item = self.vectors(answers)
        vectors = []
        digests = []
        is_yes = []
        for item, answer in answers.items():
            if item in vector_by_item:
                vectors.append(vector_by_item[item])
                digests.append(self._vector_keys[item].digest)
                is_yes.append(answer)
        table = np.zeros((0, 0), np.float32)
        if vectors:
            table = np.stack(vectors)
        return Examples(
            vectors=table,
            digests=digests,
            answers=np.array(is_yes, dtype=bool),
        )

    def changed_items(self, rows: Mapping[str, int], project: Project) -> set[str]:
        """Return items that are others now than those that verdicts were given on.

        Numbers of rows are no names: in another table a row may be another item.

        Parameters
        ----------
        rows : mapping of str to int
            The rows of items by their names; those without a vector are ignored.
        project : callable
            Returns the projections of some rows, (n, projection_size).
        """
        vector_by_item = self.vectors(rows)
        if not vector_by_item:
            return set()
        item_rows = [rows[item] for item in vector_by_item]
        projections = project(item_rows)
        n_projections = projections.shape[1]
        changed_items: set[str] = set()
        for item, projection in zip(vector_by_item, projections, strict=True):
            vector = vector_by_item[item]
            earlier_projection = vector[:n_projections]
            differences = np.abs(projection - earlier_projection)
            if differences.max() > _SAME_ITEM_DIFFERENCE:
                changed_items.add(item)
        return changed_items

    def check_rows(self, rows: Mapping[str, int], project: Project) -> None:
        """Raise if a row is another item than the one that verdicts were given on by its number.

        The parameters are those of `changed_items`; names are row numbers as text.
        """
        changed_items = self.changed_items(rows, project)
        if changed_items:
            item = min(changed_items)
            raise InputError(
                f"Row {item} is not the item '{item}' that verdicts were given on before; give "
                "items names of their own, by a column `id`."
            )


def _grown_cache(
    cache: dict[int, Floats], new_vectors: dict[int, Floats], vector_bytes: int
) -> dict[int, Floats]:
    """Return another cache of vectors: with new ones, or with these alone, or an empty one.

    It is what `_CACHE_BYTES` have room for, `vector_bytes` for each. The cache itself stays as it
    is: other threads may be reading it.
    """
    max_vectors = _CACHE_BYTES // vector_bytes
    n_new = len(new_vectors)
    if len(cache) + n_new > max_vectors:
        cache = {}
    if n_new > max_vectors:
        return cache
    return cache | new_vectors


def _answers_by_label(verdicts: Iterable[Verdict]) -> dict[str, ItemAnswers]:
    """Return numbers and answers of verdicts by item, for each label."""
    answers_by_label: dict[str, ItemAnswers] = {}
    for verdict in verdicts:
        number = verdict.number or 0  # those of a log always have one
        answers = answers_by_label.setdefault(verdict.label, {})
        answers[verdict.item] = (number, verdict.answer)
    return answers_by_label


def as_verdict(values: Verdict | tuple[Any, ...], model: str) -> Verdict:
    """Return a verdict in which the item is text.

    Parameters
    ----------
    values : Verdict or tuple
        A tuple begins with item, label and answer, in the order of `Verdict`; the item may be the
        number of a row.
    model : str
        What a verdict names that does not say which model was asked: the digest of its space.
    """
    try:
        verdict = values if isinstance(values, Verdict) else Verdict(*values)
        item = str(verdict.item)
    except (TypeError, ValueError):  # a number may have too many digits to be written
        raise InputError(
            f"A verdict must be a `Verdict` or a tuple (item, label, answer); got {shown(values)}."
        ) from None
    return verdict._replace(item=item, model=verdict.model or model)


def answer_table(
    verdicts: Iterable[tuple[Any, ...]],
    rows: Mapping[str, int],
    column_of: Callable[[str], int | None],
    shape: tuple[int, int],
) -> sp.csr_matrix | None:
    """Return verdicts as a table of 1 for yes and -1 for no.

    Parameters
    ----------
    verdicts : iterable of Verdict or tuple
        They begin with item, label and answer; of several for one place the last counts. Those on
        items or labels that are not in the table are passed over.
    rows : mapping of str to int
        The row of each item by its name.
    column_of : callable
        Returns the column of a label, None where it is not there.
    shape : (int, int)
        Items and labels.

    Returns
    -------
    csr_matrix of float64, shape (n, n_labels), or None
        None where no verdict is left.
    """
    cached_column_of = lru_cache(maxsize=None)(column_of)
    signs: dict[tuple[int, int], float] = {}
    for item, label, answer, *_ in verdicts:
        row = rows.get(item)
        column = cached_column_of(label)
        if row is not None and column is not None:
            signs[row, column] = 1.0 if answer else -1.0
    if not signs:
        return None
    places = np.array(list(signs), dtype=np.int64)
    entry_signs = list(signs.values())
    entries = (entry_signs, (places[:, 0], places[:, 1]))
    return sp.csr_matrix(entries, shape=shape)
