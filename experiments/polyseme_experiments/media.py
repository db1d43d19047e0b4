"""Media in experiments: the files of a dataset, and what feature extractors make of them.

In: a dataset with media files, or a folder that the user names. Out: raw numbers, rows as the
dataset's documents. Files and numbers are kept in the cache for other trials.
"""

from __future__ import annotations

import hashlib
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from polyseme.base.validation import InputError
from polyseme.documents.corpus import LabelCorpus
from polyseme.io.join import match_files
from polyseme.media import (
    Extracted,
    ImageFeatures,
    MediaFeatures,
    extract_folder,
    read_extraction,
)
from polyseme_experiments.datasets import Dataset
from polyseme_experiments.datasets.loading import folder_spec
from polyseme_experiments.records import locked

# How documents that lie beside pictures may be called.
TAGS = tuple(
    f"{name}.{form}" for name in ("tags", "documents") for form in ("jsonl", "jsonl.gz", "csv")
)
NAMED = "pictures"


@lru_cache(maxsize=1)
def load_pictures(folder: str, cache: str | None) -> Dataset:
    """Load a folder of pictures that the user names, under their paths.

    Tags are in `tags.jsonl` (or .csv), or in XMP files beside the pictures.
    """
    extraction = _extracted(Path(folder), ImageFeatures(), cache, NAMED)
    corpus = _tags_of(Path(folder), extraction)
    items = _in_order(extraction, corpus)
    table = np.asarray(items.raw, dtype=np.float32)

    content = (corpus.ids, list(corpus))
    checksum = hashlib.sha256(repr(content).encode())
    checksum.update(table.tobytes())

    spec = folder_spec(NAMED)
    spec = replace(spec, title="pictures of one's own", domain="images")
    return Dataset(spec, corpus, table, None, checksum.hexdigest())


def raw_numbers(
    dataset: Dataset, extractor: MediaFeatures, cache: str | None, folder: str | None
) -> Extracted:
    """Return the raw numbers of a dataset's media, rows as its documents.

    The media are in a folder, or are written by the dataset itself (None); the extractor need not
    be fitted.
    """
    corpus = dataset.corpus
    if folder is not None:
        extraction = _extracted(Path(folder), extractor, cache, dataset.name)
        return _in_order(extraction, corpus)
    write = dataset.spec.write_media
    if write is None:
        raise InputError(f"The dataset '{dataset.name}' has no media files.")
    with _work_folder(cache) as work_folder:
        media = Path(work_folder) / f"media-{dataset.name}-{dataset.checksum[:12]}"
        lock_file = media.with_suffix(".lock")
        mark_file = media.with_suffix(".written")
        with locked(lock_file):
            if not mark_file.exists():
                write(media, corpus.ids)
                mark_file.touch()
        extraction = _extracted(media, extractor, work_folder, dataset.name)
        return _in_order(extraction, corpus)


def _extracted(folder: Path, extractor: MediaFeatures, cache: str | None, name: str) -> Extracted:
    """Return the numbers of a folder, extracted now or by an earlier trial."""
    address = str(folder.resolve())
    digest = hashlib.sha256(address.encode()).hexdigest()
    with _work_folder(cache) as work_folder:
        file_name = f"extracted-{name}-{digest[:12]}-{extractor.digest()}"
        out = Path(work_folder) / file_name
        lock_file = out.with_suffix(".lock")
        with locked(lock_file):
            extract_folder(folder, out, extractor)
        extraction = read_extraction(out)
        if cache is not None:
            return extraction
        # The arrays may be mapped from files of the temporary folder, which goes away.
        arrays = [np.array(array) for array in extraction.raw]
        return replace(extraction, raw=arrays)


def _in_order(extraction: Extracted, corpus: LabelCorpus) -> Extracted:
    """Return the items of the documents, in the documents' order."""
    files, documents = match_files(extraction.ids, corpus.ids)
    n_missing = len(corpus) - len(documents)
    if n_missing > 0:
        raise InputError(f"{n_missing} of {len(corpus)} documents have no usable file.")
    rows = files.tolist()
    return extraction[rows]


def _tags_of(folder: Path, extraction: Extracted) -> LabelCorpus:
    """Read the tags of pictures: from a file beside them, or from their sidecars."""
    candidates = [folder / name for name in TAGS]
    file = next((path for path in candidates if path.is_file()), None)
    if file is not None:
        corpus = LabelCorpus.read(file)
        files, documents = match_files(extraction.ids, corpus.ids)
        ids = tuple(extraction.ids[row] for row in files)
        matched = corpus.select(documents)
        return replace(matched, ids=ids, numbered=False)

    rows = [row for row, tags in enumerate(extraction.tags) if tags]
    if not rows:
        raise InputError(
            f"The pictures in '{folder}' have no tags: add tags.jsonl with a `file` and `tags` a "
            "line, or XMP files beside the pictures."
        )
    tag_sets = [extraction.tags[row] for row in rows]
    ids = tuple(extraction.ids[row] for row in rows)
    return LabelCorpus.from_documents(tag_sets, ids=list(ids))


def _work_folder(cache: str | None) -> AbstractContextManager[str]:
    """Return the cache's folder, or a temporary one."""
    if cache is None:
        return tempfile.TemporaryDirectory()
    Path(cache).mkdir(parents=True, exist_ok=True)
    return nullcontext(cache)
