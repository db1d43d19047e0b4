"""The audit passes on clean runs, and every planted leak fails its own check and no other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from polyseme import LabelCorpus
from polyseme._validation import InputError
from polyseme.baselines import TunedCosta
from polyseme.published.descriptors import ContextDescriptor
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger
from polyseme.splits import LabelSplit, carries, cross_corpora, oov_test, within_corpus
from polyseme_experiments.leakage import FitInputs, audit

SEEN = tuple(f"s{i}" for i in range(9))
UNSEEN = ("u0", "u1", "u2")
OOV = ("o0", "o1")
LABELS = LabelSplit(SEEN, UNSEEN, OOV)
N = 150


@pytest.fixture(scope="module")
def corpus():
    """Three themes of three seen labels and an unseen one; fifty groups; some oov labels."""
    generator = np.random.default_rng(0)
    documents = []
    for i in range(N):
        theme = i % 3
        own = [t for t in SEEN[3 * theme : 3 * theme + 3] if generator.random() < 0.7]
        own += [f"u{theme}"] * (generator.random() < 0.25)
        own += [f"o{i % 2}"] * (generator.random() < 0.15)
        documents.append(own or [SEEN[3 * theme]])
    made = LabelCorpus.from_documents(documents, ids=[f"d{i}" for i in range(N)])
    return replace(made, groups=tuple(f"g{i // 3}" for i in range(N)))


@pytest.fixture(scope="module")
def detected(corpus):
    """Detectors: one column a label, with noise."""
    noise = np.random.default_rng(1).normal(scale=0.2, size=(N, len(corpus.labels)))
    return (corpus.matrix.toarray() + noise).astype(np.float32)


@pytest.fixture(scope="module")
def split(corpus):
    return within_corpus(corpus, LABELS, first=2 / 3, validation=0.2, random_state=0)


@pytest.fixture(scope="module")
def usable(corpus, detected):
    kept = [label not in UNSEEN for label in corpus.labels]
    names = tuple(label for label, keep in zip(corpus.labels, kept, strict=True) if keep)
    return {"X": detected[:, kept], "feature_names": names, "detectors": True}


@pytest.fixture(scope="module")
def learn(tiny_embedding, usable):
    """Learn a tagger from a split; what is given beside it replaces the split's own sets."""

    def run(split, *, teaching=None, rows=None, documents=None, semantics=None):
        embedding = tiny_embedding(context_descriptor=ContextDescriptor(n_topics=4, n_iter=20))
        embedding.fit(teaching or split.teaching(), validation=split.held_out())
        tagger = PublishedTagger(
            embedding=embedding,
            fit_embedding=False,
            mapper=InstanceMapper(kind="kernel-ridge", gamma="median", penalty=0.1),
            random_state=0,
        )
        return tagger.fit(
            usable["X"][split.train if rows is None else rows],
            documents or split.instances("train"),
            semantics or split.known(),
        )

    return run


@pytest.fixture(scope="module")
def tagger(split, learn):
    return learn(split)


@pytest.fixture(scope="module")
def costa(usable):
    """Learn tuned COSTA from a split, or from other rows and documents."""

    def run(split, rows=None, documents=None, semantics=None):
        X = usable["X"][split.train if rows is None else rows]
        learned = documents or split.instances("train"), semantics or split.known()
        return TunedCosta(penalties=(0.1,), random_state=0).fit(X, *learned)

    return run


def inputs_of(split, usable):
    return FitInputs(
        usable["X"][split.train],
        split.instances("train"),
        split.known(),
        split.teaching(),
        split.held_out(),
    )


def failed(report):
    return [check.name for check in report.checks if not check.passed]


def check_of(report, name):
    (check,) = (check for check in report.checks if check.name == name)
    return check


@pytest.mark.parametrize("by_group", [True, False])
@pytest.mark.parametrize("test_from", ["second", "both"])
def test_clean_splits_pass(corpus, usable, by_group, test_from):
    options = {"first": 2 / 3, "test_from": test_from, "by_group": by_group}
    split = within_corpus(corpus, LABELS, **options, random_state=0)
    for one in (split, oov_test(split)):
        report = audit(one, **usable, inputs=inputs_of(one, usable))
        assert failed(report) == []
        report.require()
    own = check_of(audit(split), "own documents")
    assert (own.note, own.count) == (True, split.own_documents().sum())
    assert (own.count > 0) == (test_from == "both")


def test_stopping_documents_of_tested_instances_are_noted(corpus):
    options = {"first": 2 / 3, "validation_from": "second", "validation": 0.5}
    split = within_corpus(corpus, LABELS, **options, random_state=0)
    note = check_of(audit(split), "stopping documents")
    shared = set(split.semantics_validation) & set(split.test)
    assert (note.note, note.count) == (True, len(shared)) and shared


