"""Cells and gateways of a set are killed at random under load. Acked writes are there once and in order, and an answer
that says that nothing was done is true."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.cells import home_cell
from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess

CELLS = 3
#: Writers with an idempotency key, and without.
WRITERS = 6
KILLS = 60 if is_soak(os.environ) else 6


@dataclass
class Writer:
    """Writes numbers to a topic of its own, one after the other."""

    port: int
    topic: str
    keyed: bool
    #: seq by number.
    acked: dict[int, int] = field(default_factory=dict[int, int])
    #: Numbers whose write had no answer, or an answer that leaves the outcome open.
    open: set[int] = field(default_factory=set[int])
    refused: int = 0
    error: BaseException | None = None

    def run(self, over: threading.Event) -> None:
        """Run until `over`, and then until the last write is acked."""
        try:
            number = 0
            while not over.is_set():
                self._write(number)
                number += 1
            self._write(number)
        except BaseException as error:
            self.error = error

    def _write(self, number: int) -> None:
        """Repeat until it is acked or, without a key, may have been done."""
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
        """The topic contains what this writer was told."""
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


def _processes(broker: BrokerProcess) -> list[int]:
    """The processes of the cells and of the gateways."""
    pid = broker.process.pid
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_acked_record_is_lost_or_doubled_while_cells_and_gateways_are_killed(tmp_path: Path) -> None:
    dice = random.Random(random.randrange(1 << 30))
    with BrokerProcess(tmp_path, cells=CELLS) as broker:
        broker.start()
        port = broker.port
        writers = [Writer(port, f"orders-{number}", number % 2 == 0) for number in range(WRITERS)]
        assert {home_cell(writer.topic, CELLS) for writer in writers} == set(range(CELLS))
        for writer in writers:
            durability = dice.choice(("fsync", "disk"))
            broker.ok("PUT", f"/v0/topics/{writer.topic}", {"durability": durability})
        over = threading.Event()
        threads = [threading.Thread(target=writer.run, args=(over,)) for writer in writers]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            before = sum(len(writer.acked) for writer in writers)
            broker.until(lambda before=before: sum(len(each.acked) for each in writers) > before + 20)
            with suppress(ProcessLookupError):
                os.kill(dice.choice(_processes(broker)), signal.SIGKILL)
        over.set()
        for thread in threads:
            thread.join()
        assert [writer.error for writer in writers if writer.error is not None] == []
        broker.wait_ready()
        for writer in writers:
            writer.check(broker)
        ended = [line for line in broker.log().splitlines() if "process_ended" in line]
        assert len(ended) >= KILLS // 2
        of_cells = sum("process=cell-" in line for line in ended)
        broker.until(lambda: sum(each["restarts"] for each in broker.ok("GET", "/v0/health")["cells"]) == of_cells)
        assert broker.stop() == 0
