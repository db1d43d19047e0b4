"""Rank tags for tables of any size: block by block, or shard by shard into a folder.

In: a saved model, and features in a file, an extracted folder or shards. Out: a record for each
row, or a file of rankings for each shard and a manifest when all are there. Scores of all engines
agree within 1e-5.

Terms: an *item* is a row of a table of features, or a file of an extracted folder. A *block* is
some items that are ranked at a time; a *piece* is what a worker gets: a shard, or a block. Their
*tags* are what each item has already. A *record* is the ranking of an item as JSON values.
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

FORMS = ("jsonl", "parquet")  # of files of rankings
# Files of a folder of rankings: the plan, with the sizes and times of all shards; the journal of
# finished files, a line of JSON each; and the manifest, once all are finished, in place of it.
PLAN_FILE = "plan.json"
JOURNAL_FILE = "done.journal"
MANIFEST_FILE = "manifest.json"
# Of plan and manifest; a change of their fields needs another version.
FORMAT = "polyseme ranking"
FORMAT_VERSION = 3
KIND = "rankings"  # what the mark of a folder of ours says
# Items of a block: at the most, at the least, and by the numbers of their scores.
MOST_ROWS = 1024
_LEAST_ROWS = 16
_MOST_SCORES = 2**22
# Where the user sets neither a number of tags nor a precision.
DEFAULT_PRECISION = 0.5
_MOST_TAGS = 10
GROUP_ROWS = 16_384  # of a Parquet file; a reader holds at least one group of rows

Record = dict[str, Any]  # "row" and "id", or "file"; then "labels", "kinds" and "scores", in order
Tags = Sequence[Any]  # for each item, labels or a mapping of labels to probabilities
Piece = tuple[Any, Tags | None]  # a shard or the features of a block, and the items' tags


class SavedRanker:
    """A saved tagger that ranks its best tags, or those likely enough; see `rank_shards`.

    Without `k`, those that are likely enough for `DEFAULT_PRECISION` where held-out items have
    shown what a tagger can promise, ten at the most; ten where they have not, or where labels are
    asked for that no training item carries. The tagger is loaded when it is needed: by each worker
    for itself, where a copy of this travels to. It must be the same one everywhere.

    Parameters
    ----------
    model : str or Path
        Folder of the tagger; all machines see the same one under this path.
    k : int, optional
        The most tags of an item.
    precision : float, optional
        The share of tags that should be true.
    method : {"space", "priming"}
        How labels are scored; see `ZeroShotTagger.predict_proba`.
    kind : {"seen", "unseen", "oov"}, optional
        Rank labels of this kind only.

    Attributes
    ----------
    digest : str
        That of the model's folder when this was made.
    leaves_out : bool
        Whether unseen labels are left out, since no precision can be promised. Set when the tagger
        is loaded, as `k` and `precision` are where they were not given.
    """

    leaves_out: bool
    _kinds: dict[str, str]  # the kind of each label
    _thresholds: dict[str, float]  # the least score of each label to be suggested; inf for never

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
        # Without the tagger, which each worker loads.
        names = ("model", "digest", "k", "precision", "method", "kind")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def tagger(self) -> Tagger:
        """The tagger; raises where the folder holds another one here, or by now."""
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

        # A label's least score to be suggested: 0 without a precision, infinity for never.
        thresholds = np.zeros(len(tagger.classes_))
        with warnings.catch_warnings():
            # The warning about unseen labels is for those who asked for a precision of them.
            if self.kind == "seen" or not has_precision:
                warnings.simplefilter("ignore", PolysemeWarning)
            if self.precision is not None:
                thresholds = tagger.thresholds(self.precision)
        labels = tagger.classes_
        kinds = tagger.kinds_
        has_promise_for_all = bool(np.isfinite(thresholds).all())
        self.leaves_out = self.kind != "seen" and not has_promise_for_all
        if self.kind is not None:
            is_asked_for = kinds == self.kind
            thresholds = np.where(is_asked_for, thresholds, np.inf)
        self._kinds = dict(zip(labels, kinds.tolist(), strict=True))
        self._thresholds = dict(zip(labels, thresholds.tolist(), strict=True))
        return tagger

    @cached_property
    def block_rows(self) -> int:
        """The number of items of a block, so that the table of their scores stays small."""
        n_labels = max(1, len(self.tagger.classes_))
        most_rows = min(MOST_ROWS, _MOST_SCORES // n_labels)
        return max(_LEAST_ROWS, most_rows)

    def columns_of(self, shard: Shard) -> tuple[str, ...] | None:
        """Return the names of a shard's features in the order in which the tagger was fitted.

        None where tagger or shard have no names; raise where the shard lacks a feature.
        """
        tagger = self.tagger
        fitted_names = getattr(tagger, "feature_names_in_", None)
        if fitted_names is None or shard.columns is None:
            return None
        n_columns = len(shard.columns)
        no_rows = np.empty((0, n_columns))
        header = Table(features=no_rows, columns=shard.columns)
        owner = type(tagger).__name__
        ordered = in_order(
            header,
            fitted_names.tolist(),
            owner=owner,
        )
        return tuple(ordered.columns)

    def records(self, X: Any, tags: Any = None) -> list[Record]:
        """Return labels, kinds and scores of each item, the best first; see `ZeroShotTagger.rank`.

        X are the features of a block, `tags` the tags that its items have already. Scores are
        rounded to six digits, as rankings on disk have them.
        """
        # The published method has one way only, and its `rank` asks for none.
        options = {} if self.method == "space" else {"method": self.method}
        tagger = self.tagger  # sets `k` where it was not given
        most_tags = self.k or _MOST_TAGS
        n_ranked = most_tags
        if self.kind is not None:
            n_ranked = len(tagger.classes_)
        labels, scores = tagger.rank(
            X,
            k=n_ranked,
            tags=tags,
            **options,
        )
        rankings = zip(labels.tolist(), scores.tolist(), strict=True)
        records: list[Record] = []
        for item_labels, item_scores in rankings:
            item_tags = likely_tags(
                item_labels,
                item_scores,
                self._thresholds,
                most_tags,
            )
            record: Record = {"labels": [], "kinds": [], "scores": []}
            for label, score in item_tags:
                kind = self._kinds[label]
                record["labels"].append(label)
                record["kinds"].append(kind)
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
    """Items whose features are read by blocks: of a file, an extracted folder, or shards.

    Parameters
    ----------
    path : Path
        The file or folder.
    options : ReadOptions
        Which columns of a table are no features.

    Attributes
    ----------
    shards : list of Shard
        In the order of their rows; empty where there are items.
    items : Table, array, sparse matrix or Extracted
        All items of a file or an extracted folder; None where there are shards.
    """

    def __init__(self, path: Path, options: ReadOptions = FEATURES_ONLY) -> None:
        self.shards: list[Shard] = []
        self.items: Any = None
        has_shards = is_sharded(path)
        is_extracted = path.is_dir() and (is_extraction(path) or not has_shards)
        if is_extracted:
            self.items = read_extraction(path)
        elif has_shards:
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
        if self.shards:
            n_rows = _count_rows(self.shards)
        else:
            n_rows = self.items.shape[0]
        ids = self.ids
        for row in range(n_rows):
            yield record_head(row, ids, row)

    @cached_property
    def ids(self) -> list[str] | None:
        """The names of all rows, in order; None where some have none."""
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

    def pieces(self, block_rows: int, tags: Tags | None) -> Iterator[Piece]:
        """Yield all items in order, as shards, which the ranking worker reads, or as blocks.

        Blocks have `block_rows` items; `tags` are those of all items.
        """
        for shard in self.shards:
            stop = shard.first + shard.n_rows
            rows = slice(shard.first, stop)
            shard_tags = None if tags is None else tags[rows]
            yield shard, shard_tags
        if self.shards:
            return
        n_items = self.items.shape[0]
        for start in range(0, n_items, block_rows):
            rows = slice(start, start + block_rows)
            block_tags = None if tags is None else tags[rows]
            block = self.items[rows]
            if isinstance(block, Extracted):
                # Copies: arrays that are mapped from a file cannot be sent.
                copies = [np.array(raw) for raw in block.raw]
                block = replace(block, raw=copies, skipped=())
            yield block, block_tags


def record_head(row: int, ids: Sequence[str] | None, place: int) -> Record:
    """Return the head of a record: the row's number among all and, at a place of `ids`, its id."""
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
    """Rank tags for a table; yield a record for each item, in order, without its head.

    `tags` are those that each item has already; for `engine` and `workers` see `rank_shards`. With
    an engine all pieces are sent before the first record comes.
    """
    pieces = table.pieces(ranker.block_rows, tags)
    if engine is None:
        block_iterators = (_blocks(piece, ranker) for piece in pieces)
        blocks = itertools.chain.from_iterable(block_iterators)
        n_threads = workers or n_cores()
        return _rank_blocks(ranker, blocks, n_threads)
    rank_piece = partial(_rank_piece, ranker)
    rankings = engine.map(rank_piece, list(pieces))
    return itertools.chain.from_iterable(rankings)


