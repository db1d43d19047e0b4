"""Verdicts: events that stay, undoing, several writers, kills, and files of strangers."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyseme.base.validation import InputError
from polyseme.feedback import verdict_log
from polyseme.feedback.verdict_log import ConflictError, LogPosition, Undo, Verdict, VerdictLog
from polyseme.storage.model_file import ModelFileError, read_model, remove_model, write_model

FULL = Verdict("a.jpg", "canoe", True, 0.25, 3, "1f0c", "Ännä", "2026-01-31T12:00:00+00:00")
SPACE = "5a" * 32


def said(item="a.jpg", label="canoe", answer=True, **others):
    return Verdict(item, label, answer, **others)


def plain(verdicts):
    """Leave out numbers and times."""
    return [(verdict.item, verdict.label, verdict.answer) for verdict in verdicts]


def vectors_of(log, space=SPACE):
    """Return the latest vector of each item."""
    keys = log.vector_keys(space)
    numbers = [key.number for key in keys.values()]
    vectors = log.vectors(numbers).tolist()
    return dict(zip(keys, vectors, strict=True))


@pytest.fixture
def log(tmp_path):
    with VerdictLog(tmp_path) as opened:
        yield opened


@pytest.fixture
def three(log):
    """A closed log of three verdicts, the second of them undone, and of two vectors."""
    vectors = {"a": np.arange(4), "b": np.ones(4)}
    log.append([said("a"), said("b"), said("c", answer=False)], vectors, SPACE)
    log.undo([2], "Ann")
    log.close()
    return log


# ---- what goes in comes out -------------------------------------------------------------------


def test_a_verdict_comes_back_with_all_that_was_shown(log):
    assert list(log.append([FULL])) == [1]
    assert list(log.events()) == log.standing() == [FULL._replace(number=1)]


_WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            _WORDS,
            _WORDS,
            st.booleans(),
            st.none() | st.floats(0, 1),
            st.none() | st.integers(1, 2**31),
        ),
        max_size=5,
    )
)
def test_any_text_and_number_comes_back_exactly(batch):
    log = VerdictLog()
    log.append(batch)
    assert [event[:5] for event in log.events()] == batch


def test_numbers_go_on_from_log_to_log_and_batch_to_batch(tmp_path):
    for first in (1, 3, 5):
        with VerdictLog(tmp_path / "verdicts.sqlite") as log:
            expected = range(first, first + 2)
            assert log.append([said(number=77), said("b")]) == expected
    assert VerdictLog(tmp_path).count == 6


def test_the_time_is_set_in_utc_where_it_is_missing_and_turned_where_it_is_not(log):
    log.append([said(), said("b", time="2026-06-01T12:30+02:00")])
    first, second = log.events()
    assert datetime.fromisoformat(first.time).utcoffset().total_seconds() == 0
    assert second.time == "2026-06-01T10:30:00+00:00"


def test_tuples_and_numbers_of_numpy_become_plain(log):
    of_numpy = (np.str_("a"), "b", np.bool_(False), np.float32(0.5), np.int64(2))
    as_list = ["a", "c", True]
    log.append([of_numpy, as_list])
    events = [*log.events()]
    assert plain(events) == [("a", "b", False), ("a", "c", True)]
    expected_types = [str, str, bool, float, int]
    types = [type(value) for value in events[0]]
    assert types[:5] == expected_types


def test_events_after_a_number_are_given_alone(three):
    numbers = [event.number for event in three.events(after=2)]
    assert numbers == [3, 4]


def test_a_log_that_is_not_there_is_empty_and_stays_away(tmp_path):
    log = VerdictLog(tmp_path / "model")
    assert log.count == 0
    assert [*log.events()] == []
    assert log.standing() == []
    assert log.vector_keys(SPACE) == {}
    assert log.append([]) == range(1, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_log_is_one_file_and_opens_again(three):
    names = [entry.name for entry in three.file.parent.iterdir()]
    assert names == ["verdicts.sqlite"]
    assert three.count == 4
    assert repr(three).endswith("verdicts.sqlite: 4 events)")


@pytest.mark.parametrize("remade", [copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))])
@pytest.mark.parametrize("path", [None, "here"])
def test_a_log_is_copied_with_what_it_knows(tmp_path, remade, path):
    log = VerdictLog(None if path is None else tmp_path)
    log.append([FULL], {"a.jpg": [1.0]}, SPACE)
    log_copy = remade(log)
    assert log_copy.standing() == log.standing()
    assert vectors_of(log_copy) == {"a.jpg": [1.0]}
    assert log_copy.append([FULL]) == range(2, 3)


# ---- what stands ------------------------------------------------------------------------------


def test_the_latest_verdict_on_a_label_of_an_item_stands_whoever_gave_it(log):
    log.append([said(who="Ann"), said(label="kayak"), said(answer=False, who="Bob")])
    assert plain(log.standing()) == [("a.jpg", "kayak", True), ("a.jpg", "canoe", False)]


def test_answers_that_were_not_seen_are_not_overwritten(log):
    log.append([("a", "sun", True)])
    log.append([("a", "sun", False, None, None, None, "ann"), ("b", "sun", False)])
    for seen in (0, 1):
        with pytest.raises(ConflictError, match="answered no for 'a' by ann") as raised:
            log.append([("c", "sun", True), ("a", "sun", True)], seen=seen)
        numbers = [verdict.number for verdict in raised.value.standing]
        assert numbers == [2]
    assert log.count == 3
    log.append([("a", "sun", True), ("a", "moon", True), ("b", "sun", False)], seen=2)
    assert log.count == 6
    log.undo([4])
    with pytest.raises(ConflictError):
        log.append([("a", "sun", True)], seen=1)  # what stood before stands again


def test_labels_are_compared_by_a_key_where_answers_must_not_be_overwritten(log):
    log.append([("a", "Sun", True)])
    log.append([("a", "sun", False)], seen=0)
    with pytest.raises(ConflictError) as raised:
        log.append([("a", "SUN", True)], seen=0, key=str.lower)
    standing = [(verdict.label, verdict.number) for verdict in raised.value.standing]
    assert standing == [("SUN", 2)]


def test_undo_brings_back_what_stood_before_and_removes_nothing(log):
    log.append([said(), said(answer=False)])
    assert log.undo([2], "Ann") == range(3, 4)
    numbers = [verdict.number for verdict in log.standing()]
    assert numbers == [1]
    *_, undo = log.events()
    assert undo == Undo(2, "Ann", undo.time, 3)
    assert log.count == 3


@pytest.mark.parametrize("seed", range(5))
def test_undoing_a_batch_in_any_order_leaves_exactly_what_stood_before(seed):
    rng = random.Random(seed)
    log = VerdictLog()

    def batch():
        return [
            said(f"{rng.randrange(4)}", f"{rng.randrange(3)}", rng.random() < 0.5) for _ in "123456"
        ]

    log.append(batch())
    before = log.standing()
    numbers = [*log.append(batch())]
    rng.shuffle(numbers)
    for number in numbers:
        log.undo([number])
    assert log.standing() == before


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([9], "There is no verdict 9;"),
        ([0], "There is no verdict 0;"),
        ([2**70], "There is no verdict"),
        ([1.0], "There is no verdict 1.0;"),
        ([True], "There is no verdict True;"),
        ([2], "Verdict 2 was undone already, by event 4"),
        ([1, 4], "Event 4 undid verdict 2 and cannot be undone"),
    ],
)
def test_what_cannot_be_undone_is_refused_and_nothing_is_undone(three, numbers, message):
    with pytest.raises(InputError, match=message):
        three.undo(numbers)
    assert three.count == 4


def test_there_is_nothing_to_undo_in_an_empty_log(tmp_path):
    with pytest.raises(InputError, match="There is no verdict 1;"):
        VerdictLog(tmp_path).undo([1])
    assert list(tmp_path.iterdir()) == []


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("abc", r"Verdict 1 must be a `Verdict` or a tuple"),
        (("a", "b"), r"Verdict 1 must be a `Verdict` or a tuple"),
        (None, r"Verdict 1 must be a `Verdict` or a tuple"),
        *[
            (said(answer=answer), r"True or False as `answer`")
            for answer in (1, "yes", None, np.float64(1))
        ],
        *[
            (said(score=score), r"probability from 0 to 1 as `score`")
            for score in (float("nan"), float("inf"), -0.1, 1.5, "0.5", True)
        ],
        *[(said(rank=rank), r"whole number from 1 on as `rank`") for rank in (0, 1.5, 2**40, True)],
        *[
            (said(**{name: text}), rf"text of 1 to 4,096 letters as `{name}`")
            for name in ("item", "label", "model", "who")
            for text in ("", "x" * 4097, 3, b"x", "a\0b", "\ud800")
        ],
        *[
            (said(time=when), r"ISO 8601 time with its zone")
            for when in ("today", 3, "2026-01-31T12:00:00", "0001-01-01T00:00:00+23:00")
        ],
    ],
)
def test_what_is_no_verdict_is_refused_and_its_batch_with_it(tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        VerdictLog(tmp_path).append([said(), wrong])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("vectors", "space", "message"),
    [
        ({"a": [1.0, np.nan]}, SPACE, "must be finite numbers"),
        ({"a": [1e60]}, SPACE, "must be finite numbers"),
        ({"a": []}, SPACE, "must be finite numbers"),
        ({"a": np.ones((2, 2))}, SPACE, "must be finite numbers"),
        ({"a": "text"}, SPACE, "must be finite numbers"),
        ({"a": np.ones(2**18)}, SPACE, "must be finite numbers"),
        ({"a": [1.0], "b": [1.0, 2.0]}, SPACE, "as many for each item"),
        ({"c": np.ones(3)}, SPACE, "got 3 where the log has 4"),
        ({3: [1.0]}, SPACE, "as `item`"),
        ({"a": [1.0]}, None, "as `space_digest`"),
    ],
)
def test_vectors_that_cannot_be_kept_are_refused_and_the_verdicts_with_them(
    three, vectors, space, message
):
    with pytest.raises(InputError, match=message):
        three.append([said()], vectors, space)
    assert three.count == 4


def test_a_batch_has_a_limit(monkeypatch):
    monkeypatch.setattr(verdict_log, "MAX_VERDICTS", 2)
    with pytest.raises(InputError, match="may hold 2 at most; cut it"):
        VerdictLog().append(said() for _ in range(10**9))


def test_a_log_needs_a_folder(tmp_path):
    with pytest.raises(ModelFileError, match=r"no folder at .* save the model there first"):
        VerdictLog(tmp_path / "model").append([said()])


# ---- some of it, and how far it goes ---------------------------------------------------------


def test_what_stands_on_some_labels_is_part_of_what_stands(log):
    rng = np.random.default_rng(0)
    for _ in range(30):
        item = rng.choice([*"ab"])
        label = rng.choice([*"xyz"])
        answer = bool(rng.random() < 0.5)
        log.append([said(item, label, answer)])
        numbers = [verdict.number for verdict in log.standing()]
        if numbers and rng.random() < 0.4:
            log.undo([int(rng.choice(numbers))])
        for labels in ([], ["x"], ["z", "x"], ["none"]):
            expected = [verdict for verdict in log.standing() if verdict.label in labels]
            assert log.standing(labels) == expected


def test_labels_are_known_by_the_numbers_of_verdicts(three):
    three.append([said("a", "tent")])
    assert three.labels_of([1, 5]) == {"canoe", "tent"}
    assert three.labels_of([4, 99]) == set()


def test_a_position_says_which_log_it_is_and_how_far_it_goes(three, tmp_path):
    before = three.position
    assert before[1:] == (4, 2)
    assert VerdictLog(tmp_path / "none").position == LogPosition("", 0, 0)
    three.append([said("d")], {"d": np.ones(4)}, SPACE)
    expected_position = before._replace(event=5, vector=3)
    assert three.position == expected_position
    with VerdictLog(tmp_path / "other.sqlite") as other_log:
        other_log.append([said()])
        assert other_log.position.log_id != before.log_id


# ---- vectors ----------------------------------------------------------------------------------


def test_the_last_vector_of_each_item_comes_back_by_space(three):
    vectors = {"0": np.full(4, 3), "a": np.full(4, 2.5)}
    three.append([], vectors, SPACE)
    three.append([], {"a": np.ones(2)}, "another")
    expected = {"a": [2.5] * 4, "b": [1.0] * 4, "0": [3.0] * 4}
    assert vectors_of(three) == expected
    assert vectors_of(three, "another") == {"a": [1.0, 1.0]}
    assert vectors_of(three, "none") == {}


def test_vectors_are_found_by_items_or_among_the_last(three):
    vectors = {"0": np.full(4, 3), "a": np.full(4, 2.5)}
    three.append([], vectors, SPACE)
    three.append([], {"z": np.ones(2)}, "another")

    def numbers(*arguments, **options):
        keys = three.vector_keys(SPACE, *arguments, **options)
        return {item: key.number for item, key in keys.items()}

    assert numbers() == {"a": 4, "b": 2, "0": 3}
    assert numbers(["0", "z", "a"]) == {"a": 4, "0": 3}
    assert numbers(after=2) == {"0": 3, "a": 4}
    assert numbers(after=5) == {}
    assert numbers(["b"], after=2) == {}
    assert numbers([]) == {}
    assert three.vectors([4, 1, 2])[:, 0].tolist() == [2.5, 0, 1]
    assert three.vectors([]).shape == (0, 0)
    with pytest.raises(ModelFileError, match="vectors are missing or differ"):
        three.vectors([1, 77])


def test_keys_tell_vectors_apart_and_one_that_is_known_is_not_kept_twice(three):
    three.append([said("a")], {"a": np.arange(4.0), "c": np.ones(4)}, SPACE)
    keys = three.vector_keys(SPACE)
    assert keys["b"].digest == keys["c"].digest != keys["a"].digest
    assert three.position.vector == 3


# ---- files of strangers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET item = x'00' WHERE number = 1",
        "UPDATE events SET item = CAST(x'ff' AS TEXT) WHERE number = 1",
        "UPDATE events SET label = NULL WHERE number = 1",
        "UPDATE events SET answer = 7 WHERE number = 1",
        "UPDATE events SET answer = 'yes' WHERE number = 1",
        "UPDATE events SET score = 9e999 WHERE number = 1",
        "UPDATE events SET rank = 'first' WHERE number = 1",
        "UPDATE events SET who = x'ff' WHERE number = 1",
        "UPDATE events SET time = 'today' WHERE number = 1",
        "UPDATE events SET undoes = 'x' WHERE number = 1",
        "UPDATE events SET number = 9223372036854775807 WHERE number = 4",
        "UPDATE item_vectors SET vector = zeroblob(3) WHERE number = 1",
        "UPDATE item_vectors SET vector = zeroblob(8) WHERE number = 1",
        "UPDATE item_vectors SET vector = 'text' WHERE number = 1",
        "UPDATE item_vectors SET vector = zeroblob(3000000) WHERE number = 1",
        "UPDATE item_vectors SET vector = x'0000c07f0000000000000000000000ff'",
        "UPDATE item_vectors SET digest = 7",
        "UPDATE item_vectors SET item = x'00'",
    ],
)
def test_rows_that_no_log_writes_are_refused_in_one_sentence(three, change):
    with sqlite3.connect(three.file) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute(change)
    database.close()
    with pytest.raises(ModelFileError, match=r"verdicts.* (cannot be used: .+|out of range\.)"):
        _ = [*three.events()], three.standing(), vectors_of(three)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more (x)",
        "DROP TABLE item_vectors",
        "ALTER TABLE events RENAME COLUMN who TO whom",
        "CREATE VIEW seen AS SELECT 1",
        "CREATE TRIGGER sly AFTER INSERT ON events BEGIN SELECT load_extension('x'); END",
        "CREATE VIRTUAL TABLE texts USING fts5 (text)",
    ],
)
def test_a_database_of_another_kind_is_neither_read_nor_written(three, change):
    with sqlite3.connect(three.file) as database:
        database.execute(change)
    database.close()
    for use in (three.standing, lambda: three.append([said()]), lambda: three.count):
        with pytest.raises(ModelFileError, match="it is no log of polyseme"):
            use()


def overwritten(start, data):
    return lambda whole: whole[:start] + data + whole[start + len(data) :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"{}",
        lambda data: b"x" * 5000,
        lambda data: data[:100],
        lambda data: data[: len(data) // 2],
        overwritten(0, b"x" * 16),
        overwritten(16, b"\x07\x07"),
        overwritten(100, b"\xff" * 200),
    ],
)
def test_a_damaged_database_is_one_sentence(three, damage):
    three.file.write_bytes(damage(three.file.read_bytes()))
    for use in (three.standing, lambda: three.append([said()])):
        with pytest.raises(ModelFileError, match=r"The verdicts at .*verdicts.sqlite"):
            use()


@pytest.mark.parametrize("seed", range(30))
def test_bytes_changed_at_random_never_crash(three, seed):
    rng = random.Random(seed)
    data = bytearray(three.file.read_bytes())
    for _ in range(20):
        position = rng.randrange(len(data))
        bit = rng.randrange(8)
        data[position] ^= 1 << bit
    three.file.write_bytes(data)
    with contextlib.suppress(ModelFileError):
        for event in three.events():
            assert isinstance(event, Verdict | Undo)
        vectors = [*vectors_of(three).values()]
        assert np.isfinite(vectors).all()


@pytest.mark.parametrize("name", ["verdicts.sqlite", "verdicts.sqlite-wal", "verdicts.sqlite-shm"])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_links_pipes_and_folders_are_refused(tmp_path, name, kind):
    model = tmp_path / "model"
    outside = tmp_path / "outside"
    model.mkdir()
    with VerdictLog(model) as log:
        log.append([said()])
    place = model / name
    if place.exists():
        place.rename(outside)
    if kind == "link":
        place.symlink_to(outside)
    elif kind == "folder":
        place.mkdir()
    else:
        os.mkfifo(place)
    with pytest.raises(ModelFileError, match="must be a regular file"):
        VerdictLog(model).append([said()])


# ---- several at once, and kills ---------------------------------------------------------------


def test_threads_and_logs_append_at_once_and_lose_nothing(tmp_path):
    logs = [VerdictLog(tmp_path), VerdictLog(tmp_path)]

    def add(writer):
        for place in range(20):
            logs[writer % 2].append([said(f"{writer}-{place}"), said(f"{writer}+{place}")])

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(add, range(4))] == [None] * 4
    assert logs[0].count == 160
    assert len(logs[1].standing()) == 160
    for log in logs:
        log.close()


APPENDER = """
import sys
from polyseme.feedback.verdict_log import VerdictLog
log = VerdictLog(sys.argv[1])
for place in range(int(sys.argv[3])):
    number, = log.append([(f"{sys.argv[2]}-{place}", "canoe", place % 2 == 0)])
    print(number, place, flush=True)
