"""Datasets by name with tiny samples, and a toy world with known answers."""

from __future__ import annotations

from polyseme.datasets.base import Dataset, DatasetContent, DatasetSpec
from polyseme.datasets.loading import choose, known_specs, load_dataset
from polyseme.datasets.toy import ToyWorld, toy_world

__all__ = [
    "Dataset",
    "DatasetContent",
    "DatasetSpec",
    "ToyWorld",
    "choose",
    "known_specs",
    "load_dataset",
    "toy_world",
]
