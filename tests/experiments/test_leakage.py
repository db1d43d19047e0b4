"""The audit passes on clean runs, and every planted leak fails its own check and no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyseme import LabelCorpus
from polyseme.base.validation import InputError
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger
from polyseme_experiments.baselines import TunedCosta
from polyseme_experiments.leakage import FitInputs, audit
from polyseme_experiments.splits import LabelSplit, carries, cross_corpora, oov_test, within_corpus

SEEN = tuple(f"s{i}" for i in range(9))
UNSEEN = ("u0", "u1", "u2")
OOV = ("o0", "o1")
LABELS = LabelSplit(SEEN, UNSEEN, OOV)
N = 150
IDF, DESCRIPTORS = (f"{name} learned from semantics alone" for name in ("idf", "descriptors"))
KEPT = "mapper keeps training rows alone"
SCALES = "scales learned from training rows alone"
FROM_INSTANCES = "no unseen label learned from instances"


class World:
    """Three themes of three seen labels and an unseen one; fifty groups; some oov labels.

    Features are detectors, one column a label, with noise; those of unseen labels are not usable.
    """

    def __init__(self, tiny_embedding):
        self.tiny_embedding = tiny_embedding
        corpus = LabelCorpus.from_documents(
            self.draw_documents(),
            ids=[f"d{row}" for row in range(N)],
        )
        groups = [f"g{row // 3}" for row in range(N)]
        self.corpus = replace(corpus, groups=tuple(groups))
        truth = corpus.matrix.toarray()
        generator = np.random.default_rng(1)
        noise = generator.normal(scale=0.2, size=truth.shape)
        self.detected = (truth + noise).astype(np.float32)
        usable = ~np.isin(corpus.labels, UNSEEN)
        self.X = self.detected[:, usable]
        names = [label for label in corpus.labels if label not in UNSEEN]
        self.usable = {"X": self.X, "feature_names": tuple(names), "detectors": True}
        self.split = self.draw()

    def draw_documents(self):
        """Draw some seen labels of a theme, and now and then its unseen one and an oov one."""
        generator = np.random.default_rng(0)
        documents = []
        for row in range(N):
            theme = row % 3
            seen = SEEN[3 * theme : 3 * theme + 3]
            labels = [label for label in seen if generator.random() < 0.7]
            if generator.random() < 0.25:
                labels.append(f"u{theme}")
            if generator.random() < 0.15:
                labels.append(f"o{row % 2}")
            documents.append(labels or [seen[0]])
        return documents

    def draw(self, random_state=0, **options):
        options = {"first": 2 / 3, "validation": 0.2} | options
        return within_corpus(self.corpus, LABELS, random_state=random_state, **options)

    def inputs(self, split):
        return FitInputs(
            self.X[split.train],
            split.instances("train"),
            split.known(),
            split.training_label_sets(),
            split.validation_label_sets(),
        )

    def learn(self, split=None, *, teaching=None, rows=None, documents=None, semantics=None):
        """Learn a tagger; what is named replaces the split's own sets."""
        split = split or self.split
        context = ContextDescriptor(n_topics=4, n_iter=20)
        embedding = self.tiny_embedding(context_descriptor=context)
        taught = teaching or split.training_label_sets()
        embedding.fit(taught, validation=split.validation_label_sets())
        tagger = PublishedTagger(
            embedding=embedding,
            mapper=InstanceMapper(kind="kernel-ridge", gamma="median", penalty=0.1),
            fit_embedding=False,
            random_state=0,
        )
        return self.fit(tagger, split, rows, documents, semantics)

    def costa(self, rows=None, documents=None, semantics=None):
        baseline = TunedCosta(penalties=(0.1,), random_state=0)
        return self.fit(baseline, self.split, rows, documents, semantics)

    def fit(self, ranker, split, rows, documents, semantics):
        learned = documents or split.instances("train"), semantics or split.known()
        return ranker.fit(self.X[split.train if rows is None else rows], *learned)

    def documents(self, *rows):
        selected = np.unique(np.concatenate(rows))
        return replace(self.corpus.select(selected), numbered=False)


@pytest.fixture(scope="module")
def world(tiny_embedding):
    return World(tiny_embedding)


@pytest.fixture(scope="module")
def split(world):
    return world.split


@pytest.fixture(scope="module")
def tagger(world):
    return world.learn()


def failed(report):
    return [check.name for check in report.checks if not check.passed]


def check_of(report, name):
    (check,) = (check for check in report.checks if check.name == name)
    return check


