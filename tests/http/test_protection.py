"""Headers that keep browsers and caches from interpreting an answer: once on each answer."""

from __future__ import annotations

import httpx
import pytest
from websockets import InvalidStatus
from websockets.asyncio.client import connect

from broker.content.answers import PROTECTION
from tests.http.auth_calls import bearer
from tests.http.hot_server import ASGI, HotServer, post, records

EXPECTED = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
ONCE = {name: [value] for name, value in EXPECTED.items()}


def test_the_protection_headers_equal_the_expected_headers() -> None:
    assert {name.decode(): value.decode() for name, value in PROTECTION} == EXPECTED


@pytest.mark.parametrize("http", ["zttp", "httptools"])
async def test_every_answer_has_the_protection_headers_once(http: str) -> None:
    async with HotServer(http=http, api_keys="one") as server:
        for kind in ({}, ASGI):
            for headers in ({}, bearer("one")):
                for body in (records(1), records(1), {"records": []}, records("x" * 2000)):
                    answer = await server.ask(post("t", body, headers | kind | {"accept-encoding": "gzip"}))
                    assert {name: answer.header(name) for name in EXPECTED} == ONCE
        versions = (False, True) if http == "zttp" else (False,)
        for two in versions:
            async with httpx.AsyncClient(base_url=server.server.url, http1=not two, http2=two, timeout=20) as client:
                for path in ("/v0/topics", "/v0/topics/t", "/v0/health", "/v0/metrics", "/nowhere", "/openapi.json"):
                    for headers in ({}, bearer("one")):
                        found = (await client.get(path, headers=headers)).headers
                        assert {name: found.get_list(name) for name in EXPECTED} == ONCE
                page = (await client.get("/docs")).headers
                assert page["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
                assert page["cache-control"] == "no-store"
                asset = (await client.get("/docs/start.js")).headers
                assert asset.get_list("cache-control") == ["max-age=3600"]
                assert asset["x-content-type-options"] == "nosniff"
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(f"ws://127.0.0.1:{server.server.port}/v0/ws"):
                pass
        assert {name: refusal.value.response.headers.get_all(name) for name in EXPECTED} == ONCE
