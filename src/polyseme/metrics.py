"""Metrics of label rankings, of probabilities, and of points in concept space.

In: `truth`, 0/1 of shape (n, n_labels), and `scores`, floats of the same shape, larger is better.
Out: one float per metric, or one per row or label; `evaluate` gives every ranking metric at once.
All ranking metrics are between 0 and 1 and larger is better, but for `ranking_loss` and `coverage`.

Ties never improve a ranking: with `ties="worst"`, the default, irrelevant entries come first among
equal scores; `ties="index"` keeps column order (row order, where a label ranks rows). A metric that
scikit-learn has too treats ties as it does. A score of -inf is the lowest there is: ranked last,
tied with its equals. Rows with no relevant label and labels with no positive row are left out of
means; a mean over nothing is NaN and warns.

Terms: an *entry* is one row and label of `truth` and `scores`; it is *relevant* or *positive* where
`truth` is 1. A metric ranks the labels of each row or, such as C-MAP, the rows of each label: these
are computed on transposed tables, so that "row" below means whatever ranks. P@k and R@k are
precision and recall among the first k entries, a *hit* is a relevant entry among them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_number,
    check_option,
    check_sparse,
    column_names,
    first_few,
    in_order,
)
from polyseme.documents.corpus import Documents
from polyseme.documents.tags import carried_labels
from polyseme.documents.vocabulary import Vocabulary

Ties: TypeAlias = Literal["worst", "index"]
Truth: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix  # 0 and 1, (n, n_labels)
BoolArray: TypeAlias = NDArray[np.bool_]
Values: TypeAlias = NDArray[np.float64]  # of a metric, one for each row or label; or points

BLOCK_ENTRIES = 1 << 20  # entries sorted at once, which takes some 60 MB of scratch
BINS = 15  # of equal width, as reliability is usually drawn
# Probabilities of 0 and 1 count as this far from them, so that a log-loss is finite.
_LEAST_PROBABILITY = 1e-12
# R@k counts as reached within this, so that a recall of 0.3 = 3/10 is one in floating point too.
_RECALL_TOLERANCE = 1e-9


def example_precision(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> Values:
    """Average P@1 to P@m for each row with m relevant labels (eq. 11); NaN where m is 0, (n,)."""
    return _values_of("example_map", truth, scores, ties)


def concept_precision(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> Values:
    """Average the interpolated precision over 11 recall levels, for each label (eq. 12).

    Each label ranks all n rows. Its value is the mean over r = 0, 0.1, ..., 1 of the best P@k
    among the k with R@k >= r (up to 1e-9); NaN for a label that has no positive row, (n_labels,).
    """
    return _values_of("concept_map", truth, scores, ties)


def example_map(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> float:
    """Return the mean of `example_precision` over rows: E-MAP in the paper (eq. 11).

    It averages P@1 to P@m and is not the usual average precision: with one relevant label it is 1
    where that label ranks first and 0 elsewhere.
    """
    return _score("example_map", truth, scores, ties)


def concept_map(truth: Truth, scores: ArrayLike, ties: Ties = "worst") -> float:
    """Return the mean of `concept_precision` over labels: C-MAP in the paper (eq. 12)."""
    return _score("concept_map", truth, scores, ties)


def mean_average_precision(truth: Truth, scores: ArrayLike) -> float:
    """Average over labels the average precision of each label's ranking of the rows.

    A positive counts with the precision after its whole tied run. Equals scikit-learn's
    `average_precision_score`, but labels with no positive are skipped (there: 0).
    """
    return _score("mean_average_precision", truth, scores)


def f1_at_k(truth: Truth, scores: ArrayLike, k: int, ties: Ties = "worst") -> float:
    """Return micro F1 when the first k labels of every row are predicted, counts pooled over rows.

    A row with no relevant label stays in: all its predictions are wrong. Equals scikit-learn's
    `f1_score(average="micro")` of these predictions.
    """
    check_number("k", k, owner="f1_at_k", low=1, whole=True)
    return _score("f1_at_k", truth, scores, ties, k)


def ranking_loss(truth: Truth, scores: ArrayLike) -> float:
    """Average over rows the share of (relevant, irrelevant) pairs in the wrong order, or tied.

    Smaller is better. Equals scikit-learn's `label_ranking_loss`, but rows with no relevant label
    are skipped (there: 0); a row whose labels are all relevant counts as 0 in both.
    """
    return _score("ranking_loss", truth, scores)


def coverage(truth: Truth, scores: ArrayLike) -> float:
    """Average over rows the rank of the relevant label that ranks last, after those tied with it.

    Smaller is better; at best the mean number of relevant labels. Equals scikit-learn's
    `coverage_error`, but rows with no relevant label are skipped (there: 0).
    """
    return _score("coverage", truth, scores)


def label_ranking_average_precision(truth: Truth, scores: ArrayLike) -> float:
    """Average over rows, and over each row's relevant labels, the precision at a label's rank.

    Equal scores share the lowest rank among them. Equals scikit-learn's
    `label_ranking_average_precision_score`, but rows with no relevant label are skipped (there: 1).
    """
    return _score("label_ranking_average_precision", truth, scores)


def roc_auc(truth: Truth, scores: ArrayLike) -> float:
    """Average over labels the chance that a positive row outscores a negative one; ties are half.

    Equals scikit-learn's `roc_auc_score` over the labels that have positive and negative rows.
    """
    return _score("roc_auc", truth, scores)


def evaluate(truth: Truth, scores: ArrayLike, *, k: int = 5) -> dict[str, float]:
    """Compute every ranking metric, sorting the scores only once along each axis.

    Parameters
    ----------
    truth : array-like or scipy sparse of 0 and 1, shape (n, n_labels)
    scores : array-like of float, shape (n, n_labels)
        Larger is better; -inf means never, NaN is refused.
    k : int
        Labels that are predicted for `f1_at_k`.

    Returns
    -------
    dict of str to float
        Always in the same order, `f1_at_k` under its k (for k=5: `f1_at_5`); each is what its own
        function returns by default. Where no row has a relevant label, all are NaN and one warning
        says so.
    """
    check_number("k", k, owner="evaluate", low=1, whole=True)
    is_relevant, score_table = _check_scores(truth, scores)
    result_names = {name: name for name in _METRICS}
    result_names["f1_at_k"] = f"f1_at_{k}"
    if not is_relevant.any():
        message = "All metrics are nan: no row of `truth` has a relevant label."
        warnings.warn(message, PolysemeWarning, stacklevel=2)
        return dict.fromkeys(result_names.values(), np.nan)
    values_by_metric = _values(is_relevant, score_table, _METRICS, "worst", k)
    means = {}
    for metric, result_name in result_names.items():  # a comprehension would need a stacklevel of 4
        metric_values = values_by_metric[metric]
        means[result_name] = _mean(metric_values, result_name, stacklevel=3)
    return means


def evaluate_kinds(
    truth: Truth, scores: ArrayLike, kinds: ArrayLike, *, probabilities: bool = False, k: int = 5
) -> dict[str, dict[str, float]]:
    """Compute every metric over all labels, and over the labels of each kind.

    Parameters
    ----------
    truth : array-like or scipy sparse of 0 and 1, shape (n, n_labels)
    scores : array-like of float, shape (n, n_labels)
    kinds : array-like of str, shape (n_labels,)
        "seen", "unseen" or "oov" for each label.
    probabilities : bool
        Whether the scores are probabilities; then `calibration_error` is measured as well.
    k : int
        Labels that are predicted for `f1_at_k`.

    Returns
    -------
    dict of str to dict of str to float
        For "all" and each kind whose labels some row has: `n_labels`, `n_items` with such a label,
        and the metrics of `evaluate`.
    """
    is_relevant, score_table = _check_scores(truth, scores)
    label_kinds = np.asarray(kinds)
    measures_by_kind: dict[str, dict[str, float]] = {}
    for kind in ("all", "seen", "unseen", "oov"):
        is_of_kind = label_kinds == kind
        if kind == "all":
            is_of_kind = np.ones(len(label_kinds), dtype=bool)
        kind_truth = is_relevant[:, is_of_kind]
        kind_scores = score_table[:, is_of_kind]
        n_labels = int(is_of_kind.sum())
        n_items = int(kind_truth.any(axis=1).sum())
        if not n_items:
            continue
        measures: dict[str, float] = {"n_labels": n_labels, "n_items": n_items}
        measures |= evaluate(kind_truth, kind_scores, k=k)
        if probabilities:
            measures["calibration_error"] = expected_calibration_error(kind_truth, kind_scores)
        measures_by_kind[kind] = measures
    return measures_by_kind


# One sort serves all metrics: scikit-learn's five of these take 13 times as long together on 2,000
# rows of 111 labels, and twice as long on 20,000 of 1,000; they also refuse a score of -inf.
class _SortedRows:
    """A block of rows with their entries sorted by falling score, and the formulas of metrics.

    Every formula returns one value for each row, (n_rows,), NaN where it is not defined.

    Attributes
    ----------
    k : int
        The rank up to which `hits_at_k` counts.
    relevant : bool array, shape (n_rows, n_entries)
        Which entries are relevant, best score first.
    hits : int64 array, shape (n_rows, n_entries)
        Relevant entries up to each rank, it included.
    n_relevant : int64 array, shape (n_rows,)
        Relevant entries of each row.
    n_pairs : int64 array, shape (n_rows,)
        Pairs of a relevant and an irrelevant entry.
    tie_ends : int64 array, shape (n_rows, n_entries)
        The last rank, from 1, that has the same score as each entry.
    hits_at_tie_ends : int64 array, shape (n_rows, n_entries)
        Relevant entries up to that rank.
    """

    def __init__(self, truth: BoolArray, scores: NDArray[Any], ties: Ties, k: int) -> None:
        n_rows, n_entries = scores.shape
        descending = -scores
        if ties == "worst":  # lexsort takes its last key first; of equal scores False precedes True
            sort_keys = (truth, descending)
            order = np.lexsort(sort_keys, axis=-1)
        else:
            order = np.argsort(descending, axis=-1, kind="stable")
        self.k = k
        self.relevant = np.take_along_axis(truth, order, axis=-1)
        self.hits = np.cumsum(self.relevant, axis=-1, dtype=np.int64)
        self.n_relevant = self.hits[:, -1]
        n_irrelevant = n_entries - self.n_relevant
        self.n_pairs = self.n_relevant * n_irrelevant

        # An entry that is not tied with the next one ends a run; the others take over the first
        # end that follows, found by a minimum that runs from the last entry to the first.
        sorted_scores = np.take_along_axis(scores, order, axis=-1)
        next_scores = sorted_scores[:, 1:]
        is_tied_with_next = next_scores == sorted_scores[:, :-1]
        ranks = np.arange(1, n_entries + 1)
        ends = np.tile(ranks, (n_rows, 1))
        all_but_last = ends[:, :-1]
        all_but_last[is_tied_with_next] = n_entries
        reversed_ends = ends[:, ::-1]
        reversed_tie_ends = np.minimum.accumulate(reversed_ends, axis=1)
        self.tie_ends = reversed_tie_ends[:, ::-1]
        tie_end_places = self.tie_ends - 1
        self.hits_at_tie_ends = np.take_along_axis(self.hits, tie_end_places, axis=-1)

    def precision_to_depth(self) -> Values:
        """Return the mean of P@1 to P@m, m being the number of relevant entries (eq. 11)."""
        n_entries = self.hits.shape[1]
        deepest = int(self.n_relevant.max())
        n_ranks = min(deepest, n_entries)
        ranks = np.arange(1, n_ranks + 1)
        depths = self.n_relevant[:, None]
        is_inside = ranks <= depths
        hits = self.hits[:, :n_ranks]
        precision = hits / ranks
        inside_precision = np.where(is_inside, precision, 0.0)
        totals = inside_precision.sum(axis=1)
        return _ratio(totals, self.n_relevant)

    def eleven_point_precision(self) -> Values:
        """Return the mean over 11 recall levels of the best precision from there on (eq. 12)."""
        has_relevant = self.n_relevant > 0
        n_relevant = self.n_relevant[has_relevant]
        means = np.full(len(self.hits), np.nan)
        if not len(n_relevant):
            return means
        # The precision at all hits of all rows, one row after the other. Between hits precision
        # falls, so hits suffice; a 0 at the end lets the last row's span end there.
        rows, places = np.nonzero(self.relevant)
        ranks = places + 1
        precision = self.hits[rows, places] / ranks
        precision = np.append(precision, 0.0)
        row_ends = np.cumsum(n_relevant)
        row_starts = row_ends - n_relevant
        total = np.zeros(len(n_relevant))
        for level in np.linspace(0.0, 1.0, 11):
            least_hits = np.ceil((level - _RECALL_TOLERANCE) * n_relevant)
            n_hits = np.maximum(least_hits, 1).astype(np.int64)
            # reduceat takes the maxima from each number to the next: every other one is a row's.
            first_hits = row_starts + n_hits - 1
            spans = np.column_stack([first_hits, row_ends]).ravel()
            maxima = np.maximum.reduceat(precision, spans)
            total += maxima[::2]
        means[has_relevant] = total / 11
        return means

    def precision_at_hits(self) -> Values:
        """Return the mean over relevant entries of the precision after the entry's ties."""
        precision = self.hits_at_tie_ends / self.tie_ends
        hit_precision = self.relevant * precision
        totals = hit_precision.sum(axis=1)
        return _ratio(totals, self.n_relevant)

    def misordered_share(self) -> Values:
        """Return the share of (relevant, irrelevant) pairs in the wrong order, or tied."""
        n_entries = self.hits.shape[1]
        n_irrelevant_before = self.tie_ends - self.hits_at_tie_ends
        wrong_or_tied = self.relevant * n_irrelevant_before
        n_wrong_or_tied = wrong_or_tied.sum(axis=1)
        shares = _ratio(n_wrong_or_tied, self.n_pairs)
        are_all_relevant = self.n_relevant == n_entries
        shares[are_all_relevant] = 0.0
        return shares

    def last_rank(self) -> Values:
        """Return the rank of the last relevant entry, after the entries tied with it."""
        relevant_ranks = np.where(self.relevant, self.tie_ends, 0)
        last_ranks = relevant_ranks.max(axis=1)
        has_relevant = last_ranks > 0
        return np.where(has_relevant, last_ranks, np.nan)

    def roc_area(self) -> Values:
        """Return the share of (relevant, irrelevant) pairs in the right order; ties are half."""
        n_irrelevant_before = self.tie_ends - self.hits_at_tie_ends
        wrong_or_tied = self.relevant * n_irrelevant_before
        right_or_tied = ~self.relevant * self.hits_at_tie_ends
        n_wrong_or_tied = wrong_or_tied.sum(axis=1)
        n_right_or_tied = right_or_tied.sum(axis=1)
        n_right = self.n_pairs - n_wrong_or_tied
        # Right pairs are in both, ties in one of the two.
        n_halves = n_right + n_right_or_tied
        return _ratio(n_halves, 2 * self.n_pairs)

    def hits_at_k(self) -> Values:
        """Count relevant entries among the first k; `_values` pools the counts to one F1."""
        first_hits = self.hits[:, : self.k]  # fewer than k where there are fewer entries
        return first_hits[:, -1].astype(np.float64)


