"""Pictures become features: what a network sees in them.

In: picture files or arrays. Out: a feature matrix (n, n_features). Another network is another file
like `efficientnet.py`, loaded by `_network`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from polyseme._threads import one_thread
from polyseme._validation import InputError, check_number, check_option
from polyseme.features.base import MediaError, MediaFeatures, Raw, attempt, is_path
from polyseme.persistence import JSON

if TYPE_CHECKING:
    from polyseme.features.efficientnet import EfficientNetLite

FRAMINGS = ("stretch", "crop", "pad")
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
# To be raised whenever the same picture would get other numbers.
VERSION = 1
# In the paper: F19, F21 and F23 of another network; the last one is beyond it.
DEPTHS = ("convolution", "pooled", "pre-logit", "logits")
WEIGHTS = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
STRIDE = 32  # a map has one place for so many pixels each way


class ImageFeatures(MediaFeatures):
    """Features of pictures by EfficientNet-Lite0; nothing is learned from the pictures.

    Parameters
    ----------
    depth : {"pre-logit", "pooled", "convolution", "logits"}
        Which layer's outputs are the features: what enters the last layer (1280 numbers; in the
        paper: F23's place), the last block's map averaged over all places (320; F21's), that map
        itself (320 for each of (size / 32)^2 places; F19's), or what leaves the last layer (1000).
    size : int
        Pixels a side that pictures are brought to, a multiple of 32; 224 is the network's own.
    framing : {"stretch", "crop", "pad"}
        How pictures become squares: stretched, cut at the centre, or padded with white.
    max_megapixels : float
        Larger pictures are refused. A JPEG counts at the size it is decoded to, an eighth of its
        own each way at best, unless it is a progressive one.
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
    suffixes: ClassVar[frozenset[str]] = SUFFIXES
    # On a processor, few pictures at a time fit into its cache.
    batch_size: ClassVar[int] = 8

    def __init__(
        self,
        depth: str = "pre-logit",
        size: int = 224,
        framing: str = "stretch",
        max_megapixels: float = 100.0,
        n_jobs: int | None = None,
    ) -> None:
        self.depth = depth
        self.size = size
        self.framing = framing
        self.max_megapixels = max_megapixels
        self.n_jobs = n_jobs

    def preprocessing(self) -> dict[str, JSON]:
        """Give all that decides the network's numbers as JSON values."""
        owner = type(self).__name__
        check_option("depth", self.depth, DEPTHS, owner=owner)
        check_option("framing", self.framing, FRAMINGS, owner=owner)
        check_number("max_megapixels", self.max_megapixels, owner=owner, low=0, above=True)
        check_number("size", self.size, owner=owner, low=STRIDE, high=1024, whole=True)
        if self.size % STRIDE:
            raise InputError(
                f"`size` of `{owner}` must be a multiple of {STRIDE}; got {self.size}."
            )
        return {
            "version": VERSION,
            "network": f"efficientnet-lite0 {WEIGHTS[:12]}",
            "depth": self.depth,
            "size": int(self.size),
            "framing": self.framing,
        }

    def extract_batch(self, items: Sequence[object]) -> list[Raw | MediaError]:
        """Look at some pictures; see `MediaFeatures.extract_batch`."""
        outcomes = [attempt(self._picture, item) for item in items]
        pictures = [picture for picture in outcomes if not isinstance(picture, MediaError)]
        rows = iter(_network()(np.stack(pictures), self.depth) if pictures else ())
        return [one if isinstance(one, MediaError) else next(rows) for one in outcomes]

    def single_threaded(self) -> AbstractContextManager[object]:
        """Keep torch to one thread, and Pillow quiet; see `MediaFeatures.single_threaded`."""
        _network()  # loaded before there are threads
        # Remarks on strangers' files; a context would change what other threads hear as well.
        warnings.filterwarnings("ignore", module=r"PIL\.\w+Plugin$")
        return one_thread(training=False)

    def _picture(self, item: object) -> NDArray[np.uint8]:
        """Bring one item to the network's size, (size, size, 3)."""
        from polyseme.features.pictures import picture_from_array, read_picture

        size, framing, limit = self.size, self.framing, self.max_megapixels
        if is_path(item):
            return read_picture(Path(item), size=size, framing=framing, max_megapixels=limit)
        return picture_from_array(item, size=size, framing=framing)


def _network() -> EfficientNetLite:
    """Load the network; its module loads torch, which takes a second."""
    from polyseme.features.efficientnet import load_network

    return load_network(WEIGHTS)
