"""REST Proxy v2: lists of topics, and records that are written and read without a consumer."""

from __future__ import annotations

import httpx
import pytest

from storage import Engine
from tests.http.calls import append
from tests.http.proxy.calls import ACCEPT_JSON, BINARY, JSON, V2, b64, produce, refused

PARTITION = {"partition": 0, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
RECORDS = "/topics/t/partitions/0/records"


async def test_topics_are_listed_by_name(client: httpx.AsyncClient) -> None:
    assert (await client.get("/topics")).json() == []
    for name in ("b", "a", "_hidden"):
        await client.put(f"/v0/topics/{name}", json={})
    answer = await client.get("/topics")
    assert answer.json() == ["_hidden", "a", "b"]
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"


async def test_a_topic_is_described(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"ttl_ms": 1000})
    answer = (await client.get("/topics/t")).json()
    assert answer["name"] == "t"
    assert answer["configs"]["retention.ms"] == "1000"
    assert answer["configs"]["retention.bytes"] == "-1"
    assert answer["partitions"] == [PARTITION]
    assert (await client.get("/topics/t/partitions")).json() == [PARTITION]
    assert (await client.get("/topics/t/partitions/0")).json() == PARTITION
    assert (await client.get("/brokers")).json() == {"brokers": [1]}


async def test_absent_topics_and_partitions_are_answered_with_kafka_rest_error_codes(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={})
    for path in ("/topics/u", "/topics/u/partitions", "/topics/u/partitions/0", "/topics/u/partitions/0/offsets"):
        refused(await client.get(path), 404, 40401, "Topic not found.")
    for path in ("/topics/t/partitions/1", "/topics/t/partitions/x/offsets", "/topics/t/partitions/7/records"):
        refused(await client.get(path), 404, 40402, "Partition not found.")
    one = {"records": [{"value": 1}]}
    refused(await client.post("/topics/u/partitions/0", json=one, headers=JSON), 404, 40401, "Topic not found.")
    refused(await client.post("/topics/t/partitions/1", json=one, headers=JSON), 404, 40402, "Partition not found.")