"""


def appender(folder, name, count):
    command = [sys.executable, "-c", APPENDER, str(folder), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_make_a_log_and_append_while_the_model_is_saved_again_and_again(tmp_path):
    writers = [appender(tmp_path, name, 40) for name in "ab"]
    acknowledged, step = {}, 0
    while any(writer.poll() is None for writer in writers):
        step += 1
        save(tmp_path, step)
    for name, writer in zip("ab", writers, strict=True):
        for line in writer.communicate()[0].splitlines():
            number, place = line.split()
            acknowledged[int(number)] = f"{name}-{place}"
        assert writer.returncode == 0
    with VerdictLog(tmp_path) as log:
        assert {event.number: event.item for event in log.events()} == acknowledged
        assert len(acknowledged) == 80


FORKER = """
import os, sys
from polyseme.feedback.verdict_log import VerdictLog
log = VerdictLog(sys.argv[2])

def tell(*words):
    # In one piece, which a kill does not cut: `print` may write words one by one.
    os.write(1, " ".join(map(str, words)).encode() + b"\\n")

for turn in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        place = 0
        while True:
            place += 1
            batch = [(f"{turn}-{place}-{part}", "canoe", True) for part in "abc"]
            tell("told", turn, place, *log.append(batch, {batch[0][0]: [place]}, "s"))
    tell("child", child)
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked writer")
def test_a_writer_that_is_killed_twenty_times_loses_nothing_that_it_acknowledged(tmp_path):
    rng = random.Random(3)
    acknowledged = {}
    turns = 20
    command = [sys.executable, "-c", FORKER, str(turns), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child, left = 0, 0
        for line in parent.stdout:
            message, *words = line.split()
            if message == "child":
                child = int(words[0])
                left = rng.randrange(9)
            elif message == "told":
                turn, place, *numbers = words
                numbered_letters = zip(numbers, "abc", strict=True)
                acknowledged |= {
                    int(number): f"{turn}-{place}-{letter}" for number, letter in numbered_letters
                }
                left -= 1
            if child and left <= 0:
                time.sleep(rng.uniform(0, 0.03))
                os.kill(child, signal.SIGKILL)
                child = 0
    assert parent.returncode == 0
    assert len(acknowledged) > turns
    with VerdictLog(tmp_path) as log:
        events = {event.number: event.item for event in log.events()}
        assert acknowledged.items() <= events.items()
        batches = [item.rpartition("-")[0] for item in events.values()]
        assert all(batches.count(batch) == 3 for batch in {*batches}), "a batch by halves"
        coded_items = {item for item in events.values() if item.endswith("a")}
        assert log.vector_keys("s").keys() == coded_items


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_with_an_open_log_loses_nothing_when_the_parent_closes_it(tmp_path):
    code = """
import os, sys
from polyseme.feedback.verdict_log import VerdictLog
log = VerdictLog(sys.argv[1])
log.append([("parent", "canoe", True)])
(told, tell), (heard, hear) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    log.append([("child", "canoe", True)])
    os.write(tell, b"1")
    os.read(heard, 1)
    log.append([("child, alone", "canoe", True)])
    os._exit(0)
os.read(told, 1)
log.close()
os.write(hear, b"1")
os.waitpid(child, 0)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    items = [event.item for event in VerdictLog(tmp_path).events()]
    assert items == ["parent", "child", "child, alone"]


def test_a_writer_does_not_wait_for_ever(three, monkeypatch):
    monkeypatch.setattr(verdict_log, "_WAIT_SECONDS", 0.02)
    connection = sqlite3.connect(three.file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(
        ModelFileError, match=r"Another process has been writing .* for 0.02 s; try"
    ):
        three.append([said()])
    assert three.count == 4  # readers do not wait
    connection.close()
    assert three.append([said()]) == range(5, 6)


def test_a_log_that_takes_the_place_of_another_is_the_one_that_is_used(three, tmp_path):
    assert three.count == 4
    with VerdictLog(tmp_path / "other.sqlite") as other_log:
        other_log.append([FULL])
    for end in ("-wal", "-shm"):
        three.file.with_name(f"verdicts.sqlite{end}").unlink(missing_ok=True)
    other_log.file.replace(three.file)
    assert three.append([said()]) == range(2, 3)
    three.file.unlink()
    assert three.count == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_log_in_a_folder_that_cannot_be_written_is_read(three):
    folder = three.file.parent
    folder.chmod(0o500)
    three.file.chmod(0o400)
    try:
        assert VerdictLog(folder).count == 4
        with pytest.raises(ModelFileError, match=r"cannot be used: .*readonly"):
            VerdictLog(folder).append([said()])
    finally:
        folder.chmod(0o700)


def test_cached_corrections_are_replaced_and_copied(three, tmp_path):
    three.cache_corrections([(b"old", b"weights", 1.0)])
    three.cache_corrections([(b"key", b"weights", 0.5)])
    three.copy_to(tmp_path / "copy.sqlite")
    with VerdictLog(tmp_path / "copy.sqlite") as copied:
        assert copied.cached_corrections() == [(b"key", b"weights", 0.5)]


# ---- beside a model ---------------------------------------------------------------------------


def save(path, step):
    write_model(path, "tagger", {"step": step}, {"a": np.full(5, step)})


def test_saving_over_a_model_leaves_its_log_to_whoever_writes_to_it(tmp_path):
    model = tmp_path / "model"
    save(model, 1)
    log = VerdictLog(model)
    log.append([said("before")])
    inode = log.file.stat().st_ino
    save(model, 2)
    log.append([said("after")])
    assert log.file.stat().st_ino == inode
    assert read_model(model, "tagger")[0] == {"step": 2}
    expected = plain([said("before"), said("after")])
    assert plain(VerdictLog(model).standing()) == expected
    log.close()


def test_a_model_can_be_saved_where_there_are_only_verdicts(three):
    save(three.file.parent, 1)
    remove_model(three.file.parent)
    names = [entry.name for entry in three.file.parent.iterdir()]
    assert names == ["verdicts.sqlite"]
    save(three.file.parent, 2)
    assert three.count == 4


def test_removing_a_model_leaves_its_verdicts(three):
    save(three.file.parent, 1)
    remove_model(three.file.parent)
    assert three.count == 4


def test_a_copy_has_everything_and_goes_on_with_the_same_numbers(three, tmp_path):
    three.copy_to(tmp_path / "new" / "model")
    log_copy = VerdictLog(tmp_path / "new" / "model")
    expected = [*three.events()]
    assert [*log_copy.events()] == expected
    assert vectors_of(log_copy) == vectors_of(three)
    three.append([said("d")], {"d": np.ones(4)}, SPACE)
    three.copy_to(log_copy.file.parent)
    expected = [*three.events()]
    assert [*log_copy.events()] == expected
    assert "d" in vectors_of(log_copy)
    log_copy.append([said("e")])
    three.copy_to(log_copy.file.parent)  # an earlier copy over a later one takes nothing away
    assert log_copy.count == 6
    log_copy.close()


def test_events_in_memory_are_kept_by_a_copy(tmp_path):
    log = VerdictLog()
    log.append([FULL], {"a.jpg": [1.0, 2.0]}, SPACE)
    log.copy_to(tmp_path)
    with VerdictLog(tmp_path) as log_copy:
        assert log_copy.standing() == log.standing()
        assert vectors_of(log_copy) == {"a.jpg": [1, 2]}


def test_nothing_is_copied_from_an_empty_log_or_onto_itself(three, tmp_path):
    VerdictLog().copy_to(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    three.copy_to(three.file)
    VerdictLog().copy_to(three.file)
    assert three.count == 4


@pytest.mark.parametrize("count", [1, 4, 9])
def test_verdicts_of_another_model_are_never_mixed_or_replaced(three, tmp_path, count):
    with VerdictLog(tmp_path / "other.sqlite") as other_log:
        other_log.append([said(f"mine {place}") for place in range(count)])
        before = [*other_log.events()]
        with pytest.raises(
            ModelFileError, match=r"has verdicts of its own, .* choose another path"
        ):
            three.copy_to(other_log.file)
        assert [*other_log.events()] == before


def test_answers_that_come_while_somebody_fits_are_kept_beside_what_was_fitted(
    three, tmp_path_factory
):
    """The fit has a copy, to which it adds vectors in its space; people go on meanwhile."""
    with VerdictLog(tmp_path_factory.mktemp("fitted") / "together.sqlite") as copy:
        three.copy_to(copy.file)
        copy.append([], {"a": [5.0], "b": [6.0]}, "new space")
        three.append([said("d")], {"d": np.zeros(4), "a": np.ones(4)}, SPACE)
        copy.copy_to(three.file)
    assert plain(three.standing())[-1] == ("d", "canoe", True)
    assert vectors_of(three, "new space") == {"a": [5.0], "b": [6.0]}
    assert vectors_of(three)["a"] == [1.0] * 4, "not the one that was copied before"


def test_a_copy_is_not_put_into_a_folder_of_something_else(three, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    with pytest.raises(ModelFileError, match="neither empty nor a polyseme model"):
        three.copy_to(tmp_path / "mine")
    names = [entry.name for entry in (tmp_path / "mine").iterdir()]
    assert names == ["notes.txt"]
