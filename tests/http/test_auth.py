"""Keys on requests: how they are sent, the order of checks, and the owner of a watch stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from broker.api.app import build_app
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Options
from tests.http.auth_calls import bearer, configured, key
from tests.http.calls import refused
from tests.http.hot_server import ASGI, HotServer, post, records
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import stream

ALL = bearer(key("rwda"))
#: httpx does not send it over a connection.
REFUSED = pytest.mark.one_cell("no client sends such a header")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": configured("alpha", "beta")})


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer(api_keys=configured("alpha", "beta")) as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("Bearer key-r-any", 200),
        ("bearer key-r-any", 200),
        pytest.param("BEARER   key-r-any ", 200, marks=REFUSED),
        ("Bearer key-r-any,", 401),
        pytest.param("Bearer  ", 401, marks=REFUSED),
        ("Bearer", 401),
        ("key-r-any", 401),
        ("Basic a2V5LXItYW55", 401),
        ("Bearer key-r-any:r", 401),
        ('Bearer "key-r-any"', 401),
        ("Bearer key-r-any\tx", 401),
        ("", 401),
    ],
)
async def test_a_key_is_sent_as_a_bearer(client: httpx.AsyncClient, value: str, status: int) -> None:
    assert (await client.get("/v0/topics", headers={"authorization": value})).status_code == status


async def test_a_key_outside_utf8_is_unauthorized(client: httpx.AsyncClient) -> None:
    for value in (b"Bearer \xff\xfe", b"\xff", b"Bearer " + b"x" * 10_000):
        answer = await client.get("/v0/topics", headers=[(b"authorization", value)])
        refused(answer, 401, "unauthorized")


# -- the order of checks ---------------------------------------------------------------------------------------------


async def test_before_ready_requests_get_not_ready_and_metrics_still_need_a_key(tmp_path: Path) -> None:
    engine = Engine(str(tmp_path / "data"), Options(wal_shards=1))
    settings = Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": configured()})
    transport = httpx.ASGITransport(build_app(Broker(engine, settings)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path in ("/v0/topics", "/nowhere"):
            refused(await client.get(path), 503, "not_ready")
        assert (await client.get("/v0/health")).status_code == 200
        refused(await client.get("/v0/metrics"), 401, "unauthorized")
        refused(await client.get("/v0/metrics", headers=bearer(key("w"))), 403, "forbidden")
        assert (await client.get("/v0/metrics", headers=bearer(key("r")))).status_code == 200


async def test_the_key_comes_before_the_path_and_the_method(client: httpx.AsyncClient) -> None:
    for method, path, status, code in (
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v0/topics/a/b/c/d", 404, "not_found"),
        ("PATCH", "/v0/topics", 405, "method_not_allowed"),
        ("POST", "/v0/health", 405, "method_not_allowed"),
    ):
        refused(await client.request(method, path), 401, "unauthorized")
        refused(await client.request(method, path, headers=bearer("nobody")), 401, "unauthorized")
        refused(await client.request(method, path, headers=bearer(key("d"))), status, code)
    assert (await client.options("/v0/topics/a")).status_code == 401
    assert (await client.options("/v0/topics/a", headers=bearer(key("d")))).status_code == 204


async def test_scope_and_path_come_before_the_body(client: httpx.AsyncClient) -> None:
    garbage = {"content": b"{", "headers": bearer(key("r", "alpha")) | {"content-type": "text/plain"}}
    for path in ("/v0/topics/alpha", "/v0/topics/beta/diff", "/v0/topics/!/diff"):
        refused(await client.post(path, **garbage), 403, "forbidden")
    refused(await client.get("/v0/watch/wid_x", headers=bearer(key("w")) | {"accept": "text/html"}), 403, "forbidden")
    refused(await client.post("/v0/topics/alpha/diff", **garbage), 415, "unsupported_media_type")
    garbage["headers"]["content-type"] = "application/json"
    refused(await client.post("/v0/topics/alpha/diff", **garbage), 400, "invalid_request")


async def test_checks_run_in_the_order_fields_names_existence(client: httpx.AsyncClient) -> None:
    mine = bearer(key("rwda", "alpha"))
    body = {"source": "alpha", "dest": "beta"}
    refused(await client.put("/v0/routers/alpha", json={**body, "filter": 7}, headers=mine), 400, "invalid_request")
    refused(await client.put("/v0/routers/alpha", json={**body, "dest": "!"}, headers=mine), 400, "invalid_request")
    refused(await client.put("/v0/routers/alpha", json=body, headers=mine), 403, "forbidden")
    body = {"records": [{"data": 1}], "create": False, "config": {"type": "log"}}
    write = bearer(key("w"))
    refused(await client.post("/v0/topics/absent", json={**body, "records": 1}, headers=write), 400, "invalid_request")
    broken = {**body, "config": {"dead_letter": "!"}}
    refused(await client.post("/v0/topics/absent", json=broken, headers=write), 400, "invalid_request")
    refused(await client.post("/v0/topics/absent", json=body, headers=write), 403, "forbidden")
    refused(await client.post("/v0/topics/absent", json=body, headers=bearer(key("w+a"))), 404, "topic_not_found")
    watch = {"topics": {"alpha": {}, "beta": {}}}
    refused(await client.post("/v0/watch", json=watch, headers=mine), 403, "forbidden")
    refused(await client.post("/v0/watch", json={"topics": {"alpha": {}}}, headers=mine), 404, "topic_not_found")


async def test_a_refusal_names_the_missing_scopes_or_the_forbidden_name(client: httpx.AsyncClient) -> None:
    error = refused(await client.post("/v0/topics/alpha/claim", json={}, headers=bearer(key("d"))), 403, "forbidden")
    assert error["detail"] == {"scopes": ["read", "write"]}
    error = refused(await client.get("/v0/topics/alphb", headers=bearer(key("r", "alpha"))), 403, "forbidden")
    assert error["detail"] == {"name": "alphb"}


# -- past ASGI -------------------------------------------------------------------------------------------------------


async def test_the_fast_path_and_asgi_refuse_the_same_keys(server: HotServer) -> None:
    wire = await server.connect()
    wire.send(post("alpha", records(0), ALL))
    assert (await wire.answer()).status == 201
    ways = server.taken
    for kind in ({}, ASGI):
        for given, topic, status in (
            (key("w"), "alpha", 200),
            (key("w", "alpha"), "alpha", 200),
            (key("w", "beta"), "alpha", 403),
            (key("r+d+a"), "alpha", 403),
            ("nobody", "alpha", 401),
            ("", "alpha", 401),
        ):
            wire.send(post(topic, records(1), {**bearer(given), **kind}))
            assert (await wire.answer()).status == status, (given, kind)
        wire.send(post("alpha", records(1), kind))
        assert (await wire.answer()).status == 401
    assert server.taken == ways + 2
    wire.send(post("alpha/claim", {"node": "n"}, bearer(key("w"))))
    assert (await wire.answer()).status == 403
    wire.send(post("alpha/claim", {"node": "n"}, bearer(key("rwda", "beta"))))
    assert (await wire.answer()).status == 403
    wire.send(post("alpha/ack", {"node": "n", "seqs": [1]}, bearer(key("r"))))
    assert (await wire.answer()).status == 403


async def test_an_inline_config_needs_admin(server: HotServer) -> None:
    wire = await server.connect()
    dead = {"type": "queue", "dead_letter": "beta-dead"}
    for given, config, status in (
        (key("w"), {"type": "queue"}, 403),
        (key("w"), {}, 403),
        (key("w"), None, 201),
        (key("a"), {"type": "queue"}, 403),
        (key("w+a"), dead, 201),
        (key("w+a", "alpha"), dead, 403),
        (key("w+a", "alpha"), dead | {"dead_letter": "alpha-dead"}, 201),
    ):
        topic = f"alpha-{status}-{len(str(config))}"
        wire.send(post(topic, records(1, config=config), bearer(given)))
        assert (await wire.answer()).status == status, (given, config)


# -- event streams ---------------------------------------------------------------------------------------------------


async def test_a_watch_stream_needs_the_key_of_its_creator(http: httpx.AsyncClient) -> None:
    await http.post("/v0/topics/alpha", json=records(1), headers=ALL)
    made = await http.post("/v0/watch", json={"topics": {"alpha": {"from_seq": 0}}}, headers=bearer(key("r")))
    path = made.json()["stream_url"]
    for other in (key("rwda"), key("r", "alpha")):
        refused(await http.get(path, headers=bearer(other)), 403, "forbidden")
    refused(await http.get(path), 401, "unauthorized")
    refused(await http.get(f"{path[:-1]}_", headers=bearer(key("r"))), 404, "not_found")
    http.headers.update(bearer(key("r")))
    async with stream(http, path) as watch:
        assert (await watch.next()).name == "record"


async def test_the_query_may_carry_the_key_for_event_streams_alone(http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/alpha", json={"type": "queue"}, headers=ALL)
    await http.post("/v0/topics/alpha", json=records(1), headers=ALL)
    made = await http.post("/v0/watch", json={"topics": {"alpha": {"from_seq": 0}}}, headers=bearer(key("r")))
    path = made.json()["stream_url"]
    for query in (f"token={key('r')}", f"x=1&token={key('r')}&y", f"token=no&token={key('r')}", "token=key%2Dr-any"):
        async with stream(http, f"{path}?{query}") as watch:
            await watch.caught_up()
    for query in ("token=", "token", "token=nobody", "token=%ff", f"Token={key('r')}", f"xtoken={key('r')}"):
        refused(await http.get(f"{path}?{query}"), 401, "unauthorized")
    async with http.stream("GET", f"/v0/topics/alpha/work?node=n&token={key('r+w')}") as answer:
        assert answer.status_code == 200
    refused(await http.get(f"/v0/topics/alpha/work?node=n&token={key('r')}"), 403, "forbidden")
    # A wrong header is not replaced by the query.
    refused(await http.get(f"{path}?token={key('r')}", headers=bearer("nobody")), 401, "unauthorized")
    for method, other in (
        ("GET", "/v0/topics"),
        ("GET", "/v0/topics/alpha/records"),
        ("GET", "/v0/metrics"),
        ("GET", "/v0/ws"),
        ("POST", "/v0/topics/alpha/diff"),
        ("POST", "/v0/topics/alpha"),
        ("POST", path),
    ):
        answer = await http.request(method, f"{other}?token={key('rwda')}", json=records(1))
        refused(answer, 401, "unauthorized")
