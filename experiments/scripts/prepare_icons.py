"""Make an icon collection with human keywords from three npm packages, as a designer would have it.

    npm pack lucide-static @tabler/icons @mdi/svg
    python experiments/scripts/prepare_icons.py --packages . --out icons

In: the three packages as `npm pack` names them. Out: a folder of SVG files as they are and
`tags.jsonl` for `polyseme fit --documents`. Lucide is ISC, Tabler MIT, Material Design Icons
Apache-2.0; nothing of them is kept in this repository.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

FEWEST_USES = 8
# Icons of each package; all of Lucide's.
N_TABLER, N_MDI = 1500, 2000


class Icon(NamedTuple):
    """An SVG file and its keywords."""

    id: str
    svg: bytes
    tags: tuple[str, ...]


def main() -> None:
    """Write the collection."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--packages", type=Path, required=True, help="folder of the packages")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    arguments = parser.parse_args()

    icons = [*lucide(arguments.packages), *tabler(arguments.packages), *mdi(arguments.packages)]
    uses = Counter(tag for icon in icons for tag in icon.tags)
    arguments.out.mkdir(parents=True)
    with (arguments.out / "tags.jsonl").open("w", encoding="utf-8") as documents:
        for icon in icons:
            file = arguments.out / icon.id
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(icon.svg)
            tags = [tag for tag in icon.tags if uses[tag] >= FEWEST_USES]
            documents.write(json.dumps({"id": icon.id, "tags": tags}, ensure_ascii=False) + "\n")
    frequent = [tag for tag, count in uses.items() if count >= FEWEST_USES]
    print(f"{len(icons)} icons, {len(frequent)} tags of {FEWEST_USES} uses or more")


def lucide(packages: Path) -> Iterator[Icon]:
    """Yield all icons of Lucide that have keywords."""
    package = open_package(packages, "lucide-static")
    keywords: dict[str, list[str]] = json.loads(read(package, "tags.json"))
    for name, tags in sorted(keywords.items()):
        yield Icon(f"lucide/{name}.svg", read(package, f"icons/{name}.svg"), tidy(tags))


def tabler(packages: Path) -> Iterator[Icon]:
    """Yield some outlined icons of Tabler."""
    package = open_package(packages, "tabler-icons")
    entries = json.loads(read(package, "icons.json"))
    names = [name for name, entry in sorted(entries.items()) if "outline" in entry["styles"]]
    for name in draw(names, N_TABLER):
        entry = entries[name]
        tags = [*map(str, entry["tags"]), entry["category"]]
        svg = read(package, f"icons/outline/{name}.svg")
        yield Icon(f"tabler/{name}.svg", svg, tidy(tags))


def mdi(packages: Path) -> Iterator[Icon]:
    """Yield some of the Material Design Icons, which have keywords in two lists."""
    package = open_package(packages, "mdi-svg")
    entries = {entry["name"]: entry for entry in json.loads(read(package, "meta.json"))}
    for name in draw(sorted(entries), N_MDI):
        entry = entries[name]
        categories = [category for tag in entry["tags"] for category in tag.split("/")]
        yield Icon(
            f"mdi/{name}.svg", read(package, f"svg/{name}.svg"), tidy(categories + entry["aliases"])
        )


def draw(names: list[str], n: int) -> list[str]:
    """Return n of the names, always the same."""
    rows = np.random.default_rng(0).permutation(len(names))[:n]
    return [names[row] for row in sorted(rows)]


def tidy(tags: Iterable[str]) -> tuple[str, ...]:
    """Return keywords in lower case, with blanks for hyphens, each once."""
    plain = (re.sub(r"[-_\s]+", " ", tag).strip().lower() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in plain if tag))


def open_package(packages: Path, name: str) -> tarfile.TarFile:
    """Open the archive of a package, of whichever version."""
    pattern = f"{name}-*.tgz"
    archives = sorted(packages.glob(pattern))
    if not archives:
        raise SystemExit(f"{packages} has no {name}-VERSION.tgz; run `npm pack` there first.")
    newest = archives[-1]
    return tarfile.open(newest)


def read(package: tarfile.TarFile, name: str) -> bytes:
    """Return a file of a package."""
    file = package.extractfile(f"package/{name}")
    assert file is not None, name
    return file.read()


if __name__ == "__main__":
    main()
