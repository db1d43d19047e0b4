"""What `extract` and `tag` do with media files, and how `fit` takes an extracted folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from polyseme._progress import FileProgress
from polyseme._validation import InputError, first_few
from polyseme.cli.output import say
from polyseme.cli.suggestions import Suggestions
from polyseme.corpus import LabelCorpus
from polyseme.features import (
    Extracted,
    Extraction,
    MediaError,
    MediaFeatures,
    extract_folder,
    front_end_class,
    match_documents,
    read_extraction,
)
from polyseme.features.finding import MediaFile, find_media
from polyseme.features.sound import quiet_decoders
from polyseme.files import read_features
from polyseme.tagger import ZeroShotTagger

_TOLD = 20
# Parameters of front ends, and the options of `fit` that set them.
OPTIONS = {"reduction": "--reduce", "n_components": "--reduce-to", "n_words": "--words"}
_RANKED_AT_ONCE = 64


def extract_files(kind: str, folder: Path, out: Path, parameters: dict[str, Any]) -> bool:
    """Extract a folder, tell what became of its files, and say whether none was skipped."""
    front_end = front_end_class(kind)(**parameters)
    with quiet_decoders(), FileProgress(f"extracting {kind}") as progress:
        summary = extract_folder(folder, out, front_end, tell=progress.tell)
    tell_skipped(summary.skipped)
    for name, reason in summary.sidecars[:_TOLD]:
        say(f"the tags beside {name} cannot be read: {reason}")
    say(summary.sentence())
    return not summary.skipped and not summary.sidecars


def tell_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Name the files that could not be used."""
    for name, reason in skipped[:_TOLD]:
        say(f"skipped {name}: {reason}")
    if len(skipped) > _TOLD:
        say(f"… and {len(skipped) - _TOLD:,} more; the folder's files.jsonl names them all")


def matched(
    extraction: Extraction, corpus: LabelCorpus | None, *, normalize: bool = True
) -> tuple[Extracted, LabelCorpus, LabelCorpus]:
    """Bring items and documents together.

    Parameters
    ----------
    extraction : Extraction
    corpus : LabelCorpus, optional
        Documents named after files; None takes the tags of the files' sidecars.
    normalize : bool
        For these: take labels that differ in case or white space as one.

    Returns
    -------
    items, documents, everything
        Items with a document, their documents in the same order, and all documents.
    """
    if corpus is None:
        rows = [row for row, tags in enumerate(extraction.tags) if tags]
        if not rows:
            raise InputError(
                "No file has a sidecar with tags; give the tags of each file with --documents."
            )
        ids = [extraction.ids[row] for row in rows]
        sets = [extraction.tags[row] for row in rows]
        corpus = LabelCorpus.from_documents(sets, ids=ids, normalize=normalize)
        if len(rows) < len(extraction):
            say(f"{len(rows):,} of {len(extraction):,} extracted files have tags beside them")
        return extraction.select(rows), corpus, corpus
    files, documents = match_documents(extraction.ids, corpus.ids)
    without = sorted(set(range(len(extraction))) - set(files.tolist()))
    if without:
        names = first_few([extraction.ids[row] for row in without], most=3)
        say(f"extracted files that no document in use names are left out ({len(without)}): {names}")
    if len(documents) < len(corpus):
        unused = sorted(set(range(len(corpus))) - set(documents.tolist()))
        names = first_few([corpus.ids[row] for row in unused], most=3)
        say(f"documents without a file teach meaning only ({len(unused)}): {names}")
    return extraction.select(files.tolist()), corpus.select(documents), corpus


def front_end_of(extraction: Extraction, parameters: dict[str, Any]) -> MediaFeatures:
    """Make the unfitted front end that continues an extraction."""
    made = front_end_class(extraction.kind)
    known = made().get_params()
    fitting = {name: extraction.recipe[name] for name in known if name in extraction.recipe}
    for name, value in parameters.items():
        if value is not None and name not in known:
            raise InputError(
                f"`{OPTIONS[name]}` does not apply to {extraction.kind} files, and these were "
                "extracted."
            )
    return made(**fitting, **{n: v for n, v in parameters.items() if v is not None})


