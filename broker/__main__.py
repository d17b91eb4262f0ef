"""`python -m broker`: start the broker with the settings of the `TOPICS_*` environment variables."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import structlog
import uvloop

import kernel
from broker import VERSION, log_events
from broker.api import build_app
from broker.kafka import BoundPort, bind_port
from broker.lifecycle import ExitCode, Lifecycle
from broker.net import CannotListen, listen
from broker.notify import Notifier
from broker.server import BrokerServer
from broker.settings import Settings, SettingsError, described, load
from broker.tracing import start as start_tracing
from broker.wiring import Broker
from storage import Engine
from storage.platform import bound_heaps

if TYPE_CHECKING:
    from broker.tracing import Tracing

_log = structlog.get_logger("broker")

#: The writer threads sync while the loop works. After its sync, a thread needs the interpreter's lock, and should not
#: wait for it as long as for the sync itself. CPython's default is 5 ms.
SWITCH_INTERVAL_S = 0.0005

#: What each heap may keep when it is freed. Only this bound returns the end of a thread's heap: malloc_trim
#: (`broker.memory.giving`) handles the memory between its blocks.
_FREE_HEAP_BYTES = 4 << 20


def main() -> int:
    """Run the broker. Returns the exit code: 0 stopped, 1 cannot start, 2 bad settings, 70 storage failed."""
    parser = argparse.ArgumentParser(
        prog="python -m broker",
        description="Run the topics broker. Its settings are environment variables (the default is in brackets):\n\n"
        + described(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=VERSION)
    parser.parse_args()
    try:
        settings, warnings = load()
        log_events.configure(settings.log_level, settings.log_format)
        for warning in warnings:
            _log.warning("setting_ignored", reason=warning)
        if not kernel.COMPILED:
            _log.info("kernel_in_python", reason=kernel.REASON)
        tracing = start_tracing(settings)
        bound_heaps(free_bytes=_FREE_HEAP_BYTES, heaps=0)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        listener = listen(settings.host, settings.port)
        kafka = bind_port(settings)
        return uvloop.run(_serve(settings, listener, kafka, Notifier.taken_from(os.environ), tracing))
    except SettingsError as error:
        print(f"topics: {error}", file=sys.stderr)
        return ExitCode.BAD_SETTINGS
    except CannotListen as error:
        print(f"topics: {error}", file=sys.stderr)
        return ExitCode.CANNOT_START


async def _serve(
    settings: Settings,
    listener: socket.socket,
    kafka: BoundPort | None,
    notifier: Notifier,
    tracing: Tracing | None,
) -> ExitCode:
    broker = Broker(Engine(str(settings.data_dir.absolute()), settings.storage_options()), settings, tracing)
    server = BrokerServer(build_app(broker), settings, listener)
    lifecycle = Lifecycle(broker, server, notifier, None if kafka is None else kafka.port(broker))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lifecycle.stop)
    code = await lifecycle.run()
    if tracing is not None:
        await asyncio.to_thread(tracing.close)
    return code


if __name__ == "__main__":
    sys.exit(main())
