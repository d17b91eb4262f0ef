"""An answer that a callback of the engine delivers: called, awaited, or given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.api.request import Pending, Result, awaited, drop
from broker.content import Answer
from storage.errors import InvalidRequest


def finish(outcome: bytes) -> Answer:
    if outcome == b"bad":
        raise RuntimeError("a defect")
    return Answer(outcome)


async def later(text: bytes) -> Answer:
    await asyncio.sleep(0)
    return Answer(text)


def body_of(result: Result | None) -> bytes:
    assert isinstance(result, Answer)
    return result.body


@pytest.mark.parametrize("is_early", [True, False])
def test_a_callback_is_called_once(is_early: bool) -> None:
    results: list[Result] = []
    pending = Pending(finish)
    if is_early:
        pending.resolve(b"done")
        pending.then(results.append)
    else:
        pending.then(results.append)
        assert results == []
        pending.resolve(b"done")
    assert [body_of(each) for each in results] == [b"done"]


def test_errors_of_the_engine_and_of_finishing_are_results() -> None:
    results: list[Result] = []
    refusal = InvalidRequest("no", field="x")
    for outcome in (refusal, b"bad"):
        pending = Pending(finish)
        pending.then(results.append)
        pending.resolve(outcome)
    assert results[0] is refusal
    assert isinstance(results[1], RuntimeError)


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_pending_answer_can_be_awaited(is_early: bool) -> None:
    pending = Pending(finish)
    if is_early:
        pending.resolve(b"done")
    else:
        asyncio.get_running_loop().call_soon(pending.resolve, b"done")
    assert (await awaited(pending)).body == b"done"


async def test_an_error_is_raised_to_the_awaiting_task() -> None:
    pending = Pending(finish)
    pending.resolve(InvalidRequest("no", field="x"))
    with pytest.raises(InvalidRequest):
        await pending


async def test_after_leave_the_fallback_is_awaited() -> None:
    pending = Pending(finish, lambda: later(b"instead"))
    asyncio.get_running_loop().call_soon(pending.leave)
    assert (await pending).body == b"instead"


async def test_an_answer_that_comes_after_a_cancellation_is_withdrawn() -> None:
    withdrawn: list[bytes] = []
    pending = Pending(lambda outcome: Answer(outcome, withdraw=lambda: withdrawn.append(outcome)))
    waiting = asyncio.ensure_future(awaited(pending))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))
    pending.resolve(b"jobs")
    assert withdrawn == [b"jobs"]


async def test_dropped_work_is_not_begun() -> None:
    work: Any = later(b"never")
    drop(work)
    with pytest.raises(RuntimeError, match="cannot reuse already awaited"):
        await work


async def test_a_cancelled_task_resolves_with_an_error() -> None:
    async def cancelled() -> bytes:
        raise asyncio.CancelledError

    with pytest.raises(InvalidRequest):
        await Pending(finish).run(cancelled(), lambda: InvalidRequest("gone", field="x"))
