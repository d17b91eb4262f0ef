"""Bodies: media type, size and compression are checked in this order, before the content."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from broker.content.accept import accepts_gzip
from broker.settings import Settings
from tests.http.calls import JSON, append, fill, refused, state

LIMIT = 2000
BODY = b'{"records":[{"data":1}]}'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, max_body_bytes=LIMIT)


def padded(size: int) -> bytes:
    return BODY + b" " * (size - len(BODY))


async def chunks(body: bytes, size: int, taken: list[int] | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        if taken is not None:
            taken.append(size)
        yield body[start : start + size]


@pytest.mark.parametrize("path", ["/v0/topics/t", "/v0/topics/t/diff", "/v0/topics/t/delete"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/jsonx"},
        {"content-type": "application/json-seq"},
    ],
)
async def test_a_body_without_a_json_content_type_is_refused(
    client: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    refused(await client.post(path, content=b"{", headers=headers), 415, "unsupported_media_type")
    answer = await client.post(path, content=chunks(b"{", 1), headers=headers)
    refused(answer, 415, "unsupported_media_type")


async def test_a_put_body_without_a_json_content_type_is_refused(client: httpx.AsyncClient) -> None:
    refused(await client.put("/v0/topics/t", content=b"{}"), 415, "unsupported_media_type")


@pytest.mark.parametrize("content_type", ["application/json", "Application/Json", "application/json;charset=utf-8"])
async def test_parameters_and_case_do_not_matter(client: httpx.AsyncClient, content_type: str) -> None:
    answer = await client.post("/v0/topics/t", content=BODY, headers={"content-type": content_type})
    assert answer.is_success


async def test_without_a_body_the_type_does_not_matter(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v0/topics/t", headers={"content-type": "text/plain"})).is_success
    assert (await client.post("/v0/topics/t/diff")).is_success


async def test_a_body_at_the_limit_is_taken(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v0/topics/t", content=padded(LIMIT), headers=JSON)).is_success


async def test_a_body_over_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", content=padded(LIMIT + 1), headers=JSON)
    assert refused(answer, 413, "payload_too_large")["detail"]["max"] == LIMIT


@pytest.mark.one_cell("counts what one application reads")
async def test_a_body_without_a_length_is_read_no_further_than_the_limit(client: httpx.AsyncClient) -> None:
    taken: list[int] = []
    content = chunks(padded(LIMIT * 10), 100, taken)
    refused(await client.post("/v0/topics/t", content=content, headers=JSON), 413, "payload_too_large")
    assert sum(taken) <= LIMIT + 2 * 100


async def test_a_body_in_pieces_is_put_together(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v0/topics/t", content=chunks(BODY, 5), headers=JSON)).is_success
    assert (await state(client, "t"))["count"] == 1


async def test_the_content_type_is_checked_before_the_size(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/t", content=padded(LIMIT + 1), headers={"content-type": "text/plain"})
    refused(answer, 415, "unsupported_media_type")


async def test_the_size_is_checked_before_the_topic_name(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v0/topics/-", content=padded(LIMIT + 1), headers=JSON)
    refused(answer, 413, "payload_too_large")


@pytest.mark.parametrize("path", ["/v0/topics/t", "/v0/topics/t/diff", "/v0/topics/t/delete"])
async def test_the_limit_holds_on_every_route_with_a_body(client: httpx.AsyncClient, path: str) -> None:
    refused(await client.post(path, content=padded(LIMIT + 1), headers=JSON), 413, "payload_too_large")


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip"])
async def test_a_gzip_body_is_read(client: httpx.AsyncClient, coding: str) -> None:
    headers = {**JSON, "content-encoding": coding}
    assert (await client.post("/v0/topics/t", content=gzip.compress(BODY), headers=headers)).is_success
    assert (await state(client, "t"))["count"] == 1


async def test_a_gzip_body_may_have_several_members(client: httpx.AsyncClient) -> None:
    content = gzip.compress(BODY[:9]) + gzip.compress(BODY[9:])
    headers = {**JSON, "content-encoding": "gzip"}
    assert (await client.post("/v0/topics/t", content=content, headers=headers)).is_success


async def test_a_gzip_body_is_measured_unpacked(client: httpx.AsyncClient) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    content = gzip.compress(padded(LIMIT + 1))
    assert len(content) < LIMIT
    refused(await client.post("/v0/topics/t", content=content, headers=headers), 413, "payload_too_large")


async def test_a_small_body_that_decompresses_beyond_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(b" " * 1_500_000) + packer.flush()
    assert len(bomb) < LIMIT
    headers = {**JSON, "content-encoding": "gzip"}
    refused(await client.post("/v0/topics/t", content=bomb, headers=headers), 413, "payload_too_large")


@pytest.mark.parametrize(
    "damage",
    [lambda body: body[:-1], lambda body: body[:5], lambda body: b"x" + body, lambda body: body + b"x"],
    ids=["cut at the end", "cut in the header", "bad magic", "rubbish behind"],
)
async def test_damaged_gzip_is_refused(client: httpx.AsyncClient, damage: Callable[[bytes], bytes]) -> None:
    headers = {**JSON, "content-encoding": "gzip"}
    answer = await client.post("/v0/topics/t", content=damage(gzip.compress(BODY)), headers=headers)
    assert refused(answer, 400, "invalid_request")["detail"]["field"] == "body"


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd"])
async def test_other_codings_are_not_understood(client: httpx.AsyncClient, coding: str) -> None:
    headers = {**JSON, "content-encoding": coding}
    refused(await client.post("/v0/topics/t", content=BODY, headers=headers), 415, "unsupported_media_type")


async def test_a_body_with_the_coding_identity_is_accepted(client: httpx.AsyncClient) -> None:
    headers = {**JSON, "content-encoding": "identity"}
    assert (await client.post("/v0/topics/t", content=BODY, headers=headers)).is_success


async def test_a_large_answer_is_packed_when_asked(client: httpx.AsyncClient) -> None:
    for _ in range(3):
        await append(client, "t", {"data": "x" * 1000})
    plain = await client.get("/v0/topics/t/records", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await client.get("/v0/topics/t/records", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
    assert packed.json()["records"] == plain.json()["records"]
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"


async def test_a_small_answer_is_not_packed(client: httpx.AsyncClient) -> None:
    await fill(client, "t", 1)
    answer = await client.get("/v0/topics/t/records", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        (b"gzip", True),
        (b"br, gzip;q=0.5", True),
        (b"*", True),
        (b"x-gzip", True),
        (b"gzip;q=0", False),
        (b"*;q=0", False),
        (b"gzip;q=0, *", False),
        (b"br", False),
        (b"", False),
        (b"gzip;q=nonsense", False),
    ],
)
def test_gzip_is_accepted_by_weight(header: bytes, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
