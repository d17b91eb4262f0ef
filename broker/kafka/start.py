"""Binds the Kafka port if it is configured, and checks its settings, before anything else starts."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from broker.net import listen, tls_context
from broker.settings import PREFIX, Settings, SettingsError

if TYPE_CHECKING:
    import ssl

    from broker.kafka.node import Node
    from broker.kafka.port import Port


_MISSING = f"{PREFIX}KAFKA_PORT needs the extra \"kafka\": pip install 'topics-broker[kafka]'."
_OURS = ("broker", "kernel", "schemas", "storage", "topics_broker")


class BoundPort:
    """The bound socket of the Kafka port, and its certificate."""

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        self._listener = listener
        self._tls = tls

    def port(self, broker: Node) -> Port:
        """Make the port for this socket. It is not open yet."""
        from broker.kafka.port import Port

        return Port(broker, self._listener, self._tls)


def bind_port(settings: Settings, listener: socket.socket | None = None) -> BoundPort | None:
    """Bind the Kafka port; None if it is not configured. `listener`: it is bound already.

    Raises SettingsError if the extra `kafka` is not installed, CannotListen for the address or the certificate.
    """
    if settings.kafka_port is None:
        return None
    try:
        from broker.kafka.port import Port  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OURS:
            raise
        raise SettingsError(_MISSING) from None
    tls = None if settings.tls_cert is None else tls_context(settings.tls_cert, settings.tls_key)
    return BoundPort(listen_for_kafka(settings, settings.kafka_port) if listener is None else listener, tls)


def listen_for_kafka(settings: Settings, port: int) -> socket.socket:
    """Bind a socket for Kafka clients. Raises CannotListen."""
    host = settings.host if settings.kafka_host is None else settings.kafka_host
    host_from = "TOPICS_HOST" if settings.kafka_host is None else "TOPICS_KAFKA_HOST"
    return listen(host, port, host_from=host_from, port_from="TOPICS_KAFKA_PORT")
