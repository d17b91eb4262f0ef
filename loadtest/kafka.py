"""Measures the Kafka port with a stock client: records produced, acked by all, and read back.

    python -m loadtest.kafka --records 1000000
    python -m loadtest.kafka --kind events --records 100000 --compression zstd
    python -m loadtest.kafka --kind events --records 200000 --compression zstd --durability disk --rounds 1 --on-disk

The client is confluent-kafka in a separate process; the broker is another process on the same machine, so they share
its processors. Producing counts from the first record handed to the client to the last ack, reading from `assign` to
the last record. Bytes on the wire are those that the client reports as sent and received. With --on-disk the run then
waits until the segment files stop changing, counts their bytes, and reads everything once more.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec

from loadtest.own_broker import OwnBroker, ask
from storage import Durability
from storage.format import ENTRY_SIZE

_PATIENCE_S = 60.0
_AT_ONCE = 10_000
_EVENTS = 100_000
_SETTLE_S = 0.3
_QUIET_S = 6.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Result(msgspec.Struct, kw_only=True):
    """One direction: records a second; per record the processor time of broker and client in µs, and the bytes on the
    wire in both directions together.
    """

    what: str
    records_per_s: float
    broker_us: float
    client_us: float
    wire_bytes: float


class OnDisk(msgspec.Struct, kw_only=True):
    """Of all segments: records in them, and the bytes of each that their records and their indexes take."""

    records: int
    record_bytes: float
    index_bytes: float


class Port:
    """A broker with a Kafka port."""

    def __init__(self, parent: str, tree: Path | None = None, *, on_disk: bool = False) -> None:
        settings = {"KAFKA_PORT": "0"} | ({"FLAG_AGE_MS": "500"} if on_disk else {})
        self.broker = OwnBroker(parent=parent, settings=settings, tree=tree)
        self._port_file = self.broker.data_dir.parent / "kafka-port"
        self.broker.settings["KAFKA_PORT_FILE"] = str(self._port_file)
        self.broker.start()
        self.address = f"127.0.0.1:{_number_in(self._port_file)}"

    def busy_s(self) -> float:
        """Processor time that the broker has taken."""
        fields = Path(f"/proc/{self.broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def make(self, topic: str, durability: Durability) -> None:
        body = msgspec.json.encode({"durability": durability})
        status, said = ask("127.0.0.1", self.broker.port, "PUT", f"/v0/topics/{topic}", body)
        assert status < 300, said


def _number_in(file: Path) -> int:
    end = time.monotonic() + _PATIENCE_S
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{file} is not there")
        time.sleep(0.01)
    return int(file.read_text())


def values_of(options: argparse.Namespace) -> list[bytes]:
    """The values to produce, in turn: raw bytes or a JSON object of that size, always the same; or different events."""
    if options.kind == "events":
        chance = random.Random(4)
        return [_event(chance, number) for number in range(min(options.records, _EVENTS))]
    size = options.record_bytes
    return [bytes([0xFF]) * size if options.kind == "raw" else b'{"a":"%b"}' % (b"x" * (size - 8))]


def _event(chance: random.Random, number: int) -> bytes:
    """JSON of 200 to 500 bytes, as a shop's front end might send it."""
    at = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}.{number % 1000:03}"
    event = {
        "id": f"{chance.getrandbits(64):016x}",
        "number": number,
        "at": f"2026-11-24T{at}Z",
        "type": chance.choice(["view", "click", "add_to_cart", "remove", "checkout", "login"]),
        "user": {"id": chance.randrange(1_000_000), "country": chance.choice(["de", "fr", "us", "jp", "br", "in"])},
        "path": f"/shop/{chance.choice(['tea', 'coffee', 'cups', 'pots', 'spoons'])}/{chance.randrange(5000)}",
        "agent": chance.choice(["Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh)", "okhttp/4.12.0"]),
        "price": round(chance.random() * 100, 2),
        "items": [chance.randrange(100_000) for _ in range(chance.randrange(1, 30))],
    }
    return json.dumps(event, separators=(",", ":")).encode()


class _Wire:
    """The client's byte counters; `settings` are for the client."""

    def __init__(self) -> None:
        self.bytes = 0
        self.settings: dict[str, Any] = {"statistics.interval.ms": 50, "stats_cb": self._told}

    def _told(self, text: str) -> None:
        found = json.loads(text)
        self.bytes = found["tx_bytes"] + found["rx_bytes"]

    def settle(self, poll: Callable[[float], object]) -> int:
        """All bytes, as soon as the client has reported them."""
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end:
            poll(0.05)
        return self.bytes