def _blocks(piece: Piece, ranker: SavedRanker) -> Iterator[Piece]:
    """Yield the blocks of a shard with their items' tags; a block is yielded as it is."""
    source, tags = piece
    if not isinstance(source, Shard):
        yield piece
        return
    check_seen(source.path)
    columns = ranker.columns_of(source)
    for start, block in read_blocks(source, ranker.block_rows, columns):
        block_tags = None
        if tags is not None:
            end = start + len(block)
            block_tags = tags[start:end]
        yield block, block_tags


def _rank_blocks(ranker: SavedRanker, blocks: Iterable[Piece], n_threads: int) -> Iterator[Record]:
    """Rank blocks in this process, taken as they are needed; yield records in order."""

    def rank_block(block: Piece) -> list[Record]:
        features, tags = block
        return ranker.records(features, tags)

    further_blocks = iter(blocks)
    with one_thread(training=False):
        # The first block alone fills the tagger's caches before threads use them.
        for first_block in itertools.islice(further_blocks, 1):
            yield from rank_block(first_block)
        rankings = ordered_map(rank_block, further_blocks, n_threads)
        yield from itertools.chain.from_iterable(rankings)


def _rank_piece(ranker: SavedRanker, piece: Piece) -> list[Record]:
    """Rank a piece on a worker, in one thread."""
    blocks = _blocks(piece, ranker)
    records = _rank_blocks(ranker, blocks, 1)
    return list(records)


