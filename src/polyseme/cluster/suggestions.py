"""Ranked tags as records, for `rank` and `tag`, on one machine and on many.

In: a tagger and items. Out: a record for each item, with tags, their kinds and scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from polyseme._validation import InputError
from polyseme.tagger import Tagger, ZeroShotTagger

# The score of a row may change in its last digits with the rows that are scored beside it, so every
# engine cuts tables at the same places.
MOST_ROWS = 1024
_LEAST_ROWS = 16
_SCORES_AT_ONCE = 2**22


class Suggestions:
    """What a tagger suggests: its best tags, or those of them that are likely enough.

    Parameters
    ----------
    tagger : ZeroShotTagger or PublishedTagger
    k : int
        The most tags an item.
    precision : float, optional
        The share of tags that should be true; see `ZeroShotTagger.thresholds`.
    method : {"space", "priming"}
        How labels are scored; see `ZeroShotTagger.predict_proba`.

    Attributes
    ----------
    n_rows : int
        Items to rank at a time: so many that a table of all their scores stays small.
    """

    def __init__(
        self, tagger: Tagger, k: int, precision: float | None = None, method: str = "space"
    ) -> None:
        if method != "space":
            _check_method(tagger, precision)
        self.tagger = tagger
        self.k = k
        self.precision = precision
        self.method = method
        n_labels = len(tagger.classes_)
        self.n_rows = max(_LEAST_ROWS, min(MOST_ROWS, _SCORES_AT_ONCE // max(1, n_labels)))
        self._kinds = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
        least = np.zeros(n_labels)
        if precision is not None:
            least = tagger.thresholds(precision)
        self._least = dict(zip(tagger.classes_, least.tolist(), strict=True))

    def records(self, X: Any, tags: Any = None) -> Iterator[dict[str, Any]]:
        """Yield labels, kinds and scores of each item; see `ZeroShotTagger.rank`."""
        # The published method has one way only, and its `rank` asks for none.
        chosen = {} if self.method == "space" else {"method": self.method}
        labels, scores = self.tagger.rank(X, k=self.k, tags=tags, **chosen)
        for names, values in zip(labels.tolist(), scores.tolist(), strict=True):
            kept = [
                (name, self._kinds[name], round(score, 6))
                for name, score in zip(names, values, strict=True)
                if score >= self._least[name]
            ]
            yield {
                "labels": [name for name, _, _ in kept],
                "kinds": [kind for _, kind, _ in kept],
                "scores": [score for _, _, score in kept],
            }


def _check_method(tagger: Tagger, precision: float | None) -> None:
    """Raise unless known tag sets alone can score labels as it is asked."""
    if not isinstance(tagger, ZeroShotTagger):
        raise InputError(
            "`method` needs the default tagger; the published method has one way to rank labels."
        )
    if precision is not None:
        raise InputError(
            "A precision is of probabilities, and votes of known tag sets are none; leave out the "
            "precision or the method."
        )
