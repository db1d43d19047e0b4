"""Latent semantic analysis of the label sets: a linear concept space without contexts.

In: features and labels of instances, and label sets. Out: scores of labels around the point that an
instance's features predict in the space of the sets' largest singular directions.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from polyseme._folds import fold_numbers, hidden_groups
from polyseme._validation import InputError, RandomState, as_generator, draw_seed
from polyseme.baselines.base import Baseline, Features, Mask, Matrix, counts_of, out_of_fold
from polyseme.metrics import example_map

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
        named = counts_of(Z)
        self.idf_ = 1.0 + np.log((1 + Z.shape[0]) / (1 + named))
        most = int(self.n_components or max(N_COMPONENTS))
        directions, rank = _directions(sp.csr_matrix(Z @ sp.diags_array(self.idf_)), most)
        placed = np.flatnonzero(np.asarray(Y[:, named > 0].sum(axis=1)).ravel())
        if not len(placed):
            raise InputError(
                "No instance carries a label of the label sets, so none can be placed in their "
                "space; check that both use the same labels."
            )
        sizes = [size for size in N_COMPONENTS if size < rank] or [rank]
        if self.n_components is not None:
            sizes = [min(most, rank)]
        directions, labels = directions[:, : max(sizes)], Y[placed]
        points = np.asarray(labels @ sp.diags_array(self.idf_) @ directions)
        self.mapper_ = self._fit_ridge(X, points, draw_seed(generator), placed)
        self.n_components_ = sizes[0]
        if len(sizes) > 1:
            groups = None if self.groups_ is None else self.groups_[placed]
            folds = fold_numbers(len(placed), _N_FOLDS, generator, groups)
            seen = self.kinds_ == "seen"
            truth = labels[:, seen].toarray().astype(np.float64)
            predicted = out_of_fold(self.mapper_, X[placed], truth, folds)
            nested = [directions[seen, :size] for size in sizes]
            quality = _qualities(nested, self.idf_[seen, None], predicted, truth > 0, generator)
            self.n_components_ = sizes[int(np.argmax(quality))]
        self.directions_ = directions[:, : self.n_components_]

    def _scores(self, X: Features) -> Matrix:
        """Reconstruct each label at the points that the features predict."""
        points = self.mapper_.predict(X)[:, : self.n_components_]
        scores = points @ (self.directions_ / self.idf_[:, None]).T
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
    quality = np.array([example_map(truth, predicted @ (v * idf) @ (v / idf).T) for v in nested])
    groups = list(hidden_groups(truth.shape[1], _N_GROUPS, generator))
    for hidden in groups:
        for place, vectors in enumerate(nested):
            points = predicted[:, ~hidden] @ (vectors * idf)[~hidden]
            scores = points @ (vectors / idf)[hidden].T
            quality[place] += example_map(truth[:, hidden], scores) / len(groups)
    return quality


def _directions(weighted: sp.csr_matrix, most: int) -> tuple[Matrix, int]:
    """Find the right singular vectors (n_labels, at most `most`) and, up to one more, the rank."""
    gram = np.asarray((weighted.T @ weighted).toarray())
    first = max(len(gram) - most - 1, 0)
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=(first, len(gram) - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    rank = int((values > _RANK_TOLERANCE * max(values[0], 1e-300)).sum())
    return np.ascontiguousarray(vectors[:, : min(rank, most)]), rank
