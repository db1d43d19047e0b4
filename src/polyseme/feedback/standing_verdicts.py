"""The verdicts that stand, by label, with the vectors of the items they are about.

In: a log of verdicts. Out: the examples that a label's correction is fitted to, what has changed
since the log was read, and verdicts as a table.
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
Project = Callable[[Sequence[int]], Floats]

# Vectors of items are cached in memory up to this size; others are read when they are needed.
_CACHE_BYTES = 256 * 2**20
# How far numbers of a projection may differ for an item to be the same.
_SAME_ITEM = 1e-3


class Examples(NamedTuple):
    """Items that a label is known of, which its correction is fitted to."""

    vectors: Floats  # (n, n_dimensions)
    digests: list[bytes]  # of the vectors
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
        # Number and answer of each verdict, by label and item.
        standing = log.standing()
        self._answers = _by_label(standing)
        self._vector_keys = log.vector_keys(space_digest)
        self._vector_cache: dict[int, Floats] = {}  # what has a number never changes

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that verdicts are about."""
        return tuple(self._answers)

    def items(self) -> dict[str, None]:
        """Return the items that verdicts are about, as keys."""
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
        """Return what stands by now, and the labels that differ; itself if nothing is new."""
        position = self.log.position
        before = self._position
        if position == before:
            return self, set()
        is_same_log = position.log_id == before.log_id
        has_shrunk = position.event < before.event or position.vector < before.vector
        if has_shrunk or not is_same_log:
            feedback = Feedback(self.log, self.space_digest)
            return feedback, {*self.labels, *feedback.labels}

        updates = self._updates()
        all_answers = self._answers | updates
        changed_labels = set()
        for label, answers in updates.items():
            earlier_answers = self._answers.get(label, {})
            if answers != earlier_answers:
                changed_labels.add(label)

        new_keys = self.log.vector_keys(self.space_digest, after=before.vector)
        new_items = new_keys.keys()
        for label, answers in all_answers.items():
            if not new_items.isdisjoint(answers):
                changed_labels.add(label)

        feedback = copy(self)
        feedback._position = position
        feedback._answers = {label: answers for label, answers in all_answers.items() if answers}
        feedback._vector_keys = self._vector_keys | new_keys
        return feedback, changed_labels

    def _updates(self) -> dict[str, dict[str, tuple[int, bool]]]:
        """Return the standing answers of labels that the log has new events about."""
        updates: dict[str, dict[str, tuple[int, bool]]] = {}
        undone: list[int] = []
        last_read = self._position.event
        for event in self.log.events(last_read):
            if isinstance(event, Undo):
                undone.append(event.undoes)
                continue
            label = event.label
            if label not in updates:
                earlier_answers = self._answers.get(label, {})
                updates[label] = dict(earlier_answers)
            number = event.number or 0
            answers = updates[label]
            answers[event.item] = (number, event.answer)
        if undone:  # what stood before stands again
            labels = self.log.labels_of(undone)
            verdicts = self.log.standing(labels)
            standing = _by_label(verdicts)
            for label in labels:
                updates[label] = standing.get(label, {})
        return updates

    def with_log(self, log: VerdictLog) -> Feedback:
        """Return the same for another log, to which this one's was copied; to be refreshed."""
        feedback = copy(self)
        feedback.log = log
        return feedback

    def numbers(self, labels: Collection[str]) -> list[int]:
        """Return the numbers of the standing verdicts on labels."""
        numbers: list[int] = []
        for label in labels:
            answers = self._answers[label]
            for number, _ in answers.values():
                numbers.append(number)
        return numbers

    def vectors(self, items: Collection[str]) -> dict[str, Floats]:
        """Return the vectors of items that have one."""
        keys = self._vector_keys
        numbers = {item: keys[item].number for item in items if item in keys}
        cache = self._vector_cache  # read once: other threads may replace it
        missing = [number for number in numbers.values() if number not in cache]
        new_vectors: dict[int, Floats] = {}
        if missing:
            table = self.log.vectors(missing)
            new_vectors = dict(zip(missing, table, strict=True))
            self._vector_cache = _grown_cache(cache, new_vectors, table[0].nbytes)
        vectors_by_number = ChainMap(new_vectors, cache)
        return {item: vectors_by_number[number] for item, number in numbers.items()}

    def answers(self, labels: Collection[str]) -> dict[str, bool]:
        """Return items and answers of one label, which may have been given under several names.

        Items are in the order of their names, and the latest answer counts.
        """
        numbered_answers: list[tuple[str, tuple[int, bool]]] = []
        for label in labels:
            answers = self._answers.get(label, {})
            numbered_answers.extend(answers.items())
        numbered_answers.sort()
        latest: dict[str, bool] = {}
        for item, (_, answer) in numbered_answers:
            latest[item] = answer
        return latest

    def digest(self, labels: Collection[str]) -> bytes:
        """Return a digest of `examples`, without reading vectors; empty if there are none."""
        keys = self._vector_keys
        digest = hashlib.sha256()
        n_examples = 0
        for item, answer in self.answers(labels).items():
            if item in keys:
                digest.update(keys[item].digest + (b"yes" if answer else b"no"))
                n_examples += 1
        return digest.digest() if n_examples else b""

    def examples(self, labels: Collection[str]) -> Examples:
        """Return the items of `answers` that have a vector."""
        answers = self.answers(labels)
        vectors = self.vectors(answers)
        items = [item for item in answers if item in vectors]
        if not items:
            no_vectors = np.zeros((0, 0), np.float32)
            return Examples(no_vectors, [], np.zeros(0, bool))
        item_vectors = np.stack([vectors[item] for item in items])
        digests = [self._vector_keys[item].digest for item in items]
        item_answers = np.array([answers[item] for item in items])
        return Examples(item_vectors, digests, item_answers)

    def changed_items(self, rows: Mapping[str, int], project: Project) -> set[str]:
        """Return items that are others now than those that verdicts were given on.

        Numbers of rows are no names: in another table a row may be another item.

        Parameters
        ----------
        rows : mapping of str to int
            The rows of items; those without a vector are ignored.
        project : callable
            Returns the projections of some rows, (n, n_projections).
        """
        vectors = self.vectors(rows)
        if not vectors:
            return set()
        item_rows = [rows[item] for item in vectors]
        projections = project(item_rows)
        n_projections = projections.shape[1]
        changed: set[str] = set()
        for item, projection in zip(vectors, projections, strict=True):
            vector = vectors[item]
            earlier_projection = vector[:n_projections]
            differences = projection - earlier_projection
            distances = np.abs(differences)
            if distances.max() > _SAME_ITEM:
                changed.add(item)
        return changed

    def check_rows(self, rows: Mapping[str, int], project: Project) -> None:
        """Raise if a row is another item than the one that verdicts were given on by its number."""
        for item in sorted(self.changed_items(rows, project)):
            raise InputError(
                f"Row {item} is not the item '{item}' that verdicts were given on before; give "
                "items names of their own, by a column `id`."
            )


