"""The calls of a queue's API, each noted in the history before it is sent and when it is answered."""

from __future__ import annotations

from typing import Any

from tests.support.kill_connection import Connection, Cut
from tests.support.queue_history import Act, Claim, Dead, History, Lease, Look, Operation, Produce, Settle

#: Refusals that a broker that is pressed, or about to stop, may give.
_ALLOWED = {"shutting_down", "wal_saturated"}
_COUNTED = {Act.ACK: "acked", Act.NACK: "nacked", Act.EXTEND: "extended"}


class QueueCalls:
    """`topic` and its dead letter topic, and the history of what is done to it.

    Every call raises Cut when the connection ends, or when it is refused by a broker that stops.
    """

    def __init__(self, topic: str, history: History) -> None:
        self.topic = topic
        self.dead_topic = f"{topic}-dead"
        self.history = history
        #: Jobs that wait to be claimed, by the last answer that said so.
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
        claim.leases = tuple(
            Lease(job["$seq"], job["lease_id"], job["deadline"], job["deliveries"], job["data"]["job"])
            for job in answer["claimed"]
        )
        self.history.ok(claim)
        return claim.leases

    async def claim_and_go(self, connection: Connection, claim: Claim, wait_ms: int = 0) -> None:
        """Ask, and do not stay for the answer: whatever it would have been, nobody will know."""
        self.history.begin(claim)
        try:
            await connection.send("POST", f"/v0/topics/{self.topic}/claim", _claim_body(claim, wait_ms))
        except OSError:
            raise Cut(sent=True) from None

    async def settle(self, connection: Connection, settle: Settle) -> None:
        act = settle.act
        answer = await self._ask(connection, settle, f"/{act.value}", _settle_body(settle))
        settle.skipped = frozenset(answer["skipped"])
        assert settle.skipped <= set(settle.seqs)
        assert answer[_COUNTED[act]] == len(settle.seqs) - len(settle.skipped), (act, settle.seqs, answer)
        settle.deadlines = {int(seq): deadline for seq, deadline in answer.get("deadlines", {}).items()}
        if act is Act.EXTEND:
            assert settle.deadlines.keys() == set(settle.seqs) - settle.skipped
        self.history.ok(settle)

    async def settle_and_go(self, connection: Connection, settle: Settle) -> None:
        """Ask, and do not stay for the answer: it may have happened or not."""
        self.history.begin(settle)
        try:
            await connection.send("POST", f"/v0/topics/{self.topic}/{settle.act.value}", _settle_body(settle))
        except OSError:
            raise Cut(sent=True) from None

    async def look(self, connection: Connection, *, final: bool = False) -> Look:
        """All jobs, then all dead letters: in this order, so that no job is missed on its way from one to the other."""
        look = self.history.begin(Look(node="looker", final=final))
        look.present = {record["$seq"]: record["data"]["job"] for record in await _records(connection, self.topic)}
        status, _ = await connection.call("GET", f"/v0/topics/{self.dead_topic}")
        if status != 404:
            look.dead = tuple(self._dead(record) for record in await _records(connection, self.dead_topic))
        self.history.ok(look)
        return look

    def _dead(self, record: dict[str, Any]) -> Dead:
        meta = record["meta"]
        assert meta["$dead_letter_from"] == self.topic
        return Dead(int(meta["$dead_letter_src_seq"]), int(meta["$dead_letter_deliveries"]), record["data"]["job"])

    async def _ask(self, connection: Connection, operation: Operation, path: str, body: dict[str, Any]) -> Any:
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
        assert error["code"] in _ALLOWED, (path, body, answer)
        unknown = error.get("detail", {}).get("outcome") == "unknown"
        if not unknown:
            self.history.failed(operation)
        raise Cut(sent=unknown)


def _claim_body(claim: Claim, wait_ms: int) -> dict[str, Any]:
    body = {"node": claim.node, "max": claim.max, "lease_ms": claim.lease_ms, "wait_ms": wait_ms}
    return body if claim.key is None else {**body, "attempt_key": claim.key}


def _settle_body(settle: Settle) -> dict[str, Any]:
    body: dict[str, Any] = {"node": settle.node, "seqs": list(settle.seqs)}
    if any(settle.tokens):
        body["lease_ids"] = [token or "" for token in settle.tokens]
    if settle.act is Act.NACK:
        body |= {"delay_ms": settle.delay_ms, "penalty": settle.penalty, "reason": "no luck"}
    if settle.act is Act.EXTEND:
        body["lease_ms"] = settle.lease_ms
    return body


async def _records(connection: Connection, topic: str) -> list[dict[str, Any]]:
    """All of a topic while others use it."""
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
