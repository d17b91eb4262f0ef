"""An export with pyarrow alone: every record once, from where the last export ended."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadOption, DataLoss, PipelineError, Recreated, StoreRefused
from pipeline.export.exporter import Exporter, Limits, Outcome
from pipeline.export.parts import PartSettings
from pipeline.export.store import open_store
from pipeline.values import value_shape
from tests.pipeline.exports import Exports, Overtaken
from tests.support.small_segments import SmallSegments


def test_every_record_once_over_several_runs(broker: SmallSegments, exports: Exports) -> None:
    broker.append("runs", 1300)
    broker.await_sealed("runs", 1001)
    first = exports.export("runs")
    assert (first.records, first.end, first.manifests) == (1300, 1301, [1])
    assert exports.export("runs").manifests == []
    broker.append("runs", 70, first=1300)
    assert exports.export("runs").records == 70
    rows = exports.rows("runs")
    assert [row["seq"] for row in rows] == list(range(1, 1371))
    assert [json.loads(row["value"])["n"] for row in rows] == list(range(1370))
    assert [row["key"] for row in rows[:3]] == [b"third", None, None]


def test_files_and_manifest_are_as_specified(broker: SmallSegments, exports: Exports) -> None:
    broker.append("odd:name", 10)
    exports.export("odd:name")
    [entry] = exports.chain("odd:name").files()
    stamp = broker.client.get_record("odd:name", 1).ts
    day = datetime.fromtimestamp(stamp / 1000, UTC).strftime("%Y-%m-%d")
    epoch = broker.client.state("odd:name").epoch
    assert entry.file.startswith(f"odd%3Aname/date={day}/part-0-{1:020d}-{11:020d}-{epoch}-")
    data = exports.path(entry.file).read_bytes()
    assert (entry.bytes, entry.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (entry.rows, entry.min_seq, entry.max_seq, entry.min_ts) == (10, 1, 10, stamp)
    meta = pq.ParquetFile(exports.path(entry.file))
    assert "timeUnit=microseconds" in str(meta.schema)
    assert meta.metadata.row_group(0).column(1).compression == "ZSTD"
    manifest = exports.chain("odd:name").load(1)
    assert (manifest.kind, manifest.prev, manifest.end, manifest.gaps) == ("append", 0, {"0": 11}, [])


def test_export_with_max_records_continues_in_the_next_run(broker: SmallSegments, exports: Exports) -> None:
    broker.append("limited", 25)
    limits = Limits(max_records=10)
    assert [exports.export("limited", limits=limits).records for _ in range(4)] == [10, 10, 5, 0]
    assert exports.seqs("limited") == list(range(1, 26))


def test_json_lines_by_hour(broker: SmallSegments, exports: Exports) -> None:
    broker.append("lines", 3)
    exports.export("lines", parts=PartSettings(kind="json", hourly=True))
    [entry] = exports.chain("lines").files()
    assert "/hour=" in entry.file
    rows = [json.loads(line) for line in gzip.decompress(exports.path(entry.file).read_bytes()).splitlines()]
    assert [row["value"] for row in rows] == ['{"n":0}', '{"n":1}', '{"n":2}']


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_typed_columns_of_files_cannot_change(broker: SmallSegments, exports: Exports, kind: str) -> None:
    topic, parts = f"typed-{kind}", PartSettings(kind=kind)
    broker.append(topic, 3)
    exports.export(topic, parts=parts, values=value_shape("n int", []))
    broker.append(topic, 3, first=3)
    for later in ("n int, m string", "n bigint"):
        with pytest.raises(BadOption, match="All files of a topic have the same columns"):
            exports.export(topic, parts=parts, values=value_shape(later, []))
    assert exports.export(topic, parts=parts, values=value_shape("n int", [])).records == 3


def test_concurrent_exports_write_no_record_twice(broker: SmallSegments, exports: Exports) -> None:
    broker.append("both", 1200)
    runs = [exports.exporter() for _ in range(2)]
    threads = [threading.Thread(target=run.export, args=("both",)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert exports.seqs("both") == list(range(1, 1201))
    assert len(exports.parts("both")) == len(exports.chain("both").files())


def test_evicted_records_are_refused_or_recorded(broker: SmallSegments, exports: Exports) -> None:
    broker.client.put_topic("capped", cap_records=100)
    broker.append("capped", 80)
    exports.export("capped")
    broker.append("capped", 200, first=80)
    with pytest.raises(DataLoss, match=r"seqs 81 to 180 are lost \(reason: cap\)"):
        exports.export("capped")
    outcome = exports.export("capped", fail_on_loss=False)
    assert [(gap.first, gap.last, gap.reason) for gap in outcome.gaps] == [(81, 180, "cap")]
    [gap] = exports.chain("capped").load(2).gaps
    assert (gap.first, gap.last, gap.reason, gap.missed_estimate) == (81, 180, "cap", 100)
    assert exports.seqs("capped") == [*range(1, 81), *range(181, 281)]


def test_failed_run_leaves_no_plan_that_blocks_others(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.append("failing", 5)
    for error in (PipelineError("no"), KeyboardInterrupt()):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("pipeline.export.arrow_engine.export_split", fail)
        with pytest.raises(type(error)):
            exports.export("failing")
        assert exports.store.list("_topics/failing") == []
    monkeypatch.undo()
    assert exports.export("failing").records == 5


@pytest.mark.parametrize("fate", ["puts", "fails", "dies"])
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_run_that_waits_for_another_goes_on_when_that_ends(
    broker: SmallSegments, exports: Exports, monkeypatch: pytest.MonkeyPatch, kind: str, fate: str
) -> None:
    """Both processes live on, as for runs on different machines: the plan alone says how far the other is."""
    topic, parts = f"waits-{kind}-{fate}", PartSettings(kind=kind)
    broker.append(topic, 10)

    class Dies(BaseException):
        """Replaces SIGKILL of a run on another machine."""

    with Exports(exports.job.url, exports.job.to) as other, ThreadPoolExecutor(1) as pool:
        waiting = list[Future[Outcome]]()

        def overtake() -> None:
            waiting.append(pool.submit(other.export, topic, parts=parts))
            broker.until(lambda: bool(other.said))
            if fate == "fails":
                raise PipelineError("no")
            if fate == "dies":  # between its commit and the end of its plan
                delete = exports.store.delete
                monkeypatch.setattr("pipeline.export.exporter._LOOK_S", 0.0)
                monkeypatch.setattr(Exporter, "_release", lambda *_: None)
                monkeypatch.setattr(exports.store, "delete", lambda key: die() if ".plan" in key else delete(key))

        def die() -> None:
            raise Dies

        def run() -> int:
            return exports.export(topic, parts=parts, engine=Overtaken(overtake)).records

        if fate == "puts":
            assert run() == 10
        else:
            with pytest.raises(PipelineError if fate == "fails" else Dies):
                run()
        assert waiting[0].result(timeout=60).records == (10 if fate == "fails" else 0)
        assert "waiting" in other.said[0]
    assert exports.chain(topic).numbers() == [1]


def test_expired_records_are_refused(broker: SmallSegments, exports: Exports) -> None:
    broker.append("expiring", 5)
    exports.export("expiring")
    broker.append("expiring", 5, first=5)
    broker.client.put_topic("expiring", ttl_ms=1)
    broker.until(lambda: broker.client.state("expiring").earliest_seq == 11)
    with pytest.raises(DataLoss, match=r"seqs 6 to 10 are lost \(reason: ttl\)"):
        exports.export("expiring")


def test_deletions_are_silent(broker: SmallSegments, exports: Exports) -> None:
    broker.append("deleted", 600)
    broker.await_sealed("deleted", 501)
    broker.client.delete_records("deleted", match="third")
    exports.export("deleted")
    assert exports.seqs("deleted") == [seq for seq in range(1, 601) if (seq - 1) % 3]


def test_a_recreated_topic_is_refused_or_recorded(broker: SmallSegments, exports: Exports) -> None:
    broker.append("again", 10)
    exports.export("again")
    broker.client.delete_topic("again")
    broker.append("again", 4)
    with pytest.raises(Recreated, match="deleted and created again"):
        exports.export("again")
    outcome = exports.export("again", fail_on_loss=False)
    assert [gap.reason for gap in outcome.gaps] == ["recreated"]
    assert sorted(exports.seqs("again")) == sorted([*range(1, 11), *range(1, 5)])


def test_bookmark_beyond_the_head_is_an_error(broker: SmallSegments, exports: Exports) -> None:
    import msgspec

    broker.append("short", 5)
    exports.export("short")
    path = exports.path("_topics/short/00000000000000000001.json")
    manifest = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**manifest, "end": {"0": 99}}))
    with pytest.raises(PipelineError, match="exported up to seq 98, but its last seq is 5"):
        exports.export("short")


def test_a_directory_that_cannot_be_used_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store(str(tmp_path))
    for step in (store.size, store.read, store.list, store.delete):
        with pytest.raises(StoreRefused, match=r"file.* cannot be used: Not a directory"):
            step("file/below")
