"""Ranking the rows of tables of any size: printed block by block, or shards into a folder.

In: a saved model, and features in a file, an extracted folder or shards. Out: a record for each
row, or a file of rankings for each shard and a manifest when all are there. Every engine cuts
tables at the same places and uses one thread for each block, so that all give the same bytes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from polyseme._threads import n_cores, one_thread, ordered_map
from polyseme._validation import InputError, check_features, check_number, check_option
from polyseme.cluster.engine import RayEngine, check_seen, digest_of, load_same
from polyseme.features import Extracted, read_extraction
from polyseme.features.extraction import is_extraction
from polyseme.io import UNFINISHED, read_features, replacing
from polyseme.io.records import write_records
from polyseme.io.shards import Shard, find_shards, is_sharded, read_blocks
from polyseme.io.tables import import_pyarrow
from polyseme.tagger import METHODS, Tagger, ZeroShotTagger

FORMS = ("jsonl", "parquet")
PLAN, MANIFEST = "plan.json", "manifest.json"
FORMAT, FORMAT_VERSION = "polyseme ranking", 2
# The score of a row may change in its last digits with the rows that are scored beside it.
MOST_ROWS = 1024
_LEAST_ROWS = 16
_SCORES_AT_ONCE = 2**22
GROUP_ROWS = 16_384  # of a Parquet file; a reader holds at least one group of rows

Record = dict[str, Any]
Tags = Sequence[Any]
Piece = tuple[Any, Tags | None]  # a shard or features, and the tags that items have already


class Suggestions:
    """What a tagger suggests: its best tags, or those likely enough; see `rank_shards`.

    `n_rows` items are ranked at a time: so many that a table of all their scores stays small.
    """

    def __init__(
        self, tagger: Tagger, k: int, precision: float | None = None, method: str = "space"
    ) -> None:
        if method != "space" and not isinstance(tagger, ZeroShotTagger):
            raise InputError(
                "`method` needs the default tagger; the published method has one way to rank "
                "labels."
            )
        if method != "space" and precision is not None:
            raise InputError(
                "A precision is of probabilities, and votes of known tag sets are none; leave out "
                "the precision or the method."
            )
        self.tagger, self.k, self.precision, self.method = tagger, k, precision, method
        n_labels = len(tagger.classes_)
        self.n_rows = max(_LEAST_ROWS, min(MOST_ROWS, _SCORES_AT_ONCE // max(1, n_labels)))
        self._kinds = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
        least = np.zeros(n_labels) if precision is None else tagger.thresholds(precision)
        self._least = dict(zip(tagger.classes_, least.tolist(), strict=True))

    def records(self, X: Any, tags: Any = None) -> list[Record]:
        """Give labels, kinds and scores of each item; see `ZeroShotTagger.rank`."""
        # The published method has one way only, and its `rank` asks for none.
        options = {} if self.method == "space" else {"method": self.method}
        labels, scores = self.tagger.rank(X, k=self.k, tags=tags, **options)
        records = []
        for names, values in zip(labels.tolist(), scores.tolist(), strict=True):
            pairs = zip(names, values, strict=True)
            kept = [(name, round(score, 6)) for name, score in pairs if score >= self._least[name]]
            record: Record = {"labels": [name for name, _ in kept]}
            record["kinds"] = [self._kinds[name] for name, _ in kept]
            records.append(record | {"scores": [score for _, score in kept]})
        return records


class Table:
    """Items whose features are read by blocks: of a file, an extracted folder, or shards."""

    def __init__(self, path: Path) -> None:
        self.shards: list[Shard] = []
        self.items: Any = None
        if path.is_dir() and (is_extraction(path) or not is_sharded(path)):
            self.items = read_extraction(path)
        elif is_sharded(path) and (path.suffix.lower() != ".parquet" or find_spec("pyarrow")):
            self.shards, _ = find_shards(path)
        else:
            self.items = read_features(path)
            # Found here, rows have the numbers that the file gives them.
            check_features(self.items, owner="rank")

    def names(self) -> Iterator[Record]:
        """Yield what the record of each item begins with: a row number, or a file."""
        if isinstance(self.items, Extracted):
            return ({"file": name} for name in self.items.ids)
        n_rows = _count(self.shards) if self.shards else self.items.shape[0]
        return ({"row": row} for row in range(n_rows))

    def pieces(self, n_rows: int, tags: Tags | None) -> Iterator[Piece]:
        """Yield shards, which whoever ranks them reads, or blocks of so many rows; with tags."""
        for shard in self.shards:
            rows = slice(shard.first, shard.first + shard.n_rows)
            yield shard, None if tags is None else tags[rows]
        for start in range(0, 0 if self.shards else self.items.shape[0], n_rows):
            rows = slice(start, start + n_rows)
            some = self.items if isinstance(self.items, Extracted) else self.items[rows]
            if isinstance(self.items, Extracted):
                # Copies: what is mapped from a file does not travel.
                raw = [np.array(numbers) for numbers in some.raw[rows]]
                some = Extracted(some.kind, some.preprocessing, some.ids[rows], raw)
            yield some, None if tags is None else tags[rows]


def _ranking(
    model: str,
    digest: str,
    k: int,
    precision: float | None,
    method: str,
    *,
    out: str | None = None,
    form: str = "jsonl",
    n_threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Callable[[Piece], Any]:
    """Start the job of ranking pieces: into a file of `out` for each, or given back as records."""
    suggestions = Suggestions(load_same(model, digest), k, precision, method)

    def rank(piece: Piece) -> Any:
        source = piece[0]
        if isinstance(source, Shard):
            check_seen(str(source.path))
        ranked = _rank_blocks(suggestions, _blocks(piece, suggestions.n_rows), n_threads)
        if out is None:
            return list(itertools.chain.from_iterable(ranked))
        check_seen(out)
        with replacing(_output_of(Path(out), source, form)) as stream:  # there when it is complete
            records = _numbered(ranked, source.first, progress)
            if form == "parquet":
                _write_parquet(records, stream)
            else:
                text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                write_records(records, text, "jsonl")
                text.detach()  # which flushes, and leaves the file open
            return stream.tell()

    return rank


def rank_table(
    table: Table,
    model: str | Path,
    suggestions: Suggestions,
    tags: Tags | None = None,
    engine: RayEngine | None = None,
    workers: int | None = None,
) -> Iterator[Record]:
    """Rank tags for a table; yield a record for each item, in order.

    `model` is the folder that the suggestions' tagger was loaded from, `tags` are those that each
    item has already; for `engine` and `workers` see `rank_shards`.
    """
    pieces, n_rows = table.pieces(suggestions.n_rows, tags), suggestions.n_rows
    if engine is None:
        blocks = itertools.chain.from_iterable(_blocks(piece, n_rows) for piece in pieces)
        ranked: Iterable[list[Record]] = _rank_blocks(suggestions, blocks, workers or n_cores())
    else:
        place, how = Path(model).absolute(), suggestions
        options = (str(place), digest_of(place), how.k, how.precision, how.method)
        ranked = engine.map(partial(_ranking, *options), list(pieces))
    yield from itertools.chain.from_iterable(ranked)


def _blocks(piece: Piece, n_rows: int) -> Iterator[Piece]:
    """Yield the blocks of a shard; what is none is a block already."""
    source, tags = piece
    if not isinstance(source, Shard):
        yield piece
        return
    for start, block in read_blocks(source, n_rows):
        yield block, None if tags is None else tags[start : start + len(block)]


def _rank_blocks(
    suggestions: Suggestions, blocks: Iterable[Piece], n_threads: int
) -> Iterator[list[Record]]:
    """Rank blocks in this process, taken as they are needed; give the records of each, in order."""
    waiting = iter(blocks)
    with one_thread():
        # The first one alone: what a tagger makes when it is first asked is then there for all.
        for block in itertools.islice(waiting, 1):
            yield suggestions.records(*block)
        yield from ordered_map(lambda block: suggestions.records(*block), waiting, n_threads)


# ---- shards into a folder


class Ranked(NamedTuple):
    """How many shards and rows are ranked, and how many of the shards an earlier run had done."""

    n_shards: int
    n_rows: int
    n_before: int


def rank_shards(
    model: str | Path,
    shards: str | Path,
    out: str | Path,
    *,
    k: int = 10,
    precision: float | None = None,
    method: str = "space",
    form: str = "jsonl",
    engine: RayEngine | None = None,
    workers: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> Ranked:
    """Rank tags for the rows of shards, a file of rankings for each shard.

    Interrupted, it goes on where it stopped when called again: shards that are finished are not
    ranked again unless they were changed since. No more than a few blocks of rows are in memory.

    Parameters
    ----------
    model : str or Path
        Folder of a saved tagger.
    shards : str or Path
        A folder of shards, or a single one; see `polyseme.io.shards.find_shards`.
    out : str or Path
        A folder to write to: new, empty, or that of the same work before.
    k : int
        The most tags a row.
    precision : float, optional
        The share of tags that should be true; see `ZeroShotTagger.thresholds`.
    method : {"space", "priming"}
        How labels are scored; see `ZeroShotTagger.predict_proba`.
    form : {"jsonl", "parquet"}
        What rankings are written as.
    engine : RayEngine, optional
        Where rows are ranked, from `open_engine`; by default here. All give the same bytes.
    workers : int, optional
        Here: blocks ranked at a time; by default one for each processor.
    progress : callable, optional
        Called with the rows that are done, of how many, and 0.

    Returns
    -------
    Ranked
    """
    check_number("k", k, owner="rank_shards", low=1, whole=True)
    check_option("method", method, METHODS, owner="rank_shards")
    check_option("form", form, FORMS, owner="rank_shards")
    (found, _), place, folder = find_shards(Path(shards)), Path(model), Path(out)
    n_rows = _count(found)
    digest = digest_of(place)
    head = {"format": FORMAT, "version": FORMAT_VERSION, "model": digest, "top": k}
    head |= {"precision": precision, "method": method, "form": form}
    waiting = _begin(folder, found, head)
    done = n_rows - _count(waiting)

    def count(n_more: int) -> None:
        nonlocal done
        done += n_more
        if progress is not None:
            progress(done, n_rows, 0)

    options: dict[str, Any] = {"out": str(folder.absolute()), "form": form}
    job = partial(_ranking, str(place.absolute()), digest, k, precision, method, **options)
    # Bytes as they were told: what another machine wrote a moment ago need not be visible here yet.
    sizes: dict[str, int] = {}
    if engine is None and waiting:
        rank = job(n_threads=workers or n_cores(), progress=count)
        sizes = {shard.path.name: rank((shard, None)) for shard in waiting}
    elif engine is not None:
        pieces = [(shard, None) for shard in waiting]
        for shard, size in zip(waiting, engine.map(job, pieces), strict=True):
            sizes[shard.path.name] = size
            count(shard.n_rows)
    files = []
    for shard in found:
        output = _output_of(folder, shard, form)
        size = sizes.get(shard.path.name) or output.stat().st_size
        file = {"file": output.name, "shard": shard.path.name, "first": shard.first}
        files.append(file | {"rows": shard.n_rows, "bytes": size})
    _write_json(folder / MANIFEST, head | {"rows": n_rows, "files": files})
    for left in folder.glob(f"*{UNFINISHED}"):  # of workers that died
        left.unlink(missing_ok=True)
    return Ranked(len(found), n_rows, len(found) - len(waiting))


def _begin(folder: Path, shards: Sequence[Shard], head: Mapping[str, Any]) -> list[Shard]:
    """Make a folder ready; give the shards that have no rankings there, or old ones."""
    states = {}
    for shard in shards:
        info = shard.path.stat()
        states[shard.path.name] = [shard.first, shard.n_rows, info.st_size, info.st_mtime_ns]
    before = _plan_of(folder) or {**head, "shards": {}}
    for name, now in head.items():
        if before.get(name) != now:
            raise InputError(
                f"'{folder}' holds rankings with another {name} ({before.get(name)!s:.12} in place "
                f"of {now!s:.12}); name another folder."
            )
    gone = sorted(before["shards"].keys() - states.keys())
    if gone:
        raise InputError(
            f"'{folder}' holds rankings of '{gone[0]}', which is no shard any more; name another "
            "folder."
        )
    waiting = []
    (folder / MANIFEST).unlink(missing_ok=True)
    for shard in shards:
        output = _output_of(folder, shard, head["form"])
        if before["shards"].get(shard.path.name) != states[shard.path.name]:
            output.unlink(missing_ok=True)
        if not output.exists():
            waiting.append(shard)
    _write_json(folder / PLAN, {**head, "shards": states})
    return waiting


def _plan_of(folder: Path) -> dict[str, Any]:
    """Read what an earlier run was about; nothing for a new folder, which is made."""
    plan: dict[str, Any] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(path.name for path in folder.iterdir())
        with contextlib.suppress(ValueError, TypeError):
            plan = dict(json.loads((folder / PLAN).read_bytes())) if PLAN in names else {}
    except OSError as error:
        raise InputError(f"Nothing can be written to '{folder}': {error.strerror}.") from None
    others = [name for name in names if not name.endswith(UNFINISHED)]
    if others and plan.get("format") != FORMAT:
        raise InputError(
            f"'{folder}' holds '{others[0]}', which no ranking wrote; name another folder."
        )
    return plan


def _count(shards: Sequence[Shard]) -> int:
    """Count the rows of shards."""
    return sum(shard.n_rows for shard in shards)


def _output_of(folder: Path, shard: Shard, form: str) -> Path:
    """Give the file that a shard's rankings go to."""
    return folder / f"{shard.path.stem}.{form}"


def _numbered(
    ranked: Iterable[list[Record]], first: int, progress: Callable[[int], None] | None
) -> Iterator[Record]:
    """Put row numbers before records, block after block."""
    for records in ranked:
        for number, record in enumerate(records):
            yield {"row": first + number} | record
        first += len(records)
        if progress is not None:
            progress(len(records))


def _write_parquet(records: Iterable[Record], stream: BinaryIO) -> None:
    """Write rankings with the columns `row`, `labels`, `kinds` and `scores`, group by group."""
    arrow = import_pyarrow()
    texts, numbers = arrow.list_(arrow.string()), arrow.list_(arrow.float64())
    schema = arrow.schema(
        {"row": arrow.int64(), "labels": texts, "kinds": texts, "scores": numbers}
    )
    remaining = iter(records)
    with arrow.parquet.ParquetWriter(stream, schema) as writer:
        while group := list(itertools.islice(remaining, GROUP_ROWS)):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file of a folder of rankings."""
    try:
        with replacing(path) as stream:
            stream.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise InputError(f"Nothing can be written to '{path.parent}': {error.strerror}.") from None
