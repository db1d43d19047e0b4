from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyseme.corpus import LabelCorpus
from polyseme.published.priming import PrimingRanker
from polyseme.splits import carries
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
from polyseme_experiments.trials import Trial

QUICK = RunConfig(quick=True)


def trial(setting="hsun", number=0, **config):
    return Trial(get_setting(setting), number, replace(QUICK, **config))


@pytest.mark.parametrize("name", sorted(SETTINGS))
@pytest.mark.parametrize("number", [0, 4])
def test_every_setting_draws_a_split_that_passes_the_audit(name, number):
    drawn = trial(name, number)
    assert drawn.audit()["passed"]
    assert len(drawn.split.train) and len(drawn.split.test) and drawn.split.labels.unseen
    assert carries(drawn.split.instances("test"), drawn.split.labels.unseen).all()
    again = trial(name, number)
    assert again.split.labels == drawn.split.labels
    assert np.array_equal(again.split.train, drawn.split.train)


def test_trials_draw_their_labels_and_detectors_of_unseen_labels_are_dropped():
    drawn = [trial("hsun", number) for number in range(4)]
    assert len({one.split.labels.unseen for one in drawn}) == 4
    first, *others = (one.split.training_label_sets().ids for one in drawn)
    assert others[2] == first and first not in others[:2]  # they take turns in partitions
    names = set(drawn[0].feature_names)
    assert not names & set(drawn[0].split.labels.unseen)
    assert drawn[0].instance_features.shape[1] == len(names) < drawn[0].target.X.shape[1]


def test_what_a_split_hides_cannot_change_a_bit(monkeypatch):
    """Poison every feature that the split hides: no method's figures may move."""
    clean = trial("hsun", 5)
    split = clean.split
    allowed = np.union1d(split.train, split.test)
    X = clean.target.X.copy()
    X[np.setdiff1d(np.arange(len(X)), allowed)] = 1e6
    X[:, np.isin(clean.target.feature_names, split.labels.unseen)] = -1e6
    poisoned = replace(clean.target, X=X)
    monkeypatch.setattr(sampling, "load_once", lambda *arguments: poisoned)
    dirty = trial("hsun", 5)
    assert dirty.target.X is X
    for name in (*RANKERS, "default"):
        if name == "composition":  # refuses this many labels
            continue
        assert get_method(name).run(dirty)[0] == get_method(name).run(clean)[0], name


@pytest.mark.parametrize("name", ["hsun", "magtag-oov", "image-cross"])
def test_documents_that_a_split_hides_cannot_change_a_bit(name, monkeypatch):
    """Change the labels of every document outside the sets in use: no figure may move."""
    clean = trial(name, 1)
    split = clean.split
    used = np.union1d(split.train, split.test)
    if split.source is split.target:
        used = np.union1d(used, np.union1d(split.known_rows, split.semantics_validation))
    hidden = np.setdiff1d(np.arange(len(split.target)), used)
    assert len(hidden)
    matrix = split.target.matrix.tolil()
    matrix[hidden] = ~matrix[hidden].toarray()
    poisoned = replace(split.target, matrix=matrix.tocsr())
    source = poisoned if split.source is split.target else split.source
    dirty = trial(name, 1)
    dirty.split = replace(split, source=source, target=poisoned)
    dirty.audit = lambda *learned: None  # it would tell that validation is poisoned
    for method in ("polyseme", "default", "tuned-costa", "costa", "popularity"):
        assert get_method(method).run(dirty)[0] == get_method(method).run(clean)[0], method


def test_the_papers_own_pair_keeps_labels_and_semantics_of_its_source(monkeypatch):
    monkeypatch.setattr(sampling, "chosen_pair", lambda setting, config: setting.corpora[0])
    own, across = trial("magtag"), trial("music-cross")
    assert across.source.name == "magtag5k" and across.target.name == "msd"
    assert across.split.training_label_sets().ids == own.split.training_label_sets().ids
    assert set(across.split.labels.unseen) <= set(own.split.labels.unseen)
    assert across.audit()["passed"]


