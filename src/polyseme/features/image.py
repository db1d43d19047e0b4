"""Pictures become features: what a network sees, reduced or not.

In: picture files or arrays. Out: a feature matrix (n, n_features).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from polyseme._threads import one_thread
from polyseme._validation import (
    InputError,
    RandomState,
    as_generator,
    check_number,
    check_option,
    draw_seed,
)
from polyseme.features.base import MediaFeatures, Raw, Recipe, State, as_path, attempt
from polyseme.features.media import MediaError
from polyseme.features.network import DEPTHS, STRIDE, WEIGHTS, load_network, n_features
from polyseme.features.pictures import FRAMINGS, SUFFIXES, picture_from_array, read_picture
from polyseme.features.reductions import (
    REDUCTIONS,
    Reduction,
    make_reduction,
    reduction_from_state,
)

# To be raised whenever the same picture would get other numbers.
VERSION = 1


class ImageFeatures(MediaFeatures):
    """Features of pictures by EfficientNet-Lite0, reduced as in the paper's appendix or not.

    Parameters
    ----------
    depth : {"pre-logit", "pooled", "convolution", "logits"}
        Where the network is listened to: what enters its last layer (1280 numbers; in the paper:
        F23's place), the last block's map averaged over all places (320; F21's), that map itself
        (320 for each of (size / 32)^2 places; F19's), or what leaves the last layer (1000).
    size : int
        Pixels a side that pictures are brought to, a multiple of 32; 224 is the network's own.
    framing : {"stretch", "crop", "pad"}
        How pictures become squares: stretched, cut at the centre, or padded with white.
    reduction : {"pca", "rbm", "uth"}, optional
        Principal components, a stack of restricted Boltzmann machines, or that stack fine-tuned
        by triplets; learned by `fit`. None keeps the network's numbers.
    n_components : int
        For a reduction: how many numbers are left.
    max_megapixels : float
        Larger pictures are refused. A JPEG counts at the size it is decoded to, an eighth of its
        own each way at best, unless it is a progressive one.
    n_jobs : int, optional
        Pictures looked at at a time; by default one for each processor.
    random_state : int, numpy Generator or None
        Seeds the reduction.

    Attributes
    ----------
    n_features_out_ : int
        Columns of `transform`.
    reduction_ : Reduction or None
        The learned reduction.

    Examples
    --------
    >>> import numpy as np
    >>> gray = np.zeros((2, 48, 64), dtype=np.uint8)
    >>> ImageFeatures(size=64).fit_transform(gray).shape
    (2, 1280)
    """

    kind: ClassVar[str] = "image"
    suffixes: ClassVar[frozenset[str]] = SUFFIXES
    # On a processor, few pictures at a time fit into its cache.
    batch_size: ClassVar[int] = 8

    def __init__(
        self,
        depth: str = "pre-logit",
        size: int = 224,
        framing: str = "stretch",
        reduction: str | None = None,
        n_components: int = 512,
        max_megapixels: float = 100.0,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.depth = depth
        self.size = size
        self.framing = framing
        self.reduction = reduction
        self.n_components = n_components
        self.max_megapixels = max_megapixels
        self.n_jobs = n_jobs
        self.random_state = random_state

    def recipe(self) -> Recipe:
        """Give all that decides the network's numbers as JSON values."""
        self._check_parameters()
        return {
            "version": VERSION,
            "network": f"efficientnet-lite0 {WEIGHTS[:12]}",
            "depth": self.depth,
            "size": int(self.size),
            "framing": self.framing,
        }

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Look at some pictures; see `MediaFeatures.extract_batch`."""
        network = load_network()
        found = [attempt(partial(self._picture, item)) for item in items]
        pictures = [one for one in found if not isinstance(one, MediaError)]
        rows = iter(network(np.stack(pictures), self.depth) if pictures else ())
        return [one if isinstance(one, MediaError) else next(rows) for one in found]

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep torch to one thread; see `MediaFeatures.single_threaded`."""
        self._check_parameters()
        load_network()
        return one_thread()

    def learn(self, raw: Sequence[Raw]) -> None:
        """Learn the reduction, if there is one; see `MediaFeatures.learn`."""
        self._check_parameters()
        self.reduction_: Reduction | None = None
        self.n_features_out_ = n_features(self.depth, self.size)
        if self.reduction is not None:
            seed = draw_seed(as_generator(self.random_state))
            self.reduction_ = make_reduction(self.reduction, self.n_components, seed)
            self.n_features_out_ = self.reduction_.fit(np.asarray(raw)).transform(raw[:1]).shape[1]

    def apply(self, raw: Sequence[Raw]) -> NDArray[np.floating[Any]]:
        """Reduce the network's numbers, if there is a reduction; see `MediaFeatures.apply`."""
        table = np.asarray(raw, dtype=np.float32)
        return table if self.reduction_ is None else self.reduction_.transform(table)

    def get_state(self) -> State:
        """Give the fitted extractor as JSON values and arrays; see `MediaFeatures.get_state`."""
        config = self._state_config() | {"reduction": None}
        if self.reduction_ is None:
            return config, {}
        config["reduction"], arrays = self.reduction_.get_state()
        return config, arrays

    @classmethod
    def from_state(cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Rebuild a fitted feature extractor; see `MediaFeatures.from_state`."""
        made = cls._from_config(config, analysis="picture network", items="pictures")
        saved = config["reduction"]
        made.reduction_ = None if saved is None else reduction_from_state(saved, arrays)
        return made

    def _picture(self, item: object) -> NDArray[np.uint8]:
        """Bring one item to the network's size, (size, size, 3)."""
        path = as_path(item)
        if path is None:
            return picture_from_array(item, size=self.size, framing=self.framing)
        return read_picture(
            path, size=self.size, framing=self.framing, max_megapixels=self.max_megapixels
        )

    def _check_parameters(self) -> None:
        """Raise on a parameter out of its range."""
        owner = type(self).__name__
        check_option("depth", self.depth, DEPTHS, owner=owner)
        check_option("framing", self.framing, FRAMINGS, owner=owner)
        if self.reduction is not None:
            check_option("reduction", self.reduction, REDUCTIONS, owner=owner)
        check_number("n_components", self.n_components, owner=owner, low=1, whole=True)
        check_number("max_megapixels", self.max_megapixels, owner=owner, low=0, above=True)
        check_number("size", self.size, owner=owner, low=STRIDE, high=1024, whole=True)
        if self.size % STRIDE:
            raise InputError(
                f"`size` of `{owner}` must be a multiple of {STRIDE}; got {self.size}."
            )
