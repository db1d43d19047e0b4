"""Compose the embedded clips: seeded pieces of music whose tags can be heard.

In: the tables of `music.json` (voices, styles, what the tags mean) and of `clips_music.toml` (what
pieces are made of). Out: `Clip`s, notes with the document that describes them; `prepare_clips.py`
makes sound of them.

A piece is a style, one to three voices, a mode and a seed. `VARIATIONS` clips are made of it, in
other keys and with another tempo, register, touch or loudness, and share its group. Tags are read
off the notes that sound, never set beside them. A document is given `GIVEN` of its tags: with all
of them the tagger of that time did not beat popularity in E-MAP (see the data's README).
"""

from __future__ import annotations

import random
import tomllib
from collections import Counter, namedtuple
from pathlib import Path
from typing import Any

N_PIECES, VARIATIONS, SEED = 320, 2, 20
SECONDS = 3.0
GIVEN, FEWEST_TAGS = 0.65, 5
TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

# What the variations of a piece have in common, and what may differ between them. Parts are pairs
# of a voice and its role: alone, lead, harmony, bass or drums.
Piece = namedtuple("Piece", "style parts mode seed")
Manner = namedtuple("Manner", "tempo bpm register touch dynamics tonic")
Note = namedtuple("Note", "part start length pitch velocity")  # of one part, in beats
Clip = namedtuple("Clip", "piece manner notes row")  # a variation, and its document


def choose(options: dict[str, int], draw: random.Random) -> str:
    """Draw a word by its weight."""
    return draw.choices(list(options), list(options.values()))[0]


def draw_parts(
    style: dict[str, Any], used: Counter[str], draw: random.Random
) -> tuple[tuple[str, str], ...]:
    """Draw who plays, rarely used voices first, so that no instrument is rare."""

    def pick(role: str, names: list[str]) -> tuple[str, str]:
        name = draw.choices(names, [1.0 / (1 + used[name]) ** 2 for name in names])[0]
        used[name] += 1
        return name, role

    size = draw.choices((1, 2, 3), (6, 9, 4))[0]
    if size == 1:
        return (pick("alone", style["lead"] + style["bass"]),)
    lead, bed = pick("lead", style["lead"]), draw.choice(style["bed"])
    roles = (lead, (bed, "drums" if bed == "drums" else "harmony"))
    return roles if size == 2 else (*roles, pick("bass", style["bass"]))


def draw_manner(piece: Piece, music: dict[str, Any], draw: random.Random) -> Manner:
    """Draw how a variation is played, among what its voices can do."""
    style = music["styles"][piece.style]
    voices = [music["voices"][name] for name, role in piece.parts if role != "drums"]
    sounds = {voice["sound"] for voice in voices}
    touch = dict(style["touch"])
    if sounds != {"sustained"}:
        touch.pop("legato", None)
    if "ringing" in sounds:
        touch = {"plain": 1}
    low, high = voices[0]["range"]
    centres = TABLES["register"].items()
    registers = [name for name, centre in centres if low <= centre - 4 and centre + 4 <= high]
    tempo = choose(style["tempi"], draw)
    return Manner(
        tempo=tempo,
        bpm=draw.randint(*music["rules"]["tempo"][tempo]),
        register=draw.choice(registers),
        touch=choose(touch, draw),
        dynamics=choose(style["dynamics"], draw),
        tonic=draw.randrange(12),
    )