# By name: whether each label ranks the rows (else each row ranks the labels), and the formula.
_METRICS: dict[str, tuple[bool, Callable[[_SortedRows], Values]]] = {
    "example_map": (False, _SortedRows.precision_to_depth),
    "concept_map": (True, _SortedRows.eleven_point_precision),
    "mean_average_precision": (True, _SortedRows.precision_at_hits),
    "f1_at_k": (False, _SortedRows.hits_at_k),
    "ranking_loss": (False, _SortedRows.misordered_share),
    "coverage": (False, _SortedRows.last_rank),
    "label_ranking_average_precision": (False, _SortedRows.precision_at_hits),
    "roc_auc": (True, _SortedRows.roc_area),
}


# ---------------------------------------------------------------------- of a tagger


def true_labels(tagger: Any, X: object, y: Documents) -> BoolArray:
    """Return which classes of a tagger each item carries, (n, n_classes), by the labels' names.

    Parameters
    ----------
    tagger : ZeroShotTagger or PublishedTagger
        Fitted.
    X : object
        The items, whose ids join those of `y` where both have some.
    y : as for `fit`
        The true labels of each item. Those that it cannot rank are named in a warning.
    """
    vocabulary = getattr(tagger, "vocabulary_", None)
    if vocabulary is None:
        vocabulary = Vocabulary()
    classes = list(tagger.classes_)
    normalize = tagger.normalize_labels_
    carried = carried_labels(X, y, classes, vocabulary, normalize=normalize)
    table = carried.toarray()
    return np.asarray(table, dtype=bool)


