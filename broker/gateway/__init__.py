"""The public side of a set of cells: it finds the cell of each request, and merges what several have to say.

Source: docs/cells.md#the-gateway.
"""

from broker.gateway.app import GatewayApp
from broker.gateway.gateway import Gateway
from broker.gateway.hot import HotForwards

__all__ = ["Gateway", "GatewayApp", "HotForwards"]
