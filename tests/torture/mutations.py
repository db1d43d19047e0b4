"""Files made wrong: bytes changed at random, and under the checksums that would give it away.

In: the bytes of a sound file, its name, and others to splice with. Out: other bytes, of a size
that stays small. What is packed or has checksums of its own is unpacked, changed inside, and packed
anew, so that more than the checksum is tried.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence

_MOST = 1 << 20
Change = Callable[[random.Random, bytearray, Sequence[bytes]], bytes | bytearray]
# Whole numbers at the edges, in four and eight bytes and in digits.
_EDGES = (0, 1, 2**7, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
_DIGITS = ("-1", "1e999", "-1e999", "nan", "1e308", "1e-400", "0x10", "1_0", "9" * 400, "٣", "")
_TOKENS = (
    *(b"\0", b"\\u0000", b"\\ud800", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1b[2J"),
    *(b"\r\n", b"\r", b"\x0b", b"\x0c", b"\xe2\x80\xa8", b"\xc2\x85", b"\xe2\x80\xae", b"\x7f"),
    *(b'"', b"'", b"\\", b",", b";", b"|", b"{", b"}", b"[", b"]", b"<", b"&", b"%", b"=", b"?"),
    *(b"null", b"true", b"NaN", b"Infinity", b"{}", b"[]", b'""', b"[[]]", b'{"a": 1}', b"None"),
    *(b"[" * 5000, b"{" * 5000, b'{"a":' * 5000, b"<a>" * 5000, b"(" * 5000, b"a" * 5000),
    *(b"<!DOCTYPE a [<!ENTITY b 'c'>]>&b;", b"<![CDATA[", b"<?xml version='9'?>", b"../../x"),
    *(b"\x1f\x8b\x08\0", b"PK\x03\x04", b"\x93NUMPY", b"\xff\xd8\xff", b"RIFF", b"SQLite format 3"),
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_ENCODINGS = ("utf-16", "utf-32", "latin-1", "utf-8-sig", "utf-7", "cp037")


def _flipped(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _set(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        data[rng.randrange(len(data))] = rng.choice(
            [0, 1, 10, 32, 127, 128, 255, rng.randrange(256)]
        )
    return data


def _part(rng: random.Random, data: bytes | bytearray) -> slice:
    start = rng.randrange(len(data) + 1)
    return slice(start, start + rng.choice([1, 2, 4, 8, 32, rng.randrange(len(data) + 1)]))


def _cut_out(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    del data[_part(rng, data)]
    return data


def _cut_off(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def _repeated(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    span = _part(rng, data)
    data[span.stop : span.stop] = data[span] * rng.choice([1, 1, 2, 10, 100, 1000])
    return data


def _moved(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    span = _part(rng, data)
    cut = bytes(data[span])
    del data[span]
    start = rng.randrange(len(data) + 1)
    data[start:start] = cut
    return data


def _spliced(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytes | bytearray:
    donor = rng.choice(donors) if donors else b""
    if rng.random() < 0.5:
        end = rng.randrange(len(data) + 1)
        start = rng.randrange(len(donor) + 1)
        return bytes(data[:end]) + donor[start:]
    donated = donor[_part(rng, donor)]
    data[_part(rng, data)] = donated
    return data


def _edge(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    size = rng.choice([2, 4, 4, 8])
    order = rng.choice(["little", "big"])
    number = rng.choice(_EDGES) % (1 << 8 * size)
    start = rng.randrange(len(data))
    data[start : start + size] = number.to_bytes(size, "little" if order == "little" else "big")
    return data


def _digits(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    numbers = list(_NUMBER.finditer(data))
    if numbers:
        start, end = rng.choice(numbers).span()
        number = rng.choice([*_DIGITS, *map(str, _EDGES), str(rng.randrange(-9, 99))])
        data[start:end] = number.encode()
    return data


def _token(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytearray:
    start = rng.randrange(len(data) + 1)
    data[start : start + rng.choice([0, 0, 1, 4])] = rng.choice(_TOKENS)
    return data


def _encoded(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytes:
    return data.decode("utf-8", "replace").encode(rng.choice(_ENCODINGS), "replace")


def _line_ends(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytes:
    return bytes(data).replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n", b"", b"\n\xef\xbb\xbf"]))


def _lines(rng: random.Random, data: bytearray, donors: Sequence[bytes]) -> bytes:
    lines = bytes(data).split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


_CHANGES: tuple[Change, ...] = (
    *(_flipped, _flipped, _set, _cut_out, _cut_off, _repeated, _moved, _spliced, _spliced),
    *(_edge, _edge, _digits, _digits, _token, _token, _encoded, _line_ends, _lines),
    lambda rng, data, others: b"",
)


def changed(rng: random.Random, data: bytes, donors: Sequence[bytes] = ()) -> bytes:
    """Change bytes once or several times."""
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if data:
            data = bytes(rng.choice(_CHANGES)(rng, bytearray(data), donors))[:_MOST]
    return data


# ---------------------------------------------------------------------- under checksums


def _in_gzip(rng: random.Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    return gzip.compress(changed(rng, gzip.decompress(data), donors), 1, mtime=0)


def _in_archive(rng: random.Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """Change one member of a zip archive, or its name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    content = changed(rng, members.pop(name), [*donors, *members.values()])
    if rng.random() < 0.1:
        name = changed(rng, name.encode()).decode("latin-1").replace("\0", "")[:200]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for key, value in {**members, name or "x": content}.items():
            archive.writestr(key, value)
    return written.getvalue()


