"""The demo to play with: the studio on the embedded emoji, with a quarter of the tags hidden.

In: a folder and a seed. Out: a service, with the emoji that the model has never met as its items.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import numpy as np

from polyseme.media import Extracted, ImageFeatures
from polyseme.storage.model_file import MODEL_FILE
from polyseme.studio import needs_extra
from polyseme.tagger import ZeroShotTagger
from polyseme_experiments.datasets import load_emoji
from polyseme_experiments.demo.split import EmojiSplit, SplitSettings, draw_split

SIZE = 192  # pixels that the stored features were made of


def run_studio(
    folder: Path, *, seed: int = 0, port: int = 8080, log: Callable[[str], None]
) -> None:
    """Learn the demo's tagger, unless the folder has it, and serve it until the process is ended.

    Test emoji are written to the folder as pictures, which are the items to review.
    """
    needs_extra()
    from polyseme.studio.process import run

    app = studio_app(folder, seed=seed, log=log)
    address = f"http://127.0.0.1:{port}/"
    log(f"the studio: {address} (Ctrl-C ends it)")
    Thread(target=_show, args=(address,), daemon=True).start()
    run(app, "127.0.0.1", port)


def studio_app(folder: Path, *, seed: int, log: Callable[[str], None], **parameters: Any) -> Any:
    """Make the application; the tagger's parameters may be others than the demo's."""
    from polyseme.studio.app import create_app
    from polyseme.studio.collection import Collection
    from polyseme.studio.host import ModelHost

    emoji = load_emoji()
    split_seed = np.random.SeedSequence(seed).spawn(3)[0]
    split = draw_split(emoji, SplitSettings(), np.random.default_rng(split_seed))
    model = folder / "emoji"
    pictures = folder / "pictures"
    if not (model / MODEL_FILE).exists():
        log("learning one space from tag lists and pictures; it takes half a minute")
        _fitted(split, seed, parameters).save(model)
    rows = split.rows(split.test)
    picture_names = emoji.picture_names()
    names = [picture_names[row] for row in rows]
    if not pictures.exists():
        emoji.write(pictures, names)
    files = {name: pictures / name for name in names}
    items = Collection(tuple(names), _extracted(names, emoji.features[rows]), None, files)
    return create_app([ModelHost(model, items)])


def _fitted(split: EmojiSplit, seed: int, parameters: dict[str, Any]) -> ZeroShotTagger:
    """Learn a tagger of pictures from the features that are stored of them."""
    X, documents = split.pictures(split.taught)
    tagger = ZeroShotTagger(features=ImageFeatures(size=SIZE), random_state=seed, **parameters)
    items = _extracted(documents.ids, X)
    tagger.fit(items, documents, split.semantics(), label_sets_only=True)
    return tagger.remove_documents(split.repeated())


def _extracted(names: Sequence[str], features: Any) -> Extracted:
    """Return stored features as what was extracted from pictures."""
    return Extracted("image", ImageFeatures(size=SIZE).preprocessing(), tuple(names), features)


def _show(address: str) -> None:
    """Open the studio in the browser, when it is likely to answer."""
    sleep(2)
    webbrowser.open(address)
