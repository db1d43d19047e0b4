"""Rank tags for tables of any size: block by block, or shard by shard into a folder.

In: a saved model, and features in a file, an extracted folder or shards. Out: a record for each
row, or a file of rankings for each shard and a manifest when all are there. Scores of all engines
agree within 1e-5.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from polyseme.base.machine import n_cores, one_thread, ordered_map
from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    check_features,
    check_number,
    check_option,
    first_few,
    in_order,
)
from polyseme.batch.ray_engine import RayEngine
from polyseme.documents.tags import likely_tags
from polyseme.io import FEATURES_ONLY, ReadOptions, Table, read_items
from polyseme.io.arrow_tables import import_pyarrow
from polyseme.io.records import write_records
from polyseme.io.shards import Shard, find_shards, is_sharded, read_blocks
from polyseme.media import Extracted, read_extraction
from polyseme.media.extraction import is_extraction, unseen
from polyseme.scoring.scorer import METHODS
from polyseme.storage.atomic_files import (
    FileSummary,
    is_intact,
    own_folder,
    replacing,
    sealed,
    unsealed,
    unwritable,
)
from polyseme.storage.model_file import read_digest
from polyseme.tagger import Tagger, ZeroShotTagger, load

FORMS = ("jsonl", "parquet")
# The plan, the journal of finished files, and the manifest once all are finished.
PLAN = "plan.json"
JOURNAL = "done.journal"
MANIFEST = "manifest.json"
FORMAT = "polyseme ranking"
FORMAT_VERSION = 3
KIND = "rankings"
# Rows that are ranked at a time.
MOST_ROWS = 1024
_LEAST_ROWS = 16
_SCORES_AT_ONCE = 2**22
# Where the user sets neither a number of tags nor a precision.
DEFAULT_PRECISION = 0.5
_MOST_TAGS = 10
GROUP_ROWS = 16_384  # of a Parquet file; a reader holds at least one group of rows

Record = dict[str, Any]
Tags = Sequence[Any]
Piece = tuple[Any, Tags | None]  # a shard or features, and the tags that items have already


class SavedRanker:
    """A saved tagger that ranks its best tags, or those likely enough; see `rank_shards`.

    Without `k`, those that are likely enough for `DEFAULT_PRECISION` where held-out items have
    shown what a tagger can promise, ten at the most; ten where they have not, or where labels are
    asked for that no training item carries. The tagger is loaded when it is needed: by each worker
    for itself, where a copy of this travels to. It must be the same one everywhere.
    """

    _kinds: dict[str, str]  # of each label
    _thresholds: dict[str, float]  # the least score of each label to be suggested
    leaves_out: bool  # whether unseen labels are left out: no precision can be promised

    def __init__(
        self,
        model: str | Path,
        k: int | None,
        precision: float | None = None,
        method: str = "space",
        kind: str | None = None,
    ) -> None:
        if method != "space" and precision is not None:
            raise InputError(
                "A precision is of probabilities, and votes of known tag sets are none; leave out "
                "the precision or the method."
            )
        self.model = Path(model).absolute()
        self.digest = digest_of(Path(model))
        self.k = k
        self.precision = precision
        self.method = method
        self.kind = kind

    def __getstate__(self) -> dict[str, Any]:
        names = ("model", "digest", "k", "precision", "method", "kind")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger, unless the folder holds another one here, or by now."""
        check_seen(self.model)
        if digest_of(self.model) != self.digest:
            raise InputError(
                f"The model at '{self.model}' on the machine '{socket.gethostname()}' is another "
                "one; use a folder that all machines share, and do not replace it during the work."
            )
        tagger = load(self.model)
        is_default = isinstance(tagger, ZeroShotTagger)
        if self.method != "space" and not is_default:
            raise InputError(
                "`method` needs the default tagger; the published method has one way to rank "
                "labels."
            )
        has_precision = self.precision is not None
        if self.k is None:
            is_validated = is_default and tagger.validation_ is not None
            may_promise = self.kind in (None, "seen")
            if is_validated and may_promise and not has_precision:
                self.precision = DEFAULT_PRECISION
            self.k = _MOST_TAGS

        thresholds = np.zeros(len(tagger.classes_))
        with warnings.catch_warnings():
            # The warning about unseen labels is for those who asked for a precision of them.
            if self.kind == "seen" or not has_precision:
                warnings.simplefilter("ignore", PolysemeWarning)
            if self.precision is not None:
                thresholds = tagger.thresholds(self.precision)
        has_promise_for_all = bool(np.isfinite(thresholds).all())
        self.leaves_out = self.kind != "seen" and not has_promise_for_all
        if self.kind is not None:
            thresholds = np.where(tagger.kinds_ == self.kind, thresholds, np.inf)
        self._kinds = dict(zip(tagger.classes_, tagger.kinds_.tolist(), strict=True))
        self._thresholds = dict(zip(tagger.classes_, thresholds.tolist(), strict=True))
        return tagger

    @cached_property
    def n_rows(self) -> int:
        """Items ranked at a time, so that the table of their scores stays small."""
        most = _SCORES_AT_ONCE // max(1, len(self.tagger.classes_))
        return max(_LEAST_ROWS, min(MOST_ROWS, most))

    def columns_of(self, shard: Shard) -> tuple[str, ...] | None:
        """Return the columns of a shard in the order of the fit; None where one has no names."""
        fitted_names = getattr(self.tagger, "feature_names_in_", None)
        if fitted_names is None or shard.columns is None:
            return None
        n_columns = len(shard.columns)
        no_rows = np.empty((0, n_columns))
        header = Table(features=no_rows, columns=shard.columns)
        owner = type(self.tagger).__name__
        ordered = in_order(header, fitted_names.tolist(), owner=owner)
        return tuple(ordered.columns)

    def records(self, X: Any, tags: Any = None) -> list[Record]:
        """Return labels, kinds and scores of each item; see `ZeroShotTagger.rank`."""
        # The published method has one way only, and its `rank` asks for none.
        options = {} if self.method == "space" else {"method": self.method}
        tagger = self.tagger  # sets `k` where it was not given
        n_ranked = self.k or _MOST_TAGS
        if self.kind is not None:
            n_ranked = len(tagger.classes_)
        most = self.k or _MOST_TAGS
        labels, scores = tagger.rank(X, k=n_ranked, tags=tags, **options)
        rankings = zip(labels.tolist(), scores.tolist(), strict=True)
        records: list[Record] = []
        for item_labels, item_scores in rankings:
            record: Record = {"labels": [], "kinds": [], "scores": []}
            for label, score in likely_tags(item_labels, item_scores, self._thresholds, most):
                record["labels"].append(label)
                record["kinds"].append(self._kinds[label])
                record["scores"].append(round(score, 6))
            records.append(record)
        return records


