"""Runs a gateway from start to stop. A stop goes in order: report not ready, drain, close the sockets, answer the
requests in progress.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from broker.gateway.app import GatewayApp
from broker.gateway.hot import HotForwards
from broker.gateway.ordering import TIMEOUT_S
from broker.server import BrokerServer
from storage.bucket import open_location, parse_location

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway
    from storage.bucket import Bucket

_log = structlog.get_logger("broker.gateway")


class GatewayServer:
    """Serves one gateway on a listening socket."""

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Raises CannotListen if the certificate cannot be used."""
        self._gateway = gateway
        self._app = GatewayApp(gateway, _store_of(gateway))
        dispatcher = self._app.dispatcher
        hot = HotForwards(dispatcher, gateway)
        self.server = BrokerServer(dispatcher, gateway.settings, listener, hot=hot)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    def stop(self) -> None:
        """Begin to stop: called for a signal. A second call shortens the drain."""
        (self._hurry if self._stop.is_set() else self._stop).set()

    async def run(self) -> None:
        """Serve until `stop`."""
        serving = asyncio.create_task(self.server.serve_until_stopped())
        serving.add_done_callback(lambda _: self._stop.set())
        looking = [asyncio.create_task(each) for each in (self._gateway.run(), self._app.status.watch())]
        try:
            await self._stop.wait()
            self._gateway.stopping = True
            _log.info("stopping", drain_ms=self._gateway.settings.drain_ms)
            hurrying = asyncio.create_task(self._hurry.wait())
            await asyncio.wait((hurrying, serving), timeout=self._gateway.settings.drain_ms / 1000)
            hurrying.cancel()
            self.server.request_stop()
            await serving
        finally:
            for task in looking:
                task.cancel()
            self._gateway.close()


def _store_of(gateway: Gateway) -> Callable[[], Bucket] | None:
    """Opens the bucket of the cluster. None: there is no cluster."""
    if (url := gateway.settings.cluster_url) is None:
        return None
    location = parse_location(url)
    return lambda: open_location(location, TIMEOUT_S)
