"""The published method as a tagger; what both taggers keep to is in `test_tagger`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import polyseme
from polyseme import AudioFeatures, LabelCorpus, PublishedTagger
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.features import Extracted
from polyseme.metrics import example_map
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper


@pytest.fixture
def own_tagger(published_tagger):
    """A copy that a test may change."""
    return PublishedTagger.from_state(*published_tagger.get_state())


def tiny(tiny_embedding, **parameters):
    mapper = InstanceMapper(kind="kernel-ridge", gamma=1.0, penalty=0.01)
    return PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0, **parameters)


# ------------------------------------------------------------------ rankings


def test_default_mapper_solves_the_world_too(world, trained_embedding):
    tagger = PublishedTagger(embedding=trained_embedding, random_state=1)
    tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert tagger.mapper_.kind == "nu-svr"
    assert example_map(world.truth(tagger.classes_), tagger.decision_function(world.X_test)) > 0.95


@pytest.mark.parametrize("relatedness", ["nearest", "density"])
def test_scores_sum_to_one_and_ranks_fall(own_tagger, world, relatedness):
    tagger = own_tagger.set_params(relatedness=relatedness)
    tagger.remove_documents([])  # from now on
    scores = tagger.decision_function(world.X_test)
    assert_allclose(scores.sum(axis=1), 1.0)
    assert example_map(world.truth(tagger.classes_), scores) > 0.9
    labels, ranked = tagger.rank(world.X_test, k=7)
    assert (np.diff(ranked, axis=1) <= 0).all()
    column = list(tagger.classes_).index(labels[0, 0])
    assert scores[0, column] == ranked[0, 0] == scores[0].max()
    tagger.remove_documents(tagger.store_.ids)
    assert not tagger.decision_function(world.X_test).any()


def test_what_the_published_method_has_not_is_said_in_one_sentence(published_tagger, world):
    X = world.X_test[:1]
    for name, given, options, message in (
        ("decision_function", X, {"tags": [["sea"]]}, r"^`tags` need the default .* features\.$"),
        ("rank", X, {"tags": [["sea"]]}, r"^`tags` need the default .* features\.$"),
        ("predict_proba", X, {}, r"needs the default tagger; .* no probabilities\.$"),
        ("predict", X, {"precision": 0.5}, r"needs the default tagger; .* no probabilities\.$"),
        ("thresholds", 0.5, {}, r"needs the default tagger; .* no probabilities\.$"),
        ("add_labels", ["beach"], {}, r"name needs the default tagger; .* add documents\.$"),
    ):
        with pytest.raises(InputError, match=message):
            getattr(published_tagger, name)(given, **options)


# ------------------------------------------------------------------ leakage


def test_oov_labels_never_reach_the_concept_space(world, tiny_embedding):
    with_oov = tiny(tiny_embedding).fit(
        world.X, world.documents, world.label_sets, label_sets_only=True
    )
    stripped = [tuple(t for t in d if t not in world.oov) for d in world.documents]
    without = tiny(tiny_embedding).fit(world.X, stripped, world.label_sets, label_sets_only=True)
    assert not set(world.oov) & set(with_oov.embedding_.classes_)
    assert np.array_equal(with_oov.points(world.X_test), without.points(world.X_test))


def test_shuffled_features_rank_no_better_than_popularity(world, published_tagger):
    order = np.random.default_rng(0).permutation(len(world.X))
    tagger = PublishedTagger(
        embedding=published_tagger.embedding_,
        mapper=InstanceMapper(kind="kernel-ridge"),
        fit_embedding=False,
        random_state=0,
    ).fit(world.X[order], world.documents, world.label_sets, label_sets_only=True)
    truth = world.truth(tagger.classes_)
    honest, shuffled = (
        example_map(truth, one.decision_function(world.X_test))
        for one in (published_tagger, tagger)
    )
    assert shuffled < 0.5 < honest


# ------------------------------------------------------------------ completion and explanation


def test_completion_leaves_out_what_was_given_and_sums_to_one(published_tagger, world):
    n_labels = len(published_tagger.classes_)
    labels, scores = published_tagger.complete(["sea", "sun"], k=n_labels)
    assert len(labels) == n_labels - 2
    assert not {"sea", "sun"} & set(labels)
    assert scores.sum() == pytest.approx(1.0)
    assert (np.diff(scores) <= 0).all()
    spelled, plain = (published_tagger.complete([tag])[0].tolist() for tag in ("  SEA ", "sea"))
    assert spelled == plain
    # Oov tags alone are where they are known.
    assert set(published_tagger.complete(["owl"], k=3)[0]) <= set(world.themes["forest"])


def test_explanations_are_the_nearest_known_concepts(published_tagger, world):
    x = world.X_test[0]
    concepts = published_tagger.explain(x, "apple", k=4)
    assert [one.distance for one in concepts] == sorted(one.distance for one in concepts)
    assert all("apple" in one.document for one in concepts)
    assert {"phone", "desk"} & set(concepts[0].document)
    column = list(published_tagger.classes_).index("apple")
    nearest = published_tagger.ranker_.index.distances(published_tagger.points(x[None]))[0, column]
    assert concepts[0].distance == pytest.approx(float(nearest), rel=1e-4)
    store = published_tagger.store_
    for one in concepts:
        for name in one.document_ids:
            assert store.document(store.ids.index(name)) == one.document
    for form in (x.tolist(), x[None], sp.csr_matrix(x[None]), sp.csr_array(x[None])):
        (alone,) = published_tagger.explain(form, "apple", k=1)
        assert alone.document == concepts[0].document
    with pytest.raises(InputError, match=r"Unknown label 'appel'.*apple"):
        published_tagger.explain(world.X_test[0], "appel")
    with pytest.raises(InputError, match="takes one instance; got 3"):
        published_tagger.explain(world.X_test[:3], "apple")


# ------------------------------------------------------------------ updates


def test_documents_come_and_go_without_training(own_tagger, world):
    before = own_tagger.decision_function(world.X_test)
    points = own_tagger.points(world.X_test)
    ids = own_tagger.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    assert own_tagger.classes_[-1] == "jellyfish"
    assert own_tagger.kinds_[-1] == "oov"
    assert np.array_equal(own_tagger.points(world.X_test), points)
    beach = np.array([theme == "beach" for theme in world.themes_test])
    ranked, _ = own_tagger.rank(world.X_test[beach], k=8)
    assert (ranked == "jellyfish").any(axis=1).all(), "two documents are enough to be suggested"
    own_tagger.remove_documents(ids)
    assert "jellyfish" not in own_tagger.classes_
    assert np.array_equal(own_tagger.decision_function(world.X_test), before)
    store = own_tagger.store_
    rows = enumerate(store.ids)
    own_tagger.remove_documents([name for row, name in rows if "tram" in store.document(row)])
    labels, scores = own_tagger.rank(world.X_test, k=len(own_tagger.classes_))
    assert (labels[:, -1] == "tram").all()
    assert (scores[:, -1] == 0).all()


# ------------------------------------------------------------------ fitting


def test_a_fit_that_fails_leaves_the_tagger_as_it_was(own_tagger, world):
    before = own_tagger.decision_function(world.X_test)
    own_tagger.set_params(fit_embedding=False, embedding=own_tagger.embedding_)
    with pytest.raises(InputError, match="No instance carries a label of the label sets"):
        own_tagger.fit(world.X[:2], [["x"], ["y"]], world.label_sets, label_sets_only=True)
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
    with pytest.raises(InputError, match=message):
        PublishedTagger(**parameters).fit(world.X, world.documents[:-1])


def test_seeds_and_devices_are_handed_to_parts(world, tiny_embedding, monkeypatch):
    handed = []
    for kind, name in ((InstanceMapper, "device"), (ConceptEmbedding, "random_state")):

        def fit(self, *data, learned=kind.fit, name=name):
            handed.append(getattr(self, name))
            return learned(self, *data)

        monkeypatch.setattr(kind, "fit", fit)
    for device, seed in (("cpu:0", None), (None, 7)):
        tagger = tiny(tiny_embedding, device=device).set_params(mapper__device="cpu")
        tagger.set_params(embedding__random_state=None, random_state=seed)
        tagger.fit(world.X[:30], world.documents[:30])
    # Without any seed the embedding draws its own, which its checkpoint remembers.
    assert handed[:2] == [None, "cpu:0"]
    assert isinstance(handed[2], int)
    assert handed[3] == "cpu"
    assert tagger.mapper_.device == "cpu"


def test_instances_without_a_known_label_are_left_out_and_named(world, tiny_embedding):
    documents = [*world.documents[:50], ("zeppelin",), ()]
    X = np.concatenate([world.X[:50], [[9.0] * 5] * 2])
    with pytest.warns(PolysemeWarning, match="instance:50"):
        tagger = tiny(tiny_embedding).fit(X, documents, world.label_sets, label_sets_only=True)
    assert tagger.dropped_ == ("instance:50", "instance:51")
    clean = tiny(tiny_embedding).fit(
        world.X[:50], world.documents[:50], world.label_sets, label_sets_only=True
    )
    assert np.array_equal(tagger.points(world.X_test), clean.points(world.X_test))


def test_documents_of_both_lists_are_known_once(world, tiny_embedding):
    once = tiny(tiny_embedding).fit(world.X, world.documents)
    again = tiny(tiny_embedding).fit(world.X, world.documents, world.documents)
    assert again.store_.ids == once.store_.ids
    # The same seed gives the same bits.
    assert np.array_equal(*(t.decision_function(world.X_test) for t in (once, again)))
    ids = [f"item {i}" for i in range(len(world.documents))]
    corpus = LabelCorpus.from_documents(world.documents, ids=ids)
    assert tiny(tiny_embedding).fit(world.X, corpus, corpus).store_.ids == tuple(ids)


def test_spellings_stay_apart_when_asked(tiny_embedding):
    documents = [("Apple", "phone"), ("apple", "pie")] * 20
    X = np.tile([[0.0], [1.0]], (20, 1))
    for normalize, n_labels in ((False, 4), (True, 3)):
        tagger = tiny(tiny_embedding).set_params(embedding__normalize_labels=normalize)
        assert len(tagger.fit(X, documents).classes_) == n_labels
        assert tagger.normalize_labels_ == normalize


def test_a_tagger_without_features_completes_but_does_not_rank(world, tiny_embedding):
    tagger = tiny(tiny_embedding).fit(None, world.label_sets)
    assert set(tagger.kinds_) == {"unseen"}
    assert len(tagger.complete(["sea"], k=3)[0]) == 3
    with pytest.raises(InputError, match="fitted without features"):
        tagger.rank(world.X_test)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PublishedTagger().rank(np.zeros((1, 2)))


# ------------------------------------------------------------------ parameters and saving


def test_parameters_reach_into_parts_and_presets_have_names(tiny_embedding):
    tagger = clone(tiny(tiny_embedding, relatedness="density", bandwidth=2.0))
    assert tagger.get_params()["embedding__n_components"] == 8
    assert tagger.set_params(mapper__penalty=0.5).mapper.penalty == 0.5
    paper = PublishedTagger.from_preset()
    assert (paper.mapper.C, paper.mapper.gamma, paper.mapper.scaling) == (1.0, 1.0, "l2")
    assert paper.mapper.nu is None
    assert paper.embedding.training.optimizer == "sgd"
    other = PublishedTagger.from_preset("default", relatedness="density")
    assert (other.relatedness, other.mapper.C) == ("density", None)
    with pytest.raises(InputError, match="Unknown preset 'papper'; known: default, paper"):
        PublishedTagger.from_preset("papper")


def test_numbers_of_a_grid_search_and_an_extractor_can_be_saved(tiny_embedding, tmp_path):
    generator = np.random.default_rng(0)
    raw = [(number % 2 + generator.normal(size=(9, 36))).astype(np.float32) for number in range(20)]
    given = AudioFeatures(n_words=4)
    items = Extracted("audio", given.preprocessing(), tuple(map(str, range(20))), raw)
    documents = [["low", "slow"] if number % 2 == 0 else ["high", "fast"] for number in range(20)]
    tagger = tiny(tiny_embedding, features=given, bandwidth=np.float32(0.5), relatedness="density")
    tagger.embedding.set_params(n_components=np.int64(6), training__max_epochs=np.int64(2))
    tagger.fit(items, documents)
    assert tagger.n_features_in_ == 4
    assert tagger.features_.random_state is not None
    assert not hasattr(given, "n_features_out_"), "fit must leave the given extractor alone"
    tagger.save(tmp_path / "model")
    loaded = polyseme.load(tmp_path / "model")
    assert_array_equal(loaded.decision_function(items), tagger.decision_function(items))
    assert loaded.explain(items[:1], "slow", k=1) == tagger.explain(items[:1], "slow", k=1)
    assert loaded.embedding_.history_ == tagger.embedding_.history_
    assert loaded.complete(["slow"])[0].tolist() == tagger.complete(["slow"])[0].tolist()
