"""Cells: several engines, each in its own process, at one address.

Source: docs/cells.md.
"""

from broker.cells.addresses import address_in
from broker.cells.cells import Cells, Role
from broker.cells.ownership import Owner
from broker.cells.peers import Method, PeerError, Peers, PeerServer, PeerUnavailable
from broker.cells.relayed import (
    CONNECTED,
    MAX_LINE_BYTES,
    Kind,
    Wanted,
    connect_relayed,
    line_of,
    relay_socket,
    wanted_in,
)
from broker.cells.restarts import read_restarts, write_restarts
from storage import home_cell

__all__ = [
    "CONNECTED",
    "MAX_LINE_BYTES",
    "Cells",
    "Kind",
    "Method",
    "Owner",
    "PeerError",
    "PeerServer",
    "PeerUnavailable",
    "Peers",
    "Role",
    "Wanted",
    "address_in",
    "connect_relayed",
    "home_cell",
    "line_of",
    "read_restarts",
    "relay_socket",
    "wanted_in",
    "write_restarts",
]
