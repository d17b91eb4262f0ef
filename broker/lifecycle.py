"""The life of a broker process: listening before recovery, serving, stopping in order.

    listen → recover → serve, Kafka clients too → [signal] not ready, answer waiting requests → drain → close sockets
           → requests in flight end → engine closed → exit

A signal during recovery abandons it; a second signal ends the drain early. Neither skips closing the engine.

Source: docs/guides/deploy.md#start-and-stop.
"""

from __future__ import annotations

import asyncio
import enum
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from broker import VERSION
from broker.net import write_port_file
from broker.server import BrokerServer
from broker.settings import OnStorageFailed
from broker.telemetry import EXTEND, Notifier
from broker.wiring import Broker
from storage import StorageError

if TYPE_CHECKING:
    from broker.kafka import Port as KafkaPort

_log = structlog.get_logger("broker")


class ExitCode(enum.IntEnum):
    OK = 0
    CANNOT_START = 1
    BAD_SETTINGS = 2
    STORAGE_FAILED = 70
    #: The process is not the owner of its cell any more: another one is, or may be.
    FENCED = 71
    #: The bucket has not answered for too long.
    STORE_SILENT = 72
    #: The bucket does not do what it must, or the clock of this machine is wrong.
    STORE_REFUSED = 73


class Lifecycle:
    """Runs one broker from listening to exit."""

    def __init__(
        self,
        broker: Broker,
        server: BrokerServer,
        notifier: Notifier | None = None,
        kafka: KafkaPort | None = None,
        direct: BrokerServer | None = None,
    ) -> None:
        """`direct`: a second server, for the clients that go to this cell without a gateway."""
        self._broker = broker
        self._kafka = kafka
        self._server = server
        self._direct = direct
        self._servers = (server,) if direct is None else (server, direct)
        self._notifier = notifier or Notifier()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._exit_code = ExitCode.OK
        #: The process that this one gives its cell to, by its nonce.
        self._successor: str | None = None

    async def give(self, successor: str) -> bool:
        """Begin to give the cell of a cluster to the process of that nonce, which waits for it already."""
        if self._broker.owner is None or self._stop.is_set():
            return False
        self._successor = successor
        self._hurry.set()
        self._stop.set()
        return True

    def stop(self) -> None:
        """Called for a signal. A second call shortens the drain."""
        if self._stop.is_set():
            _log.info("stopping_at_once")
            self._hurry.set()
        else:
            _log.info("stopping", drain_ms=self._broker.settings.drain_ms)
            self._stop.set()

    async def run(self) -> ExitCode:
        """Run until the broker is stopped or cannot continue. Returns the exit code of the process."""
        serving = [asyncio.create_task(server.serve_until_stopped()) for server in self._servers]
        for task in serving:
            # If a server ends by itself, the process ends too.
            task.add_done_callback(lambda _: self._stop.set())
        notifying = asyncio.create_task(self._notifier.repeat(self._state))
        await _first(_all(server.listening() for server in self._servers), self._stop.wait())
        recovering = asyncio.create_task(self._recover())
        await self._stop.wait()
        await self._wind_down(partial(self._end_serving, recovering, serving))
        notifying.cancel()
        return self._exit_code

    def _state(self) -> list[str]:
        """The lines that are sent to the service manager again and again."""
        if self._broker.stopping:
            return [EXTEND]
        if self._broker.engine.ready:
            return []
        return [f"STATUS=Recovering: {self._broker.engine.recovery_progress:.0%} of the log.", EXTEND]

    def _announce(self) -> None:
        settings = self._broker.settings
        if settings.port_file is not None:
            write_port_file(settings.port_file, self._server.port)
        url = self._server.url
        _log.info("listening", url=url, docs=f"{url}/docs", data_dir=str(settings.data_dir.absolute()), version=VERSION)
        if self._direct is not None:
            _log.info("listening_directly", url=self._direct.url)

    async def _recover(self) -> None:
        engine = self._broker.engine
        engine.on_shard_failed = self._shard_failed
        try:
            self._announce()
            if not engine.ready:  # the process of a cell in a bucket is its owner before it listens
                await engine.start()
            self._broker.proxy.start()
            if self._broker.cells is not None:
                await self._broker.cells.start()
            if self._kafka is not None:
                # Not before: a Kafka client retries a refused connection, but it takes an answer as final. Metadata
                # without brokers is one, for librdkafka.
                if self._broker.owner is not None and self._broker.cells is not None:
                    await self._broker.cells.known(self._broker.owner.generation)
                await self._kafka.open()
        except (StorageError, OSError) as error:
            _log.error("cannot_start", reason=_reason(error), data_dir=str(self._broker.settings.data_dir))
            self._fail(ExitCode.CANNOT_START)
            return
        except Exception as error:
            _log.error("cannot_start", reason="the engine failed unexpectedly", exc_info=error)
            self._fail(ExitCode.CANNOT_START)
            return
        tune_garbage_collection()
        self._broker.pressure.start()
        self._broker.overview.start()
        self._notifier.notify("READY=1", f"STATUS=Serving at {self._server.url}.")
        _log.info("ready", url=self._server.url, cluster_id=engine.cluster_id)

    def _shard_failed(self, shard: int, number: int | None) -> None:
        """With TOPICS_ON_STORAGE_FAILED=exit the process ends, after requests that wait for the shard are answered."""
        if self._broker.settings.on_storage_failed is OnStorageFailed.EXIT:
            _log.error("stopping_for_failed_storage", shard=shard, errno=number)
            self._fail(ExitCode.STORAGE_FAILED)

    def _fail(self, code: ExitCode) -> None:
        self._exit_code = code
        self._hurry.set()
        self._stop.set()

    async def _wind_down(self, end_serving: Callable[[], Awaitable[None]]) -> None:
        owner = self._broker.owner
        try:
            if owner is not None and self._successor is not None:
                await owner.give(self._successor, end_serving)
            else:
                await end_serving()
                await (self._broker.engine if owner is None else owner).close()
        except (StorageError, OSError) as error:
            _log.error("unclean_stop", reason=_reason(error))
            self._exit_code = ExitCode.STORAGE_FAILED
        _log.info("stopped", exit_code=int(self._exit_code))

    async def _end_serving(self, recovering: asyncio.Task[None], serving: Sequence[asyncio.Task[None]]) -> None:
        self._broker.stopping = True
        self._notifier.notify("STOPPING=1", "STATUS=Stopping.", EXTEND)
        recovering.cancel()
        await asyncio.wait((recovering,))
        self._broker.proxy.shut_down()
        self._broker.engine.begin_shutdown()
        await _first(self._hurry.wait(), asyncio.sleep(self._broker.settings.drain_ms / 1000))
        self._broker.pressure.stop()
        self._broker.overview.stop()
        self._broker.live.shut_down()
        for server in self._servers:
            server.request_stop()
        if self._kafka is not None:
            await self._kafka.close()
        await asyncio.gather(*serving)
        await self._broker.proxy.stop()
        if self._broker.cells is not None:
            await self._broker.cells.stop()


async def _all(waits: Iterable[Coroutine[Any, Any, Any]]) -> None:
    await asyncio.gather(*waits)


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until the first of them is done; then cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _reason(error: Exception) -> str:
    if isinstance(error, StorageError):
        detail = ", ".join(f"{name} {value}" for name, value in error.detail.items())
        return f"{error.message} ({detail})" if detail else error.message
    return str(error)


def tune_garbage_collection() -> None:
    """Exclude objects that live as long as the process from collection, and collect young objects less often.

    Requests make few cycles; with the default thresholds the collector shows in latencies (docs/architecture.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
