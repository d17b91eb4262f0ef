"""A broker with a Kafka port, in this process and in a separate loop, so that blocking clients can be used.

with Server(tmp_path / "data") as server:
    Consumer({"bootstrap.servers": server.address, …})

With TOPICS_TEST_CELLS it is a set of cells, which has no `engine` and no `broker`, and does not restart.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from broker.kafka.port import Port
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Options, TopicConfig, home_cell
from tests.conftest import cells_asked_for
from tests.support.cells_in_process import CellsInProcess

PATIENCE_S = 30
SMALL = Options(wal_shards=1, wal_file_bytes=4 << 20, wal_reserve_bytes=1 << 16)

Result = TypeVar("Result")


class Server:
    """Started by `with`. `restart` stops it cleanly or like a crash, and starts another on the same port."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self._set: CellsInProcess | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.run(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run it in the loop of the broker. Done on return."""

        async def whole() -> Result:
            return await work()

        return asyncio.run_coroutine_threadsafe(whole(), self._loop).result(PATIENCE_S)

    def put_topic(self, name: str, config: TopicConfig | None = None) -> None:
        """Make a topic, in its cell if there are several."""
        made = self._set
        engine = self.engine if made is None else made.brokers[home_cell(name, len(made.sockets))].engine
        self.run(lambda: engine.put_topic(name, config))

    def restart(self) -> None:
        self.run(self._stop)
        self.run(self._start)

    async def _start(self) -> None:
        if cells_asked_for() > 1:
            self._set = CellsInProcess(self._data_dir, cells_asked_for(), kafka_port=0, **self._settings)
            await self._set.start()
            self.port = self._set.kafka_ports[0]
            return
        self.engine = Engine(self._data_dir, SMALL)
        await self.engine.start()
        self.broker = Broker(self.engine, Settings(data_dir=self._data_dir, **self._settings))
        listener = socket.create_server(("127.0.0.1", self.port))
        self._port = Port(self.broker, listener)
        self.port = self._port.number
        await self._port.open()

    async def _stop(self) -> None:
        if self._set is not None:
            await self._set.stop()
            return
        self.engine.begin_shutdown()
        await self._port.close(1)
        await self.engine.close()
