"""Verdicts: events that stay, undoing that is exact, and strangers' files that do no harm."""

from __future__ import annotations

import copy
import gzip
import json
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

from polyseme import verdicts
from polyseme._validation import InputError, PolysemeWarning
from polyseme.persistence import ModelFileError, read_model, remove_model, write_model
from polyseme.verdicts import (
    ConflictError,
    Undo,
    Verdict,
    VerdictLog,
    read_verdicts,
    write_verdicts,
)

FULL = Verdict("a.jpg", "canoe", True, 0.25, 3, "1f0c", "Ännä", "2026-01-31T12:00:00+00:00")
SPACE = "5a" * 32


def said(item="a.jpg", label="canoe", answer=True, **others):
    return Verdict(item, label, answer, **others)


def plain(found):
    """Leave out numbers and times."""
    return [(one.item, one.label, one.answer) for one in found]


@pytest.fixture
def log(tmp_path):
    with VerdictLog(tmp_path) as opened:
        yield opened


@pytest.fixture
def three(log):
    """A log of three verdicts, the second of them undone, closed; codes of two items."""
    codes = {"a": np.arange(4), "b": np.ones(4)}
    log.append([said("a"), said("b"), said("c", answer=False)], codes, SPACE)
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
    assert [one[:5] for one in log.events()] == batch
    log.verify()


def test_numbers_go_on_from_log_to_log_and_batch_to_batch(tmp_path):
    for first in (1, 3, 5):
        with VerdictLog(tmp_path / "verdicts.sqlite") as log:
            assert log.append([said(number=77), said("b")]) == range(first, first + 2)
    assert VerdictLog(tmp_path).count == 6


def test_the_time_is_set_in_utc_where_it_is_missing_and_turned_where_it_is_not(log):
    log.append([said(), said("b", time="2026-06-01T12:30+02:00")])
    first, second = log.events()
    assert datetime.fromisoformat(first.time).utcoffset().total_seconds() == 0
    assert second.time == "2026-06-01T10:30:00+00:00"


def test_tuples_and_numbers_of_numpy_become_plain(log):
    log.append(
        [(np.str_("a"), "b", np.bool_(False), np.float32(0.5), np.int64(2)), ["a", "c", True]]
    )
    found = [*log.events()]
    assert plain(found) == [("a", "b", False), ("a", "c", True)]
    assert [type(value) for value in found[0][:5]] == [str, str, bool, float, int]


def test_events_after_a_number_are_given_alone(three):
    assert [one.number for one in three.events(after=2)] == [3, 4]


def test_a_log_that_is_not_there_is_empty_and_stays_away(tmp_path):
    log = VerdictLog(tmp_path / "model")
    assert (log.count, log.head(), [*log.events()], log.standing()) == (0, (0, ""), [], [])
    assert log.codes(SPACE) == {} and log.append([]) == range(1, 1)
    log.verify()
    assert list(tmp_path.iterdir()) == []


def test_a_closed_log_is_one_file_and_opens_again(three):
    assert [entry.name for entry in three.file.parent.iterdir()] == ["verdicts.sqlite"]
    assert three.count == 4 and repr(three).endswith("verdicts.sqlite: 4 events)")


@pytest.mark.parametrize("remade", [copy.deepcopy, lambda log: pickle.loads(pickle.dumps(log))])
@pytest.mark.parametrize("path", [None, "here"])
def test_a_log_is_copied_with_what_it_knows(tmp_path, remade, path):
    log = VerdictLog(None if path is None else tmp_path)
    log.append([FULL], {"a.jpg": [1.0]}, SPACE)
    again = remade(log)
    assert again.standing() == log.standing() and again.codes(SPACE).keys() == {"a.jpg"}


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
        assert [verdict.number for verdict in raised.value.standing] == [2]
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
    assert [(verdict.label, verdict.number) for verdict in raised.value.standing] == [("SUN", 2)]


def test_undo_brings_back_what_stood_before_and_removes_nothing(log):
    log.append([said(), said(answer=False)])
    assert log.undo([2], "Ann") == range(3, 4)
    assert [one.number for one in log.standing()] == [1]
    *_, undo = log.events()
    assert undo == Undo(2, "Ann", undo.time, 3) and log.count == 3


