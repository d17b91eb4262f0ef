"""Answers leave in the order of their requests."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from broker.kafka.connection import Outbox


@given(st.lists(st.booleans(), min_size=1, max_size=8).flatmap(lambda kinds: st.tuples(
    st.just(kinds), st.permutations([number for number, late in enumerate(kinds) if late])
)))  # fmt: skip
def test_answers_leave_in_order_whenever_they_are_ready(case: tuple[list[bool], list[int]]) -> None:
    kinds, order = case

    async def run() -> list[bytes | None]:
        sent: list[bytes | None] = []
        outbox = Outbox(lambda error: sent.append(b"failed"))
        futures: dict[int, asyncio.Future[bytes | None]] = {}
        for number, late in enumerate(kinds):
            if late:
                futures[number] = asyncio.get_running_loop().create_future()
                outbox.expect(futures[number], sent.append)  # pyright: ignore[reportArgumentType]
            else:
                outbox.add(b"%d" % number, sent.append)  # pyright: ignore[reportArgumentType]
        for number in order:
            futures[number].set_result(b"%d" % number)
            await asyncio.sleep(0)
        assert len(outbox) == 0
        return sent

    assert asyncio.run(run()) == [b"%d" % number for number in range(len(kinds))]


async def test_failed_answer_is_reported_and_stops_later_answers() -> None:
    sent: list[object] = []
    failures: list[BaseException] = []
    outbox = Outbox(failures.append)
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outbox.expect(future, sent.append)
    outbox.add(b"behind", sent.append)
    future.set_exception(OSError("no"))
    await asyncio.sleep(0)
    assert [str(failure) for failure in failures] == ["no"]
    assert sent == []


async def test_a_closed_outbox_sends_no_answer() -> None:
    sent: list[object] = []
    outbox = Outbox(sent.append)
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    outbox.expect(future, sent.append)
    outbox.close()
    future.set_exception(OSError("no"))
    await asyncio.sleep(0)
    assert sent == []
