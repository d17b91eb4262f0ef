"""A node of a cluster: the process that starts and ends the others.

Source: docs/cluster.md#nodes.
"""

from broker.node.node import DRAIN_S, Node
from broker.node.silence import Silence, Why
from broker.node.spares import wait_for_role

__all__ = ["DRAIN_S", "Node", "Silence", "Why", "wait_for_role"]
