"""Ranking the rows of tables of any size: a table in blocks, or shards into a folder of rankings.

In: a saved model, and a feature table or shards of one. Out: records in the order of the rows, or a
file of rankings for each shard, with a manifest when all are there. Every engine cuts tables at the
same places and uses one thread for each block, so that all give the same bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyseme._threads import n_cores, one_thread, ordered_map
from polyseme._validation import check_number, check_option
from polyseme.cluster.engines import RayEngine, entered
from polyseme.cluster.jobs import check_seen, digest_of, load_same
from polyseme.cluster.outputs import FORMS, RankingFolder, output_of, write_output
from polyseme.cluster.suggestions import Suggestions
from polyseme.io.shards import Shard, Shards, find_shards, read_blocks
from polyseme.tagger import METHODS

Tell = Callable[[int, int, int], None]
Block = tuple[Any, Any]  # features, and the tags that items have already or None


@dataclass(frozen=True)
class Ranked:
    """What became of shards.

    Attributes
    ----------
    n_shards, n_rows : int
        All of them.
    n_before : int
        Shards that an earlier run had finished.
    """

    n_shards: int
    n_rows: int
    n_before: int

    def sentence(self) -> str:
        """Say it in one sentence."""
        shards = f"{self.n_shards:,} shard{'' if self.n_shards == 1 else 's'}"
        told = f"{self.n_rows:,} rows of {shards} ranked"
        return told + (f" ({self.n_before:,} of them before)" if self.n_before else "")


@dataclass(frozen=True)
class RankBlocks:
    """The job of ranking blocks that are sent along.

    Attributes
    ----------
    model, digest : str
        The model's folder as all machines see it, and what `digest_of` gives for it.
    k : int
        The most tags an item.
    precision : float or None
    method : {"space", "priming"}
    """

    model: str
    digest: str
    k: int
    precision: float | None
    method: str = "space"

    def start(self) -> Callable[[Block], list[dict[str, Any]]]:
        """Load the model; see `Job.start`."""
        suggestions = self.suggestions()

        def rank(block: Block) -> list[dict[str, Any]]:
            with one_thread():
                return list(suggestions.records(*block))

        return rank

    def suggestions(self) -> Suggestions:
        """Load the model for its suggestions."""
        tagger = load_same(self.model, self.digest)
        return Suggestions(tagger, self.k, self.precision, self.method)

    def name_of(self, piece: Block) -> str:
        """Name a block; see `Job.name_of`."""
        return f"a block of {piece[0].shape[0]} rows"


@dataclass(frozen=True)
class RankShards:
    """The job of ranking shards that all machines see, each into a file of its own.

    Attributes
    ----------
    blocks : RankBlocks
        Model and options.
    out : str
        The folder to write to, as all machines see it.
    form : {"jsonl", "parquet"}
    """

    blocks: RankBlocks
    out: str
    form: str

    def start(
        self, n_threads: int = 1, tell: Callable[[int], None] | None = None
    ) -> Callable[[Shard], int]:
        """Load the model; see `Job.start`.

        Parameters
        ----------
        n_threads : int
            Blocks ranked at a time.
        tell : callable, optional
            Called with the rows of each block that is done.
        """
        check_seen(self.out)
        suggestions = self.blocks.suggestions()

        def rank(shard: Shard) -> int:
            check_seen(str(shard.path))
            blocks = (block for _, block in read_blocks(shard, suggestions.n_rows))
            found = rank_blocks(suggestions, ((block, None) for block in blocks), n_threads)
            records = _numbered(found, shard.first, tell)
            return write_output(output_of(Path(self.out), shard, self.form), records, self.form)

        return rank

    def name_of(self, piece: Shard) -> str:
        """Name a shard; see `Job.name_of`."""
        return f"'{piece.path.name}'"


def rank_blocks(
    suggestions: Suggestions, blocks: Iterable[Block], n_threads: int | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Rank tags for blocks of items in this process.

    Parameters
    ----------
    suggestions : Suggestions
    blocks : iterable of (features, tags or None)
        Taken as they are needed.
    n_threads : int, optional
        Blocks at a time; by default one for each processor.

    Yields
    ------
    list of dict
        A record for each item of a block, in order.
    """

    def rank(block: Block) -> list[dict[str, Any]]:
        return list(suggestions.records(*block))

    waiting = iter(blocks)
    with one_thread():
        # The first one alone: what a tagger makes when it is first asked is then there for all.
        for block in itertools.islice(waiting, 1):
            yield rank(block)
        yield from ordered_map(rank, waiting, n_threads or n_cores())


