"""Pictures: every kind of file and mode, what is refused and why, threads, and drawings."""

from __future__ import annotations

import gzip
import importlib
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

pytest.importorskip("PIL", reason="needs the extra `image`")
pytest.importorskip("resvg_py", reason="needs the extra `image`")

from PIL import Image, ImageDraw, ImageOps

import media_files as made
from media_files import BLUE, DRAWING, GREEN, RED, SVG, YELLOW
from polyseme.base.validation import InputError
from polyseme.media import _svg_worker, pictures
from polyseme.media.base import MediaError
from polyseme.media.image import FRAMINGS
from polyseme.media.pictures import picture_from_array, read_picture, read_thumbnail

WHITE = (255, 255, 255)
BLACK = (0, 0, 0)
CORNERS = (RED, GREEN, BLUE, YELLOW)


def corners(pixels: NDArray[np.uint8]) -> list[tuple[int, ...]]:
    """Return the middle of each quadrant, in reading order."""
    near = len(pixels) // 4
    far = len(pixels) * 3 // 4
    colours = []
    for place in [(near, near), (near, far), (far, near), (far, far)]:
        colours.append(tuple(pixels[place].tolist()))
    return colours


def assert_near(pixels: object, expected: object, within: int = 3) -> None:
    assert_allclose(np.asarray(pixels, int), np.asarray(expected, int), atol=within)


def read(content: str | bytes, folder: Path, *, size: int = 16, framing: str = "stretch"):
    file = folder / "made.png"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_picture(file, size=size, framing=framing)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("odd")
    return folder, made.make_odd_pictures(folder)


IN_COLOUR = (
    *("photo.jpg", "progressive.jpeg", "cmyk.jpg", "broken-exif.jpg", "link.jpg", "moving.gif"),
    *("png-inside.jpg", "jpeg-inside.svg", "palette.png", "rgb16.png", "plain.bmp", "plain.ppm"),
    *("still.webp", "pages.tif", "lzw.tiff", "rgb16.tif"),
)


@pytest.mark.parametrize("name", IN_COLOUR)
def test_colours_are_where_they_belong(name: str, odd) -> None:
    if name not in odd[1]:
        pytest.skip("no links here")
    assert_near(corners(read_picture(odd[0] / name, size=32)), CORNERS, within=8)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "TIFF", "PNG", "WEBP"])
def test_every_orientation_is_as_pillow_turns_it(orientation, kind, tmp_path: Path) -> None:
    file = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(made.quadrants(41, 30)).save(
        file,
        format=kind,
        exif=exif,
        quality=95,
    )
    with Image.open(file) as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    for framing in FRAMINGS:
        wanted = picture_from_array(upright, size=24, framing=framing)
        assert_near(read_picture(file, size=24, framing=framing), wanted, within=2)


def test_rgba_is_composed_on_white_and_then_resampled(tmp_path: Path, monkeypatch) -> None:
    generator = np.random.default_rng(3)
    pixels = generator.integers(0, 256, (64, 64, 4), dtype=np.uint8)
    cell = Image.fromarray(pixels)
    path = tmp_path / "cell.png"
    cell.save(path)
    white = Image.new("RGBA", cell.size, "white")
    white.alpha_composite(cell)
    resized = white.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
    expected = np.asarray(resized)
    assert_array_equal(read_picture(path, size=224), expected)
    monkeypatch.setattr(pictures, "_BAND", 64 * 7)
    assert_array_equal(picture_from_array(pixels, size=224), expected)


@pytest.mark.parametrize(("depth", "row", "scale"), [(2, b"\x1b", 85), (4, b"\x01\x23", 17)])
def test_a_transparent_gray_of_few_bits_is_white(depth, row, scale, tmp_path: Path) -> None:
    rows = (b"\0" + row) * 4
    content = made.png(rows, (4, 4), (b"tRNS", b"\0\1"), depth=depth, colour=0)
    pixels = read(content, tmp_path, size=4)
    assert_array_equal(pixels[0, :, 0], [0, 255, 2 * scale, 3 * scale])


