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
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from polyseme._estimator import copy_of
from polyseme._validation import InputError, NotFittedError, PolysemeWarning
from polyseme.features._mixture import Mixture, _expect, fit_diagonal, starting_words
from polyseme.features.codebook import Codebook

Clip = NDArray[np.float32]

CENTRES = np.array([[0.0, 0, 0, 0], [10, 0, 0, 0], [0, 10, 0, 0], [5, 5, 20, 0]])


def clips(n: int = 30, d: int = 36, seed: int = 0) -> list[Clip]:
    """Clips of different lengths whose segments lie in clumps of different shape."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(scale=3, size=(12, d))
    spreads = generator.gamma(2, 0.5, size=(12, d))
    found = []
    for _ in range(n):
        kinds = generator.integers(0, 12, size=generator.integers(5, 90))
        frames = centres[kinds] + spreads[kinds] * generator.normal(size=(len(kinds), d))
        found.append(frames.astype(np.float32))
    return found


def clumps(counts: Sequence[int], seed: int = 0) -> Clip:
    """One clip with so many segments around each of four far-off centres."""
    generator = np.random.default_rng(seed)
    kinds = np.repeat(np.arange(len(counts)), counts)
    noise = generator.normal(scale=0.3, size=(len(kinds), 4))
    return (CENTRES[kinds] + noise).astype(np.float32)


def most_likely(book: Codebook, clip: Clip) -> list[int]:
    """Each segment's word by scipy's densities, one by one, without the words' weights."""
    found = []
    for frame in clip.astype(float):
        scaled = (frame - book.mean_) / book.scale_
        densities = []
        for mean, factor in zip(book.means_, book.precisions_cholesky_, strict=True):
            precision = np.diag(factor**2) if factor.ndim == 1 else factor @ factor.T
            covariance = np.linalg.inv(precision)
            densities.append(multivariate_normal.logpdf(scaled, mean, covariance))
        found.append(int(np.argmax(densities)))
    return found


def book_of(means: Any, spreads: Any, weights: Any = None) -> Codebook:
    """A codebook with given words, as if it had been learned from standard frames."""
    centres = np.asarray(means, dtype=float)
    n_words, d = centres.shape
    arrays = {
        "mean": np.zeros(d),
        "scale": np.ones(d),
        "means": centres,
        "precisions_cholesky": 1 / np.broadcast_to(np.asarray(spreads, dtype=float), (n_words, d)),
        "weights": np.full(n_words, 1 / n_words) if weights is None else np.asarray(weights),
    }
    config = {
        "parameters": {"n_words": n_words},
        "n_iter": 1,
        "converged": True,
        "log_likelihood": 0.0,
    }
    return Codebook.from_state(config, arrays)


# ------------------------------------------------------------------------------- equation (10)


def test_shares_count_the_segments_of_each_clump() -> None:
    book = Codebook(n_words=4, random_state=0).fit([clumps([50, 60, 70, 80])])
    order = [int(book.words(np.float32([centre]))[0]) for centre in CENTRES]
    assert sorted(order) == [0, 1, 2, 3]
    shares = book.transform([clumps([1, 2, 3, 4], seed=1), clumps([0, 5, 0, 0], seed=2)])
    np.testing.assert_allclose(shares[:, order], [[0.1, 0.2, 0.3, 0.4], [0, 1, 0, 0]])


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_words_are_the_most_likely_gaussians(covariance: str) -> None:
    training = clips()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        book = Codebook(
            n_words=9, covariance=covariance, max_iterations=15, random_state=0
        ).fit(training)  # fmt: skip
    for clip in clips(4, seed=1):
        np.testing.assert_array_equal(book.words(clip), most_likely(book, clip))
        expected = np.bincount(most_likely(book, clip), minlength=9) / len(clip)
        np.testing.assert_allclose(book.transform([clip])[0], expected)


def test_weights_do_not_enter() -> None:
    clip = np.float32([[0.4], [0.6]])
    for weights in ([0.5, 0.5], [0.999, 0.001], [0.001, 0.999]):
        book = book_of([[0.0], [1.0]], 1.0, weights)
        np.testing.assert_array_equal(book.words(clip), [0, 1])


def test_a_narrow_word_wins_near_its_centre_only() -> None:
    book = book_of([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [0.1, 0.1]])
    np.testing.assert_array_equal(book.words(np.float32([[0, 0.05], [0.5, 0]])), [1, 0])


