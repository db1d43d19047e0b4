"""Pictures: every kind of file and mode, what is refused and why, threads, and drawings."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("PIL", reason="needs the extra `image`")
pytest.importorskip("resvg_py", reason="needs the extra `image`")

from PIL import Image

from media_files import (
    BLUE,
    DRAWING,
    GREEN,
    RED,
    SVG,
    YELLOW,
    exif,
    make_odd_pictures,
    png,
    png16,
    quadrants,
    slow_svg,
    svg_bomb,
    tiff,
)
from polyseme._validation import InputError
from polyseme.features import _raster, _svg, _svg_worker, pictures
from polyseme.features.media import MediaError
from polyseme.features.pictures import FRAMINGS, SUFFIXES, picture_from_array, read_picture

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
CORNERS = (RED, GREEN, BLUE, YELLOW)


def corners(pixels: NDArray[np.uint8]) -> list[tuple[int, ...]]:
    """The middle of each quadrant, in reading order."""
    near, far = len(pixels) // 4, len(pixels) * 3 // 4
    places = [(near, near), (near, far), (far, near), (far, far)]
    return [tuple(int(v) for v in pixels[place]) for place in places]


def assert_near(found: object, wanted: object, within: int = 3) -> None:
    np.testing.assert_allclose(np.asarray(found, int), np.asarray(wanted, int), atol=within)


def read(content: bytes, folder: Path, *, size: int = 16, framing: str = "stretch") -> NDArray:
    file = folder / "made.png"
    file.write_bytes(content)
    return read_picture(file, size=size, framing=framing)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("odd")
    return folder, make_odd_pictures(folder)


# ---------------------------------------------------------------- kinds of files


def test_every_odd_file_is_read_or_refused_as_it_should_be(odd, capfd) -> None:
    folder, verdicts = odd
    assert sum(verdict != "other" for verdict in verdicts.values()) >= 36
    for name, verdict in verdicts.items():
        path = folder / name
        if verdict == "good":
            pixels = read_picture(path, size=32)
            assert pixels.shape == (32, 32, 3) and pixels.dtype == np.uint8, name
            assert pixels.flags.c_contiguous and pixels.flags.writeable, name
            assert path.suffix.lower() in SUFFIXES
        elif verdict == "broken":
            with pytest.raises(MediaError, match=r"^(is|has|holds|cannot) ") as caught:
                read_picture(path, size=32)
            assert len(str(caught.value)) < 80 and not str(caught.value).endswith("."), name
            assert path.suffix.lower() in SUFFIXES
    assert capfd.readouterr() == ("", "")


IN_COLOUR = (
    *("photo.jpg", "progressive.jpeg", "cmyk.jpg", "broken-exif.jpg", "UPPER.JPG", "link.jpg"),
    *("png-inside.jpg", "jpeg-inside.svg", "palette.png", "rgb16.png", "plain.bmp", "plain.ppm"),
    *("moving.gif", "moving.webp", "moving.png", "lossy.webp", "pages.tif", "lzw.tiff"),
    *("cmyk.tif", "rgb16.tif"),
)


@pytest.mark.parametrize("name", IN_COLOUR)
def test_colours_are_where_they_belong(name: str, odd) -> None:
    folder, verdicts = odd
    if name not in verdicts:
        pytest.skip("no links here")
    assert_near(corners(read_picture(folder / name, size=32)), CORNERS, within=8)


@pytest.mark.parametrize(
    ("name", "order"), [("turned.jpg", "BRYG"), ("turned.png", "YBGR"), ("turned.webp", "GYRB")]
)
def test_exif_turns_a_picture(name: str, order: str, odd) -> None:
    wanted = [dict(zip("RGBY", CORNERS, strict=True))[letter] for letter in order]
    assert_near(corners(read_picture(odd[0] / name, size=32)), wanted, within=8)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_orientation_is_as_pillow_turns_it(
    orientation: int, kind: str, framing: str, tmp_path: Path
) -> None:
    from PIL import ImageOps

    file = tmp_path / "turned.jpg"
    Image.fromarray(quadrants(41, 30)).save(file, format=kind, exif=exif(orientation), quality=95)
    with Image.open(file) as opened:
        upright = ImageOps.exif_transpose(opened)
        wanted = picture_from_array(np.asarray(upright.convert("RGB")), size=24, framing=framing)
    assert_near(read_picture(file, size=24, framing=framing), wanted, within=2)


def test_rgba_is_exactly_composed_on_white_and_then_resampled(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    cell = Image.fromarray(rng.integers(0, 256, (64, 64, 4), dtype=np.uint8))
    cell.save(tmp_path / "cell.png")
    white = Image.new("RGBA", cell.size, "white")
    white.alpha_composite(cell)
    wanted = np.asarray(white.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(read_picture(tmp_path / "cell.png", size=224), wanted)
    np.testing.assert_array_equal(picture_from_array(np.asarray(cell), size=224), wanted)


def test_composing_in_bands_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    cell = rng.integers(0, 256, (50, 30, 4), dtype=np.uint8)
    whole = picture_from_array(cell, size=20)
    monkeypatch.setattr(_raster, "_BAND", 30 * 7)
    np.testing.assert_array_equal(picture_from_array(cell, size=20), whole)


@pytest.mark.parametrize(
    ("mode", "colour", "wanted"),
    [
        ("LA", (100, 0), WHITE),
        ("RGBa", (64, 0, 0, 128), (255 - 128 + 64, 127, 127)),
        ("RGBX", (10, 20, 30, 0), (10, 20, 30)),
        ("YCbCr", (76, 85, 255), (254, 0, 0)),
        ("HSV", (85, 255, 255), (0, 255, 0)),
        ("CMYK", (255, 0, 0, 0), (0, 255, 255)),
        ("LAB", (255, 128, 128), WHITE),
        ("1", 1, WHITE),
        ("I;16", 0x80FF, (128, 128, 128)),
    ],
)
def test_modes_become_plain_colours(mode: str, colour, wanted) -> None:
    flat = _raster.flat(Image.new(mode, (4, 4), colour))
    assert flat.mode in ("L", "RGB")
    assert_near(np.asarray(flat.convert("RGB"))[2, 2], wanted)


def test_a_palette_with_alpha_is_laid_on_white() -> None:
    half = Image.new("RGBA", (4, 4), (200, 0, 0, 51))
    flat = _raster.flat(half.convert("PA"))
    assert_near(np.asarray(flat)[0, 0], (244, 204, 204), within=6)


@pytest.mark.parametrize("index", [0, 3])
def test_transparent_palette_entries_are_white(index: int, tmp_path: Path) -> None:
    picture = Image.new("P", (4, 4), 3)
    picture.putpalette([0, 0, 0, 9, 9, 9, 8, 8, 8, 200, 10, 10])
    picture.save(tmp_path / "p.png", transparency=index)
    wanted = WHITE if index == 3 else (200, 10, 10)
    assert tuple(read_picture(tmp_path / "p.png", size=4)[0, 0]) == wanted


@pytest.mark.parametrize(("depth", "row", "scale"), [(2, b"\x1b", 85), (4, b"\x01\x23", 17)])
def test_a_transparent_gray_of_few_bits_is_white(depth, row, scale, tmp_path: Path) -> None:
    content = png((b"\0" + row) * 4, (4, 4), depth=depth, colour=0, before=((b"tRNS", b"\0\1"),))
    gray = read(content, tmp_path, size=4)[0, :, 0]
    np.testing.assert_array_equal(gray, [0, 255, 2 * scale, 3 * scale])


def test_a_transparent_colour_of_16_bits_is_white(tmp_path: Path) -> None:
    pixels = np.full((4, 4, 3), 0x1234, np.uint16)
    pixels[:, 2:] = 0x8001
    content = png16(pixels, (b"tRNS", bytes.fromhex("123412341234")))
    found = read(content, tmp_path, size=4)
    np.testing.assert_array_equal(found[0, :, 1], [255, 255, 128, 128])
    gray = png16(pixels[:, :, 0], (b"tRNS", bytes.fromhex("8001")))
    np.testing.assert_array_equal(read(gray, tmp_path, size=4)[0, :, 1], [18, 18, 255, 255])


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_of_16_bits_the_upper_8_are_kept(big_endian, packed, colour, tmp_path: Path) -> None:
    shape = (4, 4, 3) if colour else (4, 4)
    pixels = np.arange(np.prod(shape), dtype=np.uint16).reshape(shape) * 1300 + 5
    wanted = pixels >> 8 if colour else np.repeat((pixels >> 8)[:, :, None], 3, axis=2)
    photometric = 2 if colour else 1
    made = tiff(pixels, big_endian=big_endian, packed=packed, photometric=photometric)
    np.testing.assert_array_equal(read(made, tmp_path, size=4), wanted)
    np.testing.assert_array_equal(read(png16(pixels), tmp_path, size=4), wanted)
    np.testing.assert_array_equal(picture_from_array(pixels, size=4), wanted)


def test_gray_of_16_bits_where_0_is_white_is_inverted(tmp_path: Path) -> None:
    made = tiff(np.full((2, 2), 0xFFFF, np.uint16), photometric=0)
    assert tuple(read(made, tmp_path, size=2)[0, 0]) == BLACK


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (np.array([0, 7, 255], np.int32), [0, 7, 255]),
        (np.array([0, 256, 65535], np.int32), [0, 1, 255]),
        (np.array([-100, 0, 100], np.int32), [0, 128, 255]),
        (np.array([0, 2**31, 2**32 - 1], np.uint32), [0, 128, 255]),
        (np.array([-5, -5, -5], np.int32), [0, 0, 0]),
        (np.array([0, 0.2, 1], np.float32), [0, 51, 255]),
        (np.array([-2, 0, 2], np.float32), [0, 128, 255]),
        (np.array([np.nan, np.inf, -np.inf], np.float32), [0, 255, 0]),
        (np.array([np.nan, 0, 10], np.float32), [0, 0, 255]),
        (np.array([7, 7, 7], np.float32), [255, 255, 255]),
    ],
)
def test_32_bits_are_scaled_as_documented(values, wanted, tmp_path: Path) -> None:
    made = tiff(np.tile(values, (3, 1)))
    np.testing.assert_array_equal(read(made, tmp_path, size=3)[0, :, 0], wanted)


def test_a_cmyk_jpeg_without_adobes_mark_is_not_taken_as_inverted(tmp_path: Path) -> None:
    inks = np.full((16, 16, 4), (0, 200, 200, 0), np.uint8)
    made = io.BytesIO()
    Image.fromarray(255 - inks, mode="CMYK").save(made, "JPEG", quality=95)
    content = made.getvalue()
    place = content.index(b"\xff\xee")
    plain = content[:place] + content[place + 2 + int.from_bytes(content[place + 2 : place + 4]) :]
    assert_near(read(plain, tmp_path)[8, 8], (255, 55, 55), within=4)
    assert_near(read(content, tmp_path)[8, 8], BLACK, within=4)


def test_a_lab_tiff_is_converted(tmp_path: Path) -> None:
    Image.new("LAB", (4, 4), (136, 208, 195)).save(tmp_path / "lab.tif")
    red, green, blue = (int(v) for v in read_picture(tmp_path / "lab.tif", size=4)[0, 0])
    assert red > 200 and green < 60 and blue < 60


# ---------------------------------------------------------------- framing and size


@pytest.mark.parametrize(("width", "height"), [(40, 20), (20, 40), (41, 20), (300, 37)])
def test_framings_show_what_they_promise(width: int, height: int) -> None:
    pixels = np.zeros((height, width, 3), np.uint8)
    side = min(width, height)
    top, left = (height - side) // 2, (width - side) // 2
    pixels[top : top + side, left : left + side] = RED
    cut = picture_from_array(pixels, size=10, framing="crop")
    # At the cut, resampling sees a little of what lies beyond.
    assert_near(cut[1:9, 1:9], np.broadcast_to(RED, (8, 8, 3)), within=16)
    padded = picture_from_array(np.zeros_like(pixels), size=16, framing="pad")
    dark = (padded == 0).all(axis=2)
    short = max(1, round(side * 16 / max(width, height)))
    assert dark.sum() == 16 * short and (padded[~dark] == 255).all()
    ahead = (16 - short) // 2
    lines = dark.any(axis=1) if height < width else dark.any(axis=0)
    np.testing.assert_array_equal(np.flatnonzero(lines), np.arange(ahead, ahead + short))
    stretched = picture_from_array(np.zeros_like(pixels), size=16)
    assert (stretched == 0).all()


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("name", ["wide.png", "tall.png", "dot.png"])
def test_extreme_shapes_have_a_defined_result(framing: str, name: str, odd) -> None:
    assert read_picture(odd[0] / name, size=24, framing=framing).shape == (24, 24, 3)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_jpeg_decoded_small_looks_like_one_decoded_whole(framing: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    whole = coarse.resize((1200, 900), Image.Resampling.BICUBIC)
    whole.save(tmp_path / "a.jpg", quality=95)
    small = read_picture(tmp_path / "a.jpg", size=64, framing=framing)
    with Image.open(tmp_path / "a.jpg") as decoded:
        wanted = picture_from_array(np.asarray(decoded), size=64, framing=framing)
    assert np.abs(small.astype(int) - wanted).mean() < 2


def test_a_small_picture_is_resampled_without_averaging_first() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    exact = np.asarray(Image.fromarray(pixels).resize((16, 16), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(picture_from_array(pixels, size=16), exact)


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.full((3, 5), 7, np.uint8), (7, 7, 7)),
        (np.full((3, 5, 1), 7, np.uint8), (7, 7, 7)),
        (np.full((3, 5, 3), RED, np.uint8), RED),
        (np.full((3, 5, 4), (*RED, 0), np.uint8), WHITE),
        (np.ones((3, 5), bool), WHITE),
        (np.full((3, 5), 0.2), (51, 51, 51)),
        (np.full((3, 5, 3), 0.2, np.float16), (51, 51, 51)),
        (np.full((3, 5), 0x80FF, ">u2"), (128, 128, 128)),
        ([[0.0, 0.0], [0.0, 0.0]], BLACK),
        (np.full((5, 3, 4), (*RED, 255), np.uint8)[::-1, ::-1], RED),
        (Image.new("RGB", (4, 4), RED), RED),
    ],
)
def test_arrays_of_every_kind_are_taken(array: object, wanted) -> None:
    found = picture_from_array(array, size=6)
    np.testing.assert_array_equal(found, np.broadcast_to(np.array(wanted, np.uint8), (6, 6, 3)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(4, np.uint8), r"must have the shape .*; got \(4,\)"),
        (np.zeros((4, 4, 2), np.uint8), r"got \(4, 4, 2\)"),
        (np.zeros((0, 4), np.uint8), r"must hold pixels; got the shape \(0, 4\)"),
        (np.zeros((4, 4), np.int64), r"uint8, uint16, bool or floats in 0..1; got int64"),
        (np.full((4, 4), 1.5), r"floats in 0..1; got 1.5 to 1.5"),
        (np.full((4, 4), np.nan), r"floats in 0..1; got nan to nan"),
        (np.full((4, 4), "a"), r"got <U1"),
        ("a.png", r"got \(\)"),
    ],
)
def test_other_arrays_are_refused(array: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        picture_from_array(array, size=8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "`size` of `read_picture` must be a whole number at least 1"),
        ({"size": 8.0}, "`size` of `read_picture` must be a whole number"),
        ({"framing": "fit"}, "`framing` of `read_picture` must be one of 'stretch'"),
        ({"max_megapixels": 0}, "`max_megapixels` of `read_picture` must be a number above 0"),
    ],
)
def test_wrong_parameters_are_named(wrong, message: str, odd) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_picture(odd[0] / "photo.jpg", **{"size": 8, **wrong})
    assert not isinstance(caught.value, MediaError)


def test_a_missing_extra_is_one_sentence(odd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match="Reading pictures needs the extra `image`") as caught:
        read_picture(odd[0] / "photo.jpg", size=8)
    assert not isinstance(caught.value, MediaError)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.jpg", "is empty"),
        ("cut.jpg", "is truncated"),
        ("cut.png", "is truncated"),
        ("cut.bmp", "is truncated"),
        ("cut.svgz", "is truncated"),
        ("text.jpg", "is no picture that can be read"),
        ("page.jpg", "is no picture that can be read"),
        ("script.jpg", "is no picture that can be read"),
        ("huge.png", "has 400 megapixels, more than the 100 allowed"),
        ("text-bomb.png", "holds more text than a picture may"),
        ("planes.tif", "is a TIFF of a kind that cannot be read"),
        ("folder.png", "is a folder"),
        ("pipe.png", "is no regular file"),
        ("lost-link.jpg", "is a link to a missing file"),
        ("circle.png", "is a link that leads in a circle"),
        ("nowhere.jpg", "does not exist"),
        ("x" * 5000 + ".jpg", r"cannot be opened \(file name too long\)"),
        ("nul\0.jpg", "cannot be opened"),
    ],
)
def test_the_reason_is_said(name: str, reason: str, odd) -> None:
    folder, verdicts = odd
    if name in ("pipe.png", "lost-link.jpg", "circle.png") and name not in verdicts:
        pytest.skip("not on this system")
    with pytest.raises(MediaError, match=f"^{reason}$"):
        read_picture(folder / name, size=8)


def test_a_socket_and_a_device_are_not_opened(tmp_path: Path, monkeypatch) -> None:
    if not hasattr(socket, "AF_UNIX"):
        pytest.skip("no such sockets here")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("a.png")
        for path in (tmp_path / "a.png", Path(os.devnull)):
            with pytest.raises(MediaError, match="is no regular file"):
                read_picture(path, size=8)


def test_a_file_that_may_not_be_read_says_so(odd, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(MediaError, match=r"^cannot be opened \(permission denied\)$"):
        read_picture(odd[0] / "photo.jpg", size=8)


def test_a_file_that_is_too_big_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.jpg").open("wb") as file:
        file.truncate(3 * 10**9)
    with pytest.raises(MediaError, match=r"^has 3.0 GB, more than the 2 allowed$"):
        read_picture(tmp_path / "a.jpg", size=8)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "needs more memory than there is"),
        (OSError(5, "Input/output error"), r"cannot be read \(input/output error\)"),
        (OverflowError("x"), "is damaged"),
        (Image.DecompressionBombError("x"), "has more pixels than PIL.Image.MAX_IMAGE_PIXELS"),
    ],
)
def test_whatever_a_decoder_raises_becomes_a_reason(error, reason, odd, monkeypatch) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(pictures, "flat", fail)
    with pytest.raises(MediaError, match=f"^{reason}"):
        read_picture(odd[0] / "photo.jpg", size=8)


def test_damaged_bytes_never_raise_anything_else(odd, tmp_path: Path) -> None:
    folder, verdicts = odd
    rng = np.random.default_rng(5)
    names = [n for n, v in verdicts.items() if v == "good" and "svg" not in n and "00" not in n]
    outcomes = []
    for name in names:
        original = np.frombuffer((folder / name).read_bytes(), np.uint8)
        for _ in range(12):
            damaged = original.copy()
            places = rng.integers(0, min(len(damaged), 400), 4)
            damaged[places] = rng.integers(0, 256, 4)
            try:
                read(damaged.tobytes(), tmp_path, size=8)
                outcomes.append(True)
            except MediaError:
                outcomes.append(False)
    assert 0 < sum(outcomes) < len(outcomes)


def test_the_limit_is_the_callers_and_pillows_own_stays(tmp_path: Path) -> None:
    Image.new("1", (20000, 10000)).save(tmp_path / "big.png")
    before = Image.MAX_IMAGE_PIXELS
    with pytest.raises(MediaError, match=r"^has 200 megapixels, more than the 100 allowed$"):
        read_picture(tmp_path / "big.png", size=8)
    assert (read_picture(tmp_path / "big.png", size=8, max_megapixels=200) == 0).all()
    assert before == Image.MAX_IMAGE_PIXELS


def test_a_jpeg_counts_with_the_size_it_is_decoded_to(tmp_path: Path) -> None:
    photo = Image.new("RGB", (1600, 1600), RED)
    photo.save(tmp_path / "plain.jpg")
    photo.save(tmp_path / "progressive.jpg", progressive=True)
    assert_near(read_picture(tmp_path / "plain.jpg", size=8, max_megapixels=0.05)[4, 4], RED)
    with pytest.raises(MediaError, match=r"^has 2.6 megapixels, more than the 0.05 allowed$"):
        read_picture(tmp_path / "progressive.jpg", size=8, max_megapixels=0.05)


# ---------------------------------------------------------------- threads and warnings


def test_many_threads_read_what_one_reads(odd) -> None:
    folder, verdicts = odd
    names = [name for name, verdict in verdicts.items() if verdict == "good"]
    alone = {name: read_picture(folder / name, size=32) for name in names}
    with ThreadPoolExecutor(20) as pool:
        jobs = names * 3
        found = pool.map(lambda name: read_picture(folder / name, size=32), jobs)
        for name, pixels in zip(jobs, found, strict=True):
            np.testing.assert_array_equal(pixels, alone[name], err_msg=name)


def test_only_one_large_picture_is_held_at_a_time(odd, monkeypatch: pytest.MonkeyPatch) -> None:
    now, most, original = [], [], _raster.flat

    def slow(picture):
        now.append(1)
        most.append(len(now))
        time.sleep(0.01)
        now.pop()
        return original(picture)

    monkeypatch.setattr(pictures, "flat", slow)
    paths = [odd[0] / "photo.jpg"] * 8
    for large, allowed in ((10**9, False), (10, True)):
        most.clear()
        monkeypatch.setattr(pictures, "_LARGE", large)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda path: read_picture(path, size=8), paths))
        assert (max(most) == 1) is allowed


@pytest.fixture
def warned_of(tmp_path: Path) -> tuple[Path, Path]:
    """Two sound pictures whose extras Pillow warns of: when it opens one, when asked for EXIF."""
    colours = quadrants()
    rows = b"".join(b"\0" + row.tobytes() for row in colours)
    size = (colours.shape[1], colours.shape[0])
    no_frames = (b"acTL", bytes(8))
    animated, photo = tmp_path / "a.png", tmp_path / "a.jpg"
    animated.write_bytes(png(rows, size, depth=8, colour=2, before=(no_frames,)))
    cut_short = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0"
    Image.fromarray(colours).save(photo, exif=cut_short)
    return animated, photo


def users_warnings(paths: tuple[Path, ...]) -> list[str]:
    """What somebody hears who opens pictures with Pillow under the filter "error"."""
    heard = []
    for path in paths:
        try:
            with Image.open(path) as picture:
                picture.getexif()
        except UserWarning as warning:
            heard.append(str(warning).split()[0])
    return heard


def test_decoders_warnings_are_heard_of_nowhere_and_others_still_are(
    warned_of: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = []
    original = pictures.flat

    def in_the_midst(picture: Image.Image) -> Image.Image:
        with ThreadPoolExecutor(1) as other:
            meanwhile.append(other.submit(users_warnings, warned_of).result())
        with pytest.raises(UserWarning, match="ours"):
            warnings.warn("ours", UserWarning, stacklevel=1)
        return original(picture)

    monkeypatch.setattr(pictures, "flat", in_the_midst)
    users = ["Invalid", "Corrupt"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert users_warnings(warned_of) == users
        for path in warned_of:
            assert_near(corners(read_picture(path, size=32)), CORNERS, within=8)
            assert users_warnings(warned_of) == users
    assert meanwhile == [users, users]


def test_reading_leaves_no_word_in_a_record_of_warnings(warned_of: tuple[Path, Path]) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for path in warned_of:
            read_picture(path, size=32)
        assert not heard
        Image.open(warned_of[0]).close()
    assert [str(one.message).split()[0] for one in heard] == ["Invalid"]


def test_filters_of_warnings_are_left_as_they_were_and_can_be_taken_along(
    warned_of: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """scikit-learn takes them along to its workers, and looks into them there."""
    before = list(warnings.filters)
    original = pictures.flat

    def in_the_midst(picture: Image.Image) -> Image.Image:
        assert len(warnings.filters) == len(before) + 1
        here, there = warnings.filters[0], pickle.loads(pickle.dumps(warnings.filters))[0]
        assert here[3].pattern == there[3].pattern
        assert here[3].match("PIL.Image") and not there[3].match("PIL.Image")
        return original(picture)

    monkeypatch.setattr(pictures, "flat", in_the_midst)
    read_picture(warned_of[0], size=32)
    assert warnings.filters == before


def test_a_file_that_is_refused_does_not_leave_pillow_silent(
    warned_of: tuple[Path, Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(warned_of[0].read_bytes()[:-40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MediaError, match="is truncated"):
            read_picture(broken, size=32)
        assert users_warnings(warned_of) == ["Invalid", "Corrupt"]


# ---------------------------------------------------------------- drawings


@pytest.fixture
def fresh_worker() -> Iterator[None]:
    """Leave no worker with a test's settings behind."""
    yield
    _svg._stop()


