"""Cells are killed at random while routers between them copy, and are made, changed and deleted: each record is copied
once and in order, and the routers are those that were answered."""

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
from tests.support.cell_writer import Writer, processes

CELLS = 3
KILLS = 40 if is_soak(os.environ) else 3


def topic_of(cell: int, stem: str) -> str:
    return next(name for number in range(99) if home_cell(name := f"{stem}-{number}", CELLS) == cell)


@dataclass
class Administrator:
    """Makes, changes and deletes routers, one after the other, and remembers what may be there."""

    port: int
    topics: list[str]
    dice: random.Random
    #: By router: what it may be, as (source, dest, preserve_tag); None: not there.
    may_be: dict[str, set[tuple[str, str, bool] | None]] = field(
        default_factory=dict[str, set[tuple[str, str, bool] | None]]
    )
    answered: int = 0
    error: BaseException | None = None

    def run(self, over: threading.Event) -> None:
        try:
            while not over.is_set():
                self._change(f"x-{self.dice.randrange(4)}")
        except BaseException as error:
            self.error = error

    def _change(self, name: str) -> None:
        may_be = self.may_be.setdefault(name, {None})
        if self.dice.randrange(2) and may_be != {None}:
            wanted = None
            status, answer = self._call("DELETE", name, None)
        else:
            # One end is fixed by the name, so that it can only be refused for its other end.
            number = int(name.removeprefix("x-"))
            source, dest = self.topics[number % CELLS], self.topics[CELLS + self.dice.randrange(CELLS)]
            wanted = (source, dest, bool(self.dice.randrange(2)))
            body = {"source": source, "dest": dest, "preserve_tag": wanted[2]}
            status, answer = self._call("PUT", name, body)
        if status in (200, 201):
            self.may_be[name] = {wanted}
            self.answered += 1
        elif status == 409:
            assert answer["error"]["code"] == "topic_exists_incompatible", answer
            assert may_be != {None}, answer
            self.may_be[name] = may_be - {None}
        elif status == 0 or answer["error"]["detail"].get("outcome", "none") == "unknown":
            may_be.add(wanted)
        else:
            assert status == 503, answer
            time.sleep(0.05)

    def _call(self, method: str, name: str, body: Any) -> tuple[int, Any]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            try:
                text = None if body is None else json.dumps(body)
                connection.request(method, f"/v0/routers/{name}", text, {"content-type": "application/json"})
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                return 0, None

    def problems(self, broker: BrokerProcess) -> list[str]:
        """What is not as it was answered."""
        there = {
            each["router"]: (each["source"], each["dest"], each["preserve_tag"])
            for each in broker.ok("GET", "/v0/routers")["routers"]
            if each["router"].startswith("x-")
        }
        found = [
            f"{name} is {there.get(name)}, and may be {may_be}"
            for name, may_be in self.may_be.items()
            if there.get(name) not in may_be
        ]
        for name in self.may_be:
            status, state = broker.call("GET", f"/v0/routers/{name}")
            if (status == 200) != (name in there) or state.get("blocked"):
                found.append(f"{name} answers {status} {state}, and is listed as {there.get(name)}")
        return found


def _numbers(broker: BrokerProcess, topic: str) -> list[int]:
    found: list[int] = []
    after = 0
    while True:
        page = broker.ok("POST", f"/v0/topics/{topic}/diff", {"from_seq": after, "limit": 1000})
        assert not page.get("tombstone"), page
        if not page["records"]:
            return found
        after = page["records"][-1]["$seq"]
        found += [record["data"] for record in page["records"]]


def test_routers_between_cells_copy_once_and_are_what_was_answered_while_cells_are_killed(tmp_path: Path) -> None:
    dice = random.Random(random.randrange(1 << 30))
    with BrokerProcess(tmp_path, cells=CELLS, wal_shards=1) as broker:
        broker.start()
        source = topic_of(1, "source")
        dests = [topic_of(cell, "dest") for cell in range(CELLS)]
        end = topic_of(0, "end")
        others = [topic_of(cell, stem) for stem in ("from", "to") for cell in range(CELLS)]
        for topic in (source, *dests, end, *others):
            broker.ok("PUT", f"/v0/topics/{topic}", {"durability": "fsync"})
        for number, dest in enumerate(dests):
            broker.ok("PUT", f"/v0/routers/copy-{number}", {"source": source, "dest": dest})
        broker.ok("PUT", "/v0/routers/on", {"source": dests[2], "dest": end})
        writer = Writer(broker.port, source, keyed=True)
        administrator = Administrator(broker.port, others, dice)
        over = threading.Event()
        threads = [threading.Thread(target=each.run, args=(over,)) for each in (writer, administrator)]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            before = len(writer.acked), administrator.answered
            broker.until(
                lambda before=before: len(writer.acked) > before[0] + 10 and administrator.answered > before[1] + 3
            )
            with suppress(ProcessLookupError):
                os.kill(dice.choice(processes(broker)), signal.SIGKILL)
        over.set()
        for thread in threads:
            thread.join()
        assert (writer.error, administrator.error) == (None, None)
        broker.wait_ready()
        writer.check(broker)
        wanted = _numbers(broker, source)
        for dest in (*dests, end):
            broker.until(lambda dest=dest: len(_numbers(broker, dest)) >= len(wanted))
            assert _numbers(broker, dest) == wanted, dest
        broker.until(lambda: not administrator.problems(broker))
        assert broker.stop() == 0
