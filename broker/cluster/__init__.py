"""A cluster: nodes that share one bucket. Each runs the cells that it owns just now.

Source: docs/cells.md.
"""

from broker.cluster.link import RENEW_S, LinkError, LinkTls, from_files, from_secret, is_loopback
from broker.cluster.owners import Address, ClusterMap, NodeEntry, NodeState, Owner, OwnersFile, write_owners

__all__ = [
    "RENEW_S",
    "Address",
    "ClusterMap",
    "LinkError",
    "LinkTls",
    "NodeEntry",
    "NodeState",
    "Owner",
    "OwnersFile",
    "from_files",
    "from_secret",
    "is_loopback",
    "write_owners",
]
