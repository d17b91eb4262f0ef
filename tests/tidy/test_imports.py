"""Which modules import which, over the whole tree. The rules notice a violation."""

from __future__ import annotations

import pytest

from tests.tidy.rules_imports import import_problems
from tests.tidy.tree import Source, python_files


def test_every_import_keeps_to_the_rules() -> None:
    assert [problem for source in python_files() for problem in import_problems(source)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/engine.py", "import broker"),
        ("storage/engine.py", "def later():\n    from schemas.config import Config"),
        ("storage/log/shard.py", "from fastapi import FastAPI"),
        ("storage/log/shard.py", "from ...broker import settings"),
        ("storage/format/wal_frame.py", "from storage.errors import WalCorrupt"),
        ("storage/format/wal_frame.py", "from ..errors import WalCorrupt"),
        ("storage/format/__init__.py", "from .. import errors"),
        ("storage/format/wal_frame.py", "import numpy"),
        ("storage/platform/layout.py", "import mmap"),
        ("storage/platform/layout.py", "from pathlib import Path"),
        ("storage/state/tail.py", "from time import monotonic"),
        ("storage/state/tail.py", "import datetime"),
        ("schemas/records.py", "from storage import Engine"),
        ("broker/service/append.py", "from starlette.requests import Request"),
        ("broker/service/append.py", "from ..api import app"),
        ("clients/python/topics_client/session.py", "import storage.records.values"),
        ("pipeline/source.py", "from broker.settings import Settings"),
    ],
)
def test_a_forbidden_import_is_reported(path: str, text: str) -> None:
    assert len(import_problems(Source(path, text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("storage/format/wal_frame.py", "import struct\nimport xxhash\nfrom storage.format.checksum import digest"),
        ("storage/format/wal_frame.py", "from .checksum import digest"),
        ("storage/format/__init__.py", "from .checksum import digest"),
        ("storage/platform/posix.py", "import fcntl, os"),
        ("storage/platform/clock.py", "import time"),
        ("storage_more/x.py", "import broker"),
        ("broker/api/app.py", "from fastapi import FastAPI\nfrom storage import Engine\nfrom schemas import records"),
        ("clients/python/topics_client/http.py", "import httpx"),
    ],
)
def test_an_allowed_import_is_accepted(path: str, text: str) -> None:
    assert import_problems(Source(path, text)) == []
