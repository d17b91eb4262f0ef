"""Keys of the REST Proxy, as Bearer or as the password of Basic, and for the topics that bodies name."""

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


async def test_the_basic_password_is_checked_as_the_key_for_any_user_name(client: httpx.AsyncClient) -> None:
    for user in ("anybody", ""):
        assert (await client.get("/topics", auth=(user, key("r")))).json() == []
    assert (await client.get("/topics", headers=bearer(key("r")))).json() == []
    refused(await client.get("/topics", auth=(key("r"), "")), 401, 40101)
    refused(await client.get("/topics", auth=("u", "wrong")), 401, 40101)
    refused(await client.get("/topics", headers={"authorization": "Basic ???"}), 401, 40101)
    refused(await client.get("/topics", auth=("u", key("w"))), 403, 40301)


async def test_the_v0_api_refuses_basic_credentials(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v0/topics", auth=("u", key("r")))).status_code == 401


async def test_only_topics_within_the_prefixes_of_a_key_are_listed(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get("/topics", headers=bearer(key("r")))).json() == ["alpha", "beta"]
    assert (await client.get("/topics", headers=bearer(key("r", "beta")))).json() == ["beta"]


@pytest.mark.parametrize(
    ("rest", "body"),
    [("/subscription", {"topics": ["alpha"]}), ("/assignments", {"partitions": [T0]})],
)
async def test_topics_in_bodies_are_checked(
    client: httpx.AsyncClient, path: str, rest: str, body: dict[str, Any]
) -> None:
    headers = {**V2, **bearer(key("r", "beta"))}
    made = {"name": "j", "auto.commit.enable": "false"}
    assert (await client.post("/consumers/h", json=made, headers=headers)).is_success
    refused(await client.post(f"/consumers/h/instances/j{rest}", json=body, headers=headers), 403, 40301)


@pytest.mark.parametrize("rest", ["/positions/end", "/positions/beginning", "/positions", "/offsets", "/assignments"])
async def test_refusals_do_not_reveal_whether_a_forbidden_topic_exists(
    client: httpx.AsyncClient, path: str, rest: str
) -> None:
    headers = {**V2, **bearer(key("r+w", "beta"))}
    made = {"name": "j", "auto.commit.enable": "false"}
    assert (await client.post("/consumers/h", json=made, headers=headers)).is_success
    told = set[str]()
    for topic, number in (("alpha", 0), ("alpha", 7), ("alphabet", 0)):
        place = {"topic": topic, "partition": number}
        body = {"partitions": [place], "offsets": [{**place, "offset": 0}]}
        answer = await client.post(f"/consumers/h/instances/j{rest}", json=body, headers=headers)
        refused(answer, 403, 40301)
        told.add(answer.json()["message"])
        if rest == "/offsets":
            body = {"partitions": [place]}
            answer = await client.request("GET", f"/consumers/h/instances/j{rest}", json=body, headers=headers)
            refused(answer, 403, 40301)
    assert len(told) == 1


async def test_a_group_of_another_key_is_forbidden_with_or_without_the_instance(
    client: httpx.AsyncClient, path: str
) -> None:
    headers = {**V2, **bearer(key("r+w", "beta"))}
    for name in ("i", "none"):
        refused(await client.get(f"/consumers/g/instances/{name}/records", headers=headers), 403, 40301)
    refused(await client.post("/consumers/g", json={"name": "j"}, headers=headers), 403, 40301)
    refused(await client.get("/consumers/free/instances/none/records", headers=headers), 404, 40403)


async def test_an_instance_without_topics_belongs_to_the_key_of_its_creator(client: httpx.AsyncClient) -> None:
    for name, whose in (("alpha", 0), ("beta", 403)):
        headers = {**V2, **bearer(key("r+w", name))}
        answer = await client.post("/consumers/g", json={"name": name}, headers=headers)
        assert answer.status_code == (whose or 200)
    headers = bearer(key("r", "beta"))
    refused(await client.get("/consumers/g/instances/alpha/subscription", headers=headers), 403, 40301)


@pytest.mark.parametrize("rest", ["", "/consumers", "/lags", "/lag-summary"])
async def test_v3_hides_groups_with_forbidden_topics(client: httpx.AsyncClient, path: str, rest: str) -> None:
    await client.get(f"{path}/records", headers=bearer(key("r")))
    assert (await client.post(f"{path}/offsets", headers=bearer(key("r+w")))).status_code == 204
    clusters = (await client.get("/v3/clusters", headers=bearer(key("r")))).json()
    groups = f"/v3/clusters/{clusters['data'][0]['cluster_id']}/consumer-groups"
    for whose, status in (("alpha", 200), ("beta", 404)):
        assert (await client.get(f"{groups}/g{rest}", headers=bearer(key("r", whose)))).status_code == status
        found = (await client.get(groups, headers=bearer(key("r", whose)))).json()["data"]
        assert [each["consumer_group_id"] for each in found] == (["g"] if status == 200 else [])


async def test_v0_refuses_a_consumer_in_a_group_of_another_key(client: httpx.AsyncClient, path: str) -> None:
    for name, status in (("group:g", 403), ("group:free", 201), ("g", 201)):
        url = f"/v0/topics/beta/consumers/{name}"
        answer = await client.put(url, json={}, headers=bearer(key("r+w", "beta")))
        assert answer.status_code == status, answer.text
    assert (await client.put("/v0/topics/beta/consumers/group:g", json={}, headers=bearer(key("r+w")))).is_success


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
async def test_an_instance_of_another_key_is_forbidden(
    client: httpx.AsyncClient, path: str, method: str, rest: str, body: Any
) -> None:
    headers = {**V2, **bearer(key("r+w+d+a", "beta"))}
    refused(await client.request(method, path + rest, json=body, headers=headers), 403, 40301)
    answer = await client.get(f"{path}/records", headers=bearer(key("r", "alpha")))
    assert [each["value"] for each in answer.json()] == [1]


async def test_a_topic_pattern_matches_only_topics_of_the_key(client: httpx.AsyncClient, path: str) -> None:
    headers = {**V2, **bearer(key("r", "beta"))}
    made = {"name": "j", "auto.commit.enable": "false", "auto.offset.reset": "earliest"}
    await client.post("/consumers/h", json=made, headers=headers)
    answer = await client.post("/consumers/h/instances/j/subscription", json={"topic_pattern": ".*"}, headers=headers)
    assert answer.status_code == 204
    found = (await client.get("/consumers/h/instances/j/records", headers=headers)).json()
    assert [each["topic"] for each in found] == ["beta"]


async def test_a_commit_needs_the_write_scope(client: httpx.AsyncClient, path: str) -> None:
    refused(await client.post("/consumers/g", json={"name": "j"}, headers={**V2, **bearer(key("r"))}), 403, 40301)
    refused(await client.post(f"{path}/offsets", headers=bearer(key("r"))), 403, 40301)
    assert (await client.post(f"{path}/offsets", headers=bearer(key("r+w")))).status_code == 204
