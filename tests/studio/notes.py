"""Notes about the sea and about towns, most of which have tags in their front matter."""

from __future__ import annotations

from pathlib import Path

EACH = 14  # notes of a theme
UNTAGGED = (12, 13)  # notes of each theme without tags
_SENTENCES = {
    "sea": "boats sail over the waves between gulls and cliffs while fishermen mend nets",
    "town": "trams and bicycles cross the square past cafes where clerks read newspapers",
}
_TAGS = {"sea": ("water", "coast", "boat"), "town": ("street", "city", "traffic")}


def note_text(theme: str, number: int) -> str:
    """Return the words of a note: those of its theme, in an order of its own."""
    words = _SENTENCES[theme].split()
    start = number % len(words)
    return " ".join([*words[start:], *words[:start]])


def write_notes(folder: Path) -> None:
    """Write the notes, `sea-00.md` to `town-13.md`."""
    folder.mkdir()
    for theme, tags in _TAGS.items():
        for number in range(EACH):
            front = f"title: Walk {number}\n"
            if number not in UNTAGGED:
                left_out = tags[number % 3]
                tags_left = [tag for tag in tags if tag != left_out]
                front += f"tags: [{', '.join(tags_left)}]\n"
            text = f"---\n{front}---\n{note_text(theme, number)}.\n\nA *second* line.\n"
            (folder / f"{theme}-{number:02}.md").write_text(text, "utf-8")
