"""Whatever is passed: an InputError with one sentence, or an answer; never anything else."""

from __future__ import annotations

import datetime
import io
import os
import re
import shlex
import subprocess
import sys
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
from polyseme._text import shown
from polyseme._validation import InputError
from polyseme.cli.output import Form, emit
from polyseme.cluster.media import Tagging
from polyseme.features.keywords import Keywords
from polyseme.io import read_table
from polyseme.io.records import write_records
from polyseme.io.xmp import read_packet
from polyseme.metrics import evaluate, evaluate_tagger
from polyseme.published.embedding import ConceptEmbedding
from polyseme.published.mapping import InstanceMapper
from polyseme.senses import label_senses
from polyseme.verdicts import VerdictLog
from polyseme.vocabulary import similar_labels

HUGE = 10**30
LONG = "x" * 5000
WRONG = [None, 5, 2.5, True, object(), b"bytes", [1, "a"], [None], {"a": 1}, HUGE, 10**5000]


def ascii_name(value):
    """Name a value in the list of tests."""
    return ascii(shown(value, 20))


def sentence(call):
    """Call something; give what its InputError says, which must be a sentence, or nothing."""
    try:
        call()
    except InputError as error:
        text = str(error)
        assert "\n" not in text and text.endswith((".", "?")) and 10 < len(text) < 600, text
        return text
    return None


# ---------------------------------------------------------------------- wrong types


@pytest.mark.parametrize("value", [*WRONG, "", LONG, "a\0b", "\ud800", [], [[]]], ids=ascii_name)
def test_a_tagger_that_is_asked_anything_answers_with_a_sentence(own_tagger, value):
    tagger, x = own_tagger, np.zeros((1, own_tagger.n_features_in_))
    label = str(tagger.classes_[0])
    calls = {
        "complete": lambda: tagger.complete(value),
        "complete, several": lambda: tagger.complete([[label], value]),
        "rank": lambda: tagger.rank(value),
        "rank k": lambda: tagger.rank(x, k=value),
        "rank tags": lambda: tagger.rank(x, tags=value),
        "rank tags of one": lambda: tagger.rank(x, tags=[value]),
        "rank method": lambda: tagger.rank(x, method=value),
        "rank kinds": lambda: tagger.rank(x, kinds=value),
        "predict": lambda: tagger.predict(x, threshold=value),
        "thresholds": lambda: tagger.thresholds(value),
        "explain": lambda: tagger.explain(x, value),
        "explain x": lambda: tagger.explain(value, label),
        "explain k": lambda: tagger.explain(x, label, k=value),
        "senses": lambda: label_senses(tagger.store_, value),
        "add": lambda: tagger.add_documents(value),
        "remove": lambda: tagger.remove_documents(value),
        "add labels": lambda: tagger.add_labels(value, {label: [1.0]}),
        "add vectors": lambda: tagger.add_labels(["new"], value),
        "remove labels": lambda: tagger.remove_labels(value),
        "block": lambda: tagger.block(value),
        "rename": lambda: tagger.rename(value, "b"),
        "rename to": lambda: tagger.rename(label, value),
        "merge": lambda: tagger.merge(value, label),
        "similar": lambda: similar_labels(tagger.store_.matrix, tagger.store_.labels, value),
        "evaluate": lambda: evaluate_tagger(tagger, x, value),
        "evaluate k": lambda: evaluate_tagger(tagger, x, [[label]], k=value),
    }
    # What is a value of the right kind after all.
    good = {"rank kinds", "rank tags", "explain", "add", "remove", "remove labels", "block"}
    good |= {"add labels", "complete", "rename to"}
    if value == 5:
        good |= {"rank k", "explain k", "similar", "evaluate k"}
    if value in ([], [[]]):
        good |= {"rank tags of one", "evaluate"}
    for name, call in calls.items():
        told = sentence(call)
        if name not in good and not (value is None and name in ("rank tags", "explain x")):
            assert told is not None, name
    assert sentence(lambda: tagger.rank(x)) is None, "it is as it was"


@pytest.mark.parametrize(
    "value", [5, 2.5, None, b"model", ["a"], "a\0b", LONG, "\ud800", HUGE], ids=ascii_name
)
def test_a_place_that_is_none_is_refused(toy_tagger, value):
    assert sentence(lambda: load(value))
    assert sentence(lambda: toy_tagger.save(value))


