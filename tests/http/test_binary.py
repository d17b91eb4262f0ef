"""Raw bytes that a program appended without HTTP: every answer with records shows them in Base64."""

from __future__ import annotations

import base64

import httpx
import pytest
from msgspec import Raw

from storage import BinaryRecord, Engine, NewRecord, TopicConfig, TopicType
from storage.records.values import StoredBodies
from tests.http.calls import read
from tests.http.test_long_poll import until

BYTES = b'\x00\xff,"meta":1,"deliver_at":7}'
SHOWN = {"$base64": base64.b64encode(BYTES).decode()}


@pytest.fixture
async def topic(engine: Engine) -> str:
    await engine.append_batch(
        "t", [{"n": 1}, BYTES, NewRecord(Raw(b"3"), meta=Raw(b"{}")), BinaryRecord(Raw(BYTES), tag="x")]
    )
    return "t"


@pytest.mark.parametrize("more", [{}, {"include_meta": False}, {"include_tags": True}])
async def test_reads_show_base64(client: httpx.AsyncClient, topic: str, more: dict[str, bool]) -> None:
    answer = await read(client, topic, **more)
    assert [record["data"] for record in answer["records"]] == [{"n": 1}, SHOWN, 3, SHOWN]


async def test_a_point_read_shows_base64(client: httpx.AsyncClient, topic: str) -> None:
    assert (await client.get(f"/v0/topics/{topic}/records/2")).json()["data"] == SHOWN


@pytest.mark.parametrize("more", [{}, {"include_meta": False, "include_data": False}])
async def test_include_stored_adds_the_stored_bytes_if_different(
    client: httpx.AsyncClient, engine: Engine, topic: str, more: dict[str, bool]
) -> None:
    await engine.append("t", SHOWN)
    await engine.append("t", StoredBodies([b'{"data":1,"ct":7}', b'{"data": "spaces" }']))
    plain = (await read(client, topic, **more))["records"]
    told = (await read(client, topic, include_stored=True, **more))["records"]
    stored = {record["$seq"]: base64.b64decode(record.pop("$stored")) for record in told if "$stored" in record}
    assert told == plain
    assert stored == {seq: (await engine.read_one(topic, seq)).body for seq in (2, 4, 6, 7)}
    flags = "".join(f"&{name}={str(value).lower()}" for name, value in more.items())
    by_query = (await client.get(f"/v0/topics/t/records?include_stored=true{flags}")).json()["records"]
    assert [base64.b64decode(record["$stored"]) for record in by_query if "$stored" in record] == [*stored.values()]
    one = (await client.get("/v0/topics/t/records/6?include_stored=true")).json()
    assert (one["data"], base64.b64decode(one["$stored"])) == (1, b'{"data":1,"ct":7}')


async def test_base64_text_in_json_stays_json(client: httpx.AsyncClient, engine: Engine) -> None:
    await engine.append("t", SHOWN)
    assert (await read(client, "t"))["records"][0]["data"] == SHOWN
    record = await engine.read_one("t", 1)
    assert not record.binary
    assert record.value == SHOWN


@pytest.mark.parametrize("count", [1, 10])
async def test_claims_show_base64(client: httpx.AsyncClient, engine: Engine, count: int) -> None:
    await engine.put_topic("q", TopicConfig(type=TopicType.QUEUE))
    await engine.append_batch("q", [BYTES] * count)
    answer = await client.post("/v0/topics/q/claim", json={"node": "w", "max": 100})
    assert [job["data"] for job in answer.json()["claimed"]] == [SHOWN] * count


async def test_a_binary_dead_letter_shows_base64_and_its_source(client: httpx.AsyncClient, engine: Engine) -> None:
    await engine.put_topic("q", TopicConfig(type=TopicType.QUEUE, max_deliveries=1, dead_letter="dead"))
    await engine.append("q", BinaryRecord(Raw(BYTES), tag="x", node="n"))
    [job] = (await client.post("/v0/topics/q/claim", json={"node": "w"})).json()["claimed"]
    assert "meta" not in job
    await client.post("/v0/topics/q/nack", json={"node": "w", "seqs": [1], "reason": "why"})
    await until(lambda: engine.queues.figures("q").dead_lettered == 1)
    meta = {f"$dead_letter_{name}": text for name, text in [("from", "q"), ("deliveries", "1"), ("src_seq", "1")]}
    wanted = {"data": SHOWN, "meta": meta | {"$dead_letter_reason": "why"}, "$tag": "x", "$node": "n"}
    [dead] = (await read(client, "dead", include_tags=True))["records"]
    assert {name: dead[name] for name in wanted} == wanted
    [dead] = (await read(client, "dead", include_data=False))["records"]
    assert (dead["meta"], "data" in dead) == (wanted["meta"], False)
    assert (await client.get("/v0/topics/dead/records/1")).json()["meta"] == wanted["meta"]
    assert (await client.post("/v0/topics/q/redrive", json={})).json()["moved"] == 1
    [job] = (await client.post("/v0/topics/q/claim", json={"node": "w"})).json()["claimed"]
    assert (job["data"], job["$tag"], "meta" in job) == (SHOWN, "x", False)
    assert (await engine.read_one("q", job["$seq"])).data == BYTES
