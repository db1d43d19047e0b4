"""How like labels are by their names.

In: labels with word vectors. Out: what each seen label says about a label that nobody has shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, first_few
from polyseme.word_vectors.vectors import WordVectors

# How fast likeness falls with the cosine of two names, and how far each seen label is trusted;
# chosen on nested splits of training halves.
SPREAD = 0.3
NOISE = 0.3


def name_likeness(
    labels: Sequence[str], seen: Sequence[str], vectors: WordVectors
) -> NDArray[np.float64]:
    """Place labels among seen ones by their names, by kernel regression over words.

    Parameters
    ----------
    labels : sequence of str
        Each must have a word with a vector.
    seen : sequence of str, length n_seen
        Those without a vector count nothing.
    vectors : WordVectors

    Returns
    -------
    float64 array, shape (n_labels, n_seen)
        What each seen label counts.
    """
    wanted, known = vectors.label_vectors(labels)
    if not known.all():
        without = [label for label, has in zip(labels, known, strict=True) if not has]
        raise InputError(
            f"There are no word vectors for {first_few(without)}; such labels need documents."
        )
    given, has = vectors.label_vectors(seen)
    if not has.any():
        raise InputError("None of the seen labels has a word vector; give other vectors.")
    likeness = np.exp((given[has] @ given[has].T - 1) / SPREAD)
    across = np.exp((given[has] @ wanted.T - 1) / SPREAD)
    weights = np.zeros((len(labels), len(seen)))
    weights[:, has] = np.linalg.solve(likeness + NOISE * np.eye(has.sum()), across).T
    return weights
