"""Shared parts of the tests of the Kafka port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.kafka.server import KafkaServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    """A broker without keys."""
    async with KafkaServer(tmp_path) as server:
        yield server