async def test_binary_records_come_back_exactly(client: httpx.AsyncClient) -> None:
    sent = [
        {"key": b64("k"), "value": b64(b"\x00\xff")},
        {"key": b64(b"\xfe"), "value": b64("text")},
        {"value": None},
        {"key": b64("")},
        {"value": b64('{"a": 1}')},
        {"value": b64("")},
    ]
    answer = await client.post("/topics/t", json={"records": sent}, headers=BINARY)
    assert answer.status_code == 200
    assert answer.json() == {
        "offsets": [{"partition": 0, "offset": n, "error_code": None, "error": None} for n in range(6)],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    found = await client.get(RECORDS, headers={"accept": "application/vnd.kafka.binary.v2+json"})
    assert found.headers["content-type"] == "application/vnd.kafka.binary.v2+json"
    shown = [(each["offset"], each["key"], each["value"]) for each in found.json()]
    assert shown == [(n, each.get("key"), each.get("value")) for n, each in enumerate(sent)]
    assert {(each["topic"], each["partition"]) for each in found.json()} == {("t", 0)}


async def test_json_is_verbatim(client: httpx.AsyncClient) -> None:
    body = '{"records":[{"key":{"id" : 1},"value":{"n":1.0, "big":12345678901234567890123}},{"key":"k","value":null}]}'
    assert (await client.post("/topics/t", content=body, headers=JSON)).status_code == 200
    found = await client.get(RECORDS, headers=ACCEPT_JSON)
    assert '"key":{"id" : 1},"value":{"n":1.0, "big":12345678901234567890123}' in found.text
    assert '"key":"k","value":null' in found.text
    # A key is JSON too, so a string key has its quotes.
    binary = await client.get(RECORDS, headers={"accept": "application/vnd.kafka.binary.v2+json"})
    assert binary.json()[1]["key"] == b64('"k"')


async def test_text_goes_in_and_out(client: httpx.AsyncClient) -> None:
    text = {"content-type": "application/vnd.kafka.text.v2+json", "accept": "application/vnd.kafka.text.v2+json"}
    answer = await client.post("/topics/t", json={"records": [{"key": "k", "value": "grün"}]}, headers={**text, **V2})
    refused(answer, 422, 422)
    answer = await client.post(
        "/topics/t",
        json={"records": [{"key": "k", "value": "grün"}]},
        headers={"content-type": "application/vnd.kafka.text.v2+json"},
    )
    assert answer.status_code == 200, answer.text
    [record] = (await client.get(RECORDS, headers=text)).json()
    assert (record["key"], record["value"]) == ("k", "grün")
    assert (await client.get("/v0/topics/t/records?include_tags=true")).json()["records"][0]["$tag"] == "k"


async def test_values_outside_a_format_are_shown_as_text_or_base64(client: httpx.AsyncClient) -> None:
    records = [{"key": b64("k"), "value": b64("no json")}, {"key": b64(b"\xff"), "value": b64(b"\xff")}]
    await client.post("/topics/t", json={"records": records}, headers=BINARY)
    for format in ("json", "text"):
        found = await client.get(RECORDS, headers={"accept": f"application/vnd.kafka.{format}.v2+json"})
        assert [each["value"] for each in found.json()] == ["no json", {"$base64": b64(b"\xff")}]
        assert [each["key"] for each in found.json()] == ["k", {"$base64": b64(b"\xff")}]


async def test_headers_and_times_go_in_and_out(client: httpx.AsyncClient) -> None:
    headers = [{"name": "a", "value": b64("1")}, {"name": "a", "value": b64(b"\xff")}, {"name": "none", "value": None}]
    records = [
        {"value": 1, "timestamp": 1_700_000_000_123, "headers": headers},
        {"value": 2, "timestamp": "2024-01-02T03:04:05.678Z"},
        {"value": 3},
    ]
    await client.post("/topics/t", json={"records": records}, headers=JSON)
    first, second, third = (await client.get(RECORDS, headers=ACCEPT_JSON)).json()
    assert (first["timestamp"], first["headers"]) == (1_700_000_000_123, headers)
    assert second["timestamp"] == 1_704_164_645_678
    assert "headers" not in second
    assert third["timestamp"] == (await client.get("/v0/topics/t/records/3")).json()["$ts"]


async def test_records_of_the_v0_api_are_read_over_the_proxy(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": {"id": 1}, "tag": "k", "meta": {"m": "x", "n": 1}}, node="n1")
    [record] = (await client.get(RECORDS, headers=ACCEPT_JSON)).json()
    assert (record["key"], record["value"]) == ("k", {"id": 1})
    assert record["headers"] == [{"name": "m", "value": b64("x")}, {"name": "node", "value": b64("n1")}]


async def test_records_of_the_proxy_are_there_for_the_api(client: httpx.AsyncClient) -> None:
    await produce(client, "t", {"id": 1}, headers=[{"name": "h", "value": b64("x")}])
    [record] = (await client.get("/v0/topics/t/records")).json()["records"]
    assert (record["data"], record["meta"]) == ({"id": 1}, {"h": "x"})


async def test_offsets_are_seqs_minus_one(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    assert (await client.get("/topics/t/partitions/0/offsets")).json() == {"beginning_offset": 0, "end_offset": 5}
    await client.post("/v0/topics/t/delete", json={"before_seq": 4})
    assert (await client.get("/topics/t/partitions/0/offsets")).json() == {"beginning_offset": 3, "end_offset": 5}


async def read_values(client: httpx.AsyncClient, **query: object) -> list[object]:
    answer = await client.get(RECORDS, params=query, headers=ACCEPT_JSON)  # pyright: ignore[reportArgumentType]
    assert answer.status_code == 200, answer.text
    return [each["value"] for each in answer.json()]


async def test_a_partition_is_read_from_any_offset(client: httpx.AsyncClient) -> None:
    await produce(client, "t", *range(5))
    assert await read_values(client) == [0, 1, 2, 3, 4]
    assert await read_values(client, offset=3) == [3, 4]
    assert await read_values(client, offset="earliest", count=2) == [0, 1]
    assert await read_values(client, offset="latest") == []
    assert await read_values(client, offset=1, max_bytes=1) == [1]
    refused(await client.get(RECORDS, params={"offset": "first"}), 422, 422)
    refused(await client.get(RECORDS, params={"count": "many"}), 422, 422)


async def test_a_loss_is_reported_in_the_topics_lost_header(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 2})
    await produce(client, "t", *range(5))
    answer = await client.get(RECORDS, params={"offset": 1}, headers=ACCEPT_JSON)
    assert [each["value"] for each in answer.json()] == [3, 4]
    assert answer.headers["topics-lost"] == "t/0 1-2 cap"
    assert "topics-lost" not in (await client.get(RECORDS, params={"offset": 3})).headers


async def test_a_repeated_write_is_written_once(client: httpx.AsyncClient) -> None:
    body = {"records": [{"value": 1}, {"value": 2}]}
    answers = [
        (await client.post("/topics/t", json=body, headers={**JSON, "idempotency-key": "k1"})).json() for _ in range(2)
    ]
    first = answers[0]["offsets"]
    assert answers[1]["offsets"] == [{**each, "deduped": True} for each in first]
    other = await client.post("/topics/t", json={"records": [{"value": 3}]}, headers={**JSON, "idempotency-key": "k1"})
    assert other.json()["offsets"] == [{**first[0], "deduped": True, "payload_differs": True}]
    assert await read_values(client) == [1, 2]


@pytest.mark.parametrize(
    "body",
    [
        '{"records":[]}',
        "{}",
        '{"records":[{"value":"not base64!"}]}',
        '{"records":[{"value":1}]}',
        '{"records":[{"value":null,"partition":-1}]}',
        '{"records":[{"value":null,"timestamp":"soon"}]}',
        '{"records":[{"value":null,"timestamp":-5}]}',
        '{"records":[{"value":null,"headers":[{"name":"x","value":"?"}]}]}',
    ],
)
async def test_invalid_records_are_refused_and_create_no_topic(client: httpx.AsyncClient, body: str) -> None:
    assert refused(await client.post("/topics/t", content=body, headers=BINARY), 422, 422)
    refused(await client.get("/topics/t"), 404, 40401)


async def test_an_invalid_json_body_is_a_bad_request(client: httpx.AsyncClient) -> None:
    refused(await client.post("/topics/t", content="{", headers=BINARY), 400, 400)


@pytest.mark.parametrize("given", ["text/plain", "application/vnd.kafka.avro.v2+json", ""])
async def test_other_types_of_bodies_are_refused(client: httpx.AsyncClient, given: str) -> None:
    headers = {"content-type": given} if given else {}
    refused(await client.post("/topics/t", content='{"records":[{"value":"aGk="}]}', headers=headers), 415, 415)


async def test_plain_json_is_json(client: httpx.AsyncClient) -> None:
    assert (await client.post("/topics/t", json={"records": [{"value": {"a": 1}}]})).status_code == 200
    answer = await client.get(RECORDS, headers={"accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()[0]["value"] == {"a": 1}


async def test_the_content_type_of_an_answer_follows_accept(client: httpx.AsyncClient) -> None:
    for accept, given in (
        ("*/*", "application/vnd.kafka.v2+json"),
        ("application/json", "application/json"),
        ("application/vnd.kafka.v2+json; q=0.1, application/json", "application/json"),
    ):
        assert (await client.get("/topics", headers={"accept": accept})).headers["content-type"] == given
    refused(await client.get("/topics", headers={"accept": "text/html"}), 406, 406)
    await produce(client, "t", 1)
    refused(await client.get(RECORDS, headers={"accept": "application/vnd.kafka.avro.v2+json"}), 406, 406)


async def test_a_write_refused_by_its_topic_is_answered_for_each_record(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 1, "discard": "reject"})
    await produce(client, "t", 1)
    [outcome] = await produce(client, "t", 2)
    assert (outcome["partition"], outcome["offset"], outcome["error_code"]) == (None, None, 50002)
    assert outcome["error"]


async def test_an_unsupported_method_is_refused_with_the_allowed_methods(client: httpx.AsyncClient) -> None:
    answer = await client.put("/topics/t", json={})
    refused(answer, 405, 405)
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_requests_before_ready_are_refused_as_unavailable(client: httpx.AsyncClient, engine: Engine) -> None:
    engine.logs.ready = False
    refused(await client.get("/topics"), 503, 50003)
    engine.logs.ready = True
