"""Metrics of label rankings, of probabilities, and of points in concept space.

In: `truth`, 0/1 of shape (n, n_labels), and `scores`, floats of the same shape, larger is better.
Out: one float per metric, or one per row or label; `evaluate` gives every ranking metric at once.
All ranking metrics are between 0 and 1 and larger is better, but for `ranking_loss` and `coverage`.

Ties never improve a ranking: with `ties="worst"`, the default, irrelevant entries come first among
equal scores; `ties="index"` keeps column order (row order, where a label ranks rows). A metric that
scikit-learn has too treats ties as it does. A score of -inf is the lowest there is: ranked last,
tied with its equals. Rows with no relevant label and labels with no positive row are left out of
means; a mean over nothing is NaN and warns.
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
Truth: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix
BoolArray: TypeAlias = NDArray[np.bool_]
Values: TypeAlias = NDArray[np.float64]

BLOCK_ENTRIES = 1 << 20  # entries sorted at once, which takes some 60 MB of scratch
BINS = 15  # of equal width, as reliability is usually drawn


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
    relevant, values = _check_scores(truth, scores)
    names = {name: f"f1_at_{k}" if name == "f1_at_k" else name for name in _METRICS}
    if not relevant.any():
        message = "All metrics are nan: no row of `truth` has a relevant label."
        warnings.warn(message, PolysemeWarning, stacklevel=2)
        return dict.fromkeys(names.values(), np.nan)
    each = _values(relevant, values, names, "worst", k)
    result = {}
    for name, called in names.items():  # not a comprehension: a warning must point at the caller
        result[called] = _mean(each[name], called, stacklevel=3)
    return result


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
    relevant, values = _check_scores(truth, scores)
    label_kinds = np.asarray(kinds)
    measures_by_kind: dict[str, dict[str, float]] = {}
    for kind in ("all", "seen", "unseen", "oov"):
        columns = label_kinds == kind
        if kind == "all":
            columns = np.ones(len(label_kinds), dtype=bool)
        kind_truth = relevant[:, columns]
        kind_scores = values[:, columns]
        n_items = int(kind_truth.any(axis=1).sum())
        if not n_items:
            continue
        measures: dict[str, float] = {"n_labels": int(columns.sum()), "n_items": n_items}
        measures |= evaluate(kind_truth, kind_scores, k=k)
        if probabilities:
            measures["calibration_error"] = expected_calibration_error(kind_truth, kind_scores)
        measures_by_kind[kind] = measures
    return measures_by_kind


# One sort serves all metrics: scikit-learn's five of these take 13 times as long together on 2,000
# rows of 111 labels, and twice as long on 20,000 of 1,000; they also refuse a score of -inf.
class _SortedRows:
    """Rows with their entries sorted best first; arrays are (rows, entries), values (rows,)."""

    def __init__(self, truth: BoolArray, scores: NDArray[Any], ties: Ties, k: int) -> None:
        n_rows, n_entries = scores.shape
        descending = -scores
        if ties == "worst":  # the last key sorts first; among its equals False precedes True
            order = np.lexsort((truth, descending), axis=-1)
        else:
            order = np.argsort(descending, axis=-1, kind="stable")
        self.k = k
        self.relevant = np.take_along_axis(truth, order, axis=-1)
        self.hits = np.cumsum(self.relevant, axis=-1, dtype=np.int64)
        self.n_relevant = self.hits[:, -1]
        n_irrelevant = n_entries - self.n_relevant
        self.n_pairs = self.n_relevant * n_irrelevant

        # The rank at which the tied run of an entry ends, and the hits up to there
        ordered = np.take_along_axis(scores, order, axis=-1)
        tied_with_next = ordered[:, 1:] == ordered[:, :-1]
        ranks = np.arange(1, n_entries + 1)
        ends = np.tile(ranks, (n_rows, 1))
        ends[:, :-1][tied_with_next] = n_entries
        from_last = np.minimum.accumulate(ends[:, ::-1], axis=1)
        self.ends = from_last[:, ::-1]
        self.hits_at_ends = np.take_along_axis(self.hits, self.ends - 1, axis=-1)

    def precision_to_depth(self) -> Values:
        """Mean of P@1 to P@m, m being the number of relevant entries."""
        n_entries = self.hits.shape[1]
        largest = int(self.n_relevant.max())
        n_ranks = min(largest, n_entries)
        ranks = np.arange(1, n_ranks + 1)
        depths = self.n_relevant[:, None]
        is_inside = ranks <= depths
        hits = self.hits[:, :n_ranks]
        precision = hits / ranks
        inside_precision = np.where(is_inside, precision, 0.0)
        totals = inside_precision.sum(axis=1)
        return _ratio(totals, self.n_relevant)

    def eleven_point(self) -> Values:
        """Mean over recall levels of the best precision at that recall or above."""
        filled = self.n_relevant > 0
        counts = self.n_relevant[filled]
        result = np.full(len(self.hits), np.nan)
        if not len(counts):
            return result
        ends = np.cumsum(counts)
        starts = ends - counts
        # Precision peaks at hits, so these suffice, row after row; 0 closes the last row's span.
        rows, places = np.nonzero(self.relevant)
        precision = self.hits[rows, places] / (places + 1)
        precision = np.append(precision, 0.0)
        total = np.zeros(len(counts))
        for level in np.linspace(0.0, 1.0, 11):
            n_hits = np.ceil((level - 1e-9) * counts)
            n_hits = np.maximum(n_hits, 1).astype(np.int64)
            spans = np.column_stack([starts + n_hits - 1, ends]).ravel()
            total += np.maximum.reduceat(precision, spans)[::2]
        result[filled] = total / 11
        return result

    def precision_at_hits(self) -> Values:
        """Mean over relevant entries of the precision after the tied run each stands in."""
        precision = self.relevant * (self.hits_at_ends / self.ends)
        return _ratio(precision.sum(axis=1), self.n_relevant)

    def wrong_or_tied(self) -> Values:
        """Share of (relevant, irrelevant) pairs whose relevant entry does not score higher."""
        n_entries = self.hits.shape[1]
        n_before = self.ends - self.hits_at_ends
        wrong = self.relevant * n_before
        n_wrong = wrong.sum(axis=1)
        shares = _ratio(n_wrong, self.n_pairs)
        are_all_relevant = self.n_relevant == n_entries
        shares[are_all_relevant] = 0.0
        return shares

    def last_rank(self) -> Values:
        """Rank of the last relevant entry, after the entries tied with it."""
        rank = np.where(self.relevant, self.ends, 0).max(axis=1)
        return np.where(rank > 0, rank, np.nan)

    def area(self) -> Values:
        """Share of (relevant, irrelevant) pairs in the right order, ties counting one half."""
        n_irrelevant_before = self.ends - self.hits_at_ends
        wrong_or_tied = self.relevant * n_irrelevant_before
        right_or_tied = ~self.relevant * self.hits_at_ends
        n_wrong_or_tied = wrong_or_tied.sum(axis=1)
        n_right_or_tied = right_or_tied.sum(axis=1)
        n_right = self.n_pairs - n_wrong_or_tied
        n_both = n_right + n_right_or_tied
        return _ratio(n_both, 2 * self.n_pairs)

    def hits_at_k(self) -> Values:
        """Count relevant entries among the first k; `_values` pools the counts to one F1."""
        return self.hits[:, : self.k][:, -1].astype(np.float64)


# Name, whether each label ranks the rows (or each row the labels), and the formula.
_METRICS: dict[str, tuple[bool, Callable[[_SortedRows], Values]]] = {
    "example_map": (False, _SortedRows.precision_to_depth),
    "concept_map": (True, _SortedRows.eleven_point),
    "mean_average_precision": (True, _SortedRows.precision_at_hits),
    "f1_at_k": (False, _SortedRows.hits_at_k),
    "ranking_loss": (False, _SortedRows.wrong_or_tied),
    "coverage": (False, _SortedRows.last_rank),
    "label_ranking_average_precision": (False, _SortedRows.precision_at_hits),
    "roc_auc": (True, _SortedRows.area),
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
    """Return the values of metrics, one for each row or label (F1: one), sorting blocks of rows."""
    label_formulas: dict[str, Callable[[_SortedRows], Values]] = {}
    row_formulas: dict[str, Callable[[_SortedRows], Values]] = {}
    for name in names:
        by_label, formula = _METRICS[name]
        formulas = label_formulas if by_label else row_formulas
        formulas[name] = formula
    by_name = _apply_formulas(row_formulas, truth, scores, ties, k)
    by_name |= _apply_formulas(label_formulas, truth.T, scores.T, ties, k)
    if "f1_at_k" in by_name:  # 2PR / (P + R) of pooled counts is 2 * hits / (predicted + relevant)
        n_rows, n_labels = truth.shape
        n_predicted = n_rows * min(k, n_labels)
        n_relevant = int(truth.sum())
        n_hits = by_name["f1_at_k"].sum()
        f1 = 2 * n_hits / (n_predicted + n_relevant) if n_relevant else np.nan
        by_name["f1_at_k"] = np.array([f1])
    return by_name


def _apply_formulas(
    formulas: Mapping[str, Callable[[_SortedRows], Values]],
    truth: BoolArray,
    scores: NDArray[Any],
    ties: Ties,
    k: int,
) -> dict[str, Values]:
    """Return the values of formulas for each row, sorting blocks of rows."""
    if not formulas:
        return {}
    n_rows, n_entries = scores.shape
    block_rows = max(1, BLOCK_ENTRIES // n_entries)
    blocks: dict[str, list[Values]] = {name: [] for name in formulas}
    for start in range(0, n_rows, block_rows):
        rows = slice(start, start + block_rows)
        ranked = _SortedRows(truth[rows], scores[rows], ties, k)
        for name, formula in formulas.items():
            values = formula(ranked)
            blocks[name].append(values)
    return {name: np.concatenate(values) for name, values in blocks.items()}


def _values_of(name: str, truth: Truth, scores: ArrayLike, ties: Ties, k: int = 1) -> Values:
    """Check the input and return one metric of each row or label."""
    check_option("ties", ties, ("worst", "index"), owner=name)
    relevant, values = _check_scores(truth, scores)
    names = [name]
    by_name = _values(relevant, values, names, ties, k)
    return by_name[name]


def _score(name: str, truth: Truth, scores: ArrayLike, ties: Ties = "worst", k: int = 1) -> float:
    """Return the mean of one metric; only its public function calls this."""
    return _mean(_values_of(name, truth, scores, ties, k), name, stacklevel=4)


def _mean(values: Values, name: str, stacklevel: int) -> float:
    """Mean of the values that are defined; NaN and a warning if none is."""
    is_defined = ~np.isnan(values)
    defined = values[is_defined]
    if defined.size == 0:
        message = f"`{name}` is nan: `truth` has no row or label it is defined for."
        warnings.warn(message, PolysemeWarning, stacklevel=stacklevel)
        return np.nan
    mean = defined.mean()
    return float(mean)


def _ratio(numerator: NDArray[Any], denominator: NDArray[np.int64]) -> Values:
    """Divide, giving NaN where there is nothing to divide by."""
    n_rows = len(numerator)
    is_defined = denominator > 0
    result = np.full(n_rows, np.nan)
    np.divide(numerator, denominator, out=result, where=is_defined)
    return result


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
        """Mean distance of predicted and observed, by the entries of each bin."""
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
    relevant, values = _check_probabilities(truth, probabilities)
    flat_values = values.ravel()
    flat_truth = relevant.ravel()
    bins = (flat_values * n_bins).astype(np.int64)
    bins = np.minimum(bins, n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    predicted_sums = np.bincount(bins, weights=flat_values, minlength=n_bins)
    observed_sums = np.bincount(bins, weights=flat_truth, minlength=n_bins)
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
    relevant, values = _check_probabilities(truth, probabilities)
    clipped = np.clip(values, 1e-12, 1 - 1e-12)
    complements = -clipped
    log_true = np.log(clipped)
    log_false = np.log1p(complements)
    log_likelihoods = np.where(relevant, log_true, log_false)
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
    n = len(concepts)
    sample = concepts
    if max_points is not None:
        check_number("max_points", max_points, owner="scattering", low=2, whole=True)
        if max_points < n:
            rows = as_generator(random_state).choice(n, max_points, replace=False)
            sample = concepts[rows]
    n_sample = len(sample)
    centred = sample - sample.mean(axis=0)  # keeps the expanded square from cancelling
    blocks = pairwise_distances_chunked(centred, working_memory=64)
    total = float(sum(block.sum() for block in blocks))
    n_pairs = max(n_sample * (n_sample - 1), 1)
    return {
        "s_mean": total / n_pairs * (n - 1) / n,
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
    mapped, places = _check_points(predicted=predicted, targets=targets)
    if mapped.shape != places.shape:
        raise InputError(f"`predicted` has shape {mapped.shape} but `targets` has {places.shape}.")
    error = float(np.linalg.norm(mapped - places, axis=1).mean())
    if points is None:
        return {"error": error}
    (concepts,) = _check_points(points=points)
    if concepts.shape[1] != mapped.shape[1]:
        raise InputError(f"`points` have {concepts.shape[1]} columns, targets {mapped.shape[1]}.")
    spread = _mean_squared_distance(concepts)
    if (concepts == concepts[0]).all():  # the mean may round: the spread need not be exactly 0
        message = "The relative errors are nan: all `points` coincide."
        warnings.warn(message, PolysemeWarning, stacklevel=2)
        spread = np.nan
    return {"error": error, "relative_paper": error / spread, "relative": error / spread**0.5}


def _mean_squared_distance(points: Values) -> float:
    """Mean over all pairs, own pairs included: twice the variance about the mean."""
    centred = points - points.mean(axis=0)
    return float(2.0 * np.einsum("ij,ij->", centred, centred) / len(points))


def _check_scores(truth: Truth, scores: ArrayLike) -> tuple[BoolArray, NDArray[Any]]:
    """Return truth as bool and scores as float32 or float64, both dense, (n, n_labels)."""
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
    values = _to_numbers("scores", ordered_scores)
    relevant: Any = truth
    if sp.issparse(truth):
        relevant = check_sparse(truth, "truth", owner="evaluate")
    else:
        relevant = _to_numbers("truth", truth)
    if relevant.shape != values.shape:
        shapes = f"shape {relevant.shape} but `scores` has shape {values.shape}"
        raise InputError(f"`truth` has {shapes}; pass one score for every row and label.")
    if values.ndim != 2 or values.size == 0:
        raise InputError(
            f"`truth` must have two dimensions, one row and one label; got shape {values.shape}."
        )
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    has_nan = np.isnan(values).any(axis=1)
    if has_nan.any():
        rows = np.flatnonzero(has_nan).tolist()
        raise InputError(f"`scores` contains NaN in row(s) {first_few(rows)}; use -inf for never.")
    if sp.issparse(truth):  # entries that are stored twice are added up
        relevant = relevant.toarray()
    is_binary = (relevant == 0) | (relevant == 1)
    if not is_binary.all():
        wrong = relevant[~is_binary]
        raise InputError(f"`truth` must hold 0 and 1 only; got {wrong[0]}.")
    return relevant.astype(np.bool_), values


def _check_probabilities(truth: Truth, probabilities: ArrayLike) -> tuple[BoolArray, Values]:
    """Check that probabilities lie between 0 and 1; shapes as for `_check_scores`."""
    relevant, values = _check_scores(truth, probabilities)
    lowest = values.min()
    highest = values.max()
    if lowest < 0 or highest > 1:
        bounds = f"{lowest:g} to {highest:g}"
        raise InputError(f"`probabilities` must lie between 0 and 1; got {bounds}.")
    wide_values = values.astype(np.float64)
    return relevant, wide_values


def _check_points(**arrays: ArrayLike) -> list[Values]:
    """Copy points in concept space, each (n, d), which must be some and finite."""
    checked: list[Values] = []
    for name, array in arrays.items():
        numbers = _to_numbers(name, array)
        points = numbers.astype(np.float64)
        shape = points.shape
        if points.ndim != 2 or points.size == 0:
            raise InputError(f"`{name}` must have rows and columns; got shape {shape}.")
        is_finite = np.isfinite(points)
        if not is_finite.all():
            raise InputError(f"`{name}` contains NaN or infinity; drop those rows first.")
        checked.append(points)
    return checked


def _to_numbers(name: str, values: object) -> NDArray[Any]:
    """Turn an array-like into a dense array of real numbers or booleans."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"`{name}` is a masked array; fill it first, as by `{name}.filled(0)`.")
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
