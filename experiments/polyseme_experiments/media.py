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

from polyseme._validation import InputError
from polyseme.corpus import LabelCorpus
from polyseme.datasets import Dataset
from polyseme.datasets.loading import folder_spec
from polyseme.features import (
    Extracted,
    ImageFeatures,
    MediaFeatures,
    extract_folder,
    match_documents,
    read_extraction,
)
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
    table = np.asarray(_in_order(extraction, corpus).raw, dtype=np.float32)
    checksum = hashlib.sha256(repr((corpus.ids, list(corpus))).encode())
    checksum.update(table.tobytes())
    spec = replace(folder_spec(NAMED), title="pictures of one's own", domain="images")
    return Dataset(spec, corpus, table, None, checksum.hexdigest())


def raw_numbers(
    dataset: Dataset, extractor: MediaFeatures, cache: str | None, folder: str | None
) -> Extracted:
    """Return the raw numbers of a dataset's media, rows as its documents.

    The media are in a folder, or are written by the dataset itself (None); the extractor need not
    be fitted.
    """
    if folder is not None:
        return _in_order(_extracted(Path(folder), extractor, cache, dataset.name), dataset.corpus)
    write = dataset.spec.write_media
    if write is None:
        raise InputError(f"The dataset '{dataset.name}' has no media files.")
    with _work_folder(cache) as place:
        media = Path(place) / f"media-{dataset.name}-{dataset.checksum[:12]}"
        with locked(media.with_suffix(".lock")):
            if not media.with_suffix(".written").exists():
                write(media, dataset.corpus.ids)
                media.with_suffix(".written").touch()
        return _in_order(_extracted(media, extractor, place, dataset.name), dataset.corpus)


def _extracted(folder: Path, extractor: MediaFeatures, cache: str | None, name: str) -> Extracted:
    """Extract a folder, or read the numbers that an earlier trial has left."""
    with _work_folder(cache) as place:
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        out = Path(place) / f"extracted-{name}-{digest}-{extractor.digest()}"
        with locked(out.with_suffix(".lock")):
            extract_folder(folder, out, extractor)
        extraction = read_extraction(out)
        if cache is not None:
            return extraction
        return replace(extraction, raw=[np.array(one) for one in extraction.raw])


def _in_order(extraction: Extracted, corpus: LabelCorpus) -> Extracted:
    """Return the items of the documents."""
    files, documents = match_documents(extraction.ids, corpus.ids)
    if len(documents) < len(corpus):
        raise InputError(
            f"{len(corpus) - len(documents)} of {len(corpus)} documents have no usable file."
        )
    return extraction[files.tolist()]


def _tags_of(folder: Path, extraction: Extracted) -> LabelCorpus:
    """Read the tags of pictures: from a file beside them, or from their sidecars."""
    file = next((folder / name for name in TAGS if (folder / name).is_file()), None)
    if file is not None:
        corpus = LabelCorpus.read(file)
        files, documents = match_documents(extraction.ids, corpus.ids)
        ids = tuple(extraction.ids[row] for row in files)
        return replace(corpus.select(documents), ids=ids, numbered=False)
    tagged = [row for row, tags in enumerate(extraction.tags) if tags]
    if not tagged:
        raise InputError(
            f"The pictures in '{folder}' have no tags: add tags.jsonl with a `file` and `tags` a "
            "line, or XMP files beside the pictures."
        )
    return LabelCorpus.from_documents(
        [extraction.tags[row] for row in tagged], ids=[extraction.ids[row] for row in tagged]
    )


def _work_folder(cache: str | None) -> AbstractContextManager[str]:
    """Return the cache's folder, or a temporary one."""
    if cache is None:
        return tempfile.TemporaryDirectory()
    Path(cache).mkdir(parents=True, exist_ok=True)
    return nullcontext(cache)
