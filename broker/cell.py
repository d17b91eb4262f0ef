"""A cell of a set: the broker's process, with unix sockets for gateways and for other cells instead of the public port.

Source: docs/cells.md#processes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from broker.cells import Role
from broker.settings import Settings
from storage import cell_folder

_PR_SET_PDEATHSIG = 1


def settings_of(settings: Settings, role: Role) -> Settings:
    """The settings of a cell, of those of the set: its own directory and Kafka port."""
    assert role.cell is not None
    return settings.model_copy(
        update={
            "data_dir": Path(cell_folder(str(settings.data_dir.absolute()), role.cell)),
            "port_file": None,
            "kafka_port": role.kafka_ports[role.cell] if role.kafka_ports else None,
            "kafka_port_file": None,
        }
    )


def end_with(parent: int) -> None:
    """Kill this process when its parent ends, however that ends: nothing of a killed set outlives it, so that the next
    start finds all directories free."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)  # it has ended already


def plain_settings(settings: Settings) -> Settings:
    """The settings of a cell's HTTP socket: gateways use no TLS."""
    return settings.model_copy(update={"tls_cert": None, "tls_key": None})


def listen_at(path: Path) -> socket.socket:
    """A socket for this user alone. The file that an earlier process left there is replaced."""
    with suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    return listener
