"""The published method as a tagger; what both taggers keep to is in `tests/tagger`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import polyseme
from polyseme import AudioFeatures, LabelCorpus, PublishedTagger
from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.media import Extracted
from polyseme.metrics import example_map
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from toy_fits import fit_world


@pytest.fixture
def own_tagger(published_tagger):
    """A copy that a test may change."""
    return PublishedTagger.from_state(*published_tagger.get_state())


def tiny(tiny_embedding, **parameters):
    mapper = InstanceMapper(kind="kernel-ridge", gamma=1.0, penalty=0.01)
    return PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0, **parameters)


# ------------------------------------------------------------------ rankings


def test_the_default_mapper_solves_the_toy_world(world, trained_embedding):
    tagger = PublishedTagger(embedding=trained_embedding, random_state=1)
    fit_world(tagger, world)
    assert tagger.mapper_.kind == "nu-svr"
    truth = world.truth(tagger.classes_)
    scores = tagger.decision_function(world.X_test)
    assert example_map(truth, scores) > 0.95


@pytest.mark.parametrize("relatedness", ["nearest", "density"])
def test_scores_sum_to_one_and_ranks_fall(own_tagger, world, relatedness):
    tagger = own_tagger.set_params(relatedness=relatedness)
    tagger.remove_documents([])  # from now on
    scores = tagger.decision_function(world.X_test)
    assert_allclose(scores.sum(axis=1), 1.0)
    truth = world.truth(tagger.classes_)
    assert example_map(truth, scores) > 0.9

    labels, label_scores = tagger.rank(world.X_test, k=7)
    assert (np.diff(label_scores, axis=1) <= 0).all()
    best_label = labels[0, 0]
    column = list(tagger.classes_).index(best_label)
    assert scores[0].max() == scores[0, column]
    assert label_scores[0, 0] == scores[0, column]


@pytest.mark.parametrize("relatedness", ["nearest", "density"])
def test_without_known_documents_every_score_is_zero(own_tagger, world, relatedness):
    tagger = own_tagger.set_params(relatedness=relatedness)
    tagger.remove_documents(tagger.store_.ids)
    scores = tagger.decision_function(world.X_test)
    assert not scores.any()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("decision_function", {"tags": [["sea"]]}, r"^`tags` need the default .* features\.$"),
        ("rank", {"tags": [["sea"]]}, r"^`tags` need the default .* features\.$"),
        ("predict_proba", {}, r"needs the default tagger; .* no probabilities\.$"),
        ("predict", {"precision": 0.5}, r"needs the default tagger; .* no probabilities\.$"),
    ],
)
def test_missing_ways_to_rank_are_refused_in_one_sentence(
    published_tagger, world, method, options, message
):
    call = getattr(published_tagger, method)
    with pytest.raises(InputError, match=message):
        call(world.X_test[:1], **options)


@pytest.mark.parametrize(
    ("method", "argument", "message"),
    [
        ("thresholds", 0.5, r"needs the default tagger; .* no probabilities\.$"),
        ("add_labels", ["beach"], r"name needs the default tagger; .* add documents\.$"),
    ],
)
def test_missing_methods_are_refused_in_one_sentence(published_tagger, method, argument, message):
    call = getattr(published_tagger, method)
    with pytest.raises(InputError, match=message):
        call(argument)


# ------------------------------------------------------------------ leakage


def test_oov_labels_never_reach_the_concept_space(world, tiny_embedding):
    with_oov = tiny(tiny_embedding)
    fit_world(with_oov, world)
    stripped_documents = []
    for document in world.documents:
        labels = [label for label in document if label not in world.oov]
        stripped_documents.append(tuple(labels))
    without = tiny(tiny_embedding)
    without.fit(world.X, stripped_documents, world.label_sets, label_sets_only=True)

    learned_labels = set(with_oov.embedding_.classes_)
    assert learned_labels.isdisjoint(world.oov)
    points = with_oov.points(world.X_test)
    expected = without.points(world.X_test)
    assert np.array_equal(points, expected)


def test_shuffled_features_rank_no_better_than_popularity(world, published_tagger):
    order = np.random.default_rng(0).permutation(len(world.X))
    shuffled_tagger = PublishedTagger(
        embedding=published_tagger.embedding_,
        mapper=InstanceMapper(kind="kernel-ridge"),
        fit_embedding=False,
        random_state=0,
    )
    shuffled_tagger.fit(world.X[order], world.documents, world.label_sets, label_sets_only=True)
    truth = world.truth(published_tagger.classes_)
    assert shuffled_tagger.classes_ == published_tagger.classes_
    scores = published_tagger.decision_function(world.X_test)
    shuffled_scores = shuffled_tagger.decision_function(world.X_test)
    assert example_map(truth, shuffled_scores) < 0.5
    assert example_map(truth, scores) > 0.5


# ------------------------------------------------------------------ completion and explanation


def test_completion_leaves_out_what_was_given_and_sums_to_one(published_tagger, world):
    n_labels = len(published_tagger.classes_)
    labels, scores = published_tagger.complete(["sea", "sun"], k=n_labels)
    assert len(labels) == n_labels - 2
    assert "sea" not in labels
    assert "sun" not in labels
    assert scores.sum() == pytest.approx(1.0)
    assert (np.diff(scores) <= 0).all()


def test_completion_ignores_case_and_spaces_of_tags(published_tagger):
    labels, _ = published_tagger.complete(["  SEA "])
    expected, _ = published_tagger.complete(["sea"])
    assert labels.tolist() == expected.tolist()


def test_completion_of_oov_tags_alone_follows_the_documents_that_hold_them(published_tagger, world):
    labels, _ = published_tagger.complete(["owl"], k=3)
    assert set(labels) <= set(world.themes["forest"])


def test_explanations_are_the_nearest_known_concepts(published_tagger, world):
    x = world.X_test[0]
    concepts = published_tagger.explain(x, "apple", k=4)
    distances = [concept.distance for concept in concepts]
    assert distances == sorted(distances)
    nearest = concepts[0]
    assert {"phone", "desk"} & set(nearest.document)
    column = list(published_tagger.classes_).index("apple")
    points = published_tagger.points(x[None])
    label_distances = published_tagger.ranker_.index.distances(points)
    expected = float(label_distances[0, column])
    assert nearest.distance == pytest.approx(expected, rel=1e-4)

    store = published_tagger.store_
    for concept in concepts:
        assert "apple" in concept.document
        for name in concept.document_ids:
            row = store.ids.index(name)
            assert store.document(row) == concept.document


@pytest.mark.parametrize("form", [list, np.atleast_2d, sp.csr_matrix, sp.csr_array])
def test_an_instance_is_explained_in_every_form(published_tagger, world, form):
    x = world.X_test[0]
    (expected,) = published_tagger.explain(x, "apple", k=1)
    (concept,) = published_tagger.explain(form(x), "apple", k=1)
    assert concept.document == expected.document


def test_explanations_of_unknown_labels_and_of_several_instances_are_refused(
    published_tagger, world
):
    with pytest.raises(InputError, match=r"Unknown label 'appel'.*apple"):
        published_tagger.explain(world.X_test[0], "appel")
    with pytest.raises(InputError, match="takes one instance; got 3"):
        published_tagger.explain(world.X_test[:3], "apple")


# ------------------------------------------------------------------ updates


def test_added_documents_bring_their_labels_without_training(own_tagger, world):
    scores_before = own_tagger.decision_function(world.X_test)
    points_before = own_tagger.points(world.X_test)
    ids = own_tagger.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    assert own_tagger.classes_[-1] == "jellyfish"
    assert own_tagger.kinds_[-1] == "oov"
    points = own_tagger.points(world.X_test)
    assert np.array_equal(points, points_before)

    at_the_beach = np.array(world.themes_test) == "beach"
    labels, _ = own_tagger.rank(world.X_test[at_the_beach], k=8)
    suggested = (labels == "jellyfish").any(axis=1)
    assert suggested.all(), "two documents are enough to be suggested"

    own_tagger.remove_documents(ids)
    assert "jellyfish" not in own_tagger.classes_
    scores = own_tagger.decision_function(world.X_test)
    assert np.array_equal(scores, scores_before)


def test_a_label_without_documents_is_ranked_last_with_score_zero(own_tagger, world):
    store = own_tagger.store_
    names = [name for row, name in enumerate(store.ids) if "tram" in store.document(row)]
    own_tagger.remove_documents(names)
    n_labels = len(own_tagger.classes_)
    labels, scores = own_tagger.rank(world.X_test, k=n_labels)
    assert (labels[:, -1] == "tram").all()
    assert (scores[:, -1] == 0).all()


# ------------------------------------------------------------------ fitting


def test_a_fit_that_fails_leaves_the_tagger_as_it_was(own_tagger, world):
    before = own_tagger.decision_function(world.X_test)
    own_tagger.set_params(fit_embedding=False, embedding=own_tagger.embedding_)
    with pytest.raises(InputError, match="No instance carries a label of the label sets"):
        own_tagger.fit(
            world.X[:2],
            [["x"], ["y"]],
            world.label_sets,
            label_sets_only=True,
        )
    assert np.array_equal(own_tagger.decision_function(world.X_test), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"relatedness": "experts"}, "`relatedness` of `PublishedTagger`"),
        ({"bandwidth": -1.0}, "`bandwidth` of `PublishedTagger`"),
        ({"device": "nowhere"}, "`device` of `PublishedTagger`"),
        ({"mapper": InstanceMapper(kind="ridge")}, "`kind` of `InstanceMapper`"),
        ({"fit_embedding": False}, "needs a fitted `embedding`"),
        ({}, "`X` has 300 rows but there are 299 documents"),
    ],
)
def test_bad_input_is_named_before_any_training(parameters, message, world, monkeypatch):
    monkeypatch.setattr(ConceptEmbedding, "fit", lambda *_: pytest.fail("trained"))
    tagger = PublishedTagger(**parameters)
    with pytest.raises(InputError, match=message):
        tagger.fit(world.X, world.documents[:-1])


@pytest.mark.parametrize(
    ("device", "seed", "mapper_device"),
    [("cpu:0", None, "cpu:0"), (None, 7, "cpu")],
)
def test_the_parts_get_the_seed_and_the_device_of_the_tagger(
    world, tiny_embedding, monkeypatch, device, seed, mapper_device
):
    seeds = []
    devices = []
    fit_embedding = ConceptEmbedding.fit
    fit_mapper = InstanceMapper.fit

    def recorded_embedding(self, *data):
        seeds.append(self.random_state)
        return fit_embedding(self, *data)

    def recorded_mapper(self, *data):
        devices.append(self.device)
        return fit_mapper(self, *data)

    monkeypatch.setattr(ConceptEmbedding, "fit", recorded_embedding)
    monkeypatch.setattr(InstanceMapper, "fit", recorded_mapper)
    tagger = tiny(tiny_embedding, device=device)
    tagger.set_params(
        mapper__device="cpu",
        embedding__random_state=None,
        random_state=seed,
    )
    tagger.fit(world.X[:30], world.documents[:30])
    assert devices == [mapper_device]
    assert tagger.mapper_.device == "cpu"
    if seed is None:
        # The embedding draws its own seed, which its checkpoint remembers.
        assert seeds == [None]
    else:
        assert isinstance(seeds[0], int)


def test_instances_without_a_known_label_are_left_out_and_named(world, tiny_embedding):
    known_documents = world.documents[:50]
    known_X = world.X[:50]
    documents = [*known_documents, ("zeppelin",), ()]
    X = np.concatenate([known_X, np.full((2, 5), 9.0)])
    tagger = tiny(tiny_embedding)
    with pytest.warns(PolysemeWarning, match="instance:50"):
        tagger.fit(X, documents, world.label_sets, label_sets_only=True)
    assert tagger.dropped_ == ("instance:50", "instance:51")

    expected = tiny(tiny_embedding)
    expected.fit(known_X, known_documents, world.label_sets, label_sets_only=True)
    points = tagger.points(world.X_test)
    expected_points = expected.points(world.X_test)
    assert np.array_equal(points, expected_points)


def test_documents_of_both_lists_are_known_once(world, tiny_embedding):
    expected = tiny(tiny_embedding).fit(world.X, world.documents)
    tagger = tiny(tiny_embedding).fit(world.X, world.documents, world.documents)
    assert tagger.store_.ids == expected.store_.ids
    # The same seed gives the same bits.
    scores = tagger.decision_function(world.X_test)
    expected_scores = expected.decision_function(world.X_test)
    assert np.array_equal(scores, expected_scores)


def test_documents_keep_the_ids_of_their_corpus(world, tiny_embedding):
    n_documents = len(world.documents)
    ids = [f"item {row}" for row in range(n_documents)]
    corpus = LabelCorpus.from_documents(world.documents, ids=ids)
    tagger = tiny(tiny_embedding)
    tagger.fit(world.X, corpus, corpus)
    assert tagger.store_.ids == tuple(ids)


@pytest.mark.parametrize(("normalize", "n_labels"), [(False, 4), (True, 3)])
def test_spellings_stay_apart_when_asked(tiny_embedding, normalize, n_labels):
    documents = [("Apple", "phone"), ("apple", "pie")] * 20
    X = np.tile([[0.0], [1.0]], (20, 1))
    tagger = tiny(tiny_embedding)
    tagger.set_params(embedding__normalize_labels=normalize)
    tagger.fit(X, documents)
    assert len(tagger.classes_) == n_labels
    assert tagger.normalize_labels_ == normalize


def test_a_tagger_without_features_completes_but_does_not_rank(world, tiny_embedding):
    tagger = tiny(tiny_embedding).fit(None, world.label_sets)
    assert set(tagger.kinds_) == {"unseen"}
    labels, _ = tagger.complete(["sea"], k=3)
    assert len(labels) == 3
    with pytest.raises(InputError, match="fitted without features"):
        tagger.rank(world.X_test)


def test_a_tagger_that_is_not_fitted_says_so():
    tagger = PublishedTagger()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        tagger.rank(np.zeros((1, 2)))


# ------------------------------------------------------------------ parameters and saving


def test_parameters_reach_into_parts(tiny_embedding):
    tagger = clone(tiny(tiny_embedding, relatedness="density", bandwidth=2.0))
    parameters = tagger.get_params()
    assert parameters["embedding__n_components"] == 8
    tagger.set_params(mapper__penalty=0.5)
    assert tagger.mapper.penalty == 0.5


def test_the_default_preset_has_the_settings_of_the_paper():
    tagger = PublishedTagger.from_preset()
    assert tagger.mapper.C == 1.0
    assert tagger.mapper.gamma == 1.0
    assert tagger.mapper.scaling == "l2"
    assert tagger.mapper.nu is None
    assert tagger.embedding.training.optimizer == "sgd"


def test_a_preset_takes_other_parameters_and_unknown_ones_are_refused():
    tagger = PublishedTagger.from_preset("default", relatedness="density")
    assert tagger.relatedness == "density"
    assert tagger.mapper.C is None
    with pytest.raises(InputError, match="Unknown preset 'papper'; known: default, paper"):
        PublishedTagger.from_preset("papper")


@pytest.fixture
def clips():
    """Sounds as an extractor has read them: every second one is high and fast."""
    generator = np.random.default_rng(0)
    frames = []
    for number in range(20):
        noise = generator.normal(size=(9, 36))
        frames.append((number % 2 + noise).astype(np.float32))
    ids = tuple(map(str, range(20)))
    return Extracted("audio", AudioFeatures(n_words=4).preprocessing(), ids, frames)


def test_a_tagger_with_an_extractor_and_numpy_parameters_can_be_saved(
    tiny_embedding, clips, tmp_path
):
    extractor = AudioFeatures(n_words=4)
    documents = [["low", "slow"], ["high", "fast"]] * 10
    tagger = tiny(
        tiny_embedding,
        features=extractor,
        bandwidth=np.float32(0.5),
        relatedness="density",
    )
    tagger.embedding.set_params(
        n_components=np.int64(6),
        training__max_epochs=np.int64(2),
    )
    tagger.fit(clips, documents)
    assert tagger.n_features_in_ == 4
    assert tagger.features_.random_state is not None
    assert not hasattr(extractor, "n_features_out_"), "fit must not change its parameters"

    tagger.save(tmp_path / "model")
    loaded = polyseme.load(tmp_path / "model")
    scores = loaded.decision_function(clips)
    expected_scores = tagger.decision_function(clips)
    assert_array_equal(scores, expected_scores)
    explanation = loaded.explain(clips[:1], "slow", k=1)
    assert explanation == tagger.explain(clips[:1], "slow", k=1)
    assert loaded.embedding_.history_ == tagger.embedding_.history_
    labels, _ = loaded.complete(["slow"])
    expected_labels, _ = tagger.complete(["slow"])
    assert labels.tolist() == expected_labels.tolist()
