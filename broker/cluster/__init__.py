"""A cluster: nodes that share one bucket. Each runs the cells that it owns just now.

Source: docs/cells.md.
"""

from broker.cluster.owners import Address, ClusterMap, NodeEntry, NodeState, Owner, OwnersFile, write_owners

__all__ = ["Address", "ClusterMap", "NodeEntry", "NodeState", "Owner", "OwnersFile", "write_owners"]
