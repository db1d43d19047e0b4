"""Features of pictures: the activations of a network.

In: picture files or arrays. Out: a feature matrix (n, n_features). `networks.py` says which
networks there are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme.base.machine import one_thread
from polyseme.base.validation import InputError, PolysemeWarning, check_number, check_option
from polyseme.media.base import MediaError, MediaFeatures, Raw, attempt, is_path
from polyseme.media.networks import PICTURES, Network, NetworkSpec, find_network
from polyseme.storage.model_file import JSON

if TYPE_CHECKING:
    from polyseme.media.keywords import Place

FRAMINGS = ("stretch", "crop", "pad")  # how pictures become squares; see `ImageFeatures`
# Pillow's name of each format that is tried, and how its files are called: a new one is a line
# here. Decoders that run other programs are not among them.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif"),
    "PNG": (".png", ".apng"),
    "WEBP": (".webp",),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "DIB": (".dib",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm"),
    "AVIF": (".avif",),
    "HEIF": (".heic", ".heif", ".hif"),  # by pillow-heif, of the extra `heic`
}
SUFFIXES = frozenset({".svg", ".svgz"}.union(*FORMATS.values()))
# CLIP was trained on captions, not on single words.
_PROMPT = "a photo of {}"
# To be raised whenever the same picture would get other numbers.
VERSION = 2


class ImageFeatures(MediaFeatures):
    """Features of pictures by a network; nothing is learned from the pictures.

    Parameters
    ----------
    depth : {"pre-logit", "pooled", "convolution", "logits"}
        Which layer's outputs are the features: what enters the last layer (1280 numbers; in the
        paper: F23's place), the last block's map averaged over all places (320; F21's), that map
        itself (320 for each of (size / 32)^2 places; F19's), or what leaves the last layer (1000).
        Numbers are EfficientNet-Lite0's; networks of libraries have `pre-logit`, and `logits`
        where they are classifiers.
    size : int, optional
        Pixels a side that pictures are brought to, for EfficientNet-Lite0 a multiple of 32; by
        default 260 for EfficientNet-Lite2, 224 for all others.
    framing : {"stretch", "crop", "pad"}
        How pictures become squares: stretched, cut at the centre, or padded with their ground.
    max_megapixels : float
        Larger pictures are refused. A JPEG counts at the size it is decoded to, an eighth of its
        own each way at best, unless it is a progressive one.
    network : str
        "efficientnet-lite0", "efficientnet-lite2", or one of a library, "timm:NAME",
        "torchvision:NAME", "open_clip:NAME" or "sentence-transformers:NAME".
    weights : str or Path, optional
        A .safetensors file with the weights of a library's network; for sentence-transformers the
        folder of the model. Saved models remember where they lie, not what they hold.
    device : str
        Where the network runs, as torch names it: "cpu", "cuda". Another device gives the same
        numbers but for rounding; saved models do not remember it.
    n_jobs : int, optional
        Pictures looked at at a time; by default one for each processor.

    Attributes
    ----------
    n_features_out_ : int
        Columns of `transform`.

    Examples
    --------
    >>> import numpy as np
    >>> gray = np.zeros((2, 48, 64), dtype=np.uint8)
    >>> ImageFeatures(size=64).fit_transform(gray).shape
    (2, 1280)
    """

    kind: ClassVar[str] = "image"
    noun: ClassVar[str] = "picture"
    suffixes: ClassVar[frozenset[str]] = SUFFIXES
    preview_types: ClassVar[Mapping[str, str]] = dict.fromkeys(SUFFIXES, "image/jpeg")
    # On a processor, few pictures at a time fit into its cache.
    batch_size: ClassVar[int] = 8

    def __init__(
        self,
        depth: str = "pre-logit",
        size: int | None = None,
        framing: str = "stretch",
        max_megapixels: float = 100.0,
        network: str = "efficientnet-lite0",
        weights: str | Path | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
    ) -> None:
        self.depth = depth
        self.size = size
        self.framing = framing
        self.max_megapixels = max_megapixels
        self.network = network
        self.weights = weights
        self.device = device
        self.n_jobs = n_jobs

    def preprocessing(self) -> dict[str, JSON]:
        """Return all that decides the network's numbers as JSON values."""
        owner = type(self).__name__
        network = self._network()
        spec = network.spec
        size = self._size()
        check_option("depth", self.depth, spec.depths, owner=owner)
        check_option("framing", self.framing, FRAMINGS, owner=owner)
        check_number("max_megapixels", self.max_megapixels, owner=owner, low=0, above=True)
        check_number("size", size, owner=owner, low=32, high=1024, whole=True)
        if size % spec.stride:
            raise InputError(
                f"`size` of `{owner}` must be a multiple of {spec.stride}; got {self.size}."
            )
        return {
            "version": VERSION,
            "network": network.identity(),
            "depth": self.depth,
            "size": int(size),
            "framing": self.framing,
        }

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Look at some pictures; see `MediaFeatures.extract_batch`."""
        reads = [attempt(self._picture, item) for item in items]
        pictures = [picture for picture in reads if not isinstance(picture, MediaError)]
        if not pictures:
            return [error for error in reads if isinstance(error, MediaError)]
        network = self._network().load()
        features = network(np.stack(pictures), self.depth)
        remaining_features = iter(features)
        outcomes: list[Raw | MediaError] = []
        for read in reads:
            if isinstance(read, MediaError):
                outcomes.append(read)
            else:
                outcomes.append(next(remaining_features))
        return outcomes

    def encode_names(self, names: Sequence[str]) -> NDArray[np.floating[Any]] | None:
        """Return the vectors of names, by a network such as CLIP; see `MediaFeatures.encode_names`.

        A warning says where its weights are not at hand.
        """
        network = self._network_spec()
        if not network.reads_texts:
            return None
        prompts = [_PROMPT.format(name) for name in names]
        try:
            vectors: NDArray[np.floating[Any]] | None = self._network().load().encode_texts(prompts)
        except InputError as error:
            warnings.warn(
                f"Names of labels are not compared with pictures: {error}",
                PolysemeWarning,
                stacklevel=2,
            )
            return None
        return vectors

    @classmethod
    def preview(cls, file: Path, side: int) -> bytes:
        """Return a picture as JPEG, in its own proportions; see `MediaFeatures.preview`."""
        from polyseme.media.pictures import read_thumbnail

        return read_thumbnail(file, size=side)

    @classmethod
    def keyword_places(cls, file: BinaryIO) -> Iterator[Place]:
        """Yield the places inside a picture; see `MediaFeatures.keyword_places`."""
        from polyseme.media.keywords import places_in_picture

        return places_in_picture(file)

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep torch to one thread, and Pillow quiet; see `MediaFeatures.single_threaded`."""
        import_module("torch")  # first: libraries that are loaded later would not be limited
        with one_thread(training=False):
            self._network().load()  # before there are threads
        # Remarks on strangers' files; a context would change what other threads hear as well.
        warnings.filterwarnings("ignore", module=r"PIL\.\w+Plugin$")
        return one_thread(training=False)

    def _network(self) -> Network:
        """Return the network, not loaded yet; loaded, it is called with pictures and a depth."""
        return find_network(self.network, self.weights, PICTURES, self.device)

    def _network_spec(self) -> NetworkSpec:
        """Return what is known of the network without its weights."""
        name, _, _ = self.network.partition(":")
        return PICTURES[name]

    def _size(self) -> int:
        """Return the pixels a side: those that were asked for, or the network's own."""
        if self.size is None:
            return self._network().spec.size
        return self.size

    def _picture(self, item: object) -> NDArray[np.uint8]:
        """Return one item, a path or an array, at the network's size, (size, size, 3)."""
        from polyseme.media.pictures import picture_from_array, read_picture

        size = self._size()
        framing = self.framing
        if not is_path(item):
            return picture_from_array(item, size=size, framing=framing)
        path = Path(item)
        return read_picture(path, size=size, framing=framing, max_megapixels=self.max_megapixels)
