"""`python -m broker.gateway`: one gateway of a set of cells. The supervisor of the set starts it."""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys

import msgspec
import uvloop

from broker.cell import end_with
from broker.cells import Role
from broker.gateway.gateway import Gateway
from broker.gateway.serving import GatewayServer
from broker.lifecycle import ExitCode, tune_garbage_collection
from broker.net import CannotListen
from broker.settings import Settings, SettingsError, load
from broker.telemetry import log_setup as log_events


def main() -> int:
    """Run the gateway. Returns the exit code of the process, like `python -m broker`."""
    parser = argparse.ArgumentParser(
        prog="python -m broker.gateway",
        description="A gateway of a set of cells. The broker starts it when TOPICS_CELLS is more than 1.",
    )
    parser.add_argument("--role", required=True, help="the role that the supervisor passes to this process")
    role = msgspec.json.decode(parser.parse_args().role, type=Role)
    end_with(role.parent)
    try:
        settings, _ = load()
        log_events.configure(settings.log_level, settings.log_format, role.process)
        uvloop.run(_serve(settings, role))
    except (SettingsError, CannotListen) as error:
        print(f"topics: {error}", file=sys.stderr)
        return ExitCode.BAD_SETTINGS if isinstance(error, SettingsError) else ExitCode.CANNOT_START
    return ExitCode.OK


async def _serve(settings: Settings, role: Role) -> None:
    sockets = [role.http_socket(cell) for cell in range(role.count)]
    gateway = Gateway(
        settings, sockets, role.set_id, http_ports=role.http_ports, kafka_ports=role.kafka_ports, cluster=role.owners
    )
    assert role.http_fd is not None
    server = GatewayServer(gateway, socket.socket(fileno=role.http_fd))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, server.stop)
    # A terminal sends Ctrl-C to every process of the set. Only the supervisor reacts, and stops them in order.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    tune_garbage_collection()
    await server.run()


if __name__ == "__main__":
    sys.exit(main())
