from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import NuSVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyseme import InstanceMapper
from polyseme._validation import InputError, NotFittedError, PolysemeWarning

FIXED = {
    "nu-svr": {"nu": 0.3, "C": 1.0, "gamma": 0.5},
    "kernel-ridge": {"penalty": 0.1, "gamma": 0.5},
}
KINDS = sorted(FIXED)


@pytest.fixture(scope="module")
def problem():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(120, 4))
    weights = generator.normal(size=(4, 6))
    points = np.tanh(X @ weights) + 0.1 * generator.normal(size=(120, 6))
    return X, points, generator.normal(size=(30, 4))


def mapper(kind, **parameters):
    return InstanceMapper(kind=kind, random_state=0, **(FIXED[kind] | parameters))


# ------------------------------------------------------------------ what it computes


def test_nu_svr_equals_libsvm_output_by_output(problem):
    X, points, queries = problem
    ours = mapper("nu-svr", scaling="none", tolerance=1e-6).fit(X, points).predict(queries)
    for output in range(points.shape[1]):
        reference = NuSVR(nu=0.3, C=1.0, gamma=0.5, tol=1e-6).fit(X, points[:, output])
        np.testing.assert_allclose(ours[:, output], reference.predict(queries), atol=1e-3)


def test_the_reference_solver_gives_the_same(problem):
    X, points, queries = problem
    fast = mapper("nu-svr", tolerance=1e-6).fit(X, points).predict(queries)
    slow = mapper("nu-svr", tolerance=1e-6, solver="libsvm").fit(X, points).predict(queries)
    np.testing.assert_allclose(fast, slow, atol=1e-3)


def test_kernel_ridge_equals_scikit_learn(problem):
    X, points, queries = problem
    ours = mapper("kernel-ridge", scaling="none").fit(X, points).predict(queries)
    reference = KernelRidge(alpha=0.1, gamma=0.5, kernel="rbf").fit(X, points - points.mean(axis=0))
    np.testing.assert_allclose(ours, reference.predict(queries) + points.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_scaling_is_part_of_the_model(problem, kind):
    X, points, queries = problem
    stretched = np.array([1e-3, 1.0, 50.0, 1e4])
    plain = mapper(kind).fit(X, points).predict(queries)
    scaled = mapper(kind).fit(X * stretched + 7, points).predict(queries * stretched + 7)
    np.testing.assert_allclose(plain, scaled, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", ["l2", "none"])
def test_sparse_features_give_what_dense_ones_give(problem, kind, scaling):
    X, points, queries = problem
    X, queries = np.where(X > 0, X, 0), np.where(queries > 0, queries, 0)
    dense = mapper(kind, scaling=scaling).fit(X, points)
    sparse = mapper(kind, scaling=scaling).fit(sp.csr_matrix(X), points)
    assert sp.issparse(sparse.X_fit_)
    np.testing.assert_allclose(
        sparse.predict(sp.csr_matrix(queries)), dense.predict(queries), atol=1e-3
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_memory_bound_changes_nothing(problem, kind):
    X, points, queries = problem
    fitted = mapper(kind).fit(X, points)
    whole = fitted.predict(queries)
    fitted.set_params(memory_mb=0.005)
    np.testing.assert_allclose(fitted.predict(queries), whole, atol=1e-5)


# ------------------------------------------------------------------ the search


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_finds_the_gamma_that_fits(kind):
    generator = np.random.default_rng(1)
    X = generator.uniform(-3, 3, size=(200, 1))
    wavy = np.sin(6 * X)
    chosen = InstanceMapper(kind=kind, random_state=0).fit(X, wavy)
    assert chosen.cv_results_
    errors = [result["mse"] for result in chosen.cv_results_]
    best = chosen.cv_results_[int(np.argmin(errors))]
    assert chosen.gamma_ == best["gamma"]
    gammas = sorted({result["gamma"] for result in chosen.cv_results_})
    assert chosen.gamma_ == gammas[-1], "a wavy function needs the narrowest kernel"


def test_given_parameters_are_not_searched(problem):
    X, points, _ = problem
    fitted = mapper("nu-svr").fit(X, points)
    assert (fitted.nu_, fitted.C_, fitted.gamma_) == (0.3, 1.0, 0.5)
    assert fitted.cv_results_ == []


def test_same_seed_same_bits(problem):
    X, points, queries = problem
    first, second = (InstanceMapper(random_state=3).fit(X, points) for _ in range(2))
    assert np.array_equal(first.predict(queries), second.predict(queries))
    assert first.cv_results_ == second.cv_results_


def test_fewer_instances_than_folds_and_a_single_one_work(problem):
    X, points, queries = problem
    with pytest.warns(PolysemeWarning, match="only 2 instances; cross-validating with 2"):
        InstanceMapper(random_state=0).fit(X[:2], points[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        alone = InstanceMapper(random_state=0).fit(X[:1], points[:1])
    np.testing.assert_allclose(alone.predict(queries), np.tile(points[0], (30, 1)), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_constant_features_and_targets_are_harmless(kind):
    X = np.ones((10, 3))
    points = np.column_stack([np.full(10, 2.0), np.linspace(0, 1, 10)])
    predicted = InstanceMapper(kind=kind, random_state=0).fit(X, points).predict(X)
    np.testing.assert_allclose(predicted[:, 0], 2.0, atol=1e-5)
    assert np.isfinite(predicted).all() and np.ptp(predicted[:, 1]) < 1e-5


# ------------------------------------------------------------------ saving and manners


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_state_comes_back_bit_for_bit(problem, kind, form):
    X, points, queries = problem
    fitted = mapper(kind).fit(form(X), points)
    again = InstanceMapper.from_state(*fitted.get_state())
    assert np.array_equal(again.predict(queries), fitted.predict(queries))
    assert again.get_params() == fitted.get_params()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kind": "svm"}, "`kind` of `InstanceMapper` must be one of"),
        ({"nu": 0.0}, "`nu` of `InstanceMapper`"),
        ({"C": -1.0}, "`C` of `InstanceMapper` must be a number above 0"),
        ({"gamma": "wide"}, "`gamma` of `InstanceMapper`"),
        ({"scaling": "max"}, "`scaling` of `InstanceMapper`"),
        ({"n_folds": 1}, "`n_folds` of `InstanceMapper`"),
        ({"memory_mb": 0.01}, "at most 25 instances"),
    ],
)
def test_a_bad_parameter_is_named(problem, parameters, message):
    X, points, _ = problem
    with pytest.raises(InputError, match=message):
        InstanceMapper(**parameters).fit(X, points)


def test_bad_data_gets_one_sentence(problem):
    X, points, _ = problem
    holes = points.copy()
    holes[4, 0] = np.nan
    with pytest.raises(InputError, match="first in row 4"):
        mapper("nu-svr").fit(X, holes)
    with pytest.raises(InputError, match="119 rows but `X` has 120"):
        mapper("nu-svr").fit(X, points[:-1])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        mapper("nu-svr").predict(X)


# Why scikit-learn's checks that fail should fail.
EXPECTED_FAILURES = {
    "check_fit_score_takes_y": "the targets are points in concept space and are called so",
    "check_dtype_object": "text among the features is an InputError (a ValueError) with one "
    "sentence, where the check wants a TypeError",
}


@parametrize_with_checks(
    [mapper(kind) for kind in KINDS], expected_failed_checks=lambda estimator: EXPECTED_FAILURES
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        check(estimator)
