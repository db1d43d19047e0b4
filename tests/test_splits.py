"""Who learns from what: every set against its definition, on random corpora and on real ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme import LabelCorpus, splits
from polyseme._validation import InputError
from polyseme.datasets import load_dataset
from polyseme.metrics import concept_map, example_map
from polyseme.splits import (
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
    made = LabelCorpus.from_documents(documents, ids=ids)
    return replace(
        made,
        groups=None if groups is None else tuple(groups),
        splits=None if splits is None else tuple(splits),
    )


@st.composite
def corpora(draw, prefix="d"):
    """Draw a corpus with empty documents, groups or none, and an official split."""
    documents = draw(st.lists(st.sets(st.sampled_from(LABELS), max_size=4), max_size=40))
    n = len(documents)
    groups = draw(st.none() | st.lists(st.sampled_from("uvwxyz"), min_size=n, max_size=n))
    splits = draw(st.lists(st.sampled_from(["train", "test"]), min_size=n, max_size=n))
    return corpus_of(documents, groups, splits, ids=[f"{prefix}{i}" for i in range(n)])


@st.composite
def kinds(draw):
    """Draw the kind of every label."""
    numbers = draw(st.lists(st.integers(0, 2), min_size=len(LABELS), max_size=len(LABELS)))
    return LabelSplit(
        *(tuple(t for t, n in zip(LABELS, numbers, strict=True) if n == k) for k in range(3))
    )


def kinds_in(corpus, labels):
    """Return which kinds of labels each document holds."""
    kinds = {label: kind for kind in vars(labels) for label in getattr(labels, kind)}
    return [{kinds[label] for label in document} for document in corpus]


def groups_of(corpus, rows):
    return set() if corpus.groups is None else {corpus.groups[row] for row in rows}


def without_groups_of(corpus, rows, others, by_group):
    """Leave out rows of a group that has one of the others."""
    shared = groups_of(corpus, others) if by_group else set()
    return {row for row in rows if not groups_of(corpus, [row]) & shared}


# ------------------------------------------------------------------ labels


@pytest.fixture(scope="module")
def music():
    return load_dataset("msd-subset", sample=True).corpus


@pytest.fixture(scope="module")
def pictures():
    return load_dataset("hsun", sample=True).corpus


@pytest.mark.parametrize("seed", range(2))
def test_a_drawn_label_split_keeps_its_promises(pictures, seed):
    shares = {"document_share": (0.2, 0.4), "oov_document_share": (0.1, 0.3)}
    labels = labels_by_document_share(pictures, oov_share=0.15, random_state=seed, **shares)
    assert random_labels(pictures, random_state=seed) == random_labels(pictures, random_state=seed)
    filled = pictures.select(pictures.lengths > 0)
    outside = carries(filled, labels.oov)
    assert 0.1 <= outside.mean() <= 0.3
    assert 0.2 <= carries(filled, labels.unseen)[~outside].mean() <= 0.4
    assert len(labels.oov) == round(0.15 * len(pictures.labels))
    inside = filled.select(~outside).without_unused().labels
    assert len(labels.unseen) == round(0.25 * len(inside))
    assert sorted(labels.seen + labels.unseen + labels.oov) == sorted(pictures.labels)


def test_labels_drawn_without_oov_are_those_of_before():
    """The generator's stream without oov labels is fixed: published figures rest on it."""
    documents = [{LABELS[i % 7], LABELS[(3 * i) % 10]} for i in range(40)]
    corpus = corpus_of(documents)
    stream = np.random.default_rng(5)
    chosen = []
    while not chosen:
        covered = set()
        drawn = []
        for column in stream.permutation(len(corpus.labels)):
            rows = {i for i, d in enumerate(documents) if corpus.labels[column] in d}
            if len(covered | rows) <= 0.5 * 40:
                covered |= rows
                drawn.append(corpus.labels[column])
            if len(drawn) == 3:
                break
        if len(drawn) == 3 and len(covered) >= 0.3 * 40:
            chosen = sorted(drawn)
    shares = {"unseen_share": 0.3, "document_share": (0.3, 0.5)}
    assert list(labels_by_document_share(corpus, random_state=5, **shares).unseen) == chosen


