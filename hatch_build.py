"""Build hook: compile the native library if there is a compiler; install without it otherwise."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeLibrary(BuildHookInterface):
    """Puts the compiled library beside its sources and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as made for this platform; a failure is only told."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root, "src", "polyseme", "_native")
        spec = importlib.util.spec_from_file_location("_native_build", folder / "build.py")
        assert spec is not None and spec.loader is not None
        native = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(native)
        try:
            path = native.build(folder)
        except native.BuildError as error:
            self.app.display_warning(f"polyseme: no compiled search, numpy is used ({error})")
            return
        build_data["pure_python"] = False
        build_data["tag"] = native.wheel_tag()
        if version != "editable":
            build_data["force_include"][str(path)] = f"polyseme/_native/{path.name}"
