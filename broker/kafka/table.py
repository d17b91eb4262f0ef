"""All calls that the port serves: each area has a dict of its own, and this joins them."""

from __future__ import annotations

from typing import Final

from broker.kafka.apis import ApiKey
from broker.kafka.call import Handler
from broker.kafka.calls import fetch, list_offsets, metadata, produce, sasl, versions

HANDLERS: Final[dict[int, Handler]] = {
    **fetch.HANDLERS,
    **list_offsets.HANDLERS,
    **metadata.HANDLERS,
    **produce.HANDLERS,
    **sasl.HANDLERS,
}
HANDLERS[ApiKey.API_VERSIONS] = versions.handler(HANDLERS.keys())
