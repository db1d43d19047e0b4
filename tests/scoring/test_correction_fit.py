"""Corrections by answers: the optimum they are, how far answers are believed, and projections."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from polyseme.scoring.correction_fit import (
    OFFSET,
    PROJECTION_SIZE,
    STRENGTHS,
    Correction,
    CorrectionTable,
    _solve,
    fit_correction,
    project,
)
from polyseme.space.calibration import sigmoid

NOTHING = (np.zeros((0, 0), dtype=np.float32), np.zeros(0), np.zeros(0))


def asked(n=20, n_features=6, agree=True, seed=0):
    """Projections, logits and answers that agree with the logits or contradict them."""
    rng = np.random.default_rng(seed)
    projections = project(rng.normal(size=(n, n_features)).astype(np.float32))
    logits = 6.0 * projections[:, 0].astype(np.float64)
    return projections, logits, (logits > 0) == agree


def minus_log_posterior(parameters, projections, logits, answers, strength):
    """The logistic loss of answers, and the Gaussian of weights and offset."""
    weights = parameters[:-1]
    offset = parameters[-1]
    z = logits + projections @ weights + offset
    likelihood = np.logaddexp(0, np.where(answers, -z, z)).sum()
    return likelihood + 0.5 * weights @ weights / strength + 0.5 * offset**2 / OFFSET


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("certain", [1.0, 4.0])
@pytest.mark.parametrize("agree", [True, False])
def test_the_closed_form_is_the_optimum_of_the_posterior(strength, agree, certain):
    projections, logits, answers = asked(agree=agree)
    logits *= certain
    exact_projections = projections.astype(np.float64)
    weights = _solve(exact_projections, logits, answers.astype(float), strength).weights
    best = minimize(
        minus_log_posterior,
        np.zeros(exact_projections.shape[1] + 1),
        args=(exact_projections, logits, answers, strength),
        options={"gtol": 1e-9},
    )
    assert_allclose(weights, best.x, atol=1e-5)


@pytest.mark.parametrize("agree", [True, False])
def test_a_solution_is_the_same_wherever_it_starts(agree):
    projections, logits, answers = asked(40, agree=agree)
    examples = (projections.astype(np.float64), logits, answers.astype(float))
    plain = _solve(*examples, 3.0)
    warm = _solve(*examples, 3.0, _solve(*examples, 0.3))
    for cold_start, warm_start in zip(plain, warm, strict=True):
        assert_allclose(cold_start, warm_start, rtol=1e-7, atol=1e-9)


def test_fewer_answers_than_dimensions_are_solved_alike():
    projections, logits, answers = asked(20, n_features=50, agree=False)
    projections[3] = projections[4]  # of two items that are one no more can be learned than of one
    correction = fit_correction(projections, logits, answers, *NOTHING)
    examples = (projections.astype(np.float64), logits, answers.astype(float))
    plain = [_solve(*examples, strength) for strength in STRENGTHS]
    shares = np.exp([solution.evidence - plain[0].evidence for solution in plain])
    expected = shares / shares.sum() @ np.stack([solution.weights for solution in plain])
    assert_allclose([*correction.weights, correction.intercept], expected, atol=1e-8)


def test_the_evidence_is_the_one_of_laplace():
    projections, logits, answers = asked(30, agree=False)
    exact_projections = projections.astype(np.float64)
    weights, evidence, _ = _solve(exact_projections, logits, answers.astype(float), 3.0)
    rows = np.hstack([exact_projections * 3.0**0.5, np.ones((30, 1))])
    likely = sigmoid(logits + exact_projections @ weights[:-1] + weights[-1])
    inner = np.eye(7) + rows.T @ (rows * (likely * (1 - likely))[:, None])
    expected = -minus_log_posterior(weights, exact_projections, logits, answers, 3.0)
    assert evidence == pytest.approx(expected - 0.5 * np.linalg.slogdet(inner)[1], abs=1e-6)


@pytest.mark.parametrize(("agree", "weak"), [(True, True), (False, False)])
def test_answers_that_confirm_are_explained_by_the_weakest_function(agree, weak):
    projections, logits, answers = asked(30, agree=agree)
    examples = (projections.astype(np.float64), logits, answers.astype(float))
    evidence = [_solve(*examples, strength).evidence for strength in STRENGTHS]
    assert (int(np.argmax(evidence)) == 0) == weak


def test_contradiction_moves_more_than_confirmation():
    changes = [
        np.abs(fit_correction(*asked(30, agree=agree), *NOTHING).weights).max()
        for agree in (True, False)
    ]
    assert changes[1] > 3 * changes[0]


def test_yes_to_what_was_very_unlikely_is_taken():
    """Full steps of Newton's way and back again would never end there."""
    projections = np.repeat(project(np.eye(1, 6, dtype=np.float32)), 10, axis=0)
    correction = fit_correction(projections, np.full(10, -8.0), np.ones(10, dtype=bool), *NOTHING)
    assert -8.0 + projections[0] @ correction.weights + correction.intercept > 0


