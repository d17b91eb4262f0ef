"""`python -m broker`: start the broker with the settings of the `TOPICS_*` environment variables."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import structlog
import uvloop

import kernel
from broker import VERSION
from broker.api import build_app
from broker.cell import become_owner, end_with, listen_at, make_owner, plain_settings, settings_of, show_as, standing
from broker.cells import Cells, Role
from broker.kafka import BoundPort, bind_port
from broker.lifecycle import ExitCode, Lifecycle
from broker.net import CannotListen, listen
from broker.node import Node, wait_for_role
from broker.server import BrokerServer
from broker.settings import Settings, SettingsError, described, load
from broker.supervisor import Supervisor
from broker.telemetry import Notifier
from broker.telemetry import log_setup as log_events
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
#: (`broker.memory.malloc_trim`) handles the memory between its blocks.
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
    parser.add_argument("--role", help=argparse.SUPPRESS)  # given by the supervisor of a set of cells
    parser.add_argument("--spare", type=int, help=argparse.SUPPRESS)  # given by a node; see broker.node.spares
    given = parser.parse_args()
    environment = dict(os.environ)
    try:
        if given.spare is None:
            role = None if given.role is None else msgspec.json.decode(given.role, type=Role)
        elif (role := wait_for_role(given.spare)) is None:
            return ExitCode.OK
        settings, warnings = load()
        if role is not None:
            end_with(role.parent)
            show_as(role.process)
            settings = settings_of(settings, role)
        log_events.configure(settings.log_level, settings.log_format, None if role is None else role.process)
        for warning in warnings if role is None else ():
            _log.warning("setting_ignored", reason=warning)
        if role is None and settings.cluster_url is not None:
            return asyncio.run(Node(settings, environment, Notifier.taken_from(os.environ)).run())
        if role is None and settings.cells > 1:
            return asyncio.run(Supervisor(settings, environment, Notifier.taken_from(os.environ)).run())
        if not kernel.COMPILED:
            _log.info("kernel_in_python", reason=kernel.REASON)
        tracing = start_tracing(settings)
        bound_heaps(free_bytes=_FREE_HEAP_BYTES, heaps=0)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        notifier = Notifier.taken_from(os.environ)
        if role is None:
            listeners = _Listeners.of(settings)
            return uvloop.run(_serve(settings, lambda: listeners, notifier, tracing, role))
        return uvloop.run(_serve(settings, partial(_cell_listeners, settings, role), notifier, tracing, role))
    except SettingsError as error:
        print(f"topics: {error}", file=sys.stderr)
        return ExitCode.BAD_SETTINGS
    except CannotListen as error:
        print(f"topics: {error}", file=sys.stderr)
        return ExitCode.CANNOT_START


class _Listeners(NamedTuple):
    """The listening sockets of a process. `direct`: of a cell, for HTTP clients that do not go through a gateway."""

    http: socket.socket
    kafka: BoundPort | None
    direct: socket.socket | None = None

    @staticmethod
    def of(settings: Settings) -> _Listeners:
        """The listeners of a broker that is one process. Raises CannotListen."""
        return _Listeners(listen(settings.host, settings.port), bind_port(settings))


def _cell_listeners(settings: Settings, role: Role) -> _Listeners:
    """The listeners of a cell. Its ports are inherited."""
    assert role.cell is not None
    kafka, direct = (None if fd is None else socket.socket(fileno=fd) for fd in (role.kafka_fd, role.http_fd))
    return _Listeners(listen_at(role.http_socket(role.cell)), bind_port(settings, kafka), direct)


async def _serve(
    settings: Settings,
    listeners_of: Callable[[], _Listeners],
    notifier: Notifier,
    tracing: Tracing | None,
    role: Role | None,
) -> ExitCode:
    cell, owner, loop = None if role is None else role.cell, None, asyncio.get_running_loop()
    # A terminal sends Ctrl-C to all processes of a set; the supervisor stops them in order.
    if role is not None:
        loop.add_signal_handler(signal.SIGINT, lambda: None)
    if role is None or not role.nonce:
        engine = Engine(str(settings.data_dir.absolute()), settings.storage_options(cell))
    else:
        owner = make_owner(settings, role)
        engine = owner.engine
    cells = None if role is None else Cells(role, engine, None if owner is None else owner.may_answer)
    broker = Broker(engine, settings, tracing, cells, owner)
    app = build_app(broker)
    if owner is not None and role is not None and not await become_owner(owner, settings, role):
        return ExitCode.CANNOT_START
    # Not before: until this process owns its cell, other nodes answer for it.
    listeners = listeners_of()
    server = BrokerServer(app, settings if role is None else plain_settings(settings), listeners.http)
    direct = None if listeners.direct is None else BrokerServer(app, settings, listeners.direct, beside=server)
    kafka = None if listeners.kafka is None else listeners.kafka.port(broker)
    lifecycle = Lifecycle(broker, server, notifier, kafka, direct)
    if owner is not None and cells is not None and role is not None:
        cells.handlers |= {"give": lifecycle.give, "standing": partial(standing, owner, role.nonce)}
    loop.add_signal_handler(signal.SIGTERM, lifecycle.stop)
    if role is None:
        loop.add_signal_handler(signal.SIGINT, lifecycle.stop)
    code = await lifecycle.run()
    if tracing is not None:
        await asyncio.to_thread(tracing.close)
    return code


if __name__ == "__main__":
    sys.exit(main())
