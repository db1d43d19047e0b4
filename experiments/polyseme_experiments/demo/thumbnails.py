"""Pictures of emoji as data URIs, cut from the embedded sheets.

In: an `EmojiCorpus`. Out: `Thumbnails`, which gives the same bytes for the same picture.
"""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Protocol

from polyseme_experiments.datasets import EmojiCorpus

if TYPE_CHECKING:
    from PIL.Image import Image


class Pictures(Protocol):
    """Whatever gives pictures to the page."""

    def uri(self, emoji: int, drawing: str) -> str:
        """Give the data URI of one drawing of an emoji."""
        ...


class Thumbnails:
    """Small WebP pictures of emoji.

    Parameters
    ----------
    emoji : EmojiCorpus
        Says where the sheets are.
    quality : int
        WebP quality, 0 to 100.
    """

    def __init__(self, emoji: EmojiCorpus, quality: int = 72) -> None:
        self.emoji = emoji
        self.quality = quality
        self._sheets = {drawing: _open(str(path)) for drawing, path in emoji.sheets.items()}
        self._made: dict[tuple[int, str], str] = {}

    def uri(self, emoji: int, drawing: str) -> str:
        """Give the data URI of one drawing of an emoji.

        Parameters
        ----------
        emoji : int
            Position in the corpus.
        drawing : str
            "noto" or "twemoji".

        Returns
        -------
        str
        """
        key = (emoji, drawing)
        if key not in self._made:
            content = io.BytesIO()
            cell = self._sheets[drawing].crop(self.emoji.cell(emoji))
            cell.save(content, "WEBP", quality=self.quality, alpha_quality=80, method=6)
            encoded = base64.b64encode(content.getvalue()).decode("ascii")
            self._made[key] = f"data:image/webp;base64,{encoded}"
        return self._made[key]


def _open(path: str) -> Image:
    """Decode one sheet."""
    import PIL.Image

    return PIL.Image.open(path).convert("RGBA")
