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
    STRENGTHS,
    Correction,
    CorrectionTable,
    _solve,
    fit_correction,
)
from polyseme.space.calibration import sigmoid
from polyseme.space.features import PROJECTION_SIZE, project

NOTHING = (np.zeros((0, 0), dtype=np.float32), np.zeros(0), np.zeros(0))


def asked(n=20, n_features=6, agree=True, seed=0):
    """Projections, logits and answers that agree with the logits or contradict them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_features))
    projections = project(features.astype(np.float32))
    first_axis = projections[:, 0].astype(np.float64)
    logits = 6.0 * first_axis
    answers = (logits > 0) == agree
    return projections, logits, answers


def exact(projections, logits, answers):
    """Return examples in double precision."""
    exact_projections = projections.astype(np.float64)
    targets = answers.astype(float)
    return exact_projections, logits, targets


def corrected(logits, projections, correction):
    """Return logits after a correction."""
    additions = projections @ correction.weights
    return logits + additions + correction.intercept


def mean_probability(logits, weights):
    """Return the weighted mean of probabilities."""
    probabilities = sigmoid(logits)
    return weights @ probabilities / weights.sum()


def minus_log_posterior(parameters, projections, logits, answers, strength):
    """Compute the logistic loss of answers, and the Gaussian of weights and offset."""
    weights = parameters[:-1]
    offset = parameters[-1]
    corrected_logits = logits + projections @ weights + offset
    margins = np.where(answers, -corrected_logits, corrected_logits)
    losses = np.logaddexp(0, margins)
    weight_penalty = 0.5 * weights @ weights / strength
    offset_penalty = 0.5 * offset**2 / OFFSET
    return losses.sum() + weight_penalty + offset_penalty


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("certain", [1.0, 4.0])
@pytest.mark.parametrize("agree", [True, False])
def test_the_closed_form_is_the_optimum_of_the_posterior(strength, agree, certain):
    projections, logits, answers = asked(agree=agree)
    logits *= certain
    examples = exact(projections, logits, answers)
    solution = _solve(*examples, strength)
    start = np.zeros(projections.shape[1] + 1)
    best = minimize(
        minus_log_posterior,
        start,
        args=(examples[0], logits, answers, strength),
        options={"gtol": 1e-9},
    )
    assert_allclose(solution.weights, best.x, atol=1e-5)


@pytest.mark.parametrize("agree", [True, False])
def test_a_solution_is_the_same_wherever_it_starts(agree):
    examples = exact(*asked(40, agree=agree))
    plain = _solve(*examples, 3.0)
    weaker = _solve(*examples, 0.3)
    warm = _solve(*examples, 3.0, weaker)
    for cold_start, warm_start in zip(plain, warm, strict=True):
        assert_allclose(cold_start, warm_start, rtol=1e-7, atol=1e-9)


def test_fewer_answers_than_dimensions_are_solved_alike():
    projections, logits, answers = asked(20, n_features=50, agree=False)
    projections[3] = projections[4]  # of two items that are one no more can be learned than of one
    correction = fit_correction(projections, logits, answers, *NOTHING)
    examples = exact(projections, logits, answers)
    solutions = [_solve(*examples, strength) for strength in STRENGTHS]
    evidence = np.array([solution.log_evidence for solution in solutions])
    weights = np.stack([solution.weights for solution in solutions])
    shares = np.exp(evidence - evidence[0])
    shares /= shares.sum()
    expected = shares @ weights
    actual = [*correction.weights, correction.intercept]
    assert_allclose(actual, expected, atol=1e-8)


def test_the_evidence_is_the_one_of_laplace():
    projections, logits, answers = asked(30, agree=False)
    examples = exact(projections, logits, answers)
    exact_projections = examples[0]
    weights, evidence, _ = _solve(*examples, 3.0)
    scaled = exact_projections * 3.0**0.5
    rows = np.hstack([scaled, np.ones((30, 1))])
    corrected_logits = logits + exact_projections @ weights[:-1] + weights[-1]
    probabilities = sigmoid(corrected_logits)
    variances = probabilities * (1 - probabilities)
    weighted_rows = rows * variances[:, None]
    hessian = np.eye(7) + rows.T @ weighted_rows
    _, log_determinant = np.linalg.slogdet(hessian)
    log_posterior = -minus_log_posterior(weights, exact_projections, logits, answers, 3.0)
    expected = log_posterior - 0.5 * log_determinant
    assert evidence == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("agree", "weak"), [(True, True), (False, False)])
def test_answers_that_confirm_are_explained_by_the_weakest_function(agree, weak):
    examples = exact(*asked(30, agree=agree))
    solutions = [_solve(*examples, strength) for strength in STRENGTHS]
    evidence = [solution.log_evidence for solution in solutions]
    strongest = int(np.argmax(evidence))
    assert (strongest == 0) == weak


def test_contradiction_moves_more_than_confirmation():
    confirmation = fit_correction(*asked(30, agree=True), *NOTHING)
    contradiction = fit_correction(*asked(30, agree=False), *NOTHING)
    confirmed_change = np.abs(confirmation.weights).max()
    contradicted_change = np.abs(contradiction.weights).max()
    assert contradicted_change > 3 * confirmed_change


def test_yes_to_what_was_very_unlikely_is_taken():
    """Newton's method with full steps would oscillate for ever here."""
    unit = np.eye(1, 6, dtype=np.float32)
    projections = np.repeat(project(unit), 10, axis=0)
    logits = np.full(10, -8.0)
    answers = np.ones(10, dtype=bool)
    correction = fit_correction(projections, logits, answers, *NOTHING)
    after = corrected(logits[0], projections[0], correction)
    assert after > 0


