"""Large bodies are checked and decoded in slices, one body at a time, with rounds of the loop in between."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import msgspec
import pytest

from broker.api import record_count
from broker.api.control import MAX_CONTROL_BODY_BYTES
from broker.content import slices, strict_json
from storage.errors import InvalidRequest
from tests.http.calls import JSON, refused

MOST = 100_000


@pytest.fixture
def body() -> bytes:
    return msgspec.json.encode({"records": [{"data": [{"n": number}]} for number in range(MOST * 4)]})


def test_the_body_of_these_tests_is_large(body: bytes) -> None:
    assert len(body) > 4 * slices.LARGE_BYTES


class RoundCounter:
    """Counts the rounds of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1

    def stop(self) -> None:
        self._task.cancel()


async def test_the_loop_goes_round_while_a_large_body_is_decoded(body: bytes) -> None:
    rounds = RoundCounter()
    await strict_json.check(body)
    rounds.stop()
    pieces = len(body) // slices.LARGE_BYTES
    assert rounds.count >= 2 * pieces + 3 * slices.ROUNDS


async def test_the_loop_goes_round_before_and_after_records_are_counted(body: bytes) -> None:
    rounds = RoundCounter()
    await record_count.check_count(body, MOST * 4)
    rounds.stop()
    assert rounds.count >= 3 * slices.ROUNDS - 1


async def test_large_bodies_are_decoded_one_at_a_time(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    rounds = RoundCounter()
    decode: Any = strict_json.decoded

    def watched(*given: Any) -> Any:
        seen.append(rounds.count)
        return decode(*given)

    monkeypatch.setattr(strict_json, "decoded", watched)
    await asyncio.gather(*(strict_json.check(body) for _ in range(3)))
    rounds.stop()
    assert len(seen) == 3
    assert all(later - earlier >= 3 * slices.ROUNDS for earlier, later in itertools.pairwise(seen))


@pytest.mark.parametrize("at", [0, slices.LARGE_BYTES - 1, 2 * slices.LARGE_BYTES])
async def test_an_invalid_utf8_byte_of_a_large_body_is_named(at: int) -> None:
    text = bytearray(b'"' + "é".encode() * slices.LARGE_BYTES * 2 + b'"')
    text[at] = 0xFF
    with pytest.raises(InvalidRequest) as error:
        await strict_json.check(bytes(text))
    with pytest.raises(InvalidRequest) as small:
        strict_json.check_utf8(bytes(text))
    assert error.value.detail == small.value.detail


async def test_characters_across_two_slices_are_valid() -> None:
    for shift in range(4):
        await strict_json.check(b'"' + b"x" * shift + "𝄞".encode() * (slices.LARGE_BYTES // 2) + b'"')


async def test_large_bodies_are_bounded_in_depth() -> None:
    deep = b"[" * 300 + b"]" * 300
    with pytest.raises(InvalidRequest, match="nested more than"):
        await strict_json.check(b"[" + deep + b" " * slices.LARGE_BYTES + b"]")
    with pytest.raises(InvalidRequest, match="nested more than"):
        await strict_json.check(b"[" + b"[]," * slices.LARGE_BYTES + deep + b"]")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v0/topics/t"),
        ("PATCH", "/v0/topics/t"),
        ("POST", "/v0/topics/t/delete"),
        ("PUT", "/v0/routers/r"),
        ("PUT", "/v0/topics/t/consumers/c"),
        ("POST", "/v0/watch"),
        ("POST", "/v0/topics/t/redrive"),
    ],
)
async def test_bodies_of_settings_have_a_smaller_size_limit(client: httpx.AsyncClient, method: str, path: str) -> None:
    await client.put("/v0/topics/t", json={})
    text = b"{}" + b" " * (MAX_CONTROL_BODY_BYTES - 2)
    at_bound = await client.request(method, path, content=text, headers=JSON)
    assert at_bound.status_code != 413
    over = await client.request(method, path, content=text + b" ", headers=JSON)
    assert refused(over, 413, "payload_too_large")["detail"]["max"] == MAX_CONTROL_BODY_BYTES


async def test_bodies_of_records_may_exceed_the_limit_of_settings(client: httpx.AsyncClient) -> None:
    text = b'{"records":[{"data":1}]}' + b" " * MAX_CONTROL_BODY_BYTES
    assert (await client.post("/v0/topics/t", content=text, headers=JSON)).is_success