def test_transparent_palette_entries_are_white(tmp_path: Path) -> None:
    picture = Image.new("P", (4, 4), 3)
    picture.putpalette([0, 0, 0, 9, 9, 9, 8, 8, 8, 200, 10, 10])
    path = tmp_path / "p.png"
    picture.save(path, transparency=3)
    pixels = read_picture(path, size=4)
    assert tuple(pixels[0, 0]) == WHITE


def test_transparent_colours_of_16_bits_are_white(tmp_path: Path) -> None:
    values = np.full((4, 4, 3), 0x1234, np.uint16)
    values[:, 2:] = 0x8001
    content = made.png16(values, (b"tRNS", bytes.fromhex("123412341234")))
    pixels = read(content, tmp_path, size=4)
    assert_array_equal(pixels[0, :, 1], [255, 255, 128, 128])
    gray = made.png16(values[:, :, 0], (b"tRNS", bytes.fromhex("8001")))
    pixels = read(gray, tmp_path, size=4)
    assert_array_equal(pixels[0, :, 1], [18, 18, 255, 255])


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("colour", [False, True])
def test_of_16_bits_the_upper_8_are_kept(big_endian, packed, colour, tmp_path: Path) -> None:
    shape = (4, 4, 3) if colour else (4, 4)
    values = np.arange(np.prod(shape), dtype=np.uint16) * 1300 + 5
    values = values.reshape(shape)
    expected = values >> 8
    if not colour:
        expected = np.repeat(expected[:, :, None], 3, axis=2)
    content = made.tiff(
        values,
        big_endian=big_endian,
        packed=packed,
        photometric=2 if colour else 1,
    )
    assert_array_equal(read(content, tmp_path, size=4), expected)
    content = made.png16(values)
    assert_array_equal(read(content, tmp_path, size=4), expected)


def test_the_largest_value_of_an_inverted_tiff_is_black(tmp_path: Path) -> None:
    values = np.full((4, 4), 0xFFFF, np.uint16)
    pixels = read(made.tiff(values, photometric=0), tmp_path, size=4)
    assert tuple(pixels[0, 0]) == BLACK


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (np.array([-100, 0, 100], np.int32), [0, 128, 255]),
        (np.array([0, 2**31, 2**32 - 1], np.uint32), [0, 128, 255]),
        (np.array([-2, 0, 2], np.float32), [0, 128, 255]),
        (np.array([np.nan, 0, 10], np.float32), [0, 0, 255]),
        (np.array([np.nan, np.inf, -np.inf], np.float32), [0, 255, 0]),
        (np.array([7, 7, 7], np.float32), [0, 0, 0]),
    ],
)
def test_32_bits_are_scaled_from_the_least_to_the_largest(values, wanted, tmp_path: Path) -> None:
    content = made.tiff(np.tile(values, (3, 1)))
    assert_array_equal(read(content, tmp_path, size=3)[0, :, 0], wanted)


def test_a_cmyk_jpeg_without_adobes_mark_is_not_taken_as_inverted(tmp_path: Path) -> None:
    inks = np.full((16, 16, 4), (0, 200, 200, 0), np.uint8)
    file = io.BytesIO()
    Image.fromarray(255 - inks, mode="CMYK").save(file, "JPEG", quality=95)
    content = file.getvalue()
    place = content.index(b"\xff\xee")
    length = int.from_bytes(content[place + 2 : place + 4])
    without_mark = content[:place] + content[place + 2 + length :]
    pixels = read(without_mark, tmp_path)
    assert_near(pixels[8, 8], (255, 55, 55), within=4)
    pixels = read(content, tmp_path)
    assert_near(pixels[8, 8], BLACK, within=4)


SIZES = pytest.mark.parametrize(("width", "height"), [(40, 20), (20, 40), (300, 37)])


