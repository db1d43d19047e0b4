"""What a fit is given: items, further tag sets, and which of them teach what labels mean."""

from __future__ import annotations

import json
import warnings
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from polyseme import LabelCorpus, ZeroShotTagger, load
from polyseme._validation import InputError, PolysemeWarning
from polyseme.baselines import Popularity
from polyseme.documents import join_corpora, met_documents
from polyseme.metrics import example_map
from polyseme.published.mapping import InstanceMapper
from polyseme.published.tagger import PublishedTagger

# No item carries "cozy"; "sand" and "desk" are on many.
FURTHER = [("cozy", "sand", "sun"), ("cozy", "sand"), ("desk", "phone")]


def corpus_of(documents, ids=None):
    return LabelCorpus.from_documents(documents, ids=ids)


def item_quality(tagger, world):
    """E-MAP of the test items over the labels that training items carry."""
    carried = sorted({label for tags in world.documents for label in tags})
    columns = [tagger.classes_.tolist().index(label) for label in carried]
    return example_map(world.truth(carried), tagger.predict_proba(world.X_test)[:, columns])


@pytest.fixture(scope="module")
def carried(world):
    return {label for tags in world.documents for label in tags}


@pytest.fixture(scope="module")
def quality_alone(world, tiny_space):
    """E-MAP of a tagger that has the items' own tag sets only."""
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=0, random_state=0)
    return item_quality(tagger.fit(world.X, world.documents), world)


@pytest.mark.parametrize("n_validations", [0, 2])
@pytest.mark.parametrize("label_sets", [FURTHER, FURTHER[2:], FURTHER[:1] * 40])
def test_the_items_own_tag_sets_teach_beside_further_ones(
    world, tiny_space, carried, quality_alone, tmp_path, label_sets, n_validations
):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=n_validations, random_state=0)
    tagger.fit(world.X, world.documents, label_sets).save(tmp_path / "model")

    further = {label for tags in label_sets for label in tags}
    kinds = dict(zip(tagger.classes_.tolist(), tagger.kinds_.tolist(), strict=True))
    assert kinds == dict.fromkeys(carried, "seen") | dict.fromkeys(further - carried, "unseen")
    assert item_quality(load(tmp_path / "model"), world) > quality_alone - 0.005
    assert len(tagger.store_.ids) == len(world.documents) + len(label_sets)


@pytest.mark.parametrize("n_validations", [0, 2])
def test_label_sets_alone_teach_where_a_person_asks_for_it(world, tiny_space, n_validations):
    tagger = ZeroShotTagger(space=tiny_space(), n_validations=n_validations, random_state=0)
    with pytest.warns(PolysemeWarning, match="tags of the items are in no label set"):
        tagger.fit(world.X, world.documents, FURTHER, label_sets_only=True)
    counts = Counter(tagger.kinds_.tolist())
    assert (counts["seen"], counts["unseen"]) == (4, 1)
    assert counts["oov"] > 10

    with warnings.catch_warnings():
        warnings.simplefilter("error", PolysemeWarning)
        tagger = ZeroShotTagger(space=tiny_space(n_steps=8), n_validations=0, random_state=0)
        tagger.fit(world.X, world.documents, world.label_sets, label_sets_only=True)
    assert set(tagger.classes_[tagger.kinds_ == "oov"]) == set(world.oov)


def test_the_published_method_learns_from_both_as_well(world, tiny_embedding, carried):
    mapper = InstanceMapper(kind="kernel-ridge")
    tagger = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    tagger.fit(world.X, world.documents, FURTHER)
    assert set(np.asarray(tagger.classes_)[np.asarray(tagger.kinds_) == "seen"]) == carried
    alone = PublishedTagger(embedding=tiny_embedding(), mapper=mapper, random_state=0)
    with pytest.warns(PolysemeWarning, match="tags of the items are in no label set"):
        alone.fit(world.X, world.documents, FURTHER, label_sets_only=True)
    assert (np.asarray(alone.kinds_) == "seen").sum() == 4


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
    joined, documents = join_corpora(corpus_of(label_sets, ids), corpus)
    rows = met_documents(documents, joined)
    assert len(joined) == n_joined
    assert len(set(rows.tolist())) == len(ITEMS)
    assert [set(joined.document(row)) for row in rows] == [set(tags) for tags in ITEMS]
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
    n_documents = len(items) + len(set(further) - set(items))
    assert len(join_corpora(corpus_of(further), items)[0]) == n_documents
    assert len(join_corpora(items, corpus_of(further))[0]) == n_documents


