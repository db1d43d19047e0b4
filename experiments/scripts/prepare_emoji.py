"""Make the embedded emoji data of `polyseme_experiments.datasets` from five pinned npm packages.

In: the packages (fetched with `npm pack` into a work folder) and the hand-written
`label_rules.json`. Out: documents, two sprite sheets, two feature tables, licence texts and
checksums in `experiments/polyseme_experiments/datasets/emoji_data/`.

It needs `npm`, and polyseme with the extra `image`::

    python experiments/scripts/prepare_emoji.py --work /tmp/emoji-work

Two runs give the same documents. The sheets are lossless, so another WebP encoder changes their
bytes but no visible pixel; another processor or network runtime rounds a few features to the
neighbouring half-precision number (`polyseme demo --from-pictures` says how far they are).
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from polyseme.media import ImageFeatures

TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
OUT = Path(__file__).parents[1] / "polyseme_experiments" / "datasets" / "emoji_data"

DRAWINGS = {"noto": "google", "twemoji": "twitter"}
LEFT_OUT = {"Flags", "Component"}  # country names and bare skin tones are no tags of a picture
MIN_COUNT = 2  # a label of one emoji can be neither learnt nor tested
CELL, COLUMNS = 64, 40
DATA_FILES = ["documents.jsonl.gz", "label_rules.json"]
DATA_FILES += [f"{drawing}.{form}" for drawing in DRAWINGS for form in ("npy", "webp")]

Row = dict[str, Any]  # an emoji on its way to a document


def read(name: str, work: Path, start: str) -> dict[str, bytes]:
    """Return the files of a pinned package under a path; fetch it unless it is there."""
    version, wanted = TABLES["packages"][name].values()
    archive = work / f"{name}-{version}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", f"{name}@{version}"]
        subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != wanted:
        raise SystemExit(f"{archive} is not the pinned {name} {version}; delete it and run again.")
    with tarfile.open(archive) as tar:
        paths = {member.name.removeprefix("package/"): member for member in tar if member.isfile()}
        streams = {path: tar.extractfile(paths[path]) for path in paths if path.startswith(start)}
        return {path.removeprefix(start): s.read() for path, s in streams.items() if s is not None}


def plain(text: str) -> str:
    """Take the variation selector out of a character or a code point string."""
    return text.replace("\ufe0f", "").replace("-FE0F", "")


def read_emoji(work: Path) -> list[Row]:
    """Read all emoji but flags and skin tones, in Unicode order, with their raw keywords."""
    entries = json.loads(read("emoji-datasource-google", work, "emoji.json")[""])
    library = json.loads(read("emojilib", work, "dist/emoji-en-US.json")[""])
    annotations = json.loads(read("emojibase-data", work, "en/data.json")[""])
    words = {plain(character): keywords for character, keywords in library.items()}
    cldr = {plain(entry["hexcode"]): entry for entry in annotations}
    emoji = []
    for entry in sorted(entries, key=lambda entry: entry["sort_order"]):
        has_drawings = entry["has_img_google"] and entry["has_img_twitter"]
        if entry["category"] in LEFT_OUT or not has_drawings:
            continue
        code = entry["unified"]
        character = "".join(chr(int(point, 16)) for point in code.split("-"))
        annotation = cldr[plain(code)]
        name = annotation["label"]
        keywords = [*words[plain(character)], *annotation["tags"], *name.replace("-", " ").split()]
        row = {"id": code, "emoji": character, "name": name, "category": entry["category"]}
        row |= {"subcategory": entry["subcategory"], "image": entry["image"]}
        emoji.append(row | {"keywords": keywords})
    return emoji


def picture(data: bytes) -> Image.Image:
    """Decode one picture to RGBA."""
    return Image.open(io.BytesIO(data)).convert("RGBA")


def drop_repeated(emoji: list[Row], drawings: dict[str, dict[str, bytes]]) -> list[Row]:
    """Keep one of the emoji whose pictures are the same to the pixel in either drawing.

    Both drawings show families as silhouettes, so that up to ten emoji share one picture. The
    last of each lot is kept: Unicode lists the gender-neutral families after the others.
    """
    last_user: dict[tuple[str, bytes], int] = {}
    keeper = list(range(len(emoji)))
    for drawing, files in drawings.items():
        for index in reversed(range(len(emoji))):
            pixels = picture(files[emoji[index]["image"]]).tobytes()
            user = last_user.setdefault((drawing, hashlib.sha256(pixels).digest()), index)
            keeper[index] = max(keeper[index], user)
    return [row for index, row in enumerate(emoji) if keeper[index] == index]


def sheet(pictures: list[bytes]) -> Image.Image:
    """Paste pictures into one sheet, row by row."""
    pasted = Image.new("RGBA", (COLUMNS * CELL, -(-len(pictures) // COLUMNS) * CELL))
    for index, data in enumerate(pictures):
        pasted.paste(picture(data), (index % COLUMNS * CELL, index // COLUMNS * CELL))
    return pasted


def features(pictures: list[bytes]) -> np.ndarray:
    """Compute the pooled EfficientNet-Lite0 features of pictures, (n, 1280) in half precision."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{index:04d}.png" for index in range(len(pictures))]
        for path, data in zip(paths, pictures, strict=True):
            path.write_bytes(data)
        return np.asarray(ImageFeatures(size=192).fit_transform(paths)).astype(np.float16)