class Composer:
    """Turns a piece and a manner into notes; the same piece has the same tune at a tempo."""

    def __init__(self, piece: Piece, manner: Manner, music: dict[str, Any]) -> None:
        self.piece, self.manner, self.voices = piece, manner, music["voices"]
        self.style = music["styles"][piece.style]
        self.scale = TABLES["scales"][piece.mode]
        self.beats = SECONDS * manner.bpm / 60
        self.draw = random.Random(piece.seed)
        roots = [(0, 3), (0, 4), (0, 5), (0, 1)] if len(self.scale) == 7 else [(0, 0)]
        self.roots = self.draw.choice(roots)

    def pitch(self, degree: int) -> int:
        """Return the pitch of a scale degree, 0 being the tonic under middle C."""
        octave, step = divmod(degree, len(self.scale))
        return 48 + self.manner.tonic + 12 * octave + self.scale[step]

    def chord(self, beat: float) -> list[int]:
        """Return the chord of a beat as three pitch classes, its root first."""
        bar_half = int(beat // 2) % 2
        root = self.roots[bar_half]
        if len(self.scale) == 7:
            degrees = (root, root + 2, root + 4)
            pitches = [self.pitch(degree) for degree in degrees]
        else:
            tonic = self.pitch(root)
            pitches = [tonic, tonic + 7, tonic]
        return [pitch % 12 for pitch in pitches]

    def inside(self, pitch: int, name: str) -> int:
        """Move a pitch by octaves into a voice's range."""
        low, high = self.voices[name]["range"]
        while pitch < low:
            pitch += 12
        while pitch > high:
            pitch -= 12
        return pitch

    def near(self, pitch_class: int, centre: int, name: str) -> int:
        """Return the pitch of a class that is nearest to a centre, in the voice's range."""
        return self.inside(centre - 6 + (pitch_class - centre + 6) % 12, name)

    def note(
        self, part_number: int, start: float, length: float, pitch: int, weight: float
    ) -> Note:
        """Play one note in the manner of the variation, never quite evenly; jazz swings."""
        loud = TABLES["dynamics"][self.manner.dynamics] * weight + self.draw.randint(-5, 5)
        if self.piece.parts[part_number][1] != "drums":
            length *= TABLES["touch"][self.manner.touch]
        if self.piece.style == "jazz" and start % 1 == 0.5:
            start += 1 / 6
        return Note(part_number, start, length, pitch, max(20, min(127, round(loud))))

    def compose(self) -> list[Note]:
        """Write every part."""
        centre = TABLES["register"][self.manner.register]
        below = 4 if self.manner.register == "high" else 8
        notes: list[Note] = []
        for part_number, (name, role) in enumerate(self.piece.parts):
            chords = self.voices[name]["chords"]
            if role in ("alone", "lead"):
                notes += self.melody(part_number, name, centre)
                if role == "alone" and chords and self.draw.random() < 0.7:
                    notes += self.comping(part_number, name, centre - below, 0.6)
            elif role == "harmony":
                write = self.comping if chords else self.melody
                notes += write(part_number, name, centre - below, 0.65)
            elif role == "bass":
                notes += self.bass(part_number, name)
            else:
                notes += self.drums(part_number)
        return notes

    def melody(self, part_number: int, name: str, centre: int, weight: float = 1.0) -> list[Note]:
        """Walk along the scale around a centre, with chord notes (two semitones off) on beats."""
        degree = min(range(-21, 28), key=lambda candidate: abs(self.pitch(candidate) - centre))
        middle, beat, notes = degree, 0.0, []
        while beat < self.beats:
            for length in self.draw.choice(TABLES["rhythms"][self.manner.tempo]):
                pull = [-1, -2] if degree > middle + 2 else [1, 2] if degree < middle - 2 else []
                degree += self.draw.choice(pull or [-2, -1, -1, 1, 1, 2])
                pitches = [self.pitch(degree)]
                if beat % 1 == 0:
                    near = sorted(range(-2, 3), key=abs)
                    pitches = [pitches[0] + step for step in near]
                chord = self.chord(beat)
                pitch = next(
                    (candidate for candidate in pitches if candidate % 12 in chord), pitches[0]
                )
                notes.append(self.note(part_number, beat, length, self.inside(pitch, name), weight))
                beat += length
        return notes

    def comping(self, part_number: int, name: str, centre: int, weight: float) -> list[Note]:
        """Strike, break or hold the chords of the bar."""
        kind = self.style["comping"]
        starts = TABLES["comping"][kind]
        if self.manner.tempo == "slow" and len(starts) > 4:
            starts = [start for start in starts if start % 1 == 0]
        onsets = [start + bar for bar in range(0, int(self.beats) + 1, 4) for start in starts]
        notes = []
        for index, (start, end) in enumerate(
            zip(onsets, [*onsets[1:], onsets[-1] + 1], strict=True)
        ):
            pitches = sorted({self.near(pc, centre, name) for pc in self.chord(start)})
            if kind == "arpeggio" or name == "harp":
                pitches = [pitches[index % len(pitches)]]
            length = end - start if kind in ("held", "arpeggio") else min(0.6, end - start)
            notes += [
                self.note(part_number, start, length, pitch, 0.85 * weight) for pitch in pitches
            ]
        return notes

    def bass(self, part_number: int, name: str) -> list[Note]:
        """Write roots and fifths, walking in jazz, under everything else."""
        step = 2.0 if self.style["comping"] == "held" or self.manner.tempo == "slow" else 1.0
        low = self.voices[name]["range"][0]
        notes, beat = [], 0.0
        while beat < self.beats:
            chord = self.chord(beat)
            walking = self.piece.style == "jazz" or beat % 2 == 1
            pitch_class = self.draw.choice(chord) if walking else chord[0]
            notes.append(
                self.note(part_number, beat, step, self.near(pitch_class, low + 9, name), 0.8)
            )
            beat += step
        return notes

    def drums(self, part_number: int) -> list[Note]:
        """Write the style's pattern, plainer at slow tempi."""
        return [
            self.note(part_number, bar + start, 0.25, int(pitch), 0.7)
            for pitch, starts in TABLES["drums"][self.style["drums"]].items()
            for bar in range(0, int(self.beats) + 1, 4)
            for start in starts
            if self.manner.tempo != "slow" or start % 1 == 0
        ]


def pitch_quantiles(notes: list[Note], piece: Piece, beats: float) -> list[int]:
    """Return the pitches under which 20, 50 and 80 % of the clip's sounding time lie."""
    weighted = sorted(
        (note.pitch, min(note.length, beats - note.start))
        for note in notes
        if piece.parts[note.part][1] != "drums" and note.start < beats
    )
    pitches = []
    for share in (0.2, 0.5, 0.8):
        left = share * sum(length for _, length in weighted)
        places = iter(weighted)
        while left > 0:
            pitch, length = next(places)
            left -= length
        pitches.append(pitch)
    return pitches


def moods(labels: set[str]) -> set[str]:
    """Return the words for moods that follow from how a clip is played."""
    driven, folk, jazz = bool({"loud", "drums"} & labels), "folk" in labels, "jazz" in labels
    slow, fast = "slow" in labels, "fast" in labels
    rules = {
        "calm": slow and not driven,
        "energetic": fast and driven,
        "bright": "high" in labels and "soft" not in labels,
        "dreamy": slow and bool({"soft", "ambient"} & labels),
        "heavy": "loud" in labels and bool({"electric guitar", "low"} & labels),
        "dance": "latin" in labels or (folk and not slow) or (jazz and fast),
    }
    return {word for word, fits in rules.items() if fits}


def describe(
    piece: Piece, manner: Manner, notes: list[Note], music: dict[str, Any]
) -> dict[str, Any]:
    """Return the document of a clip: its labels and the facts they rest on."""
    voices = [music["voices"][name] for name, _ in piece.parts]
    pitches = pitch_quantiles(notes, piece, SECONDS * manner.bpm / 60)
    labels = {piece.style, manner.tempo, manner.touch, manner.dynamics} - {"plain", "moderate"}
    for voice in voices:
        labels |= {voice["label"], *voice["families"]}
    spans = music["rules"]["register"].items()
    labels |= {word for word, (low, high) in spans if low <= pitches[0] and pitches[2] <= high}
    labels |= {"solo"} if len(voices) == 1 else set()
    return {
        "labels": [],
        "true": sorted(labels | moods(labels)),
        "style": piece.style,
        "voices": [name for name, _ in piece.parts],
        "programs": [voice["program"] for voice in voices],
        "bpm": manner.bpm,
        "key": f"{TABLES['tonics'][manner.tonic]} {piece.mode}",
        "pitches": pitches,
        "touch": manner.touch,
        "dynamics": manner.dynamics,
    }


def vary(piece: Piece, music: dict[str, Any], draw: random.Random) -> list[Clip]:
    """Make variations that differ in a label; fewer than wanted if the piece does not allow it."""
    clips: list[Clip] = []
    for _ in range(40):
        manner = draw_manner(piece, music, draw)
        notes = Composer(piece, manner, music).compose()
        row = describe(piece, manner, notes, music)
        true = row["true"]
        if len(true) >= FEWEST_TAGS and true not in [clip.row["true"] for clip in clips]:
            # Some of the true tags, as people do who tag what strikes them.
            n_tags = max(FEWEST_TAGS, round(GIVEN * len(true) + draw.uniform(-0.5, 0.5)))
            row["labels"] = sorted(draw.sample(true, n_tags))
            clips.append(Clip(piece, manner, notes, row))
        if len(clips) == VARIATIONS:
            break
    return clips


def plan_clips(music: dict[str, Any]) -> list[Clip]:
    """Compose every clip; styles take turns."""
    draw, used = random.Random(SEED), Counter[str]()
    styles, clips = list(music["styles"]), list[Clip]()
    while len(clips) < N_PIECES * VARIATIONS:
        number = len(clips) // VARIATIONS
        style = styles[number % len(styles)]
        voice_counts = used.copy()
        roles = draw_parts(music["styles"][style], voice_counts, draw)
        mode = draw.choice(music["styles"][style]["modes"])
        varied = vary(Piece(style, roles, mode, draw.randrange(2**31)), music, draw)
        if len(varied) == VARIATIONS:
            used = voice_counts
            for clip in varied:
                clip.row["group"] = f"piece {number + 1:03d}"
            clips += varied
    return clips
