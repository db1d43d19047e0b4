"""musicnn, a network trained to tag music.

In: samples (n_samples,) of one channel. Out: the activations before the last layer for each three
seconds. The weights come with the package `musicnn` (ISC licence), whose own code and TensorFlow
are not used. An item's tags may be among those that the network was trained to know.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, pad

from polyseme.base.validation import InputError
from polyseme.media.networks import Network
from polyseme.media.tensorflow_checkpoint import read_checkpoint
from polyseme.media.timbre import mel_triangles

RATE = 16_000
FRAME = 512
HOP = 256
N_BANDS = 96
N_FRAMES = 187  # that the network looks at: three seconds
N_FEATURES = 200
_EPSILON = 1e-3  # beside each variance
_AT_ONCE = 4  # patches; more take memory and no less time

# Which of the package's networks, and its name of the tags that this one was trained with.
_TRAINED = {"musicnn": ("MTT_musicnn", "MTT_LABELS"), "musicnn-msd": ("MSD_musicnn", "MSD_LABELS")}


class Musicnn:
    """The network: filters for timbre and for rhythm, three layers over time, two dense ones."""

    def __init__(
        self, tensors: dict[str, NDArray[np.float32]], tags: tuple[str, ...], device: str = "cpu"
    ) -> None:
        self.tags = tags
        self.device = device
        self.tensors: dict[str, Tensor] = {}
        for name, array in tensors.items():
            self.tensors[name] = torch.tensor(array, device=device)

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of each three seconds of samples (n,), (n_patches, 200)."""
        return self.features(patches(samples))

    @torch.inference_mode()
    def features(self, spectra: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the last layer's input, (n_patches, 200), for patches (n_patches, 187, 96)."""
        outputs: list[Tensor] = []
        for start in range(0, len(spectra), _AT_ONCE):
            batch = torch.from_numpy(spectra[start : start + _AT_ONCE])
            outputs.append(self._features(batch.to(self.device)))
        return torch.cat(outputs).cpu().numpy()

    @torch.inference_mode()
    def logits(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of `tags`, (n, 50), of features (n, 200)."""
        inputs = torch.from_numpy(features).to(self.device)
        logits = self._dense(inputs, "dense_1")
        return logits.cpu().numpy()

    def _features(self, spectra: Tensor) -> Tensor:
        """Return the features of a few patches."""
        maps = self._normal(spectra[:, None], "")
        # Along time the length stays: the margin is as wide as the filters, less one frame.
        outputs = [self._filters(maps, number, (3, 3)) for number in (0, 1)]
        for number, size in _RHYTHMS:
            margin = (size // 2 - 1, size // 2)
            outputs.append(self._filters(maps, number, margin))
        front = torch.cat(outputs, dim=1)  # (n, 561, 187)
        first = self._over_time(front, 5)
        second = self._over_time(first, 6) + first
        third = self._over_time(second, 7) + second
        every = torch.cat([front, first, second, third], dim=1)
        largest = every.amax(dim=2)
        mean = every.mean(dim=2)
        pooled = torch.stack([largest, mean], dim=2).flatten(1)
        dense = self._dense(self._normal(pooled, "_9"), "dense").relu()
        return self._normal(dense, "_10")

    def _filters(self, maps: Tensor, number: int, margin: tuple[int, int]) -> Tensor:
        """Apply filters over time and bands, and keep the largest of all bands, (n, d, 187)."""
        name = f"conv2d_{number}" if number else "conv2d"
        kernel, bias = self._layer(name)
        padded = pad(maps, (0, 0, *margin))
        filters = kernel.permute(3, 2, 0, 1)
        filtered = conv2d(padded, filters, bias).relu_()
        normalised = self._normal(filtered, f"_{number + 1}")
        return normalised.amax(dim=3)

    def _over_time(self, maps: Tensor, number: int) -> Tensor:
        """Apply filters over time to maps (n, d, 187)."""
        kernel, bias = self._layer(f"conv2d_{number}")
        filters = kernel[:, :, 0].permute(2, 1, 0)
        filtered = conv1d(maps, filters, bias, padding=3).relu_()
        return self._normal(filtered, f"_{number + 1}")

    def _dense(self, features: Tensor, name: str) -> Tensor:
        """Apply a dense layer."""
        kernel, bias = self._layer(name)
        return features @ kernel + bias

    def _layer(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the kernel and the bias of a layer."""
        return self.tensors[f"{name}/kernel"], self.tensors[f"{name}/bias"]

    def _normal(self, maps: Tensor, number: str) -> Tensor:
        """Normalise maps (n, d, …) as in training."""
        layer = f"batch_normalization{number}"
        gamma = self.tensors[f"{layer}/gamma"]
        variance = self.tensors[f"{layer}/moving_variance"]
        beta = self.tensors[f"{layer}/beta"]
        mean = self.tensors[f"{layer}/moving_mean"]
        scale = gamma / (variance + _EPSILON).sqrt()
        offset = beta - mean * scale
        shape = (-1, *[1] * (maps.ndim - 2))
        return maps * scale.view(shape) + offset.view(shape)


_RHYTHMS = ((2, 128), (3, 64), (4, 32))  # number of the layer, and frames that its filters span


def patches(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return levels of mel bands in pieces of three seconds, (n_patches, 187, 96).

    A shorter clip is repeated; of a longer one, what is left behind the last piece is left out.
    """
    padded = np.pad(samples, FRAME // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    angles = 2 * np.pi * np.arange(FRAME) / FRAME
    window = (0.5 - 0.5 * np.cos(angles)).astype(np.float32)
    bands = mel_triangles(N_BANDS, 0.0, RATE / 2, FRAME, RATE)
    weights = bands.astype(np.float32).T
    power = np.empty((len(frames), N_BANDS), dtype=np.float32)
    for start in range(0, len(frames), N_FRAMES):
        block = slice(start, start + N_FRAMES)
        spectrum = np.fft.rfft(frames[block] * window, axis=1)
        energy = np.square(np.abs(spectrum)).astype(np.float32)
        power[block] = energy @ weights
    levels = np.log10(10_000 * power + 1)
    n_patches = max(1, len(levels) // N_FRAMES)
    whole: NDArray[np.float32] = np.resize(levels, (n_patches, N_FRAMES, N_BANDS))
    return whole


def load(network: Network) -> Musicnn:
    """Load "musicnn" (MagnaTagATune) or "musicnn-msd" (Million Song Dataset)."""
    folder, labels = _TRAINED[network.name]
    try:
        constants = import_module("musicnn.configuration")
    except ImportError:
        raise InputError(
            f"The network '{network.name}' needs the weights in the package musicnn; pip install "
            "--no-deps musicnn==0.1.0 (TensorFlow, which it asks for, is not used here)."
        ) from None
    place = Path(constants.__file__ or "").with_name(folder)
    index = (place / ".index").read_bytes()
    data = (place / ".data-00000-of-00001").read_bytes()
    digest = hashlib.sha256(index + data).hexdigest()
    if digest != network.spec.sha256:
        raise InputError(
            "The weights of musicnn are not the known ones (SHA-256 differs); pip install "
            "--no-deps musicnn==0.1.0 again."
        )
    checkpoint = read_checkpoint(index, data)
    tensors = {name: tensor for name, tensor in checkpoint.items() if "Adam" not in name}
    tags = tuple(getattr(constants, labels))
    return Musicnn(tensors, tags, network.device)
