"""The OpenAPI document is complete, and its page loads nothing from other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.openapi.models import OpenAPI

from broker.content.errors import CODES
from broker.settings import Settings
from broker.wiring import Broker
from schemas import (
    backups,
    config,
    consumers,
    errors,
    events,
    health,
    overview,
    queues,
    records,
    routers,
    segments,
    topics,
    watch,
)
from tests.http.auth_calls import EXPECTED, OPEN
from tests.http.calls import refused

MODELS = {
    name: model
    for module in (
        backups,
        config,
        consumers,
        errors,
        events,
        health,
        overview,
        queues,
        records,
        routers,
        segments,
        topics,
        watch,
    )
    for name, model in vars(module).items()
    if isinstance(model, type) and hasattr(model, "model_validate")
}
OPERATIONS = {
    ("get", "/v0/health"),
    ("get", "/v0/ready"),
    ("get", "/v0/metrics"),
    ("get", "/v0/overview"),
    ("get", "/v0/overview/history"),
    ("get", "/v0/overview/stream"),
    ("get", "/v0/keys"),
    ("get", "/v0/consumers"),
    ("get", "/v0/topics/{topic}/history"),
    ("get", "/v0/admin/backup"),
    ("post", "/v0/admin/backup"),
    ("get", "/v0/topics"),
    ("put", "/v0/topics/{topic}"),
    ("patch", "/v0/topics/{topic}"),
    ("get", "/v0/topics/{topic}"),
    ("post", "/v0/topics/{topic}"),
    ("delete", "/v0/topics/{topic}"),
    ("post", "/v0/topics/{topic}/diff"),
    ("post", "/v0/topics/{topic}/delete"),
    ("get", "/v0/topics/{topic}/records"),
    ("get", "/v0/topics/{topic}/records/{seq}"),
    ("post", "/v0/topics/{topic}/claim"),
    ("post", "/v0/topics/{topic}/ack"),
    ("post", "/v0/topics/{topic}/nack"),
    ("post", "/v0/topics/{topic}/extend"),
    ("get", "/v0/topics/{topic}/work"),
    ("get", "/v0/topics/{topic}/leases"),
    ("post", "/v0/topics/{topic}/pause"),
    ("post", "/v0/topics/{topic}/resume"),
    ("post", "/v0/topics/{topic}/purge"),
    ("post", "/v0/topics/{topic}/redrive"),
    ("get", "/v0/routers"),
    ("put", "/v0/routers/{router}"),
    ("patch", "/v0/routers/{router}"),
    ("get", "/v0/routers/{router}"),
    ("delete", "/v0/routers/{router}"),
    ("get", "/v0/topics/{topic}/consumers"),
    ("put", "/v0/topics/{topic}/consumers/{consumer}"),
    ("patch", "/v0/topics/{topic}/consumers/{consumer}"),
    ("get", "/v0/topics/{topic}/consumers/{consumer}"),
    ("delete", "/v0/topics/{topic}/consumers/{consumer}"),
    ("post", "/v0/topics/{topic}/consumers/{consumer}/read"),
    ("post", "/v0/topics/{topic}/consumers/{consumer}/commit"),
    ("post", "/v0/topics/{topic}/consumers/{consumer}/seek"),
    ("post", "/v0/watch"),
    ("get", "/v0/watch/{wid}"),
    ("get", "/v0/ws"),
    ("get", "/v0/topics/{topic}/segments"),
    ("get", "/v0/topics/{topic}/segments/{first_seq}/data"),
    ("get", "/v0/topics/{topic}/segments/{first_seq}/idx"),
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """With everything that the shown operations need."""
    return Settings(data_dir=tmp_path / "data", backup_dir=tmp_path / "backups")


@pytest.fixture
async def document(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get("/openapi.json")
    assert answer.status_code == 200
    return answer.json()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)
    elif isinstance(value, list):
        for part in value:
            yield from references(part)


async def test_the_document_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    OpenAPI.model_validate(document)


async def test_the_document_has_exactly_the_served_operations(document: dict[str, Any]) -> None:
    assert {(method, path) for method, path, _ in operations(document)} == OPERATIONS


async def test_every_reference_resolves(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= known


async def test_operation_ids_are_unique_and_start_with_a_verb(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(names)) == len(names)
    verbs = {name.partition("_")[0] for name in names}
    assert verbs <= {
        "ack", "append", "begin", "change", "claim", "commit", "create", "delete", "extend", "get", "list", "nack",
        "open", "pause", "purge", "put", "read", "redrive", "resume", "seek", "stream",
    }  # fmt: skip
    assert all(re.fullmatch("[a-z]+(_[a-z]+)+", name) for name in names), names


async def test_every_tag_is_described_and_used(document: dict[str, Any]) -> None:
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    assert described == {tag for _, _, operation in operations(document) for tag in operation["tags"]}


async def test_the_document_has_the_serving_broker_as_its_server(document: dict[str, Any]) -> None:
    assert [server["url"] for server in document["servers"]] == ["/"]
    assert document["info"]["license"]["identifier"] == "Apache-2.0"


async def test_error_codes_of_the_document_equal_the_declared_codes(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["ErrorCode"]["enum"] == list(CODES)
    assert schemas["ErrorBody"]["properties"]["code"]["$ref"] == "#/components/schemas/ErrorCode"
    assert "error-code" not in str(document)


async def test_events_of_streams_have_schemas(document: dict[str, Any]) -> None:
    found = {}
    for _, path, operation in operations(document):
        [schema] = [media.get("schema", {}) for media in operation["responses"]["200"]["content"].values()][:1]
        if "contentSchema" in schema:
            found[path] = [each.rpartition("/")[2] for each in references(schema["contentSchema"])]
    assert found == {
        "/v0/watch/{wid}": ["WatchEvent"],
        "/v0/overview/stream": ["OverviewEvent"],
        "/v0/topics/{topic}/work": ["WorkEvent"],
        "/v0/ws": ["SocketMessage", "SocketCommand"],
    }


async def test_every_operation_shows_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        success = operation["responses"]["200"]["content"]
        for media in success.values():
            assert "example" in media, f"{method} {path}: answer"
        for media in operation.get("requestBody", {}).get("content", {}).values():
            assert "example" in media, f"{method} {path}: body"


async def test_the_examples_are_valid_for_their_models(document: dict[str, Any]) -> None:
    checked = 0
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", []):
            MODELS[name].model_validate(example)
            checked += 1
    assert checked >= 10


async def test_path_parameters_are_described(document: dict[str, Any]) -> None:
    for _, path, operation in operations(document):
        described = {item["name"] for item in operation.get("parameters", []) if item["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path))


async def test_refusals_are_described_by_the_envelope(document: dict[str, Any]) -> None:
    for _, _, operation in operations(document):
        for status, response in operation["responses"].items():
            if not status.startswith("2"):
                schema = response["content"]["application/json"]["schema"]
                assert schema["$ref"] == "#/components/schemas/ErrorAnswer"


async def test_an_invalid_field_is_400_and_422_means_a_full_topic(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert ("422" in operation["responses"]) is ((method, path) == ("post", "/v0/topics/{topic}"))


async def test_the_example_requests_work(broker: Broker, client: httpx.AsyncClient, document: dict[str, Any]) -> None:
    await client.put("/v0/topics/payments")
    await client.put("/v0/topics/orders")
    await client.put("/v0/topics/mails", json={"type": "queue", "dead_letter": "mails-dead"})
    await client.put("/v0/topics/mails-dead")
    for method, path, operation in operations(document):
        topic = "mails" if "queues" in operation["tags"] else "orders"
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            answer = await client.request(
                method,
                path.format(topic=topic, router="audit", consumer="billing"),
                json=content["example"],
                headers={"content-type": media},
            )
            assert answer.is_success, answer.text


async def test_the_docs_page_refers_to_no_other_host(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text
    assert "http" not in page.headers["content-security-policy"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "'unsafe-eval'" not in page.headers["content-security-policy"]


async def test_assets_of_the_docs_page_are_served(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(assets) >= 4
    for asset in assets:
        answer = await client.get(httpx.URL("/docs").join(asset))
        assert answer.status_code == 200
        assert answer.content


async def test_the_page_shows_this_document(client: httpx.AsyncClient) -> None:
    script = (await client.get("/docs/start.js")).text
    assert 'url: "openapi.json"' in script
    assert "validatorUrl: null" in script


@pytest.mark.parametrize("name", ["nothing", "%2e%2e", "redoc.standalone.js"])
async def test_only_the_assets_of_the_page_are_served(client: httpx.AsyncClient, name: str) -> None:
    refused(await client.get(f"/docs/{name}"), 404, "not_found")


async def test_the_root_leads_to_the_page(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.status_code == 307
    assert answer.headers["location"] == "/docs"


def test_every_operation_states_its_required_scopes(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            expected = EXPECTED[method.upper(), re.sub(r"\{[^}]*\}", "{}", path)]
            if expected == OPEN:
                assert operation["security"] == [{}, {"key": []}]
                assert "x-scopes" not in operation
            else:
                token = [{"token": []}] if path in ("/v0/watch/{wid}", "/v0/topics/{topic}/work") else []
                assert operation["security"] == [{"key": []}, *token, {}]
                assert sorted(scope[0] for scope in operation["x-scopes"]) == sorted(expected)
