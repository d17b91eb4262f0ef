"""Consumers over HTTP: making, describing, listing, deleting."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from schemas.consumers import ConsumerAnswer, ConsumerDeleteAnswer, ConsumerListAnswer, ConsumerPutAnswer
from storage import Engine
from tests.http.calls import append, fill, refused, refused_field, state
from tests.http.consumer_calls import URL, data, get, post, put

#: Every call of one consumer, with a valid body.
CALLS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("PUT", "", {}),
    ("GET", "", None),
    ("DELETE", "", None),
    ("POST", "/read", {}),
    ("POST", "/commit", {"seq": 0}),
    ("POST", "/seek", {"to": "head"}),
]


async def test_a_put_creates_the_consumer_and_returns_its_state(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    answer = await client.put(URL, json={"start": None})
    assert answer.status_code == 201
    ConsumerPutAnswer.model_validate(answer.json())
    assert {name: value for name, value in answer.json().items() if name != "performance"} == {
        "topic": "t",
        "consumer": "c",
        "consistency": "at_least_once",
        "persist_every": 1000,
        "cursor_seq": 0,
        "durable_seq": 0,
        "unread": 3,
        "lag": 3,
        "created": True,
    }


async def test_a_second_put_replaces_the_settings_and_leaves_the_position(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    await put(client, consistency="strictly_at_once", persist_every=7)
    assert await data(client, limit=2) == [1, 2]
    again = await client.put(URL, json={"start": "head"})
    assert again.status_code == 200
    found = again.json()
    assert (found["created"], found["consistency"], found["persist_every"]) == (False, "at_least_once", 1000)
    assert (found["cursor_seq"], found["unread"]) == (2, 1)


@pytest.mark.parametrize(("start", "cursor"), [("earliest", 0), ("head", 3), (2, 2), (0, 0), (3, 3)])
async def test_a_new_consumer_starts_at_its_start_position(client: httpx.AsyncClient, start: Any, cursor: int) -> None:
    await fill(client, "t", 3)
    assert (await put(client, start=start))["cursor_seq"] == cursor
    assert await data(client) == list(range(cursor + 1, 4))


async def test_a_put_needs_no_body(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    assert (await client.put(URL)).status_code == 201


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"consistency": "exactly_once"}, "consistency"),
        ({"consistency": 1}, "consistency"),
        ({"persist_every": -1}, "persist_every"),
        ({"persist_every": 0}, "persist_every"),
        ({"persist_every": "7"}, "persist_every"),
        ({"persist_every": 1.5}, "persist_every"),
        ({"persist_every": 2**64}, "persist_every"),
        ({"start": "tail"}, "start"),
        ({"start": -1}, "start"),
        ({"start": True}, "start"),
        ({"start": 1.5}, "start"),
        ({"start": 2**64}, "start"),
        ({"start": ["head"]}, "start"),
        ({"start": {}}, "start"),
        ({"start": 4}, "start"),
    ],
)
async def test_a_bad_field_of_a_put_is_named(client: httpx.AsyncClient, fields: dict[str, Any], field: str) -> None:
    await fill(client, "t", 3)
    refused_field(await client.put(URL, json=fields), field)
    assert (await client.get("/v0/topics/t/consumers")).json()["consumers"] == []


@pytest.mark.parametrize("name", ["%25a", "a b", "é", "x" * 513, "a*", ".a", "a>b", "a%0A"])
@pytest.mark.parametrize(("method", "rest", "body"), CALLS)
async def test_an_invalid_consumer_name_is_400(
    client: httpx.AsyncClient, method: str, rest: str, body: Any, name: str
) -> None:
    refused_field(await client.request(method, f"/v0/topics/t/consumers/{name}{rest}", json=body), "consumer")


@pytest.mark.parametrize(("method", "rest", "body"), CALLS)
async def test_a_bad_topic_name_is_400(client: httpx.AsyncClient, method: str, rest: str, body: Any) -> None:
    refused_field(await client.request(method, f"/v0/topics/a b/consumers/c{rest}", json=body), "topic")


@pytest.mark.parametrize(("method", "rest", "body"), CALLS)
async def test_an_absent_topic_is_404(client: httpx.AsyncClient, method: str, rest: str, body: Any) -> None:
    refused(await client.request(method, URL + rest, json=body), 404, "topic_not_found")


@pytest.mark.parametrize(("method", "rest", "body"), CALLS)
async def test_an_absent_consumer_is_404(client: httpx.AsyncClient, method: str, rest: str, body: Any) -> None:
    await client.put("/v0/topics/t")
    answer = await client.request(method, URL + rest, json=body)
    if method == "DELETE":
        assert (answer.status_code, answer.json()["deleted"]) == (200, False)
    elif method != "PUT":
        error = refused(answer, 404, "consumer_not_found")
        assert "c" in error["message"]


@pytest.mark.parametrize(("method", "rest", "body"), CALLS)
async def test_queues_have_no_consumers(client: httpx.AsyncClient, method: str, rest: str, body: Any) -> None:
    await client.put("/v0/topics/t", json={"type": "queue"})
    refused(await client.request(method, URL + rest, json=body), 409, "topic_exists_incompatible")


async def test_fields_are_checked_before_the_type_of_the_topic(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t", json={"type": "queue"})
    refused_field(await client.put(URL, json={"consistency": "?"}), "consistency")
    refused_field(await client.post(f"{URL}/read", json={"attempt_key": ""}), "attempt_key")
    refused_field(await client.post(f"{URL}/commit", json={}), "seq")
    refused_field(await client.post(f"{URL}/seek", json={}), "seq")


async def test_names_may_hold_escapes(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    for name in ("a%2Fb", "a%25b", "a%", "x" * 512):
        url = f"/v0/topics/t/consumers/{name.replace('%', '%25')}"
        assert (await put(client, url))["consumer"] == name
        assert (await get(client, url))["consumer"] == name
        assert await data(client, url, limit=1) == [1]
        assert (await post(client, "commit", url, seq=2))["consumer"] == name
        assert (await post(client, "seek", url, seq=0))["consumer"] == name
    names = [each["consumer"] for each in (await client.get("/v0/topics/t/consumers")).json()["consumers"]]
    assert names == ["a%", "a%25b", "a%2Fb", "x" * 512]
    assert (await client.delete("/v0/topics/t/consumers/a%252Fb")).json()["deleted"] is True
    refused(await client.get("/v0/topics/t/consumers/a%252Fb"), 404, "consumer_not_found")


@pytest.mark.parametrize(("method", "rest", "body"), CALLS)
async def test_ephemeral_topics_have_no_consumers(client: httpx.AsyncClient, method: str, rest: str, body: Any) -> None:
    await client.put("/v0/topics/t", json={"durability": "ephemeral"})
    for answer in (await client.request(method, URL + rest, json=body), await client.get("/v0/topics/t/consumers")):
        assert refused(answer, 400, "invalid_request")["detail"]["field"] == "topic"


async def test_the_state_of_a_consumer_has_cursor_unread_and_lag(client: httpx.AsyncClient) -> None:
    await append(client, "t", *({"data": n, "tag": f"t{n}"} for n in range(1, 6)))
    await put(client)
    await data(client, limit=2)
    await client.post("/v0/topics/t/delete", json={"match": "t4"})
    found = ConsumerAnswer.model_validate((await client.get(URL)).json())
    assert (found.cursor_seq, found.unread, found.lag) == (2, 2, 3)
    assert found.durable_seq <= 2


async def test_lists_are_paged(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    await client.put("/v0/topics/u")
    for url in ("t/consumers/b", "t/consumers/a", "t/consumers/B", "u/consumers/z"):
        await put(client, f"/v0/topics/{url}")

    async def names(**query: Any) -> list[str]:
        answer = await client.get("/v0/topics/t/consumers", params=query)
        return [each.consumer for each in ConsumerListAnswer.model_validate(answer.json()).consumers]

    assert await names() == ["B", "a", "b"]
    assert await names(prefix="a") == ["a"]
    first = (await client.get("/v0/topics/t/consumers", params={"page_size": 2})).json()
    assert await names(cursor=first["next_cursor"], page_size=2) == ["b"]
    assert "next_cursor" not in (await client.get("/v0/topics/t/consumers", params={"page_size": 3})).json()


async def test_a_bad_list_is_refused(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/t")
    refused_field(await client.get("/v0/topics/t/consumers", params={"cursor": "nonsense"}), "cursor")
    refused_field(await client.get("/v0/topics/t/consumers", params={"page_size": "-1"}), "page_size")
    refused_field(await client.get("/v0/topics/a b/consumers"), "topic")
    refused(await client.get("/v0/topics/nobody/consumers"), 404, "topic_not_found")


async def test_a_delete_states_whether_the_consumer_existed(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    await put(client)
    await data(client)
    for deleted in (True, False):
        answer = await client.delete(URL)
        assert answer.status_code == 200
        assert ConsumerDeleteAnswer.model_validate(answer.json()).deleted is deleted
    await put(client)
    assert await data(client) == [1, 2]


async def test_consumers_are_deleted_with_their_topic(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 2)
    await put(client)
    await client.delete("/v0/topics/t")
    refused(await client.get(URL), 404, "topic_not_found")
    await fill(client, "t", 2)
    refused(await client.get(URL), 404, "consumer_not_found")


async def test_the_state_of_a_topic_has_count_and_lag_of_its_consumers(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    assert "consumers" not in await state(client, "t")
    await put(client)
    await put(client, "/v0/topics/t/consumers/ahead", start=4)
    assert (await state(client, "t"))["consumers"] == {"count": 2, "lag": 5}
    await data(client, limit=3)
    assert (await state(client, "t"))["consumers"] == {"count": 2, "lag": 2}


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_metrics_show_consumers(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    await put(client)
    await data(client, limit=3)
    text = (await client.get("/v0/metrics")).text
    assert 'topics_consumer_lag{topic="t",partition="0",consumer="c"} 2' in text
    assert "topics_consumers 1" in text
    assert 'route="/v0/topics/{topic}/consumers/{consumer}/read"' in text


async def test_a_consumer_over_the_limit_is_refused_with_max_consumers(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    engine.logs.options = msgspec.structs.replace(engine.options, max_consumers=2)
    await client.put("/v0/topics/t")
    await client.put("/v0/topics/u")
    for topic in ("t", "u"):
        await put(client, f"/v0/topics/{topic}/consumers/a")
    answer = await client.put(URL, json={})
    assert refused(answer, 429, "throttled")["detail"] == {"limit": "max_consumers", "max": 2}
    assert answer.headers["retry-after"]
    assert (await put(client, "/v0/topics/t/consumers/a", persist_every=5))["created"] is False
    await client.delete("/v0/topics/u/consumers/a")
    assert (await put(client))["created"] is True


async def test_the_limit_is_never_passed(client: httpx.AsyncClient, engine: Engine) -> None:
    engine.logs.options = msgspec.structs.replace(engine.options, max_consumers=3)
    await client.put("/v0/topics/t")
    answers = await asyncio.gather(*(client.put(f"/v0/topics/t/consumers/c{n}", json={}) for n in range(10)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 7
    assert len((await client.get("/v0/topics/t/consumers")).json()["consumers"]) == 3


async def test_a_commit_of_a_topic_that_was_created_again_is_refused(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    epoch = (await state(client, "t"))["epoch"]
    await put(client)
    assert (await post(client, "commit", seq=1, epoch=epoch))["cursor_seq"] == 1
    assert (await client.delete("/v0/topics/t")).status_code == 200
    await fill(client, "t", 3)
    # Checked before the consumer: a topic that was created again has no consumer, or another one of that name.
    for _ in range(2):
        answer = await client.post(f"{URL}/commit", json={"seq": 2, "epoch": epoch})
        now = (await state(client, "t"))["epoch"]
        assert refused(answer, 409, "epoch_conflict")["detail"] == {"topic": "t", "epoch": now}
        await put(client)
    assert (await get(client))["cursor_seq"] == 0
    assert (await post(client, "commit", seq=2, epoch=now))["cursor_seq"] == 2
    assert (await post(client, "commit", seq=3, epoch=None))["cursor_seq"] == 3
    refused_field(await client.post(f"{URL}/commit", json={"seq": 2, "epoch": 2**64}), "epoch")


async def test_a_commit_of_a_partition_has_the_epoch_of_the_partition(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v0/topics/t", json={"partitions": 2})).status_code == 201
    first, second = (await state(client, "t"))["partitions"]
    url = f"{URL}?partition=1"
    assert (await client.put(url, json={})).status_code == 201
    answer = await client.post(f"{URL}/commit?partition=1", json={"seq": 0, "epoch": first["epoch"]})
    assert refused(answer, 409, "epoch_conflict")["detail"]["epoch"] == second["epoch"]
    answer = await client.post(f"{URL}/commit?partition=1", json={"seq": 0, "epoch": second["epoch"]})
    assert answer.status_code == 200
