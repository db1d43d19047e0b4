from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from polyseme.documents.corpus import LabelCorpus
from polyseme.published.priming import PrimingRanker
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments import sampling
from polyseme_experiments.embedding_cache import make_space
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.methods import METHODS, RANKERS, get_method
from polyseme_experiments.methods.baselines import FeatureSet
from polyseme_experiments.methods.calibration import new_labels, picked, shuffled_holders
from polyseme_experiments.methods.costa import CostaSystem
from polyseme_experiments.methods.default import changed
from polyseme_experiments.methods.published import error_free_scores, known_rows
from polyseme_experiments.runner import run_method
from polyseme_experiments.sampling import RunConfig
from polyseme_experiments.settings import SETTINGS, get_setting
from polyseme_experiments.splits import carries
from polyseme_experiments.trials import Trial

QUICK = RunConfig(quick=True)


def trial(setting="hsun", number=0, **config):
    return Trial(get_setting(setting), number, replace(QUICK, **config))


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("number", [0, 4])
def test_every_setting_draws_a_split_that_passes_the_audit(name, number):
    tested = trial(name, number)
    split = tested.split
    assert tested.audit()["passed"]
    assert len(split.train)
    assert len(split.test)
    assert split.labels.unseen
    assert carries(split.instances("test"), split.labels.unseen).all()


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_trial_always_draws_the_same_split(name):
    first = trial(name, 4).split
    second = trial(name, 4).split
    assert first.labels == second.labels
    assert np.array_equal(first.train, second.train)


def test_trials_draw_their_labels_and_take_turns_in_partitions():
    splits = [trial("hsun", number).split for number in range(4)]
    unseen_labels = {split.labels.unseen for split in splits}
    assert len(unseen_labels) == 4
    first, second, third, fourth = [split.training_label_sets().ids for split in splits]
    assert fourth == first
    assert second != first
    assert third != first


def test_detectors_of_unseen_labels_are_dropped():
    hsun = trial("hsun")
    names = set(hsun.feature_names)
    assert names.isdisjoint(hsun.split.labels.unseen)
    n_columns = hsun.instance_features.shape[1]
    assert n_columns == len(names)
    assert n_columns < hsun.target.X.shape[1]


def test_what_a_split_hides_cannot_change_a_bit(monkeypatch):
    """Poison every feature that the split hides: no method's figures may move."""
    clean = trial("hsun", 5)
    split = clean.split
    X = clean.target.X.copy()
    used = np.zeros(len(X), dtype=bool)
    used[split.train] = True
    used[split.test] = True
    X[~used] = 1e6
    unseen_columns = np.isin(clean.target.feature_names, split.labels.unseen)
    X[:, unseen_columns] = -1e6
    poisoned = replace(clean.target, X=X)
    monkeypatch.setattr(sampling, "load_once", lambda *arguments: poisoned)
    dirty = trial("hsun", 5)
    assert dirty.target.X is X
    for name in (*RANKERS, "default"):
        if name == "composition":  # refuses this many labels
            continue
        metrics, _ = get_method(name).run(dirty)
        expected, _ = get_method(name).run(clean)
        assert metrics == expected, name


@pytest.mark.parametrize("name", ["hsun", "magtag-oov", "image-cross"])
def test_documents_that_a_split_hides_cannot_change_a_bit(name, monkeypatch):
    """Change the labels of every document outside the sets in use: no figure may move."""
    clean = trial(name, 1)
    split = clean.split
    one_corpus = split.source is split.target
    used = np.union1d(split.train, split.test)
    if one_corpus:
        taught = np.union1d(split.known_rows, split.semantics_validation)
        used = np.union1d(used, taught)
    hidden = np.setdiff1d(np.arange(len(split.target)), used)
    assert len(hidden)
    matrix = split.target.matrix.tolil()
    matrix[hidden] = ~matrix[hidden].toarray()
    poisoned = replace(split.target, matrix=matrix.tocsr())
    dirty = trial(name, 1)
    source = poisoned if one_corpus else split.source
    dirty.split = replace(split, source=source, target=poisoned)
    dirty.audit = lambda *learned: None  # it would tell that validation is poisoned
    for method in ("polyseme", "default", "tuned-costa", "costa", "popularity"):
        metrics, _ = get_method(method).run(dirty)
        expected, _ = get_method(method).run(clean)
        assert metrics == expected, method