def test_answers_are_agreed_with():
    projections, logits, answers = asked(30, agree=False)
    correction = fit_correction(projections, logits, answers, *NOTHING)
    after = corrected(logits, projections, correction)
    agrees_after = (after > 0) == answers
    agrees_before = (logits > 0) == answers
    assert agrees_after.mean() > 0.9
    assert not agrees_before.any()


def test_the_label_is_expected_as_often_as_before_on_the_background():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(200, 6))
    background = project(features.astype(np.float32))
    background_logits = rng.normal(size=200) - 2
    weights = rng.random(200) + 0.5
    correction = fit_correction(*asked(30, agree=False), background, background_logits, weights)
    changes = background @ correction.weights
    corrected_logits = corrected(background_logits, background, correction)
    before = mean_probability(background_logits, weights)
    after = mean_probability(corrected_logits, weights)
    assert np.abs(changes).max() > 0.5
    assert after == pytest.approx(before, abs=1e-4)


def test_the_order_of_answers_changes_the_last_bits_at_the_most():
    projections, logits, answers = asked()
    order = np.random.default_rng(0).permutation(len(answers))
    in_order = fit_correction(projections, logits, answers, *NOTHING)
    shuffled = fit_correction(projections[order], logits[order], answers[order], *NOTHING)
    assert_allclose(in_order.weights, shuffled.weights, atol=1e-9)


@pytest.mark.parametrize("n_features", [1, 6, PROJECTION_SIZE])
def test_few_features_are_left_as_they_are_but_for_their_length(n_features):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5, n_features)).astype(np.float32)
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    units = features / lengths
    assert_allclose(project(features), units, rtol=1e-5)


def test_corrections_side_by_side_add_what_each_adds():
    rng = np.random.default_rng(0)
    projections = rng.normal(size=(4, 3)).astype(np.float32)
    several = {column: Correction(rng.normal(size=3), float(column)) for column in (2, 5, 9)}
    table = CorrectionTable.of(several)
    assert table.columns.tolist() == [2, 5, 9]
    additions = table.additions(projections)
    for added, correction in zip(additions.T, several.values(), strict=True):
        expected_added = corrected(0.0, projections, correction)
        assert_allclose(added, expected_added)
    selected = table.select([7, 9, 2])
    assert selected.columns.tolist() == [1, 2], "places among the columns that were asked for"
    expected = additions[:, [2, 0]]
    assert_allclose(selected.additions(projections), expected)
    no_corrections = CorrectionTable.of({})
    assert not len(no_corrections.select([1]).columns)


def test_projections_of_many_features_keep_cosines():
    rng = np.random.default_rng(0)
    themes = rng.normal(size=(4, 3000))
    noise = rng.normal(size=(40, 3000))
    features = themes[np.arange(40) % 4] + noise
    features = features.astype(np.float32)
    projections = project(features)
    assert projections.shape == (40, PROJECTION_SIZE)
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    errors = projections @ projections.T - units @ units.T
    tolerance = 5 / PROJECTION_SIZE**0.5
    assert np.abs(errors).max() < tolerance


def test_projections_are_the_same_in_a_new_process():
    code = (
        "import numpy as np, hashlib; from polyseme.space.features import _projection_matrix;"
        "print(hashlib.sha256(_projection_matrix(600).tobytes()).hexdigest())"
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
