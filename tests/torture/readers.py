"""Every reader, fed with files made wrong: tables, media, sidecars, and folders that we write.

Files come from `corpus/`, folders are made by the package itself. Each is changed (`mutations`),
mostly under checksums that are made to fit, and read as commands read it: it works, or it is
refused with one sentence. `python -m torture.readers table/table.csv:17 FOLDER` makes one of them
again in a folder and lets it fail where it fails.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from torture import Tried
from torture.models import BASES, sealed, use
from torture.mutations import changed, mutated
from torture.seeds import CORPUS
from torture.worker import Outcome, Worker, judged, phrase, sentence, spoiled, work

_ODD_CELLS = (None, -1, 0, 2**62, 0.5, float("inf"), "", "x", "a\0b", b"", b"\xff" * 9, "9" * 50)


class Attempts:
    """Several ways to read one file: what was refused, and whether any of them worked."""

    def __init__(self) -> None:
        self.refused: list[Exception] = []
        self.n_worked = 0

    def __call__(self, read: Callable[[], Any]) -> Any:
        """Return what a way gives; None where it is refused with a sentence."""
        from polyseme.base.validation import InputError

        try:
            content = read()
        except InputError as error:
            sentence(error)
            self.refused.append(error)
            return None
        self.n_worked += 1
        return content

    def words(self) -> str:
        """Return what was refused; raise that where nothing worked."""
        if not self.n_worked and self.refused:
            raise self.refused[0]
        return "; ".join(map(str, self.refused))


def _check(holds: object, message: str) -> None:
    if not holds:
        raise AssertionError(message)


# ---------------------------------------------------------------------- files


def _read_table(path: Path) -> str:
    """Read a table in all ways that commands do, and take its documents and features."""
    from polyseme import LabelCorpus
    from polyseme.base.validation import check_features
    from polyseme.io import read_documents, read_features, read_table
    from polyseme.io.shards import find_shards, is_sharded, read_blocks

    path = next(iter(path.glob("*.arff*")), path)
    attempt = Attempts()
    ways: list[Callable[[], Any]] = [
        partial(read_table, path),
        partial(read_documents, path, strict=True),
        partial(read_table, path, features="vectors", delimiter=";"),
        partial(read_table, path, tags_column="labels", features_column="embedding"),
    ]
    for table in filter(None, map(attempt, ways)):
        n = len(table)
        for rows in (table.ids, table.groups, table.splits, table.label_sets):
            _check(rows is None or len(rows) == n, f"{n} rows, and not of all that it has")
        repr(table)
        if table.has_tags:
            corpus = attempt(partial(LabelCorpus.of_table, table, path.name))
            _check(corpus is None or len(corpus) == n, "another number of documents")
        if table.features is not None:
            X = attempt(partial(check_features, table.features, owner=path.name))
            numbers = None if X is None else getattr(X, "data", X)
            _check(numbers is None or np.isfinite(np.asarray(numbers)).all(), "no numbers")
    features = attempt(partial(read_features, path))
    _check(features is None or features.ndim == 2, "features of another shape")
    if is_sharded(path):
        shards, *_ = attempt(partial(find_shards, path)) or ([],)
        for shard in shards:
            attempt(shard.ids)
            blocks = attempt(lambda shard=shard: list(read_blocks(shard, 2)))
            for _, block in blocks or ():
                _check(np.isfinite(block).all(), "blocks that hold no numbers")
    return attempt.words()


def _check_keywords(path: Path, kind: str) -> None:
    """Read keywords, which a corpus must be able to take as they are."""
    from polyseme import LabelCorpus
    from polyseme.media.keywords import keywords_of

    keywords = keywords_of(path, kind)
    for reason in keywords.unread:
        phrase(reason)
    LabelCorpus.from_documents([keywords.tags])


def _read_picture(path: Path) -> str:
    from polyseme.media.base import MediaError
    from polyseme.media.pictures import read_picture, read_thumbnail

    _check_keywords(path, "image")
    try:
        pixels = read_picture(path, size=32, max_megapixels=4)
        _check(pixels.shape == (32, 32, 3) and pixels.dtype == np.uint8, f"{pixels.shape}")
        _check(read_thumbnail(path, size=16, max_megapixels=4)[:2] == b"\xff\xd8", "no thumbnail")
    except MediaError as error:
        raise _skipped(error) from error
    return ""


def _read_sound(path: Path) -> str:
    from polyseme import AudioFeatures
    from polyseme.media.base import MediaError

    _check_keywords(path, "audio")
    (raw,) = AudioFeatures(max_seconds=5, n_jobs=1).extract([path])
    if isinstance(raw, MediaError):
        raise _skipped(raw)
    _check(raw.ndim == 2 and raw.shape[1] == 36 and np.isfinite(raw).all(), f"{raw.shape}")
    return ""


def _skipped(error: Exception) -> Exception:
    """Return the sentence that commands make of why a file is skipped."""
    from polyseme.base.validation import InputError

    return InputError(f"skipped FILE: {phrase(str(error))}.")


def _read_sidecar(path: Path) -> str:
    from polyseme.media import xmp

    attempt = Attempts()
    attempt(lambda: xmp.read_packet(path.read_bytes(), "its XMP block"))
    before = attempt(lambda: xmp.read_sidecar(path))
    added = attempt(lambda: xmp.merge_tags(path, ["boat", "sea"]))
    if added:
        after = xmp.read_sidecar(path)
        _check({*before.tags, *added} <= {*after.tags}, f"lost some of {before.tags}")
        attempt(lambda: xmp.answer_suggestions(path, accept=["boat"], refuse=["sea"]))
        attempt(lambda: xmp.undo_suggestions(path))
    return attempt.words()


def _read_words(path: Path) -> str:
    from polyseme import WordVectors

    words = WordVectors.read(path)
    WordVectors.read(path, labels=words.words[:1])
    vectors, _ = words.label_vectors(["Sea ship", "größe", *words.words[:3]])
    _check(np.isfinite(vectors).all(), "vectors that hold no numbers")
    return repr(words)


def _read_verdicts(path: Path) -> str:
    from polyseme.feedback.verdict_files import read_verdicts
    from polyseme.feedback.verdict_log import VerdictLog

    verdicts = read_verdicts(path)
    with VerdictLog() as log:
        log.append(verdicts)
        _check(len(log.standing()) <= len(verdicts) == log.count, "other verdicts than were read")
    return ""


def _read_vocabulary(path: Path) -> str:
    from polyseme import LabelCorpus
    from polyseme.documents.vocabulary import Vocabulary

    words = Vocabulary.read(path)
    words.apply(LabelCorpus.from_documents([["ships", "sea"], ["junk", "ship"]]))
    words.complete(["ships"])
    return repr(words)


def _read_tokens(path: Path) -> str:
    from polyseme.studio.access import Tokens, new_token

    path.chmod(0o600)
    attempt = Attempts()
    attempt(lambda: Tokens.read(path).caller("ps_x"))
    attempt(lambda: new_token(path, "somebody", "read"))
    return attempt.words()


# ---------------------------------------------------------------------- folders of ours


def _read_model(folder: Path) -> str:
    from polyseme.studio.landscape import LANDSCAPE_FILE, Landscape

    description_file = folder / "told.json"
    description = json.loads(description_file.read_text())
    description_file.unlink()
    n_axes = description["n_axes"]
    landscape = Landscape.read(folder, description["digest"], n_axes)
    if landscape is not None:
        points = np.ones((2, n_axes), np.float32)
        places = landscape.place(points)
        _check(np.isfinite(places).all(), LANDSCAPE_FILE)
    return "; ".join(use("space", folder))


def _read_log(folder: Path) -> str:
    from polyseme.feedback.verdict_log import VerdictLog

    attempt = Attempts()
    with VerdictLog(folder) as log:
        attempt(log.standing)
        attempt(lambda: list(log.events()))
        keys = attempt(lambda: log.vector_keys("space")) or {}
        vectors = attempt(lambda: log.vectors([key.number for key in keys.values()]))
        _check(vectors is None or np.isfinite(vectors).all(), "vectors that hold no numbers")
        attempt(log.cached_corrections)
        attempt(lambda: log.append([("z", "sea", True)], {"z": np.ones(3)}, "space"))
        attempt(lambda: log.undo([1]))
        attempt(lambda: log.copy_to(folder / "copy.sqlite"))
    return attempt.words()


def _read_extraction(folder: Path) -> str:
    """Read an extraction; then extract again, which must put right whatever was damaged."""
    from polyseme import AudioFeatures, extract_folder
    from polyseme.media import read_extraction

    attempt = Attempts()
    extractor = AudioFeatures(n_words=2, n_jobs=1, random_state=0)
    numbers = folder / "numbers"
    damaged = attempt(lambda: read_extraction(numbers))
    if damaged is not None:
        attempt(lambda: extractor.fit(damaged).transform(damaged))
        repr(damaged[:1])
    if attempt(lambda: extract_folder(folder / "sounds", numbers, extractor)):
        extraction = read_extraction(numbers)
        _check(len(extraction) == 2, "lost")
        values = np.concatenate(list(extraction.raw))
        _check(np.isfinite(values).all(), "lost")
    return attempt.words()


def _read_pictures(folder: Path) -> str:
    """Read an extraction of pictures, and use it as features."""
    from polyseme import ImageFeatures
    from polyseme.media import read_extraction

    extraction = read_extraction(folder)
    features = ImageFeatures().fit_transform(extraction)
    _check(len(features) == len(extraction), "features of other pictures")
    _check(np.isfinite(features).all(), "no features")
    return repr(extraction)


def _read_ranking(folder: Path) -> str:
    """Go on with a folder of rankings, whatever is in it."""
    from polyseme.batch.ranking import rank_shards

    return str(rank_shards(folder / "model", folder / "shards", folder / "ranked", k=3, workers=1))


_READ: dict[str, Callable[[Path], str]] = {
    "table": _read_table,
    "picture": _read_picture,
    "sound": _read_sound,
    "sidecar": _read_sidecar,
    "words": _read_words,
    "verdicts": _read_verdicts,
    "vocabulary": _read_vocabulary,
    "tokens": _read_tokens,
    "model": _read_model,
    "training": lambda folder: "; ".join(use("training", folder)),
    "checkpoint": lambda folder: "; ".join(use("checkpoint", folder)),
    "log": _read_log,
    "extraction": _read_extraction,
    "extracted": _read_pictures,
    "ranking": _read_ranking,
}


def make_folders(place: Path) -> None:
    """Make the folders that the package writes, each below the name of its reader."""
    import polyseme
    from polyseme import AudioFeatures, ImageFeatures, extract_folder
    from polyseme.batch.ranking import rank_shards
    from polyseme.feedback.verdict_log import VerdictLog
    from polyseme.io import Table
    from polyseme.studio.landscape import Landscape

    for name, base in (("model", "space"), ("training", "training"), ("checkpoint", "checkpoint")):
        BASES[base][1](place / name / "made")
    model = place / "model" / "made"
    tagger: Any = polyseme.load(model)
    ids = [str(n) for n in range(4)]
    table = Table(features=np.eye(4, 5), ids=ids, columns=None)
    verdicts = [(str(n), label, n % 2 == 0) for n in range(4) for label in ("tag a", "tag b")]
    tagger.learn(verdicts, table)
    tagger.save(model)
    polyseme.load(model)  # keeps what it learned again
    points = np.eye(6, dtype=np.float32)
    Landscape.quick(points, "digest").save(model)
    (model / "told.json").write_text(json.dumps({"digest": "digest", "n_axes": 6}))
    (place / "log" / "made").mkdir(parents=True)
    with VerdictLog(place / "log" / "made") as log:
        log.append([("a", "sea", True, 0.5, 1), ("b", "ship", False)], {"a": np.ones(3)}, "space")
        log.undo([2])
    ours = place / "extraction" / "made"
    shutil.copytree(
        CORPUS / "sound",
        ours / "sounds",
        ignore=lambda _, names: {name for name in names if name not in ("plain.wav", "tagged.mp3")},
    )
    extract_folder(ours / "sounds", ours / "numbers", AudioFeatures(n_words=2, n_jobs=1))
    (place / "pictures").mkdir()
    for name in ("gray.png", "photo.jpg"):
        shutil.copy(CORPUS / "picture" / name, place / "pictures")
    extract_folder(place / "pictures", place / "extracted" / "made", ImageFeatures(n_jobs=1))
    shutil.rmtree(place / "pictures")
    ranking = place / "ranking" / "made"
    BASES["space-sparse"][1](ranking / "model")
    (ranking / "shards").mkdir()
    for number in range(2):
        np.save(ranking / "shards" / f"part-{number:05d}.npy", np.eye(3, 5) + number)
    rank_shards(ranking / "model", ranking / "shards", ranking / "ranked", k=3, workers=1)


# ---------------------------------------------------------------------- checksums made to fit


def _sealed_anew(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Write a sealed file with other values, under a digest that fits them."""
    from polyseme.storage import atomic_files as folders

    content = folders.unsealed(file.read_bytes())
    if content is not None:
        change(content)
        file.write_bytes(folders.sealed(content))


