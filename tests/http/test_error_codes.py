"""A broker on a real port returns every code of the table, with the documented status and Retry-After."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from broker.cells import Cells, Role, home_cell
from broker.content.errors import CODES
from storage import Durability, TopicConfig
from tests.http.calls import append
from tests.http.hot_server import HotServer, Reply, post, records
from tests.http.test_work_stream import PATIENCE_S
from tests.unit.storage.machine import options
from topics_client.answers import result_of
from topics_client.calls import health
from topics_client.errors import ApiError
from topics_client.wire import Reply as ClientReply

T = "/v0/topics/t"
ONE = {"records": [{"data": 1}]}


class Rig(NamedTuple):
    server: HotServer
    http: httpx.AsyncClient


#: A request that leads to a refusal.
Way = Callable[[Rig], Awaitable[httpx.Response | Reply]]


def asking(method: str, path: str, **more: Any) -> Way:
    """One request."""
    return lambda rig: rig.http.request(method, path, **more)


def after(*before: tuple[str, str, dict[str, Any]], then: Way) -> Way:
    """One request after others, which succeed."""

    async def way(rig: Rig) -> httpx.Response | Reply:
        for method, path, body in before:
            assert (await rig.http.request(method, path, json=body)).is_success
        return await then(rig)

    return way


async def read_of_a_damaged_record(rig: Rig) -> httpx.Response:
    await append(rig.http, "t", {"data": "number one"})
    await rig.server.engine.segment_worker.flush_all()
    content = rig.server.disk.content()
    [path] = [path for path in content if path.endswith(".data")]
    rig.server.disk.flip_byte(path, content[path].index(b"number one"), 1)
    return await rig.http.get(f"{T}/records/1")


async def _sealed(rig: Rig) -> str:
    await append(rig.http, "t", *({"data": number} for number in range(10)))
    await rig.server.engine.segment_worker.flush_all()
    return f"{T}/segments/1/data"


async def range_behind_the_end(rig: Rig) -> httpx.Response:
    return await rig.http.get(await _sealed(rig), headers={"range": "bytes=99999-"})


async def another_etag(rig: Rig) -> httpx.Response:
    return await rig.http.get(await _sealed(rig), headers={"if-match": '"other"'})


async def read_without_memory(rig: Rig) -> httpx.Response:
    await append(rig.http, "t", {"data": "x" * 100_000})
    memory = rig.server.broker.memory
    memory.answers.hold("others", memory.answers.total)
    return await rig.http.get(f"{T}/records")


async def body_that_does_not_come(rig: Rig) -> Reply:
    return await rig.server.ask(post("t", ONE, length=500))


async def mistake(rig: Rig) -> httpx.Response:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    rig.server.engine.topics = fail
    return await rig.http.get("/v0/topics")


async def recovering(rig: Rig) -> httpx.Response:
    rig.server.engine.logs.ready = False
    try:
        return await rig.http.get(T)
    finally:
        rig.server.engine.logs.ready = True


async def stopping(rig: Rig) -> httpx.Response:
    rig.server.broker.stopping = True
    return await rig.http.get("/v0/ready")


async def of_another_cell(rig: Rig) -> httpx.Response:
    role = Role(set_id="s", count=2, run="", parent=0, cell=rig.server.engine.options.cell)
    rig.server.broker.cells = Cells(role, rig.server.engine)
    return await rig.http.get(T)


async def slow_log(rig: Rig) -> Reply:
    await rig.server.topic("t", TopicConfig(durability=Durability.FSYNC))
    with rig.server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
        wires = [await rig.server.connect() for _ in range(2)]
        wires[0].send(post("t", records(1)))
        await asyncio.to_thread(gate.wait_held)
        wires[1].send(post("t", records(*range(12))))
        while rig.server.engine.shards[0].queued_frames < 13:
            await asyncio.sleep(0.001)
        return await rig.server.ask(post("t", records(*range(12))))


def disk_says(number: int) -> Way:
    async def way(rig: Rig) -> httpx.Response:
        await append(rig.http, "t", {"data": 1})
        rig.server.disk.fail("pwritev", "*/wal-*", errno=number, sticky=True)
        try:
            return await rig.http.post(T, json=ONE)
        finally:
            rig.server.disk.clear_faults()

    return way


PUT_LOG = ("PUT", T, {})
PUT_QUEUE = ("PUT", T, {"type": "queue"})
FILL = ("POST", T, ONE)
WATCH = {"topics": {"t": {}}}
WAYS: dict[str, Way] = {
    "invalid_request": asking("POST", T, json={"records": []}),
    "batch_too_large": asking("POST", T, json={"records": [{"data": 1}] * 10_001}),
    "record_too_large": asking("POST", T, json={"records": [{"data": "x" * (1 << 20)}]}),
    "unauthorized": asking("GET", "/v0/topics"),
    "forbidden": asking("DELETE", T, headers={"authorization": "Bearer one"}),
    "topic_not_found": asking("GET", T),
    "not_mine": of_another_cell,
    "router_not_found": asking("GET", "/v0/routers/r"),
    "consumer_not_found": after(PUT_LOG, then=asking("GET", f"{T}/consumers/c")),
    "not_found": asking("GET", "/v0/nowhere"),
    "method_not_allowed": asking("PATCH", f"{T}/diff"),
    "not_acceptable": after(PUT_QUEUE, then=asking("GET", f"{T}/work?node=w", headers={"accept": "text/plain"})),
    "request_timeout": body_that_does_not_come,
    "topic_exists_incompatible": after(PUT_LOG, then=asking("PUT", T, json={"type": "queue"})),
    "router_cycle": after(
        ("PUT", "/v0/routers/there", {"source": "a", "dest": "b"}),
        then=asking("PUT", "/v0/routers/back", json={"source": "b", "dest": "a"}),
    ),
    "topic_not_empty": after(FILL, then=asking("DELETE", f"{T}?if_empty=true")),
    "seq_conflict": after(FILL, then=asking("POST", T, json={**ONE, "expected_seq": 7})),
    "epoch_conflict": after(
        FILL,
        ("PUT", f"{T}/consumers/c", {}),
        then=asking("POST", f"{T}/consumers/c/commit", json={"seq": 1, "epoch": 9}),
    ),
    "idempotency_conflict": after(
        ("POST", T, {**ONE, "idempotency_key": "k"}),
        then=asking(
            "POST", T, json={"records": [{"data": 2}], "idempotency_key": "k", "idempotency_strict": True}
        ),
    ),
    "not_a_queue": after(PUT_LOG, then=asking("POST", f"{T}/claim", json={"node": "w"})),
    "lease_lost": after(PUT_QUEUE, then=asking("POST", f"{T}/ack?strict=true", json={"node": "w", "seqs": [1]})),
    "precondition_failed": another_etag,
    "payload_too_large": asking("POST", T, json={"records": [{"data": "x" * 3000}]}),
    "unsupported_media_type": asking("POST", T, content="{}"),
    "range_not_satisfiable": range_behind_the_end,
    "topic_full": after(("PUT", T, {"cap_records": 1, "discard": "reject"}), FILL, then=asking("POST", T, json=ONE)),
    "throttled": after(PUT_LOG, ("POST", "/v0/watch", WATCH), then=asking("POST", "/v0/watch", json=WATCH)),
    "header_too_large": asking("GET", "/v0/topics?x=" + "y" * 2000),
    "internal": mistake,
    "segment_corrupt": read_of_a_damaged_record,
    "not_ready": recovering,
    "shutting_down": stopping,
    "wal_saturated": slow_log,
    "overloaded": read_without_memory,
    "storage_failed": disk_says(errno.EIO),
    "storage_full": disk_says(errno.ENOSPC),
}  # fmt: skip
#: The settings that a broker needs for that.
SETTINGS: dict[str, dict[str, Any]] = {
    "unauthorized": {"api_keys": "one"},
    "forbidden": {"api_keys": "one:read"},
    "request_timeout": {"body_timeout_s": 0.2},
    "payload_too_large": {"max_body_bytes": 2000},
    "throttled": {"max_watch_sessions": 1},
    "header_too_large": {"max_header_bytes": 1000},
}
LIMITS: dict[str, dict[str, int]] = {
    "segment_corrupt": {"tail_cache_bytes": 0},
    "not_mine": {"cell": 1 - home_cell("t", 2), "cells": 2},
    "precondition_failed": {"segment_max_events": 10},
    "range_not_satisfiable": {"segment_max_events": 10},
    "wal_saturated": {"wal_queue_frames": 20, "wal_enqueue_timeout_ms": 10},
}


@asynccontextmanager
async def rig(code: str) -> AsyncIterator[Rig]:
    async with (
        HotServer(limits=options(**LIMITS.get(code, {})), **SETTINGS.get(code, {})) as server,
        httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as http,
    ):
        yield Rig(server, http)


@pytest.mark.parametrize("code", CODES)
async def test_every_code_is_answered_with_its_status(code: str) -> None:
    async with rig(code) as made:
        found = await WAYS[code](made)
        if isinstance(found, Reply):
            answer = found.status, found.code, found.header("retry-after")
        else:
            answer = found.status_code, found.json()["error"]["code"], found.headers.get_list("retry-after")
    status, wait_s, *_ = CODES[code]
    assert answer == (status, code, [str(wait_s)] if wait_s else [])


def as_client_sees(code: str, detail: dict[str, Any]) -> ApiError:
    body = json.dumps({"error": {"code": code, "message": "So.", "detail": detail}}).encode()
    with pytest.raises(ApiError) as caught:
        result_of(health(), ClientReply(status=CODES[code].status, headers={}, body=body))
    return caught.value


@pytest.mark.parametrize("code", CODES)
def test_the_retry_column_of_each_code_matches_the_client(code: str) -> None:
    row = CODES[code]
    seen = as_client_sees(code, {})
    assert seen.code == code
    assert seen.transient is (row.retry.partition(",")[0].partition(";")[0] == "yes")
    assert seen.outcome == ("unknown" if row.effect.startswith("unknown") else "none")


def test_the_table_lists_exactly_the_limits_that_the_client_does_not_retry() -> None:
    said = {word.strip("`,") for word in CODES["throttled"].retry.split() if "`" in word}
    assert said == {limit for limit in _limits() if not as_client_sees("throttled", {"limit": limit}).transient}


def _limits() -> Iterable[str]:
    return (
        "max_topics", "max_partitions", "max_routers", "max_consumers", "max_watch_sessions", "max_sse_connections",
        "max_sse_connections_per_key", "max_inflight_per_key", "max_parked", "max_idempotency_keys", "max_total_bytes",
        "backups",
    )  # fmt: skip


@pytest.mark.parametrize("code", ["shutting_down", "storage_failed"])
def test_an_unknown_outcome_is_unknown_to_the_client(code: str) -> None:
    assert "`detail.outcome`" in CODES[code].effect
    assert as_client_sees(code, {"outcome": "unknown"}).outcome == "unknown"


@pytest.mark.parametrize("code", CODES)
def test_every_row_states_effect_and_retry(code: str) -> None:
    row = CODES[code]
    assert row.cause
    assert row.retry.startswith(("yes,", "no;")) or row.retry == "no"
    assert row.effect.startswith(("nothing", "unknown"))
