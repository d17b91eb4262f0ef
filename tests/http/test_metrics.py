"""Metrics: both formats, and bounds on the number of label values."""

from __future__ import annotations

import math

import httpx
import pytest
from msgspec import Raw
from prometheus_client.parser import text_string_to_metric_families

import storage.queues.metrics
from broker.content.accept import prefers_json
from broker.settings import Settings
from broker.telemetry import SECONDS, HttpMetrics, Latencies, as_text
from broker.wiring import Broker
from storage import Engine, Family, NewRecord, Sample, TopicConfig
from tests.http.calls import append, fill
from tests.http.conftest import SMALL, client_of
from tests.http.queue_calls import call, claim, queue
from tests.http.test_long_poll import until


async def samples(client: httpx.AsyncClient) -> dict[str, list[tuple[dict[str, str], float]]]:
    """All samples by name, as an independent parser reads them."""
    answer = await client.get("/v0/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_the_text_is_prometheus_text_and_every_name_is_ours(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 3)
    found = await samples(client)
    assert found
    assert all(name.startswith("topics_") for name in found)
    assert found["topics_ready"] == [({}, 1.0)]


async def test_metrics_as_json_contain_all_metrics_of_the_text_form(client: httpx.AsyncClient) -> None:
    text = await samples(client)
    answer = await client.get("/v0/metrics", headers={"accept": "application/json"})
    assert answer.headers["content-type"] == "application/json"
    metrics = answer.json()["metrics"]
    names = {sample["name"] for metric in metrics for sample in metric["samples"]}
    assert set(text) <= names
    assert {"name", "type", "help", "samples"} == set(metrics[0])


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        (b"", False),
        (b"*/*", False),
        (b"text/plain", False),
        (b"application/json", True),
        (b"application/json;q=0.5, text/plain", False),
        (b"text/plain;q=0.1, application/json", True),
        (b"application/json;q=0", False),
        (b"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", False),
    ],
)
def test_accept_decides_the_form(accept: bytes, json: bool) -> None:
    assert prefers_json(accept) is json


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_requests_are_counted_by_route_and_class(client: httpx.AsyncClient) -> None:
    await append(client, "a", {"data": 1})
    await append(client, "b", {"data": 1})
    await client.get("/v0/topics/none")
    counted = {tuple(labels.values()): value for labels, value in (await samples(client))["topics_http_requests_total"]}
    assert counted["/v0/topics/{topic}", "POST", "2xx"] == 2
    assert counted["/v0/topics/{topic}", "GET", "4xx"] == 1


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_unknown_methods_and_routes_share_a_single_series(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await client.request(f"METHOD{number}", f"/strange/{number}")
    counted = (await samples(client))["topics_http_requests_total"]
    strange = [(labels, value) for labels, value in counted if labels["route"] == "unmatched"]
    assert strange == [({"route": "unmatched", "method": "other", "status": "4xx"}, 5.0)]


async def test_latencies_are_a_histogram(client: httpx.AsyncClient) -> None:
    await client.get("/v0/health")
    found = await samples(client)
    buckets = [
        (labels["le"], value)
        for labels, value in found["topics_http_request_seconds_bucket"]
        if labels["route"] == "/v0/health"
    ]
    assert buckets[-1] == ("+Inf", 1.0)
    assert [value for _, value in buckets] == sorted(value for _, value in buckets)


def test_a_value_equal_to_a_bound_counts_below_the_bound() -> None:
    latencies = Latencies()
    for seconds in (SECONDS[0], SECONDS[0] + 1e-9, 1e9):
        latencies.add(seconds)
    sample = latencies.sample(())
    assert sample.buckets[0] == (SECONDS[0], 1)
    assert sample.buckets[1] == (SECONDS[1], 2)
    assert sample.buckets[-1] == (math.inf, 3)


async def test_labels_and_helps_are_escaped() -> None:
    family = Family("topics_x", "gauge", "Two\nlines \\.", [Sample((("a", 'q"\\\n'),), 1)])
    assert await as_text([family]) == (
        b'# HELP topics_x Two\\nlines \\\\.\n# TYPE topics_x gauge\ntopics_x{a="q\\"\\\\\\n"} 1\n'
    )


async def test_disconnected_clients_are_counted() -> None:
    metrics = HttpMetrics()
    metrics.client_gone("/v0/topics/{topic}/diff")
    assert b'topics_http_clients_gone_total{route="/v0/topics/{topic}/diff"} 1' in await as_text(metrics.families())


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_metrics_include_the_metrics_of_the_engine(client: httpx.AsyncClient) -> None:
    await fill(client, "orders", 3)
    found = await samples(client)
    assert ({"topic": "orders"}, 3.0) in found["topics_topic_head_seq"]
    assert found["topics_wal_frames_total"][0][1] >= 3
    assert found["topics_wal_fsync_seconds_count"]


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_queues_are_counted(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2, 3, 4)
    await claim(client, max=3)
    await call(client, "ack", node="w", seqs=[1])
    await call(client, "nack", node="w", seqs=[2], delay_ms=60_000)
    await call(client, "extend", node="w", seqs=[3], lease_ms=60_000)
    await call(client, "pause")
    await fill(client, "log", 1)
    found = await samples(client)
    figures = {
        "ready": 1,
        "in_flight": 1,
        "delayed": 1,
        "dead_pending": 0,
        "waiting_claims": 0,
        "paused": 1,
    }
    for name, value in figures.items():
        assert found[f"topics_queue_{name}"] == [({"topic": "q"}, value)]
    for name, value in {"claims": 1, "claimed_jobs": 3, "acks": 1, "nacks": 1, "lease_extensions": 1}.items():
        assert found[f"topics_{name}_total"] == [({}, value)]
    for name in ("dead_lettered", "jobs_lost"):
        assert found[f"topics_{name}_total"] == [({"topic": "q"}, 0)]
    for name in ("lease_expiries", "jobs_unreadable"):
        assert found[f"topics_{name}_total"] == [({}, 0)]


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_redelivered_jobs_are_counted(client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2, 3)
    await claim(client, max=2)
    await call(client, "nack", node="w", seqs=[1, 2])
    assert (await samples(client))["topics_redelivered_jobs_total"] == [({}, 0)]
    assert len(await claim(client)) == 3
    found = await samples(client)
    assert found["topics_redelivered_jobs_total"] == [({}, 2)]
    assert found["topics_claimed_jobs_total"] == [({}, 5)]


async def test_lost_and_dead_jobs_are_counted_by_queue(engine: Engine, client: httpx.AsyncClient) -> None:
    await queue(client, 1, 2, 3, max_deliveries=1, dead_letter="dead", cap_records=2)
    await claim(client, max=1)
    await call(client, "nack", node="w", seqs=[2])
    await until(lambda: engine.queues.figures("q").dead_lettered == 1)
    found = await samples(client)
    assert found["topics_jobs_lost_total"] == [({"topic": "q"}, 1)]
    assert found["topics_dead_lettered_total"] == [({"topic": "q"}, 1)]


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_the_number_of_named_queues_is_bounded(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.queues.metrics, "MAX_TOPIC_SERIES", 2)
    for name in "abc":
        await queue(client, name=name)
    assert len((await samples(client))["topics_queue_ready"]) == 2


async def test_open_streams_and_parked_claims_are_shown(broker: Broker, client: httpx.AsyncClient) -> None:
    with broker.streams.hold(), broker.parking.hold():
        found = await samples(client)
    assert found["topics_sse_connections"] == [({}, 1)]
    assert found["topics_parked_requests"] == [({}, 1)]
    assert found["topics_sse_refused_total"] == [({}, 0)]


async def test_appended_read_evicted_and_deleted_records_are_counted(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.put("/v0/topics/t", json={"cap_records": 5})
    await append(client, "t", *({"data": number} for number in range(4)))
    await append(client, "t", *({"data": number} for number in range(4)))
    await client.post("/v0/topics/t/diff", json={})
    await client.post("/v0/topics/t/diff", json={"from_seq": 6, "limit": 1})
    await client.post("/v0/topics/t/delete", json={"before_seq": 6})
    found = await samples(client)
    assert found["topics_appends_total"] == [({}, 2.0)]
    assert found["topics_appended_records_total"] == [({}, 8.0)]
    assert found["topics_reads_total"] == [({}, 2.0)]
    assert found["topics_read_records_total"] == [({}, 6.0)]
    assert found["topics_tombstones_total"] == [({"reason": "cap"}, 1.0)]
    assert found["topics_evicted_records_total"] == [({"cause": "cap"}, 3.0)]
    assert found["topics_deleted_records_total"] == [({}, 2.0)]


async def test_replayed_records_are_not_counted(engine: Engine, settings: Settings) -> None:
    await engine.append("t", [NewRecord(Raw(b"1"))] * 3, config=TopicConfig(cap_records=2))
    await engine.delete_records("t", before_seq=3)
    await engine.close()
    async with Engine.open(engine.path, SMALL) as again, client_of(Broker(again, settings)) as client:
        found = await samples(client)
        assert found["topics_topics"] == [({}, 1.0)]
        assert found["topics_appended_records_total"] == found["topics_deleted_records_total"] == [({}, 0.0)]
        assert "topics_evicted_records_total" not in found


@pytest.mark.one_cell("each cell and gateway has samples of its own")
async def test_metrics_include_memory_files_and_cpu_of_the_process(client: httpx.AsyncClient) -> None:
    found = await samples(client)
    assert found["topics_process_resident_bytes"][0][1] > 10_000_000
    files = found["topics_process_open_files"][0][1]
    assert 3 < files < found["topics_process_max_open_files"][0][1]
    assert found["topics_process_cpu_seconds_total"][0][1] > 0
    assert found["topics_loop_lag_seconds"] == [({}, 0.0)]
