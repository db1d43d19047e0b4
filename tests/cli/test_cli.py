"""The commands: what they print and write, what they refuse, and what survives an interruption."""

from __future__ import annotations

import csv
import errno
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyseme
from polyseme.base.validation import InputError
from polyseme.cli import app
from polyseme.cli.inputs import TableReader, tags_of_items
from polyseme.cli.output import bar
from polyseme.cli.postponed import Postponed, postpone
from polyseme.documents.corpus import LabelCorpus
from polyseme.published.training import Checkpoint, ConceptTrainer
from polyseme.storage.model_file import MODEL_FILE

SMALL = ["--preset", "paper", "--components", 8, "--topics", 5, "--epochs", 2]
SMALL += ["--mapper", "kernel-ridge"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, world) -> Path:
    """The toy world in files."""
    folder = tmp_path_factory.mktemp("files")
    n_items = len(world.X_test)
    write_jsonl(folder / "documents.jsonl", world.documents)
    write_jsonl(folder / "semantics.jsonl", world.label_sets)
    write_jsonl(folder / "truth.jsonl", [world.themes[theme] for theme in world.themes_test])
    write_jsonl(folder / "given.jsonl", [["keyboard"]] + [[]] * (n_items - 1))
    write_jsonl(folder / "more.jsonl", [["sea", "jellyfish"], ["sand", "jellyfish"]])
    np.save(folder / "features.npy", world.X)
    np.save(folder / "test.npy", world.X_test)
    words = np.array(["sea", "sand", "desk", "phone", "coast"])
    vectors = np.array([[1, 0.1], [1, 0.0], [0, 1], [0.1, 1], [1, 0.05]])
    np.savez(folder / "words.npz", words=words, vectors=vectors)
    with (folder / "documents.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "tags"])
        for row, document in enumerate(world.documents):
            writer.writerow([f"item {row}", ";".join(document)])
    return folder


@pytest.fixture
def inputs(files) -> list:
    """The options of documents and features."""
    return ["-d", files / "documents.jsonl", "-x", files / "features.npy"]


@pytest.fixture
def test_rows(files) -> Path:
    return files / "test.npy"


@pytest.fixture(scope="module")
def model(files, toy_tagger) -> Path:
    toy_tagger.save(files / "model")
    return files / "model"


@pytest.fixture(scope="module")
def published(files, published_tagger) -> Path:
    published_tagger.save(files / "published")
    return files / "published"


@pytest.fixture
def own_model(model, tmp_path) -> Path:
    """A copy of the model that a test may change."""
    polyseme.load(model).save(tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def small_space(tiny_space, monkeypatch) -> None:
    """Let commands learn small spaces."""
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", tiny_space)


@pytest.fixture
def quick_space(tiny_space, monkeypatch) -> None:
    """Let commands learn small spaces, badly."""

    def make() -> polyseme.ConceptSpace:
        return tiny_space(n_steps=20)

    make.from_state = polyseme.ConceptSpace.from_state
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", make)


@pytest.fixture
def no_training(monkeypatch) -> None:
    """Fail where a space is trained."""
    monkeypatch.setattr(polyseme.ConceptSpace, "fit", lambda *_, **__: pytest.fail("trained"))


def write_jsonl(path: Path, documents) -> Path:
    lines = [json.dumps({"labels": list(labels)}) + "\n" for labels in documents]
    path.write_text("".join(lines))
    return path


def write_records(path: Path, records) -> Path:
    lines = [json.dumps(record) + "\n" for record in records]
    path.write_text("".join(lines))
    return path


def write_npy(path: Path, array) -> Path:
    np.save(path, array)
    return path


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def column(records, field: str) -> list:
    return [record[field] for record in records]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def widest_line(text: str) -> int:
    return max(map(len, text.splitlines()))


def interrupt(*_, **__):
    raise KeyboardInterrupt


# ------------------------------------------------------------------ fit


def test_fit_then_rank(succeed, files, inputs, test_rows, tmp_path):
    result = succeed("fit", tmp_path / "m", *inputs, "-s", files / "semantics.jsonl", *SMALL)
    assert result.stdout.strip() == str(tmp_path / "m")
    assert "29 labels (25 seen, 4 unseen)" in result.stderr
    assert not (tmp_path / "m.checkpoint").exists()
    rankings = succeed("rank", tmp_path / "m", test_rows, "-k", 3).records
    assert column(rankings, "row") == list(range(25))
    for ranking in rankings:
        assert len(ranking["labels"]) == len(ranking["scores"]) == len(ranking["kinds"]) == 3


def test_fit_reads_csv_and_rank_prints_it(succeed, files, test_rows, tmp_path):
    inputs = ["-d", files / "documents.csv", "-x", files / "features.npy"]
    succeed("fit", tmp_path / "m", *inputs, *SMALL, "--relatedness", "density")
    tagger = polyseme.load(tmp_path / "m")
    assert (tagger.relatedness, tagger.mapper_.kind) == ("density", "kernel-ridge")
    assert tagger.embedding_.n_components == 8
    assert tagger.embedding_.context_descriptor_.n_topics_ == 5
    result = succeed("rank", tmp_path / "m", test_rows, "-k", 2, "--form", "csv")
    rows = read_csv(result.stdout)
    assert len(rows) == 25
    assert rows[0]["labels"].count(";") == 1


def test_a_model_without_features_completes_tags(succeed, fail, files, test_rows, tmp_path):
    succeed("fit", tmp_path / "m", "-d", files / "semantics.jsonl", *SMALL)
    result = succeed("complete", tmp_path / "m", "sea", "sun", "-k", 2)
    assert len(result.records) == 2
    assert "fitted without features" in fail("rank", tmp_path / "m", test_rows)


def test_a_split_selects_documents_and_rows(succeed, fail, files, tmp_path, world):
    features = files / "features.npy"
    records = [{"labels": list(document), "split": "train"} for document in world.documents]
    for record in records[::4]:
        record["split"] = "test"
    documents = write_records(tmp_path / "split.jsonl", records)
    inputs = ["-d", documents, "-x", features]
    result = succeed("fit", tmp_path / "m", *inputs, "--split", "train", *SMALL)
    assert "from 225 documents" in result.stderr
    result = succeed("evaluate", tmp_path / "m", features, documents, "--split", "test")
    assert result.records[0]["n_items"] == 75
    sentence = fail("fit", tmp_path / "n", *inputs, "--split", "dev")
    assert "Unknown split 'dev'" in sentence
    assert "test, train" in sentence


class Writes:
    """Notes what a fit writes for an interruption, and interrupts it after one of them."""

    def __init__(self, owner, method):
        self.owner = owner
        self.method = method
        self.write = getattr(owner, method)
        self.names: list[str] = []

    def patch(self, monkeypatch, until: str | None = None):
        def write(checkpoint, *arguments):
            self.write(checkpoint, *arguments)
            # The default tagger names a file, the paper's writes only one.
            is_named = arguments and self.owner is not Checkpoint
            name = str(arguments[0]).rpartition(".")[2] if is_named else "paper"
            self.names.append(name)
            if name == until:
                raise KeyboardInterrupt

        monkeypatch.setattr(self.owner, self.method, write)


def check_resumed_fit(succeed, run, monkeypatch, folder, words, writes, stage, checkpoint):
    """Check that an interrupted fit resumes, and ends with the same files as a whole one."""
    succeed("fit", folder / "whole", *words)
    with monkeypatch.context() as patch:
        writes.patch(patch, until=stage)
        code, stdout, stderr = run("fit", folder / "m", *words)
    assert code == 130
    assert stdout == ""
    assert "run the same command again" in stderr
    assert (folder / checkpoint).exists()
    assert not (folder / "m").exists()
    names_before = writes.names[:-1]
    writes.names = []
    with monkeypatch.context() as patch:
        writes.patch(patch)
        succeed("fit", folder / "m", *words)
    assert not {*names_before} & {*writes.names}, "what was learned is not learned again"
    assert names(folder) == {"whole", "m"}
    assert contents(folder / "m") == contents(folder / "whole")


@pytest.mark.parametrize(
    ("stage", "checkpoint"),
    [
        ("draw-0", "m.checkpoint.draw-0"),
        ("draw-1", "m.checkpoint.draw-1"),
        ("checkpoint", "m.checkpoint"),
    ],
)
def test_an_interrupted_fit_is_resumed(
    succeed, run, inputs, small_space, tmp_path, monkeypatch, stage, checkpoint
):
    writes = Writes(polyseme.space.training.SpaceTraining, "save")
    check_resumed_fit(succeed, run, monkeypatch, tmp_path, inputs, writes, stage, checkpoint)


def test_an_interrupted_fit_of_the_published_method_is_resumed(
    succeed, run, files, tmp_path, monkeypatch
):
    words = ["-d", files / "semantics.jsonl", *SMALL]
    writes = Writes(Checkpoint, "write")
    check_resumed_fit(succeed, run, monkeypatch, tmp_path, words, writes, "paper", "m.checkpoint")


def test_fit_reports_the_size_of_what_it_learns(succeed, inputs, small_space, tmp_path):
    stderr = succeed("fit", tmp_path / "m", *inputs).stderr
    assert "labels (25 seen) from 300 documents" in stderr
    assert "members of 32 dimensions, 120 steps each" in stderr


@pytest.mark.parametrize(
    ("checkpoint", "is_reported"), [("m.checkpoint", True), ("m.checkpoint.draw-1", False)]
)
def test_a_damaged_checkpoint_is_learned_again(
    succeed, run, inputs, small_space, tmp_path, monkeypatch, checkpoint, is_reported
):
    succeed("fit", tmp_path / "whole", *inputs)
    with monkeypatch.context() as patch:
        patch.setattr(polyseme.ZeroShotTagger, "save", interrupt)
        assert run("fit", tmp_path / "m", *inputs).code == 130
    file = tmp_path / checkpoint / MODEL_FILE
    file.write_bytes(file.read_bytes()[:-9] + b"\0" * 9)
    result = succeed("fit", tmp_path / "m", *inputs)
    assert ("The training begins anew" in result.stderr) == is_reported
    assert contents(tmp_path / "m") == contents(tmp_path / "whole")


def test_an_interrupted_mapping_does_not_lose_the_concept_space(
    succeed, run, inputs, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("polyseme.published.mapping.InstanceMapper.fit", interrupt)
        result = run("fit", tmp_path / "m", *inputs, *SMALL)
    assert result.code == 130
    assert "run the same command again" in result.stderr
    monkeypatch.setattr(ConceptTrainer, "_epoch", interrupt)
    succeed("fit", tmp_path / "m", *inputs, *SMALL)
    assert not (tmp_path / "m.checkpoint").exists()


def test_a_folder_of_another_program_is_refused_before_training(
    fail, files, inputs, tmp_path, no_training
):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("keep me")
    assert "Refusing to write a model" in fail("fit", folder, *inputs)
    assert "is a file; choose another path" in fail("fit", files / "truth.jsonl", *inputs)


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("dangling", "is a link that leads nowhere"),
        ("loop", "is a link that leads nowhere"),
        ("loop/below", "loop' is a link that leads nowhere"),
        ("file/below", "is a file"),
    ],
)
def test_a_folder_that_cannot_exist_is_refused_before_training(
    fail, inputs, tmp_path, no_training, path, complaint
):
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    assert complaint in fail("fit", tmp_path / path, *inputs)


def test_a_read_only_folder_is_refused_before_training(
    fail, files, inputs, own_model, tmp_path, monkeypatch, no_training
):
    before = contents(own_model)
    os_open = os.open

    def open_read_only(path, flags, *mode, **options):
        is_unnamed = flags & os.O_TMPFILE == os.O_TMPFILE
        is_created = flags & os.O_CREAT or is_unnamed
        if is_created and tmp_path in (Path(path), *Path(path).parents):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return os_open(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", open_read_only)
    for words in (
        ["fit", own_model, *inputs],
        ["fit", tmp_path / "new", *inputs],
        ["block", own_model, "sea"],
        ["add", own_model, "-d", files / "more.jsonl"],
    ):
        assert "Read-only file system" in fail(*words)
    assert contents(own_model) == before


def test_a_full_disk_is_reported_before_training(fail, inputs, tmp_path, monkeypatch, no_training):
    usage = shutil.disk_usage(tmp_path)
    usage = usage._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    sentence = fail("fit", tmp_path / "m", *inputs)
    assert "has 0.00 GB left, and 0.0" in sentence
    assert "make room" in sentence


# ------------------------------------------------------------------ checkpoints that must not stay


@pytest.mark.parametrize(
    ("options", "failing"),
    [
        ([], "polyseme.scoring.known_documents.KnownDocuments.of"),
        (SMALL, "polyseme.published.mapping.InstanceMapper.fit"),
    ],
    ids=["default", "paper"],
)
def test_a_refused_fit_leaves_no_checkpoint_in_the_way_of_a_corrected_one(
    succeed, fail, inputs, small_space, tmp_path, monkeypatch, options, failing
):
    def refuse(*_, **__):
        assert (tmp_path / "m.checkpoint" / MODEL_FILE).exists()
        raise InputError("These items cannot be used; mend them.")

    words = ["fit", tmp_path / "m", *inputs, *options]
    with monkeypatch.context() as patch:
        patch.setattr(failing, refuse)
        assert "cannot be used" in fail(*words, "--validations", 0)
    assert names(tmp_path) == set()
    succeed(*words, "--seed", 1)


def test_items_that_share_no_label_are_refused_before_training(fail, inputs, tmp_path):
    label_sets = tmp_path / "other.jsonl"
    label_sets.write_text('["a", "b"]\n["b", "c"]')
    options = [*SMALL, "-s", label_sets, "--label-sets-only"]
    sentence = fail("fit", tmp_path / "m", *inputs, *options)
    assert "No instance carries a label of the label sets" in sentence
    assert not (tmp_path / "m.checkpoint").exists()


def test_a_checkpoint_of_another_fit_is_not_overwritten(
    succeed, run, fail, inputs, small_space, tmp_path, monkeypatch
):
    words = ["fit", tmp_path / "m", *inputs]
    with monkeypatch.context() as patch:
        patch.setattr(polyseme.ZeroShotTagger, "save", interrupt)
        assert run(*words).code == 130
    checkpoint = tmp_path / "m.checkpoint"
    before = names(checkpoint)
    sentence = fail(*words, "--seed", 1)
    assert "belongs to other data or parameters" in sentence
    assert names(checkpoint) == before
    succeed(*words)
    assert names(tmp_path) == {"m"}


# ------------------------------------------------------------------ rank, add, evaluate, info


@pytest.mark.parametrize("variant", ["plain", "tags", "priming"])
def test_rankings_are_those_of_the_library(
    succeed, files, model, test_rows, toy_tagger, world, variant
):
    tags = [["keyboard"]] + [[]] * (len(world.X_test) - 1)
    words, options = {
        "plain": ([], {}),
        "tags": (["--tags", files / "given.jsonl"], {"tags": tags}),
        "priming": (["--method", "priming"], {"method": "priming"}),
    }[variant]
    rankings = succeed("rank", model, test_rows, "-k", 4, *words).records
    labels, scores = toy_tagger.rank(world.X_test, k=4, **options)
    assert column(rankings, "labels") == labels.tolist()
    assert rankings[0]["scores"] == pytest.approx(scores[0], abs=1e-6)


def test_rankings_of_another_method_are_not_overwritten(
    succeed, fail, model, test_rows, toy_tagger, world, tmp_path
):
    words = ("rank", model, test_rows, "-k", 4, "--out", tmp_path / "out")
    succeed(*words, "--method", "priming")
    lines = (tmp_path / "out" / "test.jsonl").read_text().splitlines()
    rankings = [json.loads(line) for line in lines]
    labels, _ = toy_tagger.rank(world.X_test, k=4, method="priming")
    assert column(rankings, "labels") == labels.tolist()
    assert "another method" in fail(*words)


def test_a_precision_keeps_the_likely_labels(succeed, model, test_rows, toy_tagger, world):
    result = succeed("rank", model, test_rows, "-k", 50, "--precision", 0.5)
    tags = column(result.records, "labels")
    expected = toy_tagger.predict(world.X_test, precision=0.5)
    assert list(map(set, tags)) == list(map(set, expected))
    assert 0 < max(map(len, tags)) < len(toy_tagger.classes_)
    result = succeed("rank", model, test_rows, "-k", 1, "-p", 0.5)
    tags = column(result.records, "labels")
    assert max(map(len, tags)) == 1


def test_labels_of_one_kind_can_be_ranked(succeed, model, test_rows):
    result = succeed("rank", model, test_rows, "--kind", "unseen", "--top", 2)
    for kinds in column(result.records, "kinds"):
        assert kinds == ["unseen", "unseen"]


def test_tags_of_files_are_found_by_their_names():
    corpus = LabelCorpus.from_documents([["b"], ["a"]], ids=["two.png", "one.png"])
    items = [{"file": "one.png"}, {"file": "two.png"}, {"file": "three.png"}]
    tags = tags_of_items(corpus, items, Path("tags"), Path("items"), TableReader())
    assert tags == [("a",), ("b",), ()]


def test_documents_and_labels_by_name_are_added_without_training(
    succeed, files, model, test_rows, tmp_path
):
    grown = tmp_path / "grown"
    result = succeed("add", model, "--documents", files / "more.jsonl", "--out", grown)
    assert result.stdout.strip() == str(grown)
    assert "added 2 documents; new labels: jellyfish" in result.stderr
    by_name = ("add", grown, "--label", "coast", "--vectors", files / "words.npz")
    result = succeed(*by_name)
    assert "added 1 label by name; new labels: coast" in result.stderr
    result = succeed(*by_name)
    assert "known already, so nothing is added by name: coast" in result.stderr
    rankings = succeed("rank", grown, test_rows, "-k", 50).records
    for labels in column(rankings, "labels"):
        assert {"jellyfish", "coast"} <= set(labels)
    rankings = succeed("rank", model, test_rows, "-k", 50).records
    assert "jellyfish" not in rankings[0]["labels"], "the model itself is unchanged"


def check_complete_and_evaluate(succeed, files, model) -> list[dict]:
    """Check two commands that take a model of either method; return the measures."""
    completions = succeed("complete", model, "apple", "pie", "-k", 3).records
    assert set(completions[0]) == {"label", "kind", "score"}
    measures = succeed("evaluate", model, files / "test.npy", files / "truth.jsonl").records
    assert set(column(measures, "labels")) == {"all", "seen", "unseen", "oov"}
    (overall,) = [record for record in measures if record["labels"] == "all"]
    assert overall["example_map"] > 0.95
    return overall


def test_complete_and_evaluate(succeed, files, model):
    check_complete_and_evaluate(succeed, files, model)


def test_info_describes_documents(succeed, files):
    (facts,) = succeed("info", files / "documents.jsonl", "-f", "jsonl").records
    assert facts["documents"] == 300


def test_info_describes_models(succeed, model, toy_tagger):
    (facts,) = succeed("info", model, "-f", "jsonl").records
    space, store = toy_tagger.space_, toy_tagger.store_
    assert facts["labels"] == 29
    assert facts["seen"] == 23
    assert facts["unseen"] == 4
    assert facts["oov"] == 2
    assert facts["known documents"] == 600
    assert facts["different tag sets"] == len(store.points)
    assert facts["members"] == len(space.members_)
    assert facts["dimensions"] == space.n_dimensions
    assert facts["training steps"] == space.plan_.n_steps
    assert facts["final loss of items"] == space.history_[-1]["items"]
    assert facts["features"] == 5
    assert facts["feature extractor"] == "none (numbers)"
    assert facts["documents left out"] == 0


def test_true_tags_that_the_model_lacks_are_named(succeed, fail, model, test_rows, tmp_path, world):
    n_items = len(world.X_test)
    truth = write_jsonl(tmp_path / "t.jsonl", [("sea", "zeppelin")] * n_items)
    result = succeed("evaluate", model, test_rows, truth)
    assert result.stdout
    note = "1 true labels are not among the model's and are left out: zeppelin"
    assert note in result.stderr
    write_jsonl(truth, [("zeppelin",)] * n_items)
    sentence = fail("evaluate", model, test_rows, truth)
    assert "carries a label that the model knows" in sentence


def test_true_tags_may_have_former_names(succeed, model, test_rows, tmp_path, world):
    truth = write_jsonl(tmp_path / "t.jsonl", [("sea", "sand")] * len(world.X_test))
    succeed("rename", model, "sea", "ocean", "--out", tmp_path / "renamed")
    expected = succeed("evaluate", model, test_rows, truth)
    result = succeed("evaluate", tmp_path / "renamed", test_rows, truth)
    assert result.stdout == expected.stdout


def test_unknown_tags_are_a_note_on_stderr(succeed, model):
    result = succeed("complete", model, "sea", "zeppelin", "-k", 1)
    assert len(result.records) == 1
    assert result.stderr == "polyseme: note: Unknown tags are passed over: zeppelin.\n"


# ------------------------------------------------------------------ evidence


def test_evidence_is_one_record_whose_parts_add_up(succeed, model, test_rows, toy_tagger, world):
    result = succeed("explain", model, test_rows, "charger", "--row", 1, "-k", 3)
    (record,) = result.records
    evidence = toy_tagger.explain(world.X_test[1], "charger", k=3)
    assert list(record.items())[:3] == [("row", 1), ("label", "charger"), ("kind", "unseen")]
    assert column(record["tags"], "tag") == [tag.tag for tag in evidence.tags]
    contributions = [record[name] for name in ("frequency", "features", "other_tags", "known")]
    contributions += column(record["tags"], "part")
    assert sum(contributions) == pytest.approx(record["logit"], abs=1e-5)
    assert record["probability"] == pytest.approx(evidence.probability, abs=1e-6)


def test_evidence_has_neighbours_in_order_of_their_distance(succeed, model, test_rows):
    result = succeed("explain", model, test_rows, "charger", "--row", 1, "-k", 3)
    neighbours = result.records[0]["neighbours"]
    fields = ["document", "known_as", "times", "distance", "share", "holds"]
    assert list(neighbours[0]) == fields
    distances = column(neighbours, "distance")
    assert distances == sorted(distances)
    for neighbour in neighbours:
        assert neighbour["holds"] == ("charger" in neighbour["document"])
        assert neighbour["times"] >= len(neighbour["known_as"]) > 0


def test_evidence_as_csv_has_a_row_for_each_part(succeed, model, test_rows):
    result = succeed("explain", model, test_rows, "charger", "-k", 2, "-f", "csv")
    *rows, total = read_csv(result.stdout)
    assert list(total) == ["part", "probability", "logit", "without"]
    assert total["part"] == "sum"
    assert len(rows) == 2 + 2 + 2
    contributions = column(rows, "part")
    assert contributions[:2] == ["how common the tag is", "features"]
    for tag in rows[2:4]:
        assert tag["probability"]
        assert tag["without"]
    logits = map(float, column(rows, "logit"))
    expected = float(total["logit"])
    assert sum(logits) == pytest.approx(expected, abs=1e-5)


def test_evidence_for_people_fits_eighty_columns_and_has_bars(succeed, model, test_rows):
    words = ("explain", model, test_rows, "charger", "-k", 3, "-f", "table")
    stdout = succeed(*words).stdout
    assert widest_line(stdout) <= 80
    assert stdout.startswith("why charger (unseen) has the probability 0.")
    (negative,) = re.findall(".*common.*", stdout)
    (positive,) = re.findall("^.*feat.*$", stdout, re.MULTILINE)[:1]
    assert "█│" in negative
    assert "│█" in positive
    assert "known tag sets nearby" in stdout
    assert "nearest known tag sets" in stdout
    assert "{" not in stdout


@pytest.mark.parametrize(
    ("value", "ascii_only", "expected"),
    [
        (-1.0, True, "#########|         "),
        (0.0, True, "         |         "),
        (0.5, False, "         │████▌    "),
        (-0.5, False, "    ▐████│         "),
    ],
)
def test_a_bar_grows_to_the_left_for_negative_and_to_the_right_for_positive_values(
    value, ascii_only, expected
):
    assert bar(value, ascii_only=ascii_only).plain == expected


def test_tags_of_an_item_are_part_of_its_evidence(succeed, model, test_rows, toy_tagger, world):
    tags = ["pie", "oven"]
    words = ["--tag", "pie", "--tag", "oven", "-k", 3]
    (record,) = succeed("explain", model, test_rows, "knife", *words).records
    scores = toy_tagger.predict_proba(world.X_test[:1], tags=[tags])
    knife = list(toy_tagger.classes_).index("knife")
    assert record["probability"] == pytest.approx(scores[0, knife], abs=1e-6)
    probabilities = {tag["tag"]: tag["probability"] for tag in record["tags"]}
    assert probabilities["pie"] == probabilities["oven"] == 1.0
    (record,) = succeed("explain", model, "-", "knife", *words).records
    evidence = toy_tagger.explain(None, "knife", tags=tags)
    assert record["logit"] == pytest.approx(evidence.logit, abs=1e-6)


# ------------------------------------------------------------------ tables for people


def test_completions_are_printed_as_a_table(succeed, model):
    stdout = succeed("complete", model, "sea", "-k", 2, "--form", "table").stdout
    assert "goes with sea" in stdout
    assert "{" not in stdout


def test_rankings_are_printed_as_a_table(succeed, model, test_rows):
    stdout = succeed("rank", model, test_rows, "-k", 3, "-f", "table").stdout
    assert re.search(r"charger 0\.\d+ \(unseen\)", " ".join(stdout.split()))


def test_measures_are_printed_as_a_table(succeed, files, model, test_rows):
    words = ("evaluate", model, test_rows, files / "truth.jsonl", "-f", "table")
    stdout = succeed(*words).stdout
    assert widest_line(stdout) <= 80
    header, *_ = re.findall(".*measure.*", stdout)
    assert header.split()[:3] == ["measure", "all", "seen"]


def test_labels_that_look_like_markup_are_printed_unchanged(succeed, world, tiny_space, tmp_path):
    documents = [(*document, "[/red]", ":sun:") for document in world.documents[:80]]
    tagger = polyseme.ZeroShotTagger(space=tiny_space(n_steps=5), random_state=0)
    tagger.fit(world.X[:80], documents).save(tmp_path / "m")
    features = write_npy(tmp_path / "x.npy", world.X_test)
    result = succeed("explain", tmp_path / "m", features, "[/red]", "-f", "table")
    assert result.stdout.startswith("why [/red] (seen)")
    result = succeed("complete", tmp_path / "m", "sea", "[bold]", "-k", 40, "-f", "table")
    assert "[/red]" in result.stdout
    assert ":sun:" in result.stdout


# ------------------------------------------------------------------ the published method


def test_rank_takes_a_published_model(succeed, test_rows, published, published_tagger, world):
    rankings = succeed("rank", published, test_rows, "-k", 4, "-f", "jsonl").records
    labels, _ = published_tagger.rank(world.X_test, k=4)
    assert column(rankings, "labels") == labels.tolist()


def test_complete_and_evaluate_take_a_published_model(succeed, files, published):
    measures = check_complete_and_evaluate(succeed, files, published)
    assert "calibration_error" not in measures, "its scores are no probabilities"


def test_explain_takes_a_published_model(succeed, test_rows, published):
    result = succeed("explain", published, test_rows, "apple", "--row", 0, "-k", 2)
    nearer, farther = result.records
    assert nearer["distance"] <= farther["distance"]
    assert "apple" in nearer["document"]
    known_as = nearer["known_as"]
    assert nearer["times"] >= len(known_as) > 0


def test_info_and_add_take_a_published_model(succeed, files, published, tmp_path):
    facts = succeed("info", published, "-f", "jsonl").records[0]
    assert (facts["unseen"], facts["dimensions"], facts["features"]) == (4, 24, 5)
    assert (facts["mapper"], facts["relatedness"]) == ("kernel-ridge", "nearest")
    words = ["--documents", files / "more.jsonl", "--out", tmp_path / "grown"]
    result = succeed("add", published, *words)
    assert "added 2 documents; new labels: jellyfish" in result.stderr


# ------------------------------------------------------------------ bad input

# A command, in which {…} are files and folders, and a part of the sentence that it must print.
MISTAKES = [
    ("rank {model} {tmp}/none.npy", "no file or folder"),
    ("rank {model} {tmp}/nan.npy", "row(s) 2, 4"),
    ("rank {model} {tmp}/narrow.npy", "expecting 5 features"),
    ("rank {model} {test} --tags {tmp}/few.jsonl", "there are 2 documents in"),
    ("rank {model} {test} --method priming -p 0.5", "votes of known tag sets are none"),
    ("explain {model} {test} apple --row 99", "There is no row 99"),
    ("explain {model} {test} appel", "Unknown label 'appel'"),
    ("explain {model} - pie --tag pie", "'pie' is among the tags that are given"),
    ("complete {model} zeppelin", "None of the tags is known"),
    ("info {tmp}/..", "not a polyseme model"),
    ("reproduce fig99", "Unknown experiment"),
    ("info {tmp}/x.jsonl", "Line 2 of x.jsonl"),
    ("add {model}", "Give tag sets with --documents"),
    ("add {model} --vectors words.npz", "Give tag sets with --documents"),
    ("add {model} --label coast", "`--label` and `--vectors` belong"),
    ("fit {tmp}/m {inputs} --device nowhere", "`device` of `ConceptSpace` is 'nowhere'"),
    ("validate {inputs} --device nowhere", "`device` of `validate` is 'nowhere'"),
    ("fit {tmp}/m {inputs} --preset paper --topics many", "must be a whole number or 'hdp'"),
    ("fit {tmp}/m -d {files}/truth.jsonl -x {files}/features.npy", "but there are 25 documents"),
    (
        "add {published} --label coast --vectors {files}/words.npz",
        "A label by name needs the default tagger",
    ),
    ("rank {published} {test} -p 0.5", "a precision needs the default tagger"),
    ("rank {published} {test} --tags {files}/given.jsonl", "`tags` need the default"),
    ("rank {published} {test} --method priming", "`method` needs the default"),
    ("explain {published} {test} apple --tag pie", "`--tag` needs the default"),
]
for option in ("mapper nu-svr", "relatedness nearest", "components 8", "topics hdp", "epochs 2"):
    message = f"`--{option.split()[0]}` belongs to the published method; add --preset paper."
    MISTAKES.append((f"fit {{tmp}}/m -d {{files}}/documents.jsonl --{option}", message))


@pytest.mark.parametrize(("command", "message"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_every_mistake_gets_one_sentence_and_exit_code_one(
    run, files, test_rows, inputs, model, published, tmp_path, command, message
):
    gaps = np.load(test_rows)
    gaps[[2, 4], 0] = np.nan
    write_npy(tmp_path / "nan.npy", gaps)
    write_npy(tmp_path / "narrow.npy", np.ones((2, 3)))
    write_jsonl(tmp_path / "few.jsonl", [["keyboard"], []])
    (tmp_path / "x.jsonl").write_text('{"labels": ["a"]}\n{oops\n')
    words = command.format(
        tmp=tmp_path,
        files=files,
        test=test_rows,
        model=model,
        published=published,
        inputs=" ".join(map(str, inputs)),
    )
    code, stdout, stderr = run(*words.split())
    assert code == 1
    assert stdout == ""
    assert message in stderr
    # Before the sentence there may be notes on how tables were understood.
    *notes, sentence = stderr.splitlines()
    assert sentence.startswith("polyseme: ")
    assert len(notes) < 3
    assert "polyseme:" not in "".join(note[:9] for note in notes)


def test_a_tampered_model_is_refused(run, test_rows, own_model):
    file = own_model / MODEL_FILE
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    result = run("rank", own_model, test_rows)
    assert result.code == 1
    assert "is damaged or was changed" in result.stderr
    assert result.stderr.count("\n") == 1


def test_wrong_usage_ends_with_two(run, files, model, tmp_path):
    assert run("rank").code == 2
    assert run("rank", model, "x.npy", "-k", 0).code == 2
    assert run("no-such-command").code == 2
    result = run("fit", tmp_path / "m", "-d", files / "documents.jsonl", "--workers", 3)
    assert result.code == 2
    assert "need --engine ray" in result.stderr


# ------------------------------------------------------------------ help


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from polyseme.cli import main\n"
        "sys.argv = ['polyseme', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'pandas', 'polars', 'tomotopy', 'numpy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_version_is_printed(succeed):
    assert succeed("--version").stdout.strip() == polyseme.__version__


@pytest.mark.parametrize(
    "command", [command.callback.__name__ for command in app.registered_commands]
)
def test_every_command_has_help_with_an_example(succeed, command):
    stdout = succeed(command, "--help").stdout
    assert f"Usage: polyseme {command}" in stdout
    assert f"Example: polyseme {command} " in " ".join(stdout.split())


# ------------------------------------------------------------------ vocabulary and validation


def test_labels_are_listed_by_kind(succeed, own_model):
    labels = succeed("labels", own_model, "--kind", "unseen", "-f", "jsonl").records
    assert set(column(labels, "kind")) == {"unseen"}
    assert min(column(labels, "documents")) > 0
    assert not any(column(labels, "blocked"))


def test_changes_of_the_vocabulary_are_written_to_the_model(succeed, fail, own_model, tmp_path):
    for words in (
        ("rename", own_model, "sand", "shore"),
        ("merge", own_model, "sea", "shore"),
        ("block", own_model, "sun"),
        ("remove", own_model, "towel"),
    ):
        assert succeed(*words).stdout == f"{own_model}\n"
    tagger = polyseme.load(own_model)
    assert tagger.vocabulary_.blocked == ("sun",)
    assert tagger.vocabulary_.resolve("sea") == "shore"
    towel = tagger.store_.labels.index("towel")
    assert tagger.store_.counts[towel] == 0
    succeed("block", own_model, "sun", "--undo", "--out", tmp_path / "other")
    assert not polyseme.load(tmp_path / "other").vocabulary_.blocked
    sentence = fail("rename", own_model, "shore", "desk")
    assert "merge 'shore' into it instead" in sentence


def test_merges_are_suggested(succeed, world, tiny_space, tmp_path):
    documents = [[*tags, "Oaks"] if "oak" in tags else tags for tags in world.documents]
    space = tiny_space(n_steps=10)
    tagger = polyseme.ZeroShotTagger(space=space, n_validations=0, random_state=0)
    tagger.fit(world.X, documents).save(tmp_path / "model")
    pairs = succeed("labels", tmp_path / "model", "--merges", "-f", "jsonl").records
    assert {"Oaks", "oak"} in [{pair["label"], pair["into"]} for pair in pairs]


def test_fit_takes_a_vocabulary_and_reports_the_validation(
    succeed, files, inputs, tmp_path, quick_space
):
    (tmp_path / "words.toml").write_text("blocked = ['sun']")
    options = ("--vocabulary", tmp_path / "words.toml", "--label-names", files / "words.npz")
    stderr = succeed("fit", tmp_path / "model", *inputs, *options).stderr
    for measure in ("unseen labels: ", "precision", "recall"):
        assert measure in stderr
    assert polyseme.load(tmp_path / "model").vocabulary_.blocked == ("sun",)


def test_validate_prints_measures_and_writes_a_page_that_escapes_labels(
    succeed, files, world, tmp_path, quick_space
):
    tags = [[*document, "<script>x"] for document in world.documents]
    documents = write_jsonl(tmp_path / "evil.jsonl", tags)
    page = tmp_path / "page.html"
    options = ("-x", files / "features.npy", "--draws", 1, "-o", page, "-f", "jsonl")
    stdout = succeed("validate", "-d", documents, *options).stdout
    seen, unseen, path = stdout.splitlines()
    assert path == str(page)
    assert json.loads(unseen)["labels"] == "unseen"
    assert json.loads(seen)["n_items"] == 75
    html = page.read_text("utf-8")
    assert "&lt;script&gt;x" in html
    assert "<script" not in html
    assert "http" not in html


def test_validate_needs_features(fail, files):
    assert "give their features" in fail("validate", "-d", files / "documents.jsonl")


# ------------------------------------------------------------------ verdicts


def rankings_of(succeed, model, features) -> list[dict]:
    return succeed("rank", model, features, "-k", 50, "-f", "jsonl").records


def ask(succeed, model, features, *options) -> list[dict]:
    return succeed("ask", model, features, *options).records


def test_questions_are_about_the_label_and_open(succeed, own_model, test_rows):
    questions = ask(succeed, own_model, test_rows, "-l", "charger", "-k", 8)
    assert len(questions) == 8
    assert set(column(questions, "label")) == {"charger"}
    assert set(column(questions, "answer")) == {None}


@pytest.fixture
def learned(succeed, own_model, test_rows, tmp_path):
    """What `learn` printed of eight verdicts that contradict the model."""
    questions = ask(succeed, own_model, test_rows, "-l", "charger", "-k", 8)
    for question in questions:
        question["answer"] = question["reason"] != "likely"
    answers = write_records(tmp_path / "answers.jsonl", questions)
    return succeed("learn", own_model, answers, "-x", test_rows, "--who", "me")


def test_verdicts_are_learned_and_logged(succeed, own_model, test_rows, learned, world):
    assert learned.stdout == "1-8\n"
    assert "learned from 8 answers: charger (4 yes, 4 no)" in learned.stderr
    assert "--undo 1-8" in learned.stderr
    for verdict in polyseme.load(own_model).verdicts_.standing():
        assert verdict.who == "me"
        assert verdict.score is not None
    questions = ask(succeed, own_model, test_rows, "-l", "charger", "-k", 50)
    n_open = len(world.X_test) - 8
    assert len(questions) == n_open, "no item is asked about twice"


def test_verdicts_change_the_rankings_and_not_the_model_file(
    succeed, model, own_model, test_rows, learned
):
    before = rankings_of(succeed, model, test_rows)
    assert rankings_of(succeed, own_model, test_rows) != before
    content = (own_model / MODEL_FILE).read_bytes()
    assert content == (model / MODEL_FILE).read_bytes()


def test_verdicts_are_undone_without_a_trace(succeed, model, own_model, test_rows, learned):
    stderr = succeed("learn", own_model, "--undo", "1-3", 4).stderr
    assert "taken back 4 answers" in stderr
    assert "4 answers left" in stderr
    succeed("learn", own_model, "--undo-last", 4)
    before = rankings_of(succeed, model, test_rows)
    assert rankings_of(succeed, own_model, test_rows) == before


def test_verdicts_by_option_teach_a_new_label(succeed, own_model, test_rows, world):
    office = [row for row, theme in enumerate(world.themes_test) if theme == "office"]
    before = rankings_of(succeed, own_model, test_rows)
    result = succeed("learn", own_model, "--yes", "cubicle", *office[:3], "-x", test_rows)
    assert result.stdout == "1-3\n"
    assert "new tags: cubicle" in result.stderr
    scores = []
    for ranking in rankings_of(succeed, own_model, test_rows):
        place = ranking["labels"].index("cubicle")
        scores.append(ranking["scores"][place])
    best_rows = np.argsort(scores)[::-1][: len(office)]
    assert {world.themes_test[row] for row in best_rows} == {"office"}
    # The items are known by now, so that no features are needed.
    result = succeed("learn", own_model, "--no", "sea", "--no", "sand", office[0])
    assert "sea (0 yes, 1 no), sand (0 yes, 1 no)" in result.stderr
    succeed("learn", own_model, "--undo-last", 5)
    assert rankings_of(succeed, own_model, test_rows) == before


def test_questions_without_an_answer_are_ignored(succeed, own_model, test_rows, tmp_path):
    stdout = succeed("ask", own_model, test_rows, "-k", 4, "-f", "csv").stdout
    table = tmp_path / "q.csv"
    table.write_text(stdout.replace(",,", ",yes,", 1))
    result = succeed("learn", own_model, table, "-x", test_rows)
    assert result.stdout == "1\n"
    assert "note: Rows of q.csv that have no answer are passed over: 3." in result.stderr


@pytest.fixture
def tagged_pool(world, tmp_path):
    """Items with ids, and records of their tags in another order."""
    records = []
    for row, theme in enumerate(world.themes_test):
        labels = list(world.themes[theme])
        records.append({"id": f"p{row}", "labels": labels})
    ids = np.array(column(records, "id"))
    np.savez(tmp_path / "pool.npz", X=world.X_test, ids=ids)
    return records[::-1]


def test_no_question_is_about_a_tag_that_an_item_has(succeed, own_model, tagged_pool, tmp_path):
    documents = write_records(tmp_path / "tags.jsonl", tagged_pool)
    options = ("-d", documents, "-k", 40, "--strategy", "likeliest")
    result = succeed("ask", own_model, tmp_path / "pool.npz", *options)
    assert "joined by id: 25 items" in result.stderr
    tags_by_id = {record["id"]: record["labels"] for record in tagged_pool}
    for question in result.records:
        item = question["item"]
        assert question["label"] not in tags_by_id[item]


def test_a_likely_tag_that_an_item_lacks_is_a_likely_error(
    succeed, own_model, tagged_pool, tmp_path
):
    missing = tagged_pool[-1]["labels"].pop(0)
    documents = write_records(tmp_path / "tags.jsonl", tagged_pool)
    options = ("-d", documents, "-k", 40, "--strategy", "errors")
    questions = ask(succeed, own_model, tmp_path / "pool.npz", *options)
    errors = [(error["item"], error["label"], error["reason"]) for error in questions]
    assert ("p0", missing, "missing") in errors


def test_questions_for_people_fit_eighty_columns(succeed, own_model, test_rows):
    stdout = succeed("ask", own_model, test_rows, "-k", 3, "-f", "table").stdout
    assert widest_line(stdout) <= 80
    assert "answer" not in stdout


def test_items_teach_a_new_label_to_a_copy_of_the_model(
    succeed, own_model, test_rows, world, tmp_path
):
    rows = [row for row, theme in enumerate(world.themes_test) if theme == "beach"][:2]
    options = ("--label", "canoe", "-x", test_rows, "--out", tmp_path / "taught")
    result = succeed("add", own_model, *rows, *options)
    assert result.stdout.strip() == str(tmp_path / "taught")
    assert "added 2 answers: canoe (2 yes, 0 no); new labels: canoe" in result.stderr
    assert "canoe" in polyseme.load(tmp_path / "taught").classes_
    assert not (own_model / "verdicts.sqlite").exists()


def check_one_line(result, message: str) -> None:
    """Check that a command failed with one line."""
    assert result.code == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("3", "Name the tag that these items carry"),
        ("3 --label canoe", "Nothing is known of the item '3'"),
        ("99 --label canoe -x {test}", "no item '99'"),
    ],
)
def test_a_label_that_cannot_be_added_by_items_is_refused(
    run, own_model, test_rows, words, message
):
    result = run("add", own_model, *words.format(test=test_rows).split())
    check_one_line(result, message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{tmp}/open.jsonl -x {test}", "Line 1 of open.jsonl must have true or false"),
        ("{tmp}/lost.jsonl -x {test}", "There is no item '99' in"),
        (
            "{tmp}/lost.jsonl",
            "Nothing is known of the item '99'; give its features with --features",
        ),
        ("{tmp}/none.jsonl", "There is no file at"),
        ("", "Give a file of answers"),
        ("--yes sea", "Give a file of answers"),
        ("--undo 1", "has no answers that could be taken back"),
        ("--undo", "`--undo` takes numbers"),
        ("--undo-last 1 --yes sea", "`--undo` takes numbers"),
    ],
)
def test_wrong_verdicts_are_refused_and_not_logged(run, test_rows, model, tmp_path, words, message):
    (tmp_path / "open.jsonl").write_text('{"item": "1", "label": "sea", "answer": "perhaps"}\n')
    (tmp_path / "lost.jsonl").write_text('{"item": "99", "label": "sea", "answer": true}\n')
    result = run("learn", model, *words.format(tmp=tmp_path, test=test_rows).split())
    check_one_line(result, message)
    assert not (model / "verdicts.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("learn {published} --yes sea 1 -x {test}", "`learn` needs the default tagger"),
        ("ask {published} {test}", "`ask` needs the default tagger"),
        ("ask {model} {test} -l appel", "Unknown label 'appel'"),
        ("ask {model} {test} --strategy errors", "give the items' tags with --documents"),
    ],
)
def test_a_model_that_cannot_ask_or_learn_is_refused(
    fail, test_rows, model, published, words, message
):
    command = words.format(model=model, published=published, test=test_rows)
    assert message in fail(*command.split())


