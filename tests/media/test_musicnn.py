"""musicnn listens as it does in TensorFlow, and its words fit what is played."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("soundfile", reason="needs the extra `audio`")

from typer.testing import CliRunner

from polyseme import AudioFeatures
from polyseme.base.validation import InputError
from polyseme.cli import app
from polyseme.media import musicnn
from polyseme.media.networks import SOUNDS, find_network
from polyseme_experiments.datasets.clips import load_clips

# What the package's own code gave with TensorFlow 2.15 for `waves`, to four digits.
LOGITS = [
    *(-0.9384, -4.4365, -1.3488, -6.1756, -5.0388, -3.3699, -4.9359, -2.3670, -6.1785, -3.3993),
    *(-5.8883, -5.1942, -8.2017, -1.3822, -5.0014, -6.9407, -6.6907, -6.8308, -0.7595, -1.8215),
    *(-2.0868, -3.7830, -7.3780, -4.5396, -5.0878, -9.0172, -7.8889, -0.8330, -4.2356, -2.6974),
    *(-3.9714, -7.2456, -3.7134, -1.4510, -6.9590, -6.3779, -2.7140, -6.5665, -8.4847, -1.5047),
    *(-8.3732, -7.2022, -6.9730, -9.5226, -5.1011, -5.8530, -2.8367, -6.2451, -7.5357, -6.8910),
]
FEATURES = [0.8336, -0.0329, 1.3650, -0.1861, -0.0787, 2.2450, -0.1058, -0.1411, -0.0242, -0.6351]


def waves() -> np.ndarray:
    """Return a patch of waves over time and bands, (1, 187, 96)."""
    time = np.arange(187)[:, None]
    band = np.arange(96)
    along_time = np.sin(0.05 * time * (1 + band / 40))
    along_bands = np.cos(0.11 * band)
    levels = 2 + 2 * along_time * along_bands
    return levels.astype(np.float32)[None]


@pytest.fixture(scope="module")
def network():
    pytest.importorskip("musicnn.configuration", reason="pip install --no-deps musicnn")
    return find_network("musicnn", None, SOUNDS).load()


def test_features_and_logits_are_those_of_tensorflow(network):
    features = network.features(waves())
    assert features.shape == (1, musicnn.N_FEATURES)
    assert_allclose(features[0, :10], FEATURES, atol=2e-4)
    assert_allclose(network.logits(features)[0], LOGITS, atol=2e-4)


def test_tags_are_those_of_magnatagatune_in_their_order(network):
    assert len(network.tags) == 50
    assert network.tags[:3] == ("guitar", "classical", "slow")
    assert network.tags[-1] == "choral"


def test_levels_are_those_of_librosa():
    librosa = pytest.importorskip("librosa", reason="the reference of spectra")
    noise = np.random.default_rng(0).normal(0, 0.1, 4 * 16_000)
    samples = noise.astype(np.float32)
    power = librosa.feature.melspectrogram(
        y=samples,
        sr=16_000,
        n_fft=512,
        hop_length=256,
        n_mels=96,
        pad_mode="reflect",
    )
    expected = np.log10(10_000 * power.T[:187] + 1)
    patches = musicnn.patches(samples)
    assert_allclose(patches[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("n_samples", "n_patches"), [(1, 1), (16_000, 1), (47_872, 1), (95_488, 2), (160_000, 3)]
)
def test_pieces_last_three_seconds_and_short_clips_are_repeated(n_samples, n_patches):
    generator = np.random.default_rng(0)
    samples = generator.normal(size=n_samples).astype(np.float32)
    patches = musicnn.patches(samples)
    assert patches.shape == (n_patches, 187, 96)
    n_frames = 1 + n_samples // 256
    if n_frames < 187:
        assert_array_equal(patches[0, n_frames], patches[0, 0])


def test_it_hears_the_instruments_of_rendered_clips(network, tmp_path):
    clips = load_clips(min_count=20)
    instruments = ("flute", "harp", "drums")
    columns = [network.tags.index(instrument) for instrument in instruments]
    mean_logits = []
    for instrument in instruments:
        rows = [row for row, tags in enumerate(clips.complete) if instrument in tags]
        names = [clips.ids[row] for row in rows[:8]]
        paths = clips.write(tmp_path / instrument, names)
        features = AudioFeatures(network="musicnn").fit_transform(paths)
        logits = network.logits(features).mean(axis=0)
        mean_logits.append(logits[columns])
    loudest = np.argmax(mean_logits, axis=0)
    assert loudest.tolist() == [0, 1, 2]


def test_extractions_and_models_name_the_tags_the_network_was_trained_on(network, tmp_path):
    folder = tmp_path / "clips"
    runner = CliRunner()
    clips = load_clips(min_count=20)
    clips.write(folder, list(clips.ids[:4]))
    numbers = tmp_path / "numbers"
    words = ["extract", "audio", str(folder), "--out", str(numbers)]
    done = runner.invoke(app, [*words, "--network", "musicnn"])
    assert done.exit_code == 0, done.exception
    assert "musicnn was trained on 50 tags (guitar, classical, slow" in done.stderr
    manifest = json.loads((numbers / "extraction.json").read_text())
    assert manifest["trained_tags"] == list(network.tags)
    assert manifest["preprocessing"]["network"] == "musicnn 5a310d763b7d"
    fit = ["fit", str(tmp_path / "model"), "-x", str(numbers)]
    fit += ["-d", str(folder / "tags.jsonl"), "--words", "8"]
    refused = runner.invoke(app, fit)
    assert "`--words` does not apply to audio files of a network" in str(refused.exception)


def test_features_are_averages_over_time_and_survive_saving(network):
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.1, (2, 7 * 16_000))
    samples = noise.astype(np.float32)
    extractor = AudioFeatures(network="musicnn", rate=16_000)
    features = extractor.fit_transform(samples)
    expected = network(samples[0]).mean(axis=0)
    assert_allclose(features[0], expected, atol=1e-5)
    restored = AudioFeatures.from_state(*extractor.get_state())
    assert_array_equal(restored.transform(samples), features)


def test_songs_without_sound_are_skipped(network, tmp_path):
    path = tmp_path / "song.h5"
    path.write_bytes(b"any")
    (outcome,) = AudioFeatures(network="musicnn").extract([path])
    assert "holds timbre and no sound" in str(outcome)


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "musicnn", None)
    monkeypatch.setitem(sys.modules, "musicnn.configuration", None)
    with pytest.raises(InputError, match=r"pip install --no-deps musicnn==0\.1\.0"):
        musicnn.load(find_network("musicnn", None, SOUNDS))
