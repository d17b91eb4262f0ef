"""Every answer carries a request id: that of the caller if it is harmless."""

from __future__ import annotations

import httpx
import pytest


async def test_every_answer_has_a_unique_request_id(client: httpx.AsyncClient) -> None:
    paths = ["/v0/health", "/v0/topics", "/v0/nothing", "/docs", "/v0/topics/-"]
    ids = [(await client.get(path)).headers["x-request-id"] for path in paths]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("given", ["abc", "a" * 128, "4bf92f35-77b3:1.2_3/+="])
async def test_a_valid_request_id_is_kept(client: httpx.AsyncClient, given: str) -> None:
    assert (await client.get("/v0/health", headers={"X-Request-Id": given})).headers["x-request-id"] == given


@pytest.mark.parametrize("given", [b"", b"a" * 129, b"a b", b"a\tb", b"\xff", b'"quoted"', b"{}"])
async def test_an_invalid_request_id_is_replaced(client: httpx.AsyncClient, given: bytes) -> None:
    answer = await client.get("/v0/health", headers={b"X-Request-Id": given})
    assert answer.headers["x-request-id"].encode("latin-1") != given
