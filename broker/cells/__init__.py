"""Cells: several engines, each in its own process, behind one door.

Source: docs/cells.md.
"""

from broker.cells.cells import ENTRY_KIND, Cells, Place
from broker.cells.peers import Method, PeerError, Peers, PeerServer, PeerUnavailable
from broker.cells.placement import home_cell

__all__ = ["ENTRY_KIND", "Cells", "Method", "PeerError", "PeerServer", "PeerUnavailable", "Peers", "Place", "home_cell"]
