"""The base class of feature extractors: media in, raw numbers, features out.

In: media files, arrays, or what `polyseme extract` wrote. Out: a feature matrix (n, n_features).
"""

from __future__ import annotations

import hashlib
import inspect
import io
import itertools
import json
import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from polyseme.base.estimator import Estimator, TransformerMixin
from polyseme.base.machine import n_cores, ordered_map
from polyseme.base.progress import Quiet
from polyseme.base.text import in_words, shown
from polyseme.base.validation import InputError, check_fitted, check_number, first_few
from polyseme.storage.array_checks import (
    Fields,
    MappingOf,
    Plain,
    Whole,
    check_arrays,
    declare_parameters,
)
from polyseme.storage.model_file import JSON, Arrays, Config, State

if TYPE_CHECKING:
    from polyseme.media.keywords import Place

# The raw numbers of one item: a vector, or a matrix (n_segments, n_numbers); see `raw_axes`.
Raw = NDArray[np.float32]
# Parameters that say how to compute and not what; caches and saved models leave them out. Of the
# random state, a saved model holds the outcome.
_RUN_PARAMETERS = ("device", "n_jobs", "random_state")
MOST_PREVIEW_BYTES = 2**28  # of what a browser is sent of a file
_ERROR_DESCRIPTOR = 2  # of the error stream, on every system
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
T = TypeVar("T")


class MediaError(InputError):
    """One media file cannot be used; the reason completes "skipped FILE: …", as "is truncated"."""


