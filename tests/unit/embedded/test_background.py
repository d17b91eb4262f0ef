"""The loop behind the blocking engine: an interrupt cancels the interrupted thread's work, at any moment."""

from __future__ import annotations

import _weakrefset
import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from storage.blocking.background import BackgroundLoop
from storage.errors import ShuttingDown


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


def test_calls_behind_the_end_are_refused_and_leave_nothing() -> None:
    background = BackgroundLoop(_nothing, _nothing)
    background.stop()
    background.stop()
    for _ in range(3):
        with pytest.raises(ShuttingDown):
            background.run(_nothing)
    assert not background._calls  # pyright: ignore[reportPrivateUsage]


def test_an_interrupt_at_any_step_of_a_call_leaves_the_loop_usable(background: BackgroundLoop) -> None:
    steps = _steps_until_interrupt(lambda: background.run(lambda: asyncio.sleep(0.001)), at=None)
    assert steps > 50
    answers: list[int] = []
    for step in range(1, steps):
        with suppress(KeyboardInterrupt):
            _steps_until_interrupt(lambda: background.run(lambda: asyncio.sleep(0.001)), at=step)
        other = threading.Thread(target=lambda: answers.append(background.run(_left_in_the_end)), daemon=True)
        other.start()
        other.join(10)
        assert len(answers) == step, f"The loop is stuck after an interrupt at step {step} of {steps}."


def _steps_until_interrupt(call: Callable[[], Any], at: int | None) -> int:
    """Make the call with a KeyboardInterrupt at the step of the interpreter, in whatever function; the steps taken."""
    steps = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename == _weakrefset.__file__:
            return None  # the interpreter drops what callbacks of weak references raise
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


async def _left_in_the_end() -> int:
    """Returns when no work is left."""
    while await _left() > 1:
        await asyncio.sleep(0)
    return 0


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
