"""Feature extractors: media files, arrays and texts become feature matrices.

In: pictures, sounds or texts, as files or in memory. Out: features (n, n_features) for the tagger.
Extraction learns nothing; a codebook, or topics, are learned by `fit` and saved with the model. A
new kind of media is one file and one line: see `extractors`.
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
from polyseme.media.text import TextFeatures

__all__ = [
    "AudioFeatures",
    "Extracted",
    "ImageFeatures",
    "MediaError",
    "MediaFeatures",
    "TextFeatures",
    "extract_folder",
    "extractor_class",
    "extractor_classes",
    "extractor_of",
    "media_suffixes",
    "read_extraction",
]
