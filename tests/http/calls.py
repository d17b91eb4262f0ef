"""Calls and checks that many tests need."""

from __future__ import annotations

from typing import Any

import httpx

JSON = {"content-type": "application/json"}


async def append(client: httpx.AsyncClient, topic: str, *records: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Append and return the answer, which must be a success."""
    answer = await client.post(f"/v0/topics/{topic}", json={"records": records, **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def fill(client: httpx.AsyncClient, topic: str, count: int, **fields: Any) -> None:
    """Append `count` records whose data are 1, 2, 3 and so on."""
    await append(client, topic, *({"data": number} for number in range(1, count + 1)), **fields)


async def read(client: httpx.AsyncClient, topic: str, **fields: Any) -> dict[str, Any]:
    """A diff, which must be a success."""
    answer = await client.post(f"/v0/topics/{topic}/diff", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def state(client: httpx.AsyncClient, topic: str) -> dict[str, Any]:
    answer = await client.get(f"/v0/topics/{topic}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check a refusal: status, envelope and code. Returns the error."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) <= {"code", "message", "detail"}
    assert error["code"] == code
    assert error["message"]
    return error


def refused_field(answer: httpx.Response, field: str, code: str = "invalid_request") -> None:
    """Check a 400 whose detail and sentence name the field."""
    error = refused(answer, 400, code)
    assert error["detail"]["field"] == field
    assert field in error["message"]
