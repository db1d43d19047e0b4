"""Label and context descriptors, against plain loops and against topics known by construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import tomotopy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma
from sklearn.base import clone

from polyseme._validation import InputError, NotFittedError
from polyseme.published import descriptors
from polyseme.published.descriptors import CentredRows, ContextDescriptor, LabelDescriptor

# The last label is in no document, the one before it in all of them.
DOCUMENTS = np.array(
    [[1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0], [1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 0]], dtype=bool
)


def blocks(n_documents=120, n_labels=5, n_blocks=3, seed=0):
    """Make documents of three labels from one of several blocks, in turn."""
    generator = np.random.default_rng(seed)
    matrix = np.zeros((n_documents, n_blocks * n_labels), dtype=bool)
    for row in range(n_documents):
        chosen = (row % n_blocks) * n_labels + generator.permutation(n_labels)[:3]
        matrix[row, chosen] = True
    return matrix


# --- labels ---------------------------------------------------------------------------------


def plain_descriptors(documents, strength):
    """Compute tf-idf weights, products of uses and their scaling with nothing but loops."""
    n_documents, n_labels = documents.shape
    uses = [[0.0] * n_documents for _ in range(n_labels)]
    for label in range(n_labels):
        n_with = sum(int(documents[d, label]) for d in range(n_documents))
        for d in range(n_documents):
            if documents[d, label]:
                uses[label][d] = math.log(n_documents / n_with)
    table = np.array([[sum(np.multiply(a, b)) for a in uses] for b in uses])
    for row in table:
        row /= math.sqrt(sum(value**2 for value in row)) or 1.0
    used = documents.any(axis=0)
    for column in table.T:
        spread = np.std(column[used])
        column[used] = strength * (column[used] - np.mean(column[used])) / (spread or 1.0)
    return table


@pytest.fixture
def sparse_from_five(monkeypatch):
    """Describe five labels or more by sparse rows, however many pairs meet."""
    monkeypatch.setattr(descriptors, "_MANY_LABELS", 5)
    monkeypatch.setattr(descriptors, "_FEW_PAIRS", 1.0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("documents", [DOCUMENTS, np.ones((3, 2), dtype=bool)], ids=["some", "all"])
def test_label_descriptors_equal_the_plain_computation(form, documents):
    fitted = LabelDescriptor(strength=0.7).fit(form(documents))
    assert fitted.descriptors_.dtype == np.float32
    assert_allclose(fitted.descriptors_, plain_descriptors(documents, 0.7), atol=1e-6)
    counts = documents.sum(axis=0)
    expected = [math.log(len(documents) / n) if n else 0.0 for n in counts]
    assert_allclose(fitted.idf_, expected)
    assert fitted.n_features_in_ == len(counts)


def test_sparse_descriptors_equal_the_plain_computation(sparse_from_five):
    matrix = np.hstack([blocks(), np.zeros((120, 2), dtype=bool)])
    sparse = LabelDescriptor().fit(matrix).descriptors_
    assert isinstance(sparse, CentredRows)
    assert sparse.shape == (17, 17)
    expected = plain_descriptors(matrix, 0.3)
    assert_allclose(sparse.toarray(), expected, atol=2e-6 * np.abs(expected).max())
    assert not sparse.toarray()[-2:].any(), "labels without a document"
    # Columns that hardly vary must not be blown up.
    alike = np.vstack([np.tile(np.eye(12, dtype=bool), (5, 1)), np.ones((1, 12), dtype=bool)])
    assert np.abs(LabelDescriptor().fit(alike).descriptors_.toarray()).max() < 10


def with_topics(topics, prior):
    """A context descriptor with given topics, as if it had learned them."""
    config = ContextDescriptor(document_prior=prior).get_params()
    return ContextDescriptor.from_state(config, {"topics": topics})


@pytest.mark.parametrize("sparse", [True, False])
def test_label_descriptors_are_taken_back(sparse, request):
    if sparse:
        request.getfixturevalue("sparse_from_five")
    fitted = LabelDescriptor(strength=np.float64(0.5)).fit(blocks())
    again = LabelDescriptor.from_state(*fitted.get_state())
    assert isinstance(again.descriptors_, CentredRows) == sparse
    rows = [one.descriptors_.toarray() if sparse else one.descriptors_ for one in (fitted, again)]
    assert_array_equal(*rows)
    assert_array_equal(again.idf_, fitted.idf_)
    assert again.get_params() == fitted.get_params()
    assert again.n_features_in_ == 15


@pytest.mark.parametrize("kind", [int, bool])
def test_stored_zeros_repeats_and_order_are_no_matter(kind):
    data = np.array([1, 0, 1, 1, 1], dtype=kind)
    odd = sp.csr_matrix((data, [0, 1, 2, 2, 1], [0, 2, 5]), shape=(2, 3))
    plain = np.array([[1, 0, 0], [0, 1, 1]])
    rows = [LabelDescriptor().fit(matrix).descriptors_ for matrix in (odd, plain)]
    assert_array_equal(*rows)
    context = ContextDescriptor(n_topics=2, n_iter=5, random_state=0).fit(plain)
    assert_array_equal(context.transform(odd), context.transform(plain))
    assert odd.nnz == 5, "the caller's matrix was changed"


@pytest.mark.parametrize(
    ("described", "matrix", "message"),
    [
        (LabelDescriptor(strength=0), DOCUMENTS, "`strength` of `LabelDescriptor` must .* above 0"),
        (ContextDescriptor("many"), DOCUMENTS, "`n_topics` .* at most 32767; got 'many'"),
        (ContextDescriptor(topic_prior=-1), DOCUMENTS, "`topic_prior` .* above 0; got -1"),
        (ContextDescriptor(max_documents=1), DOCUMENTS, "`max_documents` .* at least 2; got 1"),
        (ContextDescriptor(), np.zeros((3, 2)), "`ContextDescriptor` got no document with a label"),
        (LabelDescriptor(), np.zeros((3, 2)), "`LabelDescriptor` got no document with a label"),
        (LabelDescriptor(), np.array([[1, np.nan]]), "`LabelDescriptor` must hold only 0 and 1"),
    ],
)
def test_what_cannot_be_learned_from_is_named(described, matrix, message):
    with pytest.raises(InputError, match=message):
        described.fit(matrix)


# --- contexts -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def context():
    return ContextDescriptor(n_topics=3, n_iter=100, random_state=0).fit(blocks())


def plain_fold_in(labels, topics, prior):
    """Run the mean-field iteration of one document with loops, on gamma and phi alone."""
    n_topics = len(topics)
    gamma = [prior + len(labels) / n_topics] * n_topics
    for _ in range(100):
        phi = []
        for label in labels:
            row = [math.exp(digamma(gamma[k])) * topics[k][label] for k in range(n_topics)]
            phi.append([value / sum(row) for value in row])
        updated = [prior + sum(row[k] for row in phi) for k in range(n_topics)]
        change = max(abs(a - b) for a, b in zip(updated, gamma, strict=True))
        gamma = updated
        if change < 1e-6:
            break
    return [value / sum(gamma) for value in gamma]


@pytest.mark.parametrize("prior", [0.05, 1.0])
@pytest.mark.parametrize("block", [1, 40, 2**18])
@pytest.mark.parametrize("hard", [False, True])
def test_histograms_equal_the_plain_iteration(prior, block, hard, monkeypatch):
    monkeypatch.setattr(descriptors, "_BLOCK", block)
    generator = np.random.default_rng(1)
    topics = generator.dirichlet(np.full(8, 0.3), size=4) + 1e-4
    if hard:  # twins, a label that says nothing, and tiny likelihoods
        topics[:, 3] = topics[:, 2]
        topics[:, 4] = 0.2
        topics *= 1e-12
    documents = generator.random((7, 8)) < 0.4
    documents[3] = False
    context = with_topics(topics, prior)
    found = context.transform(documents)
    assert found.dtype == np.float32
    for row, document in enumerate(documents):
        expected = plain_fold_in(np.flatnonzero(document), topics, prior)
        assert_allclose(found[row], expected, rtol=1e-6)


def test_topics_are_learned_from_some_documents_and_describe_all():
    matrix = np.vstack([blocks(60), np.zeros((5, 15), dtype=bool)])
    plain = ContextDescriptor(n_topics=3, n_iter=50, random_state=0).fit(matrix)
    for enough in (60, None):
        same = clone(plain).set_params(max_documents=enough).fit(matrix)
        assert_array_equal(same.topics_, plain.topics_)
    few, again = (clone(plain).set_params(max_documents=30).fit(matrix) for _ in range(2))
    assert_array_equal(few.topics_, again.topics_)
    other = clone(plain).set_params(random_state=1, n_iter=1).fit(matrix)
    assert not any(np.array_equal(part.topics_, plain.topics_) for part in (few, other))
    assert few.transform(matrix).shape == (65, 3)
    assert few.transform(matrix[:0]).shape == (0, 3)


@pytest.mark.parametrize(
    ("n_iter", "max_visits", "expected"),
    [(500, None, 500), (500, 60 * 500, 500), (500, 60 * 300, 300), (500, 1, 100), (50, 1, 50)],
)
def test_sweeps_are_fewer_over_many_documents(n_iter, max_visits, expected):
    matrix = np.vstack([blocks(60), np.zeros((5, 15), dtype=bool)])
    asked = ContextDescriptor(n_topics=3, n_iter=n_iter, max_visits=max_visits, random_state=0)
    told = ContextDescriptor(n_topics=3, n_iter=expected, max_visits=None, random_state=0)
    assert_array_equal(asked.fit(matrix).topics_, told.fit(matrix).topics_)


def test_topics_of_three_blocks_are_recovered(context):
    mass = context.topics_.reshape(3, 3, 5).sum(axis=2)
    assert sorted(mass.argmax(axis=1)) == [0, 1, 2]
    assert mass.max(axis=1).min() > 0.99
    assert_allclose(context.topics_.sum(axis=1), 1.0)
    histograms = context.transform(blocks(30, seed=9))
    block_of_topic = mass.argmax(axis=1)
    assert_array_equal(block_of_topic[histograms.argmax(axis=1)], np.arange(30) % 3)
    assert histograms.max(axis=1).min() > 0.8


def test_hierarchical_process_finds_about_three_topics():
    context = ContextDescriptor(n_topics="hdp", n_iter=500, random_state=0).fit(blocks(150))
    assert context.n_topics_ in (3, 4)
    assert context.topics_.shape == (context.n_topics_, 15)
    capped = ContextDescriptor(n_topics="hdp", max_topics=2, n_iter=100, random_state=0)
    assert capped.fit(blocks(150)).n_topics_ == 2


def test_sampler_keeps_the_given_priors(monkeypatch):
    made = []
    plain = tomotopy.LDAModel

    def recorded(**options):
        made.append(plain(**options))
        return made[-1]

    monkeypatch.setattr(tomotopy, "LDAModel", recorded)
    options = {"document_prior": 0.25, "topic_prior": 0.5, "n_iter": 60, "random_state": 0}
    ContextDescriptor(n_topics=4, **options).fit(blocks(30))
    assert_array_equal(made[0].alpha, [0.25] * 4)
    assert made[0].eta == 0.5


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.frozensets(st.integers(0, 14), max_size=15), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_one_label_set_has_one_histogram_whatever_stands_beside_it(context, documents, shuffler):
    matrix = np.array([[label in d for label in range(15)] for d in documents])
    together = context.transform(matrix)
    assert together.dtype == np.float32
    assert (together > 0).all()
    assert_allclose(together.sum(axis=1), 1.0, rtol=1e-5)
    order = list(range(len(documents)))
    shuffler.shuffle(order)
    assert_array_equal(context.transform(matrix[order + order]), together[order + order])
    for row in range(len(documents)):
        assert_array_equal(context.transform(matrix[row : row + 1])[0], together[row])


@pytest.mark.parametrize("n_topics", [3, 5000])
@pytest.mark.parametrize("prior", [None, 1e-60])
def test_histograms_stay_positive_with_many_topics_and_tiny_priors(n_topics, prior):
    generator = np.random.default_rng(0)
    topics = generator.dirichlet(np.full(15, 0.5), size=n_topics) + 1e-9
    context = with_topics(topics, prior)
    histograms = context.transform(np.eye(15))
    assert np.isfinite(np.log(histograms)).all()
    assert_allclose(histograms.sum(axis=1, dtype=np.float64), 1.0, rtol=1e-4)


def test_saved_topics_are_taken_back(context):
    again = ContextDescriptor.from_state(*context.get_state())
    assert (again.n_topics_, again.n_features_in_) == (3, 15)
    assert again.get_params() == context.get_params()
    drawn = ContextDescriptor(2, n_iter=1, random_state=np.random.default_rng(0)).fit(DOCUMENTS)
    assert drawn.get_state()[0]["random_state"] is None, "a generator cannot be written down"
    assert_array_equal(again.transform(blocks(6)), context.transform(blocks(6)))


def test_transform_needs_fit_and_the_same_labels(context):
    with pytest.raises(NotFittedError, match="This ContextDescriptor is not fitted yet"):
        ContextDescriptor().transform(DOCUMENTS)
    with pytest.raises(InputError, match="have 6 labels but `ContextDescriptor` was"):
        context.transform(DOCUMENTS)
