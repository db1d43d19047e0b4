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
    from polyseme.descriptors import ContextDescriptor, LabelDescriptor
    from polyseme.embedding import ConceptEmbedding
    from polyseme.evidence import Evidence
    from polyseme.features import AudioFeatures, ImageFeatures, extract_folder, read_extraction
    from polyseme.files import read_features
    from polyseme.index import ConceptIndex
    from polyseme.mapping import InstanceMapper
    from polyseme.nn.plan import TrainingPlan
    from polyseme.published import PublishedTagger
    from polyseme.scoring import evaluate
    from polyseme.space import ConceptSpace
    from polyseme.storage import load
    from polyseme.tagger import ZeroShotTagger
    from polyseme.training import SpacePlan
    from polyseme.words import WordVectors

try:
    __version__ = version("polyseme")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_HOME = {
    "LabelCorpus": "polyseme.corpus",
    "LabelDescriptor": "polyseme.descriptors",
    "ContextDescriptor": "polyseme.descriptors",
    "TrainingPlan": "polyseme.nn.plan",
    "ConceptEmbedding": "polyseme.embedding",
    "Concepts": "polyseme.concepts",
    "ImageFeatures": "polyseme.features",
    "AudioFeatures": "polyseme.features",
    "extract_folder": "polyseme.features",
    "read_extraction": "polyseme.features",
    "InstanceMapper": "polyseme.mapping",
    "ConceptSpace": "polyseme.space",
    "SpacePlan": "polyseme.training",
    "Evidence": "polyseme.evidence",
    "ConceptIndex": "polyseme.index",
    "PublishedTagger": "polyseme.published",
    "ZeroShotTagger": "polyseme.tagger",
    "WordVectors": "polyseme.words",
    "load": "polyseme.storage",
    "evaluate": "polyseme.scoring",
    "read_features": "polyseme.files",
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
