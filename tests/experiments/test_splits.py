"""Who learns from what: every set against its definition, on random corpora and on real ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import LabelCorpus
from polyseme.base.validation import InputError
from polyseme.metrics import concept_map, example_map
from polyseme_experiments import splits
from polyseme_experiments.datasets import load_dataset
from polyseme_experiments.splits import (
    SEMANTICS,
    LabelSplit,
    carries,
    cross_corpora,
    evaluation_columns,
    labels_by_document_share,
    measure,
    oov_test,
    random_labels,
    within_corpus,
)

LABELS = "abcdefghij"
many = settings(deadline=None, max_examples=60)


def corpus_of(documents, groups=None, splits=None, ids=None):
    corpus = LabelCorpus.from_documents(documents, ids=ids)
    if groups is not None:
        corpus = replace(corpus, groups=tuple(groups))
    if splits is not None:
        corpus = replace(corpus, splits=tuple(splits))
    return corpus


@st.composite
def corpora(draw, prefix="d"):
    """Draw a corpus with empty documents, groups or none, and an official split."""
    label_sets = st.sets(st.sampled_from(LABELS), max_size=4)
    documents = draw(st.lists(label_sets, max_size=40))
    n = len(documents)
    group_names = st.lists(st.sampled_from("uvwxyz"), min_size=n, max_size=n)
    groups = draw(st.none() | group_names)
    split_names = st.lists(st.sampled_from(["train", "test"]), min_size=n, max_size=n)
    splits = draw(split_names)
    ids = [f"{prefix}{row}" for row in range(n)]
    return corpus_of(documents, groups, splits, ids=ids)


@st.composite
def kinds(draw):
    """Draw the kind of every label."""
    labels_by_kind = ([], [], [])
    for label in LABELS:
        kind = draw(st.integers(0, 2))
        labels_by_kind[kind].append(label)
    return LabelSplit(*map(tuple, labels_by_kind))


def kinds_in(corpus, labels):
    """Return which kinds of labels each document holds."""
    kinds = {label: kind for kind in vars(labels) for label in getattr(labels, kind)}
    return [{kinds[label] for label in document} for document in corpus]


def groups_of(corpus, rows):
    return set() if corpus.groups is None else {corpus.groups[row] for row in rows}


def without_groups_of(corpus, rows, excluded_rows, by_group):
    """Leave out rows of a group that has one of the excluded ones."""
    if not by_group:
        return set(rows)
    excluded_groups = groups_of(corpus, excluded_rows)
    return {row for row in rows if excluded_groups.isdisjoint(groups_of(corpus, [row]))}


# ------------------------------------------------------------------ labels


@pytest.fixture(scope="module")
def music():
    return load_dataset("msd-subset", sample=True).corpus


@pytest.fixture(scope="module")
def pictures():
    return load_dataset("hsun", sample=True).corpus


@pytest.mark.parametrize("seed", range(2))
def test_a_random_label_split_keeps_to_its_shares(pictures, seed):
    labels = labels_by_document_share(
        pictures,
        oov_share=0.15,
        random_state=seed,
        document_share=(0.2, 0.4),
        oov_document_share=(0.1, 0.3),
    )
    n_labels = len(pictures.labels)
    assert len(labels.oov) == round(0.15 * n_labels)
    assert sorted(labels.seen + labels.unseen + labels.oov) == sorted(pictures.labels)

    filled = pictures.select(pictures.lengths > 0)
    with_oov = carries(filled, labels.oov)
    assert 0.1 <= with_oov.mean() <= 0.3
    with_unseen = carries(filled, labels.unseen)
    assert 0.2 <= with_unseen[~with_oov].mean() <= 0.4
    remaining = filled.select(~with_oov).without_unused()
    assert len(labels.unseen) == round(0.25 * len(remaining.labels))


@pytest.mark.parametrize("seed", range(2))
def test_random_labels_come_from_the_seed(pictures, seed):
    labels = random_labels(pictures, random_state=seed)
    assert random_labels(pictures, random_state=seed) == labels


def first_labels_within_share(corpus, documents, stream):
    """Draw labels in random orders until three hold 30 to 50 % of 40 documents."""
    while True:
        covered = set()
        labels = []
        for column in stream.permutation(len(corpus.labels)):
            label = corpus.labels[column]
            rows = {row for row, document in enumerate(documents) if label in document}
            if len(covered | rows) > 0.5 * 40:
                continue
            covered |= rows
            labels.append(label)
            if len(labels) == 3:
                break
        if len(labels) == 3 and len(covered) >= 0.3 * 40:
            return sorted(labels)


def test_the_stream_of_random_numbers_without_oov_labels_is_fixed():
    """Published figures rest on the labels that a seed draws."""
    documents = [{LABELS[row % 7], LABELS[(3 * row) % 10]} for row in range(40)]
    corpus = corpus_of(documents)
    expected = first_labels_within_share(corpus, documents, np.random.default_rng(5))
    labels = labels_by_document_share(
        corpus,
        unseen_share=0.3,
        document_share=(0.3, 0.5),
        random_state=5,
    )
    assert list(labels.unseen) == expected


def test_random_labels_take_shares_of_the_labels_in_use():
    names = [f"label {number:02}" for number in range(24)]
    in_use = np.arange(24) < 20
    corpus = LabelCorpus.from_indicator(np.array([in_use, in_use], dtype=int), names)
    labels = random_labels(corpus, unseen_share=0.25, oov_share=0.2, random_state=0)
    assert len(labels.oov) == 4
    assert len(labels.unseen) == 4
    assert len(labels.seen) == 16
    assert set(labels.seen) >= set(names[20:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unseen_share": 0.5}, "No 1 labels whose documents .* widen `document_share`"),
        ({"oov_share": 0.5}, "draws of oov labels; widen `oov_document_share`"),
        ({"unseen_share": 2.0}, "`unseen_share` of .* at most 1; got 2.0"),
        ({"document_share": (0.5, 0.2)}, "must be two shares from low to high"),
    ],
)
def test_impossible_label_splits_are_errors(arguments, message, monkeypatch):
    monkeypatch.setattr(splits, "N_TRIES", 5)
    corpus = corpus_of([("a", "b"), ("a", "b")])
    with pytest.raises(InputError, match=message):
        labels_by_document_share(corpus, random_state=0, **arguments)


def test_a_label_has_one_kind():
    with pytest.raises(InputError, match="of one kind each; named twice: b"):
        LabelSplit(("a", "b"), ("b",))


def test_every_label_has_a_kind():
    corpus = corpus_of([("a", "c")], splits=["train"])
    labels = LabelSplit(("a",), ("b",))
    with pytest.raises(InputError, match="neither seen, unseen nor oov in `labels`: c;"):
        within_corpus(corpus, labels)


# ------------------------------------------------------------------ documents


@many
@given(corpora(), st.floats(0, 1), st.booleans(), st.booleans(), st.integers(0, 3))
def test_drawn_rows_are_whole_groups_near_the_size_or_leave_every_label_a_document(
    corpus, share, by_group, keep_labels, seed
):
    rows = np.arange(len(corpus))[::2]
    generator = np.random.default_rng(seed)
    selected = splits._draw_rows(corpus, rows, share, by_group, generator, keep_labels)
    remaining = np.setdiff1d(rows, selected)
    assert set(selected) <= set(rows)
    largest_group = min(len(rows), 1)
    if by_group and corpus.groups is not None:
        selected_groups = groups_of(corpus, selected)
        assert selected_groups.isdisjoint(groups_of(corpus, remaining))
        counts = Counter(corpus.groups[row] for row in rows)
        largest_group = max(counts.values(), default=0)
    distance = len(selected) - round(share * len(rows))
    assert distance <= largest_group / 2
    if keep_labels:
        used = corpus.select(rows).used(corpus.labels)
        assert corpus.select(remaining).used(corpus.labels) == used
    else:
        assert -distance <= largest_group / 2


@pytest.mark.parametrize(
    ("marks", "options", "message"),
    [
        (None, {}, "name no split of their own"),
        (["train", "valid"], {}, "must say 'train' or 'test'; got 'valid'"),
        (None, {"first": "half"}, "must be 'split' or a share; got 'half'"),
        (None, {"first": 1.5}, "at most 1; got 1.5"),
        (None, {"first": 0.5, "validation": 2}, "2 documents were asked for, but there are only 1"),
        (None, {"validation": 1.5}, "`validation` of `within_corpus` must be a number .* most 1"),
        (None, {"test_from": "first"}, "`test_from` of `within_corpus` must be one of"),
    ],
)
def test_halves_and_sizes_are_checked(marks, options, message):
    corpus = corpus_of([("a",), ("b",)], splits=marks)
    labels = LabelSplit(("a",), ("b",))
    with pytest.raises(InputError, match=message):
        within_corpus(corpus, labels, random_state=0, **options)


# ------------------------------------------------------------------ within one corpus


@many
@given(
    corpora(),
    kinds(),
    st.sampled_from(["split", 2 / 3, 0.5]),
    st.sampled_from(["first", "second"]),
    st.sampled_from(["second", "both"]),
    st.booleans(),
    st.integers(0, 3),
)
def test_every_set_of_a_split_within_a_corpus_follows_its_definition(
    corpus, labels, first, validation_from, test_from, by_group, seed
):
    split = within_corpus(
        corpus,
        labels,
        first=first,
        validation=0.3,
        random_state=seed,
        validation_from=validation_from,
        test_from=test_from,
        by_group=by_group,
    )
    halves = splits._halves(corpus, first, by_group, np.random.default_rng(seed))
    first_half, second_half = map(set, halves)
    kinds_of_rows = kinds_in(corpus, labels)
    clean = set()
    for row in first_half | second_half:
        if kinds_of_rows[row] and "oov" not in kinds_of_rows[row]:
            clean.add(row)
    with_unseen = {row for row in clean if "unseen" in kinds_of_rows[row]}
    plain = clean - with_unseen

    # who teaches meaning
    training, validation, testing = [set(getattr(split, name)) for name in SEMANTICS]
    assert training | validation | testing == clean
    assert len(training) + len(validation) + len(testing) == len(clean)
    known_rows = training
    if validation_from == "first":
        known_rows = training | validation
        used = corpus.select(sorted(clean & first_half)).used(corpus.labels)
        assert corpus.select(split.semantics).used(corpus.labels) == used
    assert known_rows == clean & first_half
    assert known_rows == set(split.known_rows)

    # who is mapped and tested
    tested = with_unseen if test_from == "both" else with_unseen & second_half
    assert set(split.test) == tested
    assert set(split.validation) == plain & second_half
    candidates = plain & first_half
    assert set(split.train) == without_groups_of(corpus, candidates, split.test, by_group)
    if by_group and first != "split" and test_from == "second":
        assert set(split.train) == candidates  # whole groups: nobody is left out
        known_groups = groups_of(corpus, split.known_rows)
        assert known_groups.isdisjoint(groups_of(corpus, split.test))
    is_known = [row in split.known_rows for row in split.test]
    assert list(split.own_documents()) == is_known
    assert test_from == "both" or not split.own_documents().any()


@many
@given(corpora(), kinds(), st.booleans(), st.sampled_from(["second", "both"]), st.integers(0, 3))
def test_the_oov_test_holds_the_documents_that_the_split_leaves_out(
    corpus, labels, by_group, test_from, seed
):
    split = within_corpus(
        corpus,
        labels,
        first=0.6,
        test_from=test_from,
        by_group=by_group,
        random_state=seed,
    )
    if not labels.oov:
        with pytest.raises(InputError, match="draw the labels with an `oov_share`"):
            oov_test(split)
        return

    of_oov = oov_test(split)
    tested = set()
    candidates = set(split.train)
    for row, kinds in enumerate(kinds_in(corpus, labels)):
        if {"unseen", "oov"} <= kinds:
            tested.add(row)
        elif kinds == {"seen", "oov"}:
            candidates.add(row)
    assert set(of_oov.test) == tested
    assert tested.isdisjoint(split.test)
    assert set(of_oov.train) == without_groups_of(corpus, candidates, of_oov.test, by_group)
    assert np.array_equal(of_oov.known_rows, split.known_rows)
    assert not of_oov.own_documents().any()


def documents_like_table_1():
    """MagTag5K's documents by the kinds of labels they hold, each over one or two labels."""
    counts = {("s",): 2871, ("s", "u"): 953, ("s", "o"): 750, ("s", "u", "o"): 410, ("o",): 2}
    sizes = {"s": 85, "u": 29, "o": 22}
    documents = []
    for kinds, n in counts.items():
        for number in range(n):
            documents.append({f"{kind}{number % sizes[kind]}" for kind in kinds})
    labels = []
    for kind, size in sizes.items():
        labels.append(tuple(f"{kind}{number}" for number in range(size)))
    return corpus_of(documents), LabelSplit(*labels)