def test_the_papers_own_pair_keeps_labels_and_semantics_of_its_source(monkeypatch):
    monkeypatch.setattr(sampling, "chosen_pair", lambda setting, config: setting.corpora[0])
    magtag = trial("magtag")
    across = trial("music-cross")
    assert across.source.name == "magtag5k"
    assert across.target.name == "msd"
    label_sets = across.split.training_label_sets()
    expected = magtag.split.training_label_sets().ids
    assert label_sets.ids == expected
    assert set(across.split.labels.unseen) <= set(magtag.split.labels.unseen)
    assert across.audit()["passed"]


def test_own_documents_help_where_they_are_known():
    magtag = trial("magtag")
    assert magtag.split.own_documents().any()
    with_own, _ = get_method("error-free-200-own").run(magtag)
    without_own, _ = get_method("error-free-200").run(magtag)
    assert with_own["zsl"]["C-MAP"] > without_own["zsl"]["C-MAP"]


def test_own_documents_change_nothing_where_none_is_known():
    hsun = trial("hsun")
    assert not hsun.split.own_documents().any()
    with_own = get_method("error-free-200-own").run(hsun)
    assert with_own == get_method("error-free-200").run(hsun)


@pytest.fixture(scope="module")
def magtag_space():
    """The concept space of a trial on MagTag5K, and the documents of its tested items."""
    magtag = trial("magtag")
    return magtag.space(10), magtag.split.instances("test")


def priming_scores(space, store, points):
    ranker = PrimingRanker(store.index(64.0), space.embedding_.distance_scale_)
    return ranker.scores(points)


def test_error_free_scores_with_ones_own_document_are_those_of_priming(magtag_space):
    space, tested = magtag_space
    scores = error_free_scores(space.store_, space.embedding_, tested, keep_own=True)
    points = space.embedding_.targets(tested)
    expected = priming_scores(space, space.store_, points)
    assert_array_equal(scores, expected)


def test_leaving_out_ones_own_document_is_the_store_without_it(magtag_space):
    space, tested = magtag_space
    store = space.store_
    rows = known_rows(store, tested)
    with_own = error_free_scores(store, space.embedding_, tested, keep_own=True)
    without_own = error_free_scores(store, space.embedding_, tested)
    points = space.embedding_.targets(tested)
    n_changed = 0
    for place in np.flatnonzero(rows >= 0)[:25]:
        own_name = store.ids[rows[place]]
        smaller = store.remove([own_name])
        (scores,) = priming_scores(space, smaller, points[[place]])
        score_by_label = dict(zip(smaller.labels, scores, strict=True))
        expected = [score_by_label.get(label, 0.0) for label in store.labels]
        assert_allclose(without_own[place], expected, rtol=2e-4, atol=1e-7)
        if not np.allclose(without_own[place], with_own[place]):
            n_changed += 1
    assert n_changed > 2
    assert_array_equal(without_own[rows < 0], with_own[rows < 0])


def test_documents_with_unknown_names_are_not_known(magtag_space):
    space, tested = magtag_space
    names = [f"x{row}" for row in range(len(tested))]
    strangers = replace(tested, ids=tuple(names))
    rows = known_rows(space.store_, strangers)
    assert (rows == -1).all()


def test_methods_that_know_no_oov_labels_are_not_measured_on_them():
    magtag = trial("magtag-oov")
    metrics, _ = get_method("popularity").run(magtag)
    assert {"all", "oov"} <= metrics.keys()
    metrics_of_costa, _ = get_method("costa").run(magtag)
    assert metrics_of_costa.keys() == {"training", "zsl", "zsl-only"}


