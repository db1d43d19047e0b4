"""The published method as a tagger: the same contract, scores by known concepts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import polyseme
from polyseme import AudioFeatures, InstanceMapper, LabelCorpus, PublishedTagger
from polyseme._persistence import ModelFileError, write_model
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.features import Extracted
from polyseme.metrics import example_map


@pytest.fixture
def own_tagger(published_tagger, tmp_path):
    """A copy that a test may change."""
    published_tagger.save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


def tiny(tiny_embedding, **parameters):
    mapper = InstanceMapper(kind="kernel-ridge", gamma=1.0, penalty=0.01)
    return PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0, **parameters)


# ------------------------------------------------------------------ the solvable world


def test_default_mapper_solves_the_world_too(world, trained_embedding):
    tagger = PublishedTagger(embedding=trained_embedding, random_state=1)
    tagger.fit(world.X, world.documents, world.semantics)
    assert tagger.mapper_.kind == "nu-svr"
    assert example_map(world.truth(tagger.classes_), tagger.decision_function(world.X_test)) > 0.95


# ------------------------------------------------------------------ scores and rankings


def test_scores_sum_to_one_and_ranks_fall(published_tagger, world):
    scores = published_tagger.decision_function(world.X_test)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    np.testing.assert_array_equal(scores, published_tagger.decision_function(world.X_test))
    labels, ranked = published_tagger.rank(world.X_test, k=7)
    assert labels.shape == ranked.shape == (len(world.X_test), 7)
    assert (np.diff(ranked, axis=1) <= 0).all()
    column = list(published_tagger.classes_).index(labels[0, 0])
    assert scores[0, column] == ranked[0, 0] == scores[0].max()


def test_density_scores_rank_the_world_as_well(world, trained_embedding):
    tagger = PublishedTagger(
        embedding=trained_embedding,
        mapper=InstanceMapper(kind="kernel-ridge"),
        score="density",
        random_state=0,
    ).fit(world.X, world.documents, world.semantics)
    scores = tagger.decision_function(world.X_test)
    np.testing.assert_allclose(scores.sum(axis=1), 1.0)
    assert example_map(world.truth(tagger.classes_), scores) > 0.9


def test_density_without_any_known_document_scores_zero(own_tagger, world):
    own_tagger.set_params(score="density")
    own_tagger.remove_documents(own_tagger.known_.ids)
    assert not own_tagger.decision_function(world.X_test).any()


def test_what_the_published_method_has_not_is_said_in_one_sentence(published_tagger, world):
    X = world.X_test[:1]
    for ask in (published_tagger.decision_function, published_tagger.rank):
        with pytest.raises(InputError, match=r"^`tags` need the default tagger; .* features\.$"):
            ask(X, tags=[["sea"]])
    for ask in (published_tagger.predict_proba, published_tagger.predict):
        with pytest.raises(InputError, match=r"needs the default tagger; .* no probabilities\.$"):
            ask(X)
    with pytest.raises(InputError, match="precision needs the default tagger"):
        published_tagger.thresholds(0.5)
    with pytest.raises(InputError, match=r"name needs the default tagger; .* add documents\.$"):
        published_tagger.add_labels(["beach"], {"beach": [1.0]})
    assert not published_tagger.probabilistic


# ------------------------------------------------------------------ leakage


def test_oov_labels_never_reach_the_concept_space(world, tiny_embedding):
    with_oov = tiny(tiny_embedding).fit(world.X, world.documents, world.semantics)
    stripped = [tuple(t for t in d if t not in world.oov) for d in world.documents]
    without = tiny(tiny_embedding).fit(world.X, stripped, world.semantics)
    assert not set(world.oov) & set(with_oov.embedding_.classes_)
    assert np.array_equal(with_oov.points(world.X_test), without.points(world.X_test))


def test_shuffled_features_rank_no_better_than_popularity(world, published_tagger):
    order = np.random.default_rng(0).permutation(len(world.X))
    tagger = PublishedTagger(
        embedding=published_tagger.embedding_,
        mapper=InstanceMapper(kind="kernel-ridge"),
        fit_embedding=False,
        random_state=0,
    ).fit(world.X[order], world.documents, world.semantics)
    truth = world.truth(tagger.classes_)
    honest, shuffled = (
        example_map(truth, one.decision_function(world.X_test))
        for one in (published_tagger, tagger)
    )
    assert shuffled < 0.5 < honest


# ------------------------------------------------------------------ completion and explanation


def test_completion_leaves_out_what_was_given_and_sums_to_one(published_tagger):
    n_labels = len(published_tagger.classes_)
    labels, scores = published_tagger.complete(["sea", "sun"], k=n_labels)
    assert len(labels) == n_labels - 2
    assert not {"sea", "sun"} & set(labels)
    assert scores.sum() == pytest.approx(1.0)
    assert (np.diff(scores) <= 0).all()


def test_spelling_does_not_matter(published_tagger):
    spelled, plain = (published_tagger.complete([tag])[0].tolist() for tag in ("  SEA ", "sea"))
    assert spelled == plain


def test_completion_from_oov_tags_alone_uses_where_they_are_known(published_tagger, world):
    labels, _ = published_tagger.complete(["owl"], k=3)
    assert set(labels) <= set(world.themes["forest"])


def test_explanations_are_the_nearest_known_concepts(published_tagger, world):
    x = world.X_test[0]
    found = published_tagger.explain(x, "apple", k=4)
    assert [one.distance for one in found] == sorted(one.distance for one in found)
    assert all("apple" in one.document for one in found)
    assert all("phone" in one.document or "desk" in one.document for one in found[:1])
    column = list(published_tagger.classes_).index("apple")
    nearest = published_tagger.ranker_.index.distances(published_tagger.points(x[None]))[0, column]
    assert found[0].distance == pytest.approx(float(nearest), rel=1e-4)
    for one in found:
        for name in one.document_ids:
            row = published_tagger.known_.ids.index(name)
            assert published_tagger.known_.document(row) == one.document


def test_explaining_an_unknown_label_names_close_ones(published_tagger, world):
    with pytest.raises(InputError, match=r"Unknown label 'appel'.*apple"):
        published_tagger.explain(world.X_test[0], "appel")
    with pytest.raises(InputError, match="takes one instance; got 3"):
        published_tagger.explain(world.X_test[:3], "apple")


def test_one_instance_is_explained_in_any_form(published_tagger, world):
    import polars as pl

    x = world.X_test[0]
    expected = published_tagger.explain(x, "apple", k=1)
    forms = [x.tolist(), x[None], pl.Series(x), sp.csr_matrix(x[None]), sp.csr_array(x[None])]
    for form in forms:
        found = published_tagger.explain(form, "apple", k=1)
        assert found[0].document == expected[0].document


# ------------------------------------------------------------------ growing and shrinking


def test_documents_come_and_go_without_training(own_tagger, world):
    before = own_tagger.decision_function(world.X_test)
    points = own_tagger.points(world.X_test)
    ids = own_tagger.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    assert own_tagger.classes_[-1] == "jellyfish" and own_tagger.kinds_[-1] == "oov"
    assert np.array_equal(own_tagger.points(world.X_test), points)
    scores = own_tagger.decision_function(world.X_test)[:, -1]
    there = np.array([theme == "beach" for theme in world.themes_test])
    assert scores[there].mean() > 1.2 * scores[~there].mean()
    assert scores[there].min() > np.median(scores[~there])
    ranked, _ = own_tagger.rank(world.X_test[there], k=8)
    assert (ranked == "jellyfish").any(axis=1).all(), "two documents are enough to be suggested"
    own_tagger.remove_documents(ids)
    assert "jellyfish" not in own_tagger.classes_
    assert np.array_equal(own_tagger.decision_function(world.X_test), before)


def test_a_vocabulary_label_without_documents_ranks_last_with_score_zero(own_tagger, world):
    holding = [
        name
        for row, name in enumerate(own_tagger.known_.ids)
        if "tram" in own_tagger.known_.document(row)
    ]
    own_tagger.remove_documents(holding)
    labels, scores = own_tagger.rank(world.X_test, k=len(own_tagger.classes_))
    assert (labels[:, -1] == "tram").all() and (scores[:, -1] == 0).all()


# ------------------------------------------------------------------ learning


def test_a_fit_that_fails_leaves_the_tagger_as_it_was(own_tagger, world):
    before = own_tagger.decision_function(world.X_test)
    own_tagger.set_params(fit_embedding=False, embedding=own_tagger.embedding_)
    with pytest.raises(InputError, match="No instance carries a label"):
        own_tagger.fit(world.X[:2], [["x"], ["y"]], world.semantics)
    assert np.array_equal(own_tagger.decision_function(world.X_test), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"score": "experts"}, "`score` of `PublishedTagger`"),
        ({"bandwidth": -1.0}, "`bandwidth` of `PublishedTagger`"),
        ({"memory_mb": 0}, "`memory_mb` of `PublishedTagger`"),
        ({"mapper": InstanceMapper(kind="ridge")}, "`kind` of `InstanceMapper`"),
    ],
)
def test_a_bad_parameter_is_named_before_any_training(parameters, message, world, monkeypatch):
    monkeypatch.setattr(polyseme.ConceptEmbedding, "fit", lambda *_: pytest.fail("trained"))
    with pytest.raises(InputError, match=message):
        PublishedTagger(**parameters).fit(world.X, world.documents)


def test_an_interrupted_tagger_without_a_seed_resumes(world, tiny_embedding, tmp_path, monkeypatch):
    from polyseme.published.nn.checkpoint import TrainingCheckpoint

    written = TrainingCheckpoint.write

    def interrupted(self, trainer, seed):
        written(self, trainer, seed)
        raise KeyboardInterrupt

    embedding = tiny_embedding(random_state=None, checkpoint=tmp_path / "run")
    tagger = PublishedTagger(embedding=embedding, mapper=InstanceMapper(kind="kernel-ridge"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TrainingCheckpoint, "write", interrupted)
        tagger.fit(world.X, world.documents, world.semantics)
    tagger.fit(world.X, world.documents, world.semantics)
    assert len(tagger.embedding_.history_) == 4


def test_dropped_instances_are_named_by_their_row(world, tiny_embedding):
    documents = [*world.documents[:3], ("zeppelin",)]
    with pytest.warns(PolysemeWarning, match="instance:3"):
        tagger = tiny(tiny_embedding).fit(world.X[:4], documents, world.semantics)
    assert tagger.dropped_ == ("instance:3",)


def test_the_same_list_as_semantics_is_known_once(world, tiny_embedding):
    once = tiny(tiny_embedding).fit(world.X, world.documents)
    twice = tiny(tiny_embedding).fit(world.X, world.documents, world.documents)
    assert twice.known_.ids == once.known_.ids


def test_named_documents_are_known_once(world, tiny_embedding):
    ids = [f"item {i}" for i in range(len(world.documents))]
    corpus = LabelCorpus.from_documents(world.documents, ids=ids)
    tagger = tiny(tiny_embedding).fit(world.X, corpus, corpus)
    assert tagger.known_.ids == tuple(ids)


def test_instances_without_a_known_label_are_an_error_when_none_is_left(world, tiny_embedding):
    with pytest.raises(InputError, match="No instance carries a label of the semantics"):
        tiny(tiny_embedding).fit(world.X[:2], [["x"], ["y"]], world.semantics)


def test_instances_without_labels_are_left_out_of_the_mapping_and_named(world, tiny_embedding):
    documents = [*world.documents[:50], ()]
    with pytest.warns(PolysemeWarning):
        tagger = tiny(tiny_embedding).fit(
            np.concatenate([world.X[:50], [[9.0] * 5]]), documents, world.semantics
        )
    assert len(tagger.dropped_) == 1
    clean = tiny(tiny_embedding).fit(world.X[:50], world.documents[:50], world.semantics)
    assert np.array_equal(tagger.points(world.X_test), clean.points(world.X_test))


def test_spellings_stay_apart_when_asked(world, tiny_embedding):
    documents = [("Apple", "phone"), ("apple", "pie")] * 20
    X = np.tile([[0.0], [1.0]], (20, 1))
    apart = PublishedTagger(
        embedding=tiny_embedding(normalize_labels=False),
        mapper=InstanceMapper(kind="kernel-ridge", gamma=1.0, penalty=0.01),
        random_state=0,
    ).fit(X, documents)
    assert set(apart.classes_) == {"Apple", "apple", "phone", "pie"}
    joined = tiny(tiny_embedding).fit(X, documents)
    assert len(joined.classes_) == 3
    assert joined.normalize_labels_ and not apart.normalize_labels_


def test_constant_features_and_fewer_instances_than_folds_work(world, tiny_embedding):
    tagger = PublishedTagger(embedding=tiny_embedding(), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        tagger.fit(np.ones((2, 3)), world.documents[:2], world.semantics)
    assert np.isfinite(tagger.decision_function(np.zeros((1, 3)))).all()


def test_same_seed_same_bits(world, tiny_embedding):
    first, second = (
        tiny(tiny_embedding).fit(world.X, world.documents, world.semantics) for _ in range(2)
    )
    assert np.array_equal(
        first.decision_function(world.X_test), second.decision_function(world.X_test)
    )


def test_a_extractor_is_learned_with_the_tagger_and_saved(tiny_embedding, tmp_path):
    generator = np.random.default_rng(0)
    raw = [(number % 2 + generator.normal(size=(9, 36))).astype(np.float32) for number in range(20)]
    given = AudioFeatures(n_words=4)
    items = Extracted("audio", given.preprocessing(), tuple(map(str, range(20))), raw)
    documents = [["low", "slow"] if number % 2 == 0 else ["high", "fast"] for number in range(20)]
    tagger = tiny(tiny_embedding, features=given).fit(items, documents)
    assert tagger.n_features_in_ == 4 and tagger.features_.random_state is not None
    assert not hasattr(given, "n_features_out_"), "fit must leave the given extractor alone"
    tagger.save(tmp_path / "model")
    loaded = polyseme.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(items), tagger.decision_function(items))
    assert loaded.explain(items[:1], "slow", k=1) == tagger.explain(items[:1], "slow", k=1)


# ------------------------------------------------------------------ saving


def test_a_loaded_tagger_is_the_saved_one(published_tagger, own_tagger, world):
    assert own_tagger.classes_ == published_tagger.classes_
    assert own_tagger.kinds_.tolist() == published_tagger.kinds_.tolist()
    pair = (own_tagger, published_tagger)
    assert np.array_equal(*(one.decision_function(world.X_test) for one in pair))
    assert np.array_equal(*(one.complete(["sea"])[0] for one in pair))
    loaded, saved = (one.explain(world.X_test[0], "sea") for one in pair)
    assert loaded == saved
    assert own_tagger.embedding_.history_ == published_tagger.embedding_.history_
    assert own_tagger.embedding_.get_params()["n_components"] == 24


def test_numbers_of_a_grid_search_can_be_saved(world, tiny_embedding, tmp_path):
    tagger = tiny(tiny_embedding, bandwidth=np.float32(0.5), score="density")
    tagger.embedding.set_params(n_components=np.int64(6), training__max_epochs=np.int64(2))
    tagger.fit(world.X, world.documents)
    tagger.save(tmp_path / "m")
    scores = polyseme.load(tmp_path / "m").decision_function(world.X_test)
    assert np.array_equal(scores, tagger.decision_function(world.X_test))


def test_models_of_other_methods_are_refused(tmp_path):
    write_model(tmp_path / "old", "tagger", {"expert_labels": []}, {})
    with pytest.raises(
        ModelFileError, match=r"written by an earlier version of polyseme.* fit it anew\.$"
    ):
        polyseme.load(tmp_path / "old")
    write_model(tmp_path / "new", "tagger", {"method": "oracle"}, {})
    with pytest.raises(ModelFileError, match="has the method 'oracle', which this version"):
        polyseme.load(tmp_path / "new")


# ------------------------------------------------------------------ manners and bad input


def test_clone_and_parameters(tiny_embedding):
    tagger = clone(tiny(tiny_embedding, score="density", bandwidth=2.0))
    assert tagger.get_params()["embedding__n_components"] == 8
    assert tagger.set_params(mapper__penalty=0.5).mapper.penalty == 0.5


def test_presets_have_names():
    assert PublishedTagger.from_preset().mapper.C == 1.0
    assert PublishedTagger.from_preset("paper").embedding.training.optimizer == "sgd"
    assert PublishedTagger.from_preset("paper").score == "nearest"
    other = PublishedTagger.from_preset("default", score="density")
    assert (other.score, other.mapper.C) == ("density", InstanceMapper().C)
    with pytest.raises(InputError, match="Unknown preset 'papper'; known: default, paper"):
        PublishedTagger.from_preset("papper")


def test_a_tagger_without_features_completes_but_does_not_rank(world, tiny_embedding):
    tagger = tiny(tiny_embedding).fit(None, world.semantics)
    assert set(tagger.kinds_) == {"unseen"}
    assert len(tagger.complete(["sea"], k=3)[0]) == 3
    with pytest.raises(InputError, match="fitted without features"):
        tagger.rank(world.X_test)


def test_asking_before_fit_says_so():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        PublishedTagger().rank(np.zeros((1, 2)))
    with pytest.raises(InputError, match="needs a fitted `embedding`"):
        PublishedTagger(fit_embedding=False).fit(np.zeros((2, 2)), [["a", "b"], ["a"]])


def nan_at(X, *rows):
    X = X.copy()
    X[list(rows), 1] = np.nan
    return X


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: nan_at(X, 3, 7), r"NaN or infinity in row\(s\) 3, 7"),
        (lambda X: np.where(np.arange(len(X))[:, None] == 5, np.inf, X), r"row\(s\) 5"),
        (lambda X: X[:-1], "`X` has 299 rows but there are 300 documents"),
        (lambda X: X[:, :0], "0 feature"),
        (lambda X: X[:, 0], "two dimensions"),
        (lambda X: X.astype(str) + "x", "must hold numbers only"),
    ],
)
def test_bad_features_get_one_sentence(change, message, world, tiny_embedding):
    with pytest.raises(InputError, match=message):
        tiny(tiny_embedding).fit(change(world.X), world.documents, world.semantics)
