"""Sound becomes features: a bag of audio words.

In: sound files, Million Song Dataset files or samples. Out: a feature matrix (n, n_words).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import RandomState, as_generator, check_number, draw_seed
from polyseme.features import echonest
from polyseme.features.base import MediaFeatures, Raw, Recipe, State, as_path, attempt
from polyseme.features.codebook import Codebook
from polyseme.features.media import MediaError
from polyseme.features.sound import RATE, SUFFIXES, read_sound, sound_from_array
from polyseme.features.timbre import segment_timbre, with_derivatives

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
    covariance : {"diag", "full"}
        Shape of the Gaussians.
    max_frames : int
        Segments that the codebook is learned from at most, drawn from all training clips.
    max_seconds : float
        Only so much of the beginning of a file is listened to.
    rate : int
        Samples a second of arrays; files say theirs.
    n_jobs : int, optional
        Files listened to at a time; by default one for each processor.
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
    suffixes: ClassVar[frozenset[str]] = SUFFIXES | echonest.SUFFIXES

    def __init__(
        self,
        n_words: int = 128,
        covariance: str = "diag",
        max_frames: int = 100_000,
        max_seconds: float = 600.0,
        rate: int = RATE,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_words = n_words
        self.covariance = covariance
        self.max_frames = max_frames
        self.max_seconds = max_seconds
        self.rate = rate
        self.n_jobs = n_jobs
        self.random_state = random_state

    def recipe(self) -> Recipe:
        """Give all that decides the segments as JSON values."""
        owner = type(self).__name__
        check_number("max_seconds", self.max_seconds, owner=owner, low=0, above=True)
        return {"version": VERSION, "rate": RATE, "max_seconds": float(self.max_seconds)}

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Listen to some clips; see `MediaFeatures.extract_batch`."""
        return [attempt(partial(self._segments, item)) for item in items]

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep the linear algebra to one thread; see `MediaFeatures.single_threaded`."""
        from threadpoolctl import threadpool_limits

        self.recipe()
        limited: AbstractContextManager[object] = threadpool_limits(limits=1)
        return limited

    def learn(self, raw: Sequence[Raw]) -> None:
        """Learn the codebook; see `MediaFeatures.learn`."""
        codebook = Codebook(
            n_words=self.n_words,
            covariance=self.covariance,
            max_frames=self.max_frames,
            random_state=draw_seed(as_generator(self.random_state)),
        )
        self.codebook_ = codebook.fit(raw)
        self.n_features_out_ = self.codebook_.transform(raw[:1]).shape[1]

    def apply(self, raw: Sequence[Raw]) -> NDArray[np.floating[Any]]:
        """Count words; see `MediaFeatures.apply`."""
        return self.codebook_.transform(raw)

    def get_state(self) -> State:
        """Give the fitted extractor as JSON values and arrays; see `MediaFeatures.get_state`."""
        config = self._state_config()
        config["codebook"], arrays = self.codebook_.get_state()
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted feature extractor; see `MediaFeatures.from_state`."""
        made = cls._from_config(config, analysis="sound analysis", items="clips")
        made.codebook_ = Codebook.from_state(config["codebook"], arrays)
        return made

    def _segments(self, item: object) -> Raw:
        """Cut one clip into segments and describe them, (n_segments, 36)."""
        path = as_path(item)
        if path is None:
            samples = sound_from_array(item, self.rate)
        elif path.suffix.lower() in echonest.SUFFIXES:
            return with_derivatives(echonest.read_timbre(path))
        else:
            samples = read_sound(path, max_seconds=self.max_seconds)
        return with_derivatives(segment_timbre(samples))