@dataclass(frozen=True, eq=False)
class Extracted:
    """Raw numbers of media files; feature extractors take it wherever they take files.

    Immutable. `ids`, `raw` and, unless it is empty, `tags` have one entry for each item, in the
    same order.
    """

    kind: str  # of the extractor, such as "image"
    preprocessing: dict[str, JSON]  # how the numbers were made; see `MediaFeatures.preprocessing`
    ids: tuple[str, ...]  # the items' paths below the folder they lie in
    raw: Sequence[Raw]  # a vector for each picture, segments (n_segments, 36) for each clip
    # The keywords in each item's file and beside it, but for those that a machine suggested.
    tags: tuple[tuple[str, ...], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()  # other media files, and why they cannot be used
    parameters: Mapping[str, JSON] = field(default_factory=dict)  # of the extractor that made it

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        """Return its kind and size, in a line."""
        return f"Extracted({len(self)} {self.kind} items, {len(self.skipped)} skipped)"

    @property
    def shape(self) -> tuple[int, ...]:
        """One item a row; scikit-learn counts rows by this."""
        return (len(self.ids),)

    def __getitem__(self, rows: Any) -> Extracted:
        """Return some of the items, by row numbers, a slice or a mask; scikit-learn splits by this.

        Skipped files stay as they are.
        """
        all_rows = np.arange(len(self))
        selected_rows = np.atleast_1d(all_rows[rows]).tolist()
        raw: Any = self.raw
        if isinstance(raw, np.ndarray):
            selected_raw: Any = raw[selected_rows]
        else:
            selected_raw = [raw[row] for row in selected_rows]
        ids = tuple(self.ids[row] for row in selected_rows)
        tags: tuple[tuple[str, ...], ...] = ()
        if self.tags:
            tags = tuple(self.tags[row] for row in selected_rows)
        return replace(self, ids=ids, raw=selected_raw, tags=tags)


class MediaFeatures(TransformerMixin, Estimator, ABC):  # type: ignore[misc]  # untyped mixin
    """Turn media into features: extraction learns nothing, the rest learns from training data.

    Extraction is the slow step from a file to its *raw numbers*, which caches hold; `fit_raw` and
    `transform_raw` go from raw numbers to features.

    A new kind of media is a subclass with the two abstract methods, and one that learns something
    overrides `fit_raw`, `transform_raw` and the two methods that save it as well. Its parameters
    include `device` and `n_jobs`.
    """

    kind: ClassVar[str]  # by which commands and saved models name it, such as "image"
    noun: ClassVar[str]  # what people call an item, such as "picture"
    names_are_paths: ClassVar[bool] = True  # whether items that are `str` name files
    likely_alike: ClassVar[str] = "blank, or silent"  # what different items with equal numbers are
    suffixes: ClassVar[frozenset[str]]  # of its files, in lower case, such as ".png"
    # Media types of what a browser is sent of its files, by suffix; files of others are not shown.
    preview_types: ClassVar[Mapping[str, str]] = {}
    batch_size: ClassVar[int] = 1  # items that `extract_batch` gets at a time, at most
    raw_axes: ClassVar[int] = 1  # dimensions of an item's raw numbers: 2 for several segments
    learns: ClassVar[bool] = False  # whether `fit_raw` learns something, which is saved as arrays
    n_jobs: int | None  # threads; None for one on each processor
    device: str
    n_features_out_: int  # columns of `transform`, once fitted
    preprocessing_: dict[str, JSON]  # as it was when fitted

    @abstractmethod
    def preprocessing(self) -> dict[str, JSON]:
        """Return all that decides the raw numbers as JSON values, with a version of our own.

        Raw numbers of another preprocessing are refused, and caches keep them apart. Raises for
        parameters that are wrong.
        """

    @abstractmethod
    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Return the raw numbers of each of at most `batch_size` items, or why there are none.

        Items are paths or arrays. Several threads call it at once.
        """

    @classmethod
    def usual(cls) -> Self:
        """Return an extractor as commands use it unless they are told otherwise."""
        return cls()

    @classmethod
    def keyword_places(cls, file: BinaryIO) -> Iterator[Place]:
        """Yield the places inside an open file that may hold keywords; see `keywords.Place`."""
        yield from ()

    @classmethod
    def preview(cls, file: Path, side: int) -> bytes:
        """Return what a browser is sent of a file: pictures at most `side` pixels a side.

        By default it is the file itself, which is held in memory and may not be too large.
        """
        if file.stat().st_size > MOST_PREVIEW_BYTES:
            raise MediaError(f"has more than {MOST_PREVIEW_BYTES >> 20} MiB")
        return file.read_bytes()

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep the libraries that `extract_batch` uses to one thread each."""
        from threadpoolctl import threadpool_limits

        limited: AbstractContextManager[object] = threadpool_limits(limits=1)
        return limited

    def single(self, item: object) -> object:
        """Return one item as `transform` takes several."""
        return item if isinstance(item, Extracted) else [item]

    def fit_raw(self, raw: Sequence[Raw]) -> None:
        """Learn from the raw numbers of at least one training item; sets `n_features_out_`."""
        self.n_features_out_ = len(raw[0])

    def transform_raw(self, raw: Sequence[Raw]) -> NDArray[np.floating[Any]]:
        """Turn raw numbers of items into features, (n_items, n_features_out_)."""
        return np.asarray(raw, dtype=np.float32)

    def encode_names(self, names: Sequence[str]) -> NDArray[np.floating[Any]] | None:
        """Return the vectors of names of tags beside those of items, (n_names, n_features_out_).

        None where this extractor does not read words.
        """
        return None

    def fit(self, X: object, y: object = None) -> Self:
        """Learn how raw numbers become features from items (paths, arrays, Extracted)."""
        self._fit(self.raw(X))
        return self

    def fit_transform(self, X: object, y: object = None) -> NDArray[np.floating[Any]]:
        """Learn from items and return their features, looking at each once."""
        raw = self.raw(X)
        self._fit(raw)
        return self.transform_raw(raw)

    def _fit(self, raw: Sequence[Raw]) -> None:
        """Learn from raw numbers, and note how they were made."""
        self.fit_raw(raw)
        self.preprocessing_ = self.preprocessing()

    def transform(self, X: object) -> NDArray[np.floating[Any]]:
        """Return the features (n_items, n_features_out_) of items: paths, arrays or Extracted."""
        check_fitted(self, "n_features_out_")
        if self.preprocessing_ != self.preprocessing():
            raise InputError(
                f"Parameters of this {type(self).__name__} were changed after `fit`; fit it again."
            )
        return self.transform_raw(self.raw(X))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Name the columns: image0, image1 and so on."""
        check_fitted(self, "n_features_out_")
        columns = range(self.n_features_out_)
        names = [f"{self.kind}{column}" for column in columns]
        return np.array(names, dtype=object)

    def extract(self, items: Iterable[object]) -> Generator[Raw | MediaError, None, None]:
        """Yield the raw numbers of items, or why there are none, in the items' order.

        Each is yielded as soon as it is there; items are taken from the iterable as they are
        needed, so that it may be endless.
        """
        if self.n_jobs is not None:
            check_number("n_jobs", self.n_jobs, owner=type(self).__name__, low=1, whole=True)
        self.preprocessing()  # raises for wrong parameters
        remaining = iter(items)
        batches = iter(lambda: list(itertools.islice(remaining, self.batch_size)), [])
        n_threads = self.n_jobs or n_cores()
        # This runs once, or not at all: nothing heavy is loaded where there is no item.
        for first_batch in batches:
            all_batches = itertools.chain([first_batch], batches)
            with self.single_threaded():
                for outcomes in ordered_map(self.extract_batch, all_batches, n_threads):
                    yield from outcomes

    def raw(self, X: object) -> Sequence[Raw]:
        """Return the raw numbers of items (paths, arrays, Extracted), in their order.

        The first item without any is an error.
        """
        if isinstance(X, Extracted):
            self._check_preprocessing(X)
            self._check_numbers(X)
            return X.raw
        items = _items(X, self.kind)
        raw_by_row: list[Raw] = []
        outcomes = self.extract(items)
        for item, outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, MediaError):
                name = f"No. {len(raw_by_row)}"
                is_file = isinstance(item, os.PathLike) or (self.names_are_paths and is_path(item))
                if is_file:
                    name = f"'{item}'"
                raise InputError(f"{name} cannot be used: {outcome}.")
            raw_by_row.append(outcome)
        return raw_by_row

    def digest(self) -> str:
        """Return 16 hexadecimal digits that stand for kind and preprocessing in caches.

        Caches on disk hold them, so another way to compute them makes these worthless.
        """
        text = json.dumps([self.kind, self.preprocessing()], sort_keys=True)
        digest = hashlib.sha256(text.encode())
        return digest.hexdigest()[:16]

    def plain_parameters(self) -> dict[str, JSON]:
        """Return the parameters of an equal extractor, here or elsewhere, as JSON values."""
        parameter_by_name: dict[str, JSON] = {}
        for name, parameter in self.get_params().items():
            if name not in _RUN_PARAMETERS:
                parameter_by_name[name] = parameter
        weights: Any = parameter_by_name.get("weights")
        if weights is not None:
            weights_file = Path(weights).absolute()
            parameter_by_name["weights"] = str(weights_file)
        return parameter_by_name

    def trained_tags(self) -> tuple[str, ...]:
        """Return the tags that a network was trained to know: no item's tag is new to it."""
        return ()

    def get_state(self) -> State:
        """Return the fitted extractor as JSON values and arrays, for saving without pickle."""
        check_fitted(self, "n_features_out_")
        config: dict[str, Any] = {
            "parameters": self.plain_parameters(),
            "preprocessing": self.preprocessing(),
            "n_features_out": self.n_features_out_,
        }
        return config, {}

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted extractor from `get_state`, unless media are read otherwise by now."""
        cls.declared().check(config)
        if not cls.learns:
            check_arrays(arrays, {})
        extractor = cls(**config["parameters"])
        extractor.preprocessing_ = extractor.preprocessing()
        if config["preprocessing"] != extractor.preprocessing_:
            raise InputError(
                f"The saved model was made with another version of the {cls.kind} features; "
                "extract the files and fit again."
            )
        extractor.n_features_out_ = int(config["n_features_out"])
        return extractor

    @classmethod
    def declared(cls) -> Fields:
        """Return the schema of the JSON values of `get_state`: what a saved file may hold."""
        all_names = inspect.signature(cls).parameters
        names = [name for name in all_names if name not in _RUN_PARAMETERS]
        saved_parameters = declare_parameters(cls, *names) if names else Fields({})
        return Fields(
            {
                "parameters": saved_parameters,
                "preprocessing": MappingOf(Plain()),
                "n_features_out": Whole(1),
            }
        )

    def _check_preprocessing(self, extracted: Extracted) -> None:
        """Raise for raw numbers that were made in another way."""
        name = type(self).__name__
        if extracted.kind != self.kind:
            raise InputError(
                f"These numbers were extracted from {extracted.kind} files; {name} takes "
                f"{self.kind} files."
            )
        expected = self.preprocessing()
        actual = extracted.preprocessing
        keys = sorted({*expected, *actual})
        differing_keys = [key for key in keys if expected.get(key) != actual.get(key)]
        if not differing_keys:
            return
        differences: list[str] = []
        for key in differing_keys[:5]:
            # Keys and values of a file may be anything, and of any length.
            key_name = in_words(key, 40)
            actual_value = in_words(actual.get(key), 60)
            expected_value = expected.get(key)
            differences.append(f"{key_name} {actual_value} in place of {expected_value}")
        details = ", ".join(differences)
        raise InputError(
            f"The extracted features differ in {first_few(differing_keys)} from what this {name} "
            f"makes: {details}; extract them again."
        )

    def _check_numbers(self, extracted: Extracted) -> None:
        """Raise for raw numbers that no extractor makes."""
        if not self._has_valid_numbers(extracted):
            raise InputError(
                f"The raw numbers of {len(extracted)} extracted {self.kind} items must be as many "
                f"arrays of finite floats with {self.raw_axes} dimension(s), all of one width; "
                "extract the files again."
            )

    def _has_valid_numbers(self, extracted: Extracted) -> bool:
        """Whether there are as many raw numbers as items, finite floats of one width.

        They are one array for all items, with an axis more than an item has, or an array for each.
        """
        raw: Any = extracted.raw
        is_table = isinstance(raw, np.ndarray) and raw.dtype != object
        try:
            n_items = len(raw)
            arrays = [raw] if is_table else [np.asarray(numbers) for numbers in raw]
        except (TypeError, ValueError):  # no sequence, or of items that do not fit each other
            return False
        widths = {array.shape[-1:] for array in arrays}
        if n_items != len(extracted) or len(widths) != 1:
            return False
        n_axes = self.raw_axes + is_table
        for array in arrays:
            is_float = array.dtype.kind == "f"
            if not is_float or array.ndim != n_axes or array.shape[-1] == 0:
                return False
            # A comparison with NaN is false, so one test finds NaN, infinity and larger types.
            is_finite = _largest_magnitude(array) <= _LARGEST_FLOAT32
            if not is_finite:
                return False
        return True


def _largest_magnitude(array: NDArray[Any]) -> float:
    """Return the largest absolute value; NaN where an entry is NaN."""
    if not array.size:
        return 0.0
    highest = float(array.max())
    lowest = float(array.min())
    return max(highest, -lowest)


def needs(extra: str, purpose: str) -> InputError:
    """Build the error for a library of an extra that is not installed."""
    return InputError(
        f"{purpose} needs the extra `{extra}`; pip install '.[{extra}]' in a checkout."
    )


def is_path(item: object) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether an item names a file."""
    return isinstance(item, (str, os.PathLike))


def check_file(path: Path) -> int:
    """Return the bytes of a regular file that can be read and is not empty; raise for all else.

    What it raises is a `MediaError`.
    """
    try:
        status = path.stat()
        is_regular = stat.S_ISREG(status.st_mode)
        if is_regular:  # opening a pipe would wait for its writer
            path.open("rb").close()
    except (OSError, ValueError) as error:  # a name that no system allows is a ValueError
        raise MediaError(f"cannot be opened ({cause(error)})") from error
    if not is_regular:
        raise MediaError("is not a regular file")
    if not status.st_size:
        raise MediaError("is empty")
    return status.st_size


def cause(error: OSError | ValueError) -> str:
    """Return the system's message about a file, in lower case, without the file's name."""
    message = getattr(error, "strerror", None)
    return str(message or error).lower()


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Keep messages of C libraries on the error stream from the screen.

    The MP3 decoder comments on damaged files there and offers no switch. Python's own `sys.stderr`
    gets another descriptor, so that warnings and progress still show. It concerns the whole
    process: enter it once around a run over many files, from one thread.
    """
    try:
        screen = os.dup(_ERROR_DESCRIPTOR)
    except OSError:  # a process without an error stream has nothing to keep quiet
        yield
        return
    python_stream = sys.stderr
    try:
        if python_stream.fileno() == _ERROR_DESCRIPTOR:
            python_stream.flush()
            screen_bytes = os.fdopen(screen, "wb", buffering=0, closefd=False)
            redirected = io.TextIOWrapper(
                screen_bytes, python_stream.encoding, errors="backslashreplace", write_through=True
            )
            # A stream that need not be read stays one.
            was_quiet = isinstance(python_stream, Quiet)
            replacement: Any = Quiet(redirected) if was_quiet else redirected
            sys.stderr = replacement
    except (AttributeError, OSError, ValueError):
        pass  # Python's own stream goes elsewhere already
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, _ERROR_DESCRIPTOR)
    os.close(null)
    try:
        yield
    finally:
        os.dup2(screen, _ERROR_DESCRIPTOR)
        sys.stderr = python_stream
        os.close(screen)


def attempt(function: Callable[[object], T], item: object) -> T | MediaError:
    """Return the result of a function for an item, or its error as a `MediaError`."""
    try:
        return function(item)
    except MediaError as error:
        return error
    except InputError as error:  # an array, whose complaint is a whole sentence
        return MediaError(str(error).rstrip("."))


def _items(X: Any, kind: str) -> list[object]:
    """Return items as a list: paths or texts in any sequence or column, or arrays."""
    if is_path(X) or isinstance(X, bytes):
        raise InputError(f"Give a list of {kind} files, not a single path or text; got {shown(X)}.")
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    is_array = isinstance(X, np.ndarray)
    if is_array and X.dtype.kind in "OUT" and X.shape[1:] == (1,):
        X = X[:, 0]
    try:
        items = list(X)
    except TypeError:
        raise InputError(f"Give a list of {kind} files, texts or arrays; got {shown(X)}.") from None
    if not items:
        raise InputError(f"Give at least one {kind} file, text or array.")
    return items
