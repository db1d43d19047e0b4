"""What people said about single labels of items, and what to ask them next.

In: verdicts with vectors of the items they are about; probabilities of labels. Out: for a label the
items that were answered for, and questions that are worth asking.
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

from polyseme._text import shown
from polyseme._validation import InputError
from polyseme.calibration import sigmoid
from polyseme.verdicts import Undo, Verdict, VerdictLog

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]
Project = Callable[[Sequence[int]], Floats]

# Why each strategy asks.
_REASONS = {
    "active": ("likely", "uncertain"),
    "likeliest": ("likely",),
    "random": ("random",),
    "errors": ("errors",),
}
STRATEGIES = tuple(_REASONS)
# Vectors of items are cached in memory up to this size; others are read when they are needed.
_CACHE_BYTES = 256 * 2**20
# How far numbers of a projection may differ for an item to be the same.
_SAME_ITEM = 1e-3
# A tag is doubtful, or perhaps missing, so many standard deviations from the other items with it,
# or without it: there are many more of the latter, and some of them are far off by chance.
_DOUBTFUL, _MISSING = 2.0, 5.0
_USUAL_SPREAD = 2.0  # of the logits of a label
_FARTHEST_LOGIT = 14.0


class Question(NamedTuple):
    """Whether an item has a label, and why that is asked."""

    item: str  # its id, or the number of its row
    row: int
    label: str
    probability: float
    reason: str  # "likely", "uncertain", "random", "missing" or "doubtful"


class Block(NamedTuple):
    """Some rows of items that may be asked about."""

    start: int  # the number of the first
    logits: Matrix  # minus infinity for what is not to be asked, (n, n_labels)
    answered: NDArray[np.bool_]  # what was answered already, (n, n_labels)
    tagged: NDArray[np.bool_]  # which tags items have, (n, n_labels)


class Spread(NamedTuple):
    """How the logits of labels spread, without each label (row 0) and with it (row 1)."""

    counts: Matrix  # of items, (2, n_labels)
    sums: Matrix
    squares: Matrix

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Spread:
        """Count and sum up logits, block by block."""
        counts: Matrix = np.zeros((2, 1))
        sums: Matrix = np.zeros((2, 1))
        squares: Matrix = np.zeros((2, 1))
        for block in blocks:
            logits = _clipped(block.logits)
            scored = np.isfinite(block.logits)
            sides = np.stack([scored & ~block.tagged, scored & block.tagged])
            counts = counts + sides.sum(axis=1)
            sums = sums + np.where(sides, logits, 0).sum(axis=1)
            squares = squares + np.where(sides, logits**2, 0).sum(axis=1)
        return cls(counts, sums, squares)

    def disagreements(self, logits: Matrix, tagged: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the model disagrees with the tags of items, (n, n_labels).

        It does where the probability is on the other side of one half, and the logit is far from
        those of the other items on the same side: some labels are harder to see than others, so
        that each is compared with itself.
        """
        values = _clipped(logits)
        counts, sums, squares = (np.where(tagged, total[1], total[0]) for total in self)
        n_others = counts - 1
        with np.errstate(divide="ignore", invalid="ignore"):  # no others: nothing to compare with
            means = (sums - values) / n_others
            deviations = np.maximum(squares - values**2 - n_others * means**2, 0)
            # One more item at the distance that is usual, so that a few alike say little.
            spreads = np.sqrt((deviations + _USUAL_SPREAD**2) / n_others)
            distances = (values - means) / spreads
        doubtful = tagged & (logits < 0) & (distances <= -_DOUBTFUL)
        missing = ~tagged & (logits >= 0) & (distances >= _MISSING)
        return np.asarray((n_others > 0) & (doubtful | missing))