def test_table_1_counts_of_magtag5k():
    corpus, labels = documents_like_table_1()
    split = within_corpus(
        corpus,
        labels,
        first=2 / 3,
        random_state=0,
        validation_from="second",
        validation=300,
        test_from="both",
    )
    sizes = split.sizes()
    exact = {
        "seen": 85,
        "unseen": 29,
        "oov": 22,
        "documents": 4986,
        "test": 953,
        "semantics_validation": 300,
    }
    for name, count in exact.items():
        assert sizes[name] == count, name
    assert sizes["train"] + sizes["validation"] == 2871
    assert sizes["semantics"] + 300 + sizes["semantics_test"] == 3824
    published = {"semantics": 2550, "semantics_test": 975, "train": 1914, "validation": 957}
    for name, count in published.items():
        assert sizes[name] == pytest.approx(count, abs=60), name
    # Two thirds of the tested documents are in the first half.
    assert split.own_documents().sum() == pytest.approx(636, abs=40)
    oov_sizes = oov_test(split).sizes()
    assert oov_sizes["train"] == sizes["train"] + 750
    assert oov_sizes["test"] == 410


@pytest.fixture(scope="module")
def numbered_split(music):
    """A corpus without names of its own, and a split of it with oov labels."""
    corpus = LabelCorpus.from_documents(list(music))
    labels = random_labels(corpus, oov_share=0.2, random_state=0)
    return corpus, within_corpus(corpus, labels, first=0.6, random_state=0)


