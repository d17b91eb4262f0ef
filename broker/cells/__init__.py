"""Cells: several engines, each in its own process, at one address.

Source: docs/cells.md.
"""

from broker.cells.cells import Cells, Role
from broker.cells.peers import Method, PeerError, Peers, PeerServer, PeerUnavailable
from storage import home_cell

__all__ = ["Cells", "Method", "PeerError", "PeerServer", "PeerUnavailable", "Peers", "Role", "home_cell"]