def test_a_model_without_features_does_not_learn(fail, test_rows, tmp_path):
    tagger = polyseme.ZeroShotTagger(space=polyseme.ConceptSpace(n_folds=2, n_steps=4))
    tagger.fit(None, [["sea", "sand"], ["sea", "ship"]] * 4).save(tmp_path / "m")
    sentence = fail("learn", tmp_path / "m", "--yes", "sea", 1, "-x", test_rows)
    assert "fitted without features" in sentence


def test_only_numbers_of_standing_verdicts_can_be_undone(succeed, fail, test_rows, own_model):
    succeed("learn", own_model, "--yes", "sea", 1, 2, "-x", test_rows)
    assert "There is no verdict 7" in fail("learn", own_model, "--undo", "7")
    assert "got '1-x'" in fail("learn", own_model, "--undo", "1-x")
    succeed("learn", own_model, "--undo", 2)
    assert "was undone already" in fail("learn", own_model, "--undo", 2)


def test_numbers_of_rows_belong_to_one_table(succeed, fail, files, inputs, test_rows, own_model):
    succeed("learn", own_model, "--yes", "sea", 1, "-x", test_rows)
    message = "Row 1 is not the item '1' that verdicts were given on"
    assert message in fail("learn", own_model, "--no", "sand", 1, "-x", files / "features.npy")
    assert message in fail("fit", own_model, *inputs)


