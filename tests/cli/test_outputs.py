"""Outputs never overwrite what a user has: one rule for every file and folder that people name.

A file may be missing, a regular file, or a link to one, which stays a link. A folder may be
missing, empty, or written by polyseme, or a link to such a one. Devices, pipes, sockets, dangling
links and files of other programs are refused before any work, and stay as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from command_files import names
from polyseme import ZeroShotTagger, load
from polyseme.base.validation import InputError
from polyseme.feedback.verdict_files import write_verdicts
from polyseme.feedback.verdict_log import Verdict, VerdictLog
from polyseme.io.shards import write_shards
from polyseme.media.xmp import merge_tags
from polyseme.storage import atomic_files
from polyseme.storage.atomic_files import MARK_FILE, mark_folder, replacing
from polyseme.studio.access import Tokens, new_token

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

State = tuple[int, int, int, int]


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    """Make a device that discards what is written to it, as /dev/null does."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError as error:
        pytest.skip(f"devices cannot be made here ({error.strerror})")


def make_socket(path: Path) -> None:
    # Names of sockets are short.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)


def make_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def make_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


REFUSED = [make_pipe, make_device, make_socket, make_dangling_link, make_link_to_a_pipe]
NO_FILE = [*REFUSED, Path.mkdir]
NO_FOLDER = [*REFUSED, Path.touch]


def name_of(make: Callable[..., object]) -> str:
    return make.__name__.removeprefix("make_").replace("_", " ")


