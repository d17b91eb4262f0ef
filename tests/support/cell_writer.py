"""Writes to a set while its processes are killed, and remembers what it was told."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.broker_process import BrokerProcess


@dataclass
class Writer:
    """Writes numbers to a topic of its own, one after the other."""

    port: int
    topic: str
    keyed: bool
    #: seq by number.
    acked: dict[int, int] = field(default_factory=dict[int, int])
    #: Numbers whose write had no answer, or one that leaves open what happened.
    open: set[int] = field(default_factory=set[int])
    refused: int = 0
    error: BaseException | None = None

    def run(self, over: threading.Event) -> None:
        """Until `over`, and then until the last write is acked."""
        try:
            number = 0
            while not over.is_set():
                self._write(number)
                number += 1
            self._write(number)
        except BaseException as error:
            self.error = error

    def _write(self, number: int) -> None:
        """Until it is acked or, without a key, may have been done."""
        body: dict[str, Any] = {"records": [{"data": number}]}
        if self.keyed:
            body["idempotency_key"] = f"n-{number}"
        while True:
            outcome, seq = self._post(body)
            if outcome == "done":
                self.acked[number] = seq
                return
            if outcome == "unknown" and not self.keyed:
                self.open.add(number)
                return
            self.refused += 1
            time.sleep(0.02)

    def _post(self, body: dict[str, Any]) -> tuple[str, int]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with closing(connection):
            try:
                connection.request(
                    "POST", f"/v0/topics/{self.topic}", json.dumps(body), {"content-type": "application/json"}
                )
                answer = connection.getresponse()
                found = json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                return "unknown", 0
        if answer.status in (200, 201):
            return "done", found["first_seq"]
        assert answer.status == 503, found
        return found["error"]["detail"].get("outcome", "none"), 0

    def check(self, broker: BrokerProcess) -> None:
        """What the topic holds is what this writer was told."""
        records: list[dict[str, Any]] = []
        while True:
            after = records[-1]["$seq"] if records else 0
            page = broker.ok("POST", f"/v0/topics/{self.topic}/diff", {"from_seq": after, "limit": 1000})
            assert not page.get("tombstone"), page
            if not page["records"]:
                break
            records += page["records"]
        numbers = [record["data"] for record in records]
        assert numbers == sorted(set(numbers)), f"{self.topic}: doubled or out of order"
        there = {record["data"]: record["$seq"] for record in records}
        assert {number: there.get(number) for number in self.acked} == self.acked, f"{self.topic}: lost"
        assert set(there) <= self.acked.keys() | self.open, f"{self.topic}: what was refused is there"


def processes(broker: BrokerProcess) -> list[int]:
    """The processes of the cells and of the gateways."""
    pid = broker.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
