"""Multi-label zero-shot tagging in one concept space.

The pipeline, one file a step: `corpus` (tag sets) -> `space`, learned by `training` (tag sets and
items become codes, every label is read from a code) -> `calibration` (probabilities) -> `store`
(known tag sets near a code vote) -> `evidence` (the parts of a score) -> `scoring` (how good the
rankings are). `tagger` puts them together; `published` is the paper's own method.

Names are imported when first used, so that `import polyseme` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyseme.concepts import Concepts
    from polyseme.corpus import LabelCorpus
    from polyseme.evidence import Evidence
    from polyseme.features import AudioFeatures, ImageFeatures, extract_folder, read_extraction
    from polyseme.index import ConceptIndex
    from polyseme.io import read_features
    from polyseme.metrics import evaluate
    from polyseme.published.descriptors import ContextDescriptor, LabelDescriptor
    from polyseme.published.embedding import ConceptEmbedding
    from polyseme.published.mapping import InstanceMapper
    from polyseme.published.tagger import PublishedTagger
    from polyseme.published.training import TrainingPlan
    from polyseme.space import ConceptSpace
    from polyseme.tagger import ZeroShotTagger, load
    from polyseme.training import SpacePlan
    from polyseme.word_vectors import WordVectors

try:
    __version__ = version("polyseme")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_HOME = {
    "LabelCorpus": "polyseme.corpus",
    "LabelDescriptor": "polyseme.published.descriptors",
    "ContextDescriptor": "polyseme.published.descriptors",
    "TrainingPlan": "polyseme.published.training",
    "ConceptEmbedding": "polyseme.published.embedding",
    "Concepts": "polyseme.concepts",
    "ImageFeatures": "polyseme.features",
    "AudioFeatures": "polyseme.features",
    "extract_folder": "polyseme.features",
    "read_extraction": "polyseme.features",
    "InstanceMapper": "polyseme.published.mapping",
    "ConceptSpace": "polyseme.space",
    "SpacePlan": "polyseme.training",
    "Evidence": "polyseme.evidence",
    "ConceptIndex": "polyseme.index",
    "PublishedTagger": "polyseme.published.tagger",
    "ZeroShotTagger": "polyseme.tagger",
    "WordVectors": "polyseme.word_vectors",
    "load": "polyseme.tagger",
    "evaluate": "polyseme.metrics",
    "read_features": "polyseme.io",
}

__all__ = [
    "AudioFeatures",
    "ConceptEmbedding",
    "ConceptIndex",
    "Concepts",
    "ContextDescriptor",
    "ImageFeatures",
    "InstanceMapper",
    "LabelCorpus",
    "LabelDescriptor",
    "SpacePlan",
    "Evidence",
    "ConceptSpace",
    "PublishedTagger",
    "TrainingPlan",
    "WordVectors",
    "ZeroShotTagger",
    "evaluate",
    "extract_folder",
    "load",
    "read_extraction",
    "read_features",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'polyseme' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*__all__, "__version__"])
