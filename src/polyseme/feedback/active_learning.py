"""Active learning: which labels of which items are worth a question.

In: logits of labels, block by block, and what was answered already. Out: questions, the best first,
by uncertainty sampling, by probability, at random, or about tags that are perhaps wrong.

Terms: a *block* is some rows of items by the labels that may be asked about; tables of a block are
(n, n_labels). *Tagged* is where an item carries a label as its tag, *answered* where a verdict says
yes or no. How much an entry is *worth* a question decides the order; the best is the largest.
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

# The strategies of `ZeroShotTagger.ask`, and why each asks: a reason is part of every question.
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
# The usual standard deviation of a label's logits, which counts like one more item.
_USUAL_SPREAD = 2.0
# Logits farther from 0, probabilities within a millionth of 0 or 1, are not told apart.
_FARTHEST_LOGIT = 14.0
# Where there are more values than this many times k, they are cut down before they are sorted.
_SORTED_TIMES = 8


class Question(NamedTuple):
    """Whether an item has a label, and why that is asked; its fields are public."""

    item: str  # its id, or the number of its row
    row: int  # of X
    label: str
    probability: float
    reason: str  # "likely", "uncertain", "random", "missing" or "doubtful"


class Block(NamedTuple):
    """Some rows of items that may be asked about."""

    start: int  # the row of the first item among all
    logits: Matrix  # minus infinity for what is not to be asked, (n, n_labels)
    answered: NDArray[np.bool_]  # what was answered already, (n, n_labels)
    tagged: NDArray[np.bool_]  # which tags items have, (n, n_labels)


class Spread(NamedTuple):
    """How the logits of labels spread, on two sides: items without each label, and with it.

    Row 0 is of the items without the label, row 1 of those with it; all are (2, n_labels).
    """

    counts: Matrix  # how many items there are
    sums: Matrix  # of their logits
    square_sums: Matrix  # of their squared logits

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Spread:
        """Count and sum up logits, block by block."""
        # One column is broadcast to those of the first block.
        counts: Matrix = np.zeros((2, 1))
        sums: Matrix = np.zeros((2, 1))
        square_sums: Matrix = np.zeros((2, 1))
        for block in blocks:
            logits = _clipped(block.logits)
            is_scored = np.isfinite(block.logits)
            without_tag = is_scored & ~block.tagged
            with_tag = is_scored & block.tagged
            sides = np.stack([without_tag, with_tag])  # (2, n, n_labels)
            side_logits = np.where(sides, logits, 0)
            side_squares = np.where(sides, logits**2, 0)
            counts = counts + sides.sum(axis=1)
            sums = sums + side_logits.sum(axis=1)
            square_sums = square_sums + side_squares.sum(axis=1)
        return cls(counts, sums, square_sums)

    def disagreements(self, logits: Matrix, tagged: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the model disagrees with the tags of items, (n, n_labels).

        It does where the probability is on the other side of one half, and the logit is far from
        those of the other items on the same side: some labels are harder to see than others, so
        that each is compared with itself.

        Parameters
        ----------
        logits : float64 array, shape (n, n_labels)
        tagged : bool array, shape (n, n_labels)
            Of items that were counted in.
        """
        clipped = _clipped(logits)
        without_counts, with_counts = self.counts
        without_sums, with_sums = self.sums
        without_squares, with_squares = self.square_sums
        counts = np.where(tagged, with_counts, without_counts)
        sums = np.where(tagged, with_sums, without_sums)
        square_sums = np.where(tagged, with_squares, without_squares)

        # What the other items on the same side have, without this one.
        n_others = counts - 1
        other_sums = sums - clipped
        other_squares = square_sums - clipped**2
        with np.errstate(divide="ignore", invalid="ignore"):  # no others: nothing to compare with
            means = other_sums / n_others
            # Σ (x - mean)² = Σ x² - n mean²
            squared_means = n_others * means**2
            deviations = np.maximum(other_squares - squared_means, 0)
            # One more item at the distance that is usual, so that a few alike say little.
            deviations += _USUAL_SPREAD**2
            variances = deviations / n_others
            spreads = np.sqrt(variances)
            distances = (clipped - means) / spreads

        is_far_below = distances <= -_DOUBTFUL
        is_far_above = distances >= _MISSING
        is_doubtful = (logits < 0) & is_far_below
        is_missing = (logits >= 0) & is_far_above
        disagrees = np.where(tagged, is_doubtful, is_missing)
        has_others = n_others > 0
        return np.asarray(has_others & disagrees)


def _clipped(logits: Matrix) -> Matrix:
    """Return logits that are no farther from 0 than can be told apart."""
    return np.clip(logits, -_FARTHEST_LOGIT, _FARTHEST_LOGIT)