def produce(port: Port, topic: str, options: argparse.Namespace) -> Result:
    """All records, and their acks."""
    wire = _Wire()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": port.address,
            "acks": "all",
            "linger.ms": options.linger_ms,
            "batch.num.messages": _AT_ONCE,
            "compression.type": options.compression,
            "enable.idempotence": options.idempotent,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            **wire.settings,
        }
    )
    producer.produce(topic, b"first")
    producer.flush(_PATIENCE_S)
    values = itertools.cycle(values_of(options))
    clock = _Clock(port)
    send = producer.produce
    for value in itertools.islice(values, options.records):
        try:
            send(topic, value)
        except BufferError:
            producer.poll(0.05)
            send(topic, value)
    left = producer.flush(_PATIENCE_S)
    assert left == 0, f"{left} records were not acked"
    result = clock.result(f"produce {topic}", options.records)
    return msgspec.structs.replace(result, wire_bytes=wire.settle(producer.poll) / options.records)


def consume(port: Port, topic: str, options: argparse.Namespace) -> Result:
    """All records of the topic."""
    wire = _Wire()
    settings: dict[str, Any] = {"bootstrap.servers": port.address, "group.id": "none", "enable.auto.commit": False}
    settings |= wire.settings
    consumer = confluent_kafka.Consumer(settings | {"queued.max.messages.kbytes": 1 << 18})
    clock = _Clock(port)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    left = options.records + 1
    try:
        while left:
            messages = consumer.consume(min(left, _AT_ONCE), _PATIENCE_S)
            assert messages, f"{left} records did not come"
            left -= len(messages)
        result = clock.result(f"consume {topic}", options.records)
        return msgspec.structs.replace(result, wire_bytes=wire.settle(consumer.poll) / options.records)
    finally:
        consumer.close()


def on_disk(port: Port) -> OnDisk:
    """Bytes of the segment files when they have not changed for a while."""
    sizes: dict[str, int] = {}
    since = time.monotonic()
    while time.monotonic() - since < _QUIET_S:
        time.sleep(0.1)
        found: dict[str, int] = {}
        for path in (port.broker.data_dir / "topics").rglob("seg-*"):
            with contextlib.suppress(FileNotFoundError):
                found[path.suffix] = found.get(path.suffix, 0) + path.stat().st_size
        if found != sizes:
            sizes, since = found, time.monotonic()
    records = sizes.get(".idx", 0) // ENTRY_SIZE
    stored = sizes.get(".data", 0) + sizes.get(".zdata", 0)
    return OnDisk(records=records, record_bytes=stored / max(records, 1), index_bytes=ENTRY_SIZE)


class _Clock:
    def __init__(self, port: Port) -> None:
        self._port = port
        self._begin = (time.perf_counter(), port.busy_s(), time.process_time())

    def result(self, what: str, records: int) -> Result:
        now = (time.perf_counter(), self._port.busy_s(), time.process_time())
        wall, broker, client = (after - before for after, before in zip(now, self._begin, strict=True))
        return Result(
            what=what,
            records_per_s=records / wall,
            broker_us=broker / records * 1e6,
            client_us=client / records * 1e6,
            wire_bytes=0,
        )


def run(options: argparse.Namespace) -> list[Result | OnDisk]:
    """The middle of all rounds, for each class."""
    port = Port(options.dir, options.tree, on_disk=options.on_disk)
    try:
        found: list[Result | OnDisk] = []
        for durability in options.durability:
            rounds: list[list[Result]] = []
            for number in range(options.rounds):
                topic = f"{durability}-{number}"
                port.make(topic, Durability(durability))
                rounds.append([produce(port, topic, options), consume(port, topic, options)])
            for several in zip(*rounds, strict=True):
                middle = statistics.median_low([each.records_per_s for each in several])
                found.append(next(each for each in several if each.records_per_s == middle))
            if options.on_disk:
                found += [on_disk(port), consume(port, f"{durability}-{options.rounds - 1}", options)]
        return found
    finally:
        port.broker.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.kafka", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--record-bytes", type=int, default=100)
    parser.add_argument("--kind", choices=["raw", "json", "events"], default="raw")
    parser.add_argument("--durability", nargs="+", default=["disk", "fsync"], choices=list(Durability))
    parser.add_argument("--compression", default="none", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--linger-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default="", help="where the broker's data goes")
    parser.add_argument(
        "--tree", type=Path, default=None, help="folder whose broker package is run (default: this checkout)"
    )
    parser.add_argument("--on-disk", action="store_true", help="count the bytes of segments as well")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options)
    if options.json:
        print(msgspec.json.encode(results).decode())
        return 0
    for each in results:
        if isinstance(each, OnDisk):
            print(f"{each.records} records in segments: {each.record_bytes:.1f} + {each.index_bytes:.0f} bytes of each")
            continue
        rate = f"{each.records_per_s:12,.0f} records/s"
        print(
            f"{each.what:24}{rate}   broker {each.broker_us:.2f} µs a record, client {each.client_us:.2f}"
            f"   {each.wire_bytes:.1f} bytes a record on the wire"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
