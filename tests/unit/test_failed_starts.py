"""A process that cannot be started now, for want of memory or of process numbers, is started later."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any, ClassVar

import pytest

from broker.cells import Role
from broker.node import Node
from broker.node import node as module
from broker.settings import Settings
from broker.supervisor import Child
from broker.telemetry import Notifier


class Process:
    returncode: int | None = None

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def wait(self) -> int:
        await self.ended.wait()
        self.returncode = -9
        return -9

    def send_signal(self, number: int) -> None: ...

    def kill(self) -> None: ...


async def test_a_process_is_started_again_after_a_start_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Process] = []
    calls = 0

    async def spawn(*_: Any, **__: Any) -> Process:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        made.append(Process())
        return made[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    child = Child("cell-00", "broker", Role(set_id="s", count=1, run="/tmp", parent=1), {}, lambda: None)
    task = asyncio.create_task(child.run())
    await asyncio.sleep(0.01)
    made[0].ended.set()  # killed, for example for want of memory
    await asyncio.sleep(1.5)
    assert (task.done(), child.code, len(made)) == (False, None, 2)
    task.cancel()


async def test_a_cell_is_started_once_behind_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "cluster_url": "s3://b/p", "node": "a"})
    node: Any = Node(settings, {}, Notifier.taken_from({}))
    node._role = Role(set_id="s", count=1, run=str(tmp_path), parent=1, node="a")
    node._ports = {0: (None, None)}
    made: list[Process] = []

    async def spawn(*_: Any, **__: Any) -> Process:
        await asyncio.sleep(0.02)  # as a fork and exec take
        made.append(Process())
        return made[-1]

    async def look(_: Any) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    monkeypatch.setattr(node, "_look", look)
    monkeypatch.setattr(module, "to_take", lambda *_: [0])  # the cell is free, and falls to this node
    monkeypatch.setattr(module, "to_leave", lambda *_: [])
    monkeypatch.setattr(node, "_members", lambda _: {})
    monkeypatch.setattr(node, "_offer", lambda *_: None)

    class Roll:
        suspects: frozenset[str] = frozenset()
        plan = None

    await node._act(Roll())
    node._cells[0].ready = True
    made[0].ended.set()  # the process is killed
    while 0 in node._cells:
        await asyncio.sleep(0.001)
    # A round comes while `_watch` starts the process again.
    while not any(not each.returncode for each in made):
        await asyncio.sleep(0.001)
        if asyncio.get_running_loop().time() >= node._waits[0][1] + 0.005 and len(made) == 1:
            await node._act(Roll())
            break
    await asyncio.sleep(0.1)
    assert sum(each.returncode is None for each in made) == 1


async def test_a_node_goes_on_while_no_process_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "cluster_url": "s3://b/p", "node": "a"})
    node: Any = Node(settings, {}, Notifier.taken_from({}))
    node._role = Role(set_id="s", count=2, run=str(tmp_path), parent=1, node="a")
    node._ports = {0: (None, None), 1: (None, None)}
    tried = 0

    async def spawn(*_: Any, **__: Any) -> Process:
        nonlocal tried
        tried += 1
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    class Roll:
        suspects: frozenset[str] = frozenset()
        plan = type("Plan", (), {"drained": ()})()
        members: ClassVar[dict[str, Any]] = {}
        is_anyone_late = False

        async def round(self, *_: Any, **__: Any) -> None: ...

    async def nothing(_: Any) -> None: ...

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spawn)
    for name, made in (("planned", {}), ("spares_for", 1)):
        monkeypatch.setattr(module, name, lambda *_, made=made: made)
    monkeypatch.setattr(node, "_member", lambda **_: None)
    monkeypatch.setattr(node, "_members", lambda _: {})
    monkeypatch.setattr(node, "_note", lambda _: True)
    monkeypatch.setattr(node, "_is_anyone_starting", lambda _: False)
    monkeypatch.setattr(node, "_act", nothing)
    keeping = asyncio.create_task(node._keep(Roll(), ""))
    await asyncio.wait((keeping,), timeout=2.5)
    assert not keeping.done()  # a spare process can wait: the cells of the node run
    assert tried > 1
    keeping.cancel()
