"""Checkpoints: the states of trainings that were interrupted, and when they are removed.

In: the folder of a training's state. Out: that state, where it is whole; where it is damaged the
training begins anew, with a warning.

A checkpoint is a folder with a model file of a kind of its own; see `polyseme.storage.model_file`.
The trainings that validate a fit have checkpoints beside that of the fit, whose names are fixed:
`run.draw-0` and so on beside `run`, and `run.draw-0-pool` for the one with a pool.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.storage.atomic_files import check_not_dangling, check_room
from polyseme.storage.model_file import (
    MODEL_FILE,
    DamagedModelError,
    ModelFileError,
    State,
    read_model,
    remove_model,
)

# Numbers on disk for each weight: the weight and its two moments, in the state that is there and in
# the one that replaces it, and the weight in the model.
_NUMBERS_PER_WEIGHT = 7
_BYTES_PER_NUMBER = 4  # float32
# What the name of a validation's checkpoint has behind that of the fit's.
_VALIDATION_SUFFIX = re.compile(r"\.draw-\d+(?:-pool)?")


class OtherTrainingError(InputError):
    """A checkpoint is that of other data or parameters; it stays as it is."""


def other_training(path: str | Path) -> OtherTrainingError:
    """Return the error for a folder with the state of another training; the caller raises it."""
    return OtherTrainingError(
        f"The checkpoint at '{path}' belongs to other data or parameters; remove it or name "
        "another folder."
    )


def read_checkpoint(path: str | Path, kind: str) -> State | None:
    """Read a training's state; None where there is none, or, with a warning, a damaged one.

    Parameters
    ----------
    path : str or Path
        The folder.
    kind : str
        What `write_model` wrote it as. A file of another kind is an error, and stays.

    Returns
    -------
    (config, arrays) or None
        What they hold is not checked; see `polyseme.storage.array_checks`.
    """
    if not (Path(path) / MODEL_FILE).exists():
        return None
    try:
        return read_model(path, kind)
    except DamagedModelError as error:
        # A file of this kind that a crash has left, or that was changed: the training replaces it.
        warnings.warn(f"{error} The training begins anew.", PolysemeWarning, stacklevel=4)
        return None


def validation_checkpoint(path: str | Path | None, name: str) -> Path | None:
    """Return the path of a validation's checkpoint beside that of the fit.

    Parameters
    ----------
    path : str, Path or None
        The checkpoint of the fit; None where it has none, and so has the validation.
    name : str
        Such as "draw-0" or "draw-0-pool", which `remove_checkpoint` finds again.
    """
    if path is None:
        return None
    checkpoint = Path(path)
    return checkpoint.with_name(f"{checkpoint.name}.{name}")


def remove_checkpoint(path: str | Path) -> None:
    """Remove a fit's checkpoint and those of its validations, as far as there are any."""
    checkpoint = Path(path)
    remove_model(checkpoint)
    with suppress(OSError):  # the folder that they lie in is not there, or cannot be listed
        for neighbour in list(checkpoint.parent.iterdir()):
            if not neighbour.name.startswith(checkpoint.name):
                continue
            suffix = neighbour.name.removeprefix(checkpoint.name)
            if _VALIDATION_SUFFIX.fullmatch(suffix):
                remove_model(neighbour)


@contextmanager
def unless_refused(path: str | Path | None) -> Iterator[None]:
    """Remove a checkpoint where the training inside the block is refused, as by wrong input.

    It would bar the corrected call, which is another training. Where a kill or a crash ends the
    block the checkpoint stays, for the same call to go on from; so it does where it belongs to
    another training, and where it cannot be written, as the disk is the reason.
    """
    try:
        yield
    except (ModelFileError, OtherTrainingError):
        raise
    except InputError:
        if path is not None:
            remove_checkpoint(path)
        raise


def check_room_for(path: str | Path | None, n_weights: int) -> None:
    """Raise where a checkpoint of so many weights has no place in a folder, or no room.

    A file or a link that leads nowhere is in its way; whether the folder may be written to shows
    at the first write.
    """
    if path is None:
        return
    folder = Path(path)
    check_not_dangling(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"The state of the training belongs into the folder '{folder}', where a file is; "
            "move that away."
        )
    n_bytes = _BYTES_PER_NUMBER * _NUMBERS_PER_WEIGHT * n_weights
    check_room(folder, n_bytes)
