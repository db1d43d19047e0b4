"""Model folders: exact round trips, refusals in one sentence, and whole models whatever happens."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from killed_writers import killed_while_writing
from polyseme import persistence
from polyseme.persistence import (
    CORRECTIONS,
    FORMAT_VERSION,
    ModelFileError,
    read_cache,
    read_model,
    remove_model,
    write_cache,
    write_model,
)

ROLES = ["manifest", "config", "arrays"]
# Three small models: a config and arrays each.
OLD = {"labels": ["jazz", "Köln"], "step": 1}, {"net.w": np.arange(6.0).reshape(2, 3)}
NEW = {"labels": ["folk"], "step": 2}, {"net.w": np.ones((3, 3)), "n": np.array(7)}
FIRST = {"step": 0}, {"net.w": np.zeros(4, dtype=np.float32)}


def write(path, model):
    write_model(path, "tagger", *model)


def write_new(path):
    write(path, NEW)


def same(found, expected):
    def frozen(arrays):
        return {name: (one.dtype, one.shape, one.tobytes()) for name, one in arrays.items()}

    return found[0] == expected[0] and frozen(found[1]) == frozen(expected[1])


def contents(path):
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


def file_of(path, role):
    (found,) = path.glob(f"{role}*")
    return found


# What a kill leaves of a payload: it is named after its content.
ABANDONED = f"arrays-{hashlib.sha256(b'abandoned').hexdigest()[:12]}.safetensors"


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk():
    """Leave out what only a power failure could show; the order of steps has its own test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


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
    _, found = read_model(path)
    native = array.astype(dtype)
    assert same(({}, found), ({}, {"part.array": native, "part.turned": native.T}))
    assert found["part.array"].flags.writeable


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
    found, arrays = read_model(path, "tagger")
    assert found == config and arrays == {}
    assert json.dumps(found, sort_keys=True) == json.dumps(config, sort_keys=True)


def test_same_state_gives_the_same_bytes_in_any_order_of_insertion(tmp_path):
    config, arrays = {"b": 1, "a": {"d": 2, "c": 3}}, {"z": np.ones(3), "y": np.ones(2, np.int8)}
    write_model(tmp_path / "1", "tagger", config, arrays)
    write_model(tmp_path / "2", "tagger", {"a": {"c": 3, "d": 2}, "b": 1}, arrays)
    write_model(tmp_path / "3", "tagger", config, dict(reversed(arrays.items())))
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")


def test_overwriting_leaves_no_trace_of_the_old_model_and_spares_foreign_files(model):
    mine = {"notes.txt": b"mine", "arrays-0123456789ab.safetensors": b"mine"}
    mine |= {f".{'0' * 16}.tmp": b"mine"}  # nothing of us is in its name
    for name, content in mine.items():
        (model / name).write_bytes(content)
    (model / ABANDONED).write_bytes(b"abandoned")
    (model / f"manifest.json.{'0' * 16}.tmp").write_bytes(b"abandoned")
    killed_while_writing(model / "manifest.json")
    assert same(read_model(model), OLD)
    write(model, NEW)
    fresh = model.parent / "fresh" / "nested"
    write(fresh, NEW)
    assert contents(model) == {**contents(fresh), **mine}


# ---- what cannot be stored --------------------------------------------------------------------

ENDLESS = {}
ENDLESS["self"] = ENDLESS