def test_clean_runs_pass(split, usable, tagger, learn, costa):
    report = audit(split, **usable, inputs=inputs_of(split, usable), fitted=tagger)
    assert failed(report) == []
    assert {
        "idf learned from semantics alone",
        "descriptors learned from semantics alone",
        "known documents are the split's",
        "mapper keeps training rows alone",
        "scales learned from training rows alone",
        "no unseen label learned from instances",
    } <= {check.name for check in report.checks}
    other = oov_test(split)
    assert failed(audit(other, **usable, fitted=learn(other))) == []
    assert failed(audit(split, fitted=tagger.embedding_)) == []
    report = audit(split, **usable, fitted=costa(split))
    assert failed(report) == []
    assert check_of(report, "classifier keeps training rows alone")
    with pytest.raises(InputError, match="expected one for each of the 150 documents"):
        audit(split, X=usable["X"][:10])


def test_a_run_from_one_corpus_to_another_passes(corpus, usable, learn):
    source = LabelCorpus.from_documents([set(document) - set(OOV) for document in corpus])
    target = replace(corpus, groups=None)
    split = cross_corpora(source, target, LabelSplit(SEEN, UNSEEN), random_state=0)
    assert set(split.labels.oov) == set(OOV)
    report = audit(split, **usable, inputs=inputs_of(split, usable), fitted=learn(split))
    assert failed(report) == []
    assert check_of(report, "test groups").detail == "they name no groups"


def test_an_unseen_label_in_training_fails(split, usable):
    groups, hidden = split.target.groups, carries(split.target, UNSEEN)
    tested = {groups[row] for row in split.test}
    row = next(row for row in split.known_rows if hidden[row] and groups[row] not in tested)
    leaky = replace(split, train=np.union1d(split.train, [row]))
    report = audit(leaky, **usable, inputs=inputs_of(leaky, usable))
    assert failed(report) == ["no unseen label in train"]
    with pytest.raises(InputError, match=f"failed at 'no unseen label in train': .* d{row} "):
        report.require()
    tuned = replace(split, validation=np.union1d(split.validation, [row]))
    assert failed(audit(tuned)) == ["no unseen label in validation"]


def test_a_test_group_in_training_fails(split, usable):
    tested = {split.target.groups[row] for row in split.test}
    row = next(r for r in split.validation if split.target.groups[r] in tested)
    left = np.setdiff1d(split.validation, [row])
    leaky = replace(split, train=np.union1d(split.train, [row]), validation=left)
    report = audit(leaky, **usable, inputs=inputs_of(leaky, usable))
    assert failed(report) == ["no test group in train"]
    allowed = audit(replace(leaky, by_group=False))
    assert failed(allowed) == []
    note = check_of(allowed, "test groups")
    assert (note.note, note.count) == (True, 1)


def test_documents_in_two_sets_or_with_oov_labels_fail(split, usable, learn):
    leaky = replace(split, validation=np.union1d(split.validation, split.test[:1]))
    assert failed(audit(leaky)) == ["no unseen label in validation", "instance sets apart"]
    double = replace(split, semantics=np.union1d(split.semantics, split.semantics_validation[:1]))
    report = audit(double)
    assert failed(report) == ["semantics sets apart"]
    assert report.lines()[-1].startswith("1 failed; digest ")
    row = np.flatnonzero(carries(split.source, OOV) & carries(split.source, SEEN))[0]
    leaky = replace(split, semantics=np.union1d(split.semantics, [row]))
    report = audit(leaky, **usable, inputs=inputs_of(leaky, usable), fitted=learn(leaky))
    assert failed(report) == ["no oov label in semantics"]


def test_a_detector_of_an_unseen_label_fails(split, corpus, detected):
    report = audit(split, X=detected, feature_names=corpus.labels, detectors=True)
    assert failed(report) == ["no detector of an unseen label"]
    assert "u0, u1, u2" in report.lines()[-3]
    assert failed(audit(split, X=detected, feature_names=corpus.labels)) == []
    with pytest.raises(InputError, match="needs `feature_names` to check the columns"):
        audit(split, X=detected, detectors=True)


def test_swapped_and_missing_feature_rows_fail(split, usable):
    inputs = inputs_of(split, usable)
    swapped = inputs.X.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    report = audit(split, **usable, inputs=replace(inputs, X=swapped))
    assert failed(report) == ["given X is the split's"]
    check = check_of(report, "given X is the split's")
    assert (check.count, check.detail) == (2, "rows that differ: 0, 1")
    short = audit(split, **usable, inputs=replace(inputs, X=inputs.X[:-1]))
    assert failed(short) == ["given X is the split's"]


def test_features_of_a_tested_instance_in_training_fail(split, usable):
    inputs = inputs_of(split, usable)
    names = (split.target.ids[split.test[0]], *inputs.documents.ids[1:])
    stolen = inputs.X.copy()
    stolen[0] = usable["X"][split.test[0]]
    leaky = replace(inputs, X=stolen, documents=replace(inputs.documents, ids=names))
    assert failed(audit(split, **usable, inputs=leaky)) == [
        "given documents are the split's",
        "given X is the split's",
        "no test row in train",
    ]


def test_equal_features_of_different_instances_are_a_note(split, usable):
    X = usable["X"].copy()
    X[split.train[:2]] = X[split.test[0]]
    report = audit(split, X=X)
    assert failed(report) == []
    note = check_of(report, "no test row in train")
    assert (note.note, note.count) == (True, 2)


