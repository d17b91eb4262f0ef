"""Claims, acks and nacks over HTTP: the form of answers, and waiting claims."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from typing import Any

import httpx
import pytest

from broker.wiring import Broker
from storage import Engine
from tests.http.calls import JSON, append, refused
from tests.http.queue_calls import call, claim, figures, queue, seqs
from tests.http.test_long_poll import LONG_MS, until


async def parked(broker: Broker, client: httpx.AsyncClient, **fields: object) -> asyncio.Task[httpx.Response]:
    """A claim that has begun to wait."""
    before = broker.parking.parked
    body = {"node": "w", "wait_ms": LONG_MS, **fields}
    waiting = asyncio.create_task(client.post("/v0/topics/q/claim", json=body))
    await until(lambda: broker.parking.parked > before or waiting.done())
    return waiting


async def test_a_claim_returns_jobs_with_all_their_fields(engine: Engine, client: httpx.AsyncClient) -> None:
    await queue(client)
    await append(client, "q", {"data": {"n": 1}, "tag": "t", "node": "p", "meta": {"m": 1}}, {"data": 2}, {"data": 3})
    before = engine.now_ms()
    answer = await call(client, "claim", node="w", max=2, lease_ms=60_000)
    first, second = answer["claimed"]
    assert re.fullmatch("lease_[0-9a-f]{16}", first.pop("lease_id"))
    assert before + 60_000 <= first.pop("deadline") <= engine.now_ms() + 60_000
    assert first.pop("$ts") <= before
    assert first == {"$seq": 1, "$node": "p", "$tag": "t", "deliveries": 1, "data": {"n": 1}, "meta": {"m": 1}}
    assert set(second) == {"$seq", "lease_id", "deadline", "$ts", "deliveries", "data"}
    assert (answer["topic"], answer["count"], answer["ready"]) == ("q", 2, 1)
    assert set(answer) == {"topic", "claimed", "count", "ready", "performance"}
    assert answer["performance"]["server_total_ms"] >= 0


@pytest.mark.parametrize("text", ['{"a": 1.0,"a":1e400}', '"\\u00e9é"', "[ ]", "1.10", '{"deliver_at":5}'])
async def test_a_claimed_job_has_its_data_and_meta_byte_for_byte(client: httpx.AsyncClient, text: str) -> None:
    await queue(client)
    body = f'{{"records":[{{"data":{text},"meta":{text}}}]}}'
    await client.post("/v0/topics/q", content=body.encode(), headers=JSON)
    answer = await client.post("/v0/topics/q/claim", json={"node": "w"})
    assert f'"data":{text},"meta":{text}}}]' in answer.text


@pytest.mark.parametrize("record", [{"data": 1}, {"data": 1, "meta": {"deliver_at": 7}}, {"data": {"deliver_at": 7}}])
async def test_a_claimed_job_has_no_deliver_at(
    engine: Engine, client: httpx.AsyncClient, record: dict[str, Any]
) -> None:
    await queue(client)
    await append(client, "q", {**record, "deliver_at": engine.now_ms()})
    waited = await call(client, "claim", node="w", wait_ms=LONG_MS)
    [job] = waited["claimed"]
    shown = {name: job[name] for name in ("data", "meta", "deliver_at") if name in job}
    assert shown == record


async def test_a_claim_of_an_empty_queue_returns_no_job(client: httpx.AsyncClient) -> None:
    await queue(client)
    answer = await call(client, "claim", node="w")
    assert (answer["claimed"], answer["count"], answer["ready"]) == ([], 0, 0)


async def test_a_claimed_job_is_not_returned_to_another_node(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2)
    assert seqs(await claim(client, node="a", max=1)) == [1]
    assert seqs(await claim(client, node="b")) == [2]


@pytest.mark.parametrize("most", [0, 1, None])
async def test_a_claim_without_a_maximum_returns_a_single_job(client: httpx.AsyncClient, most: int | None) -> None:
    await queue(client, 1, 2)
    assert len(await claim(client, max=most)) == 1


async def test_a_claim_returns_at_most_1000_jobs(client: httpx.AsyncClient) -> None:
    await queue(client, *range(1001))
    assert len(await claim(client, max=1 << 63)) == 1000


async def test_acked_jobs_are_gone(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2, 3)
    jobs = await claim(client, max=2)
    done = await call(client, "ack", node="w", seqs=[1, 2], lease_ids=[job["lease_id"] for job in jobs])
    del done["performance"]
    assert done == {"topic": "q", "acked": 2, "skipped": [], "ready": 1, "in_flight": 0}
    assert (await client.get("/v0/topics/q")).json()["count"] == 1


async def test_jobs_leased_by_another_node_or_token_are_skipped(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2)
    [job] = await claim(client, max=1)
    for calls in ("ack", "nack", "extend"):
        more = {"lease_ms": 1000} if calls == "extend" else {}
        done = await call(client, calls, node="other", seqs=[1, 2, 9], **more)
        assert (done[f"{calls}ed"], done["skipped"]) == (0, [1, 2, 9])
        done = await call(client, calls, node="w", seqs=[1], lease_ids=["lease_ffffffffffffffff"], **more)
        assert (done[f"{calls}ed"], done["skipped"]) == (0, [1])
    assert (await call(client, "ack", node="w", seqs=[1], lease_ids=[job["lease_id"]]))["acked"] == 1


@pytest.mark.parametrize("given", [None, [], "", [""]])
async def test_without_lease_ids_the_node_is_enough(client: httpx.AsyncClient, given: Any) -> None:
    await queue(client, 1)
    await claim(client)
    assert (await call(client, "ack", node="w", seqs=[1], lease_ids=given))["acked"] == 1


@pytest.mark.parametrize("calls", ["ack", "nack", "extend"])
async def test_a_strict_call_with_a_lost_lease_changes_no_job(client: httpx.AsyncClient, calls: str) -> None:
    await queue(client, 1, 2)
    await claim(client, max=1)
    body = {"node": "w", "seqs": [1, 2], "lease_ms": 1000}
    error = refused(await client.post(f"/v0/topics/q/{calls}?strict=true", json=body), 409, "lease_lost")
    assert error["detail"]["seqs"] == [2]
    assert (await figures(client))["in_flight"] == 1
    assert (await client.post(f"/v0/topics/q/{calls}?strict=true", json=body | {"seqs": [1]})).is_success


async def test_nacked_jobs_are_delivered_again(client: httpx.AsyncClient) -> None:
    await queue(client, 1)
    await claim(client)
    done = await call(client, "nack", node="w", seqs=[1], reason="no")
    assert (done["nacked"], done["skipped"], done["ready"], done["in_flight"]) == (1, [], 1, 0)
    [job] = await claim(client)
    assert job["deliveries"] == 2


async def test_a_nack_with_a_delay_makes_the_job_delayed(client: httpx.AsyncClient) -> None:
    await queue(client, 1)
    await claim(client)
    assert (await call(client, "nack", node="w", seqs=[1], delay_ms=60_000))["ready"] == 0
    assert (await figures(client))["delayed"] == 1


async def test_an_extension_returns_the_new_deadline(engine: Engine, client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2)
    await claim(client)
    before = engine.now_ms()
    done = await call(client, "extend", node="w", seqs=[1, 2, 3], lease_ms=90_000)
    assert (done["extended"], done["skipped"], set(done["deadlines"])) == (2, [3], {"1", "2"})
    assert all(before + 90_000 <= at <= engine.now_ms() + 90_000 for at in done["deadlines"].values())


async def test_a_waiting_claim_gets_an_appended_job(broker: Broker, client: httpx.AsyncClient) -> None:
    await queue(client)
    waiting = await parked(broker, client)
    await append(client, "q", {"data": "new"})
    assert [job["data"] for job in (await waiting).json()["claimed"]] == ["new"]
    assert broker.parking.parked == 0


async def test_a_waiting_claim_gets_a_nacked_job(broker: Broker, client: httpx.AsyncClient) -> None:
    await queue(client, 1)
    await claim(client, node="other")
    waiting = await parked(broker, client)
    await call(client, "nack", node="other", seqs=[1])
    assert seqs((await waiting).json()["claimed"]) == [1]


async def test_when_the_time_is_over_the_answer_is_empty(client: httpx.AsyncClient) -> None:
    await queue(client)
    assert await claim(client, wait_ms=1) == []


async def test_deleting_the_queue_answers_the_waiting(broker: Broker, client: httpx.AsyncClient) -> None:
    await queue(client)
    waiting = await parked(broker, client)
    await client.delete("/v0/topics/q")
    refused(await waiting, 404, "topic_not_found")


async def test_shutting_down_answers_the_waiting_at_once(
    engine: Engine, broker: Broker, client: httpx.AsyncClient
) -> None:
    await queue(client)
    waiting = await parked(broker, client)
    engine.begin_shutdown()
    answer = await waiting
    assert answer.status_code == 200
    assert (answer.json()["claimed"], answer.json()["count"]) == ([], 0)


async def test_a_claim_during_shutdown_returns_ready_jobs_and_does_not_wait(
    engine: Engine, client: httpx.AsyncClient
) -> None:
    await queue(client, 1)
    engine.begin_shutdown()
    assert seqs(await claim(client, wait_ms=LONG_MS)) == [1]
    assert await claim(client, wait_ms=LONG_MS) == []


async def test_over_the_bound_a_claim_is_refused_rather_than_parked(broker: Broker, client: httpx.AsyncClient) -> None:
    await queue(client)
    broker.parking.max = 1
    waiting = await parked(broker, client)
    body = {"node": "w", "wait_ms": LONG_MS}
    error = refused(await client.post("/v0/topics/q/claim", json=body), 429, "throttled")
    assert error["detail"] == {"limit": "max_parked", "max": 1}
    assert await claim(client) == []
    await append(client, "q", {"data": 1})
    assert len((await waiting).json()["claimed"]) == 1


async def test_a_claim_with_a_ready_job_needs_no_slot_for_waiting(broker: Broker, client: httpx.AsyncClient) -> None:
    await queue(client, 1)
    broker.parking.max = 1
    with broker.parking.hold():
        assert seqs(await claim(client, wait_ms=LONG_MS)) == [1]


async def test_a_waiting_claim_of_a_disconnected_client_takes_no_job(broker: Broker, client: httpx.AsyncClient) -> None:
    await queue(client)
    waiting = await parked(broker, client)
    waiting.cancel()
    await until(lambda: broker.parking.parked == 0)
    await append(client, "q", {"data": 1})
    assert (await figures(client))["ready"] == 1


async def test_a_large_answer_is_compressed_when_asked(client: httpx.AsyncClient) -> None:
    await queue(client, *("x" * 100 for _ in range(50)))
    request = client.build_request(
        "POST", "/v0/topics/q/claim", json={"node": "w", "max": 50}, headers={"accept-encoding": "gzip"}
    )
    answer = await client.send(request, stream=True)
    raw = b"".join([part async for part in answer.aiter_raw()])
    assert json.loads(gzip.decompress(raw))["count"] == 50


async def test_the_state_of_a_queue_has_all_queue_figures(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2, 3)
    await claim(client, max=1)
    assert await figures(client) == {
        "ready": 2,
        "in_flight": 1,
        "delayed": 0,
        "dead_lettered": 0,
        "dead_pending": 0,
        "lost": 0,
        "paused": False,
        "oldest_ready_age_ms": pytest.approx(0, abs=60_000),
        "waiting_claims": 0,
    }


async def test_the_state_of_a_log_has_none(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/log")
    state = (await client.get("/v0/topics/log")).json()
    assert "queue" not in state
    assert state["last_write_ts"] is None