@pytest.mark.parametrize("seed", range(5))
def test_undoing_a_batch_in_any_order_leaves_exactly_what_stood_before(seed):
    rng, log = random.Random(seed), VerdictLog()

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
    with pytest.raises(InputError, match="There is no verdict 1; the log is empty"):
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
    ("codes", "space", "message"),
    [
        ({"a": [1.0, np.nan]}, SPACE, "finite numbers in a row"),
        ({"a": [1e60]}, SPACE, "finite numbers in a row"),
        ({"a": []}, SPACE, "finite numbers in a row"),
        ({"a": np.ones((2, 2))}, SPACE, "finite numbers in a row"),
        ({"a": "text"}, SPACE, "finite numbers in a row"),
        ({"a": np.ones(2**16 + 1)}, SPACE, "1 to 65,536 finite numbers"),
        ({3: [1.0]}, SPACE, "as `item`"),
        ({"a": [1.0]}, None, "as `space`"),
        ({"a": [1.0], "b": [1.0, 2.0]}, SPACE, "one length; got several"),
        ({"c": np.ones(3)}, SPACE, "got 3 numbers where the log has 4: give another `space`"),
    ],
)
def test_codes_that_cannot_be_kept_are_refused_and_the_verdicts_with_them(
    three, codes, space, message
):
    with pytest.raises(InputError, match=message):
        three.append([said()], codes, space)
    assert three.count == 4


def test_a_batch_has_a_limit(monkeypatch):
    monkeypatch.setattr(verdicts, "MAX_VERDICTS", 2)
    with pytest.raises(InputError, match="may hold 2 at most; cut it"):
        VerdictLog().append(said() for _ in range(10**9))


def test_a_log_needs_a_folder(tmp_path):
    with pytest.raises(ModelFileError, match=r"no folder at .* save the model there first"):
        VerdictLog(tmp_path / "model").append([said()])


# ---- some of it, and whether it is still there ------------------------------------------------


def test_what_stands_on_some_labels_is_part_of_what_stands(log):
    rng = np.random.default_rng(0)
    for _ in range(30):
        item, label = rng.choice([*"ab"]), rng.choice([*"xyz"])
        log.append([said(item, label, bool(rng.random() < 0.5))])
        standing = [one.number for one in log.standing()]
        if standing and rng.random() < 0.4:
            log.undo([int(rng.choice(standing))])
        for labels in ([], ["x"], ["z", "x"], ["none"]):
            found = [one for one in log.standing() if one.label in labels]
            assert log.standing(labels) == found


def test_labels_are_known_by_the_numbers_of_verdicts(three):
    three.append([said("a", "tent")])
    assert three.labels_of([1, 5]) == {"canoe", "tent"} and three.labels_of([4, 99]) == set()


def test_a_log_knows_whether_it_holds_what_was_there(three, tmp_path):
    nothing, before = VerdictLog().heads(), three.heads()
    assert nothing == {"events": (0, b""), "codes": (0, b"")}
    assert [before[table][0] for table in ("events", "codes")] == [4, 2]
    three.append([said("d")], {"d": np.ones(4)}, SPACE)
    after = three.heads()
    assert three.holds(nothing) and three.holds(before) and three.holds(after)
    other = VerdictLog(tmp_path / "other.sqlite")
    other.append([said(item) for item in "abcdef"], {"a": np.ones(4)}, SPACE)
    assert other.holds(nothing) and not other.holds(before)
    assert not other.holds(nothing | {"codes": before["codes"]})


# ---- codes ------------------------------------------------------------------------------------


def test_codes_come_back_by_space_in_the_order_of_items_the_last_one_of_each(three):
    three.append([], {"0": np.full(4, 3), "a": np.full(4, 2.5)}, SPACE)
    three.append([], {"a": np.ones(2)}, "another")
    found = three.codes(SPACE)
    assert [*found] == ["a", "b", "0"] and found["a"].dtype == np.float32
    np.testing.assert_array_equal(np.stack([*found.values()])[:, 0], [2.5, 1, 3])
    assert three.codes("another")["a"].shape == (2,) and three.codes("none") == {}