def _clipped(logits: Matrix) -> Matrix:
    """Return logits that are no farther from 0 than can be told apart."""
    return np.clip(logits, -_FARTHEST_LOGIT, _FARTHEST_LOGIT)


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
        self._answers = _by_label(log.standing())
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
            for item, (_, answer) in answers.items():
                yield item, label, answer

    def refreshed(self) -> tuple[Feedback, set[str]]:
        """Return what stands by now, and the labels that differ; itself if nothing is new."""
        position = self.log.position
        before = self._position
        if position == before:
            return self, set()
        was_replaced = position.log_id != before.log_id
        if was_replaced or position.event < before.event or position.vector < before.vector:
            feedback = Feedback(self.log, self.space_digest)
            return feedback, {*self.labels, *feedback.labels}
        feedback = copy(self)
        feedback._position = position

        updates = self._updates()
        all_answers = self._answers | updates
        feedback._answers = {label: answers for label, answers in all_answers.items() if answers}
        changed_labels = set()
        for label, answers in updates.items():
            if answers != self._answers.get(label, {}):
                changed_labels.add(label)

        new_keys = self.log.vector_keys(self.space_digest, after=before.vector)
        if new_keys:
            feedback._vector_keys = self._vector_keys | new_keys
            for label, answers in all_answers.items():
                if not new_keys.keys().isdisjoint(answers):
                    changed_labels.add(label)
        return feedback, changed_labels

    def _updates(self) -> dict[str, dict[str, tuple[int, bool]]]:
        """Return the standing answers of labels that the log has new events about."""
        updates: dict[str, dict[str, tuple[int, bool]]] = {}
        undone: list[int] = []
        for event in self.log.events(self._position.event):
            if isinstance(event, Undo):
                undone.append(event.undoes)
                continue
            if event.label not in updates:
                updates[event.label] = dict(self._answers.get(event.label, {}))
            updates[event.label][event.item] = (event.number or 0, event.answer)
        if undone:  # what stood before stands again
            labels = self.log.labels_of(undone)
            standing = _by_label(self.log.standing(labels))
            updates |= {label: standing.get(label, {}) for label in labels}
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
            numbers.extend(number for number, _ in self._answers[label].values())
        return numbers

    def vectors(self, items: Collection[str]) -> dict[str, Floats]:
        """Return the vectors of items that have one."""
        keys = self._vector_keys
        numbers = {item: keys[item].number for item in items if item in keys}
        cache = self._vector_cache  # read once: other threads may replace it
        missing = [number for number in numbers.values() if number not in cache]
        new_vectors: dict[int, Floats] = {}
        if missing:
            new_vectors = dict(zip(missing, self.log.vectors(missing), strict=True))
        vectors_by_number = ChainMap(new_vectors, cache)
        vectors = {item: vectors_by_number[number] for item, number in numbers.items()}
        if new_vectors:
            vector_bytes = next(iter(new_vectors.values())).nbytes
            if vector_bytes * (len(cache) + len(new_vectors)) > _CACHE_BYTES:
                cache = {}
            if vector_bytes * len(new_vectors) <= _CACHE_BYTES:
                cache = cache | new_vectors
            self._vector_cache = cache
        return vectors

    def answers(self, labels: Collection[str]) -> dict[str, bool]:
        """Return items and answers of one label, which may have been given under several names.

        Items are in the order of their names, and the latest answer counts.
        """
        numbered_answers: list[tuple[str, tuple[int, bool]]] = []
        for label in labels:
            numbered_answers.extend(self._answers.get(label, {}).items())
        numbered_answers.sort()
        return {item: answer for item, (_, answer) in numbered_answers}

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
            return Examples(np.zeros((0, 0), np.float32), [], np.zeros(0, bool))
        return Examples(
            np.stack([vectors[item] for item in items]),
            [self._vector_keys[item].digest for item in items],
            np.array([answers[item] for item in items]),
        )

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
        projections = project([rows[item] for item in vectors])
        changed: set[str] = set()
        for projection, (item, vector) in zip(projections, vectors.items(), strict=True):
            differences = np.abs(projection - vector[: len(projection)])
            if differences.max() > _SAME_ITEM:
                changed.add(item)
        return changed

    def check_rows(self, rows: Mapping[str, int], project: Project) -> None:
        """Raise if a row is another item than the one that verdicts were given on by its number."""
        for item in sorted(self.changed_items(rows, project)):
            raise InputError(
                f"Row {item} is not the item '{item}' that verdicts were given on before; give "
                "items names of their own, by a column `id`."
            )


def _by_label(verdicts: Iterable[Verdict]) -> dict[str, dict[str, tuple[int, bool]]]:
    """Return numbers and answers of verdicts, by label and item."""
    by_label: dict[str, dict[str, tuple[int, bool]]] = {}
    for verdict in verdicts:
        answers = by_label.setdefault(verdict.label, {})
        answers[verdict.item] = (verdict.number or 0, verdict.answer)
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


