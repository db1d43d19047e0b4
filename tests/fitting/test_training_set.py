"""What a fit is given: items, further tag sets, and which of them teach what labels mean."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from polyseme import LabelCorpus, ZeroShotTagger, load
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.documents.label_sets import find_label_set_rows, join_corpora
from polyseme.metrics import example_map
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger
from polyseme_experiments.baselines import Popularity
from toy_fits import fit_world, tiny_tagger

# No item carries "cozy"; "sand" and "desk" are on many.
FURTHER = [("cozy", "sand", "sun"), ("cozy", "sand"), ("desk", "phone")]


def corpus_of(documents, ids=None):
    return LabelCorpus.from_documents(documents, ids=ids)


def item_quality(tagger, world):
    """Return the E-MAP of the test items over the labels that training items carry."""
    carried = sorted(set().union(*world.documents))
    labels = tagger.classes_.tolist()
    columns = [labels.index(label) for label in carried]
    probabilities = tagger.predict_proba(world.X_test)
    return example_map(world.truth(carried), probabilities[:, columns])


@pytest.fixture(scope="module")
def carried(world):
    return {label for tags in world.documents for label in tags}


@pytest.fixture(scope="module")
def quality_alone(world, tiny_space):
    """E-MAP of a tagger that has the items' own tag sets only."""
    tagger = tiny_tagger(tiny_space)
    return item_quality(tagger.fit(world.X, world.documents), world)


@pytest.mark.parametrize("n_validations", [0, 2])
@pytest.mark.parametrize("label_sets", [FURTHER, FURTHER[2:], FURTHER[:1] * 40])
def test_the_items_own_tag_sets_teach_beside_further_ones(
    world, tiny_space, carried, quality_alone, tmp_path, label_sets, n_validations
):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=n_validations, random_state=0)
    tagger.fit(world.X, world.documents, label_sets)
    further_labels = set().union(*label_sets)
    expected = dict.fromkeys(carried, "seen")
    expected |= dict.fromkeys(further_labels - carried, "unseen")
    kind_by_label = dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))
    assert kind_by_label == expected
    assert len(tagger.store_.ids) == len(world.documents) + len(label_sets)

    model = tmp_path / "model"
    tagger.save(model)
    loaded = load(model)
    assert item_quality(loaded, world) > quality_alone - 0.005


@pytest.mark.parametrize("n_validations", [0, 2])
def test_label_sets_alone_teach_where_a_person_asks_for_it(world, tiny_space, n_validations):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=n_validations, random_state=0)
    with pytest.warns(PolysemeWarning, match="tags of the items are in no label set"):
        tagger.fit(world.X, world.documents, FURTHER, label_sets_only=True)
    counts = Counter(tagger.kinds_.tolist())
    assert counts["seen"] == 4
    assert counts["unseen"] == 1
    assert counts["oov"] > 10


def test_label_sets_with_most_tags_of_the_items_teach_alone_without_a_warning(world, tiny_space):
    tagger = tiny_tagger(tiny_space, n_steps=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PolysemeWarning)
        fit_world(tagger, world)
    oov_labels = tagger.classes_[tagger.kinds_ == "oov"]
    assert set(oov_labels) == set(world.oov)


def test_the_published_method_learns_from_both_as_well(world, tiny_embedding, carried):
    mapper = InstanceMapper(kind="kernel-ridge")
    tagger = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    tagger.fit(world.X, world.documents, FURTHER)
    is_seen = np.array(tagger.kinds_) == "seen"
    seen_labels = np.array(tagger.classes_)[is_seen]
    assert set(seen_labels) == carried


def test_the_published_method_learns_from_label_sets_alone_where_asked(world, tiny_embedding):
    mapper = InstanceMapper(kind="kernel-ridge")
    tagger = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    with pytest.warns(PolysemeWarning, match="tags of the items are in no label set"):
        tagger.fit(world.X, world.documents, FURTHER, label_sets_only=True)
    assert list(tagger.kinds_).count("seen") == 4


ITEMS = [("a", "b"), (), ("a",), ("a", "b")]