def test_answers_are_agreed_with():
    projections, logits, answers = asked(30, agree=False)
    correction = fit_correction(projections, logits, answers, *NOTHING)
    after = logits + projections @ correction.weights + correction.intercept
    assert ((after > 0) == answers).mean() > 0.9
    assert not ((logits > 0) == answers).any()


def test_the_label_is_expected_as_often_as_before_on_the_background():
    rng = np.random.default_rng(1)
    background = project(rng.normal(size=(200, 6)).astype(np.float32))
    background_logits = rng.normal(size=200) - 2
    weights = rng.random(200) + 0.5
    correction = fit_correction(*asked(30, agree=False), background, background_logits, weights)
    before, after = (
        weights @ sigmoid(z) / weights.sum()
        for z in (
            background_logits,
            background_logits + background @ correction.weights + correction.intercept,
        )
    )
    assert np.abs(background @ correction.weights).max() > 0.5
    assert after == pytest.approx(before, abs=1e-4)


def test_the_order_of_answers_changes_the_last_bits_at_the_most():
    projections, logits, answers = asked()
    order = np.random.default_rng(0).permutation(len(answers))
    in_order, shuffled = (
        fit_correction(projections[rows], logits[rows], answers[rows], *NOTHING)
        for rows in (np.arange(len(answers)), order)
    )
    assert_allclose(in_order.weights, shuffled.weights, atol=1e-9)


@pytest.mark.parametrize("n_features", [1, 6, PROJECTION_SIZE])
def test_few_features_are_left_as_they_are_but_for_their_length(n_features):
    features = np.random.default_rng(0).normal(size=(5, n_features)).astype(np.float32)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    assert_allclose(project(features), features / lengths, rtol=1e-5)


def test_corrections_side_by_side_add_what_each_adds():
    rng = np.random.default_rng(0)
    projections = rng.normal(size=(4, 3)).astype(np.float32)
    several = {column: Correction(rng.normal(size=3), float(column)) for column in (2, 5, 9)}
    table = CorrectionTable.of(several)
    assert table.columns.tolist() == [2, 5, 9]
    for added, correction in zip(table.additions(projections).T, several.values(), strict=True):
        expected_added = projections @ correction.weights + correction.intercept
        assert_allclose(added, expected_added)
    selected = table.select([7, 9, 2])
    assert selected.columns.tolist() == [1, 2], "places among the columns that were asked for"
    expected = table.additions(projections)[:, [2, 0]]
    assert_allclose(selected.additions(projections), expected)
    assert not len(CorrectionTable.of({}).select([1]).columns)


def test_projections_of_many_features_keep_cosines():
    rng = np.random.default_rng(0)
    themes = rng.normal(size=(4, 3000))
    features = (themes[np.arange(40) % 4] + rng.normal(size=(40, 3000))).astype(np.float32)
    short = project(features)
    assert short.shape == (40, PROJECTION_SIZE)
    exact = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert np.abs(short @ short.T - exact @ exact.T).max() < 5 / PROJECTION_SIZE**0.5


def test_projections_are_the_same_in_a_new_process():
    code = (
        "import numpy as np, hashlib; from polyseme.space.projection import _signs;"
        "print(hashlib.sha256(_signs(600).tobytes()).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    }
    # The projections of saved models would be of another space if this changed.
    assert runs == {"595bc584b66fd57f2aa7a52754bc1e20835bf4bdd493ede68f79a60ef85c1336"}


def test_an_item_without_features_has_a_projection_of_zeros():
    assert not project(np.zeros((1, 4), dtype=np.float32)).any()