def check_strategy(strategy: str, *, tagged: bool) -> None:
    """Raise on a strategy that is not known, or needs the items' tags where there are none."""
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise InputError(
            f"`strategy` of `ask` must be one of {', '.join(STRATEGIES)}; got {shown(strategy)}."
        )
    if strategy == "errors" and not tagged:
        raise InputError("To look for missing and wrong tags, give the items' tags.")


def choose(
    blocks: Callable[[], Iterable[Block]],
    k: int,
    strategy: str,
    generator: np.random.Generator,
) -> list[tuple[int, int, float, str]]:
    """Choose which of many items and labels to ask about, without holding all of them.

    Parameters
    ----------
    blocks : callable that returns an iterable of Block
        It is called twice where errors are looked for.
    k : int
    strategy : {"active", "likeliest", "random", "errors"}
        Half the likeliest and half the most uncertain; the likeliest; any; or tags that are perhaps
        missing or doubtful, the most surprising first; see `Spread.disagreements`.
    generator : numpy Generator

    Returns
    -------
    list of (row, column, probability, reason)
        k questions at the most, the first ones first.
    """
    reasons = _REASONS[strategy]
    spread = Spread.of(blocks()) if strategy == "errors" else None
    best: dict[str, _Candidates] = {}
    for block in blocks():
        eligible = np.isfinite(block.logits) & ~block.answered
        if spread is None:
            eligible &= ~block.tagged
        else:
            eligible &= spread.disagreements(block.logits, block.tagged)
        for reason in reasons:
            worth = _worth(reason, block, generator)
            # Twice as many as are wanted: those for one reason may be chosen for another.
            best[reason] = _best_candidates(best.get(reason), block, worth, eligible, 2 * k)

    questions: dict[tuple[int, int], tuple[float, str]] = {}
    for n_reasons, (reason, candidates) in enumerate(best.items(), start=1):
        n_wanted = k * n_reasons // len(reasons)
        for _, row, column, logit, tagged in zip(*map(np.ndarray.tolist, candidates), strict=True):
            if len(questions) >= n_wanted:
                break
            item_reason = reason
            if reason == "errors":
                item_reason = "doubtful" if tagged else "missing"
            probability = float(sigmoid(np.array(logit)))
            questions.setdefault((row, column), (probability, item_reason))
    return [(*place, *question) for place, question in questions.items()]


class _Candidates(NamedTuple):
    """The labels of items that are most worth a question so far, the best first."""

    worth: NDArray[Any]
    rows: NDArray[Any]
    columns: NDArray[Any]
    logits: NDArray[Any]
    tagged: NDArray[Any]


def _worth(reason: str, block: Block, generator: np.random.Generator) -> Matrix:
    """Return how much each label of each item is worth a question, (n, n_labels)."""
    if reason == "random":
        return generator.random(block.logits.shape)
    if reason == "errors":
        return np.where(block.tagged, -block.logits, block.logits)
    if reason == "likely":
        return block.logits
    return np.asarray(-np.abs(block.logits))


def _best_candidates(
    best: _Candidates | None, block: Block, worth: Matrix, eligible: NDArray[np.bool_], k: int
) -> _Candidates:
    """Return the k best candidates of those so far and those of a block."""
    # Of equals the first is kept, so that only what is better than the last one matters.
    least = -np.inf
    if best is not None and len(best.worth) >= k:
        least = best.worth[-1]
    rows, columns = np.nonzero(eligible & (worth > least))
    places = (rows, columns)
    candidates = _Candidates(
        worth[places], rows + block.start, columns, block.logits[places], block.tagged[places]
    )
    if best is not None:
        pairs = zip(best, candidates, strict=True)
        candidates = _Candidates(*(np.concatenate(pair) for pair in pairs))
    order = _largest(candidates.worth, k)
    return _Candidates(*(array[order] for array in candidates))


def _largest(values: Matrix, k: int) -> NDArray[np.int64]:
    """Return the places of the k largest values, the largest and of equals the first first."""
    candidates = np.arange(len(values))
    if len(values) > 8 * k:
        kth_largest = np.partition(values, -k)[-k]
        candidates = np.flatnonzero(values >= kth_largest)
    order = np.argsort(-values[candidates], kind="stable")
    return candidates[order[:k]]
