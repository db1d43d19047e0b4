"""Texts by their terms: words and groups of letters, weighed, and brought to few topics.

In: texts in any language. Out: for each text its topics (n, n_topics), by latent semantic analysis
of the training texts, and its letter groups, weighed, (n, `N_BUCKETS`). Groups of letters find
words that are inflected or compounded, and names inside them; words tell apart what letters
confuse. Topics are about terms of training texts alone; letter groups are hashed, so that a name
is found in a text though no training text has its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from polyseme.base.validation import IntArray
from polyseme.storage.array_checks import Array, Fields, check_arrays, require
from polyseme.storage.model_file import State

Floats = NDArray[np.float32]

# Terms are counted in so many buckets; two of a text's hardly ever share one.
N_BUCKETS = 2**18


class TermKind(NamedTuple):
    """Terms that texts are cut into."""

    name: str
    most: int  # of the most frequent ones, from which topics are learned
    least_texts: int  # that hold such a term, or it says nothing of others
    weight: float  # of these terms among all
    options: Mapping[str, Any]  # of `HashingVectorizer`


# Chosen on splits of Tate's titles and Annif's questions, with seeds of their own: ten times as
# many letter groups bring nothing, half as many cost 2 points of C-MAP on the questions, which are
# in Finnish; words at full weight cost as much there, and no words 2 points on the titles.
WORDS = TermKind("words", 10_000, 2, 0.5, {"token_pattern": r"(?u)\b\w+\b"})
LETTERS = TermKind("letters", 20_000, 3, 1.0, {"analyzer": "char_wb", "ngram_range": (3, 5)})
_FEW_TEXTS = 50  # of so few texts all terms are used
# Of fewer texts to a topic, topics say what single texts say: with 256 of 150 notes, new notes'
# tags are ranked 5 points of E-MAP and 2 of C-MAP worse (titles of artworks, two splits).
_TEXTS_A_TOPIC = 4
_LEAST_TOPICS = 16


class Terms:
    """Count terms of a kind in texts, and weigh them: the rarer in training texts, the more.

    Attributes
    ----------
    weights_ : float32 array, shape (N_BUCKETS,)
        Inverse document frequencies.
    columns_ : int64 array, shape (n_columns,)
        The buckets of terms that are frequent in the training texts, sorted.
    """

    weights_: Floats
    columns_: IntArray

    def __init__(self, kind: TermKind) -> None:
        self.kind = kind
        self._vectorizer = HashingVectorizer(
            n_features=N_BUCKETS, alternate_sign=False, norm=None, **kind.options
        )

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn weights and frequent terms."""
        counts = sp.csr_matrix(self._vectorizer.transform(texts))
        n_texts = len(texts)
        texts_with = np.bincount(counts.indices, minlength=N_BUCKETS)
        self.weights_ = (np.log((1 + n_texts) / (1 + texts_with)) + 1).astype(np.float32)
        least_texts = 1 if n_texts < _FEW_TEXTS else self.kind.least_texts
        if texts_with.max() < least_texts:
            least_texts = 1
        uses = np.asarray(counts.sum(axis=0)).ravel()
        uses[texts_with < least_texts] = 0
        most_used = np.argsort(-uses, kind="stable")[: self.kind.most]
        columns = np.sort(most_used[uses[most_used] > 0])
        self.columns_ = columns if len(columns) else np.zeros(1, dtype=np.int64)
        return self

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return the weighed terms of texts, (n, N_BUCKETS)."""
        counts = sp.csr_matrix(self._vectorizer.transform(texts), dtype=np.float32)
        counts.data = (1 + np.log(counts.data)) * self.weights_[counts.indices]
        return counts


class Topics:
    """Learn the topics of texts.

    Parameters
    ----------
    n_topics : int
        Numbers of a text; fewer where there are fewer than four times as many texts.
    seed : int
        Of the singular value decomposition.

    Attributes
    ----------
    words_, letters_ : Terms
    components_ : float32 array, shape (n_topics, n_terms)
        The axes, over the frequent terms of both; with the precision of float16, in which they are
        saved.
    """

    words_: Terms
    letters_: Terms
    components_: Floats

    def __init__(self, n_topics: int, seed: int = 0) -> None:
        self.n_topics = n_topics
        self.seed = seed

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the terms, their weights and the axes."""
        self.words_ = Terms(WORDS).fit(texts)
        self.letters_ = Terms(LETTERS).fit(texts)
        terms = self._frequent_terms(texts, self.letters_.transform(texts))
        n_topics = max(len(texts) // _TEXTS_A_TOPIC, _LEAST_TOPICS)
        n_topics = min(self.n_topics, n_topics, *terms.shape)
        decomposition = TruncatedSVD(n_topics, random_state=self.seed)
        with np.errstate(divide="ignore", invalid="ignore"):  # variances of equal texts
            decomposition.fit(terms)
        self.components_ = decomposition.components_.astype(np.float16).astype(np.float32)
        return self

    def transform(self, texts: Sequence[str]) -> tuple[Floats, sp.csr_matrix]:
        """Return topics of texts (n, n_topics), and letter groups (n, N_BUCKETS) at length 1."""
        letters = self.letters_.transform(texts)
        topics = self._frequent_terms(texts, letters) @ self.components_.T
        return np.asarray(topics, dtype=np.float32), sp.csr_matrix(normalize(letters))

    def _frequent_terms(self, texts: Sequence[str], letters: sp.csr_matrix) -> sp.csr_matrix:
        """Return the terms that topics are about, (n, n_terms); those of a kind have one length."""
        words = self.words_.transform(texts)[:, self.words_.columns_]
        letters = letters[:, self.letters_.columns_]
        tables = [WORDS.weight * normalize(words), LETTERS.weight * normalize(letters)]
        return sp.csr_matrix(sp.hstack(tables), dtype=np.float32)

    def get_state(self) -> State:
        """Return terms, their weights and the axes, for saving without pickle."""
        arrays: dict[str, NDArray[Any]] = {"components": self.components_.astype(np.float16)}
        for terms in (self.words_, self.letters_):
            arrays[f"{terms.kind.name}_weights"] = terms.weights_
            arrays[f"{terms.kind.name}_columns"] = terms.columns_
        return {}, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild fitted topics from `get_state`."""
        Fields({}).check(config)
        n_topics = _length_of(arrays, "components")
        require(n_topics > 0, "components", "an axis or more")
        axes = Array("float16", ("n_topics", "n_terms"), low=-1.0, high=1.0)
        declared: dict[str, Any] = {"components": axes}
        n_terms = 0
        for kind in (WORDS, LETTERS):
            n_columns = _length_of(arrays, f"{kind.name}_columns")
            n_terms += n_columns
            declared[f"{kind.name}_weights"] = Array("float32", (N_BUCKETS,), low=0.0)
            declared[f"{kind.name}_columns"] = Array(
                "int64", (n_columns,), low=0, high=N_BUCKETS - 1, distinct=True
            )
        check_arrays(arrays, declared, n_topics=n_topics, n_terms=n_terms)
        topics = cls(n_topics)
        topics.components_ = arrays["components"].astype(np.float32)
        topics.words_ = _terms_of(WORDS, arrays)
        topics.letters_ = _terms_of(LETTERS, arrays)
        return topics


def _length_of(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """Return how many rows an array of a state has; none where it is missing."""
    return len(np.atleast_1d(arrays.get(name, np.zeros(0))))


def _terms_of(kind: TermKind, arrays: Mapping[str, NDArray[Any]]) -> Terms:
    """Rebuild terms of a kind from arrays of a state."""
    terms = Terms(kind)
    terms.weights_ = arrays[f"{kind.name}_weights"]
    terms.columns_ = arrays[f"{kind.name}_columns"]
    return terms