def test_random_labels_take_shares_of_the_labels_in_use():
    corpus = LabelCorpus.from_indicator(
        np.array([[1] * 20 + [0] * 4, [1] * 20 + [0] * 4]), [f"label {i:02}" for i in range(24)]
    )
    labels = random_labels(corpus, unseen_share=0.25, oov_share=0.2, random_state=0)
    assert [len(labels.oov), len(labels.unseen), len(labels.seen)] == [4, 4, 16]
    assert set(labels.seen) >= {f"label {i}" for i in range(20, 24)}


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


def test_a_label_has_one_kind_and_every_label_has_one():
    with pytest.raises(InputError, match="of one kind each; named twice: b"):
        LabelSplit(("a", "b"), ("b",))
    with pytest.raises(InputError, match="neither seen, unseen nor oov in `labels`: c;"):
        within_corpus(corpus_of([("a", "c")], splits=["train"]), LabelSplit(("a",), ("b",)))


# ------------------------------------------------------------------ documents


@many
@given(corpora(), st.floats(0, 1), st.booleans(), st.booleans(), st.integers(0, 3))
def test_drawn_rows_are_whole_groups_near_the_size_or_leave_every_label_a_document(
    corpus, share, by_group, keep_labels, seed
):
    rows = np.arange(len(corpus))[::2]
    generator = np.random.default_rng(seed)
    chosen = splits._draw_rows(corpus, rows, share, by_group, generator, keep_labels)
    left = np.setdiff1d(rows, chosen)
    assert set(chosen) <= set(rows)
    sizes = [1] * len(rows)
    if by_group and corpus.groups is not None:
        assert not groups_of(corpus, chosen) & groups_of(corpus, left)
        names = [corpus.groups[row] for row in rows]
        sizes = [names.count(name) for name in set(names)]
    distance = len(chosen) - round(share * len(rows))
    assert distance <= max(sizes, default=0) / 2
    if keep_labels:
        used = corpus.select(rows).used(corpus.labels)
        assert corpus.select(left).used(corpus.labels) == used
    else:
        assert -distance <= max(sizes, default=0) / 2


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
    with pytest.raises(InputError, match=message):
        within_corpus(corpus, LabelSplit(("a",), ("b",)), random_state=0, **options)


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
def test_within_a_corpus_every_set_is_what_it_should_be(
    corpus, labels, first, validation_from, test_from, by_group, seed
):
    options = {"validation_from": validation_from, "test_from": test_from, "by_group": by_group}
    split = within_corpus(corpus, labels, first=first, validation=0.3, random_state=seed, **options)
    halves = splits._halves(corpus, first, by_group, np.random.default_rng(seed))
    half = set(halves[0])
    other = set(halves[1])
    held = kinds_in(corpus, labels)
    clean = {row for row in half | other if held[row] and "oov" not in held[row]}
    plain = {row for row in clean if "unseen" not in held[row]}
    # who teaches meaning
    sets = [set(getattr(split, name)) for name in SEMANTICS]
    assert set.union(*sets) == clean
    assert sum(len(part) for part in sets) == len(clean)
    stays = sets[0] | sets[1] if validation_from == "first" else sets[0]
    assert stays == clean & half == set(split.known_rows)
    if validation_from == "first":
        used = corpus.select(sorted(clean & half)).used(corpus.labels)
        assert corpus.select(split.semantics).used(corpus.labels) == used
    # who is mapped and tested
    assert set(split.test) == (clean - plain if test_from == "both" else (clean - plain) & other)
    assert set(split.validation) == plain & other
    assert set(split.train) == without_groups_of(corpus, plain & half, split.test, by_group)
    if by_group and first != "split" and test_from == "second":
        assert set(split.train) == plain & half  # whole groups: nobody is left out
        assert not groups_of(corpus, split.known_rows) & groups_of(corpus, split.test)
    assert list(split.own_documents()) == [row in split.known_rows for row in split.test]
    assert split.own_documents().any() <= (test_from == "both")


@many
@given(corpora(), kinds(), st.booleans(), st.sampled_from(["second", "both"]), st.integers(0, 3))
def test_the_oov_test_takes_what_the_split_leaves_out(corpus, labels, by_group, test_from, seed):
    split = within_corpus(
        corpus, labels, first=0.6, test_from=test_from, by_group=by_group, random_state=seed
    )
    if not labels.oov:
        with pytest.raises(InputError, match="draw the labels with an `oov_share`"):
            oov_test(split)
        return
    other = oov_test(split)
    held = kinds_in(corpus, labels)
    assert set(other.test) == {r for r, kinds in enumerate(held) if {"unseen", "oov"} <= kinds}
    assert not set(other.test) & set(split.test)
    more = {row for row, kinds in enumerate(held) if kinds == {"seen", "oov"}} | set(split.train)
    assert set(other.train) == without_groups_of(corpus, more, other.test, by_group)
    assert np.array_equal(other.known_rows, split.known_rows)
    assert not other.own_documents().any()


