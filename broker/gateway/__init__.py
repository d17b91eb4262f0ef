"""The public side of a set of cells: it sends each request to the right cell, and merges the answers of several.

Source: docs/cells.md#the-gateway.
"""

from broker.gateway.app import GatewayApp
from broker.gateway.gateway import Gateway
from broker.gateway.hot import HotForwards

__all__ = ["Gateway", "GatewayApp", "HotForwards"]