def state(path: Path) -> State:
    """Return what changes when a file is replaced or written to."""
    info = path.lstat()
    return info.st_mode, info.st_ino, info.st_rdev, info.st_mtime_ns


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Check that a file, and the names beside it, stay as they are."""
    before = state(path)
    names_before = names(path.parent)
    yield
    assert state(path) == before
    assert names(path.parent) == names_before


def work(*_: object, **__: object) -> None:
    raise AssertionError("work was done before the output was checked")


@pytest.fixture(scope="module")
def model(toy_tagger, tmp_path_factory) -> Path:
    """A folder with a model, shards, documents and media."""
    folder = tmp_path_factory.mktemp("outputs")
    toy_tagger.save(folder / "model")
    (folder / "shards").mkdir()
    X = np.zeros((4, toy_tagger.n_features_in_))
    np.save(folder / "shards" / "x.npy", X)
    (folder / "documents.jsonl").write_text('["apple", "pear"]\n["pear", "nut"]\n' * 20)
    (folder / "media").mkdir()
    (folder / "media" / "a.png").write_bytes(b"no picture")
    return folder


# ---------------------------------------------------------------------- files that people name


def write_page(run, model: Path, page: Path) -> None:
    """Run `polyseme validate` with missing features, so that it ends at once in any case."""
    words = ("validate", "-x", model / "missing.npy", "-d", model / "missing", "-o", page)
    code, _, stderr = run(*words)
    assert code, "it continued"
    raise InputError(stderr)


def write_demo(run, model: Path, page: Path) -> None:
    demo = pytest.importorskip("polyseme_experiments.demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "load_emoji", work)
        demo.run_demo(page, log=print)


def write_token(run, model: Path, tokens: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    code, _, stderr = run("token", tokens, "ann")
    if code:
        raise InputError(stderr)


def write_exported_verdicts(run, model: Path, file: Path) -> None:
    def verdicts() -> Iterator[Verdict]:
        work()
        yield Verdict("a", "b", True)

    write_verdicts(verdicts(), file)


def write_sidecar(run, model: Path, sidecar: Path) -> None:
    merge_tags(sidecar, ["sea"])


def write_any_file(run, model: Path, file: Path) -> None:
    with replacing(file) as stream:
        work()
        stream.write(b"new")


FILES = {
    "validate --page": (write_page, "page.html"),
    "demo --out": (write_demo, "page.html"),
    "token": (write_token, "tokens.json"),
    "write_verdicts": (write_exported_verdicts, "answers.jsonl"),
    "tag --sidecars": (write_sidecar, "a.jpg.xmp"),
    "every other file": (write_any_file, "file"),
}


@pytest.mark.parametrize("make", NO_FILE, ids=name_of)
@pytest.mark.parametrize(("write", "name"), FILES.values(), ids=FILES)
def test_an_output_that_is_no_regular_file_is_refused_and_unchanged(
    run, model, tmp_path, write, name, make
):
    path = tmp_path / name
    make(path)
    with unchanged(path), pytest.raises(InputError) as refusal:
        write(run, model, path)
    sentence = str(refusal.value)
    assert name in sentence
    assert "missing.npy" not in sentence
    assert "Errno" not in sentence


def replace_page(path: Path) -> None:
    """Write a page as `validate` and `demo` do."""
    with replacing(atomic_files.check_file(path)) as stream:
        stream.write(b"new")


def replace_verdicts(path: Path) -> None:
    write_verdicts([Verdict("a", "b", True)], path)


def replace_token(path: Path) -> None:
    new_token(path, "ann", "read")


@pytest.mark.parametrize("write", [replace_page, replace_verdicts, replace_token], ids=name_of)
def test_through_a_link_the_target_is_replaced_and_the_link_stays(tmp_path, write):
    target = tmp_path / "other" / "file.jsonl"
    target.parent.mkdir()
    write(target)
    inode = target.stat().st_ino
    link = tmp_path / "link.jsonl"
    link.symlink_to(Path("other") / "file.jsonl")
    write(link)
    assert link.is_symlink()
    assert target.stat().st_ino != inode
    assert target.stat().st_size
    assert names(target.parent) == {"file.jsonl"}


def test_a_token_made_through_a_link_is_valid(tmp_path):
    file, link = tmp_path / "tokens.json", tmp_path / "link"
    ann = new_token(file, "ann", "read")
    link.symlink_to(file)
    bob = new_token(link, "bob", "admin")
    tokens = Tokens.read(file)
    assert tokens.caller(ann).name == "ann"
    assert tokens.caller(bob).name == "bob"


@pytest.mark.parametrize("name", ["log", "/dev/stdout", "/proc/self/fd/1"])
def test_the_standard_output_is_refused_as_a_file_to_write(tmp_path, name):
    """In a process of its own, whose standard output is a file."""
    if name != "log" and not Path("/proc/self/fd").is_dir():
        pytest.skip("descriptors have no names here")
    code = "import pathlib, sys; from polyseme.storage.atomic_files import check_file; "
    code += "check_file(pathlib.Path(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "log").open("ab") as stream:
        process = subprocess.run(
            [sys.executable, "-c", code, name],
            stdout=stream,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env=environment,
            text=True,
            check=False,
        )
    assert f"'{name}' is where this command prints" in process.stderr
    assert names(tmp_path) == {"log"}


def test_an_open_file_that_was_deleted_is_not_written(tmp_path):
    file = tmp_path / "gone"
    with file.open("wb") as stream:
        descriptor = Path(f"/proc/self/fd/{stream.fileno()}")
        if not descriptor.exists():
            pytest.skip("descriptors have no names here")
        file.unlink()
        with pytest.raises(InputError, match="is no regular file"):
            atomic_files.check_file(descriptor)


# ---------------------------------------------------------------------- folders that people name


def error_of(result: tuple[int, str, str]) -> str:
    """Return the message of a command that failed."""
    code, _, stderr = result
    return stderr if code else ""


def refusal_of(function: Callable[..., object], *arguments: object) -> str:
    """Return the message of the InputError that a call raises."""
    try:
        function(*arguments)
    except InputError as error:
        return str(error)
    return ""


def fit(run, model: Path, out: Path) -> str:
    return error_of(run("fit", out, "-d", model / "missing.jsonl"))


def block(run, model: Path, out: Path) -> str:
    return error_of(run("block", model / "model", "apple", "--out", out))


def rename(run, model: Path, out: Path) -> str:
    return error_of(run("rename", model / "model", "apple", "fruit", "--out", out))


def add(run, model: Path, out: Path) -> str:
    return error_of(run("add", model / "model", "-d", model / "documents.jsonl", "--out", out))


def rank(run, model: Path, out: Path) -> str:
    return error_of(run("rank", model / "model", model / "shards", "--out", out))


def extract(run, model: Path, out: Path) -> str:
    pytest.importorskip("PIL", reason="needs the extra `image`")
    return error_of(run("extract", "image", model / "media", "--out", out))


def sample(run, model: Path, out: Path) -> str:
    pytest.importorskip("polyseme_experiments")
    return error_of(run("sample", "image", out, "--limit", 2))


def reproduce(run, model: Path, out: Path) -> str:
    pytest.importorskip("polyseme_experiments")
    return error_of(run("reproduce", "fig5", "--quick", "--from-records", "--out", out))


def save(run, model: Path, out: Path) -> str:
    return refusal_of(load(model / "model").save, out)


def cut(run, model: Path, out: Path) -> str:
    return refusal_of(write_shards, np.zeros((4, 2)), out)


def fit_with_checkpoint(run, model: Path, out: Path) -> str:
    tagger = ZeroShotTagger(checkpoint=out, n_validations=0, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("polyseme.space.concept_space.ConceptSpace.fit", work)
        return refusal_of(tagger.fit, np.eye(4), [["a", "b"], ["b"], ["a"], ["b"]])


FOLDER_COMMANDS = [fit, block, rename, add, rank, extract, sample, reproduce, save, cut]


@pytest.mark.parametrize("make", NO_FOLDER, ids=name_of)
@pytest.mark.parametrize("write", [*FOLDER_COMMANDS, fit_with_checkpoint], ids=name_of)
def test_an_output_that_is_no_folder_is_refused_and_unchanged(run, model, tmp_path, write, make):
    path = tmp_path / "out"
    make(path)
    with unchanged(path):
        sentence = write(run, model, path)
    assert f"'{path}'" in sentence
    assert "Errno" not in sentence
    assert "missing.jsonl" not in sentence, "the output is checked before the input"


@pytest.mark.parametrize("write", FOLDER_COMMANDS, ids=name_of)
def test_a_folder_of_another_program_is_refused_and_unchanged(run, model, tmp_path, write):
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    assert "'letter.txt'" in write(run, model, folder)
    assert names(folder) == {"letter.txt"}


@pytest.mark.parametrize("write", [block, add, rank, sample, save, cut], ids=name_of)
def test_new_and_empty_folders_and_links_to_them_can_be_written_twice(run, model, tmp_path, write):
    new, link = tmp_path / "new", tmp_path / "link"
    (tmp_path / "empty").mkdir()
    link.symlink_to("empty")
    for folder in (new, link, new, link):
        assert write(run, model, folder) == ""
        assert names(folder)
    assert link.is_symlink()


# ---------------------------------------------------------------------- files inside our folders


@pytest.mark.parametrize("make", REFUSED, ids=name_of)
@pytest.mark.parametrize("name", ["journal.jsonl", "cache.sqlite", "features.npy", "anything"])
def test_a_marked_folder_with_a_link_or_pipe_is_refused(tmp_path, make, name):
    folder = tmp_path / "out"
    mark_folder(folder, "numbers")
    make(folder / name)
    with unchanged(folder / name), pytest.raises(InputError, match="' must be a regular file"):
        mark_folder(folder, "numbers")


def test_sample_files_are_not_written_through_a_link_to_a_folder(run, tmp_path):
    command = ("sample", "image", tmp_path / "pictures", "--limit", 2)
    code, _, _ = run(*command)
    assert code == 0
    emoji = tmp_path / "pictures" / "noto"
    emoji.rename(tmp_path / "noto")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    emoji.symlink_to(elsewhere)
    code, _, stderr = run(*command)
    assert code == 1
    assert "noto' must be a regular file" in stderr
    assert not names(elsewhere)


@pytest.mark.parametrize("name", ["cache.sqlite", "extraction.json", "files.jsonl", "features.npy"])
def test_an_extraction_does_not_write_through_a_link(run, model, tmp_path, name):
    folder = tmp_path / "out"
    extract(run, model, folder)
    thesis = tmp_path / "thesis"
    thesis.write_text("mine")
    link = folder / name
    link.unlink(missing_ok=True)
    link.symlink_to(thesis)
    assert "must be a regular file" in extract(run, model, folder)
    assert thesis.read_text() == "mine"
    assert link.is_symlink()


@pytest.mark.parametrize("make", REFUSED, ids=name_of)
def test_a_verdict_log_that_is_no_regular_file_is_refused(tmp_path, make):
    log = tmp_path / "verdicts.sqlite"
    make(log)
    before = state(log)
    with pytest.raises(InputError, match="must be a regular file"):
        VerdictLog(log).append([Verdict("a", "b", True)])
    assert state(log) == before


@pytest.mark.parametrize("make", NO_FILE, ids=name_of)
def test_experiment_records_that_are_no_regular_file_are_refused(tmp_path, make):
    records = pytest.importorskip("polyseme_experiments.records")
    file = tmp_path / "hsun.jsonl"
    make(file)
    before = state(file)
    with pytest.raises(InputError, match="must be a regular file"):
        records.RecordStore(tmp_path).find("hsun", "tagger", 0, {})
    assert state(file) == before


@pytest.mark.parametrize("make", [make_pipe, make_device, make_socket, Path.touch], ids=name_of)
def test_a_file_in_place_of_the_folder_of_versions_is_refused(tmp_path, make):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from polyseme.studio.versions import Versions

    make(tmp_path / "versions")
    message = "is a file where versions belong"
    with pytest.raises(InputError, match=message), Versions(tmp_path).writing():
        pass


def test_samples_overwrite_no_file_of_the_user(run, tmp_path):
    pytest.importorskip("polyseme_experiments")
    folder = tmp_path / "photos"
    sample(run, tmp_path, folder)
    mark = json.loads((folder / MARK_FILE).read_bytes())
    assert mark["kind"] == "sample files"
    photo = folder / "mine.jpg"
    photo.write_bytes(b"mine")
    assert sample(run, tmp_path, folder) == ""
    assert photo.read_bytes() == b"mine"
    _, _, stderr = run("sample", "audio", folder)
    assert "is not the file that would be written" in stderr
