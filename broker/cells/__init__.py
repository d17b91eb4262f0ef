"""Cells: several engines, each in its own process, behind one door.

Source: docs/cells.md.
"""

from broker.cells.peers import Method, PeerError, Peers, PeerServer, PeerUnavailable
from broker.cells.placement import home_cell

__all__ = ["Method", "PeerError", "PeerServer", "PeerUnavailable", "Peers", "home_cell"]
