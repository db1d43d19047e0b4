"""Model directories under kills, failures and several writers: the old model or the new one."""

from __future__ import annotations

import errno
import os
import random
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyseme import persistence
from polyseme.persistence import ModelFileError, read_model, remove_model, write_model
from saved_models import FIRST, NEW, OLD, Model, contents, same, write

Action = Callable[[], object]


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Leave out what only a power failure could show; the order of steps has its own test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    write(path, OLD)
    return path


# ---- kills and failures at every step ---------------------------------------------------------


class Killed(BaseException):
    """Stands for the death of the process."""


def die() -> None:
    raise Killed


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Steps:
    """Log the file-system steps of a write and act at one of them, counted from 1.

    With `dead` the action is repeated at every later step, so that no handler can tidy up.
    """

    def __init__(self, patch: pytest.MonkeyPatch, at: int, action: Action, dead: bool) -> None:
        self.log: list[str] = []
        self._at, self._action, self._dead, self._acting = at, action, dead, False
        real_open = Path.open

        def path_open(path: Path, mode: str = "r", **options: Any) -> Any:
            if mode != "xb":
                return real_open(path, mode, **options)
            self.step(f"create {path.name}")
            return _Stream(real_open(path, mode, buffering=0), self)

        patch.setattr(Path, "open", path_open)
        for name in ("open", "fsync", "replace", "unlink", "mkdir", "rmdir"):
            patch.setattr(os, name, self._watch(name, getattr(os, name)))

    def _watch(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(target: Any, *args: Any, **options: Any) -> Any:
            if name == "fsync":
                folder = stat.S_ISDIR(os.fstat(target).st_mode)
                self.step(f"fsync {'folder' if folder else 'file'}")
            else:
                self.step(f"{name} {Path(args[0] if name == 'replace' else target).name}")
            return real(target, *args, **options)

        return watched

    def step(self, name: str) -> None:
        if self._acting:
            return
        self.log.append(name)
        if len(self.log) == self._at or (self._dead and len(self.log) > self._at > 0):
            self._acting = True
            try:
                self._action()
            finally:
                self._acting = False


class _Stream:
    """A file whose every write is two steps, so that a kill can fall between them."""

    def __init__(self, stream: Any, steps: Steps) -> None:
        self._stream, self._steps = stream, steps

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: bytes) -> None:
        for half in (data[: len(data) // 2], data[len(data) // 2 :]):
            self._steps.step("write")
            self._stream.write(half)


def write_new(path: Path) -> None:
    write(path, NEW)


def attempt(
    path: Path,
    at: int,
    action: Action = die,
    dead: bool = False,
    job: Callable[[Path], None] = write_new,
) -> tuple[list[str], BaseException | None]:
    """Do the job with something happening at one step; return the steps taken and the error."""
    with pytest.MonkeyPatch.context() as patch:
        steps = Steps(patch, at, action, dead)
        try:
            job(path)
        except (Killed, ModelFileError) as error:
            return steps.log, error
    return steps.log, None


def all_steps(path: Path) -> list[str]:
    """Return the steps of an undisturbed overwriting of OLD by NEW."""
    write(path, OLD)
    return attempt(path, 0)[0]


def test_every_file_is_on_disk_before_it_is_named_and_old_ones_go_last(tmp_path: Path) -> None:
    steps = [re.sub(r"-\w{12}|\.\w{16}\.tmp", "", step) for step in all_steps(tmp_path / "m")]
    put = ["write", "write", "fsync file"]
    assert steps == [
        "open m",
        *["create config.json", *put, "replace config.json"],
        *["create arrays.safetensors", *put, "replace arrays.safetensors"],
        *["open m", "fsync folder"],
        *["create manifest.json", *put, "replace manifest.json"],
        *["open m", "fsync folder"],
        *steps[-2:],
    ]
    assert set(steps[-2:]) == {"unlink config.json", "unlink arrays.safetensors"}


@pytest.mark.parametrize("dead", [True, False], ids=["killed", "interrupted"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_model(tmp_path: Path, dead: bool) -> None:
    steps = all_steps(tmp_path / "0")
    published = steps.index("replace manifest.json") + 1
    for at in range(1, len(steps) + 1):
        path = tmp_path / str(at)
        write(path, OLD)
        _, error = attempt(path, at, die, dead)
        assert isinstance(error, Killed)
        assert same(read_model(path, "tagger"), NEW if at > published else OLD)
        assert dead or not list(path.glob("*.tmp"))
        write(path, FIRST)
        assert same(read_model(path), FIRST)
        assert len(contents(path)) == 3


def test_a_kill_during_the_first_write_leaves_no_model_or_a_whole_one(tmp_path: Path) -> None:
    steps, _ = attempt(tmp_path / "0" / "model", 0)
    published = steps.index("replace manifest.json") + 1
    for at in range(1, len(steps) + 1):
        path = tmp_path / str(at) / "model"
        attempt(path, at, die, dead=True)
        if at > published:
            assert same(read_model(path), NEW)
        else:
            with pytest.raises(ModelFileError, match=r"no such folder|no manifest\.json"):
                read_model(path)
        write(path, NEW)
        assert len(contents(path)) == 3


def test_a_full_disk_at_any_step_leaves_a_whole_model_and_no_litter(tmp_path: Path) -> None:
    steps = all_steps(tmp_path / "0")
    published = steps.index("replace manifest.json") + 1
    for at in range(1, len(steps) + 1):
        path = tmp_path / str(at)
        write(path, OLD)
        before = contents(path)
        _, error = attempt(path, at, disk_full)
        if at <= published:
            assert re.search(r"Could not write the model .*: No space left", str(error))
            assert contents(path) == before
        else:
            assert same(read_model(path), NEW)
            tidying = steps[at - 1].startswith("unlink")
            assert (error is None) if tidying else "could not confirm" in str(error)
            # Unconfirmed, the old files must stay: a power failure may bring the old manifest back.
            assert tidying or before.keys() <= contents(path).keys()


def test_a_file_system_that_cannot_sync_folders_is_good_enough(tmp_path: Path) -> None:
    def refuse() -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    at = all_steps(tmp_path / "m").index("fsync folder") + 1
    write(tmp_path / "m", OLD)
    assert attempt(tmp_path / "m", at, refuse)[1] is None
    assert same(read_model(tmp_path / "m"), NEW)


def test_a_kill_during_removal_leaves_the_whole_model_or_none(tmp_path: Path) -> None:
    write(tmp_path / "0", OLD)
    steps, _ = attempt(tmp_path / "0", 0, job=remove_model)
    removed = steps.index("unlink manifest.json") + 1
    assert steps[removed : removed + 2] == ["open 0", "fsync folder"]
    assert steps[-1] == "rmdir 0" and len(steps) == removed + 5
    for at in range(1, len(steps) + 1):
        path = tmp_path / str(at)
        write(path, OLD)
        _, error = attempt(path, at, die, dead=True, job=remove_model)
        assert isinstance(error, Killed)
        if at <= removed:
            assert same(read_model(path), OLD)
        else:
            with pytest.raises(ModelFileError, match=r"no manifest\.json"):
                read_model(path)
        remove_model(path)
        assert not path.exists()


def test_a_file_that_cannot_be_removed_is_reported_and_a_folder_that_cannot_stays(
    tmp_path: Path,
) -> None:
    def refuse() -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    write(tmp_path / "0", OLD)
    steps, _ = attempt(tmp_path / "0", 0, job=remove_model)
    for at, step in enumerate(steps, 1):
        path = tmp_path / str(at)
        write(path, OLD)
        _, error = attempt(path, at, refuse, job=remove_model)
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
def test_a_writer_that_is_really_killed_leaves_a_whole_model(tmp_path: Path) -> None:
    path, delays = tmp_path / "m", random.Random(5)
    write_model(path, "checkpoint", {"number": 0}, {"a": np.zeros(50_000, dtype=np.float32)})
    command = [sys.executable, "-c", KILLABLE]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as parent:
        assert parent.stdin is not None and parent.stdout is not None
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


def test_two_writers_and_a_reader_at_once_see_whole_models_only(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    faults: list[Exception] = []

    def keep_writing(model: Model) -> None:
        try:
            for _ in range(25):
                write(tmp_path, model)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=keep_writing, args=(model,)) for model in (OLD, NEW)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        got = read_model(tmp_path)
        assert same(got, OLD) or same(got, NEW)
    assert faults == []
    assert len(contents(tmp_path)) == 3


def test_a_second_writer_at_any_step_does_no_harm_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def no_lock(directory: Path) -> Iterator[bool]:
        yield False

    monkeypatch.setattr(persistence, "_write_lock", no_lock)
    steps = all_steps(tmp_path / "0")
    published = steps.index("replace manifest.json") + 1
    for at in range(1, len(steps) + 1):
        path = tmp_path / str(at)
        write(path, OLD)
        _, error = attempt(path, at, partial(write, path, FIRST))
        assert error is None
        assert same(read_model(path), FIRST if at > published else NEW)


def test_a_reader_overtaken_by_a_writer_gets_the_new_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = persistence._check_manifest
    pending = [FIRST, NEW]

    def overtaken(directory: Path, raw: bytes) -> dict[str, Any]:
        if pending:
            write(model, pending.pop(0))
        return check(directory, raw)

    monkeypatch.setattr(persistence, "_check_manifest", overtaken)
    assert same(read_model(model), NEW)
    pending.extend([OLD, NEW] * 50)
    with pytest.raises(ModelFileError, match="was replaced 20 times while it was being read"):
        read_model(model)


def test_a_writer_does_not_wait_for_ever(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "_LOCK_SECONDS", 0.02)
    with persistence._write_lock(model) as locked:
        if not locked:
            pytest.skip("this file system has no locks")
        with pytest.raises(ModelFileError, match=r"locked by another writer for 0.02 s"):
            write(model, NEW)
        with pytest.raises(ModelFileError, match=r"locked by another writer for 0.02 s"):
            remove_model(model)
    assert same(read_model(model), OLD)
    write(model, NEW)
    assert same(read_model(model), NEW)
