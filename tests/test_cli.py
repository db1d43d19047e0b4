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
from polyseme._validation import InputError
from polyseme.cli import app
from polyseme.cli.output import bar
from polyseme.cli.postponed import Postponed, postpone
from polyseme.cli.reading import Reading, tags_of_items
from polyseme.corpus import LabelCorpus
from polyseme.published.training import Checkpoint, ConceptTrainer

SMALL = ["--preset", "paper", "--components", 8, "--topics", 5, "--epochs", 2]
SMALL += ["--mapper", "kernel-ridge"]


@pytest.fixture(scope="module")
def files(tmp_path_factory, world) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_jsonl(folder / "documents.jsonl", world.documents)
    write_jsonl(folder / "semantics.jsonl", world.label_sets)
    write_jsonl(folder / "truth.jsonl", [world.themes[theme] for theme in world.themes_test])
    write_jsonl(folder / "given.jsonl", [["keyboard"], *([] for _ in world.X_test[1:])])
    write_jsonl(folder / "more.jsonl", [["sea", "jellyfish"], ["sand", "jellyfish"]])
    np.save(folder / "features.npy", world.X)
    np.save(folder / "test.npy", world.X_test)
    np.savez(
        folder / "words.npz",
        words=np.array(["sea", "sand", "desk", "phone", "coast"]),
        vectors=np.array([[1, 0.1], [1, 0.0], [0, 1], [0.1, 1], [1, 0.05]]),
    )
    with (folder / "documents.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "tags"])
        writer.writerows([f"item {i}", ";".join(d)] for i, d in enumerate(world.documents))
    return folder


@pytest.fixture(scope="module")
def model(files, toy_tagger) -> Path:
    toy_tagger.save(files / "model")
    return files / "model"


@pytest.fixture(scope="module")
def published(files, published_tagger) -> Path:
    published_tagger.save(files / "published")
    return files / "published"


def write_jsonl(path: Path, documents) -> Path:
    path.write_text("".join(json.dumps({"labels": list(each)}) + "\n" for each in documents))
    return path


def write_npy(path: Path, array) -> Path:
    np.save(path, array)
    return path


def records(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# ------------------------------------------------------------------ fit


def test_fit_then_rank(run, files, tmp_path):
    inputs = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    code, out, err = run("fit", tmp_path / "m", *inputs, "-s", files / "semantics.jsonl", *SMALL)
    assert (code, out.strip()) == (0, str(tmp_path / "m")), err
    assert "29 labels (25 seen, 4 unseen)" in err
    assert not (tmp_path / "m.checkpoint").exists()
    code, out, _ = run("rank", tmp_path / "m", files / "test.npy", "-k", 3)
    rows = records(out)
    assert code == 0 and [row["row"] for row in rows] == list(range(25))
    assert all(len(row["labels"]) == len(row["scores"]) == len(row["kinds"]) == 3 for row in rows)


def test_csv_goes_in_and_comes_out(run, files, tmp_path):
    inputs = ["-d", files / "documents.csv", "-x", files / "features.npy"]
    code, _, err = run("fit", tmp_path / "m", *inputs, *SMALL, "--relatedness", "density")
    assert code == 0, err
    tagger = polyseme.load(tmp_path / "m")
    assert (tagger.relatedness, tagger.mapper_.kind) == ("density", "kernel-ridge")
    assert tagger.embedding_.n_components == 8
    assert tagger.embedding_.context_descriptor_.n_topics_ == 5
    _, out, _ = run("rank", tmp_path / "m", files / "test.npy", "-k", 2, "--form", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 25 and rows[0]["labels"].count(";") == 1


def test_fit_without_features_completes(run, files, tmp_path):
    code, _, err = run("fit", tmp_path / "m", "-d", files / "semantics.jsonl", *SMALL)
    assert code == 0, err
    code, out, _ = run("complete", tmp_path / "m", "sea", "sun", "-k", 2)
    assert code == 0 and len(records(out)) == 2
    code, _, err = run("rank", tmp_path / "m", files / "test.npy")
    assert code == 1 and "fitted without features" in err


def test_a_split_chooses_documents_and_rows(run, files, tmp_path, world):
    path = tmp_path / "split.jsonl"
    splits = ["test" if row % 4 == 0 else "train" for row in range(len(world.documents))]
    named = zip(world.documents, splits, strict=True)
    path.write_text("\n".join(json.dumps({"labels": d, "split": s}) for d, s in named))
    words = ["-d", path, "-x", files / "features.npy", "--split", "train", *SMALL]
    code, _, err = run("fit", tmp_path / "m", *words)
    assert code == 0 and "from 225 documents" in err
    code, out, _ = run("evaluate", tmp_path / "m", files / "features.npy", path, "--split", "test")
    assert code == 0 and records(out)[0]["n_items"] == 75
    code, _, err = run("fit", tmp_path / "n", *words[:4], "--split", "dev")
    assert code == 1 and "Unknown split 'dev'" in err and "test, train" in err


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["draw-0", "draw-1", "checkpoint", "paper"])
def test_a_fit_that_was_interrupted_goes_on(run, files, tiny_space, tmp_path, monkeypatch, stage):
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", tiny_space)
    words = ["-d", files / "semantics.jsonl", *SMALL]
    owner, method = Checkpoint, "write"
    if stage != "paper":
        words = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
        owner, method = polyseme.training.SpaceTraining, "save"
    code, _, err = run("fit", tmp_path / "whole", *words)
    assert code == 0
    if stage != "paper":
        assert "labels (25 seen) from 300 documents" in err
        assert "members of 32 dimensions, 120 steps each" in err
    written, places = getattr(owner, method), []

    def noted(self, *arguments):
        written(self, *arguments)
        places.append("paper" if stage == "paper" else str(arguments[0]).rpartition(".")[2])

    def interrupted(self, *arguments):
        noted(self, *arguments)
        if places[-1] == stage:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, interrupted)
        code, out, err = run("fit", tmp_path / "m", *words)
    assert code == 130 and "run the same command again" in err and out == ""
    last = "m.checkpoint" if stage in ("paper", "checkpoint") else f"m.checkpoint.{stage}"
    assert (tmp_path / last).exists() and not (tmp_path / "m").exists()
    before, places = places, []
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, noted)
        assert run("fit", tmp_path / "m", *words)[0] == 0
    assert not {*before[:-1]} & {*places}, "what was learned is not learned again"
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "m"}
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "m" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("part", ["m.checkpoint", "m.checkpoint.draw-1"])
def test_a_damaged_checkpoint_is_learned_again(run, files, tiny_space, tmp_path, monkeypatch, part):
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", tiny_space)
    words = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    assert run("fit", tmp_path / "whole", *words)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(polyseme.ZeroShotTagger, "save", interrupt)
        assert run("fit", tmp_path / "m", *words)[0] == 130
    file = tmp_path / part / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9] + b"\0" * 9)
    code, _, err = run("fit", tmp_path / "m", *words)
    assert code == 0 and ("The training begins anew" in err) == (part == "m.checkpoint")
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "m" / path.name).read_bytes() == path.read_bytes()


