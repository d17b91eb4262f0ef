"""The one package that an installed broker adds: `topics_broker.broker`, `topics_broker.storage` and the others.

An installed broker must not take names such as `storage` or `schemas` from the programs beside it, so the wheel holds
its packages below this one (docs/adr/0097-one-installed-package.md). In a checkout they are folders at its root.
There the same names lead to the same modules: `topics_broker.storage` is `storage`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

_ROOT: Final = "topics_broker"
#: The packages of a checkout's root that the wheel holds below this one.
PACKAGES: Final = ("broker", "kernel", "pipeline", "schemas", "storage")


class _SameModule(Loader):
    """Gives a module of the checkout under its second name, without running it again."""

    def __init__(self, name: str) -> None:
        self._module = import_module(name)
        self._spec = self._module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module as it is."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Runs nothing: the module ran under its first name, and keeps it."""
        module.__spec__ = self._spec


class _Checkout(MetaPathFinder):
    """Finds `topics_broker.storage.log` as `storage.log`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The second name of a module of the checkout; None for all other names."""
        root, _, name = fullname.partition(".")
        if root != _ROOT or name.partition(".")[0] not in PACKAGES:
            return None
        return ModuleSpec(fullname, _SameModule(name))


if not (Path(__file__).parent / "storage").is_dir():
    sys.meta_path.append(_Checkout())
