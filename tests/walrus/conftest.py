"""Shared parts of these scenarios."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from tests.unit.storage.machine import Machine


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with Machine() as machine:
        yield machine


@pytest.fixture
def random_seed() -> int:
    """A random source with the seed of the run, which pytest prints."""
    return random.getrandbits(64)
