"""Who does the heavy part of an extraction, when it is not the process that writes.

In: media files. Out: content hashes and raw numbers, from workers elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from polyseme.features.base import Raw
from polyseme.features.finding import MediaFile
from polyseme.features.media import MediaError
from polyseme.features.store import FeatureStore


class Executor(Protocol):
    """What `extract_folder` lets others do."""

    def prepare(self, media: Sequence[MediaFile], store: FeatureStore) -> None:
        """Note the content hashes of files in the store; those left out are read by the asker."""

    def extract(self, items: Iterable[Path]) -> Iterator[Raw | MediaError]:
        """Give the raw numbers of files, in their order; see `MediaFeatures.extract`."""
