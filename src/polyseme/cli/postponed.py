"""Load libraries that scikit-learn imports, and that commands hardly ever use, on first use.

In: names of modules. Out: stand-ins, which load the module when an attribute is read.
`sklearn.base` alone loads pandas and `scipy.stats`: half a second of every command. This is done in
the command's own process, never in a user's.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

HARDLY_USED = ("pandas", "scipy.stats")  # names of modules


class Postponed(ModuleType):
    """A stand-in for a module until one of its attributes is read."""

    def __init__(self, name: str, spec: ModuleSpec) -> None:
        super().__init__(name)
        self.__spec__ = spec  # by which others see whether it is installed

    def __getattr__(self, name: str) -> Any:
        """Load the module, which takes this one's place, and return its attribute."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        module = import_module(self.__name__)
        return getattr(module, name)


def postpone(names: tuple[str, ...] = HARDLY_USED) -> None:
    """Put stand-ins in the place of modules that are installed and not loaded yet."""
    for name in names:
        if name in sys.modules:
            continue
        spec = find_spec(name)
        if spec is not None:
            sys.modules[name] = Postponed(name, spec)