def test_own_documents_help_where_they_are_known():
    drawn = trial("magtag")
    assert drawn.split.own_documents().any()
    known = get_method("error-free-200-own").run(drawn)[0]["zsl"]["C-MAP"]
    strict = get_method("error-free-200").run(drawn)[0]["zsl"]["C-MAP"]
    assert known > strict
    clean = trial("hsun")
    assert not clean.split.own_documents().any()
    assert get_method("error-free-200-own").run(clean) == get_method("error-free-200").run(clean)


def test_leaving_out_ones_own_document_is_the_store_without_it():
    drawn = trial("magtag")
    space, tested = drawn.space(10), drawn.split.instances("test")
    known, rows = space.store_, known_rows(space.store_, tested)
    strict = error_free_scores(known, space.embedding_, tested)
    paper = error_free_scores(known, space.embedding_, tested, keep_own=True)
    points, changed_rows = space.embedding_.targets(tested), 0
    ranker = PrimingRanker(known.index(64.0), space.embedding_.distance_scale_)
    np.testing.assert_array_equal(paper, ranker.scores(points))
    for place in np.flatnonzero(rows >= 0)[:25]:
        smaller = known.remove([known.ids[rows[place]]])
        ranker = PrimingRanker(smaller.index(64.0), space.embedding_.distance_scale_)
        wanted = dict(zip(smaller.labels, ranker.scores(points[[place]])[0], strict=True))
        expected = [wanted.get(label, 0.0) for label in known.labels]
        np.testing.assert_allclose(strict[place], expected, rtol=2e-4, atol=1e-7)
        changed_rows += not np.allclose(strict[place], paper[place])
    assert changed_rows > 2
    np.testing.assert_array_equal(strict[rows < 0], paper[rows < 0])
    strangers = replace(tested, ids=tuple(f"x{i}" for i in range(len(tested))))
    assert (known_rows(known, strangers) == -1).all()


def test_methods_that_know_no_oov_labels_are_not_measured_on_them():
    drawn = trial("magtag-oov")
    assert {"all", "oov"} <= get_method("popularity").run(drawn)[0].keys()
    assert get_method("costa").run(drawn)[0].keys() == {"training", "zsl", "zsl-only"}


def test_a_space_is_kept_for_other_trials_and_an_interrupted_one_goes_on(tmp_path, monkeypatch):
    first = trial("hsun", 0, cache=str(tmp_path))
    points = first.space(10).store_.points
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".seconds", ".lock"}
    monkeypatch.setattr(
        "polyseme.published.training.ConceptTrainer.run", None
    )  # nobody may train now
    later = trial("hsun", 3, cache=str(tmp_path))
    np.testing.assert_array_equal(later.space(10).store_.points, points)
    with pytest.raises(TypeError, match="not callable"):
        trial("hsun", 1, cache=str(tmp_path)).space(10)


def test_shared_parts_are_made_once_and_their_seconds_noted():
    drawn = trial("hsun")
    drawn.used.clear()
    get_method("costa").run(drawn)
    made = drawn.classifiers()
    get_method("costa-dice").run(drawn)
    assert drawn.classifiers() is made
    assert drawn.used == {"classifiers"} == drawn.seconds.keys()
    drawn.used.clear()
    get_method("polyseme").run(drawn)
    drawn.used.clear()
    get_method("polyseme-density").run(drawn)
    assert drawn.used == {"mapping 200", "concept space 200"}


@pytest.mark.parametrize("share", [{"context": 0.0}, {"context": 1.0}, {"priming": 0.0}])
def test_a_default_with_another_share_is_what_a_fit_would_give(share):
    drawn = trial("hsun")
    default, X = drawn.default_tagger(), drawn.features(drawn.split.test)
    before = default.decision_function(X)
    variant = changed(drawn, default, **share).decision_function(X)
    fitted = drawn.fitted(ZeroShotTagger(space=make_space(QUICK, **share), random_state=drawn.seed))
    np.testing.assert_array_equal(variant, fitted.decision_function(X))
    assert not np.array_equal(variant, before)
    np.testing.assert_array_equal(default.decision_function(X), before)
    np.testing.assert_array_equal(changed(drawn, default).decision_function(X), before)


