"""The metrics of a cell in a bucket: those that are declared, with values that are true."""

from __future__ import annotations

from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from broker.api.exposition import families
from broker.settings import Settings
from broker.telemetry import as_text
from broker.telemetry.metric_table import ALL
from broker.wiring import Broker
from storage import Durability, NewRecord, TopicConfig
from storage.bucket import Candidate
from storage.cells.owner import CellOwner, begin
from tests.http.test_metric_table import OF_A_BUCKET, differences
from tests.support.memory_bucket import MemoryBucket

CELL = "cell-00"


async def shown(owner: CellOwner, directory: Path) -> dict[str, dict[str, float]]:
    """By family: the values by their labels, after a look that all families are declared ones."""
    broker = Broker(owner.engine, Settings(data_dir=directory), owner=owner)
    text = await as_text(families(broker))
    there = [each for each in text_string_to_metric_families(text.decode()) if each.name.startswith(OF_A_BUCKET)]
    assert differences(there, [each for each in ALL if each.name.startswith(OF_A_BUCKET)]) == []
    return {
        family.name: {
            " ".join(sample.labels.values()): sample.value
            for sample in family.samples
            if "le" not in sample.labels and not sample.name.endswith(("_created", "_sum"))
        }
        for family in there
    }


async def test_a_cell_in_a_bucket_shows_its_requests_slots_bases_and_time(tmp_path: Path) -> None:
    bucket = MemoryBucket()
    begin(bucket, CELL, Candidate("init", "00" * 16))
    owner = CellOwner(bucket, CELL, str(tmp_path / "cell"), Candidate("node-1", "01" * 16))
    before = await shown(owner, tmp_path)
    assert before["topics_bucket_time_left_seconds"] == {"": 0}
    await owner.start()
    try:
        await owner.engine.put_topic("events", TopicConfig(durability=Durability.FSYNC))
        await owner.engine.append("events", [NewRecord(msgspec.Raw(b"1"))])
        behind = await shown(owner, tmp_path)
        assert behind["topics_bucket_slots_behind"][""] == owner.behind[0] > 0
        assert behind["topics_bucket_slot_bytes_behind"][""] == behind["topics_bucket_slot_bytes"][""] > 0
        assert behind["topics_bucket_request_seconds"]["create"] > 0
        assert behind["topics_bucket_time_left_seconds"][""] > 0
        await owner.put_base()
        found = await shown(owner, tmp_path)
        assert found["topics_bucket_slots_behind"][""] <= 1
        assert (found["topics_bucket_bases"], found["topics_bucket_generation"]) == ({"": 1}, {"": 2})
        assert found["topics_bucket_slots"][""] == owner.slots
        assert -5 < found["topics_bucket_clock_off_seconds"][""] < 5
    finally:
        await owner.close()


async def test_requests_without_an_answer_are_counted(tmp_path: Path) -> None:
    owner = CellOwner(MemoryBucket(), CELL, str(tmp_path / "cell"), Candidate("node-1", "01" * 16))
    owner.times.failed("create")
    found = await shown(owner, tmp_path)
    assert found["topics_bucket_requests_unanswered"]["create"] == 1
    await owner.close()
