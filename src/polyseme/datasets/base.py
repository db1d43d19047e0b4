"""Datasets beside the way: what is known about one, and what a loaded one holds.

In: the facts of a form and the parts that were read or made. Out: `DatasetForm` and `Dataset`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus import LabelCorpus

DOCUMENT_FILES = ("documents.jsonl.gz", "documents.jsonl")
FEATURES_FILE = "features.npy"
NAMES_FILE = "feature_names.txt"


@dataclass(frozen=True, eq=False)
class DatasetParts:
    """The content of a dataset before it gets its form.

    Attributes
    ----------
    corpus : LabelCorpus
        The documents, with ids, groups and splits where the source has them.
    X : float32 array, shape (n_documents, n_features), or None
        Features as stored.
    feature_names : tuple of str or None
        The columns of X.
    """

    corpus: LabelCorpus
    X: NDArray[np.float32] | None = None
    feature_names: tuple[str, ...] | None = None

    def digest(self) -> str:
        """Give the SHA-256 of the content, whatever file it came from."""
        matrix, labels = self.corpus.matrix, self.corpus.labels
        documents = [
            [labels[column] for column in matrix.indices[start:end]]
            for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
        ]
        facts = [documents, self.corpus.ids, self.corpus.groups, self.corpus.splits]
        summed = hashlib.sha256(json.dumps([*facts, self.feature_names]).encode())
        if self.X is not None:
            summed.update(np.ascontiguousarray(self.X, dtype="<f4").tobytes())
        return summed.hexdigest()


@dataclass(frozen=True)
class DatasetForm:
    """What is known about a dataset, whether or not its files are here.

    Attributes
    ----------
    name : str
        The name of its folder under the data root, "hsun".
    title : str
        What people call it.
    domain : str
        "images", "music", or "other".
    citation : str
        Authors, title, venue and year of the paper to cite.
    licence : str
        What its source states.
    sample : callable without arguments, returning DatasetParts
        Makes a tiny world of the same shape; see `polyseme.datasets.samples`.
    stands_for : str or None
        The dataset of the paper whose place it takes; None when it stands for itself.
    checksums : mapping of str to str
        SHA-256 of the files that the published figures were made with, by file name; empty for
        originals that users bring.
    n_documents, n_labels : int or None
        What those files hold.
    has_features, has_splits, has_groups : bool
        Whether features, an official split (train, test) and groups are part of it: a folder
        that lacks one of them is refused.
    detectors : bool
        Whether column d of X was trained on the label of the same name, so that the columns of
        unseen labels must be dropped.
    square_root : bool
        Whether the features are probabilities, of which the square root is used.
    embedded : callable without arguments, returning DatasetParts, optional
        Gives the dataset where it is part of polyseme and needs no folder.
    write_media : callable taking a folder and documents' ids, optional
        Writes the media files of some documents, each under its document's id.
    """

    name: str
    title: str
    domain: str
    citation: str
    licence: str
    sample: Callable[[], DatasetParts]
    stands_for: str | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    n_documents: int | None = None
    n_labels: int | None = None
    has_features: bool = False
    has_splits: bool = False
    has_groups: bool = False
    detectors: bool = False
    square_root: bool = False
    embedded: Callable[[], DatasetParts] | None = None
    write_media: Callable[[Path, Sequence[str]], object] | None = None

    def files(self) -> tuple[str, ...]:
        """List the files that its folder must hold (the documents may also be unzipped)."""
        features = (FEATURES_FILE,) if self.has_features else ()
        return (DOCUMENT_FILES[0], *features, *((NAMES_FILE,) if self.detectors else ()))


@dataclass(frozen=True, eq=False)
class Dataset:
    """A loaded dataset.

    Attributes
    ----------
    name : str
        The name of its folder.
    form : DatasetForm
        What is known about it.
    corpus : LabelCorpus
        The documents, with ids, groups and splits where the source has them.
    X : float32 array, shape (n_documents, n_features), or None
        Features, rows as the documents; square roots where the form says so.
    feature_names : tuple of str or None
        The columns of X.
    checksum : str
        SHA-256 over the checksums of all files that were read, or over a sample's content.
    is_sample : bool
        Whether this is the tiny world of our own making instead of the dataset.
    files : mapping of str to str
        SHA-256 of each file that was read, by file name; empty for a sample.
    """

    name: str
    form: DatasetForm
    corpus: LabelCorpus
    X: NDArray[np.float32] | None
    feature_names: tuple[str, ...] | None
    checksum: str
    is_sample: bool
    files: Mapping[str, str] = field(default_factory=dict)

    def as_published(self) -> bool:
        """Say whether these are the files that the published figures were made with.

        Always False for a sample, for an original of which no file was at hand, and for a folder
        of one's own. An embedded dataset checks its own files.
        """
        if self.form.embedded is not None:
            return not self.is_sample
        return bool(self.form.checksums) and dict(self.files) == dict(self.form.checksums)