def test_fewer_members_are_the_first_of_each_fold():
    drawn = trial("image-cross")
    fitted = drawn.default_tagger("folds", n_folds=3)
    X = drawn.features(drawn.split.test)
    space, code = fitted.space_, fitted.space_.plan_.code
    few = changed(drawn, fitted, n_members=1)
    assert len(space.members_) == 3 * space.plan_.members_per_fold
    assert len(few.space_.members_) == 1
    direct = space.encode_items(X).direct[:, :code]
    np.testing.assert_allclose(few.space_.encode_items(X).direct, direct, rtol=0, atol=1e-6)
    assert few.transform(X).shape == (len(X), code + few.space_.linear_.n_coordinates)
    assert len(changed(drawn, fitted, n_members=5).space_.members_) == 3


def test_without_calibration_and_priming_raw_logits_are_read():
    drawn = trial("hsun")
    default = drawn.default_tagger("without a linear path", linear=0.0)
    X = drawn.features(drawn.split.test)
    bare = changed(drawn, default, calibrated=False, priming=0.0)
    weights, bias = bare.space_.readout(of_items=False)
    logits = default.transform(X) @ weights + bias
    np.testing.assert_allclose(bare.decision_function(X), logits, rtol=1e-6, atol=1e-5)


def test_parts_of_the_default_are_asked_without_training_again():
    drawn = trial("hsun")
    for name in METHODS:
        method = get_method(name)
        if name.startswith("default") and not method.trained:
            method.run(drawn)
    assert drawn.seconds.keys() == {"space"}
    get_method("default-no-soft").run(drawn)
    assert drawn.seconds.keys() == {"space", "space, default-no-soft"}


def test_tuned_costa_is_the_same_by_either_way_and_levels_keep_each_labels_order():
    drawn = trial("hsun")
    told = get_method("tuned-costa").run(drawn)[0]
    assert CostaSystem("x", "x").run(drawn)[0] == told
    moved = get_method("costa-shifted").run(drawn)[0]
    for column, values in told.items():
        assert moved[column]["C-MAP"] == pytest.approx(values["C-MAP"])
    assert moved["zsl"]["E-MAP"] != told["zsl"]["E-MAP"]


def test_new_labels_are_known_from_just_so_many_documents():
    known = LabelCorpus.from_documents(
        [["a", "x"], ["a", "x", "y"], ["b", "y"], ["a", "b", "x"], ["x"], ["a"]]
    )
    order = shuffled_holders(known, ["x", "y"], np.random.default_rng(0))
    assert [sorted(rows.tolist()) for rows in order] == [[0, 1, 3], [1, 2]]
    for n in (1, 2, 5):
        few = picked(known, ["x", "y"], [rows[:n] for rows in order])
        counts = dict(zip(few.labels, np.asarray(few.matrix.sum(axis=0)).ravel(), strict=True))
        assert (counts["x"], counts["y"]) == (min(n, 3), min(n, 2))
        for row, name in enumerate(few.ids):
            whole = known.document(known.ids.index(name))
            assert set(few.document(row)) - {"x", "y"} == set(whole) - {"x", "y"}


def test_new_labels_reach_no_training_and_are_a_third_of_those_on_no_instance():
    drawn = trial("hsun")
    labels = drawn.known_documents.labels
    new = new_labels(drawn, np.random.default_rng(drawn.seed))
    unseen = set(labels) - drawn.train_documents.used(labels)
    assert set(new) <= unseen and len(new) == max(1, len(unseen) // 3)
    assert not set(new) & set(get_method("calibration-late")._without(drawn, new).classes_)
    metrics, _ = get_method("calibration-late").run(drawn)
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
    drawn = Trial(get_setting("hsun"), 0, RunConfig(data=str(data)))
    corpus = drawn.target.corpus
    assert len(corpus) == 8684 and len(corpus.labels) == 111
    assert [corpus.splits.count(split) for split in ("train", "test")] == [4367, 4317]
    sizes = drawn.split.sizes()
    published = {"semantics": 2839, "semantics_validation": 1527, "train": 3074, "test": 1262}
    for name, size in published.items():
        assert abs(sizes[name] / size - 1) < 0.1, name
