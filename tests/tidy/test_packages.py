"""Packages are imported through their `__init__`. The rule notices an import of an inner file."""

from __future__ import annotations

import pytest

from tests.tidy import rules_packages
from tests.tidy.rules_packages import (
    EXCEPTIONS,
    Packages,
    needless_exceptions,
    needless_exports,
    package_problems,
    packages_of,
    used_from_outside,
)
from tests.tidy.tree import Source, python_files

TREE = packages_of(
    [
        Source("storage/__init__.py", ""),
        Source("storage/engine.py", ""),
        Source("storage/log/__init__.py", "from storage.log.writer import Shard\n__all__ = ['Shard', 'reader']"),
        Source("storage/log/writer.py", "class Shard: ..."),
        Source("storage/log/reader.py", ""),
        Source("storage/log/stats.py", ""),
        Source("storage/state/__init__.py", ""),
        Source("storage/state/queues/__init__.py", "__all__ = []"),
        Source("broker/__init__.py", ""),
        Source("broker/wiring.py", ""),
        Source("tests/helper.py", ""),
    ]
)
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


def test_packages_are_imported_through_their_init() -> None:
    tree = packages_of(python_files())
    assert [problem for source in python_files() for problem in package_problems(source, tree)] == []


def test_packages_export_exactly_the_used_names() -> None:
    assert needless_exports(packages_of(python_files()), used_from_outside(python_files())) == []


def test_every_exception_is_needed() -> None:
    assert needless_exceptions(python_files()) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/queues/claims.py", "from storage.log.writer import Shard"),
        ("storage/queues/claims.py", "import storage.log.writer"),
        ("storage/queues/claims.py", "from storage.log import stats"),
        ("storage/queues/claims.py", "from storage.log import Unheard"),
        ("storage/queues/claims.py", FOR_TYPES + "from storage.log.writer import Shard"),
        ("broker/api/app.py", "from storage.engine import Engine"),
        ("broker/api/app.py", "import storage.engine as engine"),
    ],
)
def test_an_import_of_an_inner_file_is_reported(path: str, text: str) -> None:
    assert len(package_problems(Source(path, text), TREE)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/queues/claims.py", "from storage.log import Shard, reader"),
        ("storage/queues/claims.py", "from storage.state import queues"),
        ("storage/queues/claims.py", "def later():\n    from storage.log.writer import Shard"),
        ("storage/log/append.py", "from storage.log.writer import Shard"),
        ("storage/log/tiering/append.py", "from storage.log.writer import Shard"),
        ("storage/log/append.py", "from storage.engine import Engine"),
        ("loadtest/trip.py", "from broker.wiring import Broker"),
        ("tests/unit/test_writer.py", "from storage.log.writer import Shard"),
        ("broker/api/app.py", "import storage"),
    ],
)
def test_an_import_through_the_init_is_accepted(path: str, text: str) -> None:
    assert package_problems(Source(path, text), TREE) == []


def test_an_exception_holds_at_run_time_and_not_for_type_checkers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXCEPTIONS, "storage.log.writer", rules_packages.CIRCLE)
    line = "from storage.log.writer import Shard"
    assert package_problems(Source("storage/queues/claims.py", line), TREE) == []
    assert len(package_problems(Source("storage/queues/claims.py", FOR_TYPES + line), TREE)) == 1


def test_an_unused_export_is_reported() -> None:
    tree = Packages(frozenset(), {"storage.log": ("Shard", "reader"), "storage": ("Engine",)})
    users = [
        Source("storage/queues/claims.py", "from storage.log import Shard"),
        Source("storage/log/append.py", "from storage.log import reader"),
    ]
    assert len(needless_exports(tree, used_from_outside(users))) == 1


def test_an_unused_exception_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_packages, "EXCEPTIONS", {"storage.log.writer": rules_packages.CIRCLE})
    used = Source("storage/queues/claims.py", "from storage.log.writer import Shard")
    assert needless_exceptions([used]) == []
    assert len(needless_exceptions([Source("storage/log/append.py", used.text)])) == 1
