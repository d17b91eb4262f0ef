"""The relay of a node: it passes connections on between the processes of this node and the cells of other nodes.

Source: docs/cells.md.
"""

from broker.relay.relay import Relay

__all__ = ["Relay"]
