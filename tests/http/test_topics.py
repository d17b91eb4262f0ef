"""Creating, describing, listing and deleting topics."""

from __future__ import annotations

import httpx
import pytest

from schemas.topics import TopicAnswer, TopicDeleteAnswer, TopicListAnswer, TopicPutAnswer
from tests.http.calls import JSON, append, fill, refused, refused_field, state


async def test_a_put_creates_the_topic_and_returns_its_settings(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v0/topics/orders", json={"ttl_ms": 5000})
    assert answer.status_code == 201
    put = TopicPutAnswer.model_validate(answer.json())
    assert put.created
    assert put.config.ttl_ms == 5000


async def test_a_second_put_replaces_the_settings_and_is_answered_with_created_false(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/orders", json={"ttl_ms": 5000})
    answer = await client.put("/v0/topics/orders", json={"cap_records": 7})
    assert answer.status_code == 200
    assert answer.json()["created"] is False
    assert answer.json()["config"]["ttl_ms"] == 0
    assert answer.json()["config"]["cap_records"] == 7


async def test_a_put_needs_no_body(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v0/topics/orders")).status_code == 201


async def test_a_put_that_changes_the_type_is_a_conflict(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/orders", json={"type": "queue"})
    refused(await client.put("/v0/topics/orders", json={"type": "log"}), 409, "topic_exists_incompatible")


async def test_a_new_topic_is_described_as_empty(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/orders")
    found = TopicAnswer.model_validate(await state(client, "orders"))
    assert (found.head_seq, found.earliest_seq, found.next_seq, found.count, found.bytes) == (0, 1, 1, 0, 0)
    assert found.last_write_ts is None
    assert found.last_read_ts is not None  # this request


async def test_a_get_of_the_state_counts_as_a_read_unless_touch_is_false(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/orders")
    for _ in range(2):
        answer = await client.get("/v0/topics/orders", params={"touch": "false"})
        assert answer.json()["last_read_ts"] is None
    assert (await state(client, "orders"))["last_read_ts"] is not None


async def test_records_are_counted(client: httpx.AsyncClient) -> None:
    await append(client, "orders", {"data": "12345", "meta": {}})
    found = await state(client, "orders")
    assert (found["head_seq"], found["next_seq"], found["count"], found["bytes"]) == (1, 2, 1, 9)
    assert found["last_write_ts"] > 0


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_absent_topic_is_not_found(client: httpx.AsyncClient, method: str) -> None:
    path = "/v0/topics/nothing" if method == "GET" else "/v0/topics/nothing/diff"
    error = refused(await client.request(method, path), 404, "topic_not_found")
    assert error["detail"]["topic"] == "nothing"


async def test_topics_are_listed_bytewise_in_pages(client: httpx.AsyncClient) -> None:
    names = ["a", "B", "_", "a:1", "a.1", "z9"]
    for name in names:
        await client.put(f"/v0/topics/{name}")
    seen: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        params = {"page_size": "4"} | ({"cursor": cursor} if cursor else {})
        answer = await client.get("/v0/topics", params=params)
        page = TopicListAnswer.model_validate(answer.json())
        seen += [entry.topic for entry in page.topics]
        cursor = page.next_cursor
        pages += 1
    assert seen == sorted(names)
    assert pages == 2


async def test_a_full_last_page_has_no_cursor(client: httpx.AsyncClient) -> None:
    for name in ("a", "b"):
        await client.put(f"/v0/topics/{name}")
    assert "next_cursor" not in (await client.get("/v0/topics?page_size=2")).json()


async def test_a_list_can_be_narrowed_to_a_prefix(client: httpx.AsyncClient) -> None:
    for name in ("eu.a", "eu.b", "us.a"):
        await client.put(f"/v0/topics/{name}")
    answer = (await client.get("/v0/topics?prefix=eu.")).json()
    assert [entry["topic"] for entry in answer["topics"]] == ["eu.a", "eu.b"]


async def test_a_page_larger_than_the_most_is_clamped(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v0/topics?page_size=100000")).status_code == 200


@pytest.mark.parametrize("cursor", ["x", "!!!!", "AAAAAGE", "%00", "a=b"])
async def test_a_cursor_of_other_making_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    refused_field(await client.get("/v0/topics", params={"cursor": cursor}), "cursor")


@pytest.mark.parametrize("page_size", ["-1", "1.5", "true", "x", " 1", "1_0", "٣", ""])
async def test_a_page_size_is_digits(client: httpx.AsyncClient, page_size: str) -> None:
    refused_field(await client.get("/v0/topics", params={"page_size": page_size}), "page_size")


async def test_a_deleted_topic_is_gone(client: httpx.AsyncClient) -> None:
    await fill(client, "orders", 3)
    answer = await client.delete("/v0/topics/orders")
    assert answer.status_code == 200
    assert TopicDeleteAnswer.model_validate(answer.json()).deleted
    refused(await client.get("/v0/topics/orders"), 404, "topic_not_found")


async def test_deleting_an_absent_topic_is_answered_with_deleted_false(client: httpx.AsyncClient) -> None:
    answer = await client.delete("/v0/topics/orders")
    assert answer.status_code == 200
    assert answer.json()["deleted"] is False


async def test_a_topic_with_records_survives_if_empty(client: httpx.AsyncClient) -> None:
    await fill(client, "orders", 1)
    refused(await client.delete("/v0/topics/orders?if_empty=true"), 409, "topic_not_empty")
    assert (await state(client, "orders"))["count"] == 1


async def test_an_empty_topic_does_not_survive_if_empty(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/orders")
    assert (await client.delete("/v0/topics/orders?if_empty=1")).json()["deleted"] is True


async def test_a_flag_is_true_or_false(client: httpx.AsyncClient) -> None:
    refused_field(await client.delete("/v0/topics/orders?if_empty=yes"), "if_empty")


async def test_a_recreated_topic_starts_at_seq_1_in_another_epoch(client: httpx.AsyncClient) -> None:
    await fill(client, "orders", 3)
    before = await state(client, "orders")
    await client.delete("/v0/topics/orders")
    await fill(client, "orders", 1)
    after = await state(client, "orders")
    assert after["head_seq"] == 1
    assert after["epoch"] != before["epoch"]


BAD_NAMES = ["-a", ".a", ":a", "a b", "%C3%A9", "a" * 256, "a%00", "a%0A", "a>b", "%FF"]


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", ""),
        ("GET", ""),
        ("DELETE", ""),
        ("POST", ""),
        ("POST", "/diff"),
        ("POST", "/delete"),
        ("GET", "/records"),
        ("GET", "/records/1"),
    ],
)
async def test_a_name_that_breaks_the_pattern_is_refused_on_every_route(
    client: httpx.AsyncClient, name: str, method: str, path: str
) -> None:
    body = {"POST": b'{"records":[{"data":1}],"before_seq":1}'}.get(method, b"")
    headers = JSON if body else {}
    answer = await client.request(method, f"/v0/topics/{name}{path}", content=body, headers=headers)
    refused_field(answer, "topic")


@pytest.mark.parametrize("name", ["a", "_", "0", "A-b.c:d_e", "a" * 255])
async def test_names_may_have_letters_digits_and_four_signs(client: httpx.AsyncClient, name: str) -> None:
    assert (await client.put(f"/v0/topics/{name}")).status_code == 201


async def test_a_list_has_partitions_and_figures_of_queues(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/clicks", json={"partitions": 3})
    await client.put("/v0/topics/jobs", json={"type": "queue"})
    await client.put("/v0/topics/none", json={"type": "queue"})
    await append(client, "jobs", {"data": 1}, {"data": 2}, {"data": 3, "delay_ms": 60_000})
    await client.post("/v0/topics/jobs/claim", json={"node": "w"})
    await client.post("/v0/topics/none/pause")
    body = (await client.get("/v0/topics")).json()
    TopicListAnswer.model_validate(body)
    clicks, jobs, none = body["topics"]
    assert (clicks["partitions"], "queue" in clicks) == (3, False)
    age_ms = jobs["queue"].pop("oldest_ready_age_ms")
    assert age_ms >= 0
    assert jobs["queue"] == {"ready": 1, "in_flight": 1, "delayed": 1, "paused": False}
    assert none["queue"] == {"ready": 0, "in_flight": 0, "delayed": 0, "paused": True}
    assert "partitions" not in jobs
