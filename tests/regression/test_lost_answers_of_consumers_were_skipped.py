"""An at-least-once consumer that reads with an attempt_key did not get records that it had not received before.

- The first attempt arrived after its repetition, which had been answered empty. It took records under a key that nobody
  asked for again.
- An answer was lost, its reader was silent for two seconds, and the broker was killed: the cursor was past the records.
- An answer was lost, and the broker stopped cleanly: the cursor was past the records too.

An answer is confirmed by the next read, by a commit, or when the time in which its key may be repeated has passed.
"""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from storage import Engine
from storage.state.consumers.attempts import ANSWER_TTL_MS
from storage.state.consumers.values import ConsumerConfig
from tests.conftest import is_soak
from tests.support.crash_run import until_crash
from tests.support.sim_disk import SimDisk, When
from tests.unit.storage.consumers.consumed import STRICT, add, answer, consumed, cursor, durable, take, turns
from tests.unit.storage.machine import DATA, Machine, options


async def test_a_clean_stop_keeps_the_offset_committed_before_a_lost_answer(machine: Machine) -> None:
    engine = await consumed(machine, 6)
    await engine.consumers.commit_offset("a", "c", 2, b"where it was")
    assert await take(engine, 2, attempt_key="lost") == [3, 4]
    engine = await machine.restart()
    committed = engine.consumers.committed("a", "c")
    assert (committed.seq, committed.metadata) == (2, b"where it was")


#: The calls to the disk at which a stop and a start are interrupted. The soak tier visits every call.
SAMPLE = 10


async def test_a_first_try_after_its_empty_repetition_takes_no_records(machine: Machine) -> None:
    engine = await consumed(machine, 2)
    assert await take(engine, attempt_key="before") == [1, 2]
    assert await take(engine, attempt_key="k", wait_ms=0) == []  # the repetition, which overtook the first attempt
    await add(engine, 2)
    assert await take(engine, attempt_key="k", wait_ms=1000) == []  # the first attempt
    assert await take(engine, attempt_key="next") == [3, 4]