def test_a_space_is_kept_for_other_trials_and_an_interrupted_one_goes_on(tmp_path, monkeypatch):
    first = trial("hsun", 0, cache=str(tmp_path))
    points = first.space(10).store_.points
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".seconds", ".lock"}
    monkeypatch.setattr(
        "polyseme.published.training.ConceptTrainer.run", None
    )  # nobody may train now
    later = trial("hsun", 3, cache=str(tmp_path))
    assert_array_equal(later.space(10).store_.points, points)
    with pytest.raises(TypeError, match="not callable"):
        trial("hsun", 1, cache=str(tmp_path)).space(10)


def test_shared_parts_are_made_once_and_their_seconds_noted():
    hsun = trial("hsun")
    hsun.used.clear()
    get_method("costa").run(hsun)
    classifiers = hsun.classifiers()
    get_method("costa-dice").run(hsun)
    assert hsun.classifiers() is classifiers
    assert hsun.used == {"classifiers"}
    assert hsun.seconds.keys() == {"classifiers"}
    hsun.used.clear()
    get_method("polyseme").run(hsun)
    hsun.used.clear()
    get_method("polyseme-density").run(hsun)
    assert hsun.used == {"mapping 200", "concept space 200"}


@pytest.mark.parametrize("share", [{"context": 0.0}, {"context": 1.0}, {"priming": 0.0}])
def test_a_default_with_another_share_is_what_a_fit_would_give(share):
    hsun = trial("hsun")
    default = hsun.default_tagger()
    X = hsun.features(hsun.split.test)
    default_scores = default.decision_function(X)
    scores = changed(hsun, default, **share).decision_function(X)
    space = make_space(QUICK, **share)
    fitted = hsun.fitted(ZeroShotTagger(space=space, random_state=hsun.seed))
    assert_array_equal(scores, fitted.decision_function(X))
    assert not np.array_equal(scores, default_scores)
    assert_array_equal(default.decision_function(X), default_scores)
    unchanged = changed(hsun, default)
    assert_array_equal(unchanged.decision_function(X), default_scores)


def test_fewer_members_are_the_first_of_each_fold():
    across = trial("image-cross")
    fitted = across.default_tagger("folds", n_folds=3)
    X = across.features(across.split.test)
    space = fitted.space_
    code = space.plan_.code
    assert len(space.members_) == 3 * space.plan_.members_per_fold
    of_one_member = changed(across, fitted, n_members=1)
    smaller_space = of_one_member.space_
    assert len(smaller_space.members_) == 1
    direct = space.encode_items(X).direct[:, :code]
    smaller_direct = smaller_space.encode_items(X).direct
    assert_allclose(smaller_direct, direct, rtol=0, atol=1e-6)
    codes = of_one_member.transform(X)
    assert codes.shape == (len(X), code + smaller_space.linear_.n_coordinates)
    of_five_members = changed(across, fitted, n_members=5)
    assert len(of_five_members.space_.members_) == 3


def test_without_calibration_and_priming_raw_logits_are_read():
    hsun = trial("hsun")
    default = hsun.default_tagger("without a linear path", linear=0.0)
    X = hsun.features(hsun.split.test)
    bare = changed(hsun, default, calibrated=False, priming=0.0)
    weights, bias = bare.space_.readout(of_items=False)
    logits = default.transform(X) @ weights + bias
    scores = bare.decision_function(X)
    assert_allclose(scores, logits, rtol=1e-6, atol=1e-5)


def test_variants_of_the_default_need_no_further_training():
    hsun = trial("hsun")
    for name in METHODS:
        method = get_method(name)
        if name.startswith("default") and not method.trained:
            method.run(hsun)
    assert hsun.seconds.keys() == {"space"}
    get_method("default-no-soft").run(hsun)
    assert hsun.seconds.keys() == {"space", "space, default-no-soft"}


def test_tuned_costa_has_the_same_metrics_by_either_way():
    hsun = trial("hsun")
    expected, _ = get_method("tuned-costa").run(hsun)
    metrics, _ = CostaSystem("x", "x").run(hsun)
    assert metrics == expected