def _fit_checksums(file: Path) -> None:
    """Make the checksums of a folder fit one file of it that was changed."""
    from polyseme.storage.atomic_files import summary_of

    folder = file.parent
    extraction_file = folder / "extraction.json"
    if file.name == "model.safetensors":
        content = file.read_bytes()
        file.write_bytes(sealed(content))
    elif extraction_file.exists():
        names = [path.name for path in folder.iterdir() if path.suffix in (".npy", ".jsonl")]
        files = {name: summary_of(folder / name) for name in names}
        _sealed_anew(extraction_file, lambda extraction: extraction.update(files=files))
    elif (folder / "plan.json").exists():

        def note(manifest: dict[str, Any]) -> None:
            for entry in manifest.get("files", []):
                if entry["file"] == file.name:
                    entry.update(summary_of(file) or {})

        _sealed_anew(folder / "manifest.json", note)


def _change_values(rng: random.Random, file: Path) -> None:
    """Change a value of a sealed file, under a digest that fits it."""
    from torture.models import change_value

    _sealed_anew(file, lambda content: change_value(rng, content) and None)


def _change_cell(rng: random.Random, file: Path) -> None:
    """Change a cell of a database, and make the digests of its rows fit."""
    from polyseme.media import feature_store

    with closing(sqlite3.connect(file)) as database:
        database.executescript("PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = DELETE;")
        names = database.execute("SELECT name FROM sqlite_master WHERE type='table'")
        tables = [name for (name,) in names]
        table = rng.choice(tables)
        rows = [list(row) for row in database.execute(f"SELECT * FROM {table}")]
        if rows:
            row = rng.choice(rows)
            column = rng.randrange(max(len(row) - 1, 1))
            former = row[column]
            row[column] = rng.choice(_ODD_CELLS)
            if isinstance(former, (str, bytes)) and rng.random() < 0.5:
                row[column] = _changed_cell(rng, former)
            database.execute(f"DELETE FROM {table}")
            marks = ", ".join("?" * len(row))
            for row in rows:
                if table in ("numbers", "files"):
                    row[-1] = feature_store._row_digest(*row[:-1])
                database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
        database.commit()


