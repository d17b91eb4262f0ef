"""Shared parts of the cell tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kafka.cells.several import Several, several


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Several]:
    """Three cells without keys."""
    async with several(tmp_path) as found:
        yield found
