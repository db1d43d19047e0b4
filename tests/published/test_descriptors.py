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

from polyseme.base.validation import InputError, NotFittedError
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
        first_label = (row % n_blocks) * n_labels
        order = generator.permutation(n_labels)
        matrix[row, first_label + order[:3]] = True
    return matrix


# --- labels ---------------------------------------------------------------------------------


def plain_descriptors(documents, strength):
    """Compute tf-idf weights, products of uses and their scaling, label by label."""
    n_documents, n_labels = documents.shape
    uses = np.zeros((n_labels, n_documents))
    for label in range(n_labels):
        rows = np.flatnonzero(documents[:, label])
        if len(rows):
            uses[label, rows] = math.log(n_documents / len(rows))

    descriptors = uses @ uses.T
    for row in descriptors:
        length = np.linalg.norm(row)
        row /= length or 1.0

    used = documents.any(axis=0)
    for column in descriptors.T:
        mean = np.mean(column[used])
        spread = np.std(column[used])
        column[used] = strength * (column[used] - mean) / (spread or 1.0)
    return descriptors


@pytest.fixture
def sparse_from_five(monkeypatch):
    """Describe five labels or more by sparse rows, however many pairs meet."""
    monkeypatch.setattr(descriptors, "_MANY_LABELS", 5)
    monkeypatch.setattr(descriptors, "_FEW_PAIRS", 1.0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("documents", [DOCUMENTS, np.ones((3, 2), dtype=bool)], ids=["some", "all"])
def test_label_descriptors_equal_the_plain_computation(form, documents):
    descriptor = LabelDescriptor(strength=0.7)
    descriptor.fit(form(documents))
    assert descriptor.descriptors_.dtype == np.float32
    expected = plain_descriptors(documents, 0.7)
    assert_allclose(descriptor.descriptors_, expected, atol=1e-6)
    counts = documents.sum(axis=0)
    expected_idf = [math.log(len(documents) / n) if n else 0.0 for n in counts]
    assert_allclose(descriptor.idf_, expected_idf)
    assert descriptor.n_features_in_ == len(counts)


def test_sparse_descriptors_equal_the_plain_computation(sparse_from_five):
    without_documents = np.zeros((120, 2), dtype=bool)
    matrix = np.hstack([blocks(), without_documents])
    sparse = LabelDescriptor().fit(matrix).descriptors_
    assert isinstance(sparse, CentredRows)
    assert sparse.shape == (17, 17)
    descriptors = sparse.toarray()
    expected = plain_descriptors(matrix, 0.3)
    largest = np.abs(expected).max()
    assert_allclose(descriptors, expected, atol=2e-6 * largest)
    assert not descriptors[-2:].any(), "labels without a document"


def test_sparse_columns_that_hardly_vary_are_not_blown_up(sparse_from_five):
    single_labels = np.tile(np.eye(12, dtype=bool), (5, 1))
    all_labels = np.ones((1, 12), dtype=bool)
    matrix = np.vstack([single_labels, all_labels])
    sparse = LabelDescriptor().fit(matrix).descriptors_
    assert np.abs(sparse.toarray()).max() < 10


def with_topics(topics, prior):
    """A context descriptor with given topics, as if it had learned them."""
    config = ContextDescriptor(document_prior=prior).get_params()
    return ContextDescriptor.from_state(config, {"topics": topics})


@pytest.mark.parametrize("sparse", [True, False])
def test_label_descriptors_are_restored_from_their_state(sparse, request):
    if sparse:
        request.getfixturevalue("sparse_from_five")
    fitted = LabelDescriptor(strength=np.float64(0.5))
    fitted.fit(blocks())
    restored = LabelDescriptor.from_state(*fitted.get_state())
    assert isinstance(restored.descriptors_, CentredRows) == sparse
    if sparse:
        expected = fitted.descriptors_.toarray()
        assert_array_equal(restored.descriptors_.toarray(), expected)
    else:
        assert_array_equal(restored.descriptors_, fitted.descriptors_)
    assert_array_equal(restored.idf_, fitted.idf_)
    assert restored.get_params() == fitted.get_params()
    assert restored.n_features_in_ == 15


@pytest.mark.parametrize("kind", [int, bool])
def test_stored_zeros_repeats_and_order_are_no_matter(kind):
    data = np.array([1, 0, 1, 1, 1], dtype=kind)
    odd = sp.csr_matrix((data, [0, 1, 2, 2, 1], [0, 2, 5]), shape=(2, 3))
    plain = np.array([[1, 0, 0], [0, 1, 1]])
    descriptors = LabelDescriptor().fit(odd).descriptors_
    expected = LabelDescriptor().fit(plain).descriptors_
    assert_array_equal(descriptors, expected)
    context = ContextDescriptor(n_topics=2, n_iter=5, random_state=0)
    context.fit(plain)
    histograms = context.transform(odd)
    assert_array_equal(histograms, context.transform(plain))
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
    gamma = np.full(n_topics, prior + len(labels) / n_topics)
    for _ in range(100):
        updated = np.full(n_topics, prior)
        for label in labels:
            phi = np.exp(digamma(gamma)) * topics[:, label]
            updated += phi / phi.sum()
        change = np.abs(updated - gamma).max()
        gamma = updated
        if change < 1e-6:
            break
    return gamma / gamma.sum()


@pytest.mark.parametrize("prior", [0.05, 1.0])
@pytest.mark.parametrize("block", [1, 40, 2**18])
@pytest.mark.parametrize("hard", [False, True])
def test_histograms_equal_the_plain_iteration(prior, block, hard, monkeypatch):
    monkeypatch.setattr(descriptors, "_BLOCK_NUMBERS", block)
    generator = np.random.default_rng(1)
    topics = generator.dirichlet(np.full(8, 0.3), size=4) + 1e-4
    if hard:  # twins, a label that says nothing, and tiny likelihoods
        topics[:, 3] = topics[:, 2]
        topics[:, 4] = 0.2
        topics *= 1e-12
    documents = generator.random((7, 8)) < 0.4
    documents[3] = False
    context = with_topics(topics, prior)
    histograms = context.transform(documents)
    assert histograms.dtype == np.float32
    for document, histogram in zip(documents, histograms, strict=True):
        labels = np.flatnonzero(document)
        expected = plain_fold_in(labels, topics, prior)
        assert_allclose(histogram, expected, rtol=1e-6)


@pytest.fixture(scope="module")
def with_empty_documents():
    """Make 60 documents with labels and five without."""
    return np.vstack([blocks(60), np.zeros((5, 15), dtype=bool)])


def fit_context(matrix, **parameters):
    settings = {"n_topics": 3, "n_iter": 50, "random_state": 0} | parameters
    return ContextDescriptor(**settings).fit(matrix)


@pytest.mark.parametrize("max_documents", [60, None])
def test_a_bound_above_the_number_of_documents_changes_no_topic(
    with_empty_documents, max_documents
):
    plain = fit_context(with_empty_documents)
    bounded = fit_context(with_empty_documents, max_documents=max_documents)
    assert_array_equal(bounded.topics_, plain.topics_)


def test_topics_learned_from_some_documents_describe_all(with_empty_documents):
    sampled = fit_context(with_empty_documents, max_documents=30)
    histograms = sampled.transform(with_empty_documents)
    assert histograms.shape == (65, 3)
    no_histograms = sampled.transform(with_empty_documents[:0])
    assert no_histograms.shape == (0, 3)


def test_topics_depend_on_the_sample_and_the_seed_alone(with_empty_documents):
    plain = fit_context(with_empty_documents)
    sampled = fit_context(with_empty_documents, max_documents=30)
    repeated = fit_context(with_empty_documents, max_documents=30)
    assert_array_equal(sampled.topics_, repeated.topics_)
    assert not np.array_equal(sampled.topics_, plain.topics_)
    of_another_seed = fit_context(with_empty_documents, random_state=1, n_iter=1)
    assert not np.array_equal(of_another_seed.topics_, plain.topics_)


@pytest.mark.parametrize(
    ("n_iter", "max_visits", "expected"),
    [(500, None, 500), (500, 60 * 500, 500), (500, 60 * 300, 300), (500, 1, 100), (50, 1, 50)],
)
def test_sweeps_are_fewer_over_many_documents(with_empty_documents, n_iter, max_visits, expected):
    bounded = fit_context(with_empty_documents, n_iter=n_iter, max_visits=max_visits)
    unbounded = fit_context(with_empty_documents, n_iter=expected, max_visits=None)
    assert_array_equal(bounded.topics_, unbounded.topics_)


def test_topics_of_three_blocks_are_recovered(context):
    mass = context.topics_.reshape(3, 3, 5).sum(axis=2)
    block_of_topic = mass.argmax(axis=1)
    assert sorted(block_of_topic) == [0, 1, 2]
    assert mass.max(axis=1).min() > 0.99
    assert_allclose(context.topics_.sum(axis=1), 1.0)

    histograms = context.transform(blocks(30, seed=9))
    block_of_document = block_of_topic[histograms.argmax(axis=1)]
    assert_array_equal(block_of_document, np.arange(30) % 3)
    assert histograms.max(axis=1).min() > 0.8


def test_hierarchical_process_finds_about_three_topics():
    context = ContextDescriptor(n_topics="hdp", n_iter=500, random_state=0)
    context.fit(blocks(150))
    assert context.n_topics_ in (3, 4)
    assert context.topics_.shape == (context.n_topics_, 15)


def test_hierarchical_process_keeps_to_the_most_topics():
    context = ContextDescriptor(n_topics="hdp", max_topics=2, n_iter=100, random_state=0)
    context.fit(blocks(150))
    assert context.n_topics_ == 2


def test_sampler_keeps_the_given_priors(monkeypatch):
    models = []
    plain = tomotopy.LDAModel

    def record(**options):
        model = plain(**options)
        models.append(model)
        return model

    monkeypatch.setattr(tomotopy, "LDAModel", record)
    context = ContextDescriptor(
        n_topics=4,
        document_prior=0.25,
        topic_prior=0.5,
        n_iter=60,
        random_state=0,
    )
    context.fit(blocks(30))
    (model,) = models
    assert_array_equal(model.alpha, [0.25] * 4)
    assert model.eta == 0.5


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.frozensets(st.integers(0, 14), max_size=15), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_one_label_set_has_one_histogram_in_any_company(context, documents, shuffler):
    matrix = np.zeros((len(documents), 15), dtype=bool)
    for row, labels in enumerate(documents):
        matrix[row, list(labels)] = True
    histograms = context.transform(matrix)
    assert histograms.dtype == np.float32
    assert (histograms > 0).all()
    assert_allclose(histograms.sum(axis=1), 1.0, rtol=1e-5)

    order = 2 * list(range(len(documents)))
    shuffler.shuffle(order)
    shuffled = context.transform(matrix[order])
    assert_array_equal(shuffled, histograms[order])
    for row, histogram in enumerate(histograms):
        (alone,) = context.transform(matrix[[row]])
        assert_array_equal(alone, histogram)


@pytest.mark.parametrize("n_topics", [3, 5000])
@pytest.mark.parametrize("prior", [None, 1e-60])
def test_histograms_stay_positive_with_many_topics_and_tiny_priors(n_topics, prior):
    generator = np.random.default_rng(0)
    topics = generator.dirichlet(np.full(15, 0.5), size=n_topics) + 1e-9
    context = with_topics(topics, prior)
    histograms = context.transform(np.eye(15))
    assert np.isfinite(np.log(histograms)).all()
    sums = histograms.sum(axis=1, dtype=np.float64)
    assert_allclose(sums, 1.0, rtol=1e-4)


def test_topics_are_restored_from_their_state(context):
    restored = ContextDescriptor.from_state(*context.get_state())
    assert restored.n_topics_ == 3
    assert restored.n_features_in_ == 15
    assert restored.get_params() == context.get_params()
    histograms = restored.transform(blocks(6))
    assert_array_equal(histograms, context.transform(blocks(6)))


def test_a_generator_is_not_part_of_the_state():
    generator = np.random.default_rng(0)
    context = ContextDescriptor(2, n_iter=1, random_state=generator)
    context.fit(DOCUMENTS)
    config, _ = context.get_state()
    assert config["random_state"] is None


def test_transform_needs_fit_and_the_same_labels(context):
    with pytest.raises(NotFittedError, match="This ContextDescriptor is not fitted yet"):
        ContextDescriptor().transform(DOCUMENTS)
    with pytest.raises(InputError, match="have 6 labels but `ContextDescriptor` was"):
        context.transform(DOCUMENTS)
