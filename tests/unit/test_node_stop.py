"""The order in which a node ends its processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from broker.node import Node
from broker.settings import Settings
from broker.telemetry import Notifier


class Process:
    """Stands in for a process that ends a moment after it was asked to, and notes both."""

    returncode = None

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self._asked = asyncio.Event()
        self.process = self

    def stop(self) -> None:
        self._log.append(f"stop {self._name}")
        self._asked.set()

    def signal(self, number: int) -> None:
        self.stop()

    async def run(self) -> None:
        await self._asked.wait()
        await asyncio.sleep(0.01)
        self._log.append(f"{self._name} ended")


class Nobody:
    async def leave(self) -> None: ...

    async def close(self) -> None: ...


async def test_the_relay_ends_behind_the_cells_which_may_call_other_nodes_until_they_end(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "cluster_url": "s3://b/p", "node": "a"})
    node: Any = Node(settings, {}, Notifier.taken_from({}))
    log: list[str] = []
    made = {name: Process(name, log) for name in ("relay", "gateway", "cell")}
    tasks = {name: asyncio.create_task(each.run()) for name, each in made.items()}
    node._children = [(made[name], tasks[name]) for name in ("relay", "gateway")]
    node._cells = {0: made["cell"]}
    node._watching = {tasks["cell"]}
    node._peers = Nobody()
    await node._wind_down(Nobody())
    assert log == ["stop gateway", "gateway ended", "stop cell", "cell ended", "stop relay", "relay ended"]
