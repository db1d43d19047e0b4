"""Experts: what features say about labels, what labels say about each other, and both together.

In: features, labels and documents as arrays. Out: a probability for every label, seen or unseen.
"""

from __future__ import annotations

from polyseme.experts.model import LabelExperts

__all__ = ["LabelExperts"]