def test_codes_are_numbered_and_found_by_items_or_among_the_last(three):
    three.append([], {"0": np.full(4, 3), "a": np.full(4, 2.5)}, SPACE)
    three.append([], {"z": np.ones(2)}, "another")
    assert three.coded(SPACE) == {"a": 4, "b": 2, "0": 3}
    assert [*three.coded(SPACE)] == ["a", "b", "0"]
    assert three.coded(SPACE, ["0", "z", "a"]) == {"a": 4, "0": 3}
    assert three.coded(SPACE, after=2) == {"0": 3, "a": 4} and three.coded(SPACE, after=5) == {}
    assert three.coded(SPACE, ["b"], after=2) == {} == three.coded(SPACE, [])
    np.testing.assert_array_equal(three.vectors([4, 1, 2])[:, 0], [2.5, 0, 1])
    assert three.vectors([]).shape == (0, 0)
    with pytest.raises(ModelFileError, match="a code is missing"):
        three.vectors([1, 77])
    with pytest.raises(ModelFileError, match="code 77 is missing"):
        three.code_digest(77)


def test_many_items_and_labels_are_asked_for_some_at_a_time(log, monkeypatch):
    monkeypatch.setattr(verdicts, "_ASKED", 3)
    names = [f"{number:02}" for number in range(10)]
    codes = {name: [float(number), 1.0] for number, name in enumerate(names)}
    log.append([said(name, name) for name in names], codes, SPACE)
    assert [*log.coded(SPACE, names[::-1])] == names
    assert log.vectors(range(10, 0, -1))[:, 0].tolist() == [*range(9, -1, -1)]
    assert plain(log.standing(names[::-1])) == plain(log.standing())
    assert log.labels_of(range(1, 11)) == {*names}


def test_a_code_that_is_known_is_not_kept_twice(three):
    three.append([said("a")], {"a": np.arange(4.0)}, SPACE)
    with sqlite3.connect(three.file) as database:
        assert database.execute("SELECT count(*) FROM codes").fetchone() == (2,)


# ---- nothing is changed, and changes are noticed ----------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET answer = 0 WHERE number = 1",
        "DELETE FROM events",
        "INSERT OR REPLACE INTO events (number, item) VALUES (1, 'x')",
        "INSERT INTO events (number, item) VALUES (9, 'x')",
        "UPDATE codes SET item = 'x'",
        "DELETE FROM codes WHERE number = 1",
        "REPLACE INTO codes (number, item) VALUES (1, 'x')",
    ],
)
def test_the_file_itself_refuses_changes(three, change):
    database = sqlite3.connect(three.file)
    with pytest.raises(sqlite3.IntegrityError, match="events are"):
        database.execute(change)
    database.close()


def tamper(file, *changes):
    """Change a log as somebody would who means to: without its guards, which are put back."""
    database = sqlite3.connect(file)
    guards = database.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
    ).fetchall()
    for name, _ in guards:
        database.execute(f"DROP TRIGGER {name}")
    for change in changes:
        database.execute(change)
    for _, text in guards:
        database.execute(text)
    database.commit()
    database.close()


def test_codes_that_nobody_wrote_are_refused(three):
    tamper(three.file, "UPDATE codes SET code = x'0000c07f0000000000000000000000ff'")
    with pytest.raises(ModelFileError, match="a code holds what is no number"):
        three.codes(SPACE)
    three.close()
    tamper(three.file, "UPDATE codes SET code = NULL")
    with pytest.raises(ModelFileError, match="a code is missing"):
        three.append([said("z")], {"z": np.ones(4)}, SPACE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE events SET answer = 0 WHERE number = 1", "event 1 is not as it was written"),
        ("UPDATE events SET score = 0.5 WHERE number = 3", "event 3 is not as it was written"),
        ("UPDATE events SET undoes = 1 WHERE number = 4", "event 4 is not as it was written"),
        ("UPDATE events SET digest = zeroblob(32) WHERE number = 2", "event 2 is not as it was"),
        ("DELETE FROM events WHERE number = 2", "event 2 is not as it was written"),
        ("DELETE FROM events WHERE number = 4", "event 4 is missing or not the one"),
        ("DELETE FROM events", "event 4 is missing or not the one"),
        (
            "UPDATE codes SET code = zeroblob(16) WHERE number = 2",
            "code 2 is not as it was written",
        ),
        ("UPDATE codes SET item = 'b' WHERE number = 1", "code 1 is not as it was written"),
        (
            "INSERT INTO events VALUES (5,'x','y',1,NULL,NULL,NULL,NULL,'now',NULL,zeroblob(32))",
            "event 5 is not as it was written",
        ),
    ],
)
def test_what_was_changed_is_noticed(three, change, message):
    head = three.head()
    three.verify(head)
    three.close()
    tamper(three.file, change)
    with pytest.raises(ModelFileError, match=message):
        three.verify(head)


