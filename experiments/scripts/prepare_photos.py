"""Make a folder of photographs with embedded keywords, and tag sets that hold two more tags.

The photographs are those of Debian's `tuxpaint-stamps-default` (GPL-2), which has some 250 of
animals, plants, food and things, cut out and sorted into folders:

    apt-get download tuxpaint-stamps-default
    dpkg-deb -x tuxpaint-stamps-default_*.deb stamps
    python experiments/scripts/prepare_photos.py stamps .

A photograph's keywords are the names of its folders and what a person saw in it (`SEEN`). They
are written into JPEG files by exiftool, as IPTC and XMP, where photo programs have them; every
fifth photograph has none and goes to `new/`. *farm* and *citrus* are in no photograph: they
stand in `tagsets.csv` only, beside tags that they go with. Nothing is downloaded here.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from PIL import Image

FIELDS = ["IPTC:Keywords", "XMP-dc:Subject"]
FOLDERS = ["animals", "food", "hobbies/music", "household", "plants", "space", "sports", "vehicles"]
DRAWN = """bee echidna edward_bear fly hedgehog indycar key pizza rugby_goal_posts 7spoke256 0_sun
    sedan_police sedan_police_mirror measuring_tape_mirror dumper_mirror lettuce_bolted
    tamarin_emperor"""
WORDS = {  # the names of folders that are not simply plural
    "hobbies": (), "music": ("music",), "household": (), "arttools": ("tool",), "space": ("space",),
    "dishes": ("dish", "kitchen"), "utensils": (), "percussion": ("drum",), "string": ("strings",),
    "bovines": ("hoofed",), "equines": ("hoofed",), "deer": ("hoofed",), "camel": ("hoofed",),
    "aquatic": ("sea",), "fish": ("fish", "sea"), "shellfish": ("sea",), "masstransit": (),
    "sports": ("sport",), "auto": ("car",), "vehicles": ("vehicle",), "brass": (), "wind": (),
    "emergency": (), "flight": ("flying",), "construction": (), "cycle": (), "race": ("car",),
    "cats": ("cat", "predator"), "dogs": ("dog",), "bears": ("bear", "predator"), "food": ("food",),
    "plastic": (), "spices": ("spice",), "nuts": ("nut",), "apes": ("ape",),
}  # fmt: skip
SEEN = {
    "cow": "cow cow_white bull zebu",
    "sheep": "sheep sheep_lamb ram",
    "goat": "goat mountaingoat",
    "pig": "pig pig_golden pig_golden2 wildboar",
    "horse": "horse donkey donkey_eating zebra",
    "poultry": "hen chicken_profile rooster turkey duck drake gander guineafowl",
    "rabbit": "rabbit rabbit-2 rabbit_little",
    "horns": "bison bull cow cow_white zebu goat yak indian_blackbuck mountaingoat ram gnu-stand",
    "africa": "zebra giraffe elephant hippopotamus rhino_black lion lion-2 gnu-stand gnu-baby "
    "gnu-baby-stand gnu-sitting ostrich gorilla chimp helmeted_guineafowl crowned_crane",
    "stripes": "zebra tiger tiger_sumatran butterflyfish clownfish stripedfish lionfish badger",
    "sea": "penguin little-penguin magellanic_penguin seagull silver-gull pelican",
    "penguin": "penguin little-penguin magellanic_penguin",
    "flying": "cuckoo heron_greatblue_flying pelican seagull tucan",
    "parrot": "adelaide-rosella rainbow-lorikeet",
    "apple": "apple_fuji apple_granny_smith apple_green apple_red apple_sierra_beauty",
    "orange": "orange mandarine sliced_orange orange_seville",
    "lemon": "lemon sliced_lime",
    "berry": "raspberry strawberry Strawberry2 grapes Cherry_Stella",
    "sliced": "sliced_lime sliced_orange",
    "pepper": "chilepepper pepper yellowpepper",
    "guitar": "guitar2 guitar_classical guitar_electric guitar_electric_bass",
    "ball": "australian_rules_football basketball cricketball football soccer tennis_ball",
    "green": "apple_granny_smith apple_green lettuce broccoli pepper grasshopper iguana "
    "sliced_lime cherimoya tennis_ball green_korean_bus frog birch holm_oak",
    "red": "apple_fuji apple_red apple_sierra_beauty tomato chilepepper raspberry strawberry rose "
    "Strawberry2 Cherry_Stella anemone_red anthoorium red-gazania flower10 beetle firetruck "
    "toolbox pomegranate cylinder sportscar2 adeenia chuvanna_plastic_poo chemparathi",
    "yellow": "lemon banana corn yellowpepper daffodil flower2 flower3 flower5 marigold pear "
    "yellow-flower rubberduck",
    "white": "albino_peahen owl ostrich silver-gull cow_white rabbit rabbit-2 bolsom garlic "
    "toilet mug flower4",
    "purple": "flower1 flower4 flower6 flower9 iris pigface eggplant lavender whitestar-petunia",
    "kitchen": "kettle teapot pepper_grinder",
    "truck": "truck firetruck garbagetruck dumper",
    "wrench": "wrench wrench_adjustable wrench_plumbers",
    "guineafowl": "guineafowl helmeted_guineafowl",
}
TAG_SETS = """\
farm cow horns hoofed mammal animal
farm cow hoofed mammal animal white
farm pig mammal animal
farm sheep hoofed mammal animal
farm sheep horns hoofed mammal animal
farm goat horns hoofed mammal animal
farm horse hoofed mammal animal
farm horse mammal animal
farm poultry bird animal
farm poultry bird animal white
farm cow sheep poultry pig
farm guineafowl poultry bird animal
africa horse hoofed stripes mammal animal
africa horns hoofed mammal animal
africa hoofed mammal animal
africa mammal animal
africa predator cat mammal animal
africa ape mammal animal
africa bird animal
predator cat stripes mammal animal
predator bear mammal animal
predator dog mammal animal
hoofed horns mammal animal
hoofed mammal animal
rodent mammal animal
rodent rabbit mammal animal white
marsupial mammal animal
sea mammal animal
sea fish animal
sea fish stripes animal
sea penguin bird animal
sea flying bird animal white
flying bird animal
parrot bird animal green
bird animal
insect animal
insect green flying animal
amphibian animal green
lizard animal green
citrus orange fruit food
citrus orange sliced fruit food
citrus lemon yellow fruit food
citrus lemon green sliced fruit food
citrus lemon orange fruit food
apple red fruit food
apple green fruit food
berry red fruit food
fruit food
fruit yellow food
nut food
mushroom food vegetable
mushroom plant
vegetable green food
vegetable red food
vegetable pepper food
vegetable food
flower plant yellow
flower plant red
flower plant purple
flower plant white
tree plant green
plant purple
guitar strings music
strings music
drum music
car red vehicle
car vehicle
truck vehicle
truck red vehicle
ship vehicle sea
plane flying vehicle
planet space
moon space
space
dish kitchen white
dish kitchen
wrench tool
tool
tool red
ball sport
ball sport green
sport
"""


def keywords(photo: Path) -> list[str]:
    """Return the tags of a photograph, by its folders and its name."""
    words: list[str] = []
    folders = photo.parts[:-1]
    for folder in folders:
        singular = folder.removesuffix("s")
        words += WORDS.get(folder, (singular,))
    for tag, names in SEEN.items():
        stems = names.split()
        if photo.stem in stems:
            words.append(tag)
    distinct = dict.fromkeys(words)
    return list(distinct)


def main(stamps: Path, out: Path) -> None:
    """Write `photos/`, `new/` and `tagsets.csv`."""
    root = next(stamps.rglob("animals")).parent
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.png"))]
    files = [
        file for file in files if "cartoon" not in file.parts and file.stem not in DRAWN.split()
    ]
    written: list[str] = []
    for number, file in enumerate(files):
        photo = file.relative_to(root)
        place = out / ("new" if number % 5 == 2 else "photos") / f"{photo.stem}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as opened:
            cut = opened.convert("RGBA")
        white = Image.new("RGBA", cut.size, "white")
        Image.alpha_composite(white, cut).convert("RGB").save(place, quality=90)
        if place.parent.name == "photos" and (tags := keywords(photo)):
            written += [f"-{field}={tag}" for tag in tags for field in FIELDS]
            written += [str(place), "-execute"]
    command = ["exiftool", "-@", "-", "-common_args", "-q", "-overwrite_original"]
    subprocess.run(command, input="\n".join(written), text=True, check=True)
    with (out / "tagsets.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["tags"])
        table.writerows([line.replace(" ", ", ")] for line in TAG_SETS.splitlines())
    print(f"{len(files)} photographs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
