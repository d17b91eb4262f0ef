"""A page of any site could publish into a queue of a broker on the same machine: over a WebSocket, by requests, and by
requests to its own name that resolved to 127.0.0.1 (DNS rebinding). Origin and Host were not checked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import h2.events
import pytest

from broker.content.sites import Sites, sites_of
from broker.settings import Settings, SettingsError, load
from tests.http.hot_server import ASGI, HotServer, Reply, post, records
from tests.http.test_slow_clients import Http2Client

SERVERS = ["zttp", "httptools"]
PAGE, OURS = "https://page.example", "https://app.example"
HANDSHAKE = {
    "connection": "upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
#: One request of each kind. All but the last two change something.
REQUESTS = {
    "append": ("POST", "/v0/topics/t"),
    "diff": ("POST", "/v0/topics/t/diff"),
    "claim": ("POST", "/v0/topics/q/claim"),
    "a new topic": ("PUT", "/v0/topics/new"),
    "produce": ("POST", "/topics/t"),
    "work": ("GET", "/v0/topics/q/work?node=n"),
    "websocket": ("GET", "/v0/ws"),
    "nowhere": ("DELETE", "/nowhere"),
    "state": ("GET", "/v0/topics/t"),
    "health": ("GET", "/v0/health"),
}
CHANGING = list(REQUESTS)[:-2]


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HotServer]:
    async with HotServer(http=request.param, cors_origins=OURS) as server:
        await server.topic("t")
        yield server


def framed(what: str, headers: Mapping[str, str]) -> bytes:
    method, path = REQUESTS[what]
    sent = {"POST": records(1) | {"node": "n"}, "PUT": {}}.get(method)
    body = b"" if sent is None else json.dumps(sent).encode()
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    given |= HANDSHAKE if what == "websocket" else {}
    lines = [f"{name}: {value}" for name, value in (given | dict(headers)).items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body


async def ask(server: HotServer, what: str, **headers: str) -> Reply:
    wire = await server.connect()
    wire.send(framed(what, {name.replace("_", "-"): value for name, value in headers.items()}))
    return await wire.answer()


async def forbidden(server: HotServer, what: str, header: str, **headers: str) -> Reply:
    answer = await ask(server, what, **headers)
    assert answer.status == 403, what
    assert answer.body.get("error", answer.body)["message"].startswith(f"{header}: ")
    return answer


# -- Host ------------------------------------------------------------------------------------------------------------


async def test_requests_to_a_foreign_host_name_are_forbidden(server: HotServer) -> None:
    # What a browser sends for a page of evil.example that resolves to this machine. To the browser both are one site.
    host = f"evil.example:{server.server.port}"
    for what in REQUESTS:
        await forbidden(server, what, "Host", host=host, origin=f"http://{host}")
    assert server.engine.state("t").head_seq == 0
    assert (await server.ask(framed("a new topic", {"authorization": "none"}))).body["created"]


async def test_requests_to_loopback_names_and_addresses_are_answered(server: HotServer) -> None:
    for host in ("localhost", "LOCALHOST:1", "a.localhost", "localhost.", "127.0.0.1:4000", "[::1]:80", "10.1.2.3"):
        assert (await ask(server, "append", host=host)).status == 200, host
        assert (await ask(server, "health", host=host)).status == 200, host


async def test_hosts_that_resemble_a_loopback_name_are_forbidden(server: HotServer) -> None:
    for host in ("", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:localhost", "x"):
        await forbidden(server, "append", "Host", host=host)


@pytest.mark.parametrize("kind", [{}, ASGI])
async def test_a_known_host_does_not_admit_another_host(server: HotServer, kind: dict[str, str]) -> None:
    wire = await server.connect()
    for host, status in (("localhost", 200), ("localhost", 200), ("evilhost.", 403), ("localhost", 200)):
        wire.send(post("t", records(1), {"host": host, **kind}))
        assert (await wire.answer()).status == status


async def test_http2_requests_are_checked_by_their_authority() -> None:
    async with HotServer() as server:
        await server.topic("t")
        for authority, status in (("evil.example", b"403"), ("localhost:4000", b"200")):
            two = Http2Client(await server.connect())
            stream = two.http.get_next_available_stream_id()
            fields = [(":method", "GET"), (":path", "/v0/topics/t"), (":scheme", "http"), (":authority", authority)]
            two.http.send_headers(stream, fields, end_stream=True)
            two.flush()
            answer = await two.until(h2.events.ResponseReceived, stream)
            assert (b":status", status) in answer.headers


async def test_with_keys_any_name_is_answered_to_until_names_are_set() -> None:
    key = {"authorization": "Bearer key"}
    async with HotServer(api_keys="key") as server:
        assert (await ask(server, "health", host="any.example")).status == 200
    async with HotServer(api_keys="key", allowed_hosts="b.example, *.c.example") as server:
        await server.topic("t")
        found = [
            ("b.example:1", 200),
            ("a.c.example", 200),
            ("x.a.c.example", 200),
            ("c.example", 403),
            ("localhost", 403),
        ]
        for host, status in found:
            assert (await ask(server, "append", host=host, **key)).status == status, host
        assert (await ask(server, "append", host="10.0.0.7", **key)).status == 200  # as Kubernetes' probes send it


def test_the_host_name_of_the_machine_and_the_listening_host_are_accepted() -> None:
    sites = sites_of(Settings.model_validate({"host": "broker.example"}), "Box-7")
    assert sites.answers_to(b"box-7:4000")
    assert sites.answers_to(b"Broker.Example")
    assert not sites.answers_to(b"box-8")


def test_the_cache_of_known_hosts_is_bounded() -> None:
    sites = Sites(frozenset({"*.localhost"}), frozenset())
    for number in range(5000):
        assert sites.answers_to(b"n%d.localhost" % number)
    assert len(sites._known) <= 256  # pyright: ignore[reportPrivateUsage]


# -- Origin ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", [PAGE, "null", "http://localhost:1", "http://localhost.evil.example", "localhost", ""]
)
async def test_a_changing_request_from_a_page_of_another_site_is_forbidden(server: HotServer, origin: str) -> None:
    for what in CHANGING:
        answer = await forbidden(server, what, "Origin", origin=origin)
        assert not answer.header("access-control-allow-origin")
    assert server.engine.state("t").head_seq == 0


async def test_a_read_from_a_page_of_another_site_gets_no_allow_origin_header(server: HotServer) -> None:
    answer = await ask(server, "state", origin=PAGE)
    assert answer.status == 200
    assert not answer.header("access-control-allow-origin")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_requests_without_an_origin_are_checked_by_sec_fetch_site(server: HotServer, site: str) -> None:
    # <img src=".../work?node=n"> would claim jobs. A link to the documentation is harmless.
    assert (await ask(server, "work", sec_fetch_site=site)).code == "forbidden"
    assert (await ask(server, "append", sec_fetch_site=site)).code == "forbidden"
    assert (await ask(server, "state", sec_fetch_site=site)).status == 200
    assert (await ask(server, "append", sec_fetch_site="same-origin")).status == 200


async def test_the_brokers_own_pages_may(server: HotServer) -> None:
    assert (await ask(server, "append", origin="http://localhost")).status == 200
    assert (await ask(server, "append", host="localhost:80", origin="http://localhost")).status == 200
    # A proxy in front of the broker has ended TLS.
    assert (await ask(server, "append", origin="https://localhost")).status == 200
    assert (await ask(server, "websocket", origin="http://localhost")).status == 101


async def test_pages_of_allowed_origins_see_every_answer(server: HotServer) -> None:
    await server.engine.put_topic("q")  # this topic is a log, so claims and work are refused
    expected = {"websocket": 101, "claim": 409, "work": 409, "nowhere": 404, "a new topic": 201}
    for what in REQUESTS:
        answer = await ask(server, what, origin=OURS)
        assert answer.status == expected.get(what, 200), what
        if what != "websocket":
            assert answer.header("access-control-allow-origin") == [OURS]
            assert "origin" in answer.header("vary")
            assert answer.header("access-control-expose-headers") == ["*"]


async def test_an_event_stream_to_an_allowed_origin_has_the_allow_origin_header(server: HotServer) -> None:
    wire = await server.connect()
    wire.send(post("t", {"topics": {"t": {}}}, {"origin": OURS}).replace(b"/v0/topics/t", b"/v0/watch", 1))
    wid = (await wire.answer()).body["wid"]
    wire.send(f"GET /v0/watch/{wid} HTTP/1.1\r\nhost: localhost\r\norigin: {OURS}\r\n\r\n".encode())
    got = b""
    async with asyncio.timeout(20):
        while b"retry:" not in got:
            got += await wire.read()
    assert f"access-control-allow-origin: {OURS}\r\n".encode() in got


def preflight(path: str, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in ({"host": "localhost"} | headers).items()]
    return "\r\n".join([f"OPTIONS {path} HTTP/1.1", *lines, "", ""]).encode()


@pytest.mark.parametrize("path", ["/v0/topics/t", "/v0/topics/t/diff", "/topics/t", "/v0/nowhere"])
async def test_a_preflight_from_an_allowed_origin_needs_no_key(path: str) -> None:
    async with HotServer(cors_origins=OURS, api_keys="key") as server:
        asked = {
            "access_control_request_method": "POST",
            "access_control_request_headers": "authorization,content-type",
        }
        answer = await server.ask(preflight(path, origin=OURS, **asked))
        assert answer.status == 204
        assert answer.header("access-control-allow-origin") == [OURS]
        assert "POST" in answer.header("access-control-allow-methods")[0]
        assert answer.header("access-control-allow-headers") == ["authorization, *"]
        refused = await server.ask(preflight(path, origin=PAGE, **asked))
        assert refused.status == 401
        assert not refused.header("access-control-allow-origin")


async def test_a_cors_origin_of_star_allows_pages_of_every_site() -> None:
    async with HotServer(cors_origins="*") as server:
        await server.topic("t")
        answer = await ask(server, "append", origin=PAGE)
        assert (answer.status, answer.header("access-control-allow-origin")) == (200, ["*"])
        assert (await ask(server, "websocket", origin="null")).status == 101


async def test_a_plain_http_page_of_the_same_host_is_another_site_over_tls() -> None:
    sites = Sites(None, frozenset())
    sites.check_page({b"origin": b"https://b.example:444", b"host": b"B.example:444"}, "https", changes=True)
    with pytest.raises(Exception, match="Origin"):
        sites.check_page({b"origin": b"http://b.example:444", b"host": b"b.example:444"}, "https", changes=True)


# -- settings --------------------------------------------------------------------------------------------------------

WRONG: list[tuple[str, Any]] = [
    ("ALLOWED_HOSTS", "http://b.example"),
    ("ALLOWED_HOSTS", "b.example:4000"),
    ("ALLOWED_HOSTS", "b.*"),
    ("CORS_ORIGINS", "app.example"),
    ("CORS_ORIGINS", "https://app.example/"),
    ("CORS_ORIGINS", "null"),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_setting_that_never_matches_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"TOPICS_{name}", value)
    with pytest.raises(SettingsError, match=f"TOPICS_{name}"):
        load()
