"""Calls of queues that many tests need."""

from __future__ import annotations

from typing import Any

import httpx

from tests.http.calls import append


async def queue(client: httpx.AsyncClient, *data: Any, name: str = "q", **settings: Any) -> None:
    """A queue with these jobs."""
    answer = await client.put(f"/v0/topics/{name}", json={"type": "queue", **settings})
    assert answer.is_success, answer.text
    if data:
        await append(client, name, *({"data": each} for each in data))


async def call(client: httpx.AsyncClient, operation: str, *, name: str = "q", **fields: Any) -> dict[str, Any]:
    """A call on a queue, which must be a success."""
    answer = await client.post(f"/v0/topics/{name}/{operation}", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def claim(client: httpx.AsyncClient, **fields: Any) -> list[dict[str, Any]]:
    """The jobs that a claim returns."""
    return (await call(client, "claim", **({"node": "w", "max": 1000} | fields)))["claimed"]


async def figures(client: httpx.AsyncClient, name: str = "q") -> dict[str, Any]:
    """The queue's part of the topic's state."""
    return (await client.get(f"/v0/topics/{name}")).json()["queue"]


def seqs(jobs: list[dict[str, Any]]) -> list[int]:
    return [job["$seq"] for job in jobs]
