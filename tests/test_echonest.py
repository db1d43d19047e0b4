"""Million Song Dataset files: what is read, and what is refused or not followed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("soundfile", reason="needs the extra `audio`")
pytest.importorskip("h5py", reason="needs the extra `audio`")

import h5py

from polyseme._validation import InputError
from polyseme.features.echonest import read_songs, read_timbre
from polyseme.features.media import MediaError
from sound_files import write_song

TIMBRE = np.random.default_rng(0).normal(scale=50, size=(700, 12))


def replace_with(make: Callable[[Any], object]) -> Callable[[Any], None]:
    """Put something else in the place of the dataset of segments."""

    def change(file: Any) -> None:
        del file["analysis/segments_timbre"]
        make(file)

    return change


def test_a_songs_timbre_is_read(tmp_path: Path) -> None:
    write_song(tmp_path / "song.h5", TIMBRE)
    found = read_timbre(tmp_path / "song.h5")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, TIMBRE.astype(np.float32))
    ((name, same),) = read_songs(tmp_path / "song.h5")
    assert name == "TRAAAAW128F429D538"
    np.testing.assert_array_equal(same, found)


def test_several_songs_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "songs.h5"
    write_song(path, TIMBRE, track_ids=("A", "B", "C"), starts=(0, 300, 300))
    found = list(read_songs(path))
    assert [name for name, _ in found] == ["A", "B", "C"]
    for (_, rows), (start, end) in zip(found, [(0, 300), (300, 300), (300, 700)], strict=True):
        np.testing.assert_array_equal(rows, TIMBRE[start:end].astype(np.float32))
    with pytest.raises(MediaError, match=r"^holds 3 songs, where one is expected$"):
        read_timbre(path)


def test_a_file_without_a_table_of_songs_goes_by_its_name(tmp_path: Path) -> None:
    write_song(tmp_path / "TR1.h5", TIMBRE, change=lambda file: file.pop("analysis/songs"))
    ((name, rows),) = read_songs(tmp_path / "TR1.h5")
    assert name == "TR1" and len(rows) == 700
    assert len(read_timbre(tmp_path / "TR1.h5")) == 700


def test_the_column_of_starts_may_be_missing_for_one_song_only(tmp_path: Path) -> None:
    write_song(tmp_path / "one.h5", TIMBRE, starts=None)
    assert [len(rows) for _, rows in read_songs(tmp_path / "one.h5")] == [700]
    write_song(tmp_path / "two.h5", TIMBRE, track_ids=("A", "B"), starts=None)
    with pytest.raises(MediaError, match="has no `idx_segments_timbre` in its table of songs"):
        list(read_songs(tmp_path / "two.h5"))


@pytest.mark.parametrize("starts", [(5, 10), (0, 800), (300, 0), (0, -1)])
def test_starts_that_make_no_sense_are_refused(tmp_path: Path, starts: tuple[int, int]) -> None:
    write_song(tmp_path / "songs.h5", TIMBRE, track_ids=("A", "B"), starts=starts)
    with pytest.raises(MediaError, match="rows in `idx_segments_timbre` that do not ascend"):
        list(read_songs(tmp_path / "songs.h5"))


def external(file: Any) -> None:
    with h5py.File(Path(file.filename).with_name("elsewhere.h5"), "w") as other:
        other["segments_timbre"] = TIMBRE
    file["analysis/segments_timbre"] = h5py.ExternalLink("elsewhere.h5", "/segments_timbre")


def virtual(file: Any) -> None:
    with h5py.File(Path(file.filename).with_name("elsewhere.h5"), "w") as other:
        other["segments_timbre"] = TIMBRE
    layout = h5py.VirtualLayout(shape=TIMBRE.shape, dtype="f8")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "segments_timbre", shape=TIMBRE.shape)
    file["analysis"].create_virtual_dataset("segments_timbre", layout)


def stored_outside(file: Any) -> None:
    outside = Path(file.filename).with_name("secret.bin")
    outside.write_bytes(TIMBRE.tobytes())
    file["analysis"].create_dataset(
        "segments_timbre", TIMBRE.shape, "f8", external=[(str(outside), 0, TIMBRE.nbytes)]
    )


def soft_link(file: Any) -> None:
    file["moved"] = TIMBRE
    file["analysis/segments_timbre"] = h5py.SoftLink("/moved")


def made_of(data: NDArray[Any], **options: Any) -> Callable[[Any], None]:
    return lambda file: file["analysis"].create_dataset("segments_timbre", data=data, **options)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda file: None, "has no dataset `/analysis/segments_timbre`"),
        (lambda file: file.pop("analysis"), "has no dataset `/analysis/segments_timbre`"),
        (lambda file: file["analysis"].create_group("segments_timbre"), "has no dataset"),
        (external, "has a link in the place of `segments_timbre`"),
        (soft_link, "has a link in the place of `segments_timbre`"),
        (virtual, "keeps `segments_timbre` in other files"),
        (stored_outside, "keeps `segments_timbre` in other files"),
        (made_of(TIMBRE, compression="lzf"), "packed in a way that is not read"),
        (made_of(TIMBRE[:, :11]), r"shape \(700, 11\), where \(n, 12\) is expected"),
        (made_of(TIMBRE[0]), r"shape \(12,\), where \(n, 12\) is expected"),
        (made_of(np.array(1.0)), r"shape \(\), where"),
        (made_of(np.ones((5, 12), dtype=int)), "type int64, where floats are expected"),
        (made_of(np.ones((5, 12), dtype="S4")), r"type \|S4, where floats are expected"),
        (made_of(np.ones((0, 12))), "holds no segments"),
        (made_of(np.full((5, 12), np.nan)), "holds timbre that is not finite"),
        (made_of(np.full((5, 12), 1e300)), "holds timbre that is not finite"),
    ],
)
def test_a_file_of_another_layout_is_refused(
    tmp_path: Path, make: Callable[[Any], None], reason: str
) -> None:
    write_song(tmp_path / "song.h5", TIMBRE, change=replace_with(make))
    with pytest.raises(MediaError, match=reason):
        read_timbre(tmp_path / "song.h5")


def test_what_a_file_claims_takes_no_memory(tmp_path: Path) -> None:
    def huge(file: Any) -> None:
        file["analysis"].create_dataset("segments_timbre", (2**40, 12), "f8", chunks=(1024, 12))

    def thick(file: Any) -> None:
        shape = (2**24, 12)
        file["analysis"].create_dataset("segments_timbre", shape, "f8", chunks=shape)

    write_song(tmp_path / "huge.h5", TIMBRE, change=replace_with(huge))
    with pytest.raises(MediaError, match="a song of 1,099,511,627,776 segments; up to 200,000"):
        read_timbre(tmp_path / "huge.h5")
    write_song(tmp_path / "thick.h5", TIMBRE, change=replace_with(thick))
    with pytest.raises(MediaError, match="has `segments_timbre` in chunks that are too large"):
        read_timbre(tmp_path / "thick.h5")


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.95])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "song.h5"
    write_song(path, TIMBRE)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(MediaError, match=r"^is damaged or not an HDF5 file$"):
        read_timbre(path)


def test_damaged_bytes_never_give_another_error(tmp_path: Path) -> None:
    path, generator = tmp_path / "song.h5", np.random.default_rng(0)
    write_song(path, TIMBRE)
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    n_refused = 0
    for _ in range(60):
        damaged = content.copy()
        damaged[generator.integers(len(content), size=200)] = generator.integers(0, 256, size=200)
        path.write_bytes(damaged.tobytes())
        try:
            assert np.isfinite(read_timbre(path)).all()
        except MediaError:
            n_refused += 1
    assert n_refused > 20


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match=r"^is not there$"):
        read_timbre(tmp_path / "nothing.h5")
    with pytest.raises(MediaError, match=r"^is not a regular file$"):
        read_timbre(tmp_path)


def test_a_missing_extra_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_song(tmp_path / "song.h5", TIMBRE)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InputError, match=r"^Reading Million Song Dataset files needs the extra"):
        read_timbre(tmp_path / "song.h5")
