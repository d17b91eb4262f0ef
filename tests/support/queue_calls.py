"""Calls of a queue's API. Each is noted in the history before it is sent and when it is answered."""

from __future__ import annotations

from typing import Any

from tests.support.kill_connection import Connection, Cut
from tests.support.queue_history import (
    Act,
    Claim,
    Dead,
    History,
    Lease,
    Observation,
    Operation,
    Pause,
    Produce,
    Purge,
    Redrive,
    Settle,
    Stream,
)
from tests.support.queue_pushes import Pushes

#: Refusals that a broker under pressure or during a stop may give.
_ALLOWED = {"shutting_down", "wal_saturated"}
_COUNTED = {Act.ACK: "acked", Act.NACK: "nacked", Act.EXTEND: "extended"}


class QueueCalls:
    """`topic` and its dead letter topic, and the history of the calls.

    Every call raises Cut if the connection ends, or if it is refused by a broker that stops.
    """

    def __init__(self, topic: str, history: History) -> None:
        self.topic = topic
        self.dead_topic = f"{topic}-dead"
        self.history = history
        #: Jobs that wait to be claimed, according to the last answer that said so.
        self.ready = 0

    async def produce(self, connection: Connection, produce: Produce) -> None:
        """Jobs whose data are their names."""
        jobs: list[dict[str, Any]] = [{"data": {"job": name}} for name in produce.names]
        if produce.delay_ms:
            jobs = [{**job, "delay_ms": produce.delay_ms} for job in jobs]
        answer = await self._ask(connection, produce, "", {"records": jobs, "create": False})
        produce.first_seq = answer["first_seq"]
        self.history.ok(produce)

    async def claim(self, connection: Connection, claim: Claim, wait_ms: int = 0) -> tuple[Lease, ...]:
        answer = await self._ask(connection, claim, "/claim", _claim_body(claim, wait_ms))
        assert answer["topic"] == self.topic
        assert answer["count"] == len(answer["claimed"])
        self.ready = answer["ready"]
        claim.leases = tuple(_lease(job) for job in answer["claimed"])
        self.history.ok(claim)
        return claim.leases

    async def claim_and_go(self, connection: Connection, claim: Claim, wait_ms: int = 0) -> None:
        """Send the request without waiting for the answer: nobody knows what it was."""
        self.history.begin(claim)
        try:
            await connection.send("POST", f"/v0/topics/{self.topic}/claim", _claim_body(claim, wait_ms))
        except OSError:
            raise Cut(sent=True) from None

    async def work(self, pushes: Pushes, stream: Stream) -> None:
        """Open a stream of pushed jobs."""
        self.history.begin(stream)
        query = f"node={stream.node}&max={stream.max}&lease_ms={stream.lease_ms}"
        await pushes.open(f"/v0/topics/{self.topic}/work?{query}")

    async def pushed(self, pushes: Pushes, stream: Stream, within_s: float) -> Lease | None:
        """The next job of the stream, None if it brought none. Raises Cut at its end."""
        job = await pushes.job(within_s)
        if job is None:
            return None
        assert job["topic"] == self.topic
        lease = _lease(job)
        self.history.pushed(stream, lease)
        return lease

    async def settle(self, connection: Connection, settle: Settle) -> bool:
        """Returns False if the call was strict and was refused."""
        act = settle.act
        path = f"/{act.value}?strict=true" if settle.strict else f"/{act.value}"
        answer = await self._ask(connection, settle, path, _settle_body(settle))
        if answer is None:
            return False
        settle.skipped = frozenset(answer["skipped"])
        assert settle.skipped <= set(settle.seqs)
        assert answer[_COUNTED[act]] == len(settle.seqs) - len(settle.skipped), (act, settle.seqs, answer)
        settle.deadlines = {int(seq): deadline for seq, deadline in answer.get("deadlines", {}).items()}
        if act is Act.EXTEND:
            assert settle.deadlines.keys() == set(settle.seqs) - settle.skipped
        self.history.ok(settle)
        return True

    async def settle_and_go(self, connection: Connection, settle: Settle) -> None:
        """Send the request without waiting for the answer: it may have happened or not."""
        settle.strict = False
        self.history.begin(settle)
        try:
            await connection.send("POST", f"/v0/topics/{self.topic}/{settle.act.value}", _settle_body(settle))
        except OSError:
            raise Cut(sent=True) from None

    async def pause(self, connection: Connection, pause: Pause) -> None:
        answer = await self._ask(connection, pause, "/pause" if pause.paused else "/resume")
        assert answer["paused"] == pause.paused
        self.history.ok(pause)

    async def purge(self, connection: Connection, purge: Purge) -> int:
        answer = await self._ask(connection, purge, "/purge", {"states": purge.states})
        purge.purged = answer["purged"]
        self.history.ok(purge)
        return purge.purged

    async def redrive(self, connection: Connection, redrive: Redrive) -> int:
        answer = await self._ask(connection, redrive, "/redrive", {"max": redrive.max})
        if answer is not None:
            redrive.moved = answer["moved"]
            assert redrive.moved <= redrive.max
            self.history.ok(redrive)
        return redrive.moved

    async def look(self, connection: Connection, *, final: bool = False) -> Observation:
        """All jobs, all dead letters, and all jobs again, so that a job that moves meanwhile is seen."""
        look = self.history.begin(Observation(node="looker", final=final))
        look.present = await self._names(connection)
        status, _ = await connection.call("GET", f"/v0/topics/{self.dead_topic}")
        if status != 404:
            look.dead = tuple(self._dead(record) for record in await _records(connection, self.dead_topic))
        look.present |= await self._names(connection)
        status, state = await connection.call("GET", f"/v0/topics/{self.topic}")
        assert status == 200, state
        look.paused = state["queue"]["paused"]
        self.history.ok(look)
        return look

    async def _names(self, connection: Connection) -> dict[int, str]:
        return {record["$seq"]: record["data"]["job"] for record in await _records(connection, self.topic)}

    def _dead(self, record: dict[str, Any]) -> Dead:
        meta = record["meta"]
        assert meta["$dead_letter_from"] == self.topic
        return Dead(int(meta["$dead_letter_src_seq"]), int(meta["$dead_letter_deliveries"]), record["data"]["job"])

    async def _ask(
        self, connection: Connection, operation: Operation, path: str, body: dict[str, Any] | None = None
    ) -> Any:
        """The answer. None if the call was refused, which a correct broker may do."""
        self.history.begin(operation)
        try:
            status, answer = await connection.call("POST", f"/v0/topics/{self.topic}{path}", body)
        except Cut as cut:
            if not cut.sent:
                self.history.failed(operation)
            raise
        if status == 200:
            return answer
        error = answer["error"]
        if self._may_refuse(operation, error):
            self.history.failed(operation)
            return None
        assert error["code"] in _ALLOWED, (path, body, answer)
        unknown = error.get("detail", {}).get("outcome") == "unknown"
        if not unknown:
            self.history.failed(operation)
        raise Cut(sent=unknown)

    @staticmethod
    def _may_refuse(operation: Operation, error: dict[str, Any]) -> bool:
        match operation:
            case Settle(strict=True):
                if error["code"] == "lease_lost":
                    operation.refused = frozenset(error["detail"]["seqs"])
                    return True
            case Redrive():
                return error["code"] == "topic_not_found"  # nothing has died yet
            case _:
                pass
        return False