def test_a_split_hands_out_documents_under_their_own_names(numbered_split):
    corpus, split = numbered_split
    for documents, rows in (
        (split.training_label_sets(), split.semantics),
        (split.validation_label_sets(), split.semantics_validation),
        (split.instances("test"), split.test),
    ):
        expected = tuple(str(row) for row in rows)
        assert documents.ids == expected
        assert not documents.numbered
        for document, row in zip(documents, rows, strict=True):
            assert set(document) == set(corpus.document(row))
    taught = split.training_label_sets().labels
    assert set(taught) == set(split.labels.vocabulary)


def test_instances_that_taught_no_meaning_are_those_of_the_oov_test(numbered_split):
    _, split = numbered_split
    assert len(split.unmet_instances("train")) == 0
    of_oov = oov_test(split)
    instances = of_oov.unmet_instances("train")
    rows = np.setdiff1d(of_oov.train, split.train)
    assert set(instances.ids) == {str(row) for row in rows}


def test_the_first_half_does_not_depend_on_the_labels_hidden(music):
    """Trials with other labels share their concept space."""
    splits = [
        within_corpus(music, random_labels(music, random_state=seed), first=0.6, random_state=7)
        for seed in (0, 1)
    ]
    assert splits[0].labels != splits[1].labels
    for name in SEMANTICS:
        assert np.array_equal(getattr(splits[0], name), getattr(splits[1], name))


