"""The one package that an installed broker adds: `topics_broker.broker`, `topics_broker.storage` and the others.

An installed broker must not take names such as `storage` or `schemas` from the programs beside it, so the wheel holds
its packages below this one (docs/adr/0097-one-installed-package.md). In a checkout they are folders at its root.
There the same names lead to the same modules: `topics_broker.storage` is `storage`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

_ROOT: Final = "topics_broker"
#: The packages of a checkout's root that the wheel holds below this one.
PACKAGES: Final = ("broker", "kernel", "pipeline", "schemas", "storage")


class _SameModule(Loader):
    """Gives a module of the checkout under its second name, without running it again."""

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module as it is."""
        module = import_module(self._spec.name)
        self._first = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Runs nothing: the module ran under its first name, and keeps it."""
        module.__spec__ = self._first

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m`, which runs a module a second time by design."""
        assert isinstance(self._spec.loader, InspectLoader)
        return self._spec.loader.get_code(self._spec.name)


class _Checkout(MetaPathFinder):
    """Finds `topics_broker.storage.log` as `storage.log`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The second name of a module of the checkout; None for all other names."""
        root, _, name = fullname.partition(".")
        if root != _ROOT or name.partition(".")[0] not in PACKAGES:
            return None
        spec = find_spec(name)
        if spec is None:
            return None
        is_package = spec.submodule_search_locations is not None
        return ModuleSpec(fullname, _SameModule(spec), origin=spec.origin, is_package=is_package)


if not (Path(__file__).parent / "storage").is_dir():
    sys.meta_path.append(_Checkout())