def draw(markup: str | bytes, folder: Path, *, size: int = 32, framing: str = "stretch") -> NDArray:
    file = folder / "made.svg"
    file.write_bytes(markup.encode() if isinstance(markup, str) else markup)
    return read_picture(file, size=size, framing=framing)


def test_a_drawing_is_sharp_at_any_size_and_on_white(tmp_path: Path) -> None:
    for size in (8, 128):
        found = draw(DRAWING, tmp_path, size=size)
        np.testing.assert_array_equal(
            found[:, : size // 2], np.broadcast_to(RED, (size, size // 2, 3))
        )
        assert (found[:, size // 2 :] == 255).all()


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("box", ["0 0 8 2", "0 0 2 8", "0 0 1 100000", "0 0 3 3"])
def test_drawings_of_any_shape_are_framed(framing: str, box: str, tmp_path: Path) -> None:
    markup = f'<svg {SVG} viewBox="{box}"><rect width="100%" height="100%" fill="#111"/></svg>'
    found = draw(markup, tmp_path, framing=framing)
    width, height = (float(part) for part in box.split()[2:])
    dark = (found < 40).all(axis=2).mean()
    share = min(width, height) / max(width, height) if framing == "pad" else 1.0
    assert dark == pytest.approx(max(share, 1 / 32) if share > 1e-3 else dark, abs=0.01)


@pytest.mark.parametrize(
    "head",
    [
        "",
        '<?xml version="1.0" encoding="ISO-8859-1"?><!-- \xe4 -->',
        "\n \n",
        '<!DOCTYPE svg [<!ENTITY c "#dc141e">]>',
    ],
)
def test_declarations_before_a_drawing_are_understood(head: str, tmp_path: Path) -> None:
    for packed in (False, True):
        content = (head + DRAWING).encode("latin-1")
        found = draw(gzip.compress(content) if packed else content, tmp_path)
        assert tuple(found[16, 8]) == RED


@pytest.mark.parametrize(
    ("attributes", "covered"),
    [("", 1.0), ('width="20" height="20"', 0.25), ('width="20mm" height="20mm"', 0.0175)],
)
def test_a_drawing_without_a_size_has_that_of_its_content(attributes, covered, tmp_path) -> None:
    markup = f'<svg {SVG} {attributes}><rect width="10" height="10"/></svg>'
    found = (draw(markup, tmp_path, size=64) == 0).all(axis=2).mean()
    assert found == pytest.approx(covered, abs=0.004)


def test_an_empty_drawing_is_white(tmp_path: Path) -> None:
    assert (draw(f"<svg {SVG}/>", tmp_path) == 255).all()


def test_drawings_cannot_look_at_other_files(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), BLUE).save(tmp_path / "secret.png")
    for link in (tmp_path / "secret.png", "secret.png", (tmp_path / "secret.png").as_uri()):
        image = f'<image xlink:href="{link}" width="8" height="8"/>'
        assert (draw(f'<svg {SVG} width="8" height="8">{image}</svg>', tmp_path) == 255).all()


def test_where_opening_cannot_be_barred_links_are_refused() -> None:
    inside = f'<svg {SVG}><use xlink:href="#a"/><image href=" data:image/png;base64,AA=="/></svg>'
    _svg_worker._refuse_links(inside)
    with pytest.raises(ValueError, match="refers to another file"):
        _svg_worker._refuse_links(inside.replace("#a", "&#47;etc/x.png"))


def test_text_needs_no_font_of_the_machine(tmp_path: Path) -> None:
    markup = f'<svg {SVG} width="40" height="40"><text x="0" y="30" font-size="40">W</text></svg>'
    assert (draw(markup, tmp_path) == 255).all()


def test_a_drawing_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"^is more than the SVG renderer can take$"):
        draw(svg_bomb(), tmp_path)


def test_a_drawing_that_takes_for_ever_is_given_up_on_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_worker: None
) -> None:
    draw(DRAWING, tmp_path)
    monkeypatch.setattr(_svg, "TIMEOUT", 0.4)
    with pytest.raises(MediaError, match=r"^takes more than 0.4 seconds to draw$"):
        draw(slow_svg(), tmp_path)
    monkeypatch.undo()
    assert tuple(draw(DRAWING, tmp_path)[16, 8]) == RED


