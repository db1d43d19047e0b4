"""Saved taggers: the folder that a tagger's `save` wrote in, the same tagger out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from polyseme._persistence import ModelFileError, read_model
from polyseme.published.tagger import PublishedTagger
from polyseme.tagger import ZeroShotTagger

Tagger: TypeAlias = ZeroShotTagger | PublishedTagger


def load(path: str | Path) -> Tagger:
    """Load a tagger that its `save` wrote.

    Parameters
    ----------
    path : str or Path
        The folder. A damaged, altered or newer-format model is refused with a sentence that says
        what is wrong; nothing in it is executed.

    Returns
    -------
    ZeroShotTagger or PublishedTagger
        Ranks exactly as the saved one did.
    """
    config, arrays = read_model(path, "tagger")
    loaders: dict[str, Callable[[dict[str, Any], dict[str, NDArray[Any]]], Tagger]] = {
        "space": ZeroShotTagger.from_state,
        "published": PublishedTagger.from_state,
    }
    method = config.get("method")
    if method is None:
        raise ModelFileError(
            f"The model at '{path}' was written by an earlier version of polyseme, whose method is "
            "gone; fit it anew."
        )
    if method not in loaders:
        raise ModelFileError(
            f"The model at '{path}' has the method {method!r}, which this version of polyseme does "
            "not know; upgrade polyseme."
        )
    return loaders[method](config, arrays)