class Tagging:
    """Files on their way to tags.

    Parameters
    ----------
    tagger : ZeroShotTagger
        Fitted with a front end.
    places : sequence of Path
        Media files, and folders that hold some.
    k : int
        Tags a file.
    precision : float, optional
        The share of tags that should be true.
    n_jobs : int, optional
        Files looked at at a time; by default one for each processor.

    Attributes
    ----------
    skipped : list of (str, str)
        Files that could not be used so far, and why.
    n_tagged : int
        Files that were tagged so far.
    """

    def __init__(
        self,
        tagger: ZeroShotTagger,
        places: Sequence[Path],
        k: int,
        *,
        precision: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if tagger.features_ is None:
            raise InputError(
                "This model was fitted on numbers, not on files, and cannot look at any; fit it on "
                "a folder that `polyseme extract` wrote, or use `polyseme rank`."
            )
        self.front_end = tagger.features_.set_params(n_jobs=n_jobs)
        self.suggestions = Suggestions(tagger, k, precision)
        self.skipped: list[tuple[str, str]] = []
        self.n_tagged = 0
        self.files = find_media(places, self.front_end.suffixes).media
        if not self.files:
            raise InputError(
                f"There is no {self.front_end.kind} file in {', '.join(map(str, places))}; names "
                f"must end in {', '.join(sorted(self.front_end.suffixes))}."
            )

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each file, in order and as they come; note what is skipped."""
        self.n_tagged = 0
        for some in self._ranked():
            for file, record in some:
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
        from polyseme.files.xmp import merge_tags, sidecar_of

        for record in self.records():
            sidecar = sidecar_of(Path(os.fsdecode(record["file"].encode())))
            try:
                added = merge_tags(sidecar, record["labels"])
            except InputError as error:
                self.skipped.append((record["file"], str(error)))
                continue
            yield {"file": record["file"], "sidecar": str(sidecar), "added": added}

    def _ranked(self) -> Iterator[list[tuple[MediaFile, dict[str, Any]]]]:
        """Yield files with their tags, some at a time."""
        done = 0
        with (
            quiet_decoders(),
            FileProgress("tagging") as progress,
            closing(self.front_end.extract(file.path for file in self.files)) as extracted,
        ):
            waiting: list[tuple[MediaFile, Any]] = []
            for file, raw in zip(self.files, extracted, strict=True):
                done += 1
                if isinstance(raw, MediaError):
                    self.skipped.append((str(file.path), str(raw)))
                else:
                    waiting.append((file, raw))
                progress.tell(done, len(self.files), len(self.skipped))
                if len(waiting) == _RANKED_AT_ONCE:
                    yield self._rank(waiting)
                    waiting = []
        if waiting:
            yield self._rank(waiting)

    def _rank(
        self, waiting: Sequence[tuple[MediaFile, Any]]
    ) -> list[tuple[MediaFile, dict[str, Any]]]:
        """Rank tags for some files."""
        extracted = Extracted(
            self.front_end.kind,
            self.front_end.recipe(),
            tuple(file.id for file, _ in waiting),
            [raw for _, raw in waiting],
        )
        files = (file for file, _ in waiting)
        return list(zip(files, self.suggestions.records(extracted), strict=True))


def items_of(path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Read features from a file, or from a folder of an extraction, and name the items.

    Returns
    -------
    features : array, csr_matrix or Extraction
    names : list of dict
        What a record begins with: a row number, or a file.
    """
    if path.is_dir():
        extraction = read_extraction(path)
        return extraction, [{"file": name} for name in extraction.ids]
    table = read_features(path)
    return table, [{"row": row} for row in range(table.shape[0])]


def write_sample(kind: str, folder: Path, limit: int | None) -> str:
    """Write sample media with their tags; give a sentence about them."""
    from polyseme.datasets import FORMS

    form = FORMS[{"image": "emoji", "audio": "clips"}[kind]]
    assert form.embedded is not None and form.write_media is not None
    ids = form.embedded().corpus.ids
    step = 1.0 if limit is None else max(1.0, len(ids) / limit)
    chosen = [ids[int(place * step)] for place in range(int(len(ids) / step))]
    form.write_media(folder, chosen)
    return f"{len(chosen):,} {kind} files, their tags in '{folder / 'tags.jsonl'}'"