@SIZES
def test_crop_shows_the_square_in_the_middle(width: int, height: int) -> None:
    pixels = np.zeros((height, width, 3), np.uint8)
    side = min(width, height)
    top = (height - side) // 2
    left = (width - side) // 2
    pixels[top : top + side, left : left + side] = RED
    square = picture_from_array(pixels, size=10, framing="crop")
    # At the cut, resampling sees a little of what lies beyond.
    expected = np.broadcast_to(RED, (8, 8, 3))
    assert_near(square[1:9, 1:9], expected, within=16)


@SIZES
def test_pad_shows_all_between_white_bars(width: int, height: int) -> None:
    black = np.zeros((height, width, 3), np.uint8)
    square = picture_from_array(black, size=16, framing="pad")
    is_black = (square == 0).all(axis=2)
    assert (square[~is_black] == 255).all()
    share = min(width, height) / max(width, height)
    short_side = max(1, round(16 * share))
    assert is_black.sum() == 16 * short_side
    first = (16 - short_side) // 2
    black_lines = is_black.any(axis=1 if height < width else 0)
    expected = np.arange(first, first + short_side)
    assert_array_equal(np.flatnonzero(black_lines), expected)


@SIZES
def test_stretch_fills_the_square(width: int, height: int) -> None:
    black = np.zeros((height, width, 3), np.uint8)
    square = picture_from_array(black, size=16)
    assert (square == 0).all()


def test_a_jpeg_decoded_small_looks_like_one_decoded_whole(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (9, 12, 3), dtype=np.uint8)
    coarse = Image.fromarray(pixels)
    path = tmp_path / "a.jpg"
    coarse.resize((1200, 900), Image.Resampling.BICUBIC).save(path, quality=95)
    decoded = np.asarray(Image.open(path))
    for framing in FRAMINGS:
        small = read_picture(path, size=64, framing=framing).astype(int)
        expected = picture_from_array(decoded, size=64, framing=framing)
        differences = np.abs(small - expected)
        assert differences.mean() < 2


def test_the_limit_of_megapixels_is_the_callers(tmp_path: Path) -> None:
    path = tmp_path / "big.png"
    Image.new("1", (20000, 10000)).save(path)
    with pytest.raises(MediaError, match=r"^has 200 megapixels, more than the 100 allowed$"):
        read_picture(path, size=8)
    pixels = read_picture(path, size=8, max_megapixels=200)
    assert (pixels == 0).all()


def test_a_jpeg_counts_as_it_is_decoded(tmp_path: Path) -> None:
    photo = Image.new("RGB", (1600, 1600), RED)
    plain = tmp_path / "plain.jpg"
    progressive = tmp_path / "progressive.jpg"
    photo.save(plain)
    photo.save(progressive, progressive=True)
    pixels = read_picture(plain, size=8, max_megapixels=0.05)
    assert_near(pixels[4, 4], RED)
    with pytest.raises(MediaError, match=r"^has 2.6 megapixels, more than the 0.05 allowed$"):
        read_picture(progressive, size=8, max_megapixels=0.05)


def test_files_of_gigabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long.jpg"
    with path.open("wb") as file:
        file.truncate(3 * 10**9)
    with pytest.raises(MediaError, match=r"^has 3.0 GB, more than the 2 allowed$"):
        read_picture(path, size=8)


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.uint16])
def test_deep_pictures_take_no_more_memory_than_they_unpack_to(tmp_path, most_bytes, kind):
    values = np.zeros((4000, 4000), dtype=kind)
    values[1000:, 1000:] = 1000
    path = tmp_path / "deep.tif"
    Image.fromarray(values).save(path, compression="tiff_adobe_deflate")
    assert path.stat().st_size < 1_000_000
    pixels, peak = most_bytes(lambda: read_picture(path, size=8))
    assert peak < 200_000_000, "float64 tables of all pixels would be five times 128 MB"
    assert pixels[0, 0, 0] == 0
    brightest = 3 if kind == np.uint16 else 255
    assert pixels[-1, -1, 0] == brightest


