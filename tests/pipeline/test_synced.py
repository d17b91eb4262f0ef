"""What the libraries of tables write is synced: they do not do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.export import store as stores
from pipeline.export import synced_files
from pipeline.export.part_settings import PartSettings
from tests.pipeline.exports import Exports
from tests.support.small_segments import SmallSegments


def test_commits_and_metadata_are_synced(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = stores.sync_file

    def watched(path: Path) -> None:
        synced.append(path.relative_to(exports.job.to).as_posix())
        sync(path)

    monkeypatch.setattr(stores, "sync_file", watched)
    monkeypatch.setattr(synced_files, "sync_file", watched)
    broker.append("d", 5)
    exports.export("d", parts=PartSettings(kind="delta"))
    log = sorted(path.relative_to(exports.job.to).as_posix() for path in exports.path("d/_delta_log").glob("*.json"))
    assert sorted(synced) == log
    synced.clear()
    broker.append("i", 5)
    exports.export("i", parts=PartSettings(kind="iceberg"))
    metadata = [path.relative_to(exports.job.to).as_posix() for path in exports.path("i/metadata").iterdir()]
    assert sorted(synced) == sorted(metadata)
