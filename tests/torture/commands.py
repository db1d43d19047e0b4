"""The commands that attacks disturb: their small inputs, and what there must be after them.

`make_base` writes a folder with everything that commands take, files of somebody else among ours.
`COMMANDS` change a copy of it. `State` is what lies there and what our own readers read in it;
`Reference` has it before and after an undisturbed command.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from torture.faults import Ended, Host

_FIT = ["-d", "d.jsonl", "-x", "x.npy", "--validations", "1"]
_SMALL = ["--size", "32", "--depth", "pooled"]
COMMANDS: dict[str, list[str]] = {
    "fit": ["fit", "new", *_FIT],
    "fit again": ["fit", "model", *_FIT],
    "fit --update": ["fit", "next", "--update", "model", *_FIT],
    "add": ["add", "model", "--documents", "more.jsonl"],
    "rename": ["rename", "model", "tag1", "first"],
    "extract": ["extract", "image", "photos", "--out", "new", *_SMALL],
    "extract again": ["extract", "image", "photos", "--out", "numbers", *_SMALL],
    "tag": ["tag", "pictures", "photos", "--sidecars", "--top", "3"],
    "tag --undo": ["tag", "pictures", "tagged", "--undo"],
    "review": ["review", "tagged", "--accept", "*"],
    "rank": ["rank", "model", "shards", "--out", "new"],
    "rank again": ["rank", "model", "shards", "--out", "ranked"],
    "first learn": ["learn", "plain", "answers.jsonl", "-x", "x.npy"],
    "learn": ["learn", "model", "answers.jsonl", "-x", "x.npy"],
    "undo": ["learn", "model", "--undo", "1"],
    "restore": ["@restore", "served", "1"],
    "token": ["token", "tokens.json", "ann"],
}
# Names whose bytes are drawn, or depend on the time; they are read by `seen`.
_OWN_BYTES = re.compile(r"\.polyseme|.*\.sqlite|[0-9]{4}\.json|tokens\.json|plan\.json")
# What SQLite keeps beside a database and looks after itself.
_BESIDE = re.compile(r".*\.sqlite-(wal|shm|journal)")
# What a command may leave, or leave out, until it is run again.
_UNFINISHED = re.compile(
    r"\.[0-9a-f]{16}\.polyseme-tmp|.*\.checkpoint(\..*)?"
    r"|done\.journal|plan\.json|\.polyseme|extraction\.json|cache\.sqlite"
)
_ABSENT = "absent"
# States of a `Reference` in which files may be.
UNTOUCHED, BEGUN, DONE = slice(1), slice(2), slice(1, 2)
_LOADED = ["pydantic", "lxml.etree", "safetensors.numpy", "rich.status", "pillow_heif"]
_LOADED += [f"polyseme.{name}" for name in ("cli.inputs", "cli.postponed", "batch", "space.steps")]
_LOADED += [f"polyseme.{name}" for name in ("io.text_tables", "io.shards", "published.tagger")]
_LOADED += [f"polyseme.{name}" for name in ("media.efficientnet", "media.pictures")]
_LOADED += ["polyseme.studio.app", "polyseme.studio.access", "polyseme.published.index", "uvicorn"]
_LOADED += ["polyseme.studio.routes", "polyseme.studio.annif", "uvicorn.protocols.http.auto"]
_MINE = {"diary.txt": "mine", "thesis.tmp": "mine", f".{'0' * 16}.tmp": "mine"}


# ---------------------------------------------------------------------- in the process of commands


def load_everything() -> None:
    """Import what commands use, and let a fit be a matter of a moment."""
    for name in _LOADED:
        import_module(name)
    import torch
    from PIL import Image
    from sklearn.utils import check_array

    from polyseme import SpacePlan

    torch.set_num_threads(1)
    Image.init()
    check_array(np.eye(2))  # looks for plugins, the first time
    sized = SpacePlan.sized

    def small(self: Any, *sizes: int) -> Any:
        plan = sized(self, *sizes)
        return replace(plan, n_folds=2, hidden=8, code=6, n_steps=4, round_steps=2)

    SpacePlan.sized = small  # type: ignore[method-assign]


def _open(model: str) -> Any:
    from polyseme.studio.host import ModelHost

    return ModelHost(Path(model))


def _restore(model: str, number: str) -> None:
    _open(model).restore(int(number), "ann")


def _rename(model: str, label: str, name: str) -> None:
    _open(model).change("rename", label, "ann", lambda tagger: tagger.rename(label, name))


ACTIONS: dict[str, Callable[..., None]] = {"restore": _restore, "rename": _rename}


# ---------------------------------------------------------------------- inputs


def make_base(host: Host, folder: Path) -> None:
    """Write everything that commands take, by the commands themselves."""
    from PIL import Image

    folder.mkdir()
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.normal(size=(48, 5)))
    labels = [f"tag{number}" for number in range(10)]

    def table(name: str, n_rows: int) -> None:
        rows = ({"labels": rng.choice(labels, 4, replace=False).tolist()} for _ in range(n_rows))
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    table("d.jsonl", 48)
    table("more.jsonl", 3)
    answers = [{"item": str(row), "label": "tag2", "answer": row % 2 == 0} for row in range(6)]
    (folder / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    (folder / "shards").mkdir()
    for number in range(3):
        np.save(folder / "shards" / f"part-{number}.npy", rng.normal(size=(4, 5)))
    for place, count in (("photos", 5), ("tagged", 3)):
        (folder / place).mkdir()
        for number in range(count):
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / place / f"{number}.png")
    tagged = [{"id": f"{n}.png", "labels": [f"tag{n}", f"tag{n + 1}", "tag9"]} for n in range(3)]
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tagged))

    def run(*words: str) -> None:
        ended = host.run(folder, *words)
        if ended.code:
            raise RuntimeError(f"{words}: {ended}")

    run("fit", "plain", *_FIT)
    shutil.copytree(folder / "plain", folder / "model")
    run("learn", "model", "0", "1", "--yes", "tag3", "-x", "x.npy")
    shutil.copytree(folder / "model", folder / "served")
    run("@rename", "served", "tag1", "first")
    run("@rename", "served", "tag2", "second")
    run("extract", "image", "tagged", "--out", "seen", *_SMALL)
    run("fit", "pictures", "-d", "p.jsonl", "-x", "seen", "--validations", "0")
    run("tag", "pictures", "tagged", "--sidecars", "--top", "2")
    (folder / "photos" / "0.png.xmp").write_bytes((folder / "tagged" / "0.png.xmp").read_bytes())
    run("extract", "image", "photos", "--out", "numbers", *_SMALL)
    Image.fromarray(pixels[::-1].copy()).save(folder / "photos" / "later.png")
    run("rank", "model", "shards", "--out", "ranked")
    np.save(folder / "shards" / "part-1.npy", rng.normal(size=(4, 5)))
    run("token", "tokens.json", "bob")
    ours = ("model", "plain", "served", "numbers", "ranked", "photos", "tagged", "shards")
    for place in (folder, *(folder / name for name in ours)):
        for name, text in _MINE.items():
            (place / name).write_text(text)


# ---------------------------------------------------------------------- what there is


@dataclass(frozen=True)
class State:
    """What lies in a folder, by path: digests of bytes, and of what our own readers read there.

    What cannot be read is "refused", with the reason.
    """

    files: dict[str, str]
    seen: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> State:
        """Look at a folder; nothing in it is changed, not even a log that waits to be mended."""
        state = cls({}, {})
        for root, _, names in os.walk(folder):
            digests = {name: _digest(Path(root, name)) for name in names}
            siblings = frozenset(digests.items())
            for name, digest in digests.items():
                if _BESIDE.fullmatch(name):
                    continue
                path = Path(root, name)
                key = path.relative_to(folder).as_posix()
                state.files[key] = "there" if _OWN_BYTES.fullmatch(name) else digest
                for pattern, read in _READERS.items():
                    if re.fullmatch(pattern, name):
                        state.seen[key] = _read(read, path, siblings)
        return state

    def differences(self, other: State) -> dict[str, tuple[str, str]]:
        """Return what this state has and what another has, by path, where these differ."""
        pair_by_name = {}
        mappings = ((self.files, other.files), (self.seen, other.seen))
        for digests, other_digests in mappings:
            for name in sorted({*digests, *other_digests}):
                digest = digests.get(name, _ABSENT)
                other_digest = other_digests.get(name, _ABSENT)
                if digest != other_digest:
                    pair_by_name[name] = (digest, other_digest)
        return pair_by_name


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


_KNOWN: dict[tuple[str, frozenset[tuple[str, str]]], str] = {}


def _read(read: Callable[[Path], Any], file: Path, beside: frozenset[tuple[str, str]]) -> str:
    """Read a file by one of our readers; give a digest of what it holds, or why not.

    `beside` are the files of its folder: the same ones are read once.
    """
    key = file.name, beside
    if key not in _KNOWN:
        try:
            content = read(file)
            text = json.dumps(content, sort_keys=True, default=str).encode()
            _KNOWN[key] = _ABSENT if content is None else hashlib.sha256(text).hexdigest()[:12]
        except ValueError as error:
            _KNOWN[key] = f"refused: {error}"
    return _KNOWN[key]


def _manifest(file: Path) -> Any:
    """Read rankings by their manifest."""
    from polyseme.storage.atomic_files import is_intact, unsealed

    rankings = unsealed(file.read_bytes())
    if rankings is None:
        raise ValueError(f"'{file}' is damaged")
    for entry in rankings["files"]:
        summary = {"sha256": entry["sha256"], "bytes": entry["bytes"]}
        if not is_intact(file.parent / entry["file"], summary):
            raise ValueError(f"'{entry['file']}' is not what the manifest says")
    return rankings


def _model(file: Path) -> Any:
    """Read a model, a version of it, or a checkpoint."""
    from polyseme.storage import model_file

    identity = model_file._identify(file)
    if identity is None:
        raise ValueError(f"'{file}' is no model")
    config, arrays, _ = model_file.read_file(file, identity["kind"].decode())
    return config, {name: _bytes(array) for name, array in arrays.items()}


def _bytes(array: Any) -> str:
    data = np.ascontiguousarray(array)
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    return f"{data.dtype} {data.shape} {digest}"


def _log(file: Path) -> Any:
    from polyseme.feedback.verdict_log import VerdictLog

    with tempfile.TemporaryDirectory(prefix="seen-") as place:
        for database_file in file.parent.glob("verdicts.sqlite*"):
            shutil.copy(database_file, place)
        with VerdictLog(place) as log:
            verdicts = log.standing()
            standing = [[verdict.item, verdict.label, verdict.answer] for verdict in verdicts]
            # One without events is as good as none.
            return [log.count, sorted(standing)] if log.count else None


def _extraction(file: Path) -> Any:
    from polyseme.media import read_extraction

    extraction = read_extraction(file.parent)
    return extraction.ids, extraction.tags, _bytes(extraction.raw), extraction.skipped


def _sidecar(file: Path) -> Any:
    from polyseme.media.xmp import read_sidecar

    return read_sidecar(file)


def _change(file: Path) -> Any:
    """Read which state of a model a version is; who made it is lost where a kill came between."""
    change = json.loads(file.read_bytes())
    return change["number"], change["digest"], change["n_labels"], change["n_documents"]


def _tokens(file: Path) -> Any:
    from polyseme.studio.access import Tokens

    callers = Tokens.read(file)._caller_by_hash.values()
    return sorted(str(caller) for caller in callers)


_READERS: Mapping[str, Callable[[Path], Any]] = {
    r"manifest\.json": _manifest,
    r"(model|[0-9]{4})\.safetensors": _model,
    r"verdicts\.sqlite": _log,
    r"extraction\.json": _extraction,
    r".*\.xmp": _sidecar,
    r"[0-9]{4}\.json": _change,
    r"tokens\.json": _tokens,
}


@dataclass(frozen=True)
class Reference:
    """A command, and the states of its folder before it, after it and after it was run twice."""

    name: str
    words: list[str]
    states: tuple[State, State, State]
    ended: tuple[Ended, Ended]
    seconds: float  # that it takes

    @property
    def is_repeatable(self) -> bool:
        """Whether it does nothing where it has been done before."""
        return self.states[1] == self.states[2]

    def harm(self, folder: Path, states: slice) -> str:
        """Return what is wrong in the folder of a command that was disturbed; empty: nothing.

        `states` are those in which every file may be: one or the other, never anything between.
        """
        now = State.of(folder)
        allowed_states = self.states[states]
        is_under_way = len(allowed_states) > 1
        mappings = (
            (now.files, [state.files for state in allowed_states]),
            (now.seen, [state.seen for state in allowed_states]),
        )
        for digests, allowed_mappings in mappings:
            for name in {*digests}.union(*allowed_mappings):
                digest = digests.get(name, _ABSENT)
                allowed = [mapping.get(name, _ABSENT) for mapping in allowed_mappings]
                if digest.startswith("refused"):
                    return f"{name} is {digest}"
                if digest in allowed or (is_under_way and _is_passing(name, digest)):
                    continue
                return f"{name} is {digest}, in place of {' or '.join(allowed)}"
        return ""

    def harm_after(self, folder: Path, rerun: Ended) -> str:
        """Return what is wrong after the command was run again to its end; empty: nothing."""
        now = State.of(folder)
        before, after, _ = self.states
        if rerun.code:
            # Refused, since it had been done before, it has nothing to write.
            for name in now.files.keys() - after.files.keys():
                if name in before.files or _UNFINISHED.fullmatch(Path(name).name):
                    del now.files[name]
        outcomes = list(zip(self.states[1:], self.ended, strict=True))
        if any(now == state and rerun.code == ended.code for state, ended in outcomes):
            return ""
        error = rerun.err.strip()[-300:]
        description = f"run again it ended with {rerun.code}: {error}"
        if rerun.code not in {ended.code for ended in self.ended}:
            return description
        differences = now.differences(after)
        return f"{description}; beside what an undisturbed one leaves: {differences}"


def _is_passing(name: str, digest: str) -> bool:
    """Return whether a file shows how far a command has come, and nothing else."""
    if name in ("ranked/manifest.json", "ranked/part-1.jsonl"):
        return digest == _ABSENT  # a shard that has changed; the manifest is there when all are
    return any(_UNFINISHED.fullmatch(step) for step in name.split("/"))


# ---------------------------------------------------------------------- one place for all attacks


class Workshop:
    """A process that runs commands, their inputs, and what they do undisturbed."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="torture-")
        self.place = Path(self._place.name).resolve()
        self.host = Host(self.place)
        atexit.register(self.host.close)
        self.base = self.place / "base"
        make_base(self.host, self.base)
        self._references: dict[str, Reference] = {}

    def reference(self, name: str) -> Reference:
        """Run a command undisturbed, twice, unless that was done before."""
        if name not in self._references:
            words = COMMANDS[name]
            with self.copy(words) as folder:
                before = State.of(folder)
                start = time.monotonic()
                first = self.host.run(folder, *words)
                seconds = time.monotonic() - start
                after = State.of(folder)
                second = self.host.run(folder, *words)
                if first.code or not (second.code == 0 or second.sentence()):
                    raise RuntimeError(f"{name}: {first} {second}")
                states = (before, after, State.of(folder))
                foreign = {file for file in before.files if Path(file).name in _MINE}
                removed = foreign - after.files.keys()
                if removed:
                    raise RuntimeError(f"{name} removes what somebody else wrote: {removed}")
                ended = (first, second)
                self._references[name] = Reference(name, words, states, ended, seconds)
        return self._references[name]

    @contextmanager
    def copy(self, *commands: list[str]) -> Iterator[Path]:
        """Return a copy of what the words of commands name, for a while."""
        folder = self.place / "copy"
        folder.mkdir()
        try:
            for word in {*_MINE}.union(*commands):
                source = self.base / word
                # Times are kept: by them files are known that were looked at before.
                if source.is_dir():
                    shutil.copytree(source, folder / word)
                elif source.exists():
                    shutil.copy2(source, folder)
            yield folder
        finally:
            shutil.rmtree(folder)


@cache
def workshop() -> Workshop:
    """Return the one that all attacks of this process share."""
    return Workshop()
