"""Cells: several engines, each in its own process, at one address.

Source: docs/cells.md.
"""

from broker.cells.addresses import address_in
from broker.cells.cells import Cells, Role
from broker.cells.peers import Method, PeerError, Peers, PeerServer, PeerUnavailable
from broker.cells.restarts import read_restarts, write_restarts
from storage import home_cell

__all__ = [
    "Cells",
    "Method",
    "PeerError",
    "PeerServer",
    "PeerUnavailable",
    "Peers",
    "Role",
    "address_in",
    "home_cell",
    "read_restarts",
    "write_restarts",
]