@pytest.mark.parametrize(
    ("label_sets", "ids", "item_ids", "n_joined"),
    [
        ([("a", "c")], None, None, 5),
        ([("a", "c")], ["x"], ["p", "q", "r", "s"], 5),
        ([("a", "c")], ["p"], ["p", "q", "r", "s"], 5),
        # Whoever gives all tag sets without names means the items' own as well.
        ([("b", "A"), ("a",), ("c", "b"), ("a", "b")], None, None, 5),
        ([("a", "b"), ("a",), ("c", "b")], None, None, 7),
        ([("a", "b"), ("a",), ("a", "b")], ["p", "r", "s"], ["p", "q", "r", "s"], 4),
        ([()], None, None, 5),
    ],
)
def test_each_item_has_one_document_among_the_joined_ones(label_sets, ids, item_ids, n_joined):
    corpus = corpus_of(ITEMS, item_ids)
    further = corpus_of(label_sets, ids)
    joined, documents = join_corpora(further, corpus)
    assert len(joined) == n_joined
    rows = find_label_set_rows(documents, joined)
    assert len(set(rows.tolist())) == len(ITEMS)
    for row, tags in zip(rows, ITEMS, strict=True):
        assert set(joined.document(row)) == set(tags)
    assert join_corpora(joined, documents) == (joined, documents)


@pytest.mark.parametrize(
    "further",
    [
        [("a", "b"), ("a",), ("b", "c"), ("x", "y")],
        [("a", "b"), ("a",), ("b", "c")],
        [("b", "c")],
    ],
    ids=["all and more", "all", "some"],
)
def test_tag_sets_without_names_that_repeat_those_of_items_count_once_in_either_order(further):
    items = corpus_of([("a", "b"), ("a",), ("b", "c"), ()], ids=list("wxyz"))
    new_tag_sets = set(further) - set(items)
    n_documents = len(items) + len(new_tag_sets)
    label_sets = corpus_of(further)
    joined, _ = join_corpora(label_sets, items)
    assert len(joined) == n_documents
    joined, _ = join_corpora(items, label_sets)
    assert len(joined) == n_documents


def test_a_group_of_items_stays_one_among_the_joined_documents():
    items = replace(corpus_of(ITEMS), groups=("g", "h", "g", "h"))
    joined, documents = join_corpora(corpus_of([("a", "c")]), items)
    rows = find_label_set_rows(documents, joined)
    groups = [joined.groups[row] for row in rows]
    assert groups == ["g", "h", "g", "h"]
    assert joined.groups.count("g") == 2
    assert joined.groups.count("h") == 2


def test_who_wants_label_sets_alone_has_to_give_some(world, tiny_space, tiny_embedding):
    mapper = InstanceMapper(kind="kernel-ridge")
    for tagger in (
        ZeroShotTagger(space=tiny_space(), n_validations=0),
        PublishedTagger(embedding=tiny_embedding(), mapper=mapper),
        Popularity(),
    ):
        with pytest.raises(InputError, match="`label_sets_only` needs `label_sets`"):
            tagger.fit(world.X, world.documents, label_sets_only=True)


def test_documents_without_a_label_are_counted_once(world, tiny_space):
    documents = [*world.documents[:-2], (), ()]
    tagger = tiny_tagger(tiny_space, n_steps=1)
    with pytest.warns(PolysemeWarning, match="have no label") as caught:
        tagger.fit(world.X, documents, FURTHER)
    messages = [str(warning.message) for warning in caught]
    n_mentions = sum("have no label" in message for message in messages)
    assert n_mentions == 1


@pytest.mark.parametrize("exponent", [-10, -50, -100, -400, 100])
def test_the_unit_of_features_changes_nothing(world, tiny_space, tmp_path, exponent):
    def probabilities(unit):
        X = unit * world.X
        tagger = tiny_tagger(tiny_space, n_steps=40)
        tagger.fit(X, world.documents)
        tagger.learn([(0, "sand", False), (1, "sand", True)], X)
        tagger.save(tmp_path / str(unit))
        loaded = load(tmp_path / str(unit))
        return loaded.predict_proba(unit * world.X_test)

    assert_array_equal(probabilities(2.0**exponent), probabilities(1.0))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-30, 1e9])
