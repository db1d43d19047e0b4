"""`AudioFeatures`: files, samples and Million Song Dataset files become bags of words."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("soundfile", reason="needs the extra `audio`")
pytest.importorskip("h5py", reason="needs the extra `audio`")

import h5py
import soundfile
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from polyseme import AudioFeatures, ZeroShotTagger, load
from polyseme._validation import InputError, NotFittedError
from polyseme.features import Extracted
from polyseme.features.timbre import with_derivatives

RATE = 22_050


def tone(pitch: float, seconds: float = 1.5, rate: int = RATE) -> np.ndarray:
    """Notes four times a second with a few overtones."""
    at = np.arange(int(seconds * rate)) / rate
    wave = sum(np.sin(2 * np.pi * pitch * k * at) / k for k in range(1, 6))
    return (0.2 * wave * np.exp(-6 * (at % 0.25))).astype(np.float32)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Low and high clips as WAV, FLAC, OGG and MP3 files, mono and stereo, at several rates."""
    folder = tmp_path_factory.mktemp("clips")
    paths = []
    for number in range(12):
        rate = (22_050, 44_100, 48_000)[number % 3]
        suffix = ("wav", "flac", "ogg", "mp3")[number % 4]
        wave = tone((110, 880)[number % 2] * (1 + number / 50), rate=rate)
        paths.append(folder / f"{number:02}.{suffix}")
        soundfile.write(paths[-1], np.stack([wave, wave], axis=1) if number % 5 else wave, rate)
    return paths


@pytest.fixture(scope="module")
def fitted(clips):
    return AudioFeatures(n_words=8, random_state=0).fit(clips)


def test_features_are_shares_of_words_which_differ_between_low_and_high(clips, fitted):
    table = fitted.transform(clips)
    assert table.shape == (len(clips), 8) == (len(clips), fitted.n_features_out_)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    low, high = table[0::2], table[1::2]
    within = np.abs(low - low.mean(axis=0)).sum(axis=1).mean()
    assert np.abs(low.mean(axis=0) - high.mean(axis=0)).sum() > 1.5 * within


def test_samples_count_as_files_do(clips, fitted):
    samples, rate = soundfile.read(clips[0], dtype="float32")
    assert rate == RATE
    of_file = fitted.transform([clips[0]])
    np.testing.assert_allclose(fitted.transform([samples]), of_file, atol=1e-6)
    doubled = np.stack([samples, samples], axis=1)
    np.testing.assert_allclose(fitted.transform([doubled]), of_file, atol=1e-6)
    wave = tone(440, rate=44_100)
    path = clips[0].with_name("tone.wav")
    soundfile.write(path, wave, 44_100, subtype="FLOAT")
    other = AudioFeatures.from_state(*fitted.get_state()).set_params(rate=44_100)
    np.testing.assert_allclose(other.transform([wave]), fitted.transform([path]), atol=1e-6)


def test_million_song_files_bring_their_own_timbre(tmp_path, fitted):
    timbre = np.random.default_rng(0).normal(size=(40, 12))
    with h5py.File(tmp_path / "song.h5", "w") as file:
        file.create_dataset("analysis/segments_timbre", data=timbre)
    (raw,) = AudioFeatures().extract([tmp_path / "song.h5"])
    np.testing.assert_allclose(raw, with_derivatives(timbre.astype(np.float32)), atol=1e-6)
    assert fitted.transform([tmp_path / "song.h5"]).sum() == pytest.approx(1.0)


def test_the_codebook_is_learned_by_fit_alone_and_saved(clips, fitted):
    with pytest.raises(NotFittedError, match="not fitted"):
        AudioFeatures().transform(clips[:1])
    before = fitted.transform(clips[:4])
    fitted.transform(clips[4:])
    np.testing.assert_array_equal(before, fitted.transform(clips[:4]))
    again = AudioFeatures.from_state(*fitted.get_state())
    np.testing.assert_array_equal(before, again.transform(clips[:4]))
    refitted = clone(fitted).set_params(n_jobs=4).fit(clips)
    np.testing.assert_array_equal(before, refitted.transform(clips[:4]))
    raw = fitted.raw(clips[:4])
    assert all(one.shape[1] == 36 and one.dtype == np.float32 for one in raw)
    extracted = Extracted("audio", fitted.preprocessing(), tuple("abcd"), raw)
    np.testing.assert_array_equal(before, fitted.transform(extracted))


def test_a_tagger_goes_from_sound_to_tags(clips, tiny_space, tmp_path):
    documents = [["low", "slow"] if number % 2 == 0 else ["high", "fast"] for number in range(12)]
    tagger = ZeroShotTagger(
        space=tiny_space(n_steps=60), features=AudioFeatures(n_words=8), random_state=0
    ).fit(clips, documents)
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    labels, scores = loaded.rank(clips, k=4)
    np.testing.assert_array_equal(scores, tagger.rank(clips, k=4)[1])
    found = [set(row[:2]) == set(document) for row, document in zip(labels, documents, strict=True)]
    assert np.mean(found) >= 0.75
    pipeline = make_pipeline(
        AudioFeatures(n_words=8, random_state=0), ZeroShotTagger(space=tiny_space(n_steps=8))
    )
    assert pipeline.fit(clips, documents).decision_function(clips[:2]).shape == (2, 4)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"n_words": 0}, "`n_words` of `Codebook` must be"),
        ({"max_seconds": 0}, "`max_seconds` of `AudioFeatures` must be"),
        ({"n_jobs": 0}, "`n_jobs` of `AudioFeatures` must be"),
    ],
)
def test_bad_parameters_are_named(clips, parameters, complaint):
    with pytest.raises(InputError, match=complaint):
        AudioFeatures(**parameters).fit(clips[:2])