def test_rows_outside_a_corpus_are_refused(music):
    labels = random_labels(music, random_state=0)
    split = within_corpus(music, labels, first=0.6, random_state=0)
    with pytest.raises(InputError, match="`train` of `ZeroShotSplit` must hold rows"):
        replace(split, train=[0, len(music)])
    with pytest.raises(InputError, match=r"`part` of `ZeroShotSplit\.instances` must be one of"):
        split.instances("semantics")


def test_hsun_has_the_papers_halves(data):
    if not (data / "hsun").is_dir():
        pytest.skip("the corpus hsun is not here")
    corpus = load_dataset("hsun", data).corpus
    assert corpus.splits.count("train") == 4367
    assert corpus.splits.count("test") == 4317
    first, second = splits._halves(corpus, "split", True, np.random.default_rng(0))
    filled = corpus.lengths > 0
    assert len(first) == filled[:4367].sum()
    assert len(second) == filled[4367:].sum()

    labels = labels_by_document_share(corpus.select(first), random_state=0)
    sizes = within_corpus(corpus, labels, validation=0.35, random_state=0).sizes()
    assert sizes["semantics"] + sizes["semantics_validation"] == len(first)
    assert sizes["validation"] + sizes["test"] == len(second)
    assert sizes["semantics_test"] == len(second)
    published = {
        "semantics": 2839,
        "semantics_validation": 1527,
        "semantics_test": 4217,
        "train": 3074,
        "validation": 2955,
        "test": 1262,
    }
    for name, count in published.items():
        assert sizes[name] == pytest.approx(count, rel=0.06), name