def digest_of(model: Path) -> str:
    """Return the digest of a saved model, which changes whenever anything in it does."""
    return read_digest(model)


def check_seen(place: str | Path) -> None:
    """Raise unless this machine sees a file or folder."""
    if not os.path.lexists(place):
        raise unseen(socket.gethostname(), place)


class RankingInput:
    """Items whose features are read by blocks: of a file, an extracted folder, or shards."""

    def __init__(self, path: Path, options: ReadOptions = FEATURES_ONLY) -> None:
        self.shards: list[Shard] = []
        self.items: Any = None
        if path.is_dir() and (is_extraction(path) or not is_sharded(path)):
            self.items = read_extraction(path)
        elif is_sharded(path):
            self.shards, _ = find_shards(path, options)
        else:
            self.items = read_items(path, options)
            # Found here, rows have the numbers that the file gives them.
            check_features(self.items, owner="rank")

    def names(self) -> Iterator[Record]:
        """Yield the head of each item's record: a row number and its id, or a file."""
        if isinstance(self.items, Extracted):
            for name in self.items.ids:
                yield {"file": name}
            return
        n_rows = self.items.shape[0] if not self.shards else _count(self.shards)
        ids = self.ids
        for row in range(n_rows):
            yield record_head(row, ids, row)

    @cached_property
    def ids(self) -> list[str] | None:
        """The names of all rows; None where some have none."""
        if not self.shards:
            return self.items.ids if isinstance(self.items, Table) else None
        all_ids: list[str] = []
        is_complete = True
        for shard_ids in [shard.ids() for shard in self.shards]:
            if shard_ids is None:
                is_complete = False
            else:
                all_ids += shard_ids
        return all_ids if is_complete else None

    def pieces(self, n_rows: int, tags: Tags | None) -> Iterator[Piece]:
        """Yield shards, which the ranking worker reads, or blocks of `n_rows` rows; with tags."""
        for shard in self.shards:
            rows = slice(shard.first, shard.first + shard.n_rows)
            shard_tags = None if tags is None else tags[rows]
            yield shard, shard_tags
        if self.shards:
            return
        n_items = self.items.shape[0]
        for start in range(0, n_items, n_rows):
            rows = slice(start, start + n_rows)
            block_tags = None if tags is None else tags[rows]
            block = self.items[rows]
            if isinstance(block, Extracted):
                # Copies: arrays that are mapped from a file cannot be sent.
                copies = [np.array(raw) for raw in block.raw]
                block = replace(block, raw=copies, skipped=())
            yield block, block_tags