def _lease(job: dict[str, Any]) -> Lease:
    return Lease(job["$seq"], job["lease_id"], job["deadline"], job["deliveries"], job["data"]["job"])


def _claim_body(claim: Claim, wait_ms: int) -> dict[str, Any]:
    body = {"node": claim.node, "max": claim.max, "lease_ms": claim.lease_ms, "wait_ms": wait_ms}
    return body if claim.key is None else {**body, "attempt_key": claim.key}


def _settle_body(settle: Settle) -> dict[str, Any]:
    body: dict[str, Any] = {"node": settle.node, "seqs": list(settle.seqs)}
    if any(settle.tokens):
        body["lease_ids"] = [token or "" for token in settle.tokens]
    if settle.act is Act.NACK:
        body |= {"penalty": settle.penalty, "reason": "no luck"}
        if settle.delay_ms is not None:
            body["delay_ms"] = settle.delay_ms
    if settle.act is Act.EXTEND:
        body["lease_ms"] = settle.lease_ms
    return body


async def _records(connection: Connection, topic: str) -> list[dict[str, Any]]:
    """Everything in a topic while others use it."""
    found: list[dict[str, Any]] = []
    cursor, caught_up = 0, False
    while not caught_up:
        body = {"from_seq": cursor, "limit": 1000, "max_batch_bytes": 8 << 20}
        status, answer = await connection.call("POST", f"/v0/topics/{topic}/diff", body)
        assert status == 200, answer
        assert answer["tombstone"] is None, answer["tombstone"]
        found += answer["records"]
        cursor, caught_up = answer["next_from_seq"], answer["caught_up"]
    return found
