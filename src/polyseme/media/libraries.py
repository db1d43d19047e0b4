"""Networks of timm, torchvision and open_clip, with weights that the user has on disk.

In: a name such as "timm:resnet50" and a safetensors file of weights. Out: a network from pictures
to features. Nothing is downloaded, and nothing in the file is executed.
"""

from __future__ import annotations

from collections.abc import Callable
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
_PREFIX = "module."

Weights = dict[str, Tensor]
Layer = Callable[[Tensor], Tensor]


class Parts(NamedTuple):
    """The layers and colours of a library's network that are used here."""

    layers: dict[str, Layer]  # by depth: from a batch (n, 3, size, size) to features
    modules: tuple[nn.Module, ...]  # that layers consist of
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # ImageNet's colours, unless others are given
    spread: tuple[float, ...] = (0.229, 0.224, 0.225)


class LibraryNetwork:
    """A network of a library; colours are brought to the scale of its training."""

    def __init__(self, name: str, network_parts: Parts, device: str) -> None:
        self.name = name
        self.layers = network_parts.layers
        self.device = device
        for module in network_parts.modules:
            module.to(device)
        mean = torch.tensor(network_parts.mean, device=device)
        spread = torch.tensor(network_parts.spread, device=device)
        self.mean = mean.view(3, 1, 1)
        self.spread = spread.view(3, 1, 1)

    @torch.inference_mode()
    def __call__(self, pictures: NDArray[np.uint8], depth: str) -> NDArray[np.float32]:
        """Return the features (n, n_features) of pictures (n, size, size, 3) at a depth."""
        if depth not in self.layers:
            raise InputError(f"The weights of '{self.name}' have no last layer for `{depth}`.")
        batch = torch.from_numpy(pictures).to(self.device)
        batch = batch.permute(0, 3, 1, 2).float().div_(255)
        batch = batch.sub_(self.mean).div_(self.spread).contiguous()
        try:
            features = self.layers[depth](batch)
        except (AssertionError, RuntimeError, ValueError) as error:
            raise InputError(
                f"The network '{self.name}' takes no pictures of {pictures.shape[1]} pixels a side "
                f"({error}); give the `size` (--size) that it was trained with."
            ) from error
        array = features.flatten(1).cpu().numpy()
        return np.ascontiguousarray(array, dtype=np.float32)


def load(network: Network) -> LibraryNetwork:
    """Return the network that a library knows by a name, filled with weights."""
    name = network.name
    weights = network.weights
    library, _, inner = name.partition(":")
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
    if not has_network(package, inner):
        raise InputError(f"{library} has no network '{inner}'; ask it for the names it knows.")
    tensors = _read_weights(Path(weights or ""))
    try:
        return LibraryNetwork(name, build(package, inner, tensors), network.device)
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"'{weights}' holds other weights than those of '{name}': {error_text(error)}; name "
            "the network that they belong to."
        ) from error


def _timm(package: Any, name: str, tensors: Weights) -> Parts:
    """Return a network of timm, with as many classes as the weights have."""
    head = package.get_pretrained_cfg(name).classifier
    options: dict[str, int] = {}
    if isinstance(head, str):
        head_weights = tensors.get(f"{head}.weight", ())
        options["num_classes"] = len(head_weights)
    model = _filled(package.create_model(name, pretrained=False, **options), tensors)

    def pre_logit(batch: Tensor) -> Tensor:
        features = model.forward_features(batch)
        outputs: Tensor = model.forward_head(features, True)
        return outputs

    layers: dict[str, Layer] = {"pre-logit": pre_logit}
    if model.num_classes:
        layers["logits"] = model
    colours = model.pretrained_cfg
    return Parts(layers, (model,), colours["mean"], colours["std"])


def _torchvision(package: Any, name: str, tensors: Weights) -> Parts:
    """Return a classifier of torchvision, with its last linear layer as a module of its own."""
    model = package.models.get_model(name, weights=None)
    linear_names: list[str] = []
    for module_name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            linear_names.append(module_name)
    if not linear_names:
        return Parts({"logits": _filled(model, tensors)}, (model,))
    head_name = linear_names[-1]
    head = model.get_submodule(head_name)
    head_weights = tensors.get(f"{head_name}.weight", head.weight)
    head = nn.Linear(head.in_features, len(head_weights))
    model.set_submodule(head_name, head)
    body = _filled(model, tensors)
    body.set_submodule(head_name, nn.Identity())
    layers: dict[str, Layer] = {"pre-logit": body, "logits": lambda batch: head(body(batch))}
    return Parts(layers, (body, head))


def _open_clip(package: Any, name: str, tensors: Weights) -> Parts:
    """Return the visual tower of a model of open_clip; weights of its text tower are not needed."""
    model = package.create_model(name, pretrained=None, device="cpu")
    visual_tensors: Weights = {}
    for key, tensor in tensors.items():
        if key.startswith("visual."):
            visual_tensors[key.removeprefix("visual.")] = tensor
    visual = _filled(model.visual, visual_tensors)
    colours = package.get_model_preprocess_cfg(model)
    # Of length 1, as it is compared with vectors of texts.
    layers: dict[str, Layer] = {"pre-logit": lambda batch: nn.functional.normalize(visual(batch))}
    return Parts(layers, (visual,), colours["mean"], colours["std"])


# For each library: which networks it knows, and how one is built. A new library is a line here and
# one in `networks.PICTURES`.
_LIBRARIES: dict[str, tuple[Callable[[Any, str], bool], Callable[[Any, str, Weights], Parts]]] = {
    "timm": (lambda package, name: package.is_model(name), _timm),
    "torchvision": (lambda package, name: name in package.models.list_models(), _torchvision),
    "open_clip": (lambda package, name: name in package.list_models(), _open_clip),
}


def _filled(model: Any, tensors: Weights) -> Any:
    """Return a model filled with weights: exactly those that it has."""
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
    return {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}
