"""The concept embedding: what it learns, resuming, saving, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from polyseme import LabelCorpus
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.index import ConceptIndex
from polyseme.metrics import example_map
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.training import Checkpoint, TrainingPlan, error_free_score


@pytest.fixture(scope="module")
def fitted(tiny_embedding, world):
    return tiny_embedding().fit(world.label_sets)


@pytest.fixture(scope="module")
def solved(trained_embedding, world):
    return clone(trained_embedding).set_params(random_state=0).fit(world.label_sets)


def distance(a, b):
    return float(np.linalg.norm(a - b))


def concept(embedding, label, document):
    concepts = embedding.transform([document])
    return concepts.points[[concepts.labels[i] for i in concepts.label_ids].index(label)]


# ------------------------------------------------------------------ what it learns


def test_labels_follow_their_context_and_unrelated_ones_lie_apart(solved):
    phone = concept(solved, "phone", ("phone", "screen", "desk"))
    pie = concept(solved, "pie", ("pie", "oven", "knife"))
    at_work = concept(solved, "apple", ("apple", "phone", "desk"))
    at_home = concept(solved, "apple", ("apple", "pie", "knife"))
    assert distance(at_work, phone) < distance(at_work, pie)
    assert distance(at_home, pie) < distance(at_home, phone)
    beach = solved.transform([("sand", "sea", "sun")]).points
    forest = solved.transform([("fern", "moss", "oak")]).points
    within = max(distance(beach[0], beach[1]), distance(beach[1], beach[2]))
    across = min(distance(a, b) for a in beach for b in forest)
    assert within < 0.5 * across and across > 0.4 * solved.distance_scale_


def test_error_free_priming_finds_the_theme(solved, world):
    known = solved.transform(world.label_sets)
    index = ConceptIndex(known.points, known.label_ids, len(solved.classes_))
    targets = solved.targets([world.themes[theme][1:4] for theme in world.themes])
    truth = np.array(
        [[label in world.themes[theme] for label in solved.classes_] for theme in world.themes]
    )
    assert example_map(truth, -index.distances(targets)) == 1.0


def test_loss_falls_and_training_stops_when_patience_ends(world, tiny_embedding):
    plan = TrainingPlan(max_epochs=30, batch_size=128, min_steps=5, min_epochs=2, patience=3)
    embedding = tiny_embedding(training=plan).fit(world.label_sets)
    losses = [record["loss"] for record in embedding.history_]
    assert losses[-1] < losses[0]
    scores = [record.get("score") for record in embedding.history_]
    assert scores[:2] == [None, None], "what cannot be kept is not scored"
    best = 2 + int(np.argmax(scores[2:]))
    assert embedding.best_score_ == scores[best] == max(scores[2:])
    assert len(scores) == best + 1 + 3 < 30


def test_the_best_weights_are_the_ones_kept(world, tiny_embedding):
    # With a constant rate, a run that ends at the best epoch passes through the same weights.
    plan = {"batch_size": 128, "min_steps": 5, "min_epochs": 0, "patience": 100, "schedule": "step"}
    whole = TrainingPlan(max_epochs=12, **plan)
    long = tiny_embedding(training=whole, random_state=7).fit(world.label_sets)
    best = int(np.argmax([record["score"] for record in long.history_]))
    assert 0 < best < 11
    cut = TrainingPlan(max_epochs=best + 1, **plan)
    short = tiny_embedding(training=cut, random_state=7).fit(world.label_sets)
    assert np.array_equal(long.network_.weights, short.network_.weights)


def test_every_stage_of_the_paper_preset_runs(world):
    embedding = ConceptEmbedding.from_preset(
        "paper",
        n_components=6,
        hidden_sizes=(8, 8),
        context_descriptor=ContextDescriptor(n_topics=5, n_iter=30),
        random_state=0,
    )
    embedding.training.set_params(max_epochs=3, pretrain_epochs=2, prediction_epochs=2)
    embedding.fit(world.label_sets)
    stages = [(record["stage"], record.get("layer")) for record in embedding.history_]
    assert stages == (
        [("pretrain", layer) for layer in (0, 0, 1, 1, 2, 2)]
        + [("prediction", None)] * 2
        + [("siamese", None)] * 3
    )
    assert embedding.training.optimizer == "sgd"
    assert embedding.history_[-1]["learning_rate"] == 1e-4


# ------------------------------------------------------------------ transform and targets


def test_same_label_set_gives_the_same_bits_in_any_order_and_company(fitted):
    alone = fitted.transform([("apple", "pie")]).points
    assert alone.shape == (2, 8) and alone.dtype == np.float32
    beside = fitted.transform([("sea", "sun"), ("pie", "apple"), ("apple", "pie")])
    assert [beside.labels[i] for i in beside.label_ids] == ["sea", "sun"] + ["apple", "pie"] * 2
    rows = [np.flatnonzero(beside.document_ids == d) for d in (1, 2)]
    assert np.array_equal(beside.points[rows[0]], beside.points[rows[1]])
    np.testing.assert_allclose(beside.points[rows[0]], alone, atol=1e-6)


def test_oov_label_takes_the_mean_of_its_company_and_does_not_move_the_target(fitted):
    concepts = fitted.transform([("apple", "pie", "zeppelin")])
    assert concepts.labels[-1] == "zeppelin"
    inside = concepts.points[concepts.label_ids < len(fitted.classes_)]
    outside = concepts.points[concepts.label_ids == len(fitted.classes_)]
    np.testing.assert_allclose(outside[0], inside.mean(axis=0), atol=1e-6)
    with_oov, without = fitted.targets([("apple", "pie", "zeppelin"), ("apple", "pie")])
    assert np.array_equal(with_oov, without)


def test_documents_without_a_known_label_are_named(fitted):
    with pytest.warns(PolysemeWarning, match=r"1 of 2 documents hold no label.*: 1"):
        concepts = fitted.transform([("apple",), ("zeppelin",)])
    assert concepts.dropped.tolist() == [1]
    with pytest.warns(PolysemeWarning, match="cannot be embedded"):
        targets = fitted.targets([("apple",), ("zeppelin",)])
    assert np.isnan(targets[1]).all() and np.isfinite(targets[0]).all()


def test_documents_in_every_form_give_the_same_embedding(fitted, tiny_embedding, world):
    corpus = LabelCorpus.from_documents(world.label_sets)
    expected = fitted.transform([("apple", "pie")]).points
    for documents, labels in (
        ((set(document) for document in world.label_sets), None),
        (corpus, None),
        (sp.csr_array(corpus.matrix), corpus.labels),
    ):
        points = tiny_embedding().fit(documents, labels).transform([("apple", "pie")]).points
        assert np.array_equal(points, expected)


# ------------------------------------------------------------------ determinism and resuming


def test_same_seed_same_bits_other_seed_other_bits(tiny_embedding, world):
    first, second = (tiny_embedding().fit(world.label_sets) for _ in range(2))
    other = tiny_embedding(random_state=1).fit(world.label_sets)
    a, b, c = (e.transform([("apple", "pie")]).points for e in (first, second, other))
    assert np.array_equal(a, b)
    assert not np.allclose(a, c)
    assert first.history_ == second.history_


def test_the_number_of_threads_changes_no_bit(tiny_embedding, world):
    import torch

    before = torch.get_num_threads()
    points = []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            points.append(tiny_embedding().fit(world.label_sets).targets(world.label_sets))
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*points)


@pytest.mark.parametrize(("after", "seed"), [(1, 0), (3, None), (6, 0)])
def test_an_interrupted_run_ends_bit_identical(
    after, seed, tmp_path, tiny_embedding, world, monkeypatch
):
    plan = TrainingPlan(
        max_epochs=4, batch_size=128, min_steps=5, pretrain_epochs=1, prediction_epochs=2
    )
    written = Checkpoint.write
    count = 0
    seeds = []

    def interrupted(self, trainer, run_seed):
        nonlocal count
        written(self, trainer, run_seed)
        seeds.append(run_seed)
        count += 1
        if count == after:
            raise KeyboardInterrupt

    parameters = {"training": plan, "checkpoint": tmp_path / "run", "random_state": seed}
    monkeypatch.setattr(Checkpoint, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny_embedding(**parameters).fit(world.label_sets)
    assert (tmp_path / "run").exists()
    resumed = tiny_embedding(**parameters).fit(world.label_sets)
    finished = tiny_embedding(**parameters).fit(world.label_sets)
    assert finished.history_ == resumed.history_
    assert set(seeds) == {seeds[0]}
    monkeypatch.setattr(Checkpoint, "seed", lambda self, state: seeds[0])
    whole = tiny_embedding(**(parameters | {"checkpoint": None})).fit(world.label_sets)
    assert resumed.history_ == whole.history_
    assert np.array_equal(whole.network_.weights, resumed.network_.weights)


def test_a_training_whose_checkpoint_is_damaged_begins_anew_with_a_warning(
    tmp_path, tiny_embedding, world
):
    run = tiny_embedding(checkpoint=tmp_path / "run")
    points = run.fit(world.label_sets).transform(world.label_sets).points
    file = tmp_path / "run" / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.warns(PolysemeWarning, match="The training begins anew"):
        again = tiny_embedding(checkpoint=tmp_path / "run").fit(world.label_sets)
    np.testing.assert_array_equal(again.transform(world.label_sets).points, points)


def test_a_checkpoint_of_another_run_is_refused(tmp_path, tiny_embedding, world):
    tiny_embedding(checkpoint=tmp_path / "run").fit(world.label_sets)
    for parameters, documents in (({"n_components": 9}, world.label_sets), ({}, world.documents)):
        with pytest.raises(InputError, match="belongs to other data or parameters"):
            tiny_embedding(checkpoint=tmp_path / "run", **parameters).fit(documents)


def test_a_saved_embedding_is_taken_back(tiny_embedding, world):
    fitted = tiny_embedding(n_components=np.int64(6)).fit(world.label_sets)
    config, arrays = fitted.get_state()
    again = ConceptEmbedding.from_state(json.loads(json.dumps(config)), arrays)
    assert np.array_equal(again.targets(world.label_sets), fitted.targets(world.label_sets))
    assert again.history_ == fitted.history_ and again.best_score_ == fitted.best_score_
    assert again.classes_ == fitted.classes_ and again.hidden_sizes == (16,)
    assert again.get_params()["training__max_epochs"] == 4
    assert again.label_descriptor_.get_params() == fitted.label_descriptor_.get_params()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        tiny_embedding().get_state()


# ------------------------------------------------------------------ manners


def test_fit_leaves_parameters_and_documents_alone(tiny_embedding, world):
    embedding = clone(tiny_embedding(context_sensitivity=0.7))
    assert embedding.get_params()["training__max_epochs"] == 4
    assert not [name for name in vars(embedding) if name.endswith("_")]
    before, documents = repr(embedding), [set(document) for document in world.label_sets]
    embedding.fit(documents)
    assert repr(embedding) == before and embedding.context_sensitivity == 0.7
    assert documents == [set(document) for document in world.label_sets]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 2.5}, "`n_components` .* must be a whole number at least 1; got 2.5"),
        ({"hidden_sizes": (0,)}, "`hidden_sizes`"),
        ({"positive_weighting": "some"}, "must be one of 'balanced', 'literal', 'none'"),
        ({"distance_scale": 0}, "`distance_scale` of `ConceptEmbedding` must be a number above 0"),
        ({"training": TrainingPlan(learning_rate=0)}, "`learning_rate` of `TrainingPlan`"),
    ],
)
def test_a_bad_parameter_is_named(parameters, message, tiny_embedding, world):
    with pytest.raises(InputError, match=message):
        tiny_embedding(**parameters).fit(world.label_sets)


def test_empty_documents_and_unused_columns_are_harmless(tiny_embedding, world):
    with pytest.warns(PolysemeWarning, match="1 of 301 documents have no label"):
        embedding = tiny_embedding().fit([*world.label_sets, ()])
    assert np.isfinite(embedding.best_score_)
    matrix = np.array([[1, 1, 0, 0], [0, 1, 1, 0]] * 5)
    assert tiny_embedding().fit(matrix, ["a", "b", "c", "never"]).classes_ == ("a", "b", "c")
    with pytest.raises(InputError, match=r"at least two different labels.*only 'a'"):
        tiny_embedding().fit([["a"], ["a"]])


def test_a_document_of_two_thousand_labels_and_two_documents_work(tiny_embedding):
    many = [f"tag {i}" for i in range(2_000)]
    embedding = tiny_embedding(
        hidden_sizes=(4,),
        n_components=2,
        context_descriptor=ContextDescriptor(n_topics=2, n_iter=2),
        training=TrainingPlan(max_epochs=1, batch_size=4096, min_steps=1, validation_fraction=0),
    ).fit([many, ["tag 0", "tag 1"]])
    assert len(embedding.classes_) == 2_000
    assert embedding.transform([many]).points.shape == (2_000, 2)


# ------------------------------------------------------------------ validation documents


def test_validation_documents_stop_training_and_teach_nothing_else(tiny_embedding, world):
    documents, validation = world.label_sets[:200], world.label_sets[200:260]
    split = tiny_embedding().fit(documents, validation=validation)
    alone = tiny_embedding(training=TrainingPlan(max_epochs=4, min_steps=5)).fit(documents)
    assert split.classes_ == alone.classes_
    np.testing.assert_array_equal(split.label_descriptor_.idf_, alone.label_descriptor_.idf_)
    contexts = split.context_descriptor_
    np.testing.assert_array_equal(contexts.topics_, alone.context_descriptor_.topics_)
    known, held_out = (
        sp.csr_matrix(LabelCorpus.from_documents(part).align(split.classes_)[0])
        for part in (documents, validation)
    )
    held_out = held_out[:, : len(split.classes_)]
    score = error_free_score(
        known, contexts.transform(known), held_out, contexts.transform(held_out)
    )
    assert split.best_score_ == pytest.approx(score(split.network_))
    with pytest.raises(InputError, match="`validation` holds no label of `documents`"):
        tiny_embedding().fit(world.label_sets, validation=[["nothing known"]])
