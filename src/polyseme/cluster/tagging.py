"""From media files to tags, in this process or with the workers of a cluster.

In: a tagger with a feature extractor, and files. Out: a record for each file in order, or tags in
XMP files beside the media, which one process writes, each once.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from polyseme._progress import FileProgress
from polyseme._threads import one_thread
from polyseme._validation import InputError
from polyseme.cluster.engines import RayEngine
from polyseme.cluster.jobs import digest_of
from polyseme.cluster.media_jobs import TagFiles, rank_raw
from polyseme.cluster.suggestions import Suggestions
from polyseme.features import MediaError
from polyseme.features.extraction import MediaFile, find_media
from polyseme.features.sound import quiet_decoders
from polyseme.tagger import Tagger

# Files ranked at a time: the same ones on every engine, whole batches of every feature extractor.
RANKED_AT_ONCE = 64
Outcomes = list[tuple[MediaFile, Any]]


class Tagging:
    """Files on their way to tags.

    Parameters
    ----------
    tagger : ZeroShotTagger or PublishedTagger
        Fitted with a feature extractor.
    places : sequence of Path
        Media files, and folders that hold some.
    k : int
        Tags a file.
    precision : float, optional
        The share of tags that should be true.
    n_jobs : int, optional
        Files looked at at a time; by default one for each processor.
    engine : RayEngine, optional
        Whose workers tag the files; None tags them here.
    model : Path, optional
        For an engine: the folder that the tagger was loaded from, which all machines must see.

    Attributes
    ----------
    skipped : list of (str, str)
        Files that could not be used so far, and why.
    n_tagged : int
        Files that were tagged so far.
    """

    def __init__(
        self,
        tagger: Tagger,
        places: Sequence[Path],
        k: int,
        *,
        precision: float | None = None,
        n_jobs: int | None = None,
        engine: RayEngine | None = None,
        model: Path | None = None,
    ) -> None:
        if tagger.features_ is None:
            raise InputError(
                "This model was fitted on numbers, not on files, and cannot look at any; fit it on "
                "a folder that `polyseme extract` wrote, or use `polyseme rank`."
            )
        if engine is not None and model is None:
            raise InputError("`engine` of `Tagging` needs `model`, the folder of the tagger.")
        self.extractor = tagger.features_.set_params(n_jobs=n_jobs)
        self.suggestions = Suggestions(tagger, k, precision)
        self.engine = engine
        self.model = model
        self.skipped: list[tuple[str, str]] = []
        self.n_tagged = 0
        self.files = find_media(places, self.extractor.suffixes).media
        if not self.files:
            raise InputError(
                f"There is no {self.extractor.kind} file in {', '.join(map(str, places))}; names "
                f"must end in {', '.join(sorted(self.extractor.suffixes))}."
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each file, in order and as they come; note what is skipped."""
        self.n_tagged = 0
        blocks = self._here() if self.engine is None else self._elsewhere(self.engine)
        with closing(blocks):
            for block in blocks:
                for file, record in block:
                    self.n_tagged += 1
                    name = os.fsencode(file.path).decode("utf-8", "backslashreplace")
                    yield {"file": name} | record

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each file as people read it; tags that no training item had say so."""
        for record in self.records():
            pairs = zip(record["labels"], record["kinds"], strict=True)
            tags = [label if kind == "seen" else f"{label} ({kind})" for label, kind in pairs]
            yield {"file": record["file"], "tags": tags}

    def sidecars(self) -> Iterator[dict[str, Any]]:
        """Write the tags of each file beside it, and yield what was added where."""
        from polyseme.io.xmp import merge_tags, sidecar_of

        for record in self.records():
            sidecar = sidecar_of(Path(os.fsdecode(record["file"].encode())))
            try:
                added = merge_tags(sidecar, record["labels"])
            except InputError as error:
                self.skipped.append((record["file"], str(error)))
                continue
            yield {"file": record["file"], "sidecar": str(sidecar), "added": added}

    def _blocks(self) -> Iterator[list[MediaFile]]:
        """Cut the files into the blocks that are ranked together."""
        for start in range(0, len(self.files), RANKED_AT_ONCE):
            yield self.files[start : start + RANKED_AT_ONCE]

    def _here(self) -> Generator[Outcomes, None, None]:
        """Tag files in this process, a block at a time."""
        with (
            one_thread(),
            quiet_decoders(),
            FileProgress("tagging") as progress,
            closing(self.extractor.extract(file.path for file in self.files)) as extracted,
        ):
            done = 0
            for block in self._blocks():
                usable: Outcomes = []
                # The files come first: zip must not take a raw one that it cannot pair.
                for file, raw in zip(block, extracted, strict=False):
                    done += 1
                    usable += self._sorted(file, raw)
                    progress.tell(done, len(self.files), len(self.skipped))
                ids, raws = [file.id for file, _ in usable], [raw for _, raw in usable]
                records = rank_raw(self.suggestions, self.extractor, ids, raws)
                yield list(zip((file for file, _ in usable), records, strict=True))

    def _elsewhere(self, engine: RayEngine) -> Generator[Outcomes, None, None]:
        """Let workers tag files, a block at a time."""
        assert self.model is not None  # checked when this was made
        model = self.model.absolute()
        suggestions = self.suggestions
        job = TagFiles(str(model), digest_of(model), suggestions.k, suggestions.precision)
        pieces: Iterable[list[str]] = (
            [str(file.path.absolute()) for file in block] for block in self._blocks()
        )
        with FileProgress("tagging") as progress:
            done = 0
            for block, found in zip(self._blocks(), engine.run(job, pieces, ahead=4), strict=True):
                usable: Outcomes = []
                for file, outcome in zip(block, found, strict=True):
                    done += 1
                    usable += self._sorted(file, outcome.given(file.path))
                    progress.tell(done, len(self.files), len(self.skipped))
                yield usable

    def _sorted(self, file: MediaFile, found: Any) -> Outcomes:
        """Keep what was found of a file, or note why there is nothing."""
        if isinstance(found, MediaError):
            self.skipped.append((str(file.path), str(found)))
            return []
        return [(file, found)]
