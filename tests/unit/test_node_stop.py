"""The order in which a node ends its processes, and that it ends when one of them hangs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from broker.node import Node
from broker.node import node as module
from broker.settings import Settings
from broker.telemetry import Notifier


class Process:
    """Stands in for a process that ends a moment after it was asked to, and notes both."""

    returncode = None

    def __init__(self, name: str, log: list[str], *, hangs: bool = False) -> None:
        self._name = name
        self._log = log
        self._hangs = hangs
        self._asked = asyncio.Event()
        self.process = self
        self.name = name

    def stop(self) -> None:
        self._log.append(f"stop {self._name}")
        if not self._hangs:
            self._asked.set()

    def signal(self, number: int) -> None:
        if number == signal.SIGKILL:
            self.kill("")
        else:
            self.stop()

    def kill(self, why: str) -> None:
        self._log.append(f"kill {self._name}")
        self._asked.set()

    async def run(self) -> None:
        await self._asked.wait()
        await asyncio.sleep(0.01)
        self._log.append(f"{self._name} ended")


class Nobody:
    async def leave(self) -> None: ...

    async def close(self) -> None: ...


NAMES = ("relay", "gateway", "cell")


def stopping(folder: Path, log: list[str], hangs: str = "") -> Any:
    """A node with three processes, of which one may hang."""
    settings = Settings.model_validate({"data_dir": folder, "cluster_url": "s3://b/p", "node": "a"})
    node: Any = Node(settings, {}, Notifier.taken_from({}))
    made = {name: Process(name, log, hangs=name == hangs) for name in NAMES}
    tasks = {name: asyncio.create_task(each.run()) for name, each in made.items()}
    node._children = [(made[name], tasks[name]) for name in ("relay", "gateway")]
    node._cells = {0: made["cell"]}
    node._watching = {tasks["cell"]}
    node._peers = Nobody()
    return node


async def test_the_relay_ends_behind_the_cells_which_may_call_other_nodes_until_they_end(tmp_path: Path) -> None:
    log: list[str] = []
    await stopping(tmp_path, log)._wind_down(Nobody())
    assert log == ["stop gateway", "gateway ended", "stop cell", "cell ended", "stop relay", "relay ended"]


@pytest.mark.parametrize("hangs", NAMES)
async def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    monkeypatch.setattr(module, "END_S", 0.2)
    log: list[str] = []
    async with asyncio.timeout(20):
        await stopping(tmp_path, log, hangs)._wind_down(Nobody())
    assert [each for each in log if each.startswith("kill")] == [f"kill {hangs}"]
    assert {f"{name} ended" for name in NAMES} <= {*log}


@pytest.mark.parametrize("hangs", NAMES)
async def test_a_second_signal_shortens_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: str) -> None:
    monkeypatch.setattr(module, "END_S", 3600.0)
    for name in ("HURRIED_END_S", "HURRIED_CELL_S"):
        monkeypatch.setattr(module, name, 0.2)
    log: list[str] = []
    node = stopping(tmp_path, log, hangs)
    node._on_signal()
    ending = asyncio.create_task(node._wind_down(Nobody()))
    async with asyncio.timeout(20):
        while f"stop {hangs}" not in log:
            await asyncio.sleep(0.01)
        node._on_signal()
        await ending
    assert log.count(f"stop {hangs}") == 2, "its drain is shortened too"
    assert [each for each in log if each.startswith("kill")] == [f"kill {hangs}"]


async def test_a_process_that_cannot_be_killed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_S", 0.05)
    monkeypatch.setattr(module, "KILLED_S", 0.05)
    log: list[str] = []
    node = stopping(tmp_path, log, "cell")

    def kill(why: str) -> None:
        log.append("kill cell")

    monkeypatch.setattr(node._cells[0], "kill", kill)
    async with asyncio.timeout(20):
        await node._wind_down(Nobody())
    assert "kill cell" in log
    assert "cell ended" not in log
    assert "relay ended" in log
