"""Word vectors: what people write elsewhere, as a hint at what a label's name means.

In: a mapping, an `.npz` file or a GloVe text file. Out: `WordVectors`. None are part of polyseme,
and nothing is downloaded.
"""

from __future__ import annotations

from polyseme.word_vectors.likeness import name_likeness
from polyseme.word_vectors.vectors import WordVectors

__all__ = ["WordVectors", "name_likeness"]
