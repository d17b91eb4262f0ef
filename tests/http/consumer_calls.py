"""Calls of consumers."""

from __future__ import annotations

from typing import Any

import httpx

URL = "/v0/topics/t/consumers/c"


async def put(client: httpx.AsyncClient, url: str = URL, **fields: Any) -> dict[str, Any]:
    answer = await client.put(url, json=fields)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def get(client: httpx.AsyncClient, url: str = URL) -> dict[str, Any]:
    answer = await client.get(url)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, what: str, url: str = URL, **fields: Any) -> dict[str, Any]:
    """A read, commit or seek, which must be a success."""
    answer = await client.post(f"{url}/{what}", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def data(client: httpx.AsyncClient, url: str = URL, **fields: Any) -> list[Any]:
    """The data of the records that a read returns."""
    return [record["data"] for record in (await post(client, "read", url, **fields))["records"]]
