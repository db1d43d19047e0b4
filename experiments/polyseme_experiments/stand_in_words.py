"""Stand-ins for word vectors, for made-up corpora whose labels no published vectors know.

In: label documents. Out: `WordVectors` of the words that share documents; figures made with them
say nothing about word vectors.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.extmath import randomized_svd

from polyseme import WordVectors
from polyseme._validation import RandomState, as_generator, draw_seed
from polyseme.corpus import Documents, as_corpus
from polyseme.word_vectors import words_of


def stand_in_vectors(
    documents: Documents, n_components: int = 50, random_state: RandomState = 0
) -> WordVectors:
    """Learn vectors of words from the words that share documents.

    They are leading singular vectors of the words' positive pointwise mutual information, scaled
    by the roots of the singular values: `n_components`, at most the number of words.
    """
    corpus = as_corpus(documents)
    counter = CountVectorizer(analyzer=words_of, binary=True, dtype=np.float64)
    holds = counter.fit_transform(corpus.labels)
    counts = (corpus.matrix.astype(np.float64) @ holds).minimum(1.0)
    together = sp.coo_matrix(counts.T @ counts)
    alone = np.asarray(together.sum(axis=0), dtype=np.float64).ravel()
    expected = alone[together.row] * alone[together.col] / alone.sum()
    together.data = np.maximum(np.log(together.data / expected), 0.0)
    size, seed = min(n_components, holds.shape[1]), draw_seed(as_generator(random_state))
    left, values, _ = randomized_svd(together.tocsr(), size, n_iter=7, random_state=seed)
    words = counter.get_feature_names_out().tolist()
    source = f"a stand-in learned from {len(corpus)} documents"
    return WordVectors.from_arrays(words, left * np.sqrt(values), source=source)
