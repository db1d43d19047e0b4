"""Features of sound: a bag of audio words, or the activations of a network.

In: sound files, Million Song Dataset files or samples. Out: a feature matrix (n, n_features).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from polyseme.base.machine import one_thread
from polyseme.base.validation import RandomState, as_generator, check_number, draw_seed
from polyseme.media.base import MediaError, MediaFeatures, Raw, attempt, is_path
from polyseme.media.codebook import Codebook
from polyseme.media.networks import SOUNDS, find_network
from polyseme.storage.array_checks import (
    Anything,
    Fields,
    MappingOf,
    check_parts,
    name_part_in_errors,
    require,
)
from polyseme.storage.model_file import JSON, Arrays, Config, State, part_arrays

if TYPE_CHECKING:
    from polyseme.media.keywords import Place

# The content decides what a file is; libsndfile reads more formats than these names. The last row
# is read by PyAV, of the extra `aac`.
SUFFIXES = frozenset(
    {".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"}
    | {".m4a", ".m4b", ".aac"}
)
# Media types of the files that browsers play, by suffix.
PLAYED_TYPES = {
    ".wav": "audio/wav",
    ".wave": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
    ".mp3": "audio/mpeg",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
    ".m4a": "audio/mp4",
    ".m4b": "audio/mp4",
    ".aac": "audio/aac",
}
SONG_SUFFIXES = frozenset({".h5", ".hdf5"})
# To be raised whenever the same sound would get other numbers.
VERSION = 1
# Samples a second that segments are cut from, and that networks listen to: `preprocessing` names
# them, so that numbers of another rate are refused.
RATE = 22_050
NETWORK_RATE = 16_000


class AudioFeatures(MediaFeatures):
    """Features of sound: segments, their timbre, and how often each word of a codebook occurs.

    A clip is cut into segments at its onsets. Each has 12 timbre coefficients with their first
    and second derivatives; a segment's word is the Gaussian of a codebook under which it is most
    likely, and a clip's features are its words' shares (in the paper: equation 10). A network
    takes the place of all that: a clip's features are what it hears in three seconds, on average.

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
    network : {"musicnn", "musicnn-msd"}, optional
        Listens in place of segments and words: musicnn, trained on 50 tags of MagnaTagATune or of
        the Million Song Dataset (`trained_tags`). Such a tag is not new to it where it is unseen.
    device : str
        Where the network runs, as torch names it: "cpu", "cuda". Another device gives the same
        numbers but for rounding; saved models do not remember it.
    n_jobs : int, optional
        Files decoded at a time; by default one for each processor.
    random_state : int, numpy Generator or None
        Seeds the codebook.

    Attributes
    ----------
    codebook_ : Codebook
        Without a network.
    n_features_out_ : int
        Columns of `transform`: words, or the network's 200 numbers.

    Notes
    -----
    A clip's raw numbers are its segments (n_segments, 36), or what a network hears in each three
    seconds (n_patches, 200).

    Files that end in .h5 or .hdf5 are taken for Million Song Dataset files: their own
    `segments_timbre` stands in the place of our segments. A network has no use for them.
    """

    kind: ClassVar[str] = "audio"
    noun: ClassVar[str] = "sound"
    suffixes: ClassVar[frozenset[str]] = SUFFIXES | SONG_SUFFIXES
    preview_types: ClassVar[Mapping[str, str]] = PLAYED_TYPES
    learns: ClassVar[bool] = True
    raw_axes: ClassVar[int] = 2

    def __init__(
        self,
        n_words: int = 128,
        max_frames: int = 100_000,
        max_seconds: float = 600.0,
        rate: int = RATE,
        network: str | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_words = n_words
        self.max_frames = max_frames
        self.max_seconds = max_seconds
        self.rate = rate
        self.network = network
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def preprocessing(self) -> dict[str, JSON]:
        """Return all that decides the segments as JSON values."""
        owner = type(self).__name__
        check_number("max_seconds", self.max_seconds, owner=owner, low=0, above=True)
        seconds = float(self.max_seconds)
        if self.network is None:
            return {"version": VERSION, "rate": RATE, "max_seconds": seconds}
        return {
            "version": VERSION,
            "network": find_network(self.network, None, SOUNDS).identity(),
            "rate": NETWORK_RATE,
            "max_seconds": seconds,
        }

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Describe some clips; see `MediaFeatures.extract_batch`."""
        describe = self._segment_features
        if self.network is not None:
            describe = self._network_features
        return [attempt(describe, item) for item in items]

    @classmethod
    def keyword_places(cls, file: BinaryIO) -> Iterator[Place]:
        """Yield the places inside a sound; see `MediaFeatures.keyword_places`."""
        from polyseme.media.keywords import places_in_sound

        return places_in_sound(file)

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep torch to one thread, where it is used; see `MediaFeatures.single_threaded`."""
        import_module("polyseme.media.sound")  # raises once, before threads start
        if self.network is None:
            return super().single_threaded()
        self._network()  # loaded before there are threads
        return one_thread()

    def trained_tags(self) -> tuple[str, ...]:
        """Return the tags that the network was trained on; see `MediaFeatures.trained_tags`."""
        if self.network is None:
            return ()
        return tuple(self._network().tags)

    def fit_raw(self, raw: Sequence[Raw]) -> None:
        """Learn the codebook, if there is one; see `MediaFeatures.fit_raw`."""
        if self.network is not None:
            self.n_features_out_ = raw[0].shape[1]
            return
        seed = draw_seed(as_generator(self.random_state))
        self.codebook_ = Codebook(self.n_words, self.max_frames, random_state=seed).fit(raw)
        self.n_features_out_ = len(self.codebook_.means_)

    def transform_raw(self, raw: Sequence[Raw]) -> NDArray[np.floating[Any]]:
        """Count words, or average over time; see `MediaFeatures.transform_raw`."""
        if self.network is None:
            return self.codebook_.transform(raw)
        means = [patches.mean(axis=0) for patches in raw]
        return np.stack(means)

    def get_state(self) -> State:
        """Return the fitted extractor as JSON values and arrays; see `MediaFeatures.get_state`."""
        config, arrays = super().get_state()
        if self.network is not None:
            return config, arrays
        codebook_config, codebook_arrays = self.codebook_.get_state()
        config["codebook"] = codebook_config
        for name, array in codebook_arrays.items():
            arrays[f"codebook.{name}"] = array
        return config, arrays

    @classmethod
    def from_state(cls, config: Config, arrays: Arrays) -> Self:
        """Rebuild a fitted extractor; see `MediaFeatures.from_state`."""
        extractor = super().from_state(config, arrays)
        has_network = extractor.network is not None
        require(("codebook" in config) != has_network, "codebook", "there without a network")
        check_parts(arrays, config, ("codebook",), ())
        if has_network:
            return extractor
        codebook_arrays = part_arrays(arrays, "codebook")
        with name_part_in_errors("codebook"):
            extractor.codebook_ = Codebook.from_state(config["codebook"], codebook_arrays)
        n_words = len(extractor.codebook_.means_)
        require(extractor.n_features_out_ == n_words, "n_features_out", "one for each word")
        return extractor

    @classmethod
    def declared(cls) -> Fields:
        """Return the schema of `get_state`; see `MediaFeatures.declared`."""
        kinds = {**super().declared().kinds, "codebook": MappingOf(Anything())}
        return Fields(kinds, optional=("codebook",))

    def _network(self) -> Any:
        """Return the network, loaded: from samples to numbers of each three seconds."""
        return find_network(self.network, None, SOUNDS, self.device).load()

    def _network_features(self, item: object) -> Raw:
        """Return the network's features of one clip, (n_patches, 200)."""
        if is_path(item):
            suffix = Path(item).suffix.lower()
            if suffix in SONG_SUFFIXES:
                raise MediaError("holds timbre and no sound, which a network has no use for")
        samples = self._samples(item, NETWORK_RATE)
        network = self._network()
        features: Raw = network(samples)
        return features

    def _segment_features(self, item: object) -> Raw:
        """Return timbre and its derivatives of each segment of one clip, (n_segments, 36)."""
        from polyseme.media.timbre import segment_timbre, with_derivatives

        if is_path(item) and Path(item).suffix.lower() in SONG_SUFFIXES:
            from polyseme.media.echonest import read_timbre

            timbre = read_timbre(Path(item))
        else:
            samples = self._samples(item, RATE)
            timbre = segment_timbre(samples)
        return with_derivatives(timbre)

    def _samples(self, item: object, rate: int) -> Raw:
        """Read one clip, a path or an array, as one channel at a rate, (n_samples,)."""
        from polyseme.media.sound import read_sound, sound_from_array

        if is_path(item):
            path = Path(item)
            return read_sound(path, max_seconds=self.max_seconds, wanted_rate=rate)
        return sound_from_array(item, self.rate, rate)