@pytest.fixture
def taught_model(succeed, inputs, test_rows, tmp_path, quick_space):
    """A model that was fitted with a pool and a verdict, and what `fit` printed."""
    verdicts = tmp_path / "a.jsonl"
    verdicts.write_text('{"item": 3, "label": "sea", "answer": "no"}\n')
    options = ["-u", test_rows, "--verdicts", verdicts]
    result = succeed("fit", tmp_path / "m", *inputs, *options)
    return tmp_path / "m", result.stderr


def test_fit_learns_from_a_pool_and_verdicts(succeed, taught_model):
    model, stderr = taught_model
    assert "the fit also learns from 1 answer: sea (0 yes, 1 no)" in stderr
    gain = r"items without tags: [+-]\d+\.\d points on unseen labels, so they are"
    assert re.search(gain, stderr)
    (facts,) = succeed("info", model, "-f", "jsonl").records
    assert facts["answers"] == 1
    assert facts["answers undone"] == 0
    assert facts["answers are about"] == ["sea (1)"]
    is_gain = facts["foretold gain by untagged items"] > 0
    assert facts["learned from untagged items"] == is_gain
    assert facts["foretold gain by 10 answers a label"] is not None


def update_of(model, folder):
    """Return the command that updates a model."""
    return "fit", folder / "new", "--update", model, "--validations", 0


