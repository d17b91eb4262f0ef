"""Names in bodies, lists reduced to a key's prefixes, commands of a WebSocket, and names in metrics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from websockets import InvalidStatus
from websockets.asyncio.client import connect

from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.http.auth_calls import bearer, configured, key
from tests.http.calls import refused
from tests.http.conftest import client_of
from tests.http.hot_server import HotServer, records
from tests.http.test_websocket import Socket

MINE = bearer(key("rwda", "alpha"))
ALL = bearer(key("rwda"))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": configured("alpha")})


#: Each is a request for alpha with one other name in its body or query.
CARRIED: list[tuple[str, str, dict[str, Any]]] = [
    ("PUT", "/v0/topics/alpha", {"dead_letter": "NAME"}),
    ("PUT", "/v0/topics/alpha", {"type": "queue", "dead_letter": "NAME"}),
    ("PATCH", "/v0/topics/alpha-q", {"dead_letter": "NAME"}),
    ("POST", "/v0/topics/alpha-new", {"records": [{"data": 1}], "config": {"dead_letter": "NAME"}}),
    ("PUT", "/v0/routers/alpha-r", {"source": "alpha-a", "dest": "NAME"}),
    ("PUT", "/v0/routers/alpha-s", {"source": "NAME", "dest": "alpha-b"}),
    ("GET", "/v0/routers?source=NAME", {}),
    ("GET", "/v0/routers?dest=NAME", {}),
    ("GET", "/v0/routers?source=alpha&dest=NAME", {}),
    ("POST", "/v0/topics/alpha-q/redrive", {"from": "NAME"}),
    ("POST", "/v0/watch", {"topics": {"alpha-a": {}, "NAME": {}}}),
    ("POST", "/v0/watch?lenient=true", {"topics": {"NAME": {}}}),
]


@pytest.mark.parametrize(("method", "path", "body"), CARRIED)
async def test_every_name_in_a_request_needs_its_prefix(
    client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any]
) -> None:
    await client.put("/v0/topics/alpha-q", json={"type": "queue"}, headers=MINE)
    for name in ("alpha-a", "alpha-b", "alpha-c", "beta"):
        await client.put(f"/v0/topics/{name}", json={}, headers=ALL)
    for name, headers, allowed in (("beta", MINE, False), ("beta", ALL, True), ("alpha-c", MINE, True)):
        content = json.dumps(body).replace("NAME", name).encode() if method != "GET" else None
        kind = {"content-type": "application/json"} if content else {}
        answer = await client.request(method, path.replace("NAME", name), content=content, headers=headers | kind)
        if allowed:
            assert answer.is_success, answer.text
            if method == "PUT":
                await client.delete(path, headers=ALL)
        else:
            assert refused(answer, 403, "forbidden")["detail"] == {"name": "beta"}


async def test_a_forbidden_name_in_a_body_creates_no_topic_or_router(client: httpx.AsyncClient) -> None:
    await client.put("/v0/routers/alpha", json={"source": "alpha", "dest": "beta"}, headers=MINE)
    await client.post("/v0/topics/alpha", json=records(1, config={"dead_letter": "beta"}), headers=MINE)
    assert (await client.get("/v0/topics", headers=ALL)).json()["topics"] == []
    assert (await client.get("/v0/routers", headers=ALL)).json()["routers"] == []


# -- lists -----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def many(engine: Engine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    keys = "all,one:r:b,two:r:a|c.x,none:r:zzz,nested:r:b|ba|a"
    settings = Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": keys})
    async with client_of(Broker(engine, settings)) as client:
        for name in NAMES:
            assert (await client.put(f"/v0/topics/{name}", json={}, headers=bearer("all"))).status_code == 201
        for name in NAMES:
            body = {"source": name, "dest": f"{name}-copy", "create_dest": True}
            assert (await client.put(f"/v0/routers/{name}", json=body, headers=bearer("all"))).status_code == 201
        yield client


NAMES = sorted([f"{first}{second}" for first in ("a", "b", "c", "d") for second in ("", "a", ".x", ".x1", "z", "9")])


@pytest.mark.parametrize("listed", ["topics", "routers"])
@pytest.mark.parametrize(
    ("given", "prefixes"),
    [("all", ("",)), ("one", ("b",)), ("two", ("a", "c.x")), ("none", ("zzz",)), ("nested", ("a", "b"))],
)
async def test_a_list_has_exactly_the_names_within_the_prefixes_of_a_key(
    many: httpx.AsyncClient, listed: str, given: str, prefixes: tuple[str, ...]
) -> None:
    everything = (await _pages(many, listed, "all", "", 1000))[0]
    assert len(everything) == len(NAMES) * (2 if listed == "topics" else 1)
    for prefix in ("", "a", "b", "b.", "c", "c.x1", "zzz", "q"):
        expected = [name for name in everything if name.startswith(prefixes) and name.startswith(prefix)]
        for size in (1, 2, 3, 7, 1000):
            pages = await _pages(many, listed, given, prefix, size)
            assert [name for page in pages for name in page] == expected
            # Every page but the last is full, and no page is empty.
            assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
            assert len(pages) == max(1, -(-len(expected) // size))


async def _pages(client: httpx.AsyncClient, listed: str, given: str, prefix: str, size: int) -> list[list[str]]:
    pages: list[list[str]] = []
    cursor: str | None = None
    while cursor is not None or not pages:
        parameters = {"prefix": prefix, "page_size": str(size)} | ({} if cursor is None else {"cursor": cursor})
        answer = await client.get(f"/v0/{listed}", params=parameters, headers=bearer(given))
        assert answer.status_code == 200, answer.text
        pages.append([entry[listed[:-1]] for entry in answer.json()[listed]])
        cursor = answer.json().get("next_cursor")
    return pages


async def test_metrics_show_only_names_within_the_prefixes_of_a_key(client: httpx.AsyncClient) -> None:
    for name in ("alpha-t", "beta-t"):
        await client.put(f"/v0/topics/{name}", json={"type": "queue"}, headers=ALL)
        await client.put(f"/v0/routers/{name}-r", json={"source": name, "dest": f"{name}-copy"}, headers=ALL)
    for accept in ("text/plain", "application/json"):
        everything = await client.get("/v0/metrics", headers=ALL | {"accept": accept})
        assert all(name in everything.text for name in ("alpha-t", "beta-t", "alpha-t-r", "beta-t-r"))
        shown = await client.get("/v0/metrics", headers=MINE | {"accept": accept})
        assert "beta" not in shown.text
        assert "alpha-t-r" in shown.text
        assert "topics_uptime_seconds" in shown.text


# -- commands --------------------------------------------------------------------------------------------------------


async def test_a_websocket_needs_a_valid_key_in_its_header() -> None:
    async with HotServer(api_keys="one:d") as server:
        url = f"ws://127.0.0.1:{server.server.port}/v0/ws"
        for query, headers in (("", {}), ("", bearer("nobody")), ("?token=one", {}), ("", {"authorization": "one"})):
            with pytest.raises(InvalidStatus) as refusal:
                async with connect(url + query, additional_headers=headers):
                    pass
            assert refusal.value.response.status_code == 401
        async with connect(url, additional_headers=bearer("one")) as connection:
            assert (await Socket(connection).ask("ping"))["type"] == "pong"


async def test_every_websocket_command_requires_its_scope_and_prefix() -> None:
    keys = "all,reader:r,writer:w,admin:w+a,alpha:rw:alpha,nothing:d"
    async with HotServer(api_keys=keys) as server:
        async with httpx.AsyncClient(base_url=server.server.url, headers=bearer("all")) as http:
            for topic in ("alpha", "beta"):
                await http.put(f"/v0/topics/{topic}", json={})
        write = {"records": [{"data": 1}]}
        for given, kind, fields, answer in (
            ("reader", "subscribe", {"topic": "alpha"}, "subscribed"),
            ("alpha", "subscribe", {"topic": "alpha"}, "subscribed"),
            ("writer", "subscribe", {"topic": "alpha"}, "forbidden"),
            ("alpha", "subscribe", {"topic": "beta"}, "forbidden"),
            ("alpha", "subscribe", {"topics": ["alpha", "beta"]}, "forbidden"),
            ("alpha", "subscribe", {"topics": {"alpha": {}, "beta": {}}}, "forbidden"),
            ("alpha", "subscribe", {"topic": "alpha", "topics": ["beta"]}, "forbidden"),
            ("alpha", "subscribe", {"topic": "beta-absent"}, "forbidden"),
            ("reader", "unsubscribe", {"topic": "alpha"}, "unsubscribed"),
            ("writer", "unsubscribe", {"topic": "alpha"}, "forbidden"),
            ("alpha", "unsubscribe", {"topics": ["beta"]}, "forbidden"),
            ("writer", "publish", {"topic": "alpha", **write}, "ack"),
            ("alpha", "publish", {"topic": "alpha", **write}, "ack"),
            ("reader", "publish", {"topic": "alpha", **write}, "forbidden"),
            ("alpha", "publish", {"topic": "beta", **write}, "forbidden"),
            ("writer", "publish", {"topic": "alpha", **write, "config": {}}, "forbidden"),
            ("admin", "publish", {"topic": "gamma", **write, "config": {"dead_letter": "x"}}, "ack"),
            ("nothing", "subscribe", {"topic": "alpha"}, "forbidden"),
            ("nothing", "publish", {"topic": "alpha", **write}, "forbidden"),
            ("nothing", "ping", {}, "pong"),
            ("all", "publish", {"topic": "!", **write}, "invalid_request"),
            ("all", "destroy", {"topic": "alpha"}, "unsupported_message"),
        ):
            url = f"ws://127.0.0.1:{server.server.port}/v0/ws"
            async with connect(url, additional_headers=bearer(given)) as connection:
                said = await Socket(connection).ask(kind, request_id=7, **fields)
                assert said["request_id"] == 7
                assert answer in (said["type"], said.get("code")), (given, kind, fields, said)
        assert server.counted("topics_refused")["forbidden",] == 13


@examples(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=60).filter(lambda text: not {*text} & {0, 10, 13}))
async def test_arbitrary_bytes_as_a_key_are_unauthorized(broker: Broker, text: bytes) -> None:
    async with client_of(broker) as client:
        for value in (
            text,
            b"Bearer " + text,
            b"Basic " + text,
            b"Bearer " + key("r").encode() + b"!",
        ):
            answer = await client.get("/v0/topics", headers=[(b"authorization", value)])
            assert refused(answer, 401, "unauthorized").keys() == {"code", "message"}
