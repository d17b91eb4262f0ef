"""The HTTP server: protocols, connections, limits and timeouts, TLS."""

from broker.server.server import BrokerServer

__all__ = [
    "BrokerServer",
]