def rank_shards(
    model: str | Path,
    shards: str | Path,
    out: str | Path,
    *,
    k: int = 10,
    precision: float | None = None,
    method: str = "space",
    form: str = "jsonl",
    engine: str | RayEngine | None = "local",
    address: str | None = None,
    workers: int | None = None,
    tell: Tell | None = None,
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
    engine : {"local", "ray"}, RayEngine or None
        Where rows are ranked; see `open_engine`. None is local. All give the same bytes.
    address, workers : str and int, optional
        For a Ray cluster, and how many work at a time; see `open_engine`.
    tell : callable, optional
        Called with the rows that are done, of how many, and 0.

    Returns
    -------
    Ranked
    """
    check_number("k", k, owner="rank_shards", low=1, whole=True)
    check_option("method", method, METHODS, owner="rank_shards")
    check_option("form", form, FORMS, owner="rank_shards")
    found, place = find_shards(Path(shards)), Path(model)
    digest = digest_of(place)
    folder = RankingFolder(Path(out), form)
    options = {"model": digest, "top": k, "precision": precision, "method": method}
    waiting = folder.begin(found, options)
    blocks = RankBlocks(str(place.absolute()), digest, k, precision, method)
    job = RankShards(blocks, str(folder.path.absolute()), form)
    sizes: dict[str, int] = {}
    if waiting:
        progress = _Rows(found, waiting, tell)
        with entered(engine, address, workers) as where:
            if where is None:
                rank = job.start(workers or n_cores(), progress.add)
                sizes = {shard.path.name: rank(shard) for shard in waiting}
            else:
                sizes = _on_cluster(job, waiting, where, progress)
    folder.finish(found, options, sizes)
    return Ranked(len(found), found.n_rows, len(found) - len(waiting))


class _Rows:
    """Count rows that are done and tell of them."""

    def __init__(self, shards: Shards, waiting: list[Shard], tell: Tell | None) -> None:
        self.total = shards.n_rows
        self.done = self.total - sum(shard.n_rows for shard in waiting)
        self.tell = tell

    def add(self, n_rows: int) -> None:
        """Count some more."""
        self.done += n_rows
        if self.tell is not None:
            self.tell(self.done, self.total, 0)


def _on_cluster(
    job: RankShards, waiting: list[Shard], engine: RayEngine, progress: _Rows
) -> dict[str, int]:
    """Hand shards out to workers, under the paths that all machines see; give what they wrote."""
    pieces = [
        Shard(shard.path.absolute(), shard.first, shard.n_rows, shard.n_columns)
        for shard in waiting
    ]
    sizes = {}
    for shard, size in zip(pieces, engine.run(job, pieces), strict=True):
        sizes[shard.path.name] = size
        progress.add(shard.n_rows)
    return sizes


def _numbered(
    found: Iterable[list[dict[str, Any]]], first: int, tell: Callable[[int], None] | None
) -> Iterator[dict[str, Any]]:
    """Put row numbers before records, block after block."""
    for records in found:
        for number, record in enumerate(records):
            yield {"row": first + number} | record
        first += len(records)
        if tell is not None:
            tell(len(records))


def rank_table(
    blocks: Iterable[Block],
    model: str | Path,
    suggestions: Suggestions,
    engine: RayEngine | None,
    workers: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Rank tags for a table that is read here, in the order of its rows.

    Parameters
    ----------
    blocks : iterable of (features, tags or None)
        Of `suggestions.n_rows` items each.
    model : str or Path
        The folder that the suggestions' tagger was loaded from.
    suggestions : Suggestions
    engine : RayEngine or None
        None ranks here.
    workers : int, optional
        Blocks at a time.

    Yields
    ------
    dict
        A record for each item.
    """
    if engine is None:
        found: Iterable[list[dict[str, Any]]] = rank_blocks(suggestions, blocks, workers)
    else:
        place = Path(model).absolute()
        job = RankBlocks(
            str(place),
            digest_of(place),
            suggestions.k,
            suggestions.precision,
            suggestions.method,
        )
        found = engine.run(job, blocks, ahead=2)
    for records in found:
        yield from records