def test_an_update_keeps_verdicts_vocabulary_and_folds(
    succeed, inputs, test_rows, taught_model, tmp_path
):
    model, _ = taught_model
    succeed("block", model, "sun")
    stderr = succeed(*update_of(model, tmp_path), *inputs, "-u", test_rows).stderr
    sentence = "starts from the older model and learns from all 300 items given; it carries over"
    assert sentence in stderr
    assert "carries over 1 blocked label" in stderr
    assert "starts from nothing" not in stderr
    updated = polyseme.load(tmp_path / "new")
    former = polyseme.load(model)
    assert updated.vocabulary_.blocked == ("sun",)
    assert len(updated.verdicts_.standing()) == former.verdicts_.count == 1
    assert updated.space_.plan_.n_steps < former.space_.plan_.n_steps / 5
    np.testing.assert_array_equal(updated.space_.folds_[:300], former.space_.folds_[:300])
    assert updated.pooled_ == former.pooled_


def test_an_update_with_other_inputs_is_refused(
    succeed, fail, inputs, test_rows, taught_model, own_model, tmp_path, world
):
    model, _ = taught_model
    update = update_of(model, tmp_path)
    documents = inputs[:2]
    narrow = write_npy(tmp_path / "narrow.npy", world.X[:, :3])
    sentence = fail(*update, *documents, "-x", narrow)
    assert "These items have 3 features" in sentence
    sentence = fail(*update, *documents)
    assert "The model of --update has features" in sentence
    succeed("learn", own_model, "--yes", "sea", 1, "-x", test_rows)
    sentence = fail(*update, *inputs, "-u", test_rows, "--verdicts", own_model)
    assert "have verdicts that differ" in sentence


