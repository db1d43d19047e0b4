"""Whatever is passed in, there is an answer or an InputError with one sentence."""

from __future__ import annotations

import datetime
import io
import os
import re
import shlex
import subprocess
import sys
from copy import copy
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp

import polyseme
from polyseme import (
    ConceptSpace,
    LabelCorpus,
    PublishedTagger,
    SpacePlan,
    WordVectors,
    ZeroShotTagger,
    load,
    read_features,
)
from polyseme.base.text import shown
from polyseme.base.validation import InputError
from polyseme.batch.tagging import Tagging
from polyseme.cli.output import Form, emit
from polyseme.feedback.verdict_log import VerdictLog
from polyseme.io import read_table
from polyseme.io.records import write_records
from polyseme.label_changes import suggest_merges
from polyseme.media.keywords import Keywords
from polyseme.media.xmp import read_packet
from polyseme.metrics import evaluate, evaluate_tagger
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.scoring.senses import label_senses

HUGE = 10**30
LONG = "x" * 5000
WRONG = [None, 5, 2.5, True, object(), b"bytes", [1, "a"], [None], {"a": 1}, HUGE, 10**5000]


DOCUMENTS = [["a", "b"], ["b", "c"]] * 5


def ascii_name(value):
    """Return the name of a value in the list of tests."""
    return ascii(shown(value, 20))


def refusal(function, *arguments, **options):
    """Call a function; return the message of its InputError, which must be a sentence, or None."""
    try:
        function(*arguments, **options)
    except InputError as error:
        text = str(error)
        assert "\n" not in text, text
        assert text.endswith((".", "?")), text
        assert 10 < len(text) < 600, text
        return text
    return None


# ---------------------------------------------------------------------- wrong types


# Every argument of a tagger's methods, and the values of a wrong kind that it takes after all.
ARGUMENTS = {
    "complete": lambda tagger, x, label, value: tagger.complete(value),
    "complete, several": lambda tagger, x, label, value: tagger.complete([[label], value]),
    "rank": lambda tagger, x, label, value: tagger.rank(value),
    "rank k": lambda tagger, x, label, value: tagger.rank(x, k=value),
    "rank tags": lambda tagger, x, label, value: tagger.rank(x, tags=value),
    "rank tags of one": lambda tagger, x, label, value: tagger.rank(x, tags=[value]),
    "rank method": lambda tagger, x, label, value: tagger.rank(x, method=value),
    "rank kinds": lambda tagger, x, label, value: tagger.rank(x, kinds=value),
    "predict": lambda tagger, x, label, value: tagger.predict(x, threshold=value),
    "thresholds": lambda tagger, x, label, value: tagger.thresholds(value),
    "explain": lambda tagger, x, label, value: tagger.explain(x, value),
    "explain x": lambda tagger, x, label, value: tagger.explain(value, label),
    "explain k": lambda tagger, x, label, value: tagger.explain(x, label, k=value),
    "senses": lambda tagger, x, label, value: label_senses(tagger.store_, value),
    "add": lambda tagger, x, label, value: tagger.add_documents(value),
    "remove": lambda tagger, x, label, value: tagger.remove_documents(value),
    "add labels": lambda tagger, x, label, value: tagger.add_labels(value, {label: [1.0]}),
    "add vectors": lambda tagger, x, label, value: tagger.add_labels(["new"], value),
    "remove labels": lambda tagger, x, label, value: tagger.remove_labels(value),
    "block": lambda tagger, x, label, value: tagger.block(value),
    "rename": lambda tagger, x, label, value: tagger.rename(value, "b"),
    "rename to": lambda tagger, x, label, value: tagger.rename(label, value),
    "merge": lambda tagger, x, label, value: tagger.merge(value, label),
    "merge pairs": lambda tagger, x, label, value: tagger.merge([(label, value)]),
    "similar": lambda tagger, x, label, value: suggest_merges(tagger, most=value),
    "similar vectors": lambda tagger, x, label, value: suggest_merges(tagger, value),
    "evaluate": lambda tagger, x, label, value: evaluate_tagger(tagger, x, value),
    "evaluate k": lambda tagger, x, label, value: evaluate_tagger(tagger, x, [[label]], k=value),
}