def test_shifted_levels_keep_the_order_of_each_label():
    hsun = trial("hsun")
    plain, _ = get_method("tuned-costa").run(hsun)
    shifted, _ = get_method("costa-shifted").run(hsun)
    for column, metrics in plain.items():
        assert shifted[column]["C-MAP"] == pytest.approx(metrics["C-MAP"])
    assert shifted["zsl"]["E-MAP"] != plain["zsl"]["E-MAP"]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_new_labels_are_known_from_just_so_many_documents(n):
    documents = [["a", "x"], ["a", "x", "y"], ["b", "y"], ["a", "b", "x"], ["x"], ["a"]]
    corpus = LabelCorpus.from_documents(documents)
    holders = shuffled_holders(corpus, ["x", "y"], np.random.default_rng(0))
    sorted_holders = [sorted(rows.tolist()) for rows in holders]
    assert sorted_holders == [[0, 1, 3], [1, 2]]

    few = picked(corpus, ["x", "y"], [rows[:n] for rows in holders])
    sizes = np.asarray(few.matrix.sum(axis=0)).ravel()
    counts = dict(zip(few.labels, sizes, strict=True))
    assert counts["x"] == min(n, 3)
    assert counts["y"] == min(n, 2)
    for row, name in enumerate(few.ids):
        document = corpus.document(corpus.ids.index(name))
        remaining_labels = set(few.document(row)) - {"x", "y"}
        expected = set(document) - {"x", "y"}
        assert remaining_labels == expected


def test_new_labels_reach_no_training_and_are_a_third_of_those_on_no_instance():
    hsun = trial("hsun")
    labels = hsun.known_documents.labels
    method = get_method("calibration-late")
    new = new_labels(hsun, np.random.default_rng(hsun.seed))
    unseen = set(labels) - hsun.train_documents.used(labels)
    assert set(new) <= unseen
    assert len(new) == max(1, len(unseen) // 3)
    tagger = method._without(hsun, new)
    assert set(tagger.classes_).isdisjoint(new)
    metrics, _ = method.run(hsun)
    assert metrics.keys() == get_experiment("calibration").ways.keys()


def test_seconds_count_what_was_learned_elsewhere_and_nothing_twice(tmp_path):
    first = trial("hsun", 0, cache=str(tmp_path))
    first.space(200)
    (clock,) = tmp_path.glob("*.seconds")
    clock.write_text("1000")
    record = run_method(trial("hsun", 3, cache=str(tmp_path)), "polyseme")
    assert record["parts"]["concept space 200"] == 1000
    assert 0 < record["parts"]["mapping 200"] < 100
    assert 1000 < record["seconds"] < 1100


@pytest.mark.reproduction
def test_every_method_gives_finite_figures():
    for name in METHODS:
        setting = {"composition": "hsun-12"}.get(name, "image-cross")
        if isinstance(get_method(name), FeatureSet):
            setting = "pictures"
        metrics, audited = get_method(name).run(trial(setting))
        assert audited["passed"]
        for values in metrics.values():
            numbers = [value for value in values.values() if isinstance(value, float)]
            assert np.isfinite(numbers).all(), name
        if name in RANKERS:
            assert metrics.keys() >= {"training", "zsl", "zsl-only"}
            assert all(values.keys() >= {"E-MAP", "C-MAP", "AUC"} for values in metrics.values())


def test_the_real_corpus_has_the_papers_size(data):
    if not (data / "hsun").is_dir():
        pytest.skip("the corpus hsun is not here")
    hsun = Trial(get_setting("hsun"), 0, RunConfig(data=str(data)))
    corpus = hsun.target.corpus
    assert len(corpus) == 8684
    assert len(corpus.labels) == 111
    assert corpus.splits.count("train") == 4367
    assert corpus.splits.count("test") == 4317
    sizes = hsun.split.sizes()
    published = {"semantics": 2839, "semantics_validation": 1527, "train": 3074, "test": 1262}
    for name, size in published.items():
        assert sizes[name] == pytest.approx(size, rel=0.1), name
