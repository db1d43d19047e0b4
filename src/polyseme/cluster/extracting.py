"""Extracting a folder of media with the workers of a cluster.

In: a folder of pictures or of sound that all machines see. Out: what `extract_folder` writes, byte
for byte. Workers read and look at files; one process, the one that asks, writes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from polyseme.cluster.engines import RayEngine, entered
from polyseme.cluster.media_jobs import ExtractFiles, HashFiles
from polyseme.features import MediaError, MediaFeatures
from polyseme.features.base import Raw
from polyseme.features.extraction import (
    FeatureStore,
    MediaFile,
    Progress,
    Summary,
    extract_folder,
)

_HASHED_AT_ONCE = 64
_BATCHES_AT_ONCE = 2
_LEAST_AT_ONCE = 8


class ClusterExecutor:
    """Does for `extract_folder` what can be done elsewhere; see `Executor`.

    Parameters
    ----------
    engine : RayEngine
    extractor : MediaFeatures
    folder : Path
        Where the files lie.
    tell : callable, optional
        Called with the files that were read for their content hashes, of how many, and 0.
    """

    def __init__(
        self,
        engine: RayEngine,
        extractor: MediaFeatures,
        folder: Path,
        tell: Callable[[int, int, int], None] | None = None,
    ) -> None:
        self.engine = engine
        self.tell = tell
        self._hashing = HashFiles(str(folder.absolute()))
        self._extracting = ExtractFiles.of(extractor, folder)
        # Whole batches, so that the feature extractor sees the same ones as in one process.
        self._at_once = max(_LEAST_AT_ONCE, _BATCHES_AT_ONCE * extractor.batch_size)

    def prepare(self, media: Sequence[MediaFile], store: FeatureStore) -> None:
        """Let workers read files whose content is not known yet, and note it."""
        unknown = [file.path for file in media if not store.knows(file.path)]
        blocks = [
            unknown[start : start + _HASHED_AT_ONCE]
            for start in range(0, len(unknown), _HASHED_AT_ONCE)
        ]
        pieces = ([str(path.absolute()) for path in block] for block in blocks)
        done = 0
        found = self.engine.run(self._hashing, pieces, ahead=4)
        for block, states in zip(blocks, found, strict=True):
            for path, state in zip(block, states, strict=True):
                if state is not None:
                    store.note(path, *state)
            done += len(block)
            if self.tell is not None:
                self.tell(done, len(unknown), 0)

    def extract(self, items: Iterable[Path]) -> Iterator[Raw | MediaError]:
        """Give the raw numbers of files, in their order; see `MediaFeatures.extract`."""
        handed_out: list[list[Path]] = []

        def pieces() -> Iterator[list[str]]:
            waiting = iter(items)
            while block := list(itertools.islice(waiting, self._at_once)):
                handed_out.append(block)
                yield [str(path.absolute()) for path in block]

        for outcomes in self.engine.run(self._extracting, pieces(), ahead=4):
            for path, outcome in zip(handed_out.pop(0), outcomes, strict=True):
                yield outcome.given(path)


def extract_media(
    folder: str | Path,
    out: str | Path,
    extractor: MediaFeatures,
    *,
    engine: str | RayEngine | None = "local",
    address: str | None = None,
    workers: int | None = None,
    tell: Progress | None = None,
    tell_reading: Progress | None = None,
) -> Summary:
    """Extract the raw numbers of all media files of a folder, here or on a cluster.

    Parameters
    ----------
    folder, out : str or Path
        See `extract_folder`; on a cluster all machines must see the folder under the same path.
    extractor : MediaFeatures
        Says which files are media and how they become numbers; it need not be fitted.
    engine : {"local", "ray"}, RayEngine or None
        Where files are looked at; see `open_engine`. None is local. All give the same bytes.
    address, workers : str and int, optional
        For a Ray cluster, and how many work at a time; see `open_engine`.
    tell : callable, optional
        Called after each file with the number done, of how many, and how many were skipped.
    tell_reading : callable, optional
        On a cluster: the same while files are read for their content hashes.

    Returns
    -------
    Summary
    """
    with entered(engine, address, workers) as where:
        if where is None:
            return extract_folder(folder, out, extractor, progress=tell)
        executor = ClusterExecutor(where, extractor, Path(folder), tell_reading)
        return extract_folder(folder, out, extractor, progress=tell, executor=executor)
