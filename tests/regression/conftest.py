"""A simulated machine of its own for every test that asks for one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.storage.machine import Machine


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with Machine() as machine:
        yield machine
