"""What people said about single labels of items, and what to ask them next.

In: verdicts with vectors of the items they are about; probabilities of labels. Out: for a label the
items that were answered for, and questions that are worth asking.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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

# Why each strategy asks.
_REASONS = {
    "active": ("likely", "uncertain"),
    "likeliest": ("likely",),
    "random": ("random",),
    "errors": ("errors",),
}
STRATEGIES = tuple(_REASONS)
# Vectors of items are held in memory up to this size; others are read when they are needed.
_HELD_BYTES = 256 * 2**20
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


class Feedback:
    """The verdicts that stand, by label, and the vectors of their items in one space.

    It is what a log held at some time and does not change: `caught_up` gives another.

    Parameters
    ----------
    log : VerdictLog
        Where they are kept.
    space : str
        The digest of the space that vectors belong to; items without one there are passed over.
    """

    def __init__(self, log: VerdictLog, space: str) -> None:
        self.log, self.space = log, space
        # What is read after this may be newer already; it is read again then, with no harm.
        self._heads = log.heads()
        # The number of each verdict and its answer, by label and item.
        self._answers = _by_label(log.standing())
        # The number of each item's vector, and vectors by numbers: what has a number never changes.
        self._places = log.coded(space)
        self._held: dict[int, Floats] = {}

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that verdicts are about."""
        return tuple(self._answers)

    def items(self) -> dict[str, None]:
        """Return the items that verdicts are about, as keys."""
        return dict.fromkeys(item for said in self._answers.values() for item in said)

    def triples(self) -> Iterator[tuple[str, str, bool]]:
        """Yield item, label and answer of every verdict."""
        for label, said in self._answers.items():
            for item, (_, answer) in said.items():
                yield item, label, answer

    def caught_up(self) -> tuple[Feedback, set[str]]:
        """Return what stands by now, whoever has written to the log, and the labels that differ.

        Itself, where nothing is new.
        """
        heads = self.log.heads()
        if heads == self._heads:
            return self, set()
        if not self.log.holds(self._heads):  # another log has taken its place
            new = Feedback(self.log, self.space)
            return new, {*self.labels, *new.labels}
        new = copy(self)
        new._heads = heads
        fresh: dict[str, dict[str, tuple[int, bool]]] = {}
        undone = []
        for event in self.log.events(self._heads["events"][0]):
            if isinstance(event, Undo):
                undone.append(event.undoes)
                continue
            if event.label not in fresh:
                fresh[event.label] = dict(self._answers.get(event.label, {}))
            fresh[event.label][event.item] = (event.number or 0, event.answer)
        if undone:  # what stood before stands again
            again = self.log.labels_of(undone)
            standing = _by_label(self.log.standing(again))
            fresh |= {label: standing.get(label, {}) for label in again}
        every = self._answers | fresh
        new._answers = {label: said for label, said in every.items() if said}
        differ = {one for one, said in fresh.items() if said != self._answers.get(one, {})}
        placed = self.log.coded(self.space, after=self._heads["codes"][0])
        moved = {item: at for item, at in placed.items() if self._places.get(item) != at}.keys()
        if moved:
            new._places = self._places | placed
            differ |= {one for one, said in every.items() if not moved.isdisjoint(said.keys())}
        return new, differ

    def kept_in(self, log: VerdictLog) -> Feedback:
        """Return the same for another log, to which this one's was copied."""
        new = copy(self)
        new.log = log
        return new

    def numbers(self, labels: Collection[str]) -> list[int]:
        """Return the numbers of the standing verdicts on labels."""
        return [number for label in labels for number, _ in self._answers[label].values()]

    def vectors(self, items: Collection[str]) -> dict[str, Floats]:
        """Return the vectors of items that have one; some are held in memory."""
        numbers = {item: self._places[item] for item in items if item in self._places}
        held = self._held
        missing = [number for number in numbers.values() if number not in held]
        read = dict(zip(missing, self.log.vectors(missing), strict=True)) if missing else {}
        found = {item: read[at] if at in read else held[at] for item, at in numbers.items()}
        width = next((vector.nbytes for vector in found.values()), 0)
        if width * (len(held) + len(read)) > _HELD_BYTES:
            held = {}
        if read:
            self._held = held | read if width * len(read) <= _HELD_BYTES else held
        return found

    def answers(self, labels: Collection[str]) -> dict[str, bool]:
        """Return items and answers of one label, which may have been said under several names.

        They are in the order of the items' names, whatever came first, and the latest counts.
        """
        said = [(item, told) for one in labels for item, told in self._answers.get(one, {}).items()]
        return {item: answer for item, (_, answer) in sorted(said)}

    def digest(self, labels: Collection[str]) -> bytes:
        """Digest what `placed` gives, without reading it; nothing where it gives nothing."""
        answers, places = self.answers(labels), self._places
        told = [(places[item], answer) for item, answer in answers.items() if item in places]
        if not told:
            return b""
        # The last vector's own digest tells of all that came before it.
        last = self.log.code_digest(max(told)[0])
        return hashlib.sha256(last + ascii(told).encode("ascii")).digest()

    def placed(self, labels: Collection[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return vectors (n, n_dimensions) and answers (n,) of items that have a vector here."""
        answers = self.answers(labels)
        vectors = self.vectors(answers)
        known = [item for item in answers if item in vectors]
        if not known:
            return np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=bool)
        return np.stack([vectors[item] for item in known]), np.array([answers[x] for x in known])


def _by_label(verdicts: Iterable[Verdict]) -> dict[str, dict[str, tuple[int, bool]]]:
    """Return numbers and answers of verdicts, by label and item."""
    found: dict[str, dict[str, tuple[int, bool]]] = {}
    for one in verdicts:
        found.setdefault(one.label, {})[one.item] = (one.number or 0, one.answer)
    return found


def as_verdict(given: Verdict | tuple[Any, ...], model: str) -> Verdict:
    """Return a verdict of a tuple that begins with item, label and answer; items are text."""
    try:
        verdict = given if isinstance(given, Verdict) else Verdict(*given)
        item = str(verdict.item)
    except (TypeError, ValueError):  # a number may have too many digits to be written
        raise InputError(
            f"A verdict must be a `Verdict` or a tuple (item, label, answer); got {shown(given)}."
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
    found, known = {}, lru_cache(maxsize=None)(columns)
    for item, label, answer, *_ in verdicts:
        row, column = rows.get(item), known(label)
        if row is not None and column is not None:
            found[row, column] = 1.0 if answer else -1.0
    if not found:
        return None
    places = np.array([*found], dtype=np.int64)
    return sp.csr_matrix(([*found.values()], (places[:, 0], places[:, 1])), shape=shape)


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
    # For each reason the best so far: worth, row, column, logit, tagged.
    kept: dict[str, list[NDArray[Any]]] = {}
    for block in blocks():
        logits, tagged = block.logits, block.tagged
        may = np.isfinite(logits) & ~block.answered
        may &= ~tagged if spread is None else spread.disagreements(logits, tagged)
        for reason in reasons:
            if reason == "random":
                worth = generator.random(may.shape)
            elif reason == "errors":
                worth = np.where(tagged, -logits, logits)
            else:
                worth = logits if reason == "likely" else -np.abs(logits)
            before = kept.get(reason)
            # Of equals the first is kept, so that only what is better than the last one matters.
            least = -np.inf if before is None or len(before[0]) < 2 * k else before[0][-1]
            row, column = np.nonzero(may & (worth > least))
            places = (row, column)
            found = [worth[places], row + block.start, column, logits[places], tagged[places]]
            if before is not None:
                found = [np.concatenate(pair) for pair in zip(before, found, strict=True)]
            # Twice as many as are wanted: those for one reason may be chosen for another.
            best = _largest(np.asarray(found[0]), 2 * k)
            kept[reason] = [part[best] for part in found]
    chosen: dict[tuple[int, int], tuple[float, str]] = {}
    for place, (reason, (_, *parts)) in enumerate(kept.items()):
        for row, column, value, has in zip(*(part.tolist() for part in parts), strict=True):
            if len(chosen) >= k * (place + 1) // len(reasons):
                break
            why = reason if reason != "errors" else ("doubtful" if has else "missing")
            chosen.setdefault((row, column), (float(sigmoid(np.array(value))), why))
    return [(*place, *told) for place, told in chosen.items()]


def _largest(values: Matrix, k: int) -> NDArray[np.int64]:
    """Return the places of the k largest values, the largest and of equals the first first."""
    near = np.arange(len(values))
    if len(values) > 8 * k:
        near = np.flatnonzero(values >= np.partition(values, -k)[-k])
    return near[np.argsort(-values[near], kind="stable")[:k]]
