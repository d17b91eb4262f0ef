"""The figures of a broker: now, in the last hour, as a stream, and for each topic; the keys; all consumers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.overview import (
    BUSIEST,
    POINTS,
    SERIES,
    TOPIC_POINTS,
    Busiest,
    Busy,
    Figures,
    History,
    Named,
    TopicHistory,
    visible,
)
from broker.overview.history import MAX_TOPICS, TopicPoint
from broker.settings import Settings
from broker.wiring import Broker
from schemas import AllConsumersAnswer, HistoryAnswer, KeysAnswer, OverviewAnswer, OverviewEvent, TopicHistoryAnswer
from storage import Engine
from tests.conftest import cells_asked_for
from tests.http.auth_calls import bearer
from tests.http.calls import append, fill, refused
from tests.http.conftest import client_of
from tests.http.hot_server import HotServer


async def overview(client: httpx.AsyncClient, **headers: str) -> dict[str, Any]:
    answer = await client.get("/v0/overview", headers=headers)
    assert answer.status_code == 200, answer.text
    OverviewAnswer.model_validate(answer.json())
    return answer.json()


async def test_the_overview_counts_records_jobs_and_lag(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 5)
    await client.put("/v0/topics/t/consumers/slow", json={})
    await client.put("/v0/topics/q", json={"type": "queue"})
    await append(client, "q", {"data": 1}, {"data": 2}, {"data": 3, "delay_ms": 60_000})
    await client.post("/v0/topics/q/claim", json={"node": "w"})
    await client.put("/v0/routers/r", json={"source": "t", "dest": "copies"})
    found = await overview(client)
    assert (found["topics"], found["queues"], found["routers"], found["consumers"]) == (3, 1, 1, 1)
    assert (found["ready_jobs"], found["leased_jobs"], found["delayed_jobs"]) == (1, 1, 1)
    assert found["consumer_lag"] == {"value": 5, "topic": "t", "consumer": "slow", "router": None}
    assert found["oldest_job_ms"]["topic"] == "q" or found["oldest_job_ms"]["value"] == 0
    assert (found["appended_records"], found["claimed_jobs"]) == (8, 1)
    assert (found["ready"], found["partial"], found["shards"]) == (True, False, cells_asked_for())
    assert found["disk_bytes"] > found["disk_free_bytes"] > 0
    while not (busiest := (await overview(client))["busiest"]):  # until there were two walks
        await append(client, "t", {"data": 1})
        await asyncio.sleep(0.2)
    assert {each["topic"] for each in busiest} <= {"t", "copies"}


async def test_a_key_with_prefixes_sees_no_name_that_they_do_not_cover(engine: Engine, tmp_path: Path) -> None:
    keys = "aaaa:read:mine,bbbb"
    broker = Broker(engine, Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": keys}))
    async with client_of(broker) as client:
        for topic, count in (("mine", 2), ("theirs", 9)):
            records = [{"data": each} for each in range(count)]
            await client.post(f"/v0/topics/{topic}", json={"records": records}, headers=bearer("bbbb"))
            await client.put(f"/v0/topics/{topic}/consumers/c", json={}, headers=bearer("bbbb"))
        hidden = {"value": 9, "topic": None, "consumer": None, "router": None}
        assert (await overview(client, **bearer("aaaa")))["consumer_lag"] == hidden
        assert (await overview(client, **bearer("bbbb")))["consumer_lag"]["topic"] == "theirs"
        found = (await client.get("/v0/consumers", headers=bearer("aaaa"))).json()["consumers"]
        assert [each["topic"] for each in found] == ["mine"]


def test_names_that_are_covered_stay() -> None:
    figures = Figures(ts=1, ready=True, consumer_lag=Named(3, topic="a.b", consumer="c"))
    assert visible(figures, ("a.",)).consumer_lag.topic == "a.b"
    assert visible(figures, ("b",)).consumer_lag == Named(3)
    assert visible(figures, ()) is figures


def test_the_history_has_rates_and_forgets_what_is_older_than_an_hour() -> None:
    history = History()
    for at in range(POINTS + 50):
        history.add(Figures(ts=10_000 * at, ready=True, appended_records=100 * at, ready_jobs=at))
    series = history.series()
    assert set(series) == set(SERIES)
    assert {len(values) for values in series.values()} == {POINTS}
    assert set(series["appended_per_s"]) == {10.0}
    assert series["ready_jobs"] == [float(at) for at in range(50, POINTS + 50)]
    assert history.until_ts == 10_000 * (POINTS + 49)


def test_a_counter_that_begins_again_has_no_negative_rate() -> None:
    history = History()
    for at, count in enumerate((500, 600, 3)):
        history.add(Figures(ts=10_000 * at, ready=True, appended_records=count))
    assert history.series()["appended_per_s"] == [10.0, 0.0]


def test_the_history_of_topics_is_bounded_and_begins_anew_with_an_epoch() -> None:
    history = TopicHistory()
    for minute in range(TOPIC_POINTS + 5):
        names = [f"t{number:05d}" for number in range(MAX_TOPICS + 10)]
        history.add(minute, (TopicPoint(name, 1, 3 * minute, minute) for name in names))
    appended, ready = history.of("t00000")
    assert (set(appended), len(appended)) == ({3}, TOPIC_POINTS)
    assert ready[-1] == TOPIC_POINTS + 4
    assert history.of(f"t{MAX_TOPICS:05d}") == ([], [])
    history.add(99, [TopicPoint("t00000", 2, 1, 0)])
    assert history.of("t00000") == ([], [])
    assert history.of("t00001") == ([], [])


def test_the_busiest_topics_are_those_with_the_most_records_since_the_walk_before() -> None:
    busiest = Busiest()
    for ts, step in ((1000, 0), (3000, 1), (5000, 2)):
        for number in range(BUSIEST + 5):
            busiest.see(f"t{number:02d}", 1, 1000 + step * number)
        busiest.see("made anew", step, 10 * step)
        found = busiest.finish(ts)
        assert len(found) == (BUSIEST if step else 0)
    assert found[0] == Busy(f"t{BUSIEST + 4}", (BUSIEST + 4) / 2)
    assert found == sorted(found, key=lambda busy: -busy.appended_per_s)
    assert busiest.finish(7000) == []  # no topic is left


def test_a_key_with_prefixes_sees_only_busy_topics_that_they_cover() -> None:
    figures = Figures(ts=1, ready=True, busiest=[Busy("a.b", 2.0), Busy("b", 1.0)])
    assert visible(figures, ("a.",)).busiest == [Busy("a.b", 2.0)]
    assert visible(figures, ()).busiest == figures.busiest


async def test_the_history_is_answered_from_the_start(client: httpx.AsyncClient) -> None:
    answer = HistoryAnswer.model_validate((await client.get("/v0/overview/history")).json())
    assert (answer.interval_ms, answer.until_ts) == (10_000, 0)
    assert set(answer.series) == set(SERIES)


async def test_the_history_of_a_topic(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 4)
    broker.overview.topics.add(60_000, broker.overview.points())
    await fill(client, "t", 3)
    broker.overview.topics.add(120_000, broker.overview.points())
    answer = TopicHistoryAnswer.model_validate((await client.get("/v0/topics/t/history")).json())
    assert (answer.appended, answer.ready, answer.until_ts) == ([3], [0], 120_000)
    refused(await client.get("/v0/topics/nobody/history"), 404, "topic_not_found")


async def test_the_stream_sends_samples_that_match_the_schema() -> None:
    async with (
        HotServer() as server,
        httpx.AsyncClient(base_url=server.server.url, timeout=60) as client,
        client.stream("GET", "/v0/overview/stream") as stream,
    ):
        assert stream.headers["content-type"] == "text/event-stream"
        found: list[Any] = []
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line[6:]))
                OverviewEvent.model_validate({"event": "overview", "data": found[-1]})
                if len(found) == 2:
                    break
    assert found[0]["ts"] <= found[1]["ts"]
    assert found[1]["streams"] == 1


async def test_streams_share_their_samples(broker: Broker) -> None:
    samples = await asyncio.gather(*(broker.overview.shared() for _ in range(20)))
    assert all(each is samples[0] for each in samples)


async def test_without_keys_everybody_may_do_everything(client: httpx.AsyncClient) -> None:
    answer = KeysAnswer.model_validate((await client.get("/v0/keys")).json())
    assert (answer.required, answer.current, answer.keys) == (False, None, [])


@pytest.mark.parametrize(("key", "listed"), [("aaaa", [1]), ("bbbb", [1, 2, 3])])
async def test_a_key_sees_itself_and_an_admin_sees_all(
    engine: Engine, tmp_path: Path, key: str, listed: list[int]
) -> None:
    keys = "aaaa:read+write:orders|audit.,bbbb,cccc:rw"
    broker = Broker(engine, Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": keys}))
    async with client_of(broker) as client:
        answer = await client.get("/v0/keys", headers=bearer(key))
        found = KeysAnswer.model_validate(answer.json())
        assert [each.key for each in found.keys] == listed
        assert (found.keys[0].scopes, found.keys[0].prefixes) == (["read", "write"], ["audit.", "orders"])
        assert not any(secret in answer.text for secret in ("aaaa", "bbbb", "cccc"))


async def test_all_consumers_are_listed_by_topic_partition_and_name_in_pages(client: httpx.AsyncClient) -> None:
    wanted: list[tuple[str, int, str]] = []
    for topic, partitions in (("a", 1), ("a.b", 12), ("b", 1)):
        await client.put(f"/v0/topics/{topic}", json={"partitions": partitions})
        for partition in range(partitions):
            for name in ("one", "two"):
                path = f"/v0/topics/{topic}/consumers/{name}?partition={partition}"
                assert (await client.put(path, json={})).status_code == 201
                wanted.append((topic, partition, name))
    found: list[tuple[str, int, str]] = []
    query: dict[str, Any] = {"page_size": 5}
    while True:
        answer = AllConsumersAnswer.model_validate((await client.get("/v0/consumers", params=query)).json())
        found += [(each.topic, each.partition or 0, each.consumer) for each in answer.consumers]
        if answer.next_cursor is None:
            break
        assert len(answer.consumers) == 5
        query["cursor"] = answer.next_cursor
    assert found == wanted
    refused(await client.get("/v0/consumers", params={"cursor": "nonsense"}), 400, "invalid_request")
