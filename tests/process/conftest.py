"""Shared parts of the tests of whole processes."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.small_disk import SmallDisk, refusal

DISK_BYTES = 4 << 20


@pytest.fixture
def dice() -> random.Random:
    """A random source with the seed of the run, which pytest prints."""
    return random.Random(random.getrandbits(64))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk that can be filled. If none can be mounted, tests that need it are deselected, and the run says so."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    with SmallDisk(mount_point, DISK_BYTES) as disk:
        yield disk


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asking = [item for item in items if "small_disk" in getattr(item, "fixturenames", ())]
    reason = refusal() if asking else None
    if reason is not None:
        items[:] = [item for item in items if item not in asking]
        config.hook.pytest_deselected(items=asking)
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\nno disk can be mounted here ({reason}): {len(asking)} tests deselected", file=sys.stderr)
