"""The parts of a broker that its REST Proxy uses. `broker.wiring.Broker` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.kafka import Node

if TYPE_CHECKING:
    from broker.proxy.instances import Instances


class ProxyNode(Node, Protocol):
    """One broker."""

    @property
    def proxy(self) -> Instances: ...
