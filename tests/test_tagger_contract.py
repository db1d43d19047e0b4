"""What every tagger keeps to, the default and the published method alike."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import polyseme
from polyseme._validation import InputError, PolysemeWarning
from polyseme.metrics import example_map


@pytest.fixture(params=["toy_tagger", "published_tagger"], scope="session", ids=["space", "paper"])
def tagger(request):
    """A fitted tagger, which no test may change."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def own(tagger, tmp_path):
    """A copy that a test may change."""
    tagger.save(tmp_path / "model")
    return polyseme.load(tmp_path / "model")


def test_all_labels_of_the_theme_rank_above_all_others(tagger, world):
    truth = world.truth(tagger.classes_)
    assert example_map(truth, tagger.decision_function(world.X_test)) > 0.97


@pytest.mark.parametrize("kind", ["seen", "unseen", "oov"])
def test_every_kind_of_label_is_ranked_right(tagger, world, kind):
    columns = tagger.kinds_ == kind
    truth = world.truth(tagger.classes_)[:, columns]
    scores = tagger.decision_function(world.X_test)[:, columns]
    for row in np.flatnonzero(truth.any(axis=1)):
        assert scores[row][truth[row]].min() > scores[row][~truth[row]].max()


def test_kinds_say_what_training_met(tagger, world):
    kinds = dict(zip(tagger.classes_, tagger.kinds_, strict=True))
    assert {label for label, kind in kinds.items() if kind == "unseen"} == set(world.unseen)
    assert {label for label, kind in kinds.items() if kind == "oov"} == set(world.oov)
    assert kinds["apple"] == "seen"
    assert tagger.seen_ == {label for label, kind in kinds.items() if kind == "seen"}
    assert tagger.n_features_in_ == 5 and tagger.dropped_ == ()


def test_batch_equals_one_by_one(tagger, world):
    together = tagger.decision_function(world.X_test[:5])
    single = np.concatenate([tagger.decision_function(x[None]) for x in world.X_test[:5]])
    np.testing.assert_allclose(together, single, rtol=1e-4)


def test_features_in_every_form_give_the_same_scores(tagger, world):
    import pandas as pd
    import polars as pl

    X = world.X_test
    columns = [f"f{i}" for i in range(X.shape[1])]
    expected = tagger.decision_function(X)
    forms = [
        X.tolist(),
        sp.csr_matrix(X),
        sp.coo_array(X),
        pd.DataFrame(X, columns=columns),
        pl.DataFrame(X, columns),
    ]
    for form in forms:
        np.testing.assert_allclose(tagger.decision_function(form), expected, rtol=1e-4)


@settings(deadline=None, max_examples=25)
@given(
    X=st.lists(
        st.lists(st.floats(-1e3, 1e3, allow_nan=False), min_size=5, max_size=5),
        min_size=1,
        max_size=4,
    ),
    k=st.integers(1, 40),
)
def test_any_finite_features_give_a_whole_ranking(tagger, X, k):
    labels, scores = tagger.rank(X, k=k)
    width = min(k, len(tagger.classes_))
    assert labels.shape == scores.shape == (len(X), width)
    assert np.isfinite(scores).all()
    assert all(len(set(row)) == width for row in labels)


def test_completion_follows_the_context(tagger, world):
    at_work, _ = tagger.complete(["apple", "phone", "desk"], k=3)
    at_home, _ = tagger.complete(["apple", "oven", "pie"], k=3)
    assert set(at_work) <= set(world.themes["office"])
    assert set(at_home) <= set(world.themes["kitchen"])


def test_completion_takes_several_tag_sets(tagger):
    labels, scores = tagger.complete([["sea", "sun"], ["oak", "moss"]], k=4)
    assert labels.shape == scores.shape == (2, 4)
    assert labels[0].tolist() == tagger.complete(["sea", "sun"], k=4)[0].tolist()
    one, _ = tagger.complete("sea", k=4)
    assert one.tolist() == tagger.complete(["sea"], k=4)[0].tolist()


def test_unknown_tags_are_named_and_all_unknown_is_an_error(tagger):
    with pytest.warns(PolysemeWarning, match="Unknown tags are passed over: zeppelin"):
        labels, _ = tagger.complete(["sea", "zeppelin"])
    assert labels.tolist() == tagger.complete(["sea"])[0].tolist()
    with pytest.raises(InputError, match="None of the tags is known: zeppelin"):
        tagger.complete(["zeppelin"])
    with pytest.raises(InputError, match="no tag was given"):
        tagger.complete([])


def test_dropped_documents_are_reported(own):
    with pytest.warns(PolysemeWarning, match="1 of 2 documents hold no label"):
        ids = own.add_documents([("zeppelin",), ("sea", "zeppelin")])
    assert len(ids) == 1 and len(own.dropped_) == 1


def test_saving_twice_writes_the_same_bytes(tagger, own, tmp_path):
    tagger.save(tmp_path / "a")
    own.save(tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_loaded_tagger_can_grow_and_be_saved_again(own, tmp_path, world):
    own.add_documents([("sea", "jellyfish"), ("oak", "lichen")])
    own.add_documents([("moss", "lichen")])
    own.save(tmp_path / "grown")
    again = polyseme.load(tmp_path / "grown")
    assert list(again.classes_) == list(own.classes_)
    assert np.array_equal(
        again.decision_function(world.X_test), own.decision_function(world.X_test)
    )


def test_wrong_columns_at_ranking_are_named(tagger):
    name = type(tagger).__name__
    with pytest.raises(InputError, match=f"X has 3 features, but {name} is expecting 5"):
        tagger.rank(np.zeros((1, 3)))
