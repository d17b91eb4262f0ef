"""gzip bodies that are small on the wire and large once decompressed are refused everywhere, while others are
served."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from broker.content import inflate
from tests.http.hot_server import HotServer
from tests.support.bombs import gzips

PATIENCE_S = 30
GZIP = {"content-encoding": "gzip"}
JSON = GZIP | {"content-type": "application/json"}
OF_THE_PROXY = GZIP | {"content-type": "application/vnd.kafka.json.v2+json"}
#: A body that is too deep, not JSON or empty once decompressed is refused for that reason.
STATUSES = {413, 400}
DOORS = [
    ("POST", "/v0/topics/t", JSON),
    ("PUT", "/v0/topics/u", JSON),
    ("POST", "/v0/topics/t/diff", JSON),
    ("POST", "/v0/topics/t/delete", JSON),
    ("PUT", "/v0/routers/r", JSON),
    ("POST", "/topics/t", OF_THE_PROXY),
]


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize(("method", "path", "headers"), DOORS)
async def test_every_bomb_is_refused_by_every_api(
    server: HotServer, method: str, path: str, headers: dict[str, str], http2: bool
) -> None:
    async with httpx.AsyncClient(
        base_url=server.server.url, http1=not http2, http2=http2, timeout=PATIENCE_S
    ) as client:
        for name, body in gzips().items():
            answer = await client.request(method, path, content=body, headers=headers)
            assert answer.status_code in STATUSES, (name, answer.text)
        assert (await client.get("/v0/health")).status_code == 200


async def test_a_body_with_too_many_gzip_members_is_refused_with_the_limit(server: HotServer) -> None:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        answer = await client.post("/v0/topics/t", content=gzips()["empty members"], headers=JSON)
    error: Any = answer.json()["error"]
    assert (answer.status_code, error["code"], error["detail"]["field"]) == (400, "invalid_request", "body")
    assert str(inflate.MAX_MEMBERS) in error["message"]


@pytest.mark.parametrize("http2", [False, True])
@pytest.mark.parametrize("name", ["ratio", "empty members", "many members"])
async def test_health_is_answered_while_a_bomb_is_checked(
    server: HotServer, name: str, http2: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decompressor waits until others have been served. On the loop it would wait for ever."""
    served, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    real = inflate.gunzip

    def held(data: bytes, max_bytes: int) -> bytes:
        assert threading.current_thread() is not threading.main_thread()
        loop.call_soon_threadsafe(begun.set)
        assert served.wait(PATIENCE_S)
        return real(data, max_bytes)

    monkeypatch.setattr(inflate, "gunzip", held)
    async with httpx.AsyncClient(
        base_url=server.server.url, http1=not http2, http2=http2, timeout=PATIENCE_S
    ) as client:
        bomb = asyncio.ensure_future(client.post("/v0/topics/t", content=gzips()[name], headers=JSON))
        try:
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
            for _ in range(3):
                assert (await client.get("/v0/health")).status_code == 200
            assert not bomb.done()
        finally:
            served.set()
        assert (await bomb).status_code in STATUSES
