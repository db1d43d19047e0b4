"""Experts: what features and documents say, blended, and never by who has seen the instance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from polyseme import ZeroShotTagger, load
from polyseme._persistence import ModelFileError
from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines.transfer import ridge
from polyseme.corpus import LabelCorpus
from polyseme.experts import LabelExperts
from polyseme.experts.blending import (
    as_probabilities,
    blend,
    label_shifts,
    logit,
    precision_thresholds,
    sigmoid,
)
from polyseme.experts.late import LateLabels, late_frequencies
from polyseme.experts.lessons import lessons_of
from polyseme.experts.levels import (
    PRECISIONS,
    expected_frequencies,
    label_priors,
    learn_levels,
)
from polyseme.nn.bank import BankPlan, NetworkBank, enough_steps
from polyseme.scoring import evaluate
from polyseme.solvers.ridge import RidgeSums

QUICK = {"document_steps": 40, "instance_steps": 40, "nets_per_fold": 1, "n_folds": 3}


def world_of_pairs(n=120, seed=0):
    """Labels 2k and 2k+1 come together; label 1 only on documents that are no instances."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 3, n)
    table = np.zeros((n, 6))
    table[np.arange(n), 2 * topics] = table[np.arange(n), 2 * topics + 1] = 1
    table[::2, 1] = 0
    X = rng.normal(size=(3, 10))[topics] * 3 + rng.normal(size=(n, 10))
    instances = np.flatnonzero(table[:, 1] == 0)
    return X, sp.csr_matrix(table), instances, topics


@pytest.fixture(scope="module")
def fitted():
    X, documents, instances, _ = world_of_pairs()
    experts = LabelExperts(random_state=0, **QUICK)
    return experts.fit(X[instances], documents[instances], documents, instances)