@pytest.mark.parametrize("n_words", [2, 5, 7, 33, 65, 127])
def test_exact_ties_go_to_the_first_word(n_words: int) -> None:
    generator = np.random.default_rng(0)
    book = book_of(np.tile(generator.normal(size=36), (n_words, 1)), generator.gamma(2, 1, size=36))
    # Matrix products of different heights round the same column differently.
    for n_frames in 10 * (1, 3, 5, 7, 50, 145):
        frames = generator.normal(size=(n_frames, 36))
        assert set(book.words(frames).tolist()) == {0}
    mirrored = book_of([[-1.0], [1.0]], 0.5)
    assert mirrored.words(np.zeros((1, 1), dtype=np.float32)).tolist() == [0]


def test_a_later_copy_of_a_word_leaves_the_others_their_numbers() -> None:
    book = book_of([[0.0], [0.0], [5.0]], 1.0)
    np.testing.assert_array_equal(book.words(np.float32([[0.1], [5.1], [-3.0]])), [0, 2, 0])


@pytest.mark.parametrize("covariance", ["diag", "full"])
@pytest.mark.parametrize("far", [1e8, 1e30, 1e300, -1e308])
def test_a_segment_far_from_everything_still_has_a_word(covariance: str, far: float) -> None:
    book = Codebook(n_words=4, covariance=covariance, random_state=0)
    book.fit([clumps([50, 60, 70, 80])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shares = book.transform([np.full((3, 4), far)])
    assert np.isfinite(shares).all() and shares.sum() == pytest.approx(1)


def test_a_tiny_spread_and_a_far_segment_do_not_overflow() -> None:
    book = Codebook(n_words=2, random_state=0).fit([1e-150 * clumps([50, 60, 0, 0]).astype(float)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert book.transform([np.full((2, 4), 1e99)]).sum() == 1


def test_an_outlier_among_training_segments_is_survived() -> None:
    wild = np.full((1, 4), 1e300)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", PolysemeWarning)  # beside it all others look the same
        book = Codebook(n_words=3, random_state=0).fit([clumps([50, 60, 70, 80]), wild])
    assert np.isfinite(book.means_).all() and np.isfinite(book.precisions_cholesky_).all()


@settings(deadline=None, max_examples=25)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_rows_sum_to_one_and_do_not_depend_on_their_company(lengths: list[int], seed: int) -> None:
    generator = np.random.default_rng(seed)
    book = book_of(generator.normal(size=(5, 4)), generator.gamma(2, 1, size=(5, 4)))
    found = [generator.normal(size=(n, 4)) for n in lengths]
    together = book.transform(found)
    np.testing.assert_allclose(together.sum(axis=1), 1)
    for clip, row in zip(found, together, strict=True):
        np.testing.assert_array_equal(book.transform([clip[::-1]])[0], row)


def test_long_clips_are_taken_in_blocks_with_the_same_result() -> None:
    book = Codebook(n_words=4, random_state=0).fit([clumps([50, 60, 70, 80])])
    long = clumps([3000, 10, 2500, 700], seed=3)
    pieces = np.concatenate([book.words(long[one : one + 7]) for one in range(0, len(long), 7)])
    np.testing.assert_array_equal(book.words(long), pieces)


def test_a_clip_without_segments_has_zeros_and_a_warning() -> None:
    book = Codebook(n_words=4, random_state=0).fit([clumps([50, 60, 70, 80])])
    with pytest.warns(PolysemeWarning, match=r"^1 of 2 clips have no segments and get zeros: 1\.$"):
        shares = book.transform([clumps([1, 1, 0, 0]), np.zeros((0, 4))])
    np.testing.assert_array_equal(shares[1], 0)
    assert shares[0].sum() == 1


# ------------------------------------------------------------------------------- learning


def test_learning_takes_the_same_rounds_as_scikit_learn() -> None:
    from sklearn.mixture import GaussianMixture

    frames = np.concatenate(clips(60, d=6)).astype(float)
    frames = (frames - frames.mean(axis=0)) / frames.std(axis=0)
    start = starting_words(frames, 8, seed=0)
    shares = np.eye(8)[start]
    counts = shares.sum(axis=0)
    means = shares.T @ frames / counts[:, None]
    variances = np.stack([frames[start == word].var(axis=0) for word in range(8)]) + 1e-6
    reference = GaussianMixture(
        8,
        covariance_type="diag",
        max_iter=300,
        weights_init=counts / len(frames),
        means_init=means,
        precisions_init=1 / variances,
    ).fit(frames)
    found = fit_diagonal(frames, start, 300, 1e-3)
    assert found.n_iter == reference.n_iter_ > 3 and found.converged
    assert found.log_likelihood == pytest.approx(reference.lower_bound_, abs=1e-9)
    np.testing.assert_allclose(found.means, reference.means_, atol=1e-7)
    np.testing.assert_allclose(found.weights, reference.weights_, atol=1e-9)
    np.testing.assert_allclose(found.precisions_cholesky, reference.precisions_cholesky_, rtol=1e-6)


def test_segments_far_from_every_word_are_shared_out_like_in_a_plain_loop() -> None:
    frames = np.array([[0.0, 0.0], [0.4, 1.0], [200.0, 0.0], [-90.0, 400.0]])
    means, spreads = np.array([[0.0, 0.0], [1.0, 2.0]]), np.array([[1.0, 0.5], [2.0, 1.0]])
    weights = np.array([0.3, 0.7])
    sums, average = _expect(frames, Mixture(means, 1 / spreads, weights))
    expected, total = np.zeros((2, 5)), 0.0
    for frame in frames:
        logs = [
            np.log(weights[word])
            + multivariate_normal.logpdf(frame, means[word], np.diag(spreads[word] ** 2))
            for word in range(2)
        ]
        whole = np.logaddexp(*logs)
        total += whole
        for word in range(2):
            expected[word] += np.exp(logs[word] - whole) * np.array([1, *frame, *frame**2])
    np.testing.assert_allclose(sums, expected, rtol=1e-9)
    assert average == pytest.approx(total / 4)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_the_mixture_is_as_likely_as_scikit_learns_own(covariance: str) -> None:
    from sklearn.mixture import GaussianMixture

    training = clips(80, d=6)
    book = Codebook(n_words=12, covariance=covariance, random_state=0).fit(training)
    frames = (np.concatenate(training) - book.mean_) / book.scale_
    reference = GaussianMixture(
        12, covariance_type=covariance, max_iter=300, random_state=0
    ).fit(frames)  # fmt: skip
    assert book.log_likelihood_ > reference.lower_bound_ - 0.15


def test_segments_are_drawn_over_all_clips() -> None:
    training = [np.full((100, 1), number, dtype=np.float32) for number in range(50)]
    book = Codebook(n_words=2, max_frames=2500, random_state=0).fit(training)
    assert book.mean_[0] == pytest.approx(24.5, abs=1.0)
    assert book.mean_[0] != 24.5
    first = Codebook(n_words=2, max_frames=5000, random_state=0).fit(training)
    assert first.mean_[0] == 24.5


def test_the_draw_is_even_and_without_repetition() -> None:
    from polyseme.features.codebook import _draw

    lengths = (3, 0, 500, 1, 96)
    parts = np.split(np.arange(600.0)[:, None], np.cumsum(lengths)[:-1])
    counts = np.zeros(600)
    for seed in range(200):
        drawn = _draw(parts, 150, np.random.default_rng(seed))[:, 0].astype(int)
        assert len(set(drawn.tolist())) == 150
        counts[drawn] += 1
    assert counts.min() > 20 and counts.max() < 85  # 50 expected, spread 6


def test_the_same_seed_gives_the_same_codebook_and_another_one_another() -> None:
    training = clips()
    first, same, other = (
        Codebook(n_words=6, max_frames=500, random_state=seed).fit(training) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.means_, same.means_)
    assert not np.array_equal(first.means_, other.means_)


def test_fewer_different_segments_than_words_give_fewer_words() -> None:
    frames = np.repeat(np.float32([[0, 0], [1, 5], [4, 2]]), 10, axis=0)
    with pytest.warns(PolysemeWarning, match="only 3 different segments to learn 8 words from"):
        book = Codebook(n_words=8, random_state=0).fit([frames])
    assert book.n_words_ == 3
    shares = book.transform([frames[:10], frames])
    assert sorted(shares[0].tolist()) == [0, 0, 1]
    np.testing.assert_allclose(shares[1], 1 / 3)


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_one_segment_is_enough_for_one_word(covariance: str) -> None:
    with pytest.warns(PolysemeWarning, match="only 1 different segments"):
        book = Codebook(n_words=5, covariance=covariance, random_state=0).fit([np.ones((1, 3))])
    np.testing.assert_array_equal(book.transform([np.ones((4, 3))]), [[1.0]])


def test_a_column_that_never_changes_is_no_hindrance() -> None:
    frames = clumps([50, 60, 70, 80])
    frames[:, 3] = 1e6 / 3
    book = Codebook(n_words=3, random_state=0).fit([frames])
    assert book.scale_[3] == 1 and np.isfinite(book.transform([frames])).all()


def test_many_equal_segments_do_not_disturb_the_rest() -> None:
    silence = np.tile(np.float32([-8, 0, 0, 0]), (400, 1))
    book = Codebook(n_words=5, random_state=0).fit([silence, clumps([50, 60, 70, 80])])
    assert len(set(book.words(silence).tolist())) == 1
    words = book.words(CENTRES.astype(np.float32)).tolist()
    assert book.words(silence)[0] not in words and len(set(words)) >= 3


def test_every_word_starts_with_a_segment() -> None:
    frames = np.concatenate([np.zeros((2000, 2)), np.random.default_rng(0).normal(size=(40, 2))])
    for seed in range(5):
        counts = np.bincount(starting_words(frames, 30, seed), minlength=30)
        assert counts.min() > 0


def test_too_few_rounds_are_said_in_our_words() -> None:
    for covariance in ("diag", "full"):
        book = Codebook(n_words=20, covariance=covariance, max_iterations=2, random_state=0)
        with pytest.warns(PolysemeWarning, match="has not converged after 2 rounds") as caught:
            book.fit(clips(d=4))
        assert not book.converged_ and len(caught) == 1


# ------------------------------------------------------------------------------- saving, checks


@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_a_restored_codebook_gives_the_same_bit_for_bit(covariance: str) -> None:
    book = Codebook(n_words=5, covariance=covariance, random_state=np.random.default_rng(0))
    book.fit(clips(d=5))
    config, arrays = book.get_state()
    config = json.loads(json.dumps(config, allow_nan=False))
    copies = {name: array.copy() for name, array in arrays.items()}
    again = Codebook.from_state(config, copies)
    test = clips(20, d=5, seed=7)
    np.testing.assert_array_equal(again.transform(test), book.transform(test))
    assert again.get_state()[0] == config
    for name, array in again.get_state()[1].items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_state_that_lacks_something_is_refused() -> None:
    config, arrays = Codebook(n_words=3, random_state=0).fit(clips(d=5)).get_state()
    with pytest.raises(InputError, match=r"lacks the array\(s\) mean, weights"):
        Codebook.from_state(
            config, {k: v for k, v in arrays.items() if k not in ("mean", "weights")}
        )
    with pytest.raises(InputError, match="arrays that do not fit each other"):
        Codebook.from_state(config, arrays | {"scale": np.ones(4)})


def test_a_clone_is_unfitted_and_has_the_parameters() -> None:
    book = Codebook(n_words=3, random_state=0).fit(clips(d=5))
    copied = copy_of(book)
    assert copied.get_params() == book.get_params()
    with pytest.raises(NotFittedError, match="This Codebook is not fitted yet"):
        copied.transform(clips(d=5))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_words": 0}, "`n_words` of `Codebook` must be a whole number at least 1"),
        ({"covariance": "tied"}, "`covariance` of `Codebook` must be one of 'diag', 'full'"),
        ({"max_frames": 2.5}, "`max_frames` of `Codebook` must be a whole number"),
        ({"max_iterations": 0}, "`max_iterations` of `Codebook` must be a whole number"),
        ({"tolerance": -1}, "`tolerance` of `Codebook` must be a number at least 0"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Codebook(**parameters).fit(clips(d=5))


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([], "must hold at least one segment; got none"),
        ([np.zeros((0, 3))], "must hold at least one segment; got none"),
        (np.zeros((4, 3)), r"one matrix of numbers .* clip 0 has 1 dimension"),
        ([np.zeros((4, 3)), np.zeros((4, 2))], "Clip 1 has 2 columns but the first has 3"),
        ([np.zeros((4, 0))], "Clip 0 has 0 columns"),
        ([np.array([["a"]])], "clip 0 has 2 dimension"),
        ([np.zeros((4, 3)), np.full((1, 3), np.nan)], "NaN or infinity in clip 1"),
        ([np.full((1, 3), np.inf)], "NaN or infinity in clip 0"),
    ],
)
def test_segments_are_checked(segments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Codebook(n_words=2).fit(segments)


def test_clips_of_another_width_are_refused() -> None:
    book = Codebook(n_words=2, random_state=0).fit(clips(d=5))
    with pytest.raises(InputError, match="Clip 0 has 4 columns but `Codebook` was fitted with 5"):
        book.transform(clips(1, d=4))
    assert book.transform([]).shape == (0, 2)