@pytest.mark.parametrize("value", [5, "space", [], {"a": 1}, object(), HUGE])
def test_components_of_a_wrong_type_are_refused_before_anything_is_learned(world, value):
    documents = [["a", "b"], ["b", "c"]] * 5
    X = np.zeros((10, 2))
    for made in (
        ZeroShotTagger(space=value),
        ZeroShotTagger(features=value),
        ZeroShotTagger(n_validations=value) if value != 5 else None,
        ZeroShotTagger(space=ConceptSpace(plan=value)),
        ZeroShotTagger(space=ConceptSpace(n_folds=value)) if value != 5 else None,
        ZeroShotTagger(space=ConceptSpace(context=value)),
        PublishedTagger(embedding=value),
        PublishedTagger(mapper=value),
        PublishedTagger(embedding=ConceptEmbedding(hidden_sizes=value)) if value != [] else None,
        PublishedTagger(embedding=ConceptEmbedding(training=value)),
        PublishedTagger(embedding=ConceptEmbedding(label_descriptor=value)),
        PublishedTagger(embedding=ConceptEmbedding(context_descriptor=value)),
        InstanceMapper(kind=value),
        InstanceMapper(gamma=value) if value not in (5, HUGE) else None,
        InstanceMapper(memory_mb=value) if value not in (5, HUGE) else None,
    ):
        if made is not None:
            y = np.zeros((10, 2)) if isinstance(made, InstanceMapper) else documents
            assert sentence(lambda made=made, y=y: made.fit(X, y)), made


@pytest.mark.parametrize(
    "value", [*WRONG, [[3]], [np.array(3)], np.eye(3), [10**5000]], ids=ascii_name
)
def test_logs_lists_and_files_of_a_wrong_type_are_refused(own_tagger, value):
    x = np.zeros((1, own_tagger.n_features_in_))
    plan = SpacePlan(dropout=value)
    calls = {
        "undo": lambda: own_tagger.undo(value),
        "learn": lambda: own_tagger.learn(value, x),
        "item": lambda: own_tagger.learn([(value, "sea", 1)], x),
        "answer": lambda: own_tagger.learn([("0", "sea", value if value is not True else 1)], x),
        "ids": lambda: own_tagger.encode(x, ids=5 if value is None else value),
        "strategy": lambda: own_tagger.ask(x, strategy=value),
        "documents": lambda: LabelCorpus.from_documents(value),
        "features": lambda: read_features(value),
        "words": lambda: WordVectors.read(value),
        "log": lambda: VerdictLog(value) if value is not None else VerdictLog(5),
        "device": lambda: ConceptSpace(device=value if value is not None else 5).check_parameters(),
        "checkpoint": lambda: ConceptSpace(checkpoint=value or 5).check_parameters(),
        "plan": lambda: ConceptSpace(plan=plan).check_parameters(),
        "metrics": lambda: evaluate([[1, 2], [value]], [[1, 0], [0, 1]]),
    }
    calls.pop("checkpoint" if isinstance(value, np.ndarray) else None, None)
    for name, call in calls.items():
        assert sentence(call), name


def test_tag_sets_that_are_not_one_for_each_item_are_refused(toy_tagger, world):
    for n in (1, 3):
        with pytest.raises(InputError, match=f"`tags` has {n} collections for 2 instances"):
            toy_tagger.ask(world.X_test[:2], tags=[["sea"]] * n)


@pytest.mark.parametrize("value", [5, [], object(), HUGE, "a\0", LONG], ids=ascii_name)
def test_a_vocabulary_or_checkpoint_that_is_none_is_refused(value):
    documents = [["a", "b"], ["b", "c"]] * 5
    assert sentence(lambda: ZeroShotTagger(vocabulary=value).fit(None, documents))
    assert sentence(lambda: ZeroShotTagger(checkpoint=value).fit(None, documents))


