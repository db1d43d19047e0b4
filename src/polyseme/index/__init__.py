"""Search over concepts: arrays and integer ids only, no label strings."""

from polyseme.index.exact import ConceptIndex

__all__ = ["ConceptIndex"]
