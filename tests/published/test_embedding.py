"""The concept embedding: what it learns, resuming, saving, and what it refuses."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.base import clone

from polyseme import LabelCorpus
from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.metrics import example_map
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.index import ConceptIndex
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
    """Return the point of a label in a document."""
    concepts = embedding.transform([document])
    labels = [concepts.labels[column] for column in concepts.label_ids]
    return concepts.points[labels.index(label)]


# ------------------------------------------------------------------ what it learns


def test_labels_follow_their_context(solved):
    phone = concept(solved, "phone", ("phone", "screen", "desk"))
    pie = concept(solved, "pie", ("pie", "oven", "knife"))
    at_work = concept(solved, "apple", ("apple", "phone", "desk"))
    at_home = concept(solved, "apple", ("apple", "pie", "knife"))
    assert distance(at_work, phone) < distance(at_work, pie)
    assert distance(at_home, pie) < distance(at_home, phone)


def test_unrelated_labels_lie_apart(solved):
    beach = solved.transform([("sand", "sea", "sun")]).points
    forest = solved.transform([("fern", "moss", "oak")]).points
    sand, sea, sun = beach
    within = max(distance(sand, sea), distance(sea, sun))
    across = cdist(beach, forest).min()
    assert within < 0.5 * across
    assert across > 0.4 * solved.distance_scale_


def test_error_free_priming_finds_the_theme(solved, world):
    concepts = solved.transform(world.label_sets)
    index = ConceptIndex(concepts.points, concepts.label_ids, len(solved.classes_))
    documents = []
    rows = []
    for labels in world.themes.values():
        documents.append(labels[1:4])
        rows.append([label in labels for label in solved.classes_])
    targets = solved.targets(documents)
    distances = index.distances(targets)
    assert example_map(np.array(rows), -distances) == 1.0


def test_loss_falls_and_training_stops_when_patience_ends(world, tiny_embedding):
    plan = TrainingPlan(max_epochs=30, batch_size=128, min_steps=5, min_epochs=2, patience=3)
    embedding = tiny_embedding(training=plan).fit(world.label_sets)
    losses = [record["loss"] for record in embedding.history_]
    assert losses[-1] < losses[0]
    scores = [record.get("score") for record in embedding.history_]
    assert scores[:2] == [None, None], "what cannot be kept is not scored"
    best_epoch = 2 + int(np.argmax(scores[2:]))
    assert embedding.best_score_ == scores[best_epoch]
    n_epochs = len(scores)
    expected = best_epoch + 1 + plan.patience
    assert n_epochs == expected
    assert n_epochs < plan.max_epochs


def test_the_best_weights_are_the_ones_kept(world, tiny_embedding):
    # With a constant rate, a run that ends at the best epoch passes through the same weights.
    settings = {"batch_size": 128, "min_steps": 5, "min_epochs": 0, "patience": 100}
    settings["schedule"] = "step"

    def fit(max_epochs):
        plan = TrainingPlan(max_epochs=max_epochs, **settings)
        embedding = tiny_embedding(training=plan, random_state=7)
        return embedding.fit(world.label_sets)

    long = fit(12)
    scores = [record["score"] for record in long.history_]
    best_epoch = int(np.argmax(scores))
    assert 0 < best_epoch < 11
    short = fit(best_epoch + 1)
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
    assert alone.shape == (2, 8)
    assert alone.dtype == np.float32
    concepts = fitted.transform([("sea", "sun"), ("pie", "apple"), ("apple", "pie")])
    labels = [concepts.labels[column] for column in concepts.label_ids]
    assert labels == ["sea", "sun", "apple", "pie", "apple", "pie"]
    second = concepts.points[concepts.document_ids == 1]
    third = concepts.points[concepts.document_ids == 2]
    assert np.array_equal(second, third)
    assert_allclose(second, alone, atol=1e-6)


def test_an_oov_label_takes_the_mean_of_its_company(fitted):
    concepts = fitted.transform([("apple", "pie", "zeppelin")])
    assert concepts.labels[-1] == "zeppelin"
    oov = concepts.label_ids == len(fitted.classes_)
    (point,) = concepts.points[oov]
    expected = concepts.points[~oov].mean(axis=0)
    assert_allclose(point, expected, atol=1e-6)


def test_an_oov_label_does_not_move_the_target_of_its_document(fitted):
    with_oov, without = fitted.targets([("apple", "pie", "zeppelin"), ("apple", "pie")])
    assert np.array_equal(with_oov, without)


def test_documents_without_a_known_label_are_named(fitted):
    documents = [("apple",), ("zeppelin",)]
    with pytest.warns(PolysemeWarning, match=r"1 of 2 documents hold no label.*: 1"):
        concepts = fitted.transform(documents)
    assert concepts.dropped.tolist() == [1]
    with pytest.warns(PolysemeWarning, match="cannot be embedded"):
        targets = fitted.targets(documents)
    assert np.isfinite(targets[0]).all()
    assert np.isnan(targets[1]).all()


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


def test_the_seed_decides_every_bit(tiny_embedding, world):
    first = tiny_embedding().fit(world.label_sets)
    second = tiny_embedding().fit(world.label_sets)
    of_another_seed = tiny_embedding(random_state=1).fit(world.label_sets)
    document = ("apple", "pie")
    points = first.transform([document]).points
    same_points = second.transform([document]).points
    different_points = of_another_seed.transform([document]).points
    assert np.array_equal(points, same_points)
    assert not np.allclose(points, different_points)
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


def test_a_damaged_checkpoint_causes_a_warning_and_is_learned_again(
    tmp_path, tiny_embedding, world
):
    run = tmp_path / "run"
    embedding = tiny_embedding(checkpoint=run).fit(world.label_sets)
    points = embedding.transform(world.label_sets).points
    file = run / "model.safetensors"
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[:half])
    relearned = tiny_embedding(checkpoint=run)
    with pytest.warns(PolysemeWarning, match="The training begins anew"):
        relearned.fit(world.label_sets)
    relearned_points = relearned.transform(world.label_sets).points
    assert_array_equal(relearned_points, points)


def test_a_checkpoint_of_another_run_is_refused(tmp_path, tiny_embedding, world):
    run = tmp_path / "run"
    tiny_embedding(checkpoint=run).fit(world.label_sets)
    with_other_parameters = tiny_embedding(checkpoint=run, n_components=9)
    with pytest.raises(InputError, match="belongs to other data or parameters"):
        with_other_parameters.fit(world.label_sets)
    with_other_documents = tiny_embedding(checkpoint=run)
    with pytest.raises(InputError, match="belongs to other data or parameters"):
        with_other_documents.fit(world.documents)


def test_an_embedding_is_restored_from_its_state(tiny_embedding, world):
    fitted = tiny_embedding(n_components=np.int64(6)).fit(world.label_sets)
    config, arrays = fitted.get_state()
    config_of_json = json.loads(json.dumps(config))
    restored = ConceptEmbedding.from_state(config_of_json, arrays)
    targets = restored.targets(world.label_sets)
    expected_targets = fitted.targets(world.label_sets)
    assert np.array_equal(targets, expected_targets)
    assert restored.history_ == fitted.history_
    assert restored.best_score_ == fitted.best_score_
    assert restored.classes_ == fitted.classes_
    assert restored.hidden_sizes == (16,)
    parameters = restored.get_params()
    assert parameters["training__max_epochs"] == 4
    label_parameters = restored.label_descriptor_.get_params()
    assert label_parameters == fitted.label_descriptor_.get_params()


def test_an_embedding_that_is_not_fitted_has_no_state(tiny_embedding):
    embedding = tiny_embedding()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        embedding.get_state()


# ------------------------------------------------------------------ manners


def test_fit_leaves_parameters_and_documents_alone(tiny_embedding, world):
    embedding = clone(tiny_embedding(context_sensitivity=0.7))
    parameters = embedding.get_params()
    assert parameters["training__max_epochs"] == 4
    fitted_names = [name for name in vars(embedding) if name.endswith("_")]
    assert fitted_names == []

    text_before = repr(embedding)
    documents = [set(document) for document in world.label_sets]
    documents_before = deepcopy(documents)
    embedding.fit(documents)
    assert repr(embedding) == text_before
    assert embedding.context_sensitivity == 0.7
    assert documents == documents_before


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


def test_empty_documents_are_harmless(tiny_embedding, world):
    embedding = tiny_embedding()
    with pytest.warns(PolysemeWarning, match="1 of 301 documents have no label"):
        embedding.fit([*world.label_sets, ()])
    assert np.isfinite(embedding.best_score_)


def test_unused_columns_of_a_matrix_are_harmless(tiny_embedding):
    matrix = np.array([[1, 1, 0, 0], [0, 1, 1, 0]] * 5)
    embedding = tiny_embedding()
    embedding.fit(matrix, ["a", "b", "c", "never"])
    assert embedding.classes_ == ("a", "b", "c")


def test_a_single_label_is_refused(tiny_embedding):
    embedding = tiny_embedding()
    with pytest.raises(InputError, match=r"at least two different labels.*only 'a'"):
        embedding.fit([["a"], ["a"]])


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
    documents = world.label_sets[:200]
    validation = world.label_sets[200:260]
    validated = tiny_embedding().fit(documents, validation=validation)
    plan = TrainingPlan(max_epochs=4, min_steps=5)
    plain = tiny_embedding(training=plan).fit(documents)
    assert validated.classes_ == plain.classes_
    assert_array_equal(validated.label_descriptor_.idf_, plain.label_descriptor_.idf_)
    contexts = validated.context_descriptor_
    assert_array_equal(contexts.topics_, plain.context_descriptor_.topics_)

    def matrix_of(documents):
        corpus = LabelCorpus.from_documents(documents)
        matrix, _ = corpus.align(validated.classes_)
        return sp.csr_matrix(matrix)

    training_matrix = matrix_of(documents)
    held_out = matrix_of(validation)[:, : len(validated.classes_)]
    score = error_free_score(
        training_matrix,
        contexts.transform(training_matrix),
        held_out,
        contexts.transform(held_out),
    )
    assert validated.best_score_ == pytest.approx(score(validated.network_))


def test_validation_documents_without_a_known_label_are_refused(tiny_embedding, world):
    embedding = tiny_embedding()
    with pytest.raises(InputError, match="`validation` holds no label of `documents`"):
        embedding.fit(world.label_sets, validation=[["nothing known"]])
