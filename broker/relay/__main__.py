"""`python -m broker.relay`: the relay of a node. The supervisor of the node starts it, with the cluster port."""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from broker.cell import end_with, listen_at
from broker.cells import Role, relay_socket
from broker.cluster import LinkError, LinkTls, from_files, from_secret
from broker.lifecycle import ExitCode, tune_garbage_collection
from broker.relay.relay import Relay
from broker.settings import SettingsError, load
from broker.telemetry import log_setup

if TYPE_CHECKING:
    from broker.settings import Settings


def main() -> int:
    """Run the relay until SIGTERM. Returns the exit code of the process, like `python -m broker`."""
    parser = argparse.ArgumentParser(
        prog="python -m broker.relay",
        description="The relay of a node of a cluster. The broker starts it when TOPICS_CLUSTER_URL is set.",
    )
    parser.add_argument("--role", required=True, help="the role that the supervisor passes to this process")
    role = msgspec.json.decode(parser.parse_args().role, type=Role)
    end_with(role.parent)
    try:
        settings, _ = load()
        log_setup.configure(settings.log_level, settings.log_format, "relay")
        uvloop.run(_serve(role, tls_of(settings)))
    except (SettingsError, LinkError) as error:
        print(f"topics: {error}", file=sys.stderr)
        return ExitCode.BAD_SETTINGS
    return ExitCode.OK


def tls_of(settings: Settings) -> LinkTls | None:
    """What the settings give for connections between nodes: certificates in files, the secret, or nothing. Raises
    LinkError."""
    if settings.cluster_cert is not None and settings.cluster_ca is not None:
        return from_files(settings.cluster_cert, settings.cluster_key, settings.cluster_ca)
    if settings.cluster_secret is not None:
        return from_secret(settings.cluster_secret.get_secret_value())
    return None


async def _serve(role: Role, tls: LinkTls | None) -> None:
    assert role.http_fd is not None
    relay = Relay(role, tls, listen_at(relay_socket(Path(role.run))), socket.socket(fileno=role.http_fd))
    running = asyncio.ensure_future(relay.run())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, running.cancel)
    # A terminal sends Ctrl-C to every process of the node. Only the supervisor reacts, and stops them in order.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    tune_garbage_collection()
    await asyncio.wait((running,))
    if not running.cancelled():
        running.result()


if __name__ == "__main__":
    sys.exit(main())
