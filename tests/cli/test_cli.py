"""The commands: what they print and write, what they refuse, and what survives an interruption."""

from __future__ import annotations

import errno
import importlib.util
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
from command_files import (
    column,
    contents,
    interrupt,
    names,
    read_csv,
    widest_line,
    write_jsonl,
    write_npy,
    write_records,
)
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


def test_names_from_the_items_encoder_are_measured_and_explained(succeed, files, tmp_path, world):
    # Items are near their theme's corner, and so are the names of its labels.
    corners = np.eye(len(world.themes))
    vectors = {}
    for corner, labels in zip(corners, world.themes.values(), strict=True):
        for label in labels:
            vectors[label] = vectors.get(label, 0) + corner
    names_file = tmp_path / "names.npz"
    np.savez(names_file, words=np.array(list(vectors)), vectors=np.array(list(vectors.values())))
    model = tmp_path / "model"
    inputs = ("-d", files / "documents.jsonl", "-x", files / "features.npy")
    sets = ("--label-sets", files / "semantics.jsonl", "--label-names", names_file)
    succeed("fit", model, *inputs, *sets, "--seed", 0)
    (facts,) = succeed("info", model, "-f", "jsonl").records
    assert facts["foretold gain by names, unseen"] > 0
    (evidence,) = succeed("explain", model, files / "test.npy", "charger", "-f", "jsonl").records
    assert evidence["name"] != 0


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


@pytest.fixture
def model_with_plurals(world, tiny_space, tmp_path):
    """A model with *oak* and *Oaks*, *fern* and *Ferns*, and a tag that is used once."""
    documents = []
    for tags in world.documents:
        plurals = [f"{tag.title()}s" for tag in tags if tag in ("oak", "fern")]
        documents.append([*tags, *plurals])
    documents[0] = [*documents[0], "jellyfish"]
    space = tiny_space(n_steps=10)
    tagger = polyseme.ZeroShotTagger(space=space, n_validations=0, random_state=0)
    tagger.fit(world.X, documents).save(tmp_path / "model")
    return tmp_path / "model"


def test_merges_are_suggested_and_accepted_from_a_file(succeed, fail, model_with_plurals, tmp_path):
    model = model_with_plurals
    output = succeed("labels", model, "--merges", "-f", "csv")
    assert "used once: 1 tag (`labels --once` lists them)" in output.stderr
    header, *rows = output.stdout.splitlines()
    assert header == "label,into,reason,spelling,use,meaning"
    spelled = [row for row in rows if ",spelling," in row]
    assert {row.split(",")[0] for row in spelled} <= {"oak", "Oaks", "fern", "Ferns"}
    assert len(spelled) == 2
    (once,) = succeed("labels", model, "--once", "-f", "jsonl").records
    assert once["label"] == "jellyfish"

    accepted = tmp_path / "accepted.csv"
    accepted.write_text("\n".join([header, *spelled]), "utf-8")
    output = succeed("merge", model, "--pairs", accepted, "--out", tmp_path / "merged")
    assert "merged 2 pairs of tags" in output.stderr
    vocabulary = polyseme.load(tmp_path / "merged").vocabulary_
    assert vocabulary.resolve("oak") == vocabulary.resolve("Oaks")
    assert vocabulary.resolve("fern") == vocabulary.resolve("Ferns")
    succeed("merge", model, "Oaks", "oak", "Ferns", "oak")
    assert polyseme.load(model).vocabulary_.resolve("ferns") == "oak"

    assert "or more such pairs" in fail("merge", model, "Oaks")
    assert "or more such pairs" in fail("merge", model)
    assert "or more such pairs" in fail("merge", model, "sea", "sand", "--pairs", accepted)
    accepted.write_text("label\nsea\n", "utf-8")
    assert "Line 2 of accepted.csv must have a tag" in fail("merge", model, "--pairs", accepted)
    accepted.write_text("label,into\n", "utf-8")
    assert "no pair of tags" in fail("merge", model, "--pairs", accepted)
    assert "check the path" in fail("merge", model, "--pairs", tmp_path / "none.csv")


def test_merges_by_meaning_take_vectors_of_words(succeed, fail, model_with_plurals, tmp_path):
    lines = ["phone 1 0.1 0", "screen 1 0.11 0", "sea 0 1 0.1", "pie 0 0 1", "tram -1 0 0"]
    (tmp_path / "words.txt").write_text("\n".join(lines), "utf-8")
    options = ("--vectors", tmp_path / "words.txt")
    records = succeed("labels", model_with_plurals, "--merges", *options, "-f", "jsonl").records
    (pair,) = [record for record in records if record["reason"] == "meaning"]
    assert {pair["label"], pair["into"]} == {"phone", "screen"}
    assert pair["meaning"] > 0.99
    assert "goes with --merges" in fail("labels", model_with_plurals, *options)


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