def test_decoded_bytes_count_not_only_pixels(tmp_path):
    path = tmp_path / "plain.tif"
    Image.new("RGBA", (300, 300)).save(path, compression="tiff_adobe_deflate")
    pixels = read_picture(path, size=8, max_megapixels=0.09)
    assert pixels.shape == (8, 8, 3)
    with Image.open(path) as picture:
        assert picture.tag_v2[258] == (8, 8, 8, 8)
    # The four depths lie one after the other somewhere: make them 16 bits each.
    content = path.read_bytes()
    depths = bytes((8, 0)) * 4
    deep_depths = bytes((16, 0)) * 4
    deep = tmp_path / "deep.tif"
    deep_content = content.replace(depths, deep_depths, 1)
    deep.write_bytes(deep_content)
    with pytest.raises(MediaError, match=r"^unpacks to 1 MB, more than the 0 allowed$"):
        read_picture(deep, size=8, max_megapixels=0.09)


def test_large_pictures_are_read_one_at_a_time_and_lack_of_memory_is_reported(
    odd, monkeypatch
) -> None:
    lock = MagicMock(__enter__=MagicMock(side_effect=MemoryError))
    monkeypatch.setattr(pictures, "_one_large", lock)
    read_picture(odd[0] / "photo.jpg", size=8)
    monkeypatch.setattr(pictures, "_LARGE", 0)
    with pytest.raises(MediaError, match=r"^needs more memory than there is$"):
        read_picture(odd[0] / "photo.jpg", size=8)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.full((3, 5), 7, np.uint8), (7, 7, 7)),
        (np.full((3, 5, 1), 7, np.uint8), (7, 7, 7)),
        (np.full((3, 5, 4), (*RED, 0), np.uint8), WHITE),
        (np.ones((3, 5), bool), WHITE),
        (np.full((3, 5, 3), 0.2, np.float16), (51, 51, 51)),
        (np.full((3, 5), 0x80FF, ">u2"), (128, 128, 128)),
        ([[0.0, 0.0], [0.0, 0.0]], BLACK),
        (np.full((5, 3, 4), (*RED, 255), np.uint8)[::-1, ::-1], RED),
        (Image.new("RGB", (4, 4), RED), RED),
    ],
)
def test_arrays_of_every_kind_are_taken(array: object, wanted) -> None:
    pixels = picture_from_array(array, size=6)
    expected = np.array(wanted, np.uint8)
    assert_array_equal(pixels, np.broadcast_to(expected, (6, 6, 3)))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 4, 2), np.uint8), r"got uint8 of the shape \(4, 4, 2\)"),
        (np.zeros((0, 4), np.float32), r"got float32 of the shape \(0, 4\)"),
        (np.zeros((4, 4), np.int64), r"uint8, uint16, bool or floats in 0..1 .* got int64"),
        (np.full((4, 4), np.nan), r"floats in 0..1 .* got nan to nan"),
        (np.full((4, 4), 255.0), r"got 255 to 255"),
        ("a.png", r"of the shape \(\)"),
    ],
)
def test_other_arrays_are_refused(array: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        picture_from_array(array, size=8)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.jpg", "is empty"),
        ("cut.jpg", "is truncated"),
        ("cut.svgz", "is truncated"),
        ("text.jpg", "is no picture that can be read"),
        ("script.jpg", "is no picture that can be read"),
        ("cut.gif", "is damaged or of a kind that cannot be read"),
        ("text-bomb.png", r"is damaged \(Decompressed data too large.*\)"),
        ("planes.tif", "is a TIFF of a kind that cannot be read"),
        ("folder.png", "is not a regular file"),
        ("pipe.png", "is not a regular file"),
        ("lost-link.jpg", r"cannot be opened \(no such file or directory\)"),
        ("nul\0.jpg", r"cannot be opened \(.*\)"),
    ],
)
def test_unreadable_pictures_are_refused_with_a_reason(name: str, reason: str, odd) -> None:
    folder, verdicts = odd
    if name in ("pipe.png", "lost-link.jpg") and name not in verdicts:
        pytest.skip("not on this system")
    with pytest.raises(MediaError, match=f"^{reason}$"):
        read_picture(folder / name, size=8)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's remarks
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