def record_head(row: int, ids: Sequence[str] | None, place: int) -> Record:
    """Return the head of a row's record: its number and, at a place of `ids`, its id."""
    if ids is None:
        return {"row": row}
    return {"row": row, "id": ids[place]}


def rank_table(
    table: RankingInput,
    ranker: SavedRanker,
    tags: Tags | None = None,
    engine: RayEngine | None = None,
    workers: int | None = None,
) -> Iterator[Record]:
    """Rank tags for a table; yield a record for each item, in order.

    `tags` are those that each item has already; for `engine` and `workers` see `rank_shards`.
    """
    pieces = table.pieces(ranker.n_rows, tags)
    if engine is None:
        piece_blocks = (_blocks(piece, ranker) for piece in pieces)
        blocks = itertools.chain.from_iterable(piece_blocks)
        n_threads = workers or n_cores()
        return _rank_blocks(ranker, blocks, n_threads)
    rank_piece = partial(_rank_piece, ranker)
    rankings = engine.map(rank_piece, list(pieces))
    return itertools.chain.from_iterable(rankings)


def _blocks(piece: Piece, ranker: SavedRanker) -> Iterator[Piece]:
    """Yield the blocks of a shard; a block is yielded as it is."""
    source, tags = piece
    if not isinstance(source, Shard):
        yield piece
        return
    check_seen(source.path)
    columns = ranker.columns_of(source)
    for start, block in read_blocks(source, ranker.n_rows, columns):
        block_tags = None
        if tags is not None:
            end = start + len(block)
            block_tags = tags[start:end]
        yield block, block_tags


def _rank_blocks(ranker: SavedRanker, blocks: Iterable[Piece], n_threads: int) -> Iterator[Record]:
    """Rank blocks in this process, taken as they are needed; yield records in order."""
    waiting = iter(blocks)
    with one_thread(training=False):
        # The first block alone fills the tagger's caches before threads use them.
        for block in itertools.islice(waiting, 1):
            yield from ranker.records(*block)
        ranked = ordered_map(lambda block: ranker.records(*block), waiting, n_threads)
        yield from itertools.chain.from_iterable(ranked)


def _rank_piece(ranker: SavedRanker, piece: Piece) -> list[Record]:
    """Rank a piece on a worker."""
    return list(_rank_blocks(ranker, _blocks(piece, ranker), 1))


# ---- shards into a folder


