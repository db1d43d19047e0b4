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
from polyseme_experiments.baselines.tuning import COMPONENT_COUNTS, N_HIDDEN_GROUPS

_N_FOLDS = 3  # of instances, to choose the number of components
_RANK_TOLERANCE = 1e-9  # eigenvalues below this share of the largest one count as 0


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
        most = int(self.n_components or max(COMPONENT_COUNTS))
        weighted = sp.csr_matrix(Z @ idf_diagonal)
        directions, rank = _directions(weighted, most)
        known_counts = np.asarray(Y[:, set_counts > 0].sum(axis=1)).ravel()
        placed = np.flatnonzero(known_counts)
        if not len(placed):
            raise InputError(
                "No instance carries a label of the label sets, so none can be placed in their "
                "space; check that both use the same labels."
            )

        sizes = [size for size in COMPONENT_COUNTS if size < rank] or [rank]
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
            nested_directions = [directions[seen, :size] for size in sizes]
            idf = self.idf_[seen, None]
            qualities = _qualities(nested_directions, idf, predicted, truth > 0, generator)
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
    nested_directions: list[Matrix],
    idf: Matrix,
    predicted: Matrix,
    truth: Mask,
    generator: np.random.Generator,
) -> Matrix:
    """Measure spaces of several sizes by held-out predictions of seen labels, (n_sizes,).

    Parameters
    ----------
    nested_directions : list of ndarray, each of shape (n_seen, size)
    idf : ndarray of shape (n_seen, 1)
    predicted : ndarray of shape (n, n_seen)
        Labels as kernel ridge regressions predict them that have not seen the instance.
    truth : bool ndarray of shape (n, n_seen)
    generator : numpy Generator
        Draws the groups of pseudo-unseen labels.
    """
    # Kernel ridge regression is linear in its targets: points are predicted labels times
    # directions, whichever labels the documents are taken to lack.
    spaces = [(directions * idf, directions / idf) for directions in nested_directions]
    qualities = np.zeros(len(nested_directions))
    for candidate, (label_weights, label_vectors) in enumerate(spaces):
        points = predicted @ label_weights
        scores = points @ label_vectors.T
        qualities[candidate] = example_map(truth, scores)

    n_seen = truth.shape[1]
    groups = list(hidden_groups(n_seen, N_HIDDEN_GROUPS, generator))
    for hidden in groups:
        hidden_truth = truth[:, hidden]
        for candidate, (label_weights, label_vectors) in enumerate(spaces):
            points = predicted[:, ~hidden] @ label_weights[~hidden]
            scores = points @ label_vectors[hidden].T
            hidden_quality = example_map(hidden_truth, scores)
            qualities[candidate] += hidden_quality / len(groups)
    return qualities


def _directions(weighted: sp.csr_matrix, most: int) -> tuple[Matrix, int]:
    """Find the largest right singular vectors of weighted label sets (m, n_labels), and the rank.

    The vectors are (n_labels, at most `most`), from the largest singular value down; the rank is
    counted up to `most` + 1.
    """
    products = (weighted.T @ weighted).toarray()
    gram = np.asarray(products)
    n_labels = len(gram)
    first = max(n_labels - most - 1, 0)
    eigenvalues, vectors = scipy.linalg.eigh(gram, subset_by_index=(first, n_labels - 1))
    # From the largest to the smallest.
    eigenvalues = eigenvalues[::-1]
    vectors = vectors[:, ::-1]
    least_eigenvalue = _RANK_TOLERANCE * max(eigenvalues[0], 1e-300)
    rank = int((eigenvalues > least_eigenvalue).sum())
    size = min(rank, most)
    directions = np.ascontiguousarray(vectors[:, :size])
    return directions, rank