def test_a_missing_extra_is_one_sentence(odd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="Reading SVG pictures needs the extra `image`"):
        read_picture(odd[0] / "drawing.svg", size=8)
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "polyseme.media.pictures")
    with pytest.raises(InputError, match="Reading pictures needs the extra `image`"):
        importlib.import_module("polyseme.media.pictures")


def test_many_threads_read_the_same_pixels_as_one(odd) -> None:
    folder, verdicts = odd
    paths = [folder / name for name, verdict in verdicts.items() if verdict == "good"]
    expected = [read_picture(path, size=32) for path in paths]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(partial(read_picture, size=32), paths * 2))
    for pixels, expected_pixels in zip(results, expected * 2, strict=True):
        assert_array_equal(pixels, expected_pixels)


@pytest.mark.parametrize("size", [8, 128])
def test_a_drawing_is_sharp_at_any_size(tmp_path: Path, size: int) -> None:
    pixels = read(DRAWING, tmp_path, size=size)
    left, right = np.split(pixels, 2, axis=1)
    expected = np.broadcast_to(RED, left.shape)
    assert_array_equal(left, expected)
    assert (right == 255).all()


def test_an_empty_drawing_is_white(tmp_path: Path) -> None:
    pixels = read(f"<svg {SVG}/>", tmp_path)
    assert (pixels == 255).all()


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("box", ["0 0 8 2", "0 0 1 100000", "0 0 3 3"])
def test_drawings_of_any_shape_are_framed(framing: str, box: str, tmp_path: Path) -> None:
    markup = f'<svg {SVG} viewBox="{box}"><rect width="100%" height="100%" fill="#111"/></svg>'
    pixels = read(markup, tmp_path, size=32, framing=framing)
    is_dark = (pixels < 40).all(axis=2)
    _, _, width, height = map(float, box.split())
    share = min(width, height) / max(width, height)
    if framing != "pad":
        share = 1.0
    if share > 1e-3:
        assert is_dark.mean() == pytest.approx(max(share, 1 / 32), abs=0.01)


@pytest.mark.parametrize(
    "head",
    [
        '<?xml version="1.0" encoding="ISO-8859-1"?><!-- \xe4 -->',
        "\n \n",
        '<!DOCTYPE svg [<!ENTITY c "#dc141e">]>',
    ],
)
def test_declarations_before_a_drawing_are_understood(head: str, tmp_path: Path) -> None:
    content = (head + DRAWING).encode("latin-1")
    for packed in (content, gzip.compress(content)):
        pixels = read(packed, tmp_path, size=32)
        assert tuple(pixels[16, 8]) == RED


def test_drawings_use_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8), BLUE).save(secret)
    for link in (secret, "secret.png", secret.as_uri()):
        image = f'<image xlink:href="{link}" width="8" height="8"/>'
        pixels = read(f'<svg {SVG} width="8" height="8">{image}</svg>', tmp_path)
        assert (pixels == 255).all()


def test_drawings_use_no_font(tmp_path: Path) -> None:
    text = f'<svg {SVG} width="40" height="40"><text x="0" y="30" font-size="40">W</text></svg>'
    pixels = read(text, tmp_path)
    assert (pixels == 255).all()


def test_where_opening_cannot_be_barred_links_are_refused() -> None:
    inside = f'<svg {SVG}><use xlink:href="#a"/><image href=" data:image/png;base64,AA=="/></svg>'
    _svg_worker._refuse_links(inside)
    with pytest.raises(ValueError, match="refers to another file"):
        _svg_worker._refuse_links(inside.replace("#a", "&#47;etc/x.png"))


