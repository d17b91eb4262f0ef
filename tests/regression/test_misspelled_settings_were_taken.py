"""`max_deliveris: 3` created a queue that never dead-lettered a job, without an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.http.calls import append, refused
from tests.http.conftest import SMALL, client_of
from tests.http.hot_server import HotServer

QUEUE = {"type": "queue", "dead_letter": "dead"}


async def test_an_unknown_setting_is_refused_and_the_nearest_name_is_suggested(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, SMALL) as engine, client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        await client.put("/v0/topics/there")
        await client.put("/v0/routers/there", json={"source": "there", "dest": "copies"})
        await client.put("/v0/topics/there/consumers/there")
        cases: list[tuple[str, str, dict[str, Any], str, str]] = [
            ("PUT", "/v0/topics/t", QUEUE | {"max_deliveris": 3}, "max_deliveris", "max_deliveries"),
            ("PUT", "/v0/topics/t", {"ttl": 3}, "ttl", "ttl_ms"),
            ("PUT", "/v0/topics/t", {"durabilty": "fsync"}, "durabilty", "durability"),
            ("PATCH", "/v0/topics/there", {"cap_record": 3}, "cap_record", "cap_records"),
            ("PUT", "/v0/routers/r", {"source": "a", "dest": "b", "filters": "x"}, "filters", "filter"),
            ("PUT", "/v0/routers/r", {"source": "a", "dest": "b", "form": "head"}, "form", "from"),
            ("PATCH", "/v0/routers/there", {"filters": "x"}, "filters", "filter"),
            ("PUT", "/v0/topics/there/consumers/c", {"persist_evry": 3}, "persist_evry", "persist_every"),
            ("PATCH", "/v0/topics/there/consumers/there", {"consistancy": 3}, "consistancy", "consistency"),
        ]
        for method, path, body, field, near in cases:
            await _refuses(client, method, path, body, field, near)
        body = {"records": [{"data": 1}], "config": QUEUE | {"max_deliveris": 3}}
        await _refuses(client, "POST", "/v0/topics/t", body, "config.max_deliveris", "max_deliveries")
        for path in ("/v0/topics/t", "/v0/routers/r", "/v0/topics/there/consumers/c"):
            assert (await client.get(path)).status_code == 404


async def _refuses(
    client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any], field: str, near: str
) -> None:
    error = refused(await client.request(method, path, json=body), 400, "invalid_request")
    assert error["detail"]["field"] == field
    assert f"did you mean {near}?" in error["message"]
    assert "unknown field" in error["message"]


async def test_a_publish_and_a_write_past_asgi_refuse_unknown_settings() -> None:
    async with HotServer() as server:
        body = {"records": [{"data": 1}], "config": QUEUE | {"max_deliveris": 3}}
        async with httpx.AsyncClient(base_url=server.server.url) as http:
            await _refuses(http, "POST", "/v0/topics/t", body, "config.max_deliveris", "max_deliveries")
        async with connect(f"{server.server.url.replace('http', 'ws')}/v0/ws") as socket:
            await socket.send(json.dumps({"type": "publish", "topic": "t", **body}))
            error = json.loads(await socket.recv())
        assert (error["type"], error["code"]) == ("error", "invalid_request")
        assert "did you mean max_deliveries?" in error["message"]
        assert server.engine.topics() == []


async def test_an_unknown_setting_without_a_near_name_is_refused_without_a_suggestion(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, SMALL) as engine, client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        error = refused(await client.put("/v0/topics/t", json={"zzz": None}), 400, "invalid_request")
        assert (error["message"], error["detail"]) == ("unknown field zzz.", {"field": "zzz"})


@pytest.mark.parametrize("extra", [{"colour": "blue"}, {"limits": 3}])
async def test_bodies_without_settings_ignore_unknown_fields(tmp_path: Path, extra: dict[str, Any]) -> None:
    async with Engine.open(tmp_path, SMALL) as engine, client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        await append(client, "t", {"data": 1, **extra}, **extra)
        for path, body in (("diff", {}), ("delete", {"before_seq": 1})):
            assert (await client.post(f"/v0/topics/t/{path}", json=body | extra)).status_code == 200
        await client.put("/v0/topics/t/consumers/c", json={})
        assert (await client.post("/v0/topics/t/consumers/c/read", json=extra)).status_code == 200


async def test_a_limit_of_deliveries_needs_a_dead_letter(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, SMALL) as engine, client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        body = {"type": "queue", "max_deliveries": 3}
        error = refused(await client.put("/v0/topics/t", json=body), 400, "invalid_request")
        assert error["detail"]["field"] == "max_deliveries"
        assert "dead_letter" in error["message"]
        inline = {"records": [{"data": 1}], "config": body}
        error = refused(await client.post("/v0/topics/t", json=inline), 400, "invalid_request")
        assert error["detail"]["field"] == "config.max_deliveries"
        assert (await client.get("/v0/topics/t")).status_code == 404
        assert (await client.put("/v0/topics/t", json=body | {"dead_letter": "dead"})).status_code == 201