def test_a_fit_refuses_a_folder_without_verdicts_and_a_pool_for_the_paper(
    fail, files, inputs, test_rows, tmp_path
):
    words = ("fit", tmp_path / "x", *inputs, "-u", test_rows)
    sentence = fail(*words, "--verdicts", files)
    assert "There are no verdicts in" in sentence
    sentence = fail(*words, "--preset", "paper")
    assert "`--unlabelled` belongs to the default tagger" in sentence


def test_validate_estimates_the_gain_of_a_pool_and_verdicts(
    succeed, fail, inputs, test_rows, tmp_path, quick_space
):
    page = tmp_path / "page.html"
    words = ("validate", *inputs, "--draws", 1, "-u")
    stderr = succeed(*words, test_rows, "--page", page).stderr
    for text in ("items without tags: ", "yes or no to 10 items", "precision: "):
        assert text in stderr
    html = page.read_text("utf-8")
    assert "fit --unlabelled" in html
    assert "ask, learn" in html
    narrow = write_npy(tmp_path / "narrow.npy", np.ones((5, 3)))
    assert "5 features" in fail(*words, narrow)


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("", "is a folder; add the name of a file"),
        ("link", "is a link that leads nowhere"),
        ("no/page.html", "There is no folder"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused_before_the_validation(
    fail, inputs, tmp_path, monkeypatch, page, complaint
):
    monkeypatch.setattr(
        "polyseme.fitting.holdout_validation.validate", lambda *_, **__: pytest.fail("measured")
    )
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert complaint in fail("validate", *inputs, "--draws", 1, "--page", tmp_path / page)


# ------------------------------------------------------------------ starting


@pytest.mark.parametrize(
    "words", ["complete model sea", "rank model test.npy", "info model", "ask model test.npy"]
)
def test_modules_that_only_training_needs_are_not_loaded_to_use_a_model(model, words):
    code = "import atexit, sys; from polyseme.cli import main; "
    code += "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    command = [sys.executable, "-c", code, *words.split()]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=model.parent)
    loaded = set(process.stderr.split())
    assert "polyseme.space.concept_space" in loaded
    heavy = {"torch", "tomotopy", "sklearn.cluster", "pandas.core", "scipy.stats._stats_py"}
    assert not heavy & loaded


def test_a_postponed_module_is_loaded_at_its_first_use(tmp_path, monkeypatch):
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "__init__.py").write_text("from waiting.inner import value\n")
    (tmp_path / "waiting" / "inner.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "waiting", raising=False)
    postpone(("waiting", "nowhere_to_be_found", "json"))
    stand_in = importlib.import_module("waiting")
    assert isinstance(stand_in, Postponed)
    assert importlib.util.find_spec("waiting") is not None
    assert sys.modules["json"] is json
    assert "nowhere_to_be_found" not in sys.modules
    assert "waiting.inner" not in sys.modules
    assert stand_in.value == 7
    assert not isinstance(sys.modules["waiting"], Postponed)
    assert importlib.import_module("waiting.inner").value == stand_in.inner.value
    with pytest.raises(AttributeError, match="missing"):
        stand_in.missing  # noqa: B018
