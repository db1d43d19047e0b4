from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from polyseme.baselines.transfer import (
    STATISTICS,
    choose_penalty,
    conditional_shares,
    cooccurrences,
    ridge,
    transfer_weights,
)
from sklearn.linear_model import Ridge

SEEN, UNSEEN = [0, 2, 3], [1, 4, 5]


@pytest.fixture(scope="module")
def lessons():
    matrix = np.random.default_rng(0).random((40, 6)) < np.array([0.5, 0.3, 0.2, 0.6, 0.1, 0.4])
    matrix[:, 5] = False  # a label without documents
    return matrix


def count(lessons, *columns):
    return sum(all(row[column] for column in columns) for row in lessons)


def plain_weight(lessons, z, k, statistic):
    both = count(lessons, z, k)
    if statistic == "normalised":
        return both / max(count(lessons, z), 1)
    if statistic == "dice":
        return both / max(count(lessons, z) + count(lessons, k), 1)
    return both**0.5


@pytest.mark.parametrize("statistic", STATISTICS)
def test_weights_are_those_of_a_plain_loop(lessons, statistic):
    counts = cooccurrences(sp.csr_matrix(lessons))
    found = transfer_weights(counts, np.array(SEEN), np.array(UNSEEN), statistic)
    assert found.shape == (3, 3)
    for column, z in enumerate(UNSEEN):
        weights = np.array([plain_weight(lessons, z, k, statistic) for k in SEEN])
        expected = weights / weights.sum() if weights.sum() else weights
        np.testing.assert_allclose(found[:, column], expected)
    np.testing.assert_allclose(found.sum(axis=0), [1, 1, 0])


def test_the_statistics_differ(lessons):
    counts = cooccurrences(sp.csr_matrix(lessons))
    found = [transfer_weights(counts, np.array(SEEN), np.array([1]), name) for name in STATISTICS]
    for first, second in [(0, 1), (0, 2), (1, 2)]:
        assert np.abs(found[first] - found[second]).max() > 1e-3


def test_shares_are_those_of_a_plain_loop(lessons):
    given = np.array([True, False, True, True, False, True])
    found = conditional_shares(cooccurrences(sp.csr_matrix(lessons)), given, ~given)
    for row, t in enumerate(np.flatnonzero(given)):
        for column, z in enumerate(np.flatnonzero(~given)):
            assert found[row, column] == count(lessons, t, z) / max(count(lessons, t), 1)


def test_ridge_is_that_of_scikit_learn(lessons):
    inputs, targets = lessons[:, SEEN].astype(float), lessons[:, UNSEEN].astype(float)
    weights, intercept = ridge(inputs, targets, 0.1)
    reference = Ridge(alpha=0.1 * len(inputs)).fit(inputs, targets)
    np.testing.assert_allclose(weights, reference.coef_.T, atol=1e-10)
    np.testing.assert_allclose(intercept, reference.intercept_, atol=1e-10)


def test_the_penalty_is_the_one_that_predicts_other_documents_best():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(60, 20))
    folds = np.arange(60) % 3
    penalties = (1e-4, 1e-2, 1e2)
    clear = inputs @ generator.normal(size=(20, 2))
    assert choose_penalty(inputs, clear, penalties, folds) == 1e-4
    assert choose_penalty(inputs, generator.normal(size=(60, 2)), penalties, folds) == 1e2
    assert choose_penalty(inputs, clear, penalties, np.zeros(60, dtype=np.int64)) == 1e-4