def accepted_arguments(value):
    """Return the arguments for which a value may be of the right kind."""
    accepted = {"rank kinds", "rank tags", "explain", "add", "remove", "remove labels", "block"}
    accepted |= {"add labels", "complete", "rename to"}
    if value is None:
        accepted |= {"explain x", "similar vectors"}
    if value == 5:
        accepted |= {"rank k", "explain k", "similar", "evaluate k"}
    if value in ([], [[]]):
        accepted |= {"rank tags of one", "evaluate"}
    return accepted


@pytest.mark.parametrize("value", [*WRONG, "", LONG, "a\0b", "\ud800", [], [[]]], ids=ascii_name)
def test_a_tagger_refuses_arguments_of_a_wrong_kind_and_stays_as_it_was(own_tagger, value):
    x = np.zeros((1, own_tagger.n_features_in_))
    label = str(own_tagger.classes_[0])
    accepted = accepted_arguments(value)
    for name, call in ARGUMENTS.items():
        message = refusal(call, own_tagger, x, label, value)
        if name not in accepted:
            assert message is not None, name
    assert refusal(own_tagger.rank, x) is None


@pytest.mark.parametrize(
    "value", [5, 2.5, None, b"model", ["a"], "a\0b", LONG, "\ud800", HUGE], ids=ascii_name
)
def test_a_wrong_path_of_a_model_is_refused(toy_tagger, value):
    assert refusal(load, value)
    assert refusal(toy_tagger.save, value)


# Every component of an estimator, and the values among those below that it takes.
COMPONENTS = {
    "space": (lambda value: ZeroShotTagger(space=value), ()),
    "features": (lambda value: ZeroShotTagger(features=value), ()),
    "n_validations": (lambda value: ZeroShotTagger(n_validations=value), (5,)),
    "plan": (lambda value: ZeroShotTagger(space=ConceptSpace(plan=value)), ()),
    "n_folds": (lambda value: ZeroShotTagger(space=ConceptSpace(n_folds=value)), (5,)),
    "context": (lambda value: ZeroShotTagger(space=ConceptSpace(context=value)), ()),
    "embedding": (lambda value: PublishedTagger(embedding=value), ()),
    "mapper": (lambda value: PublishedTagger(mapper=value), ()),
    "hidden_sizes": (
        lambda value: PublishedTagger(embedding=ConceptEmbedding(hidden_sizes=value)),
        ([],),
    ),
    "training": (lambda value: PublishedTagger(embedding=ConceptEmbedding(training=value)), ()),
    "label_descriptor": (
        lambda value: PublishedTagger(embedding=ConceptEmbedding(label_descriptor=value)),
        (),
    ),
    "context_descriptor": (
        lambda value: PublishedTagger(embedding=ConceptEmbedding(context_descriptor=value)),
        (),
    ),
    "kind": (lambda value: InstanceMapper(kind=value), ()),
    "gamma": (lambda value: InstanceMapper(gamma=value), (5, HUGE)),
    "memory_mb": (lambda value: InstanceMapper(memory_mb=value), (5, HUGE)),
}


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_of_a_wrong_type_is_refused_before_anything_is_learned(component):
    make_estimator, accepted = COMPONENTS[component]
    X = np.zeros((10, 2))
    for value in (5, "space", [], {"a": 1}, object(), HUGE):
        if value not in accepted:
            estimator = make_estimator(value)
            y = X if isinstance(estimator, InstanceMapper) else DOCUMENTS
            assert refusal(estimator.fit, X, y), value


