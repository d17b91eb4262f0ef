"""Records of a large body are counted before any object is made of them."""

from __future__ import annotations

import pytest

from broker.api.record_count import LARGE_BYTES, check_count
from storage.errors import BatchTooLarge

MOST = 1000


def body(count: int, data: str) -> bytes:
    record = '{"data":' + data + "}"
    return ('{"records":[' + ",".join([record] * count) + "]}").encode()


async def test_the_maximum_number_of_records_is_accepted_whatever_they_contain() -> None:
    large = body(MOST, '[{},{"a":"{"}' + " " * (LARGE_BYTES // MOST) + "]")
    assert len(large) > LARGE_BYTES
    await check_count(large, MOST)


@pytest.mark.parametrize("over", [1, 200_000])
async def test_a_body_with_too_many_records_is_refused(over: int) -> None:
    large = body(MOST + over, "1" + " " * (LARGE_BYTES // MOST if over == 1 else 0))
    with pytest.raises(BatchTooLarge) as refused:
        await check_count(large, MOST)
    assert refused.value.detail == {"field": "records", "max": MOST}


async def test_small_or_invalid_bodies_are_left_to_the_decoder() -> None:
    await check_count(b'{"records":[{' + b"{" * LARGE_BYTES, MOST)
    await check_count(b"\xff" + body(MOST, "{}" + " " * (LARGE_BYTES // MOST)), MOST)
    await check_count(body(MOST + 1, "1"), MOST)