@pytest.mark.parametrize(
    ("kind", "config", "arrays", "message"),
    [
        *(
            ("tagger", config, {}, message)
            for config, message in [
                ({"a": [0.5, np.nan]}, r"`config\.a\[1\]` of a model must be finite; got nan"),
                ({"a": {"b": -np.inf}}, r"`config\.a\.b` of a model must be finite; got -inf"),
                ({"a": {3: "x"}}, r"Keys in `config\.a` of a model must be strings; got 3"),
                ({"a": np.int64(3)}, r"`config\.a` of a model must be None, .* got int64"),
                ({"a": {"x"}}, r"`config\.a` of a model must be None, .* got set"),
                ({"a": "\ud800"}, r"cannot be written as JSON: .*surrogates not allowed"),
                (ENDLESS, r"cannot be written as JSON: .*recursion"),
            ]
        ),
        *(
            ("tagger", {}, {"x.y": array}, r"Array 'x.y' of a model must hold .* got dtype")
            for array in (np.array(["a"]), np.array([None]), np.ones(2, complex), np.ones(2, "M8"))
        ),
        *(
            ("tagger", {}, {name: np.ones(1)}, "cannot be the name of an array")
            for name in ("", "__metadata__", "\ud800", "a\nb", 3)
        ),
        *(
            (kind, {}, {}, "`kind` of a model must be a lower-case word")
            for kind in ("", "Tagger", "a/b")
        ),
    ],
)
def test_what_would_be_changed_or_lost_is_refused_by_name(model, kind, config, arrays, message):
    with pytest.raises(ModelFileError, match=message):
        write_model(model, kind, config, arrays)
    assert same(read_model(model), OLD)
    with pytest.raises(ModelFileError, match=message):
        write_model(model.parent / "new", kind, config, arrays)
    assert not (model.parent / "new").exists()


# ---- where it cannot be written or removed ----------------------------------------------------


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
@pytest.mark.parametrize("text", ["precious", '{"format": "other"}', "[]"])
def test_foreign_folders_are_left_untouched(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "arrays-0123456789ab.safetensors").write_text("precious")
    before = contents(tmp_path)
    with pytest.raises(ModelFileError, match=rf"Refusing to write a model .*{name}"):
        write(tmp_path, NEW)
    remove_model(tmp_path)
    assert contents(tmp_path) == before


def test_a_file_or_nothing_is_no_model_and_is_left_as_it_is(tmp_path):
    file, absent = tmp_path / "file", tmp_path / "absent" / "model"
    file.write_text("precious")
    with pytest.raises(ModelFileError, match=r"Cannot write a model to .*this is a file"):
        write(file, NEW)
    with pytest.raises(ModelFileError, match=r"Could not write the model to .*Not a directory"):
        write(file / "below", NEW)
    with pytest.raises(ModelFileError, match=r"no polyseme model at .*: this is a file"):
        read_model(file)
    with pytest.raises(ModelFileError, match=r"no polyseme model at .*: no such folder"):
        read_model(absent)
    for path in (file, file / "below", absent):
        remove_model(path)
    assert file.read_text() == "precious" and not absent.parent.exists()


@pytest.mark.parametrize("change", [write_new, remove_model])
def test_after_a_first_write_that_was_killed_all_goes_on(model, change):
    (model / "manifest.json").rename(model / f"manifest.json.{'a' * 16}.tmp")
    change(model)
    assert not model.exists() if change is remove_model else len(contents(model)) == 3
    write(model, NEW)
    assert same(read_model(model), NEW)


def test_removal_takes_model_abandoned_files_and_folder(model):
    for name in (ABANDONED, f"config-0123456789ab.json.{'0' * 16}.tmp"):
        (model / name).write_bytes(b"abandoned")
    killed_while_writing(model / "manifest.json")
    remove_model(str(model))
    assert list(model.parent.iterdir()) == []


def test_removal_leaves_everything_that_is_not_the_models(model):
    own, outside = set(contents(model)), model.parent / "outside"
    outside.write_text("mine")
    (model / "config.json").write_text("mine")
    (model / "arrays-0123456789ab.safetensors").symlink_to(outside)
    (model / "config-0123456789ab.json").mkdir()
    (model / "runs").mkdir()
    (model / "runs" / "manifest.json").write_text("mine")
    kept = {entry.name for entry in model.iterdir()} - own
    remove_model(model)
    assert {entry.name for entry in model.iterdir()} == kept
    assert (model / "runs" / "manifest.json").read_text() == outside.read_text() == "mine"


def test_removal_through_a_link_leaves_a_folder_that_can_be_written_again(model):
    link = model.parent / "link"
    link.symlink_to(model)
    remove_model(link)
    assert contents(model) == {}
    write(link, NEW)
    assert same(read_model(model), NEW)