@pytest.mark.parametrize(
    "value", [*WRONG, [[3]], [np.array(3)], np.eye(3), [10**5000]], ids=ascii_name
)
def test_verdicts_lists_and_files_of_a_wrong_type_are_refused(own_tagger, value):
    x = np.zeros((1, own_tagger.n_features_in_))
    not_none = 5 if value is None else value
    not_true = 1 if value is True else value
    spaces = [ConceptSpace(device=not_none), ConceptSpace(plan=SpacePlan(dropout=value))]
    if not isinstance(value, np.ndarray):
        spaces.append(ConceptSpace(checkpoint=value or 5))
    assert refusal(own_tagger.undo, value)
    assert refusal(own_tagger.learn, value, x)
    assert refusal(own_tagger.learn, [(value, "sea", 1)], x)
    assert refusal(own_tagger.learn, [("0", "sea", not_true)], x)
    assert refusal(own_tagger.encode, x, ids=not_none)
    assert refusal(own_tagger.ask, x, strategy=value)
    assert refusal(LabelCorpus.from_documents, value)
    assert refusal(read_features, value)
    assert refusal(WordVectors.read, value)
    assert refusal(VerdictLog, not_none)
    for space in spaces:
        assert refusal(space.check_parameters)
    assert refusal(evaluate, [[1, 2], [value]], [[1, 0], [0, 1]])


@pytest.mark.parametrize("n_sets", [1, 3])
def test_tag_sets_that_are_not_one_for_each_item_are_refused(toy_tagger, world, n_sets):
    with pytest.raises(InputError, match=f"`tags` has {n_sets} tag sets for 2 items"):
        toy_tagger.ask(world.X_test[:2], tags=[["sea"]] * n_sets)


@pytest.mark.parametrize("value", [5, [], object(), HUGE, "a\0", LONG], ids=ascii_name)
def test_a_wrong_vocabulary_or_checkpoint_is_refused(value):
    assert refusal(ZeroShotTagger(vocabulary=value).fit, None, DOCUMENTS)
    assert refusal(ZeroShotTagger(checkpoint=value).fit, None, DOCUMENTS)


@pytest.mark.parametrize(
    ("tagger", "parameter"),
    [
        (PublishedTagger(embedding=ConceptEmbedding(n_components=2**31 - 1)), "n_components"),
        (ZeroShotTagger(space=ConceptSpace(plan=SpacePlan(hidden=2**30))), "hidden"),
    ],
    ids=["n_components", "hidden"],
)
def test_a_size_beyond_the_memory_is_refused_with_the_memory_it_needs(tagger, parameter):
    X = np.zeros((10, 2))
    message = refusal(tagger.fit, X, DOCUMENTS)
    assert "GB of memory" in message
    assert parameter in message


# ---------------------------------------------------------------------- labels and names


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ("a\0", "NUL"),
        ("\0", "NUL"),
        ("\ud800 half", "half of a character"),
        ("x" * 200_000, "200000 characters long"),
    ],
    ids=["after", "alone", "half", "long"],
)
def test_labels_that_no_file_can_hold_are_refused(label, complaint):
    assert complaint in refusal(LabelCorpus.from_documents, [["a", label], ["a", "b"]])
    matrix = np.eye(2, dtype=int)
    assert complaint in refusal(LabelCorpus.from_indicator, matrix, ["a", label])


@pytest.mark.parametrize("name", ["a\0", "\udcff.jpg"])
def test_ids_that_no_file_can_hold_are_refused(name):
    assert refusal(LabelCorpus.from_documents, [["a"], ["b"]], ids=["b", name])


def test_labels_that_are_not_normalized_may_differ_in_an_invisible_character():
    corpus = LabelCorpus.from_documents([["a", "a\u200b"], ["a"]], normalize=False)
    assert len(corpus.labels) == 2


def test_a_tagger_that_is_not_fitted_completes_nothing():
    tagger = ZeroShotTagger(normalize_labels=False, random_state=0)
    assert refusal(tagger.complete, ["a"])


def test_a_long_label_does_not_make_every_cell_of_a_table_long(toy_tagger, most_bytes):
    # Of 1,000 letters, 4 bytes each, in every cell it would be 8 MB.
    label = "x" * 1000
    tagger = copy(toy_tagger)
    tagger.indicator_ = None
    store = toy_tagger.store_.renamed(toy_tagger.store_.labels[0], label)
    tagger._update(store_=store)
    x = np.zeros((200, tagger.n_features_in_))
    ranking, peak = most_bytes(tagger.rank, x, 10)
    labels, _ = ranking
    assert labels.shape == (200, 10)
    assert label in tagger.classes_
    _, usual_peak = most_bytes(toy_tagger.rank, x, 10)
    assert peak < usual_peak + 4_000_000


# ---------------------------------------------------------------------- wrong numbers


