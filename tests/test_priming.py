from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme._validation import InputError
from polyseme.index import ConceptIndex
from polyseme.published.priming import PrimingRanker, relatedness
from polyseme.tags import rank_labels

# ------------------------------------------------------------------ equation (9)


def test_scores_are_inverse_distances_that_sum_to_one():
    scores = relatedness([[1.0, 2.0, 4.0]], floor=1e-9)
    total = 1 + 1 / 2 + 1 / 4
    np.testing.assert_allclose(scores, [[1 / total, 0.5 / total, 0.25 / total]])


def test_a_label_without_concept_scores_zero_and_zero_distance_is_guarded():
    scores = relatedness([[0.0, 1.0, np.inf]], floor=1e-6)
    assert scores[0, 2] == 0.0
    assert np.isfinite(scores).all()
    assert scores[0, 0] == pytest.approx(1.0, abs=1e-5)
    assert relatedness([[np.inf, np.inf]], floor=1e-6).tolist() == [[0.0, 0.0]]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 1000), min_size=2, max_size=8, unique=True))
def test_nearer_labels_score_higher(distances):
    scores = relatedness([distances], floor=1e-9)[0]
    assert scores.sum() == pytest.approx(1.0)
    assert np.argsort(-scores).tolist() == np.argsort(distances).tolist()


# ------------------------------------------------------------------ ranking


def test_ties_go_to_the_label_with_more_concepts_then_to_the_first():
    label_ids, scores = rank_labels([[0.2, 0.3, 0.2, 0.3]], [1, 4, 9, 4], k=4)
    assert label_ids.tolist() == [[1, 3, 2, 0]]
    assert scores.tolist() == [[0.3, 0.3, 0.2, 0.2]]


def test_k_beyond_the_labels_gives_all_of_them():
    label_ids, scores = rank_labels([[0.1, 0.9]], [1, 1], k=10)
    assert label_ids.shape == scores.shape == (1, 2)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_a_bad_k_is_named(k):
    with pytest.raises(InputError, match="`k` of `rank` must be a whole number at least 1"):
        rank_labels([[0.1, 0.9]], [1, 1], k=k)


def test_density_prefers_the_crowd_and_nearest_the_single_neighbour():
    crowd = [[1.0, 0.0]] * 6
    index = ConceptIndex([[0.9, 0.0], *crowd], [0] + [1] * 6, 2)
    point = [[0.0, 0.0]]
    nearest = PrimingRanker(index, 1.0).scores(point)
    density = PrimingRanker(index, 1.0, score="density", bandwidth=1.0).scores(point)
    assert nearest[0].argmax() == 0
    assert density[0].argmax() == 1
    assert density.sum() == pytest.approx(1.0)


def test_an_unknown_score_is_named():
    with pytest.raises(InputError, match="`score` of `PrimingRanker` must be one of"):
        PrimingRanker(ConceptIndex([[0.0]], [0], 1), 1.0, score="best")