@pytest.fixture(scope="module")
def fitted_to_chances():
    """Experts of eight labels that are drawn with a chance each, and many new instances."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(6, 8)) * 1.5
    n_train = 400
    X = rng.normal(size=(n_train + 4000, 6))
    truth = rng.random((len(X), 8)) < sigmoid(X @ directions - 1.5)
    documents = sp.csr_matrix(truth[:n_train].astype(float))
    experts = LabelExperts(random_state=0, **QUICK)
    experts.fit(X[:n_train], documents, documents, np.arange(n_train))
    return experts, X[n_train:], truth[n_train:], n_train


# ------------------------------------------------------------------ the parts


def test_ridge_from_sums_is_ridge_from_rows():
    rng = np.random.default_rng(0)
    inputs, targets = (rng.random((30, 5)) < 0.4).astype(float), rng.normal(size=(30, 3))
    for given in (inputs, sp.csr_matrix(inputs)):
        found = RidgeSums.of(given, targets).solve(0.1)
        for one, other in zip(found, ridge(inputs, targets, 0.1), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10)
    held = np.arange(30) < 10
    rest = RidgeSums.of(inputs, targets).without(RidgeSums.of(inputs[held], targets[held]))
    for one, other in zip(rest.solve(0.1), ridge(inputs[~held], targets[~held], 0.1), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_scores_become_probabilities_in_the_same_order():
    scores = np.linspace(-2, 2, 41)[:, None]
    found = as_probabilities(scores, np.array([0.1]))
    assert (found > 0).all()
    assert (np.diff(found[:, 0]) > 0).all()
    assert abs(found[-1, 0] - 2) < 1e-3


def test_a_blend_is_the_geometric_mean():
    one, other = np.array([[0.2, 0.9]]), np.array([[0.8, 0.4]])
    np.testing.assert_allclose(sigmoid(blend([one, other])), np.sqrt(one * other))


def test_a_slope_makes_several_more_certain_and_one_stays_as_it_is():
    one, other = np.array([[0.2, 0.9]]), np.array([[0.8, 0.4]])
    np.testing.assert_allclose(blend([one, other], 1.4), 1.4 * blend([one, other]))
    np.testing.assert_allclose(sigmoid(blend([one], 1.4)), one)


def test_frequencies_are_documents_where_those_are_the_instances_own():
    priors = np.array([0.2, 0.6])
    targets, weights = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 0.0]]), np.array([1.0, 2.0, 1.0])
    assert expected_frequencies(priors, targets, weights, 0.0).tolist() == priors.tolist()
    found = expected_frequencies(priors, np.tile(targets, (500, 1)), np.tile(weights, 500), 1.0)
    np.testing.assert_allclose(found, [0.75, 0.05], atol=1e-3)
    half = expected_frequencies(priors, np.tile(targets, (500, 1)), np.tile(weights, 500), 0.5)
    np.testing.assert_allclose(half, (priors + found) / 2)
    nothing = expected_frequencies(np.array([1e-9, 1.0]), targets[:, :2], weights, 0.0)
    assert ((nothing > 0) & (nothing < 1)).all()


def test_priors_of_unseen_labels_rest_on_semantics_documents_alone():
    found = label_priors(np.array([30.0, 10.0]), 100, np.array([1]), 40)
    np.testing.assert_allclose(found, [30.5 / 101, 10.5 / 41])
    assert label_priors(np.array([3.0, 3.0]), 3, np.array([1]), 3).max() < 1


def test_levels_bring_probabilities_to_frequencies_and_promise_what_they_say():
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(size=(400, 5)) * 2, rng.random(400)
    truth = (rng.random((400, 3)) < sigmoid(logits[:, :3])).astype(float)
    columns, frequencies = (np.arange(3), np.arange(3, 5)), np.full(5, 0.2)
    levels = learn_levels(logits, truth, columns, weights, frequencies)
    found = sigmoid(logits + levels.shifts)
    np.testing.assert_allclose(weights @ found / weights.sum(), 0.2, atol=1e-6)
    unseen = found[:, 3:]
    for place in (29, 59):
        given = unseen >= levels.unseen_thresholds[place]
        promised = (weights[:, None] * unseen * given).sum() / (weights[:, None] * given).sum()
        assert promised == pytest.approx(PRECISIONS[place], abs=0.01)
    assert not learn_levels(logits, truth, columns, weights, None).shifts.any()


def test_shifts_bring_labels_to_their_priors():
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(size=(50, 4)), rng.random(50)
    priors = np.array([0.01, 0.3, 0.5, 0.9])
    moved = sigmoid(logits + label_shifts(logits, weights, priors))
    np.testing.assert_allclose(weights @ moved / weights.sum(), priors, atol=1e-6)


def threshold_by_trial(probabilities, truth, weights, goal):
    """Try every probability that occurs as a threshold and keep the smallest that serves."""
    n, n_labels = probabilities.shape
    smallest = None
    for threshold in sorted(set(probabilities.ravel())):
        given = right = 0.0
        for row in range(n):
            for label in range(n_labels):
                if probabilities[row, label] >= threshold:
                    given += weights[row]
                    right += weights[row] * truth[row, label]
        if smallest is None and given and right / given >= goal:
            smallest = threshold
    return 1.0 if smallest is None else smallest


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_thresholds_are_those_found_by_trial(seed, whole):
    rng = np.random.default_rng(seed)
    n, n_labels = 25, 3
    probabilities = rng.random((n, n_labels)).round(1)  # ten labels or so for every probability
    truth = (rng.random((n, n_labels)) < probabilities).astype(float)
    weights = rng.integers(0, 3, n).astype(float) if whole else rng.random(n)
    # Whole weights reach these precisions exactly, and zero weights count nothing.
    wanted = np.array([0.25, 0.5, 0.6, 0.75, 0.8, 0.9, 1.0])
    found = precision_thresholds(probabilities, truth, weights, wanted)
    assert found.tolist() == [
        threshold_by_trial(probabilities, truth, weights, goal) for goal in wanted
    ]
    assert len(set(found)) > 3
    never = precision_thresholds(probabilities, np.zeros_like(truth), weights, wanted)
    assert (never == 1).all()


@pytest.mark.parametrize("goal", [0.5, 0.7, 0.9])
def test_new_instances_have_the_precision_that_is_wanted(fitted_to_chances, goal):
    experts, X, truth, n_train = fitted_to_chances
    given = sigmoid(experts.logits(X)) >= experts.thresholds(goal)
    # Labels are independent given the features. The threshold rests on as many of them as the
    # training instances were given, the measured share on as many as the new ones were.
    n_given = given.sum()
    n_behind = n_given * n_train / len(X)
    error = np.sqrt(goal * (1 - goal) * (1 / n_given + 1 / n_behind))
    assert abs(truth[given].mean() - goal) < 4 * error
    assert truth.mean() < goal - 8 * error  # neither everything nor a random half would do


def test_a_bank_is_networks_side_by_side():
    rng = np.random.default_rng(0)
    plan = BankPlan(8, 4, (0.0, 0.0, 0.0), 60, 32, 1e-2, 0.0)
    seed = torch.Generator().manual_seed(0)
    inputs = rng.normal(size=(64, 3)).astype(np.float32)
    truth = (inputs[:, :1] > 0).astype(np.float32)
    rows, goals = torch.from_numpy(inputs), torch.from_numpy(truth)
    bank = NetworkBank.start(3, 3, np.array([0.5]), plan, seed)
    before = bank.probabilities(inputs)
    bank.train(
        lambda chosen, _: (rows[chosen], goals[chosen], torch.ones(*chosen.shape, 1)),
        [np.arange(64), np.arange(32), np.arange(32, 64)],
        plan,
        rng,
        seed,
    )
    found = bank.probabilities(inputs)
    assert ((found > 0.5) == truth).mean() > 0.9 > ((before > 0.5) == truth).mean()
    alone = np.mean([bank.probabilities(inputs, [member]) for member in range(3)], axis=0)
    np.testing.assert_allclose(found, alone)
    again = NetworkBank.from_state(bank.get_state())
    np.testing.assert_array_equal(again.probabilities(inputs), found)
    assert bank.codes(inputs).shape == (64, 12)
    assert np.abs(bank.codes(inputs)).max() <= 1


@pytest.mark.parametrize(
    ("n_rows", "given", "steps"),
    [(3000, None, 600), (100, None, 100), (10**6, None, 31250), (5, 7, 7)],
)
def test_steps_follow_the_number_of_rows(n_rows, given, steps):
    plan = BankPlan(1, 1, (0.0, 0.0, 0.0), 600, 256, 1e-3, 0.0)
    assert enough_steps(plan, n_rows, given).n_steps == steps


# ------------------------------------------------------------------ together


def test_unseen_labels_are_found_by_their_company(fitted):
    X, documents, _, topics = world_of_pairs()
    found = fitted.probabilities(X)
    assert fitted.unseen_.tolist() == [1]
    assert found[topics == 0, 1].min() > found[topics != 0, 1].max()
    truth = documents.toarray().astype(bool)
    assert evaluate(truth[:, fitted.seen_], found[:, fitted.seen_])["example_map"] > 0.95
    assert np.isfinite(found).all() and ((found > 0) & (found < 1)).all()


def test_readings_of_training_instances_come_from_who_has_not_seen_them():
    """Labels of pure noise: whoever has seen an instance knows them, the others cannot."""
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(90, 60)), sp.csr_matrix(rng.random((90, 4)) < 0.5)
    experts = LabelExperts(random_state=0, n_folds=3, document_steps=20, instance_steps=300)
    experts.fit(X, labels, labels, np.arange(90))
    truth = labels.toarray().astype(bool)
    seen = experts.networks_.probabilities(X)
    held = experts._held_out[0]
    assert ((seen > 0.5) == truth).mean() > 0.9
    assert ((held["network"] > 0.5) == truth).mean() < 0.65


def test_same_seed_same_scores_and_saved_as_fitted(fitted):
    X, documents, instances, _ = world_of_pairs()
    again = LabelExperts(random_state=0, **QUICK)
    again.fit(X[instances], documents[instances], documents, instances)
    np.testing.assert_array_equal(again.logits(X), fitted.logits(X))
    loaded = LabelExperts.from_state(*fitted.get_state())
    np.testing.assert_array_equal(loaded.logits(X), fitted.logits(X))


def test_sparse_features_count_like_dense_ones(fitted):
    X, documents, instances, _ = world_of_pairs()
    sparse = LabelExperts(random_state=0, **QUICK)
    sparse.fit(sp.csr_matrix(X[instances]), documents[instances], documents, instances)
    np.testing.assert_allclose(
        sparse.networks_.probabilities(sp.csr_matrix(X)),
        fitted.networks_.probabilities(X),
        atol=1e-4,
    )


def test_given_tags_move_the_others(fitted):
    X = np.zeros((1, 10))
    tags = np.zeros((1, 6))
    tags[0, 2] = 1
    assert fitted.logits(X, tags)[0, 3] > fitted.logits(X)[0, 3]


def test_others_can_be_asked_without_training(fitted):
    X, _, _, _ = world_of_pairs()
    same = fitted.with_experts(fitted.seen_experts, fitted.unseen_experts)
    np.testing.assert_array_equal(same.logits(X), fitted.logits(X))
    kernel = fitted.with_experts(("kernel",), ("linear",), use_shifts=False)
    np.testing.assert_allclose(
        kernel.logits(X)[:, fitted.seen_], logit(np.minimum(fitted.readings(X)["kernel"], 1))
    )
    assert not kernel.levels_.shifts.any()
    assert fitted.levels_.shifts.any()


@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("n_labels", [1, 3])
def test_tiny_data_have_finite_scores(n, n_labels):
    rng = np.random.default_rng(n)
    labels = sp.csr_matrix((rng.random((n, n_labels)) < 0.6) | (np.arange(n) == 0)[:, None])
    X = rng.normal(size=(n, 4))
    for groups in (None, np.zeros(n, dtype=np.int64)):
        experts = LabelExperts(random_state=0, document_steps=3, instance_steps=3)
        experts.fit(X, labels, labels, np.arange(n), groups)
        assert np.isfinite(experts.logits(X)).all()


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"n_folds": 1}, "`n_folds` of `LabelExperts`"),
        ({"instance_steps": 0}, "`instance_steps` of `LabelExperts`"),
        ({"unseen_experts": ("oracle",)}, "`unseen_experts` of `LabelExperts`"),
        ({"seen_experts": ()}, "one expert at least"),
    ],
)
def test_bad_parameters_are_named(parameters, complaint):
    X, documents, instances, _ = world_of_pairs()
    with pytest.raises(InputError, match=complaint):
        LabelExperts(**parameters).fit(X[instances], documents[instances], documents, instances)


def test_own_documents_are_found_by_name():
    teaching = LabelCorpus.from_documents([["a"], ["b"], ["a", "b"]], ids=["x", "y", "z"])
    corpus = LabelCorpus.from_documents([["b"], ["a", "c"]], ids=["y", "w"])
    lessons = lessons_of(corpus, teaching, ("a", "b", "c"))
    assert lessons.own.tolist() == [1, 3]
    assert lessons.documents.toarray().tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 1]]
    assert lessons.groups is None


# ------------------------------------------------------------------ from elsewhere, and later


def test_documents_from_elsewhere_do_not_decide_how_common_labels_are():
    """The same pairs of labels, but elsewhere the first pair is nearly everywhere."""
    X, documents, instances, _ = world_of_pairs()
    common = sp.csr_matrix(np.repeat([[1.0, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]], [300, 20], axis=0))
    own = 320 + np.arange(len(instances))
    together = sp.csr_matrix(sp.vstack([common, documents[instances]]))
    experts = LabelExperts(use_weights=False, random_state=0, **QUICK)
    experts.fit(X[instances], documents[instances], together, own, n_semantics=320)
    here = np.asarray(documents[instances].mean(axis=0)).ravel()
    seen = experts.seen_
    np.testing.assert_allclose(experts.frequencies_[seen], here[seen], atol=0.01)
    assert abs(experts.priors_[seen] - here[seen]).max() > 0.3, "elsewhere"
    told = experts.probabilities(X[instances]).mean(axis=0)
    np.testing.assert_allclose(told[seen], here[seen], atol=0.1)


def test_instances_that_hold_no_unseen_label_by_choice_do_not_teach_that_nobody_does():
    X, documents, instances, topics = world_of_pairs()
    semantics = documents[np.flatnonzero(topics == 0)]
    own = semantics.shape[0] + np.arange(len(instances))
    together = sp.csr_matrix(sp.vstack([semantics, documents[instances]]))
    found = {}
    for n_semantics in (semantics.shape[0], None):
        experts = LabelExperts(random_state=0, **QUICK)
        experts.fit(X[instances], documents[instances], together, own, n_semantics=n_semantics)
        found[n_semantics] = experts.probabilities(X[topics == 0])[:, 1].mean()
    assert found[semantics.shape[0]] > 1.1 * found[None]


def test_late_labels_are_as_common_as_labels_are_unless_a_sample_tells():
    picked = late_frequencies(np.array([2.0]), holding=2, fresh=2, typical=0.03)
    np.testing.assert_allclose(picked, 0.03)
    several = late_frequencies(np.array([2.0, 110.0]), holding=112, fresh=112, typical=0.03)
    np.testing.assert_allclose(several, 0.03, err_msg="what was picked does not tell")
    sampled = late_frequencies(np.array([1000.0]), holding=1000, fresh=100_000, typical=0.2)
    np.testing.assert_allclose(sampled, 0.99 * (1000 + 400 * 0.2) / 100_400 + 0.01 * 0.2)


def test_late_labels_find_their_level_on_instances_that_were_held_out(fitted):
    _, documents, _, topics = world_of_pairs()
    late = sp.csr_matrix((topics == 1).astype(float)[:, None])
    asked = LateLabels(fitted, documents[:, fitted.seen_], late, n_fresh=0)
    found = sigmoid(asked.logits(fitted.reference_))[:, 0]
    weights = fitted.reference_weights_
    assert weights @ found / weights.sum() == pytest.approx(asked.frequencies[0], rel=1e-3)
    natural = LateLabels(fitted, documents[:, fitted.seen_], late, n_fresh=120).frequencies
    assert natural != asked.frequencies


@pytest.mark.parametrize("seed", range(6))
def test_few_semantics_documents_are_enough_for_finite_scores(seed):
    X, documents, instances, _ = world_of_pairs()
    semantics = documents[[0, 1]]
    together = sp.csr_matrix(sp.vstack([semantics, documents[instances]]))
    own = 2 + np.arange(len(instances))
    quick = QUICK | {"document_steps": 2, "instance_steps": 2}
    experts = LabelExperts(random_state=seed, **quick)
    experts.fit(X[instances], documents[instances], together, own, n_semantics=2)
    assert np.isfinite(experts.probabilities(X)).all()


def test_without_unseen_labels_late_ones_need_to_be_as_likely_as_the_precision():
    X, documents, _, _ = world_of_pairs(60)
    quick = QUICK | {"document_steps": 2, "instance_steps": 2}
    experts = LabelExperts(random_state=0, **quick).fit(X, documents, documents, np.arange(60))
    assert experts.unseen_threshold(0.25) == pytest.approx(0.25)
    alone = LabelExperts(random_state=0, **quick)
    alone.fit(X, documents, documents, np.arange(60), np.zeros(60, dtype=np.int64))
    with pytest.raises(InputError, match="can be held out"):
        alone.thresholds(0.5)


@pytest.mark.parametrize("slopes", [1.2, (1.0,), (-1.0, 1.0), (0.0, 1.0)])
def test_bad_slopes_are_named_before_training(slopes):
    with pytest.raises(InputError, match="`slopes` of `LabelExperts` must be"):
        LabelExperts(slopes=slopes).fit(np.eye(2), sp.eye(2).tocsr(), sp.eye(2).tocsr(), [0, 1])


def test_numbers_of_a_grid_search_can_be_saved(fitted):
    import json

    other = LabelExperts.from_state(*fitted.get_state())
    other.set_params(n_folds=np.int64(3), slopes=(np.float64(1.1), 1.4))
    json.dumps(other.get_state()[0])


def test_experts_of_an_earlier_version_are_refused_in_a_sentence(fitted):
    config, arrays = fitted.get_state()
    old = {name: one for name, one in arrays.items() if not name.startswith("levels.")}
    with pytest.raises(ModelFileError, match="written by an earlier version of polyseme"):
        LabelExperts.from_state(config, old)


def test_instances_groups_hold_for_documents_they_share_with_semantics():
    tags = [["a", "b"], ["b", "c"], ["c", "d"], ["d", "a"]]
    ids = ["1", "2", "3", "4"]
    corpus = replace(LabelCorpus.from_documents(tags, ids=ids), groups=("x", "x", "y", "y"))
    teaching = LabelCorpus.from_documents([*tags, ["a", "c"]], ids=[*ids, "5"])
    groups = lessons_of(corpus, teaching, teaching.labels).groups
    assert groups[0] == groups[1] != groups[2] == groups[3] and groups[4] not in groups[:4]


def test_a_late_label_goes_where_its_documents_go(fitted):
    X, documents, _, topics = world_of_pairs()
    late = sp.csr_matrix(((topics == 1) & (np.arange(120) % 4 == 0)).astype(float)[:, None])
    asked = LateLabels(fitted, documents[:, fitted.seen_], late, n_fresh=0)
    found = asked.logits(fitted.readings(X))[:, 0]
    assert found[topics == 1].min() > found[topics != 1].max()


@pytest.mark.parametrize("device", ["nowhere", "cuda:99", 3])
def test_a_device_that_is_not_there_is_named(device):
    with pytest.raises(InputError, match=r"`device` of `LabelExperts` is .* torch cannot use"):
        LabelExperts(device=device).fit(np.eye(2), sp.eye(2).tocsr(), sp.eye(2).tocsr(), [0, 1])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_learns_the_same_within_what_chance_makes():
    X, documents, instances, topics = world_of_pairs()
    experts = LabelExperts(random_state=0, device="cuda", **QUICK)
    found = experts.fit(X[instances], documents[instances], documents, instances).probabilities(X)
    assert found[topics == 0, 1].min() > found[topics != 0, 1].max()


# ------------------------------------------------------------------ in the tagger


def test_predictions_agree_with_probabilities_and_ranks(toy_tagger, world):
    table = toy_tagger.predict_proba(world.X_test)
    labels, scores = toy_tagger.rank(world.X_test, k=3)
    for row, tags in enumerate(toy_tagger.predict(world.X_test, threshold=0.3)):
        likely = {toy_tagger.labels_[column] for column in np.flatnonzero(table[row] >= 0.3)}
        assert set(tags) == likely
        assert list(tags[:3]) == labels[row][: len(tags)].tolist()
        assert scores[row, 0] == table[row].max()


def test_a_target_precision_gives_fewer_tags_that_are_right(toy_tagger, world):
    truth = world.truth(toy_tagger.labels_)
    place = {label: column for column, label in enumerate(toy_tagger.labels_)}
    sizes, shares = [truth.size], [truth.mean()]
    for precision in (0.3, 0.5):
        found = toy_tagger.predict(world.X_test, precision=precision)
        likely = toy_tagger.predict_proba(world.X_test) >= toy_tagger.thresholds(precision)
        assert [set(tags) for tags in found] == [
            {toy_tagger.labels_[column] for column in np.flatnonzero(row)} for row in likely
        ]
        right = [truth[row, place[tag]] for row, tags in enumerate(found) for tag in tags]
        sizes.append(len(right))
        shares.append(np.mean(right))
    assert sizes[0] > sizes[1] > sizes[2] > 0
    assert shares[0] < shares[1] < shares[2]
    with pytest.raises(InputError, match="`precision` of `predict`"):
        toy_tagger.predict(world.X_test, precision=1.5)


def test_tags_and_features_are_fused(toy_tagger, world):
    beach = world.X_test[world.themes_test.index("beach")][None]
    plain, _ = toy_tagger.rank(beach, k=3)
    given, scores = toy_tagger.rank(beach, k=3, tags=[["keyboard"]])
    assert given[0, 0] == "keyboard" and scores[0, 0] == 1
    column = toy_tagger.labels_.index("screen")
    moved = toy_tagger.score_labels(beach, tags=[["keyboard"]])[0, column]
    assert moved > toy_tagger.score_labels(beach)[0, column]
    assert "keyboard" not in plain
    with pytest.warns(PolysemeWarning, match="passed over: nonsense"):
        toy_tagger.rank(beach, tags=[["nonsense"]])
    with pytest.raises(InputError, match="2 collections for 1 instances"):
        toy_tagger.rank(beach, tags=[["sea"], ["sand"]])


def test_other_scores_have_no_probabilities(world, tiny_embedding):
    tagger = ZeroShotTagger(embedding=tiny_embedding(), score="nearest", random_state=0)
    tagger.fit(world.X, world.documents)
    assert tagger.experts_ is None
    for ask in (tagger.predict_proba, tagger.predict):
        with pytest.raises(InputError, match="need the score 'experts'"):
            ask(world.X_test)
    with pytest.raises(InputError, match="`tags` need the score 'experts'"):
        tagger.rank(world.X_test[:1], tags=[["sea"]])


def test_labels_that_turn_up_later_survive_saving(toy_tagger, world, tmp_path):
    toy_tagger.save(tmp_path / "model")
    tagger = load(tmp_path / "model")
    np.testing.assert_array_equal(
        tagger.predict_proba(world.X_test), toy_tagger.predict_proba(world.X_test)
    )
    tagger.add_documents([("sea", "jellyfish"), ("sand", "jellyfish")])
    tagger.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_allclose(
        again.predict_proba(world.X_test), tagger.predict_proba(world.X_test), rtol=1e-6
    )
