"""A real broker with small segments, and exports from it with pyarrow alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.exports import Exports
from tests.support.small_segments import SmallSegments
from tests.unit.storage.cold.servers import BUCKET, credentials, s3_server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallSegments]:
    """A broker for the tests of a module; each test uses different topics."""
    with SmallSegments(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def exports(broker: SmallSegments, tmp_path: Path) -> Iterator[Exports]:
    """Exports of `broker` to a folder of this test's own."""
    with Exports(broker.url, str(tmp_path / "out")) as exports:
        yield exports


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a folder in an empty bucket; the environment has the credentials."""
    with s3_server() as endpoint:
        credentials(monkeypatch, endpoint)
        yield f"s3://{BUCKET}/below"