def documents_like_table_1():
    """MagTag5K's documents by the kinds of labels they hold, each over one or two labels."""
    counts = {("s",): 2871, ("s", "u"): 953, ("s", "o"): 750, ("s", "u", "o"): 410, ("o",): 2}
    sizes = {"s": 85, "u": 29, "o": 22}
    documents = [
        {f"{kind}{i % sizes[kind]}" for kind in kinds}
        for kinds, n in counts.items()
        for i in range(n)
    ]
    labels = LabelSplit(*(tuple(f"{kind}{i}" for i in range(sizes[kind])) for kind in "suo"))
    return corpus_of(documents), labels


def test_table_1_counts_of_magtag5k():
    corpus, labels = documents_like_table_1()
    options = {"validation_from": "second", "validation": 300, "test_from": "both"}
    split = within_corpus(corpus, labels, first=2 / 3, random_state=0, **options)
    sizes = split.sizes()
    assert [sizes["seen"], sizes["unseen"], sizes["oov"], sizes["documents"]] == [85, 29, 22, 4986]
    assert sizes["test"] == 953
    assert sizes["semantics_validation"] == 300
    assert sizes["train"] + sizes["validation"] == 2871
    assert sizes["semantics"] + 300 + sizes["semantics_test"] == 3824
    published = {"semantics": 2550, "semantics_test": 975, "train": 1914, "validation": 957}
    for name, count in published.items():
        assert abs(sizes[name] - count) <= 60, name
    assert abs(split.own_documents().sum() - 636) <= 40  # two thirds of the tested are in D1
    other = oov_test(split).sizes()
    assert other["train"] == sizes["train"] + 750
    assert other["test"] == 410


def test_a_split_hands_out_documents_under_their_own_names(music):
    numbered = LabelCorpus.from_documents(list(music))
    labels = random_labels(numbered, oov_share=0.2, random_state=0)
    split = within_corpus(numbered, labels, first=0.6, random_state=0)
    for corpus, rows in (
        (split.training_label_sets(), split.semantics),
        (split.validation_label_sets(), split.semantics_validation),
        (split.instances("test"), split.test),
    ):
        assert corpus.ids == tuple(str(row) for row in rows)
        assert not corpus.numbered
        assert [set(document) for document in corpus] == [set(numbered.document(r)) for r in rows]
    assert set(split.training_label_sets().labels) == set(labels.vocabulary)
    assert len(split.unmet_instances("train")) == 0
    more = oov_test(split).unmet_instances("train")
    assert set(more.ids) == {str(row) for row in np.setdiff1d(oov_test(split).train, split.train)}


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
    split = within_corpus(music, random_labels(music, random_state=0), first=0.6, random_state=0)
    with pytest.raises(InputError, match="`train` of `ZeroShotSplit` must hold rows"):
        replace(split, train=[0, len(music)])
    with pytest.raises(InputError, match=r"`part` of `ZeroShotSplit\.instances` must be one of"):
        split.instances("semantics")


def test_hsun_has_the_papers_halves(data):
    if not (data / "hsun").is_dir():
        pytest.skip("the corpus hsun is not here")
    corpus = load_dataset("hsun", data).corpus
    one, two = splits._halves(corpus, "split", True, np.random.default_rng(0))
    assert [corpus.splits.count(word) for word in ("train", "test")] == [4367, 4317]
    empty = corpus.lengths == 0
    assert [len(one), len(two)] == [4367 - empty[:4367].sum(), 4317 - empty[4367:].sum()]
    labels = labels_by_document_share(corpus.select(one), random_state=0)
    sizes = within_corpus(corpus, labels, validation=0.35, random_state=0).sizes()
    assert sizes["semantics"] + sizes["semantics_validation"] == len(one)
    assert sizes["validation"] + sizes["test"] == sizes["semantics_test"] == len(two)
    published = {"semantics": 2839, "semantics_validation": 1527, "semantics_test": 4217}
    published |= {"train": 3074, "validation": 2955, "test": 1262}
    for name, count in published.items():
        assert abs(sizes[name] - count) <= 0.06 * count, name


