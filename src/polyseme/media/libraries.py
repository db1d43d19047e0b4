"""Networks of timm, torchvision and open_clip, with weights that the user has on disk.

In: a name such as "timm:resnet50" and a safetensors file of weights. Out: a network from pictures
to features, and for open_clip from texts to vectors beside them. Nothing is downloaded, and nothing
in the file is executed.

Each library has a function that builds a network from the library's module, the library's own name
of the network ("resnet50") and the weights: `_timm`, `_torchvision`, `_open_clip`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyseme.base.text import error_text
from polyseme.base.validation import InputError
from polyseme.media.base import needs
from polyseme.media.networks import Network

# What parallel training puts before the names of weights.
_PARALLEL_PREFIX = "module."

_TEXTS_TOGETHER = 256

Weights = dict[str, Tensor]  # by the names of a state dict
FeatureLayer = Callable[[Tensor], Tensor]


class BuiltNetwork(NamedTuple):
    """What a library's network is made of, as far as it is used here."""

    # By depth ("pre-logit", "logits"): from a batch (n, 3, size, size) to features (n, …).
    feature_layers: dict[str, FeatureLayer]
    modules: tuple[nn.Module, ...]  # that hold the weights, to be moved to a device
    # Mean and standard deviation of red, green and blue in 0..1, by which pictures were scaled in
    # the training: ImageNet's, unless others are given.
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    deviation: tuple[float, ...] = (0.229, 0.224, 0.225)
    # From texts to vectors (n, n_features) beside those of pictures; None without a text tower.
    text_layer: Callable[[Sequence[str]], Tensor] | None = None


class LibraryNetwork:
    """A network of a library; colours are brought to the scale of its training."""

    def __init__(self, name: str, built: BuiltNetwork, device: str) -> None:
        self.name = name
        self.feature_layers = built.feature_layers
        self.text_layer = built.text_layer
        self.device = device
        for module in built.modules:
            module.to(device)
        mean = torch.tensor(built.mean, device=device)
        deviation = torch.tensor(built.deviation, device=device)
        # As many axes as a picture has, (3, height, width).
        self.mean = mean.view(3, 1, 1)
        self.deviation = deviation.view(3, 1, 1)

    @torch.inference_mode()
    def __call__(self, pictures: NDArray[np.uint8], depth: str) -> NDArray[np.float32]:
        """Return the features (n, n_features) of pictures (n, size, size, 3) at a depth."""
        if depth not in self.feature_layers:
            raise InputError(f"The weights of '{self.name}' have no last layer for `{depth}`.")
        batch = torch.from_numpy(pictures).to(self.device)
        batch = batch.permute(0, 3, 1, 2).float().div_(255)
        batch = batch.sub_(self.mean).div_(self.deviation)
        feature_layer = self.feature_layers[depth]
        try:
            features = feature_layer(batch.contiguous())
        except (AssertionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"The network '{self.name}' takes no pictures of {pictures.shape[1]} pixels a side "
                f"({error}); give the `size` (--size) that it was trained with."
            ) from error
        array = features.flatten(1).cpu().numpy()
        return np.ascontiguousarray(array, dtype=np.float32)

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        """Return the vectors of texts, (n, n_features); None where it reads none."""
        if self.text_layer is None:
            return None
        blocks: list[NDArray[np.float32]] = []
        for start in range(0, len(texts), _TEXTS_TOGETHER):
            vectors = self.text_layer(texts[start : start + _TEXTS_TOGETHER])
            blocks.append(vectors.cpu().numpy().astype(np.float32))
        return np.concatenate(blocks)


def load(network: Network) -> LibraryNetwork:
    """Return the network that a library knows by a name, filled with the user's weights."""
    name = network.name
    weights = network.weights
    library, _, library_name = name.partition(":")
    try:
        package = import_module(library)
    except ImportError:
        raise needs(library, f"The network '{name}'") from None
    except RuntimeError as error:  # torchvision beside a torch that was built otherwise
        raise InputError(
            f"{library} does not work beside this torch ({error}); install builds of both that "
            "belong together."
        ) from error
    has_network, build = _LIBRARIES[library]
    if not has_network(package, library_name):
        raise InputError(
            f"{library} has no network '{library_name}'; ask it for the names it knows."
        )
    tensors = _read_weights(Path(weights or ""))
    try:
        built = build(package, library_name, tensors)
        return LibraryNetwork(name, built, network.device)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"'{weights}' holds other weights than those of '{name}': {error_text(error)}; name "
            "the network that they belong to."
        ) from error


