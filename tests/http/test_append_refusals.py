"""Refused appends, one case per row. No part of a refused write is stored, and no topic is created for it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.http.calls import JSON, fill, read, refused, refused_field, state

ONE = {"records": [{"data": 1}]}
NO_U64 = ["-1", "18446744073709551616", "1.5", "true", '"1"', "[]", "9" * 5000]


async def refuse(client: httpx.AsyncClient, text: str | bytes, field: str, code: str = "invalid_request") -> None:
    """Neither a missing topic nor an existing one stores it."""
    refused_field(await client.post("/v0/topics/absent", content=text, headers=JSON), field, code)
    refused(await client.get("/v0/topics/absent"), 404, "topic_not_found")
    await fill(client, "there", 1)
    refused_field(await client.post("/v0/topics/there", content=text, headers=JSON), field, code)
    assert (await state(client, "there"))["head_seq"] == 1
    assert len((await read(client, "there"))["records"]) == 1


def with_fields(**fields: Any) -> str:
    return json.dumps({**ONE, **fields})


def with_record(**fields: Any) -> str:
    return json.dumps({"records": [{"data": 0}, {"data": 1, **fields}]})


@pytest.mark.parametrize("value", NO_U64)
async def test_expected_seq_is_a_u64(client: httpx.AsyncClient, value: str) -> None:
    await refuse(client, f'{{"records":[{{"data":1}}],"expected_seq":{value}}}', "expected_seq")


@pytest.mark.parametrize("field", ["idempotency_strict", "create", "disable_backpressure"])
@pytest.mark.parametrize("value", ["1", "0", '"true"', "[]"])
async def test_a_flag_must_be_true_or_false(client: httpx.AsyncClient, field: str, value: str) -> None:
    await refuse(client, f'{{"records":[{{"data":1}}],"{field}":{value}}}', field)


@pytest.mark.parametrize("field", ["node", "idempotency_key"])
@pytest.mark.parametrize("value", [1, True, ["a"], {"a": 1}])
async def test_node_and_key_are_text(client: httpx.AsyncClient, field: str, value: Any) -> None:
    await refuse(client, with_fields(**{field: value}), field)


@pytest.mark.parametrize("field", ["node", "tag"])
@pytest.mark.parametrize("value", [1, True, ["a"], {"a": 1}])
async def test_node_and_tag_of_a_record_are_text(client: httpx.AsyncClient, field: str, value: Any) -> None:
    await refuse(client, with_record(**{field: value}), f"records[1].{field}")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{}", "records"),
        ('{"records":null}', "records"),
        ('{"records":[]}', "records"),
        ('{"records":{}}', "records"),
        ('{"records":1}', "records"),
        ('{"records":[1]}', "records[0]"),
        ('{"records":[null]}', "records[0]"),
        ('{"records":[[]]}', "records[0]"),
        ('{"records":[{"data":1},{}]}', "records[1].data"),
        ('{"records":[{"meta":{}}]}', "records[0].data"),
        ('[{"data":1}]', "body"),
        ("null", "body"),
        ('"x"', "body"),
        ("", "body"),
    ],
)
async def test_a_write_has_records_and_a_record_has_data(client: httpx.AsyncClient, text: str, field: str) -> None:
    await refuse(client, text, field)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (with_fields(node="n" * 129), "node"),
        (with_fields(node="é" * 65), "node"),
        (with_fields(idempotency_key="k" * 257), "idempotency_key"),
        (with_record(node="n" * 129), "records[1].node"),
        (with_record(tag="t" * 257), "records[1].tag"),
        (with_record(meta={"m": "x" * 16 * 1024}), "records[1].meta"),
        (with_record(meta={str(key): 0 for key in range(65)}), "records[1].meta"),
    ],
)
async def test_a_value_over_its_limit_is_refused(client: httpx.AsyncClient, text: str, field: str) -> None:
    await refuse(client, text, field)


@pytest.mark.parametrize(
    "text",
    [
        with_fields(node="n" * 128),
        with_fields(idempotency_key="k" * 256),
        with_record(tag="t" * 256, node="n" * 128),
        with_record(meta="x" * (16 * 1024 - 2)),
        with_record(meta={str(key): 0 for key in range(64)}),
        with_record(data="x" * (1024 * 1024 - 2)),
    ],
    ids=["node", "key", "tag", "meta bytes", "meta keys", "record bytes"],
)
async def test_a_value_at_its_limit_is_accepted(client: httpx.AsyncClient, text: str) -> None:
    assert (await client.post("/v0/topics/t", content=text, headers=JSON)).status_code == 201


async def test_a_record_over_a_mebibyte_is_too_large(client: httpx.AsyncClient) -> None:
    await refuse(client, with_record(data="x" * (1024 * 1024 - 1)), "records[1]", "record_too_large")


async def test_more_than_ten_thousand_records_are_too_many(client: httpx.AsyncClient) -> None:
    text = b'{"records":[' + b",".join([b'{"data":0}'] * 10_001) + b"]}"
    await refuse(client, text, "records", "batch_too_large")


async def test_a_key_header_over_its_limit_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", json=ONE, headers={"Idempotency-Key": "k" * 257})
    refused_field(answer, "idempotency_key")


async def test_a_key_header_outside_utf8_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", json=ONE, headers={b"Idempotency-Key": b"\xff"})
    refused_field(answer, "Idempotency-Key")


@pytest.mark.parametrize("field", ["delay_ms", "deliver_at"])
async def test_a_log_has_no_delays(client: httpx.AsyncClient, field: str) -> None:
    await refuse(client, with_record(**{field: 1}), f"records[1].{field}")


@pytest.mark.parametrize("field", ["delay_ms", "deliver_at"])
@pytest.mark.parametrize("value", NO_U64)
async def test_a_delay_is_a_u64(client: httpx.AsyncClient, field: str, value: str) -> None:
    await client.put("/v0/topics/q", json={"type": "queue"})
    text = f'{{"records":[{{"data":1,"{field}":{value}}}]}}'
    refused_field(await client.post("/v0/topics/q", content=text, headers=JSON), f"records[0].{field}")
    assert (await state(client, "q"))["head_seq"] == 0


async def test_a_delay_is_at_most_366_days(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/q", json={"type": "queue"})
    answer = await client.post("/v0/topics/q", json={"records": [{"data": 1, "delay_ms": 366 * 86_400_000 + 1}]})
    refused_field(answer, "records[0].delay_ms")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ("1", "config"),
        ("[]", "config"),
        ('{"ttl_ms":-1}', "config.ttl_ms"),
        ('{"ttl_ms":1.5}', "config.ttl_ms"),
        ('{"ttl_ms":true}', "config.ttl_ms"),
        ('{"discard":"no"}', "config.discard"),
        ('{"partitions":0}', "config.partitions"),
        ('{"dead_letter":"-"}', "config.dead_letter"),
        ('{"priority":1e400}', "config.priority"),
        (f'{{"ttl_ms":{"9" * 5000}}}', "config.ttl_ms"),
    ],
)
async def test_an_inline_config_is_as_strict_as_a_put(client: httpx.AsyncClient, config: str, field: str) -> None:
    await refuse(client, f'{{"records":[{{"data":1}}],"config":{config}}}', field)


async def test_a_topic_cannot_be_its_own_dead_letter_topic(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", json={**ONE, "config": {"dead_letter": "t"}})
    refused_field(answer, "config.dead_letter")


async def test_return_seqs_is_checked_before_a_write(client: httpx.AsyncClient) -> None:
    refused_field(await client.post("/v0/topics/t?return_seqs=maybe", json=ONE), "return_seqs")
    refused(await client.get("/v0/topics/t"), 404, "topic_not_found")


async def test_an_invalid_body_is_reported_before_an_absent_topic(client: httpx.AsyncClient) -> None:
    refused_field(await client.post("/v0/topics/t", json={"records": [], "create": False}), "records")
