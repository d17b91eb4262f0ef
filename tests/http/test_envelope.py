"""Every refusal has the same form, wherever it is made. Methods and paths are checked in one place."""

from __future__ import annotations

import httpx
import pytest

from broker.api.routes import health
from broker.content import errors
from storage import Engine
from storage import errors as storage_errors
from tests.http.calls import JSON, fill, refused, refused_field

TOPIC = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"


@pytest.mark.parametrize(
    "path",
    [
        "/v0",
        "/v0/",
        "/v0/nothing",
        "/v0/topics/",
        "/v0/topics/t/",
        "/v0/topics/t/records/",
        "/v0/topics/t/records/1/",
        "/v0/topics/t/other",
        "/v0/topics//diff",
        "/v0/topics/{}/x",
        "/v0//topics",
        "/V0/topics",
        "/nothing",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "OPTIONS", "DELETE"])
async def test_an_unknown_path_is_not_found(client: httpx.AsyncClient, path: str, method: str) -> None:
    refused(await client.request(method, path), 404, "not_found")


async def test_an_escaped_slash_is_refused_in_names(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    refused_field(await client.get("/v0/topics/t%2Frecords"), "path")


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v0/topics", "GET, HEAD, OPTIONS"),
        ("/v0/topics/t", TOPIC),
        ("/v0/topics/t/diff", "OPTIONS, POST"),
        ("/v0/topics/t/delete", "OPTIONS, POST"),
        ("/v0/topics/t/records", "GET, HEAD, OPTIONS"),
        ("/v0/topics/t/records/1", "GET, HEAD, OPTIONS"),
        ("/v0/health", "GET, HEAD, OPTIONS"),
        ("/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
async def test_an_unsupported_method_is_refused_with_the_allowed_methods(
    client: httpx.AsyncClient, path: str, allow: str
) -> None:
    for method in ("PROPFIND", "TRACE", "BREW"):
        answer = await client.request(method, path)
        refused(answer, 405, "method_not_allowed")
        assert answer.headers["allow"] == allow
    answer = await client.options(path)
    assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", allow)


@pytest.mark.parametrize("path", ["/v0/topics", "/v0/topics/t", "/v0/topics/t/records", "/v0/health", "/docs"])
async def test_head_is_get_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    await fill(client, "t", 1)
    answer = await client.head(path)
    assert answer.status_code == 200
    assert answer.content == b""
    assert int(answer.headers["content-length"]) > 0


async def test_an_internal_error_hides_its_message(
    client: httpx.AsyncClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    for name in ("append", "topics"):
        monkeypatch.setattr(engine, name, fail)
    for answer in (
        await client.post("/v0/topics/t", content='{"records":[{"data":1}]}', headers=JSON),
        await client.get("/v0/topics"),
    ):
        error = refused(answer, 500, "internal")
        assert error["detail"]["request_id"] == answer.headers["x-request-id"]
        assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (storage_errors.WalSaturated(), 503),
        (storage_errors.StorageFailed(), 503),
        (storage_errors.StorageFull(), 507),
        (storage_errors.RecordCorrupt(topic="t", seq=1, file="wal-1.log", offset=7), 500),
        (storage_errors.LimitReached("Too many.", limit="max_topics", max=1), 429),
    ],
)
async def test_every_storage_error_has_its_status_and_detail(
    client: httpx.AsyncClient,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    error: storage_errors.StorageError,
    status: int,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(engine, "append", fail)
    answer = await client.post("/v0/topics/t", content='{"records":[{"data":1}]}', headers=JSON)
    assert refused(answer, status, error.code).get("detail", {}) == error.detail
    assert ("retry-after" in answer.headers) is (status in (429, 503))


def test_every_code_of_storage_has_a_status() -> None:
    def codes(kind: type[storage_errors.StorageError]) -> set[str]:
        return {kind.code}.union(*(codes(sub) for sub in kind.__subclasses__()))

    # Only batches of idempotent Kafka producers get these, in the form of their protocol.
    of_another_door = {"out_of_order_sequence", "invalid_producer_epoch"}
    assert codes(storage_errors.StorageError) - of_another_door <= set(errors.CODES)
    assert not of_another_door & set(errors.CODES)


def test_every_code_of_the_http_layer_has_a_status() -> None:
    assert {kind.code for kind in errors.ApiError.__subclasses__()} <= set(errors.CODES)


def test_retry_after_is_rounded_up_to_seconds() -> None:
    error = storage_errors.WalSaturated(retry_after_ms=1200)
    assert (b"retry-after", b"2") in errors.answer(error, request_id="r").headers


def test_probes_are_part_of_the_document() -> None:
    assert {operation.path for operation in health.operations if operation.name} == {"/v0/health", "/v0/ready"}
