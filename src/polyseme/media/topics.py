"""Latent semantic analysis of texts: words and letter groups, weighed and brought to few numbers.

In: texts in any language. Out: vectors (n, n_topics) whose products are nearly those of TF-IDF,
with what goes together in the training texts on the same axes. Groups of letters find words that
are inflected or compounded, and names inside them; words tell apart what letters confuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from polyseme.base.validation import InputError
from polyseme.storage.array_checks import (
    Array,
    Fields,
    ListOf,
    Text,
    check_arrays,
)
from polyseme.storage.model_file import State

Floats = NDArray[np.float32]


class TermKind(NamedTuple):
    """Terms that texts are cut into; of all, the most frequent are used."""

    name: str
    most: int  # terms
    least_texts: int  # that hold a term, or it says nothing of others
    weight: float  # of these terms among all
    options: Mapping[str, Any]  # of `TfidfVectorizer`


# Chosen on splits of Tate's titles and Annif's questions, with seeds of their own: ten times as
# many letter groups bring nothing, half as many cost 2 points of C-MAP on the questions, which are
# in Finnish; words at full weight cost as much there, and no words 2 points on the titles.
_KINDS = (
    TermKind("words", 10_000, 2, 0.5, {"token_pattern": r"(?u)\b\w+\b"}),
    TermKind("letters", 20_000, 3, 1.0, {"analyzer": "char_wb", "ngram_range": (3, 5)}),
)
_FEW_TEXTS = 50  # of so few texts all terms are used
_MOST_WEIGHT = 100.0  # of a term: 1 and the logarithm of how many texts there are to one with it


class Topics:
    """Learn the topics of texts.

    Parameters
    ----------
    n_topics : int
        Numbers of a text; fewer where there are fewer texts.
    seed : int
        Of the singular value decomposition.

    Attributes
    ----------
    vectorizers_ : list of TfidfVectorizer
        One for words and one for letter groups.
    components_ : float32 array, shape (n_topics, n_terms)
        The axes, over the terms of both; with the precision of float16, which they are saved in.
    """

    def __init__(self, n_topics: int, seed: int = 0) -> None:
        self.n_topics = n_topics
        self.seed = seed
        self.vectorizers_: list[TfidfVectorizer] = []
        self.components_: Floats = np.zeros((0, 0), dtype=np.float32)

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the terms, their weights and the axes."""
        self.vectorizers_ = [_fitted(kind, texts) for kind in _KINDS]
        terms = self._terms(texts)
        n_topics = min(self.n_topics, *terms.shape)
        decomposition = TruncatedSVD(n_topics, random_state=self.seed)
        with np.errstate(divide="ignore", invalid="ignore"):  # variances of equal texts
            decomposition.fit(terms)
        self.components_ = decomposition.components_.astype(np.float16).astype(np.float32)
        return self

    def transform(self, texts: Sequence[str]) -> Floats:
        """Return the topics of texts, (n, n_topics)."""
        return np.asarray(self._terms(texts) @ self.components_.T, dtype=np.float32)

    def _terms(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return the weighted terms of texts, (n, n_terms); those of a kind have one length."""
        tables = []
        for kind, vectorizer in zip(_KINDS, self.vectorizers_, strict=True):
            tables.append(kind.weight * vectorizer.transform(texts))
        return sp.csr_matrix(sp.hstack(tables), dtype=np.float32)

    def get_state(self) -> State:
        """Return terms, their weights and the axes, for saving without pickle."""
        config: dict[str, Any] = {}
        arrays: dict[str, NDArray[Any]] = {"components": self.components_.astype(np.float16)}
        for kind, vectorizer in zip(_KINDS, self.vectorizers_, strict=True):
            config[kind.name] = vectorizer.get_feature_names_out().tolist()
            arrays[f"{kind.name}_weights"] = vectorizer.idf_.astype(np.float64)
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild fitted topics from `get_state`."""
        terms = ListOf(Text(), distinct=True, least=1)
        Fields({kind.name: terms for kind in _KINDS}).check(config)
        sizes = {kind.name: len(config[kind.name]) for kind in _KINDS}
        axes = Array("float16", ("n_topics", "n_terms"), low=-1.0, high=1.0)
        declared: dict[str, Any] = {"components": axes}
        for name in sizes:
            declared[f"{name}_weights"] = Array("float64", (name,), low=0.0, high=_MOST_WEIGHT)
        n_terms = sum(sizes.values())
        check_arrays(arrays, declared, n_terms=n_terms, **sizes)
        components = arrays["components"].astype(np.float32)
        topics = cls(len(components))
        topics.components_ = components
        for kind in _KINDS:
            vectorizer = _vectorizer(kind, vocabulary=config[kind.name])
            vectorizer.idf_ = arrays[f"{kind.name}_weights"]
            topics.vectorizers_.append(vectorizer)
        return topics


def _fitted(kind: TermKind, texts: Sequence[str]) -> TfidfVectorizer:
    """Return what counts terms of a kind, with the terms and weights of some texts."""
    least_texts = 1 if len(texts) < _FEW_TEXTS else kind.least_texts
    for min_df in (least_texts, 1):  # again with all terms where none is in so many texts
        try:
            return _vectorizer(kind, min_df=min_df).fit(texts)
        except ValueError:  # no terms
            continue
    raise InputError("None of these texts holds a word; there is nothing to learn from them.")


def _vectorizer(kind: TermKind, **options: Any) -> TfidfVectorizer:
    """Return what counts terms of a kind and weighs them, not fitted."""
    return TfidfVectorizer(max_features=kind.most, sublinear_tf=True, **{**kind.options, **options})
