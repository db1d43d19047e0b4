"""The files of one dataset's folder, checked against its form.

In: a folder with `documents.jsonl.gz` (or `.jsonl`) and, where there are any, `features.npy` and
`feature_names.txt`. Out: `DatasetParts` with the SHA-256 of every file that was read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, first_few
from polyseme.corpus import LabelCorpus
from polyseme.datasets.base import (
    DOCUMENT_FILES,
    FEATURES_FILE,
    NAMES_FILE,
    DatasetForm,
    DatasetParts,
)
from polyseme.io import read_features


def read_folder(folder: Path, form: DatasetForm) -> tuple[DatasetParts, dict[str, str]]:
    """Read and check the files of a dataset.

    Parameters
    ----------
    folder : Path
        An existing folder.
    form : DatasetForm
        What the files must hold.

    Returns
    -------
    parts : DatasetParts
        The features as they are used: square roots where the form says so.
    checksums : dict of str to str
        SHA-256 by file name.
    """
    with _naming(form.name):
        documents = _documents_file(folder)
        paths = [documents]
        corpus = LabelCorpus.read(documents)
        _check_fields(corpus, form)
        X, names = None, None
        if form.has_features or (folder / FEATURES_FILE).is_file():
            X = _read_features(folder, len(corpus), documents.name)
            paths.append(folder / FEATURES_FILE)
            if form.detectors or (folder / NAMES_FILE).is_file():
                names = _read_names(folder, X.shape[1])
                paths.append(folder / NAMES_FILE)
        sums = {path.name: _checksum(path) for path in paths}
        return DatasetParts(corpus, used_features(X, form), names), sums


def used_features(X: NDArray[np.float32] | None, form: DatasetForm) -> NDArray[np.float32] | None:
    """Give the features as they are used.

    Parameters
    ----------
    X : float32 array, shape (n_documents, n_features), or None
        Features as stored.
    form : DatasetForm
        Says whether they are probabilities.

    Returns
    -------
    float32 array of the same shape, or None
    """
    if X is None or not form.square_root:
        return X
    outside = int(((X < 0) | (X > 1)).sum())
    if outside:
        raise InputError(
            f"{FEATURES_FILE} must hold probabilities but {outside} of its values lie outside "
            "0 to 1; rescale them, or use the folder under another name."
        )
    return np.sqrt(X)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say in every complaint about a file whose file it is."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Dataset '{name}': {error}") from error
    except OSError as error:
        raise InputError(
            f"Dataset '{name}': {error.filename} cannot be read ({error.strerror}); check the "
            "file and its permissions."
        ) from error


def _missing(folder: Path, file: str, what: str) -> InputError:
    """Build the error for an absent file, listing what is in its folder."""
    held = sorted(path.name for path in folder.iterdir())
    there = f"found there: {first_few(held, most=12)}" if held else "the folder is empty"
    return InputError(f"no {file} in '{folder}' ({there}); {what}.")


def _documents_file(folder: Path) -> Path:
    """Find the documents, zipped before unzipped."""
    for name in DOCUMENT_FILES:
        if (folder / name).is_file():
            return folder / name
    raise _missing(
        folder,
        " or ".join(DOCUMENT_FILES),
        "write one JSON object a line with `id` and `labels`",
    )


def _check_fields(corpus: LabelCorpus, form: DatasetForm) -> None:
    """Refuse documents that lack the official split or the groups."""
    if form.has_splits:
        found = sorted(set(corpus.splits or ()))
        if not {"train", "test"} <= set(found):
            got = f"got only {', '.join(found)}" if found else "the field is missing"
            raise InputError(
                "every document needs a `split` of the official train and test division; "
                f"{got}: add it to the documents file."
            )
    if form.has_groups and corpus.groups is None:
        raise InputError(
            "every document needs a `group` (its artist or track), so that a split keeps a group "
            "on one side; the field is missing: add it to the documents file."
        )


def _read_features(folder: Path, n_documents: int, documents: str) -> NDArray[np.float32]:
    """Read finite features in single precision, one row per document."""
    path = folder / FEATURES_FILE
    if not path.is_file():
        raise _missing(folder, FEATURES_FILE, "add the features, one row per document")
    # A number that single precision cannot hold becomes infinite and is counted below.
    with np.errstate(over="ignore"):
        X = np.asarray(read_features(path), dtype=np.float32)
    if len(X) != n_documents:
        raise InputError(
            f"{FEATURES_FILE} has {len(X)} rows but {documents} has {n_documents} documents; "
            "give one row per document, in the same order."
        )
    wrong = ~np.isfinite(X)
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1)).tolist()
        raise InputError(
            f"{FEATURES_FILE} has {int(wrong.sum())} values that are not finite, in row(s) "
            f"{first_few(rows)}; impute them or drop those documents."
        )
    return X


def _read_names(folder: Path, n_features: int) -> tuple[str, ...]:
    """Read one distinct name per column of the features."""
    path = folder / NAMES_FILE
    if not path.is_file():
        raise _missing(folder, NAMES_FILE, "write the label of each column of the features a line")
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{NAMES_FILE} is not valid UTF-8; save the file as UTF-8.") from error
    names = tuple(line.strip() for line in text.rstrip().split("\n"))
    if len(names) != n_features:
        raise InputError(
            f"{NAMES_FILE} has {len(names)} names but {FEATURES_FILE} has {n_features} columns; "
            "write one name a line for each column."
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{NAMES_FILE} names the column '{twice}' twice; names must be unique.")
    return names


def _checksum(path: Path) -> str:
    """Give the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