def evaluate_tagger(tagger: Any, X: object, y: Documents, *, k: int = 5) -> dict[str, float]:
    """Compute every ranking metric of a tagger's scores.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Fitted.
    X, y : as for its `fit`
        Items with their true labels, which are compared by name.
    k : int
        Labels that are predicted for `f1_at_k`.

    Returns
    -------
    dict of str to float
        As `evaluate` returns it.
    """
    truth = true_labels(tagger, X, y)
    return evaluate(truth, tagger.predict_proba(X), k=k)


def _values(
    truth: BoolArray, scores: NDArray[Any], names: Iterable[str], ties: Ties = "worst", k: int = 1
) -> dict[str, Values]:
    """Compute metrics of checked tables; the scores are sorted once along each axis.

    Parameters
    ----------
    truth : bool array, shape (n, n_labels)
    scores : float array, shape (n, n_labels)
    names : iterable of str
        Of `_METRICS`.
    ties, k : as for the metrics

    Returns
    -------
    dict of str to float64 array
        By name: a value for each row or for each label, NaN where it is not defined; a single
        value for `f1_at_k`.
    """
    label_formulas: dict[str, Callable[[_SortedRows], Values]] = {}
    row_formulas: dict[str, Callable[[_SortedRows], Values]] = {}
    for name in names:
        ranks_rows, formula = _METRICS[name]
        formulas = label_formulas if ranks_rows else row_formulas
        formulas[name] = formula
    values_by_metric = _apply_formulas(row_formulas, truth, scores, ties, k)
    values_by_metric |= _apply_formulas(label_formulas, truth.T, scores.T, ties, k)
    if "f1_at_k" in values_by_metric:
        # 2PR / (P + R) of pooled counts is 2 * hits / (predicted + relevant).
        n_rows, n_labels = truth.shape
        n_predicted = n_rows * min(k, n_labels)
        n_relevant = int(truth.sum())
        n_hits = values_by_metric["f1_at_k"].sum()
        f1 = np.nan
        if n_relevant:
            f1 = 2 * n_hits / (n_predicted + n_relevant)
        values_by_metric["f1_at_k"] = np.array([f1])
    return values_by_metric


