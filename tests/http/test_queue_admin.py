"""Administration of queues over HTTP."""

from __future__ import annotations

import httpx
import pytest

from storage import Engine
from storage.state.queues.values import Redriven
from tests.http.calls import append, refused
from tests.http.queue_calls import call, claim, figures, queue, seqs
from tests.http.test_long_poll import until


async def test_a_paused_queue_returns_no_job_until_resumed(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2)
    [job] = await claim(client, max=1)
    for _ in range(2):
        paused = await call(client, "pause")
        assert (paused["topic"], paused["paused"]) == ("q", True)
    assert await claim(client) == []
    assert (await figures(client))["paused"] is True
    assert (await call(client, "ack", node="w", seqs=[job["$seq"]]))["acked"] == 1
    assert (await call(client, "resume"))["paused"] is False
    assert seqs(await claim(client)) == [2]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"states":null}', b'{"states":["ready","delayed"]}'])
async def test_a_purge_deletes_jobs_without_a_lease(client: httpx.AsyncClient, body: bytes) -> None:
    await queue(client, 1, 2, 3)
    await claim(client, max=1)
    answer = await client.post("/v0/topics/q/purge", content=body, headers={"content-type": "application/json"})
    assert (answer.json()["topic"], answer.json()["purged"]) == ("q", 2)
    assert (await figures(client))["in_flight"] == 1


async def test_a_purge_of_a_state_deletes_only_jobs_in_that_state(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2)
    await claim(client, max=1)
    await call(client, "nack", node="w", seqs=[1], delay_ms=60_000)
    assert (await call(client, "purge", states=["delayed"]))["purged"] == 1
    assert (await call(client, "purge", states=["delayed"]))["purged"] == 0
    assert (await call(client, "purge", states=["ready"]))["purged"] == 1


async def test_a_purge_in_several_calls_ends_at_a_seq(client: httpx.AsyncClient) -> None:
    await queue(client, *range(7))
    await claim(client, max=1)
    await call(client, "nack", node="w", seqs=[1], delay_ms=60_000)
    purged = [(await call(client, "purge", max=2, through_seq=5))["purged"] for _ in range(4)]
    assert purged == [2, 2, 1, 0]
    listed = (await client.get("/v0/topics/q/leases")).json()
    assert seqs(listed["jobs"]) == [6, 7]
    assert (await call(client, "purge", through_seq=100))["purged"] == 2


@pytest.mark.parametrize("limit", [0, 10_001, "2"])
async def test_a_purge_refuses_a_limit_out_of_range(client: httpx.AsyncClient, limit: object) -> None:
    await queue(client, 1)
    refused(await client.post("/v0/topics/q/purge", json={"max": limit}), 400, "invalid_request")


async def test_the_lease_list_has_node_state_and_deadline_of_each_job(
    engine: Engine, client: httpx.AsyncClient
) -> None:
    await queue(client, 1, 2, 3)
    jobs = await claim(client, max=2)
    await call(client, "nack", node="w", seqs=[2], delay_ms=60_000)
    listed = (await client.get("/v0/topics/q/leases")).json()
    assert listed["topic"] == "q"
    leased, delayed, ready = listed["jobs"]
    deadline = jobs[0]["deadline"]
    assert leased == {"$seq": 1, "state": "leased", "node": "w", "deadline": deadline, "deliveries": 1}
    assert delayed.pop("ready_at") > engine.now_ms()
    assert delayed == {"$seq": 2, "state": "delayed", "deliveries": 1}
    assert ready == {"$seq": 3, "state": "ready", "deliveries": 0}
    assert "next_cursor" not in listed


@pytest.mark.parametrize(("state", "expected"), [("leased", [1]), ("ready", [2, 3]), ("delayed", []), ("dead", [])])
async def test_the_lease_list_is_filtered_by_state(client: httpx.AsyncClient, state: str, expected: list[int]) -> None:
    await queue(client, 1, 2, 3)
    await claim(client, max=1)
    answer = await client.get(f"/v0/topics/q/leases?state={state}")
    assert seqs(answer.json()["jobs"]) == expected


