"""Keys of the REST Proxy: as Bearer or as the password of Basic, and for the topics that bodies name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.settings import Settings
from tests.http.auth_calls import bearer, configured, key
from tests.http.proxy.calls import JSON, V2, refused

T0 = {"topic": "alpha", "partition": 0}
ONE = {"records": [{"value": 1}]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.model_validate({"data_dir": tmp_path / "data", "api_keys": configured("alpha", "beta")})


@pytest.fixture
async def path(client: httpx.AsyncClient) -> str:
    """An instance that reads alpha."""
    for topic in ("alpha", "beta"):
        await client.post(f"/topics/{topic}", json=ONE, headers={**JSON, **bearer(key("w"))})
    body = {"name": "i", "format": "json", "auto.offset.reset": "earliest"}
    assert (await client.post("/consumers/g", json=body, headers={**V2, **bearer(key("r+w"))})).is_success
    path = "/consumers/g/instances/i"
    body = {"topics": ["alpha"]}
    assert (await client.post(f"{path}/subscription", json=body, headers={**V2, **bearer(key("r"))})).is_success
    return path


async def test_the_password_is_the_key_whoever_the_user_is(client: httpx.AsyncClient) -> None:
    for user in ("anybody", ""):
        assert (await client.get("/topics", auth=(user, key("r")))).json() == []
    assert (await client.get("/topics", headers=bearer(key("r")))).json() == []
    refused(await client.get("/topics", auth=(key("r"), "")), 401, 40101)
    refused(await client.get("/topics", auth=("u", "wrong")), 401, 40101)
    refused(await client.get("/topics", headers={"authorization": "Basic ???"}), 401, 40101)
    refused(await client.get("/topics", auth=("u", key("w"))), 403, 40301)


async def test_the_api_itself_takes_no_passwords(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v0/topics", auth=("u", key("r")))).status_code == 401


async def test_only_topics_that_a_key_is_for_are_listed(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get("/topics", headers=bearer(key("r")))).json() == ["alpha", "beta"]
    assert (await client.get("/topics", headers=bearer(key("r", "beta")))).json() == ["beta"]


@pytest.mark.parametrize(
    ("rest", "body"),
    [("/subscription", {"topics": ["alpha"]}), ("/assignments", {"partitions": [T0]})],
)
async def test_topics_in_bodies_count(client: httpx.AsyncClient, path: str, rest: str, body: dict[str, Any]) -> None:
    headers = {**V2, **bearer(key("r", "beta"))}
    made = {"name": "j", "auto.commit.enable": "false"}
    assert (await client.post("/consumers/g", json=made, headers=headers)).is_success
    refused(await client.post(f"/consumers/g/instances/j{rest}", json=body, headers=headers), 403, 40301)


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("DELETE", "", None),
        ("GET", "/records", None),
        ("GET", "/subscription", None),
        ("DELETE", "/subscription", None),
        ("POST", "/subscription", {"topics": ["beta"]}),
        ("GET", "/assignments", None),
        ("POST", "/offsets", None),
        ("GET", "/offsets", None),
        ("POST", "/positions", {"offsets": [{**T0, "offset": 0}]}),
        ("POST", "/positions/end", {"partitions": [T0]}),
    ],
)
async def test_an_instance_of_others_is_out_of_reach(
    client: httpx.AsyncClient, path: str, method: str, rest: str, body: Any
) -> None:
    headers = {**V2, **bearer(key("r+w+d+a", "beta"))}
    refused(await client.request(method, path + rest, json=body, headers=headers), 403, 40301)
    answer = await client.get(f"{path}/records", headers=bearer(key("r", "alpha")))
    assert [each["value"] for each in answer.json()] == [1]


async def test_a_pattern_reaches_what_the_key_is_for(client: httpx.AsyncClient, path: str) -> None:
    headers = {**V2, **bearer(key("r", "beta"))}
    made = {"name": "j", "auto.commit.enable": "false", "auto.offset.reset": "earliest"}
    await client.post("/consumers/h", json=made, headers=headers)
    answer = await client.post("/consumers/h/instances/j/subscription", json={"topic_pattern": ".*"}, headers=headers)
    assert answer.status_code == 204
    found = (await client.get("/consumers/h/instances/j/records", headers=headers)).json()
    assert [each["topic"] for each in found] == ["beta"]


async def test_who_commits_may_write(client: httpx.AsyncClient, path: str) -> None:
    refused(await client.post("/consumers/g", json={"name": "j"}, headers={**V2, **bearer(key("r"))}), 403, 40301)
    refused(await client.post(f"{path}/offsets", headers=bearer(key("r"))), 403, 40301)
    assert (await client.post(f"{path}/offsets", headers=bearer(key("r+w")))).status_code == 204
