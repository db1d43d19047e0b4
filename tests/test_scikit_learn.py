"""scikit-learn's contract: its own checks, cloning, pipelines, searches, output containers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from polyseme import ConceptSpace, PublishedTagger, SpacePlan, ZeroShotTagger, load
from polyseme.base.validation import InputError
from polyseme.metrics import evaluate, evaluate_tagger, example_map
from polyseme_experiments.baselines import NearestInstances

SMALL = SpacePlan(hidden=8, code=8, document_batch=24, item_batch=16, probable_batch=8)


def small(**parameters):
    space = ConceptSpace(n_folds=2, members_per_fold=1, n_steps=20, plan=SMALL)
    return ZeroShotTagger(space=space, n_validations=0, random_state=0, **parameters)


class OneClassAnItem(ZeroShotTagger):
    """The checks know one class an item only: as an indicator matrix it is a tag set."""

    def fit(self, X, y, label_sets=None):
        return super().fit(X, _indicator(y), label_sets)

    def score(self, X, y):
        return super().score(X, _indicator(y))


def _indicator(y):
    if y is None:
        return None
    classes = np.asarray(y).ravel()
    return (classes[:, None] == np.unique(classes)).astype(int)


EXPECTED = {
    "check_dtype_object": "a refused X is an InputError, a ValueError, where TypeError is wanted",
    "check_estimator_sparse_array": "predictions of several labels have two dimensions",
    "check_estimator_sparse_matrix": "predictions of several labels have two dimensions",
    "check_fit2d_1sample": "the sentence says that two different labels are needed",
    "check_methods_sample_order_invariance": "codes are float32, as below",
    "check_methods_subset_invariance": "codes are float32: products differ in their last bits",
}


@parametrize_with_checks(
    [OneClassAnItem(**small().get_params(deep=False))],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", ["array", "sparse", "frame"])
def test_an_indicator_matrix_comes_out_as_it_came_in(world, kind):
    labels = sorted({label for tags in world.documents for label in tags})
    table = np.array([[label in tags for label in labels] for tags in world.documents]).astype(int)
    table = np.insert(table, 2, 0, axis=1)  # a column that no item has
    names = [*labels[:2], "nothing", *labels[2:]]
    y = {
        "array": table,
        "sparse": sp.csr_matrix(table),
        "frame": pd.DataFrame(table, columns=names),
    }
    sets = world.label_sets if kind == "frame" else None  # numbered columns have no names
    tagger = small().fit(world.X, y[kind], sets, label_sets_only=sets is not None)
    columns = names if kind == "frame" else [str(column) for column in range(len(names))]
    classes = list(tagger.classes_[: len(names)])
    assert classes == columns
    predicted = tagger.predict(world.X)
    likely = tagger.predict_proba(world.X)
    assert predicted.shape == table.shape
    assert set(np.unique(predicted)) <= {0, 1}
    expected_predicted = likely[:, : len(names)] >= 0.5
    assert_array_equal(predicted, expected_predicted)
    assert not likely[:, 2].any()
    assert tagger.kinds_[2] == "oov"
    if kind == "frame":  # the label sets name further labels, and tag sets give the same scores
        plain = small().fit(world.X, world.documents, world.label_sets, label_sets_only=True)
        order = [list(plain.classes_).index(name) for name in tagger.classes_ if name != "nothing"]
        remaining_columns = [column for column in range(len(tagger.classes_)) if column != 2]
        expected_likely = plain.predict_proba(world.X)[:, order]
        assert_array_equal(likely[:, remaining_columns], expected_likely)
        expected_shape = (len(tagger.classes_),)
        assert tagger.thresholds(0.5).shape == expected_shape
        probabilities_with_tags = tagger.predict_proba(world.X[:1], tags=[["sea"]])
        assert probabilities_with_tags[0, list(tagger.classes_).index("sea")] == 1
        assert tagger.explain(world.X[0], "sea").kind == "seen"


def test_score_is_the_mean_average_precision_of_items(toy_tagger, world):
    truth = world.truth(toy_tagger.classes_)
    documents = [toy_tagger.classes_[row].tolist() for row in truth]
    expected = example_map(truth, toy_tagger.predict_proba(world.X_test))
    assert toy_tagger.score(world.X_test, documents) == pytest.approx(expected)
    with pytest.raises(InputError, match="takes no weights"):
        toy_tagger.score(world.X_test, documents, sample_weight=np.ones(len(documents)))


def test_parameters_of_the_space_are_reached_whether_it_is_given_or_not():
    tagger = ZeroShotTagger()
    assert tagger.get_params()["space__n_folds"] is None
    assert tagger.space is None
    n_folds = tagger.set_params(space__n_folds=3, verbose=True).space.n_folds
    assert n_folds == 3
    tagger.set_params(space__n_folds=4, space=None)
    assert tagger.space.n_folds == 4
    tagger.set_params(space__n_folds=3)
    assert clone(tagger).get_params()["space__n_folds"] == 3
    with pytest.raises(ValueError, match="Invalid parameter 'bogus'"):
        ZeroShotTagger().set_params(space__bogus=1)
    untouched = ZeroShotTagger()
    with pytest.raises(ValueError, match="Invalid parameter 'bogus'"):
        untouched.set_params(bogus=1, space__n_folds=3)
    assert untouched.space is None


def test_cross_validation_and_search_need_no_extra_words(world):
    X = world.X[:60]
    y = world.documents[:60]
    tagger = small().set_params(space__n_steps=100)
    scores = cross_val_score(tagger, X, y, cv=2)
    assert scores.shape == (2,)
    assert (scores > 0.4).all()
    search = GridSearchCV(small(), {"space__context": [0.0, 0.5]}, cv=2)
    search.fit(X, y, label_sets=world.label_sets, label_sets_only=True)
    assert search.best_params_["space__context"] in (0.0, 0.5)


def test_a_pipeline_hands_on_codes_with_names(world):
    pipeline = make_pipeline(StandardScaler(), small()).fit(world.X, world.documents)
    codes = pipeline.transform(world.X_test)
    expected_shape = (len(world.X_test), len(pipeline.get_feature_names_out()))
    assert codes.shape == expected_shape
    tagger = pipeline[-1].set_output(transform="pandas")
    expected_columns = list(tagger.get_feature_names_out())
    columns = list(tagger.transform(world.X_test).columns)
    assert columns == expected_columns


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_columns_of_a_frame_are_known_by_name(world, tmp_path, kind):
    frame = pd.DataFrame(world.X, columns=[*"abcde"])
    forms = {
        "pandas": lambda table: table,
        "polars": pytest.importorskip("polars").from_pandas,
        "pyarrow": pytest.importorskip("pyarrow").Table.from_pandas,
    }[kind]
    small().fit(forms(frame), world.documents).save(tmp_path / "model")
    tagger = load(tmp_path / "model")
    assert tagger.feature_names_in_.tolist() == [*"abcde"]
    wanted = tagger.predict_proba(world.X)
    probabilities = tagger.predict_proba(forms(frame[[*"edcba"]]))
    assert_array_equal(probabilities, wanted)
    with pytest.raises(InputError, match=r"lacks the column\(s\) a; `ZeroShotTagger` has 5"):
        tagger.predict_proba(forms(frame[[*"bcde"]]))
    with pytest.raises(InputError, match="that are unknown: f;"):
        tagger.predict_proba(forms(frame.assign(f=1.0)))
    plain = small().fit(forms(frame), world.documents).fit(world.X, world.documents)
    assert not hasattr(plain, "feature_names_in_")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "fixed-size"])
def test_a_column_of_vectors_and_a_column_of_tags_are_enough(world, kind):
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"embedding": list(world.X), "tags": world.documents})
    if kind == "polars":
        frame = pl.from_pandas(frame)
    elif kind != "pandas":
        size = pa.list_(pa.float64(), 5) if kind == "fixed-size" else pa.list_(pa.float64())
        tags = pa.array([list(tags) for tags in world.documents])
        frame = pa.table({"embedding": pa.array(list(world.X), type=size), "tags": tags})
    wanted = small().fit(world.X, world.documents).predict_proba(world.X)
    tagger = small().fit(frame["embedding"], frame["tags"])
    assert_array_equal(tagger.predict_proba(frame["embedding"]), wanted)
    # The frame as it is will do, too.
    probabilities = small().fit(frame, y=frame).predict_proba(frame)
    assert_array_equal(probabilities, wanted)


def test_true_labels_are_compared_by_name(world):
    tagger = small().fit(world.X, world.documents)
    wanted = evaluate_tagger(tagger, world.X, world.documents)
    expected_example_map = tagger.score(world.X, world.documents)
    assert wanted["example_map"] == expected_example_map
    labels = tagger.classes_[::-1]
    table = [[label in tags for label in labels] for tags in world.documents]
    truth = pd.DataFrame(table, columns=labels)
    assert evaluate_tagger(tagger, world.X, truth) == wanted
    scores = tagger.predict_proba(world.X)
    with pytest.raises(InputError, match="unknown whether they are in the same order"):
        evaluate(truth, scores)
    measured = evaluate(truth, pd.DataFrame(scores, columns=tagger.classes_))
    assert measured == pytest.approx(wanted, rel=1e-12)


def test_rivals_and_the_published_method_know_columns_by_name(world, published_tagger, tmp_path):
    frame = pd.DataFrame(world.X, columns=[*"abcde"])
    paper = PublishedTagger(
        embedding=published_tagger.embedding_, fit_embedding=False, random_state=0
    )
    paper.fit(frame, world.documents, world.label_sets, label_sets_only=True).save(
        tmp_path / "model"
    )
    for fitted in (load(tmp_path / "model"), NearestInstances().fit(frame, world.documents)):
        wanted = fitted.decision_function(world.X)
        reordered = frame[[*"edcba"]].assign(id=range(len(frame)))
        assert_array_equal(fitted.decision_function(reordered), wanted)
        with pytest.raises(InputError, match=r"lacks the column\(s\) a"):
            fitted.decision_function(frame[[*"bcde"]])