def _apply_formulas(
    formulas: Mapping[str, Callable[[_SortedRows], Values]],
    truth: BoolArray,
    scores: NDArray[Any],
    ties: Ties,
    k: int,
) -> dict[str, Values]:
    """Return the values of each formula, (n_rows,), sorting so many rows at a time as fit memory.

    "Rows" are labels where the tables are transposed.
    """
    if not formulas:
        return {}
    n_rows, n_entries = scores.shape
    n_block_rows = max(1, BLOCK_ENTRIES // n_entries)
    value_blocks: dict[str, list[Values]] = {name: [] for name in formulas}
    for start in range(0, n_rows, n_block_rows):
        rows = slice(start, start + n_block_rows)
        sorted_rows = _SortedRows(truth[rows], scores[rows], ties, k)
        for name, formula in formulas.items():
            block_values = formula(sorted_rows)
            value_blocks[name].append(block_values)
    return {name: np.concatenate(blocks) for name, blocks in value_blocks.items()}


def _values_of(name: str, truth: Truth, scores: ArrayLike, ties: Ties, k: int = 1) -> Values:
    """Check the input and return one metric of each row or label."""
    check_option("ties", ties, ("worst", "index"), owner=name)
    is_relevant, score_table = _check_scores(truth, scores)
    metric_names = [name]
    values_by_metric = _values(is_relevant, score_table, metric_names, ties, k)
    return values_by_metric[name]


def _score(name: str, truth: Truth, scores: ArrayLike, ties: Ties = "worst", k: int = 1) -> float:
    """Return the mean of one metric; only its public function calls this."""
    values = _values_of(name, truth, scores, ties, k)
    return _mean(values, name, stacklevel=4)  # a warning names the line that calls the metric


def _mean(values: Values, name: str, stacklevel: int) -> float:
    """Return the mean of the values that are defined; NaN and a warning if none is."""
    is_defined = ~np.isnan(values)
    defined_values = values[is_defined]
    if defined_values.size == 0:
        message = f"`{name}` is nan: `truth` has no row or label it is defined for."
        warnings.warn(message, PolysemeWarning, stacklevel=stacklevel)
        return np.nan
    mean = defined_values.mean()
    return float(mean)


def _ratio(numerator: NDArray[Any], denominator: NDArray[np.int64]) -> Values:
    """Return the quotients of two arrays, (n_rows,); NaN where there is nothing to divide by."""
    n_rows = len(numerator)
    is_defined = denominator > 0
    quotients = np.full(n_rows, np.nan)
    np.divide(numerator, denominator, out=quotients, where=is_defined)
    return quotients


@dataclass(frozen=True)
class Reliability:
    """Entries in bins of equal width by their probability.

    Attributes
    ----------
    counts : int64 array, shape (n_bins,)
        Entries of each bin.
    predicted, observed : float64 arrays, shape (n_bins,)
        Their mean probability, and the share of them that is true; NaN for an empty bin.
    """

    counts: NDArray[np.int64]
    predicted: Values
    observed: Values

    @property
    def expected_error(self) -> float:
        """The mean distance of predicted and observed, weighted by the entries of each bin."""
        is_filled = self.counts > 0
        counts = self.counts[is_filled]
        shares = counts / counts.sum()
        predicted = self.predicted[is_filled]
        observed = self.observed[is_filled]
        differences = predicted - observed
        gaps = np.abs(differences)
        error = gaps @ shares
        return float(error)


def reliability(truth: Truth, probabilities: ArrayLike, *, n_bins: int = BINS) -> Reliability:
    """Compare `probabilities`, (n, n_labels), with the truth, in `n_bins` bins of equal width.

    A probability on a border belongs to the upper bin.
    """
    check_number("n_bins", n_bins, owner="reliability", low=1, whole=True)
    is_relevant, probability_table = _check_probabilities(truth, probabilities)
    entry_probabilities = probability_table.ravel()
    entry_truth = is_relevant.ravel()
    bins = (entry_probabilities * n_bins).astype(np.int64)
    bins = np.minimum(bins, n_bins - 1)  # a probability of 1 belongs to the last bin
    counts = np.bincount(bins, minlength=n_bins)
    predicted_sums = np.bincount(bins, weights=entry_probabilities, minlength=n_bins)
    observed_sums = np.bincount(bins, weights=entry_truth, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        predicted = predicted_sums / counts
        observed = observed_sums / counts
    return Reliability(counts, predicted, observed)


def expected_calibration_error(
    truth: Truth, probabilities: ArrayLike, *, n_bins: int = BINS
) -> float:
    """Return the expected calibration error, smaller is better; see `reliability`."""
    return reliability(truth, probabilities, n_bins=n_bins).expected_error


def log_loss(truth: Truth, probabilities: ArrayLike) -> float:
    """Sum the log-losses of `probabilities` over labels, in nats; return their mean over rows."""
    is_relevant, probability_table = _check_probabilities(truth, probabilities)
    clipped = np.clip(probability_table, _LEAST_PROBABILITY, 1 - _LEAST_PROBABILITY)
    log_true = np.log(clipped)
    log_false = np.log1p(-clipped)
    log_likelihoods = np.where(is_relevant, log_true, log_false)
    row_sums = log_likelihoods.sum(axis=1)
    mean = row_sums.mean()
    return -float(mean)


def scattering(
    points: ArrayLike, *, max_points: int | None = None, random_state: RandomState = None
) -> dict[str, float]:
    """Measure how widely the known concepts spread (Table 2; in the paper: s).

    Parameters
    ----------
    points : array-like of float, shape (n, d)
        The known concepts of the documents the embedding was learned from.
    max_points : int, optional
        Estimate `s_mean`, without bias, from this many points drawn at random. By default all
        pairs are visited: time grows with n * n, memory does not.
    random_state : int, Generator or None
        Draws those points.

    Returns
    -------
    dict
        `s_mean`, the mean distance over all n * n pairs, as the paper's formula is printed, and
        `s_squared`, the mean squared distance over the same pairs, as its numbers are.
    """
    from sklearn.metrics import pairwise_distances_chunked

    (concepts,) = _check_points(points=points)
    n_concepts = len(concepts)
    sample = concepts
    if max_points is not None:
        check_number("max_points", max_points, owner="scattering", low=2, whole=True)
        if max_points < n_concepts:
            generator = as_generator(random_state)
            rows = generator.choice(n_concepts, max_points, replace=False)
            sample = concepts[rows]
    n_sample = len(sample)
    # scikit-learn expands (a - b)²; centred, its terms are small enough not to cancel.
    centred = sample - sample.mean(axis=0)
    distance_blocks = pairwise_distances_chunked(centred, working_memory=64)  # MiB
    total = float(sum(block.sum() for block in distance_blocks))
    # The mean over pairs of different points, which is unbiased, then over all n * n pairs.
    n_pairs = max(n_sample * (n_sample - 1), 1)
    mean_of_pairs = total / n_pairs
    return {
        "s_mean": mean_of_pairs * (n_concepts - 1) / n_concepts,
        "s_squared": _mean_squared_distance(concepts),
    }


def regression_error(
    predicted: ArrayLike, targets: ArrayLike, points: ArrayLike | None = None
) -> dict[str, float]:
    """Measure how far from their targets instances are mapped (Table 2).

    Parameters
    ----------
    predicted, targets : array-like of float, shape (n, d)
        Where instances were mapped to, and where they belong.
    points : array-like of float, shape (n_points, d), optional
        The known concepts, whose spread gives the error a scale.

    Returns
    -------
    dict
        `error`, the mean distance; with `points` also `relative_paper`, error / s_squared, which
        is Table 2's although it mixes units, and `relative`, error / sqrt(s_squared). These two
        are NaN, with a warning, if all points coincide.
    """
    predicted_points, target_points = _check_points(predicted=predicted, targets=targets)
    predicted_shape = predicted_points.shape
    target_shape = target_points.shape
    if predicted_shape != target_shape:
        raise InputError(
            f"`predicted` has shape {predicted_shape} but `targets` has {target_shape}."
        )
    differences = predicted_points - target_points
    distances = np.linalg.norm(differences, axis=1)
    error = float(distances.mean())
    if points is None:
        return {"error": error}
    (concepts,) = _check_points(points=points)
    n_columns = concepts.shape[1]
    if n_columns != target_shape[1]:
        raise InputError(f"`points` have {n_columns} columns, targets {target_shape[1]}.")
    s_squared = _mean_squared_distance(concepts)
    if (concepts == concepts[0]).all():  # the mean may round: s_squared need not be exactly 0
        message = "The relative errors are nan: all `points` coincide."
        warnings.warn(message, PolysemeWarning, stacklevel=2)
        s_squared = np.nan
    return {
        "error": error,
        "relative_paper": error / s_squared,
        "relative": error / s_squared**0.5,
    }


def _mean_squared_distance(points: Values) -> float:
    """Return the mean over all pairs, own pairs included: twice the variance about the mean."""
    mean = points.mean(axis=0)
    centred = points - mean
    sum_of_squares = np.einsum("ij,ij->", centred, centred)
    variance = sum_of_squares / len(points)
    return float(2.0 * variance)


def _check_scores(truth: Truth, scores: ArrayLike) -> tuple[BoolArray, NDArray[Any]]:
    """Return truth as bool and scores as float32 or float64, both dense, (n, n_labels).

    Scores may be the caller's own array, which must not be changed.
    """
    truth_names = column_names(truth)
    score_names = column_names(scores)
    if (truth_names is None) != (score_names is None):
        named = "truth" if score_names is None else "scores"
        nameless = "scores" if score_names is None else "truth"
        raise InputError(
            f"`{named}` names its columns and `{nameless}` does not, so it is unknown whether they "
            "are in the same order; pass two frames or two arrays, or use a tagger's `evaluate`."
        )
    ordered_scores = in_order(scores, truth_names, owner="truth")
    score_table = _to_numbers("scores", ordered_scores)
    truth_table: Any = truth
    if sp.issparse(truth):
        truth_table = check_sparse(truth, "truth", owner="evaluate")
    else:
        truth_table = _to_numbers("truth", truth)
    if truth_table.shape != score_table.shape:
        shapes = f"shape {truth_table.shape} but `scores` has shape {score_table.shape}"
        raise InputError(f"`truth` has {shapes}; pass one score for every row and label.")
    if score_table.ndim != 2 or score_table.size == 0:
        raise InputError(
            "`truth` must have two dimensions, one row and one label; got shape "
            f"{score_table.shape}."
        )
    if score_table.dtype not in (np.float32, np.float64):
        score_table = score_table.astype(np.float64)
    has_nan = np.isnan(score_table).any(axis=1)
    if has_nan.any():
        rows = np.flatnonzero(has_nan).tolist()
        raise InputError(f"`scores` contains NaN in row(s) {first_few(rows)}; use -inf for never.")
    if sp.issparse(truth):  # `toarray` adds up entries that are stored twice
        truth_table = truth_table.toarray()
    is_binary = (truth_table == 0) | (truth_table == 1)
    if not is_binary.all():
        other_values = truth_table[~is_binary]
        raise InputError(f"`truth` must hold 0 and 1 only; got {other_values[0]}.")
    return truth_table.astype(np.bool_), score_table


def _check_probabilities(truth: Truth, probabilities: ArrayLike) -> tuple[BoolArray, Values]:
    """Return truth as bool and probabilities as float64, both (n, n_labels), between 0 and 1."""
    is_relevant, probability_table = _check_scores(truth, probabilities)
    lowest = probability_table.min()
    highest = probability_table.max()
    if lowest < 0 or highest > 1:
        bounds = f"{lowest:g} to {highest:g}"
        raise InputError(f"`probabilities` must lie between 0 and 1; got {bounds}.")
    return is_relevant, probability_table.astype(np.float64)


def _check_points(**arrays: ArrayLike) -> list[Values]:
    """Return copies of points in concept space, float64 (n, d), in the order of the parameters.

    Arrays without any point, and numbers that are not finite, are refused by the parameter's name.
    """
    checked_points: list[Values] = []
    for name, array in arrays.items():
        numbers = _to_numbers(name, array)
        points = numbers.astype(np.float64)
        if points.ndim != 2 or points.size == 0:
            raise InputError(f"`{name}` must have rows and columns; got shape {points.shape}.")
        is_finite = np.isfinite(points)
        if not is_finite.all():
            raise InputError(f"`{name}` contains NaN or infinity; drop those rows first.")
        checked_points.append(points)
    return checked_points


def _to_numbers(name: str, values: object) -> NDArray[Any]:
    """Turn an array-like into a dense array of real numbers or booleans."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(
            f"`{name}` is a masked array; fill it first, for example with `{name}.filled(0)`."
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"`{name}` must be a table of numbers, all rows of one length.") from error
    if array.dtype.kind not in "buif":
        got = f"data type {array.dtype}"
        if sp.issparse(values):
            got = "a sparse matrix"
        raise InputError(f"`{name}` must be a dense array of real numbers; got {got}.")
    return array