def _grown_cache(
    cache: dict[int, Floats], new_vectors: dict[int, Floats], vector_bytes: int
) -> dict[int, Floats]:
    """Return a cache of vectors with new ones, or with these alone, as far as there is room."""
    n_most = _CACHE_BYTES // vector_bytes
    if len(cache) + len(new_vectors) > n_most:
        cache = {}
    if len(new_vectors) > n_most:
        return cache
    return cache | new_vectors


def _by_label(verdicts: Iterable[Verdict]) -> dict[str, dict[str, tuple[int, bool]]]:
    """Return numbers and answers of verdicts, by label and item."""
    by_label: dict[str, dict[str, tuple[int, bool]]] = {}
    for verdict in verdicts:
        number = verdict.number or 0
        answers = by_label.setdefault(verdict.label, {})
        answers[verdict.item] = (number, verdict.answer)
    return by_label


def as_verdict(values: Verdict | tuple[Any, ...], model: str) -> Verdict:
    """Return a verdict of a tuple that begins with item, label and answer; items are text."""
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
    columns: Callable[[str], int | None],
    shape: tuple[int, int],
) -> sp.csr_matrix | None:
    """Return verdicts as a table of 1 for yes and -1 for no, of the shape (n, n_labels).

    Verdicts begin with item, label and answer; of several for one place the last counts. Rows of
    items are known by their names, columns by a function that gives None for a label that is not
    there; verdicts on others are passed over. None where no verdict is left.
    """
    column_of = lru_cache(maxsize=None)(columns)
    signs: dict[tuple[int, int], float] = {}
    for item, label, answer, *_ in verdicts:
        row = rows.get(item)
        column = column_of(label)
        if row is not None and column is not None:
            signs[row, column] = 1.0 if answer else -1.0
    if not signs:
        return None
    places = np.array([*signs], dtype=np.int64)
    return sp.csr_matrix(([*signs.values()], (places[:, 0], places[:, 1])), shape=shape)
