"""The protocol against fake-gcs-server, an emulator of Google Cloud Storage (`tests/support/fake_gcs.py` says how)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from storage import Durability, NewRecord, ReadQuery, TopicConfig
from storage.bucket import Candidate, Unanswered, open_bucket, probe
from storage.cells.owner import CellOwner, begin
from tests.support.fake_gcs import BUCKET, BUILD_S, fake_gcs
from tests.unit.storage.cold.servers import google_credentials

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_S + 600)]

CELL = "cell-00"


@pytest.fixture
def store(go: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment of a process that uses it."""
    with fake_gcs(go, tmp_path) as address:
        google_credentials(monkeypatch, address)
        yield


def test_the_probe_accepts_the_store_and_nothing_is_left(store: None) -> None:
    probe(lambda: open_bucket("gs", BUCKET, "probed"), "probe", "01" * 16)
    assert open_bucket("gs", BUCKET, "probed").names("probe/") == []


def test_the_emulator_alone_is_refused(go: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no PUT of the XML API. When it has got one, nothing need be translated."""
    with fake_gcs(go, tmp_path, translated=False) as address:
        google_credentials(monkeypatch, address)
        with pytest.raises(Unanswered, match="status 400"):
            probe(lambda: open_bucket("gs", BUCKET, "probed"), "probe", "01" * 16)


def record(number: int) -> NewRecord:
    return NewRecord(msgspec.Raw(msgspec.json.encode(number)))


async def test_an_owner_finds_what_the_one_before_has_acked(store: None, tmp_path: Path) -> None:
    bucket = open_bucket("gs", BUCKET, "cluster")
    begin(bucket, CELL, Candidate("init", "00" * 16))
    first = CellOwner(bucket, CELL, str(tmp_path / "1"), Candidate("a", "01" * 16), ttl_s=1.0)
    await first.start()
    await first.engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
    for number in range(20):
        await first.engine.append("events", [record(number)])
    await first.engine.segment_worker.flush_all()
    await first.put_base()
    await first.engine.append("events", [record(20)])
    await first.abandon()
    second = CellOwner(bucket, CELL, str(tmp_path / "2"), Candidate("b", "02" * 16), ttl_s=1.0)
    await second.start()
    found = await second.engine.read("events", ReadQuery(limit=100))
    assert [msgspec.json.decode(each.data) for each in found.records] == list(range(21))
    assert second.generation > 1
    await second.close()
    assert second.released