def _changed_cell(rng: random.Random, cell: str | bytes) -> str | bytes:
    """Return a cell with some of its bytes changed, as text where it was one."""
    if isinstance(cell, bytes):
        return changed(rng, cell)
    data = changed(rng, cell.encode())
    return data.decode("utf-8", "replace")


def _make_wrong(rng: random.Random, place: Path, donors: Sequence[bytes]) -> str:
    """Change one file at a place, or two; give what they are called."""
    paths = [place] if place.is_file() else sorted(place.rglob("*"))
    files = [path for path in paths if path.is_file()]
    # What a reader is only told by, or reads by itself, stays as it is.
    files = [file for file in files if file.name != "told.json" and file.parent.name != "sounds"]
    names = []
    n_changed = min(len(files), rng.choice([1, 1, 1, 2]))
    for file in rng.sample(files, n_changed):
        if not file.exists():
            continue
        if file.suffix == ".sqlite" and rng.random() < 0.7:
            try:
                _change_cell(rng, file)
            except (sqlite3.Error, OverflowError, UnicodeError):
                continue  # that SQLite itself does not take
        elif file.name in ("extraction.json", "plan.json") and rng.random() < 0.7:
            _change_values(rng, file)
        else:
            file.write_bytes(mutated(rng, file.name, file.read_bytes(), donors))
            if rng.random() < 0.7:
                with suppress(ValueError, TypeError, KeyError, OSError):
                    _fit_checksums(file)
        names.append(file.name)
    return ", ".join(names)