# ------------------------------------------------------------------ from one corpus to another


@many
@given(corpora("s"), corpora("t"), kinds(), st.integers(0, 3), st.booleans(), st.integers(0, 3))
def test_every_set_of_a_split_across_corpora_follows_its_definition(
    source, target, labels, max_oov, by_group, seed
):
    split = cross_corpora(
        source,
        target,
        labels,
        validation_share=0.3,
        max_oov=max_oov,
        by_group=by_group,
        random_state=seed,
    )
    clean = set()
    for row, kinds in enumerate(kinds_in(source, labels)):
        if kinds and "oov" not in kinds:
            clean.add(row)
    assert set(split.known_rows) == clean
    taught = set().union(*(source.document(row) for row in split.semantics))
    assert taught == set().union(*(source.document(row) for row in clean))
    assert set(split.labels.vocabulary) == taught

    usable = set()
    tested = set()
    oov = set()
    for row, document in enumerate(target):
        known_labels = set(document) & taught
        oov_labels = set(document) - taught
        if not known_labels or len(oov_labels) > max_oov:
            continue
        usable.add(row)
        oov |= oov_labels
        if not known_labels.isdisjoint(labels.unseen):
            tested.add(row)
    assert set(split.labels.oov) == oov
    assert set(split.test) == tested
    train = set(split.train)
    validation = set(split.validation)
    assert train | validation == without_groups_of(target, usable - tested, tested, by_group)
    assert train.isdisjoint(validation)
    if by_group:
        assert groups_of(target, train).isdisjoint(groups_of(target, validation))
    assert not split.own_documents().any()


def test_labels_are_matched_after_normalisation():
    source = corpus_of([("Sea", "sand"), ("sea", "boat"), ("boat", "sand")])
    target = corpus_of([("SEA ", "sand"), ("BOAT", "x"), ("x", "y"), ("sand", "x", "y", "z")])
    labels = LabelSplit(("sea", "sand"), ("boat",))
    split = cross_corpora(source, target, labels, validation=0, validation_share=0.0)
    assert split.train.tolist() == [0]
    assert split.test.tolist() == [1]
    assert split.labels.oov == ("x",)
    tested = split.instances("test")
    assert tested.document(0) == ("BOAT", "x")


