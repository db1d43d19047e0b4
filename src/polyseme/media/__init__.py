"""Feature extractors: media files and arrays become feature matrices.

In: pictures or sound, as files or arrays. Out: features (n, n_features) for the tagger. Extraction
learns nothing; a codebook is learned by `fit` and saved with the model. A new kind of media is one
file and one line: see `extractors`.
"""

from __future__ import annotations

from polyseme.media.audio import AudioFeatures
from polyseme.media.base import Extracted, MediaError, MediaFeatures
from polyseme.media.extraction import extract_folder, read_extraction
from polyseme.media.extractors import (
    extractor_class,
    extractor_classes,
    extractor_of,
    media_suffixes,
)
from polyseme.media.image import ImageFeatures

__all__ = [
    "AudioFeatures",
    "Extracted",
    "ImageFeatures",
    "MediaError",
    "MediaFeatures",
    "extract_folder",
    "extractor_class",
    "extractor_classes",
    "extractor_of",
    "media_suffixes",
    "read_extraction",
]