# ---------------------------------------------------------------------- processes


def _seeds(place: Path) -> list[str]:
    """Return what there is to read in the corpus, or of what was made, as reader/name."""
    return sorted(f"{path.parent.name}/{path.name}" for path in place.glob("*/*"))


def _copied(seed: str, made_folders: Path, place: Path) -> Path:
    """Copy what a seed names to a place."""
    source = CORPUS / seed
    if not source.exists():
        source = made_folders / seed
    target = place / source.name
    copy = shutil.copytree if source.is_dir() else shutil.copy
    return Path(copy(source, target))


def _beside(seed: str) -> list[bytes]:
    """Return other files of the same reader, to splice with."""
    folder = (CORPUS / seed).parent
    paths = sorted(folder.glob("*"))
    return [path.read_bytes() for path in paths if path.is_file()]


def _attacked(seed: str, number: int, made_folders: Path) -> Outcome:
    """Make one file wrong, read it, and say what came of it."""
    from polyseme.base.validation import PolysemeWarning

    rng = random.Random(number)
    reader_name = seed.partition("/")[0]
    read = _READ[reader_name]
    with tempfile.TemporaryDirectory(prefix="fuzzed-") as folder:
        place = _copied(seed, made_folders, Path(folder))
        if number >= 0:
            _make_wrong(rng, place, _beside(seed))

        def read_and_check_warnings() -> str:
            with warnings.catch_warnings(record=True) as remarks:
                warnings.simplefilter("always", PolysemeWarning)
                words = read(place)
            for remark in remarks:
                if issubclass(remark.category, PolysemeWarning):
                    phrase(str(remark.message))
            return words

        return judged(read_and_check_warnings)


