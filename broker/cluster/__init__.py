"""A cluster: nodes that share one bucket. Each runs the cells that it owns just now.

Source: docs/cells.md.
"""

from broker.cluster.counts import NodeCounts, read_node_counts, write_node_counts
from broker.cluster.link import RENEW_S, LinkError, LinkTls, from_files, from_secret
from broker.cluster.members import (
    MAX_SPARES,
    STEADY_S,
    Held,
    Member,
    cluster_map,
    planned,
    spares_for,
    successor,
    to_leave,
    to_move,
    to_spread,
    to_take,
    without,
)
from broker.cluster.owners import Address, ClusterMap, NodeEntry, NodeState, Owner, OwnersFile, Takeover, write_owners
from broker.cluster.plan import Plan, newest, order
from broker.cluster.roll import NameTaken, Roll
from broker.cluster.standing import WAITING, Standing, read_standing, write_standing

__all__ = [
    "MAX_SPARES",
    "RENEW_S",
    "STEADY_S",
    "WAITING",
    "Address",
    "ClusterMap",
    "Held",
    "LinkError",
    "LinkTls",
    "Member",
    "NameTaken",
    "NodeCounts",
    "NodeEntry",
    "NodeState",
    "Owner",
    "OwnersFile",
    "Plan",
    "Roll",
    "Standing",
    "Takeover",
    "cluster_map",
    "from_files",
    "from_secret",
    "newest",
    "order",
    "planned",
    "read_node_counts",
    "read_standing",
    "spares_for",
    "successor",
    "to_leave",
    "to_move",
    "to_spread",
    "to_take",
    "without",
    "write_node_counts",
    "write_owners",
    "write_standing",
]