# ---- shards into a folder


class RankingSummary(NamedTuple):
    """How many shards and rows are ranked."""

    n_shards: int
    n_rows: int
    n_before: int  # shards that an earlier run had finished


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
    options = FEATURES_ONLY._replace(
        tags_column=tags_column,
        features_column=features_column,
    )
    all_shards, _ = find_shards(Path(shards), options)
    n_shards = len(all_shards)
    folder = Path(out)
    # Some file systems do not tell letters' cases apart.
    lowered_names = Counter(_output_name(shard, form).lower() for shard in all_shards)
    if len(lowered_names) < n_shards:
        repeated_name, _ = lowered_names.most_common(1)[0]
        raise InputError(
            f"Two shards of '{shards}' are named '{repeated_name}'; rename one, or rank each "
            "folder alone."
        )
    ranker = SavedRanker(model, k, precision, method, kind)
    # What plan and manifest begin with; rankings of another head are refused.
    head = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "model": ranker.digest,
        "top": k,
        "precision": precision,
        "method": method,
        "kind": kind,
        "form": form,
    }
    with own_folder(folder, KIND):
        summaries = _prepare_folder(folder, all_shards, head)
        unranked: list[Shard] = []
        for shard in all_shards:
            if _output_name(shard, form) not in summaries:
                unranked.append(shard)
        n_rows = _count_rows(all_shards)
        n_done = n_rows - _count_rows(unranked)

        def report(n_more: int = 0) -> None:
            if progress is not None:
                n_ranked = n_done + n_more
                progress(n_ranked, n_rows, 0)

        rank_shard = partial(_rank_shard, ranker, folder.absolute(), form)
        new_summaries: Iterator[FileSummary]
        if engine is None:
            n_threads = workers or n_cores()
            rank_here = partial(rank_shard, n_threads=n_threads, report=report)
            new_summaries = map(rank_here, unranked)
        else:
            new_summaries = engine.map(rank_shard, unranked)
        for shard, summary in zip(unranked, new_summaries, strict=True):
            # The worker's own summary: files of another machine need not be visible here yet.
            name = _output_name(shard, form)
            summaries[name] = summary
            _append_to_journal(folder, name, summary)
            n_done += shard.n_rows
            report()
        files = []
        for shard in all_shards:
            name = _output_name(shard, form)
            file = {
                "file": name,
                "shard": shard.path.name,
                "first": shard.first,
                "rows": shard.n_rows,
            }
            files.append(file | summaries[name])
        manifest = head | {"rows": n_rows, "files": files}
        _write(folder / MANIFEST_FILE, sealed(manifest))
        (folder / JOURNAL_FILE).unlink(missing_ok=True)
    n_before = n_shards - len(unranked)
    return RankingSummary(n_shards, n_rows, n_before)


