"""Baselines on word vectors: ConSE, Fast0Tag, and composition.

In: features, documents and word vectors. Out: scores of labels by their vectors. Each fills in
`_fit_mapper` and, where the score is no inner product, `_similarities`.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from polyseme.base.folds import fold_numbers
from polyseme.base.validation import (
    InputError,
    IntArray,
    PolysemeWarning,
    RandomState,
    as_generator,
    draw_seed,
    first_few,
)
from polyseme.documents.word_vectors import WordVectors
from polyseme.metrics import concept_map, example_map
from polyseme.published.mapping import InstanceMapper
from polyseme_experiments.baselines.base import (
    Baseline,
    Features,
    Mask,
    Matrix,
    counts_of,
    out_of_fold,
)
from polyseme_experiments.baselines.tuning import (
    CONSE_N_TOP,
    FAST0TAG_PENALTIES,
    N_HIDDEN_GROUPS,
    best_candidate,
)

# To choose a setting: folds of instances, and how many instances `Fast0Tag` compares with at most.
N_FOLDS = 4
SEARCH_SIZE = 1000
# Accepted errors of directions relative to their length; the search need not be as exact.
TOLERANCE = 0.01
SEARCH_TOLERANCE = 0.1

# `Composition` combines so many labels at once; it walks through patterns of the others.
_LOW_LABELS = 12
_BLOCK_ROWS = 512  # instances at a time: bounds the memory
_TIE_BREAK = 1e-6  # weight of a label's own cosine beside the distance


class WordBaseline(Baseline):
    """A ranker of labels by their word vectors.

    Attributes
    ----------
    label_vectors_ : float64 array, shape (n_labels, d)
        Unit vectors; zeros for labels without one.
    known_ : bool array, shape (n_labels,)
        Whether a label has a vector.
    without_vector_ : tuple of str
        Labels none of whose words is known; they score minus infinity, below all others.
    direct_ : bool array, shape (n_labels,)
        The labels that are learned from: those with a vector that instances carry.
    mapper_ : InstanceMapper
        Kernel ridge regression from features.
    """

    vectors: WordVectors | None
    random_state: RandomState
    mapper_: InstanceMapper

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Fit the mapper to the vectors of labels; warn about labels that have none."""
        owner = type(self).__name__
        labels = self.classes_.tolist()
        words = WordVectors.find(labels=labels) if self.vectors is None else self.vectors
        if not isinstance(words, WordVectors):
            raise InputError(
                f"`vectors` of `{owner}` must be WordVectors or None; got {type(words).__name__}."
            )
        self.label_vectors_, self.known_ = words.label_vectors(labels)
        self.without_vector_ = tuple(self.classes_[~self.known_].tolist())
        if not self.known_.any():
            raise InputError(
                f"None of the {len(labels)} labels given to `{owner}` has a word vector in "
                f"{words.source}; pass `vectors` that know words of: {first_few(labels)}."
            )
        if self.without_vector_:
            message = (
                f"{len(self.without_vector_)} of {len(labels)} labels have no word vector and "
            )
            message += f"`{owner}` puts them last: {first_few(self.without_vector_)}."
            warnings.warn(message, PolysemeWarning, stacklevel=3)
        self.direct_ = (counts_of(Y) > 0) & self.known_
        if not self.direct_.any():
            raise InputError(
                f"None of the labels on instances given to `{owner}` has a word vector; pass "
                "`vectors` that know their words."
            )
        truth = np.asarray(Y[:, np.flatnonzero(self.direct_)].toarray(), dtype=bool)
        self._fit_mapper(X, truth, self.label_vectors_[self.direct_])

    def _scores(self, X: Features) -> Matrix:
        """Score labels by their vectors; those without one come last."""
        scores = self._similarities(self.mapper_.predict(X))
        scores[:, ~self.known_] = -np.inf
        return scores

    @abstractmethod
    def _fit_mapper(self, X: Features, truth: Mask, vectors: Matrix) -> None:
        """Fit the mapper to targets made of truth (n, n_direct) and label vectors (n_direct, d)."""

    def _similarities(self, predicted: Matrix) -> Matrix:
        """Score all labels, (n, n_labels), by what the mapper predicts, (n, d)."""
        return np.asarray(predicted @ self.label_vectors_.T)


