"""The registry of networks for pictures, sound and texts, and of their weights.

In: a network's name, such as "efficientnet-lite2" or "timm:resnet50", and perhaps a file of
weights. Out: what both are called in caches and saved models, and the network itself. A new network
is a file with a function `load` and a line in PICTURES, SOUNDS or TEXTS.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from polyseme.base.validation import InputError, check_device, unknown_name
from polyseme.media.base import MediaError, check_file, is_path


@dataclass(frozen=True)
class NetworkSpec:
    """What has to be known of a network before anything of it is loaded."""

    module: str  # of this folder, whose function `load` takes a `Network`
    # Of the weights that come with its package, as `load` reads them; empty where the user brings
    # the weights.
    sha256: str = ""
    # For pictures: pixels a side unless asked for, and what they must be a multiple of.
    size: int = 224
    stride: int = 1
    depths: tuple[str, ...] = ("pre-logit",)  # layers that pictures' features can be taken from
    folder: bool = False  # whether the user's weights are a folder
    reads_texts: bool = False  # whether it may have `encode_texts`, as CLIP has


# Layers of EfficientNet-Lite, from the input on, by the names that users ask for. In the paper:
# F19, F21 and F23 of another network; the last one is beyond it.
DEPTHS = ("convolution", "pooled", "pre-logit", "logits")
PICTURES = {
    "efficientnet-lite0": NetworkSpec(
        "efficientnet",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        stride=32,
        depths=DEPTHS,
    ),
    "efficientnet-lite2": NetworkSpec(
        "efficientnet",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        size=260,
        depths=DEPTHS,
    ),
    # Followed by a colon and the library's own name of the network.
    "timm": NetworkSpec("libraries", depths=("pre-logit", "logits")),
    "torchvision": NetworkSpec("libraries", depths=("pre-logit", "logits")),
    "open_clip": NetworkSpec("libraries", reads_texts=True),
    "sentence-transformers": NetworkSpec("sentences", folder=True, reads_texts=True),
}
SOUNDS = {
    "musicnn": NetworkSpec(
        "musicnn", "5a310d763b7d8bafda59f31636c3f1b87b5c62d134d7e6ff9b880e4c25515ab4"
    ),
    "musicnn-msd": NetworkSpec(
        "musicnn", "ffb40cd66093fac1af5e4bae851c19c767a962aa577d0aa1fa12b426f15215ad"
    ),
}
TEXTS = {
    "use": NetworkSpec(
        "universal_sentences",
        "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
        reads_texts=True,
    ),
    "sentence-transformers": NetworkSpec("sentences", folder=True, reads_texts=True),
}

MOST_FILES = 200  # of a folder of weights
_IDENTITY_DIGITS = 12  # of the SHA-256: caches and saved models of other lengths would be refused


class FileState(NamedTuple):
    """A file as it was at a moment: while path, size and time are the same, its content is."""

    path: Path
    n_bytes: int
    modified_ns: int  # nanoseconds


class Network(NamedTuple):
    """A network that was asked for, before it is loaded."""

    name: str  # as users write it, such as "timm:resnet50"
    spec: NetworkSpec
    weights: Path | None  # the user's file or folder; None where the package has them
    device: str = "cpu"  # where it runs, which is no part of its identity

    def identity(self) -> str:
        """Name the network together with its weights, as "timm:resnet50 0123456789ab".

        Caches and saved models hold it: features of another identity are not mixed.
        """
        if self.weights is None:
            return f"{self.name} {self.spec.sha256[:_IDENTITY_DIGITS]}"
        files = [self.weights]
        if self.spec.folder:
            files = sorted(path for path in self.weights.rglob("*") if path.is_file())
            if not 0 < len(files) <= MOST_FILES:
                raise InputError(
                    f"The weights of the network '{self.name}' are a folder of 1 to {MOST_FILES} "
                    f"files; got '{self.weights}' with {len(files)}."
                )
        try:
            for file in files:
                check_file(file)
        except MediaError as error:
            raise InputError(
                f"The weights '{self.weights}' of the network '{self.name}': the file {error}; "
                "put it there."
            ) from error
        file_states: list[FileState] = []
        for file in files:
            status = file.stat()
            file_states.append(FileState(file.absolute(), status.st_size, status.st_mtime_ns))
        digest = _digest(self.weights.absolute(), tuple(file_states))
        return f"{self.name} {digest[:_IDENTITY_DIGITS]}"

    def load(self) -> Any:
        """Return the network itself, loaded once as long as its weights stay the same."""
        check_device(self.device, owner=self.name)
        return _load(self, self.identity())


def find_network(
    name: object, weights: object, specs: Mapping[str, NetworkSpec], device: str = "cpu"
) -> Network:
    """Return a network that is not loaded yet, or raise where name and weights do not fit.

    Parameters
    ----------
    name : str
        One of `specs`, or LIBRARY:NAME where the library is one of them.
    weights : str, Path or None
        The user's file or folder, which networks of libraries need and others refuse.
    specs : mapping
        PICTURES, SOUNDS or TEXTS.
    device : str
        Where it runs, as torch names it.
    """
    spec_name, colon, library_name = str(name).partition(":")
    if spec_name not in specs:
        raise unknown_name("network", name, specs)
    spec = specs[spec_name]
    is_packaged = bool(spec.sha256)
    names_library_network = bool(colon and library_name)
    if names_library_network == is_packaged:
        expected = f"'{spec_name}' alone"
        if not is_packaged:
            expected = f"'{spec_name}:NAME', as timm:resnet50"
        raise InputError(f"`network` must be {expected}; got '{name}'.")
    if is_packaged and weights is not None:
        raise InputError(
            f"The network '{name}' has weights of its own; leave `weights` (--weights) away."
        )
    path = Path(weights) if is_path(weights) else None
    if path is None and not is_packaged:
        kind = "the folder" if spec.folder else "a file"
        raise InputError(
            f"The network '{name}' needs {kind} of its weights: `weights` (--weights); got "
            f"{weights!r}."
        )
    return Network(str(name), spec, path, device)


@lru_cache(maxsize=2)
def _load(network: Network, identity: str) -> Any:
    """Load a network; its module loads torch, which takes a second.

    `identity` is not read: with it, a network whose weights were changed on disk is loaded anew.
    """
    module = import_module(f"polyseme.media.{network.spec.module}")
    return module.load(network)


@lru_cache(maxsize=8)
def _digest(weights: Path, file_states: tuple[FileState, ...]) -> str:
    """Return the SHA-256 of a file of weights, or of the files of a folder, in their order.

    Cached: files whose states are the same are not read again.
    """
    digest = hashlib.sha256()
    for path, n_bytes, _ in file_states:
        if path != weights:  # of a folder, what a file is called decides what it does
            name = path.relative_to(weights).as_posix()
            digest.update(f"{name} {n_bytes}\n".encode())
        with path.open("rb") as stream:
            content_digest = hashlib.file_digest(stream, "sha256")
        digest.update(content_digest.digest())
    return digest.hexdigest()
