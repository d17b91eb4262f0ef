"""The relay of a node: it passes connections on between the processes of this node and the cells of other nodes.

Source: docs/cells.md.
"""

from broker.relay.counts import Counts, read_counts
from broker.relay.relay import Relay

__all__ = ["Counts", "Relay", "read_counts"]