def _timm(package: Any, name: str, tensors: Weights) -> BuiltNetwork:
    """Build a network of timm, with as many classes as the weights have."""
    head_name = package.get_pretrained_cfg(name).classifier
    options: dict[str, int] = {}
    if isinstance(head_name, str):
        head_weights = tensors.get(f"{head_name}.weight", ())
        options["num_classes"] = len(head_weights)
    empty_model = package.create_model(name, pretrained=False, **options)
    model = _fill(empty_model, tensors)

    def pre_logit(batch: Tensor) -> Tensor:
        feature_map = model.forward_features(batch)
        features: Tensor = model.forward_head(feature_map, pre_logits=True)
        return features

    feature_layers: dict[str, FeatureLayer] = {"pre-logit": pre_logit}
    if model.num_classes:
        feature_layers["logits"] = model
    colours = model.pretrained_cfg
    return BuiltNetwork(feature_layers, (model,), colours["mean"], colours["std"])


def _torchvision(package: Any, name: str, tensors: Weights) -> BuiltNetwork:
    """Build a classifier of torchvision, with its last linear layer as a module of its own.

    A network without a linear layer has the depth "logits" alone.
    """
    model = package.models.get_model(name, weights=None)
    linear_names: list[str] = []
    for module_name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            linear_names.append(module_name)
    if not linear_names:
        feature_layers: dict[str, FeatureLayer] = {"logits": _fill(model, tensors)}
        return BuiltNetwork(feature_layers, (model,))
    head_name = linear_names[-1]
    # As many classes as the weights have, which need not be ImageNet's thousand.
    original_head = model.get_submodule(head_name)
    head_weights = tensors.get(f"{head_name}.weight", original_head.weight)
    head = nn.Linear(original_head.in_features, len(head_weights))
    model.set_submodule(head_name, head)
    body = _fill(model, tensors)
    body.set_submodule(head_name, nn.Identity())

    def logits(batch: Tensor) -> Tensor:
        features: Tensor = body(batch)
        outputs: Tensor = head(features)
        return outputs

    feature_layers = {"pre-logit": body, "logits": logits}
    return BuiltNetwork(feature_layers, (body, head))


def _open_clip(package: Any, name: str, tensors: Weights) -> BuiltNetwork:
    """Build a model of open_clip; without weights of a text tower the visual tower alone."""
    model = package.create_model(name, pretrained=None, device="cpu")
    visual_tensors: Weights = {}
    for key, tensor in tensors.items():
        if key.startswith("visual."):
            visual_tensors[key.removeprefix("visual.")] = tensor
    has_text_tower = len(visual_tensors) < len(tensors)
    if has_text_tower:
        visual_tower = _fill(model, tensors).visual
    else:
        visual_tower = _fill(model.visual, visual_tensors)
    colours = package.get_model_preprocess_cfg(model)
    tokenizer: Any = _open_clip_tokenizer(package, name) if has_text_tower else None

    def unit_vectors(batch: Tensor) -> Tensor:
        # Of length 1, as they are compared with vectors of texts.
        vectors = visual_tower(batch)
        return nn.functional.normalize(vectors)

    def text_vectors(texts: Sequence[str]) -> Tensor:
        tokens = tokenizer(list(texts))
        vectors = model.encode_text(tokens.to(next(model.parameters()).device))
        return nn.functional.normalize(vectors)

    feature_layers: dict[str, FeatureLayer] = {"pre-logit": unit_vectors}
    built = BuiltNetwork(feature_layers, (visual_tower,), colours["mean"], colours["std"])
    if tokenizer is None:
        return built
    return built._replace(modules=(model,), text_layer=text_vectors)


def _open_clip_tokenizer(package: Any, name: str) -> Any:
    """Return the tokenizer of a model of open_clip; None where it would have to be downloaded."""
    try:
        return package.get_tokenizer(name)
    except Exception:  # whatever its library raises without a network
        return None


class Library(NamedTuple):
    """How networks of a library are found and built; both take the library's module and a name."""

    has_network: Callable[[Any, str], bool]
    build: Callable[[Any, str, Weights], BuiltNetwork]


# A new library is a line here and one in `networks.PICTURES`.
_LIBRARIES = {
    "timm": Library(lambda package, name: package.is_model(name), _timm),
    "torchvision": Library(
        lambda package, name: name in package.models.list_models(), _torchvision
    ),
    "open_clip": Library(lambda package, name: name in package.list_models(), _open_clip),
}


def _fill(model: Any, tensors: Weights) -> Any:
    """Fill a model in place with weights, exactly those that it has; return it for inference."""
    model.load_state_dict(tensors)
    return model.float().eval()


def _read_weights(path: Path) -> Weights:
    """Read tensors by name from a safetensors file: other formats could run code."""
    from safetensors.torch import load_file

    if path.suffix.lower() != ".safetensors":
        raise InputError(
            f"Weights are read from .safetensors files alone; got '{path.name}': convert it where "
            "you trust it, by safetensors.torch.save_file(torch.load('it', weights_only=True), "
            "'weights.safetensors')."
        )
    try:
        tensors: Weights = load_file(path)
    except Exception as error:  # any error of a reader about another kind of file
        raise InputError(
            f"'{path}' is no file of weights ({error_text(error)}); save the model's state dict as "
            ".safetensors again."
        ) from error
    return {name.removeprefix(_PARALLEL_PREFIX): tensor for name, tensor in tensors.items()}
