"""Model files: exact round trips, refusals in one sentence, and whole models whatever happens."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save

from killed_writers import killed_while_writing
from polyseme import load
from polyseme.base import machine as memory
from polyseme.storage.model_file import (
    FORMAT_NUMBER,
    MODEL_FILE,
    VERDICTS_FILE,
    DamagedModelError,
    ModelFileError,
    check_destination,
    read_digest,
    read_model,
    remove_model,
    write_model,
)

OLD = {"labels": ["jazz", "Köln"], "step": 1}, {"net.w": np.arange(6.0).reshape(2, 3)}
NEW = {"labels": ["folk"], "step": 2}, {"net.w": np.ones((3, 3)), "n": np.array(7)}


def write(path, model):
    return write_model(path, "tagger", *model)


def frozen(arrays):
    """Return arrays in a form that can be compared bit for bit."""
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def same(actual, expected):
    """Return whether two states have the same values, and the same arrays bit for bit."""
    config, arrays = actual
    expected_config, expected_arrays = expected
    if config != expected_config:
        return False
    return frozen(arrays) == frozen(expected_arrays)


def contents(path):
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


@pytest.fixture
def model(tmp_path):
    write(tmp_path / "model", OLD)
    return tmp_path / "model"


# ---- what goes in comes out -------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    data=st.data(), dtype=st.sampled_from(list("?bhiqBHIQefd")), order=st.sampled_from(list("<>"))
)
def test_arrays_of_every_dtype_and_shape_come_back_bit_for_bit(
    tmp_path_factory, data, dtype, order
):
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    array = data.draw(hnp.arrays(np.dtype(dtype).newbyteorder(order), shapes))
    path = tmp_path_factory.mktemp("arrays") / "model"
    write_model(path, "tagger", {}, {"part.array": array, "part.turned": array.T})
    _, arrays_read = read_model(path, "tagger")
    native = array.astype(dtype)
    expected = ({}, {"part.array": native, "part.turned": native.T})
    assert same(({}, arrays_read), expected)
    assert arrays_read["part.array"].flags.writeable


_PLAIN = st.none() | st.booleans() | st.integers() | st.text()
_PLAIN |= st.floats(allow_nan=False, allow_infinity=False)
_NESTED = st.recursive(
    _PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@settings(deadline=None, max_examples=40)
@given(config=st.dictionaries(st.text(), _NESTED, max_size=5))
def test_nested_values_come_back_equal_and_of_equal_type(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("config") / "model"
    write_model(path, "tagger", config, {})
    values, arrays = read_model(path, "tagger")
    assert values == config
    assert arrays == {}
    expected = json.dumps(config, sort_keys=True)
    assert json.dumps(values, sort_keys=True) == expected


def test_the_same_state_gives_the_same_file_and_any_reader_of_safetensors_opens_it(tmp_path):
    arrays = {"z": np.ones(3), "y": np.ones(2, np.int8)}
    reversed_arrays = dict(reversed(arrays.items()))
    config = {"a": "0" * 64}
    first = tmp_path / "1"
    second = tmp_path / "2"
    first_digest = write_model(first, "tagger", config, arrays)
    second_digest = write_model(second, "tagger", config, reversed_arrays)
    assert contents(first) == contents(second)
    assert first_digest == second_digest == read_digest(first)
    loaded = load_file(first / MODEL_FILE)
    assert frozen(loaded) == frozen(arrays)


def test_the_digest_is_that_of_the_file_with_zeros_in_its_place(model):
    data = (model / MODEL_FILE).read_bytes()
    digest = read_digest(model)
    zeroed = data.replace(digest.encode(), b"0" * 64)
    assert hashlib.sha256(zeroed).hexdigest() == digest


@pytest.mark.parametrize(
    ("config", "arrays", "message"),
    [
        ({"a": [0.5, np.nan]}, {}, "cannot be written as JSON: Out of range float"),
        ({"a": np.int64(3)}, {}, "cannot be written as JSON: .*int64"),
        ({"a": "\ud800"}, {}, "cannot be written as JSON: .*surrogates not allowed"),
        ({}, {"x": np.array(["a"])}, "Array 'x' of a model must hold .* got dtype"),
        ({}, {"x": np.array([None])}, "Array 'x' of a model must hold .* got dtype"),
        ({}, {"x": np.ones(2, complex)}, "Array 'x' of a model must hold .* got dtype"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_the_old_model_stays(model, config, arrays, message):
    with pytest.raises(ModelFileError, match=message):
        write_model(model, "tagger", config, arrays)
    assert same(read_model(model, "tagger"), OLD)


# ---- files of others, and changes of others ----------------------------------------------------


def test_overwriting_spares_every_other_file(model):
    user_files = {
        "notes.txt": b"mine",
        VERDICTS_FILE: b"precious",
        f"{VERDICTS_FILE}-wal": b"precious",
    }
    for name, content in user_files.items():
        (model / name).write_bytes(content)
    killed_while_writing(model / MODEL_FILE)
    write(model, NEW)
    assert same(read_model(model, "tagger"), NEW)
    assert contents(model).keys() == {MODEL_FILE, *user_files}
    assert contents(model).items() >= user_files.items()
    remove_model(model)
    assert contents(model) == user_files


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.txt", b"precious"),
        (MODEL_FILE, b"precious"),
        (MODEL_FILE, save({"w": np.ones(3)}, {"format": "pt"})),
        (MODEL_FILE, b""),
    ],
)
def test_a_folder_of_somebody_else_is_left_untouched(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    for change in (write, check_destination):
        with pytest.raises(ModelFileError, match=rf"Refusing to write a model .*{name}"):
            change(tmp_path, *([NEW] if change is write else []))
    remove_model(tmp_path)
    assert contents(tmp_path) == {name: content}


def test_a_link_or_a_folder_in_the_place_of_the_file_is_refused(model):
    outside = model.parent / "outside"
    (model / MODEL_FILE).rename(outside)
    for put in (lambda: (model / MODEL_FILE).symlink_to(outside), (model / MODEL_FILE).mkdir):
        put()
        for use in (lambda: read_model(model, "tagger"), lambda: write(model, NEW)):
            with pytest.raises(ModelFileError, match="must be a regular file"):
                use()
        (model / MODEL_FILE).unlink() if (model / MODEL_FILE).is_symlink() else (
            model / MODEL_FILE
        ).rmdir()
    assert outside.exists()


def test_a_file_or_nothing_is_no_model(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(ValueError, match="is a file"):
        write(tmp_path / "file", NEW)
    with pytest.raises(ModelFileError, match="is a file; choose another path"):
        check_destination(tmp_path / "file" / "below")
    with pytest.raises(ModelFileError, match=r"no polyseme model at .*: this is a file"):
        read_model(tmp_path / "file", "tagger")
    with pytest.raises(ModelFileError, match=r"no polyseme model at .*: no such folder"):
        read_model(tmp_path / "absent", "tagger")
    with pytest.raises(ModelFileError, match=f"is not a polyseme model: it has no {MODEL_FILE}"):
        read_model(tmp_path, "tagger")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "absent"):
        remove_model(path)
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_with_nothing_but_what_lies_beside_a_model_takes_one(tmp_path):
    killed_while_writing(tmp_path / MODEL_FILE)
    (tmp_path / VERDICTS_FILE).write_bytes(b"kept")
    write(tmp_path, NEW)
    assert contents(tmp_path).keys() == {MODEL_FILE, VERDICTS_FILE}


def test_removal_takes_what_a_kill_has_left_and_the_folder(model):
    killed_while_writing(model / MODEL_FILE)
    remove_model(str(model))
    assert list(model.parent.iterdir()) == []


def test_a_model_that_was_changed_since_it_was_loaded_is_not_overwritten(toy_tagger, tmp_path):
    path = tmp_path / "model"
    toy_tagger.save(path)
    first = load(path)
    second = load(path)
    labels = second.classes_.tolist()
    first.block(labels[:1]).save(path)
    first.block(labels[1:2]).save(path)
    second.block(labels[2:3])
    with pytest.raises(ModelFileError, match=r"was changed since it was loaded.*load it again"):
        second.save(path)
    expected_blocked = tuple(labels[:2])
    assert load(path).vocabulary_.blocked == expected_blocked
    second.save(tmp_path / "other")
    load(tmp_path / "other").block(labels[:1]).save(tmp_path / "other")
    with pytest.raises(ModelFileError, match="was changed since it was loaded"):
        second.save(tmp_path / "other")
    remove_model(path)
    second.save(path)
    expected_blocked = tuple(labels[2:3])
    assert load(path).vocabulary_.blocked == expected_blocked


# ---- what is refused on reading ---------------------------------------------------------------


def test_every_changed_byte_and_every_cut_is_noticed(model):
    data = (model / MODEL_FILE).read_bytes()
    for place in range(len(data)):
        (model / MODEL_FILE).write_bytes(
            data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        )
        with pytest.raises(ModelFileError):
            read_model(model, "tagger")
        (model / MODEL_FILE).write_bytes(data[:place])
        with pytest.raises(ModelFileError):
            read_model(model, "tagger")
    (model / MODEL_FILE).write_bytes(data + b"\0")
    with pytest.raises(DamagedModelError, match="is damaged or was changed after it was saved"):
        read_model(model, "tagger")


def sealed(text, data=b"", header=None):
    """Return a file with a digest that fits, whatever is in it."""
    header = {} if header is None else header
    entries = json.dumps(header)[1:]
    separator = "}," if header else "}"
    start = '{"__metadata__":{"polyseme":' + json.dumps(text) + separator + entries
    start_bytes = start.encode()
    start_bytes += b" " * (-len(start_bytes) % 8)
    size = len(start_bytes).to_bytes(8, "little")
    content = size + start_bytes + data
    digest = hashlib.sha256(content).hexdigest()
    return content.replace(b"0" * 64, digest.encode(), 1)


def values(config='{"a":1}', kind="tagger", number=FORMAT_NUMBER):
    start = f'{{"format":{number},"kind":"{kind}","sha256":"{"0" * 64}",'
    return f'{start}"polyseme":"0","config":{config}}}'


def tensor(dtype="F64", shape=(1,), offsets=(0, 8)):
    return {"a": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def test_a_file_made_by_hand_with_a_digest_that_fits_is_read(tmp_path):
    (tmp_path / MODEL_FILE).write_bytes(sealed(values(), bytes(8), tensor()))
    expected = ({"a": 1}, {"a": np.zeros(1)})
    assert same(read_model(tmp_path, "tagger"), expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (sealed(values(config)), "is damaged")
            for config in ("[1]", "3", "NaN", "", "{" * 9, '{"a":' * 100_000)
        ),
        (sealed(values() + "}"), "is damaged"),
        (sealed(values(), bytes(8), tensor("BF16", (4,))), "is damaged"),
        (sealed(values(), bytes(8), tensor("C64")), "is damaged"),
        (sealed(values(), bytes(8), tensor(shape=(2,))), "is damaged"),
        (sealed(values(), bytes(8), tensor(shape=(2**62, 2**62))), "is damaged"),
        (sealed(values(), b"", tensor(shape=(0, 2**80), offsets=(0, 0))), "is damaged"),
        (sealed(values(), bytes(8), tensor(offsets=(-8, 0))), "is damaged"),
        (sealed(values(), bytes(8), tensor(offsets=(8, 16))), "is damaged"),
        (sealed(values(), bytes(16), tensor()), "is damaged"),
        (sealed(values(number=FORMAT_NUMBER + 1)), "was written by another version of polyseme"),
        (sealed(values(kind="cache")), "is a 'cache', but a 'tagger' is wanted"),
        (sealed(values(kind="checkpoint")), "a training that was interrupted; run `polyseme fit`"),
        (sealed(values(kind="training")), "a training that was interrupted; run `polyseme fit`"),
        (sealed(values(kind="../x")), "is not a polyseme model"),
        (b"\xff" * 400, "is not a polyseme model"),
        (b"\x80\x04N.", "is not a polyseme model"),
    ],
)
def test_what_is_forged_is_refused_in_one_sentence(tmp_path, content, message):
    (tmp_path / MODEL_FILE).write_bytes(content)
    with pytest.raises(ModelFileError, match=rf"{MODEL_FILE}.*{message}|holds {message}"):
        read_model(tmp_path, "tagger")


def test_a_file_larger_than_memory_is_refused_unread(model, monkeypatch):
    monkeypatch.setattr(memory, "machine_bytes", lambda: 100)
    with pytest.raises(ValueError, match=r"Reading .* would need .* of memory"):
        read_model(model, "tagger")


# ---- kills and failures at every step ---------------------------------------------------------


class Killed(BaseException):
    """Stands for the death of the process."""


class Steps:
    """Log the file-system steps of a write and raise an error at one of them, counted from 1.

    With `dead` it is raised at every later step, too, so that no handler can tidy up.
    """

    def __init__(self, patch, place, error, dead):
        self.log = []
        self.place, self.error, self.dead = place, error, dead
        for name in ("open", "fsync", "replace", "unlink", "mkdir"):
            patch.setattr(os, name, self._watched(name, getattr(os, name)))

    def _watched(self, name, real):
        def watched(target, *args, **options):
            self.log.append(name)
            step = len(self.log)
            if step == self.place or (self.dead and step > self.place > 0):
                raise self.error
            return real(target, *args, **options)

        return watched


def attempt(path, place=0, error=None, dead=False):
    """Write a model with an error at one step; return the steps taken and what was raised."""
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, place, error, dead)
        try:
            write(path, NEW)
        except (Killed, ModelFileError) as raised:
            return steps.log, raised
    return steps.log, None


def test_a_file_is_on_disk_before_it_is_named_and_its_name_right_after(model):
    steps, error = attempt(model)
    assert error is None
    assert steps[-4:] == ["fsync", "replace", "open", "fsync"]


@pytest.mark.parametrize("dead", [True, False], ids=["killed", "interrupted"])
@pytest.mark.parametrize("first", [OLD, None], ids=["old", "none"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_model(tmp_path, dead, first):
    steps, _ = attempt(tmp_path / "steps")
    for place in range(1, len(steps) + 1):
        path = tmp_path / str(place) / "model"
        if first is not None:
            write(path, first)
        n_before = len(attempt(path, place, Killed(), dead)[0])
        if (path / MODEL_FILE).exists():
            is_new = same(read_model(path, "tagger"), NEW)
            assert is_new or same(read_model(path, "tagger"), OLD)
            assert first is not None or is_new
        assert first is None or (path / MODEL_FILE).exists() or not n_before
        write(path, NEW)
        assert contents(path).keys() == {MODEL_FILE}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_fails_at_any_step_is_one_sentence_and_leaves_a_whole_model(tmp_path, number):
    write(tmp_path / "steps", OLD)
    steps, _ = attempt(tmp_path / "steps")
    for place in range(1, len(steps) + 1):
        path = tmp_path / str(place)
        write(path, OLD)
        _, error = attempt(path, place, OSError(number, os.strerror(number)))
        assert error is None or re.search(r"[^\n]*could not|cannot|Could not", str(error))
        model = read_model(path, "tagger")
        assert same(model, NEW) or (error is not None and same(model, OLD))
        assert contents(path).keys() == {MODEL_FILE}


def test_a_file_system_that_cannot_sync_folders_is_good_enough(model):
    steps, _ = attempt(model)
    write(model, OLD)
    assert attempt(model, len(steps), OSError(errno.EINVAL, "no"))[1] is None
    assert same(read_model(model, "tagger"), NEW)


KILLABLE = """
import os, sys, numpy as np
from polyseme.storage.model_file import write_model
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            array = np.full(50_000, number % 7, dtype=np.float32)
            write_model(line.strip(), "checkpoint", {"number": number % 7}, {"a": array})
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked writer")
def test_a_writer_that_is_really_killed_leaves_a_whole_model(tmp_path):
    path = tmp_path / "m"
    delays = random.Random(5)
    write_model(path, "checkpoint", {"number": 0}, {"a": np.zeros(50_000, dtype=np.float32)})
    command = [sys.executable, "-c", KILLABLE]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as parent:
        for _ in range(12):
            parent.stdin.write(f"{path}\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            time.sleep(delays.uniform(0.002, 0.08))
            os.kill(child, signal.SIGKILL)
            assert parent.stdout.readline() == "dead\n"
            config, arrays = read_model(path, "checkpoint")
            assert (arrays["a"] == config["number"]).all()
        parent.stdin.close()
    write(path, NEW)
    assert contents(path).keys() == {MODEL_FILE}


def test_two_writers_and_a_reader_at_once_see_whole_models_only(tmp_path):
    write(tmp_path, OLD)

    def keep_writing(model):
        for _ in range(25):
            write(tmp_path, model)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(keep_writing, model) for model in (OLD, NEW)]
        while not all(writer.done() for writer in writers):
            model_read = read_model(tmp_path, "tagger")
            assert same(model_read, OLD) or same(model_read, NEW)
        assert [writer.result() for writer in writers] == [None, None]
    assert contents(tmp_path).keys() == {MODEL_FILE}
