"""A cluster: nodes that share one bucket. Each runs the cells that it owns just now.

Source: docs/cells.md.
"""

from broker.cluster.link import RENEW_S, LinkError, LinkTls, from_files, from_secret
from broker.cluster.members import STEADY_S, Held, Member, cluster_map, successor, to_leave, to_spread, to_take
from broker.cluster.owners import Address, ClusterMap, NodeEntry, NodeState, Owner, OwnersFile, write_owners
from broker.cluster.roll import NameTaken, Roll

__all__ = [
    "RENEW_S",
    "STEADY_S",
    "Address",
    "ClusterMap",
    "Held",
    "LinkError",
    "LinkTls",
    "Member",
    "NameTaken",
    "NodeEntry",
    "NodeState",
    "Owner",
    "OwnersFile",
    "Roll",
    "cluster_map",
    "from_files",
    "from_secret",
    "successor",
    "to_leave",
    "to_spread",
    "to_take",
    "write_owners",
]
