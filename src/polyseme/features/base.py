"""The frame of every feature extractor: media in, raw numbers, what is learned, features out.

In: media files, arrays, or what `polyseme extract` wrote. Out: a feature matrix (n, n_features).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme._estimator import Estimator, TransformerMixin, copy_of
from polyseme._persistence import JSON
from polyseme._threads import n_cores, ordered_map
from polyseme._validation import InputError, RandomState, as_row, check_fitted, check_number
from polyseme.features.media import MediaError

Raw = NDArray[np.float32]
Recipe = dict[str, JSON]
T = TypeVar("T")
State = tuple[dict[str, Any], dict[str, NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class Extracted:
    """Raw numbers of media files; feature extractors take it wherever they take files.

    Attributes
    ----------
    kind : str
        "image" or "audio".
    recipe : dict
        How the numbers were made; see `MediaFeatures.recipe`.
    ids : tuple of str
        Names the items: their paths below the folder they lie in.
    raw : sequence of float32 arrays
        A vector for each picture, a matrix of segments (n_segments, 36) for each clip.
    """

    kind: str
    recipe: Recipe
    ids: tuple[str, ...]
    raw: Sequence[Raw]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def shape(self) -> tuple[int, ...]:
        """One item a row; scikit-learn counts rows by this."""
        return (len(self.ids),)

    def __getitem__(self, rows: Any) -> Extracted:
        """Keep some items, by numbers, a slice or a mask; scikit-learn splits by this."""
        return self.select(np.atleast_1d(np.arange(len(self))[rows]).tolist())

    def select(self, rows: Iterable[int]) -> Extracted:
        """Keep some items, in the given order."""
        chosen = list(rows)
        ids = tuple(self.ids[row] for row in chosen)
        if isinstance(self.raw, np.ndarray):
            return Extracted(self.kind, self.recipe, ids, self.raw[chosen])
        return Extracted(self.kind, self.recipe, ids, [self.raw[row] for row in chosen])


class MediaFeatures(TransformerMixin, Estimator, ABC):  # type: ignore[misc]  # untyped mixin
    """Turn media into features: extraction learns nothing, the rest learns from training data.

    A new feature extractor gives the methods that are abstract here.
    """

    kind: ClassVar[str]
    suffixes: ClassVar[frozenset[str]]
    batch_size: ClassVar[int] = 1
    n_jobs: int | None
    random_state: RandomState
    n_features_out_: int

    # ------------------------------------------------------------------ what an extractor gives

    @abstractmethod
    def recipe(self) -> Recipe:
        """Give all that decides the raw numbers as JSON values, a version of our own among it."""

    @abstractmethod
    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Give the raw numbers of some items, or why there are none; runs in threads."""

    @abstractmethod
    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep the libraries that `extract_batch` uses to one thread each."""

    @abstractmethod
    def learn(self, raw: Sequence[Raw]) -> None:
        """Learn from the raw numbers of training items; sets `n_features_out_`."""

    @abstractmethod
    def apply(self, raw: Sequence[Raw]) -> NDArray[np.floating[Any]]:
        """Turn raw numbers into features, (n, n_features_out_)."""

    @abstractmethod
    def get_state(self) -> State:
        """Give the fitted extractor as JSON values and arrays, for saving without pickle."""

    @classmethod
    @abstractmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted feature extractor from `get_state`."""

    # ------------------------------------------------------------------ what all have in common

    def fit(self, X: object, y: object = None) -> Self:
        """Learn from training items what turns raw numbers into features.

        Parameters
        ----------
        X : sequence of paths or of arrays, or Extracted
        y : None
            Not used.
        """
        self.learn(self.raw(X))
        self.recipe_ = self.recipe()
        return self

    def transform(self, X: object) -> NDArray[np.floating[Any]]:
        """Give the features of items.

        Parameters
        ----------
        X : sequence of paths or of arrays, or Extracted

        Returns
        -------
        float array, shape (n, n_features_out_)
        """
        check_fitted(self, "n_features_out_")
        if getattr(self, "recipe_", self.recipe()) != self.recipe():
            raise InputError(
                f"Parameters of this {type(self).__name__} were changed after `fit`; fit it again."
            )
        return self.apply(self.raw(X))

    def fit_transform(self, X: object, y: object = None) -> NDArray[np.floating[Any]]:
        """Learn from items and give their features, looking at each once."""
        raw = self.raw(X)
        self.learn(raw)
        self.recipe_ = self.recipe()
        return self.apply(raw)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Name the columns: image0, image1 and so on."""
        check_fitted(self, "n_features_out_")
        names = [f"{self.kind}{column}" for column in range(self.n_features_out_)]
        return np.array(names, dtype=object)

    def extract(self, items: Iterable[object]) -> Generator[Raw | MediaError, None, None]:
        """Give the raw numbers of items, in their order and as they come.

        Parameters
        ----------
        items : iterable of paths or of arrays

        Yields
        ------
        float32 array or MediaError
            The error says why an item has none.
        """
        if self.n_jobs is not None:
            check_number("n_jobs", self.n_jobs, owner=type(self).__name__, low=1, whole=True)
        self.recipe()
        batches = iter(partial(_take, iter(items), self.batch_size), [])
        first = next(batches, None)
        if first is None:  # nothing to look at, so nothing heavy is loaded
            return
        batches = itertools.chain([first], batches)
        with self.single_threaded():
            for found in ordered_map(self.extract_batch, batches, self.n_jobs or n_cores()):
                yield from found

    def raw(self, X: object) -> Sequence[Raw]:
        """Give raw numbers of whatever is accepted; the first item without any is an error."""
        if isinstance(X, Extracted):
            self._check_recipe(X)
            return X.raw
        items = _items(X, self.kind)
        found: list[Raw] = []
        for item, raw in zip(items, self.extract(items), strict=True):
            if isinstance(raw, MediaError):
                name = f"'{item}'" if isinstance(item, (str, os.PathLike)) else f"No. {len(found)}"
                raise InputError(f"{name} cannot be used: {raw}.")
            found.append(raw)
        return found

    def digest(self) -> str:
        """Give a short name of the recipe, for caches."""
        text = json.dumps([self.kind, self.recipe()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _state_config(self) -> dict[str, Any]:
        """Give what the saved state of every feature extractor begins with."""
        check_fitted(self, "n_features_out_")
        parameters = {
            name: value
            for name, value in self.get_params().items()
            if name not in ("n_jobs", "random_state")
        }
        return {
            "parameters": parameters,
            "recipe": self.recipe(),
            "n_features_out": self.n_features_out_,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, Any], *, analysis: str, items: str) -> Self:
        """Take back what `_state_config` gave, unless items are analysed otherwise by now."""
        made = cls(**config["parameters"])
        if config["recipe"] != made.recipe():
            raise InputError(
                f"The saved model was made with another version of the {analysis}; extract the "
                f"{items} again and fit anew."
            )
        made.n_features_out_ = int(config["n_features_out"])
        return made

    def _check_recipe(self, extracted: Extracted) -> None:
        """Refuse raw numbers that were made in another way."""
        if extracted.kind != self.kind:
            raise InputError(
                f"These numbers were extracted from {extracted.kind} files; {type(self).__name__} "
                f"takes {self.kind} files."
            )
        mine, theirs = self.recipe(), extracted.recipe
        if mine != theirs:
            differing = sorted(key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key))
            raise InputError(
                f"The extracted features differ in {', '.join(differing)} from what this "
                f"{type(self).__name__} makes: "
                + ", ".join(
                    f"{key} {theirs.get(key)} in place of {mine.get(key)}" for key in differing
                )
                + "; extract them again."
            )


def learned_copy(extractor: MediaFeatures, X: object, seed: int) -> tuple[MediaFeatures, Any]:
    """Learn a copy of an extractor, which is left as it is; give it and the features of X.

    Parameters
    ----------
    extractor : MediaFeatures
    X : what the extractor takes
    seed : int
        For an extractor that has none of its own.
    """
    made = copy_of(extractor)
    if made.random_state is None:
        made.set_params(random_state=seed)
    return made, made.fit_transform(X)


def one_item(x: object, extractor: MediaFeatures | None) -> object:
    """Give one item as a table of one row, or as what an extractor takes."""
    if extractor is None:
        return as_row(x)
    return x if isinstance(x, Extracted) else [x]


def _take(items: Iterator[object], n: int) -> list[object]:
    """Take the next few of some items."""
    return list(itertools.islice(items, n))


def _items(X: Any, kind: str) -> list[object]:
    """Give items as a list: paths in any sequence or column, or arrays."""
    if isinstance(X, (str, bytes, os.PathLike)):
        raise InputError(f"Give a list of {kind} files, not a single path; got {X!r}.")
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1 and X.dtype.kind in "OU":
        X = X[:, 0]
    try:
        items = list(X)
    except TypeError:
        raise InputError(f"Give a list of {kind} files or arrays; got {X!r}.") from None
    if not items:
        raise InputError(f"Give at least one {kind} file or array.")
    return items


def as_path(item: object) -> Path | None:
    """Give an item as a path; None when it is no path."""
    return Path(item) if isinstance(item, (str, os.PathLike)) else None


def attempt(make: Callable[[], T]) -> T | MediaError:
    """Give what is made of an item, or the error that says why there is nothing."""
    try:
        return make()
    except MediaError as error:
        return error
    except InputError as error:  # an array, whose complaint is a whole sentence
        return MediaError(str(error).rstrip("."))