@pytest.mark.parametrize("by_group", [True, False])
@pytest.mark.parametrize("test_from", ["second", "both"])
def test_clean_splits_pass(world, by_group, test_from):
    drawn_split = world.draw(test_from=test_from, by_group=by_group)
    for split in (drawn_split, oov_test(drawn_split)):
        report = audit(split, **world.usable, inputs=world.inputs(split))
        assert failed(report) == []
        report.require()


@pytest.mark.parametrize("by_group", [True, False])
@pytest.mark.parametrize("test_from", ["second", "both"])
def test_tested_documents_that_are_known_are_noted(world, by_group, test_from):
    split = world.draw(test_from=test_from, by_group=by_group)
    check = check_of(audit(split), "own documents")
    assert check.note is True
    expected = split.own_documents().sum()
    assert check.count == expected
    assert (check.count > 0) == (test_from == "both")


def test_a_clean_run_passes_every_check(world, split, tagger):
    report = audit(
        split,
        **world.usable,
        inputs=world.inputs(split),
        fitted=tagger,
    )
    assert failed(report) == []
    checked = {check.name for check in report.checks}
    expected = {IDF, DESCRIPTORS, KEPT, SCALES, FROM_INSTANCES, "known documents are the split's"}
    assert expected <= checked


def test_a_clean_run_on_oov_labels_passes(world, split):
    of_oov_labels = oov_test(split)
    tagger = world.learn(of_oov_labels)
    report = audit(of_oov_labels, **world.usable, fitted=tagger)
    assert failed(report) == []


def test_an_embedding_alone_can_be_audited(split, tagger):
    report = audit(split, fitted=tagger.embedding_)
    assert failed(report) == []


def test_a_clean_run_of_costa_passes(world, split):
    report = audit(split, **world.usable, fitted=world.costa())
    assert failed(report) == []
    assert check_of(report, "classifier keeps training rows alone")


def test_features_of_some_documents_are_refused(world, split):
    with pytest.raises(InputError, match="expected one for each of the 150 documents"):
        audit(split, X=world.X[:10])


def test_a_run_from_one_corpus_to_another_passes(world):
    documents = [set(document).difference(OOV) for document in world.corpus]
    source = LabelCorpus.from_documents(documents)
    target = replace(world.corpus, groups=None)
    labels = LabelSplit(SEEN, UNSEEN)
    split = cross_corpora(source, target, labels, random_state=0)
    assert set(split.labels.oov) == set(OOV)
    tagger = world.learn(split)
    report = audit(
        split,
        **world.usable,
        inputs=world.inputs(split),
        fitted=tagger,
    )
    assert failed(report) == []
    check = check_of(report, "test groups")
    assert check.detail == "they name no groups"


def added(split, name, rows):
    return replace(split, **{name: np.union1d(getattr(split, name), rows)})


def hidden_row(split):
    """Return a known document with an unseen label, of no tested group."""
    hidden = carries(split.target, UNSEEN)
    tested = rows_of_tested_groups(split)
    for row in split.known_rows:
        if hidden[row] and not tested[row]:
            return row
    raise AssertionError("no such document")


def rows_of_tested_groups(split):
    """Return which documents belong to a group that is tested."""
    groups = np.array(split.target.groups)
    return np.isin(groups, groups[split.test])


def with_a_test_group(split):
    tested = rows_of_tested_groups(split)
    row = split.validation[tested[split.validation]][0]
    validation = np.setdiff1d(split.validation, [row])
    return replace(added(split, "train", row), validation=validation)


SPLIT_LEAKS = {
    "no unseen label in train": lambda split: added(split, "train", hidden_row(split)),
    "no unseen label in validation": lambda split: added(split, "validation", hidden_row(split)),
    "no test group in train": with_a_test_group,
    "semantics sets apart": lambda split: added(split, "semantics", split.semantics_validation[:1]),
    "instance sets apart": lambda split: added(split, "validation", split.train[:1]),
    "no oov label in semantics": lambda split: added(
        split, "semantics", np.flatnonzero(carries(split.source, OOV))[:1]
    ),
}


@pytest.mark.parametrize("name", SPLIT_LEAKS)
def test_every_leak_in_a_split_fails_its_own_check_alone(world, split, name):
    leaky = SPLIT_LEAKS[name](split)
    report = audit(leaky, **world.usable, inputs=world.inputs(leaky))
    assert failed(report) == [name]
    assert report.lines()[-1].startswith("1 failed; digest ")
    with pytest.raises(InputError, match=f"failed at '{name}': .*[dg]\\d+ "):
        report.require()