def test_a_split_of_the_source_brings_its_sets_and_labels(pictures):
    target = load_dataset("corel5k", sample=True).corpus
    labels = labels_by_document_share(pictures, document_share=(0.2, 0.4), random_state=0)
    inner = within_corpus(pictures, labels, validation=0.2, random_state=0)
    split = cross_corpora(inner, target, random_state=0)
    for name in SEMANTICS:
        assert np.array_equal(getattr(split, name), getattr(inner, name))
    assert split.validation_known
    assert set(split.labels.unseen) <= set(labels.unseen)
    assert split.labels.oov
    assert len(split.train)
    assert len(split.test)
    with pytest.raises(InputError, match="a split brings its own"):
        cross_corpora(inner, target, labels)
    with pytest.raises(InputError, match="needs the kinds of its labels"):
        cross_corpora(pictures, target)
    with pytest.raises(InputError, match="needs a split of one corpus"):
        oov_test(split)


# ------------------------------------------------------------------ columns and measures


def test_columns_by_kind_of_label():
    split = LabelSplit(("a", "b"), ("c",), ("d",))
    assert evaluation_columns(split) == {
        "training": ("a", "b"),
        "zsl": ("a", "b", "c"),
        "zsl-only": ("c",),
        "all": ("a", "b", "c", "d"),
        "oov": ("d",),
    }
    assert list(evaluation_columns(LabelSplit(("a",), ("b",)))) == ["training", "zsl", "zsl-only"]
    assert list(evaluation_columns(LabelSplit((), ("b",)))) == ["zsl", "zsl-only"]


@pytest.fixture(scope="module")
def scored():
    generator = np.random.default_rng(0)
    documents = []
    for _ in range(30):
        documents.append(generator.choice(list("abcde"), size=2, replace=False))
    scores = generator.random((30, 6))
    return corpus_of(documents), scores, ("F", "E", "D", "C", "B", "A")


@pytest.mark.parametrize(
    ("names", "columns"), [(("a", "b", "c"), [5, 4, 3]), (("e",), [1])], ids=["three", "one"]
)
def test_measures_are_those_of_the_columns_alone(scored, names, columns):
    documents, scores, labels = scored
    measures = measure(documents, scores, labels, {"set": names})["set"]
    assert set(measures) == {name for name, _ in splits.MEASURES.values()}
    assert 1 <= measures["coverage"] <= 3

    rows = [[label in document for label in names] for document in documents]
    truth = np.array(rows)
    column_scores = scores[:, columns]
    filled = truth.any(axis=1)
    expected = 100 * example_map(truth[filled], column_scores[filled])
    assert measures["E-MAP"] == pytest.approx(expected)
    expected = 100 * concept_map(truth, column_scores)
    assert measures["C-MAP"] == pytest.approx(expected)


def test_labels_without_a_score_come_last(scored):
    documents, scores, labels = scored
    columns = {"zsl": ("a", "b", "c")}
    measures = measure(
        documents,
        scores[:, :5],
        labels[:5],
        columns,
    )
    lowest_scores = scores.copy()
    lowest_scores[:, 5] = -1
    expected = measure(documents, lowest_scores, labels, columns)
    assert measures == expected
    assert measures != measure(documents, scores, labels, columns)


def test_sets_that_nothing_is_true_of_are_left_out(scored):
    documents, scores, labels = scored
    measures = measure(documents, scores, labels, {"oov": ("f",), "zsl": ("a",)})
    assert measures.keys() == {"zsl"}


def test_a_label_that_applies_everywhere_has_no_area_under_the_curve(scored):
    documents, scores, labels = scored
    everywhere = documents.select(carries(documents, ["a"]))
    n = len(everywhere)
    measures = measure(everywhere, scores[:n], labels, {"zsl": ("a",)})
    assert "AUC" not in measures["zsl"]
    assert measures["zsl"]["C-MAP"] == 100


def test_scores_of_other_labels_are_refused(scored):
    documents, scores, labels = scored
    with pytest.raises(InputError, match="expected 30 documents and 5 scored labels"):
        measure(documents, scores, labels[:5], {"zsl": ("a",)})
