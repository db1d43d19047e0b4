"""Models of sentence-transformers, for texts and for pictures, from a folder on disk.

In: the folder that `SentenceTransformer.save` wrote. Out: a network from texts, or from pictures
and texts where it is one such as CLIP, to vectors that can be compared. Nothing is downloaded, and
nothing in the folder is executed.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyseme.base.text import error_text
from polyseme.base.validation import InputError
from polyseme.media.base import needs
from polyseme.media.networks import Network

# Files that hold nothing but tensors, settings and words: none of them is executed.
_SAFE_SUFFIXES = {".safetensors", ".json", ".txt", ".md", ".model", ""}
# The only package whose classes a model's `modules.json` may name.
_OWN_CLASSES_PREFIX = "sentence_transformers."


class SentenceNetwork:
    """A `SentenceTransformer`; it brings pictures to its own size and colours."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self.model = model

    def __call__(self, pictures: NDArray[np.uint8], depth: str) -> NDArray[np.float32]:
        """Return the vectors (n, n_features) of pictures (n, size, size, 3).

        `depth` can only be "pre-logit": all networks are called alike.
        """
        from PIL import Image

        images = [Image.fromarray(picture) for picture in pictures]
        return self._encode(images, "look at pictures")

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (n, n_features); long ones are cut by the model."""
        return self._encode(list(texts), "read texts")

    def _encode(self, items: list[Any], purpose: str) -> NDArray[np.float32]:
        """Return the model's vectors of pictures or texts, (n, n_features)."""
        try:
            vectors = self.model.encode(items, show_progress_bar=False, convert_to_numpy=True)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(
                f"The model of '{self.name}' cannot {purpose} ({error}); name one that was "
                f"trained to {purpose}."
            ) from error
        return np.ascontiguousarray(vectors, dtype=np.float32)


def load(network: Network) -> SentenceNetwork:
    """Load a model from its folder."""
    folder = Path(network.weights or "")
    _check_folder(folder)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise needs("sentence-transformers", f"The network '{network.name}'") from None
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bars
            model = SentenceTransformer(str(folder), device=network.device, local_files_only=True)
    except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"'{folder}' holds no whole model: {error_text(error)}.") from error
    return SentenceNetwork(network.name, model.eval())


def _check_folder(folder: Path) -> None:
    """Raise for a folder with files that could run code, or with modules from elsewhere."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix.lower() not in _SAFE_SUFFIXES:
            raise InputError(
                f"'{path}' could run code; keep the weights as .safetensors, and no such files "
                "beside them."
            )
    try:
        modules = json.loads((folder / "modules.json").read_bytes())
        class_names = [str(module["type"]) for module in modules]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"'{folder}' is no folder that `SentenceTransformer.save` wrote: modules.json is "
            "missing or damaged."
        ) from error
    for class_name in class_names:
        if not class_name.startswith(_OWN_CLASSES_PREFIX):
            raise InputError(f"The model in '{folder}' has a part from elsewhere: {class_name}.")
