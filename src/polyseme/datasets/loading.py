"""Datasets by name: from the data root, or as a tiny sample that needs no file.

In: a name, and the folder in which the datasets' folders lie. Out: a `Dataset`.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from polyseme._validation import InputError, PolysemeWarning, first_few, unknown_name
from polyseme.datasets.base import DOCUMENT_FILES, Dataset, DatasetForm, DatasetParts
from polyseme.datasets.reading import read_folder, used_features
from polyseme.datasets.specs import FORMS

VARIABLE = "POLYSEME_DATA"
Names = TypeVar("Names", bound=tuple[str, ...])


def load_dataset(name: str, data: str | Path | None = None, *, sample: bool = False) -> Dataset:
    """Load a dataset by the name of its folder.

    Warns when the files are not those that the published figures were made with.

    Parameters
    ----------
    name : str
        One of `FORMS`, or any other folder with documents.
    data : str or Path, optional
        Where the folders lie; by default the environment variable POLYSEME_DATA says it.
    sample : bool
        Whether to make the tiny sample instead, which reads no file.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> hsun = load_dataset("hsun", sample=True)
    >>> len(hsun.corpus), hsun.X.shape, hsun.is_sample
    (240, (240, 34), True)
    """
    if sample or _is_embedded(name):
        return _without_files(name, sample=sample)
    folder = _folder(name, data)
    form = FORMS.get(name) or own_form(name)
    parts, files = read_folder(folder, form)
    listing = "".join(f"{file} {files[file]}\n" for file in sorted(files))
    dataset = Dataset(
        name=name,
        form=form,
        corpus=parts.corpus,
        X=parts.X,
        feature_names=parts.feature_names,
        checksum=hashlib.sha256(listing.encode()).hexdigest(),
        is_sample=False,
        files=files,
    )
    if form.checksums and not dataset.as_published():
        _warn_of_other_files(dataset)
    return dataset


def choose(candidates: Sequence[Names], data: str | Path | None = None) -> Names:
    """Give the first of several sets of datasets whose folders are all there.

    A folder counts even when files are missing from it, so that a half-copied original is told
    of instead of being replaced in silence.

    Parameters
    ----------
    candidates : sequence of tuples of str
        In order of preference: originals before their stand-ins. An experiment from one dataset
        to another gives pairs.
    data : str or Path, optional
        As in `load_dataset`.

    Returns
    -------
    tuple of str
        One of the candidates.
    """
    wanted = [" with ".join(dict.fromkeys(names)) for names in candidates]
    if not all(wanted) or not wanted:
        raise InputError("`candidates` of `choose` must name at least one dataset each.")
    if all(map(_is_embedded, candidates[0])):
        return candidates[0]
    root = data_root(data, wanted=f"'{wanted[0]}'")
    for names in candidates:
        if all((root / _one_folder(name)).is_dir() for name in names):
            return names
    if len(wanted) == 1:
        raise InputError(
            f"The dataset '{wanted[0]}' has no folder in '{root}' ({_found(root)}); put its files "
            f"there, in a folder of its name; known datasets: {', '.join(FORMS)}."
        )
    raise InputError(
        f"None of {', '.join(wanted)} has its folder in '{root}' ({_found(root)}); put the files "
        f"of one there, in a folder of its name; known datasets: {', '.join(FORMS)}."
    )


def available(names: Sequence[str], data: str | Path | None = None) -> str:
    """Give the first of several datasets whose folder is there; see `choose`.

    Parameters
    ----------
    names : sequence of str
        In order of preference.
    data : str or Path, optional
        As in `load_dataset`.

    Returns
    -------
    str
    """
    if isinstance(names, str):
        raise InputError(f"`names` of `available` must be a list of names; got {names!r}.")
    return choose([(name,) for name in names], data)[0]


def data_root(data: str | Path | None, *, wanted: str) -> Path:
    """Find the folder in which the datasets' folders lie.

    Parameters
    ----------
    data : str, Path or None
        What the user named; None for the environment variable POLYSEME_DATA.
    wanted : str
        The dataset that is looked for, for the error message.

    Returns
    -------
    Path
        An existing folder.
    """
    root = data if data is not None else os.environ.get(VARIABLE)
    if not root:
        raise InputError(
            f"The dataset {wanted} is not part of polyseme; set {VARIABLE} to the folder that "
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


def own_form(name: str) -> DatasetForm:
    """Give the form of a folder that `FORMS` does not know, under its name."""

    def no_sample() -> DatasetParts:
        raise unknown_name("dataset", name, FORMS)

    return DatasetForm(
        name=name,
        title=name,
        domain="other",
        citation="none: a folder of the user's own",
        licence="the user's own",
        sample=no_sample,
    )


def _is_embedded(name: str) -> bool:
    """Say whether a dataset is part of polyseme."""
    return name in FORMS and FORMS[name].embedded is not None


def _without_files(name: str, *, sample: bool) -> Dataset:
    """Give the sample of a known dataset, or the whole of an embedded one."""
    if name not in FORMS:
        raise unknown_name("dataset", name, FORMS)
    form = FORMS[name]
    parts = form.sample() if sample or form.embedded is None else form.embedded()
    return Dataset(
        name=name,
        form=form,
        corpus=parts.corpus,
        X=used_features(parts.X, form),
        feature_names=parts.feature_names,
        checksum=parts.digest(),
        is_sample=sample,
    )


def _folder(name: str, data: str | Path | None) -> Path:
    """Find the folder of a dataset, or say what there is instead."""
    _one_folder(name)
    if name not in FORMS and not (data or os.environ.get(VARIABLE)):
        raise unknown_name("dataset", name, FORMS)
    root = data_root(data, wanted=f"'{name}'")
    folder = root / name
    if folder.is_dir():
        return folder
    if name not in FORMS:
        raise unknown_name("dataset", name, {*FORMS, *_folders(root)})
    raise InputError(
        f"The dataset '{name}' has no folder in '{root}' ({_found(root)}); put its files into "
        f"'{folder}', or ask for the sample."
    )


def _one_folder(name: str) -> str:
    """Refuse what is not the plain name of a folder."""
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise InputError(
            f"`name` of `load_dataset` must be the name of one folder; got {name!r}: pass the "
            "folder above it as `data`."
        )
    return name


def _folders(root: Path) -> list[str]:
    """List the folders of a data root that hold documents."""
    found = {path.parent.name for file in DOCUMENT_FILES for path in root.glob(f"*/{file}")}
    return sorted(found)


def _found(root: Path) -> str:
    """Say which datasets a data root holds."""
    if any((root / file).is_file() for file in DOCUMENT_FILES):
        return "it is a dataset's folder itself: name the folder above it"
    folders = _folders(root)
    return f"found there: {', '.join(folders)}" if folders else "it holds no folder with documents"


def _warn_of_other_files(dataset: Dataset) -> None:
    """Warn that figures may differ, naming the files that are not the published ones."""
    published = dataset.form.checksums
    other = {*dataset.files.items()} ^ {*published.items()}
    named = sorted({file for file, _ in other})
    warnings.warn(
        f"Dataset '{dataset.name}': {first_few(named)} differ from the files that the published "
        "figures were made with; your figures may differ from them too.",
        PolysemeWarning,
        stacklevel=3,
    )
