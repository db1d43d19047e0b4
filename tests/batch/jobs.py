"""What tests of jobs over many items share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner, Result

from polyseme.cli import app
from polyseme.storage.atomic_files import MARK_FILE


def run(*words: object, code: int = 0) -> Result:
    """Run a command that must end with this code."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def contents(folder: Path) -> dict[str, bytes]:
    """Read a folder, apart from its mark, and from a cache, whose pages lie in any order."""
    files = [path for path in folder.iterdir() if path.name not in (MARK_FILE, "cache.sqlite")]
    return {path.name: path.read_bytes() for path in files}


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_bytes())


def repeated_features(world: Any, n_times: int) -> np.ndarray:
    """Return the training items of the toy world several times over."""
    return np.tile(np.asarray(world.X, dtype=np.float32), (n_times, 1))
