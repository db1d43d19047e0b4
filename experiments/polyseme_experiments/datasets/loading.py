"""Datasets by name: from their folder under the data root, or as a sample that needs no file.

In: a name, and the root in which the datasets' folders lie. Out: a `Dataset`. A folder holds
`documents.jsonl.gz` (or `.jsonl`) and, where there are any, `features.npy` and
`feature_names.txt`; all are checked against the dataset's spec.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from polyseme.base.plugins import load_plugins
from polyseme.base.validation import (
    InputError,
    PolysemeWarning,
    check_features,
    first_few,
    unknown_name,
)
from polyseme.documents.corpus import LabelCorpus
from polyseme.io import numbered_lines, read_features
from polyseme_experiments.datasets.base import Dataset, DatasetContent, DatasetSpec
from polyseme_experiments.datasets.samples import SyntheticSample

VARIABLE = "POLYSEME_DATA"
DOCUMENT_FILES = ("documents.jsonl.gz", "documents.jsonl")
FEATURES_FILE = "features.npy"
NAMES_FILE = "feature_names.txt"
Names = TypeVar("Names", bound=tuple[str, ...])


@cache
def known_specs() -> dict[str, DatasetSpec]:
    """Return the specs of all known datasets by name: an entry each of `specs.toml`.

    Read when first asked for: packages that add some by entry points import this one.
    """
    specs_file = Path(__file__).with_name("specs.toml")
    text = specs_file.read_text("utf-8")
    tables = tomllib.loads(text)
    topics = tables.pop("topics")
    specs = {}
    for name, entry in tables.items():
        domain = entry["domain"]
        settings = entry.pop("sample")
        sample = SyntheticSample(topics[domain], **settings)
        specs[name] = DatasetSpec(name, sample=sample.make, **entry)
    plugins = load_plugins("polyseme.datasets")
    return specs | plugins


def load_dataset(name: str, data: str | Path | None = None, *, sample: bool = False) -> Dataset:
    """Load a dataset by the name of its folder.

    Warns when the files are not those that the published figures were made with.

    Parameters
    ----------
    name : str
        One of `known_specs`, or any other folder with documents.
    data : str or Path, optional
        Where the folders lie; by default the environment variable POLYSEME_DATA says it.
    sample : bool
        Whether to make the tiny synthetic sample instead, which reads no file.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> hsun = load_dataset("hsun", sample=True)
    >>> len(hsun.corpus), hsun.X.shape, hsun.is_sample
    (240, (240, 34), True)
    """
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise InputError(
            f"`name` of `load_dataset` must be the name of one folder; got {name!r}: pass the "
            "folder above it as `data`."
        )
    spec = known_specs().get(name) or folder_spec(name)
    make = spec.sample if sample else spec.embedded
    checksums: dict[str, str] = {}
    if make is not None:
        content = make()
        checksum = content.digest()
    else:
        folder = _folder(name, data)
        try:
            content, checksums = _read_folder(folder, spec)
        except InputError as error:
            raise InputError(f"Dataset '{name}': {error}") from error
        listing = "".join(f"{file} {checksums[file]}\n" for file in sorted(checksums))
        checksum = hashlib.sha256(listing.encode()).hexdigest()

    feature_names = None
    if content.feature_names is not None:
        feature_names = tuple(content.feature_names)
    X = content.X
    if X is not None and spec.square_root:
        X = np.sqrt(X)
    dataset = Dataset(spec, content.corpus, X, feature_names, checksum, sample, checksums)

    if checksums and spec.checksums and not dataset.as_published():
        differing = {*checksums.items()} ^ {*spec.checksums.items()}
        differing_files = sorted({file for file, _ in differing})
        warnings.warn(
            f"Dataset '{name}': {first_few(differing_files)} differ from the files that the "
            "published figures were made with; your figures may differ from them too.",
            PolysemeWarning,
            stacklevel=2,
        )
    return dataset


def choose(candidates: Sequence[Names], data: str | Path | None = None) -> Names:
    """Return the first of several tuples of datasets whose folders are all there, originals first.

    A folder counts even when files are missing from it, so that a half-copied original is told of
    instead of being replaced in silence.
    """
    titles = [" with ".join(dict.fromkeys(names)) for names in candidates]
    if not all(titles) or not titles:
        raise InputError("`candidates` of `choose` must name at least one dataset each.")
    specs = known_specs()
    first = candidates[0]
    embedded = [name for name in first if name in specs and specs[name].embedded]
    if len(embedded) == len(first):
        return first
    root = _data_root(data, titles[0])
    for names in candidates:
        folders = [root / name for name in names]
        if all(folder.is_dir() for folder in folders):
            return names
    listed = ", ".join(titles)
    names_of_specs = ", ".join(specs)
    raise InputError(
        f"None of {listed} has its folder in '{root}' ({_contents(root)}); put the "
        f"files of one there, in a folder of its name; known datasets: {names_of_specs}."
    )


def folder_spec(name: str) -> DatasetSpec:
    """Return the spec of a folder that `known_specs` does not know, under its name."""

    def no_sample() -> DatasetContent:
        raise unknown_name("dataset", name, known_specs())

    owner = "the user's own"
    return DatasetSpec(
        name=name,
        title=name,
        domain="other",
        citation=f"none: a folder of {owner}",
        licence=owner,
        sample=no_sample,
    )


def _data_root(data: str | Path | None, wanted: str) -> Path:
    """Find the folder in which the datasets' folders lie; `wanted` is for the error message."""
    root = data if data is not None else os.environ.get(VARIABLE)
    if not root:
        raise InputError(
            f"The dataset '{wanted}' is not part of polyseme; set {VARIABLE} to the folder that "
            "holds the datasets' folders, pass that folder as `data` (--data), or ask for the "
            "sample (--quick)."
        )
    path = Path(root).expanduser()
    if not path.is_dir():
        origin = VARIABLE if data is None else "`data`"
        state = "is a file" if path.exists() else "does not exist"
        raise InputError(
            f"{origin} must name the folder that holds the datasets' folders; '{path}' {state}."
        )
    return path


