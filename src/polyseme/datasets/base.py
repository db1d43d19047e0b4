"""What is known about a dataset (`DatasetSpec`), and what a loaded one holds (`Dataset`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme.corpus import LabelCorpus


@dataclass(frozen=True, eq=False)
class DatasetContent:
    """What a dataset holds."""

    corpus: LabelCorpus  # with ids, groups and splits where the source has them
    X: NDArray[np.float32] | None = None  # (n_documents, n_features), as stored
    feature_names: Sequence[str] | None = None  # the columns of X

    def digest(self) -> str:
        """Give the SHA-256 of the content, whatever file it came from."""
        corpus = self.corpus
        facts = [list(corpus), corpus.ids, corpus.groups, corpus.splits, self.feature_names]
        summed = hashlib.sha256(json.dumps(facts).encode())
        if self.X is not None:
            summed.update(np.ascontiguousarray(self.X, dtype="<f4").tobytes())
        return summed.hexdigest()


@dataclass(frozen=True)
class DatasetSpec:
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
    sample : callable without arguments, returning DatasetContent
        Makes a tiny dataset of the same shape; see `polyseme.datasets.samples`.
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
    embedded : callable without arguments, returning DatasetContent, optional
        Gives the dataset where it is part of a package and needs no folder.
    write_media : callable taking a folder and documents' ids, optional
        Writes the media files of some documents, each under its document's id.
    """

    name: str
    title: str
    domain: str
    citation: str
    licence: str
    sample: Callable[[], DatasetContent]
    stands_for: str | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    n_documents: int | None = None
    n_labels: int | None = None
    has_features: bool = False
    has_splits: bool = False
    has_groups: bool = False
    detectors: bool = False
    square_root: bool = False
    embedded: Callable[[], DatasetContent] | None = None
    write_media: Callable[[Path, Sequence[str]], object] | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A loaded dataset.

    Attributes
    ----------
    spec : DatasetSpec
        What is known about it.
    corpus : LabelCorpus
        The documents, with ids, groups and splits where the source has them.
    X : float32 array, shape (n_documents, n_features), or None
        Features, rows as the documents; square roots where the spec says so.
    feature_names : tuple of str or None
        The columns of X.
    checksum : str
        SHA-256 over the checksums of all files that were read, or over a sample's content.
    is_sample : bool
        Whether this is the tiny synthetic sample instead of the dataset.
    files : mapping of str to str
        SHA-256 of each file that was read, by file name; empty for a sample.
    """

    spec: DatasetSpec
    corpus: LabelCorpus
    X: NDArray[np.float32] | None
    feature_names: tuple[str, ...] | None
    checksum: str
    is_sample: bool = False
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.spec.name

    def as_published(self) -> bool:
        """Say whether these are the files that the published figures were made with.

        Always False for a sample, for an original of which no file was at hand, and for a folder
        of one's own. An embedded dataset checks its own files.
        """
        if self.spec.embedded is not None:
            return not self.is_sample
        return bool(self.spec.checksums) and dict(self.files) == dict(self.spec.checksums)