# ---- what is refused on reading ---------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
def test_every_single_changed_byte_is_noticed(model, role):
    target = file_of(model, role)
    message = rf"File '{target.name}' of the model at '{model}' does not match its checksum"
    if role == "manifest":
        message = r"checksum|JSON|format|missing|plain name"
    data = target.read_bytes()
    for place in range(len(data)):
        target.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ModelFileError, match=message):
            read_model(model)
    target.write_bytes(data)
    assert same(read_model(model), OLD)


def changed(role, change):
    """Change the bytes of one file."""

    def damage(model):
        target = file_of(model, role)
        target.write_bytes(change(target.read_bytes()))

    return damage


def replaced(role, kind):
    """Put nothing, a link or a folder in a file's place."""

    def damage(model):
        target = file_of(model, role)
        target.rename(model.parent / "elsewhere")
        if kind == "link":
            target.symlink_to(model.parent / "elsewhere")
        elif kind == "folder":
            target.mkdir()

    return damage


def sealed(change):
    """Change the manifest as a forger would, with a checksum that fits again."""

    def dumped(content):
        text = json.dumps(content, ensure_ascii=False, sort_keys=True, indent=1)
        return f"{text}\n".encode()

    def damage(model):
        content = json.loads((model / "manifest.json").read_bytes())
        del content["manifest_sha256"]
        change(content)
        content["manifest_sha256"] = hashlib.sha256(dumped(content)).hexdigest()
        (model / "manifest.json").write_bytes(dumped(content))

    return damage


def says(**values):
    return sealed(lambda content: content.update(values))


def listed(name, summary=None):
    """Name the config file otherwise, or sum it up otherwise."""

    def change(content):
        config = next(known for known in content["files"] if known.startswith("config"))
        honest = content["files"].pop(config)
        content["files"][name or config] = honest if summary is None else summary

    return sealed(change)


def forged(role, data):
    """Replace one payload by other bytes and make the manifest agree."""

    def damage(model):
        file = file_of(model, role)
        file.write_bytes(data)
        summary = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        sealed(lambda content: content["files"].update({file.name: summary}))(model)

    return damage


