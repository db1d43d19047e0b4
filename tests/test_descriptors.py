"""Label and context descriptors, against plain loops and against topics known by construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import tomotopy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma
from sklearn.base import clone

from polyseme._validation import InputError, NotFittedError
from polyseme.published._topics import fold_in, posterior, sample_topics, some_documents
from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor

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


def plain_shared_use(documents, *, share, diagonal):
    """Compute tf-idf weights and the products of uses with nothing but loops."""
    n_documents, n_labels = documents.shape
    uses = [[0.0] * n_documents for _ in range(n_labels)]
    for label in range(n_labels):
        n_with = sum(int(documents[d, label]) for d in range(n_documents))
        for d in range(n_documents):
            if documents[d, label]:
                weight = 1.0 / sum(documents[d]) if share else 1.0
                uses[label][d] = weight * math.log(n_documents / n_with)
    table = np.zeros((n_labels, n_labels))
    for i in range(n_labels):
        for j in range(n_labels):
            if i != j or diagonal:
                table[i, j] = sum(a * b for a, b in zip(uses[i], uses[j], strict=True))
    return table


def plain_scaling(table, used, scaling, strength):
    """Scale row by row and column by column."""
    scaled = table.copy()
    if scaling == "max":
        return scaled / table.max()
    if scaling == "none":
        return scaled
    for row in scaled:
        length = math.sqrt(sum(value**2 for value in row))
        if length > 0:
            row /= length
    if scaling == "l2":
        return scaled
    for column in scaled.T:
        spread = np.std(column[used])
        column[used] = strength * (column[used] - np.mean(column[used])) / (spread or 1.0)
    return scaled


@pytest.mark.parametrize("scaling", ["l2+std", "l2", "max", "none"])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("term_frequency", ["binary", "share"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_label_descriptors_equal_the_plain_computation(scaling, diagonal, term_frequency, form):
    descriptor = LabelDescriptor(term_frequency, diagonal, scaling, strength=0.7)
    found = descriptor.fit(form(DOCUMENTS)).descriptors_
    table = plain_shared_use(DOCUMENTS, share=term_frequency == "share", diagonal=diagonal)
    expected = plain_scaling(table, DOCUMENTS.any(axis=0), scaling, 0.7)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert found.dtype == np.float32


def test_unused_labels_have_zero_rows_and_no_weight():
    descriptor = LabelDescriptor().fit(DOCUMENTS)
    assert not descriptor.descriptors_[5].any()
    assert descriptor.descriptors_[:4].any(axis=1).all()
    expected = [math.log(4 / n) for n in (3, 2, 1, 1, 4)]
    np.testing.assert_allclose(descriptor.idf_, [*expected, 0.0])
    assert descriptor.n_features_in_ == 6


def test_columns_have_the_asked_strength():
    columns = LabelDescriptor(strength=0.25).fit(blocks()).descriptors_
    np.testing.assert_allclose(columns.std(axis=0), 0.25, rtol=1e-5)
    np.testing.assert_allclose(columns.mean(axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize("scaling", ["l2+std", "l2", "max", "none"])
def test_labels_in_every_document_describe_nothing_and_give_no_nan(scaling):
    descriptors = LabelDescriptor(scaling=scaling).fit(np.ones((3, 2))).descriptors_
    np.testing.assert_array_equal(descriptors, np.zeros((2, 2)))


@pytest.mark.parametrize("kind", [int, bool])
def test_stored_zeros_and_repeats_are_no_labels(kind):
    data = np.array([1, 0, 1, 1], dtype=kind)
    odd = sp.csr_matrix((data, [0, 1, 2, 2], [0, 2, 4]), shape=(2, 3))
    plain = np.array([[1, 0, 0], [0, 0, 1]])
    labels = LabelDescriptor(term_frequency="share", scaling="none")
    odd_rows = clone(labels).fit(odd).descriptors_
    np.testing.assert_array_equal(odd_rows, clone(labels).fit(plain).descriptors_)
    context = ContextDescriptor(n_topics=2, n_iter=5, random_state=0).fit(plain)
    np.testing.assert_array_equal(context.transform(odd), context.transform(plain))
    assert odd.nnz == 4, "the caller's matrix was changed"


def test_saved_label_arrays_are_taken_back():
    fitted = LabelDescriptor().fit(DOCUMENTS)
    again = LabelDescriptor().restore(fitted.descriptors_.tolist(), fitted.idf_)
    np.testing.assert_array_equal(again.descriptors_, fitted.descriptors_)
    assert (again.n_features_in_, again.descriptors_.dtype) == (6, np.float32)


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (LabelDescriptor, {"term_frequency": "log"}, "`term_frequency` .* 'binary', 'share'"),
        (LabelDescriptor, {"scaling": "std"}, "`scaling` of `LabelDescriptor` must be one of"),
        (LabelDescriptor, {"strength": 0}, "`strength` of `LabelDescriptor` must .* above 0"),
        (ContextDescriptor, {"n_topics": 1}, "`n_topics` .* at least 2 and at most 32767; got 1"),
        (ContextDescriptor, {"n_topics": "many"}, "`n_topics` .* got 'many'"),
        (ContextDescriptor, {"document_prior": 0}, "`document_prior` .* above 0; got 0"),
        (ContextDescriptor, {"topic_prior": -1}, "`topic_prior` .* above 0; got -1"),
        (ContextDescriptor, {"n_iter": 0}, "`n_iter` .* at least 1; got 0"),
        (ContextDescriptor, {"max_topics": 1}, "`max_topics` .* at least 2; got 1"),
        (ContextDescriptor, {"max_documents": 1}, "`max_documents` .* at least 2; got 1"),
        (ContextDescriptor, {"max_visits": 0}, "`max_visits` .* at least 1; got 0"),
        (ContextDescriptor, {"random_state": -3}, "`random_state` must not be negative"),
    ],
)
def test_parameters_out_of_range_are_named(kind, parameters, message):
    with pytest.raises(InputError, match=message):
        kind(**parameters).fit(DOCUMENTS)


@pytest.mark.parametrize("kind", [LabelDescriptor, ContextDescriptor])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 2)), "got no document with a label; pass at least one"),
        (np.zeros((0, 2)), "got no document with a label"),
        (np.array([[1, 2]]), "must hold only 0 and 1"),
        (np.array([[1, np.nan]]), "must hold only 0 and 1"),
    ],
)
def test_documents_to_learn_from_must_be_labels(kind, matrix, message):
    with pytest.raises(InputError, match=f"`{kind.__name__}`.*{message}"):
        kind().fit(matrix)


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
def test_histograms_equal_the_plain_iteration(prior, block):
    generator = np.random.default_rng(1)
    topics = generator.dirichlet(np.full(8, 0.3), size=4) + 1e-4
    topics /= topics.sum(axis=1, keepdims=True)
    documents = generator.random((7, 8)) < 0.4
    documents[3] = False
    found = fold_in(sp.csr_matrix(documents), topics, prior, block=block)
    assert found.dtype == np.float32
    for row, document in enumerate(documents):
        expected = plain_fold_in(np.flatnonzero(document), topics, prior)
        np.testing.assert_allclose(found[row], expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_posteriors_equal_the_plain_iteration_on_hard_likelihoods(scale):
    generator = np.random.default_rng(2)
    topics = generator.dirichlet(np.full(9, 0.1), size=5) + 1e-9
    topics[:, 3] = topics[:, 2]  # twins
    topics[:, 4] = 0.2  # says nothing
    topics *= scale
    documents = np.array([[2, 3], [4, 4], [0, 8], [1, 4]])
    found = posterior(topics.T[documents], 0.1, 100, 1e-6)
    found /= found.sum(axis=1, keepdims=True)
    for row, document in enumerate(documents):
        np.testing.assert_allclose(found[row], plain_fold_in(document, topics, 0.1), rtol=1e-9)


def test_topics_are_learned_from_some_documents_and_describe_all():
    matrix = np.vstack([blocks(60), np.zeros((5, 15), dtype=blocks(1).dtype)])
    plain = ContextDescriptor(n_topics=3, n_iter=50, random_state=0).fit(matrix)
    enough = clone(plain).set_params(max_documents=60).fit(matrix)
    np.testing.assert_array_equal(enough.topics_, plain.topics_)
    unbounded = clone(plain).set_params(max_documents=None).fit(matrix)
    np.testing.assert_array_equal(unbounded.topics_, plain.topics_)
    few = clone(plain).set_params(max_documents=30)
    np.testing.assert_array_equal(few.fit(matrix).topics_, clone(few).fit(matrix).topics_)
    assert not np.array_equal(few.topics_, plain.topics_)
    assert few.topics_.shape == plain.topics_.shape and (few.topics_ > 0).all()
    assert few.transform(matrix).shape == (65, 3)


@pytest.mark.parametrize(
    ("n_iter", "max_visits", "expected"),
    [(500, None, 500), (500, 60 * 500, 500), (500, 60 * 300, 300), (500, 1, 100), (50, 1, 50)],
)
def test_sweeps_are_fewer_over_many_documents(n_iter, max_visits, expected):
    matrix = np.vstack([blocks(60), np.zeros((5, 15), dtype=blocks(1).dtype)])
    asked = ContextDescriptor(n_topics=3, n_iter=n_iter, max_visits=max_visits, random_state=0)
    told = ContextDescriptor(n_topics=3, n_iter=expected, max_visits=None, random_state=0)
    np.testing.assert_array_equal(asked.fit(matrix).topics_, told.fit(matrix).topics_)
    assert asked._n_sweeps(sp.csr_matrix(matrix)) == expected


def test_documents_are_drawn_among_those_with_labels_in_their_order():
    documents = sp.csr_matrix(np.eye(8, dtype=bool)[[0, 1, 2, 3, 4, 5, 6, 7]])
    documents = sp.csr_matrix(sp.vstack([documents, sp.csr_matrix((4, 8), dtype=bool)]))
    drawn = some_documents(documents, 5, np.random.default_rng(0))
    assert np.diff(drawn.indptr).tolist() == [1] * 5
    assert (np.diff(drawn.indices) > 0).all()
    assert some_documents(documents, 8, np.random.default_rng(0)) is documents


def test_topics_of_three_blocks_are_recovered(context):
    mass = context.topics_.reshape(3, 3, 5).sum(axis=2)
    assert sorted(mass.argmax(axis=1)) == [0, 1, 2]
    assert mass.max(axis=1).min() > 0.99
    np.testing.assert_allclose(context.topics_.sum(axis=1), 1.0)
    histograms = context.transform(blocks(30, seed=9))
    block_of_topic = mass.argmax(axis=1)
    np.testing.assert_array_equal(block_of_topic[histograms.argmax(axis=1)], np.arange(30) % 3)
    assert histograms.max(axis=1).min() > 0.8


def test_sampled_counts_are_the_labels_uses():
    matrix = blocks(30)
    counts = sample_topics(
        sp.csr_matrix(np.pad(matrix, ((0, 3), (0, 1)))),
        5,
        n_topics=4,
        document_prior=0.25,
        topic_prior=0.01,
        n_iter=10,
    )
    np.testing.assert_allclose(counts.sum(axis=0), [*matrix.sum(axis=0), 0], atol=1e-4)
    np.testing.assert_allclose(counts, np.rint(counts), atol=1e-4)


def test_sampler_keeps_the_given_priors(monkeypatch):
    made = []

    def record(kind):
        def make(**options):
            made.append(kind(**options))
            return made[-1]

        return make

    monkeypatch.setattr(tomotopy, "LDAModel", record(tomotopy.LDAModel))
    options = {"document_prior": 0.25, "topic_prior": 0.5, "n_iter": 60}
    ContextDescriptor(n_topics=4, random_state=0, **options).fit(blocks(30))
    np.testing.assert_array_equal(made[0].alpha, [0.25] * 4)
    assert made[0].eta == 0.5


def test_hierarchical_process_finds_about_three_topics():
    context = ContextDescriptor(n_topics="hdp", n_iter=500, random_state=0).fit(blocks(150))
    assert context.n_topics_ in (3, 4)
    assert context.topics_.shape == (context.n_topics_, 15)
    capped = ContextDescriptor(n_topics="hdp", max_topics=2, n_iter=100, random_state=0)
    assert capped.fit(blocks(150)).n_topics_ == 2


def test_same_seed_gives_the_same_topics(context):
    again = clone(context).fit(sp.csr_matrix(blocks()))
    np.testing.assert_array_equal(again.topics_, context.topics_)
    other = clone(context).set_params(random_state=1, n_iter=1).fit(blocks())
    assert not np.array_equal(other.topics_, context.topics_)


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
    np.testing.assert_allclose(together.sum(axis=1), 1.0, rtol=1e-5)
    order = list(range(len(documents)))
    shuffler.shuffle(order)
    np.testing.assert_array_equal(context.transform(matrix[order + order]), together[order + order])
    for row in range(len(documents)):
        np.testing.assert_array_equal(context.transform(matrix[row : row + 1])[0], together[row])


def test_unsorted_column_indices_give_the_same_histogram(context):
    backwards = sp.csr_matrix(([True] * 3, [9, 4, 1], [0, 3]), shape=(1, 15))
    forwards = sp.csr_matrix(([True] * 3, [1, 4, 9], [0, 3]), shape=(1, 15))
    np.testing.assert_array_equal(context.transform(backwards), context.transform(forwards))


def test_documents_without_labels_are_uniform_even_alone(context):
    np.testing.assert_allclose(context.transform(np.zeros((2, 15))), 1 / 3)
    assert context.transform(np.zeros((0, 15))).shape == (0, 3)


@pytest.mark.parametrize("n_topics", [3, 5000])
@pytest.mark.parametrize("prior", [None, 1e-60])
def test_histograms_stay_positive_with_many_topics_and_tiny_priors(n_topics, prior):
    generator = np.random.default_rng(0)
    context = ContextDescriptor(document_prior=prior)
    context.restore(generator.dirichlet(np.full(15, 0.5), size=n_topics) + 1e-9)
    histograms = context.transform(np.eye(15))
    assert np.isfinite(np.log(histograms)).all()
    np.testing.assert_allclose(histograms.sum(axis=1, dtype=np.float64), 1.0, rtol=1e-4)


def test_saved_topics_are_taken_back(context):
    again = ContextDescriptor().restore(context.topics_)
    assert (again.n_topics_, again.n_features_in_) == (3, 15)
    np.testing.assert_array_equal(again.transform(blocks(6)), context.transform(blocks(6)))


def test_transform_needs_fit_and_the_same_labels(context):
    with pytest.raises(NotFittedError, match="This ContextDescriptor is not fitted yet"):
        ContextDescriptor().transform(DOCUMENTS)
    with pytest.raises(InputError, match="have 6 labels but `ContextDescriptor` was"):
        context.transform(DOCUMENTS)