def _rank_shard(
    ranker: SavedRanker,
    folder: Path,
    form: str,
    shard: Shard,
    n_threads: int = 1,
    report: Callable[[int], None] | None = None,
) -> FileSummary:
    """Rank a shard into its file of a folder; return the file's digest and size.

    `report` is called now and then with the number of rows that are ranked.
    """
    check_seen(folder)
    output = folder / _output_name(shard, form)

    def headed_records() -> Iterator[Record]:
        ids = shard.ids()
        blocks = _blocks((shard, None), ranker)
        records = _rank_blocks(ranker, blocks, n_threads)
        for number, record in enumerate(records):
            if report is not None and number % MOST_ROWS == 0:
                report(number)
            row = shard.first + number
            head = record_head(row, ids, number)
            yield head | record

    try:
        with replacing(output) as stream:  # there when it is complete
            if form == "parquet":
                _write_parquet(headed_records(), stream)
            else:
                text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                write_records(headed_records(), text, "jsonl")
                text.detach()  # which flushes, and leaves the file open
            return stream.summary()
    except OSError as error:
        raise unwritable(folder, error) from error


def _prepare_folder(
    folder: Path, shards: Sequence[Shard], head: Mapping[str, Any]
) -> dict[str, FileSummary]:
    """Prepare a folder of ours: refuse other work, remove stale rankings, write plan and journal.

    `head` is what the manifest will begin with. Return the rankings that are whole and up to date,
    by the names of their files.
    """
    # The state of each shard, by which a change is seen: its rows, size and time.
    states: dict[str, list[int]] = {}
    for shard in shards:
        info = shard.path.stat()
        states[shard.path.name] = [
            shard.first,
            shard.n_rows,
            info.st_size,
            info.st_mtime_ns,
        ]
    planned = _read_sealed(folder / PLAN_FILE)
    summaries = _read_summaries(folder)
    if planned is not None and not isinstance(planned.get("shards"), dict):
        planned = None
    before = planned or {**head, "shards": {}}
    states_before = before["shards"]
    for name, setting in head.items():
        setting_before = before.get(name)
        if setting_before != setting:
            raise InputError(
                f"'{folder}' holds rankings with another {name} ({setting_before!s:.12} in place "
                f"of {setting!s:.12}); name another folder."
            )
    missing = sorted(states_before.keys() - states.keys())
    if missing:
        raise InputError(
            f"'{folder}' holds rankings of '{missing[0]}', which is no shard any more; name "
            "another folder."
        )
    # Files that we have written, or were about to write: all others belong to the user.
    form = head["form"]
    our_names = {f"{Path(shard_name).stem}.{form}" for shard_name in states_before}
    our_names |= summaries.keys()
    whole: dict[str, FileSummary] = {}
    stale: list[Path] = []
    spoiled: list[str] = []
    had_plan = bool(summaries) or (folder / PLAN_FILE).exists()
    if planned is None and had_plan:
        spoiled.append(PLAN_FILE)
    for shard in shards:
        name = _output_name(shard, form)
        output = folder / name
        if os.path.lexists(output) and name not in our_names:
            raise InputError(
                f"'{folder}' holds '{name}', which no ranking wrote; name another folder."
            )
        shard_name = shard.path.name
        is_unchanged = states_before.get(shard_name) == states[shard_name]
        if is_unchanged and name in summaries:
            summary = summaries[name]
            if is_intact(output, summary):
                whole[name] = summary
                continue
            spoiled.append(name)
        stale.append(output)
    if spoiled:
        warnings.warn(
            f"Damaged or gone in '{folder}', and made again: {first_few(spoiled, most=3)}.",
            PolysemeWarning,
            stacklevel=3,
        )
    lines = [_journal_line(name, summary) for name, summary in whole.items()]
    _write(folder / JOURNAL_FILE, b"".join(lines))
    plan = {**head, "shards": states}
    _write(folder / PLAN_FILE, sealed(plan))
    # The manifest goes before anything that it names.
    for path in (folder / MANIFEST_FILE, *stale):
        path.unlink(missing_ok=True)
    return whole


