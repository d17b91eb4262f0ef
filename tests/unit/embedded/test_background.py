"""The loop behind the blocking engine: an interrupt cancels the interrupted thread's work, at any moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storage.blocking.background import BackgroundLoop


async def _nothing() -> None:
    pass


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    background = BackgroundLoop(_nothing, _nothing)
    yield background
    background.stop()


@pytest.mark.parametrize("told", [True, False], ids=["behind", "in front"])
def test_an_interrupt_while_work_is_submitted_leaves_no_work_behind(
    background: BackgroundLoop, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = background._loop  # pyright: ignore[reportPrivateUsage]
    fall_back = loop.call_soon_threadsafe
    interrupts = [KeyboardInterrupt()]
    begun, ended = threading.Event(), threading.Event()

    def interrupted(callback: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() or not interrupts:
            return fall_back(callback, *arguments, **named)
        if told:
            fall_back(callback, *arguments, **named)
            begun.wait(10)
        raise interrupts.pop()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        background.run(forever)
    assert ended.wait(10 if told else 0) is told
    assert background.run(_left) == 1


async def _left() -> int:
    """Number of tasks besides that of the loop's life."""
    return len(asyncio.all_tasks()) - 1


def test_results_and_errors_of_work_reach_the_caller(background: BackgroundLoop) -> None:
    async def fails() -> None:
        raise LookupError("of the work")

    def is_none() -> Any:
        raise TypeError("not begun")

    with pytest.raises(LookupError, match="of the work"):
        background.run(fails)
    with pytest.raises(TypeError, match="not begun"):
        background.run(is_none)
    assert background.call(len, "abc") == 3
