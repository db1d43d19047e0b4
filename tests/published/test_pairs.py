"""Negatives of the sampler: labels that a document lacks, whatever it holds."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from polyseme.published.pairs import PairSampler


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6),
    st.integers(0, 1000),
)
def test_absent_labels_are_absent_and_full_documents_have_none(rows, seed):
    matrix = np.array(rows)
    documents = np.arange(len(matrix)).repeat(20)
    sampler = PairSampler(sp.csr_matrix(matrix), batch_size=4)
    generator = np.random.default_rng(seed)
    labels = sampler.absent_labels(documents, generator)
    full = matrix.all(axis=1)[documents]
    assert_array_equal(labels == -1, full)
    some_absent = documents[~full]
    absent_labels = labels[~full]
    assert not matrix[some_absent, absent_labels].any()
