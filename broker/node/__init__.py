"""A node of a cluster: the process that starts and ends the others.

Source: docs/cluster.md#nodes.
"""

from broker.node.node import DRAIN_S, Node

__all__ = ["DRAIN_S", "Node"]
