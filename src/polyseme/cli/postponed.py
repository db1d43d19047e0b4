"""Libraries that scikit-learn loads, and that our commands hardly ever use, wait until they are.

In: names of modules. Out: stand-ins, which become the modules when anything of them is asked for.
`sklearn.base` alone loads pandas and `scipy.stats`: half a second of every command. The command is
a process of its own; in a user's process nothing of this is done.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

HARDLY_USED = ("pandas", "scipy.stats")


class Postponed(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str, spec: ModuleSpec) -> None:
        super().__init__(name)
        self.__spec__ = spec  # by which others see whether it is installed

    def __getattr__(self, name: str) -> Any:
        """Load the module, which takes this one's place, and give what was asked for."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def postpone(names: tuple[str, ...] = HARDLY_USED) -> None:
    """Let modules wait that are installed and not loaded yet."""
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = Postponed(name, spec)
