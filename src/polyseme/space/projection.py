"""A random projection of features: few numbers that keep the cosines between items.

In: standardised features. Out: directions of bounded size, which corrections are learned from.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# The most dimensions of a projection.
PROJECTION_SIZE = 512


@lru_cache(maxsize=2)
def _signs(n_features: int) -> Floats:
    """Return the matrix that projects features, (n_features, PROJECTION_SIZE).

    Its signs are bits that are the same in every version of numpy, so that a projection which was
    saved stays one of the same space.
    """
    numbers = np.random.PCG64(n_features).random_raw(n_features * PROJECTION_SIZE // 64)
    octets = np.asarray(numbers, dtype="<u8").view(np.uint8)
    bits = np.unpackbits(octets).reshape(n_features, PROJECTION_SIZE)
    signs = bits.astype(np.float32) * 2 - 1
    return np.asarray(signs / np.float32(PROJECTION_SIZE**0.5))


def project(features: Floats) -> Floats:
    """Return directions (n, projection_size) of bounded size that keep the cosines of features.

    Standardised features (n, n_features) are left as they are but for their length, where there are
    no more than `PROJECTION_SIZE` of them.
    """
    n_features = features.shape[1]
    projections = features if n_features <= PROJECTION_SIZE else features @ _signs(n_features)
    lengths = np.sqrt(np.einsum("ij,ij->i", projections, projections))[:, None]
    return np.asarray(projections / np.maximum(lengths, 1e-9), dtype=np.float32)