def test_a_shared_group_is_noted_where_a_split_is_not_by_group(split):
    leaky = replace(with_a_test_group(split), by_group=False)
    report = audit(leaky)
    assert failed(report) == []
    check = check_of(report, "test groups")
    assert check.note is True
    assert check.count == 1


def test_tested_documents_that_stop_training_are_noted(world):
    split = world.draw(validation_from="second", validation=0.5)
    shared = np.intersect1d(split.semantics_validation, split.test)
    assert len(shared)
    check = check_of(audit(split), "stopping documents")
    assert check.note is True
    assert check.count == len(shared)


def test_equal_rows_in_train_and_test_are_noted(world, split):
    X = world.X.copy()
    X[split.train[:2]] = X[split.test[0]]
    report = audit(split, X=X)
    assert failed(report) == []
    check = check_of(report, "no test row in train")
    assert check.note is True
    assert check.count == 2


def test_a_detector_of_an_unseen_label_fails(world, split):
    features = {"X": world.detected, "feature_names": world.corpus.labels}
    report = audit(split, **features, detectors=True)
    assert failed(report) == ["no detector of an unseen label"]
    assert "u0, u1, u2" in report.lines()[-3]
    report_of_plain_features = audit(split, **features)
    assert failed(report_of_plain_features) == []
    with pytest.raises(InputError, match="needs `feature_names` to check the columns"):
        audit(split, X=world.detected, detectors=True)


def test_swapped_and_missing_feature_rows_fail(world, split):
    inputs = world.inputs(split)
    name = "given X is the split's"
    swapped = inputs.X.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    report = audit(split, **world.usable, inputs=replace(inputs, X=swapped))
    assert failed(report) == [name]
    assert check_of(report, name).detail == "rows that differ: 0, 1"
    short = replace(inputs, X=inputs.X[:-1])
    report = audit(split, **world.usable, inputs=short)
    assert failed(report) == [name]


def test_a_tested_row_given_to_train_fails(world, split):
    inputs = world.inputs(split)
    tested_row = split.test[0]
    X = inputs.X.copy()
    X[0] = world.X[tested_row]
    ids = (split.target.ids[tested_row], *inputs.documents.ids[1:])
    leaky = replace(inputs, X=X, documents=replace(inputs.documents, ids=ids))
    report = audit(split, **world.usable, inputs=leaky)
    assert failed(report) == [
        "given documents are the split's",
        "given X is the split's",
        "no test row in train",
    ]


@pytest.mark.parametrize("name", ["documents", "semantics", "teaching", "held_out"])
def test_documents_that_are_not_the_splits_fail(world, split, name):
    inputs = world.inputs(split)
    corpus = getattr(inputs, name)
    without_first = corpus.select(np.arange(1, len(corpus)))
    extended = [set(document) | {"s0", "s8"} for document in corpus]
    with_more_labels = LabelCorpus.from_documents(extended, ids=corpus.ids)
    for documents in (without_first, with_more_labels):
        report = audit(split, inputs=replace(inputs, **{name: documents}))
        assert failed(report) == [f"given {name} are the split's"]


@pytest.mark.parametrize("name", ["documents", "semantics", "teaching", "held_out"])
def test_documents_in_another_spelling_pass(world, split, name):
    inputs = world.inputs(split)
    corpus = getattr(inputs, name)
    spelled = [[label.upper() for label in document] for document in corpus]
    documents = LabelCorpus.from_documents(spelled, ids=corpus.ids)
    report = audit(split, inputs=replace(inputs, **{name: documents}))
    assert failed(report) == []


def with_an_unseen_label(world):
    hidden = np.flatnonzero(carries(world.corpus, UNSEEN))
    hidden_rows = np.intersect1d(hidden, world.split.known_rows)
    rows = np.union1d(world.split.train, hidden_rows[:1])
    return {"rows": rows, "documents": world.documents(rows)}


def with_other_rows(world):
    return np.sort(np.append(world.split.train[1:], world.split.validation[0]))


def with_oov_documents(world):
    oov = np.flatnonzero(carries(world.corpus, OOV))
    return world.documents(world.split.known_rows, oov)


LEARNED_LEAKS = {
    "too many documents": (lambda w: w.learn(teaching=w.split.known()), [IDF, DESCRIPTORS]),
    "a test document": (
        lambda w: w.learn(semantics=w.documents(w.split.known_rows, w.split.test[:1])),
        ["known documents are the split's"],
    ),
    "other rows": (lambda w: w.learn(rows=with_other_rows(w)), [KEPT, SCALES]),
    "unseen labels": (lambda w: w.learn(**with_an_unseen_label(w)), [FROM_INSTANCES]),
    "unseen labels, COSTA": (lambda w: w.costa(**with_an_unseen_label(w)), [FROM_INSTANCES]),
    "oov labels, COSTA": (
        lambda w: w.costa(semantics=with_oov_documents(w)),
        ["oov labels only from instances"],
    ),
}