def test_a_head_stays_good_when_the_log_has_grown(three):
    head = three.head()
    three.append([said()])
    three.verify(head)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET item = 3.5 || x'ff' WHERE number = 1",
        "UPDATE events SET item = x'00' WHERE number = 1",
        "UPDATE events SET label = NULL WHERE number = 1",
        "UPDATE events SET answer = 7 WHERE number = 1",
        "UPDATE events SET answer = 'yes' WHERE number = 1",
        "UPDATE events SET score = 9e999 WHERE number = 1",
        "UPDATE events SET rank = 'first' WHERE number = 1",
        "UPDATE events SET who = 3.5 || x'ff' WHERE number = 1",
        "UPDATE events SET time = NULL WHERE number = 1",
        "UPDATE events SET undoes = 3 WHERE number = 1",
        "UPDATE events SET undoes = 'x' WHERE number = 1",
        "UPDATE events SET digest = 3 WHERE number = 4",
        "UPDATE events SET number = 9223372036854775807 WHERE number = 4",
        "DELETE FROM events WHERE number = 1",
    ],
)
def test_rows_that_no_log_writes_are_refused_in_one_sentence(three, change):
    tamper(three.file, change)
    with pytest.raises(ModelFileError, match=r"damaged or were changed \(.*\); put a copy"):
        [*three.events()]
        three.verify()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE codes SET code = zeroblob(3) WHERE number = 1", "differ in length"),
        ("UPDATE codes SET code = 'text' WHERE number = 1", "of another type"),
    ],
)
def test_codes_that_no_log_writes_are_refused(three, change, message):
    tamper(three.file, change)
    with pytest.raises(ModelFileError, match=message):
        three.codes(SPACE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("CREATE TABLE more (x)", "not those of polyseme"),
        ("DROP TABLE codes", "not those of polyseme"),
        ("DROP TRIGGER events_no_delete", "not those of polyseme"),
        ("CREATE VIEW seen AS SELECT 1", "not those of polyseme"),
        (
            "CREATE TRIGGER sly AFTER INSERT ON events BEGIN SELECT load_extension('x'); END",
            "not those of polyseme",
        ),
        ("PRAGMA application_id = 3", "not those of polyseme"),
        ("PRAGMA user_version = 2", "have the format 2, .* reads 1; upgrade polyseme"),
    ],
)
def test_a_database_of_another_form_is_neither_read_nor_written(three, change, message):
    with sqlite3.connect(three.file) as database:
        database.execute(change)
    database.close()
    for use in (three.standing, lambda: three.append([said()]), lambda: three.count):
        with pytest.raises(ModelFileError, match=message):
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
        lambda data: data[:-4096],
        overwritten(0, b"x" * 16),
        overwritten(16, b"\x07\x07"),
        overwritten(100, b"\xff" * 200),
        overwritten(4096, b"\xff" * 4096),
        overwritten(4096, b"\x00" * 4096),
    ],
)
def test_a_damaged_database_is_one_sentence(three, damage):
    three.file.write_bytes(damage(three.file.read_bytes()))
    for use in (three.standing, lambda: three.append([said()]), three.verify):
        with pytest.raises(ModelFileError, match=r"The verdicts at .*verdicts.sqlite"):
            use()


@pytest.mark.parametrize("seed", range(30))
def test_bytes_changed_at_random_are_noticed_or_do_no_harm(three, seed):
    before, rng = [*three.events()], random.Random(seed)
    codes = {item: code.tolist() for item, code in three.codes(SPACE).items()}
    three.close()
    data = bytearray(three.file.read_bytes())
    for _ in range(20):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    three.file.write_bytes(data)
    try:
        three.verify()
        found = [*three.events()], {item: one.tolist() for item, one in three.codes(SPACE).items()}
    except ModelFileError:
        return
    assert found == (before, codes)


@pytest.mark.parametrize("name", ["verdicts.sqlite", "verdicts.sqlite-wal", "verdicts.sqlite-shm"])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_links_pipes_and_folders_are_refused(tmp_path, name, kind):
    model, outside = tmp_path / "model", tmp_path / "outside"
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
    assert logs[0].count == 160 and len(logs[1].standing()) == 160
    logs[0].verify()
    for log in logs:
        log.close()