# ------------------------------------------------------------------ from one corpus to another


@many
@given(corpora("s"), corpora("t"), kinds(), st.integers(0, 3), st.booleans(), st.integers(0, 3))
def test_across_corpora_every_set_is_what_it_should_be(
    source, target, labels, max_oov, by_group, seed
):
    options = {"max_oov": max_oov, "by_group": by_group, "random_state": seed}
    split = cross_corpora(source, target, labels, validation_share=0.3, **options)
    held = kinds_in(source, labels)
    clean = {row for row in range(len(source)) if held[row] and "oov" not in held[row]}
    assert set(split.known_rows) == clean
    taught = set().union(*(source.document(row) for row in split.semantics))
    assert taught == set().union(*(source.document(row) for row in clean))
    assert set(split.labels.vocabulary) == taught
    inside = [set(document) & taught for document in target]
    outside = [set(document) - taught for document in target]
    usable = [r for r in range(len(target)) if inside[r] and len(outside[r]) <= max_oov]
    assert set(split.labels.oov) == set().union(*(outside[row] for row in usable))
    tested = {row for row in usable if inside[row] & set(labels.unseen)}
    assert set(split.test) == tested
    rest = without_groups_of(target, set(usable) - tested, tested, by_group)
    assert set(split.train) | set(split.validation) == rest
    assert not set(split.train) & set(split.validation)
    if by_group:
        assert not groups_of(target, split.train) & groups_of(target, split.validation)
    assert not split.own_documents().any()


def test_labels_are_matched_after_normalisation():
    source = corpus_of([("Sea", "sand"), ("sea", "boat"), ("boat", "sand")])
    target = corpus_of([("SEA ", "sand"), ("BOAT", "x"), ("x", "y"), ("sand", "x", "y", "z")])
    labels = LabelSplit(("sea", "sand"), ("boat",))
    split = cross_corpora(source, target, labels, validation=0, validation_share=0.0)
    assert split.train.tolist() == [0]
    assert split.test.tolist() == [1]
    assert split.labels.oov == ("x",)
    assert split.instances("test").document(0) == ("BOAT", "x")


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
    documents = [set(generator.choice(list("abcde"), size=2, replace=False)) for _ in range(30)]
    return corpus_of(documents), generator.random((30, 6)), ("F", "E", "D", "C", "B", "A")


def test_measures_are_those_of_the_columns_alone(scored):
    documents, scores, labels = scored
    found = measure(documents, scores, labels, {"zsl": ("a", "b", "c"), "oov": ("e",)})
    for name, columns in (("zsl", [5, 4, 3]), ("oov", [1])):
        truth = np.array([[labels[c].lower() in d for c in columns] for d in documents])
        assert found[name]["E-MAP"] == pytest.approx(
            100 * example_map(truth[truth.any(axis=1)], scores[truth.any(axis=1)][:, columns])
        )
        assert found[name]["C-MAP"] == pytest.approx(100 * concept_map(truth, scores[:, columns]))
    assert set(found["zsl"]) == {name for name, _ in splits.MEASURES.values()}
    assert 1 <= found["zsl"]["coverage"] <= 3
    # Labels without a score come last.
    columns = {"zsl": ("a", "b", "c")}
    without = measure(documents, scores[:, :5], labels[:5], columns)
    worst = scores.copy()
    worst[:, 5] = -1
    assert without == measure(documents, worst, labels, columns)
    assert without != measure(documents, scores, labels, columns)


def test_sets_that_nothing_is_true_of_are_left_out(scored):
    documents, scores, labels = scored
    assert measure(documents, scores, labels, {"oov": ("f",), "zsl": ("a",)}).keys() == {"zsl"}
    everywhere = documents.select(carries(documents, ["a"]))
    found = measure(everywhere, scores[: len(everywhere)], labels, {"zsl": ("a",)})
    assert "AUC" not in found["zsl"]  # there is no instance that the label does not apply to
    assert found["zsl"]["C-MAP"] == 100
    with pytest.raises(InputError, match="expected 30 documents and 5 scored labels"):
        measure(documents, scores, labels[:5], {"zsl": ("a",)})