def test_a_crash_of_the_renderer_is_survived(tmp_path: Path, fresh_worker: None) -> None:
    deep = f'<svg {SVG} width="9" height="9">' + "<g>" * 200_000 + "</g>" * 200_000 + "</svg>"
    with pytest.raises(MediaError, match=r"^is (more than the SVG renderer can take|no picture)"):
        draw(deep, tmp_path)
    assert tuple(draw(DRAWING, tmp_path)[16, 8]) == RED


def test_a_worker_that_was_killed_is_replaced(tmp_path: Path, fresh_worker: None) -> None:
    draw(DRAWING, tmp_path)
    first = _svg._worker
    assert first is not None
    os.kill(first.pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    first._process.wait()
    assert tuple(draw(DRAWING, tmp_path)[16, 8]) == RED
    assert _svg._worker is not None and _svg._worker.pid != first.pid


def test_big_and_swelling_drawings_are_refused(tmp_path: Path, monkeypatch) -> None:
    swelling = gzip.compress(b"<svg>" + bytes(30_000_000), 1)
    for content in (swelling, DRAWING.encode() + b" " * 10_000_000):
        with pytest.raises(MediaError, match=r"^has more than the 10 MB allowed for an SVG$"):
            draw(content, tmp_path)


def test_a_renderer_that_does_not_start_is_told_of(monkeypatch, fresh_worker: None) -> None:
    _svg._stop()
    monkeypatch.setattr(_svg_worker, "__file__", "nowhere.py")
    with pytest.raises(MediaError, match=r"^cannot be drawn: the SVG renderer does not start$"):
        _svg.rasterise(DRAWING.encode(), side=8, cover=False)


def test_a_missing_renderer_is_one_sentence(monkeypatch, fresh_worker: None) -> None:
    _svg._stop()
    monkeypatch.setattr(_svg, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="Reading SVG pictures needs the extra `image`"):
        _svg.rasterise(DRAWING.encode(), side=8, cover=False)


def test_the_worker_imports_neither_polyseme_nor_numpy() -> None:
    code = (
        "import runpy, sys; names = runpy.run_path(sys.argv[1]); names['main'](); "
        "sys.exit(bool({'polyseme', 'numpy', 'PIL'} & set(sys.modules)))"
    )
    command = [sys.executable, "-P", "-c", code, _svg_worker.__file__]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout == _svg_worker.ANSWER.pack(_svg_worker.READY, 0)


def test_the_worker_ends_when_its_parent_is_killed() -> None:
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("no such signal here")
    code = (
        "from polyseme.features import _svg; import os, time\n"
        f"_svg.rasterise({DRAWING.encode()!r}, side=8, cover=False)\n"
        "print(_svg._worker.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.kill(worker, 0)
        parent.kill()
    for _ in range(200):
        if not _runs(worker):
            return
        time.sleep(0.05)
    pytest.fail("the worker outlived its parent")


def _runs(process: int) -> bool:
    """Whether a process is there and no mere zombie that nobody collects."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_gets_a_worker_of_its_own(tmp_path: Path) -> None:
    code = (
        "import os, sys; from polyseme.features import _svg\n"
        f"draw = lambda: _svg.rasterise({DRAWING.encode()!r}, side=8, cover=False)\n"
        "first = draw(); mine = _svg._worker.pid; _svg._lock.acquire(); child = os.fork()\n"
        "if child == 0:\n"
        "    same = draw() == first and _svg._worker.pid != mine\n"
        "    _svg._stop(); os._exit(0 if same else 3)\n"
        "_svg._lock.release(); status = os.waitpid(child, 0)[1]\n"
        "sys.exit(os.waitstatus_to_exitcode(status) or (draw() != first))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_threads_share_one_worker(tmp_path: Path) -> None:
    barrier, pids = threading.Barrier(6), []

    def work(_: int) -> bytes:
        barrier.wait()
        drawn = _svg.rasterise(DRAWING.encode(), side=8, cover=False)
        pids.append(_svg._worker and _svg._worker.pid)
        return drawn

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(work, range(6)))) == 1
    assert len(set(pids)) == 1