APPENDER = """
import sys
from polyseme.verdicts import VerdictLog
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
    told, step = {}, 0
    while any(writer.poll() is None for writer in writers):
        step += 1
        save(tmp_path, step)
    for name, writer in zip("ab", writers, strict=True):
        for line in writer.communicate()[0].splitlines():
            number, place = line.split()
            told[int(number)] = f"{name}-{place}"
        assert writer.returncode == 0
    with VerdictLog(tmp_path) as log:
        log.verify()
        assert {one.number: one.item for one in log.events()} == told and len(told) == 80


FORKER = """
import os, sys
from polyseme.verdicts import VerdictLog
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
    rng, told, turns = random.Random(3), {}, 20
    command = [sys.executable, "-c", FORKER, str(turns), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child, left = 0, 0
        for line in parent.stdout:
            what, *words = line.split()
            if what == "child":
                child, left = int(words[0]), rng.randrange(9)
            elif what == "told":
                turn, place, *numbers = words
                parts = zip(numbers, "abc", strict=True)
                told |= {int(number): f"{turn}-{place}-{part}" for number, part in parts}
                left -= 1
            if child and left <= 0:
                time.sleep(rng.uniform(0, 0.03))
                os.kill(child, signal.SIGKILL)
                child = 0
    assert parent.returncode == 0 and len(told) > turns
    with VerdictLog(tmp_path) as log:
        log.verify()
        found = {one.number: one.item for one in log.events()}
        assert told.items() <= found.items()
        batches = [item.rpartition("-")[0] for item in found.values()]
        assert all(batches.count(batch) == 3 for batch in {*batches}), "a batch by halves"
        assert log.codes("s").keys() == {item for item in found.values() if item.endswith("a")}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_with_an_open_log_loses_nothing_when_the_parent_closes_it(tmp_path):
    code = """
import os, sys
from polyseme.verdicts import VerdictLog
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
    found = [one.item for one in VerdictLog(tmp_path).events()]
    assert found == ["parent", "child", "child, alone"]


def test_a_writer_does_not_wait_for_ever(three, monkeypatch):
    monkeypatch.setattr(verdicts, "_WAIT_SECONDS", 0.02)
    other = sqlite3.connect(three.file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(
        ModelFileError, match=r"Another process has been writing .* for 0.02 s; try"
    ):
        three.append([said()])
    assert three.count == 4  # readers do not wait
    other.close()
    assert three.append([said()]) == range(5, 6)


def test_a_log_that_takes_the_place_of_another_is_the_one_that_is_used(three, tmp_path):
    assert three.count == 4
    with VerdictLog(tmp_path / "other.sqlite") as other:
        other.append([FULL])
    for end in ("-wal", "-shm"):
        three.file.with_name(f"verdicts.sqlite{end}").unlink(missing_ok=True)
    other.file.replace(three.file)
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
        with pytest.raises(ModelFileError, match="cannot be opened or written"):
            VerdictLog(folder).append([said()])
    finally:
        folder.chmod(0o700)


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
    assert log.file.stat().st_ino == inode and read_model(model)[0] == {"step": 2}
    assert plain(VerdictLog(model).standing()) == plain([said("before"), said("after")])
    log.close()


def test_a_model_can_be_saved_where_there_are_only_verdicts(three):
    save(three.file.parent, 1)
    remove_model(three.file.parent)
    assert [entry.name for entry in three.file.parent.iterdir()] == ["verdicts.sqlite"]
    save(three.file.parent, 2)
    assert three.count == 4


def test_removing_a_model_leaves_its_verdicts(three):
    save(three.file.parent, 1)
    remove_model(three.file.parent)
    assert three.count == 4


def test_a_copy_has_everything_and_goes_on_with_the_same_numbers(three, tmp_path):
    three.copy_to(tmp_path / "new" / "model")
    other = VerdictLog(tmp_path / "new" / "model")
    assert [*other.events()] == [*three.events()] and other.head() == three.head()
    assert other.codes(SPACE).keys() == three.codes(SPACE).keys()
    three.append([said("d")], {"d": np.ones(4)}, SPACE)
    three.copy_to(other.file.parent)
    assert other.head() == three.head() and "d" in other.codes(SPACE)
    other.verify()
    other.append([said("e")])
    three.copy_to(other.file.parent)  # an earlier copy over a later one takes nothing away
    assert other.count == 6
    other.close()


def test_events_in_memory_are_kept_by_a_copy(tmp_path):
    log = VerdictLog()
    log.append([FULL], {"a.jpg": [1.0, 2.0]}, SPACE)
    log.copy_to(tmp_path)
    with VerdictLog(tmp_path) as kept:
        assert kept.standing() == log.standing() and kept.codes(SPACE)["a.jpg"].tolist() == [1, 2]


def test_nothing_is_copied_from_an_empty_log_or_onto_itself(three, tmp_path):
    VerdictLog().copy_to(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    three.copy_to(three.file)
    VerdictLog().copy_to(three.file)
    assert three.count == 4


@pytest.mark.parametrize("count", [1, 4, 9])
def test_verdicts_of_another_model_are_never_mixed_or_replaced(three, tmp_path, count):
    with VerdictLog(tmp_path / "other.sqlite") as other:
        other.append([said(f"mine {place}") for place in range(count)])
        before = [*other.events()]
        with pytest.raises(
            ModelFileError, match=r"has verdicts of its own, .* choose another path"
        ):
            three.copy_to(other.file)
        assert [*other.events()] == before


def test_answers_that_come_while_somebody_fits_are_kept_beside_what_was_fitted(
    three, tmp_path_factory
):
    """The fit has a copy, to which it adds codes in its space; people go on where it came from."""
    with VerdictLog(tmp_path_factory.mktemp("fitted") / "together.sqlite") as copy:
        three.copy_to(copy.file)
        copy.append([], {"a": [5.0], "b": [6.0]}, "new space")
        three.append([said("d")], {"d": np.zeros(4), "a": np.ones(4)}, SPACE)
        copy.copy_to(three.file)
    three.verify()
    assert plain(three.standing())[-1] == ("d", "canoe", True)
    assert {item: code.tolist() for item, code in three.codes("new space").items()} == {
        "a": [5.0],
        "b": [6.0],
    }
    assert three.codes(SPACE)["a"].tolist() == [1.0] * 4, "not the one that was copied before"


def test_a_copy_is_not_put_into_a_folder_of_something_else(three, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    with pytest.raises(ModelFileError, match="neither empty nor a polyseme model"):
        three.copy_to(tmp_path / "mine")
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["notes.txt"]


# ---- files ------------------------------------------------------------------------------------

ROWS = [
    {"item": "a", "label": "canoe, red", "answer": "yes", "score": 0.5, "rank": 2, "who": "Ännä"},
    {"item": "b", "label": "sea", "answer": "no"},
]
READ = [
    Verdict("a", "canoe, red", True, 0.5, 2, None, "Ännä"),
    Verdict("b", "sea", False),
]


def test_json_lines_are_read_gzipped_or_not(tmp_path):
    text = "\n".join(json.dumps(row) for row in ROWS).encode()
    (tmp_path / "v.jsonl").write_bytes(text)
    (tmp_path / "v.jsonl.gz").write_bytes(gzip.compress(text))
    assert read_verdicts(tmp_path / "v.jsonl") == READ == read_verdicts(tmp_path / "v.jsonl.gz")


@pytest.mark.parametrize("cell", ['"answer": null', '"answer": ""'])
def test_questions_without_an_answer_are_passed_over(tmp_path, cell):
    asked = f'{{"item": "b", "label": "sea", "reason": "likely", {cell}}}\n'
    (tmp_path / "v.jsonl").write_text(asked + '{"item": "a", "label": "sea", "answer": "no"}\n')
    with pytest.warns(PolysemeWarning, match="no answer are passed over: 1") as told:
        assert read_verdicts(tmp_path / "v.jsonl") == [Verdict("a", "sea", False)]
    assert len(told) == 1, "why it was asked is no unknown column"


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "feather"])
def test_tables_are_read_as_pandas_writes_them(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    frame, path = pandas.DataFrame(ROWS), tmp_path / f"v.{suffix}"
    if suffix in ("csv", "tsv"):
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    else:
        pytest.importorskip("pyarrow")
        getattr(frame, f"to_{suffix}")(path)
    assert read_verdicts(path) == READ


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        *[(text, True) for text in ("true", '"yes"', '"Y"', "1", '"1"', '" TRUE "', "1.0")],
        *[(text, False) for text in ("false", '"no"', '"n"', "0", '"0"', '"False"', "0.0")],
    ],
)
def test_an_answer_may_be_said_in_many_ways(tmp_path, text, answer):
    (tmp_path / "v.jsonl").write_text(f'{{"id": 7, "label": "sea", "answer": {text}}}')
    assert read_verdicts(tmp_path / "v.jsonl") == [Verdict("7", "sea", answer)]


GOOD = '{"item": "a", "label": "sea", "answer": true}\n'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"item": "a", "label": "sea", "answer": "perhaps"}', "true or false, yes or no, .*'perh"),
        ('{"item": "a", "label": "sea"}', "as `answer`; got None"),
        ('{"label": "sea", "answer": 1}', "as `item`; got None"),
        ('{"item": true, "label": "sea", "answer": 1}', "as `item`; got True"),
        ('{"item": "a", "answer": 1}', "as `label`; got None"),
        ('{"item": "a", "label": ["sea"], "answer": 1}', "as `label`; got \\['sea'\\]"),
        ('{"item": "a", "label": "sea", "answer": 1, "score": NaN}', "as `score`; got nan"),
        ('{"item": "a", "label": "sea", "answer": 1, "score": "high"}', "as `score`; got 'high'"),
        ('{"item": "a", "label": "sea", "answer": 1, "rank": 1.5}', "as `rank`; got 1.5"),
        ('{"item": "a", "label": "sea", "answer": 1, "time": 5}', "as `time`; got 5"),
        ('["sea"]', "as `answer`; got None"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_a_bad_line_is_told_with_its_number(tmp_path, line, message):
    (tmp_path / "v.jsonl").write_text(GOOD + "\n" + line + "\n" + GOOD)
    with pytest.raises(InputError, match=f"Line 3 of v.jsonl .*{message}"):
        read_verdicts(tmp_path / "v.jsonl")


def test_a_bad_row_of_a_table_is_told_with_its_number(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = [*ROWS, {"item": "c", "label": None, "answer": "no"}]
    pandas.DataFrame(rows).to_parquet(tmp_path / "v.parquet")
    with pytest.raises(InputError, match=r"Row 0 of v.parquet|Row 2 of v.parquet .* as `label`"):
        read_verdicts(tmp_path / "v.parquet")


def test_columns_that_are_not_read_are_told_of(tmp_path):
    (tmp_path / "v.csv").write_text("item,label,answer,Score,number\na,sea,1,0.5,3\n")
    with pytest.warns(PolysemeWarning, match=r"of v.csv that are not read: Score; verdicts have"):
        assert read_verdicts(tmp_path / "v.csv") == [Verdict("a", "sea", True)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("v.jsonl", "There is no file at"),
        (".", "There is no file at"),
        ("v.txt", "Unknown file su"),
    ],
)
def test_a_file_that_cannot_be_verdicts_is_refused(tmp_path, name, message):
    (tmp_path / "v.txt").write_text(GOOD)
    with pytest.raises(InputError, match=message):
        read_verdicts(tmp_path / name)


def test_what_is_written_is_read_again(three, tmp_path):
    standing = three.standing()
    write_verdicts(standing, tmp_path / "v.jsonl")
    assert read_verdicts(tmp_path / "v.jsonl") == [one._replace(number=None) for one in standing]
    assert json.loads((tmp_path / "v.jsonl").read_text().splitlines()[1])["number"] == 3


def test_verdicts_that_cannot_be_written_leave_the_old_file(tmp_path):
    path = tmp_path / "v.jsonl"
    write_verdicts([FULL], path)
    with pytest.raises(InputError, match="Verdict 1 must have a probability"):
        write_verdicts([FULL, FULL._replace(score=7.0)], path)
    assert read_verdicts(path) == [FULL] and [*tmp_path.iterdir()] == [path]
    with pytest.raises(InputError, match=r"are written as .jsonl; got 'v.csv'"):
        write_verdicts([FULL], tmp_path / "v.csv")
    with pytest.raises(InputError, match=r"There is no folder '.*absent'"):
        write_verdicts([FULL], tmp_path / "absent" / "v.jsonl")
