"""Requests before the engine is ready, and after a shutdown has begun."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from broker.settings import Settings
from broker.wiring import Broker
from schemas.health import HealthAnswer, ReadyAnswer
from storage import Engine
from tests.http.calls import JSON, fill, refused
from tests.http.conftest import client_of


@pytest.fixture
async def early(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a broker whose engine has not been started."""
    engine = Engine(tmp_path / "data")
    engine.recovery_progress = 0.25
    async with client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        yield client


@pytest.mark.parametrize("path", ["/v0/health", "/healthz"])
async def test_health_answers_from_the_start(early: httpx.AsyncClient, path: str) -> None:
    answer = await early.get(path)
    assert answer.status_code == 200
    assert HealthAnswer.model_validate(answer.json()).status == "ok"


@pytest.mark.parametrize("path", ["/v0/ready", "/readyz"])
async def test_readiness_reports_the_progress_of_recovery(early: httpx.AsyncClient, path: str) -> None:
    answer = await early.get(path)
    assert refused(answer, 503, "not_ready")["detail"] == {"replay_progress": 0.25}
    assert int(answer.headers["retry-after"]) >= 1


async def test_metrics_answer_from_the_start(early: httpx.AsyncClient) -> None:
    answer = await early.get("/v0/metrics")
    assert answer.status_code == 200
    assert "\ntopics_ready 0\n" in answer.text
    assert "\ntopics_recovery_progress 0.25\n" in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v0/topics"),
        ("PUT", "/v0/topics/t"),
        ("GET", "/v0/topics/t"),
        ("DELETE", "/v0/topics/t"),
        ("POST", "/v0/topics/t"),
        ("POST", "/v0/topics/t/diff"),
        ("GET", "/v0/topics/t/records"),
        ("GET", "/v0/topics/t/records/1"),
        ("POST", "/v0/topics/t/delete"),
        ("PATCH", "/v0/topics"),
        ("OPTIONS", "/v0/topics"),
        ("GET", "/v0/nothing"),
        ("GET", "/docs"),
    ],
)
async def test_other_requests_before_ready_are_refused_with_replay_progress(
    early: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await early.request(method, path, content=b"not even JSON" if method == "POST" else None, headers=JSON)
    assert refused(answer, 503, "not_ready")["detail"] == {"replay_progress": 0.25}


async def test_readiness_counts_the_topics(client: httpx.AsyncClient) -> None:
    await client.put("/v0/topics/a")
    answer = await client.get("/v0/ready")
    assert answer.status_code == 200
    ready = ReadyAnswer.model_validate(answer.json())
    assert ready.wal_replay_complete
    assert ready.topics == 1


async def test_health_names_the_cluster(client: httpx.AsyncClient, engine: Engine) -> None:
    assert (await client.get("/v0/health")).json()["cluster_id"] == engine.cluster_id


async def test_a_stopping_broker_is_not_ready_but_still_serves(broker: Broker, client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    broker.stopping = True
    refused(await client.get("/v0/ready"), 503, "shutting_down")
    assert (await client.get("/v0/health")).status_code == 200
    await fill(client, "t", 1)
    assert len((await client.get("/v0/topics/t/records")).json()["records"]) == 2


async def test_a_failed_shard_is_named(
    client: httpx.AsyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "failed_shards", property(lambda _: [(3, 5)]))
    error = refused(await client.get("/v0/ready"), 503, "storage_failed")
    assert error["detail"]["shards"] == [{"shard": 3, "errno": 5, "error": "EIO"}]
