"""What the REST Proxy uses of the broker it belongs to. `broker.wiring` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.kafka import Node

if TYPE_CHECKING:
    from broker.proxy.instances import Instances


class ProxyNode(Node, Protocol):
    """One broker, as its REST Proxy sees it."""

    @property
    def proxy(self) -> Instances: ...
