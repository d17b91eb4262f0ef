"""Where connections come in: sockets, and the certificate for all of them."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path


class CannotListen(Exception):
    """The address cannot be listened on."""


def listen(host: str, port: int, *, host_from: str = "TOPICS_HOST", port_from: str = "TOPICS_PORT") -> socket.socket:
    """A bound socket. Raises CannotListen with a sentence naming the address and the settings that it is from."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"{host_from} is {host!r}, which is no address of this machine: {error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotListen(f"Cannot listen on {host} port {port} ({host_from}, {port_from}): {error}.") from None
    return listener


def tls_context(cert: Path, key: Path | None) -> ssl.SSLContext:
    """TLS 1.2 and later. Raises CannotListen with a sentence naming the setting."""
    for variable, path in (("TOPICS_TLS_CERT", cert), ("TOPICS_TLS_KEY", key)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise CannotListen(f"{variable} is {str(path)!r}, which cannot be read: {error.strerror}.") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    where = "TOPICS_TLS_CERT" if key is None else "TOPICS_TLS_KEY"

    def passphrase() -> str:
        # Else the terminal would be asked.
        raise CannotListen(f"The private key in {where} is encrypted; it has to be there in plain.")

    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:  # those of ssl are OSErrors too
        lacking = " and TOPICS_TLS_KEY is not set" if key is None else ""
        both = "TOPICS_TLS_CERT" if key is None else "TOPICS_TLS_CERT and TOPICS_TLS_KEY"
        raise CannotListen(f"{both} cannot be used{lacking}: {error}.") from None
    return context


def write_port_file(path: Path, port: int) -> None:
    """The port as text, appearing at once and whole."""
    draft = path.with_name(f".{path.name}.{port}")
    draft.write_text(f"{port}\n")
    draft.replace(path)