def test_a_group_of_items_stays_one_among_the_joined_documents():
    grouped = LabelCorpus(**vars(corpus_of(ITEMS)) | {"groups": ("g", "h", "g", "h")})
    joined, documents = join_corpora(corpus_of([("a", "c")]), grouped)
    rows = met_documents(documents, joined)
    assert [joined.groups[row] for row in rows] == ["g", "h", "g", "h"]
    assert joined.groups.count("g") == joined.groups.count("h") == 2


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
    tagger = ZeroShotTagger(space=tiny_space(n_steps=1), n_validations=0, random_state=0)
    with pytest.warns(PolysemeWarning, match="have no label") as notes:
        tagger.fit(world.X, documents, FURTHER)
    assert len([note for note in notes if "have no label" in str(note.message)]) == 1


@pytest.mark.parametrize("exponent", [-10, -50, -100, -400, 100])
def test_the_unit_of_features_changes_nothing(world, tiny_space, tmp_path, exponent):
    unit = 2.0**exponent
    fitted = []
    for factor in (1.0, unit):
        tagger = ZeroShotTagger(space=tiny_space(n_steps=40), n_validations=0, random_state=0)
        tagger.fit(factor * world.X, world.documents)
        tagger.learn([(0, "sand", False), (1, "sand", True)], factor * world.X)
        tagger.save(tmp_path / str(factor))
        fitted.append(load(tmp_path / str(factor)).predict_proba(factor * world.X_test))
    assert_array_equal(*fitted)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-30, 1e9])
def test_rounding_does_not_make_a_constant_feature_vary(world, tiny_space, constant):
    X = np.column_stack([world.X, np.full(len(world.X), constant)])
    for table in (X, sp.csr_matrix(X)):
        space = tiny_space(n_steps=1)
        tagger = ZeroShotTagger(space=space, n_validations=0, random_state=0)
        tagger.fit(table, world.documents)
        assert tagger.space_.scale_[-1] == 1
        assert (tagger.space_.scale_[:-1] != 1).all()


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
def test_features_that_vary_by_too_little_are_told_of(world, tiny_space, make, n_lost, form):
    X = make(world.X)
    tagger = ZeroShotTagger(space=tiny_space(n_steps=1), n_validations=0, random_state=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tagger.fit(form(X), world.documents)
    sentences = [str(one.message) for one in told if "are not learned from" in str(one.message)]
    expected = X.shape[1] if n_lost == "all" else n_lost
    assert [one.split(" features")[0] for one in sentences] == [
        f"{expected} of {X.shape[1]}"
    ] * bool(expected)


def write_items(folder, world):
    documents = [
        {"id": f"photo-{row}", "tags": list(tags)} for row, tags in enumerate(world.documents)
    ]
    lines = [json.dumps(document) + "\n" for document in documents]
    (folder / "tags.jsonl").write_text("".join(lines), "utf-8")
    np.save(folder / "features.npy", world.X)
    (folder / "further.csv").write_text(
        "id,tags\n" + "".join(f"s{row},{';'.join(tags)}\n" for row, tags in enumerate(FURTHER)),
        "utf-8",
    )
    return [folder / name for name in ("tags.jsonl", "features.npy", "further.csv")]


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
    common = ["--documents", documents, "--features", features, "--label-sets", further]
    assert run("fit", model, *common, *options)[0] == 0
    counts = Counter(np.asarray(load(model).kinds_).tolist())
    assert counts["unseen"] == 1
    assert counts["oov"] == 0


def test_documents_of_no_item_teach_beside_a_file_of_tag_sets(run, world, tmp_path):
    documents, _, further = write_items(tmp_path, world)
    with documents.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "no-photo", "tags": ["fog", "sea"]}) + "\n")
    ids = [f"photo-{row}" for row in range(len(world.X))]
    np.savez(tmp_path / "named.npz", ids=np.array(ids), vectors=world.X)
    common = ["--documents", documents, "--features", tmp_path / "named.npz"]
    run("fit", tmp_path / "model", *common, "--label-sets", further, "--validations", 0)
    tagger = load(tmp_path / "model")
    assert set(tagger.classes_[tagger.kinds_ == "unseen"]) == {"cozy", "fog"}
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
    place = [tmp_path / part for part in model]
    code, _, error = run(
        name, *place, "--documents", documents, "--features", features, "--label-sets-only"
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
    documents, *_ = write_items(tmp_path, world)
    with documents.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "no-photo", "tags": ["fog", "sea"]}) + "\n")
    ids = [f"photo-{row}" for row in range(len(world.X))]
    np.savez(tmp_path / "named.npz", ids=np.array(ids), vectors=world.X)
    repeated = tmp_path / "repeated.jsonl"
    tag_sets = [*world.documents, ("fog", "sea"), *FURTHER]
    repeated.write_text("".join(json.dumps({"tags": list(tags)}) + "\n" for tags in tag_sets))
    common = ["--documents", documents, "--features", tmp_path / "named.npz"]
    run("fit", tmp_path / "model", *common, "--label-sets", repeated, "--validations", 0)
    assert len(load(tmp_path / "model").store_.ids) == len(tag_sets)
