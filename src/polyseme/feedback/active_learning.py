"""Active learning: which labels of which items are worth a question.

In: logits of labels, block by block, and what was answered already. Out: questions, the best first,
by uncertainty sampling, by probability, at random, or about tags that are perhaps wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polyseme.base.text import shown
from polyseme.base.validation import InputError
from polyseme.space.calibration import sigmoid

Matrix = NDArray[np.float64]

# Why each strategy asks.
_REASONS = {
    "active": ("likely", "uncertain"),
    "likeliest": ("likely",),
    "random": ("random",),
    "errors": ("errors",),
}
STRATEGIES = tuple(_REASONS)
# A tag is doubtful, or perhaps missing, so many standard deviations from the other items with it,
# or without it: there are many more of the latter, and some of them are far off by chance.
_DOUBTFUL = 2.0
_MISSING = 5.0
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
            is_scored = np.isfinite(block.logits)
            without_tag = is_scored & ~block.tagged
            with_tag = is_scored & block.tagged
            sides = np.stack([without_tag, with_tag])
            side_logits = np.where(sides, logits, 0)
            side_squares = np.where(sides, logits**2, 0)
            counts = counts + sides.sum(axis=1)
            sums = sums + side_logits.sum(axis=1)
            squares = squares + side_squares.sum(axis=1)
        return cls(counts, sums, squares)

    def disagreements(self, logits: Matrix, tagged: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the model disagrees with the tags of items, (n, n_labels).

        It does where the probability is on the other side of one half, and the logit is far from
        those of the other items on the same side: some labels are harder to see than others, so
        that each is compared with itself.
        """
        values = _clipped(logits)
        counts = np.where(tagged, self.counts[1], self.counts[0])
        sums = np.where(tagged, self.sums[1], self.sums[0])
        squares = np.where(tagged, self.squares[1], self.squares[0])

        # What the other items on the same side have.
        n_others = counts - 1
        other_sums = sums - values
        other_squares = squares - values**2
        with np.errstate(divide="ignore", invalid="ignore"):  # no others: nothing to compare with
            means = other_sums / n_others
            squared_means = n_others * means**2
            deviations = np.maximum(other_squares - squared_means, 0)
            # One more item at the distance that is usual, so that a few alike say little.
            variances = (deviations + _USUAL_SPREAD**2) / n_others
            spreads = np.sqrt(variances)
            distances = (values - means) / spreads

        is_low = (logits < 0) & (distances <= -_DOUBTFUL)
        is_high = (logits >= 0) & (distances >= _MISSING)
        disagrees = np.where(tagged, is_low, is_high)
        has_others = n_others > 0
        return np.asarray(has_others & disagrees)


def _clipped(logits: Matrix) -> Matrix:
    """Return logits that are no farther from 0 than can be told apart."""
    return np.clip(logits, -_FARTHEST_LOGIT, _FARTHEST_LOGIT)


def check_strategy(strategy: str, *, tagged: bool) -> None:
    """Raise on a strategy that is not known, or needs the items' tags where there are none."""
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        names = ", ".join(STRATEGIES)
        got = shown(strategy)
        raise InputError(f"`strategy` of `ask` must be one of {names}; got {got}.")
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
    logits = block.logits
    if reason == "random":
        return generator.random(logits.shape)
    if reason == "errors":
        return np.where(block.tagged, -logits, logits)
    if reason == "likely":
        return logits
    distances = np.abs(logits)
    return np.asarray(-distances)


def _best_candidates(
    best: _Candidates | None, block: Block, worth: Matrix, eligible: NDArray[np.bool_], k: int
) -> _Candidates:
    """Return the k best candidates of those so far and those of a block."""
    # Of equals the first is kept, so that only what is better than the last one matters.
    least = -np.inf
    if best is not None and len(best.worth) >= k:
        least = best.worth[-1]
    is_better = worth > least
    places = np.nonzero(eligible & is_better)
    rows, columns = places
    item_rows = rows + block.start
    logits = block.logits[places]
    tagged = block.tagged[places]
    candidates = _Candidates(worth[places], item_rows, columns, logits, tagged)
    if best is not None:
        pairs = zip(best, candidates, strict=True)
        joined = map(np.concatenate, pairs)
        candidates = _Candidates(*joined)
    order = _largest(candidates.worth, k)
    sorted_arrays = [array[order] for array in candidates]
    return _Candidates(*sorted_arrays)


def _largest(values: Matrix, k: int) -> NDArray[np.int64]:
    """Return the places of the k largest values, the largest and of equals the first first."""
    candidates = np.arange(len(values))
    if len(values) > 8 * k:
        partitioned = np.partition(values, -k)
        kth_largest = partitioned[-k]
        candidates = np.flatnonzero(values >= kth_largest)
    candidate_values = values[candidates]
    order = np.argsort(-candidate_values, kind="stable")
    best = order[:k]
    return candidates[best]