@pytest.mark.parametrize("name", ["documents", "semantics", "teaching", "held_out"])
def test_other_documents_than_the_splits_fail(split, usable, name):
    inputs = inputs_of(split, usable)
    corpus = getattr(inputs, name)
    more = [set(document) | {"s0", "s8"} for document in corpus]
    for other, leaks in (
        (corpus.select(np.arange(1, len(corpus))), True),
        (LabelCorpus.from_documents(more, ids=corpus.ids), True),
        (
            LabelCorpus.from_documents([[t.upper() for t in d] for d in corpus], ids=corpus.ids),
            False,
        ),
    ):
        report = audit(split, inputs=replace(inputs, **{name: other}))
        assert failed(report) == [f"given {name} are the split's"] * leaks


def test_descriptors_and_vocabulary_from_too_many_documents_fail(split, usable, learn):
    report = audit(split, **usable, fitted=learn(split, teaching=split.known()))
    learned = ["idf learned from semantics alone", "descriptors learned from semantics alone"]
    assert failed(report) == learned
    rows = np.flatnonzero(carries(split.source, OOV) & ~carries(split.source, UNSEEN))
    more = split.source.select(np.union1d(split.semantics, rows))
    report = audit(split, fitted=learn(split, teaching=replace(more, numbered=False)))
    assert failed(report)[:1] == ["vocabulary without oov labels"]
    assert "vocabulary taught" not in failed(report)


def test_a_changed_idf_and_topics_over_other_labels_fail_alone(split, tagger, monkeypatch):
    descriptor = tagger.embedding_.label_descriptor_
    changed = descriptor.idf_.copy()
    changed[0] = np.nextafter(changed[0], 2)
    monkeypatch.setattr(descriptor, "idf_", changed)
    report = audit(split, fitted=tagger)
    assert failed(report) == ["idf learned from semantics alone"]
    assert "1 values differ" in "\n".join(report.lines())
    monkeypatch.undo()
    context = tagger.embedding_.context_descriptor_
    monkeypatch.setattr(context, "topics_", context.topics_[:, 1:])
    assert failed(audit(split, fitted=tagger)) == ["topics over the vocabulary"]


def test_topics_learned_again_must_be_the_same(split, tagger, monkeypatch):
    name = "topics learned from semantics alone"
    clean = audit(split, fitted=tagger, relearn_topics=True)
    assert check_of(clean, name).verdict == "ok"
    descriptor = tagger.embedding_.context_descriptor_
    monkeypatch.setattr(descriptor, "topics_", descriptor.topics_ * 1.001)
    assert failed(audit(split, fitted=tagger, relearn_topics=True)) == [name]
    monkeypatch.undo()
    monkeypatch.setattr(descriptor, "random_state", None)
    unknown = audit(split, fitted=tagger, relearn_topics=True)
    assert unknown.passed and check_of(unknown, name).detail == "their seed is not known"


def test_a_known_test_document_fails(split, learn):
    more = np.union1d(split.known_rows, split.test[:1])
    semantics = replace(split.source.select(more), numbered=False)
    report = audit(split, fitted=learn(split, semantics=semantics))
    assert failed(report) == ["known documents are the split's"]
    assert f"others: d{split.test[0]} " in "\n".join(report.lines())


def test_a_mapper_that_saw_other_rows_or_columns_fails(split, usable, detected, learn, tagger):
    kept = "mapper keeps training rows alone"
    rows = np.sort(np.append(split.train[1:], split.validation[0]))
    report = audit(split, **usable, fitted=learn(split, rows=rows))
    assert failed(report) == [kept, "scales learned from training rows alone"]
    report = audit(split, X=detected, fitted=tagger)
    assert failed(report) == [kept]
    sizes = f"{usable['X'].shape[1]} features instead of {detected.shape[1]}"
    assert sizes in report.checks[-1].detail


def test_labels_learned_from_the_wrong_side_fail(split, learn, costa):
    hidden = np.flatnonzero(carries(split.target, UNSEEN))
    rows = np.union1d(split.train, np.intersect1d(hidden, split.known_rows)[:1])
    documents = replace(split.target.select(rows), numbered=False)
    for fitted in (learn(split, rows=rows, documents=documents), costa(split, rows, documents)):
        assert failed(audit(split, fitted=fitted)) == ["no unseen label learned from instances"]
    oov = np.flatnonzero(carries(split.source, OOV))
    semantics = split.source.select(np.union1d(split.known_rows, oov))
    report = audit(split, fitted=costa(split, semantics=semantics))
    assert failed(report) == ["oov labels only from instances"]


def test_reports_are_stable(corpus, usable, split, tagger):
    first, second = (audit(split, **usable, fitted=tagger) for _ in range(2))
    assert first == second
    assert first.lines() == second.lines()
    assert first.digest == second.digest
    again = within_corpus(corpus, LABELS, first=2 / 3, validation=0.2, random_state=0)
    assert audit(again, **usable, fitted=tagger).digest == first.digest
    other = within_corpus(corpus, LABELS, first=2 / 3, validation=0.2, random_state=1)
    assert audit(other).digest != audit(split).digest


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
