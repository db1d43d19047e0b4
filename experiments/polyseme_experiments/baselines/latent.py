"""Latent semantic analysis of the label sets: a linear concept space without contexts.

In: features and labels of instances, and label sets. Out: scores of labels around the point that an
instance's features predict in the space of the sets' largest singular directions.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from polyseme.base.folds import fold_numbers, hidden_groups
from polyseme.base.validation import InputError, RandomState, as_generator, draw_seed
from polyseme.metrics import example_map
from polyseme_experiments.baselines.base import (
    Baseline,
    Features,
    Mask,
    Matrix,
    counts_of,
    out_of_fold,
)

N_COMPONENTS = (8, 16, 32, 64, 128)
# Folds of instances, and groups of labels that take turns as pseudo-unseen ones.
_N_FOLDS, _N_GROUPS = 3, 4
_RANK_TOLERANCE = 1e-9


class LatentSemantic(Baseline):
    """Score labels in the latent semantic space of their label sets.

    Parameters
    ----------
    n_components : int, optional
        Dimensions of the space, at most the rank of the label sets. None: the best of 8, 16, 32, 64
        and 128 below the rank on held-out instances (three folds): the highest sum of E-MAP over
        the labels that instances carry and over labels made pseudo-unseen, a quarter at a time.
    random_state : int, numpy Generator or None
        Seeds the mapping from features and the folds.

    Attributes
    ----------
    n_components_ : int
        The number used.
    directions_ : float64 array, shape (n_labels, n_components_)
        The right singular vectors of the weighted label sets; zeros for oov labels.
    idf_ : float64 array, shape (n_labels,)
        The weight of each label, ``1 + log((1 + m) / (1 + m_label))`` over m label sets.
    mapper_ : InstanceMapper
        Kernel ridge regression from features onto the largest space that was considered; spaces
        are nested, so that one mapping serves all.

    Notes
    -----
    A document's point is its weighted labels times the directions. A label's vector is its
    direction divided by its weight: the inner product of both is then the least-squares
    reconstruction of the label's 0 or 1, which makes scores of different labels comparable. Oov
    labels have no place in the space: their score is minus infinity, the lowest score.
    """

    ranges: ClassVar = {"n_components": {"low": 1, "whole": True}}

    def __init__(self, n_components: int | None = None, random_state: RandomState = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _fit(self, X: Features, Y: sp.csr_matrix, Z: sp.csr_matrix) -> None:
        """Find the directions, map features onto the documents' points, choose the size."""
        generator = as_generator(self.random_state)
        set_counts = counts_of(Z)
        self.idf_ = 1.0 + np.log((1 + Z.shape[0]) / (1 + set_counts))
        idf_diagonal = sp.diags_array(self.idf_)
        most = int(self.n_components or max(N_COMPONENTS))
        weighted = sp.csr_matrix(Z @ idf_diagonal)
        directions, rank = _directions(weighted, most)
        known_counts = np.asarray(Y[:, set_counts > 0].sum(axis=1)).ravel()
        placed = np.flatnonzero(known_counts)
        if not len(placed):
            raise InputError(
                "No instance carries a label of the label sets, so none can be placed in their "
                "space; check that both use the same labels."
            )

        sizes = [size for size in N_COMPONENTS if size < rank] or [rank]
        if self.n_components is not None:
            sizes = [min(most, rank)]
        directions = directions[:, : max(sizes)]
        labels = Y[placed]
        points = np.asarray(labels @ idf_diagonal @ directions)
        self.mapper_ = self._fit_ridge(X, points, draw_seed(generator), placed)
        self.n_components_ = sizes[0]
        if len(sizes) > 1:
            groups = None if self.groups_ is None else self.groups_[placed]
            folds = fold_numbers(len(placed), _N_FOLDS, generator, groups)
            seen = self.kinds_ == "seen"
            truth = labels[:, seen].toarray().astype(np.float64)
            predicted = out_of_fold(self.mapper_, X[placed], truth, folds)
            nested = [directions[seen, :size] for size in sizes]
            qualities = _qualities(nested, self.idf_[seen, None], predicted, truth > 0, generator)
            best = int(np.argmax(qualities))
            self.n_components_ = sizes[best]
        self.directions_ = directions[:, : self.n_components_]

    def _scores(self, X: Features) -> Matrix:
        """Reconstruct each label at the points that the features predict."""
        points = self.mapper_.predict(X)[:, : self.n_components_]
        label_vectors = self.directions_ / self.idf_[:, None]
        scores = points @ label_vectors.T
        scores[:, self.kinds_ == "oov"] = -np.inf
        return np.asarray(scores)


def _qualities(
    nested: list[Matrix],
    idf: Matrix,
    predicted: Matrix,
    truth: Mask,
    generator: np.random.Generator,
) -> Matrix:
    """Measure directions (n_seen, size) by held-out predictions of the labels themselves."""
    # Kernel ridge regression is linear in its targets: points are predicted labels times
    # directions, whichever labels the documents are taken to lack.
    spaces = [(directions * idf, directions / idf) for directions in nested]
    qualities = np.zeros(len(nested))
    for place, (weights, vectors) in enumerate(spaces):
        scores = predicted @ weights @ vectors.T
        qualities[place] = example_map(truth, scores)

    groups = list(hidden_groups(truth.shape[1], _N_GROUPS, generator))
    for hidden in groups:
        for place, (weights, vectors) in enumerate(spaces):
            points = predicted[:, ~hidden] @ weights[~hidden]
            scores = points @ vectors[hidden].T
            qualities[place] += example_map(truth[:, hidden], scores) / len(groups)
    return qualities


def _directions(weighted: sp.csr_matrix, most: int) -> tuple[Matrix, int]:
    """Find the right singular vectors (n_labels, at most `most`) and, up to one more, the rank."""
    gram = np.asarray((weighted.T @ weighted).toarray())
    n_labels = len(gram)
    first = max(n_labels - most - 1, 0)
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=(first, n_labels - 1))
    # From the largest to the smallest.
    values = values[::-1]
    vectors = vectors[:, ::-1]
    least_value = _RANK_TOLERANCE * max(values[0], 1e-300)
    rank = int((values > least_value).sum())
    size = min(rank, most)
    return np.ascontiguousarray(vectors[:, :size]), rank
