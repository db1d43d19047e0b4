"""Tags for media files, here or on a cluster.

In: a saved model, and files that all machines see under the same path. Out: a record of tags for
each file, in order. Workers read the media; the calling process writes sidecars.

Terms: a *record* has a file's "labels", "kinds" and "scores", from the best label on; a *sidecar*
is the XMP file beside a media file; a *cache* is what an extraction wrote of files' raw features.
A tag is *refused* for a file where a sidecar suggested it and somebody refused it, or took it away
there; spelling does not count.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from polyseme.base.machine import one_thread
from polyseme.base.progress import FileProgress
from polyseme.base.validation import InputError, check_device
from polyseme.batch.ranking import SavedRanker
from polyseme.batch.ray_engine import RayEngine
from polyseme.media import Extracted, MediaError
from polyseme.media.extraction import (
    caches_beside,
    find_media,
    is_extraction,
    look_at,
    map_files,
)
from polyseme.media.feature_store import CACHE_FILE, from_caches
from polyseme.media.keywords import keywords_of
from polyseme.media.suggestions import among, lacking
from polyseme.media.tag_files import merge_tags, read_tags, tag_file_of, tag_files_of

# Files tagged at a time: the same ones on every engine, whole batches of every feature extractor.
TAGGED_AT_ONCE = 64


class Tagging:
    """The tagging of media files, here or by the workers of an engine.

    Parameters
    ----------
    model : str or Path
        Folder of a tagger that was fitted with a feature extractor.
    places : sequence of Path
        Media files, and folders that hold some.
    k, precision, kind
        See `SavedRanker`.
    extraction : Path, optional
        A folder that `extract_folder` wrote, by default those beside the model: what they have of a
        file is taken from there.
    n_jobs, device
        The extractor's.
    engine : RayEngine, optional
        Where files are tagged; by default here.

    Attributes
    ----------
    ranker : SavedRanker
    files : list
        The media files of all places, in order.
    kind : str
        The kind of media that the extractor takes.
    skipped : list of (str, str)
        The files that could not be used so far, and why.
    n_unwritten : int
        How many of these have sidecars that the system would not take, such as on a full disk.
    """

    def __init__(
        self,
        model: str | Path,
        places: Sequence[Path],
        k: int | None,
        *,
        precision: float | None = None,
        kind: str | None = None,
        extraction: Path | None = None,
        n_jobs: int | None = None,
        device: str = "cpu",
        engine: RayEngine | None = None,
    ) -> None:
        self.ranker = SavedRanker(model, k, precision, kind=kind)
        extractor = self.ranker.tagger.features_
        if extractor is None:
            raise InputError(
                "This model was fitted on numbers, not on files, and cannot look at any; fit it on "
                "a folder that `polyseme extract` wrote, or use `polyseme rank`."
            )
        check_device(device, owner=type(extractor).__name__)
        self.kind = extractor.kind
        self.engine = engine
        # Of the extractor; workers use one thread each.
        extractor_jobs = n_jobs if engine is None else 1
        self.parameters = {"n_jobs": extractor_jobs, "device": device}
        if extraction is not None and not is_extraction(extraction):
            raise InputError(f"'{extraction}' is no folder that `polyseme extract` wrote.")
        if extraction:
            self.caches = [extraction / CACHE_FILE]
        else:
            self.caches = caches_beside(Path(model))
        self.skipped: list[tuple[str, str]] = []
        self.n_unwritten = 0
        self.files, *_ = find_media(places, extractor.suffixes)
        if not self.files:
            place_names = ", ".join(map(str, places))
            suffixes = ", ".join(sorted(extractor.suffixes))
            raise InputError(
                f"There is no {extractor.kind} file in {place_names}; names must end in {suffixes}."
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each file, in order; skipped files are listed in `skipped`."""
        for _, record in self._tag_files():
            yield record

    def _tag_files(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield each file that can be used, with its record, without tags that were refused."""
        tag = partial(_tag, self.ranker, self.parameters, self.caches)
        paths = [file.path for file in self.files]
        n_files = len(paths)
        outcomes = map_files(
            self.engine,
            tag,
            paths,
            TAGGED_AT_ONCE,
        )
        pairs = zip(paths, outcomes, strict=True)
        with FileProgress("tagging") as progress:
            for n_done, (path, outcome) in enumerate(pairs, start=1):
                is_skipped = isinstance(outcome, MediaError)
                if is_skipped:
                    reason = str(outcome)
                    self.skipped.append((str(path), reason))
                n_skipped = len(self.skipped)
                progress.tell(n_done, n_files, n_skipped)
                if not is_skipped:
                    record = {"file": _printable_path(path)}
                    record |= _drop_refused(outcome, path)
                    yield path, record

    def sidecars(self, *, dry_run: bool = False) -> Iterator[dict[str, Any]]:
        """Write the tags of each file to its sidecar, and yield the added ones with scores.

        Tags that a file holds inside are not added. In a `dry_run` nothing is written.
        """
        for path, record in self._tag_files():
            try:
                sidecar = tag_file_of(path)
                inside = keywords_of(path, self.kind)
                added = merge_tags(
                    sidecar,
                    record["labels"],
                    present=inside.tags,
                    hierarchies=inside.hierarchies,
                    dry_run=dry_run,
                )
            except (InputError, OSError) as error:
                reason = str(error)
                self.skipped.append((record["file"], reason))
                # The system's own errors may be the cause of ours.
                is_system_error = isinstance(error, OSError)
                self.n_unwritten += is_system_error or isinstance(error.__cause__, OSError)
                continue
            added_record = _restrict(record, added)
            yield {
                "file": record["file"],
                "sidecar": _printable_path(sidecar),
                "added": added,
                "scores": added_record["scores"],
            }


def _printable_path(path: Path) -> str:
    """Return the name of a file as text, with bytes that are not UTF-8 escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _drop_refused(record: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a record without the tags that were refused for a file."""
    refused: list[str] = []
    for sidecar in tag_files_of(path):
        # What an unreadable sidecar refuses does not count; who writes to it reports it.
        with contextlib.suppress(InputError):
            refused += read_tags(sidecar).refused
    if not refused:
        return record
    labels = lacking(present=refused, wanted=record["labels"])
    return _restrict(record, labels)


def _restrict(record: dict[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """Return a record with some of its labels, and their kinds and scores."""
    record_labels = record["labels"]
    wanted = set(among(labels, record_labels))
    positions: list[int] = []
    for position, label in enumerate(record_labels):
        if label in wanted:
            positions.append(position)
    shortened: dict[str, Any] = {}
    for name in ("labels", "kinds", "scores"):
        values = record[name]
        shortened[name] = [values[position] for position in positions]
    return shortened


def _tag(
    ranker: SavedRanker,
    parameters: dict[str, Any],
    caches: Sequence[Path],
    paths: Sequence[str],
) -> list[Any]:
    """Tag some files on a worker, or here: a record or a `MediaError` for each file, in order.

    `parameters` are set on the extractor. Files that no cache has are extracted; a cache counts
    only where the same extractor wrote it.
    """
    extractor: Any = ranker.tagger.features_
    extractor.set_params(**parameters)
    digest = extractor.digest()
    with one_thread(training=False):
        # Raw features of each file, or an error; in place of these then its record.
        all_paths = [Path(path) for path in paths]
        cached_raw = from_caches(caches, digest, all_paths)
        uncached = [path for path in paths if Path(path) not in cached_raw]
        extracted_raw = iter(look_at(extractor, digest, uncached))
        outcomes: list[Any] = []
        for path in all_paths:
            outcome: Any = cached_raw.get(path)
            if outcome is None:
                outcome = next(extracted_raw)
            outcomes.append(outcome)
        usable: list[int] = []
        for number, outcome in enumerate(outcomes):
            if not isinstance(outcome, MediaError):
                usable.append(number)
        if usable:
            items = Extracted(
                extractor.kind,
                extractor.preprocessing(),
                tuple(paths[number] for number in usable),
                [outcomes[number] for number in usable],
            )
            records = ranker.records(items)
            for number, record in zip(usable, records, strict=True):
                outcomes[number] = record
    return outcomes