async def test_a_waiting_first_try_takes_no_records_after_its_empty_repetition(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    first = asyncio.ensure_future(take(engine, attempt_key="k", wait_ms=60_000))
    await turns()
    assert await take(engine, attempt_key="k") == []
    await add(engine, 2)
    assert await first == []
    assert await take(engine, attempt_key="next") == [1, 2]


async def silence(machine: Machine, ms: int = 2000) -> None:
    await machine.clock.advance(ms)
    await turns()


@pytest.mark.parametrize("silent_ms", [0, 2000, ANSWER_TTL_MS - 3000])
async def test_silence_within_the_answer_ttl_does_not_confirm_an_answer(machine: Machine, silent_ms: int) -> None:
    engine = await consumed(machine, 6)
    assert await take(engine, 2, attempt_key="received") == [1, 2]
    assert await take(engine, 2, attempt_key="lost") == [3, 4]
    await silence(machine, silent_ms)
    engine = await machine.kill()
    assert await take(engine, 4, attempt_key="lost") in ([3, 4, 5, 6], [1, 2, 3, 4])


async def test_the_end_of_the_answer_ttl_confirms_an_answer(machine: Machine) -> None:
    engine = await consumed(machine, 6)
    assert await take(engine, 2, attempt_key="lost") == [1, 2]
    await silence(machine, ANSWER_TTL_MS - 2000)
    assert durable(engine) == 0
    await silence(machine, 4000)
    assert durable(engine) == 2
    engine = await machine.kill()
    assert await take(engine, 2, attempt_key="lost") == [3, 4]


async def test_silence_confirms_an_answer_without_a_key(machine: Machine) -> None:
    engine = await consumed(machine, 6)
    assert await take(engine, 2) == [1, 2]
    await silence(machine)
    assert durable(engine) == 2


@pytest.mark.parametrize("config", [None, STRICT])
async def test_a_clean_stop_keeps_a_lost_answer_for_its_key(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 6, config)
    await take(engine, 2, attempt_key="received")
    assert await take(engine, 2, attempt_key="lost") == [3, 4]
    engine = await machine.restart()
    again = await answer(engine, 6, attempt_key="lost")
    assert ([each.seq for each in again.result.records], again.repeated, again.cursor_seq) == ([3, 4], True, 4)
    assert await take(engine, 6) == [5, 6]


@pytest.mark.parametrize("config", [None, STRICT])
async def test_reads_after_a_clean_stop_continue_at_the_cursor(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 6, config)
    assert await take(engine, 4, attempt_key="received") == [1, 2, 3, 4]
    engine = await machine.restart()
    assert cursor(engine) == 4
    assert await take(engine, 6, attempt_key="next") == [5, 6]
    engine = await machine.restart()
    assert await take(engine, 6, attempt_key="next") == [5, 6]
    assert await take(engine, 6, attempt_key="more") == []


async def test_an_attempt_key_lives_its_full_ttl_after_a_clean_stop(machine: Machine) -> None:
    engine = await consumed(machine, 6)
    assert await take(engine, 2, attempt_key="lost") == [1, 2]
    await silence(machine, ANSWER_TTL_MS - 2000)
    engine = await machine.restart()
    await silence(machine, ANSWER_TTL_MS - 2000)
    assert (durable(engine), await take(engine, 6, attempt_key="lost")) == (0, [1, 2])
    await silence(machine, 5000)
    assert durable(engine) == 2
    engine = await machine.kill()
    assert await take(engine, 6, attempt_key="lost") == [3, 4, 5, 6]


@pytest.mark.parametrize("to", [0, 2, 5])
async def test_a_seek_after_a_clean_stop_survives_a_kill(machine: Machine, to: int) -> None:
    engine = await consumed(machine, 6)
    assert await take(engine, 2) == [1, 2]
    assert await take(engine, 2, attempt_key="lost") == [3, 4]
    engine = await machine.restart()
    assert durable(engine) == 2
    await engine.consumers.seek("a", "c", seq=to)
    engine = await machine.kill()
    assert await take(engine, 6) == list(range(to + 1, 7))


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("power", [False, True])
async def test_an_interrupted_stop_and_start_skip_no_record(when: When, power: bool) -> None:
    """At calls to the disk from the beginning of the stop on. The reader repeats the key of the lost answer, or uses
    another."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    calls = await cut_short(None, when)
    assert isinstance(calls, int)
    for index in range(calls) if is_soak(os.environ) else sorted(random.sample(range(calls), SAMPLE)):
        machine = await cut_short(index, when)
        assert isinstance(machine, Machine)
        found = machine.disk.power_cut("torn", index) if power else machine.disk.process_kill()
        for key in ("lost", "other"):
            after = await started(found.process_kill(), machine)
            got = await take(after, 6, attempt_key=key)
            got += [] if 6 in got else await take(after, 6, attempt_key="next")
            assert got in ([3, 4, 5, 6], [1, 2, 3, 4, 5, 6], *([[5, 6]] if key == "other" else [])), (index, key)
            await after.close()


async def cut_short(index: int | None, when: When) -> Machine | int:
    """An answer is lost, then the broker stops and starts. Returns the machine, which stops at the call with this
    index. Without an index, returns how many calls there are.
    """
    machine = Machine()
    engine = await consumed(machine, 6)
    assert await take(engine, 2, attempt_key="received") == [1, 2]
    assert await take(engine, 2, attempt_key="lost") == [3, 4]
    begin = len(machine.disk.calls)
    if index is not None:
        machine.disk.crash_at(begin + index, when)
    whole = await until_crash(machine.disk, stopped_and_started(machine, engine))
    if whole is None:
        return machine
    calls = len(machine.disk.calls) - begin
    await whole.close()
    return calls


async def stopped_and_started(machine: Machine, engine: Engine) -> Engine:
    await engine.close()
    return await started(machine.disk, machine)


async def started(disk: SimDisk, machine: Machine) -> Engine:
    engine = Engine(DATA, options(), fs=disk, clock=machine.clock, threaded=False)
    await engine.start()
    return engine