def _folder(name: str, data: str | Path | None) -> Path:
    """Return the folder of a dataset, or raise an error that lists what the data root holds."""
    names = set(known_specs())
    if name not in names and not (data or os.environ.get(VARIABLE)):
        raise unknown_name("dataset", name, names)
    root = _data_root(data, name)
    folder = root / name
    if folder.is_dir():
        return folder
    if name not in names:
        raise unknown_name("dataset", name, names.union(_folders(root)))
    raise InputError(
        f"The dataset '{name}' has no folder in '{root}' ({_contents(root)}); put its files into "
        f"'{folder}', or ask for the sample."
    )


def _folders(root: Path) -> list[str]:
    """List the folders of a data root that hold documents."""
    names = set()
    for file in DOCUMENT_FILES:
        for path in root.glob(f"*/{file}"):
            names.add(path.parent.name)
    return sorted(names)


def _contents(root: Path) -> str:
    """Return which datasets a data root holds."""
    for file in DOCUMENT_FILES:
        path = root / file
        if path.is_file():
            return "it is a dataset's folder itself: name the folder above it"
    folders = _folders(root)
    if not folders:
        return "it holds no folder with documents"
    listed = ", ".join(folders)
    return f"found there: {listed}"


def _read_folder(folder: Path, spec: DatasetSpec) -> tuple[DatasetContent, dict[str, str]]:
    """Read and check the files of a dataset; return the SHA-256 of each by its name, too."""
    paths = [_file(folder, *DOCUMENT_FILES)]
    corpus = LabelCorpus.read(paths[0], strict=True)
    splits = sorted(set(corpus.splits or ()))
    if spec.has_splits and not {"train", "test"} <= set(splits):
        got = f"got only {', '.join(splits)}" if splits else "the field is missing"
        raise InputError(
            f"every document needs a `split` of the official train and test division; {got}."
        )
    if spec.has_groups and corpus.groups is None:
        raise InputError(
            "every document needs a `group` (its artist or track), so that a split keeps a group "
            "on one side; the field is missing: add it to the documents file."
        )
    X = None
    names = None
    if spec.has_features or (folder / FEATURES_FILE).is_file():
        features_path = _file(folder, FEATURES_FILE)
        paths.append(features_path)
        X = _read_features(features_path, spec, len(corpus))
        if spec.detectors or (folder / NAMES_FILE).is_file():
            names_path = _file(folder, NAMES_FILE)
            paths.append(names_path)
            names = _read_names(names_path, X.shape[1])
    files = {}
    for path in paths:
        content = path.read_bytes()
        files[path.name] = hashlib.sha256(content).hexdigest()
    return DatasetContent(corpus, X, names), files


def _read_names(path: Path, n_columns: int) -> tuple[str, ...]:
    """Read the names of the feature columns, one a line, all different."""
    text = "".join(line for _, line in numbered_lines(path))
    text = text.rstrip()
    lines = text.split("\n")
    names = tuple(line.strip() for line in lines)
    n_names = len(names)
    distinct = set(names)
    n_distinct = len(distinct)
    if n_names != n_columns or n_distinct < n_names:
        raise InputError(
            f"{NAMES_FILE} must name the {n_columns} columns of {FEATURES_FILE}, a line "
            f"each; got {n_distinct} different names in {n_names} lines."
        )
    return names


def _file(folder: Path, *names: str) -> Path:
    """Return the first of several files that the folder holds, or raise an error that lists it."""
    for name in names:
        path = folder / name
        if path.is_file():
            return path
    present = sorted(path.name for path in folder.iterdir())
    contents = "the folder is empty"
    if present:
        contents = f"found there: {first_few(present, most=12)}"
    raise InputError(f"no {' or '.join(names)} in '{folder}' ({contents}); put it there.")


def _read_features(path: Path, spec: DatasetSpec, n_documents: int) -> Any:
    """Read finite features in single precision (n_documents, n_features)."""
    # A number that single precision cannot hold becomes infinite and is refused as such.
    with np.errstate(over="ignore"):
        values = np.asarray(read_features(path), dtype=np.float32)
    X: Any = check_features(values, owner=path.name, keep_single=True)
    n_rows = X.shape[0]
    if n_rows != n_documents:
        raise InputError(
            f"{path.name} has {n_rows} rows for {n_documents} documents; give one row per "
            "document, in the same order."
        )
    if spec.square_root:
        outside = (X < 0) | (X > 1)
        n_outside = int(outside.sum())
        if n_outside:
            raise InputError(
                f"{path.name} must hold probabilities but {n_outside} of its values lie outside "
                "0 to 1; rescale them, or use the folder under another name."
            )
    return X