def test_drawings_that_take_too_much_are_refused_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = f'<svg {SVG} width="9" height="9">' + "<g>" * 200_000 + "</g>" * 200_000 + "</svg>"
    big = (gzip.compress(b"<svg>" + bytes(30_000_000), 1), DRAWING + " " * 10_000_000)
    for content, reason in (
        (made.svg_bomb(), "is more than the SVG renderer can take"),
        (deep, "is (more than the SVG renderer can take|no picture that can be read)"),
        *((content, "has more than the 10 MB allowed for an SVG") for content in big),
    ):
        with pytest.raises(MediaError, match=f"^{reason}$"):
            read(content, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pictures, "SVG_SECONDS", 1.5)
        with pytest.raises(MediaError, match=r"^takes more than 1.5 seconds to draw$"):
            read(made.slow_svg(), tmp_path)
    assert tuple(read(DRAWING, tmp_path, size=32)[16, 8]) == RED


# ---------------------------------------------------------------------- the ground of a drawing


def ring(value: int, alpha: int = 255, *, mode: str = "RGBA") -> Image.Image:
    """A ring of one value on a transparent ground."""
    picture = Image.new("RGBA", (48, 48), (value, value, value, 0))
    brush = ImageDraw.Draw(picture)
    brush.ellipse((6, 6, 41, 41), fill=(value, value, value, alpha))
    brush.ellipse((16, 16, 31, 31), fill=(value, value, value, 0))
    if mode == "P":
        opaque = picture.getchannel("A").point(lambda a: 1 if a else 0)
        paletted = Image.frombytes("P", picture.size, opaque.tobytes())
        paletted.putpalette([value] * 6)
        return paletted
    return picture.convert(mode) if mode != "RGBA" else picture


def ring_16_bits(value: int) -> bytes:
    """A ring in gray of 16 bits, with one value that is transparent."""
    opacity = np.asarray(ring(value).getchannel("A"))
    pixels = np.full(opacity.shape, 7, np.uint16)
    pixels[opacity > 0] = value * 257
    return made.png16(pixels, (b"tRNS", bytes((0, 7))))