def test_an_interrupted_mapping_does_not_lose_the_concept_space(run, files, tmp_path, monkeypatch):
    words = ["-d", files / "documents.jsonl", "-x", files / "features.npy", *SMALL]
    with monkeypatch.context() as patch:
        patch.setattr("polyseme.published.mapping.InstanceMapper.fit", interrupt)
        code, _, err = run("fit", tmp_path / "m", *words)
    assert code == 130 and "run the same command again" in err
    monkeypatch.setattr(ConceptTrainer, "_epoch", interrupt)
    assert run("fit", tmp_path / "m", *words)[0] == 0
    assert not (tmp_path / "m.checkpoint").exists()


def test_a_foreign_folder_is_refused_before_training(run, files, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    monkeypatch.setattr(polyseme.ConceptSpace, "fit", lambda *_, **__: pytest.fail("trained"))
    code, _, err = run("fit", tmp_path / "mine", "-d", files / "documents.jsonl")
    assert code == 1 and "Refusing to write a model" in err
    code, _, err = run("fit", files / "truth.jsonl", "-d", files / "documents.jsonl")
    assert code == 1 and "is a file; choose another path" in err


def test_what_cannot_be_written_is_found_out_before_the_learning(
    run, files, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(polyseme.ConceptSpace, "fit", lambda *_, **__: pytest.fail("trained"))
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    inputs = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    for place, complaint in [
        ("dangling", "is a link that leads nowhere"),
        ("loop", "is a link that leads nowhere"),
        ("loop/below", "loop' is a link that leads nowhere"),
        ("file/below", "is a file"),
    ]:
        code, _, err = run("fit", tmp_path / place, *inputs)
        assert code == 1 and complaint in err.splitlines()[-1], err
    shutil.copytree(model, tmp_path / "own")
    before = {path.name: path.read_bytes() for path in (tmp_path / "own").iterdir()}
    opened = os.open

    def protected(path, flags, *mode, **options):
        creates = flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE
        if creates and tmp_path in (Path(path), *Path(path).parents):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *mode, **options)

    monkeypatch.setattr(os, "open", protected)
    for words in (
        ["fit", tmp_path / "own", *inputs],
        ["fit", tmp_path / "new", *inputs],
        ["block", tmp_path / "own", "sea"],
        ["add", tmp_path / "own", "-d", files / "more.jsonl"],
    ):
        code, _, err = run(*words)
        assert code == 1 and "Read-only file system" in err.splitlines()[-1], err
    assert {path.name: path.read_bytes() for path in (tmp_path / "own").iterdir()} == before


def test_a_disk_without_room_is_found_out_before_the_learning(run, files, tmp_path, monkeypatch):
    monkeypatch.setattr(polyseme.ConceptSpace, "fit", lambda *_, **__: pytest.fail("trained"))
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    inputs = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    code, _, err = run("fit", tmp_path / "m", *inputs)
    assert code == 1 and "has 0.00 GB left, and 0.0" in err.splitlines()[-1]
    assert "make room" in err.splitlines()[-1]


# ------------------------------------------------------------------ checkpoints that must not stay


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_refused_fit_leaves_no_checkpoint_that_bars_the_corrected_one(
    run, files, tiny_space, tmp_path, monkeypatch, preset
):
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", tiny_space)
    words = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    place, few = "polyseme.tagger.KnownDocuments.of", ["--validations", 0]
    if preset == "paper":
        words, place = [*words, *SMALL], "polyseme.published.mapping.InstanceMapper.fit"

    def refused(*_, **__):
        assert (tmp_path / "m.checkpoint" / "model.safetensors").exists()
        raise InputError("These items cannot be used; mend them.")

    with monkeypatch.context() as patch:
        patch.setattr(place, refused)
        code, _, err = run("fit", tmp_path / "m", *words, *few)
    assert code == 1 and "cannot be used" in err
    assert [path.name for path in tmp_path.iterdir()] == []
    assert run("fit", tmp_path / "m", *words, "--seed", 1)[0] == 0


def test_items_that_share_no_label_are_refused_before_the_training(run, files, tmp_path, world):
    (tmp_path / "other.jsonl").write_text('["a", "b"]\n["b", "c"]')
    words = ["-d", files / "documents.jsonl", "-x", files / "features.npy", *SMALL]
    words += ["-s", tmp_path / "other.jsonl", "--label-sets-only"]
    code, _, err = run("fit", tmp_path / "m", *words)
    assert code == 1 and "No instance carries a label of the label sets" in err.splitlines()[-1]
    assert not (tmp_path / "m.checkpoint").exists()


def test_a_checkpoint_of_another_fit_stays_where_it_is(
    run, files, tiny_space, tmp_path, monkeypatch
):
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", tiny_space)
    words = ["fit", tmp_path / "m", "-d", files / "documents.jsonl", "-x", files / "features.npy"]
    with monkeypatch.context() as patch:
        patch.setattr(polyseme.ZeroShotTagger, "save", interrupt)
        assert run(*words)[0] == 130
    kept = sorted(path.name for path in (tmp_path / "m.checkpoint").iterdir())
    code, _, err = run(*words, "--seed", 1)
    assert code == 1 and "belongs to other data or parameters" in err.splitlines()[-1]
    assert sorted(path.name for path in (tmp_path / "m.checkpoint").iterdir()) == kept
    assert run(*words)[0] == 0 and {path.name for path in tmp_path.iterdir()} == {"m"}


# ------------------------------------------------------------------ rank, add, evaluate, info


def test_ranks_equal_those_of_the_library(run, files, model, toy_tagger, world, tmp_path):
    ask = ["rank", model, files / "test.npy", "-k", 4]
    given = [["keyboard"], *([] for _ in world.X_test[1:])]
    for words, options in (
        ([], {}),
        (["--tags", files / "given.jsonl"], {"tags": given}),
        (["--method", "priming"], {"method": "priming"}),
    ):
        code, out, _ = run(*ask, *words)
        labels, scores = toy_tagger.rank(world.X_test, k=4, **options)
        assert code == 0 and [row["labels"] for row in records(out)] == labels.tolist()
        assert records(out)[0]["scores"] == pytest.approx(scores[0], abs=1e-6)
    code, _, err = run(*ask, "--method", "priming", "--out", tmp_path / "out")
    assert code == 0, err
    written = records((tmp_path / "out" / "test.jsonl").read_text())
    assert [row["labels"] for row in written] == labels.tolist()
    code, _, err = run(*ask, "--out", tmp_path / "out")
    assert code == 1 and "another method" in err


def test_a_precision_keeps_what_is_likely_enough(run, files, model, toy_tagger, world):
    _, out, _ = run("rank", model, files / "test.npy", "-k", 50, "--precision", 0.5)
    kept = [set(row["labels"]) for row in records(out)]
    assert kept == [set(tags) for tags in toy_tagger.predict(world.X_test, precision=0.5)]
    assert 0 < max(map(len, kept)) < len(toy_tagger.classes_)
    _, out, _ = run("rank", model, files / "test.npy", "-k", 1, "-p", 0.5)
    assert max(len(row["labels"]) for row in records(out)) == 1


def test_tags_of_files_are_found_by_their_names():
    corpus = LabelCorpus.from_documents([["b"], ["a"]], ids=["two.png", "one.png"])
    items = [{"file": "one.png"}, {"file": "two.png"}, {"file": "three.png"}]
    reading = Reading()
    known = tags_of_items(corpus, items, Path("tags"), Path("items"), reading)
    assert known == [("a",), ("b",), ()]


def test_a_model_takes_in_documents_and_names_without_training(run, files, model, tmp_path):
    grown = tmp_path / "grown"
    code, out, err = run("add", model, "--documents", files / "more.jsonl", "--out", grown)
    assert (code, out.strip()) == (0, str(grown))
    assert "added 2 documents; new labels: jellyfish" in err
    code, _, err = run("add", grown, "--label", "coast", "--vectors", files / "words.npz")
    assert code == 0 and "added 1 label by name; new labels: coast" in err
    code, _, err = run("add", grown, "--label", "coast", "--vectors", files / "words.npz")
    assert code == 0 and "known already, so nothing is added by name: coast" in err
    _, out, _ = run("rank", grown, files / "test.npy", "-k", 50)
    assert all({"jellyfish", "coast"} <= set(row["labels"]) for row in records(out))
    _, out, _ = run("rank", model, files / "test.npy", "-k", 50)
    assert "jellyfish" not in records(out)[0]["labels"], "the other model is as it was"


def test_complete_evaluate_and_info(run, files, model, toy_tagger):
    code, out, _ = run("complete", model, "apple", "pie", "-k", 3)
    assert code == 0 and {"label", "kind", "score"} == set(records(out)[0])
    code, out, _ = run("evaluate", model, files / "test.npy", files / "truth.jsonl")
    rows = {row["labels"]: row for row in records(out)}
    assert code == 0 and set(rows) == {"all", "seen", "unseen", "oov"}
    assert rows["all"]["example_map"] > 0.95
    code, out, _ = run("info", files / "documents.jsonl", "-f", "jsonl")
    assert code == 0 and records(out)[0]["documents"] == 300
    _, out, _ = run("info", model, "-f", "jsonl")
    (facts,) = records(out)
    space, store = toy_tagger.space_, toy_tagger.store_
    assert [facts[kind] for kind in ("labels", "seen", "unseen", "oov")] == [29, 23, 4, 2]
    assert (facts["known documents"], facts["different tag sets"]) == (600, len(store.points))
    assert (facts["members"], facts["dimensions"]) == (len(space.members_), space.n_dimensions)
    assert facts["training steps"] == space.plan_.n_steps
    assert facts["final loss of items"] == space.history_[-1]["items"]
    assert (facts["features"], facts["feature extractor"]) == (5, "none (numbers)")
    assert facts["documents left out"] == 0


def test_true_tags_that_the_model_lacks_are_named(run, files, model, tmp_path, world):
    truth = write_jsonl(tmp_path / "t.jsonl", [("sea", "zeppelin")] * len(world.X_test))
    code, out, err = run("evaluate", model, files / "test.npy", truth)
    assert code == 0 and out
    assert "1 true labels are not among the model's and are left out: zeppelin" in err
    write_jsonl(truth, [("zeppelin",)] * len(world.X_test))
    code, _, err = run("evaluate", model, files / "test.npy", truth)
    assert code == 1 and "carries a label that the model knows" in err


def test_true_tags_are_understood_by_former_names_as_in_python(run, files, model, tmp_path, world):
    truth = write_jsonl(tmp_path / "t.jsonl", [("sea", "sand")] * len(world.X_test))
    assert run("rename", model, "sea", "ocean", "--out", tmp_path / "renamed")[0] == 0
    before = run("evaluate", model, files / "test.npy", truth)
    assert run("evaluate", tmp_path / "renamed", files / "test.npy", truth)[:2] == before[:2]


def test_unknown_tags_are_a_note_on_stderr(run, model):
    code, out, err = run("complete", model, "sea", "zeppelin", "-k", 1)
    assert code == 0 and len(records(out)) == 1
    assert err == "polyseme: note: Unknown tags are passed over: zeppelin.\n"


# ------------------------------------------------------------------ evidence


def test_evidence_is_one_record_with_everything(run, files, model, toy_tagger, world):
    code, out, _ = run("explain", model, files / "test.npy", "charger", "--row", 1, "-k", 3)
    (record,) = records(out)
    evidence = toy_tagger.explain(world.X_test[1], "charger", k=3)
    assert code == 0
    assert list(record.items())[:3] == [("row", 1), ("label", "charger"), ("kind", "unseen")]
    assert [tag["tag"] for tag in record["tags"]] == [tag.tag for tag in evidence.tags]
    parts = [record[name] for name in ("frequency", "features", "other_tags", "known")]
    parts += [tag["part"] for tag in record["tags"]]
    assert sum(parts) == pytest.approx(record["logit"], abs=1e-5)
    assert record["probability"] == pytest.approx(evidence.probability, abs=1e-6)
    near = record["neighbours"]
    assert list(near[0]) == ["document", "known_as", "times", "distance", "share", "holds"]
    assert [each["distance"] for each in near] == sorted(each["distance"] for each in near)
    assert all(each["holds"] == ("charger" in each["document"]) for each in near)
    assert all(each["times"] >= len(each["known_as"]) > 0 for each in near)


def test_evidence_as_csv_has_a_row_for_each_part(run, files, model):
    _, out, _ = run("explain", model, files / "test.npy", "charger", "-k", 2, "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["part", "probability", "logit", "without"]
    assert [row["part"] for row in rows[:2]] == ["how common the tag is", "features"]
    assert len(rows) == 2 + 2 + 2 + 1 and rows[-1]["part"] == "sum"
    assert all(row["probability"] and row["without"] for row in rows[2:4])
    total = sum(float(row["logit"]) for row in rows[:-1])
    assert total == pytest.approx(float(rows[-1]["logit"]), abs=1e-5)


def test_evidence_for_people_fits_eighty_columns_and_has_bars(run, files, model):
    code, out, _ = run("explain", model, files / "test.npy", "charger", "-k", 3, "-f", "table")
    lines = out.splitlines()
    assert code == 0 and max(map(len, lines)) <= 80
    assert lines[0].startswith("why charger (unseen) has the probability 0.")
    common, features = (next(row for row in lines if name in row) for name in ("common", "feat"))
    assert "█│" in common and "│█" in features, "negative left, positive right"
    assert "known tag sets nearby" in out and "nearest known tag sets" in out
    assert "{" not in out
    assert bar(-1.0, ascii_only=True).plain == "#########|         "
    assert bar(0.0, ascii_only=True).plain == "         |         "
    assert bar(0.5, ascii_only=False).plain == "         │████▌    "
    assert bar(-0.5, ascii_only=False).plain == "    ▐████│         "


def test_tags_that_an_item_has_are_part_of_its_evidence(run, files, model, toy_tagger, world):
    tags = ["--tag", "pie", "--tag", "oven"]
    code, out, _ = run("explain", model, files / "test.npy", "knife", *tags, "-k", 3)
    (record,) = records(out)
    expected = toy_tagger.predict_proba(world.X_test[:1], tags=[["pie", "oven"]])
    column = list(toy_tagger.classes_).index("knife")
    assert code == 0 and record["probability"] == pytest.approx(expected[0, column], abs=1e-6)
    given = {tag["tag"]: tag["probability"] for tag in record["tags"]}
    assert given["pie"] == given["oven"] == 1.0
    code, out, _ = run("explain", model, "-", "knife", *tags)
    alone = toy_tagger.explain(None, "knife", tags=["pie", "oven"])
    assert code == 0 and json.loads(out)["logit"] == pytest.approx(alone.logit, abs=1e-6)


# ------------------------------------------------------------------ tables for people


def test_people_read_tables(run, files, model):
    code, out, _ = run("complete", model, "sea", "-k", 2, "--form", "table")
    assert code == 0 and "goes with sea" in out and "{" not in out
    code, out, _ = run("rank", model, files / "test.npy", "-k", 3, "-f", "table")
    assert code == 0 and re.search(r"charger 0\.\d+ \(unseen\)", " ".join(out.split()))
    code, out, _ = run("evaluate", model, files / "test.npy", files / "truth.jsonl", "-f", "table")
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    heads = next(line.split() for line in out.splitlines() if "measure" in line)
    assert heads[:3] == ["measure", "all", "seen"]


def test_labels_that_look_like_markup_are_printed_as_they_are(run, world, tiny_space, tmp_path):
    documents = [(*document, "[/red]", ":sun:") for document in world.documents[:80]]
    tagger = polyseme.ZeroShotTagger(space=tiny_space(n_steps=5), random_state=0)
    tagger.fit(world.X[:80], documents).save(tmp_path / "m")
    features = write_npy(tmp_path / "x.npy", world.X_test)
    code, out, err = run("explain", tmp_path / "m", features, "[/red]", "-f", "table")
    assert code == 0 and out.startswith("why [/red] (seen)"), err
    code, out, err = run("complete", tmp_path / "m", "sea", "[bold]", "-k", 40, "-f", "table")
    assert code == 0 and "[/red]" in out and ":sun:" in out, err


# ------------------------------------------------------------------ the published method


def test_every_command_takes_a_published_model(run, files, published, published_tagger, world):
    _, out, _ = run("rank", published, files / "test.npy", "-k", 4, "-f", "jsonl")
    labels, _ = published_tagger.rank(world.X_test, k=4)
    assert [row["labels"] for row in records(out)] == labels.tolist()
    code, out, _ = run("complete", published, "apple", "pie", "-k", 3)
    assert code == 0 and {"label", "kind", "score"} == set(records(out)[0])
    code, out, _ = run("explain", published, files / "test.npy", "apple", "--row", 0, "-k", 2)
    near, far = records(out)
    assert code == 0 and near["distance"] <= far["distance"]
    assert near["times"] >= len(near["known_as"]) > 0 and "apple" in near["document"]
    code, out, _ = run("evaluate", published, files / "test.npy", files / "truth.jsonl")
    rows = {row["labels"]: row for row in records(out)}
    assert code == 0 and set(rows) == {"all", "seen", "unseen", "oov"}
    assert rows["all"]["example_map"] > 0.95
    assert "calibration_error" not in rows["all"], "its scores are no probabilities"
    code, out, _ = run("info", published, "-f", "jsonl")
    facts = records(out)[0]
    assert code == 0 and (facts["unseen"], facts["dimensions"], facts["features"]) == (4, 24, 5)
    assert (facts["mapper"], facts["relatedness"]) == ("kernel-ridge", "nearest")
    words = ["--documents", files / "more.jsonl", "--out", files / "grown"]
    code, _, err = run("add", published, *words)
    assert code == 0 and "added 2 documents; new labels: jellyfish" in err


# ------------------------------------------------------------------ bad input


def test_every_mistake_gets_one_sentence_and_exit_code_one(run, files, model, published, tmp_path):
    test, documents, out = files / "test.npy", files / "documents.jsonl", tmp_path / "m"
    gaps = np.load(test)
    gaps[[2, 4], 0] = np.nan
    nan = write_npy(tmp_path / "nan.npy", gaps)
    narrow = write_npy(tmp_path / "narrow.npy", np.ones((2, 3)))
    few = write_jsonl(tmp_path / "few.jsonl", [["keyboard"], []])
    (tmp_path / "x.jsonl").write_text('{"labels": ["a"]}\n{oops\n')
    named = ["--label", "coast", "--vectors", files / "words.npz"]
    inputs = ["-d", documents, "-x", files / "features.npy"]
    cases = [
        ("no file or folder", ["rank", model, tmp_path / "none.npy"]),
        ("row(s) 2, 4", ["rank", model, nan]),
        ("expecting 5 features", ["rank", model, narrow]),
        ("there are 2 documents in", ["rank", model, test, "--tags", few]),
        (
            "votes of known tag sets are none",
            ["rank", model, test, "--method", "priming", "-p", 0.5],
        ),
        ("There is no row 99", ["explain", model, test, "apple", "--row", 99]),
        ("Unknown label 'appel'", ["explain", model, test, "appel"]),
        ("'pie' is among the tags that are given", ["explain", model, "-", "pie", "--tag", "pie"]),
        ("None of the tags is known", ["complete", model, "zeppelin"]),
        ("not a polyseme model", ["info", tmp_path.parent]),
        ("Unknown experiment", ["reproduce", "fig99"]),
        ("Line 2 of x.jsonl", ["info", tmp_path / "x.jsonl"]),
        ("Give tag sets with --documents", ["add", model]),
        ("Give tag sets with --documents", ["add", model, "--vectors", "words.npz"]),
        ("`--label` and `--vectors` belong", ["add", model, "--label", "coast"]),
        ("`device` of `ConceptSpace` is 'nowhere'", ["fit", out, *inputs, "--device", "nowhere"]),
        ("`device` of `validate` is 'nowhere'", ["validate", *inputs, "--device", "nowhere"]),
        (
            "must be a whole number or 'hdp'",
            ["fit", out, *inputs, "--preset", "paper", "--topics", "many"],
        ),
        ("rows but there are 25 documents", ["fit", out, "-d", files / "truth.jsonl", *inputs[2:]]),
        ("A label by name needs the default tagger", ["add", published, *named]),
        ("a precision needs the default tagger", ["rank", published, test, "-p", 0.5]),
        ("`tags` need the default", ["rank", published, test, "--tags", files / "given.jsonl"]),
        ("`method` needs the default", ["rank", published, test, "--method", "priming"]),
        ("`--tag` needs the default", ["explain", published, test, "apple", "--tag", "pie"]),
    ]
    for option, value in {
        "mapper": "nu-svr", "relatedness": "nearest", "components": 8, "topics": "hdp", "epochs": 2,
    }.items():  # fmt: skip
        message = f"`--{option}` belongs to the published method; add --preset paper."
        cases.append((message, ["fit", out, "-d", documents, f"--{option}", value]))
    for message, words in cases:
        code, printed, err = run(*words)
        assert (code, printed) == (1, ""), (message, err)
        assert message in err
        # Before it may stand how tables were understood.
        *notes, last = err.splitlines()
        assert last.startswith("polyseme: ") and len(notes) < 3
        assert not any(line.startswith("polyseme:") for line in notes)


def test_a_tampered_model_is_refused(run, files, toy_tagger, tmp_path):
    toy_tagger.save(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    code, _, err = run("rank", tmp_path / "m", files / "test.npy")
    assert code == 1 and "is damaged or was changed" in err and err.count("\n") == 1


def test_wrong_usage_ends_with_two(run, files, model, tmp_path):
    assert run("rank")[0] == 2
    assert run("rank", model, "x.npy", "-k", 0)[0] == 2
    assert run("no-such-command")[0] == 2
    code, _, err = run("fit", tmp_path / "m", "-d", files / "documents.jsonl", "--workers", 3)
    assert code == 2 and "need --engine ray" in err


# ------------------------------------------------------------------ help


def test_help_and_version_import_nothing_heavy():
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


def test_version_and_help_of_every_command(run):
    code, out, _ = run("--version")
    assert code == 0 and out.strip() == polyseme.__version__
    for command in app.registered_commands:
        code, out, _ = run(command.callback.__name__, "--help")
        assert code == 0 and f"Usage: polyseme {command.callback.__name__}" in out
        assert f"Example: polyseme {command.callback.__name__} " in " ".join(out.split())


# ------------------------------------------------------------------ vocabulary and validation


def test_care_for_the_vocabulary_is_written_to_the_model(run, model, tmp_path):
    copy = tmp_path / "model"
    polyseme.load(model).save(copy)
    code, out, _ = run("labels", copy, "--kind", "unseen", "-f", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and {row["kind"] for row in rows} == {"unseen"}
    assert all(row["documents"] > 0 and not row["blocked"] for row in rows)
    for words in (
        ("rename", copy, "sand", "shore"),
        ("merge", copy, "sea", "shore"),
        ("block", copy, "sun"),
        ("remove", copy, "towel"),
    ):
        code, out, _ = run(*words)
        assert (code, out) == (0, f"{copy}\n")
    tagger = polyseme.load(copy)
    assert tagger.vocabulary_.blocked == ("sun",) and tagger.vocabulary_.resolve("sea") == "shore"
    assert tagger.store_.counts[tagger.store_.labels.index("towel")] == 0
    assert run("block", copy, "sun", "--undo", "--out", tmp_path / "other")[0] == 0
    assert not polyseme.load(tmp_path / "other").vocabulary_.blocked
    code, _, err = run("rename", copy, "shore", "desk")
    assert code == 1 and "merge 'shore' into it instead" in err


def test_merges_are_suggested(run, world, tiny_space, tmp_path):
    documents = [[*tags, "Oaks"] if "oak" in tags else tags for tags in world.documents]
    tagger = polyseme.ZeroShotTagger(space=tiny_space(n_steps=10), n_validations=0, random_state=0)
    tagger.fit(world.X, documents).save(tmp_path / "model")
    _, out, _ = run("labels", tmp_path / "model", "--merges", "-f", "jsonl")
    pairs = [json.loads(line) for line in out.splitlines()]
    assert {"Oaks", "oak"} in [{pair["label"], pair["into"]} for pair in pairs]


def test_fit_says_what_was_measured_and_validate_draws_it(
    run, files, world, tmp_path, monkeypatch, tiny_space
):
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", lambda: tiny_space(n_steps=20))
    (tmp_path / "words.toml").write_text("blocked = ['sun']")
    write_jsonl(tmp_path / "evil.jsonl", [[*t, "<script>x"] for t in world.documents])
    given = ("-d", tmp_path / "evil.jsonl", "-x", files / "features.npy")
    vocabulary = ("--vocabulary", tmp_path / "words.toml")
    words = ("--label-vectors", files / "words.npz")
    code, _, err = run("fit", tmp_path / "model", *given, *vocabulary, *words)
    assert code == 0, err
    assert "unseen labels: " in err and "precision" in err and "recall" in err
    page = tmp_path / "page.html"
    code, out, _ = run("validate", *given, "--draws", 1, "-o", page, "-f", "jsonl")
    seen, unseen, place = out.splitlines()
    assert code == 0 and place == str(page) and json.loads(unseen)["labels"] == "unseen"
    assert json.loads(seen)["n_items"] == 75
    drawn = page.read_text("utf-8")
    assert "&lt;script&gt;x" in drawn and "<script" not in drawn and "http" not in drawn
    code, _, err = run("validate", "-d", files / "documents.jsonl")
    assert code == 1 and "give their features" in err
    monkeypatch.undo()
    assert polyseme.load(tmp_path / "model").vocabulary_.blocked == ("sun",)


def test_tags_of_one_kind_are_ranked_where_that_is_asked_for(run, files, model):
    code, out, _ = run("rank", model, files / "test.npy", "--kind", "unseen", "--top", 2)
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and all(row["kinds"] == ["unseen", "unseen"] for row in rows)


# ------------------------------------------------------------------ answers


@pytest.fixture
def own_model(model, tmp_path) -> Path:
    """A model that a test may teach."""
    polyseme.load(model).save(tmp_path / "own")
    return tmp_path / "own"


@pytest.fixture
def quick_space(tiny_space, monkeypatch) -> None:
    """Let commands learn small spaces, badly."""

    def make() -> polyseme.ConceptSpace:
        return tiny_space(n_steps=20)

    make.from_state = polyseme.ConceptSpace.from_state
    monkeypatch.setattr("polyseme.fit_stages.ConceptSpace", make)


def ranked(run, model, features) -> list[dict]:
    code, out, err = run("rank", model, features, "-k", 50, "-f", "jsonl")
    assert code == 0, err
    return records(out)


def answered(questions: str, place: Path, answer) -> Path:
    rows = [row | {"answer": answer(row)} for row in records(questions)]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def test_questions_are_answered_learned_and_undone_without_a_trace(
    run, files, own_model, world, tmp_path
):
    before = ranked(run, own_model, files / "test.npy")
    saved = (own_model / "model.safetensors").read_bytes()
    code, out, _ = run("ask", own_model, files / "test.npy", "-l", "charger", "-k", 8)
    assert code == 0 and {row["label"] for row in records(out)} == {"charger"}
    assert len(records(out)) == 8 and all(row["answer"] is None for row in records(out))
    # Everything that is likely is wrong, so that something must change.
    answers = answered(out, tmp_path / "answers.jsonl", lambda row: row["reason"] != "likely")
    code, out, err = run("learn", own_model, answers, "-x", files / "test.npy", "--who", "me")
    assert (code, out) == (0, "1-8\n"), err
    assert "learned from 8 answers: charger (4 yes, 4 no)" in err and "--undo 1-8" in err
    after = ranked(run, own_model, files / "test.npy")
    assert after != before
    assert (own_model / "model.safetensors").read_bytes() == saved, "the model is as it was"
    log = polyseme.load(own_model).verdicts_
    assert {(one.who, one.score is not None) for one in log.standing()} == {("me", True)}
    _, out, _ = run("ask", own_model, files / "test.npy", "-l", "charger", "-k", 50)
    assert len(records(out)) == len(world.X_test) - 8, "what was answered is not asked again"
    code, out, err = run("learn", own_model, "--undo", "1-3", 4)
    assert code == 0 and "taken back 4 answers" in err and "4 answers left" in err
    assert run("learn", own_model, "--undo-last", 4)[0] == 0
    assert ranked(run, own_model, files / "test.npy") == before


def test_answers_by_option_teach_a_tag_that_was_never_heard_of(run, files, own_model, world):
    office = [row for row, theme in enumerate(world.themes_test) if theme == "office"]
    before = ranked(run, own_model, files / "test.npy")
    words = ("--yes", "cubicle", *office[:3], "-x", files / "test.npy")
    code, out, err = run("learn", own_model, *words)
    assert (code, out) == (0, "1-3\n") and "new tags: cubicle" in err
    scores = [
        dict(zip(row["labels"], row["scores"], strict=True))["cubicle"]
        for row in ranked(run, own_model, files / "test.npy")
    ]
    best = np.argsort(scores)[::-1][: len(office)]
    assert {world.themes_test[row] for row in best} == {"office"}
    # They are known by now.
    code, _, err = run("learn", own_model, "--no", "sea", "--no", "sand", office[0])
    assert code == 0 and "sea (0 yes, 1 no), sand (0 yes, 1 no)" in err
    assert run("learn", own_model, "--undo-last", 5)[0] == 0
    assert ranked(run, own_model, files / "test.npy") == before


def test_questions_that_nobody_answered_are_passed_over(run, files, own_model, tmp_path):
    _, out, _ = run("ask", own_model, files / "test.npy", "-k", 4, "-f", "csv")
    table = tmp_path / "q.csv"
    first, *rest = out.splitlines()[1:]
    head = out.splitlines()[0]
    table.write_text("\n".join([head, first.replace(",,", ",yes,"), *rest]))
    code, out, err = run("learn", own_model, table, "-x", files / "test.npy")
    assert (code, out) == (0, "1\n"), err
    assert "note: Rows of q.csv that have no answer are passed over: 3." in err


def test_items_are_asked_about_by_id_and_not_about_tags_they_have(
    run, files, own_model, world, tmp_path
):
    ids = [f"p{row}" for row in range(len(world.X_test))]
    np.savez(tmp_path / "pool.npz", X=world.X_test, ids=np.array(ids))
    tags = [
        {"id": name, "labels": [*world.themes[theme]]}
        for name, theme in zip(ids, world.themes_test, strict=True)
    ]
    (tmp_path / "tags.jsonl").write_text("".join(json.dumps(one) + "\n" for one in reversed(tags)))
    ask = ("ask", own_model, tmp_path / "pool.npz", "-d", tmp_path / "tags.jsonl", "-k", 40)
    code, out, err = run(*ask, "--strategy", "likeliest")
    assert code == 0 and "joined by id: 25 items" in err
    has = {one["id"]: one["labels"] for one in tags}
    assert all(row["label"] not in has[row["item"]] for row in records(out))
    tags[0]["labels"] = tags[0]["labels"][1:]
    lost = world.themes[world.themes_test[0]][0]
    (tmp_path / "tags.jsonl").write_text("".join(json.dumps(one) + "\n" for one in tags))
    _, out, _ = run(*ask, "--strategy", "errors")
    assert ("p0", lost, "missing") in [
        (row["item"], row["label"], row["reason"]) for row in records(out)
    ]


def test_questions_for_people_fit_eighty_columns(run, files, own_model):
    code, out, _ = run("ask", own_model, files / "test.npy", "-k", 3, "-f", "table")
    assert code == 0 and max(map(len, out.splitlines())) <= 80 and "answer" not in out


def test_items_teach_a_new_tag_and_another_folder_leaves_the_model_alone(
    run, files, own_model, world, tmp_path
):
    beach = [row for row, theme in enumerate(world.themes_test) if theme == "beach"][:2]
    words = ("--label", "canoe", "-x", files / "test.npy", "--out", tmp_path / "taught")
    code, out, err = run("add", own_model, *beach, *words)
    assert (code, out.strip()) == (0, str(tmp_path / "taught"))
    assert "added 2 answers: canoe (2 yes, 0 no); new labels: canoe" in err
    assert "canoe" in polyseme.load(tmp_path / "taught").classes_
    assert not (own_model / "verdicts.sqlite").exists()
    for words, message in (
        (("add", own_model, 3), "Say with --label"),
        (("add", own_model, 3, "--label", "canoe"), "Nothing is known of the item '3'"),
        (("add", own_model, 99, "--label", "canoe", "-x", files / "test.npy"), "no item '99'"),
    ):
        code, _, err = run(*words)
        assert code == 1 and message in err and err.count("\n") == 1


def test_mistakes_about_answers_get_one_sentence(run, files, model, published, tmp_path):
    test, words = files / "test.npy", ["-x", files / "test.npy"]
    (tmp_path / "open.jsonl").write_text('{"item": "1", "label": "sea", "answer": "perhaps"}\n')
    (tmp_path / "lost.jsonl").write_text('{"item": "99", "label": "sea", "answer": true}\n')
    space = polyseme.ConceptSpace(n_folds=2, n_steps=4)
    tags = polyseme.ZeroShotTagger(space=space).fit(None, [["sea", "sand"], ["sea", "ship"]] * 4)
    tags.save(tmp_path / "tags-only")
    for message, command in [
        ("Line 1 of open.jsonl must have true or false", [tmp_path / "open.jsonl", *words]),
        ("There is no item '99' in", [tmp_path / "lost.jsonl", *words]),
        ("Nothing is known of the item '99'; say with --features", [tmp_path / "lost.jsonl"]),
        ("There is no file at", [tmp_path / "none.jsonl"]),
        ("Give a file of answers", []),
        ("Give a file of answers", ["--yes", "sea"]),
        ("has no answers that could be taken back", ["--undo", 1]),
        ("`--undo` takes numbers", ["--undo"]),
        ("`--undo` takes numbers", ["--undo-last", 1, "--yes", "sea"]),
    ]:
        code, out, err = run("learn", model, *command)
        assert (code, out) == (1, "") and message in err and err.count("\n") == 1, err
    for message, command in [
        ("`learn` needs the default tagger", ["learn", published, "--yes", "sea", 1, *words]),
        ("fitted without features", ["learn", tmp_path / "tags-only", "--yes", "sea", 1, *words]),
        ("`ask` needs the default tagger", ["ask", published, test]),
        ("Unknown label 'appel'", ["ask", model, test, "-l", "appel"]),
        ("give the items' tags with --documents", ["ask", model, test, "--strategy", "errors"]),
    ]:
        code, out, err = run(*command)
        assert (code, out) == (1, "") and message in err.splitlines()[-1], err
    assert not (model / "verdicts.sqlite").exists()


def test_undo_takes_only_numbers_that_were_given(run, files, own_model):
    run("learn", own_model, "--yes", "sea", 1, 2, "-x", files / "test.npy")
    for words, message in [(("7",), "There is no verdict 7"), (("1-x",), "got '1-x'")]:
        code, _, err = run("learn", own_model, "--undo", *words)
        assert code == 1 and message in err
    assert run("learn", own_model, "--undo", 2)[0] == 0
    code, _, err = run("learn", own_model, "--undo", 2)
    assert code == 1 and "was undone already" in err


def test_numbers_of_rows_are_those_of_one_table(run, files, own_model):
    assert run("learn", own_model, "--yes", "sea", 1, "-x", files / "test.npy")[0] == 0
    code, _, err = run("learn", own_model, "--no", "sand", 1, "-x", files / "features.npy")
    assert code == 1 and "Row 1 is not the item '1' that verdicts were given on" in err
    inputs = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    code, _, err = run("fit", own_model, *inputs)
    assert code == 1 and "Row 1 is not the item '1' that verdicts were given on" in err


def test_fit_learns_from_a_pool_and_answers_and_an_update_carries_them_over(
    run, files, own_model, tmp_path, quick_space, world
):
    inputs = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    inputs += ["-u", files / "test.npy"]
    (tmp_path / "a.jsonl").write_text('{"item": 3, "label": "sea", "answer": "no"}\n')
    code, _, err = run("fit", tmp_path / "m", *inputs, "--verdicts", tmp_path / "a.jsonl")
    assert code == 0, err
    assert "learned from, too: 1 answer: sea (0 yes, 1 no)" in err
    assert re.search(r"items without tags: [+-]\d+\.\d points on unseen labels, so they are", err)
    assert run("block", tmp_path / "m", "sun")[0] == 0
    _, out, _ = run("info", tmp_path / "m", "-f", "jsonl")
    (facts,) = records(out)
    assert (facts["answers"], facts["answers undone"]) == (1, 0)
    assert facts["answers are about"] == ["sea (1)"]
    gain = facts["foretold gain by untagged items"]
    assert facts["learned from untagged items"] == (gain > 0)
    assert facts["foretold gain by 10 answers a label"] is not None
    update = ("fit", tmp_path / "new", "--update", tmp_path / "m", "--validations", 0)
    code, _, err = run(*update, *inputs)
    assert code == 0, err
    assert "a fit to all 300 items that are given, from the older model's members; carried" in err
    assert "over: 1 blocked label" in err and "starts from nothing" not in err
    new, former = polyseme.load(tmp_path / "new"), polyseme.load(tmp_path / "m")
    assert new.vocabulary_.blocked == ("sun",) and len(new.verdicts_.standing()) == 1
    assert new.space_.plan_.n_steps < former.space_.plan_.n_steps / 5
    assert (new.space_.folds_[:300] == former.space_.folds_[:300]).all()
    assert new.pooled_ == former.pooled_ and former.verdicts_.count == 1
    narrow = write_npy(tmp_path / "narrow.npy", world.X[:, :3])
    code, _, err = run(*update, *inputs[:2], "-x", narrow)
    assert code == 1 and "These items have 3 features" in err.splitlines()[-1]
    code, _, err = run(*update, *inputs[:2])
    assert code == 1 and "The model of --update has features" in err.splitlines()[-1]
    run("learn", own_model, "--yes", "sea", 1, "-x", files / "test.npy")
    code, _, err = run(*update, *inputs, "--verdicts", own_model)
    assert code == 1 and "have verdicts that differ" in err.splitlines()[-1]
    code, _, err = run("fit", tmp_path / "x", *inputs, "--verdicts", files)
    assert code == 1 and "There are no verdicts in" in err.splitlines()[-1]
    code, _, err = run("fit", tmp_path / "x", *inputs, "--preset", "paper")
    assert code == 1 and "`--unlabelled` belongs to the default tagger" in err


def test_validate_says_what_a_pool_and_answers_would_bring(run, files, tmp_path, quick_space):
    given = ("-d", files / "documents.jsonl", "-x", files / "features.npy", "--draws", 1)
    page = tmp_path / "page.html"
    code, _, err = run("validate", *given, "-u", files / "test.npy", "--page", page)
    assert code == 0 and "items without tags: " in err and "yes or no to 10 items" in err
    assert "precision: " in err
    drawn = page.read_text("utf-8")
    assert "fit --unlabelled" in drawn and "ask, learn" in drawn
    narrow = write_npy(tmp_path / "narrow.npy", np.ones((5, 3)))
    code, _, err = run("validate", *given, "-u", narrow)
    assert code == 1 and "5 features" in err.splitlines()[-1]


def test_a_page_that_cannot_be_written_is_told_before_the_measuring(
    run, files, tmp_path, monkeypatch
):
    monkeypatch.setattr("polyseme.holdout.validate", lambda *_, **__: pytest.fail("measured"))
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    given = ("-d", files / "documents.jsonl", "-x", files / "features.npy")
    for page, complaint in [
        (tmp_path, "is a folder; add the name of a file"),
        (tmp_path / "link", "is a link that leads nowhere"),
        (tmp_path / "no" / "page.html", "There is no folder"),
    ]:
        code, _, err = run("validate", *given, "--page", page)
        assert code == 1 and complaint in err.splitlines()[-1]


# ------------------------------------------------------------------ starting


@pytest.mark.parametrize(
    "words",
    [
        ["complete", "model", "sea"],
        ["rank", "model", "test.npy"],
        ["info", "model"],
        ["ask", "model", "test.npy"],
    ],
    ids=lambda words: words[0],
)
def test_what_only_training_needs_is_not_loaded_to_use_a_model(model, words):
    code = "import atexit, sys; from polyseme.cli import main; "
    code += "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    wanted = [sys.executable, "-c", code, *words]
    done = subprocess.run(wanted, capture_output=True, text=True, check=True, cwd=model.parent)
    loaded = set(done.stderr.split())
    assert "polyseme.space" in loaded
    heavy = {"torch", "tomotopy", "sklearn.cluster", "pandas.core", "scipy.stats._stats_py"}
    assert not heavy & loaded


def test_a_module_that_waits_is_loaded_when_something_of_it_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "__init__.py").write_text("from waiting.inner import value\n")
    (tmp_path / "waiting" / "inner.py").write_text("value = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "waiting", raising=False)
    postpone(("waiting", "nowhere_to_be_found", "json"))
    stand_in = importlib.import_module("waiting")
    assert isinstance(stand_in, Postponed) and importlib.util.find_spec("waiting") is not None
    assert sys.modules["json"] is json and "nowhere_to_be_found" not in sys.modules
    assert "waiting.inner" not in sys.modules
    assert stand_in.value == 7
    assert not isinstance(sys.modules["waiting"], Postponed)
    assert importlib.import_module("waiting.inner").value == stand_in.inner.value
    with pytest.raises(AttributeError, match="missing"):
        stand_in.missing  # noqa: B018
