"""Jobs that are made, claimed and acked until a broker stops, and what must be left of them afterwards.

A job whose ack was answered is gone for good. A job whose creation was answered exists until then. Without an answer
both are possible, and the state after the restart decides.
"""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import Any, Final

from tests.support.kill_connection import Connection, Cut

TOPIC: Final = "jobs"
CONFIG: Final = {"type": "queue", "durability": "fsync", "leases_durable": True, "lease_ms": 300}
PRODUCERS, CLAIMERS = 2, 6
_AHEAD: Final = 500
_names = itertools.count(1)


class Jobs:
    """The ledger of one queue over all processes that serve it."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        #: By name: creation certain, creation requested; ack certain, ack requested.
        self.made: set[str] = set()
        self.perhaps_made: set[str] = set()
        self.done: set[str] = set()
        self.perhaps_done: set[str] = set()

    @staticmethod
    async def create(port: int) -> None:
        async with Connection(port) as connection:
            status, answer = await connection.call("PUT", f"/v0/topics/{TOPIC}", CONFIG)
            assert status in (200, 201), answer

    async def run(self, port: int) -> None:
        """Run until all connections have ended."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PRODUCERS):
                tasks.create_task(self._produce(port))
            for number in range(CLAIMERS):
                tasks.create_task(self._work(port, f"w{number}"))

    async def _produce(self, port: int) -> None:
        try:
            async with Connection(port) as connection:
                while True:
                    while len(self.made) - len(self.done) > _AHEAD:
                        await asyncio.sleep(0.01)
                        await _call(connection, "GET", f"/v0/topics/{TOPIC}")  # which ends with the broker
                    names = {f"job-{next(_names)}" for _ in range(self._dice.choice((1, 3, 20)))}
                    self.perhaps_made |= names
                    await _call(
                        connection, "POST", f"/v0/topics/{TOPIC}", {"records": [{"data": name} for name in names]}
                    )
                    self.perhaps_made -= names
                    self.made |= names
        except Cut:
            return

    async def _work(self, port: int, node: str) -> None:
        try:
            async with Connection(port) as connection:
                while True:
                    claim = {"node": node, "max": self._dice.randint(1, 8), "wait_ms": 20_000}
                    answer = await _call(connection, "POST", f"/v0/topics/{TOPIC}/claim", claim)
                    jobs = answer["claimed"]
                    again = {job["data"] for job in jobs} & self.done
                    assert not again, f"handed out again behind their ack: {again}"
                    if jobs and self._dice.random() < 0.9:
                        await self._settle(connection, node, jobs)
        except Cut:
            return

    async def _settle(self, connection: Connection, node: str, jobs: list[dict[str, Any]]) -> None:
        body = {
            "node": node,
            "seqs": [job["$seq"] for job in jobs],
            "lease_ids": [job["lease_id"] for job in jobs],
        }
        if self._dice.random() < 0.1:
            await _call(connection, "POST", f"/v0/topics/{TOPIC}/nack", body)
            return
        names = {job["data"] for job in jobs}
        self.perhaps_done |= names
        answer = await _call(connection, "POST", f"/v0/topics/{TOPIC}/ack", body)
        skipped = set(answer["skipped"])
        self.perhaps_done -= names
        self.done |= {job["data"] for job in jobs if job["$seq"] not in skipped}

    async def check(self, connection: Connection) -> None:
        """Compare with the present state, which decides what was open."""
        there = await _all(connection)
        names = set(there)
        assert len(names) == len(there), "a job is there twice"
        assert not names & self.done, f"acked, and there: {sorted(names & self.done)[:5]}"
        missing = self.made - self.done - self.perhaps_done - names
        assert not missing, f"made, and gone: {sorted(missing)[:5]}"
        assert names <= self.made | self.perhaps_made
        self.made |= names
        self.done |= self.perhaps_done - names
        self.perhaps_made.clear()
        self.perhaps_done.clear()
        status, answer = await connection.call("GET", f"/v0/topics/{TOPIC}")
        assert status == 200
        queue = answer["queue"]
        assert queue["ready"] + queue["in_flight"] + queue["delayed"] == len(names), queue
        assert queue["lost"] == 0


async def _all(connection: Connection) -> list[str]:
    found: list[str] = []
    from_seq = 0
    while True:
        status, answer = await connection.call(
            "POST", f"/v0/topics/{TOPIC}/diff", {"from_seq": from_seq, "limit": 1000}
        )
        assert status == 200, answer
        assert answer["tombstone"] is None
        found += [record["data"] for record in answer["records"]]
        from_seq = answer["next_from_seq"]
        if answer["caught_up"]:
            return found


async def _call(connection: Connection, method: str, path: str, body: Any = None) -> Any:
    """The answer. Raises Cut when the broker stops."""
    status, answer = await connection.call(method, path, body)
    if status in (200, 201):
        return answer
    assert answer["error"]["code"] in ("shutting_down", "wal_saturated"), answer
    raise Cut(sent=answer["error"].get("detail", {}).get("outcome") == "unknown")
