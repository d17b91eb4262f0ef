"""The addresses of cells that the gateway gives to clients. Pure.

Source: docs/cells.md#clients-that-go-to-the-cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.content import name_in

if TYPE_CHECKING:
    from broker.gateway.gateway import Gateway


def host_of(host: bytes | None, server: tuple[str, int] | None) -> str:
    """The host under which a client reaches the gateway: from its Host header, or else the address that it connected
    to."""
    named = name_in(host)
    return named or ("" if server is None else server[0])


def addresses(gateway: Gateway, cell: int, *, scheme: str, host: str) -> dict[str, str]:
    """`http`: the URL of a cell for HTTP clients; `kafka`: its host and port for Kafka clients. A cell without such a
    port lacks the field. `host`: the host that the client knows, used unless the settings advertise another. In a
    cluster, the addresses are those of the node that owns the cell; without a known owner there are none."""
    found: dict[str, str] = {}
    if gateway.cluster is not None:
        known = gateway.cluster.read()
        owner = None if known is None else known.owner(cell)
        if owner is not None and owner.http is not None:
            found["http"] = f"{scheme}://{owner.http}"
        if owner is not None and owner.kafka is not None:
            found["kafka"] = str(owner.kafka)
        return found
    advertised = gateway.settings.cell_advertised
    if gateway.http_ports:
        port = gateway.http_ports[cell] if advertised is None else advertised.port + cell
        found["http"] = f"{scheme}://{_bracketed(host if advertised is None else advertised.host)}:{port}"
    advertised = gateway.settings.kafka_advertised
    if gateway.kafka_ports:
        port = gateway.kafka_ports[cell] if advertised is None else advertised.port + cell
        found["kafka"] = f"{_bracketed(host if advertised is None else advertised.host)}:{port}"
    return found


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
