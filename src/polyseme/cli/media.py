"""What `extract` does with media files, and how other commands take an extracted folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from polyseme._progress import FileProgress
from polyseme._validation import InputError, first_few
from polyseme.cli.output import say
from polyseme.cluster import RayEngine, RayExecutor
from polyseme.corpus import LabelCorpus
from polyseme.features import (
    Extracted,
    MediaFeatures,
    extract_folder,
    extractor_class,
    match_documents,
    read_extraction,
)
from polyseme.features.sound import quiet_decoders
from polyseme.io import read_features

_TOLD = 20
# Parameters of feature extractors, and the options of `fit` that set them.
OPTIONS = {"n_words": "--words"}


def extract_files(
    kind: str,
    folder: Path,
    out: Path,
    parameters: dict[str, Any],
    engine: RayEngine | None = None,
) -> bool:
    """Extract a folder, tell what became of its files, and say whether none was skipped."""
    extractor = extractor_class(kind)(**parameters)
    progress = Stages("reading", f"extracting {kind}")
    executor = None if engine is None else RayExecutor(engine, extractor, progress.stage(0))
    with quiet_decoders(), progress:
        summary = extract_folder(
            folder, out, extractor, progress=progress.stage(1), executor=executor
        )
    tell_skipped(summary.skipped)
    for name, reason in summary.sidecars[:_TOLD]:
        say(f"the tags beside {name} cannot be read: {reason}")
    say(summary.sentence())
    return not summary.skipped and not summary.sidecars


class Stages:
    """Progress of work that has several stages: one bar after the other.

    Parameters
    ----------
    *doing : str
        What each stage does with files.
    """

    def __init__(self, *doing: str) -> None:
        self.doing = doing
        self._open = ExitStack()
        self._at, self._bar = -1, FileProgress("")

    def __enter__(self) -> Self:
        """Begin without a bar."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the bar of the last stage."""
        self._open.close()

    def stage(self, number: int) -> Callable[[int, int, int], None]:
        """Give what tells of one stage; see `FileProgress.tell`."""

        def tell(done: int, total: int, skipped: int) -> None:
            if number != self._at:
                self._open.close()
                self._at = number
                self._bar = self._open.enter_context(FileProgress(self.doing[number]))
            self._bar.tell(done, total, skipped)

        return tell


def tell_skipped(skipped: Sequence[tuple[str, str]]) -> None:
    """Name the files that could not be used."""
    for name, reason in skipped[:_TOLD]:
        say(f"skipped {name}: {reason}")
    if len(skipped) > _TOLD:
        say(f"… and {len(skipped) - _TOLD:,} more; the folder's files.jsonl names them all")


def matched(
    extraction: Extracted, corpus: LabelCorpus | None, *, normalize: bool = True
) -> tuple[Extracted, LabelCorpus, LabelCorpus]:
    """Bring items and documents together.

    Parameters
    ----------
    extraction : Extracted
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


def extractor_of(extraction: Extracted, parameters: dict[str, Any]) -> MediaFeatures:
    """Make the unfitted feature extractor that continues an extraction."""
    made = extractor_class(extraction.kind)
    known = made().get_params()
    fitting = {k: v for k, v in extraction.preprocessing.items() if k in known}
    for name, value in parameters.items():
        if value is not None and name not in known:
            raise InputError(
                f"`{OPTIONS[name]}` does not apply to {extraction.kind} files, and these were "
                "extracted."
            )
    return made(**fitting, **{n: v for n, v in parameters.items() if v is not None})


def items_of(path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Read features from a file, or from a folder of an extraction, and name the items.

    Returns
    -------
    features : array, csr_matrix or Extracted
    names : list of dict
        What a record begins with: a row number, or a file.
    """
    if path.is_dir():
        extraction = read_extraction(path)
        return extraction, [{"file": name} for name in extraction.ids]
    table = read_features(path)
    return table, [{"row": row} for row in range(table.shape[0])]


def one_item(path: Path, asked: str) -> tuple[Any, dict[str, Any]]:
    """Read one item: a row by its number, or a file of an extraction by its name.

    Returns
    -------
    features : array, csr_matrix or Extracted
        Of that item alone.
    name : dict
        What a record begins with.
    """
    table, items = items_of(path)
    named = [place for place, item in enumerate(items) if item.get("file") == asked]
    if not named and not asked.isdecimal():
        raise InputError(
            f"There is no '{asked}' in '{path}'; give a row's number or a file's name."
        )
    row = named[0] if named else int(asked)
    if row >= len(items):
        raise InputError(f"There is no row {row}: '{path}' has {len(items)} rows.")
    return table.select([row]) if path.is_dir() else table[row : row + 1], items[row]