def _work(made_folders: Path) -> None:
    """Read files made wrong, in a process of its own."""
    import torch

    import polyseme
    from polyseme.io import unpacking

    torch.set_num_threads(1)
    polyseme.load(made_folders / "model" / "made")
    with unpacking(0.05):
        work(lambda job: _attacked(job[0], job[1], made_folders))


def attack(place: Path, rng: random.Random) -> Iterator[Tried]:
    """Read every seed, which must work, and then seeds made wrong in turn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_folders(place)
    # Folders of ours hold several files each, and come up as often as a few files do.
    seeds, folders = _seeds(CORPUS), _seeds(place)
    worker = Worker("-m", __name__, "--work", str(place))
    yield from spoiled(worker, [*folders, *seeds], [*seeds, *(folders * 3)], rng)


def main() -> None:
    """Work for another process, or make one file wrong and let it fail where it fails."""
    if sys.argv[1] == "--work":
        _work(Path(sys.argv[2]))
        return
    seed, _, number = sys.argv[1].partition(":")
    with tempfile.TemporaryDirectory() as folder:
        made_folders = Path(folder)
        if not (CORPUS / seed).exists():
            make_folders(made_folders)
        place = _copied(seed, made_folders, Path(sys.argv[2]))
    print(_make_wrong(random.Random(int(number)), place, _beside(seed)), flush=True)
    print(_READ[seed.partition("/")[0]](place))


if __name__ == "__main__":
    main()