def tidy(keyword: str, short: list[str]) -> str:
    """Bring a keyword to its written form; empty when it is no word (digits, emoticons)."""
    text = keyword.lower().replace("\u2019", "'").strip("\u201c\u201d\"();:,.!?' ")
    text = " ".join(re.sub(r"[_\-\s]+", " ", text).removesuffix("'s").split())
    is_word = re.fullmatch(r"[a-z]+(?:[ '][a-z]+)*", text) is not None
    return text if is_word and (len(text) > 2 or text in short) else ""


def singulars(label: str) -> list[str]:
    """List the forms of which a label may be the plural, likeliest first."""
    if not label.endswith("s") or label.endswith(("ss", "us", "is")):
        return []
    forms = [label[:-3] + "y"] if label.endswith("ies") else []
    if label.endswith(("ches", "shes", "sses", "xes")):
        forms.append(label[:-2])
    return [*forms, label[:-1]]


def closed_up(label: str) -> str:
    """Write a label without spaces and apostrophes."""
    return label.replace(" ", "").replace("'", "")


def count(sets: Iterable[set[str]]) -> Counter[str]:
    """Count in how many sets each label is."""
    return Counter(label for labels in sets for label in labels)


def spelling(counts: Counter[str], rules: dict[str, Any]) -> dict[str, str]:
    """Map every label to the one it is written as: merged, singular, spaced as most often."""
    merge, chosen = rules["merge"], {}
    for label in counts:
        form = merge.get(label, label)
        if form not in rules["keep_plural"]:
            form = next((singular for singular in singulars(form) if singular in counts), form)
        chosen[label] = merge.get(form, form)
    totals: Counter[str] = Counter()
    for label, form in chosen.items():
        totals[form] += counts[label]
    variants: dict[str, list[str]] = defaultdict(list)
    for form in sorted(totals):
        variants[closed_up(form)].append(form)
    best = {key: max(forms, key=totals.__getitem__) for key, forms in variants.items()}
    return {label: best[closed_up(form)] for label, form in chosen.items()}


def label_sets(emoji: list[Row], rules: dict[str, Any]) -> list[list[str]]:
    """Make the label set of every emoji: keywords, name words and tags of its subcategory."""
    raw = []
    for row in emoji:
        words = (tidy(word, rules["keep_short"]) for word in row["keywords"])
        raw.append({*rules["subcategory"].get(row["subcategory"], []), *words})
    spelt = spelling(count(raw), rules)
    unwanted = {"", *rules["drop"]}
    sets = [{spelt[label] for label in labels} - unwanted for labels in raw]
    frequent = {label for label, n_emoji in count(sets).items() if n_emoji >= MIN_COUNT}
    return [sorted(labels & frequent) for labels in sets]


def prepare(out: Path, work: Path) -> None:
    """Make every file but `label_rules.json` and the README."""
    drawings = {
        drawing: read(f"emoji-datasource-{owner}", work, f"img/{owner}/64/")
        for drawing, owner in DRAWINGS.items()
    }
    emoji = drop_repeated(read_emoji(work), drawings)
    labels = label_sets(emoji, json.loads((out / "label_rules.json").read_text("utf-8")))
    lines = [
        json.dumps({n: row[n] for n in [*row][:5]} | {"labels": tags}, ensure_ascii=False) + "\n"
        for row, tags in zip(emoji, labels, strict=True)
    ]
    packed = gzip.compress("".join(lines).encode(), 9, mtime=0)
    (out / "documents.jsonl.gz").write_bytes(packed)
    (out / "licences").mkdir(exist_ok=True)
    for name, (package, path) in TABLES["licences"].items():
        text = read(package, work, path)[""]
        if path.endswith(".json"):
            text = (json.loads(text)["licenseText"].strip() + "\n").encode()
        (out / "licences" / f"{name}.txt").write_bytes(text)
    for drawing, files in drawings.items():
        pictures = [files[row["image"]] for row in emoji]
        options = {"lossless": True, "quality": 100, "method": 6}
        sheet(pictures).save(out / f"{drawing}.webp", "WEBP", **options)
        np.save(out / f"{drawing}.npy", features(pictures), allow_pickle=False)
    sums = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in DATA_FILES}
    (out / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n", "utf-8")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Make the embedded emoji data.")
    parser.add_argument("--work", type=Path, help="folder for npm packages (default: temporary)")
    parser.add_argument("--out", type=Path, default=OUT, help="output folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        prepare(options.out, work)


if __name__ == "__main__":
    main()