def test_times_are_no_features(toy_tagger):
    n_features = toy_tagger.n_features_in_
    days = np.full((2, n_features), np.datetime64("2020-01-01"))
    dates = [[datetime.date(2020, 1, 1)] * n_features]
    for table in (days, days - days[0, 0], dates):
        assert "`X` of `ZeroShotTagger`" in refusal(toy_tagger.rank, table)


def test_masked_arrays_are_refused(toy_tagger):
    n_features = toy_tagger.n_features_in_
    masked = np.ma.masked_array(np.zeros((2, n_features)), np.eye(2, n_features))
    label = str(toy_tagger.classes_[0])
    assert "masked" in refusal(toy_tagger.rank, masked)
    assert "masked" in refusal(toy_tagger.explain, masked[0], label)
    assert "masked" in refusal(evaluate, np.eye(2), np.ma.masked_array(np.eye(2), True))


def test_features_whose_squares_overflow_are_refused(toy_tagger):
    X = np.full((1, toy_tagger.n_features_in_), 1e308)
    assert "scale them first" in refusal(toy_tagger.rank, X)
    assert "scale them first" in refusal(toy_tagger.rank, sp.csr_matrix(X))
    X = np.full((4, 2), -1e200)
    assert "scale them first" in refusal(ZeroShotTagger().fit, X, [["a"], ["b"]] * 2)


def test_large_features_have_finite_scores(toy_tagger):
    X = np.full((1, toy_tagger.n_features_in_), 1e100)
    _, scores = toy_tagger.rank(X)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(("infinite", "finite"), [(np.inf, 9), (-np.inf, -9)])
