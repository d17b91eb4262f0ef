"""Records of a compressing producer use less disk space, and readers see no difference."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from pipeline.batches import Shape
from pipeline.split_reader import SplitReader, fail_on_gap
from pipeline.splits import splits_of
from pipeline.stopped import DirectoryOrigin
from tests.support.broker_process import ROOT, BrokerProcess

COUNT = 6000
PATIENCE_S = 120
#: A thousand records in a segment, packed as soon as possible.
SETTINGS = {
    "segment_max_events": 1000,
    "checkpoint_records": 500,
    "checkpoint_interval_ms": 50,
    "flag_age_ms": 0,
    "wal_shards": 1,
}


def value(number: int) -> bytes:
    return json.dumps({"order": number, "customer": f"customer {number % 97}", "note": "as always " * 8}).encode()


VALUES = [value(number) for number in range(COUNT)]


def produce(port: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.num.messages": 300,
        }
    )
    for number, each in enumerate(VALUES):
        producer.produce("orders", each, key=f"k{number % 50}")
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def consumed(port: int, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(min(500, count - len(found)), timeout=PATIENCE_S)  # waits for so many
        assert messages, f"{len(found)} of {count}"
        assert not any(each.error() for each in messages)
        found += [each.value() for each in messages]
    consumer.close()
    return found


def over_http(broker: BrokerProcess) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    after = 0
    while True:
        page = broker.ok("POST", "/v0/topics/orders/diff", {"from_seq": after, "limit": 700})
        if not page["records"]:
            return found
        found += [(each["$seq"], json.dumps(each["data"])) for each in page["records"]]
        after = page["next_from_seq"]


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def all_packed(broker: BrokerProcess) -> bool:
    return broker.metric("topics_segments_packed") >= 4


def of_stopped(data_dir: Path) -> list[tuple[int, str]]:
    """With the pipeline's reader of a directory that no broker has open."""
    origin = DirectoryOrigin(str(data_dir))
    try:
        view = origin.view("orders")
        found: list[tuple[int, str]] = []
        for split in splits_of("orders", view, 1, view.end):
            for batch in SplitReader(origin, split, Shape(), fail_on_gap).batches():
                rows = zip(batch.column("seq").to_pylist(), batch.column("value").to_pylist(), strict=True)
                found += [(seq, json.dumps(json.loads(data))) for seq, data in rows]
        return found
    finally:
        origin.close()


def test_readers_of_packed_segments_get_the_records_of_the_producer(tmp_path: Path) -> None:
    file = tmp_path / "kafka-port"
    doors = {"kafka_port": 0, "kafka_port_file": file, "backup_dir": tmp_path / "backups"}
    with BrokerProcess(tmp_path, **doors, **SETTINGS) as broker:
        broker.start()
        broker.until(file.exists)
        produce(int(file.read_text()))
        broker.until(lambda: all_packed(broker))
        broker.until(lambda: broker.metric("topics_segments_stored_bytes") * 2 < broker.metric("topics_segments_bytes"))
        expected = [(number + 1, json.dumps(json.loads(each))) for number, each in enumerate(VALUES)]
        assert over_http(broker) == expected
        assert consumed(int(file.read_text()), COUNT) == VALUES
        broker.ok("POST", "/v0/topics/orders/delete", {"before_seq": 100})
        gone = {seq for seq, _ in expected if (seq - 1) % 50 == 7}
        broker.ok("POST", "/v0/topics/orders/delete", {"match": ["tag", "Eq", "k7"]})
        expected = [(seq, data) for seq, data in expected if seq >= 100 and seq not in gone]
        assert over_http(broker) == expected

        broker.kill()
        files = {path.suffix for path in (broker.data_dir / "topics").rglob("seg-*")}
        assert ".zdata" in files
        assert (broker.data_dir / "FORMAT").read_text().startswith("2\n")
        assert of_stopped(broker.data_dir) == expected
        run("storage", "verify", str(broker.data_dir))
        file.unlink()
        broker.start()
        broker.until(file.exists)
        assert over_http(broker) == expected
        kept = [VALUES[seq - 1] for seq, _ in expected]
        assert consumed(int(file.read_text()), len(kept)) == kept
        broker.ok("POST", "/v0/admin/backup", {"directory": "all"})
        broker.until(lambda: broker.ok("GET", "/v0/admin/backup")["state"] == "done")
        assert broker.stop() == 0
        assert broker.complaints() == []
        run("storage", "restore", str(tmp_path / "backups" / "all"), str(tmp_path / "restored"))
    with BrokerProcess(tmp_path, data_dir=tmp_path / "restored", **SETTINGS) as again:
        again.start()
        assert over_http(again) == expected
        again.until(lambda: all_packed(again))
        assert over_http(again) == expected
        assert again.stop() == 0
        run("storage", "verify", str(again.data_dir))
