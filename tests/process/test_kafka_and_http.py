"""Records written over one protocol are read over another in a running broker, and are the same after a kill -9."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.support.broker_process import BrokerProcess

PATIENCE_S = 120.0
SENT = [
    (b"eu", b'{"id":1}', [("kind", b"text"), ("raw", b"\xff")]),
    (None, b"\x00\xff", []),
    (b"gone", None, []),
]


def produce(address: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "acks": "all", "compression.type": "lz4"})
    for key, value, headers in SENT:
        producer.produce("t", value=value, key=key, headers=headers)
    assert producer.flush(PATIENCE_S) == 0


def read(address: str, count: int) -> list[tuple[Any, Any, Any]]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        found: list[tuple[Any, Any, Any]] = []
        while len(found) < count:
            (message,) = consumer.consume(1, PATIENCE_S)
            assert message.error() is None
            found.append((message.key(), message.value(), message.headers() or []))
        return found
    finally:
        consumer.close()


def watched(broker: BrokerProcess, count: int) -> list[Any]:
    """The first records of an event stream."""
    stream = broker.ok("POST", "/v0/watch", {"topics": {"t": {"from_seq": 0}}})["stream_url"]
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=PATIENCE_S)
    connection.request("GET", stream, headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    found: list[Any] = []
    while len(found) < count:
        line = answer.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: ") and b'"records"' in line:
            found += json.loads(line[6:])["records"]
    connection.close()
    return found


def test_records_written_over_any_protocol_are_read_over_every_protocol(tmp_path: Path) -> None:
    file = tmp_path / "kafka-port"
    with BrokerProcess(tmp_path, kafka_port=0, kafka_port_file=file) as broker:
        broker.start()
        broker.ok("PUT", "/v0/topics/t", {"durability": "fsync"})
        broker.until(file.exists)
        produce(f"127.0.0.1:{int(file.read_text())}")
        broker.ok("POST", "/v0/topics/t", {"records": [{"data": {"id": 2}, "tag": "us", "meta": {"a": "b"}}]})
        broker.kill()
        file.unlink()
        broker.start()
        shown = [
            {"data": {"id": 1}, "meta": {"kind": "text"}},
            {"data": {"$base64": "AP8="}},
            {"data": {"$base64": ""}},
            {"data": {"id": 2}, "meta": {"a": "b"}},
        ]
        read_back = broker.ok("POST", "/v0/topics/t/diff", {"from_seq": 0})["records"]
        for records in (read_back, watched(broker, 4)):
            assert [{key: each[key] for key in each if not key.startswith("$")} for each in records] == shown
        broker.until(file.exists)
        found = read(f"127.0.0.1:{int(file.read_text())}", 4)
        assert found == [*SENT, (b"us", b'{"id": 2}', [("a", b"b")])]