@pytest.mark.parametrize("leak", LEARNED_LEAKS)
def test_every_leak_into_what_was_learned_fails(world, split, leak):
    learn, expected = LEARNED_LEAKS[leak]
    features = {}
    if leak in ("too many documents", "other rows"):
        features = world.usable
    report = audit(split, **features, fitted=learn(world))
    assert failed(report) == expected


def test_a_vocabulary_with_an_oov_label_fails(world, split):
    with_oov = carries(split.source, OOV) & ~carries(split.source, UNSEEN)
    rows = np.flatnonzero(with_oov)
    tagger = world.learn(teaching=world.documents(split.semantics, rows))
    failures = failed(audit(split, fitted=tagger))
    assert failures[0] == "vocabulary without oov labels"
    assert "vocabulary taught" not in failures


def test_features_with_other_columns_fail(world, split, tagger):
    report = audit(split, X=world.detected, fitted=tagger)
    assert failed(report) == [KEPT]
    last_check = report.checks[-1]
    assert f"{world.X.shape[1]} features instead of" in last_check.detail


def test_what_differs_when_learned_again_fails_alone(split, tagger, monkeypatch):
    descriptor = tagger.embedding_.label_descriptor_
    context = tagger.embedding_.context_descriptor_
    changed = descriptor.idf_.copy()
    changed[0] = np.nextafter(changed[0], 2)
    monkeypatch.setattr(descriptor, "idf_", changed)
    report = audit(split, fitted=tagger)
    assert failed(report) == [IDF]
    assert "1 values differ" in "\n".join(report.lines())
    monkeypatch.undo()
    monkeypatch.setattr(context, "topics_", context.topics_[:, 1:])
    assert failed(audit(split, fitted=tagger)) == ["topics over the vocabulary"]
    monkeypatch.undo()
    name = "topics learned from semantics alone"
    clean = audit(split, fitted=tagger, relearn_topics=True)
    assert check_of(clean, name).verdict == "ok"
    monkeypatch.setattr(context, "topics_", context.topics_ * 1.001)
    assert failed(audit(split, fitted=tagger, relearn_topics=True)) == [name]
    monkeypatch.undo()
    monkeypatch.setattr(context, "random_state", None)
    unknown = audit(split, fitted=tagger, relearn_topics=True)
    assert unknown.passed
    assert check_of(unknown, name).detail == "their seed is not known"


def test_reports_are_stable(world, split, tagger):
    report = audit(split, **world.usable, fitted=tagger)
    repeated = audit(split, **world.usable, fitted=tagger)
    assert report == repeated
    assert report.lines() == repeated.lines()
    assert report.digest == repeated.digest
    of_equal_split = audit(world.draw(), **world.usable, fitted=tagger)
    assert of_equal_split.digest == report.digest


def test_reports_on_different_splits_have_different_digests(world, split):
    report = audit(split)
    report_of_another_seed = audit(world.draw(1))
    assert report.digest != report_of_another_seed.digest


def test_a_report_reads_like_one():
    corpus = LabelCorpus.from_documents([("a",), ("a", "b"), ("a", "b")], ids=["x", "y", "z"])
    corpus = replace(corpus, splits=("train", "train", "test"), groups=("p", "q", "q"))
    split = within_corpus(corpus, LabelSplit(("a",), ("b",)), validation=0)
    report = audit(split)
    lines = report.lines()
    assert lines[1:-1] == [
        "ok      no unseen label in train       none carries one (1 instances, 1 unseen labels)",
        "ok      no unseen label in validation  none carries one (0 instances, 1 unseen labels)",
        "ok      instance sets apart            none is in two (train, validation, test: "
        "2 documents)",
        "ok      semantics sets apart           none is in two (semantics, semantics_validation, "
        "semantics_test: 3 documents)",
        "ok      no oov label in semantics      none holds one (2 documents, 0 oov labels)",
        "note    own documents                  0 have their own document among the known ones "
        "(1 test instances)",
        "note    stopping documents             0 are those of test instances (0 documents of "
        "semantics_validation)",
        "ok      no test group in train         none has a training instance (1 groups of 1 test "
        "instances)",
        "note    semantics groups               1 have a known label document (1 groups of 1 test "
        "instances)",
    ]
    assert lines[0].startswith("note    sets")
    assert lines[-1] == f"all checks hold; digest {report.digest}"
    assert report.digest.startswith("c3a656c746f9e704")