def saved(picture: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def svg_ring(colour: str) -> bytes:
    shape = f'<circle cx="12" cy="12" r="7" fill="none" stroke="{colour}" stroke-width="5"/>'
    return f'<svg {SVG} viewBox="0 0 24 24" style="color:{colour}">{shape}</svg>'.encode()


RINGS = {
    "PNG": lambda value: saved(ring(value), "PNG"),
    "PNG, gray with alpha": lambda value: saved(ring(value, mode="LA"), "PNG"),
    "PNG, palette": lambda value: saved(ring(value, mode="P"), "PNG", transparency=0),
    "PNG, 16 bits": ring_16_bits,
    "GIF": lambda value: saved(ring(value, mode="P"), "GIF", transparency=0),
    "WebP": lambda value: saved(ring(value), "WEBP", lossless=True, exact=True),
    "TIFF": lambda value: saved(ring(value), "TIFF"),
    "SVG": lambda value: svg_ring(f"#{value:02x}{value:02x}{value:02x}"),
}


@pytest.mark.parametrize("make", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("value", [255, 250, 232])
def test_a_light_drawing_on_a_transparent_ground_can_be_seen(make, value, tmp_path: Path) -> None:
    pixels = read(make(value), tmp_path, size=48)
    assert_near(pixels[24, 8], (value,) * 3, within=4)
    assert tuple(pixels[0, 0]) == BLACK
    assert tuple(pixels[24, 24]) == BLACK


@pytest.mark.parametrize("make", RINGS.values(), ids=RINGS)
@pytest.mark.parametrize("value", [0, 128, 220])
def test_a_drawing_that_white_does_not_hide_lies_on_white(make, value, tmp_path: Path) -> None:
    pixels = read(make(value), tmp_path, size=48)
    assert_near(pixels[24, 8], (value,) * 3, within=4)
    assert tuple(pixels[0, 0]) == WHITE
    assert tuple(pixels[24, 24]) == WHITE


def test_a_drawing_in_the_current_colour_is_black_on_white(tmp_path: Path) -> None:
    shape = '<circle cx="12" cy="12" r="9" fill="currentColor"/>'
    pixels = read(f'<svg {SVG} viewBox="0 0 24 24">{shape}</svg>', tmp_path, size=48)
    assert tuple(pixels[24, 24]) == BLACK
    assert tuple(pixels[0, 0]) == WHITE


@pytest.mark.parametrize("framing", FRAMINGS)
def test_what_is_put_around_a_drawing_is_its_own_ground(framing: str, tmp_path: Path) -> None:
    wide = Image.new("RGBA", (96, 48), (255, 255, 255, 0))
    wide.paste(ring(255), (24, 0))
    content = saved(wide, "PNG")
    pixels = read(content, tmp_path, size=48, framing=framing)
    assert tuple(pixels[0, 0]) == BLACK
    assert tuple(pixels[-1, -1]) == BLACK
    assert pixels.max() > 250


@pytest.mark.parametrize(
    ("pixel", "wanted"),
    [
        ((255, 255, 255, 255), WHITE),
        ((250, 250, 250, 255), (250,) * 3),
        ((255, 255, 255, 0), WHITE),
    ],
    ids=["opaque", "opaque and nearly white", "nothing but ground"],
)
def test_where_black_shows_no_more_a_picture_lies_on_white(pixel, wanted, tmp_path: Path) -> None:
    blank = Image.new("RGBA", (60, 30), pixel)
    content = saved(blank, "PNG")
    pixels = read(content, tmp_path, size=16, framing="pad")
    assert tuple(pixels[8, 8]) == wanted
    assert tuple(pixels[0, 0]) == WHITE


def test_white_with_one_dark_line_keeps_the_pixels_it_had(tmp_path: Path) -> None:
    drawing = ring(255)
    drawing.putpixel((8, 24), (200, 200, 200, 255))
    white = Image.new("RGBA", drawing.size, "white")
    white.alpha_composite(drawing)
    pixels = read(saved(drawing, "PNG"), tmp_path, size=48)
    expected = np.asarray(white.convert("RGB"))
    assert_array_equal(pixels, expected)


def test_an_array_with_opacity_lies_on_the_same_ground_as_a_file(tmp_path: Path) -> None:
    for value in (255, 10):
        wanted = read(saved(ring(value), "PNG"), tmp_path, size=48)
        array = np.asarray(ring(value))
        assert_array_equal(picture_from_array(array, size=48), wanted)
        unit = array.astype(np.float32) / 255
        assert_array_equal(picture_from_array(unit, size=48), wanted)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("depth", [8, 16])
def test_the_ground_does_not_depend_on_the_rows_looked_at_together(
    tmp_path: Path, monkeypatch, depth, rows
) -> None:
    content = saved(ring(255), "PNG") if depth == 8 else ring_16_bits(255)
    expected = read(content, tmp_path, size=48)
    monkeypatch.setattr(pictures, "_BAND", 48 * rows)
    assert_array_equal(read(content, tmp_path, size=48), expected)


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.svg", svg_ring("#fff")), ("a.png", saved(ring(255), "PNG"))],
    ids=["svg", "png"],
)
def test_a_thumbnail_of_a_white_drawing_can_be_seen(tmp_path: Path, name, content) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    thumbnail = io.BytesIO(read_thumbnail(path, size=48))
    with Image.open(thumbnail) as small:
        values = np.asarray(small.convert("L"))
    assert values.max() > 240
    assert values[0, 0] < 15