def _read_summaries(folder: Path) -> dict[str, FileSummary]:
    """Return digests and sizes of the files of a folder, from manifest and journal, by name.

    Whether they are true of the files is not checked.
    """
    manifest = _read_sealed(folder / MANIFEST_FILE) or {}
    files = manifest.get("files", [])
    entries: list[Any] = []
    if isinstance(files, list):
        entries += files
    journal = folder / JOURNAL_FILE
    if journal.is_file():
        for line in journal.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # a torn line
                entries.append(json.loads(line))
    summaries: dict[str, FileSummary] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        name = entry.get("file")
        if isinstance(name, str):
            digest = str(entry.get("sha256"))
            n_bytes = entry.get("bytes", -1)
            summaries[name] = {"sha256": digest, "bytes": n_bytes}
    return summaries


def _journal_line(name: str, summary: FileSummary) -> bytes:
    """Return the journal's line for a finished file."""
    entry = {"file": name} | summary
    line = json.dumps(entry) + "\n"
    return line.encode()


def _append_to_journal(folder: Path, name: str, summary: FileSummary) -> None:
    """Note that a file of a folder is done, so that it outlasts a crash of the machine."""
    line = _journal_line(name, summary)
    try:
        with (folder / JOURNAL_FILE).open("ab") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise unwritable(folder, error) from error


def _read_sealed(path: Path) -> dict[str, Any] | None:
    """Read a plan or a manifest; None where there is none, or a damaged one."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return unsealed(content)


def _count_rows(shards: Sequence[Shard]) -> int:
    """Count the rows of shards."""
    return sum(shard.n_rows for shard in shards)


def _output_name(shard: Shard, form: str) -> str:
    """Return the name of the file that a shard's rankings go to."""
    return f"{shard.path.stem}.{form}"


def _write_parquet(records: Iterable[Record], stream: BinaryIO) -> None:
    """Write rankings as columns `row`, `id` if there is any, `labels`, `kinds` and `scores`.

    Either all records have an id or none has.
    """
    arrow = import_pyarrow()
    text_lists = arrow.list_(arrow.string())
    number_lists = arrow.list_(arrow.float64())
    further_records = iter(records)
    first_records = list(itertools.islice(further_records, 1))
    all_records = itertools.chain(first_records, further_records)
    columns = {"row": arrow.int64()}
    has_ids = bool(first_records) and "id" in first_records[0]
    if has_ids:
        columns["id"] = arrow.string()
    columns["labels"] = text_lists
    columns["kinds"] = text_lists
    columns["scores"] = number_lists
    schema = arrow.schema(columns)
    with arrow.parquet.ParquetWriter(stream, schema) as writer:
        while group := list(itertools.islice(all_records, GROUP_ROWS)):
            table = arrow.Table.from_pylist(group, schema=schema)
            writer.write_table(table)


def _write(path: Path, content: bytes) -> None:
    """Write a file of a folder of rankings as a whole."""
    try:
        with replacing(path) as stream:
            stream.write(content)
    except OSError as error:
        raise unwritable(path.parent, error) from error