class RankingSummary(NamedTuple):
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
    kind: str | None = None,
    tags_column: str | None = None,
    features_column: str | None = None,
    form: str = "jsonl",
    engine: RayEngine | None = None,
    workers: int | None = None,
    progress: Callable[[int, int, int], None] | None = None,
) -> RankingSummary:
    """Rank tags for the rows of shards, a file of rankings for each shard.

    Interrupted, it resumes where it stopped when called again: shards that are finished are not
    ranked again unless they, or their rankings, were changed since. No more than a few blocks of
    rows are in memory.

    Parameters
    ----------
    model : str or Path
        Folder of a saved tagger.
    shards : str or Path
        A folder of shards, or a single one; see `polyseme.io.shards.find_shards`.
    out : str or Path
        A folder to write to: new, empty, or that of the same work before, which carries our mark.
    k : int
        The most tags a row.
    precision : float, optional
        The share of tags that should be true; see `ZeroShotTagger.thresholds`.
    method : {"space", "priming"}
        How labels are scored; see `ZeroShotTagger.predict_proba`.
    kind : {"seen", "unseen", "oov"}, optional
        Return tags of this kind only.
    tags_column, features_column : str, optional
        A column that is no feature, and the column of vectors where there are several; see
        `polyseme.io.read_table`.
    form : {"jsonl", "parquet"}
        The format of the rankings.
    engine : RayEngine, optional
        Where rows are ranked, from `open_engine`; by default here.
    workers : int, optional
        Here: blocks ranked at a time; by default one for each processor.
    progress : callable, optional
        Called with the rows that are done, of how many, and 0.

    Returns
    -------
    RankingSummary
    """
    check_number("k", k, owner="rank_shards", low=1, whole=True)
    check_option("method", method, METHODS, owner="rank_shards")
    check_option("form", form, FORMS, owner="rank_shards")
    options = FEATURES_ONLY._replace(tags_column=tags_column, features_column=features_column)
    all_shards, _ = find_shards(Path(shards), options)
    folder = Path(out)
    output_names = Counter(_output_of(folder, shard, form).name.lower() for shard in all_shards)
    if len(output_names) < len(all_shards):
        repeated_name, _ = output_names.most_common(1)[0]
        raise InputError(
            f"Two shards of '{shards}' are named '{repeated_name}'; rename one, or rank each "
            "folder alone."
        )
    ranker = SavedRanker(model, k, precision, method, kind)
    head = {"format": FORMAT, "version": FORMAT_VERSION, "model": ranker.digest, "top": k}
    head |= {"precision": precision, "method": method, "kind": kind, "form": form}
    with own_folder(folder, KIND):
        summaries = _prepare_folder(folder, all_shards, head)
        unranked: list[Shard] = []
        for shard in all_shards:
            if _output_of(folder, shard, form).name not in summaries:
                unranked.append(shard)
        n_rows = _count(all_shards)
        n_done = n_rows - _count(unranked)

        def tell(n_more: int = 0) -> None:
            if progress is not None:
                progress(n_done + n_more, n_rows, 0)

        write = partial(_rank_shard, ranker, folder.absolute(), form)
        new_summaries: Iterator[FileSummary]
        if engine is None:
            write_here = partial(write, n_threads=workers or n_cores(), tell=tell)
            new_summaries = map(write_here, unranked)
        else:
            new_summaries = engine.map(write, unranked)
        for shard, summary in zip(unranked, new_summaries, strict=True):
            # The worker's own summary: files of another machine need not be visible here yet.
            name = _output_of(folder, shard, form).name
            summaries[name] = summary
            _append_to_journal(folder, name, summary)
            n_done += shard.n_rows
            tell()
        files = []
        for shard in all_shards:
            name = _output_of(folder, shard, form).name
            file = {"file": name, "shard": shard.path.name, "first": shard.first}
            files.append(file | {"rows": shard.n_rows} | summaries[name])
        manifest = head | {"rows": n_rows, "files": files}
        _write(folder / MANIFEST, sealed(manifest))
        (folder / JOURNAL).unlink(missing_ok=True)
    return RankingSummary(len(all_shards), n_rows, len(all_shards) - len(unranked))


def _rank_shard(
    ranker: SavedRanker,
    folder: Path,
    form: str,
    shard: Shard,
    n_threads: int = 1,
    tell: Callable[[int], None] | None = None,
) -> FileSummary:
    """Rank a shard into its file of a folder; return the file's digest and size."""
    check_seen(folder)

    def numbered() -> Iterator[Record]:
        ids = shard.ids()
        blocks = _blocks((shard, None), ranker)
        records = _rank_blocks(ranker, blocks, n_threads)
        for number, record in enumerate(records):
            if tell is not None and number % MOST_ROWS == 0:
                tell(number)
            name = record_head(shard.first + number, ids, number)
            yield name | record

    try:
        with replacing(_output_of(folder, shard, form)) as stream:  # there when it is complete
            if form == "parquet":
                _write_parquet(numbered(), stream)
            else:
                text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                write_records(numbered(), text, "jsonl")
                text.detach()  # which flushes, and leaves the file open
            return stream.summary()
    except OSError as error:
        raise unwritable(folder, error) from error


