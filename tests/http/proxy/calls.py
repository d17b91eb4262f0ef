"""Calls of the REST Proxy that many tests need."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import httpx

JSON = {"content-type": "application/vnd.kafka.json.v2+json"}
BINARY = {"content-type": "application/vnd.kafka.binary.v2+json"}
V2 = {"content-type": "application/vnd.kafka.v2+json"}
ACCEPT_JSON = {"accept": "application/vnd.kafka.json.v2+json"}


def b64(text: str | bytes) -> str:
    return b64encode(text.encode() if isinstance(text, str) else text).decode()


async def produce(client: httpx.AsyncClient, topic: str, *values: Any, **fields: Any) -> list[dict[str, Any]]:
    """Write JSON values. Returns the entry of each in the answer."""
    records = [{"value": value, **fields} for value in values]
    answer = await client.post(f"/topics/{topic}", json={"records": records}, headers=JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()["offsets"]


async def instance(client: httpx.AsyncClient, name: str = "i", group: str = "g", **config: Any) -> str:
    """Make an instance that reads JSON from the beginning. Returns its path."""
    given = {"name": name, "format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false", **config}
    answer = await client.post(f"/consumers/{group}", json=given, headers=V2)
    assert answer.status_code == 200, answer.text
    return f"/consumers/{group}/instances/{name}"


async def send(client: httpx.AsyncClient, path: str, body: Any = None) -> None:
    """A POST without a body."""
    answer = await client.post(path, json=body, headers=V2) if body is not None else await client.post(path)
    assert (answer.status_code, answer.content) == (204, b""), answer.text


async def subscribed(client: httpx.AsyncClient, *topics: str, **config: Any) -> str:
    """An instance that is subscribed to these topics."""
    path = await instance(client, **config)
    await send(client, f"{path}/subscription", {"topics": list(topics)})
    return path


async def values(client: httpx.AsyncClient, path: str, wait_ms: int = 0, **query: Any) -> list[Any]:
    """The values that an instance reads now."""
    answer = await client.get(f"{path}/records", params={"timeout": wait_ms, **query})
    assert answer.status_code == 200, answer.text
    return [each["value"] for each in answer.json()]


def refused(answer: httpx.Response, status: int, number: int, message: str | None = None) -> str:
    """Check a refusal. Returns its message."""
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error_code", "message"}
    assert body["error_code"] == number
    assert message is None or body["message"] == message
    return body["message"]