def tensors(dtype, shape):
    header = {"a": {"dtype": dtype, "shape": [shape], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(8)


NEWER = json.dumps({"format": "polyseme", "format_version": 7, "parts": []}).encode()
UPGRADE = rf"has the format 7, and this version of polyseme reads {FORMAT_VERSION}; upgrade"
DAMAGES = [
    (replaced("manifest", None), "is not a polyseme model: it has no manifest.json"),
    (replaced("config", None), r"File 'config-\w+.json' .* is missing"),
    (replaced("arrays", None), r"File 'arrays-\w+.safetensors' .* is missing"),
    (changed("config", lambda data: data + b"\n"), "is too long"),
    (changed("arrays", lambda data: data + b"\n"), "is too long"),
    (changed("manifest", lambda _: NEWER), UPGRADE),
    (changed("manifest", lambda _: b" " * ((1 << 20) + 1)), r"too large \(1048577 bytes\) to be a"),
    (says(format="other"), r"not a polyseme model: the format .* is 'other'"),
    (says(kind="space"), "is a 'space', but a 'tagger' is wanted"),
    (says(kind="checkpoint"), "holds a training that was interrupted; run `polyseme fit` again"),
]
DAMAGES += [
    (
        changed("manifest", lambda data, kind=kind: data.replace(b'"tagger"', kind)),
        r"File 'manifest.json' .* (checksum|JSON)",
    )
    for kind in (b"NaN", b'"\\ud800"')
]
DAMAGES += [
    (
        changed(role, lambda data, share=share: data[: int(share * len(data))]),
        rf"File '{role}[^']*' of the model .* is .*truncat",
    )
    for role in ROLES
    for share in (0.0, 0.01, 0.5, 0.99)
]
DAMAGES += [
    (replaced(role, kind), rf"File '{role}[^']*' .* is {message}")
    for role in ROLES
    for kind, message in (("link", "a symbolic link"), ("folder", "not a regular file"))
]
DAMAGES += [
    (says(format_version=version), f"invalid format version {version!r}")
    for version in (0, -1, True, 1.0, "1", None)
]
DAMAGES += [
    (listed(name), "not the plain name of a file inside the model")
    for name in ("../secret", "/etc/passwd", "..", "a\\b", "config.json")
]
DAMAGES += [
    (says(files=files), "must name one arrays file and one config file")
    for files in (None, [], {}, {"config-0123456789ab.json": {}})
]
DAMAGES += [
    (listed(None, summary), r"no valid size and checksum for 'config-\w+.json'")
    for summary in ([], {}, {"bytes": "9"}, {"bytes": True})
]
DAMAGES += [
    (forged("config", data), r"File 'config-\w+\.json' .* not a valid JSON object")
    for data in (b"", b"[1]", b'{"a": NaN}', b"\xff{}", b"{" * 9, b'{"a":' * 100_000)
]
DAMAGES += [
    (forged("arrays", data), r"File 'arrays-\w+.* not valid safetensors data")
    for data in (b"", b"\x80\x04N.", b"\xff" * 64, *map(tensors, ("F64", "BF16", "C64"), (2, 4, 1)))
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_what_is_damaged_or_forged_is_refused_in_one_sentence(model, damage, message):
    (model.parent / "secret").write_bytes(file_of(model, "config").read_bytes())
    damage(model)
    with pytest.raises(ModelFileError, match=message):
        read_model(model, "tagger")


# ---- kills and failures at every step ---------------------------------------------------------


class Killed(BaseException):
    """Stands for the death of the process."""


def die():
    raise Killed


def refuse(number):
    def action():
        raise OSError(number, os.strerror(number))

    return action


class Steps:
    """Log the file-system steps of a write and act at one of them, counted from 1.

    With `dead` the action is repeated at every later step, so that no handler can tidy up.
    """

    def __init__(self, patch, place, action, dead):
        self.log = []
        self.place, self.action, self.dead, self.acting = place, action, dead, False
        real_open = Path.open

        def path_open(path, mode="r", **options):
            if mode != "xb":
                return real_open(path, mode, **options)
            self.step(f"create {path.name}")
            return _Stream(real_open(path, mode, buffering=0), self)

        patch.setattr(Path, "open", path_open)
        for name in ("open", "fsync", "replace", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, self._watch(name, getattr(os, name)))

    def _watch(self, name, real):
        def watched(target, *args, **options):
            if name == "fsync":
                folder = stat.S_ISDIR(os.fstat(target).st_mode)
                self.step(f"fsync {'folder' if folder else 'file'}")
            else:
                self.step(f"{name} {Path(args[0] if name == 'replace' else target).name}")
            return real(target, *args, **options)

        return watched

    def step(self, name):
        if self.acting:
            return
        self.log.append(name)
        if len(self.log) == self.place or (self.dead and len(self.log) > self.place > 0):
            self.acting = True
            try:
                self.action()
            finally:
                self.acting = False


class _Stream:
    """A file whose every write is two steps, so that a kill can fall between them."""

    def __init__(self, stream, steps):
        self.stream, self.steps = stream, steps

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stream.close()

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, data):
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            self.steps.step("write")
            self.stream.write(half)


def attempt(path, place=0, action=die, dead=False, job=write_new):
    """Do the job with something happening at one step; return the steps taken and the error."""
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, place, action, dead)
        try:
            job(path)
        except (Killed, ModelFileError) as error:
            return steps.log, error
    return steps.log, None


def at_every_step(tmp_path, action=die, dead=False, job=write_new, first=OLD):
    """Attempt the job, mostly on a model that is there, once for each of its steps.

    Yields what is done at the step, whether it comes after the one that counts, the path and the
    error.
    """
    paths = [tmp_path / str(place) / "model" for place in range(100)]
    for path in paths if first else ():
        write(path, first)
    steps, error = attempt(paths[0], job=job)
    assert error is None
    decisive = steps.index(f"{'unlink' if job is remove_model else 'replace'} manifest.json")
    for place, step in enumerate(steps, 1):
        error = attempt(paths[place], place, action, dead, job)[1]
        yield step, place > decisive + 1, paths[place], error


def test_every_file_is_on_disk_before_it_is_named_and_old_ones_go_last(model):
    steps = [re.sub(r"-\w{12}|\.\w{16}\.tmp", "", step) for step in attempt(model)[0]]
    put = ["write", "write", "fsync file"]
    assert steps == [
        "open model",
        *["create config.json", *put, "replace config.json"],
        *["create arrays.safetensors", *put, "replace arrays.safetensors"],
        *["open model", "fsync folder"],
        *["create manifest.json", *put, "replace manifest.json"],
        *["open model", "fsync folder"],
        *steps[-2:],
    ]
    assert set(steps[-2:]) == {"unlink config.json", "unlink arrays.safetensors"}


@pytest.mark.parametrize("change", [write_new, remove_model])
def test_no_step_of_a_change_touches_verdicts(model, change):
    names = [*(f"verdicts.sqlite{end}" for end in ("", "-wal", "-shm")), "corrections.cache"]
    for name in names:
        (model / name).write_bytes(b"precious")
    steps, error = attempt(model, job=change)
    assert error is None and not [step for step in steps if "verdicts" in step]
    assert all((model / name).read_bytes() == b"precious" for name in names)


@pytest.mark.parametrize("dead", [True, False], ids=["killed", "interrupted"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_model(tmp_path, dead):
    for _, published, path, error in at_every_step(tmp_path, die, dead):
        assert isinstance(error, Killed)
        assert same(read_model(path, "tagger"), NEW if published else OLD)
        assert dead or not list(path.glob("*.tmp"))
        write(path, FIRST)
        assert same(read_model(path), FIRST)
        assert len(contents(path)) == 3


def test_a_kill_during_the_first_write_leaves_no_model_or_a_whole_one(tmp_path):
    for _, published, path, _ in at_every_step(tmp_path, die, dead=True, first=None):
        if published:
            assert same(read_model(path), NEW)
        else:
            with pytest.raises(ModelFileError, match=r"no such folder|no manifest\.json"):
                read_model(path)
        write(path, NEW)
        assert len(contents(path)) == 3


def test_a_full_disk_at_any_step_leaves_a_whole_model_and_no_litter(tmp_path):
    write(tmp_path / "old", OLD)
    before = contents(tmp_path / "old")
    for step, published, path, error in at_every_step(tmp_path, refuse(errno.ENOSPC)):
        if not published:
            assert re.search(r"Could not write the model .*: No space left", str(error))
            assert contents(path) == before
        else:
            assert same(read_model(path), NEW)
            tidying = step.startswith("unlink")
            assert (error is None) if tidying else "could not confirm" in str(error)
            # Unconfirmed, the old files must stay: a power failure may bring the old manifest back.
            assert tidying or before.keys() <= contents(path).keys()


def test_a_file_system_that_cannot_sync_folders_is_good_enough(model):
    place = attempt(model)[0].index("fsync folder") + 1
    write(model, OLD)
    assert attempt(model, place, refuse(errno.EINVAL))[1] is None
    assert same(read_model(model), NEW)


def test_a_kill_during_removal_leaves_the_whole_model_or_none(tmp_path):
    order = []
    for step, removed, path, error in at_every_step(tmp_path, die, dead=True, job=remove_model):
        order.append(step)
        assert isinstance(error, Killed)
        if removed:
            with pytest.raises(ModelFileError, match=r"no manifest\.json"):
                read_model(path)
        else:
            assert same(read_model(path), OLD)
        remove_model(path)
        assert not path.exists()
    assert order[-6:-3] == ["unlink manifest.json", "open model", "fsync folder"]
    assert order[-1] == "rmdir model"


def test_a_file_that_cannot_be_removed_is_reported_and_a_folder_that_cannot_stays(tmp_path):
    steps = at_every_step(tmp_path, refuse(errno.EACCES), job=remove_model)
    for step, _, path, error in steps:
        if step.startswith("unlink"):
            assert re.search(r"Could not remove the model at .*: Permission denied", str(error))
        elif step.startswith("rmdir"):
            assert error is None and contents(path) == {}


KILLABLE = """
import os, sys, numpy as np
from polyseme.persistence import write_model
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
    path, delays = tmp_path / "m", random.Random(5)
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
    assert len(contents(path)) == 3


# ---- several at once --------------------------------------------------------------------------


def test_two_writers_and_a_reader_at_once_see_whole_models_only(tmp_path):
    write(tmp_path, OLD)

    def keep_writing(model):
        for _ in range(25):
            write(tmp_path, model)

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(keep_writing, model) for model in (OLD, NEW)]
        while not all(writer.done() for writer in writers):
            found = read_model(tmp_path)
            assert same(found, OLD) or same(found, NEW)
        assert [writer.result() for writer in writers] == [None, None]
    assert len(contents(tmp_path)) == 3


def test_a_second_writer_at_any_step_does_no_harm_without_locks(tmp_path, monkeypatch):
    @contextmanager
    def no_lock(directory):
        yield False

    monkeypatch.setattr(persistence, "_write_lock", no_lock)
    paths = (tmp_path / str(place) / "model" for place in range(1, 100))
    for _, published, path, error in at_every_step(tmp_path, lambda: write(next(paths), FIRST)):
        assert error is None
        assert same(read_model(path), FIRST if published else NEW)


def test_a_reader_overtaken_by_a_writer_gets_the_new_model(model, monkeypatch):
    check = persistence._check_manifest
    pending = [FIRST, NEW]

    def overtaken(directory, raw):
        if pending:
            write(model, pending.pop(0))
        return check(directory, raw)

    monkeypatch.setattr(persistence, "_check_manifest", overtaken)
    assert same(read_model(model), NEW)
    pending.extend([OLD, NEW] * 50)
    with pytest.raises(ModelFileError, match="was replaced 20 times while it was being read"):
        read_model(model)


def test_a_writer_does_not_wait_for_ever(model, monkeypatch):
    monkeypatch.setattr(persistence, "_LOCK_SECONDS", 0.02)
    with persistence._write_lock(model) as locked:
        if not locked:
            pytest.skip("this file system has no locks")
        for change in (write_new, remove_model):
            with pytest.raises(ModelFileError, match=r"locked by another writer for 0.02 s"):
                change(model)
    assert same(read_model(model), OLD)
    write(model, NEW)
    assert same(read_model(model), NEW)


# ------------------------------------------------------------------ what can be made again


def test_a_cache_comes_back_as_it_was_and_is_replaced_as_a_whole(tmp_path):
    file = tmp_path / "some.cache"
    assert read_cache(file) == {}
    for arrays in ({"a": np.arange(6.0).reshape(2, 3)}, {"b": np.zeros(0, dtype=np.uint8)}):
        write_cache(file, arrays)
        found = read_cache(file)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    assert [entry.name for entry in tmp_path.iterdir()] == ["some.cache"]


def test_every_change_of_a_byte_makes_a_cache_worth_nothing(tmp_path):
    file = tmp_path / "some.cache"
    write_cache(file, {"a": np.arange(3.0)})
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert read_cache(file) == {}
        file.write_bytes(data[:place])
        assert read_cache(file) == {}


def test_a_cache_that_cannot_be_written_is_none_and_breaks_nothing(tmp_path):
    write_cache(tmp_path / "nowhere" / "some.cache", {"a": np.arange(3.0)})
    (tmp_path / "folder.cache").mkdir()
    write_cache(tmp_path / "folder.cache", {"a": np.arange(3.0)})
    assert read_cache(tmp_path / "folder.cache") == {}
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder.cache"]


def test_a_folder_with_nothing_but_what_lies_beside_a_model_takes_one(tmp_path):
    killed_while_writing(tmp_path / CORRECTIONS)
    write_cache(tmp_path / CORRECTIONS, {"a": np.arange(3.0)})
    assert [one.name for one in tmp_path.iterdir()] == [CORRECTIONS], "what the kill left is swept"
    write(tmp_path, FIRST)
    assert same(read_model(tmp_path), FIRST)
    assert read_cache(tmp_path / CORRECTIONS).keys() == {"a"}


def test_a_cache_sweeps_what_a_kill_has_left_of_another(tmp_path):
    killed_while_writing(tmp_path / CORRECTIONS)
    (tmp_path / "mine.tmp").write_text("mine")
    write_cache(tmp_path / CORRECTIONS, {"a": np.arange(3.0)})
    assert {one.name for one in tmp_path.iterdir()} == {CORRECTIONS, "mine.tmp"}
