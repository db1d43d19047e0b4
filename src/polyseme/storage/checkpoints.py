"""Checkpoints: the states of trainings that were interrupted, and when they are let go.

In: the folder of a training's state. Out: that state, where it is whole; where it is damaged the
training begins anew, with a warning. Parts of a training have checkpoints of their own beside it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.storage.atomic_files import check_link, check_room
from polyseme.storage.model_file import (
    MODEL_FILE,
    DamagedModelError,
    ModelFileError,
    State,
    read_model,
    remove_model,
)

# Weights and two moments of each, of the state that is there and of the one that replaces it, and
# the weights of the model.
_TIMES_WEIGHTS = 7
_PART = re.compile(r"\.draw-\d+(?:-pool)?")


class OtherTrainingError(InputError):
    """A checkpoint is that of other data or parameters."""


def other_training(path: str | Path) -> OtherTrainingError:
    """Build the error for a folder that holds the state of another training."""
    return OtherTrainingError(
        f"The checkpoint at '{path}' belongs to other data or parameters; remove it or name "
        "another folder."
    )


def read_checkpoint(path: str | Path, kind: str) -> State | None:
    """Read a training's state; None where there is none, or, with a warning, a damaged one.

    Parameters
    ----------
    path : str or Path
    kind : str
        What `write_model` wrote it as.
    """
    if not (Path(path) / MODEL_FILE).exists():
        return None
    try:
        return read_model(path, kind)
    except DamagedModelError as error:  # one of this kind: anything else is never replaced
        warnings.warn(f"{error} The training begins anew.", PolysemeWarning, stacklevel=4)
        return None


def part_of(path: str | Path | None, name: str) -> Path | None:
    """Name the checkpoint of a part of a training, such as "draw-0"; None without one."""
    if path is None:
        return None
    place = Path(path)
    return place.with_name(f"{place.name}.{name}")


def remove_checkpoint(path: str | Path) -> None:
    """Remove a checkpoint and those of its parts, where they are there."""
    place = Path(path)
    remove_model(place)
    with suppress(OSError):
        for neighbour in list(place.parent.iterdir()):
            suffix = neighbour.name.removeprefix(place.name)
            is_part = neighbour.name.startswith(place.name) and _PART.fullmatch(suffix)
            if is_part:
                remove_model(neighbour)


@contextmanager
def unless_refused(path: str | Path | None) -> Iterator[None]:
    """Keep a checkpoint, but for a training that is refused: it would bar the corrected one.

    A checkpoint that belongs to another training stays, and so does one where the disk is the
    reason: the same call goes on from there.
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
    """Raise unless the states of a training fit at a path; a weight takes 4 bytes."""
    if path is not None:
        place = Path(path)
        check_link(place)
        if place.exists() and not place.is_dir():
            raise InputError(
                f"The state of the training belongs into the folder '{place}', where a file is; "
                "move that away."
            )
        check_room(Path(path), 4 * _TIMES_WEIGHTS * n_weights)