async def test_leases_come_in_pages(client: httpx.AsyncClient) -> None:
    await queue(client, *range(7))
    found: list[int] = []
    pages = 0
    cursor: str | None = None
    while cursor is not None or not pages:
        query = {"page_size": "3"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/v0/topics/q/leases", params=query)).json()
        found += seqs(page["jobs"])
        cursor = page.get("next_cursor")
        pages += 1
        assert cursor is None or httpx.URL("http://x", params={"c": cursor}).query == f"c={cursor}".encode()
    assert (found, pages) == ([1, 2, 3, 4, 5, 6, 7], 3)


async def test_a_full_last_page_has_no_cursor(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2)
    assert "next_cursor" not in (await client.get("/v0/topics/q/leases?page_size=2")).json()


async def test_a_listing_has_no_lease_ids(client: httpx.AsyncClient) -> None:
    await queue(client, 1)
    [job] = await claim(client)
    assert job["lease_id"] not in (await client.get("/v0/topics/q/leases")).text


async def test_a_redrive_passes_its_fields_to_the_engine(
    engine: Engine, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def redrive(name: str, **fields: object) -> Redriven:
        asked.append((name, fields))
        return Redriven(moved=3, remaining=2)

    monkeypatch.setattr(engine.queues, "redrive", redrive)
    await queue(client)
    fields = {"max": 10_000, "rate_per_s": 2, "dry_run": True, "seqs": [7]}
    done = (await client.post("/v0/topics/q/redrive", json={"from": "dead", **fields})).json()
    assert (done["topic"], done["moved"], done["remaining"]) == ("q", 3, 2)
    await client.post("/v0/topics/q/redrive")
    assert asked == [
        ("q", {"source": "dead", "max": 10_000, "rate_per_s": 2, "dry_run": True, "seqs": [7]}),
        ("q", {"source": None, "max": 1000, "rate_per_s": None, "dry_run": False, "seqs": None}),
    ]


async def test_a_redrive_by_seq_returns_exactly_the_named_jobs(engine: Engine, client: httpx.AsyncClient) -> None:
    await queue(client, *({"n": n} for n in range(1, 5)), max_deliveries=1, dead_letter="dead")
    await client.put("/v0/topics/other", json={"type": "queue", "max_deliveries": 1, "dead_letter": "dead"})
    await append(client, "other", {"data": "of another queue"})
    await claim(client, max=4)
    await call(client, "nack", node="w", seqs=[1, 2, 3, 4])
    await until(lambda: engine.queues.figures("q").dead_lettered == 4)
    await client.post("/v0/topics/other/claim", json={"node": "w"})
    await client.post("/v0/topics/other/nack", json={"node": "w", "seqs": [1]})
    await until(lambda: engine.queues.figures("other").dead_lettered == 1)
    names = {each["$seq"]: each["data"] for each in (await client.get("/v0/topics/dead/records")).json()["records"]}
    [other] = [seq for seq, data in names.items() if data == "of another queue"]
    first, second, *_ = [seq for seq in sorted(names) if seq != other]
    wanted = [second, first, first, other, 0, 99, (1 << 64) - 1]
    done = await call(client, "redrive", seqs=wanted, dry_run=True)
    assert (done["moved"], done["remaining"]) == (2, 0)
    done = await call(client, "redrive", seqs=wanted, max=1)
    assert (done["moved"], done["remaining"]) == (1, 1)
    done = await call(client, "redrive", seqs=wanted)
    assert (done["moved"], done["remaining"]) == (1, 0)
    assert [job["data"] for job in await claim(client, max=9)] == [names[first], names[second]]
    left = (await client.get("/v0/topics/dead/records")).json()["records"]
    assert sorted(each["$seq"] for each in left) == sorted(names.keys() - {first, second})
    assert (await call(client, "redrive", seqs=[]))["moved"] == 0
    assert (await call(client, "redrive"))["moved"] == 2


async def test_a_redrive_returns_the_dead_jobs_of_the_queue(engine: Engine, client: httpx.AsyncClient) -> None:
    await queue(client, {"n": 1}, max_deliveries=1, dead_letter="dead")
    await claim(client)
    await call(client, "nack", node="w", seqs=[1], reason="broken")
    await until(lambda: engine.queues.figures("q").dead_lettered == 1)
    dead = (await client.get("/v0/topics/dead/records")).json()["records"]
    assert dead[0]["data"] == {"n": 1}
    assert dead[0]["meta"]["$dead_letter_from"] == "q"
    assert dead[0]["meta"]["$dead_letter_reason"] == "broken"
    done = await call(client, "redrive")
    assert (done["moved"], done["remaining"]) == (1, 0)
    [job] = await claim(client)
    assert (job["data"], job["deliveries"]) == ({"n": 1}, 1)
    assert "meta" not in job or "$dead_letter_from" not in job["meta"]
