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
        self.vectorizers_ = []
        for kind in _KINDS:
            least_texts = 1 if len(texts) < _FEW_TEXTS else kind.least_texts
            try:
                vectorizer = _vectorizer(kind, min_df=least_texts).fit(texts)
            except ValueError:  # no term is in so many texts
                vectorizer = _vectorizer(kind).fit(texts)
            self.vectorizers_.append(vectorizer)
        terms = self._terms(texts)
        n_topics = min(self.n_topics, *terms.shape)
        decomposition = TruncatedSVD(n_topics, random_state=self.seed)
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
        components = arrays.get("components")
        n_topics = 0 if components is None else len(components)
        axes = Array("float16", ("n_topics", "n_terms"), low=-1.0, high=1.0)
        declared: dict[str, Any] = {"components": axes}
        for name in sizes:
            declared[f"{name}_weights"] = Array("float64", (name,))
        n_terms = sum(sizes.values())
        check_arrays(arrays, declared, n_topics=n_topics, n_terms=n_terms, **sizes)
        topics = cls(n_topics)
        topics.components_ = arrays["components"].astype(np.float32)
        for kind in _KINDS:
            vectorizer = _vectorizer(kind, vocabulary=config[kind.name])
            vectorizer.idf_ = arrays[f"{kind.name}_weights"]
            topics.vectorizers_.append(vectorizer)
        return topics


def _vectorizer(kind: TermKind, **options: Any) -> TfidfVectorizer:
    """Return what counts terms of a kind and weighs them, not fitted."""
    return TfidfVectorizer(max_features=kind.most, sublinear_tf=True, **{**kind.options, **options})
