"""The codebook: words as Gaussians, and the share of a clip that falls to each (eq. 10)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from sklearn.base import clone

from polyseme.base.validation import InputError, NotFittedError, PolysemeWarning
from polyseme.media import codebook
from polyseme.media.codebook import Codebook

Clip = NDArray[np.float32]

CENTRES = np.array([[0.0, 0, 0, 0], [10, 0, 0, 0], [0, 10, 0, 0], [5, 5, 20, 0]])


def clips(n: int = 30, d: int = 36, seed: int = 0) -> list[Clip]:
    """Clips of different lengths whose segments lie in clumps of different shape."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(scale=3, size=(12, d))
    spreads = generator.gamma(2, 0.5, size=(12, d))
    lengths = generator.integers(5, 90, size=n)
    frames = []
    for length in lengths:
        clumps_of_segments = generator.integers(0, 12, size=length)
        noise = generator.normal(size=(length, d))
        segments = centres[clumps_of_segments] + spreads[clumps_of_segments] * noise
        frames.append(segments.astype(np.float32))
    return frames


def clumps(counts: Sequence[int], seed: int = 0) -> Clip:
    """One clip with so many segments around each of four far-off centres."""
    generator = np.random.default_rng(seed)
    kinds = np.repeat(np.arange(len(counts)), counts)
    noise = generator.normal(scale=0.3, size=(len(kinds), 4))
    return (CENTRES[kinds] + noise).astype(np.float32)


def words(book: Codebook, clip: Any) -> list[int]:
    """The word of each segment, taken as a clip of its own."""
    return book.transform([row[None] for row in np.asarray(clip)]).argmax(axis=1).tolist()


def most_likely(book: Codebook, clip: Clip) -> list[int]:
    """Each segment's word by scipy's densities, one by one, without the words' weights."""
    chosen = []
    for frame in clip.astype(float):
        scaled = (frame - book.mean_) / book.scale_
        densities = [
            multivariate_normal.logpdf(scaled, mean, np.diag(factor**-2.0))
            for mean, factor in zip(book.means_, book.precisions_cholesky_, strict=True)
        ]
        chosen.append(int(np.argmax(densities)))
    return chosen


def book_of(means: Any, spreads: Any) -> Codebook:
    """A codebook with given words, as if it had been learned from standard frames."""
    centres = np.asarray(means, dtype=float)
    n_words, d = centres.shape
    factors = 1 / np.broadcast_to(np.asarray(spreads, dtype=float), (n_words, d))
    arrays = {"mean": np.zeros(d), "scale": np.ones(d), "means": centres}
    parameters = {"n_words": n_words, "max_frames": 100}
    config = {"parameters": parameters, "n_iter": 1, "log_likelihood": 0.0}
    return Codebook.from_state(config, arrays | {"precisions_cholesky": factors})


def test_words_are_the_most_likely_gaussians_whatever_their_weights(monkeypatch) -> None:
    book = Codebook(n_words=9, random_state=0).fit(clips())
    monkeypatch.setattr(codebook, "BLOCK", 7)  # longer clips are taken in blocks
    for clip in clips(4, seed=1):
        counts = np.bincount(most_likely(book, clip), minlength=9)
        (shares,) = book.transform([clip])
        expected = counts / len(clip)
        assert_allclose(shares, expected)


def test_of_words_at_one_place_the_narrow_one_takes_what_is_near() -> None:
    book = book_of([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [0.1, 0.1]])
    assert words(book, [[0, 0.05], [0.5, 0]]) == [1, 0]


@pytest.mark.parametrize("n_words", [2, 7, 33, 127])
def test_exact_ties_go_to_the_first_word(n_words: int) -> None:
    generator = np.random.default_rng(0)
    mean = generator.normal(size=36)
    spread = generator.gamma(2, 1, size=36)
    means = np.tile(mean, (n_words, 1))
    book = book_of(means, spread)
    # Matrix products of different heights round the same column differently.
    for n_frames in 10 * (1, 3, 5, 7, 50, 145):
        frames = generator.normal(size=(n_frames, 36))
        shares = book.transform([frames])
        assert shares[0, 0] == 1


def test_a_word_that_repeats_an_earlier_one_is_never_taken() -> None:
    book = book_of([[0.0], [0.0], [5.0]], 1.0)
    assert words(book, [[0.1], [5.1], [-3.0]]) == [0, 2, 0]


@pytest.mark.parametrize("far", [1e8, 1e30, 1e300, -1e308])
def test_segments_far_from_everything_have_a_word(far: float) -> None:
    near = clumps([50, 60, 70, 80])
    tiny = 1e-150 * clumps([50, 60, 0, 0]).astype(float)
    for n_words, clip in ((4, near), (2, tiny)):
        book = Codebook(n_words=n_words, random_state=0).fit([clip])
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            shares = book.transform([np.full((3, 4), far)])
        assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("far", [1e8, 1e30, 1e300, -1e308])