def test_numbers_that_need_more_memory_than_there_is_are_refused_with_the_memory():
    documents = [["a", "b"], ["b", "c"]] * 5
    X = np.zeros((10, 2))
    embedding = ConceptEmbedding(n_components=2**31 - 1)
    told = sentence(lambda: PublishedTagger(embedding=embedding).fit(X, documents))
    assert "GB of memory" in told and "n_components" in told
    space = ConceptSpace(plan=polyseme.SpacePlan(hidden=2**30))
    told = sentence(lambda: ZeroShotTagger(space=space).fit(X, documents))
    assert "GB of memory" in told and "hidden" in told


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
def test_labels_that_no_file_could_hold_are_refused(label, complaint):
    documents = [["a", label], ["a", "b"]]
    assert complaint in sentence(lambda: LabelCorpus.from_documents(documents))
    matrix = np.eye(2, dtype=int)
    assert complaint in sentence(lambda: LabelCorpus.from_indicator(matrix, ["a", label]))


def test_ids_that_no_file_could_hold_are_refused():
    documents = [["a"], ["b"]]
    for name in ("a\0", "\udcff.jpg"):
        assert sentence(lambda name=name: LabelCorpus.from_documents(documents, ids=["b", name]))


def test_labels_are_kept_apart_to_the_last_letter():
    corpus = LabelCorpus.from_documents([["a", "a\u200b"], ["a"]], normalize=False)
    tagger = ZeroShotTagger(normalize_labels=False, random_state=0)
    assert len(corpus.labels) == 2 and sentence(lambda: tagger.complete(["a"]))


def test_a_long_label_makes_no_table_of_its_length(toy_tagger, most_bytes):
    # Of 1,000 letters, 4 bytes each, in every cell it would be 8 MB.
    tagger = toy_tagger
    long = "x" * 1000
    from copy import copy

    named = copy(tagger)
    named.indicator_ = None
    named._update(store_=tagger.store_.renamed(tagger.store_.labels[0], long))
    x = np.zeros((200, tagger.n_features_in_))
    (labels, _), held = most_bytes(named.rank, x, 10)
    assert labels.shape == (200, 10) and long in named.classes_
    plain = most_bytes(tagger.rank, x, 10)[1]
    assert held < plain + 4_000_000


# ---------------------------------------------------------------------- numbers that are none


def test_times_and_masks_are_no_features(toy_tagger):
    n = toy_tagger.n_features_in_
    days = np.full((2, n), np.datetime64("2020-01-01"))
    for table in (days, days - days[0, 0], [[datetime.date(2020, 1, 1)] * n]):
        assert "`X` of `ZeroShotTagger`" in sentence(lambda table=table: toy_tagger.rank(table))
    masked = np.ma.masked_array(np.zeros((2, n)), np.eye(2, n))
    assert "masked" in sentence(lambda: toy_tagger.rank(masked))
    assert "masked" in sentence(lambda: toy_tagger.explain(masked[0], str(toy_tagger.classes_[0])))
    assert "masked" in sentence(lambda: evaluate(np.eye(2), np.ma.masked_array(np.eye(2), True)))


def test_features_so_large_that_they_have_no_squares_are_refused(toy_tagger, world):
    X = np.full((1, toy_tagger.n_features_in_), 1e308)
    assert "scale them first" in sentence(lambda: toy_tagger.rank(X))
    assert "scale them first" in sentence(lambda: toy_tagger.rank(sp.csr_matrix(X)))
    assert "scale them first" in sentence(
        lambda: ZeroShotTagger().fit(np.full((4, 2), -1e200), [["a"], ["b"]] * 2)
    )
    largest = np.full((1, toy_tagger.n_features_in_), 1e100)
    assert np.isfinite(toy_tagger.rank(largest)[1]).all()


