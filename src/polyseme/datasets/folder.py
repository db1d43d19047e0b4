"""Corpora that lie in a folder of their own: documents, and features where there are any.

In: a folder with `documents.jsonl.gz` (or `.jsonl`) and, optionally, `features.npy` and
`feature_names.txt`. Out: a `FolderCorpus`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError
from polyseme.files import RawDocuments, read_documents

VARIABLE = "POLYSEME_DATA"


@dataclass(frozen=True)
class FolderCorpus:
    """What a folder holds.

    Attributes
    ----------
    name : str
        The folder's name.
    documents : RawDocuments
        Labels, ids, splits and groups, row by row.
    X : float32 array, shape (n, n_features), or None
        Features, rows as the documents.
    feature_names : tuple of str or None
        The columns of X.
    """

    name: str
    documents: RawDocuments
    X: NDArray[np.float32] | None
    feature_names: tuple[str, ...] | None


def load_folder(name: str, data: str | Path | None = None) -> FolderCorpus:
    """Load a corpus by the name of its folder.

    Parameters
    ----------
    name : str
        For example "hsun".
    data : str or Path, optional
        Where the folders lie; by default the environment variable POLYSEME_DATA says it.

    Returns
    -------
    FolderCorpus
    """
    root = data or os.environ.get(VARIABLE)
    if not root:
        raise InputError(
            f"The corpus '{name}' is not part of polyseme; set {VARIABLE} to the folder that holds "
            "it, or name that folder."
        )
    folder = Path(root) / name
    found = [folder / file for file in ("documents.jsonl.gz", "documents.jsonl")]
    path = next((candidate for candidate in found if candidate.is_file()), None)
    if path is None:
        known = sorted(p.parent.name for p in Path(root).glob("*/documents.jsonl*"))
        listed = f"; found there: {', '.join(known)}" if known else ""
        raise InputError(f"No corpus '{name}' at '{folder}' (documents.jsonl.gz){listed}.")
    documents = read_documents(path)
    features = folder / "features.npy"
    X = None
    if features.is_file():
        X = np.load(features, allow_pickle=False).astype(np.float32)
        if len(X) != len(documents):
            raise InputError(
                f"'{features}' has {len(X)} rows but '{path}' has {len(documents)} documents."
            )
    names = folder / "feature_names.txt"
    columns = tuple(names.read_text("utf-8").splitlines()) if names.is_file() else None
    return FolderCorpus(name, documents, X, columns)
