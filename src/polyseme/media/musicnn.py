"""musicnn, a network trained to tag music.

In: samples (n_samples,) of one channel. Out: the activations before the last layer for each three
seconds. The weights come with the package `musicnn` (ISC licence), whose own code and TensorFlow
are not used. An item's tags may be among those that the network was trained to know.

Terms: a *patch* is the input of the network, the levels of 96 mel bands in 187 frames (three
seconds); *maps* are the outputs of a layer, (n_patches, n_filters, …). Constants and layers are
those of the training: none can be chosen anew.
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
from polyseme.media.timbre import hann_window, mel_triangles

RATE = 16_000  # samples a second
FRAME = 512  # samples that a spectrum is taken of
HOP = 256  # samples from one frame to the next
N_BANDS = 96
N_FRAMES = 187  # of a patch: three seconds
N_FEATURES = 200
_POWER_FACTOR = 10_000  # a level is log10(1 + 10,000 power)
_VARIANCE_OFFSET = 1e-3  # TensorFlow's epsilon, which is added to each variance
_PATCHES_AT_ONCE = 4  # more take memory and no less time

# For each network: the package's folder of its weights, and the name under which
# `musicnn.configuration` has the tags that it was trained with.
_PACKAGED = {"musicnn": ("MTT_musicnn", "MTT_LABELS"), "musicnn-msd": ("MSD_musicnn", "MSD_LABELS")}
# The layers that look at all patches first, by their numbers in the checkpoint: two for timbre, and
# three for rhythm, with the frames that their filters span.
_TIMBRE_LAYERS = (0, 1)
_RHYTHM_LAYERS = ((2, 128), (3, 64), (4, 32))


class Musicnn:
    """The network: filters for timbre and for rhythm, three layers over time, two dense ones.

    Parameters
    ----------
    tensors : dict
        Weights by TensorFlow's names, such as "conv2d_1/kernel".
    tags : tuple of str
        What the network was trained to know, in the order of `logits`.
    device : str
        Where it runs, as torch names it.
    """

    def __init__(
        self, tensors: dict[str, NDArray[np.float32]], tags: tuple[str, ...], device: str = "cpu"
    ) -> None:
        self.tags = tags
        self.device = device
        self.tensors: dict[str, Tensor] = {}
        for name, array in tensors.items():
            self.tensors[name] = torch.tensor(array, device=device)

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of each three seconds of samples (n_samples,), (n_patches, 200)."""
        return self.features(patches(samples))

    @torch.inference_mode()
    def features(self, spectra: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the last layer's input, (n_patches, 200), for patches (n_patches, 187, 96)."""
        outputs: list[Tensor] = []
        for start in range(0, len(spectra), _PATCHES_AT_ONCE):
            end = start + _PATCHES_AT_ONCE
            batch = torch.from_numpy(spectra[start:end])
            batch = batch.to(self.device)
            outputs.append(self._features(batch))
        features = torch.cat(outputs)
        return features.cpu().numpy()

    @torch.inference_mode()
    def logits(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of `tags`, (n_patches, 50), of features (n_patches, 200)."""
        inputs = torch.from_numpy(features)
        logits = self._dense(inputs.to(self.device), "dense_1")
        return logits.cpu().numpy()

    def _features(self, spectra: Tensor) -> Tensor:
        """Return the features of a few patches, (n_patches, 200), of levels (n_patches, 187, 96).

        Layers are called by their numbers in the checkpoint.
        """
        one_channel = spectra[:, None]
        normalised = self._normalise(one_channel, "batch_normalization")
        # Along time the length stays: the margin is as wide as the filters, less one frame.
        outputs: list[Tensor] = []
        for layer_number in _TIMBRE_LAYERS:
            timbre_maps = self._filter_patches(normalised, layer_number, (3, 3))
            outputs.append(timbre_maps)
        for layer_number, n_frames in _RHYTHM_LAYERS:
            half = n_frames // 2
            rhythm_maps = self._filter_patches(normalised, layer_number, (half - 1, half))
            outputs.append(rhythm_maps)
        front = torch.cat(outputs, dim=1)  # (n_patches, 561, 187)
        first = self._filter_over_time(front, 5)
        second = self._filter_over_time(first, 6) + first
        third = self._filter_over_time(second, 7) + second
        all_maps = torch.cat([front, first, second, third], dim=1)
        largest = all_maps.amax(dim=2)
        mean = all_maps.mean(dim=2)
        pooled = torch.stack([largest, mean], dim=2)
        pooled = self._normalise(pooled.flatten(1), "batch_normalization_9")
        features = self._dense(pooled, "dense").relu()
        return self._normalise(features, "batch_normalization_10")

    def _filter_patches(
        self, patches: Tensor, layer_number: int, margin: tuple[int, int]
    ) -> Tensor:
        """Apply filters over time and bands to patches (n_patches, 1, 187, 96).

        `margin` is how many frames of zeros go before and behind a patch. Returns maps
        (n_patches, n_filters, 187): of all bands the largest.
        """
        name = f"conv2d_{layer_number}" if layer_number else "conv2d"
        kernel, bias = self._weights(name)
        padded = pad(patches, (0, 0, *margin))
        # TensorFlow's axes are frames, bands, inputs, outputs; torch's begin with the last two.
        filters = kernel.permute(3, 2, 0, 1)
        filtered = conv2d(padded, filters, bias).relu_()
        normalised = self._normalise(filtered, f"batch_normalization_{layer_number + 1}")
        return normalised.amax(dim=3)

    def _filter_over_time(self, maps: Tensor, layer_number: int) -> Tensor:
        """Apply filters over time to maps (n_patches, n_inputs, 187)."""
        kernel, bias = self._weights(f"conv2d_{layer_number}")
        # The training saw the filters of the layer before as bands of one input.
        filters = kernel[:, :, 0].permute(2, 1, 0)
        filtered = conv1d(maps, filters, bias, padding=3).relu_()
        return self._normalise(filtered, f"batch_normalization_{layer_number + 1}")

    def _dense(self, inputs: Tensor, layer: str) -> Tensor:
        """Apply a dense layer to inputs (n_patches, n_inputs)."""
        kernel, bias = self._weights(layer)
        return inputs @ kernel + bias

    def _weights(self, layer: str) -> tuple[Tensor, Tensor]:
        """Return the kernel and the bias of a layer."""
        kernel = self.tensors[f"{layer}/kernel"]
        bias = self.tensors[f"{layer}/bias"]
        return kernel, bias

    def _normalise(self, maps: Tensor, layer: str) -> Tensor:
        """Apply a layer of batch normalisation to maps (n_patches, n_filters, …).

        It is gamma (x - mean) / sqrt(variance + epsilon) + beta, with the training's statistics of
        each filter.
        """
        gamma = self.tensors[f"{layer}/gamma"]
        variance = self.tensors[f"{layer}/moving_variance"]
        beta = self.tensors[f"{layer}/beta"]
        mean = self.tensors[f"{layer}/moving_mean"]
        scale = gamma / (variance + _VARIANCE_OFFSET).sqrt()
        offset = beta - mean * scale
        n_further_axes = maps.ndim - 2
        shape = (-1, *[1] * n_further_axes)
        return maps * scale.view(shape) + offset.view(shape)


def patches(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return levels of mel bands in patches of three seconds, (n_patches, 187, 96).

    A shorter clip (n_samples,) is repeated; of a longer one, what is left behind the last patch is
    left out.
    """
    padded = np.pad(samples, FRAME // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    n_frames = len(frames)
    window = hann_window(FRAME)
    triangles = mel_triangles(N_BANDS, 0.0, RATE / 2, FRAME, RATE)
    band_weights = triangles.astype(np.float32).T
    power = np.empty((n_frames, N_BANDS), dtype=np.float32)
    for start in range(0, n_frames, N_FRAMES):
        block = slice(start, start + N_FRAMES)
        windowed = frames[block] * window
        spectrum = np.fft.rfft(windowed, axis=1)
        energy = np.square(np.abs(spectrum))
        power[block] = energy.astype(np.float32) @ band_weights
    levels = np.log10(_POWER_FACTOR * power + 1)
    n_patches = max(1, n_frames // N_FRAMES)
    # `resize` repeats what is too short and cuts what is too long.
    shape = (n_patches, N_FRAMES, N_BANDS)
    whole_patches: NDArray[np.float32] = np.resize(levels, shape)
    return whole_patches


def load(network: Network) -> Musicnn:
    """Load "musicnn" (MagnaTagATune) or "musicnn-msd" (Million Song Dataset).

    The SHA-256 of the network's spec is that of the checkpoint's index and data, one after the
    other.
    """
    folder_name, tags_name = _PACKAGED[network.name]
    try:
        configuration = import_module("musicnn.configuration")
    except ImportError:
        raise InputError(
            f"The network '{network.name}' needs the weights in the package musicnn; pip install "
            "--no-deps musicnn==0.1.0 (TensorFlow, which it asks for, is not used here)."
        ) from None
    folder = Path(configuration.__file__ or "").with_name(folder_name)
    index = (folder / ".index").read_bytes()
    data = (folder / ".data-00000-of-00001").read_bytes()
    digest = hashlib.sha256(index + data).hexdigest()
    if digest != network.spec.sha256:
        raise InputError(
            "The weights of musicnn are not the known ones (SHA-256 differs); pip install "
            "--no-deps musicnn==0.1.0 again."
        )
    checkpoint = read_checkpoint(index, data)
    # The state of the training's optimiser lies beside the weights.
    tensors = {name: tensor for name, tensor in checkpoint.items() if "Adam" not in name}
    tags = tuple(getattr(configuration, tags_name))
    return Musicnn(tensors, tags, network.device)