@pytest.mark.parametrize("infinite", [np.inf, -np.inf])
def test_infinite_scores_are_ranked_first_or_last(infinite):
    truth, scores = np.array([[1, 0, 1], [0, 1, 0]]), np.array([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
    wild = scores.copy()
    wild[0, 0] = infinite
    tame = scores.copy()
    tame[0, 0] = np.sign(infinite) * 9
    with np.errstate(all="raise"):
        assert evaluate(truth, wild) == evaluate(truth, tame)


@pytest.mark.parametrize("rows", [[5], [-6], [0.5], ["a"], None, [[0]], HUGE, [HUGE], 2**40])
def test_rows_that_are_not_there_are_refused(rows):
    corpus = LabelCorpus.from_documents([["a"], ["b"], ["a", "b"]])
    assert sentence(lambda: corpus.select(rows))
    if isinstance(rows, int):
        assert sentence(lambda: corpus.document(rows))


@pytest.mark.parametrize("seed", [HUGE, 2**64, -1, 2.5, "a", [1]])
def test_a_seed_is_a_whole_number_of_any_size(seed):
    tagger = ZeroShotTagger(random_state=seed)
    told = sentence(lambda: tagger.fit(None, [["a", "b"], ["b", "c"]] * 5))
    assert (told is None) == (seed in (HUGE, 2**64))


# ---------------------------------------------------------------------- the command


def polyseme_command(folder, shell, **surroundings):
    """Run a line of the shell in which $POLYSEME is the command."""
    source = str(Path(polyseme.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    environment["POLYSEME"] = f"{sys.executable} -m polyseme"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {shell}"],
        cwd=folder,
        env=environment | surroundings,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(toy_tagger, tmp_path_factory):
    """A folder with a model and features."""
    place = tmp_path_factory.mktemp("command")
    toy_tagger.save(place / "model")
    np.save(place / "x.npy", np.zeros((400, toy_tagger.n_features_in_)))
    return place


def test_a_reader_that_goes_away_is_no_error(folder):
    done = polyseme_command(folder, "$POLYSEME rank model x.npy --form jsonl | head -1")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


def test_a_reader_may_leave_commands_of_other_packages_as_well(folder):
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
    done = polyseme_command(folder, f"{chatter} | head -1")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    done = polyseme_command(folder, f"{chatter} | wc -l")
    assert (done.returncode, done.stdout.strip()) == (0, "10000")


@pytest.mark.parametrize("ending", ["2>&-", "2>/dev/full", "2> >(true)"])
def test_nobody_need_read_what_is_only_told(folder, ending):
    label = "apple"
    done = polyseme_command(folder, f"$POLYSEME block model {label} --out other {ending}")
    assert (done.returncode, done.stdout) == (0, "other\n"), done.stderr
    assert "apple" in load(folder / "other").vocabulary_.blocked


def test_output_that_cannot_be_written_is_one_sentence(folder):
    done = polyseme_command(folder, "$POLYSEME complete model apple >/dev/full")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "space left" in done.stderr


@pytest.mark.parametrize("ending", ["", "2>/dev/full"])
@pytest.mark.parametrize("words", ["complete model apple", "rank --help", "rank model nowhere.npy"])
def test_a_disk_that_is_full_is_exit_code_1_and_one_sentence(folder, words, ending):
    done = polyseme_command(
        folder, f"env -u PYTHONUNBUFFERED $POLYSEME {words} >/dev/full {ending}"
    )
    assert done.returncode == 1 and done.stderr.count("\n") == (not ending)
    assert "Errno" not in done.stderr


def test_what_a_library_says_without_memory_is_one_sentence(run, folder, monkeypatch):
    class Panic(BaseException):
        """As what is written in Rust raises it."""

    monkeypatch.chdir(folder)
    for error in (Panic("PyObject pointer is null"), ImportError("x: failed to map segment")):
        monkeypatch.setattr(polyseme, "load", Mock(side_effect=error))
        code, out, err = run("info", "model")
        assert (code, out, err.count("\n")) == (1, "", 1) and "not enough memory" in err


@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.npy"])
def test_pipes_are_not_waited_for(run, folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / name)
    code, out, err = run("rank", folder / "model", name)
    assert (code, out) == (1, "") and "is a pipe or a device" in err


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
    (folder / "d.jsonl").write_text('["a", "b"]\n["b", "c"]\n' * 8)
    monkeypatch.chdir(folder)
    code, out, err = run(*words.split())
    told = err.splitlines()[-1]
    assert (code, out) == (1, "") and told.startswith("polyseme: ") and "unexpected" not in told
    assert len(told) < 700 and not (folder / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        *("fit new -d loop", "fit new -d d.jsonl -x loop", "fit loop -d d.jsonl", "info loop"),
        *("rank model loop", "rank loop x.npy", "rank model x.npy --out loop", "ask model loop"),
        *("learn model loop", "add model loop", "evaluate model loop d.jsonl", "complete loop a"),
        *("extract image loop --out new", "extract image . --out loop", "tag model loop"),
        *("serve loop", "serve model --items loop", "serve model --tokens loop", "token loop me"),
    ],
)
def test_a_loop_of_links_gets_one_sentence_wherever_it_is_given(run, folder, monkeypatch, words):
    if "serve" in words or "token" in words:
        pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    (folder / "d.jsonl").write_text('["a", "b"]\n["b", "c"]\n' * 8)
    monkeypatch.chdir(folder)
    for name, goal in (("loop", "back"), ("back", "loop")):
        if not os.path.lexists(name):
            Path(name).symlink_to(goal)
    code, out, err = run(*words.split())
    told = err.splitlines()[-1]
    assert (code, out) == (1, "") and told.startswith("polyseme: ")
    assert "unexpected" not in told and "Errno" not in told and not (folder / "new").exists()


def test_labels_do_not_steer_a_terminal_and_cells_are_no_formulas(run, tmp_path, monkeypatch):
    wild = "\x1b]0;owned\x07 \x9b31m \u202etxt"
    records = [{"label": wild, "score": -0.5}, {"label": "=1+1", "score": 1.0}]
    for people in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdout", stream)
        emit(records, Form.table if people else Form.csv)
        shown_there = stream.getvalue()
        assert "owned" in shown_there
        assert not set("\x1b\x07\x9b\u202e") & set(re.sub(r"\x1b\[[0-9;]*m", "", shown_there))
    assert "'=1+1" in shown_there and ",-0.5" in shown_there


@pytest.mark.parametrize(
    "label", ["=1+1", "@cmd", "+", "-x", "'=1", "''-a", "plain", "'quoted'", "-1", "\uff1dx"]
)
def test_guarded_cells_are_read_back_as_they_were(tmp_path, label):
    file = tmp_path / "tags.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        write_records(
            [{"id": "a", "tags": [label, "b"]}, {"id": "b", "tags": label}], stream, "csv"
        )
    assert not re.search(r"(^|,)[=@+]", file.read_text("utf-8"), re.MULTILINE)
    corpus = LabelCorpus.read(file, delimiter=";")
    assert set(corpus.labels) == {label, "b"}


def test_a_sidecar_lies_beside_its_file_whatever_bytes_its_name_has(tmp_path, monkeypatch):
    file = tmp_path / "caf\udce9.jpg"
    try:
        file.write_bytes(b"x")
    except OSError:
        pytest.skip("this file system has names in UTF-8 only")
    tagging = Tagging.__new__(Tagging)
    tagging.kind, tagging.skipped, tagging.files = "image", [], []
    record = {"file": "caf\\xe9.jpg", "labels": ["sea"], "kinds": ["seen"], "scores": [0.9]}
    monkeypatch.setattr(tagging, "_tagged", lambda: iter([(file, record)]))
    monkeypatch.setattr("polyseme.cluster.media.keywords_of", lambda *_: Keywords([], [], []))
    (written,) = tagging.sidecars()
    assert written["added"] == ["sea"] and written["sidecar"].isprintable()
    (beside,) = [path for path in tmp_path.iterdir() if path != file]
    assert beside.name.startswith("caf\udce9") and beside.suffix == ".xmp"


def test_what_a_strangers_file_says_cannot_break_a_sentence_or_steer_a_terminal():
    said = str(InputError("The file says 'a\nb\x1b[2J\u202e\ud800'."))
    assert said == r"The file says 'a\nb\x1b[2J\u202e\ud800'."


def test_reasons_of_libraries_stand_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^its block is not well-formed XML \([^\n]*\); repair"):
        read_packet(b"<a>\n\n\n<\x00/a>", "its block")
    # A type of field that the Parquet library names by the byte itself.
    (tmp_path / "x.parquet").write_bytes(b"PAR1\x1f\x01\x00\x00\x00PAR1")
    with pytest.raises(
        InputError, match=r"^x.parquet is not readable as Parquet \([ -~]*\); write"
    ):
        read_table(tmp_path / "x.parquet")
