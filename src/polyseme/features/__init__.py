"""Feature extractors: media files and arrays become feature matrices.

In: pictures or sound, as files or arrays. Out: features (n, n_features) for the tagger. Extraction
learns nothing; what is learned (a codebook) is learned by `fit` and saved with the model. A new
kind of media is one file and one line in EXTRACTORS.
"""

from __future__ import annotations

from polyseme._validation import unknown_name
from polyseme.features.audio import AudioFeatures
from polyseme.features.base import Extracted, MediaError, MediaFeatures
from polyseme.features.extraction import extract_folder, match_documents, read_extraction
from polyseme.features.image import ImageFeatures
from polyseme.persistence import Arrays, Config

__all__ = [
    "AudioFeatures",
    "Extracted",
    "ImageFeatures",
    "MediaError",
    "MediaFeatures",
    "extract_folder",
    "extractor_class",
    "extractor_from_state",
    "match_documents",
    "read_extraction",
]

EXTRACTORS: dict[str, type[MediaFeatures]] = {"image": ImageFeatures, "audio": AudioFeatures}


def extractor_class(kind: str) -> type[MediaFeatures]:
    """Give a feature extractor by what it takes: "image" or "audio"."""
    if kind not in EXTRACTORS:
        raise unknown_name("kind of media", kind, EXTRACTORS)
    return EXTRACTORS[kind]


def extractor_from_state(kind: str, config: Config, arrays: Arrays) -> MediaFeatures:
    """Rebuild a fitted feature extractor that `MediaFeatures.get_state` gave."""
    return extractor_class(kind).from_state(config, arrays)
