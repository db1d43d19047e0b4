"""Sampling of examples: each positive once, negatives uniform over absent labels, even pairs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme.published.nn.pairs import PairSampler

PAIRINGS = ["random", "document"]


def random_documents(n_documents=40, n_labels=9, seed=0):
    """Draw documents, the second of them without labels."""
    matrix = np.random.default_rng(seed).random((n_documents, n_labels)) < 0.3
    matrix[1] = False
    return matrix


def epoch(matrix, seed=0, **options):
    """Collect the batches of one epoch."""
    options = {"batch_size": 16} | options
    return list(PairSampler(sp.csr_matrix(matrix), **options).epoch(np.random.default_rng(seed)))


def positives(batches):
    """Count the positive (document, label) examples of some batches."""
    return Counter(
        pair
        for batch in batches
        for pair in zip(
            batch.document_ids[batch.positive].tolist(),
            batch.label_ids[batch.positive].tolist(),
            strict=True,
        )
    )


def held(matrix):
    """Count each (document, label) that the documents hold, once."""
    return Counter(zip(*(places.tolist() for places in np.nonzero(matrix)), strict=True))


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("batch_size", [2, 3, 7, 16, 1000])
@pytest.mark.parametrize("n_negatives", [1, 2, 3])
def test_every_positive_comes_exactly_once(pairing, batch_size, n_negatives):
    matrix = random_documents()
    options = {"batch_size": batch_size, "negatives_per_positive": n_negatives}
    batches = epoch(matrix, pairing=pairing, **options)
    assert positives(batches) == held(matrix)
    sizes = [len(batch.label_ids) for batch in batches]
    assert max(sizes) <= max(batch_size, 1 + n_negatives)
    assert all(size % 2 == 0 for size in sizes)
    n_drawn = sum((~batch.positive).sum() for batch in batches)
    # An odd batch gives up one negative.
    assert 0 <= matrix.sum() * n_negatives - n_drawn <= len(batches)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("batch_size", [7, 16])
@pytest.mark.parametrize("n_examples", [33, 34])
def test_without_negatives_at_most_one_positive_finds_no_partner(pairing, batch_size, n_examples):
    matrix = np.arange(40) < n_examples
    batches = epoch(
        matrix.reshape(8, 5), pairing=pairing, batch_size=batch_size, negatives_per_positive=0
    )
    found = positives(batches)
    assert all(batch.positive.all() and len(batch.positive) % 2 == 0 for batch in batches)
    assert max(found.values()) == 1
    assert len(found) == n_examples - n_examples % 2


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_signs_say_whether_the_document_holds_the_label(pairing):
    matrix = random_documents()
    for batch in epoch(matrix, pairing=pairing, negatives_per_positive=2):
        np.testing.assert_array_equal(matrix[batch.document_ids, batch.label_ids], batch.positive)
        assert batch.label_ids.dtype == batch.document_ids.dtype == np.int64


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_each_negative_shares_its_batch_with_positives_of_its_document(pairing):
    for batch in epoch(random_documents(), pairing=pairing):
        counts = Counter(batch.document_ids[batch.positive].tolist())
        assert Counter(batch.document_ids[~batch.positive].tolist()) == counts


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_full_documents_give_no_negatives_and_lose_no_positive(pairing):
    matrix = random_documents(n_labels=5)
    matrix[[2, 7, 8]] = True
    batches = epoch(matrix, pairing=pairing)
    assert positives(batches) == held(matrix)
    assert all(len(batch.label_ids) % 2 == 0 for batch in batches)
    drawn = np.concatenate([batch.document_ids[~batch.positive] for batch in batches])
    assert not np.isin(drawn, [2, 7, 8]).any()
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=4)
    np.testing.assert_array_equal(
        sampler.absent_labels(np.array([7, 2]), np.random.default_rng(0)), [-1, -1]
    )


def test_documents_without_labels_give_nothing():
    assert epoch(np.zeros((3, 4), dtype=bool)) == []


def test_negatives_are_uniform_over_the_absent_labels():
    matrix = np.array(
        [[1, 0, 0, 1, 0, 0, 1], [0] * 7, [0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 1, 0]], dtype=bool
    )
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=4)
    n_draws = 20_000
    for row, document in enumerate(matrix):
        drawn = sampler.absent_labels(np.full(n_draws, row), np.random.default_rng(row))
        counts = np.bincount(drawn, minlength=7)
        assert not counts[document].any()
        n_absent = (~document).sum()
        expected = n_draws / n_absent
        chi_square = ((counts[~document] - expected) ** 2 / expected).sum()
        # Mean n_absent - 1, standard deviation sqrt(2 (n_absent - 1)): five of them above.
        assert chi_square <= (n_absent - 1) + 5 * np.sqrt(2 * (n_absent - 1))


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6),
    st.integers(0, 1000),
)
def test_absent_labels_are_absent(rows, seed):
    matrix = np.array(rows)
    documents = np.arange(len(matrix)).repeat(20)
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=4)
    drawn = sampler.absent_labels(documents, np.random.default_rng(seed))
    full = matrix.all(axis=1)[documents]
    np.testing.assert_array_equal(drawn == -1, full)
    assert not matrix[documents[~full], drawn[~full]].any()
    assert (drawn < 4).all()


def test_unsorted_columns_change_nothing():
    backwards = sp.csr_matrix(([True] * 3, [5, 3, 0], [0, 3]), shape=(1, 6))
    drawn = PairSampler(backwards, batch_size=4).absent_labels(
        np.zeros(200, dtype=np.int64), np.random.default_rng(0)
    )
    assert set(drawn.tolist()) == {1, 2, 4}


def share_of_pairs_within_a_document(batches):
    """Say how many pairs have two sides of one document."""
    same = [batch.document_ids[0::2] == batch.document_ids[1::2] for batch in batches]
    return np.concatenate(same).mean()


def test_pairing_by_document_keeps_a_documents_examples_together():
    matrix = random_documents(200, 12)
    within = share_of_pairs_within_a_document(epoch(matrix, pairing="document", batch_size=256))
    assert within > 0.8
    assert share_of_pairs_within_a_document(epoch(matrix, batch_size=256)) < 0.1


def test_random_pairs_are_one_two_one():
    batches = epoch(random_documents(400, 12), batch_size=512)
    kinds = [batch.positive[0::2].astype(int) + batch.positive[1::2] for batch in batches]
    shares = np.bincount(np.concatenate(kinds)) / sum(map(len, kinds))
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.25], atol=0.06)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_same_seed_gives_the_same_batches_and_the_next_epoch_others(pairing):
    matrix = random_documents()

    def flat(batches):
        return np.concatenate([[*b.label_ids, *b.document_ids, *b.positive] for b in batches])

    first, second = (flat(epoch(matrix, seed=3, pairing=pairing)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=16, pairing=pairing)
    generator = np.random.default_rng(3)
    np.testing.assert_array_equal(flat(sampler.epoch(generator)), first)
    following = list(sampler.epoch(generator))
    assert positives(following) == held(matrix)
    assert not np.array_equal(flat(following), first)
