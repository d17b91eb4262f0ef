"""Runs a gateway from start to stop. A stop goes in order: report not ready, drain, close the sockets, answer the
requests in progress.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import structlog

from broker.gateway.app import GatewayApp
from broker.gateway.hot import HotForwards
from broker.server import BrokerServer

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway

_log = structlog.get_logger("broker.gateway")


class GatewayServer:
    """Serves one gateway on a listening socket."""

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Raises CannotListen if the certificate cannot be used."""
        self._gateway = gateway
        self._app = GatewayApp(gateway)
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
