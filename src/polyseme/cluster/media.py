"""Media files on a cluster, or here: extracted folders and tags.

In: files that all machines see under the same path. Out: what `extract_folder` writes, byte for
byte, and a record of tags for each file in order. Workers look at files; the process that asks
writes.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from polyseme._progress import FileProgress
from polyseme._threads import one_thread
from polyseme._validation import InputError
from polyseme.cluster.engine import Job, RayEngine, check_seen, digest_of, load_same
from polyseme.cluster.ranking import Suggestions
from polyseme.features import Extracted, MediaError, MediaFeatures
from polyseme.features.base import Raw
from polyseme.features.extraction import (
    FeatureStore,
    MediaFile,
    content_of,
    find_media,
    state_of,
)
from polyseme.features.sound import quiet_decoders
from polyseme.tagger import Tagger

# Files tagged at a time: the same ones on every engine, whole batches of every feature extractor.
TAGGED_AT_ONCE = 64
_HASHED_AT_ONCE = 64
_LEAST_AT_ONCE = 8

Paths = Sequence[str]


def _hashing() -> Callable[[Paths], list[tuple[str, bytes] | None]]:
    """Start the job of reading files for states and content hashes; None for unreadable ones."""
    return lambda paths: [_state_and_content(Path(path)) for path in paths]


def _state_and_content(path: Path) -> tuple[str, bytes] | None:
    """Give the state of a file and its hash; None where who asked finds out by itself."""
    with contextlib.suppress(OSError):
        return state_of(path), content_of(path)
    return None


def _extracting(extractor: MediaFeatures, digest: str) -> Callable[[Paths], list[Raw | MediaError]]:
    """Start the job of turning files into raw numbers, or errors."""
    if extractor.digest() != digest:
        raise InputError(
            f"The machine '{socket.gethostname()}' would make other numbers of {extractor.kind} "
            "files; install the same versions on all machines."
        )

    def extract(paths: Paths) -> list[Raw | MediaError]:
        check_seen(*paths)
        with quiet_decoders():
            return list(extractor.extract(Path(path) for path in paths))

    return extract


def _tagging(
    model: str, digest: str, k: int, precision: float | None
) -> Callable[[Paths], list[dict[str, Any] | MediaError]]:
    """Start the job of tagging files."""
    tagger = load_same(model, digest)
    suggestions = Suggestions(tagger, k, precision)
    extractor = tagger.features_.set_params(n_jobs=1)

    def tag(paths: Paths) -> list[dict[str, Any] | MediaError]:
        check_seen(*paths)
        return _tag(suggestions, extractor, paths)

    return tag


def _tag(
    suggestions: Suggestions, extractor: MediaFeatures, paths: Paths
) -> list[dict[str, Any] | MediaError]:
    """Give a record of tags for each file, or why there is none."""
    with one_thread(), quiet_decoders():
        outcomes: list[Any] = list(extractor.extract(Path(path) for path in paths))
        usable = [n for n, raw in enumerate(outcomes) if not isinstance(raw, MediaError)]
        if usable:
            ids, raw = tuple(paths[n] for n in usable), [outcomes[n] for n in usable]
            items = Extracted(extractor.kind, extractor.preprocessing(), ids, raw)
            for n, record in zip(usable, suggestions.records(items), strict=True):
                outcomes[n] = record
    return outcomes


class RayExecutor:
    """Lets workers of a cluster do the heavy part of `extract_folder`; see its `executor`.

    The progress is called with the files read for their content hashes, of how many, and 0.
    """

    def __init__(
        self,
        engine: RayEngine,
        extractor: MediaFeatures,
        progress: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self.engine = engine
        self.progress = progress
        # Workers use one thread each, and see whole batches, as one process does.
        parameters = extractor.get_params() | {"n_jobs": 1}
        parameters |= {"random_state": None} if "random_state" in parameters else {}
        self._job = partial(_extracting, type(extractor)(**parameters), extractor.digest())
        self._at_once = max(_LEAST_AT_ONCE, 2 * extractor.batch_size)

    def prepare(self, media: Sequence[MediaFile], store: FeatureStore) -> None:
        """Let workers read files whose content is not known yet, and note it in the store."""
        unknown = [file.path for file in media if not store.knows(file.path)]
        states = self._map(_hashing, unknown, _HASHED_AT_ONCE)
        for done, (path, state) in enumerate(zip(unknown, states, strict=True), start=1):
            if state is not None:
                store.note(path, *state)
            if self.progress is not None:
                self.progress(done, len(unknown), 0)

    def extract(self, items: Iterable[Path]) -> Iterator[Raw | MediaError]:
        """Give the raw numbers of files, in their order; see `MediaFeatures.extract`."""
        return self._map(self._job, list(items), self._at_once)

    def _map(self, job: Job, paths: Sequence[Path], n_at_once: int) -> Iterator[Any]:
        """Do a job for files, some at a time; give what it gives for each."""
        names = [str(path.absolute()) for path in paths]
        starts = range(0, len(names), n_at_once)
        for outcomes in self.engine.map(job, [names[n : n + n_at_once] for n in starts]):
            yield from outcomes


class Tagging:
    """Files on their way to tags, here or by the workers of an engine.

    The tagger was fitted with a feature extractor, and for an engine loaded from the folder
    `model`, which all machines must see; `places` are media files and folders that hold some. For
    `k` and `precision` see `rank_shards`. `skipped` lists the files that could not be used so far,
    and why.
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
        self.files = find_media(places, self.extractor.suffixes)[0]
        if not self.files:
            raise InputError(
                f"There is no {self.extractor.kind} file in {', '.join(map(str, places))}; names "
                f"must end in {', '.join(sorted(self.extractor.suffixes))}."
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each file, in order and as they come; note what is skipped."""
        paths = [str(file.path.absolute()) for file in self.files]
        blocks = [paths[n : n + TAGGED_AT_ONCE] for n in range(0, len(paths), TAGGED_AT_ONCE)]
        if self.engine is None or self.model is None:
            tagged: Iterable[Any] = (
                _tag(self.suggestions, self.extractor, some) for some in blocks
            )
        else:
            model, how = self.model.absolute(), self.suggestions
            job = partial(_tagging, str(model), digest_of(model), how.k, how.precision)
            tagged = self.engine.map(job, blocks)
        with FileProgress("tagging") as progress:
            outcomes = (outcome for some in tagged for outcome in some)
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
        from polyseme.io.xmp import merge_tags, sidecar_of

        for record in self.records():
            sidecar = sidecar_of(Path(os.fsdecode(record["file"].encode())))
            try:
                added = merge_tags(sidecar, record["labels"])
            except InputError as error:
                self.skipped.append((record["file"], str(error)))
                continue
            yield {"file": record["file"], "sidecar": str(sidecar), "added": added}
