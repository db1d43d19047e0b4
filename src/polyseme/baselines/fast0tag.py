"""Fast0Tag: a direction in a space of word vectors along which an instance's labels come first.

In: features, documents and word vectors. Out: the product of every label's vector with the
direction that kernel ridge regression predicts for the instance.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme._validation import (
    InputError,
    PolysemeWarning,
    RandomState,
    as_generator,
    check_number,
    draw_seed,
)
from polyseme.baselines.base import Features, hidden_groups
from polyseme.baselines.directions import ranking_directions
from polyseme.baselines.tuned_costa import out_of_fold
from polyseme.baselines.word_base import WordBaseline, zero_shot_quality
from polyseme.published.mapping import InstanceMapper
from polyseme.word_vectors import WordVectors

# The search need not be exact to find the better setting.
_SEARCH_TOLERANCE = 0.1


class Fast0Tag(WordBaseline):
    """Principal directions of documents, predicted from features, tuned.

    For each training instance a ranking support vector machine finds the direction in the space of
    word vectors along which its labels lie ahead of the other seen labels; kernel ridge regression
    leads from features to directions.

    Parameters
    ----------
    vectors : WordVectors, optional
        By default `WordVectors.find()`.
    penalty : float, optional
        Weight of the direction's squared length in the ranking machine; see `ranking_directions`.
        None: chosen from `penalties` on seen labels made pseudo-unseen.
    penalties : sequence of float
        Candidates for `penalty`.
    n_folds : int
        Folds of instances for out-of-fold predictions, and groups of seen labels that take turns
        as pseudo-unseen ones when the penalty is chosen.
    search_size : int
        Choose the penalty on at most so many instances.
    tolerance : float
        Accepted error of a direction, relative to its length.
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
        Whether all of them are within `tolerance`; a warning says so if not.
    label_vectors_ : float64 array, shape (n_labels, d)
        Unit vectors; zeros for labels without one.
    known_ : bool array, shape (n_labels,)
        Whether a label has a vector.
    without_vector_ : tuple of str
        Labels none of whose words is known; they score minus infinity, below all others.
    direct_ : bool array, shape (n_labels,)
        The labels that directions rank: those with a vector that instances carry.

    Notes
    -----
    Instances without such a label, or with all of them, have no direction and teach nothing.

    References
    ----------
    Y. Zhang, B. Gong, M. Shah: Fast Zero-Shot Image Tagging, CVPR 2016; its linear form, with a
    kernel in place of the linear map.
    """

    def __init__(
        self,
        vectors: WordVectors | None = None,
        penalty: float | None = None,
        penalties: Sequence[float] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        n_folds: int = 4,
        search_size: int = 1000,
        tolerance: float = 0.01,
        max_iter: int = 2000,
        random_state: RandomState = None,
    ) -> None:
        self.vectors = vectors
        self.penalty = penalty
        self.penalties = penalties
        self.n_folds = n_folds
        self.search_size = search_size
        self.tolerance = tolerance
        self.max_iter = max_iter
        self.random_state = random_state

    def _learn(self, X: Features, matrix: sp.csr_matrix, lessons: sp.csr_matrix) -> None:
        """Choose the penalty, find the directions, fit the way from features to them."""
        self._check()
        self._look_up()
        generator = as_generator(self.random_state)
        labels, self.direct_ = self._usable(matrix)
        truth = labels.astype(bool)
        usable = np.flatnonzero(truth.any(axis=1) & ~truth.all(axis=1))
        if not len(usable):
            raise InputError(
                "No instance given to `Fast0Tag` carries some of the seen labels with a word "
                "vector but not all of them, so there is nothing to rank; give other documents."
            )
        self.mapper_ = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
        if self.penalty is not None:
            self.penalty_ = float(self.penalty)
        else:
            folds = self._folds(self.n_folds, generator, len(truth))
            self.penalty_ = self._choose(X, truth, folds, usable, generator)
        directions = self._directions(truth[usable])
        self.mapper_.fit(X[usable], directions, self._groups_of(usable))

    def _directions(self, truth: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Find the final directions, (n, d), and warn where they are not good enough."""
        found = ranking_directions(
            self.label_vectors_[self.direct_],
            truth,
            self.penalty_,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
        )
        self.n_iter_, self.converged_ = found.n_iter, bool(found.converged.all())
        if not self.converged_:
            warnings.warn(
                f"{int((~found.converged).sum())} directions of `Fast0Tag` are not within "
                f"`tolerance` after {self.max_iter} steps; raise `max_iter`.",
                PolysemeWarning,
                stacklevel=4,
            )
        return found.directions

    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Multiply every label's vector with the instance's direction."""
        return self._put_unknown_last(self.mapper_.predict(X) @ self.label_vectors_.T)

    def _choose(
        self,
        X: Features,
        truth: NDArray[np.bool_],
        folds: NDArray[np.int64],
        usable: NDArray[np.int64],
        generator: np.random.Generator,
    ) -> float:
        """Choose the penalty that ranks labels best when some are made pseudo-unseen."""
        rows = generator.permutation(usable)[: self.search_size]
        vectors = self.label_vectors_[self.direct_]
        quality = np.zeros(len(self.penalties))
        for hidden in hidden_groups(truth.shape[1], self.n_folds, generator):
            left = truth[rows][:, ~hidden]
            part = rows[left.any(axis=1) & ~left.all(axis=1)]
            if not len(part):
                continue
            paths = self._paths(vectors[~hidden], truth[part][:, ~hidden])
            mapper = InstanceMapper(kind="kernel-ridge", random_state=draw_seed(generator))
            mapper.fit(X[part], paths[:, 0], self._groups_of(part))
            flat = paths.reshape(len(part), -1)
            _, numbers = np.unique(folds[part], return_inverse=True)
            predicted = out_of_fold(mapper, X[part], flat, numbers).reshape(paths.shape)
            for place in range(len(self.penalties)):
                scores = predicted[:, place] @ vectors.T
                quality[place] += zero_shot_quality(truth[part], scores, hidden)
        return float(self.penalties[int(np.argmax(quality))])

    def _paths(self, vectors: NDArray[np.float64], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Find the directions for every candidate, (n, n_candidates, d), each starting nearby."""
        paths = np.empty((len(truth), len(self.penalties), vectors.shape[1]))
        start = None
        for place in np.argsort(self.penalties)[::-1]:
            found = ranking_directions(
                vectors,
                truth,
                float(self.penalties[place]),
                tolerance=max(self.tolerance, _SEARCH_TOLERANCE),
                max_iter=self.max_iter,
                start=start,
            )
            paths[:, place] = start = found.directions
        return paths

    def _check(self) -> None:
        """Raise unless the parameters are in their ranges."""
        owner = "Fast0Tag"
        if self.penalty is not None:
            check_number("penalty", self.penalty, owner=owner, low=0, above=True)
        if not len(self.penalties):
            raise InputError("`penalties` of `Fast0Tag` must hold at least one number; got none.")
        for candidate in self.penalties:
            check_number("penalties", candidate, owner=owner, low=0, above=True)
        check_number("n_folds", self.n_folds, owner=owner, low=2, whole=True)
        check_number("search_size", self.search_size, owner=owner, low=2, whole=True)
        check_number("max_iter", self.max_iter, owner=owner, low=1, whole=True)
        check_number("tolerance", self.tolerance, owner=owner, low=0, above=True)
