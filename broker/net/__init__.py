"""Connections: what all ports share, whatever their protocol."""

from broker.net.arrivals import FIRST_COST, NEXT_COST, Arrivals, PacedReceiver
from broker.net.gated import gated
from broker.net.handshakes import HandshakeQueue
from broker.net.listening import ACCEPTS, CannotListen, TlsListener, listen, tls_context, write_port_file
from broker.net.slow import ConnectionState, Phase, Progress, Quota, Sweeper, look_at_http1

__all__ = [
    "ACCEPTS",
    "FIRST_COST",
    "NEXT_COST",
    "Arrivals",
    "CannotListen",
    "ConnectionState",
    "HandshakeQueue",
    "PacedReceiver",
    "Phase",
    "Progress",
    "Quota",
    "Sweeper",
    "TlsListener",
    "gated",
    "listen",
    "look_at_http1",
    "tls_context",
    "write_port_file",
]
