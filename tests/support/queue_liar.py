"""A proxy that breaks a queue's promises now and then. The checker of histories must detect these lies.

It sits between the workers and a correct broker.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from tests.support.kill_connection import Connection
from tests.support.queue_pushes import Pushes

Answer = tuple[int, Any]
Ask = Callable[[str, str, Any], Awaitable[Answer]]
_HELD_BACK_S = 0.03

Lie = Callable[["Liar", Ask, str, dict[str, Any]], Awaitable[Answer]]


class Liar:
    """Makes connections that lie in one of `every` calls on average. `lies`: how often it has lied."""

    def __init__(self, operation: str, lie: Lie, dice: Random, every: int) -> None:
        self.every = every
        self.operation = operation
        self.lie = lie
        self.dice = dice
        self.lies = 0
        #: A job in an answer that has not been forwarded yet.
        self.held_back: dict[str, Any] | None = None

    def connect(self, port: int) -> Connection:
        return _LyingConnection(port, self)

    def pushes(self, port: int) -> Pushes:
        """Streams that push jobs twice, if that is the lie."""
        return _LyingPushes(port, self) if self.lie is push_a_job_twice else Pushes(port)


class _LyingConnection(Connection):
    def __init__(self, port: int, liar: Liar) -> None:
        super().__init__(port)
        self._liar = liar

    async def call(self, method: str, path: str, body: Any = None) -> Answer:
        liar = self._liar
        if method == "POST" and path.endswith(liar.operation) and liar.dice.randrange(liar.every) == 0:
            return await liar.lie(liar, super().call, path, body)
        return await super().call(method, path, body)


class _LyingPushes(Pushes):
    def __init__(self, port: int, liar: Liar) -> None:
        super().__init__(port)
        self._liar = liar
        self._last: dict[str, Any] | None = None

    async def job(self, within_s: float) -> dict[str, Any] | None:
        liar, last = self._liar, self._last
        if last is not None and liar.dice.randrange(liar.every) == 0:
            self._last = None
            liar.lies += 1
            return {**last, "lease_id": _token(liar), "deliveries": last["deliveries"] + 1}
        self._last = await super().job(within_s)
        return self._last


def _token(liar: Liar) -> str:
    return f"lease_{liar.dice.getrandbits(64):016x}"


async def forget_an_ack(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    if body["node"].startswith("s"):
        # A pushed job may be leased for minutes, as long as its stream stays. Nobody else would get it meanwhile, and
        # the queue would never become empty.
        return await ask("POST", path, body)
    liar.lies += 1
    return 200, {"acked": len(body["seqs"]), "skipped": [], "ready": 0, "in_flight": 0}


async def count_what_is_passed_over(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and answer["skipped"]:
        liar.lies += 1
        answer |= {"acked": len(body["seqs"]), "skipped": []}
    return status, answer


async def pass_over_what_counts(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and not answer["skipped"]:
        liar.lies += 1
        answer |= {"acked": 0, "skipped": body["seqs"]}
    return status, answer


async def forget_a_delay(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    liar.lies += (body.get("delay_ms") or 0) > 100
    return await ask("POST", path, {**body, "delay_ms": 0})


async def hand_a_job_to_two(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and answer["claimed"]:
        if liar.held_back is None:
            # Nobody has the job yet, so nobody can have ended its lease when somebody else gets it too.
            liar.held_back = mine = copy.deepcopy(answer["claimed"][-1])
            await asyncio.sleep(_HELD_BACK_S)
            if liar.held_back is mine:
                liar.held_back = None
        elif len(answer["claimed"]) < body["max"]:
            liar.lies += 1
            job, liar.held_back = liar.held_back, None
            job["lease_id"] = _token(liar)
            job |= {"deliveries": job["deliveries"] + 1, "deadline": answer["claimed"][0]["deadline"]}
            answer["claimed"].insert(0, job)
            answer["count"] += 1
    return status, answer


async def end_leases_early(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    whole_ms = body["lease_ms"]
    status, answer = await ask("POST", path, {**body, "lease_ms": whole_ms // 2})
    if status == 200:
        liar.lies += 1
        for job in answer["claimed"]:
            job["deadline"] += whole_ms - whole_ms // 2
    return status, answer


async def swallow_a_job(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and answer["claimed"]:
        liar.lies += 1
        job = answer["claimed"].pop()
        answer["count"] -= 1
        settle = {"node": body["node"], "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]]}
        await ask("POST", path.replace("/claim", "/ack"), settle)
    return status, answer


async def miscount_deliveries(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200:
        for job in answer["claimed"]:
            liar.lies += job["deliveries"] > 1
            job["deliveries"] = 1
    return status, answer


async def mix_the_order_up(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and len(answer["claimed"]) > 1:
        liar.lies += 1
        answer["claimed"].reverse()
    return status, answer


async def give_other_jobs_for_a_key(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    liar.lies += "attempt_key" in body
    return await ask("POST", path, {name: value for name, value in body.items() if name != "attempt_key"})


async def bury_a_job_twice(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and answer["records"]:
        liar.lies += 1
        answer["records"].append(answer["records"][-1])
    return status, answer


async def lose_a_dead_letter(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200 and answer["records"]:
        liar.lies += 1
        answer["records"].pop()
    return status, answer


async def bring_a_job_back_twice(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    queue = path.removesuffix("/redrive")
    status, letters = await ask("POST", f"{queue}-dead/diff", {"limit": 1})
    answer = await ask("POST", path, body)
    if status == 200 and letters["records"] and answer[0] == 200 and answer[1]["moved"]:
        liar.lies += 1
        await ask("POST", queue, {"records": [{"data": letters["records"][0]["data"]}]})
    return answer


async def forget_a_pause(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    liar.lies += 1
    return 200, {"paused": True}


async def forget_a_purge(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    liar.lies += 1
    return 200, {"purged": 50}


async def purge_more_than_is_said(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200:
        liar.lies += answer["purged"]
        answer["purged"] = 0
    return status, answer


async def refuse_what_was_done(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    status, answer = await ask("POST", path, body)
    if status == 200:
        liar.lies += 1
        return 409, {"error": {"code": "lease_lost", "detail": {"seqs": body["seqs"]}}}
    return status, answer


async def forget_a_backoff(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    liar.lies += "delay_ms" not in body and body["penalty"]
    return await ask("POST", path, {"delay_ms": 0, **body})


async def forget_that_jobs_are_delayed(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    records = (body or {}).get("records", [])
    liar.lies += any(record.get("delay_ms", 0) >= 400 for record in records)
    for record in records:
        record.pop("delay_ms", None)
    return await ask("POST", path, body)


async def push_a_job_twice(liar: Liar, ask: Ask, path: str, body: dict[str, Any]) -> Answer:
    """Over a stream: see `Liar.pushes`."""
    return await ask("POST", path, body)
