"""What is known about a dataset (`DatasetSpec`), and what a loaded one holds (`Dataset`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme.documents.corpus import LabelCorpus


@dataclass(frozen=True, eq=False)
class DatasetContent:
    """What a dataset holds."""

    corpus: LabelCorpus  # with ids, groups and splits where the source has them
    X: NDArray[np.float32] | None = None  # (n_documents, n_features), as stored
    feature_names: Sequence[str] | None = None  # the columns of X

    def digest(self) -> str:
        """Return the SHA-256 of the content, whatever file it came from."""
        corpus = self.corpus
        facts = [list(corpus), corpus.ids, corpus.groups, corpus.splits, self.feature_names]
        digest = hashlib.sha256(json.dumps(facts).encode())
        if self.X is not None:
            X = np.ascontiguousarray(self.X, dtype="<f4")
            digest.update(X.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class DatasetSpec:
    """What is known about a dataset, whether or not its files are here."""

    name: str  # of its folder under the data root, "hsun"
    title: str  # what people call it
    domain: str  # "images", "music", "text", or "other"
    citation: str  # authors, title, venue and year of the paper to cite
    licence: str  # what its source states
    sample: Callable[[], DatasetContent]  # makes a tiny dataset of the same shape
    stands_for: str | None = None  # the dataset of the paper whose place it takes
    # SHA-256 of the files behind the published figures, by name; empty for what users bring.
    checksums: Mapping[str, str] = field(default_factory=dict)
    n_documents: int | None = None  # what those files hold
    n_labels: int | None = None
    # Whether features, an official split and groups are part of it: a folder without is refused.
    has_features: bool = False
    has_splits: bool = False
    has_groups: bool = False
    # Whether a column of X was trained on the label of its name, so that those of unseen labels
    # must be dropped; whether features are probabilities, of which the square root is used.
    detectors: bool = False
    square_root: bool = False
    # Gives the dataset where it is part of a package and needs no folder.
    embedded: Callable[[], DatasetContent] | None = None
    # Writes media files of documents into a folder, each under its document's id.
    write_media: Callable[[Path, Sequence[str]], object] | None = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A loaded dataset."""

    spec: DatasetSpec
    corpus: LabelCorpus  # with ids, groups and splits where the source has them
    X: NDArray[np.float32] | None  # (n_documents, n_features); square roots where the spec says so
    feature_names: tuple[str, ...] | None  # the columns of X
    checksum: str  # SHA-256 over the checksums of all files that were read, or a sample's content
    is_sample: bool = False  # whether this is the tiny synthetic sample instead of the dataset
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of each file that was read

    def __repr__(self) -> str:
        """Return its name and size, in a line."""
        shape = "no features" if self.X is None else f"{self.X.shape[1]} features"
        return f"Dataset({self.name!r}, {self.corpus!r}, {shape})"

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.spec.name

    def as_published(self) -> bool:
        """Return whether these are the files that the published figures were made with.

        Always False for a sample, for an original of which no file was at hand, and for a folder
        of one's own. An embedded dataset checks its own files.
        """
        if self.spec.embedded is not None:
            return not self.is_sample
        if not self.spec.checksums:
            return False
        return dict(self.files) == dict(self.spec.checksums)