def test_infinite_scores_are_ranked_first_or_last(infinite, finite):
    truth = np.array([[1, 0, 1], [0, 1, 0]])
    scores = np.array([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
    scores[0, 0] = finite
    expected = evaluate(truth, scores)
    scores[0, 0] = infinite
    with np.errstate(all="raise"):
        measures = evaluate(truth, scores)
    assert measures == expected


@pytest.mark.parametrize("rows", [[5], [-6], [0.5], ["a"], None, [[0]], HUGE, [HUGE], 2**40])
def test_rows_out_of_range_are_refused(rows):
    corpus = LabelCorpus.from_documents([["a"], ["b"], ["a", "b"]])
    assert refusal(corpus.select, rows)
    if isinstance(rows, int):
        assert refusal(corpus.document, rows)


@pytest.mark.parametrize("seed", [HUGE, 2**64])
def test_a_seed_may_be_of_any_size(seed):
    assert refusal(ZeroShotTagger(random_state=seed).fit, None, DOCUMENTS) is None


@pytest.mark.parametrize("seed", [-1, 2.5, "a", [1]])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    assert refusal(ZeroShotTagger(random_state=seed).fit, None, DOCUMENTS)


# ---------------------------------------------------------------------- the command


def run_in_shell(folder, line):
    """Run a line of the shell in which $POLYSEME is the command."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(polyseme.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "POLYSEME": f"{sys.executable} -m polyseme",
    }
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(toy_tagger, tmp_path_factory):
    """A folder with a model, features and documents."""
    folder = tmp_path_factory.mktemp("command")
    toy_tagger.save(folder / "model")
    np.save(folder / "x.npy", np.zeros((400, toy_tagger.n_features_in_)))
    (folder / "d.jsonl").write_text('["a", "b"]\n["b", "c"]\n' * 8)
    return folder


def check_one_line(process):
    """Check that a command printed one line and succeeded."""
    assert process.returncode == 0
    assert process.stdout.count("\n") == 1
    assert process.stderr == ""


def test_a_reader_that_leaves_is_no_error(folder):
    check_one_line(run_in_shell(folder, "$POLYSEME rank model x.npy --form jsonl | head -1"))


def test_a_reader_may_leave_commands_of_other_packages_too(folder):
    (folder / "chatter.py").write_text(
        "import typer\n"
        "from polyseme.cli import app, main\n"
        "@app.command()\n"
        "def chatter():\n"
        "    for _ in range(10_000):\n"
        "        typer.echo('x' * 100)\n"
        "main()\n"
    )
    chatter = f"{shlex.quote(sys.executable)} chatter.py chatter"
    check_one_line(run_in_shell(folder, f"{chatter} | head -1"))
    process = run_in_shell(folder, f"{chatter} | wc -l")
    assert process.returncode == 0
    assert process.stdout.strip() == "10000"


@pytest.mark.parametrize("ending", ["2>&-", "2>/dev/full", "2> >(true)"])
def test_a_closed_or_full_standard_error_is_no_error(folder, ending):
    process = run_in_shell(folder, f"$POLYSEME block model apple --out other {ending}")
    assert process.returncode == 0, process.stderr
    assert process.stdout == "other\n"
    tagger = load(folder / "other")
    assert "apple" in tagger.vocabulary_.blocked


def test_a_full_disk_is_named(folder):
    process = run_in_shell(folder, "$POLYSEME complete model apple >/dev/full")
    assert "space left" in process.stderr


@pytest.mark.parametrize(("ending", "n_lines"), [("", 1), ("2>/dev/full", 0)])
@pytest.mark.parametrize("words", ["complete model apple", "rank --help", "rank model nowhere.npy"])
def test_a_full_disk_is_exit_code_1_and_one_sentence(folder, words, ending, n_lines):
    line = f"env -u PYTHONUNBUFFERED $POLYSEME {words} >/dev/full {ending}"
    process = run_in_shell(folder, line)
    assert process.returncode == 1
    assert process.stderr.count("\n") == n_lines
    assert "Errno" not in process.stderr


class Panic(BaseException):
    """An error as libraries in Rust raise it."""


@pytest.mark.parametrize(
    "error", [Panic("PyObject pointer is null"), ImportError("x: failed to map segment")]
)
def test_an_error_of_a_library_without_memory_is_one_sentence(run, folder, monkeypatch, error):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(polyseme, "load", Mock(side_effect=error))
    code, stdout, stderr = run("info", "model")
    assert code == 1
    assert stdout == ""
    assert stderr.count("\n") == 1
    assert "not enough memory" in stderr


@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.npy"])
def test_a_pipe_is_refused_at_once(run, folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / name)
    code, stdout, stderr = run("rank", folder / "model", name)
    assert code == 1
    assert stdout == ""
    assert "is a pipe or a device" in stderr


def check_refused(result):
    """Check that a command failed with a sentence; return it."""
    code, stdout, stderr = result
    sentence = stderr.splitlines()[-1]
    assert code == 1
    assert stdout == ""
    assert sentence.startswith("polyseme: ")
    assert "unexpected" not in sentence
    return sentence


@pytest.mark.parametrize(
    "words",
    [
        f"explain model x.npy apple --row {LONG.replace('x', '9')}",
        f"learn model --yes apple {LONG.replace('x', '9')} --features x.npy",
        f"fit new -d d.jsonl --preset paper --topics {LONG.replace('x', '9')}",
        f"fit {'x/' * 2000} -d d.jsonl",
        "rank model x.npy --top 1000000000000000000000000000000",
        "complete model apple --top 99999999999999999999",
        "fit new -d d.jsonl --preset paper --components 1000000000000",
        "fit new -d d.jsonl --preset paper --epochs 1000000000000",
        "fit new -d d.jsonl --preset paper --topics 1000000000000",
        "fit new -d d.jsonl --validations 1000000000000",
        f"info {'x' * 300}",
        f"info {'x/' * 3000}",
        "explain model x.npy apple --row 100000000000000000000000",
        f"complete model {'y' * 5000}",
    ],
)
def test_numbers_and_names_of_any_size_get_one_sentence(run, folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    result = run(*words.split())
    sentence = check_refused(result)
    assert len(sentence) < 700
    assert not Path("new").exists()


@pytest.mark.parametrize(
    "words",
    [
        "fit new -d loop",
        "fit new -d d.jsonl -x loop",
        "fit loop -d d.jsonl",
        "info loop",
        "rank model loop",
        "rank loop x.npy",
        "rank model x.npy --out loop",
        "ask model loop",
        "learn model loop",
        "add model loop",
        "evaluate model loop d.jsonl",
        "complete loop a",
        "extract image loop --out new",
        "extract image . --out loop",
        "tag model loop",
        "serve loop",
        "serve model --items loop",
        "serve model --tokens loop",
        "token loop me",
    ],
)
def test_a_loop_of_links_gets_one_sentence_in_every_command(run, folder, monkeypatch, words):
    if "serve" in words or "token" in words:
        pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    monkeypatch.chdir(folder)
    for name, target in (("loop", "back"), ("back", "loop")):
        if not os.path.lexists(name):
            Path(name).symlink_to(target)
    result = run(*words.split())
    sentence = check_refused(result)
    assert "Errno" not in sentence
    assert not Path("new").exists()


# ---------------------------------------------------------------------- texts of strangers


class Terminal(io.StringIO):
    def isatty(self):
        return True


def print_to_terminal(monkeypatch, record, form):
    """Return what is printed of a record to a terminal."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    emit([record], form)
    return terminal.getvalue()


@pytest.mark.parametrize("form", [Form.table, Form.csv])
def test_labels_cannot_control_a_terminal(monkeypatch, form):
    record = {"label": "\x1b]0;owned\x07 \x9b31m \u202etxt", "score": -0.5}
    text = print_to_terminal(monkeypatch, record, form)
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "owned" in text
    assert not set("\x1b\x07\x9b\u202e") & set(without_colours)


def test_labels_in_csv_are_no_formulas_and_numbers_stay_numbers(monkeypatch):
    text = print_to_terminal(monkeypatch, {"label": "=1+1", "score": -0.5}, Form.csv)
    assert "'=1+1" in text
    assert ",-0.5" in text


@pytest.mark.parametrize(
    "label", ["=1+1", "@cmd", "+", "-x", "'=1", "''-a", "plain", "'quoted'", "-1", "\uff1dx"]
)
def test_labels_in_csv_are_read_back_as_they_were(tmp_path, label):
    file = tmp_path / "tags.csv"
    records = [{"id": "a", "tags": [label, "b"]}, {"id": "b", "tags": label}]
    with file.open("w", newline="", encoding="utf-8") as stream:
        write_records(records, stream, "csv")
    assert not re.search(r"(^|,)[=@+]", file.read_text("utf-8"), re.MULTILINE)
    corpus = LabelCorpus.read(file, delimiter=";")
    assert set(corpus.labels) == {label, "b"}


def test_a_file_whose_name_is_not_unicode_gets_a_sidecar(tmp_path, monkeypatch):
    file = tmp_path / "caf\udce9.jpg"
    try:
        file.write_bytes(b"x")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    tagging = Tagging.__new__(Tagging)
    tagging.kind = "image"
    tagging.skipped = []
    tagging.files = []
    record = {"file": "caf\\xe9.jpg", "labels": ["sea"], "kinds": ["seen"], "scores": [0.9]}
    monkeypatch.setattr(tagging, "_tag_files", lambda: iter([(file, record)]))
    monkeypatch.setattr("polyseme.batch.tagging.keywords_of", lambda *_: Keywords([], [], []))
    (report,) = tagging.sidecars()
    assert report["added"] == ["sea"]
    assert report["sidecar"].isprintable()
    (sidecar,) = set(tmp_path.iterdir()) - {file}
    assert sidecar.name.startswith("caf\udce9")
    assert sidecar.suffix == ".xmp"


def test_text_of_a_file_cannot_break_a_sentence_or_control_a_terminal():
    error = InputError("The file says 'a\nb\x1b[2J\u202e\ud800'.")
    assert str(error) == r"The file says 'a\nb\x1b[2J\u202e\ud800'."


def test_errors_of_the_xml_library_are_in_one_line():
    with pytest.raises(InputError, match=r"^its block is not well-formed XML \([^\n]*\); repair"):
        read_packet(b"<a>\n\n\n<\x00/a>", "its block")


def test_errors_of_the_parquet_library_are_in_one_line(tmp_path):
    # A type of field that the library names by the byte itself.
    file = tmp_path / "x.parquet"
    file.write_bytes(b"PAR1\x1f\x01\x00\x00\x00PAR1")
    message = r"^x.parquet is not readable as Parquet \([ -~]*\); write"
    with pytest.raises(InputError, match=message):
        read_table(file)
