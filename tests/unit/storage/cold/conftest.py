"""Every kind of store, each empty, with a file system to put files from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from storage.platform.filesystem import FileSystem
from storage.platform.posix import PosixFileSystem
from storage.segments.tiering.open import open_store
from storage.segments.tiering.store import ColdStore
from tests.support.sim_disk import SimDisk
from tests.unit.storage.cold.servers import BUCKET, credentials, s3_server

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    store: ColdStore
    fs: FileSystem
    folder: str

    def local(self, data: bytes, name: str = "local.bin") -> str:
        """A local file with this content."""
        path = f"{self.folder}/{name}"
        file = self.fs.open(path, create=True)
        file.truncate(0)
        done = 0
        while done < len(data):
            done += file.pwritev([data[done:]], done)
        file.close()
        return path


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Rig:
    credentials(monkeypatch, s3_endpoint)
    disk = SimDisk()
    disk.mkdir("/local")
    # Each test uses a different prefix in one shared bucket.
    url = f"s3://{BUCKET}/{os.getpid()}-{next(_numbers)}/cold"
    return Rig(store=open_store(url, disk, timeout_s=20), fs=disk, folder="/local")


@pytest.fixture
def posix(tmp_path: Path) -> Rig:
    fs = PosixFileSystem()
    return Rig(store=open_store(str(tmp_path / "cold" / "tier"), fs), fs=fs, folder=str(tmp_path))


@pytest.fixture
def sim() -> Rig:
    disk = SimDisk()
    disk.mkdir("/local")
    return Rig(store=open_store("/mnt/cold", disk), fs=disk, folder="/local")


@pytest.fixture(params=["posix", "sim", "s3"])
def rig(request: pytest.FixtureRequest) -> Rig:
    found: Rig = request.getfixturevalue(request.param)
    return found
