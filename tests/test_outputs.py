"""What is written where something else stands already: one rule for everything that people name.

A file that is named may be missing, a regular file, or a link to one, which stays a link. A folder
may be missing, empty, or ours, or a link to such a one. Devices, pipes, sockets, links to nothing
and whatever somebody else made are refused, before any work, and stay as they are.
"""

from __future__ import annotations

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

from polyseme import ZeroShotTagger
from polyseme._validation import InputError
from polyseme.io import folders
from polyseme.io.folders import MARK, mark_folder, replacing
from polyseme.io.shards import write_shards
from polyseme.io.xmp import merge_tags
from polyseme.serve.access import Tokens, new_token
from polyseme.verdict_files import write_verdicts
from polyseme.verdicts import Verdict, VerdictLog

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

State = tuple[int, int, int, int]


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    """A node of its own that swallows what is written to it, as /dev/null does."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError as error:
        pytest.skip(f"devices cannot be made here ({error.strerror})")


def make_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)


def make_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def make_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


REFUSED = [make_pipe, make_device, make_socket, make_dangling_link, make_link_to_a_pipe]
NO_FILE = [*REFUSED, Path.mkdir]
NO_FOLDER = [*REFUSED, Path.touch]


def name_of(make: Callable[[Path], None]) -> str:
    return make.__name__.removeprefix("make_").replace("_", " ")


def state(path: Path) -> State:
    """What changes when something is replaced or written to."""
    info = path.lstat()
    return info.st_mode, info.st_ino, info.st_rdev, info.st_mtime_ns


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def work(*_: object, **__: object) -> None:
    raise AssertionError("work was done before the output was looked at")


@pytest.fixture(scope="module")
def model(toy_tagger, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    toy_tagger.save(folder / "model")
    np.save(folder / "x.npy", np.zeros((40, toy_tagger.n_features_in_)))
    (folder / "shards").mkdir()
    np.save(folder / "shards" / "x.npy", np.zeros((4, toy_tagger.n_features_in_)))
    (folder / "documents.jsonl").write_text('["apple", "pear"]\n["pear", "nut"]\n' * 20)
    (folder / "media").mkdir()
    (folder / "media" / "a.png").write_bytes(b"no picture")
    return folder


# ---------------------------------------------------------------------- files that people name


def write_page(run, model: Path, page: Path) -> None:
    """`polyseme validate`; refused or not, its features are missing, so that it ends at once."""
    code, _, err = run("validate", "-x", model / "missing.npy", "-d", model / "missing", "-o", page)
    raise InputError(err) if code else AssertionError("it went on")


def write_demo(run, model: Path, page: Path) -> None:
    demo = pytest.importorskip("polyseme_experiments.demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "load_emoji", work)
        demo.run_demo(page, log=print)


def write_token(run, model: Path, tokens: Path) -> None:
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    code, _, err = run("token", tokens, "ann")
    if code:
        raise InputError(err)


def write_answers(run, model: Path, file: Path) -> None:
    def verdicts() -> Iterator[Verdict]:
        work()
        yield Verdict("a", "b", True)

    write_verdicts(verdicts(), file)


def write_sidecar(run, model: Path, sidecar: Path) -> None:
    merge_tags(sidecar, ["sea"])


def write_whole(run, model: Path, file: Path) -> None:
    with replacing(file) as stream:
        work()
        stream.write(b"new")


FILES = {
    "validate --page": (write_page, "page.html"),
    "demo --out": (write_demo, "page.html"),
    "token": (write_token, "tokens.json"),
    "write_verdicts": (write_answers, "answers.jsonl"),
    "tag --sidecars": (write_sidecar, "a.jpg.xmp"),
    "every other file": (write_whole, "file"),
}


@pytest.mark.parametrize("make", NO_FILE, ids=name_of)
@pytest.mark.parametrize(("write", "name"), FILES.values(), ids=FILES)
def test_what_is_no_file_is_refused_and_left_alone(run, model, tmp_path, write, name, make):
    place = tmp_path / name
    make(place)
    before, beside = state(place), names(tmp_path)
    with pytest.raises(InputError) as refused:
        write(run, model, place)
    sentence = str(refused.value)
    assert name in sentence and "missing.npy" not in sentence and "Errno" not in sentence
    assert state(place) == before and names(tmp_path) == beside


def page_of(place: Path) -> None:
    """Write a page as `validate` and `demo` do once they have it."""
    with replacing(folders.check_file(place)) as stream:
        stream.write(b"new")


def answers_of(place: Path) -> None:
    write_verdicts([Verdict("a", "b", True)], place)


@pytest.mark.parametrize(
    "write", [page_of, answers_of, lambda place: new_token(place, "ann", "read")]
)
def test_of_a_link_the_file_that_it_leads_to_is_replaced_and_the_link_stays(tmp_path, write):
    (tmp_path / "other").mkdir()
    target, link = tmp_path / "other" / "file.jsonl", tmp_path / "link.jsonl"
    write(target)
    before = target.stat().st_ino
    link.symlink_to(Path("other") / "file.jsonl")
    write(link)
    assert link.is_symlink() and target.stat().st_ino != before and target.stat().st_size
    assert names(tmp_path / "other") == {"file.jsonl"}


def test_a_token_made_through_a_link_is_known_to_the_service(tmp_path):
    first = new_token(tmp_path / "tokens.json", "ann", "read")
    (tmp_path / "link").symlink_to("tokens.json")
    second = new_token(tmp_path / "link", "bob", "admin")
    tokens = Tokens.read(tmp_path / "tokens.json")
    assert [tokens.caller(token).name for token in (first, second)] == ["ann", "bob"]


@pytest.mark.parametrize("content", ["", "{}", "dear diary"])
def test_a_foreign_file_is_no_file_of_tokens_and_is_not_touched(tmp_path, content):
    file = tmp_path / "letter"
    file.write_text(content)
    os.utime(file, (1, 1))
    before = state(file)
    with pytest.raises(InputError, match="is no file of tokens"):
        new_token(file, "ann", "read")
    assert state(file) == before and file.read_text() == content


@pytest.mark.parametrize("name", ["log", "/dev/stdout", "/proc/self/fd/1"])
def test_where_a_command_prints_no_file_is_written(tmp_path, name):
    """In a process of its own, whose standard output is a file."""
    if name != "log" and not Path("/proc/self/fd").is_dir():
        pytest.skip("descriptors have no names here")
    code = f"from pathlib import Path; from polyseme.io.folders import check_file as c; c(Path('{name}'))"
    with (tmp_path / "log").open("ab") as stream:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=stream,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            text=True,
            check=False,
        )
    assert f"'{name}' is where this command prints" in done.stderr
    assert names(tmp_path) == {"log"}


def test_a_file_that_has_no_name_any_more_is_not_written(tmp_path):
    with (tmp_path / "gone").open("wb") as stream:
        place = Path(f"/proc/self/fd/{stream.fileno()}")
        if not place.exists():
            pytest.skip("descriptors have no names here")
        (tmp_path / "gone").unlink()
        with pytest.raises(InputError, match="is no regular file"):
            folders.check_file(place)


# ---------------------------------------------------------------------- folders that people name


def complaint(done: tuple[int, str, str]) -> str:
    """What a command says that could not do its work."""
    code, _, err = done
    return err if code else ""


def fit(run, model: Path, out: Path) -> str:
    return complaint(run("fit", out, "-d", model / "missing.jsonl"))


def block(run, model: Path, out: Path) -> str:
    return complaint(run("block", model / "model", "apple", "--out", out))


def rename(run, model: Path, out: Path) -> str:
    return complaint(run("rename", model / "model", "apple", "fruit", "--out", out))


def add(run, model: Path, out: Path) -> str:
    return complaint(run("add", model / "model", "-d", model / "documents.jsonl", "--out", out))


def rank(run, model: Path, out: Path) -> str:
    return complaint(run("rank", model / "model", model / "shards", "--out", out))


def extract(run, model: Path, out: Path) -> str:
    pytest.importorskip("PIL", reason="needs the extra `image`")
    return complaint(run("extract", "image", model / "media", "--out", out))


def sample(run, model: Path, out: Path) -> str:
    pytest.importorskip("polyseme_experiments")
    return complaint(run("sample", "image", out, "--limit", 2))


def reproduce(run, model: Path, out: Path) -> str:
    pytest.importorskip("polyseme_experiments")
    return complaint(run("reproduce", "fig5", "--quick", "--from-records", "--out", out))


def save(run, model: Path, out: Path) -> str:
    from polyseme import load

    tagger = load(model / "model")
    try:
        tagger.save(out)
    except InputError as error:
        return str(error)
    return ""


def cut(run, model: Path, out: Path) -> str:
    try:
        write_shards(np.zeros((4, 2)), out)
    except InputError as error:
        return str(error)
    return ""


def keep_checkpoint(run, model: Path, out: Path) -> str:
    tagger = ZeroShotTagger(checkpoint=out, n_validations=0, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("polyseme.space.ConceptSpace.fit", work)
        try:
            tagger.fit(np.eye(4), [["a", "b"], ["b"], ["a"], ["b"]])
        except InputError as error:
            return str(error)
    return ""


FOLDERS = [fit, block, rename, add, rank, extract, sample, reproduce, save, cut, keep_checkpoint]


@pytest.mark.parametrize("make", NO_FOLDER, ids=name_of)
@pytest.mark.parametrize("write", FOLDERS, ids=lambda write: write.__name__)
def test_what_is_no_folder_is_refused_and_left_alone(run, model, tmp_path, write, make):
    place = tmp_path / "out"
    make(place)
    before, beside = state(place), names(tmp_path)
    sentence = write(run, model, place)
    assert "'" in sentence and str(place) in sentence and "Errno" not in sentence
    assert "missing.jsonl" not in sentence, "it was looked at first"
    assert state(place) == before and names(tmp_path) == beside


@pytest.mark.parametrize(
    "write", [write for write in FOLDERS if write is not keep_checkpoint], ids=lambda w: w.__name__
)
def test_a_folder_of_somebody_else_is_refused_and_left_alone(run, model, tmp_path, write):
    place = tmp_path / "home"
    place.mkdir()
    (place / "letter.txt").write_text("dear")
    assert "'letter.txt'" in write(run, model, place)
    assert names(place) == {"letter.txt"}


@pytest.mark.parametrize("write", [block, add, rank, sample, save, cut], ids=lambda w: w.__name__)
def test_new_and_empty_folders_and_links_to_them_are_written_and_again(run, model, tmp_path, write):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name in ("new", "link", "new", "link"):
        assert write(run, model, tmp_path / name) == ""
        assert names(tmp_path / name)
    assert (tmp_path / "link").is_symlink()


# ---------------------------------------------------------------------- files inside our folders


@pytest.mark.parametrize("make", REFUSED, ids=name_of)
@pytest.mark.parametrize("name", ["journal.jsonl", "cache.sqlite", "features.npy", "anything"])
def test_a_folder_of_ours_holds_no_links_and_pipes(tmp_path, make, name):
    mark_folder(tmp_path / "out", "numbers")
    make(tmp_path / "out" / name)
    before = state(tmp_path / "out" / name)
    with pytest.raises(InputError, match="' must be a regular file"):
        mark_folder(tmp_path / "out", "numbers")
    assert state(tmp_path / "out" / name) == before


def test_sample_files_are_not_written_through_a_link_to_a_folder(run, tmp_path):
    pictures, elsewhere = tmp_path / "pictures", tmp_path / "elsewhere"
    assert run("sample", "image", pictures, "--limit", 2)[0] == 0
    elsewhere.mkdir()
    (pictures / "noto").rename(tmp_path / "noto")
    (pictures / "noto").symlink_to(elsewhere)
    code, _, error = run("sample", "image", pictures, "--limit", 2)
    assert code == 1 and "noto' must be a regular file" in error
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize("name", ["cache.sqlite", "extraction.json", "files.jsonl", "features.npy"])
def test_no_file_outside_is_written_by_a_link_in_an_extraction(run, model, tmp_path, name):
    extract(run, model, tmp_path / "out")
    (tmp_path / "thesis").write_text("mine")
    (tmp_path / "out" / name).unlink(missing_ok=True)
    (tmp_path / "out" / name).symlink_to(tmp_path / "thesis")
    assert "must be a regular file" in extract(run, model, tmp_path / "out")
    assert (tmp_path / "thesis").read_text() == "mine" and (tmp_path / "out" / name).is_symlink()


@pytest.mark.parametrize("make", REFUSED, ids=name_of)
def test_a_log_is_never_written_through_anything(tmp_path, make):
    log = tmp_path / "verdicts.sqlite"
    make(log)
    before = state(log)
    with pytest.raises(InputError, match="must be a regular file"):
        VerdictLog(log).append([Verdict("a", "b", True)])
    assert state(log) == before


@pytest.mark.parametrize("make", [*REFUSED, Path.mkdir], ids=name_of)
def test_records_are_not_read_from_or_written_to_a_pipe(tmp_path, make):
    records = pytest.importorskip("polyseme_experiments.records")
    make(tmp_path / "hsun.jsonl")
    before = state(tmp_path / "hsun.jsonl")
    with pytest.raises(InputError, match="must be a regular file"):
        records.RecordStore(tmp_path).find("hsun", "tagger", 0, {})
    assert state(tmp_path / "hsun.jsonl") == before


@pytest.mark.parametrize("make", [make_pipe, make_device, make_socket, Path.touch], ids=name_of)
def test_versions_belong_into_a_folder(tmp_path, make):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from polyseme.serve.versions import Versions

    make(tmp_path / "versions")
    with (
        pytest.raises(InputError, match="is a file where versions belong"),
        Versions(tmp_path).writing(),
    ):
        pass


def test_samples_lie_beside_what_people_add_and_nothing_is_overwritten(run, tmp_path):
    pytest.importorskip("polyseme_experiments")
    sample(run, tmp_path, tmp_path / "photos")
    assert json.loads((tmp_path / "photos" / MARK).read_bytes())["kind"] == "sample files"
    (tmp_path / "photos" / "mine.jpg").write_bytes(b"mine")
    assert sample(run, tmp_path, tmp_path / "photos") == ""
    assert (tmp_path / "photos" / "mine.jpg").read_bytes() == b"mine"
    assert "is not the file that would be written" in run("sample", "audio", tmp_path / "photos")[2]
