"""Step 6, rankings: metrics of label rankings, and `evaluate`, which computes them all.

In: `truth`, 0/1 of shape (n, n_labels), and `scores`, floats of the same shape, larger is better.
Out: one float per metric, or one per row or label. Rankings are sorted in blocks of rows, and each
metric is a formula over sorted rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyseme._validation import PolysemeWarning, check_number, check_option
from polyseme.metrics.checks import BoolArray, Truth, Values, validate

Ties: TypeAlias = Literal["worst", "index"]

BLOCK_ENTRIES = 1 << 20  # entries sorted at once, which takes some 60 MB of scratch
RECALL_LEVELS = np.linspace(0.0, 1.0, 11)
RECALL_TOLERANCE = 1e-9


def example_precision(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> Values:
    """Average the precision over list lengths 1 to m, for each row (eq. 11).

    With m relevant labels and P@i the share of relevant ones among the first i, a row's value is
    (1/m) * sum over i = 1..m of P@i, in [0, 1], larger is better. Returns shape (n,), with NaN for
    a row that has no relevant label. `ties` orders equal scores: "worst" puts irrelevant labels
    first, "index" goes by column. Tested against a plain loop.
    """
    known, values = validate(truth, scores)
    check_option("ties", ties, ("worst", "index"), owner="example_precision")
    return _per_row(known, values, ties, _precision_to_depth)[0]


def concept_precision(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> Values:
    """Average the interpolated precision over 11 recall levels, for each label (eq. 12).

    Each label ranks all n rows. Its value is the mean over r = 0, 0.1, ..., 1 of the best P@k
    among the k with R@k >= r (up to 1e-9), in [0, 1], larger is better. Returns shape (n_labels,),
    with NaN for a label that has no positive row. `ties` orders equal scores: "worst" puts
    negative rows first, "index" goes by row. Tested against a plain loop.
    """
    known, values = validate(truth, scores)
    check_option("ties", ties, ("worst", "index"), owner="concept_precision")
    return _per_row(known.T, values.T, ties, _eleven_point)[0]


def example_map(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> float:
    """Return the mean of `example_precision` over rows: E-MAP in the paper (eq. 11).

    In [0, 1], larger is better. It averages P@1 to P@m and is not the usual average precision:
    with one relevant label it is 1 where that label ranks first and 0 elsewhere. Rows with no
    relevant label are skipped. Ties as in `example_precision`.
    """
    return _mean(example_precision(truth, scores, ties), "example_map")


def concept_map(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> float:
    """Return the mean of `concept_precision` over labels: C-MAP in the paper (eq. 12).

    In [0, 1], larger is better; chance is about the share of positive rows. Labels with no
    positive row are skipped. Ties as in `concept_precision`.
    """
    return _mean(concept_precision(truth, scores, ties), "concept_map")


def mean_average_precision(truth: Truth, scores: ArrayLike) -> float:
    """Average over labels the average precision of each label's ranking of the rows.

    AP = sum over thresholds t of (R_t - R_(t-1)) * P_t, in [0, 1], larger is better. Equal scores
    share one threshold: a positive counts with the precision after its whole tied run. Equals
    scikit-learn's `average_precision_score`, but labels with no positive are skipped (there: 0).
    """
    known, values = validate(truth, scores)
    each = _per_row(known.T, values.T, "worst", _precision_at_hits)[0]
    return _mean(each, "mean_average_precision")


def f1_at_k(truth: Truth, scores: ArrayLike, k: int, ties: Ties = "worst") -> float:
    """Return micro F1 when the first k labels of every row are predicted.

    As in the zero-shot literature, counts are pooled over rows: with H hits in n lists of
    min(k, n_labels) labels and M relevant labels in all, P = H / (n * min(k, n_labels)),
    R = H / M and F1 = 2PR / (P + R), in [0, 1], larger is better. It can only reach 1 if every
    row has as many relevant labels as are predicted. A row with no relevant label stays in: all
    its predictions are wrong. `ties` orders equal scores: "worst" puts irrelevant labels first,
    "index" goes by column. Tested against scikit-learn's `f1_score(average="micro")`.
    """
    known, values = validate(truth, scores)
    check_number("k", k, owner="f1_at_k", low=1, whole=True)
    check_option("ties", ties, ("worst", "index"), owner="f1_at_k")
    return _mean(_pooled_f1(known, _per_row(known, values, ties, _hits_at(k))[0], k), "f1_at_k")


def ranking_loss(truth: Truth, scores: ArrayLike) -> float:
    """Average over rows the share of (relevant, irrelevant) pairs in the wrong order.

    In [0, 1], smaller is better. A tied pair is a wrong pair. Equals scikit-learn's
    `label_ranking_loss`, but rows with no relevant label are skipped (there: 0); a row whose
    labels are all relevant has no pair to get wrong and counts as 0 in both.
    """
    known, values = validate(truth, scores)
    return _mean(_per_row(known, values, "worst", _wrong_pairs)[0], "ranking_loss")


def coverage(truth: Truth, scores: ArrayLike) -> float:
    """Average over rows the rank of the relevant label that ranks last.

    In [1, n_labels], smaller is better; at best the mean number of relevant labels. Labels tied
    with that label come before it. Equals scikit-learn's `coverage_error`, but rows with no
    relevant label are skipped (there: 0).
    """
    known, values = validate(truth, scores)
    return _mean(_per_row(known, values, "worst", _last_rank)[0], "coverage")


def label_ranking_average_precision(truth: Truth, scores: ArrayLike) -> float:
    """Average over rows, and over each row's relevant labels, the precision at a label's rank.

    In (0, 1], larger is better. Equal scores share the lowest rank among them. Equals
    scikit-learn's `label_ranking_average_precision_score`, but rows with no relevant label are
    skipped (there: 1).
    """
    known, values = validate(truth, scores)
    each = _per_row(known, values, "worst", _precision_at_hits)[0]
    return _mean(each, "label_ranking_average_precision")


def roc_auc(truth: Truth, scores: ArrayLike) -> float:
    """Average over labels the chance that a positive row outscores a negative one.

    In [0, 1], larger is better, 0.5 by chance. A tied pair counts one half: the only place where
    ties are not held against a ranking, as the area is defined so. Equals scikit-learn's
    `roc_auc_score` over the labels that have positive and negative rows; others are skipped.
    """
    known, values = validate(truth, scores)
    return _mean(_per_row(known.T, values.T, "worst", _area)[0], "roc_auc")


def evaluate(truth: Truth, scores: ArrayLike, *, k: int = 5) -> dict[str, float]:
    """Compute every ranking metric, sorting the scores only once along each axis.

    Returns name to value, always in this order: `example_map`, `concept_map`,
    `mean_average_precision`, `f1_at_<k>` (for k=5: `f1_at_5`), `ranking_loss`, `coverage`,
    `label_ranking_average_precision`, `roc_auc`; each is what its own function returns by
    default. Where no row has a relevant label, all are NaN and one warning says so.
    """
    known, values = validate(truth, scores)
    check_number("k", k, owner="evaluate", low=1, whole=True)
    by_row = (_precision_to_depth, _wrong_pairs, _last_rank, _precision_at_hits, _hits_at(k))
    by_label = (_eleven_point, _precision_at_hits, _area)
    example, loss, rank, lrap, hits = _per_row(known, values, "worst", *by_row)
    concept, average, area = _per_row(known.T, values.T, "worst", *by_label)
    each = {
        "example_map": example,
        "concept_map": concept,
        "mean_average_precision": average,
        f"f1_at_{k}": _pooled_f1(known, hits, k),
        "ranking_loss": loss,
        "coverage": rank,
        "label_ranking_average_precision": lrap,
        "roc_auc": area,
    }
    if not known.any():
        message = "All metrics are nan: no row of `truth` has a relevant label."
        warnings.warn(message, PolysemeWarning, stacklevel=2)
        return dict.fromkeys(each, np.nan)
    result = {}
    for name, part in each.items():  # not a comprehension: a warning must point at the caller
        result[name] = _mean(part, name)
    return result


class _Ranked:
    """Rows with their entries sorted best first; arrays are (rows, entries) or (rows,)."""

    def __init__(self, truth: BoolArray, scores: NDArray[Any], ties: Ties) -> None:
        if ties == "worst":  # the last key sorts first; among its equals False precedes True
            order = np.lexsort((truth, -scores), axis=-1)
        else:
            order = np.argsort(-scores, axis=-1, kind="stable")
        self.relevant = np.take_along_axis(truth, order, axis=-1)
        self.hits = np.cumsum(self.relevant, axis=-1, dtype=np.int64)
        self.n_relevant = self.hits[:, -1]
        self.n_pairs = self.n_relevant * (scores.shape[1] - self.n_relevant)
        ordered = np.take_along_axis(scores, order, axis=-1)
        ends = np.tile(np.arange(1, scores.shape[1] + 1), (len(scores), 1))
        ends[:, :-1][ordered[:, 1:] == ordered[:, :-1]] = scores.shape[1]
        # The rank at which the tied run of an entry ends, and the hits up to there.
        self.ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
        self.hits_at_ends = np.take_along_axis(self.hits, self.ends - 1, axis=-1)


def _per_row(
    truth: BoolArray, scores: NDArray[Any], ties: Ties, *formulas: Callable[[_Ranked], Values]
) -> list[Values]:
    """Sort rows block by block and return each formula's values, shape (rows,)."""
    step = max(1, BLOCK_ENTRIES // scores.shape[1])
    parts = []
    for start in range(0, len(scores), step):
        ranked = _Ranked(truth[start : start + step], scores[start : start + step], ties)
        parts.append([formula(ranked) for formula in formulas])
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _precision_to_depth(ranked: _Ranked) -> Values:
    """Mean of P@1 to P@m, m being the number of relevant entries."""
    ranks = np.arange(1, ranked.hits.shape[1] + 1)[: ranked.n_relevant.max()]
    inside = ranks <= ranked.n_relevant[:, None]
    precision = np.where(inside, ranked.hits[:, : len(ranks)] / ranks, 0.0)
    return _ratio(precision.sum(axis=1), ranked.n_relevant)


def _eleven_point(ranked: _Ranked) -> Values:
    """Mean over recall levels of the best precision at that recall or above."""
    counts = ranked.n_relevant[ranked.n_relevant > 0]
    ends = np.cumsum(counts)
    # Precision peaks at hits, so these suffice, row after row; 0 closes the last row's span.
    rows, places = np.nonzero(ranked.relevant)
    precision = np.append(ranked.hits[rows, places] / (places + 1), 0.0)
    total = np.zeros(len(counts))
    for level in RECALL_LEVELS if len(counts) else []:
        needed = np.maximum(np.ceil((level - RECALL_TOLERANCE) * counts), 1).astype(np.int64)
        spans = np.column_stack([ends - counts + needed - 1, ends]).ravel()
        total += np.maximum.reduceat(precision, spans)[::2]
    result = np.full(len(ranked.hits), np.nan)
    result[ranked.n_relevant > 0] = total / len(RECALL_LEVELS)
    return result


def _precision_at_hits(ranked: _Ranked) -> Values:
    """Mean over relevant entries of the precision after the tied run each stands in."""
    precision = ranked.relevant * (ranked.hits_at_ends / ranked.ends)
    return _ratio(precision.sum(axis=1), ranked.n_relevant)


def _wrong_pairs(ranked: _Ranked) -> Values:
    """Share of (relevant, irrelevant) pairs whose relevant entry does not score higher."""
    wrong = (ranked.relevant * (ranked.ends - ranked.hits_at_ends)).sum(axis=1)
    all_relevant = ranked.n_relevant == ranked.hits.shape[1]
    return np.where(all_relevant, 0.0, _ratio(wrong, ranked.n_pairs))


def _last_rank(ranked: _Ranked) -> Values:
    """Rank of the last relevant entry, after the entries tied with it."""
    rank = np.where(ranked.relevant, ranked.ends, 0).max(axis=1)
    return np.where(rank > 0, rank, np.nan)


def _area(ranked: _Ranked) -> Values:
    """Share of (relevant, irrelevant) pairs in the right order, ties counting one half."""
    wrong_or_tied = (ranked.relevant * (ranked.ends - ranked.hits_at_ends)).sum(axis=1)
    right_or_tied = (~ranked.relevant * ranked.hits_at_ends).sum(axis=1)
    return _ratio(ranked.n_pairs - wrong_or_tied + right_or_tied, 2 * ranked.n_pairs)


def _hits_at(k: int) -> Callable[[_Ranked], Values]:
    """Make the formula that counts relevant entries among the first k."""
    return lambda ranked: ranked.hits[:, :k][:, -1].astype(np.float64)


def _pooled_f1(truth: BoolArray, hits: Values, k: int) -> Values:
    """2PR / (P + R) of pooled counts, which is 2 * hits / (predicted + relevant), as (1,)."""
    predicted, relevant = len(truth) * min(k, truth.shape[1]), int(truth.sum())
    return np.array([2 * hits.sum() / (predicted + relevant) if relevant else np.nan])


def _ratio(numerator: NDArray[Any], denominator: NDArray[np.int64]) -> Values:
    """Divide, giving NaN where there is nothing to divide by."""
    result = np.full(len(numerator), np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def _mean(values: Values, metric: str) -> float:
    """Mean of the values that are defined; NaN and a warning if none is."""
    defined = values[~np.isnan(values)]
    if defined.size == 0:
        message = f"`{metric}` is nan: `truth` has no row or label it is defined for."
        warnings.warn(message, PolysemeWarning, stacklevel=3)
        return np.nan
    return float(defined.mean())