def unit_rows(points: Matrix) -> Matrix:
    """Scale each row to length 1; a row of length 0 (to rounding) becomes zeros."""
    zeros = np.zeros_like(points)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    has_length = lengths > 1e-12
    scaled = np.divide(
        points,
        lengths,
        out=zeros,
        where=has_length,
    )
    return np.asarray(scaled)


def zero_shot_quality(truth: Mask, scores: Matrix, hidden: Mask) -> float:
    """Measure a ranking (n, n_labels) of all labels, some of them hidden, as the experiments do.

    The mean of example MAP and concept MAP on the instances that carry a hidden label, or 0.
    """
    hidden_truth = truth[:, hidden]
    rows = hidden_truth.any(axis=1)
    if not rows.any():
        return 0.0
    truth = truth[rows]
    scores = scores[rows]
    example_quality = example_map(truth, scores)
    concept_quality = concept_map(truth, scores)
    quality = example_quality + concept_quality
    return 0.5 * quality


class ConSE(WordBaseline):
    """Convex combination of semantic embeddings, tuned.

    Seen labels are predicted by kernel ridge regression; negative predictions count as 0. A label
    scores the cosine of its vector with the combination of the best predicted labels' vectors.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    n_top : int, optional
        How many of an instance's best seen labels are combined. None: the best of 1, 3, 5, 10 and
        20 on seen labels made pseudo-unseen.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    n_top_ : int
        The number used. `WordBaseline` lists further attributes.

    Notes
    -----
    An instance whose predictions are all 0 or less gets the seen labels' shares instead.

    References
    ----------
    M. Norouzi and others: Zero-Shot Learning by Convex Combination of Semantic Embeddings,
    ICLR 2014.
    """

    ranges: ClassVar = {"n_top": {"low": 1, "whole": True}}

    def __init__(
        self,
        vectors: WordVectors | None = None,
        n_top: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.n_top = n_top
        self.random_state = random_state

    def _fit_mapper(self, X: Features, truth: Mask, vectors: Matrix) -> None:
        """Fit the label classifiers and choose how many labels are combined."""
        generator = as_generator(self.random_state)
        targets = truth.astype(np.float64)
        self.shares_ = targets.mean(axis=0)
        self.mapper_ = self._fit_ridge(X, targets, draw_seed(generator))
        if self.n_top is not None:
            self.n_top_ = int(self.n_top)
            return
        n, n_labels = truth.shape
        folds = fold_numbers(n, N_FOLDS, generator, self.groups_)
        predicted = out_of_fold(self.mapper_, X, targets, folds)

        def qualities(hidden: Mask) -> list[float]:
            visible_predicted = predicted[:, ~hidden]
            visible_vectors = vectors[~hidden]
            visible_shares = self.shares_[~hidden]
            top_qualities = []
            for n_top in CONSE_N_TOP:
                points = _combine_top(visible_predicted, visible_vectors, visible_shares, n_top)
                quality = zero_shot_quality(truth, points @ vectors.T, hidden)
                top_qualities.append(quality)
            return top_qualities

        self.n_top_ = best_candidate(CONSE_N_TOP, qualities, n_labels, N_HIDDEN_GROUPS, generator)

    def _similarities(self, predicted: Matrix) -> Matrix:
        """Return the cosine of every label with the instance's combination."""
        direct = self.direct_
        vectors = self.label_vectors_[direct]
        shares = self.shares_
        n_top = self.n_top_
        points = _combine_top(predicted, vectors, shares, n_top)
        return super()._similarities(points)


def _combine_top(predicted: Matrix, vectors: Matrix, shares: Matrix, n_top: int) -> Matrix:
    """Add up the vectors (n_labels, d) of each row's `n_top` best labels, at length 1, (n, d)."""
    weights = np.maximum(predicted, 0.0)
    # An instance without any prediction above 0 gets the labels' shares.
    weights[~weights.any(axis=1)] = shares
    if n_top < weights.shape[1]:
        # Equals are told apart by column, so that exactly `n_top` remain.
        order = np.argsort(-weights, axis=1, kind="stable")
        np.put_along_axis(weights, order[:, n_top:], 0.0, axis=1)
    return unit_rows(weights @ vectors)


class Composition(WordBaseline):
    """Word-vector composition with an exhaustive search over label combinations.

    A document's point is the sum of its labels' vectors, scaled to length 1; kernel ridge
    regression leads from features to points. A label scores the negative distance between the
    instance's predicted point, scaled to length 1, and the nearest of the 2^n - 1 combinations of
    the n labels that holds it.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    max_labels : int
        Refuse vocabularies with more labels than this that have a vector. At most 24; each more
        doubles the time of `decision_function`.
    random_state : int, numpy Generator or None
        For the mapper's search of its settings.

    Attributes
    ----------
    n_combinations_ : int
        How many combinations are searched for each instance. `WordBaseline` lists further
        attributes.

    Notes
    -----
    All labels of the nearest combination are at the same distance, so a millionth of the cosine
    with the label's own vector is added to tell them apart; example MAP counts ties against a
    method. Instances without a label that has a vector teach nothing. Memory does not grow with
    the number of combinations.

    References
    ----------
    Y. Fu, Y. Yang, T. Hospedales, T. Xiang, S. Gong: Transductive Multi-label Zero-shot Learning,
    BMVC 2014 (its direct prediction, without the transductive step).
    """

    ranges: ClassVar = {"max_labels": {"low": 1, "high": 24, "whole": True}}

    def __init__(
        self,
        vectors: WordVectors | None = None,
        max_labels: int = 16,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.max_labels = max_labels
        self.random_state = random_state

    def _fit_mapper(self, X: Features, truth: Mask, vectors: Matrix) -> None:
        """Refuse what cannot be searched; fit the way from features to composed points."""
        n_labels = int(self.known_.sum())
        self.n_combinations_ = 2**n_labels - 1
        if n_labels > self.max_labels:
            raise InputError(
                f"`Composition` searches all combinations of the labels, and {n_labels} labels "
                f"with a word vector make 2^{n_labels} - 1 = {self.n_combinations_:.3g} of them; "
                f"keep at most `max_labels` = {self.max_labels} labels, for example with "
                "`LabelCorpus.restrict`, or use ConSE or Fast0Tag."
            )
        points = unit_rows(truth.astype(np.float64) @ vectors)
        placed = np.flatnonzero(points.any(axis=1))
        if not len(placed):
            raise InputError("The labels' word vectors cancel out in every document; pass others.")
        self.mapper_ = self._fit_ridge(X, points[placed], self.random_state, placed)

    def _similarities(self, predicted: Matrix) -> Matrix:
        """Search all combinations for each instance."""
        points = unit_rows(predicted)
        vectors = self.label_vectors_[self.known_]
        squares = (points**2).sum(axis=1, keepdims=True) + 1.0
        cosines = _best_cosines(points, vectors)
        squared_distances = np.maximum(squares - 2.0 * cosines, 0.0)
        distances = np.sqrt(squared_distances)
        tie_break = _TIE_BREAK * (points @ vectors.T)
        scores = np.empty((len(points), len(self.classes_)))
        scores[:, self.known_] = tie_break - distances
        return scores


def _best_cosines(points: Matrix, vectors: Matrix) -> Matrix:
    """Return the best cosine of points (n, d) with a combination that holds each label."""
    # All 2^n_labels - 1 sums of the vectors (n_labels, d) are compared, each scaled to length 1; a
    # sum of length 0 has the cosine 0 with everything.
    n_points = len(points)
    n_labels, n_components = vectors.shape
    n_low = min(n_labels, _LOW_LABELS)
    high_vectors = vectors[n_low:]
    n_high = len(high_vectors)
    sums = np.zeros((1, n_components))
    for vector in vectors[:n_low]:  # bit i of a sum's number says whether it holds label i
        sums = np.concatenate([sums, sums + vector])
    best = np.full((n_points, n_labels), -1.0)
    for pattern in range(2**n_high):
        bits = pattern >> np.arange(n_high)
        chosen = bits & 1 == 1
        combined = unit_rows(sums + high_vectors[chosen].sum(axis=0))
        columns = n_low + np.flatnonzero(chosen)
        for start in range(0, n_points, _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            block = best[rows]
            cosines = points[rows] @ combined.T
            largest = cosines.max(axis=1)[:, None]
            block[:, columns] = np.maximum(block[:, columns], largest)
            # Folding the upper half onto the lower one takes the last label out; work halves each
            # time. The empty combination is always in the lower half and never counts.
            for label in reversed(range(n_low)):
                half = 2**label
                with_label = cosines[:, half:]
                without_label = cosines[:, :half]
                column = block[:, label]
                np.maximum(column, with_label.max(axis=1), out=column)
                cosines = np.maximum(with_label, without_label)
    return best


class Fast0Tag(WordBaseline):
    """Principal directions of documents, predicted from features, tuned.

    For each training instance a ranking support vector machine finds the direction in the space of
    word vectors along which its labels lie ahead of the other seen labels; kernel ridge regression
    leads from features to directions. A label scores its vector's product with the direction.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    penalty : float, optional
        Weight of the direction's squared length in the ranking machine; see the reference.
        None: the best of seven from 0.001 to 1 on seen labels made pseudo-unseen, on at most 1,000
        instances.
    max_iter : int
        Steps of the solver at most.
    random_state : int, numpy Generator or None

    Attributes
    ----------
    penalty_ : float
        The value used.
    n_iter_ : int
        Steps that the solver took for the final directions.
    converged_ : bool
        Whether all of them are within 1 % of their length; a warning says so if not.
        `WordBaseline` lists further attributes.

    Notes
    -----
    Instances without a label that has a vector, or with all of them, have no direction and teach
    nothing.

    References
    ----------
    Y. Zhang, B. Gong, M. Shah: Fast Zero-Shot Image Tagging, CVPR 2016; its linear form, with a
    kernel in place of the linear map.
    """

    ranges: ClassVar = {"penalty": {"low": 0, "above": True}, "max_iter": {"low": 1, "whole": True}}

    def __init__(
        self,
        vectors: WordVectors | None = None,
        penalty: float | None = None,
        max_iter: int = 2000,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.penalty = penalty
        self.max_iter = max_iter
        self.random_state = random_state

    def _fit_mapper(self, X: Features, truth: Mask, vectors: Matrix) -> None:
        """Choose the penalty, find the directions, fit the way from features to them."""
        usable = np.flatnonzero(_can_be_ranked(truth))
        if not len(usable):
            raise InputError(
                "No instance given to `Fast0Tag` carries some of the seen labels with a word "
                "vector but not all of them, so there is nothing to rank; give other documents."
            )
        generator = as_generator(self.random_state)
        seed = draw_seed(generator)
        self.penalty_ = self.penalty or self._choose(X, truth, vectors, usable, generator)
        directions, converged, self.n_iter_ = _ranking_directions(
            vectors, truth[usable], self.penalty_, TOLERANCE, self.max_iter
        )
        self.converged_ = bool(converged.all())
        if not self.converged_:
            warnings.warn(
                f"{int((~converged).sum())} directions of `Fast0Tag` are not within "
                f"{TOLERANCE:.0%} of their length after {self.max_iter} steps; raise `max_iter`.",
                PolysemeWarning,
                stacklevel=4,
            )
        self.mapper_ = self._fit_ridge(X, directions, seed, usable)

    def _choose(
        self,
        X: Features,
        truth: Mask,
        vectors: Matrix,
        usable: IntArray,
        generator: np.random.Generator,
    ) -> float:
        """Choose the penalty that ranks labels best when some are made pseudo-unseen."""
        n, n_labels = truth.shape
        folds = fold_numbers(n, N_FOLDS, generator, self.groups_)
        sample = generator.permutation(usable)[:SEARCH_SIZE]

        def qualities(hidden: Mask) -> list[float]:
            rankable = _can_be_ranked(truth[sample][:, ~hidden])
            rows = sample[rankable]
            if not len(rows):
                return [0.0] * len(FAST0TAG_PENALTIES)
            visible_truth = truth[rows][:, ~hidden]
            paths = self._path_directions(vectors[~hidden], visible_truth)
            mapper = self._fit_ridge(X, paths[:, 0], draw_seed(generator), rows)
            # Folds that no row is left of have no number.
            _, row_folds = np.unique(folds[rows], return_inverse=True)
            targets = paths.reshape(len(rows), -1)
            predicted = out_of_fold(mapper, X[rows], targets, row_folds)
            penalty_qualities = []
            for directions in np.split(predicted, len(FAST0TAG_PENALTIES), axis=1):
                scores = directions @ vectors.T
                quality = zero_shot_quality(truth[rows], scores, hidden)
                penalty_qualities.append(quality)
            return penalty_qualities

        return best_candidate(FAST0TAG_PENALTIES, qualities, n_labels, N_HIDDEN_GROUPS, generator)

    def _path_directions(self, vectors: Matrix, truth: Mask) -> Matrix:
        """Find the directions of documents for every penalty, (n, n_penalties, d)."""
        n_components = vectors.shape[1]
        paths = np.empty((len(truth), len(FAST0TAG_PENALTIES), n_components))
        start = None
        # From the largest penalty down: each starts at the solution before.
        for place in np.argsort(FAST0TAG_PENALTIES)[::-1]:
            penalty = FAST0TAG_PENALTIES[place]
            start, _, _ = _ranking_directions(
                vectors, truth, penalty, SEARCH_TOLERANCE, self.max_iter, start
            )
            paths[:, place] = start
        return paths


def _can_be_ranked(truth: Mask) -> Mask:
    """Return which documents (n, n_labels) hold some labels but not all, (n,)."""
    return np.asarray(truth.any(axis=1) & ~truth.all(axis=1))


def _ranking_directions(
    vectors: Matrix,
    truth: Mask,
    penalty: float,
    tolerance: float = 0.01,
    max_iter: int = 2000,
    start: Matrix | None = None,
) -> tuple[Matrix, Mask, int]:
    """Find the directions (n, d) of documents (n, n_labels), whether each is good, and the steps.

    A document with labels P, which lacks the labels N, has the direction w that minimises

        penalty / 2 ||w||^2 + 1 / (2 |P| |N|) sum over p in P, n in N of max(0, 1 - w.(v_p - v_n))^2

    by accelerated gradient steps, restarted for each document on its own when they point uphill.
    The objective is strongly convex: a direction is at most ``||gradient|| / penalty`` away from
    the best one, which bounds its error. Documents with the same labels are solved once.
    """
    sets, first, copies = np.unique(truth, axis=0, return_index=True, return_inverse=True)
    # Rows sorted by their number of labels let the gradient work on slices.
    order = np.argsort(-sets.sum(axis=1), kind="stable")
    rows_of_documents = np.argsort(order)[copies.ravel()]
    problem = _RankingProblem(vectors, sets[order], penalty)
    n_sets = len(sets)
    current = np.zeros((n_sets, vectors.shape[1]))
    if start is not None:
        current = start[first][order]
    directions = current.copy()
    converged = np.zeros(n_sets, dtype=bool)
    active = np.arange(n_sets)
    lookahead = current
    momentum = np.ones(n_sets)
    steps = 1.0 / problem.curvature()
    n_iter = 0
    while True:
        slope = problem.gradient(lookahead)
        bound = tolerance * problem.penalty * np.linalg.norm(lookahead, axis=1)
        good = np.linalg.norm(slope, axis=1) <= bound
        directions[active] = lookahead
        converged[active] = good
        if good.all() or n_iter == max_iter:
            return directions[rows_of_documents], converged[rows_of_documents], n_iter

        # Those that are done leave; doing so in batches saves most of the copying.
        if good.mean() > 0.2:
            problem = _RankingProblem(vectors, problem.truth[~good], penalty)
            active = active[~good]
            current = current[~good]
            lookahead = lookahead[~good]
            slope = slope[~good]
            momentum = momentum[~good]
            steps = steps[~good]

        # An accelerated gradient step, restarted where it points uphill.
        updated = lookahead - steps[:, None] * slope
        change = updated - current
        uphill = (change * slope).sum(axis=1) > 0
        momentum[uphill] = 1.0
        next_momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        factor = (momentum - 1.0) / next_momentum
        lookahead = updated + factor[:, None] * change
        current = updated
        momentum = next_momentum
        n_iter += 1


class _RankingProblem:
    """The objectives of `_ranking_directions` for documents (n, n_labels), fullest first."""

    def __init__(self, vectors: Matrix, truth: Mask, penalty: float) -> None:
        self.vectors = vectors
        self.truth = truth
        self.penalty = penalty
        n_labels = truth.shape[1]
        self.sizes = truth.sum(axis=1)
        n_pairs = self.sizes * (n_labels - self.sizes)
        self.scale = 1.0 / n_pairs
        # The label of each rank within its document; documents of fewer labels are cut off.
        n_ranks = int(self.sizes.max())
        order = np.argsort(~truth, axis=1, kind="stable")
        self.ranked = order[:, :n_ranks]
        self.counts = [int((self.sizes > rank).sum()) for rank in range(n_ranks)]

    def gradient(self, directions: Matrix) -> Matrix:
        """Return each document's gradient, (n, d)."""
        scores = directions @ self.vectors.T
        # A label of the document itself is no rival: minus infinity leaves no gap.
        rivals = np.where(self.truth, -np.inf, scores)
        pull = np.zeros_like(scores)
        for rank, count in enumerate(self.counts):
            rows = np.arange(count)
            labels = self.ranked[:count, rank]
            margins = 1.0 - scores[rows, labels]
            gaps = rivals[:count] + margins[:, None]
            np.maximum(gaps, 0.0, out=gaps)
            pull[:count] += gaps
            pull[rows, labels] -= gaps.sum(axis=1)
        pull *= self.scale[:, None]
        gradient = pull @ self.vectors
        return np.asarray(gradient + self.penalty * directions)

    def curvature(self) -> Matrix:
        """Return a bound of the largest curvature of each document's objective, (n,)."""
        # With every pair active it is the sum of the spreads of both sides and of the squared
        # distance of their means; the spread of the labels that a document lacks is at most that
        # of all labels, times n_labels / |N|.
        lacks_label = ~self.truth
        n_labels = self.truth.shape[1]
        n_lacking = n_labels - self.sizes
        mean = self.truth @ self.vectors / self.sizes[:, None]
        lacking_mean = lacks_label @ self.vectors / n_lacking[:, None]
        square_lengths = (self.vectors**2).sum(axis=1)
        mean_square_length = self.truth @ square_lengths / self.sizes
        squared_mean = (mean**2).sum(axis=1)
        spread = np.maximum(mean_square_length - squared_mean, 0.0)
        centred = self.vectors - self.vectors.mean(axis=0)
        total_spread = np.linalg.norm(centred, ord=2) ** 2
        lacking_spread = total_spread / n_lacking
        differences = mean - lacking_mean
        mean_distance = (differences**2).sum(axis=1)
        bound = spread + lacking_spread + mean_distance
        return np.asarray(bound + self.penalty)
