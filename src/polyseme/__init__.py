"""Multi-label zero-shot tagging in one concept space.

The pipeline, one folder a layer: `documents` (tag sets) -> `space` (tag sets and items become
codes, every label is read from a code) -> `scoring` (logits; known documents near a code vote) ->
`feedback` (what answers change) -> `fitting` (what surrounds a fit) -> `tagger`, which puts them
together. `media` makes features of files, `published` is the paper's own method, `batch`, `studio`
and `cli` are for use.

Names are imported when first used, so that `import polyseme` costs next to nothing.
"""

from __future__ import annotations

# As in `typing`, which is not imported: the command must be able to catch Ctrl-C before anything
# else is loaded.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from polyseme.documents.corpus import LabelCorpus
    from polyseme.documents.word_vectors import WordVectors
    from polyseme.io import read_features
    from polyseme.media import AudioFeatures, ImageFeatures, TextFeatures, extract_folder
    from polyseme.metrics import evaluate
    from polyseme.published.tagger import PublishedTagger
    from polyseme.space.concept_space import ConceptSpace
    from polyseme.space.training import SpacePlan
    from polyseme.tagger import ZeroShotTagger, load

    __version__: str

__all__ = [
    "AudioFeatures",
    "ConceptSpace",
    "ImageFeatures",
    "TextFeatures",
    "LabelCorpus",
    "PublishedTagger",
    "SpacePlan",
    "WordVectors",
    "ZeroShotTagger",
    "evaluate",
    "extract_folder",
    "load",
    "read_features",
]

# The module, below `polyseme`, that defines each public name.
_MODULE_OF = {
    "AudioFeatures": "media",
    "ConceptSpace": "space.concept_space",
    "ImageFeatures": "media",
    "TextFeatures": "media",
    "LabelCorpus": "documents.corpus",
    "PublishedTagger": "published.tagger",
    "SpacePlan": "space.training",
    "WordVectors": "documents.word_vectors",
    "ZeroShotTagger": "tagger",
    "evaluate": "metrics",
    "extract_folder": "media",
    "load": "tagger",
    "read_features": "io",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "__version__":
        return _version()
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'polyseme' has no attribute '{name}'")
    from importlib import import_module

    module = import_module(f"polyseme.{_MODULE_OF[name]}")
    return getattr(module, name)


def _version() -> str:
    """Return the version that is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("polyseme")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def __dir__() -> list[str]:
    """Return the public names, also those that are not imported yet; `dir` asks for them."""
    return sorted([*__all__, "__version__"])