def check_strategy(strategy: str, *, tagged: bool) -> None:
    """Raise on a strategy that is not known, or needs the items' tags where there are none."""
    is_known = isinstance(strategy, str) and strategy in STRATEGIES
    if not is_known:
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
        It is called twice where errors are looked for, and must yield the same both times.
    k : int
        The most questions.
    strategy : {"active", "likeliest", "random", "errors"}
        Half the likeliest and half the most uncertain; the likeliest; any; or tags that are perhaps
        missing or doubtful, the most surprising first; see `Spread.disagreements`.
    generator : numpy Generator

    Returns
    -------
    list of (row, column, probability, reason)
        k questions at the most, the best for each reason first. Rows are numbered over all blocks,
        columns are those of the blocks.
    """
    reasons = _REASONS[strategy]
    spread = None
    if strategy == "errors":
        spread = Spread.of(blocks())
    best_by_reason: dict[str, _Candidates] = {}
    for block in blocks():
        may_ask = np.isfinite(block.logits)
        eligible = may_ask & ~block.answered
        if spread is None:
            eligible &= ~block.tagged
        else:
            eligible &= spread.disagreements(block.logits, block.tagged)
        for reason in reasons:
            worth = _worth(reason, block, generator)
            best_by_reason[reason] = _best_candidates(
                best_by_reason.get(reason),
                block,
                worth,
                eligible,
                # Twice as many as are wanted: those for one reason may be chosen for another.
                k=2 * k,
            )

    # The first reason has its share of the k questions, the next one fills up to both shares, and
    # so on: what an earlier reason lacks goes to later ones.
    questions: dict[tuple[int, int], tuple[int, int, float, str]] = {}
    for n_reasons, (reason, candidates) in enumerate(best_by_reason.items(), start=1):
        n_wanted = k * n_reasons // len(reasons)
        for candidate in range(len(candidates.worth)):
            if len(questions) >= n_wanted:
                break
            row = int(candidates.rows[candidate])
            column = int(candidates.columns[candidate])
            if (row, column) in questions:
                continue  # chosen for an earlier reason
            shown_reason = reason
            if reason == "errors":
                is_tagged = candidates.tagged[candidate]
                shown_reason = "doubtful" if is_tagged else "missing"
            probability = float(sigmoid(candidates.logits[candidate]))
            questions[row, column] = (row, column, probability, shown_reason)
    return list(questions.values())


class _Candidates(NamedTuple):
    """The labels of items that are most worth a question so far, the best first; all are (n,)."""

    worth: NDArray[Any]
    rows: NDArray[Any]  # over all blocks
    columns: NDArray[Any]
    logits: NDArray[Any]
    tagged: NDArray[Any]  # whether the item has the label as a tag


def _worth(reason: str, block: Block, generator: np.random.Generator) -> Matrix:
    """Return how much each label of each item is worth a question, (n, n_labels).

    For "uncertain" it is the nearness of the probability to one half; for "errors" how far it is on
    the wrong side of that.
    """
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
    """Return the k best candidates of those so far and those of a block.

    Parameters
    ----------
    best : _Candidates or None
        Those of earlier blocks, by this function.
    block : Block
    worth : float64 array, shape (n, n_labels)
    eligible : bool array, shape (n, n_labels)
        Which labels of which items of the block may be asked about.
    k : int
    """
    # Of equals the first is kept, so that only what is better than the last one matters.
    least_worth = -np.inf
    if best is not None and len(best.worth) >= k:
        least_worth = best.worth[-1]
    is_better = worth > least_worth
    places = np.nonzero(eligible & is_better)
    block_rows, columns = places
    candidates = _Candidates(
        worth=worth[places],
        rows=block_rows + block.start,
        columns=columns,
        logits=block.logits[places],
        tagged=block.tagged[places],
    )
    if best is not None:
        pairs = zip(best, candidates, strict=True)  # of each field
        joined_fields = map(np.concatenate, pairs)
        candidates = _Candidates(*joined_fields)
    order = _largest(candidates.worth, k)
    sorted_fields = [array[order] for array in candidates]
    return _Candidates(*sorted_fields)


def _largest(values: Matrix, k: int) -> NDArray[np.int64]:
    """Return the places of the k largest values (n,), the largest and of equals the first first."""
    n_values = len(values)
    candidates = np.arange(n_values)
    if n_values > _SORTED_TIMES * k:
        partitioned = np.partition(values, -k)
        kth_largest = partitioned[-k]
        candidates = np.flatnonzero(values >= kth_largest)
    candidate_values = values[candidates]
    order = np.argsort(-candidate_values, kind="stable")
    best = order[:k]
    return candidates[best]