def _in_png(rng: random.Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """Change one chunk, or the order of chunks, and compute the checks of all."""
    chunks, place = [], 8
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        chunks.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + size]))
        place += 12 + size
    position = rng.randrange(len(chunks))
    kind, content = chunks[position]
    if kind == b"IDAT" and rng.random() < 0.5:
        content = zlib.compress(changed(rng, zlib.decompress(content)))
    else:
        content = changed(rng, content, donors)
    chunks[position] = (kind, content)
    if rng.random() < 0.2:
        chunks.insert(rng.randrange(len(chunks)), rng.choice(chunks))
    png = data[:8]
    for kind, content in chunks:
        check = struct.pack(">I", zlib.crc32(kind + content))
        png += struct.pack(">I", len(content)) + kind + content + check
    return png


def _ogg_check(page: bytes) -> int:
    check = 0
    for byte in page:
        check ^= byte << 24
        for _ in range(8):
            check = (check << 1 ^ 0x04C11DB7 if check & 0x80000000 else check << 1) & 0xFFFFFFFF
    return check


def _in_ogg(rng: random.Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """Change one page and compute its check."""
    pages = [b"OggS" + page for page in data.split(b"OggS")[1:]]
    position = rng.randrange(len(pages))
    head = pages[position][:27]
    body = pages[position][27:]
    page = bytearray(head + changed(rng, body, donors)[: len(body)].ljust(len(body), b"\0"))
    if rng.random() < 0.2:
        page[4:27] = changed(rng, head[4:27])[:23].ljust(23, b"\0")
    page[22:26] = bytes(4)
    page[22:26] = struct.pack("<I", _ogg_check(bytes(page)))
    pages[position] = bytes(page)
    return b"".join(pages)


_INSIDE: dict[str, Callable[[random.Random, bytes, Sequence[bytes]], bytes]] = {
    ".gz": _in_gzip,
    ".svgz": _in_gzip,
    ".npz": _in_archive,
    ".png": _in_png,
    ".ogg": _in_ogg,
    ".opus": _in_ogg,
}


def mutated(rng: random.Random, name: str, data: bytes, donors: Sequence[bytes] = ()) -> bytes:
    """Return a file made wrong, mostly inside of what packs and checks it."""
    inside = _INSIDE.get(name[name.rfind(".") :])
    if inside is not None and rng.random() < 0.7:
        return inside(rng, data, donors)
    return changed(rng, data, donors)
