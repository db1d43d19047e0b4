"""What people said about single labels of items, and what to ask them next.

In: verdicts with vectors of the items they are about; probabilities of labels. Out: for a label the
items that were answered for, and questions that are worth asking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import InputError, IntArray
from polyseme.verdicts import Verdict, VerdictLog

Matrix = NDArray[np.float64]
Floats = NDArray[np.float32]

STRATEGIES = ("active", "likeliest", "random", "errors")


class Question(NamedTuple):
    """Whether an item has a label, and why that is asked."""

    item: str  # its id, or the number of its row
    row: int
    label: str
    probability: float
    reason: str  # "likely", "uncertain", "random", "missing" or "wrong"


class Feedback:
    """The verdicts that stand, by label, and the vectors of their items in one space.

    Parameters
    ----------
    log : VerdictLog
        Where they are kept.
    space : str
        The digest of the space that vectors belong to; items without one there are passed over.
    """

    def __init__(self, log: VerdictLog, space: str) -> None:
        self.log, self.space = log, space
        self._vectors: dict[str, Floats] = dict(log.codes(space)) if log.count else {}
        self._load()

    def _load(self) -> None:
        """Read what stands from the log."""
        self._answers: dict[str, dict[str, bool]] = {}
        for verdict in self.log.standing() if self.log.count else ():
            self._answers.setdefault(verdict.label, {})[verdict.item] = verdict.answer

    def __len__(self) -> int:
        return sum(map(len, self._answers.values()))

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that verdicts are about."""
        return tuple(self._answers)

    def add(self, verdicts: Collection[Verdict], vectors: Mapping[str, Floats]) -> range:
        """Keep verdicts, and vectors of items that are new; give the verdicts' numbers."""
        fresh = {item: vector for item, vector in vectors.items() if item not in self._vectors}
        numbers = self.log.append(verdicts, fresh, self.space)
        self._vectors |= fresh
        for verdict in verdicts:
            self._answers.setdefault(verdict.label, {})[verdict.item] = verdict.answer
        return numbers

    def undo(self, numbers: Iterable[int]) -> range:
        """Take verdicts back; what stood before them stands again."""
        undone = self.log.undo(numbers)
        self._load()
        return undone

    def numbers(self, labels: Collection[str]) -> list[int]:
        """Give the numbers of the standing verdicts on labels."""
        stands = self.log.standing() if self.log.count else []
        return [one.number for one in stands if one.label in labels and one.number is not None]

    def knows(self, item: str) -> bool:
        """Say whether an item has a vector."""
        return item in self._vectors

    def answers(self, labels: Collection[str]) -> dict[str, bool]:
        """Give items and answers of one label, which may have been said under several names."""
        said = (self._answers.get(label, {}) for label in labels)
        return {item: answer for one in said for item, answer in one.items()}

    def placed(self, labels: Collection[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """Give vectors (n, n_dimensions) and answers (n,) of items that have a vector here."""
        known = {item: yes for item, yes in self.answers(labels).items() if item in self._vectors}
        if not known:
            return np.zeros((0, 0), dtype=np.float32), np.zeros(0, dtype=bool)
        return np.stack([self._vectors[item] for item in known]), np.array([*known.values()])


def answer_table(
    verdicts: Iterable[Verdict],
    rows: Mapping[str, int],
    columns: Callable[[str], int | None],
    shape: tuple[int, int],
) -> sp.csr_matrix | None:
    """Give verdicts as a table of 1 for yes and -1 for no, of the shape (n, n_labels).

    Rows of items are known by their names, columns by a function that gives None for a label that
    is not there; verdicts on others are passed over. None where no verdict is left.
    """
    found = {}
    for verdict in verdicts:
        row, column = rows.get(verdict.item), columns(verdict.label)
        if row is not None and column is not None:
            found[row, column] = 1.0 if verdict.answer else -1.0
    if not found:
        return None
    places = np.array([*found], dtype=np.int64)
    return sp.csr_matrix(([*found.values()], (places[:, 0], places[:, 1])), shape=shape)


def check_strategy(strategy: str, *, tagged: bool) -> None:
    """Raise on a strategy that is not known, or needs the items' tags where there are none."""
    if strategy not in STRATEGIES:
        raise InputError(
            f"`strategy` of `ask` must be one of {', '.join(STRATEGIES)}; got {strategy!r}."
        )
    if strategy == "errors" and not tagged:
        raise InputError("To look for missing and wrong tags, give the items' tags.")


def choose(
    blocks: Iterable[tuple[slice, Matrix]],
    told: Iterable[tuple[slice, NDArray[np.bool_], NDArray[np.bool_]]],
    k: int,
    strategy: str,
    generator: np.random.Generator,
) -> Iterator[tuple[int, int, float, str]]:
    """Choose which of many items and labels to ask about, without holding all of them.

    Parameters
    ----------
    blocks : iterable of (slice, float64 array, shape (n, n_labels))
        Rows and their logits; minus infinity for what is not to be asked.
    told : iterable of (slice, bool array, bool array), shapes (n, n_labels)
        For the same rows, what was answered already, and which tags items have.
    k : int
    strategy : {"active", "likeliest", "random", "errors"}
        Half the likeliest and half the most uncertain; the likeliest; any; or tags that are missing
        or wrong, the most surprising first.
    generator : numpy Generator

    Yields
    ------
    row, column, logit, reason
        Of k questions at the most, the first ones first.
    """
    reasons = {
        "likeliest": ("likely",),
        "active": ("likely", "uncertain"),
        "random": ("random",),
        "errors": ("errors",),
    }[strategy]
    kept: dict[str, list[tuple[Matrix, IntArray, IntArray, Matrix, NDArray[np.bool_]]]] = {
        reason: [] for reason in reasons
    }
    for (rows, logits), (_, answered, tagged) in zip(blocks, told, strict=True):
        may = np.isfinite(logits) & ~answered
        if strategy != "errors":
            may &= ~tagged
        worth = {
            "likely": logits,
            "uncertain": -np.abs(logits),
            "random": generator.random(logits.shape) if strategy == "random" else logits,
            "errors": np.where(tagged, -logits, logits),
        }
        for reason in reasons:
            values = np.where(may, worth[reason], -np.inf)
            flat = np.argsort(-values, axis=None, kind="stable")[: 2 * k]
            flat = flat[np.isfinite(values.ravel()[flat])]
            row, column = np.unravel_index(flat, values.shape)
            some = row, column
            kept[reason].append(
                (values[some], row + rows.start, column, logits[some], tagged[some]),
            )
    found: dict[tuple[int, int], tuple[float, str]] = {}
    for place, reason in enumerate(reasons):
        wanted = k * (place + 1) // len(reasons)
        worths, row, column, logit, tagged = (
            np.concatenate(parts) for parts in zip(*kept[reason], strict=True)
        )
        for one in np.argsort(-worths, kind="stable").tolist():
            if len(found) >= wanted:
                break
            why = reason if reason != "errors" else ("wrong" if tagged[one] else "missing")
            found.setdefault((int(row[one]), int(column[one])), (float(logit[one]), why))
    for (at, label), (value, why) in found.items():
        yield at, label, value, why
