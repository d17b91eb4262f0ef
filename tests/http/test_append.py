"""Appending records: answers of successful requests."""

from __future__ import annotations

import asyncio

import httpx

from schemas.records import AppendAnswer
from tests.http.calls import JSON, append, fill, read, refused, state


async def test_the_first_write_makes_the_topic(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", json={"records": [{"data": 1}, {"data": 2}]})
    assert answer.status_code == 201
    done = AppendAnswer.model_validate(answer.json())
    assert (done.topic, done.first_seq, done.last_seq, done.head_seq, done.count) == ("t", 1, 2, 2, 2)
    assert done.seqs == [1, 2]
    assert done.created
    assert not done.deduped


async def test_a_later_append_gets_the_next_seqs(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    answer = await client.post("/v0/topics/t", json={"records": [{"data": 3}]})
    assert answer.status_code == 200
    assert answer.json()["seqs"] == [3]
    assert answer.json()["created"] is False


async def test_seqs_can_be_left_out(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t?return_seqs=false", json={"records": [{"data": 1}]})
    assert "seqs" not in AppendAnswer.model_validate(answer.json()).model_dump(exclude_unset=True)


async def test_the_answer_has_the_time_that_the_log_took(client: httpx.AsyncClient) -> None:
    done = await append(client, "t", {"data": 1}, config={"durability": "fsync"})
    assert done["performance"]["fsync_ms"] > 0
    assert done["performance"]["server_total_ms"] >= done["performance"]["fsync_ms"]


async def test_records_without_a_node_get_the_node_of_the_append(
    client: httpx.AsyncClient,
) -> None:
    await append(client, "t", {"data": 1}, {"data": 2, "node": "b"}, node="a")
    records = (await read(client, "t"))["records"]
    assert [record["$node"] for record in records] == ["a", "b"]


async def test_an_inline_config_counts_when_the_write_makes_the_topic(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": 1}, config={"cap_records": 5, "durable": True})
    config = (await state(client, "t"))["config"]
    assert config["cap_records"] == 5
    assert config["durability"] == "fsync"


async def test_an_inline_config_does_not_touch_an_existing_topic(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    await append(client, "t", {"data": 1}, config={"cap_records": 5})
    assert (await state(client, "t"))["config"]["cap_records"] == 0


async def test_null_fields_are_absent_fields(client: httpx.AsyncClient) -> None:
    fields = ("node", "idempotency_key", "idempotency_strict", "create", "config", "expected_seq")
    record = {"data": None, "meta": None, "tag": None, "node": None, "delay_ms": None, "deliver_at": None}
    await append(client, "t", record, **dict.fromkeys(fields))
    [stored] = (await read(client, "t", include_tags=True))["records"]
    assert set(stored) == {"$seq", "$ts", "data"}


async def test_unknown_fields_are_ignored(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": 1, "colour": "blue"}, shape="round", disable_backpressure=True)
    assert (await state(client, "t"))["count"] == 1


async def test_a_write_with_create_false_needs_an_existing_topic(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", json={"records": [{"data": 1}], "create": False})
    refused(answer, 404, "topic_not_found")
    refused(await client.get("/v0/topics/t"), 404, "topic_not_found")


async def test_a_matching_expected_seq_is_accepted(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": 1}, expected_seq=0)
    assert (await append(client, "t", {"data": 2}, expected_seq=1))["head_seq"] == 2


async def test_a_wrong_expected_seq_is_a_conflict_with_the_head_seq(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    answer = await client.post("/v0/topics/t", json={"records": [{"data": 1}], "expected_seq": 2})
    error = refused(answer, 409, "seq_conflict")
    assert error["detail"] == {"expected_seq": 2, "head_seq": 3}
    assert (await state(client, "t"))["head_seq"] == 3


async def test_concurrent_appends_with_the_same_expected_seq_have_a_single_winner(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    body = {"records": [{"data": 1}], "expected_seq": 0}
    answers = await asyncio.gather(*(client.post("/v0/topics/t", json=body) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7


async def test_a_repeated_key_gets_the_first_answer(client: httpx.AsyncClient) -> None:
    first = await append(client, "t", {"data": 1}, idempotency_key="k")
    await append(client, "t", {"data": 2})
    again = await append(client, "t", {"data": 1}, idempotency_key="k")
    assert (again["first_seq"], again["last_seq"], again["deduped"]) == (1, 1, True)
    assert again["seqs"] == first["seqs"]
    assert "payload_differs" not in again
    assert (await state(client, "t"))["count"] == 2


async def test_a_repeated_key_with_other_records_is_answered_with_payload_differs(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": 1}, idempotency_key="k")
    again = await append(client, "t", {"data": 2}, idempotency_key="k")
    assert again["deduped"] is True
    assert again["payload_differs"] is True


async def test_a_strict_key_with_other_records_is_a_conflict(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": 1}, idempotency_key="k")
    body = {"records": [{"data": 2}], "idempotency_key": "k", "idempotency_strict": True}
    refused(await client.post("/v0/topics/t", json=body), 409, "idempotency_conflict")
    assert (await state(client, "t"))["count"] == 1


async def test_the_idempotency_key_can_be_a_header(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        answer = await client.post(
            "/v0/topics/t", json={"records": [{"data": 1}]}, headers={"Idempotency-Key": "from-header"}
        )
    assert answer.json()["deduped"] is True


async def test_the_key_in_the_body_wins_over_the_header(client: httpx.AsyncClient) -> None:
    for key in ("a", "b"):
        answer = await client.post(
            "/v0/topics/t",
            json={"records": [{"data": 1}], "idempotency_key": key},
            headers={"Idempotency-Key": "same"},
        )
    assert answer.json()["deduped"] is False


async def test_an_empty_key_header_is_none(client: httpx.AsyncClient) -> None:
    for _ in range(2):
        answer = await client.post("/v0/topics/t", json={"records": [{"data": 1}]}, headers={"Idempotency-Key": ""})
    assert answer.json()["deduped"] is False


async def test_a_full_topic_with_discard_reject_answers_422(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 2, "discard": "reject"})
    await fill(client, "t", 2)
    refused(await client.post("/v0/topics/t", json={"records": [{"data": 1}]}), 422, "topic_full")
    assert (await state(client, "t"))["head_seq"] == 2


async def test_a_repeated_key_on_a_full_topic_is_deduplicated(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 1, "discard": "reject"})
    await append(client, "t", {"data": 1}, idempotency_key="k")
    assert (await append(client, "t", {"data": 1}, idempotency_key="k"))["deduped"] is True


async def test_a_batch_larger_than_the_cap_is_refused_as_record_too_large(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 2, "discard": "reject"})
    answer = await client.post("/v0/topics/t", json={"records": [{"data": 1}] * 3})
    refused(answer, 400, "record_too_large")


async def test_the_largest_batch_is_taken_whole(client: httpx.AsyncClient) -> None:
    body = b'{"records":[' + b",".join([b'{"data":0}'] * 10_000) + b"]}"
    answer = await client.post("/v0/topics/t?return_seqs=false", content=body, headers=JSON)
    assert answer.json()["last_seq"] == 10_000


async def test_a_content_type_with_parameters_is_accepted(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await client.post("/v0/topics/t", content='{"records":[{"data":1}]}', headers=headers)).is_success
