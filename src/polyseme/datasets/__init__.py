"""Datasets by name with tiny samples, and a toy world with known answers."""

from __future__ import annotations

from polyseme.datasets.base import Dataset, DatasetForm, DatasetParts
from polyseme.datasets.loading import available, choose, load_dataset
from polyseme.datasets.specs import FORMS
from polyseme.datasets.toy import ToyWorld, toy_world

__all__ = [
    "FORMS",
    "Dataset",
    "DatasetForm",
    "DatasetParts",
    "ToyWorld",
    "available",
    "choose",
    "load_dataset",
    "toy_world",
]
