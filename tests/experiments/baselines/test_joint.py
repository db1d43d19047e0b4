"""Joint factors: closed-form steps against the gradient of what they maximise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from polyseme.metrics import roc_auc
from polyseme_experiments.baselines import JointFactors
from polyseme_experiments.baselines.joint import Pairs, Setting, factorise
from toy_fits import fit_world

SETTING = Setting(3, 2.0, 1.5, 0.8, 2.0)


class NoFeatures:
    """A regression that predicts the same of all items."""

    def fit(self, items):
        return np.zeros_like(items)


@pytest.fixture(scope="module")
def tables():
    generator = np.random.default_rng(0)
    labels = generator.random((30, 6)) < 0.4
    shares = np.linspace(0.2, 0.6, 6)
    sets = (generator.random((80, 6)) < shares).astype(float)
    pairs = Pairs(sets.T @ sets, len(sets))
    return labels.astype(float), pairs


def fit_items(labels, vectors, offsets):
    """Return the items' vectors that belong to labels' vectors, by Newton steps on their own."""
    precision = SETTING.item_precision
    items = np.zeros((len(labels), vectors.shape[1]))
    for _ in range(50):
        likely = expit(items @ vectors.T + offsets)
        for row, p in enumerate(likely):
            residual = labels[row] - p
            slope = vectors.T @ residual - precision * items[row]
            curvature = (vectors.T * (p * (1 - p))) @ vectors
            curvature += precision * np.eye(len(slope))
            items[row] += np.linalg.solve(curvature, slope)
    return items


def pair_slope(vectors, pairs, label):
    """Return the slope of the likelihood of a label's co-occurrences."""
    dispersion = SETTING.dispersion
    slope = np.zeros(vectors.shape[1])
    for partner in range(len(vectors)):
        if partner == label:
            continue
        count = pairs.counts[label, partner]
        offset = np.log(pairs.expected[label, partner] / dispersion)
        mean = expit(vectors[label] @ vectors[partner] + offset)
        pull = count - (count + dispersion) * mean
        slope += pull * vectors[partner]
    return SETTING.cooccurrence_weight * slope


def test_the_steps_end_where_the_posterior_is_flat(tables):
    labels, pairs = tables
    observed = np.ones(labels.shape, dtype=bool)
    observed[:, 4:] = False  # two labels without instances
    offsets = np.linspace(-1, 0.5, 6)
    vectors, _ = factorise(labels, observed, offsets, pairs, NoFeatures(), SETTING, 2000)
    items = fit_items(labels[:, :4], vectors[:4], offsets[:4])
    likely = expit(items @ vectors.T + offsets)
    for label in range(6):
        slope = pair_slope(vectors, pairs, label)
        slope -= SETTING.label_precision * vectors[label]
        if label < 4:
            residual = labels[:, label] - likely[:, label]
            slope += residual @ items
        assert_allclose(slope, 0, atol=1e-4)


def test_expected_counts_are_those_of_independent_labels(tables):
    _, pairs = tables
    counts = np.diag(pairs.counts)
    expected = counts[1] * counts[4] / 80
    assert_allclose(pairs.expected[1, 4], expected)
    assert not pairs.known.diagonal().any()
    assert pairs.known.sum() == 30


def test_unseen_labels_of_the_toy_world_are_found(world):
    joint = JointFactors([(8, 1.0, 1.0, 1.0, 1.0)], random_state=0)
    fit_world(joint, world)
    unseen = joint.kinds_ == "unseen"
    truth = world.truth(joint.classes_)
    scores = joint.decision_function(world.X_test)
    assert roc_auc(truth[:, unseen], scores[:, unseen]) > 0.9


def test_the_setting_that_ranks_pseudo_unseen_labels_best_is_chosen(world):
    # Vectors held at 0 cannot tell one item from another.
    useless = Setting(8, 1.0, 1e9, 1.0, 1.0)
    useful = Setting(8, 1.0, 1.0, 1.0, 1.0)
    joint = JointFactors([useless, useful], 2, random_state=0)
    assert fit_world(joint, world).setting_ == useful


def test_labels_are_expected_as_often_as_label_sets_hold_them(world):
    joint = JointFactors([(8, 1.0, 1.0, 1.0, 1.0)], random_state=0)
    fit_world(joint, world)
    scores = joint.decision_function(world.X)
    likely = expit(scores).mean(axis=0)
    for column in np.flatnonzero(joint.kinds_ != "oov"):
        label = joint.classes_[column]
        share = np.mean([label in tags for tags in world.label_sets])
        assert_allclose(likely[column], share, atol=0.05)


def test_an_untagged_item_without_a_verdict_teaches_nothing(world):
    joint = JointFactors([(8, 1.0, 1.0, 1.0, 1.0)], 3, random_state=0)
    joint.fit(world.X, world.documents)
    expected = joint.decision_function(world.X_test)
    joint.fit(world.X, world.documents, unlabelled=world.X_test)
    scores = joint.decision_function(world.X_test)
    assert np.array_equal(scores, expected)