def test_words_are_finite_beside_a_segment_far_away(far: float) -> None:
    book = Codebook(n_words=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", PolysemeWarning)  # beside it all others look the same
        book.fit([clumps([50, 60, 70, 80]), np.full((1, 4), far)])
    assert np.isfinite(book.means_).all()
    assert np.isfinite(book.precisions_cholesky_).all()


@settings(deadline=None, max_examples=25)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_rows_sum_to_one_and_do_not_depend_on_their_company(lengths: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    means = generator.normal(size=(5, 4))
    spreads = generator.gamma(2, 1, size=(5, 4))
    book = book_of(means, spreads)
    clips = [generator.normal(size=(n, 4)) for n in lengths]
    rows = book.transform(clips)
    assert_allclose(rows.sum(axis=1), 1)
    for clip, row in zip(clips, rows, strict=True):
        (alone,) = book.transform([clip[::-1]])
        assert_array_equal(alone, row)


def test_a_clip_without_segments_has_zeros_and_a_warning() -> None:
    book = Codebook(n_words=4, random_state=0).fit([clumps([50, 60, 70, 80])])
    no_segments = np.zeros((0, 4))
    with pytest.warns(PolysemeWarning, match=r"^1 of 2 clips have no segments and get zeros: 1\.$"):
        shares = book.transform([clumps([1, 1, 0, 0]), no_segments])
    assert_array_equal(shares.sum(axis=1), [1, 0])
    shares_of_none = book.transform([])
    assert shares_of_none.shape == (0, 4)


def test_learning_takes_the_same_rounds_as_scikit_learn() -> None:
    from sklearn.mixture import GaussianMixture

    frames = np.concatenate(clips(60, d=6)).astype(float)
    book = Codebook(n_words=8, random_state=0).fit([frames])
    frames = (frames - book.mean_) / book.scale_
    seed = codebook.draw_seed(np.random.default_rng(0))
    start = codebook._starting_words(frames, 8, seed)
    counts = np.bincount(start)
    means = np.eye(8)[start].T @ frames / counts[:, None]
    variances = np.stack([frames[start == word].var(axis=0) for word in range(8)]) + 1e-6
    reference = GaussianMixture(
        8,
        covariance_type="diag",
        max_iter=300,
        weights_init=counts / len(frames),
        means_init=means,
        precisions_init=1 / variances,
    ).fit(frames)
    assert book.n_iter_ == reference.n_iter_ > 3
    assert book.log_likelihood_ == pytest.approx(reference.lower_bound_, abs=1e-9)
    assert_allclose(book.means_, reference.means_, atol=1e-7)
    factors = reference.precisions_cholesky_
    assert_allclose(book.precisions_cholesky_, factors, rtol=1e-6)


def test_fewer_different_segments_than_words_give_fewer_words() -> None:
    segments = np.float32([[0, 0], [1, 5], [4, 2]])
    frames = np.repeat(segments, 10, axis=0)
    book = Codebook(n_words=8, random_state=0)
    with pytest.warns(PolysemeWarning, match="only 3 different segments to learn 8 words from"):
        book.fit([frames])
    of_one_segment, of_all = book.transform([frames[:10], frames])
    assert sorted(of_one_segment.tolist()) == [0, 0, 1]
    assert_allclose(of_all, 1 / 3)


def test_a_single_segment_gives_a_single_word() -> None:
    book = Codebook(n_words=5, random_state=0)
    with pytest.warns(PolysemeWarning, match="only 1 different segments"):
        book.fit([np.ones((1, 3))])
    shares = book.transform([np.ones((4, 3))])
    assert_array_equal(shares, [[1.0]])


@pytest.fixture
def book() -> Codebook:
    generator = np.random.default_rng(0)
    return Codebook(n_words=5, random_state=generator).fit(clips(d=5))


def test_a_restored_codebook_gives_the_same_bit_for_bit(book: Codebook) -> None:
    config, arrays = book.get_state()
    text = json.dumps(config, allow_nan=False)
    restored = Codebook.from_state(json.loads(text), arrays)
    test_clips = clips(20, d=5, seed=7)
    shares = restored.transform(test_clips)
    assert_array_equal(shares, book.transform(test_clips))
    restored_config, _ = restored.get_state()
    assert restored_config == config


def test_a_state_without_an_array_is_refused(book: Codebook) -> None:
    config, arrays = book.get_state()
    arrays = dict(arrays)
    del arrays["mean"]
    with pytest.raises(InputError, match="there is no 'mean'"):
        Codebook.from_state(config, arrays)


def test_transform_needs_fit_and_the_same_columns(book: Codebook) -> None:
    with pytest.raises(NotFittedError, match="This Codebook is not fitted yet"):
        clone(book).transform(clips(1, d=5))
    with pytest.raises(InputError, match="Clip 0 has 4 columns but `Codebook` was fitted with 5"):
        book.transform(clips(1, d=4))


def test_the_generator_decides_the_words(book: Codebook) -> None:
    def learn(seed: int) -> NDArray[np.float64]:
        generator = np.random.default_rng(seed)
        learned = Codebook(n_words=5, random_state=generator)
        learned.fit(clips(d=5))
        return learned.means_

    assert_array_equal(learn(0), book.means_)
    assert not np.array_equal(learn(1), book.means_)


@pytest.mark.parametrize(
    ("parameters", "segments", "message"),
    [
        ({"n_words": 0}, clips(d=5), "`n_words` of `Codebook` must be a whole number at least 1"),
        ({"max_frames": 2.5}, clips(d=5), "`max_frames` of `Codebook` must be a whole number"),
        ({}, [], "must hold at least one segment; got none"),
        ({}, [np.zeros((0, 3))], "must hold at least one segment; got none"),
        ({}, np.zeros((4, 3)), r"one matrix of numbers .* clip 0 has 1 dimension"),
        ({}, [np.zeros((4, 3)), np.zeros((4, 2))], "Clip 1 has 2 columns but the first has 3"),
        ({}, [np.array([["a"]])], "clip 0 has 2 dimension"),
        ({}, [np.zeros((4, 3)), np.full((1, 3), np.nan)], "NaN or infinity in clip 1"),
    ],
)
def test_parameters_and_segments_are_checked(parameters, segments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Codebook(**parameters).fit(segments)