def _prepare_folder(
    folder: Path, shards: Sequence[Shard], head: Mapping[str, Any]
) -> dict[str, FileSummary]:
    """Prepare a folder of ours; return the rankings that are whole and up to date there."""
    states = {}
    for shard in shards:
        info = shard.path.stat()
        states[shard.path.name] = [shard.first, shard.n_rows, info.st_size, info.st_mtime_ns]
    planned = _read(folder / PLAN)
    summaries = _read_summaries(folder)
    if planned is not None and not isinstance(planned.get("shards"), dict):
        planned = None
    before = planned or {**head, "shards": {}}
    for name, now in head.items():
        if before.get(name) != now:
            raise InputError(
                f"'{folder}' holds rankings with another {name} ({before.get(name)!s:.12} in place "
                f"of {now!s:.12}); name another folder."
            )
    if gone := sorted(before["shards"].keys() - states.keys()):
        raise InputError(
            f"'{folder}' holds rankings of '{gone[0]}', which is no shard any more; name another "
            "folder."
        )
    # Files that we have written, or were about to write: all others belong to the user.
    ours = {f"{Path(name).stem}.{head['form']}" for name in before["shards"]}
    ours |= summaries.keys()
    whole: dict[str, FileSummary] = {}
    stale: list[Path] = []
    spoiled: list[str] = []
    if planned is None and (summaries or (folder / PLAN).exists()):
        spoiled.append(PLAN)
    for shard in shards:
        output = _output_of(folder, shard, head["form"])
        if os.path.lexists(output) and output.name not in ours:
            raise InputError(
                f"'{folder}' holds '{output.name}', which no ranking wrote; name another folder."
            )
        current = before["shards"].get(shard.path.name) == states[shard.path.name]
        if current and output.name in summaries:
            summary = summaries[output.name]
            if is_intact(output, summary):
                whole[output.name] = summary
                continue
            spoiled.append(output.name)
        stale.append(output)
    if spoiled:
        warnings.warn(
            f"Damaged or gone in '{folder}', and made again: {first_few(spoiled, most=3)}.",
            PolysemeWarning,
            stacklevel=3,
        )
    lines = (json.dumps({"file": name} | summary) + "\n" for name, summary in whole.items())
    _write(folder / JOURNAL, "".join(lines).encode())
    _write(folder / PLAN, sealed({**head, "shards": states}))
    # The manifest goes before anything that it names.
    for path in (folder / MANIFEST, *stale):
        path.unlink(missing_ok=True)
    return whole


def _read_summaries(folder: Path) -> dict[str, FileSummary]:
    """Return digests and sizes of the files of a folder, from manifest and journal, by name."""
    manifest = _read(folder / MANIFEST) or {}
    files = manifest.get("files", [])
    lines: list[Any] = []
    if isinstance(files, list):
        lines += files
    journal = folder / JOURNAL
    if journal.is_file():
        for text in journal.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # a torn line
                lines.append(json.loads(text))
    summaries: dict[str, FileSummary] = {}
    for line in lines:
        if not isinstance(line, dict):
            continue
        name = line.get("file")
        if isinstance(name, str):
            digest = str(line.get("sha256"))
            n_bytes = line.get("bytes", -1)
            summaries[name] = {"sha256": digest, "bytes": n_bytes}
    return summaries


def _append_to_journal(folder: Path, name: str, summary: FileSummary) -> None:
    """Note that a file of a folder is done."""
    try:
        with (folder / JOURNAL).open("ab") as stream:
            line = json.dumps({"file": name} | summary)
            stream.write((line + "\n").encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise unwritable(folder, error) from error


def _read(path: Path) -> dict[str, Any] | None:
    """Read a JSON file of a folder of rankings; None where there is none, or a damaged one."""
    try:
        return unsealed(path.read_bytes())
    except OSError:
        return None


def _count(shards: Sequence[Shard]) -> int:
    """Count the rows of shards."""
    return sum(shard.n_rows for shard in shards)


def _output_of(folder: Path, shard: Shard, form: str) -> Path:
    """Return the file that a shard's rankings go to."""
    return folder / f"{shard.path.stem}.{form}"


def _write_parquet(records: Iterable[Record], stream: BinaryIO) -> None:
    """Write rankings as `row`, `id` if there is any, `labels`, `kinds`, `scores`, by groups."""
    arrow = import_pyarrow()
    texts = arrow.list_(arrow.string())
    numbers = arrow.list_(arrow.float64())
    remaining = iter(records)
    first = list(itertools.islice(remaining, 1))
    remaining = itertools.chain(first, remaining)
    columns = {"row": arrow.int64()}
    if first and "id" in first[0]:
        columns["id"] = arrow.string()
    columns |= {"labels": texts, "kinds": texts, "scores": numbers}
    schema = arrow.schema(columns)
    with arrow.parquet.ParquetWriter(stream, schema) as writer:
        while group := list(itertools.islice(remaining, GROUP_ROWS)):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


def _write(path: Path, content: bytes) -> None:
    """Write a file of a folder of rankings as a whole."""
    try:
        with replacing(path) as stream:
            stream.write(content)
    except OSError as error:
        raise unwritable(path.parent, error) from error
