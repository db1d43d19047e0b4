"""Million Song Dataset files: what is read, and what is refused or not followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

pytest.importorskip("h5py", reason="needs the extra `audio`")

import h5py

from polyseme.media.base import MediaError
from polyseme.media.echonest import read_timbre

TIMBRE = np.random.default_rng(0).normal(scale=50, size=(700, 12))
PACKED: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def write_song(path: Path, make: Callable[[Any], object] | None = None, n_songs: int = 1) -> Path:
    """Write a file of the dataset's layout, with another dataset of segments or the usual one."""
    songs = np.zeros(n_songs, dtype=[("idx_segments_timbre", "i4"), ("track_id", "S32")])
    with h5py.File(path, "w") as file:
        file.create_group("analysis").create_dataset(
            "songs", data=songs, maxshape=(None,), **PACKED
        )
        (make or made_of(TIMBRE, maxshape=(None, 12), **PACKED))(file)
    return path


def made_of(data: NDArray[Any], **options: Any) -> Callable[[Any], object]:
    return lambda file: file["analysis"].create_dataset("segments_timbre", data=data, **options)


def external(file: Any) -> None:
    file["analysis/segments_timbre"] = h5py.ExternalLink(
        "elsewhere.h5", "/analysis/segments_timbre"
    )


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout(shape=TIMBRE.shape, dtype="f8")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "analysis/segments_timbre", shape=TIMBRE.shape)
    file["analysis"].create_virtual_dataset("segments_timbre", layout)


def stored_outside(file: Any) -> None:
    outside = [("secret.bin", 0, TIMBRE.nbytes)]
    file["analysis"].create_dataset("segments_timbre", TIMBRE.shape, "f8", external=outside)


def soft_link(file: Any) -> None:
    file["moved"] = TIMBRE
    file["analysis/segments_timbre"] = h5py.SoftLink("/moved")


def sized(n_rows: int, n_together: int) -> Callable[[Any], object]:
    size: Any = {"shape": (n_rows, 12), "dtype": "f8", "chunks": (n_together, 12)}
    return lambda file: file["analysis"].create_dataset("segments_timbre", **size)


def test_a_songs_timbre_is_read_with_or_without_a_table_of_songs(tmp_path: Path) -> None:
    path = write_song(tmp_path / "song.h5")
    timbre = read_timbre(path)
    assert timbre.dtype == np.float32
    assert_array_equal(timbre, TIMBRE.astype(np.float32))
    with h5py.File(path, "a") as file:
        del file["analysis/songs"]
    assert_array_equal(read_timbre(path), timbre)


def test_files_of_several_songs_are_refused(tmp_path: Path) -> None:
    path = write_song(tmp_path / "songs.h5", n_songs=3)
    with pytest.raises(MediaError, match=r"^holds 3 songs, where one is expected$"):
        read_timbre(path)


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
        (
            made_of(TIMBRE[:, :11]),
            r"shape \(700, 11\), where floats of shape \(n, 12\) are expected",
        ),
        (made_of(np.array(1.0)), r"shape \(\), where"),
        (made_of(np.ones((5, 12), dtype=int)), "as int64 of shape"),
        (made_of(np.ones((0, 12))), "holds 0 segments; 1 to 200,000 are read"),
        (sized(2**40, 1024), "holds 1,099,511,627,776 segments; 1 to 200,000 are read"),
        (sized(2**24, 2**24), "has `segments_timbre` in chunks that are too large"),
        (made_of(np.full((5, 12), np.nan)), "holds timbre that is not finite"),
        (made_of(np.full((5, 12), 1e300)), "holds timbre that is not finite"),
    ],
)
def test_a_file_of_another_layout_is_refused(tmp_path: Path, make, reason: str) -> None:
    write_song(tmp_path / "elsewhere.h5")
    (tmp_path / "secret.bin").write_bytes(TIMBRE.tobytes())
    with pytest.raises(MediaError, match=reason):
        read_timbre(write_song(tmp_path / "song.h5", make))


def test_damaged_files_never_give_another_error(tmp_path: Path) -> None:
    path = write_song(tmp_path / "song.h5")
    generator = np.random.default_rng(0)
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    for share in (0.001, 0.1, 0.5, 0.95):
        path.write_bytes(content[: int(len(content) * share)].tobytes())
        with pytest.raises(MediaError, match=r"^is damaged or not an HDF5 file$"):
            read_timbre(path)
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