def test_rounding_does_not_make_a_constant_feature_vary(world, tiny_space, constant, form):
    constants = np.full(len(world.X), constant)
    X = np.column_stack([world.X, constants])
    tagger = tiny_tagger(tiny_space, n_steps=1)
    tagger.fit(form(X), world.documents)
    *scales, scale_of_constant = tagger.space_.scale_
    assert scale_of_constant == 1
    assert 1 not in scales


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize(
    ("make", "n_lost"),
    [
        (lambda X: 1e-200 * X, "all"),
        (lambda X: np.column_stack([X, 1e9 + 0.1 * X[:, 0]]), 1),
        (lambda X: np.column_stack([X, 0.1 + 1e-16 * X[:, 0]]), 0),
        (lambda X: (X - X.mean(axis=0)) / X.std(axis=0), 0),
    ],
    ids=["tiny", "a large constant and a little", "rounding", "standardised"],
)
def test_features_that_vary_by_too_little_cause_a_warning(world, tiny_space, make, n_lost, form):
    X = make(world.X)
    tagger = tiny_tagger(tiny_space, n_steps=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tagger.fit(form(X), world.documents)
    counts = []
    for warning in caught:
        message = str(warning.message)
        if "are not learned from" in message:
            counts.append(message.split(" features")[0])
    n_features = X.shape[1]
    expected = n_features if n_lost == "all" else n_lost
    if expected:
        assert counts == [f"{expected} of {n_features}"]
    else:
        assert counts == []


def write_items(folder, world):
    documents = folder / "tags.jsonl"
    lines = []
    for row, tags in enumerate(world.documents):
        document = {"id": f"photo-{row}", "tags": list(tags)}
        lines.append(json.dumps(document) + "\n")
    documents.write_text("".join(lines), "utf-8")

    features = folder / "features.npy"
    np.save(features, world.X)

    further = folder / "further.csv"
    rows = ["id,tags"]
    for row, tags in enumerate(FURTHER):
        rows.append(f"s{row},{';'.join(tags)}")
    further.write_text("\n".join(rows) + "\n", "utf-8")
    return [documents, features, further]


def write_documents_of_no_item(folder, world):
    """Write the items, named features and one document more; return what to fit with."""
    documents, _, further = write_items(folder, world)
    with documents.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "no-photo", "tags": ["fog", "sea"]}) + "\n")
    features = folder / "named.npz"
    ids = [f"photo-{row}" for row in range(len(world.X))]
    np.savez(features, ids=np.array(ids), vectors=world.X)
    return ["--documents", documents, "--features", features], further


@pytest.mark.parametrize(
    "options",
    [("--validations", 0), ("--validations", 2), ("--preset", "paper", "--epochs", 2)],
    ids=["not validated", "validated", "published method"],
)
def test_the_command_line_learns_from_a_small_file_of_further_tag_sets(
    run, world, tmp_path, options
):
    documents, features, further = write_items(tmp_path, world)
    model = tmp_path / "model"
    code, _, _ = run(
        "fit",
        model,
        "--documents",
        documents,
        "--features",
        features,
        "--label-sets",
        further,
        *options,
    )
    assert code == 0
    kinds = list(load(model).kinds_)
    assert kinds.count("unseen") == 1
    assert kinds.count("oov") == 0


def test_documents_of_no_item_teach_beside_a_file_of_tag_sets(run, world, tmp_path):
    options, further = write_documents_of_no_item(tmp_path, world)
    model = tmp_path / "model"
    run("fit", model, *options, "--label-sets", further, "--validations", 0)
    tagger = load(model)
    unseen_labels = tagger.classes_[tagger.kinds_ == "unseen"]
    assert set(unseen_labels) == {"cozy", "fog"}
    assert len(tagger.store_.ids) == len(world.X) + 1 + len(FURTHER)


def test_validate_measures_with_a_small_file_of_further_tag_sets(run, world, tmp_path):
    documents, features, further = write_items(tmp_path, world)
    common = ["--documents", documents, "--features", features, "--draws", 1]
    code, printed, _ = run("validate", *common, "--label-sets", further)
    assert code == 0
    assert "unseen" in printed


@pytest.mark.parametrize("command", [("fit", "model"), ("validate",)], ids=["fit", "validate"])
def test_label_sets_only_is_refused_without_label_sets(run, world, tmp_path, command):
    documents, features, _ = write_items(tmp_path, world)
    name, *model = command
    folders = [tmp_path / folder for folder in model]
    code, _, error = run(
        name,
        *folders,
        "--documents",
        documents,
        "--features",
        features,
        "--label-sets-only",
    )
    assert code == 1
    assert "--label-sets" in error


def test_validate_says_that_label_sets_alone_hold_too_few_tags(run, world, tmp_path):
    documents, features, further = write_items(tmp_path, world)
    common = ["--documents", documents, "--features", features, "--draws", 1]
    code, _, error = run("validate", *common, "--label-sets", further, "--label-sets-only")
    assert code == 1
    assert "label sets" in error


def test_the_command_line_counts_repeated_tag_sets_without_names_once(run, world, tmp_path):
    options, _ = write_documents_of_no_item(tmp_path, world)
    tag_sets = [*world.documents, ("fog", "sea"), *FURTHER]
    lines = [json.dumps({"tags": list(tags)}) + "\n" for tags in tag_sets]
    repeated = tmp_path / "repeated.jsonl"
    repeated.write_text("".join(lines))
    model = tmp_path / "model"
    run("fit", model, *options, "--label-sets", repeated, "--validations", 0)
    tagger = load(model)
    assert len(tagger.store_.ids) == len(tag_sets)
