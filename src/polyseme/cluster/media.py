"""Tags for media files, here or on a cluster.

In: a saved model, and files that all machines see under the same path. Out: a record of tags for
each file, in order. Workers look at files; the process that asks writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from polyseme._progress import FileProgress
from polyseme._threads import one_thread
from polyseme._validation import InputError
from polyseme.cluster.engine import RayEngine
from polyseme.cluster.ranking import Suggestions
from polyseme.features import Extracted, MediaError
from polyseme.features.extraction import find_media, look_at, map_files
from polyseme.io.xmp import merge_tags, sidecar_of

# Files tagged at a time: the same ones on every engine, whole batches of every feature extractor.
TAGGED_AT_ONCE = 64


class Tagging:
    """Files on their way to tags, here or by the workers of an engine.

    `model` is the folder of a tagger that was fitted with a feature extractor; `places` are media
    files and folders that hold some. For `k` and `precision` see `rank_shards`. `skipped` lists the
    files that could not be used so far, and why.
    """

    def __init__(
        self,
        model: str | Path,
        places: Sequence[Path],
        k: int,
        *,
        precision: float | None = None,
        n_jobs: int | None = None,
        engine: RayEngine | None = None,
    ) -> None:
        self.suggestions = Suggestions(model, k, precision)
        extractor = self.suggestions.tagger.features_
        if extractor is None:
            raise InputError(
                "This model was fitted on numbers, not on files, and cannot look at any; fit it on "
                "a folder that `polyseme extract` wrote, or use `polyseme rank`."
            )
        self.n_jobs, self.engine = n_jobs, engine
        self.skipped: list[tuple[str, str]] = []
        self.files = find_media(places, extractor.suffixes)[0]
        if not self.files:
            raise InputError(
                f"There is no {extractor.kind} file in {', '.join(map(str, places))}; names must "
                f"end in {', '.join(sorted(extractor.suffixes))}."
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each file, in order and as they come; note what is skipped."""
        n_jobs = self.n_jobs if self.engine is None else 1
        tag = partial(_tag, self.suggestions, n_jobs)
        paths = [file.path for file in self.files]
        outcomes = map_files(self.engine, tag, paths, TAGGED_AT_ONCE)
        with FileProgress("tagging") as progress:
            for done, (file, outcome) in enumerate(zip(self.files, outcomes, strict=True), start=1):
                skipped = isinstance(outcome, MediaError)
                if skipped:
                    self.skipped.append((str(file.path), str(outcome)))
                progress.tell(done, len(self.files), len(self.skipped))
                if not skipped:
                    name = os.fsencode(file.path).decode("utf-8", "backslashreplace")
                    yield {"file": name} | outcome

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each file as people read it; tags that no training item had say so."""
        for record in self.records():
            pairs = zip(record["labels"], record["kinds"], strict=True)
            tags = [label if kind == "seen" else f"{label} ({kind})" for label, kind in pairs]
            yield {"file": record["file"], "tags": tags}

    def sidecars(self) -> Iterator[dict[str, Any]]:
        """Write the tags of each file beside it, and yield what was added where."""
        for record in self.records():
            sidecar = sidecar_of(Path(os.fsdecode(record["file"].encode())))
            try:
                added = merge_tags(sidecar, record["labels"])
            except InputError as error:
                self.skipped.append((record["file"], str(error)))
                continue
            yield {"file": record["file"], "sidecar": str(sidecar), "added": added}


def _tag(suggestions: Suggestions, n_jobs: int | None, paths: Sequence[str]) -> list[Any]:
    """Give a record of tags for each file, or a `MediaError`."""
    extractor: Any = suggestions.tagger.features_
    extractor.set_params(n_jobs=n_jobs)
    with one_thread():
        outcomes: list[Any] = look_at(extractor, extractor.digest(), paths)
        usable = [n for n, raw in enumerate(outcomes) if not isinstance(raw, MediaError)]
        if usable:
            ids, raw = tuple(paths[n] for n in usable), [outcomes[n] for n in usable]
            items = Extracted(extractor.kind, extractor.preprocessing(), ids, raw)
            for n, record in zip(usable, suggestions.records(items), strict=True):
                outcomes[n] = record
    return outcomes
