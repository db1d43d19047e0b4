from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyseme
from polyseme.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process; give exit code, stdout and stderr."""

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["polyseme", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        code = ended.value.code
        return (0 if code is None else int(code)), found.out, found.err

    return call


@pytest.fixture(scope="module")
def files(tmp_path_factory, world) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_jsonl(folder / "documents.jsonl", world.documents)
    write_jsonl(folder / "semantics.jsonl", world.label_sets)
    truth = [world.themes[theme] for theme in world.themes_test]
    write_jsonl(folder / "truth.jsonl", truth)
    np.save(folder / "features.npy", world.X)
    np.save(folder / "test.npy", world.X_test)
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


def write_jsonl(path: Path, documents, **fields) -> None:
    lines = [json.dumps({"labels": list(document)} | fields) for document in documents]
    path.write_text("\n".join(lines) + "\n")


def records(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


SMALL = ["--preset", "paper", "--components", 8, "--topics", 5, "--epochs", 2]
SMALL += ["--mapper", "kernel-ridge"]


# ------------------------------------------------------------------ the way of a user


def test_fit_then_rank(run, files, tmp_path):
    code, out, err = run(
        "fit", tmp_path / "m", "-d", files / "documents.jsonl", "-x", files / "features.npy",
        "-s", files / "semantics.jsonl", *SMALL,
    )  # fmt: skip
    assert code == 0, err
    assert out.strip() == str(tmp_path / "m")
    assert "29 labels (23 seen, 4 unseen, 2 oov)" in err
    assert not (tmp_path / "m.checkpoint").exists()
    code, out, _ = run("rank", tmp_path / "m", files / "test.npy", "-k", 3)
    rows = records(out)
    assert code == 0 and len(rows) == 25
    assert [row["row"] for row in rows] == list(range(25))
    assert all(len(row["labels"]) == len(row["scores"]) == len(row["kinds"]) == 3 for row in rows)


def test_ranks_equal_those_of_the_library(run, files, model, world):
    _, out, _ = run("rank", model, files / "test.npy", "-k", 4)
    labels, _ = polyseme.load(model).rank(world.X_test, k=4)
    assert [row["labels"] for row in records(out)] == labels.tolist()


def test_a_precision_keeps_what_is_likely_enough(run, files, model, toy_tagger, world):
    _, out, _ = run("rank", model, files / "test.npy", "-k", 50, "--precision", 0.5, "-f", "jsonl")
    found = [set(one["labels"]) for one in records(out)]
    assert found == [set(tags) for tags in toy_tagger.predict(world.X_test, precision=0.5)]
    assert 0 < max(map(len, found)) < len(toy_tagger.classes_)
    _, out, _ = run("rank", model, files / "test.npy", "-k", 1, "-p", 0.5, "-f", "jsonl")
    assert max(len(one["labels"]) for one in records(out)) == 1


def test_tags_that_items_have_already_move_the_others(run, files, model, toy_tagger, world):
    given = [["keyboard"], *([] for _ in world.X_test[1:])]
    write_jsonl(files / "given.jsonl", given)
    code, out, _ = run(
        "rank", model, files / "test.npy", "--tags", files / "given.jsonl", "-k", 4, "-f", "jsonl"
    )
    assert code == 0
    labels, _ = toy_tagger.rank(world.X_test, k=4, tags=given)
    assert [one["labels"] for one in records(out)] == labels.tolist()
    assert records(out)[0]["labels"][0] == "keyboard"
    write_jsonl(files / "few.jsonl", given[:2])
    code, _, err = run("rank", model, files / "test.npy", "--tags", files / "few.jsonl")
    assert code == 1 and "2 documents but" in err


def test_a_model_takes_in_documents_and_names_without_training(run, files, model, tmp_path):
    grown = tmp_path / "grown"
    write_jsonl(files / "more.jsonl", [["sea", "jellyfish"], ["sand", "jellyfish"]])
    code, out, err = run("add", model, "--documents", files / "more.jsonl", "--out", grown)
    assert (code, out.strip()) == (0, str(grown))
    assert "added 2 documents; new labels: jellyfish" in err
    np.savez(
        files / "words.npz",
        words=np.array(["sea", "sand", "desk", "phone", "coast"]),
        vectors=np.array([[1, 0.1], [1, 0.0], [0, 1], [0.1, 1], [1, 0.05]]),
    )
    code, _, err = run("add", grown, "--label", "coast", "--vectors", files / "words.npz")
    assert code == 0 and "added 1 label by name; new labels: coast" in err
    _, out, _ = run("rank", grown, files / "test.npy", "-k", 50, "-f", "jsonl")
    assert all({"jellyfish", "coast"} <= set(one["labels"]) for one in records(out))
    _, out, _ = run("rank", model, files / "test.npy", "-k", 50, "-f", "jsonl")
    assert "jellyfish" not in records(out)[0]["labels"], "the other model is as it was"


def test_tags_of_files_are_found_by_their_names():
    from polyseme.cli.reading import tags_of_items
    from polyseme.corpus import LabelCorpus

    corpus = LabelCorpus.from_documents([["b"], ["a"]], ids=["two.png", "one.png"])
    items = [{"file": "one.png"}, {"file": "two.png"}, {"file": "three.png"}]
    found = tags_of_items(corpus, items, "tags", "items")
    assert found == [("a",), ("b",), ()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Give tag sets with --documents"),
        (["--label", "coast"], "`--label` and `--vectors` belong together"),
        (["--vectors", "words.npz"], "Give tag sets with --documents"),
    ],
)
def test_what_cannot_be_added_is_said(run, model, words, message):
    code, _, err = run("add", model, *words)
    assert code == 1 and message in err and err.count("\n") == 1


def test_a_device_that_is_not_there_is_named_before_training(run, files, tmp_path):
    given = ("--documents", files / "documents.jsonl", "--features", files / "features.npy")
    code, _, err = run("fit", tmp_path / "model", *given, "--device", "nowhere")
    assert code == 1 and "`device` of `ConceptSpace` is 'nowhere'" in err


def test_csv_goes_in_and_comes_out(run, files, tmp_path):
    code, _, err = run(
        "fit", tmp_path / "m", "-d", files / "documents.csv", "-x", files / "features.npy", *SMALL
    )
    assert code == 0, err
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


def test_complete_evaluate_and_info(run, files, model):
    code, out, _ = run("complete", model, "apple", "pie", "-k", 3)
    assert code == 0 and {"label", "kind", "score"} == set(records(out)[0])
    code, out, _ = run("evaluate", model, files / "test.npy", files / "truth.jsonl")
    found = {row["labels"]: row for row in records(out)}
    assert code == 0 and set(found) == {"all", "seen", "unseen", "oov"}
    assert found["all"]["example_map"] > 0.95
    code, out, _ = run("info", model, "-f", "jsonl")
    assert code == 0 and records(out)[0]["unseen"] == 4
    code, out, _ = run("info", files / "documents.jsonl", "-f", "jsonl")
    assert code == 0 and records(out)[0]["documents"] == 300


def test_info_tells_what_the_space_is(run, model, toy_tagger):
    _, out, _ = run("info", model, "-f", "jsonl")
    (facts,) = records(out)
    space, store = toy_tagger.space_, toy_tagger.store_
    assert (facts["labels"], facts["seen"], facts["oov"]) == (29, 23, 2)
    assert (facts["known documents"], facts["different tag sets"]) == (600, len(store.points))
    assert (facts["members"], facts["dimensions"]) == (len(space.members_), space.n_dimensions)
    assert facts["training steps"] == space.plan_.n_steps
    assert facts["final loss of items"] == space.history_[-1]["items"]
    assert (facts["features"], facts["feature extractor"]) == (5, "none (numbers)")
    assert facts["documents left out"] == 0


def test_the_default_is_fitted_and_summed_up(run, files, tiny_space, tmp_path, monkeypatch):
    monkeypatch.setattr("polyseme.tagger.ConceptSpace", tiny_space)
    given = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    code, out, err = run("fit", tmp_path / "m", *given, "-s", files / "semantics.jsonl")
    assert (code, out.strip()) == (0, str(tmp_path / "m")), err
    assert "29 labels (23 seen, 4 unseen, 2 oov) from 600 documents (158 different tag" in err
    assert "members of 32 dimensions, 120 steps each" in err
    assert not (tmp_path / "m.checkpoint").exists()


# ------------------------------------------------------------------ evidence


def test_evidence_is_one_record_with_everything(run, files, model, toy_tagger, world):
    asked = ["explain", model, files / "test.npy", "charger", "--row", 1, "-k", 3]
    code, out, _ = run(*asked)
    (record,) = records(out)
    found = toy_tagger.explain(world.X_test[1], "charger", k=3)
    assert code == 0 and (record["row"], record["label"], record["kind"]) == (
        1,
        "charger",
        "unseen",
    )
    assert [one["tag"] for one in record["tags"]] == [one.tag for one in found.tags]
    parts = [record[name] for name in ("frequency", "features", "other_tags", "known")]
    parts += [one["part"] for one in record["tags"]]
    assert sum(parts) == pytest.approx(record["logit"], abs=1e-5)
    assert record["probability"] == pytest.approx(found.probability, abs=1e-6)
    near = record["neighbours"]
    assert [one["distance"] for one in near] == sorted(one["distance"] for one in near)
    assert all(one["holds"] == ("charger" in one["document"]) for one in near)
    assert all(one["times"] >= len(one["known_as"]) > 0 for one in near)


def test_evidence_as_csv_has_a_row_for_each_part(run, files, model):
    _, out, _ = run("explain", model, files / "test.npy", "charger", "-k", 2, "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["part"] for row in rows[:2]] == ["how common the tag is", "features"]
    assert len(rows) == 2 + 2 + 2 + 1 and rows[-1]["part"] == "sum"
    total = sum(float(row["logit"]) for row in rows[:-1])
    assert total == pytest.approx(float(rows[-1]["logit"]), abs=1e-5)


def test_evidence_for_people_fits_eighty_columns_and_has_bars(run, files, model):
    code, out, _ = run("explain", model, files / "test.npy", "charger", "-k", 3, "-f", "table")
    lines = out.splitlines()
    assert code == 0 and max(map(len, lines)) <= 80
    assert lines[0].startswith("why charger (unseen) has the probability 0.")
    common, features = (
        next(one for one in lines if name in one) for name in ("common", "features")
    )
    assert "█│" in common and "│█" in features, "negative left, positive right"
    assert "known tag sets nearby" in out and "nearest known tag sets" in out
    assert "{" not in out


def test_bars_are_drawn_in_plain_letters_where_there_are_no_others():
    from polyseme.cli.output import bar

    assert bar(-1.0, ascii_only=True).plain == "#########|         "
    assert bar(0.0, ascii_only=True).plain == "         |         "
    assert bar(0.5, ascii_only=False).plain == "         │████▌    "
    assert bar(-0.5, ascii_only=False).plain == "    ▐████│         "


def test_tags_that_an_item_has_are_part_of_its_evidence(run, files, model, toy_tagger, world):
    asked = ["explain", model, files / "test.npy", "knife", "--tag", "pie", "--tag", "oven"]
    code, out, _ = run(*asked, "-k", 3, "-f", "jsonl")
    (record,) = records(out)
    found = toy_tagger.predict_proba(world.X_test[:1], tags=[["pie", "oven"]])
    column = list(toy_tagger.classes_).index("knife")
    assert code == 0 and record["probability"] == pytest.approx(found[0, column], abs=1e-6)
    given = {one["tag"]: one["probability"] for one in record["tags"]}
    assert given["pie"] == given["oven"] == 1.0


def test_tags_alone_are_explained_too(run, model, toy_tagger):
    code, out, _ = run("explain", model, "-", "knife", "--tag", "pie", "--tag", "oven")
    found = toy_tagger.explain(None, "knife", tags=["pie", "oven"])
    assert code == 0 and json.loads(out)["logit"] == pytest.approx(found.logit, abs=1e-6)
    code, _, err = run("explain", model, "-", "pie", "--tag", "pie")
    assert code == 1 and "'pie' is among the tags that are given" in err


def test_people_read_tags_beside_their_scores_and_measures_in_rows(run, files, model):
    code, out, _ = run("rank", model, files / "test.npy", "-k", 3, "-f", "table")
    assert code == 0 and re.search(r"charger 0\.\d+ \(unseen\)", " ".join(out.split()))
    code, out, _ = run("evaluate", model, files / "test.npy", files / "truth.jsonl", "-f", "table")
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    heads = next(line.split() for line in out.splitlines() if "measure" in line)
    assert heads[:3] == ["measure", "all", "seen"]


def test_fit_refuses_workers_that_nobody_is(run, files, tmp_path):
    code, _, err = run("fit", tmp_path / "m", "-d", files / "documents.jsonl", "--workers", 3)
    assert code == 2 and "need --engine ray" in err


def test_labels_that_look_like_markup_are_explained_as_they_are(run, world, tiny_space, tmp_path):
    documents = [(*document, "[/red]") for document in world.documents[:80]]
    tagger = polyseme.ZeroShotTagger(space=tiny_space(n_steps=5), random_state=0)
    tagger.fit(world.X[:80], documents).save(tmp_path / "m")
    np.save(tmp_path / "x.npy", world.X_test)
    code, out, err = run("explain", tmp_path / "m", tmp_path / "x.npy", "[/red]", "-f", "table")
    assert code == 0, err
    assert out.startswith("why [/red] (seen)")


# ------------------------------------------------------------------ known tag sets alone


def test_known_tag_sets_alone_can_rank(run, files, model, toy_tagger, world, tmp_path):
    _, out, _ = run("rank", model, files / "test.npy", "-k", 4, "--method", "priming")
    labels, scores = toy_tagger.rank(world.X_test, k=4, method="priming")
    found = records(out)
    assert [one["labels"] for one in found] == labels.tolist()
    assert found[0]["scores"] == pytest.approx(scores[0], abs=1e-6)
    words = ["-k", 4, "--method", "priming", "--out", tmp_path / "out"]
    code, _, err = run("rank", model, files / "test.npy", *words)
    assert code == 0, err
    written = records((tmp_path / "out" / "test.jsonl").read_text())
    assert [one["labels"] for one in written] == labels.tolist()
    code, _, err = run("rank", model, files / "test.npy", "-k", 4, "--out", tmp_path / "out")
    assert code == 1 and "another method" in err


def test_every_command_takes_a_published_model(run, files, published, published_tagger, world):
    _, out, _ = run("rank", published, files / "test.npy", "-k", 4, "-f", "jsonl")
    labels, _ = published_tagger.rank(world.X_test, k=4)
    assert [one["labels"] for one in records(out)] == labels.tolist()
    code, out, _ = run("complete", published, "apple", "pie", "-k", 3)
    assert code == 0 and {"label", "kind", "score"} == set(records(out)[0])
    code, out, _ = run("explain", published, files / "test.npy", "apple", "--row", 0, "-k", 2)
    near, far = records(out)
    assert code == 0 and near["distance"] <= far["distance"]
    assert near["times"] >= len(near["known_as"]) > 0 and "apple" in near["document"]
    code, out, _ = run("evaluate", published, files / "test.npy", files / "truth.jsonl")
    found = {row["labels"]: row for row in records(out)}
    assert code == 0 and set(found) == {"all", "seen", "unseen", "oov"}
    assert found["all"]["example_map"] > 0.95
    assert "calibration_error" not in found["all"], "its scores are no probabilities"
    code, out, _ = run("info", published, "-f", "jsonl")
    facts = records(out)[0]
    assert code == 0 and (facts["unseen"], facts["dimensions"], facts["features"]) == (4, 24, 5)
    assert (facts["mapper"], facts["relatedness"]) == ("kernel-ridge", "nearest")


def test_a_published_model_takes_in_documents_only(run, files, published, tmp_path):
    write_jsonl(tmp_path / "more.jsonl", [["sea", "jellyfish"], ["sand", "jellyfish"]])
    words = ["--documents", tmp_path / "more.jsonl", "--out", tmp_path / "grown"]
    code, _, err = run("add", published, *words)
    assert code == 0 and "added 2 documents; new labels: jellyfish" in err
    np.savez(tmp_path / "words.npz", words=np.array(["sea", "coast"]), vectors=np.ones((2, 2)))
    named = ["--label", "coast", "--vectors", tmp_path / "words.npz"]
    write_jsonl(tmp_path / "given.jsonl", [["sea"]] * 25)
    cases = {
        "A label by name needs the default tagger": ["add", published, *named],
        "a precision needs the default tagger": ["rank", published, files / "test.npy", "-p", 0.5],
        "`tags` need the default tagger": [
            "rank", published, files / "test.npy", "--tags", tmp_path / "given.jsonl",
        ],
        "`--tag` needs the default tagger": [
            "explain", published, files / "test.npy", "apple", "--tag", "pie",
        ],
        "`method` needs the default tagger": [
            "rank", published, files / "test.npy", "--method", "priming",
        ],
    }  # fmt: skip
    for message, asked in cases.items():
        code, out, err = run(*asked)
        assert (code, out) == (1, "") and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--mapper", "nu-svr"],
        ["--relatedness", "nearest"],
        ["--components", 8],
        ["--topics", "hdp"],
        ["--epochs", 2],
    ],
)
def test_options_of_the_published_method_are_refused_for_the_default(run, files, tmp_path, words):
    code, out, err = run("fit", tmp_path / "m", "-d", files / "documents.jsonl", *words)
    assert (code, out) == (1, "")
    wanted = f"`{words[0]}` belongs to the published method; add --preset paper."
    assert err == f"polyseme: {wanted}\n"


def test_the_score_of_the_published_method_can_be_chosen(run, files, tmp_path):
    given = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    code, _, err = run("fit", tmp_path / "m", *given, *SMALL, "--relatedness", "density")
    assert code == 0, err
    assert polyseme.load(tmp_path / "m").relatedness == "density"


def test_tables_are_for_people(run, model):
    code, out, _ = run("complete", model, "sea", "-k", 2, "--form", "table")
    assert code == 0 and "goes with sea" in out and "{" not in out


def test_a_split_chooses_documents_and_rows(run, files, tmp_path, world):
    path = tmp_path / "split.jsonl"
    lines = [
        json.dumps({"labels": list(d), "split": "test" if i % 4 == 0 else "train"})
        for i, d in enumerate(world.documents)
    ]
    path.write_text("\n".join(lines))
    words = ["-d", path, "-x", files / "features.npy", "--split", "train", *SMALL]
    code, _, err = run("fit", tmp_path / "m", *words)
    assert code == 0 and "from 225 documents" in err
    code, out, _ = run("evaluate", tmp_path / "m", files / "features.npy", path, "--split", "test")
    assert code == 0 and records(out)[0]["n_items"] == 75
    code, _, err = run("fit", tmp_path / "n", *words[:4], "--split", "dev")
    assert code == 1 and "Unknown split 'dev'" in err and "test, train" in err


def test_a_fit_that_was_interrupted_goes_on(run, files, tmp_path, monkeypatch):
    from polyseme.published.training import Checkpoint

    words = ["-d", files / "semantics.jsonl", *SMALL]
    run("fit", tmp_path / "whole", *words)
    written = Checkpoint.write

    def interrupted(self, trainer, seed):
        written(self, trainer, seed)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "write", interrupted)
        code, out, err = run("fit", tmp_path / "m", *words)
    assert code == 1 and "interrupted" in err and out == ""
    assert (tmp_path / "m.checkpoint").exists() and not (tmp_path / "m").exists()
    code, _, _ = run("fit", tmp_path / "m", *words)
    assert code == 0 and not (tmp_path / "m.checkpoint").exists()
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "m" / path.name).read_bytes() == path.read_bytes()


def test_a_fit_of_the_default_that_was_interrupted_goes_on(
    run, files, tiny_space, tmp_path, monkeypatch
):
    monkeypatch.setattr("polyseme.tagger.ConceptSpace", tiny_space)
    words = ["-d", files / "documents.jsonl", "-x", files / "features.npy"]
    assert run("fit", tmp_path / "whole", *words)[0] == 0
    save = polyseme.training.SpaceTraining.save

    def interrupted(self, path):
        save(self, path)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(polyseme.training.SpaceTraining, "save", interrupted)
        code, out, err = run("fit", tmp_path / "m", *words)
    assert code == 1 and "run the same command again" in err and out == ""
    assert (tmp_path / "m.checkpoint").exists() and not (tmp_path / "m").exists()
    assert run("fit", tmp_path / "m", *words)[0] == 0
    assert not (tmp_path / "m.checkpoint").exists()
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "m" / path.name).read_bytes() == path.read_bytes()


# ------------------------------------------------------------------ bad input


def bad(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


def test_every_mistake_gets_one_sentence_and_exit_code_one(run, files, model, tmp_path):
    nan = np.load(files / "test.npy")
    nan[[2, 4], 0] = np.nan
    np.save(tmp_path / "nan.npy", nan)
    np.save(tmp_path / "narrow.npy", nan[:, :3])
    documents, features = files / "documents.jsonl", files / "features.npy"
    cases = {
        "not found": ["rank", model, tmp_path / "none.npy"],
        "row(s) 2, 4": ["rank", model, tmp_path / "nan.npy"],
        "expecting 5 features": ["rank", model, np_save(tmp_path / "three.npy", np.ones((2, 3)))],
        "There is no row 99": ["explain", model, files / "test.npy", "apple", "--row", 99],
        "Unknown label 'appel'": ["explain", model, files / "test.npy", "appel"],
        "votes of known tag sets are none": [
            "rank", model, files / "test.npy", "--method", "priming", "-p", 0.5,
        ],
        "None of the tags is known": ["complete", model, "zeppelin"],
        "not a polyseme model": ["info", tmp_path],
        "Unknown experiment": ["reproduce", "fig99"],
        "Line 2 of x.jsonl": ["info", bad(tmp_path, "x.jsonl", '{"labels": ["a"]}\n{oops\n')],
        "must be a whole number or 'hdp'": [
            "fit", tmp_path / "m", "-d", documents, "--preset", "paper", "--topics", "many",
        ],
        "rows but there are 25 documents": [
            "fit", tmp_path / "m", "-d", files / "truth.jsonl", "-x", features,
        ],
    }  # fmt: skip
    for message, words in cases.items():
        code, out, err = run(*words)
        assert code == 1, (message, err)
        assert out == ""
        assert message in err
        assert err.startswith("polyseme: ") and err.count("\n") == 1
        assert "Traceback" not in err


def np_save(path: Path, array) -> Path:
    np.save(path, array)
    return path


def test_a_foreign_folder_is_refused_before_training(run, files, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    monkeypatch.setattr(polyseme.ConceptSpace, "fit", lambda *_, **__: pytest.fail("trained"))
    code, _, err = run("fit", tmp_path / "mine", "-d", files / "documents.jsonl")
    assert code == 1 and "Refusing to write a model" in err
    code, _, err = run("fit", files / "truth.jsonl", "-d", files / "documents.jsonl")
    assert code == 1 and "it is a file" in err


def test_an_interrupted_mapping_does_not_lose_the_concept_space(run, files, tmp_path, monkeypatch):
    words = ["-d", files / "documents.jsonl", "-x", files / "features.npy", *SMALL]
    with monkeypatch.context() as patch:
        patch.setattr("polyseme.published.mapping.InstanceMapper.fit", interrupt)
        code, _, err = run("fit", tmp_path / "m", *words)
    assert code == 1 and "run the same command again" in err
    trained = polyseme.published.training.ConceptTrainer._epoch
    with monkeypatch.context() as patch:
        patch.setattr(polyseme.published.training.ConceptTrainer, "_epoch", interrupt)
        assert run("fit", tmp_path / "m", *words)[0] == 0
    assert trained is polyseme.published.training.ConceptTrainer._epoch
    assert not (tmp_path / "m.checkpoint").exists()


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_labels_that_look_like_markup_are_printed_as_they_are(run, world, tiny_embedding, tmp_path):
    documents = [(*document, "[/red]", ":sun:") for document in world.documents[:60]]
    tagger = polyseme.PublishedTagger(embedding=tiny_embedding(), random_state=0)
    tagger.fit(None, documents).save(tmp_path / "m")
    code, out, err = run("complete", tmp_path / "m", "sea", "[bold]", "-k", 40, "-f", "table")
    assert code == 0, err
    assert "[/red]" in out and ":sun:" in out


def test_true_tags_that_the_model_lacks_are_named(run, files, model, tmp_path, world):
    write_jsonl(tmp_path / "t.jsonl", [("sea", "zeppelin")] * len(world.X_test))
    code, out, err = run("evaluate", model, files / "test.npy", tmp_path / "t.jsonl")
    assert code == 0 and out
    assert "1 true labels are not among the model's and are left out: zeppelin" in err
    write_jsonl(tmp_path / "n.jsonl", [("zeppelin",)] * len(world.X_test))
    code, _, err = run("evaluate", model, files / "test.npy", tmp_path / "n.jsonl")
    assert code == 1 and "carries a label that the model knows" in err


def test_a_tampered_model_is_refused(run, files, toy_tagger, tmp_path):
    toy_tagger.save(tmp_path / "m")
    arrays = next((tmp_path / "m").glob("arrays-*"))
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(bytes(content))
    code, _, err = run("rank", tmp_path / "m", files / "test.npy")
    assert code == 1 and "checksum" in err and err.count("\n") == 1


def test_wrong_usage_ends_with_two(run, model):
    assert run("rank")[0] == 2
    assert run("rank", model, "x.npy", "-k", 0)[0] == 2
    assert run("no-such-command")[0] == 2


def test_unknown_tags_are_a_note_on_stderr(run, model):
    code, out, err = run("complete", model, "sea", "zeppelin", "-k", 1)
    assert code == 0 and len(records(out)) == 1
    assert err == "polyseme: note: Unknown tags are passed over: zeppelin.\n"


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


def test_version(run):
    code, out, _ = run("--version")
    assert code == 0 and out.strip() == polyseme.__version__


def test_help_of_every_command_names_its_arguments(run):
    for command in (
        "demo",
        "fit",
        "rank",
        "complete",
        "explain",
        "evaluate",
        "info",
        "reproduce",
        "audit",
    ):
        code, out, _ = run(command, "--help")
        assert code == 0 and "Usage: polyseme" in out
