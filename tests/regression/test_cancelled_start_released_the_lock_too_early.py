"""A cancelled start released .lock while its recovery thread was still repairing files."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from storage import Durability, Engine, TopicConfig
from tests.support.crash_run import SMALL
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Gate, SimDisk


async def test_the_lock_is_held_until_recovery_has_stopped_touching_files() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 2, config=TopicConfig(durability=Durability.FSYNC))
    disk = session.disk.process_kill()
    gate = disk.hold("sync", "*/wal-*")
    start = asyncio.ensure_future(Engine(ROOT, SMALL, fs=disk).start())
    await asyncio.to_thread(gate.wait_held)
    got_in: list[float] = []
    rival = threading.Thread(target=_wait_for_lock, args=(disk, gate, got_in))
    rival.start()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await asyncio.to_thread(rival.join)
    assert got_in == []
    disk.lock(f"{ROOT}/.lock").release()


def _wait_for_lock(disk: SimDisk, gate: Gate, got_in: list[float]) -> None:
    """Another process tries to open the directory while recovery of the first one is held up."""
    begin = time.monotonic()
    while time.monotonic() < begin + 0.3 and not got_in:
        try:
            disk.lock(f"{ROOT}/.lock").release()
            got_in.append(time.monotonic() - begin)
        except BlockingIOError:
            time.sleep(0.005)
    gate.open()
