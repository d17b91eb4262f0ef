"""`"match": "order.*"` deleted nothing, read nothing and routed nothing, without an error.

Some users mean a glob, and others have tags that contain a star. The broker does not guess: it refuses such a match and
names both ways to write it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.http.calls import append, read, refused, state
from tests.http.conftest import SMALL, client_of


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with Engine.open(tmp_path, SMALL) as engine, client_of(Broker(engine, Settings(data_dir=tmp_path))) as client:
        await append(client, "t", {"data": 1, "tag": "a*"}, {"data": 2, "tag": "ab"})
        await client.put("/v0/routers/r", json={"source": "t", "dest": "copies"})
        yield client


DOORS: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v0/topics/t/delete", {"match": "a*"}, "match"),
    ("POST", "/v0/topics/t/delete", {"match": "a*", "before_seq": 9}, "match"),
    ("POST", "/v0/topics/t/diff", {"tag": "a*"}, "tag"),
    ("GET", "/v0/topics/t/records?tag=a*", {}, "tag"),
    ("GET", '/v0/topics/t/records?tag="a*"', {}, "tag"),
    ("PUT", "/v0/routers/new", {"source": "t", "dest": "u", "filter": "a*"}, "filter"),
    ("PUT", "/v0/routers/r", {"source": "t", "dest": "copies", "filter": "a*"}, "filter"),
    ("PATCH", "/v0/routers/r", {"filter": "a*"}, "filter"),
]


@pytest.mark.parametrize(("method", "path", "body", "field"), DOORS)
async def test_a_plain_tag_with_a_star_is_refused_and_the_error_shows_glob_and_eq(
    client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await client.request(method, path, json=body if method != "GET" else None)
    error = refused(answer, 400, "invalid_request")
    assert error["detail"]["field"] == field
    assert error["message"].startswith(field)
    for spelling in (["tag", "Glob", "a*"], ["tag", "Eq", "a*"]):
        assert json.dumps(spelling) in error["message"]
    assert (await state(client, "t"))["count"] == 2


@pytest.mark.parametrize("tag", ["*a", "a*b", "a**"])
async def test_a_tag_that_is_no_valid_glob_is_refused_and_the_error_shows_only_eq(
    client: httpx.AsyncClient, tag: str
) -> None:
    answer = await client.post("/v0/topics/t/delete", json={"match": tag})
    message = refused(answer, 400, "invalid_request")["message"]
    assert json.dumps(["tag", "Eq", tag]) in message
    assert "Glob" not in message


@pytest.mark.parametrize(("spelling", "data"), [(["tag", "Eq", "a*"], [1]), (["tag", "Glob", "a*"], [1, 2])])
async def test_glob_matches_the_pattern_and_eq_matches_the_literal_tag(
    client: httpx.AsyncClient, spelling: list[str], data: list[int]
) -> None:
    assert [record["data"] for record in (await read(client, "t", tag=spelling))["records"]] == data
    answer = await client.post("/v0/topics/t/delete", json={"match": spelling})
    assert answer.json()["deleted"] == len(data)
