"""Sound becomes features: a bag of audio words.

In: sound files, Million Song Dataset files or samples. Out: a feature matrix (n, n_words).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import RandomState, as_generator, check_number, draw_seed
from polyseme.features.base import MediaError, MediaFeatures, Raw, attempt, is_path
from polyseme.features.codebook import Codebook
from polyseme.features.timbre import RATE, segment_timbre, with_derivatives
from polyseme.persistence import JSON, Arrays, Config, State, within

# The content decides what a file is; libsndfile reads more formats than these names. The last row
# is read by PyAV, of the extra `aac`.
SUFFIXES = frozenset(
    {".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"}
    | {".m4a", ".m4b", ".aac"}
)
SONG_SUFFIXES = frozenset({".h5", ".hdf5"})
# To be raised whenever the same sound would get other numbers.
VERSION = 1


class AudioFeatures(MediaFeatures):
    """Features of sound: segments, their timbre, and how often each word of a codebook occurs.

    A clip is cut into segments at its onsets. Each has 12 timbre coefficients with their first
    and second derivatives; a segment's word is the Gaussian of a codebook under which it is most
    likely, and a clip's features are its words' shares (in the paper: equation 10).

    Parameters
    ----------
    n_words : int
        Gaussians of the codebook, which `fit` learns.
    max_frames : int
        Segments that the codebook is learned from at most, drawn from all training clips.
    max_seconds : float
        Only so much of the beginning of a file is used.
    rate : int
        Samples a second of arrays; files say theirs.
    n_jobs : int, optional
        Files decoded at a time; by default one for each processor.
    random_state : int, numpy Generator or None
        Seeds the codebook.

    Attributes
    ----------
    codebook_ : Codebook
    n_features_out_ : int
        Columns of `transform`: words.

    Notes
    -----
    Files that end in .h5 or .hdf5 are taken for Million Song Dataset files: their own
    `segments_timbre` stands in the place of our segments.
    """

    kind: ClassVar[str] = "audio"
    suffixes: ClassVar[frozenset[str]] = SUFFIXES | SONG_SUFFIXES

    def __init__(
        self,
        n_words: int = 128,
        max_frames: int = 100_000,
        max_seconds: float = 600.0,
        rate: int = RATE,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_words = n_words
        self.max_frames = max_frames
        self.max_seconds = max_seconds
        self.rate = rate
        self.n_jobs = n_jobs
        self.random_state = random_state

    def preprocessing(self) -> dict[str, JSON]:
        """Give all that decides the segments as JSON values."""
        owner = type(self).__name__
        check_number("max_seconds", self.max_seconds, owner=owner, low=0, above=True)
        return {"version": VERSION, "rate": RATE, "max_seconds": float(self.max_seconds)}

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Describe some clips; see `MediaFeatures.extract_batch`."""
        return [attempt(self._segments, item) for item in items]

    def fit_raw(self, raw: Sequence[Raw]) -> None:
        """Learn the codebook; see `MediaFeatures.fit_raw`."""
        seed = draw_seed(as_generator(self.random_state))
        self.codebook_ = Codebook(self.n_words, self.max_frames, random_state=seed).fit(raw)
        self.n_features_out_ = len(self.codebook_.means_)

    def transform_raw(self, raw: Sequence[Raw]) -> NDArray[np.floating[Any]]:
        """Count words; see `MediaFeatures.transform_raw`."""
        return self.codebook_.transform(raw)

    def get_state(self) -> State:
        """Give the fitted extractor as JSON values and arrays; see `MediaFeatures.get_state`."""
        config, _ = super().get_state()
        config["codebook"], arrays = self.codebook_.get_state()
        return config, {f"codebook.{name}": array for name, array in arrays.items()}

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted extractor; see `MediaFeatures.from_state`."""
        extractor = super().from_state(config, arrays)
        extractor.codebook_ = Codebook.from_state(config["codebook"], within(arrays, "codebook"))
        return extractor

    def _segments(self, item: object) -> Raw:
        """Cut one clip into segments and describe them, (n_segments, 36)."""
        if is_path(item) and Path(item).suffix.lower() in SONG_SUFFIXES:
            from polyseme.features.echonest import read_timbre

            return with_derivatives(read_timbre(Path(item)))
        from polyseme.features.sound import read_sound, sound_from_array

        if is_path(item):
            samples = read_sound(Path(item), max_seconds=self.max_seconds)
        else:
            samples = sound_from_array(item, self.rate)
        return with_derivatives(segment_timbre(samples))
