"""A real broker whose segments are small and sealed soon, for tests of bulk readers."""

from __future__ import annotations

from pathlib import Path

from tests.support.broker_process import BrokerProcess
from topics_client import Client, NewRecord

SEGMENT_RECORDS = 500
#: What is flushed together stays together, so larger batches would make larger segments.
BATCH = 250
_SOON = {
    "segment_max_events": SEGMENT_RECORDS,
    "checkpoint_records": 100,
    "checkpoint_interval_ms": 20,
    "expiry_interval_ms": 20,
    "flag_age_ms": 20,
    "wal_shards": 1,
}


class SmallSegments(BrokerProcess):
    """Ready once it is made. `client` is connected to it. Other settings are those of BrokerProcess."""

    def __init__(self, directory: Path, **settings: object) -> None:
        directory.mkdir(exist_ok=True)
        super().__init__(directory, **{**_SOON, **settings})
        self.start()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url)

    def kill(self) -> None:
        self.client.close()
        super().kill()

    def start_again(self, **settings: object) -> None:
        """Start again after a stop, at another port unless the settings have one."""
        self.start(**settings)
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url)

    def append(self, topic: str, count: int, first: int = 0, partition: int | None = None) -> None:
        """Append records {"n": first} and so on, durable on return. Every third has a tag, every fifth has meta."""
        for begin in range(first, first + count, BATCH):
            self.client.append(
                topic,
                [
                    NewRecord(
                        data=b'{"n":%d}' % n,
                        tag="third" if n % 3 == 0 else None,
                        node=f"node-{n % 2}",
                        meta={"fifth": "yes", "n": n} if n % 5 == 0 else None,
                    )
                    for n in range(begin, min(begin + BATCH, first + count))
                ],
                partition=partition,
            )

        self.until(lambda: self.is_durable(topic, partition or 0))

    def is_durable(self, topic: str, partition: int = 0) -> bool:
        """Whether all records of a partition are durable."""
        view = self.ok("GET", f"/v0/topics/{topic}/segments?partition={partition}")
        return view["durable_seq"] == view["head_seq"]

    def await_sealed(self, topic: str, end_seq: int, partition: int = 0) -> None:
        """Wait until everything below `end_seq` is in sealed segments."""

        def sealed() -> bool:
            segments = self.ok("GET", f"/v0/topics/{topic}/segments?partition={partition}")["segments"]
            return max((each["end_seq"] for each in segments if each["sealed"]), default=0) >= end_seq

        self.until(sealed)
