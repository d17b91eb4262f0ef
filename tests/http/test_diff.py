"""Reading records with POST …/diff and GET …/records, and one record with GET …/records/{seq}."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from schemas.records import DiffAnswer, RecordAnswer
from tests.http.calls import append, fill, read, refused, refused_field

TAGGED = ({"data": 1, "tag": "a"}, {"data": 2, "tag": "ab"}, {"data": 3}, {"data": 4, "tag": "b"})


def data(answer: dict[str, Any]) -> list[Any]:
    return [record["data"] for record in answer["records"]]


async def test_a_diff_needs_no_body(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    answer = await client.post("/v0/topics/t/diff")
    found = DiffAnswer.model_validate(answer.json())
    assert [record.seq for record in found.records] == [1, 2, 3]
    assert (found.next_from_seq, found.head_seq, found.earliest_seq, found.lag) == (3, 3, 1, 0)
    assert found.caught_up
    assert found.tombstone is None


async def test_from_seq_is_exclusive(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    assert data(await read(client, "t", from_seq=1)) == [2, 3]


async def test_a_limit_leaves_a_lag(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    answer = await read(client, "t", limit=2)
    assert data(answer) == [1, 2]
    assert (answer["next_from_seq"], answer["caught_up"], answer["lag"]) == (2, False, 3)


@pytest.mark.parametrize(("limit", "given"), [(0, 256), (1000, 1000), (5000, 1000)])
async def test_limit_0_is_the_default_and_a_large_limit_is_clamped(
    client: httpx.AsyncClient, limit: int, given: int
) -> None:
    await fill(client, "t", 1001)
    assert len((await read(client, "t", limit=limit))["records"]) == given


@pytest.mark.parametrize("name", ["max_batch_bytes", "max_bytes"])
async def test_a_byte_limit_returns_at_least_a_single_record(client: httpx.AsyncClient, name: str) -> None:
    await append(client, "t", {"data": "x" * 5000}, {"data": "y" * 5000})
    assert len((await read(client, "t", **{name: 1}))["records"]) == 1


async def test_max_batch_bytes_wins_over_its_alias(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": "x" * 5000}, {"data": "y" * 5000})
    assert len((await read(client, "t", max_batch_bytes=100_000, max_bytes=1))["records"]) == 2


async def test_a_byte_limit_of_0_is_the_default(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    assert len((await read(client, "t", max_batch_bytes=0))["records"]) == 5


async def test_tags_are_given_when_asked_for(client: httpx.AsyncClient) -> None:
    await append(client, "t", *TAGGED)
    assert all("$tag" not in record for record in (await read(client, "t"))["records"])
    records = (await read(client, "t", include_tags=True))["records"]
    assert [record.get("$tag") for record in records] == ["a", "ab", None, "b"]


@pytest.mark.parametrize(
    ("include_data", "include_meta", "given"),
    [
        (True, True, {"data", "meta"}),
        (True, False, {"data"}),
        (False, True, {"meta"}),
        (False, False, set[str]()),
    ],
)
async def test_data_and_meta_can_be_left_out(
    client: httpx.AsyncClient, include_data: bool, include_meta: bool, given: set[str]
) -> None:
    await append(client, "t", {"data": {"meta": 1}, "meta": {"data": 2}, "node": "n"})
    answer = await read(client, "t", include_data=include_data, include_meta=include_meta)
    assert set(answer["records"][0]) == {"$seq", "$ts", "$node"} | given


async def test_a_record_without_meta_has_none_when_data_are_left_out(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    assert set((await read(client, "t", include_data=False))["records"][0]) == {"$seq", "$ts"}


@pytest.mark.parametrize(
    ("predicate", "given"),
    [
        ("a", [1]),
        (["tag", "Eq", "ab"], [2]),
        (["tag", "Glob", "a*"], [1, 2]),
        (["tag", "Glob", "*"], [1, 2, 4]),
        ("nothing", []),
    ],
)
async def test_a_predicate_narrows_by_tag_and_moves_on(
    client: httpx.AsyncClient, predicate: Any, given: list[int]
) -> None:
    await append(client, "t", *TAGGED)
    answer = await read(client, "t", tag=predicate)
    assert data(answer) == given
    assert answer["next_from_seq"] == 4
    assert answer["caught_up"] is True


async def test_own_records_are_left_out_and_moved_past(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3}, {"data": 4, "node": "a"})
    assert data(await read(client, "t", node="a")) == [2, 3]
    answer = await read(client, "t", node=["a", "b"])
    assert data(answer) == [3]
    assert answer["next_from_seq"] == 4


async def test_records_of_the_own_node_are_returned_without_dedupe_node(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"dedupe_node": False})
    await append(client, "t", {"data": 1, "node": "a"})
    assert data(await read(client, "t", node="a")) == [1]


async def test_from_ts_returns_records_of_that_time_and_later(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    first = (await read(client, "t"))["records"][0]["$ts"]
    assert data(await read(client, "t", from_ts=first)) == [1, 2]
    assert data(await read(client, "t", from_ts=first, from_seq=1)) == [2]
    assert data(await read(client, "t", from_ts=first + 60_000)) == []


async def test_a_position_beyond_the_head_means_that_the_topic_was_recreated(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    answer = await read(client, "t", from_seq=9)
    assert answer["tombstone"]["reason"] == "recreated"
    assert answer["tombstone"]["gap_from"] == 1
    assert data(answer) == [1, 2]


async def test_a_read_with_another_epoch_gets_a_recreated_tombstone(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    epoch = (await client.get("/v0/topics/t")).json()["epoch"]
    assert (await read(client, "t", epoch=epoch, from_seq=1))["tombstone"] is None
    answer = await read(client, "t", epoch=epoch + 1, from_seq=1)
    DiffAnswer.model_validate(answer)
    assert answer["tombstone"]["reason"] == "recreated"


async def test_evicted_records_leave_a_tombstone(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 2})
    await fill(client, "t", 5)
    answer = await read(client, "t")
    tombstone = DiffAnswer.model_validate(answer).tombstone
    assert tombstone is not None
    assert (tombstone.gap_from, tombstone.gap_to, tombstone.reason, tombstone.missed_estimate) == (1, 3, "cap", 3)
    following = await read(client, "t", from_seq=answer["next_from_seq"]) if not answer["records"] else answer
    assert data(following) == [4, 5]


async def test_a_read_by_query_equals_a_read_by_body(client: httpx.AsyncClient) -> None:
    await append(
        client,
        "t",
        {"data": 1, "node": "a", "tag": "x"},
        {"data": 2, "node": "b", "tag": "x1", "meta": 5},
        {"data": 3, "node": "c", "tag": "x2", "meta": 6},
        {"data": 4, "node": "c", "tag": "y"},
        {"data": 5, "node": "c", "tag": "x3"},
    )
    by_body = await read(
        client,
        "t",
        from_seq=1,
        limit=2,
        node=["a", "b"],
        tag=["tag", "Glob", "x*"],
        include_tags=True,
        include_meta=False,
    )
    query = 'from_seq=1&limit=2&node=a&node=b&tag=["tag","Glob","x*"]&include_tags=true&include_meta=false'
    by_query = (await client.get(f"/v0/topics/t/records?{query}")).json()
    for answer in (by_body, by_query):
        assert answer.pop("performance")
    assert by_query == by_body
    assert data(by_query) == [3, 5]


@pytest.mark.parametrize(("tag", "given"), [("[x", [1]), ('"[x"', [1]), ('["tag","Eq","[x"]', [1]), ("y", [2])])
async def test_a_tag_in_a_query_is_text_or_json(client: httpx.AsyncClient, tag: str, given: list[int]) -> None:
    await append(client, "t", {"data": 1, "tag": "[x"}, {"data": 2, "tag": "y"})
    answer = await client.get("/v0/topics/t/records", params={"tag": tag})
    if tag == "[x":
        refused_field(answer, "tag")
    else:
        assert data(answer.json()) == given


async def test_a_single_record_is_read_by_its_seq(client: httpx.AsyncClient) -> None:
    await append(client, "t", {"data": {"a": 1}, "meta": [2], "node": "n", "tag": "x"})
    answer = await client.get("/v0/topics/t/records/1?include_tags=true")
    record = RecordAnswer.model_validate(answer.json())
    assert (record.topic, record.seq, record.node, record.tag) == ("t", 1, "n", "x")
    assert (record.data, record.meta) == ({"a": 1}, [2])


@pytest.mark.parametrize(("seq", "reason"), [(4, "future"), (1, "deleted")])
async def test_an_absent_record_is_reported_with_its_reason(client: httpx.AsyncClient, seq: int, reason: str) -> None:
    await fill(client, "t", 3)
    await client.post("/v0/topics/t/delete", json={"before_seq": 2})
    error = refused(await client.get(f"/v0/topics/t/records/{seq}"), 404, "not_found")
    assert error["detail"]["reason"] == reason


async def test_a_read_of_an_evicted_record_is_not_found_with_its_reason(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 1})
    await fill(client, "t", 3)
    assert refused(await client.get("/v0/topics/t/records/1"), 404, "not_found")["detail"]["reason"] == "evicted"


@pytest.mark.parametrize("seq", ["x", "-1", "1.5", "18446744073709551616", "٣", "%2B1", "0x1"])
async def test_a_seq_in_a_path_is_digits(client: httpx.AsyncClient, seq: str) -> None:
    await fill(client, "t", 1)
    refused_field(await client.get(f"/v0/topics/t/records/{seq}"), "seq")


async def test_when_a_job_is_due_is_not_shown(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/q", json={"type": "queue"})
    sent: list[dict[str, Any]] = [
        {"data": {"n": 1, "deliver_at": 5}, "delay_ms": 60_000},
        {"data": 2, "meta": {"x": 1, "deliver_at": 7}, "delay_ms": 60_000},
        {"data": {"deliver_at": 9}},
    ]
    assert (await client.post("/v0/topics/q", json={"records": sent})).status_code == 200
    found = (await read(client, "q"))["records"]
    assert [{key: each[key] for key in each if key[0] != "$"} for each in found] == [
        {key: each[key] for key in each if key != "delay_ms"} for each in sent
    ]
    one = (await client.get("/v0/topics/q/records/1")).json()
    assert one["data"] == {"n": 1, "deliver_at": 5}
    assert "deliver_at" not in one
