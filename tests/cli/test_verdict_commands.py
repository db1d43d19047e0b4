"""Commands that ask, learn and undo: what they print, log and refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest

import polyseme
from command_files import column, widest_line, write_npy, write_records
from polyseme.storage.model_file import MODEL_FILE


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
